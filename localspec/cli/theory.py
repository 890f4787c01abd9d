"""`localspec theory`: the arithmetic of speculative decoding on a toy model; no GGUF, no download.

Parses, calls `services.theory*`, prints. Knows no formulas of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localspec.cli import theory_plots, theory_tables
from localspec.cli.charts import check_plot
from localspec.cli.console import Terminal, out, print_json
from localspec.cli.options import one_of

if TYPE_CHECKING:
    from rich.console import RenderableType

app = typer.Typer(
    name="theory",
    help="The arithmetic of speculative decoding on a toy model: no download, repeatable by --seed.",
    rich_markup_mode="rich",
    no_args_is_help=True,
)

Seed = Annotated[int, typer.Option("--seed", min=0, help="Toy models and draws follow from it.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="FILE.png", help="Draw it, too (extra: plot).")]
Cost = Annotated[
    float, typer.Option("--c", min=0.0, help="Cost of one draft token; a verifier pass costs 1.", show_default=True)
]
MOST_SAMPLES = 10_000_000
"""Hours of work, and counts that still fit everything they are added up in."""

CHECK = """
[bold]Examples[/bold]

localspec theory check

localspec theory check --samples 5000 --N 8 --seed 7

localspec theory check --acceptance coupled --samples 5000
"""
SWEEP = """
[bold]Examples[/bold]

localspec theory sweep --alpha 0.8 --c 0.05

localspec theory sweep --alpha 0.6 --c 0.2 --plot sweep.png
"""
TREE = """
[bold]Examples[/bold]

localspec theory tree

localspec theory tree --shape 2,2,2 --shape 4,2,1 --samples 5000
"""
ROLLBACK = """
[bold]Examples[/bold]

localspec theory rollback

localspec theory rollback --json
"""
DISTANCE = """
[bold]Examples[/bold]

localspec theory distance

localspec theory distance --samples 20000 --plot distance.png
"""


@app.command(epilog=CHECK)
def check(
    samples: Annotated[int, typer.Option("--samples", min=1, max=MOST_SAMPLES, help="Steps with each draft.")] = 50_000,
    N: Annotated[int, typer.Option("--N", min=1, max=64, help="Tokens drafted per step.")] = 4,
    acceptance: Annotated[
        str, typer.Option("--acceptance", metavar="rejection|coupled", help="The rule that judges.")
    ] = "rejection",
    seed: Seed = 0,
    json: Json = False,
    plot: Plot = None,
) -> None:
    """Does speculation emit the verifier's law? A chi-square test of real rounds with a good, a fair and a poor draft.

    Exit code 1 when the statistic is above the 95 % critical value; an exact sampler is above it for 1 seed in 20.
    """
    from localspec.services.theory import theory

    rule = one_of("--acceptance", acceptance, ("rejection", "coupled"))
    check_plot_first(plot)
    with Terminal() as report:
        result = theory.check(samples=samples, N=N, seed=seed, acceptance=rule, report=report)
    show(result.as_dict(), json, plot, theory_tables.check, theory_plots.check)
    if not result.passed:
        raise typer.Exit(1)


@app.command(epilog=SWEEP)
def sweep(
    alpha: Annotated[float, typer.Option("--alpha", min=0.0, max=1.0, help="Acceptance of one drafted token.")] = 0.8,
    c: Cost = 0.05,
    longest: Annotated[int, typer.Option("--longest", min=1, max=64, help="Largest N looked at.")] = 10,
    seed: Seed = 0,
    json: Json = False,
    plot: Plot = None,
) -> None:
    """Tokens per pass, time per token and speed-up over N; alpha over the quality of the draft."""
    from localspec.services.theory import theory

    check_plot_first(plot)
    show(theory.Sweep(alpha, c, longest, seed).as_dict(), json, plot, theory_tables.sweep, theory_plots.sweep)


@app.command(epilog=TREE)
def tree(
    shape: Annotated[
        list[str] | None, typer.Option("--shape", metavar="2,2,2", help="Branches per depth; repeatable.")
    ] = None,
    samples: Annotated[
        int, typer.Option("--samples", min=1, max=MOST_SAMPLES, help="Rounds of each shape with each draft.")
    ] = 2_000,
    c: Cost = 0.05,
    seed: Seed = 0,
    json: Json = False,
    plot: Plot = None,
) -> None:
    """Trees against chains of as many tokens: acceptance by leaf, tokens per pass, with three drafts."""
    from localspec.services.theory import tree as theory_tree

    check_plot_first(plot)
    with Terminal() as report:
        result = theory_tree.trees(shapes=shape or theory_tree.SHAPES, samples=samples, c=c, seed=seed, report=report)
    show(result.as_dict(), json, plot, theory_tables.tree, theory_plots.tree)


@app.command(epilog=ROLLBACK)
def rollback(seed: Seed = 0, json: Json = False, plot: Plot = None) -> None:
    """What the cache holds before, during and after a round, when all or some of a draft is rejected.

    Exit code 1 when a committed token is lost or the next law is not a fresh cache's.
    """
    from localspec.services.theory import rollback as theory_rollback

    check_plot_first(plot)
    result = theory_rollback.rollback(seed=seed)
    show(result.as_dict(), json, plot, theory_tables.rollback, theory_plots.rollback)
    if not result.passed:
        raise typer.Exit(1)


@app.command(epilog=DISTANCE)
def distance(
    samples: Annotated[int, typer.Option("--samples", min=1, max=MOST_SAMPLES, help="Draws with each draft.")] = 5_000,
    seed: Seed = 0,
    json: Json = False,
    plot: Plot = None,
) -> None:
    """Acceptance against the distance between the two laws: total variation, KL and what they guarantee."""
    from localspec.services.theory import distance as theory_distance

    check_plot_first(plot)
    with Terminal() as report:
        result = theory_distance.distance(samples=samples, seed=seed, report=report)
    show(result.as_dict(), json, plot, theory_tables.distance, theory_plots.distance)


def check_plot_first(plot: Path | None) -> None:
    """What would be wrong with --plot is said before the work."""
    if plot is not None:
        check_plot(plot)


def show(
    document: dict[str, Any],
    json: bool,
    plot: Path | None,
    tables: Callable[[dict[str, Any]], list[RenderableType]],
    draw: Callable[[dict[str, Any], Any], None],
) -> None:
    """The document as JSON or as tables, and as a picture."""
    if plot is not None:
        theory_plots.save(document, plot, draw)
    if json:
        print_json(document)
        return
    for part in tables(document):
        out().print(part)
