"""What every drafter owes, whatever its technique: run over the whole registry, on the toy and on tiny GGUFs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.core.coupled import Coupled
from localspec.core.draft import Draft, Ids
from localspec.core.rejection import Rejection
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.drafters.base import Budget, Drafter
from localspec.engine.context import ContextSettings, LlamaContext
from localspec.engine.model import LlamaModel
from localspec.engine.toy import ToyContext
from tests.drafters.settings import NAMES, TREES, Lender, budget, built, toy, toy_lender
from tests.headlike import aligned
from tests.services import tiny

GREEDY = Sampling(temperature=0.0)
LAWS = {
    "greedy": GREEDY,
    "default": Sampling(),
    "no filters": Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0),
    "penalties": Sampling(repeat_penalty=1.3, frequency_penalty=0.2, presence_penalty=0.2, logit_bias={3: 2.0}),
}
TEXTS = [[5], [5, 6], [3, 1, 4, 1, 5, 9, 2, 6] * 3, [7] * 20, [*range(1, 25)] * 2]


def ids(text: list[int]) -> Ids:
    return np.array(text, dtype=np.int32)


def begin(drafter: Drafter, text: list[int], *, law: str = "greedy", rule: Rule | None = None) -> None:
    rule = rule or Rejection(np.random.default_rng(0))
    drafter.begin(ids(text), sampling=LAWS[law], rule=rule, cancelled=lambda: False)


def check(draft: Draft, allowed: Budget, *, vocab_size: int) -> None:
    """A well-formed draft within its budget, whose laws could have produced it."""
    assert len(draft) <= allowed.limit
    assert len(draft.parents) == len(draft)
    assert (draft.parents < np.arange(len(draft))).all()
    assert (draft.parents >= -1).all()
    if len(draft):
        assert 0 <= draft.tokens.min() <= draft.tokens.max() < vocab_size
        assert draft.leaves <= max(1, allowed.leaves)
    assert draft.laws is None or len(draft.laws) == len(draft)
    for node, token in enumerate(draft.tokens.tolist()):
        law = draft.law(node)
        assert law is None or law.prob(token) > 0.0, "a token of probability 0 cannot have been drawn"
    for siblings in draft.children.values():
        tokens = draft.tokens[list(siblings)].tolist()
        assert len(set(tokens)) == len(tokens), "a second sibling of the same token can never be accepted"


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def drafter(name: str) -> Iterator[Drafter]:
    made = built(name, toy_lender(toy()))
    yield made
    made.close()


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("law", LAWS)
def test_drafts_are_well_formed_and_within_their_budget(drafter: Drafter, law: str, tree: str) -> None:
    for rule in (Rejection(np.random.default_rng(1)), Coupled(1)):
        for text in TEXTS:
            begin(drafter, text, law=law, rule=rule)
            for limit in range(1, 9):
                allowed = budget(limit, tree=TREES[tree])
                check(drafter.propose(ids(text), allowed), allowed, vocab_size=27)


def test_one_path_is_asked_for_and_given(drafter: Drafter) -> None:
    """Some memories cannot check trees: there a drafter that only knows trees is silent."""
    for text in TEXTS:
        begin(drafter, text)
        for tree in TREES.values():
            draft = drafter.propose(ids(text), budget(8, leaves=1, tree=tree))
            assert draft.is_chain


def test_what_does_not_pay_is_not_drafted(drafter: Drafter) -> None:
    """Asked before the first token: then nothing is drawn, and no time is spent on it."""
    asked: list[tuple[int, float]] = []

    def never(depth: int, confidence: float) -> bool:
        asked.append((depth, confidence))
        return False

    for text in TEXTS:
        begin(drafter, text)
        asked.clear()
        draft = drafter.propose(ids(text), budget(8, pays=never))
        assert all(depth == 1 and 0.0 <= confidence <= 1.0 for depth, confidence in asked)
        assert not asked or not len(draft)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_drafting_stops_where_it_stops_paying(drafter: Drafter, depth: int) -> None:
    asked: list[int] = []

    def pays(at: int, confidence: float) -> bool:
        asked.append(at)
        return at <= depth

    for text in TEXTS:
        begin(drafter, text)
        asked.clear()
        draft = drafter.propose(ids(text), budget(8, pays=pays))
        if asked:
            assert len(draft) <= depth
            assert max(asked) <= depth + 1


texts = st.lists(st.integers(1, 26), min_size=1, max_size=12)
edits = st.lists(st.tuples(st.integers(0, 30), texts), min_size=1, max_size=8)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)
@given(start=texts, changes=edits, tree=st.sampled_from(list(TREES)))
def test_any_text_may_come_next(name: str, start: list[int], changes: list[tuple[int, list[int]]], tree: str) -> None:
    """Rewinds, edits, other conversations, with or without `begin` in between, observed or not."""
    drafter = built(name, toy_lender(toy()))
    begin(drafter, start)
    text = list(start)
    for keep, more in changes:
        text = text[:keep] + more
        if keep % 3 == 0:
            begin(drafter, text)
        allowed = budget(5, tree=TREES[tree])
        check(drafter.propose(ids(text), allowed), allowed, vocab_size=27)
    drafter.close()


def test_beginning_again_changes_nothing(name: str) -> None:
    for text in TEXTS:
        once, twice = built(name, toy_lender(toy())), built(name, toy_lender(toy()))
        begin(once, text)
        begin(twice, text)
        begin(twice, text)
        drafts = [drafter.propose(ids(text), budget(6)) for drafter in (once, twice)]
        assert drafts[0].tokens.tolist() == drafts[1].tokens.tolist()


def test_closing_twice_is_fine(drafter: Drafter) -> None:
    begin(drafter, TEXTS[2])
    drafter.propose(ids(TEXTS[2]), budget(4))
    drafter.close()
    drafter.close()


def test_it_is_told_that_a_round_was_given_up(drafter: Drafter) -> None:
    """`observe` without a verdict: nothing is learnt, and the next round works."""
    context = ToyContext(toy())
    text = TEXTS[2]
    begin(drafter, text)
    for _ in range(3):
        draft = drafter.propose(ids(text), budget(6, tree=TREES["2,2,1"]))
        context.prefill(ids(text[:-1]), logits=False)
        drafter.observe(context.evaluate(text[-1], draft), None)
        context.rewind(len(text) - 1)
    allowed = budget(6)
    check(drafter.propose(ids(text), allowed), allowed, vocab_size=27)


def test_a_cancelled_draft_is_given_up_soon(drafter: Drafter) -> None:
    text = TEXTS[2]
    drafter.begin(ids(text), sampling=GREEDY, rule=Rejection(np.random.default_rng(0)), cancelled=lambda: True)
    allowed = Budget(8, lambda depth, confidence: True, lambda: True)
    check(drafter.propose(ids(text), allowed), allowed, vocab_size=27)
    begin(drafter, text)
    check(drafter.propose(ids(text), budget(8)), budget(8), vocab_size=27)


@pytest.fixture(scope="module")
def models() -> Iterator[dict[str, LlamaModel]]:
    loaded = {name: LlamaModel(tiny.model(name), gpu_layers=0) for name in ("verifier", "draft", "eagle3")}
    yield loaded
    for model in loaded.values():
        model.close()


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("law", LAWS)
def test_the_same_on_a_real_context(models: dict[str, LlamaModel], name: str, law: str, tree: str) -> None:
    settings = ContextSettings(capacity=128, draft_room=8, leaves=8, flash_attn="off")
    lender = Lender(
        models["verifier"].vocab,
        lambda: LlamaContext(models["draft"], settings),
        head=lambda kind: aligned(kind, models, settings),
    )
    drafter = built(name, lender)
    text = list(tiny.PROMPT)
    rng = np.random.default_rng(3)
    try:
        for _ in range(6):
            begin(drafter, text, law=law)
            allowed = budget(int(rng.integers(1, 9)), leaves=8, tree=TREES[tree])
            check(drafter.propose(ids(text), allowed), allowed, vocab_size=261)
            text = [*text[: int(rng.integers(1, len(text)))], *rng.integers(5, 261, 5).tolist()]
    finally:
        drafter.close()
        lender.close()


@pytest.mark.parametrize("tree", TREES)
def test_a_draft_that_was_cut_at_an_end_token_is_no_trouble(drafter: Drafter, tree: str) -> None:
    """What is below an end token is taken away before the pass, so rows and nodes have other numbers afterwards."""
    model = toy()
    text = [0, 5, 0, 6, 0, 5, 0, 6, 0]
    begin(drafter, text)
    for _ in range(8):
        draft = drafter.propose(ids(text), budget(8, tree=TREES[tree])).ending_at(model.vocab.is_end)
        context = ToyContext(model)
        context.prefill(ids(text[:-1]), logits=False)
        result = context.evaluate(text[-1], draft)
        rule = Rejection(np.random.default_rng(0))
        verdict = rule.accept(draft, lambda row, result=result: GREEDY.law(result.logits(row), ids([])), len(text))  # type: ignore[misc]
        drafter.observe(result, verdict)
        text += [*draft.tokens[list(verdict.path)].tolist(), verdict.next_token]
