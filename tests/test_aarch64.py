"""What is compiled for ARM: machine code of aarch64 with NEON, looked at; no such processor is needed.

A few programs, tiles of float32 and two functions of the interpreter's part stand for all here;
ADJIT_EVERY_KERNEL=1 compiles every kernel.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import pytest
from adjit.kernels.language.processor import FUSED
from cuda_kernels import kernels_of_the_room
from on_aarch64 import PROCESSOR, TILES, TRIPLE, foreign, look

HERE = Path(__file__).parent
EVERY = os.environ.get("ADJIT_EVERY_KERNEL", "0") != "0"
pytestmark = [pytest.mark.timeout(5000 if EVERY else 900), pytest.mark.in_turn(2)]


@pytest.fixture(scope="module")
def all_told():
    """What `on_aarch64.py` says."""
    done = subprocess.run(
        [sys.executable, "on_aarch64.py", *["all"] * EVERY], cwd=HERE, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def told(all_told):
    """What was compiled."""
    return all_told["look"]


def named(told, prefix):
    found = [unit for name, unit in told["units"].items() if name.startswith(prefix)]
    assert found, f"nothing is called {prefix}"
    return found


def test_the_processor_is_taken_for_what_it_is(told):
    assert told["facts"]["processor"] == f"{PROCESSOR} (aarch64), kernels for native"
    assert told["facts"]["features"] == "neon"
    assert (told["vector_bytes"], told["fused"]) == (16, True)


def test_results_have_the_bits_of_this_processor(all_told):
    """Kernels run in an emulator. Without fused multiply-adds here, those that have them differ."""
    if "run" not in all_told:
        pytest.skip("there is no emulator: pip install unicorn")
    assert len(all_told["run"]) >= 4
    fits = {name for name in all_told["run"] if FUSED or "convolution" not in name}
    assert {k: all_told["run"][k] for k in fits} == {k: all_told["texts"]["bits"][k] for k in fits}


def test_every_kernel_is_compiled_and_has_no_faults(told):
    assert told["faults"] == []
    assert told["totals"]["units"] > (500 if EVERY else 40)
    if EVERY:
        compiled = "\n".join(told["units"])
        left_out = {
            function.__name__
            for function, _ in kernels_of_the_room()
            if not re.search(rf"^{function.__name__}_[0-9a-f]{{20}}$", compiled, re.MULTILINE)
        }
        assert left_out <= {"product", "product_and_bias"}, "the CPU's are among the tiles"


@pytest.mark.parametrize(
    "kernel", ["fused_exp", "fused_pow", "fused_lgamma", "rows_mul_add_tanh_exp"]
)
def test_functions_of_floats_are_computed_on_whole_vectors(told, kernel):
    for unit in named(told, kernel):
        assert unit["of_floats"] > unit["instructions"] / 10, unit


def test_sums_of_floats_are_computed_on_whole_vectors(told):
    """Of three columns, that is one of the programs, they are two vectors."""
    for kernel, least in (("sum_rows", 50), ("sum_columns", 8), ("moments_of_chunks", 50)):
        for unit in named(told, kernel):
            assert unit["of_floats"] > least, unit


def test_the_tile_of_a_product_multiplies_from_registers(told):
    """The largest one has as many multiply-adds as sums, 24 of the 32 registers."""
    height, width = told["tile"]
    for unit in named(told, TILES):
        assert max(unit["products"]) == height * width == 24


def test_tiles_have_few_vectors_on_the_stack(told):
    """None in the loops, or there would be a fault; outside of them what a masked edge takes."""
    for unit in named(told, f"{TILES}matmul"):
        assert unit["on_the_stack"] <= 2
    for unit in named(told, f"{TILES}conv_tile"):
        assert unit["on_the_stack"] <= 150


# ----- that faults are found -----


def compile_for_arm(body: str) -> tuple[str, str, bytes]:
    """LLVM's instructions, and the machine code of these as text and as it is."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=PROCESSOR, opt=3)
    module = llvm.parse_assembly(f'target triple = "{TRIPLE}"\n{body}')
    text, code = machine.emit_assembly(module.clone()), machine.emit_object(module.clone())
    return str(module), text, code


def faults_of(body: str, name: str = "kernel") -> list[str]:
    """The faults of a function of LLVM's instructions."""
    return look(name, *compile_for_arm(body), ()).faults


def test_a_product_and_a_sum_are_not_contracted():
    body = """
define <4 x float> @kernel(<4 x float> %x, <4 x float> %y) {{
  %product = fmul{0} <4 x float> %x, %y
  %sum = fadd{0} <4 x float> %product, %y
  ret <4 x float> %sum
}}
"""
    assert faults_of(body.format("")) == []
    found = faults_of(body.format(" contract"))
    assert [fault.partition(":")[0] for fault in found[:-1]] == ["may be rounded in other ways"] * 2
    assert found[-1] == "1 multiply-adds, of which the body says nothing"


def test_a_function_that_nobody_looks_for_is_a_fault():
    body = """
declare double @mystery(double)
define double @kernel(double %x, double %y) {
  %rest = frem double %x, %y
  %found = call double @mystery(double %rest)
  ret double %found
}
"""
    assert faults_of(body) == ["calls mystery, which nobody looks for"]


@pytest.mark.parametrize("said", ['asm sideeffect "pause"', "llvm.x86.sse2.pause"])
def test_instructions_of_another_processor_are_a_fault(said):
    text = f'call void asm "", ""()\ncall void {said}'
    assert foreign(text) == [f"not of this processor: {said}"]


def test_sums_of_a_tile_on_the_stack_are_a_fault():
    def tile(sums: int) -> str:
        kind, each = "<4 x float>", range(sums)
        lines = [
            "declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)",
            "define void @kernel(ptr %x, i64 %n) {",
            "entry:",
            "  br label %loop",
            "loop:",
            "  %k = phi i64 [ 0, %entry ], [ %next, %loop ]",
            *(f"  %s{i} = phi {kind} [ zeroinitializer, %entry ], [ %t{i}, %loop ]" for i in each),
            f"  %place = getelementptr {kind}, ptr %x, i64 %k",
            f"  %v = load {kind}, ptr %place",
            *(
                f"  %t{i} = call {kind} @llvm.fma.v4f32({kind} %v, {kind} %v, {kind} %s{i})"
                for i in each
            ),
            "  %next = add i64 %k, 1",
            "  %more = icmp slt i64 %next, %n",
            "  br i1 %more, label %loop, label %done",
            "done:",
            *(f"  %p{i} = getelementptr {kind}, ptr %x, i64 {i}" for i in each),
            *(f"  store {kind} %t{i}, ptr %p{i}" for i in each),
            "  ret void",
            "}",
        ]
        return "\n".join(lines)

    assert faults_of(tile(24), TILES) == []
    assert faults_of(tile(40), TILES) == ["a loop of 40 multiply-adds has sums on the stack"]
    assert faults_of(tile(40)) == [], "other loops may keep constants there"
