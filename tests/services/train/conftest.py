"""A tiny verifier with one text that it says at temperature 0, told many times: what a head can learn by heart."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from localspec.services.report import Silent
from localspec.services.train.data import DataRequest, make
from localspec.services.train.shards import Manifest, Store
from tests import zoo

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
