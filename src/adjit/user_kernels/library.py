"""NumPy's functions on whole arrays as loops: they are read as if the user had written them.

The number at the end of a name is that of the first argument's dimensions. An argument may be arithmetic
on arrays that has no memory of its own.
"""

# mypy: ignore-errors
from __future__ import annotations

import numpy as np


def in_dtype_of(a, v):
    """A number in the dtype of an array of floats; the reader knows it."""
    return a.dtype.type(v)


def sum1(a):
    s = in_dtype_of(a, 0.0)
    for i in range(a.shape[0]):
        s += a[i]
    return s


def sum2(a):
    s = in_dtype_of(a, 0.0)
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            s += a[i, j]
    return s


def sum3(a):
    s = in_dtype_of(a, 0.0)
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            for k in range(a.shape[2]):
                s += a[i, j, k]
    return s


def mean1(a):
    return in_dtype_of(a, sum1(a) / a.shape[0])


def mean2(a):
    return in_dtype_of(a, sum2(a) / (a.shape[0] * a.shape[1]))


def mean3(a):
    return in_dtype_of(a, sum3(a) / (a.shape[0] * a.shape[1] * a.shape[2]))


def prod1(a):
    s = in_dtype_of(a, 1.0)
    for i in range(a.shape[0]):
        s *= a[i]
    return s


def max1(a):
    assert a.shape[0] > 0, "an empty array has no such element"
    m = a[0]
    for i in range(1, a.shape[0]):
        m = np.maximum(m, a[i])
    return m


def max2(a):
    assert a.size > 0, "an empty array has no such element"
    m = a[0, 0]
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            m = np.maximum(m, a[i, j])
    return m


def min1(a):
    assert a.shape[0] > 0, "an empty array has no such element"
    m = a[0]
    for i in range(1, a.shape[0]):
        m = np.minimum(m, a[i])
    return m


def min2(a):
    assert a.size > 0, "an empty array has no such element"
    m = a[0, 0]
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            m = np.minimum(m, a[i, j])
    return m


def argmax1(a):
    assert a.shape[0] > 0, "an empty array has no such element"
    m = a[0]
    at = 0
    for i in range(1, a.shape[0]):
        v = a[i]
        if v > m:
            m = v
            at = i
    return at


def argmin1(a):
    assert a.shape[0] > 0, "an empty array has no such element"
    m = a[0]
    at = 0
    for i in range(1, a.shape[0]):
        v = a[i]
        if v < m:
            m = v
            at = i
    return at


def dot11(a, b):
    assert a.shape[0] == b.shape[0], "the vectors have other lengths"
    s = in_dtype_of(a, 0.0)
    for i in range(a.shape[0]):
        s += a[i] * b[i]
    return s


def dot21(a, b):
    assert a.shape[1] == b.shape[0], "the matrix has not as many columns as the vector elements"
    c = np.empty(a.shape[0], a.dtype)
    for i in range(a.shape[0]):
        s = in_dtype_of(a, 0.0)
        for k in range(a.shape[1]):
            s += a[i, k] * b[k]
        c[i] = s
    return c


def dot12(a, b):
    assert a.shape[0] == b.shape[0], "the matrix has not as many rows as the vector elements"
    c = np.zeros(b.shape[1], a.dtype)
    for k in range(b.shape[0]):
        for j in range(b.shape[1]):
            c[j] += a[k] * b[k, j]
    return c


def dot22(a, b):
    assert a.shape[1] == b.shape[0], "the matrices do not fit each other"
    c = np.zeros((a.shape[0], b.shape[1]), a.dtype)
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            for j in range(b.shape[1]):
                c[i, j] += a[i, k] * b[k, j]
    return c


def outer11(a, b):
    c = np.empty((a.shape[0], b.shape[0]), a.dtype)
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            c[i, j] = a[i] * b[j]
    return c


def cross11(a, b):
    assert a.shape[0] == 3, "np.cross takes vectors of three elements"
    assert b.shape[0] == 3, "np.cross takes vectors of three elements"
    c = np.empty(3, a.dtype)
    c[0] = a[1] * b[2] - a[2] * b[1]
    c[1] = a[2] * b[0] - a[0] * b[2]
    c[2] = a[0] * b[1] - a[1] * b[0]
    return c


def linspace(first, last, count):
    c = np.empty(count)
    for i in range(count):
        c[i] = first + i * ((last - first) / (count - 1))
    if count > 1:
        c[count - 1] = last
    return c


def fill1(a, v):
    for i in range(a.shape[0]):
        a[i] = v


def fill2(a, v):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            a[i, j] = v


def fill3(a, v):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            for k in range(a.shape[2]):
                a[i, j, k] = v


def assign1(a, b):
    for i in range(a.shape[0]):
        a[i] = b[i]


def assign2(a, b):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            a[i, j] = b[i, j]


def assign3(a, b):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            for k in range(a.shape[2]):
                a[i, j, k] = b[i, j, k]


def increase1(a, b):
    for i in range(a.shape[0]):
        a[i] += b[i]


def increase2(a, b):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            a[i, j] += b[i, j]


def increase3(a, b):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            for k in range(a.shape[2]):
                a[i, j, k] += b[i, j, k]


def scatter1(a, k, v):
    assert k.shape[0] == v.shape[0], "there are not as many values as indices"
    for i in range(k.shape[0]):
        a[k[i]] = v[i]


def total1(a):
    n = 0
    for i in range(a.shape[0]):
        n += a[i]
    return n


def count1(a):
    n = 0
    for i in range(a.shape[0]):
        if a[i] != 0:
            n += 1
    return n


def count2(a):
    n = 0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            if a[i, j] != 0:
                n += 1
    return n


def any1(a):
    return count1(a) > 0


def any2(a):
    return count2(a) > 0


def all1(a):
    return count1(a) == a.shape[0]


def all2(a):
    return count2(a) == a.shape[0] * a.shape[1]


def var1(a):
    m = mean1(a)
    s = 0.0
    for i in range(a.shape[0]):
        s += (a[i] - m) * (a[i] - m)
    return s / a.shape[0]


def var2(a):
    m = mean2(a)
    s = 0.0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            s += (a[i, j] - m) * (a[i, j] - m)
    return s / (a.shape[0] * a.shape[1])


def std2(a):
    return np.sqrt(var2(a))


def std1(a):
    return np.sqrt(var1(a))


def norm1(a):
    s = 0.0
    for i in range(a.shape[0]):
        s += a[i] * a[i]
    return in_dtype_of(a, np.sqrt(s))


def norm2(a):
    s = 0.0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            s += a[i, j] * a[i, j]
    return np.sqrt(s)


def cumsum1(a):
    c = np.empty(a.shape[0], a.dtype)
    s = in_dtype_of(a, 0.0)
    for i in range(a.shape[0]):
        s += a[i]
        c[i] = s
    return c


def cumprod1(a):
    c = np.empty(a.shape[0], a.dtype)
    s = in_dtype_of(a, 1.0)
    for i in range(a.shape[0]):
        s *= a[i]
        c[i] = s
    return c


def diff1(a):
    c = np.empty(max(a.shape[0] - 1, 0), a.dtype)
    for i in range(a.shape[0] - 1):
        c[i] = a[i + 1] - a[i]
    return c


def trace2(a):
    s = 0.0
    for i in range(min(a.shape[0], a.shape[1])):
        s += a[i, i]
    return s


def diag1(a):
    c = np.zeros((a.shape[0], a.shape[0]), a.dtype)
    for i in range(a.shape[0]):
        c[i, i] = a[i]
    return c


def diag2(a):
    n = min(a.shape[0], a.shape[1])
    c = np.empty(n, a.dtype)
    for i in range(n):
        c[i] = a[i, i]
    return c


def flatten1(a):
    c = np.empty(a.shape[0], a.dtype)
    for i in range(a.shape[0]):
        c[i] = a[i]
    return c


def flatten2(a):
    n = a.shape[1]
    c = np.empty(a.shape[0] * n, a.dtype)
    for i in range(a.shape[0]):
        for j in range(n):
            c[i * n + j] = a[i, j]
    return c


def roll1(a, by):
    n = a.shape[0]
    c = np.empty(n, a.dtype)
    for i in range(n):
        c[i] = a[(i - by) % n]
    return c


def eye(n):
    c = np.zeros((n, n))
    for i in range(n):
        c[i, i] = 1.0
    return c


def arange(first, last, step):
    n = max(0, (last - first + step - 1) // step)
    c = np.empty(n, np.int64)
    for i in range(n):
        c[i] = first + i * step
    return c


def arange_of_floats(first, last, step):
    n = max(0, int(np.ceil((last - first) / step)))
    c = np.empty(n)
    for i in range(n):
        c[i] = first + i * step
    return c


def logaddexp(a, b):
    if np.isinf(a) and a == b:
        return a
    if a > b:
        return a + np.log1p(np.exp(b - a))
    return b + np.log1p(np.exp(a - b))


def searchsorted(a, v):
    low = 0
    high = a.shape[0]
    while low < high:
        middle = (low + high) // 2
        if a[middle] < v:
            low = middle + 1
        else:
            high = middle
    return low


def interp(x, xs, ys):
    n = xs.shape[0]
    assert n > 0, "there is nothing to interpolate between"
    assert n == ys.shape[0], "there are not as many values as places"
    k = searchsorted(xs, x)
    if k == 0:
        return ys[0]
    if k == n:
        return ys[n - 1]
    slope = (ys[k] - ys[k - 1]) / (xs[k] - xs[k - 1])
    return ys[k - 1] + slope * (x - xs[k - 1])


def sum_of_columns(a):
    c = np.zeros(a.shape[1], a.dtype)
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            c[j] += a[i, j]
    return c


def sum_of_rows(a):
    c = np.empty(a.shape[0], a.dtype)
    for i in range(a.shape[0]):
        s = in_dtype_of(a, 0.0)
        for j in range(a.shape[1]):
            s += a[i, j]
        c[i] = s
    return c


def mean_of_columns(a):
    c = sum_of_columns(a)
    for j in range(a.shape[1]):
        c[j] /= a.shape[0]
    return c


def mean_of_rows(a):
    c = sum_of_rows(a)
    for i in range(a.shape[0]):
        c[i] /= a.shape[1]
    return c


def max_of_columns(a):
    assert a.shape[0] > 0, "an empty array has no such element"
    c = np.empty(a.shape[1], a.dtype)
    for j in range(a.shape[1]):
        m = a[0, j]
        for i in range(1, a.shape[0]):
            m = np.maximum(m, a[i, j])
        c[j] = m
    return c


def max_of_rows(a):
    assert a.shape[1] > 0, "an empty array has no such element"
    c = np.empty(a.shape[0], a.dtype)
    for i in range(a.shape[0]):
        m = a[i, 0]
        for j in range(1, a.shape[1]):
            m = np.maximum(m, a[i, j])
        c[i] = m
    return c


def min_of_columns(a):
    assert a.shape[0] > 0, "an empty array has no such element"
    c = np.empty(a.shape[1], a.dtype)
    for j in range(a.shape[1]):
        m = a[0, j]
        for i in range(1, a.shape[0]):
            m = np.minimum(m, a[i, j])
        c[j] = m
    return c


def min_of_rows(a):
    assert a.shape[1] > 0, "an empty array has no such element"
    c = np.empty(a.shape[0], a.dtype)
    for i in range(a.shape[0]):
        m = a[i, 0]
        for j in range(1, a.shape[1]):
            m = np.minimum(m, a[i, j])
        c[i] = m
    return c
