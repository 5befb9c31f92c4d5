"""What is timed, one operation at a time (whole programs: programs.py).

A row is its data and one program for each library that can run it. A program gets the library and
the row's arrays, brings the arrays in, and returns the function that is timed. The program "torch"
serves adjit and PyTorch, word for word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any

import numpy as np
from libraries import Library

Arrays = tuple[np.ndarray, ...]
Call = Callable[[], Any]
Program = Callable[..., Call]
Pick = str | Callable[[Any], Callable[..., Any]]
Domain = tuple[float, float]


@dataclass(frozen=True)
class Row:
    """One row of the table; its figure is the time of one call divided by `operations`.

    `moves` are the bytes or operations of a call, for a row that is told as a rate.
    """

    group: str
    name: str
    data: Callable[[], Arrays]
    programs: Mapping[str, Program]
    operations: int = 1
    rtol: float = 2e-5
    atol: float = 2e-6
    moves: float = 0

    def runs_in(self, library: type[Library] | Library) -> bool:
        return library.program in self.programs and not library.captures

    def note(self, library: type[Library] | Library) -> str:
        """What the table says instead of a figure; empty where the row is to be timed."""
        return ""

    def prepare(self, library: Library) -> Call:
        """The function to time: it returns once all its results have been computed."""
        call = self.programs[library.program](library.module, *self.data())
        finish = library.finish
        return lambda: finish(call())


@lru_cache(maxsize=4)
def uniform(
    shape: tuple[int, ...], domain: Domain, dtype: str = "float32", seed: int = 0
) -> np.ndarray:
    """Values spread over `domain`; never written to, so the libraries can share them."""
    random = np.random.default_rng(seed)
    values = random.uniform(*domain, shape).astype(dtype)
    values.flags.writeable = False
    return values


def pick(module: Any, what: Pick) -> Callable[..., Any]:
    return attrgetter(what)(module) if isinstance(what, str) else what(module)


# ----- the cost of an operation -----

CHAIN = 100


def chain_data() -> Arrays:
    return uniform((16,), (-1, 1)), uniform((16,), (0.1, 0.9), seed=1)


def with_tensor(z: Any, y: Any) -> Any:
    for _ in range(CHAIN // 2):
        z = z * y + y
    return z


def with_scalars(z: Any, y: Any) -> Any:
    for _ in range(CHAIN // 2):
        z = z * 1.01 + 0.5
    return z


def chain_forward_torch(chain: Callable, torch: Any, x: np.ndarray, y: np.ndarray) -> Call:
    a, b = torch.tensor(x), torch.tensor(y)
    return lambda: chain(a, b)


def chain_forward_numpy(chain: Callable, np: Any, x: np.ndarray, y: np.ndarray) -> Call:
    return lambda: chain(x, y)


def chain_forward_jax(chain: Callable, jax: Any, x: np.ndarray, y: np.ndarray) -> Call:
    a, b, compiled = jax.numpy.asarray(x), jax.numpy.asarray(y), jax.jit(chain)
    return lambda: compiled(a, b)


def chain_gradient_torch(chain: Callable, torch: Any, x: np.ndarray, y: np.ndarray) -> Call:
    a, b = (torch.tensor(value, requires_grad=True) for value in (x, y))
    inputs = (a, b) if chain is with_tensor else (a,)
    return lambda: torch.autograd.grad(chain(a, b).sum(), inputs)


def chain_gradient_jax(chain: Callable, jax: Any, x: np.ndarray, y: np.ndarray) -> Call:
    a, b = jax.numpy.asarray(x), jax.numpy.asarray(y)
    argnums = (0, 1) if chain is with_tensor else (0,)
    gradient = jax.jit(jax.grad(lambda a, b: chain(a, b).sum(), argnums))
    return lambda: gradient(a, b)


def chain_gradient_autograd(chain: Callable, autograd: Any, x: np.ndarray, y: np.ndarray) -> Call:
    argnums = (0, 1) if chain is with_tensor else (0,)
    gradient = autograd.grad(lambda a, b: autograd.numpy.sum(chain(a, b)), argnums)
    return lambda: gradient(x, y)


def chain_rows() -> list[Row]:
    rows = []
    for label, chain in (("z*y + y", with_tensor), ("z*1.01 + 0.5", with_scalars)):
        forward: dict[str, Program] = {
            "torch": partial(chain_forward_torch, chain),
            "numpy": partial(chain_forward_numpy, chain),
            "jax": partial(chain_forward_jax, chain),
        }
        gradient: dict[str, Program] = {
            "torch": partial(chain_gradient_torch, chain),
            "jax": partial(chain_gradient_jax, chain),
            "autograd": partial(chain_gradient_autograd, chain),
        }
        for kind, programs in (("forward", forward), ("forward and backward", gradient)):
            name = f"one op of {CHAIN}, {label}, 16 elements, {kind}"
            rows.append(Row("overhead", name, chain_data, programs, CHAIN, rtol=1e-4))
    return rows


# ----- elementwise functions -----


def scipy_special(name: str) -> Callable[[Any], Callable[..., Any]]:
    """A function of scipy.special, imported only by the rows that time it."""

    def find(_: Any) -> Callable[..., Any]:
        from scipy import special

        return getattr(special, name)

    return find


@dataclass(frozen=True)
class Function:
    """A function under its name in each library, and the domain of each of its arguments."""

    name: str
    domains: tuple[Domain, ...]
    numpy: Pick = ""
    torch: Pick = ""
    jax: Pick = ""

    def programs(self) -> dict[str, Program]:
        in_numpy = self.numpy or self.name
        in_jax = self.jax or f"numpy.{in_numpy}"
        return {
            "torch": partial(apply_torch, self.torch or self.name),
            "numpy": partial(apply_numpy, in_numpy),
            "jax": partial(apply_jax, in_jax),
        }

    def row(self, group: str, size: str, n: int, dtype: str, **tolerance: float) -> Row:
        def data() -> Arrays:
            return tuple(
                uniform((n,), domain, dtype, seed) for seed, domain in enumerate(self.domains)
            )

        return Row(group, f"{self.name}, {size} {dtype}", data, self.programs(), **tolerance)


def apply_torch(what: Pick, torch: Any, *arrays: np.ndarray) -> Call:
    return partial(pick(torch, what), *map(torch.tensor, arrays))


def apply_numpy(what: Pick, np: Any, *arrays: np.ndarray) -> Call:
    return partial(pick(np, what), *arrays)


def apply_jax(what: Pick, jax: Any, *arrays: np.ndarray) -> Call:
    return partial(jax.jit(pick(jax, what)), *map(jax.numpy.asarray, arrays))


def gelu_numpy(np: Any) -> Callable[..., Any]:
    erf = scipy_special("erf")(np)
    return lambda x: 0.5 * x * (1 + erf(x * 0.5**0.5))


def gelu_jax(jax: Any) -> Callable[..., Any]:
    return lambda x: jax.nn.gelu(x, approximate=False)


def silu_numpy(np: Any) -> Callable[..., Any]:
    expit = scipy_special("expit")(np)
    return lambda x: x * expit(x)


WIDE, POSITIVE, UNIT = (-10.0, 10.0), (0.01, 100.0), (-0.99, 0.99)

UNARY = (
    Function("exp", (WIDE,)),
    Function("exp2", (WIDE,)),
    Function("expm1", ((-3, 3),)),
    Function("log", (POSITIVE,)),
    Function("log2", (POSITIVE,)),
    Function("log10", (POSITIVE,)),
    Function("log1p", (POSITIVE,)),
    Function("sin", (WIDE,)),
    Function("cos", (WIDE,)),
    Function("tan", ((-1.5, 1.5),)),
    Function("asin", (UNIT,), numpy="arcsin"),
    Function("acos", (UNIT,), numpy="arccos"),
    Function("atan", (WIDE,), numpy="arctan"),
    Function("sinh", ((-5, 5),)),
    Function("cosh", ((-5, 5),)),
    Function("tanh", ((-5, 5),)),
    Function("asinh", (WIDE,), numpy="arcsinh"),
    Function("acosh", ((1, 10),), numpy="arccosh"),
    Function("atanh", (UNIT,), numpy="arctanh"),
    Function("erf", ((-3, 3),), scipy_special("erf"), jax="scipy.special.erf"),
    Function("erfc", ((-3, 3),), scipy_special("erfc"), jax="scipy.special.erfc"),
    Function("sqrt", (POSITIVE,)),
    Function("rsqrt", (POSITIVE,), lambda np: lambda x: 1 / np.sqrt(x), jax="lax.rsqrt"),
    Function("sigmoid", (WIDE,), scipy_special("expit"), jax="nn.sigmoid"),
    Function("relu", (WIDE,), lambda np: lambda x: np.maximum(x, 0), jax="nn.relu"),
    Function("gelu", (WIDE,), gelu_numpy, "nn.functional.gelu", gelu_jax),
    Function("silu", (WIDE,), silu_numpy, "nn.functional.silu", "nn.silu"),
    Function(
        "softplus",
        (WIDE,),
        lambda np: lambda x: np.logaddexp(x, 0),
        "nn.functional.softplus",
        "nn.softplus",
    ),
    Function("abs", (WIDE,)),
    Function("neg", (WIDE,), numpy="negative"),
    Function("reciprocal", ((0.1, 10),)),
    Function("square", (WIDE,)),
    Function("floor", (WIDE,)),
    Function("round", (WIDE,)),
    Function("sign", (WIDE,)),
    Function("lgamma", ((0.1, 20),), scipy_special("gammaln"), jax="scipy.special.gammaln"),
)

BINARY = (
    Function("add", (WIDE, WIDE)),
    Function("sub", (WIDE, WIDE), numpy="subtract"),
    Function("mul", (WIDE, WIDE), numpy="multiply"),
    Function("div", (WIDE, (0.5, 3)), numpy="divide"),
    Function("pow", ((0.1, 4), (-3, 3)), numpy="power"),
    Function("maximum", (WIDE, WIDE)),
    Function("minimum", (WIDE, WIDE)),
    Function("atan2", (WIDE, WIDE), numpy="arctan2"),
    Function("hypot", (WIDE, WIDE)),
    Function("fmod", (WIDE, (0.5, 3))),
    Function("lt", (WIDE, WIDE), numpy="less"),
    Function("eq", (WIDE, WIDE), numpy="equal"),
    Function(
        "where(x < y, x, y)",
        (WIDE, WIDE),
        lambda np: lambda x, y: np.where(x < y, x, y),
        lambda torch: lambda x, y: torch.where(x < y, x, y),
        lambda jax: lambda x, y: jax.numpy.where(x < y, x, y),
    ),
)


def elementwise_rows() -> list[Row]:
    rows = [f.row("unary float32", "4M", 1 << 22, "float32") for f in UNARY]
    rows += [
        f.row("unary float64", "1M", 1 << 20, "float64", rtol=1e-11, atol=1e-13) for f in UNARY
    ]
    return rows + [f.row("binary float32", "4M", 1 << 22, "float32") for f in BINARY]


# ----- images -----

IMAGES, LAYERS = (4, 32, 32, 32), (4, 64, 56, 56)


def image_torch(function: Callable, torch: Any, *arrays: np.ndarray) -> Call:
    """A function of images, forward and backward, the gradient it is sent lying as its result does."""
    leaves = [torch.tensor(value, requires_grad=True) for value in arrays]
    upper = function(torch.nn.functional, *leaves).detach() * 0 + 1
    return lambda: torch.autograd.grad(function(torch.nn.functional, *leaves), leaves, upper)


def channels_last(function: Callable) -> Callable:
    """The function of images whose channels lie last."""
    return lambda F, x: function(F, x.permute(0, 3, 1, 2))


def image_rows() -> list[Row]:
    def points() -> np.ndarray:
        return uniform((4, 64, 64, 2), (-1.1, 1.1), seed=1)

    def sample(mode: str) -> Callable:
        return lambda F, x, at: F.grid_sample(x, at, mode, align_corners=False)

    def nearest(F: Any, x: Any) -> Any:
        return F.interpolate(x, scale_factor=2)

    def frame(F: Any, x: Any) -> Any:
        return F.pad(x, (1, 1, 1, 1))

    found: list[tuple[str, Callable, Callable[[], Arrays]]] = [
        (f"grid_sample, {mode}, 4x32x32x32 at 64x64 points", sample(mode),
         lambda: (uniform(IMAGES, (-1, 1)), points()))
        for mode in ("bilinear", "nearest")
    ]  # fmt: skip
    found += [
        (f"{label}, 4x32x32x32{layout}", made(function), lambda: (uniform(IMAGES, (-1, 1)),))
        for label, function in (("nearest 2x", nearest), ("a frame of one", frame))
        for layout, made in (("", lambda function: function), (", channels last", channels_last))
    ]
    found += [
        (f"adaptive max pool to {size}x{size}, 4x64x56x56",
         lambda F, x, size=size: F.adaptive_max_pool2d(x, size),
         lambda: (uniform(LAYERS, (-1, 1)),))
        for size in (7, 1)
    ]  # fmt: skip
    found.append(
        (
            "batch norm, 2x8x4x4",
            lambda F, x, weight, bias: F.batch_norm(x, None, None, weight, bias, True),
            lambda: (uniform((2, 8, 4, 4), (-1, 1)), *[uniform((8,), (0.5, 1.5), seed=1)] * 2),
        )
    )
    return [
        Row("images", f"{name}, forward and backward", data, {"torch": partial(image_torch, f)},
            rtol=1e-3, atol=1e-4)
        for name, f, data in found
    ]  # fmt: skip


ROWS: tuple[Row, ...] = (
    *chain_rows(),
    *elementwise_rows(),
    *image_rows(),
    Function("sum", ((-1, 1),)).row("larger", "4M", 1 << 22, "float32", rtol=1e-4, atol=0.5),
)


def disagreement(row: Row, expected: list[np.ndarray], found: list[np.ndarray]) -> str:
    """What is wrong with the values of one library beside those of another; empty if nothing is."""
    if len(expected) != len(found):
        return f"{len(found)} results where {len(expected)} were expected"
    for one, other in zip(expected, found, strict=True):
        if one.shape != other.shape:
            return f"shape {other.shape} where {one.shape} was expected"
        if not np.allclose(other, one, row.rtol, row.atol):
            worst = np.max(np.abs(other.astype(np.float64) - one.astype(np.float64)))
            return f"differs by up to {worst:.3g}"
    return ""


def values_of(library: Library, result: Any) -> list[np.ndarray]:
    """The results of one call as NumPy arrays."""
    parts = result if isinstance(result, tuple | list) else (result,)
    return [library.to_numpy(part) for part in parts]
