"""Prompt lookup: what it proposes, how honest its probabilities are, and that it never adds anything of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.core.draft import Draft, Ids
from localspec.core.growth import Growth
from localspec.core.rejection import Rejection
from localspec.core.sampling import Sampling
from localspec.core.shapes import Shape
from localspec.core.trust import Guess, Support, Trust
from localspec.drafters.base import Budget, Drafter
from localspec.drafters.ngram import MOST_BYTES, PATIENCE, Ngram, Options
from localspec.engine.base import Context, Guesser, Head
from localspec.errors import UsageError

ALWAYS = Budget(8, lambda depth, confidence: True)
NEVER = Budget(8, lambda depth, confidence: False)
PERIODIC = [*range(10, 22)] * 3


END = 999


class NoModels:
    """A lender without a model: prompt lookup must not need any. Text is ids with blanks between them."""

    vocab_size = 1000

    def __init__(self) -> None:
        self.remembered: list[tuple[str, list[int]]] = []
        self.earlier: list[int] = []

    def is_end(self, token: int) -> bool:
        return token == END

    def tokenize(self, text: str) -> list[int]:
        return [int(word) for word in text.split()]

    def warn(self, text: str) -> None:
        raise AssertionError(text)

    def recall(self, drafter: str) -> Ids:
        return ids(self.earlier)

    def remember(self, drafter: str, text: Ids) -> None:
        self.remembered.append((drafter, text.tolist()))

    def drafter(self, name: str) -> Drafter:
        raise AssertionError(name)

    def context(self, role: str) -> Context:
        raise AssertionError(role)

    def head(self, kind: str, *, force: bool = False) -> Head:
        raise AssertionError(kind)

    def guesser(self, kind: str, *, force: bool = False) -> Guesser:
        raise AssertionError(kind)

    def known(self, role: str) -> int:
        raise AssertionError(role)

    def blocked(self, role: str) -> Ids:
        raise AssertionError(role)


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
    trust, drafter = Trust(), ngram()
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
        Options(**wrong)  # type: ignore[arg-type]
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


# -- trees ---------------------------------------------------------------------------------------------------------

BRANCHING = [1, 2, 3, 7, 8, 1, 2, 3, 7, 9, 1, 2, 3, 5, 6, 1, 2, 3]  # 1 2 3 -> 5 6, 7 9, 7 8; the last is the newest
WHOLE = Budget(32, lambda depth, confidence: True, leaves=16)


def tree(drafter: Ngram, text: list[int], wanted: Shape | Growth, **changes: Any) -> Draft:
    return drafter.propose(ids(text), WHOLE._replace(tree=wanted, **changes))


def paths(draft: Draft) -> set[tuple[int, ...]]:
    return {tuple(draft.tokens[list(draft.path(node))].tolist()) for node in range(len(draft))}


def test_a_shape_is_filled_with_what_followed() -> None:
    draft = tree(ngram(), BRANCHING, Shape.parse("2,2"))
    assert paths(draft) == {(5,), (5, 6), (7,), (7, 9), (7, 8)}
    assert draft.laws is None
    assert draft.confidences is not None
    siblings = [sum(draft.confidences[node] for node in nodes) for nodes in draft.children.values()]
    assert max(siblings) < 1.0


def test_a_shape_has_holes_where_nothing_is_known() -> None:
    assert paths(tree(ngram(), BRANCHING, Shape.of([[0], [1], [1, 0], [1, 1], [1, 1, 0]]))) == {
        (5,),
        (7,),
        (7, 9),
        (7, 8),
        (7, 8, 1),
    }
    assert len(tree(ngram(), [1, 2, 3], Shape.parse("4,2"))) == 0


def test_a_grown_tree_takes_the_likeliest_nodes() -> None:
    whole = tree(ngram(), BRANCHING, Growth(nodes=32, depth=4))
    assert {(5, 6, 1, 2), (7, 9, 1, 2), (7, 8)} <= paths(whole)
    assert whole.confidences is not None
    joints = [np.prod([whole.confidences[above] for above in whole.path(node)]) for node in range(len(whole))]
    assert joints == sorted(joints, reverse=True)
    for nodes in range(1, len(whole)):
        few = tree(ngram(), BRANCHING, Growth(nodes=nodes, depth=4))
        assert few.tokens.tolist() == whole.tokens[:nodes].tolist()


@pytest.mark.parametrize("leaves", [1, 2, 3])
def test_no_more_paths_than_there_is_room_for(leaves: int) -> None:
    assert tree(ngram(), BRANCHING, Growth(nodes=32, leaves=leaves)).leaves == leaves


def test_the_controller_chooses_how_many_nodes_are_worth_their_rows() -> None:
    seen: list[list[float]] = []

    def choose(joints: Sequence[float]) -> int:
        seen.append(list(joints))
        return 3

    assert len(tree(ngram(), BRANCHING, Growth(nodes=32), choose=choose)) == 3
    assert seen[0] == sorted(seen[0], reverse=True)
    assert len(tree(ngram(), BRANCHING, Growth(nodes=32), choose=lambda joints: 0)) == 0


def test_nothing_hangs_below_an_end() -> None:
    text = [1, 2, END, 4, 5, 1, 2, END, 4, 5, 1, 2]
    assert paths(tree(ngram(), text, Growth(nodes=9))) == paths(tree(ngram(), text, Shape.parse("1,1,1"))) == {(END,)}


@given(first=TEXT, second=TEXT, wanted=st.sampled_from([Shape.parse("3,2,1"), Growth(nodes=12, depth=5)]))
def test_every_path_of_a_tree_stands_in_the_committed_text(
    first: list[int], second: list[int], wanted: Shape | Growth
) -> None:
    """B68, for trees."""
    drafter = ngram()
    for text in (first, second, second[:-7], first[:5] + second):
        for path in paths(tree(drafter, text, wanted)):
            assert any(tuple(text[at : at + len(path)]) == path for at in range(len(text) + 1))


def test_trees_learn_from_the_siblings_that_were_tried() -> None:
    """The first guess is always wrong here and the second right: in time the second is the likelier."""
    drafter, text = ngram(), [1, 2, 7, 50, 1, 2, 8, 51]
    for at in range(80):
        text += [1, 2]
        drafter.propose(ids(text), WHOLE._replace(tree=Shape.parse("2")))
        text += [8 if text[-4] == 7 else 7, 60 + at]
    draft = tree(drafter, [*text, 1, 2], Shape.parse("2"))
    assert draft.confidences is not None
    assert draft.confidences[0] < 0.2 < 0.6 < draft.confidences[1]


# -- other texts, on demand ----------------------------------------------------------------------------------------


def test_a_file_to_draft_from(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text("40 41 42 43 44 45 46")
    drafter = Ngram(Options(corpus=str(path)), NoModels())
    assert proposed(drafter, [7, 41, 42]) == [43, 44, 45, 46]
    assert paths(tree(drafter, [7, 41, 42], Growth(nodes=2))) == {(43,), (43, 44)}
    assert proposed(drafter, [41, 42, 9, 41, 42]) == [9, 41, 42], "the text itself comes first among equals"
    assert proposed(drafter, [41, 42, 9, 40, 41, 42]) == [43, 44, 45, 46], "a longer match wins"
    assert proposed(Ngram(Options(corpus=str(path), min_ngram=3), NoModels()), [7, 41, 42]) == []


@pytest.mark.parametrize(
    ("data", "said"),
    [(None, "No such file"), (b"\xff\xfe1", "not UTF-8"), (b"1 " * (MOST_BYTES // 2 + 1), "8,388,610 bytes")],
)
def test_a_file_that_cannot_be_used_is_wrong_use_before_anything_is_loaded(
    tmp_path: Path, data: bytes | None, said: str
) -> None:
    path = tmp_path / "corpus.txt"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(UsageError, match=said) as caught:
        Options(corpus=str(path))
    assert str(path) in str(caught.value)
    assert caught.value.hint


def test_a_folder_is_no_corpus(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        Options(corpus=str(tmp_path))


def test_a_device_without_an_end_is_no_corpus() -> None:
    with pytest.raises(UsageError, match="bytes or more"):
        Options(corpus="/dev/zero")


def test_what_was_remembered_is_drafted_from() -> None:
    lender = NoModels()
    lender.earlier = [10, 11, 12, 13, -1, 14, 15]
    assert proposed(Ngram(Options(remember=True), lender), [5, 10, 11]) == [12, 13]
    assert proposed(Ngram(Options(), lender), [5, 10, 11]) == [], "B68: only on demand"


def test_texts_are_handed_to_memory_when_they_are_over() -> None:
    lender = NoModels()
    drafter = Ngram(Options(remember=True), lender)
    begin(drafter, [1, 2])
    proposed(drafter, [1, 2, 3])
    begin(drafter, [1, 2, 3, 4, 5])
    assert lender.remembered == [], "the conversation goes on"
    proposed(drafter, [1, 2, 3, 4, 5, 6])
    begin(drafter, [7, 8])
    assert lender.remembered == [("ngram", [1, 2, 3, 4, 5, 6])]
    drafter.close()
    drafter.close()
    assert lender.remembered[1:] == [("ngram", [7, 8])]


def test_nothing_is_remembered_unless_asked_for() -> None:
    """B68: by default no text outlives its conversation."""
    lender = NoModels()
    drafter = Ngram(Options(), lender)
    for text in (PERIODIC, [1, 2]):
        begin(drafter, text)
        proposed(drafter, text)
    drafter.close()
    assert lender.remembered == []


def test_a_conversation_that_goes_on_is_not_remembered_by_pieces() -> None:
    """While it waits the index is behind the text, which is the same one for all that."""
    lender = NoModels()
    drafter, text = Ngram(Options(remember=True), lender), list(range(50))
    begin(drafter, text)
    hopeless = Budget(8, lambda depth, confidence: False, may_pay=lambda confidence: False)
    for token in range(100, 108):
        text.append(token)
        drafter.propose(ids(text), hopeless)
    begin(drafter, [*text, 7, 8, 9])
    assert lender.remembered == []
    begin(drafter, [1, 2, 3])
    assert len(lender.remembered) == 1
    assert lender.remembered[0][1] == [*text, 7, 8, 9]


def test_it_waits_for_a_match_that_can_pay() -> None:
    """Nothing is indexed or looked at meanwhile, but for one round in some: guesses teach undrafted, too."""
    asked: list[float] = []
    looks: list[int] = []

    def may_pay(confidence: float) -> bool:
        asked.append(confidence)
        return confidence > Trust().most(2)

    def pays(depth: int, confidence: float) -> bool:
        looks.append(depth)
        return confidence > Trust().most(2)

    budget = Budget(8, pays, may_pay=may_pay)
    drafter, text = ngram(), [*range(100), 7]  # one token agrees with what was read
    begin(drafter, text[:50])
    assert not len(drafter.propose(ids(text), budget))
    assert asked == [pytest.approx(Trust().most(size)) for size in (1, 2, 3)]
    for token in [1, 2, 900, 3, 4, 901, 5, 6, 902, 7, 8, 903, 9, 10, 904][: PATIENCE - 1]:
        text.append(token)  # two agree at most
        assert not len(drafter.propose(ids(text), budget))
    assert (len(asked), len(looks)) == (3, 1)
    text = [*text, 20, 21, 22]
    assert drafter.propose(ids(text), budget).tokens.tolist()[:2] == [23, 24], "three agree"
    assert not len(drafter.propose(ids([9, 9, 9, 1]), budget)), "another text may come"


def test_who_takes_everything_is_not_asked_and_a_corpus_is_looked_up_in_any_case(tmp_path: Path) -> None:
    hopeless = Budget(8, lambda depth, confidence: True, may_pay=lambda confidence: False)
    drafter = ngram()
    assert proposed(drafter, [1, 2, 3], hopeless._replace(asks=False)) == []
    assert proposed(drafter, [1, 2, 3, 4, 2], hopeless._replace(asks=False)) == [3, 4, 2]
    (tmp_path / "notes").write_text("50 51 52", encoding="utf-8")
    drafter = Ngram(Options(corpus=str(tmp_path / "notes")), NoModels())
    assert proposed(drafter, [1, 2, 3], hopeless) == []
    assert proposed(drafter, [1, 2, 3, 50], hopeless) == [51, 52]


@given(
    length=st.integers(1, 30), taught=st.lists(st.tuples(st.sampled_from(list(Support)), st.booleans()), max_size=30)
)
def test_no_first_guess_is_likelier_than_the_most(length: int, taught: list[tuple[Support, bool]]) -> None:
    trust = Trust()
    for support, right in taught:
        trust.learn(Guess(1, length, support), right=right)
    for support in (Support.SINGLE, Support.AGREED, Support.CONTESTED):
        assert trust.probability(Guess(1, length, support)) <= trust.most(length)
