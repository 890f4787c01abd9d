"""Whole answers on real weights: greedy text up to near ties; a model drafting for itself is nearly always right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from localspec.drafters.registry import REGISTRY
from localspec.engine.context import ContextSettings, LlamaContext
from localspec.engine.model import LlamaModel
from localspec.loop.answer import Answer
from localspec.loop.generation import Limits
from tests.loop.answers import Reference, Setting, greedy
from tests.loop.scripted import Lending, Scripted, random_drafts

pytestmark = pytest.mark.gguf

SETTINGS = ContextSettings(capacity=1024, draft_room=8, batch=128, threads=1)
LOOPING = "1 2 3 4 5 6 7 8 9 10\n1 2 3 4 5 6 7 8 9 10\n1 2 3 4"
STORY = "Once upon a time there was a lighthouse keeper who"
COUNT = 40
KERNEL_NOISE = 0.8
"""Logits of quantised SmolLM2 move by this much between batch shapes; a first difference at a larger gap is a bug."""


@pytest.fixture(scope="module")
def smollm2_model(smollm2: Path) -> Iterator[LlamaModel]:
    with LlamaModel(smollm2, gpu_layers=0) as model:
        yield model


@pytest.fixture(scope="module")
def plain(smollm2_model: LlamaModel) -> Callable[[str], tuple[list[int], Reference]]:
    known: dict[str, tuple[list[int], Reference]] = {}

    def decoded(text: str) -> tuple[list[int], Reference]:
        if text not in known:
            prompt = smollm2_model.vocab.tokenize(text, add_special=True, parse_special=False)
            with LlamaContext(smollm2_model, SETTINGS) as context:
                known[text] = prompt, greedy(context, smollm2_model.vocab, prompt, COUNT, ends=False)
        return known[text]

    return decoded


def drafted_by_itself(model: LlamaModel, prompt: list[int], *, N: int, count: int) -> tuple[Answer, list[str]]:
    """Greedy, the verifier's own weights in a second context as the draft."""
    with LlamaContext(model, SETTINGS) as context:
        setting = Setting(context, model.vocab)
        entry = REGISTRY["model"]
        drafter = entry.drafter_class(entry.parse({}), Lending(model.vocab, lambda: LlamaContext(model, SETTINGS)))
        try:
            return setting.answer(prompt, drafter=drafter, N=N, limits=Limits(count, ignore_end=True)), setting.warnings
        finally:
            drafter.close()


@pytest.mark.parametrize("N", [1, 7])
@pytest.mark.parametrize("text", [LOOPING, STORY], ids=["looping", "story"])
@pytest.mark.parametrize("name", ["ngram", "wrong"])
def test_greedy_text_is_that_of_plain_decoding(
    smollm2_model: LlamaModel, plain: Callable[[str], tuple[list[int], Reference]], name: str, text: str, N: int
) -> None:
    """B47, B49: the first difference, if any, is a near tie."""
    prompt, expected = plain(text)
    vocab = smollm2_model.vocab
    if name == "ngram":
        drafter = REGISTRY[name].drafter_class(REGISTRY[name].parse({}), Lending(vocab))
    else:
        drafter = Scripted(random_drafts(vocab.size, seed=N))
    with LlamaContext(smollm2_model, SETTINGS) as context:
        setting = Setting(context, vocab)
        answer = setting.answer(prompt, drafter=drafter, N=N, limits=Limits(COUNT, ignore_end=True))
    assert expected.agrees_with(answer.tokens, near_tie=KERNEL_NOISE)
    assert setting.warnings == []


@pytest.mark.parametrize("N", [1, 6])
def test_smollm2_drafting_for_itself_is_accepted_to_the_end(
    smollm2_model: LlamaModel, plain: Callable[[str], tuple[list[int], Reference]], N: int
) -> None:
    """B27: an off-by-one of the draft's cache lets acceptance decay with length and changes no text."""
    prompt, _ = plain(STORY)
    answer, warnings = drafted_by_itself(smollm2_model, prompt, N=N, count=100)
    assert warnings == []
    assert answer.stats.alpha is not None
    assert answer.stats.alpha > 0.97
    assert answer.stats.accepted_by_position[-1] >= 0.9 * answer.stats.accepted_by_position[0] - 2


def test_gemma_drafts_for_itself_past_the_window(gemma: Path) -> None:
    """B31: with 768 cells for a window of 512 the cache lets go of old positions in the middle of this answer."""
    with LlamaModel(gemma, gpu_layers=0) as model:
        text = model.vocab.tokenize(STORY * 80, add_special=True, parse_special=False)[:730]
        answer, warnings = drafted_by_itself(model, text, N=4, count=60)
    assert warnings == []
    assert answer.stats.alpha is not None
    assert answer.stats.alpha > 0.85
