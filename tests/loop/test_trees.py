"""Rounds with trees: what is counted, where an answer ends inside one, and what stays in the cache."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from localspec.core.draft import Draft, Ids, Verdict
from localspec.core.growth import Growth
from localspec.core.rejection import Rejection
from localspec.core.shapes import Shape
from localspec.drafters.base import Budget
from localspec.engine.base import Context, Pass
from localspec.engine.toy import END, ToyContext, ToyModel
from localspec.loop.control import FixedLength, RoundReport
from localspec.loop.generation import Generation, Limits
from localspec.loop.proposer import Proposer
from tests.loop.answers import GREEDY, Setting, greedy
from tests.loop.scripted import Scripted

PROMPT = [3, 1, 4]
COUNT = 30
NOTHING = Draft.chain(())


def ids(*tokens: int) -> Ids:
    return np.array(tokens, dtype=np.int32)


def model() -> ToyModel:
    return ToyModel(seed=1, end_bias=-30.0)


@pytest.fixture(scope="module")
def whole() -> list[int]:
    """The greedy text, prompt included, beyond what any answer here needs."""
    return [*PROMPT, *greedy(ToyContext(model()), model().vocab, PROMPT, COUNT + 8).tokens]


def bush(text: list[int]) -> Callable[[Ids, int], Draft]:
    """A tree around an answer known beforehand: at each of two depths a wrong sibling first, then the right token.

    Nodes 0 and 2 are wrong, 1 and 3 are right, and 4 hangs below the wrong node 0.
    """

    def propose(tokens: Ids, limit: int) -> Draft:
        if len(tokens) + 2 > len(text) or limit < 5:
            return NOTHING
        right, then = text[len(tokens)], text[len(tokens) + 1]
        return Draft(ids(1 + right % 20, right, 1 + then % 20, then, then), ids(-1, -1, 1, 1, 0))

    return propose


class Reports(FixedLength):
    """Always the same limit; keeps what it is told."""

    def __init__(self, N: int) -> None:
        super().__init__(N)
        object.__setattr__(self, "seen", [])
        self.seen: list[RoundReport]

    def observe(self, report: RoundReport) -> None:
        self.seen.append(report)


def reported(drafter: Scripted) -> list[RoundReport]:
    """What the controller is told of the rounds with a draft."""
    controller = Reports(8)
    generation = _generation(ToyContext(model()), drafter, controller, Limits(COUNT))
    assert list(generation)
    return [report for report in controller.seen if report.drafted]


def _generation(
    verifier: Context, drafter: Scripted, controller: FixedLength, limits: Limits, tree: Shape | Growth | None = None
) -> Generation:
    vocab = model().vocab
    return Generation(
        PROMPT,
        verifier=verifier,
        vocab=vocab,
        sampling=GREEDY,
        rule=Rejection(np.random.default_rng(0)),
        limits=limits,
        proposer=Proposer(drafter, controller, vocab=vocab, warn=lambda line: pytest.fail(line), tree=tree),
        controller=controller,
    )


def test_every_sibling_that_was_tried_is_counted(toy: Setting, whole: list[int]) -> None:
    """B61, B63: per round two nodes are accepted, four of five were tested, one never was."""
    answer = toy.answer(PROMPT, drafter=Scripted(bush(whole)), N=8, limits=Limits(COUNT))
    assert list(answer.tokens) == whole[len(PROMPT) :][:COUNT]
    stats = answer.stats
    rounds = stats.drafted // 5
    assert (stats.drafted, stats.tested, stats.accepted) == (5 * rounds, 4 * rounds, 2 * rounds)
    assert stats.accepted_by_position == [rounds, rounds]
    assert stats.tokens_per_pass is not None
    assert stats.tokens_per_pass > 2.0


def test_what_the_drafter_said_is_reported(whole: list[int]) -> None:
    """Siblings together at each tested depth; jointly along the accepted path."""
    plain = bush(whole)

    def sure(tokens: Ids, limit: int) -> Draft:
        draft = plain(tokens, limit)
        return Draft(draft.tokens, draft.parents, None, (0.2, 0.7, 0.1, 0.5, 0.9)) if len(draft) else draft

    reports = reported(Scripted(sure))
    assert len(reports) > 5
    for report in reports:
        assert report.confidences == pytest.approx((0.9, 0.6))
        assert report.taken == pytest.approx((0.7, 0.35))
        assert (report.drafted, report.tested, report.accepted, report.refused) == (5, 4, 2, False)


def test_a_drafter_that_says_nothing_is_not_quoted(whole: list[int]) -> None:
    reports = reported(Scripted(bush(whole)))
    assert reports
    assert all(report.confidences == report.taken == () for report in reports)


@pytest.mark.parametrize("count", range(1, 8))
def test_max_tokens_cut_a_path_where_it_is(toy: Setting, whole: list[int], count: int) -> None:
    """The cut may fall between two accepted nodes; text, tokens and cache end at the same place."""
    answer = toy.answer(PROMPT, drafter=Scripted(bush(whole)), N=8, limits=Limits(count))
    assert list(answer.tokens) == whole[len(PROMPT) :][:count]
    assert answer.finish_reason == "length"


@pytest.mark.parametrize("at", range(1, 9))
def test_a_stop_string_inside_an_accepted_path(toy: Setting, whole: list[int], at: int) -> None:
    text = b"".join(toy.vocab.piece(token) for token in whole[len(PROMPT) :]).decode()
    stop = text[at : at + 2]
    drafter = Scripted(bush(whole))
    answer = toy.answer(PROMPT, drafter=drafter, N=8, limits=Limits(COUNT, stops=(stop,)))
    assert answer.text == text[: text.index(stop)]
    assert answer.finish_reason == "stop"
    assert drafter.calls > 0


def test_an_end_token_among_siblings_ends_only_its_own_branch(whole: list[int]) -> None:
    """What hangs below it is dropped before the pass; a sibling's subtree stays."""
    seen: list[int] = []

    def propose(tokens: Ids, limit: int) -> Draft:
        following = whole[len(tokens) : len(tokens) + 2]
        return Draft(ids(END, 5, *following), ids(-1, 0, -1, 2)) if limit >= 4 else NOTHING

    class Watching(Scripted):
        def observe(self, result: Pass, verdict: Verdict | None) -> None:
            seen.append(result.rows)

    setting = Setting(ToyContext(model()), model().vocab)
    answer = setting.answer(PROMPT, drafter=Watching(propose), N=6, limits=Limits(COUNT))
    assert list(answer.tokens) == whole[len(PROMPT) :][:COUNT]
    assert seen.count(4) > 5  # the pending token, the end, and the other branch of two
    assert max(seen) == 4


@pytest.mark.parametrize("prompt", [[1, 2], [3, 1, 4], [9, 8]], ids=str)
def test_an_answer_that_ends_inside_a_tree(prompt: list[int]) -> None:
    ending = ToyModel(seed=1, end_bias=3.0)
    plain = greedy(ToyContext(ending), ending.vocab, prompt, 60)
    whole = [*prompt, *plain.tokens]

    def propose(tokens: Ids, limit: int) -> Draft:
        following = whole[len(tokens) : len(tokens) + 2]
        if len(following) < 2 or limit < 3:
            return Draft.chain(following[:limit])
        return Draft(ids(7, *following), ids(-1, -1, 1))

    setting = Setting(ToyContext(ending), ending.vocab)
    answer = setting.answer(prompt, drafter=Scripted(propose), N=6, limits=Limits(60))
    assert answer.tokens == plain.tokens
    assert answer.finish_reason == ("stop" if plain.tokens[-1] == END else "length")


class Asked(Scripted):
    """Keeps the budgets and proposes nothing."""

    def __init__(self) -> None:
        super().__init__(lambda tokens, limit: NOTHING)
        self.budgets: list[Budget] = []

    def propose(self, tokens: Ids, budget: Budget) -> Draft:
        self.budgets.append(budget)
        return super().propose(tokens, budget)


@pytest.mark.parametrize("tree", [Shape.parse("4,2,2"), Growth(nodes=30, depth=9)], ids=["static", "grown"])
def test_a_budget_holds_only_as_much_tree_as_there_is_room_for(tree: Shape | Growth) -> None:
    """Nodes by the cells that are left, leaves by the context's."""
    verifier, drafter = ToyContext(model(), capacity=40, draft_room=12, leaves=3), Asked()
    generation = _generation(verifier, drafter, FixedLength(30), Limits(), tree)
    assert list(generation)
    assert generation.answer is not None
    assert generation.answer.finish_reason == "context"
    assert len(drafter.budgets) > 30
    for at, budget in enumerate(drafter.budgets):
        # PROMPT and `at` tokens are committed; all but the pending one are in the cache.
        assert budget.limit == min(12, 40 - (len(PROMPT) + at))
        assert budget.leaves == 3
        part = budget.tree
        assert part is not None
        assert part.leaves <= 3
        assert (len(part) if isinstance(part, Shape) else part.nodes) <= budget.limit


def test_a_tree_is_no_deeper_than_tokens_are_wanted() -> None:
    drafter = Asked()
    assert list(_generation(ToyContext(model()), drafter, FixedLength(28), Limits(5), Shape.parse("4,2,2")))
    depths = [budget.tree.depth for budget in drafter.budgets if budget.tree is not None]
    assert depths == [3, 3, 2, 1]


def test_too_many_paths_cost_the_drafter_its_job_and_nothing_else(whole: list[int]) -> None:
    """B92: said once with both numbers; plain decoding goes on."""
    setting = Setting(ToyContext(model(), leaves=2), model().vocab)
    drafter = Scripted(lambda tokens, limit: Draft(ids(5, 6, 7), ids(-1, -1, -1)))
    answer = setting.answer(PROMPT, drafter=drafter, N=6, limits=Limits(COUNT))
    assert list(answer.tokens) == whole[len(PROMPT) :][:COUNT]
    assert len(setting.warnings) == 1
    assert "3 paths" in setting.warnings[0]
    assert "2 were asked for" in setting.warnings[0]
    assert answer.stats.drafter == "none"


@pytest.mark.parametrize("broken_at", range(1, 6))
def test_an_interrupt_after_a_tree_was_evaluated(toy: Setting, whole: list[int], broken_at: int) -> None:
    """In the middle of the transaction; the cache holds the committed text but its pending token."""

    class Interrupted(Scripted):
        def observe(self, result: Pass, verdict: Verdict | None) -> None:
            super().observe(result, verdict)
            if len(self.verdicts) == broken_at:
                raise KeyboardInterrupt

    generation = toy.start(PROMPT, drafter=Interrupted(bush(whole)), N=8, limits=Limits(COUNT))
    with pytest.raises(KeyboardInterrupt):
        list(generation)
    assert generation.answer is not None
    committed = [*PROMPT, *generation.answer.tokens]
    assert committed == whole[: len(committed)]
    assert toy.verifier.tokens.tolist() == committed[:-1]
    again = toy.answer(PROMPT, drafter=Scripted(bush(whole)), N=8, limits=Limits(COUNT))
    assert list(again.tokens) == whole[len(PROMPT) :][:COUNT]
