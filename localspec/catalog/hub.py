"""Model files of the hub, fetched with the hub's own client into the cache that all its programs share.

The client says where a file is, what it weighs and hashes to, and who may have it; the bytes are streamed here, because
a cut connection or Ctrl-C must not cost what had arrived, and the client throws partial files away. Everything goes to
the one endpoint of HF_ENDPOINT by plain HTTP. Knows no registry; what errors mean is in `hub_errors`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from localspec.catalog.checks import Expected, discard, is_sound, move, verify
from localspec.catalog.endpoint import Endpoint, current, masked
from localspec.catalog.hub_errors import explain, offline
from localspec.catalog.partial import stream_to
from localspec.catalog.progress import Progress
from localspec.catalog.quantfiles import choose
from localspec.catalog.reference import HubFile, HubQuant
from localspec.catalog.store import check_room, hub_folder, locked, make_folder, unwritable
from localspec.errors import DownloadError

_PLAIN = re.compile(r"\w[\w.-]*")  # of what a server says, only this becomes a file name
PARTIAL_ENDING = ".incomplete"
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Remote:
    """One file as the hub describes it; `digest` is its sha256 when the hub says so."""

    reference: HubFile
    commit: str
    etag: str
    size: int | None

    @property
    def digest(self) -> str | None:
        return self.etag if _SHA256.fullmatch(self.etag) else None

    @property
    def expected(self) -> Expected:
        """What its bytes should be."""
        return Expected(self.size, self.digest, "the hub")

    @property
    def blob(self) -> Path:
        return repo_folder(self.reference.repo) / "blobs" / self.etag

    @property
    def partial(self) -> Path:
        return self.blob.with_name(f"{self.etag}.{_flat(self.reference.path)}{PARTIAL_ENDING}")

    @property
    def pointer(self) -> Path:
        return repo_folder(self.reference.repo).joinpath("snapshots", self.commit, *self.reference.path.split("/"))


def repo_folder(repo: str) -> Path:
    """Where the hub's client keeps a model repository."""
    return hub_folder() / ("models--" + repo.replace("/", "--"))


def snapshot(repo: str, revision: str | None) -> Path | None:
    """The folder of the files that are here of a repository at a revision (a commit, a branch or a tag)."""
    folder, name = repo_folder(repo), revision or "main"
    try:
        commit = (folder / "refs" / name).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):  # another program's file, perhaps half-written
        commit = name
    found = folder / "snapshots" / commit
    return found if _PLAIN.fullmatch(commit) and found.is_dir() else None


def hub_path(reference: HubFile) -> Path | None:
    """Where the file of `reference` lies if it is here; no request, no check."""
    folder = snapshot(reference.repo, reference.revision)
    path = folder.joinpath(*reference.path.split("/")) if folder else None
    return path if path and path.is_file() else None


def partial_paths(reference: HubFile) -> list[Path]:
    """What interrupted fetches of `reference` have left to go on from."""
    return sorted((repo_folder(reference.repo) / "blobs").glob(f"*.{_flat(reference.path)}{PARTIAL_ENDING}"))


def quant_here(reference: HubQuant) -> HubFile | None:
    """The file at a quantisation among those that are here; no request."""
    folder = snapshot(reference.repo, reference.revision)
    if folder is None:
        return None
    here = [file.relative_to(folder).as_posix() for file in folder.rglob("*.gguf")]
    try:
        return HubFile(reference.repo, choose(here, reference), reference.revision)
    except DownloadError:  # what is here need not be all there is
        return None


def find_quant(reference: HubQuant) -> HubFile:
    """The file at a quantisation: among those that are here, else by asking the hub."""
    if here := quant_here(reference):
        return here
    hub = current()
    if hub.is_offline:
        raise offline(reference)
    from huggingface_hub import HfApi

    with _explained(hub, reference):
        api = HfApi(endpoint=hub.url, token=hub.token or False)
        info = api.model_info(reference.repo, revision=reference.revision, timeout=hub.timeout_s)
        files = [sibling.rfilename for sibling in info.siblings or ()]
    return HubFile(reference.repo, choose(files, reference), reference.revision)


def fetch_hub_files(references: list[HubFile], expected: Expected, progress: Progress) -> list[Path]:
    """The files, checked: from the cache without any request, else from the hub. `expected` is of the first."""
    paths: dict[HubFile, Path] = {}
    for reference in references:
        path = hub_path(reference)
        if path is not None and is_sound(path, _expected(path, expected, reference == references[0]), progress):
            paths[reference] = path
    remotes = [_remote(reference) for reference in references if reference not in paths]
    if remotes and references[0] == remotes[0].reference:
        _compare(remotes[0], expected)
    check_room(hub_folder(), sum(_missing(remote) for remote in remotes), progress)
    for remote in remotes:
        paths[remote.reference] = _fetch(
            remote, expected if remote.reference == references[0] else Expected(), progress
        )
    return [paths[reference] for reference in references]


def _expected(path: Path, expected: Expected, first: bool) -> Expected:
    """What a file in the cache should be: as expected, else what its blob is named after."""
    if first and expected.sha256 is not None:
        return expected
    named = path.resolve().name
    digest = named if _SHA256.fullmatch(named) else None
    return Expected(expected.size if first else None, digest, "the hub")


def _missing(remote: Remote) -> int:
    if remote.blob.is_file():
        return 0
    return (remote.size or 0) - (remote.partial.stat().st_size if remote.partial.is_file() else 0)


def _remote(reference: HubFile) -> Remote:
    """Ask the hub about a file."""
    hub = current()
    if hub.is_offline:
        raise offline(reference)
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    with _explained(hub, reference):
        url = hf_hub_url(reference.repo, reference.path, revision=reference.revision, endpoint=hub.url)
        about = get_hf_file_metadata(url, token=hub.token or False, timeout=hub.timeout_s, endpoint=hub.url)
    etag, commit = about.etag or "", about.commit_hash or ""
    if not _PLAIN.fullmatch(etag) or not _PLAIN.fullmatch(commit):
        raise DownloadError(
            f"{masked(hub.url)} does not answer like a model hub: it names no commit or no hash for {reference}.",
            hint="Check HF_ENDPOINT." if hub.is_mirror else "Check the proxy: something in between answers.",
        )
    return Remote(reference, commit, etag, about.size)


def _compare(remote: Remote, expected: Expected) -> None:
    """Other bytes than the registry's are not worth fetching."""
    for what, here, there in (("sha256", expected.sha256, remote.digest), ("size", expected.size, remote.size)):
        if here is not None and there is not None and here != there:
            raise DownloadError(
                f"{remote.reference} was replaced: the hub gives {what} {there}, but {expected.said_by} says {here}.",
                hint="Pin a revision in your models.toml (hf:owner/repo@revision/file.gguf), or update localspec.",
            )


def _fetch(remote: Remote, expected: Expected, progress: Progress) -> Path:
    """Bring one file into the cache and link it where the hub's client looks for it."""
    hub, name = current(), remote.reference.path.split("/")[-1]
    for folder in (remote.blob.parent, remote.pointer.parent):
        make_folder(folder)
    lock = hub_folder() / ".locks" / repo_folder(remote.reference.repo).name / f"{remote.etag}.lock"
    with locked(lock, name, progress):
        if remote.pointer.is_file():  # the process that was waited for has brought it
            return remote.pointer
        if not is_sound(remote.blob, remote.expected, progress):
            from huggingface_hub import hf_hub_url

            reference = remote.reference
            url = hf_hub_url(reference.repo, reference.path, revision=remote.commit, endpoint=hub.url)
            with _explained(hub, reference):
                stream_to(remote.partial, url, name, size=remote.size, hub=hub, progress=progress)
            _check_arrival(remote, expected, progress)
        _link(remote)
    return remote.pointer


def _check_arrival(remote: Remote, expected: Expected, progress: Progress) -> None:
    """Whole and right, then its final name; wrong bytes are removed, for resuming would only keep them."""
    name = remote.reference.path.split("/")[-1]
    try:
        verify(remote.partial, remote.expected, progress, name=name)
        verify(remote.partial, expected, progress, name=name)
    except DownloadError:
        discard(remote.partial)
        raise
    move(remote.partial, remote.blob)
    for stale in partial_paths(remote.reference):
        stale.unlink(missing_ok=True)


def _link(remote: Remote) -> None:
    """Put the blob where snapshot and revision say; without the right to make links the file itself goes there."""
    pointer, revision = remote.pointer, remote.reference.revision or "main"
    try:
        if revision != remote.commit:
            ref = repo_folder(remote.reference.repo) / "refs" / revision
            ref.parent.mkdir(parents=True, exist_ok=True)
            new = ref.with_name(f"{ref.name}.{os.getpid()}.tmp")
            new.write_text(remote.commit, encoding="utf-8")
            new.replace(ref)
        pointer.unlink(missing_ok=True)  # a link to a blob that is gone
        try:
            os.symlink(os.path.relpath(remote.blob, pointer.parent), pointer)
        except (OSError, NotImplementedError):  # Windows without developer mode (1314), file systems without links
            move(remote.blob, pointer)
    except OSError as error:
        raise unwritable(pointer, error) from error


@contextmanager
def _explained(hub: Endpoint, reference: HubFile | HubQuant) -> Iterator[None]:
    """Turn what the hub's client raises into a sentence and a hint."""
    try:
        yield
    except DownloadError:
        raise
    except Exception as error:  # the client's errors come from three libraries and have no common base
        raise explain(error, hub, reference) from error


def _flat(path: str) -> str:
    """A path as one file name that keeps its end."""
    return path.replace("/", "--")[-120:]
