"""The draft model: it reports the law it drew from, its cache is the text, it stays within the ids that both share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.core.coupled import Coupled
from localspec.core.draft import Draft, Ids
from localspec.core.rejection import Rejection
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.drafters.base import Budget
from localspec.drafters.model import DraftModel, Options
from localspec.engine.toy import END, ToyContext, ToyModel
from localspec.errors import DrafterError, PairError
from tests.drafters.settings import TREES, Lender, budget, toy

GREEDY = Sampling(temperature=0.0)
FREE = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
TEXT = [3, 1, 4, 1, 5, 9, 2, 6]


class Bench:
    """A drafter over a toy draft whose context can be looked into."""

    def __init__(
        self,
        *,
        options: Options | None = None,
        size: int = 27,
        verifier_size: int = 27,
        known: int | None = None,
        blocked: Sequence[int] = (),
        end_bias: float = -30.0,
    ) -> None:
        self.model = toy(size=size, end_bias=end_bias)
        self.context = ToyContext(self.model, capacity=1024)
        lender = Lender(ToyModel(verifier_size).vocab, lambda: self.context, known=known, blocked=blocked)
        self.drafter = DraftModel(options or Options(), lender)

    def begin(self, text: Sequence[int], *, sampling: Sampling = GREEDY, rule: Rule | None = None) -> None:
        rule = rule or Rejection(np.random.default_rng(0))
        self.drafter.begin(ids(text), sampling=sampling, rule=rule, cancelled=lambda: False)

    def propose(self, text: Sequence[int], allowed: Budget | None = None) -> Draft:
        return self.drafter.propose(ids(text), allowed or budget(4))

    def greedy(self, text: Sequence[int], count: int) -> list[int]:
        """What the draft would say, by the plainest loop."""
        said = list(text)
        for _ in range(count):
            said.append(int(self.model.row(said[-2] if len(said) > 1 else END, said[-1]).argmax()))
        return said[len(text) :]


def ids(text: Sequence[int]) -> Ids:
    return np.array(text, dtype=np.int32)


@pytest.mark.parametrize("limit", range(1, 9))
def test_a_greedy_chain_is_the_drafts_own_text(limit: int) -> None:
    bench = Bench()
    bench.begin(TEXT)
    draft = bench.propose(TEXT, budget(limit))
    assert draft.is_chain
    assert draft.tokens.tolist() == bench.greedy(TEXT, limit)
    assert all(draft.law(node) is None for node in range(limit)), "a certain pick is deterministic"


@pytest.mark.parametrize("temperature", [-1.0, 0.4, 2.0])
def test_a_draw_is_reported_with_the_law_it_was_drawn_from(temperature: float) -> None:
    """B37: the law after temperature, filters and penalties, at the draft's own temperature if it has one."""
    asked = Sampling(temperature=1.2, top_k=9, top_p=0.9, repeat_penalty=1.3, penalty_last_n=4)
    used = Sampling(
        temperature=1.2 if temperature < 0 else temperature, top_k=9, top_p=0.9, repeat_penalty=1.3, penalty_last_n=4
    )
    bench = Bench(options=Options(temperature=temperature))
    bench.begin(TEXT, sampling=asked)
    draft = bench.propose(TEXT, budget(6))
    text = list(TEXT)
    for node, token in enumerate(draft.tokens.tolist()):
        law = draft.law(node)
        assert law is not None
        expected = used.law(bench.model.row(text[-2], text[-1]), ids(text)).dense(27)
        np.testing.assert_allclose(law.dense(27), expected, atol=1e-7)
        text.append(token)


def test_draws_follow_the_reported_law() -> None:
    bench = Bench()
    bench.begin(TEXT, sampling=FREE, rule=Rejection(np.random.default_rng(4)))
    counts = np.zeros(27)
    for _ in range(4000):
        draft = bench.propose(TEXT, budget(1))
        counts[draft.tokens[0]] += 1
    law = draft.law(0)
    assert law is not None
    assert np.abs(counts / 4000 - law.dense(27)).sum() < 0.1


def test_a_coupled_guess_is_deterministic() -> None:
    bench = Bench()
    bench.begin(TEXT, sampling=FREE, rule=Coupled(3))
    drafts = [bench.propose(TEXT, budget(6)) for _ in range(2)]
    assert drafts[0].tokens.tolist() == drafts[1].tokens.tolist()
    assert all(drafts[0].law(node) is None for node in range(6))
    rule = Coupled(3)
    row = FREE.law(bench.model.row(TEXT[-2], TEXT[-1]), ids(TEXT))
    assert drafts[0].tokens[0] == rule.winner(row, len(TEXT)), "the race of the position that it is drafted for"


def test_it_is_asked_before_each_draw_with_the_largest_probability() -> None:
    bench = Bench()
    bench.begin(TEXT, sampling=FREE)
    asked: list[tuple[int, float]] = []

    def pays(depth: int, confidence: float) -> bool:
        asked.append((depth, confidence))
        return True

    draft = bench.propose(TEXT, budget(3, pays=pays))
    laws = [draft.law(node) for node in range(3)]
    assert asked == [(depth, law.top) for depth, law in enumerate(laws, start=1) if law]


def test_an_end_token_ends_the_draft() -> None:
    """B09: nothing is drafted that could never be shown."""
    bench = Bench(end_bias=30.0)
    bench.begin(TEXT)
    assert bench.propose(TEXT, budget(8)).tokens.tolist() == [END]


# -- ids that both models share ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("sampling", [GREEDY, FREE], ids=["greedy", "no filters"])
def test_blocked_and_unknown_ids_are_never_proposed(sampling: Sampling, tree: str) -> None:
    """B01, B05: whatever the draft would like to say."""
    free = Bench()
    wanted = set(free.greedy(TEXT, 40)[:4])
    known = max(wanted)  # the largest of them lies just outside
    bench = Bench(known=known, blocked=sorted(wanted - {known}))
    bench.begin(TEXT, sampling=sampling)
    for seed in range(30):
        bench.begin(TEXT, sampling=sampling, rule=Rejection(np.random.default_rng(seed)))
        draft = bench.propose(TEXT, budget(8, tree=TREES[tree]))
        assert len(draft)
        assert wanted.isdisjoint(draft.tokens.tolist())
        assert draft.tokens.max() < known
        for node in range(len(draft)):
            law = draft.law(node)
            assert law is None or not any(law.prob(token) for token in wanted)


def test_a_text_with_ids_that_the_draft_does_not_have() -> None:
    """B01: a larger verifier says what the draft cannot read; it drafts on, and the rest of the text counts."""
    bench = Bench(size=20, verifier_size=27, known=20)
    text = [*TEXT, 25, 26, 3, 1]
    bench.begin(text)
    assert bench.propose(text).tokens.tolist() == bench.greedy([3, 1], 4)
    text += [26]
    draft = bench.propose(text)
    assert len(draft) == 4
    assert draft.tokens.max() < 20


def test_when_everything_is_blocked_it_says_so() -> None:
    bench = Bench(blocked=range(27))
    bench.begin(TEXT)
    with pytest.raises(Exception, match="-inf"):
        bench.propose(TEXT)


# -- its cache --------------------------------------------------------------------------------------------------------


def evaluated(bench: Bench, text: Sequence[int], limit: int) -> int:
    before = bench.context.evaluated
    bench.propose(text, budget(limit))
    return bench.context.evaluated - before


def test_the_prompt_is_read_once() -> None:
    """In `begin`, whose time counts as prefill; the pending token is left for the first draft."""
    bench = Bench()
    bench.begin(TEXT)
    assert bench.context.evaluated == len(TEXT) - 1
    assert evaluated(bench, TEXT, 4) == 1 + 3


def test_only_what_is_new_is_evaluated() -> None:
    """After a draft of 4 its cache holds all but the last of them, whatever became of it."""
    bench = Bench()
    bench.begin(TEXT)
    drafted = bench.propose(TEXT, budget(4)).tokens.tolist()
    assert evaluated(bench, [*TEXT, *drafted, 7], 1) == 2, "all accepted: the last drafted token and the bonus token"
    bench = Bench()
    bench.begin(TEXT)
    drafted = bench.propose(TEXT, budget(4)).tokens.tolist()
    assert evaluated(bench, [*TEXT, *drafted[:2], 7], 1) == 1, "two accepted: the residual token"
    assert evaluated(bench, [*TEXT, *drafted[:2], 7], 1) == 1, "the same again: the row of the last token"


texts = st.lists(st.integers(1, 26), min_size=1, max_size=10)


@settings(max_examples=50)
@given(
    texts, st.lists(st.tuples(st.integers(0, 20), texts, st.integers(1, 5)), max_size=8), st.sampled_from(list(TREES))
)
def test_the_past_leaves_no_trace(start: list[int], changes: list[tuple[int, list[int], int]], tree: str) -> None:
    """B27: after any edits and drafts it proposes what one that was built this moment would propose."""
    bench = Bench()
    bench.begin(start)
    text = list(start)
    for keep, more, limit in changes:
        bench.propose(text, budget(limit, tree=TREES[tree]))
        text = text[:keep] + more
        fresh = Bench()
        fresh.begin(text)
        drafts = [one.propose(text, budget(limit)) for one in (bench, fresh)]
        assert drafts[0].tokens.tolist() == drafts[1].tokens.tolist()


def test_a_cancelled_catching_up_is_an_empty_draft() -> None:
    bench = Bench()
    bench.begin(TEXT)
    long = [*TEXT, *range(1, 20)]
    assert not len(bench.propose(long, Budget(4, lambda depth, confidence: True, lambda: True)))
    assert bench.propose(long).tokens.tolist() == bench.greedy(long, 4)


@pytest.mark.parametrize("error", [DrafterError("none there"), PairError("other tokens")], ids=str)
def test_no_fitting_draft_is_an_error_when_it_is_built(error: Exception) -> None:
    """Not in the middle of a generation."""

    def refuse() -> ToyContext:
        raise error

    with pytest.raises(type(error), match=str(error)):
        DraftModel(Options(), Lender(ToyModel().vocab, refuse))
