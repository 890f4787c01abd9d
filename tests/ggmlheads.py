"""Tiny Medusa and EAGLE-1 heads for the tiny verifiers of the zoo: random ones, and ones that know what comes next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from localspec.catalog import fingerprint
from localspec.catalog.ggufwriter import Encoded, encode, write_gguf

Array = npt.NDArray[Any]
KEY = "localspec.head"
HEADS, HEADS_KV, SIZE, FEED = 2, 1, 32, 64


def medusa_parts(width: int, rows: int, *, heads: int = 3, seed: int = 3, own: bool = False) -> dict[str, Array]:
    """Tensors of Medusa heads, (out, in)."""
    rng = np.random.default_rng(seed)
    made: dict[str, Array] = {}
    for head in range(heads):
        made[f"head.{head}.0.weight"] = rng.standard_normal((width, width)) / np.sqrt(width)
        made[f"head.{head}.0.bias"] = 0.1 * rng.standard_normal(width)
        if own:
            made[f"head.{head}.output.weight"] = rng.standard_normal((rows, width))
    return made


def eagle1_parts(width: int, *, seed: int = 4) -> dict[str, Array]:
    """Tensors of an EAGLE-1 head, (out, in)."""
    rng = np.random.default_rng(seed)
    shapes = {
        "fc.weight": (width, 2 * width),
        "blk.0.attn_q.weight": (HEADS * SIZE, width),
        "blk.0.attn_k.weight": (HEADS_KV * SIZE, width),
        "blk.0.attn_v.weight": (HEADS_KV * SIZE, width),
        "blk.0.attn_output.weight": (width, HEADS * SIZE),
        "blk.0.ffn_gate.weight": (FEED, width),
        "blk.0.ffn_up.weight": (FEED, width),
        "blk.0.ffn_down.weight": (width, FEED),
    }
    made: dict[str, Array] = {name: rng.standard_normal(shape) / np.sqrt(shape[1]) for name, shape in shapes.items()}
    return made | {"blk.0.ffn_norm.weight": np.ones(width)}


def write(
    path: Path,
    verifier: Path,
    kind: str,
    parts: Mapping[str, Array],
    *,
    quant: str = "F32",
    known: Sequence[int] | None = None,
    keys: Mapping[str, Any] | None = None,
    without: Sequence[str] = (),
    heads: int = 3,
) -> Path:
    """The head's file. `keys` replace or add some, None takes one away; `without` names tensors that are left out."""
    found = fingerprint.of_verifier(verifier)
    all_keys: dict[str, Any] = {"general.architecture": "localspec-head", **fingerprint.keys(found, kind=kind)}
    all_keys |= {f"{KEY}.width": found.width}
    if kind == "medusa":
        all_keys |= {f"{KEY}.heads": heads, f"{KEY}.blocks": 1}
    else:
        all_keys |= {
            f"{KEY}.feed_forward": FEED,
            f"{KEY}.attention.heads": HEADS,
            f"{KEY}.attention.heads_kv": HEADS_KV,
            f"{KEY}.attention.key_length": SIZE,
            f"{KEY}.norm_epsilon": 1e-5,
            f"{KEY}.rope.base": 10_000.0,
        }
    all_keys = {key: value for key, value in {**all_keys, **(keys or {})}.items() if value is not None}
    tensors: dict[str, Encoded] = {
        name: encode(values, quant if np.ndim(values) > 1 else "F32")
        for name, values in parts.items()
        if name not in without
    }
    if known is not None:
        tensors["d2t"] = encode(np.array(known), "I64")
    write_gguf(path, all_keys, tensors)
    return path


def tiny_medusa(path: Path, verifier: Path, **more: Any) -> Path:
    """Random heads over the verifier's own output."""
    found = fingerprint.of_verifier(verifier)
    return write(path, verifier, "medusa", medusa_parts(found.width, found.vocab_size), **more)


def tiny_eagle1(path: Path, verifier: Path, **more: Any) -> Path:
    """A random head over the verifier's own output."""
    return write(path, verifier, "eagle1", eagle1_parts(fingerprint.of_verifier(verifier).width), **more)


def knowing_medusa(path: Path, verifier: Path, successor: Mapping[int, int], **more: Any) -> Path:
    """Heads that are always right about a script model: its hidden row is one-hot, so a matrix looks the token up."""
    found = fingerprint.of_verifier(verifier)
    parts: dict[str, Array] = {}
    for head in range(3):
        parts[f"head.{head}.0.weight"] = np.zeros((found.width, found.width))
        parts[f"head.{head}.0.bias"] = np.zeros(found.width)
        table = np.zeros((found.vocab_size, found.width))
        for token in successor:
            later = token
            for _ in range(head + 2):
                later = successor.get(later, later)
            table[later, token] = 1.0
        parts[f"head.{head}.output.weight"] = table
    return write(path, verifier, "medusa", parts, **more)


def knowing_eagle1(path: Path, verifier: Path, **more: Any) -> Path:
    """A head that is always right about a script model, whose hidden row is the embedding of the row's own token."""
    width = fingerprint.of_verifier(verifier).width
    parts = eagle1_parts(width)
    parts["fc.weight"] = np.concatenate([np.eye(width), np.zeros((width, width))], axis=1)
    for name in ("attn_output", "ffn_down"):
        parts[f"blk.0.{name}.weight"] = np.zeros_like(parts[f"blk.0.{name}.weight"])
    return write(path, verifier, "eagle1", parts, **more)


def requantised(source: Path, path: Path, kind: str = "Q8_0") -> Path:
    """The same model with its matrices in another format."""
    reader = gguf.GGUFReader(source)
    keys = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    number = {"Q8_0": 7, "F16": 1}[kind]
    tensors = {one.name: encode(one.data, kind if one.data.ndim > 1 else "F32") for one in reader.tensors}
    write_gguf(path, {**keys, "general.file_type": number}, tensors)
    return path
