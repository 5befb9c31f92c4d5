"""What kernels are compiled for: the levels of ADJIT_CPU, their instructions, and the same bits on each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from adjit.kernels.language import processor
from adjit.kernels.language.processor import LEVELS, NATIVE, Processor, features_of

from adjit.schedule.jit import cache

HERE = Path(__file__).parent
HASWELL = Processor(
    NATIVE,
    "x86_64-unknown-linux-gnu",
    "haswell",
    ",".join(f"+{f}" for f in features_of("x86-64-v3")),
)
EVERY = os.environ.get("ADJIT_EVERY_KERNEL", "0") != "0"
LEVELS_TO_TRY = os.environ.get("ADJIT_LEVELS", "").split(",")  # two minutes each: CI names them
fits = {level: all(map(processor.host().has, features_of(level))) for level in LEVELS}


def child(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


# ----- which there are -----


def test_a_level_has_what_those_below_it_have():
    assert (
        set(features_of("x86-64-v2"))
        < set(features_of("x86-64-v3"))
        < set(features_of("x86-64-v4"))
    )
    limited = HASWELL.limited("x86-64-v2")
    assert limited.has("sse4.2")
    assert not limited.has("avx2")
    assert HASWELL.limited(NATIVE) == HASWELL


def test_a_level_that_the_processor_lacks_is_refused():
    with pytest.raises(
        ValueError, match=r"ADJIT_CPU=x86-64-v4 needs a processor with avx512bw, .*haswell"
    ):
        HASWELL.limited("x86-64-v4")
    with pytest.raises(ValueError, match=r"set it to x86-64-v2 or x86-64-v3 or native$"):
        HASWELL.limited("x86-64-v4")


def test_a_level_of_another_architecture_is_refused():
    for triple in ("aarch64-unknown-linux-gnu", "arm64-apple-darwin"):
        other = Processor(NATIVE, triple, "apple-m1", "+neon")
        with pytest.raises(
            ValueError, match=r"ADJIT_CPU=x86-64-v3 is a level of x86_64.* is aarch64"
        ):
            other.limited("x86-64-v3")
        assert other.limited(NATIVE) == other


def test_an_arm_that_llvm_cannot_ask_has_vectors(monkeypatch):
    monkeypatch.setattr(processor.llvm, "get_process_triple", lambda: "arm64-apple-darwin")
    monkeypatch.setattr(processor, "get_host_cpu_features", lambda: "")
    monkeypatch.setattr(processor.config, "CPU_FEATURES", None)
    assert processor.host.__wrapped__().features == "+neon"


def test_an_unknown_level_is_refused_when_adjit_is_imported():
    done = child("import adjit", ADJIT_CPU="avx2")
    assert done.returncode != 0
    text = "ADJIT_CPU must be one of native, x86-64-v2, x86-64-v3, x86-64-v4, got 'avx2'"
    assert text in done.stderr


def test_nobody_else_asks_what_the_processor_can_do():
    for folder in ("kernels", "src"):
        for path in (HERE.parent / folder).rglob("*.py"):
            if path.name != "processor.py":
                text = path.read_text()
                for word in (
                    "llvm.get_host_cpu",
                    "llvm.get_process_triple",
                    "llvm.get_default_triple",
                    "platform.machine",
                ):
                    assert word not in text, (
                        f"{path.name} asks by {word}; kernels/language/processor.py knows"
                    )


@pytest.mark.skipif(not fits["x86-64-v2"], reason="has levels of x86_64")
def test_the_compiler_the_cache_and_the_command_line_know_the_level():
    code = """
from adjit.__main__ import main
from adjit.kernels.ops import gemm_tile as micro
from adjit.kernels.language.target import KernelDispatcher
from adjit.schedule.jit import cache
print(KernelDispatcher.targetdescr.target_context.codegen().magic_tuple())
print(micro.VECTOR_BYTES, micro.FUSED, cache.digest("kernel"))
main(["info"])
"""
    done = child(code, ADJIT_CPU="x86-64-v2")
    assert done.returncode == 0, done.stderr
    made_for, kernels, *facts = done.stdout.splitlines()
    assert "'x86-64-v2'" in made_for
    assert "avx" not in made_for
    width, fused, key = kernels.split()
    assert (width, fused) == ("16", "False")
    assert processor.CHOSEN.level == "x86-64-v2" or key != cache.digest("kernel")
    told = dict(line.split(maxsplit=1) for line in facts)
    assert told["processor"].endswith("kernels for x86-64-v2")
    assert told["features"] == "sse4.1, sse4.2"


# ----- machine code and bits -----


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What `on_level.py` says of a level, found out once."""
    kept = {}

    def of(level):
        if level not in kept:
            done = subprocess.run(
                [sys.executable, "on_level.py", *["all"] * EVERY], cwd=HERE,
                env=os.environ | {"ADJIT_CPU": level}, capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            kept[level] = json.loads(done.stdout)
        return kept[level]

    return of


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("level", LEVELS_TO_TRY)
def test_kernels_have_the_instructions_of_their_level_and_the_bits_of_every_level(level, found):
    if not level:
        pytest.skip("takes minutes: ADJIT_LEVELS=x86-64-v2,x86-64-v3 says which levels")
    if not fits[level]:
        pytest.skip(f"this processor is below {level}")
    usual, limited = found(NATIVE), found(level)
    assert not limited["beyond"], "instructions of a higher level"
    assert limited["kernels"] > 100
    assert limited["widest"] == {"x86-64-v2": "xmm", "x86-64-v3": "ymm"}[level]
    if fits["x86-64-v4"]:
        assert usual["widest"] == "zmm"
    fused = limited["fused"] == usual["fused"]
    differ = {name for name, bits in usual["bits"].items() if limited["bits"][name] != bits}
    assert differ <= (set() if fused else set(usual["products"]))
    assert fused or differ, "products are rounded twice without fused multiply-adds"
