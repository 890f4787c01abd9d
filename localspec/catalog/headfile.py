"""Files of Medusa and EAGLE-1 heads, as docs/heads.md lays them out: checked down to every shape before ggml sees them.

Also finds the verifier's own tensors that heads borrow (embedding, output). Knows files, not how a head computes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from localspec.catalog.fingerprint import Fingerprint, read_fingerprint
from localspec.catalog.gguf import Header, TensorInfo, read_header
from localspec.catalog.modelfile import ModelFile
from localspec.catalog.quantisation import TENSOR_TYPES
from localspec.errors import ModelFileError, PairError

ARCHITECTURE = "localspec-head"
VERSION = 1
KEY = "localspec.head"
CONVERT = "Convert or train the head again: docs/heads.md lists what it must hold."
MOST_HEADS, MOST_BLOCKS = 16, 8
_F32, _I64 = 0, 27
_DIVIDING = {"granite", "granitemoe", "granitehybrid", "minicpm"}  # by the logit scale, where others multiply
_NO_WEIGHTS = {15, 24, 25, 26, 27, 28}  # Q8_K, which only products are made with, integers, doubles


@dataclass(frozen=True)
class Medusa:
    """heads, blocks: residual blocks of each. tree: places of its static tree, best first, () when it names none."""

    heads: int
    blocks: int
    tree: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Eagle1:
    """The sizes of its decoder layer. size: of one attention head; neox: rotary positions over halves."""

    feed_forward: int
    heads: int
    heads_kv: int
    size: int
    epsilon: float
    rope_base: float
    neox: bool


@dataclass(frozen=True)
class HeadFile:
    """A checked head. known: ids of its output, None: all of the verifier's; table: where its tensors lie."""

    path: Path
    kind: str
    width: int
    verifier: Fingerprint
    form: Medusa | Eagle1
    table: Mapping[str, TensorInfo]
    known: npt.NDArray[np.int64] | None

    def bytes_of(self, name: str) -> npt.NDArray[np.uint8]:
        """A tensor as it stands in the file, mapped."""
        return mapped(self.path, self.table[name])


def mapped(path: Path, info: TensorInfo) -> npt.NDArray[np.uint8]:
    """The bytes of a tensor, read from the disk when they are looked at."""
    return np.memmap(path, dtype=np.uint8, mode="r", offset=info.offset, shape=(info.size or 0,))


def read_headfile(path: Path) -> HeadFile:
    """Check a head; `ModelFileError` says in one sentence what it lacks."""
    return _Reader(path, read_header(path)).read()


class _Reader:
    def __init__(self, path: Path, header: Header) -> None:
        self._path = path
        self._header = header

    def read(self) -> HeadFile:
        header, path = self._header, self._path
        if header.text("general.architecture") != ARCHITECTURE:
            what = header.text("general.architecture") or "of no known kind"
            raise ModelFileError(f"{path} is no Medusa or EAGLE-1 head but {what}.", hint="Name the head with --draft.")
        kind, version = header.text(f"{KEY}.kind"), header.number(f"{KEY}.version")
        if version != VERSION or kind not in ("medusa", "eagle1"):
            raise ModelFileError(
                f"{path} holds a head of kind {kind or 'unknown'}, version {version}; this localspec knows medusa and "
                f"eagle1, version {VERSION}.",
                hint="Update localspec, or convert the head again.",
            )
        verifier = read_fingerprint(header)
        if verifier is None:
            raise ModelFileError(f"{path} does not say which verifier it is for.", hint=CONVERT)
        width = self._size("width", 1 << 20)
        if width != verifier.width:
            raise ModelFileError(f"{path} is {width} wide, the verifier that it names {verifier.width}.", hint=CONVERT)
        form = self._medusa() if kind == "medusa" else self._eagle1()
        known = self._known(verifier.vocab_size)
        rows = verifier.vocab_size if known is None else len(known)
        if isinstance(form, Medusa):
            self._check_medusa(form, width, rows)
        else:
            self._check_eagle1(form, width, rows, verifier.vocab_size)
        return HeadFile(path, kind, width, verifier, form, header.table, known)

    # -- numbers --

    def _size(self, name: str, most: int) -> int:
        value = self._header.number(f"{KEY}.{name}")
        if value is None or not 1 <= value <= most:
            shown = "is missing" if value is None else f"is {value}, not within 1 .. {most}"
            raise ModelFileError(f"{self._path}: the key {KEY}.{name} {shown}.", hint=CONVERT)
        return value

    def _positive(self, name: str) -> float:
        value = self._header.values.get(f"{KEY}.{name}")
        if not isinstance(value, float) or not 0.0 < value < math.inf:
            raise ModelFileError(f"{self._path}: the key {KEY}.{name} is no positive number.", hint=CONVERT)
        return value

    def _medusa(self) -> Medusa:
        return Medusa(self._size("heads", MOST_HEADS), self._size("blocks", MOST_BLOCKS), self._tree())

    def _tree(self) -> tuple[tuple[int, ...], ...]:
        text = self._header.text(f"{KEY}.tree")
        if not text:
            return ()
        try:
            return tuple(tuple(int(rank) for rank in place) for place in json.loads(text))
        except (ValueError, TypeError, OverflowError, RecursionError):
            raise ModelFileError(
                f"{self._path}: the key {KEY}.tree does not list places like [[0], [0, 0], [1]].", hint=CONVERT
            ) from None

    def _eagle1(self) -> Eagle1:
        form = Eagle1(
            feed_forward=self._size("feed_forward", 1 << 20),
            heads=self._size("attention.heads", 1024),
            heads_kv=self._size("attention.heads_kv", 1024),
            size=self._size("attention.key_length", 1024),
            epsilon=self._positive("norm_epsilon"),
            rope_base=self._positive("rope.base"),
            neox=self._header.text(f"{KEY}.rope.type") in ("", "neox"),
        )
        if self._header.text(f"{KEY}.rope.type") not in ("", "neox", "norm"):
            raise ModelFileError(f"{self._path}: the key {KEY}.rope.type is neither neox nor norm.", hint=CONVERT)
        if form.heads % form.heads_kv or form.size % 2:
            raise ModelFileError(
                f"{self._path}: {form.heads} attention heads of size {form.size} cannot share {form.heads_kv} keys.",
                hint=CONVERT,
            )
        return form

    # -- tensors --

    def _known(self, vocab_size: int) -> npt.NDArray[np.int64] | None:
        """The reduced vocabulary, checked: distinct ids of the verifier."""
        info = self._header.table.get("d2t")
        if info is None:
            return None
        if info.kind != _I64 or len(info.shape) != 1:
            raise ModelFileError(f"{self._path}: the tensor d2t is no list of I64 ids.", hint=CONVERT)
        known = np.array(mapped(self._path, info).view(np.int64))
        if not len(known) or known.min() < 0 or known.max() >= vocab_size or len(np.unique(known)) < len(known):
            raise ModelFileError(
                f"{self._path}: the tensor d2t does not list distinct ids below {vocab_size}.", hint=CONVERT
            )
        return known

    def _check_medusa(self, form: Medusa, width: int, rows: int) -> None:
        for head in range(form.heads):
            for block in range(form.blocks):
                self._check(f"head.{head}.{block}.weight", (width, width))
                self._check(f"head.{head}.{block}.bias", (width,))
        own = [f"head.{head}.output.weight" for head in range(form.heads)]
        if any(name in self._header.table for name in own):
            for name in own:
                self._check(name, (width, rows))
        elif "output.weight" in self._header.table:
            self._check("output.weight", (width, rows))

    def _check_eagle1(self, form: Eagle1, width: int, rows: int, vocab_size: int) -> None:
        inner, shared = form.heads * form.size, form.heads_kv * form.size
        self._check("fc.weight", (2 * width, width))
        for name, sizes in (
            ("attn_q.weight", (width, inner)),
            ("attn_k.weight", (width, shared)),
            ("attn_v.weight", (width, shared)),
            ("attn_output.weight", (inner, width)),
            ("ffn_norm.weight", (width,)),
            ("ffn_gate.weight", (width, form.feed_forward)),
            ("ffn_up.weight", (width, form.feed_forward)),
            ("ffn_down.weight", (form.feed_forward, width)),
        ):
            self._check(f"blk.0.{name}", sizes)
        for name, sizes in (
            ("fc.bias", (width,)),
            ("blk.0.attn_norm.weight", (width,)),
            ("blk.0.attn_q.bias", (inner,)),
            ("blk.0.attn_k.bias", (shared,)),
            ("blk.0.attn_v.bias", (shared,)),
            ("output_norm.weight", (width,)),
            ("output.weight", (width, rows)),
            ("token_embd.weight", (width, vocab_size)),
        ):
            if name in self._header.table:
                self._check(name, sizes)

    def _check(self, name: str, shape: tuple[int, ...]) -> None:
        """A tensor of this shape (as ggml counts) that ggml can multiply with; vectors are F32."""
        info = self._header.table.get(name)
        if info is None:
            raise ModelFileError(f"{self._path} lacks the tensor {name}.", hint=CONVERT)
        if info.shape != shape:
            raise ModelFileError(
                f"{self._path}: the tensor {name} has the shape {_times(info.shape)}, not {_times(shape)}.",
                hint=CONVERT,
            )
        if (len(shape) == 1 and info.kind != _F32) or not is_weight(info):
            raise ModelFileError(
                f"{self._path}: the tensor {name} is {info.type_name}, which cannot be used there.", hint=CONVERT
            )


def is_weight(info: TensorInfo) -> bool:
    """True when ggml can multiply with it: a float or block type whose blocks fit its rows."""
    return (
        info.kind in TENSOR_TYPES and info.kind not in _NO_WEIGHTS and info.shape[0] % TENSOR_TYPES[info.kind][1] == 0
    )


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


@dataclass(frozen=True)
class Borrowed:
    """A tensor of the verifier's files."""

    path: Path
    info: TensorInfo

    def bytes(self) -> npt.NDArray[np.uint8]:
        """As it stands in the file, mapped."""
        return mapped(self.path, self.info)


@dataclass(frozen=True)
class VerifierEnds:
    """What heads borrow of a verifier: its token embedding, its output (the embedding when they are tied), and how
    logits are made of the output's product.
    """

    embedding: Borrowed
    output: Borrowed
    bias: Borrowed | None
    scale: float
    softcap: float


def verifier_ends(model: ModelFile) -> VerifierEnds:
    """Raises `PairError` when the files have no such tensors, or of types that are not known here."""
    found: dict[str, Borrowed] = {}
    header: Header | None = None
    for part in model.parts:
        read = read_header(part)
        header = header or read
        for name in ("token_embd.weight", "output.weight", "output.bias"):
            if name in read.table:
                found[name] = Borrowed(part, read.table[name])
    embedding = found.get("token_embd.weight")
    output = found.get("output.weight", embedding)
    bias = found.get("output.bias")
    if header is None or embedding is None or output is None:
        raise PairError(f"{model.path} has no token embedding that a head could use.", hint="Choose another drafter.")
    for one in (embedding, output, *([bias] if bias else [])):
        if not is_weight(one.info) or (one is bias and one.info.kind != _F32):
            raise PairError(
                f"The embedding or output of {model.path} is {one.info.type_name}, which heads cannot borrow.",
                hint="Choose a head with an output of its own, or another drafter.",
            )
    scale = _positive(header, f"{model.architecture}.logit_scale") or 1.0
    return VerifierEnds(
        embedding,
        output,
        bias,
        scale=1.0 / scale if model.architecture in _DIVIDING else scale,
        softcap=_positive(header, f"{model.architecture}.final_logit_softcapping"),
    )


def _positive(header: Header, key: str) -> float:
    value = header.values.get(key)
    return value if isinstance(value, float) and 0.0 < value < math.inf else 0.0
