"""Subclasses of tensors that say what functions do with them: `__torch_function__`, as in PyTorch.

A call costs nothing more until a program defines a subclass of `Tensor` with a `__torch_function__`: then the
methods of that class, and the functions of the library, ask it before they do anything. Subclasses without one
are taken as the tensors that they are, and so are `Parameter`s: results are plain tensors.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from . import tensor
from .graph import record
from .ops.operators import IN_PLACE, OPERATORS
from .schedule.jit import native
from .tensor import Tensor

__all__ = [
    "DisableTorchFunctionSubclass", "get_default_nowrap_functions", "get_ignored_functions",
    "get_overridable_functions", "handle_torch_function", "has_torch_function", "has_torch_function_unary",
    "has_torch_function_variadic", "is_tensor_like", "is_tensor_method_or_property", "resolve_name",
    "wrap_torch_function",
]  # fmt: skip

# The rooms whose functions ask their arguments, without the name of the library.
ROOMS = ("", "nn.functional", "linalg", "special")
# What an operator is called, where PyTorch names the op.
NAMED = {
    "__add__": "add", "__radd__": "add", "__sub__": "sub", "__mul__": "mul", "__rmul__": "mul",
    "__matmul__": "matmul", "__truediv__": "div", "__pow__": "pow", "__neg__": "neg", "__abs__": "abs",
    "__iadd__": "add_", "__isub__": "sub_", "__imul__": "mul_", "__itruediv__": "div_",
}  # fmt: skip
# Methods that look at the object itself.
IGNORED = {
    "as_subclass",
    "of_class",
    "fn",
    "nr",
    "more",
    "current_fn",
    "accumulator",
    "grad_value",
    "set_grad",
}


class _Off(threading.local):
    depth = 0  # of blocks in which nobody is asked


_off = _Off()


@contextlib.contextmanager
def DisableTorchFunctionSubclass() -> Iterator[None]:
    """Ask no subclass in a block: functions take its instances as the tensors that they are.

    Example:
        >>> with adjit.overrides.DisableTorchFunctionSubclass():
        ...     adjit.ones(2) + 1
        tensor([2., 2.])
    """
    _off.depth += 1
    try:
        yield
    finally:
        _off.depth -= 1


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
    if not all(issubclass(cls, kind) for kind in types):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        return _converted(func(*args, **(kwargs or {})), cls)


def _converted(made: Any, cls: type) -> Any:
    if isinstance(made, Tensor) and not isinstance(made, cls):
        return made.as_subclass(cls)
    if isinstance(made, (tuple, list)):
        parts = [_converted(part, cls) for part in made]
        return type(made)(*parts) if hasattr(made, "_fields") else type(made)(parts)
    return made


def _says_something(kind: type) -> bool:
    """Whether a class has a `__torch_function__` of its own, and has not switched it off."""
    if kind is Tensor:
        return False
    found = getattr(kind, "__torch_function__", None)
    return found is not None and getattr(found, "__func__", found) not in _QUIET


def _asked(values: Iterable[Any]) -> list[Any]:
    """The arguments whose classes have something to say, one of each, subclasses before their bases."""
    found: list[Any] = []
    for value in values:
        kind = type(value)
        if kind is Tensor or kind in map(type, found) or not _says_something(kind):
            continue
        place = next(
            (k for k, other in enumerate(found) if issubclass(kind, type(other))), len(found)
        )
        found.insert(place, value)
    return found


def _relevant(args: Sequence[Any], kwargs: dict[str, Any]) -> Iterator[Any]:
    for value in (*args, *kwargs.values()):
        if isinstance(value, (tuple, list)):
            yield from value
        else:
            yield value


def _ask(func: Any, asked: list[Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    types = tuple(map(type, asked))
    for value in asked:
        made = type(value).__torch_function__(func, types, tuple(args), kwargs)
        if made is not NotImplemented:
            return made
    name = getattr(func, "__name__", repr(func))
    raise TypeError(
        f"no implementation found for 'torch.{name}' on types that implement __torch_function__: "
        f"{list(types)}"
    )


class Overridable:
    """A function of the library that asks its arguments. It is equal to the function, as a key too."""

    def __init__(self, function: Callable[..., Any], name: str | None = None) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        if name is not None:
            self.__name__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not _off.depth:
            asked = _asked(_relevant(args, kwargs))
            if asked:
                return _ask(self, asked, args, kwargs)
        return self.function(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return self.function is (other.function if isinstance(other, Overridable) else other)

    def __hash__(self) -> int:
        return hash(self.function)

    def __repr__(self) -> str:
        return repr(self.function)

    def __reduce__(self) -> str:
        return str(self.__name__)


def _method(name: str) -> Any:
    """The method of a subclass that asks `__torch_function__`, as which PyTorch names it."""
    plain = getattr(Tensor, name)
    told = getattr(Tensor, NAMED.get(name, name))
    if getattr(told, "__name__", name) != NAMED.get(name, name):
        told = Overridable(told, name)

    @functools.wraps(plain)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _off.depth:
            asked = _asked(_relevant((self, *args), kwargs))
            if asked:
                return _ask(told, asked, (self, *args), kwargs)
        return plain(self, *args, **kwargs)

    return method


@functools.cache
def _names() -> list[str]:
    """The methods that ask."""
    operators = [*OPERATORS, *IN_PLACE, "__matmul__", "__rmatmul__", "__getitem__", "__setitem__"]
    public = [
        name for name in dir(Tensor) if name[0] != "_" and callable(getattr(Tensor, name, None))
    ]
    return [name for name in [*operators, *public] if name not in IGNORED]


def _on_subclass(cls: type) -> None:
    """Have a new subclass of `Tensor` asked, if it has something to say."""
    if not _says_something(cls):
        return
    _wrap_functions()
    if any(_says_something(base) for base in cls.__mro__[1:] if issubclass(base, Tensor)):
        return  # its methods ask already
    for name in _names():
        if name not in cls.__dict__:
            setattr(cls, name, _method(name))


_plain: dict[tuple[Any, str], Any] = {}  # the functions that ask now, as they were


def _wrap_functions() -> None:
    """Have the functions of the library ask, from the first subclass on that has something to say."""
    if not _plain:
        for module, names in _functions().items():
            for name in names:
                function = _plain[module, name] = getattr(module, name)
                asking = Overridable(function, name)
                asking.__module__ = module.__name__  # where pickles find it
                setattr(module, name, asking)


def _unwrap_functions() -> None:
    """Have them ask nobody."""
    for (module, name), function in _plain.items():
        setattr(module, name, function)
    _plain.clear()


@functools.cache
def _functions() -> dict[Any, list[str]]:
    """The names of the functions of each room."""
    found: dict[Any, list[str]] = {}
    for room in ROOMS:
        module = sys.modules[f"adjit.{room}".rstrip(".")]
        names = getattr(module, "__all__", None) or dir(module)
        found[module] = [n for n in names if n[0] != "_" and _takes_tensors(getattr(module, n))]
    return found


# What is callable and asks nobody: it makes tensors of plain values, or is about the library.
_NO_TENSORS = {
    "arange", "are_deterministic_algorithms_enabled", "broadcast_shapes", "can_cast", "compile", "device",
    "dtype", "empty", "empty_strided", "enable_grad", "eye", "finfo", "from_numpy", "frombuffer", "full",
    "get_default_device", "get_default_dtype", "get_num_threads", "get_printoptions", "iinfo",
    "inference_mode", "is_grad_enabled", "is_storage", "is_tensor", "linspace", "load", "logspace",
    "manual_seed", "memory_stats", "no_grad", "ones", "printoptions", "promote_types", "rand", "randint",
    "randn", "randperm",
    "range", "save", "scalar_tensor", "seed", "set_default_device", "set_default_dtype", "set_grad_enabled",
    "set_num_threads", "set_printoptions", "tensor", "tril_indices", "triu_indices", "typename", "zeros",
    "as_tensor", "asarray", "from_dlpack", "get_rng_state", "set_rng_state", "initial_seed", "Tensor",
}  # fmt: skip


def _takes_tensors(thing: Any) -> bool:
    is_function = inspect.isfunction(thing) or isinstance(thing, native.Native)
    home = str(getattr(thing, "__module__", "adjit"))
    return is_function and home.startswith("adjit") and thing.__name__ not in _NO_TENSORS


# ----- for programs -----


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """True if an argument is of a class with a `__torch_function__` that is to be asked.

    Example:
        >>> adjit.overrides.has_torch_function((adjit.ones(2), 3))
        False
    """
    return not _off.depth and bool(_asked(relevant_args))


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
    return _ask(public_api, _asked(relevant_args), args, kwargs)


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
    """List functions whose results stay plain tensors: none, as properties do not ask.

    Example:
        >>> adjit.overrides.get_default_nowrap_functions()
        set()
    """
    return set()


def is_tensor_method_or_property(func: Any) -> bool:
    """True if a function is a method of `Tensor`.

    Example:
        >>> adjit.overrides.is_tensor_method_or_property(adjit.Tensor.sin)
        True
    """
    return any(getattr(Tensor, name) is func for name in _names())


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
        if getattr(Tensor, name) is f:
            return f"adjit.Tensor.{name}"
    return None


_QUIET = _default, _disabled_torch_function_impl.__func__  # what leaves everything as it is
Tensor.__torch_function__ = classmethod(_default)  # type: ignore[attr-defined]
tensor.subclass_hooks.append(_on_subclass)
