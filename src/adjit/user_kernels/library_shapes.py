"""NumPy's functions that take, place and combine elements, as loops: see `library`."""

# mypy: ignore-errors
from __future__ import annotations

import numpy as np

from .library import in_dtype_of

# ----- triangles and diagonals -----


def triu2(a, k):
    c = np.zeros((a.shape[0], a.shape[1]), a.dtype)
    for i in range(a.shape[0]):
        for j in range(max(i + k, 0), a.shape[1]):
            c[i, j] = a[i, j]
    return c


def tril2(a, k):
    c = np.zeros((a.shape[0], a.shape[1]), a.dtype)
    for i in range(a.shape[0]):
        for j in range(min(i + k + 1, a.shape[1])):
            c[i, j] = a[i, j]
    return c


def tri(n, m, k):
    c = np.zeros((n, m))
    for i in range(n):
        for j in range(min(i + k + 1, m)):
            c[i, j] = 1.0
    return c


def eye(n, m, k):
    c = np.zeros((n, m))
    for i in range(n):
        if 0 <= i + k < m:
            c[i, i + k] = 1.0
    return c


def triu_indices(n, k, m):
    count = 0
    for i in range(n):
        count += max(m - max(i + k, 0), 0)
    rows = np.empty(count, np.int64)
    columns = np.empty(count, np.int64)
    at = 0
    for i in range(n):
        for j in range(max(i + k, 0), m):
            rows[at] = i
            columns[at] = j
            at += 1
    return rows, columns


def tril_indices(n, k, m):
    count = 0
    for i in range(n):
        count += max(min(i + k + 1, m), 0)
    rows = np.empty(count, np.int64)
    columns = np.empty(count, np.int64)
    at = 0
    for i in range(n):
        for j in range(min(i + k + 1, m)):
            rows[at] = i
            columns[at] = j
            at += 1
    return rows, columns


def diag1(a, k):
    n = a.shape[0] + abs(k)
    c = np.zeros((n, n), a.dtype)
    for i in range(a.shape[0]):
        c[i + max(-k, 0), i + max(k, 0)] = a[i]
    return c


def diag2(a, k):
    n = max(min(a.shape[0] - max(-k, 0), a.shape[1] - max(k, 0)), 0)
    c = np.empty(n, a.dtype)
    for i in range(n):
        c[i] = a[i + max(-k, 0), i + max(k, 0)]
    return c


def trace2(a, k):
    s = 0.0
    for i in range(max(-k, 0), min(a.shape[0], a.shape[1] - k)):
        s += a[i, i + k]
    return s


def fill_diagonal2(a, v):
    for i in range(min(a.shape[0], a.shape[1])):
        a[i, i] = v


def fill_diagonal_wrapped2(a, v):
    n = a.shape[1]
    for i in range(a.shape[0]):
        if i % (n + 1) < n:
            a[i, i % (n + 1)] = v


# ----- elements in other places -----


def roll2(a, by):
    n = a.shape[0]
    m = a.shape[1]
    c = np.empty((n, m), a.dtype)
    for i in range(n):
        for j in range(m):
            k = (i * m + j - by) % (n * m)
            c[i, j] = a[k // m, k % m]
    return c


def repeat1(a, times):
    c = np.empty(a.shape[0] * times, a.dtype)
    for i in range(a.shape[0]):
        for j in range(times):
            c[i * times + j] = a[i]
    return c


def repeat_each1(a, times):
    if a.shape[0] != times.shape[0]:
        raise ValueError("operands could not be broadcast together")
    n = 0
    for i in range(times.shape[0]):
        if times[i] < 0:
            raise ValueError("repeats may not contain negative values")
        n += times[i]
    c = np.empty(n, a.dtype)
    at = 0
    for i in range(a.shape[0]):
        for _ in range(times[i]):
            c[at] = a[i]
            at += 1
    return c


def delete1(a, k):
    n = a.shape[0]
    if not -n <= k < n:
        raise IndexError("obj must be less than the len(arr)")
    c = np.empty(n - 1, a.dtype)
    for i in range(n - 1):
        c[i] = a[i] if i < k % n else a[i + 1]
    return c


def vander(x, n, rises):
    m = x.shape[0]
    c = np.empty((m, n), x.dtype)
    for i in range(m):
        v = in_dtype_of(x, 1.0)
        for j in range(n):
            c[i, j if rises else n - 1 - j] = v
            v *= x[i]
    return c


# ----- two arrays -----


def kron11(a, b):
    n = b.shape[0]
    c = np.empty(a.shape[0] * n, a.dtype)
    for i in range(a.shape[0]):
        for j in range(n):
            c[i * n + j] = a[i] * b[j]
    return c


def kron22(a, b):
    n = b.shape[0]
    m = b.shape[1]
    c = np.empty((a.shape[0] * n, a.shape[1] * m), a.dtype)
    for i in range(a.shape[0]):
        for k in range(n):
            for j in range(a.shape[1]):
                for r in range(m):
                    c[i * n + k, j * m + r] = a[i, j] * b[k, r]
    return c


def convolve(a, v, first, count):
    """Elements `first` and on of all products' sums."""
    n = a.shape[0]
    m = v.shape[0]
    c = np.empty(count, a.dtype)
    for i in range(count):
        s = in_dtype_of(a, 0.0)
        for k in range(max(i + first - m + 1, 0), min(i + first + 1, n)):
            s += a[k] * v[i + first - k]
        c[i] = s
    return c


def array_equal1(a, b):
    if a.shape[0] != b.shape[0]:
        return False
    for i in range(a.shape[0]):  # noqa: SIM110
        if a[i] != b[i]:
            return False
    return True


def array_equal2(a, b):
    if a.shape[0] != b.shape[0] or a.shape[1] != b.shape[1]:
        return False
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            if a[i, j] != b[i, j]:
                return False
    return True


# ----- sums of whole arrays -----


def trapezoid_by1(y, width):
    s = 0.0
    for i in range(y.shape[0] - 1):
        s += width * (y[i] + y[i + 1]) / 2.0
    return s


def trapezoid1(y, x):
    assert x.shape[0] == y.shape[0], "there are not as many values as places"
    s = 0.0
    for i in range(y.shape[0] - 1):
        s += (x[i + 1] - x[i]) * (y[i] + y[i + 1]) / 2.0
    return s


def cumsum_of_wholes1(a):
    c = np.empty(a.shape[0], np.int64)
    s = 0
    for i in range(a.shape[0]):
        s += a[i]
        c[i] = s
    return c


def diff2(a):
    c = np.empty((a.shape[0], max(a.shape[1] - 1, 0)), a.dtype)
    for i in range(a.shape[0]):
        for j in range(a.shape[1] - 1):
            c[i, j] = a[i, j + 1] - a[i, j]
    return c


def unwrap1(p, least, period):
    c = np.empty(p.shape[0])
    turns = 0.0
    half = period / 2.0
    for i in range(p.shape[0]):
        if i > 0:
            step = p[i] - p[i - 1]
            rest = (step + half) % period - half
            if rest == -half and step > 0.0:
                rest = half
            if abs(step) >= least:
                turns += rest - step
        c[i] = p[i] + turns
    return c


def average1(a, weights):
    assert a.shape[0] == weights.shape[0], "there are not as many weights as elements"
    s = 0.0
    total = 0.0
    for i in range(a.shape[0]):
        s += a[i] * weights[i]
        total += weights[i]
    if total == 0.0:
        raise ZeroDivisionError("Weights sum to zero, can't be normalized.")
    return s / total


def average2(a, weights):
    assert a.shape[0] == weights.shape[0], "there are not as many weights as elements"
    assert a.shape[1] == weights.shape[1], "there are not as many weights as elements"
    s = 0.0
    total = 0.0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            s += a[i, j] * weights[i, j]
            total += weights[i, j]
    if total == 0.0:
        raise ZeroDivisionError("Weights sum to zero, can't be normalized.")
    return s / total


def cov1(a, lost):
    m = 0.0
    for i in range(a.shape[0]):
        m += a[i]
    m /= a.shape[0]
    s = 0.0
    for i in range(a.shape[0]):
        s += (a[i] - m) * (a[i] - m)
    return s / max(a.shape[0] - lost, 0)


def cov2(a, lost):
    """The covariances of the rows."""
    n = a.shape[0]
    count = a.shape[1]
    centred = np.empty((n, count))
    c = np.empty((n, n))
    for i in range(n):
        m = 0.0
        for k in range(count):
            m += a[i, k]
        m /= count
        for k in range(count):
            centred[i, k] = a[i, k] - m
    for i in range(n):
        for j in range(n):
            s = 0.0
            for k in range(count):
                s += centred[i, k] * centred[j, k]
            c[i, j] = s / max(count - lost, 0)
    return c


def corrcoef2(a):
    c = cov2(a, 1)
    n = c.shape[0]
    r = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            r[i, j] = min(max(c[i, j] / np.sqrt(c[i, i]) / np.sqrt(c[j, j]), -1.0), 1.0)
    return r


def norm_of_order1(a, p):
    s = 0.0
    for i in range(a.shape[0]):
        s += abs(a[i]) ** p
    return s ** (1.0 / p)


# ----- what is no number is left out -----


def nanmean1(a):
    s = 0.0
    n = 0
    for i in range(a.shape[0]):
        if not np.isnan(a[i]):
            s += a[i]
            n += 1
    return s / n if n > 0 else np.nan


def nanvar1(a):
    m = nanmean1(a)
    s = 0.0
    n = 0
    for i in range(a.shape[0]):
        if not np.isnan(a[i]):
            s += (a[i] - m) * (a[i] - m)
            n += 1
    return s / n if n > 0 else np.nan


def nanstd1(a):
    return np.sqrt(nanvar1(a))


def nanmax1(a):
    assert a.shape[0] > 0, "an empty array has no such element"
    m = a[0]
    for i in range(1, a.shape[0]):
        v = a[i]
        if not v <= m and not np.isnan(v):
            m = v
    return m


def nanmin1(a):
    assert a.shape[0] > 0, "an empty array has no such element"
    m = a[0]
    for i in range(1, a.shape[0]):
        v = a[i]
        if not v >= m and not np.isnan(v):
            m = v
    return m


# ----- numbers -----


def logaddexp(a, b):
    if np.isinf(a) and a == b:
        return a
    if a > b:
        return a + np.log1p(np.exp(b - a))
    return b + np.log1p(np.exp(a - b))


def logaddexp2(a, b):
    if np.isinf(a) and a == b:
        return a
    if a > b:
        return a + np.log1p(2.0 ** (b - a)) * 1.4426950408889634
    return b + np.log1p(2.0 ** (a - b)) * 1.4426950408889634


def sinc(x):
    if x == 0.0:
        return 1.0
    return np.sin(np.pi * x) / (np.pi * x)


def heaviside(x, at_zero):
    if x < 0.0:
        return 0.0
    if x > 0.0:
        return 1.0
    return at_zero if x == 0.0 else x


def fmax(a, b):
    if a != a:
        return b
    return b if b > a else a


def fmin(a, b):
    if a != a:
        return b
    return b if b < a else a


def cbrt(x):
    if x < 0.0:
        return -((-x) ** (1.0 / 3.0))
    return x ** (1.0 / 3.0)


def isin(x, values):
    for k in range(values.shape[0]):  # noqa: SIM110
        if values[k] == x:
            return True
    return False


def nan_to_num(x, instead):
    if x != x:
        return instead
    return min(max(x, -1.7976931348623157e308), 1.7976931348623157e308)


def isclose(a, b, relative, absolute):
    if a == b:
        return True
    return bool(np.isfinite(b)) and abs(a - b) <= absolute + relative * abs(b)


# ----- windows -----


def bartlett(n):
    c = np.ones(max(n, 0))
    for i in range(n):
        if n > 1:
            c[i] = 2.0 * i / (n - 1) if 2 * i <= n - 1 else 2.0 - 2.0 * i / (n - 1)
    return c


def blackman(n):
    c = np.ones(max(n, 0))
    for i in range(n):
        if n > 1:
            t = np.pi * (2 * i + 1 - n) / (n - 1)
            c[i] = 0.42 + 0.5 * np.cos(t) + 0.08 * np.cos(2.0 * t)
    return c


def hamming(n):
    c = np.ones(max(n, 0))
    for i in range(n):
        if n > 1:
            c[i] = 0.54 + 0.46 * np.cos(np.pi * (2 * i + 1 - n) / (n - 1))
    return c


def hanning(n):
    c = np.ones(max(n, 0))
    for i in range(n):
        if n > 1:
            c[i] = 0.5 + 0.5 * np.cos(np.pi * (2 * i + 1 - n) / (n - 1))
    return c
