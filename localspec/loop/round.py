"""One speculative round: propose, evaluate, accept, commit, observe.

Plain decoding is this round with an empty draft, a lookup a draft of deterministic picks, greedy a one-hot verifier.
Whatever happens between `evaluate` and `commit`, the verifier's cache ends up holding the committed text.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from localspec.core.draft import EMPTY, Draft, Ids, Verdict
from localspec.core.law import Law
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.engine.base import Context, Pass

Propose = Callable[[], Draft]
Observe = Callable[[Pass, Verdict], None]
Keep = Callable[[tuple[int, ...]], int]
"""The round's tokens, accepted ones and then the next -> how many of them belong to the answer (at least one)."""


class Round(NamedTuple):
    """What one round did; times in seconds.

    block  the tokens it emitted; `kept` of them belong to the answer, the last of those is the new pending token
    """

    draft: Draft
    result: Pass
    verdict: Verdict
    block: tuple[int, ...]
    kept: int
    draft_s: float
    verify_s: float
    accept_s: float


class RowLaws:
    """The verifier's law at each row of a pass: the sampling of that position, given the path that leads there."""

    __slots__ = ("_draft", "_result", "_sampling", "_tokens")

    def __init__(self, tokens: Ids, draft: Draft, result: Pass, sampling: Sampling) -> None:
        self._tokens = tokens
        self._draft = draft
        self._result = result
        self._sampling = sampling

    def __call__(self, row: int) -> Law:
        recent = self._tokens
        if row and self._sampling.penalises:  # only penalties read the tokens before the position
            recent = np.concatenate([recent, self._draft.tokens[list(self._draft.path(row - 1))]])
        return self._sampling.law(self._result.logits(row), recent)


def play_round(
    tokens: Ids,
    *,
    verifier: Context,
    propose: Propose | None,
    observe: Observe | None = None,
    sampling: Sampling,
    rule: Rule,
    keep: Keep,
) -> Round:
    """Play one round on top of `tokens`, the committed text with its pending token.

    `propose` None is a plain pass. `observe` may read the rows of the pass, so it comes before the commit, which may
    evaluate again. An exception (an interrupt, too) leaves the cache as it was before the round.
    """
    clock = time.perf_counter
    started = clock()
    draft = propose() if propose else EMPTY
    drafted = clock()
    before = verifier.length
    try:
        result = verifier.evaluate(int(tokens[-1]), draft)
        evaluated = clock()
        verdict = rule.accept(draft, RowLaws(tokens, draft, result, sampling), len(tokens))
        block = (*map(draft.tokens.item, verdict.path), verdict.next_token)
        kept = keep(block)
        accepted = clock()
        if observe:
            observe(result, verdict)
        observed = clock()
        verifier.commit(verdict.path[: kept - 1])
    except BaseException:
        verifier.rewind(min(before, verifier.length))  # it may hold less: an interrupted commit evaluates nothing again
        raise
    draft_s, verify_s = drafted - started + observed - accepted, evaluated - drafted + clock() - observed
    return Round(draft, result, verdict, block, kept, draft_s, verify_s, accepted - evaluated)
