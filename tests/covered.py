"""`python -m tests.covered`: which share of lines and branches the tests reach, folder by folder, against our bar.

Reads what `coverage run -m pytest` left, of the processes that tests start too; `make coverage` does both. Prints what
no test reaches in the folders that have a bar; the exit code says whether one of them is below it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import coverage

BAR = {"lines": 95.0, "branches": 90.0}
FOLDERS = ("core", "loop", "engine", "catalog")


def measured() -> dict[str, Any]:
    """coverage.py's JSON report over all data files of the working folder."""
    data = coverage.Coverage()
    data.combine(keep=True)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        data.json_report(outfile=str(report))
        found: dict[str, Any] = json.loads(report.read_text())
    return found


def shares(files: list[dict[str, Any]]) -> dict[str, float]:
    """Percent of the lines and of the branches."""

    def percent(covered: str, all_: str) -> float:
        total = sum(file["summary"][all_] for file in files)
        return 100 * sum(file["summary"][covered] for file in files) / total if total else 100.0

    return {
        "lines": percent("covered_lines", "num_statements"),
        "branches": percent("covered_branches", "num_branches"),
    }


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


def main() -> int:
    files = measured()["files"]
    folders: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for name, file in files.items():
        folders[Path(name).parts[1] if len(Path(name).parts) > 2 else "(top)"].append(file)
    below = []
    for folder, inside in sorted(folders.items()):
        found = shares(inside)
        say(f"{folder:10} lines {found['lines']:6.2f} %   branches {found['branches']:6.2f} %")
        below += [folder] if folder in FOLDERS and any(found[kind] < BAR[kind] for kind in BAR) else []
    for name, file in sorted(files.items()):
        if Path(name).parts[1] in FOLDERS and (file["missing_lines"] or file["missing_branches"]):
            branches = [f"{start}->{'exit' if end < 0 else end}" for start, end in file["missing_branches"]]
            say(f"  {name}: {', '.join([*map(str, file['missing_lines']), *branches])}")
    if below:
        say(f"below {BAR['lines']:g} % of lines or {BAR['branches']:g} % of branches: {', '.join(below)}")
    return bool(below)


if __name__ == "__main__":
    sys.exit(main())
