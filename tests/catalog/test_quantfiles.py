"""Choosing by quantisation: never a companion file, never a guess between two."""

from __future__ import annotations

import pytest

from localspec.catalog.quantfiles import choose, quant_of
from localspec.catalog.reference import HubQuant
from localspec.errors import DownloadError

FILES = [
    "README.md",
    "model-Q4_K_M.gguf",
    "model-Q4_K_S.gguf",
    "model-Q8_0.gguf",
    "model-UD-Q4_K_XL.gguf",
    "mmproj-model-Q8_0.gguf",
    "model-mmproj-Q4_K_M.gguf",
    "mtp-model-Q8_0.gguf",
    "MTP/model-Q4_K_S.gguf",
    "eagle3-model-Q8_0.gguf",
    "dflash-model-Q8_0.gguf",
    "model.imatrix-Q8_0.gguf",
    "BF16/model-BF16-00001-of-00002.gguf",
    "BF16/model-BF16-00002-of-00002.gguf",
]


@pytest.mark.parametrize(
    ("quant", "file"),
    [
        ("Q8_0", "model-Q8_0.gguf"),
        ("q4_k_m", "model-Q4_K_M.gguf"),
        ("UD-Q4_K_XL", "model-UD-Q4_K_XL.gguf"),
        ("BF16", "BF16/model-BF16-00001-of-00002.gguf"),
    ],
)
def test_the_one_model_at_a_quantisation(quant: str, file: str) -> None:
    assert choose(FILES, HubQuant("o/r", quant)) == file


def test_two_models_are_listed_not_guessed() -> None:
    with pytest.raises(DownloadError) as caught:
        choose(["a-7b-Q4_K_M.gguf", "b-1b-Q4_K_M.gguf"], HubQuant("o/r", "Q4_K_M", "v1"))
    assert "a-7b-Q4_K_M.gguf, b-1b-Q4_K_M.gguf" in str(caught.value)
    assert "hf:o/r@v1/a-7b-Q4_K_M.gguf" in caught.value.hint


@pytest.mark.parametrize("quant", ["Q4_K", "Q4", "Q5_K_M", "model"])
def test_what_is_not_there_lists_what_is(quant: str) -> None:
    with pytest.raises(DownloadError) as caught:
        choose(FILES, HubQuant("o/r", quant))
    assert "BF16, Q4_K_M, Q4_K_S, Q8_0, UD-Q4_K_XL" in caught.value.hint


def test_a_repository_without_quantised_names() -> None:
    with pytest.raises(DownloadError) as caught:
        choose(["model.gguf", "mmproj.gguf"], HubQuant("o/r", "Q8_0"))
    assert "hf:o/r/FILE.gguf" in caught.value.hint


@pytest.mark.parametrize(
    ("file", "quant"),
    [
        ("Qwen2.5-7B-Instruct-Q4_K_M.gguf", "Q4_K_M"),
        ("qwen2.5-7b-instruct-q4_k_m-00001-of-00002.gguf", "q4_k_m"),
        ("gpt-oss-20b-mxfp4.gguf", "mxfp4"),
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1"),
        ("model-f16.gguf", "f16"),
        ("Q5_K_M/model.gguf", "Q5_K_M"),
        ("Qwen3-8B.gguf", ""),
    ],
)
def test_the_quantisation_in_a_name(file: str, quant: str) -> None:
    assert quant_of(file) == quant
