"""The protocol of the benchmark on a toy pair: what is asked in which order, what is compared, what is flagged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from localspec.core.sampling import Sampling
from localspec.engine.toy import ToyModel
from localspec.errors import ContextFullError, UsageError
from localspec.services.bench.bench import ROUNDS, WARM_UP, Bench, Request, measure
from localspec.services.bench.runs import PLAIN, Configuration
from localspec.services.prompts import Prompt
from localspec.services.runtime import Runtime
from localspec.services.settings import AnswerSettings, EngineSettings, PairChoice
from tests.services.toy_pair import PASS_S, Collected, ToyPair

PROMPTS = [Prompt("1", "chat", "abc"), Prompt("2", "code", "fgh")]
GREEDY = AnswerSettings(sampling=Sampling(temperature=0.0), max_tokens=40)


def request(**changes: Any) -> Request:
    given: dict[str, Any] = {"prompts": PROMPTS, "answer": GREEDY, "lengths": [3], "repeats": 2, **changes}
    return Request(**given)


def measured(pair: ToyPair, report: Collected | None = None, **changes: Any) -> Bench:
    return measure(pair, request(**changes), report or Collected())


def rows_by_label(bench: Bench) -> dict[str, dict[str, Any]]:
    return {row.configuration.label: row.as_dict() for row in bench.rows if row.category == "all"}


def test_a_perfect_draft_wins_by_the_tokens_of_a_pass() -> None:
    bench = measured(ToyPair())
    row = rows_by_label(bench)["model N=3"]
    assert row["speedup"] == {"min": pytest.approx(4.0), "median": pytest.approx(4.0), "max": pytest.approx(4.0)}
    assert row["alpha"] == 1.0
    assert row["differing"] == row["near_ties"] == 0
    assert bench.flagged == []
    assert rows_by_label(bench)["plain"]["tokens_per_s"]["median"] == pytest.approx(1 / PASS_S)


def test_a_losing_row_stays_in() -> None:
    bench = measured(ToyPair(draft_model=ToyModel(seed=99), draft_cost_s=0.01))
    row = next(row for row in bench.rows if row.configuration == Configuration("model", 3))
    assert row.speedup is not None
    assert row.speedup.median < 1.0


def test_every_run_starts_from_an_empty_cache_and_asks_the_same_prompts() -> None:
    pair = ToyPair()
    measured(pair)
    assert set(pair.held) == {0}
    timed = [asked for asked in pair.asked if asked[1].max_tokens == 40]
    assert len(timed) == 2 * 2 * 2
    assert {asked[0] for asked in timed} == {(1, 2, 3), (6, 7, 8)}
    assert sum(speculate for _, _, speculate, _, _ in timed) == 4


def test_every_configuration_is_warmed_up_before_anything_counts() -> None:
    pair = ToyPair()
    measured(pair, lengths=[1, 3])
    warm = pair.asked[:3]
    assert [(speculate, N) for _, _, speculate, _, N in warm[:2]] == [(True, 1), (True, 3)]
    assert not warm[2][2]
    assert {settings.max_tokens for _, settings, *_ in warm} == {WARM_UP}
    assert all(settings.max_tokens == 40 for _, settings, *_ in pair.asked[3:])


def test_the_cost_curve_is_measured_on_the_verifier() -> None:
    curve = dict(measured(ToyPair()).cost_curve)
    assert curve == pytest.approx({n: 0.001 * n for n in (1, 2, 4, 6, 8, 12, 16)})


def test_the_pair_says_drafter_length_and_tree_where_nobody_else_does() -> None:
    assert list(rows_by_label(measured(ToyPair(tree="2,1"), lengths=[]))) == ["plain", "model tree 2,1"]
    assert list(rows_by_label(measured(ToyPair(drafter="ngram", N=5), lengths=[]))) == ["plain", "ngram N=5"]


def test_every_tree_is_measured_and_asked_for() -> None:
    pair = ToyPair()
    bench = measured(pair, lengths=[2, "auto"], trees=["none", "2,2,1", "auto"])
    assert list(rows_by_label(bench)) == [
        "plain",
        "model N=2",
        "model N=auto",
        "model tree 2,2,1",
        "model N=2 tree auto",
        "model N=auto tree auto",
    ]
    assert {tree for tree, _ in pair.trees} == {"none", "2,2,1", "auto"}
    assert {(row["tree"], row["N"]) for row in rows_by_label(bench).values() if row["tree"] == "2,2,1"} == {
        ("2,2,1", 3)
    }


def test_what_was_learned_in_one_run_serves_the_next() -> None:
    """A row of N=auto that learned from zero in every run would measure the learning."""
    pair = ToyPair()
    measured(pair)
    assert {resume for _, resume in pair.trees} == {True}


@pytest.mark.parametrize("answers", range(3, 11))
def test_an_interrupt_keeps_what_was_measured(answers: int) -> None:
    """Two answers warm up; the other eight are measured."""
    report = Collected()
    if answers == 3:
        with pytest.raises(KeyboardInterrupt):
            measured(ToyPair(interrupt_at=2), report)
        return
    bench = measured(ToyPair(interrupt_at=answers - 1), report)
    assert bench.interrupted
    assert len(bench.runs) == answers - 3
    assert bench.as_dict()["interrupted"]
    assert rows_by_label(bench)["plain"]["completion_tokens"] > 0 or len(bench.runs) == 1


def test_accepted_tokens_are_counted_by_depth() -> None:
    row = rows_by_label(measured(ToyPair(draft_model=ToyModel(seed=3, blur=0.6))))["model N=3"]
    by_depth = row["accepted_by_position"]
    assert sum(by_depth) == row["accepted"]
    assert by_depth == sorted(by_depth, reverse=True)
    assert len(by_depth) == 3


def test_the_options_of_the_pair_go_to_its_own_drafter() -> None:
    pair = ToyPair()
    measured(pair, drafters=["model", "ngram"], options={"typed": "1"})
    assert dict(pair.options) == {"model": {"of": "the pair"}, "ngram": {"typed": "1"}}


def test_b66_a_broken_rollback_is_flagged_however_fast_it_is() -> None:
    """The draft is often wrong; the tokens it got wrong stay in the cache, and the text drifts away."""
    blurred = ToyModel(seed=3, blur=0.6)
    assert measured(ToyPair(draft_model=blurred)).flagged == []
    bench = measured(ToyPair(draft_model=blurred, breaks_rollback=True))
    assert {row.configuration.label for row in bench.flagged} == {"model N=3"}
    assert bench.differences[Configuration("model", 3)][0].gap > 0
    assert PLAIN not in bench.differences


def test_texts_are_compared_at_temperature_0_only() -> None:
    warm = AnswerSettings(sampling=Sampling(temperature=1.0), max_tokens=40)
    assert measured(ToyPair(draft_model=ToyModel(seed=3, blur=0.6), breaks_rollback=True), answer=warm).flagged == []


@pytest.mark.parametrize(
    ("answer", "rule", "seeds"),
    [
        (AnswerSettings(max_tokens=8), "rejection", {0, 1}),
        (AnswerSettings(max_tokens=8, seed=7), "coupled", {7, 8}),
        (AnswerSettings(max_tokens=8, seed=7, acceptance="rejection"), "rejection", {7, 8}),
    ],
)
def test_each_repeat_has_its_seed_and_the_rule_is_the_one_asked_for(
    answer: AnswerSettings, rule: str, seeds: set[int]
) -> None:
    pair = ToyPair()
    bench = measured(pair, answer=answer)
    timed = [settings for _, settings, *_ in pair.asked if settings.max_tokens == 8]
    assert {settings.seed for settings in timed} == seeds
    assert {settings.acceptance for settings in timed} == {rule}
    assert bench.protocol["acceptance"] == rule


def test_b70_a_drafter_that_does_not_work_is_left_out_and_named() -> None:
    report = Collected()
    bench = measured(ToyPair(broken_drafters=("model",)), report, drafters=["model", "ngram"])
    assert list(rows_by_label(bench)) == ["plain", "ngram N=3"]
    assert [text for text in report.warnings if "model N=3 is left out" in text]


def test_no_drafter_is_wrong_use() -> None:
    with pytest.raises(UsageError, match="nothing to compare"):
        measured(ToyPair(drafter="none"))


def test_prompts_that_do_not_fit_are_left_out_and_named() -> None:
    report = Collected()
    long = Prompt("long", "chat", "a" * 100)
    bench = measured(ToyPair(context_size=64), report, prompts=[*PROMPTS, long])
    assert bench.protocol["prompts"] == 2
    assert [text for text in report.warnings if "Prompt long is left out: 100 tokens" in text]
    with pytest.raises(ContextFullError, match="room for 24"):
        measured(ToyPair(context_size=64), prompts=[long])


def test_progress_runs_to_its_end() -> None:
    report = Collected()
    measured(ToyPair(), report)
    done = [step for step, _ in report.steps]
    assert done == sorted(done)
    assert report.steps[-1] == (2 + 7 * ROUNDS + 8, 2 + 7 * ROUNDS + 8)
    assert all(total is not None and step < total for step, total in report.steps[:-1])


def test_the_document_has_the_fields_of_the_contract() -> None:
    document = measured(ToyPair()).as_dict()
    assert document["schema"] == "localspec.bench/1"
    assert (document["verifier"], document["draft"]) == ("toy.gguf", None)
    assert {"machine", "llama_cpp", "verifier", "draft", "protocol", "peak_rss_mb", "cost_curve", "rows"} < set(
        document
    )
    assert {"repeats", "max_tokens", "temperature", "prompts"} < set(document["protocol"])
    assert document["protocol"]["repeats"] == 2
    assert document["protocol"]["prompts"] == 2
    assert document["cost_curve"][0] == {"n": 1, "ms": 1.0}
    assert document["peak_rss_mb"] > 10
    wanted = {"drafter", "N", "tree", "category", "tokens_per_s", "speedup", "alpha", "acceptance_rate"}
    wanted |= {
        "accepted_by_position",
        "tokens_per_pass",
        "drafted",
        "tested",
        "accepted",
        "verifier_passes",
        "completion_tokens",
        "ttft_s",
    }
    assert all(wanted | {"overhead"} < set(row) for row in document["rows"])
    assert {row["category"] for row in document["rows"]} == {"all", "chat", "code"}
    assert (document["rows"][0]["drafter"], document["rows"][0]["N"]) == ("none", 0)


@pytest.mark.gguf
def test_b66_a_real_model_says_the_plain_text(smollm2: Path) -> None:
    """Lookup on a text that repeats itself: drafts are accepted, and no row is flagged; near ties may occur."""
    asked = Prompt("1", "chat", "Repeat this three times: the quick brown fox jumps over the lazy dog.")
    answer = AnswerSettings(sampling=Sampling(temperature=0.0), max_tokens=32)
    report = Collected()
    with Runtime.open(PairChoice(verifier=str(smollm2), drafter="ngram"), EngineSettings(ctx_size=512), report) as pair:
        done = measure(pair, Request([asked], answer, lengths=[4], repeats=1), report)
    assert done.flagged == []
    assert done.rows[-1].total.accepted > 0
    assert [n for n, _ in done.cost_curve] == [1, 2, 4, 6, 8, 12, 16]
