"""Tensors filled with random numbers in place.

Each function draws a tensor like its first argument, whose values it does not read. Exported in place, it
fills that argument, and the gradient stops there.
"""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from ..graph.export import export
from ..graph.operation import operation
from ..graph.record import plain_number
from ..random import Generator
from ..tensor import Tensor
from .drawing import draw_integers, draw_normal, draw_uniform, last_exact, trial


def zero_gradient(g: Tensor, needs: tuple[bool, ...]) -> Any:
    """What is drawn does not move with what was there, nor with the probability of ones."""
    return tuple([g.new_zeros(g.shape) for _ in needs])


@export(public=False, name="uniform", inplace=True)
@operation("UniformBackward0")
def uniform_over(
    x: Tensor, from_: float = 0.0, to: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with numbers drawn evenly from [from, to); returns this tensor. Not differentiable.

    Raises:
        RuntimeError: if `from` is larger than `to`.

    Example:
        >>> adjit.zeros(3).uniform_(2, 3, generator=adjit.Generator().manual_seed(0))
        tensor([2.3990, 2.9722, 2.0194])
    """
    low, high = plain_number(from_, "uniform_", "from"), plain_number(to, "uniform_", "to")
    return draw_uniform(x.shape, x.dtype, float(low), float(high), generator, x.device)


@export(public=False, name="normal", inplace=True)
@operation("NormalBackward0")
def normal_over(
    x: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with normal numbers of a mean and a standard deviation; returns this tensor.

    Not differentiable.

    Raises:
        RuntimeError: if `std` is negative.

    Example:
        >>> adjit.zeros(3).normal_(generator=adjit.Generator().manual_seed(0))
        tensor([ 0.9911, -0.1536, -1.1864])
    """
    mean, std = plain_number(mean, "normal_", "mean"), plain_number(std, "normal_", "std")
    return draw_normal(x.shape, x.dtype, float(mean), float(std), generator, x.device)


NOT_GIVEN: Any = ...  # the other end of `random_`, which is None where there is no end


@export(public=False, name="random", inplace=True)
@operation("RandomBackward0")
def integers_over(
    x: Tensor, from_: int | None = None, to: int | None = NOT_GIVEN, *,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Fill with whole numbers of [from, to), of [0, from) where only one is given, else of all that fit.

    Where `to` is None, from `from` on. Returns this tensor. Not differentiable.

    Raises:
        RuntimeError: if the range is empty, or the dtype cannot hold it.

    Example:
        >>> adjit.zeros(3).random_(0, 10, generator=adjit.Generator().manual_seed(0))
        tensor([3., 9., 0.])
    """
    last = last_exact(x.dtype)
    if from_ is None:
        low, high = 0, last + 1
    elif to is NOT_GIVEN:
        low, high = 0, int(from_)
    else:
        low, high = int(from_), last + 1 if to is None else int(to)
    return draw_integers(x.shape, x.dtype, low, high, generator, x.device)


@export(public=False, name="bernoulli", inplace=True)
@operation("BernoulliBackward2")
def bernoulli_over(x: Tensor, p: Any = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Fill with 1 with a probability, a number or a tensor, else 0; returns this tensor.

    Not differentiable.

    Raises:
        RuntimeError: if it is not in [0, 1].

    Example:
        >>> adjit.zeros(4).bernoulli_(0.5, generator=adjit.Generator().manual_seed(0))
        tensor([1., 0., 1., 0.])
    """
    if isinstance(p, Tensor):
        return trial(p.detach().expand(x.shape), generator).to(x.dtype)
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p:g}")
    return (draw_uniform(x.shape, dtypes.float32, 0.0, 1.0, generator, x.device) < float(p)).to(
        x.dtype
    )


def check_continuous(name: str, x: Tensor) -> None:
    """Raise for dtypes that cannot hold the numbers of a continuous distribution."""
    if not x.dtype.is_floating_point:
        raise RuntimeError(
            f"{name} distribution is a continuous probability distribution. dtype must be a "
            f"floating point but you specified {x.dtype.legacy}"
        )


@export(public=False, name="exponential", inplace=True)
@operation("ExponentialBackward0")
def exponential_over(
    x: Tensor, lambd: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with waiting times of a rate; returns this tensor. Not differentiable.

    Raises:
        RuntimeError: if the rate is not positive.

    Example:
        >>> adjit.zeros(3).exponential_(generator=adjit.Generator().manual_seed(0))
        tensor([0.5092, 3.5842, 0.0196])
    """
    check_continuous("Exponential", x)
    lambd = plain_number(lambd, "exponential_", "lambd")
    if not lambd > 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd:g}")
    return (-draw_uniform(x.shape, x.dtype, 0.0, 1.0, generator, x.device)).log1p() * (-1.0 / lambd)


@export(public=False, name="log_normal", inplace=True)
@operation("LogNormalBackward0")
def log_normal_over(
    x: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with numbers whose logarithms are normal; returns this tensor. Not differentiable.

    Raises:
        RuntimeError: if `std` is not positive.

    Example:
        >>> adjit.zeros(3).log_normal_(generator=adjit.Generator().manual_seed(0))
        tensor([19.7327,  1.9992,  0.2534])
    """
    check_continuous("LogNormal", x)
    mean, std = plain_number(mean, "log_normal_", "mean"), plain_number(std, "log_normal_", "std")
    if not std > 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std:g}")
    return draw_normal(x.shape, x.dtype, float(mean), float(std), generator, x.device).exp()


@export(public=False, name="cauchy", inplace=True)
@operation("CauchyBackward0")
def cauchy_over(
    x: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with numbers of the Cauchy distribution; returns this tensor. Not differentiable.

    Raises:
        RuntimeError: if `sigma` is not positive.

    Example:
        >>> adjit.zeros(3).cauchy_(generator=adjit.Generator().manual_seed(0))
        tensor([ -0.3282,  11.4379, -16.3457])
    """
    check_continuous("Cauchy", x)
    median = plain_number(median, "cauchy_", "median")
    sigma = plain_number(sigma, "cauchy_", "sigma")
    if not sigma > 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma:g}")
    half_turns = draw_uniform(x.shape, x.dtype, -0.5, 0.5, generator, x.device)
    return (half_turns * math.pi).tan() * sigma + median


@export(public=False, name="geometric", inplace=True)
@operation("GeometricBackward0")
def geometric_over(x: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """Fill with numbers of trials that it takes to succeed once; returns this tensor.

    Not differentiable.

    Raises:
        RuntimeError: if it is not in (0, 1).

    Example:
        >>> adjit.zeros(3).geometric_(0.5, generator=adjit.Generator().manual_seed(0))
        tensor([1., 6., 1.])
    """
    p = plain_number(p, "geometric_", "p")
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p:g}")
    kind = x.dtype if x.dtype.is_floating_point else dtypes.float64
    logs = (-draw_uniform(x.shape, kind, 0.0, 1.0, generator, x.device)).log1p()
    return (logs / math.log1p(-p)).ceil().clamp(min=1).to(x.dtype)


for _over in (
    uniform_over, normal_over, integers_over, bernoulli_over, exponential_over, log_normal_over,
    cauchy_over, geometric_over,
):  # fmt: skip
    _over.vjp(zero_gradient)
    _over.draws_for("shape")
