"""`localspec run`: one prompt, one answer, streamed.

Parses and prints; how a prompt becomes ids and an answer a document is in `services.single`.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from localspec.cli import answers
from localspec.cli.console import Terminal, err, is_terminal, print_json
from localspec.cli.interrupt import stoppable
from localspec.cli.options import Shared, with_shared

EXAMPLES = """
[bold]Examples[/bold]

localspec run "Why is the sky blue?"

localspec run --raw "Once upon a time" --max-tokens 64 --seed 1

git diff | localspec run --system "Write a commit message." --json
"""

INTERRUPTED = 130


@with_shared
def run(
    shared: Shared,
    prompt: Annotated[
        str | None, typer.Argument(metavar="[PROMPT]", help="The prompt; - reads it from standard input.")
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Complete the prompt as it stands; no chat template.")] = False,
    template: Annotated[
        str | None, typer.Option("--template", metavar="NAME|FILE", help="Chat format instead of the model's own.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of the text.")] = False,
) -> None:
    """Answer one prompt, streamed to standard output."""
    from localspec.services import single
    from localspec.services.runtime import Runtime

    question = single.Question(read(prompt), shared.system, raw, template)
    settings, choice, engine = shared.answer(), shared.choice(), shared.engine()
    with Terminal() as report, Runtime.open(choice, engine, report) as runtime:
        ids = single.prompt_ids(question, runtime, report)
        with stoppable() as stopped:
            stream = runtime.answer(ids, settings, cancelled=stopped, report=report)
            try:
                shown = "".join(piece.text for piece in stream) if json else answers.stream(stream, report)
            finally:
                stream.close()
        answer = stream.answer
        if json:
            report.settle()
            print_json(single.document(answer, question, settings, runtime))
        else:
            answers.finish(shown, answer)
    if is_terminal(sys.stderr) and not json:
        err().print(answers.footer(answer), style="dim", markup=False)
    if answer.finish_reason == "interrupted":
        raise typer.Exit(INTERRUPTED)


def read(prompt: str | None) -> str:
    """The prompt: as typed, or standard input without its last line break."""
    if prompt == "-" or (prompt is None and not is_terminal(sys.stdin)):
        text = sys.stdin.read() if sys.stdin is not None else ""
        return text.removesuffix("\n").removesuffix("\r")
    # A shell may hand over bytes that are no text.
    return (prompt or "").encode("utf-8", "surrogateescape").decode("utf-8", "replace")
