"""Recurrent layers and their cells.

A layer over a sequence is one op: the product of all inputs with their weight, then one kernel for all
steps. Its derivative is one kernel too, and the products that follow from it. A cell is one step, made
of other ops, and so is what has no kernel: gradients that are differentiated again, LSTMs that project
their state, and layers on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .. import devices, dtypes
from ..graph import wrong_types
from ..graph.batching import Batch
from ..graph.export import export
from ..graph.launch import launch_recipe, recipe_of
from ..graph.operation import operation
from ..graph.record import is_differentiated
from ..graph.state import state as modes
from ..graph.view import as_own
from ..kernels.ops import recurrent as kernels
from ..tensor import Tensor
from .dropout import dropout as drop_out
from .joining import cat, stack
from .linear import linear
from .matmul import GRAIN

# Sequences from which on steps without gradients multiply their inputs themselves: 200 steps of 64, 64 hidden,
# take an LSTM 10.8 ms for 11.7, a GRU 8.3 for 9.7, an RNN 2.9 for 3.3. It gains nothing with 8 sequences.
MANY_SEQUENCES = 16
# Of both weights, which a second cache holds: 512 hidden and 16 sequences took an Intel Xeon 29 ms so, for 21.
WEIGHT_BYTES = 1 << 20
LINE = 64  # bytes of the cache, which words that threads meet at begin with

Spans = list[tuple[int, int]]  # the first row of each step, and how many rows it has
Several = tuple[Tensor, ...]


class Kind(NamedTuple):
    """A kind of recurrent layer."""

    gates: int  # parts of a row of the weights
    forward: Any
    backward: Any
    has_cells: bool = False
    rectifies: bool = False


KINDS = {
    "lstm": Kind(4, kernels.lstm, kernels.lstm_backward, has_cells=True),
    "gru": Kind(3, kernels.gru, kernels.gru_backward),
    "rnn_tanh": Kind(1, kernels.rnn, kernels.rnn_backward),
    "rnn_relu": Kind(1, kernels.rnn, kernels.rnn_backward, rectifies=True),
}


# --------------------------------------------------------------------------- on kernels


class PackedLayer(NamedTuple):
    """The weights and the bias of a layer in one tensor, as `pack_layer` makes it for steps."""

    panels: Tensor
    inputs: int
    beside: int  # elements from one panel of the inputs' weight to the next
    has_bias: bool


def panel_of(kind: dtypes.dtype) -> int:
    """The columns of a panel of a weight that rows are multiplied with."""
    columns: int = kernels.PANEL_BYTES // kind.itemsize
    return columns


def apart_in(depth: int, panel: int, kind: dtypes.dtype) -> int:
    """Elements from a panel to the next: packing writes whole squares."""
    lanes: int = kernels.VECTOR_BYTES // kind.itemsize
    return -(-depth // lanes) * lanes * panel


def pack_layer(w_ih: Tensor, w_hh: Tensor, bias: Tensor | None) -> PackedLayer:
    """Pack the weights of a layer, so that steps multiply their inputs themselves.

    The products of all inputs would go to memory and come back, 13 MB for an LSTM of 64 hidden and 64 sequences
    in 200 steps. Training keeps the gates that are made of them, and gains nothing.
    """
    kind, (columns, hidden), inputs = w_ih.dtype, w_hh.shape, w_ih.shape[1]
    panel = panel_of(kind)
    panels, apart, beside = (
        -(-columns // panel),
        *(apart_in(d, panel, kind) for d in (hidden, inputs)),
    )
    weights = w_hh.contiguous(), w_ih.contiguous()
    given = (*weights, *dense_or(weights[0], bias))
    recipe = recipe_of(
        kernels.pack_layer, tuple([t._spec for t in given]),
        [((panels * (apart + beside) + columns + panel,), kind)],
        bind={"T": kind}, n=2 * panels, grain=max(1, GRAIN // (max(hidden, inputs) * panel + 1)),
        words=(hidden, inputs, apart, beside, columns, panel, bias is not None),
    )  # fmt: skip
    return PackedLayer(launch_recipe(recipe, given), inputs, beside, bias is not None)


def launch_steps(
    kernel: Any, inputs: Sequence[Tensor], outputs: Sequence[tuple[int, ...]], steps: int,
    depth: int, columns: int, line: int, along: int, *, batch: int, hidden: int, rows: int,
    reverse: bool, sizes: Tensor | None, has_gradient: bool = False, has_bias: bool = False,
    rectifies: bool = False, saves: bool = False, packed: PackedLayer | None = None,
) -> Any:  # fmt: skip
    """Pack the weight, the second input, for products (batch, depth) by (depth, columns), and run steps.

    Columns of the weight are `line` elements apart, its lines `along`. The first result has the shape of
    the first input, and takes over its memory where nobody else looks at that. Where the weights of a layer are
    `packed` already, the first input is what they are to be multiplied with.
    """
    kind = inputs[0].dtype
    is_shared = batch == 1 and inputs[0].device is devices.CPU
    run = hidden if is_shared else columns
    panel = kernels.ROW_PANEL_BYTES // kind.itemsize if is_shared else panel_of(kind)
    panels = -(-run // panel) * (columns // run)
    apart = apart_in(depth, panel, kind)
    room = 0 if packed else panels * apart
    work, shares = max(depth * columns, 1), -(-run // panel) if is_shared else 0
    meeting = -(-(room + batch * columns) * kind.itemsize // LINE) * LINE
    packing = (kernels.pack_weight, panels, max(1, GRAIN // (depth * panel + 1)))
    running = (
        (kernel, shares, -(-kernels.SHARED * shares // work)) if is_shared
        else (kernel, batch, max(1, GRAIN // (work * steps)))
    )  # fmt: skip
    recipe = recipe_of(
        [running] if packed else [packing, running],
        tuple([t._spec for t in inputs]), [(shape, kind) for shape in outputs],
        bind={"I": dtypes.int64, "T": kind},
        words=(
            steps, rows, batch, hidden, depth, columns, line, along, panel, reverse, sizes is not None,
            has_gradient, has_bias, rectifies, saves, room, run, apart,
            shares, meeting, *(packed[1:] if packed else (0, 0, False)),
        ),
        scratch=meeting + 8 * kernels.MEETING_WORDS * (1 + shares),
    )  # fmt: skip
    recipe.over = 0 if packed else 1
    return launch_recipe(recipe, inputs)


def dense_or(other: Tensor, *given: Tensor | None) -> list[Tensor]:
    """Dense tensors, and the other one for what is not there."""
    return [other if t is None else t.contiguous() for t in given]


@operation("RecurrentBackward0", differentiable=(0, 1, 2))
def recurrent_layer(
    x: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor | None, bias_hn: Tensor | None, h0: Tensor,
    c0: Tensor | None, sizes: Tensor | None, kind: str, steps: int, reverse: bool, saves: bool,
) -> Several:  # fmt: skip
    """One layer in one direction over rows of steps that lie behind each other.

    Args:
        x: (rows, inputs).
        w_ih, w_hh: (gates, inputs) and (gates, hidden).
        bias: (gates,), the sum of both, or None.
        bias_hn: (hidden,), of a GRU, what its new state has inside of the product with the reset gate.
        h0, c0: (batch, hidden); cells only of an LSTM.
        sizes: (steps,), the rows of each step, if not all have `batch`.
        kind: one of `KINDS`.
        steps: how many there are.
        reverse: whether the last step is the first one.
        saves: whether there will be a backward.

    Returns:
        States of all steps, the last ones, the last cells, and what backward reads: the gates, the states
        before each step, and the cells there or what these states give to the new ones of a GRU. What a
        kind has not is empty.
    """
    of = KINDS[kind]
    rows, (batch, hidden) = x.shape[0], h0.shape
    saved, width = rows if saves else 0, of.gates * hidden
    packed = None
    if (
        batch >= MANY_SEQUENCES
        and not saves
        and x.shape[1]
        and x.device is devices.CPU
        and (w_ih.numel() + w_hh.numel()) * x.dtype.itemsize <= WEIGHT_BYTES
    ):
        packed = pack_layer(w_ih, w_hh, bias)
        given, weight = x.contiguous(), packed.panels
    else:
        given, weight = linear(x, w_ih, bias), w_hh.contiguous()
    extra, state, cell, counts = dense_or(weight, bias_hn, h0, c0, sizes)
    gates, *made, before, other = launch_steps(
        of.forward, (given, weight, extra, state, cell, counts),
        [
            (batch if packed else rows, width), (rows, hidden), (batch, hidden),
            (batch if of.has_cells else 0, hidden), (saved, hidden),
            (saved if of.has_cells or kind == "gru" else 0, hidden),
        ],
        steps, hidden, width, hidden, 1, batch=batch, hidden=hidden, rows=rows, reverse=reverse,
        sizes=sizes, has_bias=bias_hn is not None, rectifies=of.rectifies, saves=saves, packed=packed,
    )  # fmt: skip
    return *made, gates, before, other


@recurrent_layer.vjp
def _(  # type: ignore[no-untyped-def]
    gs, outs, x, w_ih, w_hh, bias, bias_hn, h0, c0, sizes, kind, steps, reverse, needs
):
    g, g_state, g_cell = gs[:3]
    if g_state is None:
        g_state = h0.new_zeros(h0.shape)
    if g_cell is None and c0 is not None:
        g_cell = c0.new_zeros(c0.shape)
    if modes.grad:
        spans = spans_of(h0.shape[0], steps, sizes)
        made, products, before, d_state, d_cell = back_by_steps(
            kind, g, g_state, g_cell, linear(x, w_ih, bias), w_hh, bias_hn, h0, c0, spans, reverse
        )
    else:
        before = outs[4]
        made, products, d_state, d_cell = back_by_kernel(
            kind, g, g_state, g_cell, w_hh, outs[3], before, outs[5], sizes, steps, reverse
        )
        first = 3 + (bias is not None) + (bias_hn is not None)
        rows = x.shape[0] - (0 if needs[first] else h0.shape[0])
        for counter in modes.counters:  # of products, of which this kernel has one a step
            counter.add("aten.mm", 2 * rows * w_hh.numel())
    found = [made.mm(w_ih) if needs[0] else None, made.t().mm(x), products.t().mm(before)]
    if bias is not None:
        found.append(made.sum(0))
    if bias_hn is not None:
        found.append(products[:, 2 * h0.shape[1] :].sum(0))
    found.append(d_state)
    if c0 is not None:
        found.append(d_cell)
    return (*found, *[None] * (len(needs) - len(found)))


@recurrent_layer.batched
def _(
    batch: Batch, x: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor | None, bias_hn: Tensor | None,
    h0: Tensor, c0: Tensor | None, sizes: Tensor | None, kind: str, steps: int, reverse: bool,
    saves: bool,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    if any(map(batch.has, (w_ih, w_hh, bias, bias_hn))):  # each example has its own products
        spans = spans_of(h0.shape[0], steps, sizes)
        products = linear(x, w_ih, bias)
        states, state, cell, _ = by_steps(kind, products, w_hh, bias_hn, h0, c0, spans, reverse)
        return cat(states), state, cell, None, None, None

    # Rows of examples lie beside each other, so that the first rows of a step are of the same sequences.
    def folded(t: Tensor | None) -> Any:
        return None if t is None else batch.full(t).transpose(0, 1).reshape(-1, t.shape[1])

    def unfolded(t: Tensor) -> Tensor:
        made: Tensor = batch.wrapped(t.view(-1, batch.size, t.shape[1]).transpose(0, 1))
        return made

    counts = None if sizes is None else sizes * batch.size
    made = recurrent_layer(
        folded(x), w_ih, w_hh, bias, bias_hn, folded(h0), folded(c0), counts, kind, steps, reverse, saves
    )  # fmt: skip
    return (*map(unfolded, made[:3]), None, None, None)


def back_by_kernel(
    kind: str, g: Tensor | None, g_state: Tensor, g_cell: Tensor | None, w_hh: Tensor, gates: Tensor,
    before: Tensor, other: Tensor, sizes: Tensor | None, steps: int, reverse: bool,
) -> Several:  # fmt: skip
    """The gradients of the products with the inputs and with the states, of the first state and cell."""
    of, is_gru = KINDS[kind], kind == "gru"
    (batch, hidden), rows = g_state.shape, before.shape[0]
    width, weight = of.gates * hidden, w_hh.contiguous()
    upper, state, cell, counts = dense_or(weight, g, g_state, g_cell, sizes)
    made, products, d_state, d_cell = launch_steps(
        of.backward, (gates, weight, before, other, upper, state, cell, counts),
        [
            (rows, width), (rows if is_gru else 0, width), (batch, hidden),
            (0 if g_cell is None else batch, hidden),
        ],
        steps, width, hidden, 1, hidden, batch=batch, hidden=hidden, rows=rows, reverse=not reverse,
        sizes=sizes, has_gradient=g is not None, rectifies=of.rectifies,
    )  # fmt: skip
    return made, products if is_gru else made, d_state, d_cell


# --------------------------------------------------------------------------- of other ops
#
# A step gets its products with the input and with the state, what a GRU adds to the last third of these,
# the state and the cell before, and gives the next ones and what its derivative reads. The derivative
# gives the gradients of both products, what goes to the state past the second, and that of the cell.


def lstm_step(
    x: Tensor, h: Tensor, bias_hn: Tensor | None, state: Tensor, cell: Tensor | None
) -> tuple[Tensor, Tensor | None, Several]:
    """A step of an LSTM."""
    assert cell is not None
    enters, forgets, new, leaves = (x + h).chunk(4, 1)
    enters, forgets, new, leaves = enters.sigmoid(), forgets.sigmoid(), new.tanh(), leaves.sigmoid()
    after = forgets * cell + enters * new
    shown = after.tanh()
    return leaves * shown, after, (cell, enters, forgets, new, leaves, shown)


def lstm_step_back(d: Tensor, d_cell: Tensor | None, kept: Several) -> Several:
    """The derivative of `lstm_step`."""
    assert d_cell is not None
    cell, enters, forgets, new, leaves, shown = kept
    d_after = d * leaves * (1 - shown * shown) + d_cell
    parts = [
        d_after * new * (enters * (1 - enters)), d_after * cell * (forgets * (1 - forgets)),
        d_after * enters * (1 - new * new), d * shown * (leaves * (1 - leaves)),
    ]  # fmt: skip
    made = cat(parts, 1)
    return made, made, d.new_zeros(d.shape), d_after * forgets


def gru_step(
    x: Tensor, h: Tensor, bias_hn: Tensor | None, state: Tensor, cell: Tensor | None
) -> tuple[Tensor, Tensor | None, Several]:
    """A step of a GRU."""
    x_reset, x_update, x_new = x.chunk(3, 1)
    h_reset, h_update, product = h.chunk(3, 1)
    reset, update = (x_reset + h_reset).sigmoid(), (x_update + h_update).sigmoid()
    product = product if bias_hn is None else product + bias_hn
    new = (x_new + reset * product).tanh()
    return (state - new) * update + new, None, (state, reset, update, product, new)


def gru_step_back(d: Tensor, d_cell: Tensor | None, kept: Several) -> Several:
    """The derivative of `gru_step`."""
    state, reset, update, product, new = kept
    d_new = d * (1 - update) * (1 - new * new)
    d_reset = d_new * product * (reset * (1 - reset))
    d_update = d * (state - new) * (update * (1 - update))
    made = cat([d_reset, d_update, d_new], 1), cat([d_reset, d_update, d_new * reset], 1)
    return *made, d * update, d


def tanh_step(
    x: Tensor, h: Tensor, bias_hn: Tensor | None, state: Tensor, cell: Tensor | None
) -> tuple[Tensor, Tensor | None, Several]:
    """A step of an RNN with tanh."""
    new = (x + h).tanh()
    return new, None, (new,)


def tanh_step_back(d: Tensor, d_cell: Tensor | None, kept: Several) -> Several:
    """The derivative of `tanh_step`."""
    made = d * (1 - kept[0] * kept[0])
    return made, made, d.new_zeros(d.shape), d


def relu_step(
    x: Tensor, h: Tensor, bias_hn: Tensor | None, state: Tensor, cell: Tensor | None
) -> tuple[Tensor, Tensor | None, Several]:
    """A step of an RNN with ReLU."""
    new = (x + h).relu()
    return new, None, (new,)


def relu_step_back(d: Tensor, d_cell: Tensor | None, kept: Several) -> Several:
    """The derivative of `relu_step`."""
    made = d.masked_fill(kept[0] <= 0, 0)
    return made, made, d.new_zeros(d.shape), d


STEPS: dict[str, tuple[Callable[..., Any], Callable[..., Several]]] = {
    "lstm": (lstm_step, lstm_step_back),
    "gru": (gru_step, gru_step_back),
    "rnn_tanh": (tanh_step, tanh_step_back),
    "rnn_relu": (relu_step, relu_step_back),
}


def spans_of(batch: int, steps: int, sizes: Tensor | None) -> Spans:
    """Where the rows of each step are."""
    spans, first = [], 0
    for count in [batch] * steps if sizes is None else sizes.tolist():
        spans.append((first, first + count))
        first += count
    return spans


def replaced(values: Tensor, first: Tensor) -> Tensor:
    """`values` with other first rows."""
    count = first.shape[0]
    return first if count == values.shape[0] else cat([first, values[count:]])


def by_steps(
    kind: str, products: Tensor, w_hh: Tensor, bias_hn: Tensor | None, state: Tensor,
    cell: Tensor | None, spans: Spans, reverse: bool, w_hr: Tensor | None = None,
) -> tuple[list[Tensor], Tensor, Tensor | None, list[tuple[Tensor, Several]]]:  # fmt: skip
    """States of all steps, the last state and cell, and for each step the state before and what its
    derivative reads; `w_hr` projects the states of an LSTM.
    """
    step, places = STEPS[kind][0], range(len(spans))
    states: list[Any] = [None] * len(spans)
    kept: list[Any] = [None] * len(spans)
    for t in reversed(places) if reverse else places:
        first, last = spans[t]
        before = state[: last - first]
        old = None if cell is None else cell[: last - first]
        now, new, read = step(products[first:last], linear(before, w_hh), bias_hn, before, old)
        states[t] = now = now if w_hr is None else linear(now, w_hr)
        kept[t] = before, read
        state = replaced(state, now)
        cell = None if cell is None else replaced(cell, new)
    return states, state, cell, kept


def back_by_steps(
    kind: str, g: Tensor | None, g_state: Tensor, g_cell: Tensor | None, products: Tensor, w_hh: Tensor,
    bias_hn: Tensor | None, h0: Tensor, c0: Tensor | None, spans: Spans, reverse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:  # fmt: skip
    """What `back_by_kernel` gives, and the states before each step; it has derivatives itself."""
    back, places = STEPS[kind][1], range(len(spans))
    kept = by_steps(kind, products, w_hh, bias_hn, h0, c0, spans, reverse)[3]
    made: list[Any] = [None] * len(spans)
    into: list[Any] = [None] * len(spans)
    for t in places if reverse else reversed(places):
        first, last = spans[t]
        d = g_state[: last - first]
        d = d if g is None else d + g[first:last]
        d_cell = None if g_cell is None else g_cell[: last - first]
        made[t], into[t], past, d_cell = back(d, d_cell, kept[t][1])
        g_state = replaced(g_state, into[t].mm(w_hh) + past)
        g_cell = None if g_cell is None else replaced(g_cell, d_cell)
    return cat(made), cat(into), cat([before for before, _ in kept]), g_state, g_cell


# --------------------------------------------------------------------------- layers


def with_zeros(bias: Tensor, hidden: int) -> Tensor:
    """The bias of a GRU's state without its last third, which a product comes before."""
    return cat([bias[: 2 * hidden], bias.new_zeros(hidden)])


def one_direction(
    kind: str, x: Tensor, weights: Sequence[Tensor], has_biases: bool, h0: Tensor, c0: Tensor | None,
    sizes: Tensor | None, steps: int, reverse: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:  # fmt: skip
    """A layer in one direction over rows of steps: states of all steps, the last state and cell."""
    w_ih, w_hh, *others = weights
    bias = bias_hn = None
    w_hr = others[-1] if len(others) % 2 else None
    if has_biases:
        bias, b_hh = others[:2]
        if kind == "gru":
            hidden = w_hh.shape[1]
            bias_hn, b_hh = b_hh[2 * hidden :], with_zeros(b_hh, hidden)
        bias = bias + b_hh
    if w_hr is not None:
        spans = spans_of(h0.shape[0], steps, sizes)
        products = linear(x, w_ih, bias)
        states, state, cell, _ = by_steps(
            kind, products, w_hh, bias_hn, h0, c0, spans, reverse, w_hr
        )
        return cat(states), state, cell
    operands = (x, w_ih, w_hh, bias, bias_hn, h0, c0)
    saves = any(t is not None and is_differentiated(t) for t in operands)
    out, state, cell, *_ = recurrent_layer(*operands, sizes, kind, steps, reverse, saves)
    return out, state, None if c0 is None else cell


def check_operands(
    kind: str, x: Tensor, weights: Sequence[Tensor], has_biases: bool, batch: int, h: Tensor,
    c: Tensor | None,
) -> None:  # fmt: skip
    """Shapes and dtypes of a layer's weights and states have to fit: kernels do not look at them.

    Raises:
        RuntimeError: if they do not.
    """
    gates, count = KINDS[kind].gates, 4 if has_biases else 2
    is_projected = len(weights) == count + 1 and kind == "lstm"
    if len(weights) != count + is_projected:
        raise RuntimeError(
            f"{kind}: expected {count} weights and biases of a layer, got {len(weights)}"
        )
    states = weights[1].shape[-1]
    hidden = weights[-1].shape[-1] if is_projected else states
    rows = gates * hidden
    shapes = [(rows, x.shape[-1]), (rows, states), *[(rows,)] * (count - 2)]
    shapes += [(states, hidden)] * is_projected
    wanted = [*zip(weights, shapes, strict=True), (h, (batch, states))]
    wanted += [] if c is None else [(c, (batch, hidden))]
    for t, shape in wanted:
        if t.shape != shape:
            raise RuntimeError(
                f"{kind}: expected a weight or state of size {list(shape)}, got {list(t.shape)}"
            )
        if t is h and t.dtype is not weights[1].dtype:
            raise RuntimeError(
                f"mat1 and mat2 must have the same dtype, but got {t.dtype.legacy} "
                f"and {weights[1].dtype.legacy}"
            )
        if t.dtype is not x.dtype or not t.dtype.is_floating_point:
            raise RuntimeError(f"expected scalar type {x.dtype.legacy} but found {t.dtype.legacy}")


def check_sizes(rows: int, batch: int, sizes: Tensor) -> None:
    """The rows of each step of packed sequences have to fit each other, the data and the states."""
    counts = sizes.tolist()
    if counts[:1] != [batch] or counts != sorted(counts, reverse=True) or counts[-1] < 1:
        raise RuntimeError(
            f"batch_sizes of packed sequences begin with the size of the batch, here {batch}, never grow, "
            f"and are above 0, but got {counts}"
        )
    if sum(counts) != rows:
        raise RuntimeError(
            f"expected data of {sum(counts)} rows for batch_sizes {counts}, but got {rows}"
        )


def layers(
    kind: str, input: Tensor, sizes: Tensor | None, h: Tensor, c: Tensor | None,
    params: Sequence[Tensor], has_biases: bool, num_layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:  # fmt: skip
    """All layers: states of the last one at all steps, the last states and cells of all.

    Args:
        input: (steps, batch, inputs), or (batch, steps, inputs) if `batch_first`; with `sizes`, the
            rows of each step, (rows, inputs).
        h, c: (layers * directions, batch, hidden); cells only of an LSTM.
        params: of each layer and direction the weights, biases and the projection, where there are.
        dropout: what is dropped of the results of all layers but the last one, if `train`.
    """
    if sizes is None:
        x = input.transpose(0, 1) if batch_first else input
        steps, batch = x.shape[:2]
        if steps == 0:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        x = x.reshape(steps * batch, x.shape[2])
    else:
        x, steps, batch = input, sizes.shape[0], h.shape[1]
        check_sizes(x.shape[0], batch, sizes)
    directions = 2 if bidirectional else 1
    count = num_layers * directions
    each = len(params) // count
    if len(params) % count or any(t is not None and t.shape[0] != count for t in (h, c)):
        raise RuntimeError(
            f"{kind}: expected parameters and states of {count} layers and directions, got "
            f"{len(params)} parameters and states of {h.shape[0]}"
        )
    states: list[Tensor] = []
    cells: list[Any] = []
    for layer in range(num_layers):
        made = []
        for place in range(layer * directions, (layer + 1) * directions):
            weights = params[place * each : (place + 1) * each]
            check_operands(
                kind, x, weights, has_biases, batch, h[place], None if c is None else c[place]
            )
            out, state, cell = one_direction(
                kind, x, weights, has_biases, h[place], None if c is None else c[place], sizes, steps,
                bool(place % directions),
            )  # fmt: skip
            made.append(out)
            states.append(state)
            cells.append(cell)
        x = made[0] if directions == 1 else cat(made, 1)
        if dropout and train and layer < num_layers - 1:
            x = drop_out(x, dropout, True)
    if sizes is None:
        x = x.view(steps, batch, x.shape[1])
        x = as_own(x.transpose(0, 1) if batch_first else x)
    return x, stack(states), None if c is None else stack(cells)


def overloaded(kind: str, args: tuple[Any, ...], named: dict[str, Any]) -> Several:
    """Call `layers` with arguments for sequences of one length, or packed ones: `batch_sizes` come second."""
    is_packed = "batch_sizes" in named or (
        len(args) > 2 and isinstance(args[2 if kind != "lstm" else 1], Tensor)
    )
    names = ["hx", "params", "has_biases", "num_layers", "dropout", "train", "bidirectional"]
    names = ["data", "batch_sizes", *names] if is_packed else ["input", *names, "batch_first"]
    given = {**dict(zip(names, args, strict=False)), **named}
    if len(args) > len(names) or given.keys() != {*names}:
        raise TypeError(f"{kind}() takes the arguments {', '.join(names)}")
    hx = given["hx"]
    h, c = hx if kind == "lstm" else (hx, None)
    taken = (
        kind, given["data" if is_packed else "input"], given.get("batch_sizes"), h, c,
        *(given[name] for name in names[3 if is_packed else 2 :]),
    )  # fmt: skip
    try:
        out, state, cell = layers(*taken)
    except Exception:
        wrong_types.tell(
            layers, kind, taken, {}, is_method=True
        )  # `kind` is none of the user's arguments
        raise
    return (out, state) if cell is None else (out, state, cell)


@export
def lstm(*args: Any, **kwargs: Any) -> Several:
    """The layers of `nn.LSTM` with all arguments given.

    Args: `(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)`, or
    for packed sequences `(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train,
    bidirectional)`; `hx` is a pair. See `nn.LSTM` for shapes and results.

    Returns:
        The states of the last layer at all steps, the last states and the last cells. Differentiable
        in all tensors, any number of times.

    Example:
        >>> x, h, c = adjit.ones(3, 2, 1), adjit.zeros(1, 2, 1), adjit.zeros(1, 2, 1)
        >>> params = [adjit.ones(4, 1), adjit.ones(4, 1)]
        >>> adjit.lstm(x, (h, c), params, False, 1, 0.0, False, False, False)[0][:, 0, 0]
        tensor([0.3696, 0.6505, 0.7888])
    """
    return overloaded("lstm", args, kwargs)


@export
def gru(*args: Any, **kwargs: Any) -> Several:
    """The layers of `nn.GRU` with all arguments given, as `lstm` gets them; `hx` is one tensor.

    Example:
        >>> x, h = adjit.ones(3, 2, 1), adjit.zeros(1, 2, 1)
        >>> params = [adjit.ones(3, 1), adjit.ones(3, 1)]
        >>> adjit.gru(x, h, params, False, 1, 0.0, False, False, False)[0][:, 0, 0]
        tensor([0.2048, 0.3468, 0.4517])
    """
    return overloaded("gru", args, kwargs)


@export
def rnn_tanh(*args: Any, **kwargs: Any) -> Several:
    """The layers of `nn.RNN` with all arguments given, as `lstm` gets them; `hx` is one tensor.

    Example:
        >>> x, h = adjit.ones(3, 2, 1), adjit.zeros(1, 2, 1)
        >>> params = [adjit.ones(1, 1), adjit.ones(1, 1)]
        >>> adjit.rnn_tanh(x, h, params, False, 1, 0.0, False, False, False)[0][:, 0, 0]
        tensor([0.7616, 0.9427, 0.9597])
    """
    return overloaded("rnn_tanh", args, kwargs)


@export
def rnn_relu(*args: Any, **kwargs: Any) -> Several:
    """The layers of `nn.RNN` with ReLU and all arguments given, as `lstm` gets them; `hx` is one tensor.

    Example:
        >>> x, h = adjit.ones(3, 2, 1), adjit.zeros(1, 2, 1)
        >>> params = [adjit.ones(1, 1), adjit.ones(1, 1)]
        >>> adjit.rnn_relu(x, h, params, False, 1, 0.0, False, False, False)[0][:, 0, 0]
        tensor([1., 2., 3.])
    """
    return overloaded("rnn_relu", args, kwargs)


# --------------------------------------------------------------------------- cells


def check_cell(input: Tensor, w_ih: Tensor, w_hh: Tensor, *states: Tensor) -> None:
    """The sizes of a cell's input and states must fit its weights.

    Raises:
        RuntimeError: if they do not.
    """
    if input.shape[1] != w_ih.shape[1]:
        raise RuntimeError(
            f"input has inconsistent input_size: got {input.shape[1]} expected {w_ih.shape[1]}"
        )
    for number, t in enumerate(states):
        if t.shape[0] != input.shape[0]:
            raise RuntimeError(
                f"Input batch size {input.shape[0]} doesn't match hidden{number} batch size {t.shape[0]}"
            )
        if t.shape[1] != w_hh.shape[1]:
            raise RuntimeError(
                f"hidden{number} has inconsistent hidden_size: got {t.shape[1]}, expected {w_hh.shape[1]}"
            )


@export
def lstm_cell(
    input: Tensor, hx: Sequence[Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """One step of an LSTM: the next state and cell, as `nn.LSTMCell` computes them.

    Args:
        input: (batch, inputs), floating point.
        hx: the state and the cell, (batch, hidden).
        w_ih, w_hh: (4 * hidden, inputs) and (4 * hidden, hidden).
        b_ih, b_hh: (4 * hidden,), or None.

    Returns:
        Two tensors (batch, hidden). Differentiable in all arguments.

    Raises:
        RuntimeError: if `hx` is no pair, or sizes or dtypes do not fit.

    Example:
        >>> x, h = adjit.ones(1, 1), adjit.zeros(1, 1)
        >>> adjit.lstm_cell(x, (h, h), adjit.ones(4, 1), adjit.ones(4, 1))
        (tensor([[0.3696]]), tensor([[0.5568]]))
    """
    if len(hx) != 2:
        raise RuntimeError("lstm_cell expects two hidden states")
    check_cell(input, w_ih, w_hh, *hx)
    state, cell = hx
    products = linear(input, w_ih, b_ih), linear(state, w_hh, b_hh)
    made, after, _ = lstm_step(*products, None, state, cell)
    assert after is not None
    return made, after


def storage_of(
    step: Callable[..., Any], input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor,
    b_ih: Tensor | None, b_hh: Tensor | None,
) -> Tensor:  # fmt: skip
    """A cell that has a state alone."""
    check_cell(input, w_ih, w_hh, hx)
    made: Tensor = step(linear(input, w_ih, b_ih), linear(hx, w_hh, b_hh), None, hx, None)[0]
    return made


@export
def gru_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """One step of a GRU: the next state, as `nn.GRUCell` computes it.

    The arguments are those of `lstm_cell`, with one state and weights of 3 * hidden rows.

    Example:
        >>> adjit.gru_cell(adjit.ones(1, 1), adjit.zeros(1, 1), adjit.ones(3, 1), adjit.ones(3, 1))
        tensor([[0.2048]])
    """
    return storage_of(gru_step, input, hx, w_ih, w_hh, b_ih, b_hh)


@export
def rnn_tanh_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """One step of an RNN with tanh: the next state, as `nn.RNNCell` computes it.

    The arguments are those of `lstm_cell`, with one state and weights of `hidden` rows.

    Example:
        >>> adjit.rnn_tanh_cell(adjit.ones(1, 1), adjit.zeros(1, 1), adjit.ones(1, 1), adjit.ones(1, 1))
        tensor([[0.7616]])
    """
    return storage_of(tanh_step, input, hx, w_ih, w_hh, b_ih, b_hh)


@export
def rnn_relu_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """One step of an RNN with ReLU: the next state, as `nn.RNNCell` computes it with `nonlinearity="relu"`.

    The arguments are those of `rnn_tanh_cell`.

    Example:
        >>> adjit.rnn_relu_cell(adjit.ones(1, 1), adjit.ones(1, 1), adjit.ones(1, 1), adjit.ones(1, 1))
        tensor([[2.]])
    """
    return storage_of(relu_step, input, hx, w_ih, w_hh, b_ih, b_hh)
