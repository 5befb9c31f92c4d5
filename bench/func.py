"""Transforms of functions: what they cost beside PyTorch's and JAX's, word for word the same programs.

Parameters are arguments, or weights that the function knows, as these transforms want them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from programs import Capture, Preparation, Program, program
from rows import Arrays, Call, uniform

Function = Callable[..., Any]


class Names(NamedTuple):
    """What the libraries call otherwise."""

    grad: Function
    vmap: Function
    jacrev: Function
    linear: Function
    tanh: Function
    losses: Function  # of classes, summed


def of_torch(torch: Any) -> Names:
    func, F = torch.func, torch.nn.functional

    def losses(y: Any, target: Any) -> Any:
        return F.cross_entropy(y, target, reduction="sum")

    return Names(func.grad, func.vmap, func.jacrev, F.linear, torch.tanh, losses)


def of_jax(jax: Any) -> Names:
    def losses(y: Any, target: Any) -> Any:
        return -jax.numpy.take_along_axis(jax.nn.log_softmax(y), target[:, None], 1).sum()

    def linear(x: Any, weight: Any, bias: Any) -> Any:
        return x @ weight.T + bias

    return Names(jax.grad, jax.vmap, jax.jacrev, linear, jax.numpy.tanh, losses)


def in_both(build: Callable[..., tuple[Function, tuple[Any, ...]]]) -> dict[str, Preparation]:
    """The programs of a row, from what makes the function and its arguments."""

    def in_torch(torch: Any, capture: Capture, *arrays: np.ndarray) -> Call:
        function, arguments = build(of_torch(torch), *map(torch.tensor, arrays))
        function = capture(function)
        return lambda: function(*arguments)

    def in_jax(jax: Any, capture: Capture, *arrays: np.ndarray) -> Call:
        function, arguments = build(of_jax(jax), *map(jax.numpy.asarray, arrays))
        function = capture(function)
        return lambda: function(*arguments)

    return {"torch": in_torch, "jax": in_jax}


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


def network(lib: Names, p: Any, x: Any) -> Any:
    return lib.linear(lib.tanh(lib.linear(x, p[0], p[1])), p[2], p[3])


def gradients_of_examples(lib: Names, *arrays: Any) -> tuple[Function, tuple[Any, ...]]:
    """The gradients of the loss of each example by all parameters."""
    *parameters, x, classes = arrays

    def loss(parameters: Any, x: Any, target: Any) -> Any:
        return lib.losses(network(lib, parameters, x[None]), target[None])

    return lib.vmap(lib.grad(loss), (None, 0, 0)), (parameters, x, classes)


def gradients_of_images(torch: Any, capture: Capture, *arrays: np.ndarray) -> Call:
    """The same for two convolutions."""
    *parameters, x, classes = map(torch.tensor, arrays)
    F = torch.nn.functional

    def loss(p: Any, x: Any, target: Any) -> Any:
        y = F.max_pool2d(F.conv2d(x[None], p[0], p[1], padding=1).relu(), 2)
        y = F.max_pool2d(F.conv2d(y, p[2], p[3], padding=1).relu(), 2)
        return F.cross_entropy(y.flatten(1) @ p[4], target[None])

    gradients = capture(torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0)))
    return lambda: gradients(parameters, x, classes)


def jacobian(lib: Names, *arrays: Any) -> tuple[Function, tuple[Any, ...]]:
    """The Jacobian of the network at the first example."""
    *parameters, x, _ = arrays
    return lib.jacrev(lambda x: network(lib, parameters, x)), (x[0],)


def jacobians(lib: Names, *arrays: Any) -> tuple[Function, tuple[Any, ...]]:
    """The Jacobian of the network at each example."""
    *parameters, x, _ = arrays
    return lib.vmap(lib.jacrev(lambda x: network(lib, parameters, x))), (x,)


def hessian(lib: Names, *arrays: Any) -> tuple[Function, tuple[Any, ...]]:
    """The second derivatives of the squares that come out, at the first example."""
    *parameters, x, _ = arrays

    def size(x: Any) -> Any:
        return (network(lib, parameters, x) ** 2).sum()

    return lib.jacrev(lib.jacrev(size)), (x[0],)


def ensemble(lib: Names, *arrays: Any) -> tuple[Function, tuple[Any, ...]]:
    """What all models make of one batch."""
    *parameters, x = arrays
    return lib.vmap(lambda p, x: network(lib, p, x), (0, None)), (parameters, x)


def row(name: str, data: Function, programs: Any, sizes: Any, tiny: Any) -> Program:
    return program(name, data, programs, sizes=sizes, tiny=tiny, rtol=1e-3, atol=1e-5)


NETWORK = (64, 64, 128, 10)
TRANSFORMS: tuple[Program, ...] = (
    row(
        "per-example gradients of an MLP {1}-{2}-{3}, batch {0}", network_data,
        in_both(gradients_of_examples), NETWORK, (3, 4, 5, 2),
    ),
    row(
        "per-example gradients of two convolutions, {0} images of {1}x{1}", images_data,
        {"torch": gradients_of_images}, (32, 28, 8), (2, 8, 2),
    ),
    row(
        "jacrev of an MLP {1}-{2}-{3}", network_data, in_both(jacobian), NETWORK, (3, 4, 5, 2),
    ),
    row(
        "vmap of jacrev of an MLP {1}-{2}-{3}, batch {0}", network_data, in_both(jacobians),
        NETWORK, (3, 4, 5, 2),
    ),
    row(
        "Hessian (jacrev of jacrev) of an MLP {1}-{2}-{3}", network_data, in_both(hessian),
        NETWORK, (3, 4, 5, 2),
    ),
    row(
        "ensemble of {0} MLPs {2}-{3}-{4}, batch {1}", ensemble_data, in_both(ensemble),
        (8, *NETWORK), (2, 3, 4, 5, 2),
    ),
)  # fmt: skip
