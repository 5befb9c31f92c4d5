"""Recurrent layers beside PyTorch: forward, and forward with all gradients.

    python bench/recurrent.py [--threads 1,2] [--rows PATTERN] [--seconds 0.5] [--turns 3]

A row is a layer of as many inputs as hidden elements, in float32, over sequences of one length. Both libraries
have the same weights, take turns, and the shortest sample counts; results are compared first. GFLOP/s are
those of the products alone. In brackets PyTorch's time divided by adjit's: above 1, adjit is ahead. The
last columns have the speed of adjit's own product of the inputs of all steps, and how far ahead of PyTorch
a layer could be that runs as fast as that and computes nothing else. A full run is written to
bench/results/, a run of chosen rows is only printed.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from math import exp, log
from pathlib import Path
from typing import Any, NamedTuple

import machine
from timing import limit_threads, time_calls

FOLDER = Path(__file__).parent
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
PASSES = ("forward", "training")
WANTED = 2  # times PyTorch's speed


class Layer(NamedTuple):
    """A layer over a batch of sequences."""

    kind: str
    hidden: int
    batch: int
    steps: int

    @property
    def name(self) -> str:
        return f"{self.kind} {self.hidden}, batch {self.batch}, {self.steps} steps"

    def gflop(self, which: str) -> float:
        """Two products a step forward, and four more back."""
        one = 2e-9 * self.steps * self.batch * self.hidden**2 * GATES[self.kind]
        return one * (2 if which == "forward" else 6)


def layers() -> Iterator[Layer]:
    for kind in GATES:
        for hidden in (64, 256, 512):
            for batch in (1, 16, 64):
                for steps in (50, 200):
                    yield Layer(kind, hidden, batch, steps)


def time_layer(row: Layer, seconds: float, turns: int) -> dict[str, dict[str, float]]:
    """Seconds of both passes in each library, and of the product of the inputs."""
    import numpy as np
    import torch

    import adjit

    ours = getattr(adjit.nn, row.kind)(row.hidden, row.hidden)
    theirs = getattr(torch.nn, row.kind)(row.hidden, row.hidden)
    theirs.load_state_dict({k: torch.tensor(v.numpy()) for k, v in ours.state_dict().items()})
    shape = row.steps, row.batch, row.hidden
    values = np.random.default_rng(0).standard_normal(shape, np.float32)
    x, y = adjit.tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)
    flat, weight = x.detach().view(-1, row.hidden), ours.weight_ih_l0.detach()

    def forward(library: Any, layer: Any, given: Any) -> Any:
        with library.no_grad():
            return layer(given)[0]

    def training(layer: Any, given: Any) -> Any:
        layer.zero_grad()
        given.grad = None
        layer(given)[0].sum().backward()
        return given.grad

    def done(result: Any) -> Any:
        result.data_ptr()  # whatever is recorded runs
        return result

    calls: dict[str, dict[str, Callable[[], Any]]] = {
        "forward": {
            "adjit": lambda: done(forward(adjit, ours, x)),
            "PyTorch": lambda: forward(torch, theirs, y),
        },
        "training": {
            "adjit": lambda: done(training(ours, x)),
            "PyTorch": lambda: training(theirs, y),
        },
        "product": {"adjit": lambda: done(flat @ weight.t())},
    }
    for which in PASSES:
        found, expected = (call().detach().numpy() for call in calls[which].values())
        assert np.abs(found - expected).max() < 1e-3 * np.abs(expected).max(), row.name
    return {which: time_calls(both, seconds, turns) for which, both in calls.items()}


def measure(threads: int, pattern: str, seconds: float, turns: int) -> None:
    """The process of one thread count: rows as JSON."""
    limit_threads(threads)
    import torch

    import adjit

    torch.set_num_threads(threads)
    adjit.set_num_threads(threads)
    chosen = [row for row in layers() if re.search(pattern, row.name)]
    rows = []
    for k, row in enumerate(chosen, 1):
        print(f"[threads {threads}, {k} of {len(chosen)}] {row.name}", file=sys.stderr)
        passes = time_layer(row, seconds, turns)
        gflop = {which: row.gflop(which) for which in PASSES}
        rows.append({"name": row.name, "gflop": gflop, "threads": threads, "passes": passes})
    print(json.dumps(rows))


def ahead(row: dict[str, Any], which: str) -> float:
    """PyTorch's time over adjit's."""
    times = row["passes"][which]
    return float(times["PyTorch"] / times["adjit"])


def bound(row: dict[str, Any], which: str) -> float:
    """How far ahead a layer would be that is nothing but products at the speed of that of the inputs."""
    products = row["gflop"][which] / row["gflop"]["forward"] * 2
    return float(row["passes"][which]["PyTorch"] / (products * row["passes"]["product"]["adjit"]))


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| layer | threads | " + " | ".join(f"{n}, ms | PyTorch | GFLOP/s | PyTorch" for n in PASSES)
        + " | product | " + " | ".join(f"{n} at most" for n in PASSES) + " |",
        "|---|---" + "|--:" * 11 + "|",
    ]  # fmt: skip
    for row in rows:
        cells = []
        for which in PASSES:
            times, gflop = row["passes"][which], row["gflop"][which]
            cells += [f"{1e3 * times['adjit']:.3f}"]
            cells += [f"{1e3 * times['PyTorch']:.3f} ({ahead(row, which):.2f})"]
            cells += [f"{gflop / times[name]:.0f}" for name in ("adjit", "PyTorch")]
        product = row["gflop"]["forward"] / 2 / row["passes"]["product"]["adjit"]
        cells += [f"{product:.0f}", *(f"{bound(row, which):.2f}" for which in PASSES)]
        lines.append(f"| {row['name']} | {row['threads']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def summary(rows: list[dict[str, Any]]) -> str:
    """Means by kind of layer, and how many rows are as far ahead as is wanted."""
    lines = []
    for threads in sorted({row["threads"] for row in rows}):
        for kind in GATES:
            chosen = [r for r in rows if r["threads"] == threads and r["name"].startswith(kind)]
            for which in PASSES if chosen else ():
                found = [ahead(row, which) for row in chosen]
                mean = exp(sum(map(log, found)) / len(found))
                enough = sum(ratio >= WANTED for ratio in found)
                lines.append(
                    f"- {kind}, {which}, threads {threads}: geometric mean {mean:.2f}, least "
                    f"{min(found):.2f}, {enough} of {len(found)} at least {WANTED}"
                )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default="", metavar="PATTERN", help="regular expression")
    parser.add_argument("--threads", default="1,2", metavar="1,2", help="thread counts")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each pass of a row")
    parser.add_argument("--turns", type=int, default=3, help="at least, for each library")
    parser.add_argument("--process", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.process:
        measure(options.process, options.rows, options.seconds, options.turns)
        return
    rows: list[dict[str, Any]] = []
    for threads in options.threads.split(","):
        command = [sys.executable, str(Path(__file__)), f"--process={threads}"]
        command += [f"--rows={options.rows}", f"--seconds={options.seconds}"]
        command += [f"--turns={options.turns}"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        rows += json.loads(done.stdout.splitlines()[-1])
    if not rows:
        parser.error(f"no row matches {options.rows!r}")
    description = machine.description()
    text = f"{description}\n\n{table(rows)}\n\n{summary(rows)}"
    print(text)
    if not options.rows:
        target = FOLDER / "results" / f"{machine.short_name()}-recurrent"
        target.with_suffix(".md").write_text(text + "\n", encoding="utf-8")
        report = {"machine": description, "rows": rows}
        target.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
