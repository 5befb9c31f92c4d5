"""Random programs whose arrays get other names: `python tests/fuzz_names.py COUNT [FIRST]`.

Names are bound to arrays, views and copies, in loops and before them, change places, and are written and read.
The value is that of plain Python, where a name is a name; the gradient is compared with differences.
"""

from __future__ import annotations

import os
import random
import sys

if __name__ == "__main__":
    os.environ["NUMBA_DISABLE_JIT"] = "1"

import fuzz_kernels
import numpy as np

import adjit
from adjit.user_kernels import NotDifferentiable

NAMES = "abcd"
BINDINGS = ["{w}", "{w}", "{w}[:]", "np.ascontiguousarray({w})", "{w} * x[{k}]", "{w}.copy()"]
ROUNDS = ["0", "1", "3", "n - 4", "n - 3", "n - 2"]


def source(seed: int) -> str:
    draw = random.Random(seed)
    lines = ["import numpy as np", "def prog(x):", "    t, n = 0.0, x.shape[0]"]
    firsts = ["x * 2.0", "x", "x.copy()", "x * 3.0"]
    lines += [f"    {name} = {draw.choice(firsts)}" for name in NAMES]
    for _ in range(draw.randrange(3, 9)):
        lines += statement(draw, "    ")
    last = draw.choice(["", " + a[0] - b[1] * c[2] + d[0] * x[0]"])
    return "\n".join([*lines, f"    return t + x[1]{last}", ""])


def statement(draw: random.Random, before: str) -> list[str]:
    """One statement, which may be a loop of some."""
    v, w, k = draw.choice(NAMES), draw.choice(NAMES), draw.randrange(3)
    kind = draw.choices(
        ["write", "add", "fill", "read", "bind", "swap", "loop"], [4, 1, 1, 5, 8, 1, 2]
    )[0]
    if kind == "loop" and len(before) < 12:
        body = [
            line for _ in range(draw.randrange(1, 5)) for line in statement(draw, before + "    ")
        ]
        return [f"{before}for i{len(before)} in range({draw.choice(ROUNDS)}):", *body]
    text = {
        "write": f"{v}[{k}] = {v}[{k}] * x[{k + 1}]",
        "add": f"{v}[{k}] += {w}[1] * 0.5",
        "fill": f"{v}[:] = {w} * 0.7",
        "bind": f"{v} = {draw.choice(BINDINGS).format(w=w, k=k)}",
        "swap": f"{v}, {w} = {w}, {v}" if v != w else f"t += {v}.sum()",
    }.get(kind, f"t += {v}[{k}] * 0.5")
    return [before + text]


def check(seed: int) -> tuple[str, None]:
    """What became of a program."""
    text = source(seed)
    f = fuzz_kernels.function_of(text, f"<names {seed}>")
    x = np.random.default_rng(seed).standard_normal(4)
    try:
        value, (gradient,) = adjit.value_and_grad(f)(x.copy())
    except NotDifferentiable as error:
        return f"refused: {str(error).splitlines()[0].partition(': ')[2]}", None
    if not np.isclose(value, f(x.copy()), rtol=1e-10, atol=1e-12):
        return f"WRONG value {value}\n{text}", None
    slopes = [(f(x + 1e-6 * e) - f(x - 1e-6 * e)) / 2e-6 for e in np.eye(4)]
    if not np.allclose(slopes, gradient, rtol=1e-4, atol=1e-4):
        return f"WRONG gradient {gradient} {slopes}\n{text}", None
    return "ok", None


def main(count: int, first: int = 0) -> bool:
    return fuzz_kernels.main(count, first, check=check)


if __name__ == "__main__":
    sys.exit(not main(*map(int, sys.argv[1:])))
