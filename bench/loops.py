"""Kernels as people write them in Numba, with what they are given: the rows of user_kernels.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit

compiled = njit(error_model="numpy")


def soft_dtw(costs, gamma):
    n, m = costs.shape
    r = np.full((n + 1, m + 1), np.inf)
    r[0, 0] = 0.0
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            a = -r[i - 1, j - 1] / gamma
            b = -r[i - 1, j] / gamma
            c = -r[i, j - 1] / gamma
            top = max(a, b, c)
            total = math.exp(a - top) + math.exp(b - top) + math.exp(c - top)
            r[i, j] = costs[i - 1, j - 1] - gamma * (math.log(total) + top)
    return r[n, m]


def edit_distance(a, b, change, gap):
    n, m = len(a), len(b)
    d = np.zeros((n + 1, m + 1))
    for i in range(1, n + 1):
        d[i, 0] = d[i - 1, 0] + gap
    for j in range(1, m + 1):
        d[0, j] = d[0, j - 1] + gap
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            moved = d[i - 1, j - 1] + change * abs(a[i - 1] - b[j - 1])
            d[i, j] = min(moved, d[i - 1, j] + gap, d[i, j - 1] + gap)
    return d[n, m]


def hmm_forward(start, moves, emits, seen):
    k = len(start)
    alpha = np.empty(k)
    new = np.empty(k)
    total = 0.0
    for s in range(k):
        alpha[s] = start[s] * emits[s, seen[0]]
        total += alpha[s]
    for s in range(k):
        alpha[s] /= total
    likelihood = math.log(total)
    for t in range(1, len(seen)):
        total = 0.0
        for s in range(k):
            acc = 0.0
            for r in range(k):
                acc += alpha[r] * moves[r, s]
            new[s] = acc * emits[s, seen[t]]
            total += new[s]
        for s in range(k):
            alpha[s] = new[s] / total
        likelihood += math.log(total)
    return likelihood


@compiled
def lotka_volterra(x, y, p):
    return p[0] * x - p[1] * x * y, p[2] * x * y - p[3] * y


@compiled
def integrate(start, p, end, tolerance):
    """Bogacki and Shampine's method of order 3 with an error of order 2; also the number of steps tried."""
    x, y, t, h, tried = start[0], start[1], 0.0, 0.01, 0
    k1x, k1y = lotka_volterra(x, y, p)
    while t < end:
        h = min(h, end - t)
        k2x, k2y = lotka_volterra(x + h * 0.5 * k1x, y + h * 0.5 * k1y, p)
        k3x, k3y = lotka_volterra(x + h * 0.75 * k2x, y + h * 0.75 * k2y, p)
        nx = x + h * (2 / 9 * k1x + 1 / 3 * k2x + 4 / 9 * k3x)
        ny = y + h * (2 / 9 * k1y + 1 / 3 * k2y + 4 / 9 * k3y)
        k4x, k4y = lotka_volterra(nx, ny, p)
        ex = h * (-5 / 72 * k1x + 1 / 12 * k2x + 1 / 9 * k3x - 1 / 8 * k4x)
        ey = h * (-5 / 72 * k1y + 1 / 12 * k2y + 1 / 9 * k3y - 1 / 8 * k4y)
        error = math.sqrt(ex * ex + ey * ey) + 1e-300
        if error <= tolerance:
            t += h
            x, y, k1x, k1y = nx, ny, k4x, k4y
        h *= min(5.0, max(0.2, 0.9 * (tolerance / error) ** (1 / 3)))
        tried += 1
    return x, y, tried


def adaptive_rk(start, p, end, tolerance):
    x, y, _ = integrate(start, p, end, tolerance)
    return x * x + y


def iir_filter(x, b, a):
    y = np.zeros(len(x))
    for i in range(len(x)):
        acc = b[0] * x[i]
        if i >= 1:
            acc += b[1] * x[i - 1] - a[0] * y[i - 1]
        if i >= 2:
            acc += b[2] * x[i - 2] - a[1] * y[i - 2]
        y[i] = acc
    s = 0.0
    for i in range(len(x)):
        s += y[i] * y[i]
    return s


@compiled
def sigmoid(x):
    return 1.0 / (1.0 + math.exp(-x))


def lstm(x, w, u, bias):
    """One sequence of (steps, inputs); the gates are rows of `w`, `u` and `bias`."""
    steps, inputs = x.shape
    k = u.shape[1]
    h, c, z = np.zeros(k), np.zeros(k), np.empty(4 * k)
    for t in range(steps):
        for r in range(4 * k):
            acc = bias[r]
            for q in range(inputs):
                acc += w[r, q] * x[t, q]
            for q in range(k):
                acc += u[r, q] * h[q]
            z[r] = acc
        for q in range(k):
            c[q] = sigmoid(z[k + q]) * c[q] + sigmoid(z[q]) * math.tanh(z[2 * k + q])
            h[q] = sigmoid(z[3 * k + q]) * math.tanh(c[q])
    s = 0.0
    for q in range(k):
        s += h[q] * h[q]
    return s


def bodies(start, speed, mass, dt, steps):
    n = len(mass)
    pos, vel, acc = start.copy(), speed.copy(), np.zeros((n, 3))
    for _ in range(steps):
        for i in range(n):
            ax = ay = az = 0.0
            for j in range(n):
                dx = pos[j, 0] - pos[i, 0]
                dy = pos[j, 1] - pos[i, 1]
                dz = pos[j, 2] - pos[i, 2]
                r2 = dx * dx + dy * dy + dz * dz + 0.01
                pull = mass[j] / (r2 * math.sqrt(r2))
                ax += pull * dx
                ay += pull * dy
                az += pull * dz
            acc[i, 0] = ax
            acc[i, 1] = ay
            acc[i, 2] = az
        for i in range(n):
            for k in range(3):
                vel[i, k] += dt * acc[i, k]
                pos[i, k] += dt * vel[i, k]
    s = 0.0
    for i in range(n):
        s += 0.5 * mass[i] * (vel[i, 0] ** 2 + vel[i, 1] ** 2 + vel[i, 2] ** 2)
        s += pos[i, 0] * pos[i, 1]
    return s


@compiled
def kepler(mean, e):
    """The eccentric anomaly by Newton's method, and the number of rounds."""
    angle, rounds = mean if e < 0.8 else math.pi, 0
    while True:
        delta = (angle - e * math.sin(angle) - mean) / (1.0 - e * math.cos(angle))
        angle -= delta
        rounds += 1
        if abs(delta) < 1e-12 or rounds == 100:
            return angle, rounds


def kepler_sum(mean, e):
    s = 0.0
    for i in range(len(mean)):
        angle, _ = kepler(mean[i], e[i])
        s += angle * angle
    return s


def log_sum_exp(x):
    s = 0.0
    for i in range(x.shape[0]):
        row = x[i]
        top = row[0]
        for j in range(1, len(row)):
            if row[j] > top:
                top = row[j]
        total = 0.0
        for j in range(len(row)):
            total += math.exp(row[j] - top)
        s += (math.log(total) + top) * (i + 1)
    return s


def two_scans(start, decay):
    x = start.copy()
    n = len(x)
    for i in range(1, n):
        x[i] = x[i] * x[i] + decay * x[i - 1]
    for i in range(n - 2, -1, -1):
        x[i] = math.sin(x[i]) + decay * x[i + 1]
    s = 0.0
    for i in range(n):
        s += x[i] * x[i]
    return s


def warp(image, flow):
    h, w = image.shape
    s = 0.0
    for i in range(h):
        for j in range(w):
            y = i + flow[i, j, 0]
            x = j + flow[i, j, 1]
            if x < 0.0 or y < 0.0 or x > w - 1 or y > h - 1:
                continue
            x0 = math.floor(x)
            y0 = math.floor(y)
            x1 = min(x0 + 1, w - 1)
            y1 = min(y0 + 1, h - 1)
            fx = x - x0
            fy = y - y0
            upper = (1 - fx) * image[y0, x0] + fx * image[y0, x1]
            lower = (1 - fx) * image[y1, x0] + fx * image[y1, x1]
            v = (1 - fy) * upper + fy * lower
            s += v * v
    return s


@compiled
def escape(cx, cy):
    """The smooth time in which a point escapes, and the number of rounds."""
    x, y, n = 0.0, 0.0, 0
    while x * x + y * y <= 1e4 and n < 200:
        x, y = x * x - y * y + cx, 2 * x * y + cy
        n += 1
    if n == 200:
        return 0.0, n
    return n + 1 - math.log(math.log(math.sqrt(x * x + y * y))) / math.log(2.0), n


def mandelbrot(cx, cy):
    s = 0.0
    for i in range(len(cx)):
        for j in range(len(cy)):
            colour, _ = escape(cx[i], cy[j])
            s += colour
    return s


def heat(start, k, steps):
    n = len(start)
    u, v = start.copy(), np.zeros(n)
    for _ in range(steps):
        for i in range(1, n - 1):
            v[i] = u[i] + k[i] * (u[i - 1] - 2 * u[i] + u[i + 1]) * (1 + u[i])
        v[0] = u[0]
        v[n - 1] = u[n - 1]
        u, v = v, u
    s = 0.0
    for i in range(n):
        s += u[i] * u[i]
    return s


def cholesky(matrix):
    """The logarithm of the determinant of a positive matrix."""
    a = matrix.copy()
    n = len(a)
    for j in range(n):
        for k in range(j):
            for i in range(j, n):
                a[i, j] -= a[i, k] * a[j, k]
        a[j, j] = math.sqrt(a[j, j])
        for i in range(j + 1, n):
            a[i, j] /= a[j, j]
    s = 0.0
    for i in range(n):
        s += 2 * math.log(a[i, i])
    return s


@compiled
def lorenz_slope(y, p):
    k = np.empty(3)
    k[0] = p[0] * (y[1] - y[0])
    k[1] = y[0] * (p[1] - y[2]) - y[1]
    k[2] = y[0] * y[1] - p[2] * y[2]
    return k


def lorenz_rk4(start, p, dt, steps):
    """Whole-array statements, and an array of each call of a function."""
    y = start.copy()
    for _ in range(steps):
        k1 = lorenz_slope(y, p)
        k2 = lorenz_slope(y + 0.5 * dt * k1, p)
        k3 = lorenz_slope(y + 0.5 * dt * k2, p)
        k4 = lorenz_slope(y + dt * k3, p)
        y += dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return y[0] * y[0] + y[2]


def option_tree(price, strike, rate, volatility, years, steps):
    """An American put by the binomial tree of Cox, Ross and Rubinstein."""
    dt = years / steps
    up = math.exp(volatility * math.sqrt(dt))
    discount = math.exp(-rate * dt)
    p = (math.exp(rate * dt) - 1 / up) / (up - 1 / up)
    worth = np.empty(steps + 1)
    for i in range(steps + 1):
        worth[i] = max(strike - price * up ** (2 * i - steps), 0.0)
    for t in range(steps - 1, -1, -1):
        s = price * up ** (-t)
        for i in range(t + 1):
            later = discount * (p * worth[i + 1] + (1 - p) * worth[i])
            worth[i] = max(later, strike - s)
            s *= up * up
    return worth[0]


def conjugate_gradients(k, b, tolerance):
    """The energy of the solution for a chain of springs `k`, whose matrix is never made."""
    n = len(b)
    x, r, ap = np.zeros(n), b.copy(), np.empty(n)
    d = b.copy()
    rr = 0.0
    for i in range(n):
        rr += r[i] * r[i]
    while rr > tolerance * tolerance:
        curve = 0.0
        for i in range(n):
            left = d[i] - d[i - 1] if i > 0 else d[i]
            right = d[i] - d[i + 1] if i < n - 1 else d[i]
            ap[i] = k[i] * left + k[i + 1] * right + d[i]
            curve += d[i] * ap[i]
        step = rr / curve
        before = rr
        rr = 0.0
        for i in range(n):
            x[i] += step * d[i]
            r[i] -= step * ap[i]
            rr += r[i] * r[i]
        for i in range(n):
            d[i] = r[i] + rr / before * d[i]
    s = 0.0
    for i in range(n):
        s += b[i] * x[i]
    return s


def triangular_solve(lower, b):
    n = len(b)
    x = np.empty(n)
    for i in range(n):
        acc = b[i]
        for j in range(i):
            acc -= lower[i, j] * x[j]
        x[i] = acc / lower[i, i]
    s = 0.0
    for i in range(n):
        s += x[i] * x[i]
    return s


# ----- rows -----


class Loop(NamedTuple):
    """A kernel, its arguments (`tiny` ones for tests), and the bytes that an adjoint has to keep that calls
    no function twice: what rounds hand on or overwrite and the way back reads, results of functions, sides of
    branches (a byte), arrays of the kernel and their adjoints. What arithmetic gives again does not count.
    """

    f: Callable[..., Any]
    make: Callable[[Any, bool], tuple[Any, ...]]
    least: Callable[..., int]

    @property
    def name(self) -> str:
        return self.f.__name__.replace("_", " ")


def _chain(g: Any, n: int, symbols: int, steps: int) -> tuple[Any, ...]:
    moves, emits = g.random((n, n)) + 0.1, g.random((n, symbols)) + 0.1
    return (
        np.full(n, 1 / n),
        moves / moves.sum(1, keepdims=True),
        emits / emits.sum(1, keepdims=True),
        g.integers(0, symbols, steps),
    )


def _positive(g: Any, n: int) -> Any:
    a = g.random((n, n))
    return a @ a.T + n * np.eye(n)


def _rounds_of_kepler(mean: Any, e: Any) -> int:
    return sum(kepler(a, b)[1] for a, b in zip(mean, e, strict=True))


def _rounds_of_mandelbrot(cx: Any, cy: Any) -> int:
    return sum(escape(a, b)[1] for a in cx for b in cy)


def _rounds_of_conjugate_gradients(k: Any, b: Any, tolerance: float) -> int:
    """By the recurrence on whole arrays."""
    d, r, rounds = b.copy(), b.copy(), 0
    while r @ r > tolerance * tolerance:
        wide = np.concatenate([[0], d, [0]])
        ap = k[:-1] * (d - wide[:-2]) + k[1:] * (d - wide[2:]) + d
        step, before = (r @ r) / (d @ ap), r @ r
        r = r - step * ap
        d, rounds = r + (r @ r) / before * d, rounds + 1
    return rounds


LOOPS = (
    Loop(
        soft_dtw,
        lambda g, tiny: (g.random((4, 5) if tiny else (200, 200)), 0.7),
        # Three exponentials and a logarithm of each element.
        lambda d, _: 16 * (d.shape[0] + 1) * (d.shape[1] + 1) + 32 * d.size,
    ),
    Loop(
        edit_distance,
        lambda g, tiny: (*g.random((2, 5 if tiny else 300)), 1.3, 0.4),
        lambda a, b, *_: 16 * (len(a) + 1) * (len(b) + 1),
    ),
    Loop(
        hmm_forward,
        lambda g, tiny: _chain(g, *((3, 4, 6) if tiny else (16, 20, 1000))),
        lambda start, moves, emits, seen: 8 * (len(seen) * (len(start) + 1) + 4 * len(start)),
    ),
    Loop(
        adaptive_rk,
        lambda g, tiny: (
            np.array([1.0, 1.2]), np.array([1.5, 1.0, 1.0, 3.0]), *((1.0, 1e-3) if tiny else (10.0, 1e-8)),
        ),
        # The state, the step, a root and a power of each step that is tried.
        lambda *args: (8 * 7 + 1) * integrate(*args)[2],
    ),
    Loop(
        iir_filter,
        lambda g, tiny: (
            g.standard_normal(6 if tiny else 10_000), np.array([0.3, 0.2, 0.1]), np.array([-0.5, 0.2]),
        ),
        lambda x, *_: 16 * len(x),
    ),
    Loop(
        lstm,
        lambda g, tiny: tuple(
            g.standard_normal(shape) * 0.2
            for shape in ([(3, 2), (8, 2), (8, 2), 8] if tiny else [(100, 32), (128, 32), (128, 32), 128])
        ),
        # Four gates, a cell, and a hidden state of each step.
        lambda x, w, u, bias: 8 * (6 * len(x) * u.shape[1] + 12 * u.shape[1]),
    ),
    Loop(
        bodies,
        lambda g, tiny: (
            g.standard_normal((4 if tiny else 100, 3)), g.standard_normal((4 if tiny else 100, 3)) * 0.1,
            g.random(4 if tiny else 100), 0.001, 2 if tiny else 10,
        ),
        # The root of each distance, and positions.
        lambda pos, vel, mass, dt, steps: 8 * steps * len(mass) * (len(mass) + 3) + 8 * 18 * len(mass),
    ),
    Loop(
        kepler_sum,
        lambda g, tiny: (g.random(5 if tiny else 1000) * 3, g.random(5 if tiny else 1000) * 0.9),
        # The angle, its sine and cosine in each round.
        lambda mean, e: 24 * _rounds_of_kepler(mean, e) + 8 * len(mean),
    ),
    Loop(
        log_sum_exp,
        lambda g, tiny: (g.standard_normal((3, 4) if tiny else (100, 1000)),),
        lambda x: 9 * x.size,
    ),
    Loop(
        two_scans,
        lambda g, tiny: (g.standard_normal(6 if tiny else 100_000) * 0.3, 0.5),
        lambda x, _: 4 * 8 * len(x),
    ),
    Loop(
        warp,
        lambda g, tiny: (
            g.random((4, 4) if tiny else (128, 128)),
            g.standard_normal((4, 4, 2) if tiny else (128, 128, 2)) * (1 if tiny else 2),
        ),
        # A side of a branch, and two whole numbers.
        lambda image, flow: 17 * image.size,
    ),
    Loop(
        mandelbrot,
        lambda g, tiny: (
            np.linspace(-2, 0.5, 4 if tiny else 100) + 0.013, np.linspace(0.01, 1.2, 4 if tiny else 100),
        ),
        lambda cx, cy: 16 * _rounds_of_mandelbrot(cx, cy),
    ),
    Loop(
        heat,
        lambda g, tiny: (
            g.random(6 if tiny else 1000), g.random(6 if tiny else 1000) * 0.2, 3 if tiny else 100,
        ),
        lambda u, k, steps: 8 * len(u) * (steps + 4),
    ),
    Loop(cholesky, lambda g, tiny: (_positive(g, 4 if tiny else 100),), lambda a: 16 * a.size),
    Loop(
        lorenz_rk4,
        lambda g, tiny: (
            np.array([1.0, 2.0, 3.0]), np.array([10.0, 28.0, 8 / 3]), 0.001, 3 if tiny else 1000,
        ),
        lambda y, p, dt, steps: 8 * 3 * steps,
    ),
    Loop(
        option_tree,
        lambda g, tiny: (100.0, 102.0, 0.05, 0.3, 1.0, 5 if tiny else 300),
        # The worth of each node; which side of `max` it was costs nothing more.
        lambda *args: 8 * (args[-1] + 1) * (args[-1] + 2) // 2 + 16 * (args[-1] + 1),
    ),
    Loop(
        conjugate_gradients,
        lambda g, tiny: (g.random(5 if tiny else 2001) + 0.5, g.standard_normal(4 if tiny else 2000), 1e-6),
        # The direction and its product in each round.
        lambda k, b, tolerance: 8 * len(b) * (2 * _rounds_of_conjugate_gradients(k, b, tolerance) + 8),
    ),
    Loop(
        triangular_solve,
        lambda g, tiny: (np.tril(_positive(g, 5 if tiny else 500)), g.standard_normal(5 if tiny else 500)),
        lambda lower, b: 16 * len(b),
    ),
)  # fmt: skip
