"""Fractional max pooling: windows of one size at places that are drawn for each channel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import dtypes
from ..graph.export import export
from ..graph.operation import Operation, operation
from ..shapes import Shape, for_each
from ..tensor import Tensor
from . import creation, random
from .comparison import where
from .joining import cat
from .pool import Sizes, add_at_places, refuse, take_at_places

LETTERS = ("time", "height", "width")


def taking(n: int) -> Operation:
    """The op that takes the largest elements, whose places were found, over `n` axes."""

    @operation(f"FractionalMaxPool{n}DBackward0")
    def largest_at_places(x: Tensor, places: Tensor, size: Shape) -> Tensor:
        """The elements at places of a tensor with this spatial size."""
        taken: Tensor = take_at_places(x, places, size)
        return taken

    largest_at_places.linear("x")

    @largest_at_places.vjp
    def _(g, places, size):  # type: ignore[no-untyped-def]
        return add_at_places(g, places, size), None

    largest_at_places.batched_as_body()

    return largest_at_places


TAKING = {n: taking(n) for n in (2, 3)}


def window_starts(drawn: Tensor, size: int, kernel: int, out: int) -> Tensor:
    """Where the windows of each channel begin along an axis: (N, C) numbers to (N, C, out).

    The steps between them are two whole numbers next to each other; the last window ends at the end.
    """
    drawn, last = drawn.unsqueeze(-1), size - kernel
    apart = last / (out - 1) if out > 1 else 0.0
    before = creation.arange(max(out - 1, 0), dtype=drawn.dtype, device=drawn.device)
    starts = ((before + drawn) * apart).to(dtypes.int64) - (drawn * apart).to(dtypes.int64)
    end = creation.full((*drawn.shape[:2], 1), last, dtype=dtypes.int64, device=drawn.device)
    return cat([starts, end], -1)[..., :out]


def elements_of_windows(drawn: Tensor, size: Shape, kernel: Shape, out: Shape) -> Tensor:
    """Flat places of what each window sees: (N, C, *out, elements of a window)."""
    n = len(size)
    columns = (1, 0) if n == 2 else (0, 1, 2)  # as PyTorch has them: of two, the width comes first
    places: Any = 0
    for axis in range(n):
        starts = window_starts(drawn[..., columns[axis]], size[axis], kernel[axis], out[axis])
        within = creation.arange(kernel[axis], device=drawn.device)
        along = [1] * (2 * n)
        along[axis] = out[axis]
        across = [1] * n
        across[axis] = kernel[axis]
        places = places * size[axis] + starts.reshape(*drawn.shape[:2], *along)
        places = places + within.reshape(across)
    found: Tensor = places.flatten(-n)
    return found


def place_of_largest(values: Tensor) -> Tensor:
    """Where along the last axis the largest elements are: the first of equals, the last of NaNs."""
    numbers = creation.arange(1, values.shape[-1] + 1, device=values.device)
    last_nan = (values.isnan() * numbers).amax(-1, True)
    found: Tensor = where(last_nan > 0, last_nan - 1, values.argmax(-1, True))
    return found


def settings_of(
    name: str, n: int, input: Tensor, kernel_size: Sizes, output_size: Any, output_ratio: Any
) -> tuple[Shape, Shape]:
    """The sizes of a window and of the result, checked.

    Raises:
        ValueError: if neither a size nor a ratio of the result is given.
        RuntimeError: if shapes and sizes do not fit.
    """
    if output_size is None and output_ratio is None:
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    text = f"{name}()" if n == 2 else f"{name}_out()"
    if input.ndim not in (n + 1, n + 2):
        raise RuntimeError(
            f"{text}: Expected {n + 1}D or {n + 2}D tensor, but got: {list(input.shape)}"
        )
    size = input.shape[input.ndim - n :]
    if output_size is None:
        ratios = (output_ratio,) * n if isinstance(output_ratio, float) else tuple(output_ratio)
        if len(ratios) != n:
            raise ValueError(
                f"{name} requires output_ratio to either be a single Int or tuple of Ints."
            )
        output_size = [int(length * ratio) for length, ratio in zip(size, ratios, strict=True)]
    sizes = []
    for what, value in (("kernel_size", kernel_size), ("output_size", output_size)):
        given = for_each(value, n)
        if len(given) != n:
            ints = "Ints" if n == 2 else "three Ints"
            raise RuntimeError(f"{name}: {what} must either be a single Int or tuple of {ints}")
        sizes.append(given)
    kernel, out = sizes
    for axis in range(input.ndim - n - 1, input.ndim):
        if input.shape[axis] == 0:
            raise RuntimeError(
                f"{text}: Expected input to have non-zero size for non-batch dimensions, but got"
                f"{list(input.shape)} with dimension {axis} being empty."
            )
    for letter, length, window, count in zip(LETTERS[-n:], size, kernel, out, strict=True):
        if count + window - 1 > length:
            raise RuntimeError(
                f"{text}: pool {letter} {window} too large relative to input {letter} {length}"
            )
        if window < 1 or count < 0:
            raise RuntimeError(
                f"{text}: windows need at least one element, and results no fewer than 0"
            )
    return kernel, out


def check_samples(samples: Tensor, x: Tensor, n: int) -> None:
    """The numbers that say where windows lie must fit the images, (N, C, *)."""
    if samples.dtype is not x.dtype:
        raise RuntimeError("Expect _random_samples to have the same dtype as input")
    if samples.ndim != 3:
        raise RuntimeError(f"Expect _random_samples to have 3 dimensions, got {samples.ndim}")
    if samples.shape[0] < x.shape[0]:
        raise RuntimeError("Expect _random_samples.size(0) no less then input batch size.")
    if samples.shape[1] != x.shape[1]:
        raise RuntimeError("Expect _random_samples.size(1) equals to input channel size.")
    if samples.shape[2] != n:
        raise RuntimeError(f"Expect _random_samples.size(2) equals to {n}; got {samples.shape[2]}.")


def fractional_max_pool(n: int) -> tuple[Callable[..., Any], Callable[..., tuple[Tensor, Tensor]]]:
    """`fractional_max_pool2d` or 3d, and the same with the places of the elements."""
    name = f"fractional_max_pool{n}d"

    def both(
        input: Tensor,
        kernel_size: Sizes,
        output_size: Sizes | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        kernel, out = settings_of(name, n, input, kernel_size, output_size, output_ratio)
        refuse(f"{name}_out_frame", input, "b", "i", "u")
        x = input if input.ndim == n + 2 else input.unsqueeze(0)
        if _random_samples is None:
            shape = (*x.shape[:2], n)
            _random_samples = random.rand(*shape, dtype=x.dtype, device=x.device)
        check_samples(_random_samples, x, n)
        size = tuple(x.shape[2:])
        seen = elements_of_windows(_random_samples[: x.shape[0]], size, kernel, out)
        values = x.detach().flatten(2).gather(-1, seen.flatten(2)).reshape(seen.shape)
        places = seen.gather(-1, place_of_largest(values)).squeeze(-1)
        values = TAKING[n](x, places, size)
        if input.ndim == n + 1:
            return values.squeeze(0), places.squeeze(0)
        return values, places

    def one(
        input: Tensor,
        kernel_size: Sizes,
        output_size: Sizes | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> Any:
        found = both(input, kernel_size, output_size, output_ratio, True, _random_samples)
        return found if return_indices else found[0]

    one.__name__ = one.__qualname__ = name
    one.__doc__ = f"""The largest elements of windows at random places over the last {n} axes.

    The steps from window to window are two whole numbers next to each other, in an order that is
    drawn for each channel (Graham, 2014).

    Differentiable in `input`; the gradient goes to the first of equal elements.

    Args:
        input: (N, C, *) or (C, *), floating point.
        kernel_size: the size of a window, one number or one for each axis.
        output_size: how many windows an axis has, one number or one for each axis.
        output_ratio: that as a part of the input's size, instead.
        return_indices: whether to return the places of the elements too, as flat int64 numbers.

    Raises:
        ValueError: if neither `output_size` nor `output_ratio` is given.
        RuntimeError: if shapes and sizes do not fit.

    Example:
        >>> F.fractional_max_pool{n}d(adjit.ones(1, 1{", 5" * n}), 2, output_size=3).shape
        adjit.Size([1, 1{", 3" * n}])
    """
    both.__name__ = both.__qualname__ = f"{name}_with_indices"
    both.__doc__ = f"""Call `{name}` with `return_indices`: the elements and their places.

    Example:
        >>> x = adjit.ones(1, 1{", 5" * n})
        >>> values, places = F.{name}_with_indices(x, 2, output_size=3)
        >>> places.shape
        adjit.Size([1, 1{", 3" * n}])
    """
    exported = export(namespace="nn.functional")
    return exported(one), exported(both)


fractional_max_pool2d, fractional_max_pool2d_with_indices = fractional_max_pool(2)
fractional_max_pool3d, fractional_max_pool3d_with_indices = fractional_max_pool(3)
