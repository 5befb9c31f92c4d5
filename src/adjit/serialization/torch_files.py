"""PyTorch's own files, read without PyTorch and without running anything from them.

`torch.save` has written two formats: since 1.6 a zip archive with one record for each storage,
before that a row of pickles with the storages behind them.
"""

from __future__ import annotations

import pickle
import struct
import zipfile
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, NoReturn, cast

from .. import devices, dtypes
from ..dtypes import dtype as Dtype
from ..graph.write import placed
from ..nn.parameter import Parameter
from ..ops import creation
from ..shapes import Size
from ..tensor import Tensor
from .source import (
    MAX_DIMS,
    ByteSource,
    FileLike,
    Piece,
    fill,
    is_readable,
    missing_dtype,
    opened,
    read_elements,
    readable,
    set_attributes,
    view_of,
)
from .unpickler import Global, Refused, Unpickler, hashable

_BEGINNING = {"magic number": 0x1950A86A20F9469CFC6C, "protocol version": 1001}

_ENCRYPTED, _UTF8 = 0x1, 0x800  # flags of zip records
_ZIP_ERRORS = (
    zipfile.BadZipFile, NotImplementedError, ValueError, LookupError, OverflowError, struct.error,
)  # fmt: skip

MapLocation = (
    Callable[[Any, str], Any] | devices.device | str | Mapping[str, str | devices.device] | None
)

NEVER_RUNS_CODE = (
    "adjit.load never runs code from a file: tensors, numbers, strings, dicts, lists, tuples and "
    "sets can be loaded, other objects cannot. Load the file with PyTorch and save its state_dict() instead."
)


class StorageType(NamedTuple):
    """A class such as `torch.FloatStorage`; `kind` is None where adjit does not know the elements."""

    name: str
    kind: Dtype | None


class Stored:
    """A storage of a file: its elements as a 1-d tensor, once they are asked for.

    `missing`: adjit has no tensors with such elements.
    """

    def __init__(self, kind: Dtype, numel: int, missing: bool, make: Callable[[], Tensor]) -> None:
        self.kind, self.numel, self.missing = kind, numel, missing
        self._make = make
        self._elements: Tensor | None = None
        # Where the elements go, if not where they are made.
        self.place: devices.device | None = None

    @property
    def elements(self) -> Tensor:
        """The elements, which all tensors on this storage share."""
        if self._elements is None:
            made = self._make()
            self._elements = made if self.place is None else placed(made, self.place)
        return self._elements


# ----- the list of names -----


def _tensor(
    machine: Unpickler, storage: Stored, offset: int, size: Any, stride: Any,
    requires_grad: bool = False, hooks: Any = None, metadata: Any = None,
) -> Tensor:  # fmt: skip
    """`torch._utils._rebuild_tensor` and `_rebuild_tensor_v2`."""
    if type(storage) is not Stored or type(size) not in (tuple, Size) or type(stride) is not tuple:
        raise TypeError("a tensor takes a storage, an offset, sizes and strides")
    if metadata:
        raise Refused(f"{machine.tensor()} is a lazy conjugate or negative view")
    if storage.missing:
        raise missing_dtype(storage.kind.name, machine.tensor())
    made = view_of(storage.elements, size, stride, offset)
    return made.requires_grad_() if requires_grad else made


def _tensor_of_new_dtype(
    machine: Unpickler, storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any,
    hooks: Any, kind: Any, metadata: Any = None,
) -> NoReturn:  # fmt: skip
    """`torch._utils._rebuild_tensor_v3`, which is for dtypes without a storage class."""
    raise missing_dtype(_name_of(kind).removeprefix("torch."), machine.tensor())


def _parameter(
    machine: Unpickler, data: Any = None, requires_grad: bool = True, hooks: Any = None,
    state: Any = None,
) -> Parameter:  # fmt: skip
    """`torch.nn.Parameter`, `_rebuild_parameter` and `_rebuild_parameter_with_state`."""
    if data is not None and not isinstance(data, Tensor):
        raise TypeError(f"a Parameter takes a tensor, got {type(data).__name__}")
    made = Parameter(data, bool(requires_grad))
    _give_attributes(machine, made, state)
    return made


def _build_parameter(machine: Unpickler, parameter: Parameter, state: Any) -> None:
    """The state of a Parameter of PyTorch 0.1: data, gradient, hooks, requires_grad, volatile."""
    data, _, _, requires_grad, _ = state
    if not isinstance(data, Tensor):
        raise TypeError(f"a Parameter takes a tensor, got {type(data).__name__}")
    parameter.data = data.detach()
    parameter.requires_grad_(bool(requires_grad))


def _from_type(machine: Unpickler, function: Any, kind: Any, args: Any, state: Any) -> Any:
    """`torch._tensor._rebuild_from_type_v2`: a tensor with Python attributes."""
    make = _TENSOR_MAKERS.get(_name_of(function))
    if make is None or type(args) is not tuple:
        raise Refused(f"cannot rebuild a tensor with {_name_of(function)}")
    if type(kind) is not Global or kind not in (_TENSOR_CLASS, _PARAMETER_CLASS):
        raise Refused(f"cannot rebuild a tensor of type {_name_of(kind)}")
    made = make(machine, *args)
    _give_attributes(machine, made, state)
    return made


def _give_attributes(machine: Unpickler, owner: Any, state: Any) -> None:
    if state:
        set_attributes(owner, machine.charge(state))


def _encode(machine: Unpickler, text: Any, encoding: Any) -> bytes:
    """`_codecs.encode`, the way in which pickles of protocol 2 hold bytes."""
    if type(text) is not str or type(encoding) is not str or encoding != "latin1":
        raise Refused("_codecs.encode is allowed with encoding 'latin1' only")
    return cast(str, machine.charge(text)).encode("latin1")


def _bytearray(machine: Unpickler, text: Any = b"", encoding: Any = "latin1") -> bytearray:
    data = text if type(text) is bytes else _encode(machine, text, encoding)
    return bytearray(machine.charge(data))


def _set(machine: Unpickler, items: Iterable[Any] = ()) -> set[Any]:
    return set(map(hashable, machine.charge(items)))


def _ordered_dict(machine: Unpickler, items: Any = ()) -> OrderedDict[Any, Any]:
    return OrderedDict((hashable(key), value) for key, value in machine.charge(items))


def _counter(machine: Unpickler, items: Any = None) -> Counter[Any]:
    if items is not None and type(items) is not dict:
        raise TypeError(f"a Counter takes a dict, got {type(items).__name__}")
    return Counter(machine.charge(items or {}))


def _size(machine: Unpickler, sizes: Any = ()) -> Size:
    if len(sizes) > MAX_DIMS or not all(type(n) is int for n in sizes):
        raise TypeError("torch.Size takes a few ints")
    return Size(sizes)


def _device(machine: Unpickler, kind: Any, index: Any = None) -> devices.device:
    if type(kind) is not str or type(index) not in (int, type(None)):
        raise TypeError("torch.device takes a name and an index")
    return devices.device(kind, index)


def _layout(machine: Unpickler, name: Any) -> Any:
    return name  # an argument of the functions for sparse tensors, which are refused themselves


def _absent(what: str) -> Callable[..., NoReturn]:
    """A function for tensors of a sort that adjit does not have."""

    def refuse(machine: Unpickler, *args: Any) -> NoReturn:
        raise NotImplementedError(f"{machine.tensor()} is {what}, which adjit does not support")

    return refuse


def _name_of(value: Any) -> str:
    """The name of what a name in a file stands for, or of the type of another value."""
    named = isinstance(value, (Global, StorageType, dtypes.dtype))
    return value.name if named else type(value).__name__


_TENSOR_CLASS = Global("torch.Tensor")
_PARAMETER_CLASS = Global("torch.nn.parameter.Parameter", _parameter)
_CALLS: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": _ordered_dict,
    "collections.Counter": _counter,
    "builtins.set": _set,
    "builtins.bytearray": _bytearray,
    "builtins.complex": lambda machine, real=0.0, imag=0.0: complex(real, imag),
    "_codecs.encode": _encode,
    "torch.Size": _size,
    "torch.device": _device,
    "torch.serialization._get_layout": _layout,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_of_new_dtype,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
    "torch._tensor._rebuild_from_type_v2": _from_type,
    "torch._utils._rebuild_qtensor": _absent("quantized"),
    "torch._utils._rebuild_sparse_tensor": _absent("sparse"),
    "torch._utils._rebuild_nested_tensor": _absent("nested"),
    "torch._utils._rebuild_meta_tensor_no_storage": _absent("on the meta device"),
    "torch._utils._rebuild_wrapper_subclass": _absent("a wrapper subclass"),
    "torch._utils._rebuild_device_tensor_from_numpy": _absent("on a device of its own"),
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": _absent("on a device of its own"),
}
_STORAGE_KINDS: dict[str, dtypes.dtype | None] = {
    **dict.fromkeys(("QInt8", "QUInt8", "QInt32", "QUInt4x2", "QUInt2x4")),
    **{kind.legacy: kind for kind in dtypes.ALL},
}
_OTHER_DTYPES = (
    "chalf", "complex32", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2", "qint8",
    "qint32", "quint8", "quint4x2", "quint2x4", "bits1x8", "bits2x4", "bits4x2", "bits8", "bits16",
    *(f"uint{n}" for n in range(1, 8)), *(f"int{n}" for n in range(1, 8)),
)  # fmt: skip


def _names() -> dict[str, Any]:
    """What the names that a file may use stand for."""
    names: dict[str, Any] = {name: Global(name, call) for name, call in _CALLS.items()}
    names |= {one.name: one for one in (_TENSOR_CLASS, _PARAMETER_CLASS)}
    names["torch.storage.UntypedStorage"] = StorageType(
        "torch.storage.UntypedStorage", dtypes.uint8
    )
    for module in ("torch", "torch.cuda"):
        for prefix, kind in _STORAGE_KINDS.items():
            name = f"{module}.{prefix}Storage"
            names[name] = StorageType(name, kind)
    names |= {f"torch.{name}": Global(f"torch.{name}") for name in _OTHER_DTYPES}
    return names | {f"torch.{kind.name}": kind for kind in dtypes.ALL}


_NAMES = _names()
_TENSOR_MAKERS = {
    name: call
    for name, call in _CALLS.items()
    if call in (_tensor, _tensor_of_new_dtype, _parameter)
}
_BUILDERS: dict[type, Callable[[Unpickler, Any, Any], None]] = {
    OrderedDict: _give_attributes,
    Parameter: _build_parameter,
}


def _checked(loaded: Any) -> Any:
    """An object without storages and classes, which have no meaning outside of the file."""
    waiting, seen = [loaded], set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, (Global, Stored, StorageType)):
            what = "a storage" if type(value) is Stored else _name_of(value)
            raise Refused(f"the file holds {what} by itself; adjit loads tensors")
        if isinstance(value, (dict, list, tuple, set)) and id(value) not in seen:
            seen.add(id(value))
            waiting.extend(value)
            if isinstance(value, dict):
                waiting.extend(value.values())
    return loaded


# ----- both formats -----


class Reader(ABC):
    """What reading both formats has in common: where storages go, and which there are."""

    def __init__(
        self, source: ByteSource, map_location: MapLocation, half_to_float32: bool
    ) -> None:
        self.source, self.map_location, self.half_to_float32 = source, map_location, half_to_float32
        self.storages: dict[str, Stored] = {}

    def machine(self, source: ByteSource) -> Unpickler:
        """An unpickler that takes storages from here."""
        return Unpickler(source, _NAMES, _BUILDERS, self.storage)

    def storage(self, kind: Any, key: Any, location: Any, numel: Any, view: Any = None) -> Stored:
        """The storage of a persistent id; `view` is a part of it that older files name."""
        if type(kind) is not StorageType or type(key) is not str or type(location) is not str:
            raise TypeError("a storage takes its class, a key, a location and a size")
        if type(numel) is not int or not 0 <= numel < 1 << 60:
            raise ValueError(f"{numel!r} is no number of elements")
        if kind.kind is None:
            raise NotImplementedError(f"the file holds a {kind.name}, which adjit does not support")
        found = self.storages.get(key)
        if found is None:
            missing = not is_readable(kind.kind, self.half_to_float32)
            make = self.maker(kind.kind, key, numel)
            found = self.storages[key] = Stored(kind.kind, numel, missing, make)
            found.place = destination(self.map_location, location, found)
        elif (found.kind, found.numel) != (kind.kind, numel):
            raise ValueError(f"storage {key} is used as two types")
        if view is None:
            return found
        _, offset, size = view
        return Stored(
            found.kind, size, found.missing, lambda: view_of(found.elements, (size,), (1,), offset)
        )

    @abstractmethod
    def maker(self, kind: Dtype, key: str, numel: int) -> Callable[[], Tensor]:
        """What makes the elements of a storage that is met for the first time."""

    @abstractmethod
    def load(self) -> Any:
        """The object."""


def destination(
    map_location: MapLocation, location: str, stored: Stored | None = None
) -> devices.device:
    """The device that a storage goes to.

    Raises:
        RuntimeError: if there is no such device here.
    """
    target: Any = map_location
    if isinstance(target, Mapping):
        target = target.get(location)
    elif callable(target):
        storage = None if stored is None else stored.elements.untyped_storage()
        found = None if stored is None else target(storage, location)
        if found is not None and found is not storage:
            raise RuntimeError(
                "map_location must return the storage it is given, or None, which sends it to where "
                f"it was; it returned an object of type {type(found).__name__}"
            )
        target = found and "cpu"
    if target is not None:
        return devices.check(target)
    try:
        return devices.check(location)
    except RuntimeError as error:
        raise RuntimeError(
            f"Attempting to deserialize object on a {location!r} device, but {error}. Please use "
            "adjit.load with map_location=adjit.device('cpu') to map your storages to the CPU."
        ) from None


def load_zip(source: ByteSource, map_location: MapLocation, half_to_float32: bool) -> Any:
    """The object in a zip archive of `torch.save`."""
    return _allowed(ZipReader(source, map_location, half_to_float32))


def load_legacy(source: ByteSource, map_location: MapLocation, half_to_float32: bool) -> Any:
    """The object in a row of pickles."""
    return _allowed(LegacyReader(source, map_location, half_to_float32))


def _allowed(reader: Reader) -> Any:
    """What a reader loads; a refusal says what is allowed and what to do instead."""
    try:
        return reader.load()
    except Refused as error:
        raise pickle.UnpicklingError(
            f"Weights only load failed. {error}. {NEVER_RUNS_CODE}"
        ) from None


# ----- zip archives -----


class ZipReader(Reader):
    """A zip archive: `data.pkl` for the object, `data/<key>` for its storages.

    Everything is stored uncompressed and nothing overlaps, so what is loaded is never larger than
    the file.
    """

    def load(self) -> Any:
        """The object."""
        self.records = self._records()
        roots = [name[:-8] for name in self.records if name.endswith("/data.pkl")]
        if len(roots) != 1:
            raise self.source.corrupt("it is a zip archive without one record 'data.pkl'")
        self.root = roots[0]
        order = self._text("byteorder", b"little")
        if order not in (b"little", b"big"):
            raise self.source.corrupt(f"its byte order is {order!r}")
        self.big = order == b"big"
        return _checked(self.machine(self._data()).load())

    def maker(self, kind: Dtype, key: str, numel: int) -> Callable[[], Tensor]:
        """What makes the elements of a storage that is met for the first time."""
        piece = self.records.get(f"{self.root}data/{key}")
        if piece is None or piece.nbytes != numel * kind.itemsize:
            has = "no record" if piece is None else f"a record of {piece.nbytes} bytes"
            raise self.source.corrupt(f"it has {has} for storage {key} of {numel} {kind.name}")
        return lambda: read_elements(
            self.source, piece, kind, half_to_float32=self.half_to_float32, big=self.big
        )

    def _records(self) -> dict[str, Piece]:
        """Where the bytes of each record lie."""
        try:
            with zipfile.ZipFile(self.source.stream()) as archive:
                entries = archive.infolist()
        except _ZIP_ERRORS as e:
            raise self.source.corrupt(f"its zip directory is unreadable: {e}") from None
        if any(entry.filename.endswith("/constants.pkl") for entry in entries):
            raise RuntimeError(
                f"{self.source.name} is a TorchScript archive. Cannot use ``weights_only=True`` "
                "with TorchScript archives passed to ``torch.load``. " + NEVER_RUNS_CODE
            )
        summed = any(entry.CRC for entry in entries)  # else written without checksums
        records: dict[str, Piece] = {}
        end = 0
        for entry in sorted(entries, key=lambda entry: entry.header_offset):
            if entry.header_offset < end:
                raise self.source.corrupt(f"record '{entry.filename}' overlaps another one")
            piece = self._piece(entry, entry.CRC if summed else None)
            end = piece.start + piece.nbytes
            if records.setdefault(entry.filename, piece) is not piece:
                raise self.source.corrupt(f"it has two records '{entry.filename}'")
        return records

    def _piece(self, entry: zipfile.ZipInfo, crc: int | None) -> Piece:
        """The bytes of one record, behind a header that repeats what the directory says."""
        if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
            raise self.source.corrupt(
                f"record '{entry.filename}' is compressed, which torch.save never does"
            )
        header = self.source.read(entry.header_offset, 30)
        magic, flags, method, name_size, extra_size = struct.unpack("<4s2xHH16xHH", header)
        name = self.source.read(entry.header_offset + 30, name_size)
        named = entry.orig_filename.encode("utf-8" if entry.flag_bits & _UTF8 else "cp437")
        if magic != b"PK\x03\x04" or method or flags & _ENCRYPTED or name != named:
            raise self.source.corrupt(f"the header of record '{entry.filename}' is wrong")
        start = entry.header_offset + 30 + name_size + extra_size
        if start + entry.file_size > self.source.size:
            raise self.source.corrupt(f"record '{entry.filename}' goes beyond its end")
        return Piece(start, entry.file_size, crc)

    def _text(self, name: str, default: bytes) -> bytes:
        """The content of a small record."""
        piece = self.records.get(self.root + name)
        if piece is None:
            return default
        data = self.source.read(piece.start, piece.nbytes)
        piece.check(self.source, data)
        return data

    def _data(self) -> ByteSource:
        """The record with the pickle, as a source of its own."""
        return self.source.inner(self._text("data.pkl", b""))


# ----- pickles in a row -----


class LegacyReader(Reader):
    """A row of pickles: a magic number, a version, the system, the object and the keys of its
    storages, whose elements follow in that order.
    """

    def load(self) -> Any:
        """The object."""
        for what, wanted in _BEGINNING.items():
            found = self._next()
            if type(found) is not int or found != wanted:
                raise self.source.corrupt(f"Invalid {what}")
        self._next()  # sizes of C types on the machine that wrote it: elements do not depend on them
        self.room = self.source.size
        loaded = self.checked(self._next())
        keys = self._next()
        if type(keys) is not list or sorted(map(str, keys)) != sorted(self.storages):
            raise self.source.corrupt("its list of storages is not that of its object")
        for key in keys:
            self._fill(self.storages[key])
        if self.source.at != self.source.size:
            raise self.source.corrupt("something follows the last storage")
        return loaded

    def maker(self, kind: Dtype, key: str, numel: int) -> Callable[[], Tensor]:
        """What makes the elements of a storage that is met for the first time, to be read later."""
        self.room -= numel * kind.itemsize
        if self.room < 0:
            raise self.source.corrupt("its storages are larger than it is")
        return lambda: creation.empty(numel, dtype=readable(kind, self.half_to_float32))

    def checked(self, loaded: Any) -> Any:
        """The object, if it is one that may be given out."""
        return _checked(loaded)

    def _next(self) -> Any:
        return self.machine(self.source).load()

    def _fill(self, stored: Stored) -> None:
        """Read the elements of the next storage."""
        (numel,) = struct.unpack("<q", self.source.take(8))
        if numel != stored.numel:
            raise self.source.corrupt(f"a storage has {numel} elements instead of {stored.numel}")
        piece = Piece(self.source.at, numel * stored.kind.itemsize)
        fill(stored.elements, self.source, piece, stored.kind)
        self.source.at += piece.nbytes


class LoneStorageReader(LegacyReader):
    """A row of pickles that holds a storage by itself, as a tensor does in a plain pickle."""

    def checked(self, loaded: Any) -> Any:
        """The storage."""
        if type(loaded) is not Stored:
            raise Refused(f"expected a storage, got {_name_of(loaded)}")
        if loaded.missing:
            raise missing_dtype(loaded.kind.name, "a tensor")
        return loaded


def load_storage(f: FileLike) -> Tensor:
    """The elements of a storage that is a file by itself."""
    with opened(f, False) as source:
        stored: Stored = LoneStorageReader(source, None, False).load()
        return stored.elements
