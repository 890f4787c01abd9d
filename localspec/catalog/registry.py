"""The registry: models.toml as values, a user's own file merged over the packaged one.

Every bad entry is a `RegistryError` that names file, line and key. Knows what a reference looks like, not whether the
file behind it exists.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any, Literal, TypeVar

from localspec.catalog.positions import Positions
from localspec.catalog.reference import LocalFile, Named, Source, is_name, parse
from localspec.catalog.texts import read_text
from localspec.errors import RegistryError, UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PACKAGE = Path(str(resources.files("localspec")))
_SHA256 = re.compile(r"[0-9a-f]{64}")
_DEEP = re.compile(r"(?<![\w\"'-])(?:[\w\"'-]+[ \t]*\.[ \t]*){32}")  # tables in tables: their memory is quadratic
_TREE = re.compile(r"none|auto|\d+(,\d+)*")
_NO_DRAFT = ("none", "lookahead")  # drafters that read no second file; ngram may name one for `--drafter auto`


@dataclass(frozen=True)
class Model:
    """One file, or the first part of a split one.

    sha256, size  of the file; None: not known, then the hub's own hash is what it is checked against
    unverified    True when file or hash come from one public source only, or from none
    """

    name: str
    source: Source
    sha256: str | None = None
    size: int | None = None
    license: str = ""
    note: str = ""
    unverified: bool = False

    @property
    def is_shipped(self) -> bool:
        """True for a file inside the package: it is never fetched, nor removed."""
        return isinstance(self.source, LocalFile) and PACKAGE in self.source.path.parents


@dataclass(frozen=True)
class Pair:
    """A verifier and what drafts for it. `verifier` and `draft` are names of models.

    draft   None where there is no second file; with drafter ngram it is what other drafters would use
    memory  GB of memory that verifier, draft and a usual context need
    """

    name: str
    verifier: str
    drafter: str
    draft: str | None = None
    N: int | Literal["auto"] = "auto"
    tree: str = "none"
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    note: str = ""
    memory: int | None = None


Entry = TypeVar("Entry", Model, Pair)


@dataclass(frozen=True)
class Registry:
    """All models and pairs, in the order of the files."""

    models: Mapping[str, Model]
    pairs: Mapping[str, Pair]
    default: str

    def model(self, name: str) -> Model:
        """The model called `name`; `UsageError` with the nearest names."""
        return _find(self.models, name, "model")

    def pair(self, name: str | None = None) -> Pair:
        """The pair called `name`, the default one without a name."""
        return _find(self.pairs, name or self.default, "pair")


def load(user_file: Path | None = None) -> Registry:
    """The packaged registry with the user's file over it: an entry there replaces the packaged one of that name."""
    listed = (PACKAGE / "models.toml").read_text(encoding="utf-8")
    registry = read(listed, "models.toml (packaged)", folder=PACKAGE)
    path = user_file or user_path()
    if path is None:
        return registry
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise RegistryError(f"{path} cannot be read: {reason}.", hint="Set or unset LOCALSPEC_MODELS.") from error
    return read(text, str(path), below=registry, folder=path.parent)


def user_path() -> Path | None:
    """The user's own models.toml: LOCALSPEC_MODELS, else the configuration folder's if there is one."""
    if named := os.environ.get("LOCALSPEC_MODELS"):
        return Path(os.path.expanduser(named))
    import platformdirs

    path = Path(platformdirs.user_config_dir("localspec", appauthor=False)) / "models.toml"
    return path if path.is_file() else None


def read(text: str, file: str, *, below: Registry | None = None, folder: Path | None = None) -> Registry:
    """Read one models.toml over `below`; relative paths in it start at `folder`."""
    return _Reader(text, file, folder).registry(below)


def _find(entries: Mapping[str, Entry], name: str, kind: str) -> Entry:
    if name in entries:
        return entries[name]
    near = get_close_matches(name, entries, n=3, cutoff=0.5)
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    raise UsageError(
        f"There is no {kind} called {name!r}.", hint=f"{meant}`localspec models list` shows what there is."
    )


class _Reader:
    """One models.toml, with the positions for its messages."""

    def __init__(self, text: str, file: str, folder: Path | None) -> None:
        self._file = file
        self._folder = folder
        if deep := _DEEP.search(text):
            raise self._error(text.count("\n", 0, deep.start()) + 1, "", "not valid here: a name with so many dots")
        self._positions = Positions(text)
        try:
            self._table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            found = re.search(r"\(at line (\d+), column \d+\)|\(at end of document\)", str(error))
            line = int(found[1]) if found and found[1] else len(text.splitlines()) or 1
            reason = str(error)[: found.start()].strip() if found else str(error)
            raise self._error(line, "", f"not valid TOML: {reason}") from None
        except (ValueError, RecursionError) as error:  # numbers of thousands of digits, brackets in brackets
            raise self._error(1, "", f"not valid TOML: {error}") from None

    def registry(self, below: Registry | None) -> Registry:
        self._only(self._table, (), {"default": str, "models": dict, "pairs": dict})
        models = dict(below.models) if below else {}
        models.update((name, self._model(name, table)) for name, table in self._tables("models"))
        pairs = dict(below.pairs) if below else {}
        pairs.update((name, self._pair(name, table, models)) for name, table in self._tables("pairs"))
        default = self._table.get("default", below.default if below else None)
        if default is None:
            raise self._bad(("default",), "is missing")
        if default not in pairs:
            raise self._bad(("default",), f"names the pair {default!r}, which does not exist")
        return Registry(models, pairs, default)

    def _tables(self, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
        for name, table in self._table.get(kind, {}).items():
            if not is_name(name):
                raise self._bad((kind, name), "is not a name: letters, digits, dot, dash and underscore only")
            if not isinstance(table, dict):
                raise self._bad((kind, name), f"must be a table, not {_shown(table)}")
            yield name, table

    def _model(self, name: str, table: dict[str, Any]) -> Model:
        key = ("models", name)
        types = {"source": str, "sha256": str, "size": int, "license": str, "note": str, "unverified": bool}
        self._only(table, key, types, needed=("source",))
        sha256, size = table.get("sha256") or None, table.get("size")
        if sha256 is not None and not _SHA256.fullmatch(sha256):
            raise self._bad((*key, "sha256"), f"must be 64 hexadecimal digits in lower case, not {_shown(sha256)}")
        if size is not None and size <= 0:
            raise self._bad((*key, "size"), f"must be a number of bytes above 0, not {size}")
        source = self._source((*key, "source"), table["source"])
        rest = {word: table[word] for word in ("license", "note", "unverified") if word in table}
        return Model(name, source, sha256, size, **rest)

    def _source(self, key: tuple[str, ...], text: str) -> Source:
        try:
            source = parse(text)
        except UsageError as error:
            raise self._bad(key, f"is not a reference: {error}") from None
        if isinstance(source, Named):
            raise self._bad(key, f"names {text!r}; a model's source is a path, hf: or pypi:, not another name")
        if isinstance(source, LocalFile) and self._folder is not None:
            return LocalFile((self._folder / os.path.expanduser(text)).absolute(), text)
        return source

    def _pair(self, name: str, table: dict[str, Any], models: Mapping[str, Model]) -> Pair:
        key = ("pairs", name)
        types = {"verifier": str, "drafter": str, "draft": str, "N": (int, str), "tree": str, "options": dict}
        self._only(table, key, {**types, "note": str, "memory": int}, needed=("verifier", "drafter"))
        for role in ("verifier", "draft"):
            if role in table and table[role] not in models:
                near = get_close_matches(table[role], models, n=1)
                meant = f"; did you mean {near[0]!r}" if near else ""
                raise self._bad((*key, role), f"names the model {table[role]!r}, which does not exist{meant}")
        if "draft" in table and table["drafter"] in _NO_DRAFT:
            raise self._bad((*key, "draft"), f"is given, but the drafter {table['drafter']!r} reads no second file")
        N = table.get("N", "auto")
        if N != "auto" and (isinstance(N, str) or N < 0):
            raise self._bad((*key, "N"), f'must be a whole number from 0 or "auto", not {_shown(N)}')
        if not _TREE.fullmatch(table.get("tree", "none")):
            raise self._bad(
                (*key, "tree"), f'must be "none", "auto" or widths like "4,2,2", not {_shown(table["tree"])}'
            )
        for option, value in table.get("options", {}).items():
            if not isinstance(value, (str, int, float)):
                raise self._bad(
                    (*key, "options", option), f"must be a text, number or truth value, not {_shown(value)}"
                )
        return Pair(name, **table)

    def _only(
        self, table: dict[str, Any], key: tuple[str, ...], types: Mapping[str, Any], *, needed: tuple[str, ...] = ()
    ) -> None:
        """Only known keys, of the right types, and all that are needed."""
        for word, value in table.items():
            if word not in types:
                near = get_close_matches(word, types, n=1)
                meant = f"did you mean {near[0]!r}" if near else f"known are {', '.join(types)}"
                raise self._bad((*key, word), f"is not a known key; {meant}")
            # True is an int to Python, but never a size.
            if not isinstance(value, types[word]) or (isinstance(value, bool) and types[word] is not bool):
                raise self._bad((*key, word), f"must be {_TYPES[types[word]]}, not {_shown(value)}")
        for word in needed:
            if word not in table:
                raise self._bad((*key, word), "is missing")

    def _bad(self, key: tuple[str, ...], problem: str) -> RegistryError:
        return self._error(self._positions.line(*key), ".".join(key), problem)

    def _error(self, line: int, key: str, problem: str) -> RegistryError:
        place = f"{self._file}, line {line}"
        return RegistryError(f"{place}: {key} {problem}." if key else f"{place}: {problem}.", hint=f"Edit {place}.")


_TYPES = {
    str: "a text",
    int: "a whole number",
    bool: "true or false",
    dict: "a table",
    (int, str): 'a whole number or "auto"',
}


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
