"""Ways to speculate that are resumed, and what drafters bring along from elsewhere, through the real runtime."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.errors import UsageError
from localspec.services.runtime import Runtime
from localspec.services.settings import EngineSettings, PairChoice
from tests import zoo
from tests.services import tiny
from tests.services.toy_pair import Collected


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def memory(cache: Path) -> list[Path]:
    return sorted((cache / "memory").glob("*")) if (cache / "memory").exists() else []


# -- resuming ----------------------------------------------------------------------------------------------------------


def test_what_is_resumed_goes_on_with_its_controller_and_drafter() -> None:
    with tiny.open_pair(drafter="model") as pair:
        pair.respeculate("ngram", "auto", {}, resume=True)
        first, drafter = pair.control, pair._drafter
        pair.respeculate("model", 3, {}, resume=True)
        pair.respeculate("ngram", "auto", {"min_ngram": "2"}, resume=True)
        assert pair.control != first, "other options are another way"
        pair.respeculate("ngram", "auto", {}, tree="auto", resume=True)
        assert pair.control != first, "and so is another tree"
        pair.respeculate("ngram", "auto", {}, tree="none", resume=True)
        assert pair.control == first
        assert pair._drafter is drafter
        assert pair.settings()["N"] == "auto"
        pair.respeculate("ngram", "auto", {}, tree="none")
        assert pair.control != first, "without resuming, everything starts anew"


def test_a_resumed_way_answers_as_a_new_one_does() -> None:
    with tiny.open_pair(drafter="model") as pair:
        plain = tiny.answer(pair).tokens
        for _ in range(2):
            for drafter in ("model", "ngram", "lookahead", "cascade"):
                for tree in ("none", "2,2", "auto"):
                    pair.respeculate(drafter, 4, {}, tree=tree, resume=True)
                    pair.forget()
                    assert tiny.answer(pair).tokens == plain


def test_all_ways_are_closed_with_the_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    with tiny.open_pair(drafter="model") as pair:
        for name in ("model", "ngram"):
            pair.respeculate(name, 2, {}, resume=True)
            drafter = pair._drafter
            assert drafter is not None
            monkeypatch.setattr(drafter, "close", lambda name=name: closed.append(name))
        pair.respeculate("none", 0, {})
        assert closed == []
    assert sorted(closed) == ["model", "ngram"]


def test_a_drafter_that_failed_is_not_resumed() -> None:
    report = Collected()
    with tiny.open_pair(drafter="model", report=report) as pair:
        pair.respeculate("model", 2, {}, resume=True)
        drafter = pair._drafter

        def fail(*_: object) -> None:
            raise RuntimeError("broken")

        drafter.propose = fail  # type: ignore[union-attr, method-assign, assignment]
        tiny.answer(pair)
        assert pair.drafter == "none"
        assert len(report.warnings) == 1
        pair.respeculate("model", 2, {}, resume=True)
        assert pair._drafter is not drafter
        assert tiny.answer(pair).stats.drafted > 0


# -- a cascade over less than it wants ---------------------------------------------------------------------------------


def test_a_cascade_without_a_draft_model_says_so_and_looks_up() -> None:
    """B70."""
    report = Collected()
    with tiny.open_pair(draft=None, drafter="cascade", N=4, report=report) as pair:
        answer = tiny.answer(pair)
        assert pair.drafter == "cascade"
        assert answer.stats.drafted > 0
    (warning,) = report.warnings
    assert warning.startswith("The cascade goes on without model: this pair has no draft model.")
    assert "--draft" in warning


def test_a_cascade_that_names_no_drafter_is_wrong_use() -> None:
    with pytest.raises(UsageError, match="no drafter 'eager'"):
        tiny.open_pair(draft=None, drafter="cascade", options={"order": "ngram,eager"})


# -- the drafter that is chosen by measurement -------------------------------------------------------------------------


def test_auto_chooses_among_the_drafters_of_the_pair_and_says_who_drafted() -> None:
    with tiny.open_pair(drafter="auto") as pair:
        plain = tiny.answer(pair, speculate=False, max_tokens=120)
        answer = tiny.answer(pair, max_tokens=120)
        assert answer.tokens == plain.tokens
        assert pair.settings()["options"] == {"among": "model,ngram"}
        stats = answer.stats.as_dict()
    assert stats["drafter"] == "auto"
    assert "of" in stats["controller"]
    assert set(stats["drafters"]) & {"model", "ngram"}
    assert sum(share["rounds"] for share in stats["drafters"].values()) == stats["verifier_passes"]
    assert plain.stats.as_dict()["drafters"]["none"]["rounds"] == plain.stats.verifier_passes


@pytest.mark.parametrize(("N", "tree"), [(3, "none"), ("auto", "auto"), (2, "auto"), (3, "2,2"), (0, "none")])
def test_auto_with_every_length_and_tree_gives_the_same_text(N: int | str, tree: str) -> None:
    with tiny.open_pair(drafter="auto", N=N, tree=tree) as pair:
        plain = tiny.answer(pair, speculate=False)
        for options in ({}, {"among": "ngram,model,lookahead"}):
            pair.respeculate("auto", pair.settings()["N"], options)
            answer = tiny.answer(pair)
            assert answer.tokens == plain.tokens
            if N == 3 and tree == "none" and not options:
                assert len(answer.stats.accepted_by_position) <= 3


def test_auto_without_the_draft_it_wants_goes_on_with_the_lookup() -> None:
    report = Collected()
    with tiny.open_pair(draft="foreign", drafter="auto", report=report) as pair:
        answer = tiny.answer(pair)
        assert pair.drafter == "auto"
        assert set(answer.stats.shares) <= {"ngram", "none"}
    (warning,) = report.warnings
    assert warning.startswith("Drafter auto goes on without model:")


# -- texts from elsewhere ----------------------------------------------------------------------------------------------

UNSEEN = zoo.byte_ids("qrs")
"""A prompt that repeats nothing."""


def test_a_corpus_is_drafted_from_and_changes_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text("pqrstuvw")
    with tiny.open_pair(draft=None, drafter="ngram", N=4) as pair:
        plain = tiny.answer(pair, UNSEEN, max_tokens=2)
        assert plain.stats.drafted == 0
        pair.respeculate("ngram", 4, {"corpus": str(path)})
        drafted = tiny.answer(pair, UNSEEN, max_tokens=2)
        assert drafted.stats.drafted > 0
        assert drafted.tokens == plain.tokens


def test_a_corpus_that_cannot_be_read_is_told_before_anything_is_fetched_or_loaded(tmp_path: Path) -> None:
    choice = PairChoice(
        verifier=str(tmp_path / "no-such-model.gguf"), drafter="ngram", options={"corpus": str(tmp_path / "nothing")}
    )
    with pytest.raises(UsageError, match="option corpus") as caught:
        Runtime.open(choice, EngineSettings(), Collected())
    assert "corpus=" in caught.value.hint


def test_what_was_said_is_remembered_for_the_next_run(cache: Path) -> None:
    with tiny.open_pair(draft=None, drafter="ngram", N=4, options={"remember": "true"}) as pair:
        first = tiny.answer(pair, UNSEEN)
    assert len(memory(cache)) == 1
    with tiny.open_pair(draft=None, drafter="ngram", N=4, options={"remember": "true"}) as pair:
        second = tiny.answer(pair, UNSEEN)
    assert second.tokens == first.tokens
    assert second.stats.accepted > first.stats.accepted + 10
    assert second.stats.verifier_passes < 20


def test_nothing_is_written_or_read_unless_asked_for(cache: Path) -> None:
    """B68: a conversation stays with itself."""
    with tiny.open_pair(draft=None, drafter="ngram", N=4, options={"remember": "true"}) as pair:
        tiny.answer(pair, UNSEEN)
    for path in memory(cache):
        path.unlink()
    with tiny.open_pair(draft=None, drafter="ngram", N=4) as pair:
        first = tiny.answer(pair, UNSEEN)
    assert memory(cache) == []
    with tiny.open_pair(draft=None, drafter="ngram", N=4) as pair:
        assert tiny.answer(pair, UNSEEN).stats.drafted == first.stats.drafted


def test_a_damaged_memory_costs_one_warning(cache: Path) -> None:
    options = {"remember": "true"}
    with tiny.open_pair(draft=None, drafter="ngram", N=4, options=options) as pair:
        plain = tiny.answer(pair, UNSEEN).tokens
    (path,) = memory(cache)
    path.write_bytes(path.read_bytes()[:-3])
    report = Collected()
    with tiny.open_pair(draft=None, drafter="ngram", N=4, options=options, report=report) as pair:
        assert tiny.answer(pair, UNSEEN).tokens == plain
    assert len(report.warnings) == 1
    with tiny.open_pair(draft=None, drafter="ngram", N=4, options=options) as pair:
        assert tiny.answer(pair, UNSEEN).stats.accepted > 10, "it was written anew"
