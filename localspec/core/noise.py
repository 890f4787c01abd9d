"""Counter-based noise for the race of `core.coupled`: exponential numbers, a function of (seed, position, id).

Every id owns an independent Exp(1) variable E_id. They are generated in blocks of BLOCK ids, minimum first: a hash
gives the block's minimum, Exp of rate BLOCK, and the id that attains it; by memorylessness every other id of the block
is the minimum plus an Exp(1) of its own. So a bound for a whole block costs one hash. Knows no vocabulary size and no
law.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

BLOCK = 128
Hashes = npt.NDArray[np.uint64]
Exponentials = npt.NDArray[np.float64]

_MASK = (1 << 64) - 1
# Odd constants of the splitmix64 generator and its finalizer (Steele, Lea, Flood 2014; Stafford's variant 13).
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
# The other finalizer (MurmurHash3), so that the two rounds of a hash do not share their structure.
_THIRD, _FOURTH = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53
_BLOCKS, _IDS = 0x0, 0x8000000000000000  # the two kinds of counters never meet


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of one position.

    key  64 bits made of seed and position
    """

    key: int

    @classmethod
    def at(cls, seed: int, position: int) -> Noise:
        """The noise of `position` under `seed`, any integers."""
        return cls(_mix(_mix(seed & _MASK) ^ _mix((position + 1) * _GOLDEN & _MASK)))

    def blocks(self, blocks: npt.NDArray[np.integer]) -> tuple[Exponentials, npt.NDArray[np.int64]]:
        """Smallest E of each block and the offset, 0 .. BLOCK - 1, of the id that has it."""
        hashes = self._hash(blocks, _BLOCKS)
        return _exponential(hashes) / BLOCK, (hashes & np.uint64(BLOCK - 1)).astype(np.int64)

    def of(self, ids: npt.NDArray[np.integer]) -> Exponentials:
        """E of each of `ids`."""
        blocks, offsets = np.divmod(ids.astype(np.int64), BLOCK)
        smallest, winners = self.blocks(blocks)
        return np.where(offsets == winners, smallest, smallest + _exponential(self._hash(ids, _IDS)))

    def _hash(self, counters: npt.NDArray[np.integer], kind: int) -> Hashes:
        """64 bits for each counter: two finalizer rounds with the key in between."""
        x = counters.astype(np.uint64)
        x *= np.uint64(_GOLDEN)
        x += np.uint64(self.key ^ kind)
        x ^= x >> np.uint64(30)
        x *= np.uint64(_FIRST)
        x ^= x >> np.uint64(27)
        x *= np.uint64(_SECOND)
        x ^= x >> np.uint64(31)
        x ^= np.uint64(self.key)
        x *= np.uint64(_THIRD)
        x ^= x >> np.uint64(33)
        x *= np.uint64(_FOURTH)
        x ^= x >> np.uint64(33)
        return x


def _exponential(hashes: Hashes) -> Exponentials:
    """Exp(1) from the upper 52 bits: a uniform number strictly between 0 and 1, exact in float64."""
    uniform = (hashes >> np.uint64(12)).astype(np.float64)
    uniform += 0.5
    uniform *= 2.0**-52
    np.log(uniform, out=uniform)
    return np.negative(uniform, out=uniform)


def _mix(x: int) -> int:
    """The splitmix64 finalizer on one number."""
    x = (x ^ x >> 30) * _FIRST & _MASK
    x = (x ^ x >> 27) * _SECOND & _MASK
    return x ^ x >> 31
