"""Choosing the file of a repository that holds the language model at one quantisation.

The quantisation alone is not enough: projectors, drafting heads and importance matrices carry the same letters in their
names, and one repository may hold several models. Knows names only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from localspec.catalog.reference import HubQuant, split_names
from localspec.errors import DownloadError

_COMPANION = re.compile(
    r"(^|[-._/])(mmproj|mtp|eagle3?|dflash|dspark|imatrix|lora|adapter|draft-head)([-._/]|$)", re.IGNORECASE
)
_QUANT = re.compile(
    r"(?<![A-Za-z0-9])((?:UD-)?(?:I?Q\d\w*|TQ\d\w*|B?F16|F32|MXFP4\w*|NVFP4\w*))(?![A-Za-z0-9_])", re.IGNORECASE
)


def choose(files: Iterable[str], reference: HubQuant) -> str:
    """The one file at `reference.quant`, first part if it is split; `DownloadError` lists what there is otherwise."""
    models = [file for file in files if _is_model(file)]
    fitting = [file for file in models if quant_of(file).lower() == reference.quant.lower()]
    if len(fitting) == 1:
        return fitting[0]
    at = f"hf:{reference.repo}" + (f"@{reference.revision}" if reference.revision else "")
    if fitting:
        raise DownloadError(
            f"{at} holds {len(fitting)} models at {reference.quant}: {', '.join(sorted(fitting))}.",
            hint=f"Name the file: {at}/{sorted(fitting)[0]}.",
        )
    there = sorted({quant_of(file) for file in models} - {""})
    raise DownloadError(
        f"{at} holds no model at {reference.quant}.",
        hint=f"It holds {', '.join(there)}." if there else f"Name a file: {at}/FILE.gguf.",
    )


def quant_of(file: str) -> str:
    """The quantisation a file name ends with, or else its folder; empty when neither has one."""
    for part in reversed(file.split("/")):
        found = _QUANT.findall(part.removesuffix(".gguf"))
        if found:
            return str(found[-1])
    return ""


def _is_model(file: str) -> bool:
    """A GGUF that is neither a companion of a model nor a later part of a split one."""
    name = file.rpartition("/")[2]
    return (
        name.lower().endswith(".gguf")
        and not _COMPANION.search(file)
        and split_names(name)[0] == name
        and not name.startswith(".")
    )
