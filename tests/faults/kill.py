"""`python -m tests.faults.kill --trials N`: kill -9 at random moments, and what is found afterwards.

A child downloads from a hub on the loopback, saves a conversation, or writes what it remembers; it is killed after a
random time. Whatever the moment: a file under its final name is whole, the old one or the new one, and the next start
goes on. Prints what was wrong; the exit code says whether anything was.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from huggingface_hub import close_session

from localspec.catalog.checks import known_sha256, remember
from localspec.catalog.fetch import look_up, partial, resolve
from localspec.catalog.gguf import read_header
from localspec.catalog.modelfile import ModelFile
from localspec.catalog.registry import Registry
from localspec.catalog.store import hub_folder
from localspec.planner.profile import Profile
from localspec.services.chat import file as chat_file
from localspec.services.notebook import Notebook
from localspec.services.profiles import Circumstances, Profiles
from tests import zoo
from tests.hub import Repo, running
from tests.services.toy_pair import Collected

REF = "hf:owner/tiny/tiny.gguf"
NOTHING = Registry({}, {}, "")
LONGEST: list[float] = []
"""Seconds that a download takes here and now."""
KILLS: list[bool] = []
"""Of each kill whether the child was still at work."""


def child(work: Callable[[], None]) -> int:
    """Start `work` in a process of its own; what it prints is dropped."""
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            work()
            os._exit(0)
        except BaseException:  # noqa: BLE001  nothing of the parent may run on in here
            os._exit(3)
    return pid


def killed(work: Callable[[], None], seconds: float) -> bool:
    """Run `work` and kill it after some time; True when it was still at it."""
    pid = child(work)
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    in_time = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    KILLS.append(in_time)
    return in_time


def finished(work: Callable[[], None]) -> bool:
    """Run `work` to its end; True when it did it."""
    return os.waitpid(child(work), 0)[1] == 0


# -- what may be interrupted ------------------------------------------------------------------------------------------


class Nap(threading.Event):
    """Between the halves of a file, so that a kill can fall in there."""

    def wait(self, timeout: float | None = None) -> bool:
        time.sleep(0.02)
        return True


def serve(model: Path, address: Path) -> None:
    """A hub in a process of its own, so that this one stays without threads and may fork."""
    with running() as hub:
        hub.slow = Nap()
        hub.repos["owner/tiny"] = Repo({"tiny.gguf": model.read_bytes()})
        address.write_text(hub.url)
        time.sleep(3600)


def download(folder: Path, model: bytes, rng: random.Random) -> list[str]:
    """Each trial fetches into caches of its own, is killed a few times, and is then left to finish."""
    os.environ["HF_HOME"], os.environ["LOCALSPEC_CACHE"] = str(folder / "hf"), str(folder / "cache")
    wrong: list[str] = []

    def fetch() -> None:
        resolve(REF, NOTHING, Collected())

    if not LONGEST:
        fetch()  # here, so that no child has to load the client first
        close_session()
        shutil.rmtree(folder)
        started = time.monotonic()
        finished(fetch)
        LONGEST.append(time.monotonic() - started)
        shutil.rmtree(folder)
    for _ in range(rng.randrange(1, 4)):
        killed(fetch, rng.uniform(0.2, 1.1) * LONGEST[0])
        parts = partial(look_up(REF, NOTHING))
        if any(not model.startswith(part.read_bytes()) for part in parts):
            wrong.append("what was kept is not the beginning of the file")
        # What is neither a part, a lock nor the name of a commit is the model.
        final = [path for path in hub_folder().rglob("*") if path.is_file() and path not in parts]
        final = [path for path in final if path.suffix != ".lock" and "refs" not in path.parts]
        if any(path.read_bytes() != model for path in final):
            wrong.append(f"{final} have their final names and are not whole")
    if not finished(fetch):
        wrong.append("the next start could not go on")
    elif resolve(REF, NOTHING, Collected()).path.read_bytes() != model:
        wrong.append("what was fetched in the end is another file")
    return wrong


def talk(folder: Path, model: bytes, rng: random.Random) -> list[str]:
    """A conversation is saved over and over, each version longer than the one before."""
    path = folder / "talk.json"
    versions = [[chat_file.Turn("hi", f"{number} " * 3000, (1, 2, 3), "stop")] * number for number in range(1, 40)]

    def save() -> None:
        for version in versions:
            chat_file.write(path, "system", version)

    chat_file.write(path, None, versions[0])
    killed(save, rng.uniform(0.0, 0.08))
    system, turns = chat_file.read(path)
    if turns not in versions:
        return ["the saved conversation is neither the old nor the new one"]
    chat_file.write(path, system, turns)
    return [] if chat_file.read(path) == (system, turns) else ["it cannot be saved again"]


def memory(folder: Path, model: bytes, rng: random.Random) -> list[str]:
    """Texts are remembered one after the other: the file holds the first so many of them."""
    os.environ["LOCALSPEC_CACHE"] = str(folder)
    file = ModelFile(folder / "m.gguf", (), 1, "model", "llama", "", "", "", False, None, None, None, 300)
    report = Collected()
    texts = [np.full(100 + number, number, dtype=np.int32) for number in range(60)]

    def write() -> None:
        book = Notebook(file, 300, Collected())
        for text in texts:
            book.add("ngram", text)

    killed(write, rng.uniform(0.0, 0.05))
    book = Notebook(file, 300, report)
    found = book.read("ngram")
    count = int((found == -1).sum()) + 1 if len(found) else 0
    if found[found >= 0].tolist() != [token for text in texts[:count] for token in text.tolist()]:
        return ["what is remembered is not what was written first"]
    return report.warnings


def record(folder: Path, model: bytes, rng: random.Random) -> list[str]:
    """The record of a check says what was found, or nothing."""
    os.environ["LOCALSPEC_CACHE"] = str(folder)
    path = folder / "m.gguf"
    path.write_bytes(b"model")
    digests = [hashlib.sha256(bytes([number])).hexdigest() for number in range(100)]

    def work() -> None:
        for digest in digests:
            remember(path, digest)

    killed(work, rng.uniform(0.0, 0.02))
    return [] if known_sha256(path) in (None, *digests) else ["the record is damaged"]


def profile(folder: Path, model: bytes, rng: random.Random) -> list[str]:
    """A measured profile is written over and over: it is one of those that were written."""
    os.environ["LOCALSPEC_CACHE"] = str(folder)
    os.environ["LOCALSPEC_PROFILES"] = "on"
    about = Circumstances("/m 1 2", None, "ngram", "none", {}, "chip", "1", 2, 0, None, "f16", None, "auto")
    versions = [Profile(verify_s=((1, 0.01), (2, 0.001 * number))) for number in range(20, 120)]
    report = Collected()
    Profiles(report).write(about, versions[0])

    def work() -> None:
        for version in versions:
            Profiles(report).write(about, version)

    killed(work, rng.uniform(0.0, 0.02))
    return report.notes if Profiles(report).read(about) in versions else ["the profile is damaged", *report.notes]


JOBS = {"download": download, "talk": talk, "memory": memory, "record": record, "profile": profile}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.kill", description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    failed = False
    with tempfile.TemporaryDirectory() as place:
        model = zoo.tiny_llama(Path(place) / "tiny.gguf", layers=8)
        read_header(model)
        address = Path(place) / "address"
        hub = child(lambda: serve(model, address))
        try:
            while not address.exists() or not address.read_text():
                time.sleep(0.02)
            for name in [name for name in os.environ if name.startswith("HF_")]:
                del os.environ[name]
            os.environ["HF_ENDPOINT"] = address.read_text()
            for number in range(asked.trials):
                name = [*JOBS][number % len(JOBS)]
                folder = Path(place) / f"{number}"
                folder.mkdir()
                for line in JOBS[name](folder, model.read_bytes(), rng):
                    failed = True
                    sys.stdout.write(f"trial {number}, {name}: {line}\n")
        finally:
            os.kill(hub, signal.SIGKILL)
            os.waitpid(hub, 0)
    kills = f"{len(KILLS)} kills, {sum(KILLS)} in the middle of the work"
    sys.stdout.write(f"{asked.trials} trials, seed {asked.seed}, {kills}: {'FAILED' if failed else 'nothing lost'}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
