"""How likely it is that a text goes on as it did where it last read as it reads now.

Learned from every guess that was put to the test, refused drafts included. Knows tokens only by number and nothing of
how places are found.
"""

from __future__ import annotations

from bisect import bisect_right
from enum import IntEnum
from typing import ClassVar, NamedTuple

LONGEST = 25  # agreement beyond this many tokens says nothing more


class Support(IntEnum):
    """How the places that were compared stand to a guess."""

    CONTESTED = 0  # most of them were followed by something else
    SINGLE = 1  # there is only one
    AGREED = 2  # most of several say the same
    SECOND = 3  # what else followed, should the first guess be wrong
    LATER = 4  # and should the second be wrong, too

    @classmethod
    def of(cls, rank: int, *, agreeing: int, places: int) -> Support:
        """Of the guess of this rank among its siblings (0: the first), which `agreeing` of all `places` support."""
        if rank:
            return cls.SECOND if rank == 1 else cls.LATER
        if places == 1:
            return cls.SINGLE
        return cls.AGREED if 2 * agreeing > places else cls.CONTESTED


FIRST_GUESSES = (Support.CONTESTED, Support.SINGLE, Support.AGREED)


class Guess(NamedTuple):
    """A foretold token. `length`: tokens of the match up to it, those foretold before it included.

    A guess at depth 3 behind a match of 5 is tested only when two more tokens have matched: it then stands exactly
    where the first guess behind a match of 7 stands, so depth needs no account of its own.
    """

    token: int
    length: int
    support: Support


class Trust:
    """The probability that a guess is right, by match length and support, given that its elder siblings are wrong.

    Starts from rates counted on text of a small chat model at temperatures 0 and 0.8, and forgets slowly.
    """

    STEPS = (1, 2, 3, 4, 5, 7, 10, 15, LONGEST)  # shortest match of each column
    PRIOR: ClassVar[dict[Support, tuple[float, ...]]] = {
        Support.CONTESTED: (0.12, 0.32, 0.40, 0.58, 0.60, 0.65, 0.78, 0.90, 0.95),
        Support.SINGLE: (0.25, 0.48, 0.75, 0.76, 0.78, 0.80, 0.86, 0.92, 0.95),
        Support.AGREED: (0.53, 0.73, 0.80, 0.87, 0.93, 0.95, 0.95, 0.97, 0.98),
        Support.SECOND: (0.14, 0.18, 0.28, 0.30, 0.35, 0.35, 0.40, 0.40, 0.40),
        Support.LATER: (0.06, 0.13, 0.16, 0.18, 0.20, 0.20, 0.20, 0.20, 0.20),
    }
    WEIGHT = 12.0  # the prior counts as this many tested guesses
    MEMORY = 0.98  # what a new guess leaves of the weight of the ones before it

    def __init__(self) -> None:
        self._column = tuple(bisect_right(self.STEPS, length) - 1 for length in range(1, LONGEST + 1))
        self._right = [[self.WEIGHT * rate for rate in self.PRIOR[support]] for support in Support]  # by support
        self._tested = [[self.WEIGHT] * len(self.STEPS) for support in Support]
        self._most: dict[int, float] = {}  # by column, until something is learned there

    def probability(self, guess: Guess) -> float:
        """How likely `guess` is right, given that the guesses before it are."""
        column = self._column[min(guess.length, LONGEST) - 1]
        return self._right[guess.support][column] / self._tested[guess.support][column]

    def most(self, length: int) -> float:
        """The most that any first guess behind a match of this length can have."""
        column = self._column[min(length, LONGEST) - 1]
        most = self._most.get(column)
        if most is None:
            most = max(self._right[support][column] / self._tested[support][column] for support in FIRST_GUESSES)
            self._most[column] = most
        return most

    def learn(self, guess: Guess, *, right: bool) -> None:
        """Count one tested guess."""
        column = self._column[min(guess.length, LONGEST) - 1]
        rights, tested = self._right[guess.support], self._tested[guess.support]
        rights[column] = self.MEMORY * rights[column] + right
        tested[column] = self.MEMORY * tested[column] + 1.0
        self._most.pop(column, None)
