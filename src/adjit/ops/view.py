"""Views: other shapes and strides on the same storage."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from .. import dtypes, errors
from ..graph import inplace
from ..graph.export import add_method, export
from ..graph.levels import tracers
from ..graph.node import Spec
from ..graph.record import check_tensor
from ..graph.view import ViewPullback, alias, as_own, on_its_own, view_op
from ..graph.view_cache import caches_views
from ..shapes import (
    Shape,
    Size,
    contiguous_strides,
    infer_view_shape,
    is_contiguous,
    listed,
    numpy_names,
    one_list,
    shape_of,
    some_ints,
    view_strides,
    wrap_dim,
)
from ..tensor import Tensor
from ..unknown import cached
from .bits import in_dtype
from .conversions import dense_copy, linked_copy

# ----- one axis order for another -----


@export(method=True, public=False)
@caches_views
@listed("dims", after=1)
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


export(caches_views(one_list("dims")(permute)))


def reshaping(shape: Shape) -> ViewPullback:
    """The pullback of a view of all elements: to the shape that there was."""
    return ViewPullback(reshape, (shape,), lambda size, shape: ((size, *shape),))


def _further_back(size: int, order: Sequence[int], name: str) -> tuple[Any, ...]:
    return (0, *[d + 1 for d in order]), name


def _permuted(t: Tensor, order: Sequence[int], name: str) -> Tensor:
    spec = t._spec
    back = [0] * len(order)
    for k, d in enumerate(order):
        back[d] = k
    return alias(
        t, [spec.shape[d] for d in order], tuple([spec.strides[d] for d in order]), t._offset, name,
        ViewPullback(_permuted, (tuple(back), name), _further_back),
    )  # fmt: skip


@export(method=True, name=("transpose", "swapdims"))
@caches_views
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
@caches_views
def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """Exchange two axes, under NumPy's names: a view.

    Args:
        axis0, axis1: the axes; negative ones count from the end.

    Example:
        >>> adjit.zeros(2, 3, 4).swapaxes(0, 2).shape
        adjit.Size([4, 3, 2])
    """
    return transpose(input, axis0, axis1)


@export(method=True)
@caches_views
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
@caches_views
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Move axes to other places, the rest keeping their order: a view.

    Raises:
        RuntimeError: if `source` and `destination` are not as many, or repeat an axis.

    Example:
        >>> adjit.zeros(2, 3, 4).movedim(0, -1).shape
        adjit.Size([3, 4, 2])
    """
    sources, targets = some_ints(source), some_ints(destination)
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
@caches_views
def adjoint(input: Tensor) -> Tensor:
    """Exchange the last two axes: a view.

    Raises:
        RuntimeError: for a tensor of one axis.

    Example:
        >>> adjit.zeros(5, 2, 3).adjoint().shape
        adjit.Size([5, 3, 2])
    """
    return _matrices_turned(input, "tensor.adjoint()")


def _matrices_turned(input: Tensor, asked: str) -> Tensor:
    """The last two axes exchanged; of a number there are none."""
    if input.ndim == 1:
        raise RuntimeError(
            f"{asked} is only supported on matrices or batches of matrices. Got {input.ndim}-D tensor."
        )
    if not input.ndim:
        _warn_of_number(
            asked.removeprefix("tensor.") if "()" in asked else asked.replace("t", "T", 1)
        )
        return alias(input, (), (), input._offset, "PermuteBackward0", lambda g: g)
    return transpose(input, -2, -1)


def _warn_of_number(name: str) -> None:
    is_turned = name.endswith("T")
    instead = (
        "This function is the identity in these cases." if is_turned else "Consider using x.conj()."
    )
    errors.warn_once(f"{name} is deprecated on 0-D tensors. {instead}")


def _matrices(name: str, is_conjugated: bool) -> property:
    """`mT` and `mH`."""

    def turned(input: Tensor) -> Tensor:
        return _matrices_turned(input, f"tensor.{name}")

    also = " and conjugated, which changes no real numbers" if is_conjugated else ""
    turned.__doc__ = f"""The matrices of a batch transposed{also}, their last two axes exchanged: a view.

    Raises:
        RuntimeError: for a tensor of one axis.

    Example:
        >>> adjit.zeros(5, 2, 3).{name}.shape
        adjit.Size([5, 3, 2])
    """
    return property(turned)


def _conjugate_transpose(input: Tensor) -> Tensor:
    """A matrix transposed and conjugated, which changes no real numbers: a view.

    Raises:
        RuntimeError: for a tensor of another number of axes than two and none.

    Example:
        >>> adjit.zeros(2, 3).H.shape
        adjit.Size([3, 2])
    """
    if input.ndim in (0, 2):
        return _matrices_turned(input, "tensor.H")
    batches = "" if input.ndim == 1 else " For batches of matrices, consider using tensor.mH"
    raise RuntimeError(
        f"tensor.H is only supported on matrices (2-D tensors). Got {input.ndim}-D tensor.{batches}"
    )


@caches_views
def _reversed_axes(input: Tensor) -> Tensor:
    """The tensor with all its axes reversed: a view.

    Example:
        >>> adjit.zeros(2, 3).T.shape
        adjit.Size([3, 2])
    """
    if not input.ndim:
        _warn_of_number("Tensor.T")
    elif input.ndim != 2:
        errors.warn_once(
            "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is deprecated and it "
            "will throw an error in a future release. Consider `x.mT` to transpose batches of matrices or "
            "`x.permute(*torch.arange(x.ndim - 1, -1, -1))` to reverse the dimensions of a tensor."
        )
    return _permuted(input, list(range(input.ndim))[::-1], "PermuteBackward0")


Tensor.T = property(_reversed_axes)  # type: ignore[attr-defined]
Tensor.mT = _matrices("mT", False)  # type: ignore[attr-defined]
Tensor.mH = _matrices("mH", True)  # type: ignore[attr-defined]
Tensor.H = property(_conjugate_transpose)  # type: ignore[attr-defined]


# ----- other shapes -----


@export(public=False, method=True)
@caches_views
@listed("size", "dtype", after=1)
def view(input: Tensor, *shape: Any) -> Tensor:
    """The same elements in another shape, without a copy; or the same bits as another dtype, `view(dtype)`.

    The latter has no history. Elements of another size make the last axis longer or shorter.

    Where the library has laid out a result otherwise than PyTorch would, as `stride()` reports it, it is a copy
    that stands for a view: what is written into one is written into the other. NumPy arrays on either can
    only be read meanwhile.

    Raises:
        RuntimeError: if the sizes do not fit, or only a copy could have that shape.

    Example:
        >>> adjit.tensor([1, 2, 3, 4]).view(2, -1)
        tensor([[1, 2],
                [3, 4]])
        >>> adjit.tensor([1.0, 2.0]).view(adjit.int32)
        tensor([1065353216, 1073741824], dtype=adjit.int32)
    """
    if len(shape) == 1 and isinstance(shape[0], (dtypes.dtype, type)):
        return in_dtype(input, dtypes.check(shape[0]))
    target, strides, reported = _reshaped(input._spec, shape)
    if strides is not None:
        return _viewed(input, target, strides, "ViewBackward0", reported or strides)
    if reported is not None and input._storage.shared:
        raise RuntimeError(
            "view(): others look at the memory of this tensor, which does not lie as stride() reports it, so "
            "that only a copy can have that shape. Use .reshape(...) instead."
        )
    if reported is not None:
        return view(linked_copy(input), target)
    if input.__class__ in tracers:
        return reshape(input, target)  # where PyTorch's lie depends on the axis of the examples
    raise RuntimeError(
        "view size is not compatible with input tensor's size and stride (at least one "
        "dimension spans across two contiguous subspaces). Use .reshape(...) instead."
    )


def _reshaped(spec: Spec, requested: tuple[Any, ...]) -> tuple[Size, Shape | None, Shape | None]:
    """The shape that is asked for, and the strides of a view of it, in memory and as reported; None where it
    takes a copy."""
    sizes: Any = requested
    if len(requested) == 1 and requested[0].__class__ in (Size, tuple, list):
        sizes = requested[0]
    if {int}.issuperset([s.__class__ for s in sizes]):
        return _reshaped_to(spec, tuple(sizes))
    return _reshaped_to.__wrapped__(spec, requested)


@cached(512)
def _reshaped_to(spec: Spec, sizes: tuple[Any, ...]) -> tuple[Size, Shape | None, Shape | None]:
    target = infer_view_shape(sizes, spec.numel)
    strides = view_strides(spec.shape, spec.strides, target)
    reported = view_strides(spec.shape, spec.reported, target) if spec.chosen else strides
    return target, strides, reported


def _viewed(
    t: Tensor, shape: Size, strides: Shape, name: str, reported: Shape | None = None
) -> Tensor:
    return alias(t, shape, strides, t._offset, name, reshaping(t._spec.shape), reported)


@export(method=True)
def view_as(input: Tensor, other: Tensor) -> Tensor:
    """View the same elements in the shape of another tensor; see `view`.

    Example:
        >>> adjit.tensor([1, 2, 3, 4]).view_as(adjit.zeros(2, 2))
        tensor([[1, 2],
                [3, 4]])
    """
    check_tensor("view_as", "other", 1, other)
    return view(input, other.shape)


@export(method=True, public=False)
@functools.partial(caches_views, copying=dense_copy)
@listed("shape", after=1)
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
    target, strides, reported = _reshaped(input._spec, shape)
    if reported is not None and strides is not None:
        return _viewed(input, target, strides, "ViewBackward0", reported)
    if reported is not None and input.__class__ not in tracers:
        return view(linked_copy(input), target)
    if strides is None or input._storage.shared or not is_contiguous(target, strides):
        return as_own(
            _viewed(dense_copy(input), target, contiguous_strides(target), "UnsafeViewBackward0")
        )
    return on_its_own(_viewed(input, target, strides, "UnsafeViewBackward0", strides))


export(caches_views(one_list("shape")(reshape), copying=dense_copy))


@export(method=True)
def reshape_as(input: Tensor, other: Tensor) -> Tensor:
    """Give the elements the shape of another tensor; see `reshape`.

    Example:
        >>> adjit.tensor([1, 2, 3, 4]).reshape_as(adjit.zeros(2, 2))
        tensor([[1, 2],
                [3, 4]])
    """
    check_tensor("reshape_as", "other", 1, other)
    return reshape(input, other.shape)


@export(method=True)
@functools.partial(caches_views, copying=dense_copy)
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
@caches_views
def ravel(input: Tensor) -> Tensor:
    """Merge all axes into one, in C order: a view where the elements lie so, else a copy.

    Example:
        >>> adjit.tensor([[1, 2], [3, 4]]).ravel()
        tensor([1, 2, 3, 4])
    """
    dense = input.contiguous()
    return view(dense, -1) if dense.numel() else view(dense, 0)


@export(method=True)
@caches_views
@numpy_names
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
@caches_views
@numpy_names
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
    spec = input._spec
    strides, reported = [
        (*steps[:d], spec.shape[d] * steps[d] if d < spec.ndim else 1, *steps[d:])
        for steps in (spec.strides, spec.reported)
    ]
    return alias(
        input, (*spec.shape[:d], 1, *spec.shape[d:]), strides, input._offset, "UnsqueezeBackward0",
        ViewPullback(squeeze, (d,), lambda size, d: (d + 1,)), reported,
    )  # fmt: skip


@export(method=True)
@caches_views
@numpy_names
def squeeze(input: Tensor, dim: Any = None, *dims: Any) -> Tensor:
    """Drop axes of size 1: all, or those of the given axes that have size 1. A view.

    Args:
        dim, dims: an int or ints; None for all.

    Example:
        >>> adjit.zeros(1, 2, 1).squeeze(-1).shape
        adjit.Size([1, 2])
    """
    spec, ndim = input._spec, input.ndim
    dim = (dim, *dims) if dims else dim
    if dim is None:
        drop = [d for d in range(ndim) if spec.shape[d] == 1]
        name = "SqueezeBackward0"
    else:
        wrapped = [wrap_dim(d, ndim) for d in some_ints(dim)]
        for d in wrapped:
            if wrapped.count(d) > 1:
                raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
        drop = [d for d in wrapped if ndim and spec.shape[d] == 1]
        name = "SqueezeBackward1" if hasattr(dim, "__index__") else "SqueezeBackward2"
    keep = [d for d in range(ndim) if d not in drop]
    shape = spec.shape
    return alias(
        input, [spec.shape[d] for d in keep], tuple([spec.strides[d] for d in keep]), input._offset,
        name, reshaping(shape),
    )  # fmt: skip


def _reshaping_inplace(function: Any, name: str, arguments: str, shape: list[int]) -> Any:
    def method(self: Tensor, *args: Any, **named: Any) -> Tensor:
        inplace.check(self)
        made = function(self, *args, **named)
        if self.__class__ in tracers:
            self._become(made)
            return self
        spec, offset, edge, counter = made._spec, made._offset, made._edge, self._version_counter
        info = SimpleNamespace() if edge is None or self._view_of is None else self._view_of
        version = counter.version + 1
        former: Any = SimpleNamespace()
        retained: Any = {}
        if edge is None:
            edge = self._edge
        else:
            fn = edge[0]
            fn.op = view_op(fn.name()[:-1] + "1")
            fn.__class__ = fn.op.node_class
            former, retained = inplace.retain_by(self, edge)
        self._spec, self._offset, counter.version, self._edge, info.version, former.retained = (
            spec, offset, version, edge, version, retained,
        )  # fmt: skip
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
    ("transpose", transpose, "0, 1", [2, 1]), ("swapaxes", swapaxes, "0, 1", [2, 1]),
    ("swapdims", transpose, "0, 1", [2, 1]),
):  # fmt: skip
    add_method(f"{_name}_", _reshaping_inplace(_function, _name, _arguments, _shape))


@export(method=True)
@caches_views
@listed("size", after=1)
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
    spec = input._spec
    lead = len(target) - spec.ndim
    if lead < 0:
        raise RuntimeError(
            f"expand(torch.{input.dtype.legacy}Tensor{{{list(spec.shape)}}}, size={target}): the number "
            f"of sizes provided ({len(target)}) must be greater or equal to the number of "
            f"dimensions in the tensor ({spec.ndim})"
        )
    strides = [0] * len(target)
    for d in reversed(range(lead, len(target))):
        size, stride = spec.shape[d - lead], spec.strides[d - lead]
        if target[d] == -1:
            target[d] = size
        if target[d] == size:
            strides[d] = stride
        elif size != 1:
            raise RuntimeError(
                f"The expanded size of the tensor ({target[d]}) must match the existing size "
                f"({size}) at non-singleton dimension {d}.  Target sizes: {target}.  Tensor "
                f"sizes: {list(spec.shape)}"
            )
    step = target[lead] * strides[lead] if spec.ndim else 0
    for d in reversed(range(lead)):
        if target[d] < 0:
            raise RuntimeError(
                f"The expanded size of the tensor ({target[d]}) isn't allowed in a leading, "
                f"non-existing dimension {d}"
            )
        strides[d] = step = step if target[d] == 1 else 0  # as if dense, while nothing is repeated
    # The engine sums a gradient that is wider than its input.
    return alias(input, target, tuple(strides), input._offset, "ExpandBackward0", lambda g: g)


@export(method=True)
def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """Expand to the shape of another tensor; see `expand`.

    Example:
        >>> adjit.tensor([1, 2]).expand_as(adjit.zeros(2, 2))
        tensor([[1, 2],
                [1, 2]])
    """
    check_tensor("expand_as", "other", 1, other)
    return expand(input, other.shape)


@export(method=True, public=False)
@caches_views
@listed("size", after=1)
def broadcast_to(input: Tensor, *size: Any) -> Tensor:
    """Expand to a shape; see `expand`.

    Example:
        >>> adjit.tensor([1, 2]).broadcast_to((2, 2))
        tensor([[1, 2],
                [1, 2]])
    """
    return expand(input, *size)


export(caches_views(one_list("size")(broadcast_to)))
