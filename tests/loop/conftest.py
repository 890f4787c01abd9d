"""The pairs that answers are made with: a toy verifier, and the tiny GGUFs of every kind of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.engine.context import ContextSettings, LlamaContext
from localspec.engine.model import LlamaModel
from localspec.engine.toy import ToyContext, ToyModel
from tests import zoo
from tests.loop.answers import Setting

MEMORIES: dict[str, Callable[..., Path]] = {
    "llama": zoo.tiny_llama,
    "swa": zoo.tiny_swa,
    "mamba": zoo.tiny_mamba,
    "jamba": zoo.tiny_jamba,
    "lfm2": zoo.tiny_lfm2,
}
SETTINGS = ContextSettings(capacity=512, draft_room=8, leaves=4, batch=64, flash_attn="off")
DRAFT_SETTINGS = replace(SETTINGS, snapshots=False)


@pytest.fixture
def toy() -> Setting:
    model = ToyModel(seed=1, end_bias=-30.0)
    return Setting(ToyContext(model), model.vocab)


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], LlamaModel]]:
    """(memory, "verifier" | "draft") -> model; a draft has the verifier's weights with some noise."""
    folder = tmp_path_factory.mktemp("pairs")
    models = {}
    for memory, write in MEMORIES.items():
        for role, noise in (("verifier", 0.0), ("draft", 0.05)):
            path = write(folder / f"{memory}-{role}.gguf", noise=noise)
            models[memory, role] = LlamaModel(path, gpu_layers=0)
    yield models
    for model in models.values():
        model.close()


@pytest.fixture
def opened() -> Iterator[Callable[..., Setting]]:
    """Loads a file as a verifier and closes everything afterwards."""
    made: list[LlamaContext] = []

    def load(path: Path, *, capacity: int = 512) -> Setting:
        made.append(LlamaContext(LlamaModel(path, gpu_layers=0), replace(SETTINGS, capacity=capacity)))
        return Setting(made[-1], made[-1].model.vocab)

    yield load
    for context in made:
        context.close()
        context.model.close()
