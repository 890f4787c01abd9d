"""A tiny verifier with one text that it says at temperature 0, told many times: what a head can learn by heart."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.services.report import Silent
from localspec.services.train.data import DataRequest, make
from localspec.services.train.head import HeadRequest, HeadResult, train
from localspec.services.train.shards import Manifest, Store, Text
from tests import zoo

RATES = {"eagle3": 2e-3, "eagle1": 4e-3, "medusa": 2e-2}
COPIES = 9  # the first is held out: heads are judged on the text that they learned


@dataclass(frozen=True)
class Lesson:
    """verifier: the GGUF; folder: training data of one text."""

    verifier: Path
    folder: Path


@pytest.fixture(scope="session")
def lesson(tmp_path_factory: pytest.TempPathFactory) -> Lesson:
    folder = tmp_path_factory.mktemp("lesson")
    verifier = zoo.tiny_llama(folder / "verifier.gguf", layers=3)
    prompts = folder / "prompts.jsonl"
    prompts.write_text(json.dumps({"prompt": "tell me the text"}) + "\n", encoding="utf-8")
    wanted = DataRequest(
        str(verifier), folder / "once", tokens=120, answer=120, parallel=1, top=8, temperatures=(0.0,), prompts=prompts
    )
    made = make(wanted, Silent())
    assert made.answer_tokens > 60, "the text ends too soon to be learned by heart: choose another prompt"
    once = Store.open(folder / "once")
    [text] = once.read(once.manifest.shards[0])
    often = Store.create(folder / "often", Manifest(once.manifest.verifier, once.manifest.settings))
    often.add([replace(text, index=index) for index in range(COPIES)])
    return Lesson(verifier, folder / "often")


def text_of(index: int, prompt: int, answer: int, *, states: bool = True) -> Text:
    """Any tokens and rows, other ones for another index."""
    rng = np.random.default_rng(index)
    rows = prompt + answer - 1
    return Text(
        index,
        1000 + index,
        0.5,
        rng.integers(0, 300, prompt + answer).astype(np.int32),
        prompt,
        rng.integers(0, 300, (answer, 4)).astype(np.int32),
        -rng.random((answer, 4)).astype(np.float16),
        rng.random((rows, 3, 8)).astype(np.float16) if states else None,
        rng.random((rows, 8)).astype(np.float16) if states else None,
    )


def request_of(lesson: Lesson, output: Path, **changes: Any) -> HeadRequest:
    """Two hundred steps on the lesson, unless something else is said."""
    wanted = HeadRequest(
        (lesson.folder,), output, steps=200, vocab=261, batch=600, every=50, threads=1, weights="F16", ahead=3
    )
    return replace(wanted, **changes)


@pytest.fixture(scope="session")
def pupil(lesson: Lesson, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], HeadResult]:
    """A head of a kind that has learned the text; each is trained once."""
    trained: dict[str, HeadResult] = {}

    def pupil_of(kind: str) -> HeadResult:
        if kind not in trained:
            folder = tmp_path_factory.mktemp(kind)
            trained[kind] = train(request_of(lesson, folder, kind=kind, rate=RATES[kind]), Silent())
        return trained[kind]

    return pupil_of
