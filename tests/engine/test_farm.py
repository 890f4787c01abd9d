"""Texts side by side: models that cannot show their hidden states are refused before llama.cpp is asked for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from localspec.engine.farm import Farm, FarmSettings
from localspec.engine.model import LlamaModel
from localspec.errors import LoadError
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
