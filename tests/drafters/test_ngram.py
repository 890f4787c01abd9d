"""Prompt lookup: what it proposes, how honest its probabilities are, and that it never adds anything of its own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.core.draft import Ids
from localspec.core.rejection import Rejection
from localspec.core.sampling import Sampling
from localspec.drafters.base import Budget, Drafter
from localspec.drafters.ngram import Guess, Ngram, Options, Support, Trust
from localspec.engine.base import Context
from localspec.errors import UsageError

ALWAYS = Budget(8, lambda depth, confidence: True)
NEVER = Budget(8, lambda depth, confidence: False)
PERIODIC = [*range(10, 22)] * 3


class NoModels:
    """A lender with nothing to lend: prompt lookup must not need any."""

    vocab_size = 1000

    def is_end(self, token: int) -> bool:
        raise AssertionError(token)

    def context(self, role: str) -> Context:
        raise AssertionError(role)

    def known(self, role: str) -> int:
        raise AssertionError(role)

    def blocked(self, role: str) -> Ids:
        raise AssertionError(role)

    def drafter(self, name: str) -> Drafter:
        raise AssertionError(name)


def ids(tokens: list[int]) -> Ids:
    return np.array(tokens, dtype=np.int32)


def ngram(*, max_ngram: int = 4, min_ngram: int = 1, candidates: int = 4) -> Ngram:
    return Ngram(Options(max_ngram, min_ngram, candidates), NoModels())


def proposed(drafter: Ngram, text: list[int], budget: Budget = ALWAYS) -> list[int]:
    draft = drafter.propose(ids(text), budget)
    assert draft.is_chain
    assert draft.laws is None
    return [int(token) for token in draft.tokens]


def answer(
    drafter: Ngram, budget: Budget, model: Callable[[list[int]], int], prompt: list[int], length: int
) -> list[int]:
    """Greedy speculative decoding in its shortest form."""
    text = list(prompt)
    while len(text) < len(prompt) + length:
        for token in [*proposed(drafter, text, budget), None]:
            text.append(model(text))
            if text[-1] != token:
                break
    return text[: len(prompt) + length]


def test_it_proposes_what_followed_the_longest_match() -> None:
    #            longest match: 1 2 3, followed by 7 8; the newer 2 3 was followed by 9
    text = [1, 2, 3, 7, 8, 2, 3, 9, 5, 1, 2, 3]
    assert proposed(ngram(), text) == [7, 8, 2, 3, 9, 5, 1, 2]
    assert proposed(ngram(max_ngram=2), text) == [7, 8, 2, 3, 9, 5, 1, 2], "agreement beyond max_ngram still decides"
    assert proposed(ngram(max_ngram=2, candidates=1), text) == [9, 5, 1, 2, 3], (
        "only the most recent place is looked at"
    )


def test_a_draft_ends_with_the_text_and_with_the_limit() -> None:
    assert proposed(ngram(), [4, 5, 6, 4]) == [5, 6, 4]
    assert proposed(ngram(), [4, 5, 6, 4], Budget(2, ALWAYS.pays)) == [5, 6]


@pytest.mark.parametrize("text", [[], [1], [1, 2, 3, 4]])
def test_nothing_found_is_an_empty_draft(text: list[int]) -> None:
    """B34: fresh text proposes nothing, and says so with an ordinary empty draft."""
    assert proposed(ngram(), text) == []


def test_a_match_shorter_than_the_smallest_size_is_none() -> None:
    text = [1, 2, 9, 8, 1, 2]
    assert proposed(ngram(min_ngram=2), text) == [9, 8, 1, 2]
    assert proposed(ngram(min_ngram=3), text) == []


def test_it_stops_where_one_more_token_does_not_pay() -> None:
    asked: list[tuple[int, float]] = []

    def pays(depth: int, confidence: float) -> bool:
        asked.append((depth, confidence))
        return depth < 3

    assert proposed(ngram(), PERIODIC, Budget(8, pays)) == PERIODIC[:2]
    assert [depth for depth, _ in asked] == [1, 2, 3]
    assert all(0.0 < confidence < 1.0 for _, confidence in asked)


TEXT = st.lists(st.integers(0, 5), max_size=60)


@given(first=TEXT, second=TEXT, sizes=st.sampled_from([(1, 1), (4, 1), (8, 3)]))
def test_every_draft_stands_in_the_committed_text(first: list[int], second: list[int], sizes: tuple[int, int]) -> None:
    """B68: after another conversation, an undo or an edit nothing of the older text is proposed."""
    drafter = ngram(max_ngram=sizes[0], min_ngram=sizes[1])
    for text in (first, second, second[:-7], first[:5] + second):
        draft = proposed(drafter, text)
        assert any(text[at : at + len(draft)] == draft for at in range(len(text) + 1))


def test_another_conversation_finds_nothing_of_the_last_one() -> None:
    """B68: a long answer, then a short prompt with its words."""
    drafter = ngram()
    proposed(drafter, PERIODIC)
    assert proposed(drafter, [500, 10, 11]) == []


@pytest.mark.parametrize("limit", [1, 3, 10])
@pytest.mark.parametrize("sizes", [(1, 1), (2, 1), (4, 2), (8, 5)])
def test_the_text_does_not_depend_on_sizes_or_length(sizes: tuple[int, int], limit: int) -> None:
    """B49: a wrong guess costs time and nothing else."""

    def model(text: list[int]) -> int:
        return (text[-1] * 7 + text[-2] * 3 + len(text) // 9) % 11

    plain = answer(ngram(), NEVER, model, [1, 2, 3], 200)
    drafter = ngram(max_ngram=sizes[0], min_ngram=sizes[1])
    assert answer(drafter, Budget(limit, ALWAYS.pays), model, [1, 2, 3], 200) == plain


def test_looking_up_draws_on_the_text_alone() -> None:
    """The same text gets the same draft, whatever came before it, as long as the budget takes everything."""
    used = ngram()
    for length in range(1, len(PERIODIC)):
        proposed(used, PERIODIC[:length])
    assert proposed(used, PERIODIC) == proposed(ngram(), PERIODIC)


def confidences(drafter: Ngram, text: list[int]) -> list[float]:
    said: list[float] = []
    drafter.propose(ids(text), Budget(8, lambda depth, confidence: not said.append(confidence)))  # type: ignore[func-returns-value]
    return said


def test_a_longer_match_with_more_support_is_trusted_more() -> None:
    trust = Trust()
    for support in Support:
        row = [trust.probability(Guess(0, length, support)) for length in range(1, 40)]
        assert row == sorted(row)
    for length in (1, 2, 3, 5, 8):
        contested, single, agreed = (trust.probability(Guess(0, length, support)) for support in Support)
        assert contested < single < agreed


def test_probabilities_follow_what_became_of_the_guesses() -> None:
    """Also of refused ones: a drafter that is never allowed to draft still learns when it would have been right."""
    drafter, text = ngram(), PERIODIC
    before = confidences(drafter, text)[0]
    for _ in range(40):
        text = [*text, text[-12]]
        proposed(drafter, text, NEVER)
    assert confidences(drafter, text)[0] > max(before, 0.985)

    fresh = 1000
    for _ in range(60):  # each 10 11 12 is followed by something new
        fresh += 1
        text = [*text, 10, 11, 12]
        proposed(drafter, text, NEVER)
        text = [*text, fresh]
    low = confidences(drafter, [*text, 10, 11, 12])[0]
    assert low < 0.2


def test_what_follows_a_wrong_guess_is_not_counted() -> None:
    trust = Trust()
    drafter = ngram()
    first, second, *_ = confidences(drafter, PERIODIC)
    proposed(drafter, [*PERIODIC, 999, 11])
    after = confidences(drafter, PERIODIC)
    assert after[0] < first == trust.probability(Guess(0, 24, Support.AGREED))
    assert second == trust.probability(Guess(0, 25, Support.AGREED)) == after[1]


def test_an_edited_text_teaches_nothing() -> None:
    drafter = ngram()
    before = confidences(drafter, PERIODIC)
    proposed(drafter, [*PERIODIC[:-3], 7, 7, 7, 7], NEVER)
    assert confidences(drafter, PERIODIC) == before


def test_probabilities_are_honest_on_a_text_that_repeats_itself_two_times_in_three() -> None:
    """Confidence against frequency, over a text where each block of eight is an old one with probability 2/3."""
    rng = np.random.default_rng(5)
    blocks = [rng.integers(0, 400, 8).tolist() for _ in range(8)]
    text = list[int]()
    for _ in range(260):
        text += blocks[rng.integers(8)] if rng.random() < 2 / 3 else rng.integers(0, 400, 8).tolist()
    drafter, said, right = ngram(), list[float](), list[bool]()
    for length in range(1, len(text)):
        draft = ids(text[:length])
        seen: list[float] = []
        guess = drafter.propose(draft, Budget(1, lambda depth, confidence, seen=seen: not seen.append(confidence)))  # type: ignore[misc]
        if len(guess) and length > 400:
            said += seen
            right.append(int(guess.tokens[0]) == text[length])
    assert len(said) > 800
    for low, high in ((0.0, 0.3), (0.3, 0.8), (0.8, 1.0)):
        group = [(value, hit) for value, hit in zip(said, right, strict=True) if low <= value < high]
        assert len(group) > 100
        assert abs(np.mean([value for value, _ in group]) - np.mean([hit for _, hit in group])) < 0.08


@pytest.mark.parametrize(
    "wrong",
    [{"max_ngram": 0}, {"max_ngram": 17}, {"min_ngram": 5}, {"min_ngram": 0}, {"candidates": 0}, {"candidates": 99}],
)
def test_options_outside_their_range_name_option_value_and_remedy(wrong: dict[str, int]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(UsageError, match=f"{name} is {value}") as caught:
        Options(**wrong)
    assert f"-o {name}=" in caught.value.hint


def begin(drafter: Ngram, text: list[int]) -> None:
    rule = Rejection(np.random.default_rng(0))
    drafter.begin(ids(text), sampling=Sampling(), rule=rule, cancelled=lambda: False)


def test_the_prompt_is_indexed_before_the_first_draft() -> None:
    drafter = ngram()
    begin(drafter, PERIODIC)
    assert proposed(drafter, [*PERIODIC, 10]) == PERIODIC[1:9]


def test_the_words_of_the_next_turn_are_no_verdict_on_the_last_guesses() -> None:
    drafter = ngram()
    before = confidences(drafter, PERIODIC)
    begin(drafter, [*PERIODIC, 500, 501])
    assert confidences(drafter, PERIODIC) == before


def test_closing_forgets_the_text_and_may_happen_twice() -> None:
    drafter = ngram()
    proposed(drafter, PERIODIC)
    drafter.close()
    drafter.close()
    assert proposed(drafter, [10, 11]) == []
