"""The exercises on toy models: what they must come out with, and that the check can fail."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from localspec.core import theory as arithmetic
from localspec.core.draft import Draft
from localspec.core.law import Law
from localspec.core.rejection import Rejection
from localspec.core.shapes import Shape
from localspec.engine.toy import ToyContext
from localspec.errors import UsageError
from localspec.services.report import Silent
from localspec.services.settings import Acceptance
from localspec.services.theory import distance as theory_distance
from localspec.services.theory import rollback as theory_rollback
from localspec.services.theory import theory
from localspec.services.theory import toy as theory_toy
from localspec.services.theory import tree as theory_tree
from tests.services.toy_pair import Collected


def checked(samples: int, *, N: int = 4, seed: int = 0, acceptance: Acceptance = "rejection") -> theory.Check:
    return theory.check(samples=samples, N=N, seed=seed, acceptance=acceptance, report=Silent())


@pytest.mark.parametrize("N", [1, 4])
def test_the_emitted_law_is_the_verifiers(N: int) -> None:
    result = checked(2_000, N=N)
    assert result.passed
    assert [row.quality.name for row in result.rows] == ["good", "fair", "poor"]
    assert result.test.dof > 60
    alphas = [row.accepted / row.tested for row in result.rows]
    assert alphas == sorted(alphas, reverse=True)


def test_the_coupled_rule_is_checked_too() -> None:
    assert checked(300, acceptance="coupled").passed


def test_the_same_seed_gives_the_same_check() -> None:
    assert checked(100).as_dict() == checked(100).as_dict()
    assert checked(100).as_dict() != checked(100, seed=1).as_dict()


def test_a_broken_rule_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a rejection this one draws from the verifier's row instead of the residual."""

    class Careless(Rejection):
        def _choose(self, draft: Draft, siblings: tuple[int, ...], row: Law) -> tuple[int | None, Law]:
            return super()._choose(draft, siblings, row)[0], row

    monkeypatch.setattr(theory, "Rejection", Careless)
    result = checked(1_000)
    assert not result.passed
    assert result.test.p_value < 1e-9


def test_the_document_of_a_check() -> None:
    document = checked(50).as_dict()
    assert {"samples", "chi2", "dof", "critical_95", "passed"} <= set(document)
    assert document["samples"] == 50
    assert document["chi2"] == pytest.approx(sum(row["chi2"] for row in document["rows"]))
    assert document["passed"] == (document["chi2"] < document["critical_95"])


def test_progress_ends_at_the_end() -> None:
    report = Collected()
    theory.check(samples=1000, N=2, seed=0, acceptance="rejection", report=report)
    assert [step for step in report.steps if step[0] == step[1]] == [(1000, 1000)] * 3


def test_a_sweep_finds_the_best_length_and_says_why() -> None:
    document = theory.Sweep(alpha=0.8, c=0.05, longest=10, seed=0).as_dict()
    assert document["best_N"] == 8
    assert [row["N"] for row in document["rows"]] == list(range(1, 11))
    best = document["rows"][7]
    assert best["speedup"] == pytest.approx(3.09, abs=0.005)
    assert best["speedup"] * best["time_per_token"] == pytest.approx(1.0)
    assert "best N is 8" in document["shape"][-1]


@pytest.mark.parametrize(
    ("alpha", "c", "best", "said"),
    [
        (0.1, 0.3, 0, "Nothing pays"),
        (0.95, 0.01, 10, "still pays"),
        (1.0, 0.1, 10, "still pays"),
        (0.0, 0.1, 0, "Nothing"),
    ],
)
def test_the_ends_of_the_curve(alpha: float, c: float, best: int, said: str) -> None:
    sweep = theory.Sweep(alpha, c, longest=10, seed=0)
    assert sweep.best_N == best
    assert said in sweep.shape()[-1]


def test_alpha_falls_with_the_quality_of_the_draft() -> None:
    alphas = [row["alpha"] for row in theory.Sweep(0.8, 0.05, 10, 0).qualities()]
    assert alphas[0] == pytest.approx(1.0)
    assert alphas == sorted(alphas, reverse=True)
    assert alphas[-1] < 0.5


def test_rollback_shows_the_textbook_lengths() -> None:
    """A prefix of 10, five drafts and a rejection at the third: the cache goes to 15 and back to 12, the text to 13."""
    result = theory_rollback.rollback(seed=0)
    assert result.passed
    a, b, alone = result.rows
    assert (a.accepted, a.cache, a.text) == (4, (5, 10, 10), (6, 11))
    assert (b.accepted, b.cache, b.text) == (1, (7, 12, 9), (8, 10))
    assert (alone.accepted, alone.cache, alone.text) == (2, (9, 15, 12), (10, 13))
    assert alone.emitted[:2] == alone.drafted[:2]
    assert alone.emitted[2] != alone.drafted[2]


@pytest.mark.parametrize("seed", range(5))
def test_rollback_loses_nothing_for_any_seed(seed: int) -> None:
    assert all(row.lost == 0 and row.same_row for row in theory_rollback.rollback(seed=seed).rows)


def test_rollback_notices_a_cache_that_keeps_rejected_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ToyContext.commit

    def keeps_all(self: ToyContext, path: object) -> None:
        assert self._open is not None
        honest(self, range(len(self._open[1])))

    monkeypatch.setattr(ToyContext, "commit", keeps_all)
    result = theory_rollback.rollback(seed=0)
    assert not result.passed
    assert [row.lost for row in result.rows] == [0, 3, 3]


def trees(*shapes: str, samples: int = 300) -> dict[tuple[str, str], theory_tree.Grown]:
    result = theory_tree.trees(shapes=shapes, samples=samples, c=0.05, seed=0, report=Silent())
    return {(row.quality.name, row.name): row for row in result.rows}


def test_trees_against_chains_of_as_many_tokens() -> None:
    """A tree wins where drafts are poor and loses where they are good."""
    rows = trees("2,2,2")
    assert len(rows) == 6
    assert len(rows["good", "2,2,2"].shape) == len(rows["good", "chain of 14"].shape) == 14
    assert rows["poor", "2,2,2"].tokens_per_pass > rows["poor", "chain of 14"].tokens_per_pass
    assert rows["good", "2,2,2"].tokens_per_pass < rows["good", "chain of 14"].tokens_per_pass
    for row in rows.values():
        assert row.tokens_per_pass == pytest.approx(1.0 + sum(row.accepted_by_depth))
        assert sum(leaf.reached for leaf in row.leaves) == pytest.approx(row.accepted_by_depth[-1])


def test_a_chain_accepts_as_the_arithmetic_says() -> None:
    """A long text of the toy: tokens per pass near the formula for alpha, which takes acceptances for independent."""
    row = trees("1,1", samples=1_000)["fair", "1,1"]
    assert row.tokens_per_pass == pytest.approx(arithmetic.tokens_per_pass(row.alpha, 2), rel=0.06)


def test_a_second_sibling_only_helps() -> None:
    rows = trees("1", "2", "4", samples=600)
    assert rows["fair", "1"].tokens_per_pass < rows["fair", "2"].tokens_per_pass < rows["fair", "4"].tokens_per_pass


def test_a_tree_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError, match="120 nodes, but a toy pass takes 64"):
        trees("3,3,3,3")


def test_places_and_what_was_judged() -> None:
    draft = Draft(np.array([5, 6, 7, 8], np.int32), np.array([-1, -1, 0, 0], np.int32))
    assert {node: place for node, place in theory_tree.places(draft).items() if node >= 0} == {
        0: (0,),
        1: (1,),
        2: (0, 0),
        3: (0, 1),
    }
    pairs: list[tuple[int, list[int]]] = [(5, [0, 2, 3]), (6, [0, 1]), (9, [0, 1])]
    for first, expected in pairs:
        laws: Callable[[int], Law] = [Law.one_hot(token) for token in (first, 1, 1, 1, 1)].__getitem__
        verdict = Rejection(np.random.default_rng(0)).accept(draft, laws, 0)
        assert theory_tree.judged(draft, verdict) == expected
        assert verdict.tested == len(expected)


def test_the_text_of_a_long_run_stays_within_the_context() -> None:
    pair = theory_toy.ToyPair(0.1, seed=0)
    play = theory_tree.player(pair, Shape.branching([1] * 20), np.random.default_rng(0))
    emitted = sum(len(play()[1].path) + 1 for _ in range(150))
    assert emitted > pair.verifier().capacity


def test_distance_measures_what_the_overlap_says() -> None:
    result = theory_distance.distance(samples=1_500, seed=0, report=Silent())
    for row in result.rows:
        assert row.measured == pytest.approx(row.alpha, abs=0.05)  # four standard errors
        assert row.bound <= row.alpha
        assert all(point.alpha >= arithmetic.least_overlap(point.kl) - 1e-9 for point in row.points)
    assert [row.kl for row in result.rows] == sorted(row.kl for row in result.rows)
