"""`localspec plan`: measures a pair on this machine and recommends drafter, N and tree, or not to speculate.

Parses, calls `services.plan`, prints. Knows no arithmetic of its own.
"""

from __future__ import annotations

import dataclasses
import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localspec.cli.console import Terminal, print_json
from localspec.cli.options import Shared, with_shared
from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.services.plan.outcome import Plan, Request

EXAMPLES = """
[bold]Examples[/bold]

localspec plan

localspec plan --task code --temperature 0 --plot plan.png

localspec plan --verifier big.gguf --draft small.gguf --prompts mine.jsonl --latency-ms 100
"""

MAX_TOKENS = 64  # per answer, where --max-tokens is not given
PANEL = "Plan"


@with_shared
def plan(
    shared: Shared,
    task: Annotated[
        str | None,
        typer.Option(
            "--task",
            metavar="chat|code|json|summary|creative",
            help="Built-in prompts of this kind (default: all kinds).",
            rich_help_panel=PANEL,
        ),
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(
            "--prompts",
            metavar="FILE",
            help="Your own prompts in Spec-Bench's form (JSON lines).",
            rich_help_panel=PANEL,
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Most prompts per category.", rich_help_panel=PANEL)
    ] = None,
    latency_ms: Annotated[
        float | None,
        typer.Option("--latency-ms", help="Longest wait between two visible pieces.", rich_help_panel=PANEL),
    ] = None,
    parallel: Annotated[
        int, typer.Option("--parallel", min=1, max=16, help="Texts decoded side by side.", rich_help_panel=PANEL)
    ] = 1,
    raw: Annotated[bool, typer.Option("--raw", help="Without the chat template.", rich_help_panel=PANEL)] = False,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE.png", help="Draw t(n) and speed-up over N.", rich_help_panel=PANEL),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            metavar="vllm|sglang|llama-server",
            help="Also print how another engine is told to do the same.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.", rich_help_panel=PANEL)] = False,
) -> None:
    """Measure this machine and this pair, and recommend a drafter, N and tree, or plain decoding, with the arithmetic.

    What was measured is kept, and run, chat and bench start from it.
    """
    from localspec.cli import plan_plot, plan_show
    from localspec.cli.charts import check_plot

    if plot is not None:
        check_plot(plot)
    if engine is not None:
        check_engine(engine)
    asked = request(shared, task, prompts, limit=limit, latency_ms=latency_ms, parallel=parallel, raw=raw)
    result = planned(shared, asked)
    command = bench_command(shared, result, prompts=prompts, limit=limit, raw=raw)
    document = result.as_dict() | {"verify_with": command}
    if engine is not None:
        document["serving"] = served(engine, shared, result)
    if plot is not None:
        plan_plot.save(document, plot)
    if json:
        print_json(document)
    else:
        plan_show.show(document)


def request(
    shared: Shared,
    task: str | None,
    prompts: Path | None,
    *,
    limit: int | None,
    latency_ms: float | None,
    parallel: int,
    raw: bool,
) -> Request:
    """What was typed, as the service takes it."""
    from localspec.services import prompts as sets
    from localspec.services.plan.outcome import TASKS, Request

    if shared.N is not None or shared.tree is not None:
        raise UsageError(
            f"{'--N' if shared.N is not None else '--tree'} is what a plan is made to find out.",
            hint="Leave it out; `localspec bench --N 1,2,5,auto` measures lengths of your own.",
        )
    if task is not None and task not in TASKS:
        raise UsageError(f"--task is {task!r}, but must be one of {', '.join(TASKS)}.", hint="Try --task chat.")
    if task is not None and prompts is not None:
        raise UsageError("--task chooses built-in prompts, and --prompts names others.", hint="Give one of the two.")
    if latency_ms is not None and not 0.0 < latency_ms < math.inf:
        raise UsageError(f"--latency-ms is {latency_ms:g}.", hint="Give milliseconds above 0, like 100.")
    known = sets.built_in() if prompts is None else sets.read(prompts)
    return Request(
        prompts=sets.choose(known, categories=TASKS[task] if task else (), limit=limit),
        answer=shared.answer(max_tokens=MAX_TOKENS),
        task="prompts" if prompts else task,
        latency_ms=latency_ms,
        parallel=parallel,
        options=shared.choice().options,
        system=shared.system,
        raw=raw,
    )


def planned(shared: Shared, asked: Request) -> Plan:
    """Load the pair and measure."""
    from localspec.services.plan import plan as service

    with Terminal() as terminal:
        return service.plan(shared.choice(), shared.engine(), asked, terminal)


def check_engine(name: str) -> None:
    """Say before anything is measured that there is no such engine."""
    from localspec.services.plan.engines import ENGINES

    if name not in ENGINES:
        raise UsageError(f"--engine is {name!r}, but must be one of {', '.join(ENGINES)}.", hint="See docs/engines.md.")


def served(engine: str, shared: Shared, result: Plan) -> dict[str, Any]:
    """The recommendation as another engine takes it."""
    from localspec.services.plan.engines import Recommended, serving

    chosen = result.as_dict()["recommendation"]
    wanted = Recommended(
        verifier=result.settings["verifier"],
        draft=result.settings["draft"],
        ctx_size=shared.ctx_size,
        parallel=result.request.parallel if result.request.parallel > 1 else None,
        **chosen,
    )
    found = serving(engine, wanted)
    return {**found.as_dict(), "line": found.line}


def bench_command(shared: Shared, result: Plan, *, prompts: Path | None, limit: int | None, raw: bool) -> str:
    """The command line that measures what was recommended, on the same prompts under the same law."""
    from localspec.services.plan.outcome import TASKS

    shown = result.chosen or (max((one.best for one in result.judged), key=lambda one: one.speedup))
    given: dict[str, Any] = {
        field.name: getattr(shared, field.name)
        for field in dataclasses.fields(shared)
        if field.name not in ("drafter", "N", "tree", "options", "temperature", "max_tokens", "seed")
    }
    words = ["localspec", "bench"]
    for name, value in given.items():
        for each in value if isinstance(value, list) else [value]:
            if each is not None:
                words += [f"--{name.replace('_', '-')}", str(each)]
    options = [f"{key}={value}" for key, value in result.request.options.items()]
    words += [word for option in options for word in ("-o", option)]
    words += ["--drafter", shown.drafter]
    if shown.tree in ("none", "auto"):
        lengths = dict.fromkeys([*(str(one.N) for one in result.around if one.drafter == shown.drafter), str(shown.N)])
        words += ["--N", ",".join(dict.fromkeys([*lengths, "auto"]))]
    else:
        words += ["--tree", shown.tree]
    answer = result.request.answer
    words += ["--temperature", f"{answer.sampling.temperature:g}", "--max-tokens", str(answer.max_tokens)]
    words += ["--seed", str(shared.seed)] if shared.seed is not None else []
    if prompts is not None:
        words += ["--prompts", str(prompts)]
    elif result.request.task:
        words += ["--categories", ",".join(TASKS[result.request.task])]
    words += ["--limit", str(limit)] if limit else []
    words += ["--raw"] if raw else []
    return shlex.join(words)
