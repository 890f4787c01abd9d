"""What deciding costs: microseconds that a controller takes for one round, over a recorded simulation.

The rounds are those of `tests/planner`: a text with bursts, on a machine whose times jitter. The simulation is played
once to record what the controller was asked and told; then the record is replayed with nothing but the controller's own
work on the clock.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from bench import results
from bench.harness import Size
from localspec.planner.controller import AutoLength
from localspec.planner.treecontrol import AutoTree
from tests.planner import choicesimulation, replay_drafts, simulation, treesimulation

TOKENS = 2000
BAR = 20.0
"""Microseconds per round."""
Call = tuple[str, tuple[Any, ...]]


class Recorder:
    """Passes everything on and keeps it."""

    asks = True

    def __init__(self, controller: Any) -> None:
        self._controller = controller
        self.calls: list[Call] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._controller, name)

        def kept(*args: Any) -> Any:
            self.calls.append((name, args))
            return method(*args)

        return kept

    @property
    def rest(self) -> int:
        self.calls.append(("rest", ()))
        rest: int = self._controller.rest
        return rest

    @property
    def later(self) -> Any:
        """A choice's, not timed: it is read once per answer."""
        return self._controller.later

    def turns(self) -> Iterator[Any]:
        """Taken one by one, as they are asked for."""
        self.calls.append(("turns", ()))
        for turn in self._controller.turns():
            yield turn
            self.calls.append(("next", ()))


def chain(controller: Any) -> None:
    """One drafter that says how sure it is, and pays now and then."""
    moods = ([0.2] * 60 + [0.9] * 40) * (TOKENS // 100 + 1)
    words = simulation.text(moods, spread=2.0, seed=3)
    simulation.play(controller, simulation.Machine(simulation.SHAPES["F32"], 0.05), words, tokens=TOKENS)


def tree(controller: Any) -> None:
    """Picks of a draft whose passes cost a twentieth."""
    shape = treesimulation.SHAPES["F32"]
    machine = treesimulation.Machine(shape, treesimulation.flat_draft(0.05, shape))
    words = treesimulation.words([0.7] * (TOKENS + 80), seed=3)
    treesimulation.play(controller, machine, words, tokens=TOKENS, way="picks")


def arms() -> dict[str, choicesimulation.Arm]:
    first, second = ([0.85] * 250 + [0.1] * 250) * 5, ([0.1] * 250 + [0.85] * 250) * 5
    return {
        "model": choicesimulation.Arm(simulation.text(first, spread=2.0, seed=3), 0.05),
        "ngram": choicesimulation.Arm(simulation.text(second, spread=2.0, seed=4), 0.002, lookup=True),
    }


def choice(controller: Any) -> None:
    """Two drafters on a text that changes hands."""
    choicesimulation.play(controller, simulation.SHAPES["F32"], arms(), tokens=TOKENS)


def answers(way: str) -> Callable[[Any], None]:
    """Recorded answers of a real model with the drafts that were made for them."""

    def play(controller: Any) -> None:
        session = replay_drafts.Session("F32", way, seed=1, controller=controller)
        for temperature in ("T=0", "T=0.8", "T=1"):
            for recording in replay_drafts.recordings(way.rpartition(",")[2], temperature):
                session.play(recording)

    return play


SUBJECTS: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
    "AutoLength, model": (AutoLength, chain),
    "AutoLength, lookup": (lambda: AutoLength(lookup=True), chain),
    "AutoTree, model": (AutoTree, tree),
    "Choice, model and ngram": (lambda: choicesimulation.choice(arms()), choice),
    "AutoLength, model, real answers": (AutoLength, answers("model")),
    "Choice, ngram and model, real answers": (
        lambda: replay_drafts.controller_of("ngram,model"),
        answers("ngram,model"),
    ),
}


def controller(size: Size) -> tuple[dict[str, Any], str]:
    """Bar: at most 20 microseconds per round."""
    found, rows = {}, []
    for name, (make, play) in SUBJECTS.items():
        recorder = Recorder(make())
        play(recorder)
        rounds = sum(arguments[0].rounds for call, arguments in recorder.calls if call == "observe")
        per_round = [1e6 * replay(make(), recorder.calls) / rounds for _ in range(size.repeats)]
        asked = sum(call in ("pays", "choose", "widen") for call, _ in recorder.calls) / rounds
        found[name] = {"rounds": rounds, "questions_per_round": asked, "us_per_round": per_round}
        median = statistics.median(per_round)
        met = "yes" if median <= BAR else "no"
        rows.append([name, str(rounds), f"{asked:.1f}", f"{min(per_round):.1f}", f"{median:.1f}", met])
    header = ["controller", "rounds", "questions per round", "least µs per round", "median", f"<= {BAR:.0f} µs"]
    return {"controllers": found}, results.as_table(header, rows)


def replay(controller: Any, calls: list[Call]) -> float:
    """Seconds of processor time of all calls; walking through the record is in it."""
    turns: list[Iterator[Any]] = []

    def start() -> None:
        turns[:] = [controller.turns()]
        next(turns[0], None)

    own = {"turns": start, "next": lambda: next(turns[0], None), "rest": lambda: controller.rest}
    bound = [(own.get(name) or getattr(controller, name), args) for name, args in calls]
    started = time.thread_time()
    for method, args in bound:
        method(*args)
    return time.thread_time() - started
