"""What a user can ask for, as plain values: which pair, on which device, which law. Defaults are written here only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from localspec.core.sampling import Sampling
from localspec.errors import UsageError

KvType = Literal["f16", "q8_0", "q4_0"]
FlashAttention = Literal["auto", "on", "off"]
Acceptance = Literal["rejection", "coupled"]
Length = int | Literal["auto"]
"""Tokens drafted per verifier pass; auto: as many as pay."""


@dataclass(frozen=True)
class PairChoice:
    """Which models and which drafter; None means "as the pair says", or the obvious default.

    pair      name in models.toml (None: the registry's default, unless `verifier` is given)
    verifier  REF that replaces the pair's verifier
    draft     REF that replaces the pair's draft
    drafter   name, "none", or "auto": of what suits the pair the one that pays in each round
    N         draft length, or "auto"
    tree      "none", "auto" or "4,2,2"
    options   drafter options as typed: key -> text
    """

    pair: str | None = None
    verifier: str | None = None
    draft: str | None = None
    drafter: str | None = None
    N: Length | None = None
    tree: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class EngineSettings:
    """Where and how the models run. None: automatic (context size: the model's, at most 8192 tokens).

    Raises `UsageError` for values that mean nothing, before anything is fetched or loaded for them.
    """

    ctx_size: int | None = None
    gpu_layers: int | None = None
    draft_gpu_layers: int | None = None
    threads: int | None = None
    kv_type: KvType = "f16"
    draft_kv_type: KvType = "f16"
    flash_attn: FlashAttention = "auto"

    def __post_init__(self) -> None:
        for name, size in (("ctx_size", self.ctx_size), ("threads", self.threads)):
            if size is not None and size < 1:
                raise UsageError(f"{name} is {size}", hint="Choose 1 or more, or leave it out.")
        for name, kind in (("kv_type", self.kv_type), ("draft_kv_type", self.draft_kv_type)):
            _check_one_of(name, kind, get_args(KvType))
            if kind != "f16" and self.flash_attn == "off":
                raise UsageError(
                    f"a {kind} cache needs flash attention, which is off",
                    hint=f"Turn it on (--flash-attn auto), or choose --{name.replace('_', '-')} f16.",
                )
        _check_one_of("flash_attn", self.flash_attn, get_args(FlashAttention))


@dataclass(frozen=True)
class AnswerSettings:
    """The law and the limits of one answer.

    acceptance  None: as `rule` says
    max_tokens  None: until the model stops or the context is full
    """

    sampling: Sampling = field(default_factory=Sampling)
    acceptance: Acceptance | None = None
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, number in (("max_tokens", self.max_tokens), ("seed", self.seed)):
            if number is not None and number < 0:
                raise UsageError(f"{name} is {number}", hint="Choose 0 or more, or leave it out.")
        if self.acceptance is not None:
            _check_one_of("acceptance", self.acceptance, get_args(Acceptance))

    @property
    def rule(self) -> Acceptance:
        """The acceptance in use; a seed asks for the one whose text no drafter can change."""
        return self.acceptance or ("coupled" if self.seed is not None else "rejection")


def _check_one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(f"{name} is {value!r}", hint=f"Choose one of {', '.join(allowed)}.")
