"""The kernels of ops that are not elementwise, on a GPU: against the CPU's, in the simulator.

All cases run with ADJIT_CUDA_ALL=1, as in CI; a few stand for them otherwise.
"""

from __future__ import annotations

import os
import pkgutil
from importlib import import_module

import numpy as np
import pytest
from adjit.kernels import micro
from on_simulator import check

import adjit
from adjit import kernels
from adjit.nn import functional as F
from adjit.schedule import codegen_cuda

rng = np.random.default_rng(0)


def normal(*shape, dtype=np.float32):
    return adjit.tensor(rng.standard_normal(shape).astype(dtype))


def whole(*values):
    return adjit.tensor([*values])


# What follows computes in the CPU's order, so that the bits are the same.
CASES = {
    "sum of rows": lambda: normal(3, 70).sum(1),
    "sum of columns": lambda: normal(9, 37).sum(0),
    "sum of all": lambda: normal(5, 211).sum(),
    "sum in float64": lambda: normal(3, 40, dtype=np.float64).sum(1),
    "product of rows": lambda: normal(3, 40).prod(1),
    "largest of rows": lambda: normal(3, 70).amax(1),
    "place of the smallest": lambda: normal(3, 70).argmin(1),
    "variance": lambda: normal(3, 70).var(1),
    "softmax": lambda: adjit.softmax(normal(3, 70), 1),
    "log softmax": lambda: adjit.log_softmax(normal(3, 70), 1),
    "softmax of columns": lambda: adjit.softmax(normal(7, 5), 0),
    "logsumexp": lambda: normal(3, 70).logsumexp(1),
    "cross-entropy": lambda: F.cross_entropy(normal(5, 7), whole(1, 0, 6, 2, 2)),
    "layer norm": lambda: F.layer_norm(normal(3, 70), (70,)),
    "running sum": lambda: normal(3, 17).cumsum(1),
    "sort": lambda: normal(3, 17).sort(1),
    "top k": lambda: normal(3, 17).topk(4, 1),
    "gather": lambda: normal(3, 7).gather(1, whole([0, 3], [1, 2], [6, 5])),
    "chosen rows": lambda: normal(5, 7).index_select(0, whole(4, 0, 2)),
    "embedding": lambda: F.embedding(whole([4, 0], [2, 4]), normal(5, 7)),
    "scatter add": lambda: normal(3, 7).scatter_add(1, whole([0, 3], [1, 1], [6, 5]), normal(3, 2)),
    "joined": lambda: adjit.cat([normal(3, 4), normal(3, 2)], 1),
    "flipped": lambda: normal(3, 4).flip(1),
    "triangle": lambda: normal(5, 5).tril(),
    "padded": lambda: F.pad(normal(2, 3), (1, 1)),
    "unfolded": lambda: F.unfold(normal(1, 2, 5, 5), 3),
    "largest in windows": lambda: F.max_pool2d(normal(1, 2, 6, 6), 2),
    "mean of windows": lambda: F.avg_pool2d(normal(1, 2, 6, 6), 2),
    "resized": lambda: F.interpolate(normal(1, 2, 4, 4), scale_factor=2),
    "uniform numbers": lambda: adjit.rand(300),
    "normal numbers": lambda: adjit.randn(70),
    "whole numbers": lambda: adjit.randint(0, 9, (70,)),
    "dropout": lambda: F.dropout(normal(300), 0.3),
    "batch norm": lambda: F.batch_norm(normal(4, 3, 5, 5), None, None, training=True),
    "product of whole numbers": lambda: adjit.ones(5, 9).long() @ adjit.ones(9, 4).long(),
}  # fmt: skip

FEW = {"sum of rows", "place of the smallest", "softmax", "gather", "running sum", "normal numbers",
       "matrices", "a linear layer"}  # fmt: skip
EVERY = os.environ.get("ADJIT_CUDA_ALL", "0") == "1"


def chosen(cases):
    return [name for name in cases if EVERY or name in FEW]


@pytest.mark.parametrize("name", chosen(CASES))
def test_a_kernel_gives_the_bits_of_the_cpu(name):
    check(CASES[name])


PRODUCTS = {
    "matrices": lambda: normal(5, 9) @ normal(9, 7),
    "transposed ones": lambda: normal(9, 5).T @ normal(7, 9).T,
    "batches": lambda: normal(2, 5, 9) @ normal(2, 9, 7),
    "several tiles": lambda: normal(66, 3) @ normal(3, 67),
    "a long sum": lambda: normal(2, 260) @ normal(260, 3),
    "a linear layer": lambda: F.linear(normal(5, 9), normal(7, 9), normal(7)),
    "float64": lambda: normal(5, 9, dtype=np.float64) @ normal(9, 7, dtype=np.float64),
}


@pytest.mark.skipif(not micro.FUSED, reason="this processor does not fuse products and sums")
@pytest.mark.parametrize("name", chosen(PRODUCTS))
def test_a_product_gives_the_bits_of_the_cpu(name):
    check(PRODUCTS[name])


def test_a_matrix_by_a_vector():
    check(lambda: normal(5, 9) @ normal(9), exact=False)
    check(lambda: normal(9, 5).T @ normal(9), exact=False)


# Kernels of the CPU that have no CUDA side yet. The list may only get shorter.
MISSING = {"convolve", "convolve_depthwise", "correlate", "correlate_depthwise", "pack_weight"}


def test_the_list_of_kernels_without_a_cuda_side_is_true():
    missing, letters = set(), dict.fromkeys("TXYZA", "float32") | {"I": "int64"}
    for info in pkgutil.iter_modules(kernels.__path__):
        for function in vars(import_module(f"adjit.kernels.{info.name}")).values():
            if not getattr(function, "is_kernel", False) or function.__module__ != (
                f"adjit.kernels.{info.name}"
            ):
                continue
            try:
                codegen_cuda.by_units(function, letters, 24)
            except NotImplementedError:
                missing.add(function.__name__)
    assert missing == MISSING


def test_a_kernel_without_a_cuda_side_says_so():
    x, w = adjit.ones(1, 1, 4, 4), adjit.ones(2, 1, 3, 3)
    with pytest.raises(
        NotImplementedError, match=r"no CUDA side yet.*move its operands to the CPU"
    ):
        check(lambda: F.conv2d(x, w))
