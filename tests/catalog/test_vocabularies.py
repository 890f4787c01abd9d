"""Comparing vocabularies: what is fatal, what is noted, what must never be proposed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.catalog.vocabularies import Comparison, Vocabulary, compare, read_vocabulary
from localspec.errors import ModelFileError
from tests import zoo


def tiny(path: Path, vocabulary: zoo.Vocabulary | None = None) -> Vocabulary:
    return read_vocabulary(zoo.tiny_llama(path, vocabulary=vocabulary))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vocabularies")


@pytest.fixture(scope="module")
def plain(folder: Path) -> Vocabulary:
    return tiny(folder / "plain.gguf")


def test_what_a_file_says_about_its_tokens(folder: Path) -> None:
    read = tiny(folder / "said.gguf", zoo.byte_vocabulary(add_bos=True, ends=(zoo.OTHER_END,)))
    assert (read.model, read.pre, len(read)) == ("gpt2", "smollm", 261)
    assert (read.bos, read.eos, read.add_bos) == (zoo.BOS, zoo.EOS, True)
    # "<|end|>" is an end by its text as well, as it is to llama.cpp.
    assert read.ends == {zoo.EOS, zoo.OTHER_END}
    assert read.texts[zoo.byte_id("a")] == b"a"


def test_a_file_without_vocabulary_is_refused(folder: Path) -> None:
    import gguf

    path = folder / "none.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(ModelFileError, match="holds no vocabulary"):
        read_vocabulary(path)


def test_a_vocabulary_fits_itself(plain: Vocabulary) -> None:
    assert compare(plain, plain) == Comparison(261, (), (), ())


def test_padded_tables_fit_in_both_directions_B01(plain: Vocabulary, folder: Path) -> None:
    padded = tiny(folder / "padded.gguf", zoo.byte_vocabulary().padded(7))
    for verifier, draft, larger in ((plain, padded, "draft"), (padded, plain, "verifier")):
        found = compare(verifier, draft)
        assert found.is_compatible
        assert (found.known, found.blocked) == (261, ())
        assert f"The sizes differ by 7 ids ({len(verifier)} verifier, {len(draft)} draft)" in found.notes[0]
        assert f"only the {larger} has" in found.notes[0]


def test_padding_against_a_real_token_is_blocked_but_no_disagreement_B01(plain: Vocabulary) -> None:
    """A draft whose rows 200.. are padding against a verifier that uses them: no reason to refuse."""
    texts = [*plain.texts[:200], *(f"[PAD{i}]".encode() for i in range(200, 261))]
    padding = replace(plain, texts=texts, types=[*plain.types[:200], *[5] * 61])
    found = compare(plain, padding)
    assert found.is_compatible
    assert found.blocked == tuple(range(200, 261))
    assert found.first_difference is None


def test_other_tokenizers_name_types_sizes_settings_and_the_first_id_B03(plain: Vocabulary, folder: Path) -> None:
    found = compare(plain, tiny(folder / "spm.gguf", zoo.spm_vocabulary()))
    (reason,) = found.fatal
    assert "gpt2/smollm with 261 ids, BOS 0 (not added), EOS 2" in reason
    assert "llama with 291 ids, BOS 1 (added)" in reason
    assert "the first id that differs is 0: '<|begin|>' against '<unk>'" in reason
    assert found.first_difference == 0


def test_ids_100_and_101_differ_and_the_message_names_100_B03(plain: Vocabulary, folder: Path) -> None:
    found = compare(plain, tiny(folder / "two.gguf", zoo.byte_vocabulary().renamed({100: "uno", 101: "due"})))
    (reason,) = found.fatal
    assert "2 of 261 ids have other texts" in reason
    assert f"the first id that differs is 100: {plain.texts[100].decode()!r} against 'uno'" in reason
    assert found.first_difference == 100


def test_one_odd_id_is_blocked_and_listed_B05(plain: Vocabulary, folder: Path) -> None:
    found = compare(plain, tiny(folder / "one.gguf", zoo.byte_vocabulary().renamed({150: "odd"})))
    assert found.is_compatible
    assert found.blocked == (150,)
    (note,) = found.notes
    assert note.startswith("1 id with another text will not be proposed: 150 ")
    assert note.endswith("against 150 'odd'.")


def test_a_few_in_many_ids_are_tolerated_and_many_are_not_B05(plain: Vocabulary) -> None:
    texts = [str(token).encode() for token in range(30_000)]
    large = replace(plain, texts=texts, types=())
    for count, fits in ((30, True), (31, False)):
        changed = replace(large, texts=[b"?%d" % i if 100 <= i < 100 + count else t for i, t in enumerate(texts)])
        found = compare(large, changed)
        assert found.is_compatible == fits
        assert len(found.blocked) == count


def test_exchanged_control_tokens_are_fatal_B05(plain: Vocabulary, folder: Path) -> None:
    texts = {zoo.BOS: zoo.CONTROL[zoo.EOS], zoo.EOS: zoo.CONTROL[zoo.BOS]}
    found = compare(plain, tiny(folder / "exchanged.gguf", zoo.byte_vocabulary().renamed(texts)))
    assert "The verifier's begin token 0 '<|begin|>' is 0 '<|end|>' to the draft." in found.fatal
    assert "The verifier's end token 2 '<|end|>' is 2 '<|begin|>' to the draft." in found.fatal


def test_another_begin_token_is_fatal_only_where_one_is_added_B05(folder: Path) -> None:
    def vocabulary(bos: int, add: bool) -> Vocabulary:
        return tiny(folder / f"bos{bos}{add}.gguf", zoo.byte_vocabulary(bos=bos, add_bos=add))

    assert compare(vocabulary(0, False), vocabulary(1, False)).is_compatible
    (reason,) = compare(vocabulary(0, True), vocabulary(1, True)).fatal
    assert reason == "A text begins with 0 '<|begin|>' for the verifier and with 1 '<|turn|>' for the draft."


def test_another_end_is_fatal_unless_both_know_it_B05(plain: Vocabulary) -> None:
    elsewhere = replace(plain, eos=zoo.PAD, ends=frozenset({zoo.PAD}))
    assert "A text ends with 2 '<|end|>' for the verifier" in compare(plain, elsewhere).fatal[0]
    either = replace(plain, eos=zoo.PAD, ends=frozenset({zoo.PAD, zoo.EOS}))
    found = compare(plain, either)
    assert found.is_compatible
    assert found.notes == ("The end tokens differ: 2 '<|end|>' against 4 '<|pad|>'.",)


def test_who_adds_the_begin_token_is_only_noted_B06(plain: Vocabulary) -> None:
    found = compare(replace(plain, add_bos=True), replace(plain, add_bos=False))
    assert found.is_compatible
    assert found.notes == ("Only the verifier adds BOS to a text by itself; the verifier's way is used for both.",)


@given(
    ours=st.lists(st.binary(max_size=2), min_size=1, max_size=40),
    theirs=st.lists(st.binary(max_size=2), min_size=1, max_size=40),
)
def test_what_may_be_proposed_means_the_same_to_both(ours: list[bytes], theirs: list[bytes]) -> None:
    verifier, draft = Vocabulary("gpt2", "", ours), Vocabulary("gpt2", "", theirs)
    found = compare(verifier, draft)
    for token in set(range(found.known)) - set(found.blocked):
        assert verifier.texts[token] == draft.texts[token]


@pytest.mark.gguf
def test_real_files_B03(smollm2: Path, gemma: Path) -> None:
    ours, theirs = read_vocabulary(smollm2), read_vocabulary(gemma)
    assert compare(ours, ours).is_compatible
    assert ours.ends == {0, 2}  # <|endoftext|> and <|im_end|>
    assert "49,152" in compare(ours, theirs).fatal[0]
    assert "262,144" in compare(ours, theirs).fatal[0]


def test_ends_that_are_spelled_differently_are_only_noted(plain: Vocabulary) -> None:
    """Llama-3 and its fine-tunes: both know both ends, each has its own."""
    ends = frozenset({zoo.EOS, zoo.OTHER_END})
    mine, other = replace(plain, ends=ends), replace(plain, eos=zoo.OTHER_END, ends=ends)
    found = compare(mine, other)
    assert found.is_compatible
    assert [note for note in found.notes if note.startswith("The end tokens differ: ")]
    assert plain.shown(None) == "none"
    assert plain.shown(10**6) == "1000000 (no such id)"


def test_pre_tokenizers_that_differ_are_noted(plain: Vocabulary) -> None:
    found = compare(plain, replace(plain, pre="qwen2"))
    assert found.is_compatible
    assert "The pre-tokenizers differ (smollm, qwen2); the verifier's is used." in found.notes


def test_other_kinds_of_tokenizer_with_the_same_texts(plain: Vocabulary) -> None:
    """Where all texts agree there is no first id to name, and the reason stands alone."""
    found = compare(plain, replace(plain, model="llama"))
    assert not found.is_compatible
    assert not any("first id" in reason for reason in found.fatal)
