"""Text to ids and back, on the vocabularies of the zoo: bytes, control tokens, ends, and what is not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.engine.model import LlamaModel
from localspec.engine.native import lib
from localspec.engine.vocab import LlamaVocab
from localspec.errors import EngineError, LoadError
from tests import zoo

texts = st.text(st.characters(codec="utf-8"), max_size=40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vocabularies")


def opened(folder: Path, name: str, vocabulary: zoo.Vocabulary) -> LlamaModel:
    return LlamaModel(zoo.tiny_llama(folder / f"{name}.gguf", vocabulary=vocabulary), gpu_layers=0)


@pytest.fixture(scope="module")
def vocab(folder: Path) -> Iterator[LlamaVocab]:
    with opened(folder, "bytes", zoo.byte_vocabulary(words=("th", "ab"), ends=(zoo.OTHER_END,))) as model:
        yield model.vocab


@pytest.fixture(scope="module")
def spm(folder: Path) -> Iterator[LlamaVocab]:
    with opened(folder, "spm", zoo.spm_vocabulary()) as model:
        yield model.vocab


def spelled(vocab: LlamaVocab, tokens: list[int]) -> str:
    return b"".join(vocab.piece(token) for token in tokens).decode("utf-8", "replace")


def test_sizes_and_special_ids(vocab: LlamaVocab, spm: LlamaVocab) -> None:
    assert vocab.size == 263
    assert (vocab.bos, vocab.eos, vocab.adds_bos) == (zoo.BOS, zoo.EOS, False)
    assert (spm.bos, spm.adds_bos) == (1, True)


@given(texts)
def test_text_survives(vocab: LlamaVocab, text: str) -> None:
    """B18: emoji, CJK, Arabic, controls and what else there is, byte by byte."""
    assert spelled(vocab, vocab.tokenize(text, add_special=False, parse_special=False)) == text


@pytest.mark.parametrize("text", ["a", "  two  spaces\t\n", "\U0001f408", "a\0b", "x" * 5000])
def test_long_and_odd_texts_survive(vocab: LlamaVocab, text: str) -> None:
    assert spelled(vocab, vocab.tokenize(text, add_special=False, parse_special=False)) == text


def test_merged_words_are_one_token(vocab: LlamaVocab) -> None:
    assert vocab.tokenize("th", add_special=False, parse_special=False) == [261]
    assert vocab.piece(261) == b"th"


def test_control_tokens_are_read_only_on_demand(vocab: LlamaVocab) -> None:
    """A user who types a control token must not get one."""
    text = f"a{zoo.CONTROL[zoo.TURN]}b"
    assert vocab.tokenize(text, add_special=False, parse_special=True) == [
        *zoo.byte_ids("a"),
        zoo.TURN,
        zoo.byte_id("b"),
    ]
    assert zoo.TURN not in vocab.tokenize(text, add_special=False, parse_special=False)


def test_control_tokens_have_no_bytes_unless_asked_for(vocab: LlamaVocab) -> None:
    assert vocab.piece(zoo.EOS) == b""
    assert vocab.piece(zoo.EOS, special=True) == zoo.CONTROL[zoo.EOS].encode()
    assert vocab.text(zoo.EOS) == zoo.CONTROL[zoo.EOS]
    assert vocab.text(-1) == ""


def test_a_begin_is_added_where_the_model_wants_it(vocab: LlamaVocab, spm: LlamaVocab) -> None:
    assert spm.tokenize("a", add_special=True, parse_special=False)[0] == spm.bos
    assert spm.tokenize("a", add_special=False, parse_special=False)[0] != spm.bos
    assert vocab.tokenize("a", add_special=True, parse_special=False) == zoo.byte_ids("a")


def test_an_empty_text_has_no_tokens(vocab: LlamaVocab, spm: LlamaVocab) -> None:
    """B57: without a begin token nothing is left to evaluate."""
    assert vocab.tokenize("", add_special=True, parse_special=True) == []
    assert spm.tokenize("", add_special=True, parse_special=True) == [spm.bos]


def test_every_end_is_an_end(vocab: LlamaVocab) -> None:
    """B09: not only the EOS."""
    assert {token for token in range(vocab.size) if vocab.is_end(token)} >= {zoo.EOS, zoo.OTHER_END}
    assert not vocab.is_end(zoo.byte_id("a"))


@pytest.mark.parametrize("token", [-1, 263, 10**6])
def test_an_id_outside_is_an_error_and_no_crash(vocab: LlamaVocab, token: int) -> None:
    with pytest.raises(EngineError, match="263"):
        vocab.piece(token)


def test_a_long_token_comes_whole(folder: Path) -> None:
    """Some vocabularies have tokens of dozens of blanks or dashes: more than the first guess of their size."""
    long = "-" * 150
    with opened(folder, "long", zoo.byte_vocabulary().renamed({200: long})) as model:
        assert model.vocab.piece(200) == long.encode()


def test_a_text_of_more_tokens_than_bytes_is_asked_for_again(
    vocab: LlamaVocab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tokenizer may put more in front of a text than it has bytes: llama.cpp then says how much room it wants."""
    rooms: list[int] = []

    def tokenize(handle: object, data: bytes, size: int, ids: Any, room: int, special: bool, parse: bool) -> int:
        rooms.append(room)
        if room < 40:
            return -40
        ids[:40] = range(40)
        return 40

    monkeypatch.setattr(lib, "llama_tokenize", tokenize)
    assert vocab.tokenize("a", add_special=True, parse_special=False) == list(range(40))
    assert rooms == [9, 40]
    monkeypatch.setattr(lib, "llama_tokenize", lambda *_: -40)
    with pytest.raises(EngineError, match="could not tokenise a text of 1 bytes") as caught:
        vocab.tokenize("a", add_special=True, parse_special=False)
    assert caught.value.hint


def test_half_a_letter_is_bytes(vocab: LlamaVocab) -> None:
    """A token may be a part of a code point; only the text stream makes letters of it."""
    ids = vocab.tokenize("é", add_special=False, parse_special=False)
    assert [vocab.piece(token) for token in ids] == [b"\xc3", b"\xa9"]


def test_after_the_model_is_closed_it_says_so(folder: Path) -> None:
    """B89: use after close read freed memory."""
    model = opened(folder, "closed", zoo.byte_vocabulary())
    vocab = model.vocab
    model.close()
    with pytest.raises(LoadError, match="closed"):
        vocab.tokenize("a", add_special=False, parse_special=False)
    with pytest.raises(LoadError, match="closed"):
        vocab.piece(7)
    with pytest.raises(LoadError, match="closed"):
        vocab.is_end(7)
