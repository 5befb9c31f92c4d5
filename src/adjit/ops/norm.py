"""Normalisation over the last dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .. import dtypes, errors
from ..dtypes import dtype as DType
from ..graph.batching import Batch
from ..graph.composed import composed
from ..graph.export import export
from ..graph.launch import launch
from ..graph.normalized import normalizes_first
from ..graph.operation import operation
from ..graph.pushing import added
from ..kernels.ops import norm as kernels
from ..schedule.settle import float_word
from ..shapes import Shape, numel
from ..tensor import Tensor
from .layouts import reporting_c_order
from .reduce import GRAIN, SUM, fold

CHUNK_ROWS = 64  # rows whose part of the weight's gradient is summed in one place


@operation("NativeLayerNormBackward0", differentiable=(0,))
def layer_norm_rows(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, length: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalised rows of `length` elements, their means and the factors they were scaled by."""
    x = x.contiguous()
    rows = x.numel() // length if length else 0
    affine = 0 if weight is None else 1 if bias is None else 2
    given = [t.contiguous() if t is not None else x for t in (weight, bias)]
    return launch(
        kernels.layer_norm_rows, (x, *given),
        [(x.shape, x.dtype), ((rows,), x.dtype), ((rows,), x.dtype)], bind={"T": x.dtype},
        words=(length, affine), scalars=(float_word(eps),), n=rows,
        grain=max(1, GRAIN // max(4 * length, 1)),
    )  # fmt: skip


@layer_norm_rows.jvp
def _(t_x, t_weight, t_bias, x, weight, outs, length, eps):  # type: ignore[no-untyped-def]
    _, means, scales = outs
    moved = None
    if t_x is not None:  # the Jacobian of normalising is symmetric
        moved = layer_norm_backward(t_x, x, None, means, scales, length, eps)[0]
        moved = moved if weight is None else moved * weight
    if t_weight is not None:
        moved = added(moved, layer_norm_rows(x, None, None, length, eps)[0] * t_weight)
    return added(moved, t_bias).expand(x.shape)


@layer_norm_rows.vjp
def _(g, x, weight, outs, length, eps, needs):  # type: ignore[no-untyped-def]
    gx, gw, gb = layer_norm_backward(g, x, weight, outs[1], outs[2], length, eps)
    found = [gx]
    if weight is not None:
        found.append(gw.reshape(weight.shape))
    if len(needs) > len(found):
        found.append(gb.reshape(weight.shape))
    return tuple(found)


@layer_norm_rows.batched
def _(
    batch: Batch, x: Tensor, weight: Tensor | None, bias: Tensor | None, length: int, eps: float
) -> tuple[Tensor, ...]:
    shared = not (batch.has(weight) or batch.has(bias))
    given = (weight, bias) if shared else (None, None)
    out, means, scales = layer_norm_rows(batch.full(x), *given, length, eps)
    made = batch.wrapped(out)
    if not shared and weight is not None:
        made = made * weight if bias is None else made * weight + bias
    return made, *[batch.wrapped(t.reshape(batch.size, -1)) for t in (means, scales)]


@operation("NativeLayerNormBackwardBackward0", differentiable=(0, 1, 2))
def layer_norm_backward(
    upper: Tensor,
    x: Tensor,
    weight: Tensor | None,
    means: Tensor,
    scales: Tensor,
    length: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of the input, the weight and the bias."""
    rows = means.numel()
    chunks = -(-rows // CHUNK_ROWS)
    parts = ((chunks, length), x.dtype)
    tensors = [upper, x, means, scales, x if weight is None else weight]
    gx, gw, gb = launch(
        kernels.layer_norm_backward_rows, [t.contiguous() for t in tensors],
        [(x.shape, x.dtype), parts, parts], bind={"T": x.dtype},
        words=(length, rows, CHUNK_ROWS, weight is not None), n=chunks,
        grain=max(1, GRAIN // max(8 * CHUNK_ROWS * length, 1)),
    )  # fmt: skip
    return gx, fold(SUM, gw, (0,), False, x.dtype), fold(SUM, gb, (0,), False, x.dtype)


@layer_norm_backward.vjp
def _(gs, upper, x, weight, means, scales, length, eps):  # type: ignore[no-untyped-def]
    rows, shape = (means.numel(), length), x.shape
    flat = x.reshape(rows)
    grads = through_normalization(
        [None if v is None else v.reshape(rows if k == 0 else -1) for k, v in enumerate(gs)],
        upper.reshape(rows),
        flat,
        None if weight is None else weight.reshape(-1),
        projected=lambda t: layer_norm_backward(t, flat, None, means, scales, length, eps)[0],
        mean=lambda t: t.mean(1, True),
        total=lambda t: t.sum(0),
        eps=eps,
    )
    found = [None if t is None else t.reshape(shape) for t in grads[:2]]
    if weight is not None:
        found.append(None if grads[2] is None else grads[2].reshape(weight.shape))
    return (*found, None, None)


@layer_norm_backward.batched
def _(
    batch: Batch, upper: Tensor, x: Tensor, weight: Tensor | None, means: Tensor, scales: Tensor,
    length: int, eps: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    weighted = upper if weight is None else upper * weight.reshape(upper.shape[-weight.ndim :])
    rows = [batch.full(t).reshape(-1) for t in (means, scales)]
    gx = layer_norm_backward(batch.full(weighted), batch.full(x), None, *rows, length, eps)[0]
    each = upper.reshape(-1, length)
    normal = (x.reshape(-1, length) - means.reshape(-1, 1)) * scales.reshape(-1, 1)
    return batch.wrapped(gx), (each * normal).sum(0), each.sum(0)


def through_normalization(
    gs: Sequence[Tensor | None],
    upper: Tensor,
    x: Tensor,
    weight: Tensor | None,
    *,
    projected: Callable[[Tensor], Tensor],
    mean: Callable[[Tensor], Tensor],
    total: Callable[[Tensor], Tensor],
    eps: float,
) -> list[Tensor | None]:
    """How the gradients of a normalisation depend on `upper`, `x` and `weight`.

    With normal = (x - mean(x)) * scale and project(v) = v - mean(v) - normal * mean(v * normal),
    a map that is its own transpose, the gradients are gx = scale * project(upper * weight),
    gw = total(upper * normal), gb = total(upper). Means and scales are functions of x, and count
    as such. `projected` is scale * project; weights broadcast against x, as do gs[1] and gs[2].
    """
    v, v_weight, v_bias = gs
    centered = x - mean(x)
    scale = (mean(centered.square()) + eps).rsqrt()
    normal = centered * scale
    g_upper = g_x = g_weight = None
    through_normal = None
    if v is not None:
        weighted = upper if weight is None else upper * weight
        back = projected(v)
        g_upper = back if weight is None else back * weight
        g_weight = None if weight is None else total(back * upper)
        slope, tilt = mean(weighted * normal), mean(v * normal)
        through_normal = -scale * (v * slope + weighted * tilt)
        g_x = -scale * normal * mean(v * projected(weighted))
    if v_weight is not None:
        g_upper = add(g_upper, normal * v_weight)
        through_normal = add(through_normal, upper * v_weight)
    if v_bias is not None:
        g_upper = add(g_upper, v_bias.expand(x.shape))
    if through_normal is not None:
        g_x = add(g_x, projected(through_normal))
    return [g_upper, g_x, g_weight]


def add(a: Tensor | None, b: Tensor) -> Tensor:
    """A sum whose first term may be missing."""
    return b if a is None else a + b


def check_normalized_shape(
    x: Tensor, shape: Shape, weight: Tensor | None, bias: Tensor | None, gap: str = ", "
) -> None:
    """The last sizes of the input, and those of the parameters, must be what is normalised."""
    if not shape:
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least "
            "one element, but got normalized_shape = []"
        )
    for name, t in (("weight", weight), ("bias", bias)):
        if t is not None and t.shape != shape:
            raise RuntimeError(
                f"Expected {name} to be of same shape as normalized_shape, but got {name} of "
                f"shape {list(t.shape)} and normalized_shape = {list(shape)}"
            )
    if x.ndim < len(shape) or x.shape[x.ndim - len(shape) :] != shape:
        wanted = gap + ", ".join(map(str, shape))
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape [*{wanted}], but "
            f"got input of size{list(x.shape)}"
        )


def sizes_of(name: str, normalized_shape: Sequence[int]) -> Shape:
    """The normalised sizes as a tuple."""
    if isinstance(normalized_shape, int):
        raise TypeError(
            f"{name}(): argument 'normalized_shape' (position 2) must be tuple of ints, not int"
        )
    return tuple(int(n) for n in normalized_shape)


@export
@normalizes_first
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    """Normalise the last dimensions to mean 0 and variance 1, then scale and shift (Ba et al., 2016).

    Differentiable in `input`, `weight` and `bias`, any number of times.

    Args:
        input: (..., *normalized_shape), floating point.
        normalized_shape: the last sizes of `input`.
        weight, bias: of shape `normalized_shape`, or None.
        eps: added to the variance.
        cudnn_enable: accepted for PyTorch's sake.

    Raises:
        RuntimeError: if shapes or dtypes do not fit.

    Example:
        >>> adjit.layer_norm(adjit.tensor([[1., 2., 3.]]), (3,))
        tensor([[-1.2247,  0.0000,  1.2247]])
    """
    shape = sizes_of("layer_norm", normalized_shape)
    check_normalized_shape(input, shape, weight, bias)
    if not input.dtype.is_floating_point:
        raise NotImplementedError(
            f"\"LayerNormKernelImpl\" not implemented for '{input.dtype.legacy}'"
        )
    for t in (weight, bias):
        if t is not None and t.dtype is not input.dtype:
            raise RuntimeError(
                f"mixed dtype (CPU): expect parameter to have scalar type of {input.dtype.legacy}"
            )
    if weight is None and bias is not None:
        return layer_norm_rows(input, None, None, numel(shape), eps)[0] + bias
    return layer_norm_rows.on(input, weight, bias, numel(shape), eps)


@export
@composed
def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Divide the last dimensions by the root of their mean square, then scale (Zhang and Sennrich, 2019).

    Differentiable in `input` and `weight`.

    Args:
        input: (..., *normalized_shape), floating point.
        normalized_shape: the last sizes of `input`.
        weight: of shape `normalized_shape`, or None; one of another dtype warns.
        eps: added to the mean square; the dtype's machine epsilon unless given.

    Returns:
        A tensor of the shape and dtype of `input`.

    Example:
        >>> adjit.rms_norm(adjit.tensor([[3., 4.]]), (2,))
        tensor([[0.8485, 1.1314]])
    """
    shape = sizes_of("rms_norm", normalized_shape)
    check_normalized_shape(input, shape, weight, None, gap="")
    if not input.dtype.is_floating_point:
        raise NotImplementedError(f"\"rms_norm\" not implemented for '{input.dtype.legacy}'")
    eps = machine_epsilon(input.dtype) if eps is None else eps
    axes = tuple(range(input.ndim - len(shape), input.ndim))
    out = input * (input.square().mean(axes, True) + eps).rsqrt()
    if weight is not None:
        if weight.dtype is not input.dtype:
            errors.warn_once(
                f"Mismatch dtype between input and weight: input dtype = {input.dtype.row.c}, "
                f"weight dtype = {weight.dtype.row.c}, Cannot dispatch to fused implementation."
            )
        out = (out * weight).to(input.dtype)
    return reporting_c_order(out)


def machine_epsilon(kind: DType) -> float:
    """The distance from 1 to the next number."""
    return dtypes.finfo(kind).eps
