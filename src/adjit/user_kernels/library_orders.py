"""NumPy's functions that order, search and count elements, as loops: see `library`.

What finds an order handles whole numbers alone, so the way back has nothing to do there and keeps nothing of
it but the order itself.
"""

# mypy: ignore-errors
from __future__ import annotations

import numpy as np

from .library import linspace


def precedes(a, b):
    """Whether a number comes before another one where NaN comes last."""
    return a < b or (b != b and a == a)


def argsort1(a):
    """The order that Numba's quicksort finds, also that of equal elements."""
    n = a.shape[0]
    order = np.empty(n, np.int64)
    for i in range(n):
        order[i] = i
    firsts = np.empty(100, np.int64)
    lasts = np.empty(100, np.int64)
    parts = 0
    if n > 1:
        firsts[0] = 0
        lasts[0] = n - 1
        parts = 1
    while parts > 0:
        parts -= 1
        low = firsts[parts]
        high = lasts[parts]
        while high - low >= 15:
            middle = (low + high) >> 1
            if precedes(a[order[middle]], a[order[low]]):
                order[low], order[middle] = order[middle], order[low]
            if precedes(a[order[high]], a[order[middle]]):
                order[high], order[middle] = order[middle], order[high]
            if precedes(a[order[middle]], a[order[low]]):
                order[low], order[middle] = order[middle], order[low]
            pivot = a[order[middle]]
            order[high], order[middle] = order[middle], order[high]
            i = low
            j = high - 1
            while True:
                while i < high and precedes(a[order[i]], pivot):
                    i += 1
                while j >= low and precedes(pivot, a[order[j]]):
                    j -= 1
                if i >= j:
                    break
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
            order[i], order[high] = order[high], order[i]
            if high - i > i - low:
                firsts[parts] = i + 1
                lasts[parts] = high
                high = i - 1
            else:
                firsts[parts] = low
                lasts[parts] = i - 1
                low = i + 1
            parts += 1
        for i in range(low + 1, high + 1):
            k = order[i]
            v = a[k]
            j = i
            while j > low and precedes(v, a[order[j - 1]]):
                order[j] = order[j - 1]
                j -= 1
            order[j] = k
    found = np.empty(n, np.int64)  # written once, so that no more is kept where this is in a loop
    for i in range(n):
        found[i] = order[i]
    return found


def argsort_stable1(a):
    n = a.shape[0]
    order = np.empty(n, np.int64)
    merged = np.empty(n, np.int64)
    found = np.empty(n, np.int64)
    for i in range(n):
        order[i] = i
    width = 1
    while width < n:
        start = 0
        while start < n:
            middle = min(start + width, n)
            end = min(start + 2 * width, n)
            i = start
            j = middle
            for k in range(start, end):
                if j >= end or (i < middle and not precedes(a[order[j]], a[order[i]])):
                    merged[k] = order[i]
                    i += 1
                else:
                    merged[k] = order[j]
                    j += 1
            start = end
        for i in range(n):
            order[i] = merged[i]
        width *= 2
    for i in range(n):
        found[i] = order[i]
    return found


def sort1(a):
    order = argsort1(a)
    c = np.empty(a.shape[0], a.dtype)
    for i in range(a.shape[0]):
        c[i] = a[order[i]]
    return c


def sort2(a):
    c = np.empty((a.shape[0], a.shape[1]), a.dtype)
    for i in range(a.shape[0]):
        order = argsort1(a[i])
        for j in range(a.shape[1]):
            c[i, j] = a[i, order[j]]
    return c


def unique1(a, found):
    order = argsort1(a)
    n = 0
    for i in range(a.shape[0]):
        if i == 0 or a[order[i]] != a[order[i - 1]]:
            found[n] = a[order[i]]
            n += 1
    return n


def median_of_sorted(a):
    n = a.shape[0]
    assert n > 0, "an empty array has no median"
    if a[n - 1] != a[n - 1]:
        return a[n - 1]
    if n % 2 == 0:
        return (a[n // 2 - 1] + a[n // 2]) / 2
    return a[n // 2]


def median_of_numbers(a):
    """The median of a sorted array without NaN, which is NaN where nothing is left."""
    if a.shape[0] == 0:
        return np.nan
    return median_of_sorted(a)


def percentile_of_sorted(q, a, factor):
    n = a.shape[0]
    if not 0.0 <= q * factor <= 100.0:
        raise ValueError("Quantiles must be between 0 and all, as must percentiles")
    if n == 0 or a[n - 1] != a[n - 1]:
        return np.nan
    if n == 1:
        return a[0]
    if q * factor == 100:
        return a[n - 1]
    rank = (n - 1) * (q * factor / 100.0) + 1
    k = int(np.floor(rank))
    m = rank - k
    return a[k - 1] * (1 - m) + a[k] * m


# ----- places in a sorted array -----


def searchsorted(v, a):
    low = 0
    high = a.shape[0]
    while low < high:
        middle = (low + high) // 2
        if precedes(a[middle], v):
            low = middle + 1
        else:
            high = middle
    return low


def searchsorted_right(v, a):
    low = 0
    high = a.shape[0]
    while low < high:
        middle = (low + high) // 2
        if precedes(v, a[middle]):
            high = middle
        else:
            low = middle + 1
    return low


def digitize(x, bins, right):
    low = 0
    high = bins.shape[0]
    rises = True
    if high > 0:
        rises = bins[0] <= bins[high - 1]
    while low < high:
        middle = (low + high) // 2
        b = bins[middle]
        if rises:  # noqa: SIM108
            is_behind = (b < x if right else b <= x) or x != x
        else:
            is_behind = b >= x if right else b > x
        if is_behind:
            low = middle + 1
        else:
            high = middle
    return low


def interp(x, xs, ys):
    n = xs.shape[0]
    assert n > 0, "there is nothing to interpolate between"
    assert n == ys.shape[0], "there are not as many values as places"
    if n == 1:
        return ys[0]
    if x != x:
        return x
    k = searchsorted_right(x, xs)
    if k == 0:
        return ys[0]
    if k == n or xs[k - 1] == x:
        return ys[k - 1]
    slope = (ys[k] - ys[k - 1]) / (xs[k] - xs[k - 1])
    return slope * (x - xs[k - 1]) + ys[k - 1]


# ----- counts -----


def histogram1(a, bins, low, high):
    if bins <= 0:
        raise ValueError("histogram(): `bins` should be a positive integer")
    if not low <= high:
        raise ValueError("histogram(): max must be larger than min in range parameter")
    counts = np.zeros(bins, np.int64)
    if high > low:
        scale = bins / (high - low)
        for i in range(a.shape[0]):
            v = a[i]
            if v == high:
                counts[bins - 1] += 1
            elif low <= v < high:
                k = int(np.floor((v - low) * scale))
                if k < bins:
                    counts[k] += 1
    return counts, linspace(low, high, bins + 1)


def histogram_in_range1(a, bins):
    low = np.inf
    high = -np.inf
    for i in range(a.shape[0]):
        low = min(low, a[i])
        high = max(high, a[i])
    return histogram1(a, bins, low, high)


def histogram_between1(a, edges):
    n = edges.shape[0] - 1
    for i in range(n):
        if not edges[i] <= edges[i + 1]:
            raise ValueError("histogram(): bins must increase monotonically")
    counts = np.zeros(n, np.int64)
    if n > 0:
        for i in range(a.shape[0]):
            if edges[0] <= a[i] <= edges[n]:
                counts[min(searchsorted_right(a[i], edges), n) - 1] += 1
    return counts


def bins_of(a, least):
    n = least
    for i in range(a.shape[0]):
        if a[i] < 0:
            raise ValueError("first argument must be non-negative")
        n = max(n, a[i] + 1)
    return n


def bincount1(a, least):
    counts = np.zeros(bins_of(a, least), np.int64)
    for i in range(a.shape[0]):
        counts[a[i]] += 1
    return counts


def bincount_weighted1(a, weights, least):
    if a.shape[0] != weights.shape[0]:
        raise ValueError("bincount(): weights and list don't have the same length")
    sums = np.zeros(bins_of(a, least))
    for i in range(a.shape[0]):
        sums[a[i]] += weights[i]
    return sums


# ----- the first of the largest and smallest -----


def argmax2(a):
    assert a.size > 0, "an empty array has no such element"
    m = a[0, 0]
    at = 0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            v = a[i, j]
            if v > m or (v != v and m == m):
                m = v
                at = i * a.shape[1] + j
    return at


def argmin2(a):
    assert a.size > 0, "an empty array has no such element"
    m = a[0, 0]
    at = 0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            v = a[i, j]
            if v < m or (v != v and m == m):
                m = v
                at = i * a.shape[1] + j
    return at


def argmax_of_last2(a):
    assert a.shape[1] > 0, "an empty array has no such element"
    c = np.empty(a.shape[0], np.int64)
    for i in range(a.shape[0]):
        m = a[i, 0]
        at = 0
        for j in range(1, a.shape[1]):
            v = a[i, j]
            if v > m or (v != v and m == m):
                m = v
                at = j
        c[i] = at
    return c


def argmin_of_last2(a):
    assert a.shape[1] > 0, "an empty array has no such element"
    c = np.empty(a.shape[0], np.int64)
    for i in range(a.shape[0]):
        m = a[i, 0]
        at = 0
        for j in range(1, a.shape[1]):
            v = a[i, j]
            if v < m or (v != v and m == m):
                m = v
                at = j
        c[i] = at
    return c
