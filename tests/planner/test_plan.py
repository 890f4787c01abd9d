"""The arithmetic of a plan, exactly: walks against closed forms, enumeration and a simulated loop."""

from __future__ import annotations

import itertools
from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.core import theory
from localspec.planner import plan
from localspec.planner.plan import LONGEST, Costs, Trace
from localspec.planner.profile import Profile

CURVE = ((1, 0.010), (2, 0.014), (4, 0.020), (8, 0.030))
COSTS = Costs(CURVE, draft_s=0.002, law_s=0.0005, round_s=0.001)


def steady(rate: float, *, length: int) -> Trace:
    """A model's trace: the chance of a token does not depend on where its draft began."""
    return moody([rate] * length)


def moody(rates: list[float]) -> Trace:
    rows = tuple(tuple(rates[at : at + LONGEST]) for at in range(len(rates)))
    return Trace(rows, rows)


def test_between_measured_points_the_line_and_beyond_them_the_slope() -> None:
    assert plan.between(CURVE, 1) == 0.010
    assert plan.between(CURVE, 3) == pytest.approx(0.017)
    assert plan.between(CURVE, 8) == 0.030
    assert plan.between(CURVE, 15) == pytest.approx(0.030 + 7 * 0.020 / 7)
    assert plan.between(((1, 0.010),), 3) == pytest.approx(0.030), "nothing is known but one pass: the worst"


@pytest.mark.parametrize("N", [1, 3, 5])
@pytest.mark.parametrize("rate", [0.0, 0.6, 0.9, 1.0])
def test_a_long_text_of_one_rate_has_the_textbook_s_tokens_per_pass(rate: float, N: int) -> None:
    """1 + a + ... + a^N (Leviathan et al. 2023), and the time of a round by hand."""
    walk = plan.chain(steady(rate, length=2000), COSTS, N)
    assert walk.tokens == pytest.approx(2000)
    per_pass = theory.tokens_per_pass(rate, N)
    assert walk.tokens / walk.passes == pytest.approx(per_pass, rel=0.005)
    seconds = plan.between(CURVE, N + 1) + N * 0.002 + 0.001 + per_pass * 0.0005
    assert walk.seconds / walk.passes == pytest.approx(seconds, rel=0.005)


def test_flat_passes_give_the_speedup_of_the_theory() -> None:
    flat = Costs(((1, 1.0), (16, 1.0)), draft_s=0.05)
    walk = plan.chain(steady(0.8, length=4000), flat, 5)
    one = plan.candidate("model", 5, "none", [walk], flat, longest=5)
    assert one.speedup == pytest.approx(theory.speedup(0.8, 5, 0.05), rel=0.003)


DEAR_TO_CHANGE = replace(COSTS, anew_s=((1, 0.001), (4, 0.003)))


def enumerated(rates: list[float], N: int, costs: Costs) -> float:
    """Expected seconds by going through every outcome of every token."""
    total = 0.0
    for outcome in itertools.product((False, True), repeat=len(rates)):
        weight = prod(rate if passed else 1.0 - rate for rate, passed in zip(rates, outcome, strict=True))
        at, seconds, before = 0, 0.0, 0
        while at < len(rates):
            count = min(N, len(rates) - at - 1)
            seconds += costs.anew(count + 1, before)
            before = count + 1
            accepted = 0
            while accepted < count and outcome[at + accepted]:
                accepted += 1
            seconds += costs.chain(count) + (accepted + 1) * costs.law_s
            at += accepted + 1
        total += weight * seconds
    return total


@given(rates=st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=7), N=st.integers(1, 4))
def test_a_walk_is_the_exact_expectation(rates: list[float], N: int) -> None:
    """The last token of the text is never drafted, so its rate does not matter; neither do rates behind a rejection."""
    for costs in (COSTS, DEAR_TO_CHANGE):
        assert plan.chain(moody(rates), costs, N).seconds == pytest.approx(enumerated(rates, N, costs))


def test_a_pass_over_another_number_of_tokens_than_the_last_one_takes_longer() -> None:
    """A lookup that finds one token in every second round: the plain pass behind it is dearer as well."""
    found = Trace(((0.0,), ()) * 10, ((0.2,), ()) * 10)
    steady, changing = (plan.chain(found, costs, 5).seconds for costs in (COSTS, DEAR_TO_CHANGE))
    assert changing - steady == pytest.approx(10 * 0.001 + 9 * (0.001 + 0.002 / 3))


def test_a_draft_may_hold_the_end_of_the_text_or_reach_beyond_it() -> None:
    """Three sure tokens, the last an end token: one pass, a draft of three; unsure ones cost the whole draft."""
    sure = ((1.0, 1.0, 1.0, 0.0, 0.0), (1.0, 1.0, 0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0, 0.0))
    walk = plan.chain(Trace(sure, sure, ended=True), COSTS, 5)
    assert (walk.tokens, walk.passes, walk.drafted, walk.tested, walk.accepted) == (3.0, 1.0, 3.0, 3.0, 3.0)
    assert walk.seconds == pytest.approx(COSTS.chain(3) + 4 * COSTS.law_s)
    unsure = tuple((0.0,) * 5 for _ in range(3))
    walk = plan.chain(Trace(unsure, unsure, ended=True), COSTS, 5)
    assert (walk.passes, walk.drafted) == (3.0, 15.0)
    assert plan.chain(Trace(unsure, unsure), COSTS, 5).drafted == 2 + 1


def test_counts_keep_their_promises() -> None:
    walk = plan.chain(steady(0.7, length=300), COSTS, 4)
    assert walk.accepted < walk.tested < walk.drafted
    assert walk.tokens == pytest.approx(walk.accepted + walk.passes)
    assert walk.accepted / walk.tested == pytest.approx(0.7)


def test_a_lookup_that_finds_nothing_costs_no_rows() -> None:
    """Drafts of a lookup are as long as what it found."""
    silent = Trace(((),) * 50, ((),) * 50)
    walk = plan.chain(silent, Costs(CURVE, ask_s=0.003), 5)
    assert walk.seconds == pytest.approx(50 * 0.013)
    assert walk.drafted == walk.tested == 0.0


def test_a_tree_accepts_what_is_among_its_siblings() -> None:
    """Two children at each of two depths: ranks 0 and 1 pass and the next token comes with them; rank 5 is refused."""
    trace = Trace(((0.0,),) * 5, ((0.0,),) * 5, ranks=(0, 1, 1, 5, 0))
    costs = Costs(CURVE, draft_s=0.002, layers_s=((1, 0.002), (2, 0.003)))
    walk = plan.tree(trace, costs, [2, 2])
    assert (walk.tokens, walk.passes, walk.accepted, walk.tested) == (5.0, 3.0, 2.0, 3.0)
    assert walk.drafted == 6 + 2, "the second draft has room for one depth, the last for none"
    assert walk.seconds == pytest.approx(costs.tree([2, 2]) + costs.tree([2]) + costs.tree([]))
    assert costs.tree([2, 2]) == pytest.approx(plan.between(CURVE, 7) + 0.002 + 0.003)


def test_a_tree_of_single_children_costs_and_brings_what_a_chain_does() -> None:
    ranks = tuple(int(rank) for rank in np.random.default_rng(1).integers(0, 2, 200))
    matches = [float(rank == 0) for rank in ranks]
    rows = tuple(tuple(matches[at : at + LONGEST]) for at in range(200))
    trace = Trace(rows, rows, ranks)
    costs = Costs(CURVE, draft_s=0.002, layers_s=((1, 0.002), (4, 0.004)))
    tree, chain = plan.tree(trace, costs, [1, 1, 1]), plan.chain(trace, costs, 3)
    assert tree.seconds == pytest.approx(chain.seconds)
    assert replace(tree, seconds=chain.seconds) == chain
    assert plan.tree(trace, costs, [2, 2]).accepted > plan.chain(trace, costs, 2).accepted


def test_streams_share_a_pass() -> None:
    """Two texts side by side: rows of both in one pass, laws one after the other."""
    two = Costs(CURVE, draft_s=0.002, layers_s=((1, 0.002), (2, 0.003)), law_s=0.0005, round_s=0.001, streams=2)
    assert two.plain == pytest.approx(0.014 + 2 * 0.0015)
    assert two.chain(3) == pytest.approx(0.030 + 3 * 0.003 + 2 * 0.001)
    alone = plan.chain(steady(0.9, length=500), COSTS, 3)
    beside = plan.chain(steady(0.9, length=500), two, 3)
    assert two.plain / beside.seconds < COSTS.plain / alone.seconds, "the machine is bound by compute sooner"


@pytest.mark.parametrize("rate", [0.0, 0.5, 0.9])
def test_the_controller_on_a_simulated_clock_is_near_the_best_length(rate: float) -> None:
    rng = np.random.default_rng(3)
    traces = [moody((rng.random(400) < rate).astype(float).tolist()) for _ in range(3)]
    profile = Profile(CURVE, 0.002, plan.by_depth(traces))
    walks, controller = plan.automatic(traces, COSTS, profile, lookup=False)
    auto = plan.candidate("model", "auto", "none", walks, COSTS, longest=5)
    best = max(plan.candidates("model", traces, COSTS, trees=False), key=lambda one: one.speedup)
    assert sum(walk.tokens for walk in walks) == 1200
    assert auto.speedup >= 0.93 * max(1.0, best.speedup)
    assert controller.learned() is not None


def test_acceptance_by_depth_is_conditional() -> None:
    rates = plan.by_depth([moody([1.0, 0.5] * 50)])
    # Half of the drafts begin with a sure token and half with an uncertain one.
    assert rates[0] == pytest.approx(0.75)
    assert rates[1] == pytest.approx((0.5 * 0.5 + 0.5 * 1.0 * 0.5) / 0.75 * 1.0, rel=0.02)
    assert plan.by_depth([Trace(((),), ((),))]) == ()


def test_the_medians_over_texts_are_what_bench_reports() -> None:
    traces = [steady(rate, length=200) for rate in (0.1, 0.5, 0.9)]
    walks = [plan.chain(trace, COSTS, 2) for trace in traces]
    one = plan.candidate("model", 2, "none", walks, COSTS, longest=2)
    ratios = [COSTS.plain * 200 / walk.seconds for walk in walks]
    assert [one.low, one.speedup, one.high] == pytest.approx(sorted(ratios))
    assert one.overall == pytest.approx(600 * COSTS.plain / sum(walk.seconds for walk in walks))
    assert one.round_s == pytest.approx(COSTS.chain(2) + 3 * COSTS.law_s)


def test_three_lengths_around_the_optimum() -> None:
    found = plan.candidates("model", [steady(0.8, length=200)], COSTS, trees=False)
    best = max(found, key=lambda one: one.speedup)
    shown = plan.around(found, best)
    assert len(shown) == 3
    assert shown[1] is best
    worst = [one for one in found if one.N == 1]
    first = plan.around([replace(one, speedup=2.0 if one in worst else 1.0) for one in found], worst[0])
    assert [one.N for one in first] == [1, 2, 3]
