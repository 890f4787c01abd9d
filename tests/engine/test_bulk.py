"""Training data read in bulk is what each text gives alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from localspec.engine.base import FeatureSpec
from localspec.engine.bulk import BulkReader
from localspec.engine.context import ContextSettings, LlamaContext
from localspec.engine.model import LlamaModel
from localspec.errors import DecodeError
from tests import zoo
from tests.engine.reference import Reference

RNG = np.random.default_rng(0)
TEXTS = [RNG.integers(5, 261, size).astype(np.int32) for size in (3, 30, 1, 20, 90, 12, 40)]
ASKED = [np.flatnonzero(RNG.random(len(text)) < 0.5).astype(np.int32) for text in TEXTS]
ALONE = ContextSettings(capacity=128)


@pytest.fixture(scope="module", params=["llama", "swa"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaModel]:
    path: Path = tmp_path_factory.mktemp("bulk") / "model.gguf"
    write = {"llama": lambda: zoo.tiny_llama(path, layers=3), "swa": lambda: zoo.tiny_swa(path)}
    with LlamaModel(write[request.param](), gpu_layers=0) as loaded:
        yield loaded


@pytest.mark.parametrize("final", [False, True], ids=["layers", "and-final"])
@pytest.mark.parametrize(("batch", "outputs"), [(64, 32), (512, 512), (16, 4)])
def test_each_text_is_read_as_if_alone(model: LlamaModel, final: bool, batch: int, outputs: int) -> None:
    spec = FeatureSpec((1,), final)
    with BulkReader(model, spec, longest=90, top=5, batch=batch, outputs=outputs, sequences=4) as reader:
        readings = list(reader.read(TEXTS, ASKED))
    assert len(readings) == len(TEXTS)
    with LlamaContext(model, ALONE) as context, Reference(model, ALONE) as reference:
        capture = context.capture(spec)
        for text, asked, reading in zip(TEXTS, ASKED, readings, strict=True):
            context.prefill(text, logits=False)
            rows = capture.rows(0, len(text))
            assert reading.features.shape == rows.shape
            assert np.abs(reading.features - rows).max() <= 2e-2 * np.abs(rows).max()
            logits = reference.rows(text.tolist(), len(text))[asked]
            assert reading.ids.shape == reading.logits.shape == (len(asked), 5)
            if len(asked):
                assert np.abs(np.sort(logits, axis=1)[:, :-6:-1] - reading.logits).max() < 0.05
                assert np.abs(np.take_along_axis(logits, reading.ids, axis=1) - reading.logits).max() < 0.05
                total = np.log(np.exp(logits - logits.max()).sum(axis=1)) + logits.max()
                assert np.abs(total - reading.normaliser).max() < 0.05


def test_rows_alone_need_no_logits(model: LlamaModel) -> None:
    with BulkReader(model, FeatureSpec((1,)), longest=90) as reader:
        for text, reading in zip(TEXTS, reader.read(TEXTS), strict=True):
            assert reading.features.shape == (len(text), zoo.WIDTH)
            assert reading.ids.shape == (0, 0)


def test_a_text_that_is_too_long_is_told(model: LlamaModel) -> None:
    with BulkReader(model, FeatureSpec((1,)), longest=20) as reader, pytest.raises(DecodeError, match="30 tokens"):
        list(reader.read(TEXTS))
