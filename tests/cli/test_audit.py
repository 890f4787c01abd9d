"""`localspec audit` on a tiny pair: what is printed, one JSON document, exit codes."""

from __future__ import annotations

import json
import re

import pytest

from localspec.cli import app
from localspec.core import statistics
from localspec.core.statistics import ChiSquare
from localspec.services.bench import texts as bench_texts
from tests.services import tiny

SMALL = ["--samples", "60", "--greedy", "12", "--threads", "1", "--ctx-size", "128", "--raw", "--seed", "1"]


def run(*more: str) -> int:
    pair = ["--verifier", str(tiny.model("verifier")), "--draft", str(tiny.model("draft")), "--N", "3"]
    return app.main(["audit", "to be or not to be, to be", *pair, *SMALL, *more])


def test_json_is_the_contract_s_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json") == 0
    (line,) = capsys.readouterr().out.splitlines()
    document = json.loads(line)
    assert document["schema"] == "localspec.audit/1"
    assert {"samples", "depth", "cells", "chi2", "dof", "p_value", "passed"} <= set(document)
    assert document["passed"] is True
    assert document["greedy"]["passed"] is True


def test_both_halves_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--acceptance", "rejection", "--temperature", "1") == 0
    shown = capsys.readouterr().out
    assert re.search(r"sampled: 60 plain and as many speculative draws of 2 tokens, \d+ cells", shown)
    assert "greedy: 12 tokens compared, equal" in shown
    assert "rows were read" in shown
    assert shown.splitlines()[-1] == "passed"


def test_temperature_0_compares_greedy_text_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--temperature", "0") == 0
    shown = capsys.readouterr().out
    assert "greedy: 12 tokens" in shown
    assert "sampled" not in shown


def test_a_failed_audit_leaves_with_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(statistics, "same", lambda left, right: ChiSquare(400.0, 10, 11))
    assert run() == 1
    shown = capsys.readouterr().out
    assert "does not explain it" in shown
    assert "FAILED" in shown.splitlines()[-1]


def test_an_unexplained_greedy_divergence_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """B47: only a near tie may differ."""
    from localspec.services.audit import greedy as audit_greedy

    monkeypatch.setattr(
        audit_greedy,
        "compare",
        lambda *positional, **named: audit_greedy.Greedy(
            12, (bench_texts.Difference(0, 3, 2.0, 0.01), bench_texts.Difference(0, 7, 0.001, 0.01))
        ),
    )
    assert run("--samples", "0") == 1
    shown = capsys.readouterr().out
    assert "token 4: NO near tie" in shown
    assert "token 8: a near tie" in shown


def test_without_a_prompt_a_text_is_completed_that_every_drafter_can_draft_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pair = ["--verifier", str(tiny.model("verifier")), "--drafter", "ngram", "--N", "3"]
    assert app.main(["audit", *pair, *SMALL, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["largest_draft"] == 3


def test_drafts_that_are_never_accepted_are_pointed_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--drafter", "ngram", "--greedy", "0", "--temperature", "1") == 0
    assert "nothing that was drafted was accepted" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [["--samples", "0", "--greedy", "0"], ["--depth", "0"], ["--depth", "9"], ["--samples", "-1"]],
)
def test_wrong_use(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_plain_decoding_is_nothing_to_audit(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--drafter", "none") == 1
    assert "nothing to audit" in capsys.readouterr().err
