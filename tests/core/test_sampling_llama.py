"""The sampling law against llama.cpp's own sampler chain: the same ids survive, with the same probabilities.

Its samplers are applied one by one through the low-level interface; that needs no model, but rows of one are tried too.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt
import pytest

from localspec.core.sampling import Sampling

Row = npt.NDArray[np.float32]
Recent = npt.NDArray[np.int32]
OFF: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
CLOSE = 1e-5
TINY = 1e-30  # below it float32 weights end


def stages(sampling: Sampling, size: int) -> Iterator[Any]:
    """llama.cpp's samplers in its order."""
    if sampling.logit_bias:
        biases = (llama_cpp.llama_logit_bias * len(sampling.logit_bias))(*sampling.logit_bias.items())
        yield llama_cpp.llama_sampler_init_logit_bias(size, len(biases), biases)
    if sampling.penalises:
        yield llama_cpp.llama_sampler_init_penalties(
            size,
            sampling.penalty_last_n,
            sampling.repeat_penalty,
            sampling.frequency_penalty,
            sampling.presence_penalty,
        )
    yield llama_cpp.llama_sampler_init_top_k(sampling.top_k)
    yield llama_cpp.llama_sampler_init_top_p(sampling.top_p, 1)
    yield llama_cpp.llama_sampler_init_min_p(sampling.min_p, 1)
    yield llama_cpp.llama_sampler_init_temp(sampling.temperature)


def theirs(sampling: Sampling, logits: Row, recent: Recent) -> npt.NDArray[np.float64]:
    """(V,) probabilities after llama.cpp's chain; the last softmax is taken here in float64."""
    data = (llama_cpp.llama_token_data * len(logits))()
    table = np.frombuffer(data, dtype=[("id", np.int32), ("logit", np.float32), ("p", np.float32)])
    table["id"], table["logit"] = np.arange(len(logits)), logits
    array = llama_cpp.llama_token_data_array(data, len(logits), -1, False)
    for stage in stages(sampling, len(logits)):
        for token in recent.tolist():
            llama_cpp.llama_sampler_accept(stage, token)
        llama_cpp.llama_sampler_apply(stage, ctypes.byref(array))
        llama_cpp.llama_sampler_free(stage)
    kept = table[: array.size]
    probs = np.zeros(len(logits))
    probs[kept["id"]] = np.exp(kept["logit"].astype(np.float64) - float(kept["logit"].max()))
    return probs / probs.sum()


def assert_same(sampling: Sampling, logits: Row, recent: Recent) -> None:
    """The same ids with the same probabilities; which of several tied ids stay at an edge is anyone's choice."""
    ours, expected = sampling.law(logits, recent).dense(len(logits)), theirs(sampling, logits, recent)
    survives, should = ours > TINY, expected > TINY
    assert survives.sum() == should.sum()
    np.testing.assert_allclose(ours[survives & should], expected[survives & should], atol=CLOSE)
    tied = np.maximum(ours, expected)[survives ^ should]
    np.testing.assert_allclose(tied, expected[should].min(), rtol=1e-5)


SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.0},
    {"temperature": 0.3},
    {"temperature": 1.7},
    {**OFF, "temperature": 1.0},
    {**OFF, "top_k": 1},
    {**OFF, "top_k": 40},
    {**OFF, "top_k": 300},
    {**OFF, "top_p": 0.5},
    {**OFF, "top_p": 0.95},
    {**OFF, "min_p": 0.05},
    {**OFF, "min_p": 0.3, "temperature": 0.5},
    {"top_k": 100, "top_p": 0.9, "min_p": 0.02, "temperature": 0.6},
    {"top_k": 0},
    {"repeat_penalty": 1.3},
    {"repeat_penalty": 1.1, "frequency_penalty": 0.5, "presence_penalty": 0.5},
    {"frequency_penalty": -0.4, "penalty_last_n": 7},
    {"repeat_penalty": 1.5, "temperature": 0.0},
    {"logit_bias": {3: 4.0, 17: -100.0, 40: -np.inf, 5: 0.5}},
    {**OFF, "logit_bias": {3: 4.0, 17: -100.0}, "presence_penalty": 1.0},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("scale", [0.5, 2.0, 6.0])
@pytest.mark.parametrize("size", [50, 1500, 32_000])
def test_random_rows(settings: dict[str, Any], scale: float, size: int) -> None:
    for seed in range(3):
        rng = np.random.default_rng((seed, size))
        logits = (scale * rng.normal(size=size)).astype(np.float32)
        recent = np.concatenate([rng.integers(0, size, 70), np.argsort(-logits)[:5], [3, 3, 3]]).astype(np.int32)
        assert_same(Sampling(**settings), logits, recent)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_rows_with_ties(settings: dict[str, Any]) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        logits = np.round(2.0 * rng.normal(size=400), 1).astype(np.float32)
        recent = rng.integers(0, 400, 64).astype(np.int32)
        if settings.get("temperature") == 0.0 and not settings.get("repeat_penalty"):
            logits[logits.argmax() :] = logits.max()
        assert_same(Sampling(**settings), logits, recent)


@pytest.fixture(scope="module")
def text_rows(smollm2: Path) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Ids of a short text and SmolLM2's logits after each."""
    text = b"The cat sat on the mat. The dog sat on the cat. Once upon a time, 12 + 30 = 42, and def add(a, b): return"
    llama = llama_cpp.Llama(str(smollm2), n_ctx=128, logits_all=True, verbose=False)
    try:
        tokens = llama.tokenize(text)
        llama.eval(tokens)
        return np.array(tokens, dtype=np.int32), llama.scores[: len(tokens)].astype(np.float32).copy()
    finally:
        llama.close()


@pytest.mark.gguf
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_rows_of_a_real_model(
    text_rows: tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]], settings: dict[str, Any]
) -> None:
    tokens, logits = text_rows
    assert len(tokens) > 30
    for row in range(len(tokens)):
        assert_same(Sampling(**settings), logits[row], tokens[: row + 1])
