"""Pooling: the largest element, the mean or the norm of windows, and its reverse."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .. import dtypes
from ..graph.batching import Batch, each, wrapped
from ..graph.composed import composed
from ..graph.export import export
from ..graph.launch import launch
from ..graph.normalized import normalizes
from ..graph.operation import Operation, operation
from ..graph.record import is_differentiated
from ..graph.straight import mark_straight
from ..kernels.language.abi import STATUS_INDEX
from ..kernels.ops import pool as kernels
from ..kernels.ops import pool_strips as strips
from ..kernels.ops import resample
from ..schedule.settle import float_word
from ..shapes import Shape, for_each, is_int, numel
from ..tensor import Tensor
from ..unknown import cached
from . import creation, layouts
from .padding import padded
from .reduce import GRAIN, without_elements
from .resample import AxisMap, mapping, maps_of

Sizes = int | Sequence[int]


# ---------------------------------------------------------------- windows


class Windows(NamedTuple):
    """Where windows lie, for three axes; those that are not there have size 1."""

    size: Shape
    out: Shape
    kernel: Shape
    stride: Shape
    padding: Shape
    dilation: Shape

    @property
    def words(self) -> Shape:
        """The geometry as the kernels read it, but for `inner`."""
        return (*self.size, *self.out, *self.kernel, *self.stride, *self.padding, *self.dilation)


def hashable(value: Any) -> Any:
    """A setting as a part of a key."""
    if value is None or value.__class__ is int:
        return value
    if is_int(value):
        return operator.index(value)
    return tuple(v if v is None else operator.index(v) for v in value)


def sizes_of(name: str, what: str, value: Sizes, n: int) -> Shape:
    """A setting as one number for each axis."""
    found = for_each(value, n)
    if len(found) == 1:
        return found * n
    if len(found) == n:
        return found
    if name == "max_pool1d":
        kinds = {"stride": "None, an int, list of ints, or", "padding": "an int, list of ints, or"}
        raise RuntimeError(
            f"{name}() {what} must be {kinds.get(what, 'an int, list of ints or')} tuple of ints "
            f"of size 1 but got size {len(found)}"
        )
    if n == 1:
        raise RuntimeError(f"{name}() argument '{what}' should contain one int (got {len(found)})")
    must = "must be either" if what == "dilation" else "must either be"
    if name == "avg_pool3d":
        must = "must be"
    if what == "stride":
        must += " omitted,"
    count = {2: "two", 3: "three"}[n]
    raise RuntimeError(f"{name}: {what} {must} a single int, or a tuple of {count} ints")


def check_dims(name: str, given: Shape, n: int) -> None:
    """An input must be (N, C, *) or (C, *), with elements in every image."""
    shape, ndim = list(given), len(given)
    empty = 0 in shape[-n - 1 :]
    if name == "max_pool1d" and (ndim not in (2, 3) or empty):
        raise RuntimeError(
            "max_pool1d: Expected 2D or 3D (batch mode) tensor with optional 0 dim batch size for "
            f"input, but got:{shape}"
        )
    if ndim not in (n + 1, n + 2):
        if n == 1:
            raise RuntimeError(
                f"Expected 2 to 3 dimensions, but got {ndim}-dimensional tensor for argument #1 "
                f"'self' (while checking arguments for {name})"
            )
        if name != "avg_pool2d":
            raise RuntimeError(
                f"non-empty {n + 1}D or {n + 2}D (batch mode) tensor expected for input"
            )
    if n == 3 and empty:
        name = name.replace("max_pool3d", "max_pool3d_with_indices_out_cpu_template")
        raise RuntimeError(
            f"{name}(): Expected input's non-batch dimensions to have positive length, but input "
            f"has a shape of {shape} and non-batch dimension 0 has length zero!"
        )
    if empty or ndim not in (n + 1, n + 2):
        shape = [*shape[:-1], 1, shape[-1]] if n == 1 else shape
        raise RuntimeError(
            "Expected 3D or 4D (batch mode) tensor with optional 0 dim batch size for input, but "
            f"got:{shape}"
        )


def check_settings(name: str, windows: Windows, n: int) -> None:
    """Strides, paddings and dilations must make sense."""
    if name == "max_pool1d":
        for what, value in (("kernel_size", windows.kernel), ("stride", windows.stride)):
            if value[2] <= 0:
                raise RuntimeError(f"{name}() {what} must be greater than zero, but got {value[2]}")
        padding, kernel, dilation = windows.padding[2], windows.kernel[2], windows.dilation[2]
        if padding < 0:
            raise RuntimeError(f"{name}() padding must be non-negative, but got {padding}")
        if padding > kernel // 2:
            raise RuntimeError(
                f"{name}() padding should be at most half of kernel size, but got padding={padding} "
                f"and kernel_size={kernel}"
            )
        if dilation <= 0:
            raise RuntimeError(f"{name}() dilation must be greater than zero, but got {dilation}")
    letters = ("T", "H", "W")[-max(n, 2) :]
    if min(windows.stride) == 0:
        raise RuntimeError("stride should not be zero")
    for what, values in (("kernel size", windows.kernel), ("stride", windows.stride)):
        if min(values) <= 0:
            pairs = zip(letters, values[-len(letters) :], strict=True)
            got = " ".join(f"{what[0]}{letter}: {value}" for letter, value in pairs)
            raise RuntimeError(f"{what} should be greater than zero, but got {got}")
    if min(windows.dilation) <= 0:
        pairs = zip(letters, windows.dilation[-len(letters) :], strict=True)
        got = " ".join(f"dilation{letter}: {value}" for letter, value in pairs)
        raise RuntimeError(f"dilation should be greater than zero, but got {got}")
    for pad, kernel, dilation in zip(
        windows.padding, windows.kernel, windows.dilation, strict=True
    ):
        if pad < 0:
            raise RuntimeError(f"pad must be non-negative, but got pad: {pad}")
        if pad > (dilation * (kernel - 1) + 1) // 2:
            raise RuntimeError(
                "pad should be at most half of effective kernel size, but got "
                f"pad={pad}, kernel_size={kernel} and dilation={dilation}"
            )


@cached(4096)
def windows_of(
    name: str,
    n: int,
    shape: Shape,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
) -> Windows:
    """The windows of a pooling function over the last `n` axes of a shape, checked."""
    check_dims(name, shape, n)
    ones = (1,) * (3 - n)
    kernel = ones + sizes_of(name, "kernel_size", kernel_size, n)
    given = () if stride is None else stride
    steps = kernel if given == () else ones + sizes_of(name, "stride", given, n)
    pads = (0,) * (3 - n) + sizes_of(name, "padding", padding, n)
    dilations = ones + sizes_of(name, "dilation", dilation, n)
    size = ones + shape[len(shape) - n :]
    windows = Windows(size, size, kernel, steps, pads, dilations)
    check_settings(name, windows, n)
    if name == "avg_pool3d" and any(s < k for s, k in zip(size, kernel, strict=True)):
        image = " ".join(f"{letter}: {s}" for letter, s in zip("THW", size, strict=True))
        wanted = " ".join(f"k{letter}: {k}" for letter, k in zip("THW", kernel, strict=True))
        raise RuntimeError(f"input image ({image}) smaller than kernel size ({wanted})")
    windows = windows._replace(
        out=tuple(
            windows_along(*numbers, ceil_mode)
            for numbers in zip(size, kernel, steps, pads, dilations, strict=True)
        )
    )
    if min(windows.out) < 1:
        if name == "max_pool1d":
            raise RuntimeError(f"{name}() Invalid computed output size: {windows.out[2]}")
        channels = shape[len(shape) - n - 1]
        sizes, outs = (
            "x".join(map(str, (channels, *numbers[-max(n, 2) :]))) for numbers in windows[:2]
        )
        raise RuntimeError(
            f"Given input size: ({sizes}). Calculated output size: ({outs}). Output size is too small"
        )
    return windows


def windows_along(
    size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool
) -> int:
    """How many windows an axis has."""
    slack = size + 2 * padding - dilation * (kernel - 1) - 1
    count = (slack + (stride - 1 if ceil_mode else 0)) // stride + 1
    if ceil_mode and (count - 1) * stride >= size + padding:
        count -= 1  # the last window would begin beyond the input
    return count


class Images(NamedTuple):
    """An (N, C, *) or (C, *) tensor in memory order, and the way back from there."""

    memory: Tensor
    at_end: bool
    batched: bool
    outer: int
    inner: int
    model: Tensor

    @classmethod
    def of(cls, x: Tensor, n: int, like: Tensor | None = None) -> Images:
        """`x` with `n` spatial axes in its own order, or in that of another tensor."""
        batched = x.ndim == n + 2
        four = x if batched else x.unsqueeze(0)
        model = x if like is None else like
        model = model if model.ndim == n + 2 else model.unsqueeze(0)
        at_end = layouts.channels_last(model)
        images, channels = four.shape[:2]
        outer, inner = (images, channels) if at_end else (images * channels, 1)
        return cls(layouts.in_memory(four, at_end), at_end, batched, outer, inner, model)

    def shape(self, spatial: Sequence[int]) -> Shape:
        """The shape in memory with other sizes of the spatial axes."""
        memory = self.memory.shape
        if self.at_end:
            return (memory[0], *spatial, memory[-1])
        return (*memory[:2], *spatial)

    def back(self, made: Tensor, *, told_by: float = layouts.SIGNALS) -> Tensor:
        """A result in memory order as a tensor like the input."""
        out = layouts.as_images(made, self.at_end, self.model, told_by=told_by)
        return out if self.batched else out.squeeze(0)


# ---------------------------------------------------------------- the largest element


# Windows of a row in C order are vectors up to so many elements apart, for which four are loaded at each tap:
# those of 4 x 4 in 64 x 64 take 1.06 ms for 1.55. So far apart, fewer than MANY of them are not worth it.
CLOSE, MANY = 4, 8
# Of so few windows in a row, times how far apart they are, what lies above each other goes first, where a strip
# holds the row: those of 4 x 4 in 8 x 8 take 0.15 ms for 0.55.
FEW = 4
ABOVE_FIRST = {
    kernels.max_values: strips.max_values_of_few,
    kernels.sum_windows: strips.sum_windows_of_few,
}
IN_STRIPS = {
    kernels.max_windows: strips.max_windows_in_strips,
    kernels.max_values: strips.max_values_in_strips,
    kernels.sum_windows: strips.sum_windows_in_strips,
}


def by_strips(kernel: Any, images: Images, windows: Windows) -> Any:
    """The kernel, or what stands for it where channels lie last, windows far apart, or few of them in a row."""
    stride = windows.stride[2]
    is_few = windows.out[2] <= FEW * stride and windows.size[2] <= strips.STRIP
    if images.inner == 1 and is_few:
        kernel = ABOVE_FIRST.get(kernel, kernel)
    is_close = stride < CLOSE or (stride == CLOSE and windows.out[2] >= MANY)
    return kernel if images.inner == 1 and is_close else IN_STRIPS.get(kernel, kernel)


def largest(kernel: Any, x: Tensor, windows: Windows, n: int) -> tuple[Tensor, Tensor]:
    """Values and places of the largest elements, by one of the kernels that find them."""
    images = Images.of(x, n)
    if numel(windows.size) >= 1 << 31:
        raise RuntimeError("max pooling of images of 2**31 elements or more is not supported")
    shape = images.shape(windows.out[3 - n :])
    rows = images.outer * windows.out[0] * windows.out[1]
    work = numel(windows.kernel) * windows.out[2] * images.inner
    values, places = launch(
        by_strips(kernel, images, windows), (images.memory,), [(shape, x.dtype), (shape, dtypes.int32)],
        bind={"T": x.dtype, "Y": dtypes.int32}, words=(*windows.words, images.inner),
        n=rows, grain=max(1, GRAIN // max(2 * work, 1)),
    )  # fmt: skip
    told_by: float = layouts.SIGNALS
    if kernel is kernels.max_areas:  # which PyTorch runs otherwise
        told_by = (
            layouts.NOTHING if n == 3 else layouts.SIGNALS if images.batched else layouts.IMAGES
        )
    return images.back(values, told_by=told_by), images.back(places, told_by=told_by)


def move(kernel: Any, x: Tensor, places: Tensor, n: int, sizes: Shape, to: Shape) -> Tensor:
    """Run a kernel between elements and places; `sizes` of an image: the smaller, the larger."""
    images = Images.of(x, n, like=places)
    strips = -(-images.inner // kernels.STRIP)
    where = Images.of(places, n)
    work = (sum(sizes)) * min(images.inner, kernels.STRIP)
    made = launch(
        kernel, (images.memory, where.memory), [(images.shape(to), x.dtype)],
        bind={"T": x.dtype, "Y": places.dtype}, words=(*sizes, images.inner, strips),
        n=images.outer * strips, grain=max(1, GRAIN // max(2 * work, 1)),
    )  # fmt: skip
    return images.back(made)


def batched_planes(op: Operation, axes: int | str) -> None:
    """Give an op on (N, C, *) or (C, *) its batching rule: examples are more of N.

    `axes` are those after C, or the name of an argument that has a number for each, or is their number.
    """

    def rule(batch: Batch, given: dict[str, Any]) -> Any:
        named = given[axes] if isinstance(axes, str) else axes
        n = named if isinstance(named, int) else len(named)
        whole = {k: batch.full(v) if isinstance(v, Tensor) else v for k, v in given.items()}
        for name, t in whole.items():
            if isinstance(t, Tensor):
                whole[name] = t.reshape(-1, *t.shape[-n - 1 :])
        lead = (batch.size, *next(iter(given.values())).shape[: -n - 1])
        made = op.with_bound(whole)
        return wrapped(batch, each(made, lambda t: t.reshape(*lead, *t.shape[1:])))

    op.rules.batching = rule


@operation("MaxPoolBackward0")
def add_at_places(g: Tensor, places: Tensor, size: Shape) -> Tensor:
    """Zeros of a spatial size, with elements added at places."""
    n = len(size)
    sizes = (numel(g.shape[g.ndim - n :]), numel(size))
    return move(kernels.add_at_places, g, places, n, sizes, size)


add_at_places.linear("g")


@add_at_places.vjp
def _(g, places, size):  # type: ignore[no-untyped-def]
    return take_at_places(g, places, size), None


batched_planes(add_at_places, "size")


@operation("TakeAtPlacesBackward0")
def take_at_places(x: Tensor, places: Tensor, size: Shape) -> Tensor:
    """The elements at places of a tensor with this spatial size."""
    n = len(size)
    shape = tuple(places.shape[places.ndim - n :])
    return move(kernels.take_at_places, x, places, n, (numel(shape), numel(size)), shape)


take_at_places.linear("x")


@take_at_places.vjp
def _(g, places, size):  # type: ignore[no-untyped-def]
    return add_at_places(g, places, size), None


batched_planes(take_at_places, "size")


def max_pooling(kernel: Any, backward_name: str, n: int) -> Operation:
    """The op that finds the largest elements of windows over `n` axes."""

    @operation(backward_name, differentiable=(0,))
    def largest_of_windows(x: Tensor, windows: Windows) -> tuple[Tensor, Tensor]:
        """The largest elements of windows, and their places as int32."""
        return largest(kernel, x, windows, n)

    @largest_of_windows.jvp
    def _(t_x, outs, windows):  # type: ignore[no-untyped-def]
        return take_at_places(t_x, outs[1], windows.size[3 - n :])

    @largest_of_windows.vjp
    def _(g, x, outs, windows):  # type: ignore[no-untyped-def]
        gradient = add_at_places(g, outs[1], windows.size[3 - n :])
        # By x and not by outs[0], into which an activation may write.
        mark_straight(gradient, x, f"{backward_name[:-1]}Backward0")
        return gradient

    batched_planes(largest_of_windows, n)
    return largest_of_windows


def with_indices(function: Callable[..., Any], settings: int) -> Callable[..., Any]:
    """A pooling function that has so many settings before `return_indices`, which is always set."""

    @functools.wraps(function)
    def found(input: Tensor, *given: Any, **named: Any) -> Any:
        named["return_indices"] = True
        return function(input, *given[:settings], **named)

    found.__name__ = found.__qualname__ = f"{function.__name__}_with_indices"
    n = int(function.__name__[-2])
    found.__doc__ = f"""Call `{function.__name__}` with `return_indices`: the elements and their places.

    Example:
        >>> F.{found.__name__}(adjit.arange({4**n}.0).view(1{", 4" * n}), 2)[1].flatten()[:2]
        tensor([{sum(4**k for k in range(n))}, {sum(4**k for k in range(n)) + 2}])
    """
    return export(namespace="nn.functional")(found)


MAX_POOL = [
    max_pooling(kernels.max_windows, f"MaxPool{n}DWithIndicesBackward0", n) for n in (1, 2, 3)
]
ADAPTIVE_MAX_POOL = [
    max_pooling(kernels.max_areas, f"AdaptiveMaxPool{n}DBackward0", n) for n in (1, 2, 3)
]


def refuse(name: str, x: Tensor, *kinds: str) -> None:
    """Raise for the kinds of dtypes that a function does not take."""
    if x.dtype.kind in kinds:
        raise NotImplementedError(f"\"{name}\" not implemented for '{x.dtype.legacy}'")


@operation("LargestValuesBackward0")
def largest_values(x: Tensor, windows: Windows, n: int) -> Tensor:
    """The largest elements of windows where no gradient is asked for: those of signals in C order."""
    told_by = layouts.NOTHING if n == 1 else layouts.IMAGES
    return over_windows(kernels.max_values, x, n, windows, 1.0, told_by)


batched_planes(largest_values, "n")


def max_pool(n: int) -> Callable[..., Any]:
    """`max_pool1d` and its kin."""
    name = f"max_pool{n}d"

    def function(
        input: Tensor,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        settings = map(hashable, (kernel_size, stride, padding, dilation))
        windows = windows_of(name, n, input.shape, *settings, bool(ceil_mode))
        if n > 1 or return_indices:  # which PyTorch runs over two axes, if there is one
            refuse(f"max_pool{max(n, 2)}d", input, "b")
        else:
            refuse("max_pool1d_impl", input, *"biu")
        if not return_indices and input.dtype.is_floating_point and not is_differentiated(input):
            return largest_values(input, windows, n)
        if not return_indices:
            return MAX_POOL[n - 1].on(input, windows)
        values, places = MAX_POOL[n - 1](input, windows)
        return values, places.to(dtypes.int64)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""The largest element of each window over the last {n} axes.

    Differentiable in `input`; the gradient goes to the first of equal elements.

    Args:
        input: (N, C, *) or (C, *).
        kernel_size: the size of a window, one number or one for each axis.
        stride: how far apart windows lie, `kernel_size` if None.
        padding: places added at both ends, which count as smaller than anything; at most half of
            a window.
        dilation: how far apart the elements of a window lie.
        ceil_mode: whether a window may reach beyond the end.
        return_indices: whether to return the places of the elements too, as flat int64 numbers.

    Raises:
        RuntimeError: if the settings do not fit the shape.

    Example:
        >>> F.max_pool1d(adjit.tensor([[1.0, 3.0, 2.0, 0.0]]), 2)
        tensor([[3., 2.]])
        >>> F.max_pool{n}d(adjit.zeros(2, 3{", 8" * n}), 2).shape
        adjit.Size([2, 3{", 4" * n}])
    """
    return export(composed(function))


max_pool1d, max_pool2d, max_pool3d = MAX_POOLS = [max_pool(n) for n in (1, 2, 3)]
max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices = (
    with_indices(function, 5) for function in MAX_POOLS
)


# ---------------------------------------------------------------- means


def over_windows(
    kernel: Any,
    x: Tensor,
    n: int,
    windows: Windows,
    divisor: float,
    told_by: float = layouts.SIGNALS,
) -> Tensor:
    """Run a kernel over windows, or the one from windows to the input."""
    images = Images.of(x, n)
    to = windows.size if kernel is kernels.spread_windows else windows.out
    if windows.kernel == windows.size and not any(windows.padding):
        made = over_whole(kernel, images, n, windows, divisor)
        return images.back(made, told_by=told_by)
    work = numel(windows.kernel) * windows.out[2] * images.inner
    made = launch(
        by_strips(kernel, images, windows), (images.memory,), [(images.shape(to[3 - n :]), x.dtype)],
        bind={"T": x.dtype}, words=(*windows.words, images.inner), scalars=(float_word(divisor),),
        n=images.outer * to[0] * to[1], grain=max(1, GRAIN // max(2 * work, 1)),
    )  # fmt: skip
    return images.back(made, told_by=told_by)


def over_whole(kernel: Any, images: Images, n: int, windows: Windows, divisor: float) -> Tensor:
    """The same of windows that are all of an image: 8x2048x7x7 take 55 us for 2,800."""
    x, axes = images.memory, tuple(range(1, n + 1)) if images.at_end else tuple(range(-n, 0))
    if kernel is kernels.spread_windows:
        return (x / divisor).expand(images.shape(windows.size[3 - n :])).contiguous()
    if kernel is kernels.max_values:
        return x.amax(axes, True)
    return x.sum(axes, True) / divisor


def elements_of(windows: Windows, include_pad: bool, like: Tensor) -> Tensor | None:
    """How many elements each window has, None where all have as many."""
    reach = [
        (o - 1) * s + k - 2 * p > n if include_pad else (o - 1) * s + k - p > n
        for n, o, k, s, p in zip(*windows[:5], strict=True)
    ]
    if not any(reach) and (include_pad or not any(windows.padding)):
        return None
    if include_pad:
        pairs = zip(windows.size, windows.padding, strict=True)
        windows = windows._replace(size=tuple(n + 2 * p for n, p in pairs), padding=(0, 0, 0))
    ones = creation.ones(1, *windows.size, dtype=like.dtype, device=like.device)
    return over_windows(kernels.sum_windows, ones, 3, windows, 1.0)


def average_pooling(n: int) -> Operation:
    """The op that takes means of windows over `n` axes."""
    backward_name = f"AvgPool{n}DBackward0"

    @operation(backward_name)
    def average(x: Tensor, windows: Windows, include_pad: bool, override: int | None) -> Tensor:
        """The sums of windows over the numbers of their elements, or over another number."""
        counts = None if override else elements_of(windows, include_pad, x)
        divisor = 1 if counts is not None else override or numel(windows.kernel)
        told_by = layouts.NOTHING if n == 3 else layouts.SIGNALS
        sums = over_windows(kernels.sum_windows, x, n, windows, divisor, told_by)
        return sums if counts is None else sums / counts.reshape(windows.out[3 - n :])

    average.linear("x")
    average.straight = f"AvgPool{n}DBackwardBackward0"

    @average.vjp
    def _(g, windows, include_pad, override):  # type: ignore[no-untyped-def]
        return spread(g, windows, include_pad, override)

    @operation(f"AvgPool{n}DBackwardBackward0")
    def spread(g: Tensor, windows: Windows, include_pad: bool, override: int | None) -> Tensor:
        """The gradient of `average`."""
        counts = None if override else elements_of(windows, include_pad, g)
        divisor = 1 if counts is not None else override or numel(windows.kernel)
        if counts is not None:
            g = g / counts.reshape(windows.out[3 - n :])
        return over_windows(kernels.spread_windows, g, n, windows, divisor)

    spread.linear("g")

    @spread.vjp
    def _(g, windows, include_pad, override):  # type: ignore[no-untyped-def]
        return average(g, windows, include_pad, override)

    batched_planes(average, n)
    batched_planes(spread, n)
    return average


def whole_means(
    x: Tensor, n: int, windows: Windows, include_pad: bool, override: int | None
) -> Tensor:
    """Means of int64 windows, rounded towards 0: sums of whole numbers have no digits to lose."""
    spans = [
        ((o - 1) * s + k, k, s, p)
        for o, k, s, p in zip(
            windows.out, windows.kernel, windows.stride, windows.padding, strict=True
        )
    ][3 - n :]
    sizes = windows.size[3 - n :]
    around = [(p, span - size - p) for size, (span, _, _, p) in zip(sizes, spans, strict=True)]
    views = padded(x, tuple([width for pair in reversed(around) for width in pair]), 0)
    for axis, (_, kernel, stride, _) in enumerate(spans, x.ndim - n):
        views = views.unfold(axis, kernel, stride)
    counts: Any = override
    if counts is None:
        counts = elements_of(
            windows, include_pad, creation.empty(0, dtype=dtypes.float64, device=x.device)
        )
        if counts is None:
            counts = numel(windows.kernel)
        else:
            counts = counts.to(dtypes.int64).reshape(windows.out[3 - n :])
    return views.sum(tuple(range(x.ndim, x.ndim + n))).div(counts, rounding_mode="trunc")


AVERAGE_POOL = [average_pooling(n) for n in (1, 2, 3)]


def average_windows(
    n: int,
    x: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    """What `avg_pool1d` and its kin have in common."""
    name = f"avg_pool{n}d"
    settings = map(hashable, (kernel_size, stride, padding))
    windows = windows_of(name, n, x.shape, *settings, 1, bool(ceil_mode))
    if divisor_override == 0:
        raise RuntimeError("divisor must be not zero")
    if x.dtype is dtypes.int64:
        return whole_means(x, n, windows, count_include_pad, divisor_override)
    refuse("avg_pool3d_out_frame" if n == 3 else "avg_pool2d", x, *"biu")
    return AVERAGE_POOL[n - 1].on(x, windows, bool(count_include_pad), divisor_override)


@export
@normalizes
def avg_pool1d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window over the last axis.

    Differentiable in `input`.

    Args:
        input: (N, C, L) or (C, L), floating point or int64, whose means are rounded towards 0.
        kernel_size: the size of a window.
        stride: how far apart windows lie, `kernel_size` if None.
        padding: zeros added at both ends, at most half of a window.
        ceil_mode: whether a window may reach beyond the end.
        count_include_pad: whether the zeros count as elements.

    Raises:
        RuntimeError: if the settings do not fit the shape.

    Example:
        >>> F.avg_pool1d(adjit.tensor([[1.0, 3.0, 2.0, 0.0]]), 2)
        tensor([[2., 1.]])
    """
    return average_windows(
        1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None
    )


@export(namespace="nn.functional")
@normalizes
def avg_pool2d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window over the last two axes.

    Takes what `avg_pool1d` takes, and `divisor_override`, by which sums are divided instead
    of by the number of elements.

    Example:
        >>> F.avg_pool2d(adjit.arange(16.0).view(1, 4, 4), 2)
        tensor([[[ 2.5000,  4.5000],
                 [10.5000, 12.5000]]])
    """
    return average_windows(
        2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


@export(namespace="nn.functional")
@normalizes
def avg_pool3d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window over the last three axes; takes what `avg_pool2d` takes.

    Example:
        >>> F.avg_pool3d(adjit.zeros(1, 4, 4, 4), 2).shape
        adjit.Size([1, 2, 2, 2])
    """
    return average_windows(
        3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


AVERAGE_POOLS = [avg_pool1d, avg_pool2d, avg_pool3d]


# ---------------------------------------------------------------- windows that divide the input


ADAPTIVE_AVERAGE = [
    mapping(f"AdaptiveAvgPool{n}DBackward0", is_straight=True, told_by=told_by)
    for n, told_by in ((1, layouts.SIGNALS), (2, layouts.IMAGES), (3, layouts.NOTHING))
]


@cached(4096)
def adaptive_sizes(name: str, n: int, given: Shape, output_size: Any) -> Shape:
    """The output sizes of an adaptive pooling function, checked."""
    largest, ndim = "max" in name, len(given)
    if n == 1:
        if isinstance(output_size, int):
            output_size = (output_size,)
        if any(v is None for v in output_size):
            raise TypeError(
                f"{name}(): argument 'output_size' (position 2) must be tuple of ints, but found "
                "element of type NoneType at pos 0"
            )
    elif isinstance(output_size, int):
        output_size = (output_size,) * n
    elif ndim <= len(output_size):
        raise ValueError(f"Input dimension should be at least {len(output_size) + 1}")
    if len(output_size) != n:
        if n == 1:
            raise RuntimeError(
                f"{name}() argument 'output_size' should contain one int (got {len(output_size)})"
            )
        text = (
            "(): internal error: output_size.size() must be" if largest else ": output_size must be"
        )
        raise RuntimeError(f"{name}{text} {n}")
    shape = list(given)
    kept = shape[max(ndim - n, 0) :]
    sizes = tuple(d if v is None else int(v) for v, d in zip(output_size, kept, strict=False))
    if ndim not in (n + 1, n + 2):
        if n == 1:
            raise RuntimeError(
                f"Expected 2 to 3 dimensions, but got {ndim}-dimensional tensor for argument #1 "
                f"'self' (while checking arguments for {name})"
            )
        colon = ":" if largest else ""
        raise RuntimeError(
            f"{name}(): Expected {n + 1}D or {n + 2}D tensor, but got{colon} {shape}"
        )
    # PyTorch runs a mean over one axis as one over two.
    if n == 1 and not largest:
        name, shape, sizes = "adaptive_avg_pool2d", [*shape[:-1], 1, shape[-1]], (1, *sizes)
    # Only means over two axes take images without channels.
    for d in range(1 - len(shape) if largest or n == 3 else -len(sizes), 0):
        if shape[d] == 0:
            raise RuntimeError(
                f"{name}(): Expected input to have non-zero size for non-batch dimensions, but "
                f"input has sizes {shape} with dimension {len(shape) + d} being empty"
            )
    if min(sizes) < 0:
        if largest:
            outer = shape[: len(shape) - n]
            extra = [1] if n == 1 else []
            raise RuntimeError(
                f"Trying to create tensor with negative dimension {min(sizes)}: "
                f"{[*outer, *extra, *sizes]}"
            )
        got = ", ".join(map(str, sizes[:2])) + "".join(f",{size}" for size in sizes[2:])
        raise RuntimeError(
            f"{name}: elements of output_size must be greater than or equal to 0 but received "
            f"{{{got}}}"
        )
    return sizes[-n:]


def adaptive_average(name: str, n: int, x: Tensor, output_size: Any) -> Any:
    """What `adaptive_avg_pool1d` and its kin have in common."""
    sizes = adaptive_sizes(name, n, x.shape, hashable(output_size))
    refuse("adaptive_avg_pool3d_cpu" if n == 3 else "adaptive_avg_pool2d", x, "b", "i", "u")
    axes = range(x.ndim - n, x.ndim)
    if all(size == 1 for size in sizes):
        return x.mean(tuple(axes), True)
    areas = [
        AxisMap(axis, resample.AREA, x.shape[axis], size)
        for axis, size in zip(axes, sizes, strict=True)
    ]
    if not numel(sizes):
        return without_elements((*x.shape[: x.ndim - n], *sizes), x)
    return ADAPTIVE_AVERAGE[n - 1].on(x, maps_of(*areas))


@export
@normalizes
def adaptive_avg_pool1d(input: Tensor, output_size: Sizes) -> Tensor:
    """The means of `output_size` windows that divide the last axis evenly.

    Differentiable in `input`.

    Args:
        input: (N, C, L) or (C, L), floating point.
        output_size: how many windows; neighbours overlap where their number does not divide L.

    Raises:
        RuntimeError: if the shapes do not fit.

    Example:
        >>> F.adaptive_avg_pool1d(adjit.tensor([[1.0, 3.0, 2.0, 0.0]]), 2)
        tensor([[2., 1.]])
    """
    return adaptive_average("adaptive_avg_pool1d", 1, input, output_size)


@export(namespace="nn.functional")
@normalizes
def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Average windows that divide the last two axes evenly; a size that is None stays what it is.

    Takes what `adaptive_avg_pool1d` takes. Differentiable in `input`.

    Example:
        >>> F.adaptive_avg_pool2d(adjit.arange(16.0).view(1, 4, 4), (2, 1))
        tensor([[[ 3.5000],
                 [11.5000]]])
    """
    return adaptive_average("adaptive_avg_pool2d", 2, input, output_size)


@export(namespace="nn.functional")
@normalizes
def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """Average windows that divide the last three axes evenly; a size that is None stays what it is.

    Takes what `adaptive_avg_pool1d` takes. Differentiable in `input`.

    Example:
        >>> F.adaptive_avg_pool3d(adjit.zeros(1, 4, 6, 8), (2, None, 1)).shape
        adjit.Size([1, 2, 6, 1])
    """
    return adaptive_average("adaptive_avg_pool3d", 3, input, output_size)


def adaptive_max_pool(n: int) -> Callable[..., Any]:
    """`adaptive_max_pool1d` and its kin."""
    name = f"adaptive_max_pool{n}d"

    def function(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        sizes = adaptive_sizes(name, n, input.shape, hashable(output_size))
        sizes = (1,) * (3 - n) + sizes
        refuse("adaptive_max_pool3d_cpu" if n == 3 else "adaptive_max_pool2d", input, "b", "i", "u")
        given = (1,) * (3 - n) + tuple(input.shape[input.ndim - n :])
        area = tuple(-(-a // max(b, 1)) for a, b in zip(given, sizes, strict=True))
        windows = Windows(given, sizes, area, area, (0, 0, 0), (1, 1, 1))
        if not return_indices:
            return ADAPTIVE_MAX_POOL[n - 1].on(input, windows)
        values, places = ADAPTIVE_MAX_POOL[n - 1](input, windows)
        return values, places.to(dtypes.int64)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""The largest elements of windows that divide the last {n} axes evenly.

    Differentiable in `input`; the gradient goes to the first of equal elements.

    Args:
        input: (N, C, *) or (C, *), floating point.
        output_size: how many windows an axis has, one number or one for each axis.
        return_indices: whether to return the places of the elements too, as flat int64 numbers.

    Raises:
        RuntimeError: if the shapes do not fit.

    Example:
        >>> F.adaptive_max_pool1d(adjit.tensor([[1.0, 3.0, 2.0, 0.0]]), 2)
        tensor([[3., 2.]])
        >>> F.adaptive_max_pool{n}d(adjit.zeros(2, 3{", 8" * n}), 5).shape
        adjit.Size([2, 3{", 5" * n}])
    """
    return export(namespace="nn.functional")(composed(function))


adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = ADAPTIVE_MAX_POOLS = [
    adaptive_max_pool(n) for n in (1, 2, 3)
]
(
    adaptive_max_pool1d_with_indices,
    adaptive_max_pool2d_with_indices,
    adaptive_max_pool3d_with_indices,
) = (with_indices(function, 1) for function in ADAPTIVE_MAX_POOLS)
export(name="adaptive_max_pool1d")(adaptive_max_pool1d_with_indices)  # in `adjit` it gives both


# ---------------------------------------------------------------- elements back at their places


@operation("MaxUnpoolBackward0")
def unpool(x: Tensor, places: Tensor, size: Shape) -> Tensor:
    """Zeros of a spatial size, with elements written to places; of several the last one stays."""
    n = len(size)
    images, where = Images.of(x, n), Images.of(places, n, like=x)
    volumes = "x".join(map(str, size))
    made = launch(
        kernels.put_at_places, (images.memory, where.memory), [(images.shape(size), x.dtype)],
        bind={"T": x.dtype, "Y": places.dtype},
        words=(numel(x.shape[x.ndim - n :]), numel(size), images.inner), n=images.outer,
        grain=max(1, GRAIN // max(2 * numel(size), 1)), fallible=True,
        messages={STATUS_INDEX: (RuntimeError, "Found an invalid max index: {0} (output volumes "
                                               f"are of size {volumes})")},
    )  # fmt: skip
    return images.back(made, told_by=layouts.NOTHING if n == 3 else layouts.IMAGES)


unpool.linear("x")


@unpool.vjp
def _(g, places, size):  # type: ignore[no-untyped-def]
    return take_at_places(g, places, size), None


batched_planes(unpool, "size")


def unpool_sizes(
    x: Tensor, kernel: Shape, stride: Shape, padding: Shape, output_size: Sequence[int] | None
) -> Shape:
    """The sizes that were pooled, or that are asked for where they can have been."""
    n = len(kernel)
    usual = tuple(
        (size - 1) * s + k - 2 * p
        for size, k, s, p in zip(x.shape[-n:], kernel, stride, padding, strict=False)
    )
    if output_size is None:
        return usual
    wanted = tuple(output_size)[2:] if len(output_size) == n + 2 else tuple(output_size)
    if len(wanted) != n:
        raise ValueError(
            f"output_size should be a sequence containing {n} or {n + 2} elements, but it has a "
            f"length of '{len(wanted)}'"
        )
    for d in range(n):
        least, most = usual[d] - stride[d], usual[d] + stride[d]
        if not least < wanted[d] < most:
            given = type(output_size)(wanted)  # type: ignore[call-arg]
            raise ValueError(
                f'invalid output_size "{given}" (dim {d} must be between {least} and {most})'
            )
    return wanted


def max_unpool(n: int) -> Callable[..., Tensor]:
    """`max_unpool1d` and its kin."""

    def function(
        input: Tensor,
        indices: Tensor,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        output_size: Sequence[int] | None = None,
    ) -> Tensor:
        name = f"max_unpool{n}d"
        kernel = sizes_of(name, "kernel_size", kernel_size, n)
        steps = kernel if stride is None else sizes_of(name, "stride", stride, n)
        pads = sizes_of(name, "padding", padding, n)
        size = unpool_sizes(input, kernel, steps, pads, output_size)
        if indices.dtype is not dtypes.int64:
            got = "" if n == 3 else f" but got: {indices.dtype.legacy.replace('Long', 'long')}"
            raise RuntimeError(f"elements in indices should be type int64{got}")
        if input.ndim not in (n + 1, n + 2):
            m = max(n, 2)  # PyTorch takes one axis for two
            dims = input.ndim + m - n
            raise RuntimeError(
                f"Input to max_unpooling{m}d should be a {m + 1}d or {m + 2}d Tensor, but got a "
                f"tensor with {dims} dimensions."
            )
        if indices.shape != input.shape:
            raise RuntimeError(
                "Expected shape of indices to be same as that of the input tensor "
                f"({list(input.shape)}) but got indices tensor with shape: {list(indices.shape)}"
            )
        refuse(f"max_unpool{max(n, 2)}d", input, "b", "i", "u")
        out: Tensor = unpool(input, indices, size)
        return out

    function.__name__ = function.__qualname__ = f"max_unpool{n}d"
    function.__doc__ = f"""Reverse `max_pool{n}d`: elements at their places, zeros elsewhere.

    Differentiable in `input`.

    Args:
        input: (N, C, *) or (C, *), floating point.
        indices: int64 of the same shape, what `max_pool{n}d` gives with `return_indices`.
        kernel_size, stride, padding: those of the pooling.
        output_size: the sizes that were pooled, where several are pooled to the same.

    Raises:
        RuntimeError: if an index is outside of the output, or shapes and dtypes do not fit.
        ValueError: if `output_size` cannot have been pooled to the size of `input`.

    Example:
        >>> x = adjit.tensor([1.0, 3.0, 2.0, 0.0]).view(1, 4{", 1" * (n - 1)})
        >>> window = (2{", 1" * (n - 1)},)
        >>> values, places = F.max_pool{n}d(x, window, return_indices=True)
        >>> F.max_unpool{n}d(values, places, window).flatten()
        tensor([0., 3., 2., 0.])
    """
    return export(namespace="nn.functional")(function)


max_unpool1d, max_unpool2d, max_unpool3d = (max_unpool(n) for n in (1, 2, 3))


# ---------------------------------------------------------------- norms


def power_average_pool(n: int) -> Callable[..., Tensor]:
    """`lp_pool1d` and its kin."""

    def function(
        input: Tensor,
        norm_type: float,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        ceil_mode: bool = False,
    ) -> Tensor:
        if math.isinf(norm_type):
            sign = math.copysign(1.0, norm_type)
            pooled: Tensor = MAX_POOLS[n - 1](
                sign * input.abs(), kernel_size, stride, 0, 1, ceil_mode
            )
            return pooled * sign
        count = numel(sizes_of(f"lp_pool{n}d", "kernel_size", kernel_size, n))
        mean = AVERAGE_POOLS[n - 1](input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
        sums = (mean.sign() * mean.abs().relu()) * count
        return sums.pow(1.0 / norm_type)

    function.__name__ = function.__qualname__ = f"lp_pool{n}d"
    function.__doc__ = f"""The p-norm of each window over the last {n} axes.

    Differentiable in `input`.

    Args:
        input: (N, C, *) or (C, *), floating point.
        norm_type: p.
        kernel_size, stride, ceil_mode: as in `avg_pool{n}d`.

    Example:
        >>> F.lp_pool{n}d(adjit.ones(1, 1{", 4" * n}), 1.0, 2).flatten()[:2]
        tensor([{2**n}., {2**n}.])
    """
    return export(namespace="nn.functional")(function)


lp_pool1d, lp_pool2d, lp_pool3d = (power_average_pool(n) for n in (1, 2, 3))
