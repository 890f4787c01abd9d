"""Profiles refuse figures that cannot have been measured."""

from __future__ import annotations

import pytest

from localspec.errors import UsageError
from localspec.planner.profile import Profile


def test_a_profile_needs_the_time_of_a_plain_pass() -> None:
    with pytest.raises(UsageError, match="plain pass") as caught:
        Profile(verify_s=((2, 0.1),))
    assert caught.value.hint


@pytest.mark.parametrize("verify_s", [((1, 0.0),), ((1, -0.1),), ((1, 0.1), (0, 0.1))])
def test_impossible_times_are_refused(verify_s: tuple[tuple[int, float], ...]) -> None:
    with pytest.raises(UsageError, match="time"):
        Profile(verify_s=verify_s)


def test_a_negative_draft_time_is_refused() -> None:
    with pytest.raises(UsageError, match="time"):
        Profile(verify_s=((1, 0.1),), draft_s=-1.0)


@pytest.mark.parametrize("rate", [-0.1, 1.1])
def test_an_acceptance_outside_its_range_is_refused(rate: float) -> None:
    with pytest.raises(UsageError, match="acceptance"):
        Profile(verify_s=((1, 0.1),), acceptance=(0.5, rate))
