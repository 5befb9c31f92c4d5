"""Constants and sequences."""

import math

from ..language.abi import A, I, T, at, helper, kernel, scalar, words
from ..language.device import all_threads, first_unit, on_device
from ..math.double_word import point_of, rounded

# ----- CPU -----


@kernel
def constant_float(args, start, stop):
    """out[i] = a number. Words: out, the bits of the number."""
    p = words(args)
    out, value = at(p[0], T), scalar(p[1], T)
    for i in range(start, stop):
        out[i] = value


@kernel
def constant_int(args, start, stop):
    """out[i] = a whole number. Words: out, the number."""
    p = words(args)
    out, value = at(p[0], T), T(p[1])
    for i in range(start, stop):
        out[i] = value


@kernel
def ramp_float(args, start, stop):
    """out[i] = first + i * step. Words: out; first and step, each with its rest in float32."""
    p = words(args)
    out, first, step = at(p[0], T), scalar(p[1], A), scalar(p[3], A)
    for i in range(start, stop):
        out[i] = T(first + i * step)


@kernel
def ramp_int(args, start, stop):
    """out[i] = first + i * step. Words: out, first, step."""
    p = words(args)
    out, first, step = at(p[0], T), p[1], p[2]
    for i in range(start, stop):
        out[i] = T(first + i * step)


@kernel
def spaced(args, start, stop):
    """Equally spaced from first to last, or base to these powers where base is not 0.

    Words: out, count; first, last, step and base, each with its rest in float32.
    """
    p = words(args)
    out, count, base = at(p[0], T), p[1], scalar(p[8], A)
    first, last, step = scalar(p[2], A), scalar(p[4], A), scalar(p[6], A)
    for i in range(start, stop):
        x = first + step * i if i < count // 2 or count == 1 else last - step * (count - 1 - i)
        out[i] = T(math.pow(base, x)) if base != 0.0 else T(x)


@kernel
def identity(args, start, stop):
    """Rows of a matrix with ones on the diagonal. Words: out, columns."""
    p = words(args)
    out, columns = at(p[0], T), p[1]
    for r in range(start, stop):
        for c in range(columns):
            out[r * columns + c] = T(1) if r == c else T(0)


@kernel
def triangle_places(args, start, stop):
    """The places of a triangle of a matrix, row by row: numbers of rows, and of columns behind all of them.

    Words: out, columns, offset of the diagonal, whether it is the upper triangle, how many places.
    """
    p = words(args)
    out, columns, offset, is_upper, count = at(p[0], T), p[1], p[2], p[3], p[4]
    place = 0
    for r in range(stop):
        cut = min(max(r + offset + 1 - is_upper, 0), columns)
        first, end = (cut, columns) if is_upper else (0, cut)
        if r >= start:
            for c in range(first, end):
                out[place + c - first] = T(r)
                out[count + place + c - first] = T(c)
        place += end - first


@kernel
def same_bits(args, start, stop):
    """out[i] = in[i], whole numbers, as which others may be seen. Words: in, out."""
    p = words(args)
    source, out = at(p[0], T), at(p[1], T)
    for i in range(start, stop):
        out[i] = source[i]


@kernel
def copy_words(args, start, stop):
    """Copy 64-bit words; the last may reach into the padding that every block has.

    Words: source, target.
    """
    p = words(args)
    source, target = at(p[0], I), at(p[1], I)
    for i in range(start, stop):
        target[i] = source[i]


@kernel
def mark(args, start, stop):
    """Set a word to 1. Words: out."""
    p = words(args)
    at(p[0], I)[0] = 1


# ----- CUDA -----


def of_float32(words, letters):
    """Whether a kernel writes float32, for which these compute with pairs in the place of float64."""
    return letters["T"] == "float32"


@helper
def pair_at(row, k, T):
    """A number and its rest."""
    return scalar(row[k], T), scalar(row[k + 1], T)


@on_device(ramp_float, units=256, when=of_float32)
def ramp_of_pairs(row, n):
    """out[i] = first + i * step."""
    out = at(row[0], T)
    first, first_rest = pair_at(row, 1, T)
    step, step_rest = pair_at(row, 3, T)
    for i in range(first_unit(), n, all_threads()):
        value, rest = point_of(first, first_rest, step, step_rest, i, T)
        out[i] = rounded(value, rest)


@on_device(spaced, units=256, when=of_float32)
def spaced_by_pairs(row, n):
    """Equally spaced from first to last, or base to these powers where base is not 0.

    A power is that of float32, times what the rests of base and exponent make of it.
    """
    out, count = at(row[0], T), row[1]
    first, first_rest = pair_at(row, 2, T)
    last, last_rest = pair_at(row, 4, T)
    step, step_rest = pair_at(row, 6, T)
    base, base_rest = pair_at(row, 8, T)
    slope = math.log(abs(base)) if base != T(0) else T(0)
    for i in range(first_unit(), n, all_threads()):
        if i < count // 2 or count == 1:
            x, rest = point_of(first, first_rest, step, step_rest, i, T)
        else:
            x, rest = point_of(last, last_rest, -step, -step_rest, count - 1 - i, T)
        value = rounded(x, rest)
        rest += x - value
        if base != T(0):
            value = math.pow(base, value) * (T(1) + slope * rest + value * base_rest / base)
        out[i] = value
