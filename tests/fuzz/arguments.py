"""Arguments: what fills the holes of the calls."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

import adjit as T
from adjit.graph.registry import registry

if TYPE_CHECKING:
    from .programs import Writer

SHAPES = [
    (3, 4), (4,), (), (2, 3), (4, 3), (2, 3, 4), (1,), (3, 1), (1, 4), (0,), (2, 1, 3, 2), (2, 2, 2, 1, 3),
    (3, 0),
]  # fmt: skip
KINDS: dict[str, Callable[[Any], bool]] = {
    "x": lambda t: True,
    "f": lambda t: t.dtype.is_floating_point,
    "i": lambda t: not t.dtype.is_floating_point and t.dtype is not T.bool,
    "b": lambda t: t.dtype is T.bool,
}
SHAPES_OF_RANK = {1: (4,), 2: (3, 4), 3: (2, 3, 4), 4: (2, 1, 3, 2), 5: (2, 2, 2, 1, 3)}


def name_of(dtype: Any) -> str:
    return str(dtype).partition(".")[2]


def domain_of(op: str, k: int) -> tuple[float, float]:
    domain = registry[op].domain  # type: ignore[union-attr]
    return domain[k] if isinstance(domain[0], tuple) else domain


def numbers(
    rng: Any, shape: tuple[int, ...], dtype: str, kind: int, domain: tuple[float, float]
) -> Any:
    """Values of an input: simple ones, ones from a domain, special ones."""
    low, high = domain
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if not dtype.startswith("float"):
        bounds = np.iinfo(dtype)
        if kind == 5:
            return rng.choice([bounds.min, bounds.max, 0, 1, 2], shape)
        return rng.integers(max(-9, bounds.min) if low < 0 else max(0, math.floor(low)), 10, shape)
    if kind < 3:
        a = np.round(rng.uniform(low, high, shape) * 4) / 4
    elif kind < 5:
        a = rng.uniform(low, high, shape)
    else:
        a = rng.choice(
            [0.0, -0.0, 1.0, -1.0, 0.5, math.inf, -math.inf, math.nan, 1e12, -1e-12, 3.0, 100.25],
            shape,
        )
    return np.asarray(a).astype(dtype)


def within(w: Writer) -> int:
    return max(len(w.shape), 1)


def a_dim(w: Writer) -> str:
    return str(w.between(-within(w), within(w) - 1))


def size_at(w: Writer, dim: int) -> int:
    return w.shape[dim] if w.shape else 1


def factor_shape(w: Writer) -> tuple[int, ...]:
    """Of what the first can be multiplied with from the left."""
    if not w.shape:
        return (2,)
    inner = w.shape[-1]
    if len(w.shape) == 1 and w.between(0, 1):
        return (inner,)
    if len(w.shape) > 2 and w.between(0, 1):
        return (*w.shape[:-2], inner, 2)
    return (inner, w.choose([3, 1, 4, 2]))


def broadcast(w: Writer) -> str:
    """One that broadcasts to the first, mostly of its dtype."""
    target = w.shape
    found = w.find(lambda t: broadcasts(tuple(t.shape), target))
    if found is not None:
        return found
    shape = target[w.between(0, len(target)) if target else 0 :]
    if shape and w.rarely(3):
        at = w.between(0, len(shape) - 1)
        shape = (*shape[:at], 1, *shape[at + 1 :])
    return w.fresh(shape, w.a_dtype() if w.rarely(4) else w.dtype)


def broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, target) == target
    except ValueError:
        return False


def side(w: Writer, k: int, default: int = 2) -> int:
    return w.shape[k] if -len(w.shape) <= k < len(w.shape) else default


# Tensors that fit the first.
FITTING: dict[str, Callable[[Writer], str]] = {
    "y": broadcast,
    "s": lambda w: w.like(w.shape),
    "row": lambda w: w.like((side(w, -1),)),
    "same1": lambda w: w.like((side(w, 0),)),
    "right": lambda w: w.like(factor_shape(w)),
    "batch": lambda w: w.like((side(w, 0), side(w, 2), 3)),
    "fsquare": lambda w: floats(w, (3, 3), lambda s: len(s) == 2 and s[0] == s[1]),
    "even": lambda w: floats(w, (3, 4), lambda s: len(s) > 0 and s[-1] % 2 == 0),
    "weight": lambda w: w.like((w.choose([2, 1, 5]), side(w, -1))),
    "bias": lambda w: w.like((1,)),
    "bilinear": lambda w: w.like((2, side(w, -1), side(w, -1))),
    "slope": lambda w: w.like((1,)),
    "of_three": lambda w: floats(w, (4, 3), lambda s: s[-1:] == (3,)),
    "image1": lambda w: floats(w, (2, 2, 6)),
    "image2": lambda w: floats(w, (2, 2, 4, 5)),
    "even2": lambda w: floats(w, (2, 2, 4, 6)),
    "image3": lambda w: floats(w, (1, 2, 3, 4, 4)),
    "kernel1": lambda w: w.finite((3, 2, 3)),
    "kernel2": lambda w: w.finite((3, 2, *w.choose([(3, 3), (1, 1), (2, 3)]))),
    "kernel3": lambda w: w.finite((1, 2, 2, 2, 2)),
    "depthwise": lambda w: w.finite((2, 1, 3, 3)),
    "back1": lambda w: w.finite((2, 3, 2)),
    "back2": lambda w: w.finite((2, 3, 3, 2)),
    "back3": lambda w: w.finite((2, 1, 2, 2, 2)),
    "out_bias": lambda w: w.like((3,)),
    "channel": lambda w: w.like((2,)),
    "channel_scale": lambda w: w.like((2,), domain=(0.5, 2)),
    "of_four_channels": lambda w: floats(w, (2, 4, 2, 3)),
    "even_image": lambda w: floats(w, (2, 1, 4, 2)),
    "columns": lambda w: floats(w, (2, 8, 4)),
    "grid_points": lambda w: w.like((2, 3, 2, 2)),
    "theta": lambda w: floats(w, (2, 2, 3)),
    "table": lambda w: floats(w, (4, 3)),
    "bias_of_product": lambda w: three(w, (2, 4), (2, 3), (3, 4)),
    "bias_of_mv": lambda w: three(w, (2,), (2, 3), (3,)),
    "bias_of_outer": lambda w: three(w, (2, 4), (2,), (4,)),
    "bias_of_bmm": lambda w: three(w, (2, 3, 2), (2, 3, 4), (2, 4, 2)),
    "bias_of_addbmm": lambda w: three(w, (3, 2), (2, 3, 4), (2, 4, 2)),
    "addmm_factors": lambda w: factors(w, (side(w, 0), 3), (3, side(w, 1))),
    "addmv_factors": lambda w: factors(w, (side(w, 0), 3), (3,)),
    "addr_factors": lambda w: factors(w, (side(w, 0),), (side(w, 1),)),
    "baddbmm_factors": lambda w: factors(w, (side(w, 0), side(w, 1), 3), (side(w, 0), 3, side(w, 2))),
    "addbmm_factors": lambda w: factors(w, (2, side(w, 0), 3), (2, 3, side(w, 1))),
    "value": lambda w: w.like(w.shape[1:]),
    "fills": lambda w: w.like(w.shape[-1:]),
    "diagonal_values": lambda w: w.like((min(side(w, 0), side(w, 1)),)),
    "row_values": lambda w: w.like(w.shape[1:]),
    "row_weights": lambda w: f"{w.like((side(w, 1),), domain=(0.5, 2))}.detach()",
    "positives": lambda w: w.fresh((3,) if w.subject is None else w.shape, w.dtype, (1.5, 4)),
    "chances": lambda w: w.fresh((3, 4), w.floating(), (0.25, 0.75)),
    "like_chances": lambda w: w.fresh(w.shape, w.dtype, (0.25, 0.75)),
    "shifts": lambda w: w.fresh(w.shape, w.dtype if w.subject is not None else "int64", (0, 5)),
    "slices": lambda w: w.like(with_size(w, 2)),
    "fills_flat": lambda w: w.like((min(2, math.prod(w.shape)),)),
}  # fmt: skip


def floats(
    w: Writer, shape: tuple[int, ...], fits: Callable[[tuple[int, ...]], bool] | None = None
) -> str:
    """A floating tensor of this shape, or one that fits."""
    fits = fits or shape.__eq__
    return w.tensor(lambda t: KINDS["f"](t) and fits(tuple(t.shape)), lambda: shape, w.floating)


def factors(w: Writer, *shapes: tuple[int, ...]) -> str:
    """Not the tensor that is written, which PyTorch reads half written."""
    return ", ".join(w.fresh(shape, w.dtype) for shape in shapes)


def three(w: Writer, *shapes: tuple[int, ...]) -> str:
    dtype = w.floating()
    return ", ".join(w.like(shape, dtype) for shape in shapes)


def last_dim(w: Writer) -> int:
    """The dimension that the call has named."""
    return int(w.named.get("dim", 0))


def with_size(w: Writer, size: int) -> tuple[int, ...]:
    shape, dim = list(w.shape), last_dim(w)
    if shape:
        shape[dim] = size
    return tuple(shape) if shape else (size,)


def places(w: Writer, shape: tuple[int, ...], size: int, apart: bool = False) -> str:
    rng = np.random.default_rng(w.between(0, 19))
    if apart:
        a = rng.permutation(max(size, 1))[: math.prod(shape)]
        return w.numbers_for((len(a),), "int64", a)
    return w.numbers_for(shape, "int64", rng.integers(0, max(size, 1), shape))


def truths(w: Writer, shape: tuple[int, ...]) -> str:
    return w.numbers_for(shape, "bool", np.random.default_rng(w.between(0, 19)).random(shape) < 0.5)


def a_mask(w: Writer) -> str:
    found = w.find(lambda t: t.dtype is T.bool and tuple(t.shape) == w.shape)
    shape = w.shape if math.prod(w.shape) <= 64 else (1,) * len(w.shape)
    return truths(w, shape) if found is None else found


def grid(w: Writer) -> str:
    shape, dim = list(w.shape), last_dim(w)
    size = size_at(w, dim)
    if math.prod(shape) > 64:
        shape = [min(n, 2) for n in shape]
    return places(w, tuple(shape), size)


# Tensors made for one call, with values that are legal there.
MADE: dict[str, Callable[[Writer], str]] = {
    "mask": a_mask,
    "first_mask": lambda w: truths(w, (min(size_at(w, 0), 64),) if w.shape else ()),
    "first_places": lambda w: places(w, (w.choose([3, 1, 2, 0]),), size_at(w, 0)),
    "places": lambda w: places(w, (2,), size_at(w, last_dim(w))),
    "own_places": lambda w: places(w, (2,), size_at(w, last_dim(w)), apart=True),
    "flat_places": lambda w: places(w, (2, 2), math.prod(w.shape)),
    "own_flat_places": lambda w: places(w, (2,), math.prod(w.shape), apart=True),
    "grid": grid,
    "classes": lambda w: places(w, (5,), 4),
    "row_classes": lambda w: places(w, (side(w, 0),), side(w, 1)),
    "like_signs": lambda w: w.numbers_for((), w.dtype, -1 if w.between(0, 1) else 1),
    "row_signs": lambda w: w.numbers_for((side(w, 0),), w.dtype, [1 - 2 * (k % 2) for k in range(side(w, 0))]),
    "sorted": lambda w: w.numbers_for((4,), w.floating(), [-1, 0, 0.5, 2]),
    "boundaries": lambda w: w.numbers_for((3,), w.dtype, [-1, 0.25, 1]),
}  # fmt: skip


def reshaped(w: Writer) -> str:
    """Another shape of as many elements."""
    count = math.prod(w.shape)
    options = [
        (-1, 1),
        (1, count),
        *[(k, count // k) for k in (2, 3, 4) if count % k == 0],
        (count,),
    ]
    return repr(w.choose(options))


def a_part(w: Writer) -> str:
    """An index that makes a view."""
    if not w.shape:
        return "..."
    n = w.shape[0]
    options = ["1:", "::2", ":-1", "...", "None", "..., -1", "..., 1:", "..., ::2", "..., None"]
    options += ["0", "-1"] if n else []
    options += ["0, 0", ":, 1:", ":, 0", "::2, -1"] if len(w.shape) > 1 and 0 not in w.shape else []
    return str(w.choose(options))


def permuted(w: Writer) -> str:
    order = list(range(len(w.shape)))
    random.Random(w.between(0, 5)).shuffle(order)
    return repr(tuple(order))


# Plain values.
PLAIN: dict[str, Callable[[Writer], str]] = {
    "dim": a_dim,
    "dims": lambda w: w.choose(["-1", "0", "()", "(0, 1)", "(0, -1)"][: 3 if len(w.shape) < 2 else 5]),
    "number": lambda w: w.choose(["2", "0.5", "-1.5", "0", "3", "-1", "1.25", "nan", "inf", "True"]),
    "factor": lambda w: w.choose(["2", "-1", "0.5", "0"]),
    "positive": lambda w: w.choose(["2", "0.5", "3", "1.5"]),
    "exponent": lambda w: w.choose(["2", "3", "0.5", "-1", "0", "2.5", "1", "-2"]),
    "whole": lambda w: w.choose(["3", "1", "0", "-2", "6"]),
    "count": lambda w: w.choose(["1", "2", "0", "3"]),
    "order": lambda w: w.choose(["2", "1", "3"]),
    "digits": lambda w: w.choose(["1", "2", "-1"]),
    "small": lambda w: w.choose(["0.1", "0.25"]),
    "flag": lambda w: w.choose(["True", "False"]),
    "low": lambda w: w.choose(["-1", "-0.5", "0"]),
    "high": lambda w: w.choose(["1", "0.75", "-1"]),
    "rounding": lambda w: w.choose(["None", "'floor'", "'trunc'"]),
    "reduction": lambda w: w.choose(["'mean'", "'sum'", "'none'"]),
    "joining": lambda w: w.choose(["'sum'", "'prod'", "'mean'", "'amax'", "'amin'"]),
    "stride": lambda w: w.choose(["1", "2"]),
    "offset": lambda w: w.choose(["0", "1", "-1"]),
    "part": a_part,
    "shape": reshaped,
    "some_shape": lambda w: repr(w.choose(SHAPES)),
    "last_shape": lambda w: repr(w.shape[-1:]),
    "last": lambda w: str(len(w.shape) - 1),
    "size0": lambda w: str(size_at(w, 0)),
    "wider": lambda w: repr((2, *w.shape)),
    "repeats": lambda w: repr((2, *[1 for _ in w.shape[1:]])),
    "order_of_dims": permuted,
    "dtype": lambda w: f"T.{w.choose([*w.palette.floating, *w.palette.whole, 'bool'])}",
}  # fmt: skip
