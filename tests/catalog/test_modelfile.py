"""The gate in front of llama.cpp: what a file is, and why it cannot be used, told apart before anything is loaded."""

from __future__ import annotations

import errno
import os
import struct
import time
import tracemalloc
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.catalog.gguf import read_header
from localspec.catalog.modelfile import read_model
from localspec.catalog.quantisation import TENSOR_TYPES, tensor_bytes
from localspec.errors import ModelFileError
from tests import wrecks, zoo


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zoo.tiny_llama(tmp_path_factory.mktemp("whole") / "tiny.gguf")


def refusal(path: Path) -> ModelFileError:
    with pytest.raises(ModelFileError) as caught:
        read_model(path)
    assert caught.value.hint
    assert "\n" not in str(caught.value)
    return caught.value


# --- sound files ---


def test_a_summary_of_a_sound_file(whole: Path) -> None:
    model = read_model(whole)
    assert (model.path, model.parts, model.bytes) == (whole, (whole,), whole.stat().st_size)
    assert (model.kind, model.architecture, model.quantisation) == ("model", "llama", "F32")
    assert (model.tokenizer, model.vocab_size, model.chat_template) == ("gpt2/smollm", 261, False)
    assert (model.context_length, model.layers, model.width) == (512, 2, 64)


@pytest.mark.gguf
@pytest.mark.parametrize(("keys", "experts"), [({}, None), ({"expert_count": 128, "expert_used_count": 8}, (8, 128))])
def test_a_mixture_of_experts_says_how_many_it_uses(
    tmp_path: Path, keys: dict[str, int], experts: tuple[int, int] | None
) -> None:
    path = tmp_path / "mixture.gguf"
    writer = gguf.GGUFWriter(path, "qwen3moe")
    for key, value in keys.items():
        writer.add_uint32(f"qwen3moe.{key}", value)
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert read_model(path).experts == experts


def test_a_real_file_needs_exactly_its_own_bytes(smollm2: Path, gemma: Path) -> None:
    for path, quantisation, size in ((smollm2, "Q4_1", 49152), (gemma, "Q4_K_M", 262144)):
        header, model = read_header(path), read_model(path)
        assert header.needed == header.size == model.bytes
        assert (model.quantisation, model.vocab_size) == (quantisation, size)


@pytest.mark.gguf
def test_a_large_vocabulary_is_read_in_no_time(gemma: Path) -> None:
    begun = time.perf_counter()
    read_model(gemma)
    assert time.perf_counter() - begun < 2.0


def test_odd_folders_and_names_B85(whole: Path, tmp_path: Path) -> None:
    for name in ("ein Ordner/größe 模型.gguf", "-x.gguf", "a%20b's.gguf", "dots../x..gguf"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(whole.read_bytes())
        assert read_model(path).architecture == "llama"


def test_block_sizes_are_those_of_the_reference_implementation() -> None:
    sizes = {kind.value: sizes for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    for number, (name, weights, size) in TENSOR_TYPES.items():
        assert sizes[number] == (weights, size), name
    assert tensor_bytes(2, 33) == 36  # two blocks
    assert tensor_bytes(999, 1) is None


# --- B83: what is wrong is said ---


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("header", "its header ends in the middle"),
        ("metadata", "its metadata ends in the middle"),
        ("tensor list", "its list of tensors ends in the middle"),
    ],
)
def test_a_file_cut_in_its_head_B83(whole: Path, tmp_path: Path, place: wrecks.Place, words: str) -> None:
    error = refusal(wrecks.cut(tmp_path / "cut.gguf", whole, place))
    assert "cut short" in str(error)
    assert words in str(error)
    assert "again" in error.hint


def test_a_file_cut_in_its_data_says_how_much_is_missing_B83(whole: Path, tmp_path: Path) -> None:
    path = wrecks.cut(tmp_path / "cut.gguf", whole, "data")
    said = str(refusal(path))
    assert f"its tensors need {whole.stat().st_size:,} bytes, the file has {path.stat().st_size:,}" in said


def test_a_file_without_its_last_byte_is_cut_B83(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole.read_bytes()[:-1])
    assert "cut short" in str(refusal(path))


def test_a_pipe_is_no_model_B83(tmp_path: Path) -> None:
    """Opening one waits until somebody writes: `--verifier pipe.gguf` hung without a word."""
    os.mkfifo(tmp_path / "pipe.gguf")
    assert "is a pipe" in str(refusal(tmp_path / "pipe.gguf"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty (0 bytes)"),
        (b"<!DOCTYPE html><html>", "begins with '<!DOCTYPE html><' and looks like a web page"),
        (b"\n  <html>", "looks like a web page"),
        (b'{"error": "denied"}', "looks like a JSON answer"),
        (b"tjgg\x03\0\0\0", "old ggjt format"),
        (b"lmgg\x01\0\0\0", "old ggml format"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
        (struct.pack("<Q", 2) + b'{"a', "a safetensors file"),
        (b"PK\x03\x04....", "a zip archive"),
        (bytes(4096), "never written"),
        (b"\x01\x02\x03\x04", "begins with 01 02 03 04."),
        (b"GG", "its header ends in the middle"),
    ],
)
def test_foreign_files_are_told_apart_B83(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "file.gguf"
    path.write_bytes(content)
    assert words in str(refusal(path))


def test_other_versions_B83(whole: Path, tmp_path: Path) -> None:
    newer = refusal(wrecks.version(tmp_path / "new.gguf", whole, 99))
    assert "GGUF version 99" in str(newer)
    assert "Update" in newer.hint
    assert "GGUF version 1" in str(refusal(wrecks.version(tmp_path / "old.gguf", whole, 1)))
    assert "big-endian" in str(refusal(wrecks.version(tmp_path / "big.gguf", whole, 3 << 24)))


def test_absurd_counts_cost_neither_memory_nor_time_B83(whole: Path, tmp_path: Path) -> None:
    path = wrecks.huge_counts(tmp_path / "huge.gguf", whole)
    tracemalloc.start()
    begun = time.perf_counter()
    said = str(refusal(path))
    elapsed, (_, peak) = time.perf_counter() - begun, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "claims 1,099,511,627,776 tensors" in said
    assert peak < 1 << 20
    assert elapsed < 0.5


def test_a_text_longer_than_the_file_is_not_allocated_B83(tmp_path: Path) -> None:
    path = tmp_path / "long.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**60) + bytes(64))
    assert "cut short" in str(refusal(path))


def test_texts_of_an_array_that_end_in_the_middle_B83(tmp_path: Path) -> None:
    """Three of them, of which the file holds one and half the length of the second."""
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"a" + struct.pack("<IIQ", 9, 8, 3)
    path = tmp_path / "texts.gguf"
    path.write_bytes(head + struct.pack("<Q", 20) + b"x" * 20 + bytes(4))
    assert "its metadata ends in the middle" in str(refusal(path))


@pytest.mark.parametrize("alignment", [0, 3, 48, 1 << 21])
def test_an_alignment_that_cannot_be_B83(tmp_path: Path, alignment: int) -> None:
    key = b"general.alignment"
    entry = struct.pack("<Q", len(key)) + key + struct.pack("<II", 4, alignment)
    path = tmp_path / "odd.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + entry)
    assert f"the alignment {alignment} is no power of two" in str(refusal(path))


def test_alignments_other_than_the_usual_are_followed(tmp_path: Path) -> None:
    def written(alignment: int) -> Path:
        writer = gguf.GGUFWriter(tmp_path / f"{alignment}.gguf", "llama")
        writer.add_custom_alignment(alignment)
        writer.add_tensor("a", np.arange(3, dtype=np.float32))
        writer.add_tensor("b", np.arange(5, dtype=np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return tmp_path / f"{alignment}.gguf"

    for alignment in (8, 64, 4096):
        path = written(alignment)
        info = read_header(path).table["b"]
        assert info.offset % alignment == 0
        assert path.read_bytes()[info.offset :][:20] == np.arange(5, dtype=np.float32).tobytes()


def test_a_tensor_of_five_dimensions_B83(tmp_path: Path) -> None:
    entry = struct.pack("<Q", 1) + b"t" + struct.pack("<I5QIQ", 5, 1, 1, 1, 1, 1, 0, 0)
    path = tmp_path / "five.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + entry)
    assert "the tensor 't' has 5 dimensions" in str(refusal(path))


def test_a_file_that_may_not_be_read(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(self: Path, *_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", denied)
    error = refusal(whole)
    assert str(error) == f"{whole} cannot be read: Permission denied."
    assert "permissions" in error.hint


@pytest.mark.parametrize(("kind", "words"), [("adapter", "is a LoRA adapter"), ("imatrix", "is an importance matrix")])
def test_files_of_other_kinds_are_named_B84(tmp_path: Path, kind: str, words: str) -> None:
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_type(kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    error = refusal(tmp_path / "a.gguf")
    assert f"{words}, not a language model" in str(error)
    assert "the model itself" in error.hint


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    assert "There is no file" in str(refusal(tmp_path / "absent.gguf"))
    assert "is a folder" in str(refusal(tmp_path))


# --- B84: other kinds of model ---


def test_projectors_encoders_and_nameless_files_are_named_B84(tmp_path: Path) -> None:
    assert "a projector for pictures or sound" in str(refusal(wrecks.projector(tmp_path / "mmproj.gguf")))
    encoder = wrecks.unknown_architecture(tmp_path / "bert.gguf", "nomic-bert")
    assert "an encoder for embeddings (nomic-bert)" in str(refusal(encoder))
    nameless = wrecks.unknown_architecture(tmp_path / "nameless.gguf", "")
    assert "does not say which architecture" in str(refusal(nameless))


def test_an_unknown_architecture_is_left_to_the_engine_B84(tmp_path: Path) -> None:
    assert read_model(wrecks.unknown_architecture(tmp_path / "z.gguf", "zzzzz")).architecture == "zzzzz"


def test_a_drafting_head_is_no_model_of_its_own_B84(tmp_path: Path) -> None:
    assert read_model(wrecks.unknown_architecture(tmp_path / "head.gguf", "eagle3")).kind == "head"


def test_a_vocabulary_alone_holds_no_weights_B84(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.gguf"
    zoo.write(path, "llama", {"block_count": 1}, {}, zoo.byte_vocabulary())
    assert "holds no weights" in str(refusal(path))


# --- B81: split files ---


def test_any_part_stands_for_the_whole_B81(tmp_path: Path) -> None:
    parts = wrecks.split_pair(tmp_path)
    for part in parts:
        model = read_model(part)
        assert (model.path, model.parts) == (parts[0], parts)
        assert model.bytes == sum(part.stat().st_size for part in parts)


def test_a_missing_part_is_named_B81(tmp_path: Path) -> None:
    first, second = wrecks.split_pair(tmp_path)
    second.unlink()
    assert "tiny-00002-of-00002.gguf is missing" in str(refusal(first))


def test_a_cut_part_is_named_B81(tmp_path: Path) -> None:
    first, second = wrecks.split_pair(tmp_path)
    second.write_bytes(second.read_bytes()[:-100])
    assert "tiny-00002-of-00002.gguf is cut short" in str(refusal(first))


def test_parts_that_do_not_belong_together_B81(tmp_path: Path) -> None:
    first, second = wrecks.split_pair(tmp_path)
    second.write_bytes(first.read_bytes())
    assert "it says it is part 1 of 2" in str(refusal(first))


def test_parts_that_hold_fewer_tensors_than_they_should_B81(tmp_path: Path) -> None:
    first, _ = wrecks.split_pair(tmp_path)
    data = bytearray(first.read_bytes())
    at = data.index(b"split.tensors.count") + len(b"split.tensors.count") + 4
    data[at] += 1
    first.write_bytes(data)
    error = refusal(first)
    assert f"hold {data[at] - 1} tensors in all, but should hold {data[at]}" in str(error)
    assert "do not belong together" in error.hint


def test_parts_joined_by_hand_B81(tmp_path: Path) -> None:
    parts = wrecks.split_pair(tmp_path)
    error = refusal(wrecks.joined(tmp_path / "joined.gguf", parts))
    assert "2 parts joined by hand" in str(error)
    assert "llama-gguf-split" in error.hint


def test_a_renamed_part_is_told_its_name_B81(tmp_path: Path) -> None:
    first, _ = wrecks.split_pair(tmp_path)
    error = refusal(first.rename(tmp_path / "model.gguf"))
    assert "part 1 of 2, but its name does not say so" in str(error)


def test_one_of_one_is_an_ordinary_file_B81(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "tiny-00001-of-00001.gguf"
    path.write_bytes(whole.read_bytes())
    assert read_model(path).parts == (path,)


# --- anything ---


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A sound file of few bytes, so that a change hits something."""
    path = tmp_path_factory.mktemp("small") / "small.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.context_length", 64)
    writer.add_bool("flag", True)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b", "c"])
    writer.add_array("numbers", [1, 2, 3])
    weights = zoo.Weights(0)
    weights.matrix("w", 4, 4)
    writer.add_tensor("w", weights.tensors["w"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


CHANGES = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 255)), max_size=8)


@settings(max_examples=300)
@given(changes=CHANGES, keep=st.integers(0, 1000), tail=st.binary(max_size=64))
def test_any_bytes_are_read_or_refused_in_bounds_B83(
    small: bytes, tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], keep: int, tail: bytes
) -> None:
    data = bytearray(small)
    for place, value in changes:
        data[place % len(data)] = value
    path = tmp_path_factory.getbasetemp() / "fuzzed.gguf"
    path.write_bytes(bytes(data[: len(data) * keep // 1000]) + tail)
    begun = time.perf_counter()
    try:
        model = read_model(path)
    except ModelFileError:
        model = None
    assert time.perf_counter() - begun < 1.0
    assert model is None or model.bytes == path.stat().st_size
