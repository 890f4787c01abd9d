"""Notices a pair that cannot work well while it works, and says the likely cause, each thing once.

Plain numbers come in: tokens that were tested and accepted, and what drafting costs. Knows no clock and no model.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from localspec.loop.control import FixedLength, RoundReport

TESTS, RATE = 64, 0.05  # so many tested tokens in a row, and the least share of them to be accepted
DEAR = 0.9  # a draft token may cost less, in plain passes


@dataclass(frozen=True)
class Facts:
    """What is known of a pair before it works.

    drafter  its name, "" where there is only one
    lookup   it evaluates nothing
    experts  (used for a token, in all) of a verifier that is a mixture of experts
    apart    where verifier and draft are, when that is not the same device
    """

    drafter: str = ""
    lookup: bool = False
    experts: tuple[int, int] | None = None
    apart: str = ""


class Diagnosis:
    """What was noticed so far."""

    def __init__(self, facts: Facts | None = None) -> None:
        self._facts = facts or Facts()
        self._tested = self._passed = 0  # of the stretch under way
        self._said: set[str] = set()
        self._lines: list[str] = []

    def tested(self, count: int, accepted: int) -> None:
        """So many draft tokens were tested in a round."""
        self._tested += count
        self._passed += accepted
        if self._tested >= TESTS:
            if self._passed < RATE * self._tested:
                self._say("acceptance", self._refused())
            self._tested = self._passed = 0

    def priced(self, cost: float) -> None:
        """A draft token costs so many plain passes."""
        if cost > DEAR and "price" not in self._said:
            self._say("price", self._dear(cost))

    def warnings(self) -> list[str]:
        """Lines that were not given out yet."""
        given, self._lines = self._lines, []
        return given

    def _refused(self) -> str:
        found = f"Only {self._passed} of {self._tested} tested draft tokens were accepted"
        if self._facts.lookup:
            return f"{found}: what this text repeats is not what follows next, so the lookup does not suit it."
        return (
            f"{found}: the draft does not suit this text, or is of another family, version or training than the "
            "verifier (`localspec models check` compares them)."
        )

    def _dear(self, cost: float) -> str:
        found = f"A draft token costs {cost:.2f} of a plain verifier pass, so drafting cannot pay"
        if self._facts.apart:
            return f"{found}: {self._facts.apart} (see --gpu-layers and --draft-gpu-layers)."
        if self._facts.experts:
            used, total = self._facts.experts
            return (
                f"{found}: the verifier is a mixture that uses {used} of {total} experts for a token, as fast as a "
                "small model; take a much smaller draft, or --drafter ngram."
            )
        return f"{found}: the draft is too large beside this verifier; take a smaller one, or --drafter ngram."

    def _say(self, kind: str, line: str) -> None:
        if kind not in self._said:
            self._said.add(kind)
            self._lines.append(f"{self._facts.drafter}: {line}" if self._facts.drafter else line)


@dataclass(frozen=True)
class WatchedLength(FixedLength):
    """Always N, as was asked for, but not without a word when the draft does not suit the verifier.

    What it costs is not told: t(1) is not measured where every round drafts, and whoever fixes N has reasons.
    """

    diagnosis: Diagnosis = field(default_factory=Diagnosis)

    def observe(self, report: RoundReport) -> None:
        self.diagnosis.tested(report.tested, report.accepted)

    def warnings(self) -> list[str]:
        return self.diagnosis.warnings()
