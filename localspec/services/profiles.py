"""Profiles in the cache folder: what is known of a pair on this machine, for the next time it is opened.

One small file for each combination of models, drafter and settings; a profile holds for no other. Files appear whole or
not at all, and one that is damaged or not ours counts as none and is replaced. A profile changes how fast a first
answer is, never what it says. LOCALSPEC_PROFILES=off reads and writes none.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from localspec.catalog.modelfile import ModelFile
from localspec.catalog.store import cache_folder
from localspec.errors import LocalspecError
from localspec.planner.profile import Profile
from localspec.services.report import Report

logger = logging.getLogger(__name__)

SCHEMA = "localspec.profile/1"
LARGEST = 65_536
"""Bytes of a file that is read; ours have some thousand."""


@dataclass(frozen=True)
class Circumstances:
    """Everything that a profile depends on. Two that differ anywhere have nothing to do with each other.

    verifier, draft  path, bytes and time of change of each file (None: the drafter opens no draft)
    tree             "none" or "auto": acceptance is counted by the depth of chains, or by that of trees
    machine          processor and cores
    gpu_layers       of the verifier, as loaded; of the draft as asked for, None: automatic
    """

    verifier: str
    draft: str | None
    drafter: str
    tree: str
    options: Mapping[str, str]
    machine: str
    llama_cpp: str
    threads: int
    gpu_layers: int
    draft_gpu_layers: int | None
    kv_type: str
    draft_kv_type: str | None
    flash_attn: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def identity(file: ModelFile) -> str:
    """One model file: another one at its place is another model. The time of change stands for the contents."""
    status = file.path.stat()
    return f"{file.path.resolve()} {file.bytes} {status.st_mtime_ns}"


class Profiles:
    """Reads and writes profiles. Several processes may: the last one that writes is read."""

    def __init__(self, report: Report) -> None:
        self._report = report

    @staticmethod
    def is_off() -> bool:
        """Did the user ask to keep none?"""
        return os.environ.get("LOCALSPEC_PROFILES", "").lower() in ("off", "0", "no", "false")

    def path(self, circumstances: Circumstances) -> Path:
        """The file for these circumstances."""
        said = json.dumps(circumstances.as_dict(), sort_keys=True)
        stem = Path(circumstances.verifier.rpartition(" ")[0].rpartition(" ")[0]).stem[:60]
        name = f"{stem}-{circumstances.drafter}-{hashlib.sha256(said.encode()).hexdigest()[:12]}.json"
        return cache_folder() / "profiles" / name

    def read(self, circumstances: Circumstances) -> Profile | None:
        """The profile, None when there is none that can be used; one that is damaged is told and left for `write`."""
        if self.is_off():
            return None
        path = self.path(circumstances)
        try:
            with path.open("rb") as file:
                return _parse(file.read(LARGEST + 1), circumstances)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._report.note(
                f"The profile {path} cannot be read: {error.strerror or error}. Nothing is lost but a quick start; "
                "LOCALSPEC_CACHE names another folder, LOCALSPEC_PROFILES=off does without."
            )
        except (ValueError, LocalspecError) as error:
            self._report.note(f"The profile {path} cannot be used and is made anew: {str(error).rstrip('.')}.")
        return None

    def write(self, circumstances: Circumstances, profile: Profile) -> Path | None:
        """Keep the profile; the file, or None when they are off. Raises `OSError` when that is not possible."""
        if self.is_off():
            return None
        path = self.path(circumstances)
        document = {"schema": SCHEMA, "circumstances": circumstances.as_dict(), "profile": profile.as_dict()}
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=".new-", delete=False) as file:
            try:
                json.dump(document, file)
                file.close()
                os.replace(file.name, path)
            except BaseException:
                file.close()
                Path(file.name).unlink(missing_ok=True)
                raise
        return path

    def keep(self, circumstances: Circumstances, profile: Profile) -> None:
        """As `write`, but a cache that cannot be written only costs the next run its start."""
        try:
            self.write(circumstances, profile)
        except OSError as error:
            logger.debug("profile not written", exc_info=error)


def _parse(data: bytes, circumstances: Circumstances) -> Profile:
    """Raises `ValueError` or `UsageError` that says what is wrong."""
    if len(data) > LARGEST:
        raise ValueError("it is too large")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ValueError("it is no such file")
    if document.get("circumstances") != circumstances.as_dict():
        raise ValueError("it belongs to other models or settings")
    return Profile.from_dict(document.get("profile") or {})
