"""What this machine can compute on, and how many threads are worth having."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from localspec.engine import devices
from localspec.engine.devices import Device, compute_devices, default_threads


def device(name: str, kind: devices.Kind) -> Device:
    return Device(name, name, kind, 10, 20)


def test_every_build_has_a_cpu() -> None:
    found = devices.devices()
    cpu = next(device for device in found if device.kind == "cpu")
    assert cpu.name
    assert cpu.description
    assert 0 < cpu.memory_free <= cpu.memory_total


def test_layers_go_to_the_gpus_and_to_nothing_else() -> None:
    found = [device("CPU", "cpu"), device("BLAS", "accel"), device("CUDA0", "gpu"), device("CUDA1", "gpu")]
    assert [gpu.name for gpu in compute_devices(found)] == ["CUDA0", "CUDA1"]
    assert [each.is_gpu for each in found] == [False, False, True, True]
    assert compute_devices(found[:2]) == []


def test_an_integrated_gpu_counts_only_when_there_is_no_other() -> None:
    """llama.cpp leaves it alone beside a real one, so its memory must not be planned with."""
    inside, real = device("Vulkan1", "igpu"), device("Vulkan0", "gpu")
    assert compute_devices([inside, real]) == [real]
    assert compute_devices([inside]) == [inside]
    assert inside.is_gpu


def test_threads_are_within_what_the_process_may_use() -> None:
    assert 1 <= default_threads() <= (os.cpu_count() or 1)


def siblings(monkeypatch: pytest.MonkeyPatch, pairs: dict[int, str]) -> None:
    """Pretend to be Linux with these cpus; each value is the list of hyper-threads on the same core."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(pairs), raising=False)

    def read_text(path: Path) -> str:
        cpu = int(path.parent.parent.name.removeprefix("cpu"))
        if not pairs[cpu]:
            raise FileNotFoundError(path)
        return pairs[cpu] + "\n"

    monkeypatch.setattr(Path, "read_text", read_text)


def test_hyper_threads_share_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    siblings(monkeypatch, {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"})
    assert default_threads() == 2


def test_a_restricted_process_counts_only_its_own_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    siblings(monkeypatch, {0: "0,4", 4: "0,4"})
    assert default_threads() == 1


def test_without_topology_half_the_threads_are_taken_for_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    siblings(monkeypatch, dict.fromkeys(range(8), ""))
    assert default_threads() == 4


def test_where_the_system_does_not_tell_all_cpus_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some sandboxes refuse the question which cpus a process may use."""

    def refuse(_: int) -> set[int]:
        raise OSError("not permitted")

    siblings(monkeypatch, {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"})
    monkeypatch.setattr(os, "sched_getaffinity", refuse, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert default_threads() == 2


def test_a_mac_has_no_hyper_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    siblings(monkeypatch, dict.fromkeys(range(8), ""))
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert default_threads() == 8


def test_one_cpu_is_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    siblings(monkeypatch, {0: ""})
    assert default_threads() == 1
