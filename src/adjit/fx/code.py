"""Graphs of symbols as text: a function of Python that does what the nodes say."""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Callable, Reversible
from typing import Any, NamedTuple

from ..devices import device
from ..tensor import Tensor
from .namespace import CUSTOM_BUILTINS, Namespace
from .node import Node, qualified_name, same, type_name

__all__ = ["PythonCode", "inplace_methods", "magic_methods", "reflectable_magic_methods"]

_LIBRARY = __name__.partition(".")[0]
# Lines that import what code may name.
_IMPORTS = {
    "inf": "from math import inf", "nan": "from math import nan", "NoneType": "NoneType = type(None)",
    "torch": f"import {_LIBRARY} as torch", "device": f"from {_LIBRARY} import device",
}  # fmt: skip

# How the functions of `operator` are written; those that may stand behind their other operand, and all.
reflectable_magic_methods = {
    "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "floordiv": "{} // {}", "truediv": "{} / {}",
    "div": "{} / {}", "mod": "{} % {}", "pow": "{} ** {}", "lshift": "{} << {}", "rshift": "{} >> {}",
    "and_": "{} & {}", "or_": "{} | {}", "xor": "{} ^ {}", "getitem": "{}[{}]", "matmul": "{} @ {}",
}  # fmt: skip
magic_methods = {
    "eq": "{} == {}", "ne": "{} != {}", "lt": "{} < {}", "gt": "{} > {}", "le": "{} <= {}", "ge": "{} >= {}",
    "pos": "+{}", "neg": "-{}", "invert": "~{}", **reflectable_magic_methods,
}  # fmt: skip
inplace_methods = {
    "iadd": "{} += {}", "iand": "{} &= {}", "ifloordiv": "{} //= {}", "ilshift": "{} <<= {}",
    "imod": "{} %= {}", "imul": "{} *= {}", "imatmul": "{} @= {}", "ior": "{} |= {}", "ipow": "{} **= {}",
    "irshift": "{} >>= {}", "isub": "{} -= {}", "itruediv": "{} /= {}", "ixor": "{} ^= {}",
    "setitem": "{}[{}] = {}",
}  # fmt: skip


class PythonCode(NamedTuple):
    """The text of a function, and what it names: `src` and `globals`."""

    src: str
    globals: dict[str, Any]


def written(nodes: Reversible[Node], root_module: str, *, verbose: bool) -> PythonCode:
    """The code of the nodes of a graph; see `Graph.python_code`."""
    return _Lines(root_module, verbose).write(nodes)


def import_line(name: str, value: Any) -> str:
    """A line by which another process gets what a text names.

    Raises:
        TypeError: if it lies in no module.
    """
    if name in _IMPORTS:
        return _IMPORTS[name]
    home, own = getattr(value, "__module__", None), getattr(value, "__qualname__", "<locals>")
    if home is None or "<" in own:
        raise TypeError(
            f"{value!r}, which the graph names, lies in no module: it cannot be pickled or saved as code"
        )
    return f"from {home} import {own} as {name}" if own != name else f"from {home} import {own}"


class _Lines:
    """Writes the nodes of one graph, one after the other."""

    def __init__(self, root_module: str, verbose: bool) -> None:
        self.root, self.verbose = root_module, verbose
        self.namespace = Namespace()
        self.globals: dict[str, Any] = {}
        self.parameters: list[str] = []
        self.wrapped: dict[str, None] = {}
        self.returns = ""
        for name, value in CUSTOM_BUILTINS.items():
            self.name_of(name, value)

    def write(self, nodes: Reversible[Node]) -> PythonCode:
        unused = self.last_uses(nodes)
        body = []
        for node in nodes:
            line = self.line(node)
            if line is None:
                continue
            gone = unused.get(node, []) if node.op not in ("placeholder", "output") else []
            if not node.users and node.op not in ("placeholder", "output"):
                gone.append(node)
            end = f";  {' = '.join([*map(self.variable, gone), 'None'])}" if gone else ""
            body.append(line + end)
        if not body:
            body = ["pass"]
        if not self.parameters or self.parameters[0] != "self":
            self.parameters.insert(0, "self")
        wraps = ""
        if self.wrapped:
            wraps = "\n".join(f'torch.fx._symbolic_trace.wrap("{name}")' for name in self.wrapped)
        head = f"def forward({', '.join(self.parameters)}){self.returns}:"
        text = "\n".join(f"    {line}" for line in [*body, ""])
        return PythonCode(f"\n{wraps}\n\n{head}\n{text}", self.globals)

    @staticmethod
    def last_uses(nodes: Reversible[Node]) -> dict[Node, list[Node]]:
        """The nodes that nobody uses any more behind each one, whose memory goes then."""
        seen: set[Node] = set()
        unused: dict[Node, list[Node]] = {}
        for node in reversed(nodes):
            for used in node.all_input_nodes:
                if used not in seen:
                    seen.add(used)
                    unused.setdefault(node, []).append(used)
        return unused

    # ----- names -----

    def variable(self, node: Node) -> str:
        return self.namespace.create_name(node.name, node)

    def name_of(self, hint: str, value: Any) -> str:
        """How the text calls an object that is none of its own; full names that lead to one stay."""
        if value is not device and _leads_to(hint, value):
            return hint
        name = self.namespace.create_name(hint, value)
        self.globals[name] = value
        return name

    def type(self, kind: Any) -> str:
        """How the text names the type of an annotation."""
        if kind == ():
            return "()"
        if isinstance(kind, types.UnionType):
            return "|".join(map(self.type, typing.get_args(kind)))
        origin = typing.get_origin(kind)
        if origin is not None:
            home = f"typing.{kind._name}" if getattr(kind, "_name", None) else type_name(origin)
            own = getattr(typing, kind._name) if home.startswith("typing.") else origin
            name, args = self.name_of(home, own), typing.get_args(kind)
            return f"{name}[{','.join(map(self.type, args))}]" if args else name
        return self.name_of(type_name(kind), kind)

    def value(self, arg: Any) -> str:
        """An argument, as the text has it."""
        if isinstance(arg, Node):
            return self.variable(arg)
        if isinstance(arg, tuple) and hasattr(arg, "_fields"):
            parts = ", ".join(map(self.value, arg))
            return f"{self.name_of(qualified_name(type(arg)), type(arg))}({parts})"
        if isinstance(arg, tuple):
            return f"({', '.join(map(self.value, arg))}{',' if len(arg) == 1 else ''})"
        if isinstance(arg, list):
            return f"[{', '.join(map(self.value, arg))}]"
        if isinstance(arg, dict):
            return f"{{{', '.join(f'{key!r}: {self.value(v)}' for key, v in arg.items())}}}"
        if isinstance(arg, slice):
            return (
                f"slice({', '.join(self.value(part) for part in (arg.start, arg.stop, arg.step))})"
            )
        if isinstance(arg, enum.Enum):
            return f"{self.name_of(type(arg).__name__, type(arg))}.{arg.name}"
        if isinstance(arg, Tensor):
            kind = str(arg.dtype).rpartition(".")[2]
            return f"torch.Tensor(size={list(arg.shape)}, dtype={kind})"
        if isinstance(arg, type):
            return self.type(arg)
        if isinstance(arg, float):  # NumPy's are too, and have another text
            return float.__repr__(arg)
        if isinstance(arg, complex):
            return complex.__repr__(arg)
        text = repr(arg)
        return f"torch{text[len(_LIBRARY) :]}" if text.startswith(f"{_LIBRARY}.") else text

    def values(self, args: Any, kwargs: dict[str, Any]) -> str:
        named = (f"{name} = {self.value(value)}" for name, value in kwargs.items())
        return ", ".join([*map(self.value, args), *named])

    # ----- lines -----

    def line(self, node: Node) -> str | None:
        """The line of a node, None for an input, which is a parameter, under its own name."""
        lines: dict[str, Callable[[Node], str]] = {
            "get_attr": lambda node: path(self.root, node.target),
            "call_module": lambda node: (
                f"{path(self.root, node.target)}({self.values(node.args, node.kwargs)})"
            ),
            "call_method": lambda node: (
                f"{path(self.value(node.args[0]), node.target)}({self.values(node.args[1:], node.kwargs)})"
            ),
            "call_function": self.call,
        }
        if node.op == "placeholder":
            return self.parameter(node)
        if node.op == "output":
            if node.type is not None:
                self.returns = f" -> {self.type(node.type)}"
            return f"return {self.value(node.args[0])}"
        name = node.target.__name__ if node.op == "call_function" else ""
        if name in inplace_methods and node.target.__module__ == "_operator":
            written = inplace_methods[name].format(*map(self.value, node.args))
            return f"{written};  {self.variable(node)}{self.annotation(node)} = {self.value(node.args[0])}"
        return f"{self.variable(node)}{self.annotation(node)} = {lines[node.op](node)}"

    def parameter(self, node: Node) -> str | None:
        default = f" = {self.value(node.args[0])}" if node.args else ""
        self.parameters.append(f"{node.target}{self.annotation(node)}{default}")
        name = node.target.replace("*", "")
        return None if name == self.variable(node) else f"{self.variable(node)} = {name}"

    def call(self, node: Node) -> str:
        function = node.target
        if function.__module__ == "_operator" and function.__name__ in magic_methods:
            return magic_methods[function.__name__].format(*map(self.value, node.args))
        if function is getattr and len(node.args) == 2 and str(node.args[1]).isidentifier():
            return f"{self.value(node.args[0])}.{node.args[1]}"
        name = self.name_of(qualified_name(function), function)
        if node.meta.get("is_wrapped"):
            self.wrapped[name] = None
        return f"{name}({self.values(node.args, node.kwargs)})"

    def annotation(self, node: Node) -> str:
        found = node.meta.get("tensor_meta") if self.verbose else None
        if found is not None:
            kind = str(found.dtype).rpartition(".")[2]
            return f': "{kind}{list(found.shape)}"'
        return "" if node.type is None else f" : {self.type(node.type)}"


def _leads_to(name: str, value: Any) -> bool:
    """Whether a name that begins with `torch.` is that of an object."""
    first, *atoms = name.split(".")
    here: Any = CUSTOM_BUILTINS["torch"] if first == "torch" and atoms else None
    for atom in atoms:
        here = getattr(here, atom, None)
    return here is not None and same(here, value)


def path(base: str, target: str) -> str:
    """An attribute of an attribute, where names are none of Python's too."""
    for atom in target.split("."):
        base = f"{base}.{atom}" if atom.isidentifier() else f'getattr({base}, "{atom}")'
    return base
