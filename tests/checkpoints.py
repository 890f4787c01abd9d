"""Tiny synthetic checkpoints of draft heads as their authors publish them: names, configs and file formats.

Written without safetensors and without torch; the layouts are those of SafeAILab/EAGLE, sgl-project/SpecForge,
vllm-project/speculators and FasterDecoding/Medusa.
"""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests import zoo

Array = npt.NDArray[Any]
WIDTH, HEADS, FEED, SIZE = zoo.WIDTH, zoo.HEADS, zoo.FEED, zoo.WIDTH // zoo.HEADS
REDUCED = 100

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": WIDTH,
    "intermediate_size": FEED,
    "max_position_embeddings": 512,
    "num_attention_heads": HEADS,
    "num_hidden_layers": 1,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "vocab_size": 261,
}


def layer(weights: zoo.Weights, prefix: str, *, inputs: int) -> None:
    """One decoder layer of a LLaMA, two key heads, attention over `inputs`."""
    for name, rows in (("q", HEADS * SIZE), ("k", 2 * SIZE), ("v", 2 * SIZE)):
        weights.matrix(f"{prefix}self_attn.{name}_proj.weight", rows, inputs)
    weights.matrix(f"{prefix}self_attn.o_proj.weight", WIDTH, HEADS * SIZE)
    for name in ("gate", "up"):
        weights.matrix(f"{prefix}mlp.{name}_proj.weight", FEED, WIDTH)
    weights.matrix(f"{prefix}mlp.down_proj.weight", WIDTH, FEED)
    weights.norm(f"{prefix}post_attention_layernorm.weight", WIDTH)


def eagle3(prefix: str = "midlayer.", *, rows: int = REDUCED, seed: int = 3) -> dict[str, Array]:
    """Tensors as SafeAILab, SpecForge and AngelSlim write them; speculators say `layers.0.`."""
    weights = zoo.Weights(seed)
    weights.matrix("fc.weight", WIDTH, 3 * WIDTH)
    layer(weights, prefix, inputs=2 * WIDTH)
    for name in ("hidden_norm", "input_layernorm"):
        weights.norm(f"{prefix}{name}.weight", WIDTH)
    weights.norm("norm.weight", WIDTH)
    weights.matrix("lm_head.weight", rows, WIDTH)
    found: dict[str, Array] = dict(weights.tensors)
    if rows == REDUCED:
        ids = np.sort(np.random.default_rng(seed).choice(261, rows, replace=False))
        found["d2t"] = ids - np.arange(rows)
        found["t2d"] = np.isin(np.arange(261), ids)
    return found


def eagle1(*, biases: bool = False, seed: int = 4) -> dict[str, Array]:
    """Tensors as SafeAILab's EAGLE-1 and EAGLE-2 have them: no norm before attention, the base model's embedding."""
    weights = zoo.Weights(seed)
    weights.matrix("fc.weight", WIDTH, 2 * WIDTH)
    weights.matrix("fc.bias", WIDTH)
    layer(weights, "layers.0.", inputs=WIDTH)
    weights.matrix("embed_tokens.weight", 261, WIDTH)
    if biases:
        for name, rows in (("q", HEADS * SIZE), ("k", 2 * SIZE), ("v", 2 * SIZE)):
            weights.matrix(f"layers.0.self_attn.{name}_proj.bias", rows)
    return dict(weights.tensors)


def medusa(prefix: str = "", *, heads: int = 3, blocks: int = 1, rows: int = 261, seed: int = 6) -> dict[str, Array]:
    """Tensors as FasterDecoding's Medusa-1 has them."""
    weights = zoo.Weights(seed)
    for k in range(heads):
        for b in range(blocks):
            weights.matrix(f"{prefix}{k}.{b}.linear.weight", WIDTH, WIDTH)
            weights.matrix(f"{prefix}{k}.{b}.linear.bias", WIDTH)
        weights.matrix(f"{prefix}{k}.{blocks}.weight", rows, WIDTH)
    return dict(weights.tensors)


def folder(path: Path, tensors: Mapping[str, Array], config: Mapping[str, Any] | None, **how: Any) -> Path:
    """A checkpoint folder of safetensors."""
    path.mkdir(parents=True, exist_ok=True)
    if config is not None:
        (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    safetensors(path / "model.safetensors", tensors, **how)
    return path


def safetensors(path: Path, tensors: Mapping[str, Array], *, half: str = "F32") -> Path:
    """`half` "F16" or "BF16" stores the weights in that type."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, array in tensors.items():
        kind, stored = _stored(array, half)
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(stored)]}
        data += stored
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def _stored(array: Array, half: str) -> tuple[str, bytes]:
    if array.dtype == np.int64:
        return "I64", array.tobytes()
    if array.dtype == np.bool_:
        return "BOOL", array.tobytes()
    if half == "F16":
        return "F16", array.astype(np.float16).tobytes()
    if half == "BF16":
        return "BF16", bf16(array).tobytes()
    return "F32", array.astype(np.float32).tobytes()


def bf16(array: Array) -> Array:
    """The upper halves of float32, cut off."""
    return (array.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


# -- torch.save -------------------------------------------------------------------------------------------------------


def torch_file(
    path: Path, tensors: Mapping[str, Array], *, root: str = "archive", extra: bytes = b"", compress: bool = False
) -> Path:
    """What `torch.save(dict)` writes: pickled by hand. `extra` opcodes come before the end of the dictionary."""
    how = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", how) as archive:
        pickled = b"\x80\x02}"
        for number, (name, array) in enumerate(tensors.items()):
            pickled += _text(name) + _tensor(array, number) + b"s"
            archive.writestr(f"{root}/data/{number}", np.ascontiguousarray(array).tobytes())
        archive.writestr(f"{root}/data.pkl", pickled + extra + b".")
        archive.writestr(f"{root}/byteorder", "little")
        archive.writestr(f"{root}/version", "3\n")
    return path


_TYPES = {"float32": "FloatStorage", "float16": "HalfStorage", "uint16": "BFloat16Storage", "int64": "LongStorage",
          "bool": "BoolStorage"}  # fmt: skip


def _tensor(array: Array, number: int) -> bytes:
    """torch._utils._rebuild_tensor_v2(storage, 0, shape, strides, False, OrderedDict())"""
    strides = [step // array.itemsize for step in np.ascontiguousarray(array).strides]
    storage = (
        b"(" + _text("storage") + _name("torch", _TYPES[array.dtype.name]) + _text(str(number)) + _text("cpu")
        + _whole(array.size) + b"tQ"
    )  # fmt: skip
    rest = _whole(0) + _tuple(array.shape) + _tuple(strides) + b"\x89" + _name("collections", "OrderedDict") + b")R"
    return _name("torch._utils", "_rebuild_tensor_v2") + b"(" + storage + rest + b"tR"


def _name(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def _text(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text.encode())) + text.encode()


def _whole(number: int) -> bytes:
    return b"J" + struct.pack("<i", number)


def _tuple(numbers: Any) -> bytes:
    return b"(" + b"".join(_whole(int(number)) for number in numbers) + b"t"
