"""Fixtures that many tests share: the real models, fetched or made once per user and kept in the cache folder.

Tests that ask for one are marked `gguf`. Tiny random models are written by tests/zoo.py instead.
"""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

# Some examples load a model or start llama.cpp: a deadline in milliseconds would only say how busy the machine is.
hypothesis.settings.register_profile("localspec", deadline=None)
hypothesis.settings.load_profile("localspec")


# What one test teaches a controller is none of the next one's business, nor of the user's.
os.environ["LOCALSPEC_PROFILES"] = "off"


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct, Q4_1."""
    from bench import weights

    return weights.smollm2()


@pytest.fixture(scope="session")
def smollm2_f32(smollm2: Path) -> Path:
    """The same weights as F32: memory-bound, and its batches agree with single tokens."""
    from bench import quantize

    return quantize.variant(smollm2, "F32")


@pytest.fixture(scope="session")
def smollm2_q4_0(smollm2: Path) -> Path:
    """The same weights as Q4_0: a fast draft that often agrees."""
    from bench import quantize

    return quantize.variant(smollm2, "Q4_0")


@pytest.fixture(scope="session")
def gemma() -> Path:
    """Gemma-3-270M (base), Q4_K_M: sliding-window attention, no chat template."""
    from bench import weights

    return weights.gemma()
