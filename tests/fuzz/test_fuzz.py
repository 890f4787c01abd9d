"""A short round of fuzzing in every run, the same each time; and every input that ever failed, again."""

from __future__ import annotations

import contextlib
import json
import random
import time
from pathlib import Path

import pytest

from tests.fuzz.fuzzing import Findings, Hang, feed, fuzz, mutated, watchdog
from tests.fuzz.targets import TARGETS, Target, header

FOUND = {
    "prompts": [b"[" * 100_000, b'{"question_id": 1, "category": "a", "turns": ' + b"[" * 100_000],
    "conversation": [
        b"[" * 100_000,
        b'{"schema": "localspec.conversation/1", "messages": [{"role": "user", "content": "a"}, {"role": "assistant", '
        b'"content": "hello world", "tokens": [262, 263, 999999999999], "finish_reason": "stop"}]}',
        b'{"schema": "localspec.conversation/1", "messages": [{"role": "user", "content": "a"}, {"role": "assistant", '
        b'"content": "hello world", "tokens": [-1, 262, 263], "finish_reason": "stop"}]}',
    ],
    "tree": [b"[" * 100_000, b"[[Infinity]]", b"[[1e999]]", b"[[NaN]]"],
    "models": [b"a = " + b"[" * 100_000, b"default = " + b"9" * 5000, b'[models.m]\nsource = "~\\u0000.gguf"\n'],
    "words": [b"9" * 5000, b"1," * 5000 + b"1", b"~nobody-has-this-name/tree.json", b"~nobody/x.gguf", b"~\0/x.gguf"],
    "wheel-record": [b"\xff", b"a" * 140_000, b"package/model.gguf,sha256=a,1", b'"\0'],
    "verified": [b"[" * 100_000],
}
"""Inputs that once ended in a traceback; longer ones lie in tests/fuzz/found/TARGET."""


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_input_is_one_sentence(name: str) -> None:
    findings = fuzz(TARGETS[name], seed=20261130, count=150)
    assert findings.failures == []
    assert findings.inputs == 150
    assert len(findings.outcomes) > 1 or name in ("notebook", "verified"), "these say nothing of damage"


KEPT = Path(__file__).with_name("found")


@pytest.mark.parametrize("name", sorted({*FOUND, *(path.name for path in KEPT.glob("*"))}))
def test_what_was_found_stays_fixed(name: str, tmp_path: Path) -> None:
    for data in [*FOUND.get(name, []), *(path.read_bytes() for path in sorted((KEPT / name).glob("*")))]:
        findings = Findings()
        feed(TARGETS[name], data, tmp_path, findings)
        assert findings.failures == []


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_sound(name: str, tmp_path: Path) -> None:
    """Fuzzing from inputs that are refused at the first byte would find nothing."""
    outcomes = {feed(TARGETS[name], seed, tmp_path, Findings()) for seed in TARGETS[name].seeds}
    assert "fine" in outcomes


def test_the_small_model_file_is_whole(tmp_path: Path) -> None:
    from localspec.catalog.gguf import read_header

    (tmp_path / "a.gguf").write_bytes(header())
    read = read_header(tmp_path / "a.gguf", arrays=("tokenizer.ggml.tokens",))
    assert read.tensors == 2
    assert read.texts["tokenizer.ggml.tokens"] == [b"a", b"b", b"<s>", "é".encode()]


# -- the fuzzer itself ------------------------------------------------------------------------------------------------


def test_failures_are_found_and_kept() -> None:
    def picky(data: bytes, folder: Path) -> None:
        if b"x" in data:
            raise KeyError("x")

    findings = fuzz(Target(picky, (b"aaaa",), (b"x",)), seed=1, count=500)
    assert len(findings.failures) == 3
    assert all(b"x" in data for data, _ in findings.failures)


def test_inputs_that_lead_to_something_new_are_changed_further() -> None:
    """Four bytes in a row are out of reach of luck, one after the other they are not."""

    def maze(data: bytes, folder: Path) -> str:
        steps = 0
        while data[steps : steps + 1] == b"maze"[steps : steps + 1] != b"":
            steps += 1
        assert steps < 4
        return "abcd"[steps]

    findings = fuzz(Target(maze, (b"aaaaaa",), (b"m", b"a", b"z", b"e")), seed=3, count=20_000)
    assert findings.failures


def test_a_hang_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.fuzzing.LIMIT_S", 0.05)

    def stuck(data: bytes, folder: Path) -> None:
        while True:
            with contextlib.suppress(Exception):
                json.loads("[]")

    findings = fuzz(Target(stuck, (b"a",)), seed=1, count=1)
    assert isinstance(findings.failures[0][1], Hang)


def test_the_watchdog_leaves_no_alarm_behind() -> None:
    import signal

    before = signal.getsignal(signal.SIGALRM)
    with watchdog():
        pass
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_process_that_was_stopped_meanwhile_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asleep through several alarms, it has used no time of its own."""
    monkeypatch.setattr("tests.fuzz.fuzzing.LIMIT_S", 0.05)
    with watchdog():
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            time.sleep(0.01)
    with pytest.raises(Hang), watchdog():
        time.sleep(5)


def test_the_same_seed_changes_in_the_same_way() -> None:
    runs = [[mutated(random.Random(5), [b"some text", b"another"], (b"w",)) for _ in range(20)] for _ in range(2)]
    assert runs[0] == runs[1]
