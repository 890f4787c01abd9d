"""A drafter can only cost time: whatever it does wrong, the text is that of plain decoding and one warning says why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from localspec.core.draft import EMPTY, Draft, Ids
from localspec.core.law import Law
from localspec.core.rejection import Rejection
from localspec.core.sampling import Sampling
from localspec.engine.toy import ToyContext, ToyModel
from localspec.errors import DrafterError
from localspec.loop.control import FixedLength
from localspec.loop.proposer import Proposer
from tests.loop.answers import Setting
from tests.loop.scripted import Failing, Scripted, following

PROMPT = [3, 1, 4, 1, 5]


@pytest.mark.parametrize("stage", ["begin", "propose", "observe"])
@pytest.mark.parametrize("at", [1, 3])
@pytest.mark.parametrize("error", [DrafterError("its model is gone"), ValueError("oops"), MemoryError()], ids=str)
def test_a_drafter_that_raises_is_switched_off(toy: Setting, stage: str, at: int, error: Exception) -> None:
    """B70: and told once, with the reason."""
    plain = toy.answer(PROMPT).tokens
    drafter = Failing(following([*PROMPT, *plain]), stage=stage, at=at, error=error)
    answer = toy.answer(PROMPT, drafter=drafter)
    assert answer.tokens == plain
    if stage == "begin" and at == 3:
        assert toy.warnings == []
        return
    assert len(toy.warnings) == 1
    assert "failing" in toy.warnings[0]
    assert str(error) in toy.warnings[0]
    assert answer.stats.drafter == "none"


def ids(*tokens: int) -> Ids:
    return np.array(tokens, dtype=np.int32)


WRONG: dict[str, Callable[[Ids, int], Draft]] = {
    "longer than asked": lambda tokens, limit: Draft.chain([1] * (limit + 1)),
    "an id beyond the vocabulary": lambda tokens, limit: Draft.chain([1, 27]),
    "a negative id": lambda tokens, limit: Draft.chain([1, -1]),
    "a parent after its child": lambda tokens, limit: Draft(ids(1, 2, 3), ids(-1, 2, 0)),
    "its own parent": lambda tokens, limit: Draft(ids(1, 2), ids(-1, 1)),
    "a parent below the root": lambda tokens, limit: Draft(ids(1, 2), ids(-1, -2)),
    "fewer parents than tokens": lambda tokens, limit: Draft(ids(1, 2), ids(-1)),
    "fewer laws than tokens": lambda tokens, limit: Draft.chain([1, 2], [Law.one_hot(1)]),
    "no draft at all": lambda tokens, limit: cast(Draft, None),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_malformed_draft_changes_nothing(toy: Setting, name: str) -> None:
    """B70, B34: found out before the verifier sees it."""
    plain = toy.answer(PROMPT).tokens
    answer = toy.answer(PROMPT, drafter=Scripted(WRONG[name]))
    assert answer.tokens == plain
    assert len(toy.warnings) == 1


def test_missing_confidences_change_nothing(toy: Setting) -> None:
    """They are read after the verdict, when it is too late to refuse the draft."""
    plain = toy.answer(PROMPT).tokens
    right = following([*PROMPT, *plain])
    drafter = Scripted(lambda tokens, limit: replace(right(tokens, limit), confidences=(0.5,)))
    answer = toy.answer(PROMPT, drafter=drafter)
    assert answer.tokens == plain
    assert len(toy.warnings) == 1


def test_a_tree_for_a_verifier_that_takes_chains_changes_nothing() -> None:
    """B92: a sliding window or a recurrent state cannot hold branches."""
    model = ToyModel(seed=1, end_bias=-30.0)
    setting = Setting(ToyContext(model, leaves=1), model.vocab)
    plain = setting.answer(PROMPT).tokens
    answer = setting.answer(PROMPT, drafter=Scripted(lambda tokens, limit: Draft(ids(1, 2), ids(-1, -1))))
    assert answer.tokens == plain
    assert len(setting.warnings) == 1
    assert "2 paths" in setting.warnings[0]


def test_a_drafter_that_failed_stays_off(toy: Setting) -> None:
    """B70: one warning per drafter, not one per round or per answer."""
    drafter = Failing(following([]), stage="propose", at=2, error=DrafterError("no"))
    toy.answer(PROMPT, drafter=drafter)
    assert drafter.calls == 1
    assert len(toy.warnings) == 1


def test_what_has_failed_is_not_asked_again_in_later_answers(toy: Setting) -> None:
    """B70: a chat keeps its proposer. Nor is a drafter asked for a draft of nothing."""
    drafter = Failing(lambda tokens, limit: Draft.chain([1]), stage="propose", at=2, error=DrafterError("no"))
    proposer = Proposer(drafter, FixedLength(3), vocab=toy.vocab, warn=toy.warnings.append)
    text = ids(*PROMPT)
    assert proposer.propose(text, 0, leaves=1) is EMPTY
    assert drafter.calls == 0
    assert len(proposer.propose(text, 3, leaves=1)) == 1
    assert proposer.propose(text, 3, leaves=1) is EMPTY
    assert (proposer.name, proposer.heard, proposer.is_alive) == ("none", "none", False)
    calls = drafter.calls
    proposer.begin(text, sampling=Sampling(temperature=0.0), rule=Rejection(np.random.default_rng(0)), cancelled=bool)
    assert proposer.propose(text, 3, leaves=1) is EMPTY
    assert drafter.calls == calls, "begin counts from 0"
    assert len(toy.warnings) == 1


def test_a_drafter_is_told_every_verdict(toy: Setting) -> None:
    plain = toy.answer(PROMPT).tokens
    drafter = Scripted(following([*PROMPT, *plain]))
    stats = toy.answer(PROMPT, drafter=drafter).stats
    verdicts = [verdict for verdict in drafter.verdicts if verdict is not None]
    assert len(verdicts) == drafter.calls
    assert sum(len(verdict.path) for verdict in verdicts) == stats.accepted


def test_a_drafter_is_not_asked_when_nothing_fits(toy: Setting) -> None:
    """A limit of 0 is never handed on."""
    drafter = Scripted(lambda tokens, limit: EMPTY)
    toy.answer(PROMPT, drafter=drafter)
    assert min(drafter.limits) >= 1


def test_the_drafter_never_sees_another_text_than_the_committed_one() -> None:
    """Each `propose` gets the prompt and everything emitted so far, pending token included."""
    model = ToyModel(seed=1, end_bias=-30.0)
    setting = Setting(ToyContext(model), model.vocab)
    seen: list[list[int]] = []

    def propose(tokens: Ids, limit: int) -> Draft:
        seen.append(tokens.tolist())
        return Draft.chain([1])

    answer = setting.answer(PROMPT, drafter=Scripted(propose), N=1)
    whole = [*PROMPT, *answer.tokens]
    assert seen[0] == PROMPT
    assert all(text == whole[: len(text)] for text in seen)
    assert [len(text) for text in seen] == sorted(len(text) for text in seen)
