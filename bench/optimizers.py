"""Steps of optimisers beside PyTorch's: many small parameters, and a few large ones.

    python bench/optimizers.py [--rows PATTERN] [--turns 12]

One thread; a figure is the processor time of a step, the least of some turns, so that other programs on the
machine do not count. In brackets PyTorch's time, as it steps by default, divided by adjit's: above 1, adjit is
ahead. Parameters are compared afterwards. A full run is written to bench/results/, a run of chosen rows
is only printed.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from math import inf
from pathlib import Path
from time import sleep, thread_time
from typing import Any

import machine
from timing import limit_threads

FOLDER = Path(__file__).parent
RULES: dict[str, tuple[str, dict[str, Any]]] = {
    "SGD, momentum": ("SGD", {"lr": 0.1, "momentum": 0.9}),
    **{name: (name, {}) for name in ("Adam", "Adamax", "NAdam", "RAdam", "ASGD", "Adadelta", "Rprop")},
    "Adagrad": ("Adagrad", {}),
    "RMSprop": ("RMSprop", {}),
    "RMSprop, centered, momentum": ("RMSprop", {"momentum": 0.9, "centered": True}),
    "Adafactor": ("Adafactor", {}),
    "Muon": ("Muon", {}),
}  # fmt: skip
# Shapes, and the steps of a turn.
SIZES = {
    "100 of 32x32": ([(32, 32)] * 100, 5),
    "10 of 512x1024": ([(512, 1024)] * 10, 1),
}
WARM = 10  # turns until machine code and plans are there
# Muon's products are float32 here and bfloat16 in PyTorch, whose steps differ by that.
TOLERANCE = {"Muon": 1e-2}


def steps_of(
    library: Any, rule: str, options: dict[str, Any], shapes: list[Any], count: int
) -> tuple[Callable[[], None], list[Any]]:
    """Some steps, and the parameters that they move."""
    import numpy as np

    from adjit.schedule.settle import settle

    random = np.random.default_rng(0)
    params = []
    for shape in shapes:
        p = library.tensor(random.standard_normal(shape, np.float32)).requires_grad_()
        p.grad = library.tensor(random.standard_normal(shape, np.float32))
        params.append(p)
    optimizer = getattr(library.optim, rule)(params, **options)

    def steps() -> None:
        for _ in range(count):
            optimizer.step()
            settle()  # `data_ptr` would show the parameters to others, and steps then go by copies

    return steps, params


def time_steps(name: str, size: str, turns: int) -> tuple[float, float]:
    """Microseconds of a step in adjit and in PyTorch."""
    import numpy as np
    import torch

    import adjit

    rule, options = RULES[name]
    shapes, count = SIZES[size]
    (ours, found), (theirs, expected) = (
        steps_of(library, rule, options, shapes, count) for library in (adjit, torch)
    )
    for k in range(WARM):
        ours()
        theirs()
        if k == WARM // 2:
            sleep(0.5)  # kernels are compiled beside
    best = [inf, inf]
    for _ in range(turns):
        for k, call in enumerate((ours, theirs)):
            before = thread_time()
            call()
            best[k] = min(best[k], thread_time() - before)
    for a, b in zip(found, expected, strict=True):
        assert np.abs(a.detach().numpy() - b.detach().numpy()).max() < TOLERANCE.get(name, 1e-3)
    return best[0] / count * 1e6, best[1] / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default="", metavar="PATTERN", help="regular expression")
    parser.add_argument("--turns", type=int, default=12, help="for each library")
    options = parser.parse_args()
    limit_threads(1)
    import torch

    import adjit

    torch.set_num_threads(1)
    adjit.set_num_threads(1)
    lines = [
        "| optimiser | " + " | ".join(f"{size}, us | PyTorch" for size in SIZES) + " |",
        "|---" + "|--:" * 2 * len(SIZES) + "|",
    ]
    chosen = [name for name in RULES if re.search(options.rows, name)]
    if not chosen:
        parser.error(f"no row matches {options.rows!r}")
    for k, name in enumerate(chosen, 1):
        print(f"[{k} of {len(chosen)}] {name}", file=sys.stderr)
        cells = []
        for size in SIZES:
            ours, theirs = time_steps(name, size, options.turns)
            cells += [f"{ours:.0f}", f"{theirs:.0f} ({theirs / ours:.2f})"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    text = f"{machine.description()}\n\n`python bench/optimizers.py`\n\n" + "\n".join(lines)
    print(text)
    if not options.rows:
        target = FOLDER / "results" / f"{machine.short_name()}-optimizers.md"
        target.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
