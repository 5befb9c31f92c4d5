"""Calls that programs are full of. On small tensors: what it costs to record and to run them, and to look
at each result at once. On a million elements: single operations that move, count and sort, of which the
other rows have none.

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
x.add_(y, alpha=0.5).sub_(y, alpha=0.5)
x.addcmul_(y, y, value=0.5); x.addcmul_(y, y, value=-0.5)
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
torch.rand(16) < 1.0
torch.randn(16) * 0.0
F.dropout(x, 0.5) * 0.0
"""
LOOKS = """
x[3].item()
x.tolist()
(x + y).tolist()
x.sum().item()
bool((x > y).any())
a.max(1)[1].tolist()
a[rows].sum().item()
x.dot(y).item()
F.cross_entropy(a, rows).item()
(a.argmax(1) == rows).sum().item()
"""
# On matrices of 1024x1024, 1024 of its rows by number, places in rows, a mask, and whole numbers.
MOVES = """
x.t().contiguous()
x + y.t()
x.view(64, 128, 2, 64).transpose(1, 2).contiguous()
x.view(128, 128, 64) * y[:128, :128, None]
x.view(128, 128, 64) + y[:128, None, :64]
x.view(64, 1024, 16) * y[0, :, None]
x.view(64, 128, 128)[:, 1:-1, 1:-1] - y.view(64, 128, 128)[:, :-2, 1:-1]
x[:, 10:40].exp()
x.view(1024, 64, 16) @ y[:16, :64]
x.view(1024, 64, 16) @ y.view(1024, 16, 64)
F.linear(x[:1], y, x[1])
F.linear(x[:3], y, x[1])
x.flip(1)
x.roll(1, 0)
x.tril()
torch.cat([x, y], 1)
x[rows]
x[:, rows]
torch.index_select(x, 1, rows)
x[mask]
mask.nonzero()
x.masked_fill(mask, 0.0)
torch.where(mask, x, y)
x.gather(1, places)
torch.zeros(1024, 1024).scatter_add(1, places, x)
x.gather(0, rows[:, None].expand(-1, 1024))
torch.zeros(1024, 1024).scatter_add(0, rows[:, None].expand(-1, 1024), x)
x.scatter_reduce(0, rows[:, None].expand(-1, 1024), y, "amax")
x.index_add(0, rows, y)
F.embedding(rows, x)
F.one_hot(rows, 1024)
i % 7
i // 7
i & 255
x.double()
i.float()
x.sum(0)
x.sum(1)
x.max(1)[1]
x.std(1)
x.log_softmax(1)
x.cumsum(1)
x.sort(1)[0]
x.topk(5, 1)[0]
D.Normal(x, y).log_prob(y)
D.Gamma(y, y).log_prob(y)
D.Categorical(logits=x).log_prob(rows)
D.Normal(x, y).sample() > -1e9
D.Gamma(y, y).sample() >= 0.0
D.Categorical(logits=x).sample() >= 0
"""
PARAMETERS = "torch, F, x, y, a, rows, mask"
MATRICES = "torch, F, D, x, y, rows, places, mask, i"


def data() -> Arrays:
    rows = np.array([3, 0, 7, 7, 1, 2, 5, 4])
    vectors = uniform((16,), (-2, 2)), uniform((16,), (0.5, 2), seed=1)
    return *vectors, uniform((8, 8), (-1, 1), seed=2), rows, vectors[0] > 0


def matrices() -> Arrays:
    shape, numbers = (1024, 1024), np.random.default_rng(3)
    x, y = uniform(shape, (-2, 2)), uniform(shape, (0.5, 2), seed=1)
    rows, places = numbers.integers(0, 1024, 1024), numbers.integers(0, 1024, shape)
    return x, y, rows, places, x > 0, numbers.integers(-1000, 1000, shape)


def function(text: str, is_write: bool = False, parameters: str = PARAMETERS) -> Callable[..., Any]:
    """The call as a function; a write gives what it may have written."""
    found: dict[str, Any] = {}
    body = f"{text}; return x, a" if is_write else f"return {text}"
    exec(f"def call({parameters}): {body}", found)
    call: Callable[..., Any] = found["call"]
    return call


def repeated(text: str, is_write: bool, torch: Any, *arrays: np.ndarray) -> Call:
    call, tensors = function(text, is_write), [torch.tensor(array) for array in arrays]
    given = torch, torch.nn.functional, *tensors

    def run() -> Any:
        results = [call(*given) for _ in range(REPEATS)]
        return results[-1] if is_write else results

    return run


def looked_at(text: str, torch: Any, *arrays: np.ndarray) -> Call:
    call, tensors = function(text), [torch.tensor(array) for array in arrays]
    given = torch, torch.nn.functional, *tensors

    def run() -> Any:
        for _ in range(REPEATS):
            found = call(*given)
        return torch.tensor(found)

    return run


def single(text: str, torch: Any, *arrays: np.ndarray) -> Call:
    call, tensors = function(text, False, MATRICES), [torch.tensor(array) for array in arrays]
    given = torch, torch.nn.functional, torch.distributions, *tensors
    return lambda: call(*given)


CALLS: tuple[Row, ...] = (
    *[
        Row("calls", f"one of {REPEATS}, {text}", data, {"torch": partial(repeated, text, is_write)}, REPEATS)
        for texts, is_write in ((WRITES, True), (EXPRESSIONS, False))
        for text in texts.strip().splitlines()
    ],
    *[
        Row("looks", f"one of {REPEATS}, {text}", data, {"torch": partial(looked_at, text)}, REPEATS)
        for text in LOOKS.strip().splitlines()
    ],
    *[
        Row("moves", f"1M elements, {text}", matrices, {"torch": partial(single, text)}, rtol=1e-4, atol=2e-5)
        for text in MOVES.strip().splitlines()
    ],
)  # fmt: skip
