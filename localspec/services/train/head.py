"""`train head`: from folders of training data to a head's GGUF and the record of its training.

The folder of a run holds the checkpoint, the vocabulary, the head and the record; the same command goes on after a
kill. Torch is loaded when the work begins.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from localspec.errors import LocalspecError, UsageError
from localspec.services.train.alone import alone_in
from localspec.services.train.folders import Folders
from localspec.services.train.holding import held
from localspec.services.train.shards import Text
from localspec.services.train.vocabulary import DraftVocabulary, choose, counts

if TYPE_CHECKING:
    from localspec.catalog.modelfile import ModelFile
    from localspec.services.report import Report
    from localspec.services.train.export import Exported
    from localspec.services.train.learning import Learning, Progress

KINDS = ("eagle3", "eagle1", "medusa")
SCHEMA = "localspec.train-head/1"
RECORD, VOCABULARY = "record.json", "vocabulary.npy"
LOOKED_AT = 4
"""Shards of each folder whose rows set the scale of a new head's inputs."""


@dataclass(frozen=True)
class HeadRequest:
    """What `train head` was asked for.

    data    folders that `train data` made, all learned from together
    ahead   positions that are learned: eagle3 runs on its own outputs for all but the first
    layers  which of the stored layers are fused, None: the first three
    tokens  answer tokens to learn from, the first over the folders in their order; None: all
    init    head to go on from; where `vocab` is larger than its vocabulary, that is widened
    """

    data: tuple[Path, ...]
    output: Path
    verifier: str | None = None
    kind: str = "eagle3"
    steps: int = 1000
    ahead: int = 3
    vocab: int = 8192
    batch: int = 2400
    rate: float = 1e-3
    init: Path | None = None
    weights: str = "Q8_0"
    layers: tuple[int, ...] | None = None
    tokens: int | None = None
    every: int = 50
    patience: int = 0
    minutes: float = 3.0
    held_out: int = 12_000
    seed: int = 0
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"--kind is {self.kind!r}", hint=f"Choose one of {', '.join(KINDS)}.")
        for name, number in (("steps", self.steps), ("ahead", self.ahead), ("vocab", self.vocab)):
            if number < 1:
                raise UsageError(f"{name} is {number}", hint="Choose 1 or more.")


@dataclass(frozen=True)
class HeadResult:
    """A trained head and what it is worth on held-out texts; `record` is what lies beside it."""

    path: Path
    bytes: int
    record: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        return {**self.record, "path": str(self.path), "bytes": self.bytes}


def require_torch() -> None:
    """Raises `LocalspecError` with the command that installs it."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise LocalspecError(
            "training needs PyTorch, which is not installed", hint='Install it: pip install "localspec[train]".'
        ) from error


def train(
    request: HeadRequest, report: Report, watch: Callable[[Progress], None] = lambda progress: None
) -> HeadResult:
    """Train until the steps are done; Ctrl-C leaves a checkpoint. Raises `UsageError` for what does not fit."""
    require_torch()
    from localspec.catalog import fetch, registry

    folders = Folders.open(request.data)
    reference = request.verifier or folders.verifier.get("ref")
    if not reference:
        raise UsageError("the data does not say whose it is", hint="Name the model with --verifier REF.")
    file = fetch.resolve(reference, registry.load(), report)
    if file.path.name != folders.verifier["file"]:
        raise UsageError(
            f"{folders.first} holds data of {folders.verifier['file']}, not of {file.path.name}",
            hint="Name that verifier, or other data.",
        )
    with alone_in(request.output):
        return _Run(request, folders, file, report).train(watch)


class _Run:
    """One training: its parts in the order in which they are needed."""

    def __init__(self, request: HeadRequest, folders: Folders, file: ModelFile, report: Report) -> None:
        import torch

        from localspec.engine.devices import default_threads

        torch.set_num_threads(request.threads or default_threads())
        self._request = request
        self._folders = folders
        self._file = file
        self._report = report
        self._extent = folders.extent(request.tokens)
        self._shards = folders.shards(self._extent)
        self._stored = folders.layers
        self._layers = self._chosen_layers() if request.kind == "eagle3" else []
        self._size = int(folders.verifier["vocab"])
        self._init = self._exported() if request.init else None

    def train(self, watch: Callable[[Progress], None]) -> HeadResult:
        vocabulary = self._vocabulary()
        learning, coverage = self._learning(vocabulary)
        if learning.resume():
            self._report.note(f"Going on from step {learning.progress.step:,}.")
        started = time.monotonic()
        learning.run(watch)
        learning.take_best()
        return self._finish(learning, vocabulary, coverage, time.monotonic() - started)

    def _exported(self) -> Exported:
        from localspec.services.train.export import Exported

        assert self._request.init is not None
        return Exported(self._request.init)

    def _chosen_layers(self) -> list[int]:
        layers = list(self._request.layers or self._stored[:3])
        unknown = [layer for layer in layers if layer not in self._stored]
        if unknown or len(layers) != 3:
            raise UsageError(
                f"an eagle3 head fuses three layers of {self._stored}, not {layers}",
                hint="Choose them with --layers, or make data with other layers.",
            )
        return layers

    def _vocabulary(self) -> DraftVocabulary:
        """The run's vocabulary: kept from before, that of the head it starts from, or the commonest tokens."""
        kept = self._request.output / VOCABULARY
        if kept.exists():
            return DraftVocabulary.of(np.load(kept).tolist(), self._size)
        start = self._init.vocabulary(self._size) if self._init else None
        if start is not None and len(start) >= self._request.vocab:
            vocabulary = start
        else:
            known = start.ids.tolist() if start is not None else ()
            vocabulary = choose(self._counts(), min(self._request.vocab, self._size), known)
        np.save(kept, vocabulary.ids)
        return vocabulary

    def _counts(self) -> npt.NDArray[np.float64]:
        """How often each token is said in the texts to learn from."""
        from localspec.services.train.frames import is_held_out

        expected = np.zeros(self._size)
        for place, shard in enumerate(self._shards, 1):
            learned = (text for text in shard.read() if not is_held_out(text.index))
            expected += counts(learned, self._size)
            self._report.progress("Counting tokens", place, len(self._shards), "steps")
        return expected

    def _learning(self, vocabulary: DraftVocabulary) -> tuple[Learning, float]:
        from localspec.services.train.building import build, scale_inputs
        from localspec.services.train.frames import Frames, is_held_out
        from localspec.services.train.learning import Learning, Plan
        from localspec.services.train.nets import Eagle3
        from localspec.services.train.weights import Verifier

        request = self._request
        verifier = Verifier.read(self._file)
        net = build(
            request.kind, verifier, vocabulary, layers=len(self._layers), steps=request.ahead, seed=request.seed
        )
        frames = Frames(
            self._folders,
            vocabulary,
            columns=[self._stored.index(layer) for layer in self._layers],
            last=request.kind != "eagle3",
            tokens=request.batch,
            fill=self._filler(),
        )
        held_out = frames.held_out(request.held_out)
        if not held_out:
            raise UsageError("no text is held out yet", hint="Make more data: one text in 25 is held out.")
        if self._init:
            self._init.load_into(net, vocabulary)
        elif isinstance(net, Eagle3):
            looked_at = [min(count, LOOKED_AT) for count in self._extent]
            first = next(iter(frames.epoch(looked_at, [request.seed])))
            assert first.batch.layers is not None
            scale_inputs(net, first.batch.layers[first.batch.rows(1)])
        coverage = self._coverage(vocabulary, is_held_out)
        plan = Plan(
            steps=request.steps,
            rate=request.rate,
            later=0.8,
            feature_weight=1.0 if request.kind == "eagle1" else 0.0,
            every=request.every,
            patience=request.patience,
            minutes=request.minutes,
            seed=request.seed,
        )
        return Learning(net, frames, self._extent, held_out, plan, request.output), coverage

    def _filler(self) -> Callable[[Text], Text] | None:
        """Computes hidden states again where the data has none."""
        bare = self._folders.without_states
        if bare is None:
            return None
        from localspec.engine.devices import compute_devices, default_threads, devices
        from localspec.engine.farm import Farm, FarmSettings
        from localspec.engine.model import LlamaModel

        threads = self._request.threads or default_threads()
        weights = held(self._file.path, bare.hold, bare.first, threads=threads, report=self._report)
        model = LlamaModel(weights, gpu_layers=-1 if compute_devices(devices()) else 0)
        longest = max(int(shard.column("lengths").max()) for shard in bare.shards())
        farm = Farm(model, FarmSettings(1, longest, tuple(self._stored), threads))

        def fill(text: Text) -> Text:
            farm.clear(0)
            crop = farm.read(0, text.tokens[:-1])
            return replace(text, layers=crop.layers.astype(np.float16), last=crop.last.astype(np.float16))

        return fill

    def _coverage(self, vocabulary: DraftVocabulary, is_held_out: Callable[[int], bool]) -> float:
        """Share of the held-out answer tokens that the head can say."""
        inside = total = 0.0
        for shard in self._shards:
            index, starts = shard.column("index"), shard.column("starts")
            tokens, first = shard.column("tokens"), 0
            for place, length in enumerate(shard.column("lengths")):
                if is_held_out(int(index[place])):
                    answer = tokens[first + int(starts[place]) : first + int(length)]
                    inside += vocabulary.coverage(answer) * len(answer)
                    total += len(answer)
                first += int(length)
        return inside / total if total else 0.0

    def _finish(self, learning: Learning, vocabulary: DraftVocabulary, coverage: float, seconds: float) -> HeadResult:
        from localspec.services.train.export import export

        request, progress = self._request, learning.progress
        path = request.output / f"{request.kind}.gguf"
        export(
            learning.net,
            path,
            verifier=self._file.path,
            vocabulary=vocabulary,
            layers=self._layers,
            weights=request.weights,
        )
        best = max(progress.points, key=lambda point: point.tokens_per_pass)
        record = {
            "schema": SCHEMA,
            "kind": request.kind,
            "verifier": self._folders.verifier,
            "data": self._folders.record(self._extent),
            "plan": {
                **asdict(learning.plan),
                "ahead": request.ahead,
                "batch_rows": request.batch,
                "init": request.init.name if request.init else None,
                "weights": request.weights,
                "layers": self._layers,
            },
            "vocabulary": {"size": len(vocabulary), "coverage": coverage},
            "parameters": sum(value.numel() for value in learning.net.state_dict().values()),
            "trained": {
                "steps": progress.step,
                "tokens": progress.tokens,
                "epochs": progress.epoch,
                "seconds": round(progress.seconds, 1),
            },
            "held_out": asdict(best),
            "curve": [asdict(point) for point in progress.points],
        }
        write_json(request.output / RECORD, record)
        return HeadResult(path, path.stat().st_size, record)


def write_json(path: Path, document: dict[str, Any]) -> None:
    """The document under its name only when it is whole."""
    unfinished = path.with_name(f"{path.name}.part")
    unfinished.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    unfinished.replace(path)


def read_record(path: Path) -> dict[str, Any]:
    """The record that lies beside a head. Raises `UsageError`."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read ({error})", hint=f"Name the {RECORD} of a training.") from error
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise UsageError(f"{path} is no record of a training", hint=f"Name the {RECORD} that lies beside a head.")
    return found
