"""The sampling law: from logits to the law of the next token, with llama.cpp's meaning and order.

Order: logit bias, penalties, top-k, top-p, min-p, temperature. Knows nothing about models or contexts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from localspec.core.filters import Chosen, Logits, candidates, nucleus, reach
from localspec.core.fold import fold
from localspec.core.law import Law, mass
from localspec.errors import EngineError, UsageError

_COLD = 1e-3
"""Below this temperature differences of logits may overflow when they are divided by it."""
_COLDEST = float(np.finfo(np.float32).tiny)
"""Logits cannot be divided by a temperature below this, and it is as good as 0 anyway."""


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen; the defaults are the command line's.

    temperature 0 is greedy. top_k 0, top_p 1, min_p 0, repeat_penalty 1, frequency/presence 0 switch a filter off.
    penalty_last_n tokens before the position count for the penalties (-1: all). Raises `UsageError` for values that
    mean nothing.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalty_last_n: int = 64
    logit_bias: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Every test is written so that NaN fails it.
        _check("temperature", self.temperature, 0.0 <= self.temperature < math.inf, "0 (greedy) or a positive number")
        _check("top_k", self.top_k, self.top_k >= 0, "0 (off) or a positive whole number")
        _check("top_p", self.top_p, 0.0 < self.top_p <= 1.0, "above 0 and at most 1 (off)")
        _check("min_p", self.min_p, 0.0 <= self.min_p <= 1.0, "from 0 (off) to 1")
        _check("repeat_penalty", self.repeat_penalty, 0.0 < self.repeat_penalty < math.inf, "positive, 1 is off")
        for name in ("frequency_penalty", "presence_penalty"):
            _check(name, getattr(self, name), math.isfinite(getattr(self, name)), "a finite number, 0 is off")
        _check("penalty_last_n", self.penalty_last_n, self.penalty_last_n >= -1, "0 (off), positive, or -1 (all)")
        for token, bias in self.logit_bias.items():
            _check(f"logit_bias of {token}", bias, token >= 0 and bias < math.inf, "a number or -inf, for an id >= 0")

    @cached_property
    def greedy(self) -> bool:
        """True when the law is one-hot on the largest logit, whatever the filters say."""
        return self.temperature < _COLDEST

    @cached_property
    def penalises(self) -> bool:
        """True when a row depends on the tokens before it, so that `recent` is needed."""
        return (
            self.repeat_penalty != 1.0 or self.frequency_penalty != 0.0 or self.presence_penalty != 0.0
        ) and self.penalty_last_n != 0

    def law(self, logits: Logits, recent: npt.NDArray[np.int32]) -> Law:
        """The law at a position, (V,) logits -> Law.

        `recent` are the tokens before the position, path included, at least the last `penalty_last_n` of them; it is
        read only when `penalises`. Ties go to the lower id. Never writes to `logits`. Raises `EngineError` when the
        largest logit is no finite number.
        """
        if self.logit_bias or self.penalises:
            logits = self._adjusted(logits, recent)
        if self.greedy:
            best = int(logits.argmax())
            _check_finite(logits.item(best))
            return Law.one_hot(best)
        maxima = fold(np.maximum, logits)
        top = maxima.max()
        _check_finite(float(top))
        kept = self._filtered(logits, maxima, top)
        if kept is None:
            weights = _weights(logits, top, self.temperature)
            return Law(weights, mass(weights))
        weights = _weights(logits[kept], top, self.temperature)
        return Law(weights, float(weights.sum(dtype=np.float64)), kept.astype(np.int32))

    def _adjusted(self, logits: Logits, recent: npt.NDArray[np.int32]) -> Logits:
        """A copy with logit bias and penalties; ids beyond the row are none of its business."""
        logits = logits.copy()
        for token, bias in self.logit_bias.items():
            if token < len(logits):
                logits[token] += bias
        if self.penalises:
            window = recent if self.penalty_last_n < 0 else recent[-self.penalty_last_n :]
            ids, counts = np.unique(window[window < len(logits)], return_counts=True)
            seen = logits[ids]
            # Dividing a negative logit would reward the token.
            seen = np.where(seen <= 0.0, seen * self.repeat_penalty, seen / self.repeat_penalty)
            logits[ids] = seen - (counts * self.frequency_penalty + self.presence_penalty)
        return logits

    def _filtered(self, logits: Logits, maxima: Logits, top: np.floating[Any]) -> Chosen | None:
        """Ascending ids that survive top-k, top-p and min-p, None when all three are off."""
        floor = top + logits.dtype.type(math.log(self.min_p)) if self.min_p > 0.0 else None
        if self.top_k > 0:
            ids = candidates(logits, maxima, self.top_k)
            values = logits[ids]
            order = np.argsort(-values, kind="stable")[: self.top_k]
            ranked = values[order]
            count = len(ranked)
            if self.top_p < 1.0:
                weights = np.exp(ranked - top)
                count = reach(weights, whole=weights.cumsum()[-1], share=self.top_p)
            if floor is not None:
                count = min(count, int(np.count_nonzero(ranked >= floor)))
            order = order[:count]
            order.sort()
            return ids[order]
        if self.top_p < 1.0:
            kept = nucleus(logits, maxima, top=top, share=self.top_p, floor=floor)
            kept = kept if floor is None else kept[logits[kept] >= floor]
            kept.sort()
            return kept
        return None if floor is None else np.flatnonzero(logits >= floor)


def _weights(logits: Logits, top: np.floating[Any], temperature: float) -> Logits:
    """exp((logit - top) / temperature), a fresh array."""
    weights = logits - top
    if temperature < _COLD:
        with np.errstate(over="ignore"):  # it sends the losers to -inf, as it should
            weights /= temperature
    elif temperature != 1.0:
        weights /= temperature
    return np.exp(weights, out=weights)


def _check(name: str, value: float, valid: bool, allowed: str) -> None:
    if not valid:
        raise UsageError(f"{name} is {value}.", hint=f"Choose a value that is {allowed}.")


def _check_finite(top: float) -> None:
    if not math.isfinite(top):
        raise EngineError(
            f"The largest logit of a row is {top}.",
            hint="Try --flash-attn off and --kv-type f16; if it stays so, the model file is damaged or too coarse.",
        )
