"""What a drafter's joint probabilities are worth, and that it is remembered."""

from __future__ import annotations

import pytest

from localspec.planner.joints import Joints


def boastful() -> Joints:
    """Of nodes that are said to be taken half of the time every fourth is."""
    joints = Joints()
    for round_ in range(200):
        joints.learn([0.5], [0.5] if round_ % 4 == 0 else [])
    return joints


def test_promises_are_taken_at_what_they_were_worth() -> None:
    assert Joints().believed(0.5) == 0.5
    assert boastful().believed(0.5) == pytest.approx(0.25, abs=0.05)


def test_what_promises_were_worth_another_day_is_remembered() -> None:
    before = boastful()
    after = Joints(before.promises)
    assert after.believed(0.5) == pytest.approx(before.believed(0.5), abs=0.03)
    (promise,) = after.promises
    assert (promise.sure, promise.of) == (0.45, 12.0)
    for _ in range(60):
        after.learn([0.5], [0.5])
    assert after.believed(0.5) > 0.7, "but not for ever"
