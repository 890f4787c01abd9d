"""llama.cpp, loaded once: its log goes to Python logging, its backend is initialised before anything else happens.

Every other file of this folder reaches llama_cpp through here. Knows nothing about models.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import logging
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import llama_cpp.llama_cpp
import numpy as np
import numpy.typing as npt

lib: Any = llama_cpp.llama_cpp  # every other file of the folder takes it from here
logger = logging.getLogger("localspec.llama_cpp")
_LEVELS = {1: logging.DEBUG, 2: logging.INFO, 3: logging.WARNING, 4: logging.ERROR}
_CONTINUED = 5
_recent: deque[tuple[int, str]] = deque(maxlen=50)


def _listen(level: int, text: bytes | None, _user_data: Any) -> None:
    line = (text or b"").decode("utf-8", "replace").rstrip()
    if not line.strip(". "):
        return
    severity = logging.DEBUG if level == _CONTINUED else _LEVELS.get(level, logging.DEBUG)
    _recent.append((severity, line))
    logger.log(severity, line)


# llama.cpp calls back for as long as the process lives, so the callback object must never be collected.
_callback = lib.llama_log_callback(_listen)
logger.addHandler(logging.NullHandler())
logger.propagate = False
lib.llama_log_set(_callback, ctypes.c_void_p(0))
lib.llama_backend_init()


# The library's own binding makes a pointer object per call; a plain address is all that a view needs.
logits_address = lib._lib["llama_get_logits"]
logits_address.argtypes = [lib.llama_context_p_ctypes]
logits_address.restype = ctypes.c_void_p
"""Address of the first kept row of the last evaluation, rows in the order of the batch; waits for the device."""


def experimental(name: str, unix: str, windows: str, arguments: list[Any], result: Any) -> Any:
    """A function of llama.cpp that is exported but not declared for C, so that its symbol differs by compiler.

    `unix` and `windows` are the mangled tails behind the name, as in `llama_cpp.llama_cpp_ext`. None when this build
    does not have it.
    """
    for symbol in (name, f"_Z{len(name)}{name}{unix}", f"?{name}@@{windows}"):
        try:
            function = lib._lib[symbol]
        except AttributeError:
            continue
        function.argtypes, function.restype = arguments, result
        return function
    return None


_context, _u32, _bool = lib.llama_context_p_ctypes, ctypes.c_uint32, ctypes.c_bool
set_layer_input = experimental(
    "llama_set_embeddings_layer_inp", "P13llama_contextjb", "YAXPEAUllama_context@@I_N@Z", [_context, _u32, _bool], None
)
layer_input_address = experimental(
    "llama_get_embeddings_layer_inp",
    "P13llama_contextj",
    "YAPEAMPEAUllama_context@@I@Z",
    [_context, _u32],
    ctypes.c_void_p,
)
set_nextn = experimental(
    "llama_set_embeddings_nextn", "P13llama_contextbb", "YAXPEAUllama_context@@_N1@Z", [_context, _bool, _bool], None
)
nextn_address = experimental(
    "llama_get_embeddings_nextn", "P13llama_context", "YAPEAMPEAUllama_context@@@Z", [_context], ctypes.c_void_p
)
reserve_graph = experimental(
    "llama_graph_reserve",
    "P13llama_contextjjj",
    "YAPEAUggml_cgraph@@PEAUllama_context@@III@Z",
    [_context, _u32, _u32, _u32],
    ctypes.c_void_p,
)
_target_layers = experimental(
    "llama_model_target_layer_ids",
    "PK11llama_model",
    "YAPEBHPEBUllama_model@@@Z",
    [lib.llama_model_p_ctypes],
    ctypes.POINTER(ctypes.c_int32),
)
_target_layers_count = experimental(
    "llama_model_target_layer_ids_n", "PK11llama_model", "YAIPEBUllama_model@@@Z", [lib.llama_model_p_ctypes], _u32
)
embeddings_address = lib._lib["llama_get_embeddings"]
embeddings_address.argtypes = [_context]
embeddings_address.restype = ctypes.c_void_p


def target_layers(model: Any) -> tuple[int, ...]:
    """Layers of the verifier that a head says it reads; () when it says nothing or this build cannot tell."""
    if _target_layers is None or _target_layers_count is None:
        return ()
    return tuple(_target_layers(model)[: _target_layers_count(model)])


def floats(address: int, rows: int, width: int) -> npt.NDArray[np.float32]:
    """A (rows, width) view of llama.cpp's memory."""
    memory: Any = (ctypes.c_float * (rows * width)).from_address(address)
    return np.frombuffer(memory, dtype=np.float32).reshape(rows, width)


@functools.cache
def ggml(name: Literal["ggml", "ggml-base"]) -> Any:
    """The ggml that llama.cpp itself stands on: "ggml" has the registry of devices, "ggml-base" the tensors.

    A wheel holds copies where a build makes links, so a libggml-base.so that is loaded by its name is not the
    libggml-base.so.0 that libllama needs: it has a log, callbacks and a registry of its own. Through libllama the
    right one is found; Windows does not look further than one library, and has one file of each name.
    """
    if sys.platform == "win32":
        from llama_cpp._ctypes_extensions import load_shared_library

        return load_shared_library(name, Path(lib._lib._name).parent)
    # Not the binding's own object: types of arguments that are set here are none of its business.
    return ctypes.CDLL(lib._lib._name, handle=lib._lib._handle)


def show_log() -> None:
    """Let llama.cpp's log through to the root logger (`LOCALSPEC_DEBUG=1`)."""
    logger.propagate = True


def forget_log() -> None:
    """Start a fresh record, so that `complaint` speaks of what follows."""
    _recent.clear()


def complaint() -> str:
    """The most telling line llama.cpp logged since `forget_log`: its first error, else its last warning, else ''."""
    errors = [line for severity, line in _recent if severity >= logging.ERROR]
    warnings = [line for severity, line in _recent if severity == logging.WARNING]
    line = errors[0] if errors else warnings[-1] if warnings else ""
    return line.split(": ", 1)[1] if line.startswith("llama_") and ": " in line else line


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """Collect llama.cpp's log afresh for the length of a block."""
    forget_log()
    yield


def system_info() -> str:
    """llama.cpp's own line about the CPU features and backends it was built with."""
    return (lib.llama_print_system_info() or b"").decode("utf-8", "replace").strip()


def version() -> str:
    """Version of llama.cpp inside llama-cpp-python, as it names itself."""
    return (lib.llama_version() or b"").decode("utf-8", "replace")
