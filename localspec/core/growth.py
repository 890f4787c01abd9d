"""Growing a draft tree layer by layer: one draft pass per depth, all nodes of a layer in one batch.

Two ways, both exact. `fixed`: places are settled before anything is drawn, so siblings may be samples. `dynamic`
(EAGLE-2, Li et al. 2024): expand what is likeliest, then keep the best nodes; nodes are deterministic picks, because
choosing among samples by what they are would bias the law. Knows no model: a source turns nodes into rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from localspec.core.draft import ROOT, Draft, Ids
from localspec.core.law import Law
from localspec.core.shapes import Place, Shape


class Sibling(NamedTuple):
    """A token for a place; law and prob as `Draft` has laws and confidences."""

    token: int
    law: Law | None
    prob: float


class Source(Protocol):
    """What grows a tree: a draft model, a head. Rows are opaque here and may expire with the next layer."""

    @property
    def nodes(self) -> int:
        """Most nodes that all layers together may hold."""
        ...

    @property
    def leaves(self) -> int:
        """Most paths that they may hold."""
        ...

    def siblings(self, row: Any, count: int, depth: int) -> list[Sibling]:
        """Up to `count` tokens for the places below a node, from the row that follows it; 1 = first depth."""
        ...

    def layer(self, tokens: Ids, parents: Ids, path: Callable[[int], Ids]) -> Sequence[Any]:
        """One draft pass over new nodes; `parents` count through all nodes of former layers, -1 is the pending token.

        `path(i)` spells the tokens from the pending token's child down to new node i. Returns a row for each of them.
        """
        ...


@dataclass(frozen=True)
class Grown:
    """A grown draft. numbers: of each node, its place among all nodes of the source's layers; -1: not evaluated."""

    draft: Draft
    numbers: tuple[int, ...]

    def evaluated(self, path: Sequence[int]) -> list[int]:
        """The leading nodes of an accepted `path` that the source has evaluated, by their numbers."""
        numbers = [self.numbers[node] for node in path]
        return numbers[: numbers.index(-1)] if -1 in numbers else numbers


@dataclass
class Node:
    """A node while the tree grows. joint: about how likely it is reached and taken; evaluated: its number in layers."""

    token: int
    parent: int
    law: Law | None
    prob: float
    joint: float
    depth: int
    place: Place = ()
    evaluated: int = -1


class _Tree:
    """Nodes so far and the layers evaluated of them."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.nodes: list[Node] = []
        self._evaluated = self._paths = 0
        self._inner: set[int] = set()  # nodes with a child in some layer

    def add(self, siblings: Sequence[Sibling], parent: int) -> list[int]:
        """New nodes below `parent` (`ROOT`: the pending token)."""
        elder = self.nodes[parent] if parent != ROOT else None
        first = len(self.nodes)
        for rank, one in enumerate(siblings):
            self.nodes.append(
                Node(
                    one.token,
                    parent,
                    one.law,
                    one.prob,
                    joint=one.prob * (elder.joint if elder else 1.0),
                    depth=elder.depth + 1 if elder else 1,
                    place=(*(elder.place if elder else ()), rank),
                )
            )
        return list(range(first, len(self.nodes)))

    def affordable(self, ranked: Sequence[int], count: int) -> list[int]:
        """Up to `count` of these nodes, best first, for which the source has room."""
        chosen: list[int] = []
        inner, paths = set(self._inner), self._paths
        for node in ranked:
            if len(chosen) == count or self._evaluated + len(chosen) == self.source.nodes:
                break
            parent = self.nodes[node].parent
            splits = parent == ROOT or parent in inner
            if splits and paths == self.source.leaves:
                continue
            paths += splits
            inner.add(parent)
            chosen.append(node)
        return chosen

    def evaluate(self, layer: Sequence[int]) -> Sequence[Any]:
        """Rows that follow the nodes of `layer`, which all have the same depth."""
        tokens = np.array([self.nodes[node].token for node in layer], dtype=np.int32)
        parents = [self.nodes[node].parent for node in layer]
        numbers = np.array([self.nodes[p].evaluated if p != ROOT else ROOT for p in parents], dtype=np.int32)
        for node, parent in zip(layer, parents, strict=True):
            self.nodes[node].evaluated = self._evaluated
            self._evaluated += 1
            self._paths += parent == ROOT or parent in self._inner
            self._inner.add(parent)
        return self.source.layer(tokens, numbers, lambda at: self.path(layer[at]))

    def path(self, node: int) -> Ids:
        """Tokens from the first below the pending token down to `node`."""
        tokens: list[int] = []
        while node != ROOT:
            tokens.append(self.nodes[node].token)
            node = self.nodes[node].parent
        return np.array(tokens[::-1], dtype=np.int32)

    def keep(self, kept: Sequence[int]) -> Grown:
        """`kept` nodes, ascending and closed under parents, as a draft."""
        number = {ROOT: ROOT} | {node: at for at, node in enumerate(kept)}
        chosen = [self.nodes[node] for node in kept]
        laws = tuple(node.law for node in chosen)
        draft = Draft(
            np.array([node.token for node in chosen], dtype=np.int32),
            np.array([number[node.parent] for node in chosen], dtype=np.int32),
            laws if any(law is not None for law in laws) else None,
            tuple(node.prob for node in chosen),
        )
        return Grown(draft, tuple(node.evaluated for node in chosen))


def fixed(shape: Shape, source: Source, root: Any, *, is_end: Callable[[int], bool]) -> Grown:
    """Fill the places of `shape`; `root` is the row that follows the pending token."""
    tree = _Tree(source)
    layer = tree.add(source.siblings(root, shape.widths.get((), 0), 1), ROOT)
    depth = 1
    while True:
        parents = [n for n in layer if tree.nodes[n].place in shape.widths and not is_end(tree.nodes[n].token)]
        if not parents:
            break
        depth += 1
        rows = tree.evaluate(parents)
        layer = []
        for node, row in zip(parents, rows, strict=True):
            layer += tree.add(source.siblings(row, shape.widths[tree.nodes[node].place], depth), node)
    return tree.keep(range(len(tree.nodes)))


@dataclass(frozen=True)
class Growth:
    """How far a dynamic tree may grow. nodes: kept at most; depth: layers; width: children looked at below a node;
    frontier: nodes expanded in a layer at most; leaves: paths at most.
    """

    nodes: int
    depth: int = 6
    width: int = 4
    frontier: int = 4
    leaves: int = 16

    def within(self, *, nodes: int, leaves: int) -> Growth:
        """With less room."""
        return replace(self, nodes=min(self.nodes, nodes), leaves=min(self.leaves, leaves))


def dynamic(
    growth: Growth,
    source: Source,
    root: Any,
    *,
    widen: Callable[[int, Sequence[float]], int],
    choose: Callable[[Sequence[float]], int],
    is_end: Callable[[int], bool],
) -> Grown:
    """Expand the likeliest nodes, then keep the best.

    widen   (depth, joint probabilities, best first) -> how many of these nodes are worth being expanded by one more
            draft pass, for `depth`
    choose  joint probabilities, best first -> how many of these nodes are worth their rows in the verifier's pass
    """
    tree = _Tree(source)
    layer = tree.add(source.siblings(root, growth.width, 1), ROOT)
    for depth in range(2, growth.depth + 1):
        open_ends = [node for node in layer if not is_end(tree.nodes[node].token)]
        ranked = sorted(open_ends, key=lambda node: -tree.nodes[node].joint)
        frontier = tree.affordable(ranked, growth.frontier)
        frontier = frontier[: widen(depth, [tree.nodes[node].joint for node in frontier])]
        if not frontier:
            break
        layer = []
        for node, row in zip(frontier, tree.evaluate(frontier), strict=True):
            layer += tree.add(source.siblings(row, growth.width, depth), node)
    return tree.keep(best(tree.nodes, growth, choose))


def best(nodes: Sequence[Node], growth: Growth, choose: Callable[[Sequence[float]], int]) -> list[int]:
    """Numbers of the nodes to keep, ascending: the likeliest that have room, as many as `choose` says."""
    # Sorting is stable and a child is never likelier than its parent, so parents come first.
    ranked = sorted(range(len(nodes)), key=lambda node: -nodes[node].joint)
    kept: list[int] = []
    inner: set[int] = set()
    present: set[int] = {ROOT}
    leaves = 0
    for node in ranked:
        parent = nodes[node].parent
        splits = parent == ROOT or parent in inner
        if len(kept) == growth.nodes:
            break
        if parent not in present or (splits and leaves == growth.leaves):
            continue
        leaves += splits
        inner.add(parent)
        present.add(node)
        kept.append(node)
    return sorted(kept[: choose([nodes[node].joint for node in kept])])
