"""What is known about a pair on a machine before the first token: measured by `plan`, or learned by earlier answers.

Plain numbers; does not know where they came from or where they are kept. A profile may be wrong, since machines and
texts change: whoever starts from one lets what is measured now outweigh it within a few rounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from localspec.errors import UsageError

AGAIN = "Measure again with `localspec plan`."
MOST = 64
"""Entries of any list in it: more were never measured."""


@dataclass(frozen=True)
class Attempt:
    """A round with a draft, on average.

    rows     (n, share of the rounds whose pass held n tokens)
    steps    draft tokens asked for, kept or not
    emitted  tokens that came out
    """

    rows: tuple[tuple[int, float], ...]
    steps: float
    emitted: float

    def __post_init__(self) -> None:
        if (
            len(self.rows) > MOST
            or any(n < 1 or not 0.0 <= share <= 1.01 for n, share in self.rows)
            or not (_is_measure(self.steps) and _is_measure(self.emitted) and self.emitted >= 1.0)
        ):
            raise UsageError("A profile holds a round that cannot be.", hint=AGAIN)


@dataclass(frozen=True)
class Profile:
    """Times in seconds.

    verify_s    (n, seconds of one verifier pass over n tokens), n = 1 among them
    draft_s     seconds one draft token costs, None: not measured
    acceptance  share of drafted tokens accepted at depth 1, 2, ..., each given that the ones before it were
    attempt     what rounds with a draft took and brought when the lengths were chosen well, None: not known
    """

    verify_s: tuple[tuple[int, float], ...]
    draft_s: float | None = None
    acceptance: tuple[float, ...] = ()
    attempt: Attempt | None = None

    def __post_init__(self) -> None:
        if not any(n == 1 for n, _ in self.verify_s):
            raise UsageError("A profile without the time of a plain pass says nothing.", hint="Measure n = 1 as well.")
        times = [*(seconds for _, seconds in self.verify_s), *([] if self.draft_s is None else [self.draft_s])]
        is_short = len(self.verify_s) <= MOST and len(self.acceptance) <= MOST
        if not (is_short and all(map(_is_measure, times)) and all(n >= 1 and s > 0.0 for n, s in self.verify_s)):
            raise UsageError("A profile holds a time that cannot be.", hint=AGAIN)
        if any(not 0.0 <= rate <= 1.0 for rate in self.acceptance):
            raise UsageError("A profile holds an acceptance outside 0 .. 1.", hint=AGAIN)

    def as_dict(self) -> dict[str, Any]:
        """As it is written down, in JSON."""
        attempt = self.attempt
        return {
            "verify_s": [{"n": n, "s": seconds} for n, seconds in self.verify_s],
            "draft_s": self.draft_s,
            "acceptance": list(self.acceptance),
            "attempt": attempt
            and {
                "rows": [{"n": n, "share": share} for n, share in attempt.rows],
                "steps": attempt.steps,
                "emitted": attempt.emitted,
            },
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Profile:
        """What `as_dict` wrote. Raises `UsageError` when it is not that."""
        try:
            attempt = document["attempt"]
            return cls(
                tuple((int(point["n"]), float(point["s"])) for point in document["verify_s"]),
                None if document["draft_s"] is None else float(document["draft_s"]),
                tuple(float(rate) for rate in document["acceptance"]),
                attempt
                and Attempt(
                    tuple((int(point["n"]), float(point["share"])) for point in attempt["rows"]),
                    float(attempt["steps"]),
                    float(attempt["emitted"]),
                ),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise UsageError("This is no profile.", hint=AGAIN) from error


def _is_measure(number: float) -> bool:
    return math.isfinite(number) and number >= 0.0
