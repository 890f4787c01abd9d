"""A tree of guesses about the text to come: what followed at the places where it read as it reads now.

Places that agree on a token go on together below it. Knows nothing of drafts' budgets or of how places were found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from localspec.core.corpus import SEPARATOR
from localspec.core.draft import EMPTY, ROOT, Draft, Ids
from localspec.core.trust import Guess, Support, Trust


class Readable(Protocol):
    """A text that places are found in."""

    def __len__(self) -> int: ...

    def __getitem__(self, at: int) -> int: ...


class Place(NamedTuple):
    """Somewhere in a text that reads as the committed text does at its end, for `length` tokens."""

    text: Readable
    length: int
    after: int

    def follower(self, depth: int) -> int:
        """The token that stands `depth` tokens behind the match, `SEPARATOR` where the text ends."""
        at = self.after + depth
        return self.text[at] if at < len(self.text) else SEPARATOR


@dataclass(slots=True)
class Node:
    """A guess about the text to come. chance: that it is right once its parent is; joint: that all up to it are."""

    guess: Guess
    parent: int
    depth: int
    chance: float
    joint: float
    places: list[Place]


class Foretold:
    """Everything that was foretold behind one text, as a tree; the draft is a part of it."""

    def __init__(self, trust: Trust) -> None:
        self.nodes: list[Node] = []
        self._trust = trust
        self._below: dict[int, list[int]] = {}

    def expand(self, parent: int, places: Sequence[Place], width: int) -> list[int]:
        """Up to `width` new nodes below `parent`: what followed at `places`, by the longest match."""
        depth, joint = 0, 1.0
        if parent != ROOT:
            depth, joint = self.nodes[parent].depth, self.nodes[parent].joint
        groups: dict[int, list[Place]] = {}
        for place in places:
            token = place.follower(depth)
            if token != SEPARATOR:
                groups.setdefault(token, []).append(place)
        total, left = sum(map(len, groups.values())), 1.0
        first = len(self.nodes)
        for rank, (token, group) in zip(range(width), groups.items(), strict=False):
            support = Support.of(rank, agreeing=len(group), places=total)
            guess = Guess(token, group[0].length + depth, support)
            chance = left * self._trust.probability(guess)
            left -= chance
            self.nodes.append(Node(guess, parent, depth + 1, chance, joint * chance, group))
        below = self._below[parent] = list(range(first, len(self.nodes)))
        return below

    def learn(self, came: Ids) -> None:
        """Compare with the tokens that came; what hangs below a wrong guess was not put to the test."""
        parent = ROOT
        for token in came.tolist():
            for node in self._below.get(parent, ()):
                guess = self.nodes[node].guess
                self._trust.learn(guess, right=guess.token == token)
                if guess.token == token:
                    parent = node
                    break
            else:
                return

    def draft(self, kept: Sequence[int]) -> Draft:
        """These nodes, parents before children."""
        if not kept:
            return EMPTY
        number = {ROOT: ROOT} | {node: at for at, node in enumerate(kept)}
        chosen = [self.nodes[node] for node in kept]
        return Draft(
            np.array([node.guess.token for node in chosen], dtype=np.int32),
            np.array([number[node.parent] for node in chosen], dtype=np.int32),
            confidences=tuple(node.chance for node in chosen),
        )
