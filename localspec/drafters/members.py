"""Other drafters in the hands of one that combines them: opened through the lender, told of every round, kept harmless.

One that cannot be opened, or fails, is named in a warning and left out, and the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from localspec.core.draft import EMPTY, Draft, Ids, Verdict
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.drafters.base import Budget, Drafter, Lender
from localspec.engine.base import Cancelled, Pass
from localspec.errors import DrafterError, UsageError, in_one_line

COMBINING = ("cascade", "auto")
"""Drafters that ask others: none of them asks another one of them."""


class Members:
    """Drafters by name, in the order in which they were named."""

    def __init__(self, whose: str, names: Sequence[str], lender: Lender) -> None:
        """`whose`: the combining drafter, as warnings call it. Raises `DrafterError` when none can be opened."""
        self._whose = whose
        self._warn = lender.warn
        self._drafters: dict[str, Drafter] = {}
        self._begins: dict[str, Callable[[], None]] = {}  # of those who have not been asked in this answer
        for name in names:
            self._open(name, lender)
        if not self._drafters:
            raise DrafterError(
                f"no drafter of {','.join(names)} can be used",
                hint="The warnings say why; name others, or take a single one: --drafter ngram.",
            )

    @property
    def names(self) -> list[str]:
        """Those that are still there."""
        return list(self._drafters)

    def __contains__(self, name: str) -> bool:
        return name in self._drafters

    def begin(
        self,
        names: Iterable[str],
        tokens: Ids,
        *,
        sampling: Sampling,
        rule: Rule,
        cancelled: Cancelled,
        later: Collection[str],
    ) -> None:
        """A new answer for those who take part in it, for those of `later` only when they are first asked."""
        self._begins = {
            name: partial(self._drafters[name].begin, tokens, sampling=sampling, rule=rule, cancelled=cancelled)
            for name in names
        }
        for name in list(self._begins):
            if name not in later:
                try:
                    self._begins.pop(name)()
                except Exception as error:  # noqa: BLE001
                    self._leave(name, error)

    def drafted(self, tokens: Ids, turns: Iterable[tuple[str, Budget]]) -> tuple[str, Draft]:
        """Whose draft it is ("none" for an empty one) when those whose turn it is are asked one after the other.

        Whoever is asked after somebody drafted replaces that draft, which is allowed only where it consisted of
        deterministic picks: a drawn token is never dropped.
        """
        heard, best = "none", EMPTY
        for name, budget in turns:
            if name not in self._drafters:
                continue
            try:
                if name in self._begins:
                    self._begins.pop(name)()
                draft = self._drafters[name].propose(tokens, budget)
            except Exception as error:  # noqa: BLE001
                self._leave(name, error)
                continue
            if len(draft):
                heard, best = name, draft
                if draft.laws is not None:
                    break
        return heard, best

    def observe(self, result: Pass, verdict: Verdict | None, *, heard: str) -> None:
        """Tell the one that was heard what became of its draft, and the others that a round is over."""
        for name, drafter in tuple(self._drafters.items()):
            try:
                drafter.observe(result, verdict if name == heard else None)
            except Exception as error:  # noqa: BLE001, PERF203
                self._leave(name, error)

    def close(self) -> None:
        for drafter in self._drafters.values():
            drafter.close()

    def _leave(self, name: str, error: Exception) -> None:
        """It failed: the others go on; raises its error where there are none."""
        if len(self._drafters) == 1:
            raise error
        self._warn(f"{self._whose} goes on without {name}, which failed: {in_one_line(error)}")
        self._drafters.pop(name).close()

    def _open(self, name: str, lender: Lender) -> None:
        try:
            drafter = lender.drafter(name)
            self._drafters[drafter.name] = drafter
        except UsageError:
            raise
        except Exception as error:  # noqa: BLE001  whatever is wrong with one, the others go on
            self._warn(f"{self._whose} goes on without {name}: {in_one_line(error)}")
