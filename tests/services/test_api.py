"""The Python API as contract.md shows it, on tiny files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import localspec
from localspec.errors import BusyError, LocalspecError, UsageError
from localspec.services.report import Report
from tests import zoo
from tests.services import tiny
from tests.services.toy_pair import Collected

TEMPLATE = (
    "{% for m in messages %}<|turn|>{{ m.role }}:{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>{% endif %}"
)
TINY: dict[str, Any] = {"ctx_size": 256, "threads": 1, "flash_attn": "off"}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A models.toml whose default pair is tiny and can chat."""
    folder = tmp_path_factory.mktemp("api")
    vocabulary = zoo.byte_vocabulary(template=TEMPLATE)
    zoo.tiny_llama(folder / "verifier.gguf", vocabulary=vocabulary)
    zoo.tiny_llama(folder / "draft.gguf", vocabulary=vocabulary, noise=0.05)
    path = folder / "models.toml"
    path.write_text(
        """
default = "tiny"
[models.tiny-verifier]
source = "verifier.gguf"
[models.tiny-draft]
source = "draft.gguf"
[pairs.tiny]
verifier = "tiny-verifier"
draft = "tiny-draft"
drafter = "model"
N = 3
"""
    )
    return path


@pytest.fixture
def pair(registry: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[localspec.LoadedPair]:
    monkeypatch.setenv("LOCALSPEC_MODELS", str(registry))
    with localspec.load("tiny", **TINY) as loaded:
        yield loaded


def test_the_contract(pair: localspec.LoadedPair) -> None:
    """The snippet of contract.md."""
    texts = []
    for piece in pair.stream([{"role": "user", "content": "hello"}], temperature=0.7, seed=1, max_tokens=30):
        texts.append(piece.text)
        assert isinstance(piece.drafted, bool)
    answer = pair.generate("Once upon a time", raw=True, max_tokens=64, seed=1)
    assert "".join(texts)
    assert answer.text
    assert 0 < len(answer.tokens) <= 64
    assert answer.finish_reason in ("stop", "length")
    assert answer.stats.completion_tokens == len(answer.tokens)
    assert answer.stats.drafter == "model"


def test_the_default_pair_needs_no_name(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_MODELS", str(registry))
    with localspec.load(**TINY) as pair:
        assert pair.runtime.pair.name == "tiny"


def test_files_instead_of_a_pair() -> None:
    with localspec.load(verifier=tiny.model("verifier"), draft=str(tiny.model("draft")), N=5, **TINY) as pair:
        stats = pair.generate("to be or not", raw=True, temperature=0, max_tokens=20).stats
        assert (stats.drafter, stats.N) == ("model", 5)
        assert stats.accepted > 0
    with localspec.load(verifier=tiny.model("verifier"), drafter="ngram", options={"max_ngram": 2}, **TINY) as pair:
        assert pair.runtime.settings()["options"] == {"max_ngram": "2"}


def test_a_text_is_one_user_message(pair: localspec.LoadedPair) -> None:
    as_text = pair.generate("hello", seed=3, max_tokens=10)
    as_messages = pair.generate([{"role": "user", "content": "hello"}], seed=3, max_tokens=10)
    assert as_text.tokens == as_messages.tokens
    assert as_text.prompt_tokens == len("user:hello") + 2
    assert pair.generate("hello", raw=True, max_tokens=1).prompt_tokens == len("hello")


def test_a_system_message_goes_first(pair: localspec.LoadedPair) -> None:
    said = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
    expected = pair.generate(said, seed=3, max_tokens=10)
    answer = pair.generate("hello", system="be brief", seed=3, max_tokens=10)
    assert (answer.tokens, answer.prompt_tokens) == (expected.tokens, expected.prompt_tokens)
    assert len(said) == 2, "the caller's messages stay as they are"


def test_a_stop_may_be_one_text_or_several(pair: localspec.LoadedPair) -> None:
    whole = pair.generate("hello", seed=3, max_tokens=30).text
    letter = next(letter for letter in whole[3:] if letter.isascii())
    for stop in (letter, [letter], (letter, "not there")):
        answer = pair.generate("hello", seed=3, max_tokens=30, stop=stop)
        assert answer.finish_reason == "stop"
        assert answer.text == whole[: whole.index(letter)]


def test_the_same_seed_is_the_same_text(pair: localspec.LoadedPair) -> None:
    answers = [pair.generate("hello", seed=seed, temperature=1.5, max_tokens=20).tokens for seed in (1, 1, 2)]
    assert answers[0] == answers[1] != answers[2]


def test_an_unknown_setting_is_told_with_the_known_ones(pair: localspec.LoadedPair) -> None:
    with pytest.raises(UsageError, match="temprature") as caught:
        pair.generate("hello", temprature=1)
    assert "temperature" in caught.value.hint
    assert "max_tokens" in caught.value.hint
    with pytest.raises(UsageError, match="gpu_layer'") as caught:
        localspec.load("tiny", gpu_layer=3)
    assert "gpu_layers" in caught.value.hint


@pytest.mark.parametrize(
    "wrong", [{"temperature": -1}, {"max_tokens": -1}, {"seed": -3}, {"top_p": 0}, {"acceptance": "typical"}], ids=str
)
def test_a_value_that_means_nothing(pair: localspec.LoadedPair, wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        pair.generate("hello", **wrong)


def test_raw_completes_a_text_only(pair: localspec.LoadedPair) -> None:
    with pytest.raises(UsageError, match="list of messages"):
        pair.generate([{"role": "user", "content": "hello"}], raw=True)


def test_a_model_without_a_template_says_so() -> None:
    """B58: never a silent guess."""
    with localspec.load(verifier=tiny.model("verifier"), **TINY) as pair:
        with pytest.raises(LocalspecError, match="template") as caught:
            pair.generate("hello")
        assert caught.value.hint
        assert pair.generate("hello", raw=True, max_tokens=3).tokens


def test_one_answer_at_a_time(pair: localspec.LoadedPair) -> None:
    """B89."""
    first = pair.stream("hello", max_tokens=30, seed=3)
    next(first)
    with pytest.raises(BusyError):
        pair.generate("hello")
    first.close()
    assert pair.generate("hello", max_tokens=3).tokens


def test_a_closed_pair_says_so(pair: localspec.LoadedPair) -> None:
    """B89: not a crash of the process."""
    pair.close()
    pair.close()
    for use in (lambda: pair.generate("hello"), lambda: pair.stream("hello", raw=True)):
        with pytest.raises(UsageError, match="closed"):
            use()


def test_a_report_hears_warnings() -> None:
    """B70: a program is told too, if it listens."""
    report = Collected()
    listener: Report = report
    with localspec.load(verifier=tiny.model("verifier"), draft=tiny.model("cut"), report=listener, **TINY) as pair:
        assert pair.runtime.drafter == "none"
    assert len(report.warnings) == 1


def test_what_the_package_offers() -> None:
    assert set(localspec.__all__) == {"LoadedPair", "load", "__version__"}
    assert localspec.__version__
    with pytest.raises(AttributeError, match="laod"):
        _ = localspec.laod


def test_importing_is_light() -> None:
    """`import localspec` loads neither numpy nor llama.cpp; `localspec.load` does."""
    program = """
import sys, localspec
assert localspec.__version__
heavy = {"numpy", "llama_cpp", "huggingface_hub", "typer", "rich"} & set(sys.modules)
assert not heavy, heavy
localspec.load
assert "numpy" in sys.modules and "typer" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
