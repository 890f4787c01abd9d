"""Drafts and verdicts: what a drafter proposes and what the acceptance rule says about it.

A draft is a tree of tokens under the pending token; a chain is a thin tree and plain decoding an empty one.
Knows nothing about models or about how tokens were chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from localspec.core.law import Law

Ids = npt.NDArray[np.int32]
ROOT = -1  # the parent of the first tokens: the pending token
_CHAIN = np.arange(-1, 63, dtype=np.int32)  # parents of the longest usual chain
_CHAIN.setflags(write=False)


@dataclass(frozen=True, eq=False)
class Draft:
    """Proposed tokens as a tree, parents before children.

    tokens   (k,) int32
    parents  (k,) int32, `ROOT` (-1) = child of the pending token
    laws     one `Law` per node, the law that node was really drawn from given its elder siblings; None for a
             deterministic pick (one-hot). `laws=None` says that all picks are deterministic.
    confidences  about how likely the verifier takes each node once its parent is taken, summing to at most 1 over
             siblings; None when the drafter does not say. Nothing exact depends on it.
    """

    tokens: Ids
    parents: Ids
    laws: tuple[Law | None, ...] | None = None
    confidences: tuple[float, ...] | None = None

    @classmethod
    def chain(cls, tokens: Sequence[int] | Ids, laws: Sequence[Law | None] | None = None) -> Draft:
        """One token after the other."""
        ids = np.asarray(tokens, dtype=np.int32)
        count = len(ids)
        parents = _CHAIN[:count] if count <= len(_CHAIN) else np.arange(-1, count - 1, dtype=np.int32)
        return cls(ids, parents, None if laws is None else tuple(laws))

    def __len__(self) -> int:
        return len(self.tokens)

    def law(self, node: int) -> Law | None:
        """The law `node` was drawn from, None for a deterministic pick."""
        return None if self.laws is None else self.laws[node]

    @cached_property
    def is_chain(self) -> bool:
        """True when every node hangs below the one before it."""
        return bool(self.parents.tolist() == list(range(-1, len(self.tokens) - 1)))  # short: quicker than arrays

    @cached_property
    def depths(self) -> Ids:
        """(k,) int32: 1 for children of the pending token."""
        depths = np.ones(len(self.tokens), dtype=np.int32)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                depths[node] = depths[parent] + 1
        return depths

    @cached_property
    def children(self) -> dict[int, tuple[int, ...]]:
        """Node (or `ROOT`) -> its children, elder siblings first."""
        below: dict[int, list[int]] = {}
        for node, parent in enumerate(self.parents.tolist()):
            below.setdefault(parent, []).append(node)
        return {parent: tuple(nodes) for parent, nodes in below.items()}

    @property
    def leaves(self) -> int:
        """Paths from the pending token to a node without children."""
        return len(self) - len(self.children) + (ROOT in self.children)

    def path(self, node: int) -> tuple[int, ...]:
        """Nodes from the first below the pending token down to `node`."""
        nodes: list[int] = []
        while node != ROOT:
            nodes.append(node)
            node = int(self.parents[node])
        return tuple(reversed(nodes))

    def ending_at(self, is_end: Callable[[int], bool]) -> Draft:
        """Without the nodes below an end-of-generation token."""
        ends = [node for node, token in enumerate(self.tokens.tolist()) if is_end(token)]
        if not ends or (self.is_chain and ends[0] == len(self) - 1):
            return self
        gone = set()
        for node, parent in enumerate(self.parents.tolist()):
            if parent in gone or parent in ends:
                gone.add(node)
        return self.keeping([node for node in range(len(self)) if node not in gone])

    def keeping(self, nodes: Sequence[int]) -> Draft:
        """Only `nodes` (ascending, closed under parents).

        Exact only when the choice of `nodes` does not depend on the value of drawn tokens, or drops whole subtrees
        below a token that ends the text.
        """
        place = {ROOT: ROOT} | {node: i for i, node in enumerate(nodes)}
        parents = np.array([place[int(self.parents[node])] for node in nodes], dtype=np.int32)
        laws = None if self.laws is None else tuple(self.laws[node] for node in nodes)
        confidences = None if self.confidences is None else tuple(self.confidences[node] for node in nodes)
        return Draft(self.tokens[list(nodes)], parents, laws, confidences)


EMPTY = Draft.chain(())


class Verdict(NamedTuple):
    """What the acceptance rule made of a draft.

    path        accepted nodes, from the pending token downwards
    next_token  the token the verifier adds after them; it becomes the pending token
    source      "bonus": the last node had no child to test; "residual": all its children were rejected
    tested      nodes whose acceptance was decided, accepted ones included
    """

    path: tuple[int, ...]
    next_token: int
    source: Literal["bonus", "residual"]
    tested: int
