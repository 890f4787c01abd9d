"""Whether a head belongs to a verifier, and the sentence that says why not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from localspec.catalog import fingerprint
from localspec.catalog.fingerprint import Fingerprint
from localspec.catalog.ggufwriter import encode, write_gguf
from localspec.errors import PairError
from tests import wrecks, zoo


@pytest.fixture
def verifier(tmp_path: Path) -> Fingerprint:
    return fingerprint.of_verifier(zoo.tiny_llama(tmp_path / "verifier.gguf"))


def requantised(source: Path, path: Path) -> Path:
    """The same model with its matrices as Q8_0."""
    reader = gguf.GGUFReader(source)
    keys = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    write_gguf(
        path,
        {**keys, "general.file_type": 7},
        {tensor.name: encode(tensor.data, "Q8_0" if tensor.data.ndim > 1 else "F32") for tensor in reader.tensors},
    )
    return path


def test_it_comes_back_from_a_heads_file(tmp_path: Path, verifier: Fingerprint) -> None:
    path = tmp_path / "head.gguf"
    write_gguf(path, fingerprint.keys(verifier, kind="medusa"), {})
    assert fingerprint.of_head(path) == verifier
    assert verifier.width == zoo.WIDTH
    assert verifier.layers == 2
    assert verifier.vocab_size == 261
    assert len(verifier.tokenizer) == len(verifier.norm) == 64


def test_a_head_made_by_others_has_none(tmp_path: Path) -> None:
    write_gguf(tmp_path / "head.gguf", {"general.architecture": "eagle3"}, {})
    assert fingerprint.of_head(tmp_path / "head.gguf") is None


def test_a_split_file_has_the_fingerprint_of_the_whole(tmp_path: Path, verifier: Fingerprint) -> None:
    first = zoo.tiny_llama(tmp_path / "split.gguf", split=4)
    assert replace(fingerprint.of_verifier(first), name=verifier.name) == verifier


def test_unused_rows_are_no_part_of_a_tokenizer(tmp_path: Path, verifier: Fingerprint) -> None:
    padded = zoo.tiny_llama(tmp_path / "padded.gguf", vocabulary=zoo.byte_vocabulary().padded(7))
    assert fingerprint.of_verifier(padded).tokenizer == verifier.tokenizer


def test_another_quantisation_is_refused_unless_forced(tmp_path: Path, verifier: Fingerprint) -> None:
    quantised = fingerprint.of_verifier(requantised(tmp_path / "verifier.gguf", tmp_path / "q8.gguf"))
    assert quantised.norm == verifier.norm
    with pytest.raises(PairError, match="trained on the F32 weights of verifier, the verifier has Q8_0") as told:
        fingerprint.check(verifier, quantised, force=False)
    assert "force=true" in told.value.hint
    fingerprint.check(verifier, quantised, force=True)
    fingerprint.check(verifier, verifier, force=False)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"architecture": "qwen3"}, "the architecture is llama there and qwen3 here"),
        ({"width": 128}, "the width is 64 there and 128 here"),
        ({"layers": 3}, "the number of layers is 2 there and 3 here"),
        ({"vocab_size": 300}, "the vocabulary is 261 ids there and 300 ids here"),
        ({"tokenizer": "0" * 64}, "token ids stand for other texts"),
        ({"norm": "0" * 64}, "the same sizes but other weights"),
    ],
)
def test_another_model_is_refused_with_the_reason(
    verifier: Fingerprint, change: dict[str, object], reason: str, force: bool
) -> None:
    with pytest.raises(PairError, match=reason) as told:
        fingerprint.check(verifier, replace(verifier, **change), force=force)  # type: ignore[arg-type]
    assert "force" not in told.value.hint


def test_other_weights_of_the_same_sizes_have_another_norm(tmp_path: Path, verifier: Fingerprint) -> None:
    other = fingerprint.of_verifier(zoo.tiny_llama(tmp_path / "other.gguf", seed=1))
    assert replace(other, norm=verifier.norm, name=verifier.name) == verifier
    assert other.norm != verifier.norm
    assert np.all([char in "0123456789abcdef" for char in other.norm])


def test_without_a_norm_the_sizes_and_the_tokenizer_decide(tmp_path: Path, verifier: Fingerprint) -> None:
    """Where there is no last norm in F32 a fine-tune cannot be told from its base, and is not refused."""
    found = fingerprint.of_verifier(wrecks.unknown_architecture(tmp_path / "odd.gguf"))
    assert found.norm == ""
    assert not any(key.endswith(".norm") for key in fingerprint.keys(found, kind="medusa"))
    fingerprint.check(replace(verifier, norm=""), verifier, force=False)
    fingerprint.check(verifier, replace(verifier, norm=""), force=False)
