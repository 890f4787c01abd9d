"""The devices that this build of llama.cpp can compute on, with their memory, asked from ggml's registry."""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Kind = Literal["cpu", "gpu", "igpu", "accel"]
_KINDS: dict[int, Kind] = {0: "cpu", 1: "gpu", 2: "igpu", 3: "accel"}


@dataclass(frozen=True)
class Device:
    """One compute device; memory in bytes."""

    name: str
    description: str
    kind: Kind
    memory_free: int
    memory_total: int

    @property
    def is_gpu(self) -> bool:
        return self.kind in ("gpu", "igpu")


def compute_devices(found: list[Device]) -> list[Device]:
    """The GPUs that llama.cpp spreads layers over: an integrated one only where there is no other."""
    discrete = [device for device in found if device.kind == "gpu"]
    return discrete or [device for device in found if device.kind == "igpu"]


def _call(library: Any, name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(library, name)
    function.restype = result
    function.argtypes = arguments
    return function


def devices() -> list[Device]:
    """All devices, the CPU included; free memory is what is free now."""
    from localspec.engine import native  # backends register when llama.cpp starts

    registry, base = native.ggml("ggml"), native.ggml("ggml-base")
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    count = _call(registry, "ggml_backend_dev_count", size)
    get = _call(registry, "ggml_backend_dev_get", pointer, size)
    name = _call(base, "ggml_backend_dev_name", ctypes.c_char_p, pointer)
    description = _call(base, "ggml_backend_dev_description", ctypes.c_char_p, pointer)
    kind = _call(base, "ggml_backend_dev_type", ctypes.c_int, pointer)
    memory = _call(base, "ggml_backend_dev_memory", None, pointer, ctypes.POINTER(size), ctypes.POINTER(size))
    found = []
    for index in range(count()):
        device = get(index)
        free, total = size(), size()
        memory(device, ctypes.byref(free), ctypes.byref(total))
        found.append(
            Device(
                name(device).decode("utf-8", "replace"),
                description(device).decode("utf-8", "replace"),
                _KINDS.get(kind(device), "accel"),
                free.value,
                total.value,
            )
        )
    return found


def default_threads() -> int:
    """Threads for decoding: one per physical core this process may use; hyper-threads only get in each other's way."""
    try:
        allowed = os.sched_getaffinity(0) if sys.platform == "linux" else set(range(os.cpu_count() or 1))
    except OSError:
        allowed = set(range(os.cpu_count() or 1))
    cores = set()
    for cpu in allowed:
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        try:
            cores.add(siblings.read_text().strip())
        except OSError:
            return max(1, len(allowed) if sys.platform == "darwin" else len(allowed) // 2 or 1)
    return max(1, len(cores))
