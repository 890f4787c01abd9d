"""`localspec bench`: what is asked of the service, and how the answer looks. The pair is a toy."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localspec.cli import bench, bench_formats, charts
from localspec.cli.app import main
from localspec.core.sampling import Sampling
from localspec.engine.toy import ToyModel
from localspec.errors import UsageError
from localspec.services.bench import bench as service
from localspec.services.bench.runs import Configuration
from localspec.services.bench.texts import Difference
from localspec.services.prompts import Prompt
from localspec.services.report import Silent
from localspec.services.settings import AnswerSettings, PairChoice
from tests.services.toy_pair import ToyPair

LOSING = ToyModel(seed=99)


class Asked:
    """Stands in for the service: keeps what it is asked for and measures a toy pair."""

    def __init__(self) -> None:
        self.pair = ToyPair()
        self.choice: PairChoice | None = None
        self.request: service.Request | None = None

    def __call__(self, choice: PairChoice, engine: Any, request: service.Request, report: Any) -> service.Bench:
        self.choice, self.request = choice, request
        return service.measure(self.pair, request, report)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    fake = Asked()
    monkeypatch.setattr(service, "bench", fake)
    return fake


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    lines = [{"question_id": at, "category": name, "turns": [name * 2]} for at, name in enumerate(["ab", "cd", "ab"])]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(asked: Asked, prompts: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str, repeats: str = "1") -> tuple[int, str, str]:
        code = main(["bench", "--prompts", str(prompts), "--repeats", repeats, "--max-tokens", "24", *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def test_json_is_one_document(run: Run) -> None:
    code, out, _ = run("--N", "1,3", "--json")
    document = json.loads(out)
    assert code == 0
    assert out.count("\n") == 1
    assert document["schema"] == "localspec.bench/1"
    assert [(row["drafter"], row["N"]) for row in document["rows"] if row["category"] == "all"] == [
        ("none", 0),
        ("model", 1),
        ("model", 3),
    ]


def test_what_was_typed_reaches_the_service(run: Run, asked: Asked) -> None:
    code, _, err = run("--N", "1, 2,auto,2", "--drafter", "ngram,model", "--limit", "1", "--system", "S", "--raw")
    assert code == 0, err
    assert asked.request is not None
    assert asked.request.lengths == [1, 2, "auto"]
    assert asked.request.drafters == ["ngram", "model"]
    assert [prompt.id for prompt in asked.request.prompts] == ["0", "1"]
    assert (asked.request.repeats, asked.request.system, asked.request.raw) == (1, "S", True)
    assert (asked.request.answer.sampling.temperature, asked.request.answer.max_tokens) == (0.0, 24)
    assert asked.choice is not None
    assert asked.choice.N is None


@pytest.mark.parametrize(
    ("typed", "trees"),
    [
        ("none,auto,4,2,2", ["none", "auto", "4,2,2"]),
        ("4, 2, 2 ,auto", ["4,2,2", "auto"]),
        ('"4,2","3,1",none', ["4,2", "3,1", "none"]),
        ("auto,auto", ["auto"]),
        ("", []),
    ],
)
def test_trees_are_a_list_too(typed: str, trees: list[str]) -> None:
    assert bench.trees(typed) == trees


def test_trees_reach_the_service(run: Run, asked: Asked) -> None:
    code, out, err = run("--N", "2", "--tree", "none,2,1,auto", "--json")
    assert code == 0, err
    assert asked.request is not None
    assert asked.request.trees == ["none", "2,1", "auto"]
    rows = [row for row in json.loads(out)["rows"] if row["category"] == "all"]
    assert [row["tree"] for row in rows] == ["none", "none", "2,1", "auto"]
    assert all(sum(row["accepted_by_position"]) == row["accepted"] for row in rows)


def test_an_irregular_tree_comes_from_a_file(run: Run, asked: Asked, tmp_path: Path) -> None:
    path = tmp_path / "tree.json"
    path.write_text("[[0], [0, 0], [1]]")
    assert run("--tree", f"none,{path}")[0] == 0
    assert asked.request is not None
    assert asked.request.trees == ["none", str(path)]


def test_an_interrupt_shows_what_was_measured_and_ends_with_130(run: Run, asked: Asked) -> None:
    asked.pair = ToyPair(interrupt_at=5)
    code, out, err = run("--N", "3", "--json")
    document = json.loads(out)
    assert code == 130
    assert document["interrupted"] is True
    assert document["rows"]
    assert "Interrupted after 3 runs" in err


def test_categories_choose_prompts(run: Run, asked: Asked) -> None:
    assert run("--categories", "ab")[0] == 0
    assert asked.request is not None
    assert [prompt.id for prompt in asked.request.prompts] == ["0", "2"]


def test_the_built_in_prompts_are_used_without_a_file(asked: Asked) -> None:
    asked.pair = ToyPair(context_size=4096)
    assert main(["bench", "--repeats", "1", "--max-tokens", "4", "--json"]) == 0
    assert asked.request is not None
    assert len(asked.request.prompts) == 9


def test_the_table_shows_losers_as_losers(run: Run, asked: Asked) -> None:
    asked.pair = ToyPair(draft_model=LOSING, draft_cost_s=0.01)
    code, out, _ = run("--N", "3")
    assert code == 0
    assert "plain" in out
    assert "slower: " in out
    assert " drafting, " in out
    assert any(line.startswith("model N=3") and "slower" in line and "x" in line for line in out.splitlines())
    assert "One verifier pass over n tokens, ms: 1: 1.0, 2: 2.0" in out
    assert "\x1b" not in out


def test_the_table_has_a_column_per_category(run: Run) -> None:
    out = run("--N", "3")[1]
    header = next(line for line in out.splitlines() if line.startswith("speed-up"))
    assert header.split() == ["speed-up", "ab", "cd"]


def test_the_table_fits_80_columns() -> None:
    from rich.console import Console

    pair = ToyPair(draft_model=LOSING, draft_cost_s=0.01)
    prompts = [
        Prompt(name, name, "ab") for name in ("chat", "code", "code-edit", "summary", "translation", "math", "rag")
    ]
    answer = AnswerSettings(sampling=Sampling(temperature=0.0), max_tokens=24)
    request = service.Request(prompts, answer, drafters=["ngram"], lengths=[5, "auto"], repeats=1)
    console = Console(width=80, file=io.StringIO())
    for part in bench_formats.table(service.measure(pair, request, Silent()).as_dict()):
        console.print(part)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    rows = [line for line in shown.splitlines() if line.startswith(("plain ", "ngram N=5 ", "ngram N=auto "))]
    assert len(rows) == 3 + 2 + 3  # figures, categories, bars
    assert "…" not in shown


def test_csv_has_one_line_per_row(run: Run) -> None:
    code, out, _ = run("--N", "3", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0
    assert [(row["drafter"], row["category"]) for row in rows] == [
        (drafter, category) for drafter in ("none", "model") for category in ("all", "ab", "cd")
    ]
    assert float(rows[3]["speedup_median"]) == pytest.approx(4.0)
    assert rows[0]["alpha"] == ""


def test_markdown_is_a_table_with_the_machine_below(run: Run) -> None:
    code, out, _ = run("--N", "3", "--format", "md")
    lines = [line for line in out.splitlines() if line.startswith("|")]
    assert code == 0
    assert len(lines) == 2 + 6
    assert {line.count("|") for line in lines} == {10}
    assert "llama-cpp-python" in out


def test_b66_check_fails_when_a_text_is_not_the_plain_text(run: Run, asked: Asked) -> None:
    asked.pair = ToyPair(draft_model=ToyModel(seed=3, blur=0.6), breaks_rollback=True)
    code, out, err = run("--N", "3", "--check")
    assert code == 1
    assert "TEXT DIFFERS" in out
    assert "model N=3" in err
    assert run("--N", "3")[0] == 0


def test_b66_check_passes_when_the_texts_agree(run: Run) -> None:
    assert run("--N", "3", "--check")[0] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--N", "x"],
        ["--N", "-1"],
        ["--format", "xml"],
        ["--categories", "nothing"],
        ["--drafter", "none"],
        ["--N", "0"],
        ["--repeats", "0"],
        ["--tree", "4,x"],
        ["--tree", "3,0"],
        ["--plot", "chart.bmp"],
        ["--plot", "nowhere/chart.png"],
    ],
)
def test_wrong_use_is_exit_2_with_a_hint(run: Run, arguments: list[str]) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert "error: " in err
    assert "hint: " in err


def test_plot_writes_a_picture(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "chart.png"
    assert run("--N", "1,3,auto", "--plot", str(path))[0] == 0
    assert path.read_bytes().startswith(b"\x89PNG")


def test_plot_without_matplotlib_says_what_to_install(
    run: Run, asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, err = run("--plot", str(tmp_path / "chart.png"))
    assert code == 2
    assert "pip install 'localspec[plot]'" in err
    assert asked.request is None  # before anything was measured


def test_bars_are_as_long_as_the_speed_up() -> None:
    assert charts.bar(2.0, 2.0) == "█" * 24
    assert charts.bar(1.0, 2.0) == "█" * 12
    assert charts.bar(0.52, 2.0) == "█" * 6 + "▏"
    assert charts.bar(1.0, 2.0, ascii_only=True) == "#" * 12


def row(**changes: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "drafter": "model",
        "speedup": {"min": 1.0, "median": 1.2, "max": 1.3},
        "draft_share": None,
        "verify_share": None,
        "differing": 0,
        "near_ties": 0,
        "loop_share": 0.1,
        "fallen_back": 0,
    }
    return plain | changes


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"speedup": None}, []),
        ({"speedup": {"min": 0.5, "median": 0.9, "max": 1.0}}, ["slower"]),
        ({"differing": 2}, ["TEXT DIFFERS on 2 prompts"]),
        ({"near_ties": 1}, ["near ties: 1"]),
        ({"loop_share": 0.8}, ["repeats itself (80 %)"]),
        ({"fallen_back": 1}, ["drafter failed in 1 run"]),
    ],
)
def test_remarks(changes: dict[str, Any], said: list[str]) -> None:
    assert charts.remarks(row(**changes)) == said


def test_near_ties_are_no_failure(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    tie = {Configuration("model", 3): [Difference(0, 3, gap=0.1, noise=0.5)]}
    monkeypatch.setattr(service, "compared", lambda *_: tie)
    code, out, _ = run("--N", "3", "--check")
    assert code == 0
    assert "near ties: 1" in out


def test_a_missing_folder_for_the_plot_is_named_before_the_measuring(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no folder"):
        charts.check_plot(tmp_path / "nowhere" / "chart.png")
