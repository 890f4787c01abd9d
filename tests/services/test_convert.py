"""Published checkpoints become heads: names, numbers, maps; and what cannot be one is a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from localspec.catalog import fingerprint
from localspec.catalog.modelfile import read_model
from localspec.engine.base import FeatureSpec
from localspec.engine.context import ContextSettings, LlamaContext
from localspec.engine.eagle3 import Eagle3Head
from localspec.engine.model import LlamaModel
from localspec.errors import ModelFileError, UsageError
from localspec.services.heads import convert_eagle3
from localspec.services.heads.convert import Converted, Request, convert
from localspec.services.heads.ggmlheads import open_head
from localspec.services.loading import Loaded, load
from tests import checkpoints, zoo
from tests.catalog.conftest import NOTHING, Listener
from tests.checkpoints import CONFIG, FEED, HEADS, SIZE, WIDTH, Array
from tests.eagle3 import verifier_ends

LAYERS = 6
SETTINGS = ContextSettings(capacity=64, draft_room=8, flash_attn="off")


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zoo.tiny_llama(tmp_path_factory.mktemp("convert") / "verifier.gguf", layers=LAYERS)


def made(folder: Path, verifier: Path, tensors: dict[str, Array], config: Any = CONFIG, **wanted: Any) -> Converted:
    """The checkpoint written to `folder` and converted."""
    source = checkpoints.folder(folder / "checkpoint", tensors, config)
    return convert(
        Request(source, str(verifier), folder / "head.gguf", **({"weights": "F32"} | wanted)), NOTHING, Listener()
    )


def read(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    reader = gguf.GGUFReader(path)
    keys = {key: field.contents() for key, field in reader.fields.items()}
    return keys, {tensor.name: np.array(tensor.data) for tensor in reader.tensors}


# -- EAGLE-3 ----------------------------------------------------------------------------------------------------------


class Published:
    """An EAGLE-3 head as its authors run it, on the tensors of the checkpoint: rotary halves, two key heads."""

    def __init__(self, tensors: dict[str, Array], prefix: str, embedding: Array, *, after: bool, before: bool) -> None:
        self.get = {name.removeprefix(prefix): array.astype(np.float64) for name, array in tensors.items()}
        self.embedding = embedding
        self.after_norm = after  # norm_before_residual
        self.before_fc = before
        self.keys: list[Array] = []
        self.values: list[Array] = []

    def fuse(self, rows: Array) -> Array:
        wide = norm(rows, self.get["input_norm.weight"]) if self.before_fc else rows
        return np.asarray(wide @ self.get["fc.weight"].T)

    def step(self, token: int, row: Array) -> tuple[Array, Array]:
        get, position = self.get, len(self.keys)
        normed = norm(row, get["hidden_norm.weight"])
        pair = np.concatenate([norm(self.embedding[token], get["input_layernorm.weight"]), normed])
        query = turned((get["self_attn.q_proj.weight"] @ pair).reshape(HEADS, SIZE), position)
        self.keys.append(turned((get["self_attn.k_proj.weight"] @ pair).reshape(2, SIZE), position))
        self.values.append((get["self_attn.v_proj.weight"] @ pair).reshape(2, SIZE))
        seen = [self._attend(query[head], head * 2 // HEADS) for head in range(HEADS)]
        out = get["self_attn.o_proj.weight"] @ np.concatenate(seen) + (normed if self.after_norm else row)
        fed = norm(out, get["post_attention_layernorm.weight"])
        gate = get["mlp.gate_proj.weight"] @ fed
        out = out + get["mlp.down_proj.weight"] @ (gate / (1 + np.exp(-gate)) * (get["mlp.up_proj.weight"] @ fed))
        reduced = get["lm_head.weight"] @ norm(out, get["norm.weight"])
        if "d2t" not in get:
            return reduced, out
        logits = np.full(261, -np.inf)
        logits[np.arange(len(reduced)) + get["d2t"].astype(int)] = reduced
        return logits, out

    def _attend(self, query: Array, group: int) -> Array:
        scores = np.array([key[group] @ query for key in self.keys]) / np.sqrt(SIZE)
        weights = np.exp(scores - scores.max())
        return np.asarray((weights / weights.sum()) @ np.array([value[group] for value in self.values]))


def norm(row: Array, weight: Array) -> Array:
    return np.asarray(row / np.sqrt((row**2).mean(axis=-1, keepdims=True) + 1e-5) * weight)


def turned(rows: Array, position: int) -> Array:
    half = SIZE // 2
    angle = position * 10000.0 ** (-np.arange(half) / half)
    left, right = rows[:, :half], rows[:, half:]
    return np.concatenate(
        [left * np.cos(angle) - right * np.sin(angle), right * np.cos(angle) + left * np.sin(angle)], axis=1
    )


@pytest.mark.parametrize(
    ("prefix", "more", "rows"),
    [
        ("midlayer.", {"draft_vocab_size": 100}, 100),
        ("layers.0.", {"norm_before_residual": True}, 100),
        ("midlayer.", {"norm_before_fc": True}, 261),
    ],
    ids=["safeailab", "speculators", "norm-before-fc"],
)
def test_a_converted_eagle3_computes_what_its_authors_do(
    tmp_path: Path, verifier: Path, prefix: str, more: dict[str, Any], rows: int
) -> None:
    """Run by llama.cpp beside its verifier, against numpy on the published tensors."""
    tensors = checkpoints.eagle3(prefix, rows=rows)
    if "norm_before_fc" in more:
        tensors["input_norm.weight"] = 1.0 + 0.1 * np.random.default_rng(0).standard_normal(3 * WIDTH).astype(
            np.float32
        )
    converted = made(tmp_path, verifier, tensors, CONFIG | more)
    assert (converted.kind, converted.facts["layers"]) == ("eagle3", [2, 3, 3])
    text = np.random.default_rng(1).integers(5, 261, 24).astype(np.int32)
    embedding, _ = verifier_ends(zoo.byte_vocabulary())
    expected = Published(
        tensors, prefix, embedding, after="norm_before_residual" in more, before="norm_before_fc" in more
    )
    with (
        LlamaModel(verifier, gpu_layers=0) as model,
        LlamaModel(converted.path, gpu_layers=0) as head_model,
        LlamaContext(model, SETTINGS) as context,
        LlamaContext(model, SETTINGS) as other,
        Eagle3Head(head_model, context, SETTINGS) as head,
    ):
        capture = other.capture(FeatureSpec((2, 3, 3)))
        other.prefill(text[:-1], logits=False)
        fused = expected.fuse(capture.rows(0, 23).astype(np.float64))
        context.prefill(text[:-1], logits=False)
        result = head.follow(text)
        assert result is not None
        got = result.logits(0).copy()
        logits, own = np.zeros(0), np.zeros(0)
        for position in range(23):
            logits, own = expected.step(int(text[position + 1]), fused[position])
        alike(got, logits)
        logits, _ = expected.step(77, own)
        alike(head.step(77).logits(0), logits)


def alike(row: Array, expected: Array) -> None:
    inside = np.isfinite(expected)
    assert (np.isneginf(row) == ~inside).all()
    assert np.abs(row[inside] - expected[inside]).max() <= 2e-3 * np.abs(expected[inside]).max()


def test_eagle3_knows_its_verifier_and_its_words(tmp_path: Path, verifier: Path) -> None:
    converted = made(tmp_path, verifier, checkpoints.eagle3(), weights="Q8_0")
    keys, tensors = read(converted.path)
    assert fingerprint.of_head(converted.path) == fingerprint.of_verifier(verifier)
    assert keys["localspec.head.kind"] == "eagle3"
    assert keys["tokenizer.ggml.tokens"] == read(verifier)[0]["tokenizer.ggml.tokens"]
    offsets = checkpoints.eagle3()["d2t"]
    np.testing.assert_array_equal(tensors["d2t"], np.arange(100) + offsets)
    assert "token_embd.weight" not in tensors
    assert converted.facts["draft_vocabulary"] == 100
    assert converted.bytes < 200_000


@pytest.mark.parametrize(
    ("config", "asked", "layers"),
    [
        ({}, None, [2, 3, 3]),
        ({"eagle_aux_hidden_state_layer_ids": [2, 3, 4]}, None, [2, 3, 4]),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 4]}}, None, [2, 3, 5]),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2, 4]}, (1, 2, 4), [1, 2, 4]),
        ({"eagle_aux_hidden_state_layer_ids": [3, 4, 6]}, None, [3, 4, 6]),
    ],
)
def test_layers_are_counted_as_inputs(
    tmp_path: Path, verifier: Path, config: dict[str, Any], asked: tuple[int, ...] | None, layers: list[int]
) -> None:
    """Ids that begin with 1 name outputs: the input of the layer behind."""
    converted = made(tmp_path, verifier, checkpoints.eagle3(), CONFIG | config, layers=asked)
    assert read(converted.path)[0]["eagle3.target_layers"] == layers


def test_nested_configs_and_wrapped_names(tmp_path: Path, verifier: Path) -> None:
    tensors = {f"model.{name}": array for name, array in checkpoints.eagle3("layers.0.").items()}
    config = {"transformer_layer_config": CONFIG, "speculators_model_type": "eagle3", "norm_before_residual": True}
    keys, _ = read(made(tmp_path, verifier, tensors, config).path)
    assert keys["eagle3.norm_before_residual"] is True
    assert keys["eagle3.attention.head_count_kv"] == 2


def test_own_embedding_and_other_vocabulary_sizes(tmp_path: Path, verifier: Path) -> None:
    """A table shorter than the verifier's gets empty rows, a longer one is cut: llama.cpp reads past neither."""
    tensors = checkpoints.eagle3(rows=250)
    tensors["embed_tokens.weight"] = np.ones((240, WIDTH), dtype=np.float32)
    _, found = read(made(tmp_path, verifier, tensors).path)
    assert found["token_embd.weight"].shape == (261, WIDTH)
    assert not found["token_embd.weight"][240:].any()
    np.testing.assert_array_equal(found["d2t"], np.arange(250))
    _, found = read(made(tmp_path, verifier, checkpoints.eagle3(rows=300)).path)
    assert found["output.weight"].shape == (261, WIDTH)
    assert "d2t" not in found


def test_positions_as_llama_3_scales_them(tmp_path: Path, verifier: Path) -> None:
    """Short waves stay, long ones are stretched by the factor, in between it rises."""
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 64}  # fmt: skip
    converted = made(tmp_path, verifier, checkpoints.eagle3(), CONFIG | {"rope_scaling": scaling})
    factors = read(converted.path)[1]["rope_freqs.weight"]
    assert factors.shape == (SIZE // 2,)
    assert (factors[0], factors[-1]) == (1.0, 8.0)
    assert (np.diff(factors) >= 0).all()
    with LlamaModel(converted.path, gpu_layers=0) as model:
        assert model.architecture == "eagle3"
    waves = 2 * np.pi * 10000.0 ** (np.arange(0, SIZE, 2) / SIZE)
    middle = (waves > 16) & (waves < 64)
    assert middle.any() or ((factors == 1.0) == (waves <= 16)).all()
    keys, _ = read(
        made(
            tmp_path, verifier, checkpoints.eagle3(), CONFIG | {"rope_scaling": {"type": "linear", "factor": 2.0}}
        ).path
    )
    assert (keys["eagle3.rope.scaling.type"], keys["eagle3.rope.scaling.factor"]) == ("linear", 2.0)


def test_rows_side_by_side() -> None:
    rows = np.arange(8, dtype=np.float32)[:, None]
    assert convert_eagle3.interleaved(rows, 2)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


# -- EAGLE-1 and Medusa -----------------------------------------------------------------------------------------------


TEXT = np.random.default_rng(2).integers(5, 261, 20).astype(np.int32)


def beside(verifier: Path, head: Path) -> tuple[Loaded, Any, Array]:
    """The verifier with TEXT read, the head that follows it, and the final row of each position."""
    settings = ContextSettings(capacity=64, draft_room=8, flash_attn="off")
    loaded = load(read_model(verifier), settings, gpu_layers=None, role="verifier", report=Listener())
    opened, _ = open_head(read_model(head), loaded, settings, on_gpu=False, force=False, report=Listener())
    capture = loaded.context.capture(FeatureSpec(final=True))
    loaded.context.prefill(TEXT[:-1], logits=False)
    return loaded, opened, capture.rows(0, len(TEXT) - 1).astype(np.float64)


@pytest.mark.parametrize("biases", [False, True])
def test_a_converted_eagle1_computes_what_its_authors_do(tmp_path: Path, verifier: Path, biases: bool) -> None:
    """Run as ggml graphs beside its verifier, whose embedding and output it borrows, against numpy."""
    tensors = checkpoints.eagle1(biases=biases)
    loaded, head, rows = beside(verifier, made(tmp_path, verifier, tensors).path)
    embedding, output = verifier_ends(zoo.byte_vocabulary())
    get = {name.removeprefix("layers.0."): array.astype(np.float64) for name, array in tensors.items()}
    wide = np.concatenate([embedding[TEXT[1:]], rows], axis=1) @ get["fc.weight"].T + get["fc.bias"]
    query, key, value = (
        (wide @ get[f"self_attn.{name}_proj.weight"].T + get.get(f"self_attn.{name}_proj.bias", 0.0)).reshape(
            -1, h, SIZE
        )
        for name, h in (("q", HEADS), ("k", 2), ("v", 2))
    )
    query = turned(query[-1], len(rows) - 1)
    key = np.stack([turned(each, position) for position, each in enumerate(key)])
    seen = []
    for number in range(HEADS):
        scores = key[:, number * 2 // HEADS] @ query[number] / np.sqrt(SIZE)
        weights = np.exp(scores - scores.max())
        seen.append((weights / weights.sum()) @ value[:, number * 2 // HEADS])
    out = wide[-1] + get["self_attn.o_proj.weight"] @ np.concatenate(seen)
    fed = norm(out, get["post_attention_layernorm.weight"])
    gate = get["mlp.gate_proj.weight"] @ fed
    out = out + get["mlp.down_proj.weight"] @ (gate / (1 + np.exp(-gate)) * (get["mlp.up_proj.weight"] @ fed))
    alike(head.follow(TEXT).logits(0), output @ out)
    head.close()
    loaded.close()


def test_converted_medusa_heads_compute_what_their_authors_do(tmp_path: Path, verifier: Path) -> None:
    tensors = checkpoints.medusa(blocks=2)
    loaded, head, rows = beside(verifier, made(tmp_path, verifier, tensors).path)
    for k, guess in enumerate(head.guess(TEXT)):
        x = rows[-1]
        for b in range(2):
            step = tensors[f"{k}.{b}.linear.weight"] @ x + tensors[f"{k}.{b}.linear.bias"]
            x = x + step / (1 + np.exp(-step))
        alike(np.asarray(guess), tensors[f"{k}.2.weight"] @ x)
    head.close()
    loaded.close()


@pytest.mark.parametrize("biases", [False, True])
def test_eagle1_in_the_layout_of_heads(tmp_path: Path, verifier: Path, biases: bool) -> None:
    tensors = checkpoints.eagle1(biases=biases)
    converted = made(tmp_path, verifier, tensors, CONFIG | {"rope_theta": 500_000.0})
    keys, found = read(converted.path)
    assert converted.kind == keys["localspec.head.kind"] == "eagle1"
    assert keys["general.architecture"] == "localspec-head"
    own = {key: keys[f"localspec.head.{key}"] for key in ("width", "feed_forward", "rope.base", "rope.type")}
    assert own == {"width": WIDTH, "feed_forward": FEED, "rope.base": 500_000.0, "rope.type": "neox"}
    np.testing.assert_array_equal(found["blk.0.attn_q.weight"], tensors["layers.0.self_attn.q_proj.weight"])
    np.testing.assert_array_equal(found["fc.bias"], tensors["fc.bias"])
    assert ("blk.0.attn_k.bias" in found) is biases
    assert not {"blk.0.attn_norm.weight", "token_embd.weight", "output.weight"} & found.keys()


@pytest.mark.parametrize(("prefix", "blocks"), [("", 1), ("medusa_head.", 2)])
def test_medusa_in_the_layout_of_heads(tmp_path: Path, verifier: Path, prefix: str, blocks: int) -> None:
    """The config is not needed: sizes are read off the tensors."""
    tensors = checkpoints.medusa(prefix, blocks=blocks)
    converted = made(tmp_path, verifier, tensors, None, weights="F16")
    keys, found = read(converted.path)
    assert (keys["localspec.head.heads"], keys["localspec.head.blocks"]) == (3, blocks)
    for k in range(3):
        ours = found[f"head.{k}.{blocks - 1}.weight"]
        np.testing.assert_allclose(ours, tensors[f"{prefix}{k}.{blocks - 1}.linear.weight"], atol=1e-3)
        assert found[f"head.{k}.{blocks - 1}.bias"].dtype == np.float32
        assert found[f"head.{k}.output.weight"].shape == (261, WIDTH)


def test_one_file_of_any_kind_and_type(tmp_path: Path, verifier: Path) -> None:
    """safetensors in halves, torch's zip format: the same numbers."""
    tensors = {name: array.astype(np.float16) for name, array in checkpoints.medusa().items()}
    files = [
        checkpoints.safetensors(tmp_path / "a.safetensors", tensors, half="F16"),
        checkpoints.torch_file(tmp_path / "b.pt", tensors),
        checkpoints.torch_file(tmp_path / "c.bin", {k: checkpoints.bf16(v) for k, v in tensors.items()}),
        checkpoints.safetensors(tmp_path / "d.safetensors", tensors, half="BF16"),
    ]
    found = []
    for file in files:
        out = file.with_suffix(".gguf")
        convert(Request(file, str(verifier), out, "F32"), NOTHING, Listener())
        found.append(read(out)[1]["head.2.0.weight"])
    np.testing.assert_array_equal(found[0], tensors["2.0.linear.weight"].astype(np.float32))
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[3], found[2])
    np.testing.assert_allclose(found[2], found[0], rtol=2**-7)


def test_a_folder_in_parts(tmp_path: Path, verifier: Path) -> None:
    tensors = checkpoints.medusa()
    names = sorted(tensors)
    for part, own in (("m-1.safetensors", names[:4]), ("m-2.safetensors", names[4:])):
        checkpoints.safetensors(tmp_path / part, {name: tensors[name] for name in own})
    index = {"weight_map": {name: "m-1.safetensors" if name in names[:4] else "m-2.safetensors" for name in names}}
    (tmp_path / "m.safetensors.index.json").write_text(json.dumps(index))
    request = Request(tmp_path, str(verifier), tmp_path / "out" / "head.gguf")
    assert convert(request, NOTHING, Listener()).facts["heads"] == 3
    (tmp_path / "m-2.safetensors").unlink()
    with pytest.raises(ModelFileError, match=r"m-2\.safetensors is missing"):
        convert(request, NOTHING, Listener())


# -- what cannot be a head --------------------------------------------------------------------------------------------


def without(tensors: dict[str, Array], *names: str) -> dict[str, Array]:
    return {name: array for name, array in tensors.items() if name not in names}


WIDE = np.zeros((2 * WIDTH, 6 * WIDTH), dtype=np.float32)
DOUBLE = np.zeros(100, dtype=np.int64) - np.arange(100)


@pytest.mark.parametrize(
    ("tensors", "config", "error", "words"),
    [
        ({"wte.weight": WIDE}, {}, UsageError, "no draft head that is known"),
        (checkpoints.eagle3() | {"fc.weight": WIDE}, {}, UsageError, "hidden states 128 wide; verifier.gguf has 64"),
        (checkpoints.eagle3() | {"fc.weight": WIDE[:, :64]}, {}, UsageError, "llama.cpp feeds three layers"),
        (checkpoints.eagle3(), {"num_hidden_layers": 2}, UsageError, "2 decoder layers"),
        (checkpoints.eagle3(), {"num_attention_heads": 8}, ModelFileError, "k_proj.weight of"),
        (checkpoints.eagle3(), {"num_attention_heads": "four"}, ModelFileError, "num_attention_heads = 'four'"),
        (checkpoints.eagle3(), {"hidden_act": "gelu"}, UsageError, "activation 'gelu'"),
        (checkpoints.eagle3(), {"rope_scaling": {"type": "su"}}, UsageError, "'su'"),
        (checkpoints.eagle3(), {"eagle_config": {"use_aux_hidden_state": False}}, UsageError, "last hidden state"),
        (checkpoints.eagle3(), {"eagle_aux_hidden_state_layer_ids": [2, 30, 57]}, UsageError, r"\[2, 30, 57\]"),
        (checkpoints.eagle3() | {"d2t": DOUBLE}, {}, ModelFileError, "a token of its own"),
        (checkpoints.eagle3() | {"d2t": np.full(100, 200)}, {}, UsageError, "can say token 299"),
        (without(checkpoints.eagle3(), "norm.weight"), {}, ModelFileError, "no tensor norm.weight"),
        (without(checkpoints.eagle3(), "lm_head.weight"), {}, ModelFileError, "no tensor lm_head.weight"),
        (checkpoints.eagle3() | {"fc.bias": WIDE[0]}, {}, UsageError, "has a bias"),
        (checkpoints.eagle3() | {"norm.weight": np.full(WIDTH, np.nan, np.float32)}, {}, ModelFileError, "NaN"),
        (checkpoints.eagle1() | {"extra.weight": WIDE}, {}, ModelFileError, "extra.weight, which no EAGLE-1"),
        (checkpoints.eagle1(), {"rope_scaling": {"type": "linear"}}, UsageError, "'linear'"),
        (without(checkpoints.medusa(), "1.0.linear.bias"), {}, ModelFileError, "lacks parts"),
        (checkpoints.medusa() | {"lm_head.weight": WIDE}, {}, ModelFileError, "which no Medusa-1 head has"),
    ],
)
def test_what_cannot_be_run_is_a_sentence_and_writes_nothing(
    tmp_path: Path,
    verifier: Path,
    tensors: dict[str, Array],
    config: dict[str, Any],
    error: type[Exception],
    words: str,
) -> None:
    with pytest.raises(error, match=words) as caught:
        made(tmp_path, verifier, tensors, CONFIG | config)
    assert getattr(caught.value, "hint", "")
    assert not list(tmp_path.glob("head.gguf*"))


def test_a_config_is_needed_where_heads_are_counted(tmp_path: Path, verifier: Path) -> None:
    with pytest.raises(UsageError, match=r"no config.json"):
        made(tmp_path, verifier, checkpoints.eagle1(), None)


def test_wishes_that_make_no_sense(tmp_path: Path, verifier: Path) -> None:
    for wanted, words in (
        ({"weights": "Q2_K"}, "--weights is 'Q2_K'"),
        ({"layers": (1, 2)}, "--layers names 2 layers"),
        ({"layers": (1, 2, 3)}, "reads the last layer only"),
    ):
        with pytest.raises(UsageError, match=words):
            made(tmp_path, verifier, checkpoints.medusa(), **wanted)
    with pytest.raises(UsageError, match="There is no checkpoint"):
        convert(Request(tmp_path / "absent", str(verifier), tmp_path / "a.gguf"), NOTHING, Listener())
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="holds no weights"):
        convert(Request(tmp_path / "empty", str(verifier), tmp_path / "a.gguf"), NOTHING, Listener())
