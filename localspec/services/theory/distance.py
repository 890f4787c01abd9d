"""`theory distance`: how acceptance falls as the draft's law moves away from the verifier's.

For one draw the acceptance is exactly 1 minus the total-variation distance; a divergence KL(q || p) bounds it from
below. Both are shown next to what the real rule accepts. Knows nothing about tables or terminals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from localspec.core import theory
from localspec.core.draft import Draft
from localspec.core.rejection import Rejection
from localspec.services.report import Report
from localspec.services.theory.toy import SIZE, ToyPair, laws, table

BLURS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True)
class Point:
    """One context of the toy model."""

    kl: float
    alpha: float


@dataclass(frozen=True)
class Apart:
    """A draft quality, averaged over a long text of the verifier.

    alpha     expected sum of min(p, q)
    measured  share of `samples` single draws that the rule accepted
    bound     what the mean KL alone guarantees
    """

    blur: float
    kl: float
    alpha: float
    measured: float
    bound: float
    points: tuple[Point, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "blur": self.blur,
            "kl": self.kl,
            "alpha": self.alpha,
            "measured": self.measured,
            "bound": self.bound,
            "points": [{"kl": point.kl, "alpha": point.alpha} for point in self.points],
        }


@dataclass(frozen=True)
class Distance:
    """All draft qualities."""

    samples: int
    seed: int
    rows: tuple[Apart, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "schema": "localspec.theory.distance/1",
            "samples": self.samples,
            "seed": self.seed,
            "rows": [row.as_dict() for row in self.rows],
        }


def distance(*, samples: int, seed: int, report: Report) -> Distance:
    """Measure every quality with `samples` single draws."""
    rows = []
    for place, blur in enumerate(BLURS):
        rows.append(apart(ToyPair(blur, seed=seed), blur, samples, np.random.default_rng([seed, place])))
        report.progress("Drafts of ever worse quality", place + 1, len(BLURS), "steps")
    return Distance(samples, seed, tuple(rows))


def apart(pair: ToyPair, blur: float, samples: int, rng: np.random.Generator) -> Apart:
    """Distance and acceptance of one draft."""
    q, p = table(pair.verifier_model), table(pair.draft_model)
    weights = theory.long_run(q).ravel()
    rows = list(zip(q.reshape(-1, SIZE), p.reshape(-1, SIZE), strict=True))
    points = tuple(Point(theory.divergence(*both), theory.overlap(*both)) for both in rows)
    kl = float(weights @ np.array([point.kl for point in points]))
    return Apart(
        blur,
        kl,
        float(weights @ np.array([point.alpha for point in points])),
        accepted(pair, samples, weights / weights.sum(), rng),
        theory.least_overlap(kl),
        points,
    )


def accepted(pair: ToyPair, samples: int, weights: theory.Probs, rng: np.random.Generator) -> float:
    """Share of drafts of one token that the rule accepts, in contexts as frequent as in a long text."""
    verifier, draft, rule = laws(pair.verifier_model), laws(pair.draft_model), Rejection(rng)
    count = 0
    for context in rng.choice(len(weights), size=samples, p=weights).tolist():
        before, last = divmod(context, SIZE)
        token, law = rule.guess(draft((before, last)), 2)
        ways = (verifier((before, last)), verifier((last, token)))
        count += len(rule.accept(Draft.chain([token], [law]), ways.__getitem__, 2).path)
    return count / samples
