"""Numbers that are not known yet: what is computed of them is written down, and what is decided by them.

What recording makes of sizes (shapes, strides, the words of kernels) follows from them by arithmetic and
comparisons, in the Python of hundreds of ops. An `Inquiry` lets that Python run once on an `UnknownNumber` in
the place of each size, which has the value of an example and goes where an int goes. What is computed of it
is a line of Python in the inquiry, a comparison a condition there. All else that looks at its value (an
index, a key of a dict, a part of a text) makes that value a condition. So what the lines give holds for all
numbers that meet the conditions, whichever code ran: what does not go on with an unknown number only narrows
them.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Hashable, Mapping
from threading import get_ident
from typing import Any, Generic, TypeVar

Number = int | float

_R = TypeVar("_R")

inquiries: list[Inquiry] = []  # that are being made, as a rule none: of all threads


class Inquiry:
    """What is computed of unknown numbers, and which conditions these meet, as lines of Python."""

    __slots__ = ("_made", "_shared", "functions", "is_over", "lines", "thread")

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.functions: dict[str, Callable[..., Any]] = {}  # that the lines call, by their names
        self.thread = get_ident()
        self.is_over = False
        self._made: dict[str, UnknownNumber] = {}  # by the text of what was computed
        self._shared: dict[Hashable, Any] = {}

    def __enter__(self) -> Inquiry:
        inquiries.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        self.is_over = True
        inquiries.remove(self)

    def number(self, name: str, value: Any) -> Any:
        """An unknown number that the lines know by a name: it goes where that of the example goes."""
        return UnknownNumber(self, name, value)

    def computed(self, text: str, value: Number) -> Any:
        """What an expression gives, which in the example is `value`."""
        self._check()
        found = self._made.get(text)
        if found is None:
            name = f"t{len(self._made)}"
            self.lines.append(f"{name} = {text}")
            found = self._made[text] = UnknownNumber(self, name, value)
        return found

    def require(self, condition: str) -> None:
        """Hold only for numbers that meet a condition."""
        self._check()
        line = f"if not {condition}: return None"
        if line not in self._made:
            self._made[line] = UnknownNumber(self, "", 0)
            self.lines.append(line)

    def fixes(self, values: Mapping[str, Number]) -> bool:
        """Whether the conditions leave one of the numbers with these names no other value than this."""
        return any(
            f"if not ({name} == {value!r}): return None" in self._made
            for name, value in values.items()
        )

    def _check(self) -> None:
        if self.is_foreign():
            raise RuntimeError("an unknown number has outlived its inquiry")

    def is_foreign(self) -> bool:
        """Whether others meet its numbers: another thread, or somebody later, in the key of a cache."""
        return self.is_over or self.thread != get_ident()

    def named(self, function: Callable[..., Any]) -> str:
        """The name by which the lines may call a function."""
        name = f"f{id(function)}"
        self.functions[name] = function
        return name

    def shared(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What was made for a key before, as caches elsewhere have it."""
        found = self._shared.get(key)
        if found is None:
            found = self._shared[key] = make()
        return found


def current() -> Inquiry | None:
    """The inquiry that this thread is making."""
    if not inquiries:
        return None
    return next((one for one in inquiries if one.thread == get_ident()), None)


def is_unknown(value: object) -> bool:
    """Whether a number is unknown."""
    return type(value) is UnknownNumber


def text_of(value: Any) -> str:
    """A number as lines of Python have it."""
    return str(value._name) if is_unknown(value) else repr(value)


def through(function: Callable[[Any], int], value: Any) -> int:
    """What a function gives for a number; of an unknown one it is computed later."""
    if not is_unknown(value):
        return function(value)
    inquiry, result = value._inquiry, function(value._value)
    found: int = inquiry.computed(f"{inquiry.named(function)}({value._name})", result)
    return found


def whole(value: Any) -> int:
    """`int(value)`; an unknown one stays so."""
    return value if value.__class__ is int else int(value)


def bounds_of(cut: slice, size: int) -> tuple[int, int, int]:
    """`cut.indices(size)`, for steps that are positive where a number is unknown."""
    given = cut.start, cut.stop, cut.step
    if not any(map(is_unknown, (size, *given))):
        return cut.indices(size)
    step = 1 if cut.step is None else cut.step
    if step < 1:
        raise ValueError("of unknown numbers only steps forward are known")
    start, stop = (
        default if bound is None else max(bound + size, 0) if bound < 0 else min(bound, size)
        for bound, default in ((cut.start, 0), (cut.stop, size))
    )
    return start, stop, step


class Cached(Generic[_R]):
    """`functools.lru_cache` around a function of sizes, which keeps nothing of unknown ones."""

    def __init__(self, function: Callable[..., _R], most: int) -> None:
        functools.update_wrapper(self, function)
        self.__wrapped__ = function
        self._known = functools.lru_cache(most)(function)
        self.cache_clear = self._known.cache_clear

    def __call__(self, *args: Any, **kwargs: Any) -> _R:
        return (self.__wrapped__ if inquiries else self._known)(*args, **kwargs)


def cached(most: int) -> Callable[[Callable[..., _R]], Cached[_R]]:
    """A decorator: so many results of a function of sizes are kept."""
    return lambda function: Cached(function, most)


# Operations that not all numbers on their right go with.
_OF_MOST = {"//", "%", "/", "**", "<<", ">>"}


class UnknownNumber:
    """A number that is not known: in the example of its inquiry it has a value."""

    __slots__ = ("_inquiry", "_name", "_value")

    def __init__(self, inquiry: Inquiry, name: str, value: Number) -> None:
        self._inquiry, self._name, self._value = inquiry, name, value

    @property
    def __class__(self) -> type:  # code that asks goes the way of the number that it will be
        return type(self._value)

    @__class__.setter
    def __class__(self, _: type) -> None:
        raise TypeError("an unknown number has the class of its value")

    def _fixed(self) -> Number:
        """Its value, which is a condition from now on."""
        self._inquiry.require(f"({self._name} == {self._value!r})")
        return self._value

    def _is_of_another_inquiry(self, other: Any) -> bool:
        """Whether one of two numbers, this and another one, is met outside of its inquiry."""
        is_other = is_unknown(other) and other._inquiry is not self._inquiry
        return is_other or self._inquiry.is_foreign()

    def _with(
        self, symbol: str, function: Callable[[Any, Any], Any], other: Any, turned: bool = False
    ) -> Any:
        """The result of an operation with another number, which stands in front of it if it is `turned`."""
        if other.__class__ not in (int, float):
            return NotImplemented
        if self._is_of_another_inquiry(other):
            raise RuntimeError("an unknown number has outlived its inquiry")
        pair: tuple[Any, Any] = (other, self) if turned else (self, other)
        first, second = pair
        try:
            found = function(_value_of(first), _value_of(second))
        except (ArithmeticError, ValueError):  # somebody may go another way then
            for number in filter(is_unknown, pair):
                number._fixed()
            raise
        if symbol in _OF_MOST and is_unknown(second):
            _ = second > 0 or second < 0  # what would be an error, or a float, for others
        return self._inquiry.computed(f"{text_of(first)} {symbol} {text_of(second)}", found)

    def _compared(self, symbol: str, function: Callable[[Any, Any], bool], other: Any) -> bool:
        """How it compares with another number, which is a condition from now on."""
        if other.__class__ not in (int, float, bool):
            return NotImplemented
        if self._is_of_another_inquiry(other):
            if symbol not in ("==", "!="):
                raise RuntimeError("an unknown number has outlived its inquiry")
            return symbol == "!="  # in the key of a cache, say
        found = function(self._value, _value_of(other))
        if text_of(other) != self._name:
            condition = f"{self._name} {symbol} {text_of(other)}"
            self._inquiry.require(f"({condition})" if found else f"(not {condition})")
        return found

    def __eq__(self, other: object) -> bool:
        return self._compared("==", operator.eq, other)

    def __ne__(self, other: object) -> bool:
        return self._compared("!=", operator.ne, other)

    def __lt__(self, other: Any) -> bool:
        return self._compared("<", operator.lt, other)

    def __le__(self, other: Any) -> bool:
        return self._compared("<=", operator.le, other)

    def __gt__(self, other: Any) -> bool:
        return self._compared(">", operator.gt, other)

    def __ge__(self, other: Any) -> bool:
        return self._compared(">=", operator.ge, other)

    def __bool__(self) -> bool:
        return not self <= 0 or self < 0

    def __hash__(self) -> int:
        return id(self) if self._inquiry.is_foreign() else hash(self._fixed())

    def __index__(self) -> int:
        return int(self._fixed())

    __int__ = __index__

    def __float__(self) -> float:
        return float(self._fixed())

    def __repr__(self) -> str:
        return repr(self._fixed())

    def __format__(self, how: str) -> str:
        return format(self._fixed(), how)

    def __neg__(self) -> UnknownNumber:
        return self._inquiry.computed(f"-{self._name}", -self._value)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def bit_length(self) -> UnknownNumber:
        """How many bits the number takes."""
        assert isinstance(self._value, int)
        return self._inquiry.computed(f"{self._name}.bit_length()", self._value.bit_length())


def _value_of(number: Any) -> Any:
    return number._value if is_unknown(number) else number


def _operation(symbol: str, name: str, neutral: int | None, turned: bool) -> Any:
    """An operation of unknown numbers; with the neutral number a whole one stays itself."""
    function = getattr(operator, f"__{name}__")

    def operate(self: UnknownNumber, other: Any) -> Any:
        if type(other) is int and other == neutral and type(self._value) is int:
            return self
        return self._with(symbol, function, other, turned)

    return operate


# By their names the symbols, and the neutral number on the right, and on the left.
for _name, (_symbol, *_neutral) in {
    "add": ("+", 0, 0), "sub": ("-", 0, None), "mul": ("*", 1, 1), "floordiv": ("//", 1, None),
    "mod": ("%", None, None), "truediv": ("/", None, None), "pow": ("**", None, None),
    "lshift": ("<<", 0, None), "rshift": (">>", 0, None), "and": ("&", None, None), "or": ("|", 0, 0),
    "xor": ("^", 0, 0),
}.items():  # fmt: skip
    setattr(UnknownNumber, f"__{_name}__", _operation(_symbol, _name, _neutral[0], turned=False))
    setattr(UnknownNumber, f"__r{_name}__", _operation(_symbol, _name, _neutral[1], turned=True))
