"""Medusa-1 checkpoints of FasterDecoding (Cai et al. 2024) in localspec's own layout (docs/heads.md).

K heads over the last hidden state, each some residual blocks and an output matrix of its own. All sizes are read off
the tensors, so config.json may be missing.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence

import numpy as np

from localspec.catalog.checkpoint import Checkpoint
from localspec.catalog.ggufwriter import Value
from localspec.errors import ModelFileError, UsageError
from localspec.services.heads import parts
from localspec.services.heads.parts import Array, Head, Target
from localspec.services.report import Report

HEAD = "localspec.head"
_BLOCK = re.compile(r"(?:medusa_heads?\.)?(\d+)\.(\d+)\.linear\.(weight|bias)")
_OUTPUT = re.compile(r"(?:medusa_heads?\.)?(\d+)\.(\d+)\.weight")


def is_one(names: set[str]) -> bool:
    """True for the names of Medusa heads."""
    return any(_BLOCK.fullmatch(name) for name in names)


def read(checkpoint: Checkpoint, target: Target, layers: Sequence[int] | None, report: Report) -> Head:
    """The heads. Raises `UsageError` and `ModelFileError` for what cannot be run."""
    blocks = {(int(m[1]), int(m[2]), m[3]): name for name in checkpoint.tensors if (m := _BLOCK.fullmatch(name))}
    outputs = {(int(m[1]), int(m[2])): name for name in checkpoint.tensors if (m := _OUTPUT.fullmatch(name))}
    if unknown := set(checkpoint.tensors) - {*blocks.values(), *outputs.values()}:
        raise ModelFileError(
            f"{checkpoint.path} holds {sorted(unknown)[0]}, which no Medusa-1 head has.",
            hint="Medusa-2 changes the verifier too, and later kinds are not known here.",
        )
    heads, depth = 1 + max(k for k, _, _ in blocks), 1 + max(b for _, b, _ in blocks)
    _check_whole(checkpoint, blocks, outputs, heads, depth)
    width = checkpoint.shape(blocks[0, 0, "weight"])[0]
    parts.check_width(width, target)
    rows = _rows(checkpoint, outputs, target)
    tensors: dict[str, Callable[[], Array]] = {}
    for (k, b, part), name in sorted(blocks.items()):
        parts.check_shape(checkpoint, name, (width, width) if part == "weight" else (width,))
        tensors[f"head.{k}.{b}.{part}"] = _loader(checkpoint, name)
    for (k, _), name in sorted(outputs.items()):
        parts.check_shape(checkpoint, name, (rows, width))
        tensors[f"head.{k}.output.weight"], identity = parts.output_rows(checkpoint, name, rows, target)
        if identity is not None:
            tensors["d2t"] = functools.partial(np.asarray, identity)
    keys: dict[str, Value] = {f"{HEAD}.width": width, f"{HEAD}.heads": heads, f"{HEAD}.blocks": depth}
    return Head("localspec-head", keys, tensors, {"heads": heads, "blocks": depth})


def _check_whole(
    checkpoint: Checkpoint,
    blocks: dict[tuple[int, int, str], str],
    outputs: dict[tuple[int, int], str],
    heads: int,
    depth: int,
) -> None:
    """Every head with all its blocks, and an output behind them or none for any."""
    wanted = {(k, b, part) for k in range(heads) for b in range(depth) for part in ("weight", "bias")}
    behind = {(k, depth) for k in range(heads)}
    if blocks.keys() != wanted or (outputs and outputs.keys() != behind):
        raise ModelFileError(
            f"{checkpoint.path} lacks parts of some of its {heads} heads.", hint="Fetch all of the checkpoint again."
        )


def _rows(checkpoint: Checkpoint, outputs: dict[tuple[int, int], str], target: Target) -> int:
    """Rows of an output; the verifier's vocabulary but for padding."""
    if not outputs:
        return target.vocab_size
    rows = checkpoint.shape(outputs[min(outputs)])[0]
    if rows < target.vocab_size - 1024:
        raise UsageError(
            f"The heads say {rows:,} tokens; {target.name} has {target.vocab_size:,}.",
            hint="Name the verifier that they were trained for: --verifier REF.",
        )
    return rows


def _loader(checkpoint: Checkpoint, name: str) -> Callable[[], Array]:
    return lambda: checkpoint.matrix(name)
