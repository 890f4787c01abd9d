"""The same weights in other formats, made by llama.cpp itself: F32, Q8_0, Q4_0, Q2_K out of one GGUF.

Each variant is made once and kept in the user's cache folder; its name holds the hash of what it was made from.
`python -m bench.quantize FILE.gguf F32 Q4_0` makes some by hand.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from pathlib import Path

from platformdirs import user_cache_path

from localspec.catalog.quantisation import FILE_TYPES
from localspec.engine.quantize import quantize

FORMATS = {name: number for number, name in FILE_TYPES.items() if name in ("F32", "F16", "Q8_0", "Q4_0", "Q2_K")}


def cache_folder() -> Path:
    """Where made models are kept, one folder per user."""
    folder = user_cache_path("localspec", appauthor=False) / "variants"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def digest(path: Path) -> str:
    """sha256 of a file, read in pieces."""
    total = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 22):
            total.update(piece)
    return total.hexdigest()


def variant(source: Path, format_name: str) -> Path:
    """`source` in another format, from the cache when it is there."""
    target = cache_folder() / f"{source.stem}-{digest(source)[:12]}-{format_name}.gguf"
    if not target.exists():
        requantize(source, target, format_name)
    return target


def requantize(source: Path, target: Path, format_name: str) -> None:
    """Write `source` to `target` in another format; `target` appears only when it is whole."""
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        quantize(source, unfinished, FORMATS[format_name])
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.quantize", description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("formats", nargs="+", choices=sorted(FORMATS))
    wanted = parser.parse_args()
    for name in wanted.formats:
        print(f"making {name}", file=sys.stderr)
        print(variant(wanted.source, name))


if __name__ == "__main__":
    main()
