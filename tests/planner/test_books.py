"""The books: what may be spent on finding out, and rounds that are entered as one."""

from __future__ import annotations

import pytest

from localspec.loop.control import RoundReport
from localspec.planner.books import ALLOWANCE, DEBT, FULL, PURSE, SEEDED, SHARE, STAKE, WORST, Books
from localspec.planner.profile import Profile


def entered(books: Books, *, accepted: int = 0, draft_s: float = 0.0, curious: bool = False, rounds: int = 1) -> None:
    report = RoundReport(
        drafted=0, tested=0, accepted=accepted, refused=False, draft_s=draft_s, verify_s=0.01, rounds=rounds
    )
    books.passes.observe(1, report.verify_s)
    books.enter(report, foreseen=draft_s / 0.01, curious=curious)


def test_a_share_of_the_time_fills_the_purse() -> None:
    books = Books(8)
    for _ in range(50):
        entered(books)
    assert books.purse == pytest.approx(PURSE + 50 * ALLOWANCE)


def test_rounds_that_are_told_as_one_count_as_many() -> None:
    one, many = Books(8), Books(8)
    for books in (one, many):
        entered(books, accepted=3)
    for _ in range(30):
        entered(one)
    entered(many, rounds=30)
    assert many.rounds == one.rounds == 31
    assert many.purse == pytest.approx(one.purse)
    assert many.speed == pytest.approx(one.speed)


def test_what_one_drafter_wins_is_not_spent_on_curiosity_about_another() -> None:
    books = Books(8)
    for _ in range(20):
        entered(books, accepted=5)
    assert books.purse == pytest.approx(PURSE + 20 * ALLOWANCE)
    entered(books, draft_s=0.03, curious=True)
    assert books.purse == pytest.approx(PURSE - 3.0, abs=0.3)
    for _ in range(20):
        entered(books, accepted=5)
    assert books.purse == pytest.approx(PURSE - 3.0, abs=0.5)


def test_while_drafts_that_should_have_paid_lose_there_is_no_curiosity_until_they_have_made_up_for_it() -> None:
    books = Books(8)
    for _ in range(2):
        entered(books, draft_s=0.01)
    assert books.purse == pytest.approx(PURSE - 2.0, abs=0.2)
    for _ in range(2):
        entered(books, accepted=1)
    assert books.purse == pytest.approx(PURSE, abs=0.2)


def test_no_loss_is_held_against_anyone_for_ever() -> None:
    books = Books(8)
    for _ in range(100):
        entered(books, draft_s=0.02)
        assert books.purse >= PURSE + WORST
    for _ in range(100):
        entered(books, draft_s=0.02, curious=True)
        assert books.purse >= DEBT + WORST
    entered(books, rounds=1000)
    assert books.purse > 0.0


def test_an_answer_stakes_its_own_share_and_what_it_has_won_but_nothing_of_the_last_one() -> None:
    books = Books(8)
    for _ in range(10):
        entered(books)
    assert books.stake == pytest.approx(STAKE + 10 * SHARE)
    entered(books, draft_s=0.02)
    assert books.stake == pytest.approx(STAKE + 10 * SHARE - 2.0 + 3 * SHARE, abs=0.05)
    entered(books, accepted=3)
    assert books.stake == pytest.approx(STAKE + 14 * SHARE + 1.0, abs=0.05)
    for _ in range(9):
        entered(books, accepted=3)
    assert books.stake == FULL
    books.begin()
    assert books.stake == STAKE


@pytest.mark.parametrize(("left", "kept"), [(None, SEEDED), (3.5, 3.5), (-0.5, -0.5), (50.0, PURSE), (-50.0, DEBT)])
def test_what_was_left_in_the_purse_is_what_there_is(left: float | None, kept: float) -> None:
    """Fresh money in each process would be a percent of every answer of `localspec run`."""
    assert Books(8, Profile(((1, 0.01),), purse=left)).purse == kept
