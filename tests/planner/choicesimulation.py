"""Several drafters on one machine with a simulated clock: texts that each of them is good at in places, and oracles.

As in tests/planner/simulation.py: the controller is shown times with jitter, speeds are counted in the true times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from localspec.loop.control import RoundReport
from localspec.loop.rest import Rest
from localspec.planner.books import Books
from localspec.planner.choice import Choice
from localspec.planner.controller import AutoLength
from tests.planner.simulation import PROMPT, Run, Shape, Text, fixed_speed
from tests.planner.simulation import Machine as OneDrafter


@dataclass(frozen=True)
class Arm:
    """One drafter. draft: seconds of a token, in plain passes; a lookup's question takes `draft` however long."""

    text: Text
    draft: float
    lookup: bool = False
    catch_up: float = 0.1


@dataclass
class Played(Run):
    """heard: who drafted, round by round."""

    heard: list[str] = field(default_factory=list)

    def share(self, name: str, start: int, end: int) -> float:
        """Of the rounds that started at these tokens, those that this drafter had."""
        rounds = [who for who, at in zip(self.heard, self.starts, strict=True) if start <= at < end]
        return rounds.count(name) / len(rounds)


def choice(arms: Mapping[str, Arm], *, longest: int = 15) -> Choice:
    books = Books(15)
    return Choice(
        {name: AutoLength(lookup=arm.lookup, longest=longest, books=books) for name, arm in arms.items()}, books
    )


def play(
    chooser: Choice,
    shape: Shape,
    arms: Mapping[str, Arm],
    *,
    tokens: int,
    answer: int | None = None,
    noise: float = 0.05,
    seed: int = 0,
) -> Played:
    """Decode `tokens` tokens, in answers of `answer` tokens each (None: one answer)."""
    rng = np.random.default_rng(seed)
    run, plain = Played(), shape(1)
    answer, rest = answer or tokens, Rest(chooser)

    def begun() -> dict[str, int]:
        """Tokens of the prompt that each of them has not read."""
        chooser.begin(PROMPT)
        return {name: PROMPT if name in chooser.later else 0 for name in arms}

    in_answer, missed = 0, begun()

    def shown(seconds: float) -> float:
        late = 3.0 if rng.random() < 0.01 else 1.0
        return seconds * late * float(np.exp(noise * rng.standard_normal()))

    while run.tokens < tokens:
        if in_answer >= answer:
            rest.end()
            in_answer, missed = 0, begun()
        room = min(answer - in_answer, tokens - run.tokens) - 1
        heard, drafted, said, draft_s, asked = "none", 0, tuple[float, ...](), 0.0, set[str]()
        limit = rest.limit(room)
        for name, most, _ in chooser.turns() if limit else ():
            arm = arms[name]
            asked.add(name)
            assert arm.text.said is not None
            claims, steps, count = list[float](), 0, 0
            while count < min(limit, most):
                steps += 1
                confidence = float(arm.text.said[run.tokens + count])
                if not chooser.pays(count + 1, confidence):
                    break
                claims.append(confidence)
                count += 1
            draft_s += plain * arm.draft * (1 if arm.lookup else steps + arm.catch_up * missed[name])
            if count:
                heard, drafted, said = name, count, tuple(claims)
        accepted = 0
        while accepted < drafted and arms[heard].text.accepted[run.tokens + accepted]:
            accepted += 1
        verify_s = shape(drafted + 1)
        rest.tell(
            RoundReport(
                drafted=drafted,
                tested=min(accepted + 1, drafted),
                accepted=accepted,
                refused=accepted < drafted,
                draft_s=shown(draft_s),
                verify_s=shown(verify_s),
                confidences=said,
                drafter=heard,
            )
        )
        run.starts.append(run.tokens)
        run.lengths.append(drafted)
        run.heard.append(heard)
        run.tokens += accepted + 1
        run.seconds += draft_s + verify_s
        in_answer += accepted + 1
        missed = {name: 0 if name in asked else missed[name] + accepted + 1 for name in arms}
    rest.end()
    return run


def oracle(shape: Shape, arms: Mapping[str, Arm], parts: Sequence[int]) -> float:
    """Tokens per second of who knows in each part of the text which drafter is best there, and how far to draft."""
    seconds, at = 0.0, 0
    for size in parts:
        speeds = []
        for arm in arms.values():
            words = Text(arm.text.accepted[at : at + size + 20], None)
            machine = OneDrafter(shape, 0.0 if arm.lookup else arm.draft)
            speeds += [fixed_speed(N, machine, words, tokens=size) for N in range(16)]
        seconds += size / max(speeds)
        at += size
    return at / seconds
