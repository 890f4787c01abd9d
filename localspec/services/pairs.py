"""From what the user asked for and what the registry says to one settled pair. Opens no model."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import index
from pathlib import Path

from localspec.catalog.registry import Pair, Registry
from localspec.catalog.texts import read_text
from localspec.core.growth import Growth
from localspec.core.shapes import Shape
from localspec.drafters import registry as drafters
from localspec.errors import UsageError
from localspec.planner.controller import LENGTHS
from localspec.services.settings import Length, PairChoice

MOST = 64
"""Longest draft anybody may ask for."""
ROOM = 32
"""Nodes of a draft that contexts are made for, unless more are asked for."""
LEAVES = 16
"""Leaf paths of a tree that contexts are made for."""
GROWING = Growth(nodes=ROOM, depth=LENGTHS[-1], leaves=LEAVES)
"""A tree that grows as far as it pays: there is room for the longest chain."""


@dataclass(frozen=True)
class SettledPair:
    """Everything about a pair that is decided before a file is touched; references as in the contract."""

    name: str
    verifier: str
    draft: str | None
    drafter: str
    N: Length
    tree: str
    options: Mapping[str, str]
    among: tuple[str, ...] = ()
    """What drafter auto chooses among on this pair, the pair's own drafter first."""

    def completed(self, drafter: str, options: Mapping[str, str]) -> Mapping[str, str]:
        """These options, with what the pair adds to them."""
        said = options.get("among") or drafter != "auto" or not self.among
        return options if said else {**options, "among": ",".join(self.among)}

    def with_head(self, kind: str) -> SettledPair:
        """The same pair, now that its draft is known to be a head and no language model."""
        among = tuple(kind if name == "model" else name for name in self.among)
        return replace(self, drafter=kind if self.drafter == "model" else self.drafter, among=among)

    @property
    def uses_draft(self) -> bool:
        """True when the drafter opens the pair's second model."""
        return drafters.entry(self.drafter).uses_draft


def settle(choice: PairChoice, registry: Registry) -> SettledPair:
    """The pair to open. Raises `UsageError` for a wish that cannot be met, `RegistryError` for an unknown name."""
    pair = _named(choice, registry)
    verifier = choice.verifier or (pair.verifier if pair else "")
    draft = choice.draft or (pair.draft if pair else None)
    own = _own(choice, pair, draft)
    among = _among(own, draft)
    drafter = own if choice.drafter is None else drafters.entry(choice.drafter).name
    if drafter == "auto" and len(among) == 1 and "among" not in choice.options:
        drafters.entry(drafter).parse(choice.options)  # a mistake is answered with what was asked for
        (drafter,) = among  # nothing to choose
    if drafters.entry(drafter).needs_draft and draft is None:
        raise UsageError(
            f"drafter {drafter} needs a second model, and {pair.name if pair else verifier} has none",
            hint="Name one with --draft REF, or choose --drafter ngram.",
        )
    # Options of the registry belong to the drafter they were written for.
    inherited = pair.options if pair and pair.drafter == drafter else {}
    options = {**{key: str(value) for key, value in inherited.items()}, **choice.options}
    drafters.entry(drafter).parse(options)
    tree = choice.tree or (pair.tree if pair else "none")
    read_tree(tree)
    return SettledPair(
        name=pair.name if pair else verifier,
        verifier=verifier,
        draft=draft,
        drafter=drafter,
        N=_length(choice.N if choice.N is not None else pair.N if pair else "auto"),
        tree=tree,
        options=options,
        among=among,
    )


def read_tree(text: str) -> Shape | Growth | None:
    """What `--tree` asks for: None for chains, a shape, or a tree that grows as far as it pays.

    A file lists the places of an irregular shape in JSON, as Medusa does: [[0], [0, 0], [1]].
    """
    if text in ("none", "auto"):
        return GROWING if text == "auto" else None
    if all(part.strip().isdecimal() for part in text.split(",")):
        return Shape.parse(text)
    try:
        listed = json.loads(read_text(Path(os.path.expanduser(text))))
        if not listed or not isinstance(listed, list):
            raise ValueError(text)
        return Shape.of([[index(rank) for rank in place] for place in listed])
    except OSError:
        raise UsageError(
            f"tree {text!r} is neither a branching nor a file that can be read",
            hint="Choose none, auto, one number for each depth like 4,2,2, or a JSON file of places.",
        ) from None
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise UsageError(
            f"{text} does not list the places of a tree", hint="Write JSON like [[0], [0, 0], [1]]."
        ) from None


def _named(choice: PairChoice, registry: Registry) -> Pair | None:
    """The registry's pair, unless only a verifier was named."""
    if choice.pair is None and choice.verifier is not None:
        return None
    return registry.pair(choice.pair)


def _own(choice: PairChoice, pair: Pair | None, draft: str | None) -> str:
    """The drafter of the pair as it stands, whatever was asked for."""
    if choice.draft is not None:
        return "model"
    if pair is not None:
        return pair.drafter if choice.verifier is None or not drafters.entry(pair.drafter).needs_draft else "ngram"
    return "ngram"


def _among(own: str, draft: str | None) -> tuple[str, ...]:
    """What suits the pair: its own drafter, its second model as a draft unless it is something else, the lookup."""
    names = [] if own == "none" or drafters.entry(own).combines else [own]
    if draft is not None and not any(drafters.entry(name).needs_draft for name in names):
        names.append("model")
    return tuple(dict.fromkeys([*names, "ngram"]))


def _length(N: Length) -> Length:
    if N != "auto" and not 0 <= N <= MOST:
        raise UsageError(f"N is {N}", hint=f"Choose 0 .. {MOST}, or auto.")
    return N
