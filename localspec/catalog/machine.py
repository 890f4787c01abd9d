"""Facts about this machine: system, processor, memory, room on the disk, versions. Loads no llama.cpp.

Each fact is None where the system does not tell it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("localspec", "llama-cpp-python", "numpy", "huggingface-hub", "typer", "rich")


@dataclass(frozen=True)
class Machine:
    """What an answer's speed depends on; sizes in bytes."""

    os: str
    cpu: str
    physical_cores: int | None
    logical_cores: int | None
    memory_total: int | None
    memory_available: int | None
    python: str
    packages: dict[str, str]


def describe() -> Machine:
    """This machine, now."""
    total, available = memory()
    return Machine(
        os=platform.platform(terse=True),
        cpu=cpu_name(),
        physical_cores=physical_cores(),
        logical_cores=os.cpu_count(),
        memory_total=total,
        memory_available=available,
        python=platform.python_version(),
        packages=packages(),
    )


def packages() -> dict[str, str]:
    """Installed versions of what matters here; what is not installed is left out."""
    found = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def free_disk(folder: Path) -> int | None:
    """Bytes free where `folder` is or would be; None where the file system reports no size."""
    existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    usage = shutil.disk_usage(existing)
    return usage.free if usage.total else None


def cpu_name() -> str:
    """The processor as its maker calls it, else its architecture."""
    if sys.platform == "darwin":
        return _ask("sysctl", "-n", "machdep.cpu.brand_string") or platform.machine()
    found = re.search(r"^(?:model name|Model|Hardware)\s*:\s*(.+)$", _text("/proc/cpuinfo"), re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()


def physical_cores() -> int | None:
    """Cores without hyper-threads, of those this process may use."""
    if sys.platform == "darwin":
        asked = _ask("sysctl", "-n", "hw.physicalcpu")
        return int(asked) if asked.isdigit() else None
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 0)
    siblings = {_text(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") for cpu in allowed} - {""}
    return len(siblings) or None


def memory() -> tuple[int | None, int | None]:
    """Main memory: all of it, and what programs could still get."""
    if sys.platform == "win32":
        return _windows_memory()
    lines = dict(re.findall(r"^(\w+):\s+(\d+) kB$", _text("/proc/meminfo"), re.MULTILINE))
    if "MemTotal" in lines:
        return int(lines["MemTotal"]) * 1024, int(lines.get("MemAvailable", 0)) * 1024 or None
    asked = _ask("sysctl", "-n", "hw.memsize")
    return (int(asked) if asked.isdigit() else None), None


def _windows_memory() -> tuple[int | None, int | None]:
    # MEMORYSTATUSEX: two 32-bit numbers, then seven of 64 bits, of which total and available come first.
    status = (ctypes.c_ulonglong * 8)()
    ctypes.cast(status, ctypes.POINTER(ctypes.c_ulong))[0] = ctypes.sizeof(status)
    if not ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):  # type: ignore[attr-defined,unused-ignore]
        return None, None
    return int(status[1]), int(status[2])


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _ask(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=False).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
