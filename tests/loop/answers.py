"""Short ways to make an answer in a test, and the ten-line loop that says what greedy text must be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from localspec.core.rejection import Rejection
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.drafters.base import Drafter
from localspec.engine.base import Cancelled, Context, Vocab
from localspec.loop.answer import Answer, Piece
from localspec.loop.control import Controller, FixedLength
from localspec.loop.generation import Generation, Limits
from localspec.loop.proposer import Proposer

GREEDY = Sampling(temperature=0.0)
NEAR_TIE = 0.02
"""Gap of the two best logits below which the shape of a batch may decide between them."""


@dataclass
class Setting:
    """A verifier and its vocabulary; `start` builds a generation with the test's wishes."""

    verifier: Context
    vocab: Vocab
    warnings: list[str] = field(default_factory=list)

    def start(
        self,
        prompt: Sequence[int],
        *,
        drafter: Drafter | None = None,
        N: int = 4,
        sampling: Sampling = GREEDY,
        rule: Rule | None = None,
        limits: Limits | None = None,
        cancelled: Cancelled | None = None,
        controller: Controller | None = None,
    ) -> Generation:
        controller = controller or FixedLength(N)
        proposer = drafter and Proposer(drafter, controller, vocab=self.vocab, warn=self.warnings.append)
        return Generation(
            prompt,
            verifier=self.verifier,
            vocab=self.vocab,
            sampling=sampling,
            rule=rule or Rejection(np.random.default_rng(0)),
            limits=limits or Limits(max_tokens=40),
            proposer=proposer or None,
            controller=controller,
            cancelled=cancelled,
        )

    def answer(
        self,
        prompt: Sequence[int],
        *,
        drafter: Drafter | None = None,
        N: int = 4,
        sampling: Sampling = GREEDY,
        rule: Rule | None = None,
        limits: Limits | None = None,
    ) -> Answer:
        """The whole answer, with what every answer must fulfil checked."""
        generation = self.start(prompt, drafter=drafter, N=N, sampling=sampling, rule=rule, limits=limits)
        pieces = list(generation)
        return self.checked(generation, prompt, pieces)

    def checked(self, generation: Generation, prompt: Sequence[int], pieces: Sequence[Piece]) -> Answer:
        """The answer of a finished generation: pieces, text, tokens, cache and counters say the same."""
        answer = generation.answer
        assert answer is not None
        assert "".join(piece.text for piece in pieces) == answer.text
        self.check_cache(answer, prompt)
        stats = answer.stats
        assert stats.verifier_passes == stats.bonus_tokens + stats.residual_tokens
        assert 0 <= stats.accepted <= stats.tested <= stats.drafted
        assert sum(stats.accepted_by_position) == stats.accepted
        assert stats.accepted_by_position == sorted(stats.accepted_by_position, reverse=True)
        assert stats.completion_tokens == len(answer.tokens)
        emitted = stats.accepted + stats.bonus_tokens + stats.residual_tokens
        assert stats.completion_tokens <= emitted
        if answer.finish_reason in ("length", "context"):
            assert stats.completion_tokens == emitted
        return answer

    def check_cache(self, answer: Answer, prompt: Sequence[int]) -> None:
        """The cache holds the committed text but the pending token, and the tokens spell the text."""
        committed = [*prompt, *answer.tokens]
        assert self.verifier.tokens.tolist() == committed[: len(self.verifier.tokens)]
        assert len(committed) - 1 <= self.verifier.length + (answer.stats.verifier_passes == 0) * len(prompt)
        assert self.verifier.length <= len(committed) - 1
        spelled = b"".join(self.vocab.piece(token) for token in answer.tokens).decode("utf-8", "replace")
        assert answer.text.startswith(spelled)


@dataclass(frozen=True)
class Reference:
    """Greedy text by the plainest loop: `gaps[i]` says how far the runner-up of token i was behind."""

    tokens: tuple[int, ...]
    gaps: tuple[float, ...]

    def agrees_with(self, tokens: Sequence[int], *, near_tie: float = 0.0) -> bool:
        """Equal, or first different at a near tie; what follows that says nothing."""
        for ours, theirs, gap in zip(tokens, self.tokens, self.gaps, strict=False):
            if ours != theirs:
                return gap < near_tie
        return len(tokens) == len(self.tokens)


def greedy(context: Context, vocab: Vocab, prompt: Sequence[int], count: int, *, ends: bool = True) -> Reference:
    """Evaluate, take the largest, append: ten lines. `ends` False goes on after an end token."""
    tokens: list[int] = []
    gaps: list[float] = []
    while len(tokens) < count and len(prompt) + len(tokens) <= context.capacity:
        result = context.prefill([*prompt, *tokens])
        assert result is not None
        row = result.logits(0)
        tokens.append(int(row.argmax()))
        second, first = np.partition(row, -2)[-2:]
        gaps.append(float(first - second))
        if ends and vocab.is_end(tokens[-1]):
            break
    return Reference(tuple(tokens), tuple(gaps))
