"""Fetching from a hub with its real client: resuming, checking, refusing, and every way the network fails."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from localspec.catalog import endpoint
from localspec.catalog import hub as hub_files
from localspec.catalog import registry as registries
from localspec.catalog.fetch import look_up, partial, present, resolve
from localspec.catalog.partial import PATIENCE, stream_to
from localspec.catalog.store import hub_folder
from localspec.errors import DownloadError
from tests.catalog.conftest import NOTHING, Listener
from tests.hub import COMMIT, Hub, Repo, running

REPO = "owner/tiny-GGUF"
REF = f"hf:{REPO}/tiny-F32.gguf"
HEX = hashlib.sha256


@pytest.fixture
def served(hub: Hub, tiny: bytes) -> Hub:
    hub.repos[REPO] = Repo({"tiny-F32.gguf": tiny, "README.md": b"hello"})
    return hub


@pytest.fixture
def nowhere() -> str:
    """An address where nobody listens."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def refusal(ref: str = REF, registry: registries.Registry = NOTHING) -> DownloadError:
    with pytest.raises(DownloadError) as caught:
        resolve(ref, registry, Listener())
    assert caught.value.hint
    assert "\n" not in str(caught.value)
    return caught.value


# --- the plain case ---


def test_a_file_is_fetched_checked_and_found_by_the_client_itself(served: Hub, listener: Listener, tiny: bytes) -> None:
    from huggingface_hub import try_to_load_from_cache

    model = resolve(REF, NOTHING, listener)
    assert model.path.read_bytes() == tiny
    assert model.architecture == "llama"
    assert try_to_load_from_cache(REPO, "tiny-F32.gguf", cache_dir=hub_folder()) == str(model.path)
    assert listener.steps[-1][1:] == (len(tiny), len(tiny))
    assert served.sent() == len(tiny)
    assert not partial(look_up(REF, NOTHING))


def test_the_client_and_localspec_share_one_cache(served: Hub, listener: Listener, tiny: bytes) -> None:
    from huggingface_hub import hf_hub_download

    path = hf_hub_download(REPO, "tiny-F32.gguf", cache_dir=hub_folder(), endpoint=served.url, token=False)
    asked = len(served.log)
    assert str(resolve(REF, NOTHING, listener).path) == path
    assert len(served.log) == asked


def test_a_pinned_revision_and_a_subfolder(hub: Hub, listener: Listener, tiny: bytes) -> None:
    hub.repos[REPO] = Repo({"deep/er/tiny.gguf": tiny})
    model = resolve(f"hf:{REPO}@{COMMIT}/deep/er/tiny.gguf", NOTHING, listener)
    assert model.path.parts[-4:] == (COMMIT, "deep", "er", "tiny.gguf")


def test_all_parts_come_whichever_is_named_B81(hub: Hub, listener: Listener, tiny_parts: dict[str, bytes]) -> None:
    hub.repos[REPO] = Repo({f"q/{name}": data for name, data in tiny_parts.items()})
    model = resolve(f"hf:{REPO}/q/tiny-00002-of-00002.gguf", NOTHING, listener)
    assert model.path.name == "tiny-00001-of-00002.gguf"
    assert [part.read_bytes() for part in model.parts] == list(tiny_parts.values())
    assert len(present(look_up(f"hf:{REPO}/q/tiny-00001-of-00002.gguf", NOTHING))) == 2


def test_a_part_that_the_hub_lacks_is_named_B81(hub: Hub, tiny_parts: dict[str, bytes]) -> None:
    first = "tiny-00001-of-00002.gguf"
    hub.repos[REPO] = Repo({first: tiny_parts[first]})
    assert "tiny-00002-of-00002.gguf" in str(refusal(f"hf:{REPO}/{first}"))
    assert hub.sent() == 0  # known before anything was fetched


def test_a_quantisation_is_looked_up_once(hub: Hub, listener: Listener, tiny: bytes) -> None:
    files = ["tiny-F32.gguf", "mmproj-F32.gguf", "mtp-tiny-F32.gguf", "tiny-Q4_0.gguf"]
    hub.repos[REPO] = Repo(dict.fromkeys(files, tiny))
    assert resolve(f"hf:{REPO}:f32", NOTHING, listener).path.name == "tiny-F32.gguf"
    asked = len(hub.log)
    assert resolve(f"hf:{REPO}:F32", NOTHING, listener).path.name == "tiny-F32.gguf"
    assert len(hub.log) == asked


# --- B71: cut connections ---


def test_three_cuts_then_success_and_no_byte_twice_B71(served: Hub, listener: Listener, tiny: bytes) -> None:
    third = len(tiny) // 4
    served.cuts = [third, third, third]
    assert resolve(REF, NOTHING, listener).path.read_bytes() == tiny
    assert served.sent() <= len(tiny) + 3 * 65536
    assert [request.range is None for request in served.gets()] == [True, False, False, False]


def test_a_server_that_ignores_the_range_starts_over_without_damage_B71(
    served: Hub, listener: Listener, tiny: bytes
) -> None:
    served.cuts, served.ignored_ranges = [len(tiny) // 2], 1
    assert resolve(REF, NOTHING, listener).path.read_bytes() == tiny


def test_a_new_process_goes_on_where_the_old_one_stopped_B71(served: Hub, listener: Listener, tiny: bytes) -> None:
    served.cuts = [200_000, 0, 0, 0, 0, 0]  # then nothing more comes, until it gives up
    error = refusal()
    assert "goes on where it stopped" in error.hint
    (rest,) = partial(look_up(REF, NOTHING))
    kept = rest.stat().st_size
    assert 100_000 < kept <= 200_000
    assert not present(look_up(REF, NOTHING))  # never under its final name
    served.log.clear()
    assert resolve(REF, NOTHING, listener).path.read_bytes() == tiny
    assert served.gets()[0].range == f"bytes={kept}-"
    assert served.sent() == len(tiny) - kept
    assert listener.steps[0][1] >= kept


def test_a_partial_file_longer_than_the_file_is_dropped_B71(served: Hub, listener: Listener, tiny: bytes) -> None:
    served.cuts = [1000, 0, 0, 0, 0, 0]
    refusal()
    (rest,) = partial(look_up(REF, NOTHING))
    rest.write_bytes(tiny + b"more")
    assert resolve(REF, NOTHING, listener).path.read_bytes() == tiny


def test_a_busy_server_is_asked_again(served: Hub, listener: Listener, tiny: bytes) -> None:
    served.statuses = [503, 429]
    assert resolve(REF, NOTHING, listener).path.read_bytes() == tiny


@pytest.mark.parametrize(
    ("status", "words", "hint"),
    [
        (403, f"does not allow reading {REF}", "HF_TOKEN"),
        (429, "asks to slow down", "HF_TOKEN"),
        (500, f"answers with status 500 for {REF}", "what had arrived is kept"),
        (418, f"answers with status 418 for {REF}", "HF_ENDPOINT names"),
    ],
)
def test_a_server_that_refuses_the_bytes(served: Hub, status: int, words: str, hint: str) -> None:
    """What may pass is asked for again a few times, what may not is not."""
    served.statuses = [status] * 10
    error = refusal()
    assert words in str(error)
    assert hint in error.hint
    assert len(served.gets()) == (PATIENCE if status in (429, 500) else 1)


def test_a_server_that_sends_more_than_it_says_is_left_at_once(served: Hub, tiny: bytes) -> None:
    """It was asked again and again, for ever: each attempt had brought something."""
    served.repos[REPO].said = 1000
    error = refusal()
    assert "sends more than the 1,000 bytes that it says tiny-F32.gguf has" in str(error)
    assert len(served.gets()) == 1
    assert not present(look_up(REF, NOTHING))


@pytest.mark.parametrize("ignored", [0, 100], ids=["ranges", "no ranges"])
def test_a_server_that_has_less_than_it_says_is_given_up(served: Hub, tiny: bytes, ignored: int) -> None:
    """The rest was refused, so the file was begun anew, and so on for ever."""
    served.repos[REPO].said = len(tiny) + 5
    served.ignored_ranges = ignored
    error = refusal()
    assert f"{REF} broke off: the server ends the file after {len(tiny):,} of {len(tiny) + 5:,} bytes" in str(error)
    assert "goes on where it stopped" in error.hint
    assert len(served.gets()) <= PATIENCE + 1
    assert not present(look_up(REF, NOTHING))


def test_a_file_without_a_known_size(served: Hub, clean: Path, listener: Listener, tiny: bytes) -> None:
    """Some mirrors do not say one: the server decides where the file ends, and a file that is there is not longer."""
    path, url = clean / "partial", f"{served.url}/{REPO}/resolve/main/tiny-F32.gguf"
    served.cuts = [len(tiny) // 2]
    for _ in range(2):  # the second time the server has nothing to add
        stream_to(path, url, "tiny", size=None, hub=endpoint.current(), progress=listener)
        assert path.read_bytes() == tiny


def test_ctrl_c_keeps_what_has_arrived_B71(served: Hub, tiny: bytes, clean: Path) -> None:
    served.slow = threading.Event()
    code = (
        "import signal\n"
        # What a shell starts in the background has Ctrl-C switched off, and so have its children.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from localspec.catalog.fetch import resolve\n"
        "from localspec.catalog.registry import Registry\n"
        "from localspec.services.report import Silent\n"
        f"resolve({REF!r}, Registry({{}}, {{}}, ''), Silent())\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE)
    rest = wait_for(lambda: [path for path in partial(look_up(REF, NOTHING)) if path.stat().st_size >= len(tiny) // 2])
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    served.slow.set()
    assert b"KeyboardInterrupt" in said
    assert rest[0].stat().st_size >= len(tiny) // 2


def test_bytes_from_elsewhere_go_on_as_well_and_never_see_the_token_B71(
    served: Hub, listener: Listener, tiny: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real hub answers with a redirect to where the bytes are, another host."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with running() as cdn:
        cdn.repos, served.cdn = served.repos, cdn
        cdn.cuts = [len(tiny) // 2]
        assert resolve(REF, NOTHING, listener).path.read_bytes() == tiny
        assert {request.authorization for request in cdn.log} == {None}
        assert {request.authorization for request in served.log} == {"Bearer hf_secret"}
        assert cdn.sent() <= len(tiny) + 65536
        assert served.sent() == 0


# --- sizes and hashes ---


def entry(tmp_path: Path, **keys: Any) -> registries.Registry:
    lines = [f'[models.tiny]\nsource = "{REF}"'] + [f"{key} = {value!r}" for key, value in keys.items()]
    lines.append('[pairs.tiny]\nverifier = "tiny"\ndrafter = "ngram"')
    return registries.read('default = "tiny"\n' + "\n".join(lines).replace("'", '"'), "models.toml", folder=tmp_path)


def test_other_bytes_than_the_registry_says_are_not_even_fetched(served: Hub, tmp_path: Path) -> None:
    error = refusal("tiny", entry(tmp_path, sha256="0" * 64))
    assert "0" * 64 in str(error)
    assert "'tiny'" in str(error)
    assert served.sent() == 0
    assert "size" in str(refusal("tiny", entry(tmp_path, size=7)))


def test_bytes_that_do_not_fit_their_own_hash_are_removed(served: Hub, listener: Listener, tiny: bytes) -> None:
    served.repos[REPO].claimed = HEX(b"other bytes").hexdigest()
    assert "sha256" in str(refusal())
    assert not partial(look_up(REF, NOTHING))
    assert not present(look_up(REF, NOTHING))


def test_a_file_that_was_damaged_on_the_disk_is_fetched_again(served: Hub, listener: Listener, tiny: bytes) -> None:
    path = resolve(REF, NOTHING, listener).path
    blob = path.resolve()
    blob.write_bytes(tiny[:-1] + bytes([tiny[-1] ^ 1]))
    assert resolve(REF, NOTHING, listener).path.read_bytes() == tiny
    assert "fetched again" in listener.warnings[0]


def test_a_hash_is_computed_once_and_remembered(
    served: Hub, listener: Listener, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: bytes
) -> None:
    registry = entry(tmp_path, sha256=HEX(tiny).hexdigest(), size=len(tiny))
    resolve("tiny", registry, listener)
    monkeypatch.setattr("localspec.catalog.checks.sha256", lambda *_, **__: pytest.fail("hashed again"))
    resolve("tiny", registry, listener)


def test_a_link_that_is_gone_costs_no_bytes(served: Hub, listener: Listener, tiny: bytes) -> None:
    path = resolve(REF, NOTHING, listener).path
    path.unlink()
    assert resolve(REF, NOTHING, listener).path.read_bytes() == tiny
    assert len(served.gets()) == 1


def test_a_blob_that_was_damaged_is_not_linked_again(served: Hub, listener: Listener, tiny: bytes) -> None:
    """Without its link it was taken for whole: nobody had looked at it since it came."""
    path = resolve(REF, NOTHING, listener).path
    blob = path.resolve()
    path.unlink()
    blob.write_bytes(tiny[:-1])
    assert resolve(REF, NOTHING, listener).path.read_bytes() == tiny
    assert "fetched again" in listener.warnings[0]


def test_the_beginning_of_an_older_file_goes_with_the_new_one(served: Hub, listener: Listener) -> None:
    older = hub_files.repo_folder(REPO) / "blobs" / f"{'0' * 64}.tiny-F32.gguf{hub_files.PARTIAL_ENDING}"
    older.parent.mkdir(parents=True)
    older.write_bytes(b"old")
    resolve(REF, NOTHING, listener)
    assert not older.exists()


def test_a_cache_that_takes_no_revision_is_an_error(served: Hub, listener: Listener) -> None:
    refs = hub_files.repo_folder(REPO) / "refs"
    refs.parent.mkdir(parents=True)
    refs.write_text("a file where a folder should be")
    assert "cannot be written" in str(refusal())


def test_a_cache_folder_that_is_a_file_only_costs_a_second_look(
    served: Hub, listener: Listener, tiny: bytes, clean: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropping the record of a check ended in a traceback where none could have been written."""
    (clean / "file").write_text("")
    monkeypatch.setenv("LOCALSPEC_CACHE", str(clean / "file"))
    for _ in range(2):
        assert resolve(REF, NOTHING, listener).path.read_bytes() == tiny
    assert [what for what, done, total in listener.steps if what == "checking tiny-F32.gguf" and done == total]


# --- B75: offline ---


def test_a_file_that_is_here_needs_no_request_at_all_B75(
    served: Hub, listener: Listener, monkeypatch: pytest.MonkeyPatch, nowhere: str
) -> None:
    resolve(REF, NOTHING, listener)
    asked = len(served.log)
    resolve(REF, NOTHING, listener)
    assert len(served.log) == asked
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    resolve(REF, NOTHING, listener)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("HF_ENDPOINT", nowhere)
    resolve(REF, NOTHING, listener)


@pytest.mark.parametrize("ref", [REF, f"hf:{REPO}:F32"])
def test_offline_and_missing_names_file_and_command_B75(served: Hub, monkeypatch: pytest.MonkeyPatch, ref: str) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    error = refusal(ref)
    assert ref in str(error)
    assert f"localspec models pull {ref}" in error.hint
    assert not served.log


def test_a_hanging_hub_ends_in_time_B75(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(socket.socket()) as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{deaf.getsockname()[1]}")
        monkeypatch.setenv("HF_HUB_ETAG_TIMEOUT", "0.3")
        begun = time.monotonic()
        error = refusal()
        assert time.monotonic() - begun < 5
    assert "in time" in str(error)
    assert "HF_ENDPOINT" in str(error)


# --- B77: gated, private, missing ---


def test_three_doors_three_sentences_B77(served: Hub, monkeypatch: pytest.MonkeyPatch, tiny: bytes) -> None:
    served.repos["owner/gated"] = Repo({"tiny.gguf": tiny}, gate="gated", granted="hf_good")
    gated, missing = "hf:owner/gated/tiny.gguf", "hf:owner/missing/tiny.gguf"
    page = f"{served.url}/owner/gated"

    no_token = refusal(gated)
    assert "no token" in str(no_token)
    assert page in no_token.hint
    assert "HF_TOKEN" in no_token.hint
    nothing_there = refusal(missing)
    assert "no public repository owner/missing" in str(nothing_there)

    monkeypatch.setenv("HF_TOKEN", "hf_other")
    no_licence = refusal(gated)
    assert "has not been given access" in str(no_licence)
    assert page in no_licence.hint
    assert "no repository owner/missing" in str(refusal(missing))
    for error in (no_licence, refusal(missing)):
        assert "hf_other" not in str(error) + error.hint

    monkeypatch.setenv("HF_TOKEN", "expired")
    assert "does not accept your token" in str(refusal(gated))

    monkeypatch.setenv("HF_TOKEN", "hf_good")
    assert resolve(gated, NOTHING, Listener()).architecture == "llama"


def test_a_missing_file_and_a_missing_revision_are_told_apart_B77(served: Hub) -> None:
    assert "no such file" in str(refusal(f"hf:{REPO}/absent.gguf"))
    assert "no revision 'v2'" in str(refusal(f"hf:{REPO}@v2/tiny-F32.gguf"))
    assert "'owner/ti--ny' is not the name of a repository" in str(refusal("hf:owner/ti--ny/tiny.gguf"))


# --- B78: mirrors ---


def test_every_request_goes_to_the_mirror_B78(served: Hub, listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    port = int(served.url.rsplit(":", 1)[1])
    real, elsewhere = socket.create_connection, list[object]()

    def connect(address: tuple[str, int], *rest: Any, **keys: Any) -> socket.socket:
        if tuple(address[:2]) != ("127.0.0.1", port):
            elsewhere.append(address)
            raise OSError(errno.ECONNREFUSED, "refused by the test")
        return real(address, *rest, **keys)

    monkeypatch.setattr(socket, "create_connection", connect)
    resolve(REF, NOTHING, listener)
    assert not elsewhere
    assert len(served.log) == 2  # one question, one file


def test_a_mirror_that_is_down_is_named_B78(clean: Path, monkeypatch: pytest.MonkeyPatch, nowhere: str) -> None:
    monkeypatch.setenv("HF_ENDPOINT", nowhere)
    error = refusal()
    assert f"{nowhere} (HF_ENDPOINT) cannot be reached" in str(error)
    assert "HF_ENDPOINT" in error.hint


def test_a_stored_token_stays_at_home_and_one_of_the_environment_travels_B78(
    served: Hub, listener: Listener, clean: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = clean / "token"
    stored.write_text("hf_stored")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(stored))
    resolve(REF, NOTHING, listener)
    assert {request.authorization for request in served.log} == {None}
    served.log.clear()
    shutil.rmtree(hub_folder())
    monkeypatch.setenv("HF_TOKEN", "hf_named")
    resolve(REF, NOTHING, listener)
    assert {request.authorization for request in served.log} == {"Bearer hf_named"}


def test_what_is_no_hub_is_said_to_be_none(clean: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repos[REPO] = Repo({"tiny-F32.gguf": b"x"}, commit="../../escape")
    assert "does not answer like a model hub" in str(refusal())


# --- B79: proxies and certificates ---


@pytest.fixture
def fresh_client() -> Iterator[None]:
    """The client reads proxies and certificates when its session is made."""
    from huggingface_hub import close_session

    close_session()
    yield
    close_session()


def test_a_proxy_that_refuses_is_named_B79(
    clean: Path, monkeypatch: pytest.MonkeyPatch, hub: Hub, fresh_client: None
) -> None:
    monkeypatch.delenv("HF_ENDPOINT")
    monkeypatch.setenv("HTTPS_PROXY", hub.url)  # it does not know CONNECT
    error = refusal()
    assert "proxy" in str(error)
    assert "HTTPS_PROXY" in error.hint
    assert "NO_PROXY" in error.hint


def test_no_proxy_is_honoured_B79(
    served: Hub, listener: Listener, monkeypatch: pytest.MonkeyPatch, nowhere: str, fresh_client: None
) -> None:
    monkeypatch.setenv("HTTP_PROXY", nowhere)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert resolve(REF, NOTHING, listener).architecture == "llama"


def test_a_proxy_is_used_B79(
    served: Hub, listener: Listener, monkeypatch: pytest.MonkeyPatch, fresh_client: None
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.invalid")  # a name that only the proxy can make something of
    monkeypatch.setenv("HTTP_PROXY", served.url)
    assert resolve(REF, NOTHING, listener).architecture == "llama"


def test_a_certificate_of_ones_own_needs_its_variable_B79(
    clean: Path, tiny: bytes, monkeypatch: pytest.MonkeyPatch, fresh_client: None
) -> None:
    from huggingface_hub import close_session

    certificate = Path(__file__).with_name("loopback.pem")
    with running(certificate) as hub:
        hub.repos[REPO] = Repo({"tiny-F32.gguf": tiny})
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        error = refusal()
        assert "certificate" in str(error)
        assert "SSL_CERT_FILE" in error.hint
        assert "HTTPS_PROXY" in error.hint
        close_session()
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert resolve(REF, NOTHING, Listener()).architecture == "llama"


# --- B73: full disks ---


def usage(total: int, free: int) -> Any:
    return lambda _: shutil._ntuple_diskusage(total, total - free, free)  # type: ignore[attr-defined]


def test_too_little_room_is_said_before_anything_is_fetched_B73(
    served: Hub, monkeypatch: pytest.MonkeyPatch, tiny: bytes
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", usage(10**9, 1000))
    error = refusal()
    assert f"{len(tiny):,} more bytes are needed" in str(error)
    assert str(hub_folder()) in str(error)
    assert "HF_HOME" in error.hint
    assert served.sent() == 0


def test_a_file_system_without_figures_only_warns_B73(
    served: Hub, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", usage(0, 0))
    resolve(REF, NOTHING, listener)
    assert "does not say how much room" in listener.warnings[0]


@pytest.mark.skipif(os.name == "nt", reason="limits of this kind are POSIX")
def test_a_disk_that_fills_up_keeps_the_beginning_B73(served: Hub, clean: Path, tiny: bytes) -> None:
    code = (
        "import resource\n"
        "from localspec.catalog.fetch import resolve\n"
        "from localspec.catalog.registry import Registry\n"
        "from localspec.services.report import Silent\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
        "try:\n"
        f"    resolve({REF!r}, Registry({{}}, {{}}, ''), Silent())\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error, sep=': ')\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30).stdout
    assert said.startswith("DownloadError: There is not enough room in ")
    assert str(hub_folder()) in said
    (rest,) = partial(look_up(REF, NOTHING))
    assert 0 < rest.stat().st_size <= 200_000
    assert resolve(REF, NOTHING, Listener()).path.read_bytes() == tiny


# --- B80: no symlinks ---


def test_two_threads_without_the_right_to_link_B80(served: Hub, monkeypatch: pytest.MonkeyPatch, tiny: bytes) -> None:
    def refuse(*_: object, **__: object) -> None:
        error = OSError(errno.EINVAL, "A required privilege is not held by the client")
        error.winerror = 1314  # type: ignore[attr-defined]
        raise error

    monkeypatch.setattr(os, "symlink", refuse)
    found: list[object] = []

    def fetch() -> None:
        try:
            found.append(resolve(REF, NOTHING, Listener()).path.read_bytes())
        except Exception as error:  # noqa: BLE001 - shown by the assertion below
            found.append(error)

    threads = [threading.Thread(target=fetch) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert found == [tiny, tiny]
    on_disk = sum(path.stat().st_size for path in hub_folder().rglob("*") if path.is_file() and not path.is_symlink())
    assert on_disk < 1.5 * len(tiny)  # moved, not copied
    assert not list((hub_files.repo_folder(REPO) / "blobs").glob("*"))


# --- two processes ---


def test_of_two_processes_one_fetches_and_the_other_waits(served: Hub, tiny: bytes) -> None:
    served.slow = threading.Event()
    code = (
        "import sys\n"
        "from localspec.catalog.fetch import resolve\n"
        "from localspec.catalog.registry import Registry\n"
        "class Say:\n"
        "    def note(self, text): print(text, flush=True)\n"
        "    warn = note\n"
        "    def progress(self, *_): pass\n"
        f"resolve({REF!r}, Registry({{}}, {{}}, ''), Say())\n"
    )
    first = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    wait_for(lambda: partial(look_up(REF, NOTHING)))
    second = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert second.stdout is not None
    waiting = second.stdout.readline()
    served.slow.set()
    first.communicate(timeout=20)
    second.communicate(timeout=20)
    assert "Another process is fetching tiny-F32.gguf" in waiting
    assert (first.returncode, second.returncode) == (0, 0)
    assert len(served.gets()) == 1


def wait_for(condition: Any) -> Any:
    """The first true answer of `condition`, within some seconds."""
    end = time.monotonic() + 15
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError("it did not happen in time")
