"""Module: a tree of parameters, buffers and submodules with a forward, its state and its hooks."""

from __future__ import annotations

import builtins
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple, Self

from .. import printing
from ..absent import ROOT
from ..autograd.modes import no_grad
from ..captured import compile
from ..captured.reach import module_classes
from ..devices import device as Device
from ..dtypes import dtype as DType
from ..graph.export import is_own_function
from ..graph.node import RemovableHandle
from ..ops import creation
from ..tensor import Tensor
from .hooks import BackwardHook, hook_output
from .parameter import Buffer, Parameter, is_lazy

Hook = Callable[..., Any]
Hooks = OrderedDict[int, Hook]

_EXTRA_STATE_KEY = "_extra_state"

# Hooks on every module, run before the module's own ones.
_global_forward_pre_hooks: Hooks = OrderedDict()
_global_forward_hooks: Hooks = OrderedDict()
_global_backward_pre_hooks: Hooks = OrderedDict()
_global_backward_hooks: Hooks = OrderedDict()
# Hooks that see what becomes a part of a module, and may exchange it.
_global_parameter_registration_hooks: Hooks = OrderedDict()
_global_buffer_registration_hooks: Hooks = OrderedDict()
_global_module_registration_hooks: Hooks = OrderedDict()


class IncompatibleKeys(NamedTuple):
    """What `load_state_dict` found on one side only."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return (
            f"_IncompatibleKeys(missing_keys={self.missing_keys}, "
            f"unexpected_keys={self.unexpected_keys})"
        )


_IncompatibleKeys = IncompatibleKeys  # PyTorch's name


class _WithKwargs:
    """Marks a forward hook that wants the keyword arguments too."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook

    def __call__(self, *args: Any) -> Any:
        return self.hook(*args)


class _AlwaysCalled:
    """Marks a forward hook that runs even if the forward raises."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook


class _OfTheOutput:
    """Marks a backward hook of the old kind, which sits on the function that made the output."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook


_TWO_KINDS = (
    "Cannot use both regular backward hooks and full backward hooks on a single Module. Please use "
    "only one of them."
)
_TWO_KINDS_FOR_ALL = _TWO_KINDS.replace("on a single Module", "as a global Module hook")


def register_module_forward_pre_hook(hook: Hook) -> RemovableHandle:
    """Run `hook(module, args) -> None or new args` before the forward of every module.

    Returns a handle whose `remove()` takes the hook away.
    """
    return _register(_global_forward_pre_hooks, hook)


def register_module_forward_hook(hook: Hook, *, with_kwargs: bool = False) -> RemovableHandle:
    """Run `hook(module, args, output) -> None or new output` after every module's forward.

    With `with_kwargs` the call is `hook(module, args, kwargs, output)`.
    """
    return _register(_global_forward_hooks, _WithKwargs(hook) if with_kwargs else hook)


def register_module_full_backward_pre_hook(hook: Hook) -> RemovableHandle:
    """Run `hook(module, grad_output) -> None or new grad_output` on every module."""
    return _register(_global_backward_pre_hooks, hook)


def register_module_backward_hook(hook: Hook) -> RemovableHandle:
    """Run `hook(module, grad_input, grad_output) -> None or new grad_input` on the last function of every
    module; see `Module.register_backward_hook`.

    Raises:
        RuntimeError: there are hooks of `register_module_full_backward_hook`.
    """
    if any(not isinstance(known, _OfTheOutput) for known in _global_backward_hooks.values()):
        raise RuntimeError(_TWO_KINDS_FOR_ALL)
    return _register(_global_backward_hooks, _OfTheOutput(hook))  # type: ignore[arg-type]


def register_module_full_backward_hook(hook: Hook) -> RemovableHandle:
    """Run `hook(module, grad_input, grad_output) -> None or new grad_input` on every module.

    Raises:
        RuntimeError: there are hooks of `register_module_backward_hook`.
    """
    if any(isinstance(known, _OfTheOutput) for known in _global_backward_hooks.values()):
        raise RuntimeError(_TWO_KINDS_FOR_ALL)
    return _register(_global_backward_hooks, hook)


def register_module_parameter_registration_hook(hook: Hook) -> RemovableHandle:
    """Run `hook(module, name, param) -> None or new param` whenever a parameter becomes one of a module.

    Returns a handle whose `remove()` takes the hook away.
    """
    return _register(_global_parameter_registration_hooks, hook)


def register_module_buffer_registration_hook(hook: Hook) -> RemovableHandle:
    """Run `hook(module, name, buffer) -> None or new buffer` whenever a buffer becomes one of a module.

    Returns a handle whose `remove()` takes the hook away.
    """
    return _register(_global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook: Hook) -> RemovableHandle:
    """Run `hook(module, name, submodule) -> None or new submodule` whenever a module becomes a part of one.

    Returns a handle whose `remove()` takes the hook away.
    """
    return _register(_global_module_registration_hooks, hook)


def _passed(hooks: Hooks, module: Module, name: str, value: Any) -> Any:
    """What hooks make of what becomes a part of a module."""
    for hook in hooks.values():
        made = hook(module, name, value)
        value = value if made is None else made
    return value


class Module:
    """Base class of all neural network modules.

    Subclasses call `super().__init__()`, assign parameters, buffers and submodules as attributes,
    and define `forward`. Calling the module runs `forward` and the registered hooks.

    Example:
        >>> class Regression(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.head = nn.Linear(3, 1)
        ...
        ...     def forward(self, x):
        ...         return self.head(x)
        >>> Regression()
        Regression(
          (head): Linear(in_features=3, out_features=1, bias=True)
        )
    """

    # Helpers begin with two underscores: a subclass may have a `_refuse` or a `_branch` of its own.

    # Written into the state dict's metadata; a subclass that changes its state raises it and
    # translates older states in _load_from_state_dict.
    _version: int = 1
    call_super_init: bool = False
    _compiled_call_impl: Callable[..., Any] | None = None  # what calls go to after compile()

    training: bool
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _non_persistent_buffers_set: set[str]
    _modules: dict[str, Module | None]
    _backward_pre_hooks: Hooks
    _backward_hooks: Hooks
    _forward_hooks: Hooks
    _forward_pre_hooks: Hooks
    _state_dict_pre_hooks: Hooks
    _state_dict_hooks: OrderedDict[int, tuple[Hook, bool]]
    _load_state_dict_pre_hooks: OrderedDict[int, tuple[Hook, bool]]
    _load_state_dict_post_hooks: Hooks

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Have attributes such as `conv = adjit.conv2d` stay functions, as PyTorch's, built in, do."""
        super().__init_subclass__(**kwargs)
        if cls.__module__.partition(".")[0] != ROOT:
            for name, value in list(vars(cls).items()):
                if is_own_function(value):
                    setattr(cls, name, staticmethod(value))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init:
            if kwargs:
                raise TypeError(
                    f"{type(self).__name__}.__init__() got an unexpected keyword argument "
                    f"'{next(iter(kwargs))}'"
                )
            if args:
                raise TypeError(
                    f"{type(self).__name__}.__init__() takes 1 positional argument but "
                    f"{len(args) + 1} were given"
                )
        # Past __setattr__, which looks for parameters, modules and buffers first.
        self.__dict__.update(
            training=True,
            _parameters={},
            _buffers={},
            _non_persistent_buffers_set=set(),
            _modules={},
            _backward_pre_hooks=OrderedDict(),
            _backward_hooks=OrderedDict(),
            _forward_hooks=OrderedDict(),
            _forward_pre_hooks=OrderedDict(),
            _state_dict_pre_hooks=OrderedDict(),
            _state_dict_hooks=OrderedDict(),
            _load_state_dict_pre_hooks=OrderedDict(),
            _load_state_dict_post_hooks=OrderedDict(),
        )
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    def _forward_unimplemented(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the output: written by every subclass, and run by calling the module.

        Raises:
            NotImplementedError: if the subclass has none.

        Example:
            >>> class Double(nn.Module):
            ...     def forward(self, x):
            ...         return 2 * x
            >>> Double()(adjit.ones(2))
            tensor([2., 2.])
        """
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    forward: Callable[..., Any] = _forward_unimplemented

    # ---- calling -------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        attributes = self.__dict__  # each by its own would go through the type's __getattr__
        if not (
            attributes["_forward_hooks"]
            or attributes["_forward_pre_hooks"]
            or attributes["_backward_hooks"]
            or attributes["_backward_pre_hooks"]
            or _global_forward_hooks
            or _global_forward_pre_hooks
            or _global_backward_hooks
            or _global_backward_pre_hooks
            or self._compiled_call_impl is not None
            or self.__class__._call_impl is not _call_impl
            or "_call_impl" in attributes
        ):
            return self.forward(*args, **kwargs)
        if self._compiled_call_impl is not None:
            return self._compiled_call_impl(*args, **kwargs)
        return self._call_impl(*args, **kwargs)

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        """What a call does where it is not compiled."""
        return self.__call_with_hooks(args, kwargs)

    def compile(self, **options: Any) -> None:
        """Have calls of this module captured and replayed, hooks included; see `adjit.compile`.

        Example:
            >>> model = adjit.nn.Linear(3, 1)
            >>> model.compile()
            >>> model(adjit.ones(2, 3)).shape
            adjit.Size([2, 1])
        """
        self.__dict__["_compiled_call_impl"] = compile(self._call_impl, **options)

    def __call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for hook in (*_global_forward_pre_hooks.values(), *self._forward_pre_hooks.values()):
            if isinstance(hook, _WithKwargs):
                args, kwargs = _replaced_args_kwargs(hook(self, args, kwargs), args, kwargs)
            else:
                args = _replaced_args(hook(self, args), args)

        backward_pre_hooks = [
            *_global_backward_pre_hooks.values(),
            *self._backward_pre_hooks.values(),
        ]
        backward_hooks: list[Any] = [
            *_global_backward_hooks.values(), *self._backward_hooks.values()
        ]  # fmt: skip
        of_output = [hook.hook for hook in backward_hooks if isinstance(hook, _OfTheOutput)]
        backward_hooks = [hook for hook in backward_hooks if not isinstance(hook, _OfTheOutput)]
        bracket = None
        if backward_hooks or backward_pre_hooks:
            bracket = BackwardHook(self, backward_hooks, backward_pre_hooks)
            args = bracket.bracket_inputs(args)

        result = self.__forward_with_hooks(args, kwargs)

        if bracket is not None:
            if not isinstance(result, (Tensor, tuple)):
                warnings.warn(
                    "For backward hooks to be called, module output should be a Tensor or a tuple "
                    f"of Tensors but received {type(result)}",
                    stacklevel=3,
                )
            result = bracket.bracket_outputs(result)
        if of_output:
            hook_output(self, of_output, args, result)
        return result

    def __forward_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What `forward` returns, after the forward hooks. If one raises, or `forward` does, those that
        are to be called always are, and what they raise themselves is a warning."""
        result = None
        waiting = [*_global_forward_hooks.values(), *self._forward_hooks.values()]
        try:
            result = self.forward(*args, **kwargs)
            while waiting:
                changed = _run_forward_hook(waiting.pop(0), self, args, kwargs, result)
                result = result if changed is None else changed
        except Exception:
            for hook in waiting:
                if not isinstance(hook, _AlwaysCalled):
                    continue
                try:
                    changed = _run_forward_hook(hook, self, args, kwargs, result)
                    result = result if changed is None else changed
                except Exception as error:
                    warnings.warn(
                        "module forward hook with ``always_call=True`` raised an exception that was "
                        f"silenced as another error was raised in forward: {error}",
                        stacklevel=4,
                    )
            raise
        return result

    # ---- attributes ----------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        attributes = self.__dict__
        parameters = attributes.get("_parameters")
        if parameters is not None:
            if name in parameters:  # without a loop: a small layer takes hardly longer than this
                return parameters[name]
            if name in attributes["_buffers"]:
                return attributes["_buffers"][name]
            if name in attributes["_modules"]:
                return attributes["_modules"][name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        attributes = self.__dict__
        parameters = attributes.get("_parameters")
        if isinstance(value, Parameter):
            if parameters is None:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self.__forget(name, attributes, self._buffers, self._modules)
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            if parameters is None:
                raise AttributeError("cannot assign module before Module.__init__() call")
            if name in parameters:
                self.__refuse(value, f"parameter '{name}' (torch.nn.Parameter or None expected)")
            self.__forget(name, attributes, parameters, self._buffers)
            self._modules[name] = _passed(_global_module_registration_hooks, self, name, value)
        elif parameters is None:
            if isinstance(value, Buffer):
                raise AttributeError("cannot assign buffer before Module.__init__() call")
            super().__setattr__(name, value)
        elif name in parameters:
            if value is not None:
                self.__refuse(value, f"parameter '{name}' (torch.nn.Parameter or None expected)")
            parameters[name] = None
        elif name in self._modules:
            if value is not None:
                self.__refuse(value, f"child module '{name}' (torch.nn.Module or None expected)")
            self._modules[name] = _passed(_global_module_registration_hooks, self, name, None)
        elif isinstance(value, Buffer) or name in self._buffers:
            if value is not None and not isinstance(value, Tensor):
                self.__refuse(
                    value,
                    f"buffer '{name}' (torch.nn.Buffer, torch.Tensor or None expected)",
                )
            if isinstance(value, Buffer):
                self.register_buffer(name, value, value.persistent)
            else:
                self._buffers[name] = _passed(_global_buffer_registration_hooks, self, name, value)
        else:
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        for registry in (self._parameters, self._buffers, self._modules):
            if name in registry:
                del registry[name]
                self._non_persistent_buffers_set.discard(name)
                return
        super().__delattr__(name)

    def __dir__(self) -> list[str]:
        names = chain(
            dir(type(self)), self.__dict__, self._parameters, self._modules, self._buffers
        )
        return sorted(name for name in names if not name[0].isdigit())

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value for name, value in self.__dict__.items() if name != "_compiled_call_impl"
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __forget(self, name: str, *registries: dict[str, Any]) -> None:
        for registry in registries:
            registry.pop(name, None)
        self._non_persistent_buffers_set.discard(name)

    def __refuse(self, value: Any, place: str) -> None:
        raise TypeError(f"cannot assign '{_typename(value)}' as {place}")

    # ---- registering ---------------------------------------------------------------------------

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter, reachable as the attribute `name`; None reserves the name.

        Raises:
            AttributeError: before `Module.__init__`.
            KeyError: a name that is empty, has a dot or is taken.
            TypeError: `param` is no Parameter, or the name no string.
            ValueError: `param` is computed from other tensors.

        Example:
            >>> net = nn.Module()
            >>> net.register_parameter("scale", nn.Parameter(adjit.ones(1)))
            >>> net.scale
            Parameter containing:
            tensor([1.], requires_grad=True)
        """
        self.__check_new_name("parameter", name, self.__dict__.get("_parameters"))
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{_typename(param)}' object to parameter '{name}' "
                "(torch.nn.Parameter or None required)"
            )
        if param is not None and param.grad_fn is not None:
            raise ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be "
                f"created explicitly. To express '{name}' as a function of another Tensor, compute "
                "the value in the forward() method."
            )
        if param is not None:  # hooks see None of buffers and modules alone, as in PyTorch
            param = _passed(_global_parameter_registration_hooks, self, name, param)
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that belongs to the module's state without being a parameter.

        Args:
            name: the attribute under which it is found.
            tensor: the buffer; None reserves the name and stays out of the state.
            persistent: whether `state_dict` holds it.

        Raises:
            AttributeError: before `Module.__init__`.
            KeyError: a name that is empty, has a dot or is taken.
            TypeError: `tensor` is no Tensor, or the name no string.

        Example:
            >>> net = nn.Module()
            >>> net.register_buffer("mean", adjit.zeros(1))
            >>> list(net.state_dict())
            ['mean']
        """
        self.__check_new_name("buffer", name, self.__dict__.get("_buffers"))
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{_typename(tensor)}' object to buffer '{name}' "
                "(torch Tensor or None required)"
            )
        self._buffers[name] = _passed(_global_buffer_registration_hooks, self, name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a submodule, reachable as the attribute `name`.

        Raises:
            TypeError: `module` is no Module, or the name no string.
            KeyError: a name that is empty, has a dot or is taken.

        Example:
            >>> net = nn.Module()
            >>> net.add_module("layer", nn.ReLU())
            >>> net.layer
            ReLU()
        """
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{_typename(module)} is not a Module subclass")
        if not isinstance(name, str):
            raise TypeError(f"module name should be a string. Got {_typename(name)}")
        if hasattr(self, name) and name not in self._modules:
            raise KeyError(f"attribute '{name}' already exists")
        if "." in name:
            raise KeyError(f'module name can\'t contain ".", got: {name}')
        if name == "":
            raise KeyError('module name can\'t be empty string ""')
        self._modules[name] = _passed(_global_module_registration_hooks, self, name, module)

    def register_module(self, name: str, module: Module | None) -> None:
        """Add a submodule: another name of `add_module`.

        Example:
            >>> net = nn.Module()
            >>> net.register_module("layer", nn.ReLU())
            >>> net.layer
            ReLU()
        """
        self.add_module(name, module)

    def __check_new_name(self, kind: str, name: str, registry: dict[str, Any] | None) -> None:
        if registry is None:
            raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {_typename(name)}")
        if "." in name:
            raise KeyError(f'{kind} name can\'t contain "."')
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')
        if hasattr(self, name) and name not in registry:
            raise KeyError(f"attribute '{name}' already exists")

    # ---- walking the tree ----------------------------------------------------------------------

    def get_submodule(self, target: str) -> Module:
        """The submodule at a dotted path; the empty path is the module itself.

        Args:
            target: the path, such as `"0.head"`; "" is this module.

        Raises:
            AttributeError: a part of the path is missing or no Module.

        Example:
            >>> nn.Sequential(nn.Sequential(nn.ReLU())).get_submodule("0.0")
            ReLU()
        """
        module: Any = self
        for name in target.split(".") if target else ():
            if not hasattr(module, name):
                raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
            module = getattr(module, name)
            if not isinstance(module, Module):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put a module at a dotted path; with `strict` only where one is already.

        Args:
            target: the path, such as `"0.head"`.
            module: the new module.
            strict: raise where there is none yet.

        Raises:
            ValueError: an empty path, or `module` is no Module.
            AttributeError: the parent is missing, or the name holds something else.

        Example:
            >>> net = nn.Sequential(nn.Linear(2, 1), nn.ReLU())
            >>> net.set_submodule("1", nn.Tanh())
            >>> net[1]
            Tanh()
        """
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if not hasattr(parent, name):
            if strict:
                raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        elif not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """Find the parameter at a dotted path; AttributeError where there is none.

        Args:
            target: the path, such as `"0.weight"`.

        Example:
            >>> net = nn.Sequential(nn.Linear(2, 1), nn.ReLU())
            >>> net.get_parameter("0.bias").shape
            adjit.Size([1])
        """
        param = self.__get_tensor(target)
        if not isinstance(param, Parameter):
            raise AttributeError(f"`{target.rpartition('.')[2]}` is not an nn.Parameter")
        return param

    def get_buffer(self, target: str) -> Tensor:
        """Find the buffer at a dotted path; AttributeError where there is none.

        Args:
            target: the path, such as `"0.weight"`.

        Example:
            >>> net = nn.Sequential(nn.BatchNorm1d(2))
            >>> net.get_buffer("0.running_mean")
            tensor([0., 0.])
        """
        buffer = self.__get_tensor(target)
        path, _, name = target.rpartition(".")
        if name not in self.get_submodule(path)._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return buffer

    def __get_tensor(self, target: str) -> Any:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        return getattr(module, name)

    def named_modules(
        self,
        memo: set[Module] | None = None,
        prefix: str = "",
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, Module]]:
        """Iterate over all modules of the tree with their dotted names, this one first.

        A module that occurs several times comes once, unless `remove_duplicate` is False.

        Args:
            memo: modules that were found before, which are left out.
            prefix: put before the names.
            remove_duplicate: whether shared modules come once.

        Example:
            >>> net = nn.Sequential(nn.Linear(2, 1), nn.ReLU())
            >>> [name for name, _ in net.named_modules()]
            ['', '0', '1']
        """
        memo = set() if memo is None else memo
        waiting: list[tuple[str, Module]] = [
            (prefix, self)
        ]  # a generator in each other one took as long again
        while waiting:
            path, module = waiting.pop()
            if module is not self and type(module).named_modules is not Module.named_modules:
                yield from module.named_modules(memo, path, remove_duplicate)
                continue
            if module in memo:
                continue
            if remove_duplicate:
                memo.add(module)
            yield path, module
            below = [
                (_joined(path, name), m) for name, m in module._modules.items() if m is not None
            ]
            waiting += reversed(below)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """Iterate over all modules of the tree, this one first.

        Example:
            >>> net = nn.Sequential(nn.Linear(2, 1), nn.ReLU())
            >>> [type(m).__name__ for m in net.modules()]
            ['Sequential', 'Linear', 'ReLU']
        """
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Iterate over the direct submodules with their names, each once.

        Example:
            >>> net = nn.Sequential(nn.Linear(2, 1), nn.ReLU())
            >>> list(net.named_children())
            [('0', Linear(in_features=2, out_features=1, bias=True)), ('1', ReLU())]
        """
        seen: set[Module] = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """Iterate over the direct submodules, each once.

        Example:
            >>> net = nn.Sequential(nn.Linear(2, 1), nn.ReLU())
            >>> list(net.children())
            [Linear(in_features=2, out_features=1, bias=True), ReLU()]
        """
        for _, module in self.named_children():
            yield module

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """The parameters with their dotted names; a shared one comes once, under its first name.

        Args:
            prefix: put before the names.
            recurse: those of submodules too.
            remove_duplicate: whether shared ones come once.

        Example:
            >>> for name, param in nn.Linear(2, 1).named_parameters():
            ...     print(name, param.shape)
            weight adjit.Size([1, 2])
            bias adjit.Size([1])
        """
        yield from self._named_members(
            lambda module: module._parameters.items(), prefix, recurse, remove_duplicate
        )

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Iterate over the parameters, shared ones once: what an optimiser is given.

        Args:
            recurse: those of submodules too.

        Example:
            >>> net = nn.Sequential(nn.Linear(2, 1), nn.ReLU())
            >>> [p.shape for p in net.parameters()]
            [adjit.Size([1, 2]), adjit.Size([1])]
        """
        for _, param in self.named_parameters(recurse=recurse):
            yield param

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Iterate over the buffers with their dotted names.

        Args:
            prefix: put before the names.
            recurse: those of submodules too.
            remove_duplicate: whether shared ones come once.

        Example:
            >>> [name for name, _ in nn.Sequential(nn.BatchNorm1d(2)).named_buffers()]
            ['0.running_mean', '0.running_var', '0.num_batches_tracked']
        """
        yield from self._named_members(
            lambda module: module._buffers.items(), prefix, recurse, remove_duplicate
        )

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Iterate over the buffers, shared ones once.

        Args:
            recurse: those of submodules too.

        Example:
            >>> len(list(nn.BatchNorm1d(2).buffers()))
            3
        """
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def _named_members(
        self,
        members_of: Callable[[Module], Iterable[tuple[str, Any]]],
        prefix: str = "",
        recurse: bool = True,
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        modules: Iterable[tuple[str, Module]] = [(prefix, self)]
        if recurse:
            modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
        for module_prefix, module in modules:
            for name, member in members_of(module):
                if member is None or id(member) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(member))
                yield _joined(module_prefix, name), member

    # ---- modes and conversions -----------------------------------------------------------------

    def train(self, mode: bool = True) -> Self:
        """Set training mode (dropout active) on the whole tree; `train(False)` is `eval()`.

        Raises:
            ValueError: `mode` is no bool.

        Example:
            >>> net = nn.Sequential(nn.Linear(2, 1), nn.ReLU())
            >>> net.train().training, net.train(False).training
            (True, False)
        """
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Self:
        """Set evaluation mode on the whole tree.

        Example:
            >>> net = nn.Sequential(nn.Linear(2, 1), nn.ReLU())
            >>> net.eval().training
            False
        """
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set `requires_grad` on all parameters.

        Example:
            >>> net = nn.Sequential(nn.Linear(2, 1), nn.ReLU())
            >>> net.requires_grad_(False)[0].weight.requires_grad
            False
        """
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or zero them where `set_to_none` is False.

        Example:
            >>> net = nn.Sequential(nn.Linear(2, 1), nn.ReLU())
            >>> net(adjit.ones(2)).sum().backward()
            >>> net.zero_grad()
            >>> net[0].weight.grad is None
            True
        """
        for param in self.parameters():
            if param.grad is None:
                continue
            if set_to_none:
                param.grad = None
            elif param.grad.grad_fn is not None:
                param.grad.detach_().zero_()
            else:
                param.grad.requires_grad_(False).zero_()

    def apply(self, fn: Callable[[Module], Any]) -> Self:
        """Call `fn` on every submodule and then on this one, to initialise for example.

        Example:
            >>> def without_bias(module):
            ...     if isinstance(module, nn.Linear):
            ...         nn.init.zeros_(module.bias)
            >>> nn.Sequential(nn.Linear(2, 2)).apply(without_bias)[0].bias.tolist()
            [0.0, 0.0]
        """
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        if recurse:
            for module in self.children():
                module._apply(fn)
        for param in self._parameters.values():
            if param is None:
                continue
            with no_grad():
                param.data = fn(param.data if is_lazy(param) else param)
                if param.grad is not None:
                    param.grad.data = fn(param.grad)
        for name, buffer in self._buffers.items():
            if buffer is not None and is_lazy(buffer):
                buffer.data = fn(buffer.data)
            elif buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move all parameters and buffers, in place: `to(device)`, `to(dtype)`, `to(tensor)`,
        `to(device, dtype)`.

        The dtype is applied to floating-point and complex tensors only.

        Raises:
            TypeError: an integer or bool dtype, or arguments of another kind.

        Example:
            >>> net = nn.Sequential(nn.Linear(2, 1), nn.ReLU())
            >>> net.to(adjit.float64)[0].weight.dtype
            adjit.float64
        """
        where = _parse_to(args, kwargs)
        dtype = where.pop("dtype")
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(
                "nn.Module.to only accepts floating point or complex dtypes, but got desired "
                f"dtype={dtype}"
            )
        memory_format = where.pop("memory_format")

        def convert(tensor: Tensor) -> Tensor:
            options = {key: value for key, value in where.items() if value is not None}
            if dtype is not None and (tensor.is_floating_point() or tensor.is_complex()):
                options["dtype"] = dtype
            if memory_format is not None and tensor.dim() in (4, 5):
                options["memory_format"] = memory_format
            return tensor.to(**options) if options else tensor

        return self._apply(convert)

    def to_empty(self, *, device: Any, recurse: bool = True) -> Self:
        """Move all parameters and buffers to a device, in place, without their values.

        Args:
            device: where to.
            recurse: those of submodules too.

        Example:
            >>> nn.Linear(2, 1).to_empty(device="cpu").weight.shape
            adjit.Size([1, 2])
        """
        return self._apply(lambda t: creation.empty_like(t, device=device), recurse)

    def cpu(self) -> Self:
        """Move all parameters and buffers to the CPU, in place.

        Example:
            >>> net = nn.Sequential(nn.Linear(2, 1), nn.ReLU())
            >>> net.cpu()[0].weight.device
            device(type='cpu')
        """
        return self._apply(lambda tensor: tensor.cpu())

    def cuda(self, device: Any = None) -> Self:
        """Move all parameters and buffers to a GPU, in place.

        Example:
            >>> nn.Linear(2, 1).cuda().weight.device
            device(type='cuda', index=0)
        """
        return self._apply(lambda tensor: tensor.cuda(device))

    def float(self) -> Self:
        """Cast the floating-point parameters and buffers to float32, in place.

        Example:
            >>> net = nn.Sequential(nn.Linear(2, 1), nn.ReLU())
            >>> net.double().float()[0].weight.dtype
            adjit.float32
        """
        return self._apply(lambda t: t.float() if t.is_floating_point() else t)

    def double(self) -> Self:
        """Cast the floating-point parameters and buffers to float64, in place.

        Example:
            >>> net = nn.Sequential(nn.Linear(2, 1), nn.ReLU())
            >>> net.double()[0].weight.dtype
            adjit.float64
        """
        return self._apply(lambda t: t.double() if t.is_floating_point() else t)

    def half(self) -> Self:
        """Refuse: no tensor has the dtype `adjit.float16` here.

        Raises:
            NotImplementedError: if there is a floating-point parameter or buffer.

        Example:
            >>> nn.Linear(2, 1).half()
            Traceback (most recent call last):
                ...
            NotImplementedError: adjit.float16 is not supported yet; use adjit.float32 or adjit.float64 ...
        """
        return self._apply(lambda t: t.half() if t.is_floating_point() else t)

    def bfloat16(self) -> Self:
        """Refuse: no tensor has the dtype `adjit.bfloat16` here.

        Raises:
            NotImplementedError: if there is a floating-point parameter or buffer.

        Example:
            >>> nn.Linear(2, 1).bfloat16()
            Traceback (most recent call last):
                ...
            NotImplementedError: adjit.bfloat16 is not supported yet; use adjit.float32 or adjit.float64 ...
        """
        return self._apply(lambda t: t.bfloat16() if t.is_floating_point() else t)

    def type(self, dst_type: DType | str) -> Self:
        """Cast all parameters and buffers to `dst_type`, in place.

        Example:
            >>> net = nn.Sequential(nn.Linear(2, 1), nn.ReLU())
            >>> net.type(adjit.float64)[0].weight.dtype
            adjit.float64
        """
        return self._apply(lambda tensor: tensor.type(dst_type))

    def share_memory(self) -> Self:
        """Move parameters and buffers into memory that other processes can look at.

        Raises:
            RuntimeError: one of them has no shape yet.

        Example:
            >>> nn.Linear(2, 1).share_memory().weight.is_shared()
            True
        """
        if any(map(is_lazy, chain(self.parameters(), self.buffers()))):
            raise RuntimeError(
                "Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the "
                "parameters before calling `module.share_memory()`."
            )
        return self._apply(lambda tensor: tensor.share_memory_())

    # ---- hooks ---------------------------------------------------------------------------------

    def register_forward_pre_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Run `hook(module, args) -> None or new args` before every `forward`.

        With `with_kwargs` the call is `hook(module, args, kwargs)` and a result is a pair
        `(args, kwargs)`. `prepend` puts it before the hooks already there.

        Example:
            >>> relu = nn.ReLU()
            >>> handle = relu.register_forward_pre_hook(lambda module, args: (-args[0],))
            >>> relu(adjit.tensor([-1.0, 2.0]))
            tensor([1., 0.])
        """
        called = _WithKwargs(hook) if with_kwargs else hook
        return _register(self._forward_pre_hooks, called, prepend=prepend)

    def register_forward_hook(
        self,
        hook: Hook,
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Run `hook(module, args, output) -> None or new output` after every `forward`.

        With `with_kwargs` the call is `hook(module, args, kwargs, output)`; with `always_call` it
        is run even if `forward` raises, with None for the output.

        Example:
            >>> layer = nn.Flatten()
            >>> handle = layer.register_forward_hook(lambda module, args, out: print(out.shape))
            >>> _ = layer(adjit.zeros(2, 3, 4))
            adjit.Size([2, 12])
            >>> handle.remove()
        """
        called: Hook = _WithKwargs(hook) if with_kwargs else hook
        if always_call:
            called = _AlwaysCalled(called)  # type: ignore[assignment]
        return _register(self._forward_hooks, called, prepend=prepend)

    def register_full_backward_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Run `hook(module, grad_output) -> None or new grad_output` before the backward of the
        module; `grad_output` is a tuple, with None for what is no tensor.

        Example:
            >>> relu = nn.ReLU()
            >>> handle = relu.register_full_backward_pre_hook(lambda module, grad_output: print(grad_output))
            >>> relu(adjit.ones(1, requires_grad=True)).backward()
            (tensor([1.]),)
        """
        return _register(self._backward_pre_hooks, hook, prepend=prepend)

    def register_backward_hook(self, hook: Hook) -> RemovableHandle:
        """Run `hook(module, grad_input, grad_output)` on the function that made the output.

        The old kind of hook: where several operations make the output, `grad_input` are the gradients
        of the last one's inputs. Use `register_full_backward_hook`.

        Raises:
            RuntimeError: the module has hooks of the new kind.

        Example:
            >>> relu = nn.ReLU()
            >>> handle = relu.register_backward_hook(lambda module, grads, outer: print(grads))
            >>> relu(adjit.ones(1, requires_grad=True)).backward()
            (tensor([1.]),)
        """
        if any(not isinstance(known, _OfTheOutput) for known in self._backward_hooks.values()):
            raise RuntimeError(_TWO_KINDS)
        return _register(self._backward_hooks, _OfTheOutput(hook))  # type: ignore[arg-type]

    def register_full_backward_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Run `hook(module, grad_input, grad_output) -> None or new grad_input` once the
        gradients of the module's positional inputs are there; both are tuples, with None for what
        is no tensor.

        Raises:
            RuntimeError: the module has hooks of `register_backward_hook`.

        Example:
            >>> relu = nn.ReLU()
            >>> handle = relu.register_full_backward_hook(lambda module, grads, outer: print(grads))
            >>> relu(adjit.ones(1, requires_grad=True)).backward()
            (tensor([1.]),)
        """
        if any(isinstance(known, _OfTheOutput) for known in self._backward_hooks.values()):
            raise RuntimeError(_TWO_KINDS)
        return _register(self._backward_hooks, hook, prepend=prepend)

    def register_state_dict_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Run `hook(module, prefix, keep_vars)` before the module's state is collected.

        Example:
            >>> net = nn.Sequential(nn.Linear(2, 1), nn.ReLU())
            >>> handle = net.register_state_dict_pre_hook(lambda module, prefix, keep_vars: print("saving"))
            >>> names = list(net.state_dict())
            saving
        """
        return _register(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Hook) -> RemovableHandle:
        """Run `hook(module, state_dict, prefix, local_metadata)`, which may change the dict.

        Example:
            >>> net = nn.Sequential(nn.Linear(2, 1), nn.ReLU())
            >>> def without_bias(module, state_dict, prefix, local_metadata):
            ...     del state_dict["0.bias"]
            >>> handle = net.register_state_dict_post_hook(without_bias)
            >>> list(net.state_dict())
            ['0.weight']
        """
        return self._register_state_dict_hook(hook, may_replace=False)

    def _register_state_dict_hook(self, hook: Hook, may_replace: bool = True) -> RemovableHandle:
        """The older registration, which libraries call: the hook may give another dict."""
        handle = RemovableHandle(self._state_dict_hooks)
        self._state_dict_hooks[handle.id] = (hook, may_replace)
        return handle

    def register_load_state_dict_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Run `hook(module, state_dict, prefix, local_metadata, strict, missing_keys,
        unexpected_keys, error_msgs)` before the module takes its state.

        Example:
            >>> net = nn.Sequential(nn.Linear(2, 1), nn.ReLU())
            >>> handle = net.register_load_state_dict_pre_hook(lambda module, *_: print("loading"))
            >>> keys = net.load_state_dict(net.state_dict())
            loading
        """
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(
        self, hook: Hook, with_module: bool = False
    ) -> RemovableHandle:
        handle = RemovableHandle(self._load_state_dict_pre_hooks)
        self._load_state_dict_pre_hooks[handle.id] = (hook, with_module)
        return handle

    def register_load_state_dict_post_hook(self, hook: Hook) -> RemovableHandle:
        """Run `hook(module, incompatible_keys)` after the module took its state; the hook may
        change the two lists in place.

        Example:
            >>> net = nn.Sequential(nn.Linear(2, 1), nn.ReLU())
            >>> handle = net.register_load_state_dict_post_hook(lambda module, keys: keys.missing_keys.clear())
            >>> net.load_state_dict({"0.weight": adjit.zeros(1, 2)})
            <All keys matched successfully>
        """
        return _register(self._load_state_dict_post_hooks, hook)

    # ---- state ---------------------------------------------------------------------------------

    def get_extra_state(self) -> Any:
        """Give what `state_dict` stores besides tensors; override it with `set_extra_state`.

        Example:
            >>> class Counter(nn.Module):
            ...     count = 3
            ...     def get_extra_state(self):
            ...         return self.count
            >>> Counter().state_dict()["_extra_state"]
            3
        """
        raise RuntimeError(f"{self._get_name()} does not override get_extra_state()")

    def set_extra_state(self, state: Any) -> None:
        """Take back what `get_extra_state` returned.

        Example:
            >>> class Counter(nn.Module):
            ...     count = 3
            ...     def get_extra_state(self):
            ...         return self.count
            ...     def set_extra_state(self, state):
            ...         self.count = state
            >>> counter = Counter()
            >>> keys = counter.load_state_dict({"_extra_state": 5})
            >>> counter.count
            5
        """
        raise RuntimeError(f"{self._get_name()} does not override set_extra_state()")

    def state_dict(
        self,
        *args: Any,
        destination: dict[str, Any] | None = None,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> dict[str, Any]:
        """The parameters and persistent buffers of the tree under their dotted names.

        Args:
            destination: a dict to fill; a new one without it.
            prefix: put before every name.
            keep_vars: store the parameters themselves instead of detached tensors, which share
                the same memory.

        Example:
            >>> list(nn.Linear(2, 1).state_dict())
            ['weight', 'bias']
        """
        if args:
            warnings.warn(
                "Positional args are being deprecated, use kwargs instead. Refer to "
                "https://pytorch.org/docs/main/generated/torch.nn.Module.html"
                "#torch.nn.Module.state_dict for details.",
                FutureWarning,
                stacklevel=2,
            )
            given = dict(zip(("destination", "prefix", "keep_vars"), args, strict=False))
            destination = given.get("destination") if destination is None else destination
            prefix = given.get("prefix", "") if prefix == "" else prefix
            keep_vars = keep_vars or given.get("keep_vars", False)
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()  # type: ignore[attr-defined]
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(
                    destination=destination, prefix=prefix + name + ".", keep_vars=keep_vars
                )
        for hook, may_replace in self._state_dict_hooks.values():
            replaced = hook(self, destination, prefix, local_metadata)
            if replaced is None:
                continue
            if not may_replace:
                raise RuntimeError("state_dict post-hook must return None")
            destination = replaced
        return destination

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        for name, tensor in self.__persistent_state().items():
            is_as_it_is = keep_vars or is_lazy(tensor)
            destination[prefix + name] = tensor if is_as_it_is else tensor.detach()
        if type(self).get_extra_state is not Module.get_extra_state:
            destination[prefix + _EXTRA_STATE_KEY] = self.get_extra_state()

    def __persistent_state(self) -> dict[str, Tensor]:
        named: Iterable[tuple[str, Tensor | None]] = chain(
            self._parameters.items(),
            (
                (name, buffer)
                for name, buffer in self._buffers.items()
                if name not in self._non_persistent_buffers_set
            ),
        )
        return {name: tensor for name, tensor in named if tensor is not None}

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copy values into the parameters and persistent buffers of the tree.

        Args:
            state_dict: names to tensors, as `state_dict` gives them.
            strict: whether the names must be exactly those of the module.
            assign: put the given tensors in place of the module's own instead of copying.

        Returns:
            The names that were missing and those that were not expected.

        Raises:
            TypeError: `state_dict` is no mapping.
            RuntimeError: shapes differ, or, when strict, names do.

        Example:
            >>> nn.Linear(2, 1).load_state_dict(nn.Linear(2, 1).state_dict())
            <All keys matched successfully>
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(
                f"Expected state_dict to be dict-like, got {builtins.type(state_dict)}."
            )
        metadata = getattr(state_dict, "_metadata", None)
        # A copy, since _load_from_state_dict of a subclass may rename keys.
        state: dict[str, Any] = OrderedDict(state_dict)
        if metadata is not None:
            state._metadata = metadata  # type: ignore[attr-defined]
        keys = IncompatibleKeys([], [])
        errors: list[str] = []
        self.__load_tree(state, "", metadata, assign, keys, errors)
        if strict:
            for kind, names in (
                ("Unexpected", keys.unexpected_keys),
                ("Missing", keys.missing_keys),
            ):
                if names:
                    listed = ", ".join(f'"{name}"' for name in names)
                    errors.insert(0, f"{kind} key(s) in state_dict: {listed}. ")
        if errors:
            raise RuntimeError(
                "Error(s) in loading state_dict for {}:\n\t{}".format(
                    self._get_name(), "\n\t".join(errors)
                )
            )
        return keys

    def __load_tree(
        self,
        state: dict[str, Any],
        prefix: str,
        metadata: Mapping[str, Any] | None,
        assign: bool,
        keys: IncompatibleKeys,
        errors: list[str],
    ) -> None:
        local_metadata = dict((metadata or {}).get(prefix[:-1], {}))
        if assign:
            local_metadata["assign_to_params_buffers"] = True
        self._load_from_state_dict(
            state, prefix, local_metadata, True, keys.missing_keys, keys.unexpected_keys, errors
        )
        for name, module in self._modules.items():
            if module is not None:
                inner = prefix + name + "."
                inner_state = {key: state[key] for key in state if key.startswith(inner)}
                module.__load_tree(inner_state, inner, metadata, assign, keys, errors)
        for hook in self._load_state_dict_post_hooks.values():
            if hook(self, keys) is not None:
                raise AssertionError(
                    "Hooks registered with ``register_load_state_dict_post_hook`` are not expected "
                    "to return new values, if incompatible_keys need to be modified, it should be "
                    "done inplace."
                )

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Take this module's own entries; subclasses override it to read older states."""
        for hook, with_module in self._load_state_dict_pre_hooks.values():
            hook(
                *((self,) if with_module else ()),
                state_dict,
                prefix,
                local_metadata,
                strict,
                missing_keys,
                unexpected_keys,
                error_msgs,
            )
        assign = local_metadata.get("assign_to_params_buffers", False)
        local_state = self.__persistent_state()
        for name, param in local_state.items():
            key = prefix + name
            if key in state_dict:
                error = self.__load_tensor(key, name, param, state_dict[key], assign)
                if error is not None:
                    error_msgs.append(error)
            elif strict:
                missing_keys.append(key)

        extra_state_key = prefix + _EXTRA_STATE_KEY
        if type(self).set_extra_state is not Module.set_extra_state:
            if extra_state_key in state_dict:
                self.set_extra_state(state_dict[extra_state_key])
            elif strict:
                missing_keys.append(extra_state_key)
        elif strict and extra_state_key in state_dict:
            unexpected_keys.append(extra_state_key)

        if strict:
            for key in state_dict:
                if not key.startswith(prefix) or key == extra_state_key:
                    continue
                name, dot, _ = key[len(prefix) :].partition(".")
                if name not in (self._modules if dot else local_state):
                    unexpected_keys.append(key)

    def __load_tensor(
        self, key: str, name: str, param: Tensor, value: Any, assign: bool
    ) -> str | None:
        """Copy one entry of a state dict; what was wrong with it, if anything."""
        if not isinstance(value, Tensor):
            return (
                f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like '
                f"object from checkpoint but received {builtins.type(value)}"
            )
        if is_lazy(param) and is_lazy(value):
            return None
        if param.shape == () and value.shape == (1,):
            value = value[0]
        if value.shape != param.shape:
            return (
                f"size mismatch for {key}: copying a param with shape {value.shape} from "
                f"checkpoint, the shape in current model is {param.shape}."
            )
        try:
            with no_grad():
                if not assign:
                    param.copy_(value)
                elif not isinstance(param, Parameter):
                    setattr(self, name, value)
                elif isinstance(value, Parameter):
                    setattr(self, name, value.requires_grad_(param.requires_grad))
                else:
                    setattr(self, name, Parameter(value, requires_grad=param.requires_grad))
        except Exception as error:
            return (
                f'While copying the parameter named "{key}", whose dimensions in the model are '
                f"{param.shape} and whose dimensions in the checkpoint are {value.shape}, an "
                f"exception occurred : {error.args}."
            )
        return None

    # ---- printing ------------------------------------------------------------------------------

    def _get_name(self) -> str:
        return self.__class__.__name__

    def extra_repr(self) -> str:
        """Give the text between the parentheses of the repr; override it in a subclass.

        Example:
            >>> nn.Linear(2, 1).extra_repr()
            'in_features=2, out_features=1, bias=True'
        """
        return ""

    def __repr__(self) -> str:
        own = self.extra_repr()
        own_lines = own.split("\n") if own else []
        child_lines = [
            f"({name}): {indented(repr(module))}" for name, module in self._modules.items()
        ]
        if len(own_lines) == 1 and not child_lines:
            return f"{self._get_name()}({own})"
        lines = own_lines + child_lines
        inner = "\n  " + "\n  ".join(lines) + "\n" if lines else ""
        return f"{self._get_name()}({inner})"

    def _repr_html_(self) -> str:
        """The module as a tree that unfolds, which notebooks show; no tensor is computed."""
        return printing.module_html(self.__branch("", ()))

    def __branch(self, name: str, above: tuple[Module, ...]) -> printing.ModuleTree:
        own: list[tuple[str, Tensor, str]] = [
            (n, p, "" if p.requires_grad else "frozen")
            for n, p in self._parameters.items()
            if p is not None
        ]
        own += [(n, b, "buffer") for n, b in self._buffers.items() if b is not None]
        within = (*above, self)  # a module that holds itself is not unfolded again
        return printing.ModuleTree(
            name,
            self._get_name(),
            self.extra_repr(),
            [(n, _form(t), remark) for n, t, remark in own],
            sum([p.numel() for p in self.parameters() if not is_lazy(p)]),
            [
                m.__branch(n, within)
                for n, m in self._modules.items()
                if m is not None and m not in within
            ],
        )


_call_impl = Module._call_impl  # which programs may replace


def _form(t: Tensor) -> str:
    """The dtype and shape of a tensor as a line of a module's tree tells them."""
    return "uninitialized" if is_lazy(t) else f"{t.dtype} {tuple(t.shape)}"


def indented(text: str) -> str:
    """The text with every line but the first moved two columns to the right."""
    first, *rest = text.split("\n")
    return "\n".join([first, *("  " + line if line.strip() else "" for line in rest)])


def _register(hooks: Hooks, hook: Hook, *, prepend: bool = False) -> RemovableHandle:
    handle = RemovableHandle(hooks, hook)
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def _run_forward_hook(
    hook: Any, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> Any:
    if isinstance(hook, _AlwaysCalled):
        hook = hook.hook
    if isinstance(hook, _WithKwargs):
        return hook(module, args, kwargs, result)
    return hook(module, args, result)


def _replaced_args(result: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    if result is None:
        return args
    return result if isinstance(result, tuple) else (result,)


def _replaced_args_kwargs(
    result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if result is None:
        return args, kwargs
    if isinstance(result, tuple) and len(result) == 2:
        return result
    raise RuntimeError(
        f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {result}."
    )


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _typename(value: Any) -> str:
    """The name PyTorch's messages use: the tensor type, or the qualified name of anything else."""
    if isinstance(value, Tensor):
        return str(value.type())
    named = value if hasattr(value, "__qualname__") else type(value)
    module = getattr(named, "__module__", None)
    return named.__qualname__ if module in (None, "builtins") else f"{module}.{named.__qualname__}"


_KINDS_OF_TO: dict[str, Any] = {
    "tensor": Tensor, "device": (Device, str, int), "dtype": DType, "non_blocking": bool,
    "memory_format": object,
}  # fmt: skip


def _parse_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Sort the arguments of `to` into device, dtype and memory_format."""
    first = args[0] if args else None
    names: tuple[str, ...] = ("device", "dtype")
    if isinstance(first, (Tensor, DType)):
        names = ("tensor",) if isinstance(first, Tensor) else ("dtype",)
    given = dict(zip((*names, "non_blocking", "copy"), args, strict=False)) | kwargs
    if len(given) < len(args) + len(kwargs):  # too many, or one of them twice
        raise TypeError(_bad_to(args, kwargs))
    if "copy" in given:
        raise RuntimeError(".to() does not accept copy argument")
    for name, value in given.items():
        kind = _KINDS_OF_TO.get(name)
        is_flag = isinstance(value, bool) and kind is not bool
        if kind is None or is_flag or not (value is None or isinstance(value, kind)):
            raise TypeError(_bad_to(args, kwargs))
    like = given.get("tensor")
    if like is not None:
        if given.keys() - {"tensor", "non_blocking", "memory_format"}:
            raise TypeError(_bad_to(args, kwargs))
        given.update(device=like.device, dtype=like.dtype)
    return {name: given.get(name) for name in ("device", "dtype", "memory_format")}


def _bad_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    got = ", ".join(
        [type(arg).__name__ for arg in args]
        + [f"{name}={type(value).__name__}" for name, value in kwargs.items()]
    )
    return (
        f"to() received an invalid combination of arguments - got ({got}), but expected one of:\n"
        " * (torch.device device = None, torch.dtype dtype = None, bool non_blocking = False)\n"
        " * (torch.dtype dtype, bool non_blocking = False)\n"
        " * (Tensor tensor, bool non_blocking = False)"
    )


def entry(module: Module, name: str) -> Any:
    """`getattr(module, name)` by a name that no code has: parameters from where compiled functions look."""
    own = module._parameters
    return own[name] if name in own and name not in vars(module) else getattr(module, name)


module_classes.append(Module)


def _addindent(s_: str, numSpaces: int) -> str:
    """A text with all lines but the first further to the right, as `repr` of users' modules has it."""
    return s_.replace("\n", "\n" + " " * numSpaces)
