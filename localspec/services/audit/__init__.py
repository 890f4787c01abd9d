"""Proof on the user's own models: samples and greedy texts, plain against speculative."""
