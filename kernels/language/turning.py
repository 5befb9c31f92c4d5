"""Matrices whose rows become columns, a square at a time, and rows that are brought together beside them."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .abi import helper, shifted

TILE = 16  # columns that are turned at a time: a line of memory of float32


@intrinsic
def turn_square(typingctx: Any, x: Any, x_line: Any, out: Any, out_line: Any) -> Any:
    """out[j * out_line + i] = x[i * x_line + j] for i and j below TILE, in registers: whole lines of memory
    are read and written, which may all share one set of a cache."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        source, x_step, target, out_step = args
        kind = ir.VectorType(context.get_data_type(x.dtype), TILE)
        size = x.dtype.bitwidth // 8

        def place(first: Any, step: Any, k: int) -> Any:
            start = builder.gep(first, [builder.mul(step, ir.Constant(step.type, k))])
            return builder.bitcast(start, kind.as_pointer())

        lines = [builder.load(place(source, x_step, k), align=size) for k in range(TILE)]
        half = TILE // 2
        while half:  # swap the off-diagonal quarters of ever smaller squares
            keep = [j if j & half == 0 else j - half + TILE for j in range(TILE)]
            swap = [j + half if j & half == 0 else j + TILE for j in range(TILE)]
            orders = [ir.Constant(ir.VectorType(ir.IntType(32), TILE), o) for o in (keep, swap)]
            for i in range(TILE):
                if i & half == 0:
                    pair = lines[i], lines[i + half]
                    lines[i], lines[i + half] = (
                        builder.shuffle_vector(*pair, order) for order in orders
                    )
            half //= 2
        for k, line in enumerate(lines):
            builder.store(line, place(target, out_step, k), align=size)
        return context.get_dummy_value()

    return types.void(x, types.int64, out, types.int64), codegen


@helper
def turn_block(x, x_line, lines, count, out, out_line):
    """out[j * out_line + i] = x[i * x_line + j] for i below `lines` and j below `count`, at most TILE."""
    whole = lines // TILE * TILE if count == TILE else 0
    for i in range(0, whole, TILE):
        turn_square(shifted(x, i * x_line), x_line, shifted(out, i), out_line)
    for i in range(whole, lines):
        for j in range(count):
            out[j * out_line + i] = x[i * x_line + j]


@helper
def rows_of(x, down, step, rows, count, block):
    """Rows of `count` elements, one behind the other: as they lie, or a copy of them in `block`."""
    if step == 1 and down == count:
        return x
    for j in range(rows):
        for i in range(count):
            block[j * count + i] = x[j * down + i * step]
    return block


@helper
def room_for(out, down, step, rows, count, block):
    """Where rows are written of which `put_rows` will bring to their place what does not lie there."""
    return out if step == 1 and down == count else block


@helper
def put_rows(found, out, down, step, rows, count):
    """Write rows that lie one behind the other to their place, if that is another."""
    if step != 1 or down != count:
        for j in range(rows):
            for i in range(count):
                out[j * down + i * step] = found[j * count + i]
