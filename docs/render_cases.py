"""Writes tests/cases.md: which test holds which real failure: `python -m docs.render_cases` (`make docs`).

The rows are failures that people met in programs of this kind; a test that names one (B31 in its name, its text, or
the comment above its section) keeps it from coming back. A row without a test says why, or `main` refuses.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS, PAGE = ROOT / "tests", ROOT / "tests" / "cases.md"
NAME = re.compile(r"(?:\b|_)([Bb]\d\d)(?=\b|_)")
SECTION = re.compile(r"^# --+ ?(.*)")

Named = dict[str, list[tuple[str, str]]]
"""Row -> (file below tests/, name of the test)."""

GROUPS: dict[str, dict[str, str]] = {
    "A. Vocabularies and special tokens of two models": {
        "B01": "embedding tables of one family padded to different sizes",
        "B03": "draft and verifier of different tokenizers",
        "B05": "a family refused for one token that is spelled differently",
        "B06": "the prompt tokenised twice, by different rules",
        "B07": "text re-encoded every round gains a begin token or loses blanks",
        "B08": "two begin-of-text tokens",
    },
    "B. End of generation, stop strings, limits": {
        "B09": "an end token inside a block does not end the answer",
        "B12": "a block goes past the number of tokens asked for",
        "B14": "a stop string over several tokens is missed or its beginning shown",
        "B16": "text is cut at a stop, ids and cache are not",
    },
    "C. Text output": {
        "B18": "letters of several tokens come out as replacement marks",
        "B20": "a code page without a letter ends the program",
        "B21": "escapes and progress in pipes",
        "B23": "end of input loops or fails",
    },
    "D. Cache: interrupts, rollback, kinds of memory": {
        "B25": "an interrupt loses the cache or leaves it dirty",
        "B27": "the draft's cache is off by one and acceptance decays",
        "B28": "positions jump and stale rows are read",
        "B31": "a sliding window breaks long contexts",
        "B32": "recurrent memory cannot forget a tail",
        "B34": "an empty draft shifts the rows",
        "B35": "cache types that do not work, or reach the draft",
        "B36": "the next turn re-encodes the answer to other ids",
    },
    "E. The sampling law": {
        "B37": "the law that is reported is not the one drawn from",
        "B39": "equal laws leave a residual of zero",
        "B40": "greedy verification keeps what is not the largest",
        "B41": "logit bias and filters skip verified positions",
        "B42": "penalties once per block instead of per position",
        "B44": "deterministic tree picks verified as if sampled",
        "B45": "seeds that do nothing, or too much",
        "B47": "greedy text differs for more than a near tie",
        "B49": "settings of lookup change the text",
    },
    "F. Context size and batches": {
        "B50": "a long prompt loses its beginning without a word",
        "B52": "the last draft does not fit the context",
        "B55": "more tokens than a batch abort the process",
        "B57": "empty prompts",
    },
    "G. Chat templates and user text": {
        "B58": "no template, a broken one, an endless one",
        "B59": "templates without a system role",
    },
    "H. Numbers and benchmarks": {
        "B61": "acceptance divided by tokens nobody tested",
        "B63": "counters that do not add up",
        "B64": "speeds from the wrong clock",
        "B66": "a broken engine repeats itself and wins the benchmark",
        "B67": "speed-ups of unlike prompts",
        "B68": "lookup remembers another conversation",
        "B69": "slower with speculation, and nobody says why",
        "B70": "the draft is gone and nobody says so",
    },
    "I. Fetching and files": {
        "B71": "interrupted downloads start anew or count as whole",
        "B73": "full disks",
        "B75": "a file that is here is not found offline",
        "B77": "gated looks like missing",
        "B78": "a mirror is asked for half of it",
        "B79": "proxies and certificates",
        "B80": "no right to make symlinks",
        "B81": "split files",
        "B83": "cut, empty and foreign files",
        "B84": "unknown architectures",
        "B85": "paths with any letters",
    },
    "J. Devices and library": {
        "B86": "two models, memory planned for one",
        "B87": "GPU layers ignored by a CPU build",
        "B88": "hidden states that cost the logits",
        "B89": "two threads on one context",
    },
    "K. Grammars, trees, heads, server": {
        "B90": "grammar state advanced by rejected tokens",
        "B91": "a server whose usage and logprobs miss accepted tokens",
        "B92": "trees with more leaves than sequences",
        "B94": "head inputs shifted by one",
    },
}

WHY_NOT = {
    "B90": "there are no grammars yet",
    "B91": "`serve` is not there yet",
}
"""Only for rows whose feature has not landed; it counts until the first test names the row."""


def named_in(source: str, file: str) -> Iterator[tuple[str, str, str]]:
    """(row, file, test) of one test file; a row in the text above all tests counts for the file as a whole."""
    tree = ast.parse(source)
    lines = source.splitlines()
    for row in sorted(rows_of(ast.get_docstring(tree) or "")):
        yield row, file, ""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            own = "\n".join(lines[first - 1 : node.end_lineno])
            for row in sorted(rows_of(own) or rows_of(section(lines, first))):
                yield row, file, node.name


def rows_of(text: str) -> set[str]:
    return {row.upper() for row in NAME.findall(text)}


def section(lines: list[str], before: int) -> str:
    """The heading that line number `before` stands under."""
    return next((found[1] for line in reversed(lines[: before - 1]) if (found := SECTION.match(line))), "")


def collect(folder: Path) -> Named:
    """The tests that name each row."""
    found: Named = {}
    for path in sorted(folder.rglob("test_*.py")):
        if path.name == "test_cases.py":  # it is about this page
            continue
        for row, file, test in named_in(path.read_text(encoding="utf-8"), path.relative_to(folder).as_posix()):
            found.setdefault(row, []).append((file, test))
    return found


def problems(named: Mapping[str, object]) -> list[str]:
    """What keeps the page from being true."""
    known = {row for rows in GROUPS.values() for row in rows}
    return [
        *(f"{row} has neither a test nor a reason" for row in sorted(known - set(named) - set(WHY_NOT))),
        *(f"{row} is named by a test but is no row" for row in sorted(set(named) - known)),
    ]


def render(named: Named) -> str:
    """The page."""
    rows = [row for titles in GROUPS.values() for row in titles]
    tested = sum(row in named for row in rows)
    others = "" if tested == len(rows) else "; the others belong to features that have not landed"
    parts = [
        "# Failures that people met, and the tests that keep them away\n",
        "Written by `python -m docs.render_cases` (`make docs`) from the tests themselves; a test names a row in its "
        "name, its text, or the comment above its section.\n",
        f"{tested} of {len(rows)} rows have tests{others}.",
    ]
    for group, titles in GROUPS.items():
        parts.append(f"\n## {group}\n\n| row | what goes wrong | tests |\n|---|---|---|")
        parts += [f"| {row} | {title} | {tests(row, named)} |" for row, title in titles.items()]
    return "\n".join(parts) + "\n"


def tests(row: str, named: Named) -> str:
    """Files with the tests in them."""
    by_file: dict[str, list[str]] = {}
    for file, test in named.get(row, []):
        by_file.setdefault(file, []).append(f"`{test.removeprefix('test_')}`" if test else "the whole file")
    return "; ".join(f"[{file}]({file}): {', '.join(names)}" for file, names in by_file.items()) or f"*{WHY_NOT[row]}*"


def main() -> None:
    named = collect(TESTS)
    if found := problems(named):
        sys.exit("\n".join(found))
    PAGE.write_text(render(named), encoding="utf-8")


if __name__ == "__main__":
    main()
