"""Images of other sizes."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from .. import dtypes, errors
from ..graph.export import export
from ..graph.normalized import normalizes
from ..graph.operation import Operation
from ..kernels.ops import resample as kernels
from ..shapes import Shape
from ..tensor import Tensor
from ..unknown import cached
from . import pool
from .resample import AxisMap, Maps, mapping, maps_of

MODES = "nearest | linear | bilinear | bicubic | trilinear | lanczos | area | nearest-exact"
CURVES = {"linear": 3, "bilinear": 4, "trilinear": 5, "bicubic": 4}  # with the ndim they take
KINDS = {
    "nearest": kernels.NEAREST,
    "nearest-exact": kernels.NEAREST_EXACT,
    "linear": kernels.LINEAR,
    "bilinear": kernels.LINEAR,
    "trilinear": kernels.LINEAR,
    "bicubic": kernels.CUBIC,
}
WIDE = {"bilinear": kernels.LINEAR_WIDE, "bicubic": kernels.CUBIC_WIDE}

OPS = {
    **{("nearest", n): mapping(f"UpsampleNearest{n}DBackward0") for n in (1, 2, 3)},
    **{("nearest-exact", n): mapping(f"UpsampleNearestExact{n}DBackward0") for n in (1, 2, 3)},
    ("linear", 1): mapping("UpsampleLinear1DBackward0"),
    ("bilinear", 2): mapping("UpsampleBilinear2DBackward0"),
    ("trilinear", 3): mapping("UpsampleTrilinear3DBackward0"),
    ("bicubic", 2): mapping("UpsampleBicubic2DBackward0"),
}
WIDE_OPS = {
    "bilinear": mapping("UpsampleBilinear2DAaBackward0"),
    "bicubic": mapping("UpsampleBicubic2DAaBackward0"),
}
AREAS = {3: pool.adaptive_avg_pool1d, 4: pool.adaptive_avg_pool2d, 5: pool.adaptive_avg_pool3d}


def as_list(x: Tensor, name: str, value: Any, letter: str) -> list[Any]:
    """A size or a factor for each spatial axis."""
    n = x.ndim - 2
    if not isinstance(value, (list, tuple)):
        value = [value] * n
    elif len(value) != n:
        inputs, what = ("Input and output", "output size of") if letter == "o" else (
            "Input and scale_factor", "scale_factor of shape")  # fmt: skip
        raise ValueError(
            f"{inputs} must have the same number of spatial dimensions, but got input with spatial "
            f"dimensions of {list(x.shape[2:])} and {what} {value}. Please provide input tensor in "
            f"(N, C, d1, d2, ...,dK) format and {name} in ({letter}1, {letter}2, ...,{letter}K) "
            "format."
        )
    if letter == "s":
        return list(value)
    try:
        return [operator.index(v) for v in value]
    except TypeError:
        raise TypeError(
            "expected size to be one of int or Tuple[int] or Tuple[int, int] or "
            f"Tuple[int, int, int], but got size with types {[type(v) for v in value]}"
        ) from None


def refuse_mode(x: Tensor, mode: str, antialias: bool, aligned: bool) -> None:
    """Raise for a mode that is not known, or not for inputs of these dimensions."""
    if mode == "lanczos" and x.ndim == 4:
        if aligned:
            raise ValueError("Lanczos mode does not support align_corners=True")
        if not antialias:
            raise ValueError("Lanczos mode requires antialias=True")
        raise NotImplementedError(
            "interpolate: mode 'lanczos' is not supported by adjit; use 'bicubic' with antialias=True"
        )
    wanted = CURVES.get(mode)
    if mode in ("nearest", "nearest-exact", "area") and 3 <= x.ndim <= 5:
        return
    if wanted == x.ndim:
        return
    if wanted and mode != "bicubic" and 3 <= x.ndim <= 5:
        raise NotImplementedError(f"Got {x.ndim}D input, but {mode} mode needs {wanted}D input")
    raise NotImplementedError(
        f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {x.ndim}D) for the modes: "
        f"{MODES} (got {mode})"
    )


def check_sizes(x: Tensor, sizes: Sequence[int]) -> None:
    """Raise for axes without elements."""
    given = x.shape[2:]
    if min(*given, *sizes) <= 0:
        letters = "DHW"[3 - len(sizes) :]
        ins, outs = (
            ", ".join(f"{letter}: {size}" for letter, size in zip(letters, numbers, strict=True))
            for numbers in (given, sizes)
        )
        joint = " and" if len(sizes) == 1 else ""
        raise RuntimeError(
            f"Input and output sizes should be greater than 0, but got input ({ins}){joint} output "
            f"({outs})"
        )
    if x.shape[1] == 0:
        raise RuntimeError(
            f"Non-empty {x.ndim}D data tensor expected but got a tensor with sizes {list(x.shape)}"
        )


@cached(4096)
def maps_between(
    given: Shape, sizes: Shape, scales: tuple[float, ...], kind: int, aligned: bool, copied: bool
) -> Maps:
    """From each size to another, by a scale where there are any; equal ones may be `copied`."""
    return maps_of(
        *[
            AxisMap(axis, kind, length, places, 0, aligned, 1 / scale if scale else 0.0)
            for axis, (length, places, scale) in enumerate(
                zip(given, sizes, scales or [0.0] * len(sizes), strict=True), 2
            )
            if not (length == places and copied)
        ]
    )


def between_bytes(op: Operation, x: Tensor, maps: Maps) -> Tensor:
    """Interpolate bytes: the last axis first, and rounded after each, as PyTorch does."""
    made = x.float()
    for axis in reversed(maps.axes):
        made = (op(made, maps_of(axis)) + 0.5).floor().clamp(0, 255)
    return made.to(dtypes.uint8)


@export(namespace="nn.functional")
@normalizes
def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """`input` at another size.

    Differentiable in `input`; channels-last input gives a channels-last result.

    Args:
        input: (N, C, L), (N, C, H, W) or (N, C, D, H, W), floating point; uint8 too for the
            nearest modes, `"bilinear"` and `"bicubic"`.
        size: the new sizes of the spatial axes, or one for all.
        scale_factor: what the sizes are multiplied by, instead.
        mode: `"nearest"`, `"nearest-exact"`, `"linear"` (3-d), `"bilinear"` and `"bicubic"` (4-d),
            `"trilinear"` (5-d) or `"area"`.
        align_corners: for the linear and cubic modes, whether the centers of the first and last
            elements stay where they are, instead of their outer edges.
        recompute_scale_factor: whether the scale follows from the rounded sizes, instead of being
            the one given.
        antialias: for `"bilinear"` and `"bicubic"`, whether no element is left out where an axis
            shrinks.

    Raises:
        ValueError: unless just one of `size` and `scale_factor` is given, or for options that the
            mode does not take.
        RuntimeError: if a size is 0.
        NotImplementedError: for an unknown mode, or one that the dimensions do not fit.

    Example:
        >>> F.interpolate(adjit.tensor([[[1.0, 2.0]]]), scale_factor=2, mode="linear")
        tensor([[[1.0000, 1.2500, 1.7500, 2.0000]]])
    """
    if mode in ("nearest", "area", "nearest-exact") and align_corners is not None:
        raise ValueError(
            "align_corners option can only be set with the interpolating modes: linear | bilinear "
            "| bicubic | trilinear"
        )
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is None and scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    scales: list[float] = []
    if size is not None:
        sizes = as_list(input, "output size", size, "o")
        if recompute_scale_factor:
            raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
    else:
        scales = as_list(input, "scale_factor", scale_factor, "s")
        sizes = [math.floor(n * s) for n, s in zip(input.shape[2:], scales, strict=True)]
        if any(abs(size) >= 1 << 63 for size in sizes):
            raise RuntimeError("value cannot be converted to type int64_t without overflow")
        if recompute_scale_factor or mode == "area":
            scales = []
    if antialias and not (mode in ("bilinear", "bicubic", "lanczos") and input.ndim == 4):
        raise ValueError(
            "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires "
            "a 4-D tensor as input"
        )
    refuse_mode(input, mode, antialias, bool(align_corners))
    if mode == "area":
        out: Tensor = AREAS[input.ndim](input, sizes)
        return out
    check_sizes(input, sizes)
    nearest = mode.startswith("nearest")
    takes_bytes = nearest or mode in WIDE_OPS
    if not (input.dtype.is_floating_point or (takes_bytes and input.dtype is dtypes.uint8)):
        kind = {"nearest-exact": "nearest", "bicubic": "cubic"}.get(mode, mode)
        kind = "linear" if kind.endswith("linear") else kind
        raise NotImplementedError(
            f"\"compute_indices_weights_{kind}\" not implemented for '{input.dtype.legacy}'"
        )
    kind = WIDE[mode] if antialias else KINDS[mode]
    # PyTorch copies axes that keep their size, but not in all modes where a scale is given.
    copied = not scales or antialias or "linear" in mode or (mode, input.ndim) == ("nearest", 4)
    maps = maps_between(
        input.shape[2:], tuple(sizes), tuple(scales), kind, bool(align_corners),
        copied,
    )  # fmt: skip
    op = WIDE_OPS[mode] if antialias else OPS[mode, input.ndim - 2]
    if input.dtype is dtypes.uint8 and not nearest:
        return between_bytes(op, input, maps)
    return op.on(input, maps) if maps.axes else input.clone()


def warn_of_upsampling(name: str) -> None:
    """Say what PyTorch says of the older names."""
    errors.warn(
        f"`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead.",
    )


@export(namespace="nn.functional")
def upsample(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """`interpolate`, which is the newer name.

    Example:
        >>> F.upsample(adjit.tensor([[[1.0, 2.0]]]), scale_factor=2)
        tensor([[[1., 1., 2., 2.]]])
    """
    warn_of_upsampling("upsample")
    return interpolate(input, size, scale_factor, mode, align_corners)


@export(namespace="nn.functional")
def upsample_nearest(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
) -> Tensor:
    """`interpolate`, each element the nearest one of the input.

    Example:
        >>> F.upsample_nearest(adjit.tensor([[[1.0, 2.0]]]), scale_factor=2)
        tensor([[[1., 1., 2., 2.]]])
    """
    warn_of_upsampling("upsample_nearest")
    return interpolate(input, size, scale_factor, "nearest")


@export(namespace="nn.functional")
def upsample_bilinear(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
) -> Tensor:
    """`interpolate` of (N, C, H, W) images with `mode="bilinear"` between the corners.

    Example:
        >>> F.upsample_bilinear(adjit.tensor([[[[1.0, 2.0]]]]), size=(1, 3))
        tensor([[[[1.0000, 1.5000, 2.0000]]]])
    """
    warn_of_upsampling("upsample_bilinear")
    return interpolate(input, size, scale_factor, "bilinear", True)
