"""Lookahead decoding: the verifier guesses several positions ahead in the pass it makes anyway (Fu et al. 2024).

A window of W columns keeps the last N - 1 Jacobi steps. Every pass evaluates it beside up to G candidates; the rows
behind its newest guesses are the next step, and each column read from its oldest guess on is an n-gram for the pool,
from which candidates for the pending token are taken. Needs no draft. Wins where a pass over dozens of tokens costs
little more than a plain one and the text has set phrases; loses on a machine that is bound by compute.

The window is a tree like any other: the oldest guesses are its trunk, each column branches off at its place. All nodes
are deterministic guesses, so acceptance is exact at every temperature.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from localspec.core.draft import EMPTY, ROOT, Draft, Ids, Verdict
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.drafters.base import Budget, Lender
from localspec.engine.base import Cancelled, Pass
from localspec.errors import UsageError

Gram = tuple[int, ...]
PRESETS = ((5, 4, 5), (4, 4, 4), (3, 3, 3), (2, 3, 2), (1, 3, 1))
DEAREST = 1.5
"""A pass of a preset may cost at most this many plain passes."""


@dataclass(frozen=True)
class Options:
    """What a user can set with -o.

    W  columns of the window, 0: as many as the measured cost of a pass supports
    N  length of the n-grams, 2 .. 8; counts only with W
    G  candidates verified in one pass; counts only with W
    prompt  also take n-grams from the prompt
    pool  n-grams kept at most
    """

    W: int = 0
    N: int = 4
    G: int = 5
    prompt: bool = True
    pool: int = 20_000

    def __post_init__(self) -> None:
        for name, value, low, high in (("W", self.W, 0, 32), ("N", self.N, 2, 8), ("G", self.G, 1, 32)):
            if not low <= value <= high:
                raise UsageError(f"option {name} is {value}", hint=f"Choose {low} .. {high}.")
        if self.pool < 1:
            raise UsageError(f"option pool is {self.pool}", hint="Choose 1 or more.")


class Lookahead:
    """The drafter; holds the window and the pool of one text."""

    name = "lookahead"

    def __init__(self, options: Options, lender: Lender) -> None:
        self.options = options
        self._is_end = lender.is_end
        self._pool = Pool(options.pool)
        self._window: list[list[int]] = []  # levels, oldest first, W guesses each
        self._text: Ids = np.empty(0, dtype=np.int32)
        self._columns: list[list[int]] = []  # nodes of the last draft's window, by column
        self._nodes = 0  # of that draft
        self._size = (0, 0, 0)

    def begin(self, tokens: Ids, *, sampling: Sampling, rule: Rule, cancelled: Cancelled) -> None:
        """Another text: nothing of the last one may be proposed."""
        if len(tokens) < len(self._text) or not np.array_equal(tokens[: len(self._text)], self._text):
            self._pool = Pool(self.options.pool)
            self._text = tokens[:0].copy()
        self._window = []

    def propose(self, tokens: Ids, budget: Budget) -> Draft:
        """Window and candidates as one tree, as far as there is room."""
        self._columns = []
        size = self._fitting(budget)
        if size is None:
            return EMPTY
        columns, length, candidates = size
        if size != self._size:
            self._window, self._size = [], size
        self._read(tokens, length)
        if not self._window:
            self._window = self._first_guesses(tokens, columns, length)
        tree = _Tree()
        for gram in self._pool.after(int(tokens[-1]), length, candidates):
            tree.add_path(gram)
        self._columns = tree.add_window(self._window)
        draft = tree.draft()
        self._nodes = len(draft)
        return draft

    def observe(self, result: Pass, verdict: Verdict | None) -> None:
        """Read the next Jacobi step off the pass and move the window on."""
        columns, self._columns = self._columns, []
        if not columns or verdict is None:
            return
        if result.rows != 1 + self._nodes:  # the draft was cut behind an end of the text: its nodes have moved
            self._window = []
            return
        newest = [int(result.logits(column[-1] + 1).argmax()) for column in columns]
        for at, guess in enumerate(newest):
            self._pool.add((*(level[at] for level in self._window), guess))
        # Nothing can be guessed behind the end of the text, so the window goes on with another token there.
        going_on = [self._text.item(-1) if self._is_end(guess) else guess for guess in newest]
        self._window = [*self._window[1:], going_on]

    def close(self) -> None:
        """Forget the text."""
        self._pool, self._window, self._columns = Pool(self.options.pool), [], []

    def _fitting(self, budget: Budget) -> tuple[int, int, int] | None:
        """(W, N, G) for this pass, None when not even the smallest has room."""
        own = (self.options.W, self.options.N, self.options.G)
        for columns, length, candidates in (own,) if self.options.W else PRESETS:
            nodes = (columns + candidates) * (length - 1)
            fits = nodes <= budget.limit and columns + candidates <= budget.leaves
            if fits and (self.options.W or budget.price(1 + nodes) <= DEAREST):
                return columns, length, candidates
        return None

    def _read(self, tokens: Ids, length: int) -> None:
        """Take the n-grams of the text that is new since the last time."""
        known = len(self._text)
        if self.options.prompt:
            new = tokens[max(0, known - length + 1) :].tolist()
            ends = [self._is_end(token) for token in new]
            for at in range(len(new) - length + 1):
                if not any(ends[at : at + length - 1]):
                    self._pool.add(tuple(new[at : at + length]))
        self._text = tokens.copy()

    def _first_guesses(self, tokens: Ids, columns: int, length: int) -> list[list[int]]:
        """A window to start from: any guess will do, and tokens of the text are better than none."""
        recent = [token for token in tokens[-64:].tolist() if not self._is_end(token)] or [tokens.item(-1)]
        return [[recent[(at * 7 + level * 3) % len(recent)] for at in range(columns)] for level in range(length - 1)]


class Pool:
    """N-grams by their first token, the most recent first; bounded, the key that was used longest ago goes first."""

    PER_KEY = 32

    def __init__(self, size: int) -> None:
        self._size = size
        self._count = 0
        self._grams: OrderedDict[int, list[Gram]] = OrderedDict()

    def add(self, gram: Gram) -> None:
        """Remember `gram`, as the most recent of its key."""
        grams = self._grams.setdefault(gram[0], [])
        self._grams.move_to_end(gram[0])
        rest = gram[1:]
        if rest in grams:
            grams.remove(rest)
        else:
            self._count += 1
        grams.insert(0, rest)
        if len(grams) > self.PER_KEY:
            grams.pop()
            self._count -= 1
        while self._count > self._size:
            self._count -= len(self._grams.popitem(last=False)[1])

    def after(self, token: int, length: int, count: int) -> list[Gram]:
        """Up to `count` continuations of `token` that belong to n-grams of `length`."""
        grams = self._grams.get(token, ())
        return [gram for gram in grams if len(gram) == length - 1][:count]


class _Tree:
    """Nodes of one draft; paths that begin alike share them."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._parents: list[int] = []
        self._below: dict[tuple[int, int], int] = {}

    def add_path(self, path: Gram, parent: int = ROOT) -> list[int]:
        """The nodes of `path` below `parent`, made where they are missing."""
        nodes = []
        for token in path:
            node = self._below.setdefault((parent, token), len(self._tokens))
            if node == len(self._tokens):
                self._tokens.append(token)
                self._parents.append(parent)
            nodes.append(node)
            parent = node
        return nodes

    def add_window(self, levels: list[list[int]]) -> list[list[int]]:
        """The trunk of oldest guesses with a column branching off each; returns the nodes of each column."""
        trunk = self.add_path(tuple(levels[0]))
        return [[node, *self.add_path(tuple(level[at] for level in levels[1:]), node)] for at, node in enumerate(trunk)]

    def draft(self) -> Draft:
        return Draft(np.array(self._tokens, dtype=np.int32), np.array(self._parents, dtype=np.int32))
