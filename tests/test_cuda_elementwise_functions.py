"""Users' elementwise functions as device kernels, in the simulator: the bits of the CPU's kernels."""

import math

import numpy as np
from on_simulator import check

import adjit

RNG = np.random.default_rng(3)


@adjit.elementwise
def kepler(M, e, *, rounds=20):
    E = M
    for _ in range(rounds):
        step = (E - e * math.sin(E) - M) / (1.0 - e * math.cos(E))
        E -= step
        if abs(step) < 1e-7:
            return E
    return E


@adjit.elementwise
def several(x, n, flag):
    y = 0
    while y < n:
        y += 2
        if y % 5 == 3:
            continue
        x = x * 0.9 if flag else math.exp(-x)
    return x, y // 3, x > 0.5


def test_branches_and_loops():
    for dtype in (adjit.float32, adjit.float64):
        M = adjit.tensor(RNG.uniform(0.1, 3, 9)).to(dtype)
        check(lambda M=M: kepler(M, 0.3, rounds=7))
    e = adjit.tensor(RNG.uniform(0.1, 0.6, (3, 1)), dtype=adjit.float32)
    check(lambda: kepler(adjit.tensor(RNG.random(4), dtype=adjit.float32), e))


def test_several_results_of_all_kinds():
    x = adjit.tensor(RNG.random(7), dtype=adjit.float32)
    n, flag = (
        adjit.tensor([0, 1, 2, 3, 8, 9, 11]),
        adjit.tensor([True, False, True, True, False, True, False]),
    )
    check(lambda: several(x, n, flag))
    check(lambda: several(x, 2**40 % 13, True))


def test_gradients():
    M = adjit.tensor(RNG.uniform(0.1, 3, 5), dtype=adjit.float32, requires_grad=True)
    e = adjit.tensor(RNG.uniform(0.1, 0.6, 5), dtype=adjit.float32, requires_grad=True)
    check(lambda: adjit.autograd.grad(kepler(M, e).sum(), (M, e)))
