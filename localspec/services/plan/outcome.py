"""What a plan is asked for and what it says: the request, what was found of each drafter, the recommendation, as JSON.

Measures and judges nothing: see `plan`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localspec.errors import UsageError
from localspec.planner.plan import Candidate, Costs
from localspec.planner.profile import Profile
from localspec.services.plan import texts as plan_texts
from localspec.services.plan.checks import Check
from localspec.services.plan.texts import Text
from localspec.services.prompts import Prompt
from localspec.services.settings import AnswerSettings

SCHEMA = "localspec.plan/1"
TASKS = {
    "chat": ("chat",),
    "code": ("code", "code-edit"),
    "json": ("json",),
    "summary": ("summary",),
    "creative": ("creative",),
}
"""A task -> categories of the built-in prompts."""


@dataclass(frozen=True)
class Request:
    """What to plan for.

    task        one of `TASKS`, "prompts" for the user's own, None: all built-in prompts
    latency_ms  longest wait between two visible pieces, None: no matter
    parallel    texts that are decoded side by side
    """

    prompts: Sequence[Prompt]
    answer: AnswerSettings
    task: str | None = None
    latency_ms: float | None = None
    parallel: int = 1
    options: Mapping[str, str] = field(default_factory=dict)
    system: str | None = None
    raw: bool = False

    def __post_init__(self) -> None:
        if self.answer.max_tokens is not None and self.answer.max_tokens < plan_texts.SHORTEST:
            raise UsageError(
                f"answers of {self.answer.max_tokens} tokens are too short to plan from",
                hint=f"Choose --max-tokens {plan_texts.SHORTEST} or more; 64 is a good number.",
            )


@dataclass(frozen=True)
class Judged:
    """One drafter: all ways to use it.

    alpha   accepted / tested: of its best chain on these texts; a model's: mean of sum(min(p, q)) when sampling
    tried   it was run instead of computed
    """

    drafter: str
    candidates: list[Candidate]
    alpha: float | None
    costs: Costs
    tried: bool = False

    @property
    def best(self) -> Candidate:
        return max(self.candidates, key=lambda one: one.speedup)


@dataclass(frozen=True)
class Plan:
    """The result. `chosen` None: do not speculate. `around`: the lengths beside the best one, arithmetic included."""

    machine: dict[str, Any]
    llama_cpp: str
    settings: dict[str, Any]
    request: Request
    texts: list[Text]
    judged: list[Judged]
    chosen: Candidate | None
    fallback: Candidate | None
    around: list[Candidate]
    profile: Profile
    stored: Path | None
    checks: list[Check]
    warnings: list[str]
    reasons: list[str]

    @property
    def speedup(self) -> float:
        return self.chosen.speedup if self.chosen else 1.0

    def costs_of(self, drafter: str) -> Costs:
        return next(one.costs for one in self.judged if one.drafter == drafter)

    def as_dict(self) -> dict[str, Any]:
        """The document of `plan --json` (contract.md), with more besides."""
        request, answer = self.request, self.request.answer
        draft = self.settings["draft"]
        return {
            "schema": SCHEMA,
            "machine": self.machine,
            "llama_cpp": self.llama_cpp,
            "verifier": Path(self.settings["verifier"]).name,
            "draft": Path(draft).name if draft else None,
            "task": request.task,
            "temperature": answer.sampling.temperature,
            "latency_ms": request.latency_ms,
            "parallel": request.parallel,
            "protocol": {
                "prompts": len(self.texts),
                "tokens": sum(len(text.answer) for text in self.texts),
                "max_tokens": answer.max_tokens,
                "acceptance": answer.rule,
                "seed": answer.seed,
            },
            "recommendation": named(self.chosen),
            "expected_speedup": self.speedup,
            "alpha": self.chosen.alpha if self.chosen else None,
            "candidates": [self.explained(one) for one in self.around],
            "fallback": named(self.fallback),
            "drafters": [
                {
                    "drafter": one.drafter,
                    "alpha": one.alpha,
                    "tried": one.tried,
                    "best": {**named(one.best), "speedup": one.best.speedup},
                    "curve": [
                        {"N": each.N, "tree": each.tree, "speedup": each.speedup, "low": each.low, "high": each.high}
                        for each in one.candidates
                    ],
                }
                for one in self.judged
            ],
            "profile": self.profile.as_dict(),
            "stored": str(self.stored) if self.stored else None,
            "checks": [check.as_dict() for check in self.checks],
            "warnings": self.warnings,
            "reasons": self.reasons,
        }

    def explained(self, one: Candidate) -> dict[str, Any]:
        """A candidate with its arithmetic."""
        return {
            **named(one),
            "speedup": one.speedup,
            "low": one.low,
            "high": one.high,
            "overall": one.overall,
            "alpha": one.alpha,
            "tokens_per_pass": one.tokens_per_pass,
            "plain_ms": 1000 * one.plain_s,
            "mean_round_ms": 1000 * one.mean_round_s,
            "full_round_ms": 1000 * one.round_s,
            "arithmetic": sum_of(one, self.costs_of(one.drafter)),
        }


def named(one: Candidate | None) -> dict[str, Any]:
    """How it is asked for; nothing to draft is the drafter "none"."""
    return (
        {"drafter": one.drafter, "N": one.N, "tree": one.tree} if one else {"drafter": "none", "N": 0, "tree": "none"}
    )


def sum_of(one: Candidate, costs: Costs) -> str:
    """How its speed-up comes about, over all texts together."""
    walk = one.walk
    drafted, rows = walk.drafted / walk.passes, 1 + walk.drafted / walk.passes
    draft = f" + {drafted:.2f} draft tokens x {1000 * costs.layer(1):.1f} ms" if costs.draft_s else ""
    if one.tree not in ("none", "auto"):
        draft = f" + {one.N} draft passes" if costs.draft_s else ""
    return (
        f"{one.tokens_per_pass:.2f} tokens in {1000 * one.mean_round_s:.1f} ms (a pass over {rows:.2f} tokens{draft}) "
        f"against 1 in {1000 * one.plain_s:.1f} ms: {one.overall:.2f}x"
    )
