"""Subclasses of tensors that say what functions do with them: `__torch_function__`, as in PyTorch.

A call costs nothing more until a program defines a subclass of `Tensor`: then the methods of that class, and
the functions of the library, ask it before they do anything. Subclasses without a `__torch_function__` of their
own have that of `Tensor`, which gives results their class. `Parameter`s are not asked, and give plain ones.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import MethodType, MethodWrapperType, ModuleType, TracebackType
from typing import Any, Self

from . import tensor
from .absent import ROOT
from .devices import device
from .dtypes import dtype
from .graph import record
from .graph.wrong_types import explained, strangers
from .nn import functional
from .ops.contract import from_lists
from .ops.operators import IN_PLACE, OPERATORS
from .schedule.jit import native
from .shapes import Size
from .tensor import Tensor

__all__ = [
    "BaseTorchFunctionMode", "DisableTorchFunctionSubclass", "TorchFunctionMode",
    "get_default_nowrap_functions", "get_ignored_functions", "get_overridable_functions",
    "handle_torch_function", "has_torch_function", "has_torch_function_unary",
    "has_torch_function_variadic", "is_tensor_like", "is_tensor_method_or_property", "resolve_name",
    "wrap_torch_function",
]  # fmt: skip

_LIBRARY = __name__.partition(".")[0]
# The rooms whose functions ask their arguments, without the name of the library; all, or those named.
ROOMS = {
    "": (), "nn.functional": (), "linalg": (), "special": (), "autograd": ("backward", "grad"),
    "nn.utils.rnn": ("pad_sequence",),
    "ops.recurrent": ("layers", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"),
}  # fmt: skip
# What an operator is called, where PyTorch names the op.
NAMED = {
    "__add__": "add", "__radd__": "add", "__sub__": "sub", "__mul__": "mul", "__rmul__": "mul",
    "__matmul__": "matmul", "__truediv__": "div", "__mod__": "remainder", "__pow__": "pow",
    "__rand__": "bitwise_and", "__ror__": "bitwise_or", "__rxor__": "bitwise_xor", "__neg__": "neg",
    "__pos__": "positive", "__abs__": "abs", "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge",
    "__ne__": "ne", "__iadd__": "add_", "__isub__": "sub_", "__imul__": "mul_", "__itruediv__": "div_",
    "__ifloordiv__": "floor_divide_", "__imod__": "remainder_", "__ipow__": "pow_",
}  # fmt: skip
# Attributes that look at the object itself.
IGNORED = {"as_subclass"}
# Methods of Python's protocols that ask.
PROTOCOLS = (
    "__matmul__", "__rmatmul__", "__getitem__", "__setitem__", "__len__", "__contains__", "__bool__",
    "__int__", "__float__", "__index__", "__reversed__", "__format__", "__repr__", "__deepcopy__",
    "__reduce_ex__", "__array__",
)  # fmt: skip
# Those of the methods that have no arguments that could be asked.
_OF_ONE = {*PROTOCOLS, "item", "tolist"} - {"__getitem__", "__setitem__", "__contains__", "__matmul__",
    "__rmatmul__"}  # fmt: skip
_BINARY = {*OPERATORS, "__matmul__", "__rmatmul__"}


class _Here(threading.local):
    """Who is asked in a thread."""

    depth = 0  # of blocks in which no subclass is asked

    def __init__(self) -> None:
        self.modes: list[TorchFunctionMode] = []  # that are entered, the innermost last
        self.calls: list[Any] = []  # functions that `_default` calls


_here = _Here()


@contextlib.contextmanager
def DisableTorchFunctionSubclass() -> Iterator[None]:
    """Ask no subclass in a block: functions take its instances as the tensors that they are.

    Example:
        >>> with adjit.overrides.DisableTorchFunctionSubclass():
        ...     adjit.ones(2) + 1
        tensor([2., 2.])
    """
    _here.depth += 1
    try:
        yield
    finally:
        _here.depth -= 1


@contextlib.contextmanager
def DisableTorchFunction() -> Iterator[None]:
    """Ask neither subclasses nor modes in a block."""
    modes, _here.modes = _here.modes, []
    try:
        with DisableTorchFunctionSubclass():
            yield
    finally:
        _here.modes = modes


_disabled_torch_function_impl: Any = tensor.plainly


def _default(
    cls: Any, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
) -> Any:
    """Call the function, and give its tensors the class; the `__torch_function__` of `Tensor`.

    Args:
        func: the function or method that was called.
        types: the classes among its arguments that have something to say.
        args: its arguments.
        kwargs: its arguments by name.

    Example:
        >>> adjit.Tensor.__torch_function__(adjit.sin, (adjit.Tensor,), (adjit.zeros(2),))
        tensor([0., 0.])
    """
    if types != (cls,) and not all(issubclass(cls, kind) for kind in types):
        return NotImplemented
    here = _here
    if here.calls and any(called is func for called in here.calls):
        return NotImplemented  # a function of PyTorch's, which asks again: it cannot take these tensors
    here.calls.append(func)
    here.depth += 1  # as `DisableTorchFunctionSubclass`, at a tenth of the time
    try:
        made = func(*args, **kwargs) if kwargs else func(*args)
    finally:
        here.depth -= 1
        here.calls.pop()
    is_look = func.__class__ is MethodWrapperType  # the `__get__` of a property
    return made if is_look and func in _nowrap() else _converted(made, cls)


def _converted(made: Any, cls: type) -> Any:
    if isinstance(made, Tensor) and not isinstance(made, cls):
        return made.as_subclass(cls)
    if isinstance(made, (tuple, list)):
        parts = [_converted(part, cls) for part in made]
        return type(made)(*parts) if hasattr(made, "_fields") else type(made)(parts)
    return made


def _says_something(kind: type) -> bool:
    """Whether a class has a `__torch_function__`, if only that of `Tensor`, and has not switched it off."""
    if kind in _PLAIN or (kind not in record.tensor_classes and record.is_of_pytorch(kind)):
        return False
    found = getattr(kind, "__torch_function__", None)
    says = found is not None and getattr(found, "__func__", found) is not _QUIET
    if not says and kind in record.tensor_classes:
        _PLAIN.add(kind)
        if not _entered:
            _quiet.add(kind)
    return says


def _asked(values: Iterable[Any]) -> list[Any]:
    """The arguments whose classes have something to say, one of each, subclasses before their bases."""
    found: list[Any] = []
    for value in values:
        kind = type(value)
        if kind in _PLAIN or (found and kind in map(type, found)) or not _says_something(kind):
            continue
        place = len(found)
        if found:
            places = (k for k, other in enumerate(found) if issubclass(kind, type(other)))
            place = next(places, place)
        found.insert(place, value)
    return found


def _relevant(args: Sequence[Any], kwargs: dict[str, Any]) -> Sequence[Any]:
    """The arguments, those in lists too."""
    values = (*args, *kwargs.values()) if kwargs else args
    for value in values:
        if isinstance(value, (tuple, list)):
            break
    else:
        return values
    return [
        part for value in values
        for part in (value if isinstance(value, (tuple, list)) else (value,))
    ]  # fmt: skip


def _answer(
    func: Any,
    plain: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    is_operator: bool = False,
) -> Any:
    """What modes and the classes of arguments say that a function gives, or else what `plain` does."""
    here = _here
    asked = [] if here.depth else _asked(_relevant(args, kwargs))
    if not asked and not here.modes:
        return plain(*args, **kwargs)
    made = _ask(func, asked, args, kwargs)
    if made is not NotImplemented or is_operator:
        return made  # Python words the error about operators
    raise _unanswered(func, asked)


def _ask(func: Any, asked: list[Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What modes and classes say, NotImplemented if none of them does."""
    types = tuple(map(type, asked))
    modes = _here.modes
    if modes:
        mode = modes.pop()
        try:
            made = mode.__torch_function__(func, types, tuple(args), kwargs)
        finally:
            modes.append(mode)
        if made is not NotImplemented:
            return made
    for value in asked:
        made = type(value).__torch_function__(func, types, tuple(args), kwargs)
        if made is not NotImplemented:
            return made
    return NotImplemented


def _unanswered(func: Any, asked: list[Any]) -> TypeError:
    """The error about a function that nobody has an answer for, in the two wordings that PyTorch has."""
    name = getattr(func, "__name__", repr(func))
    home = getattr(func, "__module__", None) or _LIBRARY
    if isinstance(func, _TensorMethod):
        home = _LIBRARY
    if home == _LIBRARY:
        told = f"Multiple dispatch failed for 'torch.{name}'; all __torch_function__ handlers returned "
        parts = [f"tensor subclass {type(value)}" for value in asked]
        if _here.modes:
            parts.insert(0, f"mode object {_here.modes[-1]}")
        return TypeError(told + "NotImplemented:\n\n" + "".join(f"  - {part}\n" for part in parts))
    inside = home.removeprefix(f"{_LIBRARY}.")
    home = home if inside == home else f"torch.{inside}"
    told = (
        f"no implementation found for '{home}.{name}' on types that implement __torch_function__: "
    )
    mode = f" nor in mode {_here.modes[-1]}" if _here.modes else ""
    return TypeError(f"{told}{list(map(type, asked))}{mode}")


@contextlib.contextmanager
def _without_innermost() -> Iterator[TorchFunctionMode]:
    """A block outside of the mode that was entered last, which it gives."""
    mode = _here.modes.pop()
    try:
        yield mode
    finally:
        _here.modes.append(mode)


_entered = 0  # modes, of all threads


class Overridable:
    """A function of the library that asks its arguments. It is equal to the function, as a key too."""

    def __init__(self, function: Callable[..., Any], name: str | None = None) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        if name is not None:
            self.__name__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not _entered:
            for value in (*args, *kwargs.values()) if kwargs else args:
                kind = value.__class__
                if kind in _PLAIN or (kind in _SEQUENCES and _PLAIN.issuperset(map(type, value))):
                    continue
                break
            else:
                return self.function(*args, **kwargs) if kwargs else self.function(*args)
        return _answer(self, self.function, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        """What else the function has: its defaults, its code."""
        return getattr(self.__dict__["function"], name)

    def __eq__(self, other: object) -> bool:
        return self.function is (other.function if isinstance(other, _ASKING) else other)

    def __hash__(self) -> int:
        return hash(self.function)

    def __repr__(self) -> str:
        return repr(self.function)

    def __reduce__(self) -> Any:
        return str(self.__name__)


class _NoTensor:
    """No value's class."""


@native.called
class _TensorMethod(native.Native):
    # A method of `Tensor` itself, from the first subclass on that has something to say: for plain arguments the
    # machine code of the method that it was, for others it asks. It is equal to that method, as a key too.
    __slots__ = ("__doc__", "__name__", "__wrapped__", "function", "told")
    __name__: str
    function: Callable[..., Any]
    told: Any  # as which it asks

    def __init__(self, function: Callable[..., Any], name: str, told: Any) -> None:
        self.function = self.__wrapped__ = function
        self.told = told or self
        self.__name__, self.__doc__ = name, function.__doc__
        self.public = _LIBRARY, f"Tensor.{name}"
        if isinstance(function, native.Native):
            # `compute` hands arguments on that it does not look at.
            native.bind_like(function, self, self._among_plain, but_not="compute")

    def _among_plain(self, context: Any) -> Any:
        """What machine code works on here: classes of tensors that have something to say are unknown to it,
        while modes are entered all."""
        runtime = context.runtime._replace(usual_class=_NoTensor, tensor_classes=_quiet)
        return context._replace(fallback=self._ask, runtime=runtime)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if _entered or kwargs or any(value.__class__ not in _PLAIN for value in args):
            return self._ask(*args, **kwargs)
        return self.function(*args)

    def _ask(self, /, *args: Any, **kwargs: Any) -> Any:
        is_operator = self.__name__ in _BINARY
        return _answer(self.told, self.function, args, kwargs, is_operator)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    __eq__ = Overridable.__eq__
    __hash__ = Overridable.__hash__

    def __reduce__(self) -> Any:
        return native.attribute, self.public

    def __repr__(self) -> str:
        return repr(self.function)


_ASKING = Overridable, _TensorMethod


class _Method(Overridable):
    """A method of a class of tensors, which asks; `told` is what the classes are told was called."""

    def __init__(self, function: Callable[..., Any], name: str, told: Any) -> None:
        super().__init__(function, name)
        self.told = told or self
        self.__module__ = _LIBRARY

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _answer(self.told, self.function, args, kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)


class _Factory(Overridable):
    """A function that makes tensors of plain values: the classes of its arguments have no say."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        here = _here
        if here.modes:
            return _ask(self, [], args, kwargs)
        here.depth += 1
        try:
            return self.function(*args, **kwargs)
        finally:
            here.depth -= 1


class _Einsum(Overridable):
    """`einsum`, which asks with its operands one by one, however they are given, as PyTorch's does."""

    def __call__(self, equation: Any, *operands: Any) -> Any:
        if isinstance(equation, Tensor):
            equation, operands = from_lists((equation, *operands))
        elif len(operands) == 1 and isinstance(operands[0], (list, tuple)):
            operands = tuple(operands[0])
        return super().__call__(equation, *operands)


@functools.cache
def _method(name: str) -> Any:
    """The method that asks `__torch_function__`, as which PyTorch names it."""
    told = None if name in _OF_ONE else _on_tensors(name).told
    method = _Method(getattr(Tensor, name), name, told)
    if name not in _BINARY:
        return method

    @functools.wraps(method.function)
    def operator(*operands: Any) -> Any:
        return _answer(method.told, method.function, operands, {}, is_operator=True)

    return operator


@functools.cache
def _on_tensors(name: str) -> Any:
    """The method of `Tensor` itself that asks."""
    told = _on_tensors(NAMED[name]) if name in NAMED else None
    return _TensorMethod(getattr(Tensor, name), name, told)


class _Property(property):
    """A property of tensors that asks: as which function, its `__get__` is, for all classes the same."""

    def __init__(self, plain: property) -> None:
        told = plain.__get__

        def look(self: Any) -> Any:
            return _answer(told, told, (self,), {})

        super().__init__(look, plain.fset, plain.fdel, plain.__doc__)


def _is_ours(value: Any) -> bool:
    """Whether a method is one of the library: what programs put onto `Tensor` is not asked."""
    if inspect.isfunction(value):
        return str(value.__module__).split(".")[0] == ROOT
    return callable(value)


@functools.cache
def _names() -> list[str]:
    """The methods that ask."""
    public = [
        name for name in dir(Tensor) if name[0] != "_" and _is_ours(getattr(Tensor, name, None))
    ]
    names = [*OPERATORS, *IN_PLACE, *PROTOCOLS, *public]
    return [name for name in dict.fromkeys(names) if name not in IGNORED]


@functools.cache
def _properties() -> dict[str, property]:
    """The properties that ask."""
    found = {name: inspect.getattr_static(Tensor, name) for name in dir(Tensor) if name[0] != "_"}
    return {n: p for n, p in found.items() if isinstance(p, property) and n not in IGNORED}


@functools.cache
def _asking() -> dict[str, Any]:
    """The methods and properties that ask, by their names."""
    methods: dict[str, Any] = {name: _method(name) for name in _names()}
    return methods | {name: _Property(plain) for name, plain in _properties().items()}


@functools.cache
def _between() -> type[Tensor]:
    """The class whose methods ask: it comes between `Tensor` and a program's subclasses."""
    quiet = {"__slots__": (), "__torch_function__": _disabled_torch_function_impl}
    asking = {name: method for name, method in _asking().items() if name not in _BINARY}
    made: Any = type("Asking", (Tensor,), quiet | asking)
    made.__torch_function__ = classmethod(_default)
    return made


def _on_subclass(cls: type) -> None:
    """Have a new subclass of `Tensor` asked, if it has something to say."""
    if not _says_something(cls):
        return
    _wrap_functions()
    asking = _between()
    if not issubclass(cls, asking):
        # Not methods of its own: what it calls by `super()` asks too.
        cls.__bases__ = tuple(asking if base is Tensor else base for base in cls.__bases__)
    _wrap_methods()


def _wrap_methods() -> None:
    """Have the methods of plain tensors ask their arguments."""
    with _lock:
        # What is to come back when no mode is entered any more, or what is there now.
        put = _of_tensors.__setitem__ if _entered else functools.partial(setattr, Tensor)
        for name in (vars(Tensor).keys() & _names()) - _OF_ONE:
            put(name, _on_tensors(name))


def ask_others() -> None:
    """Have functions and the methods of plain tensors ask arguments that are no tensors, from now on."""
    global _asks_others
    if not (_asks_others and _plain):
        _wrap_functions()
        _wrap_methods()
        _asks_others = True


def _said_by_strangers(
    name: str, args: Sequence[Any], kwargs: dict[str, Any], is_method: bool
) -> tuple[Any] | None:
    """What a call gives that has failed, where an argument is no tensor and has a `__torch_function__`."""
    if _asks_others and _plain:  # they were asked already
        return None
    ask_others()
    if not is_method:
        for room in ROOMS:
            module = sys.modules[f"{_LIBRARY}.{room}".rstrip(".")]
            inside = name.removeprefix(f"{room}_")
            if (module, inside) in _plain:
                return (getattr(module, inside)(*args, **kwargs),)
    if not hasattr(Tensor, name):
        name = f"__{name}__"  # what brackets call
    return (getattr(Tensor, name)(*args, **kwargs),)


strangers.append(_said_by_strangers)


def as_asking(value: Any) -> Any:
    """What asks in the place of a function that a program took before; any other value as it is."""
    if inspect.isfunction(value) or isinstance(value, native.Native):
        for (module, name), plain in _plain.items():
            if plain is value:
                return getattr(module, name)
    return value


def is_method(func: Any) -> bool:
    """Whether what asked is a method of tensors."""
    return isinstance(func, _TensorMethod)


_asks_others = False
_plain: dict[tuple[Any, str], Any] = {}  # the functions that ask now, as they were
# Modules with functions of the library under names of their own that stay as they are.
_BELOW = (
    "autograd", "captured", "cuda", "func", "graph", "kernels", "ops", "overrides", "schedule", "serialization",
    "tracers",
)  # fmt: skip


def _wrap_functions() -> None:
    """Have the functions of the library ask, from the first subclass or mode on that has something to say.

    They ask under all names that modules have for them, of a program's too, which may have imported them.
    """
    if _plain:
        return
    asking: dict[int, Overridable] = {}
    for module, names in (*_functions().items(), (sys.modules[_LIBRARY], _FACTORIES)):
        for name in names:
            function = _plain[module, name] = getattr(module, name)
            kind = _Factory if names is _FACTORIES else _Einsum if name == "einsum" else Overridable
            asks = kind(function, name)
            asks.__module__ = module.__name__  # where pickles find it
            asking.setdefault(id(function), asks)
            asking.setdefault(id(explained.get(function, function)), asks)
            setattr(module, name, asks)
            if inspect.isfunction(function) and function.__name__ == name:
                function.__module__ = _as_it_was(module.__name__[len(_LIBRARY) + 1 :])
    for module in list(sys.modules.values()):
        home, _, below = getattr(module, "__name__", "").partition(".")
        if home == _LIBRARY and below.partition(".")[0] in _BELOW:
            continue
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if id(value) in asking:
                _plain[module, name] = value
                setattr(module, name, asking[id(value)])


_AS_THEY_WERE = f"{_LIBRARY}.as_they_were"


class _AsItWas(ModuleType):
    """The functions of a module that ask nobody: where pickles find those that a program took before."""

    def __init__(self, room: str) -> None:
        super().__init__(_as_it_was(room))
        self.stands_for = f"{_LIBRARY}.{room}".rstrip(".")

    def __getattr__(self, name: str) -> Any:
        home = sys.modules[self.stands_for]
        return _plain.get((home, name)) or getattr(home, name)


def _as_it_was(room: str) -> str:
    return f"{_AS_THEY_WERE}_{room.replace('.', '_')}".rstrip("_")


sys.modules.update({_as_it_was(room): _AsItWas(room) for room in ROOMS})


def _unwrap_functions() -> None:
    """Have functions and methods ask nobody."""
    for (module, name), function in _plain.items():
        setattr(module, name, function)
        if inspect.isfunction(function) and function.__module__.startswith(_AS_THEY_WERE):
            function.__module__ = module.__name__  # its home, which comes before other modules
    _plain.clear()
    for name, method in list(vars(Tensor).items()):
        if isinstance(method, _TensorMethod):
            setattr(Tensor, name, method.function)


@functools.cache
def _functions() -> dict[Any, list[str]]:
    """The names of the functions of each room."""
    found: dict[Any, list[str]] = {}
    for room, chosen in ROOMS.items():
        module = sys.modules[f"{_LIBRARY}.{room}".rstrip(".")]
        there = vars(module)  # rooms that are loaded at their first use are left alone
        names = chosen or getattr(module, "__all__", None) or sorted(there)
        found[module] = [n for n in names if n[0] != "_" and _takes_tensors(there.get(n))]
    return found


# What makes tensors of plain values: modes are asked, no class is.
_FACTORIES = (
    "arange", "as_tensor", "asarray", "empty", "empty_strided", "eye", "from_numpy", "frombuffer", "full",
    "linspace", "logspace", "ones", "rand", "randint", "randn", "randperm", "range",
    "scalar_tensor", "tensor", "tril_indices", "triu_indices", "zeros",
)  # fmt: skip
# What is callable and asks nobody: it is about the library.
_NO_TENSORS = {
    "are_deterministic_algorithms_enabled", "broadcast_shapes", "can_cast", "compile", "device", "dtype",
    "enable_grad", "finfo", "get_default_device", "get_default_dtype", "get_num_threads",
    "get_printoptions", "iinfo", "inference_mode", "is_grad_enabled", "is_storage", "is_tensor", "load",
    "manual_seed", "memory_stats", "no_grad", "printoptions", "promote_types", "save", "seed",
    "set_default_device", "set_default_dtype", "set_grad_enabled", "set_num_threads", "set_printoptions",
    "typename", "absent", "from_dlpack", "get_rng_state", "set_rng_state", "initial_seed", "Tensor",
    *_FACTORIES,
}  # fmt: skip


def _takes_tensors(thing: Any) -> bool:
    is_function = inspect.isfunction(thing) or isinstance(thing, native.Native)
    home = str(getattr(thing, "__module__", _LIBRARY))
    if not is_function or not home.startswith(_LIBRARY):
        return False
    name = thing.__name__
    is_switch = name.startswith(("set_", "get_", "use_")) or name.endswith("_enabled")
    return not is_switch and name not in _NO_TENSORS


# ----- modes -----


class BaseTorchFunctionMode:
    """Say in a `with` block what functions do. See `TorchFunctionMode`; this one calls them as they are.

    Example:
        >>> with adjit.overrides.BaseTorchFunctionMode():
        ...     adjit.ones(2) + 1
        tensor([2., 2.])
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return func(*args, **(kwargs or {}))

    def __enter__(self) -> Self:
        _enter(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        _leave()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Self:
        """Make one, to be entered; `with cls(...)` does the same.

        Example:
            >>> with adjit.overrides.BaseTorchFunctionMode.push():
            ...     adjit.ones(2)
            tensor([1., 1.])
        """
        return cls(*args, **kwargs)


class TorchFunctionMode(BaseTorchFunctionMode):
    """Say in a `with` block what functions and methods of tensors do, whatever their arguments are.

    A subclass has `__torch_function__(self, func, types, args=(), kwargs=None)`, which every call is handed
    to: functions that make tensors and properties too. What it calls itself is handed to the mode that was
    entered before it, if there is one. Modes are asked before subclasses of tensors; one that returns
    NotImplemented leaves the call to these. A thread has modes of its own.

    Writes to properties (`x.requires_grad = True`) and functions that have no tensors (`adjit.manual_seed`)
    are not handed over.

    Example:
        >>> class Count(adjit.overrides.TorchFunctionMode):
        ...     calls = 0
        ...     def __torch_function__(self, func, types, args=(), kwargs=None):
        ...         self.calls += 1
        ...         return func(*args, **(kwargs or {}))
        >>> with Count() as count:
        ...     y = adjit.ones(2) * 3
        >>> count.calls, y
        (2, tensor([3., 3.]))
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        raise NotImplementedError


_lock = threading.Lock()
_of_tensors: dict[str, Any] = {}  # what `Tensor` has itself while modes are entered


def _enter(mode: Any) -> None:
    global _entered
    with _lock:
        if not _entered:
            _wrap_functions()
            own = vars(Tensor)
            _of_tensors.update({name: own[name] for name in own.keys() & _asking().keys()})
            for name, method in _asking().items():
                setattr(Tensor, name, method)
            _quiet.clear()
        _entered += 1
    _here.modes.append(mode)


def _leave() -> None:
    global _entered
    _here.modes.pop()
    with _lock:
        _entered -= 1
        if not _entered:
            for name in _asking():
                if name in _of_tensors:
                    setattr(Tensor, name, _of_tensors[name])
                else:
                    delattr(Tensor, name)
            _of_tensors.clear()
            _quiet.update(_PLAIN & record.tensor_classes)


def _get_current_function_mode() -> Any:
    """The mode that was entered last in this thread, None outside of all."""
    return _here.modes[-1] if _here.modes else None


def _get_current_function_mode_stack() -> list[Any]:
    """The modes that are entered in this thread, the last one last."""
    return list(_here.modes)


_pop_mode_temporarily = _without_innermost


# ----- for programs -----


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """True if an argument is of a class with a `__torch_function__` that is to be asked, or a mode is.

    Example:
        >>> adjit.overrides.has_torch_function((adjit.ones(2), 3))
        False
    """
    return bool(_here.modes) or (not _here.depth and bool(_asked(relevant_args)))


def has_torch_function_unary(arg: Any) -> bool:
    """True if `has_torch_function` of this one.

    Example:
        >>> adjit.overrides.has_torch_function_unary(adjit.ones(2))
        False
    """
    return has_torch_function((arg,))


def has_torch_function_variadic(*args: Any) -> bool:
    """True if `has_torch_function` of one of these.

    Example:
        >>> adjit.overrides.has_torch_function_variadic(adjit.ones(2), 3)
        False
    """
    return has_torch_function(args)


def handle_torch_function(
    public_api: Any, relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """Ask the classes of arguments what a function gives.

    Args:
        public_api: the function, which they are told.
        relevant_args: the arguments whose classes are asked.
        args: all its arguments; `kwargs` those by name.

    Raises:
        TypeError: if nobody has an answer.

    Example:
        >>> class Loud:
        ...     @classmethod
        ...     def __torch_function__(cls, func, types, args=(), kwargs=None):
        ...         return func.__name__.upper()
        >>> adjit.overrides.handle_torch_function(abs, (Loud(),), Loud())
        'ABS'
    """
    asked = [] if _here.depth else _asked(relevant_args)
    made = _ask(public_api, asked, args, kwargs)
    if made is NotImplemented:
        raise _unanswered(public_api, asked)
    return made


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[[Any], Any]:
    """Make a decorator for a function of a program, whose arguments are asked then.

    Args:
        dispatcher: gives the arguments that are asked, of those of the function.

    Example:
        >>> @adjit.overrides.wrap_torch_function(lambda x: (x,))
        ... def double(x):
        ...     return x * 2
        >>> double(adjit.ones(2))
        tensor([2., 2.])
    """

    def decorate(func: Any) -> Any:
        @functools.wraps(func)
        def call(*args: Any, **kwargs: Any) -> Any:
            relevant = tuple(dispatcher(*args, **kwargs))
            if has_torch_function(relevant):
                return handle_torch_function(call, relevant, *args, **kwargs)
            return func(*args, **kwargs)

        return call

    return decorate


def is_tensor_like(inp: Any) -> bool:
    """True for tensors, and for objects of classes with a `__torch_function__`.

    Example:
        >>> adjit.overrides.is_tensor_like(adjit.ones(2)), adjit.overrides.is_tensor_like([1])
        (True, False)
    """
    return record.is_tensor(inp) or hasattr(type(inp), "__torch_function__")


def get_overridable_functions() -> dict[Any, list[Any]]:
    """List the functions that ask, by their module, and the methods of `Tensor`.

    Example:
        >>> adjit.sin in adjit.overrides.get_overridable_functions()[adjit]
        True
    """
    found = {module: [getattr(module, n) for n in names] for module, names in _functions().items()}
    return found | {Tensor: [getattr(Tensor, name) for name in _names()]}


def get_ignored_functions() -> set[Any]:
    """List functions that ask nobody.

    Example:
        >>> adjit.zeros in adjit.overrides.get_ignored_functions()
        True
    """
    library = sys.modules["adjit"]
    return {getattr(library, name) for name in _NO_TENSORS if hasattr(library, name)}


def get_default_nowrap_functions() -> set[Any]:
    """List functions whose results keep their own class: looks at `_base` and `grad`.

    Example:
        >>> adjit.Tensor.grad.__get__ in adjit.overrides.get_default_nowrap_functions()
        True
    """
    return set(_nowrap())


@functools.cache
def _nowrap() -> frozenset[Any]:
    return frozenset(inspect.getattr_static(Tensor, name).__get__ for name in ("_base", "grad"))


def name_of(func: Any) -> str:
    """The name of a function that a mode was handed; of what gives a property, the property's."""
    of = getattr(func, "__self__", None)
    names = [name for name, plain in _properties().items() if plain is of]
    return names[0] if names else str(getattr(func, "__name__", "call"))


def is_tensor_method_or_property(func: Any) -> bool:
    """True if a function is a method of `Tensor`, or what gives one of its properties.

    Example:
        >>> adjit.overrides.is_tensor_method_or_property(adjit.Tensor.sin)
        True
    """
    if getattr(func, "__name__", None) == "__get__":
        return isinstance(getattr(func, "__self__", None), property)
    return any(getattr(Tensor, name) == func for name in _names())


def resolve_name(f: Any) -> str | None:
    """Name a function as programs do, None for one that does not ask.

    Example:
        >>> adjit.overrides.resolve_name(adjit.nn.functional.relu)
        'adjit.nn.functional.relu'
    """
    for module, names in _functions().items():
        for name in names:
            if getattr(module, name) == f:
                return f"{module.__name__}.{name}"
    for name in _names():
        if getattr(Tensor, name) == f:
            return f"adjit.Tensor.{name}"
    return None


# Classes of tensors that have nothing to say, as far as they were seen; none while modes are entered.
_quiet: set[type] = {Tensor}
# These, and other classes of arguments that are not asked.
_PLAIN = {Tensor, int, float, bool, str, type(None), dtype, device, Size, slice, type(...)}
_SEQUENCES = list, tuple
_QUIET = _disabled_torch_function_impl.__func__  # leaves everything as it is
Tensor.__torch_function__ = classmethod(_default)  # type: ignore[attr-defined]
tensor.subclass_hooks.append(_on_subclass)
tensor.asking_nobody = DisableTorchFunctionSubclass
# Where functions of programs that are written like those of `nn.functional` look for them.
for _function in (
    has_torch_function, has_torch_function_unary, has_torch_function_variadic, handle_torch_function,
):  # fmt: skip
    setattr(functional, _function.__name__, _function)
