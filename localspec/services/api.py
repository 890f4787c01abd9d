"""localspec for Python programs: load a pair, stream or generate answers; the command line does no more than that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any

from localspec.core.sampling import Sampling
from localspec.errors import UsageError
from localspec.loop.answer import Answer
from localspec.services.chat.template import chat_ids, choose, raw_ids
from localspec.services.report import Report, Silent
from localspec.services.runtime import Runtime
from localspec.services.settings import AnswerSettings, EngineSettings, Length, PairChoice
from localspec.services.stream import Stream

Prompt = str | Sequence[Mapping[str, str]]
"""One user message, or a conversation of {"role", "content"} messages; with `raw` a text to complete as it stands."""


class LoadedPair:
    """A verifier and its drafter, answering one prompt at a time (`BusyError`); `with` or `close()` frees both."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def stream(
        self, prompt: Prompt, *, raw: bool = False, system: str | None = None, template: str | None = None, **law: Any
    ) -> Stream:
        """Pieces of the answer as they come; `.answer` of the stream holds the result afterwards.

        `law`: the fields of `Sampling` (temperature, top_k, ...) and of `AnswerSettings` (seed, max_tokens, stop,
        acceptance). Raises `UsageError`, `TemplateError`, `ContextFullError`.
        """
        ids = self._ids(prompt, raw=raw, system=system, template=template)
        return self.runtime.answer(ids, _settings(law))

    def generate(
        self, prompt: Prompt, *, raw: bool = False, system: str | None = None, template: str | None = None, **law: Any
    ) -> Answer:
        """The whole answer: .text .tokens .finish_reason .prompt_tokens .stats. Arguments as for `stream`."""
        with self.stream(prompt, raw=raw, system=system, template=template, **law) as stream:
            for _ in stream:
                pass
        return stream.answer

    def _ids(self, prompt: Prompt, *, raw: bool, system: str | None, template: str | None) -> list[int]:
        runtime = self.runtime
        if raw:
            if not isinstance(prompt, str):
                raise UsageError("raw completes a text, and a list of messages was given", hint="Pass a string.")
            return raw_ids(prompt, runtime.vocab, runtime.bos)[0]
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [dict(m) for m in prompt]
        if system is not None:
            messages.insert(0, {"role": "system", "content": system})
        rendering = choose(template, runtime.template, bos=runtime.bos, eos=runtime.eos).render(messages)
        return chat_ids(rendering, runtime.vocab, runtime.bos)

    def close(self) -> None:
        self.runtime.close()

    def __enter__(self) -> LoadedPair:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def load(
    pair: str | None = None,
    *,
    verifier: str | Path | None = None,
    draft: str | Path | None = None,
    drafter: str | None = None,
    N: Length | None = None,
    tree: str | None = None,
    options: Mapping[str, Any] | None = None,
    report: Report | None = None,
    **engine: Any,
) -> LoadedPair:
    """Open a pair by its name in models.toml, or from references; what is missing is fetched first.

    `engine`: the fields of `EngineSettings` (ctx_size, gpu_layers, threads, kv_type, flash_attn, ...). `report` hears
    notes, warnings and progress. Raises `LocalspecError`s; a draft that does not fit only warns.
    """
    choice = PairChoice(
        pair=pair,
        verifier=None if verifier is None else str(verifier),
        draft=None if draft is None else str(draft),
        drafter=drafter,
        N=N,
        tree=tree,
        options={key: str(value) for key, value in (options or {}).items()},
    )
    _known(engine, EngineSettings)
    return LoadedPair(Runtime.open(choice, EngineSettings(**engine), report or Silent()))


def _settings(law: Mapping[str, Any]) -> AnswerSettings:
    """Keyword arguments sorted into the law and the limits."""
    own = {field.name for field in fields(AnswerSettings)} - {"sampling"}
    limits = {key: value for key, value in law.items() if key in own}
    sampling = {key: value for key, value in law.items() if key not in own}
    _known(sampling, Sampling, *sorted(own))
    stop = limits.get("stop", ())
    limits["stop"] = (stop,) if isinstance(stop, str) else tuple(stop)
    return AnswerSettings(sampling=Sampling(**sampling), **limits)


def _known(given: Mapping[str, Any], kind: type[Any], *more: str) -> None:
    names = [field.name for field in fields(kind)]
    for key in given:
        if key not in names:
            raise UsageError(f"there is no setting {key!r}", hint=f"Known are {', '.join([*names, *more])}.")
