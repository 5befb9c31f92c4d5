"""Symbols: what stands for values while a program is traced, and notes what is done with them."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import dis
import enum
import inspect
import operator
import traceback
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from .. import overrides
from ..devices import device
from ..dtypes import dtype
from ..formats import layout, memory_format
from ..nn.parameter import Parameter
from .code import magic_methods, reflectable_magic_methods
from .graph import Graph
from .node import Node, base_types, map_aggregate, map_arg

__all__ = [
    "Attribute", "GraphAppendingTracer", "ParameterProxy", "Proxy", "Scope", "ScopeContextManager",
    "TraceError", "TracerBase",
]  # fmt: skip

_HERE = __file__


class TraceError(ValueError):
    """A program does with a symbol what only a value can do."""


@dataclasses.dataclass
class Scope:
    """The module whose `forward` is traced: its path and its class."""

    module_path: str
    module_type: Any


class ScopeContextManager(contextlib.AbstractContextManager[Scope]):
    """Have a scope say what another one says, inside of a block."""

    def __init__(self, scope: Scope, current_scope: Scope) -> None:
        self._scope, self._before = scope, copy.copy(scope)
        scope.module_path, scope.module_type = current_scope.module_path, current_scope.module_type

    def __enter__(self) -> Scope:
        return self._scope

    def __exit__(self, *_: object) -> None:
        self._scope.module_path = self._before.module_path
        self._scope.module_type = self._before.module_type


class TracerBase:
    """What makes nodes of what is done with symbols. A program overrides its methods."""

    graph: Graph
    record_stack_traces: bool = False
    check_mutable_operations: bool = False
    trace_asserts: bool = False
    proxy_buffer_attributes: bool = False
    traced_func_name: str = "forward"
    scope: Scope
    module_stack: dict[str, tuple[str, Any]]
    node_name_to_scope: dict[str, tuple[str, Any]]

    def create_node(
        self, kind: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None = None,
        type_expr: Any = None,
    ) -> Node:  # fmt: skip
        """Add a node to the graph.

        Raises:
            RuntimeError: for a function that writes into its arguments, if `check_mutable_operations` is set.
        """
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        if self.check_mutable_operations and kind == "call_function" and node._writes():
            raise RuntimeError(
                f"Tried to trace mutable operation {node.format_node()}. FX only supports functional code, so "
                "operations that mutate operands in-place (e.g. via `out` arguments) are not supported"
            )
        self.node_name_to_scope[node.name] = self.scope.module_path, self.scope.module_type
        if self.module_stack:
            node.meta["nn_module_stack"] = dict(self.module_stack)
        if self.record_stack_traces:
            frames = traceback.extract_stack()
            first = next((k for k, frame in enumerate(frames) if frame.name == "forward"), None)
            if first is not None:
                own = [frame for frame in frames[first:] if frame.filename != _HERE]
                node.stack_trace = "".join(traceback.StackSummary.from_list(own).format()).strip()
        return node

    def proxy(self, node: Node) -> Proxy:
        """The symbol of a node."""
        return Proxy(node, self)

    def create_proxy(
        self, kind: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None = None,
        type_expr: Any = None, proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:  # fmt: skip
        """Add a node to the graph, and give its symbol."""
        given = self.create_arg(tuple(args)), self.create_arg(dict(kwargs))
        node = self.create_node(kind, target, *given, name, type_expr)
        return self.proxy(node) if proxy_factory_fn is None else proxy_factory_fn(node)

    def create_arg(self, a: Any) -> Any:
        """What a node has as its argument for a value of the program.

        Raises:
            NotImplementedError: for values that a graph cannot hold.
        """
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple):
            parts = [self.create_arg(part) for part in a]
            return type(a)(*parts) if hasattr(a, "_fields") else type(a)(parts)
        if isinstance(a, list):
            return [self.create_arg(part) for part in a]
        if isinstance(a, dict):
            return {self._key(key): self.create_arg(value) for key, value in a.items()}
        if isinstance(a, slice):
            return slice(*(self.create_arg(part) for part in (a.start, a.stop, a.step)))
        if isinstance(a, range):
            return range(*(self.create_arg(part) for part in (a.start, a.stop, a.step)))
        if dataclasses.is_dataclass(a) and not isinstance(a, type):
            fields = {f.name: self.create_arg(getattr(a, f.name)) for f in dataclasses.fields(a)}
            return self.create_node("call_function", type(a), (), fields)
        if isinstance(a, (*base_types, *_KINDS, enum.Enum)) or a is None:
            return a
        raise NotImplementedError(f"argument of type: {type(a)}")

    def _key(self, key: Any) -> Any:
        if isinstance(key, str):
            return key
        made = self.create_arg(key)
        map_arg(made, _refuse_key)
        return made

    def to_bool(self, obj: Proxy) -> bool:
        """What a condition on a symbol is.

        Raises:
            TraceError: always; a tracer that knows more overrides it.
        """
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """The parts of a symbol.

        Raises:
            TraceError: always; a tracer that knows more overrides it.
        """
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as a "
            "*args or **kwargs function argument. See the torch.fx docs on pytorch.org for a more detailed "
            "explanation of what types of control flow can be traced, and check out the Proxy docstring for "
            "help troubleshooting Proxy iteration errors"
        )

    def keys(self, obj: Proxy) -> Any:
        """The keys of a symbol: another symbol."""
        return Attribute(obj, "keys")()


_KINDS = (dtype, device, memory_format, layout)


def _refuse_key(arg: Any) -> NoReturn:
    raise RuntimeError(
        f"Keys for dictionaries used as an argument cannot contain a Node. Got key: {arg}"
    )


class GraphAppendingTracer(TracerBase):
    """Adds nodes to a graph that is there: what a `Proxy` has that is made of a node alone."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.scope = Scope("", None)
        self.module_stack = {}
        self.node_name_to_scope = {}


def assert_fn(x: object) -> None:
    """Raise if an asserted value of the program is false."""
    if not x:
        raise AssertionError("Assertion failed")


class Proxy:
    """A symbol. Functions of the library, methods and operators that it is given to add nodes to a graph.

    Its value is not known: a loop over it and a condition on it raise. `a, b = proxy` works.

    Args:
        node: what it stands for.
        tracer: what makes the nodes; by default they go where the node's graph inserts them.

    Example:
        >>> graph = adjit.fx.Graph()
        >>> x = adjit.fx.Proxy(graph.placeholder("x"))
        >>> adjit.relu(x).sum(dim=0) + 1
        Proxy(add)
        >>> [node.name for node in graph.nodes]
        ['x', 'relu', 'sum_1', 'add']
    """

    tracer: TracerBase
    node: Node

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        overrides.ask_others()
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Any:
        return Attribute(
            self, k
        )  # in the graph once it is used, and not as the method that it may be

    def __deepcopy__(self, memo: dict[int, Any]) -> Proxy:
        made = Proxy(self.node, self.tracer)
        made.__dict__.update(
            {key: copy.deepcopy(value, memo) for key, value in self.__dict__.items()}
        )
        return made

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        step = _instruction()
        if step is not None and step.opname == "UNPACK_SEQUENCE":
            return (self[k] for k in range(step.argval))  # type: ignore[index]
        return self.tracer.iter(self)

    def __abs__(self) -> Any:
        return self.tracer.create_proxy("call_function", operator.abs, (self,), {})

    def __bool__(self) -> bool:
        if self.tracer.trace_asserts and _is_asserted():
            self.tracer.create_proxy("call_function", assert_fn, (self,), {})
            return True
        return self.tracer.to_bool(self)

    def keys(self) -> Any:
        """A symbol of the keys of a dictionary: of a call of its method.

        Example:
            >>> traced = adjit.fx.symbolic_trace(lambda batch: batch.keys())
            >>> traced({"image": 1, "label": 2})
            dict_keys(['image', 'label'])
        """
        return self.tracer.keys(self)

    def __len__(self) -> int:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be recorded, "
            "please call torch.fx.wrap('len') at module scope"
        )

    @classmethod
    def __torch_function__(
        cls, orig_method: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        tracers: dict[TracerBase, None] = {}

        def note(value: Any) -> Any:
            if isinstance(value, cls):
                tracers[value.tracer] = None
            return value

        map_aggregate((tuple(args), kwargs), note)
        if len(tracers) > 1:
            raise RuntimeError(
                f"Found multiple different tracers {list(tracers)} while trying to trace operations "
                f"{orig_method}"
            )
        (tracer,) = tracers
        name = getattr(orig_method, "__name__", "")
        if name == "__get__":  # a property
            return tracer.create_proxy(
                "call_function", getattr, (args[0], _property(orig_method)), {}
            )
        if overrides.is_method(orig_method):
            return tracer.create_proxy("call_method", name, args, kwargs)
        wanted = tracer.graph._target_to_str(name)
        return tracer.create_proxy("call_function", orig_method, args, kwargs, name=wanted)


def _property(getter: Any) -> str:
    found = getter.__self__
    return str(found.fget.__name__)


def _caller() -> Any:
    """The frame of the program that has to do with a symbol."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename == _HERE:
        frame = frame.f_back
    return frame


def _instruction() -> dis.Instruction | None:
    """What the program is doing."""
    frame = _caller()
    if frame is None:
        return None
    steps = list(dis.get_instructions(frame.f_code))
    return steps[
        min(bisect_left(steps, frame.f_lasti, key=lambda step: step.offset), len(steps) - 1)
    ]


def _is_asserted() -> bool:
    """Whether the program is looking at the condition of an `assert`."""
    frame = _caller()
    steps = list(dis.get_instructions(frame.f_code))
    here = bisect_left(steps, frame.f_lasti, key=lambda step: step.offset)
    following = [
        step for step in steps[here + 1 :] if step.opname not in ("CACHE", "NOP", "NOT_TAKEN")
    ]
    return (
        steps[here].opname in ("POP_JUMP_IF_TRUE", "POP_JUMP_FORWARD_IF_TRUE", "TO_BOOL")
        and any(
            step.opname == "LOAD_ASSERTION_ERROR"
            or (step.opname == "LOAD_COMMON_CONSTANT" and "AssertionError" in step.argrepr)
            for step in following[:2]
        )
    )  # fmt: skip


class Attribute(Proxy):
    """An attribute of a symbol: a method if it is called, else a value."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        if self._node is None:
            looked = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {})
            self._node = looked.node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """The symbol of a parameter, whose sizes are known: `shape`, `size()`, `dim()`, `ndim`, `numel()`."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Parameter) -> None:
        super().__init__(node, tracer)
        self.param, self.name = param, name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> Any:
        return self.param.shape

    @property
    def ndim(self) -> int:
        return self.param.ndim

    def size(self) -> Any:
        return self.param.size()

    def dim(self) -> int:
        return self.param.dim()

    def numel(self) -> int:
        return self.param.numel()

    nelement = numel


def _operator(name: str, *, reflected: bool) -> Any:
    target = getattr(operator, name, None)

    def apply(self: Proxy, *others: Any) -> Any:
        operands = (*others, self) if reflected else (self, *others)
        return self.tracer.create_proxy("call_function", target, operands, {})

    return apply


for _name in magic_methods.keys() - {"div"}:
    setattr(Proxy, f"__{_name.strip('_')}__", _operator(_name, reflected=False))
for _name in reflectable_magic_methods.keys() - {"div", "getitem"}:
    setattr(Proxy, f"__r{_name.strip('_')}__", _operator(_name, reflected=True))
