"""Greedy text does not depend on drafters: it equals the plainest loop's, for every drafter, every N, every memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from localspec.core.sampling import Sampling
from localspec.drafters.registry import REGISTRY
from localspec.engine.context import LlamaContext
from localspec.engine.model import LlamaModel
from localspec.engine.toy import ToyContext, ToyModel
from localspec.loop.generation import Limits
from tests import zoo
from tests.loop.answers import GREEDY, NEAR_TIE, Reference, Setting, greedy
from tests.loop.conftest import DRAFT_SETTINGS, MEMORIES, SETTINGS
from tests.loop.scripted import Lending, Scripted, following, random_drafts

PROMPT = zoo.byte_ids("to be or not to be, to be or")
TOY_PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
COUNT = 48
ALL = Limits(max_tokens=COUNT, ignore_end=True)


@pytest.mark.parametrize("N", range(1, 9))
@pytest.mark.parametrize("name", REGISTRY)
def test_every_drafter_on_the_toy(toy: Setting, name: str, N: int) -> None:
    """Token for token: the toy has no numerics."""
    entry = REGISTRY[name]
    draft_model = ToyModel(seed=1, end_bias=-30.0, blur=0.3)
    drafter = entry.drafter_class(entry.parse({}), Lending(toy.vocab, lambda: ToyContext(draft_model)))
    expected = greedy(ToyContext(ToyModel(seed=1, end_bias=-30.0)), toy.vocab, TOY_PROMPT, COUNT)
    answer = toy.answer(TOY_PROMPT, drafter=drafter, N=N, limits=Limits(max_tokens=COUNT))
    assert answer.tokens == expected.tokens
    assert toy.warnings == []
    if name == "model":
        assert answer.stats.accepted > 0


@pytest.fixture(scope="module", params=MEMORIES)
def memory(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def tiny(memory: str, tiny_models: dict[tuple[str, str], LlamaModel]) -> Iterator[Setting]:
    with LlamaContext(tiny_models[memory, "verifier"], SETTINGS) as context:
        yield Setting(context, context.model.vocab)


@pytest.fixture(scope="module")
def expected(memory: str, tiny_models: dict[tuple[str, str], LlamaModel]) -> Reference:
    with LlamaContext(tiny_models[memory, "verifier"], SETTINGS) as context:
        return greedy(context, context.model.vocab, PROMPT, COUNT, ends=False)


@pytest.mark.parametrize("N", range(1, 9))
@pytest.mark.parametrize("name", REGISTRY)
def test_every_drafter_on_every_memory(
    tiny: Setting,
    expected: Reference,
    memory: str,
    tiny_models: dict[tuple[str, str], LlamaModel],
    name: str,
    N: int,
) -> None:
    """B32, B49: recurrent, hybrid and sliding-window memory give the text of plain decoding too."""
    entry = REGISTRY[name]
    lending = Lending(tiny.vocab, lambda: LlamaContext(tiny_models[memory, "draft"], DRAFT_SETTINGS))
    drafter = entry.drafter_class(entry.parse({}), lending)
    try:
        answer = tiny.answer(PROMPT, drafter=drafter, N=N, limits=ALL)
    finally:
        drafter.close()
    assert expected.agrees_with(answer.tokens, near_tie=NEAR_TIE)
    assert tiny.warnings == []
    if name == "model":
        assert answer.stats.accepted > 0


@pytest.mark.parametrize("seed", range(4))
def test_wrong_drafts_change_nothing(tiny: Setting, expected: Reference, seed: int) -> None:
    """B32: rejections only, the worst case for rollback; trees where the memory allows them."""
    assert isinstance(tiny.verifier, LlamaContext)
    propose = random_drafts(tiny.vocab.size, seed=seed, trees=tiny.verifier.has_trees, leaves=tiny.verifier.leaves)
    answer = tiny.answer(PROMPT, drafter=Scripted(propose), N=8, limits=ALL)
    assert answer.stats.drafted > COUNT
    assert expected.agrees_with(answer.tokens, near_tie=NEAR_TIE)


@pytest.mark.parametrize("N", [1, 3, 8])
def test_right_drafts_change_nothing_either(tiny: Setting, expected: Reference, N: int) -> None:
    drafter = Scripted(following([*PROMPT, *expected.tokens]))
    answer = tiny.answer(PROMPT, drafter=drafter, N=N, limits=ALL)
    assert expected.agrees_with(answer.tokens, near_tie=NEAR_TIE)
    ends = sum(map(tiny.vocab.is_end, answer.tokens))  # a draft stops at an end token, also when the answer does not
    assert answer.stats.verifier_passes <= -(-COUNT // (N + 1)) + ends + 1


@pytest.mark.parametrize("N", [1, 2, 5, 8])
def test_a_model_that_drafts_for_itself_is_always_right(
    tiny: Setting, memory: str, tiny_models: dict[tuple[str, str], LlamaModel], N: int
) -> None:
    """B27: a draft cache that is cut too far, or lacks the last accepted token, shows here and nowhere in the text."""
    entry = REGISTRY["model"]
    lending = Lending(tiny.vocab, lambda: LlamaContext(tiny_models[memory, "verifier"], DRAFT_SETTINGS))
    drafter = entry.drafter_class(entry.parse({}), lending)
    try:
        stats = tiny.answer(PROMPT, drafter=drafter, N=N, limits=Limits(150, ignore_end=True)).stats
    finally:
        drafter.close()
    assert stats.alpha is not None
    assert stats.alpha >= 0.98, "but for near ties nothing is refused"


def test_empty_and_full_drafts_mix(toy: Setting) -> None:
    """B34: a round without a draft is plain decoding; it must not shift the rows of the next."""
    expected = greedy(ToyContext(ToyModel(seed=1, end_bias=-30.0)), toy.vocab, TOY_PROMPT, COUNT)
    right = following([*TOY_PROMPT, *expected.tokens])
    lengths = iter([0, 3, 0, 4, 1, 0, 0, 2] * 20)
    drafter = Scripted(lambda tokens, limit: right(tokens, min(limit, next(lengths))))
    answer = toy.answer(TOY_PROMPT, drafter=drafter, N=4, limits=Limits(max_tokens=COUNT))
    assert answer.tokens == expected.tokens
    assert answer.stats.residual_tokens == 0
    assert answer.stats.drafted == answer.stats.accepted == COUNT - answer.stats.verifier_passes


def test_length_zero_is_plain_decoding(toy: Setting) -> None:
    """B34: N=0 asks no drafter anything."""
    drafter = Scripted(lambda tokens, limit: pytest.fail("was asked"))
    answer = toy.answer(TOY_PROMPT, drafter=drafter, N=0, limits=Limits(max_tokens=COUNT))
    assert answer.stats.verifier_passes == answer.stats.bonus_tokens == COUNT
    assert answer.stats.drafted == answer.stats.tested == 0
    assert answer.stats.alpha is None
    assert answer.stats.acceptance_rate is None


@pytest.mark.parametrize("N", [1, 4, 8])
@pytest.mark.parametrize("trees", [False, True], ids=["chains", "trees"])
@pytest.mark.parametrize("last_n", [3, 64, -1])
def test_penalties_count_the_path_to_each_position(toy: Setting, N: int, trees: bool, last_n: int) -> None:
    """B42: row i is penalised by the prompt window and the tokens of the draft before it, in trees per path."""
    sampling = Sampling(
        temperature=0.0,
        repeat_penalty=1.3,
        frequency_penalty=0.5,
        presence_penalty=0.5,
        penalty_last_n=last_n,
    )
    prompt = [3, 1, 3, 1, 3, 1]
    plain = toy.answer(prompt, sampling=sampling, limits=Limits(max_tokens=COUNT))
    assert plain.tokens != toy.answer(prompt, limits=Limits(max_tokens=COUNT)).tokens
    right, wrong = following([*prompt, *plain.tokens]), random_drafts(toy.vocab.size, seed=N, trees=trees)
    turns = iter([right, wrong] * COUNT)
    drafter = Scripted(lambda tokens, limit: next(turns)(tokens, limit))
    answer = toy.answer(prompt, drafter=drafter, N=N, sampling=sampling, limits=Limits(max_tokens=COUNT))
    assert answer.tokens == plain.tokens
    assert answer.stats.accepted > 0


@pytest.mark.parametrize("N", range(1, 9))
def test_a_banned_token_never_appears_and_a_wanted_one_always(toy: Setting, N: int) -> None:
    """B41: bias acts on every row of the pass, not only on the bonus token."""
    free = toy.answer(TOY_PROMPT, limits=Limits(max_tokens=COUNT))
    banned = max(set(free.tokens), key=free.tokens.count)
    sampling = Sampling(temperature=0.0, logit_bias={banned: -100.0})
    plain = toy.answer(TOY_PROMPT, sampling=sampling, limits=Limits(max_tokens=COUNT))
    insisting = Scripted(lambda tokens, limit: following([*tokens, *[banned] * limit])(tokens, limit))
    for drafter in (Scripted(following([*TOY_PROMPT, *free.tokens])), insisting):
        answer = toy.answer(TOY_PROMPT, drafter=drafter, N=N, sampling=sampling, limits=Limits(max_tokens=COUNT))
        assert banned not in answer.tokens
        assert answer.tokens == plain.tokens
    wanted = Sampling(temperature=0.0, logit_bias={banned: 100.0})
    assert toy.answer(TOY_PROMPT, drafter=insisting, N=N, sampling=wanted).tokens == (banned,) * 40


def test_exact_ties_go_to_the_lowest_id(toy: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """B40: drafting the other winner of a tie changes nothing."""
    monkeypatch.setattr(ToyModel, "row", lambda self, before, last: np.zeros(self.size, dtype=np.float32))
    drafter = Scripted(lambda tokens, limit: following([*tokens, *[5] * limit])(tokens, limit))
    assert (
        toy.answer(TOY_PROMPT, drafter=drafter, sampling=GREEDY, limits=Limits(5, ignore_end=True)).tokens == (0,) * 5
    )
