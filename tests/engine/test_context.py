"""What a context promises apart from remembering: pieces, limits, return codes, rows, transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from localspec.core.draft import EMPTY, Draft, Ids
from localspec.engine import native
from localspec.engine.batch import TokenBatch
from localspec.engine.context import ContextSettings, LlamaContext, common_prefix
from localspec.engine.memory import Truncation
from localspec.engine.model import LlamaModel
from localspec.engine.native import lib
from localspec.errors import ContextFullError, DecodeError, LoadError
from tests.engine.kinds import Kind
from tests.engine.reference import Reference

TEXT = [int(token) for token in np.random.default_rng(7).integers(5, 261, 40)]
NO_TOKEN = 99_999


def assert_intact(context: LlamaContext, reference: Reference, text: list[int], tolerance: float = 0.02) -> None:
    """The cache holds `text`, says so, and goes on as a fresh one would."""
    assert context.tokens.tolist() == text
    result = context.evaluate(50, EMPTY)
    assert np.abs(result.logits(0) - reference.rows([*text, 50])[0]).max() < tolerance
    context.rewind(len(text))


# -- prompts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 15, 16, 17, 33])
def test_a_prompt_is_evaluated_in_pieces(models: dict[str, LlamaModel], count: int) -> None:
    """B55: one token more than n_batch in one decode takes the whole process down."""
    settings = ContextSettings(capacity=256, draft_room=4, batch=16, flash_attn="off")
    with LlamaContext(models["llama"], settings) as context, Reference(models["llama"], settings) as reference:
        result = context.prefill(TEXT[:count])
        assert result is not None
        assert np.abs(result.logits(0) - reference.rows(TEXT[:count])[0]).max() < 0.02


def test_progress_counts_the_tokens_that_are_new(models: dict[str, LlamaModel]) -> None:
    with LlamaContext(models["llama"], ContextSettings(capacity=256, draft_room=4, batch=16)) as context:
        context.prefill(TEXT[:5])
        seen: list[tuple[int, int]] = []
        context.prefill(TEXT[:40], progress=lambda done, total: seen.append((done, total)))
        assert seen == [(16, 35), (32, 35), (35, 35)]
        assert context.evaluated == 40


@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_cancelled_prefill_keeps_whole_pieces(
    models: dict[str, LlamaModel], plain_reference: Reference, after: int
) -> None:
    """B25: Ctrl-C while a long prompt is read; what was read stays, and is right."""
    settings = ContextSettings(capacity=256, draft_room=4, batch=8, flash_attn="off")
    with LlamaContext(models["llama"], settings) as context:
        asked = iter([False] * after + [True] * 100)
        assert context.prefill(TEXT[:30], cancelled=lambda: next(asked)) is None
        assert context.length == 8 * after
        assert_intact(context, plain_reference, TEXT[: 8 * after])


def test_a_prefill_cancelled_inside_a_piece_goes_back_to_its_beginning(
    context: LlamaContext, reference: Reference, kind: Kind
) -> None:
    """ggml stops between graph nodes and leaves part of the piece in the cache (code 2)."""
    context.prefill(TEXT)
    text = TEXT + [int(token) for token in np.random.default_rng(1).integers(5, 261, 200)]
    asked = 0

    def cancelled() -> bool:
        nonlocal asked
        asked += 1
        return asked > 3

    assert context.prefill(text, cancelled=cancelled) is None
    assert context.length < len(text)
    if isinstance(context.memory, Truncation):
        assert context.length >= len(TEXT)
    assert_intact(context, reference, text[: context.length], kind.tolerance)


def test_a_prompt_beyond_the_context_is_refused_untouched(plain: LlamaContext, plain_reference: Reference) -> None:
    """B50."""
    plain.prefill(TEXT)
    with pytest.raises(ContextFullError, match="257 tokens do not fit a context of 256"):
        plain.prefill([10] * 257)
    assert_intact(plain, plain_reference, TEXT)


def test_capacity_is_what_was_asked(models: dict[str, LlamaModel]) -> None:
    """B52: llama.cpp rounds n_ctx up; an answer must end where the user said."""
    with LlamaContext(models["llama"], ContextSettings(capacity=300)) as context:
        assert context.capacity == 300
        context.prefill([10] * 300)
        with pytest.raises(ContextFullError):
            context.prefill([10] * 301)


# -- drafts -----------------------------------------------------------------------------------------------------------


def test_an_empty_draft_is_one_row(plain: LlamaContext, plain_reference: Reference) -> None:
    """B34."""
    plain.prefill(TEXT, logits=False)
    result = plain.evaluate(50, EMPTY)
    assert result.rows == 1
    plain.commit(())
    assert_intact(plain, plain_reference, [*TEXT, 50])


def test_a_draft_may_fill_the_context_to_the_last_token(plain: LlamaContext, plain_reference: Reference) -> None:
    """B52: the block that just fits is evaluated, one token more is refused before llama.cpp sees it."""
    text = (TEXT * 7)[:251]
    plain.prefill(text, logits=False)
    with pytest.raises(ContextFullError):
        plain.evaluate(50, Draft.chain([51, 52, 53, 54, 55]))
    assert plain.tokens.tolist() == text
    result = plain.evaluate(50, Draft.chain([51, 52, 53, 54]))
    assert np.abs(result.logits(4) - plain_reference.rows([*text, 50, 51, 52, 53, 54])[0]).max() < 0.02
    plain.commit((0, 1, 2, 3))
    assert plain.length == plain.capacity
    with pytest.raises(ContextFullError):
        plain.evaluate(56, EMPTY)


def test_a_draft_beyond_the_room_is_refused(models: dict[str, LlamaModel]) -> None:
    with LlamaContext(models["llama"], ContextSettings(capacity=256, draft_room=3)) as context:
        context.prefill(TEXT)
        with pytest.raises(ContextFullError):
            context.evaluate(50, Draft.chain([51, 52, 53, 54]))
        context.evaluate(50, Draft.chain([51, 52, 53]))


def test_the_room_is_not_limited_by_a_small_batch(models: dict[str, LlamaModel]) -> None:
    """B55: a draft is one decode, so n_batch must hold it."""
    with LlamaContext(models["llama"], ContextSettings(capacity=256, draft_room=20, batch=4)) as context:
        context.prefill(TEXT)
        assert context.evaluate(50, Draft.chain(TEXT[:20])).rows == 21


def test_too_many_leaves_are_an_error_and_no_crash(plain: LlamaContext, plain_reference: Reference) -> None:
    """B92: sequence ids beyond n_seq_max make llama.cpp fail, or abort when they are removed."""
    plain.prefill(TEXT)
    with pytest.raises(DecodeError, match="5 leaves"):
        plain.evaluate(50, Draft(np.arange(10, 15, dtype=np.int32), np.full(5, -1, dtype=np.int32)))
    assert_intact(plain, plain_reference, TEXT)


# -- return codes -----------------------------------------------------------------------------------------------------


def bad_pending(context: LlamaContext) -> None:
    context.evaluate(NO_TOKEN, EMPTY)


def bad_draft(context: LlamaContext) -> None:
    context.evaluate(50, Draft.chain([51, NO_TOKEN, 52]))


def bad_prompt(context: LlamaContext) -> None:
    context.prefill([*TEXT, NO_TOKEN])


@pytest.mark.parametrize("ask", [bad_pending, bad_draft, bad_prompt])
def test_an_unknown_token_is_an_error_and_the_cache_stays(
    context: LlamaContext, reference: Reference, kind: Kind, ask: Callable[[LlamaContext], None]
) -> None:
    """B28."""
    context.prefill(TEXT)
    with pytest.raises(DecodeError, match=r"invalid batch.*-1"):
        ask(context)
    assert_intact(context, reference, TEXT, kind.tolerance)


@pytest.mark.parametrize("shift", [-3, 2])
def test_a_shifted_position_is_an_error_and_the_cache_stays(
    context: LlamaContext, reference: Reference, kind: Kind, shift: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B28: the cache ends at X, the batch starts at X + 2; the code must be seen before stale rows are read."""
    context.prefill(TEXT)
    fill = TokenBatch.fill_chain
    shifts = iter([shift])

    def once(self: TokenBatch, pending: int, tokens: Ids, start: int) -> Any:
        return fill(self, pending, tokens, start + next(shifts, 0))

    with monkeypatch.context() as patch:
        patch.setattr(TokenBatch, "fill_chain", once)
        with pytest.raises(DecodeError, match=f"after position {len(TEXT)}"):
            context.evaluate(50, Draft.chain([51]))
    assert_intact(context, reference, TEXT, kind.tolerance)


@pytest.mark.parametrize(("code", "done"), [(1, False), (2, False), (2, True), (-1, False), (-3, False), (-3, True)])
def test_every_return_code_is_an_error_and_the_cache_stays(
    context: LlamaContext, reference: Reference, kind: Kind, code: int, done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B28: also when llama.cpp has changed the cache before it gave up, as 2 and fatal errors may (`done`)."""
    context.prefill(TEXT)
    context.evaluate(50, Draft.chain([51, 52]))
    context.commit((0,))
    decode = lib.llama_decode
    calls = 0

    def failing(handle: Any, batch: Any) -> int:
        nonlocal calls
        calls += 1
        if calls > 1:
            return int(decode(handle, batch))
        if done:
            decode(handle, batch)
        return code

    with monkeypatch.context() as patch:
        patch.setattr(lib, "llama_decode", failing)
        with pytest.raises(DecodeError, match=f"code {code}"):
            context.evaluate(53, Draft.chain([54, 55, 56]))
    assert_intact(context, reference, [*TEXT, 50, 51], kind.tolerance)


@pytest.mark.parametrize(("code", "done"), [(1, False), (-3, False), (-3, True)])
def test_a_failing_prefill_keeps_what_was_read(
    models: dict[str, LlamaModel], plain_reference: Reference, code: int, done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ContextSettings(capacity=256, draft_room=4, batch=8, flash_attn="off")
    with LlamaContext(models["llama"], settings) as context:
        decode = lib.llama_decode
        codes = iter([0, 0, code])

        def failing(handle: Any, batch: Any) -> int:
            answer = next(codes)
            if done or not answer:
                decode(handle, batch)
            return answer

        with monkeypatch.context() as patch:
            patch.setattr(lib, "llama_decode", failing)
            with pytest.raises(DecodeError, match=f"code {code}"):
                context.prefill(TEXT)
        assert_intact(context, plain_reference, TEXT[:16])


# -- rows -------------------------------------------------------------------------------------------------------------


def test_rows_are_views_of_what_llama_cpp_computed(plain: LlamaContext) -> None:
    plain.prefill(TEXT)
    result = plain.evaluate(50, Draft.chain([51, 52]))
    row = result.logits(1)
    assert row.dtype == np.float32
    assert row.shape == (plain.vocab_size,)
    assert row.ctypes.data == result.logits(1).ctypes.data


@pytest.mark.parametrize("row", [-1, 3])
def test_a_row_that_is_not_there_is_an_error(plain: LlamaContext, row: int) -> None:
    plain.prefill(TEXT)
    result = plain.evaluate(50, Draft.chain([51, 52]))
    with pytest.raises(IndexError):
        result.logits(row)


def test_rows_that_llama_cpp_did_not_keep_are_an_error(
    plain: LlamaContext, plain_reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers with a null pointer, which as an address of numbers would end the process."""
    plain.prefill(TEXT)
    with monkeypatch.context() as patch:
        patch.setattr(native, "logits_address", lambda _: None)
        result = plain.evaluate(50, EMPTY)
        with pytest.raises(DecodeError, match="kept no logits"):
            result.logits(0)
    plain.rewind(len(TEXT))
    assert_intact(plain, plain_reference, TEXT)


def test_a_row_read_too_late_is_caught(plain: LlamaContext) -> None:
    """The buffer belongs to the next evaluation by then: the numbers would be another position's."""
    plain.prefill(TEXT)
    result = plain.evaluate(50, EMPTY)
    plain.commit(())
    plain.evaluate(51, EMPTY)
    with pytest.raises(AssertionError):
        result.logits(0)


# -- transactions -----------------------------------------------------------------------------------------------------


def test_one_commit_per_evaluation(plain: LlamaContext) -> None:
    plain.prefill(TEXT)
    with pytest.raises(AssertionError):
        plain.commit(())
    plain.evaluate(50, Draft.chain([51]))
    with pytest.raises(AssertionError):
        plain.evaluate(50, EMPTY)
    plain.commit((0,))
    with pytest.raises(AssertionError):
        plain.commit(())


def test_rewinding_forward_is_an_error(plain: LlamaContext) -> None:
    plain.prefill(TEXT)
    with pytest.raises(DecodeError, match="holds 40 tokens"):
        plain.rewind(41)
    assert plain.tokens.tolist() == TEXT


def test_rewinding_to_nothing(context: LlamaContext, reference: Reference, kind: Kind) -> None:
    context.prefill(TEXT)
    context.rewind(0)
    assert context.length == 0
    assert_intact(context, reference, [], kind.tolerance)


# -- making one -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kv_type", ["q8_0", "q4_0"])
def test_a_quantised_cache_needs_flash_attention(models: dict[str, LlamaModel], kv_type: Any) -> None:
    """B35: llama.cpp returns NULL; the sentence says which two settings disagree."""
    with pytest.raises(LoadError, match=f"{kv_type} cache needs flash attention") as caught:
        LlamaContext(models["wide-heads"], ContextSettings(capacity=256, kv_type=kv_type, flash_attn="off"))
    assert "--flash-attn" in caught.value.hint


@pytest.mark.parametrize("kv_type", ["q8_0", "q4_0"])
@pytest.mark.parametrize("flash_attn", ["auto", "on"])
def test_a_quantised_cache_works(models: dict[str, LlamaModel], kv_type: Any, flash_attn: Any) -> None:
    """B35."""
    settings = ContextSettings(capacity=256, kv_type=kv_type, flash_attn=flash_attn)
    model = models["wide-heads"]
    with LlamaContext(model, settings) as context, Reference(model, settings) as reference:
        context.prefill(TEXT)
        assert_intact(context, reference, TEXT, 0.3)


def test_a_cache_type_that_does_not_fit_the_heads_is_said(models: dict[str, LlamaModel]) -> None:
    with pytest.raises(LoadError, match="does not divide n_embd_head_k=16"):
        LlamaContext(models["llama"], ContextSettings(capacity=256, kv_type="q8_0"))


def test_damaged_weights_are_noticed_at_load(models: dict[str, LlamaModel]) -> None:
    with pytest.raises(LoadError, match="no numbers"):
        LlamaContext(models["nan"], ContextSettings(capacity=256))


def test_a_new_context_is_empty_and_has_spent_nothing(context: LlamaContext) -> None:
    """The trial that chooses the memory leaves no trace."""
    assert context.length == 0
    assert context.busy_s == 0.0
    assert context.evaluated == 0


def test_time_and_tokens_are_counted(plain: LlamaContext) -> None:
    plain.prefill(TEXT)
    plain.evaluate(50, Draft.chain([51, 52]))
    plain.commit(())
    assert plain.evaluated == len(TEXT) + 3
    assert 0.0 < plain.busy_s < 10.0


def test_closing_twice_is_fine(models: dict[str, LlamaModel]) -> None:
    context = LlamaContext(models["llama"], ContextSettings(capacity=256))
    context.close()
    context.close()


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [([], [1], 0), ([1, 2], [1, 2], 2), ([1, 2, 3], [1, 5, 3], 1), ([1, 2], [1, 2, 3], 2)],
)
def test_common_prefix(left: list[int], right: list[int], expected: int) -> None:
    assert common_prefix(np.array(left, dtype=np.int32), np.array(right, dtype=np.int32)) == expected
