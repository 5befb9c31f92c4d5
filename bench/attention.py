"""Attention beside PyTorch: `scaled_dot_product_attention` forward, and with the gradients of all operands.

    python bench/attention.py [--threads 1,2] [--rows PATTERN] [--seconds 0.5] [--turns 3]

One batch of 8 heads of 64, which lie side by side in memory as projections leave them, causal or not. In
brackets PyTorch's time divided by adjit's: above 1, adjit is ahead. GFLOP/s count the products of the
scores that are seen: two of them forward, five more backward. A full run is written to bench/results/,
a run of chosen rows is only printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import ceil
from typing import Any, NamedTuple

from side_by_side import Time, run
from timing import time_calls

HEADS, DEPTH = 8, 64
POSITIONS = (128, 512, 1024, 4096)
PASSES = ("forward", "with gradients")
SAMPLE = 1e-3  # seconds that a group of calls takes


class Attention(NamedTuple):
    """A sequence that attends to itself."""

    positions: int
    is_causal: bool

    @property
    def name(self) -> str:
        return f"{self.positions} positions{', causal' if self.is_causal else ''}"

    def gflop(self, which: str) -> float:
        seen = self.positions * (self.positions + 1) / 2 if self.is_causal else self.positions**2
        return HEADS * seen * DEPTH * (4 if which == "forward" else 14) / 1e9


def rows() -> Iterator[Attention]:
    for positions in POSITIONS:
        for is_causal in (False, True):
            yield Attention(positions, is_causal)


def call_of(library: Any, row: Attention, which: str, arrays: list[Any]) -> Callable[[], Any]:
    """One pass in one library."""
    gradients = which != "forward"
    *leaves, upper = (library.tensor(a) for a in arrays)
    for t in leaves:
        t.requires_grad_(gradients)
    attend = library.nn.functional.scaled_dot_product_attention

    def call() -> Any:
        heads = [t.transpose(1, 2) for t in leaves]
        out = attend(*heads, is_causal=row.is_causal).transpose(1, 2)
        return library.autograd.grad(out, leaves, upper) if gradients else [out]

    return call


def time_attention(row: Attention, which: str, seconds: float, turns: int) -> dict[str, float]:
    """Seconds of one pass in each library, after checking that they agree."""
    import numpy as np
    import torch

    import adjit
    from adjit.schedule.settle import settle

    random = np.random.default_rng(0)
    shape = 1, row.positions, HEADS, DEPTH
    arrays = [random.standard_normal(shape).astype(np.float32) for _ in range(4)]
    ours, theirs = (call_of(library, row, which, arrays) for library in (adjit, torch))
    for a, b in zip(ours(), theirs(), strict=True):
        assert np.allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-3, atol=1e-4)
    count = max(1, ceil(SAMPLE / (row.gflop(which) / 50)))

    def together() -> Any:
        results = [ours() for _ in range(count)]
        settle()
        return results

    best = time_calls(
        {"adjit": together, "PyTorch": lambda: [theirs() for _ in range(count)]}, seconds, turns
    )
    return {name: t / count for name, t in best.items()}


def timed_rows() -> Iterator[tuple[str, Time]]:
    for row in rows():
        yield row.name, partial(time_row, row)


def time_row(row: Attention, seconds: float, turns: int) -> dict[str, Any]:
    """What a row's passes take, and their GFLOP."""
    return {
        "gflop": {name: row.gflop(name) for name in PASSES},
        "passes": {name: time_attention(row, name, seconds, turns) for name in PASSES},
    }


def table(found: list[dict[str, Any]]) -> str:
    lines = [
        "| 8 heads of 64 | threads | " + " | ".join(f"{n}, ms | GFLOP/s | PyTorch" for n in PASSES) + " |",
        "|---|---" + "|--:" * 6 + "|",
    ]  # fmt: skip
    for row in found:
        cells = []
        for name in PASSES:
            ours, theirs = row["passes"][name]["adjit"], row["passes"][name]["PyTorch"]
            cells += [f"{ours * 1e3:.2f}", f"{row['gflop'][name] / ours:.0f}"]
            cells.append(f"{theirs * 1e3:.2f} ({theirs / ours:.2f})")
        lines.append(f"| {row['name']} | {row['threads']} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    run(__file__, __doc__, timed_rows, table, seconds=0.5)
