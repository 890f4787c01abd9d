"""Texts side by side: their rows are those of each alone, and models that cannot show them are refused beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from localspec.engine import farm as farms
from localspec.engine import native
from localspec.engine.base import FeatureSpec
from localspec.engine.context import ContextSettings, LlamaContext
from localspec.engine.farm import Farm, FarmSettings
from localspec.engine.model import LlamaModel
from localspec.engine.native import lib
from localspec.errors import DecodeError, LoadError
from tests import zoo


@pytest.mark.parametrize(
    ("write", "layers", "said"),
    [
        (zoo.tiny_swa, (1,), "between the layers of gemma3"),
        (zoo.tiny_lfm2, (), "gives no logits of lfm2"),
        (zoo.tiny_llama, (0, 2), "layer 2 does not exist"),
    ],
)
def test_a_model_that_does_not_show_its_hidden_states_is_refused(
    write: Callable[[Path], Path], layers: tuple[int, ...], said: str, tmp_path: Path
) -> None:
    """Making training data for gemma3 or qwen2 ended the process; LFM2's answers were drawn from old numbers."""
    with LlamaModel(write(tmp_path / "model.gguf"), gpu_layers=0) as model:
        with pytest.raises(LoadError, match=said) as refused:
            Farm(model, FarmSettings(plots=2, capacity=64, layers=layers))
        assert refused.value.hint


TEXT = np.random.default_rng(3).integers(5, 261, 40).astype(np.int32)


@pytest.fixture
def model(tmp_path: Path) -> Iterator[LlamaModel]:
    with LlamaModel(zoo.tiny_llama(tmp_path / "model.gguf", layers=3), gpu_layers=0) as made:
        yield made


def test_rows_are_those_of_a_context_of_its_own(model: LlamaModel) -> None:
    """Two texts side by side, read and continued, one cleared and begun anew in between."""
    with Farm(model, FarmSettings(plots=2, capacity=64, layers=(1, 2))) as farm:
        farm.read(0, TEXT[::-1])
        farm.clear(0)
        crops = [farm.read(0, TEXT[:20]), farm.read(1, TEXT[20:])]
        both = farm.step([0, 1], [int(TEXT[20]), 9])
        logits = both.logits.copy()  # the others are copies
    with LlamaContext(model, ContextSettings(capacity=64, flash_attn="off")) as context:
        capture = context.capture(FeatureSpec((1, 2), final=True))
        for plot, text, crop in ((0, TEXT[:21], crops[0]), (1, np.array([*TEXT[20:], 9]), crops[1])):
            result = context.prefill(text)
            assert result is not None
            assert np.abs(logits[plot] - result.logits(0)).max() < 0.02
            rows = capture.rows(0, 21).reshape(21, 3, model.width)
            for found, wanted in (
                (np.concatenate([crop.layers, both.layers[plot : plot + 1]]), rows[:, :2]),
                (np.concatenate([crop.last, both.last[plot : plot + 1]]), rows[:, 2]),
            ):
                assert np.linalg.norm(found - wanted) < 0.003 * np.linalg.norm(wanted)


def test_a_text_beyond_its_plot_is_refused(model: LlamaModel) -> None:
    with Farm(model, FarmSettings(plots=2, capacity=16)) as farm:
        farm.read(1, TEXT[:16])
        with pytest.raises(DecodeError, match="longer than 16 tokens"):
            farm.step([1], [7])
        assert farm.read(0, TEXT[:16]).logits.shape == (1, 261), "the neighbour has its own room"


def test_no_memory_for_a_farm(model: LlamaModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(farms, "check_final", lambda _: None)  # it makes a context, too
    monkeypatch.setattr(lib, "llama_init_from_model", lambda *_: None)
    with pytest.raises(LoadError, match=r"a context of 900 texts of 64 tokens for model\.gguf") as caught:
        Farm(model, FarmSettings(plots=900, capacity=64))
    assert "--parallel" in caught.value.hint


def test_what_llama_cpp_refuses_or_does_not_keep_is_an_error(
    model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old numbers in its buffers must not become training data."""
    farm = Farm(model, FarmSettings(plots=2, capacity=64))
    with monkeypatch.context() as broken:
        broken.setattr(lib, "llama_decode", lambda *_: -3)
        with pytest.raises(DecodeError, match=r"could not evaluate 5 tokens \(code -3\)"):
            farm.read(0, TEXT[:5])
    with monkeypatch.context() as broken:
        broken.setattr(native, "embeddings_address", lambda _: None)
        with pytest.raises(DecodeError, match="kept no hidden rows"):
            farm.read(1, TEXT[:5])
    farm.clear(0)
    assert farm.read(0, TEXT[:5]).logits.shape == (1, 261)
    farm.close()
    farm.close()
