"""From a published checkpoint of a draft head to a GGUF that runs here: EAGLE-3, EAGLE-1 and -2, Medusa-1.

Finds out which kind a checkpoint is, lets `convert_eagle3`, `convert_eagle1` or `convert_medusa` read it, and writes
the file with the verifier's fingerprint. Loads no model and no PyTorch.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from localspec.catalog import fetch, fingerprint, store
from localspec.catalog.checkpoint import Checkpoint
from localspec.catalog.fingerprint import Fingerprint
from localspec.catalog.ggufwriter import BLOCK, Encoded, Value, encode, write_gguf
from localspec.catalog.modelfile import ModelFile
from localspec.catalog.registry import Registry
from localspec.errors import UsageError
from localspec.services.heads import convert_eagle1, convert_eagle3, convert_medusa
from localspec.services.heads.parts import Head, Target
from localspec.services.report import Report

SCHEMA = "localspec.train.convert/1"
WEIGHTS = ("F32", "F16", "Q8_0", "Q4_0")
KNOWN = "EAGLE-3 (SafeAILab, SpecForge, AngelSlim, speculators), EAGLE-1 and -2 (SafeAILab), Medusa-1 (FasterDecoding)"
READERS = {"eagle3": convert_eagle3, "eagle1": convert_eagle1, "medusa": convert_medusa}


@dataclass(frozen=True)
class Request:
    """layers None: as the checkpoint says; only for EAGLE-3. weights: format of the matrices."""

    checkpoint: Path
    verifier: str
    out: Path
    weights: str = "Q8_0"
    layers: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.weights not in WEIGHTS:
            raise UsageError(f"--weights is {self.weights!r}.", hint=f"Choose one of {', '.join(WEIGHTS)}.")
        if self.out.suffix.lower() != ".gguf":
            raise UsageError(f"{self.out} does not end in .gguf.", hint="A head is named by a path ending in .gguf.")
        if self.layers is not None and len(self.layers) != 3:
            raise UsageError(
                f"--layers names {len(self.layers)} layers, EAGLE-3 reads three.",
                hint="Write three ids: --layers 2,16,29.",
            )


@dataclass(frozen=True)
class Converted:
    """The head that was written, and for which verifier."""

    kind: str
    path: Path
    bytes: int
    verifier: Fingerprint
    facts: Mapping[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """The document of `train convert --json`."""
        return {
            "schema": SCHEMA,
            "kind": self.kind,
            "head": str(self.path),
            "bytes": self.bytes,
            "verifier": vars(self.verifier),
            **self.facts,
        }


def convert(request: Request, registry: Registry, report: Report) -> Converted:
    """Read the checkpoint and write the head. Raises `UsageError` for what cannot be a head of this verifier,
    `ModelFileError` for a damaged checkpoint; nothing is written then.
    """
    checkpoint = _without_wrappers(Checkpoint.open(Path(os.path.expanduser(request.checkpoint))))
    kind = kind_of(checkpoint)
    if request.layers is not None and kind != "eagle3":
        raise UsageError(f"This is {kind}, which reads the last layer only.", hint="Leave --layers out.")
    verifier = fetch.resolve(request.verifier, registry, report)
    if verifier.kind == "head":
        raise UsageError(
            f"{verifier.path} is a drafting head.", hint="Name the model that it drafts for: --verifier REF."
        )
    target = _target(verifier)
    head = READERS[kind].read(checkpoint, target, request.layers, report)
    found = fingerprint.of_verifier(verifier.path)
    keys: dict[str, Value] = {
        "general.architecture": head.architecture,
        "general.name": f"{kind} head for {found.name}",
        **fingerprint.keys(found, kind=kind),
        **head.keys,
    }
    out = Path(os.path.expanduser(request.out)).absolute()
    store.make_folder(out.parent)
    tensors = _encoded(head, request.weights, report)
    store.check_room(out.parent, sum(len(tensor.data) for tensor in tensors.values()), report)
    write_gguf(out, keys, tensors)
    return Converted(kind, out, out.stat().st_size, found, head.facts)


def kind_of(checkpoint: Checkpoint) -> str:
    """Which head this is, by its tensors. Raises `UsageError` when it is none that is known."""
    names = set(checkpoint.tensors)
    if convert_medusa.is_one(names):
        return "medusa"
    if "fc.weight" in names and checkpoint.tensors["fc.weight"].shape:
        shape = checkpoint.shape("fc.weight")
        if convert_eagle3.is_one(names):
            return "eagle3"
        if len(shape) == 2 and shape[1] == 2 * shape[0]:
            return "eagle1"
    shown = ", ".join(sorted(names)[:3]) or "none at all"
    raise UsageError(
        f"{checkpoint.path} is no draft head that is known (its tensors: {shown}, ...).", hint=f"Known are {KNOWN}."
    )


def _without_wrappers(checkpoint: Checkpoint) -> Checkpoint:
    """Names as their authors gave them, whatever module they were saved in."""
    names = set(checkpoint.tensors)
    for prefix in ("model.", "ea_layer.", "draft_model.", "module."):
        if names and all(name.startswith(prefix) or name in ("d2t", "t2d", "lm_head.weight") for name in names):
            return checkpoint.renamed({name: name.removeprefix(prefix) for name in names})
    return checkpoint


def _target(verifier: ModelFile) -> Target:
    return Target(
        path=verifier.path,
        name=verifier.path.name,
        width=verifier.width or 0,
        layers=verifier.layers or 0,
        vocab_size=verifier.vocab_size or 0,
    )


def _encoded(head: Head, weights: str, report: Report) -> dict[str, Encoded]:
    """The tensors as they are written: matrices in the format asked for, everything small as it is."""
    found: dict[str, Encoded] = {}
    for done, (name, load) in enumerate(head.tensors.items()):
        report.progress("Converting", done, len(head.tensors), "steps")
        found[name] = _encode(load(), weights)
    report.progress("Converting", len(head.tensors), len(head.tensors), "steps")
    return found


def _encode(array: npt.NDArray[Any], weights: str) -> Encoded:
    if array.dtype == np.int64:
        return encode(array, "I64")
    if array.ndim < 2:
        return encode(array, "F32")
    blocks = weights in ("Q8_0", "Q4_0")
    return encode(array, "F16" if blocks and array.shape[-1] % BLOCK else weights)
