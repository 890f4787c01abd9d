"""A head drafts from the verifier's last hidden state and its own guesses of the next ones (EAGLE, Li et al. 2024).

One decoder layer reads the embedding of a token beside the hidden row before it and predicts the next hidden row, which
the verifier's own output layer turns into guesses. Wins where a head was trained for exactly this verifier; EAGLE-3,
which reads three layers and is trained on its own steps, guesses further. With `--tree auto` this is EAGLE-2.
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


class Eagle1(FollowingHead):
    """The drafter; the head is the pair's draft file."""

    name = "eagle1"

    def __init__(self, options: Options, lender: Lender) -> None:
        """Opens the head. Raises `DrafterError` or `PairError` when there is none that fits."""
        self.options = options
        super().__init__(lender, force=options.force, temperature=options.temperature, siblings=options.siblings)
