"""Graphs of symbols: lists of nodes in the order in which they run."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from ..nn import Module
from ..nn.parameter import Parameter
from .code import PythonCode, written
from .namespace import Namespace
from .node import OPS, Node, map_arg

__all__ = ["Graph"]


class _Nodes:
    """The nodes of a graph, in their order. One may be erased or added while they are gone through."""

    def __init__(self, graph: Graph, *, backwards: bool = False) -> None:
        self.graph, self.backwards = graph, backwards

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[Node]:
        root = node = self.graph._root
        while True:
            node = node.prev if self.backwards else node.next
            if node is root:
                return
            if not node._erased:
                yield node

    def __reversed__(self) -> Iterator[Node]:
        return iter(_Nodes(self.graph, backwards=not self.backwards))


class _InsertPoint:
    """Where new nodes go until a block is left, or for good where there is none."""

    def __init__(self, graph: Graph, insert: Callable[[Node], None]) -> None:
        self.graph = graph
        self.before, graph._insert = graph._insert, insert

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.graph._insert = self.before


class Graph:
    """A function or module as nodes, which a program may read, change and turn back into code.

    Args:
        owning_module: the module whose attributes and submodules the nodes name.
        tracer_cls: the class of the tracer that made it, which traces a pickled module again.

    Example:
        >>> graph = adjit.fx.Graph()
        >>> x = graph.placeholder("x")
        >>> _ = graph.output(graph.call_function(adjit.relu, (x,)))
        >>> print(graph)
        graph():
            %x : [num_users=1] = placeholder[target=x]
            %relu : [num_users=1] = call_function[target=torch.relu](args = (%x,), kwargs = {})
            return relu
    """

    def __init__(self, owning_module: Module | None = None, tracer_cls: Any = None) -> None:
        self.owning_module = owning_module
        self._tracer_cls = tracer_cls
        self._namespace = Namespace()
        self._root = Node(
            self, "", "output", "root", (), {}
        )  # before the first and behind the last one
        self._insert: Callable[[Node], None] = self._root.prepend

    @property
    def nodes(self) -> _Nodes:
        """The nodes in their order; `reversed` goes through them backwards.

        Example:
            >>> graph = adjit.fx.symbolic_trace(lambda x: adjit.relu(x) + 1).graph
            >>> [node.op for node in graph.nodes]
            ['placeholder', 'call_function', 'call_function', 'output']
            >>> list(reversed(graph.nodes))
            [output, add, relu, x]
        """
        return _Nodes(self)

    def output_node(self) -> Node:
        """The last node.

        Raises:
            AssertionError: if it is no output.

        Example:
            >>> adjit.fx.symbolic_trace(lambda x: adjit.relu(x) + 1).graph.output_node().args
            (add,)
        """
        node = self._root.prev
        if node is self._root or node.op != "output":
            raise AssertionError(f"Expected output node, got {node.op}")
        return node

    def find_nodes(self, *, op: str, target: Any = None, sort: bool = True) -> list[Node]:
        """The nodes of an op, and of a target; that of a "call_function" has to be said.

        Example:
            >>> graph = adjit.fx.symbolic_trace(lambda x: adjit.relu(adjit.relu(x) + 1)).graph
            >>> graph.find_nodes(op="call_function", target=adjit.relu)
            [relu, relu_1]
        """
        if op == "call_function" and target is None:
            raise AssertionError("target must not be None for call_function op")
        return [n for n in self.nodes if n.op == op and (target is None or n.target == target)]

    # ----- making nodes -----

    def create_node(
        self, op: str, target: Any, args: tuple[Any, ...] | None = None, kwargs: dict[str, Any] | None = None,
        name: str | None = None, type_expr: Any = None,
    ) -> Node:  # fmt: skip
        """Add a node where nodes are inserted now: at the end, if nothing else was said.

        Args:
            op: one of the ops of `Node`.
            target: what it is about.
            args: its arguments by place.
            kwargs: its arguments by name.
            name: its name, or one that resembles it; by default made from the target.
            type_expr: an annotation of what it gives.

        Raises:
            AssertionError: for another op, and for nodes of another graph.
            ValueError: if the target is no function or no text, as the op demands.

        Example:
            >>> graph = adjit.fx.Graph()
            >>> x = graph.create_node("placeholder", "x")
            >>> graph.create_node("call_method", "sum", (x,), {"dim": 0}, name="total").format_node()
            '%total : [num_users=0] = call_method[target=sum](args = (%x,), kwargs = {dim: 0})'
        """
        wanted = name if name is not None else self._target_to_str(target)
        node = Node(self, "", op, target, (), {}, type_expr)
        node.name = self._namespace.create_name(wanted, node)
        node.args, node.kwargs = args or (), kwargs or {}
        self._insert(node)
        return node

    def placeholder(
        self, name: str, type_expr: Any = None, default_value: Any = inspect.Parameter.empty
    ) -> Node:
        """Add an input, `*args` and `**kwargs` with their stars; a default value is for calls without it.

        Example:
            >>> graph = adjit.fx.Graph()
            >>> _ = graph.output((graph.placeholder("x"), graph.placeholder("k", default_value=2)))
            >>> adjit.fx.GraphModule({}, graph)(1)
            (1, 2)
        """
        args = () if default_value is inspect.Parameter.empty else (default_value,)
        return self.create_node("placeholder", name, args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """Add a look at an attribute of the module, through the names of its submodules.

        Warns if the owning module has no such parameter, buffer or module.

        Example:
            >>> graph = adjit.fx.Graph()
            >>> _ = graph.output(graph.get_attr("head.bias"))
            >>> adjit.fx.GraphModule({"head.bias": adjit.ones(2)}, graph)()
            tensor([1., 1.])
        """
        if self.owning_module is not None and not _has_attribute(
            self.owning_module, qualified_name
        ):
            warnings.warn(
                "Attempted to insert a get_attr Node with no underlying reference in the owning GraphModule! "
                "Call GraphModule.add_submodule to add the necessary submodule, GraphModule.add_parameter to "
                "add the necessary Parameter, or nn.Module.register_buffer to add the necessary buffer",
                stacklevel=2,
            )
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self, module_name: str, args: tuple[Any, ...] | None = None, kwargs: dict[str, Any] | None = None,
        type_expr: Any = None,
    ) -> Node:  # fmt: skip
        """Add a call of a submodule. Warns if the owning module has none of that name.

        Example:
            >>> graph = adjit.fx.Graph()
            >>> _ = graph.output(graph.call_module("act", (graph.placeholder("x"),)))
            >>> adjit.fx.GraphModule({"act": nn.ReLU()}, graph)(adjit.tensor([-1., 2.]))
            tensor([0., 2.])
        """
        if self.owning_module is not None and not _has_attribute(self.owning_module, module_name):
            warnings.warn(
                "Attempted to insert a call_module Node with no underlying reference in the owning "
                "GraphModule! Call GraphModule.add_submodule to add the necessary submodule",
                stacklevel=2,
            )
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(
        self, method_name: str, args: tuple[Any, ...] | None = None, kwargs: dict[str, Any] | None = None,
        type_expr: Any = None,
    ) -> Node:  # fmt: skip
        """Add a call of a method of the first argument.

        Example:
            >>> graph = adjit.fx.Graph()
            >>> _ = graph.output(graph.call_method("clamp", (graph.placeholder("x"),), {"max": 1}))
            >>> adjit.fx.GraphModule({}, graph)(adjit.tensor([-1., 2.]))
            tensor([-1.,  1.])
        """
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self, the_function: Callable[..., Any], args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None, type_expr: Any = None, name: str | None = None,
    ) -> Node:  # fmt: skip
        """Add a call of a function, with texts, numbers and nodes as its arguments.

        Example:
            >>> graph = adjit.fx.Graph()
            >>> _ = graph.output(graph.call_function(adjit.add, (graph.placeholder("x"), 1), {"alpha": 3}))
            >>> adjit.fx.GraphModule({}, graph)(adjit.ones(2))
            tensor([4., 4.])
        """
        return self.create_node(
            "call_function", the_function, args, kwargs, name=name, type_expr=type_expr
        )

    def output(self, result: Any, type_expr: Any = None) -> Node:
        """Add the output: a node, or nested tuples, lists and dictionaries of nodes.

        Example:
            >>> graph = adjit.fx.Graph()
            >>> x = graph.placeholder("x")
            >>> _ = graph.output({"once": x, "twice": [x, x]})
            >>> adjit.fx.GraphModule({}, graph)(3)
            {'once': 3, 'twice': [3, 3]}
        """
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def node_copy(
        self, node: Node, arg_transform: Callable[[Node], Any] = lambda node: node
    ) -> Node:
        """Add a copy of a node, of another graph it may be: `arg_transform` says which nodes it has there.

        Example:
            >>> one, other, nodes = adjit.fx.Graph(), adjit.fx.Graph(), {}
            >>> relu = one.call_function(adjit.relu, (one.placeholder("x"),))
            >>> for node in one.nodes:
            ...     nodes[node] = other.node_copy(node, lambda n: nodes[n])
            >>> nodes[relu].args
            (x,)
        """
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        made = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = dict(node.meta)
        made.stack_trace = node.stack_trace
        return made

    def graph_copy(
        self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False
    ) -> Any:
        """Add copies of all nodes of a graph but its output.

        Args:
            g: the graph.
            val_map: nodes of it that have a stand-in here already, which others are added to.
            return_output_node: give the output too.

        Returns:
            What stands here for the value of the output, None if there is none.

        Example:
            >>> inner = adjit.fx.symbolic_trace(lambda y: y + 1).graph
            >>> outer, (y,) = adjit.fx.Graph(), inner.find_nodes(op="placeholder")
            >>> once = outer.graph_copy(inner, {y: outer.placeholder("x")})
            >>> _ = outer.output(outer.graph_copy(inner, {y: once}))
            >>> list(outer.nodes)
            [x, add, add_1, output]
        """
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                value = map_arg(node.args[0], lambda n: val_map[n])
                return (value, node) if return_output_node else value
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:
        made = Graph(tracer_cls=self._tracer_cls)
        found = made.graph_copy(self, {}, return_output_node=True)
        if found is not None:
            value, output = found
            made.output(value, output.type).meta = dict(output.meta)
        return made

    # ----- changing it -----

    def erase_node(self, to_erase: Node) -> None:
        """Take a node out.

        Raises:
            RuntimeError: if other nodes use it, or it belongs to another graph.

        Example:
            >>> graph = adjit.fx.symbolic_trace(lambda x: adjit.relu(x) + 1).graph
            >>> x, relu, add, output = graph.nodes
            >>> output.args = (relu,)
            >>> graph.erase_node(add)
            >>> list(graph.nodes)
            [x, relu, output]
        """
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} "
                f"users in the graph: {to_erase.users}!"
            )
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            warnings.warn(f"erase_node({to_erase}) on an already erased node", stacklevel=2)
            return
        to_erase._unlink()  # it still knows its neighbours, for those who are just there
        to_erase._erased = True
        to_erase._take(
            map_arg(to_erase.args, lambda n: None), map_arg(to_erase.kwargs, lambda n: None)
        )

    def inserting_before(self, n: Node | None = None) -> _InsertPoint:
        """Have new nodes go in front of a node, or of all, in a `with` block or from now on.

        Raises:
            AssertionError: if the node belongs to another graph.

        Example:
            >>> graph = adjit.fx.symbolic_trace(lambda x: adjit.relu(x) + 1).graph
            >>> x, relu, add, output = graph.nodes
            >>> with graph.inserting_before(relu):
            ...     relu.args = (graph.call_function(adjit.neg, (x,)),)
            >>> list(graph.nodes)
            [x, neg, relu, add, output]
        """
        if n is None:
            return self.inserting_after(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert before is not in graph.")
        return _InsertPoint(self, n.prepend)

    def inserting_after(self, n: Node | None = None) -> _InsertPoint:
        """Have new nodes go behind a node, or all, in a `with` block or from now on.

        Raises:
            AssertionError: if the node belongs to another graph.

        Example:
            >>> graph = adjit.fx.symbolic_trace(lambda x: adjit.relu(x) + 1).graph
            >>> x, relu, add, output = graph.nodes
            >>> with graph.inserting_after(relu):
            ...     add.update_arg(0, graph.call_function(adjit.neg, (relu,)))
            >>> list(graph.nodes)
            [x, relu, neg, add, output]
        """
        if n is None:
            return self.inserting_before(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert after is not in graph.")
        return _InsertPoint(self, n.append)

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Take out nodes that nobody uses, last to first, but those that do something beside.

        Args:
            is_impure_node: which ones these are; by default what `Node.is_impure` says.

        Returns:
            Whether any was taken out.

        Raises:
            RuntimeError: if the graph is not in order, see `lint`.

        Example:
            >>> graph = adjit.fx.symbolic_trace(lambda x: (adjit.relu(x) * 2, x + 1)[1]).graph
            >>> list(graph.nodes)
            [x, relu, mul, add, output]
            >>> graph.eliminate_dead_code(), list(graph.nodes)
            (True, [x, add, output])
        """
        self.lint()
        changed = False
        for node in reversed(self.nodes):
            keeps = is_impure_node(node) if is_impure_node is not None else node.is_impure()
            if not keeps and not node.users:
                self.erase_node(node)
                changed = True
        return changed

    # ----- looking at it -----

    def lint(self) -> None:
        """Check that nodes belong to the graph, come after what they use and name what the module has.

        Raises:
            RuntimeError: if not.

        Example:
            >>> graph = adjit.fx.symbolic_trace(lambda x: adjit.relu(x) + 1).graph
            >>> x, relu, add, output = graph.nodes
            >>> add.append(relu)
            >>> graph.lint()
            Traceback (most recent call last):
                ...
            RuntimeError: Argument 'relu' of Node 'add' was used before it has been defined! ...
        """
        names: set[str] = set()
        seen: set[Node] = set()
        for node in self.nodes:
            if node.op not in OPS:
                raise RuntimeError(f"Node {node} had unknown opcode {node.op}!")
            if node.graph is not self:
                raise RuntimeError(f"Node '{node}' does not belong to this Graph!")
            for arg in node.all_input_nodes:
                if arg.graph is not self:
                    raise RuntimeError(
                        f"Argument '{arg}' of Node '{node}' does not belong to this Graph, but was used as an "
                        "argument! If you are copying nodes from another graph, make sure to use "
                        f"``arg_transform`` on node_copy() to remap values\n{self}"
                    )
                if arg not in seen:
                    raise RuntimeError(
                        f"Argument '{arg}' of Node '{node}' was used before it has been defined! Please check "
                        f"that Nodes in the graph are topologically ordered\n{self}"
                    )
            seen.add(node)
            if node.name in names:
                raise RuntimeError(f"Node redefined name {node.name}!")
            names.add(node.name)
            if self.owning_module is not None and node.op in ("get_attr", "call_module"):
                self._check_target(node)

    def _check_target(self, node: Node) -> None:
        here: Any = self.owning_module
        atoms = node.target.split(".")
        for k, atom in enumerate(atoms):
            of = ".".join(atoms[:k])
            here = getattr(here, atom, None)
            if here is None:
                raise RuntimeError(
                    f"Node {node} target {node.target} references nonexistent attribute {atom} of {of}"
                )
            if node.op == "call_module" and not isinstance(here, Module):
                raise RuntimeError(
                    f"Node {node} target {node.target} {atom} of {of} does not reference an nn.Module"
                )

    def python_code(self, root_module: str = "self", *, verbose: bool = False) -> PythonCode:
        """The text of a function that does what the graph does, and the objects that it names.

        Args:
            root_module: the variable by which the module is called.
            verbose: write shapes that `ShapeProp` found beside the values.

        Example:
            >>> print(adjit.fx.symbolic_trace(lambda x: x + 1).graph.python_code().src.strip())
            def forward(self, x):
                add = x + 1;  x = None
                return add
        """
        return written(self.nodes, root_module, verbose=verbose)

    def print_tabular(self) -> None:
        """Print the nodes as a table. It needs the package `tabulate`.

        Raises:
            ImportError: if that is not installed.

        Example:
            >>> adjit.fx.symbolic_trace(lambda x: x + 1).graph.print_tabular()  # doctest: +SKIP
            opcode         name    target                   args    kwargs
            -------------  ------  -----------------------  ------  --------
            placeholder    x       x                        ()      {}
            call_function  add     <built-in function add>  (x, 1)  {}
            output         output  output                   (add,)  {}
        """
        try:
            from tabulate import tabulate  # type: ignore[import-untyped]
        except ImportError:
            raise ImportError(
                "Graph.print_tabular needs the package tabulate; run `pip install tabulate`, or print the graph"
            ) from None

        rows = [[n.op, n.name, n.target, n.args, n.kwargs] for n in self.nodes]
        print(tabulate(rows, headers=["opcode", "name", "target", "args", "kwargs"]))

    def __str__(self) -> str:
        names: list[str] = []
        lines = [line for node in self.nodes if (line := node.format_node(names))]
        return "\n    ".join(["graph():", *lines])

    def _target_to_str(self, target: Any) -> str:
        """What a node of a target is called."""
        name = target if isinstance(target, str) else target.__name__
        if isinstance(target, str) and target.startswith("__") and target.endswith("__"):
            name = target[2:-2]
        return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()


def _has_attribute(module: Module, qualified_name: str) -> bool:
    """Whether a module has a parameter, buffer or module of a name."""
    path, _, name = qualified_name.rpartition(".")
    try:
        home = module.get_submodule(path)
    except AttributeError:
        warnings.warn(f"Failed to fetch module {path}!", stacklevel=4)
        return False
    found = getattr(home, name, None)
    return isinstance(found, (Module, Parameter)) or name in home._buffers
