"""Tiny pairs as files on disk, opened by the real runtime: verifiers, drafts that fit more or less, broken files.

Each file is written when it is first asked for and kept until the tests end. The models babble; what matters is that
two of them with the same weights and different vocabularies are pairs like those that people meet.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from localspec.core.sampling import Sampling
from localspec.drafters.registry import REGISTRY
from localspec.loop.answer import Answer
from localspec.services.report import Report
from localspec.services.runtime import Runtime
from localspec.services.settings import AnswerSettings, EngineSettings, PairChoice
from tests import eagle3, ggmlheads, wrecks, zoo
from tests.services.toy_pair import Collected

ODD = 150
"""The ordinary id whose text differs between "verifier" and "odd"."""
PROMPT = zoo.byte_ids("to be or not to be, to be or")
GREEDY = Sampling(temperature=0.0)
HEAD = eagle3.Kind(layers=(0, 1, 1))
"""Of the head "eagle3" for "verifier", which has two layers."""
FREE = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
DRAFTERS = list(REGISTRY)
_BLUR = 0.05  # of a draft's weights against the verifier's: they agree on most tokens


def _vocabulary(**keys: Any) -> zoo.Vocabulary:
    return zoo.byte_vocabulary(ends=(zoo.OTHER_END,), **keys)


def _llama(vocabulary: zoo.Vocabulary | None = None, **keys: Any) -> Callable[[Path], Path]:
    return lambda path: zoo.tiny_llama(path, vocabulary=vocabulary or _vocabulary(), **keys)


def _cut(place: wrecks.Place) -> Callable[[Path], Path]:
    return lambda path: wrecks.cut(path, model("verifier"), place)


WRITERS: dict[str, Callable[[Path], Path]] = {
    "verifier": _llama(),
    "draft": _llama(noise=_BLUR),
    "padded": _llama(_vocabulary().padded(7)),
    "padded-draft": _llama(_vocabulary().padded(7), noise=_BLUR),
    "odd": _llama(_vocabulary().renamed({ODD: "odd"}), noise=_BLUR),
    "many-odd": _llama(_vocabulary().renamed({100: "odd", 101: "odder"}), noise=_BLUR),
    "begins": _llama(_vocabulary(add_bos=True)),
    "begins-draft": _llama(_vocabulary(add_bos=True), noise=_BLUR),
    "foreign": _llama(zoo.spm_vocabulary()),
    "wide-heads": _llama(heads=2),
    "short": _llama(context=64),
    "swa": lambda path: zoo.tiny_swa(path, window=32),
    "mamba": zoo.tiny_mamba,
    "mamba-draft": lambda path: zoo.tiny_mamba(path, noise=_BLUR),
    "lfm2": zoo.tiny_lfm2,
    "lfm2-draft": lambda path: zoo.tiny_lfm2(path, noise=_BLUR),
    "eagle3": lambda path: eagle3.tiny_eagle3(path, HEAD, vocabulary=_vocabulary()),
    "medusa": lambda path: ggmlheads.tiny_medusa(path, model("verifier")),
    "eagle1": lambda path: ggmlheads.tiny_eagle1(path, model("verifier"), quant="Q8_0", known=range(40, 240)),
    "nan": _llama(nan=True),
    "cut": _cut("data"),
    "headless": _cut("header"),
    "empty": wrecks.empty,
    "web-page": wrecks.web_page,
    "unknown": wrecks.unknown_architecture,
    "projector": wrecks.projector,
}


@functools.cache
def folder() -> Path:
    """Where the files are; gone when the tests have ended."""
    return Path(_temporary().name)


@functools.cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="localspec-tiny-")


def model(name: str) -> Path:
    """The file called `name`."""
    path = folder() / f"{name}.gguf"
    return path if path.exists() else WRITERS[name](path)


def draft_for(drafter: str) -> str:
    """The file that plays the draft when `drafter` is used with "verifier"."""
    return drafter if drafter in WRITERS else "draft"


def open_pair(
    verifier: str | Path = "verifier",
    draft: str | Path | None = "draft",
    *,
    report: Report | None = None,
    ctx_size: int | None = 256,
    engine: dict[str, Any] | None = None,
    **choice: Any,
) -> Runtime:
    """A runtime over files of this module (by name) or other files (by path)."""
    paths = [str(model(name) if isinstance(name, str) else name) for name in (verifier, draft) if name]
    wanted = PairChoice(verifier=paths[0], draft=paths[1] if draft else None, **choice)
    settings = EngineSettings(**({"ctx_size": ctx_size, "threads": 1, "flash_attn": "off"} | (engine or {})))
    return Runtime.open(wanted, settings, report or Collected())


def answer(
    runtime: Runtime,
    prompt: list[int] | None = None,
    *,
    sampling: Sampling = GREEDY,
    max_tokens: int | None = 40,
    speculate: bool = True,
    ignore_end: bool = True,
    **settings: Any,
) -> Answer:
    """The whole answer; goes on after an end token unless told otherwise, so that lengths are equal."""
    wanted = AnswerSettings(sampling=sampling, max_tokens=max_tokens, **settings)
    stream = runtime.answer(prompt or PROMPT, wanted, speculate=speculate, ignore_end=ignore_end)
    for _ in stream:
        pass
    return stream.answer
