"""Files of tensors that are damaged, foreign or hostile: a sentence, and nothing in them is run."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from localspec.catalog import safetensors, torchfile
from localspec.catalog.checkpoint import Checkpoint
from localspec.errors import ModelFileError
from tests import checkpoints

ONE: dict[str, checkpoints.Array] = {
    "one": np.arange(12, dtype=np.float32).reshape(3, 4),
    "ids": np.arange(3, dtype=np.int64),
}


def with_header(path: Path, header: object) -> Path:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(48))
    return path


def test_both_formats_give_the_same_numbers(tmp_path: Path) -> None:
    for path in (
        checkpoints.safetensors(tmp_path / "a.safetensors", ONE),
        checkpoints.torch_file(tmp_path / "a.pt", ONE),
    ):
        found = Checkpoint.open(path)
        np.testing.assert_array_equal(found.matrix("one"), ONE["one"])
        np.testing.assert_array_equal(found.numbers("ids"), ONE["ids"])


def entry(**changes: object) -> dict[str, object]:
    return {"a": {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]} | changes}


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (entry(data_offsets=[0, 4800]), "cut short"),
        (entry(data_offsets=[8, 4]), "makes no sense"),
        (entry(data_offsets=[-8, 40]), "makes no sense"),
        (entry(shape=[3, -4]), "makes no sense"),
        (entry(shape=[1 << 40, 1 << 40]), "another size"),
        (entry(shape="3x4"), "cannot be understood"),
        ({"a": 3}, "cannot be understood"),
        ([1, 2], "no JSON object"),
    ],
)
def test_headers_that_lie(tmp_path: Path, header: object, words: str) -> None:
    with pytest.raises(ModelFileError, match=words):
        safetensors.read_tensors(with_header(tmp_path / "a.safetensors", header))


@pytest.mark.parametrize(
    ("data", "words"),
    [(b"", "does not begin"), (b"\xff" * 64, "does not begin"), (struct.pack("<Q", 9) + b"not json!", "no JSON")],
)
def test_no_safetensors_at_all(tmp_path: Path, data: bytes, words: str) -> None:
    (tmp_path / "a.safetensors").write_bytes(data)
    with pytest.raises(ModelFileError, match=words):
        safetensors.read_tensors(tmp_path / "a.safetensors")


def test_a_type_without_numbers_here(tmp_path: Path) -> None:
    path = with_header(tmp_path / "a.safetensors", entry(dtype="F8_E4M3", data_offsets=[0, 12]))
    with pytest.raises(ModelFileError, match="F8_E4M3"):
        safetensors.read_tensors(path)["a"].read()


HOSTILE = b"X\x04\x00\x00\x00evilcos\nsystem\n(X\x0e\x00\x00\x00touch pwned.txttRs"


@pytest.mark.parametrize("attack", [HOSTILE, HOSTILE.replace(b"cos\nsystem", b"cbuiltins\neval")])
def test_a_pickle_that_calls_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attack: bytes) -> None:
    monkeypatch.chdir(tmp_path)
    path = checkpoints.torch_file(tmp_path / "evil.pt", ONE, extra=attack)
    with pytest.raises(ModelFileError, match="which may be code"):
        torchfile.read_tensors(path)
    assert not (tmp_path / "pwned.txt").exists()


def damaged(change: Callable[[bytes], bytes]) -> Callable[[Path], Path]:
    def write(path: Path) -> Path:
        whole = checkpoints.torch_file(path, ONE).read_bytes()
        path.write_bytes(change(whole))
        return path

    return write


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (damaged(lambda data: data[:300]), "torch.s zip format"),
        (damaged(lambda data: data.replace(b"J\x0c\x00\x00\x00tQ", b"J\x0b\x00\x00\x00tQ")), "beyond its storage"),
        (damaged(lambda data: data.replace(b"J\x0c\x00\x00\x00tQ", b"J\xff\xff\xff\x7ftQ")), "cut short"),
        (lambda path: checkpoints.torch_file(path, ONE, compress=True), "is compressed"),
    ],
)  # fmt: skip
def test_torch_files_that_lie(
    tmp_path: Path, write: Callable[[Path], Path], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A changed byte must be seen by us, not by the checksum of the archive.
    monkeypatch.setattr("zipfile.ZipExtFile._update_crc", lambda self, data: None)
    path = write(tmp_path / "a.pt")
    with pytest.raises(ModelFileError, match=words):
        torchfile.read_tensors(path)["one"].read()
