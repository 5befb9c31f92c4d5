"""The base of all optimisers: parameter groups, state, checkpoints and hooks."""

from __future__ import annotations

import functools
import math
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from itertools import chain, repeat
from operator import setitem
from typing import Any, Self, TypeAlias

from ..atomic import at_once, calling, setting, together
from ..autograd.modes import enable_grad, is_grad_enabled, set_grad_enabled
from ..dtypes import get_default_dtype
from ..graph import write
from ..graph.node import RemovableHandle
from ..graph.state import record_gradients, resume_gradients
from ..graph.state import state as switches
from ..ops.creation import tensor, zeros, zeros_like
from ..ops.steps import go_together, rule_step
from ..tensor import Tensor

ParamsT: TypeAlias = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]
StateDict: TypeAlias = dict[str, Any]
Closure: TypeAlias = Callable[[], Any]
Hooks: TypeAlias = "OrderedDict[int, Callable[..., Any]]"

_global_step_pre_hooks: Hooks = OrderedDict()
_global_step_post_hooks: Hooks = OrderedDict()

_HOOK_KINDS = (
    "_optimizer_step_pre_hooks",
    "_optimizer_step_post_hooks",
    "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks",
    "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)


class _Required:
    """Marks a default that every parameter group has to give."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


def _register(hooks: Hooks, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` before each step of every optimiser.

    What the hook returns, unless it is None, replaces `(args, kwargs)`; `args[0]` is the
    optimiser itself.

    Example:
        >>> handle = adjit.optim.optimizer.register_optimizer_step_pre_hook(
        ...     lambda optimizer, args, kwargs: print("step")
        ... )
        >>> handle.remove()
    """
    return _register(_global_step_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` after each step of every optimiser.

    Example:
        >>> handle = adjit.optim.optimizer.register_optimizer_step_post_hook(
        ...     lambda optimizer, args, kwargs: print("stepped")
        ... )
        >>> handle.remove()
    """
    return _register(_global_step_post_hooks, hook)


def _typename(value: object) -> str:
    """The name under which PyTorch's messages would show `value`'s type."""
    if isinstance(value, Tensor):
        return str(value.type())
    named = value if hasattr(value, "__qualname__") else type(value)
    module = getattr(named, "__module__", "") or ""
    qualname: str = named.__qualname__
    return qualname if module in ("", "builtins") else f"{module}.{qualname}"


def _hooked(step: Callable[..., Any]) -> Callable[..., Any]:
    """`step` between its hooks; a step that calls its base class's runs them once."""

    @functools.wraps(step)
    def hooked_step(*args: Any, **kwargs: Any) -> Any:
        self: Optimizer = args[0]
        if type(self).step is not hooked_step:
            return step(*args, **kwargs)
        if self._opt_called is not None:
            self._opt_called = True
        if _global_step_pre_hooks or self._optimizer_step_pre_hooks:
            for hook in (
                *_global_step_pre_hooks.values(), *self._optimizer_step_pre_hooks.values()
            ):  # fmt: skip
                result = hook(self, args, kwargs)
                if result is None:
                    continue
                if not (isinstance(result, tuple) and len(result) == 2):
                    raise RuntimeError(
                        f"{step} must return None or a tuple of (new_args, new_kwargs), "
                        f"but got {result}."
                    )
                args, kwargs = result
        out = step(*args, **kwargs)
        if self._optimizer_step_post_hooks or _global_step_post_hooks:
            for hook in (
                *self._optimizer_step_post_hooks.values(), *_global_step_post_hooks.values()
            ):  # fmt: skip
                hook(self, args, kwargs)
        return out

    hooked_step._runs_hooks = True  # type: ignore[attr-defined]
    return hooked_step


class Optimizer:
    """Base class of the optimisers, and of your own.

    A subclass defines `step(closure=None)`. `param_groups` and `state` (a dict of state by
    parameter) may be read and changed between steps.

    Args:
        params: an iterable of tensors, of `(name, tensor)` pairs, or of dicts, each a parameter
            group with its `"params"` and the options in which it differs.
        defaults: the options of groups that do not give them.

    Raises:
        TypeError: `params` is a tensor, a set, or holds something that is not a tensor.
        ValueError: no parameters, a tensor that is not a leaf, a parameter in two groups.

    Example:
        >>> class SignDescent(adjit.optim.Optimizer):
        ...     def __init__(self, params, lr):
        ...         super().__init__(params, {"lr": lr})
        ...
        ...     @adjit.no_grad()
        ...     def step(self, closure=None):
        ...         for group in self.param_groups:
        ...             for p in group["params"]:
        ...                 p.sub_(group["lr"] * p.grad.sign())
    """

    defaults: dict[str, Any]
    state: defaultdict[Tensor, dict[str, Any]]
    param_groups: list[dict[str, Any]]

    _optimizer_step_pre_hooks: Hooks
    _optimizer_step_post_hooks: Hooks
    _optimizer_state_dict_pre_hooks: Hooks
    _optimizer_state_dict_post_hooks: Hooks
    _optimizer_load_state_dict_pre_hooks: Hooks
    _optimizer_load_state_dict_post_hooks: Hooks

    # None until a scheduler wants to know; then whether step() has run since.
    _opt_called: bool | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _hooked(cls.__dict__["step"])  # type: ignore[method-assign]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        # Hooks are made here, as optimisers around others (Lookahead) often skip __init__.
        optimizer = super().__new__(cls)
        for kind in _HOOK_KINDS:
            setattr(optimizer, kind, OrderedDict())
        return optimizer

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or "
                "dicts, but got " + _typename(params)
            )
        self.state = defaultdict(dict)
        self.param_groups = []
        groups: list[Any] = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def _params_of_groups(self) -> Iterable[Any]:
        """The parameters of all groups."""
        return chain.from_iterable([group["params"] for group in self.param_groups])

    def __getstate__(self) -> dict[str, Any]:
        return {
            "defaults": self.defaults,
            "state": self.state,
            "param_groups": self.param_groups,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for group in self.param_groups:
            for name, default in self.defaults.items():
                group.setdefault(name, default)

    def __repr__(self) -> str:
        text = type(self).__name__ + " ("
        for i, group in enumerate(self.param_groups):
            options = sorted(group.keys() - {"params"})
            text += f"\nParameter Group {i}\n"
            text += "".join(f"    {key}: {group[key]}\n" for key in options)
        return text + ")"

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` before each step.

        What the hook returns, unless it is None, replaces `(args, kwargs)`; `args[0]` is the
        optimiser itself.

        Example:
            >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
            >>> optimizer = adjit.optim.SGD([w], lr=0.1)
            >>> w.square().sum().backward()
            >>> handle = optimizer.register_step_pre_hook(lambda opt, args, kwargs: print("step"))
            >>> optimizer.step()
            step
        """
        return _register(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` after each step.

        Example:
            >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
            >>> optimizer = adjit.optim.SGD([w], lr=0.1)
            >>> w.square().sum().backward()
            >>> handle = optimizer.register_step_post_hook(lambda opt, args, kwargs: print("done"))
            >>> optimizer.step()
            done
        """
        return _register(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(optimizer)` before each `state_dict`, first if `prepend`.

        Example:
            >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
            >>> optimizer = adjit.optim.SGD([w], lr=0.1)
            >>> handle = optimizer.register_state_dict_pre_hook(lambda opt: print("saving"))
            >>> saved = optimizer.state_dict()
            saving
        """
        return _register(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` on what `state_dict` will return.

        The hook may change the dict, or return another in its place.

        Example:
            >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
            >>> optimizer = adjit.optim.SGD([w], lr=0.1)
            >>> handle = optimizer.register_state_dict_post_hook(lambda opt, saved: {**saved, "version": 2})
            >>> optimizer.state_dict()["version"]
            2
        """
        return _register(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` on what `load_state_dict` is given.

        The hook may change the (shallowly copied) dict, or return another in its place.

        Example:
            >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
            >>> optimizer = adjit.optim.SGD([w], lr=0.1)
            >>> handle = optimizer.register_load_state_dict_pre_hook(lambda opt, saved: saved["inner"])
            >>> optimizer.load_state_dict({"inner": optimizer.state_dict()})
        """
        return _register(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(optimizer)` after each `load_state_dict`.

        Example:
            >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
            >>> optimizer = adjit.optim.SGD([w], lr=0.1)
            >>> handle = optimizer.register_load_state_dict_post_hook(lambda opt: print("loaded"))
            >>> optimizer.load_state_dict(optimizer.state_dict())
            loaded
        """
        return _register(self._optimizer_load_state_dict_post_hooks, hook, prepend)

    def _pack_state(self, state: dict[str, Any]) -> dict[str, Any]:
        """One parameter's state as a checkpoint holds it."""
        return state

    def _unpack_state(
        self, state: dict[str, Any], param: Tensor, group: dict[str, Any]
    ) -> dict[str, Any]:
        """The inverse of `_pack_state`."""
        return state

    def state_dict(self) -> StateDict:
        """The state and the groups, with parameters replaced by their positions.

        The layout is PyTorch's: `{"state": {0: {...}}, "param_groups": [{..., "params": [0]}]}`.
        The tensors in it are those of the optimiser, not copies.

        Example:
            >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
            >>> optimizer = adjit.optim.SGD([w], lr=0.1)
            >>> optimizer.state_dict()["param_groups"][0]["lr"]
            0.1
        """
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        position: dict[Tensor, int] = {}
        for param in self._params_of_groups():
            position.setdefault(param, len(position))
        saved: StateDict = {
            "state": {
                position[key] if isinstance(key, Tensor) else key: self._pack_state(state)
                for key, state in self.state.items()
            },
            "param_groups": [
                {name: option for name, option in group.items() if name != "params"}
                | {"params": [position[param] for param in group["params"]]}
                for group in self.param_groups
            ],
        }
        for hook in self._optimizer_state_dict_post_hooks.values():
            replaced = hook(self, saved)
            saved = saved if replaced is None else replaced
        return saved

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over state and options from what `state_dict` returned.

        State tensors are cast to the dtype and device of their parameter; arrays of other
        libraries are copied. Options of the loaded groups replace the present ones.

        Raises:
            ValueError: the groups differ in number or size.

        Example:
            >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
            >>> optimizer = adjit.optim.SGD([w], lr=0.1)
            >>> saved = optimizer.state_dict()
            >>> saved["param_groups"][0]["lr"] = 0.5
            >>> optimizer.load_state_dict(saved)
            >>> optimizer.param_groups[0]["lr"]
            0.5
        """
        state_dict = state_dict.copy()
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            replaced = hook(self, state_dict)
            state_dict = state_dict if replaced is None else replaced
        groups = self.param_groups
        saved_groups = deepcopy(state_dict["param_groups"])
        if len(groups) != len(saved_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(
            len(group["params"]) != len(saved["params"])
            for group, saved in zip(groups, saved_groups, strict=True)
        ):
            raise ValueError(
                "loaded state dict contains a parameter group "
                "that doesn't match the size of optimizer's group"
            )
        saved_state = dict(state_dict["state"])
        state: defaultdict[Any, Any] = defaultdict(dict)
        for group, saved in zip(groups, saved_groups, strict=True):
            for key, param in zip(saved["params"], group["params"], strict=True):
                if key in saved_state:
                    cast = _cast_like(param, saved_state.pop(key))
                    state[param] = self._unpack_state(cast, param, saved)
            saved["params"] = group["params"]
            if "param_names" in group:
                saved.setdefault("param_names", group["param_names"])
        state.update(saved_state)
        self.__setstate__({"state": state, "param_groups": saved_groups})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or fill them with zeros.

        Args:
            set_to_none: True sets `.grad` to None, so that a parameter without a new gradient is
                left out of the next step; False zeroes the present gradients in place, detached
                from the graph that made them.

        Example:
            >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
            >>> optimizer = adjit.optim.SGD([w], lr=0.1)
            >>> w.square().sum().backward()
            >>> optimizer.zero_grad()
            >>> w.grad is None
            True
        """
        for param in self._params_of_groups():
            meta = param._autograd_meta
            if meta is None or meta.grad is None:
                continue
            if set_to_none:
                meta.grad = None
                continue
            if param.grad.grad_fn is not None:
                param.grad.detach_()
            else:
                param.grad.requires_grad_(False)
            param.grad.zero_()

    def step(self, closure: Closure | None = None) -> Any:
        """Update the parameters once.

        Args:
            closure: evaluates the model again, with gradients, and returns the loss, which is
                then what `step` returns.

        Example:
            >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
            >>> optimizer = adjit.optim.SGD([w], lr=0.1)
            >>> w.square().sum().backward()
            >>> optimizer.step()
            >>> w
            tensor([0.8000, 1.6000], requires_grad=True)
        """
        raise NotImplementedError

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Optimise more parameters, with options of their own.

        Args:
            param_group: `"params"` (a tensor, an iterable of tensors or of `(name, tensor)`
                pairs), and the options in which the group differs from the defaults.

        Raises:
            TypeError: not a dict, a set of parameters, or something that is not a tensor.
            ValueError: a tensor that is not a leaf, a parameter of another group, names in some
                groups only, a required option that is missing.

        Example:
            >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
            >>> optimizer = adjit.optim.SGD([w], lr=0.1)
            >>> optimizer.add_param_group({"params": adjit.zeros(1, requires_grad=True), "lr": 1e-4})
            >>> [group["lr"] for group in optimizer.param_groups]
            [0.1, 0.0001]
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, set):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but the "
                "ordering of tensors in sets will change between runs. Please use a list instead."
            )
        entries = [params] if isinstance(params, Tensor) else list(params)
        params = [entry[1] if isinstance(entry, tuple) else entry for entry in entries]
        names = [entry[0] for entry in entries if isinstance(entry, tuple)]
        param_group["params"] = params
        if names:
            if len(names) != len(params):
                raise ValueError(
                    "all optimizer params should be with/without names. "
                    "Some param names are missing"
                )
            param_group["param_names"] = names
        for param in params:
            if not isinstance(param, Tensor):
                raise TypeError(
                    "optimizer can only optimize Tensors, "
                    "but one of the params is " + _typename(param)
                )
            may_be_recorded = self.defaults.get("differentiable", False)
            if not (param.is_leaf or param.retains_grad or may_be_recorded):
                raise ValueError("can't optimize a non-leaf Tensor")
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(
                    "parameter group didn't specify a value of required optimization "
                    f"parameter {name}"
                )
            param_group.setdefault(name, default)
        if len(params) != len(set(params)):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; "
                "in future, this will cause an error; "
                "see github.com/pytorch/pytorch/issues/40967 for more information",
                stacklevel=3,
            )
        for group in self.param_groups:
            if ("param_names" in param_group) != ("param_names" in group):
                raise ValueError(
                    "all optimizer param groups should be with/without names. cannot add param "
                    f"group {'with' if names else 'without'} names to the optimizer"
                )
        if not set(self._params_of_groups()).isdisjoint(params):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)


def _without(entries: dict[str, Any], others: Iterable[Any]) -> dict[str, Any]:
    """The entries that are none of some other objects."""
    ids = {id(other) for other in others}
    return {name: value for name, value in entries.items() if id(value) not in ids}


def _go_back(before: list[tuple[Any, ...]], state: dict[str, Any], entries: dict[str, Any]) -> None:
    """Give tensors that nobody else looks at their values and versions, and a state its entries."""
    at_once(
        setting([t._storage for t, _, _ in before], "value", [value for _, value, _ in before]),
        setting([t._version_counter for t, _, _ in before], "version", [n for _, _, n in before]),
        calling([state.clear, partial(state.update, entries)]),
    )


def _cast_like(param: Tensor, value: Any, key: str | None = None) -> Any:
    """`value` with its tensors in the dtype and on the device of `param`, counters as is."""
    if not isinstance(value, Tensor) and hasattr(value, "__array__"):
        value = tensor(value.__array__())
    if isinstance(value, Tensor):
        if key == "step":
            return value
        dtype = param.dtype if param.is_floating_point() else value.dtype
        return value.to(dtype=dtype, device=param.device)
    if isinstance(value, Mapping):
        return {name: _cast_like(param, entry, name) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_cast_like(param, entry) for entry in value)
    return value


def check_flags(foreach: bool | None, fused: bool | None, differentiable: bool) -> None:
    """Refuse combinations that PyTorch refuses.

    `foreach` and `fused` choose among kernels that give equal results; here the scheduler
    fuses every update, so they change nothing.
    """
    if fused and differentiable:
        raise RuntimeError("`fused` does not support `differentiable`")
    if fused and foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")


def check_learning_rate(
    lr: float | Tensor, told: str = "Invalid learning rate: ", may_be_zero: bool = True
) -> None:
    """`lr` is one number, at least zero."""
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    if not (lr >= 0.0 if may_be_zero else lr > 0.0):
        raise ValueError(f"{told}{lr}")


def check_not_negative(**options: float) -> None:
    """No option is below zero, or NaN."""
    for name, value in options.items():
        if not value >= 0.0:
            raise ValueError(f"Invalid {name} value: {value}")


def check_betas(betas: Sequence[float | Tensor]) -> None:
    """Each is at least zero and below one."""
    for i, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {beta}")


def as_scalar(value: float | Tensor) -> float | Tensor:
    """A 1-element tensor as a 0-d one, so that it broadcasts against every parameter."""
    return value.reshape(()) if isinstance(value, Tensor) else value


def kept(value: Tensor) -> Tensor:
    """What backward may look at after later steps have written into `value`."""
    return value.clone() if is_grad_enabled() else value


def penalised(grad: Tensor, param: Tensor, group: dict[str, Any]) -> Tensor:
    """`grad + weight_decay * param`."""
    decay = group["weight_decay"]
    if decay == 0:
        return grad
    if isinstance(decay, Tensor):
        return grad.addcmul(kept(param), as_scalar(decay))
    return grad.add(param, alpha=decay)


def decayed(param: Tensor, grad: Tensor, group: dict[str, Any]) -> Tensor:
    """The gradient with weight decay, or as it is, and `param` has shrunk."""
    if not group["decoupled_weight_decay"]:
        return penalised(grad, param, group)
    if group["weight_decay"] != 0:
        param.mul_(1 - as_scalar(group["lr"]) * as_scalar(group["weight_decay"]))
    return grad


def descend(param: Tensor, direction: Tensor, lr: float | Tensor) -> None:
    """`param -= lr * direction`, without reading `lr` if it is a tensor."""
    if isinstance(lr, Tensor):
        param.addcmul_(kept(direction), lr, value=-1)
    else:
        param.add_(direction, alpha=-lr)


def descend_ratio(param: Tensor, above: Tensor, below: Tensor, lr: float | Tensor) -> None:
    """`param -= lr * above / below`, without reading `lr` if it is a tensor."""
    if isinstance(lr, Tensor):
        param.addcdiv_(kept(above) * lr, below, value=-1)
    else:
        param.addcdiv_(kept(above), below, value=-lr)


def rounded(value: Any) -> Any:
    """A number as PyTorch keeps it in a state: in a tensor of the default dtype; tensors as they are."""
    return value if isinstance(value, Tensor) else float(get_default_dtype().numpy.type(value))


def shrinking(group: dict[str, Any]) -> float:
    """What decoupled weight decay multiplies parameters by in a step."""
    return 1 - group["lr"] * group["weight_decay"] if group["decoupled_weight_decay"] else 1.0


class PerParameterOptimizer(Optimizer):
    """An optimiser that treats each parameter on its own, by one method: `_update`.

    One that also has a kernel for many parameters names it: the kernel gets what `_moments`, `_advance`,
    `_numbers_of_all` and `_choices` give, and its results have the bits of `_update`'s.

    Options that are `_followed` are looked up at every step, also by a captured one.

    The state's `step`, and what else is listed in `_numbers`, is a Python number, so that counting
    costs no operation; with `capturable` it is a 0-d tensor, so that a captured step counts on
    when it is replayed. Checkpoints always hold the tensor, as PyTorch's do.
    """

    _followed: frozenset[str] = frozenset()
    _numbers: tuple[str, ...] = ("step",)
    _kernel: str = ""  # of `kernels/ops/optim.py`

    def _update(
        self, param: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        """Move `param` once, in place, along `grad`."""
        raise NotImplementedError

    def _first_state(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """The state of a parameter before its first step."""
        numbers = {name: self._first_number(1.0, param, group) for name in self._numbers[1:]}
        moments = {name: zeros_like(param) for name in self._moments(group)}
        return {"step": self._first_step(param, group), **numbers, **moments}

    def _moments(self, group: dict[str, Any]) -> list[str]:
        """The names of the tensors of a state, in the order in which the kernel has them."""
        raise NotImplementedError

    def _advance(
        self, group: dict[str, Any], step: Any, *others: Any
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        """What the other numbers of a state are after step `step`, and the kernel's for each parameter."""
        return (), ()

    def _numbers_of_all(self, group: dict[str, Any]) -> Sequence[float]:
        """The kernel's numbers for all parameters, after sign and weight decay."""
        return ()

    def _choices(self, group: dict[str, Any]) -> Sequence[int]:
        """The kernel's last words: which of its ways it takes."""
        return ()

    def _count(self, state: dict[str, Any], group: dict[str, Any]) -> Sequence[Any]:
        """Count a step, and give the numbers of `_advance` for it."""
        state["step"] += 1
        kept = [state[name] for name in self._numbers]
        others = [value.clone() if isinstance(value, Tensor) else value for value in kept[1:]]
        after, own = self._advance(group, kept[0], *others)
        for name, value in zip(self._numbers[1:], after, strict=True):
            if isinstance(state[name], Tensor):  # it keeps its place
                state[name].copy_(value)
            else:
                state[name] = value
        return own

    def _update_together(
        self, params: list[Tensor], grads: list[Any], states: list[Any], group: dict[str, Any],
        then: Sequence[Callable[[], object]],
    ) -> bool:  # fmt: skip
        """Move parameters of a group in one launch, with the numbers of `_update`; False where
        that cannot be done. `then` puts new states among the others: together with that, if they hold
        anything.
        """
        if not self._kernel:
            return False
        for param, state in zip(params, states, strict=True):
            if not state:
                state.update(self._first_state(param, group))
        names = self._numbers
        before: list[Any] = []  # the numbers of the states, until the step is recorded

        def undo() -> None:
            for state, kept in zip(states, before, strict=False):
                state.update(zip(names, kept, strict=True))

        def save() -> Callable[[], object]:
            before.clear()
            return undo

        def numbers() -> list[float]:
            before[:] = [tuple([state[name] for name in names]) for state in states]
            after, own = {}, {}
            for kept in set(before):
                others, own[kept] = self._advance(group, kept[0] + 1, *kept[1:])
                after[kept] = dict(zip(names, (kept[0] + 1, *others), strict=True))
            for state, kept in zip(states, before, strict=True):
                state.update(after[kept])
            each = chain.from_iterable(zip(*[own[kept] for kept in before], strict=True))
            decay = 0.0 if group.get("decoupled_weight_decay") else group.get("weight_decay", 0.0)
            sign = -1.0 if group.get("maximize") else 1.0
            return [*each, sign, decay, *self._numbers_of_all(group)]

        moments = [state[name] for name in self._moments(group) for state in states]
        done = together(calling((before.clear, *then))) if then else before.clear
        try:
            rule_step(
                self._kernel, params, moments, grads, numbers, self._choices(group), done, save
            )
        except BaseException:
            undo()
            raise
        return True

    def step(self, closure: Closure | None = None) -> Any:
        """Update all parameters that have a gradient, once.

        Args:
            closure: evaluates the model again, with gradients, and returns the loss, which is
                then what `step` returns.

        Example:
            >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
            >>> optimizer = adjit.optim.SGD([w], lr=0.1)
            >>> w.square().sum().backward()
            >>> optimizer.step()
            >>> w
            tensor([0.8000, 1.6000], requires_grad=True)
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        is_recorded = self.defaults.get("differentiable", False)
        before = record_gradients(is_recorded)
        try:
            for group in self.param_groups:
                self._step_group(group)
        finally:
            if before and not is_recorded:
                resume_gradients()
            elif is_recorded and not before:
                record_gradients(False)
        return loss

    def _step_group(self, group: dict[str, Any]) -> None:
        params: list[Tensor] = []
        grads: list[Any] = []
        for param in group["params"]:
            meta = param._autograd_meta
            grad = None if meta is None else meta.grad
            if grad is not None:
                params.append(param)
                grads.append(grad)
        if not params:
            return
        known = self.state.get
        states = [{} if (state := known(param)) is None else state for param in params]
        fresh = [] if all(states) else [k for k, state in enumerate(states) if not state]
        if (
            self._is_composed(group)
            or not go_together(params)
            or not self._update_together(
                params, grads, states, group,
                [partial(self.state.__setitem__, params[k], states[k]) for k in fresh] if fresh else (),
            )
        ):  # fmt: skip
            if switches.session is not None:
                self._tell(switches.session, states, group)
            for param, grad, state in zip(params, grads, states, strict=True):
                self._update_whole(param, -grad if group.get("maximize") else grad, state, group)

    def _is_composed(self, group: dict[str, Any]) -> bool:
        """Whether only `_update` can do with the options: tensors may be among them, or it is recorded."""
        return bool(
            isinstance(group["lr"], Tensor)
            or group.get("capturable")
            or group.get("differentiable")
            or isinstance(group.get("weight_decay"), Tensor)
        )

    def _update_whole(
        self, param: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        """`_update`, all or nothing: the parameter and its state change together."""
        if group.get("differentiable"):
            if param.requires_grad and param.is_leaf:
                raise RuntimeError(
                    "a leaf Variable that requires grad is being used in an in-place operation."
                )
            self._update(param, grad, state, group)
            if state:
                self.state[param] = state
            return
        before: list[tuple[Any, ...]] = []
        for t in (param, *state.values()):
            if isinstance(t, Tensor):
                cell = t._storage
                if cell.shared:
                    self._update_shared(param, grad, state, group)
                    return
                before.append((t, cell.value, t._version_counter.version))
        entries = dict(state)
        try:
            self._update(param, grad, state, group)
            if state:
                self.state[param] = state
        except BaseException:
            _go_back(before, state, entries)
            raise

    def _update_shared(
        self, param: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        """`_update_whole` where others look at memory: what is written there is there for good, so copies
        change first."""
        tensors = [t for t in (param, *state.values()) if isinstance(t, Tensor)]
        copies = {t: t.detach().clone() for t in tensors if t._storage.shared}
        before = [
            (t, t._storage.value, t._version_counter.version) for t in tensors if t not in copies
        ]
        moving = {n: copies.get(v, v) if isinstance(v, Tensor) else v for n, v in state.items()}
        done: list[bool] = []
        try:
            self._update(copies.get(param, param), grad, moving, group)
            then = [
                partial(state.update, _without(moving, copies.values())),
                partial(done.append, True),
            ]
            if moving:
                then.append(partial(self.state.__setitem__, param, state))
            write.store_all([*copies], [*copies.values()], then)
        except BaseException:
            if not done:
                _go_back(before, state, dict(state))
            raise

    def _tell(self, session: Any, states: list[Any], group: dict[str, Any]) -> None:
        """Tell a capture which Python numbers went into the updates of a group."""

        def options() -> list[Any]:
            return [(k, v) for k, v in group.items() if k != "params" and not isinstance(v, Tensor)]

        def counts() -> list[Any]:
            return [s[name] for s in counting() for name in self._numbers]

        def count() -> list[int]:
            for s in counting():
                s["step"] += 1
            return []

        def counting() -> list[Any]:
            return [s for s in states if isinstance(s.get("step"), int)]

        def save() -> Callable[[], object]:
            known = counting()
            return together(map(setitem, known, repeat("step"), [s["step"] for s in known]))

        session.depends_on(options)
        if self._counts(group):
            session.depends_on(counts)
        else:
            session.numbers((), count, save=save)

    def _counts(self, group: dict[str, Any]) -> bool:
        """Whether `_update` computes with the number of the step."""
        return True

    def _first_step(self, param: Tensor, group: dict[str, Any]) -> int | Tensor:
        """The counter before the first step."""
        return zeros((), device=param.device) if group.get("capturable") else 0

    def _first_number(
        self, value: float | Tensor, param: Tensor, group: dict[str, Any]
    ) -> float | Tensor:
        """A number of the state before the first step, or as a checkpoint holds it."""
        if not (group.get("capturable") or isinstance(value, Tensor)):
            return rounded(value)
        return zeros((), device=param.device) + value

    def _pack_state(self, state: dict[str, Any]) -> dict[str, Any]:
        numbers = {
            name: tensor(float(state[name]))
            for name in self._numbers
            if isinstance(state.get(name), (int, float))
        }
        return {**state, **numbers} if numbers else state

    def _unpack_state(
        self, state: dict[str, Any], param: Tensor, group: dict[str, Any]
    ) -> dict[str, Any]:
        for name in self._numbers:
            if name == "step" and name in state:
                state[name] = self._first_step(param, group) + int(state[name])
            elif name in state:
                state[name] = self._first_number(float(state[name]), param, group)
        return state


# ----- what copies of PyTorch's optimisers import -----


def _use_grad_for_differentiable(step: Callable[..., Any]) -> Callable[..., Any]:
    """A `step` that records gradients if the optimiser was made with `differentiable=True`, and only then."""

    @functools.wraps(step)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        with set_grad_enabled(bool(self.defaults.get("differentiable", False))):
            return step(self, *args, **kwargs)

    return wrapped


def _default_to_fused_or_foreach(
    params: Sequence[Any], differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """Neither: a step is one plan here, however its loop over parameters is written."""
    return False, False


def _get_value(x: Any) -> Any:
    """A number out of a tensor, or a number."""
    return x.item() if isinstance(x, Tensor) else x


def _stack_if_compiling(x: Any) -> Any:
    """A list of numbers as it is."""
    return x


def _dispatch_sqrt(x: Any) -> Any:
    """The square root of a tensor or a number."""
    return x.sqrt() if isinstance(x, Tensor) else math.sqrt(x)
