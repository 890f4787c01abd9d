"""`localspec drafters`: what can draft, and which options each takes with -o.

Prints the registry of drafters; knows none of them.
"""

from __future__ import annotations

from typing import Annotated

import typer

from localspec.cli.console import out, print_json


def drafters(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List the drafters and their options (-o KEY=VALUE)."""
    from localspec.drafters.registry import REGISTRY

    if json:
        found = [
            {
                "name": entry.name,
                "summary": entry.summary,
                "needs_draft": entry.needs_draft,
                "options": [
                    {"name": option.name, "type": option.type, "default": option.default, "help": option.help}
                    for option in entry.options
                ],
            }
            for entry in REGISTRY.values()
        ]
        print_json({"schema": "localspec.drafters/1", "drafters": found})
        return
    console = out()
    for entry in REGISTRY.values():
        needs = " (needs --draft or a pair that names one)" if entry.needs_draft else ""
        console.print(f"[bold]{entry.name}[/bold]  {entry.summary}{needs}")
        for option in entry.options:
            console.print(f"  -o {option.name}={option.default}  [dim]{option.type}[/dim]  {option.help}")
