"""The registry: what ships, what a user's file changes, and that every bad entry is found with file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.catalog.positions import Positions
from localspec.catalog.reference import HubFile, LocalFile, WheelFile
from localspec.catalog.registry import Registry, load, read
from localspec.errors import RegistryError, UsageError

GOOD = """\
default = "p"

[models.m]
source = "hf:o/r/m.gguf"

[models.d]
source = "hf:o/r/d.gguf"

[pairs.p]
verifier = "m"
drafter = "model"
draft = "d"
N = 4
"""


@pytest.fixture
def packaged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Registry:
    monkeypatch.delenv("LOCALSPEC_MODELS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return load()


def problem(text: str) -> str:
    with pytest.raises(RegistryError) as caught:
        read(text, "my models.toml")
    assert caught.value.hint
    return str(caught.value)


# --- what ships ---


def test_the_default_pair_comes_from_the_package_registry(packaged: Registry) -> None:
    pair = packaged.pair()
    assert pair.name == "smollm2-135m"
    model = packaged.model(pair.verifier)
    assert isinstance(model.source, WheelFile)
    assert model.size == 98362432
    assert model.sha256 is not None
    assert not model.unverified


def test_pairs_for_every_usual_graphics_card_and_family(packaged: Registry) -> None:
    assert len(packaged.pairs) >= 15
    assert {4, 8, 12, 16, 24} <= {pair.memory for pair in packaged.pairs.values()}
    names = " ".join(packaged.pairs)
    families = ["qwen2.5-coder", "qwen2.5-7b", "qwen3", "llama-3", "gemma-3", "smollm2", "r1-", "mistral"]
    assert [family for family in families if family not in names] == []


def test_what_has_no_hash_is_marked_unverified(packaged: Registry) -> None:
    assert [model.name for model in packaged.models.values() if model.sha256 is None and not model.unverified] == []


def test_a_draft_is_of_its_verifiers_family(packaged: Registry) -> None:
    for pair in packaged.pairs.values():
        if pair.draft is not None:
            assert pair.draft.split("-")[0] == pair.verifier.split("-")[0]


def test_the_quantisation_is_in_every_file_name(packaged: Registry) -> None:
    for model in packaged.models.values():
        assert "q4" in str(model.source).lower() or "q8" in str(model.source).lower()


# --- a user's own file ---


def test_a_users_entry_replaces_the_whole_packaged_one(tmp_path: Path) -> None:
    file = tmp_path / "ein Ordner" / "models.toml"
    file.parent.mkdir()
    file.write_text('[models.smollm2-135m]\nsource = "größe.gguf"\n', encoding="utf-8")
    registry = load(file)
    model = registry.model("smollm2-135m")
    assert model.source == LocalFile(file.parent / "größe.gguf", "größe.gguf")  # B85
    assert model.sha256 is None  # the packaged hash would be another file's
    assert registry.default == "smollm2-135m"
    assert registry.pair("qwen2.5-7b").draft == "qwen2.5-0.5b-q8_0"


def test_the_variable_names_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(GOOD)
    monkeypatch.setenv("LOCALSPEC_MODELS", str(file))
    assert load().default == "p"
    assert load().model("m").source == HubFile("o/r", "m.gguf")
    monkeypatch.setenv("LOCALSPEC_MODELS", str(tmp_path / "absent.toml"))
    with pytest.raises(RegistryError, match=r"absent\.toml cannot be read"):
        load()


def test_an_unknown_name_gets_near_ones(packaged: Registry) -> None:
    with pytest.raises(UsageError) as caught:
        packaged.pair("qwen2.5-7B")
    assert "qwen2.5-7b" in caught.value.hint
    assert caught.value.exit_code == 2


# --- bad entries: the line that is expected, the key, and a part of the sentence ---


@pytest.mark.parametrize(
    ("old", "new", "line", "key", "words"),
    [
        ('source = "hf:o/r/m.gguf"', "", 3, "models.m.source", "is missing"),
        ('source = "hf:o/r/m.gguf"', "source = 3", 4, "models.m.source", "must be a text, not 3"),
        ('source = "hf:o/r/m.gguf"', 'source = "d"', 4, "models.m.source", "not another name"),
        ('source = "hf:o/r/m.gguf"', 'source = "hf:o"', 4, "models.m.source", "is not a reference"),
        ("[models.d]", '  sha256 = "XYZ"\n[models.d]', 6, "models.m.sha256", "64 hexadecimal digits"),
        ("[models.d]", '  size = "big"\n[models.d]', 6, "models.m.size", "must be a whole number, not 'big'"),
        ("[models.d]", "size = true\n[models.d]", 6, "models.m.size", "must be a whole number, not True"),
        ("[models.d]", "size = -1\n[models.d]", 6, "models.m.size", "above 0"),
        ("[models.d]", 'sha265 = "x"\n[models.d]', 6, "models.m.sha265", "did you mean 'sha256'"),
        ("[models.d]", '"weird key" = 1\n[models.d]', 6, "models.m.weird key", "is not a known key"),
        ('verifier = "m"', 'verifier = "n"', 10, "pairs.p.verifier", "names the model 'n', which does not exist"),
        ('draft = "d"', 'draft = "dd"', 12, "pairs.p.draft", "did you mean 'd'"),
        ('drafter = "model"', 'drafter = "lookahead"', 12, "pairs.p.draft", "reads no second file"),
        ("N = 4", "N = -1", 13, "pairs.p.N", "whole number from 0"),
        ("N = 4", 'N = "four"', 13, "pairs.p.N", "whole number from 0"),
        ("N = 4", "N = 2.5", 13, "pairs.p.N", "must be a whole number or"),
        ("N = 4", 'tree = "4;2"', 13, "pairs.p.tree", "widths like"),
        ("N = 4", "options = { min = [1] }", 13, "pairs.p.options.min", "must be a text, number or truth value"),
        ("N = 4", "memory = 1.5", 13, "pairs.p.memory", "must be a whole number"),
        ('default = "p"', 'default = "q"', 1, "default", "which does not exist"),
        ('default = "p"', "", 1, "default", "is missing"),
        ("[models.d]", "[models.'a b']", 6, "models.a b", "is not a name"),
        ("[models.d]", "[models]\nx = 3\n[models.d]", 7, "models.x", "must be a table, not 3"),
        ("[models.d]", "[model.d]", 6, "model", "did you mean 'models'"),
    ],
)
def test_a_bad_entry_is_found_with_file_line_and_key(old: str, new: str, line: int, key: str, words: str) -> None:
    assert old in GOOD
    said = problem(GOOD.replace(old, new, 1))
    assert said.startswith(f"my models.toml, line {line}: {key} ")
    assert words in said


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (GOOD + '[models.m]\nsource = "hf:o/r/x.gguf"\n', 14),  # the same table twice
        (GOOD.replace("N = 4", "N = 4\nN = 5"), 14),
        (GOOD.replace("N = 4", "N = "), 13),
        (GOOD.replace("N = 4", 'note = "never closed'), 13),
    ],
)
def test_what_is_no_toml_is_found_with_its_line(text: str, line: int) -> None:
    said = problem(text)
    assert said.startswith(f"my models.toml, line {line}: not valid TOML: ")


@pytest.mark.parametrize("text", ["N = " + "9" * 5000, "a = " + "[" * 5000])
def test_toml_beyond_all_measure_is_an_error_too(text: str) -> None:
    """The reader of TOML raises other errors than its own there."""
    assert problem(text).startswith("my models.toml, line 1: not valid TOML: ")


# --- lines ---


def test_lines_of_quoted_dotted_and_inline_keys() -> None:
    text = (
        '[models."a.b"]\nsource = "x"\n[ models . \'c\' ]\nnote = """\n[models.trap]\nsize = 1\n"""\nsize = 2\n'
        'models2.d.size = 1\n[pairs]\np = { verifier = "m", N = 3 }\n"q\\"q" = 1\n'
    )
    positions = Positions(text)
    assert positions.line("models", "a.b", "source") == 2
    assert positions.line("models", "c") == 3
    assert positions.line("models", "c", "size") == 8
    assert positions.line("models", "trap") == 1  # only a text says so
    assert positions.line("models", "c", "models2", "d", "size") == 9
    assert positions.line("pairs", "p", "N") == 11
    assert positions.line("pairs", 'q"q') == 12
    assert positions.line("nothing") == 1


@given(st.text(alphabet="ab.\"'[]={}#\n 1", max_size=80))
def test_positions_never_fail_and_stay_inside(text: str) -> None:
    assert 1 <= Positions(text).line("a", "b") <= max(1, len(text.splitlines()))


@given(st.text(alphabet="ab.\"'[]={}#\n 1\\", max_size=60))
def test_any_text_is_read_or_refused_with_a_line(text: str) -> None:
    with pytest.raises(RegistryError, match="line"):
        read(text, "f")  # never a registry: no pair is called by these letters and is complete


@pytest.mark.parametrize("key", ["a." * 10_000 + "a", '"a" . ' * 40 + "a", "[" + "pairs." * 40 + "x]"])
def test_tables_in_tables_without_end_are_refused_before_they_fill_the_memory(key: str) -> None:
    """Sixteen kilobytes of dots took 470 MiB."""
    line = key if key.startswith("[") else f"{key} = 1"
    with pytest.raises(RegistryError, match=r"own\.toml, line 2: .*so many dots"):
        read(f"default = 'p'\n{line}\n", "own.toml")


def test_dots_in_file_names_are_no_tables_in_tables() -> None:
    name = "a." * 20 + "gguf"
    text = f"default = 'p'\n[models.m]\nsource = '{name}'\n[pairs.p]\nverifier = 'm'\ndrafter = 'ngram'\n"
    assert str(read(text, "own.toml").model("m").source) == name
