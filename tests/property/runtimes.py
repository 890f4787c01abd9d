"""The real runtime over a toy that speaks, and over tiny GGUFs, with tripwires at every step; and a wild drafter.

Nothing of the runtime is replaced but the loading of models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from localspec.catalog.modelfile import ModelFile
from localspec.catalog.vocabularies import Comparison
from localspec.core.draft import Draft, Ids, Verdict
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.drafters.base import Budget, Drafter, Lender
from localspec.drafters.registry import Entry
from localspec.engine.base import Cancelled, Pass
from localspec.engine.context import ContextSettings
from localspec.engine.toy import ToyContext
from localspec.services.lender import Second
from localspec.services.loading import Loaded
from localspec.services.pairs import SettledPair
from localspec.services.runtime import Runtime
from localspec.services.settings import EngineSettings
from tests.property.speech import TEMPLATE, VOCAB, Speaker
from tests.property.trip import Trip, TrippedContext, TrippedDrafter, TrippedVocab
from tests.services.toy_pair import Collected


@dataclass(frozen=True)
class WildOptions:
    """seed of its whims; unruly: now and then it breaks its contract."""

    seed: int = 0
    unruly: bool = False


class Wild:
    """Proposes anything: any tokens, any length, any shape. What it does depends on the text alone."""

    name = "wild"

    def __init__(self, options: WildOptions, lender: Lender) -> None:
        self._options, self._size = options, lender.vocab_size

    def begin(self, tokens: Ids, *, sampling: Sampling, rule: Rule, cancelled: Cancelled) -> None:
        return None

    def propose(self, tokens: Ids, budget: Budget) -> Draft:
        rng = np.random.default_rng([self._options.seed, len(tokens), int(tokens[-1])])
        count = int(rng.integers(0, budget.limit + 1))
        if self._options.unruly and rng.random() < 0.2:
            return self._unruly(int(rng.integers(4)), budget)
        earlier = tokens[rng.integers(0, len(tokens), count)]
        ids = np.where(rng.random(count) < 0.7, earlier, rng.integers(0, self._size, count)).astype(np.int32)
        if budget.tree is None:
            return Draft.chain(ids)
        parents = np.array([int(rng.integers(-1, node)) if node else -1 for node in range(count)], dtype=np.int32)
        draft = Draft(ids, parents)
        return draft if draft.leaves <= budget.leaves else Draft.chain(ids)

    def _unruly(self, whim: int, budget: Budget) -> Draft:
        if whim == 0:
            return Draft.chain([self._size])
        if whim == 1:
            return Draft.chain([5] * (budget.limit + 1))
        if whim == 2:
            return Draft(np.array([5, 6], dtype=np.int32), np.array([1, -1], dtype=np.int32))
        raise ZeroDivisionError("a bug in a drafter")

    def observe(self, result: Pass, verdict: Verdict | None) -> None:
        result.logits(result.rows - 1)

    def close(self) -> None:
        return None


WILD = Entry("wild", "anything", WildOptions, Wild)


class Wired(Runtime):
    """A runtime with tripwires around verifier, vocabulary and drafters. `drafters` holds those it built."""

    def __init__(self, *arguments: Any, **keys: Any) -> None:
        self.trip = Trip()
        self.built: list[TrippedDrafter] = []
        super().__init__(*arguments, **keys)

    def _load(self, role: str) -> Loaded:
        loaded = self._open(role)
        if role != "verifier":
            return loaded
        return replace(loaded, context=cast(Any, TrippedContext(self.trip, loaded.context)))

    def _open(self, role: str) -> Loaded:
        return super()._load(role)

    @property
    def vocab(self) -> Any:
        return TrippedVocab(self.trip, super().vocab)

    def _built(self, drafter: str, options: Any) -> Drafter | None:
        found = super()._built(drafter, options)
        if found is None or found.name == "none":
            return found
        self.built.append(TrippedDrafter(self.trip, found))
        return self.built[-1]


@dataclass(frozen=True)
class ToyModelOfARuntime:
    vocab: Any
    template: str | None
    layers: int = 1

    def close(self) -> None:
        return None


class ToyContextOfARuntime(ToyContext):
    settings = ContextSettings(capacity=1)  # for those who say what a profile depends on


@dataclass
class Toy:
    """A pair of toys to open: one speaks, the other one mumbles the same."""

    seed: int = 1
    capacity: int = 96
    leaves: int = 16
    verifier: Speaker = field(init=False)
    draft: Speaker = field(init=False)

    def __post_init__(self) -> None:
        self.verifier, self.draft = _speakers(self.seed)


_SPEAKERS: dict[int, tuple[Speaker, Speaker]] = {}


def _speakers(seed: int) -> tuple[Speaker, Speaker]:
    """Their rows are drawn once."""
    if seed not in _SPEAKERS:
        _SPEAKERS[seed] = (Speaker(seed), Speaker(seed, blur=0.15))
    return _SPEAKERS[seed]


class ToyRuntime(Wired):
    """The runtime over a toy pair."""

    def __init__(self, toy: Toy, report: Collected) -> None:
        self._toy = toy
        pair = SettledPair("toy", "verifier.gguf", "draft.gguf", "none", 4, "none", {})
        files = {role: _file(role, toy.capacity) for role in ("verifier", "draft")}
        super().__init__(pair, EngineSettings(), files, report)

    def _open(self, role: str) -> Loaded:
        toy = self._toy
        model = toy.verifier if role == "verifier" else toy.draft
        context = ToyContextOfARuntime(model, capacity=toy.capacity, leaves=toy.leaves)
        return Loaded(self._files[role], cast(Any, ToyModelOfARuntime(VOCAB, TEMPLATE)), cast(Any, context), 0)

    def _second(self, role: str) -> Second | None:
        return Second(lambda: self._load(role), Comparison(VOCAB.size, (), (), ()))


def _file(role: str, capacity: int) -> ModelFile:
    path = Path(__file__)  # profiles look at the time of change of some file
    return ModelFile(path, (path,), 1, "model", "toy", role, "F32", "toy", True, capacity, 1, 1, VOCAB.size)


def all_paths_stand_in(text: Sequence[int], draft: Draft) -> bool:
    """True when every path of the draft can be read in the text, as lookup owes it."""
    spaced = _joined(text)
    leaves = [node for node in range(len(draft)) if node not in draft.children]
    return all(_joined(draft.tokens[list(draft.path(leaf))].tolist()) in spaced for leaf in leaves)


def _joined(tokens: Sequence[int]) -> str:
    return " " + " ".join(map(str, tokens)) + " "
