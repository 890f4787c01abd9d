"""Charts of a benchmark: bars in the terminal, a picture in a file. Both read the document that `--json` prints.

Knows nothing about how the figures were measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from localspec.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from rich.text import Text

Row = dict[str, Any]
BAR_WIDTH = 24
EIGHTHS = " ▏▎▍▌▋▊▉"
LOOPING = 0.5  # a text that has said half of its 4-grams before is worth a remark
INSTALL_HINT = "Install it with: pip install 'localspec[plot]'"


def label(row: Row) -> str:
    """ngram N=5, or plain."""
    from localspec.services.bench.runs import label

    return label(row["drafter"], row["N"], row["tree"])


def contestants(document: dict[str, Any]) -> list[Row]:
    """The rows over all categories that have a speed-up, plain decoding first."""
    return [row for row in document["rows"] if row["category"] == "all" and row["speedup"]]


def bar(value: float, largest: float, *, ascii_only: bool = False) -> str:
    """`value` as a bar, `largest` being a full one; eighths of a character where the console can show them."""
    length = BAR_WIDTH * value / largest
    if ascii_only:
        return "#" * round(length)
    whole = math.floor(length)
    return "█" * whole + EIGHTHS[math.floor(8 * (length - whole))].strip()


def speedup_bars(document: dict[str, Any], *, ascii_only: bool = False) -> list[Text]:
    """One line per configuration: its median speed-up over plain decoding as a bar, and what is to be said of it."""
    from rich.text import Text

    rows = [row for row in document["rows"] if row["category"] == "all"]
    largest = max((row["speedup"]["median"] for row in contestants(document)), default=1.0)
    width = max(len(label(row)) for row in rows)
    lines = []
    for row in rows:
        value = row["speedup"]["median"] if row["speedup"] else 0.0
        figure = f" {value:.2f}x" if row["speedup"] else " -"
        said = "; ".join(remarks(row))
        drawn = bar(value, largest, ascii_only=ascii_only)
        lines.append(Text.assemble(f"{label(row):<{width}}  ", (f"{drawn}{figure} {said}".rstrip(), colour(row))))
    return lines


def colour(row: Row) -> str:
    """A rich style: losers red, a text that is not the verifier's loud."""
    if row["differing"]:
        return "bold red"
    if row["drafter"] == "none" or row["speedup"] is None:
        return "dim"
    return "green" if row["speedup"]["median"] >= 1 else "red"


def remarks(row: Row) -> list[str]:
    """What a reader should know about a row besides its numbers."""
    said = []
    if row["drafter"] != "none" and row["speedup"] and row["speedup"]["median"] < 1:
        said.append("slower" + costliest(row))
    if row["differing"]:
        said.append(f"TEXT DIFFERS on {counted(row['differing'], 'prompt')}")
    if row["near_ties"]:
        said.append(f"near ties: {row['near_ties']}")
    if row["loop_share"] is not None and row["loop_share"] >= LOOPING:
        said.append(f"repeats itself ({percent(row['loop_share'])})")
    if row["fallen_back"]:
        said.append(f"drafter failed in {counted(row['fallen_back'], 'run')}")
    return said


def costliest(row: Row) -> str:
    """Which part of a losing row costs: drafting, or passes over more tokens than it wins."""
    if row["draft_share"] is None or row["verify_share"] is None:
        return ""
    return f": {percent(row['draft_share'])} drafting, {percent(row['verify_share'])} verifying"


def counted(number: int, noun: str) -> str:
    """1 prompt, 7 prompts."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def save_plot(document: dict[str, Any], path: Path) -> None:
    """Speed-up over N and the cost curve as a picture. Raises `UsageError` without matplotlib or for a bad path."""
    check_plot(path)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    draw_speedups(left, contestants(document))
    draw_cost(right, document["cost_curve"])
    figure.suptitle(f"{document['verifier']} · {document['machine']['cpu']}", fontsize=10)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.", hint="Name another file.") from error


def check_plot(path: Path) -> None:
    """Say before the measuring starts what would be wrong with `--plot` after it."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise UsageError("--plot needs matplotlib, which is not installed.", hint=INSTALL_HINT)
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise UsageError(f"--plot cannot write {path.name}.", hint="Name a .png, .svg or .pdf file.")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"--plot: there is no folder {path.absolute().parent}.", hint="Make it, or name another file.")


def draw_speedups(axes: Any, rows: Sequence[Row]) -> None:
    """Points with the range from minimum to maximum, one line per drafter and tree; auto stands at the right."""
    lengths = sorted({row["N"] for row in rows if row["N"] != "auto"})
    places = {length: place for place, length in enumerate([*lengths, "auto"])}
    lines = list(dict.fromkeys((row["drafter"], row["tree"]) for row in rows if row["drafter"] != "none"))
    for number, (drafter, tree) in enumerate(lines):
        own = [row for row in rows if (row["drafter"], row["tree"]) == (drafter, tree)]
        own.sort(key=lambda row: places[row["N"]])
        middle = [row["speedup"]["median"] for row in own]
        below = [row["speedup"]["median"] - row["speedup"]["min"] for row in own]
        above = [row["speedup"]["max"] - row["speedup"]["median"] for row in own]
        beside = 0.08 * (number - (len(lines) - 1) / 2)  # so that equal ones do not hide each other
        where = [places[row["N"]] + beside for row in own]
        name = drafter if tree == "none" else f"{drafter} tree {tree}"
        axes.errorbar(where, middle, yerr=[below, above], marker="o", capsize=3, label=name)
    axes.axhline(1.0, color="grey", linewidth=0.8, linestyle="--")
    axes.set_xticks(list(places.values()), [str(length) for length in places])
    axes.set_xlabel("N, tokens drafted per pass (0: plain)")
    axes.set_ylabel("speed-up over plain decoding")
    axes.set_ylim(bottom=0)
    axes.legend()


def draw_cost(axes: Any, curve: Sequence[dict[str, float]]) -> None:
    """t(n) in milliseconds."""
    axes.plot([point["n"] for point in curve], [point["ms"] for point in curve], marker="o")
    axes.set_xlabel("n, tokens in one verifier pass")
    axes.set_ylabel("t(n), ms")
    axes.set_ylim(bottom=0)
