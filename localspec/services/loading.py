"""Loads a model file into a context on the devices there are: fewer layers on the GPU rather than no answer.

Knows files and devices; not what the models are for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from localspec.catalog.modelfile import ModelFile
from localspec.engine import placement
from localspec.engine.context import ContextSettings, LlamaContext
from localspec.engine.devices import devices
from localspec.engine.model import LlamaModel
from localspec.errors import LoadError
from localspec.services.report import Report

MEBI = 2**20


@dataclass(frozen=True)
class Loaded:
    """A model with its context. layers_on_gpu: as loaded, at most the model's own number."""

    file: ModelFile
    model: LlamaModel
    context: LlamaContext
    layers_on_gpu: int

    def where(self, role: str) -> str:
        """One line: which model this is and where it lives."""
        count = self.model.layers
        place = "CPU" if not self.layers_on_gpu else "GPU" if self.layers_on_gpu >= count else "GPU and CPU"
        split = f" ({self.layers_on_gpu} of {count} layers on the GPU)" if 0 < self.layers_on_gpu < count else ""
        size = f"{self.file.bytes / MEBI:,.0f} MiB"
        return f"{role}: {self.file.name or self.file.path.stem} {self.file.quantisation}, {size}, on {place}{split}"

    def close(self) -> None:
        self.context.close()
        self.model.close()


def load(
    file: ModelFile, settings: ContextSettings, *, gpu_layers: int | None, role: str, report: Report
) -> Loaded:
    """Load `file` and make its context; `gpu_layers` None: as many as fit, fewer when the device says no after all.

    Raises `LoadError`: the file does not load, or the layers that were asked for do not fit.
    """
    gpus = [device for device in devices() if device.is_gpu]
    if not gpus:
        if gpu_layers:
            report.warn(
                f"{gpu_layers} layers of the {role} were asked for on a GPU, but this llama.cpp sees none; "
                "reinstall llama-cpp-python with CUDA or Metal (README)."
            )
        return _load(file, settings, 0, role=role, report=report)
    if gpu_layers is not None:
        return _load(file, settings, gpu_layers if gpu_layers >= 0 else placement.EVERYTHING, role=role, report=report)
    free = sum(gpu.memory_free for gpu in gpus)
    wanted = placement.layers_that_fit(_need(file, settings), free)
    failure: LoadError | None = None
    for layers in placement.fewer(wanted, file.layers or wanted):
        try:
            loaded = _load(file, settings, layers, role=role, report=report)
        except LoadError as error:
            failure = failure or error
            continue
        if failure:
            report.warn(f"The {role} did not fit as planned; {loaded.layers_on_gpu} layers are on the GPU.")
        return loaded
    assert failure is not None
    raise failure


def _need(file: ModelFile, settings: ContextSettings) -> placement.Need:
    layers = file.layers or 1
    # Grouped-query attention keeps a fraction of the width per key and value; a half each is a safe guess.
    cache = placement.cache_bytes(
        layers=layers, width=file.width or 4096, capacity=settings.capacity, kv_type=settings.kv_type
    )
    return placement.Need(file.bytes, cache, layers)


def _load(file: ModelFile, settings: ContextSettings, layers: int, *, role: str, report: Report) -> Loaded:
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
        # A recurrent state keeps one snapshot per draft token, and a tree needs an attention cache.
        chains_only = replace(settings, leaves=0) if model.is_recurrent else settings
        context = LlamaContext(model, chains_only)
    except BaseException:
        model.close()
        raise
    return Loaded(file, model, context, min(layers, model.layers))
