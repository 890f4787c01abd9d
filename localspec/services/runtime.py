"""The composition root: opens a pair and answers prompts with it. The only place where concrete parts meet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from localspec.engine.base import Cancelled, Vocab
from localspec.loop.answer import Answer, Piece
from localspec.services.report import Report
from localspec.services.settings import AnswerSettings, EngineSettings, PairChoice


class Stream:
    """An answer in the making: iterate for pieces, `close()` to give up; `answer` holds the result afterwards.

    Leaving the loop early, closing or an exception keeps the cache equal to the committed text and still sets `answer`
    (finish_reason "interrupted").
    """

    answer: Answer

    def __iter__(self) -> Iterator[Piece]:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class Runtime:
    """A loaded pair. One answer at a time (`BusyError` otherwise); `close()` or `with` frees the models."""

    vocab: Vocab
    template: str | None
    """The model's own Jinja chat template, None when the file has none."""
    bos: str
    eos: str
    context_size: int
    drafter: str
    """Name of the drafter really in use."""
    placement: list[str]
    """One line per model: file, architecture, size, where its layers live."""

    @classmethod
    def open(cls, choice: PairChoice, engine: EngineSettings, report: Report) -> Runtime:
        """Fetch what is missing, load, check the pair. A draft that does not fit warns and leaves plain decoding."""
        raise NotImplementedError

    def answer(
        self,
        prompt: Sequence[int],
        settings: AnswerSettings,
        *,
        cancelled: Cancelled | None = None,
        report: Report | None = None,
        speculate: bool = True,
    ) -> Stream:
        """Stream the answer to `prompt` (ids). Raises `ContextFullError` before anything is evaluated."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """What was asked for and what is in use, for `run --json`."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
