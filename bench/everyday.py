"""Calls that programs are full of. On small tensors: what it costs to record and to run them, and to look
at each result at once. On a million elements: single operations that move, count and sort, of which the
other rows have none.

The results are kept and computed, so what nobody looks at does not come for free.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import networks
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
a[:, rows] = 1.0
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
a[:, rows]
a[rows, rows]
a[torch.arange(8), rows]
a[[0, 2, 5]]
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
# On the product of a matrix that needs gradients and a number, `z`.
GRADED = """
F.relu(z, inplace=True)
z += a
z.clamp_(-0.5, 0.5)
z[2] = 1.0
z[2] *= 2.0
z[1:3] = a[5:7]
z[:] = b
z[...] = 0.0
z[0].copy_(b[1])
z.view(-1).relu_()
z.t().add_(b)
"""
# Of a network 8-32-8 on 8 rows, whose parameters need gradients; `r` needs them too, and `g` draws.
OF_A_NETWORK = """
with torch.inference_mode(): found = net(a)
with torch.no_grad(): found = net(a)
found = torch.autograd.grad(net(r).sum(), r)[0]
found = torch.autograd.grad(net(r).sum(), r, create_graph=True)[0]
with torch.autograd.graph.save_on_cpu(): found = torch.autograd.grad(net(r).sum(), r)[0]
found = torch.autograd.grad(checkpoint(net, r, use_reentrant=False).sum(), r)[0]
found = net(a[0])
found = net(a.view(2, 4, 8))
found = a + 0 * torch.rand(8, 8, generator=g)
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


def written_in_a_graph(text: str, torch: Any, *arrays: np.ndarray) -> Call:
    """Each result, and the first gradient."""
    found: dict[str, Any] = {}
    exec(f"def call(F, a, b):\n    z = a * 1.5\n    {text}\n    return z", found)
    a, b = torch.tensor(arrays[2], requires_grad=True), torch.tensor(arrays[2])

    def run() -> Any:
        results = [found["call"](torch.nn.functional, a, b) for _ in range(REPEATS)]
        return *results, *torch.autograd.grad(results[0].sum(), a)

    return run


def of_a_network(text: str, torch: Any, *arrays: np.ndarray) -> Call:
    found: dict[str, Any] = {}
    exec(f"def call(torch, net, checkpoint, a, r, g):\n    {text}\n    return found", found)
    net = networks.with_drawn_weights(torch, networks.perceptron(torch, (8, 32, 8), torch.nn.Tanh))
    a, r = torch.tensor(arrays[2]), torch.tensor(arrays[2], requires_grad=True)
    checkpoint = importlib.import_module(f"{torch.__name__}.utils.checkpoint").checkpoint
    given = torch, net, checkpoint, a, r, torch.Generator()
    return lambda: [found["call"](*given) for _ in range(REPEATS)]


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
        Row("calls", f"one of {REPEATS}, z = a * 1.5; {text}", data,
            {"torch": partial(written_in_a_graph, text)}, REPEATS)
        for text in GRADED.strip().splitlines()
    ],
    *[
        Row("calls", f"one of {REPEATS}, {text}", data, {"torch": partial(of_a_network, text)}, REPEATS)
        for text in OF_A_NETWORK.strip().splitlines()
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
