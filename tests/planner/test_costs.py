"""Running estimates of times: noise, late samples, drift, and what is made of lengths that were not measured."""

from __future__ import annotations

import numpy as np
import pytest

from localspec.planner.costs import CREDIT, MANY, Estimate, PassCosts


def jitter(seconds: float, *, count: int, seed: int = 0) -> list[float]:
    """Samples with 5 % noise, one in fifty five times too long."""
    rng = np.random.default_rng(seed)
    late = np.where(rng.random(count) < 0.02, 5.0, 1.0)
    return (seconds * late * np.exp(0.05 * rng.standard_normal(count))).tolist()


@pytest.mark.parametrize("seed", range(5))
def test_noise_and_outliers_leave_an_estimate_within_three_percent(seed: int) -> None:
    estimate = Estimate()
    for sample in jitter(0.02, count=200, seed=seed):
        estimate.observe(sample)
    assert estimate.value == pytest.approx(0.02, rel=0.03)


def test_a_late_first_sample_is_forgotten_with_the_second() -> None:
    estimate = Estimate()
    estimate.observe(0.5)
    assert estimate.value == 0.5
    estimate.observe(0.02)
    assert estimate.value == 0.02


def test_an_estimate_follows_a_lasting_change() -> None:
    estimate = Estimate()
    for sample in [0.02] * 50 + [0.03] * 150:
        estimate.observe(sample)
    assert estimate.value == pytest.approx(0.03, rel=0.02)


def measured(times: dict[int, float], *, longest: int = 8) -> PassCosts:
    costs = PassCosts(longest)
    for n, seconds in times.items():
        for _ in range(3):
            costs.observe(n, seconds)
    return costs


def test_between_measured_lengths_the_curve_is_straight_and_beyond_it_has_the_average_slope() -> None:
    curve = measured({1: 0.010, 2: 0.015, 6: 0.025}).expected
    assert curve[1:] == pytest.approx([1.0, 1.5, 1.75, 2.0, 2.25, 2.5, 2.8, 3.1])


def test_measured_lengths_need_not_rise() -> None:
    """A kernel that serves eight columns may beat the one that serves seven."""
    assert measured({1: 0.010, 7: 0.030, 8: 0.020}).expected[8] == pytest.approx(2.0)


def test_nothing_but_plain_passes_measured_expects_the_worst_and_hopes_for_the_best() -> None:
    costs = measured({1: 0.010})
    assert costs.expected[2] == pytest.approx(1.6)
    assert costs.hoped[2] == pytest.approx(1.02)


def test_hope_ends_where_a_length_was_measured_twice() -> None:
    costs = measured({1: 0.010})
    costs.observe(4, 0.040)
    assert costs.hoped[4] < 1.1 < costs.expected[4]
    costs.observe(4, 0.041)
    assert costs.hoped[4] == costs.expected[4] == pytest.approx(4.0)
    assert costs.expected[8] > costs.hoped[8] > 4.0


def test_hope_knows_what_the_rows_of_a_prompt_cost() -> None:
    """A machine bound by computing: no row of a narrow pass is much cheaper than one of a prompt."""
    dear, cheap = measured({1: 0.010}), measured({1: 0.010})
    dear.read(200, 200 * 0.008)
    cheap.read(200, 200 * 0.0002)
    for costs in (dear, cheap):
        costs.observe(1, 0.010)
    assert dear.hoped[2:] == pytest.approx([min(CREDIT * 0.8 * n, dear.expected[n]) for n in range(2, 9)])
    assert cheap.hoped == measured({1: 0.010}).hoped


def test_a_short_prompt_says_nothing_and_the_fastest_one_counts() -> None:
    costs = measured({1: 0.010})
    costs.read(MANY - 1, 1.0)
    costs.read(400, 40.0)  # the first one of a process may load kernels and weights
    costs.read(200, 200 * 0.005)
    costs.observe(1, 0.010)
    assert costs.hoped[8] == pytest.approx(CREDIT * 0.5 * 8)


def test_what_was_measured_says_more_than_a_prompt() -> None:
    costs = measured({1: 0.010, 8: 0.012})
    costs.read(200, 200 * 0.008)
    costs.observe(1, 0.010)
    assert costs.hoped[8] == pytest.approx(1.2)


def test_a_pass_that_is_not_measured_any_more_stays_comparable() -> None:
    """The context grows and everything takes twice as long, but only passes of 4 are seen."""
    costs = measured({1: 0.010, 4: 0.020})
    for step in range(400):
        costs.observe(4, 0.020 * (1 + step / 400))
    assert costs.plain == pytest.approx(0.020, rel=0.15)
    assert costs.expected[4] == pytest.approx(2.0, rel=0.15)


def test_passes_wider_than_recorded_are_priced_in_proportion() -> None:
    costs = measured({1: 0.010, 8: 0.040})
    costs.observe(40, 1.0)
    assert costs.widest == 8
    assert costs.cost(8) == pytest.approx(4.0)
    assert costs.cost(16) == pytest.approx(8.0)


def test_a_clock_that_stands_still_is_survived() -> None:
    costs = PassCosts(4)
    for _ in range(5):
        costs.observe(1, 0.0)
        costs.observe(2, 0.0)
    assert all(np.isfinite(costs.expected))
    assert costs.plain > 0.0


def passes(costs: PassCosts, *seconds: tuple[int, float], times: int) -> None:
    for _ in range(times):
        for n, took in seconds:
            costs.observe(n, took)


def test_what_a_plain_pass_takes_longer_behind_a_draft_is_the_draft_s() -> None:
    """llama.cpp builds its graph anew for another number of tokens: t(1) came out too dear and drafts too cheap."""
    costs = PassCosts(8)
    passes(costs, (1, 0.020), times=20)
    passes(costs, (4, 0.040), (1, 0.022), (1, 0.020), (1, 0.020), times=40)
    assert costs.plain == pytest.approx(0.020, rel=0.005)
    assert costs.cost(4) == pytest.approx(2.0 + 0.1, rel=0.01)


def test_where_drafts_follow_each_other_there_is_less_to_pay() -> None:
    costs = PassCosts(8)
    passes(costs, (1, 0.020), times=20)
    passes(costs, (4, 0.040), (4, 0.040), (4, 0.040), (4, 0.040), (1, 0.022), (1, 0.020), times=60)
    assert costs.cost(4) == pytest.approx(2.0 + 0.1 / 4, rel=0.01)


def test_the_pass_behind_a_prompt_is_no_sample_either() -> None:
    costs = PassCosts(8)
    passes(costs, (1, 0.020), times=20)
    for _ in range(40):
        costs.read(300, 0.9)
        passes(costs, (1, 0.024), (1, 0.020), times=1)
    assert costs.plain == pytest.approx(0.020, rel=0.005)


def test_a_machine_that_slows_down_while_every_pass_is_wide_is_noticed() -> None:
    """Plain passes are rare then, and stand behind wide ones."""
    costs = PassCosts(8)
    passes(costs, (1, 0.020), times=20)
    for factor in (1.0, 2.0):
        for _ in range(20):
            passes(costs, (4, 0.030 * factor), times=70)
            costs.observe(1, 0.022 * factor)
    assert costs.plain == pytest.approx(0.040, rel=0.1)
    assert costs.cost(4) == pytest.approx(1.5, rel=0.1)


def test_what_was_heard_of_is_one_of_the_first_samples() -> None:
    """The first pass of a width may be late; with two more it is known."""
    costs = PassCosts(8, [(1, 0.020), (4, 0.030), (8, 0.040)])
    passes(costs, (1, 0.020), times=3)
    costs.observe(4, 0.036)
    assert costs.widest == 8, "it is believed"
    assert costs.expected[4] == pytest.approx(1.5)
    passes(costs, (4, 0.036), times=10)
    assert costs.expected[4] == pytest.approx(1.8, rel=0.02)
