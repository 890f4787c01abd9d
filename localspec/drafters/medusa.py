"""Several small heads guess several places ahead from the verifier's last hidden row (Medusa, Cai et al. 2024).

All heads are computed at once, so a tree costs one step, whatever its depth. Wins where rows of a pass are cheap: the
guesses of a place do not know what the places before it became, so width has to make up for it. Loses where rows cost
(quantised weights on a CPU) and on text unlike the heads' training data.

All nodes are deterministic picks, so acceptance is exact at every temperature and nodes may be left out freely.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from localspec.core.confidence import confidence
from localspec.core.draft import EMPTY, ROOT, Draft, Ids, Verdict
from localspec.core.growth import Growth, Node, best
from localspec.core.picks import likeliest
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.core.shapes import Place, Shape
from localspec.drafters.base import Budget, Lender
from localspec.engine.base import Cancelled, Pass, Row
from localspec.errors import UsageError

Choices = Literal["static", "confident"]
PLACES = 40
"""Places of the tree that is used where the head's file names none."""
RANKS = 8
"""Guesses of a head that are looked at."""
FIRST, NEXT = 0.5, 0.75
"""Chance that the first head's first guess is right, and what is left of it at the next head: before any is known."""
SHARES = (1.0, 0.3, 0.15, 0.1, 0.07, 0.05, 0.04, 0.03)
"""Chances of further guesses, in parts of the first one's."""
WEIGHT = 16.0
"""What was believed before counts as this many tests."""
MEMORY = 0.99
"""What one more test leaves of the weight of a record."""


@dataclass(frozen=True)
class Options:
    """What a user can set with -o.

    force  use a head that was trained on another quantisation of the same weights
    choices  places of a tree that may grow: static (by how often each was right so far), or confident (by the rows)
    """

    force: bool = False
    choices: Choices = "static"

    def __post_init__(self) -> None:
        if self.choices not in get_args(Choices):
            raise UsageError(f"option choices is {self.choices!r}", hint="Choose static or confident.")


class Medusa:
    """The drafter; the head is the pair's draft file."""

    name = "medusa"

    def __init__(self, options: Options, lender: Lender) -> None:
        """Opens the head. Raises `DrafterError` or `PairError` when there is none that fits."""
        self.options = options
        self._head = lender.guesser(self.name, force=options.force)
        self._is_end = lender.is_end
        self._rates = Rates()
        self._places = self._head.tree or default_places(self._head.heads)
        self._nodes: list[Node] = []  # of the last draft

    def begin(self, tokens: Ids, *, sampling: Sampling, rule: Rule, cancelled: Cancelled) -> None:
        """Nothing to read ahead: the verifier's last row is all there is."""
        self._nodes = []

    def propose(self, tokens: Ids, budget: Budget) -> Draft:
        """A chain of first guesses, the shape that was asked for, or the best places of a tree."""
        self._nodes = []
        rows = None if budget.cancelled() else self._head.guess(tokens)
        if rows is None:
            return EMPTY
        if budget.tree is None:
            return self._chain(rows, budget)
        guesses = Guesses(rows, self._head.ids)
        if isinstance(budget.tree, Shape):
            nodes = _filled(budget.tree.places, guesses, self._chance_by_rate, self._is_end)
        else:
            nodes = self._grown(guesses, budget.tree)
            nodes = _only(nodes, best(nodes, budget.tree, budget.choose))
        self._nodes = nodes
        return _draft(nodes)

    def observe(self, result: Pass, verdict: Verdict | None) -> None:
        """Count which guesses were right."""
        nodes, self._nodes = self._nodes, []
        if verdict is not None and nodes:
            self._rates.learn(nodes, verdict.path)

    def close(self) -> None:
        """Nothing to free: the head is lent."""

    def _chain(self, rows: Sequence[Row], budget: Budget) -> Draft:
        drafted: list[int] = []
        for depth, row in enumerate(rows[: budget.limit], start=1):
            if budget.asks and not budget.pays(depth, confidence(row)):
                break
            drafted.append(_id(int(row.argmax()), self._head.ids))
            if self._is_end(drafted[-1]):
                break
        return Draft.chain(drafted) if drafted else EMPTY

    def _grown(self, guesses: Guesses, growth: Growth) -> list[Node]:
        """What the tree may hold: the static places, or those that the rows find likeliest."""
        if self.options.choices == "static":
            places = [place for place in self._places if len(place) <= growth.depth]
            return _filled(places, guesses, self._chance_by_rate, self._is_end)
        return _likeliest(guesses, growth, self._is_end)

    def _chance_by_rate(self, place: Place, prob: float) -> float:
        return self._rates.rate(len(place), place[-1])


class Guesses:
    """The likeliest tokens of each head, found when they are asked for."""

    def __init__(self, rows: Sequence[Row], ids: Ids | None) -> None:
        self._rows = rows
        self._ids = ids
        self._found: dict[int, list[tuple[int, float]]] = {}

    def at(self, depth: int) -> list[tuple[int, float]]:
        """(id, probability), likeliest first, for the places of `depth` (1 = first); none beyond the last head."""
        if depth > len(self._rows):
            return []
        if depth not in self._found:
            picks = likeliest(self._rows[depth - 1], RANKS)
            self._found[depth] = [(_id(token, self._ids), prob) for token, prob in picks]
        return self._found[depth]


class Rates:
    """How often each guess of each head was right where the guesses before it were."""

    def __init__(self) -> None:
        self._taken: dict[tuple[int, int], float] = {}
        self._tested: dict[tuple[int, int], float] = {}

    def rate(self, depth: int, rank: int) -> float:
        """Chance of the guess of this rank (0 = first) of the head for `depth` (1 = first)."""
        at = (depth, rank)
        believed = FIRST * NEXT ** (depth - 1) * SHARES[min(rank, len(SHARES) - 1)]
        return (self._taken.get(at, 0.0) + WEIGHT * believed) / (self._tested.get(at, 0.0) + WEIGHT)

    def learn(self, nodes: Sequence[Node], path: Sequence[int]) -> None:
        """One verdict: all children of the nodes that were reached have been put to the test."""
        reached, taken = {ROOT, *path}, set(path)
        for number, node in enumerate(nodes):
            if node.parent in reached:
                at = (node.depth, node.place[-1])
                self._taken[at] = MEMORY * self._taken.get(at, 0.0) + (number in taken)
                self._tested[at] = MEMORY * self._tested.get(at, 0.0) + 1.0


def default_places(heads: int, count: int = PLACES) -> tuple[Place, ...]:
    """The likeliest places of a tree over so many heads, best first, by what is believed before anything is known."""
    rates = Rates()
    waiting: list[tuple[float, Place]] = [(-rates.rate(1, 0), (0,))]
    places: list[Place] = []
    while waiting and len(places) < count:
        joint, place = heapq.heappop(waiting)
        places.append(place)
        depth, rank = len(place), place[-1]
        if rank + 1 < RANKS:
            younger = joint / rates.rate(depth, rank) * rates.rate(depth, rank + 1)
            heapq.heappush(waiting, (younger, (*place[:-1], rank + 1)))
        if depth < heads:
            heapq.heappush(waiting, (joint * rates.rate(depth + 1, 0), (*place, 0)))
    return tuple(places)


def _filled(
    places: Iterable[Place], guesses: Guesses, chance: Callable[[Place, float], float], is_end: Callable[[int], bool]
) -> list[Node]:
    """Nodes for the places that the heads have a guess for, parents first; nothing follows an end."""
    nodes: list[Node] = []
    at: dict[Place, int] = {(): ROOT}
    for place in sorted(places, key=len):
        parent = at.get(place[:-1])
        found = guesses.at(len(place))
        if parent is None or place[-1] >= len(found) or (parent != ROOT and is_end(nodes[parent].token)):
            continue
        token, prob = found[place[-1]]
        prob = chance(place, prob)
        joint = prob * (nodes[parent].joint if parent != ROOT else 1.0)
        at[place] = len(nodes)
        nodes.append(Node(token, parent, None, prob, joint, len(place), place))
    return nodes


def _likeliest(guesses: Guesses, growth: Growth, is_end: Callable[[int], bool]) -> list[Node]:
    """The places with the best joint confidence, as many as there may be nodes."""
    waiting: list[tuple[float, Place]] = [(-prob, (rank,)) for rank, (_, prob) in enumerate(guesses.at(1)[:1])]
    places: list[Place] = []
    while waiting and len(places) < growth.nodes:
        joint, place = heapq.heappop(waiting)
        places.append(place)
        depth, rank = len(place), place[-1]
        siblings, below = guesses.at(depth), guesses.at(depth + 1)
        if rank + 1 < len(siblings):
            younger = joint / siblings[rank][1] * siblings[rank + 1][1] if siblings[rank][1] > 0.0 else 0.0
            heapq.heappush(waiting, (younger, (*place[:-1], rank + 1)))
        if below and depth < growth.depth and not is_end(siblings[rank][0]):
            heapq.heappush(waiting, (joint * below[0][1], (*place, 0)))
    return _filled(places, guesses, lambda place, prob: prob, is_end)


def _only(nodes: Sequence[Node], kept: Sequence[int]) -> list[Node]:
    """`kept` nodes, ascending and closed under parents, numbered anew."""
    number = {ROOT: ROOT} | {node: at for at, node in enumerate(kept)}
    return [
        Node(one.token, number[one.parent], None, one.prob, one.joint, one.depth, one.place)
        for one in (nodes[node] for node in kept)
    ]


def _draft(nodes: Sequence[Node]) -> Draft:
    tokens = np.array([node.token for node in nodes], dtype=np.int32)
    parents = np.array([node.parent for node in nodes], dtype=np.int32)
    return Draft(tokens, parents, None, tuple(node.prob for node in nodes)) if nodes else EMPTY


def _id(token: int, ids: Ids | None) -> int:
    return token if ids is None else int(ids[token])
