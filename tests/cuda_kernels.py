"""Device kernels: all elementwise ones, forward and backward, others that ops record, fused ones."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

from adjit.kernels.ops import matmul, sort
from cuda_cases import programs
from test_elementwise_laws import FLOAT_OPS, INT_OPS, sample, tensors

import adjit
from adjit import kernels
from adjit.cuda import simulator
from adjit.schedule import dispatch, plan_cache, settle
from adjit.schedule.codegen import units_cuda
from adjit.schedule.gpu.lower import device_steps
from adjit.schedule.planning.recipe import DeviceSource

# Kernels whose part the driver, the host, products, a softmax, padding with zeros or another kernel has.
ON_THE_HOST = {
    "copy_words", "mark", "pack_keys", "attend", "attend_few", "attend_few_backward", "prepare",
    "attend_backward", "pack_layer",
    "add_parts", "add_to_region", "copy_whole", "link_rows", "sgd_rows", "chain_rows", "add_chains",
    "products_of_others", "few_by_few", "rows_by_columns", "rows_by_vectors", "runs_by_vector",
    "total_of_runs", "end_of_bags", "hold_to", "copy_table", "sort_short_rows", "kth_short_rows",
    "mode_short_rows",
}  # fmt: skip


class Recorded:
    """Stands in for the cold road: notes the recipes that come to it and, unless told, runs nothing."""

    def __init__(self, *, runs: bool = False) -> None:
        self.runs = runs
        self.recipes: list[Any] = []

    def run(self, batch: list[Any]) -> None:
        self.recipes += [node.recipe for node in batch if node.recipe is not None]
        if self.runs:
            self.kept[0](batch)
        batch.clear()

    def __enter__(self) -> Recorded:
        settle.settle()
        self.kept = dispatch.run, plan_cache.is_on
        dispatch.run, plan_cache.is_on = self.run, False
        return self

    def __exit__(self, *_: object) -> None:
        settle.pending.clear()
        dispatch.run, plan_cache.is_on = self.kept


def kernels_of(op: Any, dtype: Any) -> dict[str, DeviceSource]:
    """The kernels of an op over contiguous operands, and of its derivative, by name."""
    with Recorded() as recorded:
        operands = tensors(sample(op, dtype, (64,)), requires_grad=op.differentiable)
        out = op(*operands)
        if out.requires_grad:
            out.backward(adjit.ones_like(out))
        settle.settle()
    steps = [
        step for r in recorded.recipes if r.fusion.element is not None for step in device_steps(r)
    ]
    return {step.source.name: step.source for step in steps}


def elementwise_kernels() -> dict[str, DeviceSource]:
    """The kernels of all ops in float32 and float64, and in int64 where they take it."""
    found: dict[str, DeviceSource] = {}
    for op in FLOAT_OPS:
        for dtype in (adjit.float32, adjit.float64):
            found |= kernels_of(op, dtype)
    for op in INT_OPS:
        found |= kernels_of(op, adjit.int64)
    return found


def other_kernels() -> dict[str, DeviceSource]:
    """The kernels that the programs of `cuda_cases` run, for each of their dtypes."""
    found: dict[str, DeviceSource] = {}
    for program in programs():
        with Recorded(runs=True) as recorded:  # some look at values on their way
            made = program()
            settle.settle()
            del made
        steps = [s for r in recorded.recipes if r.pick < 0 for s in device_steps(r)]
        found |= {label(s.source): s.source for s in steps}
    return found | products() | sorts()


def label(source: DeviceSource) -> str:
    """The name of a kernel and the dtypes behind its letters."""
    letters = re.findall(r"^[TXYZ] = (\w+)$", source.text, re.MULTILINE)
    return " ".join([source.name.removesuffix("_on_gpu"), *letters])


def kernels_of_the_room() -> Iterator[tuple[Any, Any]]:
    """Every CPU kernel that is not written by the scheduler and each of its CUDA sides, None where it
    is taken over as it is."""
    for info in pkgutil.walk_packages(kernels.__path__, "adjit.kernels."):
        if info.name.endswith(".launcher"):  # the host's part of a launch
            continue
        for function in vars(import_module(info.name)).values():
            if getattr(function, "is_kernel", False) and function.__module__ == info.name:
                for side in getattr(function, "devices", [None]):
                    yield function, side


def left_out(found: Iterable[str]) -> set[str]:
    """The CUDA sides of the room that are not among kernels with these labels."""
    names = {label.split()[0] for label in found} | ON_THE_HOST
    return {(side or function).__name__ for function, side in kernels_of_the_room()} - names


def products() -> dict[str, DeviceSource]:
    """The kernels of products of all sizes and precisions."""
    found: dict[str, DeviceSource] = {}
    words = len(matmul.PRODUCT)
    for kernel, count in ((matmul.product, 3 + words), (matmul.product_and_bias, 6 + words)):
        for side in kernel.devices:
            bind = {"T": "float64" if side.launch.when is matmul.is_double else "float32"}
            source = units_cuda.by_units(kernel, bind, count, side=side)
            found[label(source)] = source
    return found


def sorts() -> dict[str, DeviceSource]:
    """The kernels that sort and select by warps and blocks, over float32 and int64."""
    kernels = (
        sort.sort_rows, sort.first_rows, sort.topk_rows, sort.kth_rows, sort.mode_rows,
        sort.sort_records, sort.distinct, sort.neighbours,
    )  # fmt: skip
    found: dict[str, DeviceSource] = {}
    for kernel in kernels:
        for side in kernel.devices:
            for dtype in ("float32", "int64"):
                made = units_cuda.by_units(kernel, {"T": dtype, "I": "int64"}, 9, side=side)
                found[label(made)] = made
    return found


def fused_kernels() -> dict[str, DeviceSource]:
    """The kernels that the plans of the programs in `test_cuda_fused` launch; nothing runs."""
    import stub_driver
    from test_cuda_fused import PROGRAMS

    kept, simulator.run = simulator.run, lambda *args, **kwargs: None
    try:
        with stub_driver.installed(simulated=True) as stub:
            for program, kernel in PROGRAMS.values():
                x, w = adjit.ones(16, 70, device="cuda"), adjit.ones(70, device="cuda")
                for _ in range(20):
                    made = program(x, w)
                    [t.tolist() for t in (made if isinstance(made, tuple) else (made,))]
                    plan_cache.wait()
                    if any(label.startswith(kernel) for label in stub.seen):
                        break
                else:
                    raise AssertionError(f"{kernel} was not made, but {stub.seen}")
            found = [s for s in stub.kernels.values() if s.name.startswith(("rows_", "fused_"))]
    finally:
        simulator.run = kept
    return {source.name: source for source in found}
