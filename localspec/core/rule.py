"""The seam of acceptance: how tokens are drawn for a draft and how a draft is judged.

Two exact rules implement it: `core.rejection` (Leviathan et al. 2023, Chen et al. 2023) and `core.coupled`
(drafter-invariant, cf. Daliri, Musco, Suresh 2024).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from localspec.core.draft import Draft, Verdict
from localspec.core.law import Law

LawOf = Callable[[int], Law]
"""Row of a pass -> the verifier's law there: row 0 follows the pending token, row i + 1 follows node i."""


class Rule(Protocol):
    """One exact way to accept a draft. `position` is the index, in the whole token sequence, of the token decided."""

    def guess(self, law: Law, position: int) -> tuple[int, Law | None]:
        """A drafter's token for `position`, and the law to report for it (None: deterministic given the rule)."""
        ...

    def guesses(self, law: Law, position: int, count: int) -> list[tuple[int, Law | None]]:
        """Up to `count` distinct siblings for `position`, each with its law given its elder siblings."""
        ...

    def accept(self, draft: Draft, law_of: LawOf, position: int) -> Verdict:
        """Judge `draft`; `position` is where the children of the pending token stand. Asks only for rows it needs."""
        ...
