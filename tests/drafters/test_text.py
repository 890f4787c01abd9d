"""B07: drafters work on ids. Text becomes ids at most once, when a drafter is built, without specials, byte by byte.

Programs that bridged two tokenizers through text encoded it anew every round: each time a begin token came in, blanks
went missing, and the two sides drifted apart until nothing was accepted any more.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.core.coupled import Coupled
from localspec.core.sampling import Sampling
from localspec.engine.toy import ToyContext
from localspec.services.runtime import Runtime
from tests.drafters.settings import NAMES, TOY_PROMPT, Lender, Pair, built, toy
from tests.services import tiny

TEXT = "  two blanks,\ta tab\n\n\na break <|begin|> and ünï  "


class Reading(Lender):
    """Counts the texts that were turned into ids."""

    read = 0

    def tokenize(self, text: str) -> list[int]:
        self.read += 1
        return super().tokenize(text)


@pytest.mark.parametrize("name", NAMES)
def test_b07_no_drafter_reads_text_while_it_drafts(name: str) -> None:
    model = toy()
    lender = Reading(model.vocab, lambda: ToyContext(toy(blur=0.3)))
    pair = Pair(ToyContext(model), model.vocab, built(name, lender))
    before = lender.read
    pair.answer(TOY_PROMPT, sampling=Sampling(temperature=0.0), rule=Coupled(1), count=60)
    assert lender.read == before


def test_b07_a_corpus_is_read_once_and_by_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text("abcabcabd" * 20, encoding="utf-8")
    model = toy()
    lender = Reading(model.vocab, lambda: ToyContext(model))
    pair = Pair(ToyContext(model), model.vocab, built("ngram", lender, {"corpus": str(path)}))
    for seed in (1, 2):
        pair.answer(TOY_PROMPT, sampling=Sampling(temperature=1.0), rule=Coupled(seed), count=60)
    assert lender.read == 1


@pytest.mark.parametrize("verifier", ["verifier", "begins", "foreign"])
def test_b07_what_drafters_read_keeps_every_byte_and_gains_no_special(verifier: str) -> None:
    """Also where the model's own tokenizer wants a begin token ("begins", "foreign")."""
    with tiny.open_pair(verifier, None, drafter="none") as runtime:
        ids = runtime.lender.tokenize(TEXT)
        assert spelled(runtime, ids) == TEXT.encode()
        assert runtime.vocab.bos not in ids, "not even where the text spells one out"


def spelled(runtime: Runtime, ids: list[int]) -> bytes:
    """SentencePiece models put one blank before a text: it belongs to the tokenizer, not to the text."""
    data = b"".join(runtime.vocab.piece(token, special=True) for token in ids)
    return data if data.startswith(b"  two") else data[1:]
