"""Hidden rows follow the text: whatever way a token got into the cache, its row is that of a fresh evaluation."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.core.draft import EMPTY, Draft, Ids
from localspec.engine import asking, hidden, native
from localspec.engine import context as context_module
from localspec.engine.base import FeatureSpec
from localspec.engine.context import ContextSettings, LlamaContext
from localspec.engine.features import Capture
from localspec.engine.model import LlamaModel
from localspec.engine.native import lib
from localspec.errors import DecodeError, LoadError
from tests import zoo

SMALL = ContextSettings(capacity=256, draft_room=6, leaves=4, flash_attn="off")
TEXT = np.random.default_rng(0).integers(5, 261, 120).astype(np.int32)
LAYERS = {"llama": (0, 1, 3), "qwen3": (3, 1), "lfm2": (0, 1), "swa": (1,), "mamba": (1,)}
WATCHED = {"swa", "mamba"}
NO_FINAL = {"lfm2"}
"""Where llama.cpp gives final rows or logits, not both."""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, LlamaModel]]:
    folder = tmp_path_factory.mktemp("features")
    files = {
        "llama": zoo.tiny_llama(folder / "llama.gguf", layers=4),
        "qwen3": zoo.tiny_qwen3(folder / "qwen3.gguf", layers=4),
        "lfm2": zoo.tiny_lfm2(folder / "lfm2.gguf"),
        "swa": zoo.tiny_swa(folder / "swa.gguf"),
        "mamba": zoo.tiny_mamba(folder / "mamba.gguf"),
    }
    found = {name: LlamaModel(path, gpu_layers=0) for name, path in files.items()}
    yield found
    for model in found.values():
        model.close()


@pytest.fixture(params=LAYERS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def fresh(model: LlamaModel, spec: FeatureSpec, text: Ids) -> npt.NDArray[np.float32]:
    """The rows of `text`, evaluated at once in an empty context."""
    with LlamaContext(model, SMALL) as context:
        capture = context.capture(spec)
        context.prefill(text, logits=False)
        return capture.rows(0, len(text)).copy()


def assert_alike(rows: npt.NDArray[np.float32], expected: npt.NDArray[np.float32]) -> None:
    assert rows.shape == expected.shape
    assert np.abs(expected).max() > 1.0
    assert np.abs(rows - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("final", [False, True], ids=["layers", "and-final"])
def test_rows_of_pieces_rounds_and_trees_are_those_of_a_fresh_context(
    loaded: dict[str, LlamaModel], name: str, final: bool
) -> None:
    spec = FeatureSpec(LAYERS[name], final and name not in NO_FINAL)
    with LlamaContext(loaded[name], replace(SMALL, batch=16)) as context:
        capture = context.capture(spec)
        context.prefill(TEXT[:40], logits=False)
        context.evaluate(int(TEXT[40]), Draft.chain(TEXT[41:45]))
        context.commit([0, 1])  # two of four are refused
        tree = Draft(np.array([7, TEXT[44], 8, TEXT[45]], dtype=np.int32), np.array([-1, -1, 0, 1], dtype=np.int32))
        context.evaluate(int(TEXT[43]), tree if context.has_trees else Draft.chain(TEXT[44:46]))
        context.commit([1, 3] if context.has_trees else [0, 1])
        context.evaluate(int(TEXT[46]), EMPTY)
        context.commit([])
        assert context.tokens.tolist() == TEXT[:47].tolist()
        assert (capture.since, capture.end) == (0, 47)
        rows = capture.rows(0, 47).copy()
    assert_alike(rows, fresh(loaded[name], spec, TEXT[:47]))


@pytest.mark.parametrize("final", [False, True], ids=["layers", "and-final"])
def test_b88_logits_are_the_same_whether_anybody_listens_or_not(
    loaded: dict[str, LlamaModel], name: str, final: bool
) -> None:
    """B88: the wrong switch for hidden states took the logits away, or made every token of a prompt an output.

    The rows of the prompt's last token, of a chain and of what follows it, under the numbers that they have without.
    """
    heard: list[list[npt.NDArray[np.float32]]] = []
    for listens in (False, True):
        with LlamaContext(loaded[name], replace(SMALL, batch=16)) as context:
            if listens:
                context.capture(FeatureSpec(LAYERS[name], final and name not in NO_FINAL))
            result = context.prefill(TEXT[:40])
            assert result is not None
            rows = [result.logits(0).copy()]
            result = context.evaluate(int(TEXT[40]), Draft.chain(TEXT[41:45]))
            assert result.rows == 5
            rows += [result.logits(row).copy() for row in range(5)]
            context.commit([0, 1])
            rows.append(context.evaluate(int(TEXT[43]), EMPTY).logits(0).copy())
            context.commit([])
            heard.append(rows)
    assert max(float(np.abs(with_ - without).max()) for without, with_ in zip(*heard, strict=True)) < 1e-3


def test_b88_final_rows_that_cost_the_logits_are_refused(loaded: dict[str, LlamaModel]) -> None:
    """B88: LFM2's graph has no output layer while its hidden states are asked for; what stood in the buffer before was
    taken for logits, and a head on that verifier made it say anything.
    """
    for name, model in loaded.items():
        with LlamaContext(model, SMALL) as context:
            if name in NO_FINAL:
                with pytest.raises(LoadError, match="gives no logits of lfm2"):
                    context.capture(FeatureSpec((), True))
                result = context.prefill(TEXT[:5])
                assert result is not None
                assert float(np.ptp(result.logits(0))) > 1.0
            else:
                context.capture(FeatureSpec((), True))


@pytest.mark.parametrize("name", ["llama", "lfm2"])
@settings(max_examples=15)
@given(steps=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 4), st.booleans()), min_size=1, max_size=6))
def test_edits_rollbacks_and_pauses_leave_no_wrong_row(
    loaded: dict[str, LlamaModel], name: str, steps: list[tuple[int, int, bool]]
) -> None:
    """After each prefill all rows of the text are there, and they are right; after a round, too."""
    spec = FeatureSpec((1,))
    rng = np.random.default_rng(len(steps))
    with LlamaContext(loaded[name], SMALL) as context:
        capture = context.capture(spec)
        for keep, accepted, pauses in steps:
            capture.on = not pauses
            context.listen()
            text = np.concatenate([context.tokens[:keep], rng.integers(5, 261, 6).astype(np.int32)])
            context.prefill(text, logits=False)
            draft = rng.integers(5, 261, 4).astype(np.int32)
            context.evaluate(9, Draft.chain(draft))
            context.commit(range(accepted))
            if not pauses:
                assert capture.end == context.length
        capture.on = True
        context.listen()
        context.prefill(context.tokens.copy(), logits=False)
        text, rows = context.tokens.copy(), capture.rows(0, context.length).copy()
    assert_alike(rows, fresh(loaded[name], spec, text))


def test_only_tokens_without_rows_are_evaluated_again(loaded: dict[str, LlamaModel]) -> None:
    with LlamaContext(loaded["llama"], SMALL) as context:
        context.prefill(TEXT[:30], logits=False)
        capture = context.capture(FeatureSpec((1,)))
        context.prefill(TEXT[:40], logits=False)
        assert (capture.since, capture.end) == (0, 40)
        assert context.evaluated == 30 + 40
        capture.on = False
        context.listen()
        context.prefill(TEXT[:50], logits=False)
        assert capture.end == 40
        capture.on = True
        context.listen()
        before = context.evaluated
        context.prefill(TEXT[:55], logits=False)
        assert (capture.end, context.evaluated - before) == (55, 15)


def test_what_is_off_costs_nothing(loaded: dict[str, LlamaModel]) -> None:
    """Nothing is switched on in llama.cpp, and logits are the same before, with and after."""
    with LlamaContext(loaded["llama"], SMALL) as context:
        rows = []
        for on in (False, True, False):
            capture = context.capture(FeatureSpec((1, 2), final=True))
            if not on:
                context.release(capture)
            hidden = context._listening._hidden
            assert bool(hidden._on) == hidden.last_rows == on
            context.rewind(0)
            result = context.prefill(TEXT[:20])
            assert result is not None
            rows.append(result.logits(0).copy())
            context.release(capture)
        assert (rows[0] == rows[2]).all()
        assert np.abs(rows[0] - rows[1]).max() < 1e-4


def test_a_window_needs_only_its_own_tokens(loaded: dict[str, LlamaModel]) -> None:
    """The final row of the last token: the pieces before it go without output rows, and memory stays small."""
    with LlamaContext(loaded["llama"], replace(SMALL, batch=64)) as context:
        capture = context.capture(FeatureSpec(final=True, window=3))
        assert capture.bytes < 256 * 64 * 4
        for length in (100, 101, 110):
            result = context.prefill(TEXT[:length])
            assert result is not None
            logits = result.logits(0).copy()
            assert capture.end == length
            assert capture.since <= length - 3
            rows = capture.rows(length - 3, length).copy()
            with LlamaContext(loaded["llama"], SMALL) as other:
                expected = other.prefill(TEXT[:length])
                assert expected is not None
                assert np.abs(expected.logits(0) - logits).max() < 1e-4
            assert_alike(rows, fresh(loaded["llama"], FeatureSpec(final=True), TEXT[:length])[-3:])


def test_several_listen_at_once(loaded: dict[str, LlamaModel]) -> None:
    with LlamaContext(loaded["qwen3"], SMALL) as context:
        first, second = context.capture(FeatureSpec((1,))), context.capture(FeatureSpec((2, 1), final=True))
        context.prefill(TEXT[:20], logits=False)
        assert (first.rows(0, 20) == second.rows(0, 20)[:, 64:128]).all()
        context.release(first)
        context.prefill(TEXT[:30], logits=False)
        assert (second.end, first.end) == (30, 20)


def test_who_listens_goes_on_when_the_context_is_made_anew(loaded: dict[str, LlamaModel]) -> None:
    with LlamaContext(loaded["swa"], SMALL) as context:
        final = context.capture(FeatureSpec(final=True))
        context.prefill(TEXT[:20], logits=False)
        layer = context.capture(FeatureSpec((1,)))
        assert (context.is_watched, context.length, final.end) == (True, 0, 0)
        context.prefill(TEXT[:30], logits=False)
        assert (final.end, layer.end) == (30, 30)
        assert_alike(final.rows(0, 30), fresh(loaded["swa"], FeatureSpec(final=True), TEXT[:30]))


def test_a_context_that_others_point_at_is_not_made_anew(loaded: dict[str, LlamaModel]) -> None:
    with LlamaContext(loaded["swa"], SMALL) as context:
        context.dependants += 1
        with pytest.raises(LoadError, match="not possible here"):
            context.capture(FeatureSpec((1,)))


def test_an_architecture_is_asked_once(loaded: dict[str, LlamaModel], monkeypatch: pytest.MonkeyPatch) -> None:
    assert asking.gives_layer_inputs(loaded["llama"], [1, 2])
    assert not asking.gives_layer_inputs(loaded["swa"], [1])
    monkeypatch.setattr(asking, "_ask", lambda *_: pytest.fail("asked again"))
    assert asking.gives_layer_inputs(loaded["llama"], [1, 2])


@pytest.mark.parametrize(
    ("model", "spec", "words"),
    [
        ("llama", FeatureSpec((1, 5)), "layer 5"),
        ("llama", FeatureSpec((-1,)), "layer -1"),
        ("llama", FeatureSpec(), "none"),
        ("llama", FeatureSpec((4,)), "leaves the last layer of llama"),
        ("swa", FeatureSpec((0,)), "gemma3"),
        ("swa", FeatureSpec((2,)), "leaves the last layer of gemma3"),
    ],
    ids=str,
)
def test_what_a_model_does_not_give_is_told(
    loaded: dict[str, LlamaModel], model: str, spec: FeatureSpec, words: str
) -> None:
    """llama.cpp would abort the process, or leave rows of zeros; and the context works on."""
    with LlamaContext(loaded[model], SMALL) as context:
        with pytest.raises(LoadError, match=words) as caught:
            context.capture(spec)
        assert caught.value.hint
        assert context.prefill(TEXT[:5]) is not None


def test_a_file_that_cannot_be_asked_about_is_an_error(
    loaded: dict[str, LlamaModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "_known", {})
    monkeypatch.setattr(loaded["llama"], "path", tmp_path / "gone.gguf")
    with pytest.raises(LoadError, match="could not be found out"):
        asking.gives_layer_inputs(loaded["llama"], [1])


def test_the_process_that_is_asked_leaves_in_order(loaded: dict[str, LlamaModel]) -> None:
    """llama.cpp's abort was heard by another copy of ggml, so each question left a core dump or a crash report."""
    command = [sys.executable, "-m", "localspec.engine.asking", str(loaded["swa"].path), "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, "not a signal"
    assert "layer input" in done.stderr


@pytest.mark.parametrize("error", [OSError("no more processes"), subprocess.TimeoutExpired("python", 120)])
def test_a_question_that_cannot_be_asked_is_an_error(
    loaded: dict[str, LlamaModel], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(asking, "_known", {})
    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(LoadError, match=r"hidden states of llama could not be found out: .*(processes|120)") as caught:
        asking.gives_layer_inputs(loaded["llama"], [1])
    assert "ngram" in caught.value.hint
    assert asking._known == {}, "it is asked again the next time"


@pytest.mark.parametrize("missing", ["set_layer_input", "reserve_graph"])
def test_a_build_that_cannot_give_layer_inputs_is_not_asked(
    loaded: dict[str, LlamaModel], monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """Another llama-cpp-python may lack these functions: then layers are watched, as for architectures without them."""
    monkeypatch.setattr(native, missing, None)
    monkeypatch.setattr(asking, "_ask", lambda *_: pytest.fail("asked"))
    assert not asking.gives_layer_inputs(loaded["llama"], [1])
    with LlamaContext(loaded["llama"], SMALL) as context:
        capture = context.capture(FeatureSpec((1, 3)))
        assert context.is_watched
        context.prefill(TEXT[:30], logits=False)
        watched = capture.rows(0, 30).copy()
    monkeypatch.undo()
    assert_alike(watched, fresh(loaded["llama"], FeatureSpec((1, 3)), TEXT[:30]))


def test_a_graph_without_known_names_cannot_be_watched(
    loaded: dict[str, LlamaModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of tensors are no promise of llama.cpp: rows that nobody filled must not be taken for hidden states."""
    monkeypatch.setattr(hidden.Tap, "_look", lambda self, tensor, asks, data: not asks)
    with LlamaContext(loaded["swa"], SMALL) as context:
        with pytest.raises(LoadError, match="no tensor of its graph is known as the input of layer 1") as caught:
            context.capture(FeatureSpec((1,)))
        assert "ngram" in caught.value.hint
        assert not context.is_watched, "nobody pays for a callback that sees nothing"
        assert context.prefill(TEXT[:5]) is not None


def test_a_second_listener_of_a_watched_layer_costs_no_new_context(loaded: dict[str, LlamaModel]) -> None:
    with LlamaContext(loaded["swa"], SMALL) as context:
        first = context.capture(FeatureSpec((1,)))
        context.prefill(TEXT[:20], logits=False)
        second = context.capture(FeatureSpec((1,)))
        assert context.length == 20, "the text was not thrown away"
        context.prefill(TEXT[:30], logits=False)
        assert np.array_equal(first.rows(0, 30), second.rows(0, 30))


def test_a_capture_may_outlive_its_context(loaded: dict[str, LlamaModel]) -> None:
    context = LlamaContext(loaded["llama"], SMALL)
    capture = context.capture(FeatureSpec((1,)))
    context.prefill(TEXT[:9], logits=False)
    context.close()
    context.release(capture)
    assert capture.rows(0, 9).shape == (9, loaded["llama"].width)


@pytest.mark.parametrize("spec", [FeatureSpec(final=True), FeatureSpec((4,))], ids=["final rows", "last layer"])
@pytest.mark.parametrize("fails", ["llama_init_from_model", "llama_decode"])
def test_a_trial_that_cannot_be_made_is_a_no(
    loaded: dict[str, LlamaModel], monkeypatch: pytest.MonkeyPatch, spec: FeatureSpec, fails: str
) -> None:
    """No memory for the small context that shows what llama.cpp gives: nothing is promised then, and nothing leaks."""
    freed: list[object] = []
    free = lib.llama_free

    def noted(handle: object) -> None:
        freed.append(handle)
        free(handle)

    with LlamaContext(loaded["llama"], SMALL) as context:
        monkeypatch.setattr(lib, "llama_free", noted)
        monkeypatch.setattr(lib, fails, lambda *_: None if fails == "llama_init_from_model" else 1)
        with pytest.raises(LoadError, match=r"llama\.cpp (gives no logits|does not give what leaves the last layer)"):
            context.capture(spec)
        assert bool(freed) == (fails == "llama_decode")
        monkeypatch.undo()
        assert context.prefill(TEXT[:5]) is not None


def test_a_last_layer_that_is_never_written_is_refused(
    loaded: dict[str, LlamaModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """llama.cpp says nothing: the buffer is there and keeps what stood in it, or it is not there at all."""
    stale = np.zeros((1, loaded["llama"].width), dtype=np.float32)
    with LlamaContext(loaded["llama"], SMALL) as context:
        for address in (stale.ctypes.data, None):
            monkeypatch.setattr(native, "nextn_address", lambda _, found=address: found)
            with pytest.raises(LoadError, match="leaves the last layer of llama"):
                context.capture(FeatureSpec((4,)))


def test_what_leaves_the_last_layer_is_read_where_it_is_given(
    loaded: dict[str, LlamaModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No tiny model gives it, so llama.cpp's part is played: switched on and off by need, read from its own buffer."""
    model, switched = loaded["llama"], list[bool]()
    buffer = np.random.default_rng(3).standard_normal((SMALL.batch, model.width)).astype(np.float32)
    monkeypatch.setattr(context_module, "check_last_layer", lambda model, watched: None)
    monkeypatch.setattr(native, "set_nextn", lambda handle, on, masked: switched.append(on))
    monkeypatch.setattr(native, "nextn_address", lambda handle: buffer.ctypes.data)
    with LlamaContext(model, SMALL) as context:
        capture = context.capture(FeatureSpec((4, 1)))
        context.prefill(TEXT[:20], logits=False)
        rows = capture.rows(0, 20).copy()
        assert np.array_equal(rows[:, : model.width], buffer[:20])
        context.release(capture)
    assert switched == [True, False]
    assert_alike(rows[:, model.width :], fresh(model, FeatureSpec((1,)), TEXT[:20]))


def test_a_buffer_that_moves_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """llama.cpp makes it anew when more is asked for; views are kept by address, and not for ever."""
    buffers = [np.full((4, 2), number, dtype=np.float32) for number in range(150)]
    rows = hidden.HiddenRows(None, width=2, layers=9, batch=4)
    for number, buffer in enumerate(buffers):
        monkeypatch.setattr(native, "layer_input_address", lambda handle, layer, at=buffer.ctypes.data: at)
        for _ in range(2):
            assert rows.read(FeatureSpec((1,)), slice(1, 3)).tolist() == [[number, number]] * 2
    assert len(rows._views) <= 65


@pytest.mark.parametrize("size", [8 * 4 * 5, 8 * 4 + 4], ids=["more rows than a batch", "no whole rows"])
def test_a_tensor_of_another_shape_is_not_copied(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """A tensor may have the name of a layer's output and be something else; copying it would write past the rows."""
    tap = hidden.Tap([1], width=8, batch=4)
    tap.on = True
    monkeypatch.setattr(tap, "_name", lambda tensor: b"l_out-0")
    monkeypatch.setattr(tap, "_bytes", lambda tensor: size)
    monkeypatch.setattr(tap, "_copy", lambda *_: pytest.fail("copied"))
    assert tap._look(1, True, None), "it is asked for"
    assert tap._look(1, False, None), "the evaluation goes on"
    assert not tap.seen


# -- the store alone --------------------------------------------------------------------------------------------------


def store(window: int | None = None, *, reduces: bool = False) -> Capture:
    """Rows of one number, twice that number when reduced."""
    reduce = (lambda rows: 2 * rows) if reduces else None
    return Capture(FeatureSpec((0,), window=window), raw_width=1, capacity=64, batch=8, reduce=reduce)


operations = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 8), st.booleans()), max_size=30)


@given(operations, st.sampled_from([None, 1, 4, 20]), st.booleans())
def test_the_store_holds_what_was_put_there(
    steps: list[tuple[int, int, bool]], window: int | None, reduces: bool
) -> None:
    """Against a dictionary: position -> number; `missing_from` says how far a text is without gaps."""
    kept, held, number = store(window, reduces=reduces), dict[int, float](), 0.0
    length = 0
    for at, count, looks in steps:
        position = min(at, length)  # a text grows at its end
        kept.truncate(position)
        held = {key: value for key, value in held.items() if key < position}
        count = min(count, 64 - position)
        numbers = number + np.arange(count, dtype=np.float32)
        number += count
        if number % 3:  # else nobody listens
            kept.add(position, numbers[:, None])
            held |= dict(zip(range(position, position + count), numbers.tolist(), strict=True))
        length = position + count
        if looks and kept.end > kept.since:
            rows = kept.rows(kept.since, kept.end)[:, 0]
            factor = 2.0 if reduces else 1.0
            assert rows.tolist() == [factor * held[position] for position in range(kept.since, kept.end)]
        assert kept.end <= length
        missing = kept.missing_from(length, length)
        assert kept.wanted_from(length) <= missing <= length
        if missing == length:
            assert kept.end == length
            assert kept.since <= kept.wanted_from(length)


def test_a_failing_reduction_loses_its_rows_only() -> None:
    failing = True

    def reduce(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        if failing:
            raise LoadError("no")
        return rows

    capture = Capture(FeatureSpec((0,)), raw_width=1, capacity=64, batch=8, reduce=reduce)
    capture.add(0, np.zeros((4, 1), dtype=np.float32))
    with pytest.raises(LoadError):
        capture.rows(0, 4)
    assert capture.missing_from(4, 4) == 0
    failing = False
    capture.add(0, np.ones((4, 1), dtype=np.float32))
    assert (capture.rows(0, 4) == 1.0).all()


def test_a_reduction_that_fails_while_a_text_is_read_is_the_readers_business(loaded: dict[str, LlamaModel]) -> None:
    """A head that could not encode its rows ended the generation: the verifier's own prefill raised its error."""

    def reduce(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        raise DecodeError("the head cannot take these rows")

    with LlamaContext(loaded["llama"], replace(SMALL, batch=16)) as context:
        capture = context.capture(FeatureSpec((1,)), reduce=reduce, width=4)
        result = context.prefill(TEXT[:100])
        assert result is not None
        assert result.rows == 1
        assert not capture.on
        context.prefill(TEXT[:110])
        with pytest.raises(DecodeError, match="cannot take these rows"):
            capture.rows(0, 1)
