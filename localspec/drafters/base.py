"""The seam of drafting: what a drafter is given and what it owes.

A drafter never imports an engine: a lender opens a second model by role and knows the verifier's sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from localspec.core.draft import Draft, Ids, Verdict
from localspec.core.growth import Growth
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.core.shapes import Shape
from localspec.engine.base import Cancelled, Context, Guesser, Head, Pass


class Budget(NamedTuple):
    """How far one draft may go.

    limit  most nodes in the draft, >= 1 (when it is 0 the drafter is not asked)
    pays   (depth, confidence) -> does one more token at `depth` (1 = first) pay, if it is right with probability
           `confidence`? Asked *before* the token is drawn, with what is known before the draw (the row's largest
           probability, how often an n-gram was followed by this token): so the answer cannot bias the law.
    cancelled  the user has had enough: an empty draft, soon
    leaves  most paths of the draft; 1: a chain
    tree    the shape to fill or how far to grow, None: a chain
    choose  joint probabilities, best first -> how many of these nodes are worth their rows in the verifier's pass
    widen   (depth, joint probabilities, best first) -> how many of these nodes are worth being expanded by one more
            draft pass, for `depth`
    asks    False when `pays` says yes to everything, so that a confidence need not be computed for it
    price   n -> what a verifier pass over n tokens costs, in plain passes, as far as it is known
    may_pay  probability -> could a draft pay whose first token is right with at most that? Before looking any closer
    turns   for one that asks other drafters: whom, in order, with their own budgets, to be taken one by one; None: it
            decides itself
    """

    limit: int
    pays: Callable[[int, float], bool]
    cancelled: Cancelled = lambda: False
    leaves: int = 1
    tree: Shape | Growth | None = None
    choose: Callable[[Sequence[float]], int] = len
    widen: Callable[[int, Sequence[float]], int] = lambda depth, joints: len(joints)
    asks: bool = True
    price: Callable[[int], float] = lambda count: 1.0
    may_pay: Callable[[float], bool] = lambda confidence: True
    turns: Callable[[], Iterable[tuple[str, Budget]]] | None = None


class Drafter(Protocol):
    """One technique. An empty draft is always a legal answer; a failure only costs time."""

    name: str

    def begin(self, tokens: Ids, *, sampling: Sampling, rule: Rule, cancelled: Cancelled) -> None:
        """A new answer to `tokens` starts: the verifier's sampling, and the rule to draw tokens with.

        Reading the text ahead belongs here: its time counts as prefill, not as decoding. A drafter that is not likely
        to be asked begins when it is, which then counts as drafting, or never; `observe` may come before.
        """
        ...

    def propose(self, tokens: Ids, budget: Budget) -> Draft:
        """A draft below the last of `tokens`, the whole committed text, pending token included.

        The drafter brings its own cache in line by the longest common prefix; any text may come, also an edited one.
        """
        ...

    def observe(self, result: Pass, verdict: Verdict | None) -> None:
        """The verifier's pass over the last draft (None: no verdict, the round was given up)."""
        ...

    def close(self) -> None:
        """Free what was opened; closing twice is fine."""
        ...


@runtime_checkable
class Asking(Protocol):
    """A drafter that asks others."""

    def begin(
        self, tokens: Ids, *, sampling: Sampling, rule: Rule, cancelled: Cancelled, later: Collection[str] = ()
    ) -> None:
        """A new answer starts for all of them, for those of `later` only when they are first asked."""
        ...

    @property
    def heard(self) -> str:
        """Whose draft the last one was."""
        ...


class Lender(Protocol):
    """Opens second models for drafters and tells them the verifier's sizes."""

    vocab_size: int
    """The verifier's rows."""

    def is_end(self, token: int) -> bool:
        """True when `token` ends the text for the verifier: drafting past it is useless."""
        ...

    def tokenize(self, text: str) -> list[int]:
        """The verifier's ids of a piece of text: no control tokens, nothing added."""
        ...

    def recall(self, drafter: str) -> Ids:
        """Texts that `drafter` asked to remember of this pair in earlier runs, `core.corpus.SEPARATOR` between them."""
        ...

    def warn(self, text: str) -> None:
        """Tell the user about something that went wrong without stopping the work; the same thing is told once."""
        ...

    def remember(self, drafter: str, text: Ids) -> None:
        """Keep a text for later runs of this pair; there is room for so many tokens, old texts go first."""
        ...

    def context(self, role: str) -> Context:
        """A fresh context of the model that plays `role` ("draft"), as long as the verifier's.

        Raises `DrafterError` when the pair has no model for the role, `PairError` when it does not fit the verifier.
        """
        ...

    def head(self, kind: str, *, force: bool = False) -> Head:
        """The pair's head, which must be of this kind ("eagle3"); it follows the verifier of the pair.

        `force` takes one that was trained on another quantisation of the verifier. Raises `DrafterError` when the pair
        has no draft, `PairError` when that is no such head or does not fit the verifier.
        """
        ...

    def guesser(self, kind: str, *, force: bool = False) -> Guesser:
        """As `head`, for heads that guess several places from one row ("medusa")."""
        ...

    def drafter(self, name: str) -> Drafter:
        """Another drafter of the registry with its default options, for those that combine several."""
        ...

    def known(self, role: str) -> int:
        """How many leading ids of the draft's vocabulary mean the same to the verifier."""
        ...

    def blocked(self, role: str) -> Ids:
        """Ids below `known` that mean something else to the two models and must never be proposed."""
        ...
