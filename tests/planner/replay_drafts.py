"""Real drafts, judged again: what drafters that cost time said and got right, on machines with a simulated clock.

Behind every token of an answer it is recorded what the drafter would have said there, so that any choice of lengths,
also of who is asked, can be played through the loop's own proposer. As in `replay`, the controller is shown times with
jitter, and speeds are counted in the true ones.
`python -m tests.planner.replay_drafts` prints what came of it; recorded_drafts.json.gz is made by `record_drafts`.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from localspec.core.draft import EMPTY, Draft, Ids, Verdict
from localspec.core.rejection import Rejection
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.drafters.base import Budget, Drafter
from localspec.drafters.cascade import Cascade
from localspec.drafters.cascade import Options as CascadeOptions
from localspec.drafters.ngram import Ngram, Options
from localspec.engine.base import Cancelled, Pass
from localspec.loop.control import Controller, RoundReport
from localspec.loop.proposer import Proposer
from localspec.loop.rest import Rest
from localspec.planner.books import Books
from localspec.planner.choice import Choice
from localspec.planner.controller import AutoLength
from tests.drafters.settings import Lender
from tests.planner.replay import LOOK, TEMPERATURES, Clock, Words, judged, no_model, told_of_a_failure

FILE = Path(__file__).with_name("recorded_drafts.json.gz")
SEEDS = range(5)
PLAIN_S = 0.013
ROOM = 15
LENGTHS = range(1, 5)  # as far as drafts were recorded
WRONG = Words.size - 1
"""What a drafter is taken to have said where it was wrong."""

# t(n) in plain passes, n = 1 .. 16; what a token of a long prompt takes, and what a plain pass behind a wider one takes
# longer, because llama.cpp builds its graph anew
CURVES = {
    # SmolLM2-135M in F32 on two CPU cores, as measured on two days
    "F32": ((1, 1.3, 1.45, 1.6, 1.75, 1.9, 2.1, 2.25, 2.4, 2.6, 2.7, 2.85, 3.0, 3.2, 3.35, 3.5), 0.18, 0.04),
    "F32, dear": ((1, 1.38, 1.72, 1.85, 2.05, 2.25, 2.4, 2.6, 2.8, 2.95, 3.1, 3.3, 3.45, 3.7, 3.9, 4.2), 0.18, 0.04),
    # as on a GPU
    "flat": ((1, 1.02, 1.05, 1.06, 1.08, 1.09, 1.1, 1.11, 1.15, 1.16, 1.17, 1.18, 1.19, 1.2, 1.21, 1.22), 0.02, 0.08),
}
# a draft token, and one that was decoded without the drafter, in plain passes
PRICES = {"model": (0.35, 0.1), "eagle3": (0.05, 0.03)}


@dataclass(frozen=True)
class Recording:
    """One answer. drafts: behind each of its tokens, how many drafted ones are right, and how sure each was."""

    category: str
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    drafts: tuple[tuple[int, tuple[float, ...]], ...]


@dataclass(frozen=True)
class Played:
    """What became of a recording; `cost` in plain passes."""

    recording: Recording
    cost: float

    @property
    def speed(self) -> float:
        """Against plain decoding."""
        return len(self.recording.answer) / self.cost


@cache
def recordings(drafter: str, temperature: str) -> tuple[Recording, ...]:
    document = json.loads(gzip.decompress(FILE.read_bytes()))
    return tuple(
        Recording(
            prompt["category"],
            tuple(prompt["tokens"]),
            tuple(answer["tokens"]),
            tuple((right, tuple(claim / 100 for claim in claims)) for right, claims in answer["drafts"]),
        )
        for answer in document["drafters"][drafter]
        if answer["temperature"] == temperature
        for prompt in [document["prompts"][answer["prompt"]]]
    )


class Scripted:
    """A drafter that says what was recorded; reading up on what it was not asked about takes time, as drafting does."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._step, self._behind = PRICES[name]
        self._recording = Recording("", (), (), ())
        self._after = 0  # tokens that it has read, or will have with its last draft
        self.spent = 0.0  # plain passes, in all

    def hear(self, recording: Recording) -> None:
        """The answer that comes next."""
        self._recording, self._after = recording, len(recording.prompt)

    def begin(self, tokens: Ids, *, sampling: Sampling, rule: Rule, cancelled: Cancelled) -> None:
        self._after = len(tokens)

    def propose(self, tokens: Ids, budget: Budget) -> Draft:
        at = len(tokens) - len(self._recording.prompt)
        right, claims = self._recording.drafts[at]
        steps = drafted = 0
        for claim in claims[: budget.limit]:
            steps += 1
            if not budget.pays(steps, claim):
                break
            drafted += 1
        self.spent += self._step * steps + self._behind * max(0, len(tokens) - self._after)
        self._after = len(tokens) + min(right, drafted) + 1
        said = self._recording.answer[at : at + min(right, drafted)] + (WRONG,) * (drafted - right)
        return Draft.chain(said) if said else EMPTY

    def observe(self, result: Pass, verdict: Verdict | None) -> None:
        return None

    def close(self) -> None:
        return None


class Members(Lender):
    """Lends the drafters of a cascade."""

    def __init__(self, scripted: Scripted) -> None:
        super().__init__(Words(), no_model)
        self._scripted = scripted

    def drafter(self, name: str) -> Drafter:
        return Ngram(Options(), self) if name == "ngram" else self._scripted


def controller_of(way: str) -> Controller:
    """That of `--N auto`."""
    names = way.split(",")
    if len(names) == 1:
        return AutoLength(lookup=way == "ngram")
    books = Books(ROOM)
    return Choice({name: AutoLength(longest=ROOM, lookup=name == "ngram", books=books) for name in names}, books)


class Session:
    """A pair; what drafter and controller learn in one answer they keep for the next.

    `way`: "ngram", a drafter of `PRICES`, or both, as in "ngram,model".
    """

    def __init__(self, curve: str, way: str, *, seed: int, controller: Controller | None = None) -> None:
        self._costs, self._prompt_row, self._anew = CURVES[curve]
        names = way.split(",")
        self._scripted = Scripted(next((name for name in names if name in PRICES), "model"))
        self._clock = Clock(PLAIN_S, seed)
        self._controller = controller or controller_of(way)
        lender = Members(self._scripted)
        drafter = Cascade(CascadeOptions(order=way), lender) if len(names) > 1 else lender.drafter(way)
        self._proposer = Proposer(drafter, self._controller, vocab=Words(), warn=told_of_a_failure)
        self._looks = "ngram" in names

    def play(self, recording: Recording) -> Played:
        """One answer, round by round as in `loop.generation`."""
        prompt, answer, proposer = recording.prompt, recording.answer, self._proposer
        tokens = np.array(prompt + answer, dtype=np.int32)
        rest, at, cost, last = Rest(self._controller), 0, 0.0, 0
        self._scripted.hear(recording)
        self._controller.read(len(prompt), self._clock.shown(self._prompt_row * len(prompt)))
        proposer.begin(
            tokens[: len(prompt)], sampling=Sampling(), rule=Rejection(self._clock.rng), cancelled=lambda: False
        )
        while at < len(answer):
            limit = 0 if rest.is_parked else rest.limit(min(ROOM, len(answer) - at - 1))
            before = self._scripted.spent
            draft = proposer.propose(tokens[: len(prompt) + at], limit, leaves=1)
            drafting = self._scripted.spent - before + (LOOK if limit and self._looks else 0.0)
            verdict = judged(draft, answer, at)
            drafted, accepted = len(draft), len(verdict.path)
            passed = self._costs[drafted] + (self._anew if last and not drafted else 0.0)
            last = drafted
            rest.tell(
                RoundReport(
                    drafted=drafted,
                    tested=verdict.tested,
                    accepted=accepted,
                    refused=accepted < drafted,
                    draft_s=self._clock.shown(drafting),
                    verify_s=self._clock.shown(passed),
                    confidences=proposer.confidences(draft, verdict),
                    drafter=proposer.heard,
                )
            )
            cost += drafting + passed
            at += accepted + 1
        rest.end()
        return Played(recording, cost)


@cache
def orders(curve: str, way: str, temperature: str, *, of: str = "") -> tuple[tuple[Played, ...], ...]:
    """All recordings of this temperature, in an order of each seed's, decoded in one session that starts afresh.

    of: whose recordings, if the way alone does not say.
    """
    found = recordings(of or way.rpartition(",")[2], temperature)
    played = []
    for seed in SEEDS:
        session = Session(curve, way, seed=seed)
        played.append(tuple(session.play(found[at]) for at in np.random.default_rng(seed).permutation(len(found))))
    return tuple(played)


def processes(curve: str, drafter: str, temperature: str, *, seed: int) -> Iterator[Played]:
    """The same with a session for each recording, which starts from the profile that the one before it left."""
    found, profile = recordings(drafter, temperature), None
    for number, at in enumerate(np.random.default_rng(seed).permutation(len(found))):
        controller = AutoLength(profile)
        yield Session(curve, drafter, seed=1000 * seed + number, controller=controller).play(found[at])
        profile = controller.learned() or profile


def fixed(curve: str, drafter: str, recording: Recording, N: int) -> Played:
    """Always N tokens, as far as there is room."""
    (costs, _, anew), (step, _) = CURVES[curve], PRICES[drafter]
    at, cost, last, before = 0, 0.0, len(recording.drafts), 0
    while at < last:
        right, claims = recording.drafts[at]
        drafted = min(N, len(claims), last - at - 1)
        cost += costs[drafted] + step * drafted + (anew if before and not drafted else 0.0)
        before = drafted
        at += min(right, drafted) + 1
    return Played(recording, cost)


def together(plays: Iterable[Played]) -> float:
    """The speed of all of them."""
    found = list(plays)
    return sum(len(played.recording.answer) for played in found) / sum(played.cost for played in found)


def by_category(plays: Iterable[Played]) -> dict[str, float]:
    found = list(plays)
    names = dict.fromkeys(played.recording.category for played in found)
    return {name: together(played for played in found if played.recording.category == name) for name in names}


def best_fixed(curve: str, drafter: str, temperature: str) -> dict[str, float]:
    """Of each category the speed of the best N in hindsight."""
    found = recordings(drafter, temperature)
    speeds = [by_category(fixed(curve, drafter, recording, N) for recording in found) for N in LENGTHS]
    return {name: max(speed[name] for speed in speeds) for name in speeds[0]}


def table() -> Iterator[str]:
    """What the bars of test_replay_drafts.py stand below: `--N auto`, and the best fixed N, against plain decoding."""
    yield "way          curve     sampling    all  order answer  <0.97  categories: auto / best fixed"
    for curve in CURVES:
        for temperature in TEMPERATURES:
            for way in ("eagle3", "model", "ngram", "ngram,model"):
                found = orders(curve, way, temperature, of="model" if way == "ngram" else "")
                plays = [played for order in found for played in order]
                best = best_fixed(curve, way, temperature) if way in PRICES else {}
                low = sum(played.speed < 0.97 for played in plays) / len(plays)
                yield (
                    f"{way:12} {curve:9} {temperature:8} {together(plays):.3f} {min(map(together, found)):.3f} "
                    f" {min(played.speed for played in plays):.3f} {low:6.1%}  "
                    + "  ".join(
                        f"{name} {speed:.3f}" + (f"/{best[name]:.2f}" if best else "")
                        for name, speed in by_category(plays).items()
                    )
                )


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in table())
