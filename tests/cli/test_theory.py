"""`localspec theory`: tables, one JSON document, pictures, exit codes."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from localspec.cli import app
from localspec.services.theory import rollback as theory_rollback
from localspec.services.theory import theory

QUICK = {
    "check": ["--samples", "40"],
    "sweep": [],
    "tree": ["--samples", "20", "--shape", "2,2"],
    "rollback": [],
    "distance": ["--samples", "20"],
}


def run(name: str, *more: str) -> int:
    return app.main(["theory", name, *QUICK[name], *more])


@pytest.mark.parametrize("name", QUICK)
def test_json_is_one_document(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(name, "--json") == 0
    shown = capsys.readouterr()
    (line,) = shown.out.splitlines()
    assert json.loads(line)["schema"] == f"localspec.theory.{name}/1"
    assert run(name, "--json") == 0
    assert capsys.readouterr().out == shown.out


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("check", {"samples", "chi2", "dof", "critical_95", "passed"}),
        ("sweep", {"alpha", "c", "rows", "best_N"}),
    ],
)
def test_the_contract_s_fields(name: str, fields: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    run(name, "--json")
    document = json.loads(capsys.readouterr().out)
    assert fields <= set(document)
    if name == "sweep":
        assert {"N", "tokens_per_pass", "time_per_token", "speedup"} == set(document["rows"][0])


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("check", ["good", "fair", "poor", "together", "passed"]),
        ("sweep", ["speed-up", "3.09x", "best N is 8"]),
        ("tree", ["2,2", "chain of 6", "leaf of 2,2", "0.1"]),
        ("rollback", ["9 -> 15 -> 12", "10 -> 13", "yes"]),
        ("distance", ["KL", "0.937", "Pinsker"]),
    ],
)
def test_tables(name: str, parts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(name) == 0
    shown = capsys.readouterr().out
    assert [part for part in parts if part not in shown] == []


@pytest.mark.parametrize("name", QUICK)
def test_pictures(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "picture.png"
    assert run(name, "--plot", str(target)) == 0
    assert target.read_bytes().startswith(b"\x89PNG")


def test_a_picture_without_matplotlib_is_refused_before_the_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert app.main(["theory", "check", "--plot", str(tmp_path / "a.png")]) == 2
    shown = capsys.readouterr()
    assert "matplotlib" in shown.err
    assert "pip install 'localspec[plot]'" in shown.err
    assert shown.out == ""


@pytest.mark.parametrize("name", ["check", "rollback"])
def test_what_fails_leaves_with_1(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    owner: Any = {"check": theory.Check, "rollback": theory_rollback.Rollback}[name]
    monkeypatch.setattr(owner, "passed", property(lambda self: False))
    assert run(name, "--json") == 1
    assert json.loads(capsys.readouterr().out)["passed"] is False


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "--samples", "0"],
        ["check", "--samples", "1000000000000"],
        ["tree", "--samples", "1000000000000"],
        ["distance", "--samples", "1000000000000"],
        ["check", "--samples", "1"],
        ["check", "--acceptance", "typical"],
        ["check", "--N", "0"],
        ["sweep", "--alpha", "1.5"],
        ["sweep", "--c", "-1"],
        ["tree", "--shape", "2,x"],
        ["tree", "--shape", "9,9"],
        ["distance", "--plot", "a.jpg"],
    ],
)
def test_wrong_use(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["theory", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("error: ")
    assert shown.out == ""


@pytest.mark.parametrize("name", QUICK)
def test_help_has_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["theory", name, "--help"]) == 0
    assert f"localspec theory {name}" in capsys.readouterr().out
