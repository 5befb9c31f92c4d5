"""Products of matrices beside PyTorch and NumPy's OpenBLAS: one table of GFLOP/s.

    python bench/gemm.py [--threads 1,2] [--rows PATTERN] [--seconds 0.3]

A product is timed in a group that is recorded first and settled then, as in a training step, with
as many products in it as take about 0.1 ms; "single" is a product recorded and settled alone. In
brackets PyTorch's time divided by adjit's: above 1, adjit is ahead. The peak is what one core does
with nothing but fused multiply-adds, measured beside the rows.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from math import ceil, exp, log, prod
from pathlib import Path
from typing import Any, NamedTuple

import machine
from timing import limit_threads, time_calls

SQUARES = (4, 8, 16, 24, 32, 48, 64, 100, 128, 192, 256, 384, 512, 1024, 2048)
LAYOUTS = ("nn", "nt", "tn", "tt")  # whether the left and the right operand are transposed
ODD = (
    ((), 32, 64, 32), ((), 256, 784, 1024), ((), 64, 784, 128), ((), 8, 1024, 1024),
    ((), 16, 256, 1024), ((), 16, 512, 2048), ((), 32, 512, 1024), ((), 64, 256, 1024),
    ((), 1000, 64, 10), ((), 37, 111, 73), ((), 128, 60_000, 10), ((), 1, 1024, 1024),
    ((), 1024, 1024, 1), ((64,), 32, 32, 32), ((96,), 128, 32, 128), ((96,), 128, 128, 32),
    ((1000,), 4, 4, 4),
)  # fmt: skip
SAMPLE = 1e-4  # seconds that a group of products takes


class Shape(NamedTuple):
    """`batch` products of (rows, depth) and (depth, columns)."""

    batch: tuple[int, ...]
    rows: int
    depth: int
    columns: int
    layout: str
    dtype: str

    @property
    def name(self) -> str:
        across = f"{self.rows}x{self.depth} @ {self.depth}x{self.columns}"
        return f"{'x'.join(map(str, (*self.batch, '')))}{across} {self.layout} {self.dtype}"

    @property
    def gflop(self) -> float:
        return 2e-9 * prod(self.batch) * self.rows * self.depth * self.columns


def shapes() -> Iterator[Shape]:
    for dtype in ("float32", "float64"):
        for n in SQUARES:
            for layout in LAYOUTS:
                yield Shape((), n, n, n, layout, dtype)
        for batch, rows, depth, columns in ODD:
            for layout in ("nn", "nt", "tn"):
                yield Shape(batch, rows, depth, columns, layout, dtype)


def operands(shape: Shape, make: Callable[[Any], Any]) -> list[Any]:
    """The two operands, a transposed one being a view of its memory."""
    import numpy as np

    rng = np.random.default_rng(0)
    sizes = (shape.rows, shape.depth), (shape.depth, shape.columns)
    made = []
    for size, letter in zip(sizes, shape.layout, strict=True):
        lies = size if letter == "n" else size[::-1]
        x = make(rng.uniform(-1, 1, (*shape.batch, *lies)).astype(shape.dtype))
        made.append(x if letter == "n" else x.swapaxes(-1, -2))
    return made


def time_shape(shape: Shape, seconds: float) -> dict[str, float]:
    """Seconds of one product in each library."""
    import numpy as np
    import torch

    import adjit
    from adjit.schedule.settle import settle

    count = max(1, ceil(SAMPLE / (shape.gflop / 50 + 1e-6)))
    a, b = operands(shape, np.asarray)
    x, y = operands(shape, adjit.tensor)
    p, q = operands(shape, torch.tensor)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    bound = 4 * np.finfo(shape.dtype).eps * shape.depth**0.5
    assert np.abs((x @ y).numpy() - expected).max() < bound * max(1.0, np.abs(expected).max())

    def alone() -> Any:
        product = x @ y
        settle()
        return product

    def together() -> Any:
        products = [x @ y for _ in range(count)]
        settle()
        return products

    calls = {
        "adjit": together,
        "PyTorch": lambda: [p @ q for _ in range(count)],
        "OpenBLAS": lambda: [a @ b for _ in range(count)],
        "single": alone,
    }
    best = time_calls(calls, seconds, 5)
    return {name: t if name == "single" else t / count for name, t in best.items()}


def peak(dtype: str) -> float:
    """GFLOP/s of one core that only multiplies and adds in registers."""
    import ctypes
    from time import perf_counter

    import llvmlite.binding as llvm
    from adjit.kernels.language import processor
    from adjit.kernels.ops import gemm_tile
    from llvmlite import ir

    f = gemm_tile.TileCode(dtype).function("peak", 2, exported=True)
    steps, address = f.args
    count = gemm_tile.HEIGHT * gemm_tile.WIDTH
    x = f.load(address)
    sums = [f.builder.alloca(f.type) for _ in range(count)]
    entry, loop, done = f.builder.block, *map(f.defined.append_basic_block, ("loop", "done"))
    f.builder.branch(loop)
    f.builder.position_at_end(loop)
    phis = [f.builder.phi(ir.IntType(64)), *[f.builder.phi(f.type) for _ in sums]]
    new = [f.builder.sub(phis[0], ir.IntType(64)(1))]
    new += [f.multiply_add(x, x, phi) for phi in phis[1:]]
    for phi, start, value in zip(phis, [steps.ir, *[x] * count], new, strict=True):
        phi.add_incoming(start, entry)
        phi.add_incoming(value, loop)
    f.builder.cbranch(f.number(new[0]) > 0, loop, done)
    f.builder.position_at_end(done)
    for total in new[1:]:
        f.store(total, address)
    f.builder.ret_void()
    engine = llvm.create_mcjit_compiler(
        llvm.parse_assembly(""), llvm.Target.from_default_triple().create_target_machine(jit=True)
    )
    engine.add_object_file(
        llvm.ObjectFileRef.from_data(gemm_tile.object_code(f.module, gemm_tile.machine()))
    )
    engine.finalize_object()
    run = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(
        engine.get_function_address(f.defined.name)
    )
    memory = ctypes.create_string_buffer(processor.VECTOR_BYTES)
    best = 1e9
    for _ in range(200):
        start_time = perf_counter()
        run(20_000, ctypes.addressof(memory))
        best = min(best, perf_counter() - start_time)
    return 2e-9 * 20_000 * count * f.lanes / best


def measure(threads: int, pattern: str, seconds: float) -> None:
    """The process of one thread count: rows as JSON."""
    limit_threads(threads)
    import torch

    import adjit

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    adjit.set_num_threads(threads)
    chosen = [shape for shape in shapes() if re.search(pattern, shape.name)]
    rows = []
    for k, shape in enumerate(chosen, 1):
        print(f"[threads {threads}, {k} of {len(chosen)}] {shape.name}", file=sys.stderr)
        times = time_shape(shape, seconds)
        rows.append({"name": shape.name, "gflop": shape.gflop, "threads": threads, **times})
    print(json.dumps({"rows": rows, "peaks": {d: peak(d) for d in ("float32", "float64")}}))


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| product | threads | adjit | PyTorch | OpenBLAS | single |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for row in rows:
        cells = [f"{row['gflop'] / row['adjit']:.1f}"]
        for name in ("PyTorch", "OpenBLAS"):
            ratio = row[name] / row["adjit"]
            cells.append(f"{row['gflop'] / row[name]:.1f} ({ratio:.2f})")
        cells.append(f"{row['single'] * 1e6:.1f} µs ({row['PyTorch'] / row['single']:.2f})")
        lines.append(f"| {row['name']} | {row['threads']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def summary(rows: list[dict[str, Any]]) -> str:
    ratios = [row["PyTorch"] / row["adjit"] for row in rows]
    mean = exp(sum(map(log, ratios)) / len(ratios))
    behind = sorted((r, row["name"], row["threads"]) for r, row in zip(ratios, rows, strict=True))
    lines = [f"Geometric mean against PyTorch {mean:.2f}, behind in:", ""]
    return "\n".join(lines + [f"- {n}, threads {t}: {r:.2f}" for r, n, t in behind if r < 1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default="", metavar="PATTERN", help="regular expression")
    parser.add_argument("--threads", default="1,2", metavar="1,2", help="thread counts")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each row")
    parser.add_argument("--process", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.process:
        measure(options.process, options.rows, options.seconds)
        return
    rows: list[dict[str, Any]] = []
    for threads in options.threads.split(","):
        command = [sys.executable, str(Path(__file__)), f"--process={threads}"]
        command += [f"--rows={options.rows}", f"--seconds={options.seconds}"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        report = json.loads(done.stdout.splitlines()[-1])
        rows += report["rows"]
    if not rows:
        parser.error(f"no row matches {options.rows!r}")
    peaks = ", ".join(f"{dtype} {value:.0f}" for dtype, value in report["peaks"].items())
    print(f"{machine.description()}  \nGFLOP/s; the peak of a core: {peaks}\n")
    print(f"{table(rows)}\n\n{summary(rows)}")


if __name__ == "__main__":
    main()
