"""Models of public packages, unchanged, in PyTorch and with adjit under its name: agreement and times.

    python bench/public_models.py transformers [--models PATTERN] [--threads 1] [--seconds 1]

The package (`transformers`, `torchvision`, `vit_pytorch`) has to be installed; PyTorch writes the weights. A
library runs in a process of its own, in which `sys.modules["torch"] = adjit` comes before the package is
imported. Compared are the loss and the gradients of all parameters, in units of the largest of each tensor; the
time is the shortest of many steps (loss, backward, `loss.item()`) once there are no new kernels.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np

PACKAGES = ("transformers", "torchvision", "vit_pytorch")
STEPS = 12  # at least, before a model is timed and while it is
CLOSE = 2e-3  # of the largest element of a gradient, in float32
NOTHING = 1e-4  # of the largest gradient of a model: what is smaller is 0 but for rounding


def main() -> None:
    """Run both libraries and print what they have in common."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("package", choices=PACKAGES)
    parser.add_argument("--models", default="", metavar="PATTERN", help="regular expression")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a model, twice")
    parser.add_argument("--library", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.library:
        run_all(options)
        return
    import machine

    with tempfile.TemporaryDirectory() as folder:
        found = []
        for library in ("torch", "adjit"):
            command = [
                sys.executable,
                __file__,
                *sys.argv[1:],
                "--library",
                library,
                "--folder",
                folder,
            ]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            found.append(json.loads(done.stdout.splitlines()[-1]))
    version = importlib.metadata.version(options.package.replace("_", "-"))
    print(f"{machine.description()}, {options.package} {version}\n\n{report(*found)}")


def report(theirs: dict[str, Any], ours: dict[str, Any]) -> str:
    """A table of what was found, by model, and a line about all."""
    lines = ["| model | | PyTorch | adjit |", "|---|---|---:|---:|"]
    ratios, agreed = [], 0
    for name, there in theirs.items():
        here = ours[name]
        if "error" in there or "error" in here:
            whose = "PyTorch" if "error" in there else "adjit"
            lines.append(f"| {name} | {whose}: {there.get('error') or here['error']} | | |")
            continue
        ratio = there["ms"] / here["ms"]
        ratios.append(ratio)
        agreed += here["agrees"]
        said = "agrees" if here["agrees"] else here["differs"]
        lines.append(
            f"| {name} | {said} | {there['ms']:.2f} ms | {here['ms']:.2f} ms ({ratio:.2f}x) |"
        )
    mean = exp(sum(map(log, ratios)) / max(len(ratios), 1))
    lines.append(
        f"\n{agreed} of {len(ratios)} agree; PyTorch's time over adjit's: {mean:.2f} in the mean."
    )
    return "\n".join(lines)


def run_all(options: argparse.Namespace) -> None:
    """Run the models in one library; the last line is what was found, as JSON."""
    warnings.simplefilter("ignore")
    if options.library == "adjit":
        import adjit

        sys.modules["torch"] = adjit
    import torch

    torch.set_num_threads(options.threads)
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    import public_families

    found = {}
    for name, model in public_families.PACKAGES[options.package]().items():
        if re.search(options.models, name):
            path = Path(options.folder) / f"{name}.npz"
            try:
                found[name] = run_one(torch, model, path, options)
            except Exception as error:
                found[name] = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
            print(name, found[name], file=sys.stderr)
    print(json.dumps(found))


def run_one(torch: Any, model: Any, path: Path, options: argparse.Namespace) -> dict[str, Any]:
    """A step of one model, compared with what PyTorch has written, and its time."""
    writes = options.library == "torch"
    torch.manual_seed(0)
    module = model.make().eval()
    state = module.state_dict()
    known = {} if writes else dict(np.load(path))
    for name in state if known else ():
        state[name] = torch.from_numpy(known[f"state {name}"])
    module.load_state_dict(state)

    def step() -> Any:
        module.zero_grad()
        loss = model.loss(module)
        loss.backward()
        return loss

    made = {"loss": np.array(step().item())}
    parameters = dict(module.named_parameters())
    made |= {f"grad {k}": p.grad.numpy() for k, p in parameters.items() if p.grad is not None}
    found: dict[str, Any] = {"ms": shortest(lambda: step().item(), options.seconds) * 1e3}
    if writes:
        kept = {f"state {k}": t.numpy() for k, t in state.items()}
        np.savez(path, **made, **kept)
        return found
    return found | compared({k: a for k, a in known.items() if not k.startswith("state ")}, made)


def shortest(call: Callable[[], object], seconds: float) -> float:
    """The shortest of many calls, in seconds."""
    times: list[float] = []
    for rounds in range(2):  # the first for kernels and plans
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds or len(times) < STEPS * (rounds + 1):
            before = time.perf_counter()
            call()
            times.append(time.perf_counter() - before)
    return min(times)


def compared(expected: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Whether two sets of arrays agree, and which is furthest away."""
    if expected.keys() != found.keys():
        return {
            "agrees": False,
            "differs": f"other gradients: {sorted(expected.keys() ^ found.keys())[:3]}",
        }
    least = NOTHING * max(
        float(np.abs(a).max(initial=0)) for k, a in expected.items() if k != "loss"
    )
    worst, where = 0.0, ""
    for name, array in expected.items():
        size = max(float(np.abs(array).max(initial=0)), 0.0 if name == "loss" else least)
        distance = float(np.abs(array - found[name]).max(initial=0)) / (size or 1.0)
        if not distance <= worst:
            worst, where = distance, name
    return {"agrees": worst <= CLOSE, "differs": f"{where} is {worst:.1e} of its size away"}


if __name__ == "__main__":
    main()
