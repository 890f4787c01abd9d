"""Several drafters in order of price: who is asked, who is heard, who is told, and what happens to one that fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from localspec.core.coupled import Coupled
from localspec.core.draft import EMPTY, Draft, Ids, Verdict
from localspec.core.rejection import Rejection
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.drafters import cascade as module
from localspec.drafters.base import Budget, Drafter
from localspec.drafters.cascade import LONGEST_REST, Cascade, Member, Options
from localspec.engine.base import Cancelled, Pass
from localspec.engine.toy import ToyContext, ToyModel
from localspec.errors import DrafterError, PairError, UsageError
from tests.drafters.settings import TOY_PROMPT, Lender, Pair, toy, toy_lender

ROOMY = Budget(8, lambda depth, confidence: True)
FIXED = replace(ROOMY, asks=False)
RESULT: Pass = ToyContext(ToyModel(27)).prefill([1])  # type: ignore[assignment]


@dataclass
class Scripted:
    """Says what it is told to say, takes the time it is told to take, and keeps what it hears."""

    name: str
    says: list[int] = field(default_factory=list)
    takes_s: float = 0.0
    fails: str = ""
    clock: Clock | None = None
    asked: int = 0
    begun: int = 0
    closed: int = 0
    heard: list[Verdict | None] = field(default_factory=list)

    def begin(self, tokens: Ids, *, sampling: Sampling, rule: Rule, cancelled: Cancelled) -> None:
        self.begun += 1
        self._fail("begin")

    def propose(self, tokens: Ids, budget: Budget) -> Draft:
        self.asked += 1
        if self.clock:
            self.clock.now += self.takes_s
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


class Clock:
    """Time passes only when somebody says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


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


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


def cascade(**members: Scripted | Exception) -> tuple[Cascade, Shelf]:
    shelf = Shelf(members)
    return Cascade(Options(",".join(members)), shelf), shelf


def round_of(drafter: Cascade, *, taken: int = 0, clock: Clock | None = None, budget: Budget = FIXED) -> Draft:
    """One round: the first `taken` tokens of the draft are accepted, the pass takes a second for each plain pass."""
    draft = drafter.propose(np.array([1, 2], dtype=np.int32), budget)
    if clock:
        clock.now += budget.price(1 + len(draft))
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
    drafter.propose(np.array([1], dtype=np.int32), ROOMY)
    before = [replace(one) for one in drafter._members]
    drafter.observe(RESULT, None)
    assert drafter._members == before
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


# -- who is asked ------------------------------------------------------------------------------------------------------


def start(drafter: Cascade) -> None:
    """Another answer begins."""
    rule = Rejection(np.random.default_rng(0))
    drafter.begin(np.array([1], dtype=np.int32), sampling=Sampling(), rule=rule, cancelled=lambda: False)


def questions(drafter: Cascade, member: Scripted, clock: Clock, *, answers: int, taken: int = 0) -> list[int]:
    """How often the member was asked in each of so many answers of 40 rounds."""
    found = []
    for _ in range(answers):
        before = member.asked
        start(drafter)
        for _ in range(40):
            round_of(drafter, taken=taken, clock=clock, budget=ROOMY)
        found.append(member.asked - before)
    return found


def test_a_member_that_loses_is_asked_in_fewer_and_fewer_answers(clock: Clock) -> None:
    """A tenth of a plain pass, and nothing it says is ever taken."""
    loser = Scripted("loser", [7], takes_s=0.1, clock=clock)
    drafter, _ = cascade(loser=loser, other=Scripted("other"))
    asked = questions(drafter, loser, clock, answers=100)
    assert 5 < asked[0] < 20, "a few refusals are no verdict, many are"
    looks = [at for at, count in enumerate(asked) if count]
    assert looks[:6] == [0, 2, 5, 10, 19, 36], "left out of 1, 2, 4, 8, 16 answers"
    assert np.diff(looks).max() == LONGEST_REST + 1
    assert max(asked[1:]) < 5, "and then soon given up again"
    assert loser.begun == len(looks), "it does not even read the text"


def test_a_member_whose_drafts_cost_more_rows_than_they_bring_is_a_loser_too(clock: Clock) -> None:
    """Two tokens of eight are taken, where eight more rows cost four plain passes."""
    wide = Scripted("wide", [*range(1, 9)], takes_s=0.5, clock=clock)
    drafter, _ = cascade(wide=wide, other=Scripted("other"))
    dear = replace(ROOMY, price=lambda count: 1.0 + 0.5 * (count - 1))
    for _ in range(200):
        round_of(drafter, taken=2, clock=clock, budget=dear)
    assert wide.asked < 20


def test_with_a_fixed_length_only_refusals_count_not_the_clock(clock: Clock) -> None:
    slow, bad = Scripted("slow", [7], takes_s=9.0, clock=clock), Scripted("bad", [8])
    for member, taken, asked in ((slow, 1, 60), (bad, 0, None)):
        silent = Scripted("silent", takes_s=9.0, clock=clock)
        drafter, _ = cascade(silent=silent, member=member)
        for _ in range(60):
            round_of(drafter, taken=taken, clock=clock)
        assert silent.asked == 60
        assert member.asked == asked if asked else 5 < member.asked < 20


def test_a_member_that_pays_is_asked_in_every_round(clock: Clock) -> None:
    good = Scripted("good", [7, 8], takes_s=0.4, clock=clock)
    drafter, _ = cascade(silent=Scripted("silent"), good=good)
    for at in range(100):
        round_of(drafter, taken=1 if at % 3 else 0, clock=clock, budget=ROOMY)
    assert good.asked == 100


def test_one_that_costs_nothing_is_asked_in_every_round_however_seldom_it_speaks(clock: Clock) -> None:
    cheap = Scripted("cheap", takes_s=0.001, clock=clock)
    drafter, _ = cascade(cheap=cheap, other=Scripted("other"))
    assert questions(drafter, cheap, clock, answers=12) == [40] * 12
    cheap.says = [7]
    assert questions(drafter, cheap, clock, answers=12) == [40] * 12, "and however often it is wrong"


def test_a_member_that_gets_better_is_taken_back(clock: Clock) -> None:
    member = Scripted("member", [7, 8, 9], takes_s=0.1, clock=clock)
    drafter, _ = cascade(member=member, other=Scripted("other"))
    questions(drafter, member, clock, answers=3)
    asked = questions(drafter, member, clock, answers=20, taken=3)
    first = next(at for at, count in enumerate(asked) if count)
    assert asked[first:] == [40] * (20 - first)
    assert drafter._members[0].pause == 1, "its past is forgiven"


def test_a_member_drafts_no_further_than_its_steps_pay_for() -> None:
    """A third of a plain pass for a token: the third one is too unlikely, with what its row costs."""
    member = Member(Scripted("a"), step=0.33)
    budget = replace(ROOMY, price=lambda count: 1.0 + 0.1 * (count - 1))
    pays = member.minded(budget).pays
    assert [pays(depth, 0.75) for depth in (1, 2, 3)] == [True, True, False]
    assert pays(1, 0.75), "another draft"
    assert not pays(1, 0.4)
    assert not member.minded(replace(budget, pays=lambda depth, confidence: False)).pays(1, 1.0)
    assert Member(Scripted("a"), step=0.01).minded(budget) is budget
    certain = replace(budget, asks=False)
    assert member.minded(certain) is certain, "a fixed length is a fixed length"


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
