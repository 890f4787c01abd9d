"""`localspec train convert` as a person meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from localspec.cli.app import main
from tests import checkpoints, zoo


@pytest.fixture
def verifier(clean: Path) -> Path:
    return zoo.tiny_llama(clean / "verifier.gguf", layers=6)


def test_a_head_and_how_to_use_it(verifier: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = checkpoints.folder(verifier.parent / "EAGLE3 tiny", checkpoints.eagle3(), checkpoints.CONFIG)
    out = verifier.parent / "head.gguf"
    asked = ["train", "convert", str(source), "--verifier", str(verifier), "--out", str(out)]
    assert main(asked) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{out}  eagle3, ")
    assert first.endswith("layers [2, 3, 3], draft vocabulary 100")
    assert second == f"use it: localspec chat --verifier {verifier} --draft {out} --drafter eagle3"
    assert main([*asked, "--json", "--weights", "f16", "--layers", "1,2,3"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert (found["schema"], found["kind"], found["layers"]) == ("localspec.train.convert/1", "eagle3", [1, 2, 3])
    assert found["verifier"]["file_type"] == "F32"


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        (["--weights", "q2_k"], 2, "--weights is 'Q2_K'"),
        (["--layers", "1,b,3"], 2, "--layers is '1,b,3'"),
        (["--out", "head.bin"], 2, "does not end in .gguf"),
        (["--verifier", "absent.gguf"], 1, "There is no file absent.gguf"),
    ],
)
def test_nonsense_is_a_sentence_and_a_hint(
    verifier: Path, capsys: pytest.CaptureFixture[str], more: list[str], code: int, words: str
) -> None:
    source = checkpoints.folder(verifier.parent / "medusa", checkpoints.medusa(), None)
    asked = ["train", "convert", str(source), "--verifier", str(verifier), "--out", str(verifier.parent / "a.gguf")]
    assert main([*asked, *more]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err
    assert "hint:" in said.err
    assert not list(verifier.parent.glob("a.gguf*"))
