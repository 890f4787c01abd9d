"""The command line `localspec`: its commands, and the one place where any error becomes a sentence and an exit code.

Stays instant: numpy, llama.cpp and the hub client are loaded by the commands that need them, when they run.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from localspec.cli import audit, bench, chat, doctor, drafters, models, plan, run, theory, train
from localspec.cli.console import explain
from localspec.cli.interrupt import ended_in_order
from localspec.cli.streams import give_up, is_broken, is_rich, is_terminal, prepare_streams
from localspec.errors import LocalspecError, UsageError
from localspec.version import __version__

INTERRUPTED = 130
_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
"""What goes wrong with output; who writes files has a sentence of its own for them."""

EPILOG = """
[bold]Examples[/bold]

localspec chat

localspec run "Why is the sky blue?"

localspec bench --N 1,2,5,auto
"""

app = typer.Typer(
    name="localspec",
    help="Local language models answer faster, and say exactly what they would have said.",
    epilog=EPILOG,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def show_version(asked: bool) -> None:
    """--version."""
    if asked:
        sys.stdout.write(f"localspec {__version__}\n")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def localspec(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


app.command("run", epilog=run.EXAMPLES)(run.run)
app.command("chat", epilog=chat.EXAMPLES)(chat.chat)
app.command("bench", epilog=bench.EXAMPLES)(bench.bench)
app.add_typer(models.app, name="models")
app.command("drafters")(drafters.drafters)
app.command("plan", epilog=plan.EXAMPLES)(plan.plan)
app.command("audit", epilog=audit.EXAMPLES)(audit.audit)
app.add_typer(theory.app, name="theory")
app.add_typer(train.app, name="train")
app.command("doctor")(doctor.doctor)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    prepare_streams()
    if is_terminal(sys.stdout) and not is_rich(sys.stdout):
        # NO_COLOR takes colour from Typer's help but leaves bold type, which is an escape sequence all the same.
        from typer import rich_utils

        rich_utils.COLOR_SYSTEM = None
    try:
        with ended_in_order():
            code = dispatch(sys.argv[1:] if arguments is None else arguments)
            sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has left; there is nobody to tell, and what is still buffered must not raise again.
        give_up(sys.stdout)
        code = 1
    except OSError as error:
        give_up(sys.stdout)
        explain(unwritten(error))
        code = 1
    if is_broken(sys.stderr):
        give_up(sys.stderr)
    return code


def unwritten(error: OSError) -> LocalspecError:
    """Output that could not be written."""
    return LocalspecError(
        f"the output cannot be written: {error.strerror or error}", hint="See where standard output leads to."
    )


def dispatch(arguments: Sequence[str]) -> int:
    """Run one command; every error is explained here."""
    try:
        code = app(args=list(arguments), prog_name="localspec", standalone_mode=False)
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else 1
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:  # the last resort: nobody should meet a traceback
        if isinstance(error, OSError) and error.filename is None and error.errno in _OUTPUT:
            raise
        complaint = misuse(error)
        if complaint is None:
            explain(error)
            return error.exit_code if isinstance(error, LocalspecError) else 1
        if str(complaint):  # a group that shows its help instead has nothing more to say
            explain(complaint)
        return complaint.exit_code
    return code if isinstance(code, int) else 0


def misuse(error: Exception) -> UsageError | None:
    """What the parser of the command line has to complain about, None for errors of another kind."""
    complaint = getattr(error, "format_message", None)
    if complaint is None:
        return None
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "localspec"
    return UsageError(complaint(), hint=f"See `{command} --help`.")
