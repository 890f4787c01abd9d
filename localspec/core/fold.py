"""Folding a long row: one ufunc over strided groups, so that a search looks at a thousand numbers, not at a vocabulary.

Group c of a row holds the entries c, c + GROUPS, c + 2 GROUPS, ...; that layout is reduced row by row, which is what
numpy does fastest. Knows nothing about probabilities.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

GROUPS = 1024


def fold(combine: np.ufunc, row: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """`combine` (np.add, np.maximum) over each group of `row`: (n,) -> (min(n, GROUPS),)."""
    rows, rest = divmod(len(row), GROUPS)
    if rows == 0:
        return row
    folded: npt.NDArray[Any] = combine.reduce(row[: rows * GROUPS].reshape(rows, GROUPS), axis=0)
    if rest:
        combine(folded[:rest], row[-rest:], out=folded[:rest])
    return folded


def group(row: npt.NDArray[Any], index: int) -> npt.NDArray[Any]:
    """The entries of group `index`, a view."""
    return row[index::GROUPS]
