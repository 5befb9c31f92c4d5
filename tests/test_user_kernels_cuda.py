"""Users' kernels on a GPU: device kernels in the simulator beside the CPU's results, and their machine code.

None of this has run on a GPU.
"""

from __future__ import annotations

import itertools
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import stub_driver
from numba import njit, prange

import adjit
from adjit import config
from adjit.cuda import inspection
from adjit.schedule.jit import nvidia
from adjit.user_kernels import NotDifferentiable, gpu_run

sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))
from cuda_code import faults

compiled = pytest.mark.skipif(
    not (nvidia.is_installed() and inspection.has_tools()),
    reason="numba-cuda, cuobjdump and nvdisasm are not installed: pip install 'adjit[cuda-tools]'",
)
RNG = np.random.default_rng(5)


# ----- kernels -----


def rowwise(x, w, a):
    """Sums over the loop, an array all rounds read, a number all read, a tape in windows, a local array."""
    n, m = x.shape
    y = np.empty(n)
    s = 0.0
    for i in prange(n):
        acc = 0.0
        for j in range(m):
            acc += math.tanh(x[i, j] * w[j]) * a
        y[i] = math.exp(-acc) * w[0]
        s += y[i] * acc
    return s + np.sum(y * y)


def newton(M, e):
    """Loops of lengths that data decide, with a break: a running top of the tape."""
    E = np.empty_like(M)
    for i in prange(len(M)):
        x = M[i]
        for _ in range(30):
            step = (x - e * math.sin(x) - M[i]) / (1.0 - e * math.cos(x))
            x -= step
            if abs(step) < 1e-12:
                break
        E[i] = x
    return E


def overwritten(x, w, a):
    """An argument that is written, several times; steps of −2; elements between the loops."""
    for i in prange(len(x)):
        for _ in range(3):
            x[i] = math.sin(x[i] * a) + w[(i + 1) % len(w)] * x[i]
        x[i] *= w[i % 2]
    t = 1.0
    for i in prange(len(x) - 1, 0, -2):
        if x[i] > 0.1:
            t -= w[i % 3] * a
        for j in range(2):
            t += x[i] * j
    x[0] = x[0] * t
    return np.sum(x * x)


def filters(x, b, gain):
    """A row of its own for the state of each round, whole-array statements around."""
    n, m = x.shape
    y = np.zeros((n, m))
    state = np.zeros((n, 2))
    for i in prange(n):
        for k in range(m):
            if k >= 1:
                state[i, 0] = 0.5 * state[i, 0] + b[k % 3] * x[i, k - 1]
            state[i, 1] = max(state[i, 1], state[i, 0] * gain)
            y[i, k] = state[i, 0] - state[i, 1] ** 2 + x[i, -1]
    return y * gain, gain * np.sum(state)


def nested(x, n):
    """Loops in loops with a `while`, whole numbers, branches."""
    y = np.zeros(len(x))
    for i in prange(len(x)):
        total = x[i]
        for j in range(n + i % 2):
            k = 0
            v = total
            while k < j + 1 and v < 3.0:
                v = v + math.exp(-v) * x[i] ** 2
                k += 1
            total = total + (v if k % 2 == 0 else -v) / (j + 1)
        y[i] = total
    return y


def counted(x, flags, places):
    """Arrays of truth values and of whole numbers."""
    y = np.zeros(len(x))
    hits = np.zeros(len(x), np.int64)
    for i in prange(len(x)):
        if flags[i]:
            y[i] = x[places[i]] * 2 + places[i] // 2
            hits[i] = places[i] % 3
        else:
            y[i] = math.floor(x[i] * 4) / 3 + np.minimum(x[i], x[places[i]])
    return y, hits


def solved(A, b):
    """Arrays that rounds make: a copy that is eliminated, views, whole-array statements."""
    n, m = b.shape
    x = np.empty((n, m))
    for i in prange(n):
        M = A * (1.0 + b[i, 0])
        y = b[i] * 2.0
        for k in range(m):
            for r in range(k + 1, m):
                f = M[r, k] / M[k, k]
                for c in range(k, m):
                    M[r, c] -= f * M[k, c]
                y[r] -= f * y[k]
        for k in range(m - 1, -1, -1):
            s = y[k]
            for c in range(k + 1, m):
                s -= M[k, c] * x[i, c]
            x[i, k] = s / M[k, k]
    return x


def tensors(args, device, wrt):
    return [
        adjit.tensor(a, device=device, requires_grad=k in wrt) if isinstance(a, np.ndarray) else a
        for k, a in enumerate(args)
    ]


CASES = {
    "rowwise": (rowwise, (RNG.uniform(-1, 1, (7, 5)), RNG.uniform(0.5, 1, 5), 0.7), (0, 1)),
    "newton": (newton, (RNG.uniform(0.1, 3, 9), 0.3), (0,)),
    "overwritten": (overwritten, (RNG.uniform(0.1, 1, 11), RNG.uniform(0.5, 1, 4), 0.4), (1,)),
    "filters": (filters, (RNG.uniform(-1, 1, (5, 4)), RNG.uniform(0.5, 1, 3), 1.3), (0, 1)),
    "nested": (nested, (RNG.uniform(0.2, 1, 6), 3), (0,)),
    "solved": (solved, (RNG.uniform(-1, 1, (3, 3)) + 3 * np.eye(3), RNG.uniform(-1, 1, (5, 3))), (0, 1)),
    "counted": (
        counted,
        (RNG.uniform(-1, 1, 6), RNG.random(6) > 0.4, RNG.integers(0, 6, 6)),
        (0,),
    ),
}


def run(f, args, wrt, device):
    """The results, the tensors as they are afterwards, and the gradients of the arguments of `wrt`."""
    # Without parallel=True: on the CPU its rounds run in order, which takes less time to compile.
    kernel = adjit.kernel(njit(f) if device == "cpu" else f)
    given = tensors(args, device, wrt)
    results = kernel(*given)
    results = results if isinstance(results, tuple) else (results,)
    floats = [r for r in results if isinstance(r, adjit.Tensor) and r.is_floating_point()]
    total = sum((r * (1 + k)).sum() for k, r in enumerate(floats))
    found = [*results, *given]
    if wrt:
        found += adjit.autograd.grad(total, [given[k] for k in wrt])
    return [v.detach().cpu().numpy() if isinstance(v, adjit.Tensor) else v for v in found]


def compare(f, args, wrt, rtol=1e-12):
    wanted = run(f, args, wrt, "cpu")
    with stub_driver.installed(simulated=True):
        found = run(f, args, wrt, "cuda")
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_the_cpu(name):
    compare(*CASES[name])


@pytest.mark.parametrize("name", ["rowwise", "filters", "newton"])
def test_fewer_threads_than_rounds(name, monkeypatch):
    monkeypatch.setattr(gpu_run, "MOST_THREADS", 3)
    compare(*CASES[name])


@pytest.mark.parametrize("name", ["rowwise", "filters", "nested", "overwritten"])
def test_float32_is_computed_as_numba_does(name):
    f, args, wrt = CASES[name]
    single = [a.astype(np.float32) if isinstance(a, np.ndarray) else a for a in args]
    compare(f, single, wrt, rtol=3e-5)
