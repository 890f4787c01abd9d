"""Prompts to measure with: the built-in ones, and files in Spec-Bench's form, one JSON object per line.

    {"question_id": 81, "category": "writing", "turns": ["Compose ...", "Rewrite ..."]}

Only the first turn is asked: what the later ones are worth depends on an answer that a greedy near tie can change.
Knows nothing about models or templates.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.catalog.texts import read_text
from localspec.errors import UsageError

BUILT_IN = Path(__file__).with_name("prompts.jsonl")
FORM = 'Each line holds one JSON object: {"question_id": 1, "category": "chat", "turns": ["..."]}.'


@dataclass(frozen=True)
class Prompt:
    """One question: where it comes from, what kind it is, what is asked."""

    id: str
    category: str
    text: str


def built_in() -> list[Prompt]:
    """localspec's own prompts: chat, code, code-edit, summary, translation, math, rag, json, creative."""
    return read(BUILT_IN)


def read(path: Path) -> list[Prompt]:
    """The prompts of a file. Raises `UsageError` that names file and line."""
    try:
        lines = read_text(path, encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start}).", hint=FORM) from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", hint="Check the path after --prompts.") from error
    prompts = [parse(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise UsageError(f"{path} holds no prompts.", hint=FORM)
    return prompts


def parse(line: str, where: str) -> Prompt:
    """One line of a file; `where` names it in errors."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not JSON ({error}).", hint=FORM) from error
    if not isinstance(entry, dict):
        raise UsageError(f"{where}: {kind(entry)} instead of an object.", hint=FORM)
    for key, fits, wanted in (
        ("question_id", lambda value: isinstance(value, int | str) and not isinstance(value, bool), "a number or text"),
        ("category", lambda value: isinstance(value, str) and value.strip() != "", "a text"),
        ("turns", is_turns, "a list of texts, at least one"),
    ):
        if key not in entry:
            raise UsageError(f"{where}: the key {key} is missing.", hint=FORM)
        if not fits(entry[key]):
            raise UsageError(f"{where}: {key} must be {wanted}.", hint=FORM)
    return Prompt(str(entry["question_id"]), entry["category"].strip(), entry["turns"][0])


def is_turns(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(turn, str) and turn.strip() for turn in value)


def kind(value: Any) -> str:
    """What a JSON value is, in words."""
    names = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def choose(prompts: Sequence[Prompt], *, categories: Iterable[str] = (), limit: int | None = None) -> list[Prompt]:
    """Those of `categories` (none named: all), at most `limit` of each, in their order."""
    known = list(dict.fromkeys(prompt.category for prompt in prompts))
    wanted = list(categories) or known
    for name in wanted:
        if name not in known:
            raise UsageError(f"There is no category {name!r} in these prompts.", hint=f"There are: {', '.join(known)}.")
    chosen: list[Prompt] = []
    counts = dict.fromkeys(wanted, 0)
    for prompt in prompts:
        if prompt.category in counts and (limit is None or counts[prompt.category] < limit):
            counts[prompt.category] += 1
            chosen.append(prompt)
    return chosen
