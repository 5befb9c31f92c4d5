"""Programs at two levels of instructions, each beside the peers at the same level, in one run.

    python bench/levels.py [--threads 2] [--quick] [--without torch.compile] [--groups views]

The processor's own level, and AVX2, to which every library is limited by its own switch. Groups of rows have
processes of their own; where a library's compiler ends one, each row has, and is timed without that library if
it ends the row's, which is said. Written to bench/results/.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import libraries
import machine
from run import FULL, QUICK, time_rows
from table import markdown

GROUPS = ("programs", "applications", "views")
AVX2 = {
    "ADJIT_CPU": "x86-64-v3",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
    # YNNPACK, by which XLA multiplies matrices, takes AVX-512 whatever the limit of XLA's own code is: products
    # of 512 come to 146 GFLOP/s, on a core whose peak at AVX2 is 129. Eigen, which stands in for it, to 110.
    "XLA_FLAGS": "--xla_cpu_max_isa=AVX2 --xla_cpu_experimental_ynn_fusion_type=",
}
LEVELS: dict[str, dict[str, str]] = {"the processor's own": {}, "AVX2": AVX2}
FRAGILE = "torch.compile"  # its code may end the process


@contextmanager
def limited(switches: dict[str, str]) -> Iterator[None]:
    """With such names in the environment, which the processes that time rows are given."""
    before = {name: os.environ.get(name) for name in switches}
    os.environ.update(switches)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def rows_of(
    group: str, threads: int, effort: dict[str, Any]
) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows of a group, and notes on those from which a library had to be left out."""
    names = effort["libraries"].split(",")
    try:
        return time_rows(threads, f"^{group}: ", effort, "cpu"), []
    except subprocess.CalledProcessError as error:
        if error.returncode >= 0 or FRAGILE not in names:
            raise
    fewer = effort | {"libraries": ",".join(name for name in names if name != FRAGILE)}
    rows, notes = time_rows(threads, f"^{group}: ", fewer, "cpu"), []
    for place, row in enumerate(rows):
        try:
            pattern = f"^{group}: {re.escape(row['name'])}$"
            (rows[place],) = time_rows(threads, pattern, effort, "cpu")
        except subprocess.CalledProcessError as error:
            if error.returncode >= 0:
                raise
            how = f"by signal {-error.returncode}"
            notes.append(f"{row['name']}: {FRAGILE} ended the process {how}, so without it.")
    return rows, notes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=machine.usable_cores())
    parser.add_argument("--quick", action="store_true", help="a rough table in less time")
    parser.add_argument("--without", default="", metavar="LIBRARY,LIBRARY")
    parser.add_argument("--groups", default=",".join(GROUPS), metavar="GROUP,GROUP")
    options = parser.parse_args()
    left_out = options.without.split(",")
    names = ",".join(name for name in libraries.installed() if name not in left_out)
    effort = (QUICK if options.quick else FULL) | {"mean": False, "libraries": names}
    some = "" if options.groups == ",".join(GROUPS) else f"-{options.groups.replace(',', '-')}"
    target = Path(__file__).parent / "results" / f"{machine.short_name()}-levels{some}.md"
    parts = []
    for level, switches in LEVELS.items():
        rows: list[dict[str, Any]] = []
        notes = [" ".join(f"{name}={shlex.quote(value)}" for name, value in switches.items())]
        # Inductor's cache does not tell levels apart: the other's code computes wrong values, or crashes.
        with TemporaryDirectory() as cache, limited(switches | {"TORCHINDUCTOR_CACHE_DIR": cache}):
            for group in options.groups.split(","):
                found, told = rows_of(group, options.threads, effort)
                rows += found
                notes += told
        report = {
            "machine": machine.description(),
            "versions": libraries.versions("cpu"),
            "rows": rows,
        }
        parts += [f"# {level}", *filter(None, notes), markdown(report)]
        target.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    print(target.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
