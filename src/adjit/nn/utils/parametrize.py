"""Parametrisations: parameters and buffers that are computed, each time they are read, by modules."""

from __future__ import annotations

import copy
import copyreg
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from ...autograd.modes import no_grad
from ...tensor import Tensor
from ..container import ModuleDict, ModuleList
from ..module import Module, entry
from ..parameter import Parameter

__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization",
    "remove_parametrizations", "transfer_parametrizations_and_params", "type_before_parametrizations",
]  # fmt: skip

_M = TypeVar("_M", bound=Module)
_caching = 0  # blocks of `cached` that are open
_cache: dict[tuple[int, str], Any] = {}


@contextmanager
def cached() -> Iterator[None]:
    """Compute each parametrised tensor only once in a `with` block.

    Example:
        >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
        >>> with nn.utils.parametrize.cached():
        ...     layer.weight is layer.weight
        True
        >>> layer.weight is layer.weight
        False
    """
    global _caching
    _caching += 1
    try:
        yield
    finally:
        _caching -= 1
        if not _caching:
            _cache.clear()


def _register(module: Module, name: str, value: Any) -> None:
    if isinstance(value, Parameter):
        module.register_parameter(name, value)
    else:
        module.register_buffer(name, value)


class ParametrizationList(ModuleList):
    """The parametrisations of one tensor, with the tensors that it is computed from.

    Those are `original`, or `original0`, `original1`, … where `right_inverse` gives several. It is
    made by `register_parametrization`.

    Args:
        modules: the parametrisations; the first is called on the originals, each other one on
            what the one before gives.
        original: the tensor so far.
        unsafe: whether shape and dtype may change, unchecked.

    Raises:
        ValueError: no modules, or one whose results do not fit.

    Example:
        >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
        >>> layer.parametrizations.weight
        ParametrizationList(
          (0): _WeightNorm()
        )
    """

    original: Tensor

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if len(modules) == 0:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        new: Any = original
        with no_grad():
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    with suppress(NotImplementedError):
                        new = module.right_inverse(new)
        if not isinstance(new, (Tensor, Sequence)):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(new).__name__}"
            )
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if isinstance(new, Tensor):
            for what, before, after in (
                ("dtype", dtype, new.dtype), ("device", original.device, new.device),
            ):  # fmt: skip
                if before != after:
                    raise ValueError(
                        f"When `right_inverse` outputs one tensor, it may not change the {what}.\n"
                        f"original.{what}: {before}\nright_inverse(original).{what}: {after}"
                    )
            original.data = new.data
            _register(self, "original", original)
        else:
            for k, part in enumerate(new):
                if not isinstance(part, Tensor):
                    raise ValueError(
                        "'right_inverse' must return a Tensor or a Sequence of tensors (list, "
                        f"tuple...). Got element {k} of the sequence with type {type(part).__name__}."
                    )
                if isinstance(original, Parameter):
                    part = Parameter(part, original.requires_grad)
                part.requires_grad_(original.requires_grad)
                _register(self, f"original{k}", part)
        if not unsafe:
            _check_alike(
                self(), shape, dtype, "unparametrized ", "parametrized ", "unless `unsafe`"
            )

    def right_inverse(self, value: Any) -> None:
        """Set the originals so that the parametrised tensor becomes a value, as far as it can.

        Raises:
            RuntimeError: a parametrisation has no `right_inverse`.
            ValueError: what it gives does not fit the originals.

        Example:
            >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
            >>> layer.weight = adjit.ones(2, 3)
            >>> layer.parametrizations.weight.original0
            Parameter containing:
            tensor([[1.7321],
                    [1.7321]], requires_grad=True)
        """
        with no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(
                        f"parametrization {type(module).__name__} does not implement right_inverse."
                    )
                value = module.right_inverse(value)
        if self.is_tensor:
            if not isinstance(value, Tensor):
                raise ValueError(
                    f"`right_inverse` should return a tensor. Got {type(value).__name__}"
                )
            if value.dtype != self.original.dtype:
                raise ValueError(
                    f"The tensor returned by `right_inverse` has dtype {value.dtype} while "
                    f"`original` has dtype {self.original.dtype}"
                )
            self.original.data = value.data
            return
        if not isinstance(value, Sequence):
            raise ValueError(
                f"'right_inverse' must return a sequence of tensors. Got {type(value).__name__}."
            )
        if len(value) != self.ntensors:
            raise ValueError(
                "'right_inverse' must return a sequence of tensors of length "
                f"{self.ntensors}. Got a sequence of length {len(value)}."
            )
        for k, (part, original) in enumerate(zip(value, self._originals(), strict=True)):
            if not isinstance(part, Tensor):
                raise ValueError(
                    "'right_inverse' must return a sequence of tensors or reference-type opaques. "
                    f"Got element {k} of type {type(part).__name__}."
                )
            if part.dtype != original.dtype:
                raise ValueError(
                    f"Tensor {k} returned by `right_inverse` has dtype {part.dtype} while "
                    f"`original{k}` has dtype {original.dtype}"
                )
            original.data = part.data

    def _originals(self) -> list[Tensor]:
        if self.is_tensor:
            return [self.original]
        return [entry(self, f"original{k}") for k in range(self.ntensors)]

    def forward(self) -> Any:
        """Compute the tensor."""
        first, *others = self
        value = first(*self._originals())
        for module in others:
            value = module(value)
        return value


def _check_alike(value: Any, shape: Any, dtype: Any, before: str, after: str, unless: str) -> None:
    """A parametrisation gives a tensor like the one before."""
    if not isinstance(value, Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(value).__name__}.")
    for what, old, new in (("dtype", dtype, value.dtype), ("shape", shape, value.shape)):
        if old != new:
            raise ValueError(
                f"Registering a parametrization may not change the {what} of the tensor, {unless} "
                f"flag is enabled.\n{before}{what}: {old}\n{after}{what}: {new}"
            )


def _copy(self: Any, memo: dict[int, Any]) -> Any:
    """A deep copy, without asking for a state that can be pickled."""
    if id(self) in memo:
        return memo[id(self)]
    fallback = memo[id(self)] = self.__new__(type(self))
    fallback.__dict__ = copy.deepcopy(self.__dict__, memo)
    for slot in copyreg._slotnames(type(self)):  # type: ignore[attr-defined]
        if hasattr(self, slot):
            setattr(fallback, slot, copy.deepcopy(getattr(self, slot), memo))
    return fallback


def _no_state(self: Any) -> Any:
    raise RuntimeError(
        "Serialization of parametrized modules is only supported through state_dict(). See:\n"
        "https://pytorch.org/tutorials/beginner/saving_loading_models.html"
        "#saving-loading-a-general-checkpoint-for-inference-and-or-resuming-training"
    )


def _property(name: str) -> property:
    """What stands in the place of a parametrised tensor."""

    def get(module: Any) -> Any:
        compute = module.parametrizations[name]
        if not _caching:
            return compute()
        key = id(module), name
        if key not in _cache:
            _cache[key] = compute()
        return _cache[key]

    def assign(module: Any, value: Any) -> None:
        module.parametrizations[name].right_inverse(value)

    return property(get, assign)


def register_parametrization(
    module: _M, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> _M:
    """Have a parameter or buffer computed by a module, each time that it is read.

    The tensor so far moves to `module.parametrizations[tensor_name].original`, through the
    parametrisation's `right_inverse` if it has one; several parametrisations follow one another.
    The module gets a class of its own, derived from its class.

    Args:
        module: whose tensor is parametrised.
        tensor_name: the name of a parameter or buffer.
        parametrization: a module of the tensor, which gives one of the same shape and dtype.
        unsafe: whether shape and dtype may change; nothing is checked then.

    Returns:
        The module.

    Raises:
        ValueError: there is no such tensor, or the parametrisation changes it in a way it may not.

    Example:
        >>> class Symmetric(nn.Module):
        ...     def forward(self, x):
        ...         return x.triu() + x.triu(1).t()
        >>> layer = nn.utils.parametrize.register_parametrization(nn.Linear(2, 2), "weight", Symmetric())
        >>> adjit.equal(layer.weight, layer.weight.t())
        True
        >>> [name for name, _ in layer.named_parameters()]
        ['bias', 'parametrizations.weight.original']
    """
    parametrization.train(module.training)
    holder: Any = module
    if is_parametrized(module, tensor_name):
        if not unsafe:
            _check_another(module, tensor_name, parametrization)
        holder.parametrizations[tensor_name].append(parametrization)
        holder.parametrizations[tensor_name].unsafe |= unsafe
        return module
    if tensor_name not in module._buffers and tensor_name not in module._parameters:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with "
            f"name '{tensor_name}'"
        )
    made = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe=unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        cls = type(module)
        members: dict[str, Any] = {"__getstate__": _no_state}
        if not hasattr(cls, "__deepcopy__"):
            members["__deepcopy__"] = _copy
        holder.__class__ = type(f"Parametrized{cls.__name__}", (cls,), members)
        holder.parametrizations = ModuleDict()
    setattr(type(module), tensor_name, _property(tensor_name))
    holder.parametrizations[tensor_name] = made
    return module


def _check_another(module: Module, name: str, parametrization: Any) -> None:
    """A parametrisation behind others fits what they give."""
    before = getattr(module, name)
    after = parametrization(before)
    _check_alike(
        after, before.shape, before.dtype, f"module.{name}.", f"parametrization(module.{name}).",
        "unless the `unsafe`",
    )  # fmt: skip
    if not hasattr(parametrization, "right_inverse"):
        return
    try:
        back = parametrization.right_inverse(after)
    except NotImplementedError:
        return
    if not isinstance(back, Tensor):
        raise ValueError(
            f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}"
        )
    for what, old, new in (
        ("dtype", before.dtype, back.dtype), ("shape", before.shape, back.shape),
    ):  # fmt: skip
        if old != new:
            raise ValueError(
                f"The tensor returned by parametrization.right_inverse must have the same {what} as "
                f"module.{name}, unless the `unsafe` flag is enabled.\nmodule.{name}.{what}: {old}\n"
                f"returned {what}: {new}"
            )


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Tell whether a tensor of a module is parametrised; without a name, whether any is.

    Example:
        >>> nn.utils.parametrize.is_parametrized(nn.Linear(2, 2), "weight")
        False
    """
    known = getattr(module, "parametrizations", None)
    if not isinstance(known, ModuleDict):
        return False
    return len(known) > 0 if tensor_name is None else tensor_name in known


def remove_parametrizations(module: _M, tensor_name: str, leave_parametrized: bool = True) -> _M:
    """Make a parametrised tensor a plain one again.

    Args:
        module: whose tensor it is.
        tensor_name: its name.
        leave_parametrized: keep the value that it has; otherwise the original one.

    Returns:
        The module.

    Raises:
        ValueError: it is not parametrised, or `leave_parametrized=False` with several originals.

    Example:
        >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
        >>> nn.utils.parametrize.remove_parametrizations(layer, "weight")
        Linear(in_features=3, out_features=2, bias=True)
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    holder: Any = module
    made = holder.parametrizations[tensor_name]
    if made.is_tensor:
        original = made.original
        if leave_parametrized:
            with no_grad():
                original.data = getattr(module, tensor_name).data
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value) if value.requires_grad else value
    else:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized "
            "in terms of a sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del holder.parametrizations[tensor_name]
    _register(module, tensor_name, original)
    if not is_parametrized(module):
        del holder.parametrizations
        holder.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """Give the class that a module had before it was parametrised.

    Example:
        >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
        >>> nn.utils.parametrize.type_before_parametrizations(layer) is nn.Linear
        True
    """
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: _M, tensor_name: str | None = None
) -> _M:
    """Give a module the parametrisations of another one, and the tensors that they are computed from.

    Args:
        from_module: whose parametrisations they are; nothing happens if it has none.
        to_module: gets them, and parameters that it lacks.
        tensor_name: only this tensor; None for all that are parametrised.

    Returns:
        `to_module`.

    Example:
        >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
        >>> other = nn.utils.parametrize.transfer_parametrizations_and_params(layer, nn.Linear(3, 2))
        >>> adjit.equal(layer.weight, other.weight)
        True
    """
    if not is_parametrized(from_module):
        return to_module
    source, target = from_module, to_module
    known: Any = source.parametrizations
    for name in list(known) if tensor_name is None else [tensor_name]:
        if not hasattr(target, name):
            setattr(target, name, Parameter(getattr(source, name)))
        for parametrization in known[name]:
            register_parametrization(target, name, parametrization)
        made: Any = target.parametrizations
        if known[name].is_tensor:
            made[name].original = known[name].original
        else:
            for k in range(known[name].ntensors):
                setattr(made[name], f"original{k}", getattr(known[name], f"original{k}"))
    return to_module
