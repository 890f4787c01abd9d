"""What lies in the caches, whoever fetched or made it: every GGUF of the hub's cache and of localspec's own, and what
interrupted fetches have left. Knows folders and names; opens no file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from localspec.catalog.hub import PARTIAL_ENDING, snapshot
from localspec.catalog.reference import HubFile, LocalFile, Reference, WheelFile, split_names
from localspec.catalog.store import cache_folder, hub_folder


@dataclass(frozen=True)
class Found:
    """One model, whole or partial, with the reference that names it."""

    source: Reference
    path: Path
    is_partial: bool = False


def derived_folder() -> Path:
    """Where drafts lie that were made here out of their verifiers."""
    return cache_folder() / "models" / "derived"


def inventory() -> list[Found]:
    """All models in both caches, by reference; of a split one the first part."""
    return sorted([*_of_hub(), *_of_wheels(), *_derived()], key=lambda found: str(found.source).lower())


def _of_hub() -> Iterator[Found]:
    for folder in hub_folder().glob("models--*"):
        owner, _, name = folder.name.removeprefix("models--").partition("--")
        if not name:
            continue
        repo, main = f"{owner}/{name}", snapshot(f"{owner}/{name}", None)
        for path in folder.glob("snapshots/*/**/*.gguf"):
            if path.is_file() and split_names(path.name)[0] == path.name:
                revision = path.relative_to(folder / "snapshots").parts[0]
                here = folder / "snapshots" / revision
                inside = path.relative_to(here).as_posix()
                yield Found(HubFile(repo, inside, None if here == main else revision), path)
        for path in folder.glob(f"blobs/*.gguf{PARTIAL_ENDING}"):
            flat = path.name.partition(".")[2].removesuffix(PARTIAL_ENDING)
            yield Found(HubFile(repo, flat.replace("--", "/")), path, is_partial=True)


def _of_wheels() -> Iterator[Found]:
    root = cache_folder() / "models" / "pypi"
    for path in root.glob("*/**/*.gguf"):
        folder, *member = path.relative_to(root).parts
        package, _, version = folder.rpartition("-")
        if path.is_file() and not any(part.endswith(".fetching") for part in member):
            yield Found(WheelFile(package, version, "/".join(member)), path)


def _derived() -> Iterator[Found]:
    for path in derived_folder().glob("*.gguf"):
        if path.is_file():
            yield Found(LocalFile(path, short(path)), path)


def short(path: Path) -> str:
    """The path as people write it: ~ for their own folder."""
    home = Path.home()
    return str(Path("~") / path.relative_to(home)) if path.is_relative_to(home) else str(path)
