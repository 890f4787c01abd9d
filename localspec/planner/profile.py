"""What is known about a pair on a machine before the first token: measured by `plan`, or learned by earlier answers.

Plain numbers; does not know where they came from or where they are kept. A profile may be wrong, since machines and
texts change: whoever starts from one lets what is measured now outweigh it within a dozen rounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from localspec.errors import UsageError

AGAIN = "Measure again with `localspec plan`."
MOST = 64
"""Entries of any list in it: more were never measured."""
LARGE = 1e9
"""No second and no count in it comes near this."""


@dataclass(frozen=True)
class Attempt:
    """A round with a draft, on average.

    rows     (n, share of the rounds whose pass held n tokens)
    steps    draft tokens asked for, kept or not
    emitted  tokens that came out
    count    rounds that this is the average of, recent ones counting more
    """

    rows: tuple[tuple[int, float], ...]
    steps: float
    emitted: float
    count: float = 1.0

    def __post_init__(self) -> None:
        if (
            len(self.rows) > MOST
            or any(n < 1 or not 0.0 <= share <= 1.01 for n, share in self.rows)
            or not all(map(_is_measure, (self.steps, self.emitted, self.count)))
            or self.emitted < 1.0
        ):
            raise UsageError("A profile holds a round that cannot be.", hint=AGAIN)


@dataclass(frozen=True)
class Claim:
    """What became of tokens that a drafter was so sure of: `sure` or more, up to the next step of the record.

    accepted  how many of them were, recent ones counting more
    of        how many were tested; of the nodes of trees, how many the drafter's probabilities promised
    """

    sure: float
    accepted: float
    of: float

    def __post_init__(self) -> None:
        if not (0.0 <= self.sure <= 1.0 and _is_measure(self.accepted) and _is_measure(self.of)):
            raise UsageError("A profile holds a claim that cannot be.", hint=AGAIN)

    def at_most(self, most: float) -> Claim:
        """The same, of no more than `most`."""
        return self if self.of <= most else Claim(self.sure, self.accepted * (most / self.of), most)


@dataclass(frozen=True)
class Profile:
    """Times in seconds.

    verify_s    (n, seconds of one verifier pass over n tokens among plain ones, with what it costs the next one), n = 1
                too
    draft_s     seconds one draft token costs, None: not measured
    acceptance  share of drafted tokens accepted at depth 1, 2, ..., each given that the ones before it were
    attempt     what rounds with a draft took and brought when the lengths were chosen well, None: not known
    claims      what the drafter's own confidence was worth in chains
    promises    and in trees
    catch_up_s  seconds that a token costs the drafter which was decoded without it, None: not measured
    purse       plain passes that were left for finding out, None: a few
    """

    verify_s: tuple[tuple[int, float], ...]
    draft_s: float | None = None
    acceptance: tuple[float, ...] = ()
    attempt: Attempt | None = None
    claims: tuple[Claim, ...] = ()
    promises: tuple[Claim, ...] = ()
    catch_up_s: float | None = None
    purse: float | None = None

    def __post_init__(self) -> None:
        if not any(n == 1 for n, _ in self.verify_s):
            raise UsageError("A profile without the time of a plain pass says nothing.", hint="Measure n = 1 as well.")
        times = [*(seconds for _, seconds in self.verify_s), self.draft_s or 0.0, self.catch_up_s or 0.0]
        is_short = max(map(len, (self.verify_s, self.acceptance, self.claims, self.promises))) <= MOST
        if not (is_short and all(map(_is_measure, times)) and all(n >= 1 and s > 0.0 for n, s in self.verify_s)):
            raise UsageError("A profile holds a time that cannot be.", hint=AGAIN)
        if any(not 0.0 <= rate <= 1.0 for rate in self.acceptance):
            raise UsageError("A profile holds an acceptance outside 0 .. 1.", hint=AGAIN)
        if not _is_measure(abs(self.purse or 0.0)):
            raise UsageError("A profile holds a purse that cannot be.", hint=AGAIN)

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
                "count": attempt.count,
            },
            "claims": list(map(asdict, self.claims)),
            "promises": list(map(asdict, self.promises)),
            "catch_up_s": self.catch_up_s,
            "purse": self.purse,
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Profile:
        """What `as_dict` wrote, now or before some of it was known. Raises `UsageError` when it is not that."""
        try:
            attempt = document["attempt"]
            return cls(
                tuple((int(point["n"]), float(point["s"])) for point in document["verify_s"]),
                _number(document["draft_s"]),
                tuple(float(rate) for rate in document["acceptance"]),
                None
                if attempt is None
                else Attempt(
                    tuple((int(point["n"]), float(point["share"])) for point in attempt["rows"]),
                    float(attempt["steps"]),
                    float(attempt["emitted"]),
                    float(attempt.get("count", 1.0)),
                ),
                _claims(document.get("claims", ())),
                _claims(document.get("promises", ())),
                _number(document.get("catch_up_s")),
                _number(document.get("purse")),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise UsageError("This is no profile.", hint=AGAIN) from error


def _is_measure(number: float) -> bool:
    return 0.0 <= number < LARGE


def _number(found: Any) -> float | None:
    return None if found is None else float(found)


def _claims(found: Iterable[Mapping[str, Any]]) -> tuple[Claim, ...]:
    return tuple(Claim(float(claim["sure"]), float(claim["accepted"]), float(claim["of"])) for claim in found)
