"""What only a fresh process can show: imports, first steps and gradients, peak memory.

Run as a script it measures one thing in its own process and prints the number.
"""

from time import perf_counter

STARTED = perf_counter()

import ctypes  # noqa: E402
import gc  # noqa: E402
import os  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
from collections.abc import Callable  # noqa: E402
from concurrent.futures import ThreadPoolExecutor  # noqa: E402
from functools import partial  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

Cells = dict[str, dict[str, Any]]

IMPORT = "from time import perf_counter as t; s = t(); import {package}; print(t() - s)"
MEMORY_BATCHES = (256, 4096)
STATUS, REFERENCES = Path("/proc/self/status"), Path("/proc/self/clear_refs")
PATIENCE = 150  # seconds for one process; what takes longer is reported as such


def status_bytes(key: str) -> int:
    """A figure of this process as Linux gives it."""
    lines = STATUS.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))


def peak_bytes() -> int:
    """The most memory that this process has held."""
    if STATUS.exists():  # ru_maxrss would start from the peak of the process that started this one
        return status_bytes("VmHWM")
    import resource

    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def first_step(name: str) -> float:
    """Seconds from the start of the script to the loss of the first training step of an MLP."""
    from libraries import LIBRARIES
    from programs import SMALL, SMALL_BATCH, TRAIN, network_data

    library = LIBRARIES[name]()
    train = TRAIN[library.program]
    step = train(library.module, library.capture, *network_data(SMALL, SMALL_BATCH))
    float(library.to_numpy(library.finish(step())[0]))
    return perf_counter() - STARTED


def peak_of_training(name: str, batch: int, steps: int) -> int:
    """Peak bytes after `steps` training steps of a large MLP, a small one having gone before."""
    from libraries import LIBRARIES
    from programs import LARGE, SMALL, SMALL_BATCH, TRAIN, network_data

    library = LIBRARIES[name]()
    train = TRAIN[library.program]
    plans = [((SMALL[0], 16, *SMALL[1:]), SMALL_BATCH, 5)]
    if steps:
        plans.append((LARGE, batch, steps))
    for widths, size, count in plans:
        step = train(library.module, library.capture, *network_data(widths, size))
        for _ in range(count):
            library.finish(step())
            library.catch_up()
    return peak_bytes()


def whole_programs() -> tuple[Any, ...]:
    """The rows that are programs."""
    from applications import APPLICATIONS
    from programs import PROGRAMS
    from views import VIEWS

    return *PROGRAMS, *APPLICATIONS, *VIEWS


def first_gradient(name: str, row: str) -> float:
    """Seconds from the start of the script to the results of a program's first call."""
    from libraries import LIBRARIES

    library = LIBRARIES[name]()
    program = next(program for program in whole_programs() if program.name == row)
    result = program.prepare(library)()
    library.to_numpy(result[0])
    return perf_counter() - STARTED


def tidy() -> int:
    """Give back what nobody uses, and forget the peak so far; the bytes that are left."""
    gc.collect()
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
    REFERENCES.write_text("5")
    return status_bytes("VmRSS")


def steady(library: Any, program: Any) -> Callable[[], Any]:
    """A program after so many calls that a library has nothing left to compile or to give back."""
    call: Callable[[], Any] = program.prepare(library)
    for _ in range(4):
        library.warm_up(call)
    return call


def peak_of_program(name: str, row: str) -> int:
    """Peak bytes of the steady state of a program, beyond a process that has run it before.

    It has: or code that is loaded, threads that are started and the arrays that the values are made
    from, all of which come with the first run, would count as memory of the second. Of the values
    of the first run nothing is left.
    """
    from libraries import LIBRARIES

    library = LIBRARIES[name]()
    program = next(program for program in whole_programs() if program.name == row)
    steady(library, program)
    gc.collect()
    library.give_back()
    before = tidy()
    call = steady(library, program)
    tidy()
    call()
    return max(peak_bytes() - before, 0)


# ----- the side that starts the processes -----


class Failed(Exception):
    """A process ended with an error; the text is the last line that it wrote."""

    @property
    def cell(self) -> dict[str, str]:
        return {"error": str(self)}


class OutOfTime(Failed):
    """A process was ended because it took too long."""

    @property
    def cell(self) -> dict[str, str]:
        return {"note": f"over {PATIENCE} s"}


def ask(*arguments: Any, **environment: str) -> float:
    """Run this file as a script and read its number."""
    return _number([sys.executable, __file__, *map(str, arguments)], environment)


def _number(command: list[str], environment: dict[str, str]) -> float:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", **environment},
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        raise OutOfTime from None
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
        ask("memory", name, batch, 4)  # so that no compiler runs below
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
                errors[name] = error.cell
    width = max((len(taken[0]) for taken in figures.values() if taken), default=1)
    return [
        {name: {"seconds": min(f[k] for f in taken)} for name, taken in figures.items() if taken}
        | errors
        for k in range(width)
    ]


def cells_of(
    unit: str, figures: dict[str, Callable[[], float]], at_once: int = 1, repeats: int = 1
) -> Cells:
    """The least figure of each library, `at_once` of them being measured side by side."""

    def cell(figure: Callable[[], float]) -> dict[str, Any]:
        try:
            return {unit: min(figure() for _ in range(repeats))}
        except Failed as error:
            return error.cell

    with ThreadPoolExecutor(at_once) as pool:
        return dict(zip(figures, pool.map(cell, figures.values()), strict=True))


def memory_cells(names: list[str], batch: int) -> list[Cells]:
    return [cells_of("bytes", {name: partial(training_bytes, name, batch) for name in names})]


def noted(program: Any, libraries: dict[str, Any]) -> Cells:
    """The notes on a program in the libraries that cannot run it; the others are left out."""
    notes = {name: program.note(library) for name, library in libraries.items()}
    return {name: {"note": note} for name, note in notes.items() if note}


def gradient_seconds(name: str, row: str) -> tuple[float]:
    """Seconds to a program's first results where nothing has been compiled before."""
    with tempfile.TemporaryDirectory() as folder:
        return (ask("gradient", name, row, ADJIT_CACHE_DIR=folder, TORCHINDUCTOR_CACHE_DIR=folder),)


def gradient_cells(program: Any, libraries: dict[str, Any], repeats: int) -> list[Cells]:
    """Seconds to a program's first results, the least of each library."""
    notes = noted(program, libraries)
    measures = {
        name: partial(gradient_seconds, name, program.name)
        for name, library in libraries.items()
        if program.runs_in(library) and name not in notes
    }
    return [notes | cells for cells in best_of(measures, repeats)]


def peak_cells(program: Any, libraries: dict[str, Any], at_once: int, repeats: int) -> list[Cells]:
    """Peak bytes of a program's steady state."""
    notes = noted(program, libraries)
    figures = {
        name: partial(ask, "peak", name, program.name)
        for name, library in libraries.items()
        if program.runs_in(library) and name not in notes
    }
    return [notes | cells_of("bytes", figures, at_once, repeats)]


MEASURES: dict[str, Callable[..., float]] = {
    "first": first_step,
    "memory": lambda name, *numbers: peak_of_training(name, *map(int, numbers)),
    "gradient": first_gradient,
    "peak": peak_of_program,
}


def main(what: str, name: str, *arguments: str) -> None:
    print(MEASURES[what](name, *arguments))


if __name__ == "__main__":
    main(*sys.argv[1:])
