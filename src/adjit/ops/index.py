"""What stands in brackets: `x[key]`, `x[key] = value`, and writing by index tensors."""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType
from typing import Any

import numpy as np

from .. import dtypes, errors
from ..devices import CPU
from ..graph import copy_slices, inplace, record, write
from ..graph.batching import Batch
from ..graph.export import export, in_place
from ..graph.fastpath import assigning
from ..graph.levels import elements_of, tracers
from ..graph.operation import operation
from ..graph.record import is_differentiated
from ..graph.state import state
from ..graph.view import alias
from ..graph.view_cache import caches_views
from ..shapes import Shape, broadcasts_to, is_dense
from ..tensor import Tensor
from ..unknown import bounds_of
from . import creation, slicing, view
from .masks import nonzero, rows_where, untraced
from .tables import IN_BRACKETS, broadcast_indices, read_rows, write_rows

Indices = Sequence[Tensor | None]


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
    if key is None:
        return view.unsqueeze(x, 0)
    places = places_of(x, key)
    if places is not None:
        return read(x, places)
    if is_number(x, key):
        return picked(x, 0, int(key.item()), 0)
    if is_rows_mask(x, key):
        if is_differentiated(x):
            return read(x, nonzero(key, as_tuple=True))
        return rows_where(x, key)
    viewed, indices = walk(x, key)
    if indices is None:
        return alias_of(x) if viewed is x else viewed
    return read(viewed, indices)


def places_of(x: Tensor, key: Any) -> list[Tensor | None] | None:
    """The indices in a key, tensors and lists of ints, where there is nothing beside them but `:` and one
    `...`, None for the axes before the last one that are kept; None where there is anything else, or none."""
    entries = key if key.__class__ is tuple else (key,)
    spec, used = x._spec, 0
    found: list[Tensor | None] = []
    open_axes = spec.ndim - len(entries) + 1  # that one `...` stands for
    for entry in entries:
        kind = entry.__class__
        index: Tensor | None = None
        if kind is Tensor:
            given = entry._spec
            if not (given.dtype is dtypes.int64 and given.ndim and given.device is spec.device):
                return None
            index = entry
        elif kind is list and entry and spec.device is CPU:
            if {number.__class__ for number in entry} != {int}:
                return None
            index = creation.tensor(entry)
        elif entry is Ellipsis and open_axes > 0:
            found += [None] * (open_axes - 1)
            open_axes = 0
        elif kind is not slice or not is_full(entry):
            return None
        found.append(index)
        used = used if index is None else len(found)
    return found[:used] if used and len(found) <= spec.ndim else None


def is_number(x: Tensor, key: Any) -> bool:
    """Whether a key is one whole number as a tensor, for the first axis of `x`."""
    return (
        key.__class__ is Tensor
        and not key._spec.ndim
        and key._spec.dtype is dtypes.int64
        and bool(x.ndim)
    )


def is_rows_mask(x: Tensor, key: Any) -> bool:
    """Whether a key is a mask over leading axes of `x`, where that lies in C order."""
    if key.__class__ is not Tensor or key._spec.dtype is not dtypes.bool:
        return False
    axes, spec = key._spec.ndim, x._spec
    return bool(
        axes
        and tuple(spec.shape)[:axes] == key._spec.shape
        and spec.contiguous
        and key._spec.device is spec.device
    )


def is_plain(key: Any) -> bool:
    """Whether a key gives a view and not the tensor itself, whatever that is, or an error."""
    if key.__class__ is not tuple:
        return key.__class__ is int or key.__class__ is slice
    kinds = {item.__class__ for item in key}
    return kinds <= PLAIN and not all(map(is_kept, key))


PLAIN = {int, slice, NoneType, type(Ellipsis)}


def keeps_all(key: Any) -> bool:
    """Whether a key leaves all axes as they are."""
    entries = key if key.__class__ is tuple else (key,)
    return entries.count(Ellipsis) < 2 and all(map(is_kept, entries))


def setitem(x: Tensor, key: Any, value: Any) -> None:
    """`x[key] = value`, in place and with gradients to both."""
    if is_plain(key) or keeps_all(key):
        viewed = Tensor.__getitem__(x, key)
        if viewed._spec is x._spec and x.__class__ not in tracers:
            viewed = x  # all of it is written, and its history is that of a copy
        if value.__class__ in NUMBERS:
            put_number(viewed, value)
        else:
            put_into(viewed, as_value(x, value))
        return
    if value.__class__ in (float, int) and x._spec.dtype.is_floating_point and is_rows_mask(x, key):
        x.masked_fill_(key.view(*key.shape, *[1] * (x.ndim - key.ndim)), value)
        return
    value = as_value(x, value)
    places = places_of(x, key)
    if places is not None:
        ranks = [index.ndim for index in places if index is not None]
        axes = max(ranks) + x.ndim - len(ranks)
        write_places(x, places, without_leading_ones(value, axes))
        return
    mask = as_mask(x, key)
    if mask is not None and value.ndim == 0:
        x.masked_fill_(mask.view(*mask.shape, *[1] * (x.ndim - mask.ndim)), value.to(x.dtype))
        return
    if mask is not None:
        chosen = nonzero(mask, as_tuple=True)
        write_places(x, chosen, without_leading_ones(value, 1 + x.ndim - mask.ndim))
        return
    viewed, indices = walk(x, key)
    if indices is not None:
        axes = len(indexed_shape(viewed.shape, indices))
        write_places(viewed, indices, without_leading_ones(value, axes))
        return
    put_into(viewed, value)


NUMBERS = {float, int, bool}


def put_number(viewed: Tensor, value: Any) -> None:
    """Write a number into a view."""
    is_quiet = viewed.__class__ not in tracers and write.is_quiet(viewed)
    if viewed.__class__ in tracers or not (is_quiet or copy_slices.can_assign_number(viewed)):
        if viewed.__class__ not in tracers and viewed._view_of is None:
            viewed.fill_(value)
        else:
            viewed.copy_(creation.number_like(viewed, value))
        return
    inplace.check(viewed)
    write.refuse_overlapping(viewed._spec)
    dtypes.check_fits(value, viewed._spec.dtype)
    assign = write.assign_number if is_quiet else copy_slices.assign_number
    assign(viewed, value)


def put_into(viewed: Tensor, value: Tensor) -> None:
    """Write what is assigned into a view."""
    if value._spec.shape == viewed._spec.shape:
        viewed.copy_(value)
        return
    value = without_leading_ones(value, viewed.ndim)
    is_fit = value.shape == viewed.shape or (
        not is_differentiated(value)
        and broadcasts_to(value.shape, viewed.shape)
        and value.__class__ not in tracers
        and viewed.__class__ not in tracers
        and value._storage is not viewed._storage  # expanded, it may be a part of what is written
    )
    viewed.copy_(value if is_fit else value.expand(viewed.shape))


def without_leading_ones(value: Tensor, axes: int) -> Tensor:
    """What is assigned, without axes of size 1 in front that are too many."""
    while value.ndim > axes and value.shape[0] == 1:
        value = value.squeeze(0)
    return value


def delitem(x: Tensor, key: Any) -> None:
    """Elements of a tensor cannot go away."""
    raise TypeError("Tensor does not support deleting items")


Tensor.__delitem__ = delitem  # type: ignore[attr-defined]


def as_value(x: Tensor, value: Any) -> Tensor:
    """What is assigned, as a tensor."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (bool, int, float, np.number, np.bool_)):
        return creation.full((), value, dtype=x._spec.dtype, device=x._spec.device)
    name = type(value).__name__
    if isinstance(value, np.ndarray):
        name = "numpy.ndarray"
    raise TypeError(f"can't assign a {name} to a torch.{x.dtype.legacy}Tensor")


def as_mask(x: Tensor, key: Any) -> Tensor | None:
    """The key where it is one boolean mask over leading axes of `x`."""
    if isinstance(key, Tensor) and key.dtype is dtypes.bool and 0 < key.ndim <= x.ndim:
        check_mask(key, 0, x)
        return on_device_of(x, key)
    return None


def alias_of(x: Tensor) -> Tensor:
    """A view of all of `x`."""
    return alias(x, x.shape, x._spec.strides, x._offset, "AliasBackward0", lambda g: g)


def raise_zero_dim() -> None:
    """Raise for an index into a tensor without axes."""
    raise IndexError(
        "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in "
        "C++ to convert a 0-dim tensor to a number"
    )


def picked(x: Tensor, dim: int, k: int, axis: int) -> Tensor:
    """`x` with one index of an axis, which is called `axis` in the error."""
    spec = x._spec
    size = tuple.__getitem__(spec.shape, dim)
    if not -size <= k < size:
        raise IndexError(f"index {k} is out of bounds for dimension {axis} with size {size}")
    return slicing.select(x, dim, k)


def sliced(x: Tensor, dim: int, key: slice) -> Tensor:
    """`x` with a slice along an axis."""
    step = key.step
    if step is not None and step.__index__() < 1:
        raise ValueError(
            "step must be greater than zero" if step.__index__() else "slice step cannot be zero"
        )
    start, stop, step = bounds_of(key, tuple.__getitem__(x._spec.shape, dim))
    return slicing.slice_dim(x, dim, start, max(start, stop), step)


def is_full(key: slice) -> bool:
    """Whether a slice is `:`."""
    return key.start is None and key.stop is None and key.step is None


def walk(x: Tensor, key: Any) -> tuple[Tensor, list[Tensor | None] | None]:
    """The view that the plain parts of a key make, and an index or None for each of its axes."""
    if state.grad and key.__class__ is tuple and all(map(is_fixed, key)) and cuts_twice(key):
        return part_of(x, key), None
    return walk_steps(x, key)


def cuts_twice(key: tuple[Any, ...]) -> bool:
    """Whether several parts of a key leave elements out; the gradients of all others are views."""
    return sum([item is not None and not is_kept(item) for item in key]) > 1


def is_fixed(item: Any) -> bool:
    """Whether a part of a key makes a view and says all about it."""
    if item.__class__ is slice:
        return {b.__class__ for b in (item.start, item.stop, item.step)} <= {int, NoneType}
    return item.__class__ is int or item is None or item is Ellipsis


def part_of(x: Tensor, key: tuple[Any, ...]) -> Tensor:
    """The view that a key makes, as one view: its gradient is padded once, not once for each axis."""
    if x.__class__ in tracers or not record.needs_grad(x):
        return walk_steps(x, key)[0]
    found, _ = walk_steps(
        record.make_tensor(x._storage, x._spec, x._offset, x._version_counter), key
    )
    if found._view_of is None:
        return x
    origin, spec = x._spec, found._spec
    last = next(item for item in reversed(key) if not is_kept(item))
    kinds = {int: "Select", slice: "Slice", NoneType: "Unsqueeze"}
    return alias(
        x, spec.shape, spec.strides, found._offset, f"{kinds[last.__class__]}Backward0",
        lambda g: slicing.scatter_part(g, origin, "index", *key),
    )  # fmt: skip


def is_kept(item: Any) -> bool:
    """Whether a part of a key leaves its axis, or axes, as they are."""
    return item is Ellipsis or (item.__class__ is slice and is_full(item))


slicing.parts_by_name["index"] = lambda t, *key: walk(t, key)[0]


def walk_steps(x: Tensor, key: Any) -> tuple[Tensor, list[Tensor | None] | None]:
    """`walk` as a view after the other, one for each part of the key."""
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
            found[dim] = creation.zeros(1 if item else 0, dtype=dtypes.int64, device=x.device)
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
    index = on_device_of(viewed, index)
    if index.dtype in MASKS:
        mask = elements_of(index) if tracers else index
        if mask is None:
            raise RuntimeError(
                "vmap: We do not support batching operators that can support dynamic shape. Attempting to "
                "batch over indexing with a boolean mask."
            )
        index = mask
        if index.ndim == 0:
            viewed = view.unsqueeze(viewed, dim)
            index = index.reshape(1)
        check_mask(index, dim, viewed)
        for place in nonzero(index, as_tuple=True):
            found[dim] = place
            dim += 1
        return viewed, dim
    if index.ndim or index.dtype.kind != "i":
        check_index(index)
    if index.ndim == 0 and isinstance(item, Tensor) and index.__class__ not in tracers:
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


def on_device_of(x: Tensor, index: Tensor) -> Tensor:
    """An index where `x` is: one on the host goes with every tensor."""
    place = x._spec.device
    return (
        index if index._spec.device is place or index._spec.device is not CPU else index.to(place)
    )


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


MASKS = {dtypes.bool, dtypes.uint8}


def check_mask(mask: Tensor, dim: int, x: Tensor) -> None:
    """Raise if a mask does not fit the axes it stands on."""
    if mask.dtype is dtypes.uint8:
        errors.warn(
            "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead."
        )
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


index.linear("x")


@index.vjp
def _(g: Tensor, indices: Indices, shape: Shape) -> Any:
    return put(g.new_zeros(shape), indices, g, True), None


@operation("IndexPutBackward0")
def put(x: Tensor, indices: Indices, values: Tensor, accumulate: bool) -> Tensor:
    """`x` with values written or added at the given places."""
    check_put(x, indices, values)
    axes = [d for d, i in enumerate(indices) if i is not None]
    places = [i for i in indices if i is not None]
    return write_rows(x, axes, places, values, IN_BRACKETS, add=accumulate, names=range(len(axes)))


put.linear("x", "values")


@put.vjp
def _(g: Tensor, indices: Indices, accumulate: bool) -> Any:
    kept = g if accumulate else put(g, indices, g.new_zeros(()), False)
    return kept, None, read(g, indices)


class BatchedPlaces:
    """Indices into tensors of examples, and where the axes of what is indexed lie among those of all
    examples."""

    def __init__(self, batch: Batch, indices: Indices) -> None:
        given = [i for i in indices if i is not None]
        common = broadcast_indices(given)
        axes = [d for d, i in enumerate(indices) if i is not None]
        adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
        self.front, self.count = axes[0] if adjacent else 0, len(common)
        self.indices: list[Tensor | None]
        self.differ = any(map(batch.has, given))
        if not self.differ:
            self.indices = [None, *indices]
            # Indices that are not side by side come first, before the axis of the examples.
            self.moves = not adjacent
            return
        rank = len(common)
        self.moves = False
        numbers = creation.arange(batch.size, device=given[0].device).reshape(-1, *[1] * rank)
        self.indices = [numbers, *[None if i is None else self._aligned(batch, i) for i in indices]]

    def _aligned(self, batch: Batch, index: Tensor) -> Tensor:
        if not batch.has(index):
            return index
        whole = batch.full(index)
        return whole.reshape(whole.shape[0], *[1] * (self.count - index.ndim), *index.shape)

    def out(self, made: Tensor) -> Tensor:
        """What was read, with the axis of the examples in front and the rest as for one."""
        count, front = self.count, self.front
        if not self.differ:
            return made.movedim(count, 0) if self.moves else made
        # (examples, *common, *kept) if the numbers of the examples are beside the others or all come first
        if front:
            return made.movedim(
                list(range(1, count + 1)), list(range(front + 1, front + count + 1))
            )
        return made

    def back(self, values: Tensor) -> Tensor:
        """What is to be written, laid out as the op wants it: the inverse of `out`."""
        count, front = self.count, self.front
        if not self.differ:
            return values.movedim(0, count) if self.moves else values
        if front:
            return values.movedim(
                list(range(front + 1, front + count + 1)), list(range(1, count + 1))
            )
        return values


@index.batched
def _(batch: Batch, x: Tensor, indices: Indices, shape: Shape) -> Tensor:
    places = BatchedPlaces(batch, indices)
    whole = batch.full(x)
    return batch.wrapped(places.out(index(whole, places.indices, whole.shape)))


@put.batched
def _(batch: Batch, x: Tensor, indices: Indices, values: Tensor, accumulate: bool) -> Tensor:
    check_put(x, indices, values)
    places = BatchedPlaces(batch, indices)
    source = places.back(batch.full(values.expand(indexed_shape(x.shape, indices))))
    return batch.wrapped(put(batch.full(x), places.indices, source, accumulate))


@export(method=True, inplace=True)
def index_put(
    input: Tensor, indices: Sequence[Tensor], values: Tensor, accumulate: bool = False
) -> Tensor:
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
        if item is not None and item.dtype in MASKS:
            item = untraced("nonzero", item)
            check_mask(item, len(places), input)
            places += nonzero(item, as_tuple=True)
        else:
            if item is not None:
                check_index(item)
            places.append(item)
    if all(place is None for place in places):
        raise RuntimeError("index_put(): expected at least one tensor of indices, but got none")
    if len(places) > input.ndim:
        raise IndexError(
            f"too many indices for tensor of dimension {input.ndim} (got {len(places)})"
        )
    return put(input, places, values, accumulate)


def check_index(index: Tensor) -> None:
    """Refuse what counts nothing."""
    if index.dtype not in (dtypes.int64, dtypes.int32):
        raise IndexError("tensors used as indices must be long, int, byte or bool tensors")


def indexed_shape(shape: Shape, indices: Indices) -> Shape:
    """The shape of `x[indices]`."""
    common = broadcast_indices([i for i in indices if i is not None])
    named = named_axes(indices, range(len(shape)), len(common))
    return tuple([common[~d] if d < 0 else shape[d] for d in named])


def check_put(x: Tensor, indices: Indices, values: Tensor) -> None:
    """Raise if values cannot be written to the given places."""
    shape = indexed_shape(x.shape, indices)
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


write_at = in_place(put, "write_at")


def write_places(x: Tensor, indices: Indices, values: Tensor) -> None:
    """Write values at the given places of a tensor; of one that lies with its axes in another order, in that
    order: all of it would be copied else."""
    spec = x._spec
    is_turned = not spec.contiguous and is_dense(spec.shape, spec.strides)
    if is_turned and x.__class__ not in tracers and not any(map(is_differentiated, (x, values))):
        check_put(x, indices, values)
        x, indices, values = as_it_lies(x, indices, values)
    write_at(x, list(indices), values, False)


def as_it_lies(x: Tensor, indices: Indices, values: Tensor) -> tuple[Tensor, Indices, Tensor]:
    """The same places and values of a tensor whose axes are put in the order in which they lie."""
    order = sorted(range(x.ndim), key=lambda d: -x._spec.strides[d])
    given = [*indices, *[None] * (x.ndim - len(indices))]
    turned = [given[d] for d in order]
    if values.ndim:
        rank = max([index.ndim for index in indices if index is not None])
        axes, as_they_lie = named_axes(given, range(x.ndim), rank), named_axes(turned, order, rank)
        values = values.expand(indexed_shape(x.shape, given))
        values = values.permute([axes.index(a) for a in as_they_lie])
    return x.permute(order), turned, values


def named_axes(indices: Indices, names: Sequence[int], rank: int) -> list[int]:
    """The axes of `x[indices]`: those of `x` that are kept, by name, and ~0, ~1, … of indices of a rank."""
    axes = [d for d, i in enumerate(indices) if i is not None]
    common = [~k for k in range(rank)]
    kept = [name for d, name in enumerate(names) if d not in axes]
    front = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
    return [*kept[:front], *common, *kept[front:]]


Tensor.__getitem__ = caches_views(getitem, chooses=index)  # type: ignore[method-assign]
Tensor.__setitem__ = assigning(  # type: ignore[method-assign]
    Tensor.__getitem__, write.assignments, write.number_assignments, copy_slices.graded_assignments,
    copy_slices.slices_op, lambda: (vars(Tensor)["copy_"], vars(Tensor)["fill_"]), setitem,
)  # fmt: skip
