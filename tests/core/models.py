"""Models of a few tokens whose laws are tables, for proofs: the law after a path is a function of the path."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

import numpy as np
import numpy.typing as npt

from localspec.core.law import Law

Path = tuple[int, ...]
Model = Callable[[Path], Law]


def random_model(seed: int, *, size: int, spread: float = 1.5, zeros: float = 0.0) -> Model:
    """Another float64 law after every path; each id is impossible with probability `zeros`."""

    @cache
    def law(path: Path) -> Law:
        rng = np.random.default_rng((seed, *path))
        weights = np.exp(spread * rng.normal(size=size)) * (rng.random(size) >= zeros)
        if not weights.any():
            weights[int(rng.integers(size))] = 1.0
        return Law.of(weights)

    return law


def constant_model(weights: Iterable[float]) -> Model:
    """The same law after every path."""
    law = Law.of(np.array(list(weights), dtype=np.float64))
    return lambda path: law


def sequence_law(model: Model, *, size: int, length: int, start: Path = ()) -> npt.NDArray[np.float64]:
    """(size,) * length probabilities of the sequences that follow `start`."""
    if length == 0:
        return np.ones(())
    row = model(start).dense(size)
    return np.stack(
        [row[token] * sequence_law(model, size=size, length=length - 1, start=(*start, token)) for token in range(size)]
    )
