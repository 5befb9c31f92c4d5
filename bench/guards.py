"""What the guards of `adjit.compile` cost: captured programs with them and, in turn, without.

    python bench/guards.py [--rows PATTERN] [--seconds 3]

`assume_pure=True` leaves the guards out. The last row is a training step of 60 parameters with Adam: 30 linear
layers, so many objects that a call has to find as they were.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from functools import partial
from math import exp, log
from typing import Any

import libraries
import machine
import timing
from programs import PROGRAMS

LAYERS, WIDTH = 30, 16


def training_step(capture: Callable[..., Any]) -> Callable[[], Any]:
    """Adam on a deep narrow network, whose modules are read at every step."""
    import adjit
    from adjit import nn

    adjit.manual_seed(0)
    layers = [part for _ in range(LAYERS) for part in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
    model = nn.Sequential(*layers)
    optimizer = adjit.optim.Adam(model.parameters())
    x, y = adjit.rand(4, WIDTH), adjit.rand(4, WIDTH)

    @capture
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return lambda: step(x, y)


class Watched:
    """`adjit.compile`, which remembers what it made."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.made: list[Any] = []

    def __call__(self, step: Callable[..., Any], **_: Any) -> Any:
        import adjit

        self.made.append(adjit.compile(step, **self.options))
        return self.made[-1]

    def guards(self) -> list[Any]:
        """The guards of all captures."""
        from adjit.captured.compiled import CompiledFunction

        cells = [c.cell_contents for step in self.made for c in step.__closure__]
        found = [cell for cell in cells if isinstance(cell, CompiledFunction)]
        return [
            capture.guards
            for compiled in found
            for kind in compiled.captures.values()
            for capture in kind.replays
        ]


def measure(prepare: Callable[[Any], Callable[[], Any]], seconds: float) -> tuple[float, ...]:
    """Seconds of a call with guards, of one without, and of the guards alone; words of memory in them."""
    guarded = Watched()
    calls = {"guarded": prepare(guarded), "pure": prepare(Watched(assume_pure=True))}
    for call in calls.values():
        for _ in range(12):
            call()
    guards = guarded.guards()
    if not guards:
        raise RuntimeError("nothing was captured")
    times = timing.time_calls({**calls, "guards": guards[0].hold}, seconds, 3)
    return times["guarded"], times["pure"], times["guards"], len(guards[0].table) // 24


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default="", metavar="PATTERN", help="regular expression")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each row")
    options = parser.parse_args()
    timing.limit_threads(1)
    library = libraries.CapturedAdjit()
    library.set_threads(1)

    def prepared(row: Any, capture: Any) -> Callable[[], Any]:
        call = row.programs["torch"](library.module, capture, *row.data())
        return lambda: library.finish(call())

    rows = {
        row.name: partial(prepared, row) for row in PROGRAMS if row.runs_in(library)
    } | {f"Adam step, {LAYERS} linear layers of {WIDTH}x{WIDTH}": training_step}  # fmt: skip
    print(machine.description())
    print("\n| program | us | us without guards | ratio | guards alone, us | words |")
    print("|---|--:|--:|--:|--:|--:|")
    ratios = []
    for name, prepare in rows.items():
        if re.search(options.rows, name):
            guarded, pure, alone, words = measure(prepare, options.seconds)
            ratios.append(guarded / pure)
            print(
                f"| {name} | {guarded * 1e6:.1f} | {pure * 1e6:.1f} | {ratios[-1]:.3f} "
                f"| {alone * 1e6:.2f} | {words} |",
                flush=True,
            )
    if ratios:
        print(f"\nGeometric mean {exp(sum(map(log, ratios)) / len(ratios)):.3f}")


if __name__ == "__main__":
    main()
