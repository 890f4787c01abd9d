"""`localspec drafters`: what can draft, and which options each takes with -o.

Prints the registry of drafters; knows none of them.
"""

from __future__ import annotations

from typing import Annotated

import typer

from localspec.cli.console import out, print_json
from localspec.cli.layout import hanging


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
    from rich.text import Text

    console = out()
    for entry in REGISTRY.values():
        needs = " (needs --draft or a pair that names one)" if entry.needs_draft else ""
        hanging(console, "", Text.assemble((entry.name, "bold"), f"  {entry.summary}{needs}"), indent=4)
        for option in entry.options:
            shown = Text.assemble(f"{option.name}={option.default}  ", (option.type, "dim"), f"  {option.help}")
            hanging(console, "  -o ", shown, indent=6)
