"""What SciPy calls for a value and a gradient: `adjit.scipy`'s beside one with PyTorch, written by hand.

    python bench/scipy_bridge.py [--calls 200]

Both take turns in one process, on one thread each; the least time of a call counts, from array to array.
Above 1, adjit is ahead.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import adjit
from adjit.scipy import Derivatives, Layout

Array = np.ndarray[Any, np.dtype[np.float64]]
Problem = Callable[[Any, Any], Any]  # takes the library and x


def rosenbrock(library: Any, x: Any) -> Any:
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def regression(library: Any, x: Any) -> Any:
    rows, labels = DATA[library]
    return library.nn.functional.softplus(-labels * (rows @ x)).mean() + 1e-3 * (x * x).sum()


def springs(library: Any, x: Any) -> Any:
    stretched = (x[1:] - x[:-1] - 0.1).square().sum() + (x[::2] - 1).square().mean()
    return stretched + x.cos().exp().mean() + (x.sin() * x.tanh()).square().mean()


RNG = np.random.default_rng(0)
ROWS, LABELS = RNG.normal(size=(2000, 50)), np.sign(RNG.normal(size=2000))
DATA = {library: (library.tensor(ROWS), library.tensor(LABELS)) for library in (adjit, torch)}
PROBLEMS: dict[str, tuple[Problem, int]] = {
    "Rosenbrock, 10": (rosenbrock, 10),
    "Rosenbrock, 1000": (rosenbrock, 1000),
    "Rosenbrock, 100000": (rosenbrock, 100_000),
    "springs, 1000": (springs, 1000),
    "logistic regression, 2000 rows of 50": (regression, 50),
}


def by_hand(problem: Problem) -> Callable[[Array], tuple[float, Array]]:
    """What programs with PyTorch do."""

    def value_and_gradient(flat: Array) -> tuple[float, Array]:
        x = torch.from_numpy(flat).requires_grad_()
        value = problem(torch, x)
        (slope,) = torch.autograd.grad(value, x)
        return value.item(), slope.numpy()

    return value_and_gradient


def by_adjit(problem: Problem, start: Array) -> Callable[[Array], tuple[float, Array]]:
    """What `adjit.scipy.minimize` hands to SciPy."""
    layout = Layout(adjit.tensor(start), "bench")
    return Derivatives(lambda x: problem(adjit, x), layout, "bench").with_gradient


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=200)
    calls = parser.parse_args().calls
    torch.set_num_threads(1)
    adjit.set_num_threads(1)
    print(f"{'problem':40}{'adjit':>12}{'PyTorch':>12}{'ratio':>8}   us a value and gradient")
    for name, (problem, size) in PROBLEMS.items():
        start = np.linspace(-0.5, 0.8, size)
        both = (by_adjit(problem, start), by_hand(problem))
        (ours, slope), (theirs, other) = both[0](start), both[1](start)
        assert np.isclose(ours, theirs, rtol=1e-9)
        assert np.allclose(slope, other, rtol=1e-7, atol=1e-9)
        least = [np.inf, np.inf]
        for _ in range(calls):
            for at, function in enumerate(both):
                begin = time.perf_counter()
                function(start)
                least[at] = min(least[at], time.perf_counter() - begin)
        print(f"{name:40}{least[0] * 1e6:12.1f}{least[1] * 1e6:12.1f}{least[1] / least[0]:8.2f}")


if __name__ == "__main__":
    main()
