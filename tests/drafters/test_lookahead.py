"""Lookahead decoding: the window's steps, the pool, and texts that are the verifier's own whatever is guessed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from localspec.core.coupled import Coupled
from localspec.core.draft import Draft, Ids, Verdict
from localspec.core.growth import Growth
from localspec.core.rejection import Rejection
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.drafters.base import Budget
from localspec.drafters.lookahead import NOTHING, SIZES, Lookahead, Options, Pool, Size
from localspec.engine.toy import END, ToyContext, ToyModel
from localspec.errors import UsageError
from localspec.loop.answer import Answer
from localspec.loop.control import FixedLength
from localspec.loop.generation import Generation, Limits
from localspec.loop.proposer import Proposer
from tests.drafters.settings import TOY_PROMPT, Lender, toy

GREEDY = Sampling(temperature=0.0)
WARM = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
ROOMY = Budget(32, lambda depth, confidence: True, leaves=16)
TREE = Growth(nodes=32, leaves=16)


def lender() -> Lender:
    def refuse() -> ToyContext:
        raise AssertionError("lookahead needs no draft")

    return Lender(toy().vocab, refuse)


def lookahead(W: int = 3, N: int = 4, G: int = 2, *, prompt: bool = True, pool: int = 1000) -> Lookahead:
    return Lookahead(Options(W, N, G, prompt, pool), lender())


def ids(tokens: list[int]) -> Ids:
    return np.array(tokens, dtype=np.int32)


def begin(drafter: Lookahead, text: list[int]) -> None:
    drafter.begin(ids(text), sampling=GREEDY, rule=Rejection(np.random.default_rng(0)), cancelled=lambda: False)


def paths(draft: Draft) -> list[tuple[int, ...]]:
    """Spelled from the pending token down to each leaf."""
    inner = set(draft.parents.tolist())
    leaves = [node for node in range(len(draft)) if node not in inner]
    return [tuple(draft.tokens[list(draft.path(leaf))].tolist()) for leaf in leaves]


def follow(model: ToyModel, text: list[int]) -> int:
    """The greedy token behind `text`."""
    return int(model.row(text[-2], text[-1]).argmax())


def step(drafter: Lookahead, context: ToyContext, text: list[int], budget: Budget = ROOMY) -> tuple[Draft, list[int]]:
    """One greedy round by hand: the draft, and the tokens that it brought."""
    context.rewind(0)
    context.prefill(text[:-1], logits=False)
    draft = drafter.propose(ids(text), budget)
    result = context.evaluate(text[-1], draft)
    path: list[int] = []
    while True:
        token = int(result.logits(path[-1] + 1 if path else 0).argmax())
        children = draft.children.get(path[-1] if path else -1, ())
        match = [child for child in children if draft.tokens[child] == token]
        if not match:
            break
        path += match
    drafter.observe(result, Verdict(tuple(path), token, "residual" if children else "bonus", len(path)))
    return draft, [*draft.tokens[path].tolist(), token]


# -- the window --------------------------------------------------------------------------------------------------------


def test_the_window_is_a_trunk_with_a_column_branching_off_each_of_its_tokens() -> None:
    drafter = lookahead(W=3, N=4, G=2, prompt=False)
    draft = drafter.propose(ids([20, 21, 22, 23, 24, 25]), ROOMY)
    trunk = [node for node in range(len(draft)) if len(draft.children.get(node, ())) > 1 or draft.depths[node] == 1]
    assert len(draft) == 3 * 3
    assert draft.leaves == 3
    assert sorted(draft.depths.tolist()) == [1, 2, 2, 3, 3, 3, 4, 4, 5], "each column is two deep below its place"
    assert trunk
    assert draft.laws is None


def test_each_pass_is_one_jacobi_step() -> None:
    """What the verifier says behind the newest guess of a column is that column's next guess; the oldest level goes."""
    model, drafter = toy(end_bias=-30.0), lookahead(W=3, N=4, G=1, prompt=False)
    context, text = ToyContext(model, draft_room=64), [3, 1, 4, 1, 5, 9]
    before: list[list[int]] | None = None
    for _ in range(4):
        drafter.propose(ids(text), ROOMY)
        levels = [list(level) for level in drafter._window]
        if before is not None:
            assert levels[:-1] == before[1:]
        step(drafter, context, text)
        newest = []
        for at in range(3):
            column = [*levels[0][: at + 1], *(level[at] for level in levels[1:])]
            newest.append(follow(model, text + column))
        assert drafter._window[-1] == newest
        before = levels


def test_the_diagonals_become_n_grams_of_the_pool() -> None:
    model, drafter = toy(end_bias=-30.0), lookahead(W=3, N=3, G=2, prompt=False)
    context, text = ToyContext(model, draft_room=64), [3, 1, 4, 1, 5, 9]
    drafter.propose(ids(text), ROOMY)
    levels = [list(level) for level in drafter._window]
    step(drafter, context, text)
    for at in range(3):
        gram = (levels[0][at], levels[1][at], drafter._window[-1][at])
        assert gram[1:] in drafter._pool.after([NOTHING, gram[0]], 2, 99)


def test_the_likeliest_candidate_goes_on_in_the_nodes_that_are_left_over() -> None:
    text = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 1, 2]
    drafter = lookahead(W=2, N=3, G=3)  # room for ten nodes: four of the window, and no second candidate
    draft = drafter.propose(ids(text), ROOMY)
    assert (3, 4, 5, 6, 7, 8) in paths(draft)
    assert len(draft) <= 10
    assert len(drafter.propose(ids(text), ROOMY._replace(limit=7))) <= 7
    ended = [1, 2, 3, END, 5, 6, 7, 1, 2]
    assert (3, END) in paths(lookahead(W=2, N=3, G=3).propose(ids(ended), ROOMY))


def test_candidates_are_taken_from_the_prompt_and_from_the_text() -> None:
    text = [1, 2, 3, 4, 5, 1, 2]
    drafter = lookahead(N=3, G=2)
    begin(drafter, text)
    assert any(path[:2] == (3, 4) for path in paths(drafter.propose(ids(text), ROOMY)))
    grown = [*text, 9, 8, 7, 9]
    said = paths(drafter.propose(ids(grown), ROOMY))
    assert any(path[:2] == (8, 7) for path in said), "what was said since then counts too"


def test_without_the_prompt_only_the_answer_counts() -> None:
    drafter = lookahead(N=3, G=9, prompt=False)
    begin(drafter, [1, 2, 3, 4, 5, 1, 2])
    assert not any(path[:2] == (3, 4) for path in paths(drafter.propose(ids([1, 2, 3, 4, 5, 1, 2]), ROOMY)))


def test_no_guess_lies_behind_an_end() -> None:
    """B09: a window column never goes on behind the end of the text, nor does an n-gram of an earlier turn."""
    model = ToyModel(8, seed=2, end_bias=4.0)  # ends all the time
    drafter, text = lookahead(W=4, N=4, G=4), [1, 2, END, 3, 1, 2, END, 3, 1, 2]
    context = ToyContext(model, draft_room=64)
    for _ in range(12):
        draft, tokens = step(drafter, context, text)
        ends = np.flatnonzero(draft.tokens == END).tolist()
        assert not set(ends) & set(draft.parents.tolist())
        text += [token for token in tokens if token != END] or [5]


def test_where_there_is_no_room_for_the_window_candidates_go_alone() -> None:
    text = [1, 2, 3, 4, 5, 1, 2]
    drafter = lookahead(W=3, N=3, G=2)
    small = ROOMY._replace(limit=5)
    assert paths(drafter.propose(ids(text), small)) == [(3, 4, 5, 1, 2)]
    assert len(drafter.propose(ids(text), ROOMY._replace(limit=1))) == 0
    assert drafter.propose(ids(text), ROOMY._replace(leaves=1)).leaves == 1


@pytest.mark.parametrize("limit", range(1, 33))
def test_a_draft_never_takes_more_than_its_budget(limit: int) -> None:
    model, drafter, text = toy(end_bias=-30.0), lookahead(W=5, N=4, G=5), [3, 1, 4, 1, 5] * 4
    context = ToyContext(model, draft_room=64)
    for leaves in (1, 3, 16):
        draft, tokens = step(drafter, context, text, ROOMY._replace(limit=limit, leaves=leaves))
        assert len(draft) <= limit
        assert draft.leaves <= leaves
        text += tokens


# -- what it is allowed to know ----------------------------------------------------------------------------------------


def spelled(drafter: Lookahead) -> set[int]:
    """Every token the drafter could propose."""
    grams = {token for rests in drafter._pool._grams.values() for rest in rests for token in rest}
    return grams | {token for level in drafter._window for token in level}


@pytest.mark.parametrize("with_begin", [True, False])
def test_nothing_of_another_text_is_proposed(with_begin: bool) -> None:
    """B68: after /reset, /undo, an edit or another request, whether or not it begins with a new answer."""
    model, drafter = toy(end_bias=-30.0), lookahead(W=3, N=3, G=4)
    context, text = ToyContext(model, draft_room=64), [3, 1, 4, 1, 5, 9, 2, 6]
    for _ in range(20):
        text += step(drafter, context, text)[1]
    for other in ([25, 26, 25, 26, 25], [*text[:5], 26, 26]):
        if with_begin:
            begin(drafter, other)
        drafter.propose(ids(other), ROOMY)
        assert spelled(drafter) <= set(other)
    drafter.close()
    assert spelled(drafter) == set()


def test_a_conversation_that_goes_on_keeps_its_pool() -> None:
    drafter = lookahead(N=3, G=2)
    begin(drafter, [1, 2, 3, 4])
    drafter.propose(ids([1, 2, 3, 4, 5]), ROOMY)
    begin(drafter, [1, 2, 3, 4, 5, 6, 7, 1, 2])
    assert any(path[:2] == (3, 4) for path in paths(drafter.propose(ids([1, 2, 3, 4, 5, 6, 7, 1, 2]), ROOMY)))


# -- the pool ----------------------------------------------------------------------------------------------------------


def test_the_pool_is_bounded_and_forgets_what_was_used_longest_ago() -> None:
    pool = Pool(50)
    rng = np.random.default_rng(0)
    for _ in range(2000):
        pool.add(tuple(rng.integers(0, 30, 3).tolist()), after=0)
        assert len(pool) <= 50
        assert len(pool) == sum(map(len, pool._grams.values()))
    pool.add((99, 1, 2), after=0)
    assert pool.after([0, 99], 2, 5) == [(1, 2)]


def test_one_key_cannot_take_the_whole_pool() -> None:
    pool = Pool(1000)
    for at in range(500):
        pool.add((7, at, at), after=0)
    assert len(pool) == Pool.PER_KEY
    assert pool.after([0, 7], 2, 3) == [(499, 499), (498, 498), (497, 497)]


def test_n_grams_seen_behind_the_same_two_tokens_come_first() -> None:
    pool = Pool(100)
    pool.add((7, 1, 1), after=5)
    pool.add((7, 2, 2), after=6)
    pool.add((7, 3, 3), after=6)
    pool.add((7, 4), after=5)
    assert pool.after([5, 7], 2, 9) == [(1, 1), (3, 3), (2, 2)]
    assert pool.after([6, 7], 2, 2) == [(3, 3), (2, 2)]
    assert pool.after([7], 2, 1) == [(3, 3)]
    assert pool.after([5, 8], 2, 9) == []
    pool.add((7, 1, 1), after=6)
    assert pool.after([6, 7], 2, 1) == [(1, 1)], "seen again: the most recent"


# -- exactness ---------------------------------------------------------------------------------------------------------


def answer(drafter: Lookahead | None, *, sampling: Sampling = GREEDY, rule: Rule | None = None, count: int) -> Answer:
    """`count` tokens of the toy behind its prompt, through the real loop."""
    model, warnings = toy(end_bias=-30.0), list[str]()
    controller = FixedLength(32)
    generation = Generation(
        TOY_PROMPT,
        verifier=ToyContext(model, draft_room=64),
        vocab=model.vocab,
        sampling=sampling,
        rule=rule or Rejection(np.random.default_rng(0)),
        limits=Limits(count),
        proposer=Proposer(drafter, controller, vocab=model.vocab, warn=warnings.append, tree=TREE) if drafter else None,
        controller=controller,
    )
    for _piece in generation:
        pass
    assert generation.answer is not None
    assert warnings == []
    return generation.answer


@pytest.mark.parametrize("size", [(1, 2, 1), (3, 3, 2), (5, 4, 5), (2, 8, 2)])
def test_greedy_text_is_the_verifiers(size: tuple[int, int, int]) -> None:
    got = answer(lookahead(*size), count=80)
    assert got.tokens == answer(None, count=80).tokens
    assert got.stats.accepted > 0


@pytest.mark.parametrize("sampling", [WARM, Sampling(), Sampling(temperature=1.0, repeat_penalty=1.3)])
def test_with_coupled_acceptance_the_text_is_that_of_plain_decoding(sampling: Sampling) -> None:
    for seed in range(5):
        plain = answer(None, sampling=sampling, rule=Coupled(seed), count=60)
        assert answer(lookahead(4, 3, 3), sampling=sampling, rule=Coupled(seed), count=60).tokens == plain.tokens


def test_a_text_with_set_phrases_takes_fewer_passes() -> None:
    """The toy's greedy text runs into a loop: there the pool knows what comes."""
    per_pass = answer(lookahead(5, 4, 5), count=200).stats.tokens_per_pass
    assert per_pass is not None
    assert per_pass > 2.5


def test_the_last_tokens_of_an_answer_are_drafted_like_the_others() -> None:
    """A tree of thirty nodes is four deep: the limit on tokens once switched it off thirty tokens before the end."""
    got = answer(lookahead(5, 4, 5), count=40)
    assert got.stats.drafted / got.stats.verifier_passes > 12
    assert len(got.tokens) == 40
    assert got.stats.completion_tokens == got.stats.accepted + got.stats.bonus_tokens + got.stats.residual_tokens


# -- options that fit the machine --------------------------------------------------------------------------------------


def chosen(price: Callable[[int], float], *, limit: int = 32, leaves: int = 16) -> int:
    """Columns of the window that a price leads to; 0: nothing is drafted."""
    drafter = Lookahead(Options(), lender())
    draft = drafter.propose(ids([1, 2, 3, 4] * 5), ROOMY._replace(price=price, limit=limit, leaves=leaves))
    assert (len(drafter._columns) > 0) == (len(draft) > 0)
    return len(drafter._columns)


def test_sizes_follow_the_measured_cost_of_a_pass() -> None:
    assert chosen(lambda count: 1.0) == 5
    assert chosen(lambda count: 1.0 + 0.005 * count) == 5
    assert chosen(lambda count: 1.0 if count <= 8 else 2.0) == 1
    assert chosen(lambda count: 1.0 if count <= 16 else 2.0) == 3
    assert chosen(lambda count: float(count)) == 0, "bound by compute: nothing pays"


def test_sizes_follow_the_room() -> None:
    assert chosen(lambda count: 1.0, limit=12) == 3
    assert chosen(lambda count: 1.0, leaves=2) == 1
    assert chosen(lambda count: 1.0, limit=3) == 0


def test_a_size_that_brings_less_than_hoped_gives_way() -> None:
    """Refused every time, each size loses its advantage, until plain decoding has it."""
    drafter = Lookahead(Options(), lender())
    dear = ROOMY._replace(price=lambda count: 1.0 + 0.01 * count)
    columns = []
    for _ in range(400):
        drafter.propose(ids([1, 2, 3, 4] * 5), dear)
        columns.append(len(drafter._columns))
        if not drafter._columns:
            break
        assert drafter._size is not None
        drafter._gains.learn(drafter._size, 1)
    assert set(columns) == {0, 1, 2, 3, 4, 5}
    assert columns[-1] == 0


def test_what_was_asked_for_is_done_at_any_price() -> None:
    text = np.random.default_rng(0).permutation(27).tolist()
    assert len(lookahead(W=5, N=4, G=5).propose(ids(text), ROOMY._replace(price=float))) >= 15


def test_sizes_are_sorted_by_what_they_need_and_hope_for() -> None:
    assert [size.nodes for size in SIZES] == sorted((size.nodes for size in SIZES), reverse=True)
    assert [size.hoped for size in SIZES] == sorted((size.hoped for size in SIZES), reverse=True)
    assert Size(5, 4, 5).nodes == 30


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"W": 33}, "W is 33"), ({"N": 1}, "N is 1"), ({"G": 0}, "G is 0"), ({"pool": 0}, "pool is 0"), ({"W": -1}, "-1")],
)
def test_options_outside_their_range_are_wrong_use(wrong: dict[str, int], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        Options(**wrong)  # type: ignore[arg-type]
    assert caught.value.hint
