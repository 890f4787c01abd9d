"""Texts come back from disk as they were written; damage is found, named and repaired by making the texts again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from localspec.errors import UsageError
from localspec.services.train.shards import MANIFEST, Manifest, Store, Text
from tests.services.train.conftest import text_of


def equal(left: Text, right: Text) -> bool:
    arrays = ("tokens", "top_ids", "top_logs", "layers", "last")
    same = all(np.array_equal(getattr(left, name), getattr(right, name)) for name in arrays)
    return same and (left.index, left.asked, left.start) == (right.index, right.asked, right.start)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store.create(tmp_path / "data", Manifest({"name": "tiny"}, {"top": 4}))
    for first in (0, 3, 6):
        made.add([text_of(index, 2 + index, 5) for index in range(first, first + 3)])
    return made


@pytest.mark.parametrize("states", [True, False])
def test_texts_come_back(tmp_path: Path, states: bool) -> None:
    texts = [text_of(index, 1 + 3 * index, 4 + index, states=states) for index in range(4)]
    Store.create(tmp_path, Manifest({}, {})).add(texts)
    again = Store.open(tmp_path)
    read = again.read(again.manifest.shards[0])
    if states:
        assert all(equal(left, right) for left, right in zip(texts, read, strict=True))
    assert [text.layers is None for text in read] == [not states] * 4
    assert again.manifest.texts == 4
    assert again.manifest.answer_tokens == sum(text.answer for text in texts)


@pytest.mark.parametrize("harm", ["cut", "flip", "gone", "foreign"])
def test_a_damaged_shard_is_named_and_dropped(store: Store, harm: str) -> None:
    path = store.folder / store.manifest.shards[1].file
    whole = path.read_bytes()
    if harm == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif harm == "flip":
        place = len(whole) // 2
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
    elif harm == "gone":
        path.unlink()
    else:
        path.write_bytes(b"not an archive at all")
    again = Store.open(store.folder)
    with pytest.raises(UsageError, match="shard-00001"):
        again.read(again.manifest.shards[1])
    assert again.drop_damaged() == ["shard-00001.npz"]
    kept = Store.open(store.folder)
    assert [text.index for shard in kept.manifest.shards for text in kept.read(shard)] == [0, 1, 2, 6, 7, 8]
    kept.add([text_of(3, 2, 5)])  # overwrites none that is whole
    assert [text.index for shard in kept.manifest.shards for text in kept.read(shard)] == [0, 1, 2, 6, 7, 8, 3]


def test_a_kill_between_shard_and_manifest_loses_the_shard_only(store: Store) -> None:
    manifest = (store.folder / MANIFEST).read_bytes()
    store.add([text_of(9, 2, 5)])
    (store.folder / MANIFEST).write_bytes(manifest)  # as if it had not been written any more
    again = Store.open(store.folder)
    assert again.manifest.texts == 9
    again.add([text_of(10, 2, 5)])
    assert [text.index for text in again.read(again.manifest.shards[-1])] == [10]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"schema": "other/1"}', '{"schema": "localspec.train-data/1"}'])
def test_a_manifest_that_is_none_is_an_error_in_words(tmp_path: Path, content: str) -> None:
    (tmp_path / MANIFEST).write_text(content, encoding="utf-8")
    with pytest.raises(UsageError):
        Store.open(tmp_path)


def test_no_folder_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no training data") as caught:
        Store.open(tmp_path / "nowhere")
    assert "train data" in caught.value.hint


def test_the_manifest_is_plain_json(store: Store) -> None:
    found = json.loads((store.folder / MANIFEST).read_text(encoding="utf-8"))
    assert found["schema"] == "localspec.train-data/1"
    assert [shard["texts"] for shard in found["shards"]] == [3, 3, 3]
