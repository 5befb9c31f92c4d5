"""Sums over a few elements at places that are given: out[p] = sum over t of w[t, p] * x[i[t, p]].

The three kernels are each other's derivatives. Words: two tensors, the places, out; then channels,
elements of a channel, points, taps. A place below 0 is none. Tensors are images x channels x
elements, or images x taps x points. There are two of each: in C order a loop runs over points, whose
elements lie anywhere; with the channels last it runs over them, which lie side by side.
"""

from operator import add, mul

from ..language.abi import T, Y, at, kernel, shifted, words
from ..language.lanes import (
    LANES,
    combine,
    fold,
    load_block,
    spread,
    stack,
    store_block,
)

STRIP = 256  # points that are summed at a time


@kernel
def gather_taps(args, start, stop):
    """out[c, p] = the sum over t of w[t, p] * x[c, i[t, p]]; a unit is a channel of an image."""
    p = words(args)
    x, w, places, out = at(p[0], T), at(p[1], T), at(p[2], Y), at(p[3], T)
    channels, size, points, taps = p[4], p[5], p[6], p[7]
    total = stack(T, STRIP)
    for unit in range(start, stop):
        source, first = shifted(x, unit * size), unit // channels * taps * points
        for left in range(0, points, STRIP):
            width = min(STRIP, points - left)
            for j in range(width):
                total[j] = T(0)
            for t in range(taps):
                weight = shifted(w, first + t * points + left)
                place = shifted(places, first + t * points + left)
                for j in range(width):
                    inside = place[j] >= 0
                    value = weight[j] * source[place[j] if inside else 0]
                    total[j] += value if inside else T(0)
            target = shifted(out, unit * points + left)
            for j in range(width):
                target[j] = total[j]


@kernel
def scatter_taps(args, start, stop):
    """out[c, i] = the sum of w[t, p] * g[c, p] over the taps at i; a unit is a channel."""
    p = words(args)
    g, w, places, out = at(p[0], T), at(p[1], T), at(p[2], Y), at(p[3], T)
    channels, size, points, taps = p[4], p[5], p[6], p[7]
    for unit in range(start, stop):
        target, first = shifted(out, unit * size), unit // channels * taps * points
        upper = shifted(g, unit * points)
        for i in range(size):
            target[i] = T(0)
        for t in range(taps):
            weight, place = shifted(w, first + t * points), shifted(places, first + t * points)
            for j in range(points):
                if place[j] >= 0:
                    target[place[j]] += weight[j] * upper[j]


@kernel
def multiply_taps(args, start, stop):
    """out[t, p] = the sum over c of g[c, p] * x[c, i[t, p]]; a unit is a tap of an image."""
    p = words(args)
    g, x, places, out = at(p[0], T), at(p[1], T), at(p[2], Y), at(p[3], T)
    channels, size, points, taps = p[4], p[5], p[6], p[7]
    total = stack(T, STRIP)
    for unit in range(start, stop):
        image = unit // taps * channels
        for left in range(0, points, STRIP):
            width = min(STRIP, points - left)
            place = shifted(places, unit * points + left)
            for j in range(width):
                total[j] = T(0)
            for c in range(image, image + channels):
                source, upper = shifted(x, c * size), shifted(g, c * points + left)
                for j in range(width):
                    inside = place[j] >= 0
                    value = upper[j] * source[place[j] if inside else 0]
                    total[j] += value if inside else T(0)
            target = shifted(out, unit * points + left)
            for j in range(width):
                target[j] = total[j]


# with the channels last: images x elements x channels; a block of channels is LANES or the rest


@kernel
def gather_taps_last(args, start, stop):
    """`gather_taps`; a unit is a strip of the points of an image."""
    p = words(args)
    x, w, places, out = at(p[0], T), at(p[1], T), at(p[2], Y), at(p[3], T)
    channels, size, points, taps = p[4], p[5], p[6], p[7]
    strips = -(-points // STRIP)
    for unit in range(start, stop):
        image, first = unit // strips, unit % strips * STRIP
        source = shifted(x, image * size * channels)
        for point in range(first, min(first + STRIP, points)):
            target = shifted(out, (image * points + point) * channels)
            for left in range(0, channels, LANES):
                count, total = min(LANES, channels - left), spread(T(0))
                for t in range(taps):
                    tap = (image * taps + t) * points + point
                    if places[tap] >= 0:
                        block = load_block(source, places[tap] * channels + left, count, T(0))
                        total = combine(add, total, combine(mul, spread(w[tap]), block))
                store_block(target, left, total, count)


@kernel
def scatter_taps_last(args, start, stop):
    """`scatter_taps`; a unit is a block of the channels of an image."""
    p = words(args)
    g, w, places, out = at(p[0], T), at(p[1], T), at(p[2], Y), at(p[3], T)
    channels, size, points, taps = p[4], p[5], p[6], p[7]
    blocks = -(-channels // LANES)
    for unit in range(start, stop):
        image, left = unit // blocks, unit % blocks * LANES
        count = min(LANES, channels - left)
        target = shifted(out, image * size * channels + left)
        for i in range(size):
            store_block(target, i * channels, spread(T(0)), count)
        for point in range(points):
            upper = load_block(g, (image * points + point) * channels + left, count, T(0))
            for t in range(taps):
                tap = (image * taps + t) * points + point
                if places[tap] >= 0:
                    place = places[tap] * channels
                    more = combine(mul, spread(w[tap]), upper)
                    store_block(
                        target,
                        place,
                        combine(add, load_block(target, place, count, T(0)), more),
                        count,
                    )


@kernel
def multiply_taps_last(args, start, stop):
    """`multiply_taps`; a unit is a strip of the points of an image."""
    p = words(args)
    g, x, places, out = at(p[0], T), at(p[1], T), at(p[2], Y), at(p[3], T)
    channels, size, points, taps = p[4], p[5], p[6], p[7]
    strips = -(-points // STRIP)
    for unit in range(start, stop):
        image, first = unit // strips, unit % strips * STRIP
        source = shifted(x, image * size * channels)
        for point in range(first, min(first + STRIP, points)):
            upper = shifted(g, (image * points + point) * channels)
            for t in range(taps):
                tap = (image * taps + t) * points + point
                place, total = places[tap] * channels, spread(T(0))
                if place >= 0:
                    for left in range(0, channels, LANES):
                        count = min(LANES, channels - left)
                        block = load_block(source, place + left, count, T(0))
                        more = combine(mul, load_block(upper, left, count, T(0)), block)
                        total = combine(add, total, more)
                out[tap] = fold(add, total)
