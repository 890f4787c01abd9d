"""The arithmetic of a benchmark, on runs whose counters are written down."""

from __future__ import annotations

import pytest

from localspec.errors import UsageError
from localspec.loop.counters import Counters
from localspec.services.bench.rows import ALL, Row, Spread, rows
from localspec.services.bench.runs import PLAIN, Configuration, Run, Turn, configurations, schedule, widest
from localspec.services.bench.texts import Difference

FAST = Configuration("model", 4)


def counters(
    tokens: int, seconds: float, *, passes: int, drafted: int = 0, tested: int = 0, accepted: int = 0
) -> Counters:
    return Counters(
        completion_tokens=tokens,
        decode_s=seconds,
        engine_s=0.9 * seconds,
        draft_s=0.3 * seconds,
        verify_s=0.6 * seconds,
        verifier_passes=passes,
        drafted=drafted,
        tested=tested,
        accepted=accepted,
        ttft_s=0.25,
        prefill_s=99.0,
    )


def run(prompt: int, repeat: int, configuration: Configuration, stats: Counters, category: str = "chat") -> Run:
    tokens = tuple(range(stats.completion_tokens))
    return Run(Turn(prompt, repeat, configuration), category, tokens, stats, configuration.drafter)


def find(table: list[Row], configuration: Configuration, category: str = ALL) -> Row:
    (found,) = [row for row in table if row.configuration == configuration and row.category == category]
    return found


def test_b61_alpha_and_acceptance_rate_come_from_sums_over_all_rounds() -> None:
    """Two tools disagree when one divides by tokens never tested: 30 drafted, 20 tested, 12 accepted is 0.6 and 0.4."""
    runs = [
        run(0, 0, PLAIN, counters(10, 1.0, passes=10)),
        run(0, 0, FAST, counters(10, 0.5, passes=4, drafted=16, tested=8, accepted=6)),
        run(1, 0, PLAIN, counters(10, 1.0, passes=10)),
        run(1, 0, FAST, counters(10, 1.0, passes=6, drafted=14, tested=12, accepted=6)),
    ]
    row = find(rows(runs, {}), FAST).as_dict()
    assert (row["drafted"], row["tested"], row["accepted"]) == (30, 20, 12)
    assert row["alpha"] == 12 / 20
    assert row["acceptance_rate"] == 12 / 30
    assert row["tokens_per_pass"] == 20 / 10
    assert row["verifier_passes"] == 10


def test_b61_the_rates_of_plain_decoding_are_null_not_zero() -> None:
    row = find(rows([run(0, 0, PLAIN, counters(10, 1.0, passes=10))], {}), PLAIN).as_dict()
    assert row["alpha"] is None
    assert row["acceptance_rate"] is None
    assert row["tokens_per_pass"] == 1.0
    assert row["speedup"] == {"min": 1.0, "median": 1.0, "max": 1.0}


def test_b64_speed_is_completion_tokens_over_decode_time_without_the_prompt() -> None:
    """llama.cpp's own timer once booked verification as prompt evaluation and reported infinite speed."""
    row = find(rows([run(0, 0, PLAIN, counters(30, 2.0, passes=30))], {}), PLAIN).as_dict()
    assert row["tokens_per_s"] == {"min": 15.0, "median": 15.0, "max": 15.0}
    assert row["ttft_s"] == 0.25
    assert row["overhead"] == pytest.approx(0.1)


def test_b64_an_answer_that_took_no_time_has_no_speed() -> None:
    row = find(rows([run(0, 0, PLAIN, counters(0, 0.0, passes=0))], {}), PLAIN).as_dict()
    assert row["tokens_per_s"] is None
    assert row["speedup"] is None
    assert row["overhead"] is None


def test_b67_each_run_is_paired_with_the_plain_run_of_its_prompt_and_repeat() -> None:
    """Prompt 1 ends early and is slow for everybody: a ratio of means would call 2x and 1x something else."""
    runs = [
        run(0, 0, PLAIN, counters(100, 10.0, passes=100)),
        run(0, 0, FAST, counters(100, 5.0, passes=40)),
        run(1, 0, PLAIN, counters(4, 4.0, passes=4)),
        run(1, 0, FAST, counters(4, 4.0, passes=4)),
        run(0, 1, PLAIN, counters(100, 20.0, passes=100)),
        run(0, 1, FAST, counters(100, 5.0, passes=40)),
    ]
    row = find(rows(runs, {}), FAST)
    assert row.speedup == Spread(1.0, 2.0, 4.0)


def test_b67_texts_of_different_length_compare_tokens_per_second() -> None:
    runs = [
        run(0, 0, PLAIN, counters(100, 10.0, passes=100)),
        run(0, 0, FAST, counters(50, 10.0, passes=40)),
    ]
    row = find(rows(runs, {}), FAST)
    assert row.speedup == Spread(0.5, 0.5, 0.5)


def test_categories_have_rows_of_their_own_next_to_all() -> None:
    runs = [
        run(0, 0, PLAIN, counters(10, 1.0, passes=10), "chat"),
        run(1, 0, PLAIN, counters(10, 1.0, passes=10), "code"),
        run(0, 0, FAST, counters(10, 2.0, passes=10), "chat"),
        run(1, 0, FAST, counters(10, 0.5, passes=10), "code"),
    ]
    table = rows(runs, {})
    assert [row.category for row in table] == [ALL, "chat", "code"] * 2
    assert find(table, FAST, "chat").speedup == Spread(0.5, 0.5, 0.5)
    assert find(table, FAST, "code").speedup == Spread(2.0, 2.0, 2.0)
    assert find(table, FAST).speedup == Spread(0.5, 1.25, 2.0)


def test_b66_rows_count_prompts_that_differ_and_near_ties_apart() -> None:
    runs = [run(prompt, 0, FAST, counters(10, 1.0, passes=5)) for prompt in range(3)]
    differences = {
        FAST: [
            Difference(0, 4, gap=2.0, noise=0.1),
            Difference(1, 4, gap=0.05, noise=0.1),
            Difference(0, 5, gap=3.0, noise=0.0),
        ]
    }
    row = find(rows(runs, differences), FAST)
    assert (row.differing, row.near_ties) == (1, 1)


def test_b66_a_text_that_repeats_itself_shows_in_its_row() -> None:
    looped = Run(Turn(0, 0, FAST), "chat", (7,) * 104, counters(104, 1.0, passes=20), "model")
    assert find(rows([looped], {}), FAST).loop_share == pytest.approx(100 / 101)
    assert find(rows([run(0, 0, FAST, counters(50, 1.0, passes=20))], {}), FAST).loop_share == 0.0


def test_b70_runs_that_lost_their_drafter_are_counted() -> None:
    fallen = Run(Turn(0, 0, FAST), "chat", (1, 2), counters(2, 1.0, passes=2), "none")
    assert find(rows([fallen], {}), FAST).fallen_back == 1


def test_every_drafter_is_measured_with_every_length_once() -> None:
    asked = configurations(["none", "ngram", "model"], [0, 2, "auto", 2])
    assert asked == [Configuration(name, N) for name in ("ngram", "model") for N in (2, "auto")]


def test_trees_are_measured_with_every_length_but_static_ones_once() -> None:
    asked = configurations(["model"], [2, "auto"], ["none", "3,1", "auto"])
    assert [one.label for one in asked] == [
        "model N=2",
        "model N=auto",
        "model tree 3,1",
        "model N=2 tree auto",
        "model N=auto tree auto",
    ]
    assert asked[2] == Configuration("model", 2, "3,1")
    with pytest.raises(UsageError, match="cannot be drafted"):
        configurations(["model"], [2], ["3,0"])


@pytest.mark.parametrize(
    ("configuration", "nodes"),
    [
        (Configuration("model", 5), 5),
        (Configuration("model", "auto"), 15),
        (Configuration("model", 3, "4,2,2"), 28),
        (Configuration("model", 3, "auto"), 32),
        (Configuration("model", 3, "8,8"), 32),
        (Configuration("lookahead", 5), 32),
    ],
)
def test_how_many_nodes_a_draft_may_have(configuration: Configuration, nodes: int) -> None:
    assert widest(configuration, longest=15) == nodes


def test_accepted_tokens_by_depth_are_added_depth_by_depth() -> None:
    one, other = counters(9, 1.0, passes=3), counters(9, 1.0, passes=3)
    one.accepted_by_position, other.accepted_by_position = [3, 2], [2, 1, 1]
    assert find(rows([run(0, 0, FAST, one), run(1, 0, FAST, other)], {}), FAST).total.accepted_by_position == [5, 3, 1]


@pytest.mark.parametrize(("drafters", "lengths"), [(["none"], [5]), (["ngram"], [0]), ([], ["auto"])])
def test_nothing_to_compare_is_wrong_use(drafters: list[str], lengths: list[int]) -> None:
    with pytest.raises(UsageError, match="nothing to compare"):
        configurations(drafters, lengths)


def test_the_schedule_interleaves_and_takes_turns_at_starting() -> None:
    other = Configuration("ngram", 2)
    contestants = [PLAIN, FAST, other]
    turns = list(schedule(prompts=3, repeats=2, contestants=contestants))
    assert len(turns) == len(set(turns)) == 18
    blocks = [turns[at : at + 3] for at in range(0, 18, 3)]
    assert all({turn.configuration for turn in block} == set(contestants) for block in blocks)
    assert all(len({(turn.prompt, turn.repeat) for turn in block}) == 1 for block in blocks)
    starts = [block[0].configuration for block in blocks]
    assert {starts.count(one) for one in contestants} == {2}
