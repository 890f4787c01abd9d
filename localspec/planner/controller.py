"""The controller behind `--N auto`: how far to draft, by what passes and drafts cost and bring here and now.

Exactness. What is decided draws on finished rounds and, within a round, on confidences: what was known before the
token in question was drawn, and about tokens that stay in the draft. So the length of a draft is a stopping time:
every token in it was drawn from the law it reports, every one is judged, and no drawn token is dropped for its value.
The output's law is the rule's, whatever is decided here and whatever the clock said. Knows no clock, model or text.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from localspec.planner.acceptance import Acceptance
from localspec.planner.attempts import RECENT, Attempts
from localspec.planner.books import SHARE, Books, Report
from localspec.planner.costs import Estimate
from localspec.planner.diagnosis import Diagnosis
from localspec.planner.profile import Profile

# All costs are in plain passes: seconds / t(1).
LENGTHS = (1, 2, 3, 5, 7, 11, 15)  # few, so that a backend can reuse its graphs; n = N + 1 lies on usual tiles
LEAPS = (1, 3, 7)  # longest drafts while nothing wider than this was measured
PROOF = 7  # the same for a free drafter, before what a profile says of t(n) was seen to be right
WORTH_KEEPING = 24  # rounds from which on what was learned makes a profile
RESERVE = 1.5  # what first curiosity leaves for later looks
FIRST_GAP, LAST_GAP = 8, 32  # rounds between two looks at something that does not pay
FADED = 0.97  # what a price that was only heard of counts the next time: one that was too high is seen again in the end
FAR_GAP = 1024  # the same where it could not pay if every token of it were accepted
CHANCE = 0.7  # acceptance that a look hopes for
CURIOSITY = 0.8  # what a record of one test may hide, in acceptance
DOUBT = 2.0  # what a record of one attempt may hide, in tokens
LEVELS = 20  # steps in which the sureness of a token counts
PLACES = LEVELS + 1  # for bars, at each depth
LOOKAHEAD = 4  # rows that are looked at together: a kernel's tile costs at its first row
LEAST = 0.005  # the least a row costs: what is less is noise
FREE = 0.01  # a draft that costs less is always asked for
HOPED_DRAFT = 0.25  # what a draft token may cost before it was measured twice
HOPED_CATCH_UP = 0.2  # what a token read up on may cost before it was measured, in draft tokens
BEHIND = 4  # tokens that a drafter may have missed without its next draft being slower
HORIZON = 100  # tokens over which a drafter that was left behind has to earn what catching up costs
PLAIN_EVERY, THIN = 64, 1.15  # t(1) is measured again after so many rounds while drafting gains less than this
FRESH, FIRST_ROUNDS = 8, 32  # bars are set anew every so many rounds, at first in each
SETTLED = 8  # plain passes after which not every one of them has to be heard of
UNHEARD = 16  # rounds that may pass unheard
CAUTION = 1.1  # a lookup must promise so much more than its rows cost: what promises little wins little and loses much
MARGIN = 0.1  # tokens that a draft which costs time has to promise more than a lookup's
AHEAD = 20  # drafts whose expected winnings may be staked, beside what the answer has
CREDIT = 1.5  # plain passes that the first answer of an unknown pair may lose to find out what its drafts are like
SWITCH = 1.02  # another length must be better by this


class AutoLength:
    """Chooses the length of every draft for the most tokens per second; plain decoding is a choice.

    What is done against the estimates, in order to find out, is paid from a purse, which bounds what curiosity can
    cost: `PURSE` plain passes and `ALLOWANCE` of the time. It may be used for many answers of one pair. A profile is
    where it starts from, and counts no more than a dozen rounds do: `PassCosts`, `Acceptance` and `Attempts` say how it
    is corrected.
    """

    asks = True
    branches = False
    """Drafts may be trees."""

    def __init__(
        self,
        profile: Profile | None = None,
        *,
        longest: int = 15,
        lookup: bool = False,
        books: Books | None = None,
        diagnosis: Diagnosis | None = None,
    ) -> None:
        """`lookup`: the drafter evaluates nothing, so that asking it costs the same however far it drafts.

        `books` are those of the verifier, when other controllers write in them too; `diagnosis` speaks up when the
        pair cannot work well.
        """
        self.lookup = lookup
        self._longest = longest
        self._books = books or Books(longest, profile)
        self._passes = self._books.passes
        self._step = Estimate()
        self._told: float | None = None  # cost of a draft token by the profile, in plain passes
        self._told_lag: float | None = None  # and of one that was decoded without the drafter
        if profile:
            plain_s = dict(profile.verify_s)[1]
            self._told = None if profile.draft_s is None else profile.draft_s / plain_s
            self._told_lag = None if profile.catch_up_s is None else profile.catch_up_s / plain_s
        self._draft = self._draft_now()  # cost of one draft token
        self._catch_up = Estimate()
        self._lag = self._lag_now()  # of one token that was decoded without the drafter
        self._acceptance = Acceptance(longest, *((profile.acceptance, profile.claims) if profile else ()))
        self._attempts = Attempts(self._passes.longest)
        self._lately = Attempts(self._passes.longest, RECENT) if books and not lookup else None  # for the others
        if profile and profile.attempt is not None:
            for record in filter(None, (self._attempts, self._lately)):
                record.know(profile.attempt)
        self._speaks = False  # the drafter says how sure it is
        self._limit = 0  # of the round under way
        self._parked = False  # 0 because nothing else pays
        self._looking = False  # the round under way goes against the estimates
        self._doubting = False  # it goes against them because so little is known yet
        self._rival = 1.0  # tokens per plain pass that it has to beat then
        self._asked = 0  # draft steps of the round under way
        self._joint = 1.0  # probability that its draft is accepted so far
        self._length = 0  # of the last attempt that had room
        self._cut = False  # the round under way has little room
        self._credit = 0.0 if profile or lookup else CREDIT  # passes that the first answer may lose beyond its stake
        self._short = 0.0  # what the answer under way lacks to bear a draft
        self._fresh = 0  # round in which what follows was reckoned last
        self._reach = self._favourite = 0  # how far it may draft, and would
        self._bars: dict[int, float] = {}  # by depth and level: what a token there has to be worth
        self._bars_limit = 0  # the limit they hold for
        self._idle = 0  # rounds without a draft
        self._gap = FIRST_GAP
        self._is_hopeless = False  # could not pay if every token of it were accepted
        self._missed = 0  # tokens emitted since the drafter was asked last
        self._promised = 0.0  # tokens that the draft of the round under way is expected to bring
        self._kept_rows = 0  # and the rows that it adds to the pass
        self._diagnosis = diagnosis or Diagnosis()

    def read(self, count: int, seconds: float) -> None:
        """The verifier has read so many tokens of a prompt in this time."""
        self._passes.read(count, seconds)

    def begin(self, prompt: int) -> bool:
        """Another answer, to so many tokens: should the drafter read them now?

        Not if no draft of it could pay, but for the times when that is looked at again: then nothing may be missing.
        """
        self._books.begin()
        if self._books.rounds:
            self._credit = 0.0
        self._gap = FIRST_GAP  # it may be another kind of text
        self._is_hopeless = self._cannot_pay()
        reads = not self._is_hopeless or self._idle >= self._pause
        self._missed = 0 if reads else prompt
        return reads

    def limit(self, room: int) -> int:
        """Most tokens the next draft may hold, 0 .. room; 0 means a plain pass."""
        self._limit, self._asked, self._joint, self._looking, self._parked = 0, 0, 1.0, False, False
        self._promised, self._kept_rows, self._rival, self._doubting = 0.0, 0, 1.0, False
        self._cut = room < self._longest
        rounds = self._books.rounds
        if room > 0 and self._passes.is_known:
            self._short = 0.0
            if rounds - self._fresh >= FRESH or rounds < FIRST_ROUNDS:
                self._fresh, self._reach, self._bars_limit = rounds, 0, 0
                self._is_hopeless = self._cannot_pay()
            # A drafter that is free and says how sure it is may go anywhere: `pays` weighs every row it adds.
            # Where t(n) was only heard of, its first draft puts that to the test and should do no great harm.
            reach, goes_anywhere = self._longest, self._speaks and self._draft <= FREE
            if not goes_anywhere:
                reach = min(reach, self._frontier())
            elif self._passes.is_hearsay:
                reach = min(reach, max(PROOF, self._frontier()))
            if reach > room:
                reach = room
            reach = self._within_stake(reach)
            if goes_anywhere or not reach:
                self._limit = reach
            else:
                self._limit = self._attempt(reach) if self._speaks else self._best(reach)
        if self._limit and self._limit != self._bars_limit:
            self._bars, self._bars_limit = {}, self._limit
        return self._limit

    @property
    def rest(self) -> int:
        """A lookup goes on looking and need not say that it found nothing; who may not draft waits for its time."""
        if self._passes.count(1) < SETTLED:
            return 0
        if self.lookup:
            if self._short > 0.0:
                return min(UNHEARD, int(self._short / SHARE))
            return UNHEARD if self._limit and self._speaks else 0
        if not self._parked:
            return 0
        return min(UNHEARD if self._is_hopeless else FIRST_GAP, max(1, self._pause - self._idle))

    def may_pay(self, confidence: float) -> bool:
        """Could a draft pay whose first token is right with at most this probability?"""
        self._speaks = True
        believed = self._acceptance.believed(confidence)
        place = PLACES + (int(LEVELS * believed) if self._draft <= FREE else 0)
        return believed * self._acceptance.mood > (self._bars.get(place) or self._bar_at(place))

    def pays(self, depth: int, confidence: float) -> bool:
        """Does one more token at `depth` pay if it is right with probability `confidence`?"""
        self._speaks = True
        self._asked = depth
        acceptance = self._acceptance
        # What costs nothing to draft is looked up, and there a sure token is followed by others that are as sure.
        if self._draft <= FREE:
            believed = acceptance.believed(confidence)
            place = PLACES * depth + int(LEVELS * believed)
        else:
            believed = acceptance.claim(confidence)
            place = PLACES * depth
        joint = self._joint = believed * (self._joint if depth > 1 else acceptance.mood)
        if joint <= (self._bars.get(place) or self._bar_at(place)):
            return False
        self._promised += joint
        self._kept_rows = depth
        return True

    def observe(self, report: Report) -> None:
        """Learn from a finished round."""
        self._passes.observe(report.drafted + 1, report.verify_s)
        spent = self._books.enter(report, foreseen=self.foreseen(report), curious=not self.lookup)
        self.learn(report, spent)

    def foreseen(self, report: Report) -> float:
        """What drafting was expected to cost in this round."""
        return self._steps(report) * self._draft + self._missed * self._lag if self._limit else 0.0

    def learn(self, report: Report, spent: float) -> None:
        """What the round says about the drafter; it took the time of `spent` plain passes, 0.0: nobody knows yet."""
        if not self._limit or (self.lookup and not report.drafted):
            self.wait(report, spent)
            return
        steps, rows, emitted = self._steps(report), report.drafted + 1, report.accepted + 1
        self._acceptance.observe(report.accepted, report.refused, report.confidences if self._speaks else ())
        if not spent:
            return
        self._learn_draft(report.draft_s, steps)
        self._attempts.observe(rows=rows, steps=steps, emitted=emitted, look=self._looking)
        if self._lately:
            self._lately.observe(rows=rows, steps=steps, emitted=emitted, look=self._looking)
        if self._looking:
            pays = emitted > spent * self._rival
            self._gap = 1 if pays else min(LAST_GAP, max(FIRST_GAP, 2 * self._gap))
        self._length, self._idle, self._missed = max(self._limit, self._length if self._cut else 0), 0, 0
        self._reckon()
        self._diagnosis.tested(report.tested, report.accepted)
        if self._step.count >= 2:
            self._diagnosis.priced(self._draft)

    def wait(self, report: Report, spent: float) -> None:
        """The round had no draft, or was another drafter's: it is only older now, and further behind."""
        emitted = report.rounds * (report.accepted + 1)
        self._acceptance.fade(report.rounds)
        if spent:
            was, self._idle = self._idle, self._idle + report.rounds
            if not self.lookup:  # which has nothing to read up on
                self._missed += emitted
            if self._idle // FRESH > was // FRESH:
                self._reckon()

    def learned(self) -> Profile | None:
        """What it would start from another day; None as long as it has seen too little."""
        times = self._passes.times
        if self._books.rounds < WORTH_KEEPING or not times:
            return None
        draft = self._step.value if self._step.count >= 2 else None
        if draft is None and self._told is not None:
            draft = FADED * self._told * times[0][1]
        catch_up = self._catch_up.value if self._catch_up.count >= 2 else None
        if catch_up is None and self._told_lag is not None:
            catch_up = FADED * self._told_lag * times[0][1]
        return Profile(
            times,
            draft,
            self._acceptance.learned,
            self._attempts.mean,
            self._acceptance.claims,
            catch_up_s=catch_up,
            purse=self._books.purse,
        )

    def choose(self, joints: Sequence[float]) -> int:
        """How many nodes of a tree, best first, each reached and taken with this probability, are worth their rows?"""
        best, most, gain = 0, 0.0, 0.0
        for count, joint in enumerate(joints, start=1):
            gain += joint
            profit = gain - self._books.worth * (self._books.rows(count + 1) - 1.0)
            if profit > most:
                best, most, self._promised, self._kept_rows = count, profit, gain, count
        return best

    def widen(self, depth: int, joints: Sequence[float]) -> int:
        """How many of these nodes, best first, are worth being expanded by one more draft pass? All: see `AutoTree`."""
        return len(joints)

    def price(self, count: int) -> float:
        """What a verifier pass over `count` tokens costs in plain passes, as far as it is known."""
        return self._passes.cost(count) if self._passes.plain else 1.0

    def explain(self) -> str:
        """One line: what is chosen now and why."""
        if not self._books.rounds:
            return "N=auto, nothing measured yet"
        rate, draft = self._acceptance.mean, self._draft
        if self._idle >= FIRST_GAP or not self._length:
            price = self._passes.expected[2] - 1.0 + draft
            if self._is_hopeless:
                return f"N=0: a draft token costs {price:.2f} plain passes, too much if every one of them were accepted"
            held = ", and this answer has nothing left to lose on one" if self._short > 0.0 else ""
            return f"N=0: a draft token costs {price:.2f} plain passes and is accepted {rate:.0%} of the time{held}"
        cost = self._passes.expected[self._length + 1]
        return (
            f"N<={self._length}: {rate:.0%} of tested draft tokens are accepted, {self._length + 1} rows cost "
            f"{cost:.2f} plain passes, a draft token {draft:.2f}: {self._books.speed:.2f}x plain"
        )

    def warnings(self) -> list[str]:
        """Lines about a pair that cannot work well, each given out once."""
        return self._diagnosis.warnings()

    # Whether it is this drafter's turn, where there are several.

    @property
    def profit(self) -> float:
        """Tokens that the draft of the round under way promises, beyond what the time of its rows brings elsewhere."""
        return self._promised - self._books.worth * (self._books.rows(self._kept_rows + 1) - 1.0)

    @property
    def outlook(self) -> float:
        """The same for a draft that has not been made, its steps paid for, as drafts were of late."""
        worth, record = self._books.worth, self._lately or self._attempts
        return record.advantage(self._passes.hoped, self._draft, worth) + worth - 1.0

    @property
    def hope(self) -> float:
        """`outlook`, with what the record of so few attempts may hide, if the purse can bear to find out."""
        return self.outlook + self._hidden

    @property
    def _hidden(self) -> float:
        return self._doubt() if not self.lookup and self._books.purse > RESERVE else 0.0

    def beats(self, profit: float) -> bool:
        """Does its draft promise more than another one does, also beyond what reading up costs?"""
        needed = profit + MARGIN + self._missed * self._lag / HORIZON
        outlook = self.outlook
        if outlook > needed:
            return True
        self._doubting = outlook + self._hidden > needed
        return self._doubting

    @property
    def is_curious(self) -> bool:
        """Does the round under way go against the estimates?"""
        return self._limit > 0 and (self._looking or self._doubting)

    def promise(self, confidence: float) -> float:
        """The same for a draft whose first token is right with this probability, before it is drawn."""
        trust, worth = self._acceptance.mean, self._books.worth
        tokens = passed = self._acceptance.believed(confidence) * self._acceptance.mood
        for _ in range(1, self._limit):
            passed *= trust
            tokens += passed
        rows = min(self._limit, int(tokens + 1.0))
        return tokens - worth * (self._books.rows(rows + 1) - 1.0 + (rows - 1) * self._draft)

    @property
    def attempts(self) -> float:
        """How often it was asked, early attempts fading."""
        return self._attempts.weight

    @property
    def idle(self) -> int:
        """Rounds since it was asked."""
        return self._idle

    @property
    def is_due(self) -> bool:
        """Is it time to look at it again, whatever it promises?"""
        return self._looking or self._idle >= self._pause

    def look(self, price: float) -> bool:
        """Ask it in this round, although another promises so much more? If the purse can bear it."""
        if not self._looking:
            self._looking, self._rival = self._books.purse > price, self._books.worth
        return self._looking

    # How far: a drafter that does not say how sure it is.

    def _best(self, reach: int) -> int:
        """The length that the estimates favour, or one that is worth finding out about."""
        sure, sure_rate = self._peak(self._passes.expected, reach)
        if sure and sure_rate < THIN and self._books.since_plain > PLAIN_EVERY:
            return 0
        if HORIZON * (sure_rate - 1.0) < self._missed * self._lag:
            sure = 0
        hoped, hoped_rate = self._peak(self._passes.hoped, reach, CURIOSITY / self._acceptance.tested)
        if hoped_rate > 1.05 * sure_rate and self._affords(hoped, leaving=0.0 if sure else RESERVE):
            self._looking = not sure
            return hoped
        return sure or self._look(reach)

    def _peak(self, curve: list[float], reach: int, bonus: float = 0.0) -> tuple[int, float]:
        """The best length and its tokens per plain pass; (0, 1.0) when none beats plain decoding."""
        best, best_rate = 0, 1.0
        tokens = passed = 1.0
        depth, draft, rates = 0, self._draft, self._acceptance.by_depth
        for length in LENGTHS:
            if length > reach:
                break
            while depth < length:
                depth += 1
                accepted = rates[depth] + bonus
                passed *= accepted if accepted < 1.0 else 1.0
                tokens += passed
            rate = tokens / (curve[length + 1] + length * draft)
            if rate > best_rate * (SWITCH if best and length != self._length else 1.0):
                best, best_rate = length, rate
        return best, best_rate

    def _look(self, reach: int) -> int:
        """A draft although it does not pay, when its time has come and the purse can bear it."""
        length = self._likeliest(reach)
        self._looking = self._idle >= self._pause and self._affords(length)
        self._parked = not self._looking
        return length if self._looking else 0

    def _likeliest(self, reach: int) -> int:
        """The short draft that would pay best if acceptance turned out well."""
        curve, draft = self._passes.hoped, self._draft
        rates = {n: sum(CHANCE**i for i in range(n + 1)) / (curve[n + 1] + n * draft) for n in (1, 2, 3) if n <= reach}
        return max(rates, key=rates.__getitem__)

    # How far: a drafter that says how sure it is of each token.

    def _attempt(self, reach: int) -> int:
        """The limit; `pays` decides how far a draft really goes."""
        advantage, behind = self._attempts.advantage(self._passes.hoped, self._draft), self._missed * self._lag
        if not (advantage > 0.0 and HORIZON * advantage >= behind):
            left = self._books.purse - (self._draft - advantage + behind)  # in the purse if nothing comes of it
            self._looking = self._idle >= self._pause and left > 0.0
            if not self._looking and (self._is_hopeless or left <= RESERVE or advantage + self._doubt() <= 0.0):
                self._parked = True
                return 0
            self._doubting = not self._looking
        if reach != self._reach:
            # Steps cost: as long as pays on average, by what the drafter claims of all tokens, not of those it drafts.
            bonus = self._acceptance.claimed - self._acceptance.mean
            self._reach = reach
            self._favourite = self._peak(self._passes.hoped, reach, bonus)[0] or self._likeliest(reach)
        return self._favourite

    def _doubt(self) -> float:
        """Tokens that the record of so few attempts may hide."""
        return DOUBT / sqrt(1.0 + self._attempts.weight)

    def _bar_at(self, place: int) -> float:
        """The probability of being accepted, elders included, from which on a token pays there: for the first time.

        Tokens behind it are weighed with it, because a pass that pays for five rows need not pay for two; they are
        taken to be as likely as tokens are on the whole, or as this one.
        """
        depth, level = divmod(place, PLACES)
        curve, draft, mean, hope = self._books.curve, self._draft, self._acceptance.mean, level / LEVELS
        trust = mean if mean > hope else hope
        left = self._limit - depth  # tokens that may follow; each has to be computed before it is asked about
        gain = passed = 1.0
        base = curve[depth]
        bar = curve[depth + 1] - base + (draft if left else 0.0)
        for more in range(1, LOOKAHEAD if left >= LOOKAHEAD else left + 1):
            passed *= trust
            gain += passed
            steps = more + 1 if more < left else left
            least = (curve[depth + 1 + more] - base + draft * steps) / gain
            if least < bar:
                bar = least
        bar = self._books.worth * (bar if bar > LEAST else LEAST)
        if self.lookup:
            bar *= CAUTION
        self._bars[place] = bar
        return bar

    # What it costs.

    def _steps(self, report: Report) -> float:
        """Passes the drafter made for the round."""
        steps = report.drafted if report.drafted > self._asked else self._asked
        return steps or 1

    def _reckon(self) -> None:
        """Bring what is asked for often up to date; a lookup costs nothing, today and tomorrow."""
        if self.lookup:
            return
        self._draft = self._draft_now()
        self._lag = self._lag_now()
        self._is_hopeless = self._cannot_pay()

    @property
    def _pause(self) -> int:
        """Rounds between two looks, now; what was only heard to be hopeless is looked at soon."""
        if not self._is_hopeless:
            return self._gap
        return FAR_GAP if self._step.count >= 2 else LAST_GAP

    def _cannot_pay(self) -> bool:
        """Would the best length lose if every token of it were accepted? False as long as its price is not known."""
        if self.lookup or not self._passes.plain or (self._told is None and self._step.count < 2):
            return False
        curve, draft = self._passes.hoped, self._draft
        if curve[2] + draft <= 2.0:  # one token could pay, as is usual
            return False
        return all(n + 1 < curve[n + 1] + n * draft for n in LENGTHS if n <= self._longest)

    def _draft_now(self) -> float:
        """Cost of one draft token."""
        if self.lookup or not self._passes.plain:
            return 0.0
        if not self._step.count:
            return self._told or 0.0
        cost = self._step.value / self._passes.plain
        return cost if self._step.count >= 2 else min(cost, max(HOPED_DRAFT, self._told or 0.0))

    def _lag_now(self) -> float:
        """Cost, for the drafter, of one token that was decoded without it."""
        if self._catch_up.count:
            return self._catch_up.value / self._passes.plain
        hoped = HOPED_CATCH_UP * self._draft
        return hoped if self._told_lag is None else min(max(self._told_lag, hoped), self._draft)

    def _frontier(self) -> int:
        """The longest draft that is not a leap beyond what was measured, or one that half the purse can bear."""
        widest = self._passes.widest
        if widest > self._longest:
            return self._longest
        leap = next((length for length in LEAPS if widest <= length), self._longest)
        leap = min(leap, self._longest)
        return leap if self._affords(leap) else max(1, widest - 1)

    def _affords(self, length: int, *, leaving: float = 0.0) -> bool:
        """Can the purse bear a draft of this length if nothing of it is accepted?"""
        return self._books.purse > leaving + self._price(length)

    def _within_stake(self, reach: int) -> int:
        """The longest draft that the answer can bear to lose, for what it has, and what the next drafts should win."""
        stake, curve = self._books.stake + 1.0 - self._missed * self._lag, self._passes.fair
        if curve[reach + 1] + self._drafting(reach) <= stake:
            return reach
        if not self.lookup:
            won = AHEAD * self._attempts.advantage(self._passes.hoped, self._draft)
            stake += self._credit + (won if won > 0.0 else 0.0)
        while reach and curve[reach + 1] + self._drafting(reach) > stake:
            reach -= 1
        if not reach and self._is_hopeless and self._idle >= self._pause:
            return 1  # looked at so rarely that it must not depend on when
        if not reach:
            self._parked, self._short = True, curve[2] + self._drafting(1) - stake
        return reach

    def _drafting(self, length: int) -> float:
        """What it takes to draft so far, in plain passes."""
        return length * self._draft

    def _price(self, length: int) -> float:
        """What a draft of this length may cost if nothing of it is accepted."""
        return self._passes.hoped[length + 1] - 1.0 + self._drafting(length) + self._missed * self._lag

    def _learn_draft(self, seconds: float, steps: float) -> None:
        told = self._step.value or (self._told or 0.0) * self._passes.plain
        if self._missed < BEHIND or seconds < steps * told:  # as much as that it cannot cost, whatever was read
            self._step.observe(seconds / steps)
        elif self._step.count:
            self._catch_up.observe(max(0.0, seconds - steps * self._step.value) / self._missed)
