"""EAGLE-3 checkpoints (Li et al. 2025) as llama.cpp's own architecture `eagle3`.

One decoder layer over [embedding; fused states of three layers]. Layouts: SafeAILab, SpecForge and AngelSlim name the
layer `midlayer`, speculators name it `layers.0` and nest the config.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from localspec.catalog.checkpoint import Checkpoint
from localspec.catalog.gguf import raw_values
from localspec.catalog.ggufwriter import Value
from localspec.errors import ModelFileError, UsageError
from localspec.services.heads import parts
from localspec.services.heads.parts import Array, Head, Layer, Target
from localspec.services.report import Report

FUSED = 3
_IDS = "eagle_aux_hidden_state_layer_ids"
_PREFIXES = ("midlayer.", "layers.0.")


def is_one(names: set[str]) -> bool:
    """True for the names of an EAGLE-3 head: only it normalises embedding and states apart."""
    return any(f"{prefix}hidden_norm.weight" in names for prefix in _PREFIXES)


def read(checkpoint: Checkpoint, target: Target, layers: Sequence[int] | None, report: Report) -> Head:
    """The head. Raises `UsageError` and `ModelFileError` for what llama.cpp could not run."""
    config = _flat(checkpoint.config)
    checkpoint = Checkpoint(checkpoint.path, config, checkpoint.tensors)
    prefix = next(each for each in _PREFIXES if f"{each}hidden_norm.weight" in checkpoint.tensors)
    width, fused = _fused(checkpoint, target)
    sizes = parts.layer_of(checkpoint, prefix, width=width, inputs=2 * width)
    _refuse_biases(checkpoint)
    ids = _layers(config, layers, target, report)
    base, scaling, kind = parts.rope(config)
    keys: dict[str, Value] = {
        "eagle3.block_count": 1,
        "eagle3.context_length": parts.whole(config, "max_position_embeddings", 2048),
        "eagle3.embedding_length": width,
        "eagle3.feed_forward_length": sizes.feed_forward,
        "eagle3.attention.head_count": sizes.heads,
        "eagle3.attention.head_count_kv": sizes.heads_kv,
        "eagle3.attention.key_length": sizes.head_size,
        "eagle3.attention.value_length": sizes.head_size,
        "eagle3.attention.layer_norm_rms_epsilon": sizes.epsilon,
        "eagle3.rope.dimension_count": sizes.head_size,
        "eagle3.rope.freq_base": base,
        "eagle3.target_layers": list(ids),
        "eagle3.target_hidden_size": target.width,
        "eagle3.norm_before_residual": bool(config.get("norm_before_residual", False)),
        "eagle3.norm_before_fc": "input_norm.weight" in checkpoint.tensors,
        **raw_values(target.path, "tokenizer."),
    }
    keys |= _scaling(scaling, kind, config)
    tensors = _tensors(checkpoint, prefix, sizes, fused=fused)
    if kind == "llama3":
        factors = llama3_factors(scaling, base, sizes.head_size)
        tensors["rope_freqs.weight"] = lambda: factors
    count = _add_output(tensors, checkpoint, width, target)
    _add_embedding(tensors, checkpoint, width, target)
    return Head("eagle3", keys, tensors, {"layers": list(ids), "draft_vocabulary": count})


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """speculators keep the layer's own numbers in an object of its own."""
    inner = config.get("transformer_layer_config")
    return {**config, **inner} if isinstance(inner, Mapping) else dict(config)


def _fused(checkpoint: Checkpoint, target: Target) -> tuple[int, int]:
    """Width of the head, and of what its first matrix reads."""
    shape = checkpoint.shape("fc.weight")
    if len(shape) != 2 or shape[1] % FUSED:
        raise UsageError(
            f"The head fuses hidden states by a matrix of {' x '.join(map(str, shape))}; llama.cpp feeds three layers.",
            hint="Choose a checkpoint that reads three layers.",
        )
    parts.check_width(shape[1] // FUSED, target)
    return shape[0], shape[1]


def _refuse_biases(checkpoint: Checkpoint) -> None:
    biases = sorted(name for name in checkpoint.tensors if name.endswith(".bias"))
    if biases:
        raise UsageError(
            f"The head has a bias ({biases[0]}), which llama.cpp's eagle3 does not read.",
            hint="Choose another checkpoint.",
        )


def _layers(config: Mapping[str, Any], asked: Sequence[int] | None, target: Target, report: Report) -> Sequence[int]:
    """Layers whose inputs are fused. Raises `UsageError` when the verifier does not have them."""
    nested = config.get("eagle_config")
    nested = nested if isinstance(nested, Mapping) else {}
    if nested.get("use_aux_hidden_state") is False:
        raise UsageError(
            "The head reads only the last hidden state, which llama.cpp's eagle3 cannot feed to it.",
            hint="Choose a checkpoint that reads three layers.",
        )
    told = config.get(_IDS) or nested.get(_IDS)
    ids = list(asked) if asked is not None else _as_inputs(told, target, report)
    if len(ids) != FUSED or not all(isinstance(each, int) and 0 <= each <= target.layers for each in ids):
        raise UsageError(
            f"The head wants the inputs of layers {ids}; {target.name} has {target.layers} layers.",
            hint="Name the right verifier, or three layers with --layers.",
        )
    return ids


def _as_inputs(told: Any, target: Target, report: Report) -> list[Any]:
    """The ids of a config, as layers whose *input* is read, which is what llama.cpp counts.

    Two ways of counting are in use: ids that begin with 1 mean the outputs of layers, all others the inputs
    (https://github.com/sgl-project/sglang/pull/25454). Without any: the paper's choice.
    """
    if not told:
        return [2, target.layers // 2, target.layers - 3]
    if not isinstance(told, list):
        raise ModelFileError(f"config.json says {_IDS} = {told!r}.", hint="Fetch the checkpoint's own config.json.")
    if told[0] == 1:
        report.note(f"Layers {told} are taken as outputs, as ids that begin with 1 are; --layers decides otherwise.")
        return [each + 1 if isinstance(each, int) else each for each in told]
    return told


def _scaling(scaling: Mapping[str, Any], kind: str, config: Mapping[str, Any]) -> dict[str, Value]:
    if kind in ("", "llama3"):
        return {}
    if kind in ("linear", "yarn") and "factor" in scaling:
        original = scaling.get("original_max_position_embeddings") or config.get("max_position_embeddings") or 2048
        found: dict[str, Value] = {
            "eagle3.rope.scaling.type": kind,
            "eagle3.rope.scaling.factor": float(scaling["factor"]),
        }
        return found | ({"eagle3.rope.scaling.original_context_length": int(original)} if kind == "yarn" else {})
    raise UsageError(
        f"The head scales its positions by {kind!r}, which is not known here.", hint="Choose another checkpoint."
    )


def llama3_factors(scaling: Mapping[str, Any], base: float, size: int) -> Array:
    """(size / 2,) by what Llama 3.1 divides each frequency: 1 for short waves, `factor` for long ones, in between a
    mean that is linear in the frequency (Llama 3.1's model card, `apply_scaling`).
    """
    factor, low, high = (float(scaling.get(key, default)) for key, default in _LLAMA3)
    trained = float(scaling.get("original_max_position_embeddings", 8192))
    waves = 2.0 * math.pi * base ** (np.arange(0, size, 2, dtype=np.float64) / size)
    smooth = np.clip((trained / waves - low) / (high - low), 0.0, 1.0)
    return (1.0 / ((1.0 - smooth) / factor + smooth)).astype(np.float32)


_LLAMA3 = (("factor", 8.0), ("low_freq_factor", 1.0), ("high_freq_factor", 4.0))


def _tensors(checkpoint: Checkpoint, prefix: str, sizes: Layer, *, fused: int) -> dict[str, Callable[[], Array]]:
    width = sizes.width
    plain = {
        "fc.weight": ("fc.weight", (width, fused)),
        "output_norm.weight": ("norm.weight", (width,)),
        "blk.0.attn_norm.weight": (f"{prefix}input_layernorm.weight", (width,)),
        "blk.0.attn_norm_2.weight": (f"{prefix}hidden_norm.weight", (width,)),
        "blk.0.ffn_norm.weight": (f"{prefix}post_attention_layernorm.weight", (width,)),
    }
    if "input_norm.weight" in checkpoint.tensors:
        plain["enc.output_norm.weight"] = ("input_norm.weight", (fused,))
    for name, shape in plain.values():
        parts.check_shape(checkpoint, name, shape)
    names = {new: old for new, (old, _) in plain.items()}
    names |= {f"blk.0.ffn_{part}.weight": f"{prefix}mlp.{part}_proj.weight" for part in ("gate", "up", "down")}
    names |= {"blk.0.attn_v.weight": f"{prefix}self_attn.v_proj.weight"}
    names |= {"blk.0.attn_output.weight": f"{prefix}self_attn.o_proj.weight"}
    found: dict[str, Callable[[], Array]] = {new: _loader(checkpoint, old) for new, old in names.items()}
    for part, heads in (("q", sizes.heads), ("k", sizes.heads_kv)):
        found[f"blk.0.attn_{part}.weight"] = _loader(checkpoint, f"{prefix}self_attn.{part}_proj.weight", heads)
    return found


def _loader(checkpoint: Checkpoint, name: str, heads: int = 0) -> Callable[[], Array]:
    """`heads` > 0: rows are reordered from rotating halves, as PyTorch does, to rotating neighbours."""
    return lambda: interleaved(checkpoint.matrix(name), heads) if heads else checkpoint.matrix(name)


def interleaved(matrix: Array, heads: int) -> Array:
    """Rows i and i + half of each head side by side: the pairs that llama.cpp turns together."""
    rows, columns = matrix.shape
    return matrix.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _add_output(tensors: dict[str, Callable[[], Array]], checkpoint: Checkpoint, width: int, target: Target) -> int:
    """Output matrix and map; returns how many tokens the head can say. Without a matrix the verifier's own is used."""
    if "lm_head.weight" not in checkpoint.tensors:
        if width != target.width or "d2t" in checkpoint.tensors:
            raise ModelFileError(
                f"{checkpoint.path} has no tensor lm_head.weight.", hint="The checkpoint is not whole."
            )
        return target.vocab_size
    rows = checkpoint.shape("lm_head.weight")[0]
    parts.check_shape(checkpoint, "lm_head.weight", (rows, width))
    if "d2t" not in checkpoint.tensors:
        tensors["output.weight"], identity = parts.output_rows(checkpoint, "lm_head.weight", rows, target)
        if identity is not None:
            tensors["d2t"] = lambda: identity
        return min(rows, target.vocab_size)
    ids = _ids(checkpoint, rows, target)
    tensors["output.weight"] = _loader(checkpoint, "lm_head.weight")
    tensors["d2t"] = lambda: ids
    return rows


def _ids(checkpoint: Checkpoint, rows: int, target: Target) -> Array:
    """The verifier's id of each row: a checkpoint stores how far each is from the row's own number."""
    ids = checkpoint.numbers("d2t").reshape(-1)
    ids = ids + np.arange(len(ids), dtype=np.int64)
    if len(ids) != rows or len(np.unique(ids)) != rows:
        raise ModelFileError(
            f"The map d2t of {checkpoint.path} does not give each of {rows:,} rows a token of its own.",
            hint="Fetch the checkpoint again.",
        )
    if ids.min() < 0 or ids.max() >= target.vocab_size:
        raise UsageError(
            f"The head can say token {int(ids.max()):,}; {target.name} has {target.vocab_size:,} tokens.",
            hint="Name the verifier that it was trained for: --verifier REF.",
        )
    return ids


def _add_embedding(tensors: dict[str, Callable[[], Array]], checkpoint: Checkpoint, width: int, target: Target) -> None:
    """The head's own embedding if it has one, with a row for each id of the verifier."""
    name = "embed_tokens.weight"
    if name not in checkpoint.tensors:
        if width != target.width:
            raise ModelFileError(
                f"{checkpoint.path} has no embedding, and the verifier's is {target.width:,} wide, not {width:,}.",
                hint="The checkpoint is not whole: fetch all of it.",
            )
        return
    rows = checkpoint.shape(name)[0]
    parts.check_shape(checkpoint, name, (rows, width))
    missing = max(0, target.vocab_size - rows)
    tensors["token_embd.weight"] = lambda: np.pad(checkpoint.matrix(name)[: target.vocab_size], ((0, missing), (0, 0)))
