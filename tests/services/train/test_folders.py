"""Several folders are read as one: shuffled together, held out in proportion, the same part again when they grow."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.errors import UsageError
from localspec.services.train.folders import Folders
from localspec.services.train.frames import HELD_OUT, Frame, Frames
from localspec.services.train.shards import Manifest, Store
from localspec.services.train.vocabulary import DraftVocabulary
from tests.services.train.conftest import text_of

VERIFIER = {"ref": "tiny", "file": "tiny.gguf", "layers": 3}
SETTINGS: dict[str, Any] = {"states": "stored", "hold": "as-is", "layers": [0, 1, 2], "top": 4, "seed": 0}
ANSWER = 5


def store_of(
    folder: Path, shards: int, *, token: int = 1, verifier: dict[str, Any] = VERIFIER, **changes: Any
) -> Store:
    """Shards of 25 texts that consist of `token`, the first of each held out."""
    store = Store.create(folder, Manifest(verifier, SETTINGS | changes))
    grow(store, shards, token)
    return store


def grow(store: Store, shards: int, token: int) -> None:
    for _ in range(shards):
        texts = [text_of(store.manifest.texts + place, 3 + place % 4, ANSWER) for place in range(HELD_OUT)]
        store.add([replace(text, tokens=np.full_like(text.tokens, token)) for text in texts])


def frames_of(*stores: Store) -> Frames:
    folders = Folders([Store.open(store.folder) for store in stores])
    return Frames(folders, DraftVocabulary.of(range(300), 300), columns=[0], last=False, tokens=60)


def told(frames: Iterable[Frame]) -> list[list[int]]:
    """First tokens of the texts, batch by batch: whose they are."""
    return [frame.batch.tokens[:, 0].tolist() for frame in frames]


def counted(frames: Iterable[Frame]) -> Counter[int]:
    """How many texts each folder has in them."""
    return Counter(itertools.chain.from_iterable(told(frames)))


def test_an_epoch_has_the_texts_of_all_folders_mixed(tmp_path: Path) -> None:
    frames = frames_of(store_of(tmp_path / "a", 2, token=1), store_of(tmp_path / "b", 1, token=2))
    batches = told(frames.epoch([2, 1], [0, 0]))
    assert counted(frames.epoch([2, 1], [0, 0])) == {1: 48, 2: 24}
    assert any(len(set(batch)) > 1 for batch in batches)
    assert batches != told(frames.epoch([2, 1], [0, 1]))


def test_an_epoch_goes_on_with_what_it_began_with(tmp_path: Path) -> None:
    """A folder in front has grown, and another one came behind."""
    a, b = store_of(tmp_path / "a", 2, token=1), store_of(tmp_path / "b", 2, token=2)
    before = told(frames_of(a, b).epoch([2, 2], [7, 0]))
    grow(a, 3, 1)
    grown = frames_of(a, b, store_of(tmp_path / "c", 1, token=3))
    assert told(grown.epoch([2, 2], [7, 0], skip=4)) == before[4:]


def test_as_much_is_held_out_of_each_folder(tmp_path: Path) -> None:
    frames = frames_of(store_of(tmp_path / "a", 12, token=1), store_of(tmp_path / "b", 4, token=2))
    assert counted(frames.held_out(8 * ANSWER)) == {1: 4, 2: 4}
    assert counted(frames.held_out(1)) == {1: 1, 2: 1}
    assert counted(frames.held_out(10**6)) == {1: 12, 2: 4}


@pytest.mark.parametrize(
    ("tokens", "extent"), [(None, [2, 3]), (1, [1, 0]), (125, [1, 0]), (126, [2, 0]), (251, [2, 1]), (10**6, [2, 3])]
)
def test_the_first_tokens_are_those_of_the_first_folders(tmp_path: Path, tokens: int | None, extent: list[int]) -> None:
    folders = Folders([store_of(tmp_path / "a", 2), store_of(tmp_path / "b", 3)])
    assert folders.extent(tokens) == extent
    assert len(folders.shards(extent)) == sum(extent)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"verifier": {**VERIFIER, "file": "large.gguf"}}, "verifier file is tiny.gguf in the one and large.gguf"),
        ({"layers": [0, 2, 1]}, r"layers is \[0, 1, 2\] in the one and \[0, 2, 1\]"),
        ({"top": 8}, "top is 4 in the one and 8"),
    ],
)
def test_folders_that_differ_are_both_named(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    stores = [store_of(tmp_path / "a", 1), store_of(tmp_path / "b", 1), store_of(tmp_path / "c", 1, **changes)]
    with pytest.raises(UsageError, match=said) as caught:
        Folders(stores)
    assert f"{tmp_path / 'a'} and {tmp_path / 'c'}" in str(caught.value)
    assert caught.value.hint


def test_what_may_differ(tmp_path: Path) -> None:
    """How the weights were held matters only where states are computed again, with one copy of them."""
    stored = store_of(tmp_path / "a", 1, hold="f32", seed=3)
    bare = store_of(tmp_path / "b", 1, verifier={**VERIFIER, "ref": "other name"}, states="recaptured", hold="bf16")
    alike = store_of(tmp_path / "c", 1, states="recaptured", hold="bf16")
    again = Folders([stored, bare, alike]).without_states
    assert again is not None
    assert (again.first, again.hold, len(again.shards())) == (bare.folder, "bf16", 2)
    assert Folders([stored]).without_states is None
    with pytest.raises(UsageError, match="hold is bf16 in the one and as-is"):
        Folders([stored, bare, store_of(tmp_path / "d", 1, states="recaptured")])


def test_a_folder_twice_and_an_empty_one(tmp_path: Path) -> None:
    store = store_of(tmp_path / "a", 1)
    with pytest.raises(UsageError, match="named twice"):
        Folders([store, Store.open(tmp_path / "." / "a")])
    with pytest.raises(UsageError, match="b holds no texts yet"):
        Folders([store, store_of(tmp_path / "b", 0)])


def test_the_record_of_one_folder_is_its_settings_and_sums(tmp_path: Path) -> None:
    record = Folders([store_of(tmp_path / "a", 3)]).record([2])
    assert record.items() >= {**SETTINGS, "texts": 50, "answer_tokens": 250}.items()
    assert [each["folder"] for each in record["folders"]] == ["a"]
