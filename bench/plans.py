"""Does a plan keep its word? What `plan` expects of each drafter against what `bench` measures; a part of
`bench.specbench`.

Every format is planned for and measured at once, on the same prompts: each drafter's best fixed length, its automatic
one, and whatever was recommended.
"""

from __future__ import annotations

from typing import Any

from bench import quantize, weights
from bench.harness import CONTEXT, GREEDY, Size, measure, number, with_summary
from localspec.cli.console import Terminal
from localspec.planner.plan import Candidate
from localspec.services.bench import bench
from localspec.services.bench.rows import ALL
from localspec.services.bench.runs import Configuration
from localspec.services.plan import plan
from localspec.services.plan.outcome import Plan, Request
from localspec.services.settings import AnswerSettings, EngineSettings, PairChoice

PROMPTS = "specbench12"
FORMATS = ("Q4_0", "Q4_1", "Q8_0", "F32")


def pair_of(name: str) -> PairChoice:
    """The same weights in a format as verifier, and as Q4_0 for the draft; Q4_0 itself has prompt lookup alone."""
    source = weights.smollm2()
    verifier = source if name == "Q4_1" else quantize.variant(source, name)
    draft = None if name == "Q4_0" else str(quantize.variant(source, "Q4_0"))
    return PairChoice(verifier=str(verifier), draft=draft)


def plans(size: Size) -> tuple[dict[str, Any], str]:
    """Bar: within 10 % in 3 of 4 formats, for the best way that was planned."""
    asked = size.prompts(PROMPTS)
    measured: dict[str, bench.Bench] = {}
    lines, planned = [], {}
    for name in size.parts(FORMATS):
        request = Request(asked, AnswerSettings(GREEDY, max_tokens=size.max_tokens))
        with Terminal() as terminal:
            found = plan.plan(pair_of(name), EngineSettings(ctx_size=CONTEXT), request, terminal)
        planned[name] = found.as_dict() | {"stored": None}  # a path of this machine
        ways = judged_ways(found)
        done = measured[name] = measure(pair_of(name), GREEDY, asked, size, ways=[configured(way) for way in ways])
        best = max(ways, key=lambda way: way.speedup)
        lines += [line(name, way, done, is_best=way is best) for way in ways]
    header = ["verifier", "draft", "expected", "measured, median (min-max)", "measured / expected", "alpha", "measured"]
    document, page = with_summary(measured, header, lines)
    return document | {"plans": planned}, page


def judged_ways(found: Plan) -> list[Candidate]:
    """The best chain of each drafter, its automatic length, and what was recommended, if it is another."""
    ways: list[Candidate] = []
    for one in found.judged:
        chains = [each for each in one.candidates if each.tree == "none" and each.N != "auto"]
        ways += [max(chains, key=lambda each: each.speedup)] if chains else []
        ways += [each for each in one.candidates if each.N == "auto" and not one.tried]
    if found.chosen and all(configured(way) != configured(found.chosen) for way in ways):
        ways.append(found.chosen)
    return ways


def configured(way: Candidate) -> Configuration:
    return Configuration(way.drafter, "auto" if way.N == "auto" else int(way.N), way.tree)


def line(name: str, way: Candidate, done: bench.Bench, *, is_best: bool) -> list[str]:
    """Expected and measured side by side; the best way in bold."""
    row = next(row for row in done.rows if row.configuration == configured(way) and row.category == ALL)
    assert row.speedup is not None
    label = configured(way).label
    return [
        name,
        f"**{label}**" if is_best else label,
        number(way.speedup),
        f"{row.speedup.median:.2f} ({row.speedup.min:.2f}-{row.speedup.max:.2f})",
        number(row.speedup.median / way.speedup, 3),
        number(way.alpha),
        number(row.total.alpha),
    ]
