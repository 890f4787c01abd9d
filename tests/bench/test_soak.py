"""The soak: what is said of runs that are flat, grow, leak or slow down; and its random hands on a tiny model."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from bench.soak import Look, Soak, handles, rss_mb, verdict
from localspec.services.chat.formats import CHATML
from localspec.services.chat.template import Template
from tests.services import tiny

FLAT = [Look(minute / 6, 200.0, 9, 60.0, 10 * minute, 100 * minute) for minute in range(181)]


def bent(**changes: float) -> list[Look]:
    """A run whose figures are others in its last third."""
    return [replace(look, **changes) if look.minutes > 20 else look for look in FLAT]  # type: ignore[arg-type]


def test_a_flat_run_keeps_the_bars() -> None:
    found = verdict(FLAT)
    assert (found["rss_flat"], found["handles_flat"], found["speed_kept"]) == (True, True, True)
    assert (found["rss_growth_mb"], found["more_handles"], found["speed_last_over_first"]) == (0.0, 0, 1.0)


@pytest.mark.parametrize(
    ("changes", "bar"),
    [({"rss_mb": 221.0}, "rss_flat"), ({"handles": 10}, "handles_flat"), ({"tokens_per_s": 56.0}, "speed_kept")],
)
def test_what_grows_leaks_or_slows_down_breaks_its_bar(changes: dict[str, float], bar: str) -> None:
    found = verdict(bent(**changes))
    assert [name for name in ("rss_flat", "handles_flat", "speed_kept") if not found[name]] == [bar]


def test_the_first_minutes_are_no_growth() -> None:
    rising = [replace(look, rss_mb=100.0 + 20 * min(look.minutes, 5.0)) for look in FLAT]
    assert verdict(rising)["rss_flat"]


def test_the_process_is_measured() -> None:
    assert 10 < rss_mb() < 100_000
    before = handles()
    end = os.open(os.devnull, os.O_RDONLY)
    assert handles() == before + 1
    os.close(end)


def test_random_hands_do_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.soak.choose", lambda *_, **__: Template(CHATML))
    with tiny.open_pair(draft=None, drafter="ngram", ctx_size=None) as runtime:
        soak = Soak(runtime, tmp_path, seed=2)
        soak.texts = ["short", "a little longer"]
        for _ in range(60):
            soak.step()
        look = soak.probe(0.0)
    assert set(soak.done) == {"ask", "edit", "retry", "stop", "draft", "file", "system", "reset"}
    assert look.turns == soak.turns > 10
    assert look.tokens > 50
