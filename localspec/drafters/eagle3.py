"""A small head drafts from the verifier's own hidden states (EAGLE-3, Li et al. 2025).

One decoder layer reads what three layers of the verifier made of the text and guesses the next tokens, then goes on
from its own output. Wins where a head was trained for exactly this verifier: it knows what the verifier knows, for the
price of one layer and a reduced vocabulary. Loses on other weights (a fine-tune, another quantisation: fewer guesses
are right, never wrong text) and on text unlike its training data.

With a tree that grows as far as it is likely (`--tree auto`) this is EAGLE-2 (Li et al. 2024): expand the nodes with
the best joint confidence, then keep the best of all.
"""

from __future__ import annotations

from dataclasses import dataclass

from localspec.drafters.base import Lender
from localspec.drafters.drawing import Siblings, check_options
from localspec.drafters.following import FollowingHead


@dataclass(frozen=True)
class Options:
    """What a user can set with -o.

    force  use a head that was trained on another quantisation of the same weights
    temperature  temperature of the head's law, -1: the verifier's; another one costs acceptance, never exactness
    siblings  how a tree gets its tokens above temperature 0: drawn, or top (the likeliest, as EAGLE-2 takes them)
    """

    force: bool = False
    temperature: float = -1.0
    siblings: Siblings = "drawn"

    def __post_init__(self) -> None:
        check_options(self.temperature, self.siblings)


class Eagle3(FollowingHead):
    """The drafter; the head is the pair's draft file."""

    name = "eagle3"

    def __init__(self, options: Options, lender: Lender) -> None:
        """Opens the head. Raises `DrafterError` or `PairError` when there is none that fits."""
        self.options = options
        super().__init__(lender, force=options.force, temperature=options.temperature, siblings=options.siblings)
