"""Promise 1 over the whole registry: whatever drafts, as chain or tree, the tokens follow the verifier's own law.

Greedy and coupled texts are compared token by token with the plainest loop. Rejection is counted: the toy's law is a
table over its last two tokens, so every transition of a long text is a draw from a row that is known exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pytest

from localspec.core.coupled import Coupled
from localspec.core.law import Law
from localspec.core.rejection import Rejection
from localspec.core.sampling import Sampling
from localspec.engine.base import Context
from localspec.engine.context import ContextSettings, LlamaContext
from localspec.engine.model import LlamaModel
from localspec.engine.toy import ToyContext, ToyModel
from tests import zoo
from tests.core import chisquare
from tests.drafters.settings import NAMES, TOY_PROMPT, TREES, Lender, Pair, built, toy, toy_lender
from tests.headlike import aligned
from tests.services import tiny

LAWS = {
    "greedy": Sampling(temperature=0.0),
    "default": Sampling(),
    "no filters": Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0),
    "penalties": Sampling(repeat_penalty=1.3, frequency_penalty=0.2, presence_penalty=0.2, logit_bias={3: 2.0}),
    "greedy penalties": Sampling(temperature=0.0, repeat_penalty=1.3, penalty_last_n=-1),
}
COUNT = 60
TOO_UNLIKELY = 1e-4
"""Of a p-value. The draws are seeded: what passes once passes always."""


def plain(context: Context, prompt: Sequence[int], sampling: Sampling, count: int, seed: int) -> list[int]:
    """The reference: one token at a time, each the winner of its race (at temperature 0 that is the largest logit)."""
    text = list(prompt)
    rule = Coupled(seed)
    while len(text) < len(prompt) + count:
        result = context.prefill(text)
        assert result is not None
        law = sampling.law(result.logits(0), np.array(text, dtype=np.int32))
        text.append(rule.winner(law, len(text)))
    return text[len(prompt) :]


@pytest.mark.parametrize("N", range(1, 9))
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", NAMES)
def test_chains_on_the_toy(name: str, law: str, N: int) -> None:
    model = toy()
    pair = Pair(ToyContext(model), model.vocab, built(name, toy_lender(model)))
    for seed, prompt in enumerate((TOY_PROMPT, TOY_PROMPT[:2], [9])):  # one drafter, one text after the other
        answer = pair.answer(prompt, sampling=LAWS[law], rule=Coupled(seed), count=COUNT, N=N)
        assert list(answer.tokens) == plain(ToyContext(model), prompt, LAWS[law], COUNT, seed)


@pytest.mark.parametrize("tree", [tree for tree in TREES if tree != "chain"])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", NAMES)
def test_trees_on_the_toy(name: str, law: str, tree: str) -> None:
    model = toy()
    pair = Pair(ToyContext(model), model.vocab, built(name, toy_lender(model)), TREES[tree])
    for seed, prompt in enumerate((TOY_PROMPT, TOY_PROMPT[:2], [9])):
        answer = pair.answer(prompt, sampling=LAWS[law], rule=Coupled(seed), count=COUNT)
        assert list(answer.tokens) == plain(ToyContext(model), prompt, LAWS[law], COUNT, seed)
        if name == "model":
            assert max(report.drafted for report in pair.reports) > 3
            assert answer.stats.accepted > 0


@pytest.mark.parametrize("rule", [Coupled(1), Rejection(np.random.default_rng(1))], ids=["coupled", "rejection"])
@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("name", NAMES)
def test_greedy_is_the_largest_logit_whatever_the_rule(name: str, tree: str, rule: Coupled | Rejection) -> None:
    model = toy()
    pair = Pair(ToyContext(model), model.vocab, built(name, toy_lender(model)), TREES[tree])
    answer = pair.answer(TOY_PROMPT, sampling=LAWS["greedy"], rule=rule, count=COUNT)
    text = list(TOY_PROMPT)
    while len(text) < len(TOY_PROMPT) + COUNT:
        text.append(int(model.row(text[-2], text[-1]).argmax()))
    assert list(answer.tokens) == text[len(TOY_PROMPT) :]


# -- the same on llama.cpp --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def models() -> Iterator[dict[str, LlamaModel]]:
    loaded = {name: LlamaModel(tiny.model(name), gpu_layers=0) for name in ("verifier", "draft", "eagle3")}
    yield loaded
    for model in loaded.values():
        model.close()


SETTINGS = ContextSettings(capacity=512, draft_room=8, leaves=8, flash_attn="off")


@pytest.fixture(scope="module")
def verifier(models: dict[str, LlamaModel]) -> Iterator[LlamaContext]:
    with LlamaContext(models["verifier"], SETTINGS) as context:
        yield context


@pytest.fixture(scope="module")
def lender(models: dict[str, LlamaModel]) -> Iterator[Lender]:
    made = Lender(
        models["verifier"].vocab,
        lambda: LlamaContext(models["draft"], SETTINGS),
        head=lambda kind: aligned(kind, models, SETTINGS),
    )
    yield made
    made.close()


@pytest.fixture(scope="module")
def expected(models: dict[str, LlamaModel]) -> dict[str, list[int]]:
    with LlamaContext(models["verifier"], SETTINGS) as context:
        return {law: plain(context, tiny.PROMPT, LAWS[law], COUNT, seed=7) for law in LAWS}


@pytest.mark.parametrize("N", range(1, 9))
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", NAMES)
def test_chains_on_a_tiny_model(
    verifier: LlamaContext, lender: Lender, expected: dict[str, list[int]], name: str, law: str, N: int
) -> None:
    pair = Pair(verifier, verifier.model.vocab, built(name, lender))
    answer = pair.answer(tiny.PROMPT, sampling=LAWS[law], rule=Coupled(7), count=COUNT, N=N)
    assert list(answer.tokens) == expected[law]


@pytest.mark.parametrize("tree", [tree for tree in TREES if tree != "chain"])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", NAMES)
def test_trees_on_a_tiny_model(
    verifier: LlamaContext, lender: Lender, expected: dict[str, list[int]], name: str, law: str, tree: str
) -> None:
    pair = Pair(verifier, verifier.model.vocab, built(name, lender), TREES[tree])
    answer = pair.answer(tiny.PROMPT, sampling=LAWS[law], rule=Coupled(7), count=COUNT)
    assert list(answer.tokens) == expected[law]


# -- counted ----------------------------------------------------------------------------------------------------------


SIZE = 5
TEXT, TEXTS = 250, 16
COUNTED = {
    "no filters": LAWS["no filters"],
    "default filters": Sampling(),
    "hot and narrow": Sampling(temperature=1.5, top_k=3, top_p=1.0, min_p=0.0),
    # Penalties that look back over the two tokens that the toy's law depends on anyway.
    "penalties": Sampling(temperature=1.0, repeat_penalty=1.5, presence_penalty=0.5, penalty_last_n=2),
}


def exact(model: ToyModel, sampling: Sampling) -> npt.NDArray[np.float64]:
    """(SIZE * SIZE, SIZE): the law after every two tokens."""
    pairs = [(before, last) for before in range(SIZE) for last in range(SIZE)]
    return np.array([sampling.law(model.row(*pair), np.array(pair, dtype=np.int32)).dense(SIZE) for pair in pairs])


def counted(pair: Pair, sampling: Sampling, rule: Rejection, *, N: int) -> npt.NDArray[np.float64]:
    """(SIZE * SIZE, SIZE): what followed every two tokens in TEXTS answers of TEXT tokens."""
    counts = np.zeros((SIZE * SIZE, SIZE))
    for start in range(TEXTS):
        prompt = [start % SIZE, (start // SIZE) % SIZE]
        text = [*prompt, *pair.answer(prompt, sampling=sampling, rule=rule, count=TEXT, N=N).tokens]
        for before, last, token in zip(text, text[1:], text[2:], strict=False):
            counts[SIZE * before + last, token] += 1
    return counts


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("law", COUNTED)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_emitted_follows_the_verifiers_law(name: str, law: str, tree: str) -> None:
    """4,000 tokens against the exact rows; end tokens are tokens like others here, and end drafts all the same."""
    model = ToyModel(SIZE, seed=1, sharpness=1.0, end_bias=0.0)
    draft = ToyModel(SIZE, seed=1, sharpness=1.0, end_bias=0.0, blur=0.5)
    lender = Lender(model.vocab, lambda: ToyContext(draft, capacity=1024))
    pair = Pair(ToyContext(model, capacity=1024), model.vocab, built(name, lender), TREES[tree])
    sampling = COUNTED[law]
    counts = counted(pair, sampling, Rejection(np.random.default_rng(5)), N=3)
    assert counts.sum() == TEXT * TEXTS
    assert chisquare.fit(counts, exact(model, sampling)) > TOO_UNLIKELY


def test_the_count_would_notice_a_wrong_rule() -> None:
    """The silent error of published programs: the likeliest token is picked, and the law it has is reported."""

    class Boastful(Rejection):
        def guess(self, law: Law, position: int) -> tuple[int, Law | None]:
            return int(law.dense(SIZE).argmax()), law

    model = ToyModel(SIZE, seed=1, sharpness=1.0, end_bias=0.0)
    draft = ToyModel(SIZE, seed=1, sharpness=1.0, end_bias=0.0, blur=0.5)
    lender = Lender(model.vocab, lambda: ToyContext(draft, capacity=1024))
    pair = Pair(ToyContext(model, capacity=1024), model.vocab, built("model", lender))
    sampling = COUNTED["no filters"]
    counts = counted(pair, sampling, Boastful(np.random.default_rng(5)), N=3)
    assert chisquare.fit(counts, exact(model, sampling)) < 1e-12


# -- a draft's cache --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tree", ["chain", "2,2,1"])
@pytest.mark.parametrize("N", [1, 2, 5, 8])
def test_a_model_that_drafts_for_itself_is_right_for_400_tokens(
    models: dict[str, LlamaModel], verifier: LlamaContext, N: int, tree: str
) -> None:
    """B27: a draft cache that is cut too far, or lacks the last accepted token, shows as acceptance that decays."""
    own = Lender(models["verifier"].vocab, lambda: LlamaContext(models["verifier"], SETTINGS))
    pair = Pair(verifier, verifier.model.vocab, built("model", own), TREES[tree])
    try:
        answer = pair.answer(tiny.PROMPT, sampling=LAWS["greedy"], rule=Coupled(0), count=400, N=N)
    finally:
        own.close()
    # A draft ends at an end token, which this text is full of; up to there everything must be accepted.
    refused = [at for at, report in enumerate(pair.reports) if report.refused]
    assert len(refused) <= 2, f"but for near ties nothing is refused: rounds {refused} of {len(pair.reports)}"
    assert answer.stats.accepted > 400 // 3


def test_acceptance_does_not_decay_with_length(verifier: LlamaContext, lender: Lender) -> None:
    """B27: sampled text and a draft that is right about every second time, over 400 tokens, by halves."""
    pair = Pair(verifier, verifier.model.vocab, built("model", lender))
    halves = np.zeros((2, 2))
    for seed in range(6):
        rule = Rejection(np.random.default_rng(seed))
        pair.answer(tiny.PROMPT, sampling=LAWS["no filters"], rule=rule, count=400, N=3)
        middle = len(pair.reports) // 2
        for half, reports in enumerate((pair.reports[:middle], pair.reports[middle:])):
            halves[half] += [sum(report.accepted for report in reports), sum(report.tested for report in reports)]
    rates = halves[:, 0] / halves[:, 1]
    noise = np.sqrt((rates * (1 - rates) / halves[:, 1]).sum())
    assert min(rates) > 0.3
    assert abs(rates[0] - rates[1]) < 4 * noise


def test_a_text_of_another_kind_does_not_spoil_the_draft(verifier: LlamaContext, lender: Lender) -> None:
    """B68 for caches: after an unrelated answer the draft agrees as well as before."""
    pair = Pair(verifier, verifier.model.vocab, built("model", lender))
    rates = [
        pair.answer(prompt, sampling=LAWS["greedy"], rule=Coupled(0), count=COUNT).stats.alpha
        for prompt in (tiny.PROMPT, zoo.byte_ids("entirely different words"), tiny.PROMPT)
    ]
    assert rates[0] == rates[2]
