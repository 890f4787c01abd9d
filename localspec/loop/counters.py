"""What is counted while an answer is made, and the figures computed from it. Definitions: docs/definitions.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Share:
    """What one drafter did: rounds that its draft was verified in, and its tokens there."""

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0

    def add(self, drafted: int, accepted: int, rounds: int = 1) -> None:
        self.rounds += rounds
        self.drafted += drafted
        self.accepted += accepted


@dataclass
class Counters:
    """Sums over the rounds of one answer; times in seconds by one monotonic clock.

    Always: `verifier_passes == bonus_tokens + residual_tokens`, `accepted <= tested <= drafted`, and
    `completion_tokens == accepted + bonus_tokens + residual_tokens` unless a stop cut the last block (then less).
    """

    drafter: str = "none"
    N: int | str = 0
    tree: str = "none"
    controller: str = ""
    completion_tokens: int = 0
    verifier_passes: int = 0
    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    bonus_tokens: int = 0
    residual_tokens: int = 0
    accepted_by_position: list[int] = field(default_factory=list)
    shares: dict[str, Share] = field(default_factory=dict)
    """By drafter, "none" for the rounds without a draft; the rounds add up to `verifier_passes`."""
    prefill_s: float = 0.0
    prefill_tokens: int = 0
    ttft_s: float | None = None
    decode_s: float = 0.0
    draft_s: float = 0.0
    verify_s: float = 0.0
    accept_s: float = 0.0
    engine_s: float = 0.0
    """Share of `decode_s` spent inside llama.cpp."""

    def by(self, drafter: str) -> Share:
        """The share of one drafter."""
        share = self.shares.get(drafter)
        if share is None:
            share = self.shares[drafter] = Share()
        return share

    def join(self, shares: Mapping[str, Share]) -> None:
        """Add the shares of another answer."""
        for name, share in shares.items():
            self.by(name).add(share.drafted, share.accepted, share.rounds)

    @property
    def alpha(self) -> float | None:
        """accepted / tested."""
        return self.accepted / self.tested if self.tested else None

    @property
    def acceptance_rate(self) -> float | None:
        """accepted / drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def tokens_per_pass(self) -> float | None:
        """Emitted tokens / verifier passes, bonus and residual included."""
        return self.completion_tokens / self.verifier_passes if self.verifier_passes else None

    @property
    def tokens_per_s(self) -> float | None:
        """completion_tokens / decode_s; prefill is never inside."""
        return self.completion_tokens / self.decode_s if self.decode_s > 0 else None

    @property
    def other_s(self) -> float:
        """Decode time that is neither drafting, verifying nor accepting."""
        return max(0.0, self.decode_s - self.draft_s - self.verify_s - self.accept_s)

    @property
    def overhead(self) -> float | None:
        """Share of decode time spent outside llama.cpp calls."""
        return 1.0 - self.engine_s / self.decode_s if self.decode_s > 0 else None

    def as_dict(self) -> dict[str, Any]:
        """The `stats` object of `run --json` (contract.md), with more: prefill_tokens, overhead and drafters."""
        return {
            "drafter": self.drafter,
            "N": self.N,
            "tree": self.tree,
            "controller": self.controller,
            "drafters": {name: asdict(share) for name, share in self.shares.items()},
            "completion_tokens": self.completion_tokens,
            "verifier_passes": self.verifier_passes,
            "drafted": self.drafted,
            "tested": self.tested,
            "accepted": self.accepted,
            "bonus_tokens": self.bonus_tokens,
            "residual_tokens": self.residual_tokens,
            "alpha": self.alpha,
            "acceptance_rate": self.acceptance_rate,
            "tokens_per_pass": self.tokens_per_pass,
            "accepted_by_position": list(self.accepted_by_position),
            "prefill_tokens": self.prefill_tokens,
            "prefill_s": self.prefill_s,
            "ttft_s": self.ttft_s,
            "decode_s": self.decode_s,
            "tokens_per_s": self.tokens_per_s,
            "draft_s": self.draft_s,
            "verify_s": self.verify_s,
            "accept_s": self.accept_s,
            "other_s": self.other_s,
            "overhead": self.overhead,
        }
