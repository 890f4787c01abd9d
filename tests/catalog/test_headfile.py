"""Heads' files: what a sound one says, and one sentence for each way in which one can be unsound."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.catalog.gguf import read_header
from localspec.catalog.headfile import Eagle1, Medusa, read_headfile, verifier_ends
from localspec.catalog.modelfile import read_model
from localspec.errors import ModelFileError, PairError
from tests import ggmlheads, wrecks, zoo

KEY = ggmlheads.KEY


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zoo.tiny_llama(tmp_path_factory.mktemp("verifier") / "verifier.gguf")


def test_what_a_medusa_file_says(tmp_path: Path, verifier: Path) -> None:
    path = ggmlheads.tiny_medusa(
        tmp_path / "head.gguf", verifier, quant="Q8_0", known=[5, 7, 9], keys={f"{KEY}.tree": "[[0], [0, 0], [1]]"}
    )
    head = read_headfile(path)
    assert (head.kind, head.width) == ("medusa", zoo.WIDTH)
    assert head.form == Medusa(3, 1, ((0,), (0, 0), (1,)))
    assert head.known is not None
    assert head.known.tolist() == [5, 7, 9]
    assert head.verifier.file_type == "F32"
    assert len(head.bytes_of("head.0.0.weight")) == zoo.WIDTH * zoo.WIDTH // 32 * 34
    model = read_model(path)
    assert (model.kind, model.architecture) == ("head", "localspec-head")


def test_what_an_eagle1_file_says(tmp_path: Path, verifier: Path) -> None:
    head = read_headfile(ggmlheads.tiny_eagle1(tmp_path / "head.gguf", verifier, keys={f"{KEY}.rope.type": "norm"}))
    assert head.form == Eagle1(64, 2, 1, 32, float(np.float32(1e-5)), 10_000.0, neox=False)
    assert head.known is None


@pytest.mark.parametrize(
    ("kind", "keys", "without", "reason"),
    [
        ("medusa", {f"{KEY}.version": 2}, (), "kind medusa, version 2; this localspec knows"),
        ("medusa", {f"{KEY}.kind": "hydra"}, (), "kind hydra"),
        ("medusa", {f"{KEY}.heads": None}, (), "the key localspec.head.heads is missing"),
        ("medusa", {f"{KEY}.heads": 99}, (), "the key localspec.head.heads is 99, not within 1 .. 16"),
        ("medusa", {f"{KEY}.heads": 4}, (), "lacks the tensor head.3.0.weight"),
        ("medusa", {f"{KEY}.tree": "[[0], 3]"}, (), "does not list places"),
        ("medusa", {f"{KEY}.verifier.architecture": None}, (), "does not say which verifier it is for"),
        ("medusa", {f"{KEY}.width": 32}, (), "is 32 wide, the verifier that it names 64"),
        ("medusa", {}, ("head.1.0.bias",), "lacks the tensor head.1.0.bias"),
        ("eagle1", {}, ("fc.weight",), "lacks the tensor fc.weight"),
        ("eagle1", {}, ("blk.0.ffn_down.weight",), "lacks the tensor blk.0.ffn_down.weight"),
        ("eagle1", {f"{KEY}.feed_forward": 96}, (), "ffn_gate.weight has the shape 64 x 64, not 64 x 96"),
        ("eagle1", {f"{KEY}.attention.heads": 3}, (), "attn_q.weight has the shape 64 x 64, not 64 x 96"),
        ("eagle1", {f"{KEY}.attention.heads": 5, f"{KEY}.attention.heads_kv": 2}, (), "cannot share 2 keys"),
        ("eagle1", {f"{KEY}.norm_epsilon": 0.0}, (), "norm_epsilon is no positive number"),
        ("eagle1", {f"{KEY}.rope.base": "high"}, (), "rope.base is no positive number"),
        ("eagle1", {f"{KEY}.rope.type": "spiral"}, (), "rope.type is neither neox nor norm"),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence(
    tmp_path: Path, verifier: Path, kind: str, keys: dict[str, Any], without: Sequence[str], reason: str
) -> None:
    make = ggmlheads.tiny_medusa if kind == "medusa" else ggmlheads.tiny_eagle1
    path = make(tmp_path / "head.gguf", verifier, keys=keys, without=without)
    with pytest.raises(ModelFileError) as told:
        read_headfile(path)
    assert reason in str(told.value)
    assert str(told.value).count("\n") == 0
    assert told.value.hint


@pytest.mark.parametrize("known", [[5, 5], [5, 261], [-1, 5], []], ids=["twice", "too large", "negative", "none"])
def test_a_vocabulary_that_cannot_be(tmp_path: Path, verifier: Path, known: list[int]) -> None:
    path = ggmlheads.tiny_medusa(tmp_path / "head.gguf", verifier, known=known)
    with pytest.raises(ModelFileError, match="does not list distinct ids below 261"):
        read_headfile(path)


def test_tensors_of_the_wrong_kind_or_shape(tmp_path: Path, verifier: Path) -> None:
    parts = ggmlheads.medusa_parts(zoo.WIDTH, 261)
    parts["head.0.0.bias"] = np.zeros((zoo.WIDTH, 1))
    with pytest.raises(ModelFileError, match=r"head\.0\.0\.bias has the shape 1 x 64, not 64"):
        read_headfile(ggmlheads.write(tmp_path / "a.gguf", verifier, "medusa", parts))
    own = ggmlheads.medusa_parts(zoo.WIDTH, 100, own=True)
    with pytest.raises(ModelFileError, match=r"head\.0\.output\.weight has the shape 64 x 100, not 64 x 261"):
        read_headfile(ggmlheads.write(tmp_path / "b.gguf", verifier, "medusa", own))
    whole = ggmlheads.medusa_parts(zoo.WIDTH, 261)
    path = ggmlheads.write(tmp_path / "c.gguf", verifier, "medusa", whole, quant="I64")
    with pytest.raises(ModelFileError, match="is I64, which cannot be used there"):
        read_headfile(path)


def test_other_files(tmp_path: Path, verifier: Path) -> None:
    with pytest.raises(ModelFileError, match="is no Medusa or EAGLE-1 head but llama"):
        read_headfile(verifier)
    with pytest.raises(ModelFileError, match="cut short"):
        read_headfile(wrecks.cut(tmp_path / "cut.gguf", ggmlheads.tiny_eagle1(tmp_path / "e.gguf", verifier), "data"))


def test_what_a_verifier_lends(tmp_path: Path, verifier: Path) -> None:
    ends = verifier_ends(read_model(verifier))
    assert ends.embedding.info.shape == ends.output.info.shape == (zoo.WIDTH, 261)
    assert ends.embedding.info.offset != ends.output.info.offset
    assert (ends.bias, ends.scale, ends.softcap) == (None, 1.0, 0.0)
    split = verifier_ends(read_model(zoo.tiny_llama(tmp_path / "split.gguf", split=1)))
    assert np.array_equal(split.output.bytes(), ends.output.bytes())
    mute = ggmlheads.tiny_medusa(tmp_path / "head.gguf", verifier)
    with pytest.raises(PairError, match="no token embedding"):
        verifier_ends(read_model(mute))


def test_a_vocabulary_that_is_no_list_of_ids(tmp_path: Path, verifier: Path) -> None:
    parts = ggmlheads.medusa_parts(zoo.WIDTH, 261) | {"d2t": np.arange(261, dtype=np.float32)}
    path = ggmlheads.write(tmp_path / "head.gguf", verifier, "medusa", parts)
    with pytest.raises(ModelFileError, match="the tensor d2t is no list of I64 ids") as told:
        read_headfile(path)
    assert told.value.hint


def test_an_output_for_all_heads_is_checked(tmp_path: Path, verifier: Path) -> None:
    parts = ggmlheads.medusa_parts(zoo.WIDTH, 261) | {"output.weight": np.zeros((261, zoo.WIDTH))}
    assert read_headfile(ggmlheads.write(tmp_path / "a.gguf", verifier, "medusa", parts)).width == zoo.WIDTH
    parts["output.weight"] = np.zeros((100, zoo.WIDTH))
    with pytest.raises(ModelFileError, match=r"output\.weight has the shape 64 x 100, not 64 x 261"):
        read_headfile(ggmlheads.write(tmp_path / "b.gguf", verifier, "medusa", parts))


def test_what_an_eagle1_head_may_leave_out_is_checked_where_it_is(tmp_path: Path, verifier: Path) -> None:
    parts = ggmlheads.eagle1_parts(zoo.WIDTH) | {"blk.0.attn_q.bias": np.zeros(3)}
    with pytest.raises(ModelFileError, match=r"blk\.0\.attn_q\.bias has the shape 3, not 64"):
        read_headfile(ggmlheads.write(tmp_path / "head.gguf", verifier, "eagle1", parts))


def test_an_output_that_heads_cannot_borrow(tmp_path: Path) -> None:
    """Its type is one that the head's own graph cannot compute with: said here, where ggml would end the process."""
    path = zoo.tiny_llama(tmp_path / "verifier.gguf")
    model = read_model(path)
    header = read_header(path)
    info = header.table["token_embd.weight"]
    data = bytearray(path.read_bytes())
    place = data.index(b"token_embd.weight") + len(b"token_embd.weight") + 4 + 8 * len(info.shape)
    data[place : place + 4] = (27).to_bytes(4, "little")  # I64
    data += bytes(info.size or 0)  # twice as wide as before
    path.write_bytes(data)
    with pytest.raises(PairError, match="is I64, which heads cannot borrow") as told:
        verifier_ends(model)
    assert "output of its own" in told.value.hint
