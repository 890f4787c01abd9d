"""Heads of ggml beside a verifier of llama.cpp: what they read, when they have nothing to say, what they leave."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from localspec.core.draft import Ids
from localspec.engine.context import ContextSettings, LlamaContext
from localspec.engine.eagle1 import Eagle1Head
from localspec.engine.medusa import MedusaGraph, MedusaHead
from localspec.engine.model import LlamaModel
from localspec.errors import DecodeError
from tests import zoo
from tests.engine.test_heads import VOCAB, WIDTH, Eagle, kept, medusa_shapes, split

TEXT = np.random.default_rng(2).integers(5, VOCAB, 100).astype(np.int32)
OTHER = np.concatenate([TEXT[:12], TEXT[:0:-1]])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaModel]:
    with LlamaModel(zoo.tiny_llama(tmp_path_factory.mktemp("heads") / "verifier.gguf"), gpu_layers=0) as made:
        assert made.width == WIDTH
        yield made


@pytest.fixture
def verifier(model: LlamaModel) -> Iterator[LlamaContext]:
    with LlamaContext(model, ContextSettings(capacity=256, draft_room=8, leaves=4, flash_attn="off")) as context:
        yield context


@pytest.fixture
def eagle(verifier: LlamaContext) -> Iterator[Eagle1Head]:
    head = Eagle1Head(Eagle(capacity=256).head, verifier)
    yield head
    head.close()


@pytest.fixture
def medusa(verifier: LlamaContext) -> Iterator[MedusaHead]:
    tensors, _ = kept(medusa_shapes(1, False), "F32")
    rest, output = split(tensors)
    head = MedusaHead(MedusaGraph(rest, output, width=WIDTH, heads=3, blocks=1), verifier)
    yield head
    head.close()


def follow(head: Eagle1Head, verifier: LlamaContext, text: Ids) -> np.ndarray:
    """The head's row behind `text`, once the verifier holds all but its last token."""
    verifier.prefill(text[:-1], logits=False)
    result = head.follow(text)
    assert result is not None
    assert result.rows == 1
    return np.array(result.logits(0))


def test_eagle1_says_the_same_however_it_came_there(eagle: Eagle1Head, verifier: LlamaContext) -> None:
    """Straight, after another text, after a draft, after a rewind to any place."""
    expected = follow(eagle, verifier, TEXT[:40])
    for way in ("another text", "a draft", *range(0, 120, 13)):
        if way == "another text":
            follow(eagle, verifier, OTHER[:60])
        elif way == "a draft":
            eagle.step(int(TEXT[50]))
            eagle.grow(np.array([7, 8], dtype=np.int32), np.array([0, 0], dtype=np.int32))
        else:
            eagle.rewind(int(way))
        np.testing.assert_allclose(follow(eagle, verifier, TEXT[:40]), expected, atol=1e-4)


def test_a_rewound_eagle1_keeps_what_lies_before(eagle: Eagle1Head, verifier: LlamaContext) -> None:
    follow(eagle, verifier, TEXT[:40])
    eagle.rewind(31)
    before = eagle.evaluated
    follow(eagle, verifier, TEXT[:40])
    assert eagle.evaluated == before + 9, "the pairs of the positions 30 to 38"
    eagle.rewind(1000)
    before = eagle.evaluated
    follow(eagle, verifier, TEXT[:40])
    assert eagle.evaluated == before + 1, "the last pair is read again for its row"


def test_without_the_verifiers_rows_nothing_is_said(
    eagle: Eagle1Head, medusa: MedusaHead, verifier: LlamaContext
) -> None:
    """The verifier holds another text, or as many tokens of another: then its rows are not those of this one."""
    verifier.prefill(TEXT[:20], logits=False)
    other = TEXT[:21].copy()
    other[3] += 1
    for text in (TEXT[:1], TEXT[:20], TEXT[:30], other):
        assert eagle.follow(text) is None
        assert medusa.guess(text) is None
    assert eagle.follow(TEXT[:21]) is not None
    assert len(medusa.guess(TEXT[:21]) or ()) == 3


def test_eagle1_stops_reading_when_it_is_told_to(eagle: Eagle1Head, verifier: LlamaContext) -> None:
    verifier.prefill(TEXT[:40], logits=False)
    assert eagle.follow(TEXT[:41], cancelled=lambda: True) is None
    assert eagle.evaluated == 0
    assert eagle.follow(TEXT[:41], logits=False) is None
    assert eagle.evaluated == 40
    assert eagle.follow(TEXT[:41]) is not None


def test_a_rewind_costs_medusa_nothing(medusa: MedusaHead, verifier: LlamaContext) -> None:
    verifier.prefill(TEXT[:20], logits=False)
    expected = medusa.guess(TEXT[:21])
    medusa.rewind(0)
    found = medusa.guess(TEXT[:21])
    assert expected is not None
    assert found is not None
    np.testing.assert_array_equal(np.array(found), np.array(expected))


def test_closed_heads_say_so_and_are_not_listened_for(
    eagle: Eagle1Head, medusa: MedusaHead, verifier: LlamaContext
) -> None:
    verifier.prefill(TEXT[:20], logits=False)
    for head in (eagle, medusa):
        head.close()
        head.close()
    verifier.prefill(TEXT[:30], logits=False)
    assert (eagle.capture.end, medusa.capture.end) == (20, 20)
    for use in (lambda: eagle.follow(TEXT[:31]), lambda: eagle.step(7), lambda: eagle.rewind(0)):
        with pytest.raises(DecodeError, match="closed"):
            use()
    with pytest.raises(DecodeError, match="closed"):
        medusa.guess(TEXT[:31])
