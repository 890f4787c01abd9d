"""The documents of `localspec theory --json` as tables for people. Knows nothing about how they were made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

Document = dict[str, Any]
Parts = list["RenderableType"]


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], *, strong: int | None = None) -> RenderableType:
    """Names to the left, figures to the right; row `strong` stands out."""
    from rich.table import Table

    shown = Table(box=None, pad_edge=False, header_style="bold")
    for at, title in enumerate(titles):
        shown.add_column(title, justify="left" if at == 0 else "right", no_wrap=True)
    for number, row in enumerate(rows):
        shown.add_row(*row, style="bold green" if number == strong else "")
    return shown


def words(*lines: str) -> RenderableType:
    from rich.text import Text

    return Text("\n" + "\n".join(lines))


def number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def verdict(passed: bool) -> str:
    return "passed" if passed else "FAILED"


def check(document: Document) -> Parts:
    rows = [
        (
            row["draft"],
            number(row["alpha"]),
            number(row["accepted"] / row["tested"]),
            f"{row['chi2']:.1f}",
            str(row["dof"]),
            f"{row['critical_95']:.1f}",
            verdict(row["passed"]),
        )
        for row in document["rows"]
    ]
    together = (f"{document['chi2']:.1f}", str(document["dof"]), f"{document['critical_95']:.1f}")
    rows.append(("together", "", "", *together, verdict(document["passed"])))
    return [
        table(("draft", "alpha", "accepted/tested", "chi2", "dof", "critical 95 %", ""), rows),
        words(
            f"{document['samples']:,} steps with each draft, N = {document['N']}, {document['acceptance']}: the "
            f"emitted tokens against the verifier's law, p = {document['p_value']:.3f}.",
            "alpha is the expected sum of min(p, q) in a long text; accepted/tested counts these steps, all behind one "
            "prompt.",
        ),
    ]


def sweep(document: Document) -> Parts:
    rows = [
        (str(row["N"]), number(row["tokens_per_pass"]), number(row["time_per_token"]), f"{row['speedup']:.2f}x")
        for row in document["rows"]
    ]
    qualities = [
        (f"{row['blur']:.2f}", number(row["alpha"]), str(row["best_N"]), f"{row['speedup']:.2f}x")
        for row in document["qualities"]
    ]
    best = document["best_N"]
    return [
        words(f"alpha = {document['alpha']:g}, c = {document['c']:g}; times in verifier passes\n"),
        table(("N", "tokens/pass", "time/token", "speed-up"), rows, strong=best - 1 if best else None),
        words(*document["shape"], "\nToy drafts, ever further from their verifier (blur: share of other logits):\n"),
        table(("blur", "alpha", "best N", "speed-up"), qualities),
    ]


def tree(document: Document) -> Parts:
    rows = [
        (
            row["draft"],
            row["shape"],
            str(row["nodes"]),
            str(row["depth"]),
            number(row["alpha"]),
            number(row["tokens_per_pass"]),
            f"{row['speedup']:.2f}x",
            " ".join(number(share, 2) for share in row["accepted_by_depth"][:4]),
        )
        for row in document["rows"]
    ]
    titles = (
        "draft",
        "shape",
        "tokens",
        "draft passes",
        "alpha",
        "tokens/pass",
        "speed-up",
        "accepted at depth 1 2 3 4",
    )
    return [
        table(titles, rows),
        words(
            f"{document['samples']:,} rounds each; a draft pass costs {document['c']:g} of a verifier pass. The "
            "chains give the verifier as many tokens to look at as the trees above them.",
            "",
        ),
        *leaves(document),
    ]


def leaves(document: Document) -> Parts:
    """Of every tree: how often each leaf was reached, and its own acceptance."""
    parts: Parts = []
    rows = [row for row in document["rows"] if len(row["leaves"]) > 1]
    for shape in dict.fromkeys(row["shape"] for row in rows):
        drafts = [row for row in rows if row["shape"] == shape]
        titles = [f"leaf of {shape}", *(f"{row['draft']}: reached, alpha" for row in drafts)]
        cells = [
            [
                ".".join(str(rank) for rank in own[0]["place"]),
                *(f"{number(leaf['reached'])} {number(leaf['alpha'], 2):>5}" for leaf in own),
            ]
            for own in zip(*(row["leaves"] for row in drafts), strict=True)
        ]
        parts += [table(titles, cells), words("")]
    return parts


def rollback(document: Document) -> Parts:
    rows = [
        (
            row["case"],
            f"{row['text_before']} -> {row['text_after']}",
            f"{row['cache_before']} -> {row['cache_during']} -> {row['cache_after']}",
            " ".join(map(str, row["drafted"])),
            " ".join(map(str, row["emitted"])),
            str(row["accepted"]),
            str(row["lost"]),
            "yes" if row["same_row"] else "NO",
        )
        for row in document["rows"]
    ]
    titles = ("case", "text", "cache", "drafted", "emitted", "accepted", "lost", "next law as fresh")
    return [
        table(titles, rows),
        words(
            "The cache holds the text but its last token, which is pending: the next pass evaluates it with the draft.",
            "Rolling back is cutting the cache to the accepted prefix; nothing that was committed is evaluated again.",
        ),
    ]


def distance(document: Document) -> Parts:
    rows = [
        (
            f"{row['blur']:.2f}",
            number(row["kl"]),
            number(1 - row["alpha"]),
            number(row["alpha"]),
            number(row["measured"]),
            number(row["bound"]),
        )
        for row in document["rows"]
    ]
    return [
        table(("blur", "KL(q||p)", "total variation", "alpha", "measured", "KL guarantees"), rows),
        words(
            "For one draw alpha = sum of min(p, q) = 1 - total variation, exactly. The KL only bounds it from below:",
            "alpha >= 1 - sqrt(KL / 2) (Pinsker) and alpha >= 1 - sqrt(1 - exp(-KL)) (Bretagnolle and Huber).",
        ),
    ]
