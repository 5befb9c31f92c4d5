"""Tensors of other libraries without a copy: DLPack, and the interface of arrays on GPUs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import devices, driver, dtypes, gpu
from ..graph import record
from ..graph.node import dense_spec, spec_of
from ..graph.op import add_method, export
from ..shapes import Size, contiguous_strides, is_dense
from ..storage import Foreign
from ..tensor import Tensor
from . import creation

CPU, CUDA = 1, 2  # DLPack's numbers of devices
CODES = {"i": 0, "u": 1, "f": 2, "b": 6}  # and of dtypes
DEFAULT_STREAM = 1  # what both protocols call the stream 0


class _Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("index", ctypes.c_int32)]


class _Dtype(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("device", _Device), ("ndim", ctypes.c_int32), ("dtype", _Dtype),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
    ]  # fmt: skip


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = (
    ctypes.py_object,
    (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p),
)
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
# A capsule that is being dropped comes as an address: it must not be owned again.
_dropped_pointer_of = ctypes.pythonapi["PyCapsule_GetPointer"]
_dropped_pointer_of.restype = ctypes.c_void_p
_dropped_pointer_of.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.argtypes = (ctypes.py_object, ctypes.c_char_p)
NEW, USED = b"dltensor", b"used_dltensor"


# ----- giving -----


def _check_leaf(t: Tensor) -> None:
    if t.requires_grad:
        raise RuntimeError("Can't export tensors that require gradient, use tensor.detach()")


def _cuda_array_interface(t: Tensor) -> dict[str, Any]:
    """What Numba, CuPy and PyTorch read of an array on a GPU."""
    if not t.is_cuda:
        raise AttributeError(
            f"Can't get __cuda_array_interface__ on non-CUDA tensor type: {t.type()} If CUDA data is "
            "required use tensor.cuda() to copy tensor to device memory."
        )
    _check_leaf(t)
    size = t.itemsize
    address = t.data_ptr()
    return {
        "version": 3,
        "typestr": t.dtype.numpy.str,
        "shape": tuple(t.shape),
        "strides": None if t.is_contiguous() else tuple(s * size for s in t.stride()),
        "data": (address, False),
        "stream": gpu.current_stream(t.get_device()) or DEFAULT_STREAM,
    }


def _dlpack_device(t: Tensor) -> tuple[int, int]:
    """The kind and the number of the device, as DLPack counts them."""
    return (CUDA, t.get_device()) if t.is_cuda else (CPU, 0)


def _dlpack(t: Tensor, *, stream: int | None = None, **more: Any) -> Any:
    """A capsule with the memory of a tensor, for `from_dlpack` of any library.

    Raises:
        RuntimeError: for a tensor that requires gradients.
    """
    _check_leaf(t)
    if not t.is_cuda:
        return t.numpy().__dlpack__(**more)
    address = t.data_ptr()
    if stream != -1:
        _let_wait(t.get_device(), stream)
    sizes = (ctypes.c_int64 * (2 * t.ndim))(*t.shape, *t.stride())
    strides = ctypes.cast(ctypes.addressof(sizes) + 8 * t.ndim, ctypes.POINTER(ctypes.c_int64))
    made = _Managed(
        address, _Device(*_dlpack_device(t)), t.ndim,
        _Dtype(CODES[t.dtype.kind], 8 * t.itemsize, 1), sizes, strides, 0, 0,
        ctypes.cast(_on_end, ctypes.c_void_p),
    )  # fmt: skip
    _given[ctypes.addressof(made)] = made, sizes, t
    return _new_capsule(ctypes.addressof(made), NEW, ctypes.cast(_on_drop, ctypes.c_void_p))


def _let_wait(index: int, stream: int | None) -> None:
    """Let a stream of the taker's wait for what the current one has to do."""
    target = 0 if stream in (None, DEFAULT_STREAM) else int(stream or 0)
    current = gpu.current_stream(index)
    if target != current:
        library = driver.load()
        library.use(index)
        event = library.new_event(timing=False)
        library.call("cuEventRecord", event, current)
        library.call("cuStreamWaitEvent", target, event, 0)
        library.call("cuEventDestroy_v2", event)


_given: dict[int, Any] = {}  # what capsules hold, until their takers are done with it


def _forget(address: int) -> None:
    """The taker is done with what a capsule held."""
    _given.pop(address, None)


def _drop_capsule(capsule: int) -> None:
    """A capsule ends; what it holds too, if nobody has taken it."""
    if _is_valid(capsule, NEW):
        _given.pop(_dropped_pointer_of(capsule, NEW), None)


_on_end, _on_drop = _DELETER(_forget), _DELETER(_drop_capsule)


# ----- taking -----


class _Taken:
    """Memory of another library; ends with the last value that lies in it."""

    def __init__(self, owner: Any, end: Callable[[], None] | None = None) -> None:
        self.owner, self.end = owner, end

    def __del__(self) -> None:
        if self.end is not None:
            self.end()


@export
def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor on the memory of another library's array, or of a DLPack capsule.

    Writes to one are seen by the other, on the CPU and on a GPU.

    Raises:
        TypeError: if it knows no DLPack.
        NotImplementedError: for dtypes and devices that adjit does not have.

    Example:
        >>> adjit.from_dlpack(np.ones(2))
        tensor([1., 1.], dtype=adjit.float64)
    """
    if isinstance(ext_tensor, np.ndarray):
        made = creation.from_numpy(ext_tensor)
    elif type(ext_tensor).__name__ == "PyCapsule":
        made = _from_capsule(ext_tensor)
    elif hasattr(ext_tensor, "__dlpack_device__"):
        kind, index = map(int, ext_tensor.__dlpack_device__())
        told = {"stream": gpu.current_stream(index) or DEFAULT_STREAM} if kind == CUDA else {}
        made = _from_capsule(ext_tensor.__dlpack__(**told))
    else:
        raise TypeError(
            f"from_dlpack: expected an array with __dlpack__, got {type(ext_tensor).__name__}"
        )
    if device is not None:
        made = made.to(device)
    return made.clone() if copy else made


def _from_capsule(capsule: Any) -> Tensor:
    address = _pointer_of(capsule, NEW)
    found = _Managed.from_address(address)
    kind = next(
        (
            d
            for d in dtypes.SUPPORTED
            if (CODES[d.kind], 8 * d.itemsize, 1)
            == (found.dtype.code, found.dtype.bits, found.dtype.lanes)
        ),
        None,
    )
    if kind is None or found.device.kind not in (CPU, CUDA):
        raise NotImplementedError(
            f"from_dlpack: dtype code {found.dtype.code} with {found.dtype.bits} bits on a device of "
            f"kind {found.device.kind} is not supported"
        )
    shape = Size(found.shape[: found.ndim])
    strides = tuple(found.strides[: found.ndim]) if found.strides else contiguous_strides(shape)
    place = devices.CPU
    if found.device.kind == CUDA:
        place = devices.check(devices.gpu(found.device.index))
    deleter = _DELETER(found.deleter) if found.deleter else None
    _rename(capsule, USED)
    owner = _Taken(capsule, None if deleter is None else lambda: deleter(address))
    return _on_memory(int(found.data or 0) + found.offset, shape, strides, kind, place, owner)


def _on_memory(
    address: int,
    shape: Size,
    strides: tuple[int, ...],
    kind: Any,
    place: devices.device,
    owner: Any,
) -> Tensor:
    """A tensor on memory that somebody else owns."""
    spec = spec_of(shape, strides, kind, place)
    block = Foreign(address)
    block.memory = owner
    storage = record.make_storage(record.ready_node(block), spec)
    if not is_dense(shape, strides):
        storage.spec = dense_spec((spec.extent,), kind, place)
    storage.shared = 1
    return record.make_tensor(storage, spec)


def from_cuda_array_interface(array: Any) -> Tensor:
    """A tensor on the memory of an array on a GPU: of Numba, CuPy or PyTorch."""
    told = array.__cuda_array_interface__
    kind = dtypes.of_numpy(np.dtype(told["typestr"]))
    shape = Size(told["shape"])
    strides = told.get("strides")
    steps = contiguous_strides(shape) if strides is None else [s // kind.itemsize for s in strides]
    place = devices.check("cuda")
    stream = told.get("stream")
    if stream is not None:  # what comes here waits for the owner's work
        library = driver.load()
        library.use(place.index or 0)
        library.call("cuStreamSynchronize", 0 if stream == DEFAULT_STREAM else stream)
    return _on_memory(told["data"][0], shape, tuple(steps), kind, place, _Taken(array))


setattr(Tensor, "__cuda_array_interface__", property(_cuda_array_interface))  # noqa: B010
add_method("__dlpack__", _dlpack)
add_method("__dlpack_device__", _dlpack_device)
