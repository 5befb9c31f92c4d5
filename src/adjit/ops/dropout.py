"""Dropout: of elements, of channels, and for self-normalising networks."""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes, errors
from ..graph import inplace as writing
from ..graph.batching import Batch
from ..graph.export import export
from ..graph.factories import factory
from ..graph.launch import launch
from ..graph.operation import operation
from ..graph.record import plain_number
from ..graph.state import state
from ..kernels.ops import random as kernels
from ..schedule.planning.recipe import GRAIN
from ..schedule.settle import float_word
from ..shapes import Shape
from ..tensor import Tensor
from .creation import ones
from .drawing import COST, blocks_for, drawing, for_examples
from .layouts import as_in_memory, axes_in_memory, put_back


def check_probability(p: float, kind: type[Exception] = ValueError) -> None:
    """Raise if `p` is no probability, or one whose gradient would be lost."""
    if p.__class__ is not float:
        p = plain_number(p, "dropout", "p")
    if not 0 <= p <= 1:
        raise kind(f"dropout probability has to be between 0 and 1, but got {p}")


@factory
def fresh_place(x: Tensor, count: int | None = None) -> Tensor:
    """Where the blocks for a mask over `x`, or so many elements, begin in the stream of the default generator,
    as a tensor: what draws the mask, and draws it again in backward, is recorded without Python.
    """
    draw = drawing(blocks_for(x.numel() if count is None else count, kernels.WORDS)[1])
    return launch(
        kernels.beginning, (), [((3,), dtypes.int64)], scalars=draw(), n=1, draw=draw, device=x.device
    )  # fmt: skip


@operation("NativeDropoutBackward0")
def drop(x: Tensor, place: Tensor, p: float, axes: Shape) -> Tensor:
    """`x / (1 - p)` where the random word of an element says so, else 0.

    The mask is a function of the place in the stream, so backward draws it again: for the elements in the order
    of `axes`, which is that of `x` in memory and not that of a gradient.
    """
    if not x.dtype.is_floating_point:
        raise RuntimeError(
            f"result type Float can't be cast to the desired output type {x.dtype.legacy}"
        )
    dense = as_in_memory(x, axes).contiguous()
    scale = 1.0 / (1.0 - p) if p < 1 else 0.0
    made: Tensor = launch(
        kernels.dropout, (dense, place), [(dense.shape, x.dtype)], bind={"T": x.dtype},
        words=(x.numel(),), scalars=(float_word(scale), round(p * (1 << 32))),
        n=blocks_for(x.numel(), kernels.WORDS)[0], grain=max(1, GRAIN // (COST * kernels.WORDS)),
    )  # fmt: skip
    return put_back(made, axes)


drop.linear("x")


@drop.vjp
def _(g: Tensor, place: Tensor, p: float, axes: Shape) -> Any:
    return drop(g, place, p, axes), None


@drop.batched
def _(batch: Batch, x: Tensor, place: Tensor, p: float, axes: Shape) -> Tensor:
    of_one = ones(x.shape, dtype=x.dtype, device=x.device)
    return x * drop(of_one, place, p, axes)  # one mask for all


def dropped(x: Tensor, p: float, count: int | None = None) -> Tensor:
    """`drop` with fresh random words."""
    if not state.levels:
        return drop(x, fresh_place(x, count), p, axes_in_memory(x))

    def mask(lead: Shape) -> Tensor:
        whole = ones((*lead, *x.shape), dtype=x.dtype, device=x.device)
        made: Tensor = drop(whole, fresh_place(whole), p, axes_in_memory(whole))
        return made

    return x * for_examples(mask)


def written(x: Tensor, made: Tensor, inplace: bool) -> Tensor:
    """`made`, or `x` with it written into."""
    if not inplace:
        return made
    writing.check(x)
    return writing.adopt(x, made)


@export(namespace="nn.functional")
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero elements with probability `p` and scale the others by `1 / (1 - p)`.

    Args:
        input: any floating tensor.
        p: the probability.
        training: without it, `input` is returned as it is.
        inplace: whether to write the result into `input`.

    Returns:
        A tensor like `input`. Differentiable in `input`; the mask takes no memory.

    Raises:
        ValueError: if `p` is no probability.

    Example:
        >>> F.dropout(adjit.ones(3), p=0.0)
        tensor([1., 1., 1.])
    """
    check_probability(p)
    if not training or p == 0:
        return input
    return written(input, dropped(input, float(p)), inplace)


@export(name="dropout", inplace="only")
def plain_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """`nn.functional.dropout` with all arguments given.

    Raises:
        RuntimeError: if `p` is no probability.

    Example:
        >>> adjit.dropout(adjit.ones(3), 0.0, True)
        tensor([1., 1., 1.])
    """
    check_probability(p, RuntimeError)
    return dropout(input, p, train)


def channels_of(name: str, axes: int, ndim: int) -> int:
    """How many leading axes of an input number its channels: two where there is a batch.

    An input of three axes has one for `dropout2d` too, as it has in PyTorch: (N, C, L).

    Raises:
        RuntimeError: for an input that has no channels.
    """
    if axes == 1 and ndim not in (2, 3):
        raise RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {ndim}D input. Note that dropout1d exists to "
            "provide channel-wise dropout on inputs with 1 spatial dimension, a channel dimension, and an "
            "optional batch dimension (i.e. 2D or 3D inputs)."
        )
    if axes > 1 and ndim not in (axes + 1, axes + 2):
        errors.warn(
            f"{name}: Received a {ndim}-D input to {name}, which is deprecated and will result in an error in "
            "a future release. To retain the behavior and silence this warning, please use dropout instead. "
            f"Note that {name} exists to provide channel-wise dropout on inputs with {axes} spatial "
            f"dimensions, a channel dimension, and an optional batch dimension (i.e. {axes + 1}D or "
            f"{axes + 2}D inputs).",
        )
    if axes == 2 and ndim == 3:
        errors.warn(
            "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout behavior is "
            "desired - input is interpreted as shape (N, C, L), where C is the channel dim. This behavior will "
            "change in a future release to interpret the input as one without a batch dimension, i.e. shape "
            "(C, H, W). To maintain the 1D channel-wise dropout behavior, please switch to using dropout1d "
            "instead.",
        )
    leading = 2 if axes == 2 or ndim == axes + 2 else 1
    if ndim < leading:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    return leading


def channel_dropout(name: str, axes: int) -> Any:
    """`dropout1d` and its kin: whole channels of inputs of so many spatial axes are dropped."""

    def function(
        input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        check_probability(p)
        channels = input.shape[: channels_of(name, axes, input.ndim)]
        if not training or p == 0:
            return input
        ones = input.new_ones((*channels, *[1] * (input.ndim - len(channels))))
        return written(input, input * dropped(ones, float(p)), inplace)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""Zero whole channels with probability `p` and scale the others.

    Args:
        input: {"(N, C, H, W), or (N, C, L)" if axes == 2 else f"(N, C) or (C,) and {axes} more axes"}.
        p, training, inplace: as in `dropout`.

    Raises:
        ValueError: if `p` is no probability.
        RuntimeError: for an input without channels.

    Example:
        >>> F.{name}(adjit.ones({", ".join("2" * (axes + 2))}), p=0.0).sum()
        tensor({2.0 ** (axes + 2):.0f}.)
    """
    return export(namespace="nn.functional")(function)


dropout1d = channel_dropout("dropout1d", 1)
dropout2d = channel_dropout("dropout2d", 2)
dropout3d = channel_dropout("dropout3d", 3)
SATURATION = -1.7580993408473766  # where SELU ends on the left: -scale * alpha


@export(namespace="nn.functional")
def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Dropout that keeps mean and variance of what SELU gives.

    Elements are set to SELU's negative limit with probability `p`, and the result is scaled and
    shifted.

    Args:
        input: any floating tensor.
        p, training, inplace: as in `dropout`; `training` is False unless given.

    Raises:
        ValueError: if `p` is no probability.

    Example:
        >>> F.alpha_dropout(adjit.ones(2), p=0.5, training=False)
        tensor([1., 1.])
    """
    return saturated(input, p, training, inplace, input.shape)


@export(namespace="nn.functional")
def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """`alpha_dropout` of whole channels.

    Args:
        input: (N, C, *), floating point.
        p, training, inplace: as in `alpha_dropout`.

    Raises:
        ValueError: if `p` is no probability.
        RuntimeError: for an input of less than two dimensions.

    Example:
        >>> F.feature_alpha_dropout(adjit.ones(1, 1, 2), p=0.5, training=False)
        tensor([[[1., 1.]]])
    """
    check_channels(input, training, p)
    return saturated(input, p, training, inplace, (*input.shape[:2], *[1] * (input.ndim - 2)))


def check_channels(input: Tensor, train: bool, p: float) -> None:
    """Raise where whole channels are to be dropped and there are none."""
    if train and p not in (0, 1) and input.ndim < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")


@export(name="alpha_dropout", inplace="only")
def plain_alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """`nn.functional.alpha_dropout` with all arguments given.

    Raises:
        RuntimeError: if `p` is no probability.

    Example:
        >>> adjit.alpha_dropout(adjit.ones(2), 0.5, False)
        tensor([1., 1.])
    """
    check_probability(p, RuntimeError)
    return alpha_dropout(input, p, train)


@export(name="feature_alpha_dropout", inplace="only")
def plain_feature_alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """`nn.functional.feature_alpha_dropout` with all arguments given.

    Raises:
        RuntimeError: if `p` is no probability, or for an input of less than two dimensions.

    Example:
        >>> adjit.feature_alpha_dropout(adjit.ones(1, 2), 0.5, False)
        tensor([[1., 1.]])
    """
    check_probability(p, RuntimeError)
    return feature_alpha_dropout(input, p, train)


@export(inplace="only")
def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Zero whole channels of (N, C, *) with probability `p` and scale the others by `1 / (1 - p)`.

    Differentiable in `input`.

    Raises:
        RuntimeError: if `p` is no probability, or for an input of less than two dimensions.

    Example:
        >>> adjit.feature_dropout(adjit.ones(1, 2), 0.0, True)
        tensor([[1., 1.]])
    """
    check_probability(p, RuntimeError)
    check_channels(input, train, p)
    if not train or p == 0:
        return input
    ones_of_channels = input.detach().new_ones((*input.shape[:2], *[1] * (input.ndim - 2)))
    return input * dropped(ones_of_channels, float(p))


def saturated(input: Tensor, p: float, training: bool, inplace: bool, shape: Shape) -> Tensor:
    """Alpha dropout with one draw for each element of a shape that broadcasts to the input's."""
    check_probability(p)
    if not training or p == 0:
        return input
    if p == 1:
        return written(input, input * 0.0, inplace)
    scale = 1.0 / math.sqrt((1 - p) * (1 + p * SATURATION**2))
    ones = input.detach().new_ones(shape)
    kept = dropped(ones, float(p)) * (1 - p)
    shift = (1 - kept) * (SATURATION * scale) - p * SATURATION * scale
    return written(input, input * (kept * scale) + shift, inplace)
