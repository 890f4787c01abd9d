"""How many examples: few enough for every run, more when LOCALSPEC_EXAMPLES says by how much to multiply."""

from __future__ import annotations

import os


def count(usual: int) -> int:
    """The usual number times LOCALSPEC_EXAMPLES (1 when it is not set)."""
    return max(1, round(usual * float(os.environ.get("LOCALSPEC_EXAMPLES", "1"))))
