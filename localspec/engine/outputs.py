"""The end of a head: from features to logits, by its own output matrix or by rows of the verifier's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from localspec.core.draft import Ids
from localspec.engine.base import Row
from localspec.engine.graph import Buffer, Ops, Stored, Tensor


@dataclass(frozen=True)
class Output:
    """logits = softcap(scale * (weight @ feature + bias)); ids: the verifier's id of each row, None: its own number."""

    weight: Stored | None
    ids: Ids | None
    bias: Stored | None = None
    scale: float = 1.0
    softcap: float = 0.0

    @property
    def tensors(self) -> dict[str, Stored]:
        """What goes to the device, under the names that `apply` reads."""
        named = {"output.weight": self.weight, "output.bias": self.bias}
        return {name: tensor for name, tensor in named.items() if tensor is not None}

    def apply(self, ops: Ops, weights: Buffer, feature: Tensor, name: str = "output") -> Tensor:
        """The graph of it."""
        logits = ops.linear(feature, weights, name)
        if self.scale != 1.0:
            logits = ops.scale(logits, self.scale)
        if self.softcap:
            logits = ops.scale(ops.tanh(ops.scale(logits, 1.0 / self.softcap)), self.softcap)
        return logits

    def spread(self, logits: npt.NDArray[np.float32], vocab_size: int) -> list[Row]:
        """Rows over the verifier's ids: -inf for those that the head does not have."""
        if self.ids is None and logits.shape[1] == vocab_size:
            return list(logits)
        full = np.full((len(logits), vocab_size), -np.inf, dtype=np.float32)
        full[:, slice(logits.shape[1]) if self.ids is None else self.ids] = logits
        return list(full)
