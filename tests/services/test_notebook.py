"""What is remembered between runs: whole files only, bounded, for one model, readable by the user alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from localspec.catalog.modelfile import read_model
from localspec.core.corpus import SEPARATOR
from localspec.core.draft import Ids
from localspec.services import notebook
from localspec.services.notebook import Notebook
from tests.services import tiny
from tests.services.toy_pair import Collected


def ids(*tokens: int) -> Ids:
    return np.array(tokens, dtype=np.int32)


@pytest.fixture
def report() -> Collected:
    return Collected()


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: Collected) -> Notebook:
    monkeypatch.setenv("LOCALSPEC_CACHE", str(tmp_path / "cache"))
    return Notebook(read_model(tiny.model("verifier")), 261, report)


def test_texts_come_back_oldest_first_and_apart(book: Notebook) -> None:
    assert book.read("ngram").tolist() == []
    book.add("ngram", ids(1, 2, 3))
    book.add("ngram", ids(4, 5))
    assert book.read("ngram").tolist() == [1, 2, 3, SEPARATOR, 4, 5]
    assert book.read("other").tolist() == []


def test_a_text_that_is_known_becomes_the_latest(book: Notebook) -> None:
    for text in (ids(1, 2, 3), ids(4, 5), ids(1, 2, 3)):
        book.add("ngram", text)
    assert book.read("ngram").tolist() == [4, 5, SEPARATOR, 1, 2, 3]


def test_the_oldest_texts_make_room(book: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "MOST", 10)
    for start in (10, 20, 30, 40):
        book.add("ngram", ids(start, start + 1, start + 2))
    assert book.read("ngram").tolist() == [30, 31, 32, SEPARATOR, 40, 41, 42]
    book.add("ngram", ids(*range(100, 150)))
    assert book.read("ngram").tolist() == [*range(140, 150)], "the end of a text that is too long"


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data[:-4],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: b"<html>" + data,
    ],
)
def test_a_damaged_file_is_left_out_with_a_warning_and_replaced(
    book: Notebook, report: Collected, damage: Callable[[bytes], bytes]
) -> None:
    book.add("ngram", ids(1, 2, 3))
    path = book.path("ngram")
    path.write_bytes(damage(path.read_bytes()))
    assert book.read("ngram").tolist() == []
    (warning,) = report.warnings
    assert str(path) in warning
    book.add("ngram", ids(7, 8))
    assert book.read("ngram").tolist() == [7, 8]


def test_ids_of_another_vocabulary_are_no_use(book: Notebook, report: Collected) -> None:
    book.add("ngram", ids(1, 261))
    assert book.read("ngram").tolist() == []
    assert len(report.warnings) == 1


def test_each_model_has_its_own_file(book: Notebook, report: Collected) -> None:
    other = Notebook(read_model(tiny.model("odd")), 261, report)
    assert other.path("ngram") != book.path("ngram")


def test_a_folder_that_cannot_be_written_is_a_warning(book: Notebook, report: Collected, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    book.add("ngram", ids(1, 2))
    assert len(report.warnings) >= 1
    assert "could not write" in report.warnings[-1]


def test_only_the_user_may_read_it_and_nothing_else_is_left_behind(book: Notebook) -> None:
    book.add("ngram", ids(1, 2))
    path = book.path("ngram")
    assert [*path.parent.iterdir()] == [path]
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
