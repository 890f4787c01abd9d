"""A draft made out of its verifier, without training: requantised, some layers left out, then measured.

What to make is decided in `recipe`; the writing is done by `engine.apart`, the measuring by `likeness`.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from localspec.catalog import fetch, store
from localspec.catalog.gguf import read_header
from localspec.catalog.inventory import derived_folder
from localspec.catalog.modelfile import ModelFile, read_model
from localspec.catalog.quantfiles import quant_of
from localspec.catalog.registry import Registry
from localspec.engine import apart
from localspec.errors import LoadError, UsageError
from localspec.services import single
from localspec.services.derive import blocks, likeness
from localspec.services.derive.likeness import Likeness
from localspec.services.derive.recipe import Recipe, Request, inessential, settle, spans
from localspec.services.report import Report
from localspec.services.runtime import Runtime
from localspec.services.settings import EngineSettings, PairChoice

SCHEMA = "localspec.models.derive/1"

PROMPTS = (
    "Explain in simple words why the sky is blue.",
    "Write a short story about a lighthouse keeper who finds a letter.",
    "Write a Python function that returns the n-th Fibonacci number, with a docstring.",
    "List five tips for learning a new language and explain each in a sentence.",
    "Summarise what happened in the French Revolution for a ten-year-old.",
    "Translate into French: The train leaves at seven, so we should eat early.",
    "What is 17 times 24? Show each step.",
    "Compare tea and coffee: taste, effect, and how they are made.",
)
SEED = 1
ROOM = 1024  # tokens of context to measure in


@dataclass(frozen=True)
class Derived:
    """The draft and what it is worth; `likeness` None: not measured."""

    verifier_ref: str
    verifier: ModelFile
    draft: ModelFile
    recipe: Recipe
    likeness: Likeness | None

    def as_dict(self) -> dict[str, Any]:
        """The document of `models derive --json`."""
        return {
            "schema": SCHEMA,
            "verifier": str(self.verifier.path),
            "verifier_bytes": self.verifier.bytes,
            "draft": str(self.draft.path),
            "draft_bytes": self.draft.bytes,
            "type": self.recipe.type,
            "without_layers": list(self.recipe.without),
            "measured": None if self.likeness is None else self.likeness.as_dict(),
        }


def derive(ref: str, request: Request, registry: Registry, report: Report) -> Derived:
    """Make the draft of `ref` that is asked for, and measure it against `ref`.

    A draft that is here already is measured again, not made again. Raises `UsageError` for what cannot work,
    `DownloadError` when the disk has no room, `EngineError` with llama.cpp's reason.
    """
    if request.out is not None:
        _check_folder(Path(os.path.expanduser(request.out)).resolve().parent)
    verifier = fetch.resolve(ref, registry, report)
    recipe = settle(request, verifier, lambda count: _least_missed(verifier, count, report))
    target = _target(request, verifier, recipe)
    if request.out is None and target.exists():
        report.note(f"{target.name} was made before; `localspec models remove` makes room for a new one.")
    else:
        _make(verifier, recipe, target, report)
    draft = read_model(target)
    measured = measure(ref, target, request.tokens, report) if request.tokens else None
    return Derived(ref, verifier, draft, recipe, measured)


def _check_folder(folder: Path) -> None:
    """A folder that is missing is made, but not a path of several: that is more likely a mistake."""
    if not folder.is_dir() and not (folder.parent.is_dir() and not folder.exists()):
        raise UsageError(f"There is no folder {folder} to write the draft to.", hint="Make it, or name another --out.")


def _least_missed(verifier: ModelFile, count: int, report: Report) -> tuple[int, ...]:
    report.note(f"Looking for {'the layer' if count == 1 else f'{count} neighbouring layers'} that change least.")
    try:
        return blocks.least_missed(verifier, count, PROMPTS, report)
    except LoadError as error:
        report.warn(f"{error}; the layers half way up are left out instead.")
        return inessential(verifier.layers or 0, count)


def _target(request: Request, verifier: ModelFile, recipe: Recipe) -> Path:
    """Where the draft goes; in the cache its name holds what it was made of."""
    if request.out is not None:
        target = Path(os.path.expanduser(request.out)).resolve()
        if target in [part.resolve() for part in verifier.parts]:
            raise UsageError(f"{target} is the verifier itself.", hint="Name another file with --out.")
        return target
    stem = verifier.path.stem
    stem = stem.removesuffix(quant_of(verifier.path.name)).rstrip("-._") or stem
    stem = re.sub(r"[^\w.+-]+", "_", re.sub(r"-00001-of-\d{5}$", "", stem))
    parts = [stem, recipe.type or verifier.quantisation]
    if recipe.without:
        parts.append(f"without-{spans(recipe.without).replace(', ', '_')}")
    return derived_folder() / f"{'-'.join([*parts, _mark(verifier)])}.gguf"


def _mark(verifier: ModelFile) -> str:
    """Tells apart verifiers of one name: eight digits of a hash over the sizes and both ends of the file."""
    total = hashlib.sha256(str(verifier.bytes).encode())
    with verifier.path.open("rb") as file:
        total.update(file.read(1 << 20))
        file.seek(max(0, verifier.path.stat().st_size - (1 << 20)))
        total.update(file.read())
    return total.hexdigest()[:8]


def _make(verifier: ModelFile, recipe: Recipe, target: Path, report: Report) -> None:
    expected = apart.forecast(verifier.path, recipe.file_type, without=recipe.without)
    need = _size(verifier, expected)
    _say_what_to_expect(verifier, recipe, expected, need, report)
    store.check_room(target.parent, need or 0, report)
    store.make_folder(target.parent)
    what = "Writing the draft"
    with store.locked(_lock(target), target.name, report):
        apart.make(
            verifier.path,
            target,
            recipe.file_type,
            without=recipe.without,
            grown=lambda size: report.progress(what, min(size, need - 1) if need else size, need, "bytes"),
        )
    size = target.stat().st_size
    report.progress(what, size, size, "bytes")


def _lock(target: Path) -> Path:
    name = hashlib.sha256(os.fsencode(target)).hexdigest()[:16]
    return store.cache_folder() / "locks" / f"{name}.lock"


def _size(verifier: ModelFile, expected: dict[str, Any]) -> int | None:
    """Bytes of the whole file: its tensors and, as in the verifier, what lies around them."""
    if expected["after"] is None:
        return None
    weights = sum(sum(read_header(part).weight_bytes.values()) for part in verifier.parts)
    return int(expected["after"] + max(0, verifier.bytes - weights))


def _say_what_to_expect(
    verifier: ModelFile, recipe: Recipe, expected: dict[str, Any], need: int | None, report: Report
) -> None:
    whole = recipe.type in ("F32", "F16", "BF16")
    if recipe.type and verifier.quantisation not in ("F32", "F16", "BF16"):
        why = "holds no more than that" if whole else "adds its error to that"
        report.warn(
            f"{verifier.path.name} is quantised to {verifier.quantisation} already; {recipe.type} {why}. "
            "A draft made from the F16 file of the model agrees more often."
        )
    if expected["fallbacks"]:
        report.note(
            f"{expected['fallbacks']} of {expected['tensors']} tensors take a larger type: their rows are no multiple "
            f"of the blocks of {recipe.type}."
        )
    if need is not None:
        report.note(f"{recipe.words} needs {need:,} bytes; the verifier has {verifier.bytes:,}.")
        if need >= verifier.bytes:
            report.warn("The draft will be no smaller than its verifier, so it can hardly be faster.")


# -- measuring --------------------------------------------------------------------------------------------------------


def measure(ref: str, draft: Path, tokens: int, report: Report) -> Likeness:
    """Load both models as a pair would and compare them."""
    choice = PairChoice(verifier=ref, draft=str(draft), drafter="model", N=max(likeness.LENGTHS))
    room = min(ROOM, read_model(draft).context_length or ROOM)
    with Runtime.open(choice, EngineSettings(ctx_size=room), report) as runtime:
        raw = runtime.template is None
        prompts = [single.prompt_ids(single.Question(text, raw=raw), runtime, report) for text in PROMPTS]
        agreement, alpha, cost = likeness.compare(
            runtime.verifier,
            runtime.lender.context("draft"),
            prompts,
            tokens=tokens,
            is_end=runtime.vocab.is_end,
            rng=np.random.default_rng(SEED),
            told=lambda done: report.progress("Comparing with the verifier", done, 2 * tokens, "tokens"),
        )
        report.progress("Comparing with the verifier", 2 * tokens, 2 * tokens, "tokens")
        return Likeness(agreement, alpha, cost, _curve(runtime, report))


def _curve(runtime: Runtime, report: Report) -> tuple[tuple[int, float], ...]:
    """t(n) / t(1) where a draft length may end."""
    sizes = [1, *(N + 1 for N in likeness.LENGTHS if runtime.verifier.draft_room >= N)]
    times = []
    for done, size in enumerate(sizes):
        report.progress("Timing passes of the verifier", done, len(sizes), "steps")
        times.append(runtime.time_pass(size))
    report.progress("Timing passes of the verifier", len(sizes), len(sizes), "steps")
    return tuple((size, seconds / times[0]) for size, seconds in zip(sizes, times, strict=True))
