"""A long chat with random hands: `python -m bench.soak --minutes 30`. Memory, file handles and speed must stay flat.

Prompts of all lengths, edits, retries, interrupts, saved and loaded conversations, system messages and other drafters
in random order on SmolLM2-135M; every few seconds one plain greedy answer of fixed length from an empty cache, which is
what speeds are compared by. Linux only: it reads /proc. The exit code says whether the bars were kept.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from bench import weights
from localspec.core.sampling import Sampling
from localspec.errors import ContextFullError, UsageError
from localspec.services import prompts
from localspec.services.chat.chat import Conversation, Reply
from localspec.services.chat.template import choose
from localspec.services.report import Silent
from localspec.services.runtime import Runtime
from localspec.services.settings import AnswerSettings, EngineSettings, PairChoice

SETTLED_MIN = 5.0
"""What is allocated before is no growth: caches of rows and pieces, llama.cpp's buffers, the longest texts."""
MOST_GROWTH_MB = 20.0
LEAST_SPEED = 0.95
"""Of the probes of the last fifth of the time, against those of the first fifth behind the first minute."""
PROBE_EVERY_S = 10.0
PROBE = AnswerSettings(sampling=Sampling(temperature=0.0), max_tokens=32)
DRAFTERS: list[tuple[str, int | Literal["auto"], str]] = [
    ("ngram", "auto", "none"), ("ngram", 4, "none"), ("ngram", 4, "auto"), ("lookahead", "auto", "none"),
    ("none", 0, "none"), ("cascade", "auto", "none"),
]  # fmt: skip


@dataclass(frozen=True)
class Look:
    """The process at one moment; times in minutes since the start, sizes in MB (10^6 bytes)."""

    minutes: float
    rss_mb: float
    handles: int
    tokens_per_s: float
    turns: int
    tokens: int


class Soak:
    """One chat and the one who keeps it busy."""

    def __init__(self, runtime: Runtime, folder: Path, seed: int) -> None:
        self.runtime = runtime
        self.rng = random.Random(seed)
        self.folder = folder
        self.template = choose(None, runtime.template, bos=runtime.bos, eos=runtime.eos)
        self.conversation = Conversation(runtime, self.template)
        self.texts = [prompt.text for prompt in prompts.built_in()]
        self.turns = self.tokens = 0
        self.done: dict[str, int] = {}

    def step(self) -> None:
        """One thing a user might do."""
        kinds = {"ask": 12, "edit": 3, "retry": 3, "stop": 4, "draft": 2, "file": 1, "system": 1, "reset": 1}
        kind = self.rng.choices([*kinds], [*kinds.values()])[0]
        self.done[kind] = self.done.get(kind, 0) + 1
        try:
            getattr(self, f"_{kind}")()
        except (ContextFullError, UsageError):
            self.conversation.reset()

    def _ask(self) -> None:
        self._read(self.conversation.ask(self._text(), self._settings()))

    def _edit(self) -> None:
        self.conversation.undo()
        self._ask()

    def _retry(self) -> None:
        self._read(self.conversation.retry(self._settings()))

    def _stop(self) -> None:
        """Ctrl-C: while the prompt is read, or after some pieces."""
        left = self.rng.randrange(0, 40)

        def cancelled() -> bool:
            nonlocal left
            left -= 1
            return left < 0

        self._read(self.conversation.ask(self._text(), self._settings(), cancelled=cancelled))

    def _draft(self) -> None:
        drafter, N, tree = self.rng.choice(DRAFTERS)
        self.runtime.respeculate(drafter, N, tree=tree, resume=self.rng.random() < 0.5)

    def _file(self) -> None:
        path = self.folder / "talk.json"
        self.conversation.save(path)
        self.conversation = Conversation(self.runtime, self.template)
        self.conversation.load(path)

    def _system(self) -> None:
        self.conversation.instruct(self.rng.choice([None, "Be brief.", "Answer like a pirate."]))

    def _reset(self) -> None:
        self.conversation.reset()

    def _text(self) -> str:
        return " ".join(self.rng.choices(self.texts, k=self.rng.choice((1, 1, 1, 2, 4))))[: self.rng.randrange(5, 3000)]

    def _settings(self) -> AnswerSettings:
        sampling = self.rng.choice([Sampling(), Sampling(temperature=0.0), Sampling(repeat_penalty=1.2)])
        return AnswerSettings(sampling, max_tokens=self.rng.choice((8, 40, 120)), stop=self.rng.choice(((), ("\n\n",))))

    def _read(self, reply: Reply) -> None:
        for _ in reply:
            pass
        assert reply.answer is not None
        self.turns += 1
        self.tokens += len(reply.answer.tokens)

    def probe(self, started: float) -> Look:
        """Plain greedy speed from an empty cache, and what the process holds."""
        self.runtime.forget()
        prompt = self.runtime.vocab.tokenize("The quick brown fox", add_special=False, parse_special=False)
        stream = self.runtime.answer(prompt, PROBE, speculate=False, ignore_end=True)
        for _ in stream:
            pass
        speed = stream.answer.stats.tokens_per_s or 0.0
        minutes = (time.monotonic() - started) / 60
        return Look(round(minutes, 2), rss_mb(), handles(), round(speed, 1), self.turns, self.tokens)


def rss_mb() -> float:
    """Resident memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * 4096 / 1e6, 1)


def handles() -> int:
    """Open file descriptors."""
    return len(list(Path("/proc/self/fd").iterdir()))


def verdict(looks: list[Look]) -> dict[str, Any]:
    """What became of the bars; None where the run was too short to say."""
    end = looks[-1].minutes
    settled = [look for look in looks if look.minutes >= min(SETTLED_MIN, end / 2)]
    warm = [look for look in looks if look.minutes >= min(1.0, end / 10)]
    fifth = max(1, len(warm) // 5)
    first, last = (statistics.median(look.tokens_per_s for look in part) for part in (warm[:fifth], warm[-fifth:]))
    growth = max(look.rss_mb for look in settled) - settled[0].rss_mb
    return {
        "rss_growth_mb": round(growth, 1),
        "rss_flat": growth < MOST_GROWTH_MB,
        "more_handles": settled[-1].handles - settled[0].handles,
        "handles_flat": settled[-1].handles <= settled[0].handles,
        "speed_last_over_first": round(last / first, 3),
        "speed_kept": last / first >= LEAST_SPEED,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=None, help="write all looks as JSON")
    asked = parser.parse_args()
    pair = PairChoice(verifier=str(weights.smollm2()), drafter="ngram")
    with (
        tempfile.TemporaryDirectory() as folder,
        Runtime.open(pair, EngineSettings(ctx_size=2048), Silent()) as runtime,
    ):
        soak, looks, started = Soak(runtime, Path(folder), asked.seed), list[Look](), time.monotonic()
        while not looks or looks[-1].minutes < asked.minutes:
            looks.append(soak.probe(started))
            sys.stdout.write(f"{json.dumps(asdict(looks[-1]))}\n")
            sys.stdout.flush()
            until = time.monotonic() + PROBE_EVERY_S
            while time.monotonic() < until:
                soak.step()
    found = verdict(looks) | {"minutes": looks[-1].minutes, "turns": soak.turns, "done": soak.done}
    sys.stdout.write(json.dumps(found) + "\n")
    if asked.out:
        asked.out.write_text(json.dumps({"looks": [asdict(look) for look in looks], **found}, indent=1) + "\n")
    return 0 if found["rss_flat"] and found["handles_flat"] and found["speed_kept"] else 1


if __name__ == "__main__":
    sys.exit(main())
