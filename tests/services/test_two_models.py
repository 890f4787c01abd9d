"""Two models side by side: vocabularies that differ, drafts that do not work; whatever it is, it can only cost time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.core.draft import Draft, Ids
from localspec.core.sampling import Sampling
from localspec.drafters.base import Budget
from localspec.drafters.model import DraftModel
from localspec.engine.context import LlamaContext
from localspec.errors import DecodeError, LoadError, ModelFileError
from localspec.loop.answer import Answer
from localspec.services.loading import Loaded, load
from localspec.services.runtime import Runtime
from tests import zoo
from tests.services import tiny
from tests.services.tiny import FREE, GREEDY
from tests.services.toy_pair import Collected

DEFAULT = Sampling()
CHATTER = 120


@pytest.fixture
def report() -> Collected:
    return Collected()


@pytest.fixture(scope="module")
def plain() -> Iterator[Runtime]:
    with tiny.open_pair(draft=None, drafter="none") as runtime:
        yield runtime


@pytest.fixture
def proposed(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Every id that the draft model proposes."""
    seen: set[int] = set()
    propose = DraftModel.propose

    def spied(self: DraftModel, tokens: Ids, budget: Budget) -> Draft:
        draft = propose(self, tokens, budget)
        seen.update(draft.tokens.tolist())
        return draft

    monkeypatch.setattr(DraftModel, "propose", spied)
    return seen


def check_equal_to_plain(runtime: Runtime, law: Sampling, *, seed: int, least: float = 0.2) -> Answer:
    expected = tiny.answer(runtime, sampling=law, seed=seed, max_tokens=CHATTER, speculate=False)
    answer = tiny.answer(runtime, sampling=law, seed=seed, max_tokens=CHATTER)
    assert answer.tokens == expected.tokens
    assert answer.stats.drafter == "model"
    assert answer.stats.alpha is not None
    assert answer.stats.alpha >= least
    return answer


@pytest.mark.parametrize("law", [GREEDY, FREE], ids=["greedy", "no filters"])
@pytest.mark.parametrize(
    ("verifier", "draft", "larger"), [("verifier", "padded-draft", "draft"), ("padded", "draft", "verifier")]
)
def test_padded_tables_are_a_pair_in_both_directions(
    report: Collected, proposed: set[int], verifier: str, draft: str, larger: str, law: Sampling
) -> None:
    """B01: 151,936 against 152,064 rows. What only one of the two has is never proposed and stays reachable."""
    with tiny.open_pair(verifier, draft, report=report, drafter="model", N=4) as runtime:
        answer = check_equal_to_plain(runtime, law, seed=4)
    assert len(report.notes) == 1
    assert "7 ids" in report.notes[0]
    assert larger in report.notes[0]
    assert report.warnings == []
    assert max(proposed) < 261
    if larger == "verifier" and law is FREE:
        assert max(answer.tokens) >= 261, "the text holds an id that the draft does not have, and drafting went on"


def test_one_id_that_differs_is_never_proposed(report: Collected, proposed: set[int]) -> None:
    """B05: a harmless difference must not cost the pair; here the law all but demands the id that is blocked."""
    wanted = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, logit_bias={tiny.ODD: 4.0})
    with tiny.open_pair(draft="draft", drafter="model", N=4) as runtime:
        check_equal_to_plain(runtime, wanted, seed=1)
        assert tiny.ODD in proposed
    proposed.clear()
    with tiny.open_pair(draft="odd", report=report, drafter="model", N=4) as runtime:
        answer = check_equal_to_plain(runtime, wanted, seed=1, least=0.0)
    assert len(report.notes) == 1
    assert str(tiny.ODD) in report.notes[0]
    assert tiny.ODD in answer.tokens
    assert tiny.ODD not in proposed
    assert proposed


@pytest.mark.parametrize(("draft", "reason"), [("foreign", "tokenizers"), ("many-odd", "100")])
def test_other_tokens_are_told_once_and_decoded_plainly(
    report: Collected, plain: Runtime, draft: str, reason: str
) -> None:
    """B03, B70: acceptance near 0 that nobody is told of, or a bare "not compatible"."""
    with tiny.open_pair(draft=draft, report=report, drafter="model", N=4) as runtime:
        assert runtime.drafter == "none"
        for seed in (1, 2):
            answer = tiny.answer(runtime, sampling=DEFAULT, seed=seed)
            assert answer.tokens == tiny.answer(plain, sampling=DEFAULT, seed=seed).tokens
            assert (answer.stats.drafter, answer.stats.drafted) == ("none", 0)
        runtime.respeculate("model", 2)
        assert (runtime.settings()["drafter"], runtime.settings()["drafter_asked"]) == ("none", "model")
    assert len(report.warnings) == 1
    assert reason in report.warnings[0]
    assert "--drafter ngram" in report.warnings[0]


@pytest.mark.parametrize(("verifier", "draft"), [("begins", "draft"), ("verifier", "begins-draft")])
def test_one_tokenisation_for_both_models(
    monkeypatch: pytest.MonkeyPatch, report: Collected, verifier: str, draft: str
) -> None:
    """B06: the draft gets the verifier's ids, whatever its own rules for a begin token are."""
    texts: dict[int, list[list[int]]] = {}
    prefill = LlamaContext.prefill

    def spied(self: LlamaContext, tokens: Any, **how: Any) -> Any:
        texts.setdefault(id(self), []).append(np.asarray(tokens).tolist())
        return prefill(self, tokens, **how)

    monkeypatch.setattr(LlamaContext, "prefill", spied)
    with tiny.open_pair(verifier, draft, report=report, drafter="model", N=4) as runtime:
        prompt = runtime.vocab.tokenize("to be or not", add_special=True, parse_special=False)
        assert (prompt[0] == zoo.BOS) == (verifier == "begins")
        answer = tiny.answer(runtime, prompt)
        assert answer.tokens == tiny.answer(runtime, prompt, speculate=False).tokens
    whole = [*prompt, *answer.tokens]
    assert len(texts) == 2, "verifier and draft"
    assert all(text == whole[: len(text)] for seen in texts.values() for text in seen)
    assert any("BOS" in note for note in report.notes)


@pytest.mark.parametrize(
    ("draft", "reason"),
    [
        ("cut", "cut short"),
        ("headless", "cut short"),
        ("empty", "empty"),
        ("web-page", "web page"),
        ("unknown", "zzzzz"),
        ("projector", "projector"),
        ("nan", "no numbers"),
        (Path("nowhere.gguf"), "nowhere.gguf"),
    ],
    ids=str,
)
def test_a_draft_that_cannot_be_used_is_told_once(
    report: Collected, plain: Runtime, draft: str | Path, reason: str
) -> None:
    """B70: the program went on without a word, or died although the verifier was sound."""
    with tiny.open_pair(draft=draft, report=report, drafter="model", N=4) as runtime:
        assert runtime.drafter == "none"
        assert tiny.answer(runtime).tokens == tiny.answer(plain).tokens
        tiny.answer(runtime)
        assert len(runtime.placement) == 1
    assert len(report.warnings) == 1
    assert reason in report.warnings[0]
    assert "plain decoding" in report.warnings[0]


@pytest.mark.parametrize("verifier", ["cut", "unknown", "nan", "projector"])
def test_a_verifier_that_cannot_be_used_is_an_error(verifier: str) -> None:
    with pytest.raises((ModelFileError, LoadError)) as caught:
        tiny.open_pair(verifier, draft=None)
    assert caught.value.hint


@pytest.mark.parametrize("error", [DecodeError("no room in the cache"), MemoryError(), ValueError("oops")], ids=str)
@pytest.mark.parametrize("at", [1, 5])
def test_a_draft_that_fails_in_the_middle_is_switched_off(
    monkeypatch: pytest.MonkeyPatch, report: Collected, plain: Runtime, error: Exception, at: int
) -> None:
    """B28, B70: one warning, and the text goes on as if nothing had been drafted."""
    with tiny.open_pair(report=report, drafter="model", N=4) as runtime:
        draft: Any = runtime._lent[0].context
        evaluate, calls = draft.evaluate, iter(range(1, 1000))

        def failing(pending: int, below: Draft) -> Any:
            if next(calls) == at:
                raise error
            return evaluate(pending, below)

        monkeypatch.setattr(draft, "evaluate", failing)
        answer = tiny.answer(runtime, sampling=DEFAULT, seed=9)
        assert answer.tokens == tiny.answer(plain, sampling=DEFAULT, seed=9).tokens
        assert (answer.stats.drafter, runtime.drafter) == ("none", "none")
        assert len(report.warnings) == 1
        assert "switched off" in report.warnings[0]
        assert tiny.answer(runtime).stats.drafted == 0
        assert len(report.warnings) == 1
        runtime.respeculate("model", 4)
        assert tiny.answer(runtime).stats.accepted > 0, "a fresh one works again"


def test_a_drafter_that_cannot_be_built_is_no_end(monkeypatch: pytest.MonkeyPatch, report: Collected) -> None:
    def broken(self: DraftModel, options: Any, lender: Any) -> None:
        lender.context("draft")
        raise RuntimeError("a bug in a drafter")

    monkeypatch.setattr(DraftModel, "__init__", broken)
    with tiny.open_pair(report=report, drafter="model", N=4) as runtime:
        assert tiny.answer(runtime).stats.drafter == "none"
    assert "a bug in a drafter" in report.warnings[0]


# -- a pair that cannot work well --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on_gpu", "words"),
    [(("verifier",), "The draft is on the CPU and the verifier on the GPU"), (("draft",), "The draft is on the GPU")],
)
def test_a_draft_on_another_device_is_told_once(
    report: Collected, monkeypatch: pytest.MonkeyPatch, on_gpu: tuple[str, ...], words: str
) -> None:
    def placed(*args: Any, role: str, **keys: Any) -> Loaded:
        return replace(load(*args, role=role, **keys), layers_on_gpu=2 if role in on_gpu else 0)

    monkeypatch.setattr("localspec.services.runtime.load", placed)
    with tiny.open_pair(report=report) as runtime:
        runtime.respeculate("model", 2)
        tiny.answer(runtime)
    (line,) = [line for line in report.warnings if line.startswith(words)]
    assert "--draft-gpu-layers" in line


def test_a_foreign_draft_with_a_fixed_length_is_told(report: Collected) -> None:
    """The weights of another training: it knows the tokens and guesses none of them."""
    with tiny.open_pair(draft=tiny._llama(seed=5)(tiny.folder() / "stranger.gguf"), N=3, report=report) as runtime:
        answer = tiny.answer(runtime, max_tokens=100)
        assert answer.stats.tested >= 64
    assert any("tested draft tokens were accepted" in line for line in report.warnings)
