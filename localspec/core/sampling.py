"""The sampling law: from logits to the law of the next token, with llama.cpp's meaning and order.

Order: logit bias, penalties, top-k, top-p, min-p, temperature.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from localspec.core.law import Law


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen; the defaults are the command line's.

    temperature 0 is greedy. top_k 0, top_p 1, min_p 0, repeat_penalty 1, frequency/presence 0 switch a filter off.
    penalty_last_n tokens before the position count for the penalties (-1: all).
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

    @property
    def penalises(self) -> bool:
        """True when a row depends on the tokens before it, so that `recent` is needed."""
        return (
            self.repeat_penalty != 1.0 or self.frequency_penalty != 0.0 or self.presence_penalty != 0.0
        ) and self.penalty_last_n != 0

    def law(self, logits: npt.NDArray[np.float32], recent: npt.NDArray[np.int32]) -> Law:
        """The law at a position, (V,) logits -> Law.

        `recent` are the tokens before the position, path included, at least the last `penalty_last_n` of them; it is
        read only when `penalises`. Never writes to `logits`.
        """
        raise NotImplementedError
