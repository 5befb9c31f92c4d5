"""Random words of a generator, as elements of tensors: how much is drawn, and from where on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .. import dtypes
from ..devices import device
from ..dtypes import dtype as Dtype
from ..graph.launch import launch, launch_recipe, recipe_of
from ..graph.operation import operation
from ..graph.record import MAX_RECIPES
from ..graph.state import state
from ..kernels.ops import random as kernels
from ..random import Generator, Place, default_generator
from ..schedule.planning.recipe import GRAIN, Recipe
from ..schedule.settle import float_word
from ..shapes import Shape, numel
from ..tensor import Tensor
from ..unknown import cached, current

COST = 8  # element operations that one random number is worth


def blocks_for(size: int, per_chunk: int) -> tuple[int, int]:
    """Chunks that hold so many numbers, and the blocks they use up."""
    chunks = -(-size // per_chunk)
    return chunks, chunks * kernels.CHUNK


def drawn(
    kernel: Any, shape: Shape, kind: Dtype, per_chunk: int, scalars: tuple[int, ...],
    generator: Generator | None, place: device,
) -> Tensor:  # fmt: skip
    """A tensor filled by a kernel that draws, recorded; a seed gives the same on every device."""
    if state.levels:
        return for_examples(
            lambda lead: drawn(kernel, (*lead, *shape), kind, per_chunk, scalars, generator, place)
        )
    key = kernel, shape, kind, place
    is_kept = current() is None  # unknown sizes are in no key
    found = _draws.get(key) if is_kept else None
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
        found = recipe, draw
        if is_kept:
            _draws[key] = found
    recipe, draw = found
    made: Tensor = launch_recipe(recipe, (), (*scalars, *start(draw, generator)))
    return made


def for_examples(draw: Callable[[Shape], Tensor]) -> Tensor:
    """Random numbers of the innermost `vmap`, by a function of the axes in front of what is drawn for one."""
    made: Tensor = state.levels[-1].draw(draw)
    return made


Draw = Callable[[], Place]
# How to draw, and what says where in the default generator's stream.
_draws: dict[Any, tuple[Recipe, Draw]] = {}


@cached(1024)
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
    largest = dtypes.finfo(kind).max
    for name, bound in (("from", low), ("to", high)):
        if not abs(bound) <= largest:
            raise RuntimeError(f"{name} is out of bounds for {kind.row.c}")
    if high - low > largest:
        raise RuntimeError(
            f"uniform_ expects to-from <= std::numeric_limits<{kind.legacy}>::max(), but found to={high:g} "
            f"and from={low:g} which result in to-from to exceed the limit"
        )
    single = kind.row.digits <= dtypes.float32.row.digits
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
    single = kind.row.digits <= dtypes.float32.row.digits
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
    least = -largest - 1 if kind.kind in "if" else 0
    for name, bound in (("from", low), ("to - 1", high - 1)):
        if not least <= bound <= largest:
            raise RuntimeError(f"{name} is out of bounds for {kind.row.c}")
    limit = high - low
    words = low, signed(limit)
    return drawn(kernels.integers, shape, kind, kernels.PAIRS, words, generator, place)


def largest_of(kind: Dtype) -> int:
    """The largest whole number that a dtype is asked to hold."""
    if kind.is_floating_point:
        return (1 << 63) - 1
    if kind is dtypes.bool:
        return 1
    return (1 << (8 * kind.itemsize - (kind.kind == "i"))) - 1


def last_exact(kind: Dtype) -> int:
    """The last whole number, from 0 on, up to which a dtype holds all of them."""
    return 1 << kind.row.digits if kind.is_floating_point else largest_of(kind)


def signed(word: int) -> int:
    """The int64 with the bits of an unsigned number; 2**64 becomes 0."""
    word %= 1 << 64
    return word - (1 << 64) if word >> 63 else word


CHANCE = "Expected p_in >= 0 && p_in <= 1 to be true, but got false."


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


trial.draws_for("values")
