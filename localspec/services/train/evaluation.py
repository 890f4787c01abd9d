"""`train eval`: what a head is worth where it counts, in real speculative answers to held-out prompts.

Each head is measured by the benchmark itself (`services.bench`), in chains and trees, at temperature 0 and 1, beside
prompt lookup and, where one is given, a draft model. Knows no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localspec.core.sampling import Sampling
from localspec.errors import UsageError
from localspec.services.bench.runs import Configuration
from localspec.services.settings import AnswerSettings, EngineSettings, PairChoice

if TYPE_CHECKING:
    from localspec.services.bench.rows import Row
    from localspec.services.prompts import Prompt
    from localspec.services.report import Report

SCHEMA = "localspec.train-eval/1"


@dataclass(frozen=True)
class EvalRequest:
    """heads: GGUFs that `train head` wrote. draft: a model to compare with. N, depth: of chains and of trees.

    Both are drafted whether they pay or not: what counts is the head, not what it brings on this machine.
    """

    heads: Sequence[Path]
    prompts: Sequence[Prompt]
    verifier: str | None = None
    draft: str | None = None
    N: int = 3
    depth: int = 5
    tree: str = "auto"
    temperatures: Sequence[float] = (0.0, 1.0)
    max_tokens: int = 128
    force: bool = False
    raw: bool = False


@dataclass(frozen=True)
class EvalRow:
    """One way to draft at one temperature on one category of prompts."""

    name: str
    drafter: str
    N: int | str
    tree: str
    temperature: float
    category: str
    alpha: tuple[float, ...]
    tokens_per_pass: float
    speedup: float | None
    passes: int
    tokens: int

    def as_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "alpha": list(self.alpha)}


@dataclass(frozen=True)
class Evaluation:
    rows: list[EvalRow]
    verifier: str
    prompts: int

    def as_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "verifier": self.verifier,
            "prompts": self.prompts,
            "rows": [row.as_dict() for row in self.rows],
        }


def evaluate(request: EvalRequest, engine: EngineSettings, report: Report) -> Evaluation:
    """Measure every head, prompt lookup and the draft model. Raises `UsageError` where there is nothing to measure."""
    from localspec.services.bench import bench

    if not request.heads and request.draft is None:
        raise UsageError("there is nothing to evaluate", hint="Name a head, or a model with --draft.")
    rows: list[EvalRow] = []
    verifier = ""
    for name, choice, ways in contestants(request):
        for temperature in request.temperatures:
            # At temperature 1 the whole law is drawn from: filters would flatter every drafter.
            sampling = Sampling(temperature=temperature, top_k=0, top_p=1.0, min_p=0.0)
            asked = bench.Request(
                prompts=request.prompts,
                answer=AnswerSettings(sampling=sampling, acceptance="rejection", seed=1, max_tokens=request.max_tokens),
                drafters=[ways[0].drafter],
                ways=ways,
                options=choice.options,
                repeats=1,
                raw=request.raw,
            )
            found = bench.bench(choice, engine, asked, report)
            verifier = found.verifier
            rows += [read(row, name, temperature) for row in found.rows if row.configuration.drafter != "none"]
            if found.interrupted:
                raise KeyboardInterrupt
    return Evaluation(rows, verifier, len(request.prompts))


def contestants(request: EvalRequest) -> list[tuple[str, PairChoice, list[Configuration]]]:
    """What is measured: a name, the pair to open, and the ways to draft with it."""
    plain = PairChoice(verifier=request.verifier) if request.verifier else PairChoice()
    found = []
    for path in request.heads:
        kind = kind_of(path)
        options = {"force": "true"} if request.force else {}
        ways = [Configuration(kind, request.N), Configuration(kind, request.depth, request.tree)]
        found.append((path.stem, replace(plain, draft=str(path), drafter=kind, options=options), ways))
    if request.draft:
        model = replace(plain, draft=request.draft, drafter="model")
        ways = [Configuration("model", request.N), Configuration("model", request.depth, request.tree)]
        found.append(("model", model, ways))
    found.append(("ngram", replace(plain, drafter="ngram"), [Configuration("ngram", request.N)]))
    return found


def kind_of(path: Path) -> str:
    """The kind of a head's file, which is the name of its drafter. Raises `UsageError` for a file that is none."""
    from localspec.catalog.gguf import read_header
    from localspec.drafters import registry

    header = read_header(path)
    kind = header.text("localspec.head.kind") or header.text("general.architecture")
    if kind not in registry.REGISTRY:
        raise UsageError(f"{path} holds no head that can draft ({kind})", hint="Name what `train head` wrote.")
    return kind


def read(row: Row, name: str, temperature: float) -> EvalRow:
    """A row of the benchmark, with alpha position by position."""
    document = row.as_dict()
    accepted = document.get("accepted_by_position") or []
    speedup = document.get("speedup")
    return EvalRow(
        name,
        document["drafter"],
        document["N"],
        document["tree"],
        temperature,
        document["category"],
        by_position(accepted, document["verifier_passes"]),
        document["tokens_per_pass"],
        speedup["median"] if speedup else None,
        document["verifier_passes"],
        document["completion_tokens"],
    )


def by_position(accepted: Sequence[int], passes: int) -> tuple[float, ...]:
    """Accepted at a position over accepted at the one before; the first over all passes."""
    before = [passes, *accepted]
    return tuple(count / reached for count, reached in zip(accepted, before, strict=False) if reached)
