"""What a user can ask for, as plain values: which pair, on which device, which law. Each default is written here only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from localspec.core.sampling import Sampling

KvType = Literal["f16", "q8_0", "q4_0"]
FlashAttention = Literal["auto", "on", "off"]
Acceptance = Literal["rejection", "coupled"]


@dataclass(frozen=True)
class PairChoice:
    """Which models and which drafter; None means "as the pair says", or the obvious default.

    pair      name in models.toml (None: the registry's default, unless `verifier` is given)
    verifier  REF that replaces the pair's verifier
    draft     REF that replaces the pair's draft
    drafter   name, "auto" or "none"
    N         draft length, or "auto"
    tree      "none", "auto" or "4,2,2"
    options   drafter options as typed: key -> text
    """

    pair: str | None = None
    verifier: str | None = None
    draft: str | None = None
    drafter: str | None = None
    N: int | Literal["auto"] | None = None
    tree: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class EngineSettings:
    """Where and how the models run. None: automatic (context size: the model's, at most 8192 tokens)."""

    ctx_size: int | None = None
    gpu_layers: int | None = None
    draft_gpu_layers: int | None = None
    threads: int | None = None
    kv_type: KvType = "f16"
    draft_kv_type: KvType = "f16"
    flash_attn: FlashAttention = "auto"


@dataclass(frozen=True)
class AnswerSettings:
    """The law and the limits of one answer.

    acceptance  None: "coupled" when a seed is given, else "rejection"
    max_tokens  None: until the model stops or the context is full
    """

    sampling: Sampling = field(default_factory=Sampling)
    acceptance: Acceptance | None = None
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
