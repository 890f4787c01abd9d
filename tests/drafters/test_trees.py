"""Trees of the draft model: one pass per depth, a cache that follows the accepted path, and room that is respected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from localspec.core.coupled import Coupled
from localspec.core.draft import Draft, Ids, Verdict
from localspec.core.growth import Growth
from localspec.core.noise import Noise
from localspec.core.race import places
from localspec.core.rejection import Rejection
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.core.shapes import Shape
from localspec.drafters.base import Budget
from localspec.drafters.model import DraftModel
from localspec.engine.base import Context
from localspec.engine.context import ContextSettings, LlamaContext
from localspec.engine.model import LlamaModel
from localspec.engine.toy import ToyContext, ToyModel
from tests.drafters.settings import Lender, built
from tests.services import tiny

FREE = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
GREEDY = Sampling(temperature=0.0)
LAWS = {"greedy": GREEDY, "no filters": FREE, "default": Sampling(), "penalties": Sampling(repeat_penalty=1.4)}
SIZE = 27
TEXT = [3, 1, 4, 1, 5, 9, 2, 6]


class Counting(ToyContext):
    """Counts passes and the nodes they hold."""

    def __init__(self, model: ToyModel, **sizes: int) -> None:
        super().__init__(model, **sizes)
        self.passes: list[int] = []

    def grow(self, tokens: Ids, parents: Ids) -> Any:
        self.passes.append(len(tokens))
        return super().grow(tokens, parents)


def ids(tokens: list[int]) -> Ids:
    return np.array(tokens, dtype=np.int32)


def drafting(
    context: Context,
    *,
    sampling: Sampling = GREEDY,
    rule: Rule | None = None,
    options: dict[str, str] | None = None,
    blocked: tuple[int, ...] = (),
    text: list[int] = TEXT,
) -> DraftModel:
    """The drafter over `context`, about to answer `text`."""
    lender = Lender(ToyModel(SIZE, seed=1).vocab, lambda: context, blocked=blocked)
    drafter = built("model", lender, options)
    assert isinstance(drafter, DraftModel)
    rule = rule or Rejection(np.random.default_rng(0))
    drafter.begin(ids(text), sampling=sampling, rule=rule, cancelled=lambda: False)
    return drafter


def budget(tree: Shape | Growth, *, limit: int = 32, leaves: int = 16, **more: Any) -> Budget:
    return Budget(limit, lambda depth, confidence: True, leaves=leaves, tree=tree, **more)


def toy(**sizes: int) -> Counting:
    return Counting(ToyModel(SIZE, seed=1, blur=0.3, end_bias=-30.0), **{"capacity": 256, **sizes})


@pytest.mark.parametrize("law", LAWS)
def test_a_static_tree_costs_one_pass_per_depth(law: str) -> None:
    context = toy()
    draft = drafting(context, sampling=LAWS[law]).propose(ids(TEXT), budget(Shape.parse("4,2,2")))
    assert len(context.passes) == 2
    if law in ("greedy", "no filters"):  # filters may leave fewer than four tokens
        assert context.passes == [4, 8]
        assert len(draft) == 4 + 8 + 16
        assert draft.leaves == 16


def path_to(draft: Draft, parent: int) -> list[int]:
    return [] if parent == -1 else [int(draft.tokens[node]) for node in draft.path(parent)]


def test_picks_are_the_likeliest_and_say_how_likely() -> None:
    context = toy()
    draft = drafting(context).propose(ids(TEXT), budget(Shape.parse("3,2")))
    assert draft.laws is None
    assert draft.confidences is not None
    for parent, children in draft.children.items():
        text = [*TEXT, *path_to(draft, parent)]
        row = context.model.row(text[-2], text[-1]).astype(np.float64)
        ranking = np.argsort(-row, kind="stable")[: len(children)]
        assert [int(draft.tokens[node]) for node in children] == ranking.tolist()
        probs = np.exp(row[ranking]) / np.exp(row).sum()
        assert [draft.confidences[node] for node in children] == pytest.approx(probs, rel=1e-4)


def test_draws_report_the_law_given_their_elders() -> None:
    """B44: the second of two siblings was drawn from what the first had left."""
    draft = drafting(toy(), sampling=FREE).propose(ids(TEXT), budget(Shape.parse("3,2,1")))
    assert draft.laws is not None
    for children in draft.children.values():
        gone: list[int] = []
        for node in children:
            law = draft.laws[node]
            assert law is not None
            assert law.prob(int(draft.tokens[node])) > 0.0
            assert all(law.prob(elder) == 0.0 for elder in gone)
            gone.append(int(draft.tokens[node]))


def test_top_siblings_are_picks_at_every_temperature() -> None:
    """EAGLE-2's way: nothing is drawn, so nothing is reported as drawn."""
    drafter = drafting(toy(), sampling=FREE, options={"siblings": "top"})
    draft = drafter.propose(ids(TEXT), budget(Growth(nodes=12, depth=4, width=3)))
    assert len(draft) == 12
    assert draft.laws is None


def test_coupled_siblings_are_the_first_places_of_the_race() -> None:
    """Gumbel top-k: the k-th sibling is the k-th to arrive, at the position where it would stand."""
    context = toy()
    draft = drafting(context, sampling=FREE, rule=Coupled(5)).propose(ids(TEXT), budget(Shape.parse("3,2")))
    for parent, children in draft.children.items():
        text = [*TEXT, *path_to(draft, parent)]
        law = FREE.law(context.model.row(text[-2], text[-1]), ids(text))
        expected = places(law, Noise.at(5, len(text)), len(children))
        assert [int(draft.tokens[node]) for node in children] == expected


def test_penalties_know_the_path() -> None:
    """B42: what stands in the text or on a node's path is penalised below it."""
    heavy = Sampling(temperature=0.0, presence_penalty=100.0, penalty_last_n=-1)
    draft = drafting(toy(), sampling=heavy).propose(ids(TEXT), budget(Shape.parse("2,2,2")))
    for node in range(len(draft)):
        path = path_to(draft, node)
        assert len(set(path) | set(TEXT)) == len(path) + len(set(TEXT))


@pytest.mark.parametrize("law", LAWS)
def test_blocked_ids_are_never_in_a_tree(law: str) -> None:
    """B05."""
    free = drafting(toy(), sampling=LAWS[law]).propose(ids(TEXT), budget(Shape.parse("4,4")))
    blocked = tuple(sorted(set(free.tokens.tolist())))[:10]
    draft = drafting(toy(), sampling=LAWS[law], blocked=blocked).propose(ids(TEXT), budget(Shape.parse("4,4")))
    assert len(draft) >= 2
    assert not set(draft.tokens.tolist()) & set(blocked)


def play(drafter: DraftModel, draft: Draft, text: list[int], path: tuple[int, ...], next_token: int) -> list[int]:
    """Tell the drafter that `path` was accepted; the text after it."""
    verifier = ToyContext(ToyModel(SIZE, seed=1, end_bias=-30.0), capacity=256)
    verifier.prefill(text[:-1], logits=False)
    result = verifier.evaluate(text[-1], draft)
    drafter.observe(result, Verdict(path, next_token, "residual", len(path)))
    return [*text, *draft.tokens[list(path)].tolist(), next_token]


@pytest.mark.parametrize("tree", [Shape.parse("3,2,2"), Growth(nodes=12, depth=4, width=3)], ids=["static", "grown"])
def test_the_accepted_path_is_not_evaluated_again(tree: Shape | Growth) -> None:
    """B27 for trees: what stays in the draft's cache is the accepted path, as far as the draft has evaluated it."""
    context, text = toy(), list(TEXT)
    drafter = drafting(context)
    rng = np.random.default_rng(2)
    for _ in range(12):
        draft = drafter.propose(ids(text), budget(tree))
        assert context.tokens.tolist() == text
        path = draft.path(int(rng.integers(-1, len(draft))))
        evaluated = context.evaluated
        text = play(drafter, draft, text, path, int(rng.integers(1, SIZE)))
        assert context.evaluated == evaluated
        held = context.tokens.tolist()
        assert held == text[: len(held)]
        # The next token was never evaluated, and the last of the path only if it had children.
        assert len(held) >= len(text) - 2


def test_a_round_that_was_given_up_leaves_nothing_behind() -> None:
    context = toy()
    drafter = drafting(context)
    draft = drafter.propose(ids(TEXT), budget(Shape.parse("2,2,2")))
    verifier = ToyContext(ToyModel(SIZE, seed=1), capacity=256)
    verifier.prefill(TEXT[:-1], logits=False)
    drafter.observe(verifier.evaluate(TEXT[-1], draft), None)
    other = [*TEXT[:4], 7, 8]
    again = drafter.propose(ids(other), budget(Shape.parse("2,2,2")))
    fresh = drafting(toy(), text=other).propose(ids(other), budget(Shape.parse("2,2,2")))
    assert again.tokens.tolist() == fresh.tokens.tolist()


@pytest.mark.parametrize("law", ["greedy", "no filters"])
def test_deep_trees_stay_within_the_drafts_own_sequences(law: str) -> None:
    """`--tree auto --N 12`: twelve layers of four nodes asked for more sequences than there are."""
    context = toy(leaves=16, draft_room=32)
    drafter = drafting(context, sampling=LAWS[law])
    text = list(TEXT)
    for seed in range(6):
        draft = drafter.propose(ids(text), budget(Growth(nodes=32, depth=12, leaves=16)))
        assert len(draft) > 8
        text = play(drafter, draft, text, draft.path(seed), 1 + seed)


@pytest.mark.parametrize("law", ["greedy", "no filters"])
@pytest.mark.parametrize("left", range(1, 10))
def test_a_draft_context_that_is_nearly_full(law: str, left: int) -> None:
    """Every evaluated node takes a cell, though only some are kept."""
    text = [1 + at % 20 for at in range(64 - left)]
    context = toy(capacity=64, leaves=8, draft_room=12)
    drafter = drafting(context, sampling=LAWS[law], text=text)
    for tree in (Growth(nodes=left, depth=6, leaves=8), Shape.parse("2,2,2").within(nodes=left, leaves=8)):
        draft = drafter.propose(ids(text), budget(tree, limit=left, leaves=8))
        assert 1 <= len(draft) <= left


def test_a_draft_that_takes_chains_only_drafts_a_chain() -> None:
    """A recurrent draft beside an attention verifier."""
    draft = drafting(toy(leaves=1)).propose(ids(TEXT), budget(Shape.parse("3,2"), limit=5))
    assert draft.is_chain
    assert len(draft) == 5


def test_nothing_is_drafted_where_nothing_is_chosen() -> None:
    context = toy()
    for sampling in LAWS.values():
        drafter = drafting(context, sampling=sampling)
        allowed = budget(Growth(nodes=8), choose=lambda joints: 0, widen=lambda depth, joints: 0)
        assert len(drafter.propose(ids(TEXT), allowed)) == 0
    assert context.passes == []


def test_rates_by_rank_are_learned_across_rounds() -> None:
    """What was taken decides how the next sampled tree is shaped, never what is in it."""
    drafter, tree, text = drafting(toy(), sampling=FREE), Growth(nodes=6, depth=6, width=4), list(TEXT)
    before = len(drafter.propose(ids(text), budget(tree)).children[-1])
    for _ in range(60):
        draft = drafter.propose(ids(text), budget(tree))
        eldest = draft.children[-1]
        text = play(drafter, draft, text[-20:], (eldest[min(1, len(eldest) - 1)],), 1 + len(text) % 20)
    # The favourite is hardly ever taken, so others get their turn.
    assert len(draft.children[-1]) > before


# -- the same on llama.cpp --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def draft_model() -> Iterator[LlamaModel]:
    with LlamaModel(tiny.model("draft"), gpu_layers=0) as model:
        yield model


@pytest.mark.parametrize("tree", [Shape.parse("4,2,2"), Growth(nodes=24, depth=12, leaves=8)], ids=["static", "grown"])
@pytest.mark.parametrize("law", ["greedy", "no filters", "penalties"])
def test_the_same_tree_from_a_cache_that_has_seen_much_and_from_a_fresh_one(
    draft_model: LlamaModel, law: str, tree: Shape | Growth
) -> None:
    """What earlier trees left in the cache would show as other tokens; coupled draws repeat themselves."""
    settings = ContextSettings(capacity=128, draft_room=28, leaves=16, flash_attn="off")
    text = list(tiny.PROMPT)
    rng = np.random.default_rng(4)
    with LlamaContext(draft_model, settings) as used:
        for _ in range(6):
            # A drafter of its own each time: rates by rank would shape the trees of the one that has learned.
            drafter = _over(draft_model, used, law, text)
            draft = drafter.propose(ids(text), budget(tree, limit=28))
            with LlamaContext(draft_model, settings) as fresh:
                expected = _over(draft_model, fresh, law, text).propose(ids(text), budget(tree, limit=28))
            assert draft.tokens.tolist() == expected.tokens.tolist()
            assert draft.parents.tolist() == expected.parents.tolist()
            path = draft.path(int(rng.integers(-1, len(draft))))
            drafter.observe(None, Verdict(path, 99, "residual", len(path)))  # type: ignore[arg-type]
            text = [*text, *draft.tokens[list(path)].tolist(), 99]


def _over(model: LlamaModel, context: LlamaContext, law: str, text: list[int]) -> DraftModel:
    drafter = built("model", Lender(model.vocab, lambda: context))
    assert isinstance(drafter, DraftModel)
    drafter.begin(ids(text), sampling=LAWS[law], rule=Coupled(3), cancelled=lambda: False)
    return drafter
