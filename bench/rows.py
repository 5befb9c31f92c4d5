"""What is timed. A row is its data and one program for each library that can run it.

A program gets the library and the row's arrays, brings the arrays in, and returns the function
that is timed. The program "torch" serves adjit and PyTorch, word for word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
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
    """One row of the table; its figure is the time of one call divided by `operations`."""

    group: str
    name: str
    data: Callable[[], Arrays]
    programs: Mapping[str, Program]
    operations: int = 1
    rtol: float = 2e-5
    atol: float = 2e-6

    def runs_in(self, library: type[Library] | Library) -> bool:
        return library.program in self.programs

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


# ----- training steps -----

LEARNING_RATE = 0.01
SMALL, SMALL_BATCH = (64, 32, 10), 32
LARGE, LARGE_BATCH = (784, 1024, 1024, 10), 256


def network_data(widths: tuple[int, ...], batch: int) -> Arrays:
    """Inputs, labels, and a weight (out × in) and a bias for each layer."""
    random = np.random.default_rng(0)
    arrays = [
        random.standard_normal((batch, widths[0])).astype(np.float32),
        random.integers(widths[-1], size=batch),
    ]
    for fan_in, fan_out in pairwise(widths):
        bound = fan_in**-0.5
        arrays.append(random.uniform(-bound, bound, (fan_out, fan_in)).astype(np.float32))
        arrays.append(random.uniform(-bound, bound, fan_out).astype(np.float32))
    return tuple(arrays)


def train_torch(torch: Any, x: np.ndarray, labels: np.ndarray, *values: np.ndarray) -> Call:
    layers: list[Any] = []
    for weight, bias in zip(values[::2], values[1::2], strict=True):
        layer = torch.nn.Linear(weight.shape[1], weight.shape[0])
        with torch.no_grad():
            layer.weight.copy_(torch.tensor(weight))
            layer.bias.copy_(torch.tensor(bias))
        layers += [layer, torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1])
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=LEARNING_RATE)
    inputs, targets = torch.tensor(x), torch.tensor(labels)

    def step() -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss, *parameters

    return step


def train_jax(jax: Any, x: np.ndarray, labels: np.ndarray, *values: np.ndarray) -> Call:
    def loss_of(parameters: Any, x: Any, labels: Any) -> Any:
        *hidden, (weight, bias) = zip(parameters[::2], parameters[1::2], strict=True)
        for w, b in hidden:
            x = jax.nn.relu(x @ w.T + b)
        return jax_cross_entropy(jax, x @ weight.T + bias, labels)

    def update(parameters: Any, x: Any, labels: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(parameters, x, labels)
        moved = [p - LEARNING_RATE * g for p, g in zip(parameters, gradients, strict=True)]
        return loss, moved

    compiled = jax.jit(update, donate_argnums=0)
    inputs, targets = jax.numpy.asarray(x), jax.numpy.asarray(labels)
    parameters = [jax.numpy.array(value) for value in values]

    def step() -> Any:
        nonlocal parameters
        loss, parameters = compiled(parameters, inputs, targets)
        return loss, *parameters

    return step


def train_autograd(autograd: Any, x: np.ndarray, labels: np.ndarray, *values: np.ndarray) -> Call:
    anp = autograd.numpy

    def loss_of(*parameters: Any) -> Any:
        *hidden, (weight, bias) = zip(parameters[::2], parameters[1::2], strict=True)
        activations = x
        for w, b in hidden:
            activations = anp.maximum(anp.dot(activations, w.T) + b, 0)
        return autograd_cross_entropy(autograd, anp.dot(activations, weight.T) + bias, labels)

    gradient = autograd.value_and_grad(loss_of, tuple(range(len(values))))
    parameters = [value.copy() for value in values]

    def step() -> Any:
        loss, gradients = gradient(*parameters)
        for p, g in zip(parameters, gradients, strict=True):
            p -= LEARNING_RATE * g
        return loss, *parameters

    return step


def jax_cross_entropy(jax: Any, logits: Any, labels: Any) -> Any:
    log_p = jax.nn.log_softmax(logits)
    return -jax.numpy.take_along_axis(log_p, labels[:, None], 1).mean()


def autograd_cross_entropy(autograd: Any, logits: Any, labels: np.ndarray) -> Any:
    total = autograd.scipy.special.logsumexp(logits, axis=1)
    return autograd.numpy.mean(total - logits[np.arange(len(labels)), labels])


TRAIN: dict[str, Program] = {"torch": train_torch, "jax": train_jax, "autograd": train_autograd}


def training_rows() -> list[Row]:
    return [
        Row(
            "training",
            f"SGD step, MLP {'-'.join(map(str, widths))}, batch {batch}",
            partial(network_data, widths, batch),
            TRAIN,
            rtol=1e-4,
            atol=1e-5,
        )
        for widths, batch in ((SMALL, SMALL_BATCH), (LARGE, LARGE_BATCH))
    ]


# ----- larger operations -----


def matmul_data() -> Arrays:
    return tuple(uniform((1024, 1024), (-1, 1), seed=seed) for seed in range(3))


def matmul_vjp_torch(torch: Any, *arrays: np.ndarray) -> Call:
    a, b = (torch.tensor(value, requires_grad=True) for value in arrays[:2])
    g, product = torch.tensor(arrays[2]), a @ b
    return lambda: torch.autograd.grad(product, (a, b), g, retain_graph=True)


def matmul_vjp_numpy(np: Any, a: np.ndarray, b: np.ndarray, g: np.ndarray) -> Call:
    return lambda: (g @ b.T, a.T @ g)


def matmul_vjp_jax(jax: Any, *arrays: np.ndarray) -> Call:
    vjp = jax.jit(lambda a, b, g: jax.vjp(jax.numpy.matmul, a, b)[1](g))
    return partial(vjp, *map(jax.numpy.asarray, arrays))


def matmul_vjp_autograd(autograd: Any, a: np.ndarray, b: np.ndarray, g: np.ndarray) -> Call:
    matmul = autograd.numpy.matmul
    vjp, _ = autograd.make_vjp(lambda pair: matmul(pair[0], pair[1]))((a, b))
    return lambda: vjp(g)


def cross_entropy_data() -> Arrays:
    labels = np.random.default_rng(1).integers(10_000, size=512)
    return uniform((512, 10_000), (-5, 5)), labels


def cross_entropy_torch(torch: Any, x: np.ndarray, labels: np.ndarray) -> Call:
    logits, targets = torch.tensor(x, requires_grad=True), torch.tensor(labels)
    loss_of, grad = torch.nn.functional.cross_entropy, torch.autograd.grad
    return lambda: grad(loss_of(logits, targets), (logits,))


def cross_entropy_jax(jax: Any, x: np.ndarray, labels: np.ndarray) -> Call:
    gradient = jax.jit(jax.grad(partial(jax_cross_entropy, jax)))
    return partial(gradient, jax.numpy.asarray(x), jax.numpy.asarray(labels))


def cross_entropy_autograd(autograd: Any, x: np.ndarray, labels: np.ndarray) -> Call:
    return partial(autograd.grad(partial(autograd_cross_entropy, autograd)), x, labels)


def layer_norm_data() -> Arrays:
    return (
        uniform((4096, 768), (-2, 2)),
        uniform((768,), (0.5, 1.5), seed=1),
        uniform((768,), (-1, 1), seed=2),
        uniform((4096, 768), (-1, 1), seed=3),
    )


def layer_norm_torch(torch: Any, *arrays: np.ndarray) -> Call:
    x, weight, bias = (torch.tensor(value, requires_grad=True) for value in arrays[:3])
    g = torch.tensor(arrays[3])
    layer_norm, grad = torch.nn.functional.layer_norm, torch.autograd.grad
    return lambda: grad(layer_norm(x, (768,), weight, bias), (x, weight, bias), g)


def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    centred = x - x.mean(1, keepdims=True)
    variance = (centred * centred).mean(1, keepdims=True)
    return centred / (variance + 1e-5) ** 0.5 * weight + bias


def layer_norm_jax(jax: Any, *arrays: np.ndarray) -> Call:
    vjp = jax.jit(lambda x, weight, bias, g: jax.vjp(layer_norm, x, weight, bias)[1](g))
    return partial(vjp, *map(jax.numpy.asarray, arrays))


def layer_norm_autograd(autograd: Any, *arrays: np.ndarray) -> Call:
    anp, (*inputs, g) = autograd.numpy, arrays

    def forward(inputs: Any) -> Any:
        x, weight, bias = inputs
        centred = x - anp.mean(x, axis=1, keepdims=True)
        variance = anp.mean(centred * centred, axis=1, keepdims=True)
        return centred / anp.sqrt(variance + np.float32(1e-5)) * weight + bias

    return lambda: autograd.make_vjp(forward)(tuple(inputs))[0](g)


def larger_rows() -> list[Row]:
    total = Function("sum", ((-1, 1),))
    return [
        Row(
            "larger",
            "matmul, vjp, 1024x1024 float32",
            matmul_data,
            {
                "torch": matmul_vjp_torch,
                "numpy": matmul_vjp_numpy,
                "jax": matmul_vjp_jax,
                "autograd": matmul_vjp_autograd,
            },
            rtol=1e-3,
            atol=1e-3,
        ),
        Row(
            "larger",
            "cross-entropy, forward and backward, 512x10000 float32",
            cross_entropy_data,
            {
                "torch": cross_entropy_torch,
                "jax": cross_entropy_jax,
                "autograd": cross_entropy_autograd,
            },
            rtol=1e-4,
            atol=1e-8,
        ),
        Row(
            "larger",
            "layer norm, forward and backward, 4096x768 float32",
            layer_norm_data,
            {
                "torch": layer_norm_torch,
                "jax": layer_norm_jax,
                "autograd": layer_norm_autograd,
            },
            rtol=1e-3,
            atol=1e-3,
        ),
        total.row("larger", "4M", 1 << 22, "float32", rtol=1e-4, atol=0.5),
    ]


ROWS: tuple[Row, ...] = (*chain_rows(), *elementwise_rows(), *training_rows(), *larger_rows())


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
