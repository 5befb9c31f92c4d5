"""Parts of graphs that look like a pattern, and others in their place."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

from ..nn import Module
from .graph import Graph
from .graph_module import GraphModule, _copy_attr
from .node import Node, map_aggregate, map_arg
from .tracer import Tracer

__all__ = ["Match", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters"]


class Match(NamedTuple):
    """Where a pattern was found: its last node, and the node of the graph that each of its nodes stands for."""

    anchor: Node
    nodes_map: dict[Node, Node]


class ReplacedPatterns(NamedTuple):
    """A `Match` with the nodes that stand there now."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


def replace_pattern(
    gm: GraphModule,
    pattern: Callable[..., Any] | GraphModule,
    replacement: Callable[..., Any] | GraphModule,
) -> list[Match]:
    """Put other nodes into the places of all parts of a graph that look like a pattern.

    Both are functions of the same number of arguments, which stand for any different values, or modules.
    A part looks like the pattern if its nodes call the same with the same arguments, and nobody beside uses
    what is inside of it. Parts do not overlap. The module is recompiled.

    Args:
        gm: the module whose graph is changed.
        pattern: what is looked for.
        replacement: what comes there; attributes that it names are copied to the module.

    Returns:
        A `Match` for each part, first to last.

    Raises:
        ValueError: if the numbers of arguments differ.

    Example:
        >>> traced = adjit.fx.symbolic_trace(lambda x, y: adjit.relu(x + y) * 2)
        >>> _ = adjit.fx.replace_pattern(traced, lambda a, b: adjit.relu(a + b), lambda a, b: adjit.tanh(a - b))
        >>> print(traced.code.strip())
        def forward(self, x, y):
            sub = x - y;  x = y = None
            tanh = torch.tanh(sub);  sub = None
            mul = tanh * 2;  tanh = None
            return mul
    """
    found = replace_pattern_with_filters(gm, pattern, replacement)
    return [Match(each.anchor, each.nodes_map) for each in found]


def replace_pattern_with_filters(
    gm: GraphModule, pattern: Callable[..., Any] | GraphModule, replacement: Callable[..., Any] | GraphModule,
    match_filters: list[Callable[[Match, Graph, Graph], bool]] | None = None,
) -> list[ReplacedPatterns]:  # fmt: skip
    """`replace_pattern` of the parts that all filters accept: functions of a match, the graph and the pattern.

    Example:
        >>> traced = adjit.fx.symbolic_trace(lambda x: adjit.relu(x))
        >>> def never(match, graph, pattern):
        ...     return False
        >>> adjit.fx.subgraph_rewriter.replace_pattern_with_filters(traced, adjit.relu, adjit.tanh, [never])
        []
    """
    looked_for, put = _graph_of(pattern), _graph_of(replacement)
    inputs, outputs = _inputs(looked_for), _inputs(put)
    if len(inputs) != len(outputs):
        raise ValueError(
            f"replace_pattern: the pattern has {len(inputs)} arguments, the replacement {len(outputs)}"
        )
    if isinstance(replacement, Module):
        for node in put.nodes:
            if node.op in ("get_attr", "call_module"):
                _copy_attr(replacement, gm, node.target)
    graph, made = gm.graph, []
    changed: dict[Node, Node] = {}
    for match in _matches(gm, looked_for, pattern):
        if all(accepts(match, graph, looked_for) for accepts in match_filters or ()):
            made.append(_replace(graph, match, looked_for, put, changed))
    gm.recompile()
    return made


def _graph_of(of: Any) -> Graph:
    if isinstance(of, GraphModule):
        return of.graph
    if isinstance(of, Graph):
        return of
    if isinstance(of, Module) or hasattr(of, "__code__"):
        return Tracer().trace(of)
    return Tracer().trace(lambda input: of(input))


def _inputs(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op == "placeholder"]


def _anchors(pattern: Graph) -> list[Node]:
    """The nodes whose values the pattern gives."""
    found: list[Node] = []
    map_arg(pattern.output_node().args, found.append)
    return found


def _matches(gm: GraphModule, pattern: Graph, module: Any) -> list[Match]:
    """The parts that look like the pattern, those that come first going before others that share a node."""
    anchors = _anchors(pattern)
    taken: set[Node] = set()
    found = []
    for node in gm.graph.nodes:
        mapped: dict[Node, Any] = {}
        if not _alike(anchors[-1], node, mapped, gm, module):
            continue
        if not all(_placed(anchor, mapped, gm, module) for anchor in anchors[:-1]):
            continue
        inside = {
            own for other, own in mapped.items() if other.op not in ("placeholder", "get_attr")
        }
        given = {mapped[anchor] for anchor in anchors}
        is_closed = all(set(own.users) <= inside for own in inside - given)
        if is_closed and not inside & taken:
            taken |= inside
            found.append(Match(anchors[-1], mapped))
    return found


def _placed(anchor: Node, mapped: dict[Node, Any], gm: GraphModule, module: Any) -> bool:
    """Whether another value that the pattern gives is in the graph too; `mapped` says where, then."""
    if anchor in mapped:
        return True
    for node in gm.graph.nodes:
        tried = dict(mapped)
        if _alike(anchor, node, tried, gm, module):
            mapped.update(tried)
            return True
    return False


def _alike(wanted: Node, node: Node, mapped: dict[Node, Any], gm: GraphModule, module: Any) -> bool:
    """Whether a node does what one of the pattern does, with arguments that do too; `mapped` says where."""
    if wanted in mapped:
        return mapped[wanted] is node
    if node.op == "output" or node in mapped.values():
        return False
    if wanted.op != "placeholder" and not (
        wanted.op == node.op and _same_target(wanted, node, gm, module)
    ):
        return False
    mapped[wanted] = node
    if wanted.op == "placeholder":
        return True
    return _same((wanted.args, wanted.kwargs), (node.args, node.kwargs), mapped, gm, module)


def _same_target(wanted: Node, node: Node, gm: GraphModule, module: Any) -> bool:
    if wanted.op in ("call_function", "call_method"):
        return bool(wanted.target == node.target)
    if not isinstance(module, Module):
        return bool(wanted.target == node.target)
    one: Any = module
    other: Any = gm
    for atom in wanted.target.split("."):
        one = getattr(one, atom)
    for atom in node.target.split("."):
        other = getattr(other, atom)
    return type(one) is type(other)


def _same(a: Any, b: Any, mapped: dict[Node, Any], gm: GraphModule, module: Any) -> bool:
    """Whether arguments are the same, nodes of the pattern standing for nodes that do the same."""
    if isinstance(a, Node) and isinstance(b, Node):
        return _alike(a, b, mapped, gm, module)
    if isinstance(a, Node):  # an argument stands for numbers too
        given = mapped.setdefault(a, b) if a.op == "placeholder" else None
        return a.op == "placeholder" and type(given) is type(b) and bool(given == b)
    if isinstance(a, (tuple, list)):
        return (
            isinstance(b, (tuple, list))
            and len(a) == len(b)
            and all(_same(x, y, mapped, gm, module) for x, y in zip(a, b, strict=True))
        )
    if isinstance(a, dict):
        return (
            isinstance(b, dict) and a.keys() == b.keys()
            and all(_same(a[key], b[key], mapped, gm, module) for key in a)
        )  # fmt: skip
    if isinstance(a, slice) and isinstance(b, slice):
        return all(
            _same(getattr(a, end), getattr(b, end), mapped, gm, module)
            for end in ("start", "stop", "step")
        )
    return type(a) is type(b) and bool(a == b)


def _replace(
    graph: Graph, match: Match, pattern: Graph, put: Graph, changed: dict[Node, Node]
) -> ReplacedPatterns:
    """Put a copy of a graph in front of the last node of a match, and have its users use that.

    `changed` says what stands for nodes that were replaced before.
    """
    anchors = _anchors(pattern)
    values: dict[Node, Any] = {}
    for old, new in zip(_inputs(pattern), _inputs(put), strict=True):
        given = match.nodes_map.get(old)
        while isinstance(given, Node) and given in changed:
            given = changed[given]
        values[new] = given
    order = {node: k for k, node in enumerate(graph.nodes)}
    last = max((match.nodes_map[anchor] for anchor in anchors), key=order.__getitem__)
    old_nodes = set(graph.nodes)
    with graph.inserting_before(last):
        result = graph.graph_copy(put, values)
    made = [node for node in graph.nodes if node not in old_nodes]
    results: list[Any] = []
    map_aggregate(result, results.append)
    if len(results) != len(anchors):
        raise ValueError(
            f"replace_pattern: the pattern gives {len(anchors)} values, the replacement {len(results)}"
        )
    for anchor, value in zip(anchors, results, strict=True):
        match.nodes_map[anchor].replace_all_uses_with(value)
        changed[match.nodes_map[anchor]] = value
    inside = [own for other, own in match.nodes_map.items() if other.op != "placeholder"]
    for node in sorted(inside, key=order.__getitem__, reverse=True):
        if not node.users and not node._erased:
            graph.erase_node(node)
    return ReplacedPatterns(match.anchor, copy.copy(match.nodes_map), made)
