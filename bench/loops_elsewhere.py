"""Kernels of loops.py with an adjoint by hand, and as others write them: in PyTorch, and for JAX's `scan`.

Each takes the kernel's arguments. Those by hand give the value and a tuple of gradients, in order of the
arguments that are floats; those of libraries give the value, and their library the gradients.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from loops import compiled

try:
    import torch
except ImportError:
    torch = None
try:
    import jax
except ImportError:
    jax = None

# ----- adjoints by hand -----


@compiled
def soft_dtw_by_hand(costs, gamma):
    """After Cuturi and Blondel's backward recursion; the gradient of gamma beside it."""
    n, m = costs.shape
    r = np.full((n + 2, m + 2), np.inf)
    r[0, 0] = 0.0
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            a = -r[i - 1, j - 1] / gamma
            b = -r[i - 1, j] / gamma
            c = -r[i, j - 1] / gamma
            top = max(a, b, c)
            total = math.exp(a - top) + math.exp(b - top) + math.exp(c - top)
            r[i, j] = costs[i - 1, j - 1] - gamma * (math.log(total) + top)
    value = r[n, m]
    e = np.zeros((n + 2, m + 2))
    e[n, m] = 1.0
    slope = 0.0
    for i in range(n, 0, -1):
        for j in range(m, 0, -1):
            g = e[i, j]
            soft = r[i, j] - costs[i - 1, j - 1]
            weighted = 0.0
            for k in range(3):
                p, q = i - (k != 2), j - (k != 1)
                weight = math.exp((soft - r[p, q]) / gamma)
                if weight > 0.0:
                    e[p, q] += g * weight
                    weighted += weight * r[p, q]
            slope += g * (soft - weighted) / gamma
    return value, (e[1 : n + 1, 1 : m + 1].copy(), slope)


@compiled
def hmm_forward_by_hand(start, moves, emits, seen):
    """The scaled backward recursion."""
    k, steps = len(start), len(seen)
    alpha, scale = np.empty((steps, k)), np.empty(steps)
    for t in range(steps):
        total = 0.0
        for s in range(k):
            acc = start[s]
            if t > 0:
                acc = 0.0
                for r in range(k):
                    acc += alpha[t - 1, r] * moves[r, s]
            alpha[t, s] = acc * emits[s, seen[t]]
            total += alpha[t, s]
        for s in range(k):
            alpha[t, s] /= total
        scale[t] = total
    value = 0.0
    for t in range(steps):
        value += math.log(scale[t])
    start_b, moves_b, emits_b = np.zeros(k), np.zeros((k, k)), np.zeros_like(emits)
    beta, new, weight = np.ones(k), np.empty(k), np.empty(k)
    for t in range(steps - 1, -1, -1):
        for s in range(k):
            weight[s] = beta[s] * emits[s, seen[t]] / scale[t]
        for r in range(k):
            acc = 0.0
            before = alpha[t - 1, r] if t > 0 else start[r]
            for s in range(k):
                if t > 0:
                    moves_b[r, s] += before * weight[s]
                    acc += moves[r, s] * weight[s]
            new[r] = acc
            emits_b[r, seen[t]] += alpha[t, r] * beta[r] / emits[r, seen[t]]
        if t == 0:
            for s in range(k):
                start_b[s] = weight[s]
        for s in range(k):
            beta[s] = new[s]
    return value, (start_b, moves_b, emits_b)


@compiled
def iir_filter_by_hand(x, b, a):
    n = len(x)
    y = np.zeros(n)
    s = 0.0
    for i in range(n):
        acc = b[0] * x[i]
        if i >= 1:
            acc += b[1] * x[i - 1] - a[0] * y[i - 1]
        if i >= 2:
            acc += b[2] * x[i - 2] - a[1] * y[i - 2]
        y[i] = acc
        s += acc * acc
    x_b = np.zeros(n)
    b0 = b1 = b2 = a0 = a1 = 0.0
    next1 = next2 = 0.0  # adjoints of the two samples behind
    for i in range(n - 1, -1, -1):
        g = 2 * y[i] - a[0] * next1 - a[1] * next2
        x_b[i] = b[0] * g + b[1] * next1 + b[2] * next2
        b0 += g * x[i]
        if i >= 1:
            b1 += g * x[i - 1]
            a0 -= g * y[i - 1]
        if i >= 2:
            b2 += g * x[i - 2]
            a1 -= g * y[i - 2]
        next2, next1 = next1, g
    return s, (x_b, np.array([b0, b1, b2]), np.array([a0, a1]))


@compiled
def two_scans_by_hand(start, decay):
    n = len(start)
    x, y = start.copy(), np.empty(n)
    for i in range(1, n):
        x[i] = start[i] * start[i] + decay * x[i - 1]
    y[n - 1] = x[n - 1]
    for i in range(n - 2, -1, -1):
        y[i] = math.sin(x[i]) + decay * y[i + 1]
    s = 0.0
    for i in range(n):
        s += y[i] * y[i]
    x_b = np.empty(n)
    slope = g = 0.0
    for i in range(n - 1):
        g = 2 * y[i] + decay * g
        slope += g * y[i + 1]
        x_b[i] = g * math.cos(x[i])
    x_b[n - 1] = 2 * y[n - 1] + decay * g
    h = 0.0
    for i in range(n - 1, 0, -1):
        h = x_b[i] + decay * h
        slope += h * x[i - 1]
        x_b[i] = 2 * start[i] * h
    x_b[0] += decay * h
    return s, (x_b, slope)


@compiled
def heat_by_hand(start, k, steps):
    """All states are kept; the adjoint gathers, so that its loop can be vectorised."""
    n = len(start)
    u = np.empty((steps + 1, n))
    u[0] = start
    for t in range(steps):
        for i in range(1, n - 1):
            u[t + 1, i] = u[t, i] + k[i] * (u[t, i - 1] - 2 * u[t, i] + u[t, i + 1]) * (1 + u[t, i])
        u[t + 1, 0], u[t + 1, n - 1] = u[t, 0], u[t, n - 1]
    s = 0.0
    for i in range(n):
        s += u[steps, i] * u[steps, i]
    k_b, g, w = np.zeros(n), 2 * u[steps], np.zeros(n)
    for t in range(steps - 1, -1, -1):
        for i in range(1, n - 1):
            w[i] = g[i] * k[i] * (1 + u[t, i])
            lap = u[t, i - 1] - 2 * u[t, i] + u[t, i + 1]
            k_b[i] += g[i] * lap * (1 + u[t, i])
            g[i] += g[i] * k[i] * lap - 2 * w[i]
        for i in range(1, n - 1):
            g[i] += w[i - 1] + w[i + 1]
        g[0] += w[1]
        g[n - 1] += w[n - 2]
    return s, (g, k_b)


@compiled
def triangular_solve_by_hand(lower, b):
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
    lower_b, g = np.zeros((n, n)), 2 * x
    for i in range(n - 1, -1, -1):
        g[i] /= lower[i, i]
        for j in range(i):
            g[j] -= lower[i, j] * g[i]
            lower_b[i, j] = -g[i] * x[j]
        lower_b[i, i] = -g[i] * x[i]
    return s, (lower_b, g)


BY_HAND = {f.__name__.removesuffix("_by_hand"): f for f in (
    soft_dtw_by_hand, hmm_forward_by_hand, iir_filter_by_hand, two_scans_by_hand, heat_by_hand,
    triangular_solve_by_hand,
)}  # fmt: skip


# ----- PyTorch -----


def _torch_hmm_forward(start: Any, moves: Any, emits: Any, seen: Any) -> Any:
    alpha = start * emits[:, seen[0]]
    likelihood = alpha.sum().log()
    for t in range(1, len(seen)):
        alpha = (alpha / alpha.sum()) @ moves * emits[:, seen[t]]
        likelihood = likelihood + alpha.sum().log()
    return likelihood


def _torch_iir_filter(x: Any, b: Any, a: Any) -> Any:
    y1 = y2 = x1 = x2 = s = 0.0
    for now in x.unbind():
        y = b[0] * now + b[1] * x1 + b[2] * x2 - a[0] * y1 - a[1] * y2
        s, y2, y1, x2, x1 = s + y * y, y1, y, x1, now
    return s


def _torch_lstm(x: Any, w: Any, u: Any, bias: Any) -> Any:
    k = u.shape[1]
    h = c = x.new_zeros(k)
    for row in x:
        i, f, g, o = (w @ row + u @ h + bias).split(k)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
    return (h * h).sum()


def _torch_bodies(pos: Any, vel: Any, mass: Any, dt: Any, steps: int) -> Any:
    for _ in range(steps):
        d = pos[None] - pos[:, None]
        r2 = (d * d).sum(-1) + 0.01
        vel = vel + dt * (mass[None] / (r2 * r2.sqrt()))[..., None].mul(d).sum(1)
        pos = pos + dt * vel
    return (0.5 * mass * (vel * vel).sum(1) + pos[:, 0] * pos[:, 1]).sum()


def _torch_log_sum_exp(x: Any) -> Any:
    return (x.logsumexp(1) * x.new_tensor(range(1, len(x) + 1))).sum()


def _torch_heat(u: Any, k: Any, steps: int) -> Any:
    for _ in range(steps):
        inner = u[1:-1] + k[1:-1] * (u[:-2] - 2 * u[1:-1] + u[2:]) * (1 + u[1:-1])
        u = torch.cat([u[:1], inner, u[-1:]])
    return (u * u).sum()


def _torch_triangular_solve(lower: Any, b: Any) -> Any:
    x = torch.linalg.solve_triangular(lower, b[:, None], upper=False)
    return (x * x).sum()


# ----- JAX -----


def _jax_soft_dtw(costs: Any, gamma: Any) -> Any:
    """By antidiagonals: the n elements of one in a vector."""
    jnp = jax.numpy
    n, m = costs.shape
    i = jnp.arange(n)
    far = 1e10

    def step(carry: Any, k: Any) -> Any:
        before, last = carry  # two antidiagonals
        j = k - i
        diagonal = jnp.where(k == 0, jnp.where(i == 0, 0.0, far), _shifted(before, far))
        least = -jnp.stack([diagonal, _shifted(last, far), last]) / gamma
        soft = -gamma * jax.scipy.special.logsumexp(least, axis=0)
        own = costs[i, jnp.clip(j, 0, m - 1)] + soft
        return (last, jnp.where((j >= 0) & (j < m), own, far)), None

    start = jnp.full(n, far)
    (_, last), _ = jax.lax.scan(step, (start, start), jnp.arange(n + m - 1))
    return last[n - 1]


def _shifted(v: Any, first: float) -> Any:
    return jax.numpy.concatenate([jax.numpy.full(1, first), v[:-1]])


def _jax_hmm_forward(start: Any, moves: Any, emits: Any, seen: Any) -> Any:
    jnp = jax.numpy

    def step(alpha: Any, symbol: Any) -> Any:
        alpha = (alpha / alpha.sum()) @ moves * emits[:, symbol]
        return alpha, jnp.log(alpha.sum())

    first = start * emits[:, seen[0]]
    _, logs = jax.lax.scan(step, first, seen[1:])
    return jnp.log(first.sum()) + logs.sum()


def _jax_iir_filter(x: Any, b: Any, a: Any) -> Any:
    def step(carry: Any, now: Any) -> Any:
        x1, x2, y1, y2 = carry
        y = b[0] * now + b[1] * x1 + b[2] * x2 - a[0] * y1 - a[1] * y2
        return (now, x1, y, y1), y * y

    return jax.lax.scan(step, (0.0, 0.0, 0.0, 0.0), x)[1].sum()


def _jax_lstm(x: Any, w: Any, u: Any, bias: Any) -> Any:
    k = u.shape[1]

    def step(carry: Any, row: Any) -> Any:
        h, c = carry
        z = w @ row + u @ h + bias
        i, f, o = (jax.nn.sigmoid(z[g * k : (g + 1) * k]) for g in (0, 1, 3))
        c = f * c + i * jax.numpy.tanh(z[2 * k : 3 * k])
        return (o * jax.numpy.tanh(c), c), None

    (h, _), _ = jax.lax.scan(step, (jax.numpy.zeros(k), jax.numpy.zeros(k)), x)
    return (h * h).sum()


def _jax_two_scans(x: Any, decay: Any) -> Any:
    def step(y: Any, term: Any) -> Any:
        y = term + decay * y
        return y, y

    first, y = jax.lax.scan(step, x[0], x[1:] ** 2)
    whole = jax.numpy.concatenate([x[:1], y])
    _, z = jax.lax.scan(step, first, jax.numpy.sin(whole[:-1]), reverse=True)
    return (z * z).sum() + first * first


def _jax_heat(u: Any, k: Any, steps: int) -> Any:
    def step(u: Any, _: Any) -> Any:
        inner = u[1:-1] + k[1:-1] * (u[:-2] - 2 * u[1:-1] + u[2:]) * (1 + u[1:-1])
        return u.at[1:-1].set(inner), None

    u, _ = jax.lax.scan(step, u, length=steps)
    return (u * u).sum()


def _versions(library: str) -> dict[str, Any]:
    start = f"_{library}_"
    return {name.removeprefix(start): f for name, f in globals().items() if name.startswith(start)}


def in_torch(name: str, args: tuple[Any, ...], wanted: list[int]) -> Any:
    """A call that gives the value and the gradients in PyTorch; None where it is not written."""
    f = _versions("torch").get(name)
    if f is None or torch is None:
        return None
    given = [torch.tensor(a) if isinstance(a, np.ndarray) else a for a in args]
    for k in wanted:
        given[k] = torch.as_tensor(given[k], dtype=torch.float64).requires_grad_()

    def call() -> Any:
        value = f(*given)
        return value, torch.autograd.grad(value, [given[k] for k in wanted])

    return call


def in_jax(name: str, args: tuple[Any, ...], wanted: list[int]) -> Any:
    """The same in JAX, compiled."""
    f = _versions("jax").get(name)
    if f is None or jax is None:
        return None
    jax.config.update("jax_enable_x64", True)
    whole = tuple(k for k, a in enumerate(args) if isinstance(a, int))
    compiled_by_jax = jax.jit(jax.value_and_grad(f, tuple(wanted)), static_argnums=whole)
    given = [a if k in whole else jax.numpy.asarray(a) for k, a in enumerate(args)]
    return lambda: jax.block_until_ready(compiled_by_jax(*given))
