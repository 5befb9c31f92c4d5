"""Copies, and copies of another dtype or on another device."""

from __future__ import annotations

import builtins
from typing import Any

from .. import devices, dtypes, formats, gpu
from ..graph import elementwise_record, record, write
from ..graph.export import add_method, export
from ..graph.levels import tracers
from ..graph.links import copy_of, link
from ..graph.node import spec_of
from ..graph.normalized import normalizes
from ..graph.operation import operation
from ..graph.view import ViewPullback, alias, on_its_own
from ..schedule.settle import value_of
from ..shapes import (
    Shape,
    check_bool,
    contiguous_strides,
    dense_in_order,
    has_overlap,
    numel,
    same_strides,
)
from ..tensor import Tensor
from . import elementwise
from .creation import legacy_dtype, pinned


@export(method=True)
def clone(input: Tensor, *, memory_format: Any = None) -> Tensor:
    """Copy the tensor into memory of its own; gradients flow through the copy.

    Args:
        memory_format: the order of the axes in memory; that of `input` unless given.

    Raises:
        RuntimeError: if a shape has no such order.

    Example:
        >>> x = adjit.tensor([1., 2.])
        >>> x.clone().zero_(), x
        (tensor([0., 0.]), tensor([1., 2.]))
    """
    if memory_format is None or memory_format is formats.preserve_format:
        return elementwise.copy(input)
    formats.check("clone", memory_format)
    spec, strides = input._spec, formats.strides_in(input._spec.shape, memory_format)
    is_as_it_is = strides == spec.strides and not spec.chosen
    return elementwise.copy(input) if is_as_it_is else _laid_out(input, strides)


@operation("CloneBackward0")
def _laid_out(input: Tensor, strides: Shape, reported: Shape | None = None) -> Tensor:
    spec = input._spec
    return write.convert(input, spec_of(spec.shape, strides, spec.dtype, spec.device, reported))


_laid_out.linear("input")


@_laid_out.vjp
def _(g: Any) -> Any:
    return g


@_laid_out.batched
def _(input: Tensor, strides: Shape, reported: Shape | None) -> Tensor:
    made: Tensor = _laid_out(input, (numel(input.shape[1:]), *strides))
    return made


@normalizes
def dense_copy(input: Tensor) -> Tensor:
    """A copy in C order."""
    spec, strides = input._spec, contiguous_strides(input._spec.shape)
    if strides == spec.strides and not spec.chosen:
        return elementwise.copy(input)
    made: Tensor = _laid_out.on(input, strides)
    return made


AS_IT_IS = ViewPullback(lambda g: g, (), lambda size: ())  # the gradient of a copy


def in_order(input: Tensor, strides: Shape) -> Tensor:
    """The tensor itself if it reports such strides, else a copy that lies so."""
    spec = input._spec
    if same_strides(spec.shape, spec.reported, strides):
        return linked_copy(input) if spec.chosen else input
    is_there = spec.chosen and same_strides(spec.shape, spec.strides, strides)
    if not is_there or input.__class__ in tracers or input._storage.shared:
        return _laid_out(input, strides)
    start = input._offset
    return on_its_own(
        alias(input, spec.shape, strides, start, "CloneBackward0", AS_IT_IS, reported=strides)
    )


def linked_copy(input: Tensor) -> Tensor:
    """A copy in the order that is reported, which stands for a view: writes into either are seen by both."""
    spec = input._spec
    repeated = [d for d, n in enumerate(spec.shape) if n > 1 and not spec.reported[d]]
    if repeated:
        for d in repeated:
            input = input.narrow(d, 0, 1)
        return linked_copy(input).expand(spec.shape)
    known: Any = None if input.__class__ in tracers else copy_of(input, spec.dtype)
    if known is not None:
        return alias(known, spec.shape, known._spec.strides, 0, "AliasBackward0", AS_IT_IS)
    if has_overlap(spec.shape, spec.reported):  # no other order would have a view of each shape
        made: Tensor = _laid_out(input, contiguous_strides(spec.shape))
    else:
        made = _laid_out(input, dense_in_order(spec.shape, [spec.reported]), spec.reported)
    if made.__class__ not in tracers:
        link(input, made)
    return made


@export(public=False, method=True)
def contiguous(input: Tensor, memory_format: Any = None) -> Tensor:
    """The tensor itself if its elements lie in C order, or in another one, else a copy of which they do.

    Where the library has laid out a result otherwise than PyTorch would, as `stride()` reports it, it is a copy
    that stands for the tensor itself: what is written into one is written into the other.

    Args:
        memory_format: `channels_last` or `channels_last_3d` for these orders.

    Raises:
        RuntimeError: if a shape has no such order.

    Example:
        >>> adjit.zeros(2, 3).t().contiguous().stride()
        (2, 1)
    """
    spec = input._spec
    if memory_format is None:
        if spec.contiguous and not spec.chosen:
            return input
        return in_order(input, contiguous_strides(spec.shape))
    formats.check("contiguous", memory_format)
    if memory_format is formats.preserve_format:
        if input.is_contiguous():
            return input
        raise RuntimeError("preserve memory format is unsupported by the contiguous operator")
    return in_order(input, formats.strides_in(spec.shape, memory_format))


@operation("ToCopyBackward0")
def convert(input: Tensor, kind: dtypes.dtype, strides: Shape | None = None) -> Tensor:
    """A copy in another dtype, or with other strides."""
    spec = input._spec
    if strides is None:
        made = elementwise_record.result_spec(spec.shape, [spec], kind, spec.device)
    else:
        made = spec_of(spec.shape, strides, kind, spec.device)
    return write.convert(input, made)


convert.linear("input")


@convert.vjp
def _(g: Any) -> Any:
    return g  # the engine converts to the dtype of the input


@convert.batched
def _(input: Tensor, kind: dtypes.dtype, strides: Shape | None) -> Tensor:
    lie = None if strides is None else (numel(input.shape[1:]), *strides)
    made: Tensor = convert(input, kind, lie)
    return made


@export(public=False, method=True)
def to(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Convert to another dtype or move to another device; the tensor itself where nothing changes.

    Accepts a dtype, a device, another tensor, and `non_blocking`, `copy`, `memory_format`: a tensor whose
    axes lie in that order, with gaps or without, is not copied for its sake. A copy of
    page-locked memory to a GPU is waited for, unless it is `non_blocking`: then that memory may be
    written only after it.

    Example:
        >>> adjit.tensor([1, 2]).to(adjit.float64)
        tensor([1., 2.], dtype=adjit.float64)
    """
    if len(args) == 1 and not kwargs and args[0].__class__ is dtypes.dtype:  # as most calls are
        return input if input._spec.dtype is args[0] else convert(input, dtypes.check(args[0]))
    if len(args) == 1 and not kwargs and args[0].__class__ in (str, devices.device):
        place: Any = devices.check(args[0])
        if place is input._spec.device:
            return input
    kind: Any = kwargs.pop("dtype", None)
    place = kwargs.pop("device", None)
    copy = kwargs.pop("copy", False)
    non_blocking = kwargs.pop("non_blocking", False)
    memory_format = kwargs.pop("memory_format", None)
    if kwargs:
        raise TypeError(f"to() got an unexpected keyword argument '{next(iter(kwargs))}'")
    switches: list[Any] = []  # non_blocking, copy
    for value in args:
        if isinstance(value, (dtypes.dtype, builtins.type)):
            kind = value
        elif record.is_tensor(value):
            kind, place = value.dtype, value._spec.device
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
    if non_blocking.__class__ is not bool or copy.__class__ is not bool:
        check_bool("to", "non_blocking", non_blocking)
        check_bool("to", "copy", copy)
    made = input
    kind = made.dtype if kind is None else dtypes.check(kind)
    strides = _wanted_strides(input, memory_format, copy or kind is not made.dtype)
    if strides is not None or kind is not made.dtype:
        made = convert(made, kind, strides)
    if place is not None and devices.check(place) is not made._spec.device:
        source, made = made, moved(made, devices.check(place))
        if not non_blocking:
            wait_for_copies(source)
    return clone(input) if copy and made is input else made


def _wanted_strides(input: Tensor, memory_format: Any, is_new: bool) -> Shape | None:
    """The strides that `to` is asked for, None for those that a result has anyway."""
    if memory_format is None or memory_format is formats.preserve_format:
        return None
    formats.check("to", memory_format)
    shape, strides = input._spec.shape, input._spec.reported
    if not is_new and formats.suggested(shape, strides) is memory_format:
        return None
    return formats.strides_in(shape, memory_format)


def wait_for_copies(t: Tensor) -> None:
    """Wait until copies of page-locked memory are done: it may be written as soon as they are."""
    if t._storage.shared and is_pinned(t):
        t._storage.value.address.memory.wait()


@operation("ToCopyBackward0")
def moved(input: Tensor, place: devices.device) -> Tensor:
    """A copy on another device."""
    return write.move(input, place)


moved.linear("input")


@moved.vjp
def _(g: Any) -> Any:
    return g  # the engine brings it to the device of the input


moved.batched_over()


def _conversion(name: str, kind: dtypes.dtype) -> None:
    def method(self: Tensor, memory_format: Any = None) -> Tensor:
        if memory_format is not None:
            return to(self, kind, memory_format=memory_format)
        return self if self._spec.dtype is kind else convert(self, dtypes.check(kind))

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


for _kind in dtypes.ALL:
    if _kind.row.method:
        _conversion(_kind.row.method, _kind)


@export(public=False, method=True)
def cpu(input: Tensor, memory_format: Any = None) -> Tensor:
    """Copy the tensor to the CPU; itself if it is there.

    Example:
        >>> adjit.tensor([1, 2]).cpu()
        tensor([1, 2])
    """
    if memory_format is None and input._spec.device is devices.CPU:
        return input
    return to(input, devices.CPU, memory_format=memory_format)


@export(public=False, method=True)
def cuda(
    input: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None
) -> Tensor:
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
    return to(input, place, non_blocking=non_blocking, memory_format=memory_format)


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
    if input._spec.device is not devices.CPU:
        return False
    block = value_of(input._storage).address
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
    if input._spec.device is devices.CPU:
        raise RuntimeError("record_stream: expected a tensor on a GPU")
    block = value_of(input._storage).address
    if block.__class__ is gpu.GpuBlock and stream.cuda_stream != block.stream:
        block.users = tuple({*block.users, stream.cuda_stream})


@export(public=False, method=True)
def type_as(input: Tensor, other: Tensor) -> Tensor:
    """Convert to the dtype and move to the device of another tensor.

    Example:
        >>> adjit.tensor([1, 2]).type_as(adjit.zeros(1))
        tensor([1., 2.])
    """
    record.check_tensor("type_as", "other", 2, other)
    mine, wanted = input._spec, other._spec
    if mine.dtype is wanted.dtype and mine.device is wanted.device:
        return input
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
