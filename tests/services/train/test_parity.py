"""What torch trained is what llama.cpp computes: logits of a random head agree, step after step on its own rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from localspec.catalog.modelfile import read_model
from localspec.engine.context import ContextSettings, LlamaContext
from localspec.engine.eagle3 import Eagle3Head
from localspec.engine.farm import Farm, FarmSettings
from localspec.engine.model import LlamaModel
from localspec.services.train.building import build, scale_inputs
from localspec.services.train.export import Exported, export
from localspec.services.train.nets import Batch
from localspec.services.train.vocabulary import DraftVocabulary
from localspec.services.train.weights import Verifier
from tests import zoo

LAYERS = (0, 1, 2)
STEPS = 3
TEXT = zoo.byte_ids("the quick brown fox jumps over it")


@pytest.fixture
def verifier(tmp_path: Path) -> Path:
    return zoo.tiny_llama(tmp_path / "verifier.gguf", layers=3)


def hidden_rows(path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Layer inputs (1, L, F) and last rows (1, L, D) of the text."""
    with LlamaModel(path, gpu_layers=0) as model, Farm(model, FarmSettings(1, 64, LAYERS)) as farm:
        crop = farm.read(0, TEXT)
    return torch.from_numpy(crop.layers.reshape(1, len(TEXT), -1)), torch.from_numpy(crop.last[None])


def batch_of(layers: torch.Tensor, last: torch.Tensor) -> Batch:
    tokens = torch.tensor([[*TEXT, 0]])
    return Batch(tokens, layers, last, torch.tensor([0]), torch.tensor([len(TEXT) + 1]))


@pytest.mark.parametrize(("weights", "tolerance"), [("F32", 1e-2), ("F16", 3e-2)])
def test_eagle3_in_torch_and_in_llama_cpp(verifier: Path, tmp_path: Path, weights: str, tolerance: float) -> None:
    layers, last = hidden_rows(verifier)
    vocabulary = DraftVocabulary.of(range(0, 261, 2), 261)
    net = build("eagle3", Verifier.read(read_model(verifier)), vocabulary, layers=3, steps=STEPS, seed=1)
    scale_inputs(net, layers[0])
    path = tmp_path / "head.gguf"
    export(net, path, verifier=verifier, vocabulary=vocabulary, layers=LAYERS, weights=weights)
    with torch.no_grad():
        guesses = list(net.eval().guesses(batch_of(layers, last)))
    first = len(TEXT) - STEPS - 1  # row of the token before the pending one
    expected = []
    for guess in guesses:
        places = guess.rows.nonzero()[:, 1].tolist()
        row = guess.hidden[places.index(first + guess.step)]
        expected.append((net.output.weight @ row).detach().numpy())
    found = drafted(verifier, path, TEXT[: first + 2], TEXT[first + 2 :])
    for step, (mine, theirs) in enumerate(zip(expected, found, strict=False)):
        assert np.abs(mine - theirs[vocabulary.ids]).max() < tolerance, f"step {step + 1}"
        others = np.delete(theirs, vocabulary.ids)
        assert np.isneginf(others).all()


def drafted(verifier: Path, head: Path, text: list[int], more: list[int]) -> list[np.ndarray]:
    """Logits of the native head behind `text`, and behind each of `more` on its own rows."""
    rows = []
    with LlamaModel(verifier, gpu_layers=0) as model, LlamaModel(head, gpu_layers=0) as head_model:
        settings = ContextSettings(capacity=64)
        context = LlamaContext(model, settings)
        native = Eagle3Head(head_model, context, settings)
        context.prefill(text[:-1], logits=False)
        result = native.follow(np.array(text, dtype=np.int32))
        assert result is not None
        rows.append(result.logits(0).copy())
        rows.extend(native.step(token).logits(0).copy() for token in more[: STEPS - 1])
        native.close()
        context.close()
    return rows


@pytest.mark.parametrize("kind", ["eagle3", "eagle1", "medusa"])
def test_a_head_is_read_back_as_it_was_written(verifier: Path, tmp_path: Path, kind: str) -> None:
    vocabulary = DraftVocabulary.of(range(1, 100), 261)
    verifier_weights = Verifier.read(read_model(verifier))
    net = build(kind, verifier_weights, vocabulary, layers=3, steps=2, seed=1)
    for parameter in net.parameters():
        if parameter.requires_grad:  # what is frozen is the verifier's own, and not in the file
            parameter.data.add_(0.01)
    export(net, tmp_path / "head.gguf", verifier=verifier, vocabulary=vocabulary, layers=LAYERS, weights="F32")
    head = Exported(tmp_path / "head.gguf")
    assert head.kind == kind
    assert head.vocabulary(261).ids.tolist() == vocabulary.ids.tolist()
    other = build(kind, verifier_weights, vocabulary, layers=3, steps=2, seed=2)
    head.load_into(other, vocabulary)
    for name, value in net.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name
