"""Real answers, played again through the real drafter and the loop's rests on a machine with a simulated clock.

No model is needed, since the text is known; so a whole benchmark of prompt lookup takes seconds, and its figures
are the same everywhere. As in `simulation`, the controller is shown times with jitter, and speeds are counted in the
true ones.
`python -m tests.planner.replay` prints what came of it; recorded.json.gz is made by `record`, which says how.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NoReturn

import numpy as np

from localspec.core.draft import Draft, Verdict
from localspec.core.rejection import Rejection
from localspec.core.sampling import Sampling
from localspec.drafters.ngram import Ngram, Options
from localspec.loop.control import Controller, RoundReport
from localspec.loop.proposer import Proposer
from localspec.loop.rest import Rest
from localspec.planner.controller import AutoLength
from tests.drafters.settings import Lender

FILE = Path(__file__).with_name("recorded.json.gz")
TEMPERATURES = ("T=0", "T=0.8", "T=1")
SEEDS = range(5)
ROOM = 15
PLAIN_S = 0.006
LOOK = 0.01  # what looking costs, in plain passes
NOISE = 0.03  # relative jitter of the times that are shown; one in a hundred is twice too long
LONG = 64  # tokens, from which on a single answer is judged
COPIED = 8  # tokens of agreement from which on a text is being copied

# t(n) in plain passes, n = 1 .. 16
CURVES = {
    # measured: SmolLM2-135M on two CPU cores, bound by compute
    "Q4_1": (1, 2.0, 2.42, 3.28, 3.5, 4.7, 4.45, 5.3, 5.8, 6.2, 6.6, 7.0, 7.4, 7.8, 8.2, 8.6),
    # the same on another day: its first rows are dearer than those behind them
    "Q4_1, steep": (1, 2.2, 2.62, 3.02, 3.6, 4.18, 4.4, 4.58, 5.0, 5.4, 5.8, 6.23, 6.55, 6.87, 7.2, 7.5),
    # the same weights, bound by memory
    "F32": (1, 1.38, 1.72, 1.85, 2.05, 2.25, 2.4, 2.6, 2.8, 2.95, 3.1, 3.3, 3.45, 3.7, 3.9, 4.2),
    # as on a GPU
    "flat": (1, 1.02, 1.05, 1.06, 1.08, 1.09, 1.1, 1.11, 1.15, 1.16, 1.17, 1.18, 1.19, 1.2, 1.21, 1.22),
}


# what a token of a long prompt takes, in plain passes
PROMPT_ROWS = {"Q4_1": 0.45, "Q4_1, steep": 0.45, "F32": 0.18, "flat": 0.02}
# what a plain pass behind a wider one takes longer: llama.cpp builds its graph anew
ANEW = {"Q4_1": 0.08, "Q4_1, steep": 0.08, "F32": 0.04, "flat": 0.08}


@dataclass(frozen=True)
class Recording:
    """One answer as the model gave it. copied: of each of its tokens, does it go on a run that stood there before?"""

    temperature: str
    category: str
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    copied: tuple[bool, ...]


@dataclass
class Played:
    """What became of a recording; `cost` in plain passes. missed: copied tokens, in rounds without a draft."""

    recording: Recording
    cost: float = 0.0
    missed: int = 0
    accepted: list[int] = field(default_factory=list)  # by round

    @property
    def speed(self) -> float:
        """Against plain decoding."""
        return len(self.recording.answer) / self.cost


@cache
def recordings(temperature: str) -> tuple[Recording, ...]:
    document = json.loads(gzip.decompress(FILE.read_bytes()))
    return tuple(
        Recording(temperature, prompt["category"], *whole, _copied(*whole))
        for answer in document["answers"]
        if answer["temperature"] == temperature
        for prompt in [document["prompts"][answer["prompt"]]]
        for whole in [(tuple(prompt["tokens"]), tuple(answer["tokens"]))]
    )


def _copied(prompt: tuple[int, ...], answer: tuple[int, ...]) -> tuple[bool, ...]:
    """Is each token what followed where the `COPIED` tokens before it stood last?"""
    text, found = "".join(map(chr, prompt + answer)), []
    for at in range(len(prompt), len(text)):
        there = text.rfind(text[at - COPIED : at], 0, at - 1)
        found.append(there >= 0 and text[there + COPIED] == text[at])
    return tuple(found)


class Words:
    """The least that a vocabulary must be: nothing here is text."""

    size = 49152

    def is_end(self, token: int) -> bool:
        return False

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        raise AssertionError(text)

    def piece(self, token: int, *, special: bool = False) -> bytes:
        raise AssertionError(token)


class Clock:
    """Shows times with jitter, one in a hundred twice too long."""

    def __init__(self, plain_s: float, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self._plain_s = plain_s

    def shown(self, passes: float) -> float:
        """So many plain passes, in seconds."""
        late = 2.0 if self.rng.random() < 0.01 else 1.0
        return passes * self._plain_s * late * float(np.exp(NOISE * self.rng.standard_normal()))


def judged(draft: Draft, answer: Sequence[int], at: int) -> Verdict:
    """A chain against what the answer says from token `at` on."""
    drafted, accepted = len(draft), 0
    while accepted < drafted and draft.tokens[accepted] == answer[at + accepted]:
        accepted += 1
    refused = accepted < drafted
    return Verdict(
        path=tuple(range(accepted)),
        next_token=answer[at + accepted],
        source="residual" if refused else "bonus",
        tested=accepted + refused,
    )


class Session:
    """A pair with prompt lookup: what drafter and controller learn in one answer they keep for the next."""

    def __init__(self, curve: str, *, controller: Controller | None = None, seed: int = 0) -> None:
        self._curve, self._costs = curve, CURVES[curve]
        self._controller = controller or AutoLength(lookup=True)
        self._drafter = Ngram(Options(), Lender(Words(), no_model))
        self._proposer = Proposer(self._drafter, self._controller, vocab=Words(), warn=told_of_a_failure)
        self._clock = Clock(PLAIN_S, seed)

    def play(self, recording: Recording) -> Played:
        """One answer, round by round as in `loop.generation`."""
        prompt, answer = recording.prompt, recording.answer
        tokens = np.array(prompt + answer, dtype=np.int32)
        rest, proposer, played, at, before = Rest(self._controller), self._proposer, Played(recording), 0, 0
        self._controller.read(len(prompt), self._clock.shown(PROMPT_ROWS[self._curve] * len(prompt)))
        proposer.begin(
            tokens[: len(prompt)], sampling=Sampling(), rule=Rejection(self._clock.rng), cancelled=lambda: False
        )
        while at < len(answer):
            limit = 0 if rest.is_parked else rest.limit(min(ROOM, len(answer) - at - 1))
            draft = proposer.propose(tokens[: len(prompt) + at], limit, leaves=1)
            verdict = judged(draft, answer, at)
            drafted, accepted = len(draft), len(verdict.path)
            look = LOOK if limit else 0.0
            passed = self._costs[drafted] + (ANEW[self._curve] if before and not drafted else 0.0)
            before = drafted
            rest.tell(
                RoundReport(
                    drafted=drafted,
                    tested=verdict.tested,
                    accepted=accepted,
                    refused=accepted < drafted,
                    draft_s=self._clock.shown(look),
                    verify_s=self._clock.shown(passed),
                    confidences=proposer.confidences(draft, verdict),
                )
            )
            played.cost += passed + look
            played.missed += not drafted and recording.copied[at]
            played.accepted.append(accepted)
            at += accepted + 1
        rest.end()
        return played


def no_model() -> NoReturn:
    raise AssertionError("a lookup needs no model")


def told_of_a_failure(warning: str) -> NoReturn:
    raise AssertionError(warning)


@cache
def session(curve: str, temperature: str, seed: int) -> tuple[Played, ...]:
    """All recordings of this temperature, in an order of this seed's, decoded in one session that starts afresh."""
    playing, found = Session(curve, seed=seed), recordings(temperature)
    return tuple(playing.play(found[number]) for number in np.random.default_rng(seed).permutation(len(found)))


def together(plays: Iterable[Played]) -> float:
    """The speed of all of them."""
    found = list(plays)
    return sum(len(played.recording.answer) for played in found) / sum(played.cost for played in found)


def table() -> Iterator[str]:
    """What the bars of test_replay.py stand below: speeds against plain, and how much of what is copied is missed."""
    categories = list(dict.fromkeys(recording.category for recording in recordings("T=0")))
    yield f"curve sampling    all  order answer  missed most  {'  '.join(categories)}"
    for curve in CURVES:
        for temperature in TEMPERATURES:
            orders = [session(curve, temperature, seed) for seed in SEEDS]
            plays = [played for order in orders for played in order]
            worst = min(played.speed for played in plays if len(played.recording.answer) >= LONG)
            missed = sum(played.missed for played in plays) / sum(sum(played.recording.copied) for played in plays)
            yield (
                f"{curve:5} {temperature:8} {together(plays):.3f} {min(map(together, orders)):.3f}  {worst:.3f} "
                f"{missed:7.1%} {max(played.missed for played in plays):4}  "
                + "  ".join(
                    f"{together(played for played in plays if played.recording.category == name):{len(name)}.3f}"
                    for name in categories
                )
            )


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in table())
