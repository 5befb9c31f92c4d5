"""Places and elements that a mask chooses."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..devices import CPU
from ..dtypes import carrier
from ..graph.batching import Batch
from ..graph.composed import composed
from ..graph.export import export
from ..graph.inplace import write_out
from ..graph.launch import launch
from ..graph.levels import elements_of, tracers
from ..graph.node import dense_spec, spec_of
from ..graph.operation import operation
from ..graph.record import result
from ..kernels.language.abi import STATUS_VALUE
from ..kernels.ops import index as kernels
from ..schedule.planning.recipe import GRAIN
from ..shapes import Shape, an_int, broadcast_shapes, numel, sized
from ..tensor import Tensor
from . import creation
from .tables import IN_BRACKETS, IN_FLAT, at_least_1d, read_rows


def block_ends(mask: Tensor) -> Tensor:
    """How many elements that are not 0 lie before each block of a dense tensor, and in all."""
    size = mask.numel()
    blocks = -(-size // kernels.COUNT_BLOCK)
    return launch(
        [
            (kernels.count_blocks, blocks, max(1, GRAIN // kernels.COUNT_BLOCK)),
            (kernels.count_before, 1, 1),
        ],
        (mask,), [((blocks + 1,), dtypes.int64)], bind={"T": mask.dtype}, words=(size,),
    )  # fmt: skip


def untraced(name: str, x: Tensor) -> Tensor:
    """A tensor with the elements of `x`, on which the shape of a result depends: not inside of `vmap`."""
    found = elements_of(x) if tracers else x
    if found is None:
        raise RuntimeError(
            "vmap: We do not support batching operators that can output dynamic shape. Attempted to vmap over "
            f"aten::{name}. Please file an issue at https://github.com/pytorch/pytorch/issues if you need this "
            "feature."
        )
    return found


def refuse_traced(name: str, x: Tensor) -> None:
    """Raise inside of transforms, for ops with results of a floating dtype that have no derivative."""
    if untraced(name, x) is not x:
        raise NotImplementedError(
            f"Trying to use forward AD with {name} that does not support it because it has not been "
            "implemented yet."
        )


@export(method=True)
def nonzero(input: Tensor, *, as_tuple: bool = False, out: Any = None) -> Any:
    """The places of all elements that are not 0, in order.

    The number of places is a value, so the tensor is evaluated here.

    Args:
        input: any tensor.
        as_tuple: whether to give one vector for each axis, as indexing takes them.
        out: a tensor to write the places into.

    Returns:
        An int64 tensor (places, axes), in memory column by column, or the tuple of its columns.
        Not differentiable.

    Example:
        >>> adjit.nonzero(adjit.tensor([0, 3, 0, 4]))
        tensor([[1],
                [3]])
    """
    if out is not None:
        if as_tuple and isinstance(out, Tensor):
            raise RuntimeError("nonzero does not support the out kwarg when as_tuple is True")
        if isinstance(out, Tensor) and out.dtype is not dtypes.int64:
            raise RuntimeError(
                "nonzero: Expected out tensor to have scalar type Long but got scalar type"
                f"{out.dtype.legacy}"
            )
        return write_out("nonzero", out, nonzero(input))
    input = untraced("nonzero", input)
    if as_tuple:
        return tuple(nonzero(at_least_1d(input)).unbind(1))
    axes, size = input.ndim, input.numel()
    if axes and size <= kernels.COUNT_BLOCK and input.device is CPU:
        room, found = places_of_few(input)
        few = int(found.item())
        spec = spec_of(sized((few, axes)), (1, few), dtypes.int64)
        return result(room._storage.value, spec)
    x = input.detach().contiguous()
    ends = block_ends(x)
    count = int(ends[-1].item())
    if not axes:
        return creation.empty((count, 0), dtype=dtypes.int64, device=input.device)
    columns: Tensor = launch(
        kernels.list_places, (x, ends), [((axes, count), dtypes.int64)],
        bind={"T": x.dtype}, words=(size, count, axes, *x.shape),
        n=ends.numel() - 1 if count else 0, grain=max(1, GRAIN // kernels.COUNT_BLOCK),
    )  # fmt: skip
    return columns.t()


@export(method=True, out=True)
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """`nonzero` with a given number of rows: the first places, and rows of a number after the last one.

    Args:
        input: any tensor.
        size: how many rows there are.
        fill_value: what the rows without a place are filled with.

    Returns:
        An int64 tensor (size, axes). Not differentiable.

    Raises:
        RuntimeError: if `size` is negative.

    Example:
        >>> adjit.nonzero_static(adjit.tensor([0, 3, 0, 4]), size=3)
        tensor([[ 1],
                [ 3],
                [-1]])
    """
    size = an_int("nonzero_static", "size", 2, size)
    fill_value = an_int("nonzero_static", "fill_value", 3, fill_value)
    if size < 0:
        raise RuntimeError("nonzero_static: 'size' must be an non-negative integer")
    found = nonzero(input)[:size]
    rows = creation.full((size, input.ndim), fill_value, dtype=dtypes.int64, device=input.device)
    rows[: len(found)] = found
    return rows


@operation("NonzeroBackward0", differentiable=())
def places_of_few(x: Tensor) -> tuple[Tensor, Tensor]:
    """Memory for the places of all elements, in which those come first that are not 0, and how many these
    are: found at once, where they would be counted before.
    """
    return launch(
        kernels.list_few, (x.contiguous(),), [((x.numel(), x.ndim), dtypes.int64), ((1,), dtypes.int64)],
        bind={"T": x.dtype}, words=(x.numel(), x.ndim, *x.shape), n=1,
    )  # fmt: skip


MOST_PICKED = 16 << 10  # elements of a tensor whose rows are picked by one kernel


def rows_where(x: Tensor, mask: Tensor) -> Tensor:
    """The rows of `x` where a mask over its first axes is set, without history."""
    rest = tuple(x._spec.shape)[mask.ndim :]
    if mask.numel() <= kernels.COUNT_BLOCK and x.numel() <= MOST_PICKED and x._spec.device is CPU:
        room, found = picked_few(x, mask)
        return result(room._storage.value, dense_spec((int(found.item()), *rest), x._spec.dtype))
    places = nonzero(mask.reshape(-1)).reshape(-1)
    return read_rows(x.detach().reshape(mask.numel(), *rest), [0], [places], IN_BRACKETS)


@operation("IndexBackward0", differentiable=())
def picked_few(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Memory for all rows of `x`, in which those come first that the mask chooses, and how many these are."""
    width = numel(tuple(x.shape)[mask.ndim :])
    return launch(
        kernels.pick_few, (x.contiguous(), mask.contiguous()), [(x.shape, x.dtype), ((1,), dtypes.int64)],
        bind={"T": carrier(x.dtype), "X": dtypes.bool}, words=(mask.numel(), width), n=1,
    )  # fmt: skip


@export(method=True)
def argwhere(input: Tensor) -> Tensor:
    """The places of all elements that are not 0, one row for each; see `nonzero`.

    Example:
        >>> adjit.argwhere(adjit.tensor([[0, 1], [1, 0]]))
        tensor([[0, 1],
                [1, 0]])
    """
    return nonzero(input)


@export(method=True, out=True)
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where a mask is True, as a vector.

    The number of elements is a value, so the mask is evaluated here.

    Args:
        input: any tensor.
        mask: bool; broadcasts with `input`.

    Returns:
        A vector. Differentiable in `input`.

    Raises:
        RuntimeError: if `mask` is not bool.

    Example:
        >>> x = adjit.tensor([1., -2., 3.])
        >>> adjit.masked_select(x, x > 0)
        tensor([1., 3.])
    """
    if mask.dtype is not dtypes.bool:
        raise RuntimeError("masked_select: expected BoolTensor for mask")
    shape = broadcast_shapes(input.shape, mask.shape)
    whole = mask if mask.shape == shape else mask.expand(shape)
    if tracers and elements_of(whole) is None:
        raise RuntimeError(
            "vmap: Attempted to vmap over `mask` in torch.masked_select(self, mask) We cannot support this "
            "because for each batch this would return a differently shaped Tensor. Please file an issue at "
            "https://github.com/pytorch/pytorch/issues if you need this feature."
        )
    places = nonzero(whole.reshape(-1)).reshape(-1)
    return select_masked(input, mask, places, shape)


@operation("MaskedSelectBackward0")
def select_masked(x: Tensor, mask: Tensor, places: Tensor, shape: Shape) -> Tensor:
    """The elements where the mask is set, after broadcasting to `shape`; these lie in flat places."""
    return read_rows(x.expand(shape).reshape(-1), [0], [places], IN_FLAT)


select_masked.linear("x")


@select_masked.vjp
def _(g: Tensor, mask: Tensor, shape: Shape) -> Any:
    return masked_scatter(g.new_zeros(shape), mask, g), None, None


@select_masked.batched
def _(batch: Batch, x: Tensor, mask: Tensor, places: Tensor, shape: Shape) -> Tensor:
    rows = batch.full(x.expand(shape)).reshape(batch.size, -1)
    return batch.wrapped(read_rows(rows, [1], [places], IN_FLAT))


@export(method=True, inplace=True)
@composed
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """`input` with the elements where a mask is True replaced by those of `source`, in order.

    Args:
        input: any tensor; broadcasts with `mask`.
        mask: bool.
        source: of the same dtype, with at least as many elements as the mask has True.

    Returns:
        A tensor of the common shape. Differentiable in `input` and `source`.

    Raises:
        RuntimeError: if `source` has too few elements, or a dtype does not fit.

    Example:
        >>> mask = adjit.tensor([True, False, True])
        >>> adjit.zeros(3).masked_scatter(mask, adjit.tensor([1., 2.]))
        tensor([1., 0., 2.])
    """
    if input.dtype is not source.dtype:
        raise RuntimeError(
            "masked_scatter: expected self and source to have same dtypes but got"
            f"{input.dtype.legacy} and {source.dtype.legacy}"
        )
    if mask.dtype is not dtypes.bool:
        raise RuntimeError(
            "masked_scatter_ only supports boolean masks, but got mask with dtype "
            f"{mask.dtype.legacy}"
        )
    shape = broadcast_shapes(input.shape, mask.shape)
    return scatter_masked(input.expand(shape), mask.expand(shape), source, source.shape)


TOO_FEW = "Number of elements of source < number of ones in mask"


@operation("MaskedScatterBackward0")
def scatter_masked(x: Tensor, mask: Tensor, source: Tensor, shape: Shape) -> Tensor:
    """`x` with the elements of `source`, which has this shape, where the mask is set."""
    base, chosen, values = x.contiguous(), mask.contiguous(), source.contiguous()
    ends = block_ends(chosen)
    return launch(
        kernels.fill_masked, (base, chosen, values, ends), [(x.shape, x.dtype)],
        bind={"T": carrier(x.dtype), "X": dtypes.bool}, words=(x.numel(), source.numel()),
        n=-(-x.numel() // kernels.COUNT_BLOCK), grain=max(1, GRAIN // kernels.COUNT_BLOCK),
        fallible=True, messages={STATUS_VALUE: (RuntimeError, TOO_FEW)},
    )  # fmt: skip


scatter_masked.linear("x", "source")


@scatter_masked.vjp
def _(g: Tensor, mask: Tensor, shape: Shape) -> Any:
    picked = masked_select(g, mask)
    rest = g.new_zeros(numel(shape) - picked.numel())
    from .joining import cat

    return g.masked_fill(mask, 0), None, cat([picked, rest]).view(shape)


@scatter_masked.batched
def _(batch: Batch, x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    places = (mask.reshape(-1).cumsum(0) - 1).clamp(min=0).masked_fill(~mask.reshape(-1), 0)
    taken = source.reshape(-1).gather(0, places)
    return taken.reshape(x.shape).where(mask, x)
