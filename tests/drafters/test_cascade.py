"""Several drafters in order of price: who is asked, who is heard, who is told, and what happens to one that fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest

from localspec.core.coupled import Coupled
from localspec.core.draft import EMPTY, Draft, Ids, Verdict
from localspec.core.rejection import Rejection
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.drafters.base import Budget, Drafter
from localspec.drafters.cascade import LONGEST_REST, Cascade, Options, Record
from localspec.engine.base import Cancelled, Pass
from localspec.engine.toy import ToyContext, ToyModel
from localspec.errors import DrafterError, PairError, UsageError
from tests.drafters.settings import TOY_PROMPT, Lender, Pair, toy, toy_lender

ROOMY = Budget(8, lambda depth, confidence: True)
FIXED = ROOMY._replace(asks=False)
RESULT: Pass = ToyContext(ToyModel(27)).prefill([1])  # type: ignore[assignment]


@dataclass
class Scripted:
    """Says what it is told to say and keeps what it hears."""

    name: str
    says: list[int] = field(default_factory=list)
    fails: str = ""
    asked: int = 0
    begun: int = 0
    closed: int = 0
    heard: list[Verdict | None] = field(default_factory=list)

    def begin(self, tokens: Ids, *, sampling: Sampling, rule: Rule, cancelled: Cancelled) -> None:
        self.begun += 1
        self._fail("begin")

    def propose(self, tokens: Ids, budget: Budget) -> Draft:
        self.asked += 1
        self._fail("propose")
        return Draft.chain(self.says) if self.says else EMPTY

    def observe(self, result: Pass, verdict: Verdict | None) -> None:
        self.heard.append(verdict)
        self._fail("observe")

    def close(self) -> None:
        self.closed += 1

    def _fail(self, when: str) -> None:
        if when == self.fails:
            raise RuntimeError(f"broken in {when}")


class Shelf(Lender):
    """Lends scripted drafters; an exception in place of one is raised."""

    def __init__(self, members: Mapping[str, Scripted | Exception]) -> None:
        super().__init__(toy().vocab, lambda: ToyContext(toy()))
        self._members = members

    def drafter(self, name: str) -> Drafter:
        member = self._members[name]
        if isinstance(member, Exception):
            raise member
        return member


def cascade(**members: Scripted | Exception) -> tuple[Cascade, Shelf]:
    shelf = Shelf(members)
    return Cascade(Options(",".join(members)), shelf), shelf


def round_of(drafter: Cascade, *, taken: int = 0, budget: Budget = FIXED) -> Draft:
    """One round: the first `taken` tokens of the draft are accepted."""
    draft = drafter.propose(np.array([1, 2], dtype=np.int32), budget)
    taken = min(taken, len(draft))
    source, tested = ("bonus", taken) if taken == len(draft) else ("residual", taken + 1)
    drafter.observe(RESULT, Verdict(tuple(range(taken)), 5, source, tested))  # type: ignore[arg-type]
    return draft


def test_the_first_that_has_something_to_say_is_heard() -> None:
    silent, first, second = Scripted("silent"), Scripted("first", [7]), Scripted("second", [8, 9])
    drafter, _ = cascade(silent=silent, first=first, second=second)
    assert round_of(drafter).tokens.tolist() == [7]
    assert (silent.asked, first.asked, second.asked) == (1, 1, 0)


def test_nobody_has_anything_to_say() -> None:
    drafter, _ = cascade(a=Scripted("a"), b=Scripted("b"))
    assert len(round_of(drafter)) == 0


def test_everyone_is_told_and_the_verdict_goes_to_the_one_that_spoke() -> None:
    silent, speaker, unasked = Scripted("a"), Scripted("b", [7, 8]), Scripted("c", [9])
    drafter, _ = cascade(a=silent, b=speaker, c=unasked)
    round_of(drafter, taken=1)
    assert silent.heard == unasked.heard == [None]
    (verdict,) = speaker.heard
    assert verdict is not None
    assert verdict.path == (0,)


def test_a_round_that_was_given_up_teaches_nothing() -> None:
    member = Scripted("a", [7])
    drafter, _ = cascade(a=member, b=Scripted("b"))
    drafter.propose(np.array([1], dtype=np.int32), FIXED)
    drafter.observe(RESULT, None)
    assert drafter._records == {"a": Record(), "b": Record()}
    assert member.heard == [None]


def test_begin_and_close_reach_all() -> None:
    members = {"a": Scripted("a"), "b": Scripted("b")}
    drafter, _ = cascade(**members)
    drafter.begin(
        np.array([1], dtype=np.int32),
        sampling=Sampling(),
        rule=Rejection(np.random.default_rng(0)),
        cancelled=lambda: False,
    )
    drafter.close()
    assert [(one.begun, one.closed) for one in members.values()] == [(1, 1), (1, 1)]


def test_one_that_is_not_expected_to_draft_begins_when_it_is_asked() -> None:
    first, second, third = Scripted("first"), Scripted("second", [8]), Scripted("third", [9])
    drafter, _ = cascade(first=first, second=second, third=third)
    drafter.begin(
        np.array([1], dtype=np.int32),
        sampling=Sampling(),
        rule=Rejection(np.random.default_rng(0)),
        cancelled=lambda: False,
        later=("second", "third"),
    )
    assert (first.begun, second.begun, third.begun) == (1, 0, 0)
    for _ in range(2):
        assert round_of(drafter).tokens.tolist() == [8]
    assert (first.begun, second.begun, third.begun) == (1, 1, 0)


# -- who is asked ------------------------------------------------------------------------------------------------------


def start(drafter: Cascade) -> None:
    """Another answer begins."""
    rule = Rejection(np.random.default_rng(0))
    drafter.begin(np.array([1], dtype=np.int32), sampling=Sampling(), rule=rule, cancelled=lambda: False)


def questions(drafter: Cascade, member: Scripted, *, answers: int, taken: int = 0) -> list[int]:
    """How often the member was asked in each of so many answers of 40 rounds."""
    found = []
    for _ in range(answers):
        before = member.asked
        start(drafter)
        for _ in range(40):
            round_of(drafter, taken=taken)
        found.append(member.asked - before)
    return found


def test_a_member_that_loses_is_asked_in_fewer_and_fewer_answers() -> None:
    """Nothing it says is ever taken."""
    loser = Scripted("loser", [7])
    drafter, _ = cascade(loser=loser, other=Scripted("other"))
    asked = questions(drafter, loser, answers=100)
    assert 5 < asked[0] < 20, "a few refusals are no verdict, many are"
    looks = [at for at, count in enumerate(asked) if count]
    assert looks[:6] == [0, 2, 5, 10, 19, 36], "left out of 1, 2, 4, 8, 16 answers"
    assert np.diff(looks).max() == LONGEST_REST + 1
    assert max(asked[1:]) < 5, "and then soon given up again"
    assert loser.begun == len(looks), "it does not even read the text"


def test_a_member_that_has_nothing_to_say_is_no_loser() -> None:
    silent = Scripted("silent")
    drafter, _ = cascade(silent=silent, good=Scripted("good", [7]))
    assert questions(drafter, silent, answers=5, taken=1) == [40] * 5


def test_a_member_that_gets_better_is_taken_back() -> None:
    member = Scripted("member", [7, 8, 9])
    drafter, _ = cascade(member=member, other=Scripted("other"))
    questions(drafter, member, answers=3)
    asked = questions(drafter, member, answers=20, taken=3)
    first = next(at for at, count in enumerate(asked) if count)
    assert asked[first:] == [40] * (20 - first)
    assert drafter._records["member"].pause == 1, "its past is forgiven"


def test_where_a_controller_measures_it_says_whose_turn_it_is() -> None:
    """And no record is kept: the controller may ask the worst of all as often as it likes."""
    first, second = Scripted("first", [7]), Scripted("second", [8])
    drafter, _ = cascade(first=first, second=second)
    measured = ROOMY._replace(turns=lambda: [("second", ROOMY)])
    for _ in range(60):
        assert round_of(drafter, budget=measured).tokens.tolist() == [8]
    assert (first.asked, second.asked) == (0, 60)
    assert drafter.heard == "second"
    assert drafter._records == {"first": Record(), "second": Record()}


# -- what can go wrong -------------------------------------------------------------------------------------------------


def test_a_member_that_cannot_be_opened_is_named_and_the_others_go_on() -> None:
    """B70: a cascade over a pair without a draft is the lookup alone, and says why."""
    missing = DrafterError("this pair has no draft model", hint="Name one with --draft REF.")
    drafter, shelf = cascade(ngram=Scripted("ngram", [7]), model=missing)
    assert shelf.warnings == [
        "The cascade goes on without model: this pair has no draft model. Name one with --draft REF."
    ]
    assert round_of(drafter).tokens.tolist() == [7]


def test_a_cascade_without_members_cannot_be_built() -> None:
    with pytest.raises(DrafterError, match="no drafter of a,b can be used"):
        cascade(a=PairError("other tokens"), b=OSError("no memory"))


def test_an_unknown_name_is_wrong_use() -> None:
    with pytest.raises(UsageError, match="no drafter 'b'"):
        cascade(a=Scripted("a"), b=UsageError("there is no drafter 'b'"))


@pytest.mark.parametrize("when", ["begin", "propose", "observe"])
def test_a_member_that_fails_leaves_and_the_others_go_on(when: str) -> None:
    bad, good = Scripted("bad", fails=when), Scripted("good", [7])
    drafter, shelf = cascade(bad=bad, good=good)
    for _ in range(3):
        drafter.begin(
            np.array([1], dtype=np.int32),
            sampling=Sampling(),
            rule=Rejection(np.random.default_rng(0)),
            cancelled=lambda: False,
        )
        assert round_of(drafter, taken=1).tokens.tolist() == [7]
    assert shelf.warnings == [f"The cascade goes on without bad, which failed: broken in {when}."]
    assert bad.closed == 1
    assert len(good.heard) == 3


def test_the_last_member_takes_the_cascade_along() -> None:
    drafter, shelf = cascade(a=Scripted("a", fails="propose"), b=Scripted("b", fails="propose"))
    with pytest.raises(RuntimeError, match="broken"):
        round_of(drafter)
    assert len(shelf.warnings) == 1


@pytest.mark.parametrize("order", ["ngram", "", "ngram,ngram", "ngram,model,ngram", "ngram,cascade", "cascade,cascade"])
def test_an_order_that_makes_no_sense_is_wrong_use(order: str) -> None:
    with pytest.raises(UsageError, match="option order") as caught:
        Options(order)
    assert "order=ngram,model" in caught.value.hint


# -- over the toy ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["ngram,model", "model,ngram", "ngram,lookahead,model"])
def test_the_text_is_the_verifiers_whoever_drafts(order: str) -> None:
    model = toy(end_bias=-30.0)

    def pair(drafter: Drafter | None) -> Pair:
        return Pair(ToyContext(model, draft_room=64), model.vocab, drafter)

    for sampling in (Sampling(temperature=0.0), Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)):
        for seed in range(3):
            plain = pair(None).answer(TOY_PROMPT, sampling=sampling, rule=Coupled(seed), count=60)
            drafter = Cascade(Options(order), toy_lender(model))
            got = pair(drafter).answer(TOY_PROMPT, sampling=sampling, rule=Coupled(seed), count=60, N=12)
            assert got.tokens == plain.tokens
            assert got.stats.accepted > 0
