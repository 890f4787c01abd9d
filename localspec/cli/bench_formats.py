"""A finished benchmark as a table for people, as Markdown and as CSV. All read the document that `--json` prints.

Losing rows stay in and are said to lose.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from localspec.cli.charts import Row, colour, counted, label, percent, remarks, speedup_bars

if TYPE_CHECKING:
    from rich.console import RenderableType

DEFINITIONS = (
    "Speed-up: each run against the plain run of the same prompt. Accepted: of the drafted tokens; alpha: of those "
    "tested. Outside: decode time not spent in llama.cpp. Every number: docs/definitions.md."
)


def spread(value: dict[str, float] | None, digits: int) -> tuple[str, str]:
    """(median, min to max), as texts."""
    if value is None:
        return "-", ""
    return f"{value['median']:.{digits}f}", f"{value['min']:.{digits}f}-{value['max']:.{digits}f}"


def table(document: dict[str, Any], *, ascii_only: bool = False) -> list[RenderableType]:
    """What is shown on a terminal: the configurations, the speed-up by category, the cost curve, the bars."""
    from rich.text import Text

    gap = Text("")
    parts: list[RenderableType] = [Text(headline(document)), gap, main_table(document), gap]
    if len(categories(document)) > 1:
        parts += [category_table(document), gap]
    parts += [*speedup_bars(document, ascii_only=ascii_only), gap]
    return [*parts, Text(cost_line(document)), Text(DEFINITIONS, style="dim")]


def headline(document: dict[str, Any]) -> str:
    protocol = document["protocol"]
    draft = f" + {document['draft']}" if document["draft"] else ""
    return (
        f"{document['verifier']}{draft}: {counted(protocol['prompts'], 'prompt')}, "
        f"{counted(protocol['repeats'], 'repeat')}, temperature {protocol['temperature']:g}"
    )


def cost_line(document: dict[str, Any]) -> str:
    """One verifier pass over n tokens: 1: 16.2 ms, 2: 29.0 ms, ..."""
    points = ", ".join(f"{point['n']}: {point['ms']:.1f}" for point in document["cost_curve"])
    return f"One verifier pass over n tokens, ms: {points}"


def categories(document: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(row["category"] for row in document["rows"] if row["category"] != "all"))


def main_table(document: dict[str, Any]) -> RenderableType:
    """One line per configuration, over all categories; narrow enough for 80 columns."""
    from rich.table import Table

    shown = Table(box=None, pad_edge=False, header_style="bold")
    shown.add_column("", no_wrap=True)
    for title in ("tokens/s", "speed-up", "min-max", "alpha", "accepted", "per pass", "outside"):
        shown.add_column(title, justify="right", no_wrap=True)
    for row in document["rows"]:
        if row["category"] == "all":
            name, speed, _, *rest = cells(row)
            shown.add_row(name, speed, *rest, style=colour(row))
    return shown


def cells(row: Row) -> list[str]:
    """The figures of a row as texts."""
    per_pass = row["tokens_per_pass"]
    return [
        label(row),
        *spread(row["tokens_per_s"], 1),
        *spread(row["speedup"], 2),
        "-" if row["alpha"] is None else f"{row['alpha']:.2f}",
        percent(row["acceptance_rate"]),
        "-" if per_pass is None else f"{per_pass:.2f}",
        "-" if row["overhead"] is None else f"{100 * row['overhead']:.1f} %",
    ]


def category_table(document: dict[str, Any]) -> RenderableType:
    """Median speed-up, a line per configuration, a column per category."""
    from rich.table import Table
    from rich.text import Text

    names = categories(document)
    found = {(label(row), row["category"]): row for row in document["rows"]}
    shown = Table(box=None, pad_edge=False, header_style="bold")
    shown.add_column("speed-up")
    for name in names:
        shown.add_column(name, justify="right")
    for configuration in dict.fromkeys(label(row) for row in document["rows"] if row["drafter"] != "none"):
        cells_of = [found[configuration, name] for name in names]
        shown.add_row(configuration, *(Text(spread(row["speedup"], 2)[0], style=colour(row)) for row in cells_of))
    return shown


HEADER = ("configuration", "category", "tokens/s", "speed-up", "alpha", "accepted", "per pass", "outside", "remarks")


def markdown(document: dict[str, Any]) -> str:
    """A table of all rows; ranges in brackets."""
    lines = [f"**{headline(document)}**", "", f"| {' | '.join(HEADER)} |", "|" + "---|" * len(HEADER)]
    for row in document["rows"]:
        name, speed, speed_range, gain, gain_range, *rest = cells(row)
        ranged = [f"{speed} ({speed_range})", f"{gain} ({gain_range})"]
        lines.append(f"| {' | '.join([name, row['category'], *ranged, *rest, '; '.join(remarks(row))])} |")
    return "\n".join([*lines, "", f"{cost_line(document)}.", "", f"{machine_line(document)}.", ""])


def machine_line(document: dict[str, Any]) -> str:
    """Linux-6.1, AMD EPYC, 2 cores, 25.1 GB, Python 3.11.7, llama-cpp-python 0.3.36."""
    machine = document["machine"]
    parts = [machine["os"], machine["cpu"]]
    parts += [counted(machine["physical_cores"], "core")] if machine["physical_cores"] else []
    parts += [f"{machine['memory_gb']} GB"] if machine["memory_gb"] else []
    return ", ".join([*parts, f"Python {machine['python']}", document["llama_cpp"]])


def csv_text(document: dict[str, Any]) -> str:
    """One line per row; spreads become three columns, what is not known stays empty."""
    flat = [flattened(row) for row in document["rows"]]
    names = list(dict.fromkeys(name for row in flat for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return out.getvalue()


def flattened(row: Row) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if name in ("tokens_per_s", "speedup"):
            parts = value or dict.fromkeys(("min", "median", "max"))
            flat |= {f"{name}_{part}": number for part, number in parts.items()}
        elif isinstance(value, list):
            flat[name] = " ".join(map(str, value))
        else:
            flat[name] = value
    return flat
