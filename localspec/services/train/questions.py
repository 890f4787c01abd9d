"""What is asked when training data is made: prompts from a file, or user turns that the verifier makes up itself.

A user turn is sampled behind the bare opening of the chat template, half of the time with a few words put into its
mouth so that all kinds of tasks occur. The benchmark's prompts are never asked, nor what resembles them, nor the same
thing twice.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.errors import UsageError
from localspec.services import prompts
from localspec.services.chat.template import Template, chat_ids

if TYPE_CHECKING:
    from localspec.engine.base import Vocab

OPENERS = Path(__file__).with_name("openers.txt")
MARK = "localspec-mark"
OVERLAP = 8
"""So many words in a row shared with a prompt that must not be seen make another one unfit."""


def openers() -> list[str]:
    """Words that user turns begin with; a blank line in the file ends the one before it with a line break."""
    lines = OPENERS.read_text(encoding="utf-8").split("\n")
    return [line + ("\n\n" if not follower else "") for line, follower in pairwise(lines) if line]


def read_turns(path: Path) -> list[str]:
    """The prompts of a JSONL file: {"prompt": text}, {"text": text}, a string, or Spec-Bench's form (all turns)."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint="Check the path.") from error
    found: list[str] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            found += _turns(line, f"{path}, line {number}")
    if not found:
        raise UsageError(f"{path} holds no prompts", hint='Each line is one prompt: {"prompt": "Why is the sky blue?"}')
    return found


def _turns(line: str, where: str) -> list[str]:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise UsageError(f"{where}: not JSON ({error})", hint='Write {"prompt": "..."} on each line.') from error
    if isinstance(entry, dict):
        entry = next((entry[key] for key in ("prompt", "text", "turns") if key in entry), None)
    texts = entry if isinstance(entry, list) else [entry]
    if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        raise UsageError(f"{where}: no text under prompt, text or turns", hint='Write {"prompt": "..."} on each line.')
    return [str(text) for text in texts]


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


class Seen:
    """Remembers prompts: those that must not be asked, and those that have been."""

    def __init__(self, forbidden: Iterable[str] = ()) -> None:
        self._asked: set[int] = set()
        self._forbidden: set[int] = set()
        self._runs: set[tuple[str, ...]] = set()
        for text in forbidden:
            listed = words(text)
            self._forbidden.add(digest(text))
            self._runs.update(_runs(listed))

    def remember(self, digests: Iterable[int]) -> None:
        """These have been asked before."""
        self._asked.update(digests)

    def admits(self, text: str) -> bool:
        """True for a prompt that is new and may be asked; it counts as asked from now on."""
        known = digest(text)
        if known in self._asked or self.forbids(text):
            return False
        self._asked.add(known)
        return True

    def forbids(self, text: str) -> bool:
        """True for a prompt of the benchmark, or one that shares a long run of words with it."""
        return digest(text) in self._forbidden or any(run in self._runs for run in _runs(words(text)))


def _runs(listed: list[str]) -> Iterable[tuple[str, ...]]:
    return (tuple(listed[i : i + OVERLAP]) for i in range(len(listed) - OVERLAP + 1))


def digest(text: str) -> int:
    """A 63-bit number for a prompt, the same for any spacing, case and punctuation."""
    hashed = hashlib.blake2b(" ".join(words(text)).encode(), digest_size=8).digest()
    return int.from_bytes(hashed, "big") >> 1


def forbidden(files: Iterable[Path]) -> list[str]:
    """The prompts that come with localspec, which its benchmark uses, and those of `files`."""
    return [prompt.text for prompt in prompts.built_in()] + [text for path in files for text in read_turns(path)]


class Asking:
    """From a text to the ids that the verifier reads, and back; without a chat template texts are just completed."""

    def __init__(self, vocab: Vocab, template: Template | None, bos: str) -> None:
        self._vocab = vocab
        self._template = template
        self._bos = bos

    @property
    def converses(self) -> bool:
        return self._template is not None

    def prompt(self, text: str) -> list[int]:
        """`text` as a prompt."""
        if self._template is None:
            return self.bare(text)
        rendered = self._template.render([{"role": "user", "content": text}])
        return chat_ids(rendered, self._vocab, self._bos)

    def bare(self, opener: str) -> list[int]:
        """What stands before a user turn, and its first words."""
        before = "" if self._template is None else self._template.render([{"role": "user", "content": MARK}])
        ids = chat_ids(before.split(MARK)[0], self._vocab, self._bos)
        return ids + self._vocab.tokenize(opener, add_special=False, parse_special=False)

    def text(self, tokens: Iterable[int]) -> str:
        """What was written, without control tokens."""
        return b"".join(self._vocab.piece(token) for token in tokens).decode("utf-8", "replace").strip()
