"""Weights and graphs of heads on a ggml device: allocated once, computed often, freed by `close`.

llama.cpp does not know these heads; the libggml it stands on can compute them where the verifier is. What ggml would
answer with an abort (shapes, types) is checked by whoever builds; what it answers with NULL becomes a `LoadError`.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from localspec.engine import ggml, native
from localspec.errors import DecodeError, LoadError

Tensor = int
"""Address of a ggml tensor."""
_CPU = 0  # GGML_BACKEND_DEVICE_TYPE_CPU
_NODES = 256  # of a graph, views and leaves included; the largest head takes about 60


@dataclass(frozen=True)
class Stored:
    """A tensor as a file holds it. shape as ggml counts, fastest first; data: its bytes, any block type ggml knows."""

    shape: tuple[int, ...]
    kind: int
    data: npt.NDArray[np.uint8]

    @classmethod
    def floats(cls, values: npt.ArrayLike) -> Stored:
        """A float32 array, (out, in)."""
        array = np.ascontiguousarray(values, dtype=np.float32)
        return cls(array.shape[::-1], ggml.F32, array.reshape(-1).view(np.uint8))

    def rows(self, ids: npt.NDArray[np.integer] | None) -> Stored:
        """Only these rows of a matrix, in this order; None: all."""
        if ids is None:
            return self
        data = self.data.reshape(self.shape[1], -1)[ids]
        return Stored((self.shape[0], len(ids)), self.kind, np.ascontiguousarray(data).reshape(-1))

    def row(self, index: int) -> npt.NDArray[np.float32]:
        """One row as floats."""
        width = self.shape[0]
        data = np.ascontiguousarray(self.data.reshape(self.shape[1], -1)[index])
        if self.kind == ggml.F32:
            return data.view(np.float32)
        out = np.empty(width, dtype=np.float32)
        ggml.lib().get_type_traits(self.kind).contents.to_float(data.ctypes.data, out.ctypes.data, width)
        return out


class Machine:
    """Where graphs run: the GPU called `device` with the CPU behind it, or the CPU alone. Freed by `close`."""

    def __init__(self, *, device: str | None, threads: int) -> None:
        """Raises `LoadError` when there is no such device or it cannot be used."""
        lib = ggml.lib()
        self.device = device
        self._backends: list[int] = []
        try:
            if device is not None:
                self._open(lib.backend_dev_by_name(device.encode()), device)
            cpu = lib.backend_dev_by_type(_CPU)
            self._open(cpu, "the CPU")
        except BaseException:
            self.close()
            raise
        setter = ggml.thread_setter(cpu)
        if setter:
            setter(self._backends[-1], threads)

    def _open(self, device: int | None, name: str) -> None:
        backend = ggml.lib().backend_dev_init(device, None) if device else None
        if not backend:
            raise LoadError(f"{name} cannot be used for a head", hint="Try --gpu-layers 0.")
        self._backends.append(backend)

    @property
    def main(self) -> int:
        """The backend that weights and caches live on."""
        if not self._backends:
            raise DecodeError("this head has been closed", hint="Load it again.")
        return self._backends[0]

    def scheduler(self) -> int:
        """A scheduler over the backends, for one graph; the caller frees it."""
        assert self._backends, "a graph on a closed machine"
        array = (ctypes.c_void_p * len(self._backends))(*self._backends)
        scheduler = ggml.lib().backend_sched_new(array, None, len(self._backends), _NODES, False, False)
        return int(scheduler)

    def close(self) -> None:
        for backend in self._backends:
            ggml.lib().backend_free(backend)
        self._backends = []


class Buffer:
    """Named tensors in memory of a machine's main backend."""

    def __init__(self, machine: Machine, shapes: Mapping[str, tuple[tuple[int, ...], int]], *, what: str) -> None:
        """`shapes`: name -> (sizes, type). Raises `LoadError` when there is no memory for `what`."""
        lib = ggml.lib()
        self.shapes = {name: shape for name, (shape, _) in shapes.items()}
        self._tensors: dict[str, Tensor] = {}
        self._buffer = None
        self._context = lib.init(ggml.InitParams((len(shapes) + 1) * ggml.TENSOR_BYTES, None, True))
        for name, (shape, kind) in shapes.items():
            sizes = (ctypes.c_int64 * len(shape))(*shape)
            self._tensors[name] = lib.new_tensor(self._context, kind, len(shape), sizes)
        with native.heard():
            self._buffer = lib.backend_alloc_ctx_tensors_from_buft(
                self._context, lib.backend_get_default_buffer_type(machine.main)
            )
        if not self._buffer:
            reason = native.complaint() or "not enough memory"
            self.close()
            raise LoadError(f"there is no room for {what}: {reason}", hint="Try fewer --gpu-layers.")

    @classmethod
    def holding(cls, machine: Machine, tensors: Mapping[str, Stored]) -> Buffer:
        """With the weights of a head in it."""
        made = cls(machine, {name: (one.shape, one.kind) for name, one in tensors.items()}, what="a head's weights")
        ggml.lib().backend_buffer_set_usage(made._buffer, ggml.WEIGHTS)
        for name, one in tensors.items():
            tensor = made._tensors[name]
            assert ggml.lib().nbytes(tensor) == one.data.nbytes, f"{name} does not have the size of its shape"
            ggml.lib().backend_tensor_set(tensor, one.data.ctypes.data, 0, one.data.nbytes)
        return made

    def clear(self) -> None:
        """All zeros."""
        ggml.lib().backend_buffer_clear(self._buffer, 0)

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def close(self) -> None:
        if self._buffer:
            ggml.lib().backend_buffer_free(self._buffer)
        if self._context:
            ggml.lib().free(self._context)
        self._buffer, self._context, self._tensors = None, None, {}


class Ops:
    """Operations on tensors of one graph that is being built; `ops.mul_mat(a, b)` is ggml's without its context."""

    def __init__(self, context: int) -> None:
        self._context = context
        self.inputs: dict[str, tuple[Tensor, int]] = {}
        self.outputs: dict[str, tuple[Tensor, tuple[int, ...]]] = {}
        self.ends: list[Tensor] = []
        self.writes: list[Tensor] = []

    def input(self, name: str, kind: int, *shape: int) -> Tensor:
        """A tensor that is filled before each run."""
        tensor: Tensor = ggml.lib().new_tensor(self._context, kind, len(shape), (ctypes.c_int64 * len(shape))(*shape))
        ggml.lib().set_input(tensor)
        self.inputs[name] = (tensor, int(ggml.lib().nbytes(tensor)))
        return tensor

    def output(self, name: str, tensor: Tensor, *shape: int) -> None:
        """A float32 tensor that is read after each run, as an array of this shape (numpy's order)."""
        ggml.lib().set_output(tensor)
        self.outputs[name] = (tensor, shape)
        self.ends.append(tensor)

    def written(self, cache: Tensor, values: Tensor, rows: Tensor) -> Tensor:
        """`cache` with `values` in these rows of it. Other operations may move to the CPU; this must be where it is."""
        self.writes.append(self.set_rows(cache, values, rows))
        return self.writes[-1]

    def __getattr__(self, name: str) -> Callable[..., Tensor]:
        function = getattr(ggml.lib(), name)
        return lambda *arguments: function(self._context, *arguments)

    def linear(self, x: Tensor, weights: Buffer, name: str) -> Tensor:
        """W x, + b where the file has one."""
        y = self.mul_mat(weights[f"{name}.weight"], x)
        return self.add(y, weights[f"{name}.bias"]) if f"{name}.bias" in weights else y

    def norm(self, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        """Root mean square norm with a weight."""
        return self.mul(self.rms_norm(x, epsilon), weight)


class Graph:
    """One shape of a computation, planned and allocated; run it as often as you like."""

    def __init__(self, machine: Machine, build: Callable[[Ops], None]) -> None:
        """`build` makes inputs, operations and outputs. Raises `LoadError` when there is no memory for it."""
        lib = ggml.lib()
        size = _NODES * ggml.TENSOR_BYTES + int(lib.graph_overhead_custom(_NODES, False))
        self._scheduler: int | None = None
        self._context: int | None = lib.init(ggml.InitParams(size, None, True))
        try:
            ops = Ops(int(self._context or 0))
            build(ops)
            self._graph = lib.new_graph_custom(self._context, _NODES, False)
            for tensor in ops.ends:
                lib.build_forward_expand(self._graph, tensor)
            if not all(lib.backend_supports_op(machine.main, tensor) for tensor in ops.writes):
                raise LoadError(f"{machine.device} cannot write into a head's cache", hint="Try --draft-gpu-layers 0.")
            self._scheduler = machine.scheduler()
            with native.heard():
                fits = lib.backend_sched_alloc_graph(self._scheduler, self._graph)
            if not fits:
                raise LoadError(
                    f"there is no room to compute a head: {native.complaint() or 'not enough memory'}",
                    hint="Try fewer --gpu-layers.",
                )
        except BaseException:
            self.close()
            raise
        self._inputs, self._outputs = ops.inputs, ops.outputs

    def run(self, **inputs: npt.NDArray[Any]) -> dict[str, npt.NDArray[np.float32]]:
        """The outputs for these inputs, all of them contiguous arrays. Raises `DecodeError`."""
        lib = ggml.lib()
        assert inputs.keys() == self._inputs.keys(), "not the inputs of this graph"
        for name, values in inputs.items():
            tensor, size = self._inputs[name]
            assert values.nbytes == size, f"{name} has {values.nbytes} bytes, not {size}"
            assert values.flags.c_contiguous
            lib.backend_tensor_set(tensor, values.ctypes.data, 0, size)
        code = lib.backend_sched_graph_compute(self._scheduler, self._graph)
        if code:
            raise DecodeError(f"ggml could not compute the head (code {code})", hint="Try --draft-gpu-layers 0.")
        found = {}
        for name, (tensor, shape) in self._outputs.items():
            array = np.empty(shape, dtype=np.float32)
            lib.backend_tensor_get(tensor, array.ctypes.data, 0, array.nbytes)
            found[name] = array
        return found

    def close(self) -> None:
        if self._scheduler:
            ggml.lib().backend_sched_free(self._scheduler)
        if self._context:
            ggml.lib().free(self._context)
        self._scheduler = self._context = None


@contextlib.contextmanager
def closing_on_error(*parts: Machine | Buffer | Graph) -> Iterator[None]:
    """Free what has been opened so far when the rest cannot be."""
    try:
        yield
    except BaseException:
        for part in parts:
            part.close()
        raise
