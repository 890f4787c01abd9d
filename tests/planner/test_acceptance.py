"""Running estimates of acceptance: by depth, by confidence, and when the text changes."""

from __future__ import annotations

import numpy as np
import pytest

from localspec.planner.acceptance import Acceptance
from localspec.planner.profile import Claim


def taught(rounds: list[tuple[int, bool]], *, said: tuple[float, ...] = ()) -> Acceptance:
    acceptance = Acceptance(8)
    for accepted, refused in rounds:
        acceptance.observe(accepted, refused, said)
    return acceptance


def test_the_mean_counts_tested_tokens_only() -> None:
    """B61: what stands behind a rejected token was never tested."""
    acceptance = taught([(2, True), (0, True), (3, False)] * 60)
    assert acceptance.mean == pytest.approx(5 / 7, abs=0.05)
    assert (acceptance.tests, acceptance.passed) == (7 * 60, 5 * 60)


def test_depths_are_told_apart() -> None:
    """The first token always passes, the second never."""
    acceptance = taught([(1, True)] * 100)
    assert acceptance.by_depth[1] > 0.9
    assert acceptance.by_depth[2] < 0.1
    assert acceptance.by_depth[5] == pytest.approx(acceptance.mean)


def test_a_confidence_is_taken_at_its_word_until_it_is_tested() -> None:
    acceptance = Acceptance(8)
    assert acceptance.believed(0.83) == pytest.approx(0.83)
    for _ in range(60):
        acceptance.observe(0, True, (0.83,))
    assert acceptance.believed(0.83) < 0.15
    assert acceptance.believed(0.55) == pytest.approx(0.55), "other confidences are judged apart"


def test_only_tested_tokens_count_for_their_confidence() -> None:
    acceptance = Acceptance(8)
    for _ in range(60):
        acceptance.observe(0, True, (0.15, 0.95))
    assert acceptance.believed(0.95) == pytest.approx(0.95)


def test_a_change_of_the_text_is_noticed_within_a_dozen_tests() -> None:
    acceptance = taught([(1, False)] * 200)
    for _ in range(12):
        acceptance.observe(0, True, ())
    assert acceptance.mean < 0.45


def test_chance_is_not_taken_for_a_change() -> None:
    rng = np.random.default_rng(3)
    acceptance = Acceptance(8)
    means = []
    for _ in range(400):
        right = bool(rng.random() < 0.8)
        acceptance.observe(int(right), not right, ())
        means.append(acceptance.mean)
    assert min(means[50:]) > 0.6


def test_an_old_record_loses_weight_but_not_its_opinion() -> None:
    acceptance = taught([(1, False)] * 50)
    before = acceptance.mean
    for _ in range(1000):
        acceptance.observe(0, False, ())
    assert acceptance.mean == pytest.approx(before)
    for _ in range(4):
        acceptance.observe(0, True, ())
    assert acceptance.mean < 0.65


def test_the_mean_claim_is_of_all_tokens_asked_about() -> None:
    acceptance = Acceptance(8)
    for _ in range(100):
        acceptance.claim(0.25)
        acceptance.claim(0.75)
    assert acceptance.claimed == pytest.approx(0.5, abs=0.03)


def test_what_a_profile_knows_is_where_it_starts() -> None:
    acceptance = Acceptance(8, (0.9, 0.7, 0.5))
    assert acceptance.mean == pytest.approx(0.7)
    assert acceptance.by_depth[1] > acceptance.by_depth[2] > acceptance.by_depth[3]


def test_what_a_drafter_s_word_was_worth_another_day_is_remembered() -> None:
    """With the weight of a dozen tests: it may be another text."""
    before = taught([(1, False)] * 30 + [(0, True)] * 10, said=(0.75,))
    after = Acceptance(8, before.learned, before.claims)
    assert after.believed(0.75) == pytest.approx(before.believed(0.75), abs=0.05)
    assert after.believed(0.15) == 0.15, "nothing was said so"
    (claim,) = after.claims
    assert (claim.sure, claim.of) == (0.7, 12.0)
    assert claim.accepted < 9.0, "the last ten were wrong"


@pytest.mark.parametrize("claim", [Claim(0.9, 5.0, 1.0), Claim(0.9, 1e8, 100.0), Claim(0.9, 5.0, 0.0)])
def test_more_than_all_of_them_was_never_accepted(claim: Claim) -> None:
    """A profile of a user's own making: probabilities stay probabilities."""
    assert 0.0 <= Acceptance(8, (), (claim,)).believed(0.93) <= 1.0


def test_a_run_of_bad_luck_spoils_the_mood_and_time_or_good_luck_mends_it() -> None:
    acceptance = Acceptance(8)
    for _ in range(4):
        acceptance.observe(0, True, (0.8,))
    low = acceptance.mood
    assert low < 0.6
    acceptance.fade(60)
    assert low < acceptance.mood < 1.0
    for _ in range(8):
        acceptance.observe(2, False, (0.8, 0.8))
    assert acceptance.mood == 1.0


def test_the_mood_never_says_more_than_the_drafter() -> None:
    acceptance = Acceptance(8)
    for _ in range(50):
        acceptance.observe(3, False, (0.3, 0.3, 0.3))
        assert acceptance.mood == 1.0


def test_many_rounds_without_a_test_are_as_many_times_one() -> None:
    one, many = taught([(0, True)] * 6, said=(0.8,)), taught([(0, True)] * 6, said=(0.8,))
    for _ in range(20):
        one.fade()
    many.fade(20)
    assert many.mood == pytest.approx(one.mood)
    assert many.mean == pytest.approx(one.mean)
    assert many.tested == pytest.approx(one.tested, rel=0.01)
