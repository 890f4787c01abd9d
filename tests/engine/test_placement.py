"""Layers on a GPU, as arithmetic: what fits, what is left for the draft, what is tried when the plan was too bold."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.engine.placement import EVERYTHING, RESERVE, Need, cache_bytes, fewer, layers_that_fit

MEBI = 2**20
BIG = Need(weights=4000 * MEBI, cache=1000 * MEBI, layers=32)
SMALL = Need(weights=400 * MEBI, cache=100 * MEBI, layers=16)

needs = st.builds(Need, st.integers(1, 2**40), st.integers(0, 2**36), st.integers(1, 200))
sizes = st.integers(0, 2**41)


@pytest.mark.parametrize(
    ("kv_type", "bytes_per_token"), [("f16", 2 * 24 * 512), ("q8_0", 1.0625 * 24 * 512), ("q4_0", 0.5625 * 24 * 512)]
)
def test_a_cache_is_as_large_as_its_tokens(kv_type: str, bytes_per_token: float) -> None:
    """f16 has 2 bytes an element; q8_0 and q4_0 keep a 2-byte scale per 32 elements: 34 and 18 bytes for 32."""
    assert cache_bytes(layers=24, width=512, capacity=1000, kv_type=kv_type) == int(1000 * bytes_per_token)


def test_all_of_a_model_that_fits() -> None:
    assert layers_that_fit(BIG, BIG.total + RESERVE) == EVERYTHING


def test_a_byte_less_is_not_all_of_it() -> None:
    assert layers_that_fit(BIG, BIG.total + RESERVE - 1) < BIG.layers


def test_nothing_fits_nothing() -> None:
    assert layers_that_fit(BIG, 0) == 0
    assert layers_that_fit(BIG, RESERVE) == 0


@given(needs, sizes)
def test_what_is_planned_fits(need: Need, free: int) -> None:
    layers = layers_that_fit(need, free)
    if layers != EVERYTHING:
        assert 0 <= layers <= need.layers
        assert layers * need.total // (need.layers + 1) <= max(0, free - RESERVE)


@given(needs, sizes, sizes)
def test_more_memory_never_means_fewer_layers(need: Need, free: int, more: int) -> None:
    assert layers_that_fit(need, free) <= layers_that_fit(need, free + more)


def test_the_draft_is_placed_first() -> None:
    """B86: memory planned for the verifier alone leaves the draft, which is read N times a round, outside."""
    free = BIG.total + RESERVE + 100 * MEBI
    assert layers_that_fit(BIG, free) == EVERYTHING
    beside = layers_that_fit(BIG, free, beside=SMALL)
    assert 0 < beside < BIG.layers
    left = free - beside * BIG.total // (BIG.layers + 1) - RESERVE
    assert layers_that_fit(SMALL, left) == EVERYTHING


def test_both_fit_a_large_device() -> None:
    assert layers_that_fit(BIG, BIG.total + SMALL.total + 2 * RESERVE, beside=SMALL) == EVERYTHING


@given(st.integers(0, 200), st.integers(1, 200))
def test_what_is_tried_next_is_always_less_and_at_last_nothing(layers: int, count: int) -> None:
    tried = list(fewer(layers, count))
    assert tried[0] == layers
    assert tried[-1] == 0
    assert all(later < earlier for earlier, later in itertools.pairwise(tried))
    assert len(tried) < 20, "a load takes seconds"


def test_fewer_than_everything_counts_from_the_layers_there_are() -> None:
    assert list(fewer(EVERYTHING, 4)) == [EVERYTHING, 3, 2, 1, 0]
