"""Growing a tree layer by layer: on llama.cpp and on the toy the same calls leave the same text and fitting rows.

What a row must be is asked of a context that never saw a tree, so that toy and engine are held to the same promises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localspec.core.draft import EMPTY, Draft, Ids
from localspec.engine.base import Context
from localspec.engine.context import ContextSettings, LlamaContext
from localspec.engine.model import LlamaModel
from localspec.engine.toy import ToyContext, ToyModel
from localspec.errors import ContextFullError, DecodeError
from tests.engine.test_trees import in_layers, layers, others_are_empty

SETTINGS = ContextSettings(capacity=96, draft_room=12, leaves=6, flash_attn="off")
SIZE = 261
TEXT = [int(token) for token in np.random.default_rng(5).integers(5, SIZE, 20)]
TOLERANCE = 0.02
Make = Callable[[], Context]


@pytest.fixture(scope="module", params=["llama", "q8_0", "toy"])
def make(request: pytest.FixtureRequest, models: dict[str, LlamaModel]) -> Make:
    """Makes contexts that hold nothing yet."""
    if request.param == "llama":
        return lambda: LlamaContext(models["llama"], SETTINGS)
    if request.param == "q8_0":
        quantised = ContextSettings(capacity=96, draft_room=12, leaves=6, kv_type="q8_0")
        return lambda: LlamaContext(models["wide-heads"], quantised)
    model = ToyModel(SIZE)
    return lambda: ToyContext(model, capacity=96, draft_room=12, leaves=6)


@pytest.fixture(scope="module")
def tolerance(make: Make) -> float:
    """What batch shape and cache type alone may change of a logit; rows of another path are off by whole units."""
    made = make()
    made.close()
    return 0.3 if isinstance(made, LlamaContext) and made.settings.kv_type == "q8_0" else TOLERANCE


@pytest.fixture(scope="module")
def growing(make: Make) -> Iterator[Context]:
    context = make()
    yield context
    context.close()


@pytest.fixture(scope="module")
def fresh(make: Make) -> Iterator[Context]:
    context = make()
    yield context
    context.close()


@pytest.fixture
def context(growing: Context) -> Context:
    growing.rewind(0)
    growing.prefill(TEXT)
    return growing


def ids(*tokens: int) -> Ids:
    return np.array(tokens, dtype=np.int32)


def row_after(fresh: Context, text: list[int]) -> np.ndarray:
    """The row of a context that is told this text and nothing else."""
    fresh.rewind(0)
    result = fresh.prefill(text)
    assert result is not None
    return result.logits(0).copy()


def holds(context: Context, text: list[int], fresh: Context, tolerance: float) -> None:
    """The context holds `text`, and goes on as if it had never held anything else."""
    assert context.tokens.tolist() == text
    if isinstance(context, LlamaContext):
        assert others_are_empty(context)
    row = context.evaluate(77, Draft.chain([78])).logits(1).copy()
    context.rewind(len(text))
    assert np.abs(row - row_after(fresh, [*text, 77, 78])).max() < tolerance


@st.composite
def trees(draw: st.DrawFn, nodes: int = 12, leaves: int = 6) -> Draft:
    """Any tree with this much room, in layers; equal siblings happen."""
    parents: list[int] = []
    for node in range(draw(st.integers(1, nodes))):
        ends = node - len(set(parents) - {-1})
        inner = st.sampled_from([one for one in range(node) if one not in parents] or [-1])
        parents.append(draw(st.integers(-1, node - 1)) if ends < leaves else draw(inner))
    tokens = draw(st.lists(st.integers(5, 40), min_size=len(parents), max_size=len(parents)))
    return in_layers(Draft(ids(*tokens), ids(*parents)))


def grow(context: Context, draft: Draft) -> list[np.ndarray]:
    """The row of every node, one call per layer."""
    rows: list[np.ndarray] = []
    for layer in layers(draft):
        result = context.grow(draft.tokens[layer], draft.parents[layer])
        assert result.rows == len(layer)
        rows += [result.logits(row).copy() for row in range(len(layer))]
    return rows


ONE_CONTEXT = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


@ONE_CONTEXT
@given(draft=trees(), choice=st.integers(-1, 11), keeps=st.booleans())
def test_rows_are_those_of_the_paths_and_one_path_stays(
    growing: Context, fresh: Context, tolerance: float, draft: Draft, choice: int, keeps: bool
) -> None:
    growing.rewind(0)
    growing.prefill(TEXT)
    rows = grow(growing, draft)
    assert growing.tokens.tolist() == TEXT  # nothing is committed yet
    for node, row in enumerate(rows):
        expected = row_after(fresh, [*TEXT, *draft.tokens[list(draft.path(node))].tolist()])
        assert np.abs(row - expected).max() < tolerance
    path = draft.path(min(choice, len(draft) - 1))
    if keeps:
        growing.commit(path)
        holds(growing, [*TEXT, *draft.tokens[list(path)].tolist()], fresh, tolerance)
    else:
        growing.rewind(len(TEXT))
        holds(growing, TEXT, fresh, tolerance)


def test_nodes_are_evaluated_once(context: Context) -> None:
    before = context.evaluated
    grow(context, Draft(ids(10, 11, 12, 13), ids(-1, -1, 0, 0)))
    context.commit((0, 3))
    assert context.evaluated == before + 4


def test_a_rewind_into_the_text_forgets_the_tree_too(context: Context, fresh: Context, tolerance: float) -> None:
    context.grow(ids(10, 11), ids(-1, -1))
    context.rewind(12)
    holds(context, TEXT[:12], fresh, tolerance)


@pytest.mark.parametrize("wanted", [TEXT, [*TEXT, 10], [*TEXT[:15], 90, 91], TEXT[:7]], ids=len)
def test_a_prefill_in_the_middle_ends_the_tree(
    context: Context, fresh: Context, tolerance: float, wanted: list[int]
) -> None:
    """The next text comes before anybody has asked what the tree was worth: the same, longer, edited, shorter."""
    context.grow(ids(10, 11), ids(-1, -1))
    context.grow(ids(12, 13), ids(0, 1))
    result = context.prefill(wanted)
    assert result is not None
    row = result.logits(0).copy()
    assert np.abs(row - row_after(fresh, wanted)).max() < tolerance
    holds(context, wanted, fresh, tolerance)
    context.grow(ids(14), ids(-1))
    context.commit((0,))
    holds(context, [*wanted, 14], fresh, tolerance)


def test_trees_chains_and_trees_again(context: Context, fresh: Context, tolerance: float) -> None:
    text = list(TEXT)
    for start in range(20, 60, 10):
        context.grow(ids(start, start + 1), ids(-1, -1))
        context.grow(ids(start + 2, start + 3), ids(1, 1))
        context.commit((1, 3))
        context.evaluate(start + 4, EMPTY)
        context.commit(())
        text += [start + 1, start + 3, start + 4]
    holds(context, text, fresh, tolerance)


def refuse(context: Context, error: type[Exception], tokens: Ids, parents: Ids) -> str:
    with pytest.raises(error) as caught:
        context.grow(tokens, parents)
    return str(caught.value)


def test_more_leaves_than_the_context_has(context: Context, fresh: Context, tolerance: float) -> None:
    """B92: both numbers are told, at once or in a later layer; the tree is gone and the text is what it was."""
    told = refuse(context, DecodeError, ids(*range(10, 17)), ids(*[-1] * 7))
    assert "7 leaves" in told
    assert "6" in told
    holds(context, TEXT, fresh, tolerance)
    context.grow(ids(*range(10, 16)), ids(*[-1] * 6))
    assert "7 leaves" in refuse(context, DecodeError, ids(20, 21), ids(3, 3))
    holds(context, TEXT, fresh, tolerance)


def test_as_many_leaves_as_the_context_has(context: Context, fresh: Context, tolerance: float) -> None:
    """An only child goes on in its parent's sequence: depth costs no leaves."""
    context.grow(ids(*range(10, 16)), ids(*[-1] * 6))
    context.grow(ids(*range(20, 26)), ids(*range(6)))
    context.commit((5, 11))
    holds(context, [*TEXT, 15, 25], fresh, tolerance)


def test_more_nodes_than_the_context_takes(context: Context, fresh: Context, tolerance: float) -> None:
    context.grow(ids(10), ids(-1))
    for node in range(11):
        context.grow(ids(11 + node), ids(node))
    assert "13 nodes" in refuse(context, ContextFullError, ids(30), ids(11))
    holds(context, TEXT, fresh, tolerance)


def test_a_context_that_is_nearly_full(context: Context, fresh: Context, tolerance: float) -> None:
    """Every node takes a cell, whatever its depth: six siblings do not fit where five do."""
    text = (TEXT * 5)[: 96 - 5]
    context.prefill(text)
    assert "91 of 96" in refuse(context, ContextFullError, ids(*range(10, 16)), ids(*[-1] * 6))
    context.rewind(len(text))
    context.grow(ids(*range(10, 14)), ids(-1, -1, -1, -1))
    context.grow(ids(14), ids(2))
    context.commit((2, 4))
    holds(context, [*text, 12, 14], fresh, tolerance)


def test_a_token_that_does_not_exist(context: Context, fresh: Context, tolerance: float) -> None:
    """B28."""
    context.grow(ids(10, 11), ids(-1, -1))
    refuse(context, DecodeError, ids(12, 99_999), ids(0, 1))
    holds(context, TEXT, fresh, tolerance)


@pytest.mark.parametrize("name", ["mamba", "jamba", "lfm2", "swa"])
def test_where_no_tree_can_grow_it_is_an_error_and_not_a_crash(models: dict[str, LlamaModel], name: str) -> None:
    """B32: llama.cpp would abort the process over a sequence that the context does not have."""
    for leaves in (0, 6):
        chains_only = ContextSettings(capacity=96, draft_room=12, leaves=leaves, flash_attn="off")
        with LlamaContext(models[name], chains_only) as context:
            context.prefill(TEXT)
            assert "chains" in refuse(context, DecodeError, ids(10), ids(-1))
            assert context.tokens.tolist() == TEXT
            context.evaluate(50, Draft.chain([51, 52]))
            context.commit((0,))
            assert context.tokens.tolist() == [*TEXT, 50, 51]
