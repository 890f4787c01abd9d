"""A GGUF in memory: what it says about itself, how loading reports, stops and fails, what remains when it is closed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from localspec.core.draft import EMPTY
from localspec.engine.context import ContextSettings, LlamaContext
from localspec.engine.model import LlamaModel
from localspec.errors import DecodeError, LoadError
from tests import wrecks, zoo

SMALL = ContextSettings(capacity=64, flash_attn="off")


@pytest.mark.parametrize(
    ("write", "architecture", "window", "is_recurrent"),
    [
        (zoo.tiny_llama, "llama", 0, False),
        (zoo.tiny_swa, "gemma3", 32, False),
        (zoo.tiny_mamba, "mamba", 0, True),
        (zoo.tiny_jamba, "jamba", 0, True),
        (zoo.tiny_lfm2, "lfm2", 0, True),
    ],
    ids=["llama", "gemma3", "mamba", "jamba", "lfm2"],
)
def test_facts(tmp_path: Path, write: Callable[..., Path], architecture: str, window: int, is_recurrent: bool) -> None:
    with LlamaModel(write(tmp_path / "tiny.gguf", context=300), gpu_layers=0) as model:
        assert model.architecture == architecture
        assert model.window == window
        assert model.is_recurrent is is_recurrent
        assert model.can_decode
        assert model.layers == 2
        assert model.bytes > 100_000
        assert model.name == "tiny"
        assert architecture.rstrip("3") in model.description


def test_the_chat_template_is_the_files(tmp_path: Path) -> None:
    plain = zoo.tiny_llama(tmp_path / "plain.gguf")
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    chatty = zoo.tiny_llama(tmp_path / "chatty.gguf", vocabulary=zoo.byte_vocabulary(template=template))
    with LlamaModel(plain, gpu_layers=0) as model:
        assert model.template is None
    with LlamaModel(chatty, gpu_layers=0) as model:
        assert model.template == template
        assert model.meta("tokenizer.chat_template") == template
        assert model.meta("no.such.key") is None


def test_loading_reports_how_far_it_is(tmp_path: Path) -> None:
    fractions: list[float] = []
    LlamaModel(zoo.tiny_llama(tmp_path / "a.gguf"), gpu_layers=0, progress=fractions.append).close()
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0


@pytest.mark.parametrize("at", [0, 3, -1], ids=["first", "middle", "last"])
def test_ctrl_c_stops_loading(tmp_path: Path, at: int) -> None:
    """The exception must not unwind through C; at the last report the weights are already there and must go again."""
    path = zoo.tiny_llama(tmp_path / "a.gguf")
    fractions: list[float] = []
    LlamaModel(path, gpu_layers=0, progress=fractions.append).close()
    last = len(fractions) - 1 if at < 0 else at
    heard: list[float] = []

    def interrupt(fraction: float) -> None:
        heard.append(fraction)
        if len(heard) > last:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LlamaModel(path, gpu_layers=0, progress=interrupt)
    assert len(heard) == last + 1


@pytest.mark.parametrize("name", ["Ünïcode 模型", "with space", "quote'\"", "100%", "-x"])
def test_any_path_works(tmp_path: Path, name: str) -> None:
    """B85."""
    folder = tmp_path / name
    folder.mkdir()
    with LlamaModel(zoo.tiny_llama(folder / f"{name}.gguf"), gpu_layers=0) as model:
        assert model.layers == 2


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    """B84: the reason stands in llama.cpp's log only, which is silent."""
    path = wrecks.unknown_architecture(tmp_path / "new.gguf")
    with pytest.raises(LoadError, match="zzzzz") as caught:
        LlamaModel(path, gpu_layers=0)
    assert caught.value.hint


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"nowhere\.gguf"):
        LlamaModel(tmp_path / "nowhere.gguf", gpu_layers=0)


def test_a_truncated_file_is_an_error(tmp_path: Path) -> None:
    """B83: the catalog finds it first; the engine alone must not crash on it either."""
    path = zoo.tiny_llama(tmp_path / "cut.gguf")
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(LoadError, match=r"cut\.gguf"):
        LlamaModel(path, gpu_layers=0)


def test_all_parts_of_a_split_file_are_loaded(tmp_path: Path) -> None:
    """B81."""
    whole, parts = zoo.tiny_llama(tmp_path / "whole.gguf"), zoo.tiny_llama(tmp_path / "split.gguf", split=8)
    with LlamaModel(whole, gpu_layers=0) as one, LlamaModel(parts, gpu_layers=0) as other:
        assert one.bytes == other.bytes


def test_closing_twice_is_fine_and_afterwards_it_says_so(tmp_path: Path) -> None:
    model = LlamaModel(zoo.tiny_llama(tmp_path / "a.gguf"), gpu_layers=0)
    model.close()
    model.close()
    with pytest.raises(LoadError, match=r"a\.gguf has been closed"):
        _ = model.layers
    with pytest.raises(LoadError, match="closed"):
        LlamaContext(model, SMALL)


def test_a_closed_context_says_so(tmp_path: Path) -> None:
    """B89: each of these ended the process."""
    with LlamaModel(zoo.tiny_llama(tmp_path / "a.gguf"), gpu_layers=0) as model:
        context = LlamaContext(model, SMALL)
        result = context.prefill([7, 8, 9])
        assert result is not None
        context.close()
        context.close()
        with pytest.raises(DecodeError, match="closed"):
            context.prefill([7, 8])
        with pytest.raises(DecodeError, match="closed"):
            context.evaluate(9, EMPTY)
        with pytest.raises(DecodeError, match="closed"):
            context.rewind(0)
        with pytest.raises(DecodeError, match="closed"):
            context.commit(())
        with pytest.raises(DecodeError):
            result.logits(0)
        assert context.tokens.tolist() == [7, 8, 9]
