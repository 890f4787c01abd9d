"""The toy keeps to the rules of a real context, so that what is proven on it holds elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from localspec.core.draft import EMPTY, Draft, Ids
from localspec.engine.toy import END, ToyContext, ToyModel
from localspec.errors import ContextFullError, DecodeError

TEXT = [3, 1, 4, 1, 5, 9, 2, 6]


def ids(*tokens: int) -> Ids:
    return np.array(tokens, dtype=np.int32)


@pytest.fixture
def toy() -> ToyContext:
    context = ToyContext(ToyModel(seed=1), capacity=16, draft_room=6, leaves=3)
    context.prefill(TEXT)
    return context


def test_rows_follow_the_last_two_tokens(toy: ToyContext) -> None:
    draft = Draft(ids(7, 8, 9), ids(-1, -1, 1))
    result = toy.evaluate(10, draft)
    expected = [(6, 10), (10, 7), (10, 8), (8, 9)]
    for row, (before, last) in enumerate(expected):
        assert np.array_equal(result.logits(row), toy.model.row(before, last))


def test_commit_keeps_one_path(toy: ToyContext) -> None:
    toy.evaluate(10, Draft(ids(7, 8, 9), ids(-1, -1, 1)))
    toy.commit((1, 2))
    assert toy.tokens.tolist() == [*TEXT, 10, 8, 9]


def test_a_rewind_ends_a_round(toy: ToyContext) -> None:
    toy.evaluate(10, Draft.chain([7]))
    toy.rewind(len(TEXT))
    assert toy.tokens.tolist() == TEXT
    toy.evaluate(11, EMPTY)


def test_a_tree_grows_below_the_last_token(toy: ToyContext) -> None:
    first = toy.grow(ids(7, 8), ids(-1, -1))
    assert np.array_equal(first.logits(1), toy.model.row(6, 8))
    second = toy.grow(ids(9), ids(1))
    assert np.array_equal(second.logits(0), toy.model.row(8, 9))
    toy.commit((1, 2))
    assert toy.tokens.tolist() == [*TEXT, 8, 9]


def test_rows_expire(toy: ToyContext) -> None:
    result = toy.evaluate(10, EMPTY)
    toy.commit(())
    toy.evaluate(11, EMPTY)
    with pytest.raises(AssertionError):
        result.logits(0)


def test_its_limits_are_a_real_contexts(toy: ToyContext) -> None:
    with pytest.raises(ContextFullError):
        toy.prefill([1] * 17)
    with pytest.raises(ContextFullError):
        toy.evaluate(10, Draft.chain([1] * 7))
    with pytest.raises(ContextFullError):
        toy.grow(ids(*[1] * 7), ids(*[-1] * 7))
    with pytest.raises(DecodeError):
        toy.evaluate(10, Draft.chain([27]))
    with pytest.raises(DecodeError):
        toy.rewind(9)
    assert toy.tokens.tolist() == TEXT


def test_one_commit_per_evaluation(toy: ToyContext) -> None:
    with pytest.raises(AssertionError):
        toy.commit(())
    toy.evaluate(10, EMPTY)
    with pytest.raises(AssertionError):
        toy.evaluate(10, EMPTY)


def test_a_prefill_can_be_cancelled(toy: ToyContext) -> None:
    asked = iter([False, False, True])
    assert toy.prefill([*TEXT, 7, 8, 9], cancelled=lambda: next(asked)) is None
    assert toy.tokens.tolist() == [*TEXT, 7, 8]


def test_progress_counts_the_tokens_that_are_new(toy: ToyContext) -> None:
    """Where the whole text was there, one token is evaluated again: it once was one of none."""
    seen: list[tuple[int, int]] = []
    toy.prefill([*TEXT, 7, 8], progress=lambda done, total: seen.append((done, total)))
    toy.prefill([*TEXT, 7, 8], progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2), (1, 1)]


def test_a_blurred_toy_is_a_draft_that_often_agrees() -> None:
    sharp, blurred = ToyModel(seed=1), ToyModel(seed=1, blur=0.2)
    pairs = [(before, last) for before in range(27) for last in range(27)]
    same = np.mean([sharp.row(*pair).argmax() == blurred.row(*pair).argmax() for pair in pairs])
    assert 0.5 < same < 1.0


def test_letters_stand_for_tokens() -> None:
    vocab = ToyModel().vocab
    text = vocab.tokenize("hello", add_special=True, parse_special=True)
    assert b"".join(map(vocab.piece, text)) == b"hello"
    assert vocab.piece(END) == b""
    assert vocab.piece(END, special=True) == b"<end>"
    assert vocab.is_end(END)
