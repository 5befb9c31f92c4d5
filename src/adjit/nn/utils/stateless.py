"""Modules called with tensors that are given, in the place of their own."""

from __future__ import annotations

import warnings
from typing import Any

from ...tensor import Tensor
from ..module import Module

__all__ = ["functional_call"]

# By names, the registry that a tensor is in and its name there.
Places = dict[str, tuple[dict[str, Any], str]]


class _reparametrize_module:
    """A context in which a module has the tensors that are given; what it makes of them is in `given` then.

    PyTorch's name for it, which zuko's Bayesian networks use. A class: a generator would take half as long as a
    call of a small module.
    """

    def __init__(
        self, module: Module, parameters_and_buffers: dict[str, Tensor], tie_weights: bool = False,
        strict: bool = False, stack_weights: bool = False,
    ) -> None:  # fmt: skip
        self.module, self.given = module, parameters_and_buffers
        self.tie_weights, self.strict = tie_weights, strict
        self.before: dict[str, Any] = {}

    def __enter__(self) -> None:
        self.places, own = _places(self.module, "", {}, {})
        given = _with_ties(own, self.given) if self.tie_weights else self.given
        if self.strict:
            _check_names(self.module, own, given)
        try:
            for name, t in given.items():
                self.before[name] = self.exchange(name, t)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *error: object) -> None:
        after = {name: self.exchange(name, t) for name, t in self.before.items()}
        given = self.given
        for name in given:
            if name in after:
                given[name] = after[name]

    def exchange(self, name: str, t: Any) -> Any:
        """Put a tensor into the place of that name; what was there."""
        found = self.places.get(name)
        if found is not None:
            registry, last = found
            if last in registry:
                before, registry[last] = registry[last], t
                return before
        return _exchange_attribute(self.module, name, t)


def called_with(
    module: Module,
    given: dict[str, Tensor],
    args: Any,
    kwargs: dict[str, Any] | None,
    tie_weights: bool,
    strict: bool,
) -> Any:
    """What a module gives with these tensors; what it replaced is in `given` then."""
    with _reparametrize_module(module, given, tie_weights, strict):
        positional = () if args is None else args if isinstance(args, tuple) else (args,)
        return module(*positional, **(kwargs or {}))


def _places(
    module: Module, path: str, places: Places, own: dict[str, Tensor]
) -> tuple[Places, dict[str, Tensor]]:
    """Where the parameters and buffers of a module and of all below are by all their names, and what they are.

    In one walk, as calls of small modules take no longer.
    """
    for registry in (module._buffers, module._parameters):
        for last, t in registry.items():
            name = path + last
            places[name] = registry, last
            if t is not None:
                own[name] = t
    for last, child in module._modules.items():
        if child is not None:
            _places(child, f"{path}{last}.", places, own)
    return places, own


def _exchange_attribute(module: Module, name: str, t: Any) -> Any:
    """What `exchange` does where neither a parameter nor a buffer had that name."""
    path, _, last = name.rpartition(".")
    owner = module.get_submodule(path)
    for registry in (owner._parameters, owner._buffers):
        if last in registry:
            before, registry[last] = registry[last], t
            return before
    before = owner.__dict__.get(last, MISSING)
    if before is not MISSING and not isinstance(before, Tensor):
        raise TypeError(f"{before} is not an instance of torch.Tensor")
    if t is MISSING:
        del owner.__dict__[last]
    else:
        owner.__dict__[last] = t
    return before


MISSING = object()  # where a module has nothing of a name


def _with_ties(own: dict[str, Tensor], given: dict[str, Tensor]) -> dict[str, Tensor]:
    """What is given, also under the other names of the same tensors of the module."""
    if len(set(map(id, own.values()))) == len(own):
        return given
    names: dict[int, list[str]] = {}
    for name, t in own.items():
        names.setdefault(id(t), []).append(name)
    found = dict(given)
    for tied in names.values():
        values = {id(given[name]): given[name] for name in tied if name in given}
        if len(values) > 1:
            raise ValueError(
                f"functional_call got multiple values for keys {sorted(tied)}, which are tied. Consider "
                "using tie_weights=False"
            )
        for value in values.values():
            found.update(dict.fromkeys(tied, value))
    return found


def _check_names(module: Module, own: dict[str, Tensor], given: dict[str, Tensor]) -> None:
    unexpected = sorted(name for name in given if name not in own)
    missing = sorted(name for name in own if name not in given)
    texts = []
    if unexpected:
        texts.append(f"Unexpected key(s): {', '.join(map(repr, unexpected))}.")
    if missing:
        texts.append(f"Missing key(s): {', '.join(map(repr, missing))}.")
    if texts:
        raise RuntimeError(
            f"Error(s) in reparametrizing for {module._get_name()}:\n\t" + "\n\t".join(texts)
        )


def functional_call(
    module: Module,
    parameters_and_buffers: dict[str, Tensor],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """`adjit.func.functional_call` by its old name, with one dictionary.

    Example:
        >>> m = nn.Linear(2, 1, bias=False)
        >>> weights = {"weight": adjit.tensor([[1., 2.]])}
        >>> import warnings
        >>> with warnings.catch_warnings(action="ignore"):
        ...     nn.utils.stateless.functional_call(m, weights, adjit.ones(2))
        tensor([3.])
    """
    warnings.warn(
        "`torch.nn.utils.stateless.functional_call` is deprecated as of PyTorch 2.0 and will be removed in a "
        "future version of PyTorch. Please use `torch.func.functional_call` instead which is a drop-in "
        "replacement.",
        FutureWarning,
        stacklevel=2,
    )
    return called_with(module, parameters_and_buffers, args, kwargs, tie_weights, strict)
