"""The table of a benchmark: runs added up by configuration and category. Definitions: docs/definitions.md.

Pure arithmetic over finished runs; knows nothing about how they were made.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

from localspec.loop.counters import Counters
from localspec.services.bench.runs import PLAIN, Configuration, Run
from localspec.services.bench.texts import Difference, loop_share

ALL = "all"


@dataclass(frozen=True)
class Spread:
    """Smallest, middle and largest of several measurements."""

    min: float
    median: float
    max: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """None when there is nothing to measure."""
        known = [value for value in values if value is not None]
        return cls(min(known), statistics.median(known), max(known)) if known else None

    def as_dict(self) -> dict[str, float]:
        return {"min": self.min, "median": self.median, "max": self.max}


@dataclass(frozen=True)
class Row:
    """One configuration on the prompts of one category.

    speedup       each run against the plain run of the same prompt and repeat; the baseline's own is 1
    differing     prompts whose greedy text is not the plain text, near ties left out: a bug, or a broken build
    near_ties     prompts whose greedy text parts from the plain text where the backend's arithmetic explains it
    loop_share    share of 4-grams that their text had said before, over all runs
    fallen_back   runs that ended without the drafter they began with
    """

    configuration: Configuration
    category: str
    tokens_per_s: Spread | None
    speedup: Spread | None
    ttft_s: float | None
    total: Counters
    differing: int
    near_ties: int
    loop_share: float | None
    fallen_back: int

    def as_dict(self) -> dict[str, Any]:
        """A row of `bench --json` (contract.md), with the columns about the text added."""
        total = self.total
        return {
            "drafter": self.configuration.drafter,
            "N": self.configuration.N,
            "tree": self.configuration.tree,
            "category": self.category,
            "tokens_per_s": self.tokens_per_s and self.tokens_per_s.as_dict(),
            "speedup": self.speedup and self.speedup.as_dict(),
            "alpha": total.alpha,
            "acceptance_rate": total.acceptance_rate,
            "tokens_per_pass": total.tokens_per_pass,
            "drafted": total.drafted,
            "tested": total.tested,
            "accepted": total.accepted,
            "accepted_by_position": total.accepted_by_position,
            "drafters": {name: asdict(share) for name, share in total.shares.items()},
            "verifier_passes": total.verifier_passes,
            "completion_tokens": total.completion_tokens,
            "ttft_s": self.ttft_s,
            "overhead": total.overhead,
            "draft_share": share(total.draft_s, total.decode_s),
            "verify_share": share(total.verify_s, total.decode_s),
            "differing": self.differing,
            "near_ties": self.near_ties,
            "loop_share": self.loop_share,
            "fallen_back": self.fallen_back,
        }


def rows(runs: Sequence[Run], differences: dict[Configuration, list[Difference]]) -> list[Row]:
    """One row per configuration and category, and one over all categories where there are several."""
    categories = list(dict.fromkeys(run.category for run in runs))
    contestants = list(dict.fromkeys([PLAIN, *(run.turn.configuration for run in runs)]))
    baseline = {(run.turn.prompt, run.turn.repeat): run for run in runs if run.turn.configuration == PLAIN}
    groups = [ALL] if len(categories) == 1 else [ALL, *categories]
    return [
        row(
            [run for run in runs if run.turn.configuration == configuration and group in (ALL, run.category)],
            configuration,
            category=group,
            baseline=baseline,
            differences=differences.get(configuration, []),
        )
        for configuration in contestants
        for group in groups
    ]


def row(
    runs: Sequence[Run],
    configuration: Configuration,
    *,
    category: str,
    baseline: dict[tuple[int, int], Run],
    differences: Sequence[Difference],
) -> Row:
    """The runs of one configuration on one category."""
    prompts = {run.turn.prompt for run in runs}
    here = [difference for difference in differences if difference.prompt in prompts]
    return Row(
        configuration=configuration,
        category=category,
        tokens_per_s=Spread.of(run.stats.tokens_per_s for run in runs),
        speedup=Spread.of(speedup(run, baseline.get((run.turn.prompt, run.turn.repeat))) for run in runs),
        ttft_s=median(run.stats.ttft_s for run in runs),
        total=added(run.stats for run in runs),
        differing=len({difference.prompt for difference in here if not difference.is_near_tie}),
        near_ties=len({difference.prompt for difference in here if difference.is_near_tie}),
        loop_share=mean_share(runs),
        fallen_back=sum(run.drafter != configuration.drafter for run in runs),
    )


def speedup(run: Run, plain: Run | None) -> float | None:
    """How many times faster than the plain run of the same prompt.

    With as many tokens in both this is the ratio of their decode times; where sampling made one longer, the ratio of
    their tokens per second.
    """
    if plain is None or not run.stats.tokens_per_s or not plain.stats.tokens_per_s:
        return None
    return run.stats.tokens_per_s / plain.stats.tokens_per_s


def added(stats: Iterable[Counters]) -> Counters:
    """Sums of what can be summed; rates are computed from the sums, never averaged."""
    total = Counters()
    for one in stats:
        for name in SUMMED:
            setattr(total, name, getattr(total, name) + getattr(one, name))
        total.join(one.shares)
        both = zip_longest(total.accepted_by_position, one.accepted_by_position, fillvalue=0)
        total.accepted_by_position = [mine + theirs for mine, theirs in both]
    return total


SUMMED = (
    "completion_tokens",
    "verifier_passes",
    "drafted",
    "tested",
    "accepted",
    "bonus_tokens",
    "residual_tokens",
    "prefill_s",
    "prefill_tokens",
    "decode_s",
    "draft_s",
    "verify_s",
    "accept_s",
    "engine_s",
)


def median(values: Iterable[float | None]) -> float | None:
    spread = Spread.of(values)
    return spread.median if spread else None


def share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def mean_share(runs: Sequence[Run]) -> float | None:
    """Mean of `loop_share` over the texts that are long enough."""
    known = [value for value in (loop_share(run.tokens) for run in runs) if value is not None]
    return sum(known) / len(known) if known else None
