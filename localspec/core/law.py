"""A law: the probabilities of the next token, dense or sparse, not necessarily normalised.

Sampling filters leave a handful of ids, greedy decoding one; so a law holds weights for the ids that survive and never
a copy of the vocabulary that nobody reads. Knows nothing about logits or models.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Weights = npt.NDArray[np.floating]


@dataclass(frozen=True, slots=True)
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
        """The law with these weights (probabilities, or anything proportional to them)."""
        array = np.asarray(weights)
        return cls(array, float(array.sum(dtype=np.float64)), ids)

    @classmethod
    def one_hot(cls, token: int) -> Law:
        """Certain of `token`: a deterministic pick, or the greedy verifier."""
        return cls(np.ones(1, dtype=np.float32), 1.0, np.array([token], dtype=np.int32))

    def prob(self, token: int) -> float:
        """Probability of `token`; 0.0 for ids outside the law."""
        if self.ids is None:
            return float(self.weights[token]) / self.total if token < len(self.weights) else 0.0
        at = int(np.searchsorted(self.ids, token))
        return float(self.weights[at]) / self.total if at < len(self.ids) and self.ids[at] == token else 0.0

    @property
    def top(self) -> float:
        """The largest probability: how sure the law is."""
        return float(self.weights.max()) / self.total

    def sample(self, rng: np.random.Generator) -> int:
        """One id drawn from the law."""
        sums = np.cumsum(self.weights, dtype=np.float64)
        at = int(np.searchsorted(sums, rng.random() * sums[-1], side="right"))
        at = min(at, len(sums) - 1)
        return at if self.ids is None else int(self.ids[at])

    def without(self, token: int) -> Law:
        """This law given that the draw is not `token`."""
        raise NotImplementedError

    def residual(self, draft: Law) -> Law:
        """Law of the token that replaces a rejected one: max(q - p, 0), renormalised (Leviathan et al. 2023)."""
        raise NotImplementedError
