"""Trees behind the real runtime: every drafter, shape and law gives the text of plain decoding; what cannot says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.core.sampling import Sampling
from localspec.errors import UsageError
from localspec.services.pairs import LEAVES, ROOM, read_tree
from localspec.services.runtime import Runtime
from tests.services import tiny
from tests.services.tiny import FREE, GREEDY, PROMPT
from tests.services.toy_pair import Collected

LAWS = {
    "greedy": GREEDY,
    "no filters": FREE,
    "default": Sampling(),
    "penalties": Sampling(temperature=1.0, repeat_penalty=1.3, frequency_penalty=0.2, presence_penalty=0.2),
}
TREES = ["none", "4,2,2", "auto"]
COUNT = 40


DRAFTERS = [name for name in tiny.DRAFTERS if tiny.draft_for(name) == "draft"]
"""Those that the pair's draft is for, a language model; heads have tests of their own."""


@pytest.fixture(scope="module")
def plain() -> Iterator[Runtime]:
    with tiny.open_pair(draft=None, drafter="none") as runtime:
        yield runtime


@pytest.fixture(scope="module")
def pair() -> Iterator[Runtime]:
    with tiny.open_pair(drafter="model", N=4) as runtime:
        yield runtime


@pytest.fixture
def report() -> Collected:
    return Collected()


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("law", LAWS)
def test_the_same_seed_is_the_same_text(pair: Runtime, plain: Runtime, law: str, drafter: str, tree: str) -> None:
    """Coupled acceptance, and T=0 anyway, with the controller's own sizes and with a fixed depth."""
    expected = tiny.answer(plain, sampling=LAWS[law], seed=1, max_tokens=COUNT).tokens
    for N in ("auto", 3):
        pair.respeculate(drafter, N, tree=tree)  # type: ignore[arg-type]
        answer = tiny.answer(pair, sampling=LAWS[law], seed=1, max_tokens=COUNT)
        assert answer.tokens == expected
        assert pair.drafter == drafter, "it was switched off"


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_greedy_text_does_not_depend_on_the_rule(pair: Runtime, plain: Runtime, drafter: str, tree: str) -> None:
    expected = tiny.answer(plain, sampling=GREEDY, max_tokens=COUNT).tokens
    pair.respeculate(drafter, 4, tree=tree)
    for acceptance in ("rejection", "coupled"):
        assert tiny.answer(pair, sampling=GREEDY, acceptance=acceptance, max_tokens=COUNT).tokens == expected


def test_a_tree_is_really_drafted_and_counted(pair: Runtime) -> None:
    """`run --json` says which tree, how many nodes, and how deep they were accepted."""
    pair.respeculate("model", "auto", tree="4,2,2")
    stats = tiny.answer(pair, max_tokens=COUNT).stats.as_dict()
    assert stats["tree"] == "4,2,2"
    assert stats["drafted"] > 8 * (stats["verifier_passes"] - 3)
    assert stats["tested"] < stats["drafted"]
    assert sum(stats["accepted_by_position"]) == stats["accepted"]
    assert len(stats["accepted_by_position"]) <= 3
    assert stats["accepted_by_position"] == sorted(stats["accepted_by_position"], reverse=True)
    assert pair.settings()["tree"] == "4,2,2"


def test_a_tree_accepts_more_per_pass_than_its_chain(pair: Runtime) -> None:
    """What it is for: the same number of draft passes, more tokens per verifier pass."""
    rates = {}
    for tree in ("none", "4,2,2"):
        pair.respeculate("model", 3, tree=tree)
        answers = [tiny.answer(pair, max_tokens=150, seed=7, sampling=law) for law in (GREEDY, FREE)]
        rates[tree] = [answer.stats.tokens_per_pass or 0.0 for answer in answers]
    assert all(tree > 1.05 * chain for chain, tree in zip(*rates.values(), strict=True)), rates


@pytest.mark.parametrize("N", [1, 2, 5, 8, 12, 30])
def test_a_growing_tree_of_any_depth_keeps_its_drafter(pair: Runtime, plain: Runtime, N: int) -> None:
    """Deep trees of four nodes a layer once asked for more sequences than there are."""
    pair.respeculate("model", N, tree="auto")
    for law in (GREEDY, FREE):
        answer = tiny.answer(pair, sampling=law, seed=2, max_tokens=60)
        assert answer.tokens == tiny.answer(plain, sampling=law, seed=2, max_tokens=60).tokens
        assert answer.stats.drafter == "model"
        assert len(answer.stats.accepted_by_position) <= N


def test_a_tree_of_no_layers_is_plain_decoding(pair: Runtime) -> None:
    pair.respeculate("model", 0, tree="auto")
    assert tiny.answer(pair).stats.drafted == 0


# -- shapes from the command line -------------------------------------------------------------------------------------


def test_an_irregular_shape_from_a_file(pair: Runtime, plain: Runtime, tmp_path: Path) -> None:
    """Medusa's way of writing a tree."""
    path = tmp_path / "tree.json"
    path.write_text(json.dumps([[0], [1], [2], [0, 0], [0, 1], [1, 0], [0, 0, 0]]))
    pair.respeculate("model", "auto", tree=str(path))
    answer = tiny.answer(pair, sampling=FREE, seed=3)
    assert answer.tokens == tiny.answer(plain, sampling=FREE, seed=3).tokens
    assert answer.stats.drafted > 3 * (answer.stats.verifier_passes - 3)
    assert answer.stats.tree == str(path)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "does not list"),
        ("{}", "does not list"),
        ('"01"', "does not list"),
        ("[[0], 1]", "does not list"),
        ('[["x"]]', "does not list"),
        ("[[0.5]]", "does not list"),
        ("[]", "does not list"),
        ("[[0], [0, 1]]", "[0, 1]"),
        ("[[1]]", "[1]"),
        ("\x00\xff", "does not list"),
    ],
)
def test_files_that_are_no_tree(tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "tree.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(UsageError) as caught:
        read_tree(str(path))
    assert told in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("text", ["4,0", "many", "/no/such/file.json", "65,64", "²", "-1", " "])
def test_trees_that_cannot_be_read(pair: Runtime, text: str) -> None:
    pair.respeculate("model", "auto", tree="2,2")
    with pytest.raises(UsageError) as caught:
        pair.respeculate("model", "auto", tree=text)
    assert caught.value.hint
    assert tiny.answer(pair).stats.tree == "2,2"  # nothing has changed


# -- verifiers and caches ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tree", ["4,2,2", "auto"])
@pytest.mark.parametrize(("verifier", "draft"), [("mamba", "mamba-draft"), ("lfm2", "lfm2-draft"), ("swa", "draft")])
def test_a_verifier_without_trees_drafts_chains_and_says_so_once(
    report: Collected, verifier: str, draft: str, tree: str
) -> None:
    """B32: recurrent, hybrid and sliding-window memories; the text is right and the drafter stays."""
    with tiny.open_pair(verifier, draft, drafter="model", N=4, tree=tree, ctx_size=512, report=report) as runtime:
        for sampling in (GREEDY, FREE):
            expected = tiny.answer(runtime, sampling=sampling, seed=3, speculate=False)
            answer = tiny.answer(runtime, sampling=sampling, seed=3)
            assert answer.tokens == expected.tokens
            assert answer.stats.drafted > 0
            assert answer.stats.drafter == "model"
            assert answer.stats.tree == "none"
        runtime.respeculate("ngram", 4, tree=tree)
    assert len([line for line in report.warnings if "chains" in line]) == 1


def test_a_recurrent_draft_beside_an_attention_verifier() -> None:
    """The verifier checks trees, the draft cannot grow one: chains, and nobody is switched off."""
    with tiny.open_pair("verifier", "mamba-draft", drafter="model", N="auto", tree="4,2,2") as runtime:
        for sampling in (GREEDY, FREE):
            answer = tiny.answer(runtime, sampling=sampling, seed=3)
            assert answer.tokens == tiny.answer(runtime, sampling=sampling, seed=3, speculate=False).tokens
            assert answer.stats.drafter == "model"
            assert answer.stats.drafted > 0
        runtime.respeculate("model", "auto", tree="auto")
        assert tiny.answer(runtime, seed=3).stats.drafter == "model"


@pytest.mark.parametrize("tree", ["4,2,2", "auto"])
@pytest.mark.parametrize("kv_type", ["q8_0", "q4_0"])
def test_a_quantised_cache(kv_type: str, tree: str) -> None:
    """Cells are shared by the leaves whatever their type; coarse keys move rows a little with the shape of a batch."""
    engine = {"kv_type": kv_type, "flash_attn": "auto"}
    with tiny.open_pair("wide-heads", "draft", drafter="model", N=3, tree=tree, engine=engine) as runtime:
        plain = tiny.answer(runtime, speculate=False, max_tokens=60).tokens
        answer = tiny.answer(runtime, max_tokens=60)
        assert answer.stats.drafter == "model"
        assert answer.stats.drafted > 0
        same = next((at for at, (a, b) in enumerate(zip(answer.tokens, plain, strict=True)) if a != b), 60)
        assert same >= 10, "more than a near tie"


@pytest.mark.parametrize("tree", ["4,2,2", "8,8", "auto"])
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("law", ["greedy", "no filters"])
def test_a_context_that_fills_up(report: Collected, law: str, drafter: str, tree: str) -> None:
    """B50, B52: to the last cell, with trees that would need more; each round takes what fits."""
    with tiny.open_pair(drafter=drafter, N="auto", tree=tree, ctx_size=64, report=report) as runtime:
        plain = tiny.answer(runtime, sampling=LAWS[law], seed=5, speculate=False, max_tokens=None)
        answer = tiny.answer(runtime, sampling=LAWS[law], seed=5, max_tokens=None)
        assert answer.tokens == plain.tokens
        assert answer.finish_reason == "context"
        assert len(PROMPT) + len(answer.tokens) == runtime.context_size + 1
        assert answer.stats.drafter == drafter
    assert not [line for line in report.warnings if "failed" in line]


@pytest.mark.parametrize("tree", ["20,1", "2,2,2,2,2", "33", "3,3,3"])
def test_more_leaves_and_nodes_than_the_context_has(report: Collected, plain: Runtime, tree: str) -> None:
    """B92: the likeliest part that has room is drafted; never an error, never a word."""
    with tiny.open_pair(drafter="model", N="auto", tree=tree, report=report) as runtime:
        for law in (GREEDY, FREE):
            answer = tiny.answer(runtime, sampling=law, seed=4)
            assert answer.tokens == tiny.answer(plain, sampling=law, seed=4).tokens
            assert answer.stats.drafter == "model"
            assert answer.stats.drafted <= ROOM * answer.stats.verifier_passes
    assert report.warnings == []
    shape = read_tree(tree)
    assert shape is not None
    assert shape.within(nodes=ROOM, leaves=LEAVES) != shape
