"""Model files that cannot work: cut, empty, foreign, lying or unsupported. Each writer returns the path it wrote.

Knows the GGUF header (magic, version, tensor count, key count) and nothing of localspec; whole files are in `zoo.py`.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Literal

import gguf

from tests import zoo

HEADER = struct.Struct("<4sIQQ")
Place = Literal["header", "metadata", "tensor list", "data"]


def cut(path: Path, whole: Path, place: Place) -> Path:
    """The beginning of `whole`, up to the middle of `place`."""
    data = whole.read_bytes()
    reader = gguf.GGUFReader(whole)
    first_tensor = min(tensor.field.offset for tensor in reader.tensors)
    begin, end = {
        "header": (0, HEADER.size),
        "metadata": (HEADER.size, first_tensor),
        "tensor list": (first_tensor, reader.data_offset),
        "data": (reader.data_offset, len(data)),
    }[place]
    path.write_bytes(data[: (begin + end) // 2])
    return path


def empty(path: Path) -> Path:
    path.write_bytes(b"")
    return path


def web_page(path: Path) -> Path:
    """What a mirror or a login wall sends instead of the model."""
    path.write_text("<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body>401</body></html>\n")
    return path


def old_magic(path: Path) -> Path:
    """A file of the format before GGUF."""
    path.write_bytes(b"tjgg" + struct.pack("<I", 3) + bytes(64))
    return path


def version(path: Path, whole: Path, number: int = 99) -> Path:
    """`whole`, said to be of another version of the format."""
    return _with_header(path, whole, version=number)


def huge_counts(path: Path, whole: Path) -> Path:
    """`whole`, said to hold 2**40 tensors and 2**40 keys."""
    return _with_header(path, whole, tensors=2**40, keys=2**40)


def unknown_architecture(path: Path, name: str = "zzzzz") -> Path:
    """A sound file for a model that llama.cpp does not know."""
    vocabulary = zoo.byte_vocabulary()
    weights = zoo.Weights(0)
    weights.matrix("token_embd.weight", len(vocabulary), zoo.WIDTH)
    return zoo.write(path, name, {"block_count": 1}, weights.tensors, vocabulary)


def projector(path: Path) -> Path:
    """The picture half of a vision model: no text model at all."""
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type("mmproj")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", "mlp")
    weights = zoo.Weights(0)
    weights.matrix("mm.0.weight", 8, 8)
    writer.add_tensor("mm.0.weight", weights.tensors["mm.0.weight"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def split_pair(folder: Path) -> tuple[Path, Path]:
    """A sound model in two parts, named as split files are; remove or exchange them to make a wreck."""
    first = zoo.tiny_llama(folder / "tiny.gguf", split=12)
    return first, first.with_name("tiny-00002-of-00002.gguf")


def joined(path: Path, parts: tuple[Path, ...]) -> Path:
    """The parts of a split model put together by hand, as if they were pieces of one file."""
    with path.open("wb") as file:
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, file)
    return path


def _with_header(
    path: Path, whole: Path, *, version: int | None = None, tensors: int | None = None, keys: int | None = None
) -> Path:
    data = bytearray(whole.read_bytes())
    magic, old_version, old_tensors, old_keys = HEADER.unpack_from(data)
    HEADER.pack_into(data, 0, magic, version or old_version, tensors or old_tensors, keys or old_keys)
    path.write_bytes(data)
    return path
