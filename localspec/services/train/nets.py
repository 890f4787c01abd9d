"""The heads as PyTorch modules, computing what llama.cpp's graphs compute: RMS norms, pairwise RoPE, SwiGLU.

    Eagle3   fuses three layer inputs; runs on its own outputs for several steps (training-time test)
    Eagle1   fuses the last hidden row with the next token's embedding and predicts the next last hidden row
    Medusa   residual blocks over the last hidden row, one per position ahead

Each takes a `Batch` and yields one `Guess` per position ahead. In a guess, row p of a text is about the token that
the verifier's row `p + ahead` decides. Imports torch: load it inside functions only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Sizes:
    """What a head takes over from its verifier. vocab: of the head's output."""

    width: int
    heads: int
    heads_kv: int
    head_size: int
    feed_forward: int
    vocab: int
    features: int
    epsilon: float = 1e-5
    rope_base: float = 10000.0


@dataclass(frozen=True)
class Batch:
    """Texts side by side, padded on the right.

    tokens  (B, L + 1): row p is followed by token p + 1
    layers  (B, L, F): layer inputs, one after the other; last (B, L, D): the last hidden row
    start   (B,): first row that a draft may begin at; stop (B,): behind the last row with a law
    """

    tokens: Tensor
    layers: Tensor | None
    last: Tensor | None
    start: Tensor
    stop: Tensor

    @property
    def length(self) -> int:
        return self.tokens.shape[1] - 1

    def rows(self, ahead: int, shift: int = 0) -> Tensor:
        """(B, L) of the rows p >= start + shift whose law at p + ahead is known."""
        place = torch.arange(self.length, device=self.tokens.device)[None]
        return (place >= self.start[:, None] + shift) & (place + ahead < self.stop[:, None])


@dataclass(frozen=True)
class Guess:
    """step: position ahead, from 0. rows (B, L) of what `hidden` (M, D) and the law it is judged by belong to.

    hidden is what the output matrix reads. feature: what else was predicted, (M, D), or None.
    """

    step: int
    ahead: int
    rows: Tensor
    hidden: Tensor
    feature: Tensor | None = None


class RMSNorm(nn.Module):
    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        x = x.float()
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.epsilon) * self.weight


class Rope:
    """Rotations of neighbouring pairs, by position."""

    def __init__(self, size: int, base: float) -> None:
        self._rates = base ** (-torch.arange(0, size, 2, dtype=torch.float32) / size)

    def __call__(self, x: Tensor) -> Tensor:
        """x: (B, H, L, size), positions 0 .. L - 1."""
        angles = torch.arange(x.shape[2], dtype=torch.float32)[:, None] * self._rates
        cos, sin = angles.cos().to(x), angles.sin().to(x)
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


class Layer(nn.Module):
    """One decoder layer: attention over inputs of `inputs` numbers, then SwiGLU, around a residual stream."""

    def __init__(self, sizes: Sizes, inputs: int) -> None:
        super().__init__()
        self.sizes = sizes
        queries, keys = sizes.heads * sizes.head_size, sizes.heads_kv * sizes.head_size
        self.q = nn.Linear(inputs, queries, bias=False)
        self.k = nn.Linear(inputs, keys, bias=False)
        self.v = nn.Linear(inputs, keys, bias=False)
        self.o = nn.Linear(queries, sizes.width, bias=False)
        self.ffn_norm = RMSNorm(sizes.width, sizes.epsilon)
        self.gate = nn.Linear(sizes.width, sizes.feed_forward, bias=False)
        self.up = nn.Linear(sizes.width, sizes.feed_forward, bias=False)
        self.down = nn.Linear(sizes.feed_forward, sizes.width, bias=False)
        self._rope = Rope(sizes.head_size, sizes.rope_base)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys (both rotated) and values: (B, H, L, size); keys and values repeated for grouped queries."""
        sizes = self.sizes
        repeat = sizes.heads // sizes.heads_kv

        def split(y: Tensor, heads: int) -> Tensor:
            return y.unflatten(-1, (heads, sizes.head_size)).transpose(1, 2)

        q, k = self._rope(split(self.q(x), sizes.heads)), self._rope(split(self.k(x), sizes.heads_kv))
        v = split(self.v(x), sizes.heads_kv)
        return q, k.repeat_interleave(repeat, dim=1), v.repeat_interleave(repeat, dim=1)

    def finish(self, attended: Tensor, stream: Tensor) -> Tensor:
        """The residual stream behind the layer; `attended` as attention returns it, rows already chosen in both."""
        stream = stream + self.o(attended)
        x = self.ffn_norm(stream)
        return stream + self.down(functional.silu(self.gate(x)) * self.up(x))


def shifted(x: Tensor) -> Tensor:
    """Rows of (B, L, ..) one place later; the first is zero."""
    return torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1]), dim=1)


def later(x: Tensor, by: int) -> Tensor:
    """Rows of (B, H, L, size) `by` places later."""
    return torch.cat((torch.zeros_like(x[:, :, :by]), x[:, :, :-by]), dim=2) if by else x


def attend(q: Tensor, memory: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Attention of draft step s = len(memory): row p sees step 1 up to p - s + 1, and step t at p - s + t.

    That is what a draft's cache holds: the true features behind the text, then one own row per drafted token.
    """
    k, v = memory[0]
    behind = len(memory) - 1
    if not behind:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    scale, length = 1 / math.sqrt(q.shape[-1]), q.shape[2]
    place = torch.arange(length, device=q.device)
    unseen = place[None, :] > place[:, None] - behind
    scores = (q @ k.transpose(-1, -2)).float() * scale
    scores = scores.masked_fill(unseen, -1e9)
    own = [(later(k, behind - t), later(v, behind - t)) for t, (k, v) in enumerate(memory[1:], start=1)]
    steps = [(q * k).float().sum(-1, keepdim=True) * scale for k, _ in own]
    weights = torch.cat([scores, *steps], dim=-1).softmax(-1).to(v.dtype)
    attended = weights[..., :length] @ v
    for place_of, (_, value) in enumerate(own):
        attended = attended + weights[..., length + place_of, None] * value
    return attended


class Eagle3(nn.Module):
    """EAGLE-3 (Li et al. 2025) as llama.cpp's architecture `eagle3` computes it, norms before the fusion included."""

    kind = "eagle3"

    def __init__(self, sizes: Sizes, embedding: Tensor, steps: int) -> None:
        super().__init__()
        self.sizes = sizes
        self.steps = steps
        self.register_buffer("embedding", embedding, persistent=False)
        self.input_norm = RMSNorm(sizes.features, sizes.epsilon)
        self.fc = nn.Linear(sizes.features, sizes.width, bias=False)
        self.token_norm = RMSNorm(sizes.width, sizes.epsilon)
        self.feature_norm = RMSNorm(sizes.width, sizes.epsilon)
        self.layer = Layer(sizes, 2 * sizes.width)
        self.output_norm = RMSNorm(sizes.width, sizes.epsilon)
        self.output = nn.Linear(sizes.width, sizes.vocab, bias=False)

    def fuse(self, layers: Tensor) -> Tensor:
        return self.fc(self.input_norm(layers))

    def guesses(self, batch: Batch) -> Iterator[Guess]:
        """Step s starts from the row that step s - 1 left one place before."""
        assert batch.layers is not None
        tokens = self.token_norm(self.embedding[batch.tokens[:, 1:]].float())
        feature = self.fuse(batch.layers)
        memory: list[tuple[Tensor, Tensor]] = []
        for step in range(self.steps):
            rows = batch.rows(ahead=1, shift=step)
            q, k, v = self.layer.project(torch.cat((tokens, self.feature_norm(feature)), dim=-1))
            memory.append((k, v))
            attended = attend(q, memory).transpose(1, 2).flatten(-2)
            row = self.layer.finish(attended[rows], feature[rows])
            yield Guess(step, 1, rows, self.output_norm(row))
            if step + 1 < self.steps:
                own = torch.zeros_like(feature)
                own[rows] = row.to(own.dtype)
                feature = shifted(own)


class Eagle1(nn.Module):
    """EAGLE-1 (Li et al. 2024): from last hidden row and next token the next row, which the verifier's output reads."""

    kind = "eagle1"

    def __init__(self, sizes: Sizes, embedding: Tensor, output: Tensor, steps: int, noise: float = 0.0) -> None:
        super().__init__()
        self.sizes = sizes
        self.steps = steps
        self.noise = noise
        self.register_buffer("embedding", embedding, persistent=False)
        self.output = nn.Linear(sizes.width, sizes.vocab, bias=False)
        self.output.weight = nn.Parameter(output.clone(), requires_grad=False)
        self.fc = nn.Linear(2 * sizes.width, sizes.width)
        self.layer = Layer(sizes, sizes.width)
        self.attn_norm = RMSNorm(sizes.width, sizes.epsilon)

    def guesses(self, batch: Batch) -> Iterator[Guess]:
        """Trained one step ahead on true rows with a little noise; further steps are for measuring."""
        assert batch.last is not None
        tokens = self.embedding[batch.tokens[:, 1:]].float()
        feature = batch.last
        if self.training and self.noise:
            feature = feature + self.noise * feature.std() * (2 * torch.rand_like(feature) - 1)
        memory: list[tuple[Tensor, Tensor]] = []
        for step in range(1 if self.training else self.steps):
            rows = batch.rows(ahead=1, shift=step)
            stream = self.fc(torch.cat((tokens, feature.float()), dim=-1))
            q, k, v = self.layer.project(self.attn_norm(stream))
            memory.append((k, v))
            attended = attend(q, memory).transpose(1, 2).flatten(-2)
            row = self.layer.finish(attended[rows], stream[rows])
            yield Guess(step, 1, rows, row, row)
            if step + 1 < self.steps:
                own = torch.zeros_like(feature)
                own[rows] = row.to(own.dtype)
                feature = shifted(own)


class Medusa(nn.Module):
    """Medusa-1 (Cai et al. 2024): x + silu(W x + b) per position ahead, one output for all."""

    kind = "medusa"

    def __init__(self, sizes: Sizes, steps: int) -> None:
        super().__init__()
        self.sizes = sizes
        self.steps = steps
        self.blocks = nn.ModuleList(nn.Linear(sizes.width, sizes.width) for _ in range(steps))
        for block in self.blocks:
            nn.init.zeros_(block.weight)
            nn.init.zeros_(block.bias)
        self.output = nn.Linear(sizes.width, sizes.vocab, bias=False)

    def guesses(self, batch: Batch) -> Iterator[Guess]:
        assert batch.last is not None
        for step, block in enumerate(self.blocks):
            rows = batch.rows(ahead=1 + step)
            x = batch.last[rows].float()
            yield Guess(step, 1 + step, rows, x + functional.silu(block(x)))


Head: Any = Eagle3 | Eagle1 | Medusa


class LawLoss(torch.autograd.Function):
    """Cross entropy of the head's law against the verifier's kept tokens, without keeping (M, V) for the way back.

    ids (M, k) are places in the head's output, weights (M, k) the verifier's probabilities, 0 where it has no such
    token. What the verifier gives to tokens outside counts for nothing. Rows go through in slices that fit a cache.
    """

    SLICE = 256

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, output: Tensor, ids: Tensor, weights: Tensor, low: torch.dtype) -> Tensor:
        matrix = output.to(low)
        grad_hidden = torch.empty_like(hidden)
        grad_output = torch.zeros_like(output) if ctx.needs_input_grad[1] else None
        total = hidden.new_zeros(())
        for first in range(0, len(hidden), LawLoss.SLICE):
            part = slice(first, first + LawLoss.SLICE)
            x, places, wanted = hidden[part].to(low), ids[part], weights[part]
            logits = (x @ matrix.T).float()
            norm = logits.logsumexp(-1, keepdim=True)
            mass = wanted.sum(-1, keepdim=True)
            total += (mass * norm).sum() - (wanted * logits.gather(1, places)).sum()
            slope = logits.sub_(norm).exp_().mul_(mass).scatter_add_(1, places, -wanted).to(low)
            grad_hidden[part] = (slope @ matrix).to(hidden.dtype)
            if grad_output is not None:
                grad_output += (slope.T @ x).to(output.dtype)
        ctx.save_for_backward(grad_hidden, grad_output if grad_output is not None else hidden.new_empty(0))
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        grad_hidden, grad_output = ctx.saved_tensors
        return grad * grad_hidden, grad * grad_output if grad_output.numel() else None, None, None, None
