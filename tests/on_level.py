"""What the kernels of a level of instructions compute, and of what instructions they are made.

`ADJIT_CPU=x86-64-v3 python tests/on_level.py` prints both as JSON; with the word `all`, of every
elementwise operation, of every program of `cuda_cases.py` and of the recorder. The kernels are compiled
anew, in a folder of their own: what is looked at is the text that LLVM writes for the bytes that run.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import tempfile
import zlib

if __name__ == "__main__":
    # Before adjit is imported: chains are fused, however short, and at once.
    os.environ |= {"ADJIT_JIT": "sync", "ADJIT_HOT": "1", "ADJIT_MIN_FUSED": "1"}
    os.environ["ADJIT_CACHE_DIR"] = tempfile.mkdtemp(prefix="adjit_level_")

import cuda_cases
import llvmlite.binding as llvm
import numpy as np
from adjit.kernels.language.processor import CHOSEN, FUSED, LEVELS
from test_elementwise_laws import FLOAT_OPS, FLOATS, sample, tensors

import adjit
from adjit.nn import functional as F
from adjit.schedule import settle
from adjit.schedule.jit import native

FIRST_WITH = {  # which level has them first, and how they look in a text of machine code
    "x86-64-v3": r"^\t(v\w+|andn|bextr|bls\w+|pdep|pext|mulx|rorx|sarx|shlx|shrx|lzcnt)\b",
    "x86-64-v4": r"%zmm|%k[0-7]\b|%[xy]mm(1[6-9]|2\d|3[01])\b",
}


def beyond(text: str) -> list[str]:
    """The lines that the chosen level has no instructions for."""
    levels = list(LEVELS)
    allowed = levels if CHOSEN.level not in levels else levels[: levels.index(CHOSEN.level) + 1]
    patterns = [pattern for level, pattern in FIRST_WITH.items() if level not in allowed]
    return [line for line in text.split("\n") if any(re.search(p, line) for p in patterns)]


def normal(*shape, dtype=np.float32):
    seed = zlib.crc32(repr((shape, np.dtype(dtype).name)).encode())
    return adjit.tensor(np.random.default_rng(seed).standard_normal(shape).astype(dtype))


def gradients(function, *leaves):
    leaves = [leaf.requires_grad_() for leaf in leaves]
    out = function(*leaves)
    return [out.detach(), *adjit.autograd.grad(out, leaves, adjit.ones_like(out) * 0.7)]


def elementwise(op, dtype):
    """An operation and its gradients, over memory as it comes and over strides."""
    for shape in ((37,), (5, 9)):
        operands = tensors(sample(op, dtype, shape), requires_grad=op.differentiable)
        turned = [x.t() if x.ndim == 2 else x for x in operands]
        out = op(*turned)
        yield out.detach()
        if out.requires_grad:
            out.backward(adjit.ones_like(out))
            yield from (x.grad for x in operands if x.grad is not None)


def chain(x):
    return (adjit.tanh(x * 2 + 1).exp() * adjit.sigmoid(x) - x.abs().sqrt()).sum(1)


def divided():
    """Quotients and rests of whole numbers where floats run out of digits, and next to multiples."""
    edges = [
        0,
        1,
        3,
        7,
        *(2**bits + more for bits in (31, 32, 51, 52, 53, 62) for more in (-1, 0, 1)),
    ]
    edges = [*edges, *[-n for n in edges], 2**63 - 1, -(2**63), 2**63 - 513, 7 * (2**63 // 7)]
    x, y = (t.flatten() for t in adjit.meshgrid(*[adjit.tensor(edges)] * 2, indexing="ij"))
    x, y = x[y != 0], y[y != 0]
    x = adjit.cat([x, x // y * y - 1])
    y = adjit.cat([y, y])
    found = [x // y, x % y, adjit.div(x, y, rounding_mode="trunc"), adjit.fmod(x, y)]
    return [*found, *[part for n in (7, -3, 2**62) for part in (x // n, x % n, adjit.fmod(x, n))]]


PROGRAMS = {
    "divided whole numbers": divided,
    "chain, fused": lambda: gradients(chain, normal(30, 70)),
    "chain in float64, fused": lambda: gradients(chain, normal(30, 70, dtype=np.float64)),
    "long sums": lambda: [normal(3, 70000).sum(1), normal(70000, 3).mean(0), normal(70001).var()],
    "whole numbers": lambda: (normal(999) * 100).long() // 7 + (normal(999) * 100).int() % 5,
    "conversions": lambda: [(normal(999) * 9).to(t) for t in (adjit.int8, adjit.int16, adjit.int64)],
    "norms": lambda: gradients(lambda x: F.layer_norm(x, (130,)).softmax(1), normal(7, 130)),
    "mean of areas": lambda: gradients(lambda x: x.mean((2, 3)), normal(3, 4, 7, 9)),
    "sorted": lambda: normal(3, 5000).sort(1),
    "sorted side by side": lambda: (*normal(40, 3, 20).sort(0), *normal(33, 9).double().sort(1)),
    "norm of many": lambda: normal(3, 70000).norm(),
    "distinct rows": lambda: adjit.unique((normal(999, 2) * 2).round(), dim=0),
    "distinct neighbours": lambda: (normal(2000) * 2).round().unique_consecutive(return_counts=True),
}  # fmt: skip
PRODUCTS = {
    f"{kind} {np.dtype(dtype).name}": lambda run=run, dtype=dtype: run(dtype)
    for dtype in (np.float32, np.float64)
    for kind, run in {
        "large product": lambda d: gradients(
            lambda x, y: x @ y, normal(70, 600, dtype=d), normal(600, 130, dtype=d)
        ),
        "product with an addend": lambda d: gradients(
            F.linear, normal(9, 40, dtype=d), normal(30, 40, dtype=d), normal(30, dtype=d)
        ),
        "convolution": lambda d: gradients(
            lambda x, w: F.conv2d(x, w, padding=1),
            normal(2, 16, 15, 15, dtype=d), normal(20, 16, 3, 3, dtype=d),
        ),
        "convolution of points": lambda d: gradients(
            F.conv2d, normal(2, 16, 15, 15, dtype=d), normal(40, 16, 1, 1, dtype=d)
        ),
        "depthwise": lambda d: gradients(
            lambda x, w: F.conv2d(x, w, padding=1, groups=32),
            normal(2, 32, 15, 15, dtype=d), normal(32, 1, 3, 3, dtype=d),
        ),
        "attention": lambda d: gradients(
            lambda *x: F.scaled_dot_product_attention(*x, dropout_p=0.1, is_causal=True),
            *(normal(1, 2, 300, 20, dtype=d) for _ in range(3)),
        ),
    }.items()
}  # fmt: skip


def programs(every):
    """Name, program, and whether it multiplies matrices."""
    for op in FLOAT_OPS if every else [op for op in FLOAT_OPS if op.name in OPS]:
        for dtype in FLOATS:
            yield f"{op.name} {dtype}", lambda op=op, dtype=dtype: [*elementwise(op, dtype)], False
    yield from ((name, program, False) for name, program in PROGRAMS.items())
    yield from ((name, program, True) for name, program in PRODUCTS.items())
    if not every:
        return
    products = {*cuda_cases.CONVOLUTIONS, *cuda_cases.PRODUCTS}
    groups = (cuda_cases.CASES, cuda_cases.NEARLY, cuda_cases.PRODUCTS)
    for name, program in ((k, v) for group in groups for k, v in group.items()):
        yield name, program, name in products or "matrix" in name
    yield from ((f"gradient of {k}", cuda_cases.gradient(k), False) for k in cuda_cases.GRADIENTS)
    yield from ((k, cuda_cases.sampled(k), False) for k in cuda_cases.SAMPLED)
    yield from ((k, cuda_cases.convolution(k), True) for k in cuda_cases.CONVOLUTIONS)
    yield from ((f"recurrent: {k}", run, True) for k, run in cuda_cases.RECURRENT.items())


OPS = {"exp", "log", "pow", "tanh", "erf", "lgamma", "floor_divide", "maximum", "gelu", "where"}


def digest(results):
    found = hashlib.sha256()
    for x in [results] if hasattr(results, "_storage") else results:
        array = np.ascontiguousarray(x.detach().contiguous().numpy())
        # Which of its bits a NaN has is nobody's promise.
        array = (
            np.where(np.isnan(array), array.dtype.type("nan"), array)
            if array.dtype.kind == "f"
            else array
        )
        found.update(repr((array.shape, array.dtype.name)).encode() + array.tobytes())
    return found.hexdigest()[:16]


def main(every):
    emit, texts = llvm.TargetMachine.emit_object, []

    def looked_at(machine, module):
        texts.append(machine.emit_assembly(module.clone()))
        return emit(machine, module)

    llvm.TargetMachine.emit_object = looked_at
    bits, products = {}, []
    for name, program, multiplies in programs(every):
        adjit.manual_seed(0)
        cuda_cases.rng = np.random.default_rng(0)
        for _ in range(2):  # the second time by a plan
            bits[name] = digest(program())
        products += [name] if multiplies else []
    for family in native.families if every else ():
        family.load(compiling=True)
    settle.settle()
    told = {
        "fused": FUSED,
        "bits": bits,
        "products": products,
        "kernels": len(texts),
        "beyond": sorted({line.strip() for text in texts for line in beyond(text)}),
        "widest": max(
            (w for w in ("xmm", "ymm", "zmm") if any(f"%{w}" in t for t in texts)), default=""
        ),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main("all" in sys.argv[1:])
