"""The head that comes with localspec: as the registry says, made for the embedded verifier, exact and often right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from localspec.catalog import fetch, fingerprint, registry
from localspec.catalog.gguf import read_header
from localspec.core.sampling import Sampling
from localspec.services.report import Silent
from tests.loop.answers import greedy
from tests.services import tiny

NAME = "smollm2-135m-eagle3"
KERNEL_NOISE = 0.8
PROMPT = "<|im_start|>user\nGive me three tips for staying healthy.<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def head() -> Path:
    """Checked against the size and the sha256 of the registry."""
    return fetch.resolve(NAME, registry.load(), Silent()).path


def test_it_is_small_and_says_what_it_was_made_for(head: Path) -> None:
    header = read_header(head)
    assert head.stat().st_size <= 16_000_000
    assert header.text("general.architecture") == "eagle3"
    assert header.text("localspec.head.verifier.file_type") == "Q4_1"
    assert 8192 <= header.table["d2t"].shape[0] <= 16_384


def test_its_training_record_lies_beside_it(head: Path) -> None:
    record = json.loads(head.with_suffix(".json").read_text(encoding="utf-8"))
    assert record["data"]["answer_tokens"] > 200_000
    assert record["vocabulary"]["coverage"] >= 0.97
    assert all({"plan", "trained", "curve"} <= set(stage) for stage in record["stages"])
    assert record["held_out"]["alpha"][0] >= 0.35


def test_the_embedded_pair_knows_it() -> None:
    known = registry.load()
    assert known.pair().draft == NAME


@pytest.mark.gguf
def test_it_fits_the_embedded_verifier(head: Path, smollm2: Path) -> None:
    known = fingerprint.of_head(head)
    assert known is not None
    fingerprint.check(known, fingerprint.of_verifier(smollm2), force=False)


@pytest.mark.gguf
@pytest.mark.parametrize("tree", ["none", "3,2,1", "auto"])
def test_it_changes_nothing_and_is_often_right(head: Path, smollm2: Path, tree: str) -> None:
    with tiny.open_pair(smollm2, head, drafter="eagle3", N=3, tree=tree, engine={"flash_attn": "auto"}) as pair:
        prompt = pair.vocab.tokenize(PROMPT, add_special=True, parse_special=True)
        expected = greedy(pair.verifier, pair.vocab, prompt, 48, ends=False)
        answer = tiny.answer(pair, prompt, max_tokens=48)
        assert expected.agrees_with(answer.tokens, near_tie=KERNEL_NOISE)
        assert answer.stats.accepted >= 12
        sampling = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
        drawn = tiny.answer(pair, prompt, sampling=sampling, acceptance="rejection", max_tokens=32)
        assert drawn.stats.drafter == "eagle3"
        assert drawn.stats.accepted > 0
