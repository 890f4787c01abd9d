"""A plan as a picture: t(n), and expected speed-up over N for each drafter with the chosen point.

Reads the document that `--json` prints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from localspec.cli.theory_plots import save as save_figure

if TYPE_CHECKING:
    from pathlib import Path

Document = dict[str, Any]


def save(document: Document, path: Path) -> None:
    """Draw into one file. Raises `UsageError` when it cannot be written."""
    save_figure(document, path, draw)


def draw(document: Document, figure: Any) -> None:
    left, right = figure.subplots(1, 2)
    draw_cost(left, document)
    draw_speedups(right, document)
    figure.suptitle(f"{document['verifier']} · {document['machine']['cpu']}", fontsize=10)


def draw_cost(axes: Any, document: Document) -> None:
    """t(n) beside what it would be if every row cost a plain pass, or nothing."""
    points = document["profile"]["verify_s"]
    sizes, times = [point["n"] for point in points], [1000 * point["s"] for point in points]
    axes.plot(sizes, times, marker="o", label="measured, among plain passes")
    axes.plot(sizes, [times[0] * n for n in sizes], ls=":", color="grey", lw=0.9, label="n plain passes")
    axes.axhline(times[0], ls="--", color="grey", lw=0.9, label="one plain pass")
    axes.set_xlabel("n, tokens in one verifier pass")
    axes.set_ylabel("t(n), ms")
    axes.set_ylim(0, 1.25 * max(times))
    axes.legend(fontsize=8)


def draw_speedups(axes: Any, document: Document) -> None:
    """A line per drafter; automatic lengths and trees at the right; the range over the prompts as a shade."""
    chosen = document["recommendation"]
    places = sorted({each["N"] for one in document["drafters"] for each in one["curve"] if each["N"] != "auto"}) or [1]
    auto = places[-1] + 2
    for number, one in enumerate(document["drafters"]):
        colour = f"C{number}"
        chain = [each for each in one["curve"] if each["N"] != "auto" and each["tree"] == "none"]
        rest = [each for each in one["curve"] if each["N"] == "auto"]
        lengths = [each["N"] for each in chain]
        axes.plot(lengths, [each["speedup"] for each in chain], marker=".", color=colour, label=one["drafter"])
        axes.fill_between(
            lengths, [each["low"] for each in chain], [each["high"] for each in chain], color=colour, alpha=0.12, lw=0
        )
        axes.scatter([auto] * len(rest), [each["speedup"] for each in rest], color=colour, marker="D", s=28)
        trees = [each for each in one["curve"] if each["tree"] not in ("none", "auto")]
        if trees:
            best = max(trees, key=lambda each: each["speedup"])
            axes.scatter([best["N"]], [best["speedup"]], color=colour, marker="^", s=36, label=f"tree {best['tree']}")
    if chosen["drafter"] == "none":
        axes.scatter([0], [1.0], s=140, facecolors="none", edgecolors="black", label="chosen: plain")
    else:
        where = auto if chosen["N"] == "auto" else chosen["N"]
        axes.scatter(
            [where], [document["expected_speedup"]], s=140, facecolors="none", edgecolors="black", label="chosen"
        )
    axes.axhline(1.0, color="grey", lw=0.8, ls="--")
    axes.set_xticks([0, *places, auto], ["0", *map(str, places), "auto"])
    axes.set_xlabel("N, tokens drafted per pass")
    axes.set_ylabel("expected speed-up, median over prompts")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)
