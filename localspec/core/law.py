"""A law: the probabilities of the next token, dense or sparse, not necessarily normalised.

Sampling filters leave a handful of ids, greedy decoding one; so a law holds weights for the ids that survive and never
a copy of the vocabulary that nobody reads. Arithmetic stays in the type of the weights: float32 on rows of a model,
float64 in proofs. Knows nothing about logits or models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from localspec.core.fold import GROUPS, fold, group
from localspec.errors import EngineError

Weights = npt.NDArray[np.floating]

NOISE = 4.0
"""A residual of at most this many machine epsilons is rounding, and the two laws are equal."""

_ONE = np.ones(1, dtype=np.float32)
_ONE.setflags(write=False)


@dataclass(frozen=True, slots=True, eq=False)
class Law:
    """Weights over token ids; the probability of an id is its weight over `total`.

    weights  (n,) float32 or float64, >= 0
    total    their sum, > 0
    ids      (n,) int32 ascending; None: dense, weight i belongs to id i
    """

    weights: Weights
    total: float
    ids: npt.NDArray[np.int32] | None = None

    @classmethod
    def of(cls, weights: npt.ArrayLike, ids: npt.NDArray[np.int32] | None = None) -> Law:
        """The law with these weights (probabilities, or anything proportional to them).

        Raises `EngineError` when they are no weights: negative, NaN, infinite or all zero.
        """
        array = np.asarray(weights)
        if not np.issubdtype(array.dtype, np.floating):
            array = array.astype(np.float64)
        total = mass(array)
        if not (0.0 < total < math.inf and array.min() >= 0.0):
            raise EngineError(
                f"{len(array)} weights with the sum {total} and the minimum {array.min()} are no law.",
                hint="Weights must be finite, not negative and not all zero.",
            )
        return cls(array, total, ids)

    @staticmethod
    @lru_cache(maxsize=4096)
    def one_hot(token: int) -> Law:
        """Certain of `token`: a deterministic pick, or the greedy verifier. Kept: texts repeat tokens."""
        ids = np.array((token,), dtype=np.int32)
        ids.setflags(write=False)
        return Law(_ONE, 1.0, ids)

    @property
    def is_certain(self) -> bool:
        """True when only one id is left: a draw from this law is a deterministic pick."""
        return self.ids is not None and len(self.ids) == 1

    @property
    def top(self) -> float:
        """The largest probability: how sure the law is."""
        return float(self.weights.max()) / self.total

    def prob(self, token: int) -> float:
        """Probability of `token`; 0.0 for ids outside the law."""
        if self.ids is not None and len(self.ids) == 1:
            return float(self.ids.item(0) == token)
        at = self._place(token)
        return 0.0 if at is None else self.weights.item(at) / self.total

    def sample(self, rng: np.random.Generator) -> int:
        """One id drawn from the law; certainty needs no draw."""
        if self.ids is not None and len(self.ids) == 1:
            return self.ids.item(0)
        u = rng.random()
        if len(self.weights) <= GROUPS:
            at = _pick(self.weights, u)
        else:
            sums = fold(np.add, self.weights)
            chosen = _pick(sums, u)
            at = chosen + GROUPS * _pick(group(self.weights, chosen), rng.random())
        return at if self.ids is None else self.ids.item(at)

    def without(self, token: int) -> Law | None:
        """This law given that the draw is not `token`; None when nothing else was possible."""
        if self.ids is not None and len(self.ids) == 1:
            return None if self.ids.item(0) == token else self
        at = self._place(token)
        if at is None:
            return self
        weights = self.weights.copy()
        weights[at] = 0.0
        total = mass(weights)
        return Law(weights, total, self.ids) if total > 0.0 else None

    def residual(self, draft: Law) -> Law:
        """Law of the token that replaces a rejected one: max(q - p, 0), renormalised (Leviathan et al. 2023).

        This law is q and `draft` is p. Where the two are equal up to rounding a rejection is numerical noise, and a
        draw from q itself is right.
        """
        if draft.is_certain and draft.ids is not None:
            # The sum of what is left is exact here, so that even a tiny remainder is a law and no noise.
            return self.without(draft.ids.item(0)) or self
        # Divided first: what a cold draft has left after its favourites can be so small that the quotient of the totals
        # overflows.
        shared = self._aligned(draft) / draft.total * self.total
        weights = self.weights - np.minimum(self.weights, shared)
        total = mass(weights)
        coarser = max(np.finfo(self.weights.dtype).eps, np.finfo(draft.weights.dtype).eps)
        return Law(weights, total, self.ids) if total > NOISE * float(coarser) * self.total else self

    def dense(self, size: int) -> npt.NDArray[np.float64]:
        """(size,) probabilities, for reading and for proofs."""
        row = np.zeros(size)
        if self.ids is None:
            row[: len(self.weights)] = self.weights
        else:
            row[self.ids] = self.weights
        return row / self.total

    def _place(self, token: int) -> int | None:
        """Index of `token` in the weights."""
        if self.ids is None:
            return token if token < len(self.weights) else None
        at = int(self.ids.searchsorted(token))
        return at if at < len(self.ids) and self.ids.item(at) == token else None

    def _aligned(self, other: Law) -> Weights:
        """The weights of `other` at the ids of this law, 0 where it has none: a view where the two are alike."""
        mine, theirs = self.ids, other.ids
        if mine is None and theirs is None and len(self.weights) == len(other.weights):
            return other.weights
        aligned = np.zeros(len(self.weights), dtype=other.weights.dtype)
        if theirs is None:
            if mine is None:
                inside = min(len(aligned), len(other.weights))
                aligned[:inside] = other.weights[:inside]
            else:
                inside = int(mine.searchsorted(len(other.weights)))
                aligned[:inside] = other.weights[mine[:inside]]
        elif mine is None:
            inside = int(theirs.searchsorted(len(aligned)))
            aligned[theirs[:inside]] = other.weights[:inside]
        else:
            places = np.minimum(theirs.searchsorted(mine), len(theirs) - 1)
            both = theirs[places] == mine
            aligned[both] = other.weights[places[both]]
        return aligned


def mass(weights: Weights) -> float:
    """Sum of the weights, in their own type first so that a long row is read once, then in float64."""
    return float(fold(np.add, weights).sum(dtype=np.float64))


def _pick(weights: Weights, u: float) -> int:
    """The index that `u`, uniform in [0, 1), falls on when the weights are laid end to end."""
    sums = weights.cumsum(dtype=np.float64)
    at = int(sums.searchsorted(u * sums[-1], side="right"))
    # Rounding may put the point at the very end: the last index that has a weight takes it.
    return at if at < len(sums) else int(np.flatnonzero(weights)[-1])
