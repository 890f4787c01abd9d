"""Rollback on real weights: quantised attention (SmolLM2) and a sliding window that has moved on (Gemma 3).

Quantised weights compute a position a little differently in batches of different shape, so laws are compared, not bits;
a cache that holds something else than the text is far beyond that (measured: 0.2 and more, against 0.05 at most).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from localspec.core.draft import EMPTY, Draft
from localspec.engine.base import Pass
from localspec.engine.context import ContextSettings, LlamaContext
from localspec.engine.model import LlamaModel

pytestmark = pytest.mark.gguf

SMALL = ContextSettings(capacity=512, draft_room=8, leaves=8, threads=1)
# A window of 512 tokens in 768 cells: with 1000 tokens the cache has long let go of the beginning.
WINDOW = ContextSettings(capacity=1024, draft_room=8, batch=128, threads=1)
STORY = (
    "The lighthouse keeper wrote down the weather every morning: wind from the west, rain before noon, the sea grey as "
    "slate. On the third day a ship came in without a crew, and the only thing aboard was a letter addressed to him. "
)
Probs = npt.NDArray[np.float64]


def probs(row: npt.NDArray[np.float32]) -> Probs:
    weights = np.exp(row.astype(np.float64) - float(row.max()))
    law: Probs = weights / weights.sum()
    return law


def laws(result: Pass) -> list[Probs]:
    return [probs(result.logits(row)) for row in range(result.rows)]


def distance(left: list[Probs], right: list[Probs]) -> float:
    """Mean total variation over rows."""
    return float(np.mean([np.abs(a - b).sum() / 2 for a, b in zip(left, right, strict=True)]))


def after(context: LlamaContext, text: list[int], draft: Draft) -> list[Probs]:
    """Laws of a round on top of `text` but its last token, in a context brought there by whatever way it takes."""
    context.prefill(text[:-1], logits=False)
    found = laws(context.evaluate(text[-1], draft))
    context.rewind(len(text) - 1)
    return found


@pytest.fixture(scope="module")
def smollm2_model(smollm2: Path) -> Iterator[LlamaModel]:
    with LlamaModel(smollm2, gpu_layers=0) as model:
        yield model


@pytest.fixture(scope="module")
def gemma_model(gemma: Path) -> Iterator[LlamaModel]:
    with LlamaModel(gemma, gpu_layers=0) as model:
        yield model


def tokens(model: LlamaModel, count: int) -> list[int]:
    return model.vocab.tokenize(STORY * 30, add_special=True, parse_special=False)[:count]


@pytest.mark.parametrize("seed", range(2))
def test_smollm2_after_rounds_equals_a_fresh_context(smollm2_model: LlamaModel, seed: int) -> None:
    """Chains and trees, accepted in part, four rounds; then the same text from nothing."""
    rng = np.random.default_rng(seed)
    text = tokens(smollm2_model, 40)
    with LlamaContext(smollm2_model, SMALL) as context, LlamaContext(smollm2_model, SMALL) as fresh:
        context.prefill(text, logits=False)
        for _ in range(4):
            count = int(rng.integers(1, 8))
            ids = rng.integers(100, 40_000, count).astype(np.int32)
            parents = np.array([int(rng.integers(-1, node)) if node else -1 for node in range(count)], dtype=np.int32)
            draft = Draft(ids, parents) if rng.random() < 0.5 else Draft.chain(ids)
            pending = int(rng.integers(100, 40_000))
            context.evaluate(pending, draft)
            path = draft.path(int(rng.integers(-1, count)))
            context.commit(path)
            text += [pending, *draft.tokens[list(path)].tolist()]
        assert context.tokens.tolist() == text
        draft = Draft.chain([500, 600, 700])
        assert distance(after(context, [*text, 400], draft), after(fresh, [*text, 400], draft)) < 0.08


def test_smollm2_trees_equal_chains(smollm2_model: LlamaModel) -> None:
    """Every path of a tree against the same path as a chain."""
    text = [*tokens(smollm2_model, 40), 400]
    draft = Draft(np.array([500, 600, 700, 800, 900], dtype=np.int32), np.array([-1, -1, 0, 0, 3], dtype=np.int32))
    with LlamaContext(smollm2_model, SMALL) as context:
        tree = after(context, text, draft)
        for leaf in (1, 2, 4):
            path = list(draft.path(leaf))
            chain = after(context, text, Draft.chain(draft.tokens[path]))
            assert distance([tree[0], *(tree[1 + node] for node in path)], chain) < 0.08


def test_gemma_past_its_window(gemma_model: LlamaModel) -> None:
    """B31: a short rollback is exact, a far one starts over instead of reading a window that is gone."""
    text = tokens(gemma_model, 1000)
    draft = Draft.chain(text[301:304])
    with LlamaContext(gemma_model, WINDOW) as context, LlamaContext(gemma_model, WINDOW) as fresh:
        assert gemma_model.window == 512
        context.prefill(text[:990], logits=False)
        for start in range(990, 996):
            context.evaluate(text[start], Draft.chain([1000, 2000, 3000]))
            context.commit(())
        assert context.evaluated == 990 + 6 * 4, "short rollbacks evaluate nothing again"
        near = after(context, text[:1000], draft)
        far = after(context, text[:301], draft)
        assert context.evaluated > 990 + 6 * 4 + 300
        assert distance(far, after(fresh, text[:301], draft)) < 0.08
        assert distance(near, after(fresh, text[:1000], draft)) < 0.08


def test_gemma_takes_chains_only(gemma_model: LlamaModel) -> None:
    settings = ContextSettings(capacity=256, draft_room=4, leaves=4, threads=1)
    with LlamaContext(gemma_model, settings) as context:
        assert context.leaves == 1
        context.prefill(tokens(gemma_model, 10))
        assert context.evaluate(100, EMPTY).rows == 1
