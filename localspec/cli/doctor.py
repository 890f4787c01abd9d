"""`localspec doctor`: what this installation can do, on one screen.

Prints what `services.doctor` found; judges nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from localspec.cli import units
from localspec.cli.console import out, print_json
from localspec.cli.layout import hanging

if TYPE_CHECKING:
    from rich.console import Console

    from localspec.services.doctor import Diagnosis


def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show devices, memory, the llama.cpp build, models, and known problems with their remedies."""
    from localspec.services.doctor import examine

    found = examine()
    if json:
        print_json(found.as_dict())
        return
    console = out()
    show_machine(console, found)
    show_storage(console, found)
    show_problems(console, found)


def title(console: Console, text: str) -> None:
    console.print(text, style="bold", markup=False)


def item(console: Console, name: str, text: str) -> None:
    """One aligned line."""
    from rich.text import Text

    hanging(console, f"  {name:22} ", Text(text), indent=25)


def show_machine(console: Console, found: Diagnosis) -> None:
    """System, versions, devices."""
    facts, build = found.machine, found.llama_cpp
    title(console, "Machine")
    item(console, "system", f"{facts.os}, Python {facts.python}")
    item(console, "processor", f"{facts.cpu}, {facts.physical_cores or '?'} cores")
    if facts.memory_total is not None:
        free = "" if facts.memory_available is None else f", {units.size(facts.memory_available)} available"
        item(console, "memory", units.size(facts.memory_total) + free)
    title(console, "Versions")
    for name, version in facts.packages.items():
        item(console, name, version)
    title(console, "llama.cpp")
    item(console, "build", build.version or "not loaded")
    for device in build.devices:
        memory = f", {units.size(device.memory_free)} of {units.size(device.memory_total)} free"
        item(console, device.name, device.description + (memory if device.kind != "cpu" else ""))
    if build.features:
        item(console, "features", ", ".join(features(build.features)))


def features(line: str) -> list[str]:
    """ "CPU : SSE3 = 1 | AVX = 1 | .." -> the names that are on."""
    parts = (part.rpartition(":")[2].partition("=") for part in line.split("|"))
    return [name.strip() for name, _, value in parts if value.strip() not in ("", "0")]


def show_storage(console: Console, found: Diagnosis) -> None:
    """Folders, models that are here, variables."""
    title(console, "Storage")
    for place in found.folders:
        room = "" if place.free is None else f", {units.size(place.free)} free"
        item(console, place.what, f"{place.path} ({units.size(place.bytes)}{room})")
    title(console, "Models present")
    for model in found.models:
        item(console, model.name, f"{units.size(model.bytes)}  {model.path}")
    if not found.models:
        item(console, "none yet", "`localspec models pull` fetches one")
    if found.environment:
        title(console, "Environment")
    for name, value in found.environment.items():
        item(console, name, value)


def show_problems(console: Console, found: Diagnosis) -> None:
    """What stands in the way, and what helps."""
    from rich.text import Text

    if not found.problems:
        console.print("No known problems.", style="green")
        console.print("`localspec plan` measures how to speculate here, or whether at all.", style="dim", markup=False)
        return
    console.print("Problems", style="bold red")
    for problem in found.problems:
        hanging(console, "  ", Text(problem.what), indent=2)
        hanging(console, "    ", Text(problem.remedy, style="dim"), indent=4)
