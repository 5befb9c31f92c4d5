"""A step of a graph of symbols, and what its arguments may be."""

from __future__ import annotations

import builtins
import contextlib
import inspect
import operator
import sys
from collections.abc import Callable
from types import EllipsisType, FunctionType, GenericAlias
from typing import Any, NoReturn, TypeVar

__all__ = [
    "Node",
    "has_side_effect",
    "immutable_dict",
    "immutable_list",
    "map_aggregate",
    "map_arg",
]

_LIBRARY = __name__.partition(".")[0]
OPS = ("placeholder", "get_attr", "call_function", "call_module", "call_method", "output")
base_types = (str, int, float, bool, complex, EllipsisType)
# The rooms whose functions have names of their own there, PyTorch's among them.
ROOMS = ("", "nn.functional", "linalg", "special", "nn.init")

# Types that programs annotate with.
Target = Callable[..., Any] | str
Argument = Any
F = TypeVar("F", bound=Callable[..., Any])

_HELP = """If you are attempting to modify the kwargs or args of a torch.fx.Node object,
instead create a new copy of it and assign the copy to the node:

    new_args = ...  # copy and mutate args
    node.args = new_args"""


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(f"{type(self).__name__!r} object does not support mutation. {_HELP}")


class immutable_list(list[Any]):
    """A list among a node's arguments. Writing to it would leave the nodes' users behind, and raises.

    Example:
        >>> adjit.fx.node.immutable_list([1, 2])
        [1, 2]
    """

    __delitem__ = __iadd__ = __imul__ = __setitem__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> Any:
        return type(self), (tuple(self),)


class immutable_dict(dict[Any, Any]):
    """A dictionary among a node's arguments. Writing to it would leave the nodes' users behind, and raises.

    Example:
        >>> adjit.fx.node.immutable_dict(a=1)
        {'a': 1}
    """

    __delitem__ = __ior__ = __setitem__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> Any:
        return type(self), (dict(self),)


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """Call a function on every object in nested tuples, lists, dictionaries and slices.

    Example:
        >>> adjit.fx.node.map_aggregate((1, [2, 3]), lambda value: value + 1)
        (2, [3, 4])
    """
    if isinstance(a, tuple):
        parts = [map_aggregate(part, fn) for part in a]
        return type(a)(*parts) if hasattr(a, "_fields") else tuple(parts)
    if isinstance(a, list):
        return immutable_list(map_aggregate(part, fn) for part in a)
    if isinstance(a, dict):
        return immutable_dict((key, map_aggregate(value, fn)) for key, value in a.items())
    if isinstance(a, slice):
        return slice(*(map_aggregate(part, fn) for part in (a.start, a.stop, a.step)))
    return fn(a)


def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """Call a function on every node in nested tuples, lists, dictionaries and slices.

    Example:
        >>> x = adjit.fx.Graph().placeholder("x")
        >>> adjit.fx.node.map_arg((x, 2), lambda node: node.name)
        ('x', 2)
    """
    return map_aggregate(a, lambda value: fn(value) if isinstance(value, Node) else value)


_impure: set[Callable[..., Any]] = set()


def has_side_effect(fn: F) -> F:
    """Have `eliminate_dead_code` keep the calls of a function although nobody uses what they give.

    Example:
        >>> adjit.fx.node.has_side_effect(print) is print
        True
    """
    _impure.add(fn)
    return fn


def qualified_name(function: Callable[..., Any]) -> str:
    """How a text of Python names a function: as a program of PyTorch's does, where it is the library's."""
    name = function.__name__
    if getattr(builtins, name, None) is function:
        return name
    for room in ROOMS:
        if same(getattr(sys.modules.get(f"{_LIBRARY}.{room}".rstrip(".")), name, None), function):
            return ".".join(filter(None, ("torch", room, name)))
    module = function.__module__ or ""
    if module == "_operator":
        return f"{module}.{name}"
    if module.partition(".")[0] == _LIBRARY:
        return f"torch{module[len(_LIBRARY) :]}.{function.__qualname__}"
    if name == "<lambda>":
        raise RuntimeError("Unable to represent lambda")
    return f"{module}.{name}"


def same(one: Any, other: Any) -> bool:
    """Whether two objects are one, or functions that ask and the functions behind them."""
    return one is other or (callable(one) and bool(one == other))


def type_name(kind: Any) -> str:
    """How a text names a type of an annotation."""
    if isinstance(kind, type) and not isinstance(kind, GenericAlias):
        home = kind.__module__
        if home.partition(".")[0] == _LIBRARY:
            home = "torch"
        return kind.__qualname__ if home == "builtins" else f"{home}.{kind.__qualname__}"
    if kind is ...:
        return "..."
    return kind.__name__ if isinstance(kind, FunctionType) else repr(kind)


def format_arg(arg: Any) -> str:
    """An argument in the description of a node, other nodes with a % in front."""
    if isinstance(arg, list):
        return f"[{', '.join(map(format_arg, arg))}]"
    if isinstance(arg, tuple):
        return f"({', '.join(map(format_arg, arg))}{',' if len(arg) == 1 else ''})"
    if isinstance(arg, dict):
        return f"{{{', '.join(f'{key}: {format_arg(value)}' for key, value in arg.items())}}}"
    return f"%{arg}" if isinstance(arg, Node) else str(arg)


class Node:
    """A step of a `Graph`: an input, an attribute, a call, or the output.

    Attributes:
        op: "placeholder", "get_attr", "call_function", "call_module", "call_method" or "output".
        target: the name of the input, attribute, module or method, or the function.
        args: arguments by place: nodes, numbers, texts, dtypes and nested lists, tuples, dictionaries of them.
            What is written to them as a whole is noticed by the other nodes' `users`.
        kwargs: arguments by name.
        users: the nodes that have this one among their arguments, as keys.
        name: unique in the graph, and the name of a variable in its code.
        type: an annotation, or None.
        meta: a dictionary for whatever passes want to say.

    Example:
        >>> graph = adjit.fx.Graph()
        >>> x = graph.placeholder("x")
        >>> y = graph.call_function(adjit.relu, (x,))
        >>> y.op, y.args, list(x.users)
        ('call_function', (x,), [relu])
    """

    def __init__(
        self, graph: Any, name: str, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
        return_type: Any = None,
    ) -> None:  # fmt: skip
        if op not in OPS:
            raise AssertionError(f"op '{op}' is not one of {', '.join(OPS)}")
        if op == "call_function" and not callable(target):
            raise ValueError(
                f"Node [graph = {graph}, name = '{name}'] target {target} has type "
                f"{type(target).__name__} but a Callable is expected"
            )
        if op != "call_function" and not isinstance(target, str):
            raise ValueError(
                f"Node [graph = {graph}, name = '{name}'] target {target} has type "
                f"{type(target).__name__} but a str is expected"
            )
        self.graph, self.name, self.op, self.target = graph, name, op, target
        self.type = return_type
        self.meta: dict[str, Any] = {}
        self.users: dict[Node, None] = {}
        self.stack_trace: str | None = None
        self.prev = self.next = self
        self._erased = False
        self._inputs: dict[Node, None] = {}
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}
        self._take(args, kwargs)

    def _take(self, args: Any, kwargs: Any) -> None:
        """Have other arguments, and tell the nodes among the old and the new ones."""
        for node in self._inputs:
            node.users.pop(self, None)
        self._inputs = {}

        def note(node: Node) -> Node:
            self._inputs[node] = None
            node.users[self] = None
            return node

        self._args, self._kwargs = map_arg(tuple(args), note), map_arg(dict(kwargs), note)

    @property
    def args(self) -> tuple[Any, ...]:
        """The arguments by place. The nodes among the old and the new ones notice when they are set.

        Example:
            >>> x, relu, add, output = adjit.fx.symbolic_trace(lambda x: adjit.relu(x) + 1).graph.nodes
            >>> add.args
            (relu, 1)
            >>> add.args = (x, 2)
            >>> relu.users, list(x.users)
            ({}, [relu, add])
        """
        return self._args

    @args.setter
    def args(self, args: tuple[Any, ...]) -> None:
        self._take(args, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        """The arguments by name. The nodes among the old and the new ones notice when they are set.

        Example:
            >>> x, total, output = adjit.fx.symbolic_trace(lambda x: x.sum(dim=0)).graph.nodes
            >>> total.kwargs = {**total.kwargs, "keepdim": True}
            >>> total.kwargs
            {'dim': 0, 'keepdim': True}
        """
        return self._kwargs

    @kwargs.setter
    def kwargs(self, kwargs: dict[str, Any]) -> None:
        self._take(self._args, kwargs)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among the arguments, each once.

        Example:
            >>> x, y, found, output = adjit.fx.symbolic_trace(lambda x, y: adjit.addcmul(x, y, y)).graph.nodes
            >>> found.args, found.all_input_nodes
            ((x, y, y), [x, y])
        """
        return list(self._inputs)

    def update_arg(self, idx: int, arg: Any) -> None:
        """Replace one argument by place.

        Example:
            >>> x, add, output = adjit.fx.symbolic_trace(lambda x: x + 1).graph.nodes
            >>> add.update_arg(1, 10)
            >>> add.args
            (x, 10)
        """
        args = list(self.args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Any) -> None:
        """Put an argument in front of another one, or behind the last one.

        Raises:
            AssertionError: if there is no such place.

        Example:
            >>> x, found, output = adjit.fx.symbolic_trace(lambda x: x.reshape(3)).graph.nodes
            >>> found.insert_arg(1, 2)
            >>> found.args
            (x, 2, 3)
        """
        if not 0 <= idx <= len(self.args):
            raise AssertionError(
                f"insert_args index must be between 0 and len(self.args), got {idx}"
            )
        self.args = (*self.args[:idx], arg, *self.args[idx:])

    def update_kwarg(self, key: str, arg: Any) -> None:
        """Replace or add one argument by name.

        Example:
            >>> x, total, output = adjit.fx.symbolic_trace(lambda x: x.sum(dim=0)).graph.nodes
            >>> total.update_kwarg("keepdim", True)
            >>> total.kwargs
            {'dim': 0, 'keepdim': True}
        """
        self.kwargs = {**self.kwargs, key: arg}

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Put another node into all places among the arguments where one is.

        Example:
            >>> x, y, add, output = adjit.fx.symbolic_trace(lambda x, y: x + x).graph.nodes
            >>> add.replace_input_with(x, y)
            >>> add.args, x.users
            ((y, y), {})
        """

        def chosen(node: Node) -> Node:
            return new_input if node is old_input else node

        self._take(map_arg(self._args, chosen), map_arg(self._kwargs, chosen))

    def replace_all_uses_with(
        self, replace_with: Node, delete_user_cb: Callable[[Node], bool] | None = None, *,
        propagate_meta: bool = False,
    ) -> list[Node]:  # fmt: skip
        """Have the users of this node use another one.

        Args:
            replace_with: the other node.
            delete_user_cb: which of the users do; by default all.
            propagate_meta: copy this node's `meta` to the other, which has none yet.

        Returns:
            The users that do.

        Raises:
            AssertionError: if the other node has a `meta` that would be written over.

        Example:
            >>> traced = adjit.fx.symbolic_trace(lambda x: adjit.relu(x) + 1)
            >>> x, relu, add, output = traced.graph.nodes
            >>> relu.replace_all_uses_with(x)
            [add]
            >>> add.args, relu.users
            ((x, 1), {})
        """
        if propagate_meta:
            if replace_with.meta:
                raise AssertionError(
                    "Called node.replace_all_uses_with(replace_with, propagate_meta=True), "
                    "but replace_with already has .meta keys"
                )
            replace_with.meta.update(self.meta)
        users = [user for user in self.users if delete_user_cb is None or delete_user_cb(user)]
        for user in users:
            user.replace_input_with(self, replace_with)
        return users

    def prepend(self, x: Node) -> None:
        """Move a node of the graph in front of this one.

        Raises:
            AssertionError: if it belongs to another graph.

        Example:
            >>> graph = adjit.fx.symbolic_trace(lambda x: (adjit.relu(x), x + 1)).graph
            >>> x, relu, add, output = graph.nodes
            >>> relu.prepend(add)
            >>> list(graph.nodes)
            [x, add, relu, output]
        """
        if self.graph is not x.graph:
            raise AssertionError("Attempting to move a Node into a different Graph")
        if self is not x:
            x._unlink()
            self.prev.next, x.prev, x.next, self.prev = x, self.prev, self, x

    def append(self, x: Node) -> None:
        """Move a node of the graph behind this one.

        Example:
            >>> graph = adjit.fx.symbolic_trace(lambda x: (adjit.relu(x), x + 1)).graph
            >>> x, relu, add, output = graph.nodes
            >>> add.append(relu)
            >>> list(graph.nodes)
            [x, add, relu, output]
        """
        self.next.prepend(x)

    def _rename(self, candidate: str) -> None:
        """Have another name, which is the candidate or resembles it."""
        if candidate != self.name:
            self.name = self.graph._namespace.rename(self, candidate)

    def _unlink(self) -> None:
        self.prev.next, self.next.prev = self.next, self.prev

    def is_impure(self) -> bool:
        """True if the step does something beside giving a value: inputs, outputs, writes and random numbers.

        Example:
            >>> graph = adjit.fx.symbolic_trace(lambda x: adjit.relu(x).add_(1)).graph
            >>> [node.name for node in graph.nodes if node.is_impure()]
            ['x', 'add_', 'output']
        """
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_module":
            if self.graph.owning_module is None:
                raise AssertionError("self.graph.owning_module not set for purity check")
            module = self.graph.owning_module.get_submodule(self.target)
            return bool(getattr(module, "_is_impure", False) or getattr(module, "inplace", False))
        if self.op == "get_attr":
            return False
        return self._writes() or self._called() in _RANDOM or self.target in _impure

    def _called(self) -> str:
        return str(self.target if isinstance(self.target, str) else self.target.__name__)

    def _writes(self) -> bool:
        """Whether a call of a function or method writes into one of its arguments."""
        name, given = self._called(), self.kwargs
        if self.op == "call_function":
            with contextlib.suppress(TypeError, ValueError):  # no signature, or another one
                bound = inspect.signature(self.target).bind(*self.args, **self.kwargs)
                given = bound.arguments | given
        is_named_so = name.endswith("_") and not name.endswith("__")
        return (
            (is_named_so and self.target not in _NAMED_LIKE_WRITES)
            or self.target in _IN_PLACE
            or given.get("out") is not None
            or bool(given.get("inplace"))
        )

    def format_node(
        self,
        placeholder_names: list[str] | None = None,
        maybe_return_typename: list[str] | None = None,
    ) -> str | None:
        """A line that describes the node.

        Example:
            >>> x, add, output = adjit.fx.symbolic_trace(lambda x: x + 1).graph.nodes
            >>> add.format_node()
            '%add : [num_users=1] = call_function[target=operator.add](args = (%x, 1), kwargs = {})'
        """
        typed = "" if self.type is None else f"{type_name(self.type)} "
        head = f"%{self.name} : {typed}[num_users={len(self.users)}] = {self.op}"
        if self.op == "placeholder":
            default = f"(default={self.args[0]})" if self.args else ""
            return f"{head}[target={self.target}]{default}"
        if self.op == "output":
            return f"return {self.args[0]}"
        named = self.target if isinstance(self.target, str) else qualified_name(self.target)
        if self.op == "call_function":
            named = f"builtins.{named}" if "." not in named else named.removeprefix("_")
        if self.op == "get_attr":
            return f"{head}[target={named}]"
        given = f"args = {format_arg(self.args)}, kwargs = {format_arg(self.kwargs)}"
        return f"{head}[target={named}]({given})"

    def __repr__(self) -> str:
        return self.name


_IN_PLACE = {
    getattr(operator, name)
    for name in (
        "iadd", "iand", "ifloordiv", "ilshift", "imod", "imul", "imatmul", "ior", "ipow", "irshift", "isub",
        "itruediv", "ixor", "setitem", "delitem",
    )
}  # fmt: skip
_NAMED_LIKE_WRITES = {operator.and_, operator.or_, operator.not_, operator.is_}
# What draws numbers, so that a program's later numbers depend on it.
_RANDOM = {
    "rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm", "normal", "bernoulli",
    "multinomial", "poisson", "binomial", "manual_seed", "dropout", "dropout1d", "dropout2d", "dropout3d",
    "alpha_dropout", "feature_alpha_dropout", "feature_dropout", "rrelu", "gumbel_softmax",
}  # fmt: skip
