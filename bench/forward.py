"""Forward mode beside `torch.func` and JAX: products with Jacobians, Jacobians by columns, sparse ones.

    python bench/forward.py [--threads 1] [--rows PATTERN] [--seconds 0.5] [--turns 3]

Float32, one process for each number of threads; libraries take turns, the shortest sample counts, results are
compared first. JAX is compiled by `jit`, and left out where it is not installed. A row of a sparse Jacobian has
adjit alone: `again` with the pattern of an earlier point, `dense` all columns by `jacfwd`. In brackets how many
times as long as adjit the others take.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from timing import limit_threads, time_calls

Call = Callable[[], Any]
CELLS = 10_000


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32) / 4


def network(lib: Any, kind: str) -> tuple[Any, tuple[int, ...]]:
    """A function of one library, and the shape of its argument."""
    if lib.__name__ == "jax.numpy":
        import jax

        array, softmax = lib.asarray, jax.nn.log_softmax
        tanh, exp = lib.tanh, lib.exp
    else:
        array, tanh, exp = lib.tensor, lib.tanh, lib.exp
        softmax = lib.nn.functional.log_softmax
    if kind == "elementwise":
        return lambda x: exp(-x * x) * tanh(x) + x / (1 + x * x), (1 << 18,)
    if kind == "layers":
        a, b = array(random(256, 256, seed=1)), array(random(256, 10, seed=2))
        return lambda x: softmax(tanh(tanh(x @ a) @ a) @ b, -1), (64, 256)
    if kind == "wide":
        a = array(random(16, 512, seed=1))
        return lambda x: tanh(x @ a) * 2, (16,)
    a = array(random(32, 64, seed=1))
    return lambda x: (tanh(x @ a) ** 2).sum(), (32,)


def calls_of(row: str, kind: str) -> dict[str, Call]:
    """What each library does in a row: results as arrays."""
    import torch

    import adjit

    found: dict[str, Call] = {}
    for name, lib in (("adjit", adjit), ("PyTorch", torch)):
        f, shape = network(lib, kind)
        x, t = (lib.tensor(random(*shape, seed=s)) for s in (3, 4))
        if row == "jvp":
            found[name] = lambda lib=lib, f=f, x=x, t=t: lib.func.jvp(f, (x,), (t,))[1].numpy()
        else:
            whole = getattr(lib.func, row)(f)
            found[name] = lambda whole=whole, x=x: whole(x).detach().numpy()
    if importlib.util.find_spec("jax"):
        import jax

        f, shape = network(jax.numpy, kind)
        x, t = (jax.numpy.asarray(random(*shape, seed=s)) for s in (3, 4))
        compiled = jax.jit(lambda x, t: jax.jvp(f, (x,), (t,))[1]) if row == "jvp" else None
        whole = None if row == "jvp" else jax.jit(getattr(jax, row)(f))
        found["JAX"] = lambda: np.asarray(compiled(x, t) if compiled else whole(x))
    return found


def stencil(cells: int, dense: bool) -> dict[str, Call]:
    """The Jacobian of a nonlinear heat equation."""
    import adjit

    def heat(u: Any) -> Any:
        return (u[2:] - 2 * u[1:-1] + u[:-2]) * u[1:-1].exp()

    x = adjit.tensor(random(cells))
    jacobian = adjit.func.sparse_jacobian(heat)
    again = adjit.func.sparse_jacobian(heat, pattern=adjit.func.jacobian_sparsity(heat, x))
    found: dict[str, Call] = {"again": lambda: again(x), "adjit": lambda: jacobian(x)}
    if dense:
        found["dense"] = lambda: adjit.func.jacfwd(heat)(x).numpy()
    return found


ROWS: dict[str, Callable[[], dict[str, Call]]] = {
    "jvp of 2^18 elements": lambda: calls_of("jvp", "elementwise"),
    "jvp of three layers, batch 64": lambda: calls_of("jvp", "layers"),
    "jacfwd of 16 inputs, 512 outputs": lambda: calls_of("jacfwd", "wide"),
    "hessian of 32 inputs": lambda: calls_of("hessian", "scalar"),
    "sparse Jacobian, 1000 cells": lambda: stencil(1000, True),
    f"sparse Jacobian, {CELLS} cells": lambda: stencil(CELLS, False),
}


def values(result: Any) -> np.ndarray:
    return np.asarray(result.toarray() if hasattr(result, "toarray") else result)


def run(args: argparse.Namespace) -> None:
    for name, make in ROWS.items():
        if not re.search(args.rows, name):
            continue
        calls = make()
        results = {library: values(call()) for library, call in calls.items()}
        for library, found in results.items():
            np.testing.assert_allclose(
                found, results["adjit"], 1e-4, 1e-5, err_msg=f"{name}: {library}"
            )
        seconds = time_calls(calls, args.seconds, args.turns)
        cells = [
            f"{library} {s * 1e3:.3f} ms ({s / seconds['adjit']:.2f})"
            for library, s in seconds.items()
        ]
        print(f"{args.threads} thread(s) | {name} | " + " | ".join(cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", default="1")
    parser.add_argument("--rows", default="")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    if "," in args.threads:
        for threads in args.threads.split(","):
            again = [a for a in sys.argv[1:] if not a.startswith("--threads") and a != args.threads]
            subprocess.run([sys.executable, __file__, *again, "--threads", threads], check=True)
        return
    limit_threads(int(args.threads))
    run(args)


if __name__ == "__main__":
    main()
