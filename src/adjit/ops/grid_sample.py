"""Images read at the points of a grid, and grids of affine maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import dtypes, errors
from ..graph.composed import composed
from ..graph.export import export
from ..graph.launch import launch
from ..graph.operation import Operation, operation
from ..kernels.language.lanes import LANES
from ..kernels.ops import taps as kernels
from ..shapes import Shape, numel
from ..tensor import Tensor
from . import creation, layouts
from .comparison import where
from .joining import cat
from .pool import refuse
from .reduce import GRAIN, without_elements

ALIGNMENT = (
    "Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. "
    "Please specify align_corners=True if the old behavior is desired. See the documentation of "
    "grid_sample for details."
)


# ---------------------------------------------------------------- sums over taps


LEAST_CHANNELS = LANES // 2  # that are worth a vector


def pays_at_end(x: Tensor, taps: int) -> bool:
    """Whether the channels of an image are better last in memory, for so many taps in all.

    Vectors of channels are worth a copy that is not larger than what is read.
    """
    enough = x.shape[1] >= LEAST_CHANNELS
    return enough and (layouts.channels_last(x) or taps >= numel(x.shape[2:]))


def run(
    kernel: Any, tensors: Sequence[Tensor], shape: Shape, sizes: Shape, units: int, work: int
) -> Tensor:
    """Run one of the kernels; `sizes`: channels, elements of a channel, points, taps."""
    out: Tensor = launch(
        kernel, [t.contiguous() for t in tensors], [(shape, tensors[0].dtype)],
        bind={"T": tensors[0].dtype, "Y": dtypes.int32}, words=sizes, n=units if work else 0,
        grain=max(1, GRAIN // max(4 * work // max(units, 1), 1)),
    )  # fmt: skip
    return out


def sampling(backward_name: str) -> Operation:
    """The op that sums taps, and the two that are its derivatives: each is linear in two tensors.

    `x` is (N, C, *size), `w` and `places` are (N, T, P), `upper` is (N, C, *outer), P points.
    """

    @operation(backward_name)
    def gather(x: Tensor, w: Tensor, places: Tensor, outer: Shape) -> Tensor:
        """(N, C, *outer): the weighted sums of the elements of `x` at places, reported in C order."""
        images, channels, *size = x.shape
        taps, points = w.shape[1:]
        at_end = pays_at_end(x, taps * points)
        kernel, units = kernels.gather_taps, images * channels
        if at_end:
            kernel, units = kernels.gather_taps_last, images * -(-points // kernels.STRIP)
        made = run(
            kernel, (layouts.in_memory(x, at_end), w, places),
            layouts.shape_in_memory((images, channels, *outer), at_end),
            (channels, numel(size), points, taps), units, images * channels * taps * points,
        )  # fmt: skip
        return layouts.as_images(made, at_end)

    gather.multilinear("x", "w")

    @gather.vjp
    def _(g, x, w, places):  # type: ignore[no-untyped-def]
        return scatter(g, w, places, tuple(x.shape[2:])), multiply(g, x, places), None

    gather.batched_by_folding()

    @operation("SampledInputBackward0")
    def scatter(upper: Tensor, w: Tensor, places: Tensor, size: Shape) -> Tensor:
        """(N, C, *size): the weighted elements of `upper` added at places."""
        images, channels = upper.shape[:2]
        taps, points = w.shape[1:]
        at_end = channels >= LEAST_CHANNELS
        kernel, units = kernels.scatter_taps, images * channels
        if at_end:
            kernel, units = kernels.scatter_taps_last, images * -(-channels // LANES)
        made = run(
            kernel, (layouts.in_memory(upper, at_end), w, places),
            layouts.shape_in_memory((images, channels, *size), at_end),
            (channels, numel(size), points, taps), units,
            images * channels * (numel(size) + taps * points),
        )  # fmt: skip
        return layouts.as_images(made, at_end, upper)

    scatter.multilinear("upper", "w")

    @scatter.vjp
    def _(g, upper, w, places):  # type: ignore[no-untyped-def]
        outer = tuple(upper.shape[2:])
        return gather(g, w, places, outer), multiply(upper, g, places), None

    scatter.batched_by_folding()

    @operation("SampleWeightBackward0")
    def multiply(upper: Tensor, x: Tensor, places: Tensor) -> Tensor:
        """(N, T, P): the products of `upper` and of the elements of `x` at places, over channels."""
        images, channels, *size = x.shape
        taps, points = places.shape[1:]
        at_end = pays_at_end(x, taps * points)
        kernel, units = kernels.multiply_taps, images * taps
        if at_end:
            kernel, units = kernels.multiply_taps_last, images * -(-points // kernels.STRIP)
        made: Tensor = run(
            kernel, (layouts.in_memory(upper, at_end), layouts.in_memory(x, at_end), places),
            (images, taps, points), (channels, numel(size), points, taps), units,
            images * channels * taps * points,
        )  # fmt: skip
        return made

    multiply.multilinear("upper", "x")

    @multiply.vjp
    def _(g, upper, x, places):  # type: ignore[no-untyped-def]
        size, outer = tuple(x.shape[2:]), tuple(upper.shape[2:])
        return gather(x, g, places, outer), scatter(upper, g, places, size), None

    multiply.batched_by_folding()

    return gather


SAMPLERS = {4: sampling("GridSampler2DBackward0"), 5: sampling("GridSampler3DBackward0")}


# ---------------------------------------------------------------- places and weights


def reflected(u: Tensor, low: float, high: float) -> Tensor:
    """Coordinates mirrored at both bounds until they lie between them."""
    if low == high:
        return u * 0.0
    span = high - low
    distance = where(u < low, low - u, u - low)
    flips = (distance / span).floor().detach()
    rest = distance - flips * span
    return where(flips % 2 == 0, rest, span - rest) + low


def kept_inside(u: Tensor, size: int, padding_mode: str, aligned: bool) -> Tensor:
    """Coordinates outside of 0 to size - 1 as a padding mode takes them."""
    if padding_mode == "zeros":
        return u
    if padding_mode == "reflection":
        u = reflected(u, 0.0, size - 1.0) if aligned else reflected(u, -0.5, size - 0.5)
    inside = (u > 0) & (u < size - 1)  # at the bounds there is no gradient
    return where(inside, u, u.detach().clamp(0, size - 1))


def cubic_weights(share: Tensor) -> Tensor:
    """The weights of the four taps around a coordinate, by its share of the way between two."""
    a = -0.75

    def far(x: Tensor) -> Tensor:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    def near(x: Tensor) -> Tensor:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    rest = 1 - share
    return cat([far(share + 1), near(share), near(rest), far(rest + 1)], 1)


def taps_of(
    u: Tensor, size: int, mode: str, padding_mode: str, aligned: bool
) -> tuple[Tensor, Tensor]:
    """Places along an axis, (N, T, P) of int32, -1 where there is none, and their weights.

    `u` is (N, 1, P), from -1 to 1.
    """
    u = (u + 1) * ((size - 1) / 2) if aligned else ((u + 1) * size - 1) / 2
    if mode != "bicubic":
        u = kept_inside(u, size, padding_mode, aligned)
    if mode == "nearest":
        near = u.detach().round()
        weights = u.round() - near + 1  # whose gradient is 0, not missing
    else:
        first = u.detach().floor()
        share = u - first
        if mode == "bilinear":
            number = creation.arange(2, dtype=u.dtype, device=u.device).reshape(1, 2, 1)
            near = first + number
            weights = (1 - number) + (2 * number - 1) * share
        else:
            number = creation.arange(-1, 3, dtype=u.dtype, device=u.device)
            near = first + number.reshape(1, 4, 1)
            near = kept_inside(near, size, padding_mode, aligned)
            weights = cubic_weights(share)
    inside = (near >= 0) & (near <= size - 1)
    return where(inside, near, -1.0).to(dtypes.int32), weights


def check_grid(x: Tensor, grid: Tensor, mode: str) -> None:
    """Input and grid must fit each other."""
    shapes = f"got input with sizes {list(x.shape)} and grid with sizes {list(grid.shape)}"
    if x.dtype is not grid.dtype and x.ndim == grid.ndim:
        names = [t.dtype.legacy for t in (x, grid)]
        raise RuntimeError(f"expected scalar type {names[0]} but found {names[1]}")
    if x.shape[:1] != grid.shape[:1]:
        raise RuntimeError(
            f"grid_sampler(): expected grid and input to have same batch size, but {shapes}"
        )
    if grid.shape[-1] != x.ndim - 2:
        raise RuntimeError(
            f"grid_sampler(): expected grid to have size {x.ndim - 2} in last dimension, but got "
            f"grid with sizes {list(grid.shape)}"
        )
    for d in range(2, x.ndim):
        if x.shape[d] == 0:
            raise RuntimeError(
                "grid_sampler(): expected input to have non-empty spatial dimensions, but input has "
                f"sizes {list(x.shape)} with dimension {d} being empty"
            )
    if x.ndim not in (4, 5) or x.ndim != grid.ndim:
        raise RuntimeError(
            "grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but "
            f"{shapes}"
        )
    if mode == "bicubic" and x.ndim != 4:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    refuse(f"grid_sampler_{x.ndim - 2}d_cpu_kernel_impl", x, "b", "i", "u")


@export(namespace="nn.functional")
@composed
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """`input` read at the points of a grid.

    Args:
        input: (N, C, H, W) or (N, C, D, H, W), floating point.
        grid: (N, *, 2) or (N, *, 3): x and y, and z, from -1 to 1 across the input.
        mode: `"bilinear"`, `"nearest"`, or `"bicubic"` (4-d only).
        padding_mode: `"zeros"`, `"border"` or `"reflection"`, what lies outside.
        align_corners: whether -1 and 1 are the centers of the outer elements, not their edges.

    Returns:
        (N, C, *). Differentiable in both, any number of times.

    Raises:
        ValueError: for an unknown mode.
        RuntimeError: if shapes or dtypes do not fit.

    Example:
        >>> x = adjit.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
        >>> F.grid_sample(x, adjit.zeros(1, 1, 1, 2), align_corners=True)
        tensor([[[[2.5000]]]])
    """
    for name, value, known in (
        ("mode", mode, MODES),
        ("padding_mode", padding_mode, OUTSIDE),
    ):
        if value not in known:
            listed = ", ".join(repr(k) for k in known[:2])
            comma = "," if name == "padding_mode" else ""
            raise ValueError(
                f"nn.functional.grid_sample(): expected {name} to be {listed}{comma} or "
                f"{known[2]!r}, but got: '{value}'"
            )
    if align_corners is None:
        errors.warn(ALIGNMENT)
    check_grid(input, grid, mode)
    images, channels = input.shape[:2]
    outer = grid.shape[1:-1]
    points = numel(outer)
    if not (images and channels and points):
        return without_elements((images, channels, *outer), input, grid)
    flat = grid.reshape(images, points, grid.shape[-1])
    places = weights = None
    for d, size in enumerate(input.shape[2:]):
        u = flat.select(2, input.ndim - 3 - d).unsqueeze(1)
        near, share = taps_of(u, size, mode, padding_mode, bool(align_corners))
        if places is None or weights is None:
            places, weights = near, share
            continue
        valid = (places.unsqueeze(2) >= 0) & (near.unsqueeze(1) >= 0)
        places = where(valid, places.unsqueeze(2) * size + near.unsqueeze(1), -1)
        weights = weights.unsqueeze(2) * share.unsqueeze(1)
        places, weights = (t.reshape(images, -1, points) for t in (places, weights))
    assert places is not None
    out: Tensor = SAMPLERS[input.ndim](input, weights, places, tuple(outer))
    return out


MODES, OUTSIDE = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


@export
def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """`nn.functional.grid_sample` with its modes as numbers.

    Args:
        input, grid: as there.
        interpolation_mode: 0 for "bilinear", 1 for "nearest", 2 for "bicubic".
        padding_mode: 0 for "zeros", 1 for "border", 2 for "reflection".
        align_corners: as there.

    Raises:
        RuntimeError: for another number, or shapes that do not fit.

    Example:
        >>> x = adjit.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
        >>> adjit.grid_sampler(x, adjit.zeros(1, 1, 1, 2), 0, 0, True)
        tensor([[[[2.5000]]]])
    """
    for name, value in (("interpolation_mode", interpolation_mode), ("padding_mode", padding_mode)):
        if value not in range(3):
            raise RuntimeError(f"grid_sampler(): expected {name} to be 0, 1 or 2, but got: {value}")
    return grid_sample(input, grid, MODES[interpolation_mode], OUTSIDE[padding_mode], align_corners)


def sampler_of(axes: int) -> Callable[..., Tensor]:
    """`grid_sampler_2d`, or `grid_sampler_3d`."""

    def function(
        input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
    ) -> Tensor:
        if input.ndim != axes + 2 or grid.ndim != axes + 2:
            raise RuntimeError(
                f"grid_sampler(): expected {axes + 2}D input and grid with same number of dimensions, but got "
                f"input with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"
            )
        return grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners)

    function.__name__ = function.__qualname__ = f"grid_sampler_{axes}d"
    function.__doc__ = f"""Call `grid_sampler` on inputs of {axes} spatial axes.

    Raises:
        RuntimeError: for an input of other axes.

    Example:
        >>> grid = adjit.zeros(1, {"1, " * axes}{axes})
        >>> adjit.grid_sampler_{axes}d(adjit.ones(1, 1{", 3" * axes}), grid, 0, 0, False).item()
        1.0
    """
    return export(function)


grid_sampler_2d, grid_sampler_3d = sampler_of(2), sampler_of(3)


# ---------------------------------------------------------------- affine grids


@export(namespace="nn.functional")
@composed
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The grid of an affine map, for `grid_sample`.

    Args:
        theta: (N, 2, 3) or (N, 3, 4), floating point.
        size: that of the output images, (N, C, H, W) or (N, C, D, H, W).
        align_corners: as in `grid_sample`.

    Returns:
        (N, H, W, 2) or (N, D, H, W, 3). Differentiable in `theta`.

    Raises:
        ValueError: if `theta` and `size` do not fit.

    Example:
        >>> F.affine_grid(adjit.eye(2, 3).view(1, 2, 3), (1, 1, 1, 2), align_corners=False)
        tensor([[[[-0.5000,  0.0000],
                  [ 0.5000,  0.0000]]]])
    """
    if align_corners is None:
        errors.warn(ALIGNMENT)
    if not theta.dtype.is_floating_point:
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    n = len(size) - 2
    if n not in (2, 3):
        raise NotImplementedError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, "
            f"respectively. Got size {size}."
        )
    if theta.ndim != 3 or tuple(theta.shape[1:]) != (n, n + 1):
        raise ValueError(
            f"Expected a batch of {n}D affine matrices of shape Nx{n}x{n + 1} for size {size}. Got "
            f"{theta.shape}."
        )
    if align_corners and min(size[-n:]) == 1:
        errors.warn(
            "Since version 1.3.0, affine_grid behavior has changed for unit-size grids when "
            "align_corners=True. This is not an intended use case of affine_grid. See the "
            "documentation of affine_grid for details.",
        )
    elif min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {size}")
    if theta.shape[0] != size[0]:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{size[0]}, {n + 1}] "
            f"but got: [{theta.shape[0]}, {n + 1}]."
        )
    out: Tensor = affine_points(theta, tuple(int(s) for s in size[-n:]), bool(align_corners))
    return out


def unit_points(like: Tensor, sizes: Shape, aligned: bool) -> Tensor:
    """(points, axes + 1): the coordinates of the elements of an image, and 1."""
    columns = []
    for d, size in reversed(list(enumerate(sizes))):
        steps = creation.linspace(-1, 1, size, dtype=like.dtype, device=like.device)
        if size == 1:
            steps = creation.zeros(1, dtype=like.dtype, device=like.device)
        if not aligned:
            steps = steps * ((size - 1) / size)
        shape = [size if k == d else 1 for k in range(len(sizes))]
        columns.append(steps.reshape(shape).expand(sizes).reshape(-1, 1))
    columns.append(creation.ones(numel(sizes), 1, dtype=like.dtype, device=like.device))
    return cat(columns, 1)


@operation("AffineGridGeneratorBackward0")
def affine_points(theta: Tensor, sizes: Shape, aligned: bool) -> Tensor:
    """The points of an image moved by affine maps."""
    points = unit_points(theta, sizes, aligned)
    return (points @ theta.transpose(1, 2)).reshape(theta.shape[0], *sizes, len(sizes))


affine_points.linear("theta")


@affine_points.vjp
def _(g, sizes, aligned):  # type: ignore[no-untyped-def]
    points = unit_points(g, sizes, aligned)
    flat = g.reshape(g.shape[0], -1, len(sizes))
    return flat.transpose(1, 2) @ points


affine_points.batched_as_body()
