"""The fast sampling law equals the slow one; its edges; what it refuses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.core.law import Law
from localspec.core.sampling import Sampling
from localspec.errors import EngineError, UsageError
from tests.core import reference

NOBODY = np.empty(0, dtype=np.int32)
OFF: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}


def same(sampling: Sampling, logits: npt.NDArray[Any], recent: npt.NDArray[np.int32] = NOBODY, *, atol: float) -> None:
    """The law of `sampling` keeps the ids of the reference with its probabilities."""
    before = logits.copy()
    law = sampling.law(logits, recent)
    np.testing.assert_array_equal(logits, before)
    expected = reference.law(sampling, logits.tolist(), recent.tolist())
    ids = np.arange(len(logits)) if law.ids is None else law.ids
    assert ids.tolist() == sorted(expected)
    np.testing.assert_allclose(law.weights / law.total, [expected[token] for token in sorted(expected)], atol=atol)
    assert law.total == pytest.approx(law.weights.sum(dtype=np.float64), rel=1e-6)


SAMPLINGS = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.05, 0.3, 0.8, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 2, 5, 40, 1000]),
    top_p=st.sampled_from([1.0, 0.97, 0.53, 0.071]),
    min_p=st.sampled_from([0.0, 0.003, 0.05, 0.7]),
    repeat_penalty=st.sampled_from([1.0, 1.3, 0.7]),
    frequency_penalty=st.sampled_from([0.0, 0.5, -0.3]),
    presence_penalty=st.sampled_from([0.0, 0.4]),
    penalty_last_n=st.sampled_from([-1, 0, 3, 64]),
    logit_bias=st.dictionaries(st.integers(0, 40), st.sampled_from([-100.0, -1.3, 2.7, -math.inf]), max_size=3),
)


@given(SAMPLINGS, st.lists(st.integers(-4, 4), min_size=2, max_size=30), st.lists(st.integers(0, 29), max_size=9))
@settings(max_examples=400)
def test_short_rows_full_of_ties(sampling: Sampling, logits: list[int], recent: list[int]) -> None:
    row = np.array(logits, dtype=np.float64)
    if all(row[i] + sampling.logit_bias.get(i, 0.0) == -math.inf for i in range(len(row))):
        return
    same(sampling, row, np.array([token for token in recent if token < len(row)], dtype=np.int32), atol=1e-12)


@pytest.mark.parametrize("size", [900, 1024, 3000, 32_003])
@pytest.mark.parametrize("scale", [0.3, 3.0])
@pytest.mark.parametrize(
    "filters",
    [
        {},
        OFF,
        {**OFF, "top_k": 40},
        {**OFF, "top_k": 700},
        {**OFF, "top_k": 100_000},
        {**OFF, "top_p": 0.95},
        {**OFF, "top_p": 0.2},
        {**OFF, "min_p": 0.05},
        {**OFF, "top_p": 0.9, "min_p": 0.01},
        {**OFF, "top_p": 0.999, "min_p": 1e-6},
        {"repeat_penalty": 1.2, "frequency_penalty": 0.1, "presence_penalty": 0.2},
    ],
    ids=str,
)
def test_long_rows(size: int, scale: float, filters: dict[str, Any]) -> None:
    rng = np.random.default_rng(size)
    logits = scale * rng.normal(size=size)
    recent = rng.integers(0, size, 100).astype(np.int32)
    same(Sampling(**filters), logits, recent, atol=1e-12)
    same(Sampling(**{**filters, "top_p": 1.0}), logits.astype(np.float32), recent, atol=1e-6)
    ties = np.round(logits)
    same(Sampling(**filters), ties, recent, atol=1e-12)


def test_the_type_of_the_logits_stays() -> None:
    for sampling in (Sampling(), Sampling(**OFF), Sampling(repeat_penalty=1.1), Sampling(logit_bias={1: 0.5})):
        for dtype in (np.float32, np.float64):
            law = sampling.law(np.linspace(-1, 1, 2000).astype(dtype), np.array([3], dtype=np.int32))
            assert law.weights.dtype == dtype


@pytest.mark.parametrize("filters", [{}, OFF, {"top_k": 1, "top_p": 0.1, "min_p": 1.0}])
def test_greedy_is_one_hot_on_the_lowest_of_the_largest(filters: dict[str, Any]) -> None:
    """B40: temperature 0 is a one-hot law, ties as in plain decoding, and filters change nothing."""
    sampling = Sampling(temperature=0.0, **filters)
    assert sampling.greedy
    assert not Sampling().greedy
    logits = np.log(np.array([0.3, 0.5, 0.2, 0.5], dtype=np.float32))
    law = sampling.law(logits, NOBODY)
    assert law.is_certain
    assert law.prob(1) == 1.0
    assert law.prob(0) == law.prob(3) == 0.0


def test_ties_at_the_edge_of_top_k_go_to_the_lower_ids() -> None:
    logits = np.zeros(5000, dtype=np.float32)
    logits[4000] = 1.0
    law = Sampling(**{**OFF, "top_k": 4}).law(logits, NOBODY)
    assert law.ids is not None
    assert law.ids.tolist() == [0, 1, 2, 4000]


def test_a_tiny_temperature_ends_in_certainty() -> None:
    logits = np.array([1.0, 1.5, -200.0], dtype=np.float32)
    for sampling in (Sampling(temperature=1e-38), Sampling(temperature=1e-38, **OFF)):
        assert sampling.law(logits, NOBODY).dense(3).tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("temperature", [1e-3, 9e-4, 1e-20, 2e-38])
def test_a_cold_row_keeps_its_ties_and_overflows_quietly(temperature: float) -> None:
    """(-200 - 1.5) / 1e-38 is beyond float32: the loser has no chance, and nobody is warned."""
    logits = np.array([1.5, -200.0, 1.5, 1.0], dtype=np.float32)
    for filters in ({}, OFF):
        sampling = Sampling(**{**filters, "temperature": temperature})
        assert not sampling.greedy
        assert sampling.law(logits, NOBODY).dense(4).tolist() == [0.5, 0.0, 0.5, 0.0]


def test_a_bias_bans_and_forces() -> None:
    """B41: -100 or -inf bans an id under every setting, +100 forces it."""
    logits = np.random.default_rng(0).normal(size=300).astype(np.float32)
    favourite = int(logits.argmax())
    choices: list[dict[str, Any]] = [{}, OFF, {"temperature": 0.0}]
    for filters in choices:
        for ban in (-100.0, -math.inf):
            assert Sampling(logit_bias={favourite: ban}, **filters).law(logits, NOBODY).prob(favourite) < 1e-30
        assert Sampling(logit_bias={7: 100.0}, **filters).law(logits, NOBODY).prob(7) == 1.0


def test_penalties_count_the_window_before_the_position() -> None:
    """B42: a row of a block sees the tokens of the path; each path has its own law."""
    logits = np.array([2.0, 1.9, -1.0, 0.0], dtype=np.float32)
    sampling = Sampling(temperature=0.0, repeat_penalty=1.3, frequency_penalty=0.5, presence_penalty=0.5)
    assert sampling.penalises

    def pick(*recent: int) -> int:
        law = sampling.law(logits, np.array(recent, dtype=np.int32))
        return int(law.dense(4).argmax())

    assert [pick(), pick(0), pick(1), pick(0, 1), pick(0, 0, 1)] == [0, 1, 0, 0, 1]
    last = Sampling(temperature=0.0, repeat_penalty=1.3, penalty_last_n=2)
    assert last.law(logits, np.array([0, 3, 3], dtype=np.int32)).prob(0) == 1.0
    assert last.law(logits, np.array([0, 3], dtype=np.int32)).prob(1) == 1.0


def test_penalties_are_off_when_nothing_is_counted() -> None:
    assert not Sampling(repeat_penalty=1.3, penalty_last_n=0).penalises
    assert not Sampling().penalises


def test_ids_beyond_the_row_are_ignored() -> None:
    """A draft with fewer ids than its verifier sees the same text and the same bias."""
    sampling = Sampling(repeat_penalty=1.3, logit_bias={9: 5.0, 1: 0.5}, **OFF)
    law = sampling.law(np.zeros(4, dtype=np.float32), np.array([8, 2], dtype=np.int32))
    assert law.prob(1) > law.prob(0)


@pytest.mark.parametrize("size", [5, 5000])
@pytest.mark.parametrize("bad", [[np.nan], [np.inf], [-np.inf] * 5000])
@pytest.mark.parametrize("filters", [{}, OFF, {"temperature": 0.0}, {"top_k": 0}], ids=str)
def test_broken_logits_are_an_error(size: int, bad: list[float], filters: dict[str, Any]) -> None:
    """B39's cousin: NaN must not end as id 0."""
    logits = np.random.default_rng(1).normal(size=size).astype(np.float32)
    logits[: len(bad)] = bad[:size]
    with pytest.raises(EngineError, match="logit") as caught:
        Sampling(**filters).law(np.roll(logits, 3), NOBODY)
    assert caught.value.hint


@pytest.mark.parametrize("filters", [{}, OFF, {"temperature": 0.0}, {"top_k": 0}], ids=str)
def test_excluded_logits_are_fine(filters: dict[str, Any]) -> None:
    logits = np.full(3000, -np.inf, dtype=np.float32)
    logits[[5, 2000]] = [1.0, 0.0]
    law = Sampling(**filters).law(logits, NOBODY)
    assert set(np.flatnonzero(law.dense(3000))) <= {5, 2000}
    assert law.prob(5) >= 0.7


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -0.1},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"top_p": math.nan},
        {"min_p": -0.1},
        {"min_p": 1.1},
        {"min_p": math.nan},
        {"repeat_penalty": 0.0},
        {"repeat_penalty": math.nan},
        {"frequency_penalty": math.nan},
        {"presence_penalty": math.inf},
        {"penalty_last_n": -2},
        {"logit_bias": {3: math.nan}},
        {"logit_bias": {3: math.inf}},
        {"logit_bias": {-1: 1.0}},
    ],
    ids=str,
)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))) as caught:
        Sampling(**wrong)
    assert caught.value.hint


def test_the_law_of_a_row_without_filters_is_dense() -> None:
    law = Sampling(temperature=1.0, **OFF).law(np.zeros(2000, dtype=np.float32), NOBODY)
    assert isinstance(law, Law)
    assert law.ids is None
    assert law.top == pytest.approx(1 / 2000)
