"""The models on this machine and in the registry: list, pull, show, remove, check. Loads no model.

What to do with a reference is decided by the catalog; here several of its answers become one result to show.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from localspec.catalog import fetch
from localspec.catalog.checks import discard, known_sha256
from localspec.catalog.inventory import Found, derived_folder, inventory
from localspec.catalog.modelfile import ModelFile, read_model
from localspec.catalog.quantfiles import quant_of
from localspec.catalog.reference import HubQuant, LocalFile
from localspec.catalog.registry import Model, Pair, Registry
from localspec.catalog.vocabularies import Comparison, Vocabulary, compare, read_vocabulary
from localspec.errors import LocalspecError, UsageError
from localspec.services.report import Report

State = Literal["present", "partial", "absent"]


@dataclass(frozen=True)
class Entry:
    """A model of the registry and how much of it is here.

    bytes   on the disk, of a whole or of a partial file
    """

    model: Model
    state: State
    bytes: int
    paths: tuple[Path, ...]

    @property
    def size(self) -> int | None:
        """Bytes of the whole file, None when neither the registry nor the disk says so."""
        return self.model.size or (self.bytes if self.state == "present" else None)


@dataclass(frozen=True)
class PairEntry:
    """A pair, its models, and whether it can be used without fetching."""

    pair: Pair
    verifier: Entry
    draft: Entry | None
    is_default: bool

    @property
    def entries(self) -> tuple[Entry, ...]:
        return (self.verifier,) if self.draft is None else (self.verifier, self.draft)

    @property
    def state(self) -> State:
        states = {entry.state for entry in self.entries if not entry.model.is_shipped}
        return "present" if states == {"present"} else "absent" if states == {"absent"} else "partial"

    @property
    def size(self) -> int | None:
        """Bytes of all files, None when one is not known."""
        sizes = [entry.size for entry in self.entries]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    @property
    def is_here(self) -> bool:
        """True when something of it is on this machine."""
        return self.state != "absent"

    @property
    def weights(self) -> str:
        """The verifier's quantisation as its file name has it."""
        source = self.verifier.model.source
        return source.quant if isinstance(source, HubQuant) else quant_of(str(source)).upper()

    @property
    def unverified(self) -> bool:
        return any(entry.model.unverified for entry in self.entries)


@dataclass(frozen=True)
class Details:
    """One model: what the registry says, and what its file says if it is here."""

    ref: str
    source: str
    model: Model | None
    state: State
    paths: tuple[Path, ...]
    file: ModelFile | None
    sha256: str | None
    problem: str


@dataclass(frozen=True)
class Checked:
    """Two models compared: can the draft speak for the verifier?"""

    verifier: ModelFile
    draft: ModelFile
    verifier_vocabulary: Vocabulary
    draft_vocabulary: Vocabulary
    comparison: Comparison


@dataclass(frozen=True)
class Removed:
    """What went away; `kept` are models that other pairs need."""

    paths: tuple[Path, ...]
    bytes: int
    kept: tuple[str, ...]


def list_models(registry: Registry) -> list[Entry]:
    """All models of the registry."""
    return [_entry(model) for model in registry.models.values()]


def list_pairs(registry: Registry) -> list[PairEntry]:
    """All pairs of the registry, in its order."""
    entries = {entry.model.name: entry for entry in list_models(registry)}
    return [
        PairEntry(
            pair=pair,
            verifier=entries[pair.verifier],
            draft=entries[pair.draft] if pair.draft else None,
            is_default=pair.name == registry.default,
        )
        for pair in registry.pairs.values()
    ]


def list_others(registry: Registry) -> list[Found]:
    """What else is in the caches, named by references that every command takes."""
    known = {path for entry in list_models(registry) for path in entry.paths}
    return [found for found in inventory() if found.path not in known]


def pull(refs: Iterable[str], registry: Registry, report: Report) -> list[ModelFile]:
    """Fetch and check what each of `refs` names: a pair with all its models, a model, or any other reference."""
    wanted = [name for ref in refs for name in _expand(ref, registry)]
    return [fetch.resolve(ref, registry, report) for ref in dict.fromkeys(wanted)]


def show(ref: str, registry: Registry) -> list[Details]:
    """What is known of a model, or of both models of a pair; nothing is fetched."""
    return [_details(name, registry) for name in _expand(ref, registry)]


def remove(ref: str, registry: Registry) -> Removed:
    """Delete the fetched, derived or partial files of a model or pair; a draft stays if another pair here needs it.

    A file that the user put somewhere is never touched.
    """
    names = [name for name in _expand(ref, registry) if not _came_along(name, registry)]
    if not names:
        raise UsageError(f"{ref} came with localspec and stays as long as it does.", hint="pip uninstall localspec")
    kept = tuple(name for name in names[1:] if _is_needed(name, names[0], registry))
    paths = [path for name in names if name not in kept for path in _fetched(name, registry)]
    if not paths and not kept:
        raise UsageError(f"Nothing of {ref} is on this machine.", hint="`localspec models list` shows what is.")
    size = sum(path.stat().st_size for path in paths)
    for path in paths:
        discard(path)
    return Removed(tuple(paths), size, kept)


def named_pair(verifier: str, draft: str | None, registry: Registry) -> tuple[str, str]:
    """The two models to compare: those of a pair if only its name is given."""
    if draft is not None:
        return verifier, draft
    pair = registry.pair(verifier)
    if pair.draft is None:
        raise UsageError(
            f"The pair {pair.name} drafts with {pair.drafter}, so there is no second model to compare.",
            hint="Name two: localspec models check VERIFIER DRAFT",
        )
    return pair.verifier, pair.draft


def check(verifier: str, draft: str, registry: Registry, report: Report) -> Checked:
    """Compare the vocabularies of two models, fetching what is not here."""
    ours, theirs = (fetch.resolve(ref, registry, report) for ref in (verifier, draft))
    if ours.kind == "head" or theirs.kind == "head":
        head = ours if ours.kind == "head" else theirs
        raise UsageError(
            f"{head.path} is a drafting head ({head.architecture}) without a vocabulary of its own.",
            hint="Heads are matched to their verifier when they are loaded; check compares two models.",
        )
    vocabularies = read_vocabulary(ours.path), read_vocabulary(theirs.path)
    return Checked(ours, theirs, *vocabularies, compare(*vocabularies))


def _expand(ref: str, registry: Registry) -> list[str]:
    """The models of a pair, or the reference itself."""
    if ref in registry.pairs:
        pair = registry.pairs[ref]
        return [pair.verifier] if pair.draft is None else [pair.verifier, pair.draft]
    fetch.look_up(ref, registry)  # an unknown name is said at once, before anything is fetched
    return [ref]


def _entry(model: Model) -> Entry:
    wanted = fetch.wanted(model)
    if paths := fetch.present(wanted):
        return Entry(model, "present", sum(path.stat().st_size for path in paths), tuple(paths))
    paths = fetch.partial(wanted)
    return Entry(model, "partial" if paths else "absent", sum(path.stat().st_size for path in paths), tuple(paths))


def _details(ref: str, registry: Registry) -> Details:
    wanted = fetch.look_up(ref, registry)
    paths, file, problem = fetch.present(wanted), None, ""
    if paths:
        try:
            file = read_model(paths[0])
        except LocalspecError as error:
            problem = str(error)
    rest = fetch.partial(wanted)
    return Details(
        ref=ref,
        source=str(wanted.source),
        model=registry.models.get(ref),
        state="present" if paths else "partial" if rest else "absent",
        paths=tuple(paths or rest),
        file=file,
        sha256=known_sha256(paths[0]) if paths else None,
        problem=problem,
    )


def _is_needed(draft: str, verifier: str, registry: Registry) -> bool:
    """True when a pair with another verifier, which is here, uses the draft too."""
    others = [pair for pair in registry.pairs.values() if pair.verifier != verifier]
    verifiers = {pair.verifier for pair in others if draft in (pair.verifier, pair.draft)}
    return any(fetch.present(fetch.look_up(name, registry)) for name in verifiers)


def _came_along(ref: str, registry: Registry) -> bool:
    return ref in registry.models and registry.models[ref].is_shipped


def _fetched(ref: str, registry: Registry) -> list[Path]:
    wanted = fetch.look_up(ref, registry)
    if isinstance(wanted.source, LocalFile) and wanted.source.path.parent != derived_folder():
        raise UsageError(
            f"{ref} is a file of yours ({wanted.source}); localspec removes only what it has fetched or derived.",
            hint="Delete it yourself if you want it gone.",
        )
    return fetch.present(wanted) + fetch.partial(wanted)
