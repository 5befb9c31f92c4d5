"""The tile of a few columns, of convolutions and products: dot products along segments of memory.

A vector of so few columns would have a number in one to four of its lanes. It is emitted like the tiles
of `conv_tile.py`, whose `rows_product` it stands for:

    segment_dots(rows, columns, pixels, segments, count, b, bias, targets, offset, add, apart, after)
        The same for at most `dot_rows` rows and FEW_COLUMNS columns, by dot products with the columns
        of `b`, which are `apart` from each other; without `add`.
"""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from ..language.processor import CHOSEN, VECTOR_BYTES, has
from .conv_tile import (
    TALLEST,
    TileLoop,
    emit_choice,
    fold_lanes,
    load_lanes,
    store_dots,
)
from .gemm_tile import I64, TileCode, TileNumber

FEW_COLUMNS = 4
REGISTERS = 32 if has("avx512f") or CHOSEN.architecture == "aarch64" else 16


def dot_rows(columns: int) -> int:
    """The rows of a tile of so few columns: registers hold their sums, the columns and one pixel."""
    return min(TALLEST, (REGISTERS - columns - 1) // columns)


def emit(dtype: Any) -> tuple[tuple[str, ...], ir.Module]:
    """The name of the function for a float dtype, and its module."""
    code = TileCode(dtype)
    tiles = range(1, min(FEW_COLUMNS, code.lanes) + 1)  # of as many columns as a vector has lanes
    made = emit_choice(code, "segment_dots", 12, emit_segment_dots, tiles, columns_of)
    made.linkage = "external"
    return (str(made.name),), code.module


def columns_of(f: TileCode) -> TileNumber:
    """The number of the tile for as many columns as the second argument says."""
    return f.args[1] - 1


def emit_segment_dots(f: TileCode, columns: int) -> Any:
    """`segment_dots` of so many columns; rows that are missing are computed like the last one."""
    rows, _, pixels, segments, count, b, bias, targets, offset, _, apart, after = f.args
    height = dot_rows(columns)
    last = [f.smaller(rows - 1, i) for i in range(height)]
    lines = [f.word(pixels, i) for i in last]
    cells = [f.word(targets, i) + offset for i in last]
    filters = [b + apart * j for j in range(columns)]

    def added(
        seen: TileNumber, at: TileNumber, mask: ir.Value | None, sums: Sequence[ir.Value]
    ) -> list[ir.Value]:
        seen = f.opaque(seen)
        right = [load_lanes(f, line + at, mask) for line in filters]
        found: list[ir.Value] = []
        for i, line in enumerate(lines):
            left = load_lanes(f, line + seen, mask)
            old = sums[i * columns : (i + 1) * columns]
            found += [f.multiply_add(left, a, c) for a, c in zip(right, old, strict=True)]
        return found

    outer = TileLoop(f, [I64(0), I64(0), *[f.zero] * (height * columns)], guard=count > 0)
    k, before = (f.number(value) for value in outer.values[:2])
    begin, length = f.word(segments, k * 2), f.word(segments, k * 2 + 1)
    whole = (length - 1) // VECTOR_BYTES * VECTOR_BYTES
    inner = TileLoop(f, [I64(0), *outer.values[2:]], guard=whole > 0)
    at = f.number(inner.values[0])
    sums = added(begin + at, before + at, None, inner.values[1:])
    at_next = at + VECTOR_BYTES
    inner.close(at_next < whole, [at_next.ir, *sums])
    rest = f.first((length - whole) // f.size)
    sums = added(begin + whole, before + whole, rest, inner.results[1:])
    outer.close((k + 1) < count, [(k + 1).ir, (before + length).ir, *sums])
    sums = folded_rows(f, outer.results[2:], columns)
    store_dots(f, sums, f.number(columns), bias, b, after, cells)
    f.builder.ret_void()
    return f.defined


def folded_rows(f: TileCode, sums: Sequence[ir.Value], columns: int) -> list[ir.Value]:
    """For each row a vector whose first lanes are the sums of the lanes of each of its columns.

    The vectors of as many rows as there are lanes for are folded together, which takes a quarter of the time.
    """
    room = 1 << (columns - 1).bit_length()
    rows = [sums[k : k + columns] for k in range(0, len(sums), columns)]
    found = []
    for first in range(0, len(rows), f.lanes // room):
        some = rows[first : first + f.lanes // room]
        many = 1 << (len(some) - 1).bit_length()
        padded = [*some, *[some[-1]] * (many - len(some))]
        both = fold_lanes(f, [v for row in padded for v in (*row, *[row[-1]] * (room - columns))])
        for i in range(len(some)):
            lanes = [min(i * room + j, f.lanes - 1) for j in range(f.lanes)]
            found.append(f.shuffle(both, both, lanes))
    return found
