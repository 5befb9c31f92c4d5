"""How calls are written as ONNX nodes, by subject."""

from . import (
    activations,
    creation,
    elementwise,
    indexing,
    layers,
    products,
    recurrent,
    reductions,
    shapes,
)
from .registry import RULES, has_rule, rule_of

__all__ = [
    "RULES", "activations", "creation", "elementwise", "has_rule", "indexing", "layers", "products",
    "recurrent", "reductions", "rule_of", "shapes",
]  # fmt: skip
