"""What a model file is: architecture, quantisation, context, vocabulary, and all its parts if it is split.

`read_model` is the gate in front of llama.cpp: what passes it is whole and holds a language model or a drafting head.
Whether the installed llama.cpp knows the architecture is left to the engine, which asks the library itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from localspec.catalog.gguf import Header, read_header
from localspec.catalog.quantisation import FILE_TYPES
from localspec.catalog.reference import split_names
from localspec.errors import ModelFileError

Kind = Literal["model", "head"]

_HEADS = {
    "eagle3",
    "dflash",
    "gemma4-assistant",
    "localspec-head",
}  # draft from a verifier's hidden states; no models of their own
_OTHERS = {
    "clip": "a projector for pictures or sound (mmproj)",
    "t5": "an encoder-decoder model (t5)",
    "wavtokenizer-dec": "a speech model (wavtokenizer-dec)",
    "qwen3tts": "a speech model (qwen3tts)",
    "pockettts": "a speech model (pockettts)",
}
_ENCODERS = {
    "bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2", "jina-bert-v3", "eurobert",
    "gemma-embedding", "llama-embed", "t5encoder",
}  # fmt: skip


@dataclass(frozen=True)
class ModelFile:
    """A checked model on this machine.

    path            the file, or the first part of a split one; parts holds all of them
    bytes           of all parts
    kind            "model", or "head" for what drafts from a verifier's hidden states
    tokenizer       type and pre-tokenizer, "gpt2/smollm"
    context_length, layers, width, vocab_size   None when the file does not say
    experts         (used for a token, in all) of a mixture of experts
    """

    path: Path
    parts: tuple[Path, ...]
    bytes: int
    kind: Kind
    architecture: str
    name: str
    quantisation: str
    tokenizer: str
    chat_template: bool
    context_length: int | None
    layers: int | None
    width: int | None
    vocab_size: int | None
    experts: tuple[int, int] | None = None


def read_model(path: Path) -> ModelFile:
    """Check `path`, and all parts if it is one of a split model; `ModelFileError` says what is wrong and what to do."""
    first, header, parts = _parts(path)
    architecture = header.text("general.architecture")
    _refuse_other_kinds(first, header, architecture)
    model, pre = header.text("tokenizer.ggml.model"), header.text("tokenizer.ggml.pre")
    return ModelFile(
        path=first,
        parts=parts,
        bytes=sum(part.stat().st_size for part in parts),
        kind="head" if architecture in _HEADS else "model",
        architecture=architecture,
        name=header.text("general.name"),
        quantisation=_quantisation(header),
        tokenizer="/".join(word for word in (model, pre) if word),
        chat_template=bool(header.text("tokenizer.chat_template")),
        context_length=header.number(f"{architecture}.context_length"),
        layers=header.number(f"{architecture}.block_count"),
        width=header.number(f"{architecture}.embedding_length"),
        vocab_size=header.lengths.get("tokenizer.ggml.tokens", header.number(f"{architecture}.vocab_size")),
        experts=_experts(header, architecture),
    )


def _experts(header: Header, architecture: str) -> tuple[int, int] | None:
    total = header.number(f"{architecture}.expert_count") or 0
    used = header.number(f"{architecture}.expert_used_count") or total
    return (used, total) if total > 1 else None


def _quantisation(header: Header) -> str:
    file_type = header.number("general.file_type")
    # 1024 is added by llama.cpp when the type was guessed.
    if file_type is not None and file_type & 1023 in FILE_TYPES:
        return FILE_TYPES[file_type & 1023]
    return max(header.weight_bytes, key=header.weight_bytes.__getitem__, default="unknown")


def _refuse_other_kinds(path: Path, header: Header, architecture: str) -> None:
    what = _other_kind(header, architecture)
    if what:
        raise ModelFileError(f"{path} is {what}, not a language model.", hint="Name the file of the model itself.")
    if not architecture:
        raise ModelFileError(
            f"{path} does not say which architecture it has.", hint="Fetch another copy, or convert the model again."
        )
    if header.tensors == 0:
        raise ModelFileError(
            f"{path} holds no weights, only metadata or a vocabulary.", hint="Name the file that holds the weights."
        )


def _other_kind(header: Header, architecture: str) -> str:
    declared = header.text("general.type")
    if declared == "mmproj":
        return _OTHERS["clip"]
    if declared == "adapter":
        return "a LoRA adapter"
    if declared == "imatrix":
        return "an importance matrix"
    if architecture in _ENCODERS:
        return f"an encoder for embeddings ({architecture})"
    return _OTHERS.get(architecture, "")


def _parts(path: Path) -> tuple[Path, Header, tuple[Path, ...]]:
    """First part, its header, all parts; a whole file is its own only part."""
    header = read_header(path)
    count, number = header.number("split.count") or 1, header.number("split.no") or 0
    if count <= 1:
        return path, header, (path,)
    names = split_names(path.name)
    if len(names) != count:
        _refuse_joined(path, header, count)
        raise ModelFileError(
            f"{path} is part {number + 1} of {count}, but its name does not say so.",
            hint=f"Give the parts their names back: NAME-00001-of-{count:05d}.gguf and so on.",
        )
    parts = tuple(path.with_name(name) for name in names)
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise ModelFileError(
            f"{path.name} is one of {count} parts, and {_list(missing)} is missing from {path.parent}.",
            hint="Put all parts into one folder; an hf: reference fetches them all.",
        )
    headers = [header if part == path else read_header(part) for part in parts]
    _check_parts(parts, headers, count)
    return parts[0], headers[0], parts


def _refuse_joined(path: Path, header: Header, count: int) -> None:
    # After the last tensor comes padding at most, so what follows here is another file.
    if header.size > header.needed + 4096:
        raise ModelFileError(
            f"{path} looks like {count} parts joined by hand: {header.size - header.needed:,} bytes follow the first.",
            hint="Split GGUFs cannot be joined as bytes: keep the parts, or merge them with llama-gguf-split --merge.",
        )


def _check_parts(parts: tuple[Path, ...], headers: list[Header], count: int) -> None:
    for place, (part, header) in enumerate(zip(parts, headers, strict=True)):
        if (header.number("split.count"), header.number("split.no")) != (count, place):
            raise ModelFileError(
                f"{part} is not part {place + 1} of {count}: it says it is part {(header.number('split.no') or 0) + 1} "
                f"of {header.number('split.count') or 1}.",
                hint="Fetch the parts again; they do not belong together.",
            )
    tensors, claimed = sum(header.tensors for header in headers), headers[0].number("split.tensors.count")
    if claimed is not None and tensors != claimed:
        raise ModelFileError(
            f"The parts of {parts[0]} hold {tensors} tensors in all, but should hold {claimed}.",
            hint="Fetch the parts again; they do not belong together.",
        )


def _list(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} (and {len(names) - 1} more)"
