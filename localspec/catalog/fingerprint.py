"""Which verifier a head was trained for: a few facts of its file that are stored in the head and compared at load.

A head reads hidden states, so for other weights it is noise: never wrong, since acceptance is exact, but slow. Another
quantisation of the same weights gives nearly the same states; that is told apart by the file type alone.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from localspec.catalog.gguf import Header, read_header
from localspec.catalog.modelfile import read_model
from localspec.catalog.vocabularies import read_vocabulary
from localspec.errors import PairError

VERSION = 1
_KEY = "localspec.head"
_NORM = "output_norm.weight"
_F32 = 0
OTHER_HEAD = "Use a head that was trained for this verifier (`localspec train`), or another drafter."


@dataclass(frozen=True)
class Fingerprint:
    """A verifier as a head knows it.

    tokenizer  sha256 over the kind and the texts of all ids but unused padding
    norm       sha256 of the last norm, which is F32 in every quantisation of the same weights; "" when there is none
    file_type  name of the quantisation, "Q4_1"
    name       for messages
    """

    architecture: str
    width: int
    layers: int
    vocab_size: int
    tokenizer: str
    norm: str
    file_type: str
    name: str = ""


def of_verifier(path: Path) -> Fingerprint:
    """The fingerprint of a verifier's GGUF. Raises `ModelFileError`."""
    model = read_model(path)
    vocabulary = read_vocabulary(model.path)
    digest = hashlib.sha256(vocabulary.model.encode())
    for token, text in enumerate(vocabulary.texts):
        if not vocabulary.is_padding(token):
            digest.update(f"{token} {len(text)} ".encode() + text)
    return Fingerprint(
        architecture=model.architecture,
        width=model.width or 0,
        layers=model.layers or 0,
        vocab_size=len(vocabulary),
        tokenizer=digest.hexdigest(),
        norm=_hash_of_norm(model.parts),
        file_type=model.quantisation,
        name=model.name or model.path.stem,
    )


def _hash_of_norm(parts: tuple[Path, ...]) -> str:
    for part in parts:
        info = read_header(part).table.get(_NORM)
        if info is not None and info.kind == _F32 and info.size:
            with part.open("rb") as file:
                file.seek(info.offset)
                return hashlib.sha256(file.read(info.size)).hexdigest()
    return ""


def keys(verifier: Fingerprint, *, kind: str) -> dict[str, str | int]:
    """What a head's file says about its kind and its verifier."""
    facts = {name: value for name, value in vars(verifier).items() if value != ""}
    return {
        f"{_KEY}.version": VERSION,
        f"{_KEY}.kind": kind,
        **{f"{_KEY}.verifier.{name}": value for name, value in facts.items()},
    }


def of_head(path: Path) -> Fingerprint | None:
    """The fingerprint that a head carries, None when it carries none, as heads made by others do."""
    return read_fingerprint(read_header(path))


def read_fingerprint(header: Header) -> Fingerprint | None:
    """As `of_head`, from a header that has been read."""
    prefix = f"{_KEY}.verifier"
    if not header.text(f"{prefix}.architecture"):
        return None
    return Fingerprint(
        architecture=header.text(f"{prefix}.architecture"),
        width=header.number(f"{prefix}.width") or 0,
        layers=header.number(f"{prefix}.layers") or 0,
        vocab_size=header.number(f"{prefix}.vocab_size") or 0,
        tokenizer=header.text(f"{prefix}.tokenizer"),
        norm=header.text(f"{prefix}.norm"),
        file_type=header.text(f"{prefix}.file_type"),
        name=header.text(f"{prefix}.name"),
    )


def check(head: Fingerprint, verifier: Fingerprint, *, force: bool) -> None:
    """Raises `PairError` when the head is not for this verifier; `force` forgives another quantisation of the same."""
    other = _other_model(head, verifier)
    if other:
        raise PairError(f"This head was trained for {_shown(head)}: {other}.", hint=OTHER_HEAD)
    if head.file_type != verifier.file_type and not force:
        raise PairError(
            f"This head was trained on the {head.file_type} weights of {_shown(head)}, the verifier has "
            f"{verifier.file_type}.",
            hint="With -o force=true it is used all the same: answers stay exact, fewer guesses may be right.",
        )


def _other_model(head: Fingerprint, verifier: Fingerprint) -> str:
    """What says that these are not the weights it was trained for, "" when nothing does."""
    differing = [
        f"{what} is {ours} there and {theirs} here"
        for what, ours, theirs in (
            ("the architecture", head.architecture, verifier.architecture),
            ("the width", head.width, verifier.width),
            ("the number of layers", head.layers, verifier.layers),
            ("the vocabulary", f"{head.vocab_size:,} ids", f"{verifier.vocab_size:,} ids"),
        )
        if ours != theirs
    ]
    if differing:
        return ", ".join(differing)
    if head.tokenizer != verifier.tokenizer:
        return "some of its token ids stand for other texts in this verifier"
    if head.norm and verifier.norm and head.norm != verifier.norm:
        return "this verifier has the same sizes but other weights, such as those of a fine-tune"
    return ""


def _shown(fingerprint: Fingerprint) -> str:
    return fingerprint.name or f"another {fingerprint.architecture} model"
