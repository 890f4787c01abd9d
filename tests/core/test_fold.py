"""Folding is reducing, group by group."""

from __future__ import annotations

import numpy as np
import pytest

from localspec.core.fold import GROUPS, fold, group


@pytest.mark.parametrize("size", [1, 7, GROUPS - 1, GROUPS, GROUPS + 1, 3 * GROUPS, 3 * GROUPS + 17])
@pytest.mark.parametrize("combine", [np.add, np.maximum])
def test_each_group_is_reduced(size: int, combine: np.ufunc) -> None:
    row = np.random.default_rng(size).normal(size=size)
    before = row.copy()
    folded = fold(combine, row)
    assert len(folded) == min(size, GROUPS)
    np.testing.assert_allclose(folded, [combine.reduce(group(row, index)) for index in range(len(folded))])
    np.testing.assert_array_equal(row, before)
