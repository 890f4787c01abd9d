"""A head in real answers: what it learned by heart it drafts, and the table says how well."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from localspec.errors import LocalspecError, UsageError
from localspec.services.prompts import Prompt
from localspec.services.report import Silent
from localspec.services.settings import EngineSettings
from localspec.services.train.evaluation import EvalRequest, by_position, evaluate
from localspec.services.train.head import HeadResult
from tests.services.train.conftest import Lesson

LEARNED = Prompt("1", "learned", "tell me the text")


@pytest.mark.parametrize("kind", ["eagle3", "eagle1", "medusa"])
def test_a_head_drafts_in_real_answers_what_it_learned(
    lesson: Lesson, pupil: Callable[[str], HeadResult], kind: str
) -> None:
    head = pupil(kind)
    asked = EvalRequest([head.path], [LEARNED], str(lesson.verifier), temperatures=(0.0, 1.0), max_tokens=100, raw=True)
    result = evaluate(asked, EngineSettings(ctx_size=256, threads=1), Silent())
    rows = {(row.name, row.tree, row.temperature): row for row in result.rows}
    chain = rows[kind, "none", 0.0]
    assert chain.alpha[0] >= 0.9
    if kind != "eagle1":  # which never sees its own rows in training
        assert min(chain.alpha[:3]) >= 0.9
        assert chain.tokens_per_pass > 3.4
    assert rows[kind, "auto", 0.0].tokens_per_pass > 1.8
    assert rows[kind, "none", 1.0].tokens_per_pass < chain.tokens_per_pass
    assert ("ngram", "none", 0.0) in rows
    assert result.as_dict()["schema"] == "localspec.train-eval/1"


def test_alpha_by_position_is_among_those_that_were_reached() -> None:
    assert by_position([50, 20, 5], 100) == (0.5, 0.4, 0.25)
    assert by_position([10, 0], 40) == (0.25, 0.0)
    assert by_position([], 10) == ()


def test_nothing_to_evaluate(lesson: Lesson) -> None:
    with pytest.raises(UsageError, match="nothing to evaluate"):
        evaluate(EvalRequest([], [LEARNED]), EngineSettings(), Silent())
    with pytest.raises(LocalspecError, match="no head"):
        evaluate(EvalRequest([lesson.verifier], [LEARNED], str(lesson.verifier)), EngineSettings(), Silent())
