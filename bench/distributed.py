"""Training and all-reduce over several processes, beside PyTorch's gloo.

    python bench/distributed.py [--processes 1,2] [--rows PATTERN] [--threads 1] [--seconds 0.5] [--turns 3]

A row of training is a step of a network in `DistributedDataParallel` with SGD, forward, backward and update.
Weak scaling: each process has a whole batch; strong: the processes share one. Both are the time of one
process over that of several: 1 is best for the former, their number for the latter. An all-reduce row has
its time, and the bytes that each process sends in it, 2 (n - 1) / n of the tensor's, by that. Each process
has `--threads` threads. The libraries take turns, with new processes each time; the slowest process counts,
and of all samples the shortest. In brackets PyTorch's time divided by adjit's: above 1, adjit is ahead. A
full run is written to bench/results/, a run of chosen rows is only printed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import machine
from timing import limit_threads

FOLDER = Path(__file__).parent
LIBRARIES = ("adjit", "PyTorch")
STEPS = 5  # in a sample


class Row(NamedTuple):
    """What all processes do together."""

    name: str
    kind: str  # weak, strong or reduce
    size: int  # examples of a batch, or elements of a tensor
    width: int = 0  # of the network


ROWS = (
    *(Row(f"weak, {n} of {w}", "weak", n, w) for n, w in ((64, 512), (256, 512), (256, 1024))),
    *(Row(f"strong, {n} of {w}", "strong", n, w) for n, w in ((256, 512), (1024, 512), (512, 1024))),
    *(Row(f"all-reduce of {n} KiB", "reduce", n * 256) for n in (4, 64, 1024, 16384)),
)  # fmt: skip


def step_of(row: Row, library: Any, dist: Any) -> Callable[[], object]:
    """What is timed, in one process."""
    if row.kind == "reduce":
        x = library.ones(row.size)

        def reduce() -> object:
            dist.all_reduce(x)
            return x.mul_(0.5).data_ptr()  # the elements stay what they are with two processes

        return reduce
    nn, size = library.nn, dist.get_world_size()
    library.manual_seed(0)
    layers = [nn.Linear(784, row.width), nn.ReLU(), nn.Linear(row.width, row.width), nn.ReLU()]
    net = nn.parallel.DistributedDataParallel(nn.Sequential(*layers, nn.Linear(row.width, 10)))
    optimizer = library.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    count = row.size if row.kind == "weak" else row.size // size
    x, labels = library.randn(count, 784), library.arange(count) % 10

    def step() -> object:
        optimizer.zero_grad()
        library.nn.functional.cross_entropy(net(x), labels).backward()
        optimizer.step()
        return [p.data_ptr() for p in net.parameters()]  # whatever is recorded runs

    return step


def time_together(step: Callable[[], object], library: Any, dist: Any, seconds: float) -> float:
    """Seconds of a step, of the slowest process in the best sample."""
    best, spent = float("inf"), 0.0
    for sample in range(10_000):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(STEPS):
            step()
        elapsed = library.tensor([time.perf_counter() - start], dtype=library.float64)
        dist.all_reduce(elapsed, op=dist.ReduceOp.MAX)
        slowest = elapsed.item()  # the same in all processes, so they end together
        spent += slowest
        if sample >= 3:  # what compiles is over
            best = min(best, slowest / STEPS)
            if spent > seconds:
                break
    return best


def work(name: str, pattern: str, threads: int, seconds: float) -> None:
    """One process: prints the seconds of each row, if it is the first."""
    limit_threads(threads)
    if name == "adjit":
        import adjit as library
        import adjit.distributed as dist
    else:
        import torch as library
        import torch.distributed as dist
    library.set_num_threads(threads)
    dist.init_process_group("gloo")
    found = {}
    for row in ROWS:
        if re.search(pattern, row.name):
            found[row.name] = time_together(step_of(row, library, dist), library, dist, seconds)
    dist.barrier()
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()


def measured(name: str, count: int, options: argparse.Namespace) -> dict[str, float]:
    """The rows of a library with so many processes."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [sys.executable, str(Path(__file__)), f"--work={name}", f"--rows={options.rows}"]
    command += [f"--threads={options.threads}", f"--seconds={options.seconds}"]
    given = {**os.environ, "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1"}
    running = [
        subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True,
            env={**given, "RANK": str(rank), "MASTER_PORT": str(port)},
        )
        for rank in range(count)
    ]  # fmt: skip
    try:
        told = [process.communicate()[0] for process in running]
    finally:
        for process in running:
            process.kill()
    if any(process.returncode for process in running):
        raise SystemExit(f"{name} with {count} processes failed")
    return dict(json.loads(told[0].splitlines()[-1]))


def table(times: dict[tuple[str, int], dict[str, float]], counts: list[int]) -> str:
    """Training first, then all-reduce."""
    head = "| {} | processes | adjit, ms | PyTorch | {} | PyTorch |\n|---|--:|--:|--:|--:|--:|"
    training, reduced = [head.format("training step", "scaling")], [head.format("", "GB/s")]
    for row in ROWS:
        for count in counts:
            both = [times[name, count].get(row.name) for name in LIBRARIES]
            if None in both:
                continue
            ours, theirs = (1e3 * seconds for seconds in both)
            cells = [row.name, str(count), f"{ours:.3f}", f"{theirs:.3f} ({theirs / ours:.2f})"]
            if row.kind == "reduce":
                sent = 4e-9 * row.size * 2 * (count - 1) / count
                cells += [f"{sent / seconds:.2f}" if sent else "" for seconds in both]
            else:
                alone = [times[name, counts[0]][row.name] for name in LIBRARIES]
                cells += [f"{a / b:.2f}" for a, b in zip(alone, both, strict=True)]
            (reduced if row.kind == "reduce" else training).append(f"| {' | '.join(cells)} |")
    return "\n\n".join(["\n".join(lines) for lines in (training, reduced) if len(lines) > 1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", default="1,2", metavar="1,2", help="how many, in turn")
    parser.add_argument("--rows", default="", metavar="PATTERN", help="regular expression")
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each row of a turn")
    parser.add_argument("--turns", type=int, default=3, help="for each library")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.rows, options.threads, options.seconds)
        return
    if not any(re.search(options.rows, row.name) for row in ROWS):
        parser.error(f"no row matches {options.rows!r}")
    counts = [int(count) for count in options.processes.split(",")]
    times: dict[tuple[str, int], dict[str, float]] = {}
    for turn in range(options.turns):
        for count in counts:
            for name in LIBRARIES:
                print(f"[turn {turn + 1}] {name}, {count} processes", file=sys.stderr)
                known = times.setdefault((name, count), {})
                for row, seconds in measured(name, count, options).items():
                    known[row] = min(seconds, known.get(row, float("inf")))
    text = f"{machine.description()}\n\n{table(times, counts)}"
    print(text)
    if not options.rows:
        target = FOLDER / "results" / f"{machine.short_name()}-distributed.md"
        target.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
