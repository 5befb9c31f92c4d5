"""Constants and sequences."""

import math

from .abi import I, T, at, float_of_bits, kernel, words

# ----- CPU -----


@kernel
def constant_float(args, start, stop):
    """out[i] = a number. Words: out, the bits of the number."""
    p = words(args)
    out, value = at(p[0], T), T(float_of_bits(p[1]))
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
    """out[i] = first + i * step. Words: out, bits of first, bits of step."""
    p = words(args)
    out, first, step = at(p[0], T), float_of_bits(p[1]), float_of_bits(p[2])
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

    Words: out, count, bits of first, last and base.
    """
    p = words(args)
    out, count = at(p[0], T), p[1]
    first, last, base = float_of_bits(p[2]), float_of_bits(p[3]), float_of_bits(p[4])
    step = (last - first) / max(count - 1, 1)
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
