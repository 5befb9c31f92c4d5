"""Errors about arguments that are no tensors, truth values or whole numbers where a function takes these.

A call that has failed is looked at again: what goes well pays nothing, or next to nothing. Which parameters are
tensors is read from the annotations: `Tensor`, `Tensor | None`, `Sequence[Tensor]`. Truth values and whole
numbers, `bool` and `int`, are looked at before, once for calls that are remembered: of others nothing would
fail, as all things are true or false and a half can be cut off.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from types import CellType, CodeType, FrameType, FunctionType
from typing import NamedTuple, TypeVar, cast

import numpy as np

from ..shapes import NO_DIM, is_int
from .elementwise_record import PYTORCH_NAMES
from .record import is_of_pytorch, is_tensor, no_tensor, type_name
from .signature import Argument, Arguments, NamedArguments
from .trace import Results

Function = Callable[..., Results]
_F = TypeVar("_F", bound=Function)
Said = tuple[Results] | None  # by an argument about what a call gives


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


# What PyTorch calls the function behind one that is Python: its errors come from there.
BEHIND = {
    "affine_grid": "affine_grid_generator", "cross_entropy": "cross_entropy_loss",
    "grid_sample": "grid_sampler", "logsigmoid": "log_sigmoid", "nll_loss": "nll_loss_nd",
}  # fmt: skip
KINDS = {"Tensor", "TensorBase", "Sequence[Tensor]"}
NUMBERS = {"float", "Number"}


def _names(code: CodeType) -> tuple[str, ...]:
    """The names of the parameters in their order: those with a position, `*rest`, those without."""
    count, last = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    rest = code.co_varnames[last : last + bool(code.co_flags & inspect.CO_VARARGS)]
    return (*code.co_varnames[:count], *rest, *code.co_varnames[count:last])


def tell(
    function: Function, name: str, args: Arguments, kwargs: NamedArguments, is_method: bool = False
) -> Said:
    """What a call gives that has failed, if an argument that is no tensor says so itself; else raise PyTorch's
    error about the first one where a tensor is taken, if there is such.

    `name` is what users call the function, or the method: there positions begin behind the tensor.
    """
    if any(map(_is_stranger, _each(args, kwargs))):
        return ask(name, args, kwargs, is_method)
    function = inspect.unwrap(function)
    name = name if is_method else BEHIND.get(name, name)
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
    error = sys.exc_info()[1]
    if type(error) is TypeError and str(error).startswith(NO_DIM):
        for place, value in given.items():
            called, kind = names[place], type_name(value)
            if "dim" in called and str(error).endswith(f"not {kind}"):
                wanted = str(function.__annotations__.get(called))
                wanted = "int" if wanted in ("int", "int | None") else "tuple of ints"
                position = place + (not is_method) if place < len(args) else None
                raise no_tensor(name, called, position, value, wanted) from None
    return None


# ----- truth values and whole numbers -----

# What PyTorch looks at in Python alone: there nothing is refused.
TRUTHS = {
    "_stacklevel", "inplace", "recompute_scale_factor", "reduce", "return_indices", "size_average",
    "embedding_bag.include_last_offset", "from_dlpack.copy", "gaussian_nll_loss.full",
    "gumbel_softmax.hard", "interpolate.antialias", "manual_seed.seed", "multi_margin_loss.p",
    "triplet_margin_with_distance_loss.swap",
}  # fmt: skip
UNSET = {"pin_memory", "requires_grad"}  # which may be None too


class Flag(NamedTuple):
    """A parameter that takes a truth value, or a whole number."""

    place: int  # among the parameters
    name: str
    takes_none: bool
    kind: type  # bool or int
    has_place: bool = True  # or it is given by name alone


@functools.cache
def flags(function: Function) -> tuple[Flag, ...]:
    """The parameters of a function that take truth values or whole numbers, and nothing else."""
    function = inspect.unwrap(function)
    if isinstance(function, type) or not hasattr(function, "__code__"):
        return ()
    code, kinds, title = function.__code__, function.__annotations__, function.__name__
    return tuple(
        Flag(
            place,
            name,
            name in UNSET or "None" in kinds[name],
            FLAGS[kinds[name]],
            place < code.co_argcount,
        )
        for place, name in enumerate(_names(code))
        if kinds.get(name) in FLAGS and TRUTHS.isdisjoint((name, f"{title}.{name}"))
    )


FLAGS = {"bool": bool, "bool | None": bool, "int": int, "int | None": int}


def check_flags(
    function: Function, name: str, args: Arguments, kwargs: NamedArguments, is_method: bool = False
) -> None:
    """Refuse what is no truth value, or no whole number, where a function takes one, in PyTorch's words."""
    count = len(args)
    for place, called, takes_none, kind, has_place in flags(function):
        if has_place and place < count:
            value = args[place]
        elif called in kwargs:
            value = kwargs[called]
        else:
            continue
        if value.__class__ is kind or _fits(value, kind) or (value is None and takes_none):
            continue
        position = place + (not is_method) if has_place and place < count else None
        raise no_tensor(name, called, position, value, kind.__name__) from None


def _fits(value: Argument, kind: type) -> bool:
    """Whether what is no Python number of a class stands for one."""
    if is_tensor(value):
        return kind is int and is_int(value) and not value._spec.dtype.is_floating_point
    if hasattr(type(value), "__torch_function__"):
        return True
    return kind is int and is_int(value)


# ----- elements of lists, and operands -----


def tell_operands(
    names: Sequence[str], name: str, operands: Arguments, kwargs: NamedArguments,
    is_method: bool = False, *, tensors_only: Sequence[int] = (),
) -> Said:  # fmt: skip
    """`tell` for an elementwise function, which takes numbers too, but for some operands."""
    if any(map(_is_stranger, operands)):
        return ask(name, operands, kwargs, is_method)
    check_operands(names, name, operands, is_method, tensors_only=tensors_only)
    return None


def tell_scaled(name: str, input: Argument, other: Argument, alpha: Argument) -> Said:
    """`tell` for a sum of `input` and `alpha` times `other`."""
    kwargs = {} if alpha.__class__ is int and alpha == 1 else {"alpha": alpha}
    return tell_operands(("input", "other"), name, (input, other), kwargs)


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
    names: Sequence[str], name: str, operands: Arguments, is_method: bool = False, *,
    tensors_only: Sequence[int] = (),
) -> None:  # fmt: skip
    """Refuse the first operand of an elementwise function that is neither a tensor nor a number, which some
    may not be."""
    for place, (operand, value) in enumerate(zip(names, operands, strict=False)):
        if not _is_like_tensor(value) and (place in tensors_only or not _is_number(value)):
            called = PYTORCH_NAMES.get(operand, operand)
            raise no_tensor(name, called, place + (not is_method), value) from None


def _is_like_tensor(value: Argument) -> bool:
    kind = type(value)
    return is_tensor(value) or (hasattr(kind, "__torch_function__") and not is_of_pytorch(kind))


def _is_number(value: Argument) -> bool:
    return isinstance(value, (int, float, np.generic))


# ----- what says itself what functions do with it -----

# What calls a function, or a method of tensors, again for arguments with a `__torch_function__` that are no
# tensors; it gives None where they were asked already.
strangers: list[Callable[[str, Arguments, NamedArguments, bool], Said]] = []
_LIBRARY = __name__.partition(".")[0]
_RECORDING = tuple(f"{_LIBRARY}.{room}" for room in ("graph.", "schedule.", "names"))


def _is_stranger(value: Argument) -> bool:
    kind = type(value)
    return hasattr(kind, "__torch_function__") and not is_tensor(value) and not is_of_pytorch(kind)


def _each(args: Arguments, kwargs: NamedArguments) -> Iterator[Argument]:
    for value in (*args, *kwargs.values()):
        yield from value if isinstance(value, (tuple, list)) else (value,)


def ask(name: str, args: Arguments, kwargs: NamedArguments, is_method: bool) -> Said:
    """What an argument says that a call gives which has failed, if a program called. If a function of the
    library did, it is that one which is asked about."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        home = str(frame.f_globals.get("__name__"))
        if home.partition(".")[0] != _LIBRARY:
            break
        if not home.startswith(_RECORDING) and frame.f_code.co_name != name:
            return None
        frame = frame.f_back
    return strangers[-1](name, args, kwargs, is_method) if strangers else None


def declined(name: str, tensor: Argument, other: Argument) -> Results:
    """What an operator gives for an operand that it does not take: what that says itself, or NotImplemented."""
    if not strangers or not _is_stranger(other):
        return NotImplemented
    said = strangers[-1](name, (tensor, other), {}, True)
    return said[0] if said else NotImplemented


# ----- functions that tell -----

explained: dict[Function, Function] = {}  # what is called by each


def explaining(function: _F, name: str, *, is_method: bool = False) -> _F:
    """`function`, with the same parameters and errors that tell which argument is no tensor, or no truth value.

    A function that takes its arguments as `*args` would cost 80 ns a call, this one 18.
    """
    if not inspect.isfunction(function):
        return function
    code = function.__code__
    count, last = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    own = code.co_varnames[:last]
    asked = tuple(
        (own.index(f.name), f.takes_none, f.kind.__name__) for f in flags(function) if f.name in own
    )
    takes_tensors = parameters(inspect.unwrap(function))
    if not asked and not any(taken.place or not is_method for taken in takes_tensors):
        return function
    rest, more = code.co_flags & inspect.CO_VARARGS, code.co_flags & inspect.CO_VARKEYWORDS
    plain = _code(count, code.co_varnames[count:last], bool(rest), bool(more), asked)

    def explain(args: Arguments, kwargs: NamedArguments) -> Said:
        return tell(function, name, *_without_defaults(function, args, kwargs), is_method)

    def check(args: Arguments, kwargs: NamedArguments) -> None:
        check_flags(function, name, args, kwargs, is_method)

    found = {"check": check, "explain": explain, "function": function}
    names = (*code.co_varnames[:count], *plain.co_varnames[count:])
    made = FunctionType(
        plain.replace(co_varnames=names, co_name=code.co_name),
        globals(),
        code.co_name,
        function.__defaults__,
        tuple([CellType(found[name]) for name in plain.co_freevars]),
    )
    made.__kwdefaults__ = function.__kwdefaults__
    explained[made] = function
    return cast(_F, functools.update_wrapper(made, function))


def _without_defaults(
    function: Function, args: Arguments, kwargs: NamedArguments
) -> tuple[Arguments, NamedArguments]:
    """The arguments of a call, without those that are what they are by default."""
    code = function.__code__
    defaults = function.__defaults__ or ()
    first = code.co_argcount - len(defaults)
    by_name = function.__kwdefaults__ or {}
    named = {
        key: value
        for key, value in kwargs.items()
        if key not in by_name or value is not by_name[key]
    }
    if len(args) > code.co_argcount:  # `*rest`
        return args, named
    given = [k for k in range(len(args)) if k < first or args[k] is not defaults[k - first]]
    count = next((k for k, place in enumerate(given) if k != place), len(given))
    later = {code.co_varnames[place]: args[place] for place in given[count:]}
    return args[:count], later | named


@functools.cache
def _code(
    count: int,
    by_name: tuple[str, ...],
    rest: bool,
    more: bool,
    asked: tuple[tuple[int, bool, str], ...],
) -> CodeType:
    """The code of a function around another one with such parameters, of which `count` have other names;
    those at the places in `asked` are truth values, or may be None too."""
    first = [f"p{k}" for k in range(count)]
    args = ", ".join([*first, *["*rest"] * rest])
    kwargs = ", ".join([*[f"{name}={name}" for name in by_name], *["**more"] * more])
    star = ["*rest"] if rest else ["*"] if by_name else []
    given = f"({args}{',' if args else ''}), dict({kwargs})"
    is_other = []
    for place, takes_none, kind in asked:
        value = [*first, *by_name][place]
        is_none = f" and {value} is not None" * takes_none
        is_other.append(f"{value}.__class__ is not {kind}{is_none}")
    check = f"if {' or '.join(is_other)}: check({given})" if is_other else ""
    text = f"""
def made(check, explain, function):
    def call({", ".join([*first, *star, *by_name, *["**more"] * more])}):
        {check}
        try:
            return function({", ".join(filter(None, (args, kwargs)))})
        except Exception:
            if said := explain({given}):
                return said[0]
            raise
"""
    code = compile(text, __file__, "exec")
    for _ in range(2):  # of the module, of `made`, of `call`
        code = next(c for c in code.co_consts if isinstance(c, CodeType))
    return code
