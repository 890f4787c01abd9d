"""A head drafts from the verifier's last hidden state and its own guesses of the next ones (EAGLE, Li et al. 2024).

One decoder layer reads the embedding of a token beside the hidden row before it and predicts the next hidden row, which
the verifier's own output layer turns into guesses. Wins where a head was trained for exactly this verifier; EAGLE-3,
which reads three layers and is trained on its own steps, guesses further. With `--tree auto` this is EAGLE-2.
"""

from __future__ import annotations

from localspec.drafters.following import FollowingHead, Options

__all__ = ["Eagle1", "Options"]


class Eagle1(FollowingHead):
    """The drafter; the head is the pair's draft file."""

    name = "eagle1"
