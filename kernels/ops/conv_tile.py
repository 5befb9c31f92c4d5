"""The tiles of convolutions: register-tiled products whose operands lie at addresses in tables.

They are emitted like those of `micro.py`, which says why, and take addresses and sizes in bytes
unless it says elements:

    rows_product(rows, columns, pixels, segments, count, b, bias, targets, offset, add, side_by_side,
                 after)
        At each of `rows` targets, `offset` further on, a row of `columns` elements: what is there if
        `add`, else `bias`, or 0 if that is 0, plus the sum over `count` segments (offset, length) of
        what lies there from the pixel on, by the rows of the packed panel `b`, one for each number.
        An odd number of rows above 1 is rounded up. Of pixels that lie `side_by_side`, the next ones
        are fetched meanwhile.
    steps_product(rows, columns, lefts, left, rights, right, steps, c, c_row, add)
        C = A.T @ B, or C += A.T @ B if `add`, where step k finds its row of A at lefts[k] + left and
        its row of B at rights[k] + right. The rows of C are `c_row` elements apart.
    copy_steps(columns, rights, right, steps, out)
        The rows of B of `steps_product` one after the other, a panel apart.
    dots(rows, columns, x, w, depth, bias, out, out_row, after)
        out[i, j] = bias[j], or 0 if `bias` is 0, plus the sum over `depth` of x[i, k] * w[j, k], for at
        most DOT_ROWS rows and `dot_columns` columns. The rows of `out` are `out_row` elements apart.
    depthwise_rows(rows, channels, pixels, offsets, taps, weight, bias, targets, after)
        `rows_product` of every channel on its own: an offset, and a row of the weight, for each tap.
    depthwise_steps(taps, channels, pixels, offsets, uppers, steps, sums, add)
        A row of sums over steps for each of `taps` (one of TOGETHER) offsets: what lies there from
        the pixel on by what lies at the step's address in `uppers`, channel by channel.

Those whose last argument is `after`, the address of words, say there what happens to results before
they are stored: some of the steps SCALED, SHIFTED, ADDED and BOUNDED; the addresses of a factor and of
a summand for each column; how many bytes from an element another lies that is added to it; and the
bits of two bounds in float64. Each step is rounded as if it stood alone.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from ..language.processor import VECTOR_BYTES
from .gemm_tile import (
    F64,
    HEIGHT,
    HEIGHTS,
    I64,
    PANEL_STAYS,
    ROWS_AHEAD,
    WIDTH,
    TileCode,
    TileNumber,
    emit_pack,
    emit_transpose,
    rows_of,
)

SCALED, SHIFTED, ADDED, BOUNDED = 1, 2, 4, 8  # steps in their order, which add up
TOGETHER = (9, 3, 1)  # taps that a depthwise gradient sums at a time
Place = tuple[
    int, TileNumber, ir.Value | None
]  # of a vector: its row, its bytes along that, its lanes
# Rows of a tile of one vector, which needs sums enough for two multiply-adds a cycle, each of which takes 4.
TALLEST = max(HEIGHT, 8)
TALL = (1, *range(2, TALLEST + 1, 2))
STEPS_AHEAD = 2048  # bytes
DOT_ROWS = HEIGHT * WIDTH // 6  # whose sums stay in registers, by `dot_columns` of them


def dot_columns(lanes: int) -> int:
    """The columns of a tile of dot products, whose sums end up in one vector."""
    return min(4, lanes)


def emit(dtype: Any) -> tuple[tuple[str, ...], ir.Module]:
    """The names of the functions for a float dtype, and the module of all."""
    code = TileCode(dtype)
    shapes = [(height, width) for height in HEIGHTS for width in range(1, WIDTH + 1)]
    shapes += [(height, 1) for height in TALL[len(HEIGHTS) :]]  # one at most, as `shape_of` counts
    made = [
        emit_pack(code),
        emit_pack_places(code),
        emit_choice(code, "rows_product", 12, emit_rows, shapes, shape_of),
        emit_choice(code, "steps_product", 10, emit_steps, shapes, shape_of),
        emit_copy_steps(code),
        emit_dots(code),
        emit_choice(code, "depthwise_rows", 9, emit_depthwise_rows, TALL, height_of),
        emit_choice(code, "depthwise_steps", 8, emit_depthwise_steps, TOGETHER, None),
    ]
    for function in made:
        function.linkage = "external"
    return tuple(str(function.name) for function in made), code.module


def height_of(f: TileCode) -> TileNumber:
    """The number of the height, of TALL, for as many rows as the first argument says."""
    return f.choose(f.args[0].equals(1), 0, (f.args[0] + 1) // 2)


def shape_of(f: TileCode) -> TileNumber:
    """The number of the shape for as many rows and columns as the first two arguments say."""
    return height_of(f) * WIDTH + (f.args[1] - 1) // f.lanes


def emit_choice(
    code: TileCode, name: str, arguments: int, emit: Callable[..., Any], tiles: Sequence[Any],
    number_of: Callable[[TileCode], TileNumber] | None,
) -> Any:  # fmt: skip
    """A function that calls one of some tiles: that of a number, or of its first argument."""
    f = code.function(name, arguments)
    after = f.builder.append_basic_block("after")
    choice = f.builder.switch((number_of(f) if number_of else f.args[0]).ir, after)
    for k, tile in enumerate(tiles):
        block = f.builder.append_basic_block()
        choice.add_case(I64(k if number_of else tile), block)
        f.builder.position_at_end(block)
        shape = tile if isinstance(tile, tuple) else (tile,)
        label = f"{name}_{'x'.join(map(str, shape))}"
        f.call(emit(code.function(label, arguments), *shape), *f.args)
        f.builder.branch(after)
    f.builder.position_at_end(after)
    f.builder.ret_void()
    return f.defined


def emit_pack_places(code: TileCode) -> Any:
    """pack_places(x, line, lines, depth, places, offset, ahead): a square, transposed into rows anywhere.

    The rows are at the addresses in `places`, `offset` further on; those beyond `depth` hold 0. As
    much memory as a square has is fetched from `ahead` on: processors do not follow so many lines.
    """
    f = code.function("pack_places", 7)
    x, line, lines, depth, places, offset, ahead = f.args
    targets = [f.word(places, k) + offset for k in range(f.lanes)]
    for i in range(f.lanes):
        f.prefetch(ahead + i * VECTOR_BYTES, writes=False)
    emit_transpose(f, rows_of(f, x, line, lines, f.lanes), 0, depth, targets)
    f.builder.ret_void()
    return f.defined


# --------------------------------------------------------------------------- loops


class TileLoop:
    """A loop that carries values in registers; it is skipped unless `guard` holds.

    loop = Loop(f, starts)
    ...  # emit the body, which reads `loop.values`
    loop.close(going_on, following)  # afterwards `loop.results` are the last values
    """

    def __init__(
        self, f: TileCode, starts: Sequence[ir.Value], guard: ir.Value | None = None
    ) -> None:
        self.builder, self.starts, self.guard = f.builder, starts, guard
        self.entry = f.builder.block
        self.body, self.after = map(f.defined.append_basic_block, ("loop", "after"))
        if guard is None:
            f.builder.branch(self.body)
        else:
            f.builder.cbranch(guard, self.body, self.after)
        f.builder.position_at_end(self.body)
        self.values = [f.builder.phi(start.type) for start in starts]
        self.results = self.values

    def close(self, going_on: ir.Value, following: Sequence[ir.Value]) -> None:
        """Go round again with the following values while a condition holds."""
        builder, last = self.builder, self.builder.block
        for phi, start, value in zip(self.values, self.starts, following, strict=True):
            phi.add_incoming(start, self.entry)
            phi.add_incoming(value, last)
        builder.cbranch(going_on, self.body, self.after)
        builder.position_at_end(self.after)
        self.results = list(following)
        if self.guard is not None:
            self.results = [builder.phi(start.type) for start in self.starts]
            for phi, start, value in zip(self.results, self.starts, following, strict=True):
                phi.add_incoming(start, self.entry)
                phi.add_incoming(value, last)


# --------------------------------------------------------------------------- tiles


def emit_rows(f: TileCode, height: int, width: int) -> Any:
    """`rows_product` of `height` pixels by `width` vectors, of which the last is masked."""
    rows, columns, pixels, segments, count, b, bias, targets, offset = f.args[:9]
    add, side_by_side, after = f.args[9:]
    builder, size = f.builder, f.size
    lines = [f.word(pixels, i) for i in range(height)]
    cells = [f.word(targets, i) + offset for i in range(height)]
    for cell in cells:
        for v in range(width):
            f.prefetch(cell + v * VECTOR_BYTES)
    edge = f.first(columns - f.lanes * (width - 1))
    onto = add.differs(0)
    given, bias = optional(f, bias, b)
    given = builder.or_(given, f.broadcast(onto))
    starts = [
        f.load_some(
            f.choose(onto, cell, bias) + v * VECTOR_BYTES,
            builder.and_(given, edge) if v == width - 1 else given,
        )
        for cell in cells
        for v in range(width)
    ]
    outer = TileLoop(f, [I64(0), b.ir, *starts], guard=count > 0)
    k, b_outer = (f.number(value) for value in outer.values[:2])
    begin = f.word(segments, k * 2)
    end = begin + f.word(segments, k * 2 + 1)
    inner = TileLoop(f, [begin.ir, b_outer.ir, (lines[-1] + end).ir, *outer.values[2:]])
    here, b_now, ahead = (f.number(value) for value in inner.values[:3])
    f.prefetch(ahead, writes=False)
    if width > WIDTH // 2 and not PANEL_STAYS:
        for v in range(width):
            f.prefetch(b_now + (ROWS_AHEAD * f.panel * size + v * VECTOR_BYTES), writes=False)
    line = [f.load(b_now + v * VECTOR_BYTES) for v in range(width)]
    along = f.opaque(here) if width == 1 else here  # with more, sums would be what is spilled
    sums = []
    for i in range(height):
        factor = f.broadcast(f.load_one(lines[i] + along))
        for v in range(width):
            sums.append(f.multiply_add(factor, line[v], inner.values[3 + i * width + v]))
    b_next = b_now + f.panel * size
    ahead_next = ahead + side_by_side * (height * size)
    inner.close((here + size) < end, [(here + size).ir, b_next.ir, ahead_next.ir, *sums])
    outer.close((k + 1) < count, [(k + 1).ir, b_next.ir, *sums])
    vectors = [(f.number(v * VECTOR_BYTES), None if v < width - 1 else edge) for v in range(width)]
    tile = [(i, *vector) for i in range(height) for vector in vectors]
    sums = finished(f, after, outer.results[2:], tile, existing(f, rows, cells))
    store_tile(f, cells, sums, width, columns)
    builder.ret_void()
    return f.defined


def optional(f: TileCode, address: TileNumber, other: TileNumber) -> tuple[ir.Value, TileNumber]:
    """A mask of no lanes if an address is 0, and then another address.

    A masked load of no lanes from where no memory is takes 150 cycles on Zen 4.
    """
    exists = address.differs(0)
    return f.broadcast(exists), f.choose(exists, address, other)


def existing(f: TileCode, rows: TileNumber, cells: Sequence[TileNumber]) -> list[TileNumber]:
    """Addresses of rows, of which the last may be one too many: then the one before stands there."""
    if len(cells) == 1:
        return [*cells]
    return [*cells[:-1], f.choose(rows.equals(len(cells)), *cells[-1:], cells[-2])]


def finished(
    f: TileCode,
    after: TileNumber,
    totals: Sequence[ir.Value],
    tile: Sequence[Place],
    cells: list[TileNumber],
) -> list[ir.Value]:
    """Vectors after the steps that the words at `after` ask for; `tile` says where they are."""
    builder = f.builder

    def operands(base: TileNumber) -> list[ir.Value]:
        loaded = {id(along): load_lanes(f, base + along, mask) for _, along, mask in tile}
        return [loaded[id(along)] for _, along, _ in tile]

    def scaled(values: Sequence[ir.Value]) -> list[ir.Value]:
        return [*map(builder.fmul, values, operands(f.word(after, 1)))]

    def shifted(values: Sequence[ir.Value]) -> list[ir.Value]:
        return [*map(builder.fadd, values, operands(f.word(after, 2)))]

    def added(values: Sequence[ir.Value]) -> list[ir.Value]:
        away = f.word(after, 3)
        others = [load_lanes(f, cells[row] + away + along, mask) for row, along, mask in tile]
        return [*map(builder.fadd, values, others)]

    def bounded(values: Sequence[ir.Value]) -> list[ir.Value]:
        for sign, k in (("<", 4), (">", 5)):
            bound = f.broadcast(f.from_double(builder.bitcast(f.word(after, k).ir, F64)))
            beyond = [builder.fcmp_ordered(sign, value, bound) for value in values]  # NaN is not
            values = [
                builder.select(b, bound, value) for b, value in zip(beyond, values, strict=True)
            ]
        return [*values]

    steps = f.word(after)
    found = [*totals]
    for kind, step in ((SCALED, scaled), (SHIFTED, shifted), (ADDED, added), (BOUNDED, bounded)):
        before = builder.block
        with f.when((steps & kind).differs(0)):
            changed, last = step(found), builder.block
        merged = [builder.phi(f.type) for _ in found]
        for phi, old, new in zip(merged, found, changed, strict=True):
            phi.add_incoming(old, before)
            phi.add_incoming(new, last)
        found = merged
    return found


def store_tile(
    f: TileCode,
    cells: Sequence[TileNumber],
    totals: Sequence[ir.Value],
    width: int,
    columns: TileNumber,
) -> None:
    """Store rows of vectors, of which the last is masked."""
    edge, is_whole = f.first(columns - f.lanes * (width - 1)), columns.equals(f.lanes * width)
    for k, total in enumerate(totals):
        i, v = divmod(k, width)
        place = cells[i] + v * VECTOR_BYTES
        if v == width - 1:
            f.store_some(total, place, edge, is_whole)
        else:
            f.store(total, place)


def emit_steps(f: TileCode, height: int, width: int) -> Any:
    """`steps_product` of `height` rows, or one less, by `width` vectors, the last masked."""
    rows, columns, lefts, left, rights, right, steps, c, c_row, add = f.args
    builder, size = f.builder, f.size
    cells = [c + c_row * (i * size) for i in range(height)]
    shifts = [f.number(i * size) for i in range(height)]
    if height > 1:  # the last row may be one too many
        is_whole = rows.equals(height)
        cells[-1] = f.choose(is_whole, cells[-1], f.stack(width * VECTOR_BYTES))
        shifts[-1] = f.choose(is_whole, shifts[-1], shifts[-2])
    for cell in cells:
        for v in range(width):
            f.prefetch(cell + v * VECTOR_BYTES)
    edge = f.first(columns - f.lanes * (width - 1))
    loop = TileLoop(f, [I64(0), *[f.zero] * (height * width)])
    step = f.number(loop.values[0])
    a, b = f.word(lefts, step) + left, f.word(rights, step) + right
    if width <= WIDTH // 2:  # rows of B are read once or twice, faster than they come by themselves
        for v in range(width):
            f.prefetch(b + (STEPS_AHEAD + v * VECTOR_BYTES), writes=False)
    line = [f.load(b + v * VECTOR_BYTES) for v in range(width - 1)]
    line.append(f.load_some(b + (width - 1) * VECTOR_BYTES, edge))
    sums = []
    for i in range(height):
        factor = f.broadcast(f.load_one(a + shifts[i]))
        for v in range(width):
            sums.append(f.multiply_add(factor, line[v], loop.values[1 + i * width + v]))
    loop.close((step + 1) < steps, [(step + 1).ir, *sums])
    with f.either(add.equals(0)) as (over, onto):
        with over:
            store_tile(f, cells, sums, width, columns)
        with onto:
            for k, total in enumerate(sums):
                i, v = divmod(k, width)
                place = cells[i] + v * VECTOR_BYTES
                old = f.load_some(place, edge) if v == width - 1 else f.load(place)
                sums[k] = builder.fadd(old, total)
            store_tile(f, cells, sums, width, columns)
    builder.ret_void()
    return f.defined


def emit_copy_steps(code: TileCode) -> Any:
    """`copy_steps`; zeros stand for the columns that are missing."""
    f = code.function("copy_steps", 5)
    columns, rights, right, steps, out = f.args
    with f.either(columns.equals(f.panel)) as (whole, some):
        for is_whole, branch in ((True, whole), (False, some)):
            with branch, f.loop(steps) as step:
                source, target = f.word(rights, step) + right, out + step * (f.panel * f.size)
                for v in range(WIDTH):
                    mask = None if is_whole else f.first(columns - v * f.lanes)
                    along = v * VECTOR_BYTES
                    f.store(load_lanes(f, source + along, mask), target + along)
    f.builder.ret_void()
    return f.defined


def emit_dots(code: TileCode) -> Any:
    """`dots`; rows and columns that are missing are computed like the last one."""
    f = code.function("dots", 9)
    rows, columns, x, w, depth, bias, out, out_row, after = f.args
    width = dot_columns(f.lanes)
    lines, filters, cells = (
        [first + f.smaller(count - 1, i) * apart * f.size for i in range(most)]
        for first, count, apart, most in (
            (x, rows, depth, DOT_ROWS), (w, columns, depth, width), (out, rows, out_row, DOT_ROWS),
        )
    )  # fmt: skip
    whole = (depth - 1) // f.lanes * f.lanes

    def added(
        at: TileNumber, load: Callable[[TileNumber], ir.Value], sums: Sequence[ir.Value]
    ) -> Any:
        right = [load(address + at) for address in filters]
        found = []
        for i, address in enumerate(lines):
            left = load(address + at)
            old = sums[i * width : (i + 1) * width]
            found += [f.multiply_add(left, b, c) for b, c in zip(right, old, strict=True)]
        return found

    loop = TileLoop(f, [I64(0), *[f.zero] * (DOT_ROWS * width)], guard=whole > 0)
    k = f.number(loop.values[0])
    sums = added(k * f.size, f.load, loop.values[1:])
    k_next = k + f.lanes
    loop.close(k_next < whole, [k_next.ir, *sums])
    rest = f.first(depth - whole)
    sums = added(whole * f.size, lambda address: f.load_some(address, rest), loop.results[1:])
    sums = [fold_lanes(f, sums[i * width : (i + 1) * width]) for i in range(DOT_ROWS)]
    store_dots(f, sums, columns, bias, w, after, cells)
    f.builder.ret_void()
    return f.defined


def store_dots(
    f: TileCode,
    sums: Sequence[ir.Value],
    columns: TileNumber,
    bias: TileNumber,
    other: TileNumber,
    after: TileNumber,
    cells: list[TileNumber],
) -> None:
    """Store rows of less than a vector with a bias, if its address is not 0; then any other one is read."""
    edge, none = f.first(columns), f.number(0)
    given, bias = optional(f, bias, other)
    start = f.load_some(bias, f.builder.and_(given, edge))
    totals = [f.builder.fadd(start, row) for row in sums]
    totals = finished(f, after, totals, [(i, none, edge) for i in range(len(cells))], cells)
    for cell, total in zip(cells, totals, strict=True):
        f.store_some(total, cell, edge)


def fold_lanes(f: TileCode, vectors: list[ir.Value]) -> ir.Value:
    """A vector whose first lanes are the sums of the lanes of each vector, halves added to halves."""
    length = f.lanes  # of what is left of a sum
    while length > 1:
        length //= 2
        if len(vectors) == 1:
            vectors = vectors * 2
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        low = [j for j in range(2 * f.lanes) if j // length % 2 == 0]
        halves = [
            [f.shuffle(a, b, [j + more for j in low]) for more in (0, length)] for a, b in pairs
        ]
        vectors = [f.builder.fadd(a, b) for a, b in halves]
    return vectors[0]


# --------------------------------------------------------------------------- depthwise


def each_vector(
    f: TileCode, channels: TileNumber, emit: Callable[[TileNumber, ir.Value | None], None]
) -> None:
    """Emit a body for the bytes before each vector of channels; the last may have a mask."""
    whole = channels // f.lanes * f.lanes
    with f.loop(whole, f.lanes) as channel:
        emit(channel * f.size, None)
    with f.when(whole < channels):
        emit(whole * f.size, f.first(channels - whole))


def load_lanes(f: TileCode, address: TileNumber, mask: ir.Value | None) -> ir.Value:
    """A vector, or the lanes of a mask."""
    return f.load(address) if mask is None else f.load_some(address, mask)


def store_lanes(f: TileCode, value: ir.Value, address: TileNumber, mask: ir.Value | None) -> None:
    """Store a vector, or the lanes of a mask."""
    if mask is None:
        f.store(value, address)
    else:
        f.store_some(value, address, mask)


def emit_depthwise_rows(f: TileCode, height: int) -> Any:
    """`depthwise_rows` of `height` pixels."""
    rows, channels, pixels, offsets, taps, weight, bias, targets, after = f.args
    builder = f.builder
    lines = [f.word(pixels, i) for i in range(height)]
    cells = [f.word(targets, i) for i in range(height)]
    given, bias = optional(f, bias, weight)

    def emit(along: TileNumber, mask: ir.Value | None) -> None:
        for cell in cells:
            f.prefetch(cell + along)
        start = f.load_some(bias + along, given if mask is None else builder.and_(given, mask))
        loop = TileLoop(f, [I64(0), (weight + along).ir, *[start] * height], guard=taps > 0)
        tap, row = (f.number(value) for value in loop.values[:2])
        factor = load_lanes(f, row, mask)
        here = f.word(offsets, tap) + along
        sums = [
            f.multiply_add(load_lanes(f, line + here, mask), factor, old)
            for line, old in zip(lines, loop.values[2:], strict=True)
        ]
        loop.close((tap + 1) < taps, [(tap + 1).ir, (row + channels * f.size).ir, *sums])
        tile = [(i, along, mask) for i in range(height)]
        totals = finished(f, after, loop.results[2:], tile, existing(f, rows, cells))
        for cell, total in zip(cells, totals, strict=True):
            store_lanes(f, total, cell + along, mask)

    each_vector(f, channels, emit)
    builder.ret_void()
    return f.defined


def emit_depthwise_steps(f: TileCode, together: int) -> Any:
    """`depthwise_steps` of so many taps."""
    _, channels, pixels, offsets, uppers, steps, sums, add = f.args
    builder = f.builder
    places = [f.word(offsets, k) for k in range(together)]

    def emit(along: TileNumber, mask: ir.Value | None) -> None:
        loop = TileLoop(f, [I64(0), *[f.zero] * together])
        step = f.number(loop.values[0])
        pixel = f.word(pixels, step) + along
        factor = load_lanes(f, f.word(uppers, step) + along, mask)
        totals = [
            f.multiply_add(load_lanes(f, pixel + place, mask), factor, old)
            for place, old in zip(places, loop.values[1:], strict=True)
        ]
        loop.close((step + 1) < steps, [(step + 1).ir, *totals])
        onto = f.broadcast(add.differs(0))
        for k, total in enumerate(totals):
            cell = sums + channels * (k * f.size) + along
            old = f.load_some(cell, onto if mask is None else builder.and_(onto, mask))
            store_lanes(f, builder.fadd(old, total), cell, mask)

    each_vector(f, channels, emit)
    builder.ret_void()
    return f.defined
