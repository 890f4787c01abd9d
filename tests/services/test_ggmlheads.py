"""Medusa and EAGLE-1 heads through the real runtime: exact, in line with the text, and right where they can know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.catalog.modelfile import read_model
from localspec.core.sampling import Sampling
from localspec.engine.devices import Device
from localspec.services.heads import ggmlheads as opening
from localspec.services.runtime import Runtime
from tests import ggmlheads, zoo
from tests.services import tiny
from tests.services.tiny import FREE, GREEDY, PROMPT
from tests.services.toy_pair import Collected

KINDS = ["medusa", "eagle1"]
LAWS = {"greedy": GREEDY, "no filters": FREE, "penalties": Sampling(repeat_penalty=1.3)}
TREES = ["none", "2,2,1", "auto"]
ALPHABET = "abcdefghijklmnopqrstuvwxyz"


def only_head(pair: Runtime) -> Any:
    (loaded,) = pair._lent
    return loaded.context


# -- exact ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("acceptance", ["coupled", "rejection"])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("kind", KINDS)
def test_random_heads_change_nothing(kind: str, tree: str, law: str, acceptance: str) -> None:
    with tiny.open_pair(draft=kind, drafter=kind, N=4, tree=tree) as pair:
        assert pair.drafter == kind
        plain = tiny.answer(pair, sampling=LAWS[law], seed=3, speculate=False)
        answer = tiny.answer(pair, sampling=LAWS[law], seed=3, acceptance=acceptance)
        assert answer.stats.drafter == kind
        assert answer.stats.drafted > 40
        if acceptance == "coupled" or law == "greedy":
            assert answer.tokens == plain.tokens


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, int]]:
    """A verifier that says the alphabet over and over, almost surely."""
    ids = zoo.byte_ids(ALPHABET)
    successor = dict(zip(ids, [*ids[1:], ids[0]], strict=True))
    path = tmp_path_factory.mktemp("script") / "script.gguf"
    return zoo.script_model(path, {a: {b: 30.0} for a, b in successor.items()}, floor=0.0), successor


@pytest.mark.parametrize("sampling", [GREEDY, FREE], ids=["greedy", "no filters"])
@pytest.mark.parametrize("tree", ["none", "1,1,1", "auto"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_head_that_knows_is_right_all_the_time(
    tmp_path: Path, script: tuple[Path, dict[int, int]], kind: str, tree: str, sampling: Sampling
) -> None:
    """B94: off by one anywhere, between rows, tokens and positions, and next to nothing would be accepted."""
    verifier, successor = script
    if kind == "medusa":
        head = ggmlheads.knowing_medusa(tmp_path / "head.gguf", verifier, successor)
    else:
        head = ggmlheads.knowing_eagle1(tmp_path / "head.gguf", verifier)
    with tiny.open_pair(verifier, head, drafter=kind, N=3, tree=tree) as pair:
        answer = tiny.answer(pair, zoo.byte_ids("abc"), sampling=sampling, seed=1)
        assert answer.text == (ALPHABET[3:] + ALPHABET * 2)[:40]
        assert answer.stats.tokens_per_pass == pytest.approx(4.0, abs=0.5)
        later = tiny.answer(pair, zoo.byte_ids("xyzab"), sampling=sampling, seed=1)
        assert later.text.startswith("cdefgh")
        assert later.stats.tokens_per_pass == pytest.approx(4.0, abs=0.5)


@pytest.mark.parametrize("kind", KINDS)
def test_verifiers_that_take_chains_only_get_chains(tmp_path: Path, kind: str) -> None:
    """A sliding window, and a recurrent memory that goes back by a copy of its state."""
    for name in ("swa", "mamba"):
        make = ggmlheads.tiny_medusa if kind == "medusa" else ggmlheads.tiny_eagle1
        head = make(tmp_path / f"{name}.gguf", tiny.model(name))
        with tiny.open_pair(name, head, drafter=kind, N=3, tree="auto") as pair:
            plain = tiny.answer(pair, speculate=False)
            answer = tiny.answer(pair)
            assert answer.stats.drafted > 0
            assert answer.tokens == plain.tokens


# -- in line with the text --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("kind", KINDS)
def test_edits_and_turns(kind: str, tree: str) -> None:
    """A head's guesses depend on the text alone, not on what it read before: the same as in a fresh one."""
    with tiny.open_pair(draft=kind, drafter=kind, N=4, tree=tree) as pair:
        first = tiny.answer(pair)
        for text in (
            [*PROMPT, *first.tokens, *zoo.byte_ids("and then")],
            [*PROMPT[:9], *zoo.byte_ids("something else")],
            PROMPT[:3],
            [*PROMPT, *first.tokens[:11]],
        ):
            answer = tiny.answer(pair, text)
            with tiny.open_pair(draft=kind, drafter=kind, N=4, tree=tree) as fresh:
                expected = tiny.answer(fresh, text)
            assert answer.tokens == expected.tokens
            assert answer.stats.drafted == expected.stats.drafted
            assert answer.stats.accepted == expected.stats.accepted


def test_eagle1_reads_only_what_is_new() -> None:
    with tiny.open_pair(draft="eagle1", drafter="eagle1", N=4) as pair:
        first = tiny.answer(pair)
        head = only_head(pair)
        before = head.evaluated
        turn = [*PROMPT, *first.tokens, *zoo.byte_ids("and more")]
        tiny.answer(pair, turn, max_tokens=1)
        assert head.evaluated - before <= len(turn) - len(PROMPT) - len(first.tokens) + 5


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_kept_only_while_the_head_drafts(kind: str) -> None:
    """Where they are missing they are computed again, at most as many as the head looks back."""
    with tiny.open_pair(draft=kind, drafter=kind, N=4) as pair:
        first = tiny.answer(pair)
        longer = [*PROMPT, *first.tokens, *PROMPT]
        tiny.answer(pair, longer, speculate=False, max_tokens=5)
        assert not only_head(pair).capture.on
        assert tiny.answer(pair, longer, max_tokens=5).stats.drafted > 0
        assert only_head(pair).capture.on


def test_a_long_text_is_read_from_its_last_part_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "localspec.services.heads.ggmlheads.Eagle1Head", lambda graph, verifier: _short(graph, verifier)
    )
    with tiny.open_pair(draft="eagle1", drafter="eagle1", N=4) as pair:
        plain = tiny.answer(pair, PROMPT * 5, speculate=False)
        answer = tiny.answer(pair, PROMPT * 5)
        assert answer.tokens == plain.tokens
        assert answer.stats.drafted > 0
        assert only_head(pair)._graph.start == 5 * len(PROMPT) - 1 - 16
        assert only_head(pair)._graph.length > 5 * len(PROMPT)


def _short(graph: Any, verifier: Any) -> Any:
    from localspec.engine.eagle1 import Eagle1Head

    return Eagle1Head(graph, verifier, window=16)


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quant", ["F16", "Q8_0", "Q4_0"])
@pytest.mark.parametrize("kind", KINDS)
def test_formats_and_vocabularies(tmp_path: Path, kind: str, quant: str) -> None:
    """Heads in every format, with all ids or some, with an output of their own or the verifier's, which is Q8_0."""
    verifier = ggmlheads.requantised(tiny.model("verifier"), tmp_path / "verifier.gguf")
    rng = np.random.default_rng(0)
    own = {"output.weight": rng.standard_normal((50, zoo.WIDTH))}
    parts = ggmlheads.medusa_parts(zoo.WIDTH, 261) if kind == "medusa" else ggmlheads.eagle1_parts(zoo.WIDTH)
    if kind == "eagle1":
        own["token_embd.weight"] = rng.standard_normal((261, zoo.WIDTH))
    for number, (more, known) in enumerate(((parts, None), (parts, range(100, 150)), (parts | own, range(100, 150)))):
        path = tmp_path / f"{number}.gguf"
        ggmlheads.write(path, verifier, kind, more, quant=quant, known=None if known is None else list(known))
        with tiny.open_pair(verifier, path, drafter=kind, N=3) as pair:
            assert pair.drafter == kind
            plain = tiny.answer(pair, speculate=False, max_tokens=12)
            answer = tiny.answer(pair, max_tokens=12)
            assert answer.stats.drafted > 0
            assert answer.tokens == plain.tokens


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_for_another_verifier_is_told_once_and_decoded_plainly(tmp_path: Path, kind: str) -> None:
    make = ggmlheads.tiny_medusa if kind == "medusa" else ggmlheads.tiny_eagle1
    other = zoo.tiny_llama(tmp_path / "other.gguf", seed=1, vocabulary=tiny._vocabulary())
    quantised = ggmlheads.requantised(tiny.model("verifier"), tmp_path / "q8.gguf")
    for verifier, force, words in (
        (other, "false", "other weights"),
        (other, "true", "other weights"),
        (quantised, "false", "trained on the Q8_0 weights"),
        (quantised, "true", ""),
    ):
        report = Collected()
        head = make(tmp_path / "head.gguf", verifier)
        with tiny.open_pair(draft=head, drafter=kind, options={"force": force}, report=report) as pair:
            assert pair.drafter == ("none" if words else kind)
            assert len(tiny.answer(pair, max_tokens=5).tokens) == 5
        told = [line for line in report.warnings if "cannot be used" in line]
        assert [words in line for line in told] == [True] * bool(words), report.warnings


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_head_is_told_in_a_sentence(tmp_path: Path, kind: str) -> None:
    name = "head.2.0.weight" if kind == "medusa" else "blk.0.attn_k.weight"
    make = ggmlheads.tiny_medusa if kind == "medusa" else ggmlheads.tiny_eagle1
    head = make(tmp_path / "head.gguf", tiny.model("verifier"), without=[name])
    report = Collected()
    with tiny.open_pair(draft=head, drafter=kind, report=report) as pair:
        assert pair.drafter == "none"
    (warning,) = report.warnings
    assert f"lacks the tensor {name}" in warning


@pytest.mark.parametrize("kind", KINDS)
def test_the_drafter_follows_from_the_file(kind: str) -> None:
    with tiny.open_pair(draft=kind) as pair:
        assert pair.drafter == kind
        assert any(line.startswith("draft: ") and line.endswith("on CPU") for line in pair.placement)


def test_the_tree_that_a_file_names_is_used(tmp_path: Path) -> None:
    tree = {"localspec.head.tree": "[[0], [1], [2], [0, 0]]"}
    head = ggmlheads.tiny_medusa(tmp_path / "head.gguf", tiny.model("verifier"), keys=tree)
    with tiny.open_pair(draft=head, drafter="medusa", N=3) as pair:
        answer = tiny.answer(pair, max_tokens=10)
        assert answer.stats.drafted == pytest.approx(4 * answer.stats.verifier_passes, abs=8)


def test_without_room_on_the_gpu_a_head_goes_to_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device does not exist, which is as good as full."""
    monkeypatch.setattr(opening, "devices", lambda: [Device("CUDA7", "", "gpu", 1, 1)])
    built, asked = opening._built, list[str | None]()

    def spying(*arguments: Any, device: str | None) -> Any:
        asked.append(device)
        return built(*arguments, device=device)

    monkeypatch.setattr(opening, "_built", spying)
    report = Collected()
    with tiny.open_pair(draft="eagle1", drafter="none") as pair:
        loaded = pair._verifier
        settings = pair._context_settings("draft")
        head, on_gpu = opening.open_head(
            read_model(tiny.model("eagle1")), loaded, settings, on_gpu=True, force=False, report=report
        )
        head.close()
    assert (asked, on_gpu) == (["CUDA7", None], False)
    assert "goes to the CPU: CUDA7 cannot be used" in report.warnings[0]
