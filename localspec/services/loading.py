"""Loads a model file into a context on the devices there are: fewer layers on the GPU rather than no answer.

Knows files and devices; not what the models are for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from localspec.catalog import machine
from localspec.catalog.modelfile import ModelFile
from localspec.engine import placement
from localspec.engine.context import ContextSettings, LlamaContext
from localspec.engine.devices import compute_devices, devices
from localspec.engine.model import LlamaModel
from localspec.errors import LoadError
from localspec.services.report import Report

MEBI = 2**20
CERTAINLY = 4
"""What is estimated of a cache may be so many times too much, where many heads share keys and values."""


@dataclass(frozen=True)
class Loaded:
    """A model with its context. layers_on_gpu: as loaded, at most the model's own number."""

    file: ModelFile
    model: LlamaModel
    context: LlamaContext
    layers_on_gpu: int

    def where(self, role: str) -> str:
        """One line: which model this is and where it lives."""
        return place(role, self.file, self.layers_on_gpu, self.model.layers)

    def close(self) -> None:
        self.context.close()
        self.model.close()


def place(role: str, file: ModelFile, layers_on_gpu: int, layers: int) -> str:
    """One line: which model plays `role` and where it lives."""
    where = "CPU" if not layers_on_gpu else "GPU" if layers_on_gpu >= layers else "GPU and CPU"
    split = f" ({layers_on_gpu} of {layers} layers on the GPU)" if 0 < layers_on_gpu < layers else ""
    return f"{role}: {file.name or file.path.stem} {file.quantisation}, {_mebi(file.bytes)}, on {where}{split}"


def apart(draft_layers: int, verifier_layers: int) -> str:
    """What keeps a draft from its verifier's device, by how many layers of each are on a GPU; "" when nothing does."""
    draft, verifier = ("GPU" if layers else "CPU" for layers in (draft_layers, verifier_layers))
    return "" if draft == verifier else f"the draft is on the {draft} and the verifier on the {verifier}"


def load(
    file: ModelFile,
    settings: ContextSettings,
    *,
    gpu_layers: int | None,
    role: str,
    report: Report,
    beside: placement.Need | None = None,
) -> Loaded:
    """Load `file` and make its context; `gpu_layers` None: as many as fit, fewer when the device says no after all.

    `beside` is what another model will want on the same devices, which is left free for it.
    Raises `LoadError`: the file does not load, or the layers that were asked for do not fit.
    """
    gpus = compute_devices(devices())
    if not gpus:
        if gpu_layers:
            report.warn(
                f"{'All' if gpu_layers < 0 else gpu_layers} layers of the {role} were asked for on a GPU, but this "
                "llama.cpp sees none and computes on the CPU; reinstall llama-cpp-python with CUDA or Metal (README)."
            )
        return _load(file, settings, 0, role=role, report=report)
    free, wanted = sum(gpu.memory_free for gpu in gpus), need(file, settings)
    if gpu_layers is not None:
        layers = gpu_layers if gpu_layers >= 0 else placement.EVERYTHING
        return _load_as_asked(file, settings, layers, wanted=wanted, free=free, role=role, report=report)
    failure: LoadError | None = None
    planned = placement.layers_that_fit(wanted, free, beside=beside)
    for layers in placement.fewer(planned, wanted.layers):
        try:
            loaded = _load(file, settings, layers, role=role, report=report)
        except LoadError as error:
            failure = failure or error
            continue
        # One that is not there at all is told by who sees both models.
        if failure and (loaded.layers_on_gpu or role == "verifier"):
            report.warn(
                f"The {role} did not fit the GPU as planned: {loaded.layers_on_gpu} of {wanted.layers} layers are "
                "there, the rest is on the CPU."
            )
        return loaded
    assert failure is not None
    raise failure


def need(file: ModelFile, settings: ContextSettings) -> placement.Need:
    """What a model wants on a device, estimated from its header."""
    layers = file.layers or 1
    # Grouped-query attention keeps a fraction of the width per key and value; a half each is a safe guess.
    cache = placement.cache_bytes(
        layers=layers, width=file.width or 4096, capacity=settings.capacity, kv_type=settings.kv_type
    )
    return placement.Need(file.bytes, cache, layers)


def _load_as_asked(
    file: ModelFile,
    settings: ContextSettings,
    layers: int,
    *,
    wanted: placement.Need,
    free: int,
    role: str,
    report: Report,
) -> Loaded:
    try:
        return _load(file, settings, layers, role=role, report=report)
    except LoadError as error:
        if not layers:
            raise
        flag = "--gpu-layers" if role == "verifier" else f"--{role}-gpu-layers"
        fitting = min(placement.layers_that_fit(wanted, free), wanted.layers)
        raise LoadError(
            f"{min(layers, wanted.layers)} of {wanted.layers} layers of the {role} were asked for on a GPU with "
            f"{_mebi(free)} free; all layers take {_mebi(wanted.weights)} of weights and {_mebi(wanted.cache)} "
            f"of cache: {error}",
            hint=f"Try {flag} {fitting} or fewer, {flag} auto, or a smaller --ctx-size.",
        ) from error


def _check_cache(file: ModelFile, settings: ContextSettings, role: str) -> None:
    """An absurd context does not fail, it takes the machine down."""
    asked, there = need(file, settings).cache, machine.memory()[0]
    there = None if there is None else there + sum(gpu.memory_total for gpu in compute_devices(devices()))
    if there is not None and asked > CERTAINLY * there:
        raise LoadError(
            f"a context of {settings.capacity:,} tokens takes some {_mebi(asked)} of cache for the {role}, and this "
            f"machine has {_mebi(there)} of memory",
            hint=f"Choose a smaller --ctx-size; the model was made for {file.context_length or 0:,}.",
        )


def _mebi(size: int) -> str:
    return f"{size / MEBI:,.0f} MiB"


def _load(file: ModelFile, settings: ContextSettings, layers: int, *, role: str, report: Report) -> Loaded:
    if file.kind == "head":
        raise LoadError(
            f"{file.path.name} ({file.architecture}) drafts from another model's hidden states: it cannot be a {role}",
            hint="Name a language model.",
        )
    what = f"Loading {file.path.name}"
    model = LlamaModel(
        file.path,
        gpu_layers=layers,
        progress=lambda fraction: report.progress(what, int(fraction * file.bytes), file.bytes, "bytes"),
    )
    try:
        if not model.can_decode:
            raise LoadError(
                f"{file.path.name} ({model.architecture}) has no next-token law: it cannot be a {role}",
                hint="Name a language model.",
            )
        if not (model.is_recurrent or model.window):
            _check_cache(file, settings, role)
        # A tree needs an attention cache that keeps all positions; more sequences only cost the others memory.
        chains_only = replace(settings, leaves=0) if model.is_recurrent or model.window else settings
        context = LlamaContext(model, chains_only)
    except BaseException:
        model.close()
        raise
    return Loaded(file, model, context, min(layers, model.layers))
