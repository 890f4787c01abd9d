"""localspec: exact speculative decoding for local language models.

    import localspec

    with localspec.load("smollm2-135m") as pair:
        for piece in pair.stream([{"role": "user", "content": "hello"}], temperature=0.7, seed=1):
            print(piece.text, end="")

Importing it loads neither numpy nor llama.cpp; `load` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from localspec.services.api import LoadedPair, load
    from localspec.version import __version__

__all__ = ["LoadedPair", "__version__", "load"]


def __getattr__(name: str) -> Any:
    if name in ("LoadedPair", "load"):
        from localspec.services import api

        return getattr(api, name)
    if name == "__version__":
        from localspec.version import __version__ as version

        return version
    raise AttributeError(f"module 'localspec' has no attribute {name!r}")
