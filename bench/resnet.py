"""ResNet-18 beside PyTorch: a training step, fine-tuning of the last layer, and evaluation.

    python bench/resnet.py [--threads 1,2] [--seconds 3]

One program, word for word, runs in both libraries on the same random images. A ratio is PyTorch's time
divided by adjit's: above 1, adjit is ahead. The first step is the one in a new process, with the
kernels that the cache has.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import numpy as np
from fresh import peak_bytes, tidy
from timing import limit_threads, time_calls

IMAGES = ((1, 64), (16, 64), (8, 224))  # how many, and of what size


def resnet18(torch: Any) -> Any:
    """The network of He and others (2015), with torchvision's names."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, channels: int, columns: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(channels, columns, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(columns)
            self.conv2 = nn.Conv2d(columns, columns, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(columns)
            self.downsample = None
            if stride != 1 or channels != columns:
                shrink = nn.Conv2d(channels, columns, 1, stride, bias=False)
                self.downsample = nn.Sequential(shrink, nn.BatchNorm2d(columns))

        def forward(self, x: Any) -> Any:
            before = x if self.downsample is None else self.downsample(x)
            x = torch.relu(self.bn1(self.conv1(x)))
            return torch.relu(self.bn2(self.conv2(x)) + before)

    class ResNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
            self.bn1 = nn.BatchNorm2d(64)
            self.maxpool = nn.MaxPool2d(3, 2, 1)
            self.layer1 = nn.Sequential(Block(64, 64, 1), Block(64, 64, 1))
            self.layer2 = nn.Sequential(Block(64, 128, 2), Block(128, 128, 1))
            self.layer3 = nn.Sequential(Block(128, 256, 2), Block(256, 256, 1))
            self.layer4 = nn.Sequential(Block(256, 512, 2), Block(512, 512, 1))
            self.avgpool = nn.AdaptiveAvgPool2d(1)
            self.fc = nn.Linear(512, 1000)

        def forward(self, x: Any) -> Any:
            x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
            x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
            return self.fc(torch.flatten(self.avgpool(x), 1))

    return ResNet()


def programs(torch: Any, images: np.ndarray, labels: np.ndarray) -> dict[str, Callable[[], Any]]:
    """What is timed, in one library."""
    x, y = torch.tensor(images), torch.tensor(labels)

    def training(frozen: bool) -> Callable[[], Any]:
        model = resnet18(torch)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(not frozen or name.startswith("fc."))
        wanted = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD(wanted, lr=1e-4, momentum=0.9)

        def step() -> float:
            optimizer.zero_grad()
            loss = (model(x) - y).sum()
            loss.backward()
            optimizer.step()
            return float(loss.detach())

        return step

    trained = resnet18(torch).eval()

    def evaluate() -> float:
        with torch.no_grad():
            return float(trained(x).sum())

    return {"training step": training(False), "last layer": training(True), "evaluation": evaluate}


def measure(threads: int, seconds: float) -> None:
    """Print the rows of one thread count."""
    limit_threads(threads)
    import torch

    import adjit
    from adjit.schedule import plan_cache

    torch.set_num_threads(threads)
    rng = np.random.default_rng(0)
    for count, size in IMAGES:
        images = rng.random((count, 3, size, size), np.float32)
        labels = rng.random((count, 1000), np.float32)
        ours, theirs = programs(adjit, images, labels), programs(torch, images, labels)
        for name, call in ours.items():
            start = perf_counter()
            call()
            first = perf_counter() - start
            for _ in range(3):  # until the plan is there
                call()
                plan_cache.wait()
            best = time_calls({"adjit": call, "PyTorch": theirs[name]}, seconds, 3)
            print(
                f"| {name}, {count} x 3 x {size} x {size} | {threads} | {1e3 * best['adjit']:.1f} "
                f"| {1e3 * best['PyTorch']:.1f} | {best['PyTorch'] / best['adjit']:.2f} | {first:.1f} |",
                flush=True,
            )


def peak(library: str, count: int, size: int) -> None:
    """Print the most memory that a process holds in training steps, libraries included, in MiB."""
    limit_threads(1)
    rng = np.random.default_rng(0)
    images = rng.random((count, 3, size, size), np.float32)
    labels = rng.random((count, 1000), np.float32)
    step = programs(import_module(library), images, labels)["training step"]
    for _ in range(8):
        step()
        sleep(0.2)  # a plan is compiled meanwhile
    tidy()
    for _ in range(3):
        step()
    print(round(peak_bytes() / 2**20))


def print_peaks() -> None:
    """Print a row for each size of images."""
    print("| ResNet-18, peak memory of training steps | adjit MiB | PyTorch MiB |\n|---|--:|--:|")
    for count, size in IMAGES:
        found = [
            subprocess.run(
                [sys.executable, str(Path(__file__)), "--peak", library, str(count), str(size)],
                stdout=subprocess.PIPE, text=True, check=True,
            ).stdout.split()[-1]
            for library in ("adjit", "torch")
        ]  # fmt: skip
        print(f"| {count} x 3 x {size} x {size} | {' | '.join(found)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", default="1,2", metavar="1,2", help="thread counts")
    parser.add_argument("--seconds", type=float, default=3, help="for each row")
    parser.add_argument("--process", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--memory", action="store_true", help="peak memory instead of times")
    parser.add_argument("--peak", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        library, count, size = options.peak
        peak(library, int(count), int(size))
        return
    if options.memory:
        print_peaks()
        return
    if options.process:
        measure(options.process, options.seconds)
        return
    print("| ResNet-18 | threads | adjit ms | PyTorch ms | ratio | first call s |")
    print("|---|--:|--:|--:|--:|--:|", flush=True)
    for threads in options.threads.split(","):
        command = [sys.executable, str(Path(__file__)), f"--process={threads}"]
        subprocess.run([*command, f"--seconds={options.seconds}"], check=True)


if __name__ == "__main__":
    main()
