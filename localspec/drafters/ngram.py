"""Prompt lookup: propose what followed when the text last read as it reads now (Saxena 2023; cf. REST, ANPD).

Wins where the answer repeats the prompt or itself: edits, summaries, retrieval, code, loops. Loses nothing but the
verifier's extra rows elsewhere. Uses no model, no vocabulary-sized array and nothing from another conversation: every
draft stands, as a whole, in the committed text. Each token comes with the measured probability that it is right.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from localspec.core.draft import EMPTY, Draft, Ids, Verdict
from localspec.core.ngrams import NgramIndex
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.drafters.base import Budget, Lender
from localspec.engine.base import Cancelled, Pass
from localspec.errors import UsageError

LONGEST = 25  # agreement beyond this many tokens says nothing more


@dataclass(frozen=True)
class Options:
    """What a user can set with -o.

    max_ngram   longest run of tokens that is looked up first, 1 .. 16
    min_ngram   shortest run that may be looked up, 1 .. max_ngram
    candidates  how many earlier places are compared, 1 .. 64
    """

    max_ngram: int = 4
    min_ngram: int = 1
    candidates: int = 4

    def __post_init__(self) -> None:
        _within("max_ngram", self.max_ngram, 1, 16)
        _within("min_ngram", self.min_ngram, 1, self.max_ngram)
        _within("candidates", self.candidates, 1, 64)


class Ngram:
    """The drafter; holds the index of one text and what it learned about its own guesses."""

    name = "ngram"

    def __init__(self, options: Options, lender: Lender) -> None:
        self.options = options
        self._index = NgramIndex(options.min_ngram, options.max_ngram)
        self._trust = Trust()
        self._guesses: list[Guess] = []  # what was foretold for the tokens behind the index, refused ones included

    def begin(self, tokens: Ids, *, sampling: Sampling, rule: Rule, cancelled: Cancelled) -> None:
        """Index the prompt; guesses are deterministic whatever the law, and a new turn is no answer to old ones."""
        self._guesses = []
        self._index.follow(tokens)

    def propose(self, tokens: Ids, budget: Budget) -> Draft:
        """The continuation of the longest match, as far as it is likely enough to pay."""
        known = len(self._index)
        if self._index.follow(tokens) == known:  # after an edit nothing can be said about the old guesses
            self._learn(tokens[known:])
        drafted: list[int] = []
        self._guesses = []
        for guess in self._continuation(budget.limit):
            self._guesses.append(guess)
            if not budget.pays(len(drafted) + 1, self._trust.probability(guess)):
                break
            drafted.append(guess.token)
        return Draft.chain(drafted) if drafted else EMPTY

    def observe(self, result: Pass, verdict: Verdict | None) -> None:
        """Nothing to do: the text that comes with the next `propose` tells which guesses were right."""

    def close(self) -> None:
        """Forget the text."""
        self._index = NgramIndex(self.options.min_ngram, self.options.max_ngram)
        self._guesses = []

    def _continuation(self, limit: int) -> list[Guess]:
        """Up to `limit` tokens that followed the best match, each with how well it was supported."""
        index = self._index
        places = index.matches(self.options.candidates, longest=LONGEST)
        guesses: list[Guess] = []
        while places and len(guesses) < limit:
            depth = len(guesses)
            followers = [
                (place, index.token(place.after + depth)) for place in places if place.after + depth < len(index)
            ]
            if not followers:
                break
            best, token = followers[0]
            agreeing = [place for place, follower in followers if follower == token]
            guesses.append(Guess(token, best.length + depth, _support(len(agreeing), len(followers))))
            places = agreeing
        return guesses

    def _learn(self, came: Ids) -> None:
        """Compare the last guesses with the tokens that came; what follows a wrong guess was not put to the test."""
        for guess, token in zip(self._guesses, came[: len(self._guesses)].tolist(), strict=False):
            self._trust.learn(guess, right=guess.token == token)
            if guess.token != token:
                break


class Support(IntEnum):
    """How the places that were compared stand to a guess."""

    CONTESTED = 0  # most of them were followed by something else
    SINGLE = 1  # there is only one
    AGREED = 2  # most of several say the same


@dataclass(frozen=True, slots=True)
class Guess:
    """A foretold token. `length`: tokens of the match up to it, those foretold before it included.

    A guess at depth 3 behind a match of 5 is tested only when two more tokens have matched: it then stands exactly
    where the first guess behind a match of 7 stands, so depth needs no account of its own.
    """

    token: int
    length: int
    support: Support


class Trust:
    """The probability that a guess is right, by match length and support; learned from every guess that was tested.

    Starts from rates counted on text of a small chat model at temperatures 0 and 0.8, and forgets slowly.
    """

    STEPS = (1, 2, 3, 4, 5, 7, 10, 15, LONGEST)  # shortest match of each column
    PRIOR: ClassVar[dict[Support, tuple[float, ...]]] = {
        Support.CONTESTED: (0.12, 0.32, 0.40, 0.58, 0.60, 0.65, 0.78, 0.90, 0.95),
        Support.SINGLE: (0.25, 0.48, 0.75, 0.76, 0.78, 0.80, 0.86, 0.92, 0.95),
        Support.AGREED: (0.53, 0.73, 0.80, 0.87, 0.93, 0.95, 0.95, 0.97, 0.98),
    }
    WEIGHT = 12.0  # the prior counts as this many tested guesses
    MEMORY = 0.98  # what a new guess leaves of the weight of the ones before it

    def __init__(self) -> None:
        self._column = tuple(bisect_right(self.STEPS, length) - 1 for length in range(1, LONGEST + 1))
        self._right = {support: [self.WEIGHT * rate for rate in self.PRIOR[support]] for support in Support}
        self._tested = {support: [self.WEIGHT] * len(self.STEPS) for support in Support}

    def probability(self, guess: Guess) -> float:
        """How likely `guess` is right, given that the guesses before it are."""
        column = self._column[min(guess.length, LONGEST) - 1]
        return self._right[guess.support][column] / self._tested[guess.support][column]

    def learn(self, guess: Guess, *, right: bool) -> None:
        """Count one tested guess."""
        column = self._column[min(guess.length, LONGEST) - 1]
        rights, tested = self._right[guess.support], self._tested[guess.support]
        rights[column] = self.MEMORY * rights[column] + right
        tested[column] = self.MEMORY * tested[column] + 1.0


def _support(agreeing: int, places: int) -> Support:
    if places == 1:
        return Support.SINGLE
    return Support.AGREED if 2 * agreeing > places else Support.CONTESTED


def _within(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise UsageError(
            f"{name} is {value}, not within {low} .. {high}.", hint=f"Give -o {name}=N with {low} <= N <= {high}."
        )
