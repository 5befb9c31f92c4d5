"""Gradients of users' own Numba kernels, over the kernels themselves.

    python bench/user_kernels.py [--rows PATTERN] [--seconds 0.5] [--turns 3]

One thread; kernels and what they are given are in loops.py. Value and gradient (`adjit.value_and_grad`,
called from Python, arguments left alone) take turns with the kernel compiled by Numba, with an adjoint by
hand, with PyTorch, and with JAX's jitted `scan` if it is installed, where loops_elsewhere.py has those; the
shortest sample counts, and one call of what takes longer than a second. All results are compared first. In
brackets the time divided by that of adjit: above 1, adjit is ahead. The tape is the most memory in use on
the way back; beside it what an adjoint has to keep. A full run is written to bench/results/, a run of chosen
rows is only printed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
from collections.abc import Callable
from math import exp, log
from pathlib import Path
from time import perf_counter
from typing import Any

import machine
from timing import limit_threads, time_calls

FOLDER = Path(__file__).parent
OTHERS = ("by hand", "PyTorch", "JAX")


def measure(loop: Any, seconds: float, turns: int) -> dict[str, Any]:
    """Seconds of a kernel and of its value and gradient in all ways; bytes of its tape."""
    import numpy as np
    from loops import compiled
    from loops_elsewhere import BY_HAND, in_jax, in_torch

    import adjit

    args = loop.make(np.random.default_rng(1), False)
    wanted = [k for k, a in enumerate(args) if np.asarray(a).dtype.kind == "f"]
    plain, both = compiled(loop.f), adjit.value_and_grad(loop.f)
    started = perf_counter()
    value, gradients = both(*args)
    ready = perf_counter() - started
    calls: dict[str, Callable[[], Any]] = {
        "adjit": lambda: both(*args),
        "by hand": (hand := BY_HAND.get(loop.f.__name__)) and (lambda: hand(*args)),
        "PyTorch": in_torch(loop.f.__name__, args, wanted),
        "JAX": in_jax(loop.f.__name__, args, wanted),
    }
    calls = {name: call for name, call in calls.items() if call is not None}
    slow = {}
    for name, call in list(calls.items()):
        call()
        started = perf_counter()
        found, slopes = call()
        if (taken := perf_counter() - started) > 1:
            slow[name] = taken
            del calls[name]
        found = found.item() if hasattr(found, "item") else found
        assert np.allclose(found, value, rtol=1e-8), (loop.name, name, found, value)
        for a, b in zip(slopes, gradients, strict=True):
            scale = np.abs(b).max()
            assert np.abs(np.asarray(a) - b).max() <= 1e-6 * scale + 1e-12, (loop.name, name)
    assert np.allclose(plain(*args), value, rtol=1e-10), loop.name
    calls["kernel"] = lambda: plain(*args)
    text = adjit.kernel(loop.f).explain(*args)
    (tape,) = re.findall(r"on the tape: (\d+) bytes", text)
    return {
        "name": loop.name,
        "seconds": time_calls(calls, seconds, turns) | slow,
        "tape": int(tape),
        "least": int(loop.least(*args)),
        "ready": ready,
    }


def ratio(row: dict[str, Any]) -> float:
    """Value and gradient over the kernel's own time."""
    return float(row["seconds"]["adjit"] / row["seconds"]["kernel"])


def _microseconds(seconds: float) -> str:
    return f"{1e6 * seconds:,.3g}" if seconds < 1e-3 else f"{1e6 * seconds:,.0f}"


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| kernel | alone, us | value and gradient | over it | "
        + " | ".join(OTHERS)
        + " | tape, KB | least, KB | over it | first call, s |",
        "|---|--:|--:|--:" + "|--:" * len(OTHERS) + "|--:|--:|--:|--:|",
    ]
    for row in rows:
        times = row["seconds"]
        cells = [_microseconds(times["kernel"]), _microseconds(times["adjit"]), f"{ratio(row):.2f}"]
        for name in OTHERS:
            there = name in times
            ahead = f" ({times[name] / times['adjit']:.2f})" if there else ""
            cells.append(_microseconds(times[name]) + ahead if there else "")
        cells += [f"{row['tape'] / 1e3:,.1f}", f"{row['least'] / 1e3:,.1f}"]
        cells += [f"{row['tape'] / row['least']:.2f}", f"{row['ready']:.1f}"]
        lines.append(f"| {row['name']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def summary(rows: list[dict[str, Any]]) -> str:
    """Means and extremes of all rows."""
    found = [ratio(row) for row in rows]
    worst = max(rows, key=ratio)
    lines = [
        f"- value and gradient over the kernel: geometric mean {exp(sum(map(log, found)) / len(found)):.2f}, "
        f"worst {ratio(worst):.2f} ({worst['name']})"
    ]
    for name in OTHERS:
        times = [row["seconds"] for row in rows if name in row["seconds"]]
        if times:
            ahead = [t[name] / t["adjit"] for t in times]
            mean = exp(sum(map(log, ahead)) / len(ahead))
            lines.append(f"- {name} over adjit: geometric mean {mean:.2f}, least {min(ahead):.2f}")
    memory = max(rows, key=lambda row: row["tape"] / row["least"])
    lines.append(
        f"- tape over the least: worst {memory['tape'] / memory['least']:.2f} ({memory['name']})"
    )
    return "\n".join(lines)


def versions() -> str:
    found = []
    for name in ("numba", "numpy", "torch", "jax"):
        try:
            found.append(f"{name} {importlib.import_module(name).__version__}")
        except ImportError:
            continue
    return ", ".join(found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default="", metavar="PATTERN", help="regular expression")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each row")
    parser.add_argument("--turns", type=int, default=3, help="at least, for each way")
    options = parser.parse_args()
    name, description = machine.short_name(), machine.description()
    limit_threads(1)
    from loops import LOOPS

    chosen = [loop for loop in LOOPS if re.search(options.rows, loop.name)]
    if not chosen:
        parser.error(f"no row matches {options.rows!r}")
    rows = []
    for k, loop in enumerate(chosen, 1):
        print(f"[{k} of {len(chosen)}] {loop.name}", file=sys.stderr)
        rows.append(measure(loop, options.seconds, options.turns))
    head = f"{description}, {versions()}\n\n`python bench/user_kernels.py`"
    text = f"{head}\n\n{table(rows)}\n\n{summary(rows)}"
    print(text)
    if not options.rows:
        target = FOLDER / "results" / f"{name}-user-kernels"
        target.with_suffix(".md").write_text(text + "\n", encoding="utf-8")
        report = {"machine": description, "rows": rows}
        target.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
