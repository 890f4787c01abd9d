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
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from localspec.core.draft import EMPTY, ROOT, Draft, Ids, Verdict
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.drafters.base import Budget, Lender
from localspec.engine.base import Cancelled, Pass
from localspec.errors import UsageError

Gram = tuple[int, ...]


@dataclass(frozen=True)
class Size:
    """W columns, n-grams of N tokens, G candidates. hoped: tokens that a pass of this size brings, before any is known.

    The hopes were counted on answers of a small chat model at temperature 0.
    """

    W: int
    N: int
    G: int
    hoped: float = 1.0

    @property
    def nodes(self) -> int:
        """Most nodes of a draft."""
        return (self.W + self.G) * (self.N - 1)

    @property
    def leaves(self) -> int:
        """Most paths of a draft."""
        return self.W + self.G


SIZES = (Size(5, 4, 5, 1.7), Size(4, 4, 4, 1.65), Size(3, 3, 3, 1.5), Size(2, 3, 2, 1.45), Size(1, 3, 1, 1.4))
WEIGHT = 8.0
"""A hope counts as this many passes."""
MEMORY = 0.97
"""What one more pass leaves of the weight of the record of a size."""


@dataclass(frozen=True)
class Options:
    """What a user can set with -o.

    W  columns of the window, 0: window, n-grams and candidates as the measured cost of a pass suggests
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

    @property
    def sizes(self) -> tuple[Size, ...]:
        """Those to choose from."""
        return (Size(self.W, self.N, self.G),) if self.W else SIZES


class Lookahead:
    """The drafter; holds the window and the pool of one text."""

    name = "lookahead"

    def __init__(self, options: Options, lender: Lender) -> None:
        self.options = options
        self._is_end = lender.is_end
        self._gains = Gains(options.sizes)
        self._size: Size | None = None  # of the window
        self._columns: list[list[int]] = []  # nodes of the last draft's window, by column
        self._nodes = 0  # of that draft
        self._window: list[list[int]] = []  # levels, oldest first, W guesses each
        self._forget()

    def begin(self, tokens: Ids, *, sampling: Sampling, rule: Rule, cancelled: Cancelled) -> None:
        """Another text: nothing of the last one may be proposed."""
        self._read(tokens, take=self.options.prompt)
        self._window = []

    def propose(self, tokens: Ids, budget: Budget) -> Draft:
        """Candidates and window as one tree; candidates alone where there is no room for both."""
        self._columns = []
        size = self._gains.best(budget)
        if size is None:
            return EMPTY
        self._read(tokens, take=True)
        if size != self._size or not self._window:
            self._window, self._size = self._first_guesses(tokens, size), size
        tree = _Tree()
        room = min(size.G, budget.leaves, budget.limit // (size.N - 1))
        candidates = self._pool.after(tokens[-2:].tolist(), size.N - 1, room)
        for gram in candidates:
            tree.add_path(gram)
        if size.nodes <= budget.limit and size.leaves <= budget.leaves:
            self._columns = tree.add_window(self._window)
        if candidates:
            tree.add_path(self._going_on(candidates[0], size.N - 1, min(size.nodes, budget.limit) - len(tree)))
        draft = tree.draft()
        self._nodes = len(draft)
        return draft

    def _going_on(self, path: Gram, length: int, room: int) -> Gram:
        """The likeliest candidate and the n-grams that follow it, in the nodes that paths in common have left over."""
        most = len(path) + room
        while len(path) < most and not self._is_end(path[-1]):
            following = self._pool.after(path[-2:], length, 1)
            if not following:
                break
            path = (*path, *following[0])
        return path[:most]

    def observe(self, result: Pass, verdict: Verdict | None) -> None:
        """Read the next Jacobi step off the pass and move the window on."""
        columns, self._columns = self._columns, []
        if not columns or verdict is None:
            return
        assert self._size is not None
        self._gains.learn(self._size, len(verdict.path) + 1)
        if result.rows != 1 + self._nodes:  # the draft was cut: its nodes have moved
            self._window = []
            return
        newest = [int(result.logits(column[-1] + 1).argmax()) for column in columns]
        trunk = [self._text.item(-1), *self._window[0]]
        for at, guess in enumerate(newest):
            self._pool.add((*(level[at] for level in self._window), guess), after=trunk[at])
        # Nothing can be guessed behind the end of the text, so the window goes on with another token there.
        going_on = [self._text.item(-1) if self._is_end(guess) else guess for guess in newest]
        self._window = [*self._window[1:], going_on]

    def close(self) -> None:
        """Forget the text."""
        self._forget()

    def _forget(self) -> None:
        self._pool = Pool(self.options.pool)
        self._window = []
        self._text: Ids = np.empty(0, dtype=np.int32)

    def _read(self, tokens: Ids, *, take: bool) -> None:
        """Take the n-grams of what is new in the text; forget everything when it is another one."""
        known = len(self._text)
        if not np.array_equal(tokens[:known], self._text):
            self._forget()
            known = 0
        if take:
            self._take(tokens, known)
        self._text = tokens.copy()

    def _take(self, tokens: Ids, known: int) -> None:
        """Pool the n-grams of every length in use that end behind the first `known` tokens."""
        for length in {size.N for size in self.options.sizes}:
            start = max(0, known - length + 1)
            new = tokens[start:].tolist()
            ends = [self._is_end(token) for token in new]
            for at in range(len(new) - length + 1):
                if not any(ends[at : at + length - 1]):
                    before = tokens.item(start + at - 1) if start + at else NOTHING
                    self._pool.add(tuple(new[at : at + length]), after=before)

    def _first_guesses(self, tokens: Ids, size: Size) -> list[list[int]]:
        """A window to start from: any guess will do, and tokens of the text are better than none."""
        recent = [token for token in tokens[-64:].tolist() if not self._is_end(token)] or [tokens.item(-1)]
        return [[recent[(at * 7 + level * 3) % len(recent)] for at in range(size.W)] for level in range(size.N - 1)]


class Gains:
    """Tokens that a pass of each size brings, as it turned out so far."""

    def __init__(self, sizes: tuple[Size, ...]) -> None:
        self._tokens = {size: WEIGHT * size.hoped for size in sizes}
        self._passes = dict.fromkeys(sizes, WEIGHT)

    def best(self, budget: Budget) -> Size | None:
        """The size with the most tokens for its price, None where plain decoding is cheaper; a lone one is the best."""
        if len(self._tokens) == 1:
            return next(iter(self._tokens))
        rates = {
            size: self.gain(size) / budget.price(1 + size.nodes) for size in self._tokens if self._fits(size, budget)
        }
        best = max(rates, key=rates.__getitem__, default=None)
        return best if best is not None and rates[best] > 1.0 else None

    def gain(self, size: Size) -> float:
        """Tokens per pass."""
        return self._tokens[size] / self._passes[size]

    def learn(self, size: Size, tokens: int) -> None:
        """One more pass."""
        self._tokens[size] = MEMORY * self._tokens[size] + tokens
        self._passes[size] = MEMORY * self._passes[size] + 1.0

    @staticmethod
    def _fits(size: Size, budget: Budget) -> bool:
        return size.nodes <= budget.limit and size.leaves <= budget.leaves


NOTHING = -1
"""Stands before the first token of a text."""


class Pool:
    """N-grams by their first token, the most recent first; bounded, the key that was used longest ago goes first."""

    PER_KEY = 32

    def __init__(self, size: int) -> None:
        self._size = size
        self._count = 0
        self._grams: OrderedDict[int, dict[Gram, int]] = OrderedDict()  # rest of the n-gram -> the token before it

    def __len__(self) -> int:
        return self._count

    def add(self, gram: Gram, *, after: int) -> None:
        """Remember `gram`, which was seen behind the token `after`, as the most recent of its key."""
        grams = self._grams.setdefault(gram[0], {})
        self._grams.move_to_end(gram[0])
        self._count += grams.pop(gram[1:], None) is None
        grams[gram[1:]] = after
        if len(grams) > self.PER_KEY:
            del grams[next(iter(grams))]
            self._count -= 1
        while self._count > self._size:
            self._count -= len(self._grams.popitem(last=False)[1])

    def after(self, last: Sequence[int], length: int, count: int) -> list[Gram]:
        """Up to `count` continuations by `length` tokens of a text that ends with `last`.

        Those seen behind its last two tokens come first, then those behind its last one, the most recent of each.
        """
        before = last[-2] if len(last) > 1 else NOTHING
        grams = [(rest, after) for rest, after in self._grams.get(last[-1], {}).items() if len(rest) == length]
        grams.reverse()
        return [rest for rest, after in sorted(grams, key=lambda one: one[1] != before)][:count]


class _Tree:
    """Nodes of one draft; paths that begin alike share them."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._parents: list[int] = []
        self._below: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self._tokens)

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
