"""`localspec drafters`: the registry, in words and as JSON."""

from __future__ import annotations

import json

import pytest

from localspec.cli.app import main
from localspec.drafters.registry import REGISTRY
from tests.cli.programs import Screen


def test_every_drafter_and_option_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drafters"]) == 0
    shown = capsys.readouterr().out
    for entry in REGISTRY.values():
        assert f"{entry.name}  {entry.summary}" in shown
        for option in entry.options:
            assert f"-o {option.name}={option.default}" in shown
            assert option.help in shown


def test_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drafters", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "localspec.drafters/1"
    assert [drafter["name"] for drafter in document["drafters"]] == list(REGISTRY)
    assert {option["name"] for drafter in document["drafters"] for option in drafter["options"]} == {
        option.name for entry in REGISTRY.values() for option in entry.options
    }


@pytest.mark.parametrize("columns", [80, 60])
def test_no_word_is_broken_on_a_terminal(columns: int) -> None:
    for command in ("drafters", "doctor"):
        screen = Screen([command], columns=columns)
        assert screen.end() == 0
        wide = [line for line in screen.plain.split("\n") if len(line) > columns]
        assert all(len(line[25:].split()) == 1 for line in wide), "what is one long word is left to the terminal"
