"""A loaded pair for tests of the benchmark: a toy verifier, drafts by script, a clock by script.

It decodes greedily with a loop of its own, so that a mistake in it (`breaks_rollback`) is really in the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from localspec.core.draft import Draft
from localspec.engine.toy import ToyContext, ToyModel
from localspec.loop.answer import Answer, Piece
from localspec.loop.counters import Counters
from localspec.services.settings import AnswerSettings, Length

PASS_S = 0.010  # one verifier pass, whatever it holds


class ToyStream:
    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    def __iter__(self) -> Iterator[Piece]:
        yield Piece(self.answer.text)


@dataclass
class ToyPair:
    """Implements `services.bench.Measurable`.

    draft_cost_s     seconds per drafted token
    breaks_rollback  rejected tokens stay in the verifier's cache
    broken_drafters  names that do not work here
    interrupt_at     the answer in which Ctrl-C is pressed, counted from 0
    """

    model: ToyModel = field(default_factory=lambda: ToyModel(seed=3))
    draft_model: ToyModel | None = None
    draft_cost_s: float = 0.0
    breaks_rollback: bool = False
    broken_drafters: tuple[str, ...] = ()
    context_size: int = 512
    template: str | None = None
    bos: str = ""
    eos: str = ""
    drafter: str = "model"
    N: Length = 3
    own: str = "model"
    tree: str = "none"
    interrupt_at: int | None = None

    def __post_init__(self) -> None:
        self.vocab = self.model.vocab
        self.verifier = ToyContext(self.model, capacity=self.context_size)
        self.asked: list[tuple[tuple[int, ...], AnswerSettings, bool, str, Length]] = []
        self.held: list[int] = []
        self.options: list[tuple[str, dict[str, str]]] = []
        self.trees: list[tuple[str, bool]] = []

    def respeculate(
        self,
        drafter: str,
        N: Length,
        options: Mapping[str, str] | None = None,
        *,
        tree: str | None = None,
        resume: bool = False,
    ) -> None:
        self.drafter = "none" if drafter in self.broken_drafters else drafter
        self.N = N
        self.trees.append((tree or "none", resume))
        self.options.append((drafter, dict(options or {})))

    def forget(self) -> None:
        self.verifier.rewind(0)

    def time_pass(self, count: int, *, repeats: int) -> float:
        return 0.001 * count

    def settings(self) -> dict[str, Any]:
        return {
            "verifier": "/models/toy.gguf",
            "draft": None,
            "N": self.N,
            "tree": self.tree,
            "drafter_asked": self.own,
            "options": {"of": "the pair"},
        }

    def answer(self, prompt: Sequence[int], settings: AnswerSettings, *, speculate: bool = True) -> ToyStream:
        length = (4 if self.N == "auto" else self.N) if speculate and self.drafter != "none" else 0
        if len(self.asked) == self.interrupt_at:
            raise KeyboardInterrupt
        self.asked.append((tuple(prompt), settings, speculate, self.drafter, self.N))
        self.held.append(self.verifier.length)
        counters = Counters(drafter=self.drafter if speculate else "none", N=length)
        text = self.decode(list(prompt), settings.max_tokens or 16, length, counters)
        counters.completion_tokens = len(text)
        counters.engine_s = PASS_S * counters.verifier_passes
        counters.draft_s = self.draft_cost_s * counters.drafted
        counters.decode_s = counters.engine_s + counters.draft_s
        counters.ttft_s = 0.5
        return ToyStream(Answer("", tuple(text), "length", len(prompt), counters))

    def decode(self, tokens: list[int], wanted: int, length: int, counters: Counters) -> list[int]:
        start = len(tokens)
        end = start + wanted
        self.verifier.prefill(tokens[:-1], logits=False)
        while len(tokens) < end:
            room = min(length, end - len(tokens) - 1)
            draft = Draft.chain(self.guess(tokens, room))
            result = self.verifier.evaluate(tokens[-1], draft)
            picks = [int(result.logits(row).argmax()) for row in range(len(draft) + 1)]
            accepted = 0
            while accepted < len(draft) and picks[accepted] == draft.tokens[accepted]:
                accepted += 1
            self.verifier.commit(range(len(draft) if self.breaks_rollback else accepted))
            tokens += picks[: accepted + 1]
            counters.verifier_passes += 1
            counters.drafted += len(draft)
            counters.tested += min(accepted + 1, len(draft))
            counters.accepted += accepted
            counters.accepted_by_position = [
                before + (place < accepted)
                for place, before in enumerate(counters.accepted_by_position + [0] * length)
                if place < length
            ]
            counters.bonus_tokens += accepted == len(draft)
            counters.residual_tokens += accepted < len(draft)
        return tokens[start:]

    def guess(self, tokens: list[int], count: int) -> list[int]:
        model = self.draft_model or self.model
        text = list(tokens)
        for _ in range(count):
            text.append(int(model.row(text[-2] if len(text) > 1 else 0, text[-1]).argmax()))
        return text[len(tokens) :]


class Collected:
    """A report that keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self.steps: list[tuple[int, int | None]] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def progress(self, what: str, done: int, total: int | None, unit: str) -> None:
        self.steps.append((done, total))
