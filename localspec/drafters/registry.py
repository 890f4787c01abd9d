"""All drafters by name, with their options read off their `Options` classes. Adding a technique is one line here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from localspec.drafters import auto, cascade, eagle1, eagle3, lookahead, medusa, model, ngram, none
from localspec.drafters.base import Drafter, Lender
from localspec.drafters.members import COMBINING
from localspec.errors import UsageError


@dataclass(frozen=True)
class Option:
    """One option of a drafter. type: "int", "float", "bool" or "str"."""

    name: str
    type: str
    default: Any
    help: str


@dataclass(frozen=True)
class Entry:
    """One drafter. needs_draft: the pair must name a second model; uses_draft: it is opened if there is one;
    grows_trees: drafts branch whatever `--tree` says; is_lookup: asking it costs nothing.
    """

    name: str
    summary: str
    options_class: Callable[..., Any]
    drafter_class: Callable[[Any, Lender], Drafter]
    needs_draft: bool = False
    uses_draft: bool = False
    grows_trees: bool = False
    is_lookup: bool = False

    @property
    def combines(self) -> bool:
        """It asks other drafters."""
        return self.name in COMBINING

    @property
    def options(self) -> list[Option]:
        """What `-o` accepts, as documented in the docstring of the `Options` class."""
        doc = self.options_class.__doc__ or ""
        found = []
        for field in fields(self.options_class):  # type: ignore[arg-type]
            line = re.search(rf"^\s+{field.name}\s+(.*)$", doc, re.MULTILINE)
            found.append(Option(field.name, type(field.default).__name__, field.default, line[1] if line else ""))
        return found

    def parse(self, texts: Mapping[str, str]) -> Any:
        """The `Options` for what was typed. Raises `UsageError` for an unknown key or a value that cannot be read."""
        known = {option.name: option for option in self.options}
        for key in texts:
            if key not in known:
                names = ", ".join(known) or "none at all"
                raise UsageError(f"drafter {self.name} has no option {key}", hint=f"It knows: {names}.")
        return self.options_class(**{key: _read(known[key], text) for key, text in texts.items()})


def _read(option: Option, text: str) -> Any:
    readers: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "str": str, "bool": _read_bool}
    try:
        return readers[option.type](text)
    except ValueError:
        raise UsageError(
            f"option {option.name} is {text!r}", hint=f"Give a value of type {option.type}, like {option.default}."
        ) from None


def _read_bool(text: str) -> bool:
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    if text.lower() not in words:
        raise ValueError(text)
    return words[text.lower()]


REGISTRY: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry("none", "plain decoding, the baseline", none.Options, none.NoDrafter),
        Entry("model", "a second, smaller model drafts", model.Options, model.DraftModel, True, True),
        Entry(
            "eagle3",
            "a head on the verifier's hidden states; with --tree auto: EAGLE-2",
            eagle3.Options,
            eagle3.Eagle3,
            True,
            True,
        ),
        Entry("eagle1", "a head on the verifier's last hidden state", eagle1.Options, eagle1.Eagle1, True, True),
        Entry("medusa", "heads that guess several places", medusa.Options, medusa.Medusa, True, True, grows_trees=True),
        Entry("ngram", "prompt lookup: what followed last time", ngram.Options, ngram.Ngram, is_lookup=True),
        Entry("lookahead", "the verifier guesses for itself", lookahead.Options, lookahead.Lookahead, grows_trees=True),
        Entry("cascade", "several, asked in order of price", cascade.Options, cascade.Cascade, uses_draft=True),
        Entry("auto", "of several the one that pays in this round", auto.Options, auto.Auto, uses_draft=True),
    )
}


def entry(name: str) -> Entry:
    """The drafter called `name`. Raises `UsageError` listing the names."""
    if name not in REGISTRY:
        raise UsageError(f"there is no drafter {name!r}", hint=f"Choose one of {', '.join(REGISTRY)}.")
    return REGISTRY[name]
