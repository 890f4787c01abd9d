"""`/set`: the settings that may change between two answers, by the names of their options.

Ranges are those of the command line; what a setting does is known further down.
"""

from __future__ import annotations

import dataclasses
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, get_args

from localspec.cli.limits import number
from localspec.cli.options import draft_length, one_of, stops
from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.cli.chat_session import Session

SAMPLING = {
    "temperature": "temperature",
    "top-k": "top_k",
    "top-p": "top_p",
    "min-p": "min_p",
    "repeat-penalty": "repeat_penalty",
    "frequency-penalty": "frequency_penalty",
    "presence-penalty": "presence_penalty",
    "repeat-last-n": "penalty_last_n",
}
LIMITS = {"seed": "seed", "max-tokens": "max_tokens"}
NAMES = (*SAMPLING, *LIMITS, "acceptance", "stop", "N", "drafter")


def current(session: Session) -> dict[str, Any]:
    """All settings as they are; "off" where there is none."""
    settings = session.settings
    found = {name: getattr(settings.sampling, field) for name, field in SAMPLING.items()}
    found |= {name: getattr(settings, field) for name, field in LIMITS.items()}
    found |= {"acceptance": settings.acceptance or ("rejection" if settings.seed is None else "coupled")}
    found |= {"stop": " ".join(map(repr, settings.stop)) or None}
    found |= {"N": session.runtime.settings()["N"], "drafter": session.runtime.drafter}
    return {name: "off" if value is None else value for name, value in found.items()}


def change(session: Session, name: str, value: str) -> None:
    """Change one setting. Raises `UsageError`: unknown name, impossible value."""
    name = {known.lower(): known for known in NAMES}.get(name.lower().replace("_", "-"), name)
    if name not in NAMES:
        near = get_close_matches(name, NAMES, n=3)
        hint = f"Did you mean {' or '.join(near)}?" if near else f"It knows: {', '.join(NAMES)}."
        raise UsageError(f"there is no setting {name}", hint=hint)
    if not value:
        raise UsageError(
            f"/set {name} needs a value; it is {current(session)[name]}", hint=f"For example: {example(name)}"
        )
    if name in ("N", "drafter"):
        redraft(session, name, value)
    else:
        session.settings = changed(session, name, value)


def changed(session: Session, name: str, value: str) -> Any:
    """The settings with one of them changed."""
    from localspec.services.settings import Acceptance

    settings = session.settings
    given: dict[str, Any] = {}
    if name in SAMPLING:
        given[SAMPLING[name]] = number(name, value)
        return dataclasses.replace(settings, sampling=dataclasses.replace(settings.sampling, **given))
    if name in LIMITS:
        given[LIMITS[name]] = None if value == "off" else number(name, value)
        return dataclasses.replace(settings, **given)
    if name == "acceptance":
        return dataclasses.replace(settings, acceptance=one_of(name, value, get_args(Acceptance)))
    return dataclasses.replace(settings, stop=() if value == "off" else stops([value]))


def redraft(session: Session, name: str, value: str) -> None:
    """Another draft length or drafter for the same verifier."""
    runtime = session.runtime
    if name == "N":
        runtime.respeculate(runtime.drafter, draft_length(value))
    else:
        runtime.respeculate(value, runtime.settings()["N"])


def example(name: str) -> str:
    """A command that would work."""
    values = {"acceptance": "coupled", "stop": "END", "N": "auto", "drafter": "ngram", "temperature": "0.5"}
    return f"/set {name} {values.get(name, '1')}"
