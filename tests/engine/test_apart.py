"""Quantising in a process of its own: what comes out is whole or not there, whoever dies on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gguf
import numpy as np
import pytest

from localspec.catalog.modelfile import read_model
from localspec.engine import apart
from localspec.errors import EngineError
from tests import zoo

F16, Q8_0, IQ2_XXS = 1, 7, 19


def tensors(path: Path) -> dict[str, np.ndarray]:
    return {tensor.name: np.array(tensor.data) for tensor in gguf.GGUFReader(path).tensors}


def nothing(_: int) -> None:
    return None


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_requantised(tmp_path: Path) -> None:
    source = zoo.tiny_llama(tmp_path / "model.gguf")
    expected = apart.forecast(source, Q8_0)
    apart.make(source, tmp_path / "größe Q8.gguf", Q8_0, grown=nothing)
    made = read_model(tmp_path / "größe Q8.gguf")
    weights = sum(each.nbytes for each in tensors(made.path).values())
    assert made.quantisation == "Q8_0"
    assert abs(expected["after"] - weights) <= 2**20 / 100, "llama.cpp says hundredths of a MiB"
    assert expected["before"] > expected["after"]
    assert left(tmp_path) == ["größe Q8.gguf", "model.gguf"]


def test_the_layers_that_stay_keep_their_weights(tmp_path: Path) -> None:
    source = zoo.tiny_llama(tmp_path / "model.gguf", layers=5)
    apart.make(source, tmp_path / "made.gguf", None, without=[3, 1], grown=nothing)
    before, after = tensors(source), tensors(tmp_path / "made.gguf")
    assert read_model(tmp_path / "made.gguf").layers == 3
    for new, old in ((0, 0), (1, 2), (2, 4)):
        for name in ("attn_q.weight", "ffn_down.weight", "attn_norm.weight"):
            np.testing.assert_array_equal(after[f"blk.{new}.{name}"], before[f"blk.{old}.{name}"])
    assert not [name for name in after if name.startswith("blk.3")]


def test_a_split_model_becomes_one_file(tmp_path: Path) -> None:
    source = zoo.tiny_llama(tmp_path / "parts.gguf", split=8)
    apart.make(source, tmp_path / "made.gguf", Q8_0, grown=nothing)
    made = read_model(tmp_path / "made.gguf")
    assert len(made.parts) == 1
    assert len(tensors(made.path)) == len(tensors(zoo.tiny_llama(tmp_path / "whole.gguf")))


def test_rows_that_do_not_fit_are_told(tmp_path: Path) -> None:
    expected = apart.forecast(zoo.tiny_llama(tmp_path / "model.gguf"), 10)  # Q2_K wants multiples of 256
    assert 0 < expected["fallbacks"] <= expected["tensors"]


def test_llama_cpps_refusal_is_a_sentence(tmp_path: Path) -> None:
    wide = zoo.byte_vocabulary().padded(251)  # 512 ids, so rows of 512
    source = zoo.script_model(tmp_path / "wide.gguf", {}, vocabulary=wide)
    with pytest.raises(EngineError, match="importance matrix") as caught:
        apart.make(source, tmp_path / "made.gguf", IQ2_XXS, grown=nothing)
    assert "\n" not in str(caught.value)
    assert caught.value.hint
    assert left(tmp_path) == ["wide.gguf"]


def test_an_abort_of_llama_cpp_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ends itself leaves a sentence here, not a dead shell."""
    source = zoo.tiny_llama(tmp_path / "model.gguf")
    half = tmp_path / f"made.gguf{apart.UNFINISHED}"
    writes = f"open({str(half)!r}, 'w').write('half')"
    dying = f"import os, sys; {writes}; sys.stderr.write('GGML_ASSERT(x) failed\\n'); os.abort()"
    monkeypatch.setattr(apart, "PROGRAM", (sys.executable, "-c", dying))
    with pytest.raises(EngineError, match=r"signal 6.*GGML_ASSERT\(x\) failed"):
        apart.make(source, tmp_path / "made.gguf", Q8_0, grown=nothing)
    assert left(tmp_path) == ["model.gguf"]


def test_ctrl_c_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = zoo.tiny_llama(tmp_path / "model.gguf")
    monkeypatch.setattr(apart, "TICK_S", 0.01)

    def press(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        apart.make(source, tmp_path / "made.gguf", Q8_0, grown=press)
    assert left(tmp_path) == ["model.gguf"]


def test_what_an_earlier_crash_left_is_replaced(tmp_path: Path) -> None:
    source = zoo.tiny_llama(tmp_path / "model.gguf")
    (tmp_path / f"made.gguf{apart.UNFINISHED}").write_text("half")
    apart.make(source, tmp_path / "made.gguf", F16, grown=nothing)
    assert left(tmp_path) == ["made.gguf", "model.gguf"]


def test_the_process_ends_with_the_one_that_waits_for_it(tmp_path: Path) -> None:
    """A killed parent cannot clean up: the child notices, removes its half and leaves."""
    source = zoo.tiny_llama(tmp_path / "model.gguf")
    waiting = tmp_path / f"made.gguf{apart.UNFINISHED}"
    # In the place of the quantiser: writes its half and waits for ever, but for the watch that the real one has.
    endless = (
        "import sys, time, threading; from pathlib import Path; from localspec.engine import quantize; "
        f"half = Path({str(waiting)!r}); half.write_text('half'); "
        "threading.Thread(target=quantize._leave_with_parent, args=(half,), daemon=True).start(); time.sleep(60)"
    )
    parent = (
        "import os, signal, sys; from pathlib import Path; from localspec.engine import apart; "
        f"apart.PROGRAM = (sys.executable, '-c', {endless!r}); half = Path({str(waiting)!r})\n"
        "def die(_):\n    if half.exists(): os.kill(os.getpid(), signal.SIGKILL)\n"
        f"apart.make(Path({str(source)!r}), Path({str(tmp_path / 'made.gguf')!r}), 7, grown=die)"
    )
    done = subprocess.run([sys.executable, "-c", parent], check=False, timeout=60, env=os.environ | {"PYTHONPATH": "."})
    assert done.returncode == -signal.SIGKILL
    for _ in range(200):
        if not waiting.exists():
            break
        time.sleep(0.05)
    assert left(tmp_path) == ["model.gguf"]
