"""A toy that speaks: a few words, letters of several bytes, ends and control tokens; the last two tokens decide.

Its text has everything that makes text hard, and repeats itself enough for lookup to be right at times. Knows nothing
of runtimes.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from localspec.core.coupled import Coupled
from localspec.core.sampling import Sampling
from localspec.engine.base import Row, Vocab
from localspec.engine.toy import ToyModel
from tests.services import fakes

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role[0] }}{{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>a{% endif %}"
)


class Speech(fakes.FakeVocab):
    """`FakeVocab` with what a runtime asks for besides."""

    bos, eos = fakes.BOS, fakes.END

    def text(self, token: int) -> str:
        return self.piece(token, special=True).decode()


VOCAB = Speech()
USUAL = [
    fakes.END,
    *(VOCAB.encode("one")),
    *(VOCAB.encode(" the")),
    *(VOCAB.encode(" cat")),
    *(VOCAB.spell("ab é😀")),
    fakes.BYTES + 0xFF,  # stands in no text
    fakes.START,
]
"""What is said most of the time."""


class Speaker(ToyModel):
    """Logits after two tokens: high for the usual ones, low but not out of reach for all others."""

    def __init__(self, seed: int, *, blur: float = 0.0) -> None:
        super().__init__(VOCAB.size, seed=seed, sharpness=2.5, end_bias=0.0, blur=blur)

    def row(self, before: int, last: int) -> Row:
        key = (before, last)
        if key not in self._rows:
            row = super().row(before, last).copy()
            row[USUAL] += 9.0
            for one, following in zip(VOCAB.spell("é😀"), VOCAB.spell("é😀")[1:], strict=False):
                if one == last and following != VOCAB.spell("😀")[0]:
                    row[following] += 4.0
            self._rows[key] = row
        return self._rows[key]


@dataclass(frozen=True)
class Said:
    """What an answer has to be; `uncut`: its tokens with those that a stop string takes back."""

    tokens: tuple[int, ...]
    text: str
    reason: str
    uncut: tuple[int, ...] = ()


Pick = Callable[[Sequence[int]], int]
"""The next token of a text."""


def plain(
    pick: Pick, vocab: Vocab, prompt: Sequence[int], *, max_tokens: int | None, stops: Sequence[str], capacity: int
) -> Said:
    """The answer by the plainest loop, one token at a time."""
    text, tokens = list(prompt), list[int]()
    if max_tokens == 0:
        return Said((), "", "length")
    while True:
        tokens.append(pick(text))
        text.append(tokens[-1])
        shown, _ = decoded(vocab, tokens)
        places = [shown.index(stop) for stop in stops if stop in shown]
        if places and not vocab.is_end(tokens[-1]):
            kept = [count for count in range(len(tokens)) if fits_before(vocab, tokens[:count], min(places))]
            return Said(tuple(tokens[: max(kept)]), shown[: min(places)], "stop", tuple(tokens))
        for is_over, reason in (
            (vocab.is_end(tokens[-1]), "stop"),
            (len(tokens) == max_tokens, "length"),
            (len(text) > capacity, "context"),
        ):
            if is_over:
                return Said(tuple(tokens), spelled(vocab, tokens), reason, tuple(tokens))


def toy_pick(model: ToyModel, sampling: Sampling, seed: int | None) -> Pick:
    """What a toy says next; `seed` None: the likeliest."""

    def pick(text: Sequence[int]) -> int:
        row = model.row(text[-2] if len(text) > 1 else 0, text[-1])
        law = sampling.law(row, np.array(text, dtype=np.int32))
        return int(law.dense(model.size).argmax()) if seed is None else Coupled(seed).winner(law, len(text))

    return pick


def fits_before(vocab: Vocab, tokens: Sequence[int], place: int) -> bool:
    """Do these tokens spell whole letters, all of them before `place`?"""
    shown, rest = decoded(vocab, tokens)
    return not rest and len(shown) <= place


def decoded(vocab: Vocab, tokens: Sequence[int]) -> tuple[str, bytes]:
    """The whole letters that tokens spell, and the bytes of one that is not whole yet."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(b"".join(vocab.piece(token) for token in tokens))
    return text, decoder.getstate()[0]


def spelled(vocab: Vocab, tokens: Sequence[int]) -> str:
    """What tokens spell, replacement marks included."""
    return b"".join(vocab.piece(token) for token in tokens).decode("utf-8", "replace")
