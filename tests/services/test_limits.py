"""Where an answer ends: stop strings, end tokens, limits and a full context, wherever the border of a block falls."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localspec.errors import ContextFullError, UsageError
from localspec.services.runtime import Runtime
from localspec.services.settings import AnswerSettings
from tests import zoo
from tests.services import tiny
from tests.services.tiny import DRAFTERS, GREEDY, PROMPT


@pytest.fixture(scope="module")
def plain() -> Iterator[Runtime]:
    with tiny.open_pair(draft=None, drafter="none") as runtime:
        yield runtime


@pytest.fixture(scope="module")
def pair() -> Iterator[Runtime]:
    with tiny.open_pair(drafter="model", N=4) as runtime:
        yield runtime


@pytest.fixture(scope="module")
def speculating() -> Iterator[Callable[[str], Runtime]]:
    """Drafter -> a pair with the draft that it wants."""
    with contextlib.ExitStack() as opened:
        pairs: dict[str, Runtime] = {}

        def get(drafter: str) -> Runtime:
            draft = tiny.draft_for(drafter)
            if draft not in pairs:
                pairs[draft] = opened.enter_context(tiny.open_pair(draft=draft, N=4))
            return pairs[draft]

        yield get


def talker(tmp_path: Path, text: str, **keys: Any) -> Path:
    """A model that says `text`, then its end token, and begins again."""
    ids = [zoo.TURN, *zoo.byte_ids(text), zoo.EOS]
    return zoo.chain_model(tmp_path / "talker.gguf", [*ids, zoo.TURN], **keys)


@pytest.mark.parametrize("N", range(9))
def test_a_stop_string_is_never_shown(tmp_path: Path, N: int) -> None:
    """B14: ' okSTP!' byte by byte, the model being its own draft: the border of a block falls everywhere."""
    path = talker(tmp_path, " okSTP!")
    with tiny.open_pair(path, path, drafter="model", N=N) as runtime:
        stream = runtime.answer([zoo.TURN], AnswerSettings(GREEDY, stop=("STP", "ST!")))
        assert "".join(piece.text for piece in stream) == " ok"
        assert stream.answer.finish_reason == "stop"
        assert stream.answer.text == " ok"
        assert list(stream.answer.tokens) == zoo.byte_ids(" ok")
        assert list(runtime.cached) == [zoo.TURN, *zoo.byte_ids(" o")]


@pytest.mark.parametrize("N", range(9))
def test_nothing_follows_the_end(tmp_path: Path, N: int) -> None:
    """B09: an end token in the middle of a block; behind it the model goes on talking."""
    path = talker(tmp_path, "abcdef")
    with tiny.open_pair(path, path, drafter="model", N=N) as runtime:
        answer = tiny.answer(runtime, [zoo.TURN], ignore_end=False)
        assert answer.text == "abcdef"
        assert list(answer.tokens) == [*zoo.byte_ids("abcdef"), zoo.EOS]
        assert answer.finish_reason == "stop"
        assert len(answer.tokens) == answer.stats.completion_tokens
        assert list(runtime.cached) == [zoo.TURN, *zoo.byte_ids("abcdef")]


@pytest.mark.parametrize("N", [1, 2, 3, 5])
def test_letters_are_whole(tmp_path: Path, N: int) -> None:
    """B18: four bytes, four tokens, one piece."""
    path = talker(tmp_path, "x\U0001f408y")
    with tiny.open_pair(path, path, drafter="model", N=N) as runtime:
        stream = runtime.answer([zoo.TURN], AnswerSettings(GREEDY))
        assert [piece.text for piece in stream if piece.text] == ["x", "\U0001f408", "y"]


@pytest.mark.parametrize("N", [0, 1, 8])
@pytest.mark.parametrize("count", range(7))
def test_never_more_than_asked(pair: Runtime, plain: Runtime, N: int, count: int) -> None:
    """B12: the draft's budget ends where the answer does; 0 is answered without a pass."""
    pair.respeculate("model", N)
    longest = tiny.answer(plain, max_tokens=20).tokens
    answer = tiny.answer(pair, max_tokens=count)
    assert answer.tokens == longest[:count]
    assert answer.finish_reason == "length"
    if not count:
        assert (answer.text, answer.stats.verifier_passes, answer.stats.prefill_tokens) == ("", 0, 0)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [({"max_tokens": -1}, "max_tokens"), ({"seed": -1}, "seed"), ({"acceptance": "greedy"}, "coupled")],
)
def test_answer_settings_that_mean_nothing(wrong: dict[str, Any], name: str) -> None:
    with pytest.raises(UsageError) as caught:
        AnswerSettings(**wrong)
    assert name in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("size", [250, 254, 255, 256])
def test_a_full_context_ends_where_plain_decoding_does(
    speculating: Callable[[str], Runtime], drafter: str, size: int
) -> None:
    """B52: a block that does not fit is drafted shorter, and no evaluation ever fails for want of room."""
    prompt, pair = (PROMPT * 10)[:size], speculating(drafter)
    pair.respeculate(drafter, 8)
    expected = tiny.answer(pair, prompt, max_tokens=None, speculate=False)
    answer = tiny.answer(pair, prompt, max_tokens=None)
    assert answer.tokens == expected.tokens
    assert answer.finish_reason == expected.finish_reason == "context"
    assert len(answer.tokens) == 257 - size, "the last token needs no room: nothing follows it"
    assert len(pair.cached) == 256
    assert pair.drafter == drafter


def test_a_prompt_that_does_not_fit_is_refused_with_figures(pair: Runtime) -> None:
    """B50: nothing is cut off in silence."""
    before = list(pair.cached)
    with pytest.raises(ContextFullError, match=r"257 .* 256") as caught:
        pair.answer((PROMPT * 10)[:257], AnswerSettings())
    assert "--ctx-size" in caught.value.hint
    assert list(pair.cached) == before


def test_an_empty_prompt_is_refused(pair: Runtime) -> None:
    """B57."""
    with pytest.raises(UsageError, match="empty") as caught:
        pair.answer([], AnswerSettings())
    assert caught.value.hint


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_one_token_is_a_prompt(speculating: Callable[[str], Runtime], plain: Runtime, drafter: str) -> None:
    """B57: no history for lookup, nothing to read ahead for a draft."""
    pair = speculating(drafter)
    pair.respeculate(drafter, 4)
    assert tiny.answer(pair, [zoo.TURN]).tokens == tiny.answer(plain, [zoo.TURN]).tokens
