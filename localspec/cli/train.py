"""`localspec train`: draft heads for a GGUF verifier."""

from __future__ import annotations

import typer

from localspec.cli import train_convert

app = typer.Typer(
    name="train",
    help="Make a draft head (EAGLE-3, EAGLE-1, Medusa) for a GGUF verifier.",
    rich_markup_mode="rich",
    no_args_is_help=True,
)


@app.callback()
def train() -> None:
    """Keeps `convert` a subcommand while it is the only one."""


app.command("convert", epilog=train_convert.EXAMPLES)(train_convert.convert)
