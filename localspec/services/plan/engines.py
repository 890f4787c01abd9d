"""What a recommendation of localspec is called elsewhere: the serving command of llama-server, vLLM or SGLang.

A pure table: it opens, asks and starts nothing. What has no equivalent is said and never replaced by something that
looks like it. Where each flag is documented: docs/engines.md, and the list in tests/services/test_engines.py.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from localspec.core.shapes import Shape
from localspec.errors import UsageError
from localspec.services.pairs import read_tree
from localspec.services.settings import Length

STEADY = 4
"""Draft length where N is auto here and a number is wanted there."""
NGRAM = 4
"""Longest run of tokens that localspec's lookup looks up first, and the shortest is 1."""


@dataclass(frozen=True)
class Recommended:
    """What to serve. verifier, draft: files or names as the other engine shall read them; ctx_size None: its default.

    among  the members of drafter cascade or auto
    """

    verifier: str
    drafter: str
    draft: str | None = None
    N: Length = "auto"
    tree: str = "none"
    among: Sequence[str] = ("ngram", "model")
    ctx_size: int | None = None
    parallel: int | None = None

    @property
    def length(self) -> int:
        """Tokens of a chain, as a number."""
        return STEADY if self.N == "auto" else self.N

    @property
    def asked(self) -> tuple[str, ...]:
        """The drafters that take part."""
        return tuple(self.among) if self.drafter in ("cascade", "auto") else (self.drafter,)


@dataclass(frozen=True)
class Serving:
    """How another engine is started. configuration: the same as it would stand in a file; notes: what differs."""

    engine: str
    command: tuple[str, ...]
    configuration: Mapping[str, Any]
    notes: tuple[str, ...]

    @property
    def line(self) -> str:
        """The command as one types it."""
        return shlex.join(self.command)

    def as_dict(self) -> dict[str, Any]:
        return {
            "engine": self.engine,
            "command": list(self.command),
            "configuration": dict(self.configuration),
            "notes": list(self.notes),
        }


def serving(engine: str, recommended: Recommended) -> Serving:
    """The equivalent on `engine`. Raises `UsageError` for an engine that is not in the table."""
    if engine not in ENGINES:
        raise UsageError(f"there is no engine {engine!r} in the table", hint=f"Choose one of {', '.join(ENGINES)}.")
    return ENGINES[engine](recommended)


def _llama_server(wanted: Recommended) -> Serving:
    kinds = {"ngram": "ngram-simple", "model": "draft-simple", "eagle3": "draft-eagle3"}
    known = [name for name in wanted.asked if name in kinds]
    flags: dict[str, Any] = {"model": wanted.verifier}
    notes = [*_missing(wanted, known), *_common(wanted)]
    if known:
        flags["spec-type"] = ",".join(kinds[name] for name in known)
    if wanted.draft and set(known) & {"model", "eagle3"}:
        flags |= {"spec-draft-model": wanted.draft, "spec-draft-n-max": wanted.length, "spec-draft-n-min": 0}
        if wanted.N == "auto":
            notes.append("--spec-draft-p-min ends a draft at a token that is less likely; try 0.5 to 0.8.")
        notes.append(
            "Drafts are the draft's favourites, compared with a sample: at temperature > 0 fewer are accepted."
        )
    if "ngram" in known:
        flags |= {"spec-ngram-simple-size-n": NGRAM, "spec-ngram-simple-size-m": wanted.length}
        notes.append("ngram-simple looks up runs of one length; localspec tries 4 tokens, then 3, 2 and 1.")
    if len(known) > 1:
        notes.append("The lookup goes first wherever it finds something, as in a cascade; nothing is measured.")
    if _is_tree(wanted):
        notes.append("Trees have no equivalent: a chain is drafted.")
    flags |= _limits(wanted, context="ctx-size", parallel="parallel")
    return _serving("llama-server", ["llama-server"], flags, notes)


def _vllm(wanted: Recommended) -> Serving:
    methods = {"ngram": "ngram", "model": "draft_model", "eagle3": "eagle3", "eagle1": "eagle", "medusa": "medusa"}
    known = [name for name in wanted.asked if name in methods]
    chosen = next((name for name in known if name != "ngram"), known[0] if known else None)
    notes = [*_missing(wanted, known), *_common(wanted), *_files(wanted, "the package vllm-gguf-plugin")]
    flags: dict[str, Any] = {}
    if chosen:
        speculative: dict[str, Any] = {"method": methods[chosen], "num_speculative_tokens": wanted.length}
        if chosen == "ngram":
            speculative |= {"prompt_lookup_max": NGRAM, "prompt_lookup_min": 1}
        else:
            speculative["model"] = wanted.draft
        flags["speculative-config"] = speculative
    if chosen == "model":
        notes.append(
            'Newer versions also know "draft_sample_method": "probabilistic", which is what rejection does here.'
        )
    if len(known) > 1:
        notes.append(f"Several drafters have no equivalent: {chosen} alone is configured.")
    if _is_tree(wanted):
        notes.append("A chain is drafted: speculative_token_tree exists, for heads only, and is left to you.")
    flags |= _limits(wanted, context="max-model-len", parallel="max-num-seqs")
    return _serving("vllm", ["vllm", "serve", wanted.verifier], flags, notes)


def _sglang(wanted: Recommended) -> Serving:
    algorithms = {"ngram": "NGRAM", "model": "STANDALONE", "eagle3": "EAGLE3", "eagle1": "EAGLE"}
    known = [name for name in wanted.asked if name in algorithms]
    chosen = next((name for name in known if name != "ngram"), known[0] if known else None)
    notes = [*_missing(wanted, known), *_common(wanted), *_files(wanted, "--load-format gguf")]
    flags: dict[str, Any] = {"model-path": wanted.verifier}
    if wanted.verifier.endswith(".gguf"):
        flags["load-format"] = "gguf"
    shape = read_tree(wanted.tree) if wanted.tree not in ("none", "auto") else None
    if chosen:
        flags["speculative-algorithm"] = algorithms[chosen]
        notes.append("The number of draft tokens counts the pending one: N + 1.")
    if chosen == "ngram":
        flags |= {
            "speculative-num-draft-tokens": wanted.length + 1,
            "speculative-ngram-min-match-window-size": 1,
            "speculative-ngram-max-match-window-size": NGRAM,
            "speculative-ngram-max-bfs-breadth": 1,
        }
        notes.append("NGRAM needs CUDA.")
    elif chosen:
        steps, width, nodes = wanted.length, 1, wanted.length
        if isinstance(shape, Shape):
            steps, width, nodes = shape.depth, max(shape.widths.values()), len(shape)
            notes.append("A tree has one width at every depth there and its best nodes are kept, not these places.")
        flags |= {
            "speculative-draft-model-path": wanted.draft,
            "speculative-num-steps": steps,
            "speculative-eagle-topk": width,
            "speculative-num-draft-tokens": nodes + 1,
        }
    if wanted.tree == "auto":
        notes.append("Trees that grow as far as they pay have no equivalent: a chain is drafted.")
    if len(known) > 1:
        notes.append(f"Several drafters have no equivalent: {chosen} alone is configured.")
    flags |= _limits(wanted, context="context-length", parallel="max-running-requests")
    return _serving("sglang", ["python", "-m", "sglang.launch_server"], flags, notes)


ENGINES: Mapping[str, Callable[[Recommended], Serving]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "llama-server": _llama_server,
}


def _serving(engine: str, start: list[str], flags: Mapping[str, Any], notes: Sequence[str]) -> Serving:
    typed = [word for name, value in flags.items() for word in (f"--{name}", _typed(value))]
    return Serving(engine, (*start, *typed), flags, tuple(dict.fromkeys(notes)))


def _typed(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict) else str(value)


def _limits(wanted: Recommended, *, context: str, parallel: str) -> dict[str, int]:
    given = {context: wanted.ctx_size, parallel: wanted.parallel}
    return {name: value for name, value in given.items() if value is not None}


def _is_tree(wanted: Recommended) -> bool:
    return wanted.tree != "none"


def _common(wanted: Recommended) -> list[str]:
    """What no engine of the table does."""
    if wanted.drafter == "none":
        return []
    said = ["Acceptance coupled (the same text whatever drafts) has no equivalent."]
    if wanted.N == "auto":
        said.append(
            f"N=auto has no equivalent: the length is fixed, {wanted.length} to begin with, also where drafting loses."
        )
    return said


def _missing(wanted: Recommended, known: Sequence[str]) -> list[str]:
    lost = [name for name in wanted.asked if name not in (*known, "none")]
    if not lost:
        return []
    left = "the others remain" if known else "it is served without speculation"
    return [f"Drafter {', '.join(lost)} has no equivalent: {left}."]


def _files(wanted: Recommended, how: str) -> list[str]:
    """About GGUF files where the engine prefers others."""
    if not any((name or "").endswith(".gguf") for name in (wanted.verifier, wanted.draft)):
        return []
    return [
        f"GGUF files need {how} and are not what this engine is fastest with: name the repository that the file was "
        "made from if you can, or add its tokenizer."
    ]
