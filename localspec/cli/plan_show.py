"""A finished plan for people: one screen, read off the document that `--json` prints. Knows no service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from localspec.cli.charts import counted
from localspec.cli.console import out

if TYPE_CHECKING:
    from rich.console import Console

Document = dict[str, Any]


def show(document: Document) -> None:
    """The recommendation first, then why, then everything else."""
    from rich.text import Text

    console = out()
    protocol = document["protocol"]
    draft = f" + {document['draft']}" if document["draft"] else ""
    kind = {None: "all kinds of prompts", "prompts": "your prompts"}.get(document["task"], document["task"])
    console.print(
        Text(
            f"{document['verifier']}{draft}: {kind}, {counted(protocol['prompts'], 'answer')} with "
            f"{protocol['tokens']} tokens, temperature {document['temperature']:g}",
            style="dim",
        )
    )
    headline(console, document)
    drafters(console, document)
    candidates(console, document)
    section(console, "Why", document["reasons"])
    for warning in document["warnings"]:
        console.print(Text.assemble(("note: ", "yellow"), warning))
    checks(console, document)
    endings(console, document)


def way(one: Document) -> str:
    """model N=3, model tree 4,2,2, or plain decoding."""
    from localspec.services.bench.runs import label

    return "do not speculate" if one["drafter"] == "none" else label(one["drafter"], one["N"], one["tree"])


def headline(console: Console, document: Document) -> None:
    from rich.text import Text

    chosen = document["recommendation"]
    if chosen["drafter"] == "none":
        console.print(Text.assemble("\nRecommended: ", ("do not speculate", "bold yellow"), " (--drafter none)\n"))
        return
    alpha = "" if document["alpha"] is None else f" at alpha {document['alpha']:.2f}"
    tree = "" if chosen["tree"] == "none" else f" --tree {chosen['tree']}"
    console.print(
        Text.assemble(
            "\nRecommended: ",
            (f"--drafter {chosen['drafter']} --N {chosen['N']}{tree}", "bold green"),
            f", expected {document['expected_speedup']:.2f}x plain{alpha}\n",
        )
    )


def drafters(console: Console, document: Document) -> None:
    """One line per drafter."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("drafter", "best way", "alpha", "speed-up", "min-max"):
        table.add_column(title, justify="left" if title in ("drafter", "best way") else "right", no_wrap=True)
    for one in document["drafters"]:
        best = one["best"]
        found = next(each for each in one["curve"] if (each["N"], each["tree"]) == (best["N"], best["tree"]))
        alpha = "-" if one["alpha"] is None else f"{one['alpha']:.2f}"
        table.add_row(
            one["drafter"],
            way(best).removeprefix(f"{one['drafter']} ") + (" (tried)" if one["tried"] else ""),
            alpha,
            f"{best['speedup']:.2f}x",
            f"{found['low']:.2f}-{found['high']:.2f}",
            style="green" if best["speedup"] >= 1 else "red",
        )
    console.print(table)


def candidates(console: Console, document: Document) -> None:
    """The lengths around the optimum, with the arithmetic."""
    from rich.padding import Padding
    from rich.text import Text

    if not document["candidates"]:
        return
    console.print(Text("\nAround the optimum, all answers together", style="bold"))
    for one in document["candidates"]:
        console.print(Text(f"{way(one)}: median {one['speedup']:.2f}x"))
        console.print(Padding(Text(one["arithmetic"], style="dim"), (0, 0, 0, 2), expand=False))
    points = document["profile"]["verify_s"]
    line = ", ".join(f"{point['n']}: {1000 * point['s']:.1f}" for point in points)
    console.print(Text(f"One verifier pass over n tokens among plain ones, ms: {line}", style="dim"))


def section(console: Console, title: str, lines: list[str]) -> None:
    from rich.padding import Padding
    from rich.text import Text

    console.print(Text(f"\n{title}", style="bold"))
    for line in lines:
        console.print(Padding(Text(line), (0, 0, 0, 2), expand=False))


def checks(console: Console, document: Document) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    console.print(Text("\nChecks", style="bold"))
    words = {True: Text("ok", style="green"), False: Text("NO", style="bold red"), None: Text("?", style="yellow")}
    for check in document["checks"]:
        table.add_row(words[check["ok"]], check["name"], Text(check["text"]))
    console.print(table)


def endings(console: Console, document: Document) -> None:
    """What to do if it fails, how to verify it, where it is kept."""
    from rich.text import Text

    fallback = document["fallback"]
    said = way(fallback) if fallback["drafter"] != "none" else "plain decoding (--drafter none)"
    console.print(Text(f"\nFallback: {said}"))
    console.print(Text("Verify it with:"))
    console.print(Text(f"  {document['verify_with']}", style="bold"), soft_wrap=True)
    if "serving" in document:
        served(console, document["serving"])
    if document["stored"]:
        console.print(Text(f"Kept for run, chat and bench: {document['stored']}", style="dim"), soft_wrap=True)


def served(console: Console, serving: Document) -> None:
    """The command of another engine, and what differs there."""
    from rich.text import Text

    console.print(Text(f"The same with {serving['engine']}:"))
    console.print(Text(f"  {serving['line']}", style="bold"), soft_wrap=True)
    for note in serving["notes"]:
        console.print(Text(f"  {note}", style="dim"))
