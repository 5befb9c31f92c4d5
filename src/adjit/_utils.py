"""Names of `torch._utils` that programs use: tensors joined to one vector and cut apart, bytes of elements.

And what pickles of PyTorch's tensors call, for programs that read these with an unpickler which exchanges
`torch` for `adjit`. Such an unpickler runs what it is told to, as Python's does; `adjit.load` never does.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

from . import storage as _storage
from .dtypes import dtype as DType
from .nn.parameter import Parameter
from .ops import joining
from .tensor import Tensor, TypedStorage


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """The elements of tensors of one dtype, one after the other."""
    return joining.cat([t.reshape(-1) for t in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Views of a vector with the shapes of tensors, one after the other."""
    parts = flat.split([t.numel() for t in tensors])
    return tuple([part.view(t.shape) for part, t in zip(parts, tensors, strict=True)])


def _element_size(dtype: DType) -> int:
    """The bytes of one element."""
    if not isinstance(dtype, DType):
        raise RuntimeError(f"expected adjit.dtype, but got {type(dtype)}")
    return dtype.itemsize


# ----- pickles of PyTorch's -----


def _load_from_bytes(data: bytes) -> TypedStorage:
    """The storage of a tensor in a pickle: a file by itself."""
    from .serialization.torch_files import load_storage

    return TypedStorage(load_storage(io.BytesIO(data)))


def _rebuild_tensor(
    storage: TypedStorage, storage_offset: int, size: Sequence[int], stride: Sequence[int]
) -> Tensor:
    """A tensor on a storage."""
    from .serialization.source import view_of

    return view_of(storage._elements, size, stride, storage_offset)


def _rebuild_tensor_v2(
    storage: TypedStorage, storage_offset: int, size: Sequence[int], stride: Sequence[int],
    requires_grad: bool, backward_hooks: Any, metadata: Any = None,
) -> Tensor:  # fmt: skip
    """A tensor on a storage that may need gradients."""
    if metadata:
        raise NotImplementedError("lazy conjugate and negative views are not supported")
    made = _rebuild_tensor(storage, storage_offset, size, stride)
    made.requires_grad = requires_grad
    return made


def _rebuild_parameter(data: Tensor, requires_grad: bool, backward_hooks: Any) -> Parameter:
    """A parameter around a tensor."""
    return Parameter(data, requires_grad)


def _rebuild_parameter_with_state(
    data: Tensor, requires_grad: bool, backward_hooks: Any, state: Any
) -> Parameter:
    """A parameter that has attributes of its own."""
    return _with_state(Parameter(data, requires_grad), state)


def _rebuild_from_type_v2(
    func: Callable[..., Tensor], new_type: type, args: tuple[Any, ...], state: Any
) -> Tensor:
    """A tensor of a class, or with attributes of its own."""
    made = func(*args)
    return _with_state(made if type(made) is new_type else made.as_subclass(new_type), state)


def _with_state(made: Any, state: Any) -> Any:
    """A tensor given its attributes: a dict, or that and another one of slots."""
    for names in state if isinstance(state, tuple) else (state,):
        for name, value in (names or {}).items():
            setattr(made, name, value)
    return made


_storage._load_from_bytes = _load_from_bytes  # where PyTorch has it
