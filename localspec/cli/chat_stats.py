"""`/stats`: the figures of an answer and of a whole chat, side by side.

Computes nothing but sums: the figures are those of `loop.counters`, defined in docs/definitions.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Group

    from localspec.loop.counters import Counters

Shown = Callable[["Counters"], str]


def share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


def shares(counters: Counters) -> str:
    """ngram 31 %, none 69 %: who drafted how often."""
    passes = counters.verifier_passes
    return ", ".join(f"{name} {share(one.rounds / passes)}" for name, one in counters.shares.items()) if passes else "-"


FIGURES: dict[str, tuple[Shown, str]] = {
    "tokens/s": (lambda c: plain(c.tokens_per_s), "completion tokens / decode time"),
    "tokens/pass": (lambda c: plain(c.tokens_per_pass), "completion tokens / verifier passes"),
    "accepted": (lambda c: share(c.acceptance_rate), "accepted / drafted"),
    "alpha": (lambda c: share(c.alpha), "accepted / tested"),
    "completion tokens": (lambda c: str(c.completion_tokens), ""),
    "verifier passes": (lambda c: str(c.verifier_passes), ""),
    "drafted": (lambda c: str(c.drafted), "tokens the drafter proposed"),
    "tested": (lambda c: str(c.tested), "of these, decided by the verifier"),
    "accepted tokens": (lambda c: str(c.accepted), "of these, kept"),
    "prompt tokens": (lambda c: str(c.prefill_tokens), "evaluated; the rest was in the cache"),
    "prompt time": (lambda c: seconds(c.prefill_s), ""),
    "first token": (lambda c: seconds(c.ttft_s), "after the question"),
    "decode time": (lambda c: seconds(c.decode_s), "prompt not included"),
    "  drafting": (lambda c: seconds(c.draft_s), ""),
    "  verifying": (lambda c: seconds(c.verify_s), ""),
    "  accepting": (lambda c: seconds(c.accept_s), ""),
    "drafted by": (lambda c: shares(c), "share of the verifier passes"),
}


def table(counted: Sequence[Counters]) -> Group:
    """The last answer and the sums over all; below it what the controller says, which is a sentence."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    last, whole = counted[-1], total(counted)
    found = Table(box=None, padding=(0, 2, 0, 0))
    found.add_column("")
    found.add_column("last answer")
    found.add_column(f"all {len(counted)} answers" if len(counted) > 1 else "")
    found.add_column("", style="dim")
    for name, (shown, meaning) in FIGURES.items():
        found.add_row(name, shown(last), shown(whole) if len(counted) > 1 else "", meaning)
    found.add_row("drafter", f"{last.drafter} N={last.N}", "", "")
    return Group(found, Text(last.controller, style="dim")) if last.controller else Group(found)


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
        whole.join(counters.shares)
        whole.prefill_tokens += counters.prefill_tokens
        whole.prefill_s += counters.prefill_s
        whole.decode_s += counters.decode_s
        whole.draft_s += counters.draft_s
        whole.verify_s += counters.verify_s
        whole.accept_s += counters.accept_s
    return whole
