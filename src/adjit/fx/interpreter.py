"""Graphs run node by node, and graphs made of graphs in the same way."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from ..nn import Module
from .graph import Graph
from .graph_module import GraphModule
from .node import Node, map_aggregate, map_arg
from .proxy import Proxy
from .tracer import Tracer

__all__ = ["Interpreter", "Transformer"]


class Interpreter:
    """Runs a module's graph node by node. A subclass says what a node does.

    Args:
        module: the module.
        garbage_collect_values: forget values that nobody needs any more.
        graph: another graph, which is run instead of the module's.

    Example:
        >>> class Negative(adjit.fx.Interpreter):
        ...     def call_function(self, target, args, kwargs):
        ...         return -super().call_function(target, args, kwargs)
        >>> Negative(adjit.fx.symbolic_trace(lambda x: x + 1)).run(adjit.ones(1))
        tensor([-2.])
    """

    def __init__(
        self, module: Any, garbage_collect_values: bool = True, graph: Graph | None = None
    ) -> None:
        self.module = module
        self.graph: Graph = module.graph if graph is None else graph
        self.submodules = dict(module.named_modules()) if isinstance(module, Module) else {}
        self.env: dict[Node, Any] = {}
        self.name = "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        self.args_iter: Iterator[Any] = iter(())

    def run(
        self,
        *args: Any,
        initial_env: dict[Node, Any] | None = None,
        enable_io_processing: bool = True,
    ) -> Any:
        """Run the graph.

        Args:
            args: the inputs by place.
            initial_env: values of nodes that are known.
            enable_io_processing: of no effect here.

        Returns:
            The value of the output.

        Raises:
            RuntimeError: if inputs are missing. Errors of nodes say which one it was.

        Example:
            >>> traced = adjit.fx.symbolic_trace(lambda x: adjit.relu(x) + 1)
            >>> interpreter = adjit.fx.Interpreter(traced)
            >>> interpreter.run(adjit.tensor([-1., 1.]))
            tensor([1., 2.])
            >>> x, relu, add, output = traced.graph.nodes
            >>> interpreter.run(initial_env={x: None, relu: adjit.zeros(2)})
            tensor([1., 1.])
        """
        self.env = dict(initial_env or {})
        self.args_iter = iter(args)
        last: dict[Node, list[Node]] = {}
        if self.garbage_collect_values:
            seen: set[Node] = set()
            for node in reversed(self.graph.nodes):
                fresh = [used for used in node.all_input_nodes if used not in seen]
                seen.update(fresh)
                last[node] = fresh
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as error:
                if self.extra_traceback:
                    told = f"While executing {node.format_node()}"
                    error.args = (
                        f"{error.args[0]}\n\n{told}" if error.args else told,
                        *error.args[1:],
                    )
                if isinstance(error, KeyError):  # which would show its text as a name
                    raise RuntimeError(*error.args) from error
                raise
            for used in last.get(node, ()):
                self.env.pop(used, None)
            if node.op == "output":
                return self.env[node]
        return None

    def run_node(self, n: Node) -> Any:
        """The value of a node.

        Example:
            >>> class Telling(adjit.fx.Interpreter):
            ...     def run_node(self, n):
            ...         value = super().run_node(n)
            ...         print(n.name, value)
            ...         return value
            >>> _ = Telling(adjit.fx.symbolic_trace(lambda x: x * 2 + 1)).run(3)
            x 3
            mul 6
            add 7
            output 7
        """
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of an input: the next one, all others of `*args`, or its default.

        Raises:
            RuntimeError: if there is none.

        Example:
            >>> class OfTexts(adjit.fx.Interpreter):
            ...     def placeholder(self, target, args, kwargs):
            ...         return int(super().placeholder(target, args, kwargs))
            >>> OfTexts(adjit.fx.symbolic_trace(lambda x, y=2: x + y)).run("3")
            5
        """
        if target.startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from None

    def get_attr(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of an attribute.

        Example:
            >>> constant = adjit.tensor([0.3, 0.8])
            >>> class Rounded(adjit.fx.Interpreter):
            ...     def get_attr(self, target, args, kwargs):
            ...         return super().get_attr(target, args, kwargs).round()
            >>> Rounded(adjit.fx.symbolic_trace(lambda x: x + constant)).run(adjit.ones(2))
            tensor([1., 2.])
        """
        return self.fetch_attr(target)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of a call of a function.

        Example:
            >>> class Telling(adjit.fx.Interpreter):
            ...     def call_function(self, target, args, kwargs):
            ...         print(target.__name__, args)
            ...         return super().call_function(target, args, kwargs)
            >>> Telling(adjit.fx.symbolic_trace(lambda x: x * 2 + 1)).run(3)
            mul (3, 2)
            add (6, 1)
            7
        """
        return target(*args, **kwargs)

    def call_method(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of a call of a method of the first argument.

        Example:
            >>> class Averaging(adjit.fx.Interpreter):
            ...     def call_method(self, target, args, kwargs):
            ...         return super().call_method("mean" if target == "sum" else target, args, kwargs)
            >>> Averaging(adjit.fx.symbolic_trace(lambda x: x.sum())).run(adjit.tensor([1., 3.]))
            tensor(2.)
        """
        value, *rest = args
        return getattr(value, target)(*rest, **kwargs)

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of a call of a module.

        Example:
            >>> traced = adjit.fx.symbolic_trace(nn.Sequential(nn.Dropout(), nn.ReLU()))
            >>> class WithoutDropout(adjit.fx.Interpreter):
            ...     def call_module(self, target, args, kwargs):
            ...         is_dropout = isinstance(self.fetch_attr(target), nn.Dropout)
            ...         return args[0] if is_dropout else super().call_module(target, args, kwargs)
            >>> WithoutDropout(traced).run(adjit.ones(2))
            tensor([1., 1.])
        """
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of the output.

        Example:
            >>> class Named(adjit.fx.Interpreter):
            ...     def output(self, target, args, kwargs):
            ...         return {"result": super().output(target, args, kwargs)}
            >>> Named(adjit.fx.symbolic_trace(lambda x: x + 1)).run(2)
            {'result': 3}
        """
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        """An attribute of the module by its name with dots.

        Raises:
            RuntimeError: if there is none.

        Example:
            >>> traced = adjit.fx.symbolic_trace(nn.Sequential(nn.Linear(3, 2)))
            >>> adjit.fx.Interpreter(traced).fetch_attr("0.weight").shape
            adjit.Size([2, 3])
        """
        here: Any = self.module
        atoms = target.split(".")
        for k, atom in enumerate(atoms):
            if not hasattr(here, atom):
                raise RuntimeError(f"Node referenced nonexistent target {'.'.join(atoms[: k + 1])}")
            here = getattr(here, atom)
        return here

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a node, with values in the place of nodes.

        Example:
            >>> interpreter = adjit.fx.Interpreter(adjit.fx.symbolic_trace(lambda x: x + 1))
            >>> x, add, output = interpreter.graph.nodes
            >>> interpreter.env[x] = 3
            >>> interpreter.fetch_args_kwargs_from_env(add)
            ((3, 1), {})
        """
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Any, n: Node) -> Any:
        """Arguments of a node with values in the place of nodes.

        Raises:
            RuntimeError: if one has no value yet.

        Example:
            >>> interpreter = adjit.fx.Interpreter(adjit.fx.symbolic_trace(lambda x: x + 1))
            >>> x, add, output = interpreter.graph.nodes
            >>> interpreter.env[x] = 3
            >>> interpreter.map_nodes_to_values([x, (x, 4)], add)
            [3, (3, 4)]
        """

        def value(node: Node) -> Any:
            if node not in self.env:
                raise RuntimeError(
                    f"Node {n} referenced nonexistent value {node}! Run Graph.lint() to diagnose such issues"
                )
            return self.env[node]

        return _plain(map_arg(args, value))


def _plain(value: Any) -> Any:
    """Lists and dictionaries that functions may write to."""
    if isinstance(value, tuple):
        parts = [_plain(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return value


class Transformer(Interpreter):
    """Makes a graph of a module's graph: a subclass says what becomes of a node, by symbols.

    Example:
        >>> class Softer(adjit.fx.Transformer):
        ...     def call_function(self, target, args, kwargs):
        ...         target = adjit.tanh if target == adjit.relu else target
        ...         return super().call_function(target, args, kwargs)
        >>> softer = Softer(adjit.fx.symbolic_trace(lambda x: adjit.relu(x))).transform()
        >>> softer.graph.output_node().args
        (tanh,)
    """

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph(tracer_cls=module.graph._tracer_cls)

        class Appending(Tracer):
            def __init__(self, graph: Graph) -> None:
                super().__init__()
                self.graph = graph

            def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
                return True

        self.tracer = Appending(self.new_graph)
        self.tracer.root = module

    def placeholder(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A symbol of an input.

        Example:
            >>> class Doubled(adjit.fx.Transformer):
            ...     def placeholder(self, target, args, kwargs):
            ...         return super().placeholder(target, args, kwargs) * 2
            >>> Doubled(adjit.fx.symbolic_trace(lambda x: x + 1)).transform()(3)
            7
        """
        node = self.new_graph.placeholder(
            target, default_value=next(iter(args), inspect.Parameter.empty)
        )
        return Proxy(node, self.tracer)

    def get_attr(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A symbol of an attribute.

        Example:
            >>> constant = adjit.tensor([1., 2.])
            >>> class Negative(adjit.fx.Transformer):
            ...     def get_attr(self, target, args, kwargs):
            ...         return -super().get_attr(target, args, kwargs)
            >>> Negative(adjit.fx.symbolic_trace(lambda x: x + constant)).transform()(adjit.zeros(2))
            tensor([-1., -2.])
        """
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A symbol of a call of a module.

        Example:
            >>> class Smooth(adjit.fx.Transformer):
            ...     def call_module(self, target, args, kwargs):
            ...         return adjit.tanh(*args)
            >>> list(Smooth(adjit.fx.symbolic_trace(nn.Sequential(nn.ReLU()))).transform().graph.nodes)
            [input_1, tanh, output]
        """
        module = self.fetch_attr(target)
        return self.tracer.call_module(module, module.forward, args, kwargs)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A symbol of a call of a function.

        Example:
            >>> import operator
            >>> class Multiplied(adjit.fx.Transformer):
            ...     def call_function(self, target, args, kwargs):
            ...         target = operator.mul if target is operator.add else target
            ...         return super().call_function(target, args, kwargs)
            >>> Multiplied(adjit.fx.symbolic_trace(lambda x: x + 5)).transform()(3)
            15
        """
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The module of the new graph.

        Example:
            >>> traced = adjit.fx.symbolic_trace(lambda x: x + 1)
            >>> copied = adjit.fx.Transformer(traced).transform()
            >>> copied.graph is traced.graph, copied(2)
            (False, 3)
        """
        result = super().run(enable_io_processing=False)
        if result is not None:
            old = self.module.graph.output_node()
            value = map_aggregate(result, lambda a: a.node if isinstance(a, Proxy) else a)
            self.new_graph.output(value).meta = dict(old.meta)
        return GraphModule(self.module, self.new_graph)
