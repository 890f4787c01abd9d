"""The same random hands on tiny GGUFs: attention, a sliding window, recurrent and hybrid memory, with and without
snapshots. Models stay loaded from example to example, as in a long life of one process.

Greedy answers are compared with plain decoding in a second context, up to near ties; and wherever a chat is looked at,
the next position's logits with those of a fresh cache.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from localspec.catalog.modelfile import read_model
from localspec.drafters.registry import REGISTRY
from localspec.engine import context as context_module
from localspec.engine import memory as memory_module
from localspec.engine.base import Context
from localspec.engine.context import ContextSettings, LlamaContext
from localspec.engine.model import LlamaModel
from localspec.loop.answer import Answer
from localspec.services.chat.template import Template
from localspec.services.pairs import SettledPair
from localspec.services.settings import EngineSettings
from tests import zoo
from tests.loop.answers import NEAR_TIE
from tests.property import examples
from tests.property import operations as op
from tests.property.chats import Chat
from tests.property.runtimes import WILD, Wired
from tests.property.speech import Said, plain
from tests.property.trip import LOOP
from tests.services import tiny
from tests.services.toy_pair import Collected

TEMPLATE = (
    "{% for m in messages %}<|turn|>{{ m.role[0] }}{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>a{% endif %}"
)
CAPACITY = 160
TOLERANCE = 0.05
"""Of a logit, whose spread is 2.4: what the shape of a batch may change. A wrong cache is off by whole units."""
LAWS = [op.LAWS[0], op.LAWS[1], op.LAWS[3]]
PAIRS = {"llama": ("verifier", "draft"), "window": ("swa", "swa"), "recurrent": ("mamba", "mamba-draft"),
         "snapshots": ("lfm2", "lfm2-draft")}  # fmt: skip
WATCHED = (LOOP, str(context_module.__file__), str(memory_module.__file__))
_numbers = itertools.count()


@dataclass
class Truth:
    """Plain greedy answers out of a context of their own; `gaps` says how far the second best was behind."""

    context: Context
    model: LlamaModel
    gaps: dict[int, float]

    def expect(self, prompt: Sequence[int], how: op.How) -> Said | None:
        if how.law != op.LAWS[0]:
            return None
        self.gaps.clear()
        limits = {"max_tokens": how.max_tokens, "stops": how.stop, "capacity": CAPACITY}
        return plain(self.pick, self.model.vocab, prompt, **limits)  # type: ignore[arg-type]

    def pick(self, text: Sequence[int]) -> int:
        result = self.context.prefill(text)
        assert result is not None
        second, first = np.partition(result.logits(0), -2)[-2:]
        self.gaps[len(text)] = float(first - second)
        return int(result.logits(0).argmax())

    def agree(self, prompt: Sequence[int], answer: Answer, said: Said) -> bool | None:
        """Equal, or None: up to the first near tie."""
        for at, (ours, theirs) in enumerate(zip(answer.tokens, said.uncut, strict=False)):
            if ours != theirs:
                return None if self.gaps[len(prompt) + at] < NEAR_TIE else False
        return len(answer.tokens) <= len(said.uncut)


@dataclass
class World:
    """One pair, loaded once."""

    runtime: Wired
    report: Collected
    truth: Truth
    folder: Path


@pytest.fixture(scope="module")
def worlds() -> Iterator[dict[str, World]]:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setitem(REGISTRY, "wild", WILD)
        patch.setenv("LOCALSPEC_CACHE", folder)
        made = {name: _world(*names, Path(folder) / name) for name, names in PAIRS.items()}
        yield made
        for world in made.values():
            world.runtime.close()
            world.truth.context.close()
            world.truth.model.close()


def _world(verifier: str, draft: str, folder: Path) -> World:
    folder.mkdir()
    report = Collected()
    files = {role: read_model(tiny.model(name)) for role, name in (("verifier", verifier), ("draft", draft))}
    pair = SettledPair(verifier, verifier, draft, "none", 4, "none", {})
    engine = EngineSettings(ctx_size=CAPACITY, threads=1, flash_attn="off", gpu_layers=0, draft_gpu_layers=0)
    runtime = Wired(pair, engine, files, report)
    runtime.trip.files = WATCHED
    model = LlamaModel(files["verifier"].path, gpu_layers=0)
    context = LlamaContext(model, replace(ContextSettings(CAPACITY), flash_attn="off"))
    return World(runtime, report, Truth(context, model, {}), folder)


@pytest.mark.parametrize("name", PAIRS)
@settings(max_examples=examples.count(100), suppress_health_check=list(HealthCheck))
@given(
    first=op.drafts(),
    todo=st.lists(op.operations(zoo.FIRST_BYTE + 256, laws=LAWS, stops=["a", "e", "\x00"]), min_size=1, max_size=8),
)
def test_whatever_is_done_everything_stays_true(
    worlds: dict[str, World], name: str, first: op.Draft, todo: list[op.Operation]
) -> None:
    world = worlds[name]
    world.runtime.forget()
    world.runtime.built.clear()
    world.report.warnings.clear()
    truth = world.truth
    chat = Chat(
        world.runtime,
        world.report,
        Template(TEMPLATE),
        world.folder,
        truth.expect,
        truth.context,
        truth.agree,
        TOLERANCE,
    )
    for operation in [first, *todo]:
        event(type(operation).__name__)
        chat.do(operation)
    chat.look()
