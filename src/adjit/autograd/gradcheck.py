"""Comparison of gradients with finite differences.

The numbers are compared in NumPy, in double precision: a check must not depend on the kernels that
it checks.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..dtypes import float64
from ..ops.creation import tensor, zeros_like
from ..ops.joining import stack
from ..ops.random import randn_like
from ..tensor import Tensor
from .api import grad
from .dual import DualLevel
from .function import Function

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]

Array: TypeAlias = npt.NDArray[Any]
Func: TypeAlias = Callable[..., Any]


class GradcheckError(RuntimeError):
    """A gradient that is wrong; raised by `gradcheck` and `gradgradcheck`."""


@dataclass(frozen=True)
class _Settings:
    eps: float
    atol: float
    rtol: float
    nondet_tol: float
    check_grad_dtypes: bool
    fast_mode: bool


def gradcheck(
    func: Func,
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """True if the gradients of `func` at `inputs` are its central differences.

    The inputs are moved in place by `eps`, one element at a time, and moved back: they should be
    float64 and must not overlap in memory.

    Args:
        func: takes tensors and returns a tensor or a tuple of tensors.
        inputs: a tensor or a tuple; those with `requires_grad` are checked.
        eps: of the differences.
        atol, rtol: as in `allclose`.
        raise_exception: whether to raise in place of returning False.
        nondet_tol: how much two backwards of the same may differ.
        check_undefined_grad: check that outputs without a gradient are taken for zeros.
        check_grad_dtypes: check that gradients have the dtypes of their inputs.
        check_batched_grad: check that gradients of several vectors at once, as `is_grads_batched` and
            `vmap` compute them, are those of each.
        check_batched_forward_grad: must be False.
        check_forward_ad: check the tangents that forward mode gives.
        check_backward_ad: check the gradients that backward gives.
        fast_mode: compare one random projection of each Jacobian, not all of its entries.
        masked: accepted; it concerns sparse tensors.

    Raises:
        GradcheckError: a gradient is wrong.
        ValueError: no input requires a gradient.
        RuntimeError: an input overlaps itself.
        NotImplementedError: a check of batched tangents.

    Example:
        >>> x = adjit.rand(3, dtype=adjit.float64, requires_grad=True)
        >>> adjit.autograd.gradcheck(adjit.sin, x)
        True
    """
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError(
            "Expected at least one of check_forward_ad or check_backward_ad to be True"
        )
    if check_batched_grad and not check_backward_ad:
        raise AssertionError(
            "Setting check_batched_grad=True requires check_backward_ad to be True"
        )
    if check_batched_forward_grad and not check_forward_ad:
        raise AssertionError(
            "Setting check_batched_forward_grad=True requires check_forward_ad to be True"
        )
    if check_batched_forward_grad:
        raise NotImplementedError(
            "gradcheck: check_batched_forward_grad=True is not supported: tangents are checked one at a time."
        )
    settings = _Settings(eps, atol, rtol, nondet_tol, check_grad_dtypes, fast_mode)
    try:
        tensors = _as_tuple(inputs)
        _check_inputs(tensors)
        if check_forward_ad:
            _compare_forward(func, tensors, settings)
        if check_backward_ad:
            _check(func, tensors, settings, check_undefined_grad, check_batched_grad)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Func,
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """True if the second gradients of `func` are the central differences of its first.

    The function that is checked maps `inputs` and `grad_outputs` to the gradients.

    Args:
        func: takes tensors and returns a tensor or a tuple of tensors.
        inputs: a tensor or a tuple; those with `requires_grad` are checked.
        grad_outputs: gradients of the outputs; random ones in [-1, 1] if None.
        eps: of the differences.
        atol, rtol: as in `allclose`.
        gen_non_contig_grad_outputs: whether the random ones are not contiguous.
        raise_exception: whether to raise in place of returning False.
        nondet_tol: how much two backwards of the same may differ.
        check_undefined_grad: check that outputs without a gradient are taken for zeros.
        check_grad_dtypes: check that gradients have the dtypes of their inputs.
        check_batched_grad: as in `gradcheck`.
        check_fwd_over_rev, check_rev_over_rev: check the tangents of gradients, their gradients.
        fast_mode: compare one random projection of each Jacobian, not all of its entries.
        masked: accepted; it concerns sparse tensors.

    Raises:
        GradcheckError: a gradient is wrong.
        ValueError: no input requires a gradient.
        RuntimeError: an input overlaps itself.

    Example:
        >>> x = adjit.rand(3, dtype=adjit.float64, requires_grad=True)
        >>> adjit.autograd.gradgradcheck(adjit.sin, x)
        True
    """
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError(
            "Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True"
        )
    for option, given in (
        ("check_undefined_grad", check_undefined_grad),
        ("check_batched_grad", check_batched_grad),
    ):
        if given and not check_rev_over_rev:
            raise AssertionError(f"Setting {option}=True requires check_rev_over_rev to be True")

    tensors = _as_tuple(inputs)
    if grad_outputs is None:
        outputs = _differentiable(func(*tensors))
        grads = _random_gradients(outputs, gen_non_contig_grad_outputs)
    else:
        grads = _as_tuple(grad_outputs)
    split = len(tensors)
    is_checked = [_requires_grad(t) for t in (*tensors, *grads)]

    def gradients(*args: Any) -> tuple[Any, ...]:
        args = tuple(
            arg.requires_grad_() if checked else arg
            for arg, checked in zip(args, is_checked, strict=True)
        )
        points = [arg for arg, checked in zip(args[:split], is_checked, strict=False) if checked]
        found = grad(
            _differentiable(func(*args[:split])),
            points,
            args[split:],
            create_graph=True,
            allow_unused=True,
        )
        return tuple(g for g in found if g is not None)

    return gradcheck(
        gradients,
        (*tensors, *grads),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        fast_mode=fast_mode,
        masked=masked,
    )


def _random_gradients(outputs: Sequence[Tensor], noncontiguous: bool) -> tuple[Tensor, ...]:
    """Fixed random numbers in [-1, 1], in the shapes and dtypes of `outputs`."""
    rng = np.random.default_rng(0)
    grads = []
    for output in outputs:
        shape = (*output.shape, 2) if noncontiguous else tuple(output.shape)
        g = tensor(rng.uniform(-1, 1, shape), dtype=output.dtype, device=output.device)
        grads.append((g[..., 0] if noncontiguous else g).requires_grad_())
    return tuple(grads)


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _requires_grad(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _differentiable(value: Any) -> tuple[Tensor, ...]:
    return tuple(t for t in _as_tuple(value) if _requires_grad(t))


def _array(t: Tensor) -> Array:
    """The values, flat and in double precision; a copy, as the tensor may be moved later."""
    array: Array = t.detach().clone().cpu().double().numpy().reshape(-1)
    return array


def _check(
    func: Func, inputs: tuple[Any, ...], settings: _Settings, check_undefined_grad: bool,
    check_batched_grad: bool,
) -> None:  # fmt: skip
    _compare(func, inputs, settings)
    # A function without differentiable outputs has nothing more to check: its slope is zero.
    if differentiable := _differentiable(func(*inputs)):
        if check_batched_grad:
            _check_several_at_once(differentiable, inputs)
        _check_multiplies_by_gradient(differentiable, inputs)
        if check_undefined_grad:
            _check_undefined_gradients(func, inputs)


def _check_inputs(inputs: tuple[Any, ...]) -> None:
    for i, t in enumerate(inputs):
        if not _requires_grad(t):
            continue
        if t.dtype != float64:
            warnings.warn(
                f"Input #{i} requires gradient and is not a double precision floating point or "
                "complex. This check will likely fail if all the inputs are not of double "
                "precision floating point or complex. ",
                stacklevel=4,
            )
        if any(stride == 0 and size > 1 for stride, size in zip(t.stride(), t.shape, strict=True)):
            raise RuntimeError(
                f"The {i}th input has a dimension with stride 0. gradcheck only supports inputs "
                "that are non-overlapping to be able to compute the numerical gradients "
                "correctly. You should call .contiguous on the input before passing it to "
                "gradcheck."
            )
    if not any(map(_requires_grad, inputs)):
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, "
            "but none of them have requires_grad=True."
        )


def _compare(func: Func, inputs: tuple[Any, ...], settings: _Settings) -> None:
    """Jacobians by backward and by differences, or random projections of them, are close."""
    points = [t for t in inputs if _requires_grad(t)]
    outputs = _as_tuple(func(*inputs))
    checked = [k for k, output in enumerate(outputs) if _requires_grad(output)]
    if not checked:
        _check_slope_is_zero(func, inputs, outputs, settings)
        return
    project = _Projection(points, [outputs[k] for k in checked]) if settings.fast_mode else None
    numerical = [
        _numerical(func, inputs, point, checked, settings.eps, project.u[j] if project else None)
        for j, point in enumerate(points)
    ]
    for i, k in enumerate(checked):
        analytical = _analytical(outputs[k], points, settings, project.v[i] if project else None)
        for j, backward in enumerate(analytical):
            if not backward.size:
                continue
            differences = numerical[j][i]
            atol = settings.atol
            if project is not None:
                differences = differences @ project.v[i]
                backward = backward[:, 0] @ project.u[j]
                atol *= float(project.u[j].sum() * project.v[i].sum())
            if not np.allclose(backward, differences, settings.rtol, atol):
                message = _mismatch(i, j, differences, backward)
                if project is not None:
                    message += _slow_report(func, inputs, outputs[k], k, j, settings)
                raise GradcheckError(message)


def _compare_forward(func: Func, inputs: tuple[Any, ...], settings: _Settings) -> None:
    """Jacobians by tangents and by differences are close; with `fast_mode`, along one random direction."""
    points = [t for t in inputs if _requires_grad(t)]
    outputs = _as_tuple(func(*inputs))
    checked = [k for k, t in enumerate(outputs) if isinstance(t, Tensor) and t.is_floating_point()]
    project = _Projection(points, [outputs[k] for k in checked]) if settings.fast_mode else None
    for j, point in enumerate(points):
        u = project.u[j] if project else None
        numerical = _numerical(func, inputs, point, checked, settings.eps, u)
        directions = np.eye(point.numel()) if u is None else u[None]
        columns = [_pushed(func, inputs, point, direction, checked) for direction in directions]
        for i in range(len(checked)):
            tangents = np.array([column[i] for column in columns]).reshape(numerical[i].shape)
            if not np.allclose(tangents, numerical[i], settings.rtol, settings.atol):
                raise GradcheckError(
                    f"Jacobian computed with forward mode mismatch for output {i} with respect to input {j},\n"
                    f"numerical:{numerical[i]}\nanalytical:{tangents}\n"
                )


def _pushed(
    func: Func, inputs: tuple[Any, ...], point: Tensor, direction: Array, checked: Sequence[int]
) -> list[Array]:
    """The tangents of outputs as one input moves."""
    level = DualLevel()
    along = tensor(direction.reshape(tuple(point.shape)), dtype=point.dtype, device=point.device)
    outputs = _as_tuple(func(*[level.made_of(t, along) if t is point else t for t in inputs]))
    found = []
    for k in checked:
        tangent = level.tangent(outputs[k])
        found.append(np.zeros(outputs[k].numel()) if tangent is None else _array(tangent))
    return found


class _Projection:
    """Random unit vectors, one for each input and one for each output."""

    def __init__(self, points: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        rng = np.random.default_rng(0)

        def unit(size: int) -> Array:
            vector = rng.uniform(size=size)
            return vector / (np.linalg.norm(vector) or 1.0)

        self.u = [unit(t.numel()) for t in points]
        self.v = [unit(t.numel()) for t in outputs]


def _numerical(
    func: Func,
    inputs: tuple[Any, ...],
    point: Tensor,
    checked: Sequence[int],
    eps: float,
    u: Array | None = None,
) -> list[Array]:
    """The Jacobian of each checked output by central differences, a row for each input element.

    With `u`, the one row that is their sum weighted with it, in one dimension.
    """
    data = point.data
    if u is not None:
        return _slopes(func, inputs, data, u.reshape(tuple(point.shape)), checked, eps)
    rows = [
        _slopes(func, inputs, data[index], 1.0, checked, eps)
        for index in itertools.product(*map(range, point.shape))
    ]
    return [np.array([row[i] for row in rows]) for i in range(len(checked))]


def _slopes(
    func: Func,
    inputs: tuple[Any, ...],
    entry: Tensor,
    direction: Any,
    checked: Sequence[int],
    eps: float,
) -> list[Array]:
    """The derivatives of the outputs as `entry` moves; it is moved back."""
    original = entry.clone()
    delta = tensor(eps * direction, dtype=entry.dtype, device=entry.device)
    try:
        entry.copy_(original - delta)
        below = _values(func, inputs, checked)
        entry.copy_(original + delta)
        above = _values(func, inputs, checked)
    finally:
        entry.copy_(original)
    slopes = []
    for (shape, dtype, low), (shape_above, dtype_above, high) in zip(below, above, strict=True):
        for what, one, other in (
            ("shape", shape, shape_above),
            ("dtype", dtype, dtype_above),
        ):
            if one != other:
                raise AssertionError(
                    f"Expected `func` to return outputs with the same {what} when inputs are "
                    f"perturbed by {eps}, but got: {what}s {one} and {other}."
                )
        slopes.append((high - low) / (2 * eps))
    return slopes


def _values(
    func: Func, inputs: tuple[Any, ...], checked: Sequence[int]
) -> list[tuple[Any, Any, Array]]:
    outputs = _as_tuple(func(*inputs))
    return [(outputs[k].shape, outputs[k].dtype, _array(outputs[k])) for k in checked]


def _analytical(
    output: Tensor, points: Sequence[Tensor], settings: _Settings, v: Array | None = None
) -> list[Array]:
    """The Jacobian with respect to each point by backward, a column for each output element.

    With `v`, the one column that is their sum weighted with it.
    """
    weights = np.eye(output.numel()) if v is None else v[None, :]
    first, again = (_columns(output, points, weights, settings) for _ in range(2))
    for one, other in zip(first, again, strict=True):
        if one.size and np.abs(one - other).max() > settings.nondet_tol:
            raise GradcheckError(
                "Backward is not reentrant, i.e., running backward with same input and "
                "grad_output multiple times gives different values, although analytical gradient "
                "matches numerical gradient."
                f"The tolerance for nondeterminism was {settings.nondet_tol}."
                "\n\nNOTE: If your op relies on non-deterministic operations, call "
                "gradcheck/gradgradcheck with `nondet_tol=<tol>` as a keyword argument."
            )
    return first


def _columns(
    output: Tensor, points: Sequence[Tensor], weights: Array, settings: _Settings
) -> list[Array]:
    """One backward for each row of `weights`; its gradients are a column for each point."""
    columns = [np.zeros((point.numel(), len(weights))) for point in points]
    for k, row in enumerate(weights):
        vector = tensor(row.reshape(tuple(output.shape)), dtype=output.dtype, device=output.device)
        grads = grad(output, list(points), vector, retain_graph=True, allow_unused=True)
        for g, point, column in zip(grads, points, columns, strict=True):
            if g is None:
                continue
            if g.shape != point.shape:
                raise GradcheckError("Analytical gradient has incorrect size")
            if settings.check_grad_dtypes and g.dtype != point.dtype:
                raise GradcheckError("Gradient has dtype mismatch")
            column[:, k] = _array(g)
    return columns


def _mismatch(i: int, j: int, numerical: Any, analytical: Any) -> str:
    return (
        f"Jacobian mismatch for output {i} with respect to input {j},\n"
        f"numerical:{tensor(numerical)}\nanalytical:{tensor(analytical)}\n"
    )


def _slow_report(
    func: Func, inputs: tuple[Any, ...], output: Tensor, k: int, j: int, settings: _Settings
) -> str:
    """What the whole Jacobians are, where projections of them differ."""
    points = [t for t in inputs if _requires_grad(t)]
    (numerical,) = _numerical(func, inputs, points[j], [k], settings.eps)
    analytical = _analytical(output, points, settings)[j]
    message = (
        "\nThe above quantities relating the numerical and analytical jacobians are computed \n"
        "in fast mode. See: https://github.com/pytorch/pytorch/issues/53876 for more background \n"
        "about fast mode. Below, we recompute numerical and analytical jacobians in slow mode:\n\n"
        f"Numerical:\n {tensor(numerical)}\nAnalytical:\n{tensor(analytical)}\n\n"
        "The max per-element difference (slow mode) is: "
        f"{np.abs(numerical - analytical).max()}.\n"
    )
    if np.allclose(analytical, numerical, settings.rtol, settings.atol):
        message += (
            "Fast gradcheck failed but element-wise differences are small. This means that the\n"
            "test might've passed in slow_mode!\n\nCall gradcheck/gradgradcheck with "
            "`fast_mode=False` as a keyword argument."
        )
    return message


def _check_slope_is_zero(
    func: Func, inputs: tuple[Any, ...], outputs: tuple[Any, ...], settings: _Settings
) -> None:
    """Outputs that ask for no gradient do not depend on the inputs that require one."""
    floating = [k for k, o in enumerate(outputs) if isinstance(o, Tensor) and o.is_floating_point()]
    for point in filter(_requires_grad, inputs):
        for slopes in _numerical(func, inputs, point, floating, settings.eps):
            if np.any(slopes != 0):
                raise GradcheckError("Numerical gradient for function expected to be zero")


def _check_multiplies_by_gradient(outputs: tuple[Tensor, ...], inputs: tuple[Any, ...]) -> None:
    """A gradient of zeros gives zeros, of the inputs' dtypes, devices and shapes."""
    points = [t for t in inputs if _requires_grad(t)]
    zeros = [zeros_like(output) for output in outputs]
    grads = grad(outputs, points, zeros, allow_unused=True)
    for g, point in zip(grads, points, strict=True):
        if g is None:
            continue
        if np.any(_array(g) != 0):
            raise GradcheckError("backward not multiplied by grad_output")
        for what, wanted in (
            ("type", g.dtype == point.dtype),
            ("device", g.device == point.device),
            ("size", g.shape == point.shape),
        ):
            if not wanted:
                raise GradcheckError(f"grad is incorrect {what}")


FAILED_BATCHED_GRAD_MSG = """
gradcheck or gradgradcheck failed while testing batched gradient computation: gradients of several vectors
at once, as autograd.grad computes them with is_grads_batched=True and func.vmap does, are not those of each.
Functions that look at the values of their gradients (item(), if) have none.
To skip this check, call gradcheck with check_batched_grad=False.
"""


def _check_several_at_once(outputs: tuple[Tensor, ...], inputs: tuple[Any, ...]) -> None:
    points = [t for t in inputs if _requires_grad(t)]
    for i, output in enumerate(outputs):
        vectors = [randn_like(output.detach()) for _ in range(2)]
        each = [
            grad(output, points, vector, retain_graph=True, allow_unused=True) for vector in vectors
        ]
        try:
            together = grad(
                output, points, stack(vectors), retain_graph=True, allow_unused=True, is_grads_batched=True,
            )  # fmt: skip
        except RuntimeError as error:
            raise GradcheckError(
                f"While computing batched gradients, got: {error}\n\n{FAILED_BATCHED_GRAD_MSG}"
            ) from error
        for j, (found, *wanted) in enumerate(zip(together, *each, strict=True)):
            zeros = zeros_like(points[j].detach())
            expected = stack([zeros if g is None else g for g in wanted])
            found = zeros.expand(expected.shape) if found is None else found
            if not np.allclose(_array(found), _array(expected)):
                raise GradcheckError(
                    f"For output {i} and input {j}:\n\n{FAILED_BATCHED_GRAD_MSG}\n\nGot:\n{found}\n\n"
                    f"Expected:\n{expected}"
                )


class _Undefined(Function):
    """Identity whose backward gives no gradient at all."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> None:
        return None


_UNDEFINED_NOTE = (
    'Please look at "Notes about undefined output gradients" in "tools/autograd/derivatives.yaml"'
)


def _check_undefined_gradients(func: Func, inputs: tuple[Any, ...]) -> None:
    """Gradients that are not there, of all outputs or of one of them, count as zeros."""
    points = [t for t in inputs if _requires_grad(t)]
    count = len(_differentiable(func(*inputs)))
    undefined = [set(range(count)), *({i} for i in range(count) if count > 1)]
    for missing in undefined:
        outputs = [
            _Undefined.apply(output) if i in missing else output
            for i, output in enumerate(_differentiable(func(*inputs)))
        ]
        zeros = [zeros_like(output) for output in outputs]
        try:
            grads = grad(outputs, points, zeros, allow_unused=True)
        except RuntimeError as error:
            raise GradcheckError(
                f"Expected backward function to handle undefined output grads. {_UNDEFINED_NOTE}"
            ) from error
        if any(g is not None and np.any(_array(g) != 0) for g in grads):
            raise GradcheckError(
                "Expected all input grads to be undefined or zero when all output grads are "
                f"undefined or zero. {_UNDEFINED_NOTE}"
            )
