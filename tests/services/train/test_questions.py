"""What may be asked: never the benchmark's prompts, nor near copies, nor anything twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from localspec.errors import UsageError
from localspec.services import prompts
from localspec.services.train.questions import Seen, digest, forbidden, openers, read_turns


def test_built_in_prompts_are_forbidden() -> None:
    seen = Seen(forbidden([]))
    for prompt in prompts.built_in():
        assert not seen.admits(prompt.text)
        assert not seen.admits(f"Please: {prompt.text.upper()}!") or len(prompt.text.split()) < 8


def test_prompts_of_a_file_are_forbidden_with_all_their_turns(tmp_path: Path) -> None:
    path = tmp_path / "bench.jsonl"
    turns = ["Compose a travel post about a trip to Hawaii with culture and sights", "Start each sentence with an A"]
    path.write_text(json.dumps({"question_id": 1, "category": "writing", "turns": turns}), encoding="utf-8")
    seen = Seen(forbidden([path]))
    assert not seen.admits(turns[0])
    assert not seen.admits(turns[1].lower())
    assert not seen.admits(f"Hello. {turns[0]} and more")  # a long run of words is shared
    assert seen.admits("Compose a travel post about Iceland")


def test_nothing_is_asked_twice_whatever_the_spacing() -> None:
    seen = Seen()
    assert seen.admits("Why is the sky blue?")
    assert not seen.admits("why  is the sky BLUE")
    seen.remember([digest("What is a prime number?")])
    assert not seen.admits("What is a prime number")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('{"prompt": "a"}', ["a"]),
        ('{"text": "b", "other": 1}', ["b"]),
        ('{"question_id": 1, "category": "x", "turns": ["c", "d"]}', ["c", "d"]),
        ('"e"', ["e"]),
    ],
)
def test_forms_of_prompt_files(tmp_path: Path, line: str, found: list[str]) -> None:
    (tmp_path / "p.jsonl").write_text(f"\n{line}\n", encoding="utf-8")
    assert read_turns(tmp_path / "p.jsonl") == found


@pytest.mark.parametrize("line", ["{", "3", "{}", '{"prompt": ""}', '{"prompt": 3}', '{"turns": []}', ""])
def test_other_lines_are_errors_in_words(tmp_path: Path, line: str) -> None:
    (tmp_path / "p.jsonl").write_text(line, encoding="utf-8")
    with pytest.raises(UsageError):
        read_turns(tmp_path / "p.jsonl")


def test_openers_are_many_and_different() -> None:
    listed = openers()
    assert len(listed) > 80
    assert len(set(listed)) == len(listed)
    assert any(line.endswith("\n\n") for line in listed)
