"""NumPy's functions on whole arrays as loops: they are read as if the user had written them.

The number at the end of a name is that of the first argument's dimensions. An argument may be arithmetic
on arrays that has no memory of its own.
"""

# mypy: ignore-errors
from __future__ import annotations

import numpy as np


def sum1(a):
    s = 0.0
    for i in range(a.shape[0]):
        s += a[i]
    return s


def sum2(a):
    s = 0.0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            s += a[i, j]
    return s


def sum3(a):
    s = 0.0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            for k in range(a.shape[2]):
                s += a[i, j, k]
    return s


def mean1(a):
    return sum1(a) / a.shape[0]


def mean2(a):
    return sum2(a) / (a.shape[0] * a.shape[1])


def mean3(a):
    return sum3(a) / (a.shape[0] * a.shape[1] * a.shape[2])


def prod1(a):
    s = 1.0
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
    s = 0.0
    for i in range(a.shape[0]):
        s += a[i] * b[i]
    return s


def dot21(a, b):
    assert a.shape[1] == b.shape[0], "the matrix has not as many columns as the vector elements"
    c = np.empty(a.shape[0])
    for i in range(a.shape[0]):
        s = 0.0
        for k in range(a.shape[1]):
            s += a[i, k] * b[k]
        c[i] = s
    return c


def dot12(a, b):
    assert a.shape[0] == b.shape[0], "the matrix has not as many rows as the vector elements"
    c = np.zeros(b.shape[1])
    for k in range(b.shape[0]):
        for j in range(b.shape[1]):
            c[j] += a[k] * b[k, j]
    return c


def dot22(a, b):
    assert a.shape[1] == b.shape[0], "the matrices do not fit each other"
    c = np.zeros((a.shape[0], b.shape[1]))
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            for j in range(b.shape[1]):
                c[i, j] += a[i, k] * b[k, j]
    return c


def outer11(a, b):
    c = np.empty((a.shape[0], b.shape[0]))
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            c[i, j] = a[i] * b[j]
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
