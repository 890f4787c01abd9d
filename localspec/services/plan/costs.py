"""What `plan` measures with a clock: passes over n tokens and draft tokens, in turn, on a real text.

Each probe is a round as a decoder plays it, draft first, so that what one model leaves in the processor's caches is
felt by the other; all sizes come twice in a row before any comes again, and medians count. Knows nothing about
acceptance.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from localspec.core.draft import EMPTY, Draft, Ids
from localspec.drafters.base import Budget, Drafter
from localspec.engine.base import Context
from localspec.planner.plan import Costs
from localspec.services.plan.texts import Text
from localspec.services.report import Report

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
REPEATS = 9
WARM = 2
"""Rounds of all sizes whose times do not count."""
LAYERS = (1, 2, 4, 8)
"""Sizes of a draft pass that are measured."""
MATTERS = 0.02
"""Tokens that are reached more rarely than this are worth no measurement."""
LEAST = 4


@dataclass
class Times:
    """Seconds, by size. first: of passes over another size than the one before, for which the graph is built anew."""

    verify: dict[int, list[float]] = field(default_factory=dict)
    first: dict[int, list[float]] = field(default_factory=dict)
    draft: dict[int, list[float]] = field(default_factory=dict)
    layers: dict[int, list[float]] = field(default_factory=dict)
    reads: dict[int, list[float]] = field(default_factory=dict)


def sizes(reach: Sequence[float], *, room: int, streams: int = 1) -> list[int]:
    """Rows of the passes to measure, for drafts whose token at depth 1, 2, ... is reached with these probabilities."""
    longest = max([LEAST, *(depth for depth, share in enumerate(reach, start=1) if share >= MATTERS)])
    wanted = [n for n in SIZES if n <= longest + 1] + [n for n in SIZES if n > longest + 1][:1]
    return sorted({1, *(min(room + 1, n * streams) for n in wanted)})


class Prober:
    """Plays rounds whose drafts are all refused, on one text, and notes what they take."""

    def __init__(self, verifier: Context, text: Text, *, drafter: Drafter | None, draft: Context | None) -> None:
        """`drafter` drafts with the model in the context `draft`; None: nothing but the verifier is measured."""
        self._verifier = verifier
        self._drafter = drafter
        self._draft = draft
        # Behind the last probe there has to be room for its rows.
        self._tokens: Ids = text.whole[: max(2, verifier.capacity - verifier.draft_room - 1)]
        self._first = min(len(text.prompt), max(1, len(self._tokens) - REPEATS))
        self._at = self._first
        self._rows = 0  # of the last probe
        self.times = Times()

    def start(self) -> None:
        """Read the prompt again."""
        self._verifier.prefill(self._tokens[: self._first], logits=False)
        self._at, self._rows = self._first, 0

    def probe(self, rows: int) -> None:
        """One round: a draft of `rows` - 1 tokens, a pass over them and the pending one, and all are forgotten."""
        if self._at + 1 >= len(self._tokens):
            self.start()
        clock = time.perf_counter
        drafted = self._drafted(rows - 1) if self._drafter and rows > 1 else self._tokens[:0]
        filled = np.resize(np.concatenate([drafted, self._tokens[: self._first]]), rows - 1).astype(np.int32)
        started = clock()
        self._verifier.evaluate(int(self._tokens[self._at]), Draft.chain(filled) if rows > 1 else EMPTY)
        self._verifier.commit(())
        times = self.times.verify if rows == self._rows else self.times.first
        times.setdefault(rows, []).append(clock() - started)
        self._rows = rows
        self._at += 1

    def _drafted(self, count: int) -> Ids:
        assert self._drafter is not None
        started = time.perf_counter()
        draft = self._drafter.propose(self._tokens[: self._at + 1], Budget(count, lambda depth, sure: True))
        if len(draft):
            taken = (time.perf_counter() - started) / len(draft)
            self.times.draft.setdefault(len(draft), []).append(taken)
        return draft.tokens

    def layer(self, nodes: int) -> None:
        """One pass of the draft over so many tokens."""
        assert self._draft is not None
        context, before = self._draft, self._draft.length
        nodes = min(nodes, context.draft_room + 1)
        started = time.perf_counter()
        context.evaluate(int(self._tokens[0]), Draft.chain(self._tokens[1:nodes]) if nodes > 1 else EMPTY)
        self.times.layers.setdefault(nodes, []).append(time.perf_counter() - started)
        context.rewind(before)

    def read(self, count: int) -> None:
        """The draft catches up with so many tokens and gives the row behind the last: it needs no other."""
        assert self._draft is not None
        context, before = self._draft, self._draft.length
        held = context.tokens
        started = time.perf_counter()
        context.prefill(np.concatenate([held, held[:count]]))
        self.times.reads.setdefault(count, []).append(time.perf_counter() - started)
        context.rewind(before)


def measure(
    verifier: Context,
    text: Text,
    wanted: Sequence[int],
    *,
    drafter: Drafter | None = None,
    draft: Context | None = None,
    report: Report,
    streams: int = 1,
) -> Times:
    """Every size in turn, twice behind each other, `REPEATS` times over."""
    prober = Prober(verifier, text, drafter=drafter, draft=draft)
    prober.start()
    layers = sorted({n * streams for n in LAYERS} | set(LAYERS)) if draft else []
    for repeat in range(WARM + REPEATS):
        if repeat == WARM:
            prober.times = Times()
        for rows in wanted if repeat % 2 else reversed(wanted):
            for _ in range(2):
                prober.probe(rows)
        for nodes in layers:
            prober.layer(nodes)
        for count in (1, 2) if draft else ():
            prober.read(count)
        report.progress("Measuring passes", repeat + 1, WARM + REPEATS, "steps")
    return prober.times


def costs(times: Times, texts: Sequence[Text], *, streams: int = 1) -> Costs:
    """Medians; what a round costs besides passes comes from the plain answers.

    Where a context is so small that no size came twice in a row, a first pass has to do.
    """
    counted = [text.stats for text in texts]
    verify = tuple((n, statistics.median(found)) for n, found in sorted((times.first | times.verify).items()))
    anew = tuple(
        (n, max(0.0, statistics.median(times.first[n]) - seconds)) for n, seconds in verify if n in times.first
    )
    layers = tuple((n, statistics.median(found)) for n, found in sorted(times.layers.items()))
    reads = {count: statistics.median(found) for count, found in times.reads.items()}
    steps = [statistics.median(found) for found in times.draft.values()]
    return Costs(
        verify_s=verify,
        anew_s=anew,
        draft_s=statistics.median(steps) if steps else 0.0,
        layers_s=layers,
        again_s=max(0.0, reads[2] - reads[1]) if reads else 0.0,
        law_s=statistics.median(one.accept_s / one.verifier_passes for one in counted),
        round_s=statistics.median(one.other_s / one.verifier_passes for one in counted),
        streams=streams,
    )
