"""The making of texts: every plot of the farm is busy with a user turn or with an answer, and yields whole texts.

A text follows from the seed and its index: its opener, its temperature, its draws (the size of the batch can tip a near
tie, and a user turn that was asked before is made up again). Knows nothing of files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from localspec.errors import UsageError
from localspec.services.train.law import draw, top_of
from localspec.services.train.questions import digest
from localspec.services.train.shards import Text

if TYPE_CHECKING:
    from localspec.engine.base import Vocab
    from localspec.engine.farm import Crop, Farm
    from localspec.services.train.questions import Asking, Seen

WIDEST = 64
"""Tokens of a row that a draw may choose from."""
TURN_TEMPERATURE, TURN_MIN_P = 1.0, 0.02
OPENED = 0.6
"""Share of user turns that begin with an opener."""
SHORTEST_TURN = 3
SHORTEST_CUT = 16
RETRIES = 20
OPENING = 448
"""Tokens that may stand before a user turn: the template's opening, which can be long, and the opener."""
COMPLETED = 24
"""Words of a beginning that a model without chat template makes up, in tokens."""


@dataclass(frozen=True)
class Wishes:
    """Each answer has one of the `temperatures`; the `kept` likeliest tokens of each row are stored.

    answer, turn, prompt  most tokens of each
    states                hidden rows are stored too
    """

    temperatures: tuple[float, ...] = (0.0, 0.7, 1.0)
    answer: int = 256
    turn: int = 160
    prompt: int = 448
    kept: int = 32
    seed: int = 0
    states: bool = True

    @property
    def longest(self) -> int:
        """Tokens of the longest text: a prompt with its answer, or a user turn behind what the template opens with."""
        return max(self.prompt + self.answer, OPENING + self.turn)


@dataclass
class Plot:
    """What one plot is busy with: first a user turn, then the answer to it. tokens[start:] have been drawn."""

    index: int
    rng: np.random.Generator
    temperature: float
    tokens: list[int] = field(default_factory=list)
    start: int = 0
    lead: int = 0
    answers: bool = False
    asked: int = 0
    refusals: int = 0
    ids: list[npt.NDArray[np.int32]] = field(default_factory=list)
    logs: list[npt.NDArray[np.float32]] = field(default_factory=list)
    layers: list[npt.NDArray[np.float16]] = field(default_factory=list)
    last: list[npt.NDArray[np.float16]] = field(default_factory=list)

    @property
    def written(self) -> int:
        return len(self.tokens) - self.start

    def text(self) -> Text:
        """The finished prompt and answer."""
        return Text(
            self.index,
            self.asked,
            self.temperature,
            np.array(self.tokens, dtype=np.int32),
            self.start,
            np.stack(self.ids),
            np.stack(self.logs).astype(np.float16),
            np.concatenate(self.layers) if self.layers else None,
            np.concatenate(self.last) if self.last else None,
        )


class Maker:
    """Iterates over finished texts, in the order in which they finish."""

    def __init__(
        self,
        farm: Farm,
        vocab: Vocab,
        asking: Asking,
        seen: Seen,
        wishes: Wishes,
        *,
        openers: Sequence[str],
        prompts: Sequence[str] | None,
        indices: Iterator[int],
        stepped: Callable[[int], None] = lambda in_flight: None,
    ) -> None:
        """`prompts` None: the verifier makes up user turns. `indices`: of the texts to make.

        `stepped` hears after each step how many answer tokens belong to unfinished texts.
        """
        self._farm = farm
        self._vocab = vocab
        self._asking = asking
        self._seen = seen
        self._wishes = wishes
        self._openers = openers
        self._prompts = prompts
        self._indices = indices
        self._stepped = stepped
        self._plots: dict[int, Plot] = {}
        self._free = list(range(farm.settings.plots))
        self._finished: list[Text] = []
        self._failed = 0
        self.too_long: list[int] = []
        """Tokens of each prompt that was left out because it is too long."""

    def __iter__(self) -> Iterator[Text]:
        while True:
            while self._free:
                self._start(self._free.pop())
            while self._finished:
                yield self._finished.pop()
            if not self._plots:
                return
            self._step()
            self._stepped(sum(plot.written for plot in self._plots.values() if plot.answers))

    def cut(self) -> list[Text]:
        """The answers in the making as far as they have come: what an interruption leaves."""
        whole = []
        for plot in self._plots.values():
            rows = sum(len(part) for part in plot.layers)
            consistent = len(plot.ids) == len(plot.logs) == plot.written and rows in (0, len(plot.tokens) - 1)
            if plot.answers and consistent and plot.written >= SHORTEST_CUT:
                whole.append(plot.text())
        return whole

    def _step(self) -> None:
        places = sorted(self._plots)
        crop = self._farm.step(places, [self._plots[place].tokens[-1] for place in places])
        top = top_of(crop.logits, WIDEST)
        for row, place in enumerate(places):
            plot = self._plots[place]
            self._keep(plot, crop, slice(row, row + 1))
            self._advance(place, plot, top.ids[row], top.log_probs[row])

    def _start(self, place: int) -> None:
        """Begin the next text here, if there is one."""
        index = next(self._indices, None)
        if index is None or (self._prompts is not None and index >= len(self._prompts)):
            self._farm.clear(place)
            return
        rng = np.random.default_rng([self._wishes.seed, index])
        plot = Plot(index, rng, float(rng.choice(self._wishes.temperatures)))
        if self._prompts is None:
            self._ask(place, plot)
        elif not self._answer(place, plot, self._prompts[index]):
            self._free.append(place)

    def _ask(self, place: int, plot: Plot) -> None:
        """Begin a user turn."""
        opened = not self._asking.converses or plot.rng.random() < OPENED
        opener = self._openers[int(plot.rng.integers(len(self._openers)))] if opened else ""
        plot.lead = len(self._asking.bare(""))
        self._enter(place, plot, self._asking.bare(opener))

    def _answer(self, place: int, plot: Plot, question: str) -> bool:
        """Begin the answer; False when this question is not to be asked."""
        ids = self._asking.prompt(question)
        if not ids or not self._seen.admits(question):
            return False
        if len(ids) > self._wishes.prompt:
            self.too_long.append(len(ids))
            return False
        plot.answers, plot.asked, self._failed = True, digest(question), 0
        self._enter(place, plot, ids)
        return True

    def _enter(self, place: int, plot: Plot, ids: list[int]) -> None:
        """Read `ids` and draw what follows."""
        plot.tokens, plot.start = list(ids), len(ids)
        self._plots[place] = plot
        self._farm.clear(place)
        crop = self._farm.read(place, ids)
        self._keep(plot, crop, slice(None))
        top = top_of(crop.logits, WIDEST)
        self._advance(place, plot, top.ids[0], top.log_probs[0])

    def _keep(self, plot: Plot, crop: Crop, rows: slice) -> None:
        if plot.answers and self._wishes.states:
            plot.layers.append(crop.layers[rows].astype(np.float16))
            plot.last.append(crop.last[rows].astype(np.float16))

    def _advance(self, place: int, plot: Plot, ids: npt.NDArray[np.int32], logs: npt.NDArray[np.float32]) -> None:
        """Draw one more token, and see whether the turn or the answer is over."""
        wishes = self._wishes
        if plot.answers:
            plot.ids.append(ids[: wishes.kept])
            plot.logs.append(logs[: wishes.kept])
            token = draw(ids, logs, plot.temperature, plot.rng)
            limit = wishes.answer
        else:
            token = draw(ids, logs, TURN_TEMPERATURE, plot.rng, min_p=TURN_MIN_P)
            limit = wishes.turn if self._asking.converses else COMPLETED
        plot.tokens.append(token)
        ended = self._vocab.is_end(token)
        if not ended and plot.written < limit:
            return
        del self._plots[place]
        if plot.answers:
            self._finished.append(plot.text())
            self._free.append(place)
        else:
            self._turn_over(place, plot, whole=ended or not self._asking.converses)

    def _turn_over(self, place: int, plot: Plot, *, whole: bool) -> None:
        """Answer the user turn, or make up another one."""
        question = self._asking.text(plot.tokens[plot.lead :])
        enough = SHORTEST_TURN if self._asking.converses else 1
        if whole and len(question.split()) >= enough and self._answer(place, plot, question):
            return
        plot.refusals += 1
        if plot.refusals < RETRIES:
            self._ask(place, plot)
            return
        self._failed += 1
        if self._failed > self._farm.settings.plots:
            raise UsageError(
                "this model makes up no user turns that can be asked: they are too short, endless, or always the same",
                hint="Give prompts of your own with --prompts FILE.jsonl.",
            )
        self._free.append(place)
