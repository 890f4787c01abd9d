"""`localspec models derive`: a draft out of its verifier. Parses, calls `services.derive`, prints."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from localspec.cli import units
from localspec.cli.console import Terminal, out, print_json
from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.services.derive.derive import Derived
    from localspec.services.derive.likeness import Likeness, Share

EXAMPLES = """
[bold]Examples[/bold]

localspec models derive llama-3.1-8b

localspec models derive big-F16.gguf --type Q2_K --drop-layers 4

localspec models derive big-F16.gguf --layers 20-23 --out small.gguf
"""
MOST_LAYERS = 100_000  # no model has as many
MOST_TOKENS = 100_000  # with so many chance moves a share by 0.002


def derive(
    verifier: Annotated[str, typer.Argument(metavar="VERIFIER", help="A model, by any reference.")],
    type_: Annotated[
        str | None,
        typer.Option(
            "--type", metavar="TYPE", help="File type of the draft: Q8_0, Q4_0, Q2_K, ... Default: Q4_0 or Q2_K."
        ),
    ] = None,
    drop_layers: Annotated[
        int, typer.Option("--drop-layers", metavar="K", min=0, help="Leave out K layers, where they are missed least.")
    ] = 0,
    layers: Annotated[
        str | None, typer.Option("--layers", metavar="IDS", help="Leave out these layers, from 0: 20,21 or 20-23.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where to write it. Default: localspec's cache.")
    ] = None,
    tokens: Annotated[
        int,
        typer.Option(
            "--tokens", min=0, max=MOST_TOKENS, help="Tokens of each kind of text to measure with; 0: do not measure."
        ),
    ] = 256,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Make a draft out of its verifier without training, and measure whether it would pay.

    The verifier is requantised, or loses some layers, or both; a draft is only worth it where it is much cheaper.
    """
    from localspec.catalog import registry as registries
    from localspec.services.derive import derive as service
    from localspec.services.derive.recipe import Request

    asked = Request(
        type=type_.upper() if type_ else None,
        drop=drop_layers,
        without=() if layers is None else _ids(layers),
        out=to,
        tokens=tokens,
    )
    with Terminal() as report:
        derived = service.derive(verifier, asked, registries.load(), report)
    if json:
        print_json(derived.as_dict())
    else:
        show(derived)


def show(derived: Derived) -> None:
    """What was made, what it is worth, and how to use it where it is worth anything."""
    draft, likeness = derived.draft, derived.likeness
    rows = [
        ("draft", str(draft.path)),
        ("made of", f"{derived.verifier.path.name}, {derived.recipe.words}".rstrip(", ")),
        ("size", f"{units.size(draft.bytes)}, the verifier {units.size(derived.verifier.bytes)}"),
    ]
    if likeness is not None:
        rows += [
            ("agreement", f"{_share(likeness.agreement)} of the verifier's greedy text"),
            ("alpha", f"{_share(likeness.alpha)} of text sampled at temperature 1"),
            ("cost", f"{likeness.cost:.2f} of a plain pass for each drafted token"),
        ]
    for name, value in rows:
        out().print(f"{name + ':':<11} {value}", markup=False, soft_wrap=True)
    if likeness is not None:
        _say_verdict(likeness)
    if likeness is not None and not likeness.is_worth_it:
        return
    command = f"localspec chat --verifier {shlex.quote(derived.verifier_ref)} --draft {shlex.quote(str(draft.path))}"
    out().print(f"{'use it:':<11} {command}", markup=False, soft_wrap=True)


def _say_verdict(likeness: Likeness) -> None:
    from rich.text import Text

    out().print(Text(verdict(likeness), style="bold green" if likeness.is_worth_it else "bold yellow"))


def verdict(likeness: Likeness) -> str:
    """The recommendation in a line."""
    kinds = (("greedy", likeness.agreement), ("sampled", likeness.alpha))
    best = [(kind, *likeness.best(share.value)) for kind, share in kinds]
    told = ", ".join(f"{pace:.2f}x {kind} (N = {N})" for kind, N, pace in best if N)
    if not told:
        return "Not worth it on this machine: at every draft length plain decoding is expected to be faster."
    if likeness.is_worth_it:
        return f"Worth it on this machine: expect {told}."
    return f"Not worth it on this machine: at best {told}."


def _share(share: Share) -> str:
    return f"{share.value:.2f} ± {share.error:.2f} over {share.tokens} tokens"


def _ids(text: str) -> tuple[int, ...]:
    """20,22-24 as numbers."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if (
            not first.isdecimal()
            or (dash and not last.isdecimal())
            or not int(first) <= int(last or first) <= MOST_LAYERS
        ):
            raise UsageError(f"--layers is {text!r}.", hint="Write ids from 0, like 20,21 or 20-23.")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)
