"""Counter-based noise for the race of `core.coupled`: exponential numbers, a function of (seed, position, id).

Every id owns an independent Exp(1) variable. They are generated in blocks of SIZE ids, minimum first: a hash gives the
block's minimum, Exp of rate SIZE, and the member that attains it; by memorylessness every other member is the minimum
plus an Exp(1) of its own. So a bound for a whole block costs one hash. Knows no vocabulary size and no law.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

SIZE = 128
SPAN = SIZE * SIZE
"""Blocks are interleaved: of SPAN ids in a row, SIZE blocks take every SIZE-th id each. (Block maxima of a long row are
then element-wise maxima of its pieces, which numpy does fastest.)"""

Integers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Exponentials = npt.NDArray[np.float64]

_MASK = (1 << 64) - 1
# Odd constants of splitmix64 (Steele, Lea, Flood 2014, with Stafford's finalizer) and of MurmurHash3's finalizer: two
# rounds of different make.
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_THIRD, _FOURTH = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53
_IDS = np.int64(1 << 40)  # counters of ids start here, those of blocks at 0: the two never meet


def member(blocks: Integers, places: Integers) -> Integers:
    """The ids at these places, 0 .. SIZE - 1, of these blocks."""
    ids: Integers = blocks // SIZE * SPAN + blocks % SIZE + places * SIZE
    return ids


def members(blocks: Integers) -> Integers:
    """All ids of each block: (n,) -> (n, SIZE)."""
    return member(blocks[:, None], np.arange(SIZE))


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of one position.

    key  64 bits made of seed and position
    """

    key: int

    @classmethod
    def at(cls, seed: int, position: int) -> Noise:
        """The noise of `position` under `seed`, any integers (seeds count modulo 2**64)."""
        return cls(_mix(_mix(seed & _MASK) ^ _mix((position + 1) * _GOLDEN & _MASK)))

    def minima(self, blocks: int) -> tuple[Exponentials, Integers]:
        """Of each of the first `blocks` blocks: the smallest variable and the id that has it."""
        counters = np.arange(blocks)
        hashes = self._hash(counters)
        return _exponential(hashes) / SIZE, member(counters, _winners(hashes))

    def of(self, ids: npt.NDArray[np.integer]) -> Exponentials:
        """The variable of each id: (n,) -> (n,)."""
        count = len(ids)
        counters = np.empty(2 * count, dtype=np.int64)
        blocks, own_counters = counters[:count], counters[count:]
        np.floor_divide(ids, SPAN, out=blocks)
        blocks *= SIZE
        blocks += ids % SIZE
        np.add(ids, _IDS, out=own_counters)
        hashes = self._hash(counters)
        exponentials = _exponential(hashes)
        smallest, own = exponentials[:count], exponentials[count:]
        smallest /= SIZE
        own[_winners(hashes[:count]) == ids // SIZE % SIZE] = 0.0
        return smallest + own

    def _hash(self, counters: Integers) -> Hashes:
        """64 bits for each counter: two rounds with the key before each."""
        key = np.uint64(self.key)
        x = counters.astype(np.uint64)
        x *= np.uint64(_GOLDEN)
        x += key
        x ^= x >> 30
        x *= np.uint64(_FIRST)
        x ^= x >> 27
        x *= np.uint64(_SECOND)
        x ^= x >> 31
        x ^= key
        x *= np.uint64(_THIRD)
        x ^= x >> 33
        x *= np.uint64(_FOURTH)
        x ^= x >> 33
        return x


def _exponential(hashes: Hashes) -> Exponentials:
    """Exp(1) from the upper 52 bits: a uniform number strictly between 0 and 1, exact in float64."""
    uniform = (hashes >> 12).astype(np.float64)
    uniform += 0.5
    uniform *= 2.0**-52
    np.log(uniform, out=uniform)
    return np.negative(uniform, out=uniform)


def _winners(hashes: Hashes) -> Integers:
    """The member with a block's minimum, 0 .. SIZE - 1: the lower bits, which the exponential leaves free."""
    return (hashes & (SIZE - 1)).astype(np.int64)


def _mix(x: int) -> int:
    """The splitmix64 finalizer on one number."""
    x = (x ^ x >> 30) * _FIRST & _MASK
    x = (x ^ x >> 27) * _SECOND & _MASK
    return x ^ x >> 31
