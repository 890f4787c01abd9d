"""What a drafter can borrow: a second model, checked against the verifier, opened once, closed by who lent it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.catalog.modelfile import read_model
from localspec.catalog.vocabularies import Comparison
from localspec.drafters import registry as drafters
from localspec.drafters.base import Drafter, Lender
from localspec.engine.context import ContextSettings
from localspec.engine.model import LlamaModel
from localspec.engine.vocab import LlamaVocab
from localspec.errors import DecodeError, DrafterError, PairError
from localspec.services.lender import PairLender, Second
from localspec.services.loading import Loaded, load
from localspec.services.notebook import Notebook
from tests import zoo
from tests.services import tiny
from tests.services.toy_pair import Collected

SETTINGS = ContextSettings(capacity=64, flash_attn="off")


def build(name: str, lender: PairLender) -> Drafter:
    entry = drafters.entry(name)
    return entry.drafter_class(entry.parse({}), lender)


def notebook(vocab: LlamaVocab) -> Notebook:
    return Notebook(read_model(tiny.model("verifier")), vocab.size, Collected())


@pytest.fixture(scope="module")
def vocab() -> Iterator[LlamaVocab]:
    with LlamaModel(tiny.model("verifier"), gpu_layers=0) as model:
        yield model.vocab


class Shelf:
    """Counts how often a model is looked for and opened."""

    def __init__(self, path: Path, comparison: Comparison) -> None:
        self._path = path
        self._comparison = comparison
        self.looked, self.opened = 0, 0

    def find(self, role: str) -> Second | None:
        self.looked += 1
        return Second(self._open, self._comparison) if role == "draft" else None

    def _open(self) -> Loaded:
        self.opened += 1
        return load(read_model(self._path), SETTINGS, gpu_layers=0, role="draft", report=Collected())


@pytest.fixture
def shelf() -> Shelf:
    return Shelf(tiny.model("odd"), Comparison(known=261, blocked=(tiny.ODD,), fatal=(), notes=()))


@pytest.fixture
def lender(vocab: LlamaVocab, shelf: Shelf) -> Iterator[PairLender]:
    made = PairLender(vocab, shelf.find, build, notebook(vocab), Collected())
    yield made
    made.close()


def test_it_is_what_drafters_expect(lender: PairLender, vocab: LlamaVocab) -> None:
    seen: Lender = lender
    assert seen.vocab_size == vocab.size
    assert [token for token in range(261) if seen.is_end(token)] == [t for t in range(261) if vocab.is_end(t)]
    assert seen.is_end(zoo.EOS)


def test_nothing_is_opened_before_it_is_wanted(lender: PairLender, shelf: Shelf) -> None:
    assert lender.known("draft") == 261
    assert lender.blocked("draft").tolist() == [tiny.ODD]
    assert lender.blocked("draft").dtype == "int32"
    assert lender.lent == []
    assert (shelf.looked, shelf.opened) == (1, 0), "compared once, however often it is asked"


def test_a_model_is_opened_once(lender: PairLender, shelf: Shelf) -> None:
    context = lender.context("draft")
    assert lender.context("draft") is context
    assert (shelf.opened, [loaded.context for loaded in lender.lent]) == (1, [context])
    assert context.prefill([1, 2, 3]) is not None


def test_a_role_that_nobody_plays(lender: PairLender) -> None:
    for ask in (lender.context, lender.known, lender.blocked):
        with pytest.raises(DrafterError, match="no head model") as caught:
            ask("head")
        assert "--head" in caught.value.hint


def test_a_model_that_does_not_fit_is_never_opened(vocab: LlamaVocab) -> None:
    """Whatever is asked first, the reason is the same."""

    def refuse(role: str) -> Second | None:
        raise PairError("other tokens", hint="another draft")

    lender = PairLender(vocab, refuse, build, notebook(vocab), Collected())
    for ask in (lender.context, lender.known, lender.blocked):
        with pytest.raises(PairError, match="other tokens"):
            ask("draft")
    assert lender.lent == []


def test_what_was_lent_is_closed_with_the_lender(lender: PairLender) -> None:
    context, loaded = lender.context("draft"), lender.lent[0]
    lender.close()
    lender.close()
    assert lender.lent == []
    with pytest.raises(DecodeError, match="closed"):
        context.prefill([1])
    with pytest.raises(Exception, match="closed"):
        _ = loaded.model and loaded.model.handle


def test_a_drafter_can_be_borrowed_too(lender: PairLender, shelf: Shelf) -> None:
    assert lender.drafter("ngram").name == "ngram"
    assert lender.drafter("model").name == "model"
    assert shelf.opened == 1
