"""Folders from the environment, locks where there are none, room on the disk, records of checks, hubs."""

from __future__ import annotations

import errno
import hashlib
from pathlib import Path

import pytest

from localspec.catalog import endpoint
from localspec.catalog.checks import Expected, is_sound, known_sha256, move, remember, sha256, verify
from localspec.catalog.store import cache_folder, hub_folder, locked, make_folder, unwritable
from localspec.errors import DownloadError
from tests.catalog.conftest import Listener


def test_folders_follow_the_environment_as_it_is_now(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hub_folder() == clean / "hf größe 模型" / "hub"
    assert cache_folder() == clean / "cache"
    monkeypatch.setenv("HF_HUB_CACHE", "~/elsewhere")
    assert hub_folder() == Path.home() / "elsewhere"
    monkeypatch.delenv("HF_HUB_CACHE")
    monkeypatch.delenv("HF_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(clean))
    assert hub_folder() == clean / "huggingface" / "hub"


def test_a_file_system_without_locks_gets_a_lesser_one(
    clean: Path, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    from filelock import FileLock

    def refuse(*_: object, **__: object) -> None:
        raise NotImplementedError("FileSystem does not appear to support flock")

    monkeypatch.setattr(FileLock, "acquire", refuse)
    with locked(clean / "a" / "file.lock", "file", listener):
        assert (clean / "a" / "file.softlock").exists()
    with locked(clean / "a" / "file.lock", "file", listener):
        assert listener.notes == []


def test_errors_of_the_disk_are_sentences_B73(clean: Path) -> None:
    full = unwritable(clean / "a.gguf", OSError(errno.ENOSPC, "No space left on device"), 1234)
    assert str(full) == f"There is not enough room in {clean}: 1,234 more bytes are needed, No space left on device."
    denied = unwritable(clean / "a.gguf", PermissionError(errno.EACCES, "Permission denied"))
    assert str(denied) == f"{clean / 'a.gguf'} cannot be written: Permission denied."
    (clean / "file").write_text("in the way")
    with pytest.raises(DownloadError, match="cannot be written"):
        make_folder(clean / "file" / "folder")


def test_a_check_is_remembered_until_the_file_changes(clean: Path, listener: Listener) -> None:
    path = clean / "a.gguf"
    path.write_bytes(b"abc")
    right = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    verify(path, Expected(3, right), listener)
    assert known_sha256(path) == right
    move(path, clean / "b.gguf")
    assert (known_sha256(clean / "b.gguf"), path.exists()) == (right, False)
    (clean / "b.gguf").write_bytes(b"abcd")
    assert known_sha256(clean / "b.gguf") is None
    with pytest.raises(DownloadError, match="has 4 bytes, but the registry says 3"):
        verify(clean / "b.gguf", Expected(3, right), listener)
    assert not is_sound(clean / "b.gguf", Expected(3), listener)
    assert not (clean / "b.gguf").exists()


def test_a_damaged_record_only_costs_a_second_look(clean: Path) -> None:
    path = clean / "a.gguf"
    path.write_bytes(b"abc")
    remember(path, "0" * 64)
    (record,) = (cache_folder() / "verified").glob("*.json")
    for text in ("", "[]", "{", '{"sha256": "x"}'):
        record.write_text(text)
        assert known_sha256(path) is None


def test_a_large_file_is_seen_to_be_checked(clean: Path, listener: Listener) -> None:
    path = clean / "large.gguf"
    with path.open("wb") as file:
        file.truncate(40 * 2**20)
    assert sha256(path, listener, name="large.gguf") == hashlib.sha256(bytes(40 * 2**20)).hexdigest()
    assert listener.steps == [("checking large.gguf", size * 2**20, 40 * 2**20) for size in (32, 40)]


def test_a_file_that_was_never_checked_moves_without_a_record(clean: Path) -> None:
    (clean / "a.gguf").write_bytes(b"abc")
    move(clean / "a.gguf", clean / "b.gguf")
    assert known_sha256(clean / "b.gguf") is None
    assert not (cache_folder() / "verified").exists()


# -- the hub that is asked --------------------------------------------------------------------------------------------


def test_an_endpoint_never_shows_its_token_or_password(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("HF_ENDPOINT", "https://me:password@mirror.example/")
    found = endpoint.current()
    assert found.token == "hf_secret"
    assert found.is_mirror
    assert repr(found) == "Endpoint('https://***@mirror.example')"


@pytest.mark.parametrize(("said", "seconds"), [("", 10.0), ("3.5", 3.5), ("soon", 10.0), ("0", 0.1), ("-4", 0.1)])
def test_patience_that_is_no_number_is_the_usual_one(
    clean: Path, monkeypatch: pytest.MonkeyPatch, said: str, seconds: float
) -> None:
    monkeypatch.setenv("HF_HUB_ETAG_TIMEOUT", said)
    assert endpoint.current().timeout_s == seconds
    assert endpoint.current().pause_s == 10.0
