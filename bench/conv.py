"""Convolutions beside PyTorch: GFLOP/s forward, backward for the image and for the weight.

    python bench/conv.py [--threads 1,2] [--rows PATTERN] [--seconds 0.3] [--turns 3]

The rows are the different convolutions of ResNet-18 (batch 8 at 224 x 224, batch 1 and 16 at 64 x 64)
and of MobileNetV2 (batch 8 at 224 x 224), and some of few columns. Every pass is timed alone. adjit's
images have the layout that they have inside of a network, channels last, but for the first one;
PyTorch's have its default and, in a column of their own, channels last. In brackets PyTorch's time
divided by adjit's: above 1, adjit is ahead. A full run is written to bench/results/, a run of chosen
rows is only printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import ceil, exp, log
from typing import Any, NamedTuple

from side_by_side import Time, run
from timing import time_calls

PASSES = ("forward", "image", "weight")
SAMPLE = 1e-4  # seconds that a group of convolutions takes
BEHIND = 0.8  # of PyTorch's speed: shapes below are listed

# Channels, columns, kernel, stride, groups, by the size of the image they are applied to.
RESNET_18 = (
    (1, 3, 64, 7, 2, 1), (4, 64, 64, 3, 1, 1), (4, 64, 128, 3, 2, 1), (4, 64, 128, 1, 2, 1),
    (8, 128, 128, 3, 1, 1), (8, 128, 256, 3, 2, 1), (8, 128, 256, 1, 2, 1), (16, 256, 256, 3, 1, 1),
    (16, 256, 512, 3, 2, 1), (16, 256, 512, 1, 2, 1), (32, 512, 512, 3, 1, 1),
)  # fmt: skip
MOBILENET_V2 = (
    (1, 3, 32, 3, 2, 1), (2, 32, 32, 3, 1, 32), (2, 32, 16, 1, 1, 1), (2, 16, 96, 1, 1, 1),
    (2, 96, 96, 3, 2, 96), (4, 96, 24, 1, 1, 1), (4, 24, 144, 1, 1, 1), (4, 144, 144, 3, 1, 144),
    (4, 144, 24, 1, 1, 1), (4, 144, 144, 3, 2, 144), (8, 144, 32, 1, 1, 1), (8, 32, 192, 1, 1, 1),
    (8, 192, 192, 3, 1, 192), (8, 192, 32, 1, 1, 1), (8, 192, 192, 3, 2, 192), (16, 192, 64, 1, 1, 1),
    (16, 64, 384, 1, 1, 1), (16, 384, 384, 3, 1, 384), (16, 384, 64, 1, 1, 1), (16, 384, 96, 1, 1, 1),
    (16, 96, 576, 1, 1, 1), (16, 576, 576, 3, 1, 576), (16, 576, 96, 1, 1, 1),
    (16, 576, 576, 3, 2, 576), (32, 576, 160, 1, 1, 1), (32, 160, 960, 1, 1, 1),
    (32, 960, 960, 3, 1, 960), (32, 960, 160, 1, 1, 1), (32, 960, 320, 1, 1, 1),
    (32, 320, 1280, 1, 1, 1),
)  # fmt: skip
# Last layers, filters of images, and what is the same on the way back.
FEW_COLUMNS = (
    (1, 64, 3, 9, 1, 1), (1, 32, 1, 5, 1, 1), (1, 64, 3, 3, 1, 1), (1, 64, 2, 1, 1, 1),
    (1, 3, 3, 11, 1, 3), (1, 1, 1, 21, 1, 1), (1, 3, 32, 9, 1, 1),
)  # fmt: skip
NETWORKS = (
    ("ResNet-18", RESNET_18, 8, 224), ("ResNet-18", RESNET_18, 1, 64),
    ("ResNet-18", RESNET_18, 16, 64), ("MobileNetV2", MOBILENET_V2, 8, 224),
    ("few columns", FEW_COLUMNS, 4, 64),
)  # fmt: skip


class Convolution(NamedTuple):
    """A square convolution whose padding keeps the size, divided by the stride."""

    network: str
    batch: int
    size: int
    channels: int
    columns: int
    kernel: int
    stride: int
    groups: int

    @property
    def name(self) -> str:
        across = f"{self.batch}x{self.channels}x{self.size}x{self.size}"
        kind = "depthwise" if self.groups > 1 else f"to {self.columns}"
        stride = f" / {self.stride}" if self.stride > 1 else ""
        return f"{self.network} {across} {kind}, {self.kernel}x{self.kernel}{stride}"

    @property
    def padding(self) -> int:
        return self.kernel // 2

    @property
    def gflop(self) -> float:
        out = -(-self.size // self.stride)
        depth = self.channels // self.groups
        return 2e-9 * self.batch * out**2 * self.columns * depth * self.kernel**2


def convolutions() -> Iterator[Convolution]:
    for network, layers, batch, size in NETWORKS:
        for shrinks, channels, columns, kernel, stride, groups in layers:
            yield Convolution(
                network, batch, size // shrinks, channels, columns, kernel, stride, groups
            )


def time_convolution(row: Convolution, which: str, seconds: float, turns: int) -> dict[str, float]:
    """Seconds of one pass in each library."""
    import numpy as np
    import torch

    import adjit
    from adjit.ops import conv
    from adjit.schedule.settle import settle

    torch.set_grad_enabled(False)
    adjit.set_grad_enabled(False)
    rng = np.random.default_rng(0)
    shape = row.batch, row.channels, row.size, row.size
    x = rng.standard_normal(shape, np.float32)
    w = rng.standard_normal(
        (row.columns, row.channels // row.groups, row.kernel, row.kernel), np.float32
    )
    stride, padding = (row.stride,) * 2, (row.padding,) * 2
    p, q = torch.tensor(x), torch.tensor(w)
    result = torch.conv2d(p, q, None, stride, padding, 1, row.groups)
    g = rng.standard_normal(tuple(result.shape), np.float32)
    upper = torch.tensor(g)
    last = [t.to(memory_format=torch.channels_last) for t in (p, q, upper)]

    def pytorch(image: Any, weight: Any, grad: Any) -> Any:
        if which == "forward":
            return torch.conv2d(image, weight, None, stride, padding, 1, row.groups)
        mask = [which == name for name in ("image", "weight", "bias")]
        return torch.ops.aten.convolution_backward(
            grad, image, weight, None, stride, padding, (1, 1), False, (0, 0), row.groups, mask
        )[PASSES.index(which) - 1]

    image, weight, grad = (adjit.tensor(a) for a in (x, w, g))
    grad = conv.channels_last(grad)
    if row.channels > 3:
        image = conv.channels_last(image)
    geometry = conv.forward_geometry(
        shape, w.shape, None, stride, padding, (1, 1), row.groups
    )  # fmt: skip
    calls: dict[str, Callable[[], Any]] = {
        "forward": lambda: conv.convolved(image, weight, geometry),
        "image": lambda: conv.image_gradient(grad, weight, geometry),
        "weight": lambda: conv.weight_gradient(image, grad, geometry),
    }
    count = max(1, ceil(SAMPLE / (row.gflop / 50)))
    call = calls[which]

    def together() -> Any:
        results = [call() for _ in range(count)]
        settle()
        return results

    expected = pytorch(p, q, upper).numpy()
    bound = 1e-3 * np.abs(expected).max()
    assert np.abs(call().numpy() - expected).max() < bound
    best = time_calls(
        {
            "adjit": together,
            "PyTorch": lambda: [pytorch(p, q, upper) for _ in range(count)],
            "channels last": lambda: [pytorch(*last) for _ in range(count)],
        },
        seconds,
        turns,
    )
    return {name: t / count for name, t in best.items()}


def timed_rows() -> Iterator[tuple[str, Time]]:
    for row in convolutions():
        yield row.name, partial(time_row, row)


def time_row(row: Convolution, seconds: float, turns: int) -> dict[str, Any]:
    """What a convolution's passes take, and the GFLOP of one."""
    passes = {name: time_convolution(row, name, seconds, turns) for name in PASSES}
    return {"gflop": row.gflop, "passes": passes}


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| convolution | threads | " + " | ".join(f"{n} | PyTorch | channels last" for n in PASSES) + " |",
        "|---|---" + "|--:" * 9 + "|",
    ]  # fmt: skip
    for row in rows:
        cells = []
        for name in PASSES:
            times = row["passes"][name]
            cells.append(f"{row['gflop'] / times['adjit']:.1f}")
            for other in ("PyTorch", "channels last"):
                ratio = times[other] / times["adjit"]
                cells.append(f"{row['gflop'] / times[other]:.1f} ({ratio:.2f})")
        lines.append(f"| {row['name']} | {row['threads']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def ratios(rows: list[dict[str, Any]], name: str, other: str) -> list[tuple[float, str]]:
    """PyTorch's time of a pass over adjit's in each row, and the row's name."""
    return [
        (row["passes"][name][other] / row["passes"][name]["adjit"], row["name"]) for row in rows
    ]


def summary(rows: list[dict[str, Any]]) -> str:
    """Means over the convolutions, and those on which adjit is far behind."""
    means, behind = [], []
    for threads in sorted({row["threads"] for row in rows}):
        chosen = [row for row in rows if row["threads"] == threads]
        for name in PASSES:
            for other in ("PyTorch", "channels last"):
                found = ratios(chosen, name, other)
                mean = exp(sum(log(ratio) for ratio, _ in found) / len(found))
                least, where = min(found)
                means.append(
                    f"- {name}, threads {threads}, against {other}: geometric mean {mean:.2f}, "
                    f"least {least:.2f} ({where})"
                )
                behind += [
                    f"- {where}, {name}, threads {threads}, against {other}: {ratio:.2f}"
                    for ratio, where in sorted(found)
                    if ratio < BEHIND
                ]
    listed = "\n".join(behind) or "None."
    return "\n".join(means) + f"\n\nBelow {BEHIND} of PyTorch's speed:\n\n{listed}"


def report(rows: list[dict[str, Any]]) -> str:
    return f"{table(rows)}\n\n{summary(rows)}"


if __name__ == "__main__":
    run(__file__, __doc__, timed_rows, report, seconds=0.3)
