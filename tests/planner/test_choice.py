"""Which of several drafters is asked: against oracles that know the text, on simulated clocks with fixed seeds."""

from __future__ import annotations

import numpy as np
import pytest

from localspec.core.draft import Draft
from localspec.core.law import Law
from localspec.core.rejection import Rejection
from localspec.loop.control import Chooser, Controller, RoundReport
from localspec.planner.books import Books
from localspec.planner.choice import Choice
from localspec.planner.controller import AutoLength
from localspec.planner.profile import Profile
from tests.planner.choicesimulation import Arm, choice, oracle, play
from tests.planner.simulation import SHAPES, Text, text
from tests.planner.test_exactness import CRITICAL, DRAFT, VERIFIER, V, chi_square

PART = 250
PARTS = [PART] * 4
TOKENS = sum(PARTS)
STRONG, WEAK = 0.85, 0.1


def in_turns(first: float, second: float, *, seed: int) -> Text:
    """One rate in the first and third part, another in the second and fourth."""
    return text([*[first] * PART, *[second] * PART] * 2 + [first] * 20, spread=2.0, seed=seed)


def pair(*, draft: float = 0.05, seed: int = 3) -> dict[str, Arm]:
    """A model that is good at prose and a lookup that is good at code, on a text of both."""
    return {
        "model": Arm(in_turns(STRONG, WEAK, seed=seed), draft),
        "ngram": Arm(in_turns(WEAK, STRONG, seed=seed + 100), 0.002, lookup=True),
    }


def steady(model: float, lookup: float, *, draft: float = 0.05) -> dict[str, Arm]:
    return {
        "model": Arm(text([model] * (TOKENS + 20), spread=2.0, seed=7), draft),
        "ngram": Arm(text([lookup] * (TOKENS + 20), spread=2.0, seed=8), 0.002, lookup=True),
    }


def test_it_is_a_controller_that_chooses() -> None:
    made: Controller = choice(pair())
    assert isinstance(made, Chooser)
    assert not isinstance(AutoLength(), Chooser)


def test_those_whose_drafts_could_not_pay_need_not_read_the_prompt() -> None:
    times = ((1, 0.006), (2, 0.012), (4, 0.018), (8, 0.027), (16, 0.05))
    books = Books(15, Profile(times, None, ()))
    arms = {name: AutoLength(Profile(times, cost, (0.8,)), books=books) for name, cost in (("a", 0.006), ("b", 6e-4))}
    made = Choice({"lookup": AutoLength(lookup=True, books=books)} | arms, books)
    assert made.begin(100)
    assert list(made.later) == ["a"]


@pytest.mark.parametrize(("draft", "bar"), [(0.02, 0.95), (0.1, 0.95), (0.3, 0.92)])
def test_a_text_that_changes_hands_against_an_oracle(draft: float, bar: float) -> None:
    """The oracle knows who is best in each part, and how far; it never has to catch up, nor to find out."""
    ratios = {}
    for shape in ("flat", "gentle", "stepped", "F32"):
        for seed in range(2):
            arms = pair(draft=draft, seed=seed)
            run = play(choice(arms), SHAPES[shape], arms, tokens=TOKENS)
            ratios[shape, seed] = run.speed / oracle(SHAPES[shape], arms, PARTS)
    assert np.mean(list(ratios.values())) >= bar, ratios
    assert min(ratios.values()) >= 0.9, ratios


def test_two_that_cost_time_change_hands() -> None:
    """Nobody says for nothing that the other would be better now: it has to be tried."""
    ratios = []
    for shape in ("flat", "stepped", "F32"):
        arms = pair(draft=0.05)
        arms["other"] = Arm(arms.pop("ngram").text, 0.05)
        run = play(choice(arms), SHAPES[shape], arms, tokens=TOKENS)
        ratios.append(run.speed / oracle(SHAPES[shape], arms, PARTS))
    assert np.mean(ratios) >= 0.86, ratios


@pytest.mark.parametrize("draft", [0.0, 0.05, 0.3, 1.0])
@pytest.mark.parametrize("shape", ["flat", "linear", "stepped", "Q4_1", "F32"])
def test_never_slower_than_plain(shape: str, draft: float) -> None:
    speeds = {}
    for model in (0.0, 0.5, 0.9):
        for lookup in (0.0, 0.3):
            arms = steady(model, lookup, draft=draft)
            speeds[model, lookup] = play(choice(arms), SHAPES[shape], arms, tokens=TOKENS).speed * SHAPES[shape](1)
    assert min(speeds.values()) >= 0.98, speeds


def test_a_change_is_noticed_within_tens_of_tokens() -> None:
    arms = pair(draft=0.05)
    run = play(choice(arms), SHAPES["F32"], arms, tokens=TOKENS)
    for start, strong in ((0, "model"), (PART, "ngram"), (2 * PART, "model"), (3 * PART, "ngram")):
        assert run.share(strong, start + 60, start + PART) > 0.7, (start, strong)


@pytest.mark.parametrize("names", [("model", "other"), ("other", "model"), ("ngram", "model"), ("model", "ngram")])
def test_without_a_measurement_it_starts_with_the_pairs_own(names: tuple[str, str]) -> None:
    known = {**steady(0.8, 0.8), "other": Arm(text([0.8] * (TOKENS + 20), spread=2.0, seed=9), 0.05)}
    arms = {name: known[name] for name in names}
    run = play(choice(arms), SHAPES["F32"], arms, tokens=100)
    assert next(who for who in run.heard if who != "none") == names[0]


def test_a_lookup_that_knows_is_heard_and_the_model_left_alone() -> None:
    arms = steady(0.6, 0.95, draft=0.1)
    run = play(choice(arms), SHAPES["F32"], arms, tokens=TOKENS)
    assert run.share("ngram", 100, TOKENS) > 0.8
    assert run.share("model", 100, TOKENS) < 0.03


def test_no_draft_is_longer_than_the_number_that_was_asked_for() -> None:
    arms = pair()
    run = play(choice(arms, longest=3), SHAPES["flat"], arms, tokens=TOKENS)
    assert max(run.lengths) == 3
    assert run.lengths.count(0) < len(run.lengths) / 5


def test_a_drafter_that_is_never_heard_of_again_costs_little() -> None:
    """One that failed answers nothing whenever it is asked."""
    arms = steady(0.6, 0.0, draft=0.05)
    chooser, plain = choice(arms), 0
    for _ in range(400):
        limit = chooser.limit(100)
        asked = list(chooser.turns()) if limit else []
        plain += not asked
        chooser.observe(RoundReport(0, 0, 0, False, draft_s=1e-6, verify_s=0.02, drafter="none" if asked else ""))
    assert plain > 0
    assert chooser.explain().startswith("drafted by none in 100% of 400 rounds")


def test_what_is_chosen_is_explained() -> None:
    arms = pair()
    chooser = choice(arms)
    assert "nothing measured yet" in chooser.explain()
    play(chooser, SHAPES["F32"], arms, tokens=TOKENS)
    line = chooser.explain()
    assert "\n" not in line
    assert "model in " in line
    assert "ngram in " in line


def transitions(tokens: int, *, peeks: bool, seed: int) -> np.ndarray:
    """Counts of (token, next) in a text of two drafters: one draws, one is a lookup that guesses by the last token.

    Times depend on the tokens that come out, so choices and text are strongly correlated. `peeks`: a draft that was
    drawn gives way to the lookup's when its first token is not the likeliest one.
    """
    rng = np.random.default_rng(seed)
    arms = {"model": Arm(Text(np.zeros(0, bool), None), 0.1), "ngram": Arm(Text(np.zeros(0, bool), None), 0.0, True)}
    rule, chooser, counts = Rejection(rng), choice(arms), np.zeros((V, V))
    last, done = 0, 0
    while done < tokens:
        drafted, laws, said, heard = list[int](), list[Law | None](), list[float](), "none"
        limit = chooser.limit(20)
        for name, most, _ in chooser.turns() if limit else ():
            own, own_laws, claims, before = list[int](), list[Law | None](), list[float](), last
            for depth in range(1, min(most, limit) + 1):
                law = Law.of(DRAFT[before]) if name == "model" else None
                confidence = law.top if law else float(VERIFIER[before].max())
                if not chooser.pays(depth, confidence):
                    break
                before, reported = rule.guess(law, done + depth) if law else (int(VERIFIER[before].argmax()), None)
                own.append(before)
                own_laws.append(reported)
                claims.append(confidence)
            if own and not (peeks and name == "model" and drafted and own[0] != DRAFT[last].argmax()):
                drafted, laws, said, heard = own, own_laws, claims, name
        path = [last, *drafted]
        verdict = rule.accept(Draft.chain(drafted, laws), lambda row, path=path: Law.of(VERIFIER[path[row]]), done)  # type: ignore[misc]
        block = [*drafted[: len(verdict.path)], verdict.next_token]
        chooser.observe(
            RoundReport(
                drafted=len(drafted),
                tested=verdict.tested,
                accepted=len(verdict.path),
                refused=verdict.source == "residual",
                draft_s=0.004 * len(drafted) * (heard == "model"),
                verify_s=0.02 * (1 + 0.1 * len(drafted)) * (1 + 0.1 * block[0]),
                confidences=tuple(said),
                drafter=heard,
            )
        )
        for token in block:
            counts[last, token] += 1
            last = token
        done += len(block)
    shares = [chooser._heard[name] / sum(chooser._heard.values()) for name in arms]
    assert min(shares) > 0.1, "both have to be in use"
    return counts


def test_the_law_of_the_text_is_the_verifiers_whoever_drafts() -> None:
    assert chi_square(transitions(40_000, peeks=False, seed=1)) < CRITICAL[V * (V - 1)]


def test_the_test_notices_a_choice_by_what_was_drawn() -> None:
    assert chi_square(transitions(40_000, peeks=True, seed=1)) > 2 * CRITICAL[V * (V - 1)]
