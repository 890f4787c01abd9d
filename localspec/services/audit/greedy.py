"""The greedy half of an audit: the speculative text against the plain one, every divergence weighed.

Where the two part, speculation is started again behind the plain token, so that one near tie does not hide what comes
after it. A divergence is explained when plain decoding preferred its token by less than the shape of a batch alone
moves the difference of two logits there. Knows no files and no terminal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from localspec.engine.base import Context
from localspec.services.bench.texts import Difference, first_difference, judge

Tokens = Sequence[int]
Decode = Callable[[Tokens, int], Tokens]
"""(prompt, count) -> that many greedy tokens."""


@dataclass(frozen=True)
class Greedy:
    """How many tokens were compared, and where the texts parted."""

    tokens: int
    divergences: tuple[Difference, ...]

    @property
    def passed(self) -> bool:
        return all(difference.is_near_tie for difference in self.divergences)

    def as_dict(self) -> dict[str, Any]:
        return {
            "tokens": self.tokens,
            "divergences": [
                {
                    "place": one.place,
                    # One text ended before the other: no logit tells by how much.
                    "gap": one.gap if math.isfinite(one.gap) else None,
                    "noise": one.noise,
                    "near_tie": one.is_near_tie,
                }
                for one in self.divergences
            ],
            "passed": self.passed,
        }


def compare(
    plain: Decode,
    speculative: Decode,
    context: Context,
    prompt: Tokens,
    *,
    count: int,
    lengths: Sequence[int],
    branches: int = 1,
    told: Callable[[int], None],
) -> Greedy:
    """Compare `count` tokens after `prompt`; `lengths` are the batch sizes that speculation may decode in, `branches`
    how its drafts may branch.

    `context` is the verifier's, for replaying both ways; what it holds afterwards is left open. `told` hears how far
    the comparison has come.
    """
    text = plain(prompt, count)
    found: list[Difference] = []
    start = 0
    while start < len(text):
        before, rest = [*prompt, *text[:start]], text[start:]
        other = speculative(before, len(rest))
        place = first_difference(rest, other)
        told(len(text) if place is None else start + place + 1)
        if place is None:
            break
        difference = judge(context, prompt, text, [*text[:start], *other], index=0, lengths=lengths, branches=branches)
        assert difference is not None
        found.append(replace(difference, place=start + place))
        start += place + 1
    return Greedy(len(text), tuple(found))
