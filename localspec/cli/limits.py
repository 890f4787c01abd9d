"""The legal values of every number a user can set, for options and for `/set` alike.

Knows flags and ranges; what a number does is known further down.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from localspec.errors import UsageError


@dataclass(frozen=True)
class Limit:
    """A range of one kind of number; `says` completes "must be ..."."""

    kind: type[int] | type[float]
    says: str
    low: float = -math.inf
    high: float = math.inf
    low_excluded: bool = False

    def allows(self, value: float) -> bool:
        return math.isfinite(value) and self.low <= value <= self.high and not (self.low_excluded and value == self.low)


LIMITS = {
    "temperature": Limit(float, "0 (greedy) or more", 0),
    "top-k": Limit(int, "0 (off) or more", 0),
    "top-p": Limit(float, "between 0 and 1 (off)", 0, 1),
    "min-p": Limit(float, "between 0 (off) and 1", 0, 1),
    "repeat-penalty": Limit(float, "more than 0 (1 is off)", 0, low_excluded=True),
    "frequency-penalty": Limit(float, "a finite number (0 is off)"),
    "presence-penalty": Limit(float, "a finite number (0 is off)"),
    "repeat-last-n": Limit(int, "-1 (all), 0 (off) or more", -1),
    "seed": Limit(int, "a whole number from 0 to 2^63 - 1", 0, 2**63 - 1),
    "max-tokens": Limit(int, "0 or more", 0),
    "N": Limit(int, "auto, 0 (no drafting) or more", 0),
    "ctx-size": Limit(int, "between 1 and 2^31 - 1", 1, 2**31 - 1),
    "gpu-layers": Limit(int, "auto, 0 (none) or more; 999 is all", 0),
    "draft-gpu-layers": Limit(int, "auto, 0 (none) or more; 999 is all", 0),
    "threads": Limit(int, "between 1 and 512", 1, 512),
}


def number(name: str, value: str | float) -> int | float:
    """`value` as the kind of number that `name` takes. Raises `UsageError` when it is none or out of range."""
    limit = LIMITS[name]
    try:
        found = limit.kind(value)
    except ValueError:
        found = math.nan
    if not limit.allows(found):
        raise UsageError(f"{name} is {value}, but must be {limit.says}", hint=f"Give {name} another value.")
    return found


def number_or_auto(name: str, value: str) -> int | None:
    """A whole number, or None for "auto"."""
    return None if value.strip().lower() == "auto" else int(number(name, value))
