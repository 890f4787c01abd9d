"""A vocabulary and a runtime whose answers are written down by the test; they count what would be evaluated.

The vocabulary encodes by the longest known word, bytes otherwise, and cuts its text at control tokens first, as real
tokenizers do.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from localspec.engine.base import Cancelled
from localspec.errors import ContextFullError
from localspec.loop.answer import Answer, FinishReason, Piece
from localspec.loop.counters import Counters
from localspec.services.report import Report
from localspec.services.settings import AnswerSettings

CONTROL = ("<s>", "<|im_start|>", "<|im_end|>")
BOS, START, END = range(3)
BYTES = len(CONTROL)
WORDS = (
    "user",
    "assistant",
    "system",
    "hello",
    " hello",
    " world",
    "  ",
    " the",
    " cat",
    "\n\n",
    "one",
    "two",
    "three",
)


class FakeVocab:
    """`engine.base.Vocab` with 3 control tokens, 256 bytes and some words.

    adds_bos: the tokenizer writes <s> itself; space_prefix: it puts a blank before text, as SentencePiece does.
    """

    def __init__(self, *, adds_bos: bool = False, space_prefix: bool = False) -> None:
        self.adds_bos = adds_bos
        self.space_prefix = space_prefix
        self.size = BYTES + 256 + len(WORDS)

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        ids = [BOS] if add_special and self.adds_bos else []
        pattern = "|".join(map(re.escape, CONTROL))
        parts = re.split(f"({pattern})", text) if parse_special else [text]
        for part in parts:
            if parse_special and part in CONTROL:
                ids.append(CONTROL.index(part))
            elif part:
                ids += self.encode(" " + part if self.space_prefix else part)
        return ids

    def encode(self, text: str) -> list[int]:
        """Ids of text without control tokens: the longest word each time."""
        ids: list[int] = []
        data = text.encode("utf-8", "surrogatepass")
        while data:
            word = max((word for word in WORDS if data.startswith(word.encode())), key=len, default=None)
            ids.append(BYTES + data[0] if word is None else BYTES + 256 + WORDS.index(word))
            data = data[1 if word is None else len(word) :]
        return ids

    def spell(self, text: str) -> list[int]:
        """Ids of text, byte by byte: what a model may sample although no tokenizer would."""
        return [BYTES + byte for byte in text.encode()]

    def piece(self, token: int, *, special: bool = False) -> bytes:
        if token < BYTES:
            return CONTROL[token].encode() if special else b""
        if token < BYTES + 256:
            return bytes([token - BYTES])
        return WORDS[token - BYTES - 256].encode()

    def is_end(self, token: int) -> bool:
        return token == END


@dataclass(frozen=True)
class Script:
    """One answer. tokens: its ids, None: the canonical ones; pause_s: before each word; reading_s: before the first."""

    text: str
    tokens: tuple[int, ...] | None = None
    finish: FinishReason = "stop"
    pause_s: float = 0.0
    error: Exception | None = None
    reading_s: float = 0.0


@dataclass
class FakeStream:
    """Writes a script, a word at a time, until it is cancelled or closed."""

    runtime: FakeRuntime
    prompt: list[int]
    script: Script
    settings: AnswerSettings
    cancelled: Cancelled
    shown: list[str] = field(default_factory=list)
    reason: FinishReason = "interrupted"

    def __iter__(self) -> Iterator[Piece]:
        if not self._read():
            return
        for number, text in enumerate(re.findall(r"\s*\S+|\s+$", self.script.text)):
            time.sleep(self.script.pause_s)
            if self.cancelled():
                return
            if self.settings.max_tokens is not None and number >= self.settings.max_tokens:
                self.reason = "length"
                return
            self.shown.append(text)
            yield Piece(text, drafted=number % 2 == 1)
        if self.script.error is not None:
            raise self.script.error
        self.reason = self.script.finish

    def _read(self) -> bool:
        until = time.monotonic() + self.script.reading_s
        while time.monotonic() < until:
            if self.cancelled():
                return False
            time.sleep(0.01)
        return True

    def close(self) -> None:
        held = self.prompt + list(self.tokens)
        self.runtime.cache = held[:-1] if self.tokens else held

    @property
    def tokens(self) -> tuple[int, ...]:
        vocab = self.runtime.vocab
        if self.script.tokens is not None and self.reason != "interrupted":
            return self.script.tokens
        return (*vocab.encode("".join(self.shown)), *([END] if self.reason == "stop" else []))

    @property
    def answer(self) -> Answer:
        count = len(self.tokens)
        stats = Counters(
            drafter=self.runtime.drafter,
            N=self.runtime.length,
            completion_tokens=count,
            verifier_passes=max(1, count // 2),
            drafted=count,
            tested=count // 2,
            accepted=count // 2,
            bonus_tokens=max(1, count // 2),
            decode_s=count / 50,
            prefill_tokens=self.runtime.evaluated[-1],
            ttft_s=0.25,
        )
        return Answer("".join(self.shown), self.tokens, self.reason, len(self.prompt), stats)


class FakeRuntime:
    """Answers with one script after the other. `evaluated`: prompt tokens that were not in the cache, per answer."""

    def __init__(
        self,
        scripts: Sequence[Script] = (),
        *,
        vocab: FakeVocab | None = None,
        context_size: int = 4096,
        template: str | None = None,
        warnings: Sequence[str] = (),
    ) -> None:
        self.scripts = list(scripts)
        self.vocab = vocab or FakeVocab()
        self.context_size = context_size
        self.template = template
        self.warnings = warnings
        self.bos, self.eos = "<s>", "<|im_end|>"
        self.drafter = "ngram"
        self.length: int | str = "auto"
        self.placement = ["verifier: Fake Q4_1, 1 MiB, on CPU"]
        self.cache: list[int] = []
        self.prompts: list[list[int]] = []
        self.evaluated: list[int] = []
        self.asked: list[tuple[AnswerSettings, bool]] = []

    def answer(
        self,
        prompt: Sequence[int],
        settings: AnswerSettings,
        *,
        cancelled: Cancelled | None = None,
        report: Report | None = None,
        speculate: bool = True,
    ) -> FakeStream:
        if len(prompt) > self.context_size:
            raise ContextFullError(f"the prompt has {len(prompt)} tokens, the context holds {self.context_size}")
        if report is not None:
            for warning in self.warnings:
                report.warn(warning)
            if self.scripts[0].reading_s:
                report.note("reading the prompt")
        shared = 0
        for ours, held in zip(prompt, self.cache, strict=False):
            if ours != held:
                break
            shared += 1
        self.prompts.append(list(prompt))
        self.evaluated.append(len(prompt) - shared)
        self.asked.append((settings, speculate))
        return FakeStream(self, list(prompt), self.scripts.pop(0), settings, cancelled or (lambda: False))

    def respeculate(self, drafter: str, N: int | str) -> None:
        self.drafter, self.length = drafter, N

    def settings(self) -> dict[str, Any]:
        return {"pair": "fake", "drafter": self.drafter, "N": self.length}

    def close(self) -> None:
        return None

    def __enter__(self) -> FakeRuntime:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
