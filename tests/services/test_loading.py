"""Two models on the devices there are. The GPU here is a double that says how much it has and when it had enough.

B86: memory was planned for the verifier alone, so the draft failed late, crashed, or ran on the CPU without a word.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localspec.catalog.modelfile import read_model
from localspec.engine.context import ContextSettings, LlamaContext
from localspec.engine.devices import Device
from localspec.engine.model import LlamaModel
from localspec.engine.placement import EVERYTHING, RESERVE, Need
from localspec.errors import LoadError
from localspec.services import loading
from localspec.services.loading import Loaded, load, need
from localspec.services.runtime import Runtime
from tests import zoo
from tests.services import tiny
from tests.services.toy_pair import Collected

SETTINGS = ContextSettings(capacity=256, flash_attn="off")
LAYERS = 8
MEBI = 2**20


class Gpu:
    """Refuses to load more layers of a file than `holds` allows, in the model or, with `late`, only in the context."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, free: int) -> None:
        self.holds: dict[str, int] = {}
        self.late = False
        self.asked: list[tuple[str, int]] = []
        self.open = 0
        gpu = self

        class Model(LlamaModel):
            def __init__(self, path: Path, *, gpu_layers: int, progress: Callable[[float], None] | None = None) -> None:
                gpu.asked.append((path.stem, gpu_layers))
                if not gpu.late:
                    gpu.check(path, gpu_layers)
                super().__init__(path, gpu_layers=gpu_layers, progress=progress)
                gpu.open += 1

            def close(self) -> None:
                gpu.open -= bool(self._handle)
                super().close()

        class Context(LlamaContext):
            def __init__(self, model: LlamaModel, settings: ContextSettings) -> None:
                gpu.check(model.path, model.gpu_layers)
                super().__init__(model, settings)

        monkeypatch.setattr(loading, "LlamaModel", Model)
        monkeypatch.setattr(loading, "LlamaContext", Context)
        monkeypatch.setattr(loading, "devices", lambda: [Device("CUDA0", "a double", "gpu", free, 2 * free)])

    def check(self, path: Path, layers: int) -> None:
        if layers > self.holds.get(path.stem, EVERYTHING):
            raise LoadError(f"unable to allocate CUDA0 buffer for {path.name}")

    def layers(self, name: str) -> list[int]:
        return [layers for stem, layers in self.asked if stem == name]


@pytest.fixture
def roomy(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """A GPU whose figures say that everything fits."""
    return Gpu(monkeypatch, free=64 * 2**30)


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zoo.tiny_llama(tmp_path_factory.mktemp("deep") / "deep.gguf", layers=LAYERS)


@pytest.fixture
def report() -> Collected:
    return Collected()


def loaded(path: Path, report: Collected, **how: Any) -> Loaded:
    how = {"gpu_layers": None, "role": "verifier"} | how
    return load(read_model(path), how.pop("settings", SETTINGS), report=report, **how)


def test_what_fits_goes_there_whole(roomy: Gpu, deep: Path, report: Collected) -> None:
    model = loaded(deep, report)
    assert roomy.asked == [("deep", EVERYTHING)]
    assert model.layers_on_gpu == LAYERS
    assert model.where("verifier").endswith("on GPU")
    assert report.warnings == []
    model.close()


@pytest.mark.parametrize("late", [False, True], ids=["weights", "context"])
@pytest.mark.parametrize("holds", range(LAYERS + 1))
def test_fewer_layers_rather_than_no_answer(roomy: Gpu, deep: Path, report: Collected, holds: int, late: bool) -> None:
    """The figures were too hopeful: less and less is tried, what failed is freed, and one line says where it ended."""
    roomy.holds, roomy.late = {"deep": holds}, late
    model = loaded(deep, report)
    assert 0 <= model.layers_on_gpu <= holds
    assert roomy.layers("deep") == sorted(roomy.layers("deep"), reverse=True)
    assert roomy.open == 1
    assert len(report.warnings) == 1
    assert f"{model.layers_on_gpu} of {LAYERS} layers" in report.warnings[0]
    on = "CPU" if not model.layers_on_gpu else f"GPU and CPU ({model.layers_on_gpu} of {LAYERS} layers on the GPU)"
    assert model.where("verifier").endswith(f"on {on}")
    model.close()
    assert roomy.open == 0


def test_the_first_reason_counts_when_nothing_helps(roomy: Gpu, report: Collected) -> None:
    """Not the last one, which is about the CPU."""
    with pytest.raises(LoadError, match="no numbers"):
        loaded(tiny.model("nan"), report)
    assert roomy.open == 0


@pytest.mark.parametrize("role", ["verifier", "draft"])
def test_layers_that_were_asked_for_and_do_not_fit_are_an_error_with_figures(
    roomy: Gpu, deep: Path, report: Collected, role: str
) -> None:
    roomy.holds = {"deep": 3}
    with pytest.raises(
        LoadError, match=r"6 of 8 layers of the \w+ .* MiB free; .* MiB of weights and .* MiB of cache"
    ) as caught:
        loaded(deep, report, gpu_layers=6, role=role)
    assert "unable to allocate" in str(caught.value)
    flag = "--gpu-layers" if role == "verifier" else "--draft-gpu-layers"
    assert f"{flag} auto" in caught.value.hint
    assert roomy.layers("deep") == [6]
    assert roomy.open == 0


def test_layers_that_were_asked_for_are_not_second_guessed(roomy: Gpu, deep: Path, report: Collected) -> None:
    for asked, got in ((3, 3), (0, 0), (-1, LAYERS), (99, LAYERS)):
        model = loaded(deep, report, gpu_layers=asked)
        assert model.layers_on_gpu == got
        model.close()
    assert roomy.layers("deep") == [3, 0, EVERYTHING, 99]
    assert report.warnings == []


def test_a_small_gpu_gets_a_part(monkeypatch: pytest.MonkeyPatch, deep: Path, report: Collected) -> None:
    size = need(read_model(deep), SETTINGS).total
    gpu = Gpu(monkeypatch, free=RESERVE + size // 2)
    model = loaded(deep, report)
    assert 0 < model.layers_on_gpu < LAYERS // 2 + 1
    assert gpu.layers("deep") == [model.layers_on_gpu]
    assert report.warnings == []
    model.close()


def test_room_is_left_for_what_comes_beside(monkeypatch: pytest.MonkeyPatch, deep: Path, report: Collected) -> None:
    size = need(read_model(deep), SETTINGS).total
    Gpu(monkeypatch, free=2 * RESERVE + size + size // 2)
    alone, beside = loaded(deep, report), loaded(deep, report, beside=Need(size // 2, size // 2, 4))
    assert alone.layers_on_gpu == LAYERS
    assert 0 < beside.layers_on_gpu < LAYERS
    alone.close()
    beside.close()


def test_a_need_counts_all_parts_and_the_cache(deep: Path, tmp_path: Path) -> None:
    file = read_model(deep)
    wanted = need(file, SETTINGS)
    assert (wanted.weights, wanted.layers) == (file.bytes, LAYERS)
    assert wanted.cache == LAYERS * zoo.WIDTH * 256 * 2
    assert need(file, replace(SETTINGS, capacity=512)).cache == 2 * wanted.cache
    parts = read_model(zoo.tiny_llama(tmp_path / "split.gguf", layers=LAYERS, split=8))
    assert need(parts, SETTINGS).weights == sum(part.stat().st_size for part in parts.parts)


def test_an_integrated_gpu_beside_another_is_not_counted(
    monkeypatch: pytest.MonkeyPatch, deep: Path, report: Collected
) -> None:
    Gpu(monkeypatch, free=RESERVE)
    shared = Device("Vulkan1", "built in", "igpu", 2**40, 2**40)
    devices = [*loading.devices(), shared]  # type: ignore[attr-defined]
    monkeypatch.setattr(loading, "devices", lambda: devices)
    model = loaded(deep, report)
    assert model.layers_on_gpu == 0
    model.close()


def test_a_model_that_says_no_next_token_is_refused(
    monkeypatch: pytest.MonkeyPatch, roomy: Gpu, deep: Path, report: Collected
) -> None:
    monkeypatch.setattr(LlamaModel, "can_decode", False)
    with pytest.raises(LoadError, match="no next-token law"):
        loaded(deep, report, gpu_layers=0)
    assert roomy.open == 0


def test_a_drafting_head_is_no_model_of_its_own(roomy: Gpu, deep: Path, report: Collected) -> None:
    """Its graph wants another model's context: loading it alone is at best an error inside llama.cpp."""
    head = replace(read_model(deep), kind="head", architecture="eagle3")
    with pytest.raises(LoadError, match="eagle3"):
        load(head, SETTINGS, gpu_layers=None, role="verifier", report=report)
    assert roomy.asked == []


def test_a_context_that_no_memory_holds_is_refused(deep: Path, report: Collected) -> None:
    """The system ended the program, or another one: llama.cpp takes whatever it is asked to."""
    with pytest.raises(LoadError, match="1,000,000,000 tokens takes some") as caught:
        load(
            read_model(deep),
            replace(SETTINGS, capacity=10**9),
            gpu_layers=0,
            role="verifier",
            report=report,
        )
    assert "--ctx-size" in caught.value.hint


def test_loading_reports_bytes(deep: Path, report: Collected) -> None:
    loaded(deep, report).close()
    size = deep.stat().st_size
    assert report.steps[-1] == (size, size)


# -- two models on one GPU --------------------------------------------------------------------------------------------


def opened(report: Collected, **engine: Any) -> Runtime:
    return tiny.open_pair(report=report, drafter="model", N=2, engine=engine)


def layers(runtime: Runtime) -> tuple[int, int | None]:
    settings = runtime.settings()
    return settings["gpu_layers"], settings["draft_gpu_layers"]


def test_both_models_on_one_gpu(roomy: Gpu, report: Collected) -> None:
    with opened(report) as runtime:
        assert layers(runtime) == (2, 2)
        assert [line.rpartition(" on ")[2] for line in runtime.placement] == ["GPU", "GPU"]
    assert report.warnings == []
    assert roomy.open == 0


def test_the_draft_is_placed_first(monkeypatch: pytest.MonkeyPatch, report: Collected) -> None:
    """What is read N times a round is worth more there: the verifier leaves it the room."""
    size = read_model(tiny.model("verifier")).bytes
    Gpu(monkeypatch, free=2 * RESERVE + 2 * size)
    with opened(report) as runtime:
        verifier, draft = layers(runtime)
        assert draft == 2
        assert verifier < 2
    with tiny.open_pair(drafter="ngram", report=report) as alone:
        assert layers(alone) == (2, None), "without a draft nothing is left free"
    with opened(report, draft_gpu_layers=0) as runtime:
        assert layers(runtime) == (2, 0), "nor for one that stays on the CPU"


def test_a_draft_that_does_not_fit_goes_to_the_cpu(roomy: Gpu, report: Collected) -> None:
    """Two warnings told the one thing."""
    roomy.holds = {"draft": 0}
    with opened(report) as runtime:
        assert layers(runtime) == (2, 0)
        assert runtime.drafter == "model"
        assert tiny.answer(runtime).stats.accepted > 0
    (device,) = report.warnings
    assert "The draft is on the CPU" in device


def test_a_draft_that_fits_in_part_is_told(roomy: Gpu, report: Collected) -> None:
    roomy.holds = {"draft": 1}
    with opened(report) as runtime:
        assert layers(runtime) == (2, 1)
    (fit,) = report.warnings
    assert "draft did not fit the GPU as planned: 1 of 2 layers" in fit


def test_a_draft_that_fits_nowhere_is_left_out(roomy: Gpu, report: Collected) -> None:
    roomy.holds = {"draft": -1}
    with opened(report) as runtime:
        assert layers(runtime) == (2, None)
        assert runtime.drafter == "none"
        assert tiny.answer(runtime).stats.completion_tokens == 40
        assert roomy.open == 1
    assert len(report.warnings) == 1
    assert "plain decoding" in report.warnings[0]


def test_a_verifier_that_fits_less_than_planned_keeps_its_draft(roomy: Gpu, report: Collected) -> None:
    roomy.holds = {"verifier": 1}
    with opened(report) as runtime:
        assert layers(runtime) == (1, 2)
        assert runtime.drafter == "model"
    assert len(report.warnings) == 1
    assert "verifier did not fit" in report.warnings[0]


def test_a_verifier_that_cannot_have_what_was_asked_is_an_error(roomy: Gpu, report: Collected) -> None:
    roomy.holds = {"verifier": 1}
    with pytest.raises(LoadError, match="2 of 2 layers of the verifier"):
        opened(report, gpu_layers=2)
    assert roomy.open == 0


def test_a_draft_that_cannot_have_what_was_asked_is_left_out_with_figures(roomy: Gpu, report: Collected) -> None:
    """It can only cost time."""
    roomy.holds = {"draft": 0}
    with opened(report, draft_gpu_layers=2) as runtime:
        assert runtime.drafter == "none"
    assert len(report.warnings) == 1
    assert "MiB free" in report.warnings[0]
    assert "--draft-gpu-layers" in report.warnings[0]
