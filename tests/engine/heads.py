"""Heads in plain numpy, and random weights for them: what the ggml graphs are measured by.

The CPU's kernels also round the vectors that weights are multiplied with: to half precision for F16, to 8 bits a block
for Q8_0 and Q4_0. So do these, and what is left is the order of sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from localspec.catalog.ggufwriter import Encoded, encode
from localspec.engine.graph import Stored

Array = npt.NDArray[np.float32]
Weights = Mapping[str, Any]


def random_weights(shapes: Mapping[str, tuple[int, ...]], seed: int = 0) -> dict[str, Array]:
    """Rows that keep the size of what they multiply; norms around 1."""
    rng = np.random.default_rng(seed)
    made = {}
    for name, shape in shapes.items():
        values = rng.standard_normal(shape) / np.sqrt(shape[-1])
        made[name] = (1 + values if name.endswith("norm.weight") else values).astype(np.float32)
    return made


def stored(values: Array, kind: str) -> tuple[Stored, Array | Matrix]:
    """A tensor as a file would hold it, and what that leaves of it; vectors stay F32."""
    if values.ndim == 1:
        return Stored.floats(values), values
    made = encode(values, kind)
    return Stored(made.shape[::-1], made.kind, np.frombuffer(made.data, dtype=np.uint8)), Matrix(restored(made), kind)


class Matrix:
    """Weights as a file leaves them, and the rounding of what they are multiplied with."""

    def __init__(self, values: Array, kind: str) -> None:
        self.values = values
        self._rounds_to = {"F32": None, "F16": "F16", "Q8_0": "Q8_0", "Q4_0": "Q8_0"}[kind]

    def __matmul__(self, x: Array) -> Array:
        """(out, in) @ (in,) or (n, in) -> (out,) or (n, out)."""
        if self._rounds_to:
            x = restored(encode(x, self._rounds_to))
        return np.asarray(x @ self.values.T, dtype=np.float32)


def restored(made: Encoded) -> Array:
    data = np.frombuffer(made.data, dtype=np.uint8)
    rows = gguf.dequantize(data.reshape(*made.shape[:-1], -1), gguf.GGMLQuantizationType(made.kind))
    return rows.astype(np.float32)


def silu(x: Array) -> Array:
    return np.asarray(x / (1 + np.exp(-x)), dtype=np.float32)


def medusa(weights: Weights, hidden: Array, *, heads: int, blocks: int) -> list[Array]:
    rows = []
    for head in range(heads):
        x = hidden
        for block in range(blocks):
            x = x + silu(weights[f"head.{head}.{block}.weight"] @ x + weights[f"head.{head}.{block}.bias"])
        own = f"head.{head}.output.weight"
        rows.append(weights[own if own in weights else "output.weight"] @ x)
    return rows


def norm(x: Array, weight: Array, epsilon: float) -> Array:
    return np.asarray(x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + epsilon) * weight, dtype=np.float32)


def turn(x: Array, positions: npt.NDArray[np.integer], *, base: float, neox: bool) -> Array:
    """Rotary positions on (n, heads, size)."""
    size = x.shape[-1]
    angles = positions[:, None, None] * base ** (-np.arange(0, size, 2) / size)
    cos, sin = np.cos(angles), np.sin(angles)
    out = np.empty_like(x)
    first, second = (slice(0, size // 2), slice(size // 2, size)) if neox else (slice(0, size, 2), slice(1, size, 2))
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., first] * sin + x[..., second] * cos
    return out


def eagle1(
    weights: Weights,
    tokens: Sequence[int],
    hidden: Array,
    *,
    positions: npt.NDArray[np.integer],
    seen: npt.NDArray[np.bool_],
    heads: int,
    heads_kv: int,
    epsilon: float,
    base: float,
    neox: bool,
) -> tuple[Array, Array]:
    """Features and logits of all pairs at once; `seen` (n, n) says which pair looks at which."""

    def linear(x: Array, name: str) -> Array:
        bias = weights.get(f"{name}.bias")
        y: Array = weights[f"{name}.weight"] @ x
        return y if bias is None else y + bias

    count = len(tokens)
    x = linear(np.concatenate([weights["token_embd.weight"].values[list(tokens)], hidden], axis=1), "fc")
    attended = norm(x, weights["blk.0.attn_norm.weight"], epsilon) if "blk.0.attn_norm.weight" in weights else x
    query, key, value = (
        linear(attended, f"blk.0.attn_{name}").reshape(count, many, -1)
        for name, many in (("q", heads), ("k", heads_kv), ("v", heads_kv))
    )
    query, key = (turn(one, positions, base=base, neox=neox) for one in (query, key))
    key, value = (np.repeat(one, heads // heads_kv, axis=1) for one in (key, value))
    scores = np.einsum("nhd,mhd->hnm", query, key) / np.sqrt(query.shape[-1])
    scores = np.where(seen[None], scores, -np.inf)
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    x = x + linear(np.einsum("hnm,mhd->nhd", shares, value).reshape(count, -1).astype(np.float32), "blk.0.attn_output")
    fed = norm(x, weights["blk.0.ffn_norm.weight"], epsilon)
    x = x + linear(silu(linear(fed, "blk.0.ffn_gate")) * linear(fed, "blk.0.ffn_up"), "blk.0.ffn_down")
    last = norm(x, weights["output_norm.weight"], epsilon) if "output_norm.weight" in weights else x
    return x, weights["output.weight"] @ last
