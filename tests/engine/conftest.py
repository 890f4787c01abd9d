"""One tiny model per kind of memory, loaded once, and a plain reference to compare logits with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from localspec.engine.context import ContextSettings, LlamaContext
from localspec.engine.model import LlamaModel
from tests import zoo
from tests.engine.kinds import KINDS, Kind
from tests.engine.reference import Reference

WRITERS: dict[str, Callable[[Path], Path]] = {
    "llama": zoo.tiny_llama,
    "wide-heads": lambda path: zoo.tiny_llama(path, heads=2),
    "swa": zoo.tiny_swa,
    "mamba": zoo.tiny_mamba,
    "jamba": zoo.tiny_jamba,
    "lfm2": zoo.tiny_lfm2,
    "lfm2-swa": lambda path: zoo.tiny_lfm2(path, window=32, context=1024),
    "nan": lambda path: zoo.tiny_llama(path, nan=True),
}


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, LlamaModel]]:
    folder = tmp_path_factory.mktemp("zoo")
    loaded = {name: LlamaModel(write(folder / f"{name}.gguf"), gpu_layers=0) for name, write in WRITERS.items()}
    yield loaded
    for model in loaded.values():
        model.close()


@pytest.fixture(params=KINDS, ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen = request.param
    assert isinstance(chosen, Kind)
    return chosen


@pytest.fixture
def context(kind: Kind, models: dict[str, LlamaModel]) -> Iterator[LlamaContext]:
    with LlamaContext(models[kind.model], kind.settings) as made:
        yield made


@pytest.fixture
def reference(kind: Kind, models: dict[str, LlamaModel]) -> Iterator[Reference]:
    with Reference(models[kind.model], kind.settings) as made:
        yield made


@pytest.fixture
def plain(models: dict[str, LlamaModel]) -> Iterator[LlamaContext]:
    """An ordinary attention-only context for tests that are not about memory."""
    with LlamaContext(models["llama"], ContextSettings(capacity=256, leaves=4, flash_attn="off")) as made:
        yield made


@pytest.fixture
def plain_reference(models: dict[str, LlamaModel]) -> Iterator[Reference]:
    with Reference(models["llama"], ContextSettings(capacity=256, flash_attn="off")) as made:
        yield made
