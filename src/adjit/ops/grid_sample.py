"""Images read at the points of a grid, and grids of affine maps."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from .. import dtypes, errors
from ..graph.composed import composed
from ..graph.export import export
from ..graph.launch import launch
from ..graph.operation import Operation, operation
from ..graph.pushing import added
from ..kernels.ops import grid_points as kernels
from ..shapes import Shape, numel
from ..tensor import Tensor
from . import creation
from .comparison import where
from .joining import cat, stack
from .pool import refuse
from .reduce import GRAIN, without_elements
from .taps import gather, multiply, scatter

ALIGNMENT = (
    "Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. "
    "Please specify align_corners=True if the old behavior is desired. See the documentation of "
    "grid_sample for details."
)
MODES, OUTSIDE = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
# By mode: the taps along an axis, and the kernels.
TAPS = {"nearest": kernels.NEAREST, "bilinear": kernels.LINEAR, "bicubic": kernels.CUBIC}
FINDING = dict(
    zip(TAPS, (kernels.find_nearest, kernels.find_linear, kernels.find_cubic), strict=True)
)
MOVING = {"bilinear": kernels.move_linear, "bicubic": kernels.move_cubic}


# ---------------------------------------------------------------- points, and what is around them


def run(
    kernel: Any, tensors: Sequence[Tensor], outputs: Sequence[tuple[Shape, dtypes.dtype]],
    size: Shape, mode: str, padding_mode: str, aligned: bool,
) -> Any:  # fmt: skip
    """Run one of the kernels of grid points; the grid, (N, P, axes), is the last of the tensors."""
    images, points, axes = tensors[-1].shape
    number = tensors[-1].dtype
    digits, whole = (23, dtypes.int32) if number is dtypes.float32 else (52, dtypes.int64)
    return launch(
        kernel, [t.contiguous() for t in tensors], outputs,
        bind={"T": number, "Y": dtypes.int32, "Z": whole},
        words=(points, axes, OUTSIDE.index(padding_mode), aligned, 1 << digits, *size, TAPS[mode]),
        n=images * -(-points // kernels.SPAN), grain=max(1, GRAIN // (kernels.SPAN * 8 * TAPS[mode] ** axes)),
    )  # fmt: skip


@operation("GridPointsBackward0", differentiable=(1,))
def look_up(
    grid: Tensor, size: Shape, mode: str, padding_mode: str, aligned: bool
) -> tuple[Tensor, ...]:
    """The places of taps in an image of some size, (N, T, P), -1 where there is none, and their weights."""
    images, points, axes = grid.shape
    shape = (images, TAPS[mode] ** axes, points)
    outputs = [(shape, dtypes.int32), (shape, grid.dtype)]
    made: tuple[Tensor, ...] = run(
        FINDING[mode], (grid,), outputs, size, mode, padding_mode, aligned
    )
    return made


@look_up.vjp
def _(gs, grid, size, mode, padding_mode, aligned):  # type: ignore[no-untyped-def]
    return None if gs[1] is None else move(gs[1], grid, size, mode, padding_mode, aligned)


@look_up.jvp
def _(t_grid, grid, size, mode, padding_mode, aligned):  # type: ignore[no-untyped-def]
    return None, changes(t_grid, grid, size, mode, padding_mode, aligned)


look_up.batched_by_folding()


@operation("GridPointsBackwardBackward0")
def move(
    upper: Tensor, grid: Tensor, size: Shape, mode: str, padding_mode: str, aligned: bool
) -> Tensor:
    """The gradient of points, by that of the weights of their taps."""
    if mode == "nearest":
        return creation.zeros_like(grid)
    outputs = [(tuple(grid.shape), grid.dtype)]
    made: Tensor = run(MOVING[mode], (upper, grid), outputs, size, mode, padding_mode, aligned)
    return made


@move.vjp
def _(g, upper, grid, size, mode, padding_mode, aligned):  # type: ignore[no-untyped-def]
    how = size, mode, padding_mode, aligned
    return changes(g, grid, *how), bends(upper, g, grid, *how)


@move.jvp
def _(t_upper, t_grid, upper, grid, size, mode, padding_mode, aligned):  # type: ignore[no-untyped-def]
    how = size, mode, padding_mode, aligned
    moved = None if t_upper is None else move(t_upper, grid, *how)
    return moved if t_grid is None else added(moved, bends(upper, t_grid, grid, *how))


move.batched_by_folding()


def sampling(backward_name: str) -> Operation:
    """The op that reads images at points."""

    @operation(backward_name)
    def sample(x: Tensor, grid: Tensor, mode: str, padding_mode: str, aligned: bool) -> Tensor:
        """`x`, (N, C, *size), at the points of (N, *outer, axes): (N, C, *outer)."""
        flat, size = grid.flatten(1, -2), tuple(x.shape[2:])
        places, weights = look_up(flat, size, mode, padding_mode, aligned)
        made: Tensor = gather(x, weights, places, tuple(grid.shape[1:-1]))
        return made

    @sample.vjp
    def _(g, x, grid, mode, padding_mode, aligned):  # type: ignore[no-untyped-def]
        how = tuple(x.shape[2:]), mode, padding_mode, aligned
        flat = grid.flatten(1, -2)
        places, weights = look_up(flat, *how)
        moved = move(multiply(g, x, places), flat, *how)
        return scatter(g, weights, places, how[0]), moved.reshape(grid.shape)

    @sample.jvp
    def _(t_x, t_grid, x, grid, mode, padding_mode, aligned):  # type: ignore[no-untyped-def]
        how = tuple(x.shape[2:]), mode, padding_mode, aligned
        flat, outer = grid.flatten(1, -2), tuple(grid.shape[1:-1])
        places, weights = look_up(flat, *how)
        moved = None if t_x is None else gather(t_x, weights, places, outer)
        if t_grid is not None:
            moved = added(
                moved, gather(x, changes(t_grid.flatten(1, -2), flat, *how), places, outer)
            )
        return moved

    sample.batched_by_folding()

    return sample


SAMPLERS = {4: sampling("GridSampler2DBackward0"), 5: sampling("GridSampler3DBackward0")}


# ---------------------------------------------------------------- second derivatives, of small ops


def reflected(u: Tensor, low: float, span: float) -> tuple[Tensor, Tensor]:
    """Coordinates mirrored at both bounds until they lie between them, and which way they move with `u`."""
    is_below = u < low
    distance = where(is_below, low - u, u - low)
    flips = (distance / span).floor()
    is_even = flips % 2 == 0
    rest = distance - flips * span
    return where(is_even, rest, span - rest) + low, where(is_below == is_even, -1.0, 1.0)


def kept_inside(
    u: Tensor, size: int, padding_mode: str, aligned: bool
) -> tuple[Tensor, Tensor | float]:
    """Coordinates outside of 0 to size - 1 as a padding mode takes them, and which way they move with `u`."""
    slope: Tensor | float = 1.0
    if padding_mode == "zeros":
        return u, slope
    if padding_mode == "reflection":
        low, span = (0.0, size - 1.0) if aligned else (-0.5, float(size))
        if not span:
            return u * 0.0, 0.0
        u, slope = reflected(u, low, span)
    inside = (u > 0) & (u < size - 1)  # at the bounds there is no gradient
    return u.clamp(0, size - 1), where(inside, slope, 0.0)


def curve_of(share: Tensor, mode: str, order: int) -> Tensor:
    """The weights of the taps along an axis, or a derivative of theirs, by a point's share of the way."""
    if mode == "nearest":
        return creation.ones_like(share) if order == 0 else creation.zeros_like(share)
    if mode == "bilinear":
        ones = creation.ones_like(share)
        return cat([(1 - share, share), (-ones, ones)][order] if order < 2 else [ones * 0] * 2, 1)
    a, rest = kernels.A, 1 - share

    def far(x: Tensor) -> Tensor:
        if order == 0:
            return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return (3 * a * x - 10 * a) * x + 8 * a if order == 1 else 6 * a * x - 10 * a

    def near(x: Tensor) -> Tensor:
        if order == 0:
            return ((a + 2) * x - (a + 3)) * x * x + 1
        return (3 * (a + 2) * x - 2 * (a + 3)) * x if order == 1 else 6 * (a + 2) * x - 2 * (a + 3)

    sign = (-1) ** order
    return cat([far(share + 1), near(share), sign * near(rest), sign * far(rest + 1)], 1)


def weights_of(
    grid: Tensor, size: Shape, mode: str, padding_mode: str, aligned: bool, orders: Sequence[int]
) -> Tensor:
    """(N, T, P): a derivative of the weights of taps, of some order by the coordinate along each axis.

    Differentiable in `grid`, any number of times.
    """
    product: Tensor | None = None
    for d, (length, order) in enumerate(zip(size, orders, strict=True)):
        u = grid.select(2, len(size) - 1 - d).unsqueeze(1)
        scale = (length - 1) / 2 if aligned else length / 2
        u = (u + 1) * scale if aligned else ((u + 1) * length - 1) / 2
        slope: Tensor | float = 1.0
        if mode != "bicubic":
            place, slope = kept_inside(u.detach(), length, padding_mode, aligned)
            u = (u - u.detach()) * slope + place
        curve = curve_of(u - u.detach().floor(), mode, order) * (slope * scale) ** order
        product = (
            curve if product is None else (product.unsqueeze(2) * curve.unsqueeze(1)).flatten(1, 2)
        )
    assert product is not None
    return product


def changes(
    along: Tensor,
    grid: Tensor,
    size: Shape,
    mode: str,
    padding_mode: str,
    aligned: bool,
    *others: int,
) -> Tensor:
    """(N, T, P): how fast weights, derived by `others` already, change as points move along (N, P, axes)."""
    axes = range(len(size))
    terms = []
    for d in axes:
        orders = [(d, *others).count(k) for k in axes]
        by_axis = weights_of(grid, size, mode, padding_mode, aligned, orders)
        terms.append(along.select(2, axes[-1] - d).unsqueeze(1) * by_axis)
    return functools.reduce(operator.add, terms)


def bends(upper: Tensor, along: Tensor, grid: Tensor, size: Shape, *how: Any) -> Tensor:
    """(N, P, axes): how fast the gradients of points, by those of their weights, change along vectors."""
    turned = [(upper * changes(along, grid, size, *how, d)).sum(1) for d in range(len(size))]
    return stack(turned[::-1], 2)


# ---------------------------------------------------------------- calls


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
    (images, channels), outer = input.shape[:2], grid.shape[1:-1]
    if not (images and channels and numel(outer)):
        return without_elements((images, channels, *outer), input, grid)
    called: Tensor = SAMPLERS[input.ndim].on(input, grid, mode, padding_mode, bool(align_corners))
    return called


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
