"""Calls that programs are full of, on small tensors: what it costs to record and to run them.

The results are kept and computed, so what nobody looks at does not come for free.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from rows import Arrays, Call, Row, uniform

REPEATS = 50

# On two vectors of 16, a matrix of 8x8, 8 of its rows by number, and a mask of 16.
WRITES = """
x -= y; x += y
x.mul_(2.0).div_(2.0)
x.copy_(y)
x.zero_()
x.clamp_(0, 1)
x[2] = 1.0
a[1:3] = a[5:7]
"""
EXPRESSIONS = """
x + 1.0
x.clamp(0, 1)
torch.where(mask, x, y)
x.masked_fill(mask, 0.0)
torch.lerp(x, y, 0.5)
torch.zeros(16)
torch.ones_like(x)
torch.arange(16)
torch.tensor(1.0)
torch.tensor([1.0, 2.0, 3.0])
torch.cat([x, y])
torch.stack([x, y])
a.t() @ a
a[1:3, 2] * 2
a[rows]
a.sum(1)
a.max(1)[0]
a.argmax(1)
a.softmax(1)
(x > y).any()
F.layer_norm(a, (8,))
F.linear(a, a)
F.cross_entropy(a, rows)
F.mse_loss(x, y)
torch.tensor(x.sum().item())
"""
PARAMETERS = "torch, F, x, y, a, rows, mask"


def data() -> Arrays:
    rows = np.array([3, 0, 7, 7, 1, 2, 5, 4])
    vectors = uniform((16,), (-2, 2)), uniform((16,), (0.5, 2), seed=1)
    return *vectors, uniform((8, 8), (-1, 1), seed=2), rows, vectors[0] > 0


def function(text: str, is_write: bool) -> Callable[..., Any]:
    """The call as a function; a write gives what it may have written."""
    found: dict[str, Any] = {}
    body = f"{text}; return x, a" if is_write else f"return {text}"
    exec(f"def call({PARAMETERS}): {body}", found)
    call: Callable[..., Any] = found["call"]
    return call


def repeated(text: str, is_write: bool, torch: Any, *arrays: np.ndarray) -> Call:
    call, tensors = function(text, is_write), [torch.tensor(array) for array in arrays]
    given = torch, torch.nn.functional, *tensors

    def run() -> Any:
        results = [call(*given) for _ in range(REPEATS)]
        return results[-1] if is_write else results

    return run


CALLS: tuple[Row, ...] = tuple(
    Row("calls", f"one of {REPEATS}, {text}", data, {"torch": partial(repeated, text, is_write)}, REPEATS)
    for texts, is_write in ((WRITES, True), (EXPRESSIONS, False))
    for text in texts.strip().splitlines()
)  # fmt: skip
