"""How many layers go to the GPU: arithmetic on bytes, no device is touched here.

The draft is placed first, because it is read N times a round; then as many of the verifier's layers as fit beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

RESERVE = 512 * 2**20
"""Bytes kept free on the device for compute buffers, the desktop and fragmentation."""
EVERYTHING = 999
"""More layers than any model has: all of them and the output layer."""


@dataclass(frozen=True)
class Need:
    """What one model wants on a device: bytes of its weights, bytes of its cache, over this many layers."""

    weights: int
    cache: int
    layers: int

    @property
    def total(self) -> int:
        return self.weights + self.cache


def cache_bytes(*, layers: int, width: int, capacity: int, kv_type: str) -> int:
    """Bytes of the keys and values of `capacity` tokens; `width`: key plus value elements per token and layer."""
    bits = {"f16": 16.0, "q8_0": 8.5, "q4_0": 4.5}[kv_type]
    return int(layers * width * capacity * bits / 8)


def layers_that_fit(need: Need, free: int, *, beside: Need | None = None) -> int:
    """Layers of the model for which `free` bytes of device memory suffice; `EVERYTHING` when all of it fits.

    `beside` is a model that is placed first: its weights, cache and compute buffers come off what is free.
    """
    room = free - RESERVE - (beside.total + RESERVE if beside else 0)
    if need.total <= room:
        return EVERYTHING
    # One share more than there are layers: embeddings and the output layer weigh about as much as a layer or more.
    return max(0, min(need.layers, int(room * (need.layers + 1) // max(need.total, 1)) - 1))


def fewer(layers: int, count: int) -> Iterator[int]:
    """What to try when `layers` of `count` were too many after all: always less, and at last none."""
    left = min(layers, count)
    yield layers
    while left > 0:
        left = left * 3 // 4 if left > 4 else left - 1
        yield left
