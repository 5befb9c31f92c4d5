"""The element types, and PyTorch's rules for mixing them."""

from __future__ import annotations

import builtins
import ctypes
import functools
import math
import numbers
from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

import numpy as np

__all__ = [
    "bfloat16", "bool", "cdouble", "cfloat", "chalf", "complex32", "complex64", "complex128", "double",
    "dtype", "finfo", "float", "float8_e4m3fn",
    "float8_e5m2", "float16", "float32", "float64", "get_default_dtype", "half", "iinfo", "int", "int8",
    "int16", "int32", "int64", "long", "promote_types", "set_default_dtype", "short", "uint8", "uint16",
    "uint32", "uint64",
]  # fmt: skip

_python_bool = builtins.bool
_python_int = builtins.int
_python_float = builtins.float


class DtypeRow(NamedTuple):
    """What is known of a dtype: the one place where the library reads it.

    A name that is "" says that there is none: a dtype that kernels do not store has no tensors here.
    """

    name: str
    kind: str  # b: truth values, u, i: whole numbers without and with sign, f: floats, c: complex
    rank: builtins.int  # of two dtypes that meet, the result is the one of the higher rank
    itemsize: builtins.int  # in bytes
    numpy: str  # NumPy's dtype with the same bytes
    ctype: Any  # what ctypes reads an element by its address as; None if it has nothing
    # In kernels, by names of this table or of NumPy
    stored: str  # how elements lie in memory
    computed: str  # what elementwise bodies compute in
    moved: str  # what an element is moved as
    # For ops
    summed: str  # the dtype of sums
    running: str  # what a CPU keeps running sums and products in
    digits: builtins.int  # binary digits of a float
    least: builtins.float  # below it sums of squares have few digits, or terms that vanished
    # Elsewhere
    legacy: str  # in names of PyTorch's old classes, and in most of its errors
    method: str  # of tensors, which converts to the dtype
    c: str  # what C++ calls it, in PyTorch's other errors
    file: str  # in headers of safetensors
    dlpack: builtins.int  # DLPack's code


# fmt: off
TABLE = (
    DtypeRow("bool",       "b", 0, 1,  "bool",       ctypes.c_bool,   "uint8",   "uint8",   "uint8",
             "int64",   "bool",    0,  0.0,    "Bool",          "bool",     "bool",                 "BOOL", 6),
    DtypeRow("uint8",      "u", 1, 1,  "uint8",      ctypes.c_uint8,  "uint8",   "uint8",   "uint8",
             "int64",   "uint8",   0,  0.0,    "Byte",          "byte",     "unsigned char",        "U8",   1),
    DtypeRow("int8",       "i", 1, 1,  "int8",       ctypes.c_int8,   "int8",    "int8",    "uint8",
             "int64",   "int8",    0,  0.0,    "Char",          "char",     "signed char",          "I8",   0),
    DtypeRow("int16",      "i", 2, 2,  "int16",      ctypes.c_int16,  "int16",   "int16",   "int16",
             "int64",   "int16",   0,  0.0,    "Short",         "short",    "short int",            "I16",  0),
    DtypeRow("int32",      "i", 3, 4,  "int32",      ctypes.c_int32,  "int32",   "int32",   "int32",
             "int64",   "int32",   0,  0.0,    "Int",           "int",      "int",                  "I32",  0),
    DtypeRow("int64",      "i", 4, 8,  "int64",      ctypes.c_int64,  "int64",   "int64",   "int64",
             "int64",   "int64",   0,  0.0,    "Long",          "long",     "long int",             "I64",  0),
    DtypeRow("uint16",     "u", 1, 2,  "uint16",     None,            "",        "",        "",
             "",        "",        0,  0.0,    "UInt16",        "",         "short unsigned int",   "U16",  1),
    DtypeRow("uint32",     "u", 1, 4,  "uint32",     None,            "",        "",        "",
             "",        "",        0,  0.0,    "UInt32",        "",         "unsigned int",         "U32",  1),
    DtypeRow("uint64",     "u", 1, 8,  "uint64",     None,            "",        "",        "",
             "",        "",        0,  0.0,    "UInt64",        "",         "long unsigned int",    "U64",  1),
    DtypeRow("float8_e4m3fn", "f", 5, 1, "uint8",    None,            "",        "",        "",
             "",        "",        4,  0.0,    "Float8_e4m3fn", "",        "c10::Float8_e4m3fn", "F8_E4M3", 10),
    DtypeRow("float8_e5m2", "f", 5, 1, "uint8",      None,            "",        "",        "",
             "",        "",        3,  0.0,    "Float8_e5m2",   "",        "c10::Float8_e5m2",   "F8_E5M2", 12),
    DtypeRow("float16",    "f", 5, 2,  "float16",    None,            "",        "",        "",
             "",        "",        11, 0.0,    "Half",          "half",     "c10::Half",            "F16",  2),
    DtypeRow("bfloat16",   "f", 5, 2,  "uint16",     None,            "",        "",        "",
             "",        "",        8,  0.0,    "BFloat16",      "bfloat16", "c10::BFloat16",        "BF16", 4),
    DtypeRow("float32",    "f", 6, 4,  "float32",    ctypes.c_float,  "float32", "float32", "int32",
             "float32", "float64", 24, 1e-34,  "Float",         "float",    "float",                "F32",  2),
    DtypeRow("float64",    "f", 7, 8,  "float64",    ctypes.c_double, "float64", "float64", "int64",
             "float64", "float64", 53, 1e-300, "Double",        "double",   "double",               "F64",  2),
    DtypeRow("complex32",  "c", 8, 4,  "uint32",     None,            "",        "",        "",
             "",        "",        11, 0.0,    "ComplexHalf",   "",         "c10::complex<c10::Half>", "",  5),
    DtypeRow("complex64",  "c", 9, 8,  "complex64",  None,            "",        "",        "",
             "",        "",        24, 0.0,    "ComplexFloat",  "",         "c10::complex<float>",  "C64",  5),
    DtypeRow("complex128", "c", 10, 16, "complex128", None,            "",        "",        "",
             "",        "",        53, 0.0,    "ComplexDouble", "",         "c10::complex<double>", "",     5),
)
# fmt: on
_row_of = {row.name: row for row in TABLE}


class dtype:
    """An element type such as `adjit.float32`.

    Attributes: `name`, `itemsize` in bytes, `is_floating_point`, `is_complex`, `is_signed`;
    `numpy` is the NumPy dtype with the same bytes.

    Example:
        >>> adjit.tensor([1., 2.]).dtype
        adjit.float32
        >>> adjit.float64.itemsize, adjit.int64.is_floating_point
        (8, False)
    """

    __slots__ = ("computed", "ctype", "is_complex", "is_floating_point", "is_signed", "itemsize", "kind",
                 "known_as", "legacy", "name", "numpy", "rank", "row", "stored")  # fmt: skip

    def __init__(self, name: str) -> None:
        self.row = row = _row_of[name]
        self.name, self.kind, self.rank, self.legacy = name, row.kind, row.rank, row.legacy
        self.itemsize = row.itemsize
        self.is_floating_point = row.kind == "f"
        self.is_complex = row.kind == "c"
        self.is_signed = row.kind in "ifc"
        self.numpy = np.dtype(row.numpy)
        self.stored, self.computed = row.stored, row.computed
        self.ctype = row.ctype
        # By this machine code reads and writes elements (`kernels/fastpath/item.py`); 0 if only Python does.
        self.known_as = 0 if row.ctype is None else ord(row.kind) | row.itemsize << 8

    def __repr__(self) -> str:
        return f"adjit.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return by_name, (self.name,)

    def to_complex(self) -> dtype:
        """Refuse: no tensor here is complex.

        Raises:
            NotImplementedError: always.

        Example:
            >>> adjit.float32.to_complex()
            Traceback (most recent call last):
                ...
            NotImplementedError: adjit.complex64 is not supported yet; use adjit.float32 ...
        """
        raise unsupported({float16: complex32, float32: complex64}.get(self, complex128))

    def to_real(self) -> dtype:
        """The dtype of the real part: this one, but for the complex ones.

        Example:
            >>> adjit.float32.to_real()
            adjit.float32
        """
        return _real_parts.get(self, self)


bool = dtype("bool")
uint8 = dtype("uint8")
int8 = dtype("int8")
int16 = short = dtype("int16")
int32 = int = dtype("int32")
int64 = long = dtype("int64")
uint16 = dtype("uint16")
uint32 = dtype("uint32")
uint64 = dtype("uint64")
float8_e4m3fn = dtype("float8_e4m3fn")
float8_e5m2 = dtype("float8_e5m2")
float16 = half = dtype("float16")
bfloat16 = dtype("bfloat16")
float32 = float = dtype("float32")
float64 = double = dtype("float64")
complex32 = chalf = dtype("complex32")
complex64 = cfloat = dtype("complex64")
complex128 = cdouble = dtype("complex128")

ALL: tuple[dtype, ...] = tuple([globals()[row.name] for row in TABLE])
SUPPORTED = tuple([d for d in ALL if d.stored])  # of which there are tensors
_all = {d.name: d for d in ALL}
_of_numpy = {d.numpy: d for d in SUPPORTED if d.numpy.name == d.name}
_of_python: dict[Any, dtype] = {
    _python_float: float64, _python_int: int64, _python_bool: bool, complex: complex128,
}  # fmt: skip
_real_parts = {complex32: float16, complex64: float32, complex128: float64}
# Pairs of which neither holds what the other does
_neither = {
    frozenset((uint8, int8)): int16,
    frozenset((float16, bfloat16)): float32,
    frozenset((float64, complex64)): complex128,
    frozenset((float64, complex32)): complex128,
    frozenset((float32, complex32)): complex64,
    frozenset((bfloat16, complex32)): complex64,
}
# PyTorch knows no common dtype for these and others of their kind.
_float8 = frozenset((float8_e4m3fn, float8_e5m2))
_wide_unsigned = frozenset((uint16, uint32, uint64))
# The exponent of a float's least normal number, and its largest number.
_LIMITS = {
    "float8_e4m3fn": (-6, 448.0),
    "float8_e5m2": (-14, 57344.0),
    "float16": (-14, 65504.0),
    "bfloat16": (-126, (2 - 2.0**-7) * 2.0**127),
    "float32": (-126, (2 - 2.0**-23) * 2.0**127),
    "float64": (-1022, (2 - 2.0**-52) * 2.0**1023),
}
_category = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}
_default = float32
_default_listeners: list[Any] = []
_supported_names = ", ".join([d.name for d in SUPPORTED])


def carrier(kind: dtype) -> dtype:
    """The dtype that kernels move elements of `kind` as."""
    return _all[kind.row.moved]


def sum_of(kind: dtype) -> dtype:
    """The dtype of sums of elements."""
    return _all[kind.row.summed]


def running_sum_of(kind: dtype) -> dtype:
    """The dtype that a CPU keeps running sums and products in."""
    return _all[kind.row.running]


def by_name(name: str) -> dtype:
    """The dtype called `name`."""
    return _all[name]


def unsupported(kind: Any) -> Exception:
    """The error for a dtype that exists in PyTorch and not yet here."""
    return NotImplementedError(
        f"{kind!r} is not supported yet; use adjit.float32 or adjit.float64 "
        f"(supported: {_supported_names})"
    )


def check(kind: Any) -> dtype:
    """`kind` itself where it is a supported dtype; Python's own types stand for theirs."""
    if isinstance(kind, dtype):
        if kind not in SUPPORTED:
            raise unsupported(kind)
        return kind
    try:
        if kind in _of_python:
            return _of_python[kind]
        return of_numpy(np.dtype(kind))
    except TypeError:
        raise TypeError(f"dtype must be an adjit.dtype, got {kind!r}") from None


def of_numpy(kind: np.dtype[Any]) -> dtype:
    """The dtype with the bytes of a NumPy dtype (native byte order)."""
    found = _of_numpy.get(kind)
    if found is not None:
        return found
    if kind.name in _all:
        raise unsupported(_all[kind.name])
    *others, last = [d.name for d in reversed(SUPPORTED)]
    raise TypeError(
        f"can't convert np.ndarray of type {kind.type.__module__}.{kind.type.__name__}. The only "
        f"supported types are: {', '.join(others)}, and {last}."
    )


def get_default_dtype() -> dtype:
    """Tell the dtype of tensors made from Python floats; `adjit.float32` at first.

    Example:
        >>> adjit.get_default_dtype()
        adjit.float32
    """
    return _default


def set_default_dtype(d: dtype) -> None:
    """Set the dtype of tensors made from Python floats.

    Raises:
        TypeError: if `d` is not `adjit.float32` or `adjit.float64`.

    Example:
        >>> adjit.set_default_dtype(adjit.float64)
        >>> adjit.tensor(1.5).dtype
        adjit.float64
        >>> adjit.set_default_dtype(adjit.float32)
    """
    global _default
    if not isinstance(d, dtype) or not d.is_floating_point:
        raise TypeError(f"only floating-point types are supported as the default type, got {d!r}")
    _default = check(d)
    for listener in _default_listeners:
        listener()


def on_default_change(listener: Any) -> None:
    """Call `listener()` whenever the default dtype changes: cached results depend on it."""
    _default_listeners.append(listener)


def promote_types(type1: dtype, type2: dtype) -> dtype:
    """The smallest dtype that both convert to, by PyTorch's table.

    Example:
        >>> adjit.promote_types(adjit.uint8, adjit.int8)
        adjit.int16
    """
    if type1 is type2 and type1.__class__ is dtype:
        return type1
    type1 = _a_dtype("promote_types", "type1", 1, type1)
    type2 = _a_dtype("promote_types", "type2", 2, type2)
    _check_promotion(type1, type2)
    higher = type1 if type1.rank > type2.rank else type2
    return _neither.get(frozenset((type1, type2)), higher)


def _a_dtype(function: str, name: str, position: builtins.int, value: Any) -> dtype:
    """An argument as a dtype, which may be one of Python's classes; PyTorch's error for anything else."""
    if isinstance(value, type):
        value = _of_python.get(value, value)
    if not isinstance(value, dtype):
        raise TypeError(
            f"{function}(): argument '{name}' (position {position}) must be torch.dtype, not "
            f"{type(value).__name__}"
        )
    return value


def _check_promotion(one: dtype, other: dtype) -> None:
    pair = {one, other}
    if not pair.isdisjoint(_float8):
        kinds = "Float8 Types"
    elif not pair.isdisjoint(_wide_unsigned) and all(d.kind != "f" for d in pair):
        kinds = "uint16, uint32, uint64 types"
    else:
        return
    raise RuntimeError(
        f"Promotion for {kinds} is not supported, attempted to promote {one.legacy} and {other.legacy}"
    )


def of_scalar(value: Any) -> dtype:
    """The dtype that a Python number counts as."""
    if isinstance(value, (_python_bool, np.bool_)):
        return bool
    if isinstance(value, (_python_int, np.integer)):
        return int64
    if isinstance(value, (_python_float, np.floating)):
        return _default
    raise TypeError(f"expected a number, got {type(value).__name__}")


def check_fits(value: Any, kind: dtype) -> None:
    """Refuse a number that a dtype cannot hold: one without sign takes -1 as its largest, a float infinity.

    Raises:
        RuntimeError: with PyTorch's text.
    """
    if kind.kind not in "iuf" or not isinstance(value, numbers.Real):
        return
    number: Any = value  # a Real has no order, says mypy
    lowest, largest = _limits(kind)
    if kind.kind == "u" and isinstance(value, numbers.Integral):
        lowest = -largest
    if lowest <= number <= largest or (kind.is_floating_point and not math.isfinite(number)):
        return
    name = kind.row.c if kind.is_floating_point or kind is int32 else f"{kind.name}_t"
    raise RuntimeError(f"value cannot be converted to type {name} without overflow")


@functools.cache
def _limits(kind: dtype) -> tuple[Any, Any]:
    """The lowest and the largest number of a dtype."""
    if kind.is_floating_point:
        largest = np.finfo(kind.numpy).max.item()
        return -largest, largest
    whole = np.iinfo(kind.numpy)
    return whole.min, whole.max


def result_of(operands: Iterable[tuple[dtype, builtins.int]]) -> dtype:
    """Promotion over (dtype, rank): tensors before 0-d tensors (rank 0) before numbers (rank -1)."""
    best: list[dtype | None] = [None, None, None]
    for kind, ndim in operands:
        level = 0 if ndim > 0 else 1 if ndim == 0 else 2
        old = best[level]
        best[level] = kind if old is None else promote_types(old, kind)
    result: dtype | None = None
    for kind_or_none in best:
        if kind_or_none is None:
            continue
        if result is None:
            result = kind_or_none
        elif _category[result.kind] < _category[kind_or_none.kind]:
            result = promote_types(result, kind_or_none)
    if result is None:
        raise ValueError("no operand to take a dtype from")
    return result


def result_type(*operands: Any) -> dtype:
    """The dtype of an arithmetic operation on tensors and Python numbers.

    Example:
        >>> adjit.result_type(adjit.tensor([1, 2]), 1.0)
        adjit.float32
    """
    return result_of(
        (o.dtype, o.ndim) if hasattr(o, "_spec") else (of_scalar(o), -1) for o in operands
    )


def can_cast(from_: dtype, to: dtype) -> builtins.bool:
    """True if an in-place operation may write a result of one dtype into another.

    Example:
        >>> adjit.can_cast(adjit.float64, adjit.float32), adjit.can_cast(adjit.float32, adjit.int64)
        (True, False)
    """
    from_ = _a_dtype("can_cast", "from_", 1, from_)
    to = _a_dtype("can_cast", "to", 2, to)
    return _category[from_.kind] <= _category[to.kind]


class _Limits:
    """What `finfo` and `iinfo` share: they are equal if their dtypes are, and show their `_shown`."""

    _shown: ClassVar[tuple[str, ...]]
    dtype: str

    def __eq__(self, other: object) -> builtins.bool:
        return type(other) is type(self) and other.dtype == self.dtype

    def __hash__(self) -> builtins.int:
        return hash(self.dtype)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name):g}" for name in self._shown)
        return f"{type(self).__name__}({shown}, dtype={self.dtype})"


class finfo(_Limits):
    """Limits of a floating-point dtype: `eps`, `max`, `min`, `tiny`, `bits`, `resolution`.

    Example:
        >>> adjit.finfo(adjit.float32).eps
        1.1920928955078125e-07
        >>> adjit.finfo(adjit.float64).bits
        64
    """

    _shown = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")

    def __init__(self, kind: dtype | None = None) -> None:
        kind = _of_python.get(kind, kind) or _default
        kind = _real_parts.get(kind, kind)
        if not kind.is_floating_point:
            raise TypeError(
                f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle "
                f"'{kind!r}'"
            )
        least, self.max = _LIMITS[kind.name]
        self.min = -self.max
        self.bits = 8 * kind.itemsize
        self.dtype = kind.name
        self.eps = 2.0 ** (1 - kind.row.digits)
        self.tiny = self.smallest_normal = 2.0**least
        self.resolution = 10.0 ** -_python_int((kind.row.digits - 1) * math.log10(2))


class iinfo(_Limits):
    """Limits of an integer dtype: `max`, `min`, `bits`.

    Example:
        >>> adjit.iinfo(adjit.int8).max
        127
    """

    _shown = ("min", "max")

    def __init__(self, kind: dtype) -> None:
        kind = _of_python.get(kind, kind)
        if kind.kind not in "iu":
            raise TypeError(
                f"torch.iinfo() requires an integer input type. Use torch.finfo to handle '{kind!r}'"
            )
        info: Any = np.iinfo(kind.numpy)
        self.bits = _python_int(info.bits)
        self.dtype = kind.name
        self.max, self.min = _python_int(info.max), _python_int(info.min)
