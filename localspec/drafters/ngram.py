"""Prompt lookup: propose what followed when the text last read as it reads now (Saxena 2023; cf. REST, ANPD).

Wins where the answer repeats the prompt or itself: edits, summaries, retrieval, code, loops. Loses nothing but the
verifier's extra rows elsewhere. Uses no model and no vocabulary-sized array. Every path of a draft stands, as a whole,
in the committed text; only on demand also in a file (`corpus`) or in earlier texts of the same pair (`remember`). Each
token comes with the measured probability that it is right.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from localspec.core.corpus import Corpus
from localspec.core.draft import EMPTY, ROOT, Draft, Ids, Verdict
from localspec.core.foretold import Foretold, Place
from localspec.core.growth import Growth
from localspec.core.ngrams import NgramIndex
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.core.shapes import Place as ShapePlace
from localspec.core.shapes import Shape
from localspec.core.trust import LONGEST, Trust
from localspec.drafters.base import Budget, Lender
from localspec.engine.base import Cancelled, Pass
from localspec.errors import UsageError

WIDER = 4
"""A tree looks at so many times the places that a chain compares: it has room for what followed longer ago."""
PATIENCE = 16
"""Who waits for a longer match looks closely after so many tokens all the same: guesses teach undrafted, too."""
LEAST = 0.02
"""A node that is taken once in fifty rounds is never worth its row."""
MOST_BYTES = 8 * 2**20
"""Larger files take too long to tokenise."""


@dataclass(frozen=True)
class Options:
    """What a user can set with -o.

    max_ngram   longest run of tokens that is looked up first, 1 .. 16
    min_ngram   shortest run that may be looked up, 1 .. max_ngram
    candidates  how many earlier places are compared, 1 .. 64
    corpus      file of text or code to draft from as well, like the one being edited
    remember    keep prompts and answers, as token ids, in the cache folder to draft from in later runs of the pair
    """

    max_ngram: int = 4
    min_ngram: int = 1
    candidates: int = 4
    corpus: str = ""
    remember: bool = False

    def __post_init__(self) -> None:
        _within("max_ngram", self.max_ngram, 1, 16)
        _within("min_ngram", self.min_ngram, 1, self.max_ngram)
        _within("candidates", self.candidates, 1, 64)
        read_corpus(self.corpus)


class Ngram:
    """The drafter; holds the index of one text and what it learned about its own guesses."""

    name = "ngram"

    def __init__(self, options: Options, lender: Lender) -> None:
        self.options = options
        self._lender = lender
        self._index = NgramIndex(options.min_ngram, options.max_ngram)
        self._libraries = _libraries(options, lender)
        self._trust = Trust()
        self._foretold = Foretold(self._trust)  # what may stand behind the index, refused guesses included
        self._text: Ids = np.empty(0, dtype=np.int32)
        self._awaited = 0  # the least size of a match that is worth a look, 0: look anyway
        self._due = 0  # tokens of the text at which to look anyway

    def begin(self, tokens: Ids, *, sampling: Sampling, rule: Rule, cancelled: Cancelled) -> None:
        """Index the prompt; guesses are deterministic whatever the law, and a new turn is no answer to old ones."""
        self._foretold = Foretold(self._trust)
        self._awaited = 0
        self._index.follow(tokens)
        if not np.array_equal(tokens[: len(self._text)], self._text):
            self._keep()
        self._text = tokens

    def propose(self, tokens: Ids, budget: Budget) -> Draft:
        """What followed the best matches, as far as it is likely enough to pay."""
        self._text = tokens
        if self._waits(tokens):
            return EMPTY
        known = len(self._index)
        if self._index.follow(tokens) == known:  # after an edit nothing can be said about the old guesses
            self._foretold.learn(tokens[known:])
        self._foretold = Foretold(self._trust)
        draft = self._drafted(tokens, budget)
        self._awaited = 0 if len(draft) else self._least_size(budget)
        self._due = len(tokens) + PATIENCE
        return draft

    def observe(self, result: Pass, verdict: Verdict | None) -> None:
        """Nothing to do: the text that comes with the next `propose` tells which guesses were right."""

    def close(self) -> None:
        """Forget the text, or hand it to memory if that was asked for."""
        self._keep()
        self._text = self._text[:0]
        self._index = NgramIndex(self.options.min_ngram, self.options.max_ngram)
        self._foretold = Foretold(self._trust)

    def _keep(self) -> None:
        if self.options.remember and len(self._text):
            self._lender.remember(self.name, self._text.copy())

    def _drafted(self, tokens: Ids, budget: Budget) -> Draft:
        """A chain or a tree, whichever is wanted."""
        if budget.tree is None:
            return self._chain(self._places(tokens, self.options.candidates), budget)
        places = self._places(tokens, WIDER * self.options.candidates)
        if isinstance(budget.tree, Shape):
            kept = self._fill(places, budget.tree)
        else:
            kept = self._grow(places, budget.tree)
            kept = kept[: budget.choose([self._foretold.nodes[node].joint for node in kept])]
        return self._foretold.draft(kept)

    def _waits(self, tokens: Ids) -> bool:
        """Is there still no match of a size that could pay, so that nothing need be indexed or looked at yet?"""
        if not self._awaited or not len(self._index) < len(tokens) < self._due:
            return False
        return not self._index.recurs(tokens, self._awaited)

    def _least_size(self, budget: Budget) -> int:
        """The least size of a match behind which a draft could pay, 0 where the size does not tell."""
        if self._libraries or not budget.asks or isinstance(budget.tree, Shape):
            return 0
        sizes = self._index.sizes
        return next((size for size in sizes if budget.may_pay(self._trust.most(size))), sizes[-1])

    def _places(self, tokens: Ids, count: int) -> list[Place]:
        """Up to `count` places that read like the end of `tokens`, longest first, its own before others."""
        found = [
            Place(self._index.text, match.length, match.after) for match in self._index.matches(count, longest=LONGEST)
        ]
        if self._libraries:
            tail = tokens[-LONGEST:].tolist()
            for library in self._libraries:
                matches = library.matches(tail, count, least=self.options.min_ngram, longest=LONGEST)
                found += [Place(library, match.length, match.after) for match in matches]
            found = sorted(found, key=lambda place: -place.length)[:count]
        return found

    def _chain(self, places: Sequence[Place], budget: Budget) -> Draft:
        """The continuation of the longest match, up to the first token that does not pay."""
        drafted: list[int] = []
        parent = ROOT
        while len(drafted) < budget.limit:
            below = self._foretold.expand(parent, places, 1)
            if not below:
                break
            (parent,) = below
            node = self._foretold.nodes[parent]
            if not budget.pays(len(drafted) + 1, node.chance):
                break
            drafted.append(node.guess.token)
            places = node.places
        return Draft.chain(drafted) if drafted else EMPTY

    def _fill(self, places: Sequence[Place], shape: Shape) -> list[int]:
        """Nodes for the places of `shape` that something is known for."""
        nodes = self._foretold.nodes
        below: dict[ShapePlace, list[int]] = {(): self._foretold.expand(ROOT, places, shape.widths.get((), 0))}
        kept: list[int] = []
        for place in shape.places:
            siblings = below.get(place[:-1], [])
            if place[-1] >= len(siblings):
                continue
            node = siblings[place[-1]]
            kept.append(node)
            if place in shape.widths and not self._lender.is_end(nodes[node].guess.token):
                below[place] = self._foretold.expand(node, nodes[node].places, shape.widths[place])
        return kept

    def _grow(self, places: Sequence[Place], growth: Growth) -> list[int]:
        """The likeliest nodes that have room, best first."""
        nodes = self._foretold.nodes
        waiting = [(-nodes[node].joint, node) for node in self._foretold.expand(ROOT, places, growth.width)]
        heapq.heapify(waiting)
        kept: list[int] = []
        inner: set[int] = set()
        leaves = 0
        while waiting and len(kept) < growth.nodes:
            node = heapq.heappop(waiting)[1]
            parent = nodes[node].parent
            splits = parent == ROOT or parent in inner
            if splits and leaves == growth.leaves:
                continue
            leaves += splits
            inner.add(parent)
            kept.append(node)
            if nodes[node].depth < growth.depth and not self._lender.is_end(nodes[node].guess.token):
                for child in self._foretold.expand(node, nodes[node].places, growth.width):
                    if nodes[child].joint >= LEAST:
                        heapq.heappush(waiting, (-nodes[child].joint, child))
        return kept


def read_corpus(name: str) -> str:
    """The text of the file, "" for no file. Raises `UsageError` when it cannot be read as text, or is too large."""
    if not name:
        return ""
    try:
        path = Path(os.path.expanduser(name))
        size = path.stat().st_size
        with path.open("rb") as file:  # a device tells no size and has no end
            data = file.read(MOST_BYTES + 1)
        text = data.decode("utf-8") if len(data) <= MOST_BYTES else None
    except UnicodeDecodeError as error:
        raise UsageError(
            f"option corpus is {name}, which is not UTF-8 text (byte {error.start})",
            hint="Name a file of text, like -o corpus=src/main.py.",
        ) from None
    except (OSError, ValueError) as error:  # a name with a zero byte is no `OSError`
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(
            f"option corpus is {name}, which cannot be read: {reason or error}",
            hint="Name a file of text, like -o corpus=src/main.py.",
        ) from None
    if text is None:
        raise UsageError(
            f"option corpus is {name}, which has {max(size, len(data)):,} bytes{'' if size else ' or more'}",
            hint=f"Name a file of at most {MOST_BYTES:,} bytes.",
        )
    return text


def _libraries(options: Options, lender: Lender) -> list[Corpus]:
    """The texts to draft from besides the committed one."""
    found = []
    if options.corpus:
        found.append(np.array(lender.tokenize(read_corpus(options.corpus)), dtype=np.int32))
    if options.remember:
        found.append(lender.recall(Ngram.name))
    return [Corpus(tokens) for tokens in found if len(tokens) > 1]


def _within(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise UsageError(
            f"{name} is {value}, not within {low} .. {high}.", hint=f"Give -o {name}=N with {low} <= N <= {high}."
        )
