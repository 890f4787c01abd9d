"""The kinds of memory that the engine must treat alike, each with settings that bring out what is special about it."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.engine.context import ContextSettings


@dataclass(frozen=True)
class Kind:
    """A model of the zoo under certain settings.

    start      tokens of the first prefill: long enough that a sliding window has moved on and lost its beginning
    tolerance  largest difference of a logit (their spread is 2.4) that batch shape and cache type alone may make; rows
               of a wrong cache are off by whole units
    """

    name: str
    model: str
    settings: ContextSettings
    start: int = 20
    tolerance: float = 0.02

    def __str__(self) -> str:
        return self.name


SMALL = ContextSettings(capacity=512, draft_room=6, leaves=4, flash_attn="off")
WINDOW = ContextSettings(capacity=1024, draft_room=6, leaves=4, batch=32, flash_attn="off")

KINDS = [
    Kind("attention", "llama", SMALL),
    Kind("chains-only", "llama", ContextSettings(capacity=512, draft_room=6, flash_attn="off")),
    Kind("flash", "llama", ContextSettings(capacity=512, draft_room=6, leaves=4, flash_attn="on"), tolerance=0.2),
    Kind("q8_0", "wide-heads", ContextSettings(capacity=512, draft_room=6, leaves=4, kv_type="q8_0"), tolerance=0.3),
    Kind("batch-of-7", "llama", ContextSettings(capacity=512, draft_room=6, leaves=4, batch=7, flash_attn="off")),
    Kind("window", "swa", WINDOW, start=500),
    Kind("recurrent", "mamba", SMALL),
    Kind("hybrid-copies", "jamba", SMALL),
    Kind("hybrid-snapshots", "lfm2", SMALL),
    Kind("hybrid-snapshots-batch-of-4", "lfm2", ContextSettings(capacity=512, draft_room=6, batch=4, flash_attn="off")),
    Kind("hybrid-window", "lfm2-swa", WINDOW, start=500),
]
