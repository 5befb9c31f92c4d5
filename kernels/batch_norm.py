"""Batch normalisation: each channel to mean 0 and variance 1, forward and backward.

The statistics are taken block by block, a block being what stays in the first cache: its mean,
then its squared deviations from it. Blocks are joined in float64 by Chan's formula, so a mean far
from zero costs no digits, and memory is read once for both moments.

`planes` kernels take tensors in C order, where a channel is one run of elements in each image: a
unit is a channel, which is normalised while it lies in the second cache. `rows` kernels take
channels last: chunks of rows give partial sums for all channels, a second step joins them, a third
goes through the rows again. How the work is cut depends on the shape alone.
"""

import math
from operator import add, mul, sub

import numpy as np
from numba import njit

from .abi import T, at, float_of_bits, kernel, words
from .blas import shifted
from .lanes import LANES, combine, fold, load, load_some, spread, stack
from .reduce import deviations_onto, reduce_onto

BLOCK = 4096  # elements whose sums are taken in the kernel's dtype
STRIP = 256  # channels that a pass over channels-last rows keeps in registers and the first cache


def rows_of_chunk(channels: int) -> int:
    """Rows of a chunk of channels-last memory: a first cache full of float32, but not too many."""
    return min(256, max(1, 2 * BLOCK // max(channels, 1)))


@njit(error_model="numpy")
def joined(count, mean, squares, more, other_mean, other_squares):
    """Mean and sum of squared deviations of two parts together."""
    delta = other_mean - mean
    share = more / (count + more)
    return mean + delta * share, squares + other_squares + delta * delta * count * share


@njit(error_model="numpy")
def channel_moments(x, first, apart, rows, length, T):
    """Mean and sum of squared deviations of runs of `length` elements that begin `apart`."""
    together = max(1, BLOCK // max(length, 1))
    count, mean, squares = 0, 0.0, 0.0
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
            mean, squares = joined(
                count, mean, squares, runs * size, np.float64(center), np.float64(fold(add, total))
            )
            count += runs * size
    return mean, squares


# words of the forward kernels: x, weight, bias, running mean, running variance; out, means, factors,
# new running mean and variance; then scratch, sizes, and as the last three flags, eps, momentum
WEIGHTED, SHIFTED, TRACKED = 1, 2, 4


@njit(error_model="numpy")
def keep_statistics(p, settings, channel, count, mean, squares, T):
    """Write what a channel's moments say; its mean, and what to multiply by and to add."""
    weight, bias, old_mean, old_variance = at(p[1], T), at(p[2], T), at(p[3], T), at(p[4], T)
    means, scales, new_mean, new_variance = at(p[6], T), at(p[7], T), at(p[8], T), at(p[9], T)
    flags, eps, momentum = settings[0], float_of_bits(settings[1]), float_of_bits(settings[2])
    center, scale = T(mean), T(1.0 / math.sqrt(squares / count + eps))
    means[channel] = center
    scales[channel] = scale
    if flags & TRACKED:
        kept, variance = 1.0 - momentum, squares / (count - 1)
        new_mean[channel] = T(kept * old_mean[channel] + momentum * mean)
        new_variance[channel] = T(kept * old_variance[channel] + momentum * variance)
    factor = scale * weight[channel] if flags & WEIGHTED else scale
    return center, factor, bias[channel] if flags & SHIFTED else T(0)


@kernel
def normalize_planes(args, start, stop):
    """out = (x - mean) / sqrt(variance + eps) * weight + bias; a unit is a channel."""
    p = words(args)
    x, out = at(p[0], T), at(p[5], T)
    images, channels, area = p[10], p[11], p[12]
    for channel in range(start, stop):
        first, apart = channel * area, channels * area
        mean, squares = channel_moments(x, first, apart, images, area, T)
        center, factor, shift = keep_statistics(
            p, shifted(p, 13), channel, images * area, mean, squares, T
        )
        for image in range(images):
            begin = first + image * apart
            for i in range(begin, begin + area):
                out[i] = (x[i] - center) * factor + shift


# channels last; scratch: (2, channels) partial sums of each chunk of rows, then (2, channels) of
# what to multiply by and to add; sizes: rows, channels, rows of a chunk, chunks


@kernel
def moments_of_chunks(args, start, stop):
    """Means and sums of squared deviations of the channels in a chunk."""
    p = words(args)
    x, parts, rows, channels, step = at(p[0], T), at(p[10], T), p[11], p[12], p[13]
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
    parts, rows, channels, step, chunks = at(p[10], T), p[11], p[12], p[13], p[14]
    factors = shifted(parts, 2 * chunks * channels)
    means, squares = stack(np.float64, STRIP), stack(np.float64, STRIP)
    for unit in range(start, stop):
        left = unit * STRIP
        width = min(STRIP, channels - left)
        for c in range(width):
            means[c] = 0.0
            squares[c] = 0.0
        count = 0
        for chunk in range(chunks):
            part = shifted(parts, 2 * chunk * channels + left)
            more = min(step, rows - count)
            share = more / (count + more)
            for c in range(width):
                delta = np.float64(part[c]) - means[c]
                means[c] += delta * share
                squares[c] += np.float64(part[channels + c]) + delta * delta * count * share
            count += more
        for c in range(width):
            _, factor, shift = keep_statistics(
                p, shifted(p, 15), left + c, rows, means[c], squares[c], T
            )
            factors[left + c] = factor
            factors[channels + left + c] = shift


@kernel
def normalize_rows(args, start, stop):
    """out = (x - mean) * factor + shift in a chunk of rows."""
    p = words(args)
    x, out, means = at(p[0], T), at(p[5], T), at(p[6], T)
    rows, channels, step, chunks = p[11], p[12], p[13], p[14]
    factors = shifted(at(p[10], T), 2 * chunks * channels)
    centers, scales, shifts = stack(T, STRIP), stack(T, STRIP), stack(T, STRIP)
    for left in range(0, channels, STRIP):
        width = min(STRIP, channels - left)
        for c in range(width):
            centers[c] = means[left + c]
            scales[c] = factors[left + c]
            shifts[c] = factors[channels + left + c]
        for row in range(start * step, min(stop * step, rows)):
            line, target = shifted(x, row * channels + left), shifted(out, row * channels + left)
            for c in range(width):
                target[c] = (line[c] - centers[c]) * scales[c] + shifts[c]


# gradients: gx = weight * scale * (g - mean(g) - normal * mean(g * normal)), gw = sum(g * normal),
# gb = sum(g), where normal = (x - mean) * scale
# words: g, x, means, scales, weight; gx, gw, gb; then scratch, sizes, whether there is a weight


@njit(error_model="numpy")
def channel_products(g, x, center, first, apart, rows, length, T):
    """The sums of g and of g * (x - center) over runs of `length` elements that begin `apart`."""
    together = max(1, BLOCK // max(length, 1))
    middle = spread(center)
    total, product = 0.0, 0.0
    for row in range(0, rows, together):
        runs = min(together, rows - row)
        for left in range(0, length, BLOCK):
            size = min(BLOCK, length - left)
            sums, products = spread(T(0)), spread(T(0))
            for r in range(runs):
                begin = first + (row + r) * apart + left
                whole = begin + size // LANES * LANES
                for i in range(begin, whole, LANES):
                    upper = load(g, i)
                    centered = combine(sub, load(x, i), middle)
                    sums = combine(add, sums, upper)
                    products = combine(add, products, combine(mul, upper, centered))
                rest = begin + size - whole
                if rest:
                    upper = load_some(g, whole, rest, T(0))
                    centered = combine(sub, load_some(x, whole, rest, center), middle)
                    sums = combine(add, sums, upper)
                    products = combine(add, products, combine(mul, upper, centered))
            total += np.float64(fold(add, sums))
            product += np.float64(fold(add, products))
    return total, product


@njit(error_model="numpy")
def keep_gradients(p, weighted, channel, count, total, product, T):
    """Write a channel's gw and gb; mean(g), scale * mean(g * normal), and the outer factor."""
    scales, weight, gw, gb = at(p[3], T), at(p[4], T), at(p[6], T), at(p[7], T)
    scale = scales[channel]
    slope = product * scale
    gw[channel] = T(slope)
    gb[channel] = T(total)
    factor = scale * weight[channel] if weighted else scale
    return T(total / count), T(slope * scale / count), factor


@kernel
def gradients_of_planes(args, start, stop):
    """gx, gw, gb of a channel."""
    p = words(args)
    g, x, means, gx = at(p[0], T), at(p[1], T), at(p[2], T), at(p[5], T)
    images, channels, area, weighted = p[8], p[9], p[10], p[11]
    for channel in range(start, stop):
        first, apart, center = channel * area, channels * area, means[channel]
        total, product = channel_products(g, x, center, first, apart, images, area, T)
        middle, slope, factor = keep_gradients(
            p, weighted, channel, images * area, total, product, T
        )
        for image in range(images):
            begin = first + image * apart
            for i in range(begin, begin + area):
                gx[i] = factor * (g[i] - middle - (x[i] - center) * slope)


# channels last; scratch: (2, channels) partial sums of each chunk, then (3, channels) of what
# keep_gradients gives; sizes: rows, channels, rows of a chunk, chunks


@kernel
def products_of_chunks(args, start, stop):
    """The sums of g and of g * (x - mean) in a chunk, for each channel."""
    p = words(args)
    g, x, means, parts = at(p[0], T), at(p[1], T), at(p[2], T), at(p[8], T)
    rows, channels, step = p[9], p[10], p[11]
    sums, products, centers = stack(T, STRIP), stack(T, STRIP), stack(T, STRIP)
    for unit in range(start, stop):
        first = unit * step
        last = min(first + step, rows)
        for left in range(0, channels, STRIP):
            width = min(STRIP, channels - left)
            for c in range(width):
                sums[c] = T(0)
                products[c] = T(0)
                centers[c] = means[left + c]
            for row in range(first, last):
                line, upper = shifted(x, row * channels + left), shifted(g, row * channels + left)
                for c in range(width):
                    sums[c] += upper[c]
                    products[c] += upper[c] * (line[c] - centers[c])
            part = shifted(parts, 2 * unit * channels + left)
            for c in range(width):
                part[c] = sums[c]
                part[channels + c] = products[c]


@kernel
def join_products(args, start, stop):
    """gw and gb of channels from the sums of the chunks; a unit is a strip of channels."""
    p = words(args)
    parts, rows, channels, chunks, weighted = at(p[8], T), p[9], p[10], p[12], p[13]
    factors = shifted(parts, 2 * chunks * channels)
    totals, products = stack(np.float64, STRIP), stack(np.float64, STRIP)
    for unit in range(start, stop):
        left = unit * STRIP
        width = min(STRIP, channels - left)
        for c in range(width):
            totals[c] = 0.0
            products[c] = 0.0
        for chunk in range(chunks):
            part = shifted(parts, 2 * chunk * channels + left)
            for c in range(width):
                totals[c] += np.float64(part[c])
                products[c] += np.float64(part[channels + c])
        for c in range(width):
            middle, slope, factor = keep_gradients(
                p, weighted, left + c, rows, totals[c], products[c], T
            )
            factors[left + c] = middle
            factors[channels + left + c] = slope
            factors[2 * channels + left + c] = factor


@kernel
def gradients_of_rows(args, start, stop):
    """gx in a chunk of rows."""
    p = words(args)
    g, x, means, gx = at(p[0], T), at(p[1], T), at(p[2], T), at(p[5], T)
    rows, channels, step, chunks = p[9], p[10], p[11], p[12]
    factors = shifted(at(p[8], T), 2 * chunks * channels)
    centers, middles, slopes, scales = (
        stack(T, STRIP), stack(T, STRIP), stack(T, STRIP), stack(T, STRIP)
    )  # fmt: skip
    for left in range(0, channels, STRIP):
        width = min(STRIP, channels - left)
        for c in range(width):
            centers[c] = means[left + c]
            middles[c] = factors[left + c]
            slopes[c] = factors[channels + left + c]
            scales[c] = factors[2 * channels + left + c]
        for row in range(start * step, min(stop * step, rows)):
            at_row = row * channels + left
            line, upper, target = shifted(x, at_row), shifted(g, at_row), shifted(gx, at_row)
            for c in range(width):
                inner = upper[c] - middles[c] - (line[c] - centers[c]) * slopes[c]
                target[c] = scales[c] * inner
