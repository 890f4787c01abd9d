"""Making data with tiny models: what is stored is what the verifier computes; work that ended goes on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.engine.farm import Farm, FarmSettings
from localspec.engine.model import LlamaModel
from localspec.errors import LoadError, UsageError
from localspec.services.report import Silent
from localspec.services.train import data
from localspec.services.train.alone import alone_in
from localspec.services.train.data import DataRequest, bytes_per_token, make, prompt_size
from localspec.services.train.shards import MANIFEST, Store, Text
from tests import zoo


class Heard(Silent):
    """Keeps notes and warnings."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)

    warn = note


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zoo.tiny_llama(tmp_path_factory.mktemp("model") / "tiny.gguf", layers=3)


def request_of(verifier: Path, folder: Path, **changes: Any) -> DataRequest:
    return replace(DataRequest(str(verifier), folder, tokens=300, answer=24, parallel=4, top=8), **changes)


def texts_in(folder: Path) -> list[Text]:
    store = Store.open(folder)
    return [text for shard in store.manifest.shards for text in store.read(shard)]


def test_stored_rows_are_the_verifiers(verifier: Path, tmp_path: Path) -> None:
    """Each text, evaluated again by itself: hidden rows, laws, and at temperature 0 the tokens."""
    make(request_of(verifier, tmp_path / "d", temperatures=(0.0, 1.0)), Silent())
    texts = texts_in(tmp_path / "d")
    assert len({text.asked for text in texts}) == len(texts)
    assert {text.temperature for text in texts} == {0.0, 1.0}
    with LlamaModel(verifier, gpu_layers=0) as model, Farm(model, FarmSettings(1, 1024, (0, 1, 2))) as farm:
        for text in texts[:6]:
            farm.clear(0)
            crop = farm.read(0, text.tokens[:-1])
            assert text.layers is not None
            assert text.last is not None
            # Stored as float16, and evaluated in batches of another size.
            for mine, stored in ((crop.layers, text.layers), (crop.last, text.last)):
                assert np.abs(mine - stored).max() < 0.01 * np.abs(mine).max()
            farm.clear(0)
            first = farm.read(0, text.tokens[: text.start]).logits[0]
            expected = first - first.max() - np.log(np.exp(first - first.max()).sum())
            assert text.top_ids[0].tolist() == np.argsort(-first, kind="stable")[:8].tolist()
            assert np.allclose(text.top_logs[0], expected[text.top_ids[0]], atol=0.01)
            if text.temperature == 0:
                assert text.tokens[text.start :].tolist() == text.top_ids[:, 0].tolist()


def test_the_same_seed_makes_the_same_texts(verifier: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        make(request_of(verifier, tmp_path / name, seed=seed), Silent())
    a, b, c = ({t.index: t.tokens.tolist() for t in texts_in(tmp_path / name)} for name in "abc")
    assert a == b
    assert a != c


def test_the_work_goes_on_where_it_ended(verifier: Path, tmp_path: Path) -> None:
    first = make(request_of(verifier, tmp_path / "d"), Silent())
    assert first.answer_tokens >= 300
    again = make(request_of(verifier, tmp_path / "d"), Silent())
    assert again.made == 0
    more = make(request_of(verifier, tmp_path / "d", tokens=600), Silent())
    assert more.answer_tokens >= 600
    texts = texts_in(tmp_path / "d")
    assert len({text.index for text in texts}) == len(texts)
    assert len({text.asked for text in texts}) == len(texts)


def test_a_damaged_shard_is_made_again(verifier: Path, tmp_path: Path) -> None:
    make(request_of(verifier, tmp_path / "d"), Silent())
    make(request_of(verifier, tmp_path / "d", tokens=600), Silent())
    shard = tmp_path / "d" / "shard-00000.npz"
    shard.write_bytes(shard.read_bytes()[:-200])
    heard = Heard()
    result = make(request_of(verifier, tmp_path / "d", tokens=600), heard)
    assert result.answer_tokens >= 600
    assert any("shard-00000.npz" in line for line in heard.lines)
    indices = [text.index for text in texts_in(tmp_path / "d")]
    assert len(set(indices)) == len(indices)
    assert 0 in indices


def test_other_settings_or_models_need_another_folder(verifier: Path, tmp_path: Path) -> None:
    make(request_of(verifier, tmp_path / "d", tokens=30), Silent())
    with pytest.raises(UsageError, match="top = 8, not 4"):
        make(request_of(verifier, tmp_path / "d", top=4), Silent())
    other = zoo.tiny_llama(tmp_path / "other.gguf", layers=3, seed=2)
    with pytest.raises(UsageError, match="holds data of"):
        make(request_of(other, tmp_path / "d"), Silent())


def test_prompts_of_ones_own(verifier: Path, tmp_path: Path) -> None:
    """Each is asked once; those that are too long or doubled are left out, and too few are told."""
    prompts = tmp_path / "p.jsonl"
    lines = [{"prompt": "one"}, {"prompt": "two"}, {"prompt": "ONE"}, {"prompt": "x" * 2000}]
    prompts.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    heard = Heard()
    result = make(request_of(verifier, tmp_path / "d", prompts=prompts), heard)
    assert result.texts == 2
    assert any("300 wanted" in line for line in heard.lines)


def test_long_prompts_are_counted_and_asked_on_request(verifier: Path, tmp_path: Path) -> None:
    """Once they were left out without a word. Prompts that would not be asked at any length are not counted."""
    prompts = tmp_path / "p.jsonl"
    long = ["x" * 500, "y " * 600, "y " * 600]
    prompts.write_text("\n".join(json.dumps({"prompt": text}) for text in ["one", *long]), encoding="utf-8")
    heard = Heard()
    wanted = request_of(verifier, tmp_path / "d", prompts=prompts)
    make(wanted, heard)
    asked = [line for line in heard.lines if "longer than 448 tokens: 2." in line]
    [longest] = re.findall(r"--prompt-tokens (\d+)", " ".join(asked))
    heard.lines.clear()
    result = make(replace(wanted, prompt=int(longest)), heard)
    assert result.texts == 3
    assert max(text.start for text in texts_in(tmp_path / "d")) == int(longest)
    assert not any("longer than" in line for line in heard.lines)


def test_made_up_turns_are_no_longer_either(verifier: Path, tmp_path: Path) -> None:
    """Others are made up in their place, and their plots have room for them however short prompts must be."""
    heard = Heard()
    make(request_of(verifier, tmp_path / "d", prompt=40, answer=2, tokens=20), heard)
    assert max(text.start for text in texts_in(tmp_path / "d")) <= 40
    assert not any("left out" in line for line in heard.lines)


def test_states_are_left_out_on_request_and_by_size(
    verifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard()
    make(request_of(verifier, tmp_path / "lean", states="recaptured"), heard)
    assert texts_in(tmp_path / "lean")[0].layers is None
    assert "computed again" in heard.lines[0]
    monkeypatch.setattr(data, "MOST_BYTES", 1000)
    make(request_of(verifier, tmp_path / "auto"), heard)
    assert texts_in(tmp_path / "auto")[0].layers is None


def test_two_at_once_do_not_write_over_each_other(verifier: Path, tmp_path: Path) -> None:
    with alone_in(tmp_path / "d"), pytest.raises(UsageError, match="another process is at work in") as caught:
        make(request_of(verifier, tmp_path / "d"), Silent())
    assert "another folder" in caught.value.hint
    make(request_of(verifier, tmp_path / "d", tokens=30), Silent())


def test_a_disk_too_small_is_told_in_advance(verifier: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="GB are needed"):
        make(request_of(verifier, tmp_path / "d", tokens=10**15, states="stored"), Silent())


def test_the_disk_need_of_long_prompts_of_ones_own_is_told(tmp_path: Path) -> None:
    prompts = tmp_path / "long.jsonl"
    prompts.write_text("\n".join(json.dumps({"prompt": f"{number} " + "word " * 1600}) for number in range(3)))
    request = DataRequest("any", tmp_path / "data", prompts=prompts, prompt=2400)
    made_up = DataRequest("any", tmp_path / "data")
    own, short, guessed = map(prompt_size, (request, replace(request, prompt=448), made_up))
    assert own > 8 * guessed
    assert short < own, "those that are too long are left out"
    stored, lean = (bytes_per_token(request, prompt=own, rows=rows, width=576) for rows in (4, 0))
    assert stored > 10 * lean


def test_weights_held_wider_say_nearly_the_same(verifier: Path, tmp_path: Path) -> None:
    make(request_of(verifier, tmp_path / "d", hold="f32", temperatures=(0.0,)), Silent())
    make(request_of(verifier, tmp_path / "e", temperatures=(0.0,)), Silent())
    wide, plain = ({t.asked: t.tokens.tolist() for t in texts_in(tmp_path / name)} for name in "de")
    assert wide == plain  # the file is F32 already


def test_layers_that_do_not_exist(verifier: Path, tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="layer 7"):
        make(request_of(verifier, tmp_path / "d", layers=(0, 7)), Silent())


def test_a_model_that_says_nothing_new_is_given_up(tmp_path: Path) -> None:
    """It ends every user turn at once."""
    verifier = zoo.script_model(tmp_path / "mute.gguf", {token: {zoo.EOS: 50.0} for token in range(261)})
    with pytest.raises(UsageError, match="makes up no user turns") as caught:
        make(request_of(verifier, tmp_path / "d", layers=(0,)), Silent())
    assert "--prompts" in caught.value.hint


PROGRAM = """
import sys
from pathlib import Path
from localspec.cli.app import main
sys.exit(main(["train", "data", sys.argv[1], "--verifier", sys.argv[2], "--tokens", "1000000",
    "--states", "stored", "--answer-tokens", "24", "--parallel", "4", "--top", "8", "--threads", "1"]))
"""


@pytest.mark.skipif(os.name == "nt", reason="signals are sent")
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_signals_keep_all_and_a_kill_what_is_written(verifier: Path, tmp_path: Path, sent: int, code: int) -> None:
    folder = tmp_path / "d"
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder), str(verifier)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    ) as process:
        shard = folder / "shard-00000.npz"
        while not shard.exists() or not json.loads((folder / MANIFEST).read_text())["shards"]:
            assert process.poll() is None, process.stderr and process.stderr.read().decode()
            try:
                process.wait(0.02)
            except subprocess.TimeoutExpired:
                continue
        process.send_signal(sent)
        assert process.wait(30) == code
    before = Store.open(folder)
    assert before.drop_damaged() == []
    assert before.manifest.texts >= data.SHARD_TEXTS
    done = before.manifest.answer_tokens
    result = make(request_of(verifier, folder, tokens=done + 50, states="stored"), Silent())
    assert result.answer_tokens >= done + 50
