"""Convolutions, transposed ones, and their gradients.

Three products make all of it: a convolution, its gradient for the image (which is the transposed
convolution), and its gradient for the weight. Each is linear in both of its operands, and the
derivatives of each are the two others, so that every order of gradient is one of them again. They
share a `Geometry`. Results have channels-last strides, except for the gradient of a weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import dtypes
from ..devices import CPU
from ..graph.batching import Batch, folded, unfolded
from ..graph.export import export
from ..graph.launch import launch
from ..graph.normalized import normalizes
from ..graph.operation import Operation, operation
from ..graph.record import check_tensor
from ..graph.view import as_own
from ..kernels.language.processor import VECTOR_BYTES
from ..kernels.language.turning import TILE
from ..kernels.ops import matmul as tile_products
from ..schedule import run_cpu
from ..schedule.settle import float_word
from ..shapes import Shape, for_each, numel
from ..tensor import Tensor
from ..unknown import cached
from . import creation, layouts, whole_conv
from .conv_plans import ConvPlan, Geometry, geometry_of, plan_convolve, plan_correlate
from .layouts import as_images, in_memory
from .matmul import multiply, plan_product

ONE = float_word(1)

AXES = ("depth", "height", "width")

# --------------------------------------------------------------------------- the three products


def channels_last(x: Tensor) -> Tensor:
    """`x` with its channels side by side in memory."""
    return x if x._spec.strides[1] == 1 else as_images(in_memory(x, True), True, x)


def models(image: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    """What the order that a result reports comes from: PyTorch brings signals into C order first."""
    return (image, weight) if image.ndim > 3 else (weight,)


def told_by(image: Tensor, is_backward: bool) -> float:
    """What tells the order of a result: of a transposed convolution of volumes PyTorch knows only one."""
    return layouts.NOTHING if is_backward and image.ndim == 5 else layouts.SIGNALS


def turned_if_deep(image: Tensor, geometry: Geometry) -> Tensor:
    """An image with its channels side by side, where a CPU would copy boxes of it an element at a time.

    Squares of a whole image are turned sooner: 8x64x28x28 by a 1x1 kernel takes 543 us for 664.
    """
    spec = image._spec
    turns = spec.contiguous and spec.device is CPU and spec.shape[1] // geometry.groups >= TILE
    return channels_last(image) if turns else image


def product(
    image: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry, *, is_backward: bool
) -> Tensor:
    """A convolution, or the gradient of an image, recorded."""
    if weight._spec.strides[1] != 1 and not weight._spec.contiguous:
        weight = weight.contiguous()
    if image.numel() == 0 or weight.numel() == 0:
        sizes = geometry.image if is_backward else geometry.out
        columns = weight.shape[1] * geometry.groups if is_backward else weight.shape[0]
        shape = image.shape[0], *sizes, columns
        zeros = creation.zeros(shape, dtype=image.dtype, device=image.device)
        made = zeros if bias is None else zeros + bias
        return as_images(made, True, *models(image, weight), told_by=told_by(image, is_backward))
    columns = weight.shape[1 if is_backward else 0]
    if columns < TILE and are_planes(geometry, image, weight):
        return product_of_planes(image, weight, bias, is_backward=is_backward)
    orders, image = models(image, weight), turned_if_deep(image, geometry)
    plan = plan_convolve(
        image._spec, weight._spec, geometry, run_cpu.get_num_threads(),
        is_backward=is_backward, has_bias=bias is not None,
    )  # fmt: skip
    added = image if bias is None else bias.contiguous()
    made = record(plan, (image, weight, added))
    return as_images(made, True, *orders, told_by=told_by(image, is_backward))


def are_planes(geometry: Geometry, *operands: Tensor) -> bool:
    """Whether a CPU multiplies a 1x1 kernel and each image as it lies, in C order, which the result then has.

    To turn them first takes longer: 4x3x112x112 to 3 channels 5 times as long, to 16 from 1.2 to 1.7 times.
    """
    spec = operands[0]._spec
    return (
        geometry.is_pointwise
        and spec.device is CPU
        and numel(geometry.image) * spec.dtype.itemsize >= VECTOR_BYTES
        and all(t._spec.contiguous or t.shape[2:] == geometry.kernel for t in operands)
        and not any(layouts.reports_channels_last(t._spec) for t in models(*operands))
    )


def product_of_planes(
    image: Tensor, weight: Tensor, bias: Tensor | None, *, is_backward: bool
) -> Tensor:
    """A convolution by a 1x1 kernel, or the gradient of an image, as products of matrices of planes."""
    shape, strides, kind = weight.shape[:2], weight._spec.strides[:2], image.dtype
    if is_backward:
        shape, strides = shape[::-1], strides[::-1]
    (columns, depth), (images, _, *sizes) = shape, image.shape
    area = numel(sizes)
    planes = (images, depth, area), (depth * area, area, 1)
    if bias is None:
        plan = plan_product(kind, shape, strides, *planes, None, ())
        operands: tuple[Tensor, ...] = weight, image
        more: dict[str, Any] = {"bind": {"T": kind}}
    else:
        plan = plan_product(kind, shape, strides, *planes, (columns, 1), (1, 1))
        operands = weight, image, bias.contiguous()
        more = {"scalars": (ONE, ONE), "activation": tile_products.ACTIVATION}
    return launch(
        plan.kernel, operands, [((images, columns, *sizes), kind)],
        words=plan.words, n=plan.n, grain=plan.grain, **more,
    )  # fmt: skip


def record(plan: ConvPlan, operands: tuple[Tensor, ...]) -> Tensor:
    """The result of a plan, channels last."""
    kind = operands[0].dtype
    out: Tensor = launch(
        plan.steps, operands, [(plan.shape, kind)], bind={"T": kind},
        words=plan.words, scratch=plan.scratch, finishes=plan.finishes,
    )  # fmt: skip
    return out


@operation("ConvolutionBackward0")
def convolved(input: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """The convolution of (batch, channels, ...) by (columns, channels of a group, ...)."""
    return product(input, weight, None, geometry, is_backward=False)


convolved.multilinear("input", "weight")


@convolved.vjp
def _(g: Tensor, input: Tensor, weight: Tensor, geometry: Geometry) -> Any:
    return image_gradient(g, weight, geometry), weight_gradient(input, g, geometry)


@operation("ConvolutionBackward0")
def convolved_with_bias(input: Tensor, weight: Tensor, bias: Tensor, geometry: Geometry) -> Tensor:
    """`convolved` with a number added to every column, which is where its sums begin."""
    return product(input, weight, bias, geometry, is_backward=False)


convolved_with_bias.multilinear("input", "weight", plus="bias")


@convolved_with_bias.vjp
def _(g: Tensor, input: Tensor, weight: Tensor, geometry: Geometry) -> Any:
    return (
        image_gradient(g, weight, geometry),
        weight_gradient(input, g, geometry),
        bias_gradient(g),
    )


@operation("ConvolutionBackward0")
def transposed(input: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """What `image_gradient` computes, as the forward pass of a transposed convolution."""
    return product(input, weight, None, geometry, is_backward=True)


transposed.multilinear("input", "weight")


@transposed.vjp
def _(g: Tensor, input: Tensor, weight: Tensor, geometry: Geometry) -> Any:
    return convolution_of(g, weight, geometry), weight_gradient(g, input, geometry)


@operation("ConvolutionBackward0")
def transposed_with_bias(input: Tensor, weight: Tensor, bias: Tensor, geometry: Geometry) -> Tensor:
    """`transposed` with a number added to every channel."""
    return product(input, weight, bias, geometry, is_backward=True)


transposed_with_bias.multilinear("input", "weight", plus="bias")


@transposed_with_bias.vjp
def _(g: Tensor, input: Tensor, weight: Tensor, geometry: Geometry) -> Any:
    return (
        convolution_of(g, weight, geometry),
        weight_gradient(g, input, geometry),
        bias_gradient(g),
    )


@operation("ConvolutionBackwardBackward0")
def convolution_of(image: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """What `convolved` computes, as a part of a gradient."""
    return product(image, weight, None, geometry, is_backward=False)


convolution_of.multilinear("image", "weight")


@convolution_of.vjp
def _(g: Tensor, image: Tensor, weight: Tensor, geometry: Geometry) -> Any:
    return image_gradient(g, weight, geometry), weight_gradient(image, g, geometry)


@operation("ConvolutionBackwardBackward0")
def image_gradient(upper: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """The gradient of a convolution's image, given that of its result."""
    return product(upper, weight, None, geometry, is_backward=True)


image_gradient.multilinear("upper", "weight")


@image_gradient.vjp
def _(g: Tensor, upper: Tensor, weight: Tensor, geometry: Geometry) -> Any:
    return convolution_of(g, weight, geometry), weight_gradient(g, upper, geometry)


def is_product(image: Tensor, upper: Tensor, geometry: Geometry) -> bool:
    """Whether a CPU takes the gradient of a 1x1 kernel's weight as one product of matrices of pixels.

    On one core of a Skylake 96 channels to 576 at 14x14 come to 81 GFLOP/s by it, and to 37 as others do.
    """
    return (
        geometry.is_pointwise
        and image.device is CPU
        and min(image.shape[1], upper.shape[1]) >= 2 * TILE
        and layouts.channels_last(image)
        and layouts.channels_last(upper)
    )


@operation("ConvolutionBackwardBackward0")
def weight_gradient(image: Tensor, upper: Tensor, geometry: Geometry) -> Tensor:
    """The gradient of a convolution's weight, given that of its result."""
    if image.numel() == 0 or upper.numel() == 0:
        shape = upper.shape[1], image.shape[1] // geometry.groups, *geometry.kernel
        return creation.zeros(shape, dtype=image.dtype, device=image.device)
    images, area = image.shape[0], numel(geometry.image)
    if min(image.shape[1], upper.shape[1]) <= area and are_planes(geometry, image, upper):
        rows, columns = (t.view(images, t.shape[1], area) for t in (upper, image))
        found = multiply(rows, columns.transpose(1, 2)).sum(0)
        return found.view(upper.shape[1], image.shape[1], *geometry.kernel)
    image, upper = turned_if_deep(image, geometry), channels_last(upper)
    if is_product(image, upper, geometry):
        pixels, uppers = (in_memory(x, True).view(-1, x.shape[1]) for x in (image, upper))
        return multiply(uppers.t(), pixels).view(upper.shape[1], image.shape[1], *geometry.kernel)
    plan = plan_correlate(image._spec, upper._spec, geometry, run_cpu.get_num_threads())
    return record(plan, (image, upper))


weight_gradient.multilinear("image", "upper")


@weight_gradient.vjp
def _(g: Tensor, image: Tensor, upper: Tensor, geometry: Geometry) -> Any:
    return image_gradient(upper, g, geometry), convolution_of(image, g, geometry)


def in_groups(t: Tensor) -> Tensor:
    """Images (examples, batch, channels, ...) with the channels of all examples side by side."""
    return t.movedim(0, 1).flatten(1, 2)


def of_groups(t: Tensor, size: int) -> Tensor:
    """The inverse of `in_groups`."""
    return t.unflatten(1, (size, -1)).movedim(1, 0)


def grouped(geometry: Geometry, size: int) -> Geometry:
    """The geometry of so many convolutions side by side."""
    g = geometry
    made: Geometry = geometry_of(
        g.image, g.out, g.kernel, g.stride, g.padding, g.dilation, g.groups * size
    )
    return made


def batched_images(op: Operation) -> None:
    """Give an op from images and a weight to images its batching rule."""

    def rule(batch: Batch, given: dict[str, Any]) -> Tensor:
        image, weight, geometry = given.values()
        size, images = batch.size, batch.full(image)
        if not batch.has(weight):
            return batch.wrapped(unfolded(op(folded(images), weight, geometry), size))
        weights = batch.full(weight)
        if weights._spec.strides[0] == 0 and size > 1:
            return batch.wrapped(of_one_weight(images, weights, op, geometry))
        made = op(in_groups(images), folded(weights), grouped(geometry, size))
        return batch.wrapped(of_groups(made, size))

    op.rules.batching = rule


for _op in (convolved, transposed, convolution_of, image_gradient):
    batched_images(_op)


@convolved_with_bias.batched
def _(batch: Batch, input: Tensor, weight: Tensor, bias: Tensor, geometry: Geometry) -> Tensor:
    return with_bias(batch, convolved, convolved_with_bias, input, weight, bias, geometry)


@transposed_with_bias.batched
def _(batch: Batch, input: Tensor, weight: Tensor, bias: Tensor, geometry: Geometry) -> Tensor:
    return with_bias(batch, transposed, transposed_with_bias, input, weight, bias, geometry)


def with_bias(
    batch: Batch, plain: Operation, op: Operation, input: Tensor, weight: Tensor, bias: Tensor,
    geometry: Geometry,
) -> Tensor:  # fmt: skip
    """The batching rule of a convolution with a bias."""
    if batch.has(weight) or batch.has(bias):
        made: Tensor = plain(input, weight, geometry)
        return made + bias.reshape(-1, *[1] * (input.ndim - 2))
    images = folded(batch.full(input))
    return batch.wrapped(unfolded(op(images, weight, bias, geometry), batch.size))


@weight_gradient.batched
def _(image: Tensor, upper: Tensor, geometry: Geometry) -> Tensor:
    size = image.shape[0]
    made = weight_gradient(in_groups(image), in_groups(upper), grouped(geometry, size))
    return unfolded(made, size)


@operation("ConvolutionBackward0")
def of_one_weight(images: Tensor, weights: Tensor, op: Operation, geometry: Geometry) -> Tensor:
    """An op on the images of examples and one weight, which is shown once for each of them.

    One convolution; but each example has a gradient of the weight of its own.
    """
    return unfolded(op(folded(images), weights[0], geometry), images.shape[0])


@of_one_weight.vjp
def _(g: Tensor, images: Tensor, weights: Tensor, op: Operation, geometry: Geometry) -> Any:
    return through_one_weight(g, images, weights, op, geometry)


def through_one_weight(
    g: Tensor, images: Tensor, weights: Tensor, op: Operation, geometry: Geometry
) -> tuple[Tensor, Tensor]:
    """The gradients of the images and, for each example, of the weight."""
    size = images.shape[0]
    is_forward = op is convolved or op is convolution_of
    back = image_gradient if is_forward else convolution_of
    of_images = of_one_weight(g, weights, back, geometry)
    pair = (images, g) if is_forward else (g, images)
    found = weight_gradient(*map(in_groups, pair), grouped(geometry, size))
    return of_images, unfolded(found, size)


@of_one_weight.batched
def _(batch: Batch, images: Tensor, weights: Tensor, op: Operation, geometry: Geometry) -> Tensor:
    if not batch.has(weights):
        full = batch.full(images).transpose(0, 1).flatten(1, 2)  # more images of the same examples
        made = of_one_weight(full, weights, op, geometry)
        made = made.unflatten(1, (batch.size, images.shape[1]))
        return batch.wrapped(made.transpose(0, 1))
    whole = batch.full(weights)
    if whole._spec.strides[0] == 0:
        made = of_one_weight(folded(batch.full(images)), folded(whole), op, geometry)
        return batch.wrapped(unfolded(made, batch.size))
    size = weights.shape[0]
    return of_groups(op(in_groups(images), folded(weights), grouped(geometry, size)), size)


def bias_gradient(g: Tensor) -> Tensor:
    """The sum over all axes but the channels."""
    return g.sum((0, *range(2, g.ndim)))


# --------------------------------------------------------------------------- arguments


def spread(name: str, value: int | Sequence[int], axes: int, dims: int) -> Shape:
    """One number for each axis of the weight, of which there are `dims`.

    Raises:
        RuntimeError: if there are other than one or `dims` numbers.
    """
    values = for_each(value, axes)
    if len(values) == 1:
        values *= dims
    if len(values) != dims:
        raise RuntimeError(
            f"expected {name} to be a single integer value or a list of {dims} values to match the "
            f"convolution dimensions, but got {name}={list(values)}"
        )
    return values


def joined(sizes: Sequence[int]) -> str:
    """Sizes as PyTorch's messages about convolutions show them."""
    return f"({' x '.join(map(str, sizes))})"


def as_batch(name: str, input: Tensor, axes: int) -> tuple[Tensor, bool]:
    """The input with a batch axis, and whether it had one."""
    if input.ndim not in (axes + 1, axes + 2):
        raise RuntimeError(
            f"Expected {axes + 1}D (unbatched) or {axes + 2}D (batched) input to {name}, but got "
            f"input of size: {list(input.shape)}"
        )
    has_batch = input.ndim == axes + 2
    return (input if has_batch else input.unsqueeze(0)), has_batch


def check_numbers(stride: Shape, padding: Shape, dilation: Shape, more: Shape, groups: int) -> None:
    """Raise for steps that are not positive and paddings that are negative."""
    if min(padding) < 0:
        raise RuntimeError("negative padding is not supported")
    if min(more) < 0:
        raise RuntimeError("negative output_padding is not supported")
    for name, values in (("stride", stride), ("dilation", dilation), ("groups", (groups,))):
        if min(values) <= 0:
            raise RuntimeError(f"non-positive {name} is not supported")


def check_channels(
    image: Shape, weight: Shape, bias: Shape | None, groups: int, *, is_transposed: bool
) -> None:
    """Raise where image, weight and bias do not fit each other."""
    if len(image) != len(weight):
        raise RuntimeError(
            f"Expected {len(weight)}-dimensional input for {len(weight)}-dimensional weight"
            f"{list(weight)}, but got {len(image)}-dimensional input of size {list(image)} instead"
        )
    if weight[0] < groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be at least {groups} at dimension 0, but "
            f"got weight of size {list(weight)} instead"
        )
    if weight[0] % groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, "
            f"but got weight of size [{list(weight)}] instead"
        )
    channels = weight[0] if is_transposed else weight[1] * groups
    columns = weight[1] * groups if is_transposed else weight[0]
    if image[1] != channels:
        given = "transposed=1" if is_transposed else f"groups={groups}"
        raise RuntimeError(
            f"Given {given}, weight of size {list(weight)}, expected input{list(image)} to have "
            f"{channels} channels, but got {image[1]} channels instead"
        )
    if bias is not None and bias != (columns,):
        given = "transposed=1" if is_transposed else ""
        raise RuntimeError(
            f"Given {given}{', ' if given else ''}weight of size {list(weight)}, expected bias to be "
            f"1-dimensional with {columns} elements, but got bias of size {list(bias)} instead"
        )


def check_not_empty(image: Shape) -> None:
    """Raise if an axis other than batch and channels is empty."""
    if 0 in image[2:]:
        raise RuntimeError(
            "Only zero batch or zero channel inputs are supported, but got input shape: "
            f"{list(image)}"
        )


def check_dtypes(image: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Raise where dtypes differ, or have no convolution."""
    if bias is not None and bias.dtype is not image.dtype:
        raise RuntimeError(
            f"Input type ({image.dtype.row.c}) and bias type ({bias.dtype.row.c}) "
            "should be the same"
        )
    if weight.dtype is not image.dtype:
        raise RuntimeError(
            f"expected scalar type {image.dtype.legacy} but found {weight.dtype.legacy}"
        )
    if image.dtype is dtypes.bool:
        raise NotImplementedError("\"slow_conv2d_cpu\" not implemented for 'Bool'")


@cached(4096)
def forward_geometry(
    image: Shape, weight: Shape, bias: Shape | None, stride: Shape, padding: Shape | str,
    dilation: Shape, groups: int,
) -> Geometry:  # fmt: skip
    """The geometry of a convolution.

    Raises:
        RuntimeError: if the shapes and numbers do not fit.
    """
    kernel = weight[2:]
    zeros = (0,) * len(kernel)
    check_numbers(stride, zeros if isinstance(padding, str) else padding, dilation, zeros, groups)
    check_channels(image, weight, bias, groups, is_transposed=False)
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    if padding == "same":
        out, before = image[2:], tuple((n - 1) // 2 for n in reach)
    else:
        before = zeros if isinstance(padding, str) else padding
        padded = [n + 2 * p for n, p in zip(image[2:], before, strict=True)]
        if any(n < r for n, r in zip(padded, reach, strict=True)):
            raise RuntimeError(
                f"Calculated padded input size per channel: {joined(padded)}. Kernel size: "
                f"{joined(reach)}. Kernel size can't be greater than actual input size"
            )
        out = tuple((n - r) // s + 1 for n, r, s in zip(padded, reach, stride, strict=True))
    check_not_empty(image)
    made: Geometry = geometry_of(image[2:], out, kernel, stride, before, dilation, groups)
    return made


@cached(4096)
def transposed_geometry(
    upper: Shape, weight: Shape, bias: Shape | None, stride: Shape, padding: Shape, more: Shape,
    dilation: Shape, groups: int,
) -> Geometry:  # fmt: skip
    """The geometry of the convolution whose gradient a transposed convolution is.

    Raises:
        RuntimeError: if the shapes and numbers do not fit.
    """
    kernel = weight[2:]
    check_numbers(stride, padding, dilation, more, groups)
    check_channels(upper, weight, bias, groups, is_transposed=True)
    image = tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + m + 1
        for n, s, p, d, k, m in zip(upper[2:], stride, padding, dilation, kernel, more, strict=True)
    )
    if min(image) <= 0:
        raise RuntimeError(
            f"Given input size per channel: {joined(upper[2:])}. Calculated output size per channel: "
            f"{joined(image)}. Output size is too small"
        )
    check_not_empty(upper)
    if any(m >= max(s, d) for m, s, d in zip(more, stride, dilation, strict=True)):
        shown = [
            f"{name}_{axis}: {value}"
            for name, values, fill in (
                ("output_padding", more, 0), ("stride", stride, 1), ("dilation", dilation, 1),
            )
            for axis, value in zip(
                AXES[-max(len(kernel), 2) :], (fill, *values)[-max(len(kernel), 2) :], strict=True
            )
        ]  # fmt: skip
        raise RuntimeError(
            "output padding must be smaller than either stride or dilation, but got "
            + " ".join(shown)
        )
    made: Geometry = geometry_of(image, upper[2:], kernel, stride, padding, dilation, groups)
    return made


# --------------------------------------------------------------------------- functions


def convolution(
    name: str, axes: int, input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any,
    padding: Any, dilation: Any, groups: int,
) -> Any:  # fmt: skip
    """A convolution of so many axes, after the checks."""
    check_tensors(name, input, weight, bias)
    x, has_batch = as_batch(name, input, axes)
    dims = axes_of(weight)
    stride = spread("stride", stride, axes, dims)
    dilation = spread("dilation", dilation, axes, dims)
    if not isinstance(padding, str):
        padding = spread("padding", padding, axes, dims)
    elif padding not in ("same", "valid"):
        raise RuntimeError(f"Invalid padding string: '{padding}'")
    elif padding == "same" and any(s != 1 for s in stride):
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    geometry = forward_geometry(
        x.shape, weight.shape, None if bias is None else bias.shape, stride, padding, dilation,
        int(groups),
    )  # fmt: skip
    check_dtypes(x, weight, bias)
    if not x.dtype.is_floating_point:
        whole = whole_conv.convolved(x, weight, bias, geometry)
        whole = layouts.reporting_as(as_own(whole), *models(x, weight), told_by=layouts.SIGNALS)
        return whole if has_batch else whole.squeeze(0)
    given = (x, weight) if bias is None else (x, weight, bias)
    op = convolved if bias is None else convolved_with_bias
    return op.on(*given, geometry) if has_batch else op(*given, geometry).squeeze(0)


def transposed_convolution(
    name: str, axes: int, input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any,
    padding: Any, output_padding: Any, groups: int, dilation: Any,
) -> Any:  # fmt: skip
    """A transposed convolution of so many axes, after the checks."""
    check_tensors(name, input, weight, bias)
    if isinstance(padding, str):
        raise TypeError(f"{name}(): argument 'padding' must be tuple of ints, not str")
    x, has_batch = as_batch(name, input, axes)
    dims = axes_of(weight)
    geometry = transposed_geometry(
        x.shape, weight.shape, None if bias is None else bias.shape,
        spread("stride", stride, axes, dims), spread("padding", padding, axes, dims),
        spread("output_padding", output_padding, axes, dims),
        spread("dilation", dilation, axes, dims), int(groups),
    )  # fmt: skip
    check_dtypes(x, weight, bias)
    if not x.dtype.is_floating_point:
        whole = whole_conv.transposed(x, weight, bias, geometry)
        whole = layouts.reporting_as(as_own(whole), *models(x, weight), told_by=told_by(x, True))
        return whole if has_batch else whole.squeeze(0)
    given = (x, weight) if bias is None else (x, weight, bias)
    op = transposed if bias is None else transposed_with_bias
    return op.on(*given, geometry) if has_batch else op(*given, geometry).squeeze(0)


def check_tensors(name: str, input: Any, weight: Any, bias: Any) -> None:
    """Raise if an argument is no tensor."""
    check_tensor(name, "input", 1, input)
    check_tensor(name, "weight", 2, weight)
    if bias is not None:
        check_tensor(name, "bias", 3, bias)


def axes_of(weight: Tensor) -> int:
    """The axes of a weight beside its channels."""
    if weight.ndim < 3:
        raise RuntimeError("weight should have at least three dimensions")
    return weight.ndim - 2


@export
@normalizes
def conv1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0, dilation: int | Sequence[int] = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Convolution of signals: `conv2d` with one axis.

    Differentiable.

    Args:
        input: (batch, channels, length) or (channels, length).
        weight: (out_channels, channels / groups, kernel).
        bias: (out_channels,), or None.
        stride, padding, dilation, groups: as in `conv2d`.

    Example:
        >>> adjit.conv1d(adjit.tensor([[1., 2., 4.]]), adjit.tensor([[[1., -1.]]]))
        tensor([[-1., -2.]])
    """
    return convolution("conv1d", 1, input, weight, bias, stride, padding, dilation, groups)


@export
@normalizes
def conv2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0, dilation: int | Sequence[int] = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Convolution of images: what is under the weight times the weight, for every place of it.

    Args:
        input: (batch, channels, height, width) or (channels, height, width), floating point.
        weight: (out_channels, channels / groups, kernel_height, kernel_width), of the same dtype.
        bias: (out_channels,), or None.
        stride: how far the weight moves; one number, or one for each axis, as the two below.
        padding: zeros before and after each axis; "valid" for none, "same" for as many as keep the
            sizes, of an odd number one more at the end.
        dilation: how far elements of the weight are apart.
        groups: so many parts of the channels are convolved on their own.

    Returns:
        A tensor (batch, out_channels, out_height, out_width), with channels-last strides.
        Differentiable in `input`, `weight` and `bias`, any number of times.

    Raises:
        RuntimeError: if shapes, dtypes or numbers do not fit.

    Example:
        >>> adjit.conv2d(adjit.ones(1, 1, 3, 3), adjit.ones(1, 1, 3, 3), padding=1)
        tensor([[[[4., 6., 4.],
                  [6., 9., 6.],
                  [4., 6., 4.]]]])
    """
    return convolution("conv2d", 2, input, weight, bias, stride, padding, dilation, groups)


@export
@normalizes
def conv3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0, dilation: int | Sequence[int] = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Convolution of volumes: `conv2d` with three axes.

    Differentiable.

    Args:
        input: (batch, channels, depth, height, width) or (channels, depth, height, width).
        weight: (out_channels, channels / groups, kernel_depth, kernel_height, kernel_width).
        bias: (out_channels,), or None.
        stride, padding, dilation, groups: as in `conv2d`.

    Example:
        >>> adjit.conv3d(adjit.ones(1, 2, 4, 4, 4), adjit.ones(5, 2, 3, 3, 3)).shape
        adjit.Size([1, 5, 2, 2, 2])
    """
    return convolution("conv3d", 3, input, weight, bias, stride, padding, dilation, groups)


@export
@normalizes
def conv_transpose1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0, output_padding: int | Sequence[int] = 0, groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Tensor:  # fmt: skip
    """Transposed convolution of signals: `conv_transpose2d` with one axis.

    Differentiable.

    Args:
        input: (batch, channels, length) or (channels, length).
        weight: (channels, out_channels / groups, kernel).
        bias: (out_channels,), or None.
        stride, padding, output_padding, groups, dilation: as in `conv_transpose2d`.

    Example:
        >>> adjit.conv_transpose1d(adjit.tensor([[1., 2.]]), adjit.tensor([[[1., 10.]]]), stride=2)
        tensor([[ 1., 10.,  2., 20.]])
    """
    return transposed_convolution(
        "conv_transpose1d",
        1,
        input,
        weight,
        bias,
        stride,
        padding,
        output_padding,
        groups,
        dilation,
    )


@export
@normalizes
def conv_transpose2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0, output_padding: int | Sequence[int] = 0, groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Tensor:  # fmt: skip
    """Transposed convolution of images: every pixel times the weight, added up where they overlap.

    It is the gradient of the image of a `conv2d` of the same weight, stride, padding and dilation.

    Args:
        input: (batch, channels, height, width) or (channels, height, width), floating point.
        weight: (channels, out_channels / groups, kernel_height, kernel_width), of the same dtype.
        bias: (out_channels,), or None.
        stride: how far the weight moves from pixel to pixel.
        padding: what is cut off at both ends of each axis.
        output_padding: what is added at the end of each axis, less than the stride or the dilation.
        groups: so many parts of the channels are on their own.
        dilation: how far elements of the weight are apart.

    Returns:
        A tensor (batch, out_channels, out_height, out_width), with channels-last strides.
        Differentiable in `input`, `weight` and `bias`, any number of times.

    Raises:
        RuntimeError: if shapes, dtypes or numbers do not fit.

    Example:
        >>> adjit.conv_transpose2d(adjit.ones(1, 1, 2, 2), adjit.ones(1, 1, 2, 2))
        tensor([[[[1., 2., 1.],
                  [2., 4., 2.],
                  [1., 2., 1.]]]])
    """
    return transposed_convolution(
        "conv_transpose2d",
        2,
        input,
        weight,
        bias,
        stride,
        padding,
        output_padding,
        groups,
        dilation,
    )


@export
@normalizes
def conv_transpose3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0, output_padding: int | Sequence[int] = 0, groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Tensor:  # fmt: skip
    """Transposed convolution of volumes: `conv_transpose2d` with three axes.

    Differentiable.

    Args:
        input: (batch, channels, depth, height, width) or (channels, depth, height, width).
        weight: (channels, out_channels / groups, kernel_depth, kernel_height, kernel_width).
        bias: (out_channels,), or None.
        stride, padding, output_padding, groups, dilation: as in `conv_transpose2d`.

    Example:
        >>> adjit.conv_transpose3d(adjit.ones(1, 2, 4, 4, 4), adjit.ones(2, 5, 3, 3, 3)).shape
        adjit.Size([1, 5, 6, 6, 6])
    """
    return transposed_convolution(
        "conv_transpose3d",
        3,
        input,
        weight,
        bias,
        stride,
        padding,
        output_padding,
        groups,
        dilation,
    )
