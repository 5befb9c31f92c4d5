"""Modules that hold others: Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from itertools import chain
from typing import Any, Self, SupportsIndex, overload

from ..tensor import Tensor
from .module import Module, entry, indented
from .parameter import Parameter


class _ModuleSequence(Module):
    """What Sequential and ModuleList share: submodules named by their position."""

    _modules: dict[str, Module]  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    def __setitem__(self, idx: SupportsIndex, module: Module) -> None:
        setattr(self, self._key(idx), module)

    def __delitem__(self, idx: SupportsIndex | slice) -> None:
        keys = list(self._modules)
        for key in keys[idx] if isinstance(idx, slice) else [self._key(idx)]:
            delattr(self, key)
        self._modules = {str(i): module for i, module in enumerate(self)}

    def _key(self, idx: SupportsIndex) -> str:
        position = operator.index(idx)
        if not -len(self) <= position < len(self):
            raise IndexError(f"index {position} is out of range")
        return list(self._modules)[position]

    def append(self, module: Module) -> Self:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def pop(self, key: SupportsIndex | slice) -> Any:
        """Take out and return one module, or a slice of them."""
        removed = self[key]  # type: ignore[index]
        del self[key]
        return removed

    def _shift_in(self, index: int, module: Module) -> None:
        for i in range(len(self), index, -1):
            self._modules[str(i)] = self._modules[str(i - 1)]
        self._modules[str(index)] = module


class Sequential(_ModuleSequence):
    """Modules called one after the other, each on the result of the one before.

    Args:
        args: the modules, or one `OrderedDict` of names to modules.

    Example:
        >>> nn.Sequential(nn.Linear(2, 3), nn.ReLU())
        Sequential(
          (0): Linear(in_features=2, out_features=3, bias=True)
          (1): ReLU()
        )
    """

    @overload
    def __init__(self, *args: Module) -> None: ...
    @overload
    def __init__(self, arg: OrderedDict[str, Module], /) -> None: ...
    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            named: Iterable[tuple[str, Module]] = args[0].items()
        else:
            named = ((str(i), module) for i, module in enumerate(args))
        for name, module in named:
            self.add_module(name, module)

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input

    @overload
    def __getitem__(self, idx: slice) -> Sequential: ...
    @overload
    def __getitem__(self, idx: SupportsIndex) -> Any: ...
    def __getitem__(self, idx: SupportsIndex | slice) -> Any:
        if isinstance(idx, slice):
            return type(self)(OrderedDict(list(self._modules.items())[idx]))
        return self._modules[self._key(idx)]

    def extend(self, sequential: Iterable[Module]) -> Self:
        """Add the modules of an iterable at the end.

        Example:
            >>> net = nn.Sequential(nn.ReLU())
            >>> net.extend([nn.Tanh()])
            Sequential(
              (0): ReLU()
              (1): Tanh()
            )
        """
        for module in sequential:
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Self:
        """Put a module before the one at `index`.

        Raises:
            AssertionError: `module` is no Module.
            IndexError: `index` lies outside.

        Example:
            >>> net = nn.Sequential(nn.ReLU())
            >>> net.insert(0, nn.Tanh())
            Sequential(
              (0): Tanh()
              (1): ReLU()
            )
        """
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        size = len(self)
        if not -size <= index <= size:
            raise IndexError(f"Index out of range: {index}")
        self._shift_in(index + size if index < 0 else index, module)
        return self

    def __add__(self, other: Any) -> Sequential:
        self._check_addend(other)
        return Sequential(*self, *other)

    def __iadd__(self, other: Any) -> Self:
        self._check_addend(other)
        return self.extend(list(other))

    def __mul__(self, other: int) -> Sequential:
        self._check_factor(other)
        return Sequential(*(list(self) * other))

    def __rmul__(self, other: int) -> Sequential:
        return self * other

    def __imul__(self, other: int) -> Self:
        self._check_factor(other)
        return self.extend(list(self) * (other - 1))

    def _check_addend(self, other: Any) -> None:
        if not isinstance(other, Sequential):
            raise ValueError(
                "add operator supports only objects of Sequential class, but "
                f"{type(other)} is given."
            )

    def _check_factor(self, other: Any) -> None:
        if not isinstance(other, int):
            raise TypeError(f"unsupported operand type(s) for *: {type(self)} and {type(other)}")
        if other <= 0:
            raise ValueError(f"Non-positive multiplication factor {other} for {type(self)}")


class ModuleList(_ModuleSequence):
    """A list of modules; its elements are registered, it has no forward of its own.

    Example:
        >>> layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        >>> x = adjit.zeros(1, 4)
        >>> for layer in layers:
        ...     x = layer(x)
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    @overload
    def __getitem__(self, idx: slice) -> ModuleList: ...
    @overload
    def __getitem__(self, idx: SupportsIndex) -> Any: ...
    def __getitem__(self, idx: SupportsIndex | slice) -> Any:
        if isinstance(idx, slice):
            return type(self)(list(self)[idx])
        return self._modules[self._key(idx)]

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add the modules of an iterable at the end; TypeError for anything else.

        Example:
            >>> layers = nn.ModuleList([nn.ReLU()])
            >>> layers.extend([nn.Tanh()])
            ModuleList(
              (0): ReLU()
              (1): Tanh()
            )
        """
        if not isinstance(modules, Iterable):
            raise TypeError(
                "ModuleList.extend should be called with an iterable, but got "
                + type(modules).__name__
            )
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> None:
        """Put a module before the one at `index`, counted from the front.

        Example:
            >>> layers = nn.ModuleList([nn.ReLU()])
            >>> layers.insert(0, nn.Tanh())
            >>> layers[0]
            Tanh()
        """
        self._shift_in(index, module)

    def __iadd__(self, modules: Iterable[Module]) -> Self:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList(chain(self, other))

    def __repr__(self) -> str:
        if not len(self):
            return f"{self._get_name()}()"
        runs: list[tuple[int, int, str]] = []  # first, last and repr of equal neighbours
        for i, text in enumerate(map(repr, self)):
            if runs and runs[-1][2] == text:
                runs[-1] = (runs[-1][0], i, text)
            else:
                runs.append((i, i, text))
        lines = [
            f"({first}): {text}"
            if first == last
            else f"({first}-{last}): {last - first + 1} x {text}"
            for first, last, text in runs
        ]
        inner = "\n  ".join(map(indented, lines))
        return f"{self._get_name()}(\n  {inner}\n)"


class ModuleDict(Module):
    """A dictionary of modules; its values are registered, it has no forward of its own.

    Example:
        >>> heads = nn.ModuleDict({"mean": nn.Linear(4, 1), "scale": nn.Linear(4, 1)})
        >>> heads["mean"](adjit.zeros(2, 4)).shape
        adjit.Size([2, 1])
    """

    _modules: dict[str, Module]  # type: ignore[assignment]

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Remove everything.

        Example:
            >>> d = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
            >>> d.clear()
            >>> len(d)
            0
        """
        self._modules.clear()

    def pop(self, key: str) -> Any:
        """Take out and return the module under `key`.

        Example:
            >>> d = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
            >>> d.pop("a")
            ReLU()
        """
        return self._modules.pop(key)

    def keys(self) -> KeysView[str]:
        """Iterate over the names.

        Example:
            >>> d = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
            >>> list(d.keys())
            ['a', 'b']
        """
        return self._modules.keys()

    def items(self) -> ItemsView[str, Module]:
        """Iterate over the pairs of name and module.

        Example:
            >>> d = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
            >>> list(d.items())
            [('a', ReLU()), ('b', Tanh())]
        """
        return self._modules.items()

    def values(self) -> ValuesView[Module]:
        """Iterate over the modules.

        Example:
            >>> d = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
            >>> list(d.values())
            [ReLU(), Tanh()]
        """
        return self._modules.values()

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Add the entries of a mapping, or of an iterable of pairs.

        Raises:
            TypeError: `modules`, or an element of it, is no iterable.
            ValueError: an element is no pair.

        Example:
            >>> d = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
            >>> d.update({"c": nn.GELU()})
            >>> list(d)
            ['a', 'b', 'c']
        """
        for key, module in _pairs(modules, "ModuleDict", "ModuleDict"):
            self[key] = module


class ParameterList(Module):
    """A list of parameters; tensors put into it become parameters.

    Example:
        >>> nn.ParameterList([adjit.ones(2), adjit.ones(3)])
        ParameterList(
            (0): Parameter containing: [adjit.float32 of size 2]
            (1): Parameter containing: [adjit.float32 of size 3]
        )
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    @overload
    def __getitem__(self, idx: slice) -> ParameterList: ...
    @overload
    def __getitem__(self, idx: SupportsIndex) -> Any: ...
    def __getitem__(self, idx: SupportsIndex | slice) -> Any:
        if isinstance(idx, slice):
            return type(self)(self[i] for i in range(*idx.indices(len(self))))
        return entry(self, self._key(idx))

    def __setitem__(self, idx: SupportsIndex, param: Any) -> None:
        setattr(self, self._key(idx), _as_parameter(param))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __iadd__(self, parameters: Iterable[Any]) -> Self:
        return self.extend(parameters)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    def _key(self, idx: SupportsIndex) -> str:
        position = operator.index(idx)
        if not -len(self) <= position < len(self):
            raise IndexError(f"index {position} is out of range")
        return str(position % len(self))

    def append(self, value: Any) -> Self:
        """Add a value at the end.

        Example:
            >>> weights = nn.ParameterList([adjit.zeros(2)])
            >>> len(weights.append(adjit.ones(3)))
            2
        """
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable[Any]) -> Self:
        """Add the values of an iterable at the end; TypeError for a tensor or no iterable.

        Example:
            >>> weights = nn.ParameterList([adjit.zeros(2)])
            >>> len(weights.extend([adjit.ones(3), adjit.ones(4)]))
            3
        """
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError(
                "ParameterList.extend should be called with an iterable, but got "
                + type(values).__name__
            )
        for value in list(values):
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(
            f"  ({i}): {_described(value, str(value.dtype))}"
            if isinstance(value, Tensor)
            else f"  ({i}): Object of type: {type(value).__name__}"
            for i, value in enumerate(self)
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("ParameterList should not be called.")


class ParameterDict(Module):
    """A dictionary of parameters; tensors put into it become parameters.

    A plain dict is taken in the order of its keys, an `OrderedDict` in its own order.

    Example:
        >>> params = nn.ParameterDict({"left": adjit.ones(2), "right": adjit.ones(2)})
        >>> params["left"].requires_grad
        True
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        return entry(self, self._checked(key))

    def __setitem__(self, key: str, value: Any) -> None:
        self._keys[self._checked(key)] = None
        setattr(self, key, _as_parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, self._checked(key))

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._keys)

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def __or__(self, other: ParameterDict) -> ParameterDict:
        merged = self.copy()
        merged.update(other)
        return merged

    def __ror__(self, other: ParameterDict) -> ParameterDict:
        merged = other.copy()
        merged.update(self)
        return merged

    def __ior__(self, other: ParameterDict) -> Self:
        self.update(other)
        return self

    def _checked(self, key: Any) -> str:
        if not isinstance(key, str):
            raise TypeError(
                "Index given to ParameterDict cannot be used as a key as it is not a string "
                f"(type is '{type(key).__name__}'). Open an issue on github if you need non-string "
                "keys."
            )
        return key

    def copy(self) -> ParameterDict:
        """Make a new dictionary with the same parameters.

        Example:
            >>> d = nn.ParameterDict({"a": adjit.zeros(2), "b": adjit.ones(3)})
            >>> d.copy()["a"] is d["a"]
            True
        """
        return ParameterDict(OrderedDict(self.items()))

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Give the value under `key`, which becomes `default` where there is none.

        Example:
            >>> d = nn.ParameterDict({"a": adjit.zeros(2), "b": adjit.ones(3)})
            >>> d.setdefault("c", adjit.zeros(1)).shape
            adjit.Size([1])
        """
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Remove everything.

        Example:
            >>> d = nn.ParameterDict({"a": adjit.zeros(2), "b": adjit.ones(3)})
            >>> d.clear()
            >>> len(d)
            0
        """
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Any:
        """Take out and return the value under `key`.

        Example:
            >>> d = nn.ParameterDict({"a": adjit.zeros(2), "b": adjit.ones(3)})
            >>> d.pop("a").shape
            adjit.Size([2])
        """
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Take out and return the pair put in last.

        Example:
            >>> d = nn.ParameterDict({"a": adjit.zeros(2), "b": adjit.ones(3)})
            >>> d.popitem()[0]
            'b'
        """
        if not self._keys:
            raise KeyError("popitem(): dictionary is empty")
        key = next(reversed(self._keys))
        return key, self.pop(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Give the value under `key`, or `default`.

        Example:
            >>> d = nn.ParameterDict({"a": adjit.zeros(2), "b": adjit.ones(3)})
            >>> d.get("c") is None
            True
        """
        return entry(self, key) if key in self._keys else default

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """Make a new dictionary with `default` under every key.

        Example:
            >>> d = nn.ParameterDict({"a": adjit.zeros(2), "b": adjit.ones(3)})
            >>> list(d.fromkeys(["x", "y"], adjit.zeros(1)))
            ['x', 'y']
        """
        return ParameterDict((key, default) for key in keys)

    def keys(self) -> KeysView[str]:
        """Iterate over the names.

        Example:
            >>> d = nn.ParameterDict({"a": adjit.zeros(2), "b": adjit.ones(3)})
            >>> list(d.keys())
            ['a', 'b']
        """
        return self._keys.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Iterate over the pairs of name and value.

        Example:
            >>> d = nn.ParameterDict({"a": adjit.zeros(2), "b": adjit.ones(3)})
            >>> [(name, p.shape) for name, p in d.items()]
            [('a', adjit.Size([2])), ('b', adjit.Size([3]))]
        """
        return ((key, self[key]) for key in self._keys)

    def values(self) -> Iterable[Any]:
        """Iterate over the values.

        Example:
            >>> d = nn.ParameterDict({"a": adjit.zeros(2), "b": adjit.ones(3)})
            >>> [p.shape for p in d.values()]
            [adjit.Size([2]), adjit.Size([3])]
        """
        return (self[key] for key in self._keys)

    def update(self, parameters: Any) -> None:
        """Add the entries of a mapping, or of an iterable of pairs.

        Raises:
            TypeError: `parameters`, or an element of it, is no iterable.
            ValueError: an element is no pair.

        Example:
            >>> d = nn.ParameterDict({"a": adjit.zeros(2), "b": adjit.ones(3)})
            >>> d.update({"c": adjit.zeros(1)})
            >>> list(d)
            ['a', 'b', 'c']
        """
        pairs = _pairs(parameters, "ParametersDict", "ParameterDict")
        in_key_order = isinstance(parameters, Mapping) and not isinstance(parameters, OrderedDict)
        for key, value in sorted(pairs) if in_key_order else pairs:
            self[key] = value

    def extra_repr(self) -> str:
        return "\n".join(
            f"  ({key}): {_described(value, str(value.type()))}"
            if isinstance(value, Tensor)
            else f"  ({key}): Object of type: {type(value).__name__}"
            for key, value in self.items()
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("ParameterDict should not be called.")


def _as_parameter(value: Any) -> Any:
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        return Parameter(value)
    return value


def _described(tensor: Tensor, kind: str) -> str:
    size = "x".join(map(str, tensor.shape))
    where = f" ({tensor.device})" if tensor.device.type != "cpu" else ""
    holder = "Parameter" if isinstance(tensor, Parameter) else "Tensor"
    return f"{holder} containing: [{kind} of size {size}{where}]"


def _pairs(entries: Any, caller: str, owner: str) -> list[tuple[str, Any]]:
    """The entries of a mapping or of an iterable of pairs, checked."""
    if not isinstance(entries, Iterable):
        raise TypeError(
            f"{caller}.update should be called with an iterable of key/value pairs, but got "
            + type(entries).__name__
        )
    if isinstance(entries, (Mapping, ModuleDict, ParameterDict)):
        return list(entries.items())
    pairs = list(entries)
    for i, pair in enumerate(pairs):
        if not isinstance(pair, Iterable):
            raise TypeError(
                f"{owner} update sequence element #{i} should be Iterable; is{type(pair).__name__}"
            )
        if len(pair) != 2:  # type: ignore[arg-type]
            raise ValueError(
                f"{owner} update sequence element #{i} has length {len(pair)}; 2 is required"  # type: ignore[arg-type]
            )
    return pairs
