"""What a benchmark measures: configurations, single runs, and the order in which they are played.

Knows how to time nothing itself; the counters of each answer hold the figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from localspec.core.shapes import Shape
from localspec.drafters import registry as drafters_by_name
from localspec.errors import UsageError
from localspec.loop.counters import Counters
from localspec.services.pairs import ROOM, read_tree
from localspec.services.settings import Length


@dataclass(frozen=True)
class Configuration:
    """One way to decode: a drafter, a draft length, a tree. N of a static tree is its depth."""

    drafter: str
    N: Length = 0
    tree: str = "none"

    @property
    def label(self) -> str:
        """ngram N=5, model N=auto tree auto, model tree 4,2,2, or plain."""
        return label(self.drafter, self.N, self.tree)


PLAIN = Configuration("none")


def label(drafter: str, N: Length, tree: str) -> str:
    """A configuration in a few words."""
    if drafter == "none":
        return "plain"
    if tree == "none":
        return f"{drafter} N={N}"
    return f"{drafter} N={N} tree auto" if tree == "auto" else f"{drafter} tree {tree}"


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


def configurations(
    drafters: Sequence[str], lengths: Sequence[Length], trees: Sequence[str] = ("none",)
) -> list[Configuration]:
    """Every drafter with every length and tree, without repetitions; plain decoding is not among them.

    Length 0 and the drafter "none" are plain decoding, which is measured in any case. Raises `UsageError` when nothing
    is left to compare with it, and for a tree that does not exist.
    """
    wanted = [
        Configuration(drafter, _layers(tree, length), tree)
        for drafter in drafters
        for tree in trees
        for length in lengths
        if drafter != "none" and length != 0
    ]
    if not wanted:
        raise UsageError(
            "there is nothing to compare with plain decoding: no drafter, or only N=0.",
            hint="Name a drafter and a length, for example --drafter ngram --N 5.",
        )
    return list(dict.fromkeys(wanted))


def _layers(tree: str, length: Length) -> Length:
    """A static tree has the depth it has, whatever length was asked for."""
    shape = read_tree(tree)
    return shape.depth if isinstance(shape, Shape) else length


def widest(configuration: Configuration, *, longest: int) -> int:
    """Most nodes of a draft; `longest` of a chain where N is auto."""
    tree = read_tree(configuration.tree)
    if tree is not None:
        return min(ROOM, len(tree)) if isinstance(tree, Shape) else ROOM
    if drafters_by_name.entry(configuration.drafter).grows_trees:
        return ROOM
    return longest if configuration.N == "auto" else configuration.N


def branches(configuration: Configuration) -> bool:
    """True when drafts may be trees."""
    entry = drafters_by_name.entry(configuration.drafter)
    return read_tree(configuration.tree) is not None or entry.grows_trees


def schedule(prompts: int, repeats: int, contestants: Sequence[Configuration]) -> Iterator[Turn]:
    """Plain and speculative side by side: all configurations on one prompt before the next prompt comes.

    Whoever starts changes with every prompt and repeat, so that a machine that slows down slows everybody down.
    """
    for repeat in range(repeats):
        for prompt in range(prompts):
            start = (repeat + prompt) % len(contestants)
            for configuration in (*contestants[start:], *contestants[:start]):
                yield Turn(prompt, repeat, configuration)
