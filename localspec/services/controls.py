"""Who decides how far to draft: the controller for what was asked, from what is known of the pair.

Knows the registry of drafters and the planner; opens nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from localspec.core.growth import Growth
from localspec.core.shapes import Shape
from localspec.drafters import registry as drafters
from localspec.drafters.registry import Entry
from localspec.loop.control import Controller, FixedLength
from localspec.planner.books import Books
from localspec.planner.choice import Choice
from localspec.planner.controller import LENGTHS, AutoLength
from localspec.planner.diagnosis import Diagnosis, Facts, WatchedLength
from localspec.planner.profile import Profile
from localspec.planner.treecontrol import AutoTree
from localspec.services.pairs import GROWING, ROOM
from localspec.services.settings import Length

Control = tuple[Shape | Growth | None, Controller]
Known = Callable[[str], Profile | None]


def control(
    N: Length,
    tree: Shape | Growth | None,
    entry: Entry,
    *,
    members: Sequence[str],
    known: Known,
    facts: Facts,
    watch: bool = True,
) -> Control:
    """What drafts are asked for, and how far each may go: N tokens, all places of a shape, N layers of a tree, or auto.

    `members`: those that a controller chooses among, empty where the drafter decides; `known`: the profile of a drafter
    to start from; `watch`: also where the length is fixed somebody says when the pair cannot work well.
    """
    if isinstance(tree, Shape):
        return tree, FixedLength(len(tree))
    if members and N:
        return _choice(N, tree, [drafters.entry(name) for name in members], known=known, facts=facts)
    diagnosis = Diagnosis(replace(facts, lookup=entry.is_lookup))
    if tree is None and not entry.grows_trees:
        if N == "auto":
            return None, AutoLength(known(entry.name), lookup=entry.is_lookup, diagnosis=diagnosis)
        is_watched = watch and N and entry.needs_draft
        return None, WatchedLength(N, diagnosis=diagnosis) if is_watched else FixedLength(N)
    tree = tree or GROWING
    if N == "auto":
        return tree, AutoTree(known(entry.name), lookup=entry.is_lookup, diagnosis=diagnosis)
    return replace(tree, depth=N), FixedLength(ROOM if N else 0)


def learned(controller: Controller) -> Iterator[tuple[str, Profile]]:
    """What a controller would start from another day, by drafter; "" where there is only one."""
    arms = controller.arms if isinstance(controller, Choice) else {"": controller}
    for name, arm in arms.items():
        profile = arm.learned() if isinstance(arm, AutoLength) else None
        if profile is not None:
            yield name, profile


def _choice(N: Length, tree: Growth | None, entries: Sequence[Entry], *, known: Known, facts: Facts) -> Control:
    """One of several drafters, or none of them, by measurement; a fixed N is the most that a draft may hold."""
    profiles = {entry.name: known(entry.name) for entry in entries}
    books = Books(ROOM, next(filter(None, profiles.values()), None))
    longest = LENGTHS[-1] if N == "auto" else min(N, ROOM)
    arms: dict[str, AutoLength] = {}
    for entry in entries:
        profile, lookup = profiles[entry.name], entry.is_lookup
        diagnosis = Diagnosis(replace(facts, drafter=entry.name, lookup=lookup))
        if tree or entry.grows_trees:
            arms[entry.name] = AutoTree(profile, lookup=lookup, books=books, diagnosis=diagnosis)
        else:
            arms[entry.name] = AutoLength(profile, longest=longest, lookup=lookup, books=books, diagnosis=diagnosis)
    grown = tree if tree or not any(entry.grows_trees for entry in entries) else GROWING
    return grown if grown is None or N == "auto" else replace(grown, depth=N), Choice(arms, books)
