"""Tiny random EAGLE-3 heads for the tiny llamas of the zoo, and what one computes, written down in numpy.

`tiny_eagle3` writes the file; `Reference` reads no file, only the same tensors, and shares no line with the engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from localspec.catalog import fingerprint
from localspec.catalog.gguf import raw_values, read_header
from localspec.catalog.ggufwriter import encode, write_gguf
from tests import zoo

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Kind:
    """One way in which a published head may be laid out.

    own_embedding, own_output  else the verifier's own are used
    reduced       ids in the draft vocabulary, 0: all of them
    layers        of the verifier, that are read
    width         of the verifier, head_width of the head
    """

    own_embedding: bool = False
    own_output: bool = True
    reduced: int = 100
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    layers: tuple[int, ...] = (1, 2, 3)
    width: int = zoo.WIDTH
    head_width: int = zoo.WIDTH
    head_blocks: int = 1

    def __str__(self) -> str:
        words = [
            "own-embedding" if self.own_embedding else "shared-embedding",
            "own-output" if self.own_output else "shared-output",
            f"{self.reduced or 'all'}-ids",
        ]
        words += ["norm-before-residual"] * self.norm_before_residual + ["norm-before-fc"] * self.norm_before_fc
        return "-".join(words)


KINDS = [
    Kind(),
    Kind(own_embedding=True, norm_before_residual=True),
    Kind(reduced=0, norm_before_fc=True),
    Kind(reduced=0, own_output=False),
    Kind(own_embedding=True, norm_before_residual=True, norm_before_fc=True, layers=(3, 0, 2)),
]


def tensors(kind: Kind, vocabulary: zoo.Vocabulary, *, seed: int = 5) -> dict[str, Any]:
    """Name -> values, (out, in); `d2t` holds the verifier's ids of the draft vocabulary."""
    weights, width = zoo.Weights(seed), kind.head_width
    weights.matrix("fc.weight", width, len(kind.layers) * kind.width)
    weights.norm("output_norm.weight", width)
    if kind.norm_before_fc:
        weights.norm("enc.output_norm.weight", len(kind.layers) * kind.width)
    if kind.own_output:
        weights.matrix("output.weight", kind.reduced or len(vocabulary), width)
    if kind.own_embedding:
        weights.matrix("token_embd.weight", len(vocabulary), width)
    for block in (f"blk.{i}" for i in range(kind.head_blocks)):
        for name in ("attn_norm", "attn_norm_2", "ffn_norm"):
            weights.norm(f"{block}.{name}.weight", width)
        for name in ("q", "k", "v"):
            weights.matrix(f"{block}.attn_{name}.weight", width, 2 * width)
        weights.matrix(f"{block}.attn_output.weight", width, width)
        weights.matrix(f"{block}.ffn_gate.weight", zoo.FEED, width)
        weights.matrix(f"{block}.ffn_up.weight", zoo.FEED, width)
        weights.matrix(f"{block}.ffn_down.weight", width, zoo.FEED)
        for name in ("q", "k"):  # moderate scores: sharp ones would enlarge what half precision leaves out
            weights.tensors[f"{block}.attn_{name}.weight"] *= 0.3
    found: dict[str, Any] = dict(weights.tensors)
    if kind.reduced:
        ids = np.random.default_rng(seed).choice(len(vocabulary), kind.reduced, replace=False)
        found["d2t"] = np.sort(ids).astype(np.int64)
    return found


def tiny_eagle3(
    path: Path,
    kind: Kind = KINDS[0],
    *,
    vocabulary: zoo.Vocabulary | None = None,
    changed: Mapping[str, Any] | None = None,
    seed: int = 5,
    extra: Mapping[str, Any] | None = None,
) -> Path:
    """The head as a GGUF. `changed` tensors replace others, None leaves one out; `extra` keys are added as they are."""
    vocabulary = vocabulary or zoo.byte_vocabulary()
    writer = gguf.GGUFWriter(path, "eagle3")
    size = kind.head_width // zoo.HEADS
    numbers = {
        "embedding_length": kind.head_width,
        "feed_forward_length": zoo.FEED,
        "attention.head_count": zoo.HEADS,
        "attention.head_count_kv": zoo.HEADS,
        "attention.key_length": size,
        "attention.value_length": size,
        "rope.dimension_count": size,
        "block_count": kind.head_blocks,
        "context_length": 512,
        "target_hidden_size": kind.width,
    }
    for key, value in numbers.items():
        writer.add_uint32(f"eagle3.{key}", value)
    writer.add_float32("eagle3.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_array("eagle3.target_layers", list(kind.layers))
    writer.add_bool("eagle3.norm_before_residual", kind.norm_before_residual)
    writer.add_bool("eagle3.norm_before_fc", kind.norm_before_fc)
    for key, text in (extra or {}).items():
        writer.add_key_value(key, text, gguf.GGUFValueType.get_type(text))
    vocabulary.write(writer)
    for name, values in (tensors(kind, vocabulary, seed=seed) | dict(changed or {})).items():
        if values is not None:
            writer.add_tensor(name, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def random_head(path: Path, verifier: Path, *, ids: int = 16_384, kind: str = "Q8_0", seed: int = 0) -> Path:
    """A random head of full size for a llama-like verifier, with its tokenizer and fingerprint."""
    header = read_header(verifier)
    architecture = header.text("general.architecture")
    number = {
        name: header.number(f"{architecture}.{name}") or 0
        for name in ("embedding_length", "feed_forward_length", "attention.head_count", "attention.head_count_kv")
    }
    width, feed, heads, heads_kv = number.values()
    layers, size = header.number(f"{architecture}.block_count") or 0, width // heads
    rng = np.random.default_rng(seed)
    shapes = {
        "fc": (width, 3 * width),
        "output": (ids, width),
        "blk.0.attn_q": (width, 2 * width),
        "blk.0.attn_k": (heads_kv * size, 2 * width),
        "blk.0.attn_v": (heads_kv * size, 2 * width),
        "blk.0.attn_output": (width, width),
        "blk.0.ffn_gate": (feed, width),
        "blk.0.ffn_up": (feed, width),
        "blk.0.ffn_down": (width, feed),
    }
    found = {
        f"{name}.weight": encode(rng.normal(0, shape[1] ** -0.5, shape).astype(np.float32), kind)
        for name, shape in shapes.items()
    }
    norms = ("output_norm", "blk.0.attn_norm", "blk.0.attn_norm_2", "blk.0.ffn_norm")
    found |= {f"{name}.weight": encode(np.ones(width), "F32") for name in norms}
    vocabulary = header.lengths["tokenizer.ggml.tokens"]
    found["d2t"] = encode(np.sort(rng.choice(vocabulary, ids, replace=False)), "I64")
    numbers = number | {"block_count": 1, "context_length": 8192, "target_hidden_size": width}
    keys: dict[str, Any] = {"general.architecture": "eagle3", "general.name": "random head"}
    keys |= {f"eagle3.{name}": value for name, value in numbers.items()}
    keys |= {
        "eagle3.rope.dimension_count": size,
        "eagle3.attention.layer_norm_rms_epsilon": 1e-5,
        "eagle3.target_layers": [2, layers // 2, layers - 3],
    }
    keys |= fingerprint.keys(fingerprint.of_verifier(verifier), kind="eagle3")
    write_gguf(path, keys | raw_values(verifier, "tokenizer."), found)
    return path


def knowing_head(path: Path, *, vocabulary: zoo.Vocabulary | None = None) -> Path:
    """A head that says what `zoo.script_model` says, word for word, from the token it is given next.

    Its attention looks at its own position only (equal queries and keys turn apart with distance) and hands on the
    embedding of that token; the hidden rows are switched off by a norm of zeros. Embedding and output are the
    verifier's.
    """
    vocabulary = vocabulary or zoo.byte_vocabulary()
    width = -(-len(vocabulary) // 32) * 32
    kind = Kind(own_output=False, reduced=0, norm_before_residual=True, layers=(0, 0, 0), width=width, head_width=width)
    zero = {name: np.zeros_like(values) for name, values in tensors(kind, vocabulary).items()}
    ones, identity = np.ones(width, dtype=np.float32), np.eye(width, dtype=np.float32)
    known: dict[str, npt.NDArray[np.float32]] = {
        f"{name}.weight": ones for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm")
    }
    known["blk.0.attn_output.weight"] = identity
    known["blk.0.attn_v.weight"] = np.concatenate([identity, 0 * identity], axis=1)
    # A normed embedding is one number, the root of the width, and zeros.
    loud = np.zeros((width, 2 * width), dtype=np.float32)
    loud[:, :width] = 40.0 / np.sqrt(width)
    known["blk.0.attn_q.weight"] = known["blk.0.attn_k.weight"] = loud
    return tiny_eagle3(path, kind, vocabulary=vocabulary, changed=zero | known)


def rms(row: Array, weight: Array) -> Array:
    normed: Array = row / np.sqrt((row**2).mean(axis=-1, keepdims=True) + 1e-5) * weight
    return normed


def rope(row: Array, position: int) -> Array:
    """(heads, size): neighbours turned against each other, as llama.cpp does for this architecture."""
    angle = position * 10000.0 ** (-np.arange(row.shape[-1] // 2) / (row.shape[-1] // 2))
    turned = np.empty_like(row)
    turned[:, ::2] = row[:, ::2] * np.cos(angle) - row[:, 1::2] * np.sin(angle)
    turned[:, 1::2] = row[:, ::2] * np.sin(angle) + row[:, 1::2] * np.cos(angle)
    return turned


class Reference:
    """The head over one text: pairs in, logits and the next row out, one position at a time."""

    def __init__(self, kind: Kind, vocabulary: zoo.Vocabulary, *, embedding: Array, output: Array) -> None:
        """`embedding` and `output` are the verifier's."""
        found = {name: np.asarray(values, dtype=np.float64) for name, values in tensors(kind, vocabulary).items()}
        self.kind = kind
        self.size = len(vocabulary)
        self.embedding = found.get("token_embd.weight", embedding)
        self.output = found.get("output.weight", output)
        self.found = found
        self.keys: list[Array] = []
        self.values: list[Array] = []

    def copy(self) -> Reference:
        other = object.__new__(Reference)
        other.__dict__ = self.__dict__ | {"keys": list(self.keys), "values": list(self.values)}
        return other

    def fuse(self, rows: Sequence[npt.ArrayLike] | npt.ArrayLike) -> Array:
        """Rows of the layers, side by side -> fused rows."""
        wide = np.asarray(rows, dtype=np.float64)
        if self.kind.norm_before_fc:
            wide = rms(wide, self.found["enc.output_norm.weight"])
        fused: Array = wide @ self.found["fc.weight"].T
        return fused

    def step(self, token: int, row: Array) -> tuple[Array, Array]:
        """(V,) logits and the row before the last norm, for the next pair (token, row) of the text."""
        get = self.found
        position, heads = len(self.keys), zoo.HEADS
        normed = rms(row, get["blk.0.attn_norm_2.weight"])
        pair = np.concatenate([rms(self.embedding[token], get["blk.0.attn_norm.weight"]), normed])
        query, key, value = ((get[f"blk.0.attn_{name}.weight"] @ pair).reshape(heads, -1) for name in ("q", "k", "v"))
        query, key = rope(query, position), rope(key, position)
        # The cache holds half precision.
        self.keys.append(key.astype(np.float16).astype(np.float64))
        self.values.append(value.astype(np.float16).astype(np.float64))
        scores = np.einsum("hd,phd->hp", query, np.array(self.keys)) / np.sqrt(query.shape[1])
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        scores /= scores.sum(axis=1, keepdims=True)
        seen = np.einsum("hp,phd->hd", scores, np.array(self.values)).reshape(-1)
        out = get["blk.0.attn_output.weight"] @ seen + (normed if self.kind.norm_before_residual else row)
        fed = rms(out, get["blk.0.ffn_norm.weight"])
        gate = get["blk.0.ffn_gate.weight"] @ fed
        out = out + get["blk.0.ffn_down.weight"] @ (gate / (1 + np.exp(-gate)) * (get["blk.0.ffn_up.weight"] @ fed))
        reduced = self.output @ rms(out, get["output_norm.weight"])
        if not self.kind.reduced:
            return reduced, out
        logits = np.full(self.size, -np.inf)
        logits[get["d2t"].astype(np.int64)] = reduced
        return logits, out


def verifier_ends(vocabulary: zoo.Vocabulary, *, seed: int = 0) -> tuple[Array, Array]:
    """Embedding and output of `zoo.tiny_llama` with this seed."""
    weights = zoo.Weights(seed)
    weights.matrix("token_embd.weight", len(vocabulary), zoo.WIDTH)
    weights.matrix("output.weight", len(vocabulary), zoo.WIDTH)
    return weights.tensors["token_embd.weight"].astype(np.float64), weights.tensors["output.weight"].astype(np.float64)


def other(kind: Kind, **changes: Any) -> Kind:
    """`kind` with some facts changed."""
    return replace(kind, **changes)
