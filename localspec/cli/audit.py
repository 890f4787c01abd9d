"""`localspec audit`: proof, on one's own pair, that speculation did not change what the model says.

Parses, calls `services.audit`, prints. Knows no statistics of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from localspec.cli.console import Terminal, out, print_json
from localspec.cli.options import Shared, with_shared

if TYPE_CHECKING:
    from localspec.services.audit.audit import Audit
    from localspec.services.audit.greedy import Greedy
    from localspec.services.audit.law import Sampled

EXAMPLES = """
[bold]Examples[/bold]

localspec audit

localspec audit --temperature 1 --top-k 0 --top-p 1 --min-p 0 --samples 10000

localspec audit --verifier big.gguf --draft small.gguf --N 5 --depth 3 --json
"""

PROMPT = "The cat sat on the mat. The dog sat on the rug. The cat sat on the"
"""Completed raw when nothing is typed: prompt lookup has something to draft there, and many words may follow."""
PANEL = "Audit"


@with_shared
def audit(
    shared: Shared,
    prompt: Annotated[
        str | None,
        typer.Argument(metavar="[PROMPT]", help="What is answered again and again.", show_default=False),
    ] = None,
    samples: Annotated[
        int, typer.Option("--samples", min=0, help="Plain and speculative draws each; 0: none.", rich_help_panel=PANEL)
    ] = 4000,
    depth: Annotated[int, typer.Option("--depth", min=1, max=8, help="Tokens in a draw.", rich_help_panel=PANEL)] = 2,
    greedy: Annotated[
        int, typer.Option("--greedy", min=0, help="Tokens of greedy text compared; 0: none.", rich_help_panel=PANEL)
    ] = 64,
    raw: Annotated[bool, typer.Option("--raw", help="Without the chat template.", rich_help_panel=PANEL)] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.", rich_help_panel=PANEL)] = False,
) -> None:
    """Test on this pair that speculation changes nothing: drawn tokens by chi-square, greedy text token by token.

    Exit code 1 when it does. A pair whose law is untouched fails once in a thousand audits.
    """
    from localspec.services.audit import audit as service
    from localspec.services.single import Question

    asked = service.Request(
        Question(prompt or PROMPT, shared.system, raw or (prompt is None and shared.system is None)),
        shared.answer(),
        samples=samples,
        depth=depth,
        greedy=greedy,
    )
    with Terminal() as report:
        result = service.audit(shared.choice(), shared.engine(), asked, report)
    if json:
        print_json(result.as_dict())
    else:
        show(result)
    if not result.passed:
        raise typer.Exit(1)


def show(result: Audit) -> None:
    """Both halves in words, the commonest draws as a table."""
    from rich.text import Text

    tree = "" if result.tree == "none" else f", tree {result.tree}"
    out().print(Text(f"{result.verifier}, drafter {result.drafter}, N = {result.N}{tree}", style="dim"))
    if result.sampled:
        show_sampled(result, result.sampled)
    if result.greedy:
        show_greedy(result.greedy)
    style = "bold green" if result.passed else "bold red"
    out().print(
        Text("passed" if result.passed else "FAILED: what is said with speculation is not the same", style=style)
    )


def show_sampled(result: Audit, sampled: Sampled) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("drawn most often")
    for title in ("plain", "speculative"):
        table.add_column(title, justify="right")
    for path, plain, speculative in sampled.commonest:
        table.add_row(Text(repr(result.texts[path])[1:-1]), str(plain), str(speculative))
    out().print(table)
    for line in sampled_lines(sampled):
        out().print(Text(line))
    if result.rows:
        rows = result.rows
        out().print(
            Text(
                f"{rows.asked:,} rows were read, {rows.passes:,} passes made; {rows.rechecked:,} remembered rows were "
                f"computed again and differed by at most {rows.difference:g}.",
                style="dim",
            )
        )


def sampled_lines(sampled: Sampled) -> list[str]:
    """What the chi-square test says."""
    test, noise = sampled.test, sampled.noise
    lines = [
        f"sampled: {sampled.samples:,} plain and as many speculative draws of {sampled.depth} tokens, {test.cells} "
        f"cells: chi-square {test.chi2:.1f} with {test.dof} degrees of freedom, p = {test.p_value:.3g}",
        f"acceptance {sampled.alpha:.2f}, drafts of up to {sampled.largest} tokens, seed {sampled.seed}; the size of a "
        f"pass moves logits by up to {noise.logits:.2g} and the law by up to {noise.law:.2g}",
    ]
    if not sampled.alpha:
        lines.append(
            "nothing that was drafted was accepted, so only rejections were put to the test: try another prompt"
        )
    if sampled.padded is not None:
        padded = f"against plain draws from passes of the same size p = {sampled.padded.p_value:.3g}"
        lines.append(
            f"{padded}: the difference is the arithmetic of this backend, not the speculation"
            if sampled.is_explained
            else f"{padded}: the arithmetic of this backend does not explain it"
        )
    return lines


def show_greedy(greedy: Greedy) -> None:
    from rich.text import Text

    said = "equal" if not greedy.divergences else f"{len(greedy.divergences)} divergences"
    out().print(Text(f"greedy: {greedy.tokens} tokens compared, {said}"))
    for one in greedy.divergences:
        why = "a near tie" if one.is_near_tie else "NO near tie"
        out().print(
            Text(
                f"  token {one.place + 1}: {why}; plain decoding preferred its own by {one.gap:.3g}, the size of a "
                f"pass moves such a difference by up to {one.noise:.3g}"
            )
        )
