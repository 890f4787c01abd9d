"""The controller may depend on clocks and confidences; the text's law must not. A chi-square test over 40,000 tokens.

The setting is hostile: times depend on the very tokens that come out, so lengths and text are strongly correlated.
"""

from __future__ import annotations

import numpy as np

from localspec.core.draft import Draft
from localspec.core.law import Law
from localspec.core.rejection import Rejection
from localspec.loop.control import RoundReport
from localspec.planner.controller import AutoLength

V = 4
RNG = np.random.default_rng(17)
VERIFIER = RNG.dirichlet(np.full(V, 0.7), size=V)  # row: the law after that token
DRAFT = 0.5 * VERIFIER + 0.5 * RNG.dirichlet(np.full(V, 0.7), size=V)
CRITICAL = {12: 32.9}  # chi-square that 12 degrees of freedom exceed once in a thousand


def transitions(tokens: int, *, peeks: bool, seed: int) -> np.ndarray:
    """Counts of (token, next) in a text decoded with the controller; `peeks`: confidences are told after the draw."""
    rng = np.random.default_rng(seed)
    rule, controller = Rejection(rng), AutoLength()
    counts = np.zeros((V, V))
    last, done = 0, 0
    while done < tokens:
        draft, laws, confidences = list[int](), list[Law | None](), list[float]()
        before = last
        for depth in range(1, controller.limit(20) + 1):
            law = Law.of(DRAFT[before])
            token, reported = rule.guess(law, done + depth)
            confidence = law.prob(token) if peeks else law.top
            if not controller.pays(depth, confidence):
                break  # without peeking the draw was not used, and nothing of it is kept
            draft.append(token)
            laws.append(reported)
            confidences.append(confidence)
            before = token
        path = [last, *draft]
        verdict = rule.accept(Draft.chain(draft, laws), lambda row, path=path: Law.of(VERIFIER[path[row]]), done)  # type: ignore[misc]
        block = [*draft[: len(verdict.path)], verdict.next_token]
        controller.observe(
            RoundReport(
                drafted=len(draft),
                tested=verdict.tested,
                accepted=len(verdict.path),
                refused=verdict.source == "residual",
                draft_s=0.001 * len(draft),
                verify_s=0.02 * (1 + 0.1 * len(draft)) * (1 + 0.1 * block[0]),
                confidences=tuple(confidences),
            )
        )
        for token in block:
            counts[last, token] += 1
            last = token
        done += len(block)
    return counts


def chi_square(counts: np.ndarray) -> float:
    expected = counts.sum(axis=1, keepdims=True) * VERIFIER
    return float(((counts - expected) ** 2 / expected).sum())


def test_the_law_of_the_text_is_the_verifiers() -> None:
    assert chi_square(transitions(40_000, peeks=False, seed=1)) < CRITICAL[V * (V - 1)]


def test_the_test_notices_a_drafter_that_drops_what_it_has_drawn() -> None:
    assert chi_square(transitions(40_000, peeks=True, seed=1)) > 2 * CRITICAL[V * (V - 1)]
