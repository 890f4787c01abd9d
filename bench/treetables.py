"""Tables about trees and about drafting without a draft model; each is a part of `bench.specbench`.

Every table ends in the full benchmark tables that it was computed from.
"""

from __future__ import annotations

import statistics
from typing import Any

from bench.harness import GREEDY, SAMPLINGS, VERIFIERS, Size, f32_with_q4_0, measure, number, q4_1, with_summary
from localspec.loop.counters import Counters
from localspec.services.bench import bench
from localspec.services.bench.rows import ALL, Row
from localspec.services.bench.runs import PLAIN, Configuration, Run

Table = tuple[dict[str, Any], str]
PROMPTS = "specbench12"
STATIC = ("4,2,2",)
CHAIN, GROWN = Configuration("model", 3), Configuration("model", 3, "auto")


def trees(size: Size) -> Table:
    """Bars: tokens per pass >= 1.15x the chain's with as many draft passes at T=0, >= 1.10x at T=1 without filters."""
    ways = [CHAIN, *(Configuration("model", 3, tree) for tree in size.trees or STATIC), GROWN]
    asked = size.prompts(PROMPTS)
    measured = {
        name: measure(f32_with_q4_0(), SAMPLINGS[name], asked, size, ways=ways)
        for name in size.parts(["T=0", "T=1, no filters"])
    }
    header = ["sampling", "draft", "nodes per pass", "tokens per pass", "against the chain", "tokens/s", "by depth"]
    lines = []
    for name, done in measured.items():
        chain = total(done, CHAIN).tokens_per_pass
        for way in ways:
            counters = total(done, way)
            lines.append(
                [
                    name,
                    way.label,
                    number(per_pass(counters, counters.drafted), 1),
                    number(counters.tokens_per_pass),
                    times(counters.tokens_per_pass, chain),
                    number(counters.tokens_per_s, 1),
                    " ".join(number(per_pass(counters, count)) for count in counters.accepted_by_position),
                ]
            )
    return with_summary(measured, header, lines)


def autotree(size: Size) -> Table:
    """Bar: tokens/s of --tree auto >= 0.98x the best of the chains of 1 to 8 tokens, for F32 and for Q4_1."""
    chains = [Configuration("model", length) for length in ([size.N] if size.N else range(1, 9))]
    auto = [Configuration("model", "auto", "auto"), Configuration("model", "auto")]
    asked = size.prompts(PROMPTS)
    measured = {
        name: measure(VERIFIERS[name](), GREEDY, asked, size, ways=[*chains, *auto]) for name in size.parts(VERIFIERS)
    }
    header = ["verifier", "draft", "tokens/s", "against plain", "against the best chain", "nodes per pass"]
    lines = []
    for name, done in measured.items():
        plain = total(done, PLAIN).tokens_per_s
        best = max(total(done, chain).tokens_per_s or 0.0 for chain in chains)
        for way in (PLAIN, *chains, *auto):
            counters = total(done, way)
            nodes = number(per_pass(counters, counters.drafted), 1)
            speed = counters.tokens_per_s
            lines.append([name, way.label, number(speed, 1), times(speed, plain), times(speed, best), nodes])
    return with_summary(measured, header, lines)


def lookahead(size: Size) -> Table:
    """Bars for W=5 N=4 G=5: tokens per pass >= 1.3 over all, >= 1.5 in the best category."""
    sizes = {"W=5 N=4 G=5": ({"W": "5", "N": "4", "G": "5"}, 8), "chosen by cost": ({}, "auto")}
    asked = size.prompts(PROMPTS)
    measured = {}
    for name in size.parts(sizes):
        options, length = sizes[name]
        way = Configuration("lookahead", length)  # type: ignore[arg-type]
        measured[name] = measure(q4_1(), GREEDY, asked, size, ways=[way], options=options)
    header = ["size", "category", "tokens per pass", "nodes per pass", "tokens/s", "plain tokens/s", "against plain"]
    lines = []
    for name, done in measured.items():
        drafting = [row for row in done.rows if row.configuration != PLAIN]
        for row, plain in zip(drafting, (row for row in done.rows if row.configuration == PLAIN), strict=True):
            counters, speed, base = row.total, row.total.tokens_per_s, plain.total.tokens_per_s
            figures = [number(counters.tokens_per_pass), number(per_pass(counters, counters.drafted), 1)]
            lines.append([name, row.category, *figures, number(speed, 1), number(base, 1), times(speed, base)])
    return with_summary(measured, header, lines)


def cascade(size: Size) -> Table:
    """Bar: in every category >= 0.98x the better of ngram and model."""
    length = size.N or "auto"
    alone = [Configuration("ngram", length), Configuration("model", length)]
    both = Configuration("cascade", length)
    asked = size.prompts(PROMPTS)
    measured = {
        name: measure(VERIFIERS[name](), GREEDY, asked, size, ways=[*alone, both]) for name in size.parts(VERIFIERS)
    }
    header = ["verifier", "category", "ngram", "model", "cascade", "against the better one"]
    lines = []
    for name, done in measured.items():
        for category in dict.fromkeys(row.category for row in done.rows):
            speeds = [against(done, way, PLAIN, category) for way in (*alone, both)]
            better = max(alone, key=lambda way: against(done, way, PLAIN, category) or 0.0)
            lines.append(
                [name, category, *(times(speed) for speed in [*speeds, against(done, both, better, category)])]
            )
    return with_summary(measured, header, lines)


def treecost(size: Size) -> Table:
    """Bar: at most 6 % of the time outside llama.cpp for a tree of 32 nodes at T=0."""
    ways = [CHAIN, *(Configuration("model", 3, tree) for tree in size.trees or STATIC)]
    ways += [Configuration("model", 4, "auto"), Configuration("ngram", 8, "auto"), Configuration("lookahead", 8)]
    asked = size.prompts(PROMPTS)
    measured = {name: measure(VERIFIERS[name](), GREEDY, asked, size, ways=ways) for name in size.parts(VERIFIERS)}
    header = ["verifier", "draft", "nodes per pass", "outside llama.cpp", "ms per pass outside", "ms per pass"]
    lines = []
    for name, done in measured.items():
        for way in (PLAIN, *ways):
            counters = total(done, way)
            outside = counters.decode_s - counters.engine_s
            spent = [per_pass(counters, 1000 * outside), per_pass(counters, 1000 * counters.decode_s)]
            share = "-" if counters.overhead is None else f"{100 * counters.overhead:.1f} %"
            nodes = number(per_pass(counters, counters.drafted), 1)
            lines.append([name, way.label, nodes, share, *map(number, spent)])
    return with_summary(measured, header, lines)


def total(done: bench.Bench, way: Configuration, category: str = ALL) -> Counters:
    """The sums of a configuration on a category; nothing where it could not be measured."""
    return next((row.total for row in done.rows if is_row(row, way, category)), Counters())


def against(done: bench.Bench, way: Configuration, other: Configuration, category: str = ALL) -> float | None:
    """How much faster `way` is than `other`: over all by the sums, in a category the median of its pairs.

    A pair is the same prompt in the same repeat, one run behind the other, so that a busy moment of the machine meets
    both or spoils one pair only.
    """
    if category == ALL:
        speed, base = (total(done, each).tokens_per_s for each in (way, other))
        return speed / base if speed and base else None
    mine, theirs = (
        {(run.turn.prompt, run.turn.repeat): run.stats.tokens_per_s for run in done.runs if is_run(run, each, category)}
        for each in (way, other)
    )
    pairs = [(speed, theirs.get(place)) for place, speed in mine.items()]
    ratios = [speed / base for speed, base in pairs if speed and base]
    return statistics.median(ratios) if ratios else None


def is_run(run: Run, way: Configuration, category: str) -> bool:
    return run.turn.configuration == way and run.category == category


def is_row(row: Row, way: Configuration, category: str) -> bool:
    return row.configuration == way and row.category == category


def per_pass(counters: Counters, count: float) -> float | None:
    return count / counters.verifier_passes if counters.verifier_passes else None


def times(value: float | None, base: float | None = 1.0) -> str:
    """How many times `base`."""
    return number(value / base, 3) + "x" if value and base else "-"
