"""PyTorch's names around TorchScript, for programs that use it as decoration.

Functions and modules are compiled by `adjit.compile`, not by a language of their own: `script` and `trace`
give what they are given, which does the same in Python. There are no files of graphs.
"""

import contextlib
import typing
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn, TypeVar

from ..nn.module import Module
from . import annotations as annotations

__all__ = [
    "Attribute", "Error", "Final", "ScriptFunction", "ScriptModule", "TracerWarning", "annotate", "annotations",
    "enable_onednn_fusion", "export", "fork", "freeze", "fuser", "ignore", "interface", "is_scripting",
    "is_tracing", "isinstance", "load", "onednn_fusion_enabled", "optimize_for_inference",
    "optimized_execution", "save", "script", "script_if_tracing", "script_method", "set_fusion_strategy",
    "strict_fusion", "trace", "trace_module", "unused", "wait",
]  # fmt: skip

T = TypeVar("T")


class TracerWarning(Warning):
    """The category of warnings about traces, which programs silence; nothing here warns so.

    Example:
        >>> import warnings
        >>> warnings.filterwarnings("ignore", category=adjit.jit.TracerWarning)
    """


class Error(RuntimeError):
    """The error of a scripted function in PyTorch; here errors are those of Python.

    Example:
        >>> issubclass(adjit.jit.Error, RuntimeError)
        True
    """


class ScriptFunction:
    """The class of scripted functions in PyTorch, of which nothing is an instance here.

    Example:
        >>> isinstance(adjit.jit.script(abs), adjit.jit.ScriptFunction)
        False
    """


class ScriptModule(Module):
    """A module that may have `script_method`s: as any other.

    Example:
        >>> class Double(adjit.jit.ScriptModule):
        ...     @adjit.jit.script_method
        ...     def forward(self, x):
        ...         return x * 2
        >>> Double()(adjit.ones(2))
        tensor([2., 2.])
    """


def script(
    obj: T,
    optimize: Any = None,
    _frames_up: int = 0,
    _rcb: Any = None,
    example_inputs: Any = None,
) -> T:
    """Return the function, module or class, which does in Python what it would do scripted.

    Example:
        >>> @adjit.jit.script
        ... def double(x):
        ...     return x * 2
        >>> double(adjit.ones(2))
        tensor([2., 2.])
    """
    if not callable(obj):
        raise RuntimeError(f"expected a function, module or class, got {type(obj).__name__}")
    return obj


def trace(func: T, example_inputs: Any = None, *args: Any, **kwargs: Any) -> T:
    """Call a function or module on the example inputs, and return it: it does the same for other inputs,
    and more where it branches on values.

    Args:
        func: the function or module.
        example_inputs: a tensor or a tuple of arguments; or by name, as `example_kwarg_inputs`.

    Example:
        >>> net = adjit.jit.trace(nn.Linear(2, 1), adjit.ones(3, 2))
        >>> net(adjit.ones(5, 2)).shape
        adjit.Size([5, 1])
    """
    call: Any = func
    by_name = kwargs.get("example_kwarg_inputs")
    if by_name is not None:
        call(**by_name)
    elif example_inputs is not None:
        call(*(example_inputs if type(example_inputs) in (tuple, list) else (example_inputs,)))
    return func


def trace_module(mod: Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Module:
    """Call methods of a module on their example inputs, and return it.

    Example:
        >>> net = adjit.jit.trace_module(nn.Linear(2, 1), {"forward": adjit.ones(3, 2)})
        >>> type(net).__name__
        'Linear'
    """
    for name, example in inputs.items():
        trace(getattr(mod, name), example)
    return mod


def _no_files(name: str) -> NoReturn:
    raise NotImplementedError(
        f"adjit.jit.{name}: there are no files of TorchScript. Save model.state_dict() with adjit.save (or "
        "torch.save, from a program that can run the file), and load it into the module made in Python."
    )


def save(m: Any, f: Any, _extra_files: Any = None) -> NoReturn:
    """Refuse: there are no files of graphs.

    Raises:
        NotImplementedError: always, with what to do instead.

    Example:
        >>> adjit.jit.save(nn.Linear(2, 1), "model.pt")
        Traceback (most recent call last):
            ...
        NotImplementedError: adjit.jit.save: there are no files of TorchScript. Save ...
    """
    _no_files("save")


def load(
    f: Any, map_location: Any = None, _extra_files: Any = None, _restore_shapes: bool = False
) -> NoReturn:
    """Refuse: there are no files of graphs.

    Raises:
        NotImplementedError: always, with what to do instead.

    Example:
        >>> adjit.jit.load("model.pt")
        Traceback (most recent call last):
            ...
        NotImplementedError: adjit.jit.load: there are no files of TorchScript. Save ...
    """
    _no_files("load")


def is_scripting() -> bool:
    """False: nothing is scripted.

    Example:
        >>> adjit.jit.is_scripting()
        False
    """
    return False


def is_tracing() -> bool:
    """False: calls on example inputs are ordinary calls.

    Example:
        >>> adjit.jit.is_tracing()
        False
    """
    return False


def annotate(the_type: Any, the_value: T) -> T:
    """Return the value, whose type PyTorch's compiler is told.

    Example:
        >>> adjit.jit.annotate(list[int], [1, 2])
        [1, 2]
    """
    return the_value


def _overload(func: T) -> T:
    """The function as it is: a declaration of types for TorchScript, and Python calls the last one."""
    return func


_overload_method = _overload


def _unwrap_optional(x: T | None) -> T:
    """Return what is not None, as old copies of PyTorch's attention do with weights."""
    assert x is not None, "Unwrapping null optional"
    return x


def export(fn: T) -> T:
    """Return the function.

    Example:
        >>> adjit.jit.export(abs) is abs
        True
    """
    return fn


def unused(fn: T) -> T:
    """Return the function, which is called as any other.

    Example:
        >>> adjit.jit.unused(abs) is abs
        True
    """
    return fn


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """Return the function; with other arguments, a decorator that does.

    Example:
        >>> adjit.jit.ignore(abs) is abs, adjit.jit.ignore(drop=True)(abs) is abs
        (True, True)
    """
    return drop if callable(drop) else export


def interface(obj: T) -> T:
    """Return the class.

    Example:
        >>> adjit.jit.interface(list) is list
        True
    """
    return obj


def script_method(fn: T) -> T:
    """Return the method.

    Example:
        >>> adjit.jit.script_method(abs) is abs
        True
    """
    return fn


def script_if_tracing(fn: T) -> T:
    """Return the function.

    Example:
        >>> adjit.jit.script_if_tracing(abs) is abs
        True
    """
    return fn


_script_if_tracing = script_if_tracing  # its name in older programs, and in torchvision


def Attribute(value: T, type: Any) -> T:
    """Return the value, whose type PyTorch's compiler is told.

    Example:
        >>> adjit.jit.Attribute(3, int)
        3
    """
    return value


_is_instance = isinstance


def isinstance(obj: Any, target_type: Any) -> bool:
    """True if an object is of a type, which may name those of its elements: `list[int]`, `dict[str, float]`.

    Example:
        >>> adjit.jit.isinstance([1, 2], list[int]), adjit.jit.isinstance([1, "a"], list[int])
        (True, False)
    """
    if _is_instance(target_type, tuple):
        return any(isinstance(obj, one) for one in target_type)
    origin, args = typing.get_origin(target_type), typing.get_args(target_type)
    if origin is None:
        return target_type is Any or _is_instance(obj, target_type)
    if not _is_instance(origin, type) or origin.__module__ == "types":  # a union
        return any(isinstance(obj, one) for one in args)
    if not _is_instance(obj, origin):
        return False
    if origin is tuple:
        return len(obj) == len(args) and all(map(isinstance, obj, args))
    if origin is dict:
        return all(isinstance(k, args[0]) and isinstance(v, args[1]) for k, v in obj.items())
    return all(isinstance(item, args[0]) for item in obj)


def freeze(
    mod: Module,
    preserved_attrs: Any = None,
    optimize_numerics: bool = True,
    preserve_parameters: bool = False,
) -> Module:
    """Return the module, which has to be in evaluation mode.

    Raises:
        RuntimeError: if it is in training mode.

    Example:
        >>> net = nn.Linear(2, 1).eval()
        >>> adjit.jit.freeze(net) is net
        True
    """
    if mod.training:
        raise RuntimeError(
            "Freezing is currently only implemented for modules in eval mode. Please call .eval() on your "
            "module before freezing."
        )
    return mod


def optimize_for_inference(mod: Module, other_methods: Any = None) -> Module:
    """Return the module in evaluation mode.

    Example:
        >>> adjit.jit.optimize_for_inference(nn.Linear(2, 1)).training
        False
    """
    return mod.eval()


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function now; `wait` gives its result.

    Example:
        >>> adjit.jit.wait(adjit.jit.fork(abs, -1))
        1
    """
    return func(*args, **kwargs)


def wait(future: T) -> T:
    """Return what `fork` gave.

    Example:
        >>> adjit.jit.wait(1)
        1
    """
    return future


def set_fusion_strategy(strategy: Any) -> list[Any]:
    """Change nothing; `adjit.compile` decides. Returns the strategy before, of which there is none.

    Example:
        >>> adjit.jit.set_fusion_strategy([("DYNAMIC", 3)])
        []
    """
    return []


def enable_onednn_fusion(enabled: bool) -> None:
    """Change nothing: there is no oneDNN.

    Example:
        >>> adjit.jit.enable_onednn_fusion(True)
    """


def onednn_fusion_enabled() -> bool:
    """False: there is no oneDNN.

    Example:
        >>> adjit.jit.onednn_fusion_enabled()
        False
    """
    return False


@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """Change nothing in a block.

    Example:
        >>> with adjit.jit.optimized_execution(False):
        ...     adjit.ones(2)
        tensor([1., 1.])
    """
    yield


@contextlib.contextmanager
def fuser(name: str) -> Iterator[None]:
    """Change nothing in a block.

    Example:
        >>> with adjit.jit.fuser("fuser1"):
        ...     adjit.ones(2)
        tensor([1., 1.])
    """
    yield


@contextlib.contextmanager
def strict_fusion() -> Iterator[None]:
    """Change nothing in a block.

    Example:
        >>> with adjit.jit.strict_fusion():
        ...     adjit.ones(2)
        tensor([1., 1.])
    """
    yield
