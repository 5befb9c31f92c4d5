"""The state of models and optimisers by the names that parameters have in the model without its wrappers.

Those names do not change with how many processes train, nor with `DistributedDataParallel` or `adjit.compile`.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from ... import devices
from ...autograd.modes import no_grad
from ...graph import record
from ...nn.module import _EXTRA_STATE_KEY, IncompatibleKeys, Module
from ...nn.optimized import OptimizedModule
from ...nn.parallel.distributed import DistributedDataParallel
from ...ops import creation
from ...optim.optimizer import Optimizer
from ...shapes import Size
from ...tensor import Tensor
from ...utils._pytree import tree_map, tree_map_only
from ...utils.checkpoint_wrapper import _PREFIX as _CHECKPOINT_PREFIX
from ..collectives import broadcast
from ..group import default_group, get_rank, is_initialized
from ..objects import broadcast_object_list

__all__ = [
    "FQNS_T",
    "DictValueType",
    "ListDictValueType",
    "OptimizerStateType",
    "PrimitiveType",
    "StateDictOptions",
    "ValueType",
    "get_model_state_dict",
    "get_optimizer_state_dict",
    "get_state_dict",
    "set_model_state_dict",
    "set_optimizer_state_dict",
    "set_state_dict",
]  # fmt: skip

FQNS_T = set[str]
PrimitiveType = Tensor | int | float | str
ValueType = Any
DictValueType = dict[str, ValueType]
ListDictValueType = list[DictValueType]
OptimizerStateType = dict[str, Any]

_GROUPS, _PARAMS, _STATE = "param_groups", "params", "state"
_WRAPPERS = ((DistributedDataParallel, "module"), (OptimizedModule, "_orig_mod"))


@dataclass
class StateDictOptions:
    """Options of reading and setting states.

    Args:
        full_state_dict: what is read has plain containers and whole tensors, as all have here; what is set may
            lack entries, which stay as they are.
        cpu_offload: tensors on the CPU; with `full_state_dict` other ranks than 0 get nothing.
        ignore_frozen_params: leave out parameters without `requires_grad`.
        keep_submodule_prefixes: names that begin at the model, not at the submodule that is asked for.
        strict: missing and unexpected names are errors.
        broadcast_from_rank0: rank 0 alone has the state that is set, and sends it.
        flatten_optimizer_state_dict: the state of optimisers as one dict from dotted names to values.
        dsd_fqn_modifiers: the method of modules that says which names its hooks leave out.

    Example:
        >>> from adjit.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
        >>> layer = nn.Linear(2, 1)
        >>> _ = layer.weight.requires_grad_(False)
        >>> list(get_model_state_dict(layer, options=StateDictOptions(ignore_frozen_params=True)))
        ['bias']
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"


@dataclass
class _Naming:
    """What a call is about: the options, and all names of each parameter and buffer."""

    options: StateDictOptions
    of: dict[Tensor, list[str]]
    prefixes: list[str]  # of the submodules that are asked for

    def in_use(self, tensor: Tensor, is_used: Callable[[str], bool]) -> list[str]:
        """The names of a tensor; where it has several, those that a state uses."""
        names = self.of[tensor]
        return names if len(names) == 1 else [name for name in names if is_used(name)]


# ----- names -----


def _qualified(model: Module, key: str, modifiers: str, *, wrapped: bool = False) -> str:
    """The name of an entry of `model.state_dict()` without wrappers, or with those of the model as it is."""
    key = key.replace(_CHECKPOINT_PREFIX, "")
    if "." not in key:
        return key
    at: Any = model
    found = []
    for part in key.split("."):
        inner = next((name for kind, name in _WRAPPERS if isinstance(at, kind)), None)
        if inner is not None and part != inner:
            raise AssertionError(f"Expected '{inner}', got '{part}'")
        if inner is None or wrapped:
            found.append(part)
        if inner is None and (hidden := _left_out(at, modifiers).get(part)):
            at = getattr(at, hidden, at)
        if part != _EXTRA_STATE_KEY:
            at = getattr(at, part)
    return ".".join(found)


def _left_out(module: Any, modifiers: str) -> dict[str, str]:
    """The parts of a module whose names its hooks leave out of a state, by the names that they are under."""
    found: dict[str, str] = getattr(module, modifiers)() if hasattr(module, modifiers) else {}
    return found


def _entries(model: Module, modifiers: str) -> Iterator[tuple[str, Tensor | None]]:
    """The entries of `model.state_dict()` by name, each module once; None for extra state."""
    seen: set[Module] = set()

    def entries(module: Module, prefix: str) -> Iterator[tuple[str, Tensor | None]]:
        seen.add(module)
        left_out = _left_out(module, modifiers).values()
        for name, child in module.named_children():
            if child not in seen:
                yield from entries(child, prefix if name in left_out else f"{prefix}{name}.")
        tensors = chain(module.named_buffers(recurse=False), module.named_parameters(recurse=False))
        for name, tensor in tensors:
            if name not in module._non_persistent_buffers_set:
                yield f"{prefix}{name}", tensor
        if type(module).get_extra_state is not Module.get_extra_state:
            yield f"{prefix}{_EXTRA_STATE_KEY}", None

    return entries(model, "")


def _checked(
    model: Module, options: StateDictOptions | None, submodules: set[Module] | None = None
) -> _Naming:
    options = options or StateDictOptions()
    if options.broadcast_from_rank0 and not options.full_state_dict:
        raise ValueError("full_state_dict must be True when broadcast_from_rank0 is True.")
    of: dict[Tensor, list[str]] = {}
    default = StateDictOptions.dsd_fqn_modifiers
    for key, tensor in _entries(model, default):
        if tensor is not None:
            of.setdefault(tensor, []).append(_qualified(model, key, default))
    prefixes = []
    if submodules:
        warnings.warn(
            "Getting submodules only model/optim state_dict is deprecated and will be removed in 2.5. This "
            "feature can be achieved by manually filtering out the state_dict returned from get_state_dict.",
            FutureWarning,
            stacklevel=3,
        )
        named = [name for name, module in model.named_modules() if module in submodules]
        prefixes = [f"{_qualified(model, name, default)}." for name in named]
    return _Naming(options, of, prefixes)


def _tuple_of(optimizers: Optimizer | Iterable[Optimizer]) -> tuple[Optimizer, ...]:
    return (optimizers,) if isinstance(optimizers, Optimizer) else tuple(optimizers)


# ----- reading -----


def get_model_state_dict(
    model: Module, *, submodules: set[Module] | None = None, options: StateDictOptions | None = None
) -> dict[str, ValueType]:
    """Read the parameters and buffers of a model, by names without wrappers.

    Args:
        model: which may be wrapped, and its parts too, by `DistributedDataParallel` or `adjit.compile`.
        submodules: deprecated; only these parts.
        options: see `StateDictOptions`.

    Raises:
        RuntimeError: if there is nothing to read.

    Example:
        >>> from adjit.distributed.checkpoint.state_dict import get_model_state_dict
        >>> compiled = adjit.compile(nn.Linear(2, 1))
        >>> list(compiled.state_dict()), list(get_model_state_dict(compiled))
        (['_orig_mod.weight', '_orig_mod.bias'], ['weight', 'bias'])
    """
    names = _checked(model, options, submodules)
    found = _model_state(model, names)
    _check_model_state(found, names)
    return found


def get_optimizer_state_dict(
    model: Module,
    optimizers: Optimizer | Iterable[Optimizer],
    *,
    submodules: set[Module] | None = None,
    options: StateDictOptions | None = None,
) -> OptimizerStateType:
    """Read the state of optimisers, by the names of the parameters in place of their numbers.

    An optimiser that has no state yet makes one, by a step with gradients and a learning rate of zero, unless
    there are gradients: read it before backward, or after a step.

    Args:
        model: whose parameters they train.
        optimizers: one or several, whose states are joined.
        submodules, options: as of `get_model_state_dict`.

    Raises:
        RuntimeError: without optimisers.
        NotImplementedError: to flatten states of other values than tensors, numbers and dicts of them.

    Example:
        >>> from adjit.distributed.checkpoint.state_dict import get_optimizer_state_dict
        >>> layer = nn.Linear(2, 1)
        >>> state = get_optimizer_state_dict(layer, adjit.optim.Adam(layer.parameters()))
        >>> list(state["state"]), state["param_groups"][0]["params"]
        (['weight', 'bias'], ['weight', 'bias'])
    """
    optimizers = _with_optimizers(optimizers)
    names = _checked(model, options, submodules)
    found = _optimizer_state(model, optimizers, names)
    _check_optimizer_state(found, names)
    return found


def get_state_dict(
    model: Module,
    optimizers: Optimizer | Iterable[Optimizer],
    *,
    submodules: set[Module] | None = None,
    options: StateDictOptions | None = None,
) -> tuple[dict[str, ValueType], OptimizerStateType]:
    """Read the states of a model and of its optimisers: `get_model_state_dict` and the other one.

    Args:
        model, optimizers, submodules, options: as of those; without optimisers their state is empty.

    Example:
        >>> from adjit.distributed.checkpoint.state_dict import get_state_dict
        >>> layer = nn.Linear(2, 1)
        >>> of_model, of_optimizer = get_state_dict(layer, adjit.optim.SGD(layer.parameters(), 0.1))
        >>> list(of_model), list(of_optimizer)
        (['weight', 'bias'], ['state', 'param_groups'])
    """
    optimizers = _tuple_of(optimizers)
    names = _checked(model, options, submodules)
    of_model = _model_state(model, names)
    of_optimizers = _optimizer_state(model, optimizers, names) if optimizers else {}
    _check_model_state(of_model, names)
    if optimizers:
        _check_optimizer_state(of_optimizers, names)
    return of_model, of_optimizers


def _with_optimizers(optimizers: Optimizer | Iterable[Optimizer]) -> tuple[Optimizer, ...]:
    """Some optimisers: at least one."""
    found = _tuple_of(optimizers)
    if not found:
        raise RuntimeError("Optimizers are not passed in but optim_only is set to True.")
    return found


@no_grad()
def _model_state(model: Module, names: _Naming) -> dict[str, ValueType]:
    options = names.options
    found: dict[str, ValueType] = model.state_dict()
    for key in list(found):
        name = _qualified(model, key, StateDictOptions.dsd_fqn_modifiers)
        if name != key:
            found[name] = found.pop(key)
    if names.prefixes:
        pairs = [(key, prefix) for key in found for prefix in names.prefixes]
        found = {
            key if options.keep_submodule_prefixes else key[len(prefix) :]: found[key]
            for key, prefix in pairs
            if key.startswith(prefix)
        }
    if options.ignore_frozen_params:
        for key, parameter in model.named_parameters():
            if not parameter.requires_grad:
                found.pop(_qualified(model, key, StateDictOptions.dsd_fqn_modifiers))
    return _placed(found, options)


@no_grad()
def _optimizer_state(
    model: Module, optimizers: tuple[Optimizer, ...], names: _Naming
) -> OptimizerStateType:
    found: OptimizerStateType = {_STATE: {}, _GROUPS: []}
    for optimizer in optimizers:
        _give_state(optimizer)
        part = _named_state(model, optimizer)
        found[_STATE].update(part[_STATE])
        found[_GROUPS].extend(part[_GROUPS])
    if names.options.flatten_optimizer_state_dict:
        found = _flattened(found)
    return _placed(found, names.options)


def _give_state(optimizer: Optimizer) -> None:
    """Have an optimiser that has not stepped yet make its state, without a change of the parameters."""
    if optimizer.state:
        return
    parameters = [p for group in optimizer.param_groups for p in group[_PARAMS]]
    if any(p.grad is not None for p in parameters):  # it has stepped, and has no state
        return
    for parameter in parameters:
        if parameter.requires_grad:
            parameter.grad = creation.zeros_like(parameter)
    paced = [group for group in optimizer.param_groups if "lr" in group]
    rates = [group["lr"] for group in paced]
    for group, rate in zip(paced, rates, strict=True):
        group["lr"] = creation.tensor(0.0) if record.is_tensor(rate) else 0.0
    optimizer.step(closure=None)
    for group, rate in zip(paced, rates, strict=True):
        group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)


def _named_state(model: Module, optimizer: Optimizer) -> OptimizerStateType:
    """The state of one optimiser with names in the place of numbers."""
    found = optimizer.state_dict()
    parameters = chain.from_iterable(group[_PARAMS] for group in optimizer.param_groups)
    numbers = {parameter: number for number, parameter in enumerate(parameters)}
    names = {
        numbers[parameter]: _qualified(model, key, StateDictOptions.dsd_fqn_modifiers)
        for key, parameter in model.named_parameters()
        if parameter in numbers
    }
    state = {names[number]: found[_STATE][number] for number in found[_STATE]}
    groups = [
        {**group, _PARAMS: [names[number] for number in group[_PARAMS]]} for group in found[_GROUPS]
    ]
    return {_STATE: state, _GROUPS: groups}


def _placed(state: dict[str, Any], options: StateDictOptions) -> dict[str, Any]:
    """A state as the options want it: in plain containers, on the CPU, on rank 0 alone."""
    if not (options.full_state_dict or options.cpu_offload):
        return state
    found: dict[str, Any] = _copied(state, options.cpu_offload)
    only_rank_0 = options.full_state_dict and options.cpu_offload and is_initialized()
    return {} if only_rank_0 and get_rank() else found


def _copied(value: Any, to_cpu: bool) -> Any:
    if record.is_tensor(value):
        return value.cpu() if to_cpu else value
    if isinstance(value, dict):
        return {key: _copied(part, to_cpu) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [_copied(part, to_cpu) for part in value]
        return tuple(parts) if isinstance(value, tuple) else parts
    if value is None or isinstance(value, (int, float, str, bytes)):
        return value
    raise ValueError(f"Unexpected value type {type(value)}")


def _check_model_state(state: dict[str, Any], names: _Naming) -> None:
    options = names.options
    may_be_empty = (
        names.prefixes
        or options.ignore_frozen_params
        or (options.cpu_offload and options.full_state_dict)
        or not options.strict
        or options.broadcast_from_rank0
    )
    if not state and not may_be_empty:
        rank = get_rank() if is_initialized() else 0
        raise RuntimeError(
            "The option indicates that model state_dict is required to save or load, but model state_dict "
            f"is empty.rank = dist.get_rank()={rank}."
        )


def _check_optimizer_state(state: OptimizerStateType, names: _Naming) -> None:
    options = names.options
    may_be_empty = (options.cpu_offload and options.full_state_dict) or options.broadcast_from_rank0
    if not state and not may_be_empty:
        raise RuntimeError(
            "The option indicates that model state_dict is required to save, or load but optim state_dict "
            f"is empty. {state}"
        )


# ----- one dict of dotted names -----


def _flattened(state: OptimizerStateType) -> dict[str, ValueType]:
    """The state of optimisers as one dict: `state.fc.weight.step`, `param_groups.fc.weight.lr`."""
    found: dict[str, ValueType] = {}

    def put(value: Any, name: str) -> None:
        if isinstance(value, dict):
            for key, part in value.items():
                put(part, f"{name}.{key}")
        elif isinstance(value, (Tensor, int, float)):
            found[name] = value
        else:
            raise NotImplementedError(
                "Flattening optimizer state_dict only supports tensor, int, float, dict states now. "
                f"Type is {type(value)}."
            )

    for parameter, values in state[_STATE].items():
        put(values, f"{_STATE}.{parameter}")
    for group in state[_GROUPS]:
        for parameter in group[_PARAMS]:
            for key, value in group.items():
                if key != _PARAMS:
                    found[f"{_GROUPS}.{parameter}.{key}"] = value
    return found


def _unflattened(
    optimizer: Optimizer, state: dict[str, ValueType], names: _Naming
) -> OptimizerStateType:
    """The state of one optimiser out of such a dict.

    Raises:
        KeyError: for an entry of a group that the dict has not.
    """
    found: OptimizerStateType = {_STATE: {}, _GROUPS: []}
    saved = {key[len(_GROUPS) + 1 :].rpartition(".")[0] for key in state if key.startswith(_GROUPS)}
    for group in optimizer.param_groups:
        keys = [key for key in group if key != _PARAMS]
        made: dict[str, Any] = {_PARAMS: []}
        for parameter in group[_PARAMS]:
            for name in names.in_use(parameter, saved.__contains__):
                made[_PARAMS].append(name)
                if parameter.requires_grad:
                    found[_STATE][name] = {
                        key: _value_or_dict(f"{_STATE}.{name}.{key}", state)
                        for key in optimizer.state[parameter]
                    }
        for key in keys:
            made[key] = state[f"{_GROUPS}.{made[_PARAMS][0]}.{key}"]
        found[_GROUPS].append(made)
    return found


def _value_or_dict(name: str, state: dict[str, ValueType]) -> Any:
    """The value of a name, or the nested dict of the names that begin with it."""
    if name in state:
        return state[name]
    found: dict[str, Any] = {}
    for key, value in state.items():
        if key.startswith(f"{name}."):
            *path, last = key[len(name) + 1 :].split(".")
            at = found
            for part in path:
                at = at.setdefault(part, {})
            at[last] = value
    return found


# ----- setting -----


def set_model_state_dict(
    model: Module,
    model_state_dict: dict[str, ValueType],
    *,
    options: StateDictOptions | None = None,
) -> IncompatibleKeys:
    """Load what `get_model_state_dict` has read into a model, which may be wrapped otherwise.

    Args:
        model: whose parameters and buffers are overwritten.
        model_state_dict: names to values; or, deprecated, parts of the model to such dicts of them.
        options: see `StateDictOptions`.

    Returns:
        The names that were missing and those that were not expected.

    Raises:
        RuntimeError: for missing and unexpected names, unless `strict` is off; for shapes that differ.

    Example:
        >>> from adjit.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
        >>> first, second = nn.Linear(2, 1), adjit.compile(nn.Linear(2, 1))
        >>> set_model_state_dict(second, get_model_state_dict(first))
        <All keys matched successfully>
        >>> bool((first.weight == second.weight).all())
        True
    """
    names = _checked(model, options)
    state = _of_whole_model(model, model_state_dict)
    _check_model_state(state, names)
    return _load_model(model, state, names)


def set_optimizer_state_dict(
    model: Module,
    optimizers: Optimizer | Iterable[Optimizer],
    optim_state_dict: OptimizerStateType,
    *,
    options: StateDictOptions | None = None,
) -> None:
    """Load what `get_optimizer_state_dict` has read into optimisers, before backward or after a step.

    Args:
        model: whose parameters they train.
        optimizers: one or several, each of which takes its parameters out of the state.
        optim_state_dict: by names, nested or flattened.
        options: see `StateDictOptions`.

    Raises:
        RuntimeError: without optimisers or state; if a parameter has no state, unless `strict` is off.

    Example:
        >>> from adjit.distributed.checkpoint.state_dict import (
        ...     get_optimizer_state_dict, set_optimizer_state_dict)
        >>> layer = nn.Linear(2, 1)
        >>> saved = get_optimizer_state_dict(layer, adjit.optim.Adam(layer.parameters(), lr=0.5))
        >>> optimizer = adjit.optim.Adam(layer.parameters())
        >>> set_optimizer_state_dict(layer, optimizer, saved)
        >>> optimizer.param_groups[0]["lr"]
        0.5
    """
    optimizers = _with_optimizers(optimizers)
    names = _checked(model, options)
    _check_optimizer_state(optim_state_dict, names)
    _load_optimizers(model, optimizers, optim_state_dict, names)


def set_state_dict(
    model: Module,
    optimizers: Optimizer | Iterable[Optimizer],
    *,
    model_state_dict: dict[str, ValueType],
    optim_state_dict: OptimizerStateType,
    options: StateDictOptions | None = None,
) -> IncompatibleKeys:
    """Load the states of a model and of its optimisers, as `get_state_dict` has read them.

    Args:
        model, optimizers, options: as of `set_model_state_dict` and `set_optimizer_state_dict`.
        model_state_dict, optim_state_dict: their states; an empty one of the model is left out.

    Returns:
        The names that the model misses and those that it does not expect.

    Raises:
        RuntimeError: as those two do.

    Example:
        >>> from adjit.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
        >>> layer = nn.Linear(2, 1)
        >>> optimizer = adjit.optim.Adam(layer.parameters())
        >>> model_state, optimizer_state = get_state_dict(layer, optimizer)
        >>> set_state_dict(
        ...     layer, optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state)
        <All keys matched successfully>
    """
    names = _checked(model, options)
    optimizers = _tuple_of(optimizers) if model_state_dict else _with_optimizers(optimizers)
    state = _of_whole_model(model, model_state_dict)
    if optimizers:
        _check_optimizer_state(optim_state_dict, names)
        _load_optimizers(model, optimizers, optim_state_dict, names)
    if not model_state_dict:
        return IncompatibleKeys([], [])
    return _load_model(model, state, names)


def _of_whole_model(model: Module, state: dict[Any, Any]) -> dict[str, ValueType]:
    """A copy of a state, with the names of the model where it has states of its parts."""
    if not isinstance(next(iter(state), None), Module):
        return copy.copy(state)  # with its versions
    warnings.warn(
        "Passing model_state_dict as a ``Dict[nn.Module, Dict[str, Any]]``is deprecated and will be removed in "
        "2.5. If you need this feature, please preprocess the model_state_dict to achieve the same "
        "functionality.",
        FutureWarning,
        stacklevel=3,
    )
    names = {module: name for name, module in model.named_modules()}
    return {
        f"{_qualified(model, names[module], StateDictOptions.dsd_fqn_modifiers)}.{key}": value
        for module, part in state.items()
        for key, value in part.items()
    }


@no_grad()
def _load_model(model: Module, state: dict[str, ValueType], names: _Naming) -> IncompatibleKeys:
    options = names.options
    if not state and not options.broadcast_from_rank0:
        return IncompatibleKeys([], [])
    if options.broadcast_from_rank0:
        state = _from_rank_0(state)
    own: dict[str, Any] = {}
    for key, value in _entries(model, options.dsd_fqn_modifiers):
        name = _qualified(model, key, options.dsd_fqn_modifiers)
        wrapped = _qualified(model, key, options.dsd_fqn_modifiers, wrapped=True)
        if name != wrapped and name in state:
            state[wrapped] = state.pop(name)
        elif name != wrapped and options.strict:
            raise RuntimeError(f"Missing key: {name}.")
        if value is not None:
            own[wrapped] = value
    if options.full_state_dict and not options.broadcast_from_rank0:
        for name, value in own.items():
            state.setdefault(name, value)
    return model.load_state_dict(state, strict=options.strict)


@no_grad()
def _load_optimizers(
    model: Module, optimizers: tuple[Optimizer, ...], state: OptimizerStateType, names: _Naming
) -> None:
    for optimizer in optimizers:
        _give_state(optimizer)
        part: OptimizerStateType = {}
        if state:
            nested = _STATE in state
            part = (_part_of if nested else _unflattened)(optimizer, state, names)
        if names.options.full_state_dict:
            if names.options.broadcast_from_rank0:
                part = _from_rank_0(part)
            part = _over(_named_state(model, optimizer), part)
        optimizer.load_state_dict(part)


def _part_of(optimizer: Optimizer, state: OptimizerStateType, names: _Naming) -> OptimizerStateType:
    """What one optimiser takes of a state that may be one of several.

    Raises:
        RuntimeError: if a parameter that needs gradients has no state, unless `strict` is off.
        ValueError: for groups without parameters, if it is not clear which of the state they are.
    """
    if all(isinstance(key, int) for key in state[_STATE]):
        return state
    saved_groups: list[dict[str, Any]] = state[_GROUPS]
    saved = {name: group for group in saved_groups for name in group[_PARAMS]}
    found: OptimizerStateType = {_STATE: {}, _GROUPS: []}
    for group in optimizer.param_groups:
        made: dict[str, Any] = {_PARAMS: []}
        for parameter in group[_PARAMS]:
            for name in names.in_use(parameter, saved.__contains__):
                made[_PARAMS].append(name)
                made |= _options_of(saved.get(name, {}))
                if not parameter.requires_grad:
                    continue
                if name in state[_STATE]:
                    found[_STATE][name] = state[_STATE][name]
                elif names.options.strict:
                    raise RuntimeError(
                        f"Missing optimizer state for parameter '{name}' in checkpoint. The parameter "
                        "requires gradients but has no saved optimizer state. To load anyway, use "
                        "StateDictOptions(strict=False)."
                    )
        if not group[_PARAMS]:
            made |= _options_of(_only_empty(saved_groups, len(optimizer.param_groups)))
        found[_GROUPS].append(made)
    return found


def _options_of(group: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key != _PARAMS}


def _only_empty(groups: list[dict[str, Any]], expected: int) -> dict[str, Any]:
    """The one group of a state that has no parameters."""
    empty = [group for group in groups if not group[_PARAMS]]
    if len(empty) != 1:
        raise ValueError(
            "There are param groups that have zero parameters. In such a case, DSD only support exactly one "
            "param group with zero parameters.But the loaded state_dict has zero or more than one param "
            "groups that have zero parameters."
        )
    if len(groups) != expected:
        raise ValueError(
            "When there is a parameter group that has zero parameters, multiple optimizers are not supported."
        )
    return empty[0]


def _over(own: Any, given: Any) -> Any:
    """What an optimiser has, with what is given in its place, entry by entry."""
    if isinstance(own, dict) and isinstance(given, dict):
        return own | {key: _over(own.get(key), value) for key, value in given.items()}
    if isinstance(own, list) and isinstance(given, list) and len(own) == len(given):
        return [_over(one, other) for one, other in zip(own, given, strict=True)]
    return given


# ----- from rank 0 -----


@dataclass(frozen=True)
class _Described:
    """Stands for a tensor that comes on its own."""

    size: Size
    dtype: Any


def _from_rank_0(state: dict[str, Any]) -> dict[str, Any]:
    """The state that rank 0 has, on every rank: its structure, then one tensor after the other."""
    group = default_group()
    place = devices.CPU if "cpu" in group.channels else devices.check("cuda")
    is_source = group.rank() == 0

    def describe(tensor: Tensor) -> Any:
        return _Described(tensor.size(), tensor.dtype) if tensor.dim() else tensor.detach().cpu()

    sent: list[Any] = [tree_map_only(Tensor, describe, state) if is_source else None]
    broadcast_object_list(sent, src=0, group=group)

    def receive(value: Any, given: Any) -> Any:
        if not isinstance(value, _Described):
            return value
        if given is None:
            tensor: Tensor = creation.empty(value.size, dtype=value.dtype, device=place)
        else:
            tensor = given.detach().to(place).clone()  # the collective writes into it
        broadcast(tensor, src=0, group=group)
        return tensor

    if is_source:
        return dict(tree_map(receive, sent[0], state))
    return dict(tree_map(lambda value: receive(value, None), sent[0]))
