"""`localspec models`: tables, JSON, exit codes, and progress that stays on standard error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from localspec.cli.app import main
from tests import zoo
from tests.cli.programs import Screen, piped
from tests.hub import Hub, Repo

REGISTRY = """\
default = "pair"
[models.big]
source = "hf:owner/big/big-Q4_K_M.gguf"
license = "MIT"
[models.small]
source = "small file.gguf"
unverified = true
[pairs.pair]
verifier = "big"
drafter = "model"
draft = "small"
memory = 4
"""


@pytest.fixture
def mine(hub: Hub, tiny: bytes, clean: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registry of one pair: a verifier on the hub, a draft on the disk."""
    hub.repos["owner/big"] = Repo({"big-Q4_K_M.gguf": tiny})
    zoo.tiny_llama(clean / "small file.gguf", vocabulary=zoo.byte_vocabulary().renamed({150: "odd"}))
    file = clean / "models.toml"
    file.write_text(REGISTRY)
    monkeypatch.setenv("LOCALSPEC_MODELS", str(file))
    return clean


def document(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    """The one JSON document on standard output."""
    capsys.readouterr()
    assert main(["models", *arguments, "--json"]) == code
    (line,) = capsys.readouterr().out.splitlines()
    return dict(json.loads(line))


def test_list_as_json(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "list")
    assert (found["schema"], found["default"]) == ("localspec.models/1", "pair")
    pair = next(pair for pair in found["pairs"] if pair["name"] == "pair")
    assert (pair["verifier"], pair["draft"], pair["state"], pair["memory_gb"]) == ("big", "small", "partial", 4)
    assert pair["unverified"]
    states = {model["name"]: model["state"] for model in found["models"]}
    assert (states["big"], states["small"]) == ("absent", "present")
    assert found["others"] == []


def test_list_in_a_pipe_is_fields_with_tabs(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "list", "--here"]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert lines[0][:3] == ["Pair", "Weights", "Draft"]
    assert lines[1:] == [["pair", "Q4_K_M", "small", "", "4 GB", "partly", "default, unverified"]]


def test_list_by_memory_and_by_model(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert all(pair["memory_gb"] <= 4 for pair in document(capsys, "list", "--memory", "4")["pairs"])
    assert main(["models", "list", "--models", "--here"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Model\tSize")
    assert [line.split("\t")[0] for line in lines[1:]] == ["smollm2-135m-eagle3", "small"]


def test_pull_fetches_and_says_where(mine: Path, capsys: pytest.CaptureFixture[str], tiny: bytes) -> None:
    assert main(["models", "pull", "pair"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert Path(lines[0].rpartition("  ")[0]).read_bytes() == tiny
    assert lines[0].endswith("llama F32, 468 kB")
    found = document(capsys, "pull")
    assert found["schema"] == "localspec.models.pull/1"
    assert [model["vocab_size"] for model in found["models"]] == [261, 261]


def test_show_and_remove(mine: Path, capsys: pytest.CaptureFixture[str], tiny: bytes) -> None:
    main(["models", "pull", "big"])
    capsys.readouterr()
    assert main(["models", "show", "big"]) == 0
    shown = capsys.readouterr().out
    assert "source:        hf:owner/big/big-Q4_K_M.gguf\n" in shown
    assert "tokenizer:     gpt2/smollm, 261 ids\n" in shown
    (model,) = document(capsys, "show", "big")["models"]
    assert (model["state"], model["file"]["architecture"]) == ("present", "llama")
    removed = document(capsys, "remove", "big")
    assert removed["bytes"] == len(tiny)
    assert not Path(removed["paths"][0]).exists()
    assert main(["models", "remove", "big"]) == 2
    assert "Nothing of big is on this machine." in capsys.readouterr().err


def test_check_says_yes_with_notes_and_no_with_reasons_B03_B05(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "check", "pair"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "small file.gguf can draft for big-Q4_K_M.gguf."
    assert "1 id with another text will not be proposed: 150 " in lines[1]
    assert document(capsys, "check", "pair")["blocked"] == [150]

    other = zoo.tiny_llama(mine / "other.gguf", vocabulary=zoo.byte_vocabulary().renamed({100: "a?", 101: "b?"}))
    assert main(["models", "check", "big", str(other)]) == 1
    said = capsys.readouterr()
    assert "other.gguf cannot draft for big-Q4_K_M.gguf." in said.out
    assert "the first id that differs is 100" in said.out
    assert "hint:" in said.err
    found = document(capsys, "check", "big", str(other), code=1)
    assert found["first_difference"]["id"] == 100
    assert found["first_difference"]["draft"] == "a?"
    assert not found["compatible"]


def test_padding_is_compatible_and_named_B01(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    padded = zoo.tiny_llama(mine / "padded.gguf", vocabulary=zoo.byte_vocabulary().padded(7))
    for arguments in (["big", str(padded)], [str(padded), "big"]):
        assert main(["models", "check", *arguments]) == 0
        assert "sizes differ by 7 ids" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["pull", "bgi"], 2, "Did you mean big?"),
        (["pull", "hf:owner/absent/a.gguf"], 1, "no public repository owner/absent"),
        (["pull", "absent größe.gguf"], 1, "There is no file absent größe.gguf"),
        (["check", "big"], 2, "There is no pair called 'big'"),
        (["list", "--memory", "0"], 2, "--memory"),
    ],
)
def test_errors_are_a_sentence_and_a_hint(
    mine: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, words: str
) -> None:
    assert main(["models", *arguments]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err
    assert "hint:" in said.err
    assert "Traceback" not in said.err


def test_a_bad_registry_is_an_error_of_every_subcommand(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = mine / "models.toml"
    file.write_text(REGISTRY.replace("memory = 4", "memory = 'four'"))
    assert main(["models", "list"]) == 1
    assert f"{file}, line 12: pairs.pair.memory must be a whole number" in capsys.readouterr().err


def test_a_pipe_gets_no_escapes_and_no_progress_B21(mine: Path) -> None:
    done = piped(["models", "pull", "big"])
    assert done.returncode == 0
    assert b"\x1b" not in done.stdout + done.stderr
    assert b"\r" not in done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == 1


def test_a_table_on_a_terminal_fits_it(mine: Path) -> None:
    screen = Screen(["models", "list"], columns=100)
    assert screen.end() == 0
    lines = screen.plain.splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 100
    assert any(line.split()[:2] == ["pair", "Q4_K_M"] for line in lines)


def test_a_narrow_terminal_gets_fewer_columns_and_whole_words() -> None:
    """Names were broken into pieces of what room was left: it is said which columns are missing."""
    wide, narrow = Screen(["models", "list"], columns=120), Screen(["models", "list"], columns=60)
    assert (wide.end(), narrow.end()) == (0, 0)
    assert "No room" not in wide.plain
    assert "No room for: Draft, Remarks" in narrow.plain
    names = {line.split()[0] for line in wide.plain.splitlines() if "Q4_K_M" in line}
    assert names
    assert names == {line.split()[0] for line in narrow.plain.splitlines() if "Q4_K_M" in line}


def test_removing_on_a_terminal_asks_first(mine: Path) -> None:
    assert main(["models", "pull", "big"]) == 0
    screen = Screen(["models", "remove", "big"])
    screen.wait_for("Delete what was fetched of big?")
    screen.type("n\n")
    assert screen.end() == 130
    screen = Screen(["models", "remove", "big"])
    screen.wait_for("[y/N]")
    screen.type("y\n")
    assert screen.end() == 0
    assert "468 kB freed" in screen.plain
