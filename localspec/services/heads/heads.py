"""Opens draft heads beside the verifier they were made for, once their file has been found to fit it.

What a head's file claims is compared with the verifier before llama.cpp sees it, which aborts the process over sizes
that do not match. A fingerprint, where the file has one, tells other weights apart as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from localspec.catalog import fingerprint, vocabularies
from localspec.catalog.gguf import Header, read_header
from localspec.catalog.modelfile import ModelFile
from localspec.catalog.vocabularies import Comparison, read_vocabulary
from localspec.engine.context import ContextSettings
from localspec.engine.devices import compute_devices, devices
from localspec.engine.eagle1 import Eagle1Head
from localspec.engine.eagle3 import Eagle3Head
from localspec.engine.medusa import MedusaHead
from localspec.engine.model import LlamaModel
from localspec.errors import PairError
from localspec.services.heads import ggmlheads
from localspec.services.loading import MEBI, Loaded, place
from localspec.services.report import Report

ALL_LAYERS = -1
TOLD = 64 * MEBI
"""Bytes of hidden states from which on the user is told."""


@dataclass(frozen=True)
class LoadedHead:
    """A head that follows a verifier. layers_on_gpu: as loaded; `context` is the head, by the name models use.

    model: what llama.cpp has loaded for it, None where ggml computes it alone.
    """

    file: ModelFile
    model: LlamaModel | None
    context: Eagle3Head | Eagle1Head | MedusaHead
    layers_on_gpu: int

    def where(self, role: str) -> str:
        """One line: which head this is and where it lives."""
        return place(role, self.file, self.layers_on_gpu, self.model.layers if self.model else 1)

    def close(self) -> None:
        self.context.close()
        if self.model:
            self.model.close()


def kind(file: ModelFile) -> str:
    """Which drafter a head file is for; "" when it is no head."""
    if file.kind != "head":
        return ""
    return read_header(file.path).text("localspec.head.kind") or file.architecture


def compare(file: ModelFile, verifier: ModelFile) -> Comparison:
    """What the head's vocabulary shares with the verifier's; all of it where the file leaves it to the verifier."""
    theirs = read_vocabulary(verifier.path)
    if file.kind == "head" and not read_header(file.path).lengths.get("tokenizer.ggml.tokens"):
        return Comparison(known=min(len(theirs), file.vocab_size or len(theirs)), blocked=(), fatal=(), notes=())
    return vocabularies.compare(theirs, read_vocabulary(file.path))


def load_head(
    file: ModelFile,
    verifier: Loaded,
    settings: ContextSettings,
    *,
    gpu_layers: int | None,
    force: bool,
    report: Report,
) -> LoadedHead:
    """Load `file` beside `verifier`, on the device where that is unless `gpu_layers` says otherwise.

    `force` forgives that it was trained on another quantisation. Raises `PairError`, `LoadError`.
    """
    if kind(file) in ggmlheads.KINDS:
        on_gpu = gpu_layers != 0 and verifier.layers_on_gpu > 0
        found, there = ggmlheads.open_head(file, verifier, settings, on_gpu=on_gpu, force=force, report=report)
        return LoadedHead(file, None, found, int(there))
    check(file, verifier.file, force=force)
    layers = gpu_layers if gpu_layers is not None else ALL_LAYERS if verifier.layers_on_gpu else 0
    model = LlamaModel(file.path, gpu_layers=layers)
    try:
        chains_only = replace(settings, leaves=0) if verifier.context.leaves == 1 else settings
        head = Eagle3Head(model, verifier.context, chains_only)
    except BaseException:
        model.close()
        raise
    if verifier.context.is_watched:
        report.note(
            f"llama.cpp does not give the hidden states of {verifier.model.architecture}: its evaluation is watched "
            "for them, which makes each pass slower."
        )
    if head.capture.bytes >= TOLD:
        report.note(
            f"The head keeps the hidden states of the text: up to {head.capture.bytes / MEBI:,.0f} MiB of memory "
            f"for {verifier.context.capacity:,} tokens."
        )
    return LoadedHead(file, model, head, model.layers if layers and compute_devices(devices()) else 0)


def check(file: ModelFile, verifier: ModelFile, *, force: bool) -> None:
    """Raises `PairError` when the head in `file` cannot be used with `verifier`, with the reason."""
    header = read_header(file.path, arrays=("eagle3.target_layers",))
    trained_on = fingerprint.read_fingerprint(header)
    if trained_on is not None:
        fingerprint.check(trained_on, fingerprint.of_verifier(verifier.path), force=force)
    check_kind(file)
    _KINDS[kind(file)](file, header, verifier)


def _check_eagle3(file: ModelFile, header: Header, verifier: ModelFile) -> None:
    """What llama.cpp would abort over, or answer with rows of noise."""
    fits = _Fits(file.path, verifier)
    shapes = {name: info.shape for name, info in header.table.items()}
    width = header.number("eagle3.embedding_length")
    ids = file.vocab_size or 0
    layers = header.numbers.get("eagle3.target_layers", [])
    fits(len(layers) == 3, f"reads {len(layers)} layers of its verifier where an EAGLE-3 head reads three")
    depth = verifier.layers or 0
    fits(all(0 <= layer <= depth for layer in layers), f"reads the layers {layers}, the verifier has {depth}")
    target = header.number("eagle3.target_hidden_size")
    fits(target == verifier.width, f"reads hidden states {target} wide, the verifier's are {verifier.width}")
    blocks = header.number("eagle3.block_count")
    fits(blocks == 1, f"has {blocks} layers where llama.cpp runs one")
    sizes = [header.number(f"eagle3.attention.{one}_length") for one in ("key", "value")]
    fits(sizes[0] == sizes[1], f"has keys {sizes[0]} wide and values {sizes[1]} wide, which llama.cpp does not run")
    embedding, output = shapes.get("token_embd.weight"), shapes.get("output.weight")
    if embedding is None or output is None:
        what = "embedding" if embedding is None else "output"
        fits(width == verifier.width, f"has no {what} of its own and is {width} wide, the verifier {verifier.width}")
    if embedding is not None:
        fits(embedding[-1] >= ids, f"embeds {embedding[-1]:,} of its {ids:,} token ids")
    if output is None:
        fits("d2t" not in shapes, "has a reduced vocabulary (d2t) and no output of its own")
        theirs = verifier.vocab_size
        fits(ids == theirs, f"has {ids:,} token ids and no output of its own, the verifier's has {theirs:,}")
    if "d2t" in shapes:
        _check_map(fits, file.path, header, ids)


def _check_map(fits: Callable[[bool, str], None], path: Path, header: Header, ids: int) -> None:
    """The draft vocabulary: a list of ids of the verifier."""
    info = header.table["d2t"]
    right = info.type_name == "I64" and len(info.shape) == 1
    fits(right, f"maps its vocabulary with {info.type_name} numbers where llama.cpp wants I64")
    with path.open("rb") as file:
        file.seek(info.offset)
        mapped = np.frombuffer(file.read(info.size or 0), dtype="<i8")
    inside = (mapped >= 0) & (mapped < ids)
    fits(bool(inside.all()), f"maps its vocabulary to id {mapped[~inside][:1]}, and there are {ids:,} ids")


_KINDS = {"eagle3": _check_eagle3}


def check_kind(file: ModelFile) -> None:
    """Raises `PairError` for a head that is of no kind known here."""
    found = kind(file)
    known = (*_KINDS, *ggmlheads.KINDS)
    if found and found not in known:
        raise PairError(
            f"{file.path.name} is a head of the kind {found}, which localspec does not run",
            hint=f"It runs heads of the kinds {', '.join(known)}.",
        )


class _Fits:
    """Raises `PairError` with a fact about the head unless it is as it should be."""

    def __init__(self, path: Path, verifier: ModelFile) -> None:
        self._name = path.name
        self._verifier = verifier.name or verifier.path.stem

    def __call__(self, right: bool, fact: str) -> None:
        if not right:
            raise PairError(
                f"The head {self._name} does not fit {self._verifier}: it {fact}.", hint=fingerprint.OTHER_HEAD
            )
