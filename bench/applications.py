"""Steps of what people train and fit: networks, reinforcement learning, embeddings, equations.

Each program is PyTorch's, word for word in both libraries, without capture and with it; JAX would need others.
The weights of networks are drawn by NumPy, and so is all noise, or results could not be compared. Programs of
fields and lattices: views.py; memory that others see, and a DataLoader: likewise there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import networks
import numpy as np
from programs import Capture, Program, Step
from rows import Arrays, Call
from rows import Program as Preparation


def row(
    name: str,
    data: Callable[..., Arrays],
    program: Preparation,
    *,
    sizes: tuple[Any, ...] = (),
    tiny: tuple[Any, ...] = (),
    rtol: float = 1e-3,
    atol: float = 1e-3,
) -> Program:
    """The row of `data(*sizes)`; parameters after a few steps agree within the tolerances."""
    return Program(
        "applications", name.format(*sizes), partial(data, *sizes), {"torch": program},
        tiny=partial(data, *tiny), rtol=rtol, atol=atol,
    )  # fmt: skip


def tensors(torch: Any, arrays: Arrays) -> Iterator[Any]:
    return map(torch.tensor, arrays)


def training(build: Step, loss_of: Step, optimizer: str = "Adam", lr: float = 1e-3) -> Preparation:
    """A step of training: `build(torch, *arrays)` makes the network, `loss_of(torch, network, *tensors)`
    the loss."""

    def program(torch: Any, capture: Capture, *arrays: np.ndarray) -> Call:
        network = networks.with_drawn_weights(torch, build(torch, *arrays))
        parameters = [*network.parameters()]
        moves = getattr(torch.optim, optimizer)(parameters, lr=lr)
        given = [*tensors(torch, arrays)]

        @capture
        def step(*batch: Any) -> Any:
            moves.zero_grad()
            loss = loss_of(torch, network, *batch)
            loss.backward()
            moves.step()
            return loss

        return lambda: (step(*given), *parameters)

    return program


def drawn(*shapes: tuple[int, ...], dtype: str = "float32") -> Arrays:
    """Normal numbers of these shapes."""
    random = np.random.default_rng(0)
    return tuple(random.standard_normal(shape).astype(dtype) for shape in shapes)


def numbers(high: int, *shape: int, seed: int = 1) -> np.ndarray:
    """Whole numbers below a bound."""
    return np.random.default_rng(seed).integers(high, size=shape)


# ----- networks that see a batch and its labels -----


def text(batch: int, length: int, width: int) -> Arrays:
    """What comes into a block, and what is to come out."""
    return drawn((batch, length, width), (batch, length, width))


def images(batch: int, channels: int, size: int, outward: int) -> Arrays:
    """Images, and images that they are to become."""
    return drawn((batch, channels, size, size), (batch, outward, size, size))


def sequences(batch: int, length: int, width: int) -> Arrays:
    x, _, target = drawn((batch, length, width), (), (batch, width))
    return x, target


def apart(torch: Any, network: Any, x: Any, target: Any) -> Any:
    """The mean square of what is wrong."""
    return torch.nn.functional.mse_loss(network(x), target)


def last_apart(torch: Any, network: Any, x: Any, target: Any) -> Any:
    states, _ = network(x)
    return torch.nn.functional.mse_loss(states[:, -1], target)


# ----- networks that make something -----


def digits(batch: int, width: int, latent: int) -> Arrays:
    """Images between 0 and 1 in rows, and noise."""
    x, noise = drawn((batch, width), (batch, latent))
    return 1 / (1 + np.exp(-x)), noise


def evidence(torch: Any, network: Any, x: Any, noise: Any) -> Any:
    """What a variational autoencoder minimises."""
    seen, mean, log_variance = network(x, noise)
    apart = torch.nn.functional.binary_cross_entropy_with_logits(seen, x, reduction="sum")
    divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
    return (apart + divergence) / x.shape[0]


def forgeries(batch: int, size: int, latent: int) -> Arrays:
    return drawn((batch, 3, size, size), (batch, latent, 1, 1))


def dcgan(torch: Any, capture: Capture, *arrays: np.ndarray) -> Call:
    """A step of the one that tells images apart, then one of the one that makes them."""
    size = arrays[0].shape[-1]
    maker = networks.with_drawn_weights(torch, networks.maker(torch, arrays[1].shape[1], size))
    judge = networks.with_drawn_weights(torch, networks.judge(torch, size))
    maker_moves, judge_moves = (
        torch.optim.Adam(network.parameters(), lr=2e-4, betas=(0.5, 0.999))
        for network in (maker, judge)
    )
    loss_of = torch.nn.functional.binary_cross_entropy_with_logits

    @capture
    def step(real: Any, noise: Any) -> Any:
        made = maker(noise)
        judge_moves.zero_grad()
        told, fooled = judge(real), judge(made.detach())
        loss = loss_of(told, torch.ones_like(told)) + loss_of(fooled, torch.zeros_like(fooled))
        loss.backward()
        judge_moves.step()
        maker_moves.zero_grad()
        verdict = judge(made)
        cheat = loss_of(verdict, torch.ones_like(verdict))
        cheat.backward()
        maker_moves.step()
        return loss, cheat

    given = [*tensors(torch, arrays)]
    return lambda: step(*given)


def noised(batch: int, channels: int, size: int) -> Arrays:
    """Images, times of the diffusion, noise."""
    x, noise = drawn((batch, channels, size, size), (batch, channels, size, size))
    return x, numbers(1000, batch), noise


def diffusion(torch: Any, network: Any, x: Any, times: Any, noise: Any) -> Any:
    """How well a network tells the noise that images were mixed with."""
    signal = torch.cos(times / 1000 * 1.57)[:, None, None, None]
    mixed = signal * x + (1 - signal * signal).clamp(min=0).sqrt() * noise
    return torch.nn.functional.mse_loss(network(mixed, times), noise)


# ----- actions -----


def episodes(steps: int, seen: int, actions: int) -> Arrays:
    """What was seen, the actions taken, how probable they were, their advantages, what they returned."""
    x, chances, advantage, returned = drawn((steps, seen), (steps,), (steps,), (steps,))
    return x, numbers(actions, steps), -abs(chances) - 0.5, advantage, returned


def ppo(torch: Any, capture: Capture, *arrays: np.ndarray) -> Call:
    """A minibatch of proximal policy optimisation."""
    network = networks.with_drawn_weights(torch, networks.actor(torch, arrays[0].shape[1], 4))
    parameters = [*network.parameters()]
    moves = torch.optim.Adam(parameters, lr=3e-4)

    @capture
    def step(x: Any, taken: Any, before: Any, advantage: Any, returned: Any) -> Any:
        logits, value = network(x)
        policy = torch.distributions.Categorical(logits=logits)
        ratio = (policy.log_prob(taken) - before).exp()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        surrogate = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        misjudged = torch.nn.functional.mse_loss(value.squeeze(-1), returned)
        loss = -surrogate + 0.5 * misjudged - 0.01 * policy.entropy().mean()
        moves.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 0.5)
        moves.step()
        return loss

    given = [*tensors(torch, arrays)]
    return lambda: (step(*given), *parameters)


# ----- tables -----


def words(known: int, width: int, batch: int, others: int) -> Arrays:
    """Two tables, words, the words beside them, words drawn at random."""
    tables = drawn((known, width), (known, width))
    return *tables, numbers(known, batch), numbers(known, batch, 1 + others, seed=2)


def word2vec(torch: Any, capture: Capture, *arrays: np.ndarray) -> Call:
    """Skip-gram with negative samples, by SGD."""
    inward, outward = (torch.nn.Embedding(*table.shape) for table in arrays[:2])
    with torch.no_grad():
        inward.weight.copy_(torch.tensor(arrays[0]))
        outward.weight.copy_(torch.tensor(arrays[1]))
    parameters = [inward.weight, outward.weight]
    moves = torch.optim.SGD(parameters, lr=0.05)

    @capture
    def step(centre: Any, near: Any) -> Any:
        moves.zero_grad()
        scores = (inward(centre)[:, None, :] * outward(near)).sum(-1)
        loss = torch.nn.functional.softplus(-scores[:, 0]).mean()
        loss = loss + torch.nn.functional.softplus(scores[:, 1:]).mean()
        loss.backward()
        moves.step()
        return loss

    given = [*tensors(torch, arrays[2:])]
    return lambda: (step(*given), *parameters)


def ratings(users: int, things: int, width: int, batch: int) -> Arrays:
    """How many there are, in arrays of nothing; who, what, and how it was liked."""
    liked = np.random.default_rng(3).random(batch, np.float32).round()
    sizes = (np.empty((n, 0), np.float32) for n in (users, things, width))
    return *sizes, numbers(users, batch), numbers(things, batch, seed=2), liked


def recommender(torch: Any, *arrays: np.ndarray) -> Any:
    users, things, width = (len(array) for array in arrays[:3])
    return networks.recommender(torch, users, things, width)


def liking(torch: Any, network: Any, *given: Any) -> Any:
    who, what, liked = given[3:]
    return torch.nn.functional.binary_cross_entropy_with_logits(network(who, what), liked)


def graph(nodes: int, edges: int, width: int, classes: int) -> Arrays:
    """What is known of nodes, edges from and to, classes of nodes."""
    (x,) = drawn((nodes, width))
    return x, numbers(nodes, edges), numbers(nodes, edges, seed=2), numbers(classes, nodes, seed=3)


def message_passing(torch: Any, *arrays: np.ndarray) -> Any:
    return networks.message_passing(torch, arrays[0].shape[1], 32, 7)


def classified(torch: Any, network: Any, x: Any, sources: Any, targets: Any, classes: Any) -> Any:
    return torch.nn.functional.cross_entropy(network(x, sources, targets), classes)


# ----- science -----


def samples(n: int) -> Arrays:
    """The logarithms of width, height and noise of a Gaussian process; places and values."""
    x = np.sort(np.random.default_rng(0).uniform(0, 10, n))
    return np.log([1.0, 1.0, 0.1]), x, np.sin(x) + 0.1 * drawn((n,))[0]


def gaussian_process(torch: Any, capture: Capture, *arrays: np.ndarray) -> Call:
    """The evidence of a Gaussian process, by Cholesky's decomposition, and a step of Adam."""
    start, x, y = tensors(torch, arrays)
    logs = start.clone().requires_grad_()
    moves = torch.optim.Adam([logs], lr=0.01)
    apart = (x[:, None] - x[None, :]).square()
    diagonal = torch.eye(len(x), dtype=x.dtype)

    @capture
    def step() -> Any:
        moves.zero_grad()
        width, height, noise = logs.exp()
        kernel = height * torch.exp(-0.5 * apart / width**2) + (noise**2 + 1e-6) * diagonal
        factor = torch.linalg.cholesky(kernel)
        white = torch.linalg.solve_triangular(factor, y[:, None], upper=False)
        loss = 0.5 * white.square().sum() + factor.diagonal().log().sum()
        loss.backward()
        moves.step()
        return loss

    return lambda: (step(), logs)


def collocation(n: int, width: int) -> Arrays:
    """Places, times, and an array as long as the network is wide."""
    random = np.random.default_rng(0)
    place, time = (
        random.uniform(*bounds, (n, 1)).astype(np.float32) for bounds in ((-1, 1), (0, 1))
    )
    return place, time, np.zeros(width, np.float32)


def physics(torch: Any, *arrays: np.ndarray) -> Any:
    return networks.perceptron(torch, (2, *[len(arrays[2])] * 3, 1), torch.nn.Tanh)


def burgers(torch: Any, network: Any, place: Any, time: Any, _: Any) -> Any:
    """How far a network is from solving Burgers' equation, with its start."""
    x, t = place.detach().requires_grad_(), time.detach().requires_grad_()
    u = network(torch.cat([x, t], 1))
    u_x, u_t = torch.autograd.grad(u.sum(), (x, t), create_graph=True)
    (u_xx,) = torch.autograd.grad(u_x.sum(), x, create_graph=True)
    residual = u_t + u * u_x - 0.01 / 3.14159 * u_xx
    start = network(torch.cat([x, torch.zeros_like(t)], 1)) + torch.sin(3.14159 * x)
    return residual.square().mean() + start.square().mean()


def tasks(count: int, shots: int, width: int) -> Arrays:
    """Of each task what is learnt from and what is asked, two sines of an amplitude of its own."""
    random = np.random.default_rng(0)
    x = random.uniform(-5, 5, (2, count, shots, 1)).astype(np.float32)
    y = random.uniform(0.1, 5, (1, count, 1, 1)) * np.sin(x)
    return x, y.astype(np.float32), np.zeros(width, np.float32)


def learner(torch: Any, *arrays: np.ndarray) -> Any:
    return networks.perceptron(torch, (1, *[len(arrays[2])] * 2, 1), torch.nn.ReLU)


def adapted(torch: Any, network: Any, x: Any, y: Any, _: Any) -> Any:
    """MAML: what is wrong after a step of learning on each task, with the way back through that step."""
    call, mse = torch.func.functional_call, torch.nn.functional.mse_loss
    weights = dict(network.named_parameters())
    total = 0.0
    for task in range(x.shape[1]):
        loss = mse(call(network, weights, (x[0, task],)), y[0, task])
        steps = torch.autograd.grad(loss, tuple(weights.values()), create_graph=True)
        fast = {name: w - 0.01 * g for (name, w), g in zip(weights.items(), steps, strict=True)}
        total = total + mse(call(network, fast, (x[1, task],)), y[1, task])
    return total / x.shape[1]


def points(n: int, clusters: int) -> Arrays:
    return drawn((n, 2), (clusters, 2))


def soft_k_means(torch: Any, capture: Capture, *arrays: np.ndarray) -> Call:
    """Ten rounds of soft assignments; how well they fit, with gradients by points and first centres."""
    given = [torch.tensor(array, requires_grad=True) for array in arrays]

    @capture
    def step() -> Any:
        x, centres = given
        for _ in range(10):
            apart = (x[:, None, :] - centres[None, :, :]).square().sum(-1)
            shares = torch.softmax(-5 * apart, 1)
            centres = shares.t() @ x / shares.sum(0)[:, None]
        loss = (shares * apart).sum() / len(x)
        return loss, *torch.autograd.grad(loss, given)

    return step


# ----- networks made of programs -----

Tree = Any  # a number, or two trees


def tree(random: np.random.Generator, leaves: int, known: int) -> Tree:
    """A tree of that many words."""
    if leaves == 1:
        return int(random.integers(known))
    left = int(random.integers(1, leaves))
    return tree(random, left, known), tree(random, leaves - left, known)


def trees(count: int, leaves: int, width: int) -> Arrays:
    (table,) = drawn((100, width))
    return table, np.arange(count), np.full(leaves, 0.1, np.float32)


def tree_network(torch: Any, capture: Capture, *arrays: np.ndarray) -> Call:
    """A recursive network over trees, each of another form."""
    table, which, leaves = arrays
    random = np.random.default_rng(0)
    grown = [tree(random, len(leaves), len(table)) for _ in which]
    network = networks.with_drawn_weights(torch, networks.joiner(torch, table.shape[1]))
    parameters = [*network.parameters()]
    moves = torch.optim.SGD(parameters, lr=0.01)
    vectors = torch.tensor(table)

    def value(node: Tree) -> Any:
        if isinstance(node, int):
            return vectors[node]
        return network(value(node[0]), value(node[1]))

    @capture
    def step() -> Any:
        moves.zero_grad()
        loss = sum(value(one).square().mean() for one in grown)
        loss.backward()
        moves.step()
        return loss

    return lambda: (step(), *parameters)


def conditions(batch: int, width: int) -> Arrays:
    """A vector that tells which network is wanted; what it gets and is to give."""
    return drawn((8,), (batch, width), (batch, width))


def hyper(torch: Any, capture: Capture, *arrays: np.ndarray) -> Call:
    """A network whose output are the weights of another one, called by `functional_call`."""
    width = arrays[1].shape[1]
    small = networks.perceptron(torch, (width, width, width), torch.nn.Tanh)
    names = [(name, p.shape, p.numel()) for name, p in small.named_parameters()]
    count = sum(n for _, _, n in names)
    network = networks.with_drawn_weights(
        torch, networks.perceptron(torch, (8, 32, count), torch.nn.ReLU)
    )
    parameters = [*network.parameters()]
    moves = torch.optim.Adam(parameters, lr=1e-3)

    @capture
    def step(wanted: Any, x: Any, target: Any) -> Any:
        moves.zero_grad()
        parts = network(wanted).split([n for _, _, n in names])
        weights = {
            name: part.view(shape) for (name, shape, _), part in zip(names, parts, strict=True)
        }
        found = torch.func.functional_call(small, weights, (x,))
        loss = torch.nn.functional.mse_loss(found, target)
        loss.backward()
        moves.step()
        return loss

    given = [*tensors(torch, arrays)]
    return lambda: (step(*given), *parameters)


# ----- the rows -----

# Adam makes whole steps of gradients that are nothing but rounding, as those of the biases of keys.
APPLICATIONS: tuple[Program, ...] = (
    row(
        "GPT block, AdamW, {}x{}x{}", text,
        training(networks.gpt_block, apart, "AdamW"), sizes=(4, 128, 256), tiny=(2, 4, 16), atol=1e-2,
    ),
    row(
        "GPT block with long context, AdamW, {}x{}x{}", text,
        training(networks.gpt_block, apart, "AdamW"), sizes=(1, 1024, 256), tiny=(1, 8, 16), atol=1e-2,
    ),
    row(
        "U-Net, Adam, {}x{}x{}x{}", images,
        training(networks.unet, apart), sizes=(4, 3, 64, 1), tiny=(2, 3, 8, 1), atol=5e-3,
    ),
    row(
        "MobileNetV3 block, SGD, {}x{}x{}x{}", images,
        training(networks.mobile_net_block, apart, "SGD"), sizes=(8, 40, 28, 40), tiny=(2, 4, 6, 4),
    ),
    row(
        "EfficientNet block, SGD, {}x{}x{}x{}", images,
        training(networks.efficient_net_block, apart, "SGD"), sizes=(8, 40, 28, 40), tiny=(2, 4, 6, 4),
    ),
    row(
        "LSTM layer, Adam, {} of {} steps, width {}", sequences,
        training(networks.lstm, last_apart), sizes=(16, 50, 128), tiny=(2, 3, 4),
    ),
    row(
        "VAE, Adam, batch {}, {}-400-{}", digits,
        training(networks.vae, evidence), sizes=(64, 784, 20), tiny=(4, 12, 2),
    ),
    row("DCGAN, Adam, {0}x3x{1}x{1}", forgeries, dcgan, sizes=(16, 32, 64), tiny=(2, 16, 4), atol=1e-2),
    row(
        "diffusion step, Adam, {}x{}x{}", noised,
        training(networks.denoiser, diffusion), sizes=(8, 3, 32), tiny=(2, 3, 8),
    ),
    row("PPO step, Adam, {} steps", episodes, ppo, sizes=(256, 8, 4), tiny=(8, 8, 4)),
    row(
        "word2vec step, SGD, two tables of {}x{}, {} words with {} negatives", words,
        word2vec, sizes=(20_000, 64, 256, 5), tiny=(20, 4, 8, 2),
    ),
    row(
        "recommender, Adam, tables of {}x32 and {}x32", ratings,
        training(recommender, liking), sizes=(20_000, 5_000, 32, 512), tiny=(20, 10, 4, 8),
    ),
    row(
        "message passing by scatter_add, Adam, {} nodes, {} edges", graph,
        training(message_passing, classified), sizes=(2_000, 10_000, 32, 7), tiny=(10, 20, 4, 7),
    ),
    row(
        "Gaussian process, Adam, {} points, float64", samples, gaussian_process,
        sizes=(128,), tiny=(8,), rtol=1e-6, atol=1e-7,
    ),
    row(
        "PINN of Burgers' equation, Adam, {} points, width {}", collocation,
        training(physics, burgers), sizes=(512, 32), tiny=(8, 4),
    ),
    row(
        "MAML, Adam, {} tasks of {} shots, width {}", tasks,
        training(learner, adapted), sizes=(4, 10, 40), tiny=(2, 3, 4),
    ),
    row(
        "soft k-means with gradient, {} points, {} clusters", points, soft_k_means,
        sizes=(2_000, 16), tiny=(20, 3),
    ),
    row(
        "tree network, SGD, {} trees of {} words, width {}", trees, tree_network,
        sizes=(8, 16, 64), tiny=(2, 4, 4),
    ),
    row(
        "hyper-network by functional_call, Adam, batch {}, width {}", conditions, hyper,
        sizes=(64, 32), tiny=(4, 3),
    ),
)  # fmt: skip
