"""The law of sampled answers: that of plain decoding, whatever drafts; and the same seed gives the same text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from localspec.core.coupled import Coupled
from localspec.core.rejection import Rejection
from localspec.core.sampling import Sampling
from localspec.drafters.base import Drafter
from localspec.drafters.registry import REGISTRY
from localspec.engine.toy import ToyContext, ToyModel
from localspec.loop.generation import Limits
from tests.loop.answers import Setting
from tests.loop.scripted import Lending, Scripted, random_drafts

PROMPT = [3, 1, 4, 1, 5, 3, 1, 4]
WARM = Sampling(temperature=1.5, top_k=0, top_p=1.0, min_p=0.0)
DRAFTERS = [*REGISTRY, "wrong chains", "wrong trees"]


def setting(size: int = 27) -> Setting:
    model = ToyModel(size, seed=1, end_bias=-30.0)
    return Setting(ToyContext(model), model.vocab)


def drafter_of(name: str, made: Setting, *, blur: float = 0.3) -> Drafter:
    """A registered drafter with a blurred toy as its model, or one that guesses at random."""
    if name in REGISTRY:
        size = made.vocab.size
        model = ToyModel(size, seed=1, end_bias=-30.0, blur=blur)
        return REGISTRY[name].drafter_class(REGISTRY[name].parse({}), Lending(made.vocab, lambda: ToyContext(model)))
    return Scripted(random_drafts(made.vocab.size, seed=5, trees="trees" in name))


@pytest.mark.parametrize("N", [1, 2, 5, 8])
@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("sampling", [WARM, Sampling(), Sampling(repeat_penalty=1.2, temperature=1.0)], ids=str)
def test_coupled_text_depends_on_the_seed_alone(name: str, N: int, sampling: Sampling) -> None:
    """B45: whatever the drafter, N or tree; and equal to plain decoding with that seed."""
    plain = setting().answer(PROMPT, sampling=sampling, rule=Coupled(7)).tokens
    made = setting()
    answer = made.answer(PROMPT, drafter=drafter_of(name, made), N=N, sampling=sampling, rule=Coupled(7))
    assert answer.tokens == plain
    assert made.warnings == []


def test_coupled_seeds_differ() -> None:
    """B45: the seed has an effect."""
    texts = {setting().answer(PROMPT, sampling=WARM, rule=Coupled(seed)).tokens for seed in range(8)}
    assert len(texts) == 8


@pytest.mark.parametrize("name", [name for name in DRAFTERS if name != "cascade"])
def test_rejection_repeats_itself_with_the_same_generator(name: str) -> None:
    """B45: also after another answer in between; another seed gives another text.

    Under this rule the text of a seed depends on the drafts, and which member a cascade asks depends on the clock; the
    rule that a seed stands for is `coupled`, whose text no drafter changes (above).
    """

    def text(made: Setting, seed: int) -> tuple[int, ...]:
        rule = Rejection(np.random.default_rng(seed))
        return made.answer(PROMPT, drafter=drafter_of(name, made), sampling=WARM, rule=rule).tokens

    made = setting()
    first = text(made, 1)
    text(made, 2)
    assert text(made, 1) == first == text(setting(), 1)
    assert text(made, 2) != first


def exact_pairs(made: Setting, sampling: Sampling) -> dict[tuple[int, ...], float]:
    """The law of the first two tokens, by enumeration of plain decoding."""
    context = ToyContext(ToyModel(made.vocab.size, seed=1, end_bias=-30.0))
    law: dict[tuple[int, ...], float] = {}

    def row(text: list[int]) -> list[float]:
        result = context.prefill(text)
        assert result is not None
        probs = sampling.law(result.logits(0), np.array(text, dtype=np.int32))
        return [probs.prob(token) for token in range(made.vocab.size)]

    for first, p in enumerate(row(PROMPT)):
        if p:
            for second, q in enumerate(row([*PROMPT, first])):
                if q:
                    law[first, second] = p * q
    return law


FILTERS = [
    Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0),
    Sampling(temperature=1.7, top_k=5, top_p=0.95, min_p=0.05),
    Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, presence_penalty=1.0, logit_bias={2: 1.0}),
]
CRITICAL = 4.5
"""Standard deviations by which chi-square may lie above its mean: far beyond chance, far below a biased rule."""


@pytest.mark.parametrize("sampling", FILTERS, ids=["no filters", "filters", "penalty and bias"])
@pytest.mark.parametrize("name", ["model", "ngram", "wrong trees"])
@pytest.mark.parametrize(
    "rule", [lambda i: Rejection(np.random.default_rng(i)), lambda i: Coupled(i)], ids=["rejection", "coupled"]
)
def test_two_tokens_follow_the_law_of_plain_decoding(
    name: str, sampling: Sampling, rule: Callable[[int], Rejection | Coupled]
) -> None:
    """B37, B44: the whole loop, counted over 1500 answers against the law by enumeration."""
    made = setting(6)
    drafter = drafter_of(name, made, blur=0.6)
    expected = exact_pairs(made, sampling)
    count = 1500
    limits = Limits(max_tokens=2, ignore_end=True)
    seen = Counter(
        made.answer(PROMPT, drafter=drafter, N=3, sampling=sampling, rule=rule(i), limits=limits).tokens
        for i in range(count)
    )
    assert set(seen) <= set(expected)
    big = [pair for pair, p in expected.items() if p * count >= 5]
    rest = count - sum(seen[pair] for pair in big)
    rest_expected = count * (1.0 - sum(expected[pair] for pair in big))
    chi2 = sum((seen[pair] - count * expected[pair]) ** 2 / (count * expected[pair]) for pair in big)
    chi2 += (rest - rest_expected) ** 2 / max(rest_expected, 1.0)
    degrees = len(big)
    assert chi2 < degrees + CRITICAL * np.sqrt(2 * degrees)
    assert made.warnings == []
