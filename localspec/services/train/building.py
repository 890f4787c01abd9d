"""A new head for a verifier: shaped by it, and started from its weights.

The embedding is the verifier's and stays as it is. The output rows begin as the verifier's own, the layer as its last
layer (for what comes from hidden rows) and its first (for what comes from the embedding). Inputs are brought to one
scale by the norm before the fusion. Imports torch: load it inside functions only.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from localspec.services.train.nets import Eagle1, Eagle3, Head, Layer, Medusa, Sizes
from localspec.services.train.vocabulary import DraftVocabulary
from localspec.services.train.weights import Verifier


def sizes_of(verifier: Verifier, *, vocab: int, layers: int) -> Sizes:
    """The verifier's own sizes, for a head whose output has `vocab` rows and that fuses `layers` layers."""
    heads = int(verifier.number("attention.head_count"))
    return Sizes(
        width=verifier.width,
        heads=heads,
        heads_kv=int(verifier.number("attention.head_count_kv", heads)),
        head_size=int(verifier.number("attention.key_length", verifier.width // heads)),
        feed_forward=int(verifier.number("feed_forward_length")),
        vocab=vocab,
        features=layers * verifier.width,
        epsilon=float(verifier.number("attention.layer_norm_rms_epsilon")),
        rope_base=float(verifier.number("rope.freq_base", 10000.0)),
    )


def build(kind: str, verifier: Verifier, vocabulary: DraftVocabulary, *, layers: int, steps: int, seed: int) -> Head:
    """A head of `kind` that drafts `steps` tokens; `layers` is how many it fuses."""
    torch.manual_seed(seed)
    sizes = sizes_of(verifier, vocab=len(vocabulary), layers=layers)
    output = torch.from_numpy(verifier.output()[vocabulary.ids])
    if kind == "medusa":
        head: Any = Medusa(sizes, steps)
        head.output.weight.data.copy_(output)
        return head
    embedding = torch.from_numpy(verifier.embedding())
    if kind == "eagle1":
        head = Eagle1(sizes, embedding, output, steps, noise=0.1)
        _start_layer(head.layer, verifier, from_features=slice(None), from_tokens=None)
        head.attn_norm.weight.data.copy_(_vector(verifier, f"blk.{_last(verifier)}.attn_norm.weight"))
        half = sizes.width
        head.fc.weight.data[:, half:].copy_(torch.eye(half))
        head.fc.weight.data[:, :half].normal_(std=0.02)
        head.fc.bias.data.zero_()
        return head
    head = Eagle3(sizes, embedding, steps)
    head.output.weight.data.copy_(output)
    head.output_norm.weight.data.copy_(_vector(verifier, "output_norm.weight"))
    head.token_norm.weight.data.copy_(_vector(verifier, "blk.0.attn_norm.weight"))
    head.feature_norm.weight.data.copy_(_vector(verifier, f"blk.{_last(verifier)}.attn_norm.weight"))
    _start_layer(head.layer, verifier, from_features=slice(sizes.width, None), from_tokens=slice(0, sizes.width))
    return head


def scale_inputs(head: Eagle3, rows: Tensor) -> None:
    """Set the norm before the fusion so that every input varies as much as any other, and start from the last layer.

    `rows` (n, F) are layer inputs of answers. What the fusion hands on begins as the highest layer's row.
    """
    rms = rows.square().mean(-1, keepdim=True).sqrt()
    spread = (rows / rms).square().mean(0).sqrt().clamp_min(1e-6)
    head.input_norm.weight.data.copy_(1 / spread)
    width = head.sizes.width
    head.fc.weight.data.normal_(std=0.02)
    highest = spread[-width:]
    head.fc.weight.data[:, -width:] += torch.diag(highest / highest.square().mean().sqrt())


def _last(verifier: Verifier) -> int:
    return int(verifier.number("block_count")) - 1


def _vector(verifier: Verifier, name: str) -> Tensor:
    return torch.from_numpy(verifier.tensor(name).reshape(-1))


def _start_layer(layer: Layer, verifier: Verifier, *, from_features: slice, from_tokens: slice | None) -> None:
    """Copy what has the same shape from the verifier's last layer, and for embeddings from its first."""
    last = _last(verifier)
    for name, module in (("q", layer.q), ("k", layer.k), ("v", layer.v)):
        _copy(module.weight.data[:, from_features], verifier, f"blk.{last}.attn_{name}.weight", 0.7)
        if from_tokens is not None:
            _copy(module.weight.data[:, from_tokens], verifier, f"blk.0.attn_{name}.weight", 0.7)
    _copy(layer.o.weight.data, verifier, f"blk.{last}.attn_output.weight", 1.0)
    _copy(layer.gate.weight.data, verifier, f"blk.{last}.ffn_gate.weight", 1.0)
    _copy(layer.up.weight.data, verifier, f"blk.{last}.ffn_up.weight", 1.0)
    _copy(layer.down.weight.data, verifier, f"blk.{last}.ffn_down.weight", 1.0)
    _copy(layer.ffn_norm.weight.data, verifier, f"blk.{last}.ffn_norm.weight", 1.0)


def _copy(target: Tensor, verifier: Verifier, name: str, factor: float) -> None:
    """Leaves the target as it is where the verifier is built otherwise (fused or mixture-of-experts weights)."""
    if verifier.has(name):
        source = torch.from_numpy(verifier.tensor(name))
        if source.shape == target.shape:
            target.copy_(source * factor)
