"""What a kernel's text may have and what it may not: every statement of Python's, and NumPy's and Python's functions.

`python tests/kernel_language.py` checks the first as plain Python beside differences; run it with NUMBA_DISABLE_JIT=1.
"""

# The style of what is read here is that of users, not that of this repository.
# ruff: noqa
# fmt: off

import collections
import functools
import inspect
import math

import numba
import numpy as np
from numba import njit

import adjit

X = np.array([0.31, 0.72, 0.55, 0.17, 0.93, 0.41])
ARGUMENTS = {
    "x": X, "y": X[::-1] * 1.3 + 0.05, "z": np.array([[1.3, 0.2, 0.3], [0.4, 1.7, 0.1], [0.6, 0.5, 1.9]]),
    "k": np.array([2, 0, 3]),
}
TUP = (1.0, 2.0, 3.0)
LIST = [1.0, 2.0]
TABLE = {"a": 2.0}
G = 2.0


Root = collections.namedtuple("Root", "root calls")


class Settings:
    rate = 2.0


obj = Settings()


def scaled(a, by=2.0):
    return a * a * by


def add(a, b):
    return a * b


def kwonly(a, *, by=2.0):
    return a * a * by


def fact(n):
    return 1.0 if n == 0 else n * fact(n - 1)


LAM = lambda v: v * v
PART = functools.partial(scaled, by=3.0)


@numba.vectorize
def vec_sq(v):
    return v * v


# ----- what is right -----


def of_default_own(x, k=2.0):
    return x[0] * x[0] * k


def of_walrus(x):
    if (y := x[0] * x[1]) > -100.0:
        return y * y
    return 0.0


def of_or_value(x):
    y = x[0] or x[1]
    return y * y


def of_and_value(x):
    y = x[0] and x[1]
    return y * y


def of_or2(x):
    a = x[0]
    b = x[1]
    y = a and b
    z = 0.0 * a or b
    return y * z


def of_chain(x):
    if -100.0 < x[0] < 100.0 <= 200.0:
        return x[0] ** 3
    return 0.0


def of_ternary(x):
    return x[0] ** 2 if x[1] > -100 else x[2]


def of_slice_step(x):
    y = x[::2]
    return y[0] * y[1] * y[1]


def of_slice_neg(x):
    y = x[::-1]
    return y[0] * y[1] * y[1]


def of_neg_index(x):
    return x[-1] * x[-2] ** 2


def of_where(x):
    y = np.where(x > 0.5, x * x, 3.0 * x)
    return y.sum()


def of_clip(x):
    return np.clip(x, 0.2, 0.6).sum() + np.clip(x[0], 0.0, 5.0)


def of_clip_method(x):
    return x.clip(0.2, 0.6).sum()


def of_fancy(x):
    idx = np.array([0, 2, 1])
    return x[idx].sum()


def of_fancy2(x, k):
    return (x[k] * x[k]).sum()


def of_fancy_store(x, k):
    y = np.zeros(6)
    y[k] = x[:3]
    return (y * y).sum()


def of_mask_store(x):
    y = x.copy()
    y[y < 0.5] = 0.0
    return (y * y).sum()


def of_mask_mult(x):
    m = x > 0.5
    return (x * m).sum()


def of_mask_and(x):
    return np.where((x > 0.2) & (x < 0.8), x * x, 0.0).sum()


def of_mask_not(x):
    return np.where(~(x > 0.2), x * x, 0.0).sum()


def of_logical(x):
    m = np.logical_and(x > 0.2, x < 0.8)
    return np.where(m, x * x, 0.0).sum()


def of_cmp_arr(x):
    return (x > 0.5).sum() * x[0]


def of_count(x):
    return x[0] * np.count_nonzero(x > 0.3)


def of_any_all(x):
    if np.any(x > 0.0) and np.all(x > -100.0):
        return x[0] ** 2
    return 0.0


def of_T(z):
    return (z.T @ z).sum()


def of_flatten(z):
    y = z.flatten()
    return y[3] * y[2]


def of_unpack(x):
    a, b = x[0], x[1]
    (c, d), e = (a * b, a), b
    return c * d * e


def of_unpack_array(x):
    a, b, c, d, e, f = x
    return a * b * c


def of_alias(x):
    y = x[1:]
    y[0] = x[0] * 3.0
    return x[1] * y[0]


def of_write_read(x):
    a = x[0] * x[0]
    x[0] = 5.0
    return a * x[0] + x[1]


def of_overlap_assign(x):
    x[1:] = x[:-1] * 2.0
    return (x * x).sum()


def of_swap_elements(x):
    x[0], x[1] = x[1], x[0]
    return x[0] * x[0] + x[1]


def of_swap_rows(z):
    for j in range(3):
        z[0, j], z[1, j] = z[1, j], z[0, j]
    return (z[0] * z[0]).sum() + z[1, 0]


def of_bare_swap_rows(z):
    z[0], z[1] = z[1], z[0]
    return (z[0] * z[0]).sum() + z[1, 0]


def of_multi_array(x):
    a = b = np.zeros(3)
    a[0] = x[0]
    return b[0] * 2.0


def of_for_array(x):
    s = 0.0
    for v in x:
        s += v * v
    return s


def of_enumerate(x):
    s = 0.0
    for i, v in enumerate(x):
        s += i * v * v
    return s


def of_zip(x, y):
    s = 0.0
    for a, b in zip(x, y):
        s += a * b
    return s


def of_reversed(x):
    s = 0.0
    for i in reversed(range(len(x))):
        s = s * x[i] + 1.0
    return s


def of_for_tuple(x):
    s = 0.0
    for i in (0, 2, 4):
        s += x[i] ** 2
    return s


def of_for_list(x):
    s = 0.0
    for i in [0, 2, 4]:
        s += x[i] ** 2
    return s


def of_each_break_tuple(x):
    s = 0.0
    for k, w in enumerate((1.0, 2.0, 3.0)):
        if k == 2: continue
        s += w * x[k]
        if s > 1.2: break
    return s


def of_nested_each(z):
    s = 0.0
    for row in z:
        for v in row:
            if v > 1.5: break
            s += v * v
    return s


def of_tuple_loop(x):
    p = (x[0], x[1])
    s = 0.0
    for i in range(2):
        s += p[i]
    return s


def of_tuple_add(x):
    p = (x[0],) + (x[1],)
    return p[0] * p[1]


def of_tuple_iter(x):
    s = 0.0
    for c in TUP:
        s += c * x[0]
    return s


def of_sum_axis(z):
    return (z.sum(axis=0) ** 2).sum()


def of_sum_axis1(z):
    return (np.sum(z, axis=1) ** 2).sum()


def of_var(x):
    return np.var(x) + x.std()


def of_prod(x):
    return np.prod(x)


def of_py_sum(x):
    return sum(x)


def of_py_max_tuple(x):
    return max((x[0], x[1], x[2]))


def of_cumsum(x):
    return (np.cumsum(x) ** 2).sum()


def of_diff(x):
    return (np.diff(x) ** 2).sum()


def of_concat(x, y):
    return (np.concatenate((x, y)) ** 2).sum()


def of_arange_f(x):
    return (np.arange(6.0) * x).sum()


def of_eye(z):
    return (np.eye(3) * z).sum()


def of_trace(z):
    return np.trace(z)


def of_diag(z):
    return np.diag(z).sum()


def of_roll(x):
    return (np.roll(x, 1) * x).sum()


def of_flip(x):
    return (np.flip(x) * x).sum()


def of_norm(x):
    return np.linalg.norm(x)


def of_np_array(x):
    y = np.array([x[0], x[1] * x[0], 2.0])
    return (y * y).sum()


def of_np_array2(x):
    y = np.array([[x[0], x[1]], [2.0, x[2]]])
    return (y @ y).sum()


def of_in_loop_arr(x):
    s = 0.0
    for i in range(3):
        y = np.array([x[i], 2.0 * x[i]])
        s += (y * y).sum()
    return s


def of_pow(x):
    return pow(x[0], 3) + x[0] ** x[1] + math.pow(x[0], 2.0) + np.power(x[0], 3) + x[0] ** -2


def of_divmod(x):
    a, b = divmod(x[0] + 5.0, 2.0)
    return a + b * x[0]


def of_degrees(x):
    return math.degrees(x[0]) + math.radians(x[1])


def of_np_deg(x):
    return np.deg2rad(x[0]) + np.rad2deg(x[1])


def of_log_base(x):
    return math.log(x[0] + 2.0, 3.0)


def of_exp2(x):
    return np.exp2(x[0])


def of_reciprocal(x):
    return np.reciprocal(x[0] + 2.0)


def of_logaddexp(x):
    return np.logaddexp(x[0], x[1])


def of_del(x):
    y = x[0]
    z = y * y
    del y
    return z


def of_ann(x):
    a: float = x[0]
    return a * a


def of_flag_loop(x):
    done = False
    s = 0.0
    i = 0
    while not done and i < 5:
        s += x[i] ** 2
        done = s > 0.5 or i > 3
        i += 1
    return s


def of_astype64(x):
    return (x.astype(np.float64) ** 2).sum()


def of_newaxis(x):
    return (x[:, None] * x[None, :]).sum()


def of_slice_assign(x):
    y = np.zeros(6)
    y[1:4] = x[:3] * 2.0
    y[4:] = 1.0
    y[:1] += x[:1] ** 2
    return (y * y).sum()


def of_in(x):
    n = 3
    if n in (1, 2, 3):
        return x[0] ** 2
    return x[0]


def of_bits(x):
    n = 5 & 3 | 8 ^ 1
    return x[0] * (n << 1 >> 1) * ~n


def of_bool_sum(x):
    n = 0
    for i in range(len(x)):
        n += x[i] > 0.3
    return x[0] * n


def of_deep(x):
    s = 0.0
    for i in range(2):
        for j in range(2):
            k = 0
            while k < 2:
                if x[i] > x[j]:
                    s += x[i + j] * x[k]
                elif x[i] == x[j]:
                    k += 1
                    continue
                else:
                    s *= x[j]
                k += 1
    return s


def of_mathfns(x):
    a = 0.3 * x[0]
    return (math.exp(a) + math.log(2 + a) + math.sqrt(2 + a) + math.sin(a) + math.cos(a) + math.tan(a) + math.asin(a)
        + math.acos(a) + math.atan(a) + math.sinh(a) + math.cosh(a) + math.tanh(a) + math.asinh(a) + math.acosh(2 + a)
        + math.atanh(a) + math.atan2(a, x[1]) + math.hypot(a, x[1]) + math.erf(a) + math.erfc(a) + math.lgamma(2 + a)
        + math.expm1(a) + math.log1p(a) + math.log2(2 + a) + math.log10(2 + a) + math.copysign(a, x[1]) + math.fabs(a))


def of_keyword_default(x):
    return scaled(x[0]) + scaled(x[1], by=3.0)


def of_kwonly_called(x):
    return kwonly(x[0], by=3.0)


def of_consts(x):
    return x[0] * math.pi * np.e + math.inf * 0 if False else x[0] * math.tau


def of_tuple_global(x):
    return x[0] * TUP[1]


def of_object_attr(x):
    return x[0] * obj.rate


def of_interp(x, y):
    places = np.cumsum(x)
    return np.interp(1.1, places, y) + np.interp(-1.0, places, y) + np.interp(9.0, places, y) * np.interp(x[1] * 2.0, places, y)


def of_searchsorted(x, y):
    return y[np.searchsorted(np.cumsum(x), 0.5)] ** 2


def of_ties(x):
    return np.logaddexp(x[0], x[0] * 1.0) * np.logaddexp(x[1], 0.72) + np.logaddexp(x[2], -np.inf)


def of_int_sum(x, k):
    return x[0] * k.sum() * len(np.arange(1, 9, 3))


def of_not_in(x):
    n = 4
    return x[0] ** 2 if n not in (1, 2, 3) else x[0]


def of_mean_axes(z):
    columns = z.mean(axis=0) * z.max(axis=1)
    return (columns + np.min(z, 0) * z.mean(1)).sum()


def of_zip_three(x, y, z):
    s = 0.0
    for i, (a, b, row) in enumerate(zip(x, y, z)):
        if i == 1:
            continue
        s += a * b * row[i]
    return s


def of_reversed_array(x):
    s = 1.0
    for v in reversed(x):
        if s > 1.6:
            return s * v
        s = s * v + 1.0
    return s


def of_walrus_in_loop(x):
    s = 0.0
    for v in x:
        if (w := v * v) > 0.2:
            s += w
        s += w * v
    return s * w


# ----- programs of users, who know Numba and nothing of adjit -----


@njit
def spline_energy(xs, ys, at):
    """Natural cubic spline (Numerical Recipes), evaluated at points: sum of squares."""
    n = len(xs)
    y2 = np.zeros(n); u = np.zeros(n)
    for i in range(1, n - 1):
        sig = (xs[i] - xs[i-1]) / (xs[i+1] - xs[i-1])
        p = sig * y2[i-1] + 2.0
        y2[i] = (sig - 1.0) / p
        u[i] = (ys[i+1] - ys[i]) / (xs[i+1] - xs[i]) - (ys[i] - ys[i-1]) / (xs[i] - xs[i-1])
        u[i] = (6.0 * u[i] / (xs[i+1] - xs[i-1]) - sig * u[i-1]) / p
    for k in range(n - 2, -1, -1):
        y2[k] = y2[k] * y2[k+1] + u[k]
    total = 0.0
    for x in at:
        lo, hi = 0, n - 1
        while hi - lo > 1:
            k = (hi + lo) >> 1
            if xs[k] > x: hi = k
            else: lo = k
        h = xs[hi] - xs[lo]
        a, b = (xs[hi] - x) / h, (x - xs[lo]) / h
        v = a * ys[lo] + b * ys[hi] + ((a**3 - a) * y2[lo] + (b**3 - b) * y2[hi]) * h * h / 6.0
        total += v * v
    return total


@njit
def func(x, c): return x**3 - c * x - 2.0


def zbrent(c, lo, hi, tol):
    a, b = lo, hi
    fa, fb = func(a, c), func(b, c)
    if fa * fb > 0.0:
        raise ValueError("root must be bracketed")
    fc = fb; cc = b; d = e = b - a
    for it in range(100):
        if (fb > 0 and fc > 0) or (fb < 0 and fc < 0):
            cc = a; fc = fa; e = d = b - a
        if abs(fc) < abs(fb):
            a, b, cc = b, cc, b
            fa, fb, fc = fb, fc, fb
        tol1 = 2.0 * 1e-16 * abs(b) + 0.5 * tol
        xm = 0.5 * (cc - b)
        if abs(xm) <= tol1 or fb == 0.0:
            break
        if abs(e) >= tol1 and abs(fa) > abs(fb):
            s = fb / fa
            if a == cc:
                p = 2.0 * xm * s; q = 1.0 - s
            else:
                q = fa / fc; r = fb / fc
                p = s * (2.0 * xm * q * (q - r) - (b - a) * (r - 1.0))
                q = (q - 1.0) * (r - 1.0) * (s - 1.0)
            if p > 0: q = -q
            p = abs(p)
            if 2.0 * p < min(3.0 * xm * q - abs(tol1 * q), abs(e * q)):
                e = d; d = p / q
            else:
                d = xm; e = d
        else:
            d = xm; e = d
        a = b; fa = fb
        if abs(d) > tol1: b += d
        else: b += math.copysign(tol1, xm)
        fb = func(b, c)
    return b - func(b, c) / (3 * b * b - c)   # one Newton step: the derivative of the root


@njit
def lorenz(s, p):
    return np.array([p[0] * (s[1] - s[0]), s[0] * (p[1] - s[2]) - s[1], s[0] * s[1] - p[2] * s[2]])


def rk4(s0, p, dt, n):
    s = s0.copy()
    for _ in range(n):
        k1 = lorenz(s, p)
        k2 = lorenz(s + 0.5 * dt * k1, p)
        k3 = lorenz(s + 0.5 * dt * k2, p)
        k4 = lorenz(s + dt * k3, p)
        s = s + dt / 6.0 * (k1 + 2 * k2 + 2 * k3 + k4)
    return (s ** 2).sum()


def matrix_chain(dims):
    """Dynamic programming: the least cost of a product of matrices, costs are floats."""
    n = len(dims) - 1
    cost = np.zeros((n, n))
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            j = i + length - 1
            cost[i, j] = np.inf
            for k in range(i, j):
                c = cost[i, k] + cost[k+1, j] + dims[i] * dims[k+1] * dims[j+1]
                if c < cost[i, j]:
                    cost[i, j] = c
    return cost[0, n-1]


def kalman(z, q, r):
    x, P, ll = 0.0, 1.0, 0.0
    for obs in z:
        P += q
        S = P + r
        K = P / S
        innovation = obs - x
        ll += -0.5 * (math.log(2 * math.pi * S) + innovation ** 2 / S)
        x += K * innovation
        P *= 1 - K
    return ll


def random_walk(noise, drift, vol, barrier):
    payoff = 0.0
    n_paths, n_steps = noise.shape
    for i in range(n_paths):
        s = 1.0
        alive = True
        for j in range(n_steps):
            s *= math.exp((drift - 0.5 * vol**2) * 0.1 + vol * math.sqrt(0.1) * noise[i, j])
            if s < barrier:
                alive = False
                break
        if alive:
            payoff += max(s - 1.0, 0.0)
    return payoff / n_paths


def weighted_histogram(x, w, target):
    n = len(target)
    h = np.zeros(n)
    for v, wt in zip(x, w):
        t = v * n
        k = min(max(int(t), 0), n - 2)
        f = t - k
        h[k] += (1 - f) * wt
        h[k + 1] += f * wt
    h /= h.sum()
    return np.sum((h - target) ** 2)


def bilinear(img, pts):
    total = 0.0
    h, w = img.shape
    for p in pts:
        y, x = p
        i, j = int(math.floor(y)), int(math.floor(x))
        if 0 <= i < h - 1 and 0 <= j < w - 1:
            fy, fx = y - i, x - j
            total += ((1-fy)*(1-fx)*img[i,j] + (1-fy)*fx*img[i,j+1] + fy*(1-fx)*img[i+1,j] + fy*fx*img[i+1,j+1]) ** 2
    return total


def viterbi(logA, logB, obs):
    """The score of the best path: its gradient is that of the path."""
    n = logA.shape[0]
    score = logB[:, obs[0]].copy()
    for t in range(1, len(obs)):
        new = np.empty(n)
        for j in range(n):
            new[j] = np.max(score + logA[:, j]) + logB[j, obs[t]]
        score = new
    return score.max()


def kmeans_step(points, centers):
    k, d = centers.shape
    sums = np.zeros((k, d)); counts = np.zeros(k)
    inertia = 0.0
    for p in points:
        dist = np.empty(k)
        for c in range(k):
            dist[c] = ((p - centers[c]) ** 2).sum()
        best = np.argmin(dist)
        sums[best] += p
        counts[best] += 1
        inertia += dist[best]
    for c in range(k):
        if counts[c] > 0:
            inertia += 0.1 * ((sums[c] / counts[c]) ** 2).sum()
    return inertia


def sdf(p, r):
    return math.sqrt(p[0]**2 + p[1]**2 + (p[2]-3.0)**2) - r


def ray_march(origin, direction, r):
    t = 0.0
    d = direction / np.sqrt((direction**2).sum())
    for step in range(64):
        p = origin + t * d
        dist = sdf(p, r)
        if dist < 1e-9:
            break
        t += dist
        if t > 10.0:
            return 10.0
    return t


def savgol(x, window):
    k = len(window) // 2
    y = np.zeros_like(x)
    for i in range(len(x)):
        acc, norm = 0.0, 0.0
        for j in range(-k, k + 1):
            if i + j < 0 or i + j >= len(x): continue
            acc += window[j + k] * x[i + j]
            norm += window[j + k]
        y[i] = acc / norm
    return np.linalg.norm(y - x) + np.std(y)


def matrix(seed, *shape):
    return np.random.default_rng(seed).random(shape)


PROGRAMS = [
    (spline_energy, (np.array([0.0, 1.0, 2.5, 3.1, 4.4]), matrix(1, 5), np.array([0.3, 1.7, 2.9, 4.1]))),
    (zbrent, (1.3, 1.0, 3.0, 1e-13)),
    (rk4, (np.array([1.0, 0.5, 2.0]), np.array([10.0, 28.0, 8.0 / 3.0]), 0.01, 20)),
    (matrix_chain, (np.array([3.1, 5.2, 2.3, 7.4, 4.5, 6.6]),)),
    (kalman, (matrix(2, 9), 0.1, 0.3)),
    (random_walk, (np.random.default_rng(3).standard_normal((7, 8)), 0.05, 0.3, 0.75)),
    (weighted_histogram, (matrix(4, 20), matrix(5, 20) + 0.1, matrix(6, 6))),
    (bilinear, (matrix(7, 6, 7), matrix(8, 5, 2) * 5.0)),
    (viterbi, (np.log(matrix(9, 3, 3) + 0.1), np.log(matrix(10, 3, 4) + 0.1), np.array([0, 3, 1, 2, 2]))),
    (kmeans_step, (matrix(11, 12, 2), matrix(12, 3, 2))),
    (ray_march, (np.array([0.1, 0.2, 0.0]), np.array([0.05, 0.02, 1.0]), 1.0)),
    (savgol, (matrix(13, 12), np.array([0.2, 0.5, 1.0, 0.5, 0.2]))),
]

# ----- what is refused, by which words, and what to write instead -----


def no_try(x):
    try:
        y = x[0] * x[1]
    except ValueError:
        y = 0.0
    return y


def no_with(x):
    with open("a") as f:
        y = x[0]
    return y


def no_lambda(x):
    f = lambda v: v * v
    return f(x[0])


def no_listcomp(x):
    y = [v * v for v in x]
    return y[0] + y[1]


def no_genexp(x):
    return sum(v * v for v in x)


def no_dict(x):
    d = {0: x[0]}
    return d[0]


def no_dictcomp(x):
    d = {i: x[i] for i in range(2)}
    return d[0]


def no_set(x):
    d = {1, 2}
    return x[0] * len(d)


def no_string(x):
    s = "abc"
    return x[0] * len(s)


def no_fstring(x):
    s = f"{x[0]}"
    return x[0]


def no_global_write(x):
    global G
    G = 3.0
    return x[0] * G


def no_nonlocal(x):
    c = 1.0
    def inner():
        nonlocal c
        c = 2.0
    inner()
    return x[0] * c


def no_inner_def(x):
    def sq(v):
        return v * v
    return sq(x[0]) + sq(x[1])


def no_import(x):
    import math as m
    return m.sin(x[0])


def no_recursion(x):
    return x[0] * fact(3)


def no_starargs_def(*x):
    return x[0][0]


def of_starargs_call(x):
    p = (x[0], x[1])
    return add(*p)


def no_kwonly(x, *, k=2.0):
    return x[0] * k


def no_starstar(x):
    d = dict(by=2.0)
    return scaled(x[0], **d)


def no_walrus_while(x):
    i = 0
    s = 0.0
    while (i := i + 1) < 4:
        s += x[i] * x[i]
    return s


def no_match(x):
    n = 2
    match n:
        case 1:
            return x[0]
        case 2:
            return x[1] * x[1]
        case _:
            return x[2]
    return 0.0


def no_slice_var_step(x):
    k = len(x) - 4
    y = x[::k]
    return y[0] * y[1]


def of_where1(x):
    i = np.where(x > 0.5)[0]
    return x[i[0]]


def no_fancy_add(x, k):
    y = np.zeros(6)
    y[k] += x[:3]
    return (y * y).sum()


def of_mask(x):
    return x[x > 0.5].sum()


def of_reshape(z):
    y = z.reshape(z.size)
    return y[3] * y[2]


def of_npreshape(x):
    y = np.reshape(x, (3, 2))
    return y[1, 1] * y[0, 1]


def of_ravel(z):
    y = z.ravel()
    return y[3] * y[2]


def of_solve(z):
    return np.linalg.solve(z, z[0])[0]


def of_inv(z):
    return np.linalg.inv(z)[0, 1]


def of_det(z):
    return np.linalg.det(z)


def no_star_unpack(x):
    a, *b = (x[0], x[1], x[2])
    return a * b[0]


def of_for_else(x):
    s = 0.0
    for i in range(3):
        s += x[i]
    else:
        s *= 2.0
    return s


def of_while_else(x):
    i = 0
    while i < 3:
        i += 1
    else:
        i = 5
    return x[i]


def no_range_var_step(x):
    k = len(x) - 4
    s = 0.0
    for i in range(0, 6, k):
        s += x[i] ** 2
    return s


def of_counter_after(x):
    for i in range(3):
        if x[i] > 100.0:
            break
    return x[i] ** 2


def no_yield(x):
    yield x[0]


async def no_async(x):
    return x[0]


def no_class(x):
    class A:
        pass
    return x[0]


def no_list(x):
    y = [x[0], x[1]]
    return y[0] * y[1]


def no_list_append(x):
    y = []
    for i in range(3):
        y.append(x[i])
    return y[0]


def no_round_digits(x):
    return round(x[0], 2)


def of_gamma(x):
    return math.gamma(x[0] + 2.0)


def no_fsum(x):
    return math.fsum(x)


def no_ldexp(x):
    return math.ldexp(x[0], 2)


def no_complex(x):
    z = 1j * x[0]
    return z.real


def no_complex2(x):
    z = complex(x[0], x[1])
    return abs(z)


def no_print(x):
    print(x[0])
    return x[0]


def of_is_none(x, k=None):
    if k is None:
        return x[0] ** 2
    return x[0]


def windowed(x, window=None, lengths=None):
    if window is None:
        window = np.ones(len(x)) * x[1]
    elif lengths is not None and lengths[0] > 1:
        return x[0] * window[lengths[0]]
    s = 0.0
    for i in range(len(x)):
        if x[i] > 0.2 and lengths is not None:
            s += lengths[i % 3] * x[i]
        s += window[i] * x[i] ** 2 if lengths is None else x[i]
    return s


def of_branches_of_none(x, y, k):
    s = windowed(x) + windowed(x, y) + windowed(x, None, k) + windowed(x, window=y, lengths=k)
    return s * equal_to_none(x[0]) * equal_to_none(x[1], x[2])


def equal_to_none(a, b=None):
    return a * b if a == None or b != None and a < 9.0 else a


def filled(x, kind, out):
    out[0] = x[0]
    if kind == 1: return
    if kind == 2:
        for i in range(2): out[1 + i] = x[0] * x[i]
        return
    if kind == 3:
        for i in range(3):
            if x[i] > 0.5:
                out[i] *= x[1]
                return None
            out[i] += x[i] * x[i]
            while out[i] < 1.0:
                out[i] += x[3]
                if out[i] > 0.6:
                    return
        out[0] = 9.0 * x[0]


def of_ends_without_return(x):
    out = np.zeros(4)
    for kind in range(1, 5):
        filled(x[kind - 1:], kind, out)
    filled(x[2:], 3, out)
    filled(x[1:], 3, out)
    return (out * out).sum() + out[1]


def of_rows_of_tuples(x, z):
    out = np.zeros((4, 3))
    for i in range(3):
        out[i] = x[i] * x[0], x[1] * i, x[2]
        out[i, ::-1] = (out[i, 1] * x[3], 1.0, out[i, 0])
    p = (x[4], x[5] * x[5])
    n = len(x) - 4
    out[3, :n] = p
    out[3, 1:] = [out[3, 2], out[3, 1]]
    z[0, :3] = z[1, :] = [0.0, x[0], 1]
    out[:, 1] = [True, x[2], 3, 2.0]
    x[:n] = x[1], x[0]
    k = np.zeros(2, np.int64)
    k[:] = 2, len(x)
    return (out * out * x[0]).sum() + (z * z).sum() + k[1] * x[1]


def of_prange_in_order(x):
    k = s = 0.0
    for i in numba.prange(len(x)):
        if x[i] > 0.5:
            k = x[i]
        s += k * x[i]
    return s


def no_tuple_of_dtypes(x):
    x[:3] = (x[0], 1, x[1])
    return x[0]


def no_tuple_of_rows(z):
    z[:2] = (z[0, 0], z[0, 1])
    return z[0, 0]


def no_tuple_of_nothing(x):
    x[:0] = ()
    return x[0]


def no_tuple_added(x):
    x[:2] += (x[0], x[1])
    return x[0]


def no_tuple_of_arrays(x):
    x[:2] = [x, x]
    return x[0]


def no_truth_of_none(x, k=None):
    return x[0] if k else x[1]


def no_other_dtype_in_rounds(x):
    v = np.zeros(6, np.float32)
    for i in range(3):
        v = v + x * v
    return v[0]


def no_number_in_rounds(x):
    v = np.zeros(6)
    for i in range(3):
        v = x[i]
    return v


def of_array_result_branch(x):
    if x[0] > 0.0:
        y = x * 2.0
    else:
        y = x * 3.0
    return y.sum()


def no_matmul_assign(z):
    z @= z
    return z.sum()


def no_item(x):
    return x[0].item()


def no_random(x):
    return x[0] * np.random.rand()


def no_einsum(x):
    return np.einsum("i,i", x, x)


def of_vstack(x):
    return np.vstack((x, x)).sum()


def no_list_arg_global(x):
    return x[0] * LIST[0]


def no_dict_global(x):
    return x[0] * TABLE["a"]


def no_nested_tuple(x):
    return (x[0], (x[1], x[2]))


def no_type(x):
    return x[0] if isinstance(x[0], float) else 0.0


def no_float_index(x):
    return x[1.0]


def no_lambda_global(x):
    return LAM(x[0])


def no_partial(x):
    return PART(x[0])


def no_vectorize(x):
    return vec_sq(x[0])


def no_sum_of_rows(z):
    return sum(z)[0]


def of_two_ways(x):
    return two_ways(x)[0]


def two_ways(x):
    if x[0] > 0.0:
        return x * 2.0
    return x * 3.0


def no_two_names(x, y):
    a = x * 1.0
    b = y * 1.0
    s = 0.0
    for i in range(3):
        u = a
        v = b
        for j in range(i):
            u, v = v, u
        s += u[0] * v[1] * i
        a = u
        b = v
    return (a * a).sum() * s + b[0] * a[1]


def of_else_behind_break(x, y):
    s = 0.0
    for i in range(3):
        for j in range(3):
            if x[j] > 0.5 + 0.2 * i:
                break
            s += x[j] * y[i]
        else:
            if i == 2:
                break
            s *= 2.0 * x[0]
            continue
        s += y[i]
    else:
        s += 100.0 * x[1]
    return s


def of_else_that_raises(x):
    i = 0
    while i < 6:
        if x[i] > 0.7:
            break
        i += 1
    else:
        raise ValueError("not found")
    return x[i] * x[0]


def returns_in_else(x, limit):
    for v in x:
        if v > limit:
            return v * v
    else:
        return x[0] * limit


def of_return_in_else(x):
    return returns_in_else(x, x[1]) + returns_in_else(x, 2.0 * x[2] + 1.0)


def by_name(x, how="square"):
    if how == "square":
        return x * x
    elif how in ("cube", "third"):
        return x * x * x
    return x


def of_texts(x):
    how = "cube"
    s = by_name(x[0]) + by_name(x[1], "third") + by_name(x[2], how=how)
    return s + (x[3] if how != "cube" else x[4]) + (0.0 if 2 in () else x[5])


def scaled_pair(f, a, rest):
    return f(a, *rest) * f(*rest, a)


def of_star_of_tuple(x):
    return scaled_pair(add, x[0], (x[1] * x[2],)) + add(*(x[3], x[4]))


def of_cross(x, y):
    a = np.cross(x[:3], y[:3])
    b = np.cross([0, x[0], 1.0], a)
    return (a * b).sum() + np.cross(b, (1.0, 2.0, y[0]))[1]


def of_array_of_either(x, y):
    z = x
    if x[0] > 0.2:
        z = x / np.sqrt((x * x).sum())
    w = y if y[0] > 9.0 else x * y
    return (z * w).sum() + z[0] * x[0]


def of_arrays_of_a_round(x, y):
    s = 0.0
    z = x.copy()
    for i in range(3):
        if x[i] > 0.5:
            z, u = z * y[i], y * x[i]
        else:
            z, u = z + y, x - y
        u[1] = z[0]
        s += (z * u).sum()
    return s


def steps_until(x, limit):
    status = 1
    if x[0] > limit:
        itr = 0
    else:
        for itr in range(5):
            if x[itr] > limit:
                status = 0
                itr += 1
                break
    return itr, status


def of_counter_set_in_its_loop(x):
    n, status = steps_until(x, 0.7)
    m, other = steps_until(x, 0.2)
    for j in range(2):
        for i in range(1, 6, 2):
            if x[i] > 0.9:
                break
        n += i
    return x[n % 6] * (n + 1) + x[m] * x[0] + status + 2 * other


def root_of(x, a):
    for i in range(20):
        new = 0.5 * (x + a / x)
        if abs(new - x) < 1e-12:
            break
        x = new
    if i > 30:
        return Root(x, 0)
    return Root(new, calls=i)


def of_named_tuple(x):
    r = root_of(1.0, x[0] * x[1])
    p = Root(calls=x[2], root=2.0) if x[3] > 0.1 else Root(1.0, x[4])
    return r.root * p.calls + r[0] + 0.0 * r.calls


def smoothed(v):
    r = np.empty_like(v)
    for i in range(len(v)):
        r[i] = 0.5 * v[i] + 0.3 * v[i - 1] * v[i]
    return r


def of_arrays_in_expressions_of_a_loop(x, y):
    s = 0.0
    for i in range(3):
        z = smoothed(x) if x[i] > 0.5 else 0.5 * y
        if x[i] > 0.1 and smoothed(z)[i] > 0.1:
            s += z[i] * (smoothed(y)[i] if z[i] > 0.3 else 2.0)
    return s


def of_sizes_of_a_side(x, y):
    if x[0] > 0.2:
        z = x[1:4] * 2.0
    else:
        z = y * 3.0
    return (z * z).sum() + z.shape[0] * x[0]


def of_written_sizes_of_one(x):
    a = np.array([[x[0], x[1], 0.0], [1.0, x[2], x[3]]], np.float64)
    b = a * np.array([[x[4]], [x[5]]], np.float64) + np.ones((1, 3)) * x[0]
    c = np.zeros((2, 3))
    c[:] = np.array([[x[1]], [2.0]], np.float64)
    return (b * b).sum() + (c * a).sum()


def of_contiguous_copies(x):
    a, b = np.outer(x, x), np.outer(x, x)
    t = (np.ascontiguousarray(a[:, 1]) * np.ascontiguousarray(a * 2.0)[0]).sum()
    for i in range(b.shape[1]):
        b[i, 0] = b[i, 0] * x[1]
        column = np.ascontiguousarray(b[:, i])
        t += np.dot(column, column)
    return t


def of_names_of_rounds(x):
    y, z, w, t = x * 2.0, x * 3.0, x, 0.0
    last = y
    for i in range(3):
        last = y
        y = y * x[1]
        z = x[:]
        w = np.ascontiguousarray(y)
        t += last[0] * w[1]
    row = y[:2]
    for i in range(2):
        row = z[i : i + 2]
        t += row[0] * w[0]
    y[0] = x[3]
    for i in range(2):
        row = y[i : i + 2]
        row[0] = row[1] * x[0]
    return t + last[1] * y[0] + z.sum()


def of_expanded_axes(x):
    y, z = x * 2.0, x * x
    y[0] = x[1]
    t = np.expand_dims(y, 1) * np.expand_dims(x, axis=0) + np.expand_dims(z, -1)
    one = np.expand_dims(np.asarray(x[2]), -1)
    return (t * t).sum() + t.shape[0] * x[0] + (one * x).sum()


def of_asarray_of_number(x):
    a = np.asarray(x[0])
    r = np.zeros(a.shape + (2,))
    r[0] = np.cos(a)
    r[1] = np.sin(a)
    return r[0] + 2.0 * r[1]


def no_write_into_chosen(x, y):
    z = x if x[0] > 0.0 else y
    z[0] = 3.0
    return (z * z).sum()


def no_write_behind_chosen(x, y):
    if x[0] > 0.0:
        z = x[::2]
    else:
        z = y[:3]
    x[0] = 5.0
    return (z * z).sum()


def no_read_of_contiguous(x):
    y = x * 2.0
    z = np.ascontiguousarray(y)
    z[0] = 1.0
    return y[0] * x[1]


def no_read_behind_contiguous(x):
    y = x * 2.0
    z = np.ascontiguousarray(y)
    y[0] = 1.0
    return z[0] * x[1]


def no_contiguous_of_rounds(x):
    y, z, t = x * 2.0, x * 3.0, 0.0
    for i in range(3):
        y[0] = y[0] * x[1]
        t += z[0]
        z = np.ascontiguousarray(y)
    return t


def no_names_of_rounds(x):
    y, z, t = x * 2.0, x * 3.0, 0.0
    for i in range(3):
        y[0] = y[0] * x[1]
        t += z[0]
        z = y[:]
    return t


def no_names_of_first_round(x):
    y = x * 2.0
    z, t = y, 0.0
    for i in range(3):
        y[0] = y[0] * x[1]
        t += z[0]
        z = z * x[2]
    return t


def no_names_behind_rounds(x):
    y, z = x * 2.0, x * 3.0
    for i in range(3):
        z = y[:]
    y[0] = x[1]
    return z[0]


def no_write_behind_rounds(x):
    y, z = x * 2.0, x * 3.0
    for i in range(3):
        z = y[:]
    z[0] = x[1]
    return y[0]


def no_names_of_one_array(x):
    y, z = x * 2.0, x * 3.0
    for i in range(3):
        t = x * y[0]
        y = t
        z = t
    y[0] = x[1]
    return z[0]


def no_contiguous_of_one_array(x):
    y, z = x * 2.0, x * 3.0
    for i in range(3):
        y = y * x[1]
        z = np.ascontiguousarray(y)
    y[0] = x[3]
    return z[0]


def no_names_of_the_round_before(x):
    y, t = x * 2.0, x * 3.0
    z, last = y, y
    for i in range(3):
        last = z
        z = t * z[0]
    y[0] = x[3]
    return last[0]


def no_names_of_rounds_of_loops(x):
    y, z, t = x * 2.0, x * 3.0, 0.0
    for i in range(2):
        t += z[0]
        for k in range(2):
            z = y[:]
        y[0] = y[0] * x[1]
    return t


def no_names_where_places_change(x):
    y, u, z = x * 2.0, x * 3.0, x * 4.0
    t = 0.0
    for i in range(3):
        u[0] = y[0] * x[1]
        t += z[0]
        z = y[:]
        y, u = u, y
    return t


def no_read_where_places_change(x):
    y, t = x * 2.0, 0.0
    z = np.ascontiguousarray(y)
    z[0] = x[1]
    for i in range(3):
        y, z = z, y
        t += y[0]
    return t


def no_write_into_perhaps_argument(x):
    y = x
    for i in range(x.shape[0] - 3):
        y = y * x[1]
    y[0] = 2.0
    return y.sum()


def no_sizes_of_the_text(x):
    return (np.zeros(3) + np.ones(2) * x[0]).sum()


def no_write_into_twins(x, y):
    if x[0] > 0.0:
        z = x * 2.0
        w = z
    else:
        z = y * 3.0
        w = y * z
    w[0] = 1.0
    return (z * w).sum()


def no_write_into_chosen_that_changes_places(x, y):
    z = x if x[0] > 0.0 else y
    w = np.zeros(6)
    for i in range(3):
        z[0] = 5.0 * y[1]
        z, w = w, z
    return (x * x).sum() + (w * w).sum()


def no_write_into_source_that_changes_places(x, y):
    z = x if x[0] > 0.0 else y
    for i in range(3):
        for j in range(2):
            x, y = y, x
        x[i] = 1.0
    return (x * z).sum()


def of_chosen_that_changes_places(x, y):
    z = x if x[0] > 0.0 else y
    w = y * y
    for i in range(3):
        z, w = w, z
    return (z * x).sum() + (w * w).sum()


def no_chosen_in_loop(x, y):
    s = 0.0
    for i in range(3):
        z = x if x[i] > 0.5 else y
        x[i] = 2.0
        s += z[0]
    return s


def of_sizes_of_rounds(z):
    s = 0.0
    for i in range(3):
        y = np.zeros(i + 1)
        for j in range(i + 1):
            y[j] = z[i, j] ** 2 + y[j - 1]
        w = np.cumsum(y)[1:] * z[i, :i]
        for k in range(i, 0, -1):
            v = y[:k] * w[-k:]
            s += np.sum(v) * v[-1] + np.dot(v, v)
    return s


def of_elements_from_to(x, k):
    s = 0.0
    for i in range(2):
        a = x[k[i + 1]:k[i]] * 2.0
        b = x[k[1]:k[i]]
        s += a.sum() + (b * b).sum() * len(b)
    return s


def of_sums_of_windows(x):
    s = 0.0
    for i in range(0, len(x), 2):
        w = x[max(i - 2, 0):min(i + 2, len(x))].copy()
        w *= w[::-1]
        s += w.mean() * np.prod(1.0 + w)
    return s


def of_joined_in_rounds(x):
    s = 0.0
    for i in range(1, 5):
        y = np.concatenate((x[:i], x[i:] * x[i - 1]))
        s += (y[1:] * y[:-1]).sum()
    return s


def of_half_of_rounds(x):
    s = 0.0
    for i in range(2, 6):
        y = np.ones((i // 2, 2))
        y[0, 1] = x[i]
        s += y.sum() * (y * y).mean()
    return s


def of_part_that_a_branch_chooses(z, k):
    s = 0.0
    m = k[0]
    for i in range(3):
        if z[i, 0] > 0.5:
            v = z[i, m - 1:m + 1] * 2.0
        else:
            v = z[0, m - 1:m + 1] / z[i, 0]
        s += (v * v).sum()
    return s


def of_cross_of_whole_numbers(x):
    return (np.cross([0, 0, 1], x[:3]) * np.cross(x[3:], [1, 0, 2])).sum()


def of_type_of_number(x):
    a = type(x[0])(0.5) * x[1]
    return a * (type(len(x))(1.7) + type(a)(2)) ** 2


def no_size_from_data(x, k):
    s = 0.0
    for i in range(3):
        y = np.zeros(k[i] + 1)
        y[0] = x[i]
        s += y.sum()
    return s


def no_size_counted(x):
    s = 0.0
    for i in range(3):
        n = 1
        for j in range(len(x)):
            if x[j] > x[i]:
                n += 1
        y = np.ones(n)
        s += y[0] * x[i]
    return s


def of_masks(x, z):
    y = x.copy()
    y[np.isnan(y)] = 0.0
    y[y > 0.5] *= 2.0
    y[y < 0.4] += y[y < 0.4] ** 2
    v = y[np.logical_and(y > 0.2, y < 1.5)]
    rows = z[z[:, 0] > 0.5]
    return (v * v).sum() * v.mean() + np.sin(z[z > 0.42]).sum() + (rows ** 3).sum() + len(v) * x[0]


def of_mask_of_itself(x):
    y = x.copy()
    y[y > 0.3] = y[y > 0.3][::-1]
    y[y > 0.6] = 1.0 / y[y > 0.6]
    return (y * x).sum()


def of_masks_of_rounds(z):
    s = 0.0
    for i in range(3):
        m = z[i] > 0.35
        w = z[i][m] * 2.0
        t = np.ones(3)
        t[m] = w / (1.0 + z[i][m] ** 2)
        s += (w * w[::-1]).sum() + np.prod(t) + np.cumsum(w).sum() + np.flatnonzero(m).sum() * w[0]
    return s


def of_mask_that_is_nowhere(x):
    return x[x > 5.0].sum() + x[0] * len(x[x < 0.0])


def no_mask_of_rows_of_rows(z):
    y = np.ones((2, 3, 3))
    y[1] = z
    return y[z[:2] > 0.5].sum()


def of_solve_pivots(x, z):
    a = z.copy()
    a[0, 0] = 0.0
    return np.linalg.solve(a, x[:3]).sum() + (np.linalg.solve(a, z * z) ** 2).sum()


def of_slogdet(z):
    return np.linalg.slogdet(z)[1] * np.linalg.slogdet(z[::-1])[0]


def of_cholesky(z):
    c = np.linalg.cholesky(z @ z.T)
    return c[2, 1] * c[2, 2] + c[1, 0] + c[0, 2]


def of_filter(x, z):
    s = 0.0
    p = np.eye(3)
    state = np.zeros(3)
    for i in range(6):
        p = 0.1 * z @ p @ z.T + np.eye(3)
        v = x[i] - state
        s += np.log(np.linalg.det(p)) + v @ np.linalg.solve(p, v)
        state = state + p @ np.linalg.inv(p + np.eye(3)) @ v
    return s


def no_solve_of_number(z):
    return np.linalg.solve(z, z[0, 0])


def no_det_of_vector(x):
    return np.linalg.det(x)


def of_stacked(x, y):
    a = np.vstack((x, y))
    b = np.column_stack((x, y))
    c = np.hstack((a, a * a))
    d = np.stack((x[:2], y[:2]))
    e = np.concatenate((a, c[:, :6]), axis=1)
    return (a @ b).sum() + c[1, 7] * c[0, 3] + (d * d).sum() + e[1, 11] * e[0, 2] + np.hstack((x, y))[9]


def of_reshaped(x, z):
    a = x.reshape(3, 2)
    b = x.reshape((2, -1))
    c = (z * 2.0).reshape(-1)
    d = np.reshape(z, (3, 1, 3)) - np.reshape(z, (1, 3, 3))
    return a[2, 1] * a[0, 1] + (b[0] * b[1]).sum() + c[4] * c[8] + (d * d).sum() + d[0, 2, 1] ** 3


def no_write_beside_reshaped(x):
    y = x * 2.0
    z = y.reshape(2, 3)
    y[0] = x[1]
    return z[0, 0] * z[1, 1]


def of_sums_along_axes(x, z):
    a = np.reshape(z, (3, 1, 3)) * np.reshape(z, (1, 3, 3))
    s = a.sum(axis=0) * a.sum(1) + np.sum(a, axis=-1)
    s += a.max(axis=1) + np.min(a, axis=2) + a.mean(axis=0)
    b = np.ones((2, 1, 3, 3))
    b[0, 0] = z
    return (s * s).sum() + a.max() - a.min() + (np.sum(b, axis=1) ** 2).sum() + b.sum() * x.sum(axis=0)


def of_part_of_shape(z):
    y = np.zeros(z.shape[:1] + (2,))
    y[:, 0] = z[:, 1]
    return (y * y).sum()


REFUSED = [
    (no_size_from_data, 'a size that is computed there', 'a part of it'),
    (no_size_counted, 'a size that is computed there', 'a part of it'),
    (no_mask_of_rows_of_rows, '3 dimensions where 2 dimensions are true', 'with an if'),
    (no_solve_of_number, 'np.linalg.solve of this', 'a vector or a matrix'),
    (no_det_of_vector, 'no matrix', 'two dimensions'),
    (no_write_beside_reshaped, 'written by another of its names', 'y = x.copy()'),
    (no_write_into_chosen, 'another name since a branch', 'x.copy() if test'),
    (no_write_behind_chosen, 'another name since a branch', 'x.copy() if test'),
    (no_write_into_chosen_that_changes_places, 'another name since a branch', 'x.copy() if test'),
    (no_write_into_source_that_changes_places, 'another name since a branch', 'x.copy() if test'),
    (no_write_into_twins, 'another name since a branch', 'x.copy() if test'),
    (no_read_of_contiguous, 'written by another of its names', 'y = x.copy()'),
    (no_read_behind_contiguous, 'written by another of its names', 'y = x.copy()'),
    (no_contiguous_of_rounds, 'an array that this loop writes, too', 'y = x.copy()'),
    (no_names_of_rounds, 'an array that this loop writes, too', 'y = x.copy()'),
    (no_names_of_first_round, 'an array that this loop writes, too', 'y = x.copy()'),
    (no_names_behind_rounds, 'written by another of its names', 'y = x.copy()'),
    (no_write_behind_rounds, 'written by another of its names', 'y = x.copy()'),
    (no_names_of_one_array, 'written by another of its names', 'y = x.copy()'),
    (no_contiguous_of_one_array, 'written by another of its names', 'y = x.copy()'),
    (no_names_of_the_round_before, 'written by another of its names', 'y = x.copy()'),
    (no_names_of_rounds_of_loops, 'an array that this loop writes, too', 'y = x.copy()'),
    (no_names_where_places_change, 'an array that this loop writes, too', 'y = x.copy()'),
    (no_read_where_places_change, 'written by another of its names', 'y = x.copy()'),
    (no_write_into_perhaps_argument, 'written by another of its names', 'y = x.copy()'),
    (no_sizes_of_the_text, '3 and 2 elements', ''),
    (no_chosen_in_loop, 'an array where a number is needed', 'the loop over the elements'),
    (no_two_names, 'lets change places', 'the same names'),
    (no_sum_of_rows, '`sum` of rows', 'x.sum(axis=0)'),
    (no_try, 'Try', 'Test by `if`'),
    (no_with, 'With', 'pass arrays'),
    (no_lambda, 'Lambda', 'with `def` outside'),
    (no_listcomp, 'ListComp', 'fill it in a loop'),
    (no_genexp, 'GeneratorExp', 'the loop'),
    (no_dict, 'Dict', 'an array'),
    (no_dictcomp, 'DictComp', 'fill it in a loop'),
    (no_set, 'Set', 'truth values'),
    (no_string, 'the length of this', ''),
    (no_fstring, 'JoinedStr', 'Leave texts out'),
    (no_global_write, 'Global', 'Return it'),
    (no_nonlocal, 'FunctionDef', 'with `def` outside'),
    (no_inner_def, 'FunctionDef', 'with `def` outside'),
    (no_import, 'Import', 'at the beginning of the file'),
    (no_recursion, 'calls itself', 'as a loop'),
    (no_starargs_def, '*args', 'plain parameters'),
    (no_kwonly, 'keyword-only', 'plain ones'),
    (no_starstar, '`dict`', 'an array'),
    (no_walrus_while, 'in the test of a loop', 'a statement of its own'),
    (no_match, 'Match', 'if, elif, else'),
    (no_slice_var_step, 'step', 'Write -1, 1, 2, ...'),
    (no_fancy_add, 'adds once', 'y[k[i]] += v[i]'),
    (no_star_unpack, 'a star', 'Write the items out'),
    (no_range_var_step, 'a step', 'Write -1, 1, 2, ...'),
    (no_yield, 'Yield', 'Fill an array'),
    (no_async, 'no function made with `def`', 'Define it with `def`'),
    (no_class, 'ClassDef', 'arrays'),
    (no_list, 'List', 'np.array([...])'),
    (no_list_append, 'List', 'np.empty(n)'),
    (no_round_digits, '`round`', '10.0**n'),
    (no_fsum, 'math.fsum', 'np.sum'),
    (no_ldexp, 'math.ldexp', '2.0**n'),
    (no_complex, '1j', 'imaginary part'),
    (no_complex2, '`complex`', 'imaginary part'),
    (no_print, '`print`', 'Return what'),
    (no_truth_of_none, 'no number', 'Pass numbers'),
    (no_tuple_of_dtypes, 'a tuple of several dtypes', 'Write 1.0'),
    (no_tuple_of_rows, '2 items to 2 dimensions', 'row by row'),
    (no_tuple_of_nothing, '0 items', 'row by row'),
    (no_tuple_added, 'a tuple where a number is needed', 'Pick its elements'),
    (no_tuple_of_arrays, 'an array where a number is needed', 'the loop over the elements'),
    (no_other_dtype_in_rounds, 'a 1-dimensional array of float32 before this loop and a 1-dimensional array of '
     'float64 after', 'np.zeros(n, np.float64)'),
    (no_number_in_rounds, 'and a number after a round', 'or use two names'),
    (no_matmul_assign, '@=', 'x = x @ y'),
    (no_item, '`item`', 'Leave it out'),
    (no_random, 'np.random.rand', 'Draw outside'),
    (no_einsum, 'np.einsum', 'loops over the indices'),
    (no_list_arg_global, 'an index of something', 'a tuple'),
    (no_dict_global, 'an index of something', 'a tuple'),
    (no_nested_tuple, 'a tuple in a tuple', 'one tuple'),
    (no_type, '`isinstance`', 'Leave the test out'),
    (no_float_index, 'an index that is a float', 'int(...)'),
    (no_lambda_global, 'no function made with `def`', 'Define it with `def`'),
    (no_partial, '`PART`', 'Write a function'),
    (no_vectorize, '`vec_sq`', 'by njit'),
]


def arguments(f):
    parameters = inspect.signature(f).parameters.values()
    plain = [p.name for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    return [ARGUMENTS[name].copy() for name in plain]


RIGHT = [(f, arguments(f)) for name, f in list(globals().items()) if name.startswith("of_")] + PROGRAMS


def copied(args):
    return [a.copy() if isinstance(a, np.ndarray) else a for a in args]


def differences(f, args, step=1e-6):
    found = []
    for k, a in enumerate(args):
        if np.asarray(a).dtype.kind != "f":
            continue
        g = np.zeros(np.shape(a))
        for i in np.ndindex(np.shape(a)):
            values = []
            for sign in (1, -1):
                moved = copied(args)
                if np.ndim(a):
                    moved[k][i] += sign * step
                else:
                    moved[k] += sign * step
                values.append(f(*moved))
            g[i] = (values[0] - values[1]) / (2 * step)
        found.append(g)
    return found


def check(f, args):
    """Value, gradients and tangents beside plain Python."""
    plain = getattr(f, "py_func", f)
    value, grads = adjit.value_and_grad(f)(*copied(args))
    np.testing.assert_allclose(value, plain(*copied(args)), rtol=1e-12, err_msg=f.__name__)
    expected = differences(plain, args)  # none of defaults
    assert len(grads) >= len(expected)
    for g, e in zip(grads, expected):
        np.testing.assert_allclose(g, e, atol=1e-5 * (1 + np.abs(e).max()), err_msg=f.__name__)
    along = [np.cos(5.0 * g + 1.0) for g in grads]
    if not plain.__defaults__:
        tangent = adjit.user_kernels.jvp(f)(*copied(args), *along)[1]
        slope = sum(np.sum(g * d) for g, d in zip(grads, along))
        np.testing.assert_allclose(tangent, slope, rtol=1e-9, atol=1e-9, err_msg=f.__name__)


if __name__ == "__main__":
    for f, args in RIGHT:
        check(f, args)
    print(len(RIGHT))
