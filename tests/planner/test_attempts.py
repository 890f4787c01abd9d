"""What asking a drafter brought, at the costs believed now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from localspec.planner.attempts import Attempts

CURVE = [0.0, 1.0, 1.5, 2.0, 2.5]


def test_the_advantage_is_tokens_less_plain_passes() -> None:
    attempts = Attempts(4)
    assert attempts.advantage(CURVE, 0.1) == 0.0
    attempts.observe(rows=3, steps=2, emitted=3, look=False)
    assert attempts.advantage(CURVE, 0.1) == pytest.approx(3 - 2.0 - 0.2)


def test_attempts_are_judged_at_todays_costs() -> None:
    """The first pass over three tokens was late; once that is known, the attempt is no longer held against drafting."""
    attempts = Attempts(4)
    attempts.observe(rows=3, steps=2, emitted=3, look=False)
    assert attempts.advantage([0.0, 1.0, 3.0, 6.0, 9.0], 0.1) < 0.0 < attempts.advantage(CURVE, 0.1)


def test_recent_attempts_count_more_and_looks_most() -> None:
    def after(look: bool) -> float:
        attempts = Attempts(4)
        for _ in range(30):
            attempts.observe(rows=2, steps=1, emitted=1, look=False)
        for _ in range(3):
            attempts.observe(rows=2, steps=1, emitted=2, look=look)
        return attempts.advantage(CURVE, 0.0)

    assert -0.5 < after(look=False) < after(look=True)


def test_passes_wider_than_the_curve_cost_what_the_widest_does() -> None:
    attempts = Attempts(4)
    attempts.observe(rows=40, steps=1, emitted=1, look=False)
    assert attempts.advantage(CURVE, 0.0) == pytest.approx(1 - 2.5)


def test_what_is_remembered_counts_as_a_few_attempts_and_a_long_record_as_more() -> None:
    attempts = Attempts(4)
    for _ in range(40):
        attempts.observe(rows=3, steps=2, emitted=3, look=False)
    long_, short = Attempts(4), Attempts(4)
    assert attempts.mean is not None
    long_.know(attempts.mean)
    short.know(replace(attempts.mean, count=1.0))
    assert (short.weight, long_.weight) == (3.0, 12.0)
    for record in (long_, short):
        assert record.advantage(CURVE, 0.1) == pytest.approx(attempts.advantage(CURVE, 0.1))
        record.observe(rows=3, steps=2, emitted=1, look=False)
    assert short.advantage(CURVE, 0.1) < long_.advantage(CURVE, 0.1)
