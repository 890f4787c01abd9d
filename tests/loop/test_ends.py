"""What ends an answer: end tokens, limits, stop strings, the context. Text, tokens, counts and cache end at one place.

Script models say exactly what a case needs, and as their own draft they make every block border fall everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from localspec.engine.toy import END, ToyContext, ToyModel
from localspec.errors import ContextFullError, UsageError
from localspec.loop.answer import Answer, Piece
from localspec.loop.generation import Limits
from tests import zoo
from tests.loop.answers import Setting
from tests.loop.scripted import Scripted, following

Open = Callable[..., Setting]
Say = Callable[[Sequence[int]], Setting]
LENGTHS = range(9)


@pytest.fixture
def say(opened: Open, tmp_path: Path) -> Say:
    """A verifier that says these tokens one after the other."""
    return lambda tokens: opened(zoo.chain_model(tmp_path / "script.gguf", tokens))


def told(setting: Setting, chain: Sequence[int], N: int, limits: Limits, prompt: int = 1) -> tuple[Answer, list[Piece]]:
    """The answer to the first `prompt` tokens of the chain, drafted by one who knows it all, past every end."""
    drafter = Scripted(following(chain)) if N else None
    generation = setting.start(chain[:prompt], drafter=drafter, N=N, limits=limits)
    pieces = list(generation)
    return setting.checked(generation, chain[:prompt], pieces), pieces


# -- end tokens -------------------------------------------------------------------------------------------------------


def test_an_end_token_inside_a_draft_ends_the_answer(say: Say) -> None:
    """B09: the chain goes on behind the end token; nothing of that is shown, counted or kept in the cache."""
    chain = [*zoo.byte_ids("abcdefg"), zoo.EOS, *zoo.byte_ids("hijk")]
    setting = say(chain)
    for N in LENGTHS:
        answer, _ = told(setting, chain, N, Limits(max_tokens=30))
        assert answer.finish_reason == "stop"
        assert answer.tokens == tuple(chain[1:8])
        assert answer.text == "bcdefg"
        assert answer.stats.completion_tokens == 7
        assert setting.verifier.tokens.tolist() == chain[:7]
        assert answer.stats.drafted <= 7


@pytest.mark.parametrize("end", [zoo.EOS, zoo.OTHER_END, zoo.TURN])
def test_every_end_token_of_the_model_counts(opened: Open, tmp_path: Path, end: int) -> None:
    """B09: not only EOS."""
    vocabulary = zoo.byte_vocabulary(ends=(zoo.OTHER_END, zoo.TURN))
    chain = [*zoo.byte_ids("abc"), end, *zoo.byte_ids("de")]
    setting = opened(zoo.chain_model(tmp_path / "script.gguf", chain, vocabulary=vocabulary))
    for N in (0, 1, 5):
        answer, _ = told(setting, chain, N, Limits(max_tokens=30))
        assert answer.text == "bc"
        assert answer.tokens[-1] == end


def test_an_end_token_can_be_ignored(say: Say) -> None:
    """Benchmarks want equal lengths."""
    chain = [*zoo.byte_ids("abc"), zoo.EOS, *zoo.byte_ids("defgh")]
    setting = say(chain)
    for N in LENGTHS:
        answer, _ = told(setting, chain, N, Limits(max_tokens=6, ignore_end=True))
        assert answer.tokens == tuple(chain[1:7])
        assert answer.finish_reason == "length"


# -- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("N", LENGTHS)
def test_never_more_tokens_than_asked(toy: Setting, N: int) -> None:
    """B12: a block must not overshoot; and the shorter answer is the beginning of the longer."""
    prompt = [3, 1, 4]
    whole = toy.answer(prompt, limits=Limits(max_tokens=20)).tokens
    for count in range(1, 21):
        drafter = Scripted(following([*prompt, *whole]))
        answer = toy.answer(prompt, drafter=drafter, N=N, limits=Limits(max_tokens=count))
        assert answer.tokens == whole[:count]
        assert answer.finish_reason == "length"
        assert all(limit <= count - 1 for limit in drafter.limits)


def test_no_tokens_asked_no_pass(toy: Setting) -> None:
    """B12."""
    answer = toy.answer([3, 1, 4], limits=Limits(max_tokens=0))
    assert answer.tokens == ()
    assert answer.text == ""
    assert answer.finish_reason == "length"
    assert answer.stats.verifier_passes == 0
    assert answer.stats.tokens_per_pass is None


@pytest.mark.parametrize("prompt", range(250, 257))
@pytest.mark.parametrize("N", [1, 3, 8])
def test_the_end_of_the_context_is_where_plain_decoding_finds_it(
    opened: Open, tmp_path: Path, prompt: int, N: int
) -> None:
    """B52: the draft shrinks to what fits, llama.cpp is never asked for more."""
    setting = opened(zoo.tiny_llama(tmp_path / "a.gguf"), capacity=256)
    text = [zoo.byte_id(i * 7 % 256) for i in range(prompt)]
    plain = setting.answer(text, N=0, limits=Limits(ignore_end=True))
    drafter = Scripted(following([*text, *plain.tokens]))
    answer = setting.answer(text, drafter=drafter, N=N, limits=Limits(ignore_end=True))
    assert answer.tokens == plain.tokens
    assert len(answer.tokens) == 256 - prompt + 1
    assert answer.finish_reason == plain.finish_reason == "context"


def test_a_prompt_longer_than_the_context_is_refused_before_anything_is_evaluated(toy: Setting) -> None:
    """B50."""
    with pytest.raises(ContextFullError, match="513 tokens, the context holds 512") as caught:
        toy.start([1] * 513)
    assert "--ctx-size" in caught.value.hint
    assert toy.verifier.evaluated == 0


def test_an_empty_prompt_is_wrong_use(toy: Setting) -> None:
    """B57."""
    with pytest.raises(UsageError, match="empty"):
        toy.start([])


@pytest.mark.parametrize("N", [0, 3])
def test_a_prompt_of_one_token_works(toy: Setting, N: int) -> None:
    """B57."""
    whole = toy.answer([5]).tokens
    answer = toy.answer([5], drafter=Scripted(following([5, *whole])), N=N)
    assert answer.tokens == whole
    assert len(whole) == 40


# -- stop strings -----------------------------------------------------------------------------------------------------

STOPS = [("STP",), ("STP", "ST"), ("ST", "STP"), ("P", "STP"), ("TP!", "STP"), ("STP", "zzz"), ("kS", "nope")]


@pytest.mark.parametrize("stops", STOPS)
def test_a_stop_string_may_span_tokens_and_blocks(say: Say, stops: tuple[str, ...]) -> None:
    """B14: nothing of the stop is ever shown, wherever the block border falls; the earliest match wins."""
    chain = zoo.byte_ids("x okSTP!?")
    setting = say(chain)
    expected = " o" if "kS" in stops else " ok"
    for N in LENGTHS:
        answer, pieces = told(setting, chain, N, Limits(max_tokens=8, stops=stops))
        assert answer.finish_reason == "stop"
        assert "".join(piece.text for piece in pieces) == expected
        assert answer.tokens == tuple(zoo.byte_ids(expected))
        assert setting.verifier.tokens.tolist() == chain[: len(expected)]


def test_a_beginning_that_does_not_become_a_stop_is_shown_in_the_end(say: Say) -> None:
    """B14: text is held back only as long as it could become a stop."""
    chain = zoo.byte_ids("xabSTcdS")
    setting = say(chain)
    for N in LENGTHS:
        answer, _ = told(setting, chain, N, Limits(max_tokens=7, stops=("STP",)))
        assert answer.text == "abSTcdS"
        assert answer.finish_reason == "length"


def test_a_token_that_straddles_the_stop_leaves_its_visible_part_in_the_text(opened: Open, tmp_path: Path) -> None:
    """B16: the token goes from `tokens`, counters and cache; its text before the stop stays."""
    vocabulary = zoo.byte_vocabulary(words=("th", "er"))
    chain = [*zoo.byte_ids("xab"), 261, 262, *zoo.byte_ids("cd")]  # x a b th er c d
    setting = opened(zoo.chain_model(tmp_path / "script.gguf", chain, vocabulary=vocabulary))
    for N in LENGTHS:
        answer, _ = told(setting, chain, N, Limits(max_tokens=6, stops=("he",)))
        assert answer.text == "abt"
        assert answer.tokens == tuple(zoo.byte_ids("ab"))
        assert answer.stats.completion_tokens == 2
        assert setting.verifier.tokens.tolist() == chain[:2]


def test_an_end_token_before_the_stop_wins(say: Say) -> None:
    chain = [*zoo.byte_ids("xabS"), zoo.EOS, *zoo.byte_ids("TP")]
    setting = say(chain)
    for N in LENGTHS:
        answer, _ = told(setting, chain, N, Limits(max_tokens=9, stops=("STP",)))
        assert answer.text == "abS"
        assert answer.tokens[-1] == zoo.EOS


@pytest.mark.parametrize("N", LENGTHS)
def test_the_next_answer_reuses_what_the_stop_left(say: Say, N: int) -> None:
    """B16: the cache ends where the text ends, so the next turn evaluates new tokens only."""
    chain = zoo.byte_ids("x okSTP!?")
    setting = say(chain)
    told(setting, chain, N, Limits(max_tokens=8, stops=("STP",)))
    before = setting.verifier.evaluated
    again, _ = told(setting, chain, 0, Limits(max_tokens=1), prompt=4)
    assert setting.verifier.evaluated - before == 1
    assert again.text == "S"


# -- letters ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["🐱!", "né ", "語だ", "aé🐱"])
def test_letters_of_several_tokens_come_whole(say: Say, text: str) -> None:
    """B18: a block border inside an emoji must not show half of it."""
    chain = [zoo.byte_id("x"), *zoo.byte_ids(text)]
    setting = say(chain)
    for N in LENGTHS:
        answer, pieces = told(setting, chain, N, Limits(max_tokens=len(chain) - 1))
        assert answer.text == text
        assert "\ufffd" not in "".join(piece.text for piece in pieces)


def test_a_letter_cut_by_the_limit_is_shown_as_damaged(say: Say) -> None:
    chain = [zoo.byte_id("x"), zoo.byte_id("a"), *zoo.byte_ids("🐱")]
    setting = say(chain)
    for N in LENGTHS:
        answer, _ = told(setting, chain, N, Limits(max_tokens=3))
        assert answer.text == "a\ufffd"


def test_pieces_know_whether_they_were_drafted(say: Say) -> None:
    chain = zoo.byte_ids("xabcdef")
    _, pieces = told(say(chain), chain, 2, Limits(max_tokens=6))
    assert [(piece.text, piece.drafted) for piece in pieces] == [
        ("a", True),
        ("b", True),
        ("c", False),
        ("d", True),
        ("e", True),
        ("f", False),
    ]


def test_the_toy_ends_too() -> None:
    """The same on the model without native code."""
    model = ToyModel(seed=2, end_bias=3.0)
    setting = Setting(ToyContext(model), model.vocab)
    plain = setting.answer([1, 2], limits=Limits(max_tokens=200))
    assert plain.finish_reason == "stop"
    assert plain.tokens[-1] == END
    for N in LENGTHS:
        drafter = Scripted(following([1, 2, *plain.tokens, 5, 5, 5]))
        assert setting.answer([1, 2], drafter=drafter, N=N, limits=Limits(max_tokens=200)).tokens == plain.tokens
