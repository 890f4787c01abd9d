"""Exact enumeration: plays a random function once for every way its choices can turn out, with exact probabilities.

The code under test runs unchanged. It gets `Branches` for a generator: a comparison `u * p < q` of a uniform number is
a choice with two outcomes, and a draw from a law (`Law.sample`, replaced while `outcomes` runs) one with as many as the
law has ids.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar
from unittest import mock

import numpy as np

from localspec.core.law import Law

Outcome = TypeVar("Outcome", bound=Hashable)


class Branches:
    """One play: follows `script` and then always takes the first possible branch, noting those it did not take."""

    def __init__(self, script: tuple[int, ...]) -> None:
        self.script = script
        self.taken: list[int] = []
        self.weight = 1.0
        self.open: list[tuple[int, ...]] = []

    def choose(self, probs: list[float]) -> int:
        """One index, of probability `probs[index]`."""
        possible = [index for index, prob in enumerate(probs) if prob > 0.0]
        if len(self.taken) < len(self.script):
            index = self.script[len(self.taken)]
        else:
            index = possible[0]
            self.open += [(*self.taken, other) for other in possible[1:]]
        self.taken.append(index)
        self.weight *= probs[index]
        return index

    def random(self) -> Uniform:
        return Uniform(self)


@dataclass(frozen=True)
class Uniform:
    """A number uniform in [0, factor), known only by the comparisons it takes part in."""

    branches: Branches
    factor: float = 1.0

    def __mul__(self, factor: float) -> Uniform:
        return Uniform(self.branches, self.factor * factor)

    def __lt__(self, bound: float) -> bool:
        below = min(1.0, bound / self.factor) if self.factor > 0.0 else float(bound > 0.0)
        return self.branches.choose([below, 1.0 - below]) == 0


def _sample(law: Law, rng: Any) -> int:
    at: int = rng.choose((law.weights / law.total).tolist())
    return at if law.ids is None else int(law.ids[at])


def outcomes(play: Callable[[Any], Outcome]) -> dict[Outcome, float]:
    """Every result of `play(rng)` and its probability."""
    found: dict[Outcome, float] = defaultdict(float)
    scripts: list[tuple[int, ...]] = [()]
    with mock.patch.object(Law, "sample", _sample):
        while scripts:
            branches = Branches(scripts.pop())
            found[play(branches)] += branches.weight
            scripts += branches.open
    assert np.isclose(sum(found.values()), 1.0, atol=1e-12)
    return dict(found)
