"""Tensors of other libraries without a copy: DLPack, and the interface of arrays on GPUs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import devices, driver, dtypes, gpu
from ..graph import record
from ..graph.export import add_method, export
from ..graph.node import dense_spec, spec_of
from ..shapes import Size, contiguous_strides, is_dense, sized
from ..storage import BorrowedMemory
from ..tensor import Tensor

CPU, CUDA, PINNED, MANAGED = 1, 2, 3, 13  # DLPack's numbers of devices
# What its numbers of dtypes mean
SPOKEN_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}
DEFAULT_STREAM, THREAD_STREAM = 1, 2  # what both protocols call the stream 0 and that of a thread
VERSION = 1, 0
READ_ONLY = 1  # a flag


class _Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("index", ctypes.c_int32)]


class _Dtype(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Array(ctypes.Structure):
    """DLTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("device", _Device), ("ndim", ctypes.c_int32), ("dtype", _Dtype),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    ]  # fmt: skip


class _Managed(ctypes.Structure):
    """DLManagedTensor, which a capsule of the name holds."""

    _fields_ = [("array", _Array), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]
    name = b"dltensor"
    flags = 0


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("array", _Array),
    ]  # fmt: skip
    name = b"dltensor_versioned"


FORMS: tuple[Any, ...] = (_Managed, _Versioned)
_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = (
    ctypes.py_object,
    (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p),
)
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes = (ctypes.py_object, ctypes.c_char_p)
# A capsule that is being dropped comes as an address: it must not be owned again.
_dropped_pointer_of = ctypes.pythonapi["PyCapsule_GetPointer"]
_dropped_pointer_of.restype = ctypes.c_void_p
_dropped_pointer_of.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_dropped_is_valid = ctypes.pythonapi["PyCapsule_IsValid"]
_dropped_is_valid.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.argtypes = (ctypes.py_object, ctypes.c_char_p)
USED = {form: b"used_" + form.name for form in FORMS}  # a capsule keeps the address of its name


# ----- giving -----


NEEDS_GRADIENT = "Can't export tensors that require gradient, use tensor.detach()"


def _cuda_array_interface(t: Tensor) -> dict[str, Any]:
    """What Numba, CuPy and PyTorch read of an array on a GPU."""
    if not t.is_cuda:
        raise AttributeError(
            f"Can't get __cuda_array_interface__ on non-CUDA tensor type: {t.type()} If CUDA data is "
            "required use tensor.cuda() to copy tensor to device memory."
        )
    if t.requires_grad:
        raise RuntimeError(NEEDS_GRADIENT)
    size = t.itemsize
    address = t._address()
    return {
        "version": 3,
        "typestr": t.dtype.numpy.str,
        "shape": tuple(t.shape),
        "strides": None if t._spec.contiguous else tuple(s * size for s in t._spec.strides),
        "data": (address, False),
        "stream": gpu.current_stream(t.get_device()) or DEFAULT_STREAM,
    }


def _dlpack_device(t: Tensor) -> tuple[int, int]:
    """The kind and the number of the device, as DLPack counts them."""
    return (CUDA, t.get_device()) if t.is_cuda else (CPU, 0)


def _dlpack(
    t: Tensor,
    *,
    stream: int | None = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """A capsule with the memory of a tensor, for `from_dlpack` of any library.

    Args:
        stream: of the taker, which is let wait for what the current one has to do; -1 if it need
            not be.
        max_version: that the taker knows; from (1, 0) on the capsule tells its version and flags.
        dl_device: where the memory is wanted, (1, 0) for the CPU and (2, k) for a GPU.
        copy: True for memory of its own, False for an error where it takes a copy.

    Raises:
        BufferError: for a tensor that requires gradients, or that it takes a copy to give.
    """
    if t.requires_grad:
        raise BufferError(NEEDS_GRADIENT)
    if stream is not None and type(stream) is not int:
        raise TypeError("stream must be ``int`` or ``none``")
    if dl_device is not None and tuple(dl_device) != _dlpack_device(t):
        kind, index = dl_device
        if copy is False or kind not in (CPU, CUDA):
            raise BufferError(
                f"cannot move a tensor from device {_dlpack_device(t)} to {tuple(dl_device)}"
                + (" without a copy" if copy is False else "")
            )
        t = t.to("cpu" if kind == CPU else devices.gpu(index))
    elif copy:
        t = t.clone()
    versioned = max_version is not None and max_version[0] >= VERSION[0]
    if t.is_cuda:
        return _capsule(t, stream, _Versioned if versioned else _Managed)
    if stream not in (None, -1):
        raise AssertionError("stream should be None on cpu.")
    # NumPy's capsule ends well even after the interpreter has.
    array = t.numpy()
    return array.__dlpack__(max_version=VERSION) if versioned and KNOWS else array.__dlpack__()


KNOWS = np.lib.NumpyVersion(np.__version__) >= "2.1.0"  # whether NumPy knows versions of DLPack


def _capsule(t: Tensor, stream: int | None, form: Any) -> Any:
    """A capsule with the memory of a tensor on a GPU."""
    address = t._address()
    if stream != -1:
        _let_wait(t.get_device(), stream)
    sizes = (ctypes.c_int64 * (2 * t.ndim))(*t.shape, *t._spec.strides)
    strides = ctypes.cast(ctypes.addressof(sizes) + 8 * t.ndim, ctypes.POINTER(ctypes.c_int64))
    made = form(
        array=_Array(
            address, _Device(*_dlpack_device(t)), t.ndim,
            _Dtype(t.dtype.row.dlpack, 8 * t.itemsize, 1), sizes, strides, 0,
        ),
        deleter=ctypes.cast(_on_end, ctypes.c_void_p),
    )  # fmt: skip
    if form is _Versioned:
        made.major, made.minor = VERSION
    _given[ctypes.addressof(made)] = made, sizes, t
    return _new_capsule(ctypes.addressof(made), form.name, ctypes.cast(_on_drop, ctypes.c_void_p))


def _let_wait(index: int, stream: int | None) -> None:
    """Let a stream of the taker's wait for what the current one has to do."""
    if stream == THREAD_STREAM:
        raise BufferError("per-thread default stream is not supported.")
    if stream == 0:
        raise AssertionError("unsupported stream on CUDA: 0.")
    target = 0 if stream in (None, DEFAULT_STREAM) else stream
    current = gpu.current_stream(index)
    if target != current:
        library = driver.load()
        library.use(index)
        event = library.new_event(timing=False)
        library.call("cuEventRecord", event, current)
        library.call("cuStreamWaitEvent", target, event, 0)
        library.call("cuEventDestroy_v2", event)


_given: dict[int, Any] = {}  # what capsules hold, until their takers are done with it


def _forget(address: int, given: dict[int, Any] = _given) -> None:
    """The taker is done with what a capsule held."""
    given.pop(address, None)


def _drop_capsule(capsule: int, given: dict[int, Any] = _given) -> None:
    """A capsule ends; what it holds too, if nobody has taken it."""
    for form in FORMS:
        if _dropped_is_valid(capsule, form.name):
            given.pop(_dropped_pointer_of(capsule, form.name), None)


_on_end, _on_drop = _DELETER(_forget), _DELETER(_drop_capsule)
for _callback in (_on_end, _on_drop):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_callback))  # takers may end after this module


# ----- taking -----


class _Taken:
    """Memory of another library; ends with the last value that lies in it."""

    def __init__(self, owner: Any, end: Callable[[], None] | None = None) -> None:
        self.owner, self.end = owner, end

    def __del__(self) -> None:
        if self.end is not None:
            self.end()


@export
def to_dlpack(tensor: Tensor) -> Any:
    """A DLPack capsule with the memory of a tensor; `from_dlpack` takes tensors themselves too.

    Example:
        >>> adjit.from_dlpack(adjit.utils.dlpack.to_dlpack(adjit.tensor([1., 2.])))
        tensor([1., 2.])
    """
    return _dlpack(tensor)


@export
def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor on the memory of another library's array, or of a DLPack capsule.

    Writes to one are seen by the other, on the CPU and on a GPU. Of memory that says that it may only
    be read (NumPy's does, JAX's does not) the first write makes a copy.

    Args:
        device: where the tensor is wanted.
        copy: True for memory of its own, False for an error where `device` takes a copy.

    Raises:
        TypeError: if it knows no DLPack.
        NotImplementedError: for dtypes and devices that adjit does not have.
        ValueError: for negative strides, and for `copy=False` with another device.

    Example:
        >>> import numpy as np
        >>> adjit.from_dlpack(np.ones(2))
        tensor([1., 1.], dtype=adjit.float64)
    """
    if type(ext_tensor).__name__ == "PyCapsule":
        made = _from_capsule(ext_tensor)
    elif hasattr(ext_tensor, "__dlpack__"):
        kind, index = map(int, ext_tensor.__dlpack_device__())
        told = {}
        if kind in (CUDA, MANAGED):
            told["stream"] = gpu.current_stream(index) or DEFAULT_STREAM
        try:
            capsule = ext_tensor.__dlpack__(**told, max_version=VERSION)
        except TypeError:  # it is older than versions
            capsule = ext_tensor.__dlpack__(**told)
        made = _from_capsule(capsule)
    else:
        raise TypeError(
            f"from_dlpack: expected an array with __dlpack__, got {type(ext_tensor).__name__}"
        )
    place = made.device if device is None else devices.check(device)
    if place != made.device:
        if copy is False:
            raise ValueError(
                f"cannot move DLPack tensor from device {made.device} to {place} without copying. Set "
                "copy=None or copy=True."
            )
        return made.to(place)
    return made.clone() if copy else made


def _from_capsule(capsule: Any) -> Tensor:
    form = next((f for f in FORMS if _is_valid(capsule, f.name)), None)
    if form is None:
        raise RuntimeError(
            "from_dlpack received an invalid capsule. Note that DLTensor capsules can be consumed "
            "only once, so you might have already constructed a tensor from it once."
        )
    address = _pointer_of(capsule, form.name)
    managed = form.from_address(address)
    if form is _Versioned and managed.major != VERSION[0]:
        raise BufferError(f"from_dlpack: a capsule of DLPack {managed.major}.{managed.minor}")
    found = managed.array
    kind, place = _dtype_of(found.dtype), _place_of(found.device)
    shape = sized(found.shape[: found.ndim] if found.ndim else ())
    strides = contiguous_strides(shape)
    if found.strides and found.ndim:
        strides = tuple(found.strides[: found.ndim])
    if any(stride < 0 for stride in strides):
        raise ValueError(
            "from_dlpack: tensors with negative strides are not supported; make a copy of the array"
        )
    deleter = _DELETER(managed.deleter) if managed.deleter else None
    _rename(capsule, USED[form])
    owner = _Taken(capsule, None if deleter is None else lambda: deleter(address))
    start = int(found.data or 0) + found.offset
    return _on_memory(start, shape, strides, kind, place, owner, bool(managed.flags & READ_ONLY))


def _dtype_of(told: _Dtype) -> dtypes.dtype:
    for kind in dtypes.SUPPORTED:
        if (kind.row.dlpack, 8 * kind.itemsize, 1) == (told.code, told.bits, told.lanes):
            return kind
    spoken = SPOKEN_CODES.get(told.code)
    name = (
        f"{told.bits} bits of dtype code {told.code}" if spoken is None else f"{spoken}{told.bits}"
    )
    lanes = "" if told.lanes == 1 else f" in vectors of {told.lanes}"
    known = ", ".join([kind.name for kind in dtypes.SUPPORTED])
    raise NotImplementedError(
        f"from_dlpack: {name}{lanes} is not supported; convert the array first (supported: {known})"
    )


def _place_of(told: _Device) -> devices.device:
    if told.kind in (CPU, PINNED):
        return devices.CPU
    if told.kind in (CUDA, MANAGED):
        return devices.check(devices.gpu(told.index))
    raise NotImplementedError(
        f"from_dlpack: device type {told.kind} is not supported, only the CPU (1) and CUDA (2)"
    )


def _on_memory(
    address: int,
    shape: Size,
    strides: tuple[int, ...],
    kind: Any,
    place: devices.device,
    owner: Any,
    read_only: bool,
) -> Tensor:
    """A tensor on memory that somebody else owns."""
    spec = spec_of(shape, strides, kind, place)
    block = BorrowedMemory(address)
    block.memory, block.read_only = owner, read_only
    storage = record.make_storage(record.ready_node(block), spec)
    if not is_dense(shape, strides):
        storage.spec = dense_spec((spec.extent,), kind, place)
    storage.shared = int(not read_only)  # else a write gives the storage other memory
    return record.make_tensor(storage, spec)


def from_cuda_array_interface(array: Any) -> Tensor:
    """A tensor on the memory of an array on a GPU: of Numba, CuPy or PyTorch.

    Raises:
        NotImplementedError: for masks, and dtypes that adjit does not have.
        ValueError: for negative strides, strides between elements, and a stream 0.
        RuntimeError: if the memory is not that of a GPU.
    """
    told = array.__cuda_array_interface__
    if told.get("mask") is not None:
        raise NotImplementedError("__cuda_array_interface__: masked arrays are not supported")
    kind = dtypes.of_numpy(np.dtype(told["typestr"]))
    shape = sized(told["shape"])
    strides = contiguous_strides(shape)
    if told.get("strides") is not None:
        if any(s < 0 or s % kind.itemsize for s in told["strides"]):
            raise ValueError(
                f"__cuda_array_interface__: strides {tuple(told['strides'])} of {kind.itemsize} bytes "
                "an element are not supported; make a copy of the array"
            )
        strides = tuple([s // kind.itemsize for s in told["strides"]])
    address, read_only = told["data"]
    place = devices.check("cuda")
    library = driver.load()
    if address:
        place = devices.check(devices.gpu(library.device_of(address)))
    stream = told.get("stream")
    if stream == 0:
        raise ValueError("__cuda_array_interface__: stream 0 may be one of two; use 1 or 2")
    if stream is not None:  # what comes here waits for the owner's work
        library.use(place.index or 0)
        library.call("cuStreamSynchronize", 0 if stream == DEFAULT_STREAM else stream)
    return _on_memory(address or 0, shape, strides, kind, place, _Taken(array), bool(read_only))


setattr(Tensor, "__cuda_array_interface__", property(_cuda_array_interface))  # noqa: B010
add_method("__dlpack__", _dlpack)
add_method("__dlpack_device__", _dlpack_device)
