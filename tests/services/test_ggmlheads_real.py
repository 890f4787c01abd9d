"""Medusa and EAGLE-1 heads on real weights: the verifier's output is borrowed as it is, its text stays as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.catalog import fingerprint
from localspec.services.runtime import Runtime
from tests import ggmlheads
from tests.loop.answers import greedy
from tests.services import tiny
from tests.services.tiny import FREE

pytestmark = pytest.mark.gguf

STORY = "Once upon a time there was a lighthouse keeper who"
KERNEL_NOISE = 0.8
"""Logits of quantised SmolLM2 move by this much between batch shapes; a first difference at a larger gap is a bug."""
SIZES = {
    f"{ggmlheads.KEY}.{name}": value
    for name, value in {"attention.heads": 9, "attention.heads_kv": 3, "attention.key_length": 64}.items()
}


def prompt(pair: Runtime) -> list[int]:
    return pair.vocab.tokenize(STORY, add_special=True, parse_special=False)


def eagle1_parts(width: int) -> dict[str, Any]:
    parts = ggmlheads.eagle1_parts(width)
    rng = np.random.default_rng(0)
    for name, shape in (("q", (576, width)), ("k", (192, width)), ("v", (192, width)), ("output", (width, 576))):
        parts[f"blk.0.attn_{name}.weight"] = rng.standard_normal(shape) / np.sqrt(shape[1])
    return parts


def echoing(path: Path, verifier: Path, kind: str, known: list[int] | None) -> Path:
    """A head that passes the verifier's row on, so that its logits are those of the row's own successor."""
    width = fingerprint.of_verifier(verifier).width
    zero = np.zeros((width, width))
    if kind == "medusa":
        parts = {"head.0.0.weight": zero, "head.0.0.bias": zero[0]}
        return ggmlheads.write(path, verifier, kind, parts, known=known, heads=1)
    parts = eagle1_parts(width) | {"fc.weight": np.concatenate([zero, np.eye(width)], axis=1)}
    for name in ("attn_output", "ffn_down"):
        parts[f"blk.0.{name}.weight"] = np.zeros_like(parts[f"blk.0.{name}.weight"])
    return ggmlheads.write(path, verifier, kind, parts, known=known, keys=SIZES)


@pytest.mark.parametrize("known", [None, list(range(0, 49152, 7))], ids=["all ids", "some ids"])
@pytest.mark.parametrize("kind", ["medusa", "eagle1"])
def test_the_output_is_the_verifiers_own(tmp_path: Path, smollm2: Path, kind: str, known: list[int] | None) -> None:
    """SmolLM2's output is its token embedding, in Q8_0, the rest in Q4_1."""
    head = echoing(tmp_path / "head.gguf", smollm2, kind, known)
    with tiny.open_pair(smollm2, head, drafter=kind, engine={"flash_attn": "auto"}) as pair:
        text = np.array(prompt(pair), dtype=np.int32)
        (loaded,) = pair._lent
        head_in_use: Any = loaded.context
        result = pair.verifier.prefill(text[:-1])
        assert result is not None
        expected = result.logits(0).copy()
        if kind == "medusa":
            logits = head_in_use.guess(text)[0]
            expected = expected if known is None else expected[known]
        else:
            logits = head_in_use.follow(text).logits(0)
            assert known is None or np.isneginf(np.delete(logits, known)).all()
            logits, expected = (logits, expected) if known is None else (logits[known], expected[known])
        assert np.abs(logits - expected).max() < 0.05


@pytest.mark.parametrize(("kind", "tree"), [("medusa", "auto"), ("eagle1", "2,2,1")])
def test_a_random_head_changes_nothing(tmp_path: Path, smollm2: Path, kind: str, tree: str) -> None:
    width, known = fingerprint.of_verifier(smollm2).width, list(range(8192))
    if kind == "medusa":
        head = ggmlheads.write(
            tmp_path / "head.gguf", smollm2, kind, ggmlheads.medusa_parts(width, 0), quant="Q8_0", known=known
        )
    else:
        parts = eagle1_parts(width)
        head = ggmlheads.write(tmp_path / "head.gguf", smollm2, kind, parts, quant="Q8_0", known=known, keys=SIZES)
    with tiny.open_pair(smollm2, head, drafter=kind, N=3, tree=tree, engine={"flash_attn": "auto"}) as pair:
        expected = greedy(pair.verifier, pair.vocab, prompt(pair), 32, ends=False)
        answer = tiny.answer(pair, prompt(pair), max_tokens=32)
        assert answer.stats.drafted > 60
        assert expected.agrees_with(answer.tokens, near_tie=KERNEL_NOISE)
        sampled = tiny.answer(pair, prompt(pair), sampling=FREE, acceptance="rejection", max_tokens=16)
        assert (len(sampled.tokens), sampled.stats.drafter) == (16, kind)
