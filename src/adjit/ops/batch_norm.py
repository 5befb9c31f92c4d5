"""Batch normalisation, and what is made of it or like it: over instances, groups and neighbours."""

from __future__ import annotations

from collections.abc import Sequence

from .. import dtypes
from ..graph import write
from ..graph.batching import Batch, folded, unfolded
from ..graph.export import export
from ..graph.launch import launch
from ..graph.levels import level_of, tracers
from ..graph.node import Spec
from ..graph.normalized import normalizes_first
from ..graph.operation import operation
from ..graph.pushing import added
from ..graph.record import check_no_gradient
from ..graph.state import state
from ..kernels.ops import batch_norm as kernels
from ..schedule.settle import float_word
from ..shapes import Shape, numel
from ..tensor import Tensor
from ..unknown import cached
from . import layouts
from .norm import layer_norm_backward, layer_norm_rows, through_normalization
from .reduce import GRAIN, without_elements


def per_channel(values: Tensor, x: Tensor) -> Tensor:
    """One number for each channel, in a shape that broadcasts against (N, C, *)."""
    return values.reshape((-1, *[1] * (x.ndim - 2)))


def all_but_channels(x: Tensor) -> Shape:
    """The axes that a channel's statistics are taken over."""
    return (0, *range(2, x.ndim))


@operation("NativeBatchNormBackward0", differentiable=(0,))
def batch_norm_training(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    """Normalised channels, their means and the factors they were scaled by, new running ones."""
    means, scales, *running = moments(x, running_mean, running_var, momentum, eps)
    factor = scales if weight is None else scales * weight
    out = (x - per_channel(means, x)) * per_channel(factor, x)
    out = out if bias is None else out + per_channel(bias, x)
    return as_pytorch_lays_it(out), means, scales, *running


def as_pytorch_lays_it(out: Tensor) -> Tensor:
    """Images whose channels lie last report that; all else reports C order."""
    images = out.ndim > 3 and layouts.reports_channels_last(out._spec)
    return out if images else layouts.reporting_c_order(out)


def moments(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    """Means of the channels and the factors to scale them by, new running statistics: (C,) each."""
    at_end = layouts.channels_last(x) or numel(x.shape[2:]) == 1
    kind, images, channels, area = x.dtype, x.shape[0], x.shape[1], numel(x.shape[2:])
    tracked = running_mean is not None
    sizes: tuple[int, ...] = (images, channels, area)
    grain, scratch = max(1, GRAIN // max(4 * images * area, 1)), 0
    steps = [(kernels.moments_of_planes, channels, grain)]
    if at_end:
        step = kernels.rows_of_chunk(channels)
        chunks = -(-images * area // step)
        sizes = images * area, channels, step, chunks
        scratch = 2 * chunks * channels * kind.itemsize
        grain = max(1, GRAIN // max(4 * step * channels, 1))
        strips = -(-channels // kernels.STRIP)
        steps = [(kernels.moments_of_chunks, chunks, grain), (kernels.join_moments, strips, 1)]
    dense = layouts.in_memory(x, at_end)
    given = [dense if t is None else t.contiguous() for t in (running_mean, running_var)]
    statistics, running = ((channels,), kind), ((channels if tracked else 0,), kind)
    found: tuple[Tensor, ...] = launch(
        steps, (dense, *given), [statistics, statistics, running, running],
        bind={"T": kind, "A": dtypes.float64}, words=(*sizes, tracked),
        scalars=(float_word(eps), float_word(momentum)), scratch=scratch,
    )  # fmt: skip
    return found


@batch_norm_training.jvp
def _(t_x, t_weight, t_bias, x, weight, outs, eps):  # type: ignore[no-untyped-def]
    moved = None
    if t_x is not None:  # the Jacobian of normalising is symmetric
        moved = batch_norm_backward(t_x, x, None, outs[1], outs[2], eps)[0]
        moved = moved if weight is None else moved * per_channel(weight, x)
    if t_weight is not None:
        moved = added(moved, batch_norm_training(x, t_weight, None, None, None, 0.0, eps)[0])
    return moved if t_bias is None else added(moved, per_channel(t_bias, x)).expand(x.shape)


@batch_norm_training.vjp
def _(g, x, weight, outs, eps, needs):  # type: ignore[no-untyped-def]
    gx, gw, gb = batch_norm_backward(g, x, weight, outs[1], outs[2], eps)
    found = [gx] if weight is None else [gx, gw]
    if (len(needs) - len(found)) % 2:  # the running statistics come in pairs, the bias does not
        found.append(gb)
    return (*found, *[None] * (len(needs) - len(found)))


@batch_norm_training.batched
def _(
    batch: Batch, x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, momentum: float, eps: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    vectors = [folded(batch.full(t)) for t in (weight, bias, running_mean, running_var)]
    return by_example(
        batch, *batch_norm_training(examples_as_channels(batch, x), *vectors, momentum, eps)
    )


def examples_as_channels(batch: Batch, x: Tensor) -> Tensor:
    """All examples' channels beside each other: each is normalised by itself."""
    return batch.full(x).movedim(0, 1).flatten(1, 2)


def by_example(batch: Batch, images: Tensor, *vectors: Tensor) -> tuple[Tensor, ...]:
    """The inverse, of images and of what there is for each channel."""
    size = batch.size
    made = [images.unflatten(1, (size, -1)).movedim(1, 0), *[unfolded(t, size) for t in vectors]]
    return tuple([batch.wrapped(t) for t in made])


@operation("NativeBatchNormBackwardBackward0", differentiable=(0, 1, 2))
def batch_norm_backward(
    upper: Tensor, x: Tensor, weight: Tensor | None, means: Tensor, scales: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of the input, the weight and the bias.

    With normal = (x - mean) * scale these are weight * scale * (g - mean(g) - normal *
    mean(g * normal)), the sum of g * normal, and that of g.
    """
    axes, count = all_but_channels(x), x.numel() // x.shape[1]
    centered = x - per_channel(means, x)
    total = upper.sum(axes)
    slope = (upper * centered).sum(axes) * scales
    tilt = slope * scales / count
    factor = scales if weight is None else scales * weight
    inner = upper - per_channel(total / count, x) - centered * per_channel(tilt, x)
    return as_pytorch_lays_it(inner * per_channel(factor, x)), slope, total


@batch_norm_backward.vjp
def _(gs, upper, x, weight, means, scales, eps):  # type: ignore[no-untyped-def]
    axes = all_but_channels(x)
    grads = through_normalization(
        (gs[0], *[None if v is None else per_channel(v, x) for v in gs[1:]]),
        upper,
        x,
        None if weight is None else per_channel(weight, x),
        projected=lambda t: batch_norm_backward(t, x, None, means, scales, eps)[0],
        mean=lambda t: t.mean(axes, True),
        total=lambda t: t.sum(axes),
        eps=eps,
    )
    return (*(grads if weight is not None else grads[:2]), None, None)


@batch_norm_backward.batched
def _(
    batch: Batch, upper: Tensor, x: Tensor, weight: Tensor | None, means: Tensor, scales: Tensor,
    eps: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    # Not as the body: to that the means and scales are constants, and the vjp takes them for functions of x.
    vectors = [folded(batch.full(t)) for t in (weight, means, scales)]
    channels = [examples_as_channels(batch, t) for t in (upper, x)]
    return by_example(batch, *batch_norm_backward(*channels, *vectors, eps))


@operation("NativeBatchNormBackward0")
def batch_norm_evaluating(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, eps: float
) -> Tensor:
    """Channels normalised by given statistics: elementwise, so that it joins its neighbours."""
    factor = (var + eps).rsqrt()
    if weight is not None:
        factor = factor * weight
    shift = -mean * factor if bias is None else bias - mean * factor
    return as_pytorch_lays_it(x * per_channel(factor, x) + per_channel(shift, x))


@batch_norm_evaluating.jvp
def _(t_x, t_weight, t_bias, t_mean, t_var, x, weight, mean, var, eps):  # type: ignore[no-untyped-def]
    if t_mean is not None or t_var is not None:
        raise RuntimeError(
            "batch_norm is not differentiable wrt running_mean and running_var, they cannot have forward grad "
            "defined"
        )
    scale = (var + eps).rsqrt()
    moved = None
    if t_x is not None:
        moved = t_x * per_channel(scale if weight is None else scale * weight, x)
    if t_weight is not None:
        moved = added(moved, (x - per_channel(mean, x)) * per_channel(scale * t_weight, x))
    return moved if t_bias is None else added(moved, per_channel(t_bias, x)).expand(x.shape)


@batch_norm_evaluating.vjp
def _(g, x, weight, mean, var, eps, needs):  # type: ignore[no-untyped-def]
    axes = all_but_channels(x)
    scale = (var + eps).rsqrt()
    found = [as_pytorch_lays_it(g * per_channel(scale if weight is None else scale * weight, x))]
    if weight is not None:
        found.append((g * (x - per_channel(mean, x))).sum(axes) * scale)
    if len(needs) - len(found) > 2:
        found.append(g.sum(axes))
    return (*found, None, None)


batch_norm_evaluating.batched_as_body()


# ---------------------------------------------------------------- batch_norm


def check_channels(x: Spec, **parameters: Spec | None) -> None:
    """Each parameter must have one element for each channel."""
    channels = x.shape[1] if x.ndim > 1 else 0
    for name, t in parameters.items():
        if t is not None and t.numel != channels:
            raise RuntimeError(f"{name} should contain {channels} elements not {t.numel}")


def check_kinds(x: Tensor | Spec, parameters: Sequence[Tensor | Spec | None]) -> None:
    """Parameters must have the dtype of the input."""
    if any(t is not None and t.dtype is not x.dtype for t in parameters):
        if x.dtype.itemsize > 4:
            raise RuntimeError("mixed dtype (CPU): all inputs must share same datatype.")
        raise RuntimeError(
            f"mixed dtype (CPU): expect parameter to have scalar type of {x.dtype.legacy}"
        )


def check_floating(name: str, x: Tensor | Spec) -> None:
    """Raise for an input that is not floating point."""
    if not x.dtype.is_floating_point:
        raise NotImplementedError(f"\"{name}\" not implemented for '{x.dtype.legacy}'")


@cached(4096)
def check_operands(
    training: bool,
    x: Spec,
    weight: Spec | None,
    bias: Spec | None,
    running_mean: Spec | None,
    running_var: Spec | None,
) -> None:
    """Shapes and dtypes must fit, and statistics be there where needed: asked once for each kind."""
    running = {"running_mean": running_mean, "running_var": running_var}
    check_channels(x, **running)
    if not training:
        for name, t in running.items():
            if t is None:
                raise RuntimeError(f"{name} must be defined in evaluation mode")
    check_channels(x, weight=weight, bias=bias)
    if (running_mean is None) != (running_var is None):
        raise ValueError("running_mean and running_var must either both be None or neither be None")
    check_floating("batch_norm", x)
    check_kinds(x, (weight, bias, running_mean, running_var))


@export
def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Tensor:
    """`nn.functional.batch_norm` with all arguments given, in another order.

    Example:
        >>> x = adjit.tensor([[1.0], [3.0]])
        >>> adjit.batch_norm(x, None, None, None, None, True, 0.1, 1e-5)
        tensor([[-1.0000],
                [ 1.0000]])
    """
    running = (running_mean, running_var)
    operands = (weight, bias, *running)
    check_operands(bool(training), input._spec, *[None if t is None else t._spec for t in operands])
    check_no_gradient("native_batch_norm", running_mean=running_mean, running_var=running_var)
    if not training:
        assert running_mean is not None
        assert running_var is not None
        return batch_norm_evaluating(input, weight, bias, running_mean, running_var, eps)
    if not input.numel():
        return without_elements(input.shape, input, weight, bias)
    out, _, _, *updated = batch_norm_training(
        input, weight, bias, running_mean, running_var, momentum, eps
    )
    if running_mean is not None and running_var is not None:
        if tracers:
            update_traced((running_mean, running_var), updated)
            return out
        write.put((running_mean, running_var), updated)
    return out


def update_traced(running: Sequence[Tensor], updated: Sequence[Tensor]) -> None:
    """Write new running statistics where there are transforms.

    Raises:
        RuntimeError: if examples have statistics of their own, and share what they are to be written into.
    """
    level = level_of(updated)
    if level is None:
        write.put(running, updated)
        return
    if level_of(running) is not level:
        raise RuntimeError(
            "Batch norm got a batched tensor as input while the running_mean or running_var, which will be "
            "updated in place, were not batched.\nIf you are using a module and do not need eval mode, "
            "please set `track_running_stats` to be False.If you are using a prebuilt module and do not "
            "need eval mode, please see the functorch website for resources on how to patch your module "
            "to work with vmap"
        )
    for t, new in zip(running, updated, strict=True):
        t.detach().copy_(new.detach())


@cached(4096)
def has_one_value(size: Shape) -> bool:
    """Whether each channel of (N, C, *) has one value."""
    return numel(size[:1]) * numel(size[2:]) == 1


def check_batch_size(size: Sequence[int]) -> None:
    """A channel of one value has no variance."""
    if has_one_value(tuple(size)):
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {size}"
        )


# ---------------------------------------------------------------- instances


@export
def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Tensor:
    """`nn.functional.instance_norm` with all arguments given, in another order.

    Example:
        >>> x = adjit.tensor([[[1.0, 3.0]]])
        >>> adjit.instance_norm(x, None, None, None, None, True, 0.1, 1e-5)
        tensor([[[-1.0000,  1.0000]]])
    """
    if not use_input_stats and (running_mean is None or running_var is None):
        raise RuntimeError(
            "Expected running_mean and running_var to be defined when use_input_stats is false"
        )
    images, channels = input.shape[:2]

    def for_each(t: Tensor | None) -> Tensor | None:
        return None if t is None else t.repeat(images)

    means, variances = for_each(running_mean), for_each(running_var)
    flat = input.contiguous().view(1, images * channels, *input.shape[2:])
    out = batch_norm(
        flat, for_each(weight), for_each(bias), means, variances, use_input_stats, momentum, eps
    )
    if use_input_stats:
        for t, many in ((running_mean, means), (running_var, variances)):
            if t is not None and many is not None:
                t.copy_(many.view(images, channels).mean(0))
    return out.view(input.shape)


# ---------------------------------------------------------------- groups


@operation("NativeGroupNormBackward0", differentiable=(0,))
def grouped(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalised groups of channels, their means and the factors they were scaled by."""
    length = x.numel() // (x.shape[0] * groups)
    out, means, scales = layer_norm_rows(x, None, None, length, eps)
    if weight is not None:
        out = out * per_channel(weight, x)
    return out if bias is None else out + per_channel(bias, x), means, scales


@grouped.vjp
def _(g, x, weight, outs, groups, eps, needs):  # type: ignore[no-untyped-def]
    means, scales = outs[1], outs[2]  # not the first, into which activations write
    if weight is not None and not state.grad and x.ndim > 2:
        return pulled_by_planes(g, x, weight, means, scales, len(needs))
    axes = all_but_channels(x)
    length = x.numel() // means.numel()
    rows = (means.numel(), length)
    weighted = g if weight is None else g * per_channel(weight, x)
    gx = layer_norm_backward(
        weighted.reshape(rows), x.reshape(rows), None, means, scales, length, eps
    )[0]
    found = [gx.reshape(x.shape)]
    if weight is not None:
        flat = x.reshape(rows)
        centered = flat - flat.mean(1, True)
        normal = centered * (centered.square().mean(1, True) + eps).rsqrt()
        found.append((g * normal.reshape(x.shape)).sum(axes))
    if len(needs) > len(found):
        found.append(g.sum(axes))
    return tuple(found)


def pulled_by_planes(
    g: Tensor, x: Tensor, weight: Tensor, means: Tensor, scales: Tensor, count: int
) -> tuple[Tensor, ...]:
    """The gradients, from two sums over each plane: `g` and `x` are read twice, and nothing else is as large.

    One core of an Intel Xeon, forward and backward: 8x16x32x32 in 4 groups 227 to 111 us (PyTorch 154).
    """
    images, channels = x.shape[:2]
    groups = means.numel() // images
    each, size = channels // groups, x.numel() // (images * channels)

    def of_planes(t: Tensor) -> Tensor:
        """Numbers of groups, or of channels, once for each plane."""
        return t.expand(images, groups, each).reshape(images * channels, 1)

    factors = weight.view(1, groups, each)
    centre, scale = means.view(images, groups, 1), scales.view(images, groups, 1)
    upper = g.reshape(images * channels, size)
    centred = x.reshape(images * channels, size) - of_planes(centre)
    of_g = upper.sum(1).view(images, groups, each)
    of_products = (upper * centred).sum(1).view(images, groups, each) * scale
    share = scale / (each * size)
    middle = (of_g * factors).sum(2, keepdim=True) * share
    slope = (of_products * factors).sum(2, keepdim=True) * share * scale
    gx = upper * of_planes(factors * scale) - of_planes(middle) - centred * of_planes(slope)
    found = gx.reshape(x.shape), of_products.sum(0).reshape(channels), of_g.sum(0).reshape(channels)
    return found[:count]


@grouped.batched
def _(
    batch: Batch, x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float
) -> tuple[Tensor, ...]:
    shared = not (batch.has(weight) or batch.has(bias))
    given = (weight, bias) if shared else (None, None)
    made = grouped(folded(batch.full(x)), *given, groups, eps)
    out, means, scales = (batch.wrapped(unfolded(t, batch.size)) for t in made)
    if not shared:
        out = out if weight is None else out * per_channel(weight, x)
        out = out if bias is None else out + per_channel(bias, x)
    return out, means, scales


@export
@normalizes_first
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    """Normalise groups of channels of each image to mean 0 and variance 1, then scale and shift.

    Differentiable in `input`, `weight` and `bias`, any number of times.

    Args:
        input: (N, C, *), floating point.
        num_groups: a divisor of C.
        weight, bias: (C,), or None.
        eps: added to the variance.
        cudnn_enabled: accepted for PyTorch's sake.

    Raises:
        RuntimeError: if shapes or dtypes do not fit.

    Example:
        >>> adjit.group_norm(adjit.tensor([[1.0, 3.0]]), 1)
        tensor([[-1.0000,  1.0000]])
    """
    shape = input.shape
    if input.ndim < 2:
        raise RuntimeError(
            f"Expected at least 2 dimensions for input tensor but received {input.ndim}"
        )
    if num_groups <= 0:
        raise RuntimeError(f"Expected num groups to be greater than 0, got {num_groups}")
    if shape[1] % num_groups:
        raise RuntimeError(
            "Expected number of channels in input to be divisible by num_groups, but got input of "
            f"shape {list(shape)} and num_groups={num_groups}"
        )
    for name, t in (("weight", weight), ("bias", bias)):
        if t is not None and t.shape != shape[1:2]:
            raise RuntimeError(
                f"Expected {name} to be a vector of size equal to the number of channels in input, "
                f"but got {name} of shape {list(t.shape)} and input of shape {list(shape)}"
            )
    check_floating("GroupNormKernelImpl", input)
    check_kinds(input, (weight, bias))
    if not input.numel():
        return without_elements(input.shape, input, weight, bias)
    return grouped.on(input, weight, bias, num_groups, eps)
