"""The noise is what it claims: Exp(1), independent over ids, positions and seeds, and a function of nothing else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from localspec.core.noise import SIZE, SPAN, Noise, members
from tests.core import chisquare

IDS = np.arange(2 * SPAN)
POSITIONS = range(40)
PINNED = [0.0021693032539981333, 0.09214483371568717, 0.8266192924199988]
Variables = npt.NDArray[np.float64]


def uniform(variables: Variables) -> Variables:
    """Exp(1) variables as numbers uniform in (0, 1)."""
    return np.exp(-variables)


def cells(*columns: Variables) -> npt.NDArray[np.floating]:
    """Counts of the columns' joint values in a grid of 16 cells an axis."""
    index = np.zeros(columns[0].size, dtype=np.int64)
    for column in columns:
        index = index * 16 + np.minimum((uniform(column).ravel() * 16).astype(np.int64), 15)
    return np.bincount(index, minlength=16 ** len(columns)).astype(np.float64)


def assert_uniform(*columns: Variables) -> None:
    counts = cells(*columns)
    assert chisquare.fit(counts, np.full(len(counts), 1 / len(counts))) > 1e-4


def test_every_id_is_exponential() -> None:
    """Also far out in both tails, where winners live: the smallest of 128 and the largest."""
    variables = np.concatenate([Noise.at(1, position).of(IDS) for position in POSITIONS])
    assert (variables > 0.0).all()
    assert_uniform(variables)
    assert variables.mean() == pytest.approx(1.0, abs=5 / np.sqrt(variables.size))
    edges = np.array([0.0, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 3.0, 6.0, 9.0, np.inf])
    counts = np.histogram(variables, edges)[0].astype(np.float64)
    assert chisquare.fit(counts, np.exp(-edges[:-1]) - np.exp(-edges[1:])) > 1e-4


@pytest.mark.parametrize("token", [0, 1, 127, 128, 16_383, 16_384, 49_151, 262_143])
def test_one_id_over_positions_and_seeds(token: int) -> None:
    ids = np.array([token])
    assert_uniform(np.array([Noise.at(1, position).of(ids)[0] for position in range(4000)]))
    assert_uniform(np.array([Noise.at(seed, 7).of(ids)[0] for seed in range(4000)]))


@pytest.mark.parametrize("step", [1, 2, SIZE - 1, SIZE, 2 * SIZE, SPAN - SIZE, SPAN, SPAN + 1])
def test_ids_are_independent(step: int) -> None:
    """Neighbours, and members of one block (a multiple of SIZE apart), whose minimum they share."""
    grids = [Noise.at(2, position).of(IDS) for position in POSITIONS]
    assert_uniform(np.concatenate([g[:-step] for g in grids]), np.concatenate([g[step:] for g in grids]))


def test_three_members_of_a_block_are_independent() -> None:
    block = members(np.array([5]))[0]
    rows = np.stack([Noise.at(3, position).of(block) for position in range(4000)])
    assert_uniform(rows[:, :-2], rows[:, 1:-1], rows[:, 2:])


@pytest.mark.parametrize(
    "other",
    [
        lambda seed, position: Noise.at(seed, position + 1),
        lambda seed, position: Noise.at(seed + 1, position),
        lambda seed, position: Noise.at(seed + 1, position - 1),
        lambda seed, position: Noise.at(position, seed),
        lambda seed, position: Noise.at(-seed, position),
        lambda seed, position: Noise.at(seed + 2**32, position),
        lambda seed, position: Noise.at(seed ^ 2**63, position),
    ],
)
def test_positions_and_seeds_are_independent(other: Callable[[int, int], Noise]) -> None:
    one = np.stack([Noise.at(11, position).of(IDS) for position in range(100, 120)])
    two = np.stack([other(11, position).of(IDS) for position in range(100, 120)])
    assert_uniform(one, two)


def test_sums_over_a_row_have_the_variance_of_independent_variables() -> None:
    """Correlations too weak for pairs would add up here."""
    sums = np.array([Noise.at(4, position).of(IDS[:SPAN]).sum() for position in range(300)])
    assert sums.var() / SPAN == pytest.approx(1.0, abs=5 * np.sqrt(2 / 300))


def test_blocks_are_the_minima_of_their_members() -> None:
    noise = Noise.at(5, 6)
    minima, firsts = noise.minima(2 * SIZE)
    variables = noise.of(IDS)[members(np.arange(2 * SIZE))]
    np.testing.assert_array_equal(minima, variables.min(axis=1))
    np.testing.assert_array_equal(firsts, members(np.arange(2 * SIZE))[np.arange(2 * SIZE), variables.argmin(axis=1)])


def test_blocks_share_out_the_ids() -> None:
    np.testing.assert_array_equal(np.sort(members(np.arange(2 * SIZE)), axis=None), IDS)


def test_each_member_is_the_first_equally_often() -> None:
    firsts = np.concatenate([Noise.at(6, position).minima(512)[1] for position in range(100)])
    counts = np.bincount(firsts // SIZE % SIZE, minlength=SIZE).astype(np.float64)
    assert chisquare.fit(counts, np.full(SIZE, 1 / SIZE)) > 1e-4


def test_the_noise_of_an_id_depends_on_nothing_else() -> None:
    """Not on the vocabulary, nor on which ids are asked for together, in what order or of what type."""
    noise = Noise.at(7, 8)
    some = np.array([40_000, 3, 131, 17_000], dtype=np.int32)
    np.testing.assert_array_equal(noise.of(some), noise.of(np.arange(49_152))[some])
    np.testing.assert_array_equal(noise.of(np.arange(262_144))[:100], noise.of(np.arange(100)))


def test_the_noise_is_the_same_on_every_machine() -> None:
    """Pinned: a change here changes what every seed says."""
    assert Noise.at(1, 0).of(np.array([0, 1, 49_151])).tolist() == pytest.approx(PINNED, rel=1e-12)
