"""Records of trainings as one picture: loss, and alpha by position, over the tokens that were learned from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from localspec.cli.theory_plots import save

if TYPE_CHECKING:
    from pathlib import Path


def curves(records: Sequence[dict[str, Any]], path: Path) -> None:
    """Records that follow each other (a head gone on with) stand behind each other. Raises `UsageError`."""
    save({"records": list(records)}, path, draw)


def draw(document: dict[str, Any], figure: Any) -> None:
    left, right = figure.subplots(1, 2)
    before = known = 0
    for number, record in enumerate(document["records"]):
        points = record["curve"]
        tokens = [before + point["tokens"] for point in points]
        left.plot(tokens, [point["train_loss"] or None for point in points], color="C7", label="training", lw=0.9)
        left.plot(tokens, [point["loss"] for point in points], color="C0", label="held out")
        for position in range(len(points[0]["alpha"])):
            right.plot(
                tokens,
                [point["alpha"][position] for point in points],
                color=f"C{position}",
                label=f"position {position + 1}" if not number or position >= known else None,
            )
        known = len(points[0]["alpha"])
        before = tokens[-1]
    left.set_ylabel("loss of the first position")
    right.set_ylabel("alpha, greedy, held out")
    right.set_ylim(0, None)
    for axes in (left, right):
        axes.set_xlabel("answer tokens learned from")
        handles, labels = axes.get_legend_handles_labels()
        unique = dict(zip(labels, handles, strict=True))
        axes.legend(unique.values(), unique.keys())
