"""The scalar functions as a GPU computes them: whole numbers wider than 64 bits, in words."""

from __future__ import annotations

import numpy as np
import pytest
from adjit.kernels.language.intrinsics import Value
from adjit.kernels.math import vector as vector_math
from adjit.kernels.on_gpu import math as gpu_values
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic


class HostValue(gpu_values.GpuValue):
    """A GPU's value in instructions that this machine has too."""

    __slots__ = ()

    def call(self, name, *others):
        return Value.call(self, name, *others)

    def long_fmod(self, other):
        return Value.long_fmod(self, other)


def multiplied_high(builder, name, result, x, y):
    """What `llvm.nvvm.mulhi.ull` gives."""
    assert name == "llvm.nvvm.mulhi.ull"
    wide = ir.IntType(128)
    product = builder.mul(builder.zext(x, wide), builder.zext(y, wide))
    return builder.trunc(builder.lshr(product, wide(64)), result)


def on_host(function):
    """A scalar function as traced for a GPU, compiled for this machine."""
    body, given, _ = function.traced

    @intrinsic
    def traced(typingctx, x):
        def codegen(context, builder, sig, args):
            return body(HostValue(builder, args[0])).ir

        return given(given), codegen

    return njit(types.Array(given, 1, "C")(types.Array(given, 1, "C")))(_over(traced))


def _over(traced):
    def apply(x):
        out = np.empty_like(x)
        for i in range(x.size):
            out[i] = traced(x[i])
        return out

    return apply


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_large_angles_are_reduced_to_the_same_bits(kind, monkeypatch):
    monkeypatch.setattr(gpu_values, "call", multiplied_high)
    k = vector_math.FORMATS[kind is np.float64]
    rng = np.random.default_rng(0)
    largest = np.log2(np.finfo(kind).max)
    x = 2.0 ** rng.uniform(np.log2(k.REDUCE_MAX) - 2, largest, 2000)
    x = np.concatenate([x, -x, [np.inf, -np.inf, np.nan, np.finfo(kind).max, 0.5]]).astype(kind)
    plain = getattr(vector_math, f"sin_{k.SUFFIX}")
    wanted = njit(types.Array(plain.traced[1], 1, "C")(types.Array(plain.traced[1], 1, "C")))(
        _over(plain)
    )(x)
    np.testing.assert_array_equal(on_host(plain)(x), wanted)
