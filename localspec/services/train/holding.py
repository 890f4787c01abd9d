"""The weights that texts are made with: the verifier's file as it is, or decoded once to a wider format.

On a CPU without fast kernels for a quantisation, batches of dozens of tokens are bound by arithmetic: BF16 was three
times as fast as Q4_1 (docs/training.md). The weights are the quantised ones, their rounding to BF16 apart; what differs
more is that activations are no longer quantised.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from localspec.catalog import store
from localspec.catalog.quantisation import file_type
from localspec.services.report import Report

Held = Literal["as-is", "bf16", "f32"]


def held(path: Path, hold: Held, folder: Path, *, threads: int, report: Report) -> Path:
    """`path`, or a copy of it in `folder`, made when it is not there; Ctrl-C leaves no half of it.

    Raises `DownloadError` when the disk has no room, `EngineError` with llama.cpp's reason.
    """
    if hold == "as-is":
        return path
    from localspec.engine import apart

    copy = folder / f"{path.stem}.{hold}.gguf"
    if not copy.exists():
        report.note(f"Writing the weights of {path.name} as {hold}; the copy may go when the head is trained.")
        wanted = file_type(hold.upper())
        need = apart.forecast(path, wanted)["after"]
        store.check_room(folder, need or 0, report)
        what = f"Writing {copy.name}"
        apart.make(path, copy, wanted, threads=threads, grown=lambda size: report.progress(what, size, None, "bytes"))
        size = copy.stat().st_size
        report.progress(what, size, size, "bytes")
    return copy
