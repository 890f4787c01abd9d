"""A small head drafts from the verifier's own hidden states (EAGLE-3, Li et al. 2025).

One decoder layer reads what three layers of the verifier made of the text and guesses the next tokens, then goes on
from its own output. Wins where a head was trained for exactly this verifier: it knows what the verifier knows, for the
price of one layer and a reduced vocabulary. Loses on other weights (a fine-tune, another quantisation: fewer guesses
are right, never wrong text) and on text unlike its training data.

With a tree that grows as far as it is likely (`--tree auto`) this is EAGLE-2 (Li et al. 2024): expand the nodes with
the best joint confidence, then keep the best of all.
"""

from __future__ import annotations

from localspec.drafters.following import FollowingHead, Options

__all__ = ["Eagle3", "Options"]


class Eagle3(FollowingHead):
    """The drafter; the head is the pair's draft file."""

    name = "eagle3"
