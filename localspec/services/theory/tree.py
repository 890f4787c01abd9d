"""`theory tree`: trees against chains that give the verifier equally many tokens to look at.

The real drafter grows a tree of a fixed shape from the toy draft, siblings drawn without replacement; the toy verifier
evaluates it in one pass and the real rule judges it. Knows nothing about tables or terminals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from localspec.core.draft import ROOT, Draft, Verdict
from localspec.core.rejection import Rejection
from localspec.core.shapes import Place, Shape
from localspec.drafters.base import Budget
from localspec.errors import UsageError
from localspec.loop.round import play_round
from localspec.services.report import Report
from localspec.services.theory.toy import PROMPT, QUALITIES, ROOM, WHOLE, Quality, ToyPair

SHAPES = ("2,2,2", "4,2", "3,3")
TOLD = 100


@dataclass(frozen=True)
class Leaf:
    """The end of one path of the tree.

    place    ranks among siblings from the root down, 0 = eldest
    reached  share of the passes that accepted the whole path
    alpha    accepted / tested of the leaf itself, None when it was never tested
    """

    place: Place
    reached: float
    alpha: float | None


@dataclass(frozen=True)
class Grown:
    """One shape with one draft.

    alpha              of a single draw, in the long run
    accepted_by_depth  share of the passes that accepted a token at each depth
    speedup            over plain decoding, when a draft pass per depth costs c and a verifier pass 1
    """

    quality: Quality
    name: str
    shape: Shape
    alpha: float
    tokens_per_pass: float
    speedup: float
    accepted_by_depth: tuple[float, ...]
    leaves: tuple[Leaf, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "draft": self.quality.name,
            "alpha": self.alpha,
            "shape": self.name,
            "nodes": len(self.shape),
            "depth": self.shape.depth,
            "tokens_per_pass": self.tokens_per_pass,
            "speedup": self.speedup,
            "accepted_by_depth": list(self.accepted_by_depth),
            "leaves": [
                {"place": list(leaf.place), "reached": leaf.reached, "alpha": leaf.alpha} for leaf in self.leaves
            ],
        }


@dataclass(frozen=True)
class Trees:
    """All shapes with all drafts; trees are followed by the chain with as many nodes."""

    samples: int
    c: float
    seed: int
    rows: tuple[Grown, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "schema": "localspec.theory.tree/1",
            "samples": self.samples,
            "c": self.c,
            "seed": self.seed,
            "rows": [row.as_dict() for row in self.rows],
        }


def trees(*, shapes: Sequence[str], samples: int, c: float, seed: int, report: Report) -> Trees:
    """Play `samples` rounds of every shape, and of the chain with as many nodes, with every draft quality.

    Raises `UsageError` for a shape that is none or too large.
    """
    forms: dict[str, Shape] = {}
    for text in shapes:
        shape = Shape.parse(text)
        if len(shape) > ROOM:
            raise UsageError(
                f"the tree {text} has {len(shape)} nodes, but a toy pass takes {ROOM}",
                hint="Choose fewer branches or fewer levels.",
            )
        forms[text] = shape
        forms[f"chain of {len(shape)}"] = Shape.branching([1] * len(shape))
    rows = []
    for quality in QUALITIES:
        pair = ToyPair(quality.blur, seed=seed)
        for place, (name, shape) in enumerate(forms.items()):
            what = f"{quality.name} draft, {name}"
            play = player(pair, shape, np.random.default_rng([seed, place]))
            seen = Seen()
            for step in range(1, samples + 1):
                seen.add(*play())
                if step % TOLD == 0 or step == samples:
                    report.progress(what, step, samples, "steps")
            rows.append(seen.grown(quality, name, shape, alpha=pair.alpha(), c=c))
    return Trees(samples, c, seed, tuple(rows))


def player(pair: ToyPair, shape: Shape, rng: np.random.Generator) -> Callable[[], tuple[Draft, Verdict]]:
    """Plays one round after the other along a growing text, so that contexts are as frequent as they are in texts."""
    verifier, drafter, rule = pair.verifier(), pair.drafter(), Rejection(rng)
    budget = Budget(len(shape), pays=lambda depth, confidence: True, leaves=shape.leaves, tree=shape)
    text = list(PROMPT)
    drafter.begin(np.array(text, dtype=np.int32), sampling=WHOLE, rule=rule, cancelled=budget.cancelled)

    def play() -> tuple[Draft, Verdict]:
        # The law looks two tokens back: a text that has grown too long for the context goes on from its end.
        if len(text) + len(shape) >= verifier.capacity:
            del text[: -len(PROMPT)]
        tokens = np.array(text, dtype=np.int32)
        verifier.prefill(tokens[:-1], logits=False)
        played = play_round(
            tokens,
            verifier=verifier,
            propose=lambda: drafter.propose(tokens, budget),
            observe=drafter.observe,
            sampling=WHOLE,
            rule=rule,
            keep=len,
        )
        text.extend(played.block)
        return played.draft, played.verdict

    return play


class Seen:
    """Counts of rounds of one shape, by place."""

    def __init__(self) -> None:
        self.rounds = 0
        self.emitted = 0
        self.tested: Counter[Place] = Counter()
        self.accepted: Counter[Place] = Counter()

    def add(self, draft: Draft, verdict: Verdict) -> None:
        """One more round."""
        at = places(draft)
        self.rounds += 1
        self.emitted += len(verdict.path) + 1
        self.tested.update(at[node] for node in judged(draft, verdict))
        self.accepted.update(at[node] for node in verdict.path)

    def grown(self, quality: Quality, name: str, shape: Shape, *, alpha: float, c: float) -> Grown:
        """The figures."""
        leaves = sorted(place for place in shape.places if place not in shape.widths)
        return Grown(
            quality,
            name,
            shape,
            alpha,
            self.emitted / self.rounds,
            self.emitted / self.rounds / (1.0 + shape.depth * c),
            tuple(self._accepted_at(depth) / self.rounds for depth in range(1, shape.depth + 1)),
            tuple(Leaf(leaf, self.accepted[leaf] / self.rounds, self._alpha(leaf)) for leaf in leaves),
        )

    def _accepted_at(self, depth: int) -> int:
        return sum(count for place, count in self.accepted.items() if len(place) == depth)

    def _alpha(self, place: Place) -> float | None:
        return self.accepted[place] / self.tested[place] if self.tested[place] else None


def judged(draft: Draft, verdict: Verdict) -> list[int]:
    """Nodes whose acceptance was decided: accepted ones, their elder siblings, and all that were refused at the end."""
    found: list[int] = []
    for parent, chosen in zip((ROOT, *verdict.path), (*verdict.path, None), strict=True):
        siblings = draft.children.get(parent, ())
        found += siblings if chosen is None else siblings[: siblings.index(chosen) + 1]
    return found


def places(draft: Draft) -> dict[int, Place]:
    """Node -> its place."""
    found: dict[int, Place] = {ROOT: ()}
    for parent in (ROOT, *range(len(draft))):
        for rank, child in enumerate(draft.children.get(parent, ())):
            found[child] = (*found[parent], rank)
    return found
