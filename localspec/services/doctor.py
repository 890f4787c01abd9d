"""What this installation can do and what stands in its way: devices, memory, versions, folders, models, environment.

Looks, and changes nothing. Knows no terminal.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from localspec.catalog import fetch, machine, registry, store
from localspec.errors import LocalspecError
from localspec.version import __version__

SCHEMA = "localspec.doctor/1"
LITTLE_MEMORY = 2_000_000_000  # bytes; below this even small models with their cache get tight
LITTLE_DISK = 1_000_000_000

VARIABLES = (
    "LOCALSPEC_MODELS", "LOCALSPEC_CACHE", "LOCALSPEC_DEBUG", "LOCALSPEC_PROFILES", "NO_COLOR",
    "HF_HOME", "HF_HUB_CACHE", "HF_ENDPOINT", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE",
    "HF_HUB_DISABLE_IMPLICIT_TOKEN", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "PIP_FIND_LINKS",
    "PIP_CONFIG_FILE", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE",
    "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME",
)  # fmt: skip
SECRET = re.compile(r"TOKEN|PASSWORD|SECRET")
CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+(?=@)")


@dataclass(frozen=True)
class DeviceFact:
    """One device of this llama.cpp; memory in bytes."""

    name: str
    description: str
    kind: str
    memory_free: int
    memory_total: int


@dataclass(frozen=True)
class LlamaCpp:
    """The llama.cpp in use; `error` says why it could not be loaded."""

    version: str = ""
    features: str = ""
    devices: tuple[DeviceFact, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class FolderFact:
    """A folder with what its files weigh; `free` is the room on its disk, None where that is not told."""

    what: str
    path: str
    bytes: int
    free: int | None
    writable: bool


@dataclass(frozen=True)
class ModelFact:
    """A model of the registry whose file is here."""

    name: str
    path: str
    bytes: int


@dataclass(frozen=True)
class Problem:
    """Something that stands in the way, and what to do about it."""

    what: str
    remedy: str


@dataclass(frozen=True)
class Diagnosis:
    """Everything that was found."""

    machine: machine.Machine
    llama_cpp: LlamaCpp
    folders: tuple[FolderFact, ...]
    models: tuple[ModelFact, ...]
    environment: Mapping[str, str]
    problems: tuple[Problem, ...]

    def as_dict(self) -> dict[str, Any]:
        """The document that `doctor --json` prints."""
        return {"schema": SCHEMA, **asdict(self)}


def examine() -> Diagnosis:
    """Look at everything."""
    facts, build = machine.describe(), llama_cpp()
    facts = replace(facts, packages={**facts.packages, "localspec": __version__})
    folders = tuple(
        folder(what, path)
        for what, path in (("models from wheels", store.cache_folder()), ("models from the hub", store.hub_folder()))
    )
    found: list[Problem] = []
    models: tuple[ModelFact, ...] = ()
    try:
        models = tuple(present_models(registry.load()))
    except LocalspecError as error:
        found.append(Problem(str(error), error.hint))
    found += problems(build, folders, available=facts.memory_available, nvidia=has_nvidia_driver())
    return Diagnosis(facts, build, folders, models, environment(os.environ), tuple(found))


def llama_cpp() -> LlamaCpp:
    """Load llama.cpp and ask it; a library that does not load is a finding, not a failure."""
    try:
        from localspec.engine import devices, native

        found = tuple(DeviceFact(**asdict(device)) for device in devices.devices())
        return LlamaCpp(native.version(), native.system_info(), found)
    except Exception as error:  # noqa: BLE001 - a broken build may raise anything while loading
        return LlamaCpp(error=f"{type(error).__name__}: {error}".splitlines()[0])


def problems(build: LlamaCpp, folders: Sequence[FolderFact], *, available: int | None, nvidia: bool) -> list[Problem]:
    """What is known to go wrong with such facts, and what helps."""
    found = []
    if build.error:
        found.append(
            Problem(
                f"llama.cpp cannot be loaded: {build.error}",
                "Reinstall it: pip install --force-reinstall --no-cache-dir llama-cpp-python",
            )
        )
    elif nvidia and not any(device.kind in ("gpu", "igpu") for device in build.devices):
        found.append(
            Problem(
                "this machine has an NVIDIA driver, but llama.cpp was built for the CPU alone",
                'Rebuild it: CMAKE_ARGS="-DGGML_CUDA=on" pip install --force-reinstall --no-cache-dir llama-cpp-python',
            )
        )
    if available is not None and available < LITTLE_MEMORY:
        found.append(
            Problem(
                f"only {available / 1e9:.1f} GB of memory are available",
                "Close other programs, or choose a smaller pair and --ctx-size.",
            )
        )
    for place in folders:
        variable = "LOCALSPEC_CACHE" if "wheels" in place.what else "HF_HOME"
        if not place.writable:
            found.append(
                Problem(f"{place.path} cannot be written to", f"Allow writing there, or name another with {variable}.")
            )
        elif place.free is not None and place.free < LITTLE_DISK:
            found.append(
                Problem(
                    f"only {place.free / 1e9:.1f} GB are free for {place.what}",
                    f"Remove models with `localspec models remove`, or name another disk with {variable}.",
                )
            )
    return found


def has_nvidia_driver() -> bool:
    """True when the system can talk to an NVIDIA GPU."""
    if sys.platform == "win32":
        return (Path(os.environ.get("SYSTEMROOT", "C:/Windows")) / "System32" / "nvcuda.dll").exists()
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None


def folder(what: str, path: Path) -> FolderFact:
    """Size and state of a folder, which need not exist yet."""
    existing = next(place for place in (path, *path.absolute().parents) if place.exists())
    return FolderFact(what, str(path), weight(path), machine.free_disk(path), os.access(existing, os.W_OK | os.X_OK))


def weight(path: Path) -> int:
    """Bytes of all files below; links weigh nothing, unreadable folders neither."""
    total = 0
    for place, _, names in os.walk(path):
        for name in names:
            try:
                status = os.lstat(os.path.join(place, name))
            except OSError:
                continue
            total += status.st_size if not os.path.islink(os.path.join(place, name)) else 0
    return total


def present_models(known: registry.Registry) -> Iterable[ModelFact]:
    """The registry's models that need no download any more."""
    for name in known.models:
        paths = fetch.present(fetch.look_up(name, known))
        if paths:
            yield ModelFact(name, str(paths[0]), sum(path.stat().st_size for path in paths if path.exists()))


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables that change what localspec does; secrets are named, never shown."""
    found = {}
    for name in VARIABLES:
        value = variables.get(name) or variables.get(name.lower())
        if value:
            found[name] = "(set)" if SECRET.search(name) else CREDENTIALS.sub("***", value)
    return found
