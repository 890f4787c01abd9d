"""`localspec bench`: plain against speculative decoding on this machine, in one table.

Parses, calls `services.bench`, prints. Knows no figures of its own.
"""

from __future__ import annotations

import csv
import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from localspec.cli.console import Terminal, out, print_json
from localspec.cli.options import Shared, draft_length, tree, with_shared
from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.services.bench.bench import Bench, Request

EXAMPLES = """
[bold]Examples[/bold]

localspec bench --N 5

localspec bench --drafter ngram,model --N 1,2,5,auto --plot speedup.png

localspec bench --prompts question.jsonl --categories summarization,rag --limit 4 --format md
"""

MAX_TOKENS = 128  # per answer, where --max-tokens is not given
FORMATS = ("table", "json", "csv", "md")
PANEL = "Benchmark"
INTERRUPTED = 130  # exit code


@with_shared
def bench(
    shared: Shared,
    prompts: Annotated[
        Path | None,
        typer.Option(
            "--prompts", metavar="FILE", help="Prompts in Spec-Bench's form (JSON lines).", rich_help_panel=PANEL
        ),
    ] = None,
    categories: Annotated[
        str | None, typer.Option("--categories", metavar="A,B", help="Only these.", rich_help_panel=PANEL)
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Most prompts per category.", rich_help_panel=PANEL)
    ] = None,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Runs of each.", rich_help_panel=PANEL)] = 5,
    raw: Annotated[bool, typer.Option("--raw", help="Without the chat template.", rich_help_panel=PANEL)] = False,
    format: Annotated[
        str, typer.Option("--format", metavar="|".join(FORMATS), help="What to print.", rich_help_panel=PANEL)
    ] = "table",
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.", rich_help_panel=PANEL)] = False,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE.png", help="Draw speed-up and cost curve.", rich_help_panel=PANEL),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Exit with 1 when a greedy text is not the plain text.", rich_help_panel=PANEL),
    ] = False,
) -> None:
    """Plain against speculative decoding, interleaved on the same prompts: speed, acceptance, cost.

    --N, --drafter and --tree take lists: --N 1,2,5,auto --drafter ngram,model --tree none,auto,4,2,2. Ctrl-C ends the
    measuring and shows what there is.
    """
    from localspec.cli.charts import check_plot, save_plot

    style = "json" if json else format
    if style not in FORMATS:
        raise UsageError(f"--format is {style!r}, but must be one of {', '.join(FORMATS)}.", hint="Try --format table.")
    if plot is not None:
        check_plot(plot)
    asked = request(shared, prompts, categories=words(categories), limit=limit, repeats=repeats, raw=raw)
    result = measured(shared, asked)
    document = result.as_dict()
    if plot is not None:
        save_plot(document, plot)
    show(document, style)
    if result.interrupted:
        Terminal().warn(f"Interrupted after {len(result.runs)} runs.")
        raise typer.Exit(INTERRUPTED)
    raise_flags(result, check)


def request(
    shared: Shared, prompts: Path | None, *, categories: list[str], limit: int | None, repeats: int, raw: bool
) -> Request:
    """What was typed, as the service takes it."""
    from localspec.services import prompts as sets
    from localspec.services.bench.bench import Request

    choice = dataclasses.replace(shared, N=None, drafter=None, tree=None).choice()
    lengths: list[int | Literal["auto"]] = [draft_length(text) for text in words(shared.N)]
    return Request(
        prompts=sets.choose(
            sets.built_in() if prompts is None else sets.read(prompts), categories=categories, limit=limit
        ),
        answer=shared.answer(temperature=0.0, max_tokens=MAX_TOKENS),
        drafters=words(shared.drafter),
        lengths=lengths,
        trees=trees(shared.tree),
        options=choice.options,
        repeats=repeats,
        system=shared.system,
        raw=raw,
    )


def measured(shared: Shared, asked: Request) -> Bench:
    """Load the pair and measure."""
    from localspec.services.bench import bench as service

    choice = dataclasses.replace(shared, N=None, drafter=None, tree=None).choice()
    with Terminal() as terminal:
        return service.bench(choice, shared.engine(), asked, terminal)


def words(text: str | None) -> list[str]:
    """a,b as a list."""
    found = [word.strip() for word in (text or "").split(",")]
    return list(dict.fromkeys(word for word in found if word))


def trees(text: str | None) -> list[str]:
    """none,auto,4,2,2 as ["none", "auto", "4,2,2"]: numbers in a row are one tree; quotes keep two of them apart."""
    found: list[str] = []
    joined = False
    for word in next(csv.reader([text or ""], skipinitialspace=True), []):
        word = word.strip()
        if word.isdecimal() and joined:
            found[-1] += f",{word}"
        elif word:
            found.append(word)
        joined = word.isdecimal()
    return list(dict.fromkeys(tree(one) for one in found))


def show(document: dict[str, Any], style: str) -> None:
    """Print the document in one of `FORMATS`."""
    from localspec.cli import bench_formats

    if style == "json":
        print_json(document)
    elif style == "csv":
        sys.stdout.write(bench_formats.csv_text(document))
    elif style == "md":
        sys.stdout.write(bench_formats.markdown(document))
    else:
        ascii_only = (sys.stdout.encoding or "ascii").lower().replace("-", "") != "utf8"
        for part in bench_formats.table(document, ascii_only=ascii_only):
            out().print(part)


def raise_flags(result: Bench, check: bool) -> None:
    """Say which rows did not say what the verifier says; with --check that is a failure."""
    labels = list(dict.fromkeys(row.configuration.label for row in result.flagged))
    if not labels:
        return
    Terminal().warn(f"The text differs from plain decoding by more than a near tie: {', '.join(labels)}.")
    if check:
        raise typer.Exit(1)
