"""The benchmark: plain against speculative decoding on one loaded pair, side by side, caches emptied in between.

The protocol: a warm-up of every configuration, then all configurations on each prompt in turn, `repeats` times over.
At temperature 0 every speculative text is compared with the plain one. Knows nothing about tables or terminals.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from localspec.catalog import registry
from localspec.drafters import registry as drafters
from localspec.engine.base import Context, Vocab
from localspec.errors import ContextFullError
from localspec.loop.answer import Answer, Piece
from localspec.services.bench import facts as bench_facts
from localspec.services.bench.rows import Row, rows
from localspec.services.bench.runs import PLAIN, Configuration, Run, Turn, branches, configurations, schedule, widest
from localspec.services.bench.texts import Difference, judge
from localspec.services.chat import template
from localspec.services.pairs import settle
from localspec.services.prompts import Prompt
from localspec.services.report import Report
from localspec.services.runtime import Runtime
from localspec.services.settings import AnswerSettings, EngineSettings, Length, PairChoice

SIZES = (1, 2, 4, 6, 8, 12, 16)
ROUNDS, PASSES = 3, 2  # of the cost curve: every size in turn, with so many passes each time
WARM_UP = 16  # tokens


class Answering(Protocol):
    """An answer in the making: iterate to the end, then read `answer`."""

    def __iter__(self) -> Iterator[Piece]: ...

    @property
    def answer(self) -> Answer: ...


class Measurable(Protocol):
    """What a benchmark needs of a loaded pair; `services.runtime.Runtime` is one."""

    @property
    def vocab(self) -> Vocab: ...

    @property
    def verifier(self) -> Context: ...

    @property
    def template(self) -> str | None: ...

    @property
    def bos(self) -> str: ...

    @property
    def eos(self) -> str: ...

    @property
    def context_size(self) -> int: ...

    @property
    def drafter(self) -> str: ...

    def answer(self, prompt: Sequence[int], settings: AnswerSettings, *, speculate: bool = True) -> Answering: ...

    def respeculate(
        self,
        drafter: str,
        N: Length,
        options: Mapping[str, str] | None = None,
        *,
        tree: str | None = None,
        resume: bool = False,
    ) -> None: ...

    def time_pass(self, count: int, /, *, repeats: int) -> float: ...

    def forget(self) -> None: ...

    def settings(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Request:
    """What to measure.

    drafters, lengths, trees  every drafter is measured with every length and tree; none named: the pair's own
    ways                      these are measured instead, if any are named
    options                   drafter options as typed, given to every drafter that is measured
    raw                       prompts as they stand, without the chat template
    """

    prompts: Sequence[Prompt]
    answer: AnswerSettings
    drafters: Sequence[str] = ()
    lengths: Sequence[Length] = ()
    trees: Sequence[str] = ()
    ways: Sequence[Configuration] = ()
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    repeats: int = 5
    system: str | None = None
    raw: bool = False


@dataclass(frozen=True)
class Bench:
    """A finished benchmark. `runs` are in the order in which they were made; `interrupted`: not all could be."""

    machine: dict[str, Any]
    llama_cpp: str
    verifier: str
    draft: str | None
    protocol: dict[str, Any]
    peak_rss_mb: float | None
    cost_curve: list[tuple[int, float]]
    rows: list[Row]
    runs: list[Run]
    differences: dict[Configuration, list[Difference]]
    interrupted: bool = False

    @property
    def flagged(self) -> list[Row]:
        """Rows whose text is not the verifier's."""
        return [row for row in self.rows if row.differing]

    def as_dict(self) -> dict[str, Any]:
        """The document of `bench --json` (contract.md)."""
        return {
            "schema": "localspec.bench/1",
            "machine": self.machine,
            "llama_cpp": self.llama_cpp,
            "verifier": self.verifier,
            "draft": self.draft,
            "protocol": self.protocol,
            "interrupted": self.interrupted,
            "peak_rss_mb": self.peak_rss_mb,
            "cost_curve": [{"n": n, "ms": 1000 * seconds} for n, seconds in self.cost_curve],
            "rows": [row.as_dict() for row in self.rows],
        }


def bench(choice: PairChoice, engine: EngineSettings, request: Request, report: Report) -> Bench:
    """Load the pair and measure it."""
    known = registry.load()
    asked: Sequence[str | None] = request.drafters or [None]  # None: the pair's own
    names = [settle(replace(choice, drafter=name), known).drafter for name in asked]
    # The pair is opened for a drafter that needs a second model, if there is one: that fetches and checks the draft.
    opener = next((name for name in names if drafters.entry(name).uses_draft), names[0])
    with Runtime.open(replace(choice, drafter=opener), engine, report) as runtime:
        return measure(runtime, replace(request, drafters=names), report)


def measure(runtime: Measurable, request: Request, report: Report) -> Bench:
    """Measure a loaded pair; an interrupt ends the measuring and keeps the runs that are finished.

    Raises `UsageError` when there is nothing to compare, `ContextFullError` when no prompt fits.
    """
    settings = runtime.settings()
    asked = list(request.ways) or configurations(
        request.drafters or [runtime.drafter], request.lengths or [settings["N"]], request.trees or [settings["tree"]]
    )
    chosen, ids = fitting(encode(runtime, request, report), request, runtime.context_size, report)
    table = Table(runtime, request, ids, report, steps=len(SIZES) * ROUNDS + len(asked) + 1)
    contestants = [PLAIN, *(one for one in asked if table.warm_up(one))]
    table.warm_up(PLAIN)
    curve = table.cost_curve()
    table.expect(len(ids) * request.repeats * len(contestants))
    runs: list[Run] = []
    interrupted = False
    try:
        for turn in schedule(len(ids), request.repeats, contestants):
            runs.append(table.play(turn, chosen[turn.prompt].category))  # noqa: PERF401  those made so far are kept
    except KeyboardInterrupt:
        if not runs:
            raise
        interrupted = True
    table.finish()
    peak = bench_facts.peak_rss_mb()
    differences = compared(runtime.verifier, ids, runs) if request.answer.sampling.temperature == 0 else {}
    return Bench(
        machine=bench_facts.machine(),
        llama_cpp=bench_facts.llama_cpp(),
        verifier=Path(settings["verifier"]).name,
        draft=Path(settings["draft"]).name if settings["draft"] else None,
        protocol=protocol(request, prompts=len(ids), settings=settings),
        peak_rss_mb=peak,
        cost_curve=curve,
        rows=rows(runs, differences),
        runs=runs,
        differences=differences,
        interrupted=interrupted,
    )


def protocol(request: Request, *, prompts: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that has to be the same when somebody repeats the measurement."""
    answer = request.answer
    law = dataclasses.asdict(answer.sampling)
    law["logit_bias"] = {str(token): value for token, value in answer.sampling.logit_bias.items()}
    return {
        "repeats": request.repeats,
        "max_tokens": answer.max_tokens,
        "temperature": answer.sampling.temperature,
        "prompts": prompts,
        "seed": answer.seed,
        "acceptance": acceptance(answer),
        "sampling": law,
        "chat_template": not request.raw,
        "engine": {key: value for key, value in settings.items() if key not in ("verifier", "draft", "drafter")},
    }


class Table:
    """The measuring itself: one pair, one set of prompts, one count of steps for the progress."""

    def __init__(
        self,
        runtime: Measurable,
        request: Request,
        ids: Sequence[Sequence[int]],
        report: Report,
        *,
        steps: int,
        fresh: bool = True,
    ) -> None:
        """`fresh`: every answer starts from empty caches, so that the time to read a prompt means something."""
        self._fresh = fresh
        self._runtime = runtime
        self._request = request
        self._ids = ids
        self._report = report
        self._opened = runtime.settings()
        self._done, self._steps = 0, steps

    def expect(self, steps: int) -> None:
        """More is to come."""
        self._steps += steps

    def finish(self) -> None:
        """Whatever was expected and did not come counts as done."""
        self._report.progress("measuring", self._steps, self._steps, "steps")

    def warm_up(self, configuration: Configuration) -> bool:
        """A short answer that nobody times; False when the drafter does not work here (the runtime has said why)."""
        self._decode(0, configuration, max_tokens=WARM_UP, seed=0)
        self._step()
        if self._drafter(configuration) == configuration.drafter:
            return True
        self._report.warn(f"{configuration.label} is left out: its drafter does not work with this pair.")
        return False

    def play(self, turn: Turn, category: str) -> Run:
        """One measured run, from an empty cache."""
        seed = (self._request.answer.seed or 0) + turn.repeat
        stream = self._decode(turn.prompt, turn.configuration, max_tokens=self._request.answer.max_tokens, seed=seed)
        self._step()
        answer = stream.answer
        return Run(turn, category, answer.tokens, answer.stats, self._drafter(turn.configuration))

    def cost_curve(self) -> list[tuple[int, float]]:
        """(n, median seconds of one verifier pass over n tokens), behind the text that the last answer left."""
        times: dict[int, list[float]] = {size: [] for size in SIZES if size < self._runtime.context_size // 2}
        for _ in range(ROUNDS):
            for size, found in times.items():
                found.append(self._runtime.time_pass(size, repeats=PASSES))
                self._step()
        return [(size, statistics.median(found)) for size, found in times.items()]

    def _options(self, configuration: Configuration) -> Mapping[str, str]:
        """The pair's own options for its own drafter, what was typed for the others."""
        opened = self._opened
        return opened["options"] if configuration.drafter == opened["drafter_asked"] else self._request.options

    def _decode(self, prompt: int, configuration: Configuration, *, max_tokens: int | None, seed: int) -> Answering:
        runtime, asked = self._runtime, self._request
        speculate = configuration != PLAIN
        if speculate:
            # What controller and drafter learned in one run serves the next, as it does in a conversation.
            options, tree = self._options(configuration), configuration.tree
            runtime.respeculate(configuration.drafter, configuration.N, options, tree=tree, resume=True)
        if self._fresh:
            runtime.forget()
        settings = replace(asked.answer, seed=seed, acceptance=acceptance(asked.answer), max_tokens=max_tokens)
        stream = runtime.answer(self._ids[prompt], settings, speculate=speculate)
        for _ in stream:
            pass
        return stream

    def _drafter(self, configuration: Configuration) -> str:
        """What is really in use: the runtime's drafter, unless nothing was to be drafted."""
        return "none" if configuration == PLAIN else self._runtime.drafter

    def _step(self) -> None:
        self._done += 1
        self._report.progress("measuring", min(self._done, self._steps - 1), self._steps, "steps")


def acceptance(settings: AnswerSettings) -> Any:
    """The rule that was asked for; the seeds that a benchmark sets on its own do not change it."""
    return settings.acceptance or ("rejection" if settings.seed is None else "coupled")


def encode(runtime: Measurable, request: Request, report: Report) -> list[list[int]]:
    """The ids of every prompt, by the model's chat template where it has one."""
    if request.raw or runtime.template is None:
        if not request.raw:
            report.note("This model has no chat template: the prompts are completed as they stand.")
        return [template.raw_ids(prompt.text, runtime.vocab, runtime.bos)[0] for prompt in request.prompts]
    form = template.Template(runtime.template, runtime.bos, runtime.eos)
    system = [] if request.system is None else [{"role": "system", "content": request.system}]
    return [
        template.chat_ids(form.render([*system, {"role": "user", "content": prompt.text}]), runtime.vocab, runtime.bos)
        for prompt in request.prompts
    ]


def fitting(
    ids: Sequence[list[int]], request: Request, context_size: int, report: Report
) -> tuple[list[Prompt], list[list[int]]]:
    """The prompts that fit into the context together with their answer; the others are named in a warning."""
    room = context_size - (request.answer.max_tokens or 1)
    fits = [len(one) <= room for one in ids]
    for prompt, one, fit in zip(request.prompts, ids, fits, strict=True):
        if not fit:
            report.warn(f"Prompt {prompt.id} is left out: {len(one)} tokens, and the context has room for {room}.")
    if not any(fits):
        raise ContextFullError(
            f"no prompt fits: the context of {context_size} tokens leaves room for {room}.",
            hint="Raise --ctx-size, lower --max-tokens, or choose shorter prompts.",
        )
    kept = [place for place, fit in enumerate(fits) if fit]
    return [request.prompts[place] for place in kept], [ids[place] for place in kept]


def compared(
    verifier: Context, ids: Sequence[Sequence[int]], runs: Sequence[Run]
) -> dict[Configuration, list[Difference]]:
    """Every greedy text that is not the (first) plain text of its prompt, each weighed once."""
    plain: dict[int, tuple[int, ...]] = {}
    for run in runs:
        if run.turn.configuration == PLAIN:
            plain.setdefault(run.turn.prompt, run.tokens)
    found: dict[Configuration, list[Difference]] = {}
    for configuration, prompt, tokens in dict.fromkeys(
        (run.turn.configuration, run.turn.prompt, run.tokens) for run in runs if run.turn.prompt in plain
    ):
        difference = judge(
            verifier,
            ids[prompt],
            plain[prompt],
            tokens,
            index=prompt,
            lengths=batch_sizes(configuration),
            branches=2 if branches(configuration) else 1,
        )
        if difference is not None:
            found.setdefault(configuration, []).append(difference)
    return found


def batch_sizes(configuration: Configuration) -> tuple[int, ...]:
    """Batch sizes in which a configuration may have decoded: these stand for all from 2 to the widest."""
    longest = 1 + widest(configuration, longest=SIZES[-1] - 1)
    return tuple(size for size in dict.fromkeys((2, 4, 8, longest)) if 1 < size <= longest)
