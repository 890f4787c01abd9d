"""Drafts out of their verifiers: what is made, where it lies, what is refused before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.catalog.inventory import derived_folder
from localspec.catalog.modelfile import read_model
from localspec.errors import DownloadError, EngineError, UsageError
from localspec.services import library
from localspec.services.derive import blocks, derive, recipe
from localspec.services.derive.derive import Derived
from localspec.services.derive.recipe import Request
from tests import wrecks, zoo
from tests.catalog.conftest import NOTHING, Listener


def made(path: Path, listener: Listener, **wanted: Any) -> Derived:
    return derive.derive(str(path), Request(**({"tokens": 0} | wanted)), NOTHING, listener)


def test_a_draft_lies_in_the_cache_is_listed_and_can_be_removed(clean: Path, listener: Listener) -> None:
    source = zoo.tiny_llama(clean / "Tiny-F32.gguf")
    derived = made(source, listener, type="Q8_0")
    assert derived.draft.path.parent == derived_folder()
    assert derived.draft.path.name.startswith("Tiny-Q8_0-")
    assert derived.draft.bytes < derived.verifier.bytes
    assert any("needs" in note and f"{derived.verifier.bytes:,}" in note for note in listener.notes)
    (found,) = library.list_others(NOTHING)
    assert (found.path, found.is_partial) == (derived.draft.path, False)
    (details,) = library.show(str(found.source), NOTHING)
    assert details.file == derived.draft
    library.remove(str(found.source), NOTHING)
    assert library.list_others(NOTHING) == []
    assert source.exists()


def test_made_once_for_one_verifier(clean: Path, listener: Listener) -> None:
    source = zoo.tiny_llama(clean / "Tiny.gguf")
    first = made(source, listener).draft.path
    written = first.stat().st_mtime_ns
    assert made(source, listener).draft.path == first
    assert first.stat().st_mtime_ns == written
    assert "was made before" in listener.notes[-1]
    other = made(zoo.tiny_llama(clean / "Tiny.gguf", seed=5), listener).draft.path
    assert other != first, "another model of the same name"


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({}, "Q4_0"),
        ({"drop": 2}, "without layers 1-2"),
        ({"without": (2, 0)}, "without layers 0, 2"),
        ({"type": "Q5_0", "without": (0, 1, 2)}, "Q5_0 without layers 0-2"),
    ],
)
def test_recipes(clean: Path, listener: Listener, wanted: dict[str, Any], words: str) -> None:
    derived = made(zoo.tiny_llama(clean / "Tiny.gguf", layers=4), listener, **wanted)
    assert derived.recipe.words == words
    assert derived.draft.layers == 4 - len(derived.recipe.without)


def test_what_is_coarse_already_becomes_coarser_and_hears_of_it(clean: Path, listener: Listener) -> None:
    first = made(zoo.tiny_llama(clean / "Tiny.gguf"), listener, type="Q4_0", out=clean / "four.gguf")
    assert not listener.warnings
    second = made(first.draft.path, listener)
    assert second.recipe.type == "Q2_K"
    assert any("quantised to Q4_0 already" in warning for warning in listener.warnings)
    assert any("take a larger type" in note for note in listener.notes), "rows of 64 are too short for Q2_K"
    made(first.draft.path, listener, type="F16", out=clean / "sixteen.gguf")
    assert any("no smaller than its verifier" in warning for warning in listener.warnings)


@pytest.mark.parametrize("kind", [zoo.tiny_swa, zoo.tiny_mamba, zoo.tiny_jamba, zoo.tiny_lfm2])
def test_every_kind_of_memory_can_be_requantised(clean: Path, listener: Listener, kind: Callable[[Path], Path]) -> None:
    derived = made(kind(clean / "Tiny.gguf"), listener, type="Q8_0")
    assert derived.draft.quantisation == "Q8_0"


@pytest.mark.parametrize("kind", [zoo.tiny_jamba, zoo.tiny_lfm2])
def test_layers_that_differ_are_not_left_out(clean: Path, listener: Listener, kind: Callable[[Path], Path]) -> None:
    """llama.cpp would write a file whose layers are read with each other's shapes."""
    with pytest.raises(UsageError, match="head_count_kv"):
        made(kind(clean / "Tiny.gguf"), listener, without=(1,))
    assert not derived_folder().exists()


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"type": "Q4"}, "Q4 is no file type"),
        ({"type": "IQ2_XXS"}, "importance matrix"),
        ({"drop": 2, "without": (1,)}, "both at once"),
        ({"drop": 3}, "nothing would be left"),
        ({"drop": 99}, "nothing would be left"),
        ({"without": (0, 1, 2)}, "nothing would be left"),
        ({"without": (3,)}, "no layer 3: its 3 layers are 0 to 2"),
        ({"out": Path("draft.bin")}, "does not end in .gguf"),
    ],
)
def test_nonsense_is_refused_before_anything_is_written(
    clean: Path, listener: Listener, wanted: dict[str, Any], words: str
) -> None:
    source = zoo.tiny_llama(clean / "Tiny.gguf", layers=3)
    with pytest.raises(UsageError, match=words) as caught:
        made(source, listener, **wanted)
    assert caught.value.hint
    assert not derived_folder().exists()


def test_the_verifier_is_never_overwritten(clean: Path, listener: Listener) -> None:
    source = zoo.tiny_llama(clean / "Tiny.gguf")
    (clean / "link.gguf").symlink_to(source)
    for out in (source, clean / "link.gguf", clean / "x" / ".." / "Tiny.gguf"):
        with pytest.raises(UsageError, match="is the verifier itself"):
            made(source, listener, out=out)


def test_a_head_is_no_model_to_derive_from(clean: Path, listener: Listener) -> None:
    with pytest.raises(UsageError, match="drafting head"):
        made(wrecks.unknown_architecture(clean / "head.gguf", "eagle3"), listener)


def test_a_full_disk_is_told_in_advance(clean: Path, listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"total": 1 << 30, "free": 1000})())
    with pytest.raises(DownloadError, match="1,000 are free"):
        made(zoo.tiny_llama(clean / "Tiny.gguf"), listener)
    assert not derived_folder().exists()


def test_a_draft_that_does_not_load_is_not_kept(clean: Path, listener: Listener) -> None:
    """Weights that are no numbers pass through the quantiser; the trial run finds them."""
    with pytest.raises(EngineError):
        made(zoo.tiny_llama(clean / "Tiny.gguf", nan=True), listener, without=(1,))
    assert not list(derived_folder().glob("*.gguf*"))


def test_measured_against_its_verifier(clean: Path, listener: Listener) -> None:
    derived = made(zoo.tiny_llama(clean / "Tiny.gguf"), listener, type="F16", tokens=32)
    likeness = derived.likeness
    assert likeness is not None
    assert likeness.agreement.value > 0.9
    assert likeness.alpha.value > 0.95
    assert likeness.cost > 0.0
    assert dict(likeness.curve)[1] == 1.0
    document = derived.as_dict()
    assert document["measured"]["greedy"]["expected_speedup"] >= 1.0
    blocks = made(zoo.tiny_llama(clean / "Tiny.gguf"), listener, without=(0,), tokens=32).likeness
    assert blocks is not None
    assert blocks.agreement.value < likeness.agreement.value


@pytest.mark.gguf
def test_smollm2_as_q2_k(smollm2: Path, tmp_path: Path, listener: Listener) -> None:
    derived = made(smollm2, listener, type="Q2_K", out=tmp_path / "draft.gguf", tokens=64)
    assert any("tensors take a larger type" in note for note in listener.notes), "rows of 576"
    assert read_model(derived.draft.path).layers == 30
    assert derived.likeness is not None
    assert 0.4 < derived.likeness.agreement.value < 0.95
    assert 0.4 < derived.likeness.alpha.value < 0.9


def test_ids_are_spelled_in_spans() -> None:
    assert recipe.spans([0, 2, 3, 4, 7, 8]) == "0, 2-4, 7-8"
    assert recipe.inessential(30, 3) == (14, 15, 16)
    assert recipe.inessential(4, 3) == (0, 1, 2)


def test_layers_that_do_nothing_are_the_ones_to_go(clean: Path, listener: Listener) -> None:
    """Two of six layers add nothing to what comes in: they are found, and without them the model says the same."""
    source = zoo.tiny_llama(clean / "idle.gguf", layers=6, idle=(3, 4))
    derived = made(source, listener, drop=2, tokens=16)
    assert derived.recipe.without == (3, 4)
    assert derived.likeness is not None
    assert derived.likeness.agreement.value == 1.0


def test_the_least_turn() -> None:
    """Layer inputs that turn by known angles: 0 to 1 by 0, 1 to 2 by 40 degrees, 2 to 4 by 10, 4 to 5 by 60."""
    angles = np.radians([0.0, 0.0, 40.0, 45.0, 50.0, 110.0])
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=-1)[None].astype(np.float32).repeat(3, axis=0)
    assert blocks.straightest(rows * np.array([1, 9, 2, 5, 3, 7])[None, :, None].astype(np.float32), 2) == 2
    assert blocks.straightest(rows, 1) in (2, 3)
