"""The processor that kernels are compiled for: this one, or as much of it as ADJIT_CPU lets them use.

Whoever wants to know what it can do asks here: the compiler, the widths of vectors and tiles, the keys of
the cache. `ADJIT_CPU=native` is all that LLVM finds, within what NUMBA_CPU_NAME, NUMBA_CPU_FEATURES and
NUMBA_ENABLE_AVX say; the others are the levels of x86-64 that compilers and distributions agree on
(https://gitlab.com/x86-psABIs/x86-64-ABI). `x86-64-v3`, with AVX2 and fused multiply-adds, is what most
machines have. Without ADJIT_CPU it is `native`, or the highest level of this processor if there are kernels of
just that level, compiled ahead: all kernels of a process are of one level.

Results have the same bits on every processor and level, with one exception: without fused
multiply-adds (`x86-64-v2`), products of matrices and convolutions round each product.
"""

import functools
import os
from typing import NamedTuple

import llvmlite.binding as llvm
from numba.core import config
from numba.core.codegen import get_host_cpu_features

from . import level as levels

SETTING = "ADJIT_CPU"
NATIVE = "native"
LEVELS = {  # what each has that the one before it has not, as LLVM calls it
    "x86-64-v2": "cx16 popcnt sahf sse3 sse4.1 sse4.2 ssse3",
    "x86-64-v3": "avx avx2 bmi bmi2 f16c fma lzcnt movbe xsave",
    "x86-64-v4": "avx512bw avx512cd avx512dq avx512f avx512vl",
}


class Processor(NamedTuple):
    """What kernels are compiled for, in LLVM's words."""

    level: str  # one of LEVELS, or NATIVE
    triple: str
    name: str
    features: str  # those that it has with a +, those that it has not with a -

    @property
    def architecture(self) -> str:
        return self.triple.partition("-")[0].replace("arm64", "aarch64")

    def has(self, feature: str) -> bool:
        """Whether kernels may use a feature."""
        return f"+{feature}" in self.features.split(",")

    def levels(self) -> list[str]:
        """The levels that it has, the lowest first."""
        if self.architecture != "x86_64":
            return []
        return [level for level in LEVELS if all(map(self.has, features_of(level)))]

    def usual_level(self) -> str:
        """The level of kernels where nobody asks for one."""
        *_, highest = (NATIVE, *self.levels())
        return highest if levels.has_kernels(highest) else NATIVE

    def limited(self, level: str) -> "Processor":
        """As much of it as a level has."""
        if level == NATIVE:
            return self
        if level not in LEVELS:
            known = ", ".join((NATIVE, *LEVELS))
            raise ValueError(f"{SETTING} must be one of {known}, got {level!r}")
        if self.architecture != "x86_64":
            raise ValueError(
                f"{SETTING}={level} is a level of x86_64 processors, and this one is {self.architecture}; "
                f"leave it out, or set it to {NATIVE}"
            )
        needed = features_of(level)
        missing = [feature for feature in needed if not self.has(feature)]
        if missing:
            raise ValueError(
                f"{SETTING}={level} needs a processor with {', '.join(missing)}, which this one "
                f"({self.name}) does not have; set it to {' or '.join((*self.levels(), NATIVE))}"
            )
        return Processor(level, self.triple, level, ",".join(f"+{feature}" for feature in needed))


def features_of(level: str) -> list[str]:
    """All that a level has."""
    levels = list(LEVELS)
    return " ".join(LEVELS[one] for one in levels[: levels.index(level) + 1]).split()


@functools.cache
def host() -> Processor:
    """This processor."""
    features = get_host_cpu_features() if config.CPU_FEATURES is None else config.CPU_FEATURES
    name = config.CPU_NAME or llvm.get_host_cpu_name()
    found = Processor(NATIVE, llvm.get_process_triple(), name, features)
    # LLVM cannot ask every ARM what it has, but all of them have vectors.
    is_told = bool(features) or found.architecture != "aarch64"
    return found if is_told else found._replace(features="+neon")


CHOSEN = host().limited(os.environ.get(SETTING, "").strip() or host().usual_level())
has = CHOSEN.has

# For most of Intel's processors LLVM fills half of a vector of 512 bits, unless it is told otherwise.
TUNING = ",-prefer-256-bit" if has("avx512f") else ""
VECTOR_BYTES = 64 if has("avx512f") else 32 if has("avx2") else 16
MASKS_STORES = has("avx512f")  # whether a masked store is as quick as a whole one
FUSED = has("fma") or CHOSEN.architecture == "aarch64"  # whether a multiply-add is an instruction
