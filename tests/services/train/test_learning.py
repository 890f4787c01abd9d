"""Heads learn a text by heart in two hundred steps; a killed training goes on as if nothing had happened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from localspec.catalog.modelfile import read_model
from localspec.errors import UsageError
from localspec.services.report import Silent
from localspec.services.train.data import DataRequest, make
from localspec.services.train.export import Exported
from localspec.services.train.head import HeadRequest, HeadResult, train
from localspec.services.train.learning import CHECKPOINT, Progress, schedule
from localspec.services.train.nets import LawLoss
from localspec.services.train.shards import Manifest, Store
from localspec.services.train.weights import Verifier
from tests.services.train.conftest import RATES, Lesson, request_of


@pytest.mark.parametrize("kind", ["eagle3", "eagle1", "medusa"])
def test_a_head_learns_a_text_by_heart(pupil: Callable[[str], HeadResult], kind: str) -> None:
    result = pupil(kind)
    alpha = result.record["held_out"]["alpha"]
    assert alpha[0] >= 0.9
    if kind != "eagle1":  # which never sees its own rows in training
        assert min(alpha) >= 0.9
    assert result.record["vocabulary"]["coverage"] == 1.0
    assert result.path.stat().st_size == result.bytes


def test_training_on_own_outputs_is_what_later_positions_need(
    lesson: Lesson, tmp_path: Path, pupil: Callable[[str], HeadResult]
) -> None:
    """Exposure bias in small: without training-time test the head is good at the first position only."""
    wanted = request_of(lesson, tmp_path, rate=RATES["eagle3"])
    learned = pupil("eagle3").record["held_out"]["alpha"]
    without = replace(wanted, output=tmp_path / "without", ahead=1)
    head = train(without, Silent()).path
    measured = train(replace(wanted, output=tmp_path / "measured", init=head, steps=1, rate=1e-9), Silent())
    blind = measured.record["held_out"]["alpha"]
    assert blind[0] >= 0.9
    assert learned[1] > blind[1] + 0.1


def test_states_that_were_not_stored_are_computed_with_the_same_weights(lesson: Lesson, tmp_path: Path) -> None:
    """Once the training went back to the verifier's own file although the answers were made with a wider one."""
    losses = []
    for states in ("stored", "recaptured"):
        folder = tmp_path / states
        made = DataRequest(
            str(lesson.verifier),
            folder,
            tokens=400,
            answer=40,
            parallel=4,
            top=8,
            states=states,  # type: ignore[arg-type]
            hold="bf16",
        )
        make(made, Silent())
        for copy in folder.glob("*.gguf"):
            copy.unlink()
        wanted = HeadRequest((folder,), tmp_path / f"{states}-head", steps=3, vocab=261, batch=600, every=1, threads=1)
        losses.append([point["loss"] for point in train(wanted, Silent()).record["curve"]])
        assert [copy.name for copy in folder.glob("*.gguf")] == ["verifier.bf16.gguf"] * (states == "recaptured")
    assert losses[0] == pytest.approx(losses[1], abs=0.05)  # other batches, other roundings


class Killed(BaseException):
    """Stands for a kill: nothing may be written after it."""


def test_a_killed_training_goes_on_where_its_checkpoint_was(
    lesson: Lesson, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed twice, it ends with the very weights of a training that was left alone.

    The precision that it began in is gone on with, whatever is faster when it starts again.
    """
    precisions = iter((torch.bfloat16, torch.bfloat16, torch.float32, torch.float32))
    monkeypatch.setattr("localspec.services.train.learning.faster_precision", lambda: next(precisions))
    alone = train(request_of(lesson, tmp_path / "alone", steps=40, every=20), Silent())
    wanted = request_of(lesson, tmp_path / "killed", steps=40, every=20, minutes=0.0)
    for deadline in (7, 29):

        def kill(progress: Progress, deadline: int = deadline) -> None:
            if progress.step == deadline:
                raise Killed

        with pytest.raises(Killed):
            train(wanted, Silent(), kill)
    result = train(wanted, Silent())
    assert result.record["trained"]["steps"] == 40
    assert weights(result) == weights(alone)
    assert [point["step"] for point in result.record["curve"]] == [0, 20, 40]


def test_a_training_on_two_folders_goes_on_when_one_has_grown(lesson: Lesson, tmp_path: Path) -> None:
    """The epoch that was cut ends with the texts that it began with, the next one has the new ones, too."""
    one = Store.open(lesson.folder)
    texts = one.read(one.manifest.shards[0])
    first, second = (
        Store.create(tmp_path / name, Manifest(one.manifest.verifier, one.manifest.settings))
        for name in ("first", "second")
    )
    first.add(texts)
    second.add(texts)
    wanted = request_of(lesson, tmp_path / "head", data=(first.folder, second.folder), steps=12, minutes=0.0)
    seen: list[Progress] = []

    def watch(progress: Progress) -> None:
        seen.append(replace(progress))
        if len(seen) == 3:
            raise Killed

    with pytest.raises(Killed):
        train(wanted, Silent(), watch)
    first.add([replace(text, index=index) for index, text in enumerate(texts, len(texts))])
    result = train(wanted, Silent(), watch)
    assert {tuple(progress.shards) for progress in seen if progress.epoch == 0} == {(1, 1)}
    assert {tuple(progress.shards) for progress in seen if progress.epoch > 0} == {(2, 1)}
    assert result.record["trained"]["epochs"] > 0
    data = result.record["data"]
    assert data["top"] == one.manifest.settings["top"]
    assert [(each["folder"], each["texts"]) for each in data["folders"]] == [("first", 18), ("second", 9)]
    assert data["texts"] == 27


def test_a_checkpoint_of_before_there_were_several_folders(lesson: Lesson, tmp_path: Path) -> None:
    wanted = request_of(lesson, tmp_path, steps=1)
    train(wanted, Silent())
    state = torch.load(tmp_path / CHECKPOINT, weights_only=True)
    state["progress"]["shards"] = 1
    torch.save(state, tmp_path / CHECKPOINT)
    assert train(replace(wanted, steps=4), Silent()).record["trained"]["steps"] == 4


def test_a_training_goes_on_wherever_in_an_epoch_it_ended(lesson: Lesson, tmp_path: Path) -> None:
    """Behind the last batch of an epoch it once said that there was no text to learn from."""
    for steps in range(1, 6):
        trained = train(request_of(lesson, tmp_path, steps=steps), Silent()).record["trained"]
        assert trained["steps"] == steps
    assert trained["epochs"] > 0


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_whoever_is_asked_to_end_leaves_a_checkpoint(lesson: Lesson, tmp_path: Path, kind: type[BaseException]) -> None:
    """SIGTERM, which ends programs by `SystemExit`, lost what was learned since the last checkpoint."""

    def stop(progress: Progress) -> None:
        if progress.step == 7:
            raise kind(143)

    with pytest.raises(kind) as caught:
        train(request_of(lesson, tmp_path, steps=20, every=20), Silent(), stop)
    assert caught.value.args == (143,)
    seen: list[int] = []
    train(request_of(lesson, tmp_path, steps=20, every=20), Silent(), lambda progress: seen.append(progress.step))
    assert seen[0] == 8


def weights(result: HeadResult) -> bytes:
    return result.path.read_bytes()


def test_a_checkpoint_cut_short_is_named(lesson: Lesson, tmp_path: Path) -> None:
    wanted = request_of(lesson, tmp_path, steps=5)
    train(wanted, Silent())
    checkpoint = tmp_path / CHECKPOINT
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    with pytest.raises(UsageError, match=CHECKPOINT):
        train(replace(wanted, steps=9), Silent())


def test_a_head_goes_on_from_an_exported_one(
    lesson: Lesson, tmp_path: Path, pupil: Callable[[str], HeadResult]
) -> None:
    first = pupil("eagle3")
    more = train(request_of(lesson, tmp_path / "more", init=first.path, steps=1, every=1), Silent())
    assert more.record["curve"][0]["alpha"][0] == pytest.approx(first.record["held_out"]["alpha"][0], abs=0.05)


def test_a_vocabulary_is_widened_without_forgetting(lesson: Lesson, tmp_path: Path) -> None:
    """A head of few tokens goes on with more: what it could say it says as before."""
    small = train(request_of(lesson, tmp_path / "small", vocab=60, rate=2e-3, steps=100), Silent())
    wide = train(request_of(lesson, tmp_path / "wide", vocab=261, init=small.path, steps=1, rate=1e-9), Silent())
    assert wide.record["vocabulary"]["size"] == 261
    few, many = Exported(small.path), Exported(wide.path)
    known = few.vocabulary(261)
    kept = many.vocabulary(261).places[known.ids]
    assert (kept >= 0).all()
    assert np.allclose(rows_of(many)[kept], rows_of(few), atol=1e-3)
    assert wide.record["vocabulary"]["coverage"] > small.record["vocabulary"]["coverage"]


def rows_of(head: Exported) -> np.ndarray:
    return Verifier.read(read_model(head.path)).output()


def test_what_does_not_fit_is_told_before_the_work(lesson: Lesson, tmp_path: Path) -> None:
    first = train(request_of(lesson, tmp_path / "first", steps=1), Silent())
    with pytest.raises(UsageError, match="eagle3, not medusa"):
        train(request_of(lesson, tmp_path / "other", kind="medusa", init=first.path), Silent())
    with pytest.raises(UsageError, match="three layers"):
        train(request_of(lesson, tmp_path / "layers", layers=(0, 1)), Silent())
    with pytest.raises(UsageError, match="--kind"):
        request_of(lesson, tmp_path, kind="eagle2")
    with pytest.raises(UsageError, match="no training data"):
        train(HeadRequest((tmp_path / "nowhere",), tmp_path / "out"), Silent())


def test_the_loss_is_the_cross_entropy_and_so_are_its_slopes() -> None:
    """Computed in slices without keeping the laws; compared with the plain formula and its gradients."""
    torch.manual_seed(0)
    rows, size, vocab, kept = 300, 16, 40, 5  # more rows than one slice holds
    hidden = torch.randn(rows, size, requires_grad=True)
    output = torch.randn(vocab, size, requires_grad=True)
    ids = torch.stack([torch.randperm(vocab)[:kept] for _ in range(rows)])
    weights = torch.rand(rows, kept) / kept
    plain = -(weights * (hidden @ output.T).log_softmax(-1).gather(1, ids)).sum()
    expected = torch.autograd.grad(plain, (hidden, output))
    loss = LawLoss.apply(hidden, output, ids, weights, torch.float32)
    found = torch.autograd.grad(loss, (hidden, output))
    assert float(loss.detach()) == pytest.approx(float(plain.detach()), rel=1e-5)
    for mine, theirs in zip(found, expected, strict=True):
        assert np.allclose(mine.numpy(), theirs.numpy(), atol=1e-4)


def test_the_rate_rises_and_falls() -> None:
    rates = [schedule(step, 1000) for step in range(1000)]
    assert rates[0] < 0.1
    assert max(rates) == pytest.approx(1.0)
    assert rates[-1] < 0.06
