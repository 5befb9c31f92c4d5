"""Modules whose `forward` is made of a graph."""

from __future__ import annotations

import copy
import itertools
import linecache
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

from ..nn import Module
from ..nn.parameter import Parameter
from ..tensor import Tensor
from .code import PythonCode, import_line
from .graph import Graph

__all__ = ["GraphModule"]

_numbers = itertools.count()
_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"  # in `meta`: what copies have too


class _CodeOnlyModule(Module):
    """A module of a dictionary of attributes, for programs that copy graphs as PyTorch does."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__ = body


class GraphModule(Module):
    """A module that does what a graph says. Set `graph`, or change it and call `recompile`.

    Args:
        root: a module, whose attributes that the graph names are taken, or a dictionary of them by their names.
        graph: the graph.
        class_name: the name of the class that the module seems to be of.

    Attributes:
        graph: the graph; a new one is compiled when it is set.
        code: the text of `forward`.

    Raises:
        RuntimeError: if the root is neither, or does not have what the graph names.

    Example:
        >>> import operator
        >>> traced = adjit.fx.symbolic_trace(lambda x: x * 2)
        >>> (mul,) = traced.graph.find_nodes(op="call_function", target=operator.mul)
        >>> mul.target = operator.add
        >>> _ = traced.recompile()
        >>> traced(adjit.ones(1))
        tensor([3.])
    """

    _graph: Graph
    _code: str
    _from_text: ClassVar[Callable[..., Any]]  # makes one of a pickle, by tracing its code again

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        # Each module has a class of its own, which its `forward` belongs to.
        base = next(kind for kind in cls.__mro__ if not kind.__dict__.get("_is_of_one", False))
        return super().__new__(
            type(base.__name__, (base,), {"_is_of_one": True, "__module__": base.__module__})
        )

    def __init__(
        self, root: Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule"
    ) -> None:
        super().__init__()
        type(self).__name__ = class_name
        targets = [node.target for node in graph.nodes if node.op in ("get_attr", "call_module")]
        if isinstance(root, Module):
            self.training = getattr(root, "training", True)
            for target in targets:
                _copy_attr(root, self, target)
        elif isinstance(root, dict):
            for node in graph.nodes:
                if node.op in ("get_attr", "call_module") and node.target not in root:
                    raise RuntimeError(
                        f"Node {node} referenced target {node.target} but that target was not provided in "
                        "``root``!"
                    )
            for target in sorted(targets, key=lambda target: target.count(".")):
                _assign_attr(root[target], self, target)
        else:
            raise RuntimeError(f"Unsupported type {root} passed for root!")
        self.meta: dict[str, Any] = {}
        self.graph = graph

    @property
    def graph(self) -> Graph:
        """The graph. Setting another one makes `forward` of that.

        Example:
            >>> traced = adjit.fx.symbolic_trace(lambda x: x + 1)
            >>> traced.graph = adjit.fx.symbolic_trace(lambda x: x * 5).graph
            >>> traced(2)
            10
        """
        return self._graph

    @graph.setter
    def graph(self, graph: Graph) -> None:
        if not isinstance(graph, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(graph)}")
        self.__dict__["_graph"] = graph
        graph.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The text of `forward`, as the graph was when it was compiled.

        Example:
            >>> print(adjit.fx.symbolic_trace(lambda x: adjit.relu(x)).code.strip())
            def forward(self, x):
                relu = torch.relu(x);  x = None
                return relu
        """
        return self._code

    def recompile(self) -> PythonCode:
        """Make `forward` anew of the graph, after that was changed.

        Example:
            >>> traced = adjit.fx.symbolic_trace(lambda x: x + 1)
            >>> x, add, output = traced.graph.nodes
            >>> add.args = (x, 10)
            >>> before, _, after = traced(1), traced.recompile(), traced(1)
            >>> before, after
            (2, 11)
        """
        code = self._graph.python_code("self")
        self.__dict__["_code"] = code.src
        type(self).forward = compiled(code.src, code.globals)
        return code

    # ----- submodules -----

    def add_submodule(self, target: str, m: Module) -> bool:
        """Add a module, and plain ones between it and this one.

        Args:
            target: its name, with dots.
            m: the module.

        Returns:
            False if something of one of these names is there that is no module.

        Example:
            >>> traced = adjit.fx.symbolic_trace(lambda x: x + 1)
            >>> traced.add_submodule("head.act", nn.ReLU())
            True
            >>> traced.head
            Module(
              (act): ReLU()
            )
        """
        *path, name = target.split(".")
        here: Any = self
        for atom in path:
            here = _inner(here, atom)
            if not isinstance(here, Module):
                return False
        here.add_module(name, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Take out a module.

        Returns:
            False if there is none of that name.

        Example:
            >>> traced = adjit.fx.symbolic_trace(nn.Sequential(nn.ReLU()))
            >>> traced.delete_submodule("0"), traced.delete_submodule("0")
            (True, False)
        """
        path, _, name = target.rpartition(".")
        try:
            home, found = self.get_submodule(path), self.get_submodule(target)
        except AttributeError:
            return False
        if not isinstance(found, Module):
            return False
        delattr(home, name)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Take out the modules that no node names, nor anything inside of them.

        Example:
            >>> traced = adjit.fx.symbolic_trace(nn.Sequential(nn.ReLU()))
            >>> _ = traced.add_submodule("spare", nn.Tanh())
            >>> traced.delete_all_unused_submodules()
            >>> [name for name, _ in traced.named_children()]
            ['0']
        """
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op in ("call_module", "get_attr"):
                atoms = node.target.split(".")
                used.update(".".join(atoms[:k]) for k in range(1, len(atoms) + 1))
            if node.op == "call_module" and _is_there(self, node.target):
                below = (name for name, _ in self.get_submodule(node.target).named_modules())
                used.update(f"{node.target}.{name}" for name in below if name)
        for name in [name for name, _ in self.named_modules() if name and name not in used]:
            self.delete_submodule(name)

    # ----- copies and files -----

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        state = {key: value for key, value in self.__dict__.items() if key != "_graph"}
        made.__dict__.update(copy.deepcopy(state, memo))
        type(made).__name__ = type(self).__name__
        made.graph = copy.deepcopy(self._graph)
        return made

    @staticmethod
    def _deepcopy_init() -> Callable[..., None]:
        """The constructor that subclasses of programs copy themselves by."""
        return GraphModule.__init__

    def __copy__(self) -> GraphModule:
        return GraphModule(self, copy.deepcopy(self.graph), type(self).__name__)

    def __reduce__(self) -> Any:
        state = {key: value for key, value in self.__dict__.items() if key != "_graph"}
        code = self.graph.python_code("self")
        imports = "\n".join(
            import_line(name, value) for name, value in sorted(code.globals.items())
        )
        return self._from_text, (state, imports, self.graph._tracer_cls, type(self).__name__)

    def to_folder(self, folder: str | Path, module_name: str = "FxModule") -> None:
        """Not supported: the code of a graph alone is `code`, a module is saved by `adjit.save`.

        Raises:
            NotImplementedError: always.

        Example:
            >>> adjit.fx.symbolic_trace(lambda x: x + 1).to_folder("saved")
            Traceback (most recent call last):
                ...
            NotImplementedError: GraphModule.to_folder is not supported; write `code` to a file of your own, ...
        """
        raise NotImplementedError(
            "GraphModule.to_folder is not supported; write `code` to a file of your own, or save the module "
            "with adjit.save and read it with adjit.load(..., weights_only=False)"
        )

    # ----- texts -----

    def print_readable(self, print_output: bool = True, **_: Any) -> str:
        """The code of this module and of those inside that are made of graphs, printed too.

        Example:
            >>> text = adjit.fx.symbolic_trace(nn.Sequential(nn.ReLU())).print_readable(print_output=False)
            >>> print(text.rstrip())
            class Sequential(torch.nn.Module):
                def forward(self, input):
                    input_1 = input
                    _0 = getattr(self, "0")(input_1);  input_1 = None
                    return _0
        """
        code = self.graph.python_code("self", verbose=True).src.lstrip("\n")
        lines = [f"class {type(self).__name__}(torch.nn.Module):", *_indented(code)]
        for child in self.children():
            if isinstance(child, GraphModule):
                lines += ["", *_indented(child.print_readable(print_output=False))]
        text = "\n".join(lines).rstrip() + "\n"
        if print_output:
            print(text)
        return text

    def __str__(self) -> str:
        told = "# To see more debug info, please use `graph_module.print_readable()`"
        return "\n".join([super().__repr__(), self._code, told])


def _is_there(module: Module, path: str) -> bool:
    try:
        return isinstance(module.get_submodule(path), Module)
    except AttributeError:
        return False


def _indented(text: str) -> list[str]:
    return [f"    {line}" if line.strip() else "" for line in text.split("\n")]


def compiled(text: str, names: dict[str, Any]) -> Any:
    """The function of a text; errors in it show its lines."""
    file = f"<eval_with_key>.{next(_numbers)}"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    home = dict(names)
    exec(compile(text, file, "exec", dont_inherit=True), home)
    return home["forward"]


def _copy_attr(source: Module, to: Module, target: str) -> None:
    """Give a module what another one has under a name with dots."""
    *path, name = target.split(".")
    here: Any = source
    there: Any = to
    for atom in path:
        here, there = getattr(here, atom), _inner(there, atom)
        if there is here:
            return  # it has the whole module
    _put(getattr(here, name), there, name)


def _assign_attr(value: Any, to: Module, target: str) -> None:
    """Give a module a value under a name with dots."""
    *path, name = target.split(".")
    there: Any = to
    for atom in path:
        there = _inner(there, atom)
    _put(value, there, name)


def _inner(module: Module, name: str) -> Any:
    """What a module has under a name, or a plain module that is made there."""
    found = getattr(module, name, None)
    if found is None:
        found = Module()
        setattr(module, name, found)
    return found


def _put(value: Any, there: Module, name: str) -> None:
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        there.register_buffer(name, value)
    else:
        setattr(there, name, value)
