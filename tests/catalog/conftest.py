"""What the catalog's tests share: a hub on the loopback, folders of their own, a listener."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from localspec.catalog.registry import Registry
from tests import zoo
from tests.hub import Hub, running

NOTHING = Registry({}, {}, "")


@dataclass
class Listener:
    """Collects what fetching says."""

    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    steps: list[tuple[str, int, int | None]] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def progress(self, what: str, done: int, total: int | None, unit: str) -> None:
        self.steps.append((what, done, total))


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Caches of this test alone, and nothing of the machine's settings."""
    for name in list(os.environ):
        if name.startswith(("HF_", "HUGGING", "PIP_", "LOCALSPEC_", "TRANSFORMERS_")) or name.lower().endswith(
            "_proxy"
        ):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf größe 模型"))
    monkeypatch.setenv("LOCALSPEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("localspec.catalog.partial.PAUSE_S", 0.01)
    return tmp_path


@pytest.fixture
def hub(clean: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub named by HF_ENDPOINT."""
    with running() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A sound little model, about half a megabyte."""
    return zoo.tiny_llama(tmp_path_factory.mktemp("tiny") / "tiny.gguf").read_bytes()


@pytest.fixture(scope="session")
def tiny_parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The same in two parts, by file name."""
    first = zoo.tiny_llama(tmp_path_factory.mktemp("parts") / "tiny.gguf", split=12)
    return {part.name: part.read_bytes() for part in sorted(first.parent.glob("*.gguf"))}
