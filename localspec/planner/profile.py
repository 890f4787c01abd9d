"""What is known about a pair on a machine before the first token: measured by `plan`, or saved by an earlier answer.

Plain numbers; does not know where they came from or where they are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from localspec.errors import UsageError


@dataclass(frozen=True)
class Profile:
    """Times in seconds.

    verify_s    (n, seconds of one verifier pass over n tokens), n = 1 among them
    draft_s     seconds one draft token costs, None: not measured
    acceptance  share of drafted tokens accepted at depth 1, 2, ..., each given that the ones before it were
    """

    verify_s: tuple[tuple[int, float], ...]
    draft_s: float | None = None
    acceptance: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not any(n == 1 for n, _ in self.verify_s):
            raise UsageError("A profile without the time of a plain pass says nothing.", hint="Measure n = 1 as well.")
        if any(n < 1 or seconds <= 0.0 for n, seconds in self.verify_s) or (self.draft_s or 0.0) < 0.0:
            raise UsageError("A profile holds a time that cannot be.", hint="Measure again with `localspec plan`.")
        if any(not 0.0 <= rate <= 1.0 for rate in self.acceptance):
            raise UsageError(
                "A profile holds an acceptance outside 0 .. 1.", hint="Measure again with `localspec plan`."
            )
