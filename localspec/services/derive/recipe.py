"""What to make of a verifier: which file type, without which layers, and whether that can work at all.

Reads the header of the file; writes nothing and loads no model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.catalog.gguf import read_header
from localspec.catalog.modelfile import ModelFile
from localspec.catalog.quantisation import FILE_TYPES, bits_per_weight, file_type
from localspec.errors import UsageError

TYPES = (
    "F32", "F16", "BF16", "Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q5_1", "Q5_0", "Q4_K_M", "Q4_K_S", "Q4_1", "Q4_0",
    "IQ4_NL", "IQ4_XS", "Q3_K_L", "Q3_K_M", "Q3_K_S", "IQ3_M", "IQ3_S", "Q2_K",
)  # fmt: skip
"""File types that llama.cpp makes of any model, without an importance matrix."""
Choose = Callable[[int], tuple[int, ...]]
COARSE = 6.0
"""Bits per weight of a file from which Q4_0 is a small draft; below, Q2_K."""


@dataclass(frozen=True)
class Request:
    """What is asked for. type None: chosen by what the file holds, or kept when layers are left out.

    drop    how many layers to leave out, chosen here; without: which ones
    out     where to; None: the cache, where `models list` shows it
    tokens  of each kind of text to measure with, 0: do not
    """

    type: str | None = None
    drop: int = 0
    without: tuple[int, ...] = ()
    out: Path | None = None
    tokens: int = 256

    def __post_init__(self) -> None:
        if self.type is not None and self.type not in TYPES:
            known = self.type in FILE_TYPES.values()
            why = "needs an importance matrix or special hardware" if known else "is no file type"
            raise UsageError(f"{self.type} {why}.", hint=f"Choose one of {', '.join(TYPES)}.")
        if self.drop and self.without:
            raise UsageError(
                "--drop-layers counts layers and --layers names them: both at once mean nothing.", hint="Use one."
            )
        if self.drop < 0 or self.tokens < 0:
            raise UsageError("A count below 0 means nothing.", hint="Give 0 or more.")
        if self.out is not None and self.out.suffix.lower() != ".gguf":
            raise UsageError(f"{self.out} does not end in .gguf.", hint="A draft is named by a path ending in .gguf.")


@dataclass(frozen=True)
class Recipe:
    """What is made of the verifier: `type` None keeps every tensor as it is."""

    type: str | None
    without: tuple[int, ...]

    @property
    def file_type(self) -> int | None:
        """The type as llama.cpp numbers it."""
        return file_type(self.type)

    @property
    def words(self) -> str:
        """Q2_K without layers 20-22."""
        left_out = f"without layer{'s' * (len(self.without) > 1)} {spans(self.without)}" if self.without else ""
        return " ".join(part for part in (self.type or "", left_out) if part)


def settle(request: Request, verifier: ModelFile, choose: Choose) -> Recipe:
    """What to make of this verifier; `choose` says which layers go where only their number was given.

    Raises `UsageError` when nothing sensible can be made.
    """
    if verifier.kind == "head":
        raise UsageError(f"{verifier.path} is a drafting head already.", hint="Derive drafts from a language model.")
    without = _left_out(request, verifier, choose)
    if request.type is None and without:
        return Recipe(None, without)
    fine = bits_per_weight(read_header(verifier.path).weight_bytes) > COARSE
    return Recipe(request.type or ("Q4_0" if fine else "Q2_K"), without)


def _left_out(request: Request, verifier: ModelFile, choose: Choose) -> tuple[int, ...]:
    count = verifier.layers or 0
    if request.drop >= count or len({*request.without} & {*range(count)}) == count:
        raise UsageError(
            f"{verifier.path.name} has {count} layers: nothing would be left.",
            hint="Leave out a tenth of them at most.",
        )
    chosen = tuple(sorted({*request.without})) or inessential(count, request.drop)
    if not chosen:
        return ()
    if chosen[-1] >= count or chosen[0] < 0:
        wrong = chosen[-1] if chosen[-1] >= count else chosen[0]
        raise UsageError(
            f"{verifier.path.name} has no layer {wrong}: its {count} layers are 0 to {count - 1}.",
            hint="Layers are counted from 0.",
        )
    if uneven := _uneven(verifier, chosen):
        raise UsageError(
            f"The layers of {verifier.path.name} ({verifier.architecture}) are not alike ({uneven}): "
            "none can be left out.",
            hint="Requantise instead: --type Q2_K.",
        )
    return choose(request.drop) if request.drop else chosen


def _uneven(verifier: ModelFile, chosen: Sequence[int]) -> str:
    """What makes layers of this file differ by their place: llama.cpp would put the wrong ones together."""
    header = read_header(verifier.path)
    prefix, count = f"{verifier.architecture}.", verifier.layers
    for key, length in header.lengths.items():
        if key.startswith(prefix) and length == count:
            return key
    for key in ("full_attention_interval", "nextn_predict_layers", "interleave_moe_layer_step", "moe_every_n_layers"):
        if (header.number(prefix + key) or 0) > (1 if "moe" in key else 0):
            return prefix + key
    dense = header.number(f"{prefix}leading_dense_block_count") or 0
    return f"{prefix}leading_dense_block_count" if chosen[0] < dense else ""


def inessential(layers: int, count: int) -> tuple[int, ...]:
    """`count` layers that a model may miss least, as far as one can say without looking: neighbours, half way up."""
    first = max(0, min(max(1, (layers - count + 1) // 2), layers - 1 - count))
    return tuple(range(first, first + count))


def spans(numbers: Sequence[int]) -> str:
    """3, 5-7."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
