"""The matrix: cells are measured once, kept as they finish, and judged by the bars."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench import matrix, quantize, weights
from bench.harness import Size
from bench.matrix import Cell
from localspec.errors import UsageError
from tests import zoo

SMALL = Size(1, 6, 1, ("qa", "translation"), ("F32",), lengths=(2,))


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A verifier and a draft that often agrees, where SmolLM2 and its other formats would be."""
    verifier = zoo.tiny_llama(tmp_path / "verifier.gguf", context=2048)
    draft = zoo.tiny_llama(tmp_path / "draft.gguf", context=2048, noise=0.02)
    monkeypatch.setenv("LOCALSPEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(weights, "smollm2", lambda: verifier)
    monkeypatch.setattr(quantize, "variant", lambda source, name: draft if name == "Q4_0" else verifier)


def cell(auto: float, *, best: float = 10.0, category: str = "qa") -> Cell:
    return Cell("F32", "T=0", category, "ngram", plain=10.0, auto=auto, fixed={"1": best, "3": 5.0}, tokens=64)


@pytest.mark.usefixtures("tiny")
def test_cells_are_kept_as_they_finish_and_a_rerun_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = replace(SMALL, cells=tmp_path / "cells.jsonl")
    runs = matrix.Measuring.runs
    calls: list[str] = []

    def broken_off(self, prompts, sampling):  # type: ignore[no-untyped-def]
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(prompts[0].category)
        return runs(self, prompts, sampling)

    monkeypatch.setattr(matrix.Measuring, "runs", broken_off)
    with pytest.raises(KeyboardInterrupt):
        matrix.matrix(size)
    assert calls == ["translation", "qa"]
    kept = [json.loads(line) for line in size.cells.read_text().splitlines()]  # type: ignore[union-attr]
    assert [(one["temperature"], one["category"], one["drafter"]) for one in kept] == [
        ("T=0", "translation", "model"),
        ("T=0", "translation", "ngram"),
        ("T=0", "qa", "model"),
        ("T=0", "qa", "ngram"),
    ]  # fmt: skip
    monkeypatch.setattr(matrix.Measuring, "runs", runs)
    document, page = matrix.matrix(size)
    assert len(document["cells"]) == 12
    assert document["cells"][:4] == [{key: value for key, value in one.items() if key != "size"} for one in kept]
    assert {one["temperature"] for one in document["cells"]} == {"T=0", "T=0.8", "T=1"}
    assert all(one["plain"] > 0 and one["auto"] > 0 and list(one["fixed"]) == ["2"] for one in document["cells"])
    assert page.count("| F32 |") == 12
    with pytest.raises(UsageError, match="cells of another size"):
        matrix.matrix(replace(size, max_tokens=7))


def test_the_verdict_is_by_median_and_worst() -> None:
    verdict = matrix._verdict([cell(11.0), cell(10.0), cell(9.6, best=11.0)])
    assert verdict["plain"] == {"cells": 3, "median": 1.0, "worst": 0.96, "below": 1, "met": False}
    assert verdict["best fixed"]["below"] == 1
    assert verdict["best fixed"]["worst"] == pytest.approx(9.6 / 11)
    assert matrix._verdict([cell(10.0), cell(9.8)])["plain"]["met"] is False, "the median"
    assert all(found["met"] for found in matrix._verdict([cell(10.0), cell(10.0)]).values())


def test_conversations_are_one_category() -> None:
    prompts = matrix._prompts(Size(1, 6, 2))
    assert list(dict.fromkeys(prompt.category for prompt in prompts)) == [
        "conversation", "translation", "summarization", "qa", "math_reasoning", "rag",
    ]  # fmt: skip
    assert len(prompts) == 12
