"""Programs of science, and blocks of networks that `networks.py` has not: their first steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

from .elementwise import FLOATS, torch
from .networks import F, nn, perceptron, trained
from .operations import drawn


def settled(loss: Any, *leaves: Any) -> None:
    """The value of a loss, and its gradients."""
    loss.item()
    for found in torch.autograd.grad(loss, leaves, retain_graph=True):
        found.tolist()


def distances(kind: Any) -> None:
    """What depends on differences between all pairs of points: forces, clusters, kernels of a process."""
    for dim in (1, 2, 3, 4):
        first, second = drawn(16, dim, kind=kind), drawn(5, dim, kind=kind)
        here, there = first.unsqueeze(1), second.unsqueeze(0)
        for apart in (here - there, there - here):
            for squared in (apart * apart, apart**2):
                squares = squared.sum(-1)
                chances = torch.softmax(-squares, 1)
                settled((chances * squares).sum(1).mean(), first, second)
                settled(torch.exp(-0.5 * squares / 0.3).sum(), first, second)
        masses = drawn(16, kind=kind)
        forces: list[Callable[[Any, Any], Any]] = [
            lambda apart, squares: apart / squares**1.5,
            lambda apart, squares: apart * squares**-1.5,
            lambda apart, squares, m=masses: m[None, :, None] * apart / squares.sqrt(),  # type: ignore[misc]
        ]
        for force in forces:
            places, speeds = first, torch.zeros_like(first)
            for _ in range(2):
                apart = places[None] - places[:, None]
                squares = (apart * apart).sum(-1, keepdim=True) + 0.01
                speeds = speeds + 0.001 * force(apart, squares).sum(1)
                places = places + 0.001 * speeds
            settled((places**2).sum(), first)


def grids(kind: Any) -> None:
    """Equations on grids, by slices that are read and written, and by rolling."""

    def inner(u: Any) -> Any:
        return u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]

    for needs_grad in (False, True):
        start = torch.rand(12, 12, dtype=kind).requires_grad_(needs_grad)
        line = torch.rand(20, dtype=kind).requires_grad_(needs_grad)
        ends: list[Any] = []
        u = start.clone()
        for _ in range(2):
            u[1:-1, 1:-1] = u[1:-1, 1:-1] + 0.1 * inner(u)
        ends.append(u)
        u = start.clone()
        for _ in range(2):
            u[1:-1, 1:-1] += 0.1 * inner(u)
            u[0], u[-1] = u[1], u[-2]
            u[:, 0], u[:, -1] = u[:, 1], u[:, -2]
        ends.append(u)
        before, now = start.clone(), start.clone()
        for _ in range(2):
            after = torch.zeros_like(now)
            after[1:-1, 1:-1] = 2 * now[1:-1, 1:-1] - before[1:-1, 1:-1] + 0.1 * inner(now)
            before, now = now, after
        ends.append(now)
        around = sum(start.roll(k, d) for k in (1, -1) for d in (0, 1))
        ends.append(start + 0.1 * (around - 4 * start))
        u = line
        for _ in range(2):
            u = torch.cat([u[:1], u[1:-1] + 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2]), u[-1:]])
        ends.append(u - 0.1 * u * (u - u.roll(1)))
        u = line.clone()
        u[1:-1] += 0.1 * (line[2:] - 2 * line[1:-1] + line[:-2])
        ends.append(u)
        for u in ends:
            u.tolist()
            if needs_grad:
                settled((u * u).sum(), line if u.ndim == 1 else start)


def equations(kind: Any) -> None:
    """Ordinary differential equations, step by step."""
    rates = torch.tensor([1.1, 0.4, 0.1, 0.4], dtype=kind, requires_grad=True)

    def change(state: Any) -> Any:
        x, y = state[0], state[1]
        a, b, c, d = rates
        return torch.stack([x * (a - b * y), y * (c * x - d)])

    state = torch.tensor([10.0, 10.0], dtype=kind)
    for _ in range(2):
        k1 = change(state)
        k2 = change(state + 0.005 * k1)
        k3 = change(state + 0.005 * k2)
        k4 = change(state + 0.01 * k3)
        state = state + 0.01 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    settled(((state - 1) ** 2).sum(), rates)
    x, y, z = torch.tensor([1.0, 2.0, 3.0], dtype=kind, requires_grad=True).unbind()
    settled(torch.stack((10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z)).pow(2).sum(), x, y, z)


def inner_steps() -> None:
    """Learning to learn: a gradient that goes through a step of training, for usual activations."""
    x, y = torch.linspace(-3, 3, 20).unsqueeze(1), torch.randn(20, 1)
    for act in (torch.relu, torch.tanh, torch.sigmoid, F.gelu, F.silu, torch.sin):
        weights = [drawn(1, 16), drawn(16), drawn(16, 1), drawn(1)]

        def loss_of(weights: Any, act: Any = act) -> Any:
            a, b, c, d = weights
            return ((act(x @ a + b) @ c + d - y) ** 2).mean()

        grads = torch.autograd.grad(loss_of(weights), weights, create_graph=True)
        stepped = [w - 0.01 * g for w, g in zip(weights, grads, strict=True)]
        settled(loss_of(stepped), *weights)


def tables() -> None:
    """Embeddings that are compared: words with their neighbours, users with things."""
    inner, outer = torch.randint(50, (16,)), torch.randint(50, (16, 6))
    for scored in (
        lambda a, b: (a.unsqueeze(1) * b).sum(-1),
        lambda a, b: torch.bmm(b, a.unsqueeze(2)).squeeze(2),
    ):
        model = nn.ModuleList([nn.Embedding(50, 16), nn.Embedding(50, 16), nn.Embedding(50, 1)])

        def loss_of(model: Any, scored: Any = scored) -> Any:
            scores = scored(model[0](inner), model[1](outer)) + model[2](outer).squeeze(-1)
            return -F.logsigmoid(scores[:, 0]).mean() - F.logsigmoid(-scores[:, 1:]).mean()

        trained(model, loss_of)
    model = nn.ModuleList([nn.Embedding(50, 16), nn.Embedding(50, 16)])
    trained(model, lambda m: F.mse_loss((m[0](inner) * m[1](inner)).sum(1), torch.rand(16)))


def policies() -> None:
    """A step of policies that are kept near the old ones."""
    model, x = perceptron(nn.Tanh, 4, 16, 2), torch.randn(32, 4)
    gains, taken, old = torch.randn(32), torch.randint(2, (32,)), -torch.rand(32)

    def loss_of(model: Any) -> Any:
        now = torch.distributions.Categorical(logits=model(x))
        ratio = (now.log_prob(taken) - old).exp()
        least = torch.min(ratio * gains, ratio.clamp(0.8, 1.2) * gains)
        return -least.mean() - 0.01 * now.entropy().mean()

    trained(model, loss_of)


def denoising() -> None:
    """A U-Net, with either norm, that takes noise away whose level it knows."""
    clean, noise, level = (
        torch.randn(2, 1, 16, 16),
        torch.randn(2, 1, 16, 16),
        torch.rand(2, 1, 1, 1),
    )
    for norm, act in ((partial(nn.GroupNorm, 4), nn.SiLU), (nn.BatchNorm2d, nn.ReLU)):

        def block(inner: int, outer: int, norm: Any = norm, act: Any = act) -> Any:
            return nn.Sequential(nn.Conv2d(inner, outer, 3, padding=1), norm(outer), act())

        up = nn.ConvTranspose2d(16, 16, 2, stride=2)
        model = nn.ModuleList(
            [block(1, 8), block(8, 16), block(24, 8), nn.Conv2d(8, 1, 1), nn.Linear(1, 16), up]
        )

        def loss_of(model: Any) -> Any:
            first = model[0]((1 - level).sqrt() * clean + level.sqrt() * noise)
            second = model[1](F.max_pool2d(first, 2)) + model[4](level.view(2, 1))[:, :, None, None]
            wider = F.interpolate(second, scale_factor=2, mode="nearest"), model[5](second)
            ends = (model[3](model[2](torch.cat([first, wide], 1))) for wide in wider)
            return sum(F.mse_loss(end, noise) for end in ends)

        trained(model, loss_of)


def bottlenecks() -> None:
    """Convolutions of single channels and of groups, with squeeze and excitation."""
    x = torch.randn(2, 8, 12, 12)
    for act, kernel, stride in product((nn.Hardswish, nn.SiLU, nn.ReLU6), (3, 5), (1, 2)):
        wide = nn.Sequential(
            nn.Conv2d(8, 32, 1, bias=False), nn.BatchNorm2d(32), act(),
            nn.Conv2d(32, 32, kernel, stride, kernel // 2, groups=32, bias=False), nn.BatchNorm2d(32), act(),
        )  # fmt: skip
        gate = nn.Sigmoid if act is nn.SiLU else nn.Hardsigmoid
        squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(32, 8, 1), nn.ReLU(), nn.Conv2d(8, 32, 1), gate()
        )
        narrow = nn.Sequential(nn.Conv2d(32, 8, 1, bias=False), nn.BatchNorm2d(8))
        model = nn.ModuleList([wide, squeeze, narrow])

        def loss_of(model: Any, stride: int = stride) -> Any:
            h = model[0](x)
            out = model[2](h * model[1](h))
            return ((x + out) if stride == 1 else out).pow(2).mean()

        trained(model, loss_of)
    grouped = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1, groups=4), nn.BatchNorm2d(16), nn.ReLU())
    trained(grouped, lambda model: model(x).mean())


def readers() -> None:
    """Recurrent layers whose last output is looked at, also several of them."""
    x, y = torch.randn(4, 6, 8), torch.randn(4, 1)
    for kind, layers in product((nn.LSTM, nn.GRU, nn.RNN), (1, 2)):
        model = nn.ModuleList([kind(8, 16, layers, batch_first=True), nn.Linear(16, 1)])
        trained(model, lambda model: F.mse_loss(model[1](model[0](x)[0][:, -1]), y))


def tracking(kind: Any) -> None:
    """Filters and curves: small products, and reading at places between knots."""
    a, h = (
        torch.tensor([[1.0, 0.1], [0.0, 1.0]], dtype=kind),
        torch.tensor([[1.0, 0.0]], dtype=kind),
    )
    noise = torch.tensor(0.1, dtype=kind, requires_grad=True)
    x, p = torch.zeros(2, 1, dtype=kind), torch.eye(2, dtype=kind)
    for z in torch.rand(2, dtype=kind):
        x, p = a @ x, a @ p @ a.T + noise * torch.eye(2, dtype=kind)
        gain = p @ h.T / (h @ p @ h.T + 0.5)
        x, p = x + gain * (z - h @ x), (torch.eye(2, dtype=kind) - gain @ h) @ p
    settled((x * x).sum() + p.trace(), noise)
    knots, values, places = (
        torch.linspace(0, 1, 6, dtype=kind),
        drawn(6, kind=kind),
        torch.rand(10, dtype=kind),
    )
    k = torch.searchsorted(knots, places).clamp(1, 5)
    t = (places - knots[k - 1]) / (knots[k] - knots[k - 1])
    settled((values[k - 1] * (1 - t) + values[k] * t).pow(2).sum(), values)


PROGRAMS: list[Callable[[], None]] = [
    *(partial(of, kind) for kind in FLOATS for of in (distances, grids, equations, tracking)),
    inner_steps, tables, policies, denoising, bottlenecks, readers,
]  # fmt: skip
