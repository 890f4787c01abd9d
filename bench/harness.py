"""What the tables have in common: the pairs, the samplings, how much to measure, and one benchmark of the service."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench import quantize, results, weights
from localspec.cli.bench_formats import markdown
from localspec.cli.console import Terminal
from localspec.core.sampling import Sampling
from localspec.errors import UsageError
from localspec.services import prompts
from localspec.services.bench import bench
from localspec.services.bench.runs import Configuration
from localspec.services.settings import AnswerSettings, EngineSettings, Length, PairChoice

SETS = Path(__file__).parent / "prompts"
CONTEXT = 2048
GREEDY = Sampling(temperature=0.0)
DEFAULT = Sampling()
UNFILTERED = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
SAMPLINGS = {"T=0": GREEDY, "default": DEFAULT, "T=1, no filters": UNFILTERED}


@dataclass(frozen=True)
class Size:
    """How much to measure.

    limit       prompts per category, None: all
    categories  only these, none named: all
    only        parts of the table, none named: all
    N           draft length where a table leaves the choice, None: the table's own
    trees       static trees to measure, none named: the table's own
    lengths     fixed draft lengths to measure, none named: the table's own
    cells       file that finished parts are appended to, None: none
    """

    repeats: int
    max_tokens: int
    limit: int | None
    categories: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    N: Length | None = None
    trees: tuple[str, ...] = ()
    lengths: tuple[int, ...] = ()
    cells: Path | None = None

    def parts(self, names: Iterable[str]) -> list[str]:
        """Those of a table's parts that are wanted. Raises `UsageError` for one that it does not have."""
        known = list(names)
        for name in self.only:
            if name not in known:
                raise UsageError(f"this table has no part {name!r}", hint=f"It has: {', '.join(known)}.")
        return [name for name in known if name in (self.only or known)]

    def prompts(self, *names: str) -> list[prompts.Prompt]:
        """The prompts of these sets."""
        found = [prompt for name in names for prompt in prompts.read(SETS / f"{name}.jsonl")]
        return prompts.choose(found, categories=self.categories, limit=self.limit)


def measure(
    choice: PairChoice,
    sampling: Sampling,
    asked: Sequence[prompts.Prompt],
    size: Size,
    *,
    ways: Sequence[Configuration],
    acceptance: Any = None,
    options: Mapping[str, str] | None = None,
) -> bench.Bench:
    """One benchmark of the service, by its own protocol; `options` go to every drafter."""
    answer = AnswerSettings(sampling=sampling, acceptance=acceptance, max_tokens=size.max_tokens)
    drafters = list(dict.fromkeys(way.drafter for way in ways))
    given = dict(options or {})
    request = bench.Request(asked, answer, drafters=drafters, ways=ways, repeats=size.repeats, options=given)
    with Terminal() as terminal:
        return bench.bench(replace(choice, options=given), EngineSettings(ctx_size=CONTEXT), request, terminal)


def f32_with_q4_0() -> PairChoice:
    """The pair of the comparison: F32 is memory-bound on a CPU as everything is on a GPU, and Q4_0 is fast."""
    source = weights.smollm2()
    return PairChoice(verifier=str(quantize.variant(source, "F32")), draft=str(quantize.variant(source, "Q4_0")))


VERIFIERS: dict[str, Callable[[], PairChoice]] = {"F32": f32_with_q4_0, "Q4_1": lambda: q4_1(with_draft=True)}
"""The two kinds of machine: bound by memory and bound by compute; each with the Q4_0 draft."""


def q4_1(*, with_draft: bool = False) -> PairChoice:
    """The embedded model as it comes; the draft is the same weights as Q4_0."""
    source = weights.smollm2()
    draft = str(quantize.variant(source, "Q4_0")) if with_draft else None
    return PairChoice(verifier=str(source), draft=draft)


def together(measured: dict[str, bench.Bench]) -> tuple[dict[str, Any], str]:
    """Several benchmarks as one document and one page."""
    documents = {name: one.as_dict() for name, one in measured.items()}
    return {"benchmarks": documents}, "\n\n".join(f"## {name}\n\n{markdown(one)}" for name, one in documents.items())


def ranged(spread: dict[str, float]) -> str:
    return f"{spread['median']:.3f} ({spread['min']:.3f}-{spread['max']:.3f})"


def with_summary(
    measured: dict[str, bench.Bench], header: list[str], rows: list[list[str]]
) -> tuple[dict[str, Any], str]:
    """The same below a table of its own, which says what the numbers are about."""
    document, page = together(measured)
    return document | {"summary": {"header": header, "rows": rows}}, f"{results.as_table(header, rows)}\n\n{page}"


def number(value: float | None, digits: int = 2) -> str:
    """A figure for a table, "-" where there is none."""
    return "-" if value is None else f"{value:.{digits}f}"
