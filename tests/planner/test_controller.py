"""The controller against oracles that know machine and text: simulated clocks, fixed seeds, exact figures."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.loop.control import Controller, RoundReport
from localspec.planner.books import ALLOWANCE, PURSE, SHARE, STAKE
from localspec.planner.controller import FADED, FAR_GAP, LENGTHS, AutoLength
from localspec.planner.profile import Profile
from tests.planner.simulation import SHAPES, Machine, Run, Text, best_fixed, fixed_speed, play, text

DRAFTS = (0.0, 0.05, 0.3, 1.0)
RATES = (0.0, 0.3, 0.6, 0.9)
SPREADS = (None, 2.0)  # a drafter that says nothing of its tokens, one that tells the chance of each


def stationary(shape: str, draft: float, *, tokens: int, catch_up: float) -> list[tuple[str, Machine, Text]]:
    machine = Machine(SHAPES[shape], draft, catch_up=catch_up)
    return [
        (
            f"{shape}, draft {draft}, acceptance {rate}, spread {spread}",
            machine,
            text([rate] * (tokens + 20), spread=spread, seed=7),
        )
        for rate in RATES
        for spread in SPREADS
    ]


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_never_slower_than_plain(shape: str, draft: float) -> None:
    """B69: whatever machine, draft and text, 1,000 tokens take at most 2 % longer than plain decoding."""
    for name, machine, words in stationary(shape, draft, tokens=1000, catch_up=0.25):
        run = play(AutoLength(), machine, words, tokens=1000)
        assert run.speed >= 0.98 * fixed_speed(0, machine, words, tokens=1000), name


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_close_to_the_best_fixed_length_in_a_chat(shape: str, draft: float) -> None:
    """Eight answers of 250 tokens, nothing known before, against the best N in hindsight; finding out is included."""
    ratios = {}
    for name, machine, words in stationary(shape, draft, tokens=2000, catch_up=0.1):
        run = play(AutoLength(), machine, words, tokens=2000, answer=250)
        ratios[name] = run.speed / best_fixed(machine, words, tokens=2000)
    assert min(ratios.values()) >= 0.93, ratios
    assert np.mean(list(ratios.values())) >= 0.96, ratios


@pytest.mark.parametrize(("draft", "lookup"), [(0.0, True), (0.05, False), (0.3, False)])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_answer_pays_for_what_the_ones_before_it_won(shape: str, draft: float, lookup: bool) -> None:
    """B69: four answers in which nine of ten drafts are right, and then some in which a drafter that is as sure as
    before is always wrong. The first of these costs what the record promised, the others their stakes.
    """
    machine, controller = Machine(SHAPES[shape], draft, catch_up=0.1), AutoLength(lookup=lookup)
    play(controller, machine, text([0.9] * 620, spread=2.0, seed=1), tokens=600, answer=150)
    wrong = text([0.0] * 120, spread=2.0, said=lambda chance: 0.0 * chance + 0.6, seed=2)
    speeds = [play(controller, machine, wrong, tokens=100).speed * SHAPES[shape](1) for _ in range(3)]
    assert speeds[0] >= 0.91
    assert min(speeds[1:]) >= 0.94


def test_what_an_answer_may_lose_grows_with_it() -> None:
    """On a machine where a pass over two tokens costs two, the stake first bears one draft, and then one in a while."""
    machine, controller = Machine(SHAPES["linear"], 0.0), AutoLength(lookup=True)
    wrong = text([0.0] * 1020, said=lambda chance: 0.0 * chance + 1.0, spread=2.0, seed=3)
    run = play(controller, machine, wrong, tokens=1000)
    lost = 0.0
    for at, length in zip(run.starts, run.lengths, strict=True):
        cost = SHAPES["linear"](length + 1) / SHAPES["linear"](1) - 1.0
        assert lost + cost <= STAKE + SHARE * (at + 1) * 1.05 + 0.1, at
        lost += cost
    assert sum(length > 0 for length in run.lengths) > 1


@pytest.mark.parametrize("shape", SHAPES)
def test_honest_confidences_beat_every_fixed_length_where_tokens_differ(shape: str) -> None:
    machine, words = Machine(SHAPES[shape], 0.0), text([0.6] * 3020, spread=1.0, seed=3)
    assert play(AutoLength(), machine, words, tokens=3000).speed > best_fixed(machine, words, tokens=3000)


@pytest.mark.parametrize("shape", ["flat", "stepped", "F32"])
def test_confidences_that_mean_something_else_are_calibrated(shape: str) -> None:
    """A drafter that says its third power; what it is worth is learned from what becomes of its tokens."""
    machine, tokens = Machine(SHAPES[shape], 0.05, catch_up=0.1), 3000
    words = text([0.6] * (tokens + 20), spread=2.0, said=lambda chance: chance**3, seed=5)
    run = play(AutoLength(), machine, words, tokens=tokens, answer=250)
    assert run.speed >= 0.95 * best_fixed(machine, words, tokens=tokens)


MOODS = {
    "prose, then code": [0.1] * 200 + [0.9] * 820,
    "code, then prose": [0.9] * 200 + [0.1] * 820,
    "bursts": ([0.1] * 60 + [0.9] * 40) * 11,
}


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("draft", [0.0, 0.05])
@pytest.mark.parametrize("mood", MOODS)
def test_a_text_that_changes(mood: str, draft: float, spread: float | None) -> None:
    """No fixed length can follow: the controller is close to the best of them everywhere, mostly ahead."""
    ratios = []
    for shape in SHAPES.values():
        machine = Machine(shape, draft, catch_up=0.1)
        words = text(MOODS[mood], spread=spread, seed=11)
        run = play(AutoLength(), machine, words, tokens=1000)
        assert run.speed >= 0.98 * fixed_speed(0, machine, words, tokens=1000)
        ratios.append(run.speed / best_fixed(machine, words, tokens=1000))
    assert min(ratios) >= 0.9
    assert np.mean(ratios) >= (1.0 if mood != "bursts" else 0.96)


@pytest.mark.parametrize("shape", ["flat", "gentle", "stepped"])
def test_code_after_prose_is_noticed_within_tens_of_tokens(shape: str) -> None:
    words = text(MOODS["prose, then code"], seed=2)
    run = play(AutoLength(), Machine(SHAPES[shape], 0.05, catch_up=0.1), words, tokens=1000)
    assert run.mean_length(100, 200) < 1.0
    assert run.mean_length(260, 360) > 2.0


def test_prose_after_code_is_noticed_within_tens_of_tokens() -> None:
    words = text(MOODS["code, then prose"], seed=2)
    run = play(AutoLength(), Machine(SHAPES["linear"], 0.05), words, tokens=1000)
    again = play(AutoLength(), Machine(SHAPES["F32"], 0.05), words, tokens=1000)
    assert again.mean_length(100, 200) > 3.0
    assert again.mean_length(230, 330) < 1.0
    assert run.mean_length(300, 1000) < 0.1


@pytest.mark.parametrize("shape", ["F32", "Q4_0"])
def test_a_growing_context_slows_all_passes_and_misleads_nobody(shape: str) -> None:
    """Passes take twice as long after 1,000 tokens: a plain pass measured early must not look cheap for that."""
    machine = Machine(SHAPES[shape], 0.05, growth=1.0)
    words = text([0.8] * 2020, seed=1)
    run = play(AutoLength(), machine, words, tokens=2000)
    assert run.speed >= 0.95 * best_fixed(machine, words, tokens=2000)


def test_a_first_pass_that_is_late_does_not_switch_drafting_off() -> None:
    """The first pass of a new shape builds graphs or loads kernels; it says little about the next."""
    shape, seen = SHAPES["F32"], set[int]()

    def late(n: int) -> float:
        first = n not in seen
        seen.add(n)
        return shape(n) * (10.0 if first and n > 1 else 1.0)

    words = text([0.9] * 1020, seed=4)
    run = play(AutoLength(), Machine(late, 0.0, noise=0.0), words, tokens=1000)
    assert run.speed > 1.5 / shape(1)


def test_few_lengths_are_used_once_things_are_known() -> None:
    words = text([0.8] * 2020, seed=6)
    run = play(AutoLength(), Machine(SHAPES["gentle"], 0.05), words, tokens=2000)
    later = [n for n, at in zip(run.lengths, run.starts, strict=True) if 500 <= at < 1950]
    assert set(later) <= {0, *LENGTHS}
    assert len([n for n in set(later) if later.count(n) > len(later) / 20]) <= 4
    assert sum(a != b for a, b in pairwise(later)) < len(later) / 4


def curiosity(run: Run, machine: Machine) -> float:
    """Plain passes lost against plain decoding."""
    return run.seconds / machine.shape(1) - run.tokens


@pytest.mark.parametrize("draft", [0.05, 0.3, 1.0])
def test_finding_out_costs_no_more_than_the_purse_and_the_allowance(draft: float) -> None:
    machine = Machine(SHAPES["linear"], draft)
    for tokens in (200, 1000, 4000):
        run = play(AutoLength(), machine, text([0.0] * (tokens + 20), seed=1), tokens=tokens)
        worst_round = 3 * 0.8 + 3 * draft + 1
        assert curiosity(run, machine) <= PURSE + ALLOWANCE * tokens + worst_round


def test_a_draft_as_slow_as_the_verifier_is_told_once_and_left_alone() -> None:
    controller = AutoLength()
    run = play(controller, Machine(SHAPES["flat"], 1.0), text([0.9] * 1020, seed=1), tokens=1000)
    (line,) = controller.warnings()
    assert "of a plain verifier pass" in line
    assert controller.warnings() == []
    assert run.mean_length(100, 1000) < 0.02
    assert controller.explain().startswith("N=0")


def test_a_draft_of_another_family_is_told_once() -> None:
    controller = AutoLength()
    play(controller, Machine(SHAPES["flat"], 0.0), text([0.01] * 4020, seed=1), tokens=4000)
    (line,) = controller.warnings()
    assert "draft tokens were accepted" in line
    assert controller.warnings() == []


def test_a_good_pair_is_not_warned_about() -> None:
    controller = AutoLength()
    play(controller, Machine(SHAPES["F32"], 0.05), text([0.8] * 2020, seed=1), tokens=2000)
    assert controller.warnings() == []


PROFILE = Profile(verify_s=((1, 0.02), (2, 0.021), (4, 0.022), (8, 0.024)), draft_s=0.001, acceptance=(0.8, 0.8, 0.75))


def plain(seconds: float) -> RoundReport:
    return RoundReport(drafted=0, tested=0, accepted=0, refused=False, draft_s=0.0, verify_s=seconds)


def test_a_profile_is_tried_on_a_short_draft_and_then_believed() -> None:
    """One plain pass, one of four rows; then a draft is as long as it should be. Without one there is more to try."""
    controller, fresh = AutoLength(PROFILE), AutoLength()
    assert controller.limit(100) == 0
    for one in (controller, fresh):
        one.observe(plain(0.02))
    assert fresh.limit(100) == 0
    assert controller.limit(2) == 2
    assert controller.limit(100) == 3
    controller.observe(RoundReport(drafted=3, tested=3, accepted=3, refused=False, draft_s=0.003, verify_s=0.022))
    assert controller.limit(100) >= 5


def test_a_profile_that_says_no_leaves_plain_decoding() -> None:
    slow = Profile(verify_s=((1, 0.02), (2, 0.038), (4, 0.07)), draft_s=0.01, acceptance=(0.3, 0.3))
    controller = AutoLength(slow)
    for _ in range(8):
        assert controller.limit(100) == 0
        controller.observe(plain(0.02))


def test_too_little_is_learned_from_a_few_rounds() -> None:
    controller = AutoLength()
    for _ in range(8):
        controller.observe(plain(0.02))
    assert controller.learned() is None


def test_what_is_learned_is_what_the_machine_and_the_text_are_like() -> None:
    controller = AutoLength()
    play(controller, Machine(SHAPES["F32"], 0.05), text([0.8] * 2020, seed=1), tokens=2000)
    profile = controller.learned()
    assert profile is not None
    times = dict(profile.verify_s)
    assert times[1] == pytest.approx(0.0357, rel=0.1)
    assert times[4] / times[1] == pytest.approx(57.6 / 35.7, rel=0.05)
    assert profile.draft_s == pytest.approx(0.05 * 0.0357, rel=0.1)
    assert profile.acceptance[:3] == pytest.approx([0.8] * 3, abs=0.1)
    assert profile.attempt is not None
    assert 2.0 < profile.attempt.emitted < 5.0
    assert Profile.from_dict(profile.as_dict()) == profile


def test_what_a_profile_said_and_nobody_measured_is_handed_on() -> None:
    controller = AutoLength(PROFILE)
    for _ in range(30):
        controller.observe(plain(0.04))
    learned = controller.learned()
    assert learned is not None
    assert dict(learned.verify_s)[8] == pytest.approx(0.048, rel=0.01), "passes take twice as long today"
    assert learned.draft_s == pytest.approx(FADED * 0.002, rel=0.01)
    assert learned.acceptance == pytest.approx(PROFILE.acceptance, abs=0.06)


def test_it_says_what_it_does_and_why() -> None:
    controller = AutoLength()
    assert controller.explain() == "N=auto, nothing measured yet"
    play(controller, Machine(SHAPES["F32"], 0.05), text([0.8] * 2020, seed=1), tokens=2000)
    assert "x plain" in controller.explain()
    assert "\n" not in controller.explain()
    assert int(controller.explain()[3]) >= 2

    controller = AutoLength()
    play(controller, Machine(SHAPES["linear"], 0.3), text([0.2] * 520, seed=1), tokens=500)
    assert controller.explain().startswith("N=0: a draft token costs 1.")


@st.composite
def reports(draw: st.DrawFn) -> RoundReport:
    drafted = draw(st.integers(0, 40))
    accepted = draw(st.integers(0, drafted))
    seconds = st.sampled_from([0.0, 1e-6, 0.01, 3.0])
    return RoundReport(
        drafted=drafted,
        tested=draw(st.integers(accepted, drafted)),
        accepted=accepted,
        refused=draw(st.booleans()),
        draft_s=draw(seconds),
        verify_s=draw(seconds),
        confidences=tuple(draw(st.lists(st.floats(0, 1), max_size=drafted))),
    )


@given(rounds=st.lists(st.tuples(reports(), st.integers(0, 30)), max_size=60))
def test_no_report_upsets_it_and_no_limit_exceeds_the_room(rounds: list[tuple[RoundReport, int]]) -> None:
    """Clocks that stand still, passes as wide as a tree, rounds it was not asked about."""
    controller: Controller = AutoLength()
    for report, room in rounds:
        if room % 3:
            limit = controller.limit(room)
            assert 0 <= limit <= room
            for depth in range(1, limit + 1):
                controller.pays(depth, 1.0 / depth)
            assert 0 <= controller.choose([0.9**node for node in range(limit)]) <= limit
            assert controller.price(room + 1) > 0.0
        controller.observe(report)
        assert controller.explain()


def test_a_tree_keeps_the_nodes_that_pay_for_their_rows() -> None:
    """Rows cost 0.8 of a plain pass each on one machine, 0.01 on another."""
    dear = AutoLength(Profile(verify_s=((1, 0.02), (2, 0.036), (4, 0.068), (16, 0.26))))
    cheap = AutoLength(Profile(verify_s=((1, 0.02), (2, 0.0202), (4, 0.0206), (16, 0.023))))
    joints = [0.95, 0.85, 0.3, 0.2, 0.1, 0.005]
    assert dear.choose(joints) == 2
    assert cheap.choose(joints) == 5
    assert dear.choose([0.1]) == dear.choose([]) == 0


def test_a_pass_is_priced_as_far_as_it_is_known() -> None:
    assert AutoLength().price(4) == 1.0
    assert AutoLength(PROFILE).price(4) == pytest.approx(1.1)
    assert AutoLength(PROFILE).price(1) == 1.0


def test_a_round_costs_little() -> None:
    """About 15 microseconds on an idle core; ten times that would still be invisible, and passes on a busy one."""
    machine, words = Machine(SHAPES["F32"], 0.05), text([0.7] * 3020, spread=2.0, seed=1)
    calls: list[tuple[str, tuple[object, ...]]] = []

    class Recorder(AutoLength):
        def limit(self, room: int) -> int:
            calls.append(("limit", (room,)))
            return super().limit(room)

        def pays(self, depth: int, confidence: float) -> bool:
            calls.append(("pays", (depth, confidence)))
            return super().pays(depth, confidence)

    class Observer(Recorder):
        def observe(self, report: RoundReport) -> None:  # type: ignore[override]
            calls.append(("observe", (report,)))
            super().observe(report)

    run = play(Observer(), machine, words, tokens=3000)
    controller = AutoLength()
    methods = {name: getattr(controller, name) for name in ("limit", "pays", "observe")}
    started = time.process_time()
    for name, arguments in calls:
        methods[name](*arguments)
    assert (time.process_time() - started) / len(run.lengths) < 150e-6


def test_a_draft_that_could_not_pay_if_all_of_it_were_accepted_is_hardly_looked_at() -> None:
    """Measured: a Q4_0 draft costs 1.04 passes of a Q4_1 verifier; a look every 32 rounds was 1 % of the time."""
    controller = AutoLength()
    run = play(controller, Machine(SHAPES["Q4_1"], 1.04), text([0.9] * 4020, seed=1), tokens=4000)
    looks = [at for at, length in zip(run.starts, run.lengths, strict=True) if length]
    assert len([at for at in looks if at > 100]) <= 4000 // FAR_GAP + 1
    assert "if every one of them were accepted" in controller.explain()
    assert curiosity(run, Machine(SHAPES["Q4_1"], 1.04)) < PURSE + 0.005 * 4000


@pytest.mark.parametrize("told", [0.02, None])
def test_a_price_of_a_busy_day_is_found_out(told: float | None) -> None:
    """The first drafts, or a profile, said that no draft can pay; who reads no prompt must not stay silent for ever."""
    times = ((1, 0.02), (2, 0.0202), (4, 0.0206), (16, 0.023))
    controller = AutoLength(Profile(times, told, (0.8,)) if told else None)
    words = text([0.9] * 8020, spread=2.0, seed=2)
    if not told:
        play(controller, Machine(SHAPES["flat"], 1.5), words, tokens=60)
        assert "if every one of them were accepted" in controller.explain()
    tokens = 2000 if told else 8000
    run = play(controller, Machine(SHAPES["flat"], 0.1, catch_up=0.1), words, tokens=tokens, answer=200)
    assert run.mean_length(tokens // 2, tokens) > 1.0
    learned = controller.learned()
    assert learned is not None
    assert learned.draft_s == pytest.approx(0.002, rel=0.3)


def test_a_price_that_nobody_saw_again_is_believed_less_each_time() -> None:
    """Single answers are too short to look at what was said to be hopeless; in the end one of them does."""
    known: Profile | None = Profile(((1, 0.02), (2, 0.0202), (4, 0.0206), (16, 0.023)), 0.025, (0.8,))
    for _ in range(30):
        controller = AutoLength(known)
        words = text([0.5] * 100, spread=2.0, seed=2)
        play(controller, Machine(SHAPES["flat"], 0.1, catch_up=0.1), words, tokens=80)
        known = controller.learned() or known
    assert known is not None
    assert known.draft_s == pytest.approx(0.002, rel=0.3)


def test_a_rest_is_short_where_something_may_be_found_out_and_never_before_plain_passes_are_known() -> None:
    controller = AutoLength()
    machine = Machine(SHAPES["linear"], 0.3)
    assert controller.rest == 0
    play(controller, machine, text([0.1] * 420, seed=1), tokens=400)
    controller.limit(50)
    controller.observe(plain(0.02))
    assert 1 <= controller.rest <= 8


def test_a_lookup_may_go_on_looking_without_a_word() -> None:
    controller = AutoLength(lookup=True)
    play(controller, Machine(SHAPES["linear"], 0.0), text([0.3] * 420, spread=2.0, seed=1), tokens=400)
    assert controller.limit(50) > 0
    assert not controller.pays(1, 0.05)
    controller.observe(plain(0.02))
    assert controller.rest > 0
    controller.observe(plain(0.02)._replace(rounds=12))
    assert controller.may_pay(0.99)
    assert not controller.may_pay(0.05)


def test_it_says_when_it_is_the_answer_s_stake_that_holds_a_lookup_back() -> None:
    controller = AutoLength(Profile(((1, 0.02), (2, 0.04), (4, 0.06), (16, 0.2))), lookup=True)
    controller.begin(100)

    def play(drafted: int) -> None:
        controller.observe(
            RoundReport(
                drafted=drafted,
                tested=min(drafted, 1),
                accepted=0,
                refused=drafted > 0,
                draft_s=0.0,
                verify_s=0.02 * (1 + drafted),
                confidences=(0.9,) * min(drafted, 1),
            )
        )

    for _ in range(3):
        controller.limit(15)
        controller.may_pay(0.1)  # it says how sure it is
        play(0)
    for _ in range(4):
        if limit := controller.limit(15):
            play(min(limit, 1))
    for _ in range(10):
        assert not controller.limit(15)
        play(0)
    held = "nothing left to lose"
    assert held in controller.explain()
    controller.limit(0)
    assert held in controller.explain(), "at the end of an answer there is no room"
    controller.begin(100)
    assert controller.limit(15)
    assert held not in controller.explain()
