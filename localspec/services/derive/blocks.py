"""Which neighbouring layers a model misses least: those whose input and output point the same way.

The mean angle between the hidden state in front of layer i and the one behind layer i + K - 1, over some text; the K
layers with the least of it go (Gromov et al. 2024, The Unreasonable Ineffectiveness of the Deeper Layers). One
evaluation of the verifier instead of one file for each choice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from localspec.catalog.modelfile import ModelFile
from localspec.engine.base import FeatureSpec
from localspec.engine.context import ContextSettings
from localspec.services.derive.recipe import inessential
from localspec.services.loading import load
from localspec.services.report import Report

TOKENS = 128
FIRST = 4  # the first tokens of a text have states unlike all others

Rows = npt.NDArray[np.float32]


def least_missed(file: ModelFile, count: int, texts: Sequence[str], report: Report) -> tuple[int, ...]:
    """`count` neighbouring layers of the model, neither its first nor its last; loads it for one evaluation.

    Raises `LoadError` when the model does not show what is between its layers.
    """
    layers = file.layers or 0
    if layers - count < 3:
        return inessential(layers, count)
    settings = ContextSettings(capacity=TOKENS)
    loaded = load(file, settings, gpu_layers=None, role="verifier", report=report)
    try:
        context = loaded.context
        capture = context.capture(FeatureSpec(tuple(range(layers))))
        text = " ".join(texts)
        ids = loaded.model.vocab.tokenize(text, add_special=False, parse_special=False)[: context.capacity]
        context.prefill(ids, logits=False)
        rows = capture.rows(0, len(ids)).reshape(len(ids), layers, -1)
        first = straightest(rows[FIRST:], count)
    finally:
        loaded.close()
    return tuple(range(first, first + count))


def straightest(rows: Rows, count: int) -> int:
    """The first of `count` layers, 1 or more, that turn (n, layers, width) layer inputs least; the last layer stays."""
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    units = rows / np.maximum(lengths, np.finfo(np.float32).tiny)
    cosines = np.einsum("nlw,nlw->nl", units[:, :-count], units[:, count:])
    angles = np.arccos(np.clip(cosines, -1.0, 1.0)).mean(axis=0)
    return 1 + int(angles[1:].argmin())
