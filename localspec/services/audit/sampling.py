"""Draws the next few tokens after a prompt again and again: plainly, with a drafter, or plainly in passes of any size.

Every draw plays real rounds, `loop.round.play_round`, until there are enough tokens. Knows no statistics.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from localspec.core.coupled import Coupled
from localspec.core.draft import EMPTY, Draft, Ids, Verdict
from localspec.core.law import Law
from localspec.core.rejection import Rejection
from localspec.core.rule import LawOf, Rule
from localspec.core.sampling import Sampling
from localspec.core.statistics import Path
from localspec.engine.base import Context, Vocab
from localspec.loop.proposer import Proposer
from localspec.loop.round import play_round
from localspec.services.settings import Acceptance

Propose = Callable[[Ids], Draft]
Rules = Callable[[], Rule]


class Sampler:
    """Draws the next `depth` tokens of `prompt`, fewer where an end token comes earlier.

    It counts over all draws: tested, accepted  drafted tokens; largest  nodes of the largest draft.
    """

    def __init__(self, prompt: Ids, depth: int, *, sampling: Sampling, verifier: Context, vocab: Vocab) -> None:
        self.prompt = prompt
        self.depth = depth
        self.sampling = sampling
        self.verifier = verifier
        self.vocab = vocab
        self.tested = 0
        self.accepted = 0
        self.largest = 0

    def plain(self, rule: Rule) -> Path:
        """One draw, a token per pass."""
        return self._draw(rule)

    def speculative(self, rule: Rule, proposer: Proposer, limit: int) -> Path:
        """One draw, with drafts of at most `limit` tokens."""
        proposer.begin(self.prompt, sampling=self.sampling, rule=rule, cancelled=lambda: False)
        return self._draw(
            rule,
            lambda tokens: proposer.propose(tokens, self.room(tokens, limit), leaves=self.verifier.leaves),
            proposer,
        )

    def padded(self, rule: Rule, nodes: int) -> Path:
        """One draw, a token per pass, each pass as large as one over a draft of `nodes` tokens that nobody reads."""
        return self._draw(Heedless(rule), lambda tokens: self.padding(tokens, nodes))

    def padding(self, tokens: Ids, nodes: int) -> Draft:
        """A draft of `nodes` tokens, as many as fit, taken from the text."""
        return Draft.chain(np.resize(tokens, self.room(tokens, nodes)))

    def room(self, tokens: Ids, limit: int) -> int:
        """Most nodes of a draft behind `tokens`."""
        return min(limit, self.verifier.draft_room, self.verifier.capacity - len(tokens))

    def _draw(self, rule: Rule, propose: Propose | None = None, proposer: Proposer | None = None) -> Path:
        self.verifier.prefill(self.prompt[:-1], logits=False)
        tokens = self._played(self.prompt, rule, propose, proposer)
        while self._missing(tokens) and not self.vocab.is_end(int(tokens[-1])):
            tokens = self._played(tokens, rule, propose, proposer)
        return tuple(tokens[len(self.prompt) :].tolist())

    def _played(self, tokens: Ids, rule: Rule, propose: Propose | None, proposer: Proposer | None) -> Ids:
        """The text after one more round."""
        played = play_round(
            tokens,
            verifier=self.verifier,
            propose=(lambda: propose(tokens)) if propose else None,
            observe=proposer.observe if proposer else None,
            sampling=self.sampling,
            rule=rule,
            keep=lambda block: self._kept(block[: self._missing(tokens)]),
        )
        if proposer:
            self.tested += played.verdict.tested
            self.accepted += len(played.verdict.path)
            self.largest = max(self.largest, len(played.draft))
        return np.concatenate([tokens, np.array(played.block[: played.kept], dtype=np.int32)])

    def _missing(self, tokens: Ids) -> int:
        return self.depth - (len(tokens) - len(self.prompt))

    def _kept(self, block: tuple[int, ...]) -> int:
        """How many tokens of a block belong to the sample: nothing follows an end token."""
        ends = [at for at, token in enumerate(block, start=1) if self.vocab.is_end(token)]
        return ends[0] if ends else len(block)


class Heedless:
    """A rule that does not look at the draft."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule

    def guess(self, law: Law, position: int) -> tuple[int, Law | None]:
        return self._rule.guess(law, position)

    def guesses(self, law: Law, position: int, count: int) -> list[tuple[int, Law | None]]:
        return self._rule.guesses(law, position, count)

    def accept(self, draft: Draft, law_of: LawOf, position: int) -> Verdict:
        return self._rule.accept(EMPTY, law_of, position)


def rules(acceptance: Acceptance, seed: tuple[int, ...]) -> Rules:
    """A rule for every draw: one generator for all of them, or another seed each time."""
    rng = np.random.default_rng(seed)
    if acceptance == "coupled":
        return lambda: Coupled(int(rng.integers(2**63)))
    rule = Rejection(rng)
    return lambda: rule
