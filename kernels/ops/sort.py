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
from numba.core import cgutils
from numba.extending import intrinsic

from ..language.abi import I, T, at, helper, kernel, quotient, remainder, words
from ..language.device import (
    atomic_add,
    atomic_max,
    atomic_min,
    barrier,
    block,
    blocks,
    lane,
    local,
    on_device,
    shared,
    shuffle,
    shuffle_up,
    thread,
)
from ..language.lanes import CACHE_LINE, LANES, is_float, load, size_of, stack, store
from ..language.processor import MASKS_STORES, VECTOR_BYTES

U = np.uint64
SHORT = 32  # in rows up to this length an element of some rank is found by counting
COUNTED = (
    16  # rows of so many elements for each byte of one are sorted by counting: a byte takes a pass
)
DIGITS, FEW_DIGITS = 1024, 256  # by which elements of a row are counted where one is looked for
TABLES = 2 * DIGITS + 16
KEPT = 1024  # so many that may be the one are kept
KEPT_ROOM = KEPT + 1
FEW = 32  # so many largest elements are kept in order while a row is read
# Elements of which it is seen at once whether one is among the first so far, and how many wait to be looked
# through again. The 40 largest of 16 rows of 50,257 take 0.4 ms for 3.8.
GLANCE, CANDIDATES = 32, 2048
ALL_BITS, TOP_BIT, LOW = U(0xFFFFFFFFFFFFFFFF), U(1 << 63), 0xFFFFFFFF
ABREAST = 16  # short rows that are sorted side by side, each in a lane
SHORT_ROW = 256  # the longest of them
FEWEST_ABREAST = 8  # so many rows are worth it
ROOM = SHORT_ROW * ABREAST


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


@helper
def smaller_ones(keys, begin, i, length):
    """How many elements of a row come before one in a stable order: counted without branches, many at once."""
    key, smaller = keys[begin + i], 0
    for j in range(begin, begin + i):
        smaller += keys[j] <= key
    for j in range(begin + i + 1, begin + length):
        smaller += keys[j] < key
    return smaller


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
        if length <= COUNTED * size_of(T):
            for i in range(length):
                place = begin + smaller_ones(keys, begin, i, length)
                indices[place] = i
                values[place] = x[begin + i]
            continue
        for i in range(length):
            order[begin + i] = i
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


@intrinsic
def put(typingctx: Any, keys: Any, place: Any, key: Any) -> Any:
    """Write the low bits of a key, as many as there is room for."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        low = args[2]
        if keys.dtype.bitwidth < key.bitwidth:
            low = builder.trunc(low, ir.IntType(keys.dtype.bitwidth))
        builder.store(low, builder.gep(args[0], [args[1]]))
        return context.get_dummy_value()

    return types.void(keys, types.int64, key), codegen


@intrinsic
def exchange(typingctx: Any, keys: Any, i: Any, j: Any) -> Any:
    """Put two lines of `ABREAST` keys in order, lane by lane."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        places = [line_of(builder, args[0], k) for k in args[1:]]
        a, b = (builder.load(place, align=CACHE_LINE) for place in places)
        compare = builder.icmp_signed if keys.dtype.signed else builder.icmp_unsigned
        is_ordered = compare("<", a, b)
        builder.store(builder.select(is_ordered, a, b), places[0], align=CACHE_LINE)
        builder.store(builder.select(is_ordered, b, a), places[1], align=CACHE_LINE)
        return context.get_dummy_value()

    return types.void(keys, types.int64, types.int64), codegen


@intrinsic
def exchange_pairs(typingctx: Any, keys: Any, order: Any, i: Any, j: Any) -> Any:
    """As `exchange`, of keys with a number each, which is compared where the keys are equal."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        lines = [[line_of(builder, each, k) for k in args[2:]] for each in args[:2]]
        (a, b), (m, n) = ([builder.load(at, align=CACHE_LINE) for at in two] for two in lines)
        is_ordered = builder.icmp_signed("<", a, b)
        is_first = builder.and_(builder.icmp_signed("==", a, b), builder.icmp_signed("<", m, n))
        is_ordered = builder.or_(is_ordered, is_first)
        for (low, high), (one, other) in zip(lines, ((a, b), (m, n)), strict=True):
            builder.store(builder.select(is_ordered, one, other), low, align=CACHE_LINE)
            builder.store(builder.select(is_ordered, other, one), high, align=CACHE_LINE)
        return context.get_dummy_value()

    return types.void(keys, order, types.int64, types.int64), codegen


def line_of(builder: Any, keys: Any, line: Any) -> Any:
    """The address of a line of `ABREAST` numbers."""
    first = builder.gep(keys, [builder.mul(line, line.type(ABREAST))])
    return builder.bitcast(first, ir.VectorType(keys.type.pointee, ABREAST).as_pointer())


@helper
def sort_abreast(keys, order, length, with_order):
    """Sort `ABREAST` rows that lie side by side, by Batcher's merge exchange: the same steps for all of them.

    (D. Knuth, The Art of Computer Programming 3, 5.2.2, algorithm M)
    """
    top = 1
    while 2 * top < length:
        top *= 2
    half = top
    while half > 0:
        reach, away, rest = top, half, 0
        while True:
            for first in range(rest, length - away, 2 * half):
                for i in range(first, min(first + half, length - away)):
                    if with_order:
                        exchange_pairs(keys, order, i, i + away)
                    else:
                        exchange(keys, i, i + away)
            if reach == half:
                break
            away, reach, rest = reach - half, reach // 2, half
        half //= 2


@helper
def put_key(keys, order, to, key, i, is_wide):
    """Write a key that is sorted abreast and its place: in the low half, if the key leaves it free."""
    if is_wide:
        order[to] = i
    else:
        key = key << U(32) | U(i)
    keys[to] = I(key ^ TOP_BIT)


@helper
def find_rows(begins, row, lanes, length, step):
    """Where rows begin whose elements are `step` apart, as those along an axis of a tensor in C order; whether
    a whole group of them lies side by side."""
    for c in range(lanes):
        outer = (row + c) // step
        begins[c] = row + c + outer * step * (length - 1)
    return lanes == ABREAST and begins[ABREAST - 1] - begins[0] == ABREAST - 1


@helper
def read_keys(x, keys, begins, lanes, length, step, flip, is_group):
    """The keys of rows that are sorted side by side, one row a lane; some bits of each turned over."""
    if is_group:
        begin = begins[0]
        for i in range(length):
            for c in range(ABREAST):
                put(keys, i * ABREAST + c, sort_key(x[begin + i * step + c]) ^ flip)
    else:
        for c in range(lanes):
            begin = begins[c]
            for i in range(length):
                put(keys, i * ABREAST + c, sort_key(x[begin + i * step]) ^ flip)


@helper
def sort_group(x, keys, order, begins, row, lanes, length, step, flip, is_wide):
    """Sort keys of `ABREAST` rows at most, each in a lane, and find where the rows begin."""
    if find_rows(begins, row, lanes, length, step):
        begin = begins[0]
        for i in range(length):
            for c in range(ABREAST):
                key = sort_key(x[begin + i * step + c]) ^ flip
                put_key(keys, order, i * ABREAST + c, key, i, is_wide)
    else:
        for c in range(lanes):
            begin = begins[c]
            for i in range(length):
                key = sort_key(x[begin + i * step]) ^ flip
                put_key(keys, order, i * ABREAST + c, key, i, is_wide)
    sort_abreast(keys, order, length, is_wide)


@kernel
def sort_short_rows(args, start, stop):
    """values, indices = each row in order and where its elements come from; stable. length <= SHORT_ROW

    words: length, what the elements of a row are apart, descending
    """
    p = words(args)
    x, values, indices = at(p[0], T), at(p[1], T), at(p[2], I)
    length, step, flip, is_wide = p[3], p[4], ALL_BITS if p[5] else U(0), size_of(T) == 8
    keys, order, begins = stack(I, ROOM), stack(I, ROOM), stack(I, ABREAST)
    places = order if is_wide else keys
    for row in range(start, stop, ABREAST):
        lanes = min(ABREAST, stop - row)
        sort_group(x, keys, order, begins, row, lanes, length, step, flip, is_wide)
        for c in range(lanes):
            begin = begins[c]
            for i in range(length):
                place = places[i * ABREAST + c] & LOW
                indices[begin + i * step] = place
                values[begin + i * step] = x[begin + place * step]


@helper
def keep_between(x, begin, length, low, high, flip, kept):
    """Keep the keys of a row that are within bounds; one more is written behind them."""
    found = 0
    for i in range(length):
        key = sort_key(x[begin + i]) ^ flip
        kept[found] = key
        found += key - low <= high - low


@helper
def select_key(x, begin, length, rank, flip):
    """The key with `rank` smaller or equal keys before it, and how many of those are equal.

    Keys between two bounds are counted by the first bits in which any of them differ, which gives closer
    bounds. Once there are few between them, they are kept.
    """
    kept, counts = stack(U, KEPT_ROOM), stack(I, TABLES)
    low, high, count, is_kept = U(0), ALL_BITS, length, length <= KEPT
    if is_kept:
        keep_between(x, begin, length, low, high, flip, kept)
    while not is_kept or count > SHORT:
        least, most = high, low
        if is_kept:
            for i in range(count):
                least, most = min(least, kept[i]), max(most, kept[i])
        else:
            for i in range(length):
                key = sort_key(x[begin + i]) ^ flip
                is_between = key - low <= high - low
                least = min(least, key if is_between else high)
                most = max(most, key if is_between else low)
        low, high = least, most
        if low == high:
            return low, rank
        digits = FEW_DIGITS if count <= 4 * DIGITS else DIGITS
        shift = U(0)
        while (high - low) >> shift >= U(digits):
            shift += U(1)
        for digit in range(2 * digits + 16):
            counts[digit] = 0
        # By turns at two places, or 16 for all out of bounds: an addition would wait for the one before.
        if is_kept:
            for i in range(count):
                counts[2 * I((kept[i] - low) >> shift) + (i & 1)] += 1
        else:
            for i in range(length):
                away = (sort_key(x[begin + i]) ^ flip) - low
                digit = 2 * I(away >> shift) + (i & 1)
                counts[digit if away <= high - low else 2 * digits + (i & 15)] += 1
        digit = 0
        while rank >= counts[2 * digit] + counts[2 * digit + 1]:
            rank -= counts[2 * digit] + counts[2 * digit + 1]
            digit += 1
        low += U(digit) << shift
        high = low + min(high - low, (U(1) << shift) - U(1))
        before, count = count, counts[2 * digit] + counts[2 * digit + 1]
        if is_kept:
            found = 0
            for i in range(before):
                key = kept[i]
                kept[found] = key
                found += key - low <= high - low
        elif count <= KEPT:
            keep_between(x, begin, length, low, high, flip, kept)
            is_kept = True
    i = 0
    while smaller_ones(kept, 0, i, count) != rank:
        i += 1
    equals = 0
    for j in range(i):
        equals += kept[j] == kept[i]
    return kept[i], equals


@helper
def has_smaller(x, first, count, flip, limit):
    """Whether the key of one of the next elements, `GLANCE` of them if there are as many, is below a limit."""
    found = 0
    if count >= GLANCE:
        for i in range(first, first + GLANCE):
            found |= I((sort_key(x[i]) ^ flip) < limit)
        return found != 0
    for i in range(first, first + count):
        found |= I((sort_key(x[i]) ^ flip) < limit)
    return found != 0


@helper
def keep_smallest(keys, places, count, k):
    """Keep the k smallest of some keys, and their places, in their order; the largest of them."""
    limit, equals = select_key(keys, 0, count, k - 1, U(0))
    equals += 1
    to = 0
    for i in range(count):
        key = keys[i]
        if key < limit or (key == limit and equals > 0):
            equals -= key == limit
            keys[to], places[to] = key, places[i]
            to += 1
    return limit


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
        for first in range(0, length, GLANCE):
            if first >= k and not has_smaller(x, begin + first, length - first, flip, keys[k - 1]):
                continue
            for i in range(first, min(first + GLANCE, length)):
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
    keys, places = stack(U, CANDIDATES), stack(I, CANDIDATES)
    room = min(4 * k, CANDIDATES - GLANCE)
    for row in range(start, stop):
        begin, to = row * length, row * k
        if 2 * k <= room:
            count, limit, is_limited = 0, U(0), False
            for first in range(0, length, GLANCE):
                if is_limited and not has_smaller(x, begin + first, length - first, flip, limit):
                    continue
                for i in range(first, min(first + GLANCE, length)):
                    key = sort_key(x[begin + i]) ^ flip
                    if not is_limited or key < limit:
                        keys[count], places[count] = key, i
                        count += 1
                if count > room:
                    limit, is_limited = keep_smallest(keys, places, count, k), True
                    count = k
            if count > k:
                keep_smallest(keys, places, count, k)
            for j in range(k):
                indices[to + j] = places[j]
                values[to + j] = x[begin + places[j]]
            continue
        limit, equals = select_key(x, begin, length, k - 1, flip)
        equals += 1
        for i in range(length):
            key = sort_key(x[begin + i]) ^ flip
            if key < limit or (key == limit and equals > 0):
                equals -= key == limit
                values[to] = x[begin + i]
                indices[to] = i
                to += 1


@helper
def rank_of(rank, length, numbers):
    """The rank that is wanted in a row: -1 is the lower median, NaN if not all are numbers, and -2 the lower
    median of what is no NaN."""
    if rank >= 0:
        return rank
    is_last = numbers == 0 or (rank == -1 and numbers < length)
    return length - 1 if is_last else (numbers - 1) // 2


@helper
def first_place(x, begin, step, key):
    """The first place in a row where a key is."""
    place = 0
    while sort_key(x[begin + place * step]) != key:
        place += 1
    return place


@kernel
def kth_rows(args, start, stop):
    """values, indices = the element of a rank in each row, and the first place where it is.

    words: length, a rank as of `rank_of`
    """
    p = words(args)
    x, values, indices = at(p[0], T), at(p[1], T), at(p[2], I)
    length, keys = p[3], stack(U, SHORT)
    for row in range(start, stop):
        begin, numbers = row * length, 0
        if p[4] < 0:
            for i in range(begin, begin + length):
                numbers += x[i] == x[i]
        rank = rank_of(p[4], length, numbers)
        if length <= SHORT:
            for i in range(length):
                keys[i] = sort_key(x[begin + i])
            i = 0
            while smaller_ones(keys, 0, i, length) != rank:
                i += 1
            wanted = keys[i]
        else:
            wanted, _ = select_key(x, begin, length, rank, U(0))
        place = first_place(x, begin, 1, wanted)
        values[row] = x[begin + place]
        indices[row] = place


@helper
def key_at(wide, narrow, i, c, is_wide):
    """The key of some rank in the row of a lane."""
    to = i * ABREAST + c
    return U(wide[to]) ^ TOP_BIT if is_wide else U(narrow[to])


@kernel
def kth_short_rows(args, start, stop):
    """As `kth_rows`, in rows that are sorted side by side. length <= SHORT_ROW

    words: length, what the elements of a row are apart, a rank as of `rank_of`
    """
    p = words(args)
    x, values, indices = at(p[0], T), at(p[1], T), at(p[2], I)
    length, step, begins, is_wide = p[3], p[4], stack(I, ABREAST), size_of(T) == 8
    wide, narrow = stack(I, ROOM), stack(np.uint32, ROOM)
    may_be_nan, nan = p[5] < 0 and T(0.5) != T(0), ALL_BITS >> U(64 - 8 * size_of(T))
    for row in range(start, stop, ABREAST):
        lanes = min(ABREAST, stop - row)
        is_group = find_rows(begins, row, lanes, length, step)
        if is_wide:
            read_keys(x, wide, begins, lanes, length, step, TOP_BIT, is_group)
            sort_abreast(wide, wide, length, False)
        else:
            read_keys(x, narrow, begins, lanes, length, step, U(0), is_group)
            sort_abreast(narrow, narrow, length, False)
        for c in range(lanes):
            begin, numbers = begins[c], length
            while (
                may_be_nan and numbers > 0 and key_at(wide, narrow, numbers - 1, c, is_wide) == nan
            ):
                numbers -= 1
            rank = rank_of(p[5], length, numbers)
            place = first_place(x, begin, step, key_at(wide, narrow, rank, c, is_wide))
            values[row + c] = x[begin + place * step]
            indices[row + c] = place


@kernel
def mode_rows(args, start, stop):
    """values, indices = the commonest element of each sorted row, and its last place.

    Of equally common elements the smallest is taken; a NaN is as common as 1. inputs: what sort_rows gave;
    words: length
    """
    p = words(args)
    x, order, values, indices = at(p[0], T), at(p[1], I), at(p[2], T), at(p[3], I)
    length = p[4]
    for row in range(start, stop):
        begin = row * length
        most = run = 0
        before, last = x[begin], begin
        for i in range(begin, begin + length):
            run = run + 1 if x[i] == before else 1
            before = x[i]
            last = i if run > most else last
            most = max(most, run)
        values[row] = x[last]
        indices[row] = order[last]


@kernel
def mode_short_rows(args, start, stop):
    """values, indices = the commonest element of each row, and its last place, as `mode_rows` finds them.

    Rows are sorted side by side. length <= SHORT_ROW; words: length, what the elements of a row are apart
    """
    p = words(args)
    x, values, indices = at(p[0], T), at(p[1], T), at(p[2], I)
    length, step, is_wide = p[3], p[4], size_of(T) == 8
    keys, order, begins = stack(I, ROOM), stack(I, ROOM), stack(I, ABREAST)
    runs, most, last = stack(I, ABREAST), stack(I, ABREAST), stack(I, ABREAST)
    places, shift = (order, 0) if is_wide else (keys, 32)
    nan = ALL_BITS >> U(64 - 8 * size_of(T))
    nan = I((nan if is_wide else nan << U(32)) ^ TOP_BIT) >> shift
    is_whole = T(0.5) == T(0)
    for row in range(start, stop, ABREAST):
        lanes = min(ABREAST, stop - row)
        sort_group(x, keys, order, begins, row, lanes, length, step, U(0), is_wide)
        for c in range(ABREAST):
            runs[c] = most[c] = last[c] = 0
        for i in range(0, ABREAST * length, ABREAST):
            before = max(i - ABREAST, 0)
            for c in range(ABREAST):
                key = keys[i + c] >> shift
                is_same = (key == (keys[before + c] >> shift)) & ((key != nan) | is_whole)
                runs[c] = runs[c] + 1 if is_same else 1
                last[c] = i if runs[c] > most[c] else last[c]
                most[c] = max(most[c], runs[c])
        for c in range(lanes):
            place = places[last[c] + c] & LOW
            values[row + c] = x[begins[c] + place * step]
            indices[row + c] = place


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


@intrinsic
def unequal_lanes(typingctx: Any, a: Any, b: Any) -> Any:
    """A bit for each of two lanes' elements: whether they differ, as a NaN does from all."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        compare = builder.fcmp_unordered if is_float(a) else builder.icmp_unsigned
        bits = builder.bitcast(compare("!=", *args), ir.IntType(LANES))
        return builder.zext(bits, ir.IntType(64))

    return types.int64(a, b), codegen


@helper
def new_ones(x, first, count, width):
    """A bit for each of some records, `LANES` at most: whether it differs from the one before."""
    if width == 1 and first > 0 and count == LANES:
        return unequal_lanes(load(x, first), load(x, first - 1))
    bits = I(0)
    for k in range(count):
        i = first + k
        is_new = i == 0 or compare_records(x, (i - 1) * width, i * width, width) != 0
        bits |= I(is_new) << k
    return bits


@intrinsic
def keep_lanes(typingctx: Any, x: Any, first: Any, bits: Any, values: Any, run: Any) -> Any:
    """As `keep_new`, for `LANES` elements: where the processor does it, a register's at a time are brought
    together, and what else is written there is overwritten by the next."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        source, begin, told, target, number = args
        size = x.dtype.bitwidth // 8
        some = min(LANES, VECTOR_BYTES // size) if MASKS_STORES and size >= 4 else 1
        vector = ir.VectorType(context.get_data_type(x.dtype), some)
        mask = ir.VectorType(ir.IntType(1), some)
        kind = ir.FunctionType(vector, [vector, mask, vector])
        name = f"llvm.experimental.vector.compress.v{some}{vector.element.intrinsic_name}"
        for k in range(0, LANES, some):
            where = builder.gep(source, [builder.add(begin, begin.type(k))])
            place = builder.gep(target, [builder.add(number, number.type(1))])
            part = builder.and_(builder.lshr(told, told.type(k)), told.type((1 << some) - 1))
            if some == 1:
                builder.store(builder.load(where), place)
            else:
                found = builder.load(builder.bitcast(where, vector.as_pointer()), align=size)
                is_new = builder.bitcast(builder.trunc(part, ir.IntType(some)), mask)
                function = cgutils.get_or_insert_function(builder.module, kind, name)
                found = builder.call(function, [found, is_new, ir.Constant(vector, ir.Undefined)])
                builder.store(found, builder.bitcast(place, vector.as_pointer()), align=size)
                part = builder.ctpop(part)
            number = builder.add(number, part)
        return number

    return types.int64(x, types.int64, types.int64, values, types.int64), codegen


@helper
def keep_new(x, values, first, count, bits, run):
    """Write the elements that begin a run, and return the last one's number. Each is written where the next run
    would begin, and stays there if it does: no jumps."""
    for k in range(count):
        values[run + 1] = x[first + k]
        run += (bits >> k) & 1
    return run


@helper
def number_runs(inverse, counts, first, count, bits, run):
    """Write the run of each record and where runs begin, as `keep_new` does."""
    for k in range(count):
        counts[run + 1] = first + k
        run += (bits >> k) & 1
        inverse[first + k] = run


@kernel
def neighbours(args, start, stop):
    """The records that differ from the one before, and how many there are.

    outputs: these, the number of each record's run, the runs' lengths, the number of runs; words: records,
    width, whether the second and the third are wanted; one unit
    """
    p = words(args)
    x, values, inverse = at(p[0], T), at(p[1], T), at(p[2], I)
    counts, number = at(p[3], I), at(p[4], I)
    records, width, wanted = p[5], p[6], p[7]
    run = -1
    for first in range(0, records, LANES):
        count = min(LANES, records - first)
        bits = new_ones(x, first, count, width)
        if wanted and count == LANES:
            number_runs(inverse, counts, first, LANES, bits, run)
        elif wanted:
            number_runs(inverse, counts, first, count, bits, run)
        if width > 1:
            for k in range(count):
                if (bits >> k) & 1:
                    run += 1
                    for e in range(width):
                        values[run * width + e] = x[(first + k) * width + e]
        elif bits == (1 << LANES) - 1:
            store(values, run + 1, load(x, first))
            run += LANES
        elif bits and count == LANES:
            run = keep_lanes(x, first, bits, values, run)
        elif bits:
            run = keep_new(x, values, first, count, bits, run)
    number[0] = run + 1
    if wanted:
        for k in range(run):
            counts[k] = counts[k + 1] - counts[k]
        if run >= 0:
            counts[run] = records - counts[run]


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


# --------------------------------------------------------------------------- CUDA

# Rows that a warp has a lane for each element of are ranked by it. Longer ones are cut into tiles, which
# blocks sort in shared memory; then each launch merges runs to ones of twice the length, a block a tile of
# the result. Selection counts digits as on the CPU, by a whole block.

THREADS = 256
WARPS = THREADS // 32
EACH = 4  # neighbours that a thread sorts or merges
TILE = THREADS * EACH


def is_short(c, letters):
    """Whether the rows of a sort are no longer than a warp is wide."""
    return c[0] <= 32


def tiles_of_rows(c):
    """The tiles of all rows, from the words of a sort: the length of a row, elements in all rows."""
    return c[1] // max(c[0], 1) * -(-c[0] // TILE)


def tiles_of_records(c):
    """The tiles of a sort of records."""
    return -(-c[0] // TILE)


def merges(c):
    """For each launch the length of the runs that it merges, none in the first, and the launches after it."""
    runs = [0]
    while max(2 * runs[-1], TILE) < c[0]:
        runs.append(2 * runs[-1] or TILE)
    return [(run, len(runs) - 1 - k) for k, run in enumerate(runs)]


@on_device(sort_rows, units=WARPS, when=is_short)
def sort_by_warps(row, n):
    """Short rows in order: an element's place is how many go before it."""
    x, values, indices = at(row[0], T), at(row[1], T), at(row[2], I)
    length, flip = row[4], ALL_BITS if row[6] else U(0)
    for unit in range(block() * WARPS + thread() // 32, n, blocks() * WARPS):
        begin, here = unit * length, I(lane())
        key = ALL_BITS
        if here < length:
            key = sort_key(x[begin + here]) ^ flip
        place = 0
        for k in range(length):
            other = shuffle(key, np.int32(k))
            if other < key or (other == key and k < here):
                place += 1
        if here < length:
            values[begin + place] = x[begin + here]
            indices[begin + place] = here


@helper
def merge_cut(keys, a, a_count, b, b_count, k):
    """How many of the first k of two sorted runs together are from the one at a; of equals its go first."""
    low, high = max(k - b_count, 0), min(k, a_count)
    while low < high:
        middle = (low + high) >> 1
        if keys[a + middle] <= keys[b + k - 1 - middle]:
            low = middle + 1
        else:
            high = middle
    return low


@helper
def merge_some(keys, order, a, a_end, b, b_end, some_keys, some_order, count):
    """The first `count` of what is left of two sorted runs, which begin at a and b."""
    for e in range(EACH):
        if e < count:
            take = a
            if a >= a_end or (b < b_end and keys[b] < keys[a]):
                take = b
                b += 1
            else:
                a += 1
            some_keys[e] = keys[take]
            some_order[e] = order[take]


@helper
def sort_tile(keys, order, count, some_keys, some_order):
    """Sort the first elements of a tile in shared memory, stably."""
    mine = thread() * EACH
    some = min(count - mine, EACH)
    insertion_sort(keys, order, mine, some)
    barrier()
    run = EACH
    while run < count:
        a = mine // (2 * run) * (2 * run)
        b, end = min(a + run, count), min(a + 2 * run, count)
        if some > 0:
            cut = merge_cut(keys, a, b - a, b, end - b, mine - a)
            merge_some(
                keys, order, a + cut, b, b + mine - a - cut, end, some_keys, some_order, some
            )
        barrier()
        for e in range(EACH):
            if e < some:
                keys[mine + e] = some_keys[e]
                order[mine + e] = some_order[e]
        barrier()
        run *= 2


@on_device(sort_rows, work=tiles_of_rows, passes=merges)
def sort_by_tiles(row, n):
    """Rows in order, by tiles; what launches leave each other lies in the scratch memory and in `indices`."""
    x, values, indices = at(row[0], T), at(row[1], T), at(row[2], I)
    length, nbytes, flip, run, later = (
        row[4],
        row[5] * 8,
        ALL_BITS if row[6] else U(0),
        row[7],
        row[8],
    )
    first_keys, second_keys = at(row[3], U), at(row[3] + nbytes, U)
    second_order = at(row[3] + 2 * nbytes, I)
    from_keys, from_order = (first_keys, indices) if later % 2 else (second_keys, second_order)
    to_keys, to_order = (second_keys, second_order) if later % 2 else (first_keys, indices)
    keys, order, cuts = shared(U, TILE), shared(I, TILE), shared(I, 2)
    some_keys, some_order = local(U, EACH), local(I, EACH)
    tiles, t = (length + TILE - 1) // TILE, I(thread())
    for unit in range(block(), n, blocks()):
        begin, first = quotient(unit, tiles) * length, remainder(unit, tiles) * TILE
        count = min(length - first, TILE)
        if run == 0:
            for i in range(t, count, THREADS):
                keys[i] = sort_key(x[begin + first + i]) ^ flip
                order[i] = first + i
            barrier()
            sort_tile(keys, order, count, some_keys, some_order)
        else:
            a = quotient(first, 2 * run) * 2 * run
            b, end = min(a + run, length), min(a + 2 * run, length)
            if t < 2:
                k = min(first - a + t * TILE, end - a)
                cuts[t] = merge_cut(from_keys, begin + a, b - a, begin + b, end - b, k)
            barrier()
            middle = cuts[1] - cuts[0]
            a, b = begin + a + cuts[0], begin + b + first - a - cuts[0] - middle
            for i in range(t, count, THREADS):
                place = i + (a if i < middle else b)
                keys[i] = from_keys[place]
                order[i] = from_order[place]
            barrier()
            mine = t * EACH
            some = min(count - mine, EACH)
            if some > 0:
                cut = merge_cut(keys, 0, middle, middle, count - middle, mine)
                merge_some(keys, order, cut, middle, middle + mine - cut, count,
                           some_keys, some_order, some)  # fmt: skip
            barrier()
            for e in range(EACH):
                if e < some:
                    keys[mine + e] = some_keys[e]
                    order[mine + e] = some_order[e]
            barrier()
        for i in range(t, count, THREADS):
            if later == 0:
                indices[begin + first + i] = order[i]
                values[begin + first + i] = x[begin + order[i]]
            else:
                to_keys[begin + first + i] = keys[i]
                to_order[begin + first + i] = order[i]
        barrier()


@helper
def before_this(flags, totals):
    """The sum of the flags of all threads before this one, and that of all."""
    upto, warp = flags, thread() // 32
    for k in range(5):
        other = shuffle_up(upto, np.int32(1 << k))
        if lane() >= 1 << k:
            upto += other
    if lane() == 31:
        totals[warp] = upto
    barrier()
    before, whole = upto - flags, I(0)
    for w in range(WARPS):
        if w < warp:
            before += totals[w]
        whole += totals[w]
    barrier()
    return before, whole


@helper
def select_key_by_block(x, begin, length, rank, flip, size, counts):
    """As `select_key`, by all threads of a block; `counts` has room for 272."""
    prefix, mask, t = U(0), U(0), I(thread())
    for step in range(size):
        shift = U(8 * (size - 1 - step))
        counts[t] = 0
        barrier()
        for i in range(t, length, THREADS):
            key = sort_key(x[begin + i]) ^ flip
            if key & mask == prefix:
                atomic_add(counts, I((key >> shift) & U(255)), np.int32(1))
        barrier()
        if t < 16:
            total = 0
            for k in range(16):
                total += counts[t * 16 + k]
            counts[256 + t] = total
        barrier()
        group = 0
        while rank >= counts[256 + group]:
            rank -= counts[256 + group]
            group += 1
        digit = group * 16
        while rank >= counts[digit]:
            rank -= counts[digit]
            digit += 1
        prefix |= U(digit) << shift
        mask |= U(255) << shift
        barrier()
    return prefix, rank


@helper
def take_first(x, begin, length, k, flip, size, counts, totals, places, to):
    """places[to : to + k] = where the k elements with the smallest keys are, in the row's order."""
    limit, equals = select_key_by_block(x, begin, length, k - 1, flip, size, counts)
    equals, done, t = equals + 1, I(0), I(thread())
    for chunk in range(0, length, THREADS):
        i, flag = chunk + t, I(0)
        if i < length:
            key = sort_key(x[begin + i]) ^ flip
            if key < limit:
                flag = I(1)
            elif key == limit:
                flag = I(1) << 32
        before, whole = before_this(flag, totals)
        before += done
        done += whole
        equal = before >> 32
        if flag == 1 or (flag > 1 and equal < equals):
            places[to + (before & LOW) + min(equal, equals)] = i


@on_device(first_rows)
def first_by_blocks(row, n):
    """The k largest or smallest elements of each row, in order: selected, then ranked."""
    x, values, indices = at(row[0], T), at(row[1], T), at(row[2], I)
    length, k = row[3], row[4]
    flip = (ALL_BITS >> U(64 - 8 * size_of(T))) if row[5] else U(0)
    counts, totals, taken, keys = (
        shared(np.int32, 272),
        shared(I, WARPS),
        shared(I, FEW),
        shared(U, FEW),
    )
    t = I(thread())
    for unit in range(block(), n, blocks()):
        begin = unit * length
        take_first(x, begin, length, k, flip, size_of(T), counts, totals, taken, 0)
        barrier()
        if t < k:
            keys[t] = sort_key(x[begin + taken[t]]) ^ flip
        barrier()
        if t < k:
            place = 0
            for j in range(k):
                if keys[j] < keys[t] or (keys[j] == keys[t] and j < t):
                    place += 1
            values[unit * k + place] = x[begin + taken[t]]
            indices[unit * k + place] = taken[t]
        barrier()


@on_device(topk_rows)
def topk_by_blocks(row, n):
    """The k largest or smallest elements of each row, in the row's order."""
    x, values, indices = at(row[0], T), at(row[1], T), at(row[2], I)
    length, k = row[3], row[4]
    flip = (ALL_BITS >> U(64 - 8 * size_of(T))) if row[5] else U(0)
    counts, totals = shared(np.int32, 272), shared(I, WARPS)
    for unit in range(block(), n, blocks()):
        begin, to = unit * length, unit * k
        take_first(x, begin, length, k, flip, size_of(T), counts, totals, indices, to)
        barrier()
        for j in range(I(thread()), k, THREADS):
            values[to + j] = x[begin + indices[to + j]]


@on_device(kth_rows)
def kth_by_blocks(row, n):
    """The element of a rank in each row, and the first place where it is."""
    x, values, indices = at(row[0], T), at(row[1], T), at(row[2], I)
    length, t = row[3], I(thread())
    counts, totals, place = shared(np.int32, 272), shared(I, WARPS), shared(I, 1)
    for unit in range(block(), n, blocks()):
        begin, rank = unit * length, row[4]
        if rank < 0:
            mine = I(0)
            for i in range(t, length, THREADS):
                mine += x[begin + i] == x[begin + i]
            _, numbers = before_this(mine, totals)
            is_last = numbers == 0 or (rank == -1 and numbers < length)
            rank = length - 1 if is_last else (numbers - 1) // 2
        wanted, _ = select_key_by_block(x, begin, length, rank, U(0), size_of(T), counts)
        if t == 0:
            place[0] = length
        barrier()
        for i in range(t, length, THREADS):
            if sort_key(x[begin + i]) == wanted:
                atomic_min(place, 0, i)
                break
        barrier()
        if t == 0:
            values[unit] = x[begin + place[0]]
            indices[unit] = place[0]
        barrier()


@on_device(mode_rows)
def mode_by_blocks(row, n):
    """The commonest element of each sorted row, and its last place: the last of each run tells its length."""
    x, order, values, indices = at(row[0], T), at(row[1], I), at(row[2], T), at(row[3], I)
    length, t, best = row[4], I(thread()), shared(I, 1)
    for unit in range(block(), n, blocks()):
        begin = unit * length
        if t == 0:
            best[0] = 0
        barrier()
        for i in range(t, length, THREADS):
            key = sort_key(x[begin + i])
            if i + 1 == length or x[begin + i + 1] != x[begin + i]:
                low, high = I(0) if x[begin + i] == x[begin + i] else i, i
                while low < high:
                    middle = (low + high) >> 1
                    if sort_key(x[begin + middle]) < key:
                        low = middle + 1
                    else:
                        high = middle
                atomic_max(best, 0, ((i + 1 - low) << 32) + LOW - i)
        barrier()
        if t == 0:
            i = LOW - (best[0] & LOW)
            values[unit] = x[begin + i]
            indices[unit] = order[begin + i]
        barrier()


@helper
def cut_of_records(x, width, order, a, a_count, b, b_count, k):
    """As `merge_cut`, for runs of records."""
    low, high = max(k - b_count, 0), min(k, a_count)
    while low < high:
        middle = (low + high) >> 1
        i, j = order[a + middle], order[b + k - 1 - middle]
        if compare_records(x, j * width, i * width, width) >= 0:
            low = middle + 1
        else:
            high = middle
    return low


@helper
def merge_some_records(x, width, order, a, a_end, b, b_end, some, count):
    """As `merge_some`, for runs of records."""
    for e in range(EACH):
        if e < count:
            is_second = a >= a_end
            if not is_second and b < b_end:
                is_second = compare_records(x, order[b] * width, order[a] * width, width) < 0
            if is_second:
                some[e] = order[b]
                b += 1
            else:
                some[e] = order[a]
                a += 1


@on_device(sort_records, work=tiles_of_records, passes=merges)
def sort_records_by_tiles(row, n):
    """The stable order of the records of a matrix; launches leave each other theirs by turns."""
    x, order, spare = at(row[0], T), at(row[1], I), at(row[2], I)
    records, width, run, later = row[3], row[4], row[5], row[6]
    source, target = (order, spare) if later % 2 else (spare, order)
    tile, some, t = shared(I, TILE), local(I, EACH), I(thread())
    mine = t * EACH
    for unit in range(block(), n, blocks()):
        first = unit * TILE
        count = min(records - first, TILE)
        mine_count = min(count - mine, EACH)
        if run == 0:
            for e in range(mine_count):
                j = mine + e
                while j > mine and compare_records(
                    x, (first + mine + e) * width, tile[j - 1] * width, width
                ) < 0:  # fmt: skip
                    tile[j] = tile[j - 1]
                    j -= 1
                tile[j] = first + mine + e
            barrier()
            reach = I(EACH)
            while reach < count:
                a = mine // (2 * reach) * (2 * reach)
                b, end = min(a + reach, count), min(a + 2 * reach, count)
                if mine_count > 0:
                    cut = cut_of_records(x, width, tile, a, b - a, b, end - b, mine - a)
                    merge_some_records(
                        x, width, tile, a + cut, b, b + mine - a - cut, end, some, mine_count
                    )
                barrier()
                for e in range(EACH):
                    if e < mine_count:
                        tile[mine + e] = some[e]
                barrier()
                reach *= 2
            for i in range(t, count, THREADS):
                target[first + i] = tile[i]
            barrier()
        elif mine_count > 0:
            a = quotient(first, 2 * run) * 2 * run
            b, end = min(a + run, records), min(a + 2 * run, records)
            k = first + mine - a
            cut = cut_of_records(x, width, source, a, b - a, b, end - b, k)
            merge_some_records(x, width, source, a + cut, b, b + k - cut, end, some, mine_count)
            for e in range(EACH):
                if e < mine_count:
                    target[first + mine + e] = some[e]


@on_device(distinct)
def distinct_by_block(row, n):
    """The runs of equal records met in an order, by one block."""
    x, order = at(row[0], T), at(row[1], I)
    firsts, inverse, counts, number = at(row[2], I), at(row[3], I), at(row[4], I), at(row[5], I)
    records, width, t = row[6], row[7], I(thread())
    totals, done = shared(I, WARPS), I(0)
    for _ in range(block(), n, blocks()):
        for chunk in range(0, records, THREADS):
            i, place, is_new, is_last = chunk + t, I(0), False, False
            if i < records:
                place = order[i]
                is_new = (
                    i == 0 or compare_records(x, order[i - 1] * width, place * width, width) != 0
                )
                is_last = i + 1 == records
                if not is_last:
                    is_last = compare_records(x, place * width, order[i + 1] * width, width) != 0
            before, whole = before_this(I(is_new), totals)
            run = done + before + I(is_new) - 1
            done += whole
            if is_new:
                firsts[run] = place
                counts[run] = i  # until its last element is met
            barrier()
            if i < records:
                inverse[place] = run
                if is_last:
                    counts[run] = i + 1 - counts[run]
            barrier()
        if t == 0:
            number[0] = done


@on_device(neighbours)
def neighbours_by_block(row, n):
    """The records that differ from the one before, by one block."""
    x, values, inverse, counts, number = (
        at(row[0], T),
        at(row[1], T),
        at(row[2], I),
        at(row[3], I),
        at(row[4], I),
    )
    records, width, wanted, t = row[5], row[6], row[7], I(thread())
    totals, done = shared(I, WARPS), I(0)
    for _ in range(block(), n, blocks()):
        for chunk in range(0, records, THREADS):
            i, is_new, is_last = chunk + t, False, False
            if i < records:
                is_new = i == 0 or compare_records(x, (i - 1) * width, i * width, width) != 0
                is_last = i + 1 == records
                if not is_last:
                    is_last = compare_records(x, i * width, (i + 1) * width, width) != 0
            before, whole = before_this(I(is_new), totals)
            run = done + before + I(is_new) - 1
            done += whole
            if is_new:
                for k in range(width):
                    values[run * width + k] = x[i * width + k]
                if wanted:
                    counts[run] = i  # until its last element is met
            barrier()
            if i < records and wanted:
                inverse[i] = run
                if is_last:
                    counts[run] = i + 1 - counts[run]
            barrier()
        if t == 0:
            number[0] = done
