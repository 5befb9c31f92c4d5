"""What Python objects a function can read, and what they hold.

From the function and its arguments, along what its code can follow: the globals that it names, the variables of
its closures, the attributes whose names are in the bytecode of what ran, and everything in lists, dicts and
other containers that are met on the way. That is more than the function reads, never less; where the way
leads to something nobody can look into (an iterator, a file, a generator of random numbers), `problem`
says so.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import datetime
import decimal
import functools
import pathlib
import re
import sys
import types
import typing
import weakref
from collections.abc import Callable, Iterable
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from .. import devices, dtypes
from ..graph import record
from ..graph.node import GradNode, Meta, Node, Spec
from ..storage import Storage
from ..tensor import Tensor
from . import purity
from .codes import facts_of, functions_in, is_core, is_library
from .guards import (
    Asked,
    Cell,
    Class,
    CodeGuard,
    Count,
    Entries,
    Guard,
    Items,
    Object,
    SlotGuard,
    Whole,
    attributes_of,
    is_of_python,
)

MAX_UNITS = 20_000
MAX_BYTES = 1 << 12  # of an array, whose content is compared

_NAMED: Any = type(vars(collections.namedtuple("_Named", "first"))["first"])  # its attributes

_PLAIN = (
    type(None), bool, int, float, complex, str, bytes, range, slice, type(Ellipsis), type(NotImplemented),
    np.generic, np.dtype, np.ufunc, dtypes.dtype, devices.device, re.Pattern, decimal.Decimal, datetime.date,
    datetime.time, datetime.timedelta, pathlib.PurePath, types.GenericAlias, types.UnionType,
    typing.TypeVar, _NAMED, types.MemberDescriptorType, types.GetSetDescriptorType, CodeType, Node, Spec,
    Storage, Meta, GradNode,
)  # fmt: skip
_VIEWS: tuple[type, ...] = (
    type({}.keys()),
    type({}.values()),
    type({}.items()),
    types.MappingProxyType,
)
_HOOKS_OF_MODULES = (
    "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks",
)  # fmt: skip
_REGISTRIES = ("_parameters", "_buffers", "_modules")


class Reached:
    """Everything that code can read, from some roots on.

    Args:
        roots: the function, its arguments that are no tensors, and what hooks tensors have.
        codes: the code that runs.
        is_dynamic: it reads attributes whose names nobody knows before.
    """

    def __init__(self, roots: Iterable[Any], codes: set[CodeType], is_dynamic: bool) -> None:
        facts = [facts_of(code) for code in codes]
        self._codes = codes
        self._names = frozenset[str]().union(*[found.attributes for found in facts])
        # The library's own code passes no function of C on that is not pure.
        of_users = [found for code, found in zip(codes, facts, strict=True) if not is_library(code)]
        self._passed = frozenset[str]().union(*[found.passed for found in of_users])
        self._all_names = is_dynamic
        self.units: list[Guard] = []
        self.tensors: set[int] = set()
        self.accounted: set[CodeType] = set()
        self.problem = ""
        self._seen: dict[int, Any] = {}  # by id; what is held cannot give its id to something else
        self._entries: dict[int, tuple[dict[str, Any], set[str], str]] = {}
        self._todo: list[tuple[Any, str]] = [(root, "an argument") for root in roots]
        while self._todo and not self.problem:
            self._visit(*self._todo.pop())
        for d, names, name in self._entries.values():
            self._add(Entries(d, names, name))

    def met(self) -> Iterable[Any]:
        """Everything that was reached and is no plain value."""
        return self._seen.values()

    def explains(self, code: CodeType) -> bool:
        """Whether a function that has run is among those that were reached."""
        return code in self.accounted

    # ----- one value -----

    def _visit(self, value: Any, name: str) -> None:
        if isinstance(value, _PLAIN) or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if record.is_tensor(value):
            self._visit_tensor(value, name)
            return
        constants = getattr(type(value), "_constants_of_capture", None)
        if constants is not None:  # a function whose text was read, and did not run
            self._add(Asked(functools.partial(constants, value), name))
            return
        for kinds, visit in _VISITS:
            if isinstance(value, kinds):
                visit(self, value, name)
                return
        self._visit_object(value, name)

    def _add(self, unit: Guard) -> None:
        self.units.append(unit)
        if len(self.units) > MAX_UNITS:
            self.problem = f"it can read more than {MAX_UNITS} Python objects ({unit.name})"

    def _stop(self, value: Any, name: str) -> None:
        kind = type(value)
        where = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        self.problem = f"{name} is a {where}{kind.__qualname__}, which cannot be looked into"

    def _push(self, value: Any, name: str) -> None:
        self._todo.append((value, name))

    # ----- containers -----

    def _visit_sequence(self, value: Any, name: str) -> None:
        for k, item in enumerate(tuple.__iter__(value)):
            self._push(item, f"{name}[{k}]")

    def _visit_list(self, value: Any, name: str) -> None:
        self._add(Items(value, name))
        for k, item in enumerate(list.__iter__(value)):
            self._push(item, f"{name}[{k}]")
        self._visit_attributes(value, name)

    def _visit_dict(self, value: Any, name: str) -> None:
        self._add(Whole(value, name))
        for key, item in dict.items(value):
            self._push(key, f"a key of {name}")
            self._push(item, f"{name}[{_short(key)}]")
        if type(value) is collections.defaultdict:
            self._push(value.default_factory, f"{name}.default_factory")
        self._visit_attributes(value, name)

    def _visit_set(self, value: Any, name: str) -> None:
        if not isinstance(value, frozenset):
            self._add(Asked(lambda: set(map(id, value)), name))
        for item in value:
            self._push(item, f"an element of {name}")
        self._visit_attributes(value, name)

    def _visit_deque(self, value: Any, name: str) -> None:
        self._add(Asked(lambda: list(map(id, value)), name))
        for item in value:
            self._push(item, f"an element of {name}")

    def _visit_bytes(self, value: bytearray, name: str) -> None:
        if len(value) > MAX_BYTES:
            self._stop(value, name)
        self._add(Asked(lambda: bytes(value), name))

    def _visit_array(self, value: Any, name: str) -> None:
        if value.nbytes > MAX_BYTES or value.dtype.hasobject:
            self.problem = f"{name} is a NumPy array of {value.nbytes} bytes, too many to compare"
            return
        self._add(Asked(lambda: (value.shape, value.dtype.str, value.tobytes()), name))

    def _visit_cell(self, value: CellType, name: str) -> None:
        self._add(Cell(value, name))
        with contextlib.suppress(ValueError):
            self._push(value.cell_contents, name)

    def _visit_view(self, value: Any, name: str) -> None:
        owner = value if isinstance(value, types.MappingProxyType) else value.mapping
        if isinstance(owner, types.MappingProxyType):
            owner = owner | {}
        self._push(owner, name)

    def _visit_reference(self, value: Any, name: str) -> None:
        self._push(value(), name)

    # ----- functions -----

    def _visit_function(self, value: FunctionType, name: str) -> None:
        code = value.__code__
        if code not in self._codes:
            if hasattr(value, "__wrapped__"):
                self._push(value.__wrapped__, name)
            if is_core(value) or not self._wraps_what_runs(value):
                return
        name = value.__qualname__
        self._add(CodeGuard(value, name))
        facts = facts_of(code)
        self.accounted |= {code, *facts.nested}
        for part in (value.__defaults__ or (), *(value.__kwdefaults__ or {}).items()):
            self._push(part, f"a default of {name}")
        if value.__kwdefaults__:
            self._push(value.__kwdefaults__, f"the defaults of {name}")
        for variable, cell in zip(code.co_freevars, value.__closure__ or (), strict=True):
            self._push(cell, f"{variable} of {name}")
        scope, own = value.__globals__, vars(builtins)
        for variable in facts.globals:
            if variable in scope:
                self._read_entry(scope, variable, variable, f"the globals of {name}")
            else:
                self._read_entry(
                    scope, variable, variable, f"the globals of {name}", is_there=False
                )
                if variable in own:
                    self._read_entry(own, variable, variable, "builtins")
        for module in facts.modules:
            parts = module.split(".")
            for k in range(1, len(parts) + 1):
                whole = ".".join(parts[:k])
                if whole in sys.modules:
                    self._read_entry(sys.modules, whole, whole, "sys.modules")
        self._visit_attributes(value, name)

    def _wraps_what_runs(self, value: FunctionType) -> bool:
        """Whether code nested in a function runs: that of a generator or a lambda made by an earlier call."""
        return not self._codes.isdisjoint(facts_of(value.__code__).nested)

    def _visit_method(self, value: MethodType, name: str) -> None:
        self._push(value.__func__, name)
        self._push(value.__self__, name)

    def _visit_builtin(self, value: Any, name: str) -> None:
        owner = getattr(value, "__self__", None)
        if not purity.is_pure(value):
            self.problem = f"{name} is {purity.name_of(value)}"
        elif not isinstance(owner, (ModuleType, type)):
            self._push(owner, name)

    def _visit_partial(self, value: Any, name: str) -> None:
        self._push(value.func, name)
        self._push(value.args, name)
        self._push(value.keywords, name)
        self._visit_attributes(value, name)

    def _visit_descriptor(self, value: Any, name: str) -> None:
        for function in functions_in(value):
            self._push(function, name)

    # ----- modules, classes, objects -----

    def _visit_module(self, value: ModuleType, name: str) -> None:
        scope = vars(value)
        for attribute in self._names.intersection(scope):
            self._read_entry(scope, attribute, f"{value.__name__}.{attribute}", value.__name__)
        if self._all_names and not is_core(value):
            self.problem = f"attributes of the module {value.__name__} may be read by any name"

    def _visit_class(self, value: type, name: str) -> None:
        if not is_of_python(value):
            if not (purity.is_plain_type(value) or _is_known(value)):
                self.problem = f"{name} is the class {value.__module__}.{value.__qualname__} of C"
            return
        if is_core(value):
            return
        if type(value) is not type:
            self._push(type(value), f"the class of {name}")
        self._add(Class(value, self._names, f"the class {value.__qualname__}"))
        for base in value.__mro__:
            if base is object:
                break
            for attribute, part in vars(base).items():
                if attribute in self._names and not isinstance(part, _DESCRIPTORS):
                    self._push(part, f"{value.__qualname__}.{attribute}")
                for function in functions_in(part):
                    if function.__code__ in self._codes or hasattr(function, "__wrapped__"):
                        self._push(function, f"{value.__qualname__}.{attribute}")

    def _visit_object(self, value: Any, name: str) -> None:
        kind = type(value)
        if kind.__module__.startswith("adjit.") and is_core(kind):
            if _is_optimizer(kind):
                self._visit_optimizer(value, name)
            return
        if not _is_all_python(kind):
            if not (_is_known(kind) or (kind is _CACHED and _is_known(value))):
                self._stop(value, name)
            return
        self._push(kind, f"the class of {name}")
        attributes = attributes_of(value)
        self._add(Object(value, attributes, name))
        self._visit_attributes(value, name)
        for base in kind.__mro__:
            for attribute, member in vars(base).items():
                if isinstance(member, types.MemberDescriptorType) and (
                    self._all_names or attribute in self._names
                ):
                    slot = SlotGuard(value, member, f"{name}.{attribute}")
                    self._add(slot)
                    self._push(slot.found, slot.name)

    def _visit_attributes(self, value: Any, name: str) -> None:
        """The attributes that an object has of its own."""
        attributes = attributes_of(value)
        if attributes is None:
            return
        names = set(self._names)
        if self._all_names:
            names |= attributes.keys()
        if _is_module(type(value)):
            names.update(_HOOKS_OF_MODULES, _REGISTRIES)
            for registry in _REGISTRIES:
                entries = attributes.get(registry)
                if isinstance(entries, dict) and registry not in self._names:
                    for entry in self._names.intersection(entries):
                        self._read_entry(entries, entry, f"{name}.{entry}", f"{name}.{registry}")
                    names.discard(registry)
                    self._read_entry(attributes, registry, "", name, is_followed=False)
        if not names.isdisjoint(attributes) or not _has_no_attributes(value):
            for attribute in names:
                if attribute in attributes or self._may_appear(value, attribute):
                    self._read_entry(
                        attributes, attribute, f"{name}.{attribute}", name,
                        is_there=attribute in attributes,
                    )  # fmt: skip

    def _may_appear(self, value: Any, attribute: str) -> bool:
        """Whether an attribute that is not there would be found if it came to be there."""
        return hasattr(type(value), attribute) or _is_module(type(value))

    def _read_entry(
        self, d: dict[Any, Any], key: Any, name: str, owner: str, *, is_there: bool = True,
        is_followed: bool = True,
    ) -> None:  # fmt: skip
        """Code reads an entry of a dict, of which other entries may not matter."""
        entry = self._entries.setdefault(id(d), (d, set(), owner))
        entry[1].add(key)
        if is_there and is_followed and not self._is_only_called(key, d[key]):
            self._push(d[key], name)

    def _is_only_called(self, name: Any, value: Any) -> bool:
        """Whether a function of C is called under its name alone: if it is, that is seen."""
        if not isinstance(value, purity.FUNCTIONS) or name in self._passed or self._all_names:
            return False
        return not isinstance(
            getattr(value, "__self__", None), (list, dict, set, collections.deque)
        )

    # ----- what belongs to the library -----

    def _visit_tensor(self, t: Any, name: str) -> None:
        self.tensors.add(id(t))
        meta = t._more()  # made by now: watching makes one, which is no change by the function
        self._add(SlotGuard(t, _META, f"the hooks of {name}"))
        for hooks in (meta.hooks, meta.post_hooks):
            self._push(hooks, f"the hooks of {name}")
        if t.__dict__:
            self._visit_attributes(t, name)
        if t._view_of is not None:
            self._push(t._view_of.base, f"the base of {name}")

    def _visit_optimizer(self, value: Any, name: str) -> None:
        """The parameters, options and state of an optimiser whose step is the library's own.

        Options that it looks up at every step, and counters, may change.
        """
        attributes = vars(value)
        self._add(Object(value, attributes, name))
        self._push(type(value).step, name)
        followed: frozenset[str] = getattr(type(value), "_followed", frozenset())
        for kept in (
            "param_groups",
            "state",
            *[n for n in attributes if n.startswith("_optimizer_step")],
        ):
            is_whole = kept.startswith("_optimizer_step") or kept in self._names
            self._read_entry(attributes, kept, f"{name}.{kept}", name, is_followed=is_whole)
        self._add(Count(value.state, f"{name}.state"))
        for parameter, state in value.state.items():
            self._add(Count(state, f"{name}.state[...]"))
            self.tensors.add(id(parameter))
            self._read_entry(value.state, parameter, "", f"{name}.state", is_followed=False)
            for key, kept in state.items():
                if not isinstance(kept, (int, float)):
                    self._read_entry(
                        state, key, f"{name}.state[...][{key!r}]", f"{name}.state[...]"
                    )
        self._add(Items(value.param_groups, f"{name}.param_groups"))
        for group in value.param_groups:
            for option in group:
                if option not in followed or record.is_tensor(group[option]):
                    label = f"{name}.param_groups[...][{option!r}]"
                    self._read_entry(group, option, label, f"{name}.param_groups[...]")


_CACHED = type(functools.lru_cache(int))
_DESCRIPTORS = (FunctionType, property, functools.cached_property, types.MemberDescriptorType,
                types.GetSetDescriptorType)  # fmt: skip
_META: Any = vars(Tensor)["_autograd_meta"]


def _short(key: Any) -> str:
    return repr(key) if isinstance(key, (str, int)) else "..."


def _is_module(kind: type) -> bool:
    return issubclass(kind, tuple(module_classes))


module_classes: list[type] = []  # `nn.Module`, once there is one


def _is_optimizer(kind: type) -> bool:
    from ..optim.optimizer import Optimizer

    return issubclass(kind, Optimizer)


def _is_known(kind: Any) -> bool:
    """Whether a class or a function is the library's, or one of those that mean nothing at run time."""
    return kind.__module__.partition(".")[0] in ("adjit", "typing", "numpy") and (
        not kind.__module__.startswith("numpy.random")
    )


def _is_all_python(kind: type) -> bool:
    """Whether all that an object holds is attributes and slots."""
    return all(
        base is object or is_of_python(base) or base in (typing.Generic, types.SimpleNamespace, BaseException)
        or (base.__module__ == "builtins" and issubclass(base, BaseException))
        for base in kind.__mro__
    )  # fmt: skip


def _has_no_attributes(value: Any) -> bool:
    return isinstance(value, (list, dict, set, FunctionType, functools.partial))


_VISITS: list[tuple[Any, Callable[[Reached, Any, str], None]]] = [
    (tuple, Reached._visit_sequence),
    (list, Reached._visit_list),
    (dict, Reached._visit_dict),
    ((set, frozenset), Reached._visit_set),
    (collections.deque, Reached._visit_deque),
    (bytearray, Reached._visit_bytes),
    (np.ndarray, Reached._visit_array),
    (CellType, Reached._visit_cell),
    (_VIEWS, Reached._visit_view),
    (weakref.ref, Reached._visit_reference),
    (FunctionType, Reached._visit_function),
    (MethodType, Reached._visit_method),
    (purity.FUNCTIONS, Reached._visit_builtin),
    (functools.partial, Reached._visit_partial),
    ((staticmethod, classmethod, property, functools.cached_property), Reached._visit_descriptor),
    (ModuleType, Reached._visit_module),
    (type, Reached._visit_class),
]
