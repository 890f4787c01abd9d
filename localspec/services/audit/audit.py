"""The audit of a pair: opens it, lends its models to a second drafter that remembers rows, runs both halves.

`audit_law` draws and counts, `audit_greedy` compares texts; here is only what has to do with a loaded pair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from localspec.core.sampling import Sampling
from localspec.core.statistics import Path
from localspec.drafters.registry import entry
from localspec.errors import DrafterError, UsageError
from localspec.services import single
from localspec.services.audit import greedy as audit_greedy
from localspec.services.audit import law as audit_law
from localspec.services.audit.greedy import Greedy
from localspec.services.audit.law import Sampled, Subject
from localspec.services.audit.rows import Recorded, Remembering
from localspec.services.recording import RecordingLender
from localspec.services.report import Report
from localspec.services.runtime import Runtime
from localspec.services.settings import AnswerSettings, EngineSettings, PairChoice

SCHEMA = "localspec.audit/1"
SIZES = 8  # batch sizes that the noise behind a divergence is measured with
LENGTH = 4
"""Draft length where the pair says auto: the controller goes by measured times, and an audit has to be repeatable."""


@dataclass(frozen=True)
class Request:
    """What is audited.

    samples  draws of each kind (0: only greedy text); depth: tokens in a draw
    greedy   tokens of greedy text that are compared (0: none)
    """

    question: single.Question
    answer: AnswerSettings
    samples: int
    depth: int
    greedy: int

    def __post_init__(self) -> None:
        if not self.draws and not self.greedy:
            raise UsageError(
                f"nothing is left to audit with {self.samples} samples at temperature "
                f"{self.answer.sampling.temperature:g} and no greedy tokens",
                hint="Give --greedy more than 0, or --samples more than 0 at a temperature above 0.",
            )

    @property
    def draws(self) -> int:
        """Draws that tell something: a greedy law needs none."""
        return 0 if self.answer.sampling.greedy else self.samples


@dataclass(frozen=True)
class Rows:
    """How models were used: rows asked for, passes really made, rows computed again and their largest difference."""

    asked: int
    passes: int
    rechecked: int
    difference: float


@dataclass(frozen=True)
class Audit:
    """Both halves, None where one was not asked for. texts: what the commonest draws say."""

    verifier: str
    draft: str | None
    drafter: str
    N: int
    tree: str
    sampled: Sampled | None
    rows: Rows | None
    greedy: Greedy | None
    texts: Mapping[Path, str]

    @property
    def passed(self) -> bool:
        return all(half.passed for half in (self.sampled, self.greedy) if half is not None)

    def as_dict(self) -> dict[str, Any]:
        """The document of `audit --json` (contract.md): the sampled half at the top, null where nothing was drawn."""
        nothing = {"samples": 0, "depth": 0, "cells": 0, "chi2": None, "dof": 0, "p_value": None}
        return {
            "schema": SCHEMA,
            "verifier": self.verifier,
            "draft": self.draft,
            "drafter": self.drafter,
            "N": self.N,
            "tree": self.tree,
            **(self.sampled.as_dict() if self.sampled else nothing),
            "rows": asdict(self.rows) if self.rows else None,
            "greedy": self.greedy.as_dict() if self.greedy else None,
            "passed": self.passed,
        }


def audit(choice: PairChoice, engine: EngineSettings, request: Request, report: Report) -> Audit:
    """Open the pair and audit it. Raises `DrafterError` when there is no drafter to audit."""
    with Runtime.open(choice, engine, report) as runtime:
        if runtime.drafter == "none":
            raise DrafterError(
                "this pair decodes plainly, so there is nothing to audit",
                hint="Name a --drafter, or see `localspec models check` for what is wrong with the draft.",
            )
        return measured(runtime, request, report)


def measured(runtime: Runtime, request: Request, report: Report) -> Audit:
    """Audit an open pair, which drafts with a fixed length from now on."""
    settings = runtime.settings()
    N = LENGTH if settings["N"] == "auto" else settings["N"]
    runtime.respeculate(runtime.drafter, N, settings["options"], tree=settings["tree"])
    prompt = single.prompt_ids(request.question, runtime, report)
    sampled, rows = drawn(runtime, request, prompt, report) if request.draws else (None, None)
    return Audit(
        verifier=settings["verifier"],
        draft=settings["draft"],
        drafter=runtime.drafter,
        N=N,
        tree=settings["tree"],
        sampled=sampled,
        rows=rows,
        greedy=compared(runtime, prompt, request.greedy, report) if request.greedy else None,
        texts={path: text(runtime, path) for path, _, _ in sampled.commonest} if sampled else {},
    )


def drawn(runtime: Runtime, request: Request, prompt: list[int], report: Report) -> tuple[Sampled, Rows]:
    """The sampled half, with a drafter of the pair's kind on models that remember rows."""
    settings, answer = runtime.settings(), request.answer
    runtime.lender.listen(True)
    verifier, lender = Recorded(runtime.verifier), RecordingLender(runtime.lender, runtime.verifier)
    tree, controller = runtime.control
    subject = Subject(verifier, runtime.vocab, lender.drafter(runtime.drafter, settings["options"]), controller, tree)
    asked = audit_law.Request(
        prompt,
        answer.sampling,
        request.draws,
        request.depth,
        answer.rule,
        answer.seed,
    )
    sampled = audit_law.compare(subject, asked, report)
    return sampled, summed([verifier, *lender.lent.values()])


def compared(runtime: Runtime, prompt: list[int], count: int, report: Report) -> Greedy:
    """The greedy half, with answers of the pair itself."""

    def decode(before: audit_greedy.Tokens, wanted: int, *, speculate: bool) -> audit_greedy.Tokens:
        settings = AnswerSettings(Sampling(temperature=0.0), max_tokens=wanted)
        with runtime.answer(before, settings, speculate=speculate, ignore_end=True) as stream:
            for _ in stream:
                pass
        return stream.answer.tokens

    tree, controller = runtime.control
    longest = controller.limit(runtime.verifier.draft_room)
    return audit_greedy.compare(
        lambda before, wanted: decode(before, wanted, speculate=False),
        lambda before, wanted: decode(before, wanted, speculate=True),
        runtime.verifier,
        prompt,
        count=count,
        lengths=sorted({*range(2, min(longest, SIZES) + 2), longest + 1}),
        branches=2 if tree is not None or entry(runtime.drafter).grows_trees else 1,
        told=lambda done: report.progress("Comparing greedy text", done, count, "tokens"),
    )


def text(runtime: Runtime, path: Path) -> str:
    """What a few tokens say."""
    return b"".join(runtime.vocab.piece(token, special=True) for token in path).decode("utf-8", "replace")


def summed(contexts: Sequence[Remembering]) -> Rows:
    """What all contexts did together."""
    return Rows(
        sum(context.asked for context in contexts),
        sum(context.passes for context in contexts),
        sum(context.rechecked for context in contexts),
        max(context.difference for context in contexts),
    )
