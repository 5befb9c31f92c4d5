"""Kernels multiply whole vectors: what fills the last ones is zeros, not what was left in memory.

Results would not show it, but denormal numbers, as halves of small whole numbers are, take 50 times as long.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import platform

import numpy as np
import pytest

import adjit as T
from adjit.nn import functional as F
from adjit.schedule.settle import value_of

if platform.machine() != "x86_64" or platform.system() != "Linux":
    pytest.skip("asks glibc for the flags of an x86 processor", allow_module_level=True)

LIBM = ctypes.CDLL(ctypes.util.find_library("m"))
DENORMAL, ALL = 0x02, 0x3F  # flags of the register MXCSR, the last of an environment's words


def met_denormals():
    """Whether this thread has computed with denormal numbers since the last time."""
    words = (ctypes.c_uint32 * 8)()
    LIBM.fegetenv(words)
    found = bool(words[7] & DENORMAL)
    words[7] &= ~ALL
    LIBM.fesetenv(words)
    return found


def drawn(*shape, dtype=np.float32):
    return T.tensor(np.random.default_rng(0).uniform(0.5, 1, shape).astype(dtype))


def both_ways(call, x, weight):
    """What a call gives, and the gradient of its first operand.

    That of a weight may read a few numbers behind the last pixel.
    """
    x = x.clone().requires_grad_()
    y = call(x, weight)
    return [y.detach(), *T.autograd.grad(y, x, T.ones_like(y))]


def convolutions(n, c, o, h, k, **how):
    for dtype in (np.float32, np.float64):
        x, w = drawn(n, c, h, h, dtype=dtype), drawn(o, c, k, k, dtype=dtype)
        yield lambda x=x, w=w: both_ways(lambda x, w: F.conv2d(x, w, **how), x, w)
        turned = drawn(c, o, k, k, dtype=dtype)
        for step in (1, 2):
            yield lambda x=x, w=turned, how={**how, "stride": step}: both_ways(
                lambda x, w: F.conv_transpose2d(x, w, **how), x, w
            )


def products(m, k, n):
    for dtype in (np.float32, np.float64):
        a, b = drawn(m, k, dtype=dtype), drawn(k, n, dtype=dtype)
        for x in (a, a.t().contiguous().t()):
            for y in (b, b.t().contiguous().t()):
                yield lambda x=x, y=y: [x @ y]


def others():
    x = drawn(4, 12, 15, 15)
    yield lambda: both_ways(
        lambda x, w: F.conv2d(x, w, groups=12, padding=1), x, drawn(12, 1, 3, 3)
    )
    yield lambda: both_ways(lambda x, w: F.conv2d(x, w, groups=3, padding=1), x, drawn(9, 4, 3, 3))
    yield lambda: both_ways(F.conv1d, drawn(4, 12, 50), drawn(9, 12, 3))
    yield lambda: both_ways(F.conv3d, drawn(2, 3, 8, 8, 8), drawn(5, 3, 3, 3, 3))
    yield lambda: both_ways(lambda a, b: a @ b, drawn(20, 17, 9), drawn(20, 9, 11))
    yield lambda: [T.linalg.cholesky(drawn(20, 3) @ drawn(20, 3).t() + T.eye(20))]
    yield lambda: [drawn(100, 70) @ drawn(100, 70).t()]


CASES = [
    *convolutions(8, 16, 8, 16, 3, padding=1), *convolutions(8, 3, 10, 28, 5),
    *convolutions(4, 5, 7, 13, 3, padding=1, stride=2), *convolutions(2, 33, 17, 9, 3, padding=1),
    *convolutions(8, 16, 8, 16, 1), *convolutions(1, 1, 6, 28, 5),
    *products(64, 64, 8), *products(7, 33, 5), *products(33, 65, 17), *products(1, 100, 10),
    *products(300, 3, 3), *others(),
]  # fmt: skip


def leave_small_numbers_behind():
    """Fill memory that is going to be used again."""
    kept = []
    for size in range(6, 23):
        for _ in range(6 if size < 20 else 3):
            t = T.full(((1 << size) // 8,), 0x0000000500000005, dtype=T.int64)
            value_of(t._storage)
            kept.append(t)


@pytest.fixture
def one_thread():
    threads = T.get_num_threads()
    T.set_num_threads(1)
    yield
    T.set_num_threads(threads)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_what_was_left_in_memory_is_not_multiplied(case, one_thread):
    for _ in range(2):
        leave_small_numbers_behind()
        met_denormals()
        for t in CASES[case]():
            value_of(t._storage)
        assert not met_denormals()


def test_the_flag_is_told(one_thread):
    x = T.full((8,), 1e-40)
    met_denormals()
    assert (x * 2).sum().item() > 0
    assert met_denormals()
    assert not met_denormals()


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
@pytest.mark.parametrize("shape", [(2, 3, 19, 37), (1, 2, 33, 16), (2, 1, 8, 70)])
def test_large_planes_are_padded_as_numpy_does(mode, shape):
    """Rows longer than a vector, and more of them than a small example has."""
    x = np.random.default_rng(3).standard_normal(shape)
    name = {"edge": "replicate", "wrap": "circular"}.get(mode, mode)
    padded = F.pad(T.tensor(x), (5, 3, 2, 7), mode=name)
    np.testing.assert_array_equal(
        padded.numpy(), np.pad(x, ((0, 0), (0, 0), (2, 7), (5, 3)), mode=mode)
    )


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_padding_to_a_size_of_nothing(mode: str) -> None:
    """Nothing may be left along some of the axes; along all of them only round about."""
    torch = pytest.importorskip("torch")
    for shape, widths in [
        ((1, 1, 3), (-2, -1)), ((1, 1, 3), (-3, 0, 0, 0)), ((1, 1, 2, 3), (-1, -1, -1, -1)),
        ((1, 1, 2, 3), (-3, 0, -2, 0)), ((1, 1, 1, 2, 3), (-3, 0, -2, 0, 0, 0)), ((1, 2, 3), (-4, 0)),
        ((1, 1, 2, 3), (-3, -1, 0, 0)), ((1, 2, 3), (-4, 1)), ((2, 3), (1, -2)),
    ]:  # fmt: skip
        found = []
        for library in (T, torch):
            x = library.ones(shape, requires_grad=True)
            try:
                out = library.nn.functional.pad(x, widths, mode)
            except RuntimeError as e:
                found.append(str(e).replace(" )", ")").replace("overflow", ""))
            else:
                out.sum().backward()
                found.append(tuple(out.shape))
                if library is T and not out.numel():  # where PyTorch's may be what lay in memory
                    assert not x.grad.any()
        if (
            found[1] == "numel: integer multiplication "
        ):  # a size below 0 that PyTorch multiplies first
            assert found[0].startswith("Trying to create tensor with negative dimension")
        else:
            assert found[0] == found[1], (shape, widths)
