"""Comparing values within tolerances, and random tensors for tests: PyTorch's `torch.testing`."""

from __future__ import annotations

import cmath
import contextlib
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import dtypes
from .dtypes import dtype as Dtype
from .ops import creation
from .ops.comparison import isclose
from .ops.random import rand, randint
from .tensor import Tensor

__all__ = ["assert_allclose", "assert_close", "make_tensor"]

Message = str | Callable[[str], str] | None

# By the binary digits of a dtype.
TOLERANCES = {11: (1e-3, 1e-5), 8: (1.6e-2, 1e-5), 24: (1.3e-6, 1e-5), 53: (1e-7, 1e-7)}
_OLD_TOLERANCES = {11: (1e-3, 1e-3), 24: (1e-4, 1e-5), 53: (1e-5, 1e-8)}


class Difference(Exception):
    """What is wrong with a pair of values: the type and the text of an error, and the way to the pair."""

    def __init__(self, kind: type[Exception], text: str, where: tuple[Any, ...] = ()) -> None:
        super().__init__(text)
        self.kind, self.text, self.where = kind, text, where

    def error(self, msg: Message) -> Exception:
        """The error for a user, whose message it may be, or become."""
        if isinstance(msg, str):
            return self.kind(msg)
        text = self.text
        if self.where:
            way = "".join([f"[{part!r}]" for part in self.where])
            text += f"\n\nThe failure occurred for item {way}"
        return self.kind(text if msg is None else msg(text))


class Comparison(NamedTuple):
    """How two values are compared."""

    allow_subclasses: bool
    rtol: float | None
    atol: float | None
    equal_nan: bool
    check_device: bool
    check_dtype: bool
    check_layout: bool
    check_stride: bool

    def pairs(self, actual: Any, expected: Any, where: tuple[Any, ...]) -> list[Callable[[], None]]:
        """What compares the parts of two values, each part with its counterpart."""
        both = actual, expected
        if all(isinstance(v, Sequence) and not isinstance(v, str) for v in both):
            if len(actual) != len(expected):
                text = f"The length of the sequences mismatch: {len(actual)} != {len(expected)}"
                raise Difference(AssertionError, text, where)
            keys: Any = range(len(actual))
        elif all(isinstance(v, Mapping) for v in both):
            keys = set(actual)
            if keys != set(expected):
                raise Difference(
                    AssertionError,
                    "The keys of the mappings do not match:\n"
                    f"Missing keys in the actual mapping: {sorted(set(expected) - keys)}\n"
                    f"Additional keys in the actual mapping: {sorted(keys - set(expected))}",
                    where,
                )
            with contextlib.suppress(TypeError):
                keys = sorted(keys)
        else:
            return [self._pair(actual, expected, where)]
        return [c for key in keys for c in self.pairs(actual[key], expected[key], (*where, key))]

    def _pair(self, actual: Any, expected: Any, where: tuple[Any, ...]) -> Callable[[], None]:
        both = actual, expected
        if actual is None or expected is None:
            return lambda: _same(
                actual is expected, f"None mismatch: {actual} is not {expected}", where
            )
        if all(isinstance(v, (bool, np.bool_)) for v in both):
            text = f"Booleans mismatch: {bool(actual)} is not {bool(expected)}"
            return lambda: _same(bool(actual) is bool(expected), text, where)
        if all(isinstance(v, (int, float, complex, np.number)) for v in both):
            a, b = (v.item() if isinstance(v, np.number) else v for v in both)
            kinds = [dtypes.by_name(np.dtype(type(v)).name) for v in (a, b)]
            limits = self._tolerances(kinds, where)
            return lambda: self._compare_numbers(a, b, *limits, where)
        related = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
        if related and (self.allow_subclasses or type(actual) is type(expected)):
            with contextlib.suppress(Exception):
                a, b = creation.as_tensor(actual), creation.as_tensor(expected)
                return lambda: self._compare_tensors(a, b, where)
        raise Difference(
            TypeError,
            f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}.",
            where,
        )

    def _tolerances(self, kinds: Sequence[Dtype], where: tuple[Any, ...]) -> tuple[float, float]:
        if (self.rtol is None) != (self.atol is None):
            lacking = "rtol" if self.rtol is None else "atol"
            raise Difference(
                ValueError,
                f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {lacking}.",
                where,
            )
        if self.rtol is not None and self.atol is not None:
            return self.rtol, self.atol
        found = [TOLERANCES.get(kind.row.digits, (0.0, 0.0)) for kind in kinds]
        return max(rtol for rtol, _ in found), max(atol for _, atol in found)

    def _compare_numbers(
        self, actual: Any, expected: Any, rtol: float, atol: float, where: tuple[Any, ...]
    ) -> None:
        if self.check_dtype and type(actual) is not type(expected):
            text = f"The (d)types do not match: {type(actual)} != {type(expected)}."
            raise Difference(AssertionError, text, where)
        if actual == expected:
            return
        if self.equal_nan and cmath.isnan(actual) and cmath.isnan(expected):
            return
        difference = abs(actual - expected)
        if not (cmath.isfinite(difference) and difference <= atol + rtol * abs(expected)):
            raise Difference(AssertionError, _of_scalars(actual, expected, rtol, atol), where)

    def _compare_tensors(self, actual: Tensor, expected: Tensor, where: tuple[Any, ...]) -> None:
        rtol, atol = self._tolerances([actual.dtype, expected.dtype], where)
        looked_at = {"shape": True, "layout": self.check_layout, "stride()": self.check_stride,
                     "device": self.check_device, "dtype": self.check_dtype}  # fmt: skip
        for name, wanted in looked_at.items():
            a, b = (
                t.stride() if name == "stride()" else getattr(t, name) for t in (actual, expected)
            )
            if wanted and a != b:
                text = f"The values for attribute '{name}' do not match: {a} != {b}."
                raise Difference(AssertionError, text, where)
        a, b = actual.detach(), expected.detach()
        if a.device != b.device:
            a, b = a.cpu(), b.cpu()
        kind = dtypes.promote_types(a.dtype, b.dtype)
        a, b = a.to(kind), b.to(kind)
        matches = isclose(a, b, rtol=rtol, atol=atol, equal_nan=self.equal_nan)
        if matches.all():
            return
        if not a.ndim:
            text = _of_scalars(a.item(), b.item(), rtol, atol)
        else:
            text = _of_tensors(a, b, matches, rtol, atol)
        raise Difference(AssertionError, text, where)


def _same(is_same: bool, text: str, where: tuple[Any, ...]) -> None:
    if not is_same:
        raise Difference(AssertionError, text, where)


def _of_scalars(actual: Any, expected: Any, rtol: float, atol: float) -> str:
    difference = abs(actual - expected)
    relative = math.inf if expected == 0 else difference / abs(expected)
    head = f"Expected {expected} but got {actual}."
    return _text("Scalars", head, [(difference, atol, None), (relative, rtol, None)])


def _of_tensors(actual: Tensor, expected: Tensor, matches: Tensor, rtol: float, atol: float) -> str:
    wrong, count = matches.numel() - int(matches.sum()), matches.numel()
    a, b, right = (t.flatten() for t in (actual, expected, matches))
    if not a.dtype.is_floating_point:
        a, b = a.to(dtypes.int64), b.to(dtypes.int64)
    absolute = (a - b).abs().masked_fill(right, 0)
    relative = (absolute / b.abs()).masked_fill(right, 0)
    found = []
    for differences, tolerance in ((absolute, atol), (relative, rtol)):
        value, place = differences.max(0)
        index = tuple(map(int, np.unravel_index(int(place), actual.shape)))
        found.append((value.item(), tolerance, index))
    return _text(
        "Tensor-likes", f"Mismatched elements: {wrong} / {count} ({wrong / count:.1%})", found
    )


def _text(what: str, head: str, found: Sequence[tuple[Any, float, Any]]) -> str:
    """The message about differences: absolute and relative, each with what is allowed and where it is."""
    exact = not any(tolerance for _, tolerance, _ in found)
    lines = [f"{what} are not {'equal' if exact else 'close'}!", "", head]
    for kind, (value, tolerance, index) in zip(("absolute", "relative"), found, strict=True):
        line = f"{kind.title()} difference: {value}"
        if index is not None:
            line = f"Greatest {kind} difference: {value} at index {index}"
        lines.append(line if exact else f"{line} (up to {tolerance} allowed)")
    return "\n".join(lines)


def assert_close(
    actual: Any, expected: Any, *, allow_subclasses: bool = True, rtol: float | None = None,
    atol: float | None = None, equal_nan: bool = False, check_device: bool = True, check_dtype: bool = True,
    check_layout: bool = True, check_stride: bool = False, msg: Message = None,
) -> None:  # fmt: skip
    """Raise an error unless two values are close: `|actual - expected| <= atol + rtol * |expected|`.

    Args:
        actual: a tensor, a number, a bool, None, what `as_tensor` takes, or a sequence or mapping of such.
        expected: one of the same kind.
        allow_subclasses: whether one may be of a subclass of the class of the other.
        rtol: the relative tolerance; by default 1.3e-6 for float32, 1e-7 for float64, 0 for whole numbers.
        atol: the absolute tolerance; by default 1e-5 for float32, 1e-7 for float64, 0 for whole numbers.
        equal_nan: whether NaN equals NaN.
        check_device: whether the devices have to be the same; so have the dtypes, layouts and strides by
            `check_dtype`, `check_layout` and `check_stride`.
        msg: the text of the error, or a function that makes it of the usual one.

    Raises:
        AssertionError: if they are not close, or not alike.
        TypeError: if they cannot be compared.
        ValueError: if one of `rtol` and `atol` is given alone.

    Example:
        >>> adjit.testing.assert_close(adjit.tensor([1., 2.]), adjit.tensor([1., 2.000001]))
        >>> adjit.testing.assert_close(1.0, 1.5, rtol=0, atol=0)
        Traceback (most recent call last):
            ...
        AssertionError: Scalars are not equal!
        <BLANKLINE>
        Expected 1.5 but got 1.0.
        Absolute difference: 0.5
        Relative difference: 0.3333333333333333
    """
    __tracebackhide__ = True
    how = Comparison(
        allow_subclasses,
        rtol,
        atol,
        equal_nan,
        check_device,
        check_dtype,
        check_layout,
        check_stride,
    )
    try:
        for compare in how.pairs(actual, expected, ()):
            compare()
    except Difference as found:
        raise found.error(msg) from None


def assert_allclose(
    actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None,
    equal_nan: bool = True, msg: str = "",
) -> None:  # fmt: skip
    """Call `assert_close` on what is made tensors, whatever their devices and dtypes; an old name, which warns.

    Example:
        >>> adjit.testing.assert_allclose(adjit.tensor([1., 2.]), [1, 2])
    """
    warnings.warn(
        "`torch.testing.assert_allclose()` is deprecated since 1.12 and will be removed in a future release. "
        "Please use `torch.testing.assert_close()` instead. You can find detailed upgrade instructions in "
        "https://github.com/pytorch/pytorch/issues/61844.",
        FutureWarning,
        stacklevel=2,
    )
    a = creation.as_tensor(actual)
    b = creation.as_tensor(expected, dtype=None if isinstance(expected, Tensor) else a.dtype)
    if rtol is None and atol is None:
        pairs = [_OLD_TOLERANCES.get(t.dtype.row.digits, (0.0, 0.0)) for t in (a, b)]
        rtol, atol = max(pair[0] for pair in pairs), max(pair[1] for pair in pairs)
    assert_close(
        a, b, rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=True, check_dtype=False,
        check_stride=False, msg=msg or None,
    )  # fmt: skip


def make_tensor(
    *shape: Any, dtype: Dtype, device: Any, low: float | None = None, high: float | None = None,
    requires_grad: bool = False, noncontiguous: bool = False, exclude_zero: bool = False,
    memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Draw a tensor of any dtype evenly from [low, high).

    Args:
        shape: the sizes, or one sequence of them.
        low: the least number: -9, or 0 for bools and bytes; what the dtype cannot hold is cut off.
        high: the numbers are below: 9 for floating dtypes, 10 for whole numbers, 2 for bools.
        noncontiguous: whether every second element of a larger memory is to be shown.
        exclude_zero: put the least positive normal number, or 1, in the place of zeros.
        memory_format: the order of the axes in memory.

    Raises:
        ValueError: if there is no number in the range, or gradients are asked for whole numbers.

    Example:
        >>> x = adjit.testing.make_tensor(2, 3, dtype=adjit.float32, device="cpu", low=0, high=1)
        >>> x.shape, bool(((x >= 0) & (x < 1)).all())
        (adjit.Size([2, 3]), True)
    """
    if len(shape) == 1 and isinstance(shape[0], Sequence):
        shape = tuple(shape[0])
    if noncontiguous and memory_format is not None:
        raise ValueError(
            "The parameters `noncontiguous` and `memory_format` are mutually exclusive, but got "
            f"{noncontiguous=} and {memory_format=}"
        )
    kind = dtypes.check(dtype)
    if requires_grad and not kind.is_floating_point:
        raise ValueError(
            "`requires_grad=True` is not supported for boolean and integral dtypes, but got "
            f"{dtype=}"
        )
    apart = noncontiguous and math.prod(shape) > 1
    sizes = (*shape[:-1], 2 * shape[-1]) if apart else shape
    least, most = _range(kind, low, high)
    if kind.is_floating_point:
        made = rand(sizes, dtype=kind, device=device) * (most - least) + least
        made = made.clamp(max=np.nextafter(kind.numpy.type(most), kind.numpy.type(least)).item())
    else:
        made = randint(math.ceil(least), math.ceil(most), sizes, dtype=kind, device=device)
    if apart:
        made = made[..., ::2]
    elif memory_format is not None:
        made = made.clone(memory_format=memory_format)
    if exclude_zero:
        made[made == 0] = dtypes.finfo(kind).tiny if kind.is_floating_point else 1
    return made.requires_grad_() if requires_grad else made


def _range(kind: Dtype, low: float | None, high: float | None) -> tuple[float, float]:
    """From where to where numbers of a dtype are drawn."""
    if kind.is_floating_point:
        limits, usual = (dtypes.finfo(kind).min, dtypes.finfo(kind).max), (-9, 9)
    elif kind is dtypes.bool:
        limits, usual = (0, 2), (0, 2)
    else:
        info = dtypes.iinfo(kind)
        limits, usual = (info.min, info.max + (kind is not dtypes.int64)), (-9, 10)
    low, high = usual[0] if low is None else low, usual[1] if high is None else high
    if math.isnan(low) or math.isnan(high):
        raise ValueError(f"`low` and `high` cannot be NaN, but got {low=} and {high=}")
    if low == high and kind.is_floating_point:
        warnings.warn(
            "Passing `low==high` to `torch.testing.make_tensor` for floating or complex types is deprecated "
            "since 2.1 and will be removed in 2.3. Use `torch.full(...)` instead.",
            FutureWarning,
            stacklevel=3,
        )
    elif low >= high:
        raise ValueError(f"`low` must be less than `high`, but got {low} >= {high}")
    elif high < limits[0] or low >= limits[1]:
        raise ValueError(
            f"The value interval specified by `low` and `high` is [{low}, {high}), but {kind} only "
            f"supports [{limits[0]}, {limits[1]})"
        )
    return min(max(low, limits[0]), limits[1]), min(max(high, limits[0]), limits[1])
