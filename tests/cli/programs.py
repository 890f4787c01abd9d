"""Runs the command line as a program, in pipes or in a pseudo-terminal, and reads what a person would see."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
PATIENCE_S = 30.0
PASTING, PASTING_ENDS = "\x1b[?2004h", "\x1b[?2004l"  # what prompt_toolkit writes before and after each prompt
ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[=>])")


def command(fake: bool) -> list[str]:
    """The fake command line, or the real one."""
    return [sys.executable, "-m", "tests.cli.driver" if fake else "localspec"]


def environment(
    scripts: Sequence[Mapping[str, Any]] | None, runtime: Mapping[str, Any] | None, more: Mapping[str, str] | None
) -> dict[str, str]:
    """This process's environment without what would change colours or encodings."""
    gone = ("NO_COLOR", "FORCE_COLOR", "PYTHONIOENCODING", "PYTHONUTF8", "LOCALSPEC_DEBUG", "COLUMNS", "LINES")
    found = {name: value for name, value in os.environ.items() if name not in gone}
    # Nothing here answers the question where the cursor stands.
    found |= {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT), "PROMPT_TOOLKIT_NO_CPR": "1"}
    if scripts is not None:
        found["FAKE_SCRIPTS"] = json.dumps(scripts)
        found["FAKE_RUNTIME"] = json.dumps(
            {"template": "{% for m in messages %}{{ m.content }}{% endfor %}"} | dict(runtime or {})
        )
    return found | dict(more or {})


def piped(
    arguments: Sequence[str],
    *,
    scripts: Sequence[Mapping[str, Any]] | None = None,
    runtime: Mapping[str, Any] | None = None,
    stdin: bytes = b"",
    more: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run with all three streams piped."""
    return subprocess.run(
        [*command(scripts is not None), *arguments],
        input=stdin,
        capture_output=True,
        env=environment(scripts, runtime, more),
        cwd=ROOT,
        timeout=PATIENCE_S,
        check=False,
    )


class Screen:
    """A program in a pseudo-terminal. `seen` is all it has written so far."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        scripts: Sequence[Mapping[str, Any]] | None = None,
        runtime: Mapping[str, Any] | None = None,
        more: Mapping[str, str] | None = None,
        columns: int = 100,
    ) -> None:
        self.seen = ""
        self._prompts = 0
        self._place = 0
        self._program, self._terminal = pty.fork()
        if self._program == 0:
            os.chdir(ROOT)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may be under nohup
            words = [*command(scripts is not None), *arguments]
            os.execve(words[0], words, environment(scripts, runtime, more))
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))

    @property
    def plain(self) -> str:
        """What was written, without escape sequences."""
        return ESCAPES.sub("", self.seen).replace("\r", "")

    def wait_for(self, text: str) -> None:
        """Read until `text` stands on the screen, behind what was waited for before."""
        self._wait(lambda: text in self.plain[self._place :], text)
        self._place = self.plain.index(text, self._place) + len(text)

    def wait_for_prompt(self) -> None:
        """Read until the program asks for the next line."""
        self._prompts += 1
        self._wait(lambda: self.seen.count(PASTING) >= self._prompts, "the prompt")

    def wait_until_it_asks(self) -> None:
        """Read until a prompt is open, where it may have been drawn any number of times (the terminal was resized)."""
        self._wait(lambda: self.seen.rfind(PASTING) > self.seen.rfind(PASTING_ENDS), "the prompt")
        self._prompts = self.seen.count(PASTING)

    def _wait(self, arrived: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while not arrived():
            if time.monotonic() > until or not self._read(0.2):
                self.kill()
                raise AssertionError(f"{what!r} never came; seen: {self.plain[-2000:]!r}")

    def kill(self) -> None:
        """End the program by force."""
        os.kill(self._program, signal.SIGKILL)
        os.waitpid(self._program, 0)

    def type(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def press_ctrl_c(self) -> None:
        """As the terminal does it: the key, or the signal when the program does not read keys."""
        self.type("\x03")

    def end(self) -> int:
        """Read to the end and return the exit code."""
        until = time.monotonic() + PATIENCE_S
        while self._read(0.2):
            if time.monotonic() > until:
                self.kill()
                raise AssertionError(f"did not end; seen: {self.plain[-2000:]!r}")
        os.close(self._terminal)
        return os.waitstatus_to_exitcode(os.waitpid(self._program, 0)[1])

    def _read(self, seconds: float) -> bool:
        """Take what has come; False at the end."""
        if not select.select([self._terminal], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._terminal, 65536)
        except OSError:  # Linux's way to say that the other side has closed
            return False
        self.seen += data.decode("utf-8", "replace")
        return bool(data)
