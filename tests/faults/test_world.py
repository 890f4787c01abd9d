"""When the world around the program is not as it should be: streams, folders, signals, a second process."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from localspec.services.chat import file as chat_file
from tests.cli.programs import ROOT, Screen, command, environment
from tests.services.toy_pair import Collected

LONG = {"text": "word " * 400, "pause_s": 0.02}
SAID = "word word word"


def shell(line: str, *, scripts: list[dict[str, Any]] | None, **more: str) -> subprocess.CompletedProcess[bytes]:
    """Run a shell line in which $LOCALSPEC is the command."""
    words = " ".join(command(scripts is not None))
    return subprocess.run(
        ["bash", "-c", line],
        env=environment(scripts, None, {"LOCALSPEC": words, **more}),
        cwd=ROOT,
        capture_output=True,
        timeout=30,
        check=False,
    )


# -- streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_lead_nowhere(closed: str) -> None:
    done = shell(f"$LOCALSPEC run hi {closed}", scripts=[{"text": "an answer", "pause_s": 0.0}])
    assert done.returncode == 0
    assert done.stdout == (b"" if ">&-" in closed.replace("2>&-", "") else b"an answer\n")
    assert done.stderr == b""


def test_a_closed_stream_is_not_given_to_the_next_file(tmp_path: Path) -> None:
    """With standard output closed the first file that was opened got its number, and answers went into that file."""
    line = f"printf 'hi\\n/save {tmp_path}/talk.json\\n' | $LOCALSPEC chat >&-"
    assert shell(line, scripts=[{"text": "an answer"}]).returncode == 0
    assert [turn.answer for turn in chat_file.read(tmp_path / "talk.json")[1]] == ["an answer"]


def test_a_chat_without_input_ends() -> None:
    assert shell("$LOCALSPEC chat <&-", scripts=[]).returncode == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device here")
def test_a_full_disk_behind_standard_output_is_one_sentence() -> None:
    done = shell("$LOCALSPEC run hi > /dev/full", scripts=[{"text": "an answer"}])
    assert done.returncode == 1
    said = done.stderr.decode().splitlines()
    assert said[0].startswith("error: the output cannot be written: No space left")
    assert said[1].startswith("hint: ")
    assert len(said) == 2


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device here")
@pytest.mark.parametrize("rest", ["", "--json"])
def test_a_full_disk_behind_standard_error_stops_nothing(rest: str) -> None:
    done = shell(f"$LOCALSPEC run hi {rest} 2> /dev/full", scripts=[{"text": "an answer"}])
    assert done.returncode == 0
    assert b"an answer" in done.stdout


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device here")
def test_an_error_that_nobody_can_be_told_keeps_its_exit_code() -> None:
    assert shell("$LOCALSPEC run --no-such-option 2> /dev/full", scripts=[]).returncode == 2


# -- folders ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("home", ["/dev/null", "/no/such/folder", ""])
def test_without_a_home_folder_a_chat_goes_on(home: str) -> None:
    """No history, no configuration: nothing that would be a reason not to answer."""
    more = {"HOME": home, "XDG_STATE_HOME": f"{home or '/dev/null'}/state", "XDG_CACHE_HOME": "/dev/null/cache"}
    screen = Screen(["chat"], scripts=[{"text": "an answer"}], more=more)
    screen.wait_for_prompt()
    screen.type("hi\r")
    screen.wait_for("an answer")
    screen.wait_for_prompt()
    screen.type("\x04")
    assert screen.end() == 0


def test_without_a_home_folder_models_are_listed() -> None:
    done = shell("env -u HOME $LOCALSPEC models list", scripts=None, XDG_CACHE_HOME="/dev/null/cache")
    assert done.returncode == 0
    assert done.stdout.count(b"\n") > 10
    assert done.stderr == b""


def test_a_cache_that_cannot_be_written_is_one_sentence() -> None:
    line = "$LOCALSPEC models pull smollm2-135m"
    done = shell(line, scripts=None, LOCALSPEC_CACHE="/dev/null/cache", HF_HOME="/dev/null/hf", PIP_NO_INDEX="1")
    assert done.returncode == 1
    said = done.stderr.decode()
    assert "/dev/null/cache" in said
    assert "cannot be written" in said
    assert "LOCALSPEC_CACHE" in said
    assert "Traceback" not in said


def test_a_talk_that_does_not_fit_the_disk_leaves_the_old_one(tmp_path: Path) -> None:
    """The file that grows is another one, which goes away; what was saved before stays as it was."""
    path = tmp_path / "talk.json"
    long = {"text": "x" * 60_000}
    lines = f"hi\\n/save {path}\\nhi\\n/save {path}\\n"
    done = shell(f"ulimit -f 40; printf '{lines}' | $LOCALSPEC chat >/dev/null", scripts=[{"text": "short"}, long])
    assert done.returncode == 1
    assert "cannot write" in done.stderr.decode()
    assert '"short"' in path.read_text()
    assert "xxx" not in path.read_text()
    assert [one.name for one in tmp_path.iterdir()] == ["talk.json"]


# -- signals ----------------------------------------------------------------------------------------------------------


def echoes(screen: Screen) -> bool:
    """Does the terminal show what is typed?"""
    import termios

    return bool(termios.tcgetattr(screen._terminal)[3] & termios.ECHO)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_asked_to_end_during_an_answer_the_keyboard_is_put_right(number: signal.Signals) -> None:
    """The terminal once stayed without echo: people typed into the dark until they found `reset`."""
    screen = Screen(["run", "hi"], scripts=[LONG])
    screen.wait_for(SAID)
    assert not echoes(screen)
    os.kill(screen._program, number)
    while screen._read(0.2) and not echoes(screen):
        pass
    assert echoes(screen)
    assert screen.end() == 128 + number


def test_asked_to_end_at_the_prompt_of_a_chat() -> None:
    screen = Screen(["chat"], scripts=[])
    screen.wait_for_prompt()
    os.kill(screen._program, signal.SIGTERM)
    assert screen.end() == 128 + signal.SIGTERM


def test_nohup_is_respected() -> None:
    line = 'trap "" HUP; $LOCALSPEC run hi & sleep 0.8; kill -HUP $!; wait $!'
    done = shell(line, scripts=[LONG | {"pause_s": 0.003}])
    assert done.returncode == 0
    assert done.stdout.count(b"word") == 400


def test_suspended_and_continued_the_answer_goes_on() -> None:
    screen = Screen(["run", "hi"], scripts=[{"text": "word " * 60 + "end", "pause_s": 0.01}])
    screen.wait_for(SAID)
    os.kill(screen._program, signal.SIGSTOP)
    time.sleep(0.3)
    os.kill(screen._program, signal.SIGCONT)
    assert screen.end() == 0
    assert screen.plain.count("word") == 60
    assert "end" in screen.plain


def test_a_resized_terminal_disturbs_neither_answer_nor_prompt() -> None:
    import fcntl
    import termios

    screen = Screen(["chat"], scripts=[{"text": "word " * 60 + "end", "pause_s": 0.005}, {"text": "second"}])
    screen.wait_for_prompt()
    screen.type("hi\r")
    for columns in (40, 200, 1, 80):
        fcntl.ioctl(screen._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        os.kill(screen._program, signal.SIGWINCH)
        time.sleep(0.03)
    screen.wait_for("end")
    screen.wait_until_it_asks()
    fcntl.ioctl(screen._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    os.kill(screen._program, signal.SIGWINCH)
    screen.type("again\r")
    screen.wait_for("second")
    screen.wait_until_it_asks()
    screen.type("\x04")
    assert screen.end() == 0


# -- a second process -------------------------------------------------------------------------------------------------

WRITER = """
import sys
import numpy as np
from pathlib import Path
from typing import Any
from localspec.catalog.modelfile import read_model
from localspec.services.notebook import Notebook
from localspec.services.report import Silent
from localspec.services.chat import file as chat_file

book = Notebook(read_model(Path(sys.argv[1])), 261, Silent())
for number in range(40):
    book.add("ngram", np.full(50 + number, int(sys.argv[2]), dtype=np.int32))
    turn = chat_file.Turn("hi", sys.argv[2] * 5000, (1, 2), "stop")
    chat_file.write(Path(sys.argv[3]), None, [turn] * (number % 3 + 1))
"""


def test_two_chats_on_one_cache_folder_write_whole_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one that writes wins; whenever one looks, there is a whole file of one of them."""
    from localspec.catalog.modelfile import read_model
    from localspec.services.notebook import Notebook
    from tests.services import tiny

    monkeypatch.setenv("LOCALSPEC_CACHE", str(tmp_path / "cache"))
    model, talk = tiny.model("verifier"), tmp_path / "talk.json"
    words = [sys.executable, "-c", WRITER, str(model)]
    writers = [
        subprocess.Popen([*words, str(number), str(talk)], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})
        for number in (7, 8)
    ]
    report = Collected()
    book = Notebook(read_model(model), 261, report)
    looks = 0
    while any(writer.poll() is None for writer in writers):
        if talk.exists():
            _, turns = chat_file.read(talk)
            assert {turn.answer[0] for turn in turns} in ({"7"}, {"8"})
        assert set(book.read("ngram").tolist()) <= {-1, 7, 8}
        looks += 1
    assert [writer.wait() for writer in writers] == [0, 0]
    assert looks > 5
    assert report.warnings == []
    assert {path.suffix for path in (tmp_path / "cache" / "memory").iterdir()} == {".ids"}
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["talk.json"]
