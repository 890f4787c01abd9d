"""Prompt files: what is read, and what is said about a file that cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from localspec.errors import UsageError
from localspec.services.prompts import Prompt, built_in, choose, read

GOOD = '{"question_id": 81, "category": "writing", "turns": ["one", "two"], "reference": [1]}'


def file(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_spec_bench_lines_are_read(tmp_path: Path) -> None:
    text = GOOD + '\r\n\n{"question_id": "x-2", "category": " qa ", "turns": ["Wörter\\nzwei \\u2028 drei"]}'
    assert read(file(tmp_path, text)) == [
        Prompt("81", "writing", "one"),
        Prompt("x-2", "qa", "Wörter\nzwei \u2028 drei"),
    ]


def test_a_byte_order_mark_and_unicode_line_ends_inside_texts_are_fine(tmp_path: Path) -> None:
    line = json.dumps({"question_id": 1, "category": "qa", "turns": ["a\u2028b\x85c"]}, ensure_ascii=False)
    assert read(file(tmp_path, "\ufeff" + line)) == [Prompt("1", "qa", "a\u2028b\x85c")]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "line 2: not JSON"),
        ("[1]", "line 2: a list instead of an object"),
        ("3", "line 2: a number instead of an object"),
        ('{"category": "qa", "turns": ["x"]}', "line 2: the key question_id is missing"),
        ('{"question_id": 1, "turns": ["x"]}', "line 2: the key category is missing"),
        ('{"question_id": 1, "category": "qa"}', "line 2: the key turns is missing"),
        ('{"question_id": true, "category": "qa", "turns": ["x"]}', "line 2: question_id must be a number or text"),
        ('{"question_id": 1, "category": "", "turns": ["x"]}', "line 2: category must be a text"),
        ('{"question_id": 1, "category": "qa", "turns": []}', "line 2: turns must be a list of texts"),
        ('{"question_id": 1, "category": "qa", "turns": "x"}', "line 2: turns must be a list of texts"),
        ('{"question_id": 1, "category": "qa", "turns": [" "]}', "line 2: turns must be a list of texts"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    path = file(tmp_path, f"{GOOD}\n{line}\n")
    with pytest.raises(UsageError) as caught:
        read(path)
    assert f"{path}, {complaint}" in str(caught.value)
    assert "question_id" in caught.value.hint


@pytest.mark.parametrize(("content", "complaint"), [("\n \n", "holds no prompts"), (b"\xff\xfe", "not UTF-8")])
def test_a_bad_file_is_named(tmp_path: Path, content: str | bytes, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        read(file(tmp_path, content))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.jsonl cannot be read"):
        read(tmp_path / "nowhere.jsonl")


def test_a_file_without_an_end_is_named() -> None:
    with pytest.raises(UsageError, match="/dev/zero cannot be read: File too large"):
        read(Path("/dev/zero"))


def test_the_built_in_prompts_cover_their_categories() -> None:
    assert [prompt.category for prompt in built_in()] == [
        "chat", "code", "code-edit", "summary", "translation", "math", "rag", "json", "creative"
    ]  # fmt: skip


def test_choose_by_category_and_count() -> None:
    prompts = [Prompt(str(number), category, "x") for number, category in enumerate(["a", "b", "a", "a", "b"])]
    assert [prompt.id for prompt in choose(prompts)] == ["0", "1", "2", "3", "4"]
    assert [prompt.id for prompt in choose(prompts, limit=1)] == ["0", "1"]
    assert [prompt.id for prompt in choose(prompts, categories=["a"], limit=2)] == ["0", "2"]
    with pytest.raises(UsageError, match="no category 'c'") as caught:
        choose(prompts, categories=["c"])
    assert caught.value.hint == "There are: a, b."


@pytest.mark.parametrize(("name", "count"), [("specbench12", 12), ("specbench_context8", 8), ("code_edit", 8)])
def test_the_sets_of_the_harness_can_be_read(name: str, count: int) -> None:
    assert len(read(Path(__file__).parents[2] / "bench" / "prompts" / f"{name}.jsonl")) == count
