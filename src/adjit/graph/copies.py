"""Deep copies and pickles of tensors: memory that tensors share is copied once, and shared afterwards.

A tensor is copied as what it is, a geometry on a storage; so all of the storage is copied, as by PyTorch.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable
from typing import Any

from .. import devices
from ..dtypes import dtype
from ..storage import Storage
from . import primitives, record, write
from .node import NewTensor, Spec, TensorBase, dense_spec, spec_of
from .signature import NamedArguments

# Shape, strides, dtype, and the strides that are reported where these are others.
PlainSpec = tuple[tuple[int, ...], tuple[int, ...], dtype, tuple[int, ...] | None]


def on_copied_memory(t: TensorBase, memo: dict[int, Any]) -> NewTensor:
    """A leaf with the geometry of `t`, on a copy of its storage: the one in `memo`, if there is one."""
    found = memo.get(id(t._storage))
    if found is None:
        found = memo[id(t._storage)] = _copy(t._storage)
        memo.setdefault(id(memo), []).append(
            t._storage
        )  # whose number is taken while the memo is there
    return record.make_tensor(found, t._spec, t._offset)


def _copy(storage: Storage) -> Storage:
    """A storage with the same elements. Values are immutable; only what others write to has to be copied."""
    if not storage.shared:
        return record.make_storage(storage.value, storage.spec)
    found: Storage = _flat(storage).clone()._storage
    found.spec = storage.spec
    return found


def _flat(storage: Storage) -> NewTensor:
    """All elements of a storage, in the order in which they lie there."""
    spec = storage.spec
    return record.make_tensor(storage, dense_spec((spec.extent,), spec.dtype, spec.device))


# ----- pickles -----


def reduced(t: TensorBase) -> tuple[object, ...]:
    """What a tensor is in a pickle."""
    return rebuild, (
        type(t), t._storage, _plain(t._spec), t._offset, t.requires_grad, dict(t.__dict__),
    )  # fmt: skip


def rebuild(
    cls: type[TensorBase], storage: Storage, plain: PlainSpec, offset: int, needs_grad: bool,
    attributes: NamedArguments,
) -> NewTensor:  # fmt: skip
    """The tensor in a pickle."""
    made = record.make_tensor(storage, spec_from(plain, storage.spec.device), offset)
    if cls is not type(made):
        made = made._of_class(cls)
    made._needs_grad = needs_grad
    made.__dict__.update(attributes)
    return made


def _plain(spec: Spec) -> PlainSpec:
    """A geometry, for a pickle."""
    reported = tuple(spec.reported) if spec.chosen else None
    return tuple(spec.shape), tuple(spec.strides), spec.dtype, reported


def spec_from(plain: PlainSpec, place: devices.device) -> Spec:
    """The geometry in a pickle."""
    shape, strides, kind, *reported = plain  # which older pickles do not have
    return spec_of(shape, strides, kind, place, *reported)


def _reduced_storage(storage: Storage) -> tuple[Callable[..., Storage], tuple[object, ...]]:
    """What a storage is in a pickle, which has it once."""
    flat = _flat(storage)
    return _rebuild_storage, (flat._values().copy(), _plain(storage.spec), str(flat._spec.device))


def _rebuild_storage(values: primitives.Array, plain: PlainSpec, place: str) -> Storage:
    """The storage in a pickle."""
    found: Storage = write.placed(primitives.from_array(values), devices.check(place))._storage
    found.spec = spec_from(plain, found.spec.device)
    return found


copyreg.pickle(Storage, _reduced_storage)
