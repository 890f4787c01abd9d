"""The cache is the text: whatever was evaluated, accepted, rejected or forgotten, logits equal a fresh context's.

A random walk over everything a context can be asked, on every kind of memory that llama.cpp knows.
"""

from __future__ import annotations

import numpy as np
import pytest

from localspec.core.draft import EMPTY, Draft
from localspec.engine.base import Pass
from localspec.engine.context import ContextSettings, LlamaContext
from localspec.engine.memory import Snapshots, StateCopy, Truncation
from localspec.engine.model import LlamaModel
from localspec.engine.native import lib
from localspec.errors import LoadError
from tests.engine.kinds import Kind
from tests.engine.reference import Reference

FIRST, LAST = 5, 261  # ordinary ids


class Walker:
    """Plays with a context, keeps its own idea of the text, and checks every row that comes back."""

    def __init__(self, context: LlamaContext, reference: Reference, kind: Kind, seed: int) -> None:
        self.context, self.reference, self.kind = context, reference, kind
        self.rng = np.random.default_rng(seed)
        self.text: list[int] = []

    def tokens(self, count: int) -> list[int]:
        return [int(token) for token in self.rng.integers(FIRST, LAST, count)]

    def check(self, result: Pass, row: int, text: list[int]) -> None:
        expected = self.reference.rows(text)[0]
        difference = float(np.abs(result.logits(row) - expected).max())
        assert difference < self.kind.tolerance, f"row {row} after {len(text)} tokens is off by {difference}"

    def prefill(self, text: list[int]) -> None:
        self.text = text
        result = self.context.prefill(text)
        assert result is not None
        assert result.rows == 1
        self.check(result, 0, text)

    def extend(self) -> None:
        self.prefill(self.text + self.tokens(int(self.rng.integers(1, 40))))

    def again(self) -> None:
        self.prefill(list(self.text))

    def edit(self) -> None:
        keep = int(self.rng.integers(0, len(self.text)))
        self.prefill(self.text[:keep] + self.tokens(int(self.rng.integers(1, 10))))

    def prefill_unread(self) -> None:
        self.text = self.text + self.tokens(int(self.rng.integers(1, 10)))
        assert self.context.prefill(self.text, logits=False) is None

    def rewind(self) -> None:
        length = len(self.text) - int(self.rng.integers(0, min(9, len(self.text))))
        self.context.rewind(length)
        self.text = self.text[:length]

    def rewind_far(self) -> None:
        length = int(self.rng.integers(1, len(self.text) + 1))
        self.context.rewind(length)
        self.text = self.text[:length]

    def draft(self) -> Draft:
        count = int(self.rng.integers(0, self.context.draft_room + 1))
        if not self.context.has_trees or self.rng.random() < 0.5:
            return Draft.chain(self.tokens(count))
        while True:
            parents = [int(self.rng.integers(-1, node)) if node else -1 for node in range(count)]
            if count - len(set(parents) - {-1}) <= self.context.leaves:
                return Draft(np.array(self.tokens(count), dtype=np.int32), np.array(parents, dtype=np.int32))

    def evaluate(self) -> tuple[int, Draft]:
        pending, draft = self.tokens(1)[0], self.draft()
        result = self.context.evaluate(pending, draft)
        assert result.rows == 1 + len(draft)
        self.check(result, 0, [*self.text, pending])
        for node in range(len(draft)):
            path = draft.tokens[list(draft.path(node))].tolist()
            self.check(result, 1 + node, [*self.text, pending, *path])
        return pending, draft

    def round(self) -> None:
        pending, draft = self.evaluate()
        last = int(self.rng.integers(-1, len(draft)))
        path = draft.path(last)
        self.context.commit(path)
        self.text = [*self.text, pending, *draft.tokens[list(path)].tolist()]

    def given_up_round(self) -> None:
        self.evaluate()
        self.context.rewind(len(self.text))

    def given_up_round_and_more(self) -> None:
        self.evaluate()
        self.rewind()

    def round_then_prefill(self) -> None:
        self.evaluate()
        self.extend()

    def step(self) -> str:
        moves = [self.extend, self.again, self.edit, self.prefill_unread, self.rewind, self.rewind_far]
        moves += [self.given_up_round, self.given_up_round_and_more, self.round_then_prefill, *[self.round] * 6]
        move = moves[int(self.rng.integers(len(moves)))]
        move()
        if len(self.text) > self.context.capacity - 60:
            self.prefill(self.tokens(self.kind.start))
        return move.__name__


@pytest.mark.parametrize("seed", range(4))
def test_any_walk_leaves_the_cache_equal_to_the_text(
    context: LlamaContext, reference: Reference, kind: Kind, seed: int
) -> None:
    walker = Walker(context, reference, kind, seed)
    walker.prefill(walker.tokens(kind.start))
    done = []
    for _ in range(40):
        done.append(walker.step())
        assert context.tokens.tolist() == walker.text, done
        assert context.length == len(walker.text)


def test_each_kind_gets_the_cheapest_memory_that_works(context: LlamaContext, kind: Kind) -> None:
    """B32: chosen by a trial. A memory that starts the text over would pass every test of rows, and be useless."""
    recurrent = {"mamba": StateCopy, "jamba": StateCopy, "lfm2": Snapshots, "lfm2-swa": Snapshots}
    assert type(context.memory) is recurrent.get(kind.model, Truncation)


def test_a_rejection_evaluates_no_more_than_the_accepted_tokens(context: LlamaContext, kind: Kind) -> None:
    """B32: forgetting rejected tokens must not cost a second look at the whole text."""
    context.prefill(list(range(10, 10 + 100)))
    evaluated = count_evaluated(context)
    context.evaluate(20, Draft.chain([21, 22, 23, 24]))
    context.commit((0, 1))
    assert sum(evaluated) <= 5 + 3
    assert context.length == 103


def test_a_rejection_past_the_window_evaluates_no_more_either(context: LlamaContext, kind: Kind) -> None:
    """B31."""
    walker = np.random.default_rng(0)
    context.prefill(walker.integers(FIRST, LAST, min(900, context.capacity - 100), dtype=np.int32))
    evaluated = count_evaluated(context)
    for _ in range(5):
        context.evaluate(20, Draft.chain([21, 22, 23, 24]))
        context.commit((0,))
    assert sum(evaluated) <= 5 * (5 + 2)


def test_the_same_prompt_again_costs_one_token(context: LlamaContext, kind: Kind) -> None:
    """B25, B36: a turn that repeats the text evaluates only what is new, on memories that can step back at all."""
    text = list(range(10, 10 + 100))
    context.prefill(text)
    context.evaluate(20, EMPTY)
    context.commit(())
    evaluated = count_evaluated(context)
    context.prefill([*text, 20, 30, 31])
    assert sum(evaluated) == 2


@pytest.mark.parametrize("name", ["llama", "swa", "mamba", "jamba", "lfm2", "lfm2-swa"])
def test_a_draft_context_never_reads_the_text_again(models: dict[str, LlamaModel], name: str) -> None:
    """B27, B32: it drafts token by token, so nothing of a round lies within one pass; a copy of the state must do."""
    settings = ContextSettings(capacity=512, draft_room=6, snapshots=False, flash_attn="off")
    with LlamaContext(models[name], settings) as context:
        rng = np.random.default_rng(0)
        text = [int(token) for token in rng.integers(FIRST, LAST, 100)]
        context.prefill(text[:-1], logits=False)
        for accepted in (0, 1, 4, 2, 0, 3):
            drafted = [int(token) for token in rng.integers(FIRST, LAST, 5)]
            context.prefill(text)
            for token in drafted[:4]:
                context.evaluate(token, EMPTY)
                context.commit(())
            text += [*drafted[:accepted], int(rng.integers(FIRST, LAST))]
        assert context.evaluated <= 100 + 6 * (4 + 1) + len(text) - 100 + 6


def count_evaluated(context: LlamaContext) -> list[int]:
    """Sizes of all batches that reach llama.cpp from now on."""
    sizes: list[int] = []
    decode = context._decode

    def counting(batch: object) -> int:
        sizes.append(batch.n_tokens)  # type: ignore[attr-defined]
        return decode(batch)

    context._decode = counting  # type: ignore[method-assign]
    return sizes


@pytest.mark.parametrize("name", ["llama", "jamba"])
@pytest.mark.parametrize("lie", ["starts over", "does nothing"])
def test_a_memory_that_cannot_forget_is_refused_at_load(
    models: dict[str, LlamaModel], monkeypatch: pytest.MonkeyPatch, name: str, lie: str
) -> None:
    """llama.cpp often says yes where it should not; rejected tokens would then stay in sight of all that follows."""

    def retreat(self: Truncation | StateCopy, length: int, *, reached: int, last_pass: int) -> int:
        if lie == "does nothing":
            return length
        lib.llama_memory_clear(self._memory, False)
        return 0

    for memory in (Truncation, Snapshots, StateCopy):
        monkeypatch.setattr(memory, "retreat", retreat)
    settings = ContextSettings(capacity=64, flash_attn="off")
    freed: list[object] = []
    free = lib.llama_free

    def noted(handle: object) -> None:
        freed.append(handle)
        free(handle)

    monkeypatch.setattr(lib, "llama_free", noted)
    with pytest.raises(LoadError, match=f"{name}.*cannot forget rejected tokens") as caught:
        LlamaContext(models[name], settings)
    assert "report the architecture" in caught.value.hint
    assert len(freed) == 1, "a context that is refused does not stay in memory"
    monkeypatch.undo()
    with LlamaContext(models[name], settings) as context:
        assert context.prefill([5, 6, 7]) is not None


def test_a_window_that_has_moved_on_starts_over(models: dict[str, LlamaModel]) -> None:
    """What lies before the window is gone: going back to it means reading again, never a cache with a hole."""
    with LlamaContext(models["swa"], ContextSettings(capacity=1024, batch=32, flash_attn="off")) as context:
        context.prefill([5 + i % 250 for i in range(500)])
        before = context.evaluated
        context.rewind(100)
        assert context.length == 100
        assert context.evaluated == before + 100
