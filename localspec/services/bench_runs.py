"""What a benchmark measures: configurations, single runs, and the order in which they are played.

Knows how to time nothing itself; the counters of each answer hold the figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from localspec.errors import UsageError
from localspec.loop.counters import Counters
from localspec.services.pairs import Length


@dataclass(frozen=True)
class Configuration:
    """One way to decode: a drafter, a draft length, a tree shape."""

    drafter: str
    N: Length = 0
    tree: str = "none"

    @property
    def label(self) -> str:
        """ngram N=5, model N=auto tree 4,2,2, or plain."""
        if self.drafter == "none":
            return "plain"
        shape = "" if self.tree == "none" else f" tree {self.tree}"
        return f"{self.drafter} N={self.N}{shape}"


PLAIN = Configuration("none")


@dataclass(frozen=True)
class Turn:
    """One run to be made: which prompt, which repeat, which configuration."""

    prompt: int
    repeat: int
    configuration: Configuration


@dataclass(frozen=True)
class Run:
    """One finished run; `drafter` is the one that was in use at its end."""

    turn: Turn
    category: str
    tokens: tuple[int, ...]
    stats: Counters
    drafter: str


def configurations(drafters: Sequence[str], lengths: Sequence[Length]) -> list[Configuration]:
    """Every drafter with every length, without repetitions; plain decoding is not among them.

    Length 0 and the drafter "none" are plain decoding, which is measured in any case. Raises `UsageError` when nothing
    is left to compare with it.
    """
    wanted = [
        Configuration(drafter, length)
        for drafter in drafters
        for length in lengths
        if drafter != "none" and length != 0
    ]
    if not wanted:
        raise UsageError(
            "there is nothing to compare with plain decoding: no drafter, or only N=0.",
            hint="Name a drafter and a length, for example --drafter ngram --N 5.",
        )
    return list(dict.fromkeys(wanted))


def schedule(prompts: int, repeats: int, contestants: Sequence[Configuration]) -> Iterator[Turn]:
    """Plain and speculative side by side: all configurations on one prompt before the next prompt comes.

    Whoever starts changes with every prompt and repeat, so that a machine that slows down slows everybody down.
    """
    for repeat in range(repeats):
        for prompt in range(prompts):
            start = (repeat + prompt) % len(contestants)
            for configuration in (*contestants[start:], *contestants[:start]):
                yield Turn(prompt, repeat, configuration)
