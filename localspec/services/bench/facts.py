"""Facts that belong to every measurement: the machine, the versions, the memory that was needed at the peak."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Any

from localspec.catalog.machine import describe


def machine() -> dict[str, Any]:
    """Where it was measured; memory in GB (10^9 bytes)."""
    here = describe()
    return {
        "os": here.os,
        "cpu": here.cpu,
        "physical_cores": here.physical_cores,
        "logical_cores": here.logical_cores,
        "memory_gb": None if here.memory_total is None else round(here.memory_total / 1e9, 1),
        "python": here.python,
    }


def llama_cpp() -> str:
    """The llama-cpp-python release, which pins the llama.cpp it was built from."""
    return f"llama-cpp-python {version('llama-cpp-python')}"


def peak_rss_mb() -> float | None:
    """Most memory this process has had resident so far, in MB (10^6 bytes); None where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6
