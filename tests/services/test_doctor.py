"""What the doctor finds, from facts that are written down and on this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from localspec.cli.app import main
from localspec.cli.doctor import features
from localspec.services import doctor
from localspec.services.doctor import DeviceFact, FolderFact, LlamaCpp, environment, folder, problems, weight

CPU = DeviceFact("CPU", "a processor", "cpu", 8, 8)
GPU = DeviceFact("CUDA0", "a card", "gpu", 8, 8)
CACHE = FolderFact("models from wheels", "/cache", 0, 10**12, True)


def whats(build: LlamaCpp, *folders: FolderFact, available: int | None = 10**12, nvidia: bool = False) -> str:
    found = problems(build, folders, available=available, nvidia=nvidia)
    assert all(problem.remedy for problem in found)
    return "; ".join(problem.what for problem in found)


def test_a_sound_machine_has_no_problems() -> None:
    assert whats(LlamaCpp("1", "", (CPU,)), CACHE) == ""
    assert whats(LlamaCpp("1", "", (CPU, GPU)), CACHE, nvidia=True) == ""
    assert whats(LlamaCpp("1", "", (CPU,)), CACHE, available=None) == ""


def test_a_cpu_build_on_a_machine_with_a_card_is_noticed() -> None:
    assert "built for the CPU alone" in whats(LlamaCpp("1", "", (CPU,)), CACHE, nvidia=True)


def test_a_library_that_does_not_load_is_noticed() -> None:
    said = whats(LlamaCpp(error="OSError: libcuda.so.1"), CACHE, nvidia=True)
    assert said == "llama.cpp cannot be loaded: OSError: libcuda.so.1"


def test_little_memory_little_room_and_closed_folders() -> None:
    build = LlamaCpp("1", "", (CPU,))
    assert "only 0.5 GB of memory" in whats(build, CACHE, available=500_000_000)
    assert "only 0.1 GB are free" in whats(build, FolderFact("models from the hub", "/hub", 0, 10**8, True))
    assert "/hub cannot be written to" in whats(build, FolderFact("models from the hub", "/hub", 0, 10**12, False))
    assert whats(build, FolderFact("models from the hub", "/hub", 0, None, True)) == ""


def test_secrets_are_named_and_never_shown() -> None:
    shown = environment(
        {
            "HF_TOKEN": "hf_secret",
            "PIP_INDEX_URL": "https://user:pass@example.org/simple",
            "https_proxy": "http://me:word@proxy:3128",
            "HF_HUB_OFFLINE": "1",
            "UNRELATED": "x",
            "NO_COLOR": "",
        }
    )
    assert shown == {
        "HF_TOKEN": "(set)",
        "HF_HUB_OFFLINE": "1",
        "PIP_INDEX_URL": "https://***@example.org/simple",
        "HTTPS_PROXY": "http://***@proxy:3128",
    }


def test_a_folder_weighs_what_its_files_weigh(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "one").write_bytes(b"x" * 1000)
    (tmp_path / "link").symlink_to(tmp_path / "blobs" / "one")
    assert weight(tmp_path) == 1000
    found = folder("models", tmp_path / "not" / "yet")
    assert (found.bytes, found.writable) == (0, True)
    assert found.free is not None


def test_features_of_the_build() -> None:
    assert features("CPU : SSE3 = 1 | AVX512 = 0 | REPACK = 1 | ") == ["SSE3", "REPACK"]
    assert features("CUDA : ARCHS = 890 | CPU : AVX = 1 |") == ["ARCHS", "AVX"]


def test_the_document(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert main(["doctor", "--json"]) == 0
    text = capsys.readouterr().out
    assert "hf_secret" not in text
    document = json.loads(text)
    assert document["schema"] == "localspec.doctor/1"
    assert {"machine", "llama_cpp", "folders", "models", "environment", "problems"} < set(document)
    assert document["llama_cpp"]["version"]
    assert any(device["kind"] == "cpu" for device in document["llama_cpp"]["devices"])


def test_a_broken_registry_is_a_problem_not_a_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "models.toml"
    broken.write_text("[models.x]\nsource = 3\n", encoding="utf-8")
    monkeypatch.setenv("LOCALSPEC_MODELS", str(broken))
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "Problems" in shown
    assert "models.toml" in shown


def test_a_library_that_breaks_while_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    from localspec.engine import devices

    def broken() -> None:
        raise OSError("libcuda.so.1: cannot open shared object file\nmore")

    monkeypatch.setattr(devices, "devices", broken)
    assert doctor.llama_cpp().error == "OSError: libcuda.so.1: cannot open shared object file"
