"""Large graphs: a thousand to a million nodes recorded, walked back and released, beside PyTorch.

    python bench/scale.py [--sizes 1000,10000,100000,1000000] [--repeats 3] [--only PATTERN]

Each figure is the least of several new processes. A graph is recorded and its value read (record), walked
back and the gradient read (backward), and let go of (release); or let go of without a walk (dropped). Times
are microseconds a node, so a row that is linear has the same figure everywhere; memory is what the process
holds more than before at its peak, bytes a node. Smaller graphs have gone before, until nothing was compiled.
"""

from __future__ import annotations

import argparse
import gc
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from fresh import peak_bytes, tidy
from libraries import LIBRARIES

WIDTH = 16  # elements of each value
WARM = 5000  # nodes of the graphs that go before: some batches of what is recorded


def chain(torch: Any, x: Any, w: Any, nodes: int) -> Any:
    """Each value is made of the one before."""
    y = x
    for _ in range(nodes // 2):
        y = y * w + x
    return y


def fan(torch: Any, x: Any, w: Any, nodes: int) -> Any:
    """All values are made of the same two, and summed at the end by pairs."""
    values = [x * w for _ in range(nodes // 2)]
    while len(values) > 1:
        rest = values[len(values) // 2 * 2 :]
        values = [a + b for a, b in zip(values[::2], values[1::2], strict=False)] + rest
    return values[0]


def net(torch: Any, x: Any, w: Any, nodes: int) -> Any:
    """Values are made of two others, the last one and one of the last eight."""
    values = [w, x]
    for k in range(nodes // 3):
        values.append((values[-1] + values[-1 - k % min(8, len(values))]).sin() * 0.5)
        del values[:-8]
    return values[-1]


def writes(torch: Any, x: Any, w: Any, nodes: int) -> Any:
    """One value is written in place again and again, through a view every other time."""
    y = x.clone()
    for _ in range(nodes // 2):
        y.add_(w)
        y[1:-1] *= 0.5
    return y


GRAPHS: dict[str, Callable[[Any, Any, Any, int], Any]] = {
    "chain": chain, "fan": fan, "net": net, "writes": writes,
}  # fmt: skip
STAGES = ("record", "backward", "release", "dropped")


def once(torch: Any, build: Callable[..., Any], nodes: int) -> list[float]:
    """Seconds of each stage."""
    x = torch.full((WIDTH,), 0.5, requires_grad=True)
    w = torch.full((WIDTH,), 0.9, requires_grad=True)
    times = []

    def lap(start: float) -> float:
        times.append(perf_counter() - start)
        return perf_counter()

    start = perf_counter()
    loss = build(torch, x, w, nodes).sum()
    loss.item()
    start = lap(start)
    loss.backward()
    x.grad.tolist()
    start = lap(start)
    del loss
    start = lap(start)
    loss = build(torch, x, w, nodes).sum()
    loss.item()
    start = perf_counter()
    del loss
    lap(start)
    return times


@contextmanager
def collecting() -> Iterator[list[float]]:
    """Seconds of the collections of cycles that come in between."""
    seconds: list[float] = []
    started = perf_counter()

    def note(phase: str, _: dict[str, int]) -> None:
        nonlocal started
        if phase == "start":
            started = perf_counter()
        else:
            seconds.append(perf_counter() - started)

    gc.callbacks.insert(0, note)  # before what adjit does at the start of one
    yield seconds
    gc.callbacks.remove(note)


def one(name: str, graph: str, nodes: int) -> None:
    """Print what this process takes."""
    library = LIBRARIES[name]()
    torch, build = library.module, GRAPHS[graph]
    for _ in range(4):
        once(torch, build, WARM)
        library.catch_up()
    library.give_back()
    before = tidy()
    with collecting() as collected:
        times = once(torch, build, nodes)
    print(*times, peak_bytes() - before, sum(collected))


def asked(*of: str) -> list[float]:
    command = [sys.executable, __file__, "--one", *of]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return list(map(float, done.stdout.split()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--sizes", default="1000,10000,100000,1000000")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    if options.one:
        library, graph, nodes = options.one
        one(library, graph, int(nodes))
        return
    sizes = list(map(int, options.sizes.split(",")))
    head = [f"{stage}, µs" for stage in STAGES] + ["peak, bytes", "collector"]
    print("| graph | library | nodes |", " | ".join(head), "|")
    print("|---|---|--:|" + "--:|" * len(head))
    for name in GRAPHS:
        if not re.search(options.only, name):
            continue
        for library in ("adjit", "PyTorch"):
            for nodes in sizes:
                taken = [asked(library, name, str(nodes)) for _ in range(options.repeats)]
                *times, peak, collected = map(min, zip(*taken, strict=True))
                cells = [f"{t / nodes * 1e6:.2f}" for t in times]
                cells += [f"{peak / nodes:.0f}", f"{collected / sum(times):.1%}"]
                print(f"| {name} | {library} | {nodes:,} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
