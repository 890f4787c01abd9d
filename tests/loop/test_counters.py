"""What is counted is what happened: the identities of the contract on random rounds, exact numbers on known ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.core.draft import Draft
from localspec.core.rejection import Rejection
from localspec.core.sampling import Sampling
from localspec.drafters.base import Budget
from localspec.engine.toy import ToyContext, ToyModel
from localspec.loop.control import FixedLength, RoundReport
from localspec.loop.counters import Counters
from localspec.loop.generation import Limits
from tests.loop.answers import Setting
from tests.loop.scripted import Scripted, following, random_drafts

PROMPT = [3, 1, 4, 1, 5]


@given(st.integers(0, 1000), st.integers(0, 8), st.integers(0, 30), st.booleans(), st.floats(0.0, 2.0))
@settings(max_examples=60)
def test_the_identities_hold_on_any_answer(seed: int, N: int, count: int, trees: bool, temperature: float) -> None:
    """B61, B63: `Setting.checked` asserts them; no clamps, no negative numbers."""
    model = ToyModel(8, seed=seed, end_bias=0.0)
    setting = Setting(ToyContext(model), model.vocab)
    setting.answer(
        PROMPT,
        drafter=Scripted(random_drafts(8, seed=seed, trees=trees)),
        N=N,
        sampling=Sampling(temperature=temperature),
        rule=Rejection(np.random.default_rng(seed)),
        limits=Limits(max_tokens=count),
    )


def test_the_first_refused_token_is_tested_and_those_behind_it_are_not(toy: Setting) -> None:
    """B61: alpha and acceptance rate differ by the tail that nobody looked at."""
    plain = toy.answer(PROMPT, limits=Limits(max_tokens=9)).tokens
    wrong = 1 + plain[2] % 26
    # Round 1: right, right, wrong, unseen -> 3 tokens. Round 2: right to the end -> 5 tokens. Round 3: one is left.
    first = Draft.chain([plain[0], plain[1], wrong, 1])
    drafts = iter([first, Draft.chain(plain[3:7])])
    stats = toy.answer(
        PROMPT, drafter=Scripted(lambda tokens, limit: next(drafts)), N=4, limits=Limits(max_tokens=9)
    ).stats
    assert (stats.drafted, stats.tested, stats.accepted) == (8, 7, 6)
    assert (stats.residual_tokens, stats.bonus_tokens, stats.verifier_passes) == (1, 2, 3)
    assert stats.accepted_by_position == [2, 2, 1, 1]
    assert stats.alpha == 6 / 7
    assert stats.acceptance_rate == 6 / 8
    assert stats.tokens_per_pass == 9 / 3


def test_nothing_drafted_is_null_and_not_zero(toy: Setting) -> None:
    """B61."""
    stats = toy.answer(PROMPT, N=0).stats
    assert stats.alpha is None
    assert stats.acceptance_rate is None
    assert stats.accepted_by_position == []
    assert stats.as_dict()["alpha"] is None


def test_an_answer_of_one_token(toy: Setting) -> None:
    """B64: no division by zero, no draft behind the last token."""
    stats = toy.answer(PROMPT, drafter=Scripted(following(PROMPT + [1] * 9)), limits=Limits(max_tokens=1)).stats
    assert (stats.completion_tokens, stats.verifier_passes, stats.drafted) == (1, 1, 0)
    assert stats.tokens_per_s is not None
    assert stats.ttft_s is not None


def test_empty_counters_divide_by_nothing() -> None:
    """B64: null, not infinite."""
    figures = Counters().as_dict()
    for name in ("alpha", "acceptance_rate", "tokens_per_pass", "tokens_per_s", "ttft_s", "overhead"):
        assert figures[name] is None


def test_times_add_up(toy: Setting) -> None:
    """B64: prefill is not in decode time, and the parts of decode time are no more than the whole."""
    stats = toy.answer(PROMPT, drafter=Scripted(random_drafts(27, seed=0))).stats
    parts = (stats.draft_s, stats.verify_s, stats.accept_s, stats.other_s)
    assert min(parts) >= 0.0
    assert sum(parts) == pytest.approx(stats.decode_s)
    assert stats.ttft_s is not None
    assert stats.prefill_s < stats.ttft_s < stats.prefill_s + stats.decode_s
    assert stats.tokens_per_s == stats.completion_tokens / stats.decode_s


def test_prefill_counts_only_what_was_new(toy: Setting) -> None:
    first = toy.answer(PROMPT, N=0, limits=Limits(max_tokens=5))
    assert first.stats.prefill_tokens == len(PROMPT) - 1
    second = toy.answer([*PROMPT, *first.tokens, 7, 8], N=0, limits=Limits(max_tokens=5))
    assert second.stats.prefill_tokens == 1 + 1 + 1 - 1


class Recording(FixedLength):
    """Always N, and remembers what it was told."""

    def __init__(self, N: int) -> None:
        super().__init__(N)
        object.__setattr__(self, "reports", [])

    reports: list[RoundReport]

    def observe(self, report: RoundReport) -> None:
        self.reports.append(report)


def test_the_controller_hears_of_every_round(toy: Setting) -> None:
    """What the length control learns from is what was counted, confidences of the drafted tokens included."""
    plain = toy.answer(PROMPT).tokens
    controller = Recording(3)

    class Sure(Scripted):
        def propose(self, tokens: np.ndarray, budget: Budget) -> Draft:  # type: ignore[type-arg]
            wanted = following([*PROMPT, *plain])(tokens, budget.limit)
            return wanted.keeping([node for node in range(len(wanted)) if budget.pays(node + 1, 0.5 + node / 10)])

    generation = toy.start(PROMPT, drafter=Sure(following([])), controller=controller)
    list(generation)
    stats, reports = generation.counters, controller.reports
    assert len(reports) == stats.verifier_passes
    assert sum(report.drafted for report in reports) == stats.drafted
    assert sum(report.accepted for report in reports) == stats.accepted
    assert sum(report.tested for report in reports) == stats.tested
    assert reports[0].confidences == (0.5, 0.6, 0.7)
