"""`localspec models derive` as a person meets it: words, JSON, exit codes, a terminal of 80 columns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from localspec.catalog.modelfile import read_model
from localspec.cli.app import main
from localspec.cli.derive import show, verdict
from localspec.services.derive.derive import Derived
from localspec.services.derive.likeness import Likeness, Share
from localspec.services.derive.recipe import Recipe
from tests import zoo
from tests.cli.programs import Screen

FLAT = tuple((n, 1.0) for n in range(1, 10))


@pytest.fixture
def tiny(clean: Path) -> Path:
    return zoo.tiny_llama(clean / "Tiny one.gguf", layers=3)


def test_made_measured_and_told_how_to_use(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "derive", str(tiny), "--type", "q8_0", "--layers", "0-1", "--tokens", "8"]) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    path = Path(lines[0].removeprefix("draft:").strip())
    assert path.is_file()
    assert lines[1] == "made of:    Tiny one.gguf, Q8_0 without layers 0-1"
    assert [line.partition(":")[0] for line in lines[2:6]] == ["size", "agreement", "alpha", "cost"]
    assert "orth it on this machine" in lines[6]
    use = f"use it:     localspec chat --verifier '{tiny}' --draft {path}"
    assert lines[7:] == [use] * lines[6].startswith("Worth"), "nobody is told to use what is not worth it"
    assert "Q8_0 without layers 0-1 needs" in said.err
    assert "\x1b" not in said.out + said.err


def test_what_is_not_worth_it_is_not_recommended(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command to use the draft followed right after the advice not to."""
    model, half = read_model(tiny), Share(0.5, 100)
    for cost, said in ((0.01, True), (2.0, False)):
        show(Derived(str(tiny), model, model, Recipe("Q4_0", ()), Likeness(half, half, cost, FLAT)))
        assert ("use it:" in capsys.readouterr().out) == said
    show(Derived(str(tiny), model, model, Recipe("Q4_0", ()), None))
    assert "use it:" in capsys.readouterr().out


def test_a_missing_folder_is_made_a_missing_path_is_not(tiny: Path) -> None:
    assert main(["models", "derive", str(tiny), "--tokens", "0", "--out", str(tiny.parent / "new" / "a.gguf")]) == 0
    assert (tiny.parent / "new" / "a.gguf").is_file()


def test_json_is_one_document(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "derive", str(tiny), "--drop-layers", "1", "--tokens", "8", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert (found["schema"], found["type"], found["without_layers"]) == ("localspec.models.derive/1", None, [1])
    measured = found["measured"]
    assert measured["agreement_tokens"] <= 8
    assert measured["greedy"]["best_N"] == 0 or measured["greedy"]["expected_speedup"] > 1.0
    main(["models", "list", "--json"])
    (other,) = json.loads(capsys.readouterr().out)["others"]
    assert other["path"] == found["draft"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--type", "Q9"], 2, "Q9 is no file type"),
        (["--layers", "2-1"], 2, "--layers is '2-1'"),
        (["--layers", ""], 2, "--layers is ''"),
        (["--layers", "1-"], 2, "--layers is '1-'"),
        (["--layers", "0-99999999999"], 2, "--layers is"),
        (["--layers", "7"], 2, "has no layer 7"),
        (["--drop-layers", "-1"], 2, "--drop-layers"),
        (["--drop-layers", "1", "--layers", "1"], 2, "both at once"),
        (["--out", "draft.bin"], 2, "does not end in .gguf"),
        (["--out", "not/there/draft.gguf"], 2, "There is no folder"),
        (["--tokens", "1000000000"], 2, "--tokens"),
    ],
)
def test_nonsense_is_a_sentence_and_a_hint(
    tiny: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, words: str
) -> None:
    assert main(["models", "derive", str(tiny), *arguments]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err
    assert "hint:" in said.err


def test_the_verdict_names_what_to_expect() -> None:
    share = Share(0.8, 100)
    assert verdict(Likeness(share, Share(0.5, 100), 0.05, FLAT)).startswith(
        "Worth it on this machine: expect 3.09x greedy (N = 8), 1.63x sampled (N = 3)."
    )
    assert "at every draft length" in verdict(Likeness(share, share, 1.0, FLAT[:1]))
    barely = verdict(Likeness(Share(0.53, 100), Share(0.1, 100), 0.5, FLAT))
    assert barely.startswith("Not worth it on this machine: at best 1.02x greedy (N = 1)")


def test_lines_fit_a_terminal(tiny: Path) -> None:
    screen = Screen(["models", "derive", str(tiny), "--tokens", "0"], columns=80)
    assert screen.end() == 0
    assert "made of:    Tiny one.gguf, Q4_0" in screen.plain
