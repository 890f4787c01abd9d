"""`theory check` and `theory sweep`: is the emitted law the verifier's, and which N pays, without a real model.

The check plays real rounds (drafter, pass, rule, commit) on toy models, whose law is known exactly; the sweep is
arithmetic. Knows nothing about tables or terminals.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from localspec.core import statistics, theory
from localspec.core.coupled import Coupled
from localspec.core.rejection import Rejection
from localspec.core.rule import Rule
from localspec.core.statistics import ChiSquare
from localspec.drafters.base import Budget
from localspec.errors import UsageError
from localspec.loop.round import play_round
from localspec.services.report import Report
from localspec.services.settings import Acceptance
from localspec.services.theory.toy import PROMPT, QUALITIES, SIZE, WHOLE, Quality, ToyPair, laws

CONFIDENCE = 0.95
BLURS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
TOLD = 500  # steps between two signs of progress

Block = tuple[int, ...]
Counts = dict[Block, npt.NDArray[np.int64]]
"""Path below the prompt -> how often each token followed."""


@dataclass(frozen=True)
class Checked:
    """One draft quality. alpha: long-run expectation; accepted, tested: what the steps counted."""

    quality: Quality
    alpha: float
    accepted: int
    tested: int
    test: ChiSquare

    @property
    def passed(self) -> bool:
        return self.test.dof == 0 or self.test.chi2 < self.test.critical(CONFIDENCE)

    def as_dict(self) -> dict[str, Any]:
        return {
            "draft": self.quality.name,
            "blur": self.quality.blur,
            "alpha": self.alpha,
            "accepted": self.accepted,
            "tested": self.tested,
            "chi2": self.test.chi2,
            "dof": self.test.dof,
            "critical_95": self.test.critical(CONFIDENCE),
            "passed": self.passed,
        }


@dataclass(frozen=True)
class Check:
    """The law that speculation emits against the verifier's; `samples` steps of each draft quality."""

    samples: int
    N: int
    seed: int
    acceptance: Acceptance
    rows: tuple[Checked, ...]

    @property
    def test(self) -> ChiSquare:
        """All drafts together."""
        return statistics.combined(row.test for row in self.rows)

    @property
    def passed(self) -> bool:
        return self.test.chi2 < self.test.critical(CONFIDENCE)

    def as_dict(self) -> dict[str, Any]:
        """The document of `theory check --json` (contract.md), with the drafts one by one."""
        return {
            "schema": "localspec.theory.check/1",
            "samples": self.samples,
            "N": self.N,
            "seed": self.seed,
            "acceptance": self.acceptance,
            "chi2": self.test.chi2,
            "dof": self.test.dof,
            "critical_95": self.test.critical(CONFIDENCE),
            "p_value": self.test.p_value,
            "passed": self.passed,
            "rows": [row.as_dict() for row in self.rows],
        }


def check(*, samples: int, N: int, seed: int, acceptance: Acceptance, report: Report) -> Check:
    """Play `samples` rounds of each quality behind one prompt and count what they emit."""
    rows = []
    for place, quality in enumerate(QUALITIES):
        what = f"Drafting with the {quality.name} draft"
        pair = ToyPair(quality.blur, seed=seed)
        counts: Counts = defaultdict(lambda: np.zeros(SIZE, dtype=np.int64))
        accepted = tested = 0
        for step, (block, judged) in enumerate(rounds(pair, N, samples, rules(acceptance, (seed, place))), start=1):
            for at, token in enumerate(block):
                counts[block[:at]][token] += 1
            accepted += len(block) - 1
            tested += judged
            if step % TOLD == 0 or step == samples:
                report.progress(what, step, samples, "steps")
        rows.append(Checked(quality, pair.alpha(), accepted, tested, against_the_law(counts, pair)))
    found = Check(samples, N, seed, acceptance, tuple(rows))
    if found.test.dof == 0:
        raise UsageError(f"--samples {samples} is too few to test anything.", hint="Try --samples 1000.")
    return found


def rounds(pair: ToyPair, N: int, count: int, rule_of: Callable[[int], Rule]) -> Iterator[tuple[Block, int]]:
    """The tokens of `count` rounds behind the prompt, and how many drafted tokens were tested."""
    verifier, drafter = pair.verifier(), pair.drafter()
    text = np.array(PROMPT, dtype=np.int32)
    verifier.prefill(text[:-1], logits=False)
    budget = Budget(N, pays=lambda depth, confidence: True)
    for step in range(count):
        rule = rule_of(step)
        drafter.begin(text, sampling=WHOLE, rule=rule, cancelled=budget.cancelled)
        played = play_round(
            text,
            verifier=verifier,
            propose=lambda: drafter.propose(text, budget),
            observe=drafter.observe,
            sampling=WHOLE,
            rule=rule,
            keep=len,
        )
        verifier.rewind(len(text) - 1)
        yield played.block, played.verdict.tested


def rules(acceptance: Acceptance, seed: tuple[int, int]) -> Callable[[int], Rule]:
    """The rule of each step: one generator for all, or another seed every time."""
    if acceptance == "coupled":
        seeds = np.random.default_rng(seed)
        return lambda step: Coupled(int(seeds.integers(2**63)))
    rule = Rejection(np.random.default_rng(seed))
    return lambda step: rule


def against_the_law(counts: Counts, pair: ToyPair) -> ChiSquare:
    """The tokens after every path against the verifier's law there, all paths together.

    Whether a round reaches beyond a path is decided by the token before, so what follows the path still has its law.
    """
    law = laws(pair.verifier_model)
    tests = []
    for path, seen in counts.items():
        before, last = (*PROMPT, *path)[-2:]
        tests.append(statistics.fit(seen, law((before, last)).dense(SIZE)))
    return statistics.combined(test for test in tests if test.dof)


@dataclass(frozen=True)
class Sweep:
    """What N brings at one alpha and c. best_N 0: nothing pays."""

    alpha: float
    c: float
    longest: int
    seed: int

    @property
    def best_N(self) -> int:
        return theory.best_length(self.alpha, self.c, self.longest)

    def rows(self) -> list[dict[str, Any]]:
        return [
            {
                "N": N,
                "tokens_per_pass": theory.tokens_per_pass(self.alpha, N),
                "time_per_token": theory.time_per_token(self.alpha, N, self.c),
                "speedup": theory.speedup(self.alpha, N, self.c),
            }
            for N in range(1, self.longest + 1)
        ]

    def shape(self) -> list[str]:
        """Why the curve looks as it does, in sentences."""
        alpha, c, best = self.alpha, self.c, self.best_N
        ceiling = "N + 1" if alpha == 1.0 else f"1 / (1 - alpha) = {1 / (1 - alpha):.2f}"
        said = [
            f"Tokens per pass grow towards {ceiling}: token N counts only if all before it are accepted, so it adds "
            "alpha^N.",
            f"Every draft token costs the same {c:g} of a verifier pass, so the time of a round grows in a line.",
        ]
        if best == 0:
            said.append(f"Nothing pays: the first token adds alpha = {alpha:g} tokens and costs c = {c:g} of a pass.")
        elif best == self.longest:
            said.append(f"At N = {best} one more token still pays: the best N is here or further out.")
        else:
            pace = 1.0 / theory.time_per_token(alpha, best, c)
            said.append(
                f"The best N is {best}: the next token would add {alpha ** (best + 1):.3f} tokens for {c:g} of a pass, "
                f"and {c:g} of a pass is worth {c * pace:.3f} tokens at the pace reached."
            )
        return said

    def qualities(self) -> list[dict[str, Any]]:
        """Alpha of ever worse toy drafts, and the best N with it."""
        found = []
        for blur in BLURS:
            alpha = min(1.0, ToyPair(blur, seed=self.seed).alpha())
            best = theory.best_length(alpha, self.c, self.longest)
            found.append({"blur": blur, "alpha": alpha, "best_N": best, "speedup": theory.speedup(alpha, best, self.c)})
        return found

    def as_dict(self) -> dict[str, Any]:
        """The document of `theory sweep --json` (contract.md), with the shape in words and the toy drafts."""
        return {
            "schema": "localspec.theory.sweep/1",
            "alpha": self.alpha,
            "c": self.c,
            "rows": self.rows(),
            "best_N": self.best_N,
            "shape": self.shape(),
            "qualities": self.qualities(),
        }
