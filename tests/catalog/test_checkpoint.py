"""Files of tensors that are damaged, foreign or hostile: a sentence, and nothing in them is run."""

from __future__ import annotations

import json
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from localspec.catalog import safetensors, torchfile
from localspec.catalog.checkpoint import Checkpoint
from localspec.errors import ModelFileError, UsageError
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
    [
        (b"", "does not begin"),
        (b"\xff" * 64, "does not begin"),
        (struct.pack("<Q", 100_000) + b"[" * 100_000, "no JSON"),
        (struct.pack("<Q", 9) + b"not json!", "no JSON"),
    ],
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


# An archive says of each member, in its directory, how it is packed and whether it is encrypted.
DIRECTORY = b"PK\x01\x02"


def relabelled(flag: int, method: int) -> Callable[[bytes], bytes]:
    """The members of one, said to be encrypted or packed in another way."""

    def change(data: bytes) -> bytes:
        changed = bytearray(data)
        for start, flags in ((DIRECTORY, 8), (b"PK\x03\x04", 6)):
            at = changed.find(start)
            while at >= 0:
                name = changed[at + (46 if flags == 8 else 30) :]
                if b"/data/" in name[:20]:
                    struct.pack_into("<HH", changed, at + flags, flag, method)
                at = changed.find(start, at + 1)
        return bytes(changed)

    return change


@pytest.mark.parametrize(("flag", "method"), [(1, 0), (0, 8), (0, 99)], ids=["encrypted", "packed", "unknown"])
def test_members_that_cannot_be_unpacked(tmp_path: Path, flag: int, method: int) -> None:
    """zipfile raises RuntimeError, zlib.error and NotImplementedError for these: each was a traceback."""
    path = damaged(relabelled(flag, method))(tmp_path / "a.pt")
    with pytest.raises(ModelFileError, match=r"cannot be read: .*data/0 is missing or damaged") as told:
        torchfile.read_tensors(path)["one"].read()
    assert told.value.hint


def zipped(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(f"archive/{name.replace('_', '.')}", data)
    return path


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"readme": b""}, "not one that torch.save writes"),
        ({"data_pkl": b"}.", "byteorder": b"big"}, "its numbers are big-endian"),
        ({"data_pkl": b""}, r"its list of tensors is damaged \(EOFError\)"),
        ({"data_pkl": pickle.dumps([1, 2], 2)}, "it holds no dictionary of tensors"),
        ({"data_pkl": pickle.dumps({"state_dict": 3}, 2)}, "it holds no dictionary of tensors"),
        ({"data_pkl": b"(X\x07\x00\x00\x00storageX\x01\x00\x00\x00cX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01tQ."},
         "a storage has no type that is known"),
        ({"data_pkl": b"ctorch._utils\n_rebuild_tensor_v2\n(K\x01K\x00))tR."}, "described in a way that is not known"),
    ],
)  # fmt: skip
def test_lists_of_tensors_that_are_none(tmp_path: Path, members: dict[str, bytes], words: str) -> None:
    with pytest.raises(ModelFileError, match=words) as told:
        torchfile.read_tensors(zipped(tmp_path / "a.pt", **members))
    assert "\n" not in str(told.value)
    assert told.value.hint


def test_what_is_no_tensor_is_left_out(tmp_path: Path) -> None:
    """Training leaves counters and settings beside the weights."""
    path = zipped(tmp_path / "a.pt", data_pkl=pickle.dumps({"epoch": 3, "note": "x"}, 2))
    assert torchfile.read_tensors(path) == {}


@pytest.mark.parametrize("read", [safetensors.read_tensors, torchfile.read_tensors])
def test_a_file_that_cannot_be_opened(tmp_path: Path, read: Callable[[Path], object]) -> None:
    with pytest.raises(ModelFileError, match=r"none\.bin cannot be read: No such file") as told:
        read(tmp_path / "none.bin")
    assert told.value.hint


def test_sixteen_bits_are_widened(tmp_path: Path) -> None:
    halves = np.array([0x3FC0, 0xC000, 0x0000], dtype="<u2")  # 1.5, -2, 0
    path = with_header(tmp_path / "a.safetensors", {"a": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]}})
    path.write_bytes(path.read_bytes()[:-48] + halves.tobytes() + bytes(42))
    assert safetensors.read_tensors(path)["a"].read().tolist() == [1.5, -2.0, 0.0]


# -- folders ----------------------------------------------------------------------------------------------------------


def test_there_must_be_something_to_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no checkpoint") as told:
        Checkpoint.open(tmp_path / "nowhere")
    assert "config.json" in told.value.hint
    (tmp_path / "training_args.bin").write_bytes(b"")
    with pytest.raises(UsageError, match="holds no weights") as told:
        Checkpoint.open(tmp_path)
    assert "model.safetensors" in told.value.hint


def test_parts_are_those_that_the_index_names(tmp_path: Path) -> None:
    """A folder may hold the same weights once more, whole or in another split."""
    checkpoints.safetensors(tmp_path / "part-1.safetensors", {"one": ONE["one"]})
    checkpoints.safetensors(tmp_path / "part-2.safetensors", {"ids": ONE["ids"]})
    checkpoints.safetensors(tmp_path / "whole.safetensors", {"other": ONE["one"]})
    checkpoints.torch_file(tmp_path / "pytorch_model.bin", {"old": ONE["one"]})
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"one": "part-1.safetensors", "ids": "part-2.safetensors"}}))
    assert set(Checkpoint.open(tmp_path).tensors) == {"one", "ids"}
    (tmp_path / "part-2.safetensors").unlink()
    with pytest.raises(ModelFileError, match=r"part-2\.safetensors is missing from") as told:
        Checkpoint.open(tmp_path)
    assert "all parts" in told.value.hint
    for text in ("[", "[" * 100_000, "[]", "{}", '{"weight_map": 3}'):
        index.write_text(text)
        with pytest.raises(ModelFileError, match=r"index\.json cannot be read"):
            Checkpoint.open(tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "cannot be read as JSON"), ("[" * 100_000, "cannot be read as JSON"), ("[1]", "is no JSON object")],
    ids=["half", "deep", "a list"],
)
def test_settings_that_are_none(tmp_path: Path, text: str, words: str) -> None:
    checkpoints.safetensors(tmp_path / "model.safetensors", ONE)
    assert Checkpoint.open(tmp_path).config == {}
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelFileError, match=words):
        Checkpoint.open(tmp_path)


def test_what_a_checkpoint_lacks_and_what_is_no_number(tmp_path: Path) -> None:
    broken = np.array([1.0, np.nan], dtype=np.float32)
    found = Checkpoint.open(checkpoints.safetensors(tmp_path / "a.safetensors", ONE | {"broken": broken}))
    assert found.shape("one") == (3, 4)
    assert found.renamed({"one": "fc"}).shape("fc") == (3, 4)
    with pytest.raises(ModelFileError, match=r"a\.safetensors has no tensor fc") as told:
        found.shape("fc")
    assert told.value.hint
    with pytest.raises(ModelFileError, match=r"broken of .* holds numbers that are none") as told:
        found.matrix("broken")
    assert told.value.hint
