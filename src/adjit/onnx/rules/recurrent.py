"""Rules for recurrent layers: ONNX's own, one for each layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..builder import GraphBuilder, OnnxValue
from ..errors import UnsupportedOperatorError
from .products import linear
from .registry import RULES, Rule, rule


class RecurrentOp(NamedTuple):
    """How ONNX has a kind of layer."""

    op: str
    order: tuple[int, ...]  # of ONNX's gates, those of PyTorch
    settings: dict[str, Any]
    activation: str = ""


KINDS = {
    "lstm": RecurrentOp("LSTM", (0, 3, 1, 2), {}),
    "gru": RecurrentOp("GRU", (1, 0, 2), {"linear_before_reset": 1}),
    "rnn_tanh": RecurrentOp("RNN", (0,), {}, "Tanh"),
    "rnn_relu": RecurrentOp("RNN", (0,), {}, "Relu"),
}


@rule("layers")
def layers(
    g: GraphBuilder, kind: str, input: OnnxValue, sizes: Any, h: OnnxValue, c: OnnxValue | None,
    params: Sequence[OnnxValue], has_biases: bool, num_layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool = False,
) -> Any:  # fmt: skip
    directions = 2 if bidirectional else 1
    each = 4 if has_biases else 2
    if sizes is not None or (dropout and train) or len(params) != num_layers * directions * each:
        raise UnsupportedOperatorError(
            "recurrent layers of packed sequences, with projections, or with dropout in training have no rule"
        )
    of = KINDS[kind]
    hidden = params[1].shape[1]
    x = g.transpose(input, (1, 0, 2)) if batch_first else input
    states: list[list[OnnxValue]] = [[], []]
    for layer in range(num_layers):
        first = layer * directions
        own = [params[k * each : (k + 1) * each] for k in range(first, first + directions)]
        start = [g.slice(s, 0, first, first + directions) for s in (h, c) if s is not None]
        weights = [joined(g, of, [one[k] for one in own]) for k in (0, 1)]
        bias = None
        if has_biases:
            halves = [joined(g, of, [one[k] for one in own]) for k in (2, 3)]
            bias = g.node("Concat", *halves, axis=1)
        y, *last = g.node(
            of.op, x, *weights, bias, None, *start, outputs=1 + len(start), hidden_size=hidden,
            direction="bidirectional" if bidirectional else "forward",
            activations=[of.activation] * directions if of.activation else None, **of.settings,
        )  # fmt: skip
        # (steps, directions, batch, hidden) to (steps, batch, directions * hidden)
        turned = g.transpose(y, (0, 2, 1, 3))
        x = g.node("Reshape", turned, g.constant([0, 0, directions * hidden], np.int64))
        for kept, state in zip(states, last, strict=False):
            kept.append(state)
    output = g.transpose(x, (1, 0, 2)) if batch_first else x
    return output, *(
        kept[0] if len(kept) == 1 else g.node("Concat", *kept, axis=0) for kept in states if kept
    )


def joined(g: GraphBuilder, of: RecurrentOp, params: Sequence[OnnxValue]) -> OnnxValue:
    """Parameters of both directions, their gates in the order of ONNX."""
    found = [g.unsqueeze(in_order(g, of, param), 0) for param in params]
    return found[0] if len(found) == 1 else g.node("Concat", *found, axis=0)


def in_order(g: GraphBuilder, of: RecurrentOp, param: OnnxValue) -> OnnxValue:
    """A parameter with its gates in the order of ONNX."""
    if len(of.order) == 1:
        return param
    gates = g.node("Split", param, axis=0, num_outputs=len(of.order), outputs=len(of.order))
    made: OnnxValue = g.node("Concat", *(gates[k] for k in of.order), axis=0)
    return made


# ----- single steps -----


def gates_of(
    g: GraphBuilder, x: OnnxValue, weight: OnnxValue, bias: OnnxValue | None, count: int
) -> list[OnnxValue]:
    """The products of a step, cut into its gates."""
    found: list[OnnxValue] = g.node(
        "Split", linear(g, x, weight, bias), axis=-1, num_outputs=count, outputs=count
    )
    return found


@rule("lstm_cell")
def lstm_cell(
    g: GraphBuilder,
    input: OnnxValue,
    hx: Sequence[OnnxValue],
    w_ih: OnnxValue,
    w_hh: OnnxValue,
    b_ih: OnnxValue | None = None,
    b_hh: OnnxValue | None = None,
) -> Any:
    h, c = hx
    pairs = zip(gates_of(g, input, w_ih, b_ih, 4), gates_of(g, h, w_hh, b_hh, 4), strict=True)
    sums = [g.node("Add", *pair) for pair in pairs]
    enter, forget, leave = (g.node("Sigmoid", sums[k]) for k in (0, 1, 3))
    kept, new = g.node("Mul", forget, c), g.node("Mul", enter, g.node("Tanh", sums[2]))
    cell = g.node("Add", kept, new)
    return g.node("Mul", leave, g.node("Tanh", cell)), cell


@rule("gru_cell")
def gru_cell(
    g: GraphBuilder,
    input: OnnxValue,
    hx: OnnxValue,
    w_ih: OnnxValue,
    w_hh: OnnxValue,
    b_ih: OnnxValue | None = None,
    b_hh: OnnxValue | None = None,
) -> OnnxValue:
    of_input, of_state = gates_of(g, input, w_ih, b_ih, 3), gates_of(g, hx, w_hh, b_hh, 3)
    reset, keep = (g.node("Sigmoid", g.node("Add", of_input[k], of_state[k])) for k in (0, 1))
    new = g.node("Tanh", g.node("Add", of_input[2], g.node("Mul", reset, of_state[2])))
    return g.node("Add", new, g.node("Mul", keep, g.node("Sub", hx, new)))


def simple_cell(activation: str) -> Rule:
    """The rule of a step without gates."""

    def write(
        g: GraphBuilder,
        input: OnnxValue,
        hx: OnnxValue,
        w_ih: OnnxValue,
        w_hh: OnnxValue,
        b_ih: OnnxValue | None = None,
        b_hh: OnnxValue | None = None,
    ) -> OnnxValue:
        total = g.node("Add", linear(g, input, w_ih, b_ih), linear(g, hx, w_hh, b_hh))
        return g.node(activation, total)

    return write


RULES.update({"rnn_tanh_cell": simple_cell("Tanh"), "rnn_relu_cell": simple_cell("Relu")})
