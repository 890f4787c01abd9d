"""The documents of `localspec theory --json` as pictures. Knows nothing about how they were made."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from localspec.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

Document = dict[str, Any]


def save(document: Document, path: Path, draw: Callable[[Document, Any], None]) -> None:
    """Draw into one file. Raises `UsageError` when it cannot be written."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    draw(document, figure)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.", hint="Name another file.") from error


def check(document: Document, figure: Any) -> None:
    """The statistics as bars, each with its critical value."""
    axes = figure.subplots()
    rows = [*document["rows"], {**document, "draft": "together"}]
    places = range(len(rows))
    axes.bar(places, [row["chi2"] for row in rows], color=["C2" if row["passed"] else "C3" for row in rows])
    axes.scatter(places, [row["critical_95"] for row in rows], marker="_", s=900, color="black", label="critical, 95 %")
    axes.set_xticks(places, [f"{row['draft']}\n{row['dof']} dof" for row in rows])
    axes.set_ylabel("chi-square")
    axes.legend()


def sweep(document: Document, figure: Any) -> None:
    """Speed-up and tokens per pass over N; alpha over the draft's quality."""
    left, right = figure.subplots(1, 2)
    lengths = [row["N"] for row in document["rows"]]
    left.plot(lengths, [row["speedup"] for row in document["rows"]], marker="o", label="speed-up")
    left.plot(
        lengths, [row["tokens_per_pass"] for row in document["rows"]], marker=".", ls=":", label="tokens per pass"
    )
    if document["best_N"]:
        left.axvline(document["best_N"], color="grey", lw=0.8, ls="--", label=f"best N = {document['best_N']}")
    left.set_xlabel("N, tokens drafted per pass")
    left.set_title(f"alpha = {document['alpha']:g}, c = {document['c']:g}")
    left.set_ylim(bottom=0)
    left.legend()
    blurs = [row["blur"] for row in document["qualities"]]
    right.plot(blurs, [row["alpha"] for row in document["qualities"]], marker="o")
    right.set_xlabel("blur of the draft")
    right.set_ylabel("alpha")
    right.set_ylim(0, 1.02)


def tree(document: Document, figure: Any) -> None:
    """Tokens per pass and speed-up of every shape, one group of bars per draft."""
    shapes = list(dict.fromkeys(row["shape"] for row in document["rows"]))
    drafts = list(dict.fromkeys(row["draft"] for row in document["rows"]))
    found = {(row["shape"], row["draft"]): row for row in document["rows"]}
    for axes, figure_of, title in zip(
        figure.subplots(1, 2), ("tokens_per_pass", "speedup"), ("tokens per pass", "speed-up"), strict=True
    ):
        width = 0.8 / len(shapes)
        for at, shape in enumerate(shapes):
            axes.bar(
                [place + at * width for place in range(len(drafts))],
                [found[shape, draft][figure_of] for draft in drafts],
                width=width,
                label=shape,
            )
        axes.set_xticks([place + 0.4 - width / 2 for place in range(len(drafts))], drafts)
        axes.set_xlabel("draft")
        axes.set_title(title)
    axes.legend(fontsize=8)


def rollback(document: Document, figure: Any) -> None:
    """Length of each cache before, during and after the round."""
    axes = figure.subplots()
    for row in document["rows"]:
        axes.plot(
            range(3), [row["cache_before"], row["cache_during"], row["cache_after"]], marker="o", label=row["case"]
        )
    axes.set_xticks(range(3), ["before", "during the pass", "after"])
    axes.set_ylabel("tokens in the cache")
    axes.set_ylim(bottom=0)
    axes.legend()


def distance(document: Document, figure: Any) -> None:
    """Acceptance over KL: every context as a dot, means of the drafts as a line, and the guarantee."""
    axes = figure.subplots()
    rows = document["rows"]
    for row in rows:
        axes.scatter(
            [point["kl"] for point in row["points"]],
            [point["alpha"] for point in row["points"]],
            s=4,
            color="C0",
            alpha=0.3,
        )
    axes.plot([row["kl"] for row in rows], [row["alpha"] for row in rows], marker="o", color="C1", label="mean alpha")
    axes.plot([row["kl"] for row in rows], [row["bound"] for row in rows], ls="--", color="black", label="guaranteed")
    axes.set_xlabel("KL(q || p), nats")
    axes.set_ylabel("alpha, sum of min(p, q)")
    axes.set_ylim(0, 1.02)
    axes.legend()
