"""The sampled half of an audit: the next tokens of a prompt, drawn plainly and speculatively, must come from one law.

When they seem not to, a third sample tells the algorithm from the arithmetic: plain draws from passes as large as the
speculative ones, whose rows differ from those of single tokens on many backends. Knows no files and no terminal.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from localspec.core import statistics
from localspec.core.draft import EMPTY, Draft, Ids
from localspec.core.growth import Growth
from localspec.core.law import Law
from localspec.core.sampling import Sampling
from localspec.core.shapes import Shape
from localspec.core.statistics import ChiSquare, Path
from localspec.drafters.base import Drafter
from localspec.engine.base import Context, Row, Vocab
from localspec.errors import DrafterError
from localspec.loop.control import Controller
from localspec.loop.proposer import Proposer
from localspec.services.audit.sampling import Sampler, rules
from localspec.services.report import Report
from localspec.services.settings import Acceptance

LEVEL = 0.001
"""A true law is refused this often."""
TOLD = 20  # draws between two signs of progress
SHOWN = 8  # commonest paths
LOOKED_AT = 8  # first tokens behind which the noise of batch shapes is measured
PLAIN, SPECULATIVE, PADDED = range(3)


@dataclass(frozen=True)
class Subject:
    """What is audited: a verifier and a way to draft for it. The controller has to decide without a clock."""

    verifier: Context
    vocab: Vocab
    drafter: Drafter
    controller: Controller
    tree: Shape | Growth | None = None


@dataclass(frozen=True)
class Request:
    """How much is drawn, and from which law. seed None: another one every time."""

    prompt: Sequence[int]
    sampling: Sampling
    samples: int
    depth: int
    acceptance: Acceptance = "rejection"
    seed: int | None = None


@dataclass(frozen=True)
class Noise:
    """How far the rows of large passes are from those of single tokens: largest difference of a logit and of a law.

    law is a total-variation distance.
    """

    logits: float
    law: float


@dataclass(frozen=True)
class Sampled:
    """The two samples compared.

    test      speculative against plain
    padded    speculative against plain draws from passes as large as the speculative ones; None unless `test` failed
    alpha     accepted / tested in the speculative draws
    largest   nodes of the largest draft
    commonest paths drawn most often, with their counts (plain, speculative)
    """

    samples: int
    depth: int
    seed: int
    test: ChiSquare
    padded: ChiSquare | None
    noise: Noise
    alpha: float
    largest: int
    commonest: tuple[tuple[Path, int, int], ...]

    @property
    def is_explained(self) -> bool:
        """It failed only against rows of another batch shape, and these do differ."""
        return (
            self.test.p_value < LEVEL
            and self.padded is not None
            and self.padded.p_value >= LEVEL
            and self.noise.law > 0.0
        )

    @property
    def passed(self) -> bool:
        return self.test.p_value >= LEVEL or self.is_explained

    def as_dict(self) -> dict[str, Any]:
        return {
            "samples": self.samples,
            "depth": self.depth,
            "cells": self.test.cells,
            "chi2": self.test.chi2,
            "dof": self.test.dof,
            "p_value": self.test.p_value,
            "seed": self.seed,
            "alpha": self.alpha,
            "largest_draft": self.largest,
            "noise": {"logits": self.noise.logits, "law": self.noise.law},
            "padded": None
            if self.padded is None
            else {"chi2": self.padded.chi2, "dof": self.padded.dof, "p_value": self.padded.p_value},
            "explained_by_noise": self.is_explained,
            "commonest": [
                {"tokens": list(path), "plain": plain, "speculative": speculative}
                for path, plain, speculative in self.commonest
            ],
        }


def compare(subject: Subject, request: Request, report: Report) -> Sampled:
    """Draw both samples in turn and compare them. Raises `DrafterError` when the drafter fails or never drafts."""
    seed = secrets.randbits(31) if request.seed is None else request.seed
    sampler = Sampler(
        np.array(request.prompt, dtype=np.int32),
        request.depth,
        sampling=request.sampling,
        verifier=subject.verifier,
        vocab=subject.vocab,
    )
    proposer = Proposer(subject.drafter, subject.controller, vocab=subject.vocab, warn=refuse, tree=subject.tree)
    limit = subject.controller.limit(subject.verifier.draft_room)
    plain_rule, own_rule, padded_rule = (
        rules(request.acceptance, (seed, side)) for side in (PLAIN, SPECULATIVE, PADDED)
    )
    plain, speculative, padded = Counter[Path](), Counter[Path](), Counter[Path]()
    for number in range(1, request.samples + 1):
        plain[sampler.plain(plain_rule())] += 1
        speculative[sampler.speculative(own_rule(), proposer, limit)] += 1
        tell(report, "Sampling plainly and speculatively", number, request.samples)
    if not sampler.largest:
        raise DrafterError(
            f"drafter {subject.drafter.name} proposed nothing in {request.samples} draws, so there is nothing to audit",
            hint="Choose another --drafter, or a prompt that it can draft for (prompt lookup needs repetitions).",
        )
    test = statistics.same(plain, speculative)
    if test.p_value < LEVEL:
        for number in range(1, request.samples + 1):
            padded[sampler.padded(padded_rule(), sampler.largest)] += 1
            tell(report, "Sampling plainly in larger passes", number, request.samples)
    return Sampled(
        samples=request.samples,
        depth=request.depth,
        seed=seed,
        test=test,
        padded=statistics.same(padded, speculative) if padded else None,
        noise=noise(sampler, plain),
        alpha=sampler.accepted / sampler.tested,
        largest=sampler.largest,
        commonest=tuple((path, plain[path], speculative[path]) for path, _ in (plain + speculative).most_common(SHOWN)),
    )


def refuse(reason: str) -> None:
    """A drafter that fails ends an audit: what plain decoding does afterwards proves nothing about it."""
    raise DrafterError(reason, hint="Set LOCALSPEC_DEBUG=1 to see where.")


def tell(report: Report, what: str, done: int, total: int) -> None:
    if done % TOLD == 0 or done == total:
        report.progress(what, done, total, "steps")


def noise(sampler: Sampler, plain: Counter[Path]) -> Noise:
    """Rows of single tokens against rows of passes as large as the largest draft's, behind prompt and likely tokens."""
    firsts = Counter[Path]()
    for path, count in plain.items():
        firsts[path[:1]] += count
    texts = [sampler.prompt]
    texts += [
        np.append(sampler.prompt, np.int32(path[0]))
        for path, _ in firsts.most_common(LOOKED_AT)
        if sampler.depth > 1 and not sampler.vocab.is_end(path[0])
    ]
    logits = law = 0.0
    for text in texts:
        alone, beside = (row_after(sampler, text, draft) for draft in (EMPTY, sampler.padding(text, sampler.largest)))
        logits = max(logits, float(np.abs(alone - beside).max()))
        law = max(law, distance(*(sampler.sampling.law(row, text) for row in (alone, beside)), size=len(alone)))
    return Noise(logits, law)


def row_after(sampler: Sampler, text: Ids, draft: Draft) -> Row:
    """(V,) the row behind `text` in a pass over its last token and `draft`."""
    sampler.verifier.prefill(text[:-1], logits=False)
    row = np.array(sampler.verifier.evaluate(int(text[-1]), draft).logits(0))
    sampler.verifier.rewind(len(text) - 1)
    return row


def distance(left: Law, right: Law, *, size: int) -> float:
    """Total variation."""
    return 0.5 * float(np.abs(left.dense(size) - right.dense(size)).sum())
