"""Recurrent layers: all steps of a sequence in one kernel, forward and back.

What the inputs of all steps give to the gates is one product before; here a step adds the product of the
state and the recurrent weight, on the register tiles of `gemm_tile.py`, and applies the gates'
functions while their rows are in the cache. The weight is packed once, for all steps and threads. A
unit is a sequence of the batch: it shares nothing with its neighbours but the weight, and its bits
depend neither on them nor on threads. A sequence that is alone has its hidden elements in shares, which are
the units then: threads do some each and meet after every step (`share_out`).

Rows of step after step lie behind each other. Of packed sequences, the longest of which comes first,
step t has `sizes[t]` rows, else each has one of every sequence. Backward walks the steps the other
way; it reads what the gates were and the states before each step, which forward wrote down.

Without gradients a step multiplies its inputs, too: products of all of them would go to memory and back.

Rows of a kernel: six addresses that are read, six of results (backward has eight and four), the packed
weight, behind it from element `room` on memory for a step of a GRU, and from `WORDS` on those named in
`LAYER`. What a layer has no use for is any address. The first result may lie over what is read first:
gates over the products that they are made of, and gradients over gates. Where steps multiply their `inputs`,
these are read first, then what `pack_layer` made, and the first result has the rows of one step.
"""

import math
from functools import partial

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..language.abi import I, T, at, helper, kernel, quotient, remainder, shifted, words
from ..language.device import (
    all_threads,
    barrier,
    block,
    blocks,
    first_unit,
    on_device,
    thread,
    threads,
)
from ..language.lanes import (
    add_run,
    copy_run,
    stack,
)
from ..language.processor import VECTOR_BYTES
from ..language.sharing import increase, pause, replaced, seen, tell
from ..math.vector import INTERLEAVED as INTERLEAVED
from .gemm_tile import (
    HEIGHT,
    I64,
    ROW_WIDTH,
    SUM_DEPTH,
    WIDTH,
    TileCode,
    emit_multiply,
    emit_multiply_row,
    emit_pack,
)

LAYER = (
    "steps", "rows", "batch", "hidden", "depth", "columns", "line", "along", "panel", "reverse",
    "packed", "has_gradient", "has_bias", "rectifies", "saves", "room", "run", "apart", "shares",
    "meeting", "inputs", "beside", "has_shift",
)  # fmt: skip
(
    STEPS, ROWS, BATCH, HIDDEN, DEPTH, COLUMNS, LINE, ALONG, PANEL, REVERSE,
    PACKED, HAS_GRADIENT, HAS_BIAS, RECTIFIES, SAVES, ROOM, RUN, APART, SHARES, MEETING, INPUTS, BESIDE,
    HAS_SHIFT,
) = range(len(LAYER))  # fmt: skip
FIRST, WEIGHT, RESULT, PACKED_WEIGHT, WORDS = 0, 1, 6, 12, 13

PANEL_BYTES, ROW_PANEL_BYTES = WIDTH * VECTOR_BYTES, ROW_WIDTH * VECTOR_BYTES
ROUND = 64  # elements that loops over functions work on at once, or a multiple
BLOCK = 256  # elements of a row that are computed on the stack before they are written
SHARED = 3 << 14  # multiplications of a step and a thread that are worth a meeting, of 1 us
# Of a share, a line of the cache: how many rounds were begun, and of these by its own thread.
MEETING_WORDS = 8
GLANCES = 20  # at those who are not ready, before their shares are looked at, which holds them up
PATIENCE = 500  # looks at a share that its own thread has not begun, before another one does


# --------------------------------------------------------------------------- products


def tile_function(module, dtype, name, emit):
    """A function of `gemm_tile.py` for a dtype, in the module of the kernel that calls it."""
    code, before = TileCode(dtype.name, module), {*module.globals}
    made = module.globals.get(f"{name}_{code.suffix}")
    if made is None:
        made = emit(code)
        for new in {*module.globals} - before:
            module.globals[new].attributes.add("noinline")
    return made


def on_tiles(name, emit):
    """An intrinsic that calls a function of `gemm_tile.py` with a tuple of pointers and whole numbers."""

    def define(typingctx, arguments):
        pointers = [kind for kind in arguments if isinstance(kind, types.CPointer)]

        def codegen(context, builder, sig, args):
            parts = cgutils.unpack_tuple(builder, args[0], len(arguments))
            values = [
                builder.ptrtoint(part, I64) if kind in pointers else part
                for kind, part in zip(arguments, parts, strict=True)
            ]
            builder.call(tile_function(builder.module, pointers[0].dtype, name, emit), values)
            return context.get_dummy_value()

        return types.void(arguments), codegen

    return intrinsic(define)


multiply = on_tiles("multiply", partial(emit_multiply, layouts=(False,)))
multiply_row = on_tiles("multiply_row", emit_multiply_row)
pack = on_tiles("pack", emit_pack)


@kernel
def pack_weight(args, start, stop):
    """The weight of a layer in panels, each of columns of one run, as products read it; a unit is a panel.

    Panels are `apart` elements from each other: packing writes whole squares, and threads pack neighbours.
    """
    p = words(args)
    weight, packed, c = at(p[WEIGHT], T), at(p[PACKED_WEIGHT], T), shifted(p, WORDS)
    depth, panel, line, run = c[DEPTH], c[PANEL], c[LINE], c[RUN]
    panels = (run + panel - 1) // panel
    for unit in range(start, stop):
        first = unit % panels * panel
        count = min(panel, run - first)
        here = shifted(weight, (unit // panels * run + first) * line)
        pack((here, line, c[ALONG], count, depth, shifted(packed, unit * c[APART]), panel))
    if start == 0 and c[SHARES]:
        meeting = words(p[PACKED_WEIGHT] + c[MEETING])
        for k in range((1 + c[SHARES]) * MEETING_WORDS):
            meeting[k] = 0


@kernel
def pack_layer(args, start, stop):
    """The weights of states and of inputs in panels, and behind them the bias; a unit is a panel of one.

    Addresses: the weights of states and of inputs, dense, the bias, the result; words: the depth of both,
    `apart` of both, columns, elements of a panel, whether there is a bias.
    """
    p = words(args)
    out, columns, panel = at(p[3], T), p[8], p[9]
    panels = (columns + panel - 1) // panel
    for unit in range(start, stop):
        which = unit // panels
        first, depth, apart = (unit - which * panels) * panel, p[4 + which], p[6 + which]
        here = shifted(at(p[which], T), first * depth)
        there = shifted(out, which * panels * p[6] + (unit - which * panels) * apart)
        pack((here, depth, 1, min(panel, columns - first), depth, there, panel))
    if start == 0 and p[10]:
        copy_run(shifted(out, panels * (p[6] + p[7])), at(p[2], T), columns)


@helper
def multiply_panels(
    left, depth, packed, apart, out, out_row, columns, panel, first, last, adds, turned
):
    """out[r] = left[r] @ weight for rows from `first` to `last`, or out[r] += it if `adds`; rows of `out` are
    `out_row` apart.

    Every other step is `turned`: it begins with the panels that the one before has left in the cache.
    """
    panels = (columns + panel - 1) // panel
    for number in range(panels):
        j = panel * (panels - 1 - number if turned else number)
        for k in range(0, depth, SUM_DEPTH):
            steps = min(SUM_DEPTH, depth - k)
            for i in range(first, last, HEIGHT):
                multiply((
                    shifted(left, i * depth + k), depth, 1,
                    shifted(packed, j // panel * apart + k * panel), panel, 0,
                    shifted(out, i * out_row + j), out_row,
                    steps, min(HEIGHT, last - i), min(panel, columns - j), adds + k,
                ))  # fmt: skip


@helper
def multiply_rows(left, packed, out, out_row, c, first, last, adds, turned):
    """out[r] = left[r] @ the weight of states, or out[r] += it."""
    multiply_panels(
        left, c[DEPTH], packed, c[APART], out, out_row, c[COLUMNS], c[PANEL], first, last, adds, turned
    )  # fmt: skip


# --------------------------------------------------------------------------- steps


@helper
def rows_at(sizes, c, step):
    """The rows of a step."""
    return sizes[step] if c[PACKED] else c[BATCH]


@helper
def begin(given, now, start, stop, count):
    """now = given for some rows of so many elements."""
    copy_run(shifted(now, start * count), shifted(given, start * count), (stop - start) * count)


@helper
def take_over(p, start, stop, width, T):
    """The first result, made what is read first for some rows of so many elements."""
    x, made = at(p[FIRST], T), at(p[RESULT], T)
    if p[FIRST] != p[RESULT]:
        copy_run(shifted(made, start * width), shifted(x, start * width), (stop - start) * width)


@helper
def weight_of(p, T):
    """The weight of states in panels: the kernel's own, or of those that `pack_layer` made."""
    return at(p[WEIGHT] if shifted(p, WORDS)[INPUTS] else p[PACKED_WEIGHT], T)


@helper
def products_of(p, row, width, T):
    """Where the products of a step go: of every step to the same place, if it makes those of its inputs."""
    return shifted(at(p[RESULT], T), 0 if shifted(p, WORDS)[INPUTS] else row * width)


@helper
def multiply_inputs(p, into, row, start, last, width, turned, T):
    """What the inputs of a step give to some of its rows: it is there already, or made for this step."""
    c = shifted(p, WORDS)
    inputs, columns, panel = c[INPUTS], c[COLUMNS], c[PANEL]
    if not inputs:
        take_over(p, row + start, row + last, width, T)
        return
    panels = (columns + panel - 1) // panel
    packed = shifted(at(p[WEIGHT], T), panels * c[APART])
    x = shifted(at(p[FIRST], T), row * inputs)
    multiply_panels(
        x, inputs, packed, c[BESIDE], into, width, columns, panel, start, last, 0, turned
    )
    if c[HAS_SHIFT]:
        bias = shifted(packed, panels * c[BESIDE])
        for r in range(start, last):
            add_run(shifted(into, r * width), bias, width, T(1))


@helper
def share_of(c, share):
    """The first element of a share of the hidden ones, and how many there are."""
    first = share * c[PANEL]
    return first, min(c[PANEL], c[HIDDEN] - first)


@helper
def row_of(c, n):
    """The row of round n of a sequence that is alone."""
    return c[STEPS] - 1 - n if c[REVERSE] else n


@helper
def multiply_share(left, p, out, share, adds, turned, T):
    """The elements of a share in each run of out = left @ weight, or of out += it if `adds`."""
    packed, c = at(p[PACKED_WEIGHT], T), shifted(p, WORDS)
    depth, panel, run, shares = c[DEPTH], c[PANEL], c[RUN], c[SHARES]
    first, count = share_of(c, share)
    runs = c[COLUMNS] // run
    for number in range(runs):
        place = runs - 1 - number if turned else number
        here = shifted(packed, (place * shares + share) * c[APART])
        there = shifted(out, place * run + first)
        for k in range(0, depth, SUM_DEPTH):
            steps = min(SUM_DEPTH, depth - k)
            multiply_row((
                shifted(left, k), shifted(here, k * panel), panel, there, steps, count, adds + k,
            ))  # fmt: skip


@helper
def begins(meeting, share, n):
    """Whether this thread is the one to do a share in round n."""
    return replaced(meeting + 8 * MEETING_WORDS * (1 + share), n, n + 1)


@helper
def share_out(do, sigmoid, tanh, rounds, p, start, stop, T):
    """All rounds of a sequence that is alone, whose shares of hidden elements have a thread each.

    `do(sigmoid, tanh, p, n, share, T)` does a share in round n, when all are through with round n - 1. Threads
    that nobody sees (asleep, or taken away by the system) are not waited for: others do their shares. So
    one thread comes to the end, too, and weights stay in the cache of the same processor otherwise.
    """
    shares = shifted(p, WORDS)[SHARES]
    if stop - start == shares:
        for n in range(rounds):
            for number in range(shares):
                do(sigmoid, tanh, p, n, shares - 1 - number if n & 1 else number, T)
        return
    meeting = p[PACKED_WEIGHT] + shifted(p, WORDS)[MEETING]
    n = seen(meeting) // shares
    while n < rounds:
        done = 0
        for number in range(stop - start):
            share = stop - 1 - number if n & 1 else start + number
            if begins(meeting, share, n):
                tell(meeting + 8 * MEETING_WORDS * (1 + share) + 8, n + 1)
                do(sigmoid, tanh, p, n, share, T)
                done += 1
        increase(meeting, done)
        looks = 0
        while seen(meeting) < (n + 1) * shares:
            looks += 1
            pause()
            for share in range(shares if looks > GLANCES else 0):
                word = meeting + 8 * MEETING_WORDS * (1 + share)
                is_late = seen(word) == n and (looks > PATIENCE or seen(word + 8) < n)
                if is_late and begins(meeting, share, n):
                    do(sigmoid, tanh, p, n, share, T)
                    increase(meeting, 1)
        n = seen(meeting) // shares


@helper
def enter(p, n, share, T):
    """What a share of a step begins with: its row of states, with those before it, where these are whole,
    and what the kernel was given of the first result.
    """
    first_state, out, before = at(p[3], T), at(p[7], T), at(p[10], T)
    c = shifted(p, WORDS)
    size, row, (first, count) = c[HIDDEN], row_of(c, n), share_of(c, share)
    old = first_state
    if n > 0:
        old = shifted(out, (row + 1 if c[REVERSE] else row - 1) * size)
    now = shifted(out, row * size + first)
    copy_run(now, shifted(old, first), count)
    if c[SAVES]:
        copy_run(shifted(before, row * size + first), now, count)
    x, made = at(p[FIRST], T), at(p[RESULT], T)
    if p[FIRST] != p[RESULT]:
        for place in range(row * c[COLUMNS] + first, (row + 1) * c[COLUMNS], c[RUN]):
            copy_run(shifted(made, place), shifted(x, place), count)
    return old, now


@helper
def leave(p, n, share, now, T):
    """The last state, after the last step."""
    c = shifted(p, WORDS)
    if n == c[STEPS] - 1:
        first, count = share_of(c, share)
        copy_run(shifted(at(p[8], T), first), now, count)


@helper
def rnn_run(tanh, c, made, count, T):
    """made = tanh or ReLU of made."""
    if c[RECTIFIES]:
        for j in range(count):
            made[j] = T(0) if made[j] < T(0) else made[j]
    else:
        for j in range(count):
            made[j] = tanh(made[j])


@helper
def rnn_share(sigmoid, tanh, p, n, share, T):
    """A share of a step of an RNN."""
    c = shifted(p, WORDS)
    size, row, (first, count) = c[HIDDEN], row_of(c, n), share_of(c, share)
    old, now = enter(p, n, share, T)
    gates = shifted(at(p[6], T), row * size)
    multiply_share(old, p, gates, share, 1, n & 1, T)
    made = shifted(gates, first)
    rnn_run(tanh, c, made, count, T)
    copy_run(now, made, count)
    leave(p, n, share, now, T)


@helper
def lstm_share(sigmoid, tanh, p, n, share, T):
    """A share of a step of an LSTM."""
    c = shifted(p, WORDS)
    size, row, (first, count) = c[HIDDEN], row_of(c, n), share_of(c, share)
    old, now = enter(p, n, share, T)
    gates, cell = shifted(at(p[6], T), row * 4 * size), shifted(at(p[9], T), first)
    if n == 0:
        copy_run(cell, shifted(at(p[4], T), first), count)
    if c[SAVES]:
        copy_run(shifted(at(p[11], T), row * size + first), cell, count)
    multiply_share(old, p, gates, share, 1, n & 1, T)
    lstm_row(sigmoid, tanh, shifted(gates, first), now, cell, count, size, T)
    leave(p, n, share, now, T)


@helper
def gru_share(sigmoid, tanh, p, n, share, T):
    """A share of a step of a GRU."""
    c = shifted(p, WORDS)
    size, row, (first, count) = c[HIDDEN], row_of(c, n), share_of(c, share)
    old, now = enter(p, n, share, T)
    gates = shifted(at(p[6], T), row * 3 * size)
    products = shifted(at(p[PACKED_WEIGHT], T), c[ROOM])
    multiply_share(old, p, products, share, 0, n & 1, T)
    product = shifted(products, first)
    if c[HAS_BIAS]:
        add_run(shifted(product, 2 * size), shifted(at(p[2], T), first), count, T(1))
    if c[SAVES]:
        copy_run(shifted(at(p[11], T), row * size + first), shifted(product, 2 * size), count)
    gru_row(sigmoid, tanh, shifted(gates, first), product, now, count, size, T)
    leave(p, n, share, now, T)


@kernel
def rnn(args, start, stop):
    """out = tanh or ReLU of x + state @ weight, which is the next state; a unit is a sequence."""
    p = words(args)
    if shifted(p, WORDS)[SHARES]:
        share_out(rnn_share, math.sigmoid, math.tanh, shifted(p, WORDS)[STEPS], p, start, stop, T)
        return
    first_state, sizes = at(p[3], T), at(p[5], I)
    out, state, before = at(p[7], T), at(p[8], T), at(p[10], T)
    packed, c = weight_of(p, T), shifted(p, WORDS)
    steps, size, reverse = c[STEPS], c[HIDDEN], c[REVERSE]
    begin(first_state, state, start, stop, size)
    row = c[ROWS] if reverse else 0
    for n in range(steps):
        count = rows_at(sizes, c, steps - 1 - n if reverse else n)
        row -= count if reverse else 0
        last = min(stop, count)
        if start < last:
            many, here = (last - start) * size, (row + start) * size
            now = shifted(state, start * size)
            if c[SAVES]:
                copy_run(shifted(before, here), now, many)
            into = products_of(p, row, size, T)
            multiply_inputs(p, into, row, start, last, size, n & 1, T)
            multiply_rows(state, packed, into, size, c, start, last, 1, n & 1)
            made = shifted(into, start * size)
            rnn_run(math.tanh, c, made, many, T)
            copy_run(now, made, many)
            copy_run(shifted(out, here), made, many)
        row += 0 if reverse else count


@helper
def apply(function, x, made, count, T):
    """x[:count] = function(x[:count]), the end by way of memory on the stack that a whole round fits into.

    A vector that is read soon after two shorter ones were written there would wait for them: what is not the
    end stays where it is.
    """
    whole = count // ROUND * ROUND
    for j in range(whole):
        x[j] = function(x[j])
    if whole < count:
        end = shifted(x, whole)
        copy_run(made, end, count - whole)
        for j in range(ROUND):
            made[j] = function(made[j])
        copy_run(end, made, count - whole)


@helper
def lstm_row(sigmoid, tanh, gates, state, cell, count, size, T):
    """The gates of so many elements of a row from what is in them, and the next cell and state."""
    made = stack(T, ROUND)
    if count == size:
        apply(sigmoid, gates, made, 2 * size, T)
    else:
        apply(sigmoid, gates, made, count, T)
        apply(sigmoid, shifted(gates, size), made, count, T)
    apply(tanh, shifted(gates, 2 * size), made, count, T)
    apply(sigmoid, shifted(gates, 3 * size), made, count, T)
    for j in range(count):
        cell[j] = gates[size + j] * cell[j] + gates[j] * gates[2 * size + j]
    for j in range(count):
        state[j] = cell[j]
    apply(tanh, state, made, count, T)
    for j in range(count):
        state[j] *= gates[3 * size + j]


@kernel
def lstm(args, start, stop):
    """Gates, cells and states of all steps; a unit is a sequence."""
    p = words(args)
    if shifted(p, WORDS)[SHARES]:
        share_out(lstm_share, math.sigmoid, math.tanh, shifted(p, WORDS)[STEPS], p, start, stop, T)
        return
    first_state, first_cell, sizes = at(p[3], T), at(p[4], T), at(p[5], I)
    out, state, cell = at(p[7], T), at(p[8], T), at(p[9], T)
    before, before_cell = at(p[10], T), at(p[11], T)
    packed, c = weight_of(p, T), shifted(p, WORDS)
    steps, size, reverse = c[STEPS], c[HIDDEN], c[REVERSE]
    begin(first_state, state, start, stop, size)
    begin(first_cell, cell, start, stop, size)
    row = c[ROWS] if reverse else 0
    for n in range(steps):
        count = rows_at(sizes, c, steps - 1 - n if reverse else n)
        row -= count if reverse else 0
        last = min(stop, count)
        if start < last:
            many, here = (last - start) * size, (row + start) * size
            if c[SAVES]:
                copy_run(shifted(before, here), shifted(state, start * size), many)
                copy_run(shifted(before_cell, here), shifted(cell, start * size), many)
            into = products_of(p, row, 4 * size, T)
            multiply_inputs(p, into, row, start, last, 4 * size, n & 1, T)
            multiply_rows(state, packed, into, 4 * size, c, start, last, 1, n & 1)
            for r in range(start, last):
                now = shifted(state, r * size)
                gate = shifted(into, r * 4 * size)
                old = shifted(cell, r * size)
                lstm_row(math.sigmoid, math.tanh, gate, now, old, size, size, T)
            copy_run(shifted(out, here), shifted(state, start * size), many)
        row += 0 if reverse else count


@helper
def gru_row(sigmoid, tanh, gates, products, state, count, size, T):
    """The gates (reset, update, new) of so many elements of a row from what the input gives to them, and
    the next state."""
    made = stack(T, ROUND)
    for first in range(0, 2 * size, size):
        gate, product = shifted(gates, first), shifted(products, first)
        for j in range(count):
            gate[j] += product[j]
        apply(sigmoid, gate, made, count, T)
    for j in range(count):
        gates[2 * size + j] += gates[j] * products[2 * size + j]
    apply(tanh, shifted(gates, 2 * size), made, count, T)
    for j in range(count):
        new = gates[2 * size + j]
        state[j] = (state[j] - new) * gates[size + j] + new


@kernel
def gru(args, start, stop):
    """Gates and states of all steps, and what the states give to the new ones; a unit is a sequence."""
    p = words(args)
    if shifted(p, WORDS)[SHARES]:
        share_out(gru_share, math.sigmoid, math.tanh, shifted(p, WORDS)[STEPS], p, start, stop, T)
        return
    bias, first_state, sizes = at(p[2], T), at(p[3], T), at(p[5], I)
    out, state, before, kept = at(p[7], T), at(p[8], T), at(p[10], T), at(p[11], T)
    packed, c = weight_of(p, T), shifted(p, WORDS)
    steps, size, reverse = c[STEPS], c[HIDDEN], c[REVERSE]
    products = shifted(at(p[PACKED_WEIGHT], T), c[ROOM])
    begin(first_state, state, start, stop, size)
    row = c[ROWS] if reverse else 0
    for n in range(steps):
        count = rows_at(sizes, c, steps - 1 - n if reverse else n)
        row -= count if reverse else 0
        last = min(stop, count)
        if start < last:
            many, here = (last - start) * size, (row + start) * size
            if c[SAVES]:
                copy_run(shifted(before, here), shifted(state, start * size), many)
            into = products_of(p, row, 3 * size, T)
            multiply_inputs(p, into, row, start, last, 3 * size, n & 1, T)
            multiply_rows(state, packed, products, 3 * size, c, start, last, 0, n & 1)
            for r in range(start, last):
                gate, product = shifted(into, r * 3 * size), shifted(products, r * 3 * size)
                if c[HAS_BIAS]:
                    add_run(shifted(product, 2 * size), bias, size, T(1))
                if c[SAVES]:
                    copy_run(shifted(kept, (row + r) * size), shifted(product, 2 * size), size)
                now = shifted(state, r * size)
                gru_row(math.sigmoid, math.tanh, gate, product, now, size, size, T)
            copy_run(shifted(out, here), shifted(state, start * size), many)
        row += 0 if reverse else count


# --------------------------------------------------------------------------- steps back
#
# `reverse` is the direction of these walks here, and `state` what is known so far of the gradient of the
# state behind a step, then of that before it.


@helper
def enter_back(p, n, share, adds, gates, T):
    """What a share of a step back begins with: the gradient of its states behind the step.

    The first round has what was given, the others the product of the `gates`' gradients in the one before.
    """
    c = shifted(p, WORDS)
    size, (first, count) = c[HIDDEN], share_of(c, share)
    states = at(p[10], T)
    state = shifted(states, first)
    if n == 0:
        copy_run(state, shifted(at(p[5], T), first), count)
    else:
        left = shifted(gates, row_of(c, n - 1) * c[DEPTH])
        multiply_share(left, p, states, share, adds, n & 1, T)
    if n < c[STEPS] and c[HAS_GRADIENT]:
        add_run(state, shifted(at(p[4], T), row_of(c, n) * size + first), count, T(1))
    return state


@helper
def rnn_run_back(c, state, value, made, count, T):
    """made = what goes to the products, of the gradient of states and their values."""
    if c[RECTIFIES]:
        for j in range(count):
            made[j] = state[j] if value[j] > T(0) else T(0)
    else:
        for j in range(count):
            made[j] = state[j] * (T(1) - value[j] * value[j])


@helper
def rnn_share_back(sigmoid, tanh, p, n, share, T):
    """A share of a step back through an RNN, after the product of the step before."""
    c = shifted(p, WORDS)
    size, (first, count) = c[HIDDEN], share_of(c, share)
    state = enter_back(p, n, share, 0, at(p[8], T), T)
    if n < c[STEPS]:
        here = row_of(c, n) * size + first
        made, value = shifted(at(p[8], T), here), shifted(at(p[0], T), here)
        rnn_run_back(c, state, value, made, count, T)


@kernel
def rnn_backward(args, start, stop):
    """The gradients of x and of the first state; a unit is a sequence."""
    p = words(args)
    if shifted(p, WORDS)[SHARES]:
        rounds = shifted(p, WORDS)[STEPS] + 1
        share_out(rnn_share_back, math.sigmoid, math.tanh, rounds, p, start, stop, T)
        return
    out, g, g_state, sizes = at(p[0], T), at(p[4], T), at(p[5], T), at(p[7], I)
    gx, state = at(p[8], T), at(p[10], T)
    packed, c = at(p[PACKED_WEIGHT], T), shifted(p, WORDS)
    steps, size, reverse = c[STEPS], c[HIDDEN], c[REVERSE]
    begin(g_state, state, start, stop, size)
    row = c[ROWS] if reverse else 0
    for n in range(steps):
        count = rows_at(sizes, c, steps - 1 - n if reverse else n)
        row -= count if reverse else 0
        last = min(stop, count)
        if start < last:
            many, here = (last - start) * size, (row + start) * size
            now, made, g_here = shifted(state, start * size), shifted(gx, here), shifted(g, here)
            value = shifted(out, here)
            if c[HAS_GRADIENT]:
                add_run(now, g_here, many, T(1))
            rnn_run_back(c, now, value, made, many, T)
            multiply_rows(shifted(gx, row * size), packed, state, size, c, start, last, 0, n & 1)
        row += 0 if reverse else count


@helper
def lstm_point_back(g, g_cell, enters, forgets, new, leaves, old, shown, T):
    """The gradients of one element of what the gates are made from, and of the cell before."""
    d = g * leaves * (T(1) - shown * shown) + g_cell
    return (
        d * new * (enters * (T(1) - enters)),
        d * old * (forgets * (T(1) - forgets)),
        d * enters * (T(1) - new * new),
        g * shown * (leaves * (T(1) - leaves)),
        d * forgets,
    )


@helper
def lstm_row_back(tanh, gates, before, state, cell, gx, number, size, T):
    """The gradients of what so many elements of a row's gates are made from, and that of the cell before."""
    d_in, d_forget, d_new, d_out, d_cell = (
        stack(T, BLOCK), stack(T, BLOCK), stack(T, BLOCK), stack(T, BLOCK), stack(T, BLOCK)
    )  # fmt: skip
    for first in range(0, number, BLOCK):
        count = min(BLOCK, number - first)
        gate, old, g, g_cell = (
            shifted(gates, first), shifted(before, first), shifted(state, first), shifted(cell, first)
        )  # fmt: skip
        for j in range(count):
            enters, forgets, new, leaves = (
                gate[j],
                gate[size + j],
                gate[2 * size + j],
                gate[3 * size + j],
            )
            d_in[j], d_forget[j], d_new[j], d_out[j], d_cell[j] = lstm_point_back(
                g[j], g_cell[j], enters, forgets, new, leaves, old[j],
                tanh(forgets * old[j] + enters * new), T,
            )  # fmt: skip
        made = shifted(gx, first)
        copy_run(made, d_in, count)
        copy_run(shifted(made, size), d_forget, count)
        copy_run(shifted(made, 2 * size), d_new, count)
        copy_run(shifted(made, 3 * size), d_out, count)
        copy_run(g_cell, d_cell, count)


@helper
def lstm_share_back(sigmoid, tanh, p, n, share, T):
    """A share of a step back through an LSTM, after the product of the step before."""
    c = shifted(p, WORDS)
    size, (first, count) = c[HIDDEN], share_of(c, share)
    state, cell = enter_back(p, n, share, 0, at(p[8], T), T), shifted(at(p[11], T), first)
    if n == 0:
        copy_run(cell, shifted(at(p[6], T), first), count)
    if n < c[STEPS]:
        row = row_of(c, n)
        wide = row * 4 * size + first
        gate, made = shifted(at(p[0], T), wide), shifted(at(p[8], T), wide)
        old = shifted(at(p[3], T), row * size + first)
        lstm_row_back(tanh, gate, old, state, cell, made, count, size, T)


@kernel
def lstm_backward(args, start, stop):
    """The gradients of x, of the first state and the first cell; a unit is a sequence."""
    p = words(args)
    if shifted(p, WORDS)[SHARES]:
        rounds = shifted(p, WORDS)[STEPS] + 1
        share_out(lstm_share_back, math.sigmoid, math.tanh, rounds, p, start, stop, T)
        return
    gates, before_cell, g, sizes = at(p[0], T), at(p[3], T), at(p[4], T), at(p[7], I)
    gx, state, cell = at(p[8], T), at(p[10], T), at(p[11], T)
    packed, c = at(p[PACKED_WEIGHT], T), shifted(p, WORDS)
    steps, size, reverse = c[STEPS], c[HIDDEN], c[REVERSE]
    begin(at(p[5], T), state, start, stop, size)
    begin(at(p[6], T), cell, start, stop, size)
    row = c[ROWS] if reverse else 0
    for n in range(steps):
        count = rows_at(sizes, c, steps - 1 - n if reverse else n)
        row -= count if reverse else 0
        last = min(stop, count)
        if start < last:
            many, here = (last - start) * size, (row + start) * size
            if c[HAS_GRADIENT]:
                add_run(shifted(state, start * size), shifted(g, here), many, T(1))
            for r in range(start, last):
                gate, made = shifted(gates, (row + r) * 4 * size), shifted(gx, (row + r) * 4 * size)
                old, now = shifted(before_cell, (row + r) * size), shifted(state, r * size)
                past = shifted(cell, r * size)
                lstm_row_back(math.tanh, gate, old, now, past, made, size, size, T)
            made = shifted(gx, row * 4 * size)
            multiply_rows(made, packed, state, size, c, start, last, 0, n & 1)
        row += 0 if reverse else count


@helper
def gru_point_back(g, reset, update, product, new, old, T):
    """The gradients of one element of what the gates are made from: by the input three, by the state the
    third again; and of the state past them."""
    d = g * (T(1) - update) * (T(1) - new * new)
    return (
        d * product * (reset * (T(1) - reset)),
        g * (old - new) * (update * (T(1) - update)),
        d,
        d * reset,
        g * update,
    )


@helper
def gru_row_back(gates, before, kept, state, gx, products, number, size, T):
    """The gradients of what so many elements of a row's gates are made from: by the input, by the state,
    and past them."""
    d_reset, d_update, d_new, d_product, d_state = (
        stack(T, BLOCK), stack(T, BLOCK), stack(T, BLOCK), stack(T, BLOCK), stack(T, BLOCK)
    )  # fmt: skip
    for first in range(0, number, BLOCK):
        count = min(BLOCK, number - first)
        gate, old, g = shifted(gates, first), shifted(before, first), shifted(state, first)
        told = shifted(kept, first)
        for j in range(count):
            reset, update, new = gate[j], gate[size + j], gate[2 * size + j]
            d_reset[j], d_update[j], d_new[j], d_product[j], d_state[j] = gru_point_back(
                g[j], reset, update, told[j], new, old[j], T
            )
        made, product = shifted(gx, first), shifted(products, first)
        copy_run(made, d_reset, count)
        copy_run(shifted(made, size), d_update, count)
        copy_run(shifted(made, 2 * size), d_new, count)
        copy_run(product, d_reset, count)
        copy_run(shifted(product, size), d_update, count)
        copy_run(shifted(product, 2 * size), d_product, count)
        copy_run(g, d_state, count)


@helper
def gru_share_back(sigmoid, tanh, p, n, share, T):
    """A share of a step back through a GRU, after the product of the step before."""
    c = shifted(p, WORDS)
    size, (first, count) = c[HIDDEN], share_of(c, share)
    state = enter_back(p, n, share, 1, at(p[9], T), T)
    if n < c[STEPS]:
        row = row_of(c, n)
        wide, here = row * 3 * size + first, row * size + first
        gate, made, product = (
            shifted(at(p[0], T), wide),
            shifted(at(p[8], T), wide),
            shifted(at(p[9], T), wide),
        )
        old, told = shifted(at(p[2], T), here), shifted(at(p[3], T), here)
        gru_row_back(gate, old, told, state, made, product, count, size, T)


@kernel
def gru_backward(args, start, stop):
    """The gradients of x, of the products with the state, and of the first state; a unit is a sequence."""
    p = words(args)
    if shifted(p, WORDS)[SHARES]:
        rounds = shifted(p, WORDS)[STEPS] + 1
        share_out(gru_share_back, math.sigmoid, math.tanh, rounds, p, start, stop, T)
        return
    gates, before, kept, g = at(p[0], T), at(p[2], T), at(p[3], T), at(p[4], T)
    sizes, gx, products, state = at(p[7], I), at(p[8], T), at(p[9], T), at(p[10], T)
    packed, c = at(p[PACKED_WEIGHT], T), shifted(p, WORDS)
    steps, size, reverse = c[STEPS], c[HIDDEN], c[REVERSE]
    begin(at(p[5], T), state, start, stop, size)
    row = c[ROWS] if reverse else 0
    for n in range(steps):
        count = rows_at(sizes, c, steps - 1 - n if reverse else n)
        row -= count if reverse else 0
        last = min(stop, count)
        if start < last:
            many, here = (last - start) * size, (row + start) * size
            if c[HAS_GRADIENT]:
                add_run(shifted(state, start * size), shifted(g, here), many, T(1))
            for r in range(start, last):
                i = row + r
                old, told, now = (
                    shifted(before, i * size),
                    shifted(kept, i * size),
                    shifted(state, r * size),
                )
                made, product = shifted(gx, i * 3 * size), shifted(products, i * 3 * size)
                gate = shifted(gates, i * 3 * size)
                gru_row_back(gate, old, told, now, made, product, size, size, T)
            made = shifted(products, row * 3 * size)
            multiply_rows(made, packed, state, size, c, start, last, 1, n & 1)
        row += 0 if reverse else count


# ----- CUDA -----
#
# A block goes with a sequence through all steps, its threads share out the columns of the weight. The
# weight is turned instead of packed, so that neighbours read neighbours. Sums are those of the tiles.


@on_device(pack_weight, work=lambda c: c[DEPTH] * c[COLUMNS])
def turn_weight(row, n):
    """The weight as (depth, columns)."""
    weight, turned = at(row[WEIGHT], T), at(row[PACKED_WEIGHT], T)
    columns, line, along = row[WORDS + COLUMNS], row[WORDS + LINE], row[WORDS + ALONG]
    for i in range(first_unit(), n, all_threads()):
        turned[i] = weight[remainder(i, columns) * line + quotient(i, columns) * along]


@helper
def multiply_column(left, turned, j, columns, depth, total, fma, T):
    """`total` and the product of a row with column j of the weight."""
    for first in range(0, depth, SUM_DEPTH):
        part = T(0)
        for k in range(first, min(first + SUM_DEPTH, depth)):
            part = fma(left[k], turned[k * columns + j], part)
        total = total + part
    return total


@helper
def begin_on_gpu(given, now, count):
    """now = given, by the threads of a block."""
    for j in range(thread(), count, threads()):
        now[j] = given[j]
    barrier()


@helper
def rows_before(sizes, row, step):
    """The rows of all steps before one, and its own."""
    first, count = step * row[WORDS + BATCH], row[WORDS + BATCH]
    if row[WORDS + PACKED]:
        first = 0 * count
        for t in range(step):
            first += sizes[t]
        count = sizes[step]
    return first, count


@on_device(rnn)
def rnn_by_blocks(row, n):
    """out = tanh or ReLU of x + state @ weight, which is the next state."""
    x, first_state, sizes = at(row[0], T), at(row[3], T), at(row[5], I)
    gates, out, state, before = at(row[6], T), at(row[7], T), at(row[8], T), at(row[10], T)
    turned, steps, size = at(row[PACKED_WEIGHT], T), row[WORDS + STEPS], row[WORDS + HIDDEN]
    for unit in range(block(), n, blocks()):
        now = shifted(state, unit * size)
        begin_on_gpu(shifted(first_state, unit * size), now, size)
        for m in range(steps):
            first, count = rows_before(sizes, row, steps - 1 - m if row[WORDS + REVERSE] else m)
            if unit < count:
                here = (first + unit) * size
                for j in range(thread(), size, threads()):
                    made = multiply_column(now, turned, j, size, size, x[here + j], math.fma, T)
                    rectified = T(0) if made < T(0) else made
                    gates[here + j] = rectified if row[WORDS + RECTIFIES] else math.tanh(made)
                barrier()
                for j in range(thread(), size, threads()):
                    if row[WORDS + SAVES]:
                        before[here + j] = now[j]
                    out[here + j] = now[j] = gates[here + j]
                barrier()


@on_device(lstm)
def lstm_by_blocks(row, n):
    """Gates, cells and states of all steps."""
    x, first_state, first_cell, sizes = at(row[0], T), at(row[3], T), at(row[4], T), at(row[5], I)
    gates, out, state, cell = at(row[6], T), at(row[7], T), at(row[8], T), at(row[9], T)
    before, before_cell, turned = at(row[10], T), at(row[11], T), at(row[PACKED_WEIGHT], T)
    steps, size, saves = row[WORDS + STEPS], row[WORDS + HIDDEN], row[WORDS + SAVES]
    for unit in range(block(), n, blocks()):
        now, old = shifted(state, unit * size), shifted(cell, unit * size)
        begin_on_gpu(shifted(first_state, unit * size), now, size)
        begin_on_gpu(shifted(first_cell, unit * size), old, size)
        for m in range(steps):
            first, count = rows_before(sizes, row, steps - 1 - m if row[WORDS + REVERSE] else m)
            if unit < count:
                i = first + unit
                gate, added = shifted(gates, i * 4 * size), shifted(x, i * 4 * size)
                for j in range(thread(), 4 * size, threads()):
                    gate[j] = multiply_column(now, turned, j, 4 * size, size, added[j], math.fma, T)
                barrier()
                for j in range(thread(), size, threads()):
                    enters, forgets = math.sigmoid(gate[j]), math.sigmoid(gate[size + j])
                    new, leaves = math.tanh(gate[2 * size + j]), math.sigmoid(gate[3 * size + j])
                    if saves:
                        before[i * size + j], before_cell[i * size + j] = now[j], old[j]
                    gate[j], gate[size + j] = enters, forgets
                    gate[2 * size + j], gate[3 * size + j] = new, leaves
                    after = forgets * old[j] + enters * new
                    made = leaves * math.tanh(after)
                    old[j], now[j], out[i * size + j] = after, made, made
                barrier()


@on_device(gru)
def gru_by_blocks(row, n):
    """Gates and states of all steps, and what the states give to the new ones."""
    x, bias, first_state, sizes = at(row[0], T), at(row[2], T), at(row[3], T), at(row[5], I)
    gates, out, state, before = at(row[6], T), at(row[7], T), at(row[8], T), at(row[10], T)
    kept, turned, steps = at(row[11], T), at(row[PACKED_WEIGHT], T), row[WORDS + STEPS]
    size, products = row[WORDS + HIDDEN], shifted(turned, row[WORDS + ROOM])
    for unit in range(block(), n, blocks()):
        now, product = shifted(state, unit * size), shifted(products, unit * 3 * size)
        begin_on_gpu(shifted(first_state, unit * size), now, size)
        for m in range(steps):
            first, count = rows_before(sizes, row, steps - 1 - m if row[WORDS + REVERSE] else m)
            if unit < count:
                i = first + unit
                gate, added = shifted(gates, i * 3 * size), shifted(x, i * 3 * size)
                for j in range(thread(), 3 * size, threads()):
                    product[j] = multiply_column(now, turned, j, 3 * size, size, T(0), math.fma, T)
                barrier()
                for j in range(thread(), size, threads()):
                    reset = math.sigmoid(added[j] + product[j])
                    update = math.sigmoid(added[size + j] + product[size + j])
                    told = product[2 * size + j]
                    if row[WORDS + HAS_BIAS]:
                        told += bias[j]
                    new = math.tanh(added[2 * size + j] + reset * told)
                    if row[WORDS + SAVES]:
                        before[i * size + j], kept[i * size + j] = now[j], told
                    gate[j], gate[size + j], gate[2 * size + j] = reset, update, new
                    made = (now[j] - new) * update + new
                    now[j], out[i * size + j] = made, made
                barrier()


@on_device(rnn_backward)
def rnn_backward_by_blocks(row, n):
    """The gradients of x and of the first state."""
    out, g, g_state, sizes = at(row[0], T), at(row[4], T), at(row[5], T), at(row[7], I)
    gx, state, turned = at(row[8], T), at(row[10], T), at(row[PACKED_WEIGHT], T)
    steps, size = row[WORDS + STEPS], row[WORDS + HIDDEN]
    for unit in range(block(), n, blocks()):
        now = shifted(state, unit * size)
        begin_on_gpu(shifted(g_state, unit * size), now, size)
        for m in range(steps):
            first, count = rows_before(sizes, row, steps - 1 - m if row[WORDS + REVERSE] else m)
            if unit < count:
                here = (first + unit) * size
                for j in range(thread(), size, threads()):
                    d, value = now[j], out[here + j]
                    if row[WORDS + HAS_GRADIENT]:
                        d += g[here + j]
                    rectified = d if value > T(0) else T(0)
                    gx[here + j] = (
                        rectified if row[WORDS + RECTIFIES] else d * (T(1) - value * value)
                    )
                barrier()
                made = shifted(gx, here)
                for j in range(thread(), size, threads()):
                    now[j] = multiply_column(made, turned, j, size, size, T(0), math.fma, T)
                barrier()


@on_device(lstm_backward)
def lstm_backward_by_blocks(row, n):
    """The gradients of x, of the first state and the first cell."""
    gates, before_cell, g, g_state = at(row[0], T), at(row[3], T), at(row[4], T), at(row[5], T)
    g_cell, sizes, gx, state = at(row[6], T), at(row[7], I), at(row[8], T), at(row[10], T)
    cell, turned, steps = at(row[11], T), at(row[PACKED_WEIGHT], T), row[WORDS + STEPS]
    size = row[WORDS + HIDDEN]
    for unit in range(block(), n, blocks()):
        now, past = shifted(state, unit * size), shifted(cell, unit * size)
        begin_on_gpu(shifted(g_state, unit * size), now, size)
        begin_on_gpu(shifted(g_cell, unit * size), past, size)
        for m in range(steps):
            first, count = rows_before(sizes, row, steps - 1 - m if row[WORDS + REVERSE] else m)
            if unit < count:
                i = first + unit
                gate, made = shifted(gates, i * 4 * size), shifted(gx, i * 4 * size)
                for j in range(thread(), size, threads()):
                    d, old = now[j], before_cell[i * size + j]
                    if row[WORDS + HAS_GRADIENT]:
                        d += g[i * size + j]
                    enters, forgets, new = gate[j], gate[size + j], gate[2 * size + j]
                    made[j], made[size + j], made[2 * size + j], made[3 * size + j], past[j] = (
                        lstm_point_back(
                            d, past[j], enters, forgets, new, gate[3 * size + j], old,
                            math.tanh(forgets * old + enters * new), T,
                        )
                    )  # fmt: skip
                barrier()
                for j in range(thread(), size, threads()):
                    now[j] = multiply_column(made, turned, j, size, 4 * size, T(0), math.fma, T)
                barrier()


@on_device(gru_backward)
def gru_backward_by_blocks(row, n):
    """The gradients of x, of the products with the state, and of the first state."""
    gates, before, kept, g = at(row[0], T), at(row[2], T), at(row[3], T), at(row[4], T)
    g_state, sizes, gx, products = at(row[5], T), at(row[7], I), at(row[8], T), at(row[9], T)
    state, turned = at(row[10], T), at(row[PACKED_WEIGHT], T)
    steps, size = row[WORDS + STEPS], row[WORDS + HIDDEN]
    for unit in range(block(), n, blocks()):
        now = shifted(state, unit * size)
        begin_on_gpu(shifted(g_state, unit * size), now, size)
        for m in range(steps):
            first, count = rows_before(sizes, row, steps - 1 - m if row[WORDS + REVERSE] else m)
            if unit < count:
                i = first + unit
                gate, made = shifted(gates, i * 3 * size), shifted(gx, i * 3 * size)
                into = shifted(products, i * 3 * size)
                for j in range(thread(), size, threads()):
                    d = now[j]
                    if row[WORDS + HAS_GRADIENT]:
                        d += g[i * size + j]
                    made[j], made[size + j], made[2 * size + j], into[2 * size + j], now[j] = (
                        gru_point_back(
                            d, gate[j], gate[size + j], kept[i * size + j], gate[2 * size + j],
                            before[i * size + j], T,
                        )
                    )  # fmt: skip
                    into[j], into[size + j] = made[j], made[size + j]
                barrier()
                for j in range(thread(), size, threads()):
                    now[j] = multiply_column(into, turned, j, size, 3 * size, now[j], math.fma, T)
                barrier()
