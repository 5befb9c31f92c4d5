"""Sums over a few elements at places that are given: out[p] = sum over t of w[t, p] * x[i[t, p]].

The three kernels are each other's derivatives. Words: two tensors, the places, out; then channels,
elements of a channel, points, taps. A place below 0 is none. Tensors are images x channels x
elements, or images x taps x points.
"""

from .abi import T, Y, at, kernel, words
from .blas import shifted
from .lanes import stack

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
