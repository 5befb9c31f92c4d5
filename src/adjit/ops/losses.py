"""Losses. Each is one op that ends in its reduction, with PyTorch's name in the graph."""

from __future__ import annotations

import math

import numpy as np

from .. import dtypes
from ..graph.batching import Batch, folded, unfolded
from ..graph.elementwise import elementwise
from ..graph.launch import launch
from ..graph.normalized import normalizes_first
from ..graph.operation import operation
from ..graph.primitives import NO_AXES, filled
from ..graph.record import no_gradient, plain_number
from ..kernels.ops import losses as kernels
from ..kernels.ops import softmax as row_kernels
from ..shapes import Shape, broadcast_shapes, check_fits, numel
from ..tensor import Tensor
from .layouts import laid_alike, put_back
from .reduce import GRAIN
from .softmax import log_softmax

REDUCTIONS = ("none", "mean", "sum")


def check_reduction(reduction: str) -> None:
    """The name must be known."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"{reduction} is not a valid value for reduction")


def reduced(losses: Tensor, reduction: str) -> Tensor:
    """All losses, their mean or their sum."""
    return losses if reduction == "none" else getattr(losses, reduction)()


def share_of(g: Tensor, shape: Shape, reduction: str) -> Tensor:
    """The gradient of each loss, from that of the reduced one; to be broadcast to `shape`."""
    return g / max(numel(shape), 1) if reduction == "mean" else g


def check_floating(name: str, *tensors: Tensor) -> None:
    """Losses are computed in floating point."""
    kind = dtypes.result_type(*tensors)
    if not kind.is_floating_point:
        raise NotImplementedError(f"\"{name}_cpu\" not implemented for '{kind.legacy}'")


# ---------------------------------------------------------------- differences


@elementwise(ref=lambda x, y: (x - y) ** 2)
def squared_error(x, y):  # type: ignore[no-untyped-def]
    """The square of the difference."""
    d = x - y
    return d * d


@squared_error.vjp
def _(g, x, y):  # type: ignore[no-untyped-def]
    gx = 2 * g * (x - y)
    return gx, -gx


@operation("MseLossBackward0")
def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """The squares of `input - target`, their mean or their sum."""
    check_reduction(reduction)
    check_floating("mse", input, target)
    return reduced(squared_error(input, target), reduction)


@mse_loss.vjp
def _(g, input, target, reduction):  # type: ignore[no-untyped-def]
    shape = broadcast_shapes(input.shape, target.shape)
    gx = (input - target) * (share_of(g, shape, reduction) * 2)
    return gx, -gx


mse_loss.batched_as_body()


def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """The sizes of `input - target`, their mean or their sum."""
    check_reduction(reduction)
    return reduced((input - target).abs(), reduction)


@elementwise(
    ref=lambda x, y, beta=1.0: np.where(
        abs(x - y) < beta, 0.5 * (x - y) ** 2 / beta, abs(x - y) - 0.5 * beta
    )
)
def smooth_absolute_error(x, y, *, beta=1.0):  # type: ignore[no-untyped-def]
    """The size of the difference, a parabola where it is below beta."""
    d = abs(x - y)
    return 0.5 * d * d / beta if d < beta else d - 0.5 * beta


@smooth_absolute_error.vjp
def _(g, x, y, beta):  # type: ignore[no-untyped-def]
    d = x - y
    sign = 1 if d > 0 else (-1 if d < 0 else d)  # of NaN, NaN
    gx = g * d / beta if abs(d) < beta else g * sign
    return gx, -gx


@operation("SmoothL1LossBackward0")
def smooth_l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """The sizes of `input - target`, parabolas below `beta`; their mean or their sum."""
    check_reduction(reduction)
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    check_floating("smooth_l1", input, target)
    if beta == 0:
        return reduced((input - target).abs(), reduction)
    return reduced(smooth_absolute_error(input, target, beta=beta), reduction)


@smooth_l1_loss.vjp
def _(g, input, target, reduction, beta):  # type: ignore[no-untyped-def]
    d = input - target
    gx = (d / beta).clamp(-1, 1) if beta else d.sign()
    gx = gx * share_of(g, d.shape, reduction)
    return gx, -gx


smooth_l1_loss.batched_as_body()


@elementwise(
    ref=lambda x, y, delta=1.0: np.where(
        abs(x - y) < delta, 0.5 * (x - y) ** 2, delta * (abs(x - y) - 0.5 * delta)
    )
)
def huber_error(x, y, *, delta=1.0):  # type: ignore[no-untyped-def]
    """Half the squared difference, a straight line where its size is above delta."""
    d = abs(x - y)
    return 0.5 * d * d if d < delta else delta * (d - 0.5 * delta)


@huber_error.vjp
def _(g, x, y, delta):  # type: ignore[no-untyped-def]
    d = x - y
    sign = 1 if d > 0 else (-1 if d < 0 else d)
    gx = g * d if abs(d) < delta else g * delta * sign
    return gx, -gx


@operation("HuberLossBackward0")
def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0
) -> Tensor:
    """Half the squares of `input - target`, lines beyond `delta`; their mean or sum. The input's dtype."""
    check_reduction(reduction)
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    check_floating("huber", input, target)
    if not input.dtype.is_floating_point:
        raise RuntimeError(
            f"result type {target.dtype.legacy} can't be cast to the desired output type "
            f"{input.dtype.legacy}"
        )
    return reduced(huber_error(input, target, delta=delta).to(input.dtype), reduction)


@huber_loss.vjp
def _(g, input, target, reduction, delta):  # type: ignore[no-untyped-def]
    d = input - target
    gx = d.clamp(-delta, delta) * share_of(g, d.shape, reduction)
    return gx, -gx


huber_loss.batched_as_body()


# ---------------------------------------------------------------- probabilities


def no_probability(status: tuple[int, ...]) -> Exception:
    """The error for what lies outside of [0, 1], or is NaN."""
    name = "input" if status[1] else "target"
    return RuntimeError(f"all elements of {name} should be between 0 and 1")


@operation("BinaryCrossEntropyBackward0")
def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """`-(target * log(input) + (1 - target) * log(1 - input))`, logarithms at least -100."""
    check_reduction(reduction)
    if target.dtype is not input.dtype:
        raise RuntimeError(f"Found dtype {target.dtype.legacy} but expected {input.dtype.legacy}")
    check_floating("binary_cross_entropy", input)
    if weight is not None:
        check_fits(input.shape, weight.shape)
    operands, axes = laid_alike(input, target)
    found = launch(
        kernels.binary_cross_entropy, operands, [(operands[0].shape, input.dtype)],
        bind={"T": input.dtype}, n=input.numel(), grain=GRAIN // 8, fallible=no_probability,
    )  # fmt: skip
    losses = put_back(found, axes)
    return reduced(losses if weight is None else losses * weight, reduction)


@binary_cross_entropy.vjp
def _(g, input, target, weight, reduction):  # type: ignore[no-untyped-def]
    g = share_of(g, input.shape, reduction)
    g = g if weight is None else g * weight
    gx = g * (input - target) / ((1 - input) * input).clamp(min=1e-12)
    gy = g * ((1 - input).log().clamp(min=-100) - input.log().clamp(min=-100))
    return (gx, gy) if weight is None else (gx, gy, None)


@binary_cross_entropy.batched
def _(batch: Batch, input: Tensor, target: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    losses = batch.wrapped(
        binary_cross_entropy(batch.full(input), batch.full(target), None, "none")
    )
    return reduced(losses if weight is None else losses * weight, reduction)


@elementwise(ref=lambda x, y, f: (1 - y) * x + (1 + (f - 1) * y) * np.logaddexp(0, -x))
def logit_cross_entropy(x, y, f):  # type: ignore[no-untyped-def]
    """The binary cross entropy of sigmoid(x), the positive share times f."""
    below = -x if x < 0 else 0.0
    share = 1 if f == 1 else 1 + (f - 1) * y
    return (1 - y) * x + share * (math.log1p(math.exp(-abs(x))) + below)


logit_cross_entropy.laid_by = (1, 0, 2)


@logit_cross_entropy.vjp
def _(g, x, y, f):  # type: ignore[no-untyped-def]
    tail = math.exp(-abs(x))
    near = 1 / (1 + tail)
    far = tail / (1 + tail)
    chance = far if x < 0 else near
    rest = near if x < 0 else far
    below = -x if x < 0 else 0.0
    soft = math.log1p(tail) + below
    return g * ((1 - y) * chance - f * y * rest), g * ((f - 1) * soft - x), g * y * soft


@operation("BinaryCrossEntropyWithLogitsBackward0")
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The binary cross entropy of `sigmoid(input)`, without overflow, in the dtype of the target."""
    check_reduction(reduction)
    if not input.dtype.is_floating_point:
        raise NotImplementedError(f"\"log_sigmoid_cpu\" not implemented for '{input.dtype.legacy}'")
    if not target.dtype.is_floating_point:
        raise RuntimeError(
            f"result type {input.dtype.legacy} can't be cast to the desired output type "
            f"{target.dtype.legacy}"
        )
    for factor in (weight, pos_weight):
        if factor is not None:
            check_fits(input.shape, factor.shape)
    losses = logit_cross_entropy(input, target, 1 if pos_weight is None else pos_weight)
    return reduced((losses if weight is None else losses * weight).to(target.dtype), reduction)


@binary_cross_entropy_with_logits.vjp
def _(g, input, target, weight, pos_weight, reduction):  # type: ignore[no-untyped-def]
    g = share_of(g, input.shape, reduction)
    g = g if weight is None else g * weight
    chance, positive = input.sigmoid(), target
    if pos_weight is not None:
        chance, positive = chance * (1 + (pos_weight - 1) * target), pos_weight * target
    soft = (-input.abs()).exp().log1p() + (-input).clamp(min=0)
    gx = g * (chance - positive)
    gy = -g * input if pos_weight is None else g * ((pos_weight - 1) * soft - input)
    grads = [gx, gy]
    if weight is not None:
        grads.append(None)
    if pos_weight is not None:
        grads.append(g * target * soft)
    return tuple(grads)


binary_cross_entropy_with_logits.batched_as_body()


def kl_div(
    input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    """`target * (log(target) - input)`; 0 where the target is 0."""
    check_reduction(reduction)
    if not (input.dtype.is_floating_point and target.dtype.is_floating_point):
        raise RuntimeError("kl_div: Integral inputs not supported.")
    if log_target:
        return reduced(target.exp() * (target - input), reduction)
    return reduced(target.xlogy(target) - target * input, reduction)


# ---------------------------------------------------------------- classes


def class_sizes(x: Tensor) -> tuple[int, int, int]:
    """Samples, classes and places of an input (C), (N, C) or (N, C, ...)."""
    if x.ndim == 1:
        return 1, x.shape[0], 1
    return x.shape[0], x.shape[1], numel(x.shape[2:])


def check_classes(x: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """Shapes and dtypes of a loss over class indices; gives the target as int64."""
    if x.ndim < 1:
        raise ValueError(f"Expected 1 or more dimensions (got {x.ndim})")
    if x.ndim != 1 and (target.ndim == 0 or x.shape[0] != target.shape[0]):
        got = target.shape[0] if target.ndim else 1
        raise ValueError(
            f"Expected input batch_size ({x.shape[0]}) to match target batch_size ({got})."
        )
    if x.ndim <= 2:
        if target.ndim > 1:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        if x.ndim == 1 and target.ndim == 1 and target.shape[0] != 1:
            raise RuntimeError(
                f"size mismatch (got input: {list(x.shape)}, target: {list(target.shape)})"
            )
    elif x.ndim == 4:
        if target.ndim != 3:
            raise RuntimeError(
                "only batches of spatial targets supported (3D tensors) but got targets of "
                f"dimension: {target.ndim}"
            )
        if target.shape[1:] != x.shape[2:]:
            raise RuntimeError(
                f"size mismatch (got input: {list(x.shape)} , target: {list(target.shape)}"
            )
    else:
        wanted = [x.shape[0], *x.shape[2:]]
        if list(target.shape) != wanted:
            raise RuntimeError(f"Expected target size {wanted}, got {list(target.shape)}")
    classes = class_sizes(x)[1]
    if weight is not None:
        if weight.shape != (classes,):
            raise RuntimeError(
                f"weight tensor should be defined either for all {classes} classes or no classes "
                f"but got weight tensor of shape: {list(weight.shape)}"
            )
        if weight.dtype is not x.dtype:
            raise RuntimeError(
                f"expected scalar type {x.dtype.legacy} but found {weight.dtype.legacy}"
            )
    if target.dtype not in (dtypes.int64, dtypes.uint8):
        raise RuntimeError(
            f"expected target dtype to be Long or Byte, but got {target.dtype.legacy}"
        )
    if target.dtype is dtypes.int64 and target._spec.contiguous:
        return target
    return target.detach().to(dtypes.int64).contiguous()


def out_of_bounds(status: tuple[int, ...]) -> Exception:
    """The error for a target that is no class."""
    return IndexError(f"Target {status[1]} is out of bounds.")


@operation("NllLossBackward0", differentiable=(0,))
def picked(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignored: int,
    reduction: str,
    shape: Shape,
) -> tuple[Tensor, Tensor, Tensor]:
    """The losses, the weight of each, and what a loss is divided by."""
    samples, classes, places = class_sizes(x)
    losses, used = launch(
        kernels.pick_class,
        (x.contiguous(), target.contiguous(), x if weight is None else weight.contiguous()),
        [(target.shape, x.dtype), (target.shape, x.dtype)], bind={"T": x.dtype},
        words=(classes, places, ignored, weight is not None), n=samples * places, grain=4096,
        fallible=out_of_bounds,
    )  # fmt: skip
    if reduction == "none":
        return losses, used, used
    if reduction == "sum":
        return losses.sum(), used, used
    total = used.sum()
    return losses.sum() / total, used, total


picked.linear("x")


@picked.vjp
def _(g, target, weight, outs, ignored, reduction, shape, needs):  # type: ignore[no-untyped-def]
    if needs[-1] and weight is not None:
        raise no_gradient("nll_loss2d_forward" if len(shape) > 2 else "nll_loss_forward", "weight")
    scale = g * outs[1]
    if reduction == "mean":
        scale = scale / outs[2]
    gx = spread_class(scale, target, ignored, shape)
    return (gx, None) if weight is None else (gx, None, None)


@picked.batched
def _(
    batch: Batch, x: Tensor, target: Tensor, weight: Tensor | None, ignored: int, reduction: str
) -> tuple[Tensor, Tensor, Tensor]:
    size, rows, classes = batch.size, batch.full(x), batch.full(target)
    if x.ndim > 1:
        rows, classes = folded(rows), folded(classes)
    shared = None if batch.has(weight) else weight
    found = picked(rows, classes, shared, ignored, "none", rows.shape)[:2]
    losses, used = (batch.wrapped(t.reshape(size, *target.shape)) for t in found)
    if weight is not None and shared is None:
        factors = weight[target.masked_fill(target == ignored, 0)]
        losses, used = losses * factors, used * factors
    if reduction == "none":
        return losses, used, used
    total = used.sum()
    return losses.sum() / total if reduction == "mean" else losses.sum(), used, total


@operation("NllLossBackwardBackward0")
def spread_class(values: Tensor, target: Tensor, ignored: int, shape: Shape) -> Tensor:
    """Zeros, with `-values` at the targets' classes."""
    places = numel(shape[2:]) if len(shape) > 1 else 1
    classes = shape[1] if len(shape) > 1 else shape[0]
    out: Tensor = launch(
        kernels.put_class, (values.contiguous(), target.contiguous()), [(shape, values.dtype)],
        bind={"T": values.dtype}, words=(classes, places, ignored), n=target.numel(),
        grain=max(1, GRAIN // max(classes, 1)),
    )  # fmt: skip
    return out


spread_class.linear("values")


picked.straight = spread_class.backward_name


@spread_class.vjp
def _(g, target, ignored, shape):  # type: ignore[no-untyped-def]
    return picked(g, target, None, ignored, "none", shape)[0], None


@spread_class.batched
def _(batch: Batch, values: Tensor, target: Tensor, ignored: int, shape: Shape) -> Tensor:
    size, given, classes = batch.size, batch.full(values), batch.full(target)
    whole = (size, *shape)
    if len(shape) > 1:
        given, classes, whole = folded(given), folded(classes), (size * shape[0], *shape[1:])
    return batch.wrapped(spread_class(given, classes, ignored, whole).reshape(size, *shape))


@normalizes_first
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """`-input` at the targets' classes, weighted; the mean is that of the weights."""
    check_reduction(reduction)
    target = check_classes(input, target, weight)
    if not input.dtype.is_floating_point:
        frame = "nll_loss_out_frame" if input.ndim < 3 else "nll_loss2d_forward_out_frame"
        raise NotImplementedError(f"\"{frame}\" not implemented for '{input.dtype.legacy}'")
    return picked.on(input, target, weight, ignore_index, reduction, input.shape)


@operation("NllLossBackward0", differentiable=(0,))
def class_cross_entropy(
    x: Tensor, target: Tensor, ignored: int, reduction: str
) -> tuple[Tensor, Tensor, Tensor]:
    """The losses of logits, the logsumexp of each row, and what each loss is multiplied by.

    Losses that stay apart are multiplied by nothing: there the last is the logsumexp again, as the losses
    themselves may be written into.
    """
    wanted = check_classes(x, target, None).reshape(-1)
    x = class_rows(x)
    rows, classes = x.shape
    kind = x.dtype
    grain = max(1, GRAIN // max(4 * classes, 1))
    steps = [(row_kernels.cross_entropy_rows, rows, grain)]
    if reduction != "none":
        steps.append((row_kernels.cross_entropy_total, 1, 1))
    losses, logs, loss, share = launch(
        steps, (x.contiguous(), wanted),
        [((rows,), kind), ((rows,), kind), ((), kind), ((), kind)],
        bind={"T": kind}, words=(classes, ignored, rows, reduction == "mean"),
        fallible=out_of_bounds,
    )  # fmt: skip
    if reduction == "none":
        return losses.reshape(target.shape), logs, logs
    return loss, logs, share


@class_cross_entropy.vjp
def _(g, x, target, outs, ignored, reduction):  # type: ignore[no-untyped-def]
    rows, wanted = class_rows(x), check_classes(x, target, None).reshape(-1)
    scale = g.reshape(-1) if reduction == "none" else (g * outs[2]).expand(wanted.shape)
    gx = cross_entropy_backward(scale, rows, wanted, outs[1], ignored)
    if x.ndim > 2:
        gx = gx.view(*target.shape, x.shape[1]).movedim(-1, 1)
    return gx.view(x.shape) if x.ndim < 2 else gx, None


@class_cross_entropy.batched
def _(  # type: ignore[no-untyped-def]
    batch: Batch, x: Tensor, target: Tensor, ignored: int, reduction: str
):
    rows, classes = batch.full(x), batch.full(target)
    if x.ndim > 1:
        rows, classes = folded(rows), folded(classes)
    losses, logs, _ = class_cross_entropy(rows, classes, ignored, "none")
    made = batch.wrapped(losses.reshape(batch.size, *target.shape))
    logs = batch.wrapped(logs.reshape(batch.size, -1))
    if reduction == "none":
        return made, logs, logs
    if reduction == "sum":
        return made.sum(), logs, filled(NO_AXES, 1, x.dtype, x.device)
    share = 1 / (target != ignored).sum().to(x.dtype)
    return made.sum() * share, logs, share


def class_rows(x: Tensor) -> Tensor:
    """Logits (C), (N, C) or (N, C, ...) as rows of C."""
    return x.movedim(1, -1).reshape(-1, x.shape[1]) if x.ndim > 1 else x.reshape(1, -1)


@operation("LogSoftmaxBackwardDataBackward0")
def cross_entropy_backward(
    scale: Tensor, x: Tensor, target: Tensor, logs: Tensor, ignored: int
) -> Tensor:
    """`scale * (softmax(x) - one at the target)` for each row."""
    rows, classes = x.shape
    out: Tensor = launch(
        row_kernels.cross_entropy_backward_rows,
        (scale, x.contiguous(), target.contiguous(), logs.contiguous()), [(x.shape, x.dtype)],
        bind={"T": x.dtype}, words=(classes, ignored, *scale._spec.strides), n=rows,
        grain=max(1, GRAIN // max(4 * classes, 1)),
    )  # fmt: skip
    return out


@cross_entropy_backward.vjp
def _(g, scale, x, target, ignored):  # type: ignore[no-untyped-def]
    counted = scale.masked_fill(target == ignored, 0).unsqueeze(1)
    share = x.softmax(1)
    mean = (share * g).sum(1, True)
    at_target = picked(g, target, None, ignored, "none", x.shape)[0]
    g_scale = mean.squeeze(1).masked_fill(target == ignored, 0) + at_target
    return g_scale, counted * share * (g - mean), None, None


@cross_entropy_backward.batched
def _(scale: Tensor, x: Tensor, target: Tensor, logs: Tensor, ignored: int) -> Tensor:
    given = [folded(t) for t in (scale, x, target, logs)]
    return unfolded(cross_entropy_backward(*given, ignored), x.shape[0])


@normalizes_first
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """`-log_softmax(input)` at the target: classes as indices, or as probabilities.

    Indices without weights and smoothing run as one kernel that never stores the softmax.
    """
    check_reduction(reduction)
    if label_smoothing.__class__ is not float:
        label_smoothing = plain_number(label_smoothing, "cross_entropy", "label_smoothing")
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    axis = 0 if input.ndim <= 1 else 1
    if target.shape == input.shape:
        if not target.dtype.is_floating_point:
            raise RuntimeError(
                "Expected floating point type for target with class probabilities, got "
                f"{target.dtype.legacy}"
            )
        if ignore_index >= 0:
            raise RuntimeError("ignore_index is not supported for floating point target")
        return soft_cross_entropy(input, target, weight, reduction, label_smoothing, axis)
    if not input.dtype.is_floating_point:
        return log_softmax(input, axis)
    if label_smoothing:
        return smoothed_cross_entropy(
            input, target, weight, ignore_index, reduction, label_smoothing, axis
        )
    if weight is not None or input.ndim == 0 or input.shape[axis] == 0:
        logs = log_softmax(input, axis)
        return nll_loss(logs, target, weight, ignore_index, reduction)
    return class_cross_entropy.on(input, target, ignore_index, reduction)


def soft_cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float, axis: int
) -> Tensor:
    """Cross-entropy against probabilities of the classes."""
    logs = log_softmax(x, axis)
    classes = x.shape[axis]
    if weight is not None and weight.shape != (classes,):
        raise RuntimeError(
            f"cross_entropy: weight tensor should be defined either for all {classes} classes or "
            f"no classes but got weight tensor of shape: {list(weight.shape)}"
        )
    if smoothing:
        target = target * (1 - smoothing) + smoothing / max(classes, 1)
    losses = logs * target
    if weight is not None:
        losses = losses * along(weight, axis, x.ndim)
    if reduction == "none":
        return -losses.sum(axis)
    total = -losses.sum()
    return total / (x.numel() / max(classes, 1)) if reduction == "mean" else total


def along(weight: Tensor, axis: int, ndim: int) -> Tensor:
    """A vector as a tensor of `ndim` axes, lying along one of them."""
    return weight.reshape([-1 if d == axis else 1 for d in range(ndim)])


def smoothed_cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignored: int,
    reduction: str,
    smoothing: float,
    axis: int,
) -> Tensor:
    """Cross-entropy against indices, a share of which is spread over all classes."""
    logs = log_softmax(x, axis)
    sharp = nll_loss(logs, target, weight, ignored, reduction)
    if not x.shape[axis]:
        return sharp  # there is no class to spread a share over
    weighted = logs if weight is None else logs * along(weight, axis, x.ndim)
    skipped = target == ignored
    smooth = (-weighted.sum(axis)).masked_fill(skipped, 0)
    if reduction != "none":
        smooth = smooth.sum()
    if reduction == "mean":
        counted = skipped.logical_not()
        if weight is None:
            smooth = smooth / counted.sum()
        else:
            places = target.masked_fill(skipped, 0).reshape(-1).to(dtypes.int64)
            smooth = smooth / (weight.index_select(0, places) * counted.reshape(-1)).sum()
    return sharp * (1 - smoothing) + smooth * (smoothing / x.shape[axis])
