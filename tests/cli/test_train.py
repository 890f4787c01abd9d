"""`localspec train` from end to end on a tiny model: data, head, table, picture, JSON, and errors in words."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from localspec.cli import app
from localspec.cli.train_live import line, table
from localspec.services.train.learning import Point, Progress
from tests import zoo


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data of a tiny model with a chat template, made by the command line."""
    made = tmp_path_factory.mktemp("train")
    template = "{% for m in messages %}<|turn|>{{ m.role }} {{ m.content }}<|end|>{% endfor %}<|turn|>"
    words = zoo.byte_vocabulary(template=template)
    zoo.tiny_llama(made / "tiny.gguf", layers=3, vocabulary=words)
    prompts = made / "prompts.jsonl"
    prompts.write_text("\n".join(json.dumps({"prompt": f"number {i}"}) for i in range(80)), encoding="utf-8")
    arguments = ["train", "data", str(made / "data"), "--verifier", str(made / "tiny.gguf"), "--prompts", str(prompts)]
    assert app.main([*arguments, "--tokens", "1200", "--answer-tokens", "20", "--top", "8", "--threads", "1"]) == 0
    return made


def head(folder: Path, output: Path, *more: str) -> int:
    arguments = [
        "train",
        "head",
        str(folder / "data"),
        "--output",
        str(output),
        "--verifier",
        str(folder / "tiny.gguf"),
    ]
    return app.main([*arguments, "--steps", "6", "--every", "3", "--vocab", "200", "--threads", "1", *more])


def test_data_says_what_it_needs_and_what_it_made(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["train", "data", str(tmp_path / "d"), "--verifier", str(folder / "tiny.gguf"), "--threads", "1"]
    assert (
        app.main(
            [*arguments, "--tokens", "60", "--answer-tokens", "8", "--json", "--prompts", str(folder / "prompts.jsonl")]
        )
        == 0
    )
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert document["schema"] == "localspec.train-data/1"
    assert document["answer_tokens"] >= 60
    assert "GB are free" in shown.err


@pytest.mark.parametrize("kind", ["eagle3", "eagle1", "medusa"])
def test_a_head_with_its_record_and_picture(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    assert head(folder, tmp_path, "--kind", kind, "--plot", str(tmp_path / "curves.png"), "--json") == 0
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert document["schema"] == "localspec.train-head/1"
    assert document["kind"] == kind
    assert Path(document["path"]).is_file()
    assert "step 6 of 6" in shown.err
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))["held_out"] == document["held_out"]


def test_curves_of_trainings_one_behind_the_other(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert head(folder, tmp_path / "one", "--ahead", "1") == 0
    assert head(folder, tmp_path / "two", "--init", str(tmp_path / "one" / "eagle3.gguf")) == 0
    records = [str(tmp_path / name / "record.json") for name in ("one", "two")]
    assert app.main(["train", "curves", *records, "--output", str(tmp_path / "both.png")]) == 0
    assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG")
    (tmp_path / "other.json").write_text("{}", encoding="utf-8")
    assert app.main(["train", "curves", str(tmp_path / "other.json"), "--output", str(tmp_path / "x.png")]) == 2
    assert "no record of a training" in capsys.readouterr().err


def test_a_head_in_words(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert head(folder, tmp_path) == 0
    shown = capsys.readouterr().out
    assert "eagle3.gguf: eagle3" in shown
    assert "alpha by position" in shown


def more_data(folder: Path, made: Path, *more: str) -> str:
    prompts = made.with_suffix(".jsonl")
    prompts.write_text("\n".join(json.dumps({"prompt": f"letter {i} " * 40}) for i in range(9)), encoding="utf-8")
    arguments = ["train", "data", str(made), "--verifier", str(folder / "tiny.gguf"), "--prompts", str(prompts)]
    wanted = ["--tokens", "90", "--answer-tokens", "20", "--prompt-tokens", "600", "--threads", "1", *more]
    assert app.main([*arguments, *wanted]) == 0
    return str(made)


def test_a_head_of_short_and_long_prompts(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = more_data(folder, tmp_path / "long", "--top", "8")
    capsys.readouterr()
    assert head(folder, tmp_path / "head", long, "--json") == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert [each["folder"] for each in data["folders"]] == ["data", "long"]
    assert data["answer_tokens"] == sum(each["answer_tokens"] for each in data["folders"])
    assert data["top"] == 8
    assert "prompts" not in data  # which are the folders' own


def test_folders_that_do_not_go_together(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = more_data(folder, tmp_path / "other", "--top", "4")
    assert head(folder, tmp_path / "head", other) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert "top is 8 in the one and 4 in the other" in shown


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (["--kind", "eagle2"], 2, "eagle3, eagle1, medusa"),
        (["--weights", "q3"], 2, "--weights"),
        (["--layers", "a"], 2, "numbers with commas"),
        (["--init", "nothing.gguf"], 1, "nothing.gguf"),
    ],
)
def test_wrong_wishes(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], code: int, said: str
) -> None:
    assert head(folder, tmp_path, *more) == code
    shown = capsys.readouterr().err
    assert said in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize("flag", ["--states", "--hold"])
def test_words_that_mean_nothing(folder: Path, capsys: pytest.CaptureFixture[str], flag: str) -> None:
    assert app.main(["train", "data", str(folder / "other"), flag, "sideways"]) == 2
    assert "sideways" in capsys.readouterr().err


def test_without_torch_the_command_says_how_to_get_it(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("localspec.services.train.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert head(folder, tmp_path) == 1
    shown = capsys.readouterr().err
    assert "localspec[train]" in shown


def test_data_of_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["train", "head", str(tmp_path), "--output", str(tmp_path / "out")]) == 2
    assert "train data" in capsys.readouterr().err


def test_the_live_table_and_its_plain_line() -> None:
    from rich.console import Console

    point = Point(100, 5000, 9.0, 2.5, 2.6, (0.4, 0.3), (0.2, 0.1), 1.52)
    progress = Progress(step=100, tokens=5000, train_loss=2.4, points=[point])
    console = Console(width=120)
    with console.capture() as captured:
        console.print(table(progress, 400, 500.0))
    assert "0.40 0.30" in captured.get()
    assert "500 tokens/s, 30 s left" in captured.get()
    assert "alpha 0.400 0.300, 1.52 tokens per pass" in line(point, 400, 500.0)
