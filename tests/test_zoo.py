"""The zoo itself: every model loads and says what its writer promises, every wreck is refused by llama.cpp.

Reads the files with llama_cpp alone, so that a fault of localspec cannot hide one of the zoo.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
import numpy.typing as npt
import pytest

from localspec.engine import native
from tests import wrecks, zoo

Rows = npt.NDArray[np.float32]


@contextmanager
def loaded(path: Path) -> Iterator[Any]:
    with native.heard():
        model = lib.llama_model_load_from_file(str(path).encode(), lib.llama_model_default_params())
        assert model, native.complaint()
    yield model
    lib.llama_model_free(model)


def rows(path: Path, tokens: list[int]) -> Rows:
    """(n, V): logits after each of `tokens`."""
    with loaded(path) as model:
        params = lib.llama_context_default_params()
        params.n_ctx, params.n_threads, params.n_threads_batch, params.flash_attn_type = 256, 1, 1, 0
        context = lib.llama_init_from_model(model, params)
        batch = lib.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, 1
            batch.seq_id[i][0] = 0
        assert lib.llama_decode(context, batch) == 0
        size = (lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model)),)
        found = [np.ctypeslib.as_array(lib.llama_get_logits_ith(context, i), size).copy() for i in range(len(tokens))]
        lib.llama_batch_free(batch)
        lib.llama_free(context)
    return np.array(found)


def ids(path: Path, text: str, *, add_special: bool = False) -> list[int]:
    with loaded(path) as model:
        buffer = (ctypes.c_int32 * 256)()
        data = text.encode()
        vocab = lib.llama_model_get_vocab(model)
        count = lib.llama_tokenize(vocab, data, len(data), buffer, 256, add_special, True)
        return list(buffer[:count])


def ends(path: Path) -> list[int]:
    with loaded(path) as model:
        vocab = lib.llama_model_get_vocab(model)
        return [token for token in range(lib.llama_vocab_n_tokens(vocab)) if lib.llama_vocab_is_eog(vocab, token)]


WRITERS: dict[str, Callable[[Path], Path]] = {
    "llama": zoo.tiny_llama,
    "swa": zoo.tiny_swa,
    "mamba": zoo.tiny_mamba,
    "jamba": zoo.tiny_jamba,
    "lfm2": zoo.tiny_lfm2,
    "lfm2-swa": lambda path: zoo.tiny_lfm2(path, window=32),
    "split": lambda path: zoo.tiny_llama(path, split=12),
    "spm": lambda path: zoo.tiny_llama(path, vocabulary=zoo.spm_vocabulary()),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_model_loads_and_decodes(name: str, tmp_path: Path) -> None:
    found = rows(WRITERS[name](tmp_path / "model.gguf"), zoo.byte_ids("abc"))
    assert np.isfinite(found).all()
    assert (found.std(axis=1) > 1).all()


@pytest.mark.parametrize("name", WRITERS)
def test_a_later_token_depends_on_the_first(name: str, tmp_path: Path) -> None:
    path = WRITERS[name](tmp_path / "model.gguf")
    left, right = rows(path, zoo.byte_ids("abcd")), rows(path, zoo.byte_ids("xbcd"))
    assert np.abs(left[3] - right[3]).max() > 0.05


def test_same_arguments_same_bytes(tmp_path: Path) -> None:
    left, right = zoo.tiny_llama(tmp_path / "a.gguf", seed=3), zoo.tiny_llama(tmp_path / "b.gguf", seed=3)
    assert left.read_bytes() == right.read_bytes()
    assert left.read_bytes() != zoo.tiny_llama(tmp_path / "c.gguf", seed=4).read_bytes()


def test_noise_makes_a_draft_that_often_agrees(tmp_path: Path) -> None:
    text = zoo.byte_ids("the quick brown fox jumps over the lazy dog, and again")
    verifier = rows(zoo.tiny_llama(tmp_path / "v.gguf"), text).argmax(axis=1)
    draft = rows(zoo.tiny_llama(tmp_path / "d.gguf", noise=0.05), text).argmax(axis=1)
    stranger = rows(zoo.tiny_llama(tmp_path / "s.gguf", seed=1), text).argmax(axis=1)
    assert 0.4 < (verifier == draft).mean() < 1.0
    assert (verifier == stranger).mean() < 0.2


def test_padding_changes_no_logit(tmp_path: Path) -> None:
    """B01: the same model with 7 rows more."""
    plain = rows(zoo.tiny_llama(tmp_path / "a.gguf"), [10, 20])
    padded = rows(zoo.tiny_llama(tmp_path / "b.gguf", vocabulary=zoo.byte_vocabulary().padded(7)), [10, 20])
    assert plain.shape == (2, 261)
    assert padded.shape == (2, 268)
    np.testing.assert_allclose(plain, padded[:, :261], atol=1e-4)


def test_nan_weights_give_nan_logits(tmp_path: Path) -> None:
    assert np.isnan(rows(zoo.tiny_llama(tmp_path / "a.gguf", nan=True), [10])).all()


def test_bytes_are_tokens(tmp_path: Path) -> None:
    path = zoo.tiny_llama(tmp_path / "a.gguf")
    text = "naïve <|end|>\n🐱"
    assert ids(path, text) == [*zoo.byte_ids("naïve "), zoo.EOS, *zoo.byte_ids("\n🐱")]


def test_words_are_merged(tmp_path: Path) -> None:
    path = zoo.tiny_llama(tmp_path / "a.gguf", vocabulary=zoo.byte_vocabulary(words=("th", "he")))
    assert ids(path, "thhe") == [261, 262]


def test_begin_and_end_tokens_are_as_asked(tmp_path: Path) -> None:
    vocabulary = zoo.byte_vocabulary(add_bos=True, eos=zoo.TURN, ends=(zoo.EOS, zoo.OTHER_END))
    path = zoo.tiny_llama(tmp_path / "a.gguf", vocabulary=vocabulary)
    assert ids(path, "a", add_special=True) == [zoo.BOS, zoo.byte_id("a")]
    assert ends(path) == [zoo.TURN, zoo.EOS, zoo.OTHER_END]
    assert ends(zoo.tiny_llama(tmp_path / "b.gguf")) == [zoo.EOS]


def test_ids_can_be_renamed(tmp_path: Path) -> None:
    names = zoo.byte_vocabulary().texts
    exchanged = zoo.byte_vocabulary().renamed({100: names[101], 101: names[100]})
    path = zoo.tiny_llama(tmp_path / "a.gguf", vocabulary=exchanged)
    assert ids(path, chr(100 - zoo.FIRST_BYTE)) == [101]


def test_the_spm_vocabulary_has_spaces_words_and_bytes(tmp_path: Path) -> None:
    path = zoo.tiny_llama(tmp_path / "a.gguf", vocabulary=zoo.spm_vocabulary())
    texts = zoo.spm_vocabulary().texts
    found = ids(path, "the é", add_special=True)
    assert [texts[token] for token in found] == ["<s>", "▁th", "e", "▁", "<0xC3>", "<0xA9>"]


def test_the_template_is_stored(tmp_path: Path) -> None:
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    path = zoo.tiny_llama(tmp_path / "a.gguf", vocabulary=zoo.byte_vocabulary(template=template))
    with loaded(path) as model:
        assert lib.llama_model_chat_template(model, None).decode() == template


def test_the_script_model_says_the_law_it_is_given(tmp_path: Path) -> None:
    """Probabilities of 0.51 and 0.49 come out as such."""
    a, b, c = zoo.byte_ids("abc")
    path = zoo.script_model(tmp_path / "a.gguf", {a: {b: np.log(0.51), c: np.log(0.49)}})
    row = rows(path, [a])[0].astype(np.float64)
    law = np.exp(row) / np.exp(row).sum()
    np.testing.assert_allclose(law[[b, c]], [0.51, 0.49], atol=1e-5)
    assert law.sum() - law[b] - law[c] < 1e-9


def test_the_chain_model_says_its_tokens_in_order(tmp_path: Path) -> None:
    tokens = [*zoo.byte_ids("ok 🐱"), zoo.EOS]
    path = zoo.chain_model(tmp_path / "a.gguf", tokens)
    assert rows(path, tokens[:-1]).argmax(axis=1).tolist() == tokens[1:]


def refused(path: Path) -> bool:
    with native.heard():
        return not lib.llama_model_load_from_file(str(path).encode(), lib.llama_model_default_params())


@pytest.mark.parametrize("place", ["header", "metadata", "tensor list", "data"])
def test_cut_files_are_refused(place: wrecks.Place, tmp_path: Path) -> None:
    """B83."""
    whole = zoo.tiny_llama(tmp_path / "whole.gguf")
    path = wrecks.cut(tmp_path / "cut.gguf", whole, place)
    assert whole.read_bytes().startswith(path.read_bytes())
    assert refused(path)


@pytest.mark.parametrize(
    "wreck", [wrecks.empty, wrecks.web_page, wrecks.old_magic, wrecks.unknown_architecture, wrecks.projector]
)
def test_files_of_another_kind_are_refused(wreck: Callable[[Path], Path], tmp_path: Path) -> None:
    """B83, B84."""
    assert refused(wreck(tmp_path / "wreck.gguf"))


@pytest.mark.parametrize("wreck", [wrecks.version, wrecks.huge_counts])
def test_lying_headers_are_refused(wreck: Callable[[Path, Path], Path], tmp_path: Path) -> None:
    """B83."""
    assert refused(wreck(tmp_path / "wreck.gguf", zoo.tiny_llama(tmp_path / "whole.gguf")))


def test_a_split_model_needs_all_its_parts(tmp_path: Path) -> None:
    """B81."""
    first, second = wrecks.split_pair(tmp_path)
    assert refused(second)
    assert refused(wrecks.joined(tmp_path / "joined.gguf", (first, second)))
    second.unlink()
    assert refused(first)
