"""What a head is worth on held-out texts, without drafting: alpha by position, as a chain would meet it.

Position s of a chain counts only where the positions before it were right. On greedy texts a token is right when it is
the verifier's own; on the others what counts is the overlap sum min(p, q) at temperature 1.
Imports torch: load it inside functions only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from localspec.services.train.frames import Frame


@dataclass(frozen=True)
class Worth:
    """alpha: by position, greedy. overlap: by position at temperature 1, on true prefixes. loss: of position 1.

    tokens_per_pass: of a chain of three at temperature 0, 1 + a1 + a1 a2 + a1 a2 a3.
    """

    alpha: tuple[float, ...]
    overlap: tuple[float, ...]
    loss: float
    rows: int

    @property
    def tokens_per_pass(self) -> float:
        total, reached = 1.0, 1.0
        for alpha in self.alpha[:3]:
            reached *= alpha
            total += reached
        return total


def measure(net: Any, frames: Iterable[Frame], low: torch.dtype) -> Worth:
    """Alpha by position over all rows of `frames`."""
    steps = net.steps
    right, tried = [0.0] * steps, [0.0] * steps
    shared, judged = [0.0] * steps, [0.0] * steps
    loss = mass = 0.0
    net.eval()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=low == torch.bfloat16):
        matrix = net.output.weight.to(low)
        for frame in frames:
            alive: Tensor | None = None  # (B, L) by first row of a draft
            for guess in net.guesses(frame.batch):
                logits = (guess.hidden.to(low) @ matrix.T).float()
                place = guess.rows.nonzero()
                start = place[:, 1] + guess.ahead - 1 - guess.step  # row that the draft began at
                law = place[:, 1] + guess.ahead
                best = frame.laws.best[place[:, 0], law]
                hit = logits.argmax(-1) == best
                greedy = frame.greedy[place[:, 0]]
                if alive is None:
                    alive = torch.zeros_like(guess.rows)
                    alive[place[:, 0], start] = True
                before = alive[place[:, 0], start] & greedy
                tried[guess.step] += float(before.sum())
                right[guess.step] += float((before & hit).sum())
                now = torch.zeros_like(alive)
                now[place[:, 0], start] = alive[place[:, 0], start] & hit
                alive = now
                ids, weights = frame.laws.ids[place[:, 0], law], frame.laws.weights[place[:, 0], law]
                norm = logits.logsumexp(-1, keepdim=True)
                chosen = logits.gather(1, ids) - norm
                overlap = torch.minimum(chosen.exp(), weights).sum(-1)
                shared[guess.step] += float(overlap[~greedy].sum())
                judged[guess.step] += float((~greedy).sum())
                if guess.step == 0:
                    loss -= float((weights * chosen).sum())
                    mass += float(len(weights))
    net.train()
    return Worth(
        tuple(r / max(t, 1.0) for r, t in zip(right, tried, strict=True)),
        tuple(s / max(j, 1.0) for s, j in zip(shared, judged, strict=True)),
        loss / max(mass, 1.0),
        int(tried[0] + judged[0]),
    )
