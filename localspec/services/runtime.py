"""The composition root: opens a pair and answers prompts with it. The only place where concrete parts meet."""

from __future__ import annotations

import logging
import os
import secrets
import statistics
import threading
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from localspec.catalog import fetch, machine, registry
from localspec.catalog.modelfile import ModelFile
from localspec.core.coupled import Coupled
from localspec.core.draft import Draft
from localspec.core.growth import Growth
from localspec.core.rejection import Rejection
from localspec.core.rule import Rule
from localspec.core.shapes import Shape
from localspec.drafters import registry as drafters
from localspec.drafters.auto import Auto
from localspec.drafters.base import Drafter
from localspec.drafters.cascade import Cascade
from localspec.engine import native
from localspec.engine.base import Cancelled, Context
from localspec.engine.context import ContextSettings
from localspec.engine.devices import default_threads
from localspec.engine.vocab import LlamaVocab
from localspec.errors import CatalogError, ContextFullError, LocalspecError, PairError, UsageError, in_one_line
from localspec.loop.control import Controller, FixedLength
from localspec.loop.generation import Generation, Limits
from localspec.loop.proposer import Proposer
from localspec.planner.diagnosis import Facts
from localspec.planner.profile import Profile
from localspec.services.bench import facts as bench_facts
from localspec.services.controls import control, learned
from localspec.services.heads import heads
from localspec.services.heads.heads import LoadedHead
from localspec.services.lender import PairLender, Second
from localspec.services.loading import Loaded, apart, load, need
from localspec.services.notebook import Notebook
from localspec.services.pairs import LEAVES, ROOM, SettledPair, read_tree, settle
from localspec.services.profiles import Circumstances, Profiles, identity
from localspec.services.report import Once, Report, Silent
from localspec.services.settings import AnswerSettings, EngineSettings, Length, PairChoice
from localspec.services.stream import Stream, Turns

logger = logging.getLogger(__name__)

CONTEXT_LIMIT = 8192
"""Context size when none is asked for: the model's own, but no more than this."""


@dataclass(frozen=True)
class Speculation:
    """A way to speculate that can be resumed: who drafts, what, and who decides how far; `tree_name` as typed.

    circumstances  what the controller learns holds for these
    uses_head      the drafter reads the verifier's hidden rows
    """

    drafter: Drafter | None
    tree: Shape | Growth | None
    tree_name: str
    controller: Controller
    circumstances: Circumstances
    uses_head: bool


class Runtime:
    """A loaded pair. One answer at a time (`BusyError` otherwise); `close()` or `with` frees the models."""

    def __init__(
        self,
        pair: SettledPair,
        engine: EngineSettings,
        files: Mapping[str, ModelFile],
        report: Report,
        *,
        missing: Mapping[str, LocalspecError] | None = None,
    ) -> None:
        """Load `files["verifier"]` and build the drafter of `pair`, from `files["draft"]` if it needs one.

        `missing` says of a role why its file cannot be used: for a draft that is a warning, not an error.
        """
        self.pair = pair
        self.engine = engine
        self._files = dict(files)
        self._missing = dict(missing or {})
        self._report = Once(report)
        self._turns = Turns()
        self._streams: weakref.WeakSet[Stream] = weakref.WeakSet()
        self._capacity = engine.ctx_size or min(files["verifier"].context_length or CONTEXT_LIMIT, CONTEXT_LIMIT)
        self._drafter: Drafter | None = None
        self._uses_head = False
        self._asked, self._length, self._tree_name = pair.drafter, pair.N, "none"
        self._options: Mapping[str, str] = {}
        self._tree: Shape | Growth | None = None
        self._controller: Controller = FixedLength(0)
        self._circumstances: Circumstances | None = None
        self._profiles = Profiles(self._report)
        self._shelf: dict[tuple[Any, ...], Speculation] = {}
        self._loaded: Loaded | None = self._load("verifier")
        notebook = Notebook(files["verifier"], self.vocab.size, self._report)
        self._lender = PairLender(self.vocab, self._second, _with_defaults, notebook, self._report)
        try:
            self.respeculate(pair.drafter, pair.N, pair.options, tree=pair.tree)
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(cls, choice: PairChoice, engine: EngineSettings, report: Report) -> Runtime:
        """Fetch what is missing, load, check the pair. A draft that cannot be had warns and leaves plain decoding."""
        if os.environ.get("LOCALSPEC_DEBUG"):
            native.show_log()
        known = registry.load()
        pair = settle(choice, known)
        files = {"verifier": fetch.resolve(pair.verifier, known, report)}
        missing: dict[str, LocalspecError] = {}
        if pair.draft is not None and pair.uses_draft:
            try:
                files["draft"] = fetch.resolve(pair.draft, known, report)
            except CatalogError as error:
                missing["draft"] = error
        if "draft" in files and choice.drafter in (None, "auto"):
            kind = heads.kind(files["draft"])
            pair = pair.with_head(kind) if kind in drafters.REGISTRY else pair
        return cls(pair, engine, files, report, missing=missing)

    # -- what is loaded -----------------------------------------------------------------------------------------------

    @property
    def _lent(self) -> list[Loaded | LoadedHead]:
        return self._lender.lent

    @property
    def _verifier(self) -> Loaded:
        if self._loaded is None:
            self._turns.check_open()
        assert self._loaded is not None
        return self._loaded

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
    def lender(self) -> PairLender:
        """What drafters borrow; for those who build one of their own (audit)."""
        return self._lender

    @property
    def control(self) -> tuple[Shape | Growth | None, Controller]:
        """What drafts are asked for, and who decides how far each goes."""
        return self._tree, self._controller

    @property
    def placement(self) -> list[str]:
        """One line per model: file, quantisation, size, where its layers live."""
        return [self._verifier.where("verifier"), *(loaded.where("draft") for loaded in self._lent)]

    def needs(self) -> dict[str, int]:
        """Bytes that each model of the pair takes, by its role: weights and cache, estimated from the headers."""
        return {role: need(file, self._context_settings(role)).total for role, file in self._files.items()}

    def settings(self) -> dict[str, Any]:
        """What was asked for and what is in use, for `run --json`."""
        context = self._verifier.context
        return {
            "pair": self.pair.name,
            "verifier": str(self._verifier.file.path),
            "draft": str(self._files["draft"].path) if "draft" in self._files else None,
            "drafter": self.drafter,
            "drafter_asked": self._asked,
            "N": self._length,
            "tree": self._tree_name,
            "options": dict(self._options),
            "ctx_size": context.capacity,
            "threads": context.settings.threads,
            "kv_type": context.settings.kv_type,
            "flash_attn": context.settings.flash_attn,
            "gpu_layers": self._verifier.layers_on_gpu,
            "draft_gpu_layers": next((loaded.layers_on_gpu for loaded in self._lent), None),
            "rollback": context.memory.name,
        }

    # -- speculation --------------------------------------------------------------------------------------------------

    def respeculate(
        self,
        drafter: str,
        N: Length,
        options: Mapping[str, str] | None = None,
        *,
        tree: str | None = None,
        resume: bool = False,
    ) -> None:
        """Draft in another way from now on; models stay loaded, the controller starts anew.

        With `resume`, drafter and controller go on with what they learned since an earlier call asked for the same.
        Options that are not given stay as they are while the drafter stays; a tree stays until another is asked for.
        A drafter that cannot be had is warned about once and leaves plain decoding. Raises `UsageError` for names,
        options and trees that do not exist, `BusyError` in the middle of an answer.
        """
        entry = drafters.entry(drafter)
        if options is None:
            options = self._options if drafter == self._asked else {}
        options = self.pair.completed(drafter, options)
        tree = self._tree_name if tree is None else tree
        parsed, asked = entry.parse(options), read_tree(tree)
        way = (drafter, N, tree, tuple(sorted(options.items())))
        with self._turns.taken():
            self._leave_drafter()
            known = self._shelf.get(way) if resume else None
            if known is None:
                self._drafter = self._built(drafter, parsed)
                if asked is not None and self._verifier.context.leaves == 1:
                    self._report.warn(
                        "This verifier's memory (recurrent, or with a sliding window) cannot check trees: "
                        "chains are drafted instead."
                    )
                    asked, tree = None, "none"
                here = self.circumstances(drafter, tree, options)
                self._tree, self._controller = control(
                    N,
                    asked,
                    entry,
                    members=self._chosen_among(N),
                    known=partial(self._known, here) if N and drafter != "none" else lambda name: None,
                    facts=self._facts(),
                    watch=not resume,  # a benchmark of many lengths says it in its table
                )
                self._circumstances = here
                if resume:
                    self._shelf[way] = Speculation(
                        self._drafter, self._tree, tree, self._controller, here, self._uses_head
                    )
            else:
                self._drafter, self._tree, self._controller = known.drafter, known.tree, known.controller
                tree, self._circumstances = known.tree_name, known.circumstances
                self._uses_head = known.uses_head
            self._asked, self._options, self._length, self._tree_name = drafter, options, N, tree

    def circumstances(
        self, drafter: str, tree: str = "none", options: Mapping[str, str] | None = None
    ) -> Circumstances:
        """What a profile of this pair with this drafter depends on."""
        entry, context = drafters.entry(drafter), self._verifier.context
        draft = self._files["draft"] if "draft" in self._files and entry.uses_draft else None
        return Circumstances(
            verifier=identity(self._files["verifier"]),
            draft=identity(draft) if draft else None,
            drafter=drafter,
            tree="none" if tree == "none" and not entry.grows_trees else "auto",
            options=dict(options or {}),
            machine=f"{machine.cpu_name()}, {os.cpu_count()} cores",
            llama_cpp=f"{bench_facts.llama_cpp()} ({native.version()})",
            threads=context.settings.threads,
            gpu_layers=self._verifier.layers_on_gpu,
            draft_gpu_layers=self.engine.draft_gpu_layers if draft else None,
            kv_type=context.settings.kv_type,
            draft_kv_type=self.engine.draft_kv_type if draft else None,
            flash_attn=context.settings.flash_attn,
        )

    def _built(self, drafter: str, options: Any) -> Drafter | None:
        """The drafter, or a warning and None: whatever is wrong with it, it can only cost time."""
        self._lender.head_was_asked_for = self._uses_head = False
        try:
            built = drafters.entry(drafter).drafter_class(options, self._lender)
            self._uses_head = self._lender.head_was_asked_for
            return built
        except UsageError:
            raise
        except Exception as error:
            logger.debug("drafter cannot be built", exc_info=error)
            self._report.warn(f"Drafter {drafter} cannot be used, plain decoding goes on: {in_one_line(error)}")
        return None

    def _chosen_among(self, N: Length) -> Sequence[str]:
        """Those that the controller chooses among; a cascade with a fixed length asks its members in its own way."""
        drafter = self._drafter
        if isinstance(drafter, Auto) or (isinstance(drafter, Cascade) and N == "auto"):
            return drafter.members
        return ()

    def _known(self, here: Circumstances, drafter: str) -> Profile | None:
        """What was learned of a drafter: as one of those that auto chooses among, or else alone."""
        mine = self._profiles.read(replace(here, drafter=drafter))
        if mine is None and drafter != here.drafter:
            return self._profiles.read(self.circumstances(drafter, here.tree))
        return mine

    def _facts(self) -> Facts:
        """What may be wrong with the pair; a draft on another device is told at once."""
        verifier = self._verifier.layers_on_gpu
        where = next(filter(None, (apart(loaded.layers_on_gpu, verifier) for loaded in self._lent)), "")
        if where:
            self._report.warn(
                f"{where[0].upper()}{where[1:]}, so every draft waits for the slower of them: see --gpu-layers, "
                "--draft-gpu-layers, or a smaller --ctx-size if there was no room."
            )
        return Facts(experts=self._verifier.file.experts, apart=where)

    def _second(self, role: str) -> Second | None:
        if role in self._missing:
            raise self._missing[role]
        if role not in self._files:
            return None
        verifier, second = self._files["verifier"], self._files[role]
        heads.check_kind(second)
        comparison = heads.compare(second, verifier)
        if not comparison.is_compatible:
            raise PairError(
                comparison.fatal[0], hint="Choose a draft of the verifier's own family, or --drafter ngram."
            )
        for note in comparison.notes:
            self._report.note(note)
        return Second(lambda: self._load(role), comparison, heads.kind(second), self._load_head)

    def _load_head(self, force: bool) -> LoadedHead:
        engine = self.engine
        return heads.load_head(
            self._files["draft"],
            self._verifier,
            self._context_settings("draft"),
            gpu_layers=engine.draft_gpu_layers,
            force=force,
            report=self._report,
        )

    def _load(self, role: str) -> Loaded:
        engine, is_draft = self.engine, role != "verifier"
        # The draft is loaded last and placed first: the verifier leaves it the room that it will want.
        waits = "draft" in self._files and not is_draft and engine.draft_gpu_layers != 0
        return load(
            self._files[role],
            self._context_settings(role),
            gpu_layers=engine.draft_gpu_layers if is_draft else engine.gpu_layers,
            role=role,
            report=self._report,
            beside=need(self._files["draft"], self._context_settings("draft")) if waits else None,
        )

    def _context_settings(self, role: str) -> ContextSettings:
        engine, is_draft = self.engine, role != "verifier"
        longest = self.pair.N if isinstance(self.pair.N, int) else 0
        return ContextSettings(
            capacity=self._capacity,
            draft_room=max(ROOM, longest),
            leaves=LEAVES,
            # A draft goes token by token: what it may have to forget is older than its last pass.
            snapshots=not is_draft,
            threads=engine.threads or default_threads(),
            kv_type=engine.draft_kv_type if is_draft else engine.kv_type,
            flash_attn=engine.flash_attn,
        )

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
        """Stream the answer to `prompt` (ids). Raises `ContextFullError` or `UsageError` before anything is evaluated.

        Whose turn it is shows when the first piece is asked for: then it may be a `BusyError`.
        """
        if len(prompt) > self.context_size:
            raise ContextFullError(
                f"the prompt has {len(prompt)} tokens, the context holds {self.context_size}",
                hint="Raise --ctx-size, or shorten the prompt.",
            )
        _check_ids(settings.sampling.logit_bias, self.vocab.size)
        controller = self._controller if speculate else FixedLength(0)
        listener = report or Silent()
        stop = threading.Event()
        proposer = None
        if self._drafter and speculate:
            proposer = Proposer(self._drafter, controller, vocab=self.vocab, warn=self._drop_drafter, tree=self._tree)
        generation = Generation(
            prompt,
            verifier=self._verifier.context,
            vocab=self.vocab,
            sampling=settings.sampling,
            rule=rule_of(settings),
            limits=Limits(settings.max_tokens, settings.stop, ignore_end),
            proposer=proposer,
            controller=controller,
            engine_s=self._engine_s,
            progress=lambda done, total: listener.progress("Reading the prompt", done, total, "tokens"),
            cancelled=(lambda: stop.is_set() or cancelled()) if cancelled else stop.is_set,
        )
        generation.counters.N = self._length if speculate else 0
        generation.counters.tree = self._tree_name if speculate else "none"
        listens = self._uses_head and speculate
        start = partial(self._lender.listen, listens)
        stream = Stream(generation, self._turns, stop, self._speak_up, start=start)
        self._streams.add(stream)
        return stream

    def _drop_drafter(self, reason: str) -> None:
        """It failed: say so once and decode plainly until another one is chosen."""
        self._report.warn(reason)
        self._shelf = {way: kept for way, kept in self._shelf.items() if kept.drafter is not self._drafter}
        self._drafter, self._uses_head = None, False

    def _speak_up(self) -> None:
        """Say what the controller found wrong with the pair."""
        for line in self._controller.warnings():
            self._report.warn(line)

    def _engine_s(self) -> float:
        return self._verifier.context.busy_s + sum(loaded.context.busy_s for loaded in self._lent)

    # -- measuring ----------------------------------------------------------------------------------------------------

    def time_pass(self, count: int, *, repeats: int = 5, behind: int = 64) -> float:
        """Median seconds of one verifier pass over `count` tokens (t(n)), on top of `behind` others."""
        with self._turns.taken():
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
        with self._turns.taken():
            self._verifier.context.rewind(0)
            for loaded in self._lent:
                loaded.context.rewind(0)

    def close(self) -> None:
        """End the answer that is running, free drafter and verifier; closing twice is fine."""
        with self._turns.last(self._stop_streams):
            self._leave_drafter()
            for kept in self._shelf.values():
                self._keep_learned(kept.controller, kept.circumstances)
                if kept.drafter:
                    kept.drafter.close()
            self._lender.close()
            if self._loaded:
                self._loaded.close()
                self._loaded = None

    def _stop_streams(self) -> None:
        for stream in list(self._streams):
            if stream.has_begun:
                stream.close()

    def _leave_drafter(self) -> None:
        """Close it, unless it may be resumed; what its controller learned is kept for the next session."""
        self._keep_learned(self._controller, self._circumstances)
        if self._drafter and all(kept.drafter is not self._drafter for kept in self._shelf.values()):
            self._drafter.close()
        self._drafter = None

    def _keep_learned(self, controller: Controller, circumstances: Circumstances | None) -> None:
        if circumstances is None:
            return
        for name, profile in learned(controller):
            self._profiles.keep(replace(circumstances, drafter=name or circumstances.drafter), profile)

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _with_defaults(name: str, lender: PairLender) -> Drafter:
    entry = drafters.entry(name)
    return entry.drafter_class(entry.parse({}), lender)


def _check_ids(ids: Iterable[int], size: int) -> None:
    beyond = [token for token in ids if token >= size]
    if beyond:
        raise UsageError(
            f"logit bias names token {beyond[0]}, and this model has the ids 0 to {size - 1}",
            hint="`localspec run --json` shows the ids of what a model writes.",
        )


def rule_of(settings: AnswerSettings) -> Rule:
    """The acceptance rule of one answer."""
    if settings.rule == "coupled":
        return Coupled(settings.seed if settings.seed is not None else secrets.randbits(63))
    return Rejection(np.random.default_rng(settings.seed))
