"""docs/security.md: every sentence names the test that holds it, and those tests exist."""

from __future__ import annotations

import ast
import re

from tests.cli.programs import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)


def test_every_test_that_is_named_exists() -> None:
    assert len(NAMED) > 20
    for file, name in NAMED:
        tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
        assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, f"{file}::{name}"


def test_every_section_with_claims_names_tests() -> None:
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
    without = {title for title, text in sections.items() if "::test_" not in text}
    assert without == {"What is trusted", "Reporting"}
