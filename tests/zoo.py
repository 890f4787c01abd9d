"""Tiny random GGUF models, written on the fly: one per kind of memory and vocabulary that llama.cpp knows.

Every writer returns the path it wrote; the same arguments give the same bytes. The models babble, but they load, decode
and roll back like their big relatives: attention (`tiny_llama`), sliding window (`tiny_swa`), recurrent (`tiny_mamba`),
hybrid with snapshots (`tiny_lfm2`) and without (`tiny_jamba`). `script_model` says exactly what it is told to say.
Knows nothing of localspec; damaged files are in `wrecks.py`.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

Tensor = npt.NDArray[np.float32]
Tensors = dict[str, Tensor]

WIDTH, HEADS, FEED = 64, 4, 128
CONTROL = ("<|begin|>", "<|turn|>", "<|end|>", "<|also_end|>", "<|pad|>")
BOS, TURN, EOS, OTHER_END, PAD = range(5)
FIRST_BYTE = len(CONTROL)


def byte_id(byte: int | str) -> int:
    """Id of the token for one byte (or one ASCII letter) in the default vocabulary."""
    return FIRST_BYTE + (ord(byte) if isinstance(byte, str) else byte)


def byte_ids(text: str) -> list[int]:
    """Ids that spell `text` byte by byte."""
    return [byte_id(byte) for byte in text.encode()]


def _gpt2_letters() -> list[str]:
    """The printable letter that stands for each byte in byte-level BPE vocabularies, in byte order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


@dataclass(frozen=True)
class Vocabulary:
    """What a file says about its tokens. `ends` beyond the EOS go to the EOT and EOM keys, two at most."""

    kind: str
    texts: tuple[str, ...]
    types: tuple[int, ...]
    scores: tuple[float, ...] | None = None
    merges: tuple[str, ...] = ()
    bos: int = BOS
    eos: int = EOS
    ends: tuple[int, ...] = ()
    add_bos: bool = False
    template: str | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def renamed(self, names: Mapping[int, str]) -> Vocabulary:
        """Other texts for some ids; two names given to each other's ids exchange them."""
        return replace(self, texts=tuple(names.get(i, text) for i, text in enumerate(self.texts)))

    def padded(self, rows: int) -> Vocabulary:
        """`rows` more ids of type UNUSED, as big models pad their tables."""
        unused = tuple(f"[PAD{len(self) + i}]" for i in range(rows))
        scores = None if self.scores is None else self.scores + (0.0,) * rows
        types = self.types + (int(gguf.TokenType.UNUSED),) * rows
        return replace(self, texts=self.texts + unused, types=types, scores=scores)

    def write(self, writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model(self.kind)
        if self.kind == "gpt2":
            writer.add_tokenizer_pre("smollm")
            writer.add_token_merges(list(self.merges))
        writer.add_token_list(list(self.texts))
        writer.add_token_types(list(self.types))
        if self.scores is not None:
            writer.add_token_scores(list(self.scores))
        writer.add_bos_token_id(self.bos)
        writer.add_eos_token_id(self.eos)
        for add, end in zip((writer.add_eot_token_id, writer.add_eom_token_id), self.ends, strict=False):
            add(end)
        writer.add_add_bos_token(self.add_bos)
        if self.template is not None:
            writer.add_chat_template(self.template)


def byte_vocabulary(*, words: Sequence[str] = (), **keys: Any) -> Vocabulary:
    """Five control tokens, the 256 bytes, and `words` of two ASCII letters that exist as merged tokens (261 ids)."""
    control, normal = int(gguf.TokenType.CONTROL), int(gguf.TokenType.NORMAL)
    texts = (*CONTROL, *_gpt2_letters(), *words)
    types = (control,) * len(CONTROL) + (normal,) * (256 + len(words))
    # llama.cpp wants one merge at least, and loses text whose merge is no token: these two bytes stand in no UTF-8.
    merges = tuple(f"{word[0]} {word[1]}" for word in words) or ("ÿ þ",)
    return Vocabulary("gpt2", texts, types, merges=merges, **keys)


def spm_vocabulary(**keys: Any) -> Vocabulary:
    """A SentencePiece vocabulary: unknown, begin, end, two more control tokens, 256 bytes, the space and letters."""
    kinds = gguf.TokenType
    letters = ("▁", *(chr(letter) for letter in range(ord("a"), ord("z") + 1)), "▁a", "th", "▁th")
    texts = ("<unk>", "<s>", "</s>", *CONTROL[3:], *(f"<0x{byte:02X}>" for byte in range(256)), *letters)
    types = (kinds.UNKNOWN, *(kinds.CONTROL,) * 4, *(kinds.BYTE,) * 256, *(kinds.NORMAL,) * len(letters))
    scores = (0.0,) * (FIRST_BYTE + 256) + tuple(-float(rank) for rank in range(len(letters)))
    return Vocabulary("llama", texts, tuple(map(int, types)), scores=scores, bos=1, **{"add_bos": True, **keys})


class Weights:
    """Random tensors by name: normal(0, 0.3) from `seed`, plus `noise` times another draw of the same kind.

    Two models of one seed that differ in noise only are a verifier and a draft that often agree. A tensor does not
    depend on the others, and one with more rows starts with the same rows, so padding a vocabulary changes no law.
    """

    def __init__(self, seed: int, noise: float = 0.0) -> None:
        self.seed = seed
        self.noise = noise
        self.tensors: Tensors = {}

    def matrix(self, name: str, *shape: int) -> None:
        """(out, in) like PyTorch; GGUF lists the sizes the other way round."""
        values = self._draw(name, 0, shape)
        if self.noise:
            values = values + self.noise * self._draw(name, 1, shape)
        self.tensors[name] = (0.3 * values).astype(np.float32)

    def norm(self, name: str, size: int) -> None:
        self.tensors[name] = (1.0 + 0.1 * self._draw(name, 0, (size,))).astype(np.float32)

    def _draw(self, name: str, stream: int, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        return np.random.default_rng([self.seed, zlib.crc32(name.encode()), stream]).standard_normal(shape)


def _feed_forward(weights: Weights, block: str) -> None:
    weights.norm(f"{block}.ffn_norm.weight", WIDTH)
    weights.matrix(f"{block}.ffn_gate.weight", FEED, WIDTH)
    weights.matrix(f"{block}.ffn_up.weight", FEED, WIDTH)
    weights.matrix(f"{block}.ffn_down.weight", WIDTH, FEED)


def _attention(weights: Weights, block: str) -> None:
    weights.norm(f"{block}.attn_norm.weight", WIDTH)
    weights.matrix(f"{block}.attn_q.weight", WIDTH, WIDTH)
    weights.matrix(f"{block}.attn_k.weight", WIDTH, WIDTH)
    weights.matrix(f"{block}.attn_v.weight", WIDTH, WIDTH)
    weights.matrix(f"{block}.attn_output.weight", WIDTH, WIDTH)


def _head_norms(weights: Weights, block: str) -> None:
    size = WIDTH // HEADS
    weights.norm(f"{block}.attn_q_norm.weight", size)
    weights.norm(f"{block}.attn_k_norm.weight", size)


def _mamba(weights: Weights, block: str, *, inner_norms: bool) -> None:
    inner, state, kernel, rank = 2 * WIDTH, 16, 4, 4
    weights.norm(f"{block}.attn_norm.weight", WIDTH)
    weights.matrix(f"{block}.ssm_in.weight", 2 * inner, WIDTH)
    weights.matrix(f"{block}.ssm_conv1d.weight", inner, kernel)
    weights.matrix(f"{block}.ssm_conv1d.bias", inner)
    weights.matrix(f"{block}.ssm_x.weight", rank + 2 * state, inner)
    weights.matrix(f"{block}.ssm_dt.weight", inner, rank)
    weights.matrix(f"{block}.ssm_dt.bias", inner)
    weights.matrix(f"{block}.ssm_a", inner, state)
    # Decay rates are negative, and slow enough that the state remembers some dozen tokens.
    weights.tensors[f"{block}.ssm_a"] = -np.abs(weights.tensors[f"{block}.ssm_a"])
    weights.matrix(f"{block}.ssm_d", inner)
    weights.matrix(f"{block}.ssm_out.weight", WIDTH, inner)
    if inner_norms:
        for name, size in {"dt": rank, "b": state, "c": state}.items():
            weights.norm(f"{block}.ssm_{name}_norm.weight", size)


def _short_convolution(weights: Weights, block: str) -> None:
    weights.norm(f"{block}.attn_norm.weight", WIDTH)
    weights.matrix(f"{block}.shortconv.conv.weight", WIDTH, 3)
    weights.matrix(f"{block}.shortconv.in_proj.weight", 3 * WIDTH, WIDTH)
    weights.matrix(f"{block}.shortconv.out_proj.weight", WIDTH, WIDTH)


def _ends(weights: Weights, rows: int, *, last_norm: str = "output_norm") -> None:
    weights.matrix("token_embd.weight", rows, WIDTH)
    weights.norm(f"{last_norm}.weight", WIDTH)
    weights.matrix("output.weight", rows, WIDTH)


def _attention_keys(*, heads: int = HEADS, heads_kv: list[int] | None = None) -> dict[str, Any]:
    return {
        "embedding_length": WIDTH,
        "feed_forward_length": FEED,
        "attention.head_count": heads,
        "attention.head_count_kv": heads_kv or heads,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": WIDTH // heads,
    }


MAMBA_KEYS = {"ssm.conv_kernel": 4, "ssm.inner_size": 2 * WIDTH, "ssm.state_size": 16, "ssm.time_step_rank": 4}


def tiny_llama(
    path: Path,
    *,
    seed: int = 0,
    noise: float = 0.0,
    context: int = 512,
    vocabulary: Vocabulary | None = None,
    nan: bool = False,
    layers: int = 2,
    heads: int = HEADS,
    split: int = 0,
    idle: Sequence[int] = (),
) -> Path:
    """Attention only. `nan` poisons one weight matrix; a quantised cache wants `heads=2`, which makes them 32 wide.

    The layers `idle` add nothing to what they read.

    `split` > 0 writes parts of that many tensors; the first is returned.
    """
    vocabulary = vocabulary or byte_vocabulary()
    weights = Weights(seed, noise)
    _ends(weights, len(vocabulary))
    for i in range(layers):
        _attention(weights, f"blk.{i}")
        _feed_forward(weights, f"blk.{i}")
    if nan:
        weights.tensors["blk.0.ffn_down.weight"][:] = np.nan
    for i in idle:
        weights.tensors[f"blk.{i}.attn_output.weight"][:] = 0.0
        weights.tensors[f"blk.{i}.ffn_down.weight"][:] = 0.0
    keys = _attention_keys(heads=heads) | {"block_count": layers, "context_length": context}
    return write(path, "llama", keys, weights.tensors, vocabulary, split=split)


def tiny_qwen3(path: Path, *, seed: int = 0, noise: float = 0.0, context: int = 512, layers: int = 2) -> Path:
    """Attention only, with norms of the heads."""
    vocabulary, weights = byte_vocabulary(), Weights(seed, noise)
    _ends(weights, len(vocabulary))
    for block in (f"blk.{i}" for i in range(layers)):
        _attention(weights, block)
        _head_norms(weights, block)
        _feed_forward(weights, block)
    size = WIDTH // HEADS
    keys = _attention_keys() | {
        "block_count": layers,
        "context_length": context,
        "attention.key_length": size,
        "attention.value_length": size,
    }
    return write(path, "qwen3", keys, weights.tensors, vocabulary)


def tiny_swa(path: Path, *, seed: int = 0, noise: float = 0.0, context: int = 1024, window: int = 32) -> Path:
    """Gemma 3 with one layer that sees `window` tokens back and one that sees all."""
    vocabulary, weights = byte_vocabulary(), Weights(seed, noise)
    _ends(weights, len(vocabulary))
    for block in ("blk.0", "blk.1"):
        _attention(weights, block)
        _head_norms(weights, block)
        _feed_forward(weights, block)
        weights.norm(f"{block}.post_attention_norm.weight", WIDTH)
        weights.norm(f"{block}.post_ffw_norm.weight", WIDTH)
    size = WIDTH // HEADS
    keys = _attention_keys() | {
        "block_count": 2,
        "context_length": context,
        "attention.key_length": size,
        "attention.value_length": size,
        "attention.sliding_window": window,
        "attention.sliding_window_pattern": 2,
    }
    return write(path, "gemma3", keys, weights.tensors, vocabulary)


def tiny_mamba(path: Path, *, seed: int = 0, noise: float = 0.0, context: int = 512) -> Path:
    """Recurrent only: a tail can never be dropped, and llama.cpp keeps no snapshots for it."""
    vocabulary, weights = byte_vocabulary(), Weights(seed, noise)
    _ends(weights, len(vocabulary))
    for block in ("blk.0", "blk.1"):
        _mamba(weights, block, inner_norms=False)
    keys: dict[str, Any] = {"embedding_length": WIDTH, "feed_forward_length": 0, "attention.head_count": 0}
    keys |= MAMBA_KEYS | {"attention.layer_norm_rms_epsilon": 1e-5, "block_count": 2, "context_length": context}
    return write(path, "mamba", keys, weights.tensors, vocabulary)


def tiny_jamba(path: Path, *, seed: int = 0, noise: float = 0.0, context: int = 512) -> Path:
    """Hybrid without snapshots: a Mamba layer, then an attention layer."""
    vocabulary, weights = byte_vocabulary(), Weights(seed, noise)
    _ends(weights, len(vocabulary))
    _mamba(weights, "blk.0", inner_norms=True)
    _feed_forward(weights, "blk.0")
    _attention(weights, "blk.1")
    _feed_forward(weights, "blk.1")
    keys = _attention_keys(heads_kv=[0, HEADS]) | MAMBA_KEYS | {"block_count": 2, "context_length": context}
    return write(path, "jamba", keys, weights.tensors, vocabulary)


def tiny_lfm2(path: Path, *, seed: int = 0, noise: float = 0.0, context: int = 512, window: int = 0) -> Path:
    """Hybrid with snapshots (`n_rs_seq`): a short convolution, then attention, over a sliding `window` if not 0."""
    vocabulary, weights = byte_vocabulary(), Weights(seed, noise)
    _ends(weights, len(vocabulary), last_norm="token_embd_norm")
    _short_convolution(weights, "blk.0")
    _feed_forward(weights, "blk.0")
    _attention(weights, "blk.1")
    _head_norms(weights, "blk.1")
    _feed_forward(weights, "blk.1")
    keys = _attention_keys(heads_kv=[0, HEADS]) | {
        "block_count": 2,
        "context_length": context,
        "shortconv.l_cache": 3,
    }
    if window:
        keys["attention.sliding_window"] = window
    return write(path, "lfm2", keys, weights.tensors, vocabulary)


def script_model(
    path: Path,
    logits: Mapping[int, Mapping[int, float]],
    *,
    floor: float = -100.0,
    context: int = 512,
    vocabulary: Vocabulary | None = None,
) -> Path:
    """After token t the logits are `logits[t]`, and `floor` for the ids not named; tokens not named give all `floor`.

    One llama layer whose blocks add nothing, one-hot embeddings, and an output that reads the one off.
    """
    vocabulary = vocabulary or byte_vocabulary()
    size = len(vocabulary)
    width = math.ceil(size / 32) * 32
    embedding = np.zeros((size, width), dtype=np.float32)
    # The last norm scales a vector of mean square 1 by 1 - epsilon / 2, so the law comes out as written.
    embedding[np.arange(size), np.arange(size)] = math.sqrt(width)
    output = np.full((size, width), floor / math.sqrt(width), dtype=np.float32)
    for token, row in logits.items():
        for successor, logit in row.items():
            output[successor, token] = logit / math.sqrt(width)
    ones, square = np.ones(width, dtype=np.float32), np.zeros((width, width), dtype=np.float32)
    tensors = {"token_embd.weight": embedding, "output_norm.weight": ones, "output.weight": output}
    tensors |= {f"blk.0.{name}.weight": ones for name in ("attn_norm", "ffn_norm")}
    tensors |= {f"blk.0.attn_{name}.weight": square for name in ("q", "k", "v", "output")}
    tensors |= {f"blk.0.ffn_{name}.weight": square[:32] for name in ("gate", "up")}
    tensors |= {"blk.0.ffn_down.weight": square[:, :32]}
    keys = {
        "embedding_length": width,
        "feed_forward_length": 32,
        "attention.head_count": HEADS,
        "attention.head_count_kv": HEADS,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.dimension_count": width // HEADS,
        "block_count": 1,
        "context_length": context,
    }
    return write(path, "llama", keys, tensors, vocabulary)


def chain_model(path: Path, tokens: Sequence[int], **keys: Any) -> Path:
    """Says `tokens` one after the other, almost surely. All but the last must differ: a token has one successor."""
    assert len(set(tokens[:-1])) == len(tokens) - 1, "a token has one successor"
    steps = itertools.pairwise(tokens)
    return script_model(path, {token: {successor: 30.0} for token, successor in steps}, floor=0.0, **keys)


def write(
    path: Path,
    architecture: str,
    keys: Mapping[str, Any],
    tensors: Tensors,
    vocabulary: Vocabulary,
    *,
    split: int = 0,
) -> Path:
    """The GGUF file at `path`; `keys` get the architecture's name in front. Returns the (first) file."""
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=split)
    for key, value in keys.items():
        _add(writer, f"{architecture}.{key}", value)
    vocabulary.write(writer)
    for name, tensor in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(tensor, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path if not split else path.with_name(f"{path.stem}-00001-of-{-(-len(tensors) // split):05d}.gguf")


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, list):
        writer.add_array(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_uint32(key, value)
