"""What an answer is made of while it streams, and when it is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from localspec.loop.counters import Counters

FinishReason = Literal["stop", "length", "context", "interrupted"]


class Piece(NamedTuple):
    """Text that may be shown now: whole code points, nothing of a stop string.

    drafted  True when it comes from an accepted draft token
    """

    text: str
    drafted: bool = False


@dataclass(frozen=True)
class Answer:
    """A finished (or interrupted) answer.

    text           all pieces joined
    tokens         ids of the completion; detokenised they are a prefix of `text` (equal unless a stop string cut one)
    finish_reason  "stop", "length", "context" or "interrupted"
    prompt_tokens  ids of the prompt
    stats          the counters
    """

    text: str
    tokens: tuple[int, ...]
    finish_reason: FinishReason
    prompt_tokens: int
    stats: Counters
