"""`train data`: prompts, answers and hidden states of a verifier, written to a folder that can be gone on with.

The composition root of the making: opens the model, plans the disk, runs the maker, writes shards. Ctrl-C keeps what is
done; a kill loses the texts in flight.
"""

from __future__ import annotations

import itertools
import shutil
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from localspec.errors import UsageError
from localspec.services.train.alone import alone_in
from localspec.services.train.holding import Held, held
from localspec.services.train.shards import MANIFEST, Manifest, Store, Text

if TYPE_CHECKING:
    from localspec.catalog.modelfile import ModelFile
    from localspec.engine.farm import Farm
    from localspec.engine.model import LlamaModel
    from localspec.services.chat.template import Template
    from localspec.services.report import Report
    from localspec.services.train.making import Maker, Wishes
    from localspec.services.train.questions import Seen

States = Literal["auto", "stored", "recaptured"]
GIGA = 10**9
MOST_BYTES = 20 * GIGA
"""States are stored by default up to this size or half of the free disk; else they are computed again in training."""
SHARD_TEXTS = 48
PROMPT_GUESS, ANSWER_GUESS = 60, 160
"""Tokens of a prompt that is made up, and of an answer, for the estimate of the disk need."""
LETTERS = 4
"""Of a token, for the same."""


@dataclass(frozen=True)
class DataRequest:
    """What `train data` was asked for; `tokens` of answers in all. layers None: low, middle and high.

    hold    the format that the verifier's weights are held in while it answers
    prompt  tokens of the longest prompt that is asked; a folder can be gone on with at another length
    """

    verifier: str
    folder: Path
    tokens: int = 200_000
    prompts: Path | None = None
    exclude: tuple[Path, ...] = ()
    temperatures: tuple[float, ...] = (0.0, 0.7, 1.0)
    prompt: int = 448
    answer: int = 256
    top: int = 32
    states: States = "auto"
    hold: Held = "as-is"
    layers: tuple[int, ...] | None = None
    parallel: int = 16
    threads: int | None = None
    gpu_layers: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, number in (
            ("tokens", self.tokens),
            ("prompt tokens", self.prompt),
            ("answer tokens", self.answer),
            ("top", self.top),
            ("parallel", self.parallel),
        ):
            if number < 1:
                raise UsageError(f"{name} is {number}", hint="Choose 1 or more.")
        if not self.temperatures or min(self.temperatures) < 0:
            raise UsageError("a temperature is negative, or there is none", hint="Try --temperatures 0,0.7,1.")


@dataclass(frozen=True)
class DataResult:
    """What a folder holds after the work. interrupted: fewer tokens than were asked for, on the user's wish."""

    folder: Path
    texts: int
    answer_tokens: int
    made: int
    bytes: int
    states: str
    interrupted: bool

    def as_dict(self) -> dict[str, Any]:
        return {"schema": "localspec.train-data/1", **self.__dict__, "folder": str(self.folder)}


def default_layers(count: int) -> tuple[int, ...]:
    """Inputs of a low, a middle and a high layer, the choice of EAGLE-3 (Li et al. 2025), in a model of `count`."""
    chosen = {min(2, count - 1), count // 2, max(count - 3, 0)} if count > 5 else set(range(min(count, 3)))
    return tuple(sorted(chosen))


def make(request: DataRequest, report: Report) -> DataResult:
    """Make texts until the folder holds as many answer tokens as were asked for, or Ctrl-C.

    Raises `UsageError` when the folder holds data of another verifier, was made with other settings, or is being
    written to.
    """
    from localspec.catalog import fetch, registry

    file = fetch.resolve(request.verifier, registry.load(), report)
    with alone_in(request.folder):
        return _make(request, file, report)


def _make(request: DataRequest, file: ModelFile, report: Report) -> DataResult:
    from localspec.engine.devices import compute_devices, default_threads, devices
    from localspec.engine.farm import Farm, FarmSettings
    from localspec.engine.model import LlamaModel
    from localspec.services.train.making import Wishes

    gpu_layers = request.gpu_layers if request.gpu_layers is not None else -1 if compute_devices(devices()) else 0
    threads = request.threads or default_threads()
    weights = held(file.path, request.hold, request.folder, threads=threads, report=report)
    with LlamaModel(weights, gpu_layers=gpu_layers) as model:
        layers = request.layers or default_layers(model.layers)
        states = planned_states(request, rows=len(layers) + 1, width=file.width or 0, report=report)
        wishes = Wishes(
            temperatures=request.temperatures,
            answer=request.answer,
            prompt=request.prompt,
            kept=request.top,
            seed=request.seed,
            states=states == "stored",
        )
        store = opened(request, file, model, layers, states, report)
        settings = FarmSettings(
            plots=request.parallel,
            capacity=wishes.longest,
            layers=layers,
            threads=threads,
        )
        with Farm(model, settings) as farm:
            return _fill(store, farm, wishes, request, report)


def _fill(store: Store, farm: Farm, wishes: Wishes, request: DataRequest, report: Report) -> DataResult:
    from localspec.services.train import questions
    from localspec.services.train.making import Maker

    vocab, model = farm.model.vocab, farm.model
    asking = questions.Asking(vocab, template_of(model), vocab.text(vocab.bos))
    seen = questions.Seen(questions.forbidden(request.exclude))
    prompts = questions.read_turns(request.prompts) if request.prompts else None
    done = remembered(store, seen)
    before, interrupted, made = store.manifest.answer_tokens, False, _Batch(store)
    asked: SystemExit | None = None

    def tell(in_flight: int) -> None:
        count = before + made.tokens + in_flight
        report.progress("Making answers", min(count, request.tokens), request.tokens, "tokens")

    maker = Maker(
        farm,
        vocab,
        asking,
        seen,
        wishes,
        openers=questions.openers(),
        prompts=prompts,
        indices=(index for index in itertools.count() if index not in done),
        stepped=tell,
    )
    try:
        for text in _until(maker, made, request.tokens - before):
            made.add(text)
    except (KeyboardInterrupt, SystemExit) as stop:
        interrupted, asked = True, stop if isinstance(stop, SystemExit) else None
        for text in maker.cut():
            made.add(text)
    made.flush()
    if asked:
        raise asked
    if prompts and maker.too_long:
        report.warn(
            f"Prompts left out because they are longer than {wishes.prompt:,} tokens: {len(maker.too_long):,}. "
            f"--prompt-tokens {max(maker.too_long)} takes them."
        )
    size = sum((store.folder / shard.file).stat().st_size for shard in store.manifest.shards)
    if not interrupted and store.manifest.answer_tokens < request.tokens:
        report.warn(
            f"The prompts gave {store.manifest.answer_tokens:,} answer tokens of the {request.tokens:,} wanted."
        )
    return DataResult(
        store.folder,
        store.manifest.texts,
        store.manifest.answer_tokens,
        store.manifest.answer_tokens - before,
        size,
        store.manifest.settings["states"],
        interrupted,
    )


def _until(maker: Maker, made: _Batch, wanted: int) -> Iterator[Text]:
    """Texts until there are enough tokens."""
    if wanted <= 0:
        return
    for text in maker:
        yield text
        if made.tokens >= wanted:
            return


class _Batch:
    """Finished texts on their way to the disk."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._texts: list[Text] = []
        self.tokens = 0

    def add(self, text: Text) -> None:
        self._texts.append(text)
        self.tokens += text.answer
        if len(self._texts) >= SHARD_TEXTS:
            self.flush()

    def flush(self) -> None:
        texts, self._texts = self._texts, []
        self._store.add(texts)


def template_of(model: LlamaModel) -> Template | None:
    """The model's own chat template, None when it has none."""
    from localspec.services.chat.template import Template

    vocab = model.vocab
    return Template(model.template, vocab.text(vocab.bos), vocab.text(vocab.eos)) if model.template else None


def remembered(store: Store, seen: Seen) -> set[int]:
    """Indices that the folder holds already; their prompts count as asked."""
    done: set[int] = set()
    for shard in store.manifest.shards:
        done.update(store.column(shard, "index").tolist())
        seen.remember(store.column(shard, "asked").tolist())
    return done


def prompt_size(request: DataRequest) -> float:
    """About how many tokens the prompts have that will be asked. Raises `UsageError` where their file is no such."""
    from localspec.services.train.questions import read_turns

    if request.prompts is None:
        return PROMPT_GUESS
    sizes = [len(text) / LETTERS for text in read_turns(request.prompts)]
    return statistics.mean([size for size in sizes if size <= request.prompt] or [request.prompt])


def bytes_per_token(request: DataRequest, *, prompt: float, rows: int, width: int) -> float:
    """Disk for one answer token with its share of the prompt: hidden rows in float16, top tokens with their laws."""
    share = 1.0 + prompt / min(request.answer, ANSWER_GUESS)
    return share * (rows * width * 2 + 4) + request.top * 6


def planned_states(request: DataRequest, *, rows: int, width: int, report: Report) -> str:
    """Whether hidden rows are stored, decided by their size; says what the disk must hold."""
    prompt = prompt_size(request)
    whole, lean = (
        request.tokens * bytes_per_token(request, prompt=prompt, rows=kept, width=width) for kept in (rows, 0)
    )
    folder = next(
        parent for parent in (request.folder.absolute(), *request.folder.absolute().parents) if parent.exists()
    )
    free = shutil.disk_usage(folder).free
    states = request.states
    if states == "auto":
        states = "stored" if whole <= min(MOST_BYTES, free / 2) else "recaptured"
    need = whole if states == "stored" else lean
    report.note(
        f"{request.tokens:,} answer tokens take about {need / GIGA:.2g} GB in {request.folder} "
        f"({'hidden states stored' if states == 'stored' else 'hidden states computed again in training'}); "
        f"{free / GIGA:.0f} GB are free."
    )
    if need > free:
        raise UsageError(
            f"{need / GIGA:.1f} GB are needed and {free / GIGA:.1f} GB are free on the disk of {request.folder}",
            hint="Ask for fewer --tokens, or --states recaptured.",
        )
    return states


def opened(
    request: DataRequest, file: ModelFile, model: LlamaModel, layers: tuple[int, ...], states: str, report: Report
) -> Store:
    """The folder to write to: a new one, or one that fits what is asked for now."""
    verifier = {
        "ref": request.verifier,
        "name": model.name,
        "file": file.path.name,
        "bytes": file.bytes,
        "architecture": model.architecture,
        "layers": model.layers,
        "vocab": model.vocab.size,
    }
    settings: dict[str, Any] = {
        "temperatures": list(request.temperatures),
        "answer": request.answer,
        "top": request.top,
        "states": states,
        "hold": request.hold,
        "layers": list(layers),
        "seed": request.seed,
        "prompts": request.prompts.name if request.prompts else None,
    }
    if not (request.folder / MANIFEST).exists():
        return Store.create(request.folder, Manifest(verifier, settings))
    store = Store.open(request.folder)
    if {**store.manifest.verifier, "ref": request.verifier} != verifier:
        raise UsageError(
            f"{request.folder} holds data of {store.manifest.verifier.get('name')}, not of {model.name}",
            hint="Name another folder.",
        )
    if request.states == "auto":
        settings["states"] = store.manifest.settings.get("states")
    for key, value in settings.items():
        if store.manifest.settings.get(key) != value:
            raise UsageError(
                f"{request.folder} was made with {key} = {store.manifest.settings.get(key)}, not {value}",
                hint="Use the same settings, or name another folder.",
            )
    if damaged := store.drop_damaged():
        report.warn(f"Damaged and made again: {', '.join(damaged)}.")
    if store.manifest.shards:
        report.note(f"Going on: {store.manifest.answer_tokens:,} answer tokens are there.")
    return store
