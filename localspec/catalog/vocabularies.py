"""Can a draft speak for a verifier? Two vocabularies compared id by id, read from the files alone.

What makes a draft useless is fatal: another kind of tokenizer, begin or end tokens that mean something else, many ids
with other texts. What is harmless is noted: padded tables, a few ids that differ (they are never proposed), settings
that only matter to who tokenises, which is always the verifier. Exactness never depends on this check.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.catalog.gguf import read_header
from localspec.errors import ModelFileError

MOST_BLOCKED = 64  # ordinary ids that may differ, at most
BLOCKED_SHARE = 0.001  # and at most this share of the ids, but always one

UNUSED = 5  # llama.cpp's token type for rows that only pad the table

_TOKENS, _TYPES = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"
_ENDS = ("eos", "eot", "eom")
# llama.cpp takes a token of one of these texts as an end of generation even when no key names it.
_END_TEXTS = {
    text.encode()
    for text in (
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
        "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
        "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~[",
    )
}  # fmt: skip


@dataclass(frozen=True)
class Vocabulary:
    """What a file says about its tokens; texts are as stored, in the tokenizer's own alphabet.

    types    one number per id, or empty when the file has none
    ends     ids that end a text
    add_bos, add_eos   None: the file leaves it to the tokenizer
    """

    model: str
    pre: str
    texts: Sequence[bytes]
    types: Sequence[int] = ()
    bos: int | None = None
    eos: int | None = None
    ends: frozenset[int] = frozenset()
    add_bos: bool | None = None
    add_eos: bool | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def is_padding(self, token: int) -> bool:
        return token < len(self.types) and self.types[token] == UNUSED

    def shown(self, token: int | None) -> str:
        """An id with its text, for messages."""
        if token is None:
            return "none"
        return f"{token} {self.text(token)!r}" if token < len(self) else f"{token} (no such id)"

    def text(self, token: int) -> str:
        """The text of an id; bytes that are no text are replaced."""
        return self.texts[token].decode("utf-8", "replace")


@dataclass(frozen=True)
class Comparison:
    """What came of comparing a draft with a verifier.

    known    leading ids that both have
    blocked  ids below `known` that mean something else to the draft and must never be proposed
    fatal    why the draft cannot be used, one sentence each; empty: it can
    notes    what differs without doing harm
    first_difference   the first id with another text, None when there is none
    """

    known: int
    blocked: tuple[int, ...]
    fatal: tuple[str, ...]
    notes: tuple[str, ...]
    first_difference: int | None = None

    @property
    def is_compatible(self) -> bool:
        return not self.fatal


def read_vocabulary(path: Path) -> Vocabulary:
    """The vocabulary of a GGUF file (of the first part, if it is split)."""
    header = read_header(path, arrays=(_TOKENS, _TYPES))
    if _TOKENS not in header.texts:
        raise ModelFileError(f"{path} holds no vocabulary.", hint="Fetch a complete GGUF of the model.")
    texts = header.texts[_TOKENS]
    ids = {name: header.number(f"tokenizer.ggml.{name}_token_id") for name in ("bos", *_ENDS)}
    named = {ids[name] for name in _ENDS}
    ends = {token for token, text in enumerate(texts) if token in named or text in _END_TEXTS}
    flags = {name: header.values.get(f"tokenizer.ggml.add_{name}_token") for name in ("bos", "eos")}
    return Vocabulary(
        model=header.text("tokenizer.ggml.model"),
        pre=header.text("tokenizer.ggml.pre"),
        texts=texts,
        types=[int(kind) for kind in header.numbers.get(_TYPES, ())],
        bos=ids["bos"],
        eos=ids["eos"],
        ends=frozenset(ends),
        add_bos=None if flags["bos"] is None else bool(flags["bos"]),
        add_eos=None if flags["eos"] is None else bool(flags["eos"]),
    )


def compare(verifier: Vocabulary, draft: Vocabulary) -> Comparison:
    """What stands between `draft` and `verifier`."""
    known = min(len(verifier), len(draft))
    if verifier.model != draft.model:
        # Other tokenizers share no ids but by accident: one difference says all.
        first = next(iter(_differing(verifier, draft, known)), None)
        reason = f"The tokenizers are of different kinds: {_kind(verifier)} against {_kind(draft)}"
        return Comparison(known, (), (f"{reason}{_first(verifier, draft, first)}.",), (), first)
    differing = _differing(verifier, draft, known)
    # A row that only pads one of the tables is no disagreement; it just must not be proposed.
    ordinary = [token for token in differing if not verifier.is_padding(token) and not draft.is_padding(token)]
    first = next(iter(ordinary), None)
    fatal = _special_reasons(verifier, draft, differing)
    most = min(MOST_BLOCKED, max(1, int(known * BLOCKED_SHARE)))
    if len(ordinary) > most:
        fatal.append(
            f"{len(ordinary):,} of {known:,} ids have other texts, more than the {most} that can be left out"
            f"{_first(verifier, draft, first)}."
        )
    notes = list(_notes(verifier, draft))
    if ordinary and not fatal:
        shown = "; ".join(f"{verifier.shown(token)} against {draft.shown(token)}" for token in ordinary[:3])
        more = f" and {len(ordinary) - 3} more" if len(ordinary) > 3 else ""
        notes.append(f"{_ids(len(ordinary))} with another text will not be proposed: {shown}{more}.")
    return Comparison(known, tuple(differing), tuple(fatal), tuple(notes), first)


def _differing(verifier: Vocabulary, draft: Vocabulary, known: int) -> list[int]:
    pairs = zip(verifier.texts[:known], draft.texts[:known], strict=True)
    return [token for token, (ours, theirs) in enumerate(pairs) if ours != theirs]


def _special_reasons(verifier: Vocabulary, draft: Vocabulary, differing: list[int]) -> list[str]:
    """Begin and end tokens that mean something else to the draft."""
    reasons = []
    changed = set(differing)
    for name, token in (("begin", verifier.bos), ("end", verifier.eos)):
        if token is not None and (token in changed or token >= len(draft)):
            reasons.append(f"The verifier's {name} token {verifier.shown(token)} is {draft.shown(token)} to the draft.")
    begins = verifier.bos is not None and draft.bos is not None and verifier.bos != draft.bos
    if begins and not reasons and (verifier.add_bos or draft.add_bos):
        ours, theirs = verifier.shown(verifier.bos), draft.shown(draft.bos)
        reasons.append(f"A text begins with {ours} for the verifier and with {theirs} for the draft.")
    if not reasons and verifier.ends and draft.ends and verifier.ends.isdisjoint(draft.ends):
        ours, theirs = verifier.shown(min(verifier.ends)), draft.shown(min(draft.ends))
        reasons.append(f"A text ends with {ours} for the verifier and with {theirs} for the draft.")
    return reasons


def _notes(verifier: Vocabulary, draft: Vocabulary) -> tuple[str, ...]:
    notes = []
    if len(verifier) != len(draft):
        larger = "verifier" if len(verifier) > len(draft) else "draft"
        gap = abs(len(verifier) - len(draft))
        notes.append(
            f"The sizes differ by {gap:,} ids ({len(verifier):,} verifier, {len(draft):,} draft): "
            f"what only the {larger} has is never proposed."
        )
    if verifier.model == draft.model and verifier.pre != draft.pre:
        notes.append(
            f"The pre-tokenizers differ ({verifier.pre or 'none'}, {draft.pre or 'none'}); the verifier's is used."
        )
    for name in ("bos", "eos"):
        ours, theirs = getattr(verifier, f"add_{name}"), getattr(draft, f"add_{name}")
        if ours is not None and theirs is not None and ours != theirs:
            who = "verifier" if ours else "draft"
            notes.append(
                f"Only the {who} adds {name.upper()} to a text by itself; the verifier's way is used for both."
            )
    if verifier.eos != draft.eos and verifier.eos is not None and draft.eos is not None:
        notes.append(f"The end tokens differ: {verifier.shown(verifier.eos)} against {draft.shown(draft.eos)}.")
    return tuple(notes)


def _first(verifier: Vocabulary, draft: Vocabulary, token: int | None) -> str:
    if token is None:
        return ""
    return f"; the first id that differs is {token}: {verifier.text(token)!r} against {draft.text(token)!r}"


def _kind(vocabulary: Vocabulary) -> str:
    name = "/".join(word for word in (vocabulary.model, vocabulary.pre) if word) or "none"
    return f"{name} with {len(vocabulary):,} ids, BOS {_setting(vocabulary.bos, vocabulary.add_bos)}, EOS " + _setting(
        vocabulary.eos, vocabulary.add_eos
    )


def _setting(token: int | None, added: bool | None) -> str:
    number = "none" if token is None else str(token)
    return number if added is None else f"{number} ({'added' if added else 'not added'})"


def _ids(count: int) -> str:
    return "1 id" if count == 1 else f"{count} ids"
