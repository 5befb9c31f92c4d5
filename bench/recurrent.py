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

from collections.abc import Callable, Iterator
from functools import partial
from math import exp, log
from typing import Any, NamedTuple

from side_by_side import Time, run
from timing import time_calls

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


def timed_rows() -> Iterator[tuple[str, Time]]:
    for row in layers():
        yield row.name, partial(time_row, row)


def time_row(row: Layer, seconds: float, turns: int) -> dict[str, Any]:
    """What a layer's passes take, and their GFLOP."""
    gflop = {which: row.gflop(which) for which in PASSES}
    return {"gflop": gflop, "passes": time_layer(row, seconds, turns)}


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


def report(rows: list[dict[str, Any]]) -> str:
    return f"{table(rows)}\n\n{summary(rows)}"


if __name__ == "__main__":
    run(__file__, __doc__, timed_rows, report, seconds=0.5)
