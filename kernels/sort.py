"""Sorting, selection and searching in the rows of C-ordered matrices.

Every dtype is compared through a key: an unsigned integer with the order of the values, in which
both zeros are equal and every NaN is the largest. Sorting takes the key's bytes from low to high,
each pass stable; selection takes them from high to low and never moves an element. Complemented
keys give the descending orders, with equal elements still in their old order.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .abi import I, T, at, helper, kernel, words
from .lanes import is_float, stack

U = np.uint64
SHORT = 32  # rows up to this length are sorted by insertion
FEW = 32  # so many largest elements are kept in order while a row is read
ALL_BITS = U(0xFFFFFFFFFFFFFFFF)


@intrinsic
def sort_key(typingctx: Any, value: Any) -> Any:
    """The key of a value, in the low bits of a uint64."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        bits = ir.IntType(value.bitwidth)
        sign = ir.Constant(bits, 1 << (value.bitwidth - 1))
        if is_float(value):
            zero = ir.Constant(args[0].type, 0.0)
            one_zero = builder.select(builder.fcmp_ordered("==", args[0], zero), zero, args[0])
            raw = builder.bitcast(one_zero, bits)
            spread_sign = builder.ashr(raw, ir.Constant(bits, value.bitwidth - 1))
            key = builder.xor(raw, builder.or_(spread_sign, sign))
            is_nan = builder.fcmp_unordered("uno", args[0], args[0])
            key = builder.select(is_nan, ir.Constant(bits, (1 << value.bitwidth) - 1), key)
        else:
            key = builder.xor(args[0], sign) if value.signed else args[0]
        return builder.zext(key, ir.IntType(64)) if value.bitwidth < 64 else key

    return types.uint64(value), codegen


@intrinsic
def size_of(typingctx: Any, dtype: Any) -> Any:
    """The bytes of one element."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return ir.Constant(ir.IntType(64), dtype.dtype.bitwidth // 8)

    return types.int64(dtype), codegen


@helper
def insertion_sort(keys, order, begin, length):
    """Sort a few (key, order) pairs in place, stably."""
    for i in range(1, length):
        key, place = keys[begin + i], order[begin + i]
        j = i
        while j > 0 and keys[begin + j - 1] > key:
            keys[begin + j] = keys[begin + j - 1]
            order[begin + j] = order[begin + j - 1]
            j -= 1
        keys[begin + j] = key
        order[begin + j] = place


@kernel
def sort_rows(args, start, stop):
    """values, indices = each row in order and where its elements come from; stable.

    words: length, elements in all rows, descending; scratch: three words for each element
    """
    p = words(args)
    x, values, indices, scratch = at(p[0], T), at(p[1], T), at(p[2], I), p[3]
    length, size, flip = p[4], p[5], ALL_BITS if p[6] else U(0)
    row_bytes = size * 8
    counts = stack(I, 256)
    for row in range(start, stop):
        begin = row * length
        keys, order = at(scratch, U), at(p[2], I)
        next_keys, next_order = at(scratch + row_bytes, U), at(scratch + 2 * row_bytes, I)
        for i in range(length):
            keys[begin + i] = sort_key(x[begin + i]) ^ flip
            order[begin + i] = i
        if length <= SHORT:
            insertion_sort(keys, order, begin, length)
        else:
            for byte in range(size_of(T)):
                shift = U(8 * byte)
                for digit in range(256):
                    counts[digit] = 0
                for i in range(begin, begin + length):
                    counts[I((keys[i] >> shift) & U(255))] += 1
                if counts[I((keys[begin] >> shift) & U(255))] == length:
                    continue
                total = begin
                for digit in range(256):
                    count = counts[digit]
                    counts[digit] = total
                    total += count
                for i in range(begin, begin + length):
                    digit = I((keys[i] >> shift) & U(255))
                    to = counts[digit]
                    counts[digit] = to + 1
                    next_keys[to] = keys[i]
                    next_order[to] = order[i]
                keys, next_keys = next_keys, keys
                order, next_order = next_order, order
        for i in range(begin, begin + length):
            place = order[i]
            indices[i] = place
            values[i] = x[begin + place]


@helper
def select_key(x, begin, length, rank, flip, size):
    """The key with `rank` smaller or equal keys before it, and how many of those are equal."""
    counts = stack(I, 256)
    prefix, mask = U(0), U(0)
    for step in range(size):
        shift = U(8 * (size - 1 - step))
        for digit in range(256):
            counts[digit] = 0
        for i in range(begin, begin + length):
            key = sort_key(x[i]) ^ flip
            if key & mask == prefix:
                counts[I((key >> shift) & U(255))] += 1
        digit = 0
        while rank >= counts[digit]:
            rank -= counts[digit]
            digit += 1
        prefix |= U(digit) << shift
        mask |= U(255) << shift
    return prefix, rank


@kernel
def first_rows(args, start, stop):
    """values, indices = the k largest or smallest elements of each row, in order; k <= FEW.

    Of equal elements the first are taken. words: length, k, largest
    """
    p = words(args)
    x, values, indices = at(p[0], T), at(p[1], T), at(p[2], I)
    length, k, flip = p[3], p[4], ALL_BITS if p[5] else U(0)
    keys, order = stack(U, FEW), stack(I, FEW)
    for row in range(start, stop):
        begin = row * length
        for i in range(length):
            key = sort_key(x[begin + i]) ^ flip
            if i >= k and key >= keys[k - 1]:
                continue
            j = min(i, k - 1)
            while j > 0 and keys[j - 1] > key:
                keys[j] = keys[j - 1]
                order[j] = order[j - 1]
                j -= 1
            keys[j] = key
            order[j] = i
        for j in range(k):
            indices[row * k + j] = order[j]
            values[row * k + j] = x[begin + order[j]]


@kernel
def topk_rows(args, start, stop):
    """values, indices = the k largest or smallest elements of each row, in the row's order.

    Of equal elements at the limit the first are taken. words: length, k, largest
    """
    p = words(args)
    x, values, indices = at(p[0], T), at(p[1], T), at(p[2], I)
    length, k = p[3], p[4]
    flip = (ALL_BITS >> U(64 - 8 * size_of(T))) if p[5] else U(0)
    for row in range(start, stop):
        begin, to = row * length, row * k
        limit, equals = select_key(x, begin, length, k - 1, flip, size_of(T))
        equals += 1
        for i in range(length):
            key = sort_key(x[begin + i]) ^ flip
            if key < limit or (key == limit and equals > 0):
                equals -= key == limit
                values[to] = x[begin + i]
                indices[to] = i
                to += 1


@kernel
def kth_rows(args, start, stop):
    """values, indices = the element of a rank in each row, and the first place where it is.

    words: length, rank; a rank of -1 is the lower median, NaN if there is one, and -2 the lower
    median of what is no NaN
    """
    p = words(args)
    x, values, indices = at(p[0], T), at(p[1], T), at(p[2], I)
    length = p[3]
    for row in range(start, stop):
        begin, rank = row * length, p[4]
        if rank < 0:
            numbers = 0
            for i in range(begin, begin + length):
                numbers += x[i] == x[i]
            rank = (
                length - 1
                if numbers == 0 or (rank == -1 and numbers < length)
                else (numbers - 1) // 2
            )
        wanted, _ = select_key(x, begin, length, rank, U(0), size_of(T))
        place = begin
        while sort_key(x[place]) != wanted:
            place += 1
        values[row] = x[place]
        indices[row] = place - begin


@kernel
def mode_rows(args, start, stop):
    """values, indices = the commonest element of each sorted row, and its last place.

    Of equally common elements the smallest is taken. inputs: what sort_rows gave; words: length
    """
    p = words(args)
    x, order, values, indices = at(p[0], T), at(p[1], I), at(p[2], T), at(p[3], I)
    length = p[4]
    for row in range(start, stop):
        begin = row * length
        most = run = 0
        for i in range(begin, begin + length):
            run = run + 1 if i > begin and sort_key(x[i]) == sort_key(x[i - 1]) else 1
            if run > most:
                most = run
                values[row] = x[i]
                indices[row] = order[i]


@helper
def compare_records(x, i, j, width):
    """-1, 0 or 1 for the order of the records at elements i and j; a NaN differs from all."""
    for k in range(width):
        a, b = x[i + k], x[j + k]
        if a != b:
            return -1 if sort_key(a) < sort_key(b) else 1
    return 0


@kernel
def sort_records(args, start, stop):
    """order = the stable order of the records of a matrix, compared element by element.

    words: records, width; scratch: one word for each record; one unit
    """
    p = words(args)
    x, order, spare = at(p[0], T), at(p[1], I), at(p[2], I)
    records, width = p[3], p[4]
    for i in range(records):
        order[i] = i
    run = 1
    while run < records:
        for left in range(0, records, 2 * run):
            middle, right = min(left + run, records), min(left + 2 * run, records)
            i, j = left, middle
            for to in range(left, right):
                second = i == middle or (
                    j < right and compare_records(x, order[j] * width, order[i] * width, width) < 0
                )
                if second:
                    spare[to] = order[j]
                    j += 1
                else:
                    spare[to] = order[i]
                    i += 1
        for i in range(records):
            order[i] = spare[i]
        run *= 2


@kernel
def distinct(args, start, stop):
    """Number the runs of equal records met in an order.

    inputs: records, order; outputs: the first place of each run, the number of each record's run,
    the runs' lengths, the number of runs; words: records, width; one unit
    """
    p = words(args)
    x, order = at(p[0], T), at(p[1], I)
    firsts, inverse, counts, number = at(p[2], I), at(p[3], I), at(p[4], I), at(p[5], I)
    records, width = p[6], p[7]
    runs = 0
    for i in range(records):
        place = order[i]
        if i == 0 or compare_records(x, order[i - 1] * width, place * width, width) != 0:
            firsts[runs] = place
            counts[runs] = 0
            runs += 1
        inverse[place] = runs - 1
        counts[runs - 1] += 1
    number[0] = runs


@kernel
def search_rows(args, start, stop):
    """out = where each value would be put into its sorted row.

    inputs: sorted rows, values; words: length, values in a row, rows (1: one for all), right
    """
    p = words(args)
    x, values, out = at(p[0], T), at(p[1], T), at(p[2], I)
    length, per_row, rows, right = p[3], p[4], p[5], p[6]
    for i in range(start, stop):
        value = values[i]
        begin = i // per_row * length if rows > 1 else 0
        low, high = begin, begin + length
        while low < high:
            middle = low + (high - low) // 2
            before = not (x[middle] > value) if right else not (x[middle] >= value)
            if before:
                low = middle + 1
            else:
                high = middle
        out[i] = low - begin
