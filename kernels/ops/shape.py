"""Moving elements to other places of a dense result.

The kernels are bound to integers of the element's size.

CPU side below; the CUDA side belongs at the end.
"""

from ..language.abi import T, at, helper, kernel, quotient, remainder, shifted, words
from ..language.device import all_threads, first_unit, on_device
from ..language.lanes import copy_line, copy_run
from ..language.turning import TILE, turn_block


@helper
def offset_of(place, axes, sizes, steps):
    """How far an element lies from the first one: the `place`-th in C order over axes of these
    sizes, which take these steps."""
    offset = 0
    for axis in range(axes - 1, -1, -1):
        offset += place % sizes[axis] * steps[axis]
        place //= sizes[axis]
    return offset


# Elements below which a row is copied column by column, and rows that are copied like that before
# the next part's: 100000 x 3 beside 100000 x 2 takes 190 us, row by row 440.
NARROW, ROWS = 12, 256
FEW = 3  # elements of a row that go column by column though they lie together, in frames too


@helper
def copy_rows_of_parts(p, parts, kind, row, rows):
    """Whole rows of `copy_parts`."""
    out, c = at(p[parts], kind), shifted(p, parts + 1)
    for r in range(row, row + rows):
        for part in range(parts):
            first, length, line = c[1 + 3 * part], c[2 + 3 * part], c[3 + 3 * part]
            source = shifted(at(p[part], kind), r * line)
            target = shifted(out, r * c[0] + first)
            for k in range(length):
                target[k] = source[k]


@helper
def copy_columns_of_parts(p, parts, kind, row, rows):
    """The same, column by column."""
    out, c = at(p[parts], kind), shifted(p, parts + 1)
    for part in range(parts):
        first, length, line = c[1 + 3 * part], c[2 + 3 * part], c[3 + 3 * part]
        for k in range(length):
            source = shifted(at(p[part], kind), row * line + k)
            target = shifted(out, row * c[0] + first + k)
            for r in range(rows):
                target[r * c[0]] = source[r * line]


@helper
def copy_parts(p, parts, kind, start, stop):
    """out[o] = the blocks x_0[o], x_1[o], ... side by side; a unit is an element of the result.

    words: the width of the result, then of each part its first column, its width, and the elements from one of
    its rows to the next

    The number of parts must be known before a word is read, so there is a kernel for each.
    """
    out, c = at(p[parts], kind), shifted(p, parts + 1)
    width = c[0]
    row, column, part, i = start // width, start % width, 0, start
    while i < stop:
        rows = (stop - i) // width
        if rows > 0 and column == 0:
            if width < NARROW:
                rows = min(rows, ROWS)
                copy_columns_of_parts(p, parts, kind, row, rows)
            else:
                copy_rows_of_parts(p, parts, kind, row, rows)
            row += rows
            i += rows * width
            continue
        first, length, line = c[1 + 3 * part], c[2 + 3 * part], c[3 + 3 * part]
        if column < first + length:
            count = min(first + length - column, stop - i)
            source = shifted(at(p[part], kind), row * line + column - first)
            target = shifted(out, i)
            for k in range(count):
                target[k] = source[k]
            i += count
            column += count
        part += 1
        if column == width:
            row, column, part = row + 1, 0, 0


@helper
def pick_from_parts(p, parts, kind, n):
    """The same, element by element: neighbours are written by neighbouring threads."""
    out, c = at(p[parts], kind), shifted(p, parts + 1)
    for i in range(first_unit(), n, all_threads()):
        row, column, part = quotient(i, c[0]), remainder(i, c[0]), 0
        while column >= c[1 + 3 * part] + c[2 + 3 * part]:
            part += 1
        out[i] = at(p[part], kind)[row * c[3 + 3 * part] + column - c[1 + 3 * part]]


@kernel
def join_2(args, start, stop):
    """Two parts side by side."""
    copy_parts(words(args), 2, T, start, stop)


@kernel
def join_3(args, start, stop):
    """Three parts side by side."""
    copy_parts(words(args), 3, T, start, stop)


@kernel
def join_4(args, start, stop):
    """Four parts side by side."""
    copy_parts(words(args), 4, T, start, stop)


@kernel
def join_8(args, start, stop):
    """Up to eight parts side by side."""
    copy_parts(words(args), 8, T, start, stop)


@kernel
def join_16(args, start, stop):
    """Up to sixteen parts side by side."""
    copy_parts(words(args), 16, T, start, stop)


JOINS = {2: join_2, 3: join_3, 4: join_4, 8: join_8, 16: join_16}


@helper
def walk_rows(x, line, step, out, rows, length):
    """out = some rows of `length` elements `step` apart, which begin `line` apart."""
    if step == 1 and length > FEW:
        for row in range(rows):
            copy_line(shifted(out, row * length), shifted(x, row * line), length)
    elif length <= NARROW:
        for part in range(0, rows, ROWS):
            for i in range(length):
                source, target = shifted(x, i * step), shifted(out, i)
                for row in range(part, min(part + ROWS, rows)):
                    target[row * length] = source[row * line]
    else:
        for row in range(rows):
            source, target = shifted(x, row * line), shifted(out, row * length)
            if step == -1:
                for i in range(length):
                    target[i] = source[-i]
            else:
                for i in range(length):
                    target[i] = source[i * step]


@kernel
def walk(args, start, stop):
    """out = the elements met from a first one on, in steps of any sign; a unit is a row."""
    p = words(args)
    x, out = shifted(at(p[0], T), p[2]), at(p[1], T)
    length, step, axes = p[3], p[4], p[5]
    sizes, lines = shifted(p, 6), shifted(p, 6 + axes)
    rows, line = (sizes[axes - 1], lines[axes - 1]) if axes > 0 else (1, 0)
    row = start
    while row < stop:  # rows of the last axis together, as each of the others asks for divisions
        together = min(rows - row % rows, stop - row)
        source = shifted(x, offset_of(row, axes, sizes, lines))
        walk_rows(source, line, step, shifted(out, row * length), together, length)
        row += together


@kernel
def keep_triangle(args, start, stop):
    """out[.., i, j] = x[.., i, j] on one side of a diagonal, else 0; a unit is a row."""
    p = words(args)
    x, out, rows, columns, diagonal, upper = at(p[0], T), at(p[1], T), p[2], p[3], p[4], p[5]
    place = start % rows - 1  # of a row in its matrix
    for row in range(start, stop):
        place = place + 1 if place + 1 < rows else 0
        edge = place + diagonal  # the column of the diagonal
        first = min(max(edge if upper else 0, 0), columns)
        last = min(max(columns if upper else edge + 1, 0), columns)
        source, target = shifted(x, row * columns), shifted(out, row * columns)
        for j in range(first):
            target[j] = T(0)
        for j in range(first, last):
            target[j] = source[j]
        for j in range(max(first, last), columns):
            target[j] = T(0)


@kernel
def turn(args, start, stop):
    """out[.., j, i] = x[.., i, j]; a unit is a tile of the columns of a matrix.

    Words: x, out, rows, columns.
    """
    p = words(args)
    x, out, rows, columns = at(p[0], T), at(p[1], T), p[2], p[3]
    tiles = -(-columns // TILE)
    for unit in range(start, stop):
        matrix, first = unit // tiles * rows * columns, unit % tiles * TILE
        source, target = shifted(x, matrix + first), shifted(out, matrix + first * rows)
        turn_block(source, columns, rows, min(TILE, columns - first), target, rows)


# frames: the axes of the result in C order, the last of them a row. For each axis there are its
# size, the first place that an element of the input stands at, how many do, the size of the
# input's axis, and the first of its elements that is taken

OUT, FIRST, KEPT, SIZE, SKIPPED = range(5)
AXIS = 5  # words of an axis


@helper
def plane_in_frame(plane, axes, q):
    """The plane of the input that stands at one of the result, -1 if none does: the axes but two."""
    found, planes = 0, 1
    for axis in range(axes - 3, -1, -1):
        a = shifted(q, axis * AXIS)
        place = plane % a[OUT] - a[FIRST]
        if place < 0 or place >= a[KEPT]:
            return -1
        found += (place + a[SKIPPED]) * planes
        planes *= a[SIZE]
        plane //= a[OUT]
    return found


@kernel
def put_in_frame(args, start, stop):
    """out = x, or a part of it, with one value around it; a unit is a row of the result.

    What lies between the elements of x, from row to row, is filled at once. Words: x, the value,
    out, the number of axes, at least two, and the words of each axis.
    """
    p = words(args)
    x, value, out, axes, q = at(p[0], T), at(p[1], T)[0], at(p[2], T), p[3], shifted(p, 4)
    along, row = shifted(q, (axes - 2) * AXIS), shifted(q, (axes - 1) * AXIS)
    length, first, kept, size, skipped = row[OUT], row[FIRST], row[KEPT], row[SIZE], row[SKIPPED]
    filled, unit = start * length, start
    few = FEW if length < NARROW else 0
    if kept <= few:  # all at once: what is between so few takes longer than they
        for i in range(filled, stop * length):
            out[i] = value
        filled = stop * length
    while unit < stop:
        place, plane = unit % along[OUT], plane_in_frame(unit // along[OUT], axes, q)
        rows = min(along[OUT] - place, stop - unit)
        if plane >= 0:
            source = shifted(x, (plane * along[SIZE] + along[SKIPPED]) * size + skipped)
            top = place - along[FIRST]
            begin, end = max(0, -top), min(rows, along[KEPT] - top)
            for i in range(kept if kept <= few else 0):
                line, column = (
                    shifted(source, top * size + i),
                    shifted(out, unit * length + first + i),
                )
                for k in range(begin, end):
                    column[k * length] = line[k * size]
            for k in range(end if kept <= few else begin, end):
                target = (unit + k) * length + first
                for i in range(filled, target):
                    out[i] = value
                copy_run(shifted(out, target), shifted(source, (top + k) * size), kept)
                filled = target + kept
        unit += rows
    for i in range(filled, stop * length):
        out[i] = value


# --------------------------------------------------------------------------- CUDA


@on_device(turn, units=TILE)
def turn_by_columns(row, n):
    """out[.., j, i] = x[.., i, j]; a thread goes down a column, its neighbours beside it."""
    x, out, rows, columns = at(row[0], T), at(row[1], T), row[2], row[3]
    tiles = quotient(columns + TILE - 1, TILE)
    for place in range(first_unit(), n * TILE, all_threads()):
        unit = quotient(place, TILE)
        column = remainder(unit, tiles) * TILE + remainder(place, TILE)
        first = quotient(unit, tiles) * rows * columns
        for i in range(rows if column < columns else 0):
            out[first + column * rows + i] = x[first + i * columns + column]


def elements_walked(c):
    """The elements of all rows, of the words that follow the addresses."""
    elements = c[1]
    for size in c[4 : 4 + c[3]]:
        elements *= size
    return elements


@on_device(walk, units=256, work=elements_walked)
def walk_by_elements(row, n):
    """The same, an element a thread."""
    x, out, length, step, axes = at(row[0], T), at(row[1], T), row[3], row[4], row[5]
    sizes, lines = shifted(row, 6), shifted(row, 6 + axes)
    for place in range(first_unit(), n, all_threads()):
        line, column = quotient(place, length), remainder(place, length)
        out[place] = x[row[2] + offset_of(line, axes, sizes, lines) + column * step]


@on_device(join_2, units=256)
def join_2_by_elements(row, n):
    """Two parts side by side."""
    pick_from_parts(row, 2, T, n)


@on_device(join_3, units=256)
def join_3_by_elements(row, n):
    """Three parts side by side."""
    pick_from_parts(row, 3, T, n)


@on_device(join_4, units=256)
def join_4_by_elements(row, n):
    """Four parts side by side."""
    pick_from_parts(row, 4, T, n)


@on_device(join_8, units=256)
def join_8_by_elements(row, n):
    """Up to eight parts side by side."""
    pick_from_parts(row, 8, T, n)


@on_device(join_16, units=256)
def join_16_by_elements(row, n):
    """Up to sixteen parts side by side."""
    pick_from_parts(row, 16, T, n)
