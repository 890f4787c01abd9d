"""The coupled rule: the text follows the verifier's law and never the draft."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.core.coupled import Coupled
from localspec.core.draft import EMPTY, Draft, Verdict
from localspec.core.law import Law
from localspec.core.rejection import Rejection
from localspec.core.sampling import Sampling
from tests.core import chisquare
from tests.core.models import Path, random_model

SIZE = 6
VERIFIER, DRAFTER = random_model(1, size=SIZE), random_model(2, size=SIZE)


def plain(*, seed: int, length: int) -> Path:
    """Plain decoding: the winner of every position."""
    text: Path = ()
    while len(text) < length:
        text = (*text, Coupled(seed).winner(VERIFIER(text), len(text)))
    return text


def speculate(propose: Callable[[Path], Draft], *, seed: int, length: int) -> Path:
    """Decoding `VERIFIER` with whatever `propose` comes up with below a text."""
    rule = Coupled(seed)
    text: Path = ()
    while len(text) < length:
        draft = propose(text)
        rows = [VERIFIER((*text, *(int(draft.tokens[n]) for n in draft.path(node)))) for node in range(-1, len(draft))]
        verdict = rule.accept(draft, rows.__getitem__, len(text))
        text = (*text, *(int(draft.tokens[node]) for node in verdict.path), verdict.next_token)
    return text[:length]


@st.composite
def trees(draw: st.DrawFn) -> Draft:
    """Any tree of up to 8 nodes with any tokens, equal siblings included."""
    size = draw(st.integers(0, 8))
    parents = [draw(st.integers(-1, node - 1)) for node in range(size)]
    tokens = [draw(st.integers(0, SIZE - 1)) for _ in range(size)]
    return Draft(np.array(tokens, dtype=np.int32), np.array(parents, dtype=np.int32))


def guessed(text: Path, *, seed: int, widths: Sequence[int]) -> Draft:
    """A tree of the first places of the drafter's own race."""
    tokens: list[int] = []
    parents: list[int] = []
    level: list[tuple[int, Path]] = [(-1, text)]
    for width in widths:
        below = []
        for parent, path in level:
            for token, _ in Coupled(seed).guesses(DRAFTER(path), len(path), width):
                below.append((len(tokens), (*path, token)))
                tokens.append(token)
                parents.append(parent)
        level = below
    return Draft(np.array(tokens, dtype=np.int32), np.array(parents, dtype=np.int32))


@given(st.lists(trees(), min_size=8, max_size=8), st.integers(-(2**70), 2**70))
def test_the_text_does_not_depend_on_the_draft(drafts: list[Draft], seed: int) -> None:
    """Same seed, same text as plain decoding, whatever is proposed."""
    supply = iter(drafts)
    assert speculate(lambda text: next(supply), seed=seed, length=8) == plain(seed=seed, length=8)


@given(st.integers(0, 2**32))
@settings(max_examples=20)
def test_the_text_does_not_depend_on_the_drafter(seed: int) -> None:
    """Drafts guessed from a model of their own, as chains and as trees of first places."""
    for widths in ((), (1, 1, 1), (3,), (2, 2), (1, 4)):
        text = speculate(partial(guessed, seed=seed, widths=widths), seed=seed, length=12)
        assert text == plain(seed=seed, length=12)


def test_winners_follow_the_law() -> None:
    """Counted over positions and over seeds, for a short law and for a long one in classes of ids."""
    short = Law.of(np.array([0.4, 0.3, 0.0, 0.2, 0.1]))
    for winners in (
        [Coupled(1).winner(short, position) for position in range(8000)],
        [Coupled(seed).winner(short, 3) for seed in range(8000)],
    ):
        assert chisquare.fit(np.bincount(winners, minlength=5).astype(float), short.dense(5)) > 1e-3
    long = Law.of(np.exp(2 * np.random.default_rng(3).normal(size=5000)).astype(np.float32))
    counts, probs = np.zeros(64), np.zeros(64)
    for position in range(5000):
        counts[Coupled(2).winner(long, position) * 7 % 64] += 1
    np.add.at(probs, np.arange(5000) * 7 % 64, long.dense(5000))
    assert chisquare.fit(counts, probs) > 1e-3


def test_two_tokens_in_a_row_follow_the_law() -> None:
    counts = np.zeros((SIZE, SIZE))
    for seed in range(5000):
        counts[speculate(lambda text: Draft.chain([0, 1]), seed=seed, length=2)] += 1
    probs = np.stack([VERIFIER((first,)).dense(SIZE) for first in range(SIZE)])
    assert chisquare.fit(counts.sum(axis=1), VERIFIER(()).dense(SIZE)) > 1e-3
    assert chisquare.fit(counts, probs) > 1e-3


def test_a_drafter_with_the_same_law_always_guesses_right() -> None:
    rule = Coupled(4)
    for position in range(100):
        law = random_model(position, size=2000)(())
        token, reported = rule.guess(law, position)
        assert reported is None
        row = Law.of(law.weights.astype(np.float32))
        assert rule.accept(Draft.chain([token]), lambda _, row=row: row, position).path == (0,)  # type: ignore[misc]


def test_guesses_agree_more_often_than_independent_draws() -> None:
    """What the coupling is for: nearly the overlap of the laws, where two independent draws agree far less."""
    hits = independent = overlap = 0.0
    rng = np.random.default_rng(5)
    for position in range(3000):
        q, p = VERIFIER((position % 50,)), DRAFTER((position % 50,))
        p = Law.of(q.dense(SIZE) + 0.3 * p.dense(SIZE))
        hits += Coupled(6).winner(q, position) == Coupled(6).guess(p, position)[0]
        independent += q.sample(rng) == p.sample(rng)
        overlap += np.minimum(q.dense(SIZE), p.dense(SIZE)).sum()
    assert independent < 0.7 * hits
    assert 0.9 * overlap < hits < overlap


def test_guesses_are_the_first_places() -> None:
    law = random_model(7, size=300)(())
    guesses = Coupled(8).guesses(law, 5, 4)
    assert len({token for token, _ in guesses}) == 4
    assert guesses[0] == Coupled(8).guess(law, 5)
    assert guesses[0][0] == Coupled(8).winner(law, 5)
    assert Coupled(8).guesses(Law.one_hot(3), 5, 4) == [(3, None)]


def test_verdicts() -> None:
    """Children are compared in order; the first that holds the winner is it."""
    rows = [Law.one_hot(token) for token in (2, 0, 5, 0, 0, 0)]
    tree = Draft(np.array([1, 2, 9, 8, 7], dtype=np.int32), np.array([-1, -1, 0, 1, 1], dtype=np.int32))
    assert Coupled(0).accept(tree, rows.__getitem__, 0) == Verdict((1,), 5, "residual", 4)
    assert Coupled(0).accept(EMPTY, rows.__getitem__, 0) == Verdict((), 2, "bonus", 0)
    assert Coupled(0).accept(Draft.chain([2]), rows.__getitem__, 0) == Verdict((0,), 0, "bonus", 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_greedy_is_the_same_under_both_rules(dtype: Any) -> None:
    """B40: a one-hot verifier has one winner."""
    logits = np.array([0.1, 0.7, 0.7, -1.0], dtype=dtype)
    law = Sampling(temperature=0.0).law(logits, np.empty(0, dtype=np.int32))
    for tokens in ([1, 1], [1, 2], [2, 1], []):
        draft = Draft.chain(tokens)
        a = Coupled(9).accept(draft, lambda _: law, 0)
        b = Rejection(np.random.default_rng(9)).accept(draft, lambda _: law, 0)
        assert a == b
        assert a.next_token == 1


def test_positions_advance_with_depth() -> None:
    """The noise of a node is that of its place in the text, so a chain and plain steps agree at every depth."""
    law = random_model(10, size=50)(())
    rule = Coupled(11)
    winners = [rule.winner(law, position) for position in range(20, 24)]
    assert rule.accept(Draft.chain(winners[:3]), lambda _: law, 20) == Verdict((0, 1, 2), winners[3], "bonus", 3)
    assert rule.accept(Draft.chain(winners[:3]), lambda _: law, 40).path == ()
