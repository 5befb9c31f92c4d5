"""Reading and writing elements whose places are values of a tensor.

Two layouts cover nearly all of it. A *table* is a tensor seen as [outer, the indexed axes, inner], whose
rows of `inner` elements are named by one index per indexed axis; the indices lie one axis after
the other, `count` each. A *grid* is an index tensor of the same rank as the tensor it points into:
`lines` runs along the axis that is indexed, all other coordinates are shared.

Where two indices may name one place, units are cut so that one place belongs to one unit and is
met in the order of the indices: the last write wins and sums are added up in that order, whatever
the number of threads.

The kernels that only move elements are bound to integers of the element's size.

CPU side below; the CUDA side belongs at the end.
"""

from operator import add, mul, truediv

from ..language.abi import (
    STATUS_INDEX,
    STATUS_VALUE,
    I,
    T,
    X,
    at,
    helper,
    kernel,
    shifted,
    words,
)
from ..language.device import instead_of
from ..language.lanes import (
    LANES,
    combine,
    copy_run,
    load_block,
    load_over,
    prefetch,
    spread,
    spread_as,
    spread_over,
    store_block,
    store_some,
    where_moved,
)
from .shape import offset_of

# --------------------------------------------------------------------------- checks

NOTHING = 1 << 62  # no offset at all


@helper
def report(status, code, first, second, third):
    """Set the status words; the first fault stays."""
    if status[0] == 0:
        status[1], status[2], status[3] = first, second, third
        status[0] = code


@helper
def row_offset(indices, count, i, axes, status):
    """The offset of row `i`; `axes` has for each axis its number, size, stride and lowest index."""
    offset = 0
    for axis in range(axes[0]):
        number, size, step, lowest = (
            axes[1 + 4 * axis], axes[2 + 4 * axis], axes[3 + 4 * axis], axes[4 + 4 * axis]
        )  # fmt: skip
        index = indices[axis * count + i]
        if index < lowest or index >= size:
            report(status, STATUS_INDEX, index, number, size)
            return NOTHING
        offset += (index + size if index < 0 else index) * step
    return offset


@helper
def are_places(index, count, lowest, size):
    """Whether dense indices are all of an axis; it takes less than a look at each when it is used."""
    wrong = 0
    for i in range(count):
        wrong |= (index[i] - lowest) | (size - 1 - index[i])
    return wrong >= 0


@helper
def are_rows(indices, count, axes, status):
    """Whether all indices name rows; the status tells of one that does not."""
    for axis in range(axes[0]):
        number, size, lowest = axes[1 + 4 * axis], axes[2 + 4 * axis], axes[4 + 4 * axis]
        index = shifted(indices, axis * count)
        if not are_places(index, count, lowest, size):
            for i in range(count):
                if index[i] < lowest or index[i] >= size:
                    report(status, STATUS_INDEX, index[i], number, size)
            return False
    return True


@helper
def place_of(index, size):
    """Which row an index names that may count from the end."""
    return index + (size & (index >> 63))


# --------------------------------------------------------------------------- tables

AHEAD = 12  # rows: 20,480 of 64 float32 in 2.5 MB take 61 us for 69, with AVX2 66 for 77
SHORT = 8  # elements of a row, of fewer of which masked vectors take longer than a loop


@helper
def copy_rows(out, x, indices, rows, size, step, inner):
    """The rows of a table that indices name, one after the other, all of which there are."""
    if inner == 1:
        for row in range(rows):
            out[row] = x[place_of(indices[row], size) * step]
        return
    if inner < SHORT:
        for row in range(rows):
            source = shifted(x, place_of(indices[row], size) * step)
            for k in range(inner):
                out[row * inner + k] = source[k]
        return
    for row in range(rows):
        copy_run(shifted(out, row * inner), shifted(x, place_of(indices[row], size) * step), inner)


@helper
def copy_from_lines(out, x, indices, count, size, step, line):
    """The elements that indices name, all of which there are, of four lines at a time."""
    for k in range(count):
        place = place_of(indices[k], size) * step
        out[k] = x[place]
        out[count + k] = x[line + place]
        out[2 * count + k] = x[2 * line + place]
        out[3 * count + k] = x[3 * line + place]


@instead_of(copy_rows)
def copy_rows_on_gpu(out, x, indices, rows, size, step, inner):
    """Element by element: threads share out the rows."""
    for row in range(rows):
        source = shifted(x, place_of(indices[row], size) * step)
        for k in range(inner):
            out[row * inner + k] = source[k]


@helper
def add_rows(out, indices, count, skipped, size, step, values, value_row, width, T):
    """Rows of values added to those of a table that indices name, all of which there are."""
    if width < SHORT:
        for i in range(count):
            if indices[i] != skipped:
                target = shifted(out, place_of(indices[i], size) * step)
                for k in range(width):
                    target[k] = T(target[k] + values[i * value_row + k])
        return
    for i in range(count):
        if indices[i] != skipped:
            place, row = place_of(indices[i], size) * step, i * value_row
            prefetch(out, place_of(indices[min(i + AHEAD, count - 1)], size) * step)
            for k in range(0, width, LANES):
                part = min(LANES, width - k)
                more = load_block(values, row + k, part, T(0))
                total = combine(add, load_block(out, place + k, part, T(0)), more)
                store_block(out, place + k, total, part)


@instead_of(add_rows)
def add_rows_on_gpu(out, indices, count, skipped, size, step, values, value_row, width, T):
    """Element by element: threads share out the columns."""
    for i in range(count):
        if indices[i] != skipped:
            target = shifted(out, place_of(indices[i], size) * step)
            for k in range(width):
                target[k] = T(target[k] + values[i * value_row + k])


@kernel
def copy_elements(args, start, stop):
    """out = the first input, both dense; nothing where they are the same memory."""
    p = words(args)
    x, out = at(p[0], T), at(p[COPY_OUT], T)
    if p[0] != p[COPY_OUT]:
        for i in range(start, stop):
            out[i] = x[i]


COPY_OUT = 3  # the kernels that start with a copy have three inputs


@kernel
def read_table(args, start, stop):
    """out[o, i] = the row that index i names in x[o]; a unit is a row of the result."""
    p = words(args)
    x, indices, out, status = at(p[0], T), at(p[1], I), at(p[2], T), at(p[3], I)
    count, outer_step, inner, inner_step, axes = p[4], p[5], p[6], p[7], shifted(p, 8)
    are_dense = axes[0] == 1 and inner_step == 1
    size, step, lowest = axes[2], axes[3], axes[4]
    unit = start
    while unit < stop:
        o, i = unit // count, unit % count
        rows = min(count - i, stop - unit)
        places = shifted(indices, i)
        if are_dense and are_places(places, rows, lowest, size):
            target, source = shifted(out, unit * inner), shifted(x, o * outer_step)
            if inner == 1 and i == 0 and stop - unit >= 4 * count:
                copy_from_lines(target, source, places, count, size, step, outer_step)
                unit += 4 * count
                continue
            copy_rows(target, source, places, rows, size, step, inner)
            unit += rows
            continue
        for row in range(i, i + rows):
            offset = row_offset(indices, count, row, axes, status)
            if offset == NOTHING:
                return
            source = shifted(x, o * outer_step + offset)
            target = shifted(out, (o * count + row) * inner)
            if inner_step == 1:
                for k in range(inner):
                    target[k] = source[k]
            else:
                for k in range(inner):
                    target[k] = source[k * inner_step]
        unit += rows


@kernel
def write_table(args, start, stop):
    """out[o, row i] = values[o, i]; a unit is one element of (outer, inner)."""
    p = words(args)
    indices, values, out, status = at(p[1], I), at(p[2], T), at(p[3], T), at(p[4], I)
    count, outer_step, inner, inner_step = p[5], p[6], p[7], p[8]
    value_outer, value_row, value_inner, axes = p[9], p[10], p[11], shifted(p, 13)
    if not are_rows(indices, count, axes, status):
        return  # before anything is written: a plan may have this write over what others have read
    size, step = axes[2], axes[3]
    for o in range(start // inner, (stop + inner - 1) // inner):
        first, last = max(start - o * inner, 0), min(stop - o * inner, inner)
        if axes[0] == inner == 1:
            target, source = shifted(out, o * outer_step), shifted(values, o * value_outer)
            for i in range(count):
                target[place_of(indices[i], size) * step] = source[i * value_row]
            continue
        for i in range(count):
            offset = row_offset(indices, count, i, axes, status)
            if offset == NOTHING:
                return
            source = shifted(values, o * value_outer + i * value_row)
            target = shifted(out, o * outer_step + offset)
            for k in range(first, last):
                target[k * inner_step] = source[k * value_inner]


@kernel
def add_to_table(args, start, stop):
    """out[o, row i] += values[o, i], without the rows of one index; units as in `write_table`."""
    p = words(args)
    indices, values, out, status = at(p[1], I), at(p[2], T), at(p[3], T), at(p[4], I)
    count, outer_step, inner, inner_step = p[5], p[6], p[7], p[8]
    value_outer, value_row, value_inner, skipped, axes = p[9], p[10], p[11], p[12], shifted(p, 13)
    if not are_rows(indices, count, axes, status):
        return  # before anything is written: a plan may have this write over what others have read
    size, step = axes[2], axes[3]
    for o in range(start // inner, (stop + inner - 1) // inner):
        first, last = max(start - o * inner, 0), min(stop - o * inner, inner)
        if axes[0] == inner == 1:
            target, source = shifted(out, o * outer_step), shifted(values, o * value_outer)
            for i in range(count):
                if indices[i] != skipped:
                    place = place_of(indices[i], size) * step
                    target[place] = T(target[place] + source[i * value_row])
            continue
        if axes[0] == inner_step == value_inner == 1:
            target, source = shifted(out, o * outer_step), shifted(values, o * value_outer)
            add_rows(
                shifted(target, first), indices, count, skipped, axes[2], axes[3],
                shifted(source, first), value_row, last - first, T,
            )  # fmt: skip
            continue
        for i in range(count):
            offset = row_offset(indices, count, i, axes, status)
            if offset == NOTHING:
                return
            if indices[i] == skipped:
                continue
            source = shifted(values, o * value_outer + i * value_row)
            target = shifted(out, o * outer_step + offset)
            for k in range(first, last):
                place = k * inner_step
                target[place] = T(target[place] + source[k * value_inner])


# Rows met one after the other, each with all that is added to it: the result is written once, and threads share
# out rows. Chains have for each row the first index that names it, then for each index the next one.
NO_MORE = -1


@kernel
def chain_rows(args, start, stop):
    """The chains of a table's rows, without the rows of one index; there is one unit, and one indexed axis."""
    p = words(args)
    indices, first, status = at(p[1], I), at(p[4], I), at(p[5], I)
    count, skipped, axes = p[6], p[9], shifted(p, 10)
    rows = axes[2]
    following = shifted(first, rows)
    for row in range(rows):
        first[row] = NO_MORE  # `add_chains` may run whatever is found here, as in the simulator
    if not are_rows(indices, count, axes, status):
        return  # before anything is written: a plan may have these sums over what others have read
    for i in range(count - 1, -1, -1):
        index = indices[i]
        if index != skipped:
            row = index + rows if index < 0 else index
            following[i] = first[row]
            first[row] = i


@kernel
def add_chains(args, start, stop):
    """out[row] = x[row] and the values of its chain, in order; a unit is a row."""
    p = words(args)
    x, values, out, first = at(p[0], T), at(p[2], T), at(p[3], T), at(p[4], I)
    inner, value_row, axes = p[7], p[8], shifted(p, 10)
    following = shifted(first, axes[2])
    for row in range(start, stop):
        before, target, i = shifted(x, row * inner), shifted(out, row * inner), first[row]
        if i == NO_MORE:
            if p[0] != p[3]:
                for k in range(inner):
                    target[k] = before[k]
            continue
        source = shifted(values, i * value_row)
        for k in range(inner):
            target[k] = T(before[k] + source[k])
        i = following[i]
        while i != NO_MORE:
            source = shifted(values, i * value_row)
            for k in range(inner):
                target[k] = T(target[k] + source[k])
            i = following[i]


# --------------------------------------------------------------------------- bags


@kernel
def end_of_bags(args, start, stop):
    """out = the last of the offsets at which bags begin, or -1 if one of them is no place in the indices or
    behind the next one, or the first is not 0. There is one unit.

    words: how many offsets, at least one, and how many indices
    """
    p = words(args)
    bounds, out, count, size = at(p[0], I), at(p[1], I), p[2], p[3]
    wrong = bounds[0] | -bounds[0]
    for k in range(count - 1):
        wrong |= bounds[k + 1] - bounds[k]  # which does not overflow between places
    is_fit = wrong >= 0 and are_places(bounds, count, 0, size + 1)
    out[0] = bounds[count - 1] if is_fit else -1


@helper
def bag_of(bag, bounds, beginnings, size, length):
    """Where the indices of a bag begin and end; the length is -1 where bags are of several."""
    if length < 0:
        return bounds[bag], bounds[bag + 1] if bag + 1 < beginnings else size
    return bag * length, (bag + 1) * length


@helper
def add_row(total, nothing, row, count, factor, is_weighted):
    """`total` and the first `count` elements of a row, times a factor, in as many lanes."""
    more = load_over(nothing, row, 0, count)
    return combine(add, total, combine(mul, more, spread_as(more, factor)) if is_weighted else more)


@helper
def look_ahead(table, columns, indices, size, i):
    """Ask for the beginning of the row that comes `AHEAD` indices later, in this bag or another."""
    prefetch(table, indices[min(i + AHEAD, size - 1)] * columns)


@instead_of(look_ahead)
def no_look_ahead(table, columns, indices, size, i):
    """On a GPU other warps run while one waits."""


@helper
def sum_part(nothing, count, apart, table, out, begin, end, counted, given, T):
    """out[:count], out[apart:apart + count] = the sums or means of these columns, in the lanes of `nothing`."""
    rows, columns, indices, size, padding, factors, is_weighted, is_mean, status = given
    total = others = nothing
    for i in range(begin, end):
        look_ahead(table, columns, indices, size, i)
        index = indices[i]
        if index < 0 or index >= rows:
            report(status, STATUS_INDEX, index, 0, rows)
            return
        if index != padding:
            row, factor = shifted(table, index * columns), factors[i] if is_weighted else T(1)
            total = add_row(total, nothing, row, count, factor, is_weighted)
            others = add_row(others, nothing, shifted(row, apart), count, factor, is_weighted)
    if is_mean:
        divisor = spread_as(nothing, T(max(counted, 1)))
        total, others = combine(truediv, total, divisor), combine(truediv, others, divisor)
    store_some(out, 0, total, count)
    store_some(out, apart, others, count)


@kernel
def sum_bags(args, start, stop):
    """out[bag] = the sum of the rows of a table that the bag's indices name, or their mean; a unit is a bag.

    inputs: the table, indices, where bags begin, a factor for each index; words: columns and rows of the table,
    how many indices, how many in a bag, or -1 where bags are of several lengths, how many beginnings, an index
    that does not count, whether there are factors, whether it is the mean

    Columns are summed in two runs at a time, which overlap where fewer are left: masks take longer.
    """
    p = words(args)
    table, indices, bounds, factors = at(p[0], T), at(p[1], I), at(p[2], I), at(p[3], T)
    out, status, columns, rows, size, length = at(p[4], T), at(p[5], I), p[6], p[7], p[8], p[9]
    beginnings, padding, is_weighted, is_mean = p[10], p[11], p[12], p[13]
    given = rows, columns, indices, size, padding, factors, is_weighted, is_mean, status
    for bag in range(start, stop):
        begin, end = bag_of(bag, bounds, beginnings, size, length)
        made, counted = shifted(out, bag * columns), 0
        if is_mean:
            for i in range(begin, end):
                counted += indices[i] != padding
        if columns >= 2 * LANES:
            for here in range(0, columns, 2 * LANES):
                first = min(here, columns - 2 * LANES)
                part, to = shifted(table, first), shifted(made, first)
                sum_part(spread(T(0)), LANES, LANES, part, to, begin, end, counted, given, T)
        elif columns > LANES:
            apart = columns - LANES
            sum_part(spread(T(0)), LANES, apart, table, made, begin, end, counted, given, T)
        elif columns > 16:
            lanes, apart = spread_over(T(0), 16), columns - 16
            sum_part(lanes, 16, apart, table, made, begin, end, counted, given, T)
        else:
            lanes, count, apart = spread_over(T(0), 8), min(columns, 8), max(columns - 8, 0)
            sum_part(lanes, count, apart, table, made, begin, end, counted, given, T)


@helper
def largest_part(
    table, rows, columns, here, indices, begin, end, padding, values, places, count, status, T
):
    """values[:count], places[:count] = the largest elements of that much of the rows, and whose they are."""
    best, chosen = spread(T(0)), spread(I(-1))
    is_first = True
    for i in range(begin, end):
        index = indices[i]
        if index < 0 or index >= rows:
            report(status, STATUS_INDEX, index, 0, rows)
            return
        if index == padding:
            continue
        row = load_block(table, index * columns + here, count, T(0))
        if is_first:
            best, chosen, is_first = row, spread(index), False
        else:
            larger = combine(max, best, row)
            chosen = where_moved(larger, best, spread(index), chosen)
            best = larger
    store_block(values, here, best, count)
    store_block(places, here, chosen, count)


@kernel
def largest_in_bags(args, start, stop):
    """values, places [bag, column] = the largest element, or a NaN, among the rows of a table that the bag's
    indices name, and the first row that has it; 0 and -1 for a bag of nothing. A unit is a bag.

    inputs: the table, indices, where bags begin; words: the first of those of `sum_bags`
    """
    p = words(args)
    table, indices, bounds, values = at(p[0], T), at(p[1], I), at(p[2], I), at(p[3], T)
    places, status, columns, rows, size = at(p[4], I), at(p[5], I), p[6], p[7], p[8]
    length, beginnings, padding = p[9], p[10], p[11]
    for bag in range(start, stop):
        begin, end = bag_of(bag, bounds, beginnings, size, length)
        to = bag * columns
        for here in range(0, columns, LANES):
            largest_part(
                table, rows, columns, here, indices, begin, end, padding, shifted(values, to),
                shifted(places, to), min(LANES, columns - here), status, T,
            )  # fmt: skip


# --------------------------------------------------------------------------- grids

# Words of a grid, after the addresses: along the indexed axis, the length of the index, the size
# of the tensor, and the strides of tensor, index and source; the same along the shared axis that
# lies last, where only its length counts; then the other axes: how many, sizes, three strides.
LENGTH, SIZE, ALONG_X, ALONG_INDEX, ALONG_SOURCE = 0, 1, 2, 3, 4
SHARED, SHARED_X, SHARED_INDEX, SHARED_SOURCE = 5, 6, 7, 8
AXIS, GROUP_AXES, GROUP_SIZES = 9, 10, 11


@helper
def group_offset(c, group, operand):
    """Where a group of lines begins in the tensor (1), the index (2) or the source (3)."""
    axes, sizes = c[GROUP_AXES], shifted(c, GROUP_SIZES)
    if axes == 1:  # without divisions
        return group * sizes[operand]
    return offset_of(group, axes, sizes, shifted(sizes, operand * axes))


@kernel
def read_grid(args, start, stop):
    """out[.., i, ..] = x[.., index[.., i, ..], ..]; a unit is a line along the indexed axis."""
    p = words(args)
    x, index, out, status, c = at(p[0], T), at(p[1], I), at(p[2], T), at(p[3], I), shifted(p, 4)
    shared, size, length = c[SHARED], c[SIZE], c[LENGTH]
    along_x, along_index, along_out = c[ALONG_X], c[ALONG_INDEX], c[ALONG_SOURCE]
    x_step, index_step, out_step = c[SHARED_X], c[SHARED_INDEX], c[SHARED_SOURCE]
    for group in range(start // shared, (stop + shared - 1) // shared):
        first, last = max(start - group * shared, 0), min(stop - group * shared, shared)
        source = shifted(x, group_offset(c, group, 1))
        place = shifted(index, group_offset(c, group, 2))
        target = shifted(out, group_offset(c, group, 3))
        if (
            shared == 1
            and along_index == 1
            and along_out == 1
            and are_places(place, length, 0, size)
        ):
            for i in range(length):
                target[i] = source[place[i] * along_x]
            continue
        for i in range(length):
            for k in range(first, last):
                chosen = place[i * along_index + k * index_step]
                if chosen < 0 or chosen >= size:
                    report(status, STATUS_INDEX, chosen, c[AXIS], size)
                    return
                target[i * along_out + k * out_step] = source[chosen * along_x + k * x_step]


@kernel
def write_grid(args, start, stop):
    """out[.., index[.., i, ..], ..] = source[.., i, ..]; units as in `read_grid`."""
    p = words(args)
    index, source, out, status = at(p[1], I), at(p[2], T), at(p[3], T), at(p[4], I)
    c = shifted(p, 5)
    shared, size, length = c[SHARED], c[SIZE], c[LENGTH]
    along_out, along_index, along_value = c[ALONG_X], c[ALONG_INDEX], c[ALONG_SOURCE]
    out_step, index_step, value_step = c[SHARED_X], c[SHARED_INDEX], c[SHARED_SOURCE]
    for group in range(start // shared, (stop + shared - 1) // shared):
        first, last = max(start - group * shared, 0), min(stop - group * shared, shared)
        target = shifted(out, group_offset(c, group, 1))
        place = shifted(index, group_offset(c, group, 2))
        value = shifted(source, group_offset(c, group, 3))
        if shared == 1 and along_index == 1 and are_places(place, length, 0, size):
            for i in range(length):
                target[place[i] * along_out] = value[i * along_value]
            continue
        for i in range(length):
            for k in range(first, last):
                chosen = place[i * along_index + k * index_step]
                if chosen < 0 or chosen >= size:
                    report(status, STATUS_INDEX, chosen, c[AXIS], size)
                    return
                target[chosen * along_out + k * out_step] = value[i * along_value + k * value_step]


@kernel
def one_hot(args, start, stop):
    """out[i, index[i]] = 1, all else 0; a unit is a row."""
    p = words(args)
    index, out, status, classes = at(p[0], I), at(p[1], I), at(p[2], I), p[3]
    for row in range(start, stop):
        target = shifted(out, row * classes)
        for k in range(classes):
            target[k] = 0
        chosen = index[row]
        if chosen < 0 or chosen >= classes:
            report(status, STATUS_INDEX, chosen, 0, classes)
            return
        target[chosen] = 1


SUM, PRODUCT, LARGEST, SMALLEST = 0, 1, 2, 3  # the scalar word of `reduce_grid`


@helper
def joined(old, value, reduction, T):
    """What two elements are reduced to; of the same ones the first, of NaNs one."""
    if reduction == SUM:
        return T(old + value)
    if reduction == PRODUCT:
        return T(old * value)
    is_further = value > old if reduction == LARGEST else value < old
    return value if is_further | (value != value) else old


@helper
def join_line(target, step, place, values, value_step, length, reduction, T):
    """`joined` at places, all of which there are; most often these are sums."""
    if reduction == SUM:
        for i in range(length):
            here = place[i] * step
            target[here] = T(target[here] + values[i * value_step])
        return
    for i in range(length):
        here = place[i] * step
        target[here] = joined(target[here], values[i * value_step], reduction, T)


@kernel
def reduce_grid(args, start, stop):
    """out[.., index[.., i, ..], ..] joined with source[.., i, ..] by one of the reductions."""
    p = words(args)
    index, source, out, status = at(p[1], I), at(p[2], T), at(p[3], T), at(p[4], I)
    c = shifted(p, 5)
    shared, size, length = c[SHARED], c[SIZE], c[LENGTH]
    along_out, along_index, along_value = c[ALONG_X], c[ALONG_INDEX], c[ALONG_SOURCE]
    out_step, index_step, value_step = c[SHARED_X], c[SHARED_INDEX], c[SHARED_SOURCE]
    reduction = c[GROUP_SIZES + 4 * c[GROUP_AXES]]
    for group in range(start // shared, (stop + shared - 1) // shared):
        first, last = max(start - group * shared, 0), min(stop - group * shared, shared)
        target = shifted(out, group_offset(c, group, 1))
        place = shifted(index, group_offset(c, group, 2))
        values = shifted(source, group_offset(c, group, 3))
        if shared == 1 and along_index == 1 and are_places(place, length, 0, size):
            join_line(target, along_out, place, values, along_value, length, reduction, T)
            continue
        for i in range(length):
            chosen = place[i * along_index + first * index_step]
            for k in range(first, last):
                if index_step != 0:
                    chosen = place[i * along_index + k * index_step]
                if chosen < 0 or chosen >= size:
                    report(status, STATUS_INDEX, chosen, c[AXIS], size)
                    return
                here, value = (
                    chosen * along_out + k * out_step,
                    values[i * along_value + k * value_step],
                )
                target[here] = joined(target[here], value, reduction, T)


# --------------------------------------------------------------------------- masks

COUNT_BLOCK = 4096


@kernel
def count_blocks(args, start, stop):
    """ends[1 + block] = how many elements of a block are not 0."""
    p = words(args)
    x, ends, size = at(p[0], T), at(p[1], I), p[2]
    for block in range(start, stop):
        found = I(0)
        for i in range(block * COUNT_BLOCK, min(block * COUNT_BLOCK + COUNT_BLOCK, size)):
            found += I(x[i] != T(0))
        ends[1 + block] = found


@kernel
def count_before(args, start, stop):
    """ends[block] = how many are not 0 in front of the block; the last one is the total."""
    p = words(args)
    ends, size = at(p[1], I), p[2]
    total = I(0)
    ends[0] = total
    for block in range((size + COUNT_BLOCK - 1) // COUNT_BLOCK):
        total += ends[1 + block]
        ends[1 + block] = total


@helper
def spread_places(places, start, stop, count, axes, sizes):
    """Coordinates, a column an axis, instead of the flat places, in order, in a part of the first column.

    A row is divided only where the last axis begins anew.
    """
    last = axes - 1
    inner, line = sizes[last], I(0)
    for row in range(start, stop):
        flat = places[row]
        if row == start or flat - line >= inner:
            rest = flat // inner
            line = rest * inner
            for axis in range(last - 1, -1, -1):
                places[axis * count + row] = rest % sizes[axis]
                rest //= sizes[axis]
        else:
            for axis in range(last):
                places[axis * count + row] = places[axis * count + row - 1]
        places[last * count + row] = flat - line


@kernel
def list_places(args, start, stop):
    """places[:, k] = the coordinates of the k-th element that is not 0; a unit is a block."""
    p = words(args)
    x, ends, places = at(p[0], T), at(p[1], I), at(p[2], I)
    count, axes = p[4], p[5]
    for block in range(start, stop):
        i, k = block * COUNT_BLOCK, ends[block]
        while k < ends[1 + block]:
            places[k] = i  # to be written over, unless the element is one of them
            k += I(x[i] != T(0))
            i += 1
        if axes > 1:
            spread_places(places, ends[block], k, count, axes, shifted(p, 6))


@kernel
def list_few(args, start, stop):
    """places = the coordinates of what is not 0, in columns, with room for all; count[0] = how many."""
    p = words(args)
    x, places, count, size, axes = at(p[0], T), at(p[1], I), at(p[2], I), p[3], p[4]
    found = I(0)
    for i in range(size):
        places[found] = i  # to be written over, unless the element is one of them
        found += I(x[i] != T(0))
    count[0] = found
    if axes > 1:
        spread_places(places, I(0), found, found, axes, shifted(p, 5))


@kernel
def pick_few(args, start, stop):
    """rows = those of x where the mask is set, with room for all; count[0] = how many."""
    p = words(args)
    x, mask, rows, count = at(p[0], T), at(p[1], X), at(p[2], T), at(p[3], I)
    size, width, found = p[4], p[5], I(0)
    for i in range(size):
        for k in range(width):
            rows[found * width + k] = x[i * width + k]  # to be written over, unless it is chosen
        found += I(mask[i] != X(0))
    count[0] = found


@kernel
def fill_masked(args, start, stop):
    """out[i] = the next element of the source where the mask is set, else x[i]; by blocks."""
    p = words(args)
    x, mask, source, ends = at(p[0], T), at(p[1], X), at(p[2], T), at(p[3], I)
    out, status, size, available = at(p[4], T), at(p[5], I), p[6], p[7]
    for block in range(start, stop):
        k = ends[block]
        for i in range(block * COUNT_BLOCK, min(block * COUNT_BLOCK + COUNT_BLOCK, size)):
            if mask[i] == 0:
                out[i] = x[i]
                continue
            if k >= available:
                report(status, STATUS_VALUE, available, k, 0)
                return
            out[i] = source[k]
            k += 1
