"""The reduced vocabulary of a head: the tokens that a verifier says most, and how much of its text they cover.

Counts come from the verifier's laws, not from its answers alone: each row says how often each of its likeliest tokens
would have been said there, so one row counts like dozens. Prompts made up by the verifier count as text, too.

Which rare tokens to keep a few hundred thousand tokens cannot say. The ids can, as a tokenizer numbers its merges by
frequency in a far larger text: a small share of Zipf's law over the ids ranks what was hardly seen (docs/training.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from localspec.services.train.shards import Text

PROMPT_WEIGHT = 0.5
PRIOR_SHARE, PRIOR_START = 0.03, 2000
"""How much the ids count against what was said, and how many first ids are about equally common."""


@dataclass(frozen=True)
class DraftVocabulary:
    """ids (K,): verifier ids, ascending. places (V,): where an id stands among them, -1 where it does not."""

    ids: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]

    @classmethod
    def of(cls, ids: Iterable[int], size: int) -> DraftVocabulary:
        chosen = np.array(sorted(set(ids)), dtype=np.int64)
        places = np.full(size, -1, dtype=np.int64)
        places[chosen] = np.arange(len(chosen))
        return cls(chosen, places)

    def __len__(self) -> int:
        return len(self.ids)

    def coverage(self, tokens: npt.NDArray[np.integer]) -> float:
        """Share of `tokens` that the head can say."""
        return float((self.places[tokens] >= 0).mean()) if len(tokens) else 0.0


def counts(texts: Iterable[Text], size: int) -> npt.NDArray[np.float64]:
    """How often each token is expected, over laws and prompts."""
    total = np.zeros(size)
    for text in texts:
        np.add.at(total, text.top_ids.ravel(), np.exp(text.top_logs.astype(np.float64)).ravel())
        np.add.at(total, text.tokens[: text.start], PROMPT_WEIGHT)
        np.add.at(total, text.tokens[text.start :], PROMPT_WEIGHT)
    return total


def choose(expected: npt.NDArray[np.float64], count: int, always: Iterable[int] = ()) -> DraftVocabulary:
    """The `count` likeliest tokens, those of `always` among them.

    expected (V,): how often each token was said, in any unit.
    """
    prior = 1 / (np.arange(len(expected)) + PRIOR_START)
    score = expected + PRIOR_SHARE * max(expected.sum(), 1.0) * prior / prior.sum()
    score[list(always)] = np.inf
    order = np.argsort(-score, kind="stable")[:count]
    return DraftVocabulary.of(order.tolist(), len(expected))
