"""Padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import dtypes
from ..dtypes import carrier
from ..graph.export import export
from ..graph.launch import launch
from ..graph.normalized import normalizes
from ..graph.operation import operation
from ..kernels.ops import shape as kernels
from ..shapes import Shape, an_int, numel
from ..tensor import Tensor
from ..unknown import cached
from . import creation, layouts
from .reduce import GRAIN
from .resample import PAD_KINDS, PADS, AxisMap, Maps, maps_of


@export(namespace="nn.functional")
@normalizes
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
    widths = widths_of(input, pad)
    if mode == "constant":
        return padded.on(input, widths, 0.0 if value is None else value)
    if value is not None and value != 0:
        raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if not len(widths) // 2 < input.ndim <= len(widths) // 2 + 2 or len(widths) > 6:
        raise NotImplementedError(
            f"Padding size {len(widths)} is not supported for {input.ndim}D input tensor."
        )
    maps = pad_maps(mode, input.shape, widths)
    op = PADS[mode][len(widths) // 2 - 1]
    return op.on(input, maps) if maps.axes else input.clone()


@export
@normalizes
def constant_pad_nd(input: Tensor, pad: Sequence[int], value: Any = 0) -> Tensor:
    """Pad with one number: `nn.functional.pad` in its usual mode.

    Differentiable in `input`.

    Args:
        input: any tensor.
        pad: (before, after) of the last axis, then of the one before it, and so on; negative numbers cut off.
        value: the number.

    Raises:
        RuntimeError: if the numbers do not fit the shape.

    Example:
        >>> adjit.constant_pad_nd(adjit.tensor([1., 2.]), (1, 2))
        tensor([0., 1., 2., 0., 0.])
    """
    return padded.on(input, widths_of(input, pad), value)


def widths_of(input: Tensor, pad: Sequence[int]) -> Shape:
    """The numbers of a padding, checked."""
    widths = tuple([an_int("pad", "pad", 2, p) for p in pad])
    if len(widths) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    if len(widths) > 2 * input.ndim:
        raise RuntimeError(
            "Padding length should be less than or equal to two times the input dimension but got "
            f"padding length {len(widths)} and input of dimension {input.ndim}"
        )
    return widths


@cached(4096)
def pad_maps(mode: str, shape: Shape, widths: Shape) -> Maps:
    """Which place of an axis stands at each place of the padded one, for all axes that change."""
    found = []
    axes = len(widths) // 2
    if mode != "circular" and 0 in shape[len(shape) - axes - 1 :]:
        raise RuntimeError(
            f"Expected {axes + 1}D or {axes + 2}D (batch mode) tensor with possibly 0 batch size and other "
            f"non-zero dimensions for input, but got: {list(shape)}"
        )
    for position in range(axes):
        before, after = widths[2 * position : 2 * position + 2]
        axis = len(shape) - 1 - position
        size = shape[axis]
        if mode == "circular" and max(before, after) > size:
            raise RuntimeError("Padding value causes wrapping around more than once.")
        if mode == "reflect" and max(before, after) >= size:
            raise RuntimeError(
                f"Argument #{4 + 2 * position}: Padding size should be less than the corresponding "
                f"input dimension, but got: padding ({before}, {after}) at dimension {axis} of "
                f"input {list(shape)}"
            )
        if mode == "circular" and size + before + after < 0:
            raise RuntimeError("Negative padding value is resulting in an empty dimension")
        if before or after:
            found.append(AxisMap(axis, PAD_KINDS[mode], size, size + before + after, before))
    if mode != "circular":
        check_padded(shape, widths)
    return maps_of(*found)


def check_padded(shape: Shape, widths: Shape) -> None:
    """Raise if nothing is left along all axes that are padded, or less than nothing along one."""
    axes = len(widths) // 2
    left = [shape[-1 - k] + widths[2 * k] + widths[2 * k + 1] for k in range(axes)][::-1]
    if max(left) < 1:
        given, made = (
            [f"{letter}: {size}" for letter, size in zip("DHW"[-axes:], sizes, strict=True)]
            for sizes in (shape[len(shape) - axes :], left)
        )
        raise RuntimeError(
            f"input ({', '.join(given)}) is too small. Calculated output {' '.join(made)}"
        )
    if min(left) < 0:
        whole = [*shape[: len(shape) - axes], *left]
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(left)}: {whole}")


class Side(NamedTuple):
    """An axis of a padded tensor, in the words of the kernel."""

    out: int
    first: int  # place that an element of the input stands at
    kept: int  # elements of the input
    size: int
    skipped: int  # elements of the input before the first that is kept

    @classmethod
    def of(cls, size: int, before: int, after: int) -> Side:
        """An axis with so many elements put before and after it, or cut off."""
        skipped = max(-before, 0)
        kept = size - skipped - max(-after, 0)
        if kept < 0:
            raise RuntimeError("narrow(): length must be non-negative.")
        return cls(size + before + after, max(before, 0), kept, size, skipped)

    @property
    def is_whole(self) -> bool:
        """Whether the axis stays as it is."""
        return self.out == self.size == self.kept

    def times(self, inner: int) -> Side:
        """The axis with the elements of another one inside of each of its own."""
        return Side(*(number * inner for number in self))

    def around(self, inner: Side) -> Side:
        """The axis, of one element, with another one inside of each place."""
        first = self.first * inner.out + inner.first
        return inner._replace(out=self.out * inner.out, first=first)


def joined(sides: Sequence[Side]) -> list[Side]:
    """Axes of which those that stay as they are, and those behind the only element of one, have joined the ones
    before them."""
    found: list[Side] = []
    for side in sides:
        if found and side.is_whole:
            found[-1] = found[-1].times(side.size)
        elif found and found[-1].size == found[-1].kept == 1:
            found.append(found.pop().around(side))
        else:
            found.append(side)
    return found


@operation("ConstantPadNdBackward0")
def padded(x: Tensor, widths: Shape, value: Any) -> Tensor:
    """`x` with a number around it."""
    sides = [Side.of(size, 0, 0) for size in x.shape]
    for position in range(len(widths) // 2):
        axis = x.ndim - 1 - position
        before, after = widths[2 * position : 2 * position + 2]
        sides[axis] = Side.of(x.shape[axis], before, after)
    at_end = layouts.channels_last(x)
    if at_end:
        sides = [sides[axis] for axis in layouts.last(x.ndim)]
    shape = tuple([side.out for side in sides])
    axes = joined(sides)
    axes = [Side.of(1, 0, 0)] * (2 - len(axes)) + axes
    dtypes.check_fits(float(value) if x.dtype.kind == "u" else value, x.dtype)
    if x.dtype.kind != "f":
        value = bool(value) if x.dtype is dtypes.bool else int(value)
    number = creation.full((), value, dtype=x.dtype, device=x.device)
    inputs = (layouts.in_memory(x, at_end), number)
    out = launch(
        kernels.put_in_frame, inputs, [(shape, x.dtype)], bind={"T": carrier(x.dtype)},
        words=(len(axes), *(number for side in axes for number in side)),
        n=numel(side.out for side in axes[:-1]) if axes[-1].out else 0,
        grain=max(1, GRAIN // max(axes[-1].out, 1)),
    )  # fmt: skip
    return layouts.as_images(out, at_end, x)


@padded.jvp
def _(t_x: Tensor, widths: Shape) -> Any:
    return padded(t_x, widths, 0.0)


@padded.vjp
def _(g: Tensor, widths: Shape) -> Any:
    return padded(g, tuple(-w for w in widths), 0.0)


padded.batched_over()
