"""The audit: it passes what is exact, fails the four classic errors, and tells both from the backend's arithmetic."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from localspec.core.draft import Draft
from localspec.core.law import Law
from localspec.core.rejection import Rejection
from localspec.core.sampling import Sampling
from localspec.core.shapes import Shape
from localspec.drafters.base import Drafter
from localspec.engine.base import Context, Row
from localspec.engine.toy import ToyContext, ToyModel, ToyPass
from localspec.errors import DrafterError, UsageError
from localspec.loop.control import FixedLength
from localspec.services.audit import audit
from localspec.services.audit import greedy as audit_greedy
from localspec.services.audit import law as audit_law
from localspec.services.audit import sampling as audit_sampling
from localspec.services.audit.law import Request, Sampled, Subject, compare
from localspec.services.audit.rows import Recorded
from localspec.services.report import Silent
from localspec.services.settings import Acceptance, AnswerSettings
from localspec.services.single import Question
from localspec.services.theory.toy import ToyLender
from tests.services import tiny
from tests.services.planted import HONEST, LYING, Chain, Fan, Forgetful
from tests.services.toy_pair import Collected

FREE = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
PROMPT = (3, 1, 4)
SIZE = 8
VERIFIER = ToyModel(SIZE, seed=5, end_bias=-1.0)
DRAFT = ToyModel(SIZE, seed=5, end_bias=-1.0, blur=0.5)


def subject(build: Callable[[Context], Drafter], *, verifier: Context | None = None, N: int = 3) -> Subject:
    return Subject(
        verifier or Recorded(ToyContext(VERIFIER)), VERIFIER.vocab, build(Recorded(ToyContext(DRAFT))), FixedLength(N)
    )


def sampled(
    subject: Subject,
    *,
    samples: int = 3_000,
    depth: int = 2,
    sampling: Sampling = FREE,
    acceptance: Acceptance = "rejection",
    seed: int = 0,
) -> Sampled:
    return compare(subject, Request(PROMPT, sampling, samples, depth, acceptance, seed), Silent())


# --- the sampled half


@pytest.mark.parametrize("build", HONEST)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_what_is_exact_passes(build: Callable[[Context], Chain], depth: int) -> None:
    result = sampled(subject(build), depth=depth)
    assert result.passed
    assert result.test.p_value > 0.01
    assert result.padded is None
    assert result.noise == audit_law.Noise(0.0, 0.0)
    assert result.test.cells > SIZE // 2


@pytest.mark.parametrize("build", LYING)
def test_planted_errors_are_found(build: Callable[[Context], Chain]) -> None:
    """B37, B44: a law of another temperature, top picks reported as drawn, unlikely draws dropped."""
    result = sampled(subject(build))
    assert result.test.p_value < 1e-6
    assert not result.passed
    assert result.padded is not None
    assert result.padded.p_value < 1e-6


def test_a_residual_not_updated_for_siblings_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """B44: the fourth classic error is one of the rule."""
    monkeypatch.setattr(audit_sampling, "Rejection", Forgetful)
    result = sampled(subject(Fan))
    assert result.test.p_value < 1e-6
    assert not result.passed


def test_the_real_drafter_passes() -> None:
    lender = ToyLender(ToyModel(SIZE, seed=5, end_bias=0.0, blur=0.5))
    model = ToyModel(SIZE, seed=5, end_bias=0.0)
    for tree, N in ((None, 4), (Shape.branching([2, 2]), 6)):
        whole = Subject(Recorded(ToyContext(model)), model.vocab, lender.drafter("model"), FixedLength(N), tree)
        result = sampled(whole, samples=1_500)
        assert result.test.p_value > 0.01
        assert result.largest == N


def test_filters_and_the_coupled_rule_are_audited_as_well() -> None:
    filtered = sampled(subject(Chain), sampling=Sampling(top_k=4, repeat_penalty=1.2), samples=1_500)
    assert filtered.test.p_value > 0.01
    coupled = sampled(subject(Chain), acceptance="coupled", samples=500)
    assert coupled.test.p_value > 0.01


def test_true_laws_are_refused_as_rarely_as_promised() -> None:
    """60 audits of 300 samples: about 3 below 0.05, about 30 below 0.5."""
    whole = subject(Chain)
    p_values = np.array([sampled(whole, samples=300, seed=seed).test.p_value for seed in range(60)])
    assert (p_values < 0.05).sum() <= 9
    assert 18 <= (p_values < 0.5).sum() <= 42


def test_the_same_seed_gives_the_same_audit() -> None:
    one, two, other = (sampled(subject(Chain), samples=100, seed=seed).as_dict() for seed in (3, 3, 4))
    assert one == two
    assert one["commonest"] != other["commonest"]
    assert one["seed"] == 3


def test_draws_end_with_an_end_token_and_never_hold_more_than_asked() -> None:
    result = sampled(subject(Chain, N=6), samples=400, depth=3)
    for path, _, _ in result.commonest:
        assert 0 not in path[:-1]
        assert len(path) == 3 or path[-1] == 0


def test_a_drafter_that_proposes_nothing_is_no_proof() -> None:
    class Silent_(Chain):
        def draw(self, logits: Row, position: int) -> tuple[int, Law | None] | None:
            return None

    with pytest.raises(DrafterError, match="proposed nothing in 50 draws"):
        sampled(subject(Silent_), samples=50)


def test_a_drafter_that_fails_ends_the_audit() -> None:
    """Plain decoding goes on in a chat; here it would pass for a proof."""

    class Broken(Chain):
        def draw(self, logits: Row, position: int) -> tuple[int, Law | None] | None:
            raise ValueError("out of ideas")

    with pytest.raises(DrafterError, match="out of ideas"):
        sampled(subject(Broken), samples=50)


# --- the arithmetic of a backend


class Rounded(ToyContext):
    """A backend whose kernels give other rows to larger batches (B47)."""

    def __init__(self, model: ToyModel, *, shift: float) -> None:
        super().__init__(model)
        self._other = ToyModel(SIZE, seed=99)
        self._shift = shift

    def evaluate(self, pending: int, draft: Draft) -> ToyPass:
        result = super().evaluate(pending, draft)
        if not len(draft):
            return result
        rows = [result.logits(row) + self._shift * self._other.row(0, 1) for row in range(result.rows)]
        return self._pass(rows)


def test_b47_rows_that_depend_on_the_size_of_a_pass_are_told_from_errors() -> None:
    """B47: the test fails against rows of single tokens and passes against rows of as large passes."""
    result = sampled(subject(Chain, verifier=Recorded(Rounded(VERIFIER, shift=0.2))))
    assert result.test.p_value < audit_law.LEVEL
    assert result.padded is not None
    assert result.padded.p_value > 0.01
    assert result.is_explained
    assert result.passed
    assert result.noise.logits > 0.1
    assert 0.01 < result.noise.law < 0.5


@pytest.mark.parametrize("build", LYING)
def test_b47_noise_excuses_no_error(build: Callable[[Context], Chain]) -> None:
    result = sampled(subject(build, verifier=Recorded(Rounded(VERIFIER, shift=0.05))))
    assert not result.is_explained
    assert not result.passed


# --- remembered rows


@pytest.mark.parametrize("memory", [2**29, 1])
def test_remembered_rows_change_no_draw(memory: int) -> None:
    """Same seed, same draws, whether rows are computed each time, remembered, or forgotten at once."""
    direct = sampled(subject(Chain, verifier=ToyContext(VERIFIER)), samples=300, depth=3)
    remembered = sampled(subject(Chain, verifier=Recorded(ToyContext(VERIFIER), memory=memory)), samples=300, depth=3)
    assert direct.as_dict() == remembered.as_dict()


def test_few_passes_are_made_for_many_rows() -> None:
    verifier = Recorded(ToyContext(VERIFIER))
    sampled(subject(Chain, verifier=verifier), samples=1_000)
    assert verifier.passes < 400
    assert verifier.asked > 4_000
    assert verifier.rechecked > 20
    assert verifier.difference == 0.0


def test_a_pass_whose_rows_are_not_read_is_not_made() -> None:
    context = Recorded(ToyContext(VERIFIER))
    context.prefill(PROMPT[:-1], logits=False)
    result = context.evaluate(4, Draft.chain([1, 2]))
    assert context.evaluated == 0
    np.testing.assert_array_equal(result.logits(2), VERIFIER.row(1, 2))
    assert context.passes == 1
    context.commit([0])
    assert context.tokens.tolist() == [3, 1, 4, 1]
    again = context.evaluate(2, Draft.chain([]))
    np.testing.assert_array_equal(again.logits(0), VERIFIER.row(1, 2))
    with pytest.raises(IndexError, match="row 1 of 1"):
        again.logits(1)


def test_rows_are_told_apart_by_text_path_place_and_shape() -> None:
    class Odd(ToyContext):
        """Gives another row for every evaluation."""

        count = 0.0

        def _pass(self, rows: Sequence[Row]) -> ToyPass:
            self.count += 1.0
            return super()._pass([np.full(SIZE, self.count + place / 100, np.float32) for place in range(len(rows))])

    context = Recorded(Odd(VERIFIER))

    def row(text: tuple[int, ...], pending: int, draft: Draft, at: int) -> float:
        context.prefill(text, logits=False)
        return float(context.evaluate(pending, draft).logits(at)[0])

    fork = Draft(np.array([1, 2], np.int32), np.array([-1, -1], np.int32))
    seen = [
        row((3, 1), 4, Draft.chain([1, 2]), 1),
        row((3, 2), 4, Draft.chain([1, 2]), 1),
        row((3, 1), 5, Draft.chain([1, 2]), 1),
        row((3, 1), 4, Draft.chain([2, 2]), 1),
        row((3, 1), 4, Draft.chain([1, 2, 3]), 1),
        row((3, 1), 4, fork, 1),
        row((3, 1), 4, Draft.chain([1, 2]), 2),
    ]
    assert len(set(seen)) == len(seen)
    assert row((3, 1), 4, Draft.chain([1, 5]), 1) == seen[0]  # what follows a node is hidden from it


def test_a_row_that_is_not_repeatable_is_noticed() -> None:
    class Drifting(ToyContext):
        drift = 0.0

        def _pass(self, rows: Sequence[Row]) -> ToyPass:
            self.drift += 0.001
            return super()._pass([row + np.float32(self.drift) for row in rows])

    verifier = Recorded(Drifting(VERIFIER))
    sampled(subject(Chain, verifier=verifier), samples=200)
    assert verifier.difference > 0.01


# --- the greedy half


def toy_greedy(speculative: audit_greedy.Decode, *, count: int = 20) -> audit_greedy.Greedy:
    told: list[int] = []
    result = audit_greedy.compare(
        decode, speculative, ToyContext(VERIFIER), PROMPT, count=count, lengths=[2, 4], told=told.append
    )
    assert told[-1] == count
    return result


def decode(prompt: audit_greedy.Tokens, count: int) -> list[int]:
    text = list(prompt)
    for _ in range(count):
        text.append(int(VERIFIER.row(text[-2], text[-1]).argmax()))
    return text[len(prompt) :]


def test_equal_greedy_texts_pass() -> None:
    result = toy_greedy(decode)
    assert result.passed
    assert result.divergences == ()


def test_every_divergence_is_found_and_weighed() -> None:
    """One wrong token at a time; the toy's rows do not depend on batches, so none is a near tie."""
    wrong_at = {len(PROMPT) + place for place in (0, 4, 5, 19)}

    def lying(prompt: audit_greedy.Tokens, count: int) -> list[int]:
        text = list(prompt)
        for _ in range(count):
            best = int(VERIFIER.row(text[-2], text[-1]).argmax())
            text.append((best + 1) % SIZE if len(text) in wrong_at else best)
        return text[len(prompt) :]

    result = toy_greedy(lying)
    assert not result.passed
    assert [one.place for one in result.divergences] == [0, 4, 5, 19]
    assert all(one.gap > 0.0 and one.noise == 0.0 for one in result.divergences)
    assert result.as_dict()["divergences"][0]["near_tie"] is False


def test_a_text_that_ends_early_is_a_divergence_without_a_gap() -> None:
    result = toy_greedy(lambda prompt, count: decode(prompt, count)[:-1])
    assert not result.passed
    assert [(one["place"], one["gap"]) for one in result.as_dict()["divergences"]] == [(19, None)]


def test_b47_a_near_tie_is_explained_by_the_size_of_a_pass() -> None:
    """B47: a divergence at the first token, too, where only the padding of the pass makes it large."""

    class Tilted(Rounded):
        """Larger passes find more in token 2, enough to decide between the two best."""

    tie = ToyModel(SIZE, seed=5)
    tie._rows[(1, 4)] = np.array([0, 1.0, 0.99, 0, 0, 0, 0, 0], np.float32)
    result = audit_greedy.compare(
        lambda prompt, count: [1] * count,
        lambda prompt, count: [2] * count,
        Tilted(tie, shift=0.1),
        PROMPT,
        count=1,
        lengths=[2],
        told=lambda done: None,
    )
    (one,) = result.divergences
    assert one.gap == pytest.approx(0.01, abs=1e-6)
    assert one.noise > one.gap
    assert result.passed


# --- a loaded pair


def request(**keys: object) -> audit.Request:
    given = {"samples": 120, "depth": 2, "greedy": 24, **keys}
    sampling = given.pop("sampling", FREE)
    assert isinstance(sampling, Sampling)
    return audit.Request(
        Question("to be or not to be, to be", raw=True),
        AnswerSettings(sampling, acceptance="rejection", seed=1),
        **given,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("drafter", "tree"),
    [
        *(("model", "none"), ("model", "2,2"), ("ngram", "none"), ("eagle3", "none"), ("eagle3", "2,2")),
        *(("eagle3", "auto"), ("eagle1", "none"), ("eagle1", "2,2"), ("medusa", "auto")),
    ],
)
def test_a_tiny_pair_passes(drafter: str, tree: str) -> None:
    report = Collected()
    with tiny.open_pair(draft=tiny.draft_for(drafter), drafter=drafter, tree=tree, N=3) as runtime:
        result = audit.measured(runtime, request(), report)
        document = result.as_dict()
    assert result.passed
    assert {"schema", "samples", "depth", "cells", "chi2", "dof", "p_value", "passed"} <= set(document)
    assert (document["schema"], document["samples"], document["depth"]) == ("localspec.audit/1", 120, 2)
    assert document["drafter"] == drafter
    assert document["largest_draft"] >= 1
    assert document["greedy"]["tokens"] == 24
    assert document["rows"]["difference"] < 0.01
    assert report.steps[-1][0] == report.steps[-1][1]


@pytest.mark.parametrize(("verifier", "draft"), [("mamba", "mamba-draft"), ("lfm2", "lfm2-draft"), ("swa", "draft")])
def test_other_kinds_of_memory_pass(verifier: str, draft: str) -> None:
    with tiny.open_pair(verifier, draft, N=3) as runtime:
        assert audit.measured(runtime, request(samples=60), Silent()).passed


def test_auto_is_audited_with_a_fixed_length() -> None:
    with tiny.open_pair(N="auto") as runtime:
        assert audit.measured(runtime, request(samples=20, greedy=8), Silent()).N == audit.LENGTH


def test_a_greedy_law_needs_no_draws() -> None:
    with tiny.open_pair(N=3) as runtime:
        document = audit.measured(runtime, request(sampling=Sampling(temperature=0.0)), Silent()).as_dict()
    assert (document["samples"], document["chi2"], document["p_value"]) == (0, None, None)
    assert document["passed"]


def test_nothing_to_audit_is_an_error() -> None:
    with pytest.raises(UsageError, match="nothing is left to audit"):
        request(samples=0, greedy=0)
    with pytest.raises(UsageError, match="temperature 0 and no greedy"):
        request(sampling=Sampling(temperature=0.0), greedy=0)


def test_a_refused_draft_is_no_proof() -> None:
    """B03: with a draft that does not fit, the pair decodes plainly, and an audit of that would prove nothing."""
    from localspec.services.settings import EngineSettings, PairChoice

    choice = PairChoice(verifier=str(tiny.model("verifier")), draft=str(tiny.model("foreign")))
    with pytest.raises(DrafterError, match="decodes plainly"):
        audit.audit(choice, EngineSettings(ctx_size=256, threads=1), request(), Silent())


def test_a_broken_rule_fails_on_real_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a rejection this one draws from the verifier's row: the residual is forgotten."""

    class Careless(Rejection):
        def _choose(self, draft: Draft, siblings: tuple[int, ...], row: Law) -> tuple[int | None, Law]:
            return super()._choose(draft, siblings, row)[0], row

    monkeypatch.setattr(audit_sampling, "Rejection", Careless)
    with tiny.open_pair(N=3, options={"temperature": "0.3"}) as runtime:
        result = audit.measured(runtime, request(samples=2_000, depth=1, greedy=0), Silent())
    assert not result.passed
    assert result.sampled is not None
    assert result.sampled.test.p_value < 1e-6


def test_paths_of_the_commonest_draws_add_up() -> None:
    result = sampled(subject(Chain), samples=200, depth=1)
    counts: Counter[tuple[int, ...]] = Counter({path: plain for path, plain, _ in result.commonest})
    assert sum(counts.values()) == 200
    assert math.isclose(result.alpha, 0.7, abs_tol=0.2)
