"""Heads through the real runtime: found by their file, refused with a reason, listened for only while they are used."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.catalog import fingerprint
from localspec.catalog.modelfile import read_model
from localspec.engine.base import FeatureSpec
from localspec.services.heads import heads
from localspec.services.runtime import Runtime
from tests import zoo
from tests.eagle3 import Kind, knowing_head, random_head, tensors, tiny_eagle3
from tests.services import tiny
from tests.services.tiny import FREE, GREEDY, HEAD, PROMPT
from tests.services.toy_pair import Collected

VOCABULARY = zoo.byte_vocabulary(ends=(zoo.OTHER_END,))
ONE = {"output_norm.weight": np.ones(zoo.WIDTH, dtype=np.float32)}
LAWS = {"greedy": GREEDY, "no filters": FREE}


def capture(runtime: Runtime) -> Any:
    """What the verifier keeps for the runtime's head."""
    (head,) = (loaded for loaded in runtime._lent if isinstance(loaded, heads.LoadedHead))
    return head.context.capture


@pytest.mark.parametrize("tree", ["none", "2,2,1", "auto"])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("acceptance", ["coupled", "rejection"])
def test_chains_and_trees_are_drafted_and_change_nothing(tree: str, law: str, acceptance: str) -> None:
    """Coupled is compared token by token; with the other rule greedy is the same and the law is tested elsewhere."""
    with tiny.open_pair(draft="eagle3", drafter="eagle3", N=4, tree=tree) as pair:
        plain = tiny.answer(pair, sampling=LAWS[law], seed=3, speculate=False)
        answer = tiny.answer(pair, sampling=LAWS[law], seed=3, acceptance=acceptance)
        assert answer.stats.drafter == "eagle3"
        assert answer.stats.drafted > (40 if tree == "none" else 60)
        if acceptance == "coupled" or law == "greedy":
            assert answer.tokens == plain.tokens


@pytest.mark.parametrize("tree", ["none", "2,2,1", "auto"])
@pytest.mark.parametrize("law", ["greedy", "no filters"])
def test_a_head_that_knows_the_verifier_is_always_right(tmp_path: Path, law: str, tree: str) -> None:
    """B94: a pair, a position or a row that is off by one shows here and nowhere in the text."""
    rng = np.random.default_rng(2)
    letters = zoo.byte_ids("abcdefgh")
    successors = {a: {b: float(rng.normal(0, 1.5)) for b in letters} for a in [zoo.TURN, *letters]}
    verifier = zoo.script_model(tmp_path / "verifier.gguf", successors)
    head = knowing_head(tmp_path / "head.gguf")
    with tiny.open_pair(verifier, head, N=4, tree=tree) as pair:
        answer = tiny.answer(
            pair, [zoo.TURN, *letters, letters[0]], sampling=LAWS[law], acceptance="rejection", max_tokens=100
        )
    stats = answer.stats
    first = sum(stats.accepted_by_position[:1]) / stats.verifier_passes
    assert first > (0.97 if law == "greedy" or tree == "none" else 0.9)
    if tree == "none":
        assert stats.alpha is not None
        assert stats.alpha > 0.98
        assert stats.tokens_per_pass is not None
        assert stats.tokens_per_pass > 4.7


def test_a_head_is_known_by_its_file() -> None:
    with tiny.open_pair(draft="eagle3") as pair:
        assert (pair.drafter, pair.settings()["drafter_asked"]) == ("eagle3", "eagle3")
        assert any(line.startswith("draft: ") for line in pair.placement)


def test_the_verifier_keeps_rows_only_while_the_head_drafts() -> None:
    """Plain answers and other drafters cost nothing; then only what lacks its rows is read again."""
    with tiny.open_pair(draft="eagle3", drafter="eagle3", N=4) as pair:
        first = tiny.answer(pair)
        rows = capture(pair)
        assert rows.on
        assert rows.end == len(PROMPT) + len(first.tokens) - 1
        longer = [*PROMPT, *first.tokens, *PROMPT]
        tiny.answer(pair, longer, speculate=False, max_tokens=5)
        assert not rows.on
        assert rows.end == len(PROMPT) + len(first.tokens) - 1
        again = tiny.answer(pair, longer, max_tokens=5)
        assert rows.on
        assert again.stats.prefill_tokens == len(PROMPT)
        pair.respeculate("ngram", 4)
        tiny.answer(pair, longer, max_tokens=5)
        assert not rows.on
        pair.respeculate("eagle3", 4)
        assert tiny.answer(pair, longer, max_tokens=5).stats.drafted > 0


def test_after_a_head_has_failed_nothing_is_kept_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verifier went on keeping rows, in every later answer, for a drafter that was switched off."""
    with tiny.open_pair(draft="eagle3", drafter="eagle3", N=4, report=Collected()) as pair:
        plain = tiny.answer(pair, speculate=False).tokens
        tiny.answer(pair)
        rows = capture(pair)
        assert rows.on
        (head,) = pair._lent
        monkeypatch.setattr(head.context, "follow", lambda *_, **__: 1 // 0)
        assert tiny.answer(pair).tokens == plain
        assert pair.drafter == "none"
        assert tiny.answer(pair).tokens == plain
        assert not rows.on


def test_ways_that_are_resumed_listen_or_not() -> None:
    with tiny.open_pair(draft="eagle3", drafter="eagle3", N=4) as pair:
        plain = tiny.answer(pair, speculate=False).tokens
        for _ in range(2):
            for drafter in ("eagle3", "none", "ngram", "lookahead"):
                pair.respeculate(drafter, 4, {}, resume=True)
                pair.forget()
                answer = tiny.answer(pair)
                assert answer.tokens == plain
                assert capture(pair).on == (drafter == "eagle3")
                assert answer.stats.drafted > 0 or drafter in ("none", "ngram")


def test_the_next_turn_reads_only_what_is_new() -> None:
    with tiny.open_pair(draft="eagle3", drafter="eagle3", N=4) as pair:
        first = tiny.answer(pair)
        (head,) = (loaded.context for loaded in pair._lent)
        before = head.evaluated
        turn = [*PROMPT, *first.tokens, *zoo.byte_ids("and more")]
        tiny.answer(pair, turn, max_tokens=1)
        assert head.evaluated - before <= len(turn) - len(PROMPT) - len(first.tokens) + 5


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("draft", "language model"),
        ("foreign-head", "tokens|tokenizer"),
        ("deep", r"layers \[1, 2, 9\], the verifier has 2"),
        ("wide", "hidden states 96 wide, the verifier's are 64"),
        ("narrow", "no embedding of its own and is 32 wide"),
        ("two-blocks", "has 2 layers"),
        ("no-query", "attn_q"),
        ("no-fc", "fc.weight"),
        ("no-output", "reduced vocabulary .* no output"),
        ("bad-map", "id .*100000"),
        ("i32-map", "I32"),
        ("two-read", "reads 2 layers"),
        ("short-embedding", "embeds 200 of its 261"),
        ("fingerprint", "other sizes|width|layers|trained for"),
        ("other-quantisation", "Q8_0"),
    ],
)
def test_a_head_that_does_not_fit_is_told_once_and_decoded_plainly(tmp_path: Path, head: str, words: str) -> None:
    """Most of these would abort the process inside llama.cpp."""
    report = Collected()
    path = write(tmp_path / f"{head}.gguf", head)
    with tiny.open_pair(draft=path, drafter="eagle3", report=report) as pair:
        assert pair.drafter == "none"
        assert len(tiny.answer(pair, max_tokens=5).tokens) == 5
    (warning,) = report.warnings
    assert "eagle3 cannot be used" in warning
    assert re.search(words, warning), warning


def write(path: Path, which: str) -> Path:
    """A head with something wrong."""
    whole = tensors(HEAD, VOCABULARY)
    mine = fingerprint.of_verifier(tiny.model("verifier"))
    keys: dict[str, Any] = {"vocabulary": VOCABULARY}
    match which:
        case "draft":
            return tiny.model("draft")
        case "foreign-head":
            return tiny_eagle3(path, HEAD, vocabulary=zoo.spm_vocabulary())
        case "deep":
            return tiny_eagle3(path, replace(HEAD, layers=(1, 2, 9)), **keys)
        case "wide":
            return tiny_eagle3(path, replace(HEAD, width=96), **keys)
        case "narrow":
            return tiny_eagle3(path, replace(HEAD, head_width=32), **keys)
        case "two-blocks":
            return tiny_eagle3(path, replace(HEAD, head_blocks=2), **keys)
        case "no-query":
            return tiny_eagle3(path, HEAD, changed={"blk.0.attn_q.weight": None}, **keys)
        case "no-fc":
            return tiny_eagle3(path, HEAD, changed={"fc.weight": None}, **keys)
        case "no-output":
            return tiny_eagle3(path, HEAD, changed={"output.weight": None}, **keys)
        case "bad-map":
            return tiny_eagle3(path, HEAD, changed={"d2t": np.append(whole["d2t"][:-1], 100_000)}, **keys)
        case "i32-map":
            return tiny_eagle3(path, HEAD, changed={"d2t": whole["d2t"].astype(np.int32)}, **keys)
        case "two-read":
            return tiny_eagle3(path, Kind(layers=(0, 1)), **keys)
        case "short-embedding":
            embedding = np.zeros((200, zoo.WIDTH), dtype=np.float32)
            return tiny_eagle3(path, HEAD, changed={"token_embd.weight": embedding}, **keys)
        case "fingerprint":
            other = fingerprint.keys(replace(mine, layers=7), kind="eagle3")
            return tiny_eagle3(path, HEAD, extra=other, **keys)
        case _:
            other = fingerprint.keys(replace(mine, file_type="Q8_0"), kind="eagle3")
            return tiny_eagle3(path, HEAD, extra=other, **keys)


def test_another_quantisation_can_be_forced(tmp_path: Path) -> None:
    path = write(tmp_path / "head.gguf", "other-quantisation")
    report = Collected()
    with tiny.open_pair(draft=path, options={"force": "true"}, drafter="eagle3", N=4, report=report) as pair:
        assert pair.drafter == "eagle3"
        assert tiny.answer(pair).stats.drafted > 0
    assert report.warnings == []


def test_a_head_is_no_draft_model() -> None:
    report = Collected()
    with tiny.open_pair(draft="eagle3", drafter="model", report=report) as pair:
        assert pair.drafter == "none"
    (warning,) = report.warnings
    assert "--drafter eagle3" in warning


def test_a_verifier_that_has_to_be_watched_drafts_all_the_same(tmp_path: Path) -> None:
    """Gemma 3 does not give the inputs of its layers; its sliding window allows chains only."""
    head = tiny_eagle3(tmp_path / "head.gguf", replace(HEAD, layers=(1, 1, 1)))
    report = Collected()
    with tiny.open_pair("swa", head, drafter="eagle3", N=3, tree="auto", report=report) as pair:
        assert any("gemma3" in note and "slower" in note for note in report.notes)
        plain = tiny.answer(pair, speculate=False)
        answer = tiny.answer(pair)
        assert answer.stats.drafted > 0
        assert answer.tokens == plain.tokens


def test_a_head_of_another_kind_is_told(tmp_path: Path) -> None:
    head = zoo.write(tmp_path / "other.gguf", "dflash", {"block_count": 1}, ONE, VOCABULARY)
    for drafter in (None, "model", "eagle3"):
        report = Collected()
        with tiny.open_pair(draft=head, drafter=drafter, report=report) as pair:
            assert pair.drafter == "none"
        assert any("kind dflash" in warning for warning in report.warnings)


def test_kinds_of_files(tmp_path: Path) -> None:
    assert heads.kind(read_model(tiny.model("eagle3"))) == "eagle3"
    assert heads.kind(read_model(tiny.model("verifier"))) == ""


@pytest.fixture(scope="module")
def real_head(tmp_path_factory: pytest.TempPathFactory, smollm2_f32: Path) -> Path:
    return random_head(tmp_path_factory.mktemp("real") / "head.gguf", smollm2_f32, ids=8192)


@pytest.mark.gguf
@pytest.mark.parametrize("tree", ["none", "3,2,1", "auto"])
@pytest.mark.parametrize("law", LAWS)
def test_on_real_weights_too(smollm2_f32: Path, real_head: Path, law: str, tree: str) -> None:
    """F32 weights, whose batches agree with single tokens; the head is random, so nearly all is rolled back."""
    with tiny.open_pair(smollm2_f32, real_head, N=3, tree=tree, engine={"threads": 2}) as pair:
        prompt = pair.vocab.tokenize("Once upon a time there was", add_special=True, parse_special=False)
        plain = tiny.answer(pair, prompt, sampling=LAWS[law], seed=1, speculate=False, max_tokens=10)
        answer = tiny.answer(pair, prompt, sampling=LAWS[law], seed=1, max_tokens=10)
        assert answer.stats.drafted > 20
        assert answer.tokens == plain.tokens


def test_what_is_kept_is_told() -> None:
    """For 256 tokens: fused rows of the head's width, and one batch of the raw ones."""
    with tiny.open_pair(draft="eagle3", drafter="eagle3") as pair:
        rows = capture(pair)
        assert rows.spec == FeatureSpec((0, 1, 1))
        assert rows.bytes == 4 * (256 * 64 + 512 * 192)
