"""Random tensors, and ops that draw."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from .. import dtypes
from ..devices import device
from ..dtypes import dtype as Dtype
from ..graph import inplace as writing
from ..graph.export import export
from ..graph.factories import maker
from ..graph.launch import launch, launch_recipe, recipe_of
from ..graph.operation import operation
from ..graph.record import MAX_RECIPES, common_device
from ..graph.write import placed
from ..kernels.ops import random as kernels
from ..random import Generator, Place, default_generator
from ..schedule.planning.recipe import GRAIN, Recipe
from ..schedule.settle import float_word
from ..shapes import Shape, broadcast_shapes, checked_shape, listed, numel
from ..tensor import Tensor
from .creation import _finish, kind_of, place_of

COST = 8  # element operations that one random number is worth

FULL_RANGE = {"float32": 1 << 24, "float64": 1 << 53}  # floats that `random_` can hold exactly


def blocks_for(size: int, per_chunk: int) -> tuple[int, int]:
    """Chunks that hold so many numbers, and the blocks they use up."""
    chunks = -(-size // per_chunk)
    return chunks, chunks * kernels.CHUNK


def drawn(
    kernel: Any, shape: Shape, kind: Dtype, per_chunk: int, scalars: tuple[int, ...],
    generator: Generator | None, place: device,
) -> Tensor:  # fmt: skip
    """A tensor filled by a kernel that draws, recorded; a seed gives the same on every device."""
    key = kernel, shape, kind, place
    found = _draws.get(key)
    if found is None:
        size = numel(shape)
        chunks, blocks = blocks_for(size, per_chunk)
        draw = drawing(blocks)
        recipe = recipe_of(
            kernel, (), [(shape, kind)], bind={"T": kind}, words=(size,), scalars=len(scalars) + 3,
            n=chunks, grain=max(1, GRAIN // (COST * per_chunk)), draw=draw, device=place,
        )  # fmt: skip
        if len(_draws) >= MAX_RECIPES:
            _draws.clear()
        found = _draws[key] = recipe, draw
    recipe, draw = found
    made: Tensor = launch_recipe(recipe, (), (*scalars, *start(draw, generator)))
    return made


Draw = Callable[[], Place]

# How to draw, and what says where in the default generator's stream.
_draws: dict[Any, tuple[Recipe, Draw]] = {}


@functools.lru_cache(1024)
def drawing(blocks: int) -> Draw:
    """What uses up so many blocks of the default generator, and says where they begin."""
    return functools.partial(default_generator.advance, blocks)


def start(draw: Any, generator: Generator | None) -> Place:
    """Where a draw begins in the stream of a generator, by default that which it is for."""
    if generator is None:
        place: Place = draw()
        return place
    return generator_or_default(generator).reserve(*draw.args)


def generator_or_default(generator: Any) -> Generator:
    """The generator to draw from.

    Raises:
        TypeError: if it is none.
    """
    if generator is None:
        return default_generator
    if not isinstance(generator, Generator):
        raise TypeError(
            f"argument 'generator' must be adjit.Generator, not {type(generator).__name__}"
        )
    return generator


def draw_uniform(
    shape: Shape, kind: Dtype, low: float, high: float, generator: Generator | None,
    place: device,
) -> Tensor:  # fmt: skip
    """Numbers of [low, high), recorded."""
    if not kind.is_floating_point:
        raise NotImplementedError(f"\"check_uniform_bounds\" not implemented for '{kind.legacy}'")
    if low > high:
        raise RuntimeError(
            f"uniform_ expects to return a [from, to) range, but found from={low:g} > to={high:g}"
        )
    single = kind is dtypes.float32
    return drawn(
        kernels.uniform_single if single else kernels.uniform_double, shape, kind,
        kernels.WORDS if single else kernels.PAIRS,
        (float_word(low), float_word(high - low)), generator, place,
    )  # fmt: skip


def draw_normal(
    shape: Shape, kind: Dtype, mean: float, std: float, generator: Generator | None,
    place: device,
) -> Tensor:  # fmt: skip
    """Normal numbers, recorded."""
    if not kind.is_floating_point:
        raise NotImplementedError(f"\"normal_kernel_cpu\" not implemented for '{kind.legacy}'")
    if not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
    single = kind is dtypes.float32
    return drawn(
        kernels.normal_single if single else kernels.normal_double, shape, kind,
        kernels.WORDS if single else kernels.PAIRS,
        (float_word(mean), float_word(std)), generator, place,
    )  # fmt: skip


def draw_integers(
    shape: Shape, kind: Dtype, low: int, high: int, generator: Generator | None,
    place: device,
) -> Tensor:  # fmt: skip
    """Whole numbers of [low, high), recorded."""
    if low >= high:
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )
    largest = largest_of(kind)
    if high - 1 > largest:
        raise RuntimeError(f"to - 1 is out of bounds for {C_NAMES[kind.name]}")
    if low < (-largest - 1 if kind.kind in "if" else 0):
        raise RuntimeError(f"from is out of bounds for {C_NAMES[kind.name]}")
    limit = high - low
    words = low, signed(limit)
    return drawn(kernels.integers, shape, kind, kernels.PAIRS, words, generator, place)


C_NAMES = {
    "float32": "float", "float64": "double", "int8": "signed char", "uint8": "unsigned char",
    "int16": "short int", "int32": "int", "int64": "long int", "bool": "bool",
}  # fmt: skip


def largest_of(kind: Dtype) -> int:
    """The largest whole number that a dtype is asked to hold."""
    if kind.is_floating_point:
        return (1 << 63) - 1
    if kind is dtypes.bool:
        return 1
    return (1 << (8 * kind.itemsize - (kind.kind == "i"))) - 1


def signed(word: int) -> int:
    """The int64 with the bits of an unsigned number; 2**64 becomes 0."""
    word %= 1 << 64
    return word - (1 << 64) if word >> 63 else word


# --------------------------------------------------------------------------- creation


def floating_kind(dtype: Dtype | None, out: Tensor | None = None) -> Dtype:
    """The dtype asked for, or that of `out`, or the default one."""
    kind = kind_of(dtype, out)
    return dtypes.get_default_dtype() if kind is None else dtypes.check(kind)


def finished(made: Tensor, requires_grad: bool, out: Tensor | None) -> Tensor:
    """The last arguments that all creation functions take."""
    made = _finish(made, requires_grad)
    return made if out is None else writing.write_out("random", out, made)


def size_of(name: str, size: tuple[Any, ...]) -> Shape:
    """The shape in `rand(2, 3)` and `rand((2, 3))`."""
    if not size:
        raise TypeError(f"{name}() missing 1 required positional argument: 'size'")
    return tuple(checked_shape(size))


@export
@maker
@listed("size")
def rand(
    *size: Any, generator: Generator | None = None, out: Tensor | None = None,
    dtype: Dtype | None = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Numbers drawn evenly from [0, 1).

    Args:
        size: the shape, as numbers or one sequence.
        generator: where to draw from; the default generator if None.
        dtype: a floating dtype; the default one if None.
        requires_grad: whether the result is a leaf that needs gradients.

    Raises:
        RuntimeError: on negative sizes.
        NotImplementedError: for other dtypes.

    Example:
        >>> adjit.rand(2, 3).shape
        adjit.Size([2, 3])
    """
    shape = size_of("rand", size)
    made = draw_uniform(
        shape, floating_kind(dtype, out), 0.0, 1.0, generator, place_of(device, out)
    )
    return finished(made, requires_grad, out)


@export
@maker
@listed("size")
def randn(
    *size: Any, generator: Generator | None = None, out: Tensor | None = None,
    dtype: Dtype | None = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Numbers of the standard normal distribution; arguments as in `rand`.

    Example:
        >>> adjit.randn(2, 3).shape
        adjit.Size([2, 3])
    """
    shape = size_of("randn", size)
    made = draw_normal(shape, floating_kind(dtype, out), 0.0, 1.0, generator, place_of(device, out))
    return finished(made, requires_grad, out)


@export
@maker
def randint(
    low: Any, high: Any = None, size: Any = None, *, generator: Generator | None = None,
    out: Tensor | None = None, dtype: Dtype | None = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Whole numbers drawn evenly from [low, high), also as `randint(high, size)`.

    Args:
        low: the smallest number, 0 if left out.
        high: one more than the largest number.
        size: the shape.
        dtype: of the result, int64 if None.

    Raises:
        RuntimeError: if the range is empty, or the dtype cannot hold it.
        TypeError: if there is no shape.

    Example:
        >>> adjit.randint(1, 5, (2, 3)).shape
        adjit.Size([2, 3])
    """
    if size is None and isinstance(high, (tuple, list)):
        low, high, size = 0, low, high
    elif size is not None and high is None:
        low, high = 0, low
    if size is None or not (is_whole(low) and is_whole(high)):
        got = ", ".join(type(v).__name__ for v in (low, high, size) if v is not None)
        raise TypeError(
            f"randint() received an invalid combination of arguments - got ({got}), but expected "
            "(int high, tuple of ints size) or (int low, int high, tuple of ints size)"
        )
    kind = dtypes.check(kind_of(dtype, out) or dtypes.int64)
    shape = tuple(checked_shape((size,)))
    place = place_of(device, out)
    made = draw_integers(shape, kind, int(low), int(high), generator, place)
    return finished(made, requires_grad, out)


def is_whole(value: Any) -> bool:
    """Whether a value counts as an int."""
    return hasattr(value, "__index__")


@export
@maker
def randperm(
    n: int, *, generator: Generator | None = None, out: Tensor | None = None,
    dtype: Dtype | None = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """The numbers from 0 to n - 1 in random order.

    Args:
        n: how many.
        dtype: of the result, int64 if None.

    Raises:
        RuntimeError: if `n` is negative, or the dtype cannot hold it.

    Example:
        >>> adjit.randperm(4).sort().values
        tensor([0, 1, 2, 3])
    """
    kind = dtypes.check(kind_of(dtype, out) or dtypes.int64)
    shape = tuple(checked_shape((n,)))
    if n > 1 and n - 1 > largest_of(kind):
        raise RuntimeError(f"value cannot be converted to type {kind.name}_t without overflow")
    draw = drawing(n)
    made = launch(
        kernels.permutation, (), [(shape, kind)], bind={"T": kind}, words=(n,),
        scalars=start(draw, generator), n=min(n, 1), draw=draw,
    )  # fmt: skip
    return finished(placed(made, place_of(device, out)), requires_grad, out)


@export
@maker
def rand_like(
    input: Tensor, *, generator: Generator | None = None, dtype: Dtype | None = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """`rand` in the shape and dtype of another tensor.

    Example:
        >>> adjit.rand_like(adjit.zeros(2)).shape
        adjit.Size([2])
    """
    return rand(
        input.shape, generator=generator, dtype=dtype or input.dtype,
        device=input.device if device is None else device, requires_grad=requires_grad,
    )  # fmt: skip


@export
@maker
def randn_like(
    input: Tensor, *, generator: Generator | None = None, dtype: Dtype | None = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """`randn` in the shape and dtype of another tensor.

    Example:
        >>> adjit.randn_like(adjit.zeros(2)).shape
        adjit.Size([2])
    """
    return randn(
        input.shape, generator=generator, dtype=dtype or input.dtype,
        device=input.device if device is None else device, requires_grad=requires_grad,
    )  # fmt: skip


@export
@maker
def randint_like(
    input: Tensor, low: int, high: int | None = None, *, generator: Generator | None = None,
    dtype: Dtype | None = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """`randint` in the shape and dtype of another tensor.

    Example:
        >>> adjit.randint_like(adjit.zeros(2), 5).dtype
        adjit.float32
    """
    return randint(
        low, high, input.shape, generator=generator, dtype=dtype or input.dtype,
        device=input.device if device is None else device, requires_grad=requires_grad,
    )  # fmt: skip


# --------------------------------------------------------------------------- normal, bernoulli


@export
def normal(
    mean: Any = 0.0, std: Any = 1.0, size: Any = None, *, generator: Generator | None = None,
    out: Tensor | None = None, dtype: Dtype | None = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Normal numbers of given means and standard deviations.

    Args:
        mean: a number or a tensor.
        std: a number or a tensor; the two broadcast. A tensor's values are checked at once.
        size: the shape, where both are numbers.

    Returns:
        A tensor. Its gradient is zero.

    Raises:
        RuntimeError: if a standard deviation is negative.
        TypeError: if there is no shape.

    Example:
        >>> adjit.normal(0.0, 1.0, (2, 3)).shape
        adjit.Size([2, 3])
    """
    if not isinstance(mean, Tensor) and not isinstance(std, Tensor):
        if size is None:
            raise TypeError(
                "normal() received an invalid combination of arguments - got "
                f"({type(mean).__name__}, {type(std).__name__}), but expected a tensor or a size"
            )
        return normal_of_numbers(
            float(mean), float(std), size, generator, out, dtype, device, requires_grad
        )
    if not isinstance(std, Tensor) and not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
    if isinstance(std, Tensor) and bool((std.detach() < 0).any()):
        raise RuntimeError("normal expects all elements of std >= 0.0")
    made = normal_around(mean, std, generator)
    return made if out is None else writing.write_out("normal", out, made)


@maker
def normal_of_numbers(
    mean: float, std: float, size: Any, generator: Generator | None, out: Tensor | None,
    dtype: Dtype | None, device: Any, requires_grad: bool,
) -> Tensor:  # fmt: skip
    """`normal` where mean and standard deviation are numbers."""
    shape, place = tuple(checked_shape((size,))), place_of(device, out)
    made = draw_normal(shape, floating_kind(dtype, out), mean, std, generator, place)
    return finished(made, requires_grad, out)


@operation("NormalBackward3")
def normal_around(mean: Any, std: Any, generator: Generator | None) -> Tensor:
    """Normal numbers around tensors."""
    tensors = [t for t in (mean, std) if isinstance(t, Tensor)]
    shape = tuple(broadcast_shapes(*[t.shape for t in tensors]))
    place = common_device([t.spec for t in tensors])
    return draw_normal(shape, tensors[0].dtype, 0.0, 1.0, generator, place) * std + mean


@normal_around.vjp
def _(g: Tensor, needs: Any) -> Any:
    return tuple(g.new_zeros(g.shape) for _ in needs)


CHANCE = "Expected p_in >= 0 && p_in <= 1 to be true, but got false."


@export(method=True)
def bernoulli(
    input: Tensor, p: float | None = None, *, generator: Generator | None = None,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """1 with the probability that each element gives, else 0.

    Args:
        input: probabilities, of floating dtype.
        p: one probability for all elements instead.

    Returns:
        A tensor like `input`. Its gradient is zero.

    Raises:
        RuntimeError: if a probability is not in [0, 1].
        NotImplementedError: for other dtypes.

    Example:
        >>> adjit.bernoulli(adjit.tensor([0., 1.]))
        tensor([0., 1.])
    """
    if p is not None:
        made = bernoulli_over(input, p, generator=generator)
    elif input.dtype.is_floating_point:
        made = trial(input, generator)
    else:
        raise NotImplementedError(
            f"\"bernoulli_tensor_cpu_p_\" not implemented for '{input.dtype.legacy}'"
        )
    return made if out is None else writing.write_out("bernoulli", out, made)


@operation("BernoulliBackward0")
def trial(x: Tensor, generator: Generator | None) -> Tensor:
    """1 with the probability that each element gives."""
    chances = x.contiguous()
    size = chances.numel()
    chunks, blocks = blocks_for(size, kernels.WORDS)
    draw = drawing(blocks)
    return launch(
        kernels.trials, (chances,), [(x.shape, x.dtype)],
        bind={"T": x.dtype, "X": dtypes.float64}, words=(size,),
        scalars=start(draw, generator), draw=draw, n=chunks, grain=max(1, GRAIN // (COST * kernels.WORDS)),
        fallible=True, messages={kernels.BAD_CHANCE: (RuntimeError, CHANCE)},
    )  # fmt: skip


@trial.vjp
def _(g: Tensor) -> Any:
    return g.new_zeros(g.shape)


# --------------------------------------------------------------------------- filling in place
#
# Each function draws a tensor like its first argument, whose values it does not read. Exported in
# place, it fills that argument, and the gradient stops there.


def zero_gradient(g: Tensor) -> Any:
    """What is drawn does not depend on what was there."""
    return g.new_zeros(g.shape)


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
    return draw_uniform(x.shape, x.dtype, float(from_), float(to), generator, x.device)


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
    return draw_normal(x.shape, x.dtype, float(mean), float(std), generator, x.device)


@export(public=False, name="random", inplace=True)
@operation("RandomBackward0")
def integers_over(
    x: Tensor, from_: int | None = None, to: int | None = None, *,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Fill with whole numbers of [from, to), of [0, from) where only one is given, else of all that fit.

    Returns this tensor. Not differentiable.

    Raises:
        RuntimeError: if the range is empty, or the dtype cannot hold it.

    Example:
        >>> adjit.zeros(3).random_(0, 10, generator=adjit.Generator().manual_seed(0))
        tensor([3., 9., 0.])
    """
    if from_ is None:
        low, high = 0, FULL_RANGE.get(x.dtype.name, largest_of(x.dtype)) + 1
    elif to is None:
        low, high = 0, int(from_)
    else:
        low, high = int(from_), int(to)
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


# --------------------------------------------------------------------------- multinomial

WEIGHTS = {
    kernels.BAD_WEIGHT: (
        RuntimeError, "probability tensor contains either `inf`, `nan` or element < 0"
    ),
    kernels.NO_WEIGHT: (
        RuntimeError, "invalid multinomial distribution (sum of probabilities <= 0)"
    ),
    kernels.TOO_FEW: (
        RuntimeError,
        "invalid multinomial distribution (with replacement=False, not enough non-negative "
        "category to sample)",
    ),
}  # fmt: skip


@export(method=True)
def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *,
    generator: Generator | None = None, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Categories drawn from rows of weights.

    Args:
        input: (categories,) or (rows, categories) of weights, which need not add up to 1.
        num_samples: how many are drawn from each row.
        replacement: whether one category can be drawn again.

    Returns:
        An int64 tensor (num_samples,) or (rows, num_samples). Not differentiable.

    Raises:
        RuntimeError: if there are fewer categories than draws without replacement, or a row has
            no positive or a negative, infinite or NaN weight.

    Example:
        >>> adjit.multinomial(adjit.tensor([0., 3., 0.]), 2, replacement=True)
        tensor([1, 1])
    """
    if input.ndim not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if not input.dtype.is_floating_point:
        raise RuntimeError(
            f"multinomial only supports floating-point dtypes for input, got: {input.dtype.legacy}"
        )
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    categories = input.shape[-1]
    if not replacement and num_samples > categories:
        raise RuntimeError(
            "cannot sample n_sample > prob_dist.size(-1) samples without replacement"
        )
    weights = input.detach().reshape(-1, categories).contiguous()
    source = generator_or_default(generator)
    drawn = (
        with_replacement(weights, num_samples, source)
        if replacement
        else without_replacement(weights, num_samples, source)
    )
    made = drawn.reshape(*input.shape[:-1], num_samples)
    return made if out is None else writing.write_out("multinomial", out, made)


def running_sums(weights: Tensor, needed: int) -> Tensor:
    """The running sums of rows of weights, which are checked."""
    rows, categories = weights.shape
    return launch(
        kernels.cumulate_weights, (weights,), [((rows, categories), dtypes.float64)],
        bind={"T": weights.dtype, "X": dtypes.float64}, words=(categories, needed),
        n=rows, grain=max(1, GRAIN // max(categories, 1)), fallible=True, messages=WEIGHTS,
    )  # fmt: skip


def with_replacement(weights: Tensor, draws: int, generator: Generator) -> Tensor:
    """Independent draws: where a random height meets the running sums."""
    rows, categories = weights.shape
    sums = running_sums(weights, 0)
    return launch(
        kernels.choose_categories, (sums,), [((rows, draws), dtypes.int64)],
        bind={"X": dtypes.float64}, words=(categories, draws),
        scalars=generator.reserve(rows * draws), n=rows * draws, grain=GRAIN // 32,
    )  # fmt: skip


def without_replacement(weights: Tensor, draws: int, generator: Generator) -> Tensor:
    """Different categories: the first ones to arrive, at rates that are the weights."""
    total = running_sums(weights, draws)[:, -1:]
    uniform = draw_uniform(weights.shape, dtypes.float64, 0.0, 1.0, generator, weights.device)
    arrivals = -(-uniform).log1p() / (weights.to(dtypes.float64) / total)
    return arrivals.topk(draws, dim=-1, largest=False, sorted=True).indices


# --------------------------------------------------------------------------- dropout


def check_probability(p: float, kind: type[Exception] = ValueError) -> None:
    """Raise if `p` is no probability."""
    if not 0 <= p <= 1:
        raise kind(f"dropout probability has to be between 0 and 1, but got {p}")


@maker
def fresh_place(x: Tensor) -> Tensor:
    """Where the blocks for a mask over `x` begin in the stream of the default generator, as a tensor: what
    draws the mask, and draws it again in backward, is recorded without Python.
    """
    draw = drawing(blocks_for(x.numel(), kernels.WORDS)[1])
    return launch(
        kernels.beginning, (), [((3,), dtypes.int64)], scalars=draw(), n=1, draw=draw, device=x.device
    )  # fmt: skip


@operation("NativeDropoutBackward0")
def drop(x: Tensor, place: Tensor, p: float) -> Tensor:
    """`x / (1 - p)` where the random word of an element says so, else 0.

    The mask is a function of the place in the stream, so backward draws it again.
    """
    if not x.dtype.is_floating_point:
        raise RuntimeError(
            f"result type Float can't be cast to the desired output type {x.dtype.legacy}"
        )
    dense = x.contiguous()
    scale = 1.0 / (1.0 - p) if p < 1 else 0.0
    return launch(
        kernels.dropout, (dense, place), [(x.shape, x.dtype)], bind={"T": x.dtype},
        words=(x.numel(),), scalars=(float_word(scale), round(p * (1 << 32))),
        n=blocks_for(x.numel(), kernels.WORDS)[0], grain=max(1, GRAIN // (COST * kernels.WORDS)),
    )  # fmt: skip


@drop.vjp
def _(g: Tensor, place: Tensor, p: float) -> Any:
    return drop(g, place, p), None


def written(x: Tensor, made: Tensor, inplace: bool) -> Tensor:
    """`made`, or `x` with it written into."""
    if not inplace:
        return made
    writing.check(x)
    return writing.adopt(x, made)


@export(namespace="nn.functional")
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero elements with probability `p` and scale the others by `1 / (1 - p)`.

    Args:
        input: any floating tensor.
        p: the probability.
        training: without it, `input` is returned as it is.
        inplace: whether to write the result into `input`.

    Returns:
        A tensor like `input`. Differentiable in `input`; the mask takes no memory.

    Raises:
        ValueError: if `p` is no probability.

    Example:
        >>> F.dropout(adjit.ones(3), p=0.0)
        tensor([1., 1., 1.])
    """
    check_probability(p)
    if not training or p == 0:
        return input
    return written(input, drop(input, fresh_place(input), float(p)), inplace)


@export(name="dropout", inplace=True)
def plain_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """`nn.functional.dropout` with all arguments given.

    Raises:
        RuntimeError: if `p` is no probability.

    Example:
        >>> adjit.dropout(adjit.ones(3), 0.0, True)
        tensor([1., 1., 1.])
    """
    check_probability(p, RuntimeError)
    return dropout(input, p, train)


def channel_dropout(name: str, axes: int) -> Any:
    """`dropout1d` and its kin: whole channels of inputs of so many spatial axes are dropped."""

    def function(
        input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        check_probability(p)
        if not training or p == 0:
            return input
        batched = input.ndim == axes + 2
        channels = input.shape[: 2 if batched else 1]
        ones = input.new_ones((*channels, *[1] * (input.ndim - len(channels))))
        return written(input, input * drop(ones, fresh_place(ones), float(p)), inplace)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""Zero whole channels with probability `p` and scale the others.

    Args:
        input: (N, C) or (C,) and {axes} more axes.
        p, training, inplace: as in `dropout`.

    Raises:
        ValueError: if `p` is no probability.

    Example:
        >>> F.{name}(adjit.ones({", ".join("2" * (axes + 2))}), p=0.0).sum()
        tensor({2.0 ** (axes + 2):.0f}.)
    """
    return export(namespace="nn.functional")(function)


dropout1d = channel_dropout("dropout1d", 1)
dropout2d = channel_dropout("dropout2d", 2)
dropout3d = channel_dropout("dropout3d", 3)

SATURATION = -1.7580993408473766  # where SELU ends on the left: -scale * alpha


@export(namespace="nn.functional")
def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Dropout that keeps mean and variance of what SELU gives.

    Elements are set to SELU's negative limit with probability `p`, and the result is scaled and
    shifted.

    Args:
        input: any floating tensor.
        p, training, inplace: as in `dropout`; `training` is False unless given.

    Raises:
        ValueError: if `p` is no probability.

    Example:
        >>> F.alpha_dropout(adjit.ones(2), p=0.5, training=False)
        tensor([1., 1.])
    """
    return saturated(input, p, training, inplace, input.shape)


@export(namespace="nn.functional")
def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """`alpha_dropout` of whole channels.

    Args:
        input: (N, C, *), floating point.
        p, training, inplace: as in `alpha_dropout`.

    Raises:
        ValueError: if `p` is no probability.
        RuntimeError: for an input of less than two dimensions.

    Example:
        >>> F.feature_alpha_dropout(adjit.ones(1, 1, 2), p=0.5, training=False)
        tensor([[[1., 1.]]])
    """
    if training and p not in (0, 1) and input.ndim < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    return saturated(input, p, training, inplace, (*input.shape[:2], *[1] * (input.ndim - 2)))


def saturated(input: Tensor, p: float, training: bool, inplace: bool, shape: Shape) -> Tensor:
    """Alpha dropout with one draw for each element of a shape that broadcasts to the input's."""
    check_probability(p)
    if not training or p == 0:
        return input
    if p == 1:
        return written(input, input * 0.0, inplace)
    scale = 1.0 / math.sqrt((1 - p) * (1 + p * SATURATION**2))
    ones = input.detach().new_ones(shape)
    kept = drop(ones, fresh_place(ones), float(p)) * (1 - p)
    shift = (1 - kept) * (SATURATION * scale) - p * SATURATION * scale
    return written(input, input * (kept * scale) + shift, inplace)
