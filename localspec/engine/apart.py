"""llama.cpp's quantiser in a process of its own, which can be stopped and whose aborts become errors.

Starts `localspec.engine.quantize`, watches the file grow, and leaves no half of it behind. Loads nothing itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from localspec.errors import EngineError

UNFINISHED = ".making"
"""What the name of a file ends with while it is being written."""
TICK_S = 0.1
PROGRAM = (sys.executable, "-m", "localspec.engine.quantize")


def environment() -> dict[str, str]:
    """For a process that finds the same modules as this one."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def forecast(source: Path, file_type: int | None, *, without: Iterable[int] = ()) -> dict[str, Any]:
    """What `make` would write: the fields of `quantize.Forecast`. Raises `EngineError`."""
    job = {"source": str(source), "target": "", "file_type": file_type, "without": [*without], "threads": 0}
    return _run(job | {"dry": True}, lambda: None)


def make(
    source: Path,
    target: Path,
    file_type: int | None,
    *,
    without: Iterable[int] = (),
    threads: int = 0,
    grown: Callable[[int], None],
) -> None:
    """Write `target`, which appears when it is whole and has been loaded once; `grown` hears its size so far.

    Raises `EngineError` with llama.cpp's reason. Whatever ends this, an exception in `grown` too, nothing half stays.
    """
    unfinished = target.with_name(target.name + UNFINISHED)
    unfinished.unlink(missing_ok=True)
    job = {"source": str(source), "target": str(unfinished), "file_type": file_type, "without": [*without]}
    try:
        _run(job | {"threads": threads, "dry": False}, lambda: grown(_size(unfinished)))
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def _run(job: dict[str, Any], tick: Callable[[], None]) -> dict[str, Any]:
    """The answer of the process; `tick` is called while it works."""
    watched, held = os.pipe()  # the process ends when nobody holds the other end any more
    try:
        process = subprocess.Popen(
            [*PROGRAM, json.dumps(job)],
            stdin=watched,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
            start_new_session=True,  # Ctrl-C in the terminal is for us, and we end it
        )
    finally:
        os.close(watched)
    with process:
        try:
            said, complaint = _heard(process, tick)
        finally:
            process.kill()
            os.close(held)
    if process.returncode:
        raise _failure(process.returncode, complaint.decode("utf-8", "replace"), Path(job["source"]).name)
    answer: dict[str, Any] = json.loads(said)
    return answer


def _heard(process: subprocess.Popen[bytes], tick: Callable[[], None]) -> tuple[bytes, bytes]:
    """Its output and its complaints, once it has ended."""
    while (said := _heard_so_far(process)) is None:
        tick()
    return said


def _heard_so_far(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes] | None:
    try:
        return process.communicate(timeout=TICK_S)
    except subprocess.TimeoutExpired:
        return None


def _failure(code: int, complaint: str, name: str) -> EngineError:
    """Its own words if it came to say any; a signal means that llama.cpp ended it."""
    sentence, _, hint = complaint.strip().rpartition("\n")
    if code == 1 and sentence:
        return EngineError(sentence, hint=hint)
    last = complaint.strip().splitlines()[-1:] or ["no reason was given"]
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return EngineError(
        f"llama.cpp gave up on {name} ({how}): {last[0]}",
        hint="Try another --type, or a file of the model from elsewhere.",
    )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
