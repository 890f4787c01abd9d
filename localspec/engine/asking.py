"""Asks llama.cpp whether an architecture gives the inputs of its layers, without a list of names.

llama.cpp aborts the process when they are switched on for a model that does not give them. So a child process does it,
on a model of which only the metadata is read and no weight is allocated: a fraction of a second.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Sequence

from localspec.engine import native
from localspec.engine.model import LlamaModel
from localspec.engine.native import lib
from localspec.errors import LoadError

_NO_LAYER_INPUT = "layer input"  # in the words of the assertion that says so
_known: dict[tuple[str, tuple[int, ...]], bool] = {}


def gives_layer_inputs(model: LlamaModel, layers: Sequence[int]) -> bool:
    """True when `model` gives the inputs of all these `layers`. Asked once per architecture and process.

    Raises `LoadError` when it cannot be found out.
    """
    if native.set_layer_input is None or native.reserve_graph is None:
        return False
    key = (model.architecture, tuple(layers))
    if key not in _known:
        _known[key] = _ask(model, layers)
    return _known[key]


def _ask(model: LlamaModel, layers: Sequence[int]) -> bool:
    command = [sys.executable, "-m", __spec__.name, str(model.path), *map(str, layers)]
    # The parent's device is busy with the real model, and a debugger would be called for each abort.
    environment = os.environ | {
        "CUDA_VISIBLE_DEVICES": "",
        "GGML_NO_BACKTRACE": "1",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _unknown(model, str(error)) from error
    if done.returncode and _NO_LAYER_INPUT not in done.stderr:
        raise _unknown(model, (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    return done.returncode == 0


def _unknown(model: LlamaModel, reason: str) -> LoadError:
    return LoadError(
        f"whether llama.cpp gives the hidden states of {model.architecture} could not be found out: {reason}",
        hint="Choose a drafter that needs none, like ngram.",
    )


def _try(path: str, layers: Sequence[int]) -> None:
    """In the child: reserve a graph with these outputs, or be aborted."""

    def leave(message: bytes) -> None:
        os.write(2, message + b"\n")
        os._exit(1)

    callback = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(leave)
    native.ggml("ggml-base").ggml_set_abort_callback(callback)
    params = lib.llama_model_default_params()
    params.no_alloc, params.load_mode, params.n_gpu_layers = True, lib.LLAMA_LOAD_MODE_NONE, 0
    model = lib.llama_model_load_from_file(os.fsencode(path), params)
    settings = lib.llama_context_default_params()
    settings.n_ctx, settings.n_batch, settings.n_ubatch = 32, 4, 4
    context = lib.llama_init_from_model(model, settings) if model else None
    if not context:
        sys.exit(native.complaint() or "the model could not be opened a second time")
    for layer in layers:
        native.set_layer_input(context, layer, True)
    native.reserve_graph(context, 1, 1, 1)
    os._exit(0)


if __name__ == "__main__":
    _try(sys.argv[1], [int(layer) for layer in sys.argv[2:]])
