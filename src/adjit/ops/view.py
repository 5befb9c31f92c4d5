"""Views: other shapes and strides on the same storage."""

from __future__ import annotations

import functools
import itertools
import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import devices, dtypes, gpu
from ..graph import elementwise_record, fastpath, inplace, record, write
from ..graph.export import add_method, export
from ..graph.launch import launch
from ..graph.node import Spec, dense_spec, spec_of
from ..graph.operation import operation
from ..graph.view import alias, aliases, view_op
from ..graph.view_cache import viewing
from ..graph.write import pair
from ..kernels.ops import strided
from ..schedule.settle import value_of
from ..shapes import (
    Shape,
    Size,
    broadcast_shapes,
    contiguous_strides,
    infer_view_shape,
    is_dense,
    listed,
    shape_of,
    view_strides,
    wrap_dim,
)
from ..tensor import Tensor
from . import elementwise
from .creation import empty, legacy_dtype, number_like, of_numbers, pinned, zeros
from .joining import cat, stack
from .layouts import channels_last

# ----- one axis order for another -----


@export(method=True)
@viewing
@listed("dims")
def permute(input: Tensor, *dims: Any) -> Tensor:
    """Put the axes in another order: a view.

    Raises:
        RuntimeError: if `dims` is no permutation of the axes.

    Example:
        >>> adjit.zeros(2, 3).permute(1, 0).shape
        adjit.Size([3, 2])
    """
    order = shape_of(dims)
    ndim = input.ndim
    if len(order) != ndim:
        raise RuntimeError(
            f"permute(sparse_coo): number of dimensions in the tensor input does not match the "
            f"length of the desired ordering of dimensions i.e. input.dim() = {ndim} is not equal "
            f"to len(dims) = {len(order)}"
        )
    wrapped = [wrap_dim(d, ndim) for d in order]
    if len(set(wrapped)) != ndim:
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    return _permuted(input, wrapped, "PermuteBackward0")


def _permuted(t: Tensor, order: Sequence[int], name: str) -> Tensor:
    spec = t.spec
    back = [0] * len(order)
    for k, d in enumerate(order):
        back[d] = k
    return alias(
        t, [spec.shape[d] for d in order], tuple([spec.strides[d] for d in order]), t.offset, name,
        lambda g: _permuted(g, back, name),
    )  # fmt: skip


@export(method=True, name=("transpose", "swapaxes", "swapdims"))
@viewing
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Exchange two axes: a view.

    Args:
        dim0, dim1: the axes; negative ones count from the end.

    Example:
        >>> adjit.zeros(2, 3, 4).transpose(0, 2).shape
        adjit.Size([4, 3, 2])
    """
    ndim = input.ndim
    a, b = wrap_dim(dim0, ndim), wrap_dim(dim1, ndim)
    order = list(range(ndim))
    if ndim:
        order[a], order[b] = b, a
    return _permuted(input, order, "TransposeBackward0")


@export(method=True)
@viewing
def t(input: Tensor) -> Tensor:
    """Transpose a matrix; anything of fewer axes stays as it is. A view.

    Raises:
        RuntimeError: with more than two axes.

    Example:
        >>> adjit.tensor([[1, 2], [3, 4]]).t()
        tensor([[1, 3],
                [2, 4]])
    """
    if input.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D")
    return _permuted(input, list(range(input.ndim))[::-1], "TBackward0")


@export(method=True, name=("movedim", "moveaxis"))
@viewing
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Move axes to other places, the rest keeping their order: a view.

    Raises:
        RuntimeError: if `source` and `destination` are not as many, or repeat an axis.

    Example:
        >>> adjit.zeros(2, 3, 4).movedim(0, -1).shape
        adjit.Size([3, 4, 2])
    """
    sources = [source] if isinstance(source, int) else list(source)
    targets = [destination] if isinstance(destination, int) else list(destination)
    if len(sources) != len(targets):
        raise RuntimeError(
            "movedim: Invalid source or destination dims: source "
            f"({sources} dims) should contain the same number of dims as destination "
            f"({targets} dims)"
        )
    ndim = input.ndim
    given = {"source": sources, "destination": targets}
    sources, targets = [wrap_dim(d, ndim) for d in sources], [wrap_dim(d, ndim) for d in targets]
    for label, dims in (("source", sources), ("destination", targets)):
        if len(set(dims)) != len(dims):
            raise RuntimeError(f"movedim: repeated dim in `{label}` ({given[label]})")
    rest = iter([d for d in range(ndim) if d not in sources])
    placed = dict(zip(targets, sources, strict=True))
    return _permuted(
        input, [placed[d] if d in placed else next(rest) for d in range(ndim)], "PermuteBackward0"
    )


@export(public=False, method=True)
@viewing
def adjoint(input: Tensor) -> Tensor:
    """Exchange the last two axes: a view.

    Example:
        >>> adjit.zeros(5, 2, 3).adjoint().shape
        adjit.Size([5, 3, 2])
    """
    return transpose(input, -2, -1)


def _matrix_transpose(input: Tensor) -> Tensor:
    """The matrices of a batch transposed, their last two axes exchanged: a view.

    Raises:
        RuntimeError: for a tensor of fewer than two axes.

    Example:
        >>> adjit.zeros(5, 2, 3).mT.shape
        adjit.Size([5, 3, 2])
    """
    if input.ndim < 2:
        raise RuntimeError(
            "tensor.mT is only supported on matrices or batches of matrices. Got "
            f"{input.ndim}-D tensor."
        )
    return transpose(input, -2, -1)


@viewing
def _reversed_axes(input: Tensor) -> Tensor:
    """The tensor with all its axes reversed: a view.

    Example:
        >>> adjit.zeros(2, 3, 4).T.shape
        adjit.Size([4, 3, 2])
    """
    return _permuted(input, list(range(input.ndim))[::-1], "PermuteBackward0")


Tensor.T = property(_reversed_axes)  # type: ignore[attr-defined]
Tensor.mT = property(_matrix_transpose)  # type: ignore[attr-defined]
Tensor.mH = property(_matrix_transpose)  # type: ignore[attr-defined]
Tensor.H = property(_matrix_transpose)  # type: ignore[attr-defined]

# ----- other shapes -----


@export(public=False, method=True)
@viewing
@listed("size", "dtype")
def view(input: Tensor, *shape: Any) -> Tensor:
    """The same elements in another shape, without a copy.

    A result that the library itself laid out with its channels last (PyTorch's would be in C order)
    is copied; while both are there, writing into one of them in place raises, and NumPy arrays on
    them can only be read.

    Raises:
        RuntimeError: if the sizes do not fit, or only a copy could have that shape.

    Example:
        >>> adjit.tensor([1, 2, 3, 4]).view(2, -1)
        tensor([[1, 2],
                [3, 4]])
    """
    if len(shape) == 1 and isinstance(shape[0], dtypes.dtype):
        return _view_dtype(input, shape[0])
    target, strides = _reshaped(input.spec, shape)
    lends = input.storage.shared  # others may write into its memory, which a copy would not see
    if strides is None and input.view_of is None and not lends and channels_last(input):
        copied = input.contiguous()
        pair(input.storage, copied.storage)
        return view(copied, target)
    if strides is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one "
            "dimension spans across two contiguous subspaces). Use .reshape(...) instead."
        )
    return _viewed(input, target, strides, "ViewBackward0")


def _reshaped(spec: Spec, requested: tuple[Any, ...]) -> tuple[Size, Shape | None]:
    """The shape that is asked for, and the strides of a view of it, None where it takes a copy."""
    sizes: Any = requested
    if len(requested) == 1 and requested[0].__class__ in (Size, tuple, list):
        sizes = requested[0]
    if {int}.issuperset([s.__class__ for s in sizes]):
        return _reshaped_to(spec, tuple(sizes))
    return _reshaped_to.__wrapped__(spec, requested)


@functools.lru_cache(4096)
def _reshaped_to(spec: Spec, sizes: tuple[Any, ...]) -> tuple[Size, Shape | None]:
    target = infer_view_shape(sizes, spec.numel)
    return target, view_strides(spec.shape, spec.strides, target)


def _viewed(t: Tensor, shape: Size, strides: Shape, name: str) -> Tensor:
    old = t.spec.shape
    return alias(t, shape, strides, t.offset, name, lambda g: reshape(g, old))


def _view_dtype(t: Tensor, kind: dtypes.dtype) -> Tensor:
    if dtypes.check(kind) is t.dtype:
        return _viewed(t, t.spec.shape, t.spec.strides, "AliasBackward0")
    raise NotImplementedError(
        f"view(dtype) from {t.dtype} to {kind} is not supported; use .to(dtype) to convert the "
        "values, or .numpy().view() to read the bytes"
    )


@export(method=True)
def view_as(input: Tensor, other: Tensor) -> Tensor:
    """View the same elements in the shape of another tensor; see `view`.

    Example:
        >>> adjit.tensor([1, 2, 3, 4]).view_as(adjit.zeros(2, 2))
        tensor([[1, 2],
                [3, 4]])
    """
    return view(input, other.shape)


@export(method=True)
@viewing
@listed("shape")
def reshape(input: Tensor, *shape: Any) -> Tensor:
    """Give the elements another shape, -1 standing for one size: a view where possible, else a copy.

    Raises:
        RuntimeError: if the sizes do not fit.

    Example:
        >>> adjit.tensor([[1, 2, 3], [4, 5, 6]]).reshape(3, -1)
        tensor([[1, 2],
                [3, 4],
                [5, 6]])
    """
    target, strides = _reshaped(input.spec, shape)
    if strides is None:
        fresh = clone(input, contiguous=True)
        return _viewed(fresh, target, contiguous_strides(target), "UnsafeViewBackward0")
    return _viewed(input, target, strides, "ViewBackward0")


@export(method=True)
def reshape_as(input: Tensor, other: Tensor) -> Tensor:
    """Give the elements the shape of another tensor; see `reshape`.

    Example:
        >>> adjit.tensor([1, 2, 3, 4]).reshape_as(adjit.zeros(2, 2))
        tensor([[1, 2],
                [3, 4]])
    """
    return reshape(input, other.shape)


@export(method=True)
@viewing
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Merge the axes from `start_dim` to `end_dim` into one: a view where possible, else a copy.

    Raises:
        RuntimeError: if `start_dim` comes after `end_dim`.

    Example:
        >>> adjit.zeros(2, 3, 4).flatten(1).shape
        adjit.Size([2, 12])
    """
    first, last = wrap_dim(start_dim, input.ndim), wrap_dim(end_dim, input.ndim)
    if first > last:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if input.ndim == 0:
        return reshape(input, 1)
    if first == last:
        return input
    shape = input.shape
    merged = math.prod(shape[first : last + 1])
    return reshape(input, (*shape[:first], merged, *shape[last + 1 :]))


@export(method=True)
@viewing
def ravel(input: Tensor) -> Tensor:
    """Merge all axes into one, in C order: a view where the elements lie so, else a copy.

    Example:
        >>> adjit.tensor([[1, 2], [3, 4]]).ravel()
        tensor([1, 2, 3, 4])
    """
    dense = input.contiguous()
    return view(dense, -1) if dense.numel() else view(dense, 0)


@export(method=True)
@viewing
def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """Split one axis into several, of which one may be -1: a view.

    Args:
        dim: the axis.
        sizes: their product is its size; one may be -1.

    Example:
        >>> adjit.zeros(2, 12).unflatten(1, (3, -1)).shape
        adjit.Size([2, 3, 4])
    """
    d = wrap_dim(dim, input.ndim)
    shape = infer_view_shape((tuple(sizes),), input.shape[d])
    return view(input, (*input.shape[:d], *shape, *input.shape[d + 1 :]))


@export(method=True, inplace=False)
@viewing
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """Put in a new axis of size 1: a view.

    Args:
        dim: the place of the new axis in the result.

    Example:
        >>> adjit.tensor([1, 2]).unsqueeze(1)
        tensor([[1],
                [2]])
    """
    ndim = input.ndim + 1
    d = wrap_dim(dim, ndim)
    shape, strides = input.spec.shape, input.spec.strides
    stride = shape[d] * strides[d] if d < input.ndim else 1
    return alias(
        input, (*shape[:d], 1, *shape[d:]), (*strides[:d], stride, *strides[d:]), input.offset,
        "UnsqueezeBackward0", lambda g: squeeze(g, d),
    )  # fmt: skip


@export(method=True)
@viewing
def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """Drop axes of size 1: all, or those of the given axes that have size 1. A view.

    Args:
        dim: an int or ints; None for all.

    Example:
        >>> adjit.zeros(1, 2, 1).squeeze(-1).shape
        adjit.Size([1, 2])
    """
    spec, ndim = input.spec, input.ndim
    if dim is None:
        drop = [d for d in range(ndim) if spec.shape[d] == 1]
        name = "SqueezeBackward0"
    else:
        dims = [dim] if isinstance(dim, int) else list(dim)
        wrapped = [wrap_dim(d, ndim) for d in dims]
        drop = [d for d in wrapped if ndim and spec.shape[d] == 1]
        name = "SqueezeBackward1" if isinstance(dim, int) else "SqueezeBackward2"
    keep = [d for d in range(ndim) if d not in drop]
    shape = spec.shape
    return alias(
        input, [spec.shape[d] for d in keep], tuple([spec.strides[d] for d in keep]), input.offset,
        name, lambda g: reshape(g, shape),
    )  # fmt: skip


def _reshaping_inplace(function: Any, name: str, arguments: str, shape: list[int]) -> Any:
    def method(self: Tensor, *args: Any) -> Tensor:
        inplace.check(self)
        made = function(self, *args)
        self.spec, self.offset = made.spec, made.offset
        self.counter.version += 1
        if made.edge is not None:
            fn = made.edge[0]
            fn.op = view_op(fn.name()[:-1] + "1")
            fn.__class__ = fn.op.node_class
            self.edge = made.edge
            if self.view_of is not None:
                self.view_of.version = self.counter.version
        return self

    method.__doc__ = f"""In-place form of `{name}`: this tensor takes the new shape, others on its memory stay.

    Example:
        >>> x = adjit.zeros(1, 2)
        >>> x.{name}_({arguments}).shape
        adjit.Size({shape})
    """
    return method


for _name, _function, _arguments, _shape in (
    ("squeeze", squeeze, "0", [2]), ("unsqueeze", unsqueeze, "0", [1, 1, 2]), ("t", t, "", [2, 1]),
    ("transpose", transpose, "0, 1", [2, 1]), ("swapaxes", transpose, "0, 1", [2, 1]),
    ("swapdims", transpose, "0, 1", [2, 1]),
):  # fmt: skip
    add_method(f"{_name}_", _reshaping_inplace(_function, _name, _arguments, _shape))


@export(method=True)
@viewing
@listed("size")
def expand(input: Tensor, *sizes: Any, implicit: bool = False) -> Tensor:
    """Repeat axes of size 1 without a copy; -1 keeps a size. A view.

    Raises:
        RuntimeError: if an axis of another size would have to change.

    Example:
        >>> adjit.tensor([[1], [2]]).expand(-1, 3)
        tensor([[1, 1, 1],
                [2, 2, 2]])
    """
    target = list(shape_of(sizes))
    spec = input.spec
    lead = len(target) - spec.ndim
    if lead < 0:
        raise RuntimeError(
            f"expand({input.dtype.legacy}Tensor{{{list(spec.shape)}}}, size={target}): the number "
            f"of sizes provided ({len(target)}) must be greater or equal to the number of "
            f"dimensions in the tensor ({spec.ndim})"
        )
    strides = [0] * lead
    for d in range(lead):
        if target[d] < 0:
            raise RuntimeError(
                f"The expanded size of the tensor ({target[d]}) isn't allowed in a leading, "
                f"non-existing dimension {d}"
            )
    for d, (size, stride) in enumerate(zip(spec.shape, spec.strides, strict=True), lead):
        if target[d] == -1:
            target[d] = size
        if target[d] == size:
            strides.append(stride)
        elif size == 1:
            strides.append(0)
        else:
            raise RuntimeError(
                f"The expanded size of the tensor ({target[d]}) must match the existing size "
                f"({size}) at non-singleton dimension {d}.  Target sizes: {target}.  Tensor "
                f"sizes: {list(spec.shape)}"
            )
    # The engine sums a gradient that is wider than its input.
    return alias(input, target, tuple(strides), input.offset, "ExpandBackward0", lambda g: g)


@export(method=True)
def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """Expand to the shape of another tensor; see `expand`.

    Example:
        >>> adjit.tensor([1, 2]).expand_as(adjit.zeros(2, 2))
        tensor([[1, 2],
                [1, 2]])
    """
    return expand(input, other.shape)


@export(method=True)
@viewing
def broadcast_to(input: Tensor, size: Any) -> Tensor:
    """Expand to a shape; see `expand`.

    Example:
        >>> adjit.tensor([1, 2]).broadcast_to((2, 2))
        tensor([[1, 2],
                [1, 2]])
    """
    return expand(input, size)


# ----- parts -----


@export(method=True)
@viewing
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """Take one index of an axis, which goes away: a view.

    Raises:
        IndexError: if there is no such index, or no axis.

    Example:
        >>> adjit.tensor([[1, 2], [3, 4]]).select(1, 0)
        tensor([1, 3])
    """
    spec = input.spec
    if not spec.ndim:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    d = wrap_dim(dim, spec.ndim)
    size = spec.shape[d]
    k = index.__index__()
    if not -size <= k < size:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(spec.shape)} at "
            f"dimension {d}"
        )
    k %= size
    shape, strides = spec.shape, spec.strides
    return alias(
        input, shape[:d] + shape[d + 1 :], strides[:d] + strides[d + 1 :],
        input.offset + k * strides[d], "SelectBackward0",
        lambda g: scatter_part(g, spec, "select", d, k),
    )  # fmt: skip


def slice_dim(input: Tensor, dim: int, start: int, stop: int, step: int) -> Tensor:
    """Indices `start:stop:step` of an axis, already within its size: a view."""
    spec = input.spec
    shape, strides = list(spec.shape), list(spec.strides)
    offset = input.offset + start * strides[dim]
    shape[dim] = max(0, (stop - start + step - 1) // step)
    strides[dim] *= step
    return alias(
        input, shape, tuple(strides), offset, "SliceBackward0",
        lambda g: scatter_part(g, spec, "slice", dim, start, stop, step),
    )  # fmt: skip


@export(method=True)
@viewing
def narrow(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """Take `length` indices of an axis from `start` on: a view.

    Raises:
        RuntimeError: if they are not all there.

    Example:
        >>> adjit.tensor([1, 2, 3, 4]).narrow(0, 1, 2)
        tensor([2, 3])
    """
    if input.ndim == 0:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    d = wrap_dim(dim, input.ndim)
    size = input.shape[d]
    if record.is_tensor(start) and (start.ndim or start.dtype.kind not in "iu"):
        raise RuntimeError("start must be an 0-dim integral Tensor.")
    first = int(start)
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    if not -size <= first <= size:
        raise IndexError(
            f"start out of range (expected to be in range of [{-size}, {size}], but got {first})"
        )
    if first < 0:
        first += size
    if first + length > size:
        raise RuntimeError(f"start ({first}) + length ({length}) exceeds dimension size ({size}).")
    return slice_dim(input, d, first, first + length, 1)


@export(method=True)
@viewing
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """View the diagonal of two axes as the last axis; `offset` is positive above the main one.

    Args:
        offset: which diagonal: 0 the main one.
        dim1, dim2: the axes of the matrices.

    Example:
        >>> adjit.tensor([[1, 2], [3, 4]]).diagonal()
        tensor([1, 4])
    """
    spec = input.spec
    a, b = wrap_dim(dim1, spec.ndim), wrap_dim(dim2, spec.ndim)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    rows, columns = spec.shape[a], spec.shape[b]
    length = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    start = input.offset
    if length:
        start += offset * spec.strides[b] if offset >= 0 else -offset * spec.strides[a]
    rest = [d for d in range(spec.ndim) if d not in (a, b)]
    return alias(
        input, [*(spec.shape[d] for d in rest), length],
        (*(spec.strides[d] for d in rest), spec.strides[a] + spec.strides[b]), start,
        "DiagonalBackward0", lambda g: scatter_part(g, spec, "diagonal", offset, a, b),
    )  # fmt: skip


@export(public=False, method=True)
def unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """View windows of `size` along an axis, one every `step`, as a new last axis.

    Args:
        dimension: the axis.
        size: of a window.
        step: from one window to the next.

    Raises:
        RuntimeError: if a window does not fit, or the step is not positive.

    Example:
        >>> adjit.tensor([1, 2, 3, 4, 5]).unfold(0, 3, 2)
        tensor([[1, 2, 3],
                [3, 4, 5]])
    """
    spec = input.spec
    d = wrap_dim(dimension, spec.ndim)
    length = spec.shape[d] if spec.ndim else 1
    if size > length:
        raise RuntimeError(
            f"maximum size for tensor at dimension {d} is {length} but size is {size}"
        )
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    shape, strides, stride = list(spec.shape), list(spec.strides), 1
    if spec.ndim:  # of no dimension is a window by itself
        stride = strides[d]
        shape[d] = (length - size) // step + 1
        strides[d] = stride * step
    made = spec_of((*shape, size), (*strides, stride), spec.dtype, spec.device)
    return alias(
        input,
        made.shape,
        made.strides,
        input.offset,
        "UnfoldBackward0",
        lambda g: scatter_strided(g, *_relative(spec, made)),
    )


def _relative(base: Spec, region: Spec) -> tuple[Spec, Spec, int]:
    """A region of `base` as a region of the same tensor in C order."""
    dense = dense_spec(base.shape, base.dtype, base.device)
    if dense is base or base.strides == dense.strides:
        return dense, region, 0
    table = {}
    for old, new in zip(base.strides, dense.strides, strict=True):
        table[old] = new
    strides = []
    for st in region.strides:
        exact = [o for o in table if o and st % o == 0]
        if st and not exact:
            raise RuntimeError("the strides of this view cannot be followed back")
        strides.append(table[max(exact)] * (st // max(exact)) if st else 0)
    return dense, spec_of(region.shape, tuple(strides), region.dtype, region.device), 0


@export(method=True)
@viewing
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Take an axis apart into its slices: views.

    Args:
        dim: the axis.

    Raises:
        IndexError: on a 0-d tensor.

    Example:
        >>> adjit.tensor([[1, 2], [3, 4]]).unbind()
        (tensor([1, 2]), tensor([3, 4]))
    """
    spec = input.spec
    if not spec.ndim:
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    d = wrap_dim(dim, spec.ndim)
    shape, strides = spec.shape[:d] + spec.shape[d + 1 :], spec.strides[:d] + spec.strides[d + 1 :]
    slice_spec = spec_of(shape, strides, spec.dtype, spec.device)
    parts = [(slice_spec, k * spec.strides[d]) for k in range(spec.shape[d])]
    return aliases(input, parts, "UnbindBackward0", lambda gs: _stacked(gs, slice_spec, d))


def _stacked(grads: Sequence[Any], spec: Spec, d: int) -> Tensor:
    return stack([zeros_in(spec) if g is None else g for g in grads], d)


def zeros_in(spec: Spec) -> Tensor:
    """Zeros of a shape and dtype, on a device, in C order."""
    return zeros(spec.shape, dtype=spec.dtype, device=spec.device)


def _joined(grads: Sequence[Any], specs: Sequence[Spec], d: int) -> Tensor:
    return cat([zeros_in(s) if g is None else g for g, s in zip(grads, specs, strict=True)], d)


def _parts(input: Tensor, sizes: Sequence[int], d: int, name: str) -> tuple[Tensor, ...]:
    spec = input.spec
    parts = _cut(spec, tuple(sizes), d)
    return aliases(input, parts, name, lambda gs: _joined(gs, [s for s, _ in parts], d))


@functools.lru_cache(1024)
def _cut(spec: Spec, sizes: tuple[int, ...], d: int) -> list[tuple[Spec, int]]:
    """The parts of these sizes along an axis, and where each starts."""
    shape, strides, kind = spec.shape, spec.strides, spec.dtype
    starts = itertools.accumulate(sizes, initial=0)
    return [
        (
            spec_of((*shape[:d], size, *shape[d + 1 :]), strides, kind, spec.device),
            start * strides[d],
        )
        for size, start in zip(sizes, starts, strict=False)
    ]


@export(method=True)
@viewing
def split(tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Cut an axis into parts of one size (the last may be smaller) or of the given sizes: views.

    Args:
        split_size_or_sections: the size of a part, or the sizes of all.
        dim: the axis.

    Raises:
        RuntimeError: if the sizes do not add up, or are negative.

    Example:
        >>> adjit.tensor([1, 2, 3, 4, 5]).split(2)
        (tensor([1, 2]), tensor([3, 4]), tensor([5]))
    """
    if tensor.ndim == 0:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    d = wrap_dim(dim, tensor.ndim)
    total = tensor.shape[d]
    if isinstance(split_size_or_sections, int):
        size = split_size_or_sections
        if size < 0:
            raise RuntimeError(
                f"split expects split_size be non-negative, but got split_size={size}"
            )
        if size == 0:
            if total:
                raise RuntimeError(
                    "split_size can only be 0 if dimension size is 0, but got dimension size of "
                    f"{total}"
                )
            sizes = [0]
        else:
            sizes = [min(size, total - k) for k in range(0, total, size)] or [0]
        return _parts(tensor, sizes, d, "SplitBackward0")
    sizes = [int(s) for s in split_size_or_sections]
    if sum(sizes) != total or any(s < 0 for s in sizes):
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {total} (input tensor's size "
            f"at dimension {d}), but got split_sizes={sizes}"
        )
    return _parts(tensor, sizes, d, "SplitWithSizesBackward0")


@export(method=True)
@viewing
def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Cut an axis into parts of the given sizes: views.

    Args:
        split_sizes: the sizes of all parts.
        dim: the axis.

    Raises:
        RuntimeError: if the sizes do not add up to that of the axis.

    Example:
        >>> adjit.tensor([1, 2, 3]).split_with_sizes([1, 2])
        (tensor([1]), tensor([2, 3]))
    """
    return split(input, list(split_sizes), dim)


@export(method=True)
@viewing
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Cut an axis into at most `chunks` parts of equal size (the last may be smaller): views.

    Args:
        chunks: the most parts.
        dim: the axis.

    Example:
        >>> adjit.tensor([1, 2, 3, 4, 5]).chunk(2)
        (tensor([1, 2, 3]), tensor([4, 5]))
    """
    if input.ndim == 0:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    d = wrap_dim(dim, input.ndim)
    size = -(-input.shape[d] // chunks)
    if size == 0:
        return split(input, [0] * chunks, d)
    return split(input, size, d)


@export(method=True)
@listed("sections", "indices", "tensor_indices_or_sections")
def tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Cut an axis into a number of nearly equal parts, or at indices: views.

    Args:
        indices_or_sections: how many parts, or where to cut.
        dim: the axis.

    Example:
        >>> adjit.tensor([1, 2, 3, 4, 5]).tensor_split(2)
        (tensor([1, 2, 3]), tensor([4, 5]))
        >>> adjit.tensor([1, 2, 3, 4, 5]).tensor_split((1, 3))
        (tensor([1]), tensor([2, 3]), tensor([4, 5]))
    """
    if input.ndim == 0:
        raise RuntimeError(
            "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims"
        )
    d = wrap_dim(dim, input.ndim)
    total = input.shape[d]
    if record.is_tensor(indices_or_sections):
        indices_or_sections = _cuts_of(indices_or_sections)
    if isinstance(indices_or_sections, int):
        sections = indices_or_sections
        if sections <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {sections}")
        base, extra = divmod(total, sections)
        cuts = [base * k + min(k, extra) for k in range(1, sections)]
    else:
        cuts = [slice(None, int(k)).indices(total)[1] for k in indices_or_sections]
    parts = []
    start = 0
    for stop in [*cuts, total]:
        parts.append(slice_dim(input, d, min(start, total), max(start, stop), 1))
        start = stop
    return tuple(parts)


def _cuts_of(found: Tensor) -> Any:
    """The number of parts, or the indices to cut at, that a tensor holds."""
    if found.dtype is not dtypes.int64 or found.device.type != "cpu" or found.ndim > 1:
        raise RuntimeError(
            "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or "
            "one-dimensional int64 tensor on cpu, but got tensor_indices_or_sections with "
            f"{found.ndim} dimensions, dtype {found.dtype.legacy} on {found.device}"
        )
    return found.tolist()


@export(method=True)
def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """View the storage of `input` with any sizes and strides.

    Args:
        size: the shape.
        stride: elements to step over from one index to the next, for each axis.
        storage_offset: where the first element lies in the storage; that of `input` unless given.

    Raises:
        RuntimeError: if it would reach outside the storage.

    Example:
        >>> adjit.tensor([1, 2, 3, 4]).as_strided((3, 2), (1, 1))
        tensor([[1, 2],
                [2, 3],
                [3, 4]])
    """
    shape, strides = Size(size), tuple(int(s) for s in stride)
    if len(shape) != len(strides):
        raise RuntimeError("mismatch in length of strides and shape")
    if any(st < 0 for st in strides):
        raise RuntimeError(
            f"as_strided: Negative strides are not supported at the moment, got strides: {list(strides)}"
        )
    start = input.offset if storage_offset is None else int(storage_offset)
    spec = spec_of(shape, strides, input.dtype, input.spec.device)
    room = input.storage.nbytes // input.dtype.itemsize
    if spec.numel and (start < 0 or start + spec.extent > room):
        raise RuntimeError(
            f"setStorage: sizes {list(shape)}, strides {list(strides)}, storage offset {start}, and "
            f"itemsize {input.dtype.itemsize} requiring a storage size of "
            f"{(start + spec.extent) * input.dtype.itemsize} are out of bounds for storage of size "
            f"{input.storage.nbytes}"
        )
    base, offset = input.spec, start - input.offset
    return alias(
        input,
        shape,
        strides,
        start,
        "AsStridedBackward0",
        lambda g: scatter_strided(g, base, spec, offset),
    )


# ----- gradients of parts -----

_parts_by_name: dict[str, Any] = {
    "select": lambda t, d, k: select(t, d, k),
    "slice": lambda t, d, start, stop, step: slice_dim(t, d, start, stop, step),
    "diagonal": lambda t, offset, a, b: diagonal(t, offset, a, b),
}


@operation("ScatterPartBackward0")
def scatter_part(g: Tensor, spec: Spec, part: str, *where: int) -> Tensor:
    """Zeros of a shape, with `g` in the part that a view op shows."""
    out = zeros_in(spec)
    _parts_by_name[part](out, *where).copy_(g)
    return record.make_tensor(out.storage, out.spec)


@scatter_part.vjp
def _(g: Any, part: Any, where: Any) -> Any:
    return _parts_by_name[part](g, *where)


@operation("ScatterStridedBackward0")
def scatter_strided(g: Tensor, base: Spec, region: Spec, offset: int) -> Tensor:
    """Zeros in the geometry of `base`, with `g` added where a strided region of it lies."""
    base, region, offset = follow(base, region, offset)
    if g.spec.contiguous is False:
        g = clone(g, contiguous=True)
    flat = zeros_in(dense_spec((base.numel,), base.dtype, base.device))
    out = launch(
        strided.add_region, (flat, g), [((base.numel,), base.dtype)], bind={"T": base.dtype},
        words=(base.numel, offset, region.ndim, *region.shape, *region.strides), n=1,
    )  # fmt: skip
    return record.make_tensor(out.storage, base)


@scatter_strided.vjp
def _(g: Any, base: Any, region: Any, offset: Any) -> Any:
    return gather_strided(g, base, region, offset)


@operation("GatherStridedBackward0")
def gather_strided(g: Tensor, base: Spec, region: Spec, offset: int) -> Tensor:
    """The region of a gradient that has the shape of `base`, wherever its own bytes lie."""
    base, region, offset = follow(base, region, offset)
    laid = _laid_out(g, base)
    before, behind = -min(offset, 0), max(offset + region.extent - base.numel, 0)
    if before or behind:  # the region may show elements of the storage that `base` does not have
        flat = record.make_tensor(laid.storage, dense_spec((base.numel,), base.dtype, base.device))
        laid = zeros(before + base.numel + behind, dtype=base.dtype, device=base.device)
        narrow(laid, 0, before, base.numel).copy_(flat)
    view = record.make_tensor(laid.storage, region, offset + before)
    return clone(view, contiguous=True)


@gather_strided.vjp
def _(g: Any, base: Any, region: Any, offset: Any) -> Any:
    return scatter_strided(g, base, region, offset)


@operation("WithoutRegionBackward0")
def without_region(g: Tensor, base: Spec, region: Spec, offset: int) -> Tensor:
    """A gradient of `base` with a strided region set to zero."""
    base, region, offset = follow(base, region, offset)
    laid = _laid_out(g, base)
    write.store(
        record.make_tensor(laid.storage, region, offset),
        expand(zeros_in(dense_spec((), base.dtype, base.device)), region.shape),
    )
    return record.make_tensor(laid.storage, base)


@without_region.vjp
def _(g: Any, base: Any, region: Any, offset: Any) -> Any:
    return without_region(g, base, region, offset)


def follow(base: Spec, region: Spec, offset: int) -> tuple[Spec, Spec, int]:
    """A region of `base` as the same region of a tensor without gaps.

    Raises:
        RuntimeError: if elements of `base` overlap, or the region does not go along its axes.
    """
    if is_dense(base.shape, base.strides):
        return base, region, offset
    dense = dense_spec(base.shape, base.dtype, base.device)
    axes = sorted(
        (
            (old, new, n)
            for old, new, n in zip(base.strides, dense.strides, base.shape, strict=True)
            if n > 1
        ),
        reverse=True,
    )
    strides = []
    for stride in region.strides:
        axis = next(((old, new) for old, new, _ in axes if old and stride % old == 0), None)
        if stride and axis is None:
            break
        strides.append(axis[1] * (stride // axis[0]) if axis is not None and stride else 0)
    rest, start = offset, 0
    for old, new, n in axes:
        if old:
            steps = min(rest // old, n - 1)
            rest -= steps * old
            start += steps * new
    if rest or len(strides) != region.ndim or any(old == 0 for old, _, _ in axes):
        raise RuntimeError(
            "the history of a write into a view of a tensor whose own elements overlap or have gaps "
            "cannot be kept; clone() the tensor first"
        )
    return dense, spec_of(region.shape, tuple(strides), region.dtype, region.device), start


def _laid_out(g: Tensor, base: Spec) -> Tensor:
    """A copy of `g` with the strides of `base` and nothing else in its storage."""
    flat = empty((base.numel,), dtype=base.dtype, device=base.device)
    target = record.make_tensor(flat.storage, base)
    target.storage.spec = base
    write.store(target, g if g.dtype is base.dtype else g.to(base.dtype))
    return target


# ----- copies -----


@export(method=True)
def clone(input: Tensor, *, memory_format: Any = None, contiguous: bool = False) -> Tensor:
    """Copy the tensor into memory of its own; gradients flow through the copy.

    Example:
        >>> x = adjit.tensor([1., 2.])
        >>> x.clone().zero_(), x
        (tensor([0., 0.]), tensor([1., 2.]))
    """
    if contiguous and not input.spec.contiguous:
        return _compact(input)
    return elementwise.copy(input)


@operation("CloneBackward0")
def _compact(input: Tensor) -> Tensor:
    return write.convert(input, dense_spec(input.shape, input.dtype, input.spec.device))


@_compact.vjp
def _(g: Any) -> Any:
    return g


@export(public=False, method=True)
def contiguous(input: Tensor, memory_format: Any = None) -> Tensor:
    """The tensor itself if its elements lie in C order, else a copy of which they do.

    Example:
        >>> adjit.zeros(2, 3).t().contiguous().stride()
        (2, 1)
    """
    return input if input.spec.contiguous else clone(input, contiguous=True)


@operation("ToCopyBackward0")
def convert(input: Tensor, kind: dtypes.dtype) -> Tensor:
    """A copy in another dtype."""
    spec = input.spec
    strides = elementwise_record.result_strides(spec.shape, [spec])
    return write.convert(input, spec_of(spec.shape, strides, kind, spec.device))


@convert.vjp
def _(g: Any) -> Any:
    return g  # the engine converts to the dtype of the input


@export(public=False, method=True)
def to(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Convert to another dtype or move to another device; the tensor itself where nothing changes.

    Accepts a dtype, a device, another tensor, and `non_blocking`, `copy`, `memory_format`. A copy of
    page-locked memory to a GPU is waited for, unless it is `non_blocking`: then that memory may be
    written only after it.

    Example:
        >>> adjit.tensor([1, 2]).to(adjit.float64)
        tensor([1., 2.], dtype=adjit.float64)
    """
    if len(args) == 1 and not kwargs and args[0].__class__ is dtypes.dtype:  # as most calls are
        return input if input.spec.dtype is args[0] else convert(input, dtypes.check(args[0]))
    kind: Any = kwargs.pop("dtype", None)
    place: Any = kwargs.pop("device", None)
    copy = kwargs.pop("copy", False)
    non_blocking = kwargs.pop("non_blocking", False)
    kwargs.pop("memory_format", None)
    if kwargs:
        raise TypeError(f"to() got an unexpected keyword argument '{next(iter(kwargs))}'")
    switches: list[Any] = []  # non_blocking, copy
    for value in args:
        if isinstance(value, dtypes.dtype):
            kind = value
        elif record.is_tensor(value):
            kind, place = value.dtype, value.spec.device
        elif isinstance(value, (str, devices.device)) or (
            isinstance(value, int) and value is not True and value is not False
        ):
            place = value
        elif isinstance(value, bool) and len(switches) < 2:
            switches.append(value)
        elif value is None:
            continue
        else:
            raise TypeError(
                "to() received an invalid combination of arguments - got "
                f"({', '.join(type(a).__name__ for a in args)})"
            )
    non_blocking, copy = (*switches, *(non_blocking, copy)[len(switches) :])
    made = input
    if kind is not None and dtypes.check(kind) is not made.dtype:
        made = convert(made, dtypes.check(kind))
    if place is not None and devices.check(place) is not made.spec.device:
        source, made = made, moved(made, devices.check(place))
        if not non_blocking:
            _wait_for_copies(source)
    return clone(input) if copy and made is input else made


def _wait_for_copies(t: Tensor) -> None:
    """Wait until copies of page-locked memory are done: it may be written as soon as they are."""
    if t.storage.shared and is_pinned(t):
        t.storage.value.address.memory.wait()


@operation("ToCopyBackward0")
def moved(input: Tensor, place: devices.device) -> Tensor:
    """A copy on another device."""
    return write.move(input, place)


@moved.vjp
def _(g: Any) -> Any:
    return g  # the engine brings it to the device of the input


def _conversion(name: str, kind: dtypes.dtype) -> None:
    def method(self: Tensor, memory_format: Any = None) -> Tensor:
        return self if self.spec.dtype is kind else convert(self, dtypes.check(kind))

    method.__doc__ = f"""Convert to `{kind!r}`; the tensor itself if that is its dtype.

    Example:
        >>> adjit.tensor([0, 1]).{name}().dtype
        {kind!r}
    """
    if kind not in dtypes.SUPPORTED:
        method.__doc__ = f"""Refuse to convert to `{kind!r}`, which no tensor has here.

    Raises:
        NotImplementedError: always.

    Example:
        >>> adjit.tensor([0, 1]).{name}()
        Traceback (most recent call last):
            ...
        NotImplementedError: {kind!r} is not supported yet; use adjit.float32 or adjit.float64 ...
    """
    add_method(name, method)


for _name in ("float", "double", "int", "long", "short", "half", "bfloat16"):
    _conversion(_name, getattr(dtypes, _name))
_conversion("bool", dtypes.bool)
_conversion("byte", dtypes.uint8)
_conversion("char", dtypes.int8)


@export(public=False, method=True)
def cpu(input: Tensor, memory_format: Any = None) -> Tensor:
    """Copy the tensor to the CPU; itself if it is there.

    Example:
        >>> adjit.tensor([1, 2]).cpu()
        tensor([1, 2])
    """
    return to(input, devices.CPU)


@export(public=False, method=True)
def cuda(input: Tensor, device: Any = None, non_blocking: bool = False) -> Tensor:
    """Copy the tensor to a GPU, by default the current one; itself if it is there.

    Raises:
        RuntimeError: where there is none; the text says what is missing.

    Example:
        >>> adjit.tensor([1, 2]).cuda()
        tensor([1, 2], device='cuda:0')
    """
    place = devices.check("cuda" if device is None else device)
    if place is devices.CPU:
        raise RuntimeError(f"Invalid device, must be cuda device, but got: {place}")
    return to(input, place, non_blocking=non_blocking)


@export(public=False, method=True)
def pin_memory(input: Tensor, device: Any = None) -> Tensor:
    """Copy into page-locked memory, from which GPUs copy without waiting; itself if it is there.

    Raises:
        RuntimeError: if it is on a GPU, or there is none.

    Example:
        >>> adjit.tensor([1, 2]).pin_memory().is_pinned()
        True
    """
    return input if is_pinned(input) else pinned(input)


@export(public=False, method=True)
def is_pinned(input: Tensor, device: Any = None) -> bool:
    """True if the elements are in page-locked memory.

    Example:
        >>> adjit.tensor([1, 2]).is_pinned()
        False
    """
    if input.spec.device is not devices.CPU:
        return False
    block = value_of(input.storage).address
    return getattr(block, "memory", None).__class__ is gpu.PinnedMemory


@export(public=False, method=True)
def record_stream(input: Tensor, stream: Any) -> None:
    """Tell that a stream of another's uses the elements, so that they stay until it has.

    Raises:
        RuntimeError: for a tensor on the CPU.

    Example:
        >>> x = adjit.tensor([1, 2]).cuda()
        >>> x.record_stream(adjit.cuda.Stream())
    """
    if input.spec.device is devices.CPU:
        raise RuntimeError("record_stream: expected a tensor on a GPU")
    block = value_of(input.storage).address
    if block.__class__ is gpu.GpuBlock and stream.cuda_stream != block.stream:
        block.users = tuple({*block.users, stream.cuda_stream})


@export(public=False, method=True)
def type_as(input: Tensor, other: Tensor) -> Tensor:
    """Convert to the dtype and move to the device of another tensor.

    Example:
        >>> adjit.tensor([1, 2]).type_as(adjit.zeros(1))
        tensor([1., 2.])
    """
    return to(input, other)


@export(public=False, method=True)
def type(input: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """Name the tensor's type as PyTorch's legacy constructors are called, or convert to another.

    Example:
        >>> adjit.tensor([1., 2.]).type()
        'torch.FloatTensor'
    """
    if dtype is None:
        room = "torch.cuda" if input.is_cuda else "torch"
        return f"{room}.{input.dtype.legacy}Tensor"
    kind, place = legacy_dtype(dtype)
    return to(input, place, kind, non_blocking=non_blocking)


@fastpath.copying(write.writes, write.conversions)
def copy_(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    """Write the elements of `src`, broadcast and converted, into this tensor; returns it.

    Raises:
        RuntimeError: if the shapes do not fit, or this is a leaf that needs gradients.

    Example:
        >>> adjit.zeros(2, 2).copy_(adjit.tensor([1, 2]))
        tensor([[1., 2.],
                [1., 2.]])
    """
    record.check_tensor("copy_", "other", 1, src)
    inplace.check(self)
    inplace.check_overlap(self, (src,))
    if src.shape != self.shape:
        broadcast_shapes(self.shape, src.shape)
    if _is_other_block(self, src):
        write.store(self, src)
        return self
    if self.storage.shared and _can_be_read_there(self, src):
        write.store(self, src if src.shape == self.shape else expand(src, self.shape))
        return self
    made = inplace.adopt(self, copy_of(self, src))
    if not non_blocking and src.spec.device is not self.spec.device:
        _wait_for_copies(src)
    return made


def _is_other_block(t: Tensor, source: Tensor) -> bool:
    """Whether a part of one memory is to become a block of another one, which can be read where it lies."""
    spec, storage, other = t.spec, t.storage, source.storage
    if spec is not source.spec or spec is storage.spec or not spec.contiguous or storage is other:
        return False
    return not (storage.shared or other.shared) and _is_out_of_graph(t) and _is_out_of_graph(source)


def _can_be_read_there(t: Tensor, source: Tensor) -> bool:
    """Whether the kernel that writes into shared memory reads and converts another tensor where it lies."""
    spec, given = t.spec, source.spec
    if spec.dtype is not given.dtype and spec.dtype is dtypes.bool:
        return False
    is_here = spec.device is given.device is devices.CPU and is_dense(spec.shape, spec.strides)
    apart = t.storage is not source.storage and not source.storage.shared
    return is_here and apart and _is_out_of_graph(t) and _is_out_of_graph(source)


def _is_out_of_graph(t: Tensor) -> bool:
    if t.edge is not None or t.needs_grad:
        return False
    return t.view_of is None or not t.view_of.base.needs_grad


@operation("CopyBackwards")
def copy_of(self: Tensor, src: Tensor) -> Tensor:
    """`src` with the shape, strides and dtype of `self`."""
    if src.shape != self.shape:
        src = expand(src, self.shape)
    spec = self.spec
    if src.spec.device is not spec.device:
        src = write.move(src, spec.device)
    target = (
        spec
        if is_dense(spec.shape, spec.strides)
        else dense_spec(spec.shape, spec.dtype, spec.device)
    )
    return write.convert(src, target)


@copy_of.vjp
def _(g: Any) -> Any:
    return g.new_zeros(g.shape), g


add_method("copy_", copy_)


@operation("FillBackward0")
def _filled_by_number(self: Tensor, value: Any) -> Tensor:
    return number_like(self, value)


@_filled_by_number.vjp
def _(g: Any) -> Any:
    return g.new_zeros(g.shape)


@operation("FillBackward1")
def _filled_by_tensor(self: Tensor, value: Tensor) -> Tensor:
    return copy_of(self, value)


@_filled_by_tensor.vjp
def _(g: Any) -> Any:
    return g.new_zeros(g.shape), g.sum()


def filled(self: Tensor, value: Any) -> Tensor:
    """A number, or the value of a 0-d tensor, in every place of `self`.

    Raises:
        TypeError: if it is neither.
        RuntimeError: if a tensor with axes is given.
    """
    if isinstance(value, (numbers.Number, np.generic)):
        return _filled_by_number(self, value)
    if not record.is_tensor(value):
        raise TypeError(
            f"fill_() received an invalid combination of arguments - got ({value.__class__.__name__}), but "
            "expected one of:\n * (Tensor value)\n * (Number value)\n"
        )
    if value.ndim:
        raise RuntimeError(
            f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} "
            "dimensions."
        )
    return _filled_by_tensor(self, value)


@operation("ZeroBackward0")
def _zeroed(self: Tensor) -> Tensor:
    return _filled_by_number(self, 0)


@_zeroed.vjp
def _(g: Any) -> Any:
    return g.new_zeros(g.shape)


@fastpath.flooding(of_numbers, None)
def fill_(self: Tensor, value: Any) -> Tensor:
    """Write a number, or the value of a 0-d tensor, into every place; returns this tensor.

    Example:
        >>> adjit.zeros(2).fill_(3)
        tensor([3., 3.])
    """
    inplace.check(self)
    return inplace.adopt(self, filled(self, value), overlap=True)


@fastpath.flooding(of_numbers, 0.0)
def zero_(self: Tensor) -> Tensor:
    """Write zeros into every place; returns this tensor.

    Example:
        >>> adjit.ones(2).zero_()
        tensor([0., 0.])
    """
    inplace.check(self)
    return inplace.adopt(self, _zeroed(self), overlap=True)


@export
def fill(input: Tensor, value: Any) -> Tensor:
    """A number, or the value of a 0-d tensor, in the shape and dtype of `input`.

    Differentiable in `value`; the gradient of `input` is zero.

    Example:
        >>> adjit.fill(adjit.ones(2), 3)
        tensor([3., 3.])
    """
    return input.clone().fill_(value)


add_method("fill_", fill_)
add_method("zero_", zero_)
