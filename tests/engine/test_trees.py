"""Trees: evaluated in one pass or grown in layers, every row is a chain's row, and what is committed is one path."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from localspec.core.draft import EMPTY, Draft, Ids
from localspec.engine.context import ContextSettings, LlamaContext
from localspec.engine.model import LlamaModel
from localspec.engine.native import lib
from localspec.errors import ContextFullError, DecodeError
from tests.engine.reference import Reference

TEXT = [int(token) for token in np.random.default_rng(3).integers(5, 261, 30)]
SETTINGS = ContextSettings(capacity=256, draft_room=12, leaves=6, flash_attn="off")
TOLERANCE = 0.02


@pytest.fixture
def context(models: dict[str, LlamaModel]) -> Iterator[LlamaContext]:
    with LlamaContext(models["llama"], SETTINGS) as made:
        made.prefill(TEXT)
        yield made


@pytest.fixture
def reference(models: dict[str, LlamaModel]) -> Iterator[Reference]:
    with Reference(models["llama"], SETTINGS) as made:
        yield made


def ids(*tokens: int) -> Ids:
    return np.array(tokens, dtype=np.int32)


def random_tree(rng: np.random.Generator, *, nodes: int, leaves: int) -> Draft:
    while True:
        count = int(rng.integers(1, nodes + 1))
        parents = [int(rng.integers(-1, node)) if node else -1 for node in range(count)]
        if count - len(set(parents) - {-1}) <= leaves:
            return Draft(rng.integers(5, 261, count).astype(np.int32), np.array(parents, dtype=np.int32))


def others_are_empty(context: LlamaContext) -> bool:
    memory = lib.llama_get_memory(context._handle)
    return all(lib.llama_memory_seq_pos_max(memory, sequence) == -1 for sequence in range(1, 1 + context.leaves))


@pytest.mark.parametrize("seed", range(8))
def test_every_node_gets_the_row_of_its_path(context: LlamaContext, reference: Reference, seed: int) -> None:
    draft = random_tree(np.random.default_rng(seed), nodes=12, leaves=6)
    result = context.evaluate(50, draft)
    for node in range(len(draft)):
        path = draft.tokens[list(draft.path(node))].tolist()
        expected = reference.rows([*TEXT, 50, *path])[0]
        assert np.abs(result.logits(1 + node) - expected).max() < TOLERANCE


@pytest.mark.parametrize("seed", range(8))
def test_commit_keeps_one_path_and_nothing_else(context: LlamaContext, reference: Reference, seed: int) -> None:
    """Every node of the tree as the end of the path, and none at all."""
    draft = random_tree(np.random.default_rng(seed), nodes=12, leaves=6)
    for last in range(-1, len(draft)):
        context.evaluate(50, draft)
        context.commit(draft.path(last))
        text = [*TEXT, 50, *draft.tokens[list(draft.path(last))].tolist()]
        assert context.tokens.tolist() == text
        assert others_are_empty(context)
        result = context.evaluate(60, EMPTY)
        assert np.abs(result.logits(0) - reference.rows([*text, 60])[0]).max() < TOLERANCE
        context.rewind(len(TEXT))


def test_a_tree_in_chain_order_is_the_chain(context: LlamaContext) -> None:
    """A chain is a thin tree: a useless second leaf moves no row."""
    chain = context.evaluate(50, Draft.chain([51, 52, 53]))
    rows = [chain.logits(row).copy() for row in range(4)]
    context.rewind(len(TEXT))
    tree = context.evaluate(50, Draft(ids(51, 52, 53, 99), ids(-1, 0, 1, -1)))
    assert max(float(np.abs(tree.logits(row) - rows[row]).max()) for row in range(4)) < TOLERANCE


def test_equal_siblings_are_harmless(context: LlamaContext, reference: Reference) -> None:
    """Drawn siblings may repeat a token."""
    result = context.evaluate(50, Draft(ids(51, 51, 52, 52), ids(-1, -1, 0, 1)))
    assert np.abs(result.logits(3) - result.logits(4)).max() < TOLERANCE
    context.commit((1, 3))
    assert context.tokens.tolist() == [*TEXT, 50, 51, 52]


def test_trees_never_leak_cells(context: LlamaContext) -> None:
    """A hundred trees in a cache of 256 cells: rejected nodes and leaf sequences give all of theirs back."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        draft = random_tree(rng, nodes=12, leaves=6)
        context.evaluate(50, draft)
        context.commit(draft.path(int(rng.integers(-1, len(draft)))))
        if context.length > 230:
            context.rewind(len(TEXT))
    assert others_are_empty(context)


def test_a_tree_fits_to_the_last_cell(context: LlamaContext) -> None:
    """Nodes take cells, whatever their depth."""
    context.prefill((TEXT * 9)[: 256 - 5])
    with pytest.raises(ContextFullError):
        context.evaluate(50, Draft(ids(*range(10, 15)), ids(-1, -1, -1, -1, -1)))
    context.evaluate(50, Draft(ids(*range(10, 14)), ids(-1, -1, -1, -1)))
    context.commit((3,))
    assert context.length == 253


def test_chains_and_trees_alternate(context: LlamaContext, reference: Reference) -> None:
    """The batch that a tree spread over sequences is gathered again for the chain after it."""
    context.evaluate(50, Draft(ids(51, 52), ids(-1, -1)))
    context.commit((1,))
    result = context.evaluate(53, Draft.chain([54, 55]))
    assert np.abs(result.logits(2) - reference.rows([*TEXT, 50, 52, 53, 54, 55])[0]).max() < TOLERANCE


# -- layer by layer ---------------------------------------------------------------------------------------------------


def layers(draft: Draft) -> Iterator[list[int]]:
    for depth in range(1, int(draft.depths.max()) + 1):
        yield np.flatnonzero(draft.depths == depth).tolist()


def in_layers(draft: Draft) -> Draft:
    """The same tree, its nodes in the order of their depth."""
    order = [node for layer in layers(draft) for node in layer]
    place = {-1: -1} | {node: at for at, node in enumerate(order)}
    parents = [place[int(draft.parents[node])] for node in order]
    return Draft(draft.tokens[order], np.array(parents, dtype=np.int32))


@pytest.mark.parametrize("seed", range(8))
def test_a_grown_tree_gets_the_rows_of_its_paths(context: LlamaContext, reference: Reference, seed: int) -> None:
    draft = in_layers(random_tree(np.random.default_rng(seed), nodes=12, leaves=6))
    for layer in layers(draft):
        result = context.grow(draft.tokens[layer], draft.parents[layer])
        assert result.rows == len(layer)
        for row, node in enumerate(layer):
            path = draft.tokens[list(draft.path(node))].tolist()
            assert np.abs(result.logits(row) - reference.rows([*TEXT, *path])[0]).max() < TOLERANCE


@pytest.mark.parametrize("seed", range(8))
def test_a_grown_tree_leaves_one_path_or_nothing(context: LlamaContext, reference: Reference, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(6):
        draft = in_layers(random_tree(rng, nodes=12, leaves=6))
        for layer in layers(draft):
            context.grow(draft.tokens[layer], draft.parents[layer])
        path = draft.path(int(rng.integers(-1, len(draft))))
        text = context.tokens.tolist()
        if rng.random() < 0.5:
            context.commit(path)
            text += draft.tokens[list(path)].tolist()
        else:
            context.rewind(len(text))
        assert context.tokens.tolist() == text
        assert others_are_empty(context)
        result = context.evaluate(60, EMPTY)
        assert np.abs(result.logits(0) - reference.rows([*text, 60])[0]).max() < TOLERANCE
        context.rewind(len(text))


def test_a_prefill_ends_a_grown_tree(context: LlamaContext, reference: Reference) -> None:
    """The next `propose` brings another text and does not ask what the last one left behind."""
    context.grow(ids(10, 11), ids(-1, -1))
    context.grow(ids(12), ids(1))
    text = [*TEXT[:20], 70, 71]
    result = context.prefill(text)
    assert result is not None
    assert np.abs(result.logits(0) - reference.rows(text)[0]).max() < TOLERANCE
    assert others_are_empty(context)


def test_a_tree_that_grows_too_large_is_refused(context: LlamaContext, reference: Reference) -> None:
    """B92: too many nodes or leaves is an error; the text is what it was."""
    context.grow(ids(*range(10, 16)), ids(-1, -1, -1, -1, -1, -1))
    with pytest.raises(DecodeError, match="leaves"):
        context.grow(ids(16, 17), ids(0, 0))
    context.rewind(len(TEXT))
    context.grow(ids(10), ids(-1))
    for node in range(11):
        context.grow(ids(11 + node), ids(node))
    with pytest.raises(ContextFullError):
        context.grow(ids(30), ids(11))
    context.rewind(len(TEXT))
    assert others_are_empty(context)
    result = context.evaluate(60, EMPTY)
    assert np.abs(result.logits(0) - reference.rows([*TEXT, 60])[0]).max() < TOLERANCE


def test_a_bad_token_in_a_layer_puts_the_text_back(context: LlamaContext, reference: Reference) -> None:
    """B28."""
    context.grow(ids(10, 11), ids(-1, -1))
    with pytest.raises(DecodeError, match="invalid batch"):
        context.grow(ids(12, 99_999), ids(0, 1))
    assert context.tokens.tolist() == TEXT
    assert others_are_empty(context)
    result = context.evaluate(60, EMPTY)
    assert np.abs(result.logits(0) - reference.rows([*TEXT, 60])[0]).max() < TOLERANCE


@pytest.mark.parametrize("name", ["mamba", "jamba", "lfm2", "swa"])
def test_memories_that_take_chains_only_say_so(models: dict[str, LlamaModel], name: str) -> None:
    """B32: a tree would be refused by llama.cpp, or fill a sliding window for good."""
    with LlamaContext(models[name], SETTINGS) as context:
        context.prefill(TEXT)
        assert context.leaves == 1
        with pytest.raises(DecodeError, match="2 leaves"):
            context.evaluate(50, Draft(ids(51, 52), ids(-1, -1)))
        assert context.tokens.tolist() == TEXT
        context.evaluate(50, Draft.chain([51, 52]))
