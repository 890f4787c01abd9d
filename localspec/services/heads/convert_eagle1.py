"""EAGLE-1 and EAGLE-2 checkpoints of SafeAILab (Li et al. 2024) in localspec's own layout (docs/heads.md).

One decoder layer over fc([embedding; last hidden state]); the verifier's own output matrix reads its result. EAGLE-2 is
the same head with another tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from localspec.catalog.checkpoint import Checkpoint
from localspec.catalog.ggufwriter import Value
from localspec.errors import ModelFileError, UsageError
from localspec.services.heads import parts
from localspec.services.heads.parts import Array, Head, Layer, Target
from localspec.services.report import Report

HEAD = "localspec.head"
_LAYER = "layers.0."


def read(checkpoint: Checkpoint, target: Target, layers: Sequence[int] | None, report: Report) -> Head:
    """The head. Raises `UsageError` and `ModelFileError` for what cannot be run."""
    width = checkpoint.shape("fc.weight")[0]
    parts.check_width(width, target)
    parts.check_shape(checkpoint, "fc.weight", (width, 2 * width))
    sizes = parts.layer_of(checkpoint, _LAYER, width=width, inputs=width)
    base, _, scaling = parts.rope(checkpoint.config)
    if scaling:
        raise UsageError(
            f"The head scales its positions by {scaling!r}, which heads of this kind do not do here.",
            hint="Choose another checkpoint.",
        )
    if "embed_tokens.weight" in checkpoint.tensors:
        rows = checkpoint.shape("embed_tokens.weight")[0]
        if rows < target.vocab_size - 1024:
            raise UsageError(
                f"The head knows {rows:,} tokens; {target.name} has {target.vocab_size:,}.",
                hint="Name the verifier that it was trained for: --verifier REF.",
            )
        report.note("The embedding is the verifier's own, so it is left out.")
    keys: dict[str, Value] = {
        f"{HEAD}.width": width,
        f"{HEAD}.feed_forward": sizes.feed_forward,
        f"{HEAD}.attention.heads": sizes.heads,
        f"{HEAD}.attention.heads_kv": sizes.heads_kv,
        f"{HEAD}.attention.key_length": sizes.head_size,
        f"{HEAD}.norm_epsilon": sizes.epsilon,
        f"{HEAD}.rope.base": base,
        f"{HEAD}.rope.type": "neox",
    }
    tensors = _tensors(checkpoint, sizes)
    if "lm_head.weight" in checkpoint.tensors:
        rows = checkpoint.shape("lm_head.weight")[0]
        parts.check_shape(checkpoint, "lm_head.weight", (rows, width))
        tensors["output.weight"], identity = parts.output_rows(checkpoint, "lm_head.weight", rows, target)
        if identity is not None:
            tensors["d2t"] = lambda: identity
    return Head("localspec-head", keys, tensors)


def _tensors(checkpoint: Checkpoint, sizes: Layer) -> dict[str, Callable[[], Array]]:
    attention, width = f"{_LAYER}self_attn.", sizes.width
    needed = {
        "fc.weight": "fc.weight",
        "blk.0.attn_output.weight": f"{attention}o_proj.weight",
        "blk.0.ffn_norm.weight": f"{_LAYER}post_attention_layernorm.weight",
        **{f"blk.0.attn_{part}.weight": f"{attention}{part}_proj.weight" for part in "qkv"},
        **{f"blk.0.ffn_{part}.weight": f"{_LAYER}mlp.{part}_proj.weight" for part in ("gate", "up", "down")},
    }
    optional = {
        "fc.bias": ("fc.bias", width),
        "blk.0.attn_norm.weight": (f"{_LAYER}input_layernorm.weight", width),
        "output_norm.weight": ("norm.weight", width),
        "blk.0.attn_q.bias": (f"{attention}q_proj.bias", sizes.heads * sizes.head_size),
        "blk.0.attn_k.bias": (f"{attention}k_proj.bias", sizes.heads_kv * sizes.head_size),
        "blk.0.attn_v.bias": (f"{attention}v_proj.bias", sizes.heads_kv * sizes.head_size),
    }
    names = dict(needed)
    for new, (old, size) in optional.items():
        if old in checkpoint.tensors:
            parts.check_shape(checkpoint, old, (size,))
            names[new] = old
    unread = set(checkpoint.tensors) - set(names.values()) - {"embed_tokens.weight", "lm_head.weight"}
    if unread := {name for name in unread if not name.endswith("rotary_emb.inv_freq")}:
        raise ModelFileError(
            f"{checkpoint.path} holds {sorted(unread)[0]}, which no EAGLE-1 head has.",
            hint="It is a kind of head that is not known here.",
        )
    return {new: _loader(checkpoint, old) for new, old in names.items()}


def _loader(checkpoint: Checkpoint, name: str) -> Callable[[], Array]:
    return lambda: checkpoint.matrix(name)
