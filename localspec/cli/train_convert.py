"""`localspec train convert`: a published head for one's own verifier. Parses, calls `services.convert`, prints."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from localspec.cli import units
from localspec.cli.console import Terminal, out, print_json
from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.services.heads.convert import Converted

EXAMPLES = """
[bold]Examples[/bold]

localspec train convert EAGLE3-LLaMA3.1-Instruct-8B --verifier llama-3.1-8b --out eagle3.gguf

localspec train convert medusa_lm_head.safetensors --verifier vicuna-7b.Q4_K_M.gguf --out medusa.gguf
"""


def convert(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT", help="Folder with config.json and weights, or one file of weights.")
    ],
    verifier: Annotated[str, typer.Option("--verifier", metavar="REF", help="The model that it drafts for, as GGUF.")],
    to: Annotated[Path, typer.Option("--out", metavar="HEAD.gguf", help="What to write.")],
    weights: Annotated[
        str, typer.Option("--weights", metavar="f16|q8_0|q4_0", help="Format of the matrices.")
    ] = "q8_0",
    layers: Annotated[
        str | None,
        typer.Option("--layers", metavar="I,J,K", help="EAGLE-3: layers whose inputs are fused. (default as trained)"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Turn a published checkpoint into a head that runs here: EAGLE-3, EAGLE-1 and -2, Medusa-1. Needs no PyTorch."""
    from localspec.catalog import registry as registries
    from localspec.services.heads import convert as service

    request = service.Request(checkpoint, verifier, to, weights.upper(), None if layers is None else _ids(layers))
    with Terminal() as report:
        converted = service.convert(request, registries.load(), report)
    if json:
        print_json(converted.as_dict())
    else:
        show(converted, verifier)


def show(converted: Converted, verifier: str) -> None:
    """What was written, and how to use it."""
    facts = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in converted.facts.items())
    path = shlex.quote(str(converted.path))
    for line in (
        f"{converted.path}  {converted.kind}, {units.size(converted.bytes)}{', ' * bool(facts)}{facts}",
        f"use it: localspec chat --verifier {shlex.quote(verifier)} --draft {path} --drafter {converted.kind}",
    ):
        out().print(line, markup=False, soft_wrap=True)


def _ids(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--layers is {text!r}.", hint="Write three ids: --layers 2,16,29.") from None
