"""`localspec plan` on tiny pairs: one document, one screen, a command that bench understands, exit codes."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from localspec.cli import app
from tests.services import tiny

SMALL = ["--threads", "1", "--ctx-size", "256", "--max-tokens", "24", "--raw"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCALSPEC_PROFILES", "on")


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    lines = [
        {"question_id": 1, "category": "a", "turns": ["to be or not to be, to be or"]},
        {"question_id": 2, "category": "b", "turns": ["one two three, one two three, one"]},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def pair(verifier: str = "verifier", draft: str | None = "draft") -> list[str]:
    models = ["--verifier", str(tiny.model(verifier))]
    return [*models, "--draft", str(tiny.model(draft))] if draft else models


def plan(prompts: Path | None, *more: str, models: list[str] | None = None) -> int:
    given = ["--prompts", str(prompts)] if prompts else []
    return app.main(["plan", *(pair() if models is None else models), *given, *SMALL, *more])


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    (line,) = capsys.readouterr().out.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


@pytest.mark.parametrize("law", [["--temperature", "0"], [], ["--temperature", "1", "--seed", "3"]])
def test_json_is_the_contract_s_document(prompts: Path, law: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(prompts, "--json", *law) == 0
    found = document(capsys)
    assert found["schema"] == "localspec.plan/1"
    assert set(found["recommendation"]) == {"drafter", "N", "tree"}
    assert {"expected_speedup", "candidates", "profile", "reasons"} <= set(found)
    assert [one["drafter"] for one in found["drafters"]][:2] == ["model", "ngram"]
    assert found["profile"]["verify_s"][0]["n"] == 1
    assert 0.0 < found["drafters"][0]["alpha"] <= 1.0
    assert [check["name"] for check in found["checks"]] == ["tokenizer", "rollback", "memory"]
    assert all(check["ok"] for check in found["checks"])
    for one in found["candidates"]:
        assert one["arithmetic"].endswith(f"{one['overall']:.2f}x")
        assert one["low"] <= one["speedup"] <= one["high"]


def test_the_profile_is_there_for_the_next_session(
    prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(prompts, "--json", "--temperature", "0") == 0
    found = document(capsys)
    assert Path(found["stored"]).is_file()
    assert len([*(tmp_path / "cache" / "profiles").iterdir()]) == 4, "each drafter alone, and as one that auto takes"
    times = {point["n"]: point["s"] for point in found["profile"]["verify_s"]}
    for drafter in ("model", "auto"):
        with tiny.open_pair(drafter=drafter, N="auto", engine={"flash_attn": "auto"}) as runtime:
            assert runtime.control[1].price(2) == pytest.approx(times[2] / times[1])


def test_one_screen_and_a_command_that_verifies_it(prompts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(prompts, "--temperature", "0") == 0
    shown = capsys.readouterr().out
    for part in ("Recommended:", "Around the optimum", "Why", "Checks", "Fallback:", "Verify it with:"):
        assert part in shown
    command = next(line for line in shown.splitlines() if line.startswith("  localspec bench"))
    words = shlex.split(command)[1:]
    assert words[words.index("--temperature") + 1] == "0"
    assert str(prompts) in words
    assert app.main([*words, "--repeats", "1", "--json"]) == 0
    benched = json.loads(capsys.readouterr().out)
    assert benched["protocol"]["prompts"] == 2


@pytest.mark.parametrize(
    "more",
    [
        ["--latency-ms", "0.000001"],
        ["--parallel", "3"],
        ["--drafter", "ngram"],
        ["--drafter", "ngram", "-o", "max_ngram=3"],
        ["--drafter", "cascade"],
        ["--drafter", "lookahead"],
        ["--temperature", "1.7"],
    ],
)
def test_wishes_are_heard(prompts: Path, more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(prompts, "--json", *more) == 0
    found = document(capsys)
    if "--latency-ms" in more:
        assert found["recommendation"]["drafter"] == "none"
        assert found["expected_speedup"] == 1.0
    if "--drafter" in more:
        (one,) = found["drafters"]
        assert one["drafter"] == more[1]
        assert one["tried"] == (more[1] in ("cascade", "lookahead"))
    if "1.7" in more:
        assert any("1.7" in warning for warning in found["warnings"])
    if "--parallel" in more:
        assert any("3 streams" in reason for reason in found["reasons"])


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llama-server"])
def test_other_engines_are_told_the_same(prompts: Path, engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(prompts, "--temperature", "0", "--engine", engine, "--drafter", "ngram") == 0
    shown = capsys.readouterr().out
    assert f"The same with {engine}:" in shown
    assert str(tiny.model("verifier")) in shown.partition("The same with")[2]


@pytest.mark.parametrize(("verifier", "draft"), [("mamba", "mamba-draft"), ("lfm2", "lfm2-draft"), ("swa", "draft")])
def test_memories_that_take_chains_only(
    prompts: Path, verifier: str, draft: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(prompts, "--json", "--temperature", "0", models=pair(verifier, draft)) == 0
    found = document(capsys)
    assert {each["tree"] for one in found["drafters"] for each in one["curve"]} == {"none"}


def test_a_draft_that_does_not_fit_leaves_prompt_lookup(prompts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(prompts, "--json", "--temperature", "0", models=pair("verifier", "foreign")) == 0
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert [one["drafter"] for one in found["drafters"]] == ["ngram"]
    assert found["checks"][0]["ok"] is False
    assert shown.err.startswith("warning: Drafter model cannot be used")


def test_a_head_says_which_drafter_it_is_for(prompts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The pair was opened for a draft model, which a head is not, and the plan was made without it."""
    assert plan(prompts, "--json", "--temperature", "0", models=pair("verifier", "eagle3")) == 0
    shown = capsys.readouterr()
    assert "cannot be used" not in shown.err
    tried = {one["drafter"]: one["tried"] for one in json.loads(shown.out)["drafters"]}
    assert tried["eagle3"]
    assert not tried["ngram"]


@pytest.mark.parametrize(("drafter", "code", "said"), [("none", 2, "nothing to plan"), ("model", 1, "no drafter left")])
def test_nobody_to_plan_for_is_one_sentence(
    prompts: Path, drafter: str, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended as a bug report, because the best of no candidates was looked for."""
    assert plan(prompts, "--drafter", drafter, models=pair("verifier", "foreign")) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err
    assert "hint: Leave --drafter out" in shown.err or "hint: Leave it out" in shown.err


def test_a_picture_is_drawn(prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(prompts, "--temperature", "0", "--plot", str(tmp_path / "plan.png")) == 0
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--task", "poetry"], "chat, code"),
        (["--task", "chat", "--prompts", "x.jsonl"], "--prompts"),
        (["--prompts", "/nowhere/x.jsonl"], "cannot be read"),
        (["--latency-ms", "0"], "--latency-ms"),
        (["--latency-ms", "nan"], "--latency-ms"),
        (["--parallel", "0"], "parallel"),
        (["--N", "3"], "--N"),
        (["--tree", "2,2"], "--tree"),
        (["--max-tokens", "3"], "too short"),
        (["--drafter", "poet"], "no drafter"),
        (["--acceptance", "typical"], "rejection, coupled"),
        (["-o", "fast=yes"], "fast"),
        (["--plot", "x.gif"], ".png"),
        (["--engine", "steam"], "vllm"),
    ],
)
def test_wrong_use(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(None, *arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert said in shown.err.replace("\n", " ")


def test_a_cache_that_cannot_be_written_costs_only_the_profile(
    prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert plan(prompts, "--json", "--temperature", "0") == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["stored"] is None
    assert "could not be kept" in shown.err


def test_lines_in_a_pipe_are_no_wider_than_their_words(prompts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(prompts) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) < 1000


def test_the_head_of_a_pair_that_looks_up_is_weighed_too(
    tmp_path: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in the pair that comes with localspec: the plan took its head for a language model and left it out."""
    registry = tmp_path / "models.toml"
    registry.write_text(
        f"""
[models.big]
source = "{tiny.model("verifier")}"
[models.head]
source = "{tiny.model("eagle3")}"
[pairs.mine]
verifier = "big"
draft = "head"
drafter = "ngram"
"""
    )
    monkeypatch.setenv("LOCALSPEC_MODELS", str(registry))
    assert plan(prompts, "--json", "--temperature", "0", models=["--pair", "mine"]) == 0
    out = capsys.readouterr()
    assert "cannot be used" not in out.err
    assert [one["drafter"] for one in json.loads(out.out)["drafters"]][:2] == ["ngram", "eagle3"]
