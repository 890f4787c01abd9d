"""tests/cases.md says which test holds which failure that people met: it must be whole, and it must be true."""

from __future__ import annotations

from pathlib import Path

from docs import render_cases
from docs.render_cases import GROUPS, WHY_NOT, collect, named_in, problems, render


def test_every_row_has_a_test_or_a_reason_and_the_page_is_current() -> None:
    named = collect(render_cases.TESTS)
    assert problems(named) == []
    assert render_cases.PAGE.read_text(encoding="utf-8") == render(named), "run `make docs`"


def test_only_rows_of_features_that_are_missing_go_without() -> None:
    assert set(WHY_NOT) <= set(GROUPS["K. Grammars, trees, heads, server"])


SOURCE = '''
"""About B12."""

# --- B34: a section ---


def helper() -> None:
    """B56 is no test's."""


def test_under_the_section() -> None:
    pass


@mark("B78")
def test_b90_by_name() -> None:
    """B91, not B9 and not AB92C."""
'''


def test_where_a_row_may_be_named() -> None:
    assert list(named_in(SOURCE, "x.py")) == [
        ("B12", "x.py", ""),
        ("B34", "x.py", "test_under_the_section"),
        ("B78", "x.py", "test_b90_by_name"),
        ("B90", "x.py", "test_b90_by_name"),
        ("B91", "x.py", "test_b90_by_name"),
    ]


def test_what_is_missing_or_unknown_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text("def test_b01() -> None: ...\ndef test_b99() -> None: ...\n")
    found = problems(collect(tmp_path))
    assert "B03 has neither a test nor a reason" in found
    assert "B99 is named by a test but is no row" in found
    assert not [line for line in found if line.startswith(("B01", "B90"))]
