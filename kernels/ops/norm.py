"""Layer normalisation over rows.

The statistics of a row are its mean and then the mean of its squared deviations, both taken while
the row lies in the cache. The backward pass reads everything once: a chunk of rows gives its
rows of the input's gradient and one partial sum for the weight's and the bias's gradient.
"""

import math
from operator import add, mul, sub

from ..language.abi import Row, T, at, helper, kernel, scalar, words
from ..language.lanes import LANES, combine, fold, load, load_some, spread, store, store_some
from .reduce import moments_again, reduce_span, square_deviations


@helper
def scale_of_large(sqrt, x, begin, end, mean, eps, T):
    """Mean and 1 / sqrt(variance + eps) of x[begin:end], whose deviations have infinite squares."""
    mean, squares, s = moments_again(x, begin, end, mean, T(math.inf), T, T)
    variance = squares / T(end - begin) + T(eps) * s * s
    return mean / s, T(1) / sqrt(variance) * s


@helper
def layer_norm_row(sqrt, x, i, weight, bias, out, j, count, affine, eps, T):
    """out[j:] = the normalised row x[i:i + count]; its mean, and what it is scaled by."""
    mean = reduce_span(add, x, i, i + count, T(0), T) / T(count)
    variance = square_deviations(x, i, i + count, mean, T) / T(count)
    scale = T(1) / sqrt(variance + eps)
    if not variance < T(math.inf):
        mean, scale = scale_of_large(sqrt, x, i, i + count, mean, eps, T)
    if affine == 2:
        for k in range(count):
            out[j + k] = (x[i + k] - mean) * scale * weight[k] + bias[k]
    elif affine == 1:
        for k in range(count):
            out[j + k] = (x[i + k] - mean) * scale * weight[k]
    else:
        for k in range(count):
            out[j + k] = (x[i + k] - mean) * scale
    return mean, scale


@kernel
def layer_norm_rows(args, start, stop):
    """out = (x - mean) / sqrt(variance + eps) * weight + bias; keeps mean and 1 / sqrt(...)."""
    p = words(args)
    x, weight, bias = at(p[0], T), at(p[1], T), at(p[2], T)
    out, means, scales = at(p[3], T), at(p[4], T), at(p[5], T)
    length, affine, eps = p[6], p[7], scalar(p[8], T)
    for row in range(start, stop):
        i = row * length
        means[row], scales[row] = layer_norm_row(
            math.sqrt, x, i, weight, bias, out, i, length, affine, eps, T
        )


layer_norm_rows.row = Row(layer_norm_row, ("sqrt",), "ecc", "err")


@kernel
def layer_norm_backward_rows(args, start, stop):
    """gx of a chunk of rows, and the chunk's part of the weight's and the bias's gradients."""
    p = words(args)
    g, x, means, scales, weight = at(p[0], T), at(p[1], T), at(p[2], T), at(p[3], T), at(p[4], T)
    gx, weight_parts, bias_parts = at(p[5], T), at(p[6], T), at(p[7], T)
    length, rows, step, weighted = p[8], p[9], p[10], p[11]
    whole = length // LANES * LANES
    rest = length - whole
    for unit in range(start, stop):
        part = unit * length
        for i in range(length):
            weight_parts[part + i] = T(0)
            bias_parts[part + i] = T(0)
        for row in range(unit * step, min((unit + 1) * step, rows)):
            begin = row * length
            mean, scale = spread(means[row]), spread(scales[row])
            total = spread(T(0))
            product = spread(T(0))
            for i in range(0, whole, LANES):
                upper = load(g, begin + i)
                centered = combine(sub, load(x, begin + i), mean)
                normal = combine(mul, centered, scale)
                share = combine(mul, upper, normal)
                store(bias_parts, part + i, combine(add, load(bias_parts, part + i), upper))
                store(weight_parts, part + i, combine(add, load(weight_parts, part + i), share))
                if weighted:
                    w = load(weight, i)
                    upper = combine(mul, upper, w)
                    share = combine(mul, share, w)
                total = combine(add, total, upper)
                product = combine(add, product, share)
            if rest:
                i = whole
                upper = load_some(g, begin + i, rest, T(0))
                centered = combine(sub, load_some(x, begin + i, rest, means[row]), mean)
                normal = combine(mul, centered, scale)
                share = combine(mul, upper, normal)
                sums = load_some(bias_parts, part + i, rest, T(0))
                store_some(bias_parts, part + i, combine(add, sums, upper), rest)
                sums = load_some(weight_parts, part + i, rest, T(0))
                store_some(weight_parts, part + i, combine(add, sums, share), rest)
                if weighted:
                    w = load_some(weight, i, rest, T(0))
                    upper = combine(mul, upper, w)
                    share = combine(mul, share, w)
                total = combine(add, total, upper)
                product = combine(add, product, share)
            middle = fold(add, total) / T(length)
            slope = fold(add, product) / T(length)
            m, s = means[row], scales[row]
            if weighted:
                for i in range(length):
                    normal = (x[begin + i] - m) * s
                    gx[begin + i] = s * (g[begin + i] * weight[i] - middle - normal * slope)
            else:
                for i in range(length):
                    normal = (x[begin + i] - m) * s
                    gx[begin + i] = s * (g[begin + i] - middle - normal * slope)
