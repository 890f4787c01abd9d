"""The whole loop under random hands: turns, drafters, lengths, trees, stops, limits, full contexts, edits, retries,
undo, save and load, and interrupts at any step or line, in any order; on a toy whose right answers are known.

Never more than one of: text = detokenised tokens; cache = text; counters that add up; the same answer as plain decoding
from an empty cache, so that nothing of an earlier answer leaks.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from localspec.drafters.registry import REGISTRY
from localspec.engine.toy import ToyContext
from localspec.services.chat.template import Template
from tests.property import examples
from tests.property import operations as op
from tests.property.chats import Chat
from tests.property.runtimes import WILD, Toy, ToyRuntime
from tests.property.speech import TEMPLATE, VOCAB, Said, plain, toy_pick
from tests.services.toy_pair import Collected

_numbers = itertools.count()


@pytest.fixture(scope="module")
def world() -> Iterator[Path]:
    """A wild drafter among the others, and a cache folder of one's own."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setitem(REGISTRY, "wild", WILD)
        patch.setenv("LOCALSPEC_CACHE", folder)
        yield Path(folder)


@pytest.fixture(scope="module")
def template() -> Template:
    return Template(TEMPLATE, "<s>", "<|im_end|>")


def toys() -> st.SearchStrategy[Toy]:
    return st.builds(
        Toy, st.integers(1, 3), capacity=st.sampled_from([96, 200, 40]), leaves=st.sampled_from([16, 1, 3])
    )


@settings(max_examples=examples.count(1600), suppress_health_check=list(HealthCheck))
@given(toy=toys(), first=op.drafts(), todo=st.lists(op.operations(VOCAB.size), min_size=1, max_size=12))
def test_whatever_is_done_everything_stays_true(
    world: Path, template: Template, toy: Toy, first: op.Draft, todo: list[op.Operation]
) -> None:
    def expect(prompt: Sequence[int], how: op.How) -> Said | None:
        is_coupled = how.acceptance == "coupled" or (how.acceptance is None and how.seed is not None)
        if not how.law.greedy and (not is_coupled or how.seed is None):
            return None
        seed = None if how.law.greedy else how.seed
        pick = toy_pick(toy.verifier, how.law, seed)
        return plain(pick, VOCAB, prompt, max_tokens=how.max_tokens, stops=how.stop, capacity=toy.capacity)

    folder = world / f"{next(_numbers)}"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALSPEC_CACHE", str(folder))
        report = Collected()
        runtime = ToyRuntime(toy, report)
        with runtime:
            chat = Chat(runtime, report, template, folder, expect, ToyContext(toy.verifier, capacity=toy.capacity))
            for operation in [first, *todo]:
                event(type(operation).__name__)
                chat.do(operation)
            chat.look()
