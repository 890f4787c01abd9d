"""Graphs of heads against plain numpy, for each format of weights; trees, spans, rewinds, freeing."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from localspec.engine import ggml
from localspec.engine.dequantise import dequantise
from localspec.engine.eagle1graph import Eagle1Graph, Sizes
from localspec.engine.graph import Buffer, Machine, Stored
from localspec.engine.medusa import MedusaGraph
from localspec.engine.outputs import Output
from localspec.errors import ContextFullError, DecodeError, LoadError
from tests.engine import heads
from tests.engine.heads import Array

WIDTH, VOCAB, HEADS, HEADS_KV, SIZE, FEED = 64, 96, 4, 2, 32, 160
KINDS = ["F32", "F16", "Q8_0", "Q4_0"]


def off(found: Any, wanted: Any) -> float:
    """The difference as a share of the numbers, root mean square: a tie more or less is one number of hundreds."""
    return float(np.linalg.norm(np.array(found) - np.array(wanted)) / np.linalg.norm(wanted))


CLOSE = 1e-3


def kept(shapes: dict[str, tuple[int, ...]], kind: str, seed: int = 0) -> tuple[dict[str, Stored], dict[str, Any]]:
    """As stored and as numpy sees it. Embeddings are F16 at least: a quantised row that is rounded to 8 bits again is
    full of ties, which each processor rounds its own way.
    """
    pairs = {
        name: heads.stored(values, "F16" if name == "token_embd.weight" and kind != "F32" else kind)
        for name, values in heads.random_weights(shapes, seed).items()
    }
    return {name: one for name, (one, _) in pairs.items()}, {name: values for name, (_, values) in pairs.items()}


def split(tensors: dict[str, Stored], ids: Any = None, **more: Any) -> tuple[dict[str, Stored], Output]:
    """The tensors of a head, its output apart."""
    rest = {name: one for name, one in tensors.items() if name not in ("output.weight", "token_embd.weight")}
    return rest, Output(tensors.get("output.weight"), ids, **more)


# -- medusa -----------------------------------------------------------------------------------------------------------


def medusa_shapes(blocks: int, own: bool) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for head in range(3):
        for block in range(blocks):
            shapes |= {f"head.{head}.{block}.weight": (WIDTH, WIDTH), f"head.{head}.{block}.bias": (WIDTH,)}
        if own:
            shapes[f"head.{head}.output.weight"] = (VOCAB, WIDTH)
    return shapes if own else shapes | {"output.weight": (VOCAB, WIDTH)}


@pytest.mark.parametrize("own", [False, True], ids=["one output", "an output each"])
@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_medusa_is_what_numpy_computes(kind: str, blocks: int, own: bool) -> None:
    tensors, values = kept(medusa_shapes(blocks, own), kind)
    rest, output = split(tensors)
    head = MedusaGraph(rest, output, width=WIDTH, heads=3, blocks=blocks)
    for seed in range(3):
        hidden = np.random.default_rng(seed).standard_normal(WIDTH).astype(np.float32)
        wanted = heads.medusa(values, hidden, heads=3, blocks=blocks)
        assert off(head.guess(hidden), wanted) < CLOSE
    assert head.busy_s > 0
    head.close()
    head.close()


# -- eagle1 -----------------------------------------------------------------------------------------------------------

EAGLE = {
    "token_embd.weight": (VOCAB, WIDTH),
    "fc.weight": (WIDTH, 2 * WIDTH),
    "blk.0.attn_q.weight": (HEADS * SIZE, WIDTH),
    "blk.0.attn_k.weight": (HEADS_KV * SIZE, WIDTH),
    "blk.0.attn_v.weight": (HEADS_KV * SIZE, WIDTH),
    "blk.0.attn_output.weight": (WIDTH, HEADS * SIZE),
    "blk.0.ffn_norm.weight": (WIDTH,),
    "blk.0.ffn_gate.weight": (FEED, WIDTH),
    "blk.0.ffn_up.weight": (FEED, WIDTH),
    "blk.0.ffn_down.weight": (WIDTH, FEED),
    "output.weight": (VOCAB, WIDTH),
}
EXTRAS = {
    "fc.bias": (WIDTH,),
    "blk.0.attn_norm.weight": (WIDTH,),
    "blk.0.attn_q.bias": (HEADS * SIZE,),
    "blk.0.attn_k.bias": (HEADS_KV * SIZE,),
    "blk.0.attn_v.bias": (HEADS_KV * SIZE,),
    "output_norm.weight": (WIDTH,),
}


class Eagle:
    """A head and its reference, fed with the same pairs."""

    def __init__(self, kind: str = "F32", *, neox: bool = True, extras: bool = False, capacity: int = 600) -> None:
        tensors, self.values = kept(EAGLE | EXTRAS if extras else EAGLE, kind)
        rest, output = split(tensors)
        sizes = Sizes(WIDTH, HEADS, HEADS_KV, SIZE, epsilon=1e-5, rope_base=10_000.0, neox=neox)
        self.head = Eagle1Graph(sizes, rest, tensors["token_embd.weight"], output, vocab_size=VOCAB, capacity=capacity)
        self._neox = neox
        self.tokens = np.random.default_rng(7).integers(0, VOCAB, capacity).astype(np.int32)
        self.hidden = np.random.default_rng(8).standard_normal((capacity, WIDTH)).astype(np.float32)

    def read(self, start: int, end: int) -> Array:
        """Logits behind a piece of the text."""
        logits = self.head.extend(*self.text(start, end))
        assert logits is not None
        return logits

    def text(self, start: int, end: int) -> tuple[Any, Any]:
        return self.tokens[start:end], self.hidden[start:end]

    def reference(self, tokens: Any, hidden: Any, positions: Any, seen: Any) -> tuple[Array, Array]:
        facts: dict[str, Any] = {
            "heads": HEADS,
            "heads_kv": HEADS_KV,
            "epsilon": 1e-5,
            "base": 10_000.0,
            "neox": self._neox,
        }
        return heads.eagle1(self.values, tokens, hidden, positions=positions, seen=seen, **facts)

    def after(self, count: int) -> tuple[Array, Array]:
        """Feature and logits behind the first `count` pairs."""
        tokens, hidden = self.text(0, count)
        seen = np.tril(np.ones((count, count), dtype=bool))
        features, logits = self.reference(tokens, hidden, np.arange(count), seen)
        return features[-1], logits[-1]


@pytest.fixture
def eagle() -> Any:
    made = Eagle()
    yield made
    made.head.close()


@pytest.mark.parametrize("extras", [False, True], ids=["bare", "biases and norms"])
@pytest.mark.parametrize("neox", [True, False], ids=["halves", "pairs"])
@pytest.mark.parametrize("kind", KINDS)
def test_eagle1_is_what_numpy_computes(kind: str, neox: bool, extras: bool) -> None:
    """A text in pieces, then a chain on the head's own features."""
    eagle = Eagle(kind, neox=neox, extras=extras)
    for start, end in ((0, 1), (1, 6), (6, 40)):
        logits = eagle.read(start, end)
        feature, wanted = eagle.after(end)
        assert off(logits, wanted) < CLOSE
    tokens, hidden = (one.tolist() for one in eagle.text(0, 40))
    for at, token in enumerate((5, 9, 5)):
        (logits,) = eagle.head.grow(np.array([token], dtype=np.int32), np.array([at - 1], dtype=np.int32))
        tokens, hidden = [*tokens, token], [*hidden, feature.tolist()]
        seen = np.tril(np.ones((len(tokens),) * 2, dtype=bool))
        features, rows = eagle.reference(tokens, np.array(hidden, dtype=np.float32), np.arange(len(tokens)), seen)
        feature = features[-1]
        assert off(logits, rows[-1]) < CLOSE
    eagle.head.close()
    eagle.head.close()


def test_a_tree_sees_its_ancestors_alone(eagle: Eagle) -> None:
    eagle.read(0, 10)
    feature, _ = eagle.after(10)
    tokens, hidden, parents = [*eagle.tokens[:10].tolist()], [*eagle.hidden[:10]], [-1]
    depths: list[int] = []
    of: list[int] = []
    outs = [feature]
    for layer, above in (([3, 7], [-1, -1]), ([4, 4, 8], [0, 1, 1]), ([1, 2], [2, 4])):
        rows = eagle.head.grow(np.array(layer, dtype=np.int32), np.array(above, dtype=np.int32))
        for token, parent in zip(layer, above, strict=True):
            tokens.append(token)
            hidden.append(outs[parent + 1])
            depths.append(1 if parent < 0 else depths[parent] + 1)
            of.append(parent)
        count = len(of)
        seen = np.tril(np.ones((10 + count,) * 2, dtype=bool))
        for node in range(count):
            seen[10 + node, 10:] = False
            at = node
            while at >= 0:
                seen[10 + node, 10 + at] = True
                at = of[at]
        positions = np.concatenate([np.arange(10), 9 + np.array(depths)])
        features, logits = eagle.reference(tokens, np.array(hidden), positions, seen)
        outs = [feature, *features[10:]]
        assert np.abs(np.array(rows) - logits[-len(layer) :]).max() < 1e-4
    assert parents == [-1]


def test_it_goes_back_and_reads_another_text(eagle: Eagle) -> None:
    """Pairs of a tree and of a longer text are gone, whatever stands in their cells."""
    expected = eagle.read(0, 12).copy()
    eagle.head.grow(np.array([3, 4], dtype=np.int32), np.array([-1, -1], dtype=np.int32))
    eagle.read(12, 300)
    assert eagle.head.length == 300
    eagle.head.rewind(5)
    assert eagle.head.length == 5
    again = eagle.read(5, 12)
    assert np.abs(again - expected).max() < 1e-5
    eagle.head.rewind(0)
    assert np.abs(eagle.read(0, 12) - expected).max() < 1e-5


def test_a_text_whose_beginning_it_has_not_seen(eagle: Eagle) -> None:
    """Positions count from the text's own beginning, and what stands in the cells before is not looked at."""
    eagle.read(0, 30)
    eagle.head.begin(20)
    tokens, hidden = eagle.text(20, 32)
    logits = eagle.head.extend(tokens, hidden)
    assert logits is not None
    _, rows = eagle.reference(tokens, hidden, np.arange(20, 32), np.tril(np.ones((12, 12), dtype=bool)))
    assert off(logits, rows[-1]) < CLOSE
    assert (eagle.head.start, eagle.head.length) == (20, 32)
    assert eagle.head.extend(*eagle.text(32, 34), logits=False) is None


def test_a_text_longer_than_a_piece_and_a_span(eagle: Eagle) -> None:
    logits = eagle.read(0, 600)
    assert np.abs(logits - eagle.after(600)[1]).max() < 1e-4
    (row,) = eagle.head.grow(np.array([3], dtype=np.int32), np.array([-1], dtype=np.int32))
    assert np.isfinite(row).all()


def test_there_is_room_for_so_much(eagle: Eagle) -> None:
    eagle.read(0, 600)
    with pytest.raises(ContextFullError, match="601 pairs do not fit a head of 600"):
        eagle.read(0, 1)
    nodes = np.zeros(33, dtype=np.int32)
    with pytest.raises(ContextFullError, match="room for 32"):
        eagle.head.grow(nodes, nodes - 1)


def test_many_shapes_of_graphs_take_turns(eagle: Eagle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.engine.eagle1graph._GRAPHS", 2)
    for end in (1, 3, 8, 20, 3, 1):
        eagle.head.rewind(0)
        logits = eagle.read(0, end)
        assert np.abs(logits - eagle.after(end)[1]).max() < 1e-4


# -- outputs ----------------------------------------------------------------------------------------------------------


def test_a_reduced_vocabulary_is_spread_over_the_verifiers_ids() -> None:
    ids = np.array([5, 0, 90, 33], dtype=np.int32)
    tensors, _ = kept(EAGLE, "Q8_0")
    rest, output = split(tensors | {"output.weight": tensors["output.weight"].rows(ids)}, ids)
    sizes = Sizes(WIDTH, HEADS, HEADS_KV, SIZE, epsilon=1e-5, rope_base=10_000.0)
    head = Eagle1Graph(sizes, rest, tensors["token_embd.weight"], output, vocab_size=VOCAB, capacity=64)
    eagle = Eagle("Q8_0")
    logits, full = head.extend(*eagle.text(0, 9)), eagle.read(0, 9)
    assert logits is not None
    assert full is not None
    assert np.array_equal(np.flatnonzero(np.isfinite(logits)), np.sort(ids))
    assert np.abs(logits[ids] - full[ids]).max() < 1e-4
    head.close()
    eagle.head.close()


def test_scale_cap_and_bias_of_the_verifiers_output() -> None:
    tensors, values = kept(medusa_shapes(1, False), "F32")
    bias = np.linspace(-1, 1, VOCAB, dtype=np.float32)
    rest, output = split(tensors, bias=Stored.floats(bias), scale=0.5, softcap=2.0)
    head = MedusaGraph(rest, output, width=WIDTH, heads=3, blocks=1)
    hidden = np.random.default_rng(0).standard_normal(WIDTH).astype(np.float32)
    raw = np.array(heads.medusa(values, hidden, heads=3, blocks=1))
    assert np.abs(np.array(head.guess(hidden)) - 2.0 * np.tanh(0.5 * (raw + bias) / 2.0)).max() < 1e-4
    head.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_of_any_format_can_be_looked_up(kind: str) -> None:
    one, values = heads.stored(heads.random_weights({"x": (5, 64)})["x"], kind)
    assert isinstance(values, heads.Matrix)
    assert np.array_equal(one.row(3), values.values[3])
    assert np.array_equal(one.rows(np.array([4, 1])).row(0), values.values[4])


# -- what goes wrong --------------------------------------------------------------------------------------------------


def test_types_without_numbers_are_refused() -> None:
    """ggml keeps places for types that were given up, like 4."""
    assert dequantise(np.array([1.5, -2.0], dtype=np.float32).tobytes(), 0, 2).tolist() == [1.5, -2.0]
    assert dequantise(np.array([1.5, -2.0], dtype=np.float16).tobytes(), 1, 2).tolist() == [1.5, -2.0]
    for kind, data in ((4, bytes(99)), (1, b"123"), (0, b"123")):
        with pytest.raises(LoadError, match=f"tensors of ggml type {kind} cannot be read") as caught:
            dequantise(data, kind, 2)
        assert caught.value.hint


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(LoadError, match="CUDA99 cannot be used"):
        Machine(device="CUDA99", threads=1)


def test_a_device_that_cannot_keep_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """ggml would end the process: what is written must be computed where it lies."""
    monkeypatch.setattr(ggml.lib(), "backend_supports_op", lambda *_: False)
    with pytest.raises(LoadError, match="cannot write into a head's cache"):
        Eagle()


def test_no_room_is_an_error_with_a_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    """ggml's own complaint once went to the terminal as well: a second copy of it had been loaded, with another log."""
    machine = Machine(device=None, threads=1)
    with pytest.raises(LoadError, match=r"no room for a head's cache: \w+"):
        Buffer(machine, {"huge": ((1 << 40, 1 << 10), 0)}, what="a head's cache")
    assert capfd.readouterr().err == ""
    machine.close()
    with pytest.raises(DecodeError, match="closed"):
        _ = machine.main


def test_a_graph_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device may fail in the middle; old numbers must not be read as its answer, and the head can be closed."""
    tensors, _ = kept(medusa_shapes(1, False), "F32")
    rest, output = split(tensors)
    head = MedusaGraph(rest, output, width=WIDTH, heads=3, blocks=1)
    with monkeypatch.context() as broken:
        broken.setattr(ggml.lib(), "backend_sched_graph_compute", lambda *_: -1)
        with pytest.raises(DecodeError, match=r"could not compute the head \(code -1\)"):
            head.guess(np.zeros(WIDTH, dtype=np.float32))
    assert len(head.guess(np.zeros(WIDTH, dtype=np.float32))) == 3
    head.close()


def test_a_cpu_that_takes_no_number_of_threads_computes_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ggml.lib(), "backend_reg_get_proc_address", lambda *_: None)
    assert ggml.thread_setter(ggml.lib().backend_dev_by_type(0)) is None
    tensors, values = kept(medusa_shapes(1, False), "F32")
    rest, output = split(tensors)
    head = MedusaGraph(rest, output, width=WIDTH, heads=3, blocks=1, threads=2)
    hidden = np.random.default_rng(0).standard_normal(WIDTH).astype(np.float32)
    assert off(head.guess(hidden), heads.medusa(values, hidden, heads=3, blocks=1)) < CLOSE
    head.close()


def test_a_function_that_is_not_bound_is_named() -> None:
    """ctypes would call anything with the wrong types of arguments."""
    with pytest.raises(AttributeError, match="ggml's cross_entropy_loss is not bound"):
        ggml.lib().cross_entropy_loss()


def test_everything_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was made is freed once: counted at the library, in success and where the last step fails."""
    counts = counting(monkeypatch)
    eagle = Eagle()
    eagle.read(0, 5)
    eagle.head.close()
    tensors, _ = kept(medusa_shapes(1, False), "F32")
    rest, output = split(tensors)
    MedusaGraph(rest, output, width=WIDTH, heads=3, blocks=1).close()
    with monkeypatch.context() as broken:
        broken.setattr(ggml.lib(), "backend_sched_alloc_graph", lambda *_: False)
        with pytest.raises(LoadError, match="no room to compute"):
            MedusaGraph(rest, output, width=WIDTH, heads=3, blocks=1)
    gc.collect()
    assert counts["backend_dev_init"] == counts["backend_free"] == 3
    assert counts["init"] == counts["free"] > 5
    assert counts["backend_alloc_ctx_tensors_from_buft"] == counts["backend_buffer_free"] == 4
    assert counts["backend_sched_new"] == counts["backend_sched_free"] == 4


def counting(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Calls of ggml's functions that make and free things."""
    counts: Counter[str] = Counter()
    for name in (
        "init", "free", "backend_dev_init", "backend_free", "backend_alloc_ctx_tensors_from_buft",
        "backend_buffer_free", "backend_sched_new", "backend_sched_free",
    ):  # fmt: skip
        monkeypatch.setattr(ggml.lib(), name, counted(name, getattr(ggml.lib(), name), counts))
    return counts


def counted(name: str, real: Callable[..., Any], counts: Counter[str]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        counts[name] += 1
        return real(*arguments)

    return call
