"""Whole programs: what one step of a small application costs, with and without capture.

A program gets the library, `capture` and the row's arrays, and returns the function that is timed.
`capture` is what a user of the library puts around a step: `torch.compile`, `adjit.compile` or
`jax.jit`; where a library runs as it is, it gives the step back unchanged. The program "torch"
serves adjit and PyTorch, word for word, eager and captured. JAX has loops of its own: what is
unrolled in Python for the others is a `lax.scan` there, as its users write it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import islice, pairwise
from typing import Any

import numpy as np
from libraries import Library
from rows import Arrays, Call, Row, uniform
from rows import Program as Preparation

Step = Callable[..., Any]
Capture = Callable[..., Step]


@dataclass(frozen=True)
class Program(Row):
    """A row whose step can be captured; `tiny` is its data in a size that takes no time.

    `notes` says what is shown for a library that cannot run it; `only_eager` leaves capture out.
    """

    tiny: Callable[[], Arrays] = tuple
    notes: Mapping[str, str] = field(default_factory=dict)
    only_eager: bool = False

    def runs_in(self, library: type[Library] | Library) -> bool:
        return library.program in self.programs and not (self.only_eager and library.captures)

    def note(self, library: type[Library] | Library) -> str:
        return self.notes.get(library.name, "") or library.obstacle()

    def prepare(self, library: Library, *, tiny: bool = False) -> Call:
        arrays = self.tiny() if tiny else self.data()
        call = self.programs[library.program](library.module, library.capture, *arrays)
        finish = library.finish
        return lambda: finish(call())


def program(
    name: str,
    data: Callable[..., Arrays],
    programs: Mapping[str, Preparation],
    *,
    sizes: tuple[Any, ...] = (),
    tiny: tuple[Any, ...] = (),
    **options: Any,
) -> Program:
    """The row of `data(*sizes)`; its name may mention the sizes."""
    return Program(
        "programs",
        name.format(*sizes),
        partial(data, *sizes),
        programs,
        tiny=partial(data, *tiny),
        **options,
    )


# ----- what many of the programs have in common -----


def gradient(
    of_torch: Step, of_jax: Step, inputs: int, of_autograd: Step | None = None
) -> dict[str, Preparation]:
    """The value of a function with its gradients by its first `inputs` arrays."""

    def in_torch(torch: Any, capture: Capture, *arrays: np.ndarray) -> Call:
        leaves = [torch.tensor(value, requires_grad=True) for value in arrays[:inputs]]
        others = [torch.tensor(value) for value in arrays[inputs:]]

        @capture
        def step() -> Any:
            value = of_torch(torch, *leaves, *others)
            return value, *torch.autograd.grad(value, leaves)

        return step

    def in_jax(jax: Any, capture: Capture, *arrays: np.ndarray) -> Call:
        step = capture(jax.value_and_grad(partial(of_jax, jax), tuple(range(inputs))))
        values = [jax.numpy.asarray(value) for value in arrays]

        def call() -> Any:
            value, gradients = step(*values)
            return value, *gradients

        return call

    def in_autograd(autograd: Any, _: Capture, *arrays: np.ndarray) -> Call:
        step = autograd.value_and_grad(partial(of_autograd, autograd), tuple(range(inputs)))

        def call() -> Any:
            value, gradients = step(*arrays)
            return value, *gradients

        return call

    extra = {"autograd": in_autograd} if of_autograd else {}
    return {"torch": in_torch, "jax": in_jax, **extra}


def vjp(of_torch: Step, of_jax: Step, of_autograd: Step | None = None) -> dict[str, Preparation]:
    """The value of a function, and its gradients for the upper gradient that comes last."""

    def in_torch(torch: Any, capture: Capture, *arrays: np.ndarray) -> Call:
        leaves = [torch.tensor(value, requires_grad=True) for value in arrays[:-1]]
        g = torch.tensor(arrays[-1])

        @capture
        def step() -> Any:
            out = of_torch(torch, *leaves)
            return out, *torch.autograd.grad(out, leaves, g)

        return step

    def in_jax(jax: Any, capture: Capture, *arrays: np.ndarray) -> Call:
        *values, g = map(jax.numpy.asarray, arrays)

        @capture
        def step(*values: Any) -> Any:
            *inputs, g = values
            out, pull_back = jax.vjp(partial(of_jax, jax), *inputs)
            return out, *pull_back(g)

        return partial(step, *values, g)

    def in_autograd(autograd: Any, _: Capture, *arrays: np.ndarray) -> Call:
        *inputs, g = arrays

        def step() -> Any:
            pull_back, out = autograd.make_vjp(lambda xs: of_autograd(autograd, *xs))(tuple(inputs))
            return out, *pull_back(g)

        return step

    extra = {"autograd": in_autograd} if of_autograd else {}
    return {"torch": in_torch, "jax": in_jax, **extra}


def normal(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Weights of a layer that keeps the size of its input."""
    return (random.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32)


# ----- many small operations -----

CHAIN = 100


def chain_data(n: int) -> Arrays:
    return uniform((n,), (-1, 1)), uniform((n,), (0.1, 0.9), seed=1)


def chain(torch: Any, z: Any, y: Any) -> Any:
    for _ in range(CHAIN // 5):
        z = torch.sin(z) * y + y
        z = torch.tanh(z) - 0.1
    return z.sum()


def chain_jax(jax: Any, z: Any, y: Any) -> Any:
    return chain(jax.numpy, z, y)


NODES, LEAVES = 200, 4
GRAPHS = 5  # in one call, so that the shortest call is not just the cheapest graph
Dag = Iterator[tuple[int, int, int]]


def dag_data(n: int) -> Arrays:
    return tuple(uniform((n,), (-1, 1), seed=seed) for seed in range(LEAVES))


@cache
def dags(library: str) -> Iterator[Dag]:
    """Graphs without end, each another one: for every node an operation and two earlier values.

    The same for every library. Who prepares the program again goes on where it was, or the graphs
    would come back.
    """
    return random_dags()


def random_dags() -> Iterator[Dag]:
    random = np.random.default_rng(0)
    earlier = np.arange(LEAVES, LEAVES + NODES)
    while True:
        operations, second = random.integers(6, size=NODES), random.integers(earlier)
        operations[:LEAVES], second[:LEAVES] = 0, range(LEAVES)  # every leaf is used
        yield zip(operations.tolist(), (earlier - 1).tolist(), second.tolist(), strict=True)


def evaluate(module: Any, leaves: Any, dag: Dag) -> Any:
    sin, cos, tanh = module.sin, module.cos, module.tanh
    binary = (operator.add, operator.sub, operator.mul)
    unary = (sin, cos, tanh)
    values = list(leaves)
    for operation, first, second in dag:
        x = values[first]
        values.append(
            binary[operation](x, values[second]) if operation < 3 else unary[operation - 3](x)
        )
    return values[-1].sum()


def dag_torch(torch: Any, _: Capture, *arrays: np.ndarray) -> Call:
    leaves = [torch.tensor(value, requires_grad=True) for value in arrays]
    graphs = dags(torch.__name__)

    def step(dag: Dag) -> Any:
        value = evaluate(torch, leaves, dag)
        return value, *torch.autograd.grad(value, leaves)

    return lambda: [value for dag in islice(graphs, GRAPHS) for value in step(dag)]


def dag_jax(jax: Any, _: Capture, *arrays: np.ndarray) -> Call:
    """Without jit: compiling a graph that never comes back would cost more than running it."""
    leaves = [jax.numpy.asarray(value) for value in arrays]
    graphs = dags(jax.__name__)

    def step(dag: Dag) -> Any:
        value, gradients = jax.value_and_grad(lambda xs: evaluate(jax.numpy, xs, dag))(leaves)
        return value, *gradients

    return lambda: [value for dag in islice(graphs, GRAPHS) for value in step(dag)]


STEPS, DT = 200, 0.01


def lotka_volterra_data() -> Arrays:
    return tuple(np.array(value, np.float32) for value in (1.1, 0.4, 0.4, 0.1))


def lotka_volterra_step(populations: Any, birth: Any, hunt: Any, death: Any, feed: Any) -> Any:
    prey, hunters = populations
    return (
        prey + DT * prey * (birth - hunt * hunters),
        hunters + DT * hunters * (feed * prey - death),
    )


def lotka_volterra(torch: Any, *rates: Any) -> Any:
    prey, hunters = torch.tensor(10.0), torch.tensor(5.0)
    for _ in range(STEPS):
        prey, hunters = lotka_volterra_step((prey, hunters), *rates)
    return prey + hunters


def lotka_volterra_jax(jax: Any, *rates: Any) -> Any:
    def advance(populations: Any, _: Any) -> Any:
        return lotka_volterra_step(populations, *rates), None

    start = jax.numpy.float32(10), jax.numpy.float32(5)
    (prey, hunters), _ = jax.lax.scan(advance, start, length=STEPS)
    return prey + hunters


# ----- many numbers -----


def gelu_data(n: int) -> Arrays:
    return (uniform((n,), (-4, 4)),)


def gelu(torch: Any, x: Any) -> Any:
    return (0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x**3)))).sum()


def gelu_jax(jax: Any, x: Any) -> Any:
    return gelu(jax.numpy, x)


def option_data(n: int) -> Arrays:
    """Spot, volatility, time to expiry, interest rate, strike."""
    domains = ((80, 120), (0.1, 0.5), (0.2, 2), (0.0, 0.08), (90, 110))
    return tuple(uniform((n,), d, "float64", seed) for seed, d in enumerate(domains))


def black_scholes(module: Any, erf: Step, s: Any, sigma: Any, t: Any, rate: Any, k: Any) -> Any:
    """The price of a call."""
    spread = sigma * module.sqrt(t)
    d1 = (module.log(s / k) + (rate + 0.5 * sigma * sigma) * t) / spread
    d2 = d1 - spread
    below_1, below_2 = (0.5 * (1 + erf(d * 0.5**0.5)) for d in (d1, d2))
    return s * below_1 - k * module.exp(-rate * t) * below_2


def greeks_torch(torch: Any, capture: Capture, *arrays: np.ndarray) -> Call:
    inputs = [torch.tensor(value, requires_grad=True) for value in arrays[:4]]
    strike = torch.tensor(arrays[4])

    @capture
    def step() -> Any:
        price = black_scholes(torch, torch.erf, *inputs, strike)
        first = torch.autograd.grad(price.sum(), inputs, create_graph=True)
        (gamma,) = torch.autograd.grad(first[0].sum(), inputs[:1])
        return price, *first, gamma

    return step


def greeks_jax(jax: Any, capture: Capture, *arrays: np.ndarray) -> Call:
    def price_of(*inputs: Any) -> Any:
        price = black_scholes(jax.numpy, jax.scipy.special.erf, *inputs)
        return price.sum(), price

    def delta_of(s: Any, *others: Any) -> Any:
        greeks = jax.value_and_grad(price_of, (0, 1, 2, 3), has_aux=True)
        (_, price), first = greeks(s, *others)
        return first[0].sum(), (price, *first)

    def step(*inputs: Any) -> Any:
        (_, found), gamma = jax.value_and_grad(delta_of, has_aux=True)(*inputs)
        return *found, gamma

    return partial(capture(step), *map(jax.numpy.asarray, arrays))


def matmul_data(n: int) -> Arrays:
    return tuple(uniform((n, n), (-1, 1), seed=seed) for seed in range(3))


def matmul(_: Any, a: Any, b: Any) -> Any:
    return a @ b


def matmul_autograd(autograd: Any, a: Any, b: Any) -> Any:
    return autograd.numpy.matmul(a, b)


def matmul_numpy(np: Any, _: Capture, a: np.ndarray, b: np.ndarray, g: np.ndarray) -> Call:
    return lambda: (a @ b, g @ b.T, a.T @ g)


# ----- parts of networks -----


def cross_entropy_data(batch: int, classes: int) -> Arrays:
    labels = np.random.default_rng(1).integers(classes, size=batch)
    return uniform((batch, classes), (-5, 5)), labels


def cross_entropy(torch: Any, logits: Any, labels: Any) -> Any:
    return torch.nn.functional.cross_entropy(logits, labels)


def cross_entropy_jax(jax: Any, logits: Any, labels: Any) -> Any:
    log_p = jax.nn.log_softmax(logits)
    return -jax.numpy.take_along_axis(log_p, labels[:, None], 1).mean()


def cross_entropy_autograd(autograd: Any, logits: Any, labels: np.ndarray) -> Any:
    total = autograd.scipy.special.logsumexp(logits, axis=1)
    return autograd.numpy.mean(total - logits[np.arange(len(labels)), labels])


def layer_norm_data(rows: int, width: int) -> Arrays:
    return (
        uniform((rows, width), (-2, 2)),
        uniform((width,), (0.5, 1.5), seed=1),
        uniform((width,), (-1, 1), seed=2),
        uniform((rows, width), (-1, 1), seed=3),
    )


def layer_norm(torch: Any, x: Any, weight: Any, bias: Any) -> Any:
    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias)


def layer_norm_jax(jax: Any, x: Any, weight: Any, bias: Any) -> Any:
    centred = x - x.mean(1, keepdims=True)
    variance = (centred * centred).mean(1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + 1e-5) * weight + bias


def layer_norm_autograd(autograd: Any, x: Any, weight: Any, bias: Any) -> Any:
    mean, sqrt = partial(autograd.numpy.mean, axis=1, keepdims=True), autograd.numpy.sqrt
    centred = x - mean(x)
    return centred / sqrt(mean(centred * centred) + np.float32(1e-5)) * weight + bias


def attention_data(batch: int, length: int, width: int) -> Arrays:
    """A batch, the weights of queries, keys and values, those of the output, and a gradient."""
    random = np.random.default_rng(0)
    x, g = (random.standard_normal((batch, length, width)).astype(np.float32) for _ in "xg")
    return x, normal(random, width, 3 * width), normal(random, width, width), g


HEADS = 8


def attention(torch: Any, x: Any, inward: Any, outward: Any) -> Any:
    batch, length, width = x.shape
    parts = (x @ inward).view(batch, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
    queries, keys, values = parts.unbind()
    scores = queries @ keys.transpose(-2, -1) * (width // HEADS) ** -0.5
    mixed = torch.softmax(scores, -1) @ values
    return mixed.transpose(1, 2).reshape(batch, length, width) @ outward


def attention_jax(jax: Any, x: Any, inward: Any, outward: Any) -> Any:
    batch, length, width = x.shape
    parts = (x @ inward).reshape(batch, length, 3, HEADS, width // HEADS)
    queries, keys, values = parts.transpose(2, 0, 3, 1, 4)
    scores = queries @ keys.swapaxes(-2, -1) * (width // HEADS) ** -0.5
    mixed = jax.nn.softmax(scores) @ values
    return mixed.swapaxes(1, 2).reshape(batch, length, width) @ outward


def recurrent_data(gates: int, steps: int, batch: int, hidden: int) -> Arrays:
    """Weights of the input and of the state, a bias for each gate, and a sequence."""
    random = np.random.default_rng(0)
    return (
        normal(random, hidden, gates * hidden),
        normal(random, hidden, gates * hidden),
        np.zeros(gates * hidden, np.float32),
        random.standard_normal((steps, batch, hidden)).astype(np.float32),
    )


def rnn_cell(module: Any, state: Any, x: Any, inward: Any, across: Any, bias: Any) -> Any:
    return module.tanh(x @ inward + state @ across + bias)


def rnn(torch: Any, inward: Any, across: Any, bias: Any, sequence: Any) -> Any:
    state = torch.zeros(sequence.shape[1:])
    for x in sequence:
        state = rnn_cell(torch, state, x, inward, across, bias)
    return (state * state).mean()


def rnn_jax(jax: Any, inward: Any, across: Any, bias: Any, sequence: Any) -> Any:
    def advance(state: Any, x: Any) -> Any:
        return rnn_cell(jax.numpy, state, x, inward, across, bias), None

    state, _ = jax.lax.scan(advance, jax.numpy.zeros_like(sequence[0]), sequence)
    return (state * state).mean()


def gru(torch: Any, inward: Any, across: Any, bias: Any, sequence: Any) -> Any:
    state = torch.zeros(sequence.shape[1:])
    for x in sequence:
        reset_x, update_x, new_x = (x @ inward + bias).chunk(3, 1)
        reset_h, update_h, new_h = (state @ across).chunk(3, 1)
        reset, update = torch.sigmoid(reset_x + reset_h), torch.sigmoid(update_x + update_h)
        new = torch.tanh(new_x + reset * new_h)
        state = new + update * (state - new)
    return (state * state).mean()


def gru_jax(jax: Any, inward: Any, across: Any, bias: Any, sequence: Any) -> Any:
    split, sigmoid = partial(jax.numpy.split, indices_or_sections=3, axis=1), jax.nn.sigmoid

    def advance(state: Any, x: Any) -> Any:
        reset_x, update_x, new_x = split(x @ inward + bias)
        reset_h, update_h, new_h = split(state @ across)
        reset, update = sigmoid(reset_x + reset_h), sigmoid(update_x + update_h)
        new = jax.numpy.tanh(new_x + reset * new_h)
        return new + update * (state - new), None

    state, _ = jax.lax.scan(advance, jax.numpy.zeros_like(sequence[0]), sequence)
    return (state * state).mean()


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


def network_torch(torch: Any, values: Arrays) -> Any:
    """A model with these weights and biases."""
    layers: list[Any] = []
    for weight, bias in zip(values[::2], values[1::2], strict=True):
        layer = torch.nn.Linear(weight.shape[1], weight.shape[0])
        with torch.no_grad():
            layer.weight.copy_(torch.tensor(weight))
            layer.bias.copy_(torch.tensor(bias))
        layers += [layer, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def train_step_torch(torch: Any, values: Arrays) -> tuple[Step, list[Any]]:
    """A step of SGD on a batch, and the parameters that it moves."""
    model = network_torch(torch, values)
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=LEARNING_RATE)

    def step(inputs: Any, targets: Any) -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss

    return step, parameters


def train_step_jax(jax: Any, parameters: Any, x: Any, labels: Any) -> Any:
    def loss_of(parameters: Any) -> Any:
        *hidden, (weight, bias) = zip(parameters[::2], parameters[1::2], strict=True)
        activations = x
        for w, b in hidden:
            activations = jax.nn.relu(activations @ w.T + b)
        return cross_entropy_jax(jax, activations @ weight.T + bias, labels)

    loss, gradients = jax.value_and_grad(loss_of)(parameters)
    return loss, [p - LEARNING_RATE * g for p, g in zip(parameters, gradients, strict=True)]


def train_torch(
    torch: Any, capture: Capture, x: np.ndarray, labels: np.ndarray, *values: np.ndarray
) -> Call:
    train, parameters = train_step_torch(torch, values)
    inputs, targets, step = torch.tensor(x), torch.tensor(labels), capture(train)
    return lambda: (step(inputs, targets), *parameters)


def train_jax(
    jax: Any, capture: Capture, x: np.ndarray, labels: np.ndarray, *values: np.ndarray
) -> Call:
    update = capture(partial(train_step_jax, jax), donate_argnums=0)
    inputs, targets = jax.numpy.asarray(x), jax.numpy.asarray(labels)
    parameters = [jax.numpy.array(value) for value in values]

    def step() -> Any:
        nonlocal parameters
        loss, parameters = update(parameters, inputs, targets)
        return loss, *parameters

    return step


def train_autograd(
    autograd: Any, _: Capture, x: np.ndarray, labels: np.ndarray, *values: np.ndarray
) -> Call:
    anp = autograd.numpy

    def loss_of(*parameters: Any) -> Any:
        *hidden, (weight, bias) = zip(parameters[::2], parameters[1::2], strict=True)
        activations = x
        for w, b in hidden:
            activations = anp.maximum(anp.dot(activations, w.T) + b, 0)
        return cross_entropy_autograd(autograd, anp.dot(activations, weight.T) + bias, labels)

    gradient = autograd.value_and_grad(loss_of, tuple(range(len(values))))
    parameters = [value.copy() for value in values]

    def step() -> Any:
        loss, gradients = gradient(*parameters)
        for p, g in zip(parameters, gradients, strict=True):
            p -= LEARNING_RATE * g
        return loss, *parameters

    return step


TRAIN: dict[str, Preparation] = {
    "torch": train_torch,
    "jax": train_jax,
    "autograd": train_autograd,
}

BATCHES = np.random.default_rng(2).permutation(np.arange(8, 48))  # 40 sizes, none twice


def changing_torch(
    torch: Any, capture: Capture, x: np.ndarray, labels: np.ndarray, *values: np.ndarray
) -> Call:
    train, parameters = train_step_torch(torch, values)
    batches = [(torch.tensor(x[:size]), torch.tensor(labels[:size])) for size in BATCHES]
    step = capture(train)

    def epoch() -> Any:
        for inputs, targets in batches:
            loss = step(inputs, targets)
        return loss, *parameters

    return epoch


def changing_jax(
    jax: Any, capture: Capture, x: np.ndarray, labels: np.ndarray, *values: np.ndarray
) -> Call:
    update = capture(partial(train_step_jax, jax), donate_argnums=0)
    asarray = jax.numpy.asarray
    batches = [(asarray(x[:size]), asarray(labels[:size])) for size in BATCHES]
    parameters = [jax.numpy.array(value) for value in values]

    def epoch() -> Any:
        nonlocal parameters
        for inputs, targets in batches:
            loss, parameters = update(parameters, inputs, targets)
        return loss, *parameters

    return epoch


def adam_data(count: int, width: int) -> Arrays:
    """Parameters, then their gradients."""
    shape = (width, width)
    return tuple(uniform(shape, (-1, 1), seed=seed).copy() for seed in range(2 * count))


def adam_torch(torch: Any, capture: Capture, *arrays: np.ndarray) -> Call:
    count = len(arrays) // 2
    parameters = [torch.tensor(value, requires_grad=True) for value in arrays[:count]]
    for parameter, value in zip(parameters, arrays[count:], strict=True):
        parameter.grad = torch.tensor(value)
    optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE)

    @capture
    def step() -> None:
        optimizer.step()

    def call() -> Any:
        step()
        return parameters

    return call


def adam_jax(jax: Any, capture: Capture, *arrays: np.ndarray) -> Call:
    beta1, beta2, eps = 0.9, 0.999, 1e-8

    def update(state: Any, gradients: Any) -> Any:
        time, parameters, means, squares = state
        time = time + 1
        means = [beta1 * m + (1 - beta1) * g for m, g in zip(means, gradients, strict=True)]
        squares = [beta2 * v + (1 - beta2) * g * g for v, g in zip(squares, gradients, strict=True)]
        rate, root = LEARNING_RATE / (1 - beta1**time), (1 - beta2**time) ** 0.5
        parameters = [
            p - rate * m / (jax.numpy.sqrt(v) / root + eps)
            for p, m, v in zip(parameters, means, squares, strict=True)
        ]
        return time, parameters, means, squares

    compiled = capture(update, donate_argnums=0)
    values = [jax.numpy.array(value) for value in arrays]
    parameters, gradients = values[: len(values) // 2], values[len(values) // 2 :]
    means, squares = ([jax.numpy.zeros_like(p) for p in parameters] for _ in range(2))
    state = (jax.numpy.float32(0), parameters, means, squares)

    def step() -> Any:
        nonlocal state
        state = compiled(state, gradients)
        return state[1]

    return step


def logistic_data(rows: int, width: int) -> Arrays:
    """Weights, bias, inputs and labels."""
    random = np.random.default_rng(0)
    x = random.standard_normal((rows, width)).astype(np.float32)
    labels = (x @ normal(random, width) > 0).astype(np.float32)
    return np.zeros(width, np.float32), np.zeros((), np.float32), x, labels


def logistic_torch(torch: Any, capture: Capture, *arrays: np.ndarray) -> Call:
    weight, bias = (torch.tensor(value, requires_grad=True) for value in arrays[:2])
    x, labels = map(torch.tensor, arrays[2:])
    loss_of = torch.nn.functional.binary_cross_entropy_with_logits

    @capture
    def descend() -> Any:
        loss = loss_of(x @ weight + bias, labels)
        to_weight, to_bias = torch.autograd.grad(loss, (weight, bias))
        with torch.no_grad():
            weight.sub_(LEARNING_RATE * to_weight)
            bias.sub_(LEARNING_RATE * to_bias)
        return loss

    return lambda: (descend(), weight, bias)


def logistic_jax(jax: Any, capture: Capture, *arrays: np.ndarray) -> Call:
    def loss_of(parameters: Any, x: Any, labels: Any) -> Any:
        weight, bias = parameters
        logits = x @ weight + bias
        return (jax.nn.softplus(logits) - labels * logits).mean()

    def update(parameters: Any, x: Any, labels: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(parameters, x, labels)
        return loss, [p - LEARNING_RATE * g for p, g in zip(parameters, gradients, strict=True)]

    compiled = capture(update, donate_argnums=0)
    weight, bias, x, labels = map(jax.numpy.array, arrays)
    parameters = [weight, bias]

    def step() -> Any:
        nonlocal parameters
        loss, parameters = compiled(parameters, x, labels)
        return loss, *parameters

    return step


# ----- the rows -----

PROGRAMS: tuple[Program, ...] = (
    program(
        f"chain of {CHAIN} ops on {{}} elements",
        chain_data,
        gradient(chain, chain_jax, 2),
        sizes=(16,),
        tiny=(4,),
        rtol=1e-4,
        atol=1e-5,
    ),
    program(
        f"graph of {NODES} ops on {{}} elements, never the same (JAX without jit)",
        dag_data,
        {"torch": dag_torch, "jax": dag_jax},
        sizes=(16,),
        tiny=(4,),
        rtol=1e-3,
        atol=1e-3,
        operations=GRAPHS,
        only_eager=True,
    ),
    program(
        f"Lotka-Volterra, {STEPS} steps, 4 parameters (JAX: scan)",
        lotka_volterra_data,
        gradient(lotka_volterra, lotka_volterra_jax, 4),
        rtol=1e-3,
        atol=1e-3,
    ),
    program(
        "GELU by tanh, sum, 4M float32",
        gelu_data,
        gradient(gelu, gelu_jax, 1),
        sizes=(1 << 22,),
        tiny=(64,),
        rtol=1e-4,
        atol=1e-5,
    ),
    program(
        "Black-Scholes, price and five greeks, 1M float64",
        option_data,
        {"torch": greeks_torch, "jax": greeks_jax},
        sizes=(1_000_000,),
        tiny=(64,),
        rtol=1e-8,
        atol=1e-10,
        notes={"torch.compile": "no double backward"},
    ),
    program(
        "softmax cross-entropy, {}x{} float32",
        cross_entropy_data,
        gradient(cross_entropy, cross_entropy_jax, 1, cross_entropy_autograd),
        sizes=(512, 10_000),
        tiny=(4, 10),
        rtol=1e-4,
        atol=1e-8,
    ),
    program(
        "layer norm, {}x{} float32",
        layer_norm_data,
        vjp(layer_norm, layer_norm_jax, layer_norm_autograd),
        sizes=(4096, 768),
        tiny=(4, 8),
        rtol=1e-3,
        atol=1e-3,
    ),
    program(
        "SGD step, MLP 64-32-10, batch 32",
        network_data,
        TRAIN,
        sizes=(SMALL, SMALL_BATCH),
        tiny=((5, 4, 3), 8),
        rtol=1e-4,
        atol=1e-5,
    ),
    program(
        "SGD step, MLP 784-1024-1024-10, batch 256",
        network_data,
        TRAIN,
        sizes=(LARGE, LARGE_BATCH),
        tiny=((5, 6, 4, 3), 8),
        rtol=1e-4,
        atol=1e-5,
    ),
    program(
        "matmul with both gradients, {0}x{0} float32",
        matmul_data,
        {**vjp(matmul, matmul, matmul_autograd), "numpy": matmul_numpy},
        sizes=(1024,),
        tiny=(8,),
        rtol=1e-3,
        atol=1e-3,
    ),
    program(
        "tanh RNN, {1} steps, batch {2}, hidden {3} (JAX: scan)",
        recurrent_data,
        gradient(rnn, rnn_jax, 3),
        sizes=(1, 50, 32, 64),
        tiny=(1, 3, 2, 4),
        rtol=1e-3,
        atol=1e-5,
    ),
    program(
        f"attention with {HEADS} heads, {{}}x{{}}x{{}} float32",
        attention_data,
        vjp(attention, attention_jax),
        sizes=(8, 128, 256),
        tiny=(2, 3, 16),
        rtol=1e-3,
        atol=1e-3,
    ),
    program(
        "Adam step, {0} parameters of {1}x{1}",
        adam_data,
        {"torch": adam_torch, "jax": adam_jax},
        sizes=(100, 64),
        tiny=(3, 4),
        rtol=1e-4,
        atol=1e-5,
    ),
    program(
        "logistic regression, {}x{} float32",
        logistic_data,
        {"torch": logistic_torch, "jax": logistic_jax},
        sizes=(10_000, 100),
        tiny=(20, 3),
        rtol=1e-4,
        atol=1e-6,
    ),
    program(
        "GRU by hand, {1} steps, batch {2}, hidden {3} (JAX: scan)",
        recurrent_data,
        gradient(gru, gru_jax, 3),
        sizes=(3, 30, 32, 64),
        tiny=(3, 3, 2, 4),
        rtol=1e-3,
        atol=1e-5,
    ),
    program(
        f"SGD step, MLP 64-32-10, batch of another size each time ({len(BATCHES)} sizes)",
        network_data,
        {"torch": changing_torch, "jax": changing_jax},
        sizes=(SMALL, int(BATCHES.max())),
        tiny=((5, 4, 3), int(BATCHES.max())),
        operations=len(BATCHES),
        rtol=1e-3,
        atol=1e-4,
    ),
)
