"""PyTorch's own samples of its operations (`OpInfo`), one by one, beside PyTorch.

    python bench/samples.py [--ops PATTERN] [--large] [--samples 3]

The samples are what PyTorch tests each operation with, some elements each: what is measured is what a call
costs. With --large every axis of the two largest is repeated until there are some 600,000 elements. One thread,
float32 (int64 where there is none), forward and forward with gradients, the libraries in turn, the least of
some runs; results are kept and computed. What adjit refuses, and what makes no sense repeated, is left out.
A full run is written to bench/results/: how many there are of each ratio, and those that are behind.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import machine
from timing import limit_threads

FOLDER = Path(__file__).parent
LARGE = 600_000  # elements
LONGEST = 1.0  # seconds of a call that is measured
AT_ONCE = 0.005  # seconds of calls in a sample
MOST_CALLS, WARM, TURNS = 60, 4, 6
ELSEWHERE = (
    "_refs",
    "linalg_vander",
    "jiterator",
    "fft",
    "sparse",
    "masked.",
    "_segment",
)  # names of ops that are not here, or whose results are the square of what is repeated
BOUNDS = (0.25, 0.5, 0.7, 0.9, 1.1, 1.5, 2.0, 3.0, 5.0, 10.0)


class Measured(NamedTuple):
    """A sample of an operation: PyTorch's time over adjit's, both in microseconds, and what it is of."""

    ratio: float
    name: str
    kind: str
    ours: float
    theirs: float
    arguments: str


def repeated(value: Any, times: int, known: dict[int, Any]) -> Any:
    """An argument, its tensors repeated along every axis."""
    import torch

    if isinstance(value, torch.Tensor):
        if id(value) not in known:
            dense = value.detach().contiguous()
            grown = dense.repeat(*[times] * dense.ndim) if dense.ndim else dense
            known[id(value)] = grown.requires_grad_(value.requires_grad)
        return known[id(value)]
    if isinstance(value, dict):
        return {key: repeated(item, times, known) for key, item in value.items()}
    if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        return type(value)(repeated(item, times, known) for item in value)
    return value


def elements(value: Any) -> int:
    """How many elements the tensors of an argument have."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        return sum(map(elements, value))
    return value.numel() if hasattr(value, "numel") and hasattr(value, "dtype") else 0


def enlarged(sample: Any) -> Any | None:
    """A sample with some `LARGE` elements; None if it has no axes."""
    given = (sample.input, sample.args, sample.kwargs)
    axes = max((t.ndim for t in tensors_of(given)), default=0)
    times = round((LARGE / max(elements(given), 1)) ** (1 / axes)) if axes else 0
    if times < 2:
        return None
    known: dict[int, Any] = {}
    return type(sample)(
        repeated(sample.input, times, known),
        args=repeated(tuple(sample.args), times, known),
        kwargs=repeated(sample.kwargs, times, known),
    )


def tensors_of(value: Any) -> Iterator[Any]:
    """The tensors of an argument."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_of(item)
    elif hasattr(value, "ndim"):
        yield value


def call_of(library: Any, info: Any, sample: Any, with_gradients: bool) -> Callable[[], Any]:
    """A call of the operation in a library, with its gradients if wanted."""
    import opinfo
    import torch

    arguments = opinfo.Arguments(library, with_gradients)
    args = [arguments.of(value) for value in (sample.input, *sample.args)]
    kwargs = {name: arguments.of(value) for name, value in sample.kwargs.items()}
    function = info.op if library is torch else opinfo.translated(info.op)
    if not with_gradients:
        return lambda: function(*args, **kwargs)

    def roots() -> list[Any]:
        found = opinfo.parts(function(*args, **kwargs))
        return [t for t in found if opinfo.is_tensor(t) and t.requires_grad]

    upstream = [library.ones_like(t) for t in roots()]
    return lambda: library.autograd.grad(roots(), arguments.leaves, upstream, allow_unused=True)


def seconds(call: Callable[[], Any], count: int, each: bool) -> float:
    """What one of so many calls takes whose results are kept, computed after `each` or all together.

    (60 calls on one large tensor would be one kernel with 60 results, at the same places of their pages.)
    """
    from adjit.schedule.settle import settle

    kept = []
    start = perf_counter()
    for _ in range(count):
        kept.append(call())
        if each:
            settle()
    settle()
    taken = (perf_counter() - start) / count
    del kept
    return taken


def measure(info: Any, sample: Any, kind: str, large: bool) -> Measured | None:
    """Both libraries' times; None where one of them does not take the sample."""
    import torch

    import adjit
    from adjit.schedule import plan_cache

    try:
        theirs = call_of(torch, info, sample, kind == "gradients")
        theirs()
        first = seconds(theirs, 1, large)
        ours = call_of(adjit, info, sample, kind == "gradients")
        seconds(ours, 1, large)
    except Exception:  # refused, or not repeatable
        return None
    if first > LONGEST:
        return None
    count = max(1, min(MOST_CALLS, int(AT_ONCE / first)))
    for _ in range(WARM):
        seconds(ours, count, large)
    plan_cache.wait()
    best = [inf, inf]
    for _ in range(TURNS):
        for k, call in enumerate((ours, theirs)):
            best[k] = min(best[k], seconds(call, count, large))
    shapes = [tuple(t.shape) for t in tensors_of((sample.input, sample.args))]
    rest = [repr(value) for value in sample.args if not elements(value)]
    named = [f"{name}={value!r}" for name, value in sample.kwargs.items() if not elements(value)]
    text = ", ".join([*map(str, shapes), *rest, *named]).replace("|", "/")[:90]
    return Measured(
        best[1] / best[0], info.formatted_name, kind, best[0] * 1e6, best[1] * 1e6, text
    )


def chosen(info: Any, kind: str, large: bool, count: int) -> list[Any]:
    """Samples of an operation: some from its list, or the largest, grown."""
    import torch

    dtype = torch.float32 if torch.float32 in info.dtypes else torch.int64
    grads = kind == "gradients"
    if dtype not in info.dtypes or (grads and not info.supports_autograd):
        return []
    given = list(itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=grads), 40))
    if not large:
        return given[:: max(1, len(given) // count)][:count]
    given.sort(key=lambda sample: -elements((sample.input, sample.args)))
    return [sample for sample in map(enlarged, given[:2]) if sample is not None]


def measured(pattern: str, large: bool, count: int) -> Iterator[Measured]:
    """All samples of the operations whose names match."""
    sys.path.insert(0, str(FOLDER.parent / "tests"))  # what reads PyTorch's samples
    import opinfo

    for name, info in opinfo.OPS.items():
        if name.startswith(ELSEWHERE) or not re.search(pattern, name):
            continue
        print(name, file=sys.stderr)
        for kind in ("forward", "gradients"):
            try:
                samples = chosen(info, kind, large, count)
            except Exception as error:  # some need what is not installed
                print(f"{name}: {error}", file=sys.stderr)
                continue
            yield from filter(None, [measure(info, sample, kind, large) for sample in samples])


def table(found: list[Measured], command: str) -> str:
    """How many samples there are of each ratio, and those behind."""
    lines = [machine.description(), "", f"`{command}`: PyTorch's time over adjit's", ""]
    lines += ["| ratio | forward | with gradients |", "|---|--:|--:|"]
    for low, high in itertools.pairwise((0.0, *BOUNDS, inf)):
        inside = [row for row in found if low <= row.ratio < high]
        counts = [sum(row.kind == kind for row in inside) for kind in ("forward", "gradients")]
        name = (
            f"below {high}"
            if low == 0
            else f"{low} and more"
            if high == inf
            else f"{low} to {high}"
        )
        lines.append(f"| {name} | {counts[0]} | {counts[1]} |")
    lines += [
        "",
        "| behind | | ratio | adjit us | PyTorch us | arguments |",
        "|---|---|--:|--:|--:|---|",
    ]
    for row in sorted(found):
        if row.ratio < 0.9:
            times = f"{row.ratio:.2f} | {row.ours:.1f} | {row.theirs:.1f}"
            lines.append(f"| {row.name} | {row.kind} | {times} | `{row.arguments}` |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ops", default="", metavar="PATTERN", help="regular expression")
    parser.add_argument("--large", action="store_true", help="some 600,000 elements")
    parser.add_argument("--samples", type=int, default=3, help="of each operation")
    options = parser.parse_args()
    name = f"{machine.short_name()}-samples{'-large' if options.large else ''}.md"
    limit_threads(1)
    warnings.simplefilter("ignore")
    import torch

    import adjit

    torch.set_num_threads(1)
    adjit.set_num_threads(1)
    found = list(measured(options.ops, options.large, options.samples))
    if not found:
        parser.error(f"no operation matches {options.ops!r}")
    command = "python bench/samples.py" + (" --large" if options.large else "")
    text = table(found, command)
    print(text)
    if not options.ops:
        (FOLDER / "results" / name).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
