"""Profiles on the disk: whole or not at all, for one pair and its settings only, and nothing depends on them."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.planner.controller import AutoLength
from localspec.planner.profile import Attempt, Claim, Profile
from localspec.planner.treecontrol import AutoTree
from localspec.services.profiles import Circumstances, Profiles
from localspec.services.runtime import Runtime
from tests.services import tiny
from tests.services.tiny import FREE
from tests.services.toy_pair import Collected

PROFILE = Profile(
    ((1, 0.02), (4, 0.03)),
    0.004,
    (0.8, 0.7),
    Attempt(((1, 0.25), (4, 0.75)), steps=3.0, emitted=2.5, count=7.5),
    (Claim(0.0, 1.0, 9.5), Claim(0.9, 11.5, 12.0)),
    (Claim(0.45, 3.0, 2.5),),
    catch_up_s=0.001,
    purse=-0.5,
)
HERE = Circumstances(
    verifier="/models/big.gguf 123 456",
    draft="/models/small.gguf 12 45",
    drafter="model",
    tree="none",
    options={},
    machine="a chip, 2 cores",
    llama_cpp="1 (2)",
    threads=2,
    gpu_layers=0,
    draft_gpu_layers=0,
    kv_type="f16",
    draft_kv_type="f16",
    flash_attn="auto",
)


@pytest.fixture
def report() -> Collected:
    return Collected()


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: Collected) -> Profiles:
    monkeypatch.setenv("LOCALSPEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCALSPEC_PROFILES", "on")
    return Profiles(report)


def test_a_profile_comes_back_as_it_was(profiles: Profiles, report: Collected) -> None:
    assert profiles.read(HERE) is None
    path = profiles.write(HERE, PROFILE)
    assert path == profiles.path(HERE)
    assert profiles.read(HERE) == PROFILE
    assert report.notes == report.warnings == []


@pytest.mark.parametrize(
    "other",
    [
        {"verifier": "/models/big.gguf 123 457"},
        {"draft": None},
        {"drafter": "ngram"},
        {"tree": "auto"},
        {"options": {"temperature": "0.5"}},
        {"machine": "another chip, 2 cores"},
        {"llama_cpp": "2"},
        {"threads": 1},
        {"gpu_layers": 30},
        {"kv_type": "q8_0"},
        {"flash_attn": "off"},
    ],
)
def test_it_holds_for_nothing_else(profiles: Profiles, other: dict[str, object]) -> None:
    profiles.write(HERE, PROFILE)
    assert profiles.read(replace(HERE, **other)) is None  # type: ignore[arg-type]


def test_a_profile_of_before_is_read(profiles: Profiles, report: Collected) -> None:
    """What was not written down then is as it was without."""
    path = profiles.write(HERE, PROFILE)
    assert path
    document = json.loads(path.read_bytes())
    for name in ("claims", "promises", "catch_up_s", "purse"):
        del document["profile"][name]
    del document["profile"]["attempt"]["count"]
    path.write_text(json.dumps(document))
    known = profiles.read(HERE)
    once = Attempt(((1, 0.25), (4, 0.75)), steps=3.0, emitted=2.5)
    assert known == Profile(PROFILE.verify_s, PROFILE.draft_s, PROFILE.acceptance, once)
    assert not report.notes


DAMAGE: list[Callable[[bytes], bytes]] = [
    lambda data: b"",
    lambda data: data[: len(data) // 2],
    lambda data: b"<html>",
    lambda data: b"[1, 2]",
    lambda data: b"\xff\xfe\x00",
    lambda data: data.replace(b"localspec.profile/1", b"localspec.profile/9"),
    lambda data: data.replace(b'"threads": 2', b'"threads": 4'),
    lambda data: data.replace(b'"s": 0.02', b'"s": -0.02'),
    lambda data: data.replace(b'"s": 0.02', b'"s": NaN'),
    lambda data: data.replace(b'"s": 0.02', b'"s": 1e999'),
    lambda data: data.replace(b'"n": 1, "s"', b'"n": 2, "s"'),
    lambda data: data.replace(b'"acceptance": [0.8', b'"acceptance": [8'),
    lambda data: data.replace(b'"emitted": 2.5', b'"emitted": "many"'),
    lambda data: data.replace(b'"emitted": 2.5', b'"emitted": 0.5'),
    lambda data: data.replace(b'"rows": [', b'"rows": [7, '),
    lambda data: data.replace(b'"of": 9.5', b'"of": -9.5'),
    lambda data: data.replace(b'"accepted": 1.0', b'"accepted": 1e308'),
    lambda data: re.sub(rb'"attempt": {[^}]*}[^}]*}[^}]*}', b'"attempt": {}', data),
    lambda data: re.sub(rb'"attempt": {[^}]*}[^}]*}[^}]*}', b'"attempt": 0', data),
    lambda data: data.replace(b'"sure": 0.9', b'"sure": 9'),
    lambda data: data.replace(b'"claims": [', b'"claims": [[], '),
    lambda data: data.replace(b'"count": 7.5', b'"count": Infinity'),
    lambda data: data.replace(b'"catch_up_s": 0.001', b'"catch_up_s": -1'),
    lambda data: data.replace(b'"purse": -0.5', b'"purse": NaN'),
    lambda data: data.replace(b'"verify_s": [', b'"verify_s": 5, "x": ['),
    lambda data: data + b" " * 100_000,
    lambda data: b"[" * 60_000,
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_or_foreign_file_is_told_and_replaced(
    profiles: Profiles, report: Collected, damage: Callable[[bytes], bytes]
) -> None:
    profiles.write(HERE, PROFILE)
    path = profiles.path(HERE)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert path.read_bytes() != whole
    assert profiles.read(HERE) is None
    (note,) = report.notes
    assert str(path) in note
    profiles.write(HERE, PROFILE)
    assert profiles.read(HERE) == PROFILE


def test_only_the_user_may_read_it_and_nothing_is_left_behind(profiles: Profiles) -> None:
    for _ in range(2):
        profiles.write(HERE, PROFILE)
    path = profiles.path(HERE)
    assert [*path.parent.iterdir()] == [path]
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_cache_that_cannot_be_written_is_no_reason_to_stop(profiles: Profiles, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    profiles.keep(HERE, PROFILE)
    assert profiles.read(HERE) is None
    with pytest.raises(OSError):
        profiles.write(HERE, PROFILE)


def test_switched_off_nothing_is_read_or_written(profiles: Profiles, monkeypatch: pytest.MonkeyPatch) -> None:
    profiles.write(HERE, PROFILE)
    monkeypatch.setenv("LOCALSPEC_PROFILES", "off")
    assert profiles.read(HERE) is None
    profiles.path(HERE).unlink()
    assert profiles.write(HERE, PROFILE) is None
    assert not profiles.path(HERE).exists()


WRITER = """
import sys
from dataclasses import replace
from localspec.services.profiles import Profiles
from localspec.services.report import Silent
from tests.services.test_profiles import HERE, PROFILE

print("ready", flush=True)
number = 0
while True:
    number += 1
    Profiles(Silent()).write(HERE, replace(PROFILE, draft_s=float(number)))
"""


def test_writers_that_are_killed_leave_the_old_profile_or_the_new_one(profiles: Profiles, report: Collected) -> None:
    """Two processes write the same profile without a pause, a third reads, and both are killed with SIGKILL."""
    profiles.write(HERE, PROFILE)
    root = Path(__file__).parents[2]
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER], cwd=root, stdout=subprocess.PIPE, env={**os.environ})
        for _ in range(2)
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline().strip() == b"ready"
        seen: set[float | None] = set()
        until = time.monotonic() + 0.3
        while time.monotonic() < until or len(seen) < 3:
            found = profiles.read(HERE)
            assert found is not None, report.notes
            seen.add(found.draft_s)
    finally:
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
            assert writer.stdout is not None
            writer.stdout.close()
    assert profiles.read(HERE) is not None
    assert report.notes == []


# -- what a session learns --------------------------------------------------------------------------------------------


def opened(**choice: object) -> Runtime:
    return tiny.open_pair(**{"drafter": "model", "N": "auto"} | choice)  # type: ignore[arg-type]


def stored(profiles: Profiles) -> list[str]:
    folder = profiles.path(HERE).parent
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.mark.parametrize("drafter", ["model", "ngram", "lookahead"])
def test_a_second_session_starts_where_the_first_one_ended(profiles: Profiles, drafter: str) -> None:
    with opened(drafter=drafter) as runtime:
        assert runtime.control[1].explain() == "N=auto, nothing measured yet"
        tiny.answer(runtime, max_tokens=100)
        here = runtime.circumstances(drafter)
    learned = profiles.read(here)
    assert learned is not None
    assert dict(learned.verify_s)[1] > 0.0
    with opened(drafter=drafter) as runtime:
        controller = runtime.control[1]
        assert isinstance(controller, AutoLength)
        times = dict(learned.verify_s)
        assert controller.price(2) == pytest.approx(times.get(2, 1.6 * times[1]) / times[1])
        tiny.answer(runtime, max_tokens=2)
    assert profiles.read(here) == learned, "two tokens teach nothing"


def test_what_was_learned_before_another_drafter_is_chosen_is_kept(profiles: Profiles) -> None:
    with opened() as runtime:
        tiny.answer(runtime, max_tokens=100)
        runtime.respeculate("ngram", "auto")
        assert len(stored(profiles)) == 1
        tiny.answer(runtime, max_tokens=100)
        runtime.respeculate("model", "auto", tree="auto")
        assert isinstance(runtime.control[1], AutoTree)
        tiny.answer(runtime, max_tokens=100)
    assert len(stored(profiles)) == 3


def test_ways_that_are_resumed_are_kept_at_the_end(profiles: Profiles) -> None:
    with opened() as runtime:
        for drafter in ("model", "ngram"):
            runtime.respeculate(drafter, "auto", resume=True)
            tiny.answer(runtime, max_tokens=100)
    assert len(stored(profiles)) == 2


def test_fixed_lengths_and_short_sessions_leave_nothing(profiles: Profiles) -> None:
    with opened(N=3) as runtime:
        tiny.answer(runtime, max_tokens=60)
    with opened() as runtime:
        tiny.answer(runtime, max_tokens=3)
    assert stored(profiles) == []


def test_a_cache_that_is_no_folder_is_told_in_words(
    profiles: Profiles, report: Collected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_CACHE", os.devnull)
    assert profiles.read(HERE) is None
    assert len(report.notes) == 1
    assert "cannot be read: Not a directory." in report.notes[0]
    assert "LOCALSPEC_CACHE names another folder" in report.notes[0]


def test_a_session_in_a_read_only_cache_works(profiles: Profiles, report: Collected, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with opened(report=report) as runtime:
        tiny.answer(runtime, max_tokens=100)
    assert [line for line in report.warnings if "rofile" in line] == []


def test_the_text_of_a_seed_is_the_same_with_any_profile(profiles: Profiles) -> None:
    """With no profile, with one that drafts everything and one that drafts nothing: coupled acceptance, one text."""
    texts, drafted = set(), []
    eager = Profile(((1, 1.0), (16, 1.01)), 0.0, (1.0,) * 15, Attempt(((16, 1.0),), 15.0, 15.0))
    never = Profile(((1, 1.0), (2, 3.0), (16, 48.0)), 2.0, (0.0,) * 15, Attempt(((2, 1.0),), 1.0, 1.0))
    for profile in (None, eager, never):
        with opened(N=3) as runtime:
            here = runtime.circumstances("model")
            profiles.path(here).unlink(missing_ok=True)
            if profile:
                profiles.write(here, profile)
            runtime.respeculate("model", "auto")
            answer = tiny.answer(runtime, sampling=FREE, seed=5, acceptance="coupled", max_tokens=60)
            texts.add(answer.tokens)
            drafted.append(answer.stats.drafted)
    assert len(texts) == 1
    assert drafted[1] > drafted[2], "the profiles did make a difference"
