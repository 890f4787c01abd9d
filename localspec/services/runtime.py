"""The composition root: opens a pair and answers prompts with it. The only place where concrete parts meet."""

from __future__ import annotations

import secrets
import statistics
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from localspec.catalog import fetch, registry, vocabularies
from localspec.catalog.modelfile import ModelFile
from localspec.core.coupled import Coupled
from localspec.core.draft import Draft
from localspec.core.rejection import Rejection
from localspec.core.rule import Rule
from localspec.drafters import registry as drafters
from localspec.drafters.base import Drafter
from localspec.engine.base import Cancelled, Context
from localspec.engine.context import ContextSettings
from localspec.engine.devices import default_threads
from localspec.engine.vocab import LlamaVocab
from localspec.errors import BusyError, ContextFullError, LocalspecError, PairError, UsageError
from localspec.loop.answer import Answer, Piece
from localspec.loop.control import Controller, FixedLength
from localspec.loop.generation import Generation, Limits
from localspec.loop.proposer import Proposer
from localspec.planner.controller import AutoLength
from localspec.services.lender import PairLender, Second
from localspec.services.loading import Loaded, load
from localspec.services.pairs import Length, SettledPair, settle
from localspec.services.report import Report, Silent
from localspec.services.settings import AnswerSettings, EngineSettings, PairChoice

CONTEXT_LIMIT = 8192
"""Context size when none is asked for: the model's own, but no more than this."""
DRAFT_ROOM = 32
"""Most nodes of a draft that contexts are made for, unless a longer N is asked for."""


class Stream:
    """An answer in the making: iterate for pieces, `close()` to give up; `answer` holds the result afterwards.

    Leaving the loop early, closing or an exception keeps the cache equal to the committed text and still sets `answer`
    (finish_reason "interrupted").
    """

    def __init__(self, generation: Generation, lock: threading.Lock) -> None:
        self._generation = generation
        self._lock = lock
        self._pieces = self._run()

    def __iter__(self) -> Iterator[Piece]:
        return self._pieces

    def __next__(self) -> Piece:
        return next(self._pieces)

    def _run(self) -> Iterator[Piece]:
        if not self._lock.acquire(blocking=False):
            raise BusyError(
                "another answer of this pair is still running",
                hint="Read that stream to its end or close it first; a pair answers one prompt at a time.",
            )
        try:
            yield from self._generation
        finally:
            self._lock.release()

    @property
    def answer(self) -> Answer:
        """The result. Raises `UsageError` while the stream is still running."""
        if self._generation.answer is None:
            raise UsageError("the answer is not finished yet", hint="Iterate over the stream first, or close it.")
        return self._generation.answer

    def close(self) -> None:
        """Stop now; a stream that never started has an empty answer."""
        self._pieces.close()  # type: ignore[attr-defined]  a generator
        self._generation.conclude()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Runtime:
    """A loaded pair. One answer at a time (`BusyError` otherwise); `close()` or `with` frees the models."""

    def __init__(self, pair: SettledPair, engine: EngineSettings, files: Mapping[str, ModelFile], report: Report):
        """Load `files["verifier"]` and build the drafter of `pair`, from `files["draft"]` if it needs one."""
        self.pair = pair
        self.engine = engine
        self._files = dict(files)
        self._report = report
        self._warned: set[str] = set()
        self._lock = threading.Lock()
        self._verifier = self._load("verifier")
        self._drafter: Drafter | None = None
        self._lender: PairLender | None = None
        self._controller: Controller = FixedLength(0)
        try:
            self.respeculate(pair.drafter, pair.N, pair.options)
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(cls, choice: PairChoice, engine: EngineSettings, report: Report) -> Runtime:
        """Fetch what is missing, load, check the pair. A draft that does not fit warns and leaves plain decoding."""
        known = registry.load()
        pair = settle(choice, known)
        wanted = {"verifier": pair.verifier}
        if pair.draft is not None and pair.needs_draft:
            wanted["draft"] = pair.draft
        files = {role: fetch.resolve(reference, known, report) for role, reference in wanted.items()}
        return cls(pair, engine, files, report)

    # -- what is loaded -----------------------------------------------------------------------------------------------

    @property
    def verifier(self) -> Context:
        """The verifier's context, for those who replay a text (bench); between answers only."""
        return self._verifier.context

    @property
    def vocab(self) -> LlamaVocab:
        return self._verifier.model.vocab

    @property
    def template(self) -> str | None:
        """The model's own Jinja chat template, None when the file has none."""
        return self._verifier.model.template

    @property
    def bos(self) -> str:
        return self.vocab.text(self.vocab.bos)

    @property
    def eos(self) -> str:
        return self.vocab.text(self.vocab.eos)

    @property
    def context_size(self) -> int:
        return self._verifier.context.capacity

    @property
    def cached(self) -> Sequence[int]:
        """The ids in the verifier's cache: what a next prompt can reuse."""
        ids: list[int] = self._verifier.context.tokens.tolist()
        return ids

    @property
    def drafter(self) -> str:
        """Name of the drafter really in use."""
        return self._drafter.name if self._drafter else "none"

    @property
    def placement(self) -> list[str]:
        """One line per model: file, quantisation, size, where its layers live."""
        lent = self._lender.lent if self._lender else []
        return [self._verifier.where("verifier"), *(loaded.where("draft") for loaded in lent)]

    def settings(self) -> dict[str, Any]:
        """What was asked for and what is in use, for `run --json`."""
        context = self._verifier.context
        return {
            "pair": self.pair.name,
            "verifier": str(self._verifier.file.path),
            "draft": str(self._files["draft"].path) if "draft" in self._files else None,
            "drafter": self.drafter,
            "drafter_asked": self.pair.drafter,
            "N": self.pair.N,
            "tree": self.pair.tree,
            "options": dict(self.pair.options),
            "ctx_size": context.capacity,
            "threads": context.settings.threads,
            "kv_type": context.settings.kv_type,
            "flash_attn": context.settings.flash_attn,
            "gpu_layers": self._verifier.layers_on_gpu,
            "rollback": context.memory.name,
        }

    # -- speculation --------------------------------------------------------------------------------------------------

    def respeculate(self, drafter: str, N: Length, options: Mapping[str, str] | None = None) -> None:
        """Draft with another drafter or length from now on; the verifier stays loaded, the controller starts anew.

        A drafter that cannot be had is warned about once and leaves plain decoding. Raises `UsageError` for names and
        options that do not exist.
        """
        entry = drafters.entry(drafter)
        parsed = entry.parse(options or {})
        self._close_drafter()
        self._lender = PairLender(self.vocab, self._second)
        try:
            self._drafter = entry.drafter_class(parsed, self._lender)
        except LocalspecError as error:
            if isinstance(error, UsageError):
                raise
            self._warn(f"Drafter {drafter} cannot be used, plain decoding goes on: {error} {error.hint}".strip())
            self._close_drafter()
        self._controller = AutoLength() if N == "auto" else FixedLength(N)
        self._length: Length = N

    def _second(self, role: str) -> Second | None:
        if role not in self._files:
            return None
        verifier, second = (vocabularies.read_vocabulary(self._files[name].path) for name in ("verifier", role))
        comparison = vocabularies.compare(verifier, second)
        if not comparison.is_compatible:
            raise PairError(
                comparison.fatal[0], hint="Choose a draft of the verifier's own family, or --drafter ngram."
            )
        for note in comparison.notes:
            self._report.note(note)
        return Second(lambda: self._load(role), comparison)

    def _load(self, role: str) -> Loaded:
        file, engine = self._files[role], self.engine
        is_draft = role != "verifier"
        longest = self.pair.N if isinstance(self.pair.N, int) else 0
        capacity = (
            self.context_size if is_draft else engine.ctx_size or min(file.context_length or CONTEXT_LIMIT, CONTEXT_LIMIT)
        )
        settings = ContextSettings(
            capacity=capacity,
            draft_room=1 if is_draft else max(DRAFT_ROOM, longest),
            threads=engine.threads or default_threads(),
            kv_type=engine.draft_kv_type if is_draft else engine.kv_type,
            flash_attn=engine.flash_attn,
        )
        layers = engine.draft_gpu_layers if is_draft else engine.gpu_layers
        return load(file, settings, gpu_layers=layers, role=role, report=self._report)

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._report.warn(text)

    # -- answers ------------------------------------------------------------------------------------------------------

    def answer(
        self,
        prompt: Sequence[int],
        settings: AnswerSettings,
        *,
        cancelled: Cancelled | None = None,
        report: Report | None = None,
        speculate: bool = True,
        ignore_end: bool = False,
    ) -> Stream:
        """Stream the answer to `prompt` (ids). Raises `ContextFullError` or `UsageError` before anything is evaluated."""
        if len(prompt) > self.context_size:
            raise ContextFullError(
                f"the prompt has {len(prompt)} tokens, the context holds {self.context_size}",
                hint="Raise --ctx-size, or shorten the prompt.",
            )
        if settings.max_tokens is not None and settings.max_tokens < 0:
            raise UsageError(f"max-tokens is {settings.max_tokens}", hint="Choose 0 or more.")
        controller = self._controller if speculate else FixedLength(0)
        listener = report or Silent()
        proposer = None
        if self._drafter and speculate:
            proposer = Proposer(self._drafter, controller, vocab=self.vocab, warn=self._drop_drafter)
        generation = Generation(
            prompt,
            verifier=self._verifier.context,
            vocab=self.vocab,
            sampling=settings.sampling,
            rule=_rule(settings),
            limits=Limits(settings.max_tokens, settings.stop, ignore_end),
            proposer=proposer,
            controller=controller,
            engine_s=self._engine_s,
            progress=lambda done, total: listener.progress("Reading the prompt", done, total, "tokens"),
            cancelled=cancelled,
        )
        generation.counters.N = self._length if speculate else 0
        return Stream(generation, self._lock)

    def _drop_drafter(self, reason: str) -> None:
        """It failed: say so once and decode plainly until another one is chosen."""
        self._warn(reason)
        self._drafter = None

    def _engine_s(self) -> float:
        lent = self._lender.lent if self._lender else []
        return self._verifier.context.busy_s + sum(loaded.context.busy_s for loaded in lent)

    # -- measuring ----------------------------------------------------------------------------------------------------

    def time_pass(self, count: int, *, repeats: int = 5, behind: int = 64) -> float:
        """Median seconds of one verifier pass over `count` tokens (t(n)), on top of `behind` others."""
        context = self._verifier.context
        ids = np.arange(behind + count, dtype=np.int32) % min(self.vocab.size, 1000)
        context.prefill(ids[:behind], logits=False)
        draft = Draft.chain(ids[behind + 1 :])
        times = []
        for _ in range(repeats + 1):
            started = time.perf_counter()
            context.evaluate(int(ids[behind]), draft)
            times.append(time.perf_counter() - started)
            context.rewind(behind)
        return statistics.median(times[1:])

    def forget(self) -> None:
        """Empty all caches, so that the next answer starts from nothing."""
        self._verifier.context.rewind(0)
        for loaded in self._lender.lent if self._lender else []:
            loaded.context.rewind(0)

    def close(self) -> None:
        """Free drafter and verifier; closing twice is fine."""
        self._close_drafter()
        self._verifier.close()

    def _close_drafter(self) -> None:
        if self._drafter:
            self._drafter.close()
            self._drafter = None
        if self._lender:
            self._lender.close()
            self._lender = None

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _rule(settings: AnswerSettings) -> Rule:
    """The acceptance rule of one answer; a seed asks for the one whose text no drafter can change."""
    acceptance = settings.acceptance or ("coupled" if settings.seed is not None else "rejection")
    if acceptance == "coupled":
        return Coupled(settings.seed if settings.seed is not None else secrets.randbits(63))
    return Rejection(np.random.default_rng(settings.seed))


