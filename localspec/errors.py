"""The errors localspec raises on purpose.

    LocalspecError                 one sentence, one hint, one exit code
    ├── UsageError                 the request makes no sense (exit 2)
    ├── CatalogError               registry, references, model files, downloads
    │   ├── RegistryError          a bad entry in models.toml: file, line, key
    │   ├── DownloadError          a file could not be fetched
    │   └── ModelFileError         a file is there but is not a usable GGUF
    ├── EngineError                llama.cpp said no
    │   ├── LoadError              a model or context could not be made
    │   └── DecodeError            an evaluation failed; the cache was put back
    ├── PairError                  verifier and draft cannot speculate together
    ├── TemplateError              the chat template is missing or broken
    ├── ContextFullError           the prompt does not fit the context
    ├── BusyError                  two generations on one pair at the same time
    └── DrafterError               a drafter cannot be built or has failed

Lower layers raise with facts; `hint` says what the user can do about it.
"""

from __future__ import annotations


class LocalspecError(Exception):
    """Base of every deliberate error: `str(error)` is one sentence, `hint` one remedy."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(LocalspecError):
    """The request itself is wrong: an unknown name, a value out of range."""

    exit_code = 2


class CatalogError(LocalspecError):
    """Something about models.toml, a reference, a download or a model file."""


class RegistryError(CatalogError):
    """A bad entry in a models.toml."""


class DownloadError(CatalogError):
    """A file could not be fetched; what had arrived is kept for resuming."""


class ModelFileError(CatalogError):
    """The file exists but llama.cpp could not use it: empty, cut, foreign, unknown architecture."""


class EngineError(LocalspecError):
    """llama.cpp refused or failed."""


class LoadError(EngineError):
    """A model or a context could not be created."""


class DecodeError(EngineError):
    """An evaluation failed; the context holds what it held before."""


class PairError(LocalspecError):
    """Verifier and draft do not speak the same tokens."""


class TemplateError(LocalspecError):
    """The model's chat template is missing, broken or refuses these messages."""


class ContextFullError(LocalspecError):
    """The prompt is longer than the context."""


class BusyError(LocalspecError):
    """A second generation was started while one is running on the same pair."""


class DrafterError(LocalspecError):
    """A drafter cannot be built from its options, or failed while drafting."""


def in_one_line(error: Exception) -> str:
    """An error and its remedy, for a warning."""
    reason = str(error).rstrip(".") or type(error).__name__
    return f"{reason}. {error.hint}".rstrip() if isinstance(error, LocalspecError) else f"{reason}."
