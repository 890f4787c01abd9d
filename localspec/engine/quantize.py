"""Writing a model again in another file type, or without some of its layers: llama.cpp's own quantiser.

`python -m localspec.engine.quantize` does it in a process of its own (see `apart`): the quantiser cannot be stopped
once it runs, and what it does not expect ends the process it runs in.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from localspec.engine import native
from localspec.engine.context import ContextSettings, LlamaContext
from localspec.engine.model import LlamaModel
from localspec.engine.native import lib
from localspec.errors import EngineError, LocalspecError

_SIZE = re.compile(r"(model|quant) size\s*=\s*([\d.]+) MiB")
_FALLBACK = re.compile(r"(\d+) of (\d+) tensor\(s\) required fallback")


@dataclass(frozen=True)
class Forecast:
    """What quantising would write. Bytes of all tensors, before and after; None where llama.cpp did not say.

    fallbacks   tensors that take another type than asked for, because of the length of their rows
    """

    before: int | None
    after: int | None
    fallbacks: int
    tensors: int


def quantize(
    source: Path,
    target: Path,
    file_type: int | None,
    *,
    without: Iterable[int] = (),
    threads: int = 0,
    dry: bool = False,
) -> None:
    """Write `source` (the first part of a split model) to `target`, leaving out the layers `without`.

    `file_type` as in llama.h, None: every tensor stays as it is. `threads` 0: as many as there are. `dry`: only log
    what would be written. Raises `EngineError` with llama.cpp's reason; what it has written by then stays.
    """
    layers = sorted({*without})  # llama.cpp takes the first for the least
    wanted = lib.llama_model_quantize_default_params()
    wanted.nthread = threads
    wanted.allow_requantize = True
    wanted.dry_run = dry
    if file_type is None:
        wanted.only_copy = True
    else:
        wanted.ftype = file_type
    if layers:
        wanted.prune_layers = (ctypes.c_int32 * (len(layers) + 1))(*layers, -1)
    with native.heard():
        code = lib.llama_model_quantize(os.fsencode(source), os.fsencode(target), wanted)
    if code:
        reason = " ".join(native.complaint().split()) or "no reason was given"
        raise EngineError(
            f"llama.cpp could not quantise {source.name}: {reason}",
            hint="Another --type may do; see `localspec models show` for what the file holds.",
        )


def forecast(source: Path, file_type: int | None, *, without: Iterable[int] = ()) -> Forecast:
    """What `quantize` would write, without writing it."""
    lines: list[str] = []
    with _listening(lines):
        quantize(source, source.with_suffix(".dry"), file_type, without=without, dry=True)
    sizes = {kind: int(float(size) * 2**20) for kind, size in _SIZE.findall("\n".join(lines))}
    found = _FALLBACK.search("\n".join(lines))
    fallbacks, tensors = (int(found[1]), int(found[2])) if found else (0, 0)
    return Forecast(sizes.get("model"), sizes.get("quant"), fallbacks, tensors)


def try_out(path: Path) -> None:
    """Load the model on the CPU and evaluate a few tokens. Raises `LoadError`: it cannot be used."""
    with LlamaModel(path, gpu_layers=0) as model, LlamaContext(model, ContextSettings(capacity=32, draft_room=4)):
        pass


class _listening(logging.Handler):
    """Collects llama.cpp's log for the length of a block."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.INFO)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record.getMessage())

    def __enter__(self) -> None:
        self._level = native.logger.level
        native.logger.setLevel(logging.INFO)
        native.logger.addHandler(self)

    def __exit__(self, *_: object) -> None:
        native.logger.removeHandler(self)
        native.logger.setLevel(self._level)


# -- the process of its own -------------------------------------------------------------------------------------------


def main() -> int:
    """One job as JSON in the first argument; the answer is one JSON line, an error two lines on stderr.

    Standard input stays open for as long as somebody waits for the result.
    """
    job: dict[str, Any] = json.loads(sys.argv[1])
    source, target = Path(job["source"]), Path(job["target"])
    threading.Thread(target=_leave_with_parent, args=(target,), daemon=True).start()
    answer: dict[str, Any] = {}
    try:
        if job["dry"]:
            answer = asdict(forecast(source, job["file_type"], without=job["without"]))
        else:
            quantize(source, target, job["file_type"], without=job["without"], threads=job["threads"])
            try_out(target)
    except LocalspecError as error:
        sys.stderr.write(f"{error}\n{error.hint}\n")
        return 1
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


def _leave_with_parent(unfinished: Path) -> None:
    os.read(0, 1)  # not sys.stdin: its lock would be held when the interpreter ends
    unfinished.unlink(missing_ok=True)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
