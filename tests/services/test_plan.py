"""What a plan foretells is what decoding then does: passes, drafts, acceptances; exactly where no luck is involved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.core.sampling import Sampling
from localspec.planner import plan as arithmetic
from localspec.planner.plan import Candidate, Costs, Walk
from localspec.services.plan import checks as plan_checks
from localspec.services.plan import costs as plan_costs
from localspec.services.plan import plan
from localspec.services.plan import texts as plan_texts
from localspec.services.plan.outcome import Judged, Request, sum_of
from localspec.services.prompts import Prompt
from localspec.services.report import Silent
from localspec.services.runtime import Runtime
from localspec.services.settings import AnswerSettings, EngineSettings, PairChoice
from tests import zoo
from tests.services import tiny
from tests.services.tiny import FREE, GREEDY

FLAT = Costs(((1, 1.0), (16, 1.0)))
PROMPTS = [zoo.byte_ids(text) for text in ("to be or not to be, to be or", "one two three, one two")]
LAWS: dict[str, dict[str, Any]] = {
    "greedy": {"sampling": GREEDY},
    "coupled": {"sampling": FREE, "acceptance": "coupled", "seed": 3},
    "coupled, filtered": {"sampling": Sampling(repeat_penalty=1.2), "acceptance": "coupled", "seed": 5},
}


@pytest.fixture(scope="module")
def pair() -> Iterator[Runtime]:
    with tiny.open_pair(drafter="model", N=4) as runtime:
        yield runtime


@pytest.mark.parametrize("drafter", ["model", "ngram"])
@pytest.mark.parametrize("N", [1, 3, 6])
@pytest.mark.parametrize("law", LAWS)
def test_a_walk_is_what_decoding_does(pair: Runtime, law: str, N: int, drafter: str) -> None:
    """Teacher forcing in large passes and the replay of a lookup against real answers with that length."""
    settings = AnswerSettings(max_tokens=40, **LAWS[law])
    pair.respeculate("model", 4)
    texts = plan_texts.plain_texts(pair, PROMPTS, settings, Silent())
    if drafter == "model":
        asked = plan_texts.read_by_model(pair, texts, settings, {}, Silent())
    else:
        asked = plan_texts.read_by_lookup("ngram", pair, texts, settings, {})
    pair.respeculate(drafter, N)
    for text, trace in zip(texts, asked.traces, strict=True):
        pair.forget()
        stream = pair.answer(text.prompt.tolist(), settings)
        for _ in stream:
            pass
        stats = stream.answer.stats
        assert stream.answer.tokens == tuple(text.answer.tolist())
        walk = arithmetic.chain(trace, FLAT, N)
        assert walk.tokens == stats.completion_tokens
        assert (walk.passes, walk.accepted, walk.tested) == (stats.verifier_passes, stats.accepted, stats.tested)
        # A draft that strays may come upon an end token, and is shorter then.
        assert 0.8 * walk.drafted <= stats.drafted <= walk.drafted


def test_rejection_is_foretold_in_expectation(pair: Runtime) -> None:
    """Mean tokens per pass of 150 short sampled answers against the walks over their plain texts."""
    pair.respeculate("model", 3)
    walks, passes, tokens = Walk(), 0, 0
    for seed in range(150):
        settings = AnswerSettings(FREE, acceptance="rejection", seed=seed, max_tokens=16)
        texts = plan_texts.plain_texts(pair, PROMPTS[:1], settings, Silent())
        if not texts:
            continue
        asked = plan_texts.read_by_model(pair, texts, settings, {}, Silent())
        assert asked.overlap is not None
        walks += arithmetic.chain(asked.traces[0], FLAT, 3)
        pair.forget()
        stats = tiny.answer(
            pair, PROMPTS[0], sampling=FREE, acceptance="rejection", seed=seed, max_tokens=16, ignore_end=False
        ).stats
        if stats.completion_tokens >= plan_texts.SHORTEST:
            passes, tokens = passes + stats.verifier_passes, tokens + stats.completion_tokens
    assert walks.tokens / walks.passes == pytest.approx(tokens / passes, rel=0.08)


def test_rows_along_a_text_are_those_of_plain_decoding(pair: Runtime) -> None:
    settings = AnswerSettings(GREEDY, max_tokens=40)
    (text, *_) = plan_texts.plain_texts(pair, PROMPTS, settings, Silent())
    found = [int(row.argmax()) for _, row in plan_texts.rows_along(pair.verifier, text)]
    assert found == text.answer.tolist()


def test_sizes_go_as_far_as_drafts_do() -> None:
    assert plan_costs.sizes([0.5, 0.1, 0.005], room=32) == [1, 2, 3, 4, 5, 6]
    assert plan_costs.sizes([0.9] * 15, room=32)[-1] == 16
    assert plan_costs.sizes([0.5], room=32, streams=4) == [1, 4, 8, 12, 16, 20, 24]
    assert plan_costs.sizes([0.9] * 15, room=7)[-1] == 8


def test_costs_are_medians_of_rounds(pair: Runtime) -> None:
    """Each size behind others and behind itself, layers of the draft, and nothing left behind in either cache."""
    pair.respeculate("model", 4)
    settings = AnswerSettings(GREEDY, max_tokens=24)
    texts = plan_texts.plain_texts(pair, PROMPTS, settings, Silent())
    request = Request([Prompt("1", "a", "x")], settings)
    asked = plan_texts.read_by_model(pair, texts, settings, {}, Silent())
    times = plan.timed(pair, texts, {"model": asked}, request, Silent())
    assert min(map(len, (*times.verify.values(), *times.first.values()))) >= plan_costs.REPEATS // 2 - 1
    assert all(len(times.verify[n]) + len(found) == 2 * plan_costs.REPEATS for n, found in times.first.items())
    assert times.first.keys() == times.verify.keys()
    costs = plan_costs.costs(times, texts)
    assert costs.verify_s[0][0] == 1
    assert [n for n, _ in costs.anew_s] == [n for n, _ in costs.verify_s]
    cramped = plan_costs.costs(replace(times, verify={}), texts)  # no room for a second pass of any size
    assert [n for n, _ in cramped.verify_s] == [n for n, _ in costs.verify_s]
    assert not any(seconds for _, seconds in cramped.anew_s)
    assert costs.draft_s > 0.0
    assert dict(costs.layers_s).keys() == {1, 2, 4, 8}
    before = pair.verifier.tokens.tolist()
    assert before[: len(texts[0].prompt)] in [text.prompt.tolist()[: len(texts[0].prompt)] for text in texts]


def test_a_text_that_fills_the_context_can_be_measured() -> None:
    with tiny.open_pair(drafter="model", N=4, ctx_size=64) as runtime:
        settings = AnswerSettings(GREEDY, max_tokens=60)
        prompt = PROMPTS[0]
        texts = plan_texts.plain_texts(runtime, [prompt], settings, Silent())
        assert len(texts[0].whole) > 60
        asked = plan_texts.read_by_model(runtime, texts, settings, {}, Silent())
        times = plan.timed(runtime, texts, {"model": asked}, Request([Prompt("1", "a", "x")], settings), Silent())
        assert set(times.verify) >= {1, 2, 4}


def way(drafter: str, N: int | str, speedup: float, *, round_s: float = 0.1) -> Candidate:
    return Candidate(drafter, N, "none", speedup, speedup, speedup, round_s, 0.05, Walk(10, 1, 5, 10, 8, 5))


def judged(*ways: Candidate, tried: bool = False) -> Judged:
    return Judged(ways[0].drafter, list(ways), 0.5, FLAT, tried)


ASKED = Request([Prompt("1", "a", "x")], AnswerSettings())


@pytest.mark.parametrize(
    ("found", "latency_ms", "chosen", "fallback"),
    [
        ([judged(way("model", 3, 1.5), way("model", "auto", 1.4))], None, ("model", 3), None),
        ([judged(way("model", 3, 1.5), way("model", "auto", 1.49))], None, ("model", "auto"), None),
        ([judged(way("model", 3, 1.02))], None, None, None),
        ([judged(way("model", 3, 1.5)), judged(way("ngram", 5, 1.2))], None, ("model", 3), ("ngram", 5)),
        (
            [judged(way("model", 3, 1.5, round_s=0.3), way("model", 1, 1.1)), judged(way("ngram", 5, 1.05))],
            150.0,
            ("model", 1),
            ("ngram", 5),
        ),
        ([judged(way("model", 3, 1.5)), judged(way("cascade", "auto", 1.52), tried=True)], None, ("model", 3), None),
        (
            [judged(way("model", 3, 1.5)), judged(way("cascade", "auto", 1.6), tried=True)],
            None,
            ("cascade", "auto"),
            ("model", 3),
        ),
    ],
)  # fmt: skip
def test_what_is_chosen(
    found: list[Judged], latency_ms: float | None, chosen: tuple[str, Any] | None, fallback: tuple[str, Any] | None
) -> None:
    asked = Request(ASKED.prompts, ASKED.answer, latency_ms=latency_ms)
    best, other = plan.choose(found, asked)
    assert (None if best is None else (best.drafter, best.N)) == chosen
    assert (None if other is None else (other.drafter, other.N)) == fallback


def test_the_arithmetic_adds_up() -> None:
    trace = arithmetic.Trace(((0.5, 0.5),) * 30, ((0.5, 0.5),) * 30)
    costs = Costs(((1, 0.010), (4, 0.016)), draft_s=0.002)
    one = arithmetic.candidate("model", 2, "none", [arithmetic.chain(trace, costs, 2)], costs, longest=2)
    said = sum_of(one, costs)
    tokens, milliseconds = float(said.split()[0]), float(said.split(" in ")[1].split()[0])
    assert tokens / milliseconds * 10.0 == pytest.approx(one.overall, rel=0.02)
    assert said.endswith(f"{one.overall:.2f}x")


def test_warnings_name_what_is_wrong() -> None:
    bound = Costs(((1, 0.010), (4, 0.040)), draft_s=0.008)
    lines = plan_checks.warnings(bound, Sampling(temperature=1.5), has_draft=True)
    assert [line.split()[0] for line in lines] == ["At", "This", "A"]
    tiny_model = Costs(((1, 0.001), (4, 0.001)))
    (line,) = plan_checks.warnings(tiny_model, GREEDY, has_draft=False)
    assert "tiny" in line


def test_memory_is_compared_with_what_was_free() -> None:
    needed = {"verifier": 6_000_000_000, "draft": 1_000_000_000}
    assert plan_checks.memory(needed, 8_000_000_000).ok is True
    assert plan_checks.memory(needed, 5_000_000_000).ok is False
    assert plan_checks.memory(needed, None).ok is None


@pytest.mark.gguf
def test_a_real_model_is_read_as_it_decodes(smollm2: Path, smollm2_q4_0: Path) -> None:
    """SmolLM2 Q4_1 with its Q4_0 draft, one short answer: the walk against the real passes, near ties allowed for."""
    choice = PairChoice(verifier=str(smollm2), draft=str(smollm2_q4_0), N=3)
    settings = AnswerSettings(GREEDY, max_tokens=24)
    with Runtime.open(choice, EngineSettings(ctx_size=256, threads=1), Silent()) as runtime:
        prompt = runtime.vocab.tokenize("The three primary colours are", add_special=False, parse_special=False)
        (text,) = plan_texts.plain_texts(runtime, [prompt], settings, Silent())
        asked = plan_texts.read_by_model(runtime, [text], settings, {}, Silent())
        walk = arithmetic.chain(asked.traces[0], FLAT, 3)
        runtime.forget()
        stream = runtime.answer(prompt, settings)
        for _ in stream:
            pass
    stats = stream.answer.stats
    assert 0.5 < walk.accepted / walk.tested <= 1.0
    assert walk.passes == pytest.approx(stats.verifier_passes, abs=3)
    assert np.isfinite(asked.traces[0].claims[0]).all()
