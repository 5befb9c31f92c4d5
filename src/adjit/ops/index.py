"""Reading and writing by index: what stands in brackets, and the functions that take places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..dtypes import dtype
from ..graph.op import export, operation
from ..graph.record import launch
from ..graph.state import state
from ..graph.view import alias
from ..kernels import index as kernels
from ..kernels.abi import STATUS_INDEX, STATUS_VALUE
from ..schedule.recipe import GRAIN
from ..shapes import Shape, broadcast_shapes, coalesce, contiguous_strides, numel, wrap_dim
from ..tensor import Tensor
from . import creation, view

Indices = Sequence[Tensor | None]

CARRIERS = {1: dtypes.uint8, 2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}


def carrier(kind: dtype) -> dtype:
    """The dtype that kernels move elements of `kind` as."""
    return CARRIERS[kind.itemsize]


def out_of_bounds(kind: type[Exception], prefix: str = "") -> dict[int, Any]:
    """The message for an index that is out of bounds."""
    text = prefix + "index {0} is out of bounds for dimension {1} with size {2}"
    return {STATUS_INDEX: (kind, text)}


IN_BRACKETS = out_of_bounds(IndexError)
IN_GRID = out_of_bounds(RuntimeError)
IN_SELF = {STATUS_INDEX: (IndexError, "index out of range in self")}
IN_FLAT = {
    STATUS_INDEX: (
        IndexError, "out of range: tried to access index {0} on a tensor of {2} elements."
    )
}  # fmt: skip


# --------------------------------------------------------------------------- tables


def merged(shape: Shape, strides: Shape) -> tuple[int, int] | None:
    """Neighbouring axes as one: its size and stride, or None if there is no such stride."""
    if 0 in shape:
        return 0, 1
    sizes, (steps,) = coalesce(shape, [strides])
    if len(sizes) > 1:
        return None
    return (sizes[0], steps[0]) if sizes else (1, 1)


class Table:
    """A tensor seen as [outer, indexed axes, inner].

    Where the indexed axes are not neighbours, `x` has them in front, and `back` undoes that.
    """

    __slots__ = ("axes", "back", "count", "first", "indices", "inner", "outer", "shape", "x")

    def __init__(
        self,
        x: Tensor,
        axes: Sequence[int],
        indices: Sequence[Tensor],
        *,
        wrap: bool = True,
        names: Sequence[int] | None = None,
    ) -> None:
        numbers = list(axes)
        first = axes[0]
        self.back: list[int] | None = None
        if numbers != list(range(first, first + len(axes))):
            order = numbers + [d for d in range(x.ndim) if d not in numbers]
            self.back = [order.index(d) for d in range(x.ndim)]
            x, first = x.permute(order), 0
        self.first = first
        after = first + len(axes)
        shape, strides = tuple(x.shape), tuple(x.stride())
        outer = merged(shape[:first], strides[:first])
        inner = merged(shape[after:], strides[after:])
        if outer is None or inner is None:
            x = x.contiguous()
            strides = tuple(x.stride())
            outer = merged(shape[:first], strides[:first])
            inner = merged(shape[after:], strides[after:])
            assert outer is not None
            assert inner is not None
        self.x, self.outer, self.inner = x, outer, inner
        places = broadcast_indices(indices)
        self.count = numel(places)
        self.indices = stacked(indices, places)
        self.shape = (*shape[:first], *places, *shape[after:])
        self.axes: list[int] = [len(numbers)]
        for number, size, step in zip(
            names or numbers, shape[first:after], strides[first:after], strict=True
        ):
            if size == 0 and self.count:
                raise IndexError("index is out of bounds for dimension with size 0")
            self.axes += [number, size, step, -size if wrap else 0]

    def groups(self, values: Tensor) -> tuple[Tensor, tuple[int, int, int]]:
        """Values that broadcast to the table's rows, and their strides over (outer, row, inner)."""
        spread = values.expand(self.shape)
        places = len(self.shape) - (self.x.ndim - self.first - self.axes[0])
        cuts = slice(0, self.first), slice(self.first, places), slice(places, None)
        for candidate in (spread, spread.contiguous()):
            strides = tuple(candidate.stride())
            found = [merged(self.shape[cut], strides[cut]) for cut in cuts]
            if None not in found:
                break
        outer, row, inner = (group[1] if group else 0 for group in found)
        return candidate, (outer, row, inner)


def broadcast_indices(indices: Sequence[Tensor]) -> Shape:
    """The common shape of index tensors."""
    try:
        return tuple(broadcast_shapes(*[i.shape for i in indices]))
    except RuntimeError:
        shapes = ", ".join(str(list(i.shape)) for i in indices)
        raise IndexError(
            "shape mismatch: indexing tensors could not be broadcast together with shapes " + shapes
        ) from None


def stacked(indices: Sequence[Tensor], shape: Shape) -> Tensor:
    """All indices as int64, one indexed axis after the other."""
    if len(indices) == 1:
        return indices[0].to(dtypes.int64).contiguous()
    from .shape import stack

    return stack([i.to(dtypes.int64).expand(shape) for i in indices])


def read_rows(
    x: Tensor, axes: Sequence[int], indices: Sequence[Tensor], messages: dict[int, Any],
    *, wrap: bool = True, names: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """The rows of a table that the indices name, recorded."""
    table = Table(x, axes, indices, wrap=wrap, names=names)
    (outer, outer_step), (inner, inner_step) = table.outer, table.inner
    return launch(
        kernels.read_table, (table.x, table.indices), [(table.shape, x.dtype)],
        bind={"T": carrier(x.dtype)},
        words=(table.count, outer_step, inner, inner_step, *table.axes),
        n=outer * table.count if inner else 0, grain=max(1, GRAIN // max(inner, 1)),
        fallible=True, messages=messages,
    )  # fmt: skip


def write_rows(
    x: Tensor, axes: Sequence[int], indices: Sequence[Tensor], values: Tensor,
    messages: dict[int, Any], *, add: bool = False, wrap: bool = True, skip: int | None = None,
    names: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """`x` with values written to, or added to, the rows that the indices name, recorded."""
    table = Table(x.contiguous(), axes, indices, wrap=wrap, names=names)
    base, back = table.x.contiguous(), table.back
    if back is not None:
        table = Table(base, range(len(axes)), indices, wrap=wrap, names=names or axes)
    values, steps = table.groups(values)
    (outer, outer_step), (inner, inner_step) = table.outer, table.inner
    skipped = -(1 << 62) if skip is None else skip
    kind = x.dtype if add else carrier(x.dtype)
    units = outer * inner if table.count else 0
    out = launch(
        [
            (kernels.copy_elements, base.numel(), GRAIN),
            (
                kernels.add_to_table if add else kernels.write_table,
                units, max(1, GRAIN // max(table.count, 1)),
            ),
        ],
        (base, table.indices, values), [(base.shape, x.dtype)], bind={"T": kind},
        words=(
            table.count, outer_step, max(inner, 1), inner_step, *steps, skipped, *table.axes,
        ),
        fallible=True, messages=messages,
    )  # fmt: skip
    over_first(out, base)
    return out if back is None else out.permute(back)


def over_first(out: Tensor, first: Tensor) -> Tensor:
    """Let a node that begins by copying `first` write over its bytes where nobody else looks."""
    node = out.storage.value
    if (
        node.recipe is not None
        and first.spec is first.storage.spec is out.spec
        and not first.offset
    ):
        node.recipe.alias = node.recipe
    return out


# --------------------------------------------------------------------------- brackets


def getitem(x: Tensor, key: Any) -> Tensor:
    """`x[key]`: a view for ints, slices, None and `...`; a copy once a tensor or list is there."""
    kind = key.__class__
    if kind is int:
        if not x.ndim:
            raise_zero_dim()
        return picked(x, 0, key, 0)
    if kind is slice:
        if not x.ndim:
            raise_zero_dim()
        return sliced(x, 0, key)
    viewed, indices = walk(x, key)
    if indices is None:
        return alias_of(x) if viewed is x else viewed
    return read(viewed, indices)


def setitem(x: Tensor, key: Any, value: Any) -> None:
    """`x[key] = value`, in place and with gradients to both."""
    value = as_value(x, value)
    mask = as_mask(x, key)
    if mask is not None and value.ndim == 0:
        x.masked_fill_(mask.view(*mask.shape, *[1] * (x.ndim - mask.ndim)), value.to(x.dtype))
        return
    viewed, indices = walk(x, key)
    if indices is not None:
        viewed.index_put_(tuple(indices), value)
        return
    while value.ndim > viewed.ndim and value.shape[0] == 1:
        value = value.squeeze(0)
    viewed.copy_(value)


def as_value(x: Tensor, value: Any) -> Tensor:
    """What is assigned, as a tensor."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (bool, int, float, np.number, np.bool_)):
        return creation.full((), value, dtype=x.dtype)
    name = type(value).__name__
    if isinstance(value, np.ndarray):
        name = "numpy.ndarray"
    raise TypeError(f"can't assign a {name} to a torch.{x.dtype.legacy}Tensor")


def as_mask(x: Tensor, key: Any) -> Tensor | None:
    """The key where it is one boolean mask over leading axes of `x`."""
    if isinstance(key, Tensor) and key.dtype is dtypes.bool and 0 < key.ndim <= x.ndim:
        check_mask(key, 0, x)
        return key
    return None


def alias_of(x: Tensor) -> Tensor:
    """A view of all of `x`."""
    return alias(x, x.shape, x.stride(), x.storage_offset(), "AliasBackward0", lambda g: g)  # type: ignore[no-any-return]


def raise_zero_dim() -> None:
    """Raise for an index into a tensor without axes."""
    raise IndexError(
        "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in "
        "C++ to convert a 0-dim tensor to a number"
    )


def picked(x: Tensor, dim: int, k: int, axis: int) -> Tensor:
    """`x` with one index of an axis, which is called `axis` in the error."""
    size = x.shape[dim]
    if not -size <= k < size:
        raise IndexError(f"index {k} is out of bounds for dimension {axis} with size {size}")
    return view.select(x, dim, k)


def sliced(x: Tensor, dim: int, key: slice) -> Tensor:
    """`x` with a slice along an axis."""
    step = key.step
    if step is not None and step.__index__() < 1:
        raise ValueError(
            "slice step cannot be zero"
            if step.__index__() == 0
            else "step must be greater than zero"
        )
    start, stop, step = key.indices(x.shape[dim])
    return view.slice_dim(x, dim, start, max(start, stop), step)


def is_full(key: slice) -> bool:
    """Whether a slice is `:`."""
    return key.start is None and key.stop is None and key.step is None


def walk(x: Tensor, key: Any) -> tuple[Tensor, list[Tensor | None] | None]:
    """The view that the plain parts of a key make, and an index or None for each of its axes."""
    items = key if isinstance(key, tuple) else tuple(key) if is_tuple_in_disguise(key) else (key,)
    taken = sum(axes_taken(item) for item in items)
    if taken > x.ndim:
        if x.ndim == 0:
            raise_zero_dim()
        raise IndexError(f"too many indices for tensor of dimension {x.ndim}")
    found: dict[int, Tensor] = {}
    viewed, dim, axis = x, 0, 0
    for item in items:
        kind = item.__class__
        if kind is int:
            viewed = picked(viewed, dim, item, axis)
        elif kind is slice:
            if len(items) == 1 or not is_full(item):
                viewed = sliced(viewed, dim, item)
            dim += 1
        elif item is None:
            viewed = view.unsqueeze(viewed, dim)
            dim += 1
        elif item is Ellipsis:
            dim += x.ndim - taken
            axis += x.ndim - taken - 1
            taken = x.ndim
        elif isinstance(item, (bool, np.bool_)):
            viewed = view.unsqueeze(viewed, dim)
            found[dim] = creation.zeros(1 if item else 0, dtype=dtypes.int64)
            dim += 1
        else:
            viewed, dim = walk_tensor(viewed, dim, item, axis, found)
        axis += 1
    if not found:
        return viewed, None
    return viewed, [found.get(d) for d in range(max(found) + 1)]


def walk_tensor(
    viewed: Tensor, dim: int, item: Any, axis: int, found: dict[int, Tensor]
) -> tuple[Tensor, int]:
    """One step of `walk` over an index that holds values."""
    index = as_index(item)
    if index is None:
        return picked(viewed, dim, int(item.__index__()), axis), dim
    if index.dtype in (dtypes.bool, dtypes.uint8):
        if index.ndim == 0:
            viewed = view.unsqueeze(viewed, dim)
            index = index.reshape(1)
        check_mask(index, dim, viewed)
        for place in nonzero(index, as_tuple=True):
            found[dim] = place
            dim += 1
        return viewed, dim
    if index.dtype not in (dtypes.int64, dtypes.int32, dtypes.int16, dtypes.int8):
        raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    if index.ndim == 0 and isinstance(item, Tensor):
        return picked(viewed, dim, int(index.item()), axis), dim
    found[dim] = index
    return viewed, dim + 1


def is_tuple_in_disguise(key: Any) -> bool:
    """Whether a list stands for a tuple: PyTorch reads `x[[0, slice(1)]]` as `x[0, :1]`."""
    return (
        isinstance(key, list)
        and len(key) < 32
        and any(
            isinstance(item, (Tensor, list, tuple, slice, np.ndarray))
            or item is Ellipsis
            or item is None
            for item in key
        )
    )


def axes_taken(item: Any) -> int:
    """How many axes of the tensor a part of a key uses up."""
    if item.__class__ is int or item.__class__ is slice:
        return 1
    if item is None or item is Ellipsis or isinstance(item, (bool, np.bool_)):
        return 0
    if isinstance(item, Tensor) and item.dtype in (dtypes.bool, dtypes.uint8):
        return item.ndim
    if isinstance(item, np.ndarray) and item.dtype == np.bool_:
        return item.ndim
    if isinstance(item, (list, tuple)):
        nested = np.asarray(item, dtype=object) if contains_tensor(item) else np.asarray(item)
        return nested.ndim if nested.dtype == np.bool_ else 1
    return 1


def contains_tensor(items: Sequence[Any]) -> bool:
    """Whether a list holds tensors."""
    return any(isinstance(i, Tensor) for i in items)


def as_index(item: Any) -> Tensor | None:
    """An index as a tensor; None where it is one integer of another type than int."""
    if isinstance(item, Tensor):
        return item
    if isinstance(item, (list, tuple, range, np.ndarray)):
        if isinstance(item, np.ndarray):
            return creation.from_numpy(np.ascontiguousarray(item))
        made = creation.tensor(list(item))
        return made.to(dtypes.int64) if made.numel() == 0 else made
    if isinstance(item, str):
        raise TypeError(f"new(): invalid data type '{type(item).__name__}'")
    if hasattr(item, "__index__"):
        return None
    raise IndexError(
        "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid "
        f"indices (got {type(item).__name__})"
    )


def check_mask(mask: Tensor, dim: int, x: Tensor) -> None:
    """Raise if a mask does not fit the axes it stands on."""
    for d in range(mask.ndim):
        if dim + d >= x.ndim or mask.shape[d] != x.shape[dim + d]:
            raise IndexError(
                f"The shape of the mask {list(mask.shape)} at index {d} does not match the shape "
                f"of the indexed tensor {list(x.shape)} at index {dim + d}"
            )


# --------------------------------------------------------------------------- index, index_put


def read(x: Tensor, indices: Indices) -> Tensor:
    """`x[indices]` for integer indices, None where an axis is kept."""
    return index(x, list(indices), x.shape)


@operation("IndexBackward0")
def index(x: Tensor, indices: Indices, shape: Shape) -> Tensor:
    """The elements of `x`, which has this shape, at the given places."""
    axes = [d for d, i in enumerate(indices) if i is not None]
    places = [i for i in indices if i is not None]
    return read_rows(x, axes, places, IN_BRACKETS, names=range(len(axes)))


@index.vjp
def _(g: Tensor, indices: Indices, shape: Shape) -> Any:
    return put(g.new_zeros(shape), indices, g, True), None


@operation("IndexPutBackward0")
def put(x: Tensor, indices: Indices, values: Tensor, accumulate: bool) -> Tensor:
    """`x` with values written or added at the given places."""
    axes = [d for d, i in enumerate(indices) if i is not None]
    places = [i for i in indices if i is not None]
    return write_rows(x, axes, places, values, IN_BRACKETS, add=accumulate, names=range(len(axes)))


@put.vjp
def _(g: Tensor, indices: Indices, accumulate: bool) -> Any:
    kept = g if accumulate else put(g, indices, g.new_zeros(()), False)
    return kept, None, read(g, indices)


@export(method=True, inplace=True)
def index_put(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    """`input` with `values` at the places that a tuple of index tensors names.

    Args:
        input: any tensor.
        indices: tuple of integer or boolean tensors, one for each leading axis; they broadcast.
        values: of the same dtype; broadcasts to the shape of `input[indices]`.
        accumulate: whether values are added, in the order of the indices; otherwise the last
            value written to a place stays.

    Returns:
        A tensor like `input`. Differentiable in `input` and `values`.

    Raises:
        IndexError: if there are more indices than axes, or an index is out of bounds.
        RuntimeError: if the dtypes differ, or `values` does not broadcast.

    Example:
        >>> adjit.zeros(3).index_put((adjit.tensor([0, 2]),), adjit.ones(2))
        tensor([1., 0., 1.])
    """
    if isinstance(indices, Tensor):
        raise TypeError(
            "index_put(): argument 'indices' (position 1) must be tuple of Tensors, not Tensor"
        )
    places: list[Tensor | None] = []
    for item in indices:
        if item is not None and item.dtype in (dtypes.bool, dtypes.uint8):
            check_mask(item, len(places), input)
            places += nonzero(item, as_tuple=True)
        else:
            places.append(item)
    if len(places) > input.ndim:
        raise IndexError(
            f"too many indices for tensor of dimension {input.ndim} (got {len(places)})"
        )
    check_put(input, places, values)
    return put(input, places, values, accumulate)


def check_put(x: Tensor, indices: Indices, values: Tensor) -> None:
    """Raise if values cannot be written to the given places."""
    axes = [d for d, i in enumerate(indices) if i is not None]
    common = broadcast_indices([i for i in indices if i is not None])
    kept = [size for d, size in enumerate(x.shape) if d not in axes]
    adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
    front = axes[0] if adjacent else 0
    shape = (*kept[:front], *common, *kept[front:])
    if not broadcasts_to(values.shape, shape):
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to "
            f"indexing result of shape {list(shape)}"
        )
    if values.dtype is not x.dtype:
        raise RuntimeError(
            "Index put requires the source and destination dtypes match, got "
            f"{x.dtype.legacy} for the destination and {values.dtype.legacy} for the source."
        )


def broadcasts_to(shape: Sequence[int], target: Sequence[int]) -> bool:
    """Whether a shape expands to another, leading axes of size 1 aside."""
    sizes = list(shape)
    while len(sizes) > len(target) and sizes[0] == 1:
        del sizes[0]
    pairs = zip(reversed(sizes), reversed(target), strict=False)
    return len(sizes) <= len(target) and all(a in (1, b) for a, b in pairs)


# --------------------------------------------------------------------------- rows along one axis


def axis_and_index(name: str, x: Tensor, dim: int, index: Tensor) -> tuple[Tensor, int, Tensor]:
    """`x` with at least one axis, the axis, and the index as a vector."""
    axis = wrap_dim(dim, x.ndim)
    if index.ndim > 1:
        raise IndexError(f"{name}(): Index is supposed to be a vector")
    return (x if x.ndim else x.reshape(1)), axis, index.reshape(-1)


def check_integer(name: str, index: Tensor) -> None:
    """Raise if an index is no int32 or int64."""
    if index.dtype not in (dtypes.int32, dtypes.int64):
        raise RuntimeError(f"{name}(): Expected dtype int32 or int64 for index")


@export(method=True, out=True)
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of `input` along an axis that a vector of indices names.

    Args:
        input: any tensor.
        dim: the axis.
        index: int32 or int64 vector, or 0-d; no negative numbers.

    Returns:
        A tensor with `len(index)` slices along `dim`. Differentiable in `input`.

    Raises:
        IndexError: if an index is out of bounds, or `index` is no vector.

    Example:
        >>> adjit.index_select(adjit.tensor([5., 6., 7.]), 0, adjit.tensor([2, 0]))
        tensor([7., 5.])
    """
    check_integer("index_select", index)
    x, axis, places = axis_and_index("index_select", input, dim, index)
    out = select_rows(x, axis, places, x.shape[axis])
    return out if input.ndim else out.reshape(())


@operation("IndexSelectBackward0")
def select_rows(x: Tensor, dim: int, index: Tensor, size: int) -> Tensor:
    """Slices along `dim`, which has this size."""
    return read_rows(x, [dim], [index], IN_SELF, wrap=False)


@select_rows.vjp
def _(g: Tensor, dim: int, index: Tensor, size: int) -> Any:
    shape = [size if d == dim else n for d, n in enumerate(g.shape)]
    return add_rows(g.new_zeros(shape), dim, index, g, 1), None


@export(method=True, out=True, inplace=True)
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    """`input` with `alpha * source` added to the slices that a vector of indices names.

    Args:
        input: any tensor.
        dim: the axis.
        index: int32 or int64 vector; an index may occur more than once.
        source: as `input`, with `len(index)` slices along `dim`.
        alpha: a number.

    Returns:
        A tensor like `input`. Differentiable in `input` and `source`.

    Raises:
        RuntimeError: if an index is out of bounds, or sizes or dtypes do not fit.

    Example:
        >>> adjit.zeros(3).index_add(0, adjit.tensor([0, 0, 2]), adjit.tensor([1., 2., 3.]))
        tensor([3., 0., 3.])
    """
    if index.ndim > 1:
        raise IndexError(
            f"index_add_(): Index is supposed to be a vector, but got dim: {index.ndim} with "
            f"type: {index.dtype.legacy} and size: {list(index.shape)}"
        )
    if index.dtype not in (dtypes.int32, dtypes.int64):
        raise RuntimeError("index_add_(): Expected dtype int32/int64 for index")
    if source.dtype is not input.dtype:
        raise RuntimeError(
            f"index_add_(): self ({input.dtype.legacy}) and source ({source.dtype.legacy}) must "
            "have the same scalar type"
        )
    x, axis, places = axis_and_index("index_add_", input, dim, index)
    rows = source if source.ndim else source.reshape(1)
    if rows.ndim <= axis or places.numel() != rows.shape[axis]:
        raise RuntimeError(
            f"index_add_(): Number of indices ({places.numel()}) should be equal to "
            f"source.size(dim): ({rows.shape[axis] if rows.ndim > axis else 1}), for dim: {axis}"
        )
    if other_sizes(x, axis) != other_sizes(rows, axis):
        raise RuntimeError(
            "source tensor shape must match self tensor shape, excluding the specified dimension. "
            f"Got self.shape = {list(x.shape)} source.shape = {list(rows.shape)}"
        )
    out = add_rows(x, axis, places, rows, alpha)
    return out if input.ndim else out.reshape(())


def other_sizes(x: Tensor, axis: int) -> list[int]:
    """The sizes of all axes but one."""
    return [size for d, size in enumerate(x.shape) if d != axis]


@operation("IndexAddBackward0")
def add_rows(x: Tensor, dim: int, index: Tensor, source: Tensor, alpha: Any) -> Tensor:
    """`x` with `alpha * source` added to slices along `dim`."""
    values = source if alpha == 1 else source * alpha
    return write_rows(x, [dim], [index], values, IN_GRID, add=True, wrap=False)


@add_rows.vjp
def _(g: Tensor, dim: int, index: Tensor, alpha: Any) -> Any:
    rows = select_rows(g, dim, index, g.shape[dim])
    return g, None, rows if alpha == 1 else rows * alpha


@export(method=True, out=True, inplace=True)
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """`input` with the slices that a vector of indices names replaced by those of `source`.

    Args:
        input: any tensor.
        dim: the axis.
        index: int64 vector; of two equal indices the last counts.
        source: of the same dtype, with `len(index)` slices along `dim`.

    Returns:
        A tensor like `input`. Differentiable in `input` and `source`.

    Raises:
        IndexError: if an index is out of bounds, or there are not as many as slices.
        RuntimeError: if shapes or dtypes do not fit.

    Example:
        >>> adjit.zeros(3).index_copy(0, adjit.tensor([1]), adjit.ones(1))
        tensor([0., 1., 0.])
    """
    if index.dtype is not dtypes.int64:
        raise RuntimeError("index_copy_(): Expected a long tensor for index, but got "
                           f"{index.dtype.legacy}")  # fmt: skip
    if source.dtype is not input.dtype:
        raise RuntimeError(
            "index_copy_(): self and source expected to have the same dtype, but got (self) "
            f"{input.dtype.legacy} and (source) {source.dtype.legacy}"
        )
    x, axis, places = axis_and_index("index_copy_", input, dim, index)
    rows = source if source.ndim else source.reshape(1)
    if rows.ndim == x.ndim and other_sizes(x, axis) != other_sizes(rows, axis):
        raise RuntimeError(
            "index_copy_(): Source/destination tensor must have same slice shapes. Destination "
            f"slice shape: {spelled(other_sizes(x, axis))} at dimension {axis} and source slice "
            f"shape: {spelled(other_sizes(rows, axis))} at dimension 0."
        )
    if rows.ndim != x.ndim:
        raise IndexError(
            "index_copy_(): When source and destination are not scalars, their dimensionality must "
            f"match. Source dimensionality ({rows.ndim}), destination dimensionality ({x.ndim})"
        )
    if places.numel() != rows.shape[axis]:
        raise IndexError(
            f"index_copy_(): Number of indices ({places.numel()}) should be equal to "
            f"source.size(dim) ({rows.shape[axis]})"
        )
    out = copy_rows(x, axis, places, rows)
    return out if input.ndim else out.reshape(())


def spelled(sizes: Sequence[int]) -> str:
    """Sizes as PyTorch's C++ prints them."""
    return " ".join(map(str, sizes))


IN_COPY = out_of_bounds(IndexError, "index_copy_(): ")


@operation("IndexCopyBackward0")
def copy_rows(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """`x` with slices along `dim` replaced."""
    return write_rows(x, [dim], [index], source, IN_COPY, wrap=False)


@copy_rows.vjp
def _(g: Tensor, dim: int, index: Tensor) -> Any:
    return fill_rows(g, dim, index, 0), None, select_rows(g, dim, index, g.shape[dim])


@export(method=True, out=True, inplace=True)
def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """`input` with the slices that a vector of indices names filled with a number.

    Args:
        input: any tensor.
        dim: the axis.
        index: int64 vector; negative numbers count from the end.
        value: a number or a 0-d tensor.

    Returns:
        A tensor like `input`. Differentiable in `input` and a tensor `value`.

    Raises:
        IndexError: if an index is out of bounds, or `index` is no int64 vector.
        RuntimeError: if `value` has axes.

    Example:
        >>> adjit.zeros(3).index_fill(0, adjit.tensor([0, -1]), 2.0)
        tensor([2., 0., 2.])
    """
    if index.dtype is not dtypes.int64:
        raise IndexError("index_fill_(): Expected dtype int64 for index.")
    x, axis, places = axis_and_index("index_fill_", input, dim, index)
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(
                "index_fill_ only supports a 0-dimensional value tensor, but got tensor with "
                f"{value.ndim} dimension(s)."
            )
        out = fill_rows_with(x, axis, places, value.to(x.dtype))
    else:
        out = fill_rows(x, axis, places, value)
    return out if input.ndim else out.reshape(())


@operation("IndexFillBackward0")
def fill_rows(x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """`x` with slices along `dim` filled with a number."""
    return write_rows(x, [dim], [index], creation.full((), value, dtype=x.dtype), IN_BRACKETS)


@fill_rows.vjp
def _(g: Tensor, dim: int, index: Tensor) -> Any:
    return fill_rows(g, dim, index, 0), None


@operation("IndexFillBackward1")
def fill_rows_with(x: Tensor, dim: int, index: Tensor, value: Tensor) -> Tensor:
    """`x` with slices along `dim` filled with a 0-d tensor."""
    return write_rows(x, [dim], [index], value, IN_BRACKETS)


@fill_rows_with.vjp
def _(g: Tensor, dim: int, index: Tensor) -> Any:
    written = index_fill(g.new_zeros(g.shape), dim, index, 1)
    return fill_rows(g, dim, index, 0), None, (g * written).sum()


# --------------------------------------------------------------------------- flat places


@export(method=True, out=True)
def take(input: Tensor, index: Tensor) -> Tensor:
    """The elements of `input`, read as a vector, at the given places.

    Args:
        input: any tensor.
        index: int64, any shape; negative numbers count from the end.

    Returns:
        A tensor of the shape of `index`. Differentiable in `input`.

    Raises:
        IndexError: if an index is out of bounds.
        RuntimeError: if `index` is not int64.

    Example:
        >>> adjit.take(adjit.tensor([[1., 2.], [3., 4.]]), adjit.tensor([0, 3]))
        tensor([1., 4.])
    """
    if index.dtype is not dtypes.int64:
        raise RuntimeError(
            f"take(): Expected a long tensor for index, but got {index.dtype.legacy}"
        )
    return take_flat(input, index, input.shape)


@operation("TakeBackward0")
def take_flat(x: Tensor, index: Tensor, shape: Shape) -> Tensor:
    """The elements of `x`, which has this shape, at flat places."""
    return read_rows(x.reshape(-1), [0], [index], IN_FLAT)


@take_flat.vjp
def _(g: Tensor, index: Tensor, shape: Shape) -> Any:
    return put_flat(g.new_zeros(shape), index, g, True), None


@export(method="put", name="put", inplace=True)
def put_at(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """`input` with the elements at flat places replaced by those of `source`.

    Args:
        input: any tensor.
        index: int64, any shape; negative numbers count from the end.
        source: of the same dtype and with as many elements as `index`.
        accumulate: whether to add instead.

    Returns:
        A tensor like `input`. Differentiable in `input` and `source`.

    Raises:
        IndexError: if an index is out of bounds, or the numbers of elements differ.
        RuntimeError: if a dtype does not fit.

    Example:
        >>> adjit.zeros(2, 2).put(adjit.tensor([3]), adjit.ones(1))
        tensor([[0., 0.],
                [0., 1.]])
    """
    if index.dtype is not dtypes.int64:
        raise RuntimeError(
            f"put_(): Expected a long tensor for index, but got {index.dtype.legacy}"
        )
    if source.dtype is not input.dtype:
        raise RuntimeError(
            "put_(): self and source expected to have the same dtype, but got self.dtype = "
            f"{input.dtype.legacy} and source.dtype = {source.dtype.legacy}"
        )
    if source.numel() != index.numel():
        raise IndexError(
            "put_(): Expected source and index to have the same number of elements, but got "
            f"source.numel() = {source.numel()}, index.numel() = {index.numel()}"
        )
    return put_flat(input, index, source.reshape(index.shape), accumulate)


@operation("PutBackward0")
def put_flat(x: Tensor, index: Tensor, source: Tensor, accumulate: bool) -> Tensor:
    """`x` with elements written or added at flat places."""
    flat = write_rows(x.reshape(-1), [0], [index], source, IN_FLAT, add=accumulate)
    return flat.view(x.shape)


@put_flat.vjp
def _(g: Tensor, index: Tensor, accumulate: bool) -> Any:
    kept = g if accumulate else put_flat(g, index, g.new_zeros(index.shape), False)
    return kept, None, take_flat(g, index, g.shape)


# --------------------------------------------------------------------------- grids


def grid_words(
    dim: int, shape: Shape, strides: Shape, index: Tensor, source_strides: Shape
) -> tuple[tuple[int, ...], int, int]:
    """The words of a grid, its units, and its grain; every argument has at least one axis."""
    sizes, steps = index.shape, index.stride()
    others = [d for d in range(len(shape)) if d != dim]
    shared = others.pop() if others else None
    words = [sizes[dim], shape[dim], strides[dim], steps[dim], source_strides[dim]]
    if shared is None:
        words += [1, 0, 0, 0]
    else:
        words += [sizes[shared], strides[shared], steps[shared], source_strides[shared]]
    words += [dim, len(others)]
    for operand in (sizes, strides, steps, source_strides):
        words += [operand[d] for d in others]
    units = numel([size for d, size in enumerate(sizes) if d != dim])
    if 0 in sizes:
        units = 0
        words[5] = max(words[5], 1)
    return tuple(words), units, max(1, GRAIN // max(sizes[dim], 1))


def at_least_1d(x: Tensor) -> Tensor:
    """`x`, a 0-d tensor as a vector of one element."""
    return x if x.ndim else x.reshape(1)


def check_grid(name: str, x: Tensor, dim: int, index: Tensor, source: Tensor | None) -> int:
    """The axis of a gather or scatter, its arguments checked."""
    axis = wrap_dim(dim, x.ndim)
    if index.dtype not in (dtypes.int32, dtypes.int64):
        raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index")
    if index.numel() == 0:
        return axis
    receiver = "input" if name == "gather" else "self"
    if max(index.ndim, 1) != max(x.ndim, 1):
        raise RuntimeError(
            f"Index tensor must have the same number of dimensions as {receiver} tensor"
        )
    if source is None:
        for d, size in enumerate(index.shape):
            if d != axis and size > x.shape[d]:
                raise RuntimeError(
                    f"Size does not match at dimension {d} expected index {list(index.shape)} to "
                    f"be no larger than self {list(x.shape)} apart from dimension {axis}"
                )
        return axis
    if max(source.ndim, 1) != max(x.ndim, 1):
        raise RuntimeError("Index tensor must have the same number of dimensions as src tensor")
    large = any(d != axis and size > x.shape[d] for d, size in enumerate(index.shape))
    if large or any(size > source.shape[d] for d, size in enumerate(index.shape)):
        raise RuntimeError(
            f"Expected index {list(index.shape)} to be no larger than self {list(x.shape)} apart "
            f"from dimension {axis} and to be no larger size than src {list(source.shape)}"
        )
    return axis


@export(method=True, out=True)
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """Elements along an axis: `out[i][j] = input[index[i][j]][j]` for `dim` 0 and two axes.

    Args:
        input: any tensor.
        dim: the axis.
        index: int32 or int64, with as many axes as `input` and no larger apart from `dim`.
        sparse_grad: accepted and without effect, gradients are dense.

    Returns:
        A tensor of the shape of `index`. Differentiable in `input`.

    Raises:
        RuntimeError: if an index is out of bounds, or the shapes or dtypes do not fit.

    Example:
        >>> adjit.gather(adjit.tensor([[1., 2.], [3., 4.]]), 1, adjit.tensor([[1], [0]]))
        tensor([[2.],
                [3.]])
    """
    axis = check_grid("gather", input, dim, index, None)
    return gather_grid(input, axis, index, input.shape)


@operation("GatherBackward0")
def gather_grid(x: Tensor, dim: int, index: Tensor, shape: Shape) -> Tensor:
    """Elements of `x`, which has this shape, along `dim`."""
    out_shape = index.shape
    places, source = at_least_1d(index).to(dtypes.int64), at_least_1d(x)
    if 0 in out_shape:
        return x.new_empty(out_shape)
    words, units, grain = grid_words(
        dim, source.shape, source.stride(), places, contiguous_strides(places.shape)
    )
    return launch(
        kernels.read_grid, (source, places), [(out_shape, x.dtype)],
        bind={"T": carrier(x.dtype)}, words=words, n=units, grain=grain,
        fallible=True, messages=IN_GRID,
    )  # fmt: skip


@gather_grid.vjp
def _(g: Tensor, dim: int, index: Tensor, shape: Shape) -> Any:
    return scatter_sum(g.new_zeros(shape), dim, index, g), None


def write_to_grid(
    kernel: Any, x: Tensor, dim: int, index: Tensor, source: Tensor,
    scalars: tuple[int, ...] = (), fallible: bool | Callable[..., Exception] = True,
) -> Tensor:  # fmt: skip
    """`x` with the elements that `index` names changed by those of `source`, recorded."""
    if index.numel() == 0:
        return x.clone()
    places, values, base = at_least_1d(index), at_least_1d(source), at_least_1d(x.contiguous())
    places = places.to(dtypes.int64)
    words, units, grain = grid_words(dim, base.shape, base.stride(), places, values.stride())
    kind = x.dtype if kernel is kernels.reduce_grid else carrier(x.dtype)
    out = launch(
        [(kernels.copy_elements, base.numel(), GRAIN), (kernel, units, grain)],
        (base, places, values), [(x.shape, x.dtype)], bind={"T": kind},
        words=words, scalars=scalars, fallible=fallible, messages=IN_GRID,
    )  # fmt: skip
    return over_first(out, base)


def check_same_dtype(x: Tensor, source: Tensor) -> None:
    """Raise if a scatter would have to convert."""
    if x.dtype is not source.dtype:
        raise RuntimeError("scatter(): Expected self.dtype to be equal to src.dtype")


@export(method=True, out=True, inplace=True)
def scatter(
    input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None,
    reduce: str | None = None,
) -> Tensor:  # fmt: skip
    """`input` with `out[index[i][j]][j] = src[i][j]` along an axis (here 0, of two axes).

    Args:
        input: any tensor.
        dim: the axis.
        index: int32 or int64, no larger than `src`, nor than `input` apart from `dim`.
        src: a tensor of the same dtype, or a number (also as `value=`).
        reduce: None to write, `"add"` or `"multiply"` to join with what is there.

    Returns:
        A tensor like `input`. Differentiable in `input` and a tensor `src` of the shape of
        `index`. Where two indices are equal, the last value stays.

    Raises:
        RuntimeError: if an index is out of bounds, or the shapes or dtypes do not fit.

    Example:
        >>> adjit.zeros(3).scatter(0, adjit.tensor([2, 0]), adjit.tensor([1., 2.]))
        tensor([2., 0., 1.])
    """
    source = value if src is None else src
    is_tensor = isinstance(source, Tensor)
    axis = check_grid("scatter", input, dim, index, source if is_tensor else None)
    if is_tensor:
        check_same_dtype(input, source)
    if reduce is None:
        if is_tensor:
            return scatter_grid(input, axis, index, source)
        return scatter_number(input, axis, index, source)
    if reduce not in ("add", "multiply"):
        raise RuntimeError("reduce argument must be either add or multiply.")
    if not is_tensor:
        source = creation.full((), source, dtype=input.dtype).expand(index.shape)
    if reduce == "add":
        return scatter_sum(input, axis, index, source)
    return scatter_join(input, axis, index, source, "prod", True)


@operation("ScatterBackward0")
def scatter_grid(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """`x` with the elements of `src` written along `dim`."""
    return write_to_grid(kernels.write_grid, x, dim, index, src)


@scatter_grid.vjp
def _(g: Tensor, dim: int, index: Tensor) -> Any:
    return scatter_number(g, dim, index, 0), None, gather_grid(g, dim, index, g.shape)


@operation("ScatterBackward1")
def scatter_number(x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """`x` with a number written along `dim`."""
    source = creation.full((), value, dtype=x.dtype).expand(index.shape)
    return write_to_grid(kernels.write_grid, x, dim, index, source)


@scatter_number.vjp
def _(g: Tensor, dim: int, index: Tensor) -> Any:
    return scatter_number(g, dim, index, 0), None


@export(method=True, out=True, inplace=True)
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """`input` with `out[index[i][j]][j] += src[i][j]` along an axis (here 0, of two axes).

    Sums are added up in the order of the indices, on any number of threads.

    Args:
        input: any tensor.
        dim: the axis.
        index: int32 or int64, no larger than `src`, nor than `input` apart from `dim`.
        src: of the same dtype.

    Returns:
        A tensor like `input`. Differentiable in `input` and a `src` of the shape of `index`.

    Raises:
        RuntimeError: if an index is out of bounds, or the shapes or dtypes do not fit.

    Example:
        >>> adjit.zeros(2).scatter_add(0, adjit.tensor([1, 1]), adjit.tensor([1., 2.]))
        tensor([0., 3.])
    """
    axis = check_grid("scatter", input, dim, index, src)
    check_same_dtype(input, src)
    return scatter_sum(input, axis, index, src)


@operation("ScatterAddBackward0")
def scatter_sum(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """`x` with the elements of `src` added along `dim`."""
    return write_to_grid(kernels.reduce_grid, x, dim, index, src, (kernels.SUM,))


@scatter_sum.vjp
def _(g: Tensor, dim: int, index: Tensor) -> Any:
    return g, None, gather_grid(g, dim, index, g.shape)


REDUCTIONS = {
    "sum": kernels.SUM,
    "prod": kernels.PRODUCT,
    "mean": kernels.SUM,
    "amax": kernels.LARGEST,
    "amin": kernels.SMALLEST,
}


@export(method=True, out=True, inplace=True)
def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """`input` with the elements of `src` that go to one place along an axis reduced to one.

    Args:
        input: any tensor.
        dim: the axis.
        index: int32 or int64, no larger than `src`, nor than `input` apart from `dim`.
        src: of the same dtype.
        reduce: `"sum"`, `"prod"`, `"mean"`, `"amax"` or `"amin"`.
        include_self: whether the element of `input` takes part.

    Returns:
        A tensor like `input`. Differentiable in `input` and a `src` of the shape of `index`.

    Raises:
        RuntimeError: if an index is out of bounds, the shapes or dtypes do not fit, or `reduce`
            is unknown.

    Example:
        >>> places = adjit.tensor([0, 0, 1])
        >>> adjit.zeros(2).scatter_reduce(0, places, adjit.tensor([1., 5., 2.]), "amax")
        tensor([5., 2.])
    """
    if reduce not in REDUCTIONS:
        raise RuntimeError(
            f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}"
        )
    axis = check_grid("scatter", input, dim, index, src)
    check_same_dtype(input, src)
    return scatter_join(input, axis, index, src, reduce, include_self)


def identity_of(reduce: str, kind: dtype) -> Any:
    """The number that changes nothing in a reduction."""
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    if kind.is_floating_point:
        return -np.inf if reduce == "amax" else np.inf
    if kind is dtypes.bool:
        return reduce == "amin"
    limits = np.iinfo(kind.numpy)
    return int(limits.min if reduce == "amax" else limits.max)


@operation("ScatterReduceBackward0")
def scatter_join(
    x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool
) -> Tensor:
    """`x` with the elements of `src` joined into it along `dim`."""
    start = x
    if not include_self:
        start = scatter_number(x, dim, index, identity_of(reduce, x.dtype))
    out = write_to_grid(kernels.reduce_grid, start, dim, index, src, (REDUCTIONS[reduce],))
    if reduce != "mean":
        return out
    counts = counts_along(x, dim, index, include_self)
    return out / counts if x.dtype.is_floating_point else out // counts


def counts_along(x: Tensor, dim: int, index: Tensor, include_self: bool) -> Tensor:
    """How many elements went to each place; at least 1."""
    start = x.new_full(x.shape, int(include_self))
    ones = x.new_full((), 1).expand(index.shape)
    counts = scatter_sum(start, dim, index, ones)
    return counts if include_self else counts.masked_fill(counts == 0, 1)


@scatter_join.vjp
def _(
    g: Tensor, x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool,
    out: Tensor,
) -> Any:  # fmt: skip
    def along(t: Tensor) -> Tensor:
        return gather_grid(t, dim, index, t.shape)

    if reduce == "sum":
        gx, gsrc = g, along(g)
    elif reduce == "mean":
        gx = g / counts_along(x, dim, index, include_self)
        gsrc = along(gx)
    elif reduce == "prod":
        gx, gsrc = product_gradients(g, x, dim, index, src, include_self, out)
    else:
        here, there = (x == out).to(g.dtype), (src == along(out)).to(g.dtype)
        if not include_self:
            here = scatter_number(here, dim, index, 0)
        shares = scatter_sum(here, dim, index, there)
        part = g / shares.masked_fill(shares == 0, 1)
        gx, gsrc = here * part, there * along(part)
        if not include_self:
            gx = g
    if not include_self:
        gx = scatter_number(gx, dim, index, 0)
    return gx, None, gsrc


def product_gradients(
    g: Tensor, x: Tensor, dim: int, index: Tensor, src: Tensor, include_self: bool, out: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of a product: all other factors, also where one of them is zero."""
    nonzero_x = x.masked_fill(x == 0, 1)
    others_x = scatter_join(nonzero_x, dim, index, src, "prod", include_self)
    gx = g * others_x / nonzero_x
    is_zero = src == 0
    counts = scatter_sum(g.new_zeros(x.shape), dim, index, is_zero.to(g.dtype))
    zeros = gather_grid(counts, dim, index, x.shape)
    single = is_zero & (zeros == 1)
    without_it = scatter_join(x, dim, index, src.masked_fill(single, 1), "prod", include_self)
    lone = gather_grid(g * without_it, dim, index, x.shape)
    rest = gather_grid(g * out, dim, index, x.shape) / src.masked_fill(is_zero, 1)
    return gx, lone.where(single, rest)


@export(method=True, out=True)
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """Elements along an axis, as `gather`, with `indices` and `input` broadcast to each other.

    Args:
        input: any tensor.
        indices: int64, with as many axes as `input`, as `argmax` and `argsort` give them.
        dim: the axis; None reads both as vectors.

    Returns:
        The elements. Differentiable in `input`.

    Raises:
        RuntimeError: if the numbers of axes differ, or `indices` is not int64.

    Example:
        >>> x = adjit.tensor([[3., 1.], [2., 4.]])
        >>> adjit.take_along_dim(x, x.argmax(1, keepdim=True), 1)
        tensor([[3.],
                [4.]])
    """
    if indices.dtype is not dtypes.int64:
        raise RuntimeError(
            "torch.take_along_dim(): dtype of indices should be Long but got "
            f"{indices.dtype.legacy}"
        )
    if dim is None:
        return gather(input.reshape(-1), 0, indices.reshape(-1))
    if input.ndim != indices.ndim:
        raise RuntimeError(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, "
            f"but got {input.ndim} dimensions for input, and {indices.ndim} dimensions for indices"
        )
    axis = wrap_dim(dim, input.ndim)
    sizes = [list(t.shape) for t in (input, indices)]
    for shape in sizes:
        shape[axis] = 1
    common = list(broadcast_shapes(*sizes))
    own = [input.shape[axis] if d == axis else n for d, n in enumerate(common)]
    places = [indices.shape[axis] if d == axis else n for d, n in enumerate(common)]
    return gather(input.expand(own), axis, indices.expand(places))


# --------------------------------------------------------------------------- masks


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


@export(method=True)
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """The places of all elements that are not 0, in order.

    The number of places is a value, so the tensor is evaluated here.

    Args:
        input: any tensor.
        as_tuple: whether to give one vector for each axis, as indexing takes them.

    Returns:
        An int64 tensor (places, axes), or the tuple. Not differentiable.

    Example:
        >>> adjit.nonzero(adjit.tensor([0, 3, 0, 4]))
        tensor([[1],
                [3]])
    """
    if as_tuple:
        return tuple(nonzero(at_least_1d(input)).unbind(1))
    x = input.detach().contiguous()
    ends = block_ends(x)
    count = int(ends[-1].item())
    size = x.numel()
    if not x.ndim:
        return creation.empty((count, 0), dtype=dtypes.int64)
    return launch(
        kernels.list_places, (x, ends), [((count, x.ndim), dtypes.int64)],
        bind={"T": x.dtype}, words=(size, x.ndim, *x.shape),
        n=ends.numel() - 1 if count else 0, grain=max(1, GRAIN // kernels.COUNT_BLOCK),
    )  # fmt: skip


@export(method=True)
def argwhere(input: Tensor) -> Tensor:
    """The places of all elements that are not 0, one row for each; see `nonzero`.

    Example:
        >>> adjit.argwhere(adjit.tensor([[0, 1], [1, 0]]))
        tensor([[0, 1],
                [1, 0]])
    """
    return nonzero(input)  # type: ignore[no-any-return]


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
    return select_masked(input, mask, broadcast_shapes(input.shape, mask.shape))


@operation("MaskedSelectBackward0")
def select_masked(x: Tensor, mask: Tensor, shape: Shape) -> Tensor:
    """The elements where the mask is set, after broadcasting to `shape`."""
    places = nonzero(mask.expand(shape).reshape(-1)).reshape(-1)
    return read_rows(x.expand(shape).reshape(-1), [0], [places], IN_FLAT)


@select_masked.vjp
def _(g: Tensor, mask: Tensor, shape: Shape) -> Any:
    return masked_scatter(g.new_zeros(shape), mask, g), None


@export(method=True, inplace=True)
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


@scatter_masked.vjp
def _(g: Tensor, mask: Tensor, shape: Shape) -> Any:
    picked = masked_select(g, mask)
    rest = g.new_zeros(numel(shape) - picked.numel())
    from .shape import cat

    return g.masked_fill(mask, 0), None, cat([picked, rest]).view(shape)


# --------------------------------------------------------------------------- embedding


@export(namespace="nn.functional")
def embedding(
    input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Tensor:  # fmt: skip
    """The rows of a matrix that a tensor of indices names.

    Args:
        input: int32 or int64, any shape.
        weight: (rows, columns).
        padding_idx: a row that gets no gradient.
        max_norm: if given, rows that are looked up and have a larger norm are scaled down to it,
            in place.
        norm_type: the p of that norm.
        scale_grad_by_freq: whether the gradient of a row is divided by how often it occurs.
        sparse: accepted and without effect, gradients are dense.

    Returns:
        A tensor (*input.shape, columns). Differentiable in `weight`; rows that occur more than
        once are added up in the order of `input`, on any number of threads.

    Raises:
        IndexError: if an index is out of bounds.
        RuntimeError: if `weight` is no matrix or `input` holds no indices.
        AssertionError: if there is no row `padding_idx`.

    Example:
        >>> F.embedding(adjit.tensor([[0, 2]]), adjit.eye(3)).shape
        adjit.Size([1, 2, 3])
    """
    if input.dtype not in (dtypes.int32, dtypes.int64):
        raise RuntimeError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: "
            f"Long, Int; but got torch.{input.dtype.legacy}Tensor instead (while checking "
            "arguments for embedding)"
        )
    if weight.ndim != 2:
        raise RuntimeError("'weight' must be 2-D")
    rows = weight.shape[0]
    if padding_idx is not None:
        if not -rows <= padding_idx < rows:
            raise AssertionError("Padding_idx must be within num_embeddings")
        padding_idx %= rows
    if max_norm is not None:
        limit_norms(weight, input, max_norm, norm_type)
    return look_up(weight, input, padding_idx, scale_grad_by_freq, rows)


def limit_norms(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale down the rows that are looked up to a norm, in place."""
    old, state.grad = state.grad, False
    try:
        used = weight.new_zeros(weight.shape[0]).index_fill(0, indices.reshape(-1).long(), 1)
        norms = weight.abs().pow(norm_type).sum(1).pow(1 / norm_type)
        factors = (max_norm / (norms + 1e-7)).where((used > 0) & (norms > max_norm), 1.0)
        weight.mul_(factors.unsqueeze(1))
    finally:
        state.grad = old


@operation("EmbeddingBackward0")
def look_up(
    weight: Tensor, indices: Tensor, padding_idx: int | None, by_frequency: bool, rows: int
) -> Tensor:
    """The rows of `weight`, which has that many, at the given places."""
    return read_rows(weight, [0], [indices], IN_SELF, wrap=False)


@look_up.vjp
def _(g: Tensor, indices: Tensor, padding_idx: int | None, by_frequency: bool, rows: int) -> Any:
    if by_frequency:
        flat = indices.reshape(-1)
        counts = add_rows(g.new_zeros(rows), 0, flat, g.new_ones(flat.shape), 1)
        g = g / select_rows(counts, 0, flat, rows).view(*indices.shape, 1)
    return add_looked_up(g, indices, padding_idx, rows), None


@operation("EmbeddingDenseBackward0")
def add_looked_up(g: Tensor, indices: Tensor, padding_idx: int | None, rows: int) -> Tensor:
    """A matrix of that many rows with the rows of `g` added up where they came from."""
    start = g.new_zeros(rows, g.shape[-1])
    return write_rows(start, [0], [indices], g, IN_SELF, add=True, wrap=False, skip=padding_idx)


@add_looked_up.vjp
def _(g: Tensor, indices: Tensor, padding_idx: int | None, rows: int) -> Any:
    found = look_up(g, indices, padding_idx, False, rows)
    if padding_idx is not None:
        found = found.masked_fill((indices == padding_idx).unsqueeze(-1), 0)
    return found, None


@export(namespace="nn.functional")
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """A row of zeros with a one at its class for each element.

    Args:
        tensor: int64, any shape, of numbers from 0.
        num_classes: the length of a row; -1 for one more than the largest class, which evaluates
            the tensor.

    Returns:
        An int64 tensor (*tensor.shape, num_classes). Not differentiable.

    Raises:
        RuntimeError: if a class is negative or too large, or the classes cannot be counted.

    Example:
        >>> F.one_hot(adjit.tensor([0, 2]))
        tensor([[1, 0, 0],
                [0, 0, 1]])
    """
    if tensor.dtype is not dtypes.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if num_classes == -1:
        if tensor.numel() == 0:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        if int(tensor.min().item()) < 0:
            raise RuntimeError("Class values must be non-negative.")
        num_classes = int(tensor.max().item()) + 1
    elif num_classes < 1:
        raise RuntimeError("Class values must be smaller than num_classes.")
    zeros = creation.zeros((*tensor.shape, num_classes), dtype=dtypes.int64)
    ones = creation.ones((), dtype=dtypes.int64).expand(*tensor.shape, 1)
    return write_to_grid(
        kernels.write_grid, zeros, tensor.ndim, tensor.unsqueeze(-1), ones, fallible=bad_class
    )


def bad_class(status: tuple[int, ...]) -> Exception:
    """The error about a number that is no class."""
    if status[1] < 0:
        return RuntimeError("Class values must be non-negative.")
    return RuntimeError("Class values must be smaller than num_classes.")
