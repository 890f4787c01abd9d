"""A small fuzzer: changes sound inputs a little, keeps those that led to something new, and minds clock and memory.

By mutation, without instruments in the code: what an input led to (its error without the figures) says whether it was
new. Everything follows from the seed. Knows nothing about what is fed.
"""

from __future__ import annotations

import random
import re
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from localspec.errors import LocalspecError
from tests.fuzz.targets import Target

LIMIT_S = 5.0
"""For one input; longer is a hang."""
MOST_BYTES = 200_000
"""Inputs do not grow beyond."""
LARGEST_CORPUS = 1000
GROWTH = 512 * 2**20
"""Memory that a whole run may take beyond what it began with."""


class Hang(BaseException):
    """One input took too long. No `Exception`: nobody may catch it on the way."""


@dataclass
class Findings:
    """inputs: how many were fed; outcomes: what they led to; slowest in seconds; failures: (input, what it raised)."""

    inputs: int = 0
    slowest: float = 0.0
    growth: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    failures: list[tuple[bytes, BaseException]] = field(default_factory=list)

    def summary(self) -> str:
        return (
            f"{self.inputs:,} inputs, {len(self.outcomes)} outcomes, slowest {self.slowest:.2f} s, "
            f"{self.growth / 2**20:.0f} MiB more memory, {len(self.failures)} failures"
        )


def fuzz(target: Target, *, seed: int, count: int | None = None, seconds: float | None = None) -> Findings:
    """Feed until `count` inputs or `seconds` are over, or three have failed."""
    rng, corpus, findings = random.Random(seed), list(target.seeds), Findings()
    until = None if seconds is None else time.monotonic() + seconds
    before = peak_memory()
    with tempfile.TemporaryDirectory() as folder:
        while (count is None or findings.inputs < count) and (until is None or time.monotonic() < until):
            first = findings.inputs < len(target.seeds)
            data = corpus[findings.inputs] if first else mutated(rng, corpus, target.words)
            outcome = feed(target, data, Path(folder), findings)
            findings.inputs += 1
            if outcome not in findings.outcomes and not first and len(corpus) < LARGEST_CORPUS:
                corpus.append(data)
            findings.outcomes[outcome] = findings.outcomes.get(outcome, 0) + 1
            if len(findings.failures) >= 3:
                break
    findings.growth = peak_memory() - before
    return findings


def feed(target: Target, data: bytes, folder: Path, findings: Findings) -> str:
    """Feed one input; returns what came of it, in words without figures."""
    started = time.monotonic()
    try:
        with watchdog():
            outcome = target.feed(data, folder) or "fine"
    except LocalspecError as error:
        outcome = str(error)
    except (Exception, Hang) as error:  # noqa: BLE001  that is what is looked for
        findings.failures.append((data, error))
        outcome = repr(error)
    findings.slowest = max(findings.slowest, time.monotonic() - started)
    return re.sub(r"[\d,]+|'.*?'|/\S+", "", outcome)[:200]


@contextmanager
def watchdog() -> Iterator[None]:
    """Raises `Hang` after `LIMIT_S`. A hang inside C code ends with the process instead, in the second alarm.

    A process that hardly ran meanwhile was stopped or starved by others: it gets more time, a minute in all.
    """
    worked, patience = time.process_time(), 12

    def bark(number: int, frame: FrameType | None) -> None:
        nonlocal patience
        patience -= 1
        if patience and time.process_time() - worked < LIMIT_S / 2:
            signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
            return
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # who does not hear this one is killed by the next
        signal.setitimer(signal.ITIMER_REAL, 4 * LIMIT_S)
        raise Hang(f"still running after {LIMIT_S:g} s")

    before = signal.signal(signal.SIGALRM, bark)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def bound_memory() -> None:
    """From here on more than `GROWTH` is a `MemoryError`; for a process of one's own."""
    limit = mapped_memory() + 2 * GROWTH
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def mapped_memory() -> int:
    """Bytes of address space in use, as Linux counts them."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def peak_memory() -> int:
    """Most bytes that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


# -- changes ----------------------------------------------------------------------------------------------------------


def mutated(rng: random.Random, corpus: list[bytes], words: tuple[bytes, ...]) -> bytes:
    """One of the corpus, changed in a few ways."""
    data = bytearray(rng.choice(corpus))
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        change(rng, data, corpus, words)
    return bytes(data[:MOST_BYTES])


def change(rng: random.Random, data: bytearray, corpus: list[bytes], words: tuple[bytes, ...]) -> None:
    """One change in place."""
    at = rng.randint(0, len(data))
    end = min(len(data), at + rng.choice((1, 1, 4, 8, 40, 300)))
    kind = rng.randrange(10)
    if kind == 0 and at < len(data):
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 1 and at < len(data):
        data[at] = rng.randrange(256)
    elif kind == 2:
        del data[at:end]
    elif kind == 3:
        data[at:at] = data[at:end] * rng.choice((1, 2, 50))
    elif kind == 4:
        del data[at:]
    elif kind == 5:
        other = rng.choice(corpus)
        data[at:] = other[rng.randint(0, len(other)) :]
    elif kind == 6:
        data[at:end] = rng.randbytes(end - at)
    elif kind == 7:
        number = rng.choice((0, 1, -1, 255, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63), 10**6))
        size = rng.choice((1, 2, 4, 8))
        data[at : at + size] = (number % (1 << 8 * size)).to_bytes(size, "little")
    elif words:
        word = rng.choice(words)
        data[at : at if kind == 8 else end] = word
