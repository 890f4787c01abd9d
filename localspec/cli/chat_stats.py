"""`/stats`: the figures of an answer and of a whole chat, side by side. Definitions: docs/definitions.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from localspec.loop.counters import Counters

Shown = Callable[["Counters"], str]


def share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


FIGURES: dict[str, tuple[Shown, str]] = {
    "tokens/s": (lambda c: plain(c.tokens_per_s), "completion tokens / decode time; reading the prompt not counted"),
    "tokens/pass": (lambda c: plain(c.tokens_per_pass), "completion tokens / verifier passes"),
    "accepted": (lambda c: share(c.acceptance_rate), "accepted / drafted tokens"),
    "alpha": (lambda c: share(c.alpha), "accepted / tested tokens"),
    "completion tokens": (lambda c: str(c.completion_tokens), "tokens of the answer"),
    "verifier passes": (lambda c: str(c.verifier_passes), "evaluations of the verifier"),
    "drafted": (lambda c: f"{c.drafted} ({c.tested} tested, {c.accepted} accepted)", "tokens the drafter proposed"),
    "prompt evaluated": (
        lambda c: f"{c.prefill_tokens} in {c.prefill_s:.2f} s",
        "prompt tokens that were not in the cache",
    ),
    "first token": (lambda c: "-" if c.ttft_s is None else f"{c.ttft_s:.2f} s", "from question to first token"),
    "decode time": (
        lambda c: f"{c.decode_s:.2f} s (draft {c.draft_s:.2f}, verify {c.verify_s:.2f}, accept {c.accept_s:.2f})",
        "where the time went",
    ),
}


def table(counted: Sequence[Counters]) -> Table:
    """The last answer and the sums over all."""
    from rich.table import Table

    last, whole = counted[-1], total(counted)
    found = Table(box=None, padding=(0, 2, 0, 0))
    found.add_column("")
    found.add_column("last answer")
    found.add_column(f"all {len(counted)} answers" if len(counted) > 1 else "")
    found.add_column("", style="dim")
    for name, (shown, meaning) in FIGURES.items():
        found.add_row(name, shown(last), shown(whole) if len(counted) > 1 else "", meaning)
    found.add_row("drafter", f"{last.drafter} N={last.N}", "", last.controller)
    return found


def total(counted: Sequence[Counters]) -> Counters:
    """Sums over several answers; the time to the first token is the last answer's own."""
    from localspec.loop.counters import Counters

    whole = Counters(drafter=counted[-1].drafter, N=counted[-1].N)
    for counters in counted:
        whole.completion_tokens += counters.completion_tokens
        whole.verifier_passes += counters.verifier_passes
        whole.drafted += counters.drafted
        whole.tested += counters.tested
        whole.accepted += counters.accepted
        whole.prefill_tokens += counters.prefill_tokens
        whole.prefill_s += counters.prefill_s
        whole.decode_s += counters.decode_s
        whole.draft_s += counters.draft_s
        whole.verify_s += counters.verify_s
        whole.accept_s += counters.accept_s
    return whole
