"""The statistics of batch normalisation.

They are taken block by block, a block being what stays in the first cache: its mean, then its
squared deviations from it. Blocks are joined in float64 by Chan's formula, so a mean far from zero
costs no digits, and memory is read once for both moments.

`planes` are tensors in C order, where a channel is one run of elements in each image: a unit is a
channel. With channels last, chunks of rows give partial sums for all channels, and a second step
joins them. How the work is cut depends on the shape alone.
"""

import math
from operator import add

from ..language.abi import A, T, at, helper, kernel, scalar, shifted, words
from ..language.lanes import fold, spread, stack
from .reduce import deviations_onto, reduce_onto, reduce_span, square_deviations

BLOCK = 4096  # elements whose sums are taken in the kernel's dtype
STRIP = 256  # channels that a pass over channels-last rows keeps in registers and the first cache


def rows_of_chunk(channels: int) -> int:
    """Rows of a chunk of channels-last memory: a first cache full of float32, but not too many."""
    return min(256, max(1, 2 * BLOCK // max(channels, 1)))


@helper
def joined(count, mean, squares, more, other_mean, other_squares, A):
    """Mean and sum of squared deviations of two parts together; the first may be nothing."""
    delta = other_mean - mean
    share = A(more) / A(count + more)
    between = delta * A(count) * delta * share  # of nothing 0, even if the square is infinite
    return mean + delta * share, squares + other_squares + between


@helper
def channel_moments(x, first, apart, rows, length, A, T):
    """Mean and sum of squared deviations of runs of `length` elements that begin `apart`."""
    if rows == 1 and length <= BLOCK:  # 12 ns for a short run, and 50 as a block of several
        center = reduce_span(add, x, first, first + length, T(0), T) / T(length)
        return A(center), A(square_deviations(x, first, first + length, center, T))
    together = max(1, BLOCK // max(length, 1))
    count, mean, squares = 0, A(0), A(0)
    for row in range(0, rows, together):
        runs = min(together, rows - row)
        for begin in range(0, length, BLOCK):
            size = min(BLOCK, length - begin)
            start = first + row * apart + begin
            total = spread(T(0))
            for r in range(runs):
                i = start + r * apart
                total = reduce_onto(add, total, x, i, i + size, T(0), T)
            center = fold(add, total) / T(runs * size)
            total = spread(T(0))
            for r in range(runs):
                i = start + r * apart
                total = deviations_onto(total, x, i, i + size, center, T)
            more, others = A(center), A(fold(add, total))
            if count:
                mean, squares = joined(count, mean, squares, runs * size, more, others, A)
            else:
                mean, squares = more, others
            count += runs * size
    return mean, squares


# words: x, running mean, running variance; means, factors, new running mean and variance; then
# scratch for channels last, sizes, and as the last three whether statistics run, eps, momentum


@helper
def keep_statistics(p, settings, channel, count, mean, squares, A, T):
    """Write what a channel's moments say."""
    old_mean, old_variance = at(p[1], T), at(p[2], T)
    means, scales, new_mean, new_variance = at(p[3], T), at(p[4], T), at(p[5], T), at(p[6], T)
    runs, eps, momentum = settings[0], scalar(settings[1], A), scalar(settings[2], A)
    means[channel] = T(mean)
    scales[channel] = T(A(1) / math.sqrt(squares / A(count) + eps))
    if runs:
        kept, variance = A(1) - momentum, squares / A(count - 1)
        new_mean[channel] = T(kept * A(old_mean[channel]) + momentum * mean)
        new_variance[channel] = T(kept * A(old_variance[channel]) + momentum * variance)


@kernel
def moments_of_planes(args, start, stop):
    """The statistics of channels; a unit is a channel."""
    p = words(args)
    x, images, channels, area = at(p[0], T), p[7], p[8], p[9]
    for channel in range(start, stop):
        mean, squares = channel_moments(x, channel * area, channels * area, images, area, A, T)
        keep_statistics(p, shifted(p, 10), channel, images * area, mean, squares, A, T)


# channels last; scratch: (2, channels) of each chunk of rows; sizes: rows, channels, rows of a chunk,
# chunks


@kernel
def moments_of_chunks(args, start, stop):
    """Means and sums of squared deviations of the channels in a chunk."""
    p = words(args)
    x, parts, rows, channels, step = at(p[0], T), at(p[7], T), p[8], p[9], p[10]
    sums, squares = stack(T, STRIP), stack(T, STRIP)
    for unit in range(start, stop):
        first = unit * step
        last = min(first + step, rows)
        for left in range(0, channels, STRIP):
            width = min(STRIP, channels - left)
            for c in range(width):
                sums[c] = T(0)
                squares[c] = T(0)
            for row in range(first, last):
                line = shifted(x, row * channels + left)
                for c in range(width):
                    sums[c] += line[c]
            for c in range(width):
                sums[c] /= T(last - first)
            for row in range(first, last):
                line = shifted(x, row * channels + left)
                for c in range(width):
                    d = line[c] - sums[c]
                    squares[c] += d * d
            part = shifted(parts, 2 * unit * channels + left)
            for c in range(width):
                part[c] = sums[c]
                part[channels + c] = squares[c]


@kernel
def join_moments(args, start, stop):
    """The statistics of channels from those of the chunks; a unit is a strip of channels."""
    p = words(args)
    parts, rows, channels, step, chunks = at(p[7], T), p[8], p[9], p[10], p[11]
    means, squares = stack(A, STRIP), stack(A, STRIP)
    for unit in range(start, stop):
        left = unit * STRIP
        width = min(STRIP, channels - left)
        for c in range(width):
            means[c] = A(0)
            squares[c] = A(0)
        count = 0
        for chunk in range(chunks):
            part = shifted(parts, 2 * chunk * channels + left)
            more = min(step, rows - count)
            share = A(more) / A(count + more)
            for c in range(width):
                delta = A(part[c]) - means[c]
                means[c] += delta * share
                squares[c] += A(part[channels + c]) + delta * A(count) * delta * share
            count += more
        for c in range(width):
            keep_statistics(p, shifted(p, 12), left + c, rows, means[c], squares[c], A, T)
