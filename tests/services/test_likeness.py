"""Two models compared token by token, on toy models whose laws can be summed up."""

from __future__ import annotations

import numpy as np
import pytest

from localspec.core import theory
from localspec.engine.toy import ToyContext, ToyModel
from localspec.services.derive.likeness import Likeness, Share, compare

FLAT = tuple((n, 1.0) for n in range(1, 10))


def never(_: int) -> bool:
    return False


def compared(draft: ToyModel, *, tokens: int = 400, is_end=never) -> tuple[Share, Share, float]:  # type: ignore[no-untyped-def]
    verifier, second = ToyContext(ToyModel(8, seed=1)), ToyContext(draft)
    heard: list[int] = []
    found = compare(
        verifier,
        second,
        [[1, 2], [3, 4]],
        tokens=tokens,
        is_end=is_end,
        rng=np.random.default_rng(0),
        told=heard.append,
    )
    assert heard == sorted(heard)
    assert heard[-1] == found[0].tokens + found[1].tokens
    return found


def test_a_model_agrees_with_itself() -> None:
    agreement, alpha, cost = compared(ToyModel(8, seed=1))
    assert (agreement.value, agreement.tokens) == (1.0, 400)
    assert alpha.value == pytest.approx(1.0, abs=1e-6)
    assert cost > 0.0


def test_alpha_is_the_overlap_of_the_laws_where_the_text_goes() -> None:
    """Against the long-run mean by matrix algebra, which knows nothing of the sampled text."""
    verifier, draft = ToyModel(8, seed=1), ToyModel(8, seed=1, blur=0.4)

    def laws(model: ToyModel) -> np.ndarray:
        rows = np.array([[model.row(a, b) for b in range(8)] for a in range(8)], dtype=np.float64)
        weights = np.exp(rows - rows.max(axis=-1, keepdims=True))
        return weights / weights.sum(axis=-1, keepdims=True)

    q, p = laws(verifier), laws(draft)
    expected = float((theory.long_run(q) * np.minimum(q, p).sum(axis=-1)).sum())
    _, alpha, _ = compared(draft)
    assert alpha.value == pytest.approx(expected, abs=0.05)
    assert 0.3 < expected < 0.95


def test_agreement_counts_favourites_on_greedy_text() -> None:
    draft = ToyModel(8, seed=1, blur=0.4)
    verifier, text, agreed = ToyModel(8, seed=1), [1, 2], 0
    for _ in range(30):
        row = verifier.row(*text[-2:])
        agreed += int(row.argmax()) == int(draft.row(*text[-2:]).argmax())
        text.append(int(row.argmax()))
    found = compare(
        ToyContext(verifier), ToyContext(draft), [[1, 2]], tokens=30, is_end=never, rng=np.random.default_rng(0),
        told=lambda _: None,
    )  # fmt: skip
    assert found[0].value == agreed / 30


def test_a_text_ends_where_the_model_ends_it() -> None:
    agreement, alpha, _ = compared(ToyModel(8, seed=1), is_end=lambda token: True)
    assert (agreement.tokens, alpha.tokens) == (2, 2)


@pytest.mark.parametrize(("alpha", "c", "N", "speedup"), [(0.8, 0.05, 8, 3.09), (0.1, 0.9, 0, 1.0)])
def test_the_best_length_of_design(alpha: float, c: float, N: int, speedup: float) -> None:
    """Where passes of any size cost the same this is Leviathan's arithmetic."""
    likeness = Likeness(Share(alpha, 100), Share(alpha, 100), c, FLAT)
    length, expected = likeness.best(alpha)
    assert length == N
    assert expected == pytest.approx(speedup, abs=0.005)
    assert likeness.is_worth_it is (N > 0)


def test_steep_passes_make_drafting_worthless() -> None:
    steep = tuple((n, float(n)) for n in range(1, 10))
    assert Likeness(Share(0.9, 100), Share(0.9, 100), 0.05, steep).best(0.9) == (0, 1.0)
