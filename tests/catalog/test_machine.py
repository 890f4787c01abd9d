"""Facts of the machine: this one as it is, and others by what their systems would say."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from localspec.catalog import machine


def test_facts_of_this_machine(clean: Path) -> None:
    found = machine.describe()
    assert found.cpu
    assert found.os
    assert (found.logical_cores or 1) >= (found.physical_cores or 1) >= 1
    assert found.memory_total is None or found.memory_total > 2**28
    assert found.memory_available is None or found.memory_total is None or found.memory_available <= found.memory_total
    assert found.packages["numpy"]
    free = machine.free_disk(clean / "not" / "there")
    assert free is None or free > 0


def test_facts_load_no_llama_cpp() -> None:
    code = "import sys, localspec.catalog.machine as m; m.describe(); print('llama_cpp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.strip() == "False"


def pretend(monkeypatch: pytest.MonkeyPatch, system: str, files: dict[str, str] | None = None, **answers: str) -> None:
    """Be another system, with these files, whose sysctl answers to the last word of a name."""
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(machine, "_text", lambda path: (files or {}).get(path, ""))
    monkeypatch.setattr(machine, "_ask", lambda *command: answers.get(command[-1].split(".")[-1], ""))


def test_a_mac_is_asked_by_sysctl(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "darwin", brand_string="Apple M2", physicalcpu="8", memsize="17179869184")
    assert machine.cpu_name() == "Apple M2"
    assert machine.physical_cores() == 8
    assert machine.memory() == (16 * 2**30, None)


def test_what_a_mac_does_not_tell_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "darwin")
    assert machine.cpu_name() == platform.machine()
    assert machine.physical_cores() is None
    assert machine.memory() == (None, None)


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("processor\t: 0\nmodel name\t: AMD EPYC 7B13\ncpu MHz\t: 2450", "AMD EPYC 7B13"),
        ("processor\t: 0\nBogoMIPS\t: 108.00\n\nModel\t\t: Raspberry Pi 5 Model B\n", "Raspberry Pi 5 Model B"),
        ("Hardware\t: Qualcomm SM8250 \n", "Qualcomm SM8250"),
        ("processor\t: 0\n", platform.processor() or platform.machine()),
        ("", platform.processor() or platform.machine()),
    ],
)
def test_names_of_processors(monkeypatch: pytest.MonkeyPatch, said: str, name: str) -> None:
    """ARM boards have no line `model name`."""
    pretend(monkeypatch, "linux", {"/proc/cpuinfo": said})
    assert machine.cpu_name() == name


def test_hyper_threads_are_no_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    place = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    pretend(monkeypatch, "linux", {place.format(cpu): f"{cpu % 2},{cpu % 2 + 2}\n" for cpu in range(4)})
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    assert machine.physical_cores() == 2
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 3}, raising=False)
    assert machine.physical_cores() == 1


def test_a_container_without_topology_does_not_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "linux")
    assert machine.physical_cores() is None
    assert machine.memory() == (None, None)


def test_memory_of_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    total = "MemTotal:       16000000 kB\n"
    pretend(monkeypatch, "linux", {"/proc/meminfo": total + "MemFree:   5 kB\nMemAvailable:    9000000 kB\n"})
    assert machine.memory() == (16_000_000 * 1024, 9_000_000 * 1024)
    pretend(monkeypatch, "linux", {"/proc/meminfo": total})  # kernels before 3.14, some containers
    assert machine.memory() == (16_000_000 * 1024, None)


@pytest.mark.parametrize("answers", [True, False])
def test_memory_of_windows(monkeypatch: pytest.MonkeyPatch, answers: bool) -> None:
    def status(found: Any) -> bool:
        words = (ctypes.c_uint32 * 16).from_buffer(found._obj)
        assert words[0] == 64, "the structure says its own size"
        if answers:
            found._obj[1], found._obj[2] = 32 * 2**30, 20 * 2**30
        return answers

    pretend(monkeypatch, "win32")
    kernel = SimpleNamespace(GlobalMemoryStatusEx=status)
    monkeypatch.setattr(ctypes, "windll", SimpleNamespace(kernel32=kernel), raising=False)
    # On Windows `unsigned long` has 32 bits.
    monkeypatch.setattr(ctypes, "c_ulong", ctypes.c_uint32)
    assert machine.memory() == ((32 * 2**30, 20 * 2**30) if answers else (None, None))


def test_files_and_programs_that_are_not_there_say_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert machine._text(str(tmp_path / "none")) == ""
    assert machine._ask("localspec-no-such-program") == ""
    assert machine._ask(sys.executable, "-c", "print('  an answer ')") == "an answer"

    def hang(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("sysctl", 5)

    monkeypatch.setattr(subprocess, "run", hang)
    assert machine._ask("sysctl") == ""


def test_packages_that_are_missing_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PACKAGES", ("numpy", "localspec-no-such-package"))
    assert list(machine.packages()) == ["numpy"]


def test_a_file_system_without_figures_has_no_free_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Some network file systems report a size of 0, which is not a full disk."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=0, used=0, free=0))
    assert machine.free_disk(tmp_path) is None
