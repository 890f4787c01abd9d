"""What training exports: read back by our reader, by the `gguf` package and by llama.cpp's rounding rules."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from localspec.catalog.gguf import Raw, raw_values, read_header
from localspec.catalog.ggufwriter import Value, encode, write_gguf
from tests import zoo

KEYS: dict[str, Value] = {
    "general.architecture": "localspec-head",
    "a.number": 7,
    "a.flag": True,
    "a.share": 0.25,
    "a.list": [1, -2, 3],
    "some.texts": ["one", "zwei", ""],
    "some.shares": [0.5, 1.5],
}


def test_the_package_reads_what_was_written(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    tensors = {kind: encode(values, kind) for kind in ("F32", "F16", "Q8_0", "Q4_0")}
    tensors["d2t"] = encode(np.array([5, 2**40]), "I64")
    write_gguf(tmp_path / "a.gguf", KEYS, tensors)
    reader = gguf.GGUFReader(tmp_path / "a.gguf")
    found = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    assert found == KEYS
    by_name = {tensor.name: tensor for tensor in reader.tensors}
    for name, tensor in by_name.items():
        assert tensor.tensor_type.name == ("I64" if name == "d2t" else name)
        assert tensor.data_offset % 32 == 0
    assert by_name["d2t"].data.tolist() == [5, 2**40]
    assert np.array_equal(by_name["F32"].data, values)
    assert by_name["Q4_0"].shape.tolist() == [64, 3]


@pytest.mark.parametrize("kind", ["F16", "Q8_0", "Q4_0"])
def test_weights_are_rounded_as_the_package_rounds_them(kind: str) -> None:
    values = np.random.default_rng(1).standard_normal((5, 96)).astype(np.float32)
    values[0, :32] = 0.0  # a block without a scale
    values[1, 3] = -40.0
    wanted = gguf.quantize(values, gguf.GGMLQuantizationType[kind])
    assert encode(values, kind).data == wanted.tobytes()


def test_rows_that_no_block_fits_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple of 32"):
        encode(np.zeros((2, 40)), "Q8_0")


def test_a_tokenizer_is_copied_byte_for_byte(tmp_path: Path) -> None:
    model = zoo.tiny_llama(tmp_path / "model.gguf")
    copied = raw_values(model, "tokenizer.")
    assert "tokenizer.ggml.tokens" in copied
    assert all(isinstance(value, Raw) for value in copied.values())
    write_gguf(tmp_path / "copy.gguf", {"general.architecture": "x", **copied}, {})
    assert raw_values(tmp_path / "copy.gguf", "tokenizer.") == copied
    fields = [gguf.GGUFReader(path).fields for path in (model, tmp_path / "copy.gguf")]
    for key in copied:
        assert fields[0][key].contents() == fields[1][key].contents()


def test_where_tensors_lie(tmp_path: Path) -> None:
    model = zoo.tiny_llama(tmp_path / "model.gguf")
    table = read_header(model).table
    for tensor in gguf.GGUFReader(model).tensors:
        info = table[tensor.name]
        assert info.shape == tuple(tensor.shape.tolist())
        assert (info.offset, info.size) == (tensor.data_offset, tensor.n_bytes)
        assert info.type_name == tensor.tensor_type.name


def test_nothing_is_left_of_a_file_that_could_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").mkdir()
    with pytest.raises(OSError, match=r"a\.gguf"):
        write_gguf(tmp_path / "a.gguf", KEYS, {})
    assert [path.name for path in tmp_path.iterdir()] == ["a.gguf"]
