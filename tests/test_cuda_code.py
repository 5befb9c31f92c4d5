"""Machine code of device kernels, compiled without a GPU: no spills, no stray float64, wide access.

A few kernels stand for all here; `bench/cuda_code.py` compiles every one, and CI runs it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from adjit.kernels.ops import batch_norm, matmul, pool
from cuda_kernels import kernels_of, products, sorts

import adjit
from adjit.cuda import inspection
from adjit.graph.registry import registry
from adjit.schedule.codegen import units_cuda
from adjit.schedule.jit import nvidia
from adjit.schedule.planning.recipe import DeviceSource

sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))
from cuda_code import faults

compiled = pytest.mark.skipif(
    not (nvidia.is_installed() and inspection.has_tools()),
    reason="numba-cuda, cuobjdump and nvdisasm are not installed: pip install 'adjit[cuda-tools]'",
)


@compiled
@pytest.mark.parametrize("cc", [(8, 0), (9, 0)], ids=["sm_80", "sm_90"])
@pytest.mark.parametrize("name", ["mul", "sin", "gelu"])
def test_a_kernel_has_wide_access_and_nothing_that_is_slow(name, cc):
    for source in kernels_of(registry[name], adjit.float32).values():
        code = inspection.code_of(source, cc)
        assert not faults(source, code), source.text
        assert code.count("LDG.E.128") >= 1
        assert code.count("STG.E.128") >= 1


@compiled
@pytest.mark.parametrize("name", ["floor_divide", "remainder"])
def test_whole_numbers_are_divided_as_such(name):
    for source in kernels_of(registry[name], adjit.int64).values():
        assert not faults(source, inspection.code_of(source, (9, 0))), source.text


def product_code(name):
    """The machine code of a product, without spills."""
    code = inspection.code_of(products()[name], (9, 0))
    assert code.spills == 0
    assert code.stack <= 8 * (1 + 6 + len(matmul.PRODUCT))  # elements, operands, words of the row
    return code


@compiled
def test_a_product_multiplies_from_registers():
    """64 fused multiply-adds for 4 reads of shared memory, wide access on both ends."""
    code = product_code("product_by_large_tiles float32")
    assert code.registers <= 168
    assert code.count("FFMA") == 16 * code.count("LDS.128") == 64
    assert code.count("LDG.E.128") == 4  # the first step, before any multiplication, is apart
    assert code.count("STG.E.128") >= 16
    assert not code.double


@compiled
@pytest.mark.parametrize("name", ["product", "product_and_bias"])
def test_a_product_of_reduced_precision_is_made_by_tensor_cores(name):
    code = product_code(f"{name}_on_tensor_cores float32")
    assert code.count("HMMA.1688.F32.TF32") == 16
    assert not code.count("FFMA")
    code = product_code(f"{name}_on_tensor_cores_in_bf16 float32")
    assert code.count("HMMA.16816.F32.BF16") == 16
    assert code.count("F2FP.BF16") >= 8  # two numbers at once, twice as deep
    assert not code.count("FFMA")


@compiled
@pytest.mark.parametrize("cc", [(8, 0), (9, 0)], ids=["sm_80", "sm_90"])
def test_what_sorts_by_blocks_stays_in_registers_and_shared_memory(cc):
    for source in sorts().values():
        assert not faults(source, inspection.code_of(source, cc)), source.name


@compiled
@pytest.mark.parametrize("kernel", [pool.max_values, pool.sum_windows], ids=["max", "sum"])
def test_what_a_row_in_memory_says_becomes_values(kernel):
    """Read where it is needed, behind stores, it sent nvJitLink into copies of loops without end."""
    (side,) = kernel.devices
    source = units_cuda.by_units(kernel, {"T": "float32"}, 26, by_table=True, side=side)
    code = inspection.code_of(source, (8, 0))
    assert not code.spills
    assert sum(code.instructions.values()) < 4000


@compiled
def test_statistics_of_float32_need_no_float64():
    """The CPU joins them in float64, of which a GPU has few units."""
    bind = {"T": "float32", "A": "float64"}
    source = units_cuda.by_units(batch_norm.moments_of_planes, bind, 13)
    assert not faults(source, inspection.code_of(source, (8, 0)))


@compiled
def test_products_and_sums_are_not_contracted():
    (source,) = [
        s for n, s in kernels_of(registry["addcmul"], adjit.float32).items() if "vjp" not in n
    ]
    code = inspection.code_of(source, (9, 0))
    assert not code.count("FFMA")
    assert code.count("FMUL") >= 4


@compiled
def test_a_fault_is_found():
    text = """
from adjit.kernels.language.device import first_unit

def kernel(x, n):
    x[first_unit()] = x[first_unit()] * 0.1
"""
    source = DeviceSource("kernel", text, ("*float32", "int32"), 256, 256, "kernel")
    assert "float64" in faults(source, inspection.code_of(source, (9, 0)))[0]


@compiled
def test_sums_in_float64_are_a_fault_where_the_operands_are_float32():
    text = """
from numpy import float32, float64
from adjit.kernels.language.device import first_unit

A = float64
T = float32

def kernel(x, n):
    x[first_unit()] = T(A(x[0]) * A(x[n]) + A(x[first_unit()]))
"""
    source = DeviceSource("kernel", text, ("*float32", "int32"), 256, 256, "kernel")
    assert "float64" in faults(source, inspection.code_of(source, (9, 0)))[0]


@compiled
def test_registers_that_are_spilled_are_found():
    """300 numbers are read before the first is written: a thread has 255 registers."""
    many = range(300)
    lines = [f"    v{k} = x[{k} * n]" for k in many] + [
        f"    x[{k} * n] = v{299 - k}" for k in many
    ]
    text = "\n".join(["def kernel(x, n):", *lines])
    source = DeviceSource("kernel", text, ("*float32", "int32"), 256, 256, "kernel")
    assert "registers spilled" in faults(source, inspection.code_of(source, (9, 0)))[0]


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(nvidia.importlib.util, "find_spec", lambda name: None)
    nvidia.check.cache_clear()
    try:
        with pytest.raises(
            nvidia.ToolkitMissing, match=r"numba-cuda; .*pip install 'adjit\[cuda13\]'"
        ):
            nvidia.check()
        assert not nvidia.is_installed()
    finally:
        nvidia.check.cache_clear()
