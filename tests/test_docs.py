"""What the README says must be true: its commands exist, its links lead somewhere, its tables come from results."""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import typer.main

from docs import record, render_results

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "bench" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]


def fenced(page: str) -> list[str]:
    return re.findall(r"^```\w*\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


COMMANDS = [line.partition("#")[0].strip() for block in fenced(README) for line in block.splitlines()]
OURS = [line for line in COMMANDS if line.startswith("localspec ")]


def test_the_readme_shows_commands() -> None:
    assert len(OURS) > 4


@pytest.mark.parametrize("line", OURS)
def test_every_command_of_the_readme_exists(line: str) -> None:
    """Parsed by the command line itself, down to the last option; nothing is run."""
    from localspec.cli.app import app

    words = shlex.split(line)[1:]
    command: Any = typer.main.get_command(app)
    context = click.Context(command)
    while hasattr(command, "get_command"):
        name, command = words[0], command.get_command(context, words[0])
        assert command is not None, name
        words = words[1:]
        context = command.context_class(command, info_name=name, parent=context)
    with context:
        rest = command.make_parser(context).parse_args(args=words)[1]
    assert rest == []


def test_the_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    asked = {line.split()[1] for line in COMMANDS if line.startswith("make ")}
    assert {"chat", "test"} <= asked <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


def test_the_python_of_the_readme_is_python() -> None:
    (snippet,) = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    tree = ast.parse(snippet)
    assert any(isinstance(node, ast.With) for node in tree.body)


# -- tables -----------------------------------------------------------------------------------------------------------


def row(drafter: str, category: str, speedup: float) -> dict[str, Any]:
    spread = {"min": speedup - 0.1, "median": speedup, "max": speedup + 0.1}
    return {
        "drafter": drafter, "N": 3, "tree": "none", "category": category, "tokens_per_s": spread, "speedup": spread,
        "alpha": None if drafter == "none" else 0.8, "acceptance_rate": None if drafter == "none" else 0.6,
        "tokens_per_pass": 2.0, "overhead": 0.0123,
    }  # fmt: skip


def document(**content: Any) -> dict[str, Any]:
    machine = {"os": "Linux", "cpu": "a chip", "physical_cores": 2, "memory_gb": 8, "python": "3.12"}
    return {"date": "2026-01-02 03:04 UTC", "command": "python -m bench.specbench x", "machine": machine,
            "llama_cpp": "llama-cpp-python 1"} | content  # fmt: skip


@pytest.fixture
def results(tmp_path: Path) -> Path:
    rows = [row("none", "all", 1.0), row("none", "qa", 1.0), row("model", "all", 0.8), row("model", "qa", 1.3)]
    benchmarks = {"T=0": {"rows": rows}}
    spread = {"min": 1.0, "median": 1.1, "max": 1.2}
    files = [{"file": "a.gguf", "ratio": {"peer": spread}, "tokens_per_s": {"localspec": spread, "peer": spread},
              "same_text": {"peer": 1.0}}]  # fmt: skip
    rule = {"alpha": 0.7, "acceptance_rate": 0.5, "tokens_per_pass": 2.1}
    for name, content in {
        "pair": document(benchmarks=benchmarks),
        "lookup": document(benchmarks=benchmarks),
        "overhead": document(benchmarks={"T=0, model": {"rows": rows}}),
        "plain": document(files=files),
        "acceptance": document(rules={"T=1, no filters, stock": rule}),
        "memory": document(llama_cpp_mb=100.4, peak_rss_mb=180.2, over_mb=79.8),
        "matrix": document(
            cells=[
                {"verifier": "F32", "drafter": "ngram", "ratios": [0.9, 1.3, 1.0]},
                {"verifier": "F32", "drafter": "ngram", "ratios": [1.1]},
                {"verifier": "Q8_0", "drafter": "model", "ratios": [0.96]},
            ]
        ),
        **dict.fromkeys(
            ("trees", "autotree-F32", "autotree-Q4_1", "lookahead", "heads", "cascade"),
            document(summary={"header": ["draft", "per pass"], "rows": [["model tree 4,2,2", "3.54"]]}),
        ),
    }.items():
        (tmp_path / f"2026-01-02-{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return tmp_path


def test_every_result_becomes_a_table(results: Path) -> None:
    text = render_results.render(results)
    assert text.startswith("Measured on Linux, a chip, 2 cores, 8 GB, Python 3.12, llama-cpp-python 1.")
    assert text.count("`python -m bench.specbench x`") == len(render_results.TABLES)
    assert "| T=0 | model N=3 | 0.8 | 0.80 (0.70-0.90) | 60 % | 80 % | 2.00 |" in text, "losing rows are shown"
    assert text.count("| model tree 4,2,2 | 3.54 |") == 6
    assert "| F32 | ngram | 2 | 1.050 (1.000-1.100) |" in text
    assert "| all | both | 3 | 1.000 (0.960-1.100) |" in text
    assert "| qa | model N=3 | 1.3 | 1.30 (1.20-1.40) | 60 % | 2.00 |" in text
    assert "| T=1, no filters | stock | 50 % | 70 % | 2.10 |" in text
    assert "| T=0, model | 1.2 % |" in text
    assert "| over llama.cpp | 80 |" in text


def test_one_machine_with_two_kernels_is_named_once() -> None:
    names = {render_results.without_kernel(f"Linux-6.1.{n}-x86_64-with-glibc2.36, a chip, 2 cores") for n in (1, 2)}
    assert names == {"Linux x86_64, glibc2.36, a chip, 2 cores"}
    assert render_results.without_kernel("macOS-15, a chip") == "macOS-15, a chip"


def test_the_newest_result_counts(results: Path) -> None:
    newer = document(llama_cpp_mb=1.0, peak_rss_mb=3.0, over_mb=2.0)
    (results / "2026-02-01-memory.json").write_text(json.dumps(newer), encoding="utf-8")
    assert "| over llama.cpp | 2 |" in render_results.render(results)


def test_without_results_nothing_is_claimed(tmp_path: Path) -> None:
    page = render_results.replaced(README, render_results.render(tmp_path))
    between = page.partition(render_results.BEGIN)[2].partition(render_results.END)[0]
    assert between.strip() == ""


def test_the_rest_of_the_page_stays_as_it_is(results: Path) -> None:
    once = render_results.replaced(README, render_results.render(results))
    assert render_results.replaced(once, render_results.render(results)) == once
    assert once.partition(render_results.BEGIN)[0] == README.partition(render_results.BEGIN)[0]
    assert once.partition(render_results.END)[2] == README.partition(render_results.END)[2]


# -- the picture ------------------------------------------------------------------------------------------------------


def shown(*written: str) -> list[str]:
    screen = record.Screen(10)
    for text in written:
        screen.feed(text)
    return [line.plain for line in screen.texts()]


@pytest.mark.parametrize(
    ("written", "lines"),
    [
        (["one\r\ntwo\r\n\r\n"], ["one", "two"]),
        (["wrong\rright"], ["right"]),
        (["ab\bc"], ["ac"]),
        (["abcdef\x1b[3D\x1b[K!"], ["abc!"]),
        (["one\r\ntwo\x1b[1A\r\x1b[Jnew"], ["new"]),
        (["a\x1b[3Cb"], ["a   b"]),
        (["a\x1b[2Bb"], ["a", "", " b"]),
        (["0123456789abc"], ["0123456789", "abc"]),
        (["\x1b[?2004h\x1b[1mb", "old\x1b[0", "m\x1b]0;title\x07!"], ["bold!"]),
    ],
)
def test_a_screen_shows_what_a_terminal_would(written: list[str], lines: list[str]) -> None:
    assert shown(*written) == lines


def test_colours_are_kept() -> None:
    screen = record.Screen(20)
    screen.feed("\x1b[32mgreen\x1b[0m plain")
    picture = record.draw(screen, "a title")
    assert picture.startswith("<svg")
    assert "a&#160;title" in picture
    assert "green" in picture
    (line,) = screen.texts()
    assert [(span.start, span.end) for span in line.spans] == [(0, 5)], "letters of one colour are one piece"
