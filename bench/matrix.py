"""The matrix behind "never slower": --N auto against plain decoding and against fixed lengths, cell by cell.

A cell is one verifier, temperature, category and drafter. All ways to decode take turns on each prompt, as in
`localspec bench`; finished cells are appended to a file, and a run that was interrupted goes on from there.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from bench import quantize, results, weights
from bench.harness import CONTEXT, DEFAULT, GREEDY, UNFILTERED, Size
from localspec.cli.console import Terminal
from localspec.core.sampling import Sampling
from localspec.errors import UsageError
from localspec.services.bench import bench
from localspec.services.bench.rows import added
from localspec.services.bench.runs import PLAIN, Configuration, Run, schedule
from localspec.services.prompts import Prompt, choose
from localspec.services.runtime import Runtime
from localspec.services.settings import AnswerSettings, EngineSettings, Length, PairChoice

DRAFTS = {"Q4_0": "Q2_K", "Q4_1": "Q4_0", "Q8_0": "Q4_0", "F32": "Q4_0"}
"""Verifier -> draft, all of the same weights."""
SAMPLINGS = {"T=0": GREEDY, "T=0.8": DEFAULT, "T=1": UNFILTERED}
DRAFTERS = ("model", "ngram")
LENGTHS = (1, 2, 3, 5, 8)
PARTS = {"writing": "conversation", "coding": "conversation"}
"""Labels of Spec-Bench's conversations."""
BARS = {"plain": (1.00, 0.97), "best fixed": (0.96, 0.92)}
"""Against what: least median, least of all cells."""


@dataclass(frozen=True)
class Cell:
    """Tokens per second of one drafter: sums over the runs of the cell. fixed: by N.

    ratios  auto / plain of each prompt and repeat, which were decoded one behind the other
    """

    verifier: str
    temperature: str
    category: str
    drafter: str
    plain: float
    auto: float
    fixed: dict[str, float] = field(default_factory=dict)
    tokens: int = 0
    why: str = ""
    ratios: list[float] = field(default_factory=list)

    @property
    def place(self) -> tuple[str, str, str]:
        return self.verifier, self.temperature, self.category

    @property
    def against_plain(self) -> float:
        """The median of the pairs: the accidents of a busy machine come singly."""
        return statistics.median(self.ratios) if self.ratios else self.auto / self.plain

    @property
    def against_best(self) -> float | None:
        """Against the best fixed length in hindsight: the best of several noisy figures, so a hard bar."""
        return self.auto / max(self.fixed.values()) if self.fixed else None


def matrix(size: Size) -> tuple[dict[str, Any], str]:
    """Bars: >= 1.00x plain in median and 0.97x everywhere; >= 0.96x and 0.92x the best fixed length."""
    lengths = tuple(filter(None, size.lengths or LENGTHS))
    kept = _read(size.cells, size, lengths)
    asked = _prompts(size)
    todo = [
        (verifier, temperature, category)
        for verifier in size.parts(DRAFTS)
        for temperature in SAMPLINGS
        for category in dict.fromkeys(prompt.category for prompt in asked)
        if (verifier, temperature, category) not in {cell.place for cell in kept}
    ]
    started, done = time.monotonic(), 0
    for verifier in dict.fromkeys(place[0] for place in todo):
        with Terminal() as terminal, _open(verifier, terminal) as runtime:
            numbers: list[Length] = ["auto", *lengths]
            ways = [Configuration(drafter, N) for drafter in DRAFTERS for N in numbers]
            measuring = Measuring(runtime, ways, size, terminal)
            for _, temperature, category in (place for place in todo if place[0] == verifier):
                prompts = [prompt for prompt in asked if prompt.category == category]
                runs = measuring.runs(prompts, SAMPLINGS[temperature])
                cells = [_cell(runs, drafter, (verifier, temperature, category)) for drafter in DRAFTERS]
                kept += cells
                _append(size.cells, cells, size, lengths)
                done += 1
                left = (time.monotonic() - started) / done * (len(todo) - done) / 60
                terminal.note(f"{verifier} {temperature} {category}: {_short(cells)}; about {left:.0f} minutes left")
    return {"cells": [asdict(cell) for cell in kept], "lengths": list(lengths), "verdict": _verdict(kept)}, _page(kept)


class Measuring:
    """One loaded verifier; what controllers learn in one cell they keep for the next, as in a conversation."""

    def __init__(self, runtime: Runtime, ways: Sequence[Configuration], size: Size, terminal: Terminal) -> None:
        self._runtime, self._size, self._terminal = runtime, size, terminal
        self._contestants = [PLAIN, *ways]
        self._warm = False

    def runs(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Run]:
        # Coupled: the same text whoever drafts, so that all ways have the same tokens to decode.
        answer = AnswerSettings(sampling=sampling, acceptance="coupled", max_tokens=self._size.max_tokens)
        request = bench.Request(prompts, answer, ways=self._contestants[1:], repeats=self._size.repeats)
        chosen, ids = bench.fitting(
            bench.encode(self._runtime, request, self._terminal), request, self._runtime.context_size, self._terminal
        )
        steps = len(self._contestants) * (len(ids) * request.repeats + (not self._warm))
        # Reading a prompt is no part of the figures, and long prompts would take most of the time: they stay cached.
        table = bench.Table(self._runtime, request, ids, self._terminal, steps=steps, fresh=False)
        if not self._warm:
            for way in self._contestants:
                table.warm_up(way)
            self._warm = True
        turns = schedule(len(ids), request.repeats, self._contestants)
        return [table.play(turn, chosen[turn.prompt].category) for turn in turns]


def _open(verifier: str, terminal: Terminal) -> Runtime:
    source = weights.smollm2()
    file = source if verifier == "Q4_1" else quantize.variant(source, verifier)
    choice = PairChoice(verifier=str(file), draft=str(quantize.variant(source, DRAFTS[verifier])))
    return Runtime.open(choice, EngineSettings(ctx_size=CONTEXT), terminal)


def _prompts(size: Size) -> list[Prompt]:
    """Six categories: the conversations of Spec-Bench are one."""
    found = replace(size, categories=(), limit=None).prompts("specbench12")
    merged = [replace(prompt, category=PARTS.get(prompt.category, prompt.category)) for prompt in found]
    return choose(merged, categories=size.categories, limit=size.limit)


def _cell(runs: Sequence[Run], drafter: str, place: tuple[str, str, str]) -> Cell:
    def speed(way: Configuration) -> float:
        return added(run.stats for run in runs if run.turn.configuration == way).tokens_per_s or 0.0

    auto = Configuration(drafter, "auto")
    mine = [run.turn.configuration for run in runs if run.turn.configuration.drafter == drafter]
    last = next(run for run in reversed(runs) if run.turn.configuration == auto)
    speeds = {(run.turn.prompt, run.turn.repeat, run.turn.configuration): run.stats.tokens_per_s for run in runs}
    return Cell(
        *place,
        drafter,
        plain=speed(PLAIN),
        auto=speed(auto),
        fixed={str(way.N): speed(way) for way in dict.fromkeys(mine) if way != auto},
        tokens=sum(len(run.tokens) for run in runs if run.turn.configuration == PLAIN),
        why=last.stats.controller,
        ratios=[
            speed / plain
            for (prompt, repeat, way), speed in speeds.items()
            if way == auto and speed and (plain := speeds[prompt, repeat, PLAIN])
        ],
    )


def _read(path: Path | None, size: Size, lengths: Sequence[int]) -> list[Cell]:
    """The cells that an earlier run finished. Raises `UsageError` when it was of another size."""
    if path is None or not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    for line in lines:
        if line.pop("size") != _size(size, lengths):
            raise UsageError(f"{path} holds cells of another size", hint="Name another file with --cells.")
    return [Cell(**line) for line in lines]


def _append(path: Path | None, cells: Iterable[Cell], size: Size, lengths: Sequence[int]) -> None:
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps({**asdict(cell), "size": _size(size, lengths)}) + "\n" for cell in cells)


def _size(size: Size, lengths: Sequence[int]) -> dict[str, Any]:
    return {
        "repeats": size.repeats,
        "max_tokens": size.max_tokens,
        "limit": size.limit,
        "lengths": list(lengths),
    }


def _verdict(cells: Sequence[Cell]) -> dict[str, Any]:
    """Median and worst against each bar, and how many cells are below its worst."""
    against = {
        "plain": [cell.against_plain for cell in cells],
        "best fixed": [cell.against_best for cell in cells if cell.against_best is not None],
    }
    return {
        name: {
            "cells": len(ratios),
            "median": statistics.median(ratios),
            "worst": min(ratios),
            "below": sum(ratio < BARS[name][1] for ratio in ratios),
            "met": statistics.median(ratios) >= BARS[name][0] and min(ratios) >= BARS[name][1],
        }
        for name, ratios in against.items()
        if ratios
    }


def _page(cells: Sequence[Cell]) -> str:
    head = ["N=auto against", "cells", "median (bar)", "worst (bar)", "cells below", "met"]
    rows = [
        [
            name,
            str(found["cells"]),
            f"{found['median']:.3f} ({BARS[name][0]:.2f})",
            f"{found['worst']:.3f} ({BARS[name][1]:.2f})",
            str(found["below"]),
            "yes" if found["met"] else "no",
        ]
        for name, found in _verdict(cells).items()
    ]
    columns = ["verifier", "sampling", "category", "drafter", "plain", "auto", "best fixed", "/ plain", "/ best"]
    lines = []
    for cell in cells:
        best = max(cell.fixed, key=cell.fixed.__getitem__, default="-")
        lines.append(
            [
                *cell.place,
                cell.drafter,
                f"{cell.plain:.1f}",
                f"{cell.auto:.1f}",
                f"{cell.fixed[best]:.1f} (N={best})" if cell.fixed else "-",
                f"{cell.against_plain:.3f}",
                "-" if cell.against_best is None else f"{cell.against_best:.3f}",
            ]
        )
    return f"{results.as_table(head, rows)}\n\nTokens per second.\n\n{results.as_table(columns, lines)}"


def _short(cells: Sequence[Cell]) -> str:
    return ", ".join(f"{cell.drafter} {cell.against_plain:.2f}x plain" for cell in cells)
