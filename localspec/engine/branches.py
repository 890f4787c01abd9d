"""The sequences of a draft tree in a unified cache: every leaf path is one (1, 2, ...) beside the committed text (0).

A node carries the ids of the sequences that pass through it and shares the prefix with all others, so no attention mask
has to be written. Knows positions and sequences, not tokens or logits.
"""

from __future__ import annotations

from typing import Any

from localspec.core.draft import Draft
from localspec.engine.native import lib


class Branches:
    """What is lent out to the tree that is open; nothing between rounds."""

    def __init__(self, memory: Any) -> None:
        self._memory = memory
        self._lent = 0
        self._of: list[int] = []  # of each node: one sequence that holds the path down to it

    def spread(self, draft: Draft) -> list[list[int]]:
        """Sequences of the root and of each node of a whole tree, one sequence for every leaf path."""
        leaves = [node for node in range(len(draft)) if node not in draft.children]
        below: list[list[int]] = [[] for _ in range(len(draft))]
        self._lent = len(leaves)  # before they are made: what an interrupt leaves is taken back all the same
        for sequence, leaf in enumerate(leaves, start=1):
            lib.llama_memory_seq_cp(self._memory, 0, sequence, -1, -1)
            for node in draft.path(leaf):
                below[node].append(sequence)
        self._of = [ids[0] for ids in below]
        return [list(range(1 + len(leaves))), *below]

    def extend(self, draft: Draft, *, first: int, base: int) -> list[list[int]]:
        """Sequences of the nodes from `first` on, new in a tree that grows on top of a text of `base` tokens."""
        if not first:
            self._of = []
        for node in range(first, len(draft)):
            self._of.append(self._below(draft, node, base))
        return [[sequence] for sequence in self._of[first:]]

    def _below(self, draft: Draft, node: int, base: int) -> int:
        """An only child goes on in its parent's sequence, a sibling gets a copy of the path."""
        parent = int(draft.parents[node])
        if parent >= 0 and draft.children[parent][0] == node:
            return self._of[parent]
        self._lent += 1
        source = self._of[parent] if parent >= 0 else 0
        end = base + (int(draft.depths[parent]) if parent >= 0 else 0)
        lib.llama_memory_seq_cp(self._memory, source, self._lent, -1, end)
        return self._lent

    def gather(self, node: int, *, first: int, end: int) -> None:
        """Make the path down to `node`, at the positions `first` .. `end` - 1, part of the text."""
        lib.llama_memory_seq_cp(self._memory, self._of[node], 0, first, end)

    def take_back(self) -> None:
        """Forget all sequences but the text's."""
        for sequence in range(1, 1 + self._lent):
            lib.llama_memory_seq_rm(self._memory, sequence, -1, -1)
        self._lent = 0

    def __bool__(self) -> bool:
        """True while sequences are lent."""
        return self._lent > 0
