"""Transforms of functions: what they cost beside PyTorch's `torch.func`, word for word the same programs.

Parameters are arguments, as these transforms want them. Nothing is captured: PyTorch's compiler takes minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from programs import Program, program
from rows import Arrays, Call, uniform

Function = Callable[..., Any]


def layers(inputs: int, hidden: int, outputs: int, copies: tuple[int, ...] = ()) -> Arrays:
    """Weights and biases of two layers."""
    shapes = (hidden, inputs), (hidden,), (outputs, hidden), (outputs,)
    return tuple(uniform((*copies, *s), (-0.3, 0.3), seed=k) for k, s in enumerate(shapes))


def classes(batch: int, outputs: int) -> np.ndarray:
    """The classes of a batch."""
    return np.random.default_rng(9).integers(0, outputs, batch)


def network_data(batch: int, inputs: int, hidden: int, outputs: int) -> Arrays:
    x = uniform((batch, inputs), (-1, 1), seed=8)
    return *layers(inputs, hidden, outputs), x, classes(batch, outputs)


def ensemble_data(models: int, batch: int, inputs: int, hidden: int, outputs: int) -> Arrays:
    return *layers(inputs, hidden, outputs, (models,)), uniform((batch, inputs), (-1, 1), seed=8)


def images_data(batch: int, size: int, channels: int) -> Arrays:
    shapes = (
        (channels, 1, 3, 3), (channels,), (2 * channels, channels, 3, 3), (2 * channels,),
        (2 * channels * (size // 4) ** 2, 10),
    )  # fmt: skip
    weights = [uniform(s, (-0.2, 0.2), seed=k) for k, s in enumerate(shapes)]
    return *weights, uniform((batch, 1, size, size), (0, 1), seed=8), classes(batch, 10)


def network(torch: Any, p: Any, x: Any) -> Any:
    linear = torch.nn.functional.linear
    return linear(linear(x, p[0], p[1]).tanh(), p[2], p[3])


def convolutional(torch: Any, p: Any, x: Any) -> Any:
    F = torch.nn.functional
    y = F.max_pool2d(F.conv2d(x, p[0], p[1], padding=1).relu(), 2)
    y = F.max_pool2d(F.conv2d(y, p[2], p[3], padding=1).relu(), 2)
    return y.flatten(1) @ p[4]


def per_example(model: Function) -> dict[str, Function]:
    """The gradients of the loss of each example by all parameters."""

    def prepare(torch: Any, capture: Function, *arrays: np.ndarray) -> Call:
        *parameters, x, classes = map(torch.tensor, arrays)

        def loss(parameters: Any, x: Any, target: Any) -> Any:
            y = model(torch, parameters, x.unsqueeze(0))
            return torch.nn.functional.cross_entropy(y, target.unsqueeze(0))

        gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
        return lambda: gradients(parameters, x, classes)

    return {"torch": prepare}


def of_one_input(transform: Function) -> dict[str, Function]:
    """A transform of the network at the first example."""

    def prepare(torch: Any, capture: Function, *arrays: np.ndarray) -> Call:
        *parameters, x, _ = map(torch.tensor, arrays)
        function = transform(torch, lambda x: network(torch, parameters, x))
        first = x[0]
        return lambda: function(first)

    return {"torch": prepare}


def of_all_inputs(torch: Any, capture: Function, *arrays: np.ndarray) -> Call:
    """The Jacobian of the network at each example."""
    *parameters, x, _ = map(torch.tensor, arrays)
    function = torch.func.vmap(torch.func.jacrev(lambda x: network(torch, parameters, x)))
    return lambda: function(x)


def ensemble(torch: Any, capture: Function, *arrays: np.ndarray) -> Call:
    """What all models make of one batch."""
    *parameters, x = map(torch.tensor, arrays)
    function = torch.func.vmap(lambda p, x: network(torch, p, x), in_dims=(0, None))
    return lambda: function(parameters, x)


def hessian(torch: Any, f: Function) -> Function:
    return torch.func.jacrev(torch.func.jacrev(lambda x: f(x).square().sum()))


def row(name: str, data: Function, programs: Any, sizes: Any, tiny: Any) -> Program:
    """A row that is not captured."""
    return program(
        name, data, programs, sizes=sizes, tiny=tiny, rtol=1e-3, atol=1e-5, only_eager=True
    )


NETWORK = (64, 64, 128, 10)
TRANSFORMS: tuple[Program, ...] = (
    row(
        "per-example gradients of an MLP {1}-{2}-{3}, batch {0}", network_data,
        per_example(network), NETWORK, (3, 4, 5, 2),
    ),
    row(
        "per-example gradients of two convolutions, {0} images of {1}x{1}", images_data,
        per_example(convolutional), (32, 28, 8), (2, 8, 2),
    ),
    row(
        "jacrev of an MLP {1}-{2}-{3}", network_data,
        of_one_input(lambda torch, f: torch.func.jacrev(f)), NETWORK, (3, 4, 5, 2),
    ),
    row(
        "vmap of jacrev of an MLP {1}-{2}-{3}, batch {0}", network_data, {"torch": of_all_inputs},
        NETWORK, (3, 4, 5, 2),
    ),
    row(
        "Hessian (jacrev of jacrev) of an MLP {1}-{2}-{3}", network_data, of_one_input(hessian),
        NETWORK, (3, 4, 5, 2),
    ),
    row(
        "ensemble of {0} MLPs {2}-{3}-{4}, batch {1}", ensemble_data, {"torch": ensemble},
        (8, *NETWORK), (2, 3, 4, 5, 2),
    ),
)  # fmt: skip
