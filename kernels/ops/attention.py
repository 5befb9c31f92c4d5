"""Attention by tiles: softmax(scale * Q @ K' + mask) @ V, of which the matrix in the middle is never whole.

The keys are met block by block, for a block of queries at a time. Of each query its largest score so
far is kept, and the sum of the exponentials; where a larger score turns up, what is there already is
scaled down (Milakov and Gimelshein, arXiv:1805.02867; Dao et al., arXiv:2205.14135). The products are
those of `gemm_tile.py`: HEIGHT queries by a block of keys stay in the first cache while they become
weights and are multiplied by the values. What is read again and again, the keys turned and the values,
is packed once for all queries. The logarithm of each sum is kept, by which backward makes the weights
anew, tile by tile.

Queries, keys, values and results may lie in any strides; each has words for those of its batch, heads,
rows and elements. Several heads of queries may share one of keys and values. How the work is cut
depends on the shape alone.

Dropout takes the words that `random.dropout` would take for the whole matrix.
"""

import math
from operator import add
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..language.abi import I, T, at, helper, kernel, scalar, shifted, words
from ..language.intrinsics import Value, bits, fma, from_bits, where
from ..language.lanes import LANES, fold, load, spread, stack
from ..language.processor import VECTOR_BYTES
from ..math import vector as vector_math
from .gemm_tile import HEIGHT, WIDTH, TileCode, emit_multiply, emit_pack
from .matrix_vector import STRIP, sum_of_columns, sums_of_rows
from .random import CHUNK, WORDS, U, block
from .reduce import dot_span, reduce_span
from .sort import size_of

QUERIES, KEYS = 96, 256  # of a block; the sums of its queries lie in the result
# Queries up to which keys and values are read where they lie, half of them where keys are more than a block:
# one by 1024 keys of 8 heads 59 us, packed 185; 8 by 8 12.9 and 17.1, but 8 by 1000 364 and 300.
FEW_QUERIES = 8
FEW_SCORES = FEW_QUERIES * KEYS
STEP = 64  # scores that a loop makes at a time: a block has room for whole steps
SCORES = HEIGHT * KEYS
# Of a block of backward, all of whose weights are in memory, from query to query a LINE: of a power of two
# they would share sets of the cache.
BACKWARD_QUERIES, BACKWARD_KEYS = 64, 128
LINE = BACKWARD_KEYS + 16
WEIGHTS = BACKWARD_QUERIES * LINE
NO_MASK, OF_BOOL, OF_NUMBERS = range(3)  # kinds of mask

FACTS = (
    "heads", "shared_by", "queries", "keys", "depth", "width", "causal", "mask", "drops",
    "scale", "kept_scale", "threshold", "blocks", "key_blocks", "chunks",
    "key_region", "values_at", "keys_at", "query_region", "gradients_at", "deltas_at",
    "key_regions_at", "parts_at", "entries",
)  # fmt: skip
(
    HEADS, SHARED_BY, COUNT, KEY_COUNT, DEPTH, WIDTH_OF_VALUES, CAUSAL, MASK, DROPS,
    SCALE, KEPT_SCALE, THRESHOLD, BLOCKS, KEY_BLOCKS, CHUNKS,
    KEY_REGION, VALUES_AT, KEYS_AT, QUERY_REGION, GRADIENTS_AT, DELTAS_AT,
    KEY_REGIONS_AT, PARTS_AT, ENTRIES,
) = range(len(FACTS))  # fmt: skip
STRIDES = len(FACTS)  # four words for each operand and result that has strides
QUERY, KEY, VALUE, MASKED, OUT, UPPER, OF_QUERY, OF_KEY, OF_VALUE = range(9)

# --------------------------------------------------------------------------- products


def _of_tiles(name: str, emit: Any) -> Any:
    """A function of `gemm_tile.py` for a dtype, called with a tuple of int64."""

    def define(typingctx: Any, dtype: Any, arguments: Any) -> Any:
        count = len(arguments)
        kind = getattr(np, dtype.dtype.name)

        def codegen(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            code = TileCode(kind, builder.module)
            function = builder.module.globals.get(f"{name}_{code.suffix}")
            if function is None:
                function = emit(code)
                for made in builder.module.functions:
                    if made.linkage == "internal":
                        made.attributes.add("noinline")
            builder.call(function, cgutils.unpack_tuple(builder, values[1], count))
            return context.get_dummy_value()

        return types.void(dtype, types.UniTuple(types.int64, count)), codegen

    return intrinsic(define)


multiply = _of_tiles("multiply", emit_multiply)
pack = _of_tiles("pack", emit_pack)


@intrinsic
def address_of(typingctx: Any, pointer: Any) -> Any:
    """Where a pointer points to, as an int64."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.ptrtoint(args[0], ir.IntType(64))

    return types.int64(pointer), codegen


def exp_to_one(x, k):
    """e**x for x up to 0 and hardly more; 0 where it would be no normal number.

    What a weight needs: half the instructions of `exp`, and within 2 ulp down to 1e-9.
    """
    magic = k.MAGIC + k.BIAS
    shifted = fma(x, k.LOG2_E, magic)
    r = fma(shifted - magic, -k.LN2, x)
    z = r * r
    near = 1.0 + fma(z, vector_math.exp_slope(r, z, k), r)
    power = near * from_bits(bits(shifted) << k.MANTISSA_BITS)
    return where(x < (1 - k.BIAS) * k.LN2, 0.0, power)


@intrinsic
def weight(typingctx: Any, x: Any) -> Any:
    """`exp_to_one` of a float."""
    [k] = [k for k in vector_math.FORMATS if k.DTYPE.__name__ == x.name]

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return exp_to_one(Value(builder, args[0]), k).ir

    return x(x), codegen


@helper
def panel_of(T):
    """The width of a packed panel."""
    return WIDTH * VECTOR_BYTES // size_of(T)


@helper
def place_in(c, operand, batch, head, row):
    """Where a row of an operand begins, in elements."""
    steps = shifted(c, STRIDES + 4 * operand)
    return batch * steps[0] + head * steps[1] + row * steps[2]


@helper
def masked_scores(s, count, room, scale, mask, step, kind, T):
    """s[:count] = scale * s + mask, the mask at an address, its elements `step` apart; -inf up to `room`."""
    if kind == OF_BOOL:
        shown = at(mask, np.uint8)
        for j in range(count):
            s[j] = s[j] * scale if shown[j * step] != 0 else T(-math.inf)
    elif kind == OF_NUMBERS:
        added = at(mask, T)
        for j in range(count):
            s[j] = s[j] * scale + added[j * step]
    else:
        for j in range(0, room, STEP):
            for e in range(STEP):
                s[j + e] = s[j + e] * scale
    for j in range(count, room):
        s[j] = T(-math.inf)


@helper
def draw_factors(factors, drawn, first, count, begin, scale, threshold, T):
    """factors[:count] = what dropout multiplies the weights by, of all which they are those from `first` on."""
    low_key, high_key, number = U(begin[0]), U(begin[1]), begin[2]
    done = 0
    while done < count:
        chunk, skipped = (first + done) // WORDS, (first + done) % WORDS
        for i in range(CHUNK):
            a, b, c, d = block(low_key, high_key, number + chunk * CHUNK + i)
            drawn[i] = scale if a >= threshold else T(0)
            drawn[i + 64] = scale if b >= threshold else T(0)
            drawn[i + 128] = scale if c >= threshold else T(0)
            drawn[i + 192] = scale if d >= threshold else T(0)
        here = min(count - done, WORDS - skipped)
        for j in range(here):
            factors[done + j] = drawn[skipped + j]
        done += here


# --------------------------------------------------------------------------- forward

# words: queries, keys, values, mask, place of the draw; result, logarithms; scratch: for each block of keys
# they turned, and their values; FACTS; strides


@kernel
def pack_keys(args, start, stop):
    """What the queries are multiplied by, and their weights; a unit is a block of keys."""
    p = words(args)
    c, size, panel = shifted(p, 8), size_of(T), panel_of(T)
    k, v = shifted(c, STRIDES + 4 * KEY), shifted(c, STRIDES + 4 * VALUE)
    keys, blocks, heads = c[KEY_COUNT], c[KEY_BLOCKS], c[HEADS] // c[SHARED_BY]
    for unit in range(start, stop):
        entry, first = unit // blocks, unit % blocks * KEYS
        batch, head, count = entry // heads, entry % heads, min(KEYS, keys - first)
        target = p[7] + unit * c[KEY_REGION] * size
        pack(T, (p[1] + place_in(c, KEY, batch, head, first) * size, k[2], k[3], count, c[DEPTH],
                 target, panel))  # fmt: skip
        pack(T, (p[2] + place_in(c, VALUE, batch, head, first) * size, v[3], v[2],
                 c[WIDTH_OF_VALUES], count, target + c[VALUES_AT] * size, panel))  # fmt: skip


@intrinsic
def larger(typingctx: Any, lanes: Any, others: Any) -> Any:
    """The larger numbers of two lanes, the second where one is NaN: a single instruction."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *args), *args)

    return lanes(lanes, others), codegen


@helper
def weights_of_block(s, room, factor, top, T):
    """s[:room] = the exponentials of factor * s less the largest of these and `top`; that one, and their sum.

    NaN is found again in the sum.
    """
    tops = spread(T(-math.inf))
    for j in range(0, room, LANES):
        tops = larger(load(s, j), tops)
    top = max(top, fold(max, tops) * factor)
    base = T(0) if top == T(-math.inf) else top
    for j in range(0, room, STEP):
        for e in range(STEP):
            s[j + e] = weight(s[j + e] * factor - base)
    return top, reduce_span(add, s, 0, room, T(0), T)


@kernel
def attend(args, start, stop):
    """The weighted values of a block of queries, and the logarithms of the sums of exponentials.

    A query that sees no key has the result 0 and an infinite logarithm, by which its weights are 0.
    """
    p = words(args)
    out, logs, c, size, panel = at(p[5], T), at(p[6], T), shifted(p, 8), size_of(T), panel_of(T)
    heads, causal, queries, keys = c[HEADS], c[CAUSAL], c[COUNT], c[KEY_COUNT]
    depth, width, blocks, region = c[DEPTH], c[WIDTH_OF_VALUES], c[BLOCKS], c[KEY_REGION]
    scale, kept_scale, threshold = scalar(c[SCALE], T), scalar(c[KEPT_SCALE], T), U(c[THRESHOLD])
    q, m, o = (
        shifted(c, STRIDES + 4 * QUERY), shifted(c, STRIDES + 4 * MASKED), shifted(c, STRIDES + 4 * OUT)
    )  # fmt: skip
    of_mask, kind = 1 if c[MASK] == OF_BOOL else size, c[MASK]
    factor = T(1)  # by which scores are still to be multiplied as they become weights
    if kind == NO_MASK and scale > T(0):
        scale, factor = factor, scale
    scores, factors, drawn = stack(T, SCORES), stack(T, KEYS), stack(T, WORDS)
    tops, totals = stack(T, QUERIES), stack(T, QUERIES)
    for unit in range(start, stop):
        entry, number = unit // blocks, unit % blocks
        # Threads get runs of units: late queries, which see more keys if `causal`, and early ones take turns.
        number = blocks - 1 - number // 2 if number % 2 else number // 2
        first = number * QUERIES
        last = min(first + QUERIES, queries)
        batch, head = entry // heads, entry % heads
        source = p[0] + place_in(c, QUERY, batch, head, 0) * size
        target = place_in(c, OUT, batch, head, 0)
        mask = p[3] + place_in(c, MASKED, batch, head, 0) * of_mask
        packed = p[7] + entry // c[SHARED_BY] * c[KEY_BLOCKS] * region * size
        for i in range(last - first):
            tops[i], totals[i] = T(-math.inf), T(0)
        for begin in range(0, min(keys, last) if causal else keys, KEYS):
            there = min(KEYS, keys - begin)
            for i in range(first, last, HEIGHT):
                tall, count = min(HEIGHT, last - i), there
                if causal:
                    count = max(min(count, i + tall - begin), 0)
                if count == 0:
                    continue
                room = (count + STEP - 1) // STEP * STEP
                multiply(T, (source + i * q[2] * size, q[2], q[3], packed, panel, depth * panel,
                             address_of(scores), KEYS, depth, tall, count, 0))  # fmt: skip
                for row in range(i, i + tall):
                    s, k = shifted(scores, (row - i) * KEYS), row - first
                    seen = max(min(count, row + 1 - begin), 0) if causal else count
                    here = mask + (row * m[2] + begin * m[3]) * of_mask
                    if factor == T(1) or seen < room:
                        masked_scores(s, seen, room, scale, here, m[3], kind, T)
                    top, (higher, total) = tops[k], weights_of_block(s, room, factor, tops[k], T)
                    if begin > 0 and higher != top:
                        smaller = weight(top - higher)
                        line = shifted(out, target + row * o[2])
                        for d in range(width):
                            line[d] *= smaller
                        totals[k] *= smaller
                    tops[k], totals[k] = higher, totals[k] + total
                    if c[DROPS]:
                        place = (entry * queries + row) * keys + begin
                        draw_factors(
                            factors, drawn, place, count, at(p[4], I), kept_scale, threshold, T
                        )
                        for j in range(count):
                            s[j] *= factors[j]
                multiply(T, (address_of(scores), KEYS, 1, packed + c[VALUES_AT] * size, panel,
                             there * panel, p[5] + (target + i * o[2]) * size, o[2],
                             count, tall, width, begin))  # fmt: skip
            packed += region * size
        for k in range(last - first):
            place = entry * queries + first + k
            line = shifted(out, target + (first + k) * o[2])
            finish(math.log, line, width, logs, place, totals[k], tops[k], T)


# --------------------------------------------------------------------------- backward

# words: queries, keys, values, mask, place of the draw, result, logarithms, its gradient; gradients of queries,
# keys and values; scratch: for each block of queries they, their gradients and what `prepare` finds, then for
# each unit what a block of keys is packed into, then parts of the queries' gradients; FACTS; strides


@kernel
def attend_few(args, start, stop):
    """`attend` where a head has a few queries and nothing is dropped; a unit is a head of keys."""
    p = words(args)
    out, logs, c, size = at(p[5], T), at(p[6], T), shifted(p, 7), size_of(T)
    heads, shared, causal, queries = c[HEADS], c[SHARED_BY], c[CAUSAL], c[COUNT]
    keys, depth, width, kind = c[KEY_COUNT], c[DEPTH], c[WIDTH_OF_VALUES], c[MASK]
    scale, of_mask = scalar(c[SCALE], T), 1 if kind == OF_BOOL else size
    q, k, v = (
        shifted(c, STRIDES + 4 * QUERY), shifted(c, STRIDES + 4 * KEY), shifted(c, STRIDES + 4 * VALUE)
    )  # fmt: skip
    m, o = shifted(c, STRIDES + 4 * MASKED), shifted(c, STRIDES + 4 * OUT)
    scores, strip = stack(T, FEW_SCORES), stack(T, STRIP)
    tops, totals = stack(T, FEW_QUERIES), stack(T, FEW_QUERIES)
    for number in range(start * shared, stop * shared):
        batch, head = number // heads, number % heads
        source = shifted(at(p[0], T), place_in(c, QUERY, batch, head, 0))
        target = place_in(c, OUT, batch, head, 0)
        mask = p[3] + place_in(c, MASKED, batch, head, 0) * of_mask
        for row in range(queries):
            tops[row], totals[row] = T(-math.inf), T(0)
            for d in range(width):
                out[target + row * o[2] + d] = T(0)
        for begin in range(0, min(keys, queries) if causal else keys, KEYS):
            count = min(KEYS, (min(keys, queries) if causal else keys) - begin)
            room = (count + STEP - 1) // STEP * STEP
            block = shifted(at(p[1], T), place_in(c, KEY, batch, head // shared, begin))
            values = shifted(at(p[2], T), place_in(c, VALUE, batch, head // shared, begin))
            sums_of_rows(block, k[2], source, q[2], queries, scores, KEYS, 0, count, depth, T)
            for row in range(queries):
                s, line = shifted(scores, row * KEYS), shifted(out, target + row * o[2])
                seen = max(min(count, row + 1 - begin), 0) if causal else count
                here = mask + (row * m[2] + begin * m[3]) * of_mask
                masked_scores(s, seen, room, scale, here, m[3], kind, T)
                top, (higher, total) = tops[row], weights_of_block(s, room, T(1), tops[row], T)
                if begin > 0 and higher != top:
                    smaller = weight(top - higher)
                    totals[row] *= smaller
                    for d in range(width):
                        line[d] *= smaller
                tops[row], totals[row] = higher, totals[row] + total
                sum_of_columns(strip, values, 0, width, s, 0, count, v[2], 1, T)
                for d in range(width):
                    line[d] += strip[d]
        for row in range(queries):
            line, place = shifted(out, target + row * o[2]), number * queries + row
            finish(math.log, line, width, logs, place, totals[row], tops[row], T)


@helper
def finish(log, line, width, logs, place, total, top, T):
    """Divide a line by the sum of its weights, and keep the logarithm of that."""
    share = T(0) if total == T(0) else T(1) / total
    for d in range(width):
        line[d] *= share
    logs[place] = T(math.inf) if total == T(0) else log(total) + top


@helper
def part_of_queries(p, c, x, chunk, entry, batch, head, T):
    """Where a chunk of keys adds to a head's gradients of queries, and how far their rows are apart."""
    if c[CHUNKS] == 1:
        return shifted(at(p[8], T), place_in(c, OF_QUERY, batch, head, 0)), x[2]
    entries = c[ENTRIES]
    first = c[PARTS_AT] + (chunk * entries + entry) * c[COUNT] * c[DEPTH]
    return shifted(at(p[11], T), first), c[DEPTH]


@kernel
def prepare(args, start, stop):
    """Pack a block of queries and its gradients, sum result * gradient, clear what is added to."""
    p = words(args)
    out, upper, scratch, c = at(p[5], T), at(p[7], T), at(p[11], T), shifted(p, 12)
    size, panel, heads, blocks = size_of(T), panel_of(T), c[HEADS], c[BLOCKS]
    q, o, g, x = (
        shifted(c, STRIDES + 4 * QUERY), shifted(c, STRIDES + 4 * OUT),
        shifted(c, STRIDES + 4 * UPPER), shifted(c, STRIDES + 4 * OF_QUERY),
    )  # fmt: skip
    for unit in range(start, stop):
        entry, first = unit // blocks, unit % blocks * BACKWARD_QUERIES
        batch, head = entry // heads, entry % heads
        count = min(BACKWARD_QUERIES, c[COUNT] - first)
        region = unit * c[QUERY_REGION]
        target, of_out = p[11] + region * size, place_in(c, OUT, batch, head, first)
        of_upper = place_in(c, UPPER, batch, head, first)
        pack(T, (p[0] + place_in(c, QUERY, batch, head, first) * size, q[3], q[2], c[DEPTH], count,
                 target, panel))  # fmt: skip
        pack(T, (p[7] + of_upper * size, g[3], g[2], c[WIDTH_OF_VALUES], count,
                 target + c[GRADIENTS_AT] * size, panel))  # fmt: skip
        deltas = shifted(scratch, region + c[DELTAS_AT])
        for i in range(count):
            deltas[i] = dot_span(
                out, of_out + i * o[2], upper, of_upper + i * g[2], c[WIDTH_OF_VALUES], T
            )
        for chunk in range(c[CHUNKS]):
            part, steps = part_of_queries(p, c, x, chunk, entry, batch, head, T)
            for i in range(first, first + count):
                for d in range(c[DEPTH]):
                    part[i * steps + d] = T(0)


@helper
def turn_into_gradients(s, d, factors, room, log, delta, scale, T):
    """s = the weights of scores; d = the gradients of scores from those of weights."""
    for j in range(0, room, STEP):
        for e in range(STEP):
            made = weight(s[j + e] - log)
            d[j + e] = made * (d[j + e] * factors[j + e] - delta) * scale
            s[j + e] = made * factors[j + e]


@kernel
def attend_backward(args, start, stop):
    """The gradients of keys and values, and what they add to those of queries; a unit is a chunk of keys."""
    p = words(args)
    scratch, c, size, panel = at(p[11], T), shifted(p, 12), size_of(T), panel_of(T)
    shared_by, causal, queries, keys = c[SHARED_BY], c[CAUSAL], c[COUNT], c[KEY_COUNT]
    depth, width, blocks, chunks = c[DEPTH], c[WIDTH_OF_VALUES], c[BLOCKS], c[CHUNKS]
    scale, kept_scale, threshold = scalar(c[SCALE], T), scalar(c[KEPT_SCALE], T), U(c[THRESHOLD])
    q, k, v, m, g, x, y, z = (
        shifted(c, STRIDES + 4 * QUERY), shifted(c, STRIDES + 4 * KEY),
        shifted(c, STRIDES + 4 * VALUE), shifted(c, STRIDES + 4 * MASKED),
        shifted(c, STRIDES + 4 * UPPER), shifted(c, STRIDES + 4 * OF_QUERY),
        shifted(c, STRIDES + 4 * OF_KEY), shifted(c, STRIDES + 4 * OF_VALUE),
    )  # fmt: skip
    of_mask = 1 if c[MASK] == OF_BOOL else size
    weights, slopes = stack(T, WEIGHTS), stack(T, WEIGHTS)
    factors, drawn = stack(T, BACKWARD_KEYS), stack(T, WORDS)
    for j in range(BACKWARD_KEYS):
        factors[j] = T(1)
    logs = at(p[6], T)
    heads, run = c[HEADS] // shared_by, (c[KEY_BLOCKS] + chunks - 1) // chunks * BACKWARD_KEYS
    for unit in range(start, stop):
        entry, chunk = unit // chunks, unit % chunks
        batch, key_head = entry // heads, entry % heads
        turned = p[11] + (c[KEY_REGIONS_AT] + unit * c[KEY_REGION]) * size
        values, rows = turned + c[VALUES_AT] * size, turned + c[KEYS_AT] * size
        for begin in range(chunk * run, min((chunk + 1) * run, keys), BACKWARD_KEYS):
            there = min(BACKWARD_KEYS, keys - begin)
            of_keys = p[1] + place_in(c, KEY, batch, key_head, begin) * size
            of_values = p[2] + place_in(c, VALUE, batch, key_head, begin) * size
            pack(T, (of_keys, k[2], k[3], there, depth, turned, panel))
            pack(T, (of_values, v[2], v[3], there, width, values, panel))
            pack(T, (of_keys, k[3], k[2], depth, there, rows, panel))
            to_keys = place_in(c, OF_KEY, batch, key_head, begin)
            to_values = place_in(c, OF_VALUE, batch, key_head, begin)
            for j in range(there):
                for d in range(depth):
                    at(p[9], T)[to_keys + j * y[2] + d] = T(0)
                for d in range(width):
                    at(p[10], T)[to_values + j * z[2] + d] = T(0)
            for head in range(key_head * shared_by, (key_head + 1) * shared_by):
                whole = batch * c[HEADS] + head
                source = p[0] + place_in(c, QUERY, batch, head, 0) * size
                upper = p[7] + place_in(c, UPPER, batch, head, 0) * size
                mask = p[3] + place_in(c, MASKED, batch, head, 0) * of_mask
                part, apart = part_of_queries(p, c, x, chunk, whole, batch, head, T)
                for number in range(begin // BACKWARD_QUERIES if causal else 0, blocks):
                    first = number * BACKWARD_QUERIES
                    last = min(first + BACKWARD_QUERIES, queries)
                    count = min(there, last - begin) if causal else there
                    region = (whole * blocks + number) * c[QUERY_REGION]
                    deltas = shifted(scratch, region + c[DELTAS_AT])
                    packed = p[11] + region * size
                    for i in range(first, last, HEIGHT):
                        tall, some, line = min(HEIGHT, last - i), count, (i - first) * LINE
                        if causal:
                            some = max(min(count, i + tall - begin), 0)
                        if some > 0:
                            multiply(T, (source + i * q[2] * size, q[2], q[3], turned, panel,
                                         depth * panel, address_of(weights) + line * size, LINE,
                                         depth, tall, some, 0))  # fmt: skip
                            multiply(T, (upper + i * g[2] * size, g[2], g[3], values, panel,
                                         width * panel, address_of(slopes) + line * size, LINE,
                                         width, tall, some, 0))  # fmt: skip
                        room = (some + STEP - 1) // STEP * STEP
                        for row in range(i, i + tall):
                            line = (row - first) * LINE
                            s, slope = shifted(weights, line), shifted(slopes, line)
                            seen = max(min(some, row + 1 - begin), 0) if causal else some
                            here = mask + (row * m[2] + begin * m[3]) * of_mask
                            masked_scores(s, seen, room, scale, here, m[3], c[MASK], T)
                            if c[DROPS]:
                                place = (whole * queries + row) * keys + begin
                                draw_factors(factors, drawn, place, some, at(p[4], I), kept_scale,
                                             threshold, T)  # fmt: skip
                            turn_into_gradients(s, slope, factors, room, logs[whole * queries + row],
                                                deltas[row - first], scale, T)  # fmt: skip
                            for j in range(seen, count):
                                s[j], slope[j] = T(0), T(0)
                    for j in range(0, count, HEIGHT):
                        tall = min(HEIGHT, count - j)
                        multiply(T, (address_of(weights) + j * size, 1, LINE, packed + c[GRADIENTS_AT] * size,
                                     panel, (last - first) * panel, p[10] + (to_values + j * z[2]) * size,
                                     z[2], last - first, tall, width, 1))  # fmt: skip
                        multiply(T, (address_of(slopes) + j * size, 1, LINE, packed, panel,
                                     (last - first) * panel, p[9] + (to_keys + j * y[2]) * size,
                                     y[2], last - first, tall, depth, 1))  # fmt: skip
                    for i in range(first, last, HEIGHT):
                        multiply(T, (address_of(slopes) + (i - first) * LINE * size, LINE, 1, rows, panel,
                                     there * panel, address_of(part) + i * apart * size, apart,
                                     count, min(HEIGHT, last - i), depth, 1))  # fmt: skip


@kernel
def attend_few_backward(args, start, stop):
    """`attend_backward` where a head has a few queries and nothing is dropped: keys and values are read where
    they lie."""
    p = words(args)
    out, logs, c, size = at(p[5], T), at(p[6], T), shifted(p, 12), size_of(T)
    shared_by, causal, queries, keys = c[SHARED_BY], c[CAUSAL], c[COUNT], c[KEY_COUNT]
    depth, width, chunks, kind = c[DEPTH], c[WIDTH_OF_VALUES], c[CHUNKS], c[MASK]
    scale, of_mask = scalar(c[SCALE], T), 1 if kind == OF_BOOL else size
    q, k, v, m, o, g, x, y, z = (
        shifted(c, STRIDES + 4 * QUERY), shifted(c, STRIDES + 4 * KEY),
        shifted(c, STRIDES + 4 * VALUE), shifted(c, STRIDES + 4 * MASKED),
        shifted(c, STRIDES + 4 * OUT), shifted(c, STRIDES + 4 * UPPER), shifted(c, STRIDES + 4 * OF_QUERY),
        shifted(c, STRIDES + 4 * OF_KEY), shifted(c, STRIDES + 4 * OF_VALUE),
    )  # fmt: skip
    weights, slopes = stack(T, FEW_SCORES), stack(T, FEW_SCORES)
    factors, strip = stack(T, KEYS), stack(T, STRIP)
    for j in range(KEYS):
        factors[j] = T(1)
    heads, run = c[HEADS] // shared_by, (c[KEY_BLOCKS] + chunks - 1) // chunks * KEYS
    for unit in range(start, stop):
        entry, chunk = unit // chunks, unit % chunks
        batch, key_head = entry // heads, entry % heads
        for head in range(key_head * shared_by, (key_head + 1) * shared_by):
            part, apart = part_of_queries(p, c, x, chunk, batch * c[HEADS] + head, batch, head, T)
            for row in range(queries):
                for d in range(depth):
                    part[row * apart + d] = T(0)
        for begin in range(chunk * run, min((chunk + 1) * run, keys), KEYS):
            there = min(KEYS, keys - begin)
            room = (there + STEP - 1) // STEP * STEP
            block = shifted(at(p[1], T), place_in(c, KEY, batch, key_head, begin))
            values = shifted(at(p[2], T), place_in(c, VALUE, batch, key_head, begin))
            to_keys = shifted(at(p[9], T), place_in(c, OF_KEY, batch, key_head, begin))
            to_values = shifted(at(p[10], T), place_in(c, OF_VALUE, batch, key_head, begin))
            for head in range(key_head * shared_by, (key_head + 1) * shared_by):
                whole = batch * c[HEADS] + head
                source = shifted(at(p[0], T), place_in(c, QUERY, batch, head, 0))
                of_out, of_upper = (
                    place_in(c, OUT, batch, head, 0),
                    place_in(c, UPPER, batch, head, 0),
                )
                upper = shifted(at(p[7], T), of_upper)
                mask = p[3] + place_in(c, MASKED, batch, head, 0) * of_mask
                part, apart = part_of_queries(p, c, x, chunk, whole, batch, head, T)
                sums_of_rows(block, k[2], source, q[2], queries, weights, KEYS, 0, there, depth, T)
                sums_of_rows(values, v[2], upper, g[2], queries, slopes, KEYS, 0, there, width, T)
                for row in range(queries):
                    s, slope = shifted(weights, row * KEYS), shifted(slopes, row * KEYS)
                    seen = max(min(there, row + 1 - begin), 0) if causal else there
                    here = mask + (row * m[2] + begin * m[3]) * of_mask
                    masked_scores(s, seen, room, scale, here, m[3], kind, T)
                    delta = dot_span(out, of_out + row * o[2], upper, row * g[2], width, T)
                    turn_into_gradients(
                        s, slope, factors, room, logs[whole * queries + row], delta, scale, T
                    )
                    for j in range(seen, there):
                        s[j], slope[j] = T(0), T(0)
                    sum_of_columns(strip, block, 0, depth, slope, 0, seen, k[2], 1, T)
                    for d in range(depth):
                        part[row * apart + d] += strip[d]
                    is_first = row == 0 and head == key_head * shared_by
                    outer_product(
                        to_keys, y[2], slope, source, row * q[2], there, depth, is_first, T
                    )
                    outer_product(to_values, z[2], s, upper, row * g[2], there, width, is_first, T)


@helper
def outer_product(out, step, x, y, first, rows, columns, is_first, T):
    """out[i, j] = x[i] * y[first + j], or that much more where it is not the first."""
    for i in range(rows):
        line, factor = shifted(out, i * step), x[i]
        if is_first:
            for j in range(columns):
                line[j] = factor * y[first + j]
        else:
            for j in range(columns):
                line[j] += factor * y[first + j]


@kernel
def add_parts(args, start, stop):
    """The gradients of queries from what each chunk of keys adds to them; a unit is a block of queries."""
    p = words(args)
    c, x = shifted(p, 12), shifted(p, 12 + STRIDES + 4 * OF_QUERY)
    heads, blocks = c[HEADS], c[BLOCKS]
    for unit in range(start, stop):
        entry, first = unit // blocks, unit % blocks * BACKWARD_QUERIES
        batch, head = entry // heads, entry % heads
        target = shifted(at(p[8], T), place_in(c, OF_QUERY, batch, head, 0))
        for i in range(first, min(first + BACKWARD_QUERIES, c[COUNT])):
            for chunk in range(c[CHUNKS]):
                part, apart = part_of_queries(p, c, x, chunk, entry, batch, head, T)
                for d in range(c[DEPTH]):
                    value = part[i * apart + d]
                    target[i * x[2] + d] = value if chunk == 0 else target[i * x[2] + d] + value
