"""Several drafters of which somebody else says who is asked: whose draft it is, who is told, who is left out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from localspec.core.coupled import Coupled
from localspec.core.draft import EMPTY, Draft, Ids
from localspec.core.growth import Growth
from localspec.core.law import Law
from localspec.core.sampling import Sampling
from localspec.drafters.auto import Auto, Options
from localspec.drafters.base import Asking, Budget, Drafter
from localspec.engine.toy import ToyContext
from localspec.errors import DrafterError, PairError, UsageError
from localspec.loop.generation import Generation, Limits
from localspec.loop.proposer import Proposer
from localspec.planner.books import Books
from localspec.planner.choice import Choice
from localspec.planner.controller import AutoLength
from tests.drafters.settings import TOY_PROMPT, Pair, built, toy, toy_lender
from tests.drafters.test_cascade import RESULT, ROOMY, Scripted, Shelf

TEXT = np.array([1, 2], dtype=np.int32)


def auto(**members: Scripted | Exception) -> tuple[Auto, Shelf]:
    shelf = Shelf(members)
    return Auto(Options(",".join(members)), shelf), shelf


def asking(*names: str) -> Budget:
    """A budget of somebody who has these asked."""

    def turns() -> Iterator[tuple[str, Budget]]:
        return ((name, ROOMY._replace(limit=3)) for name in names)

    return ROOMY._replace(turns=turns)


def test_it_says_whose_draft_it_was() -> None:
    assert isinstance(auto(a=Scripted("a"))[0], Asking)
    assert isinstance(built("cascade", toy_lender(toy())), Asking)
    assert not isinstance(built("ngram", toy_lender(toy())), Asking)


def test_who_is_not_asked_is_not_asked() -> None:
    first, second = Scripted("a", [7]), Scripted("b", [8])
    drafter, _ = auto(a=first, b=second)
    assert drafter.propose(TEXT, asking("b")).tokens.tolist() == [8]
    assert (first.asked, drafter.heard) == (0, "b")
    assert drafter.propose(TEXT, asking()) is EMPTY
    assert drafter.heard == "none"
    assert drafter.propose(TEXT, asking("nobody", "a")).tokens.tolist() == [7]


def test_who_is_asked_later_replaces_picks_if_it_has_anything_to_say() -> None:
    lookup, silent, model = Scripted("lookup", [7]), Scripted("silent"), Scripted("model", [8, 9])
    drafter, _ = auto(lookup=lookup, silent=silent, model=model)
    assert drafter.propose(TEXT, asking("lookup", "silent")).tokens.tolist() == [7]
    assert drafter.heard == "lookup"
    assert drafter.propose(TEXT, asking("lookup", "model")).tokens.tolist() == [8, 9]
    assert drafter.heard == "model"


def test_a_draft_that_was_drawn_is_never_put_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, later = Scripted("drawn"), Scripted("later", [9])
    law = Law.of(np.full(27, 1 / 27))
    monkeypatch.setattr(drawn, "propose", lambda tokens, budget: Draft.chain([5], [law]))
    drafter, _ = auto(drawn=drawn, later=later)
    assert drafter.propose(TEXT, asking("drawn", "later")).tokens.tolist() == [5]
    assert later.asked == 0


def test_without_anybody_who_chooses_they_are_asked_in_order() -> None:
    silent, speaker, other = Scripted("a"), Scripted("b", [7]), Scripted("c", [8])
    drafter, _ = auto(a=silent, b=speaker, c=other)
    assert drafter.propose(TEXT, ROOMY).tokens.tolist() == [7]
    assert (silent.asked, speaker.asked, other.asked) == (1, 1, 0)
    drafter.observe(RESULT, None)
    assert [len(one.heard) for one in (silent, speaker, other)] == [1, 1, 1]


def test_one_that_fails_leaves_and_the_others_go_on() -> None:
    bad, good = Scripted("bad", fails="propose"), Scripted("good", [7])
    drafter, shelf = auto(bad=bad, good=good)
    assert drafter.propose(TEXT, asking("bad", "good")).tokens.tolist() == [7]
    assert drafter.members == ["good"]
    assert bad.closed == 1
    assert shelf.warnings == ["Drafter auto goes on without bad, which failed: broken in propose."]


def test_one_that_cannot_be_opened_is_named() -> None:
    drafter, shelf = auto(a=Scripted("a"), b=PairError("other tokens", hint="Choose another."))
    assert drafter.members == ["a"]
    assert shelf.warnings == ["Drafter auto goes on without b: other tokens. Choose another."]
    with pytest.raises(DrafterError, match="no drafter of a,b can be used"):
        auto(a=PairError("other tokens"), b=OSError("no memory"))


@pytest.mark.parametrize("among", [",", "ngram,ngram", "ngram,cascade", "auto", "none,ngram"])
def test_a_list_that_makes_no_sense_is_wrong_use(among: str) -> None:
    with pytest.raises(UsageError, match="option among"):
        Options(among)


@pytest.mark.parametrize("order", ["model,ngram", "ngram,model"])
def test_the_text_is_the_verifiers_whoever_is_chosen(order: str) -> None:
    """Coupled: the same seed, the same text, with a real chooser over the toy; shares add up to the passes."""
    model = toy(end_bias=-30.0)
    verifier = ToyContext(model, draft_room=64)
    for sampling in (Sampling(temperature=0.0), Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)):
        drafter: Drafter = Auto(Options(order), toy_lender(model))
        books = Books(15)
        arms = {name: AutoLength(lookup=name == "ngram", books=books) for name in order.split(",")}
        chooser = Choice(arms, books)
        for seed in range(3):
            plain = Pair(ToyContext(model), model.vocab, None)
            expected = plain.answer(TOY_PROMPT, sampling=sampling, rule=Coupled(seed), count=150)
            generation = Generation(
                TOY_PROMPT,
                verifier=verifier,
                vocab=model.vocab,
                sampling=sampling,
                rule=Coupled(seed),
                limits=Limits(150, ignore_end=True),
                proposer=Proposer(drafter, chooser, vocab=model.vocab, warn=pytest.fail),
                controller=chooser,
            )
            for _piece in generation:
                pass
            assert generation.answer is not None
            assert generation.answer.tokens == expected.tokens
            stats = generation.answer.stats
            assert stats.drafter == "auto"
            assert set(stats.shares) <= {"none", "model", "ngram"}
            assert sum(share.rounds for share in stats.shares.values()) == stats.verifier_passes
            assert sum(share.drafted for share in stats.shares.values()) == stats.drafted
            assert sum(share.accepted for share in stats.shares.values()) == stats.accepted


class Told(Choice):
    """Has one drafter asked, for a smaller draft than the round has room for."""

    def turns(self) -> Iterator[tuple[str, int, bool]]:
        yield "model", 3, True
        yield "model", 2, False


def test_a_tree_has_no_more_nodes_than_its_drafter_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tree was fitted to the largest limit of all drafters, so one that had measured nothing could leap to it."""
    books = Books(32)
    chooser, model = Told({"model": AutoLength(books=books)}, books), Scripted("model")
    asked: list[Budget] = []

    def propose(tokens: Ids, budget: Budget) -> Draft:
        asked.append(budget)
        return EMPTY

    monkeypatch.setattr(model, "propose", propose)
    drafter, _ = auto(model=model)
    proposer = Proposer(drafter, chooser, vocab=toy().vocab, warn=pytest.fail, tree=Growth(nodes=32, depth=15))
    proposer.propose(TEXT, 15, leaves=4, depth=10)
    (branching, chain) = asked
    assert isinstance(branching.tree, Growth)
    assert (branching.limit, branching.tree.nodes, branching.tree.leaves, branching.tree.depth) == (3, 3, 4, 10)
    assert (chain.limit, chain.tree) == (2, None)
