"""Is the speculative text the plain text? First differences, near ties, and how much a text repeats itself.

A broken engine that says one word for ever is the fastest of all, since repetition is easy to draft; so a benchmark
has to read what it timed. Near ties are judged by replaying both ways on the verifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from localspec.core.draft import Draft
from localspec.engine.base import Context

LOOP_SIZE = 4  # tokens


@dataclass(frozen=True)
class Difference:
    """Where two greedy texts part: `place` is the index in the completion, `gap` and `noise` are in logits.

    gap    by how much plain decoding preferred its own token there
    noise  by how much the shape of the batches alone moves a difference of two logits there, or at least
    """

    prompt: int
    place: int
    gap: float
    noise: float

    @property
    def is_near_tie(self) -> bool:
        """True when the arithmetic of the backend explains the difference."""
        return self.gap <= self.noise


def first_difference(mine: Sequence[int], theirs: Sequence[int]) -> int | None:
    """Index of the first token that differs, None for equal texts; a text that ends early differs at its end."""
    for place, (a, b) in enumerate(zip(mine, theirs, strict=False)):
        if a != b:
            return place
    return None if len(mine) == len(theirs) else min(len(mine), len(theirs))


def loop_share(tokens: Sequence[int]) -> float | None:
    """Share of the 4-grams of a text that it has already said before; None for texts shorter than that."""
    grams = [tuple(tokens[at : at + LOOP_SIZE]) for at in range(len(tokens) - LOOP_SIZE + 1)]
    return 1.0 - len(set(grams)) / len(grams) if grams else None


def judge(
    context: Context,
    prompt: Sequence[int],
    plain: Sequence[int],
    other: Sequence[int],
    *,
    index: int,
    lengths: Sequence[int],
    branches: int = 1,
) -> Difference | None:
    """Replay the common part of two greedy completions of `prompt` and weigh the difference; None for equal texts.

    `lengths` are the batch sizes in which the speculative run may have decoded; with `branches` above 1 it may have
    decoded trees of that width as well, whose tokens lie in another order in the cache. The context is left with the
    replayed text in it.
    """
    place = first_difference(plain, other)
    if place is None:
        return None
    if place in (len(plain), len(other)):
        return Difference(index, place, float("inf"), 0.0)  # one text goes on where the other was cut: no tie does that
    said = plain[:place]
    alone = replay(context, prompt, said, 1)
    gap = float(alone[plain[place]] - alone[other[place]])
    noise = 0.0
    for length, width in product(lengths, sorted({1, branches})):
        moved = float(np.abs(replay(context, prompt, said, length, width) - alone).max())
        noise = max(noise, 2.0 * moved)  # each of the two logits may move by that much, in opposite directions
        if gap <= noise:
            break  # a replay reads the whole text again, and this one has explained the difference
    return Difference(index, place, gap, noise)


def replay(
    context: Context, prompt: Sequence[int], said: Sequence[int], step: int, branches: int = 1
) -> npt.NDArray[np.float32]:
    """(V,) logits after `prompt` and `said`, the last evaluated `step` tokens at a time as accepted drafts are.

    The last pass is filled up to its size with tokens that do not count, as passes are by rejected drafts; with
    `branches` above 1 every token has elder siblings that do not count either.
    """
    context.rewind(0)
    context.prefill(prompt[:-1], logits=False)
    tokens = [prompt[-1], *said]
    step = min(step, 1 + deepest(context, branches))
    for start in range(0, len(tokens), step):
        block = tokens[start : start + step]
        depth = max(len(block), min(step, context.capacity - context.length)) - 1
        draft = woven([*block[1:], *[tokens[0]] * (depth + 1 - len(block))], branches, filler=tokens[0])
        path = [branches * at + branches - 1 for at in range(len(block) - 1)]
        result = context.evaluate(block[0], draft)
        row = np.array(result.logits(path[-1] + 1 if path else 0))
        context.commit(path)
    return row


def deepest(context: Context, branches: int) -> int:
    """Longest path of a tree with `branches` children below each node of it that one pass takes."""
    if branches == 1:
        return context.draft_room
    return min(context.draft_room // branches, (context.leaves - 1) // (branches - 1))


def woven(path: Sequence[int], branches: int, *, filler: int) -> Draft:
    """`path` as a draft in which each token is the youngest of `branches` siblings."""
    tokens = [token for own in path for token in (*[filler] * (branches - 1), own)]
    parents = [at // branches * branches - 1 for at in range(len(tokens))]
    return Draft(np.array(tokens, dtype=np.int32), np.array(parents, dtype=np.int32))
