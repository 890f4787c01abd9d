"""The shell of the command line: instant help, exit codes, one sentence per error, clean pipes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from localspec.cli import app, console
from localspec.errors import LoadError, UsageError
from localspec.version import __version__
from tests.cli.programs import ROOT, Screen, environment, piped

COMMANDS = ("run", "chat", "bench", "models", "theory", "drafters", "doctor")


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom localspec.cli.app import main\ncode = main(sys.argv[1:])\n"
        "heavy = {'numpy', 'llama_cpp', 'huggingface_hub', 'prompt_toolkit', 'jinja2', 'localspec.core'}\n"
        "sys.stderr.write(','.join(sorted(heavy & set(sys.modules))))\nsys.exit(code)"
    )
    for arguments in (["--help"], ["run", "--help"], ["chat", "--help"], ["--version"]):
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, cwd=ROOT, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)
    assert app.main([]) == 0
    assert "Usage" in capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main([name, "--help"]) == 0
    assert "Usage" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["--version"]) == 0
    assert capsys.readouterr().out == f"localspec {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["nosuch"], "nosuch"),
        (["run", "--nosuch"], "--nosuch"),
        (["run", "--temperature", "warm", "hi"], "temperature"),
        (["run", "--temperature", "-1", "hi"], "temperature is -1.0"),
        (["run", "--max-tokens", "-1", "hi"], "max-tokens is -1"),
        (["run", "--top-p", "1.5", "hi"], "top-p"),
        (["run", "--N", "many", "hi"], "N is many"),
        (["run", "--N", "-2", "hi"], "N is -2"),
        (["run", "--tree", "4,0", "hi"], "--tree"),
        (["run", "-o", "novalue", "hi"], "novalue"),
        (["run", "-o", "a=1", "-o", "a=2", "hi"], "twice"),
        (["run", "--kv-type", "q5_0", "hi"], "f16, q8_0, q4_0"),
        (["run", "--acceptance", "typical", "hi"], "rejection, coupled"),
        (["run", "--gpu-layers", "all", "hi"], "gpu-layers"),
        (["run", "--threads", "0", "hi"], "threads"),
        (["run", "--logit-bias", "the=1", "hi"], "token id"),
        (["run", "--logit-bias", "3=nan", "hi"], "token id"),
        (["run", "--stop", "", "hi"], "--stop"),
        (["run", ""], "empty"),
        (["run", "--raw", "--system", "x", "hi"], "--raw"),
    ],
)
def test_wrong_use_is_one_sentence_with_a_hint(
    arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.main(arguments) == 2
    shown = capsys.readouterr()
    first, second = shown.err.splitlines()
    assert first.startswith("error: ")
    assert part in first
    assert second.startswith("hint: ")
    assert shown.out == ""


def raising(error: BaseException) -> object:
    def dispatch(**_: object) -> None:
        raise error

    return dispatch


def test_errors_become_exit_codes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for error, code, text in (
        (
            LoadError("no memory for 7 layers", hint="Use fewer."),
            1,
            "error: no memory for 7 layers\nhint: Use fewer.\n",
        ),
        (UsageError("odd"), 2, "error: odd\n"),
        (ZeroDivisionError("by zero"), 1, f"error: ZeroDivisionError: by zero\nhint: {console.BUG_HINT}\n"),
        (KeyboardInterrupt(), 130, ""),
    ):
        monkeypatch.setattr(app, "app", raising(error))
        assert app.main([]) == code
        assert capsys.readouterr().err == text


def test_a_traceback_only_for_debugging(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(app, "app", raising(LoadError("no memory")))
    monkeypatch.setenv("LOCALSPEC_DEBUG", "1")
    assert app.main([]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_brackets_in_an_error_are_no_markup(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(app, "app", raising(LoadError("cannot open [red]a[0].gguf", hint="See [b].")))
    app.main([])
    assert capsys.readouterr().err == "error: cannot open [red]a[0].gguf\nhint: See [b].\n"


@pytest.mark.parametrize("arguments", [["--help"], ["drafters"], ["run", "hi"], ["run", "--temperature", "-1", "hi"]])
def test_b21_pipes_hold_no_escapes(arguments: list[str]) -> None:
    """B21: colours, spinners and carriage returns in pipes and logs."""
    done = piped(arguments, scripts=[{"text": "one two"}])
    assert b"\x1b" not in done.stdout + done.stderr
    assert b"\r" not in done.stdout + done.stderr


@pytest.mark.parametrize("variable", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
@pytest.mark.parametrize("arguments", [["--help"], ["drafters"], ["run", "hi"], ["run", "--temperature", "-1", "hi"]])
def test_b21_no_color_and_dumb_terminals_get_plain_text(variable: dict[str, str], arguments: list[str]) -> None:
    """B21: NO_COLOR ignored."""
    screen = Screen(arguments, scripts=[{"text": "one two"}], more=variable)
    screen.end()
    assert "\x1b" not in screen.seen
    assert screen.seen


def test_a_terminal_gets_colour() -> None:
    screen = Screen(["run", "--temperature", "-1", "hi"], scripts=[])
    assert screen.end() == 2
    assert "\x1b[1;31merror" in screen.seen


def test_a_reader_that_leaves_ends_the_program_quietly() -> None:
    """`localspec run .. | head -1` used to end in a BrokenPipeError, at the latest when Python flushes at its end."""
    program = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.driver", "run", "hi"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env=environment([{"text": "word " * 400, "pause_s": 0.005}], None, None),
        cwd=ROOT,
    )
    assert program.stdout is not None
    assert program.stderr is not None
    os.read(program.stdout.fileno(), 1)
    program.stdout.close()
    assert program.stderr.read() == b""
    program.stderr.close()
    assert program.wait(timeout=60) == 1
