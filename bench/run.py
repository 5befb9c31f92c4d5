"""The benchmark table: adjit beside NumPy, PyTorch, JAX and autograd, all in one run.

    python bench/run.py [--rows PATTERN] [--threads 1,2] [--quick] [--short] [--mean] [--device cuda]

Each thread count has two processes, which are kept to that many cores; in them the libraries take
turns, and the shortest sample counts. Rows on which the libraries disagree are not timed and fail
the run. A full run is written to bench/results/, a quick one beside it under its own name; a run
of chosen rows is only printed. `--short` takes three minutes and is only printed: programs and views,
with as many threads as there may be, adjit beside PyTorch alone; rows it does not come to are counted.
On a GPU the same rows run there, and others that tell how near its limits they come; rows that need a
process of their own are about the CPU and left out.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import fresh
import libraries
import machine
from programs import LARGE, PROGRAMS
from table import markdown

FOLDER = Path(__file__).parent
FULL = {
    "seconds": 0.8, "turns": 3, "processes": 2, "repeats": 3, "batches": fresh.MEMORY_BATCHES,
}  # fmt: skip
MOST_THREADS_BESIDE_A_GPU = 4
# The group of rows, their names, and what measures their cells.
Plan = tuple[str, list[str], Callable[[], list[fresh.Cells]]]
FIRST_GRADIENTS = ("GELU", "SGD step, MLP 64-32-10, batch 32", "GRU")
QUICK = {
    "seconds": 0.1, "turns": 3, "processes": 1, "repeats": 1, "batches": fresh.MEMORY_BATCHES[:1],
}  # fmt: skip


SHORT = {
    "seconds": 0.05, "turns": 2, "processes": 1, "libraries": "adjit,adjit.compile,PyTorch", "budget": 150,
}  # fmt: skip
SHORT_ROWS = "^(programs|views)"


def time_rows(
    threads: int, pattern: str, effort: dict[str, Any], device: str
) -> list[dict[str, Any]]:
    """Rows from a process with so many threads, and from another one: an array that fits into the last
    cache in part is read up to twice as fast or slowly, depending on the pages that it got."""
    command = [sys.executable, str(FOLDER / "timing.py"), f"--threads={threads}"]
    command.append(f"--device={device}")
    command += [f"--rows={pattern}", f"--seconds={effort['seconds']}", f"--turns={effort['turns']}"]
    command += ["--mean"] if effort["mean"] else []
    for name in ("libraries", "budget"):
        command += [f"--{name}={effort[name]}"] if name in effort else []
    rows: list[dict[str, Any]] = []
    for _ in range(effort["processes"]):
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        again = json.loads(done.stdout.splitlines()[-1])
        rows = [faster(*pair) for pair in zip(rows, again, strict=True)] if rows else again
    return [{**row, "threads": threads} for row in rows]


def faster(row: dict[str, Any], again: dict[str, Any]) -> dict[str, Any]:
    """A row with the shorter time of each library; what went wrong once stays."""
    cells = {
        name: min((cell, again["cells"][name]), key=lambda c: c.get("seconds", -1.0))
        for name, cell in row["cells"].items()
    }
    return row | {"cells": cells}


def program_plans(everyone: dict[str, type[libraries.Library]], repeats: int) -> list[Plan]:
    """First gradients and peak memory of the programs, captured or not."""
    here = {name: lib for name, lib in everyone.items() if lib.program in ("torch", "jax")}
    compilers = {name: lib for name, lib in here.items() if lib.captures or lib.keeps_kernels}
    first = [program for program in PROGRAMS if program.name.startswith(FIRST_GRADIENTS)]
    starts: list[Plan] = [
        (
            "start of programs",
            [f"imports and first gradient, empty caches, {program.name}"],
            partial(fresh.gradient_cells, program, compilers, repeats),
        )
        for program in first
    ]
    peaks: list[Plan] = [
        (
            "memory of programs",
            [f"peak memory, {program.name}"],
            partial(fresh.peak_cells, program, here, machine.usable_cores(), repeats),
        )
        for program in fresh.whole_programs()
        if fresh.REFERENCES.exists()  # only Linux can forget a peak
    ]
    return starts + peaks


def measure_fresh(pattern: str, threads: int, effort: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows that need a process of their own, as far as `pattern` asks for them."""
    everyone, repeats = libraries.installed(), effort["repeats"]
    here = {name: library for name, library in everyone.items() if not library.captures}
    trained = [name for name, library in here.items() if library.program != "numpy"]
    imports = {
        name: partial(fresh.import_seconds, package)
        for name, package in [*((n, lib.package) for n, lib in here.items()), ("numba", "numba")]
    }
    steps = {name: partial(fresh.first_step_seconds, name) for name in trained}
    first = "imports and first training step"
    plans: list[Plan] = [
        ("start", ["import"], partial(fresh.best_of, imports, 2 * repeats)),
        (
            "start",
            [f"{first}, empty kernel cache", f"{first}, kernels cached"],
            partial(fresh.best_of, steps, repeats),
        ),
    ]
    for batch in effort["batches"]:
        name = f"peak memory, SGD steps, MLP {'-'.join(map(str, LARGE))}, batch {batch}"
        plans.append(("memory", [name], partial(fresh.memory_cells, trained, batch)))
    plans += program_plans(everyone, repeats)

    rows = []
    for group, names, measure in plans:
        if any(re.search(pattern, f"{group}: {name}") for name in names):
            print(f"[fresh processes] {names[0]}", file=sys.stderr)
            for name, cells in zip(names, measure(), strict=True):
                rows.append({"group": group, "name": name, "threads": threads, "cells": cells})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default="", metavar="PATTERN", help="regular expression")
    parser.add_argument("--threads", default="1,2", metavar="1,2", help="thread counts")
    parser.add_argument("--quick", action="store_true", help="a rough table in less time")
    parser.add_argument(
        "--short", action="store_true", help="programs beside PyTorch, in 3 minutes"
    )
    parser.add_argument(
        "--mean", action="store_true", help="means instead of the shortest times; only printed"
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    options = parser.parse_args()
    if options.device == "cuda" and (reason := machine.no_gpu()):
        parser.error(f"there is no GPU to measure on: {reason}")
    effort = SHORT if options.short else QUICK if options.quick else FULL
    effort = effort | {"mean": options.mean}
    rows_asked = options.rows or (SHORT_ROWS if options.short else "")
    cores = machine.usable_cores()
    asked = sorted({int(count) for count in options.threads.split(",")})
    if options.device == "cuda":
        asked = [min(MOST_THREADS_BESIDE_A_GPU, cores)]
    counts = [count for count in asked if count <= cores][-1 if options.short else 0 :]
    if not counts:
        parser.error(f"this process may use {cores} core(s), --threads asks for {options.threads}")

    description, name = machine.description(), machine.short_name()
    if options.device == "cuda":
        description, name = f"{machine.gpu_description()}; {description}", machine.gpu_short_name()
    versions = libraries.versions(options.device)
    print(description, versions, sep="\n", file=sys.stderr)
    rows = [row for count in counts for row in time_rows(count, rows_asked, effort, options.device)]
    if options.device == "cpu" and not options.short:
        rows += measure_fresh(rows_asked, counts[-1], effort)
    report = {"machine": description, "versions": versions, "rows": rows}
    text = markdown(report)
    print(text)
    if not (options.rows or options.mean or options.short):
        target = FOLDER / "results" / (name + ("-quick" if options.quick else ""))
        target.parent.mkdir(exist_ok=True)
        target.with_suffix(".md").write_text(text + "\n", encoding="utf-8")
        target.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    failed = [cell for row in rows for cell in row["cells"].values() if "error" in cell]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
