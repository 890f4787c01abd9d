"""The controller of drafters that ask others (`auto`, `cascade`): who is asked in this round, how far, or nobody.

Each drafter keeps a length controller of its own; all of them write in the same books. In a round the lookups, which
evaluate nothing, are asked first. A drafter whose steps cost time is asked when drafts of its kind have been bringing
more than the lookup's promises now, both beyond what their time is worth elsewhere; and now and then to see whether
that has changed. At most one such drafter is asked in a round.

Exactness. The choice is made from finished rounds, the clock, and what the lookups said in this round, which is a
function of the committed text: never from a token that was drawn for this round, nor from a row of the verifier that
was not yet used. Only the draft of a lookup, which consists of deterministic picks, is ever put aside for another; a
draft that was drawn is the one that is verified. So the output's law is the rule's, whoever is chosen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from localspec.loop.control import RoundReport
from localspec.planner.books import Books
from localspec.planner.controller import AutoLength

NONE = "none"
START = 3  # rounds that the pair's own drafter has before the others are looked at


class Choice:
    """Chooses among drafters for the most tokens per second; plain decoding is a choice."""

    asks = True

    def __init__(self, drafters: Mapping[str, AutoLength], books: Books) -> None:
        """`books` are those that all controllers of `drafters` write in; the first one is the pair's own."""
        self.arms = dict(drafters)
        self._books = books
        self._own = next(iter(self.arms))
        self._limits = dict.fromkeys(self.arms, 0)
        self._asked: list[str] = []  # in the round under way
        self._now = self.arms[self._own]  # the one whose turn it is
        self._dear = ""  # the one that costs time and may be asked
        self._must = False  # and is, whatever the others promise
        self._profit = 0.0  # tokens that the lookup's draft promises beyond what its rows are worth
        self._heard = dict.fromkeys((NONE, *self.arms), 0)
        self.later: Collection[str] = ()
        """Those whose drafts could not pay, which need not read the prompt of this answer before they are asked."""

    def read(self, count: int, seconds: float) -> None:
        """The verifier has read so many tokens of a prompt in this time."""
        self._books.passes.read(count, seconds)

    def begin(self, prompt: int) -> bool:
        """Another answer, to so many tokens, which those who may be asked soon should read: see `later`."""
        self.later = [name for name, arm in self.arms.items() if not arm.begin(prompt)]
        return True

    def limit(self, room: int) -> int:
        """Most tokens the next draft may hold, whoever makes it, 0 .. room; 0 means a plain pass."""
        self._asked, self._dear = [], ""
        most, dear = 0, []
        for name, arm in self.arms.items():
            limit = self._limits[name] = arm.limit(room)
            if limit and not arm.lookup:
                dear.append(name)
            elif limit > most:
                most = limit
        if not most and not dear:
            return 0
        self._dear, self._must = self._likeliest(dear)
        return max(most, self._limits[self._dear]) if self._dear else most

    @property
    def rest(self) -> int:
        """As long as all may rest; not while one may be asked whose steps cost time."""
        return 0 if self._dear else min(arm.rest for arm in self.arms.values())

    def may_pay(self, confidence: float) -> bool:
        """Could a draft of the one whose turn it is pay, its first token right with at most this probability?"""
        return self._now.may_pay(confidence)

    def turns(self) -> Iterator[tuple[str, int, bool]]:
        """Who is asked, in order, with its limit, and whether it may branch.

        To be taken one by one: what one says decides on the next.
        """
        self._profit, self._asked = 0.0, []
        for name, arm in self.arms.items():
            if arm.lookup and self._limits[name] and self._profit <= 0.0:
                yield self._ask(name)
                self._profit = arm.profit
        if self._dear and (self._must or self.arms[self._dear].beats(self._profit)):
            yield self._ask(self._dear)

    def pays(self, depth: int, confidence: float) -> bool:
        """Does one more token pay? Of a drafter that costs time the first one also has to beat the lookup's draft."""
        now = self._now
        if depth == 1 and self._profit > 0.0 and not now.lookup:
            return now.pays(depth, confidence) and now.promise(confidence) > self._profit
        return now.pays(depth, confidence)

    def choose(self, joints: Sequence[float]) -> int:
        return self._now.choose(joints)

    def widen(self, depth: int, joints: Sequence[float]) -> int:
        return self._now.widen(depth, joints)

    def price(self, count: int) -> float:
        """What a verifier pass over `count` tokens costs in plain passes, as far as it is known."""
        return self._now.price(count)

    def observe(self, report: RoundReport) -> None:
        """Learn from a finished round; `report.drafter` says whose draft it was."""
        self._books.passes.observe(report.drafted + 1, report.verify_s)
        foreseen, curious = 0.0, False
        for name in self._asked:
            foreseen += self.arms[name].foreseen(report)
            curious = curious or self.arms[name].is_curious
        spent = self._books.enter(report, foreseen=foreseen, curious=curious)
        heard = report.drafter if report.drafted else NONE
        self._heard[heard] = self._heard.get(heard, 0) + report.rounds
        for name, arm in self.arms.items():
            if name not in self._asked or (arm.lookup and name != heard):
                arm.wait(report, spent)
            elif name == heard or heard == NONE:
                arm.learn(report, spent)
            else:
                arm.learn(report._replace(drafted=0, tested=0, accepted=0, refused=False, confidences=()), spent)

    def explain(self) -> str:
        """One line: who drafted so far, and what the one that did most is doing now."""
        rounds = sum(self._heard.values())
        if not rounds:
            return f"{', '.join(self.arms)}: nothing measured yet"
        shares = ", ".join(f"{name} in {count / rounds:.0%}" for name, count in self._heard.items() if count)
        busiest = max(self.arms, key=lambda name: self._heard[name])
        return f"drafted by {shares} of {rounds} rounds; {busiest} now: {self.arms[busiest].explain()}"

    def warnings(self) -> list[str]:
        """Lines about a pair that cannot work well, each given out once."""
        return [line for arm in self.arms.values() for line in arm.warnings()]

    def _ask(self, name: str) -> tuple[str, int, bool]:
        self._asked.append(name)
        self._now = self.arms[name]
        return name, self._limits[name], self._now.branches

    def _likeliest(self, dear: Sequence[str]) -> tuple[str, bool]:
        """Of these drafters, which cost time, the one to ask, "" for none, and whether to ask it in any case."""
        own = self.arms[self._own]
        if own.lookup:
            if self._books.rounds < START:
                return "", True
        elif own.attempts < START and self._own in dear:
            return self._own, True
        if not dear:
            return "", False
        best = max(dear, key=lambda name: self.arms[name].hope) if len(dear) > 1 else dear[0]
        due = [name for name in dear if self.arms[name].is_due]
        if due:
            longest = max(due, key=lambda name: self.arms[name].idle)
            more = self.arms[best].hope - self.arms[longest].hope if longest != best else 0.0
            if self.arms[longest].look(more):
                return longest, True
        return best, False
