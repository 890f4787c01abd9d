"""The sampling law written down once more, slowly and plainly: one id at a time, everything sorted, in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence

from localspec.core.sampling import Sampling


def law(sampling: Sampling, logits: Sequence[float], recent: Sequence[int]) -> dict[int, float]:
    """Id -> probability of the ids that survive."""
    row = {token: float(logit) for token, logit in enumerate(logits)}
    for token, bias in sampling.logit_bias.items():
        if token in row:
            row[token] += bias
    window = list(recent)
    if sampling.penalty_last_n >= 0:
        window = window[len(window) - min(len(window), sampling.penalty_last_n) :]
    for token in set(window) & set(row):
        row[token] = row[token] * sampling.repeat_penalty if row[token] <= 0 else row[token] / sampling.repeat_penalty
        row[token] -= window.count(token) * sampling.frequency_penalty + sampling.presence_penalty
    ranked = sorted(row, key=lambda token: (-row[token], token))
    if sampling.temperature == 0.0:
        return {ranked[0]: 1.0}
    if sampling.top_k > 0:
        ranked = ranked[: sampling.top_k]
    largest = row[ranked[0]]
    if sampling.top_p < 1.0:
        weights = [math.exp(row[token] - largest) for token in ranked]
        whole, reached = sum(weights), 0.0
        for place, weight in enumerate(weights):
            reached += weight / whole
            if reached >= sampling.top_p:
                ranked = ranked[: place + 1]
                break
    if sampling.min_p > 0.0:
        ranked = [token for token in ranked if row[token] >= largest + math.log(sampling.min_p)]
    final = {token: math.exp((row[token] - largest) / sampling.temperature) for token in ranked}
    whole = sum(final.values())
    return {token: weight / whole for token, weight in final.items()}
