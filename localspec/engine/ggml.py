"""The parts of libggml that head graphs need, through ctypes: types of arguments, nothing else.

llama-cpp-python ships two libraries of it: `libggml-base` has tensors, operations and buffers, `libggml` the registry
of devices. ggml ends the process when shapes do not fit, so whoever builds a graph checks them first.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from localspec.engine import native

F32, F16, I32, I64 = 0, 1, 26, 27
NEOX, PAIRS = 2, 0
"""How rotary positions go: over the two halves of a head, or over pairs of neighbours."""
WEIGHTS = 1
"""Usage of a buffer: the scheduler computes where the weights are."""
TENSOR_BYTES = 512
"""More than a tensor's header takes."""

_P, _I, _L, _S, _F, _B = (
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_int64,
    ctypes.c_size_t,
    ctypes.c_float,
    ctypes.c_bool,
)


class InitParams(ctypes.Structure):
    """ggml_init_params; no_alloc: the context holds headers only."""

    _fields_ = (("mem_size", _S), ("mem_buffer", _P), ("no_alloc", _B))


class TypeTraits(ctypes.Structure):
    """The leading fields of ggml_type_traits, down to the function that makes floats of a row."""

    _fields_ = (
        ("type_name", ctypes.c_char_p),
        ("block", _L),
        ("block_interleave", _L),
        ("block_bytes", _S),
        ("is_quantized", _B),
        ("to_float", ctypes.CFUNCTYPE(None, _P, _P, _L)),
    )


# name -> (result, arguments); "registry" functions are in libggml, the others in libggml-base.
_REGISTRY: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "ggml_backend_dev_by_name": (_P, (ctypes.c_char_p,)),
    "ggml_backend_dev_by_type": (_P, (_I,)),
}
_BASE: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "ggml_init": (_P, (InitParams,)),
    "ggml_free": (None, (_P,)),
    "ggml_new_tensor": (_P, (_P, _I, _I, ctypes.POINTER(_L))),
    "ggml_new_graph_custom": (_P, (_P, _S, _B)),
    "ggml_graph_overhead_custom": (_S, (_S, _B)),
    "ggml_build_forward_expand": (None, (_P, _P)),
    "ggml_set_input": (None, (_P,)),
    "ggml_set_output": (None, (_P,)),
    "ggml_get_type_traits": (ctypes.POINTER(TypeTraits), (_I,)),
    "ggml_nbytes": (_S, (_P,)),
    # operations
    "ggml_add": (_P, (_P, _P, _P)),
    "ggml_mul": (_P, (_P, _P, _P)),
    "ggml_mul_mat": (_P, (_P, _P, _P)),
    "ggml_scale": (_P, (_P, _P, _F)),
    "ggml_tanh": (_P, (_P, _P)),
    "ggml_silu": (_P, (_P, _P)),
    "ggml_rms_norm": (_P, (_P, _P, _F)),
    "ggml_concat": (_P, (_P, _P, _P, _I)),
    "ggml_get_rows": (_P, (_P, _P, _P)),
    "ggml_set_rows": (_P, (_P, _P, _P, _P)),
    "ggml_reshape_2d": (_P, (_P, _P, _L, _L)),
    "ggml_reshape_3d": (_P, (_P, _P, _L, _L, _L)),
    "ggml_view_3d": (_P, (_P, _P, _L, _L, _L, _S, _S, _S)),
    "ggml_permute": (_P, (_P, _P, _I, _I, _I, _I)),
    "ggml_rope_ext": (_P, (_P, _P, _P, _P, _I, _I, _I, _F, _F, _F, _F, _F, _F)),
    "ggml_flash_attn_ext": (_P, (_P, _P, _P, _P, _P, _F, _F, _F)),
    # devices, buffers, schedulers
    "ggml_backend_dev_init": (_P, (_P, ctypes.c_char_p)),
    "ggml_backend_dev_backend_reg": (_P, (_P,)),
    "ggml_backend_reg_get_proc_address": (_P, (_P, ctypes.c_char_p)),
    "ggml_backend_free": (None, (_P,)),
    "ggml_backend_get_default_buffer_type": (_P, (_P,)),
    "ggml_backend_alloc_ctx_tensors_from_buft": (_P, (_P, _P)),
    "ggml_backend_buffer_free": (None, (_P,)),
    "ggml_backend_buffer_clear": (None, (_P, ctypes.c_uint8)),
    "ggml_backend_buffer_get_size": (_S, (_P,)),
    "ggml_backend_buffer_set_usage": (None, (_P, _I)),
    "ggml_backend_tensor_set": (None, (_P, _P, _S, _S)),
    "ggml_backend_tensor_get": (None, (_P, _P, _S, _S)),
    "ggml_backend_supports_op": (_B, (_P, _P)),
    "ggml_backend_sched_new": (_P, (ctypes.POINTER(_P), _P, _I, _S, _B, _B)),
    "ggml_backend_sched_free": (None, (_P,)),
    "ggml_backend_sched_alloc_graph": (_B, (_P, _P)),
    "ggml_backend_sched_graph_compute": (_I, (_P, _P)),
}


class Library:
    """ggml's functions by name, typed; `lib()` is the one instance."""

    def __init__(self) -> None:
        for library, names in ((native.ggml("ggml"), _REGISTRY), (native.ggml("ggml-base"), _BASE)):
            for name, (result, arguments) in names.items():
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments
                setattr(self, name.removeprefix("ggml_"), function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"ggml's {name} is not bound")


@functools.cache
def lib() -> Library:
    """The libraries, loaded when the first head is."""
    return Library()


def thread_setter(device: int) -> Any:
    """The function (backend, count) that sets the threads of a CPU device's backends, None when it has none."""
    library = lib()
    found = library.backend_reg_get_proc_address(library.backend_dev_backend_reg(device), b"ggml_backend_set_n_threads")
    return ctypes.CFUNCTYPE(None, _P, _I)(found) if found else None
