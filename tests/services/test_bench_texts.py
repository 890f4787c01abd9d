"""Comparing greedy texts: where they part, whether the backend's arithmetic explains it, how much they repeat."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from localspec.core.draft import Draft
from localspec.engine.base import Row
from localspec.engine.toy import ToyContext, ToyModel, ToyPass
from localspec.services.bench.texts import first_difference, judge, loop_share, replay, woven


class Shaky(ToyContext):
    """A verifier whose rows move with the number of tokens in the pass, as quantised kernels do."""

    def __init__(self, model: ToyModel, noise: float) -> None:
        super().__init__(model)
        self.noise = noise

    def evaluate(self, pending: int, draft: Draft) -> ToyPass:
        result = super().evaluate(pending, draft)
        shifts = np.random.default_rng(1 + len(draft)).uniform(-self.noise, self.noise, self.vocab_size)
        moved = (shifts if len(draft) else np.zeros(self.vocab_size)).astype(np.float32)
        rows = [result.logits(row) + moved for row in range(result.rows)]
        return ToyPass(rows, lambda: True)


def greedy(context: ToyContext, prompt: Sequence[int], count: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(context.model.row(tokens[-2], tokens[-1]).argmax()))
    return tokens[len(prompt) :]


def second_best(row: Row) -> int:
    return int(np.argsort(row)[-2])


@pytest.mark.parametrize(
    ("mine", "theirs", "place"),
    [([1, 2], [1, 2], None), ([1, 2], [1, 3], 1), ([1], [1, 2], 1), ([], [], None), ([], [5], 0)],
)
def test_first_difference(mine: list[int], theirs: list[int], place: int | None) -> None:
    assert first_difference(mine, theirs) == place
    assert first_difference(theirs, mine) == place


def test_loop_share_counts_what_was_said_before() -> None:
    assert loop_share([1, 2, 3]) is None
    assert loop_share([1, 2, 3, 4, 5]) == 0.0
    assert loop_share([1, 2, 3, 4, 1, 2, 3, 4]) == pytest.approx(1 / 5)


def test_replay_gives_the_row_after_the_text_whatever_the_step() -> None:
    context = ToyContext(ToyModel(seed=5))
    for step in (1, 2, 3, 7):
        row = replay(context, [4, 9, 2], [8, 8, 3, 1, 6], step)
        assert np.array_equal(row, context.model.row(1, 6))
        assert context.tokens.tolist() == [4, 9, 2, 8, 8, 3, 1, 6]


@pytest.mark.parametrize("branches", [2, 3])
def test_replay_in_trees_keeps_to_the_text(branches: int) -> None:
    """Trees of filler beside the text; fewer where the context takes no more leaves."""
    for leaves in (32, 4, 1):
        context = ToyContext(ToyModel(seed=5), leaves=leaves)
        for step in (1, 2, 3, 7):
            row = replay(context, [4, 9, 2], [8, 8, 3, 1, 6], step, branches)
            assert np.array_equal(row, context.model.row(1, 6))
            assert context.tokens.tolist() == [4, 9, 2, 8, 8, 3, 1, 6]


def test_a_woven_path_has_its_tokens_youngest() -> None:
    draft = woven([5, 6], 3, filler=1)
    assert draft.tokens.tolist() == [1, 1, 5, 1, 1, 6]
    assert draft.parents.tolist() == [-1, -1, -1, 2, 2, 2]
    assert woven([5, 6], 1, filler=1).is_chain


def test_b47_noise_of_trees_counts_where_drafts_may_branch() -> None:
    """B47: after a tree the tokens lie in another order in the cache, which alone moves logits of quantised models."""

    class Disordered(ToyContext):
        """Rows are further off after every pass over a tree."""

        trees = 0

        def evaluate(self, pending: int, draft: Draft) -> ToyPass:
            self.trees += not draft.is_chain
            result = super().evaluate(pending, draft)
            shift = np.float32(0.5 * self.trees) * np.arange(self.vocab_size, dtype=np.float32)
            return self._pass([result.logits(row) + shift for row in range(result.rows)])

    model = ToyModel(seed=5)
    plain = greedy(ToyContext(model), [1, 2], 6)
    other = [*plain[:3], second_best(model.row(plain[1], plain[2]))]
    chains = judge(Disordered(model), [1, 2], plain, other, index=0, lengths=(2,))
    trees = judge(Disordered(model), [1, 2], plain, other, index=0, lengths=(2,), branches=2)
    assert chains is not None
    assert trees is not None
    assert not chains.is_near_tie
    assert trees.is_near_tie


def test_equal_texts_are_not_judged() -> None:
    context = ToyContext(ToyModel())
    assert judge(context, [1, 2], [3, 4], [3, 4], index=0, lengths=(2,)) is None
    assert context.evaluated == 0


def test_b66_another_token_without_numerical_noise_is_a_difference() -> None:
    context = ToyContext(ToyModel(seed=5))
    plain = greedy(context, [1, 2], 6)
    other = [*plain[:3], second_best(context.model.row(plain[1], plain[2])), 0, 0]
    found = judge(context, [1, 2], plain, other, index=7, lengths=(2, 4))
    assert found is not None
    assert (found.prompt, found.place, found.noise) == (7, 3, 0.0)
    assert found.gap > 0.0
    assert not found.is_near_tie


def test_b66_a_gap_within_the_noise_of_the_batch_shape_is_a_near_tie() -> None:
    model = ToyModel(seed=5)
    plain = greedy(ToyContext(model), [1, 2], 6)
    row = model.row(plain[1], plain[2])
    other = [*plain[:3], second_best(row)]
    gap = float(row.max() - np.sort(row)[-2])
    quiet = judge(Shaky(model, gap / 100), [1, 2], plain, other, index=0, lengths=(2, 4))
    loud = judge(Shaky(model, 10 * gap), [1, 2], plain, other, index=0, lengths=(2, 4))
    assert quiet is not None
    assert loud is not None
    assert quiet.gap == loud.gap == pytest.approx(gap)
    assert not quiet.is_near_tie
    assert loud.is_near_tie


def test_b66_a_text_that_was_cut_is_never_a_near_tie() -> None:
    found = judge(Shaky(ToyModel(), 100.0), [1, 2], [3, 4, 5], [3, 4], index=0, lengths=(2,))
    assert found is not None
    assert not found.is_near_tie
