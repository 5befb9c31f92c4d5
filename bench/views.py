"""Programs that read and write parts of tensors, and training whose memory others look at.

    python bench/views.py [--rows PATTERN] [--threads 1,2] [--level v3] [--seconds 0.8]

They are rows of the bench (`run.py`, group "views"); this script times adjit, with and without capture, and
PyTorch alone, which takes less time. `--level v3` keeps both libraries to the instructions of x86-64-v3.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from programs import Capture, Program, Step, network_data, network_torch
from rows import Arrays, Call, uniform
from rows import Program as Preparation

AVX2 = {
    "ADJIT_CPU": "x86-64-v3",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}


def row(
    name: str,
    data: Callable[..., Arrays],
    program: Preparation,
    *,
    sizes: tuple[Any, ...] = (),
    tiny: tuple[Any, ...] = (),
    **options: Any,
) -> Program:
    """The row of `data(*sizes)`, which adjit and PyTorch run word for word."""
    text, tiny_data = name.format(*sizes), partial(data, *tiny)
    return Program(
        "views", text, partial(data, *sizes), {"torch": program}, tiny=tiny_data, **options
    )


def repeated(steps: int, run: Step) -> Preparation:
    """A program that calls `run(torch, number of steps, its tensors)`, without gradients."""

    def program(torch: Any, capture: Capture, *arrays: np.ndarray) -> Call:
        given = [torch.tensor(array) for array in arrays]
        step = capture(partial(run, torch, steps))
        return lambda: step(*given)

    return program


def differentiated(steps: int, run: Step) -> Preparation:
    """The same with the gradients of the sum of its squares, by its tensors."""

    def program(torch: Any, capture: Capture, *arrays: np.ndarray) -> Call:
        leaves = [torch.tensor(array, requires_grad=True) for array in arrays]

        @capture
        def step() -> Any:
            out = run(torch, steps, *leaves)
            value = (out * out).sum()
            return value, *torch.autograd.grad(value, leaves)

        return step

    return program


# ----- equations on grids -----


def grid(n: int) -> Arrays:
    return (uniform((n, n), (0, 1)),)


def heat(torch: Any, steps: int, start: Any) -> Any:
    u = start.clone()
    for _ in range(steps):
        inner = u[1:-1, 1:-1]
        around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
        u[1:-1, 1:-1] = inner + 0.1 * (around - 4 * inner)
    return u


def heat_edges(torch: Any, steps: int, start: Any) -> Any:
    """With insulated edges, and in place."""
    u = start.clone()
    for _ in range(steps):
        around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
        u[1:-1, 1:-1] += 0.1 * (around - 4 * u[1:-1, 1:-1])
        u[0], u[-1] = u[1], u[-2]
        u[:, 0], u[:, -1] = u[:, 1], u[:, -2]
    return u


def wave(torch: Any, steps: int, start: Any) -> Any:
    before, now = start.clone(), start.clone()
    for _ in range(steps):
        after = torch.zeros_like(now)
        inner = now[1:-1, 1:-1]
        around = now[2:, 1:-1] + now[:-2, 1:-1] + now[1:-1, 2:] + now[1:-1, :-2]
        after[1:-1, 1:-1] = 2 * inner - before[1:-1, 1:-1] + 0.1 * (around - 4 * inner)
        before, now = now, after
    return now


def string_data(n: int) -> Arrays:
    return uniform((n,), (0, 1)), uniform((n - 2,), (0.05, 0.2), seed=1)


def string(torch: Any, steps: int, start: Any, speed: Any) -> Any:
    """A wave on a string whose speed differs from place to place."""
    before = now = start * 1.0
    for _ in range(steps):
        after = torch.zeros_like(now)
        bend = now[2:] - 2 * now[1:-1] + now[:-2]
        after[1:-1] = 2 * now[1:-1] - before[1:-1] + speed * bend
        before, now = now, after
    return now


def burgers(torch: Any, steps: int, start: Any) -> Any:
    """Upwind differences by `narrow`, joined with the ends."""
    u = start
    for _ in range(steps):
        inner, left = u.narrow(0, 1, u.shape[0] - 1), u.narrow(0, 0, u.shape[0] - 1)
        u = torch.cat([u[:1], inner - 0.1 * inner * (inner - left)])
    return u


def line(n: int) -> Arrays:
    return (uniform((n,), (0.1, 1)),)


# ----- lattices -----


def spins(n: int) -> Arrays:
    return (np.sign(uniform((n, n), (-1, 1))), uniform((n, n), (0, 1), seed=1))


def ising(torch: Any, steps: int, start: Any, chances: Any) -> Any:
    """Spins flip on one colour of a checkerboard, then on the other."""
    s = start.clone()
    for k in range(steps):
        around = s.roll(1, 0) + s.roll(-1, 0) + s.roll(1, 1) + s.roll(-1, 1)
        flips = torch.where(chances < torch.exp(-0.8 * s * around), -s, s)
        s[k % 2 :: 2, ::2] = flips[k % 2 :: 2, ::2]
        s[(k + 1) % 2 :: 2, 1::2] = flips[(k + 1) % 2 :: 2, 1::2]
    return s


def life(torch: Any, steps: int, start: Any) -> Any:
    cells = (start > 0.5).float()
    for _ in range(steps):
        around = sum(
            cells[1 + i : cells.shape[0] - 1 + i, 1 + j : cells.shape[1] - 1 + j]
            for i in (-1, 0, 1)
            for j in (-1, 0, 1)
            if i or j
        )
        inner = cells[1:-1, 1:-1]
        inner.copy_(((around == 3) | ((around == 2) & (inner == 1))).float())
    return cells


MOVES = ((0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1))
WEIGHTS = (4 / 9, *(1 / 9,) * 4, *(1 / 36,) * 4)


def flow_data(n: int) -> Arrays:
    weights = np.array(WEIGHTS, np.float32)[:, None, None]
    return (weights * (1 + 0.01 * uniform((9, n, n), (0, 1))),)


def flow(torch: Any, steps: int, start: Any) -> Any:
    """Lattice Boltzmann: nine populations move, then relax."""
    f = start.clone()
    for _ in range(steps):
        for k, (x, y) in enumerate(MOVES):
            f[k] = f[k].roll((x, y), (0, 1))
        rho = f.sum(0)
        u = (f[1] + f[5] + f[8] - f[3] - f[6] - f[7]) / rho
        v = (f[2] + f[5] + f[6] - f[4] - f[7] - f[8]) / rho
        square = 1 - 1.5 * (u * u + v * v)
        for k, ((x, y), weight) in enumerate(zip(MOVES, WEIGHTS, strict=True)):
            along = 3 * (x * u + y * v)
            f[k] += 0.6 * (weight * rho * (square + along + 0.5 * along * along) - f[k])
    return f


# ----- small vectors and matrices -----


def tracks(steps: int) -> Arrays:
    return uniform((steps, 2), (-1, 1)), uniform((4,), (0.1, 0.5), seed=1)


def kalman(torch: Any, steps: int, seen: Any, noise: Any) -> Any:
    """A filter for place and speed in the plane; what it knew at each step."""
    move, look = torch.eye(4), torch.zeros(2, 4)
    move[0, 2] = move[1, 3] = 0.1
    look[0, 0] = look[1, 1] = 1.0
    x, p, blur = torch.zeros(4), torch.eye(4), torch.diag(noise)
    means = torch.zeros(steps, 4)
    for k in range(steps):
        x, p = move @ x, move @ p @ move.t() + blur
        s = look @ p @ look.t() + 0.1 * torch.eye(2)
        inverse = torch.stack([s[1, 1], -s[0, 1], -s[1, 0], s[0, 0]]).view(2, 2)
        gain = p @ look.t() @ inverse / (s[0, 0] * s[1, 1] - s[0, 1] * s[1, 0])
        x = x + gain @ (seen[k] - look @ x)
        p = p - gain @ look @ p
        means[k] = x
    return means


def knots(n: int, places: int) -> Arrays:
    return uniform((n,), (-1, 1)), uniform((places,), (0, n - 1.001), seed=1)


def spline(torch: Any, _: int, y: Any, places: Any) -> Any:
    """A natural cubic spline through evenly spaced knots, its system solved row by row."""
    n = y.shape[0]
    right = 6 * (y[2:] - 2 * y[1:-1] + y[:-2])
    c, d = [0.25], [right[0] / 4]
    for k in range(1, n - 2):
        scale = 4 - c[-1]
        c.append(1 / scale)
        d.append((right[k] - d[-1]) / scale)
    m = torch.zeros(n)
    m[n - 2] = d[-1]
    for k in range(n - 3, 0, -1):
        m[k] = d[k - 1] - c[k - 1] * m[k + 1]
    cell = places.detach().floor().long()
    t = places - cell
    return (
        y[cell] * (1 - t)
        + y[cell + 1] * t
        + (((1 - t) ** 3 - (1 - t)) * m[cell] + (t**3 - t) * m[cell + 1]) / 6
    )


def bodies(n: int) -> Arrays:
    masses = uniform((n,), (0.5, 1), "float64", 2)
    return uniform((n, 3), (-1, 1), "float64"), uniform((n, 3), (-0.1, 0.1), "float64", 1), masses


def gravity(torch: Any, steps: int, x: Any, v: Any, mass: Any) -> Any:
    for _ in range(steps):
        apart = x[None, :, :] - x[:, None, :]
        squares = (apart * apart).sum(-1) + 0.01
        pull = (apart * (mass[None, :] * squares**-1.5)[:, :, None]).sum(1)
        v = v + 0.01 * pull
        x = x + 0.01 * v
    return x


# ----- training, with memory that others see -----

SMALL, LARGE = ((64, 32, 10), 32), ((64, 512, 512, 10), 64)
TINY = ((5, 4, 3), 8)
Watch = Callable[[Any, Any], Any]  # of a parameter and NumPy: something that is kept


def watched(watch: Watch, from_numpy: bool = False) -> Preparation:
    """A step of SGD on a network, with something kept of every parameter."""

    def program(
        torch: Any, capture: Capture, x: np.ndarray, labels: np.ndarray, *values: np.ndarray
    ) -> Call:
        model = network_torch(torch, values)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        kept = [watch(torch, parameter) for parameter in model.parameters()]

        @capture
        def train(inputs: Any, targets: Any) -> Any:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            return loss

        inputs, targets = torch.tensor(x), torch.tensor(labels)
        images, numbers = x.copy(), labels.copy()

        def step() -> Any:
            if from_numpy:
                return train(
                    torch.from_numpy(images), torch.from_numpy(numbers)
                ), *model.parameters()
            return train(inputs, targets), *model.parameters()

        step.kept = kept  # type: ignore[attr-defined]
        return step

    return program


def nothing(torch: Any, parameter: Any) -> None:
    """Private memory, which the other rows are to be compared with."""


def as_array(torch: Any, parameter: Any) -> Any:
    return parameter.detach().numpy()


def address(torch: Any, parameter: Any) -> int:
    return parameter.data_ptr()


def epoch(torch: Any, capture: Capture, *arrays: np.ndarray) -> Call:
    """All batches of a DataLoader, shuffled by a sampler of its own."""
    x, labels, *values = arrays
    model = network_torch(torch, values)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.utils.data.TensorDataset(torch.tensor(x), torch.tensor(labels))
    order = np.random.default_rng(0).permutation(len(x)).tolist()
    loader = torch.utils.data.DataLoader(data, batch_size=len(x) // 32 or 1, sampler=order)

    @capture
    def train(inputs: Any, targets: Any) -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss

    def run() -> Any:
        for inputs, targets in loader:
            loss = train(inputs, targets)
        return loss, *model.parameters()

    return run


WATCHED: Mapping[str, Preparation] = {
    "private parameters": watched(nothing),
    "p.detach().numpy() kept of each": watched(as_array),
    "p.data_ptr() asked of each": watched(address),
    "batches by from_numpy": watched(nothing, from_numpy=True),
}

LOOSE: dict[str, Any] = {"rtol": 1e-3, "atol": 1e-4}
VIEWS: tuple[Program, ...] = (
    row("heat equation, {0}x{0}, 20 steps", grid, repeated(20, heat), sizes=(128,), tiny=(6,)),
    row(
        "heat equation with gradient, {0}x{0}, 20 steps",
        grid, differentiated(20, heat), sizes=(128,), tiny=(6,), **LOOSE,
    ),
    row(
        "heat equation with edges, {0}x{0}, 20 steps",
        grid, repeated(20, heat_edges), sizes=(128,), tiny=(6,),
    ),
    row("wave equation, {0}x{0}, 20 steps", grid, repeated(20, wave), sizes=(128,), tiny=(6,)),
    row(
        "wave equation with gradient, {0}x{0}, 20 steps",
        grid, differentiated(20, wave), sizes=(128,), tiny=(6,), **LOOSE,
    ),
    row(
        "string with gradient, {} places, 50 steps",
        string_data, differentiated(50, string), sizes=(256,), tiny=(6,), **LOOSE,
    ),
    row(
        "Burgers' equation with gradient, {} places, 50 steps",
        line, differentiated(50, burgers), sizes=(256,), tiny=(6,), **LOOSE,
    ),
    row("Ising model, {0}x{0}, 20 half steps", spins, repeated(20, ising), sizes=(64,), tiny=(6,)),
    row("game of life, {0}x{0}, 20 steps", grid, repeated(20, life), sizes=(128,), tiny=(6,)),
    row("lattice Boltzmann, 9x{0}x{0}, 5 steps", flow_data, repeated(5, flow), sizes=(64,), tiny=(6,)),
    row("Kalman filter, {} steps", tracks, repeated(50, kalman), sizes=(50,), tiny=(50,), **LOOSE),
    row(
        "Kalman filter with gradient, {} steps",
        tracks, differentiated(50, kalman), sizes=(50,), tiny=(50,), **LOOSE,
    ),
    row(
        "cubic spline with gradient, {} knots, {} places",
        knots, differentiated(0, spline), sizes=(32, 1000), tiny=(6, 10), **LOOSE,
    ),
    row("{} bodies, 10 steps, float64", bodies, repeated(10, gravity), sizes=(64,), tiny=(6,)),
    row(
        "{} bodies with gradient, 10 steps, float64",
        bodies, differentiated(10, gravity), sizes=(64,), tiny=(6,), **LOOSE,
    ),
    *[
        row(f"SGD step, MLP {size}, {name}", network_data, program, sizes=sizes, tiny=TINY, **LOOSE)
        for size, sizes in (("64-32-10", SMALL), ("64-512-512-10", LARGE))
        for name, program in WATCHED.items()
    ],
    row(
        "epoch of 32 batches of a DataLoader, MLP 64-32-10",
        network_data, epoch, sizes=((64, 32, 10), 32 * 32), tiny=((5, 4, 3), 64), **LOOSE,
    ),
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default="", metavar="PATTERN", help="regular expression")
    parser.add_argument("--threads", default="1,2", metavar="1,2", help="thread counts")
    parser.add_argument("--level", default="", choices=("", "v3"), help="instructions")
    parser.add_argument("--seconds", type=float, default=0.8, help="for each row")
    options = parser.parse_args()
    environment = os.environ | (AVX2 if options.level else {})
    failed = False
    for threads in options.threads.split(","):
        command = [sys.executable, str(Path(__file__).with_name("timing.py"))]
        command += [f"--threads={threads}", f"--rows=views: .*{options.rows}"]
        command += [f"--seconds={options.seconds}", "--turns=3"]
        command += ["--libraries=adjit,adjit.compile,PyTorch"]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True, env=environment
        )
        print(f"| {threads} threads | PyTorch, ms | adjit | adjit.compile |\n|---|---|---|---|")
        for found in json.loads(done.stdout.splitlines()[-1]):
            cells = found["cells"]
            reference = cells["PyTorch"].get("seconds", 0.0)
            figures = [text_of(cells[name], reference) for name in ("adjit", "adjit.compile")]
            print("|", " | ".join([found["name"], f"{reference * 1e3:.3f}", *figures]), "|")
            failed |= any("error" in cell for cell in cells.values())
    return int(failed)


def text_of(cell: dict[str, Any], reference: float) -> str:
    """How much faster than PyTorch it is, or what went wrong."""
    seconds = cell.get("seconds")
    return f"{reference / seconds:.2f}×" if seconds else str(cell)


if __name__ == "__main__":
    sys.exit(main())
