"""Sums of spans by all warps of a block, for kernels that give a row to a block.

Their order is that of `reduce.py`: the parts of a span that a warp there sums one after the other
are summed by the warps of a block at once, and joined in the same order. So the bits are the same,
whatever the number of warps.
"""

from operator import add

from ..language.abi import helper
from ..language.device import barrier, dynamic, lane, thread, threads
from ..language.lanes import LANES, combine, fold, spread
from ..ops.reduce import BLOCK, RUN, deviations_onto, dot_onto, reduce_onto

MOST_THREADS = 256
PARTS_BYTES = 8 * MOST_THREADS  # of a block's dynamic memory, from its beginning on


@helper
def part_of_span(k, begin, end, blocks):
    """Where part k of a span lies: `blocks` of whole blocks, runs of whole lanes, what is left."""
    whole = begin + (end - begin) // LANES * LANES
    size = BLOCK if k < blocks else RUN
    first = min(begin + min(k, blocks) * BLOCK + max(k - blocks, 0) * RUN, whole)
    return first, end if first == whole else min(first + size, whole)


@helper
def parts_of_span(count, blocks):
    """The parts of a span of so many elements."""
    left = count - blocks * BLOCK
    return blocks + (left // LANES * LANES + RUN - 1) // RUN + min(left % LANES, 1)


@helper
def joined(op, total, part, count, T):
    """Lanes of a running result and of the parts of the first `count` warps, one after the other."""
    parts = dynamic(T, 0)
    parts[thread()] = part
    barrier()
    for k in range(min(count, threads() // LANES)):
        total = combine(op, total, parts[k * LANES + lane()])
    barrier()
    return total


@helper
def reduce_span(op, x, begin, end, neutral, T):
    """`op` over x[begin:end]."""
    blocks = (end - begin) // BLOCK
    count = parts_of_span(end - begin, blocks)
    total = spread(T(neutral))
    for first in range(0, count, threads() // LANES):
        k = first + thread() // LANES
        part = spread(T(neutral))
        if k < count:
            i, j = part_of_span(k, begin, end, blocks)
            part = reduce_onto(op, part, x, i, j, neutral, T)
        total = joined(op, total, part, count - first, T)
    return fold(op, total)


@helper
def dot_span(x, i, y, j, count, T):
    """The sum of x[i + k] * y[j + k] for k < count."""
    parts = parts_of_span(count, 0)
    total = spread(T(0))
    for first in range(0, parts, threads() // LANES):
        k = first + thread() // LANES
        part = spread(T(0))
        if k < parts:
            a, b = part_of_span(k, 0, count, 0)
            part = dot_onto(part, x, i + a, y, j + a, b - a, T)
        total = joined(add, total, part, parts - first, T)
    return fold(add, total)


@helper
def square_deviations(x, begin, end, mean, T):
    """The sum of (x - mean)**2 over x[begin:end]."""
    parts = parts_of_span(end - begin, 0)
    total = spread(T(0))
    for first in range(0, parts, threads() // LANES):
        k = first + thread() // LANES
        part = spread(T(0))
        if k < parts:
            i, j = part_of_span(k, begin, end, 0)
            part = deviations_onto(part, x, i, j, mean, T)
        total = joined(add, total, part, parts - first, T)
    return fold(add, total)
