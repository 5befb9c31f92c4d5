"""Errors about arguments that are no tensors where a function takes tensors.

A call that has failed is looked at again: what goes well pays nothing, or next to nothing. Which parameters are
tensors is read from the annotations: `Tensor`, `Tensor | None`, `Sequence[Tensor]`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from types import CellType, CodeType, FunctionType
from typing import NamedTuple, TypeVar, cast

import numpy as np

from .elementwise_record import PYTORCH_NAMES
from .record import is_tensor, no_tensor, type_name
from .signature import Argument, Arguments, NamedArguments
from .trace import Results

Function = Callable[..., Results]
_F = TypeVar("_F", bound=Function)


class Taken(NamedTuple):
    """A parameter that takes tensors."""

    place: int  # among the parameters
    name: str
    takes_none: bool
    takes_number: bool
    takes_several: bool  # in a list, or as all the rest of the arguments


@functools.cache
def parameters(function: Function) -> tuple[Taken, ...]:
    """The parameters of a function that take tensors and nothing else."""
    code, found = function.__code__, []
    rest = code.co_flags & inspect.CO_VARARGS
    for place, name in enumerate(_names(code)):
        kind, *others = str(function.__annotations__.get(name, "")).split(" | ")
        is_rest = bool(rest) and place == code.co_argcount
        if (
            name != "out"
            and kind in KINDS
            and set(others) <= {"None", "Sequence[Tensor]", *NUMBERS}
        ):
            several = is_rest or kind == "Sequence[Tensor]"
            takes_number = not NUMBERS.isdisjoint(others)
            called = "input" if name == "self" else name
            found.append(Taken(place, called, "None" in others, takes_number, several))
    return tuple(found)


KINDS = {"Tensor", "TensorBase", "Sequence[Tensor]"}
NUMBERS = {"float", "Number"}


def _names(code: CodeType) -> tuple[str, ...]:
    """The names of the parameters in their order: those with a position, `*rest`, those without."""
    count, last = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    rest = code.co_varnames[last : last + bool(code.co_flags & inspect.CO_VARARGS)]
    return (*code.co_varnames[:count], *rest, *code.co_varnames[count:last])


def tell(
    function: Function, name: str, args: Arguments, kwargs: NamedArguments, is_method: bool = False
) -> None:
    """Raise PyTorch's error about the first argument that is no tensor where one is taken, if there is such.

    `name` is what users call the function, or the method: there positions begin behind the tensor.
    """
    function = inspect.unwrap(function)
    code = function.__code__
    names, count = _names(code), code.co_argcount
    given: dict[int, Argument] = dict(enumerate(args[:count]))
    if code.co_flags & inspect.CO_VARARGS:
        given[count] = args[count:]
    given.update({names.index(key): value for key, value in kwargs.items() if key in names})
    for taken in parameters(function):
        value = given.get(taken.place)
        if value is None and (taken.takes_none or taken.place not in given):
            continue
        if taken.takes_number and _is_number(value):
            continue
        if taken.takes_several and isinstance(value, (tuple, list)):
            check_all(taken.place - is_method, value)
        elif taken.takes_several or not _is_like_tensor(value):
            position = taken.place + (not is_method) if taken.place < len(args) else None
            wanted = "tuple of Tensors" if taken.takes_several else "Tensor"
            raise no_tensor(name, taken.name, position, value, wanted) from None


def check_all(place: int, values: Sequence[Argument]) -> None:
    """Refuse what is no tensor among those that are given in one place, or as the rest of the arguments."""
    if len(values) == 1 and isinstance(values[0], (tuple, list)):
        values = values[0]
    for k, value in enumerate(values):
        if not _is_like_tensor(value):
            raise TypeError(
                f"expected Tensor as element {k} in argument {place}, but got {type_name(value)}"
            ) from None


def check_operands(
    names: Sequence[str], name: str, operands: Arguments, is_method: bool = False
) -> None:
    """Refuse the first operand of an elementwise function that is neither a tensor nor a number."""
    for place, (operand, value) in enumerate(zip(names, operands, strict=False)):
        if not _is_like_tensor(value) and not _is_number(value):
            called = PYTORCH_NAMES.get(operand, operand)
            raise no_tensor(name, called, place + (not is_method), value) from None


def _is_like_tensor(value: Argument) -> bool:
    return is_tensor(value) or hasattr(type(value), "__torch_function__")


def _is_number(value: Argument) -> bool:
    return isinstance(value, (int, float, np.generic))


# ----- functions that tell -----

explained: dict[Function, Function] = {}  # what is called by each


def explaining(function: _F, name: str, *, is_method: bool = False) -> _F:
    """`function`, with the same parameters and errors that tell which argument is no tensor.

    A function that takes its arguments as `*args` would cost 80 ns a call, this one 18.
    """
    if not inspect.isfunction(function) or not any(
        taken.place or not is_method for taken in parameters(inspect.unwrap(function))
    ):
        return function
    code = function.__code__
    count, last = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    rest, more = code.co_flags & inspect.CO_VARARGS, code.co_flags & inspect.CO_VARKEYWORDS
    plain = _code(count, code.co_varnames[count:last], bool(rest), bool(more))

    def explain(args: Arguments, kwargs: NamedArguments) -> None:
        tell(function, name, args, kwargs, is_method)

    names = (*code.co_varnames[:count], *plain.co_varnames[count:])
    made = FunctionType(
        plain.replace(co_varnames=names, co_name=code.co_name),
        globals(),
        code.co_name,
        function.__defaults__,
        (CellType(explain), CellType(function)),
    )
    made.__kwdefaults__ = function.__kwdefaults__
    explained[made] = function
    return cast(_F, functools.update_wrapper(made, function))


@functools.cache
def _code(count: int, by_name: tuple[str, ...], rest: bool, more: bool) -> CodeType:
    """The code of a function around another one with such parameters, of which `count` have other names."""
    first = [f"p{k}" for k in range(count)]
    args = ", ".join([*first, *["*rest"] * rest])
    kwargs = ", ".join([*[f"{name}={name}" for name in by_name], *["**more"] * more])
    star = ["*rest"] if rest else ["*"] if by_name else []
    text = f"""
def made(explain, function):
    def call({", ".join([*first, *star, *by_name, *["**more"] * more])}):
        try:
            return function({", ".join(filter(None, (args, kwargs)))})
        except Exception:
            explain(({args}{"," if args else ""}), dict({kwargs}))
            raise
"""
    code = compile(text, __file__, "exec")
    for _ in range(2):  # of the module, of `made`, of `call`
        code = next(c for c in code.co_consts if isinstance(c, CodeType))
    return code
