"""The first gradients of a process, where nothing was ever compiled: without and with a kernel pack.

    python bench/first_runs.py [--pack FILE] [--repeats 3] [--only PATTERN]

PyTorch stands beside. A program is one training step, up to the numbers of its loss and of a gradient. Each
figure is the least of several new processes, in turns, each with an empty kernel cache: the seconds of the
import, those of the first step after it, and in brackets those of the processor, all threads together, which
change less on a machine that does other work too. `--pack` takes a file that `python -m adjit cache pack --out
FILE` has made; with it nothing may be compiled, or the run fails.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from first_programs import SCIENCE, adam_step


def small(torch: Any) -> Any:
    """A function of a few numbers, as in the first lines of a manual."""
    x = torch.tensor([0.5, 1.5, 2.5], requires_grad=True)
    loss = (torch.sin(x) * x + torch.exp(-x)).sum()
    loss.backward()
    return loss, x.grad


def pinn(torch: Any) -> Any:
    """A network that solves u'' = -u, by its second derivatives."""
    nn = torch.nn
    model = nn.Sequential(
        nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)
    )
    x = torch.linspace(0, 1, 100).reshape(-1, 1).requires_grad_()
    u = model(x)
    (du,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (ddu,) = torch.autograd.grad(du.sum(), x, create_graph=True)
    return adam_step(
        torch, model, ((ddu + u) ** 2).mean() + (model(torch.zeros(1, 1)) - 1).pow(2).mean()
    )


def vae(torch: Any) -> Any:
    """A variational autoencoder of digits."""
    nn, F = torch.nn, torch.nn.functional

    class VAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.mean, self.logvar = (
                nn.Linear(784, 400),
                nn.Linear(400, 20),
                nn.Linear(400, 20),
            )
            self.outer, self.pixels = nn.Linear(20, 400), nn.Linear(400, 784)

        def forward(self, x: Any) -> Any:
            h = F.relu(self.inner(x))
            mean, logvar = self.mean(h), self.logvar(h)
            z = mean + torch.randn_like(mean) * torch.exp(0.5 * logvar)
            return torch.sigmoid(self.pixels(F.relu(self.outer(z)))), mean, logvar

    model, x = VAE(), torch.rand(128, 784)
    made, mean, logvar = model(x)
    rest = -0.5 * torch.sum(1 + logvar - mean.pow(2) - logvar.exp())
    return adam_step(torch, model, F.binary_cross_entropy(made, x, reduction="sum") + rest)


def mingpt(torch: Any) -> Any:
    """A GPT of two blocks, with attention written out."""
    nn, F = torch.nn, torch.nn.functional
    words, block, width, heads = 65, 64, 64, 4

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attn, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(
                nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            )
            self.register_buffer("mask", torch.tril(torch.ones(block, block)))

        def forward(self, x: Any) -> Any:
            b, t, c = x.size()
            q, k, v = (
                part.view(b, t, heads, c // heads).transpose(1, 2)
                for part in self.attn(self.norm1(x)).split(width, dim=2)
            )
            weights = (q @ k.transpose(-2, -1)) * (c // heads) ** -0.5
            weights = weights.masked_fill(self.mask[:t, :t] == 0, float("-inf"))
            y = F.softmax(weights, dim=-1) @ v
            x = x + self.proj(y.transpose(1, 2).contiguous().view(b, t, c))
            return x + self.mlp(self.norm2(x))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.place = nn.Embedding(words, width), nn.Embedding(block, width)
            self.blocks = nn.Sequential(Block(), Block())
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

        def forward(self, text: Any) -> Any:
            x = self.token(text) + self.place(torch.arange(text.size(1)))
            return self.head(self.norm(self.blocks(x)))

    model, text = GPT(), torch.randint(words, (8, block + 1))
    logits = model(text[:, :-1])
    return adam_step(torch, model, F.cross_entropy(logits.view(-1, words), text[:, 1:].reshape(-1)))


def resnet(torch: Any) -> Any:
    """ResNet-18, one image of 64x64."""
    from resnet import resnet18

    model = resnet18(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    logits = model(torch.randn(1, 3, 64, 64))
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor([7]))
    loss.backward()
    optimizer.step()
    return loss, next(model.parameters()).grad


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "small": small, "PINN": pinn, "VAE": vae, "minGPT": mingpt, "ResNet-18": resnet,
    **SCIENCE,
}  # fmt: skip


def one(library: str, name: str) -> None:
    """Print what this process takes."""
    times = [(perf_counter(), process_time())]
    module = import_module(library)
    times.append((perf_counter(), process_time()))
    loss, grad = PROGRAMS[name](module)
    loss.item(), grad.reshape(-1)[0].item()
    times.append((perf_counter(), process_time()))
    print(*(after[k] - before[k] for before, after in pairwise(times) for k in range(2)))
    sys.stdout.flush()
    os._exit(0)  # what is compiled in the background is nobody's first step


def asked(library: str, name: str, environment: dict[str, str]) -> tuple[list[float], int]:
    """The figures of a new process with an empty kernel cache, and how many kernels it compiles."""
    with tempfile.TemporaryDirectory() as folder:
        common = {"ADJIT_CACHE_DIR": folder, "PYTHONDONTWRITEBYTECODE": ""}
        done = subprocess.run(
            [sys.executable, __file__, "--one", library, name],
            env=os.environ | common | environment,
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        compiled = len(list(Path(folder).glob("*.o")))
    return list(map(float, done.stdout.split())), compiled


def cell(imported: float, busy: float, step: float, busy_step: float) -> str:
    return f"{imported:.2f} + {step:.2f} ({busy:.2f} + {busy_step:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--pack", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    if options.one:
        one(*options.one)
        return
    ways = {"without": ("adjit", {"ADJIT_KERNEL_PACK": "off"})}
    if options.pack:
        ways["pack"] = "adjit", {"ADJIT_KERNEL_PACK": str(options.pack.resolve())}
    ways["PyTorch"] = "torch", {}
    print("s for import + first step (of the processor):", ", ".join(ways))
    for name in PROGRAMS:
        if not re.search(options.only, name):
            continue
        taken: dict[str, list[list[float]]] = {way: [] for way in ways}
        for _ in range(options.repeats):
            for way, (library, environment) in ways.items():
                figures, compiled = asked(library, name, environment)
                taken[way].append(figures)
                if way == "pack" and compiled:
                    sys.exit(f"{name} compiles {compiled} kernels that the pack has not")
        cells = [cell(*map(min, zip(*of, strict=True))) for of in taken.values()]
        print(f"{name:<10}", *(f"{text:>28}" for text in cells))


if __name__ == "__main__":
    main()
