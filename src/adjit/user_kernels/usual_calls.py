"""Calls of kernels on tensors that lie as in an earlier call: what their elements have no part in is known."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numba._dispatcher import compute_fingerprint  # as Numba's own dispatchers

from .. import devices
from ..autograd.function import FunctionCtx, FunctionOp
from ..graph.levels import is_traced, tracers
from ..graph.node import Gradient, GradNode, Node, Spec, dense_spec
from ..graph.primitives import fresh_node, from_array
from ..graph.record import (
    as_tensor,
    as_tensors,
    edge_of,
    give_history,
    needs_grad,
    new_grad_node,
    tensor_classes,
)
from ..graph.saved import packed
from ..graph.state import state
from ..schedule.settle import captured_threads, value_of
from ..tensor import Tensor
from .gpu_run import GpuArray

NUMBERS = {float, int, bool}
MAX_LAYOUTS = 4096
SAVED = object()  # in the place of an argument that is a saved tensor

# ----- tensors as Numba sees them -----


class DenseLayout:
    """How tensors of a dense spec are seen on their memory: as arrays, without dimensions as numbers."""

    __slots__ = ("dtype", "is_number", "itemsize", "kind", "memory_at", "shape", "spec")

    def __init__(self, spec: Spec) -> None:
        self.spec, self.shape = spec, tuple(spec.shape)
        self.kind, self.dtype = spec.dtype, spec.dtype.numpy
        self.is_number, self.itemsize = not spec.ndim, spec.dtype.itemsize
        memory: Any = ctypes.c_char * (spec.numel * self.itemsize)
        self.memory_at: Callable[[int], Any] = memory.from_address

    def array(self, value: Node) -> Any:
        """An array on a value that the caller holds."""
        return np.ndarray(self.shape, self.dtype, self.memory_at(value.address))

    def seen(self, t: Tensor) -> Any:
        """What Numba is given for a tensor of this layout, which is not marked as seen by others: it is read
        at once."""
        value = value_of(t._storage)
        memory = self.memory_at(value.address + t._offset * self.itemsize)
        memory.holder = value
        found = np.ndarray(self.shape, self.dtype, memory)
        return found[()] if self.is_number else found


_layouts: dict[Spec, DenseLayout] = {}


def layout_of(spec: Spec) -> DenseLayout:
    """The layout of a dense spec."""
    found = _layouts.get(spec)
    if found is None:
        if len(_layouts) >= MAX_LAYOUTS:
            _layouts.clear()
        found = _layouts[spec] = DenseLayout(spec)
    return found


def array_of(t: Tensor) -> Any:
    """An array on the value of a tensor, a number for one without dimensions; on a GPU a handle."""
    state.deterministic = False
    spec = t._spec
    if not spec.contiguous:
        return array_of(t.detach().contiguous())
    if spec.device is not devices.CPU:
        return GpuArray(t.detach())
    return layout_of(spec).seen(t)


def values_of(args: Sequence[Any]) -> list[Any]:
    """What Numba is given for arguments: arrays, and numbers for tensors without dimensions."""
    return [
        a if not isinstance(a, Tensor) else array_of(a if a._spec.ndim else a.cpu()) for a in args
    ]


def restored(ctx: Any) -> list[Any]:
    """The arguments of a call: saved tensors and what was no tensor."""
    saved = iter(ctx.saved_tensors)
    return [next(saved) if a is SAVED else a for a in ctx.args]


# ----- calls -----


def refuse_shared(code: CallCode, args: Sequence[Any]) -> None:
    """Refuse a tensor that may share memory with one that is written: that is computed in a copy.

    Raises:
        ValueError: as the generated code does for arrays.
    """
    tensors = [(k, a) for k, a in enumerate(args) if isinstance(a, Tensor)]
    for k, a in tensors:
        if k not in code.written:
            continue
        first, end = bytes_of(a)
        for n, b in tensors:
            start, stop = bytes_of(b)
            if n != k and b._storage is a._storage and start < end and first < stop:
                names = code.kernel.py_func.__code__.co_varnames
                raise ValueError(
                    f"{names[k]} is written and shares memory with {names[n]}: pass a copy"
                )


def bytes_of(t: Tensor) -> tuple[int, int]:
    """Where what a tensor shows of its memory begins and ends."""
    size = t._spec.dtype.itemsize
    return t._offset * size, (t._offset + t._spec.extent) * size


def kinds_of(args: Sequence[Any]) -> tuple[object, ...] | None:
    """What tells calls apart: the layouts of tensors and who needs a gradient, Numba's types of the rest.

    None if there are tracers, or what Numba has no type for.
    """
    kinds: list[object] = []
    try:
        for a in args:
            kind = a.__class__
            if kind in tensor_classes:
                kinds.append(a._spec)
                if state.grad and needs_grad(a):
                    kinds.append(True)
            else:
                kinds.append(kind if kind in NUMBERS else compute_fingerprint(a))
    except (NotImplementedError, ValueError):
        return None
    return tuple(kinds)


class CallCode(Protocol):
    """The generated code for one kind of arguments; `tensors.KernelCode` is one."""

    module: Any
    kernel: Any
    wrt: tuple[int, ...]
    written: list[int]
    floats: list[int]
    kinds: list[Any]
    is_tuple: bool
    is_joint: bool

    def as_results(self, results: Sequence[Any], /) -> list[Any]:
        """Tensors of floats and arrays; whole numbers as they are."""


class UsualCall:
    """A call on the CPU, and its backward node if it has one; it writes into arguments only if it has none."""

    __slots__ = ("code", "inputs", "looks", "op", "primal", "pullback", "tensors", "wanted")

    def __init__(self, op: KernelOp, code: CallCode, args: Sequence[Any]) -> None:
        self.op, self.code = op, code
        self.primal, self.pullback = code.module.primal, code.module.pullback
        self.tensors = [k for k, a in enumerate(args) if isinstance(a, Tensor)]
        self.looks = [
            None if k not in self.tensors
            else layout_of(a._spec).seen if a._spec.contiguous
            else array_of
            for k, a in enumerate(args)
        ]  # fmt: skip
        self.wanted = [
            layout_of(dense_spec(args[k]._spec.shape, args[k]._spec.dtype)) for k in code.wrt
        ]
        specs = [args[k]._spec if k in self.tensors else None for k in range(len(args))]
        for k, layout in zip(code.wrt, self.wanted, strict=True):
            specs[k] = layout.spec
        self.inputs = (None, *specs)

    def __call__(self, args: Sequence[Any]) -> Any:
        """Call the kernel."""
        code, gradients = self.code, None
        if code.is_joint:
            results, gradients = self.pull_back(args, (1.0,))
            outs = code.as_results(results)
        else:
            values = self.values(args)
            written = [k for k in code.written if k in self.tensors] if code.written else ()
            if written:
                refuse_shared(code, args)
            for k in written:
                values[k] = values[k].copy()
            found = self.primal(*values)
            outs = code.as_results(found if code.is_tuple else (found,) if code.kinds else ())
            for k in written:
                args[k].copy_(from_array(values[k]))
        if code.wrt:
            self._give_history(gradients, args, outs)
        return tuple(outs) if code.is_tuple else outs[0] if outs else None

    def values(self, args: Sequence[Any]) -> list[Any]:
        """What Numba is given for arguments."""
        state.deterministic = False
        found = []
        for a, look in zip(args, self.looks, strict=True):
            found.append(a if look is None else look(a))
        return found

    def pull_back(
        self, args: Sequence[Any], adjoints: Sequence[Any]
    ) -> tuple[Sequence[Any], list[Node]]:
        """The results that are numbers, and the gradients as bare values."""
        given = self.values(args)
        given += adjoints
        gradients = []
        for layout in self.wanted:
            node = fresh_node(layout.spec)
            gradients.append(node)
            if not layout.is_number:
                given.append(layout.array(node))
        numbers, found = self.pullback(*given)
        if found:
            rest = iter(found)
            for layout, node in zip(self.wanted, gradients, strict=True):
                if layout.is_number:
                    layout.kind.ctype.from_address(node.address).value = next(rest)
        return numbers, gradients

    def scaled(self, gradients: Sequence[Node], adjoint: Tensor) -> Sequence[Gradient]:
        """The gradients for an adjoint of the result."""
        if is_one(adjoint):
            return gradients
        return [
            scaled(as_tensor(g, layout.spec), adjoint)
            for g, layout in zip(gradients, self.wanted, strict=True)
        ]

    def _give_history(
        self, gradients: list[Node] | None, args: Sequence[Any], outs: Sequence[Any]
    ) -> None:
        ctx: Any = FunctionCtx()
        code = self.code
        ctx.call, ctx.code, ctx.gradients, ctx.written = self, code, gradients, ()
        edges: list[Any] = [None] * len(self.inputs)
        for k in code.wrt:
            edges[k + 1] = edge_of(args[k])
        rest, kept = list(args), []
        for k in self.tensors:
            kept.append((args[k], args[k]._version_counter.version, None))
            rest[k] = SAVED
        ctx.args = rest
        node = new_grad_node(self.op, edges, self.inputs)
        node.context = ctx
        node.outputs = tuple([o._spec if isinstance(o, Tensor) else None for o in outs])
        node.saved = [packed(one) for one in kept] if state.saving else kept
        ctx._node = weakref.ref(node)
        for k in code.floats:
            give_history(outs[k], node, k)


class KernelOp(FunctionOp):
    """The op behind the backward nodes of a kernel."""

    def apply_vjp(self, fn: GradNode, grads: list[Any]) -> list[Any]:
        """The gradients of arguments; those of usual calls as bare values."""
        ctx: Any = fn.context
        call: UsualCall = ctx.call
        if state.grad:
            return super().apply_vjp(fn, grads)
        found: Sequence[Gradient]
        if ctx.gradients is not None:
            _ = ctx.saved_tensors  # an error if they were freed, or overwritten since
            found = call.scaled(ctx.gradients, as_tensor(grads[0], fn.outputs[0]))
        elif any([g is None for g in grads]) or is_traced(grads):  # noqa: C419
            return super().apply_vjp(fn, grads)
        else:
            adjoints = as_tensors(fn, grads)
            given = [array_of(adjoints[k]) for k in call.code.floats]
            _, found = call.pull_back(restored(ctx), given)
        gradients: list[Any] = [None] * len(fn.edges)
        for k, g in zip(call.code.wrt, found, strict=True):
            gradients[k + 1] = g
        return gradients


def scaled(gradient: Tensor, adjoint: Tensor) -> Tensor:
    """A gradient that was computed for an adjoint of 1, for another one."""
    return gradient * (adjoint if adjoint.dtype is gradient.dtype else adjoint.to(gradient.dtype))


def is_one(t: Tensor) -> bool:
    """Whether a number is 1 and is there already: nothing is computed to find that out."""
    if captured_threads or t.__class__ in tracers or t._spec.device is not devices.CPU:
        return False
    value, kind = t._storage.value, t._spec.dtype
    if value.recipe is not None:
        return False
    state.deterministic = False
    return bool(kind.ctype.from_address(value.address + t._offset * kind.itemsize).value == 1)
