"""Reading the head of a GGUF file without trusting a byte of it.

Tells apart what llama.cpp answers with NULL or an abort: empty, foreign, too old, cut in the header, in the metadata or
in the tensor data, absurd counts. Every length is compared with what the file holds before anything is allocated, so a
hostile file costs neither memory nor time. Knows the container, not what a model is; see `modelfile`.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

from localspec.catalog.quantisation import TENSOR_TYPES, tensor_bytes
from localspec.errors import ModelFileError

Scalar = int | float | bool | str

FETCH_AGAIN = "Fetch the file again: the download was not complete."

# Far above any real file, far below what would hurt.
MOST_KEYS = 1 << 16
MOST_TENSORS = 1 << 20
MOST_TEXTS = 1 << 22
LONGEST_TEXT = 1 << 16  # of a text that is kept; a chat template is longer and only its presence is of interest
MOST_BYTES = 1 << 50

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_TEXT, _ARRAY = 8, 9
_SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}


@dataclass(frozen=True)
class Raw:
    """A value as it stands in a file, its type in front: for copying it into another file."""

    bytes: bytes


@dataclass(frozen=True)
class TensorInfo:
    """Where a tensor lies. shape as ggml counts, fastest first; kind as in `TENSOR_TYPES`; size None: unknown kind."""

    shape: tuple[int, ...]
    kind: int
    offset: int
    size: int | None

    @property
    def type_name(self) -> str:
        return TENSOR_TYPES[self.kind][0] if self.kind in TENSOR_TYPES else f"type {self.kind}"


@dataclass(frozen=True)
class Header:
    """What the head of one GGUF file says.

    values        scalars and texts (the first 64 kB of each)
    lengths       key -> length, of every array
    texts         key -> bytes of each text, for the arrays that were asked for
    numbers       key -> numbers, likewise
    spans         key -> where its value stands in the file, type included
    tensors       how many
    table         name -> where it lies
    weight_bytes  type name -> bytes in tensors of that type
    needed        bytes that the tensors need the file to have
    size          bytes it has
    """

    version: int
    values: dict[str, Scalar] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)
    texts: dict[str, list[bytes]] = field(default_factory=dict)
    numbers: dict[str, list[int | float]] = field(default_factory=dict)
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)
    tensors: int = 0
    table: dict[str, TensorInfo] = field(default_factory=dict)
    weight_bytes: dict[str, int] = field(default_factory=dict)
    needed: int = 0
    size: int = 0

    def text(self, key: str) -> str:
        """A text value, empty when it is missing or something else."""
        value = self.values.get(key, "")
        return value if isinstance(value, str) else ""

    def number(self, key: str) -> int | None:
        """A whole number, None when it is missing or something else."""
        value = self.values.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


def read_header(path: Path, *, arrays: Collection[str] = ()) -> Header:
    """The header of `path`, with the contents of the named `arrays`; `ModelFileError` says what is wrong with it."""
    try:
        if path.is_fifo():  # opening it would wait for somebody to write
            raise ModelFileError(f"{path} is a pipe, not a file.", hint="Name the .gguf file itself.")
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size == 0:
                raise ModelFileError(f"{path} is empty (0 bytes).", hint=FETCH_AGAIN)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Reader(path, data, size, arrays).header()
    except FileNotFoundError:
        raise ModelFileError(f"There is no file {path}.", hint="Check the path.") from None
    except IsADirectoryError:
        raise ModelFileError(f"{path} is a folder.", hint="Name the .gguf file inside it.") from None
    except OSError as error:
        raise ModelFileError(
            f"{path} cannot be read: {error.strerror or error}.", hint="Check its permissions."
        ) from error


def raw_values(path: Path, prefix: str) -> dict[str, Raw]:
    """The values of all keys that begin with `prefix`, byte for byte."""
    spans = read_header(path).spans
    with path.open("rb") as file:
        found = {}
        for key, (start, end) in spans.items():
            if key.startswith(prefix):
                file.seek(start)
                found[key] = Raw(file.read(end - start))
    return found


class _Reader:
    """A place in the bytes of one file that only moves forward, never past the end."""

    def __init__(self, path: Path, data: mmap.mmap, size: int, arrays: Collection[str]) -> None:
        self._path = path
        self._data = data
        self._size = size
        self._wanted = arrays
        self._at = 0

    def header(self) -> Header:
        self._check_magic()
        version = self._check_version()
        tensors = self._count("tensors", MOST_TENSORS, smallest=24)
        keys = self._count("metadata keys", MOST_KEYS, smallest=13)
        header = Header(version, size=self._size)
        for _ in range(keys):
            self._read_entry(header)
        needed, weight_bytes, table = self._read_tensors(tensors, self._alignment(header))
        if needed > self._size:
            raise ModelFileError(
                f"{self._path} is cut short: its tensors need {needed:,} bytes, the file has {self._size:,}.",
                hint=FETCH_AGAIN,
            )
        return Header(
            version=version,
            values=header.values,
            lengths=header.lengths,
            texts=header.texts,
            numbers=header.numbers,
            spans=header.spans,
            tensors=tensors,
            table=table,
            weight_bytes=weight_bytes,
            needed=needed,
            size=self._size,
        )

    # --- the first bytes ---

    def _check_magic(self) -> None:
        start = self._data[:4]
        if start == b"GGUF":
            self._at = 4
            return
        if start and b"GGUF".startswith(start):
            raise self._cut("header")
        head = bytes(self._data[:64])
        raise ModelFileError(
            f"{self._path} is not a GGUF file: it begins with {_shown(head)}{_guess(head)}.", hint=_remedy(head)
        )

    def _check_version(self) -> int:
        version = self._u32("header")
        if version in (2, 3):
            return version
        if version and version & 0xFFFF == 0:
            raise ModelFileError(
                f"{self._path} is a big-endian GGUF file.", hint="Fetch or convert a little-endian file of the model."
            )
        raise ModelFileError(
            f"{self._path} has GGUF version {version}; versions 2 and 3 are supported.",
            hint="Fetch a newer file of the model." if version < 2 else "Update localspec and llama-cpp-python.",
        )

    # --- metadata ---

    def _read_entry(self, header: Header) -> None:
        key = self._text("metadata").decode("utf-8", "replace")
        start = self._at
        kind = self._u32("metadata")
        if kind in _SCALARS:
            header.values[key] = self._scalar(kind)
        elif kind == _TEXT:
            header.values[key] = self._text("metadata").decode("utf-8", "replace")
        elif kind == _ARRAY:
            self._read_array(header, key)
        else:
            raise self._damaged(f"the key {key[:80]!r} has the unknown type {kind}")
        header.spans[key] = (start, self._at)

    def _read_array(self, header: Header, key: str) -> None:
        kind = self._u32("metadata")
        if kind in _SCALARS:
            each = _SCALARS[kind]
            length = self._count("elements of an array", MOST_BYTES, smallest=each.size)
            if key in self._wanted:
                block = self._data[self._at : self._at + length * each.size]
                header.numbers[key] = [value for (value,) in each.iter_unpack(block)]
            self._at += length * each.size
        elif kind == _TEXT:
            length = self._count("texts of an array", MOST_TEXTS, smallest=8)
            texts = self._texts(length, keep=key in self._wanted)
            if key in self._wanted:
                header.texts[key] = texts
        else:
            raise self._damaged(f"the array {key[:80]!r} has elements of the unknown type {kind}")
        header.lengths[key] = length

    def _texts(self, length: int, *, keep: bool) -> list[bytes]:
        """The hot loop: a vocabulary has hundreds of thousands of these."""
        data, at, end, unpack = self._data, self._at, self._size, _U64.unpack_from
        texts: list[bytes] = []
        for _ in range(length):
            if at + 8 > end:
                raise self._cut("metadata")
            (count,) = unpack(data, at)
            at += 8 + count
            if at > end:
                raise self._cut("metadata")
            if keep:
                texts.append(data[at - count : at])
        self._at = at
        return texts

    def _alignment(self, header: Header) -> int:
        alignment = header.number("general.alignment")
        if alignment is None:
            return 32
        if alignment < 1 or alignment > 1 << 20 or alignment & (alignment - 1):
            raise self._damaged(f"the alignment {alignment} is no power of two")
        return alignment

    # --- tensors ---

    def _read_tensors(self, tensors: int, alignment: int) -> tuple[int, dict[str, int], dict[str, TensorInfo]]:
        """Bytes the file must have, bytes by type, and where each tensor lies."""
        furthest, by_type, found = 0, dict[str, int](), dict[str, TensorInfo]()
        for _ in range(tensors):
            name = self._text("list of tensors").decode("utf-8", "replace")
            dimensions = self._u32("list of tensors")
            if dimensions > 4:
                raise self._damaged(f"the tensor {name[:80]!r} has {dimensions} dimensions")
            shape = tuple(self._u64("list of tensors") for _ in range(dimensions))
            kind, offset = self._u32("list of tensors"), self._u64("list of tensors")
            size = tensor_bytes(kind, math.prod(shape))
            if max(offset, size or 0) > MOST_BYTES:
                raise self._damaged(f"the tensor {name[:80]!r} claims {size or 0:,} bytes at {offset:,}")
            furthest = max(furthest, offset + (size or 0))
            found[name] = TensorInfo(shape, kind, offset, size)
            if size is not None:
                by_type[found[name].type_name] = by_type.get(found[name].type_name, 0) + size
        start = -(-self._at // alignment) * alignment
        table = {name: replace(info, offset=start + info.offset) for name, info in found.items()}
        return (start + furthest if tensors else self._at), by_type, table

    # --- pieces ---

    def _take(self, form: struct.Struct, where: str) -> Scalar:
        if self._at + form.size > self._size:
            raise self._cut(where)
        (value,) = form.unpack_from(self._data, self._at)
        self._at += form.size
        return value  # type: ignore[no-any-return]

    def _u32(self, where: str) -> int:
        return int(self._take(_U32, where))

    def _u64(self, where: str) -> int:
        return int(self._take(_U64, where))

    def _scalar(self, kind: int) -> Scalar:
        return self._take(_SCALARS[kind], "metadata")

    def _text(self, where: str) -> bytes:
        length = self._u64(where)
        if length > self._size - self._at:
            raise self._cut(where)
        text = self._data[self._at : self._at + min(length, LONGEST_TEXT)]
        self._at += length
        return text

    def _count(self, what: str, most: int, *, smallest: int) -> int:
        """A count of things of at least `smallest` bytes that all have to fit into the rest of the file."""
        count = self._u64("header")
        if count > most:
            raise self._damaged(f"it claims {count:,} {what}")
        if count * smallest > self._size - self._at:
            raise self._cut("metadata")
        return count

    def _cut(self, where: str) -> ModelFileError:
        return ModelFileError(
            f"{self._path} is cut short: its {where} ends in the middle, after {self._size:,} bytes.", hint=FETCH_AGAIN
        )

    def _damaged(self, why: str) -> ModelFileError:
        return ModelFileError(f"{self._path} is damaged: {why}.", hint="Fetch the file again, or another copy of it.")


# What people really end up with in a file called .gguf: first bytes, what it looks like, what to do.
_FOREIGN: tuple[tuple[bytes, str, str], ...] = (
    (b"<", "a web page", "The address leads to a page, not to the file: use the link of its download button."),
    (b"version https://git-lfs", "a Git LFS pointer", "Fetch the file itself: `git lfs pull`, or an hf: reference."),
    (b"lmgg", "a model of the old ggml format", "Fetch a GGUF of the model."),
    (b"fmgg", "a model of the old ggmf format", "Fetch a GGUF of the model."),
    (b"tjgg", "a model of the old ggjt format", "Fetch a GGUF of the model."),
    (b"algg", "an adapter of the old ggla format", "Fetch a GGUF of the model."),
    (b"PK\x03\x04", "a zip archive (PyTorch weights, perhaps)", "Fetch a GGUF of the model."),
    (b"\x1f\x8b", "a gzip archive", "Unpack it."),
    (b"{", "a JSON answer of a server", "Fetch the file again and look at what the server says."),
)


def _foreign(head: bytes) -> tuple[str, str]:
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    for first, what, remedy in _FOREIGN:
        if start.startswith(first):
            return what, remedy
    if head[8:10] == b'{"':
        return "a safetensors file", "Convert it with llama.cpp's convert_hf_to_gguf.py, or fetch a GGUF of the model."
    if head and not head.strip(b"\0"):
        return "a file whose room was reserved but never written", FETCH_AGAIN
    return "", "Fetch a GGUF of the model."


def _guess(head: bytes) -> str:
    what, _ = _foreign(head)
    return f" and looks like {what}" if what else ""


def _remedy(head: bytes) -> str:
    return _foreign(head)[1]


def _shown(head: bytes) -> str:
    """The first bytes as text where they are text, in hexadecimal otherwise."""
    start = head[:16]
    if all(32 <= byte < 127 or byte in b"\t\r\n" for byte in start):
        return repr(start.decode("ascii"))
    return start[:8].hex(" ")
