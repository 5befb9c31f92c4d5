"""Rules that programs write for exports of TorchScript's graphs, as torchvision does when it is imported.

There are no such graphs here, and a rule is never asked for: `adjit.onnx.export` says of an operator that it
does not know that it is not supported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..absent import absent

_Rule = TypeVar("_Rule", bound=Callable[..., Any])


def parse_args(*arg_descriptors: str) -> Callable[[_Rule], _Rule]:
    """Say what the arguments of a rule are: the rule as it is.

    Example:
        >>> @adjit.onnx.symbolic_helper.parse_args("v", "f")
        ... def rule(g, x, scale):
        ...     return g.op("Mul", x, scale)
    """
    return lambda rule: rule


def register_custom_op_symbolic(
    symbolic_name: str, symbolic_fn: Callable[..., Any], opset_version: int
) -> None:
    """Name the rule of an operator, "namespace::name", for one opset.

    Example:
        >>> adjit.onnx.register_custom_op_symbolic("shown::nothing", lambda g, x: x, 11)
    """


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Take the rule of an operator back.

    Example:
        >>> adjit.onnx.unregister_custom_op_symbolic("shown::nothing", 11)
    """


def __getattr__(name: str) -> Any:
    raise absent("onnx.symbolic_helper", name)
