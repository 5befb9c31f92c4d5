"""Compile device kernels for sm_80 and sm_90, and write down what is in their machine code.

No GPU is needed: pip install 'adjit[cuda-tools]'. The table goes to bench/results/cuda-code.md if it is
whole, that of some kernels is printed. A kernel that spills registers, or computes in float64 where none of
its operands is float64, is an error, as is a stack in an elementwise kernel. Other kernels may have arrays
there.

    python bench/cuda_code.py [--only f32] [--architectures 9.0]
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from adjit.cuda.inspection import code_of  # noqa: E402

ARCHITECTURES = "8.0,9.0"


def look(architectures: list[tuple[int, int]], source: Any) -> list[Any]:
    """What is in the code of a kernel, for each architecture."""
    return [code_of(source, cc) for cc in architectures]


def faults(source: Any, code: Any) -> list[str]:
    """What a kernel must not have."""
    is_flat = any(kind.startswith("*") for kind in source.signature)
    found = [f"{code.spills} bytes of registers spilled"] if code.spills else []
    if code.stack and is_flat:
        found.append(f"{code.stack} bytes of stack")
    if code.double and "float64" not in kinds_of(source):
        found.append(f"float64: {', '.join(code.double)}")
    return found


def kinds_of(source: Any) -> set[str]:
    """The dtypes of a kernel's operands."""
    bound = dict(re.findall(r"^([A-Z]) = (\w+)$", source.text, re.MULTILINE))
    if "T" in bound:
        bound.pop("A", "")  # what sums are kept in is no operand
    letters = bound.values()
    of_row = re.findall(r"at\(\w+\[\d+\], (\w+)\)", source.text)
    return {kind.removeprefix("*") for kind in source.signature} | {*letters, *of_row}


def main() -> None:
    from cuda_kernels import elementwise_kernels, fused_kernels, left_out, other_kernels

    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument(
        "--only", default="", help="only elementwise kernels with this in their names"
    )
    options.add_argument("--architectures", default=ARCHITECTURES, help="compute capabilities")
    asked = options.parse_args()
    only, is_whole = asked.only, not asked.only and asked.architectures == ARCHITECTURES
    chosen = [tuple(map(int, cc.split("."))) for cc in asked.architectures.split(",")]
    flat = {name: source for name, source in elementwise_kernels().items() if only in name}
    other = {} if only else other_kernels()
    kernels = flat if only else flat | other | fused_kernels()
    start = time.perf_counter()
    # Spawned: the workers share nothing with this process, whose plans are being compiled.
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        looked = pool.map(partial(look, chosen), kernels.values(), chunksize=8)
        codes = dict(zip(kernels, looked, strict=True))
    seconds = time.perf_counter() - start
    named = f" with {only} in their names" if only else ""
    places = " and ".join(f"sm_{major}{minor}" for major, minor in chosen)
    lines = [
        "# Machine code of the device kernels",
        "",
        f"{len(kernels)} kernels{named}, made by bench/cuda_code.py without a GPU. Registers, and "
        f"instructions in all, for {places}; `wide` are accesses of 16 bytes, `stack` are bytes of a "
        "thread's arrays, `shared` bytes of a block. Spilled registers would be an error.",
        "",
        "|kernel|registers|instructions|wide|stack|shared|",
        "|---|---|---|---|---|---|",
    ]
    bad = []
    for name, pair in sorted(codes.items()):
        row = [
            " / ".join(str(code.registers) for code in pair),
            " / ".join(str(sum(code.instructions.values())) for code in pair),
            str(pair[-1].count("LDG.E.128") + pair[-1].count("STG.E.128")),
            str(pair[-1].stack),
            str(pair[-1].shared),
        ]
        lines.append(f"|{name.removesuffix('_on_gpu')}|{'|'.join(row)}|")
        bad += [f"{name}: {fault}" for code in pair for fault in faults(kernels[name], code)]
    if not only:
        bad += [f"{name}: no program of tests/cuda_cases.py runs it" for name in left_out(other)]
    text = "\n".join(lines) + "\n"
    if is_whole:
        (ROOT / "bench" / "results" / "cuda-code.md").write_text(text)
    elif only:
        print(text)
    print(f"{len(kernels)} kernels for {places} in {seconds:.0f} s")
    if bad:
        sys.exit("\n".join(bad))


if __name__ == "__main__":
    main()
