"""From a trained head to a GGUF that runs, and back for going on with one.

`eagle3` is llama.cpp's own architecture; `eagle1` and `medusa` follow the layout of `localspec-head`. All carry the
fingerprint of the verifier they were trained for. Imports torch: load it inside functions only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from localspec.catalog import fingerprint
from localspec.catalog.gguf import raw_values
from localspec.catalog.ggufwriter import Value, encode, write_gguf
from localspec.catalog.modelfile import read_model
from localspec.errors import UsageError
from localspec.services.train.nets import Sizes
from localspec.services.train.vocabulary import DraftVocabulary
from localspec.services.train.weights import Verifier

HEAD = "localspec.head"
LAYER = {
    "layer.q": "blk.0.attn_q",
    "layer.k": "blk.0.attn_k",
    "layer.v": "blk.0.attn_v",
    "layer.o": "blk.0.attn_output",
    "layer.ffn_norm": "blk.0.ffn_norm",
    "layer.gate": "blk.0.ffn_gate",
    "layer.up": "blk.0.ffn_up",
    "layer.down": "blk.0.ffn_down",
}
NAMES: dict[str, dict[str, str]] = {
    "eagle3": {
        "input_norm": "enc.output_norm",
        "fc": "fc",
        "token_norm": "blk.0.attn_norm",
        "feature_norm": "blk.0.attn_norm_2",
        "output_norm": "output_norm",
        "output": "output",
        **LAYER,
    },
    "eagle1": {"fc": "fc", "attn_norm": "blk.0.attn_norm", **LAYER},
    "medusa": {"output": "output"},
}


def tensor_name(kind: str, parameter: str) -> str | None:
    """The name in the file of a parameter of the module, None for what the file leaves to the verifier."""
    module, _, part = parameter.rpartition(".")
    if kind == "medusa" and module.startswith("blocks."):
        return f"head.{module.removeprefix('blocks.')}.0.{part}"
    known = NAMES[kind].get(module)
    return f"{known}.{part}" if known else None


def export(
    net: Any,
    path: Path,
    *,
    verifier: Path,
    vocabulary: DraftVocabulary,
    layers: Sequence[int],
    weights: str = "Q8_0",
) -> None:
    """Write the head; matrices as `weights` (F16, Q8_0, Q4_0 or F32), everything else as float32."""
    kind = net.kind
    tensors = {"d2t": encode(vocabulary.ids, "I64")}
    for parameter, value in net.state_dict().items():
        name = tensor_name(kind, parameter)
        if name is not None:
            array = value.float().numpy()
            tensors[name] = encode(array, weights if array.ndim > 1 else "F32")
    keys: dict[str, Value] = dict(fingerprint.keys(fingerprint.of_verifier(verifier), kind=kind))
    keys |= _eagle3_keys(net.sizes, layers) if kind == "eagle3" else _own_keys(kind, net)
    keys["general.name"] = f"{kind} head for {read_model(verifier).name or verifier.stem}"
    if kind == "eagle3":
        keys |= raw_values(verifier, "tokenizer.")
    write_gguf(path, keys, tensors)


def _eagle3_keys(sizes: Sizes, layers: Sequence[int]) -> dict[str, Value]:
    return {
        "general.architecture": "eagle3",
        "eagle3.block_count": 1,
        "eagle3.context_length": 8192,
        "eagle3.embedding_length": sizes.width,
        "eagle3.feed_forward_length": sizes.feed_forward,
        "eagle3.attention.head_count": sizes.heads,
        "eagle3.attention.head_count_kv": sizes.heads_kv,
        "eagle3.attention.key_length": sizes.head_size,
        "eagle3.attention.value_length": sizes.head_size,
        "eagle3.attention.layer_norm_rms_epsilon": sizes.epsilon,
        "eagle3.rope.dimension_count": sizes.head_size,
        "eagle3.rope.freq_base": sizes.rope_base,
        "eagle3.target_layers": list(layers),
        "eagle3.target_hidden_size": sizes.width,
        "eagle3.norm_before_residual": False,
        "eagle3.norm_before_fc": True,
    }


def _own_keys(kind: str, net: Any) -> dict[str, Value]:
    sizes: Sizes = net.sizes
    keys: dict[str, Value] = {"general.architecture": "localspec-head", f"{HEAD}.width": sizes.width}
    if kind == "medusa":
        return {**keys, f"{HEAD}.heads": net.steps, f"{HEAD}.blocks": 1}
    return {
        **keys,
        f"{HEAD}.feed_forward": sizes.feed_forward,
        f"{HEAD}.attention.heads": sizes.heads,
        f"{HEAD}.attention.heads_kv": sizes.heads_kv,
        f"{HEAD}.attention.key_length": sizes.head_size,
        f"{HEAD}.norm_epsilon": sizes.epsilon,
        f"{HEAD}.rope.base": sizes.rope_base,
        f"{HEAD}.rope.type": "norm",
    }


class Exported:
    """A head read back from its file."""

    def __init__(self, path: Path) -> None:
        """Raises `ModelFileError`, or `UsageError` when it holds no head."""
        self.path = path
        self._weights = Verifier.read(read_model(path))
        header = self._weights.headers[0]
        self.kind = header.text(f"{HEAD}.kind") or header.text("general.architecture")
        if self.kind not in NAMES:
            raise UsageError(
                f"{path} holds no head ({self.kind})", hint="Name a head that `localspec train head` wrote."
            )

    def vocabulary(self, size: int) -> DraftVocabulary:
        """The tokens it can say; all, where it has no map."""
        if not self._weights.has("d2t"):
            return DraftVocabulary.of(range(size), size)
        info = self._weights.headers[0].table["d2t"]
        with self.path.open("rb") as file:
            file.seek(info.offset)
            ids = np.frombuffer(file.read(info.size or 0), dtype="<i8")
        if len(ids) > 1 and not (np.diff(ids) > 0).all():
            raise UsageError(f"{self.path} lists its tokens out of order", hint="Start from a head trained here.")
        return DraftVocabulary.of(ids.tolist(), size)

    def load_into(self, net: Any, vocabulary: DraftVocabulary) -> None:
        """Start `net` from these weights; output rows of tokens that this head cannot say stay as they are in `net`.

        Raises `UsageError` when it is of another kind or size.
        """
        if net.kind != self.kind:
            raise UsageError(f"{self.path} is of kind {self.kind}, not {net.kind}", hint=f"Choose --kind {self.kind}.")
        state: dict[str, Tensor] = {}
        for parameter, value in net.state_dict().items():
            name = tensor_name(self.kind, parameter)
            if name is None:
                state[parameter] = value
                continue
            found = torch.from_numpy(self._weights.tensor(name))
            if name == "output.weight":
                known = self.vocabulary(len(vocabulary.places)).ids
                places = torch.from_numpy(vocabulary.places[known])
                if len(found) == len(known) and found.shape[1:] == value.shape[1:] and bool((places >= 0).all()):
                    found = value.clone().index_copy_(0, places, found)
            if found.numel() != value.numel():
                raise UsageError(
                    f"{name} of {self.path} has {found.numel():,} weights, not {value.numel():,}",
                    hint="Use the vocabulary, layers and verifier that it was trained with.",
                )
            state[parameter] = found.reshape(value.shape)
        net.load_state_dict(state)


def weights_of(text: str) -> str:
    """A weight format as typed. Raises `UsageError`."""
    known: Mapping[str, str] = {"f32": "F32", "f16": "F16", "q8_0": "Q8_0", "q4_0": "Q4_0"}
    if text.lower() not in known:
        raise UsageError(f"--weights is {text!r}", hint=f"Choose one of {', '.join(known)}.")
    return known[text.lower()]
