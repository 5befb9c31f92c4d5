"""Programs as graphs of symbols that can be read, changed and run: PyTorch's `torch.fx`.

`symbolic_trace` runs a module on symbols and writes down what it does with them: a `Graph` of `Node`s, and a
`GraphModule` whose code is made of it. `Interpreter` and `Transformer` go through one node by node,
`replace_pattern` finds parts and puts others there. Nothing of this is needed for gradients: they are recorded
while a program runs, whatever it is made of.
"""

from __future__ import annotations

from typing import Any

from .. import paths
from ..absent import absent
from . import graph, interpreter, node, proxy, shapes, subgraph_rewriter, tracer
from .graph import Graph
from .graph_module import GraphModule
from .interpreter import Interpreter, Transformer
from .node import Node, has_side_effect, map_arg
from .proxy import Proxy
from .subgraph_rewriter import replace_pattern
from .tracer import PH, ProxyableClassMeta, Tracer, is_fx_tracing, symbolic_trace, wrap

__all__ = [
    "PH", "Graph", "GraphModule", "Interpreter", "Node", "Proxy", "ProxyableClassMeta", "Tracer",
    "Transformer", "graph", "has_side_effect", "interpreter", "is_fx_tracing", "map_arg", "node", "proxy",
    "replace_pattern", "shapes", "subgraph_rewriter", "symbolic_trace", "tracer", "wrap",
]  # fmt: skip


def get_proxy_mode() -> None:
    """None: no functions are traced while they run.

    Example:
        >>> adjit.fx.experimental.proxy_tensor.get_proxy_mode() is None
        True
    """


paths.place("fx.experimental", ())
paths.place("fx.experimental.proxy_tensor", ("fx",))
paths.place("fx._symbolic_trace", ("fx.tracer",))
paths.place("fx.immutable_collections", ("fx.node",))
paths.place("fx.passes", ())
paths.place("fx.passes.shape_prop", ("fx.shapes",))


def __getattr__(name: str) -> Any:
    """What PyTorch has and adjit has not."""
    raise absent("fx", name)
