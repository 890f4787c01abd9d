"""When a drafter reads the prompt: at once, or only when it is first asked, if the controller expects nothing of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from localspec.core.draft import EMPTY, Draft, Ids
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.engine.base import Cancelled
from localspec.loop.control import FixedLength
from localspec.loop.generation import Limits
from localspec.planner.controller import AutoLength
from localspec.planner.profile import Profile
from tests.loop.answers import Setting
from tests.loop.scripted import Scripted

PROMPT = [3, 1, 4, 1, 5]


@dataclass(frozen=True)
class Doubtful(FixedLength):
    """Lets nobody read ahead, and drafts in the round that is told."""

    drafts_in: int = 0
    asked: list[int] = field(default_factory=list)
    rest: int = 0

    def begin(self, prompt: int) -> bool:
        self.asked.append(prompt)
        return False

    def limit(self, room: int) -> int:
        self.asked.append(room)
        return min(self.N, room) if len(self.asked) == 2 + self.drafts_in else 0


class Reader(Scripted):
    """Notes what it was given to read, and in which order it was asked."""

    def __init__(self) -> None:
        super().__init__(lambda tokens, limit: Draft.chain([1, 2][:limit]))
        self.read: list[list[int]] = []

    def begin(self, tokens: Ids, *, sampling: Sampling, rule: Rule, cancelled: Cancelled) -> None:
        assert not self.limits
        self.read.append(tokens.tolist())


def answer(setting: Setting, drafter: Scripted, controller: FixedLength) -> tuple[int, ...]:
    limits = Limits(max_tokens=12, ignore_end=True)
    generation = setting.start(PROMPT, drafter=drafter, controller=controller, limits=limits)
    list(generation)
    assert generation.answer is not None
    return generation.answer.tokens


def test_it_reads_ahead_where_it_may_draft(toy: Setting) -> None:
    reader = Reader()
    answer(toy, reader, FixedLength(2))
    assert reader.read == [PROMPT]


def test_it_reads_when_it_is_first_asked_and_once(toy: Setting) -> None:
    plain = toy.answer(PROMPT, N=0, limits=Limits(max_tokens=12, ignore_end=True)).tokens
    reader, controller = Reader(), Doubtful(2, drafts_in=3)
    assert answer(toy, reader, controller) == plain
    assert controller.asked[0] == len(PROMPT)
    assert (reader.read, reader.limits) == ([PROMPT], [2])


def test_it_reads_nothing_if_it_is_never_asked(toy: Setting) -> None:
    reader = Reader()
    answer(toy, reader, Doubtful(2, drafts_in=100))
    assert (reader.read, reader.calls) == ([], 0)


def test_one_that_fails_then_is_switched_off(toy: Setting) -> None:
    class Broken(Scripted):
        def begin(self, tokens: Ids, *, sampling: Sampling, rule: Rule, cancelled: Cancelled) -> None:
            raise RuntimeError("no memory left")

    plain = toy.answer(PROMPT, N=0, limits=Limits(max_tokens=12, ignore_end=True)).tokens
    assert answer(toy, Broken(lambda tokens, limit: EMPTY), Doubtful(2, drafts_in=3)) == plain
    assert any("no memory left" in line for line in toy.warnings)


def test_a_draft_that_could_not_pay_does_not_read_the_prompt() -> None:
    times = ((1, 0.006), (2, 0.012), (4, 0.018), (8, 0.027), (16, 0.05))
    equal, cheap = (AutoLength(Profile(times, draft_s, (0.8, 0.8))) for draft_s in (0.006, 0.0006))
    assert not equal.begin(100)
    assert cheap.begin(100)
    assert AutoLength().begin(100), "nothing is known"
    assert AutoLength(Profile(times, None, (0.1,)), lookup=True).begin(100), "a lookup costs nothing"
