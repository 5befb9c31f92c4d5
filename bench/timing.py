"""Time rows in one process with a fixed number of threads; prints JSON for run.py.

The libraries take turns within a row, so that whatever else the machine does hits all alike, and
the shortest of many turns counts.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import ceil, inf
from statistics import fmean
from time import perf_counter, sleep
from typing import Any

THREAD_VARIABLES = (
    "ADJIT_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NPROC",  # XLA's thread pool
)
SAMPLE = 1e-3  # seconds that are timed at once at least, beside a clock of 50 ns
# Seconds of a turn, and its samples at least: after a rest the first call finds slow cores and cold caches, and
# takes up to twice as long.
TURN, LEAST_SAMPLES = 2e-2, 3
# Idle threads of OpenMP keep a core busy for 200 ms after their last work: who comes next waits them out.
REST = 0.25


def limit_threads(threads: int) -> None:
    """Keep this process to `threads` cores; the libraries read it when they are loaded."""
    for variable in THREAD_VARIABLES:
        os.environ[variable] = str(threads)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


class OutOfTime(BaseException):
    """Not an Exception: compilers catch those and try something else."""


@contextmanager
def limit_time(seconds: float) -> Iterator[None]:
    """Raise OutOfTime after `seconds`, where the system can; 0 sets no limit."""
    if not seconds or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(*_: Any) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def sample(call: Callable[[], Any], number: int) -> float:
    start = perf_counter()
    for _ in range(number):
        call()
    return (perf_counter() - start) / number


def samples_of(call: Callable[[], Any], seconds: float) -> tuple[int, int]:
    """How many calls make a sample, and how many samples a turn, after running it for a while."""
    best = inf
    deadline = perf_counter() + seconds
    calls = 0
    while calls < 3 or perf_counter() < deadline:
        best = min(best, sample(call, 1))
        calls += 1
    number = max(1, ceil(SAMPLE / best))
    return number, max(LEAST_SAMPLES, ceil(TURN / (number * best)))


class FailedCall(Exception):
    """A call that was to be timed has raised: the library's name, and the error."""


def blamed(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns; what it raises is told together with the library's name."""
    try:
        return function(*arguments)
    except Exception as error:
        raise FailedCall(name, error) from error


def time_calls(
    calls: dict[str, Callable[[], Any]],
    seconds: float,
    least_turns: int,
    statistic: Callable[[list[float]], float] = min,
) -> dict[str, float]:
    """Seconds of one call in each library: the shortest of its samples, or another statistic of them.

    A mean has in it what comes in between now and then, such as garbage collections.

    Raises:
        FailedCall: where a call raises.
    """
    samples = {name: blamed(name, samples_of, call, seconds / 20) for name, call in calls.items()}
    rests = os.environ.get("OMP_NUM_THREADS", "1") != "1"
    found: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    deadline = perf_counter() + seconds
    turns = 0
    while turns < least_turns or perf_counter() < deadline:
        for name in order:
            number, count = samples[name]
            if rests or number == 1:
                sleep(REST)
            found[name] += [blamed(name, sample, calls[name], number) for _ in range(count)]
        order.append(order.pop(0))
        turns += 1
    return {name: statistic(times) for name, times in found.items()}


def time_row(
    row: Any,
    libraries: dict[str, Any],
    time: Callable[[dict[str, Callable[[], Any]]], dict[str, float]],
) -> dict[str, dict[str, Any]]:
    """Check that the libraries agree on a row, then time it: seconds, a note or an error for each."""
    from rows import disagreement, values_of

    cells: dict[str, dict[str, Any]] = {}
    calls: dict[str, Callable[[], Any]] = {}
    ready: dict[str, float] = {}  # seconds until the last call before the check
    expected = None
    # The library to be judged comes last, so that it never serves as its own reference.
    for name in sorted(libraries, key=lambda name: libraries[name].package == "adjit"):
        library = libraries[name]
        if not row.runs_in(library):
            continue
        if note := row.note(library):
            cells[name] = {"note": note}
            continue
        try:
            started = perf_counter()
            with limit_time(library.patience):
                call = row.prepare(library)
                result = library.warm_up(call)
            ready[name] = perf_counter() - started
            found = values_of(library, result)
        except OutOfTime:
            cells[name] = {"note": f"compiles for over {library.patience} s"}
            continue
        except Exception as error:
            cells[name] = {"error": f"{type(error).__name__}: {error}"}
            continue
        if expected is None:
            expected = found
        elif difference := disagreement(row, expected, found):
            cells[name] = {"error": difference}
            continue
        calls[name] = call
    expected = result = None
    times: dict[str, float] = {}
    while calls and not times:
        try:
            times = time(calls)
        except FailedCall as failed:
            name, error = failed.args
            del calls[name]
            cells[name] = {"error": f"{type(error).__name__}: {error}"}
    for name, best in times.items():
        cells[name] = {"seconds": best / row.operations, "ready": ready[name]}
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--rows", default="")
    parser.add_argument("--seconds", type=float, required=True, help="for each row")
    parser.add_argument("--turns", type=int, required=True, help="at least, for each library")
    parser.add_argument("--mean", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--libraries", default="", help="their names; all that are installed")
    parser.add_argument(
        "--budget", type=float, default=inf, help="seconds, after which no row begins"
    )
    options = parser.parse_args()
    ends = perf_counter() + options.budget
    limit_threads(options.threads)

    import libraries as known
    from applications import APPLICATIONS
    from everyday import CALLS
    from func import TRANSFORMS
    from programs import PROGRAMS
    from rates import RATES
    from rows import ROWS
    from sizes import SIZES
    from views import VIEWS

    present, asked = known.installed(options.device), options.libraries
    names = [name for name in asked.split(",") if name in present] if asked else list(present)
    libraries = {name: present[name](options.device) for name in names}
    for library in libraries.values():
        library.set_threads(options.threads)
    rows = (
        *ROWS, *CALLS, *SIZES, *PROGRAMS, *APPLICATIONS, *VIEWS, *TRANSFORMS,
        *(RATES if options.device != "cpu" else ()),
    )  # fmt: skip
    chosen = [row for row in rows if re.search(options.rows, f"{row.group}: {row.name}")]
    time = partial(
        time_calls, seconds=options.seconds, least_turns=options.turns,
        statistic=fmean if options.mean else min,
    )  # fmt: skip
    results = []
    for k, row in enumerate(chosen, 1):
        if perf_counter() > ends:
            left = len(chosen) - k + 1
            print(f"time is up: {left} of {len(chosen)} rows were not timed", file=sys.stderr)
            break
        print(f"[threads {options.threads}, row {k} of {len(chosen)}] {row.name}", file=sys.stderr)
        cells = time_row(row, libraries, time)
        for library in libraries.values():
            library.forget()
        result = {"group": row.group, "name": row.name, "cells": cells}
        results.append(result | ({"moves": row.moves} if row.moves else {}))
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
