"""EAGLE-3 heads on llama.cpp against numpy, and their caches against fresh ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.core.draft import Draft, Ids
from localspec.engine import native
from localspec.engine.base import FeatureSpec
from localspec.engine.context import ContextSettings, LlamaContext
from localspec.engine.eagle3 import CHUNK, FEW, Eagle3Head
from localspec.engine.model import LlamaModel
from localspec.engine.native import lib
from localspec.errors import ContextFullError, DecodeError, LoadError
from tests import zoo
from tests.eagle3 import KINDS, Kind, Reference, tiny_eagle3, verifier_ends

SETTINGS = ContextSettings(capacity=256, draft_room=8, leaves=6, flash_attn="off")
TEXT = np.random.default_rng(1).integers(5, 261, 200).astype(np.int32)
VOCABULARY = zoo.byte_vocabulary()
LAYERS = 4
Rows = npt.NDArray[np.float32]


@pytest.fixture(scope="module")
def verifier_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaModel]:
    path = zoo.tiny_llama(tmp_path_factory.mktemp("eagle3") / "verifier.gguf", layers=LAYERS)
    with LlamaModel(path, gpu_layers=0) as model:
        yield model


@pytest.fixture(scope="module")
def head_models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Kind, LlamaModel]]:
    folder = tmp_path_factory.mktemp("heads")
    found = {kind: LlamaModel(tiny_eagle3(folder / f"{kind}.gguf", kind), gpu_layers=0) for kind in KINDS}
    yield found
    for model in found.values():
        model.close()


@pytest.fixture
def verifier(verifier_model: LlamaModel) -> Iterator[LlamaContext]:
    with LlamaContext(verifier_model, SETTINGS) as context:
        yield context


@pytest.fixture
def head(verifier: LlamaContext, head_models: dict[Kind, LlamaModel]) -> Iterator[Eagle3Head]:
    with Eagle3Head(head_models[KINDS[0]], verifier, SETTINGS) as made:
        yield made


def follow(head: Eagle3Head, verifier: LlamaContext, text: Ids) -> Rows:
    """The head's row behind `text`, once the verifier holds all but its last token."""
    verifier.prefill(text[:-1], logits=False)
    result = head.follow(text)
    assert result is not None
    return result.logits(0).copy()


def assert_alike(row: Rows, expected: npt.NDArray[np.floating], tolerance: float = 1e-3) -> None:
    inside = np.isfinite(expected)
    assert (np.isneginf(row) == ~inside).all(), "only the draft's vocabulary has logits"
    assert np.abs(expected[inside]).max() > 1.0
    assert np.abs(row[inside] - expected[inside]).max() <= tolerance * np.abs(expected[inside]).max()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_step_is_what_numpy_says(
    kind: Kind, verifier: LlamaContext, head_models: dict[Kind, LlamaModel], verifier_model: LlamaModel
) -> None:
    """True pairs, then steps on the head's own rows, then a tree below the same text."""
    embedding, output = verifier_ends(VOCABULARY)
    reference = Reference(kind, VOCABULARY, embedding=embedding, output=output)
    with LlamaContext(verifier_model, SETTINGS) as other:
        capture = other.capture(FeatureSpec(kind.layers))
        other.prefill(TEXT[:29], logits=False)
        fused = reference.fuse(capture.rows(0, 29))
    expected, row = np.zeros(0), np.zeros(0)
    for position in range(29):
        expected, row = reference.step(int(TEXT[position + 1]), fused[position])
    with Eagle3Head(head_models[kind], verifier, SETTINGS) as head:
        assert_alike(follow(head, verifier, TEXT[:30]), expected)
        chain, own = reference.copy(), row
        for token in (9, 100, 200, 7):
            expected, own = chain.step(token, own)
            assert_alike(head.step(token).logits(0), expected)
        assert_alike(follow(head, verifier, TEXT[:30]), reference.copy().step(int(TEXT[29]), fused[28])[0], 1.0)
        tokens, parents = np.array([9, 50, 60, 70], dtype=np.int32), np.array([-1, -1, 0, 1], dtype=np.int32)
        layers = [head.grow(tokens[:2], parents[:2]), None]
        rows = [layers[0].logits(i).copy() for i in range(2)]  # type: ignore[union-attr]
        second = head.grow(tokens[2:], parents[2:])
        rows += [second.logits(i).copy() for i in range(2)]
    for path, got in (([9], rows[0]), ([50], rows[1]), ([9, 60], rows[2]), ([50, 70], rows[3])):
        branch, own = reference.copy(), row
        for token in path:
            expected, own = branch.step(token, own)
        assert_alike(got, expected)


edits = st.lists(
    st.tuples(st.integers(1, 150), st.integers(1, 90), st.sampled_from(["", "chain", "tree"])), min_size=1, max_size=6
)


@settings(max_examples=20)
@given(edits)
def test_the_cache_follows_any_text(
    verifier_model: LlamaModel, head_models: dict[Kind, LlamaModel], steps: list[tuple[int, int, str]]
) -> None:
    """Edits, rollbacks, drafts that are dropped: what follows is as in a fresh head, and no more is evaluated twice."""
    rng = np.random.default_rng(len(steps))
    with (
        LlamaContext(verifier_model, SETTINGS) as verifier,
        Eagle3Head(head_models[KINDS[0]], verifier, SETTINGS) as head,
    ):
        text = TEXT[:2]
        for keep, more, drafts in steps:
            kept = min(keep, len(text))
            text = np.concatenate([text[:kept], rng.integers(5, 261, more).astype(np.int32)])
            text = text[:240] if len(text) > 1 else TEXT[:2]
            before = head.evaluated
            row = follow(head, verifier, text)
            assert head.evaluated - before <= len(text) - kept + 2
            if drafts == "chain":
                for token in (5, 6, 7):
                    head.step(token)
            elif drafts == "tree":
                ids, parents = np.array([5, 6, 7], dtype=np.int32), np.array([-1, -1, -1], dtype=np.int32)
                head.grow(ids, parents)
                head.grow(ids, np.array([0, 2, 2], dtype=np.int32))
        with (
            LlamaContext(verifier_model, SETTINGS) as other,
            Eagle3Head(head_models[KINDS[0]], other, SETTINGS) as fresh,
        ):
            assert_alike(row, follow(fresh, other, text))


def test_rounds_of_the_verifier_are_followed(
    verifier: LlamaContext, head: Eagle3Head, verifier_model: LlamaModel
) -> None:
    """Accepted tokens come again with the verifier's own rows: two of four, a branch, and a plain pass."""
    verifier.prefill(TEXT[:40], logits=False)
    tree = Draft(np.array([7, TEXT[44], 8, TEXT[45]], dtype=np.int32), np.array([-1, -1, 0, 1], dtype=np.int32))
    for start, draft, path in (
        (40, Draft.chain(TEXT[41:45]), [0, 1]),
        (43, tree, [1, 3]),
        (46, Draft.chain([]), []),
    ):
        result = head.follow(TEXT[: start + 1])
        assert result is not None
        head.step(int(TEXT[start + 1]))
        verifier.evaluate(int(TEXT[start]), draft)
        verifier.commit(path)
    result = head.follow(TEXT[:48])
    assert result is not None
    with LlamaContext(verifier_model, SETTINGS) as other, Eagle3Head(head.model, other, SETTINGS) as fresh:
        assert_alike(result.logits(0), follow(fresh, other, TEXT[:48]))


def test_reading_again_costs_one_pair(verifier: LlamaContext, head: Eagle3Head) -> None:
    first = follow(head, verifier, TEXT[:100])
    before = head.evaluated
    assert (follow(head, verifier, TEXT[:100]) == first).all()
    assert head.evaluated - before == 1
    assert head.follow(TEXT[:100], logits=False) is None
    assert head.evaluated - before == 1


@pytest.mark.parametrize("count", [2, 3, FEW + 1, FEW + 2, CHUNK + 1, CHUNK + 2, CHUNK + FEW + 2, 2 * CHUNK + 1])
def test_however_long_the_text_is(
    verifier: LlamaContext, head: Eagle3Head, count: int, verifier_model: LlamaModel
) -> None:
    """Pieces of every length, against one pair after the other."""
    row = follow(head, verifier, TEXT[:count])
    with LlamaContext(verifier_model, SETTINGS) as other, Eagle3Head(head.model, other, SETTINGS) as slow:
        for length in range(2, count + 1):
            expected = follow(slow, other, TEXT[:length])
    assert_alike(row, expected)


def test_where_there_are_no_rows_there_is_no_law(verifier: LlamaContext, head: Eagle3Head) -> None:
    assert head.follow(TEXT[:1]) is None
    verifier.prefill(TEXT[:20], logits=False)
    assert head.follow(TEXT[:20]) is None, "the verifier is one token further"
    assert head.follow(np.append(TEXT[:19], np.int32(9))) is None or TEXT[19] == 9
    head.listen(False)
    verifier.prefill(TEXT[:30], logits=False)
    assert head.follow(TEXT[:31]) is None
    head.listen(True)
    verifier.prefill(TEXT[:30], logits=False)
    assert head.follow(TEXT[:31]) is not None


def test_reading_can_be_cancelled(verifier: LlamaContext, head: Eagle3Head, verifier_model: LlamaModel) -> None:
    verifier.prefill(TEXT[:190], logits=False)
    answers = iter([False, True])
    assert head.follow(TEXT[:191], cancelled=lambda: next(answers)) is None
    assert head.evaluated == CHUNK
    row = follow(head, verifier, TEXT[:191])
    with LlamaContext(verifier_model, SETTINGS) as other, Eagle3Head(head.model, other, SETTINGS) as fresh:
        assert_alike(row, follow(fresh, other, TEXT[:191]))


def test_what_does_not_fit_is_refused(verifier: LlamaContext, head: Eagle3Head) -> None:
    follow(head, verifier, TEXT[:10])
    for token in range(8):
        head.step(token)
    with pytest.raises(ContextFullError):
        head.step(8)
    follow(head, verifier, TEXT[:10])
    with pytest.raises(ContextFullError, match="9 nodes"):
        head.grow(np.arange(9, dtype=np.int32), np.full(9, -1, dtype=np.int32))
    follow(head, verifier, TEXT[:10])


def test_a_failed_evaluation_is_an_error_and_the_head_goes_on(verifier: LlamaContext, head: Eagle3Head) -> None:
    row = follow(head, verifier, TEXT[:10])
    with pytest.raises(DecodeError, match="head"):
        head.step(100_000)
    assert_alike(follow(head, verifier, TEXT[:10]), row)


def test_a_closed_head_is_not_listened_for(verifier: LlamaContext, head: Eagle3Head) -> None:
    follow(head, verifier, TEXT[:10])
    head.close()
    head.close()
    verifier.prefill(TEXT[:20], logits=False)
    assert head.capture.end == 9
    assert verifier.dependants == 0
    with pytest.raises(DecodeError, match="closed"):
        head.follow(TEXT[:21])


def test_layers_that_the_verifier_does_not_have_are_told(verifier: LlamaContext, tmp_path: Path) -> None:
    path = tiny_eagle3(tmp_path / "deep.gguf", Kind(layers=(1, 2, 9)))
    with LlamaModel(path, gpu_layers=0) as model, pytest.raises(LoadError, match="layer 9"):
        Eagle3Head(model, verifier, SETTINGS)
    assert verifier.dependants == 0


def test_a_row_that_is_not_there_is_an_error(verifier: LlamaContext, head: Eagle3Head) -> None:
    verifier.prefill(TEXT[:9], logits=False)
    result = head.follow(TEXT[:10])
    assert result is not None
    for row in (-1, 1):
        with pytest.raises(IndexError, match=f"row {row} of 1"):
            result.logits(row)


def test_a_rewound_head_reads_what_follows_anew(verifier: LlamaContext, head: Eagle3Head) -> None:
    """Also when it was in the middle of a draft, and further than it ever was."""
    expected = follow(head, verifier, TEXT[:30]).copy()
    head.step(7)
    head.rewind(20)
    assert head.nodes == min(SETTINGS.draft_room, SETTINGS.capacity - 19)
    before = head.evaluated
    assert_alike(follow(head, verifier, TEXT[:30]), expected)
    assert head.evaluated == before + 10, "the pairs from the token before the cut on"
    head.rewind(1000)
    assert_alike(follow(head, verifier, TEXT[:30]), expected)
    head.rewind(0)
    assert_alike(follow(head, verifier, TEXT[:30]), expected)


def test_a_head_that_nobody_asks_costs_the_verifier_nothing(verifier: LlamaContext, head: Eagle3Head) -> None:
    head.listen(False)
    verifier.prefill(TEXT[:20], logits=False)
    assert head.capture.end == 0
    assert head.follow(TEXT[:21]) is None
    head.listen(True)
    assert head.capture.on
    before = verifier.evaluated
    row = follow(head, verifier, TEXT[:21])
    assert verifier.evaluated == before + 20, "what it missed is evaluated again"
    head.listen(True)
    assert_alike(follow(head, verifier, TEXT[:21]), row)


def test_no_memory_for_a_head_leaves_the_verifier_as_it_was(
    verifier: LlamaContext, head_models: dict[Kind, LlamaModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The context of a head is made last: a verifier must not go on collecting rows for a head that is not there."""
    verifier.prefill(TEXT[:20], logits=False)
    with monkeypatch.context() as broken:
        broken.setattr(lib, "llama_init_from_model", lambda *_: None)
        with pytest.raises(LoadError, match="could not make a context for the head") as caught:
            Eagle3Head(head_models[KINDS[0]], verifier, SETTINGS)
    assert "--ctx-size" in caught.value.hint
    assert verifier.dependants == 0
    assert not verifier._listening.captures
    assert verifier.tokens.tolist() == TEXT[:20].tolist()


def test_a_build_that_cannot_tell_which_layers_a_head_reads(
    verifier: LlamaContext, head_models: dict[Kind, LlamaModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function is not declared for C; another llama-cpp-python may have it under another name, or not at all."""
    monkeypatch.setattr(native, "_target_layers", None)
    with pytest.raises(LoadError, match="cannot tell which layers") as caught:
        Eagle3Head(head_models[KINDS[0]], verifier, SETTINGS)
    assert "llama-cpp-python" in caught.value.hint
    assert not verifier._listening.captures
