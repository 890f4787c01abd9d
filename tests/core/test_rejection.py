"""The rejection rule's draws and verdicts, one by one; that they add up to the right law is test_rejection_law.py's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from localspec.core.draft import EMPTY, Draft, Verdict
from localspec.core.law import Law
from localspec.core.rejection import Rejection
from localspec.core.sampling import Sampling
from tests.core.branches import outcomes

EXACT = 1e-12


def test_guess_draws_from_the_law_it_reports() -> None:
    law = Law.of(np.array([0.5, 0.0, 0.3, 0.2]))
    found = outcomes(lambda rng: Rejection(rng).guess(law, 0))
    assert found == {(0, law): pytest.approx(0.5), (2, law): pytest.approx(0.3), (3, law): pytest.approx(0.2)}


def test_a_certain_guess_is_deterministic() -> None:
    assert Rejection(np.random.default_rng(0)).guess(Law.one_hot(7), 0) == (7, None)


def test_guesses_are_draws_without_replacement() -> None:
    row = np.array([0.5, 0.3, 0.2])
    found = outcomes(lambda rng: tuple(t for t, _ in Rejection(rng).guesses(Law.of(row), 0, 2)))
    for (a, b), prob in found.items():
        assert prob == pytest.approx(row[a] * row[b] / (1.0 - row[a]), abs=EXACT)
    assert len(found) == 6


def test_guesses_stop_when_the_law_is_exhausted() -> None:
    law = Law.of(np.array([0.0, 0.7, 0.0, 0.3]))
    assert outcomes(lambda rng: len(Rejection(rng).guesses(law, 0, 4))) == {2: pytest.approx(1.0)}
    assert Rejection(np.random.default_rng(0)).guesses(Law.one_hot(3), 0, 4) == [(3, None)]


def repeated(law: Law) -> Callable[[int], Law]:
    return lambda row: law


def verdict(draft: Draft, rows: Sequence[Law], seed: int = 0) -> Verdict:
    return Rejection(np.random.default_rng(seed)).accept(draft, lambda row: rows[row], 0)


def test_an_empty_draft_is_plain_decoding() -> None:
    assert verdict(EMPTY, [Law.one_hot(5)]) == Verdict((), 5, "bonus", 0)


def test_greedy_chains_keep_the_agreeing_prefix() -> None:
    """B40: greedy is a one-hot verifier; only its own argmax is kept, and what follows is its own."""
    rows = [Law.one_hot(token) for token in (3, 1, 4, 1)]
    assert verdict(Draft.chain([3, 1, 4]), rows) == Verdict((0, 1, 2), 1, "bonus", 3)
    assert verdict(Draft.chain([3, 1, 5]), rows) == Verdict((0, 1), 4, "residual", 3)
    assert verdict(Draft.chain([2, 1, 4]), rows) == Verdict((), 3, "residual", 1)
    drawn = Law.of(np.full(6, 1.0))
    assert verdict(Draft.chain([2, 1, 4], [drawn] * 3), rows) == Verdict((), 3, "residual", 1)


def test_trees_count_every_node_they_decide() -> None:
    """Two siblings at the root, the second accepted; below it two more, both wrong."""
    draft = Draft(np.array([1, 2, 9, 8, 7], dtype=np.int32), np.array([-1, -1, 0, 1, 1], dtype=np.int32))
    rows = [Law.one_hot(token) for token in (2, 0, 5, 0, 0, 0)]
    assert verdict(draft, rows) == Verdict((1,), 5, "residual", 4)


def test_only_needed_rows_are_asked_for() -> None:
    asked: list[int] = []

    def law_of(row: int) -> Law:
        asked.append(row)
        return Law.one_hot(row)

    Rejection(np.random.default_rng(0)).accept(Draft.chain([0, 9, 9]), law_of, 0)
    assert asked == [0, 1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_laws_never_break(dtype: Any) -> None:
    """B39: where draft and verifier agree the residual is empty; no NaN, no id 0, no warning."""
    rng = np.random.default_rng(1)
    row = rng.random(50).astype(dtype)
    row[:5] = 0.0
    noisy = row * (1 + 1e-9 * rng.normal(size=50)).astype(dtype)
    with np.errstate(all="raise"):
        for q, p in ((row, row), (row, noisy), (noisy, row), (row, row * dtype(3.7))):
            law, draft_law = Law.of(q), Law.of(p)
            residual = law.residual(draft_law)
            assert np.isfinite(residual.weights).all()
            assert residual.total > 0.0
            assert all(residual.sample(rng) >= 5 for _ in range(200))
            for seed in range(200):
                rule = Rejection(np.random.default_rng(seed))
                draft = Draft.chain([rule.guess(draft_law, 0)[0]], [draft_law])
                assert rule.accept(draft, repeated(law), 0).next_token >= 5


def test_certainty_meets_certainty() -> None:
    """B39: one-hot rows, and a verifier that is certain of a token the draft gives probability 1."""
    with np.errstate(all="raise"):
        for certain in (Law.one_hot(2), Law.of(np.array([0.0, 0.0, 1.0, 0.0], dtype=np.float32))):
            for drafted in (certain, Law.one_hot(2), None):
                for seed in range(20):
                    assert verdict(Draft.chain([2], [drafted]), [certain] * 2, seed) == Verdict((0,), 2, "bonus", 1)
            assert certain.residual(certain).prob(2) == 1.0


@pytest.mark.parametrize("size", range(1, 9))
def test_a_banned_id_never_appears_and_a_boosted_one_always_does(size: int) -> None:
    """B41: every row of the pass goes through the whole chain, so a bias holds at every position of a block."""
    logits = np.array([1.0, 2.0, 5.0, 0.5, 1.5], dtype=np.float32)
    none = np.empty(0, dtype=np.int32)
    for bias, wanted in (({2: -100.0}, False), ({3: 100.0}, True)):
        for temperature in (0.0, 1.0):
            law = Sampling(temperature=temperature, logit_bias=bias).law(logits, none)
            for seed in range(30):
                draft = Draft.chain([next(iter(bias))] * size)
                result = verdict(draft, [law] * (size + 1), seed)
                emitted = [*([next(iter(bias))] * len(result.path)), result.next_token]
                assert len(emitted) == (size + 1 if wanted else 1)
                assert (next(iter(bias)) in emitted) == wanted
