"""The training loop: batches in, a better head out, with checkpoints that a kill cannot spoil.

AdamW with a warm-up and a cosine, clipped gradients, low precision where it is faster here. Everything that goes on
after a resume is in the checkpoint: weights, moments, the place in the data, the curves. Imports torch.
"""

from __future__ import annotations

import copy
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from localspec.errors import UsageError
from localspec.services.train.folders import Extent
from localspec.services.train.frames import Frame, Frames
from localspec.services.train.measuring import Worth, measure
from localspec.services.train.nets import LawLoss

CHECKPOINT = "checkpoint.pt"
WARM_UP = 40
NORM = 1.0
DECAY = 0.01
SMOOTH = 0.95


@dataclass(frozen=True)
class Plan:
    """steps: optimiser steps in all. later: weight of each further position's loss, as a power.

    every: steps between measurements; patience: measurements without a gain before it ends (0: never).
    """

    steps: int
    rate: float = 1e-3
    later: float = 0.8
    feature_weight: float = 0.0
    every: int = 50
    patience: int = 0
    minutes: float = 3.0
    seed: int = 0


@dataclass
class Point:
    """One measurement on held-out texts. tokens: answer tokens learned from so far, repetitions counted."""

    step: int
    tokens: int
    seconds: float
    train_loss: float
    loss: float
    alpha: tuple[float, ...]
    overlap: tuple[float, ...]
    tokens_per_pass: float


@dataclass
class Progress:
    """Where the training stands; goes into the checkpoint whole. shards: of each folder, those of this epoch."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    shards: list[int] = field(default_factory=list)
    tokens: int = 0
    seconds: float = 0.0
    train_loss: float = 0.0
    points: list[Point] = field(default_factory=list)
    best: float = 0.0
    since_best: int = 0
    finished: bool = False


Watch = Callable[[Progress], None]


def faster_precision() -> torch.dtype:
    """bfloat16 where this machine multiplies matrices faster in it than in float32, else float32."""
    times = {}
    for kind in (torch.float32, torch.bfloat16):
        left, right = torch.ones(256, 512, dtype=kind), torch.ones(512, 512, dtype=kind)
        left @ right
        takes = []
        for _ in range(3):
            started = time.perf_counter()
            left @ right
            takes.append(time.perf_counter() - started)
        times[kind] = min(takes)
    return torch.bfloat16 if times[torch.bfloat16] < 0.8 * times[torch.float32] else torch.float32


class Learning:
    """One training run. `run` ends at the last step, at a plateau, or when `stop` says so; then it can be resumed."""

    def __init__(
        self, net: Any, frames: Frames, extent: Extent, held_out: list[Frame], plan: Plan, folder: Path
    ) -> None:
        self.net = net
        self.plan = plan
        self.progress = Progress(shards=list(extent))
        self._frames = frames
        self._extent = extent
        self._held_out = held_out
        self._folder = folder
        self._low = faster_precision()
        self._best: dict[str, Any] | None = None
        self._saved = 0.0
        trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
        groups = [
            {"params": [p for p in trained if p.dim() > 1], "weight_decay": DECAY},
            {"params": [p for p in trained if p.dim() <= 1], "weight_decay": 0.0},
        ]
        self._optimiser = torch.optim.AdamW(groups, lr=plan.rate, betas=(0.9, 0.95))

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write the checkpoint; the old one stays until the new one is whole."""
        state = {
            "net": self.net.state_dict(),
            "best": self._best,
            "optimiser": self._optimiser.state_dict(),
            "progress": asdict(self.progress),
            "plan": asdict(self.plan),
            "random": torch.get_rng_state(),
            "bf16": self._low == torch.bfloat16,
            "folders": self._frames.folders.names,
        }
        unfinished = self._folder / f"{CHECKPOINT}.part"
        with unfinished.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self._folder / CHECKPOINT)

    def resume(self) -> bool:
        """Go on from the checkpoint, if there is one. Raises `UsageError` when it cannot be read."""
        path = self._folder / CHECKPOINT
        if not path.exists():
            return False
        try:
            state = torch.load(path, weights_only=True)
            self.net.load_state_dict(state["net"])
            self._optimiser.load_state_dict(state["optimiser"])
            torch.set_rng_state(state["random"])
            self._low = torch.bfloat16 if state["bf16"] else torch.float32
            self._best = state["best"]
            kept = state["progress"]
            if isinstance(kept["shards"], int):  # a checkpoint of before there could be several folders
                kept["shards"] = [kept["shards"]]
            self._check_folders(state.get("folders", []))
            points = [Point(**point) for point in kept.pop("points")]
            self.progress = Progress(**kept, points=points)
        except UsageError:
            raise
        except Exception as error:
            raise UsageError(
                f"{path} cannot be gone on from: {str(error).splitlines()[0][:200]}",
                hint="Remove it to start again, or name another folder with --output.",
            ) from error
        return True

    def _check_folders(self, known: Sequence[str]) -> None:
        """Raises `UsageError` when these are not the first ones: parts of the data are counted folder by folder."""
        names = self._frames.folders.names
        if names[: len(known)] != list(known):
            raise UsageError(
                f"the checkpoint in {self._folder} learned from {', '.join(known)}, not from {', '.join(names)}",
                hint="Name the same folders first, in that order, or start anew with another --output.",
            )

    # -- the loop -----------------------------------------------------------------------------------------------------

    def run(self, watch: Watch = lambda progress: None) -> Progress:
        """Train until the plan is done. Ctrl-C and a request to end (`SystemExit`) write a checkpoint first."""
        self.net.train()
        self._saved = time.monotonic()
        progress = self.progress
        try:
            if not progress.points:
                self._measure(watch)
            while not self._is_over():
                self._epoch(watch)
        except (KeyboardInterrupt, SystemExit):
            self.save()
            raise
        progress.finished = True
        self.save()
        return progress

    def _epoch(self, watch: Watch) -> None:
        """What is left of this epoch."""
        progress, plan, before = self.progress, self.plan, (self.progress.step, self.progress.batch)
        started = time.perf_counter()
        for frame in self._stream():
            self._step(frame)
            progress.seconds += time.perf_counter() - started
            if progress.step % plan.every == 0 or progress.step >= plan.steps:
                self._measure(watch)
            if time.monotonic() - self._saved > 60 * plan.minutes:
                self.save()
                self._saved = time.monotonic()
            if self._is_over():
                return
            watch(progress)
            started = time.perf_counter()
        if before == (progress.step, 0):
            raise UsageError("there is no text to learn from", hint="Make more with `localspec train data`.")

    def _is_over(self) -> bool:
        done, plan = self.progress, self.plan
        return done.step >= plan.steps or bool(plan.patience and done.since_best >= plan.patience)

    def _stream(self) -> Iterator[Frame]:
        """The rest of this epoch; behind it the next one begins, with the shards that are there then."""
        progress = self.progress
        yield from self._frames.epoch(progress.shards, [self.plan.seed, progress.epoch], skip=progress.batch)
        progress.epoch, progress.batch, progress.shards = progress.epoch + 1, 0, list(self._extent)

    def _step(self, frame: Frame) -> None:
        progress = self.progress
        for group in self._optimiser.param_groups:
            group["lr"] = self.plan.rate * schedule(progress.step, self.plan.steps)
        self._optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self._low == torch.bfloat16):
            total, first = self._loss(frame)
        total.backward()
        torch.nn.utils.clip_grad_norm_([p for p in self.net.parameters() if p.requires_grad], NORM)
        self._optimiser.step()
        smooth = SMOOTH if progress.step else 0.0
        progress.train_loss = smooth * progress.train_loss + (1 - smooth) * first
        progress.step += 1
        progress.batch += 1
        progress.tokens += frame.answer_tokens

    def _loss(self, frame: Frame) -> tuple[torch.Tensor, float]:
        """The loss over all positions, and that of the first one alone."""
        total = torch.zeros(())
        first = 0.0
        for guess in self.net.guesses(frame.batch):
            place = guess.rows.nonzero()
            if not len(place):
                continue
            law = place[:, 1] + guess.ahead
            ids, weights = frame.laws.ids[place[:, 0], law], frame.laws.weights[place[:, 0], law]
            with torch.autocast("cpu", enabled=False):
                loss = LawLoss.apply(guess.hidden.float(), self.net.output.weight, ids, weights, self._low) / len(place)
            if guess.step == 0:
                first = float(loss.detach())
            total = total + self.plan.later**guess.step * loss
            if guess.feature is not None and self.plan.feature_weight:
                # The row itself is the verifier's at the next place.
                assert frame.batch.last is not None
                inside = law < frame.batch.last.shape[1]
                wanted = frame.batch.last[place[inside, 0], law[inside]]
                near = torch.nn.functional.smooth_l1_loss(guess.feature[inside].float(), wanted)
                total = total + self.plan.feature_weight * near
        return total, first

    def _measure(self, watch: Watch) -> None:
        progress = self.progress
        worth: Worth = measure(self.net, self._held_out, self._low)
        progress.points.append(
            Point(
                progress.step,
                progress.tokens,
                progress.seconds,
                progress.train_loss,
                worth.loss,
                worth.alpha,
                worth.overlap,
                worth.tokens_per_pass,
            )
        )
        if worth.tokens_per_pass > progress.best or self._best is None:
            progress.best, progress.since_best = worth.tokens_per_pass, 0
            self._best = copy.deepcopy(self.net.state_dict())
        else:
            progress.since_best += 1
        watch(progress)

    def take_best(self) -> None:
        """Put the weights of the best measurement into the head."""
        if self._best is not None:
            self.net.load_state_dict(self._best)


def schedule(step: int, steps: int) -> float:
    """Share of the full rate: a straight warm-up, then half a cosine down to a twentieth."""
    warm = min(WARM_UP, max(steps // 10, 1))
    if step < warm:
        return (step + 1) / warm
    along = (step - warm) / max(steps - warm, 1)
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * min(along, 1.0)))
