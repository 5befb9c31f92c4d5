"""Random tensors, and ops that draw."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..dtypes import dtype as Dtype
from ..graph import inplace as writing
from ..graph.composed import composed
from ..graph.export import export
from ..graph.factories import factory
from ..graph.launch import launch
from ..graph.levels import tracers
from ..graph.operation import operation
from ..graph.record import common_device, plain_number
from ..graph.state import state
from ..graph.write import placed
from ..kernels.ops import random as kernels
from ..random import Generator
from ..schedule.planning.recipe import GRAIN
from ..shapes import Shape, an_int, broadcast_shapes, checked_shape, listed
from ..tensor import Tensor
from .creation import _finish, kind_of, laid_out_like, place_of
from .drawing import (
    draw_integers,
    draw_normal,
    draw_uniform,
    drawing,
    for_examples,
    largest_of,
    start,
    trial,
)
from .random_fill import bernoulli_over

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
@factory
@listed("size", after=0)
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
@factory
@listed("size", after=0)
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
@factory
def randint(
    low: Any = None, high: Any = None, size: Any = None, *, generator: Generator | None = None,
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
    low = 0 if low is None and high is not None else low
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
@factory
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
    if state.levels:
        found = for_examples(
            lambda lead: draw_uniform(
                (*lead, n), dtypes.float64, 0.0, 1.0, generator, place_of(device, out)
            ).argsort(-1)
        )
        return finished(found.to(kind), requires_grad, out)
    draw = drawing(n)
    made = launch(
        kernels.permutation, (), [(shape, kind)], bind={"T": kind}, words=(n,),
        scalars=start(draw, generator), n=min(n, 1), draw=draw,
    )  # fmt: skip
    return finished(placed(made, place_of(device, out)), requires_grad, out)


@export
@factory
def rand_like(
    input: Tensor, *, generator: Generator | None = None, dtype: Dtype | None = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """`rand` in the shape and dtype of another tensor.

    Example:
        >>> adjit.rand_like(adjit.zeros(2)).shape
        adjit.Size([2])
    """
    made = rand(
        input.shape, generator=generator, dtype=dtype or input.dtype,
        device=input.device if device is None else device, layout=layout,
        requires_grad=requires_grad,
    )  # fmt: skip
    return laid_out_like(made, input, memory_format)


@export
@factory
def randn_like(
    input: Tensor, *, generator: Generator | None = None, dtype: Dtype | None = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """`randn` in the shape and dtype of another tensor.

    Example:
        >>> adjit.randn_like(adjit.zeros(2)).shape
        adjit.Size([2])
    """
    made = randn(
        input.shape, generator=generator, dtype=dtype or input.dtype,
        device=input.device if device is None else device, layout=layout,
        requires_grad=requires_grad,
    )  # fmt: skip
    return laid_out_like(made, input, memory_format)


@export
@factory
def randint_like(
    input: Tensor, low: int | None = None, high: int | None = None, *,
    generator: Generator | None = None, dtype: Dtype | None = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """`randint` in the shape and dtype of another tensor.

    Args:
        input: the other tensor.
        low: what no number is below, 0 unless `high` is given too; else what all are below.
        high: what all numbers are below.

    Raises:
        TypeError: if neither is given.

    Example:
        >>> adjit.randint_like(adjit.zeros(2), 5).dtype
        adjit.float32
    """
    if low is None:
        if high is None:
            raise TypeError('randint_like() missing 1 required positional arguments: "high"')
        low, high = high, None
    made = randint(
        low, high, input.shape, generator=generator, dtype=dtype or input.dtype,
        device=input.device if device is None else device, layout=layout,
        requires_grad=requires_grad,
    )  # fmt: skip
    return laid_out_like(made, input, memory_format)


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
        size: the shape, where both are numbers, or tensors of one.

    Returns:
        A tensor. Its gradient is zero.

    Raises:
        RuntimeError: if a standard deviation is negative.
        TypeError: if there is no shape.

    Example:
        >>> adjit.normal(0.0, 1.0, (2, 3)).shape
        adjit.Size([2, 3])
    """
    if size is not None or (not isinstance(mean, Tensor) and not isinstance(std, Tensor)):
        if size is None:
            raise TypeError(
                "normal() received an invalid combination of arguments - got "
                f"({type(mean).__name__}, {type(std).__name__}), but expected a tensor or a size"
            )
        mean, std = plain_number(mean, "normal", "mean"), plain_number(std, "normal", "std")
        return normal_of_numbers(
            float(mean), float(std), size, generator, out, dtype, device, requires_grad
        )
    if not isinstance(std, Tensor) and not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
    is_known = isinstance(std, Tensor) and std.__class__ not in tracers
    if is_known and bool((std.detach() < 0).any()):
        raise RuntimeError("normal expects all elements of std >= 0.0")
    made = normal_around(mean, std, generator)
    return made if out is None else writing.write_out("normal", out, made)


@factory
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
    place = common_device([t._spec for t in tensors])
    return draw_normal(shape, tensors[0].dtype, 0.0, 1.0, generator, place) * std + mean


@normal_around.vjp
def _(g: Tensor, needs: Any) -> Any:
    return tuple(g.new_zeros(g.shape) for _ in needs)


normal_around.draws_for("values")


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
    return made if out is None else writing.write_out("bernoulli", out, made.to(out.dtype))


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
    num_samples = an_int("multinomial", "num_samples", 2, num_samples)
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    categories = input.shape[-1]
    if not replacement and num_samples > categories:
        raise RuntimeError(
            "cannot sample n_sample > prob_dist.size(-1) samples without replacement"
        )
    if state.levels:
        chosen = rows_of_examples(input.detach(), num_samples, replacement, generator)
        return chosen if out is None else writing.write_out("multinomial", out, chosen)
    made = chosen_categories(input.detach(), num_samples, bool(replacement), generator)
    return made if out is None else writing.write_out("multinomial", out, made)


@composed
def chosen_categories(
    weights: Tensor, draws: int, replacement: bool, generator: Generator | None
) -> Tensor:
    """`multinomial` with arguments that are checked."""
    rows = weights.reshape(-1, weights.shape[-1]).contiguous()
    choose = with_replacement if replacement else without_replacement
    return choose(rows, draws, generator).reshape(*weights.shape[:-1], draws)


def rows_of_examples(
    weights: Tensor, draws: int, replacement: bool, generator: Generator | None
) -> Tensor:
    """`multinomial` inside of `vmap`."""
    level: Any = state.levels[-1]

    def draw(lead: Shape) -> Tensor:
        if not lead:
            if level.has(weights):
                raise RuntimeError(SAME_FOR_ALL)
            return multinomial(weights, draws, replacement, generator=generator)
        rows = level.full(weights)
        found = multinomial(
            rows.reshape(-1, rows.shape[-1]), draws, replacement, generator=generator
        )
        return found.reshape(*rows.shape[:-1], draws)

    return for_examples(draw)


SAME_FOR_ALL = (
    "Vmap does not currently support same randomness with a batched tensor input. Please file an issue with "
    "functorch"
)


def running_sums(weights: Tensor, needed: int) -> Tensor:
    """The running sums of rows of weights, which are checked."""
    rows, categories = weights.shape
    return launch(
        kernels.cumulate_weights, (weights,), [((rows, categories), dtypes.float64)],
        bind={"T": weights.dtype, "X": dtypes.float64}, words=(categories, needed),
        n=rows, grain=max(1, GRAIN // max(categories, 1)), fallible=True, messages=WEIGHTS,
    )  # fmt: skip


def with_replacement(weights: Tensor, draws: int, generator: Generator | None) -> Tensor:
    """Independent draws: where a random height meets the running sums."""
    rows, categories = weights.shape
    sums = running_sums(weights, 0)
    draw = drawing(rows * draws)
    return launch(
        kernels.choose_categories, (sums,), [((rows, draws), dtypes.int64)],
        bind={"X": dtypes.float64}, words=(categories, draws), scalars=start(draw, generator),
        n=rows * draws, grain=GRAIN // 32, draw=draw,
    )  # fmt: skip


def without_replacement(weights: Tensor, draws: int, generator: Generator | None) -> Tensor:
    """Different categories: the first ones to arrive, at rates that are the weights."""
    total = running_sums(weights, draws)[:, -1:]
    uniform = draw_uniform(weights.shape, dtypes.float64, 0.0, 1.0, generator, weights.device)
    arrivals = -(-uniform).log1p() / (weights.to(dtypes.float64) / total)
    return arrivals.topk(draws, dim=-1, largest=False, sorted=True).indices
