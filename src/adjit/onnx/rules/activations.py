"""Rules for activations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..builder import GraphBuilder, OnnxValue, Operand
from ..errors import UnsupportedOperatorError
from .elementwise import where
from .registry import RULES, Rule, rule

# Operators without settings.
PLAIN = {"relu": "Relu", "hardswish": "HardSwish"}
# Operators with settings by the names of PyTorch's parameters and of ONNX's attributes, with their defaults.
SETTINGS = {
    "leaky_relu": ("LeakyRelu", {"negative_slope": ("alpha", 0.01)}),
    "elu": ("Elu", {"alpha": ("alpha", 1.0)}),
    "hardshrink": ("Shrink", {"lambd": ("lambd", 0.5)}),
}


def with_settings(op: str, settings: dict[str, tuple[str, float]]) -> Rule:
    """The rule of an activation whose settings are attributes."""

    def write(
        g: GraphBuilder, input: OnnxValue, *given: Any, inplace: bool = False, **named: Any
    ) -> OnnxValue:
        found = dict(zip(settings, given, strict=False)) | named
        attributes: dict[str, Any] = {
            name: float(found.get(key, value)) for key, (name, value) in settings.items()
        }
        return g.node(op, input, **attributes)

    return write


RULES.update({name: with_settings(op, {}) for name, op in PLAIN.items()})
RULES.update({name: with_settings(*row) for name, row in SETTINGS.items()})


@rule("selu")
def selu(g: GraphBuilder, input: OnnxValue, inplace: bool = False) -> OnnxValue:
    return g.node("Selu", input)


@rule("celu")
def celu(g: GraphBuilder, input: OnnxValue, alpha: float = 1.0, inplace: bool = False) -> OnnxValue:
    below = g.node("Elu", g.binary("Div", input, alpha), alpha=1.0)
    return g.node("Where", g.node("Greater", input, g.constant(0, input.dtype), dtype=np.bool_), input,
                  g.binary("Mul", below, alpha), dtype=input.dtype)  # fmt: skip


@rule("relu6")
def relu6(g: GraphBuilder, input: OnnxValue, inplace: bool = False) -> OnnxValue:
    return hardtanh(g, input, 0, 6)


@rule("hardtanh")
def hardtanh(
    g: GraphBuilder,
    input: OnnxValue,
    min_val: float = -1.0,
    max_val: float = 1.0,
    inplace: bool = False,
) -> OnnxValue:
    return g.binary("Min", g.binary("Max", input, min_val), max_val)


@rule("hardsigmoid")
def hardsigmoid(g: GraphBuilder, input: OnnxValue, inplace: bool = False) -> OnnxValue:
    return g.node("HardSigmoid", input, alpha=1 / 6, beta=0.5)


@rule("silu")
def silu(g: GraphBuilder, input: OnnxValue, inplace: bool = False) -> OnnxValue:
    return g.node("Mul", input, g.node("Sigmoid", input))


@rule("mish")
def mish(g: GraphBuilder, input: OnnxValue, inplace: bool = False) -> OnnxValue:
    return g.node("Mul", input, g.node("Tanh", softplus(g, input)))


@rule("gelu")
def gelu(g: GraphBuilder, input: OnnxValue, approximate: str = "none") -> OnnxValue:
    if approximate == "tanh":
        cube = g.node("Mul", g.node("Mul", input, input), input)
        inner = g.node("Add", input, g.binary("Mul", cube, 0.044715))
        part = g.node("Tanh", g.binary("Mul", inner, math.sqrt(2 / math.pi)))
    else:
        part = g.node("Erf", g.binary("Mul", input, math.sqrt(0.5)))
    return g.node("Mul", g.binary("Mul", input, 0.5), g.binary("Add", part, 1))


@rule("softplus")
def softplus(
    g: GraphBuilder, input: OnnxValue, beta: float = 1, threshold: float = 20
) -> OnnxValue:
    scaled = input if beta == 1 else g.binary("Mul", input, beta)
    limited = g.binary("Min", scaled, threshold)  # beyond it exp would overflow
    soft = g.node("Softplus", limited)
    if beta != 1:
        soft = g.binary("Div", soft, beta)
    is_beyond = g.node("Greater", scaled, g.constant(threshold, input.dtype), dtype=np.bool_)
    return g.node("Where", is_beyond, input, soft, dtype=input.dtype)


@rule("logsigmoid")
def logsigmoid(g: GraphBuilder, input: OnnxValue) -> OnnxValue:
    # min(x, 0) - log(1 + exp(-|x|)) holds for all numbers.
    rest = g.node("Softplus", g.node("Neg", g.node("Abs", input)))
    return g.node("Sub", g.binary("Min", input, 0), rest)


@rule("softshrink")
def softshrink(g: GraphBuilder, input: OnnxValue, lambd: float = 0.5) -> OnnxValue:
    return g.node("Shrink", input, lambd=float(lambd), bias=float(lambd))


@rule("tanhshrink")
def tanhshrink(g: GraphBuilder, input: OnnxValue) -> OnnxValue:
    return g.node("Sub", input, g.node("Tanh", input))


@rule("threshold")
def threshold(
    g: GraphBuilder, input: OnnxValue, threshold: Operand, value: Operand, inplace: bool = False
) -> OnnxValue:
    is_above = g.node("Greater", input, g.operand(threshold, input.dtype), dtype=np.bool_)
    return where(g, is_above, input, value)


@rule("prelu")
def prelu(g: GraphBuilder, input: OnnxValue, weight: OnnxValue) -> OnnxValue:
    slope = weight if input.ndim < 3 else g.unsqueeze(weight, *range(1, input.ndim - 1))
    return g.node("PRelu", input, slope)


@rule("glu")
def glu(g: GraphBuilder, input: OnnxValue, dim: int = -1) -> OnnxValue:
    value, gate = g.node("Split", input, axis=dim, num_outputs=2, outputs=2)
    return g.node("Mul", value, g.node("Sigmoid", gate))


def normalised(op: str) -> Rule:
    """The rule of a softmax or of its logarithm."""

    def write(
        g: GraphBuilder,
        input: OnnxValue,
        dim: int | None = None,
        _stacklevel: int = 3,
        dtype: Any = None,
    ) -> OnnxValue:
        axis = (0 if input.ndim in (0, 1, 3) else 1) if dim is None else dim
        x = g.cast(input, g.out.dtype)
        if input.ndim == 0:
            return g.squeeze(g.node(op, g.unsqueeze(x, 0), axis=0), 0)
        return g.node(op, x, axis=axis)

    return write


RULES["softmax"] = normalised("Softmax")
RULES["log_softmax"] = normalised("LogSoftmax")


@rule("softmin")
def softmin(
    g: GraphBuilder,
    input: OnnxValue,
    dim: int | None = None,
    _stacklevel: int = 3,
    dtype: Any = None,
) -> Any:
    turned: OnnxValue = g.node("Neg", input)
    turned.known_shape = input.known_shape
    return RULES["softmax"](g, turned, dim)


@rule("dropout")
def dropout(
    g: GraphBuilder, input: OnnxValue, p: float = 0.5, training: bool = True, inplace: bool = False,
    train: bool = True,
) -> OnnxValue:  # fmt: skip
    if training and train and p:
        raise UnsupportedOperatorError(
            "'dropout' in training draws random numbers; export with training=TrainingMode.EVAL"
        )
    return g.node("Identity", input)
