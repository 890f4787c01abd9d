"""The arithmetic of speculative decoding: acceptance from two laws, tokens per pass, time per token, the best N.

q is the verifier's law and p the draft's; alpha is the probability that a drafted token is accepted, c the cost of one
draft token and 1 that of one verifier pass, however many tokens it holds (Leviathan et al. 2023). What a pass really
costs on a machine is measured elsewhere; here nothing is measured, drawn or timed.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Probs = npt.NDArray[np.floating]
WORTH = 1.05
"""Least expected speed-up that is called worth it: forecasts are right to some percent only, and less may lose."""


def tokens_per_pass(alpha: float, N: int) -> float:
    """1 + alpha + ... + alpha^N: accepted tokens and the one that every pass adds, when each is accepted with alpha."""
    return math.fsum(alpha**k for k in range(N + 1))


def time_per_token(alpha: float, N: int, c: float, *, verify: float = 1.0) -> float:
    """(verify + N c) / tokens_per_pass, in plain passes; plain decoding takes 1.

    `verify` is what the pass over N + 1 tokens costs, t(N + 1) / t(1), where that was measured.
    """
    return (verify + N * c) / tokens_per_pass(alpha, N)


def speedup(alpha: float, N: int, c: float) -> float:
    """How many times faster than plain decoding."""
    return 1.0 / time_per_token(alpha, N, c)


def best_length(alpha: float, c: float, longest: int) -> int:
    """The N of 0 .. longest with the least time per token; the shortest of equals, 0: do not speculate."""
    return min(range(longest + 1), key=lambda N: time_per_token(alpha, N, c))


def overlap(q: Probs, p: Probs) -> float:
    """Sum of min(p, q) over the last axis of one row each: how often one draw from p is accepted under q."""
    return float(np.minimum(q, p).sum())


def divergence(q: Probs, p: Probs) -> float:
    """Kullback and Leibler's KL(q || p) in nats; infinite where p excludes what q allows."""
    possible = q > 0.0
    with np.errstate(divide="ignore"):
        return max(0.0, float((q[possible] * np.log(q[possible] / p[possible])).sum()))


def least_overlap(kl: float) -> float:
    """The acceptance that a divergence of `kl` nats cannot push below.

    The better of Pinsker's bound, 1 - sqrt(kl / 2), and Bretagnolle and Huber's, 1 - sqrt(1 - exp(-kl)).
    """
    return 1.0 - min(math.sqrt(kl / 2.0), math.sqrt(-math.expm1(-kl)))


def long_run(laws: Probs) -> Probs:
    """(V, V) probability of the last two tokens in a long text, for laws (V, V, V) of the next given these two."""
    size = len(laws)
    weights: Probs = np.full((size, size), 1.0 / size**2)
    while True:
        after = np.einsum("ab,abc->bc", weights, laws)
        # Half a step: a law that goes round in circles has a long run, too.
        moved, weights = np.abs(after - weights).sum(), 0.5 * (weights + after)
        if moved < 1e-13:
            return weights
