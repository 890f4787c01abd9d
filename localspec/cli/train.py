"""`localspec train`: data from a verifier, a head for it, what the head is worth.

Parses, calls `services.train`, prints. Knows no torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from localspec.cli import train_convert
from localspec.cli.console import Terminal, out, print_json
from localspec.cli.limits import number_or_auto
from localspec.cli.options import one_of
from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.services.train.data import DataResult
    from localspec.services.train.evaluation import Evaluation
    from localspec.services.train.head import HeadResult

app = typer.Typer(
    name="train",
    help="Make a draft head (EAGLE-3, EAGLE-1, Medusa) for a GGUF verifier, trained on what it says itself.",
    rich_markup_mode="rich",
    no_args_is_help=True,
)

DATA = """
[bold]Examples[/bold]

localspec train data heads/data --tokens 300000

localspec train data heads/data --verifier my.gguf --prompts mine.jsonl --temperatures 0,0.8
"""

HEAD = """
[bold]Examples[/bold]

localspec train head heads/data --output heads/eagle3 --steps 1500

localspec train head heads/data heads/long --output heads/both --steps 1500

localspec train head heads/data --output heads/medusa --kind medusa --ahead 4

localspec train head heads/data --output heads/longer --init heads/eagle3/eagle3.gguf --rate 3e-4
"""

EVAL = """
[bold]Examples[/bold]

localspec train eval heads/eagle3/eagle3.gguf

localspec train eval heads/*/*.gguf --prompts spec_bench.jsonl --limit 3 --json
"""

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="CPU threads. (default physical cores)")]
Verifier = Annotated[
    str, typer.Option("--verifier", metavar="REF", help="Model that the head drafts for; its GGUF as it is.")
]


@app.command(epilog=DATA)
def data(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the data goes; gone on with if it is there.")],
    verifier: Verifier = "smollm2-135m",
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="Answer tokens in all.")] = 200_000,
    prompts: Annotated[
        Path | None,
        typer.Option("--prompts", metavar="FILE.jsonl", help="What is asked. (default: the verifier makes it up)"),
    ] = None,
    exclude: Annotated[
        list[Path] | None,
        typer.Option("--exclude", metavar="FILE.jsonl", help="Prompts that must not be asked; repeatable."),
    ] = None,
    temperatures: Annotated[
        str, typer.Option("--temperatures", metavar="T,T,..", help="Each answer is drawn at one of them.")
    ] = "0,0.7,1",
    prompt: Annotated[
        int, typer.Option("--prompt-tokens", min=1, help="Longest prompt that is asked; longer ones are left out.")
    ] = 448,
    answer: Annotated[int, typer.Option("--answer-tokens", min=2, help="Longest answer.")] = 256,
    top: Annotated[int, typer.Option("--top", min=1, max=64, help="Likeliest tokens kept of each law.")] = 32,
    states: Annotated[
        str,
        typer.Option(
            "--states",
            metavar="auto|stored|recaptured",
            help="Hidden states on disk, or computed again in training; auto decides by size.",
        ),
    ] = "auto",
    layers: Annotated[
        str | None,
        typer.Option("--layers", metavar="I,J,K", help="Layers whose inputs are kept. (default low, middle, high)"),
    ] = None,
    hold: Annotated[
        str,
        typer.Option(
            "--hold",
            metavar="as-is|bf16|f32",
            help="Format of the weights while they answer; bf16 can be faster on a CPU and differs little.",
        ),
    ] = "as-is",
    parallel: Annotated[int, typer.Option("--parallel", min=1, max=128, help="Answers at a time.")] = 16,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Questions and draws follow from it.")] = 0,
    threads: Threads = None,
    gpu_layers: Annotated[
        str, typer.Option("--gpu-layers", metavar="auto|INT", help="Verifier layers on the GPU.")
    ] = "auto",
    json: Json = False,
) -> None:
    """Let the verifier answer, and keep what a head learns from: tokens, laws, hidden states.

    Ctrl-C and SIGTERM keep what is done; the same command goes on from there.
    """
    from localspec.services.train import data as service
    from localspec.services.train.holding import Held

    request = service.DataRequest(
        verifier=verifier,
        folder=folder,
        tokens=tokens,
        prompts=prompts,
        exclude=tuple(exclude or ()),
        temperatures=tuple(numbers("--temperatures", temperatures)),
        prompt=prompt,
        answer=answer,
        top=top,
        states=one_of("--states", states, get_args(service.States)),
        hold=one_of("--hold", hold, get_args(Held)),
        layers=None if layers is None else tuple(int(layer) for layer in numbers("--layers", layers)),
        parallel=parallel,
        threads=threads,
        gpu_layers=number_or_auto("gpu-layers", gpu_layers),
        seed=seed,
    )
    with Terminal() as report:
        result = service.make(request, report)
    if json:
        print_json(result.as_dict())
    else:
        show_data(result)
    if result.interrupted:
        raise typer.Exit(130)


@app.command(epilog=HEAD)
def head(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DATA", help="Folders that `train data` made; the head learns from all of them."),
    ],
    output: Annotated[Path, typer.Option("--output", metavar="FOLDER", help="Where checkpoint, head and record go.")],
    kind: Annotated[str, typer.Option("--kind", metavar="eagle3|eagle1|medusa", help="What is trained.")] = "eagle3",
    verifier: Annotated[
        str | None, typer.Option("--verifier", metavar="REF", help="The model of the data. (default: as the data says)")
    ] = None,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Optimiser steps in all.")] = 1000,
    ahead: Annotated[
        int, typer.Option("--ahead", min=1, max=8, help="Positions learned; eagle3: on its own outputs, 1 is without.")
    ] = 3,
    vocab: Annotated[int, typer.Option("--vocab", min=1, help="Tokens the head can say, the commonest.")] = 8192,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Tokens of a step, prompts included.")] = 2400,
    rate: Annotated[float, typer.Option("--rate", help="Highest learning rate.")] = 1e-3,
    init: Annotated[
        Path | None, typer.Option("--init", metavar="HEAD.gguf", help="Go on from an exported head.")
    ] = None,
    weights: Annotated[
        str, typer.Option("--weights", metavar="f16|q8_0|q4_0", help="Format of the exported matrices.")
    ] = "q8_0",
    layers: Annotated[
        str | None,
        typer.Option("--layers", metavar="I,J,K", help="Which stored layers are fused. (default: the first three)"),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option("--tokens", min=1, help="Answer tokens to learn from, the first over the folders. (default all)"),
    ] = None,
    every: Annotated[int, typer.Option("--every", min=1, help="Steps between measurements.")] = 50,
    patience: Annotated[
        int, typer.Option("--patience", min=0, help="Measurements without a gain before it ends; 0: never.")
    ] = 0,
    held_out: Annotated[int, typer.Option("--held-out", min=1, help="Answer tokens a measurement looks at.")] = 12_000,
    minutes: Annotated[float, typer.Option("--checkpoint-minutes", min=0.0, help="Between checkpoints.")] = 3.0,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Start and order follow from it.")] = 0,
    threads: Threads = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE.png", help="Draw loss and alpha, too (extra: plot).")
    ] = None,
    json: Json = False,
) -> None:
    """Train a head on what the verifier said (extra: train), and export it.

    Ctrl-C and SIGTERM leave a checkpoint; the same command goes on from it.
    """
    from localspec.cli.charts import check_plot
    from localspec.cli.train_live import Live
    from localspec.services.train import export
    from localspec.services.train import head as service

    if plot is not None:
        check_plot(plot)
    service.require_torch()
    request = service.HeadRequest(
        data=tuple(folders),
        output=output,
        verifier=verifier,
        kind=kind,
        steps=steps,
        ahead=ahead,
        vocab=vocab,
        batch=batch,
        rate=rate,
        init=init,
        weights=export.weights_of(weights),
        layers=None if layers is None else tuple(int(layer) for layer in numbers("--layers", layers)),
        tokens=tokens,
        every=every,
        patience=patience,
        minutes=minutes,
        held_out=held_out,
        seed=seed,
        threads=threads,
    )
    with Terminal() as report, Live(steps) as live:
        result = service.train(request, report, live.show)
    if plot is not None:
        from localspec.cli.train_plots import curves

        curves([result.record], plot)
    if json:
        print_json(result.as_dict())
    else:
        show_head(result)


@app.command("eval", epilog=EVAL)
def evaluate(
    heads: Annotated[list[Path], typer.Argument(metavar="HEAD.gguf..", help="Heads that `train head` wrote.")],
    verifier: Annotated[
        str | None, typer.Option("--verifier", metavar="REF", help="Their verifier. (default: the default pair's)")
    ] = None,
    draft: Annotated[str | None, typer.Option("--draft", metavar="REF", help="A draft model to compare with.")] = None,
    prompts: Annotated[
        Path | None,
        typer.Option("--prompts", metavar="FILE.jsonl", help="Spec-Bench's form. (default: the built-in ones)"),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Prompts of each category at most.")] = None,
    N: Annotated[int, typer.Option("--N", min=1, max=16, help="Tokens of a chain.")] = 3,
    tree: Annotated[str, typer.Option("--tree", metavar="auto|4,2,2", help="Shape of the tree.")] = "auto",
    depth: Annotated[int, typer.Option("--depth", min=1, max=16, help="Tokens of the longest path of a tree.")] = 5,
    temperatures: Annotated[
        str, typer.Option("--temperatures", metavar="T,T,..", help="1 draws from the whole law.")
    ] = "0,1",
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1, help="Longest answer.")] = 128,
    raw: Annotated[bool, typer.Option("--raw", help="Without the chat template.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also on another quantisation of the verifier it was trained for.")
    ] = False,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """What heads are worth in real answers: alpha by position and tokens per pass, in chains and trees."""
    from localspec.services import prompts as asked
    from localspec.services.settings import EngineSettings
    from localspec.services.train import evaluation as service

    questions = asked.choose(asked.read(prompts) if prompts else asked.built_in(), limit=limit)
    request = service.EvalRequest(
        heads=heads,
        prompts=questions,
        verifier=verifier,
        draft=draft,
        N=N,
        depth=depth,
        tree=tree,
        temperatures=numbers("--temperatures", temperatures),
        max_tokens=max_tokens,
        force=force,
        raw=raw,
    )
    with Terminal() as report:
        result = service.evaluate(request, EngineSettings(threads=threads), report)
    if json:
        print_json(result.as_dict())
    else:
        show_evaluation(result)


@app.command("curves")
def curves(
    records: Annotated[
        list[Path], typer.Argument(metavar="record.json..", help="Records, each going on from the last.")
    ],
    output: Annotated[Path, typer.Option("--output", metavar="FILE.png", help="The picture (extra: plot).")],
) -> None:
    """Draw loss and alpha over the tokens learned from, over several trainings one behind the other."""
    from localspec.cli import train_plots
    from localspec.cli.charts import check_plot
    from localspec.services.train.head import read_record

    check_plot(output)
    train_plots.curves([read_record(path) for path in records], output)


app.command("convert", epilog=train_convert.EXAMPLES)(train_convert.convert)


def numbers(flag: str, text: str) -> list[float]:
    """Comma-separated numbers."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"{flag} is {text!r}, but wants numbers with commas", hint=f"Try {flag} 0,1.") from None


def show_data(result: DataResult) -> None:
    from rich.text import Text

    from localspec.cli import units

    out().print(
        Text(
            f"{result.folder}: {result.answer_tokens:,} answer tokens in {result.texts:,} texts, {result.made:,} of "
            f"them new, {units.size(result.bytes)}, hidden states {result.states}"
        )
    )


def show_head(result: HeadResult) -> None:
    from rich.text import Text

    from localspec.cli import units

    record, best = result.record, result.record["held_out"]
    alphas = ", ".join(f"{alpha:.2f}" for alpha in best["alpha"])
    out().print(
        Text(
            f"{result.path}: {record['kind']}, {units.size(result.bytes)}, {record['vocabulary']['size']:,} tokens "
            f"covering {100 * record['vocabulary']['coverage']:.1f} % of held-out text\n"
            f"held out, greedy: alpha by position {alphas}; "
            f"{best['tokens_per_pass']:.2f} tokens per pass of a chain of 3"
        )
    )


def show_evaluation(result: Evaluation) -> None:
    """One line per drafter, way, temperature and category."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("head", "draft", "T", "category"):
        table.add_column(name)
    for name in ("alpha by position", "tokens per pass", "speed-up"):
        table.add_column(name, justify="right")
    for row in result.rows:
        way = f"N={row.N}" + ("" if row.tree == "none" else f" tree {row.tree}")
        alphas = " ".join(f"{alpha:.2f}" for alpha in row.alpha[:6])
        table.add_row(
            row.name,
            way,
            f"{row.temperature:g}",
            row.category,
            alphas,
            f"{row.tokens_per_pass:.2f}",
            f"{row.speedup:.2f}x" if row.speedup else "-",
            style="bold" if row.category == "all" else None,
        )
    out().print(Text(f"{result.verifier}, {result.prompts} prompts", style="dim"))
    out().print(table)
