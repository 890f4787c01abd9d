"""Opens Medusa and EAGLE-1 heads: the file's tensors and those borrowed of the verifier, onto the verifier's device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from localspec.catalog import fingerprint
from localspec.catalog.gguf import TensorInfo
from localspec.catalog.headfile import Borrowed, Eagle1, HeadFile, Medusa, VerifierEnds, read_headfile, verifier_ends
from localspec.catalog.modelfile import ModelFile
from localspec.engine.context import ContextSettings
from localspec.engine.devices import compute_devices, devices
from localspec.engine.eagle1 import Eagle1Head
from localspec.engine.eagle1graph import Eagle1Graph, Sizes
from localspec.engine.graph import Stored
from localspec.engine.medusa import MedusaGraph, MedusaHead
from localspec.engine.outputs import Output
from localspec.errors import LoadError
from localspec.services.loading import Loaded
from localspec.services.report import Report

KINDS = ("medusa", "eagle1")
G = TypeVar("G", MedusaGraph, Eagle1Graph)
H = TypeVar("H", MedusaHead, Eagle1Head)


def open_head(
    file: ModelFile, verifier: Loaded, settings: ContextSettings, *, on_gpu: bool, force: bool, report: Report
) -> tuple[MedusaHead | Eagle1Head, bool]:
    """The head beside its verifier, and whether it is on the GPU; where there is no room it goes to the CPU.

    Raises `ModelFileError`, `PairError`, `LoadError`.
    """
    head = read_headfile(file.path)
    fingerprint.check(head.verifier, fingerprint.of_verifier(verifier.file.path), force=force)
    ends = verifier_ends(verifier.file)
    gpus = compute_devices(devices()) if on_gpu else []
    if gpus:
        try:
            # The verifier's output layer lives on the last device.
            return _built(head, ends, verifier, settings, device=gpus[-1].name), True
        except LoadError as error:
            report.warn(f"The head {file.path.name} goes to the CPU: {error}")
    return _built(head, ends, verifier, settings, device=None), False


def _built(
    head: HeadFile, ends: VerifierEnds, verifier: Loaded, settings: ContextSettings, *, device: str | None
) -> MedusaHead | Eagle1Head:
    context, threads = verifier.context, settings.threads
    output = _output(head, ends)
    tensors = {name: _stored(head, name) for name in head.table if name not in _APART}
    if isinstance(head.form, Medusa):
        form = head.form
        heads = MedusaGraph(
            tensors, output, width=head.width, heads=form.heads, blocks=form.blocks, device=device, threads=threads
        )
        return _following(heads, lambda: MedusaHead(heads, context, tree=form.tree))
    own = "token_embd.weight" in head.table
    layer = Eagle1Graph(
        _sizes(head.form, head.width),
        tensors,
        _stored(head, "token_embd.weight") if own else _borrowed(ends.embedding),
        output,
        vocab_size=verifier.model.vocab.size,
        capacity=context.capacity,
        draft_room=settings.draft_room,
        device=device,
        threads=threads,
    )
    return _following(layer, lambda: Eagle1Head(layer, context))


_APART = ("d2t", "output.weight", "token_embd.weight")
"""Tensors that do not go to the device with the others."""


def _output(head: HeadFile, ends: VerifierEnds) -> Output:
    """Its own matrix, or the verifier's rows for the ids that it knows; own ones in each head need none besides."""
    ids = None if head.known is None else head.known.astype(np.int32)
    scale, softcap = ends.scale, ends.softcap
    if "output.weight" in head.table:
        return Output(_stored(head, "output.weight"), ids, scale=scale, softcap=softcap)
    if "head.0.output.weight" in head.table:
        return Output(None, ids, scale=scale, softcap=softcap)
    bias = _borrowed(ends.bias) if ends.bias else None
    if bias is not None and ids is not None:
        bias = Stored.floats(bias.data.view(np.float32)[ids])
    return Output(_borrowed(ends.output).rows(ids), ids, bias, scale, softcap)


def _sizes(form: Eagle1, width: int) -> Sizes:
    return Sizes(width, form.heads, form.heads_kv, form.size, form.epsilon, form.rope_base, form.neox)


def _following(graph: G, follow: Callable[[], H]) -> H:
    """The head over its graph, which is freed when the verifier cannot be followed."""
    try:
        return follow()
    except BaseException:
        graph.close()
        raise


def _stored(head: HeadFile, name: str) -> Stored:
    return _tensor(head.table[name], head.bytes_of(name))


def _borrowed(one: Borrowed) -> Stored:
    return _tensor(one.info, one.bytes())


def _tensor(info: TensorInfo, data: npt.NDArray[np.uint8]) -> Stored:
    return Stored(info.shape, info.kind, data)
