"""Padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .. import dtypes
from ..graph import write
from ..graph.op import export, operation
from ..shapes import (
    Shape,
)
from ..tensor import Tensor
from . import creation, view
from .resample import PAD_KINDS, PADS, AxisMap


@export(namespace="nn.functional")
def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """`input` with more elements, or fewer, at both ends of its last axes.

    Args:
        input: any tensor.
        pad: (before, after) of the last axis, then of the one before it, and so on; negative
            numbers cut off.
        mode: `"constant"`, `"reflect"`, `"replicate"` or `"circular"`; the last three take the
            last one, two or three of as many axes and one or two more.
        value: what `"constant"` fills with, 0 if None.

    Returns:
        A new tensor. Differentiable in `input`.

    Raises:
        RuntimeError: if the numbers do not fit the shape.
        NotImplementedError: for an unknown mode, or axes that a mode does not take.

    Example:
        >>> F.pad(adjit.tensor([1., 2.]), (1, 2))
        tensor([0., 1., 2., 0., 0.])
    """
    widths = tuple(int(p) for p in pad)
    if len(widths) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    if len(widths) > 2 * input.ndim:
        raise RuntimeError(
            "Padding length should be less than or equal to two times the input dimension but got "
            f"padding length {len(widths)} and input of dimension {input.ndim}"
        )
    if mode == "constant":
        return padded(input, widths, 0.0 if value is None else value)
    if value is not None and value != 0:
        raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if not len(widths) // 2 < input.ndim <= len(widths) // 2 + 2 or len(widths) > 6:
        raise NotImplementedError(
            f"Padding size {len(widths)} is not supported for {input.ndim}D input tensor."
        )
    maps = tuple(pad_maps(mode, input, widths))
    out: Tensor = PADS[mode][len(widths) // 2 - 1](input, maps) if maps else input.clone()
    return out


def pad_maps(mode: str, x: Tensor, widths: Shape) -> Iterator[AxisMap]:
    """Which place of an axis stands at each place of the padded one, for all axes that change."""
    for position in range(len(widths) // 2):
        before, after = widths[2 * position : 2 * position + 2]
        axis = x.ndim - 1 - position
        size = x.shape[axis]
        if mode == "circular" and max(before, after) > size:
            raise RuntimeError("Padding value causes wrapping around more than once.")
        if mode == "reflect" and max(before, after) >= size:
            raise RuntimeError(
                f"Argument #{4 + 2 * position}: Padding size should be less than the corresponding "
                f"input dimension, but got: padding ({before}, {after}) at dimension {axis} of "
                f"input {list(x.shape)}"
            )
        if size + before + after < 1:
            if mode == "circular":
                raise RuntimeError("Negative padding value is resulting in an empty dimension")
            letter = "WHD"[position]
            raise RuntimeError(
                f"input ({letter}: {size}) is too small. Calculated output {letter}: "
                f"{size + before + after}"
            )
        if size == 0:
            raise RuntimeError(
                f"Expected a size other than 0 for the padded dimension {axis}, but got input "
                f"{list(x.shape)}"
            )
        if before or after:
            yield AxisMap(axis, PAD_KINDS[mode], size, size + before + after, before)


@operation("ConstantPadNdBackward0")
def padded(x: Tensor, widths: Shape, value: Any) -> Tensor:
    """`x` with a number around it."""
    shape = list(x.shape)
    source = x
    frame = []
    for position in range(len(widths) // 2):
        axis = x.ndim - 1 - position
        before, after = widths[2 * position : 2 * position + 2]
        size = shape[axis]
        shape[axis] = size + before + after
        if shape[axis] < 0:
            raise RuntimeError("narrow(): length must be non-negative.")
        first, last = max(-before, 0), size - max(-after, 0)
        source = view.slice_dim(source, axis, min(first, size), max(first, last), 1)
        start = max(before, 0)
        frame.append((axis, start, start + source.shape[axis]))
    if max(widths, default=0) <= 0:
        return view.clone(source, contiguous=True)
    if x.dtype.kind != "f":
        value = bool(value) if x.dtype is dtypes.bool else int(value)
    out = creation.full(shape, value, dtype=x.dtype)
    part = out
    for axis, start, stop in frame:
        part = view.slice_dim(part, axis, start, stop, 1)
    write.store(part, source)
    return out


@padded.vjp
def _(g: Tensor, widths: Shape) -> Any:
    return padded(g, tuple(-w for w in widths), 0.0)
