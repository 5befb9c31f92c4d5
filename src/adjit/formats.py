"""Memory formats and layouts: in which order the elements of a tensor lie, and what PyTorch calls that."""

from __future__ import annotations

from typing import Any

from .shapes import Shape, contiguous_strides, dense_in_order, is_contiguous, is_dense

__all__ = [
    "channels_last", "channels_last_3d", "contiguous_format", "jagged", "layout", "memory_format",
    "preserve_format", "sparse_bsc", "sparse_bsr", "sparse_coo", "sparse_csc", "sparse_csr", "strided",
]  # fmt: skip


class Named:
    """A constant that prints and pickles by its name in `adjit`."""

    __slots__ = ("name",)
    __module__ = "adjit"

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"adjit.{self.name}"

    def __reduce__(self) -> str:
        return self.name


class memory_format(Named):
    """The order of the axes in memory: the type of `contiguous_format`, `preserve_format`,
    `channels_last` and `channels_last_3d`.

    Example:
        >>> x = adjit.empty(2, 3, 4, 5, memory_format=adjit.channels_last)
        >>> x.stride(), x.is_contiguous(memory_format=adjit.channels_last)
        ((60, 1, 15, 3), True)
    """

    __slots__ = ()


class layout(Named):
    """The ways to store elements: the type of `strided`, which is what every tensor here is, and of the
    others that PyTorch has.

    Example:
        >>> adjit.zeros(2).layout
        adjit.strided
        >>> adjit.zeros(2).layout == adjit.sparse_coo
        False
    """

    __slots__ = ()


contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")
strided = layout("strided")
sparse_coo = layout("sparse_coo")
sparse_csr, sparse_csc = layout("sparse_csr"), layout("sparse_csc")
sparse_bsr, sparse_bsc = layout("sparse_bsr"), layout("sparse_bsc")
jagged = layout("jagged")

# The axes from the one that is walked slowest to the one whose elements are neighbours.
_ORDERS = {channels_last: (0, 2, 3, 1), channels_last_3d: (0, 2, 3, 4, 1)}


def check_layout(function: str, wanted: Any) -> None:
    """Refuse a layout that no tensor has here.

    Raises:
        TypeError: if it is no layout.
        NotImplementedError: if it is another one than `strided`.
    """
    if wanted is None or wanted is strided:
        return
    if not isinstance(wanted, layout):
        raise TypeError(
            f"{function}(): argument 'layout' must be torch.layout, not {type(wanted).__name__}"
        )
    raise NotImplementedError(
        f"{function}(): tensors are strided, layout={wanted} is not supported; leave it out"
    )


def strides_in(shape: Shape, wanted: memory_format) -> Shape:
    """The strides of dense memory in a format.

    Raises:
        RuntimeError: with PyTorch's texts, if a shape has no such order, or none is asked for.
    """
    order = _ORDERS.get(wanted)
    if order is None:
        if wanted is not contiguous_format:
            raise RuntimeError("unsupported memory format Preserve")
        return contiguous_strides(shape)
    if len(shape) != len(order):
        raise RuntimeError(f"required rank {len(order)} tensor to use {wanted.name} format")
    strides, step = [0] * len(order), 1
    for d in reversed(order):
        strides[d] = step
        step *= shape[d]
    return tuple(strides)


def check(function: str, wanted: Any) -> None:
    """Refuse an argument that is no memory format.

    Raises:
        TypeError: with PyTorch's text.
    """
    if wanted is not None and not isinstance(wanted, memory_format):
        raise TypeError(
            f"{function}(): argument 'memory_format' must be torch.memory_format, not "
            f"{type(wanted).__name__}"
        )


def strides_like(shape: Shape, strides: Shape, wanted: memory_format | None) -> Shape:
    """The strides of new memory for what has these; those themselves where they are dense, unless a format
    is asked for."""
    if wanted is not None and wanted is not preserve_format:
        return strides_in(shape, wanted)
    return strides if is_dense(shape, strides) else dense_in_order(shape, [strides])


def is_in(spec: Any, wanted: memory_format) -> bool:
    """Whether the elements of what has a spec are reported to lie densely in the order of a format."""
    shape, strides = spec.shape, spec.reported
    order = _ORDERS.get(wanted)
    if order is None:
        return is_contiguous(shape, strides)
    if len(shape) != len(order):
        return False
    step = 1
    for d in reversed(order):
        if shape[d] != 1:
            if strides[d] != step:
                return False
            step *= shape[d]
    return True


def suggested(shape: Shape, strides: Shape) -> memory_format:
    """The format whose order of axes strides have, with gaps or without."""
    for wanted, order in _ORDERS.items():
        if len(order) == len(shape) and _ascends(shape, strides, order):
            return wanted
    return contiguous_format


def _ascends(shape: Shape, strides: Shape, order: Shape) -> bool:
    if not strides[1]:
        return False
    least = 0
    for d in reversed(order):
        if not shape[d] or strides[d] < least or (not d and least == strides[1]):
            return False
        least = strides[d] * max(shape[d], 1)
    return True
