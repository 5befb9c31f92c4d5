"""Programs whose sizes data decide: ever others. Nothing that is known of one call serves the next as it is.

Every run goes on in the stream of random numbers, so that sizes hardly come back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from rows import Arrays, Call, Row, uniform

PARTS, MOST_PARTS = 1000, (500, 2000, 20_000)
LAYERS = 200
STEPS = 20

Loss = Callable[[], Any]  # of a batch of another size each time


def parts(most: int, torch: Any, x: np.ndarray) -> Call:
    """Parts of a vector, up to `most` elements."""
    whole, numbers = torch.tensor(x), np.random.default_rng(5)

    def run() -> Any:
        for size in numbers.integers(1, most, PARTS).tolist():
            y = whole[:size]
            found = ((y * 2 + 1).sigmoid() * y).sum().item()
        return torch.tensor(found)

    return run


def layers(torch: Any, x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> Call:
    """A linear layer on ever other numbers of rows, forward and backward."""
    whole, numbers = torch.tensor(x), np.random.default_rng(6)
    parameters = leaves(torch, weight, bias)

    def run() -> Any:
        for rows in numbers.integers(1, len(x) // 8, LAYERS).tolist():
            out = torch.nn.functional.linear(whole[: 8 * rows].view(rows, 8), *parameters)
            out.relu().sum().backward()
            found = parameters[0].grad
            for parameter in parameters:
                parameter.grad = None
        return found

    return run


def trained(
    program: Callable[..., tuple[list[Any], Loss]], torch: Any, *arrays: np.ndarray
) -> Call:
    """Steps of Adam; the loss of the last one."""
    parameters, loss_of_batch = program(torch, *arrays)
    optimizer = torch.optim.Adam(parameters, lr=1e-3)

    def run() -> Any:
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = loss_of_batch()
            loss.backward()
            optimizer.step()
        return torch.tensor(loss.item())

    return run


def leaves(torch: Any, *arrays: np.ndarray) -> list[Any]:
    return [torch.tensor(array).requires_grad_() for array in arrays]


def graphs(torch: Any, *arrays: np.ndarray) -> tuple[list[Any], Loss]:
    """Two graph convolutions and a sum over each of 16 graphs, which have 200 to 1,200 nodes together."""
    functional, numbers = torch.nn.functional, np.random.default_rng(7)
    weights = first, second, last = leaves(torch, *arrays)

    def convolution(x: Any, weight: Any, edges: Any) -> Any:
        h = x @ weight
        ones = torch.ones(edges.shape[1])
        degree = torch.zeros(x.shape[0]).index_add(0, edges[1], ones).clamp(min=1)
        around = torch.zeros_like(h).index_add(0, edges[1], h[edges[0]])
        return functional.relu(around / degree[:, None] + h)

    def loss() -> Any:
        nodes = int(numbers.integers(200, 1200))
        edges = torch.from_numpy(
            numbers.integers(0, nodes, (2, 4 * nodes + int(numbers.integers(0, 2000))))
        )
        x = torch.from_numpy(numbers.standard_normal((nodes, 16), np.float32))
        graph = torch.from_numpy(numbers.integers(0, 16, nodes))
        h = convolution(convolution(x, first, edges), second, edges)
        sums = torch.zeros(16, 32).index_add(0, graph, h)
        return functional.cross_entropy(sums @ last, torch.from_numpy(numbers.integers(0, 2, 16)))

    return list(weights), loss


def sentences(torch: Any, *arrays: np.ndarray) -> tuple[list[Any], Loss]:
    """Attention over 4 to 32 sentences of up to 200 words, padded to the longest."""
    functional, numbers = torch.nn.functional, np.random.default_rng(8)
    weights = table, query, key, value, last = leaves(torch, *arrays)

    def loss() -> Any:
        count, length = int(numbers.integers(4, 32)), int(numbers.integers(10, 200))
        lengths = numbers.integers(1, length + 1, count)
        lengths[0] = length
        is_padding = torch.from_numpy(np.arange(length) >= lengths[:, None])
        x = functional.embedding(
            torch.from_numpy(numbers.integers(0, 1000, (count, length))), table
        )
        scores = (x @ query) @ (x @ key).transpose(1, 2) / 32**0.5
        chances = scores.masked_fill(is_padding[:, None, :], -1e9).softmax(-1)
        x = functional.layer_norm(x + chances @ (x @ value), (32,))
        is_word = ~is_padding
        means = (x * is_word[:, :, None]).sum(1) / is_word.sum(1)[:, None]
        return functional.cross_entropy(
            means @ last, torch.from_numpy(numbers.integers(0, 2, count))
        )

    return list(weights), loss


def matrices(*shapes: tuple[int, int]) -> Arrays:
    return tuple(uniform(shape, (-0.2, 0.2), seed=k) for k, shape in enumerate(shapes))


SIZES: tuple[Row, ...] = (
    *[
        Row("sizes", f"one of {PARTS}, ((y * 2 + 1).sigmoid() * y).sum() of y = x[:n], n below {most}",
            partial(lambda size: (uniform((size,), (-2, 2)),), most), {"torch": partial(parts, most)}, PARTS)
        for most in MOST_PARTS
    ],
    Row("sizes", f"one of {LAYERS}, a linear layer, relu, sum and backward, n rows of 8, n below 2000",
        lambda: (uniform((16_000,), (-2, 2)), *matrices((16, 8)), uniform((16,), (-1, 1))), {"torch": layers},
        LAYERS, rtol=1e-3),
    Row("sizes", "a step of Adam, graph convolutions, 200 to 1200 nodes",
        partial(matrices, (16, 32), (32, 32), (32, 2)), {"torch": partial(trained, graphs)}, STEPS, rtol=1e-3),
    Row("sizes", "a step of Adam, attention over sentences of 10 to 200 words",
        partial(matrices, (1000, 32), (32, 32), (32, 32), (32, 32), (32, 2)),
        {"torch": partial(trained, sentences)}, STEPS, rtol=1e-3),
)  # fmt: skip
