"""What the readers of checkpoints have in common: the verifier's sizes, the head they make, a few rules.

Knows configs and arrays; no file format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from localspec.catalog.checkpoint import Checkpoint
from localspec.catalog.ggufwriter import Value
from localspec.errors import ModelFileError, UsageError

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Target:
    """The verifier, as far as a head must fit it."""

    path: Path
    name: str
    width: int
    layers: int
    vocab_size: int


@dataclass(frozen=True)
class Head:
    """A head ready to be written: keys, tensors by name (loaded when asked), facts to show."""

    architecture: str
    keys: Mapping[str, Value]
    tensors: Mapping[str, Callable[[], Array]]
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Layer:
    """Sizes of the one decoder layer of an EAGLE head, checked against its tensors."""

    width: int
    feed_forward: int
    heads: int
    heads_kv: int
    head_size: int
    epsilon: float


def layer_of(checkpoint: Checkpoint, prefix: str, *, width: int, inputs: int) -> Layer:
    """Sizes from config.json; `inputs` is the width that attention reads. Raises when config and tensors disagree."""
    config = checkpoint.config
    if not config:
        raise UsageError(
            f"There is no config.json beside {checkpoint.path}.", hint="Fetch it too: it says how many heads there are."
        )
    count = whole(config, "num_hidden_layers", 1)
    if count != 1:
        raise UsageError(
            f"The head has {count} decoder layers; heads with one can be run.",
            hint="Choose a checkpoint with one layer.",
        )
    if (act := config.get("hidden_act", "silu")) not in ("silu", "swish"):
        raise UsageError(f"The head uses the activation {act!r}; silu can be run.", hint="Choose another checkpoint.")
    heads = whole(config, "num_attention_heads")
    heads_kv = whole(config, "num_key_value_heads", heads)
    size = whole(config, "head_dim", width // max(heads, 1))
    feed = checkpoint.shape(f"{prefix}mlp.gate_proj.weight")[0]
    expected = {
        "self_attn.q_proj.weight": (heads * size, inputs),
        "self_attn.k_proj.weight": (heads_kv * size, inputs),
        "self_attn.v_proj.weight": (heads_kv * size, inputs),
        "self_attn.o_proj.weight": (width, heads * size),
        "mlp.gate_proj.weight": (feed, width),
        "mlp.up_proj.weight": (feed, width),
        "mlp.down_proj.weight": (width, feed),
        "post_attention_layernorm.weight": (width,),
    }
    for name, shape in expected.items():
        check_shape(checkpoint, prefix + name, shape)
    return Layer(width, feed, heads, heads_kv, size, float(config.get("rms_norm_eps", 1e-6)))


def check_shape(checkpoint: Checkpoint, name: str, shape: tuple[int, ...]) -> None:
    """Raises `ModelFileError` when the tensor is missing or of another shape."""
    found = checkpoint.shape(name)
    if found != shape:
        raise ModelFileError(
            f"{name} of {checkpoint.path} is {_shown(found)}, where {_shown(shape)} is expected.",
            hint="Config and weights do not belong together: fetch both again.",
        )


def check_width(found: int, target: Target) -> None:
    """Raises `UsageError` when the head reads hidden states of another width."""
    if found != target.width:
        raise UsageError(
            f"The head reads hidden states {found:,} wide; {target.name} has {target.width:,}.",
            hint="Name the verifier that it was trained for: --verifier REF.",
        )


def whole(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """A number of config.json. Raises `ModelFileError` when it is missing or none."""
    value = config.get(key)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelFileError(f"config.json says {key} = {value!r}.", hint="Fetch the checkpoint's own config.json.")
    return value


def output_rows(
    checkpoint: Checkpoint, name: str, rows: int, target: Target
) -> tuple[Callable[[], Array], Array | None]:
    """An output matrix without a map of its own, cut to the verifier's ids, and a map where it has fewer rows."""
    kept = min(rows, target.vocab_size)
    ids = np.arange(kept, dtype=np.int64) if kept < target.vocab_size else None
    return (lambda: checkpoint.matrix(name)[:kept]), ids


def rope(config: Mapping[str, Any]) -> tuple[float, Mapping[str, Any], str]:
    """Base frequency, parameters of the scaling, its type ("" for none)."""
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(scaling, Mapping):
        raise ModelFileError(
            f"config.json says rope_scaling = {scaling!r}.", hint="Fetch the checkpoint's config.json."
        )
    base = scaling.get("rope_theta") or config.get("rope_theta") or 10_000.0
    kind = str(scaling.get("rope_type") or scaling.get("type") or "").lower()
    return float(base), scaling, "" if kind in ("default", "none") else kind


def _shown(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "a number"
