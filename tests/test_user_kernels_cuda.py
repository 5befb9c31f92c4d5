"""Users' kernels on a GPU: device kernels in the simulator beside the CPU's results, and their machine code.

They ran on an H200 once, where all passed.
"""

from __future__ import annotations

import ast
import functools
import inspect
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import stub_driver
from numba import njit, prange

import adjit
from adjit import config, driver
from adjit.cuda import inspection, simulator
from adjit.schedule.jit import nvidia
from adjit.user_kernels import NotDifferentiable, generated, gpu_files, gpu_run

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


def chosen(x, w):
    """Between the loops: roots, maxima, expressions by a condition, a power."""
    s = 0.0
    for i in prange(len(x)):
        s += x[i] * w[0]
    r = math.sqrt(s * s + w[1])
    t = max(s, w[1]) / r + min(r, w[2]) * abs(w[1])
    t = s ** w[1] if t > w[0] else t * np.maximum(r, w[0])
    u = math.sqrt(x[0] - x[0]) * t if t < 0 else t / w[2]
    return x * u, t


def melted(p, f, window=None):
    """Whole-array statements of rounds, whose shapes are checked, and an argument that is None."""
    s = 0.0
    for k in prange(p.shape[1]):
        snow = p[:, k] * f[:, k]
        if window is not None:
            snow = snow * window
        s += (snow * snow).sum()
    return s


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
    "solved": (
        solved,
        (RNG.uniform(-1, 1, (3, 3)) + 3 * np.eye(3), RNG.uniform(-1, 1, (5, 3))),
        (0, 1),
    ),
    "chosen": (chosen, (RNG.uniform(0.1, 1, 5), np.array([0.3, 1.7, 0.9])), (0, 1)),
    "melted": (melted, (RNG.uniform(-1, 1, (3, 7)), RNG.uniform(-1, 1, (3, 7))), (0, 1)),
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


def names_imported(header):
    text = re.sub(r"\{\w+!?\w?\}", "None", header)
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    return {alias.name for node in found for alias in node.names}


def test_the_host_of_a_gpu_has_all_that_a_way_back_calls():
    of_cpu, of_gpu = names_imported(generated._HEADER), names_imported(gpu_files._HEADER)
    assert {"over", "rest", "pick", "trigamma"} <= of_cpu
    # Arrays there are no memory of the host, nothing is put aside where rounds are shared by threads, gradients
    # are the library's arrays, and nothing is computed ahead.
    unused = {"njit", "close_beside", "zeros_as", "room_f4", "room_f8"}
    on_tape = {name for name in of_cpu if re.match("(array|zeros)_[bfi]", name)}
    assert of_cpu - of_gpu == unused | on_tape


@pytest.mark.parametrize("name", ["rowwise", "filters", "newton"])
def test_fewer_threads_than_rounds(name, monkeypatch):
    monkeypatch.setattr(gpu_run, "MOST_THREADS", 3)
    compare(*CASES[name])


@pytest.mark.parametrize("name", ["newton", "solved"])
def test_threads_in_the_opposite_order(name, monkeypatch):
    monkeypatch.setattr(simulator, "run", functools.partial(simulator.run, reverse=True))
    compare(*CASES[name])


def test_tapes_of_threads_are_apart_and_long_enough(monkeypatch):
    """Which the simulator cannot show: there a thread ends before the next one begins."""
    made, sources = [], []
    new, source = gpu_run.new_array, gpu_run.LoopKernel.source
    monkeypatch.setattr(gpu_run, "new_array", lambda *a: made.append(tuple(a[0])) or new(*a))
    monkeypatch.setattr(
        gpu_run.LoopKernel, "source", lambda *a: sources.append(source(*a)) or sources[-1]
    )
    f, args, wrt = CASES["rowwise"]
    with stub_driver.installed(simulated=True):
        run(f, args, wrt, "cuda")
    assert (7 * 5,) in made  # a window of 5 words for each of 7 rounds
    scope = {}
    text = next(s.text for s in sources if s.name.endswith("_back") and "def word_k" in s.text)
    exec(re.search(r"def word_k.*?\n\n", text, re.DOTALL)[0], scope)
    assert "base_k = memory_k + thread_k * 8" in text
    places = [8 * k + scope["word_k"](byte, 7) for k in range(7) for byte in range(40)]
    assert sorted(places) == list(range(7 * 40))


@pytest.mark.gpu
@pytest.mark.skipif(bool(driver.reason()), reason=f"needs a GPU: {driver.reason()}")
@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_on_a_gpu(name, deterministic):
    f, args, wrt = CASES[name]
    adjit.use_deterministic_algorithms(deterministic)
    try:
        pairs = zip(run(f, args, wrt, "cuda"), run(f, args, wrt, "cpu"), strict=True)
    finally:
        adjit.use_deterministic_algorithms(True)
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", ["rowwise", "filters", "nested", "solved"])
def test_float32_is_computed_as_numba_does(name):
    f, args, wrt = CASES[name]
    single = [a.astype(np.float32) if isinstance(a, np.ndarray) else a for a in args]
    compare(f, single, wrt, rtol=3e-5)


# ----- adding to what several rounds read -----


def picked(x, table, places):
    y = np.empty(len(x))
    for i in prange(len(x)):
        y[i] = x[i] * table[places[i]] - table[0]
    return y


PICKED = (picked, (RNG.random(9), RNG.random(4), RNG.integers(0, 4, 9)), (0, 1))


def test_atomics_where_bits_may_differ():
    texts = []
    source = gpu_run.LoopKernel.source
    adjit.use_deterministic_algorithms(False)
    try:
        assert not adjit.are_deterministic_algorithms_enabled()
        assert adjit.get_deterministic_debug_mode() == 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                gpu_run.LoopKernel, "source", lambda k, how: texts.append(how) or source(k, how)
            )
            compare(*PICKED)
    finally:
        adjit.use_deterministic_algorithms(True)
    assert "atomic" in texts
    assert "rows" not in texts
    assert adjit.are_deterministic_algorithms_enabled()
    assert adjit.get_deterministic_debug_mode() == 2


def test_little_memory_for_what_threads_have_each(monkeypatch):
    monkeypatch.setattr(gpu_run, "MOST_BYTES", 64)  # of the table's adjoint two threads have one
    with pytest.warns(RuntimeWarning, match="only 2 of 9 rounds at once"):
        compare(*PICKED)


# ----- what there is not -----


def in_order(x):
    s = 0.0
    for i in range(len(x)):
        s += x[i]
    return s


def steps(u, n):
    v = np.zeros_like(u)
    for _ in range(n):
        for i in prange(len(u)):
            v[i] = u[i] * 0.5
    for i in prange(len(u)):
        v[i] += u[i]
    return v


def largest(x):
    y = np.empty(len(x))
    for i in prange(len(x)):
        y[i] = x[i] ** 2
    return np.max(y)


def races(x):
    for i in prange(1, len(x)):
        x[i] = x[i - 1] * 2.0
    return x


def doubled(x):
    return x * 2.0


def first(x):
    return x[0] * 2.0


@pytest.mark.parametrize(
    ("f", "args", "error", "message"),
    [
        (in_order, (), RuntimeError, r"a loop of in_order that is in no prange cannot run on a GPU\n"),
        (steps, (3,), RuntimeError, "steps that follow each other are calls of a kernel that makes one"),
        (largest, (), RuntimeError, r"this statement of largest cannot run on a GPU\n    \d+: return np.max"),
        (races, (), NotDifferentiable, "several rounds may reach the same elements of `x`"),
        (first, (), RuntimeError, "none of its loops is marked as independent"),
    ],
)  # fmt: skip
def test_what_cannot_run_there_says_what_to_do(f, args, error, message):
    with stub_driver.installed(simulated=True), pytest.raises(error, match=message):
        adjit.kernel(f)(adjit.ones(3, dtype=adjit.float64, device="cuda"), *args)


def test_arguments_on_two_devices_and_transforms():
    kernel = adjit.kernel(picked)
    with stub_driver.installed(simulated=True):
        x, table = (adjit.ones(3, device="cuda", requires_grad=True) for _ in range(2))
        places = adjit.zeros(3, dtype=adjit.int64, device="cuda")
        with pytest.raises(RuntimeError, match="must lie on one device, found cpu and cuda:0"):
            kernel(x, table.cpu(), places)
        with pytest.raises(RuntimeError, match="given no array on a GPU"):
            adjit.kernel(doubled)(x.sum())
        (slope,) = adjit.autograd.grad(kernel(x, table, places).sum(), x, create_graph=True)
        with pytest.raises(
            RuntimeError, match="picked has no forward mode and no double backward on a GPU"
        ):
            slope.sum().backward()
        with pytest.raises(RuntimeError, match="picked has no vmap on a GPU: give it the"):
            adjit.func.vmap(lambda a: kernel(a, table, places))(adjit.ones(2, 3, device="cuda"))


# ----- other ways to call -----


def test_checks_of_rounds_are_raised():
    with stub_driver.installed(simulated=True):
        given = tensors((np.ones((3, 4)), np.ones((2, 4))), "cuda", (0,))
        with pytest.raises(ValueError, match="shapes of arrays do not agree"):
            adjit.kernel(melted)(*given)


def test_an_njit_function_numbers_on_the_gpu_and_no_rounds():
    kernel = adjit.kernel(njit(newton))
    M = RNG.uniform(0.1, 3, 4)
    wanted = newton(M, 0.25)
    with stub_driver.installed(simulated=True):
        e = adjit.tensor(0.25, dtype=adjit.float64, device="cuda", requires_grad=True)
        E = kernel(adjit.tensor(M, device="cuda").flip(0).flip(0), e)
        (slope,) = adjit.autograd.grad(E.sum(), e)
        found, slope = E.detach().cpu().numpy(), slope.cpu().item()
        assert "LoopKernel(" in kernel.source(adjit.tensor(M, device="cuda"), 0.25)
        assert "kept: " in kernel.explain(adjit.tensor(M, device="cuda"), 0.25)
        empty = adjit.zeros(0, dtype=adjit.float64, device="cuda", requires_grad=True)
        none = kernel(empty, 0.3)
        none.sum().backward()
        assert none.shape == empty.grad.shape == (0,)
    np.testing.assert_allclose(found, wanted, rtol=1e-14)
    by_differences = (newton(M, 0.25 + 1e-6).sum() - newton(M, 0.25 - 1e-6).sum()) / 2e-6
    assert slope == pytest.approx(by_differences, rel=1e-6)


def out_of_range(x, places):
    y = np.zeros(len(x))
    for i in prange(len(x)):
        y[i] = x[places[i]] * 2.0
    return y


def test_indices_are_checked_on_demand(monkeypatch):
    monkeypatch.setattr(config, "DEBUG", True)
    kernel = adjit.kernel(out_of_range)
    with stub_driver.installed(simulated=True):
        x = adjit.ones(3, dtype=adjit.float64, device="cuda", requires_grad=True)
        kernel(x, adjit.tensor([0, -1, 2], device="cuda")).sum().backward()
        assert x.grad.tolist() == [2.0, 0.0, 4.0]
        with pytest.raises(
            IndexError, match=r"x\[places\[i\]\] \* 2.0: an index of x is out of range"
        ):
            kernel(x, adjit.tensor([0, 3, 2], device="cuda"))


# ----- machine code -----


def device_kernels(f, args):
    """All kernels of a function and its way back, for arguments like these."""
    given = inspect.signature(f).bind(*args)
    given.apply_defaults()  # as a call does
    args = given.args
    with stub_driver.installed(simulated=True):
        file = adjit.kernel(f).code_for([
            gpu_run.GpuArray(adjit.tensor(a, device="cuda")) if isinstance(a, np.ndarray) else a for a in args
        ]).file  # fmt: skip
    loops = [v for v in vars(file.module).values() if isinstance(v, gpu_run.LoopKernel)]
    return [loop.source(adds) for loop in loops for adds in loop.texts]


# Each case for one of the two, some for both.
COMPILED = [(name, (8 + k % 2, 0)) for k, name in enumerate([*CASES, "picked"])]
COMPILED += [("rowwise", (9, 0)), ("picked", (9, 0)), ("newton", (8, 0))]


@compiled
@pytest.mark.parametrize(
    ("name", "cc"), COMPILED, ids=lambda v: v if isinstance(v, str) else f"sm_{v[0]}0"
)
def test_kernels_are_compiled_without_stack_and_spilled_registers(name, cc):
    f, args, _ = CASES.get(name, PICKED)
    atomics = 0
    for source in device_kernels(f, args):
        code = inspection.code_of(source, cc)
        assert not faults(source, code), source.text
        atomics += any(re.match(r"(RED|ATOM)G?\.E\.ADD\.F", name) for name in code.instructions)
    if name in ("picked", "rowwise", "filters"):
        assert atomics


@compiled
def test_fills_and_sums_of_parts_are_compiled():
    for kernel in [*gpu_run.FILLS.values(), *gpu_run.ADDS.values()]:
        source = kernel.source("plain")
        assert not faults(source, inspection.code_of(source, (9, 0)))
