"""Keeps a drafter from doing harm: its failure costs time, never output, and is told once.

Also gives it the budget of the round and takes note of the confidences it reports. Knows no concrete drafter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import accumulate
from operator import mul

import numpy as np

from localspec.core.draft import EMPTY, ROOT, Draft, Ids, Verdict
from localspec.core.growth import Growth
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.core.shapes import Shape
from localspec.drafters.base import Asking, Budget, Drafter
from localspec.engine.base import Cancelled, Pass, Vocab
from localspec.errors import DrafterError
from localspec.loop.control import Chooser, Controller

logger = logging.getLogger(__name__)
Warn = Callable[[str], None]


class Proposer:
    """Asks a drafter for drafts until it fails."""

    def __init__(
        self,
        drafter: Drafter,
        controller: Controller,
        *,
        vocab: Vocab,
        warn: Warn,
        tree: Shape | Growth | None = None,
    ) -> None:
        """`tree`: what drafts are asked for, None: chains."""
        self._drafter: Drafter | None = drafter
        self._controller = controller
        self._vocab = vocab
        self._warn = warn
        self._tree = tree
        self._chooser = controller if isinstance(controller, Chooser) else None
        self._asking = drafter if isinstance(drafter, Asking) else None
        self._budget = Budget(
            0,
            self._pays,
            choose=controller.choose,
            widen=controller.widen,
            asks=controller.asks,
            price=controller.price,
            may_pay=controller.may_pay,
        )
        self._begin: Callable[[], None] | None = None  # what the drafter has put off until it is asked
        self._fitted: tuple[tuple[int, int, int], Budget] | None = None  # the last one that was given out, and for what
        self._claims: list[float] = []  # of the one whose turn it is
        self._said: dict[str, list[float]] = {}  # of each that was asked, where the controller chooses

    @property
    def name(self) -> str:
        """The drafter in use, "none" once it has failed."""
        return self._drafter.name if self._drafter else "none"

    @property
    def heard(self) -> str:
        """Whose draft the last one was, if it was not empty: of several drafters the one that made it."""
        return self._asking.heard if self._asking and self._drafter else self.name

    @property
    def is_alive(self) -> bool:
        return self._drafter is not None

    @property
    def branches(self) -> bool:
        """True when drafts may be trees: then a limit on their nodes says nothing about their depth."""
        return self._tree is not None

    def begin(self, tokens: Ids, *, sampling: Sampling, rule: Rule, cancelled: Cancelled) -> None:
        """A new answer to `tokens` starts; a drafter that is not going to be asked soon reads them when it is."""
        self._budget, self._fitted = self._budget._replace(cancelled=cancelled), None
        drafter = self._drafter
        if not drafter:
            return
        begin = partial(drafter.begin, tokens, sampling=sampling, rule=rule, cancelled=cancelled)
        reads_now = self._controller.begin(len(tokens))
        if self._chooser and self._asking:
            begin = partial(begin, later=self._chooser.later)
        self._begin = begin
        if reads_now:
            try:
                self._begun()
            except Exception as error:  # noqa: BLE001
                self._switch_off(error)

    def propose(self, tokens: Ids, limit: int, *, leaves: int, depth: int | None = None) -> Draft:
        """At most `limit` nodes on `leaves` paths of `depth` tokens below the last of `tokens`, none below an end.

        EMPTY when the drafter fails.
        """
        depth = limit if depth is None else depth
        self._claims = []
        if not self._drafter or limit <= 0:
            return EMPTY
        try:
            self._begun()
            draft = self._checked(self._drafter.propose(tokens, self._within(limit, leaves, depth)), limit, leaves)
            return _cut(draft, depth)
        except Exception as error:  # noqa: BLE001  whatever a drafter raises only costs time
            self._switch_off(error)
            return EMPTY

    def observe(self, result: Pass, verdict: Verdict | None) -> None:
        """Tell the drafter what became of its draft."""
        if self._drafter:
            try:
                self._drafter.observe(result, verdict)
            except Exception as error:  # noqa: BLE001
                self._switch_off(error)

    def confidences(self, draft: Draft, verdict: Verdict) -> tuple[float, ...]:
        """What the drafter said of each depth of the tested path: that one of the siblings there would be taken."""
        if draft.confidences is None:
            return tuple(self._said.get(self.heard, ()) if self._chooser else self._claims)
        tested = [draft.children.get(node, ()) for node in (ROOT, *verdict.path)]
        return tuple(sum(draft.confidences[node] for node in siblings) for siblings in tested if siblings)

    def taken(self, draft: Draft, verdict: Verdict) -> tuple[float, ...]:
        """Of each accepted node, how likely the drafter said the path down to it was."""
        if draft.confidences is None:
            return ()
        return tuple(accumulate((draft.confidences[node] for node in verdict.path), mul))

    def _begun(self) -> None:
        """Let the drafter begin, if it has not."""
        if self._begin:
            begin, self._begin = self._begin, None
            begin()

    def _within(self, limit: int, leaves: int, depth: int) -> Budget:
        """The budget of a round; often it is the last one's."""
        asked = (limit, leaves, depth if self._tree else 0)
        if self._fitted and self._fitted[0] == asked:
            return self._fitted[1]
        tree = _fitting(self._tree, limit, leaves, depth) if self._tree and leaves > 1 else None
        budget = self._budget._replace(limit=limit, leaves=leaves, tree=tree)
        if self._chooser:
            budget = budget._replace(turns=partial(self._turns, budget, depth, {}))
        self._fitted = asked, budget
        return budget

    def _turns(
        self, budget: Budget, depth: int, known: dict[tuple[str, int, bool], Budget]
    ) -> Iterator[tuple[str, Budget]]:
        """Whom the controller has asked, with their budgets, those that are `known` from other rounds again."""
        assert self._chooser is not None
        self._said = {}
        for turn in self._chooser.turns():
            name, limit, branches = turn
            self._claims = self._said[name] = []
            if turn not in known:
                most = min(limit, budget.limit)
                tree = _fitting(budget.tree, most, budget.leaves, depth) if budget.tree and branches else None
                known[turn] = budget._replace(limit=most, tree=tree)
            yield name, known[turn]

    def _pays(self, depth: int, confidence: float) -> bool:
        pays = self._controller.pays(depth, confidence)
        if pays:
            self._claims.append(confidence)
        return pays

    def _checked(self, draft: Draft, limit: int, leaves: int) -> Draft:
        if not len(draft):
            return EMPTY
        count, per_node = len(draft), (draft.parents, draft.laws, draft.confidences)
        if count > limit:
            raise DrafterError(f"{count} tokens were proposed where {limit} were asked for")
        if any(values is not None and len(values) != count for values in per_node):
            raise DrafterError(f"a draft of {count} tokens does not say for each its parent, law and confidence")
        if not draft.is_chain and ((draft.parents < ROOT) | (draft.parents >= np.arange(count))).any():
            raise DrafterError("a draft names a parent that does not stand before its child")
        if not draft.is_chain and draft.leaves > leaves:
            raise DrafterError(f"{draft.leaves} paths were proposed where {leaves} were asked for")
        tokens = draft.tokens.tolist()
        low, high = min(tokens), max(tokens)
        if low < 0 or high >= self._vocab.size:
            raise DrafterError(f"token {high if low >= 0 else low} is outside the vocabulary of {self._vocab.size}")
        return draft.ending_at(self._vocab.is_end)

    def _switch_off(self, error: Exception) -> None:
        drafter, self._drafter = self._drafter, None
        logger.debug("drafter failed", exc_info=error)
        if drafter:
            self._warn(f"Drafter {drafter.name} failed and is switched off; plain decoding goes on: {error}")


def _fitting(tree: Shape | Growth, limit: int, leaves: int, depth: int) -> Shape | Growth:
    """As much of the tree as there is room for."""
    fitted = tree.within(nodes=limit, leaves=leaves)
    if isinstance(fitted, Growth):
        return replace(fitted, depth=min(fitted.depth, depth))
    return fitted if fitted.depth <= depth else Shape(tuple(place for place in fitted.places if len(place) <= depth))


def _cut(draft: Draft, depth: int) -> Draft:
    """Without the nodes that lie too deep, whatever they are: that biases nothing."""
    if len(draft) <= depth or draft.depths.max() <= depth:
        return draft
    return draft.keeping(np.flatnonzero(draft.depths <= depth).tolist())
