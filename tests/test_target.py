"""The compiler of kernels: what it makes, and that Numba's own stays as it was."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import warnings
from types import FunctionType

import numpy as np
import pytest
from adjit.kernels.language.abi import SIGNATURE, at, helper, words
from adjit.kernels.language.target import compile_function, load
from adjit.kernels.math.vector import exp_f32
from numba import njit
from numba.core.errors import TypingError
from numpy import float32, float64

import adjit
from adjit.schedule.codegen import loops
from adjit.schedule.codegen.body import VECTOR_MATH, Pasted


@helper
def smallest(x, n):
    least = x[0]
    for i in range(n):
        least = min(least, x[i])
    return least


def least_of(args, start, stop):
    p = words(args)
    at(p[1], float64)[0] = smallest(at(p[0], float64), stop)


def run(function, *arrays):
    compiled = compile_function(function, SIGNATURE)
    row = np.array([a.ctypes.data for a in arrays], np.int64)
    prototype = ctypes.CFUNCTYPE(None, *3 * [ctypes.c_int64])
    prototype(load(compiled.symbol, compiled.code))(row.ctypes.data, 0, arrays[0].size)


def test_helpers_and_numbas_own_functions_become_part_of_the_kernel():
    x, out = np.array([3.0, -1.5, 2.0]), np.zeros(1)
    run(least_of, x, out)
    assert out[0] == -1.5
    compiled = compile_function(least_of, SIGNATURE)
    defined = [f.name for f in compiled.library._final_module.functions if not f.is_declaration]
    assert defined == [compiled.symbol]
    assert compiled.external == ()


def test_the_filters_of_warnings_stay_as_they_are(monkeypatch):
    """They are the whole process's, and kernels are compiled in a thread while the program runs on."""

    class Refused:
        def __init__(self, **options):
            raise RuntimeError("a compiling thread changes the filters")

    def doubled(args, start, stop):
        x = at(words(args)[0], float64)
        for i in range(start, stop):
            x[i] = 2 * x[i]

    x = np.ones(3)
    with monkeypatch.context() as patch:
        patch.setattr(warnings, "catch_warnings", Refused)
        run(doubled, x)
    assert x.tolist() == [2.0, 2.0, 2.0]


def test_what_is_no_number_is_refused():
    def strings(args, start, stop):
        print("kernels say nothing")

    with pytest.raises((TypingError, NotImplementedError)):
        compile_function(strings, SIGNATURE)


def test_results_are_rounded_to_their_type():
    def thirds(args, start, stop):
        x = at(words(args)[0], float32)
        for i in range(start, stop):
            x[i] = float32(x[i]) / float32(3)

    x = np.arange(100, dtype=np.float32)
    wanted = x / np.float32(3)
    run(thirds, x)
    np.testing.assert_array_equal(x, wanted)


def exponentials(args, start, stop):
    p = words(args)
    x, out = at(p[0], float32), at(p[1], float32)
    for i in range(start, stop):
        out[i] = exp_f32(x[i])


def test_a_loop_works_on_as_many_vectors_at_once_as_its_module_says():
    scope = {name: globals()[name] for name in ("at", "words", "float32", "exp_f32")}
    found = {}
    for count in (1, 2, 4):
        kernel = FunctionType(exponentials.__code__, scope | {"INTERLEAVED": count}, "exponentials")
        code = str(compile_function(kernel, SIGNATURE).library._final_module)
        widths = re.findall(r"call .*<(\d+) x float> @llvm\.fma", code)
        found[count] = widths.count(max(widths, key=int))
    assert found[1] >= 5
    assert found[2] == 2 * found[1]
    assert found[4] == 4 * found[1]


def test_the_scheduler_asks_for_that_in_flat_loops_of_a_few_functions():
    x, y = adjit.rand(3, 100), adjit.rand(100)
    asked = "import INTERLEAVED"
    assert asked in x.exp().kernels()
    assert asked in (x * 2).tanh().sum().kernels()
    assert asked not in (x + y * x).kernels()
    assert asked not in x[:, :50].exp().kernels()
    assert asked not in x.log().kernels()  # it asks whether one is 0, and does not mix vectors
    names = ("exp_f32", "sigmoid_f32", "tanh_f32", "expm1_f32", "erf_f32")
    lines = [f"y = {name}(x)" for name in names]
    assert loops.interleaved(Pasted(lines[:4], dict.fromkeys(names[:4], VECTOR_MATH)))
    assert not loops.interleaved(Pasted(lines, dict.fromkeys(names, VECTOR_MATH)))


def test_functions_of_users_are_compiled_as_ever():
    @njit
    def spread(x):
        return max(x[0], x[1]) - min(x[0], x[1]) + np.linalg.norm(x)

    run(least_of, np.array([1.0, 2.0]), np.zeros(1))
    assert spread(np.array([3.0, 4.0])) == 6


def printed(script, cache):
    """What a new process prints, whose kernels are all compiled."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"ADJIT_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_a_kernel_does_not_load_what_functions_of_users_may_call(tmp_path):
    script = (
        "import sys, adjit\n"
        "x = adjit.linspace(0, 1, 7, requires_grad=True)\n"
        "(x.sin() * x).sum().backward()\n"
        "assert x.grad.isfinite().all()\n"
        "print([m for m in ('numba.np.linalg', 'numba.typed.dictimpl') if m in sys.modules])\n"
    )
    assert printed(script, tmp_path) == "[]\n"
    assert any(tmp_path.glob("sin*.o"))


def test_kernels_do_not_depend_on_the_order_in_which_numba_was_imported(tmp_path):
    """Its tuples before its sequences: then a constant index's rule calls itself for ever."""
    script = (
        "import numba.cpython.tupleobj\nimport adjit\nprint(adjit.ones(100_000).sum().item())\n"
    )
    assert printed(script, tmp_path) == "100000.0\n"
    assert any(tmp_path.glob("sum*.o"))
