"""Tree shapes fixed before a token is drawn: which places there are, not which tokens stand there.

A place is named by ranks: (0, 2) is the third child of the first child of the pending token. Knows no laws.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from localspec.errors import UsageError

Place = tuple[int, ...]
MOST = 4096
"""More places than any draft can hold: a longer shape is a slip of the finger."""


@dataclass(frozen=True)
class Shape:
    """Places in the order in which they are kept when room is short; parents and elder siblings come first."""

    places: tuple[Place, ...]

    @classmethod
    def of(cls, places: Iterable[Sequence[int]]) -> Shape:
        """The shape with these places, likely ones first.

        Raises `UsageError` when an ancestor or elder is missing, or when there are more than `MOST`.
        """
        known = {tuple(place) for place in places}
        if len(known) > MOST:
            raise UsageError(
                f"a tree of {len(known)} nodes cannot be drafted",
                hint=f"List at most {MOST} nodes; a round takes dozens.",
            )
        for place in sorted(known):
            needed = [place[:-1]] if len(place) > 1 else []
            needed += [(*place[:-1], place[-1] - 1)] if place and place[-1] > 0 else []
            missing = [one for one in needed if one not in known]
            if missing or not place or min(place) < 0:
                raise UsageError(
                    f"the tree has the node {list(place)} but not {list(missing[0]) if missing else 'a parent for it'}",
                    hint="List every ancestor and every elder sibling of a node too.",
                )
        return cls(tuple(sorted(known, key=lambda place: (sum(place) + len(place), place))))

    @classmethod
    def branching(cls, widths: Sequence[int]) -> Shape:
        """`widths[d]` children below every node of depth d."""
        total = count = 1
        for width in widths:
            count *= max(width, 0)
            total += count
        if not widths or min(widths) < 1 or total > MOST:
            raise UsageError(
                f"a tree of branching {','.join(map(str, widths))} cannot be drafted",
                hint=f"Give one number from 1 for each depth, at most {MOST} nodes in all, like 4,2,2.",
            )
        return cls.of(place for depth in range(1, len(widths) + 1) for place in product(*map(range, widths[:depth])))

    @classmethod
    def parse(cls, text: str) -> Shape:
        """From "4,2,2": one number of children for each depth."""
        parts = text.split(",")
        if not all(part.strip().isdecimal() and len(part) < 10 for part in parts) or len(parts) > MOST:
            raise UsageError(f"{text[:80]!r} is no branching", hint="Give one number for each depth, like 4,2,2.")
        return cls.branching([int(part) for part in parts])

    def __len__(self) -> int:
        return len(self.places)

    @cached_property
    def widths(self) -> dict[Place, int]:
        """Place (or (), the pending token) -> number of its children."""
        found: dict[Place, int] = {}
        for place in self.places:
            found[place[:-1]] = found.get(place[:-1], 0) + 1
        return found

    @cached_property
    def depth(self) -> int:
        return max(map(len, self.places), default=0)

    @cached_property
    def leaves(self) -> int:
        """Paths from the pending token to a place without children."""
        return sum(place not in self.widths for place in self.places)

    def within(self, *, nodes: int, leaves: int) -> Shape:
        """The likeliest part that has room: no token is known yet, so leaving places out biases nothing."""
        if len(self) <= nodes and self.leaves <= leaves:
            return self
        kept: list[Place] = []
        parents: set[Place] = {()}
        inner: set[Place] = set()
        ends = 0
        for place in self.places:
            parent = place[:-1]
            elder = (*parent, place[-1] - 1)
            splits = parent in inner or not parent
            if len(kept) == nodes or parent not in parents or (place[-1] > 0 and elder not in parents):
                continue
            if splits and ends == leaves:
                continue
            ends += splits
            inner.add(parent)
            parents.add(place)
            kept.append(place)
        return Shape(tuple(kept))
