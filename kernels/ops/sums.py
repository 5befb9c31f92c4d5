"""Sums of several arrays."""

from ..language.abi import T, at, kernel, words

# ----- CPU -----


@kernel
def sum_arrays(args, start, stop):
    """out = the sum of at least two arrays, from the first to the last. Words: the arrays, out."""
    p = words(args)
    count = p[-1] - 1
    first, second, out = at(p[0], T), at(p[1], T), at(p[count], T)
    for i in range(start, stop):
        out[i] = first[i] + second[i]
    for k in range(2, count):
        x = at(p[k], T)
        for i in range(start, stop):
            out[i] += x[i]
