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


def prod2(a):
    s = in_dtype_of(a, 1.0)
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            s *= a[i, j]
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
        if v > m or (v != v and m == m):
            m = v
            at = i
    return at


def argmin1(a):
    assert a.shape[0] > 0, "an empty array has no such element"
    m = a[0]
    at = 0
    for i in range(1, a.shape[0]):
        v = a[i]
        if v < m or (v != v and m == m):
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
        c[i] = first + i * ((last - first) / max(count - 1, 1))
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


def factors(a):
    """L U = P a with the largest pivots: rows of L and of what is left as they are in `a`, and the row of each
    pivot. Each element is written once, so the way back has to keep none."""
    n = a.shape[0]
    if n != a.shape[1]:
        raise ValueError("Last 2 dimensions of the array must be square")
    lower = np.zeros((n, n), a.dtype)
    upper = np.zeros((n, n), a.dtype)
    left = np.zeros((n, n), a.dtype)
    rows = np.zeros(n, np.int64)
    step_of = np.full(n, n, np.int64)
    for j in range(n):
        for k in range(j):
            s = a[rows[k], j]
            for m in range(k):
                s -= lower[rows[k], m] * upper[m, j]
            upper[k, j] = s
        best = -1.0
        row = 0
        for i in range(n):
            if step_of[i] >= j:
                s = a[i, j]
                for m in range(j):
                    s -= lower[i, m] * upper[m, j]
                left[i, j] = s
                if abs(s) > best:
                    best = abs(s)
                    row = i
        rows[j] = row
        step_of[row] = j
        pivot = left[row, j]
        upper[j, j] = pivot
        if pivot != 0.0:
            for i in range(n):
                if step_of[i] > j:
                    lower[i, j] = left[i, j] / pivot
    return lower, upper, rows


def demand_regular(upper):
    for k in range(upper.shape[0]):
        if upper[k, k] == 0.0:
            raise ValueError("Matrix is singular to machine precision.")


def solved1(lower, upper, rows, b):
    n = upper.shape[0]
    if n != b.shape[0]:
        raise ValueError("Incompatible array sizes, system is not dimensionally valid.")
    y = np.empty(n, upper.dtype)
    x = np.empty(n, upper.dtype)
    for k in range(n):
        s = b[rows[k]]
        for m in range(k):
            s -= lower[rows[k], m] * y[m]
        y[k] = s
    for k in range(n - 1, -1, -1):
        s = y[k]
        for m in range(k + 1, n):
            s -= upper[k, m] * x[m]
        x[k] = s / upper[k, k]
    return x


def solved2(lower, upper, rows, b):
    n = upper.shape[0]
    if n != b.shape[0]:
        raise ValueError("Incompatible array sizes, system is not dimensionally valid.")
    y = np.empty((n, b.shape[1]), upper.dtype)
    x = np.empty((n, b.shape[1]), upper.dtype)
    for j in range(b.shape[1]):
        for k in range(n):
            s = b[rows[k], j]
            for m in range(k):
                s -= lower[rows[k], m] * y[m, j]
            y[k, j] = s
        for k in range(n - 1, -1, -1):
            s = y[k, j]
            for m in range(k + 1, n):
                s -= upper[k, m] * x[m, j]
            x[k, j] = s / upper[k, k]
    return x


def inverse(lower, upper, rows):
    one = np.zeros((upper.shape[0], upper.shape[0]), upper.dtype)
    for i in range(upper.shape[0]):
        one[i, i] = 1.0
    return solved2(lower, upper, rows, one)


def sign_of_order(rows):
    sign = 1.0
    for i in range(rows.shape[0]):
        for j in range(i):
            if rows[j] > rows[i]:
                sign = -sign
    return sign


def determinant(upper, rows):
    s = in_dtype_of(upper, sign_of_order(rows))
    for k in range(upper.shape[0]):
        s *= upper[k, k]
    return s


def logarithm_of_determinant(upper, rows):
    sign = in_dtype_of(upper, sign_of_order(rows))
    s = in_dtype_of(upper, 0.0)
    for k in range(upper.shape[0]):
        sign *= np.sign(upper[k, k])
        s += np.log(abs(upper[k, k]))
    return sign, s


def cholesky2(a):
    n = a.shape[0]
    if n != a.shape[1]:
        raise ValueError("Last 2 dimensions of the array must be square")
    c = np.zeros((n, n), a.dtype)
    for j in range(n):
        s = a[j, j]
        for k in range(j):
            s -= c[j, k] * c[j, k]
        if not s > 0.0:
            raise ValueError("Matrix is not positive definite.")
        c[j, j] = np.sqrt(s)
        for i in range(j + 1, n):
            s = a[i, j]
            for k in range(j):
                s -= c[i, k] * c[j, k]
            c[i, j] = s / c[j, j]
    return c


def picked11(a, mask, found):
    if mask.shape[0] != a.shape[0]:
        raise IndexError("boolean index did not match the indexed array")
    n = 0
    for i in range(mask.shape[0]):
        if mask[i]:
            found[n] = a[i]
            n += 1
    return n


def picked21(a, mask, found):
    if mask.shape[0] != a.shape[0]:
        raise IndexError("boolean index did not match the indexed array")
    n = 0
    for i in range(mask.shape[0]):
        if mask[i]:
            for j in range(a.shape[1]):
                found[n, j] = a[i, j]
            n += 1
    return n


def picked22(a, mask, found):
    if mask.shape[0] != a.shape[0] or mask.shape[1] != a.shape[1]:
        raise IndexError("boolean index did not match the indexed array")
    n = 0
    for i in range(mask.shape[0]):
        for j in range(mask.shape[1]):
            if mask[i, j]:
                found[n] = a[i, j]
                n += 1
    return n


def places_of_true1(mask, found):
    n = 0
    for i in range(mask.shape[0]):
        if mask[i]:
            found[n] = i
            n += 1
    return n


def spread11(a, mask, v):
    if mask.shape[0] != a.shape[0]:
        raise IndexError("boolean index did not match the indexed array")
    n = 0
    for i in range(mask.shape[0]):
        if mask[i]:
            if n >= v.shape[0]:
                raise ValueError("there are fewer values than places where the array is true")
            a[i] = v[n]
            n += 1
    if n != v.shape[0]:
        raise ValueError("there are more values than places where the array is true")


def spread22(a, mask, v):
    if mask.shape[0] != a.shape[0] or mask.shape[1] != a.shape[1]:
        raise IndexError("boolean index did not match the indexed array")
    n = 0
    for i in range(mask.shape[0]):
        for j in range(mask.shape[1]):
            if mask[i, j]:
                if n >= v.shape[0]:
                    raise ValueError("there are fewer values than places where the array is true")
                a[i, j] = v[n]
                n += 1
    if n != v.shape[0]:
        raise ValueError("there are more values than places where the array is true")


def max3(a):
    assert a.size > 0, "an empty array has no such element"
    m = a[0, 0, 0]
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            for k in range(a.shape[2]):
                m = np.maximum(m, a[i, j, k])
    return m


def min3(a):
    assert a.size > 0, "an empty array has no such element"
    m = a[0, 0, 0]
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            for k in range(a.shape[2]):
                m = np.minimum(m, a[i, j, k])
    return m


def sum4(a):
    s = in_dtype_of(a, 0.0)
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            for k in range(a.shape[2]):
                for n in range(a.shape[3]):
                    s += a[i, j, k, n]
    return s


def mean4(a):
    return in_dtype_of(a, sum4(a) / (a.shape[0] * a.shape[1] * a.shape[2] * a.shape[3]))


def assign4(a, b):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            for k in range(a.shape[2]):
                for n in range(a.shape[3]):
                    a[i, j, k, n] = b[i, j, k, n]


def fill4(a, v):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            for k in range(a.shape[2]):
                for n in range(a.shape[3]):
                    a[i, j, k, n] = v


def increase4(a, b):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            for k in range(a.shape[2]):
                for n in range(a.shape[3]):
                    a[i, j, k, n] += b[i, j, k, n]


def flatten3(a):
    n = a.shape[1]
    m = a.shape[2]
    c = np.empty(a.shape[0] * n * m, a.dtype)
    for i in range(a.shape[0]):
        for j in range(n):
            for k in range(m):
                c[(i * n + j) * m + k] = a[i, j, k]
    return c


def flatten4(a):
    n = a.shape[1]
    m = a.shape[2]
    p = a.shape[3]
    c = np.empty(a.shape[0] * n * m * p, a.dtype)
    for i in range(a.shape[0]):
        for j in range(n):
            for k in range(m):
                for r in range(p):
                    c[((i * n + j) * m + k) * p + r] = a[i, j, k, r]
    return c


def sum_of_last3(a):
    c = np.empty((a.shape[0], a.shape[1]), a.dtype)
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            s = in_dtype_of(a, 0.0)
            for k in range(a.shape[2]):
                s += a[i, j, k]
            c[i, j] = s
    return c


def mean_of_last3(a):
    c = sum_of_last3(a)
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            c[i, j] /= a.shape[2]
    return c


def max_of_last3(a):
    assert a.shape[2] > 0, "an empty array has no such element"
    c = np.empty((a.shape[0], a.shape[1]), a.dtype)
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            m = a[i, j, 0]
            for k in range(1, a.shape[2]):
                m = np.maximum(m, a[i, j, k])
            c[i, j] = m
    return c


def min_of_last3(a):
    assert a.shape[2] > 0, "an empty array has no such element"
    c = np.empty((a.shape[0], a.shape[1]), a.dtype)
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            m = a[i, j, 0]
            for k in range(1, a.shape[2]):
                m = np.minimum(m, a[i, j, k])
            c[i, j] = m
    return c


def sum_of_last4(a):
    c = np.empty((a.shape[0], a.shape[1], a.shape[2]), a.dtype)
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            for k in range(a.shape[2]):
                s = in_dtype_of(a, 0.0)
                for n in range(a.shape[3]):
                    s += a[i, j, k, n]
                c[i, j, k] = s
    return c
