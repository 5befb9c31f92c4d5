"""Shapes of the values of a graph, found by running it."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..dtypes import dtype
from ..formats import channels_last, contiguous_format, memory_format
from ..shapes import Size
from ..tensor import Tensor
from .interpreter import Interpreter
from .node import Node, map_aggregate

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    """What is known of a tensor."""

    shape: Size
    dtype: dtype
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: memory_format | None
    is_quantized: bool
    qparams: dict[str, Any]


class ShapeProp(Interpreter):
    """Runs a graph, and notes of every node what its value is: `meta["tensor_meta"]` and `meta["type"]`.

    Example:
        >>> traced = adjit.fx.symbolic_trace(nn.Linear(3, 2))
        >>> _ = adjit.fx.passes.shape_prop.ShapeProp(traced).propagate(adjit.ones(4, 3))
        >>> traced.graph.output_node().meta["tensor_meta"].shape
        adjit.Size([4, 2])
    """

    def run_node(self, n: Node) -> Any:
        """The value of a node, which `meta` says something of."""
        result = super().run_node(n)
        seen = False

        def noted(value: Any) -> Any:
            nonlocal seen
            if not isinstance(value, Tensor):
                return value
            seen = True
            return _extract_tensor_metadata(value)

        meta = map_aggregate(result, noted)
        if seen:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Run the graph, and give its output."""
        return super().run(*args)


def _extract_tensor_metadata(result: Tensor) -> TensorMetadata:
    formats = (
        each for each in (contiguous_format, channels_last)
        if (each is contiguous_format or result.ndim == 4) and result.is_contiguous(memory_format=each)
    )  # fmt: skip
    return TensorMetadata(
        result.shape,
        result.dtype,
        result.requires_grad,
        result.stride(),
        next(formats, None),
        False,
        {},
    )
