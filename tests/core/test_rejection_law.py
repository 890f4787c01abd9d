"""The rejection rule emits the verifier's law: every branch summed, compared at 1e-12.

The real `accept` runs in every branch; the second half of the file shows that the same enumeration catches the classic
errors, so that it can fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.core.draft import Draft
from localspec.core.law import Law
from localspec.core.rejection import Rejection
from localspec.core.sampling import Sampling
from tests.core import chisquare
from tests.core.models import Model, constant_model, random_model
from tests.core.speculation import (
    WAYS,
    Siblings,
    emitted_law,
    error,
    independent,
    ranking,
    top,
    top_then_drawn,
    without_replacement,
)

EXACT = 1e-12


def pairs(size: int) -> list[tuple[str, Model, Model]]:
    """Verifiers and drafters, kind and unkind."""
    hot = [constant_model(np.eye(size)[token]) for token in range(2)]
    left = constant_model([1.0, 2.0] + [0.0] * (size - 2))
    right = constant_model([0.0, 0.0] + [1.0] * (size - 2))
    fair = constant_model([0.51, 0.49] + [1e-3] * (size - 2))
    a, b, holes = random_model(1, size=size), random_model(2, size=size), random_model(3, size=size, zeros=0.5)
    return [
        ("random", a, b),
        ("random with holes", holes, b),
        ("random, holes in the draft", a, holes),
        ("sharp against flat", random_model(4, size=size, spread=6.0), random_model(5, size=size, spread=0.1)),
        ("equal", a, a),
        ("equal with holes", holes, holes),
        ("nearly fair", fair, fair),
        ("disjoint", left, right),
        ("verifier certain", hot[0], a),
        ("verifier certain of what the draft excludes", hot[0], right),
        ("draft certain", a, hot[1]),
        ("draft certain of what the verifier excludes", right, hot[1]),
        ("both certain, same", hot[0], hot[0]),
        ("both certain, different", hot[0], hot[1]),
    ]


@pytest.mark.parametrize(("name", "verifier", "drafter"), pairs(4), ids=lambda x: x if isinstance(x, str) else "")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("widths", [(1,), (1, 1, 1), (2,), (4,), (2, 1), (2, 2), (1, 3)], ids=str)
def test_emits_the_verifiers_law(
    name: str, verifier: Model, drafter: Model, way: Siblings, widths: Sequence[int]
) -> None:
    """B44: whatever the siblings and however they were drawn, as long as the drawing is reported."""
    assert error(verifier, drafter, size=4, widths=widths, siblings=way) < EXACT


@pytest.mark.parametrize("way", WAYS)
def test_emits_the_verifiers_law_at_depth_three(way: Siblings) -> None:
    verifier, drafter = random_model(6, size=3), random_model(7, size=3, zeros=0.2)
    assert error(verifier, drafter, size=3, widths=(2, 2, 2), siblings=way) < EXACT


@pytest.mark.parametrize("widths", [(4, 4, 4), (4, 2, 2), (3, 3, 3)], ids=str)
def test_deep_wide_trees_of_top_picks(widths: Sequence[int]) -> None:
    """B44: top-k trees are deterministic picks, three levels of up to four siblings."""
    assert error(random_model(8, size=5), random_model(9, size=5), size=5, widths=widths, siblings=top) < EXACT


@pytest.mark.parametrize("way", [top, without_replacement])
def test_even_odds(way: Siblings) -> None:
    """B44: rows of 0.51 and 0.49, three siblings, two levels, draft equal to the verifier and not."""
    even = constant_model([0.51, 0.49])
    assert error(even, even, size=2, widths=(3, 3), siblings=way) < EXACT
    even = constant_model([0.51, 0.48, 0.01])
    assert error(even, constant_model([0.49, 0.5, 0.01]), size=3, widths=(3, 3), siblings=way) < EXACT


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("widths", [(1, 1, 1), (2, 2), (2, 1, 1)], ids=str)
def test_trees_drawn_beforehand(way: Siblings, widths: Sequence[int]) -> None:
    """As above, with all nodes drawn before the first is judged, as in reality."""
    verifier, drafter = random_model(10, size=3), random_model(11, size=3)
    planted_law = emitted_law(verifier, drafter, size=3, widths=widths, siblings=way, growing=False)
    growing_law = emitted_law(verifier, drafter, size=3, widths=widths, siblings=way)
    np.testing.assert_allclose(planted_law, growing_law, atol=EXACT)
    assert error(verifier, drafter, size=3, widths=widths, siblings=way, growing=False) < EXACT


@given(
    verifier=st.lists(st.floats(0.0, 1.0), min_size=5, max_size=5).filter(any),
    drafter=st.lists(st.floats(0.0, 1.0), min_size=5, max_size=5).filter(any),
    way=st.sampled_from([top, without_replacement, top_then_drawn]),
    width=st.integers(1, 4),
)
@settings(max_examples=60)
def test_any_two_laws(verifier: list[float], drafter: list[float], way: Siblings, width: int) -> None:
    q, p = constant_model(verifier), constant_model(drafter)
    assert error(q, p, size=5, widths=(width,), siblings=way) < EXACT


@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0, 1.7])
@pytest.mark.parametrize("top_k", [0, 1, 3, 40])
@pytest.mark.parametrize("top_p", [0.5, 0.95, 1.0])
@pytest.mark.parametrize("min_p", [0.0, 0.05])
def test_filters_on_both_sides(temperature: float, top_k: int, top_p: float, min_p: float) -> None:
    """B37: both rows are laws after the settings of their own side, and the draft's is the one it was drawn from."""

    def filtered(seed: int, sampling: Sampling) -> Model:
        logits = random_model(seed, size=5)
        return lambda path: sampling.law(np.log(logits(path).weights), np.empty(0, dtype=np.int32))

    asked = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    verifier = filtered(12, asked)
    for other in (asked, Sampling(temperature=1.3, top_k=2, top_p=1.0, min_p=0.0), Sampling(temperature=0.0)):
        drafter = filtered(13, other)
        assert error(verifier, drafter, size=5, widths=(1, 1), siblings=independent) < EXACT
        assert error(verifier, drafter, size=5, widths=(2, 1), siblings=without_replacement) < EXACT


# --- the errors that the enumeration is there for

Q, P = random_model(14, size=4), random_model(15, size=4)


def test_top_picks_reported_as_drawn_are_caught() -> None:
    """B44, B37: the classic silent error of tree drafts."""

    def liar(rule: Rejection, law: Law, count: int) -> list[tuple[int, Law | None]]:
        return [(token, law) for token in ranking(law, count)]

    assert error(Q, P, size=4, widths=(1,), siblings=liar) > 0.05
    assert error(Q, P, size=4, widths=(2, 2), siblings=liar) > 0.05


def test_a_law_of_another_temperature_is_caught() -> None:
    """B37: drawn hot, reported cold."""

    def liar(rule: Rejection, law: Law, count: int) -> list[tuple[int, Law | None]]:
        return [(token, Law.of(law.weights**3)) for token, _ in independent(rule, law, count)]

    assert error(Q, P, size=4, widths=(1,), siblings=liar) > 0.05


def test_a_law_from_before_the_filter_is_caught() -> None:
    """B37: draft probabilities taken before top-k."""

    def liar(rule: Rejection, law: Law, count: int) -> list[tuple[int, Law | None]]:
        kept = np.zeros(4)
        kept[ranking(law, 2)] = law.weights[ranking(law, 2)]
        return [(rule.guess(Law.of(kept), 0)[0], law)]

    assert error(Q, P, size=4, widths=(1,), siblings=liar) > 0.02


def test_dropping_unlikely_draws_is_caught() -> None:
    """A drawn token is never dropped because of what it is: the output of this example is (.24, .36, .40)."""
    q, p = constant_model([0.2, 0.3, 0.5]), constant_model([0.5, 0.3, 0.2])

    def timid(rule: Rejection, law: Law, count: int) -> list[tuple[int, Law | None]]:
        return [(token, law) for token, _ in independent(rule, law, count) if law.prob(token) >= 0.25]

    law = emitted_law(q, p, size=3, widths=(1,), siblings=timid).sum(axis=1)
    np.testing.assert_allclose(law, [0.24, 0.36, 0.40], atol=EXACT)


class Forgetful(Rejection):
    """Tests every sibling against the verifier's own row."""

    def _choose(self, draft: Draft, siblings: tuple[int, ...], row: Law) -> tuple[int | None, Law]:
        left = row
        for node in siblings:
            chosen, left = super()._choose(draft, (node,), row)
            if chosen is not None:
                return chosen, row
        return None, left


class Careless(Rejection):
    """Draws from the verifier's own row after a rejection."""

    def _choose(self, draft: Draft, siblings: tuple[int, ...], row: Law) -> tuple[int | None, Law]:
        return super()._choose(draft, siblings, row)[0], row


@pytest.mark.parametrize("way", [top, independent, without_replacement])
@pytest.mark.parametrize("rule", [Forgetful, Careless])
def test_a_residual_not_updated_is_caught(way: Siblings, rule: Any) -> None:
    assert error(Q, P, size=4, widths=(2,), siblings=way) < EXACT
    assert error(Q, P, size=4, widths=(2,), siblings=way, rule=rule) > 0.01


def test_siblings_without_replacement_reported_as_independent_are_caught() -> None:
    """B44: the second of two distinct draws does not follow the row it came from."""

    def liar(rule: Rejection, law: Law, count: int) -> list[tuple[int, Law | None]]:
        return [(token, law) for token, _ in rule.guesses(law, 0, count)]

    q, p = constant_model([0.1, 0.2, 0.3, 0.4]), constant_model([0.4, 0.3, 0.2, 0.1])
    assert error(q, p, size=4, widths=(3,), siblings=without_replacement) < EXACT
    assert error(q, p, size=4, widths=(3,), siblings=liar) > 0.01


def test_fifty_thousand_steps_against_direct_sampling() -> None:
    """Chi-square, on float32 rows, of the tokens of 50,000 speculative steps of N = 3."""
    size = 12
    verifier, drafter = (
        [Law.of(random_model(seed, size=size)((last,)).weights.astype(np.float32)) for last in range(size)]
        for seed in (20, 21)
    )
    rule, rng = Rejection(np.random.default_rng(3)), np.random.default_rng(4)
    speculative, direct = np.zeros((size, size)), np.zeros((size, size))
    text = [0]

    def row_of(tokens: list[int], row: int) -> Law:
        return verifier[tokens[row]]

    for _ in range(50_000):
        tokens, laws = [text[-1]], []
        for _ in range(3):
            token, law = rule.guess(drafter[tokens[-1]], 0)
            tokens.append(token)
            laws.append(law)
        result = rule.accept(Draft.chain(tokens[1:], laws), partial(row_of, tokens), 0)
        emitted = [*tokens[1 : len(result.path) + 1], result.next_token]
        for before, after in zip([text[-1], *emitted], emitted, strict=False):
            speculative[before, after] += 1
            direct[before, verifier[before].sample(rng)] += 1
        text = emitted
    probs = np.stack([law.dense(size) for law in verifier])
    assert chisquare.fit(speculative, probs) > 1e-3
    assert chisquare.fit(direct, probs) > 1e-3
    assert chisquare.same(speculative, direct) > 1e-3
    assert chisquare.fit(speculative, np.stack([law.dense(size) for law in drafter])) < 1e-9
