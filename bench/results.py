"""Where results go: bench/results/<date>-<name>.json and .md, with the command, the machine and how busy it was."""

from __future__ import annotations

import json
import os
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from localspec.cli.bench_formats import machine_line
from localspec.services.bench import facts as bench_facts
from localspec.version import __version__

FOLDER = Path(__file__).parent / "results"


def facts() -> dict[str, Any]:
    """What every result carries. `load_average` is that of the last minute when the measuring began."""
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command(),
        "localspec": __version__,
        "llama_cpp": bench_facts.llama_cpp(),
        "machine": bench_facts.machine(),
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def command() -> str:
    """The command line that is running, as somebody would type it."""
    module = Path(sys.argv[0]).stem
    return " ".join(["python -m", f"bench.{module}", *sys.argv[1:]])


def save(name: str, document: dict[str, Any], text: str, *, folder: Path = FOLDER) -> Path:
    """Write both files and return the path of the Markdown one."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{document['date'][:10]}-{name}"
    kept = json.dumps(document, indent=1).replace(str(Path.home()), "~")  # where somebody lives is nobody's business
    (folder / f"{stem}.json").write_text(f"{kept}\n", encoding="utf-8")
    page = folder / f"{stem}.md"
    head = f"# {name}\n\n`{document['command']}`\n\n{document['date']}, {machine_line(document)}\n\n"
    page.write_text(f"{head}{text.strip()}\n", encoding="utf-8")
    return page


def as_table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
