"""What only a fresh process can show: imports, the first training step, peak memory.

Run as a script it measures one thing in its own process and prints the number.
"""

from time import perf_counter

STARTED = perf_counter()

import os  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

Cells = dict[str, dict[str, Any]]

IMPORT = "from time import perf_counter as t; s = t(); import {package}; print(t() - s)"
MEMORY_BATCHES = (256, 4096)


def peak_bytes() -> int:
    """The most memory that this process has held."""
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss would start from the peak of the process that started this one
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource

    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def first_step(name: str) -> float:
    """Seconds from the start of the script to the loss of the first training step of an MLP."""
    from libraries import LIBRARIES
    from rows import SMALL, SMALL_BATCH, TRAIN, network_data

    library = LIBRARIES[name]()
    step = TRAIN[library.program](library.module, *network_data(SMALL, SMALL_BATCH))
    float(library.to_numpy(library.finish(step())[0]))
    return perf_counter() - STARTED


def peak_of_training(name: str, batch: int, steps: int) -> int:
    """Peak bytes after `steps` training steps of a large MLP, a small one having gone before."""
    from libraries import LIBRARIES
    from rows import LARGE, SMALL, SMALL_BATCH, TRAIN, network_data

    library = LIBRARIES[name]()
    train = TRAIN[library.program]
    plans = [((SMALL[0], 16, *SMALL[1:]), SMALL_BATCH, 5)]
    if steps:
        plans.append((LARGE, batch, steps))
    for widths, size, count in plans:
        step = train(library.module, *network_data(widths, size))
        for _ in range(count):
            library.finish(step())
    return peak_bytes()


# ----- the side that starts the processes -----


class Failed(Exception):
    """A process ended with an error; the text is the last line that it wrote."""


def ask(*arguments: Any, **environment: str) -> float:
    """Run this file as a script and read its number."""
    return _number([sys.executable, __file__, *map(str, arguments)], environment)


def _number(command: list[str], environment: dict[str, str]) -> float:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    if done.returncode:
        raise Failed(done.stderr.strip().splitlines()[-1])
    return float(done.stdout.split()[-1])


def import_seconds(package: str) -> tuple[float]:
    return (_number([sys.executable, "-c", IMPORT.format(package=package)], {}),)


def first_step_seconds(name: str) -> tuple[float, float]:
    """From nothing to the first loss: with an empty kernel cache, and with what that run left."""
    with tempfile.TemporaryDirectory() as folder:
        cold, warm = (ask("first", name, ADJIT_CACHE_DIR=folder) for _ in range(2))
    return cold, warm


def training_bytes(name: str, batch: int) -> float:
    """Peak memory of training a large MLP beyond that of having trained a small one."""
    from libraries import LIBRARIES

    if LIBRARIES[name].keeps_kernels:
        ask("memory", name, batch, 1)  # so that no compiler runs below
    before, after = (ask("memory", name, batch, steps) for steps in (0, 4))
    return after - before


def best_of(measures: dict[str, Callable[[], tuple[float, ...]]], repeats: int) -> list[Cells]:
    """Take every measure `repeats` times, in turns; the cells of each of its figures."""
    figures: dict[str, list[tuple[float, ...]]] = {name: [] for name in measures}
    errors: dict[str, Any] = {}
    for _ in range(repeats):
        for name, measure in measures.items():
            try:
                figures[name].append(measure())
            except Failed as error:
                errors[name] = {"error": str(error)}
    width = max((len(taken[0]) for taken in figures.values() if taken), default=1)
    return [
        {name: {"seconds": min(f[k] for f in taken)} for name, taken in figures.items() if taken}
        | errors
        for k in range(width)
    ]


def memory_cells(names: list[str], batch: int) -> list[Cells]:
    cells: Cells = {}
    for name in names:
        try:
            cells[name] = {"bytes": training_bytes(name, batch)}
        except Failed as error:
            cells[name] = {"error": str(error)}
    return [cells]


def main(what: str, name: str, *numbers: str) -> None:
    print(first_step(name) if what == "first" else peak_of_training(name, *map(int, numbers)))


if __name__ == "__main__":
    main(*sys.argv[1:])
