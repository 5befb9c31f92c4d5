"""The names of ops: functions in namespaces, methods of tensors, forms that write in place or into `out=`."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, TypeVar, overload

from ..absent import ROOT
from ..schedule.jit import native
from . import calls, inplace
from .elementwise import Choice, Elementwise
from .elementwise_record import PYTORCH_NAMES
from .fastpath import calling, choosing, compiled, computing, writing
from .levels import level_of, tracers
from .node import NewTensor, TensorBase
from .normalized import remembering
from .operation import Operation
from .record import check_tensor
from .signature import Argument, Arguments, NamedArguments
from .trace import Results
from .wrong_types import Said, explaining, tell, tell_operands

Function = Callable[..., Any]  # of what users hand in: an op, or a function around ops

namespace: dict[str, dict[str, object]]
namespace = {"": {}, "nn.functional": {}, "linalg": {}, "special": {}}
methods: dict[str, Function] = {}

_F = TypeVar("_F")


_attach_method: Callable[[str, Function], None] | None = None


def attach_methods(attach: Callable[[str, Function], None]) -> None:
    """Let `attach(name, function)` put methods onto the tensor class, those to come too."""
    global _attach_method
    _attach_method = attach
    for name, function in methods.items():
        attach(name, function)


def add_method(name: str, function: Function) -> None:
    """Make a function a tensor method."""
    methods[name] = _publish(function, "adjit", f"Tensor.{name}")
    if _attach_method is not None:
        _attach_method(name, function)


def _publish(function: _F, module: str, name: str) -> _F:
    """Have pickles find a function where users find it, by the first name that it is given."""
    if isinstance(function, native.Native):
        if not hasattr(function, "public"):
            function.public = module, name
    elif inspect.isfunction(function) and function not in _published:
        function.__module__, function.__qualname__ = module, name
        function.__name__ = name.rpartition(".")[2]
        _published.add(function)
    return function


_published: set[Function] = set()


@overload
def export(function: _F, /) -> _F: ...


@overload
def export(
    function: None = None,
    /,
    *,
    method: bool | str | Sequence[str] = False,
    name: str | Sequence[str] | None = None,
    public: bool = True,
    inplace: bool | str = False,
    out: bool = False,
    namespace: str = "",
    numbers: Sequence[str] = (),
) -> Callable[[_F], _F]: ...


def export(
    function: Any = None,
    /,
    *,
    method: bool | str | Sequence[str] = False,
    name: str | Sequence[str] | None = None,
    public: bool = True,
    inplace: bool | str = False,
    out: bool = False,
    namespace: str = "",
    numbers: Sequence[str] = (),
) -> Any:
    """Give an op its public names.

    Args:
        method: a tensor method of the same name, or of these names.
        name: the name or names in the namespace, if not the function's own.
        public: whether `adjit.<name>` exists.
        inplace: whether the method `<name>_` exists, which writes the result into the tensor;
            "function" for that and the function `adjit.<name>_`, "only" for the function alone.
        out: whether the function takes `out=`.
        namespace: "" for `adjit`, "nn.functional", "linalg" or "special".
        numbers: the operands of an elementwise op of several that may be Python numbers too, as PyTorch has
            overloads for them. Users have to give tensors for the others; the library itself need not.
    """

    def register(op: Function) -> Function:
        f = op.for_users(numbers) if isinstance(op, Elementwise) else op
        own = getattr(f, "__name__", "").strip("_")
        names = [own] if name is None else [name] if isinstance(name, str) else list(name)
        known = remembering.get(f)

        def short(fallback: Function) -> Function:
            if isinstance(fallback, native.Native):
                return fallback
            if isinstance(f, Operation):
                return calls.short(f.all_calls, fallback)
            if known is None:
                return fallback
            return calls.short(
                known.all_calls, fallback, plain=known.all_plain_calls, first=known.is_first
            )

        if public:
            for n in names:
                called = f"{namespace}_{n}" if namespace in ("linalg", "special") else n
                made = with_out(f, called) if out else explaining(f, called)
                target[n] = _publish(short(made), module, n)
        chosen: list[str] = []
        if method is True:
            chosen = names
        elif method:
            chosen = [method] if isinstance(method, str) else list(method)
        for n in chosen:
            add_method(n, short(as_method(f, n)))
        if inplace:
            for n in chosen or names:
                writing = in_place(
                    f, n, in_place_text(n, f.__doc__ or "", "adjit" if inplace == "only" else None)
                )
                if inplace != "only":
                    add_method(f"{n}_", writing)
                if inplace is not True:
                    target[f"{n}_"] = _publish(writing, module, f"{n}_")
        return op

    target, module = globals()["namespace"][namespace], f"adjit.{namespace}".rstrip(".")
    return register if function is None else register(function)


def as_method(f: Function, name: str) -> Function:
    """The op as a method: one Python call between the user and the recording."""
    if inspect.isfunction(f):
        return explaining(f, name, is_method=True)
    if isinstance(f, native.NativeFunction):
        return f
    if isinstance(f, Elementwise) and not f.attributes:
        recorded = f.record
        if f.arity == 2 and PYTORCH_NAMES.get(f.params[1], f.params[1]) == "other":

            def method2(self: TensorBase, other: Argument) -> NewTensor:
                try:
                    return recorded(self, other)
                except Exception:
                    if said := _tell(f, name, (self, other), {}):
                        return said[0]
                    raise

            return compiled(f, _named(method2, f, name))
        if f.arity == 1:

            def method1(self: TensorBase) -> NewTensor:
                return recorded(self)

            return compiled(f, _named(method1, f, name))

    def method(self: TensorBase, *args: Argument, **kwargs: Argument) -> Results:
        try:
            return f(self, *args, **kwargs)
        except Exception:
            if said := _tell(f, name, (self, *args), kwargs):
                return said[0]
            raise

    named = _named(method, getattr(f, "__wrapped__", f), name)
    if isinstance(f, Elementwise) and f.arity == 2 and not f.attributes:
        return compiled(f, named)
    if isinstance(f, Elementwise) and f.attributes:
        return calling(f, f.defaults, f.most, named)
    return choosing(f.chosen, named) if isinstance(f, Choice) else named


def _tell(f: Function, name: str, args: Arguments, kwargs: NamedArguments) -> Said:
    """Say which argument of a method is no tensor, if one should be, or what that says itself."""
    if isinstance(f, Elementwise):
        return tell_operands(
            f.params, name, args, kwargs, is_method=True, tensors_only=f.tensors_only
        )
    function = f.choose if isinstance(f, Choice) else inspect.unwrap(f)
    return tell(function, name, args, kwargs, is_method=True)


def _named(method: Function, f: Function, name: str) -> Function:
    method.__name__, method.__qualname__, method.__doc__ = name, f"Tensor.{name}", f.__doc__
    return method


def in_place(f: Function, name: str, doc: str | None = None) -> Function:
    """The op as a method that writes its result into the tensor."""

    def make(self: TensorBase, args: Arguments, kwargs: NamedArguments) -> NewTensor:
        if isinstance(f, (Elementwise, Choice)) and self._fn is None:
            return f.apply((self, *args), kwargs, over=True)
        return f(self, *args, **kwargs)

    def write(self: TensorBase, args: Arguments, kwargs: NamedArguments) -> Results:
        inplace.check(self)
        inplace.check_overlap(self, args)
        is_plain = not tracers or level_of((self, args)) is None
        if is_plain and self._storage.shared:
            return inplace.adopt_shared(self, lambda: make(self, args, kwargs), args)
        # A tangent reads the value that is written over, in nodes of its own.
        return inplace.adopt(
            self, make(self if is_plain else inplace.old_value(self), args, kwargs)
        )

    def method(self: TensorBase, *args: Argument, **kwargs: Argument) -> Results:
        try:
            return write(self, args, kwargs)
        except Exception:
            check_tensor(f"{name}_", "input", 1, self)
            if said := _tell(f, f"{name}_", (self, *args), kwargs):
                return said[0]
            raise

    method.__name__ = f"{name}_"
    method.__doc__ = doc
    written_by[method.__name__] = f
    return written(f, method)


_CALL = r"adjit\.\w+\((?:[^()]|\([^()]*\))*\)"
_SHOWN = re.compile(
    rf"(?P<before>(?: *>>> \w+ = .*\n)*)(?P<pad> *)>>> "
    rf"(?:(?P<x>{_CALL})|adjit(?:\.nn\.functional)?|F)\.\w+"
    rf"\((?P<y>{_CALL})?(?:, )?(?P<rest>.*)\)\n(?P<made>[^>]*)"
)


def in_place_text(name: str, text: str, room: str | None) -> str:
    """The docstring of an in-place form: the op's if that shows it, else its first example in place.

    `room` has the form as a function; None for a method.
    """
    if f".{name}_(" in text:
        return text
    doc = f"In-place form of `{name}`: writes the result into this tensor, returns it.\n"
    if (shown := _SHOWN.match(text.partition("Example:\n")[2])) is None:
        return doc
    before, pad, x, y, rest, made = shown.group("before", "pad", "x", "y", "rest", "made")
    if x is not None:
        rest = ", ".join(filter(None, (y, rest)))
    arguments = ", ".join(filter(None, ("x", rest)))
    call = f"x.{name}_({rest})" if room is None else f"{room}.{name}_({arguments})"
    if "True" in made or "False" in made:  # which are numbers in a tensor of another dtype
        call, made = f"{call} is x", "True"
    lines = (*before.splitlines(), f">>> x = {x or y}", f">>> {call}", *made.rstrip().splitlines())
    return (
        doc + "\nExample:" + "".join([f"\n    {line.removeprefix(pad)}" for line in lines]) + "\n"
    )


written_by: dict[str, Function] = {}  # what is behind each method that writes in place


def written(f: Function, method: Function, *, is_operator: bool = False) -> Function:
    """`method`, which writes what `f` gives into its first operand, in machine code.

    An operator takes nothing but two operands, and has an answer of its own to those that are not its.
    """
    make = explaining(f, method.__name__, is_method=True)
    op = f.for_two_operands if isinstance(f, Choice) else f
    if isinstance(op, Elementwise) and not op.attributes and op.arity <= 2:
        if op is not f and not is_operator:
            return writing(op, computing(make, method, inplace.adopt), inplace.adopt)
        return writing(op, method, inplace.adopt)
    if is_operator:
        return method
    return computing(make, method, inplace.adopt)


def with_out(f: Function, name: str) -> Function:
    """The op with an `out=` argument."""
    if isinstance(f, (Elementwise, Choice)):
        return f

    @functools.wraps(getattr(f, "__wrapped__", f))
    def function(*args: Argument, out: Argument = None, **kwargs: Argument) -> Results:
        try:
            made = f(*args, **kwargs)
        except Exception:
            if said := tell(f, name, args, kwargs):
                return said[0]
            raise
        return made if out is None else inplace.write_out(name, out, made)

    return function


def is_own_function(value: object) -> bool:
    """Whether it is a function of this library: not a method, and not a user's around one."""
    if not isinstance(value, FunctionType):
        return isinstance(value, (native.NativeFunction, Operation))
    homes = value.__globals__.get("__name__"), value.__module__
    return "." not in value.__qualname__ and all(str(home).split(".")[0] == ROOT for home in homes)
