"""Writes the measured tables of README.md from bench/results/*.json: `python -m docs.render_results` (`make docs`).

Of each table the newest file counts. Nothing between the markers is typed by hand, and no row is left out; where
nothing has been measured yet, nothing is written.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.results import as_table
from localspec.cli.bench_formats import machine_line

ROOT = Path(__file__).parents[1]
README, RESULTS = ROOT / "README.md", ROOT / "bench" / "results"
BEGIN, END = "<!-- results -->", "<!-- /results -->"

Document = dict[str, Any]
Rows = Iterator[list[str]]


def pair(document: Document) -> Rows:
    yield ["sampling", "", "tokens/s", "speed-up, median (min-max)", "accepted", "alpha", "tokens per pass"]
    for sampling, row in overall(document):
        yield [sampling, name(row), rate(row), speedup(row), percent(row["acceptance_rate"]), percent(row["alpha"]),
               number(row["tokens_per_pass"], 2)]  # fmt: skip


def lookup(document: Document) -> Rows:
    yield ["prompts", "", "tokens/s", "speed-up, median (min-max)", "accepted", "tokens per pass"]
    for one in document["benchmarks"].values():
        for row in one["rows"]:
            yield [row["category"], name(row), rate(row), speedup(row), percent(row["acceptance_rate"]),
                   number(row["tokens_per_pass"], 2)]  # fmt: skip


def acceptance(document: Document) -> Rows:
    yield ["sampling", "rule", "accepted / drafted", "alpha", "tokens per pass"]
    for key, row in document["rules"].items():
        sampling, _, rule = key.rpartition(", ")
        yield [
            sampling,
            rule,
            percent(row["acceptance_rate"]),
            percent(row["alpha"]),
            number(row["tokens_per_pass"], 2),
        ]


def overhead(document: Document) -> Rows:
    yield ["sampling, drafter", "outside llama.cpp"]
    for key, row in overall(document):
        if row["drafter"] != "none":
            yield [key, percent(row["overhead"], 1)]


def plain(document: Document) -> Rows:
    yield ["file", "against", "localspec tokens/s", "theirs", "ratio, median (min-max)", "same text"]
    for file in document["files"]:
        for peer, ratio in file["ratio"].items():
            ours, theirs = (number(file["tokens_per_s"][who]["median"], 1) for who in ("localspec", peer))
            yield [file["file"], f"`{peer}`", ours, theirs, ranged(ratio), percent(file["same_text"][peer])]


def memory(document: Document) -> Rows:
    yield ["", "MB"]
    yield ["buffers of llama.cpp", number(document["llama_cpp_mb"], 0)]
    yield ["peak of the process", number(document["peak_rss_mb"], 0)]
    yield ["over llama.cpp", number(document["over_mb"], 0)]


def summary(document: Document) -> Rows:
    yield document["summary"]["header"]
    yield from document["summary"]["rows"]


def matrix(document: Document) -> Rows:
    yield ["verifier", "drafter", "cells", "N=auto / plain, median (min-max)"]
    groups: dict[tuple[str, str], list[float]] = {}
    for cell in document["cells"]:
        groups.setdefault((cell["verifier"], cell["drafter"]), []).append(statistics.median(cell["ratios"]))
    groups["all", "both"] = [ratio for ratios in groups.values() for ratio in ratios]
    for (verifier, drafter), ratios in groups.items():
        spread = f"{statistics.median(ratios):.3f} ({min(ratios):.3f}-{max(ratios):.3f})"
        yield [verifier, drafter, str(len(ratios)), spread]


TABLES: dict[str, tuple[str, Callable[[Document], Rows]]] = {
    "pair": (
        "A second model drafts three tokens: SmolLM2-135M as F32, which is bound by memory as everything is on a GPU, "
        "with the same weights as Q4_0, on 12 prompts of Spec-Bench",
        pair,
    ),
    "acceptance": (
        "How much of a draft survives, the same pair: our two rules, and the one of llama.cpp's own speculative "
        "decoders, which compares a sample of the verifier with the draft's favourite (also exact, and often unlucky)",
        acceptance,
    ),
    "lookup": ("Prompt lookup with its default options, SmolLM2-135M Q4_1, T=0", lookup),
    "trees": (
        "Trees against the chain with as many draft passes, the F32 and Q4_0 pair (where a pass over 28 rows costs "
        "seven plain ones, as here, they lose in tokens/s)",
        summary,
    ),
    "autotree-F32": ("`--tree auto` against every fixed chain, where passes are bound by memory", summary),
    "autotree-Q4_1": ("The same where they are bound by arithmetic", summary),
    "lookahead": ("Lookahead decoding without any draft, SmolLM2-135M Q4_1, T=0", summary),
    "heads": (
        "The EAGLE-3 head that comes with localspec (`--drafter eagle3`), against plain: on the Q4_1 that it was "
        "trained for, where three more rows of a pass cost twice a token, and on the same weights as F32, T=0; by "
        "category the median of pairs",
        summary,
    ),
    "matrix": (
        "`--N auto` against plain decoding in 144 cells of one prompt: SmolLM2-135M in four formats, six categories of "
        "Spec-Bench, T = 0, 0.8 and 1, drafts of the same weights (single cells scatter by 1 to 2 %)",
        matrix,
    ),
    "cascade": (
        "Prompt lookup and a draft model together (`--drafter cascade`), each against plain, T=0; one to three prompts "
        "each, by category the median of pairs",
        summary,
    ),
    "plain": ("Plain decoding, greedy, the same file and ids", plain),
    "overhead": ("Share of decoding time spent outside llama.cpp, SmolLM2-135M Q4_1", overhead),
    "memory": ("Memory of `localspec run`, SmolLM2-135M Q4_1", memory),
}


def overall(document: Document) -> Iterator[tuple[str, Document]]:
    """(benchmark, row over all its categories)."""
    for key, one in document["benchmarks"].items():
        categories = [row["category"] for row in one["rows"]]
        for row in one["rows"]:
            if row["category"] == ("all" if "all" in categories else categories[0]):
                yield key, row


def name(row: Document) -> str:
    return "plain" if row["drafter"] == "none" else f"{row['drafter']} N={row['N']}"


def rate(row: Document) -> str:
    return number(row["tokens_per_s"] and row["tokens_per_s"]["median"], 1)


def speedup(row: Document) -> str:
    return "1" if row["drafter"] == "none" else ranged(row["speedup"])


def ranged(spread: dict[str, float] | None) -> str:
    return f"{spread['median']:.2f} ({spread['min']:.2f}-{spread['max']:.2f})" if spread else "-"


def percent(share: float | None, digits: int = 0) -> str:
    return "-" if share is None else f"{100 * share:.{digits}f} %"


def number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def newest(folder: Path, table: str) -> Document | None:
    """The latest result of a table; file names begin with the date."""
    paths = sorted(folder.glob(f"????-??-??-{table}.json"))
    return json.loads(paths[-1].read_text(encoding="utf-8")) if paths else None


def section(title: str, document: Document, rows: Rows) -> str:
    header, *lines = rows
    return f"{title}:\n\n{as_table(header, lines)}\n\n<sub>`{document['command']}` · {document['date']}</sub>\n"


def render(folder: Path) -> str:
    """All tables there are, below a line that names the machine."""
    found = [(title, rows, document) for table, (title, rows) in TABLES.items() if (document := newest(folder, table))]
    if not found:
        return ""
    machines = "; ".join(dict.fromkeys(without_kernel(machine_line(document)) for _, _, document in found))
    sections = [section(title, document, rows(document)) for title, rows, document in found]
    return "\n".join([f"Measured on {machines}.\n", *sections])


def without_kernel(machine: str) -> str:
    """Linux x86_64, glibc2.36, ...: one machine with two kernels is one machine; the results keep the whole name."""
    return re.sub(r"^Linux-\S*?-(x86_64|aarch64)-with-", r"Linux \1, ", machine)


def replaced(page: str, tables: str) -> str:
    """`page` with `tables` between its markers."""
    before, _, rest = page.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        sys.exit(f"README.md has no {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n\n{tables}\n{END}{after}" if tables else f"{before}{BEGIN}\n{END}{after}"


def main() -> None:
    README.write_text(replaced(README.read_text(encoding="utf-8"), render(RESULTS)), encoding="utf-8")


if __name__ == "__main__":
    main()
