"""Escape sequences from outside: answers, errors of templates, names in model files and registries, hubs' errors."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from localspec.cli import streams
from localspec.cli.console import explain
from localspec.cli.streams import console, harmless, print_json
from localspec.errors import LocalspecError
from tests.cli.programs import Screen

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b1m"
SHOWN = "␛]0;owned␛[2J\ufffd1m"  # rich itself drops the bell


def test_an_error_of_a_template_cannot_operate_the_terminal() -> None:
    """`raise_exception` of a chat template writes whatever a model file wants."""
    source = "{{ raise_exception('no: \x1b]0;owned\x07\x1b[2J\x9b1m') }}"
    screen = Screen(["run", "hi"], scripts=[], runtime={"template": source})
    assert screen.end() == 1
    assert "\x1b]0;" not in screen.seen
    assert f"refuses these messages: no: {SHOWN}" in screen.plain


def test_notes_of_a_registry_cannot_operate_the_terminal(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    note = "\\u001b]0;owned\\u0007\\u001b[2J\\u009b1m"
    file.write_text(f'[models.evil]\nsource = "evil.gguf"\nlicense = "{note}"\nnote = "{note}"\n')
    screen = Screen(["models", "show", "evil"], more={"LOCALSPEC_MODELS": str(file)}, columns=200)
    screen.end()
    assert "\x1b]0;" not in screen.seen
    assert "␛]0;owned" in screen.plain


def test_everything_that_is_printed_goes_through_the_safe_console(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts, tables, markup, links: on a terminal and in a pipe."""
    from rich.table import Table
    from rich.text import Text

    monkeypatch.setattr(streams, "is_rich", lambda stream: True)
    monkeypatch.setattr(streams, "is_terminal", lambda stream: True)
    out = io.StringIO()
    table = Table("a")
    table.add_row(EVIL)
    for thing in (EVIL, Text(EVIL), Text.assemble((EVIL, "red")), table):
        console(out).print(thing, markup=False)
    assert "\x1b]0;" not in out.getvalue()
    assert "\x9b" not in out.getvalue()
    assert "\x07" not in out.getvalue()
    assert out.getvalue().count("␛]0;owned") == 4
    assert "\x1b[31m" in out.getvalue(), "our own colours are kept"


def test_an_error_that_quotes_a_server_is_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    explain(LocalspecError(f"the hub says {EVIL}", hint=EVIL))
    said = capsys.readouterr().err
    assert said.count(SHOWN) == 2
    assert "\x1b" not in said


def test_json_holds_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"text": EVIL + "\x7f é"})
    out = capsys.readouterr().out
    assert not set(out) & {*map(chr, range(32)), *map(chr, range(0x7F, 0xA0))} - {"\n"}
    assert json.loads(out) == {"text": EVIL + "\x7f é"}


def test_letters_stay_as_they_are() -> None:
    assert harmless("é\n\t🐈 ␛") == "é\n\t🐈 ␛"
