"""Backward passes, and the switches and tools around them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from ..devices import CPU
from ..graph import record
from ..graph.export import add_method
from ..graph.levels import is_traced
from ..graph.state import state
from ..graph.straight import are_straight_in
from ..graph.trace import remembered
from ..ops.creation import ones, tensor, zeros_like
from ..ops.index import raise_zero_dim
from ..schedule.settle import settle
from ..shapes import Size, is_dense
from ..tensor import Tensor
from ..tracers.batched import BatchLevel
from .engine import run_backward
from .graph import GradientEdge
from .pulling import pull_back

Tensors = Tensor | Sequence[Tensor]


def _listed(value: Any) -> list[Any]:
    return [value] if record.is_tensor(value) or type(value) is GradientEdge else list(value)


def _initial(outputs: Sequence[Any], grads: Any) -> list[Any]:
    """One gradient for each output: the given ones checked, 1 for scalars."""
    given = [None] * len(outputs) if grads is None else _listed(grads)
    if len(given) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(given)} gradients")
    result = []
    for k, (out, g) in enumerate(zip(outputs, given, strict=True)):
        if g is None:
            if out.requires_grad:
                if out.numel() != 1:
                    raise RuntimeError("grad can be implicitly created only for scalar outputs")
                g = _one_for(out)
            result.append(g)
            continue
        if record.is_tensor(g) and g._spec is out._spec and g._spec.dtype.is_floating_point:
            result.append(g)
            continue
        if not record.is_tensor(g):
            raise TypeError("gradients can be either Tensors or None, but got " + type(g).__name__)
        if g.shape != out.shape:
            raise RuntimeError(
                f"Mismatch in shape: grad_output[{k}] has a shape of {_size(g.shape)} and "
                f"output[{k}] has a shape of {_size(out.shape)}."
            )
        result.append(g if g.dtype is out.dtype else g.to(out.dtype))
    return result


def _batch_of(outputs: Sequence[Any], grads: Any) -> tuple[BatchLevel | None, list[Any]]:
    """The level of gradients that have an axis of examples in front, and those as its tracers."""
    given = [None] * len(outputs) if grads is None else _listed(grads)
    for k, (out, g) in enumerate(zip(outputs, given, strict=False)):
        if record.is_tensor(g) and not g.ndim:
            raise_zero_dim()
        if record.is_tensor(g) and g.shape[1:] != out.shape:  # PyTorch names what is left of it
            raise RuntimeError(
                "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the "
                "batch dimension. The sizes of the remaining dimensions are expected to match the shape "
                f"of corresponding output, but a mismatch was detected: grad_output[{k}] has a shape of "
                f"{_size(g.shape[2:])} and output[{k}] has a shape of {_size(out.shape)}. If you only want "
                "some tensors in `grad_output` to be considered batched, consider using vmap."
            )
    sizes = [g.shape[0] for g in given if g is not None]
    if not sizes:
        raise ValueError("vmap: Expected at least one Tensor to vmap over")
    if any(size != sizes[0] for size in sizes):
        raise ValueError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    level = BatchLevel(sizes[0])
    return level, [None if g is None else level.wrapped(g) for g in given]


def _one_for(out: Any) -> Any:
    spec = out._spec
    edge = record.edge_of(out)
    is_planned = edge is not None and getattr(edge[0].op, "is_planned", False)
    if is_planned or (spec.device is CPU and state.session is None):
        value = _ready_ones.get(spec) or _ready_one(out)
        if value is not None:
            return record.make_tensor(record.make_storage(value, spec), spec)
    return remembered(
        _ones, spec, (), lambda: ones(spec.shape, dtype=spec.dtype, device=spec.device)
    )


def _ready_one(out: Any) -> Any:
    """A value that is there already: it costs no step, nor one before a plan, alone."""
    value = tensor(1.0, dtype=out._spec.dtype, device=out._spec.device)._storage.value
    if value.recipe is not None:
        settle()
    if value.recipe is not None:
        return None  # nothing runs while a function is captured
    if len(_ready_ones) >= MAX_READY:
        _ready_ones.clear()
    return _ready_ones.setdefault(out._spec, value)


_ones: dict[Any, Any] = {}
_ready_ones: dict[Any, Any] = {}
MAX_READY = 64


def _size(shape: Size) -> str:
    return f"torch.Size({list(shape)})"


def _check_roots(outputs: Sequence[Any]) -> None:
    for k, out in enumerate(outputs):
        if not out.requires_grad:
            raise RuntimeError(
                f"element {k} of tensors does not require grad and does not have a grad_fn"
            )


def backward(
    tensors: Tensors,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
    *,
    retain_variables: bool | None = None,
) -> None:
    """Accumulate the gradients of `tensors` into the leaves of their graph.

    Args:
        tensors: where to begin, each needing gradients; or edges of `autograd.graph.get_gradient_edge`.
        grad_tensors: their gradients, of their shapes; None for scalars.
        retain_graph: keep what the graph saved; the default is the value of `create_graph`.
        create_graph: record the backward pass itself.
        grad_variables: the old name of `grad_tensors`.
        inputs: accumulate into these only, leaves, others (which keep their gradients from then on:
            `retain_grad`), or edges.
        retain_variables: the old name of `retain_graph`.

    Raises:
        RuntimeError: with PyTorch's texts.

    Example:
        >>> x = adjit.ones(2, requires_grad=True)
        >>> adjit.autograd.backward([x * 2, x * 3], [adjit.ones(2), adjit.ones(2)])
        >>> x.grad
        tensor([5., 5.])
    """
    if grad_variables is not None:
        warnings.warn(
            "`grad_variables` is deprecated. Use `grad_tensors` instead.",
            FutureWarning,
            stacklevel=2,
        )
    if grad_variables is not None and grad_tensors is None:
        grad_tensors = grad_variables
    if retain_variables is not None and retain_graph is None:
        retain_graph = retain_variables
    roots = _listed(tensors)
    if state.inside or state.levels:
        raise RuntimeError(
            "backward() called inside a functorch transform. This is not supported, please use "
            "functorch.grad or functorch.vjp instead or call backward() outside of functorch transforms."
        )
    grads = _initial(roots, grad_tensors)
    _check_roots(roots)
    keep = create_graph if retain_graph is None else retain_graph
    if inputs is None:
        run_backward(roots, grads, keep=keep, create=create_graph)
        return
    targets = _listed(inputs)
    if not targets:
        raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    for k, t in enumerate(targets):
        if not t.requires_grad:
            raise RuntimeError(
                "One of the differentiated Tensors given as 'inputs' to backward does not require "
                f"grad (input {k})"
            )
    for t in targets:
        if type(t) is not GradientEdge:
            t.retain_grad()
    run_backward(roots, grads, keep=keep, create=create_graph, targets=targets, accumulates=True)


def grad(
    outputs: Tensors,
    inputs: Tensors,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of `outputs` with respect to `inputs`, without touching any `.grad`.

    Args:
        outputs: what to differentiate, tensors or edges.
        inputs: with respect to what; leaves or not, or edges of `autograd.graph.get_gradient_edge`.
        grad_outputs: gradients of the outputs (the vector of the vector-Jacobian product).
        retain_graph: keep what the graph saved; the default is the value of `create_graph`.
        create_graph: make the result differentiable.
        only_inputs: accepted for old programs.
        allow_unused: give None for inputs that no output depends on, instead of an error.
        is_grads_batched: whether `grad_outputs` have an axis in front, of several vectors for each of which the
            gradients are wanted: they have that axis too.
        materialize_grads: give zeros instead of None.

    Raises:
        RuntimeError: with PyTorch's texts.

    Example:
        >>> x = adjit.tensor(3.0, requires_grad=True)
        >>> adjit.autograd.grad(x * x, x)
        (tensor(6.),)
    """
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
            "allow_unused=False."
        )
    unused = bool(materialize_grads if allow_unused is None else allow_unused)
    roots, targets = _listed(outputs), _listed(inputs)
    if not targets:
        raise RuntimeError("`inputs` argument to `grad()` cannot be empty.")
    level, grad_outputs = (
        _batch_of(roots, grad_outputs) if is_grads_batched else (None, grad_outputs)
    )
    grads = _initial(roots, grad_outputs)
    _check_roots(roots)
    for t in targets:
        if not t.requires_grad:
            raise RuntimeError("One of the differentiated Tensors does not require grad")
    keep = bool(create_graph if retain_graph is None else retain_graph)
    found = pull_back(roots, grads, targets, keep=keep, create=create_graph)
    if level is not None:
        found = [level.full(g) for g in found]
    result: list[Any] = []
    for k, (t, g) in enumerate(zip(targets, found, strict=True)):
        if g is None and _is_straight(roots, t):
            g = zeros_like(t) if level is None else level.full(zeros_like(t))
        if g is None:
            if not unused:
                raise RuntimeError(
                    f"The differentiated Tensor at index {k} appears to not have been used in the graph. "
                    "Set allow_unused=True if this is the desired behavior."
                )
            if materialize_grads and type(t) is GradientEdge:
                raise RuntimeError(
                    "materialize_grads cannot be used when the given input is a GradientEdge"
                )
            if materialize_grads:
                g = zeros_like(t, requires_grad=create_graph)
                g = g if level is None else level.full(g)
        elif not g._spec.contiguous and not is_dense(g._spec.shape, g._spec.strides):
            # One number may stand for many: who writes into it means one element.
            before = [done for done, other in zip(result, found, strict=False) if other is g]
            g = before[0] if before else g.contiguous()
        result.append(g)
    return tuple(result)


def _is_straight(roots: Sequence[Any], t: Any) -> bool:
    """Whether roots depend on a tensor only in derivatives that are 0, as PyTorch's graph has it, too."""
    if type(t) is GradientEdge or is_traced([t, *roots]):
        return False
    return are_straight_in(map(record.edge_of, roots), record.edge_of(t))


class VariableMeta(type):
    """The class of `Variable`, of which every tensor is an instance."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=VariableMeta):
    """The old way to ask for gradients; today a tensor does all of it, and is what a call gives.

    `volatile`, with which gradients were not recorded once, has no effect.

    Raises:
        TypeError: if `data` is no tensor.

    Example:
        >>> adjit.autograd.Variable(adjit.ones(2), requires_grad=True)
        tensor([1., 1.], requires_grad=True)
    """

    def __new__(  # type: ignore[misc]
        cls, data: Tensor, requires_grad: bool = False, volatile: bool | None = None
    ) -> Tensor:
        if volatile:
            warnings.warn(
                "volatile was removed and now has no effect. Use `with torch.no_grad():` instead.",
                UserWarning,
                stacklevel=2,
            )
        if not record.is_tensor(data):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        return data.detach().requires_grad_(requires_grad)


def _tensor_backward(
    self: Tensor,
    gradient: Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
    *,
    retain_variables: bool | None = None,
) -> None:
    """Send a gradient back from this tensor; leaves accumulate theirs in `.grad`.

    Args:
        gradient: the gradient of this tensor, of its shape; may be left out for a scalar.
        retain_graph: keep what the graph saved, for another backward; as `create_graph`.
        create_graph: record the backward pass, for derivatives of higher order.
        inputs: accumulate into these tensors only.
        retain_variables: the old name of `retain_graph`.

    Raises:
        RuntimeError: with PyTorch's texts, without a gradient for a non-scalar, on a wrong
            shape, if nothing needs gradients, or if saved values are gone or overwritten.

    Example:
        >>> x = adjit.tensor([1., 2.], requires_grad=True)
        >>> (x * x).backward(adjit.tensor([1., 10.]))
        >>> x.grad
        tensor([ 2., 40.])
    """
    if retain_graph is None and retain_variables is not None:
        retain_graph = retain_variables
    backward(self, gradient, retain_graph, create_graph, inputs=inputs)


add_method("backward", _tensor_backward)
