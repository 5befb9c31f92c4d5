"""Small programs of science and learning, whose first steps `first_runs.py` times, word for word in both
libraries. Each takes the library and returns the loss of a first step and a gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def adam_step(torch: Any, model: Any, loss: Any) -> Any:
    """A step of Adam: the loss, and a gradient."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss, next(model.parameters()).grad


def bodies(torch: Any) -> Any:
    """Ten steps of bodies that attract each other, by where they began."""
    start = torch.randn(64, 3, dtype=torch.float64).requires_grad_()
    places, speeds = start, torch.zeros_like(start)
    for _ in range(10):
        apart = places[None] - places[:, None]
        squares = (apart * apart).sum(-1, keepdim=True) + 0.01
        speeds = speeds + 0.001 * (apart / squares**1.5).sum(1)
        places = places + 0.001 * speeds
    loss = (places**2).sum()
    loss.backward()
    return loss, start.grad


def heat(torch: Any) -> Any:
    """The heat equation by slices, by its start."""
    start = torch.rand(64, 64).requires_grad_()
    u = start.clone()
    for _ in range(10):
        inner = u[1:-1, 1:-1]
        around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
        u[1:-1, 1:-1] = inner + 0.1 * (around - 4 * inner)
    loss = (u * u).sum()
    loss.backward()
    return loss, start.grad


def k_means(torch: Any) -> Any:
    """Centres that points belong to by degrees."""
    points, centres = torch.randn(500, 2), torch.randn(5, 2).requires_grad_()
    squares = ((points[:, None] - centres[None]) ** 2).sum(-1)
    loss = (torch.softmax(-squares, 1) * squares).sum(1).mean()
    loss.backward()
    return loss, centres.grad


def equation(torch: Any) -> Any:
    """Lotka-Volterra by Runge and Kutta, by its rates."""
    rates = torch.tensor([1.1, 0.4, 0.1, 0.4], dtype=torch.float64, requires_grad=True)

    def change(state: Any) -> Any:
        prey, hunters = state[0], state[1]
        a, b, c, d = rates
        return torch.stack([prey * (a - b * hunters), hunters * (c * prey - d)])

    state = torch.tensor([10.0, 10.0], dtype=torch.float64)
    for _ in range(20):
        first = change(state)
        second = change(state + 0.005 * first)
        state = state + 0.01 * second
    loss = ((state - 1) ** 2).sum()
    loss.backward()
    return loss, rates.grad


def logistic(torch: Any) -> Any:
    """Logistic regression, with a penalty."""
    x, y = torch.randn(1000, 20), (torch.rand(1000) > 0.5).float()
    w = torch.zeros(20, requires_grad=True)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(x @ w, y) + 0.01 * w.norm()
    loss.backward()
    return loss, w.grad


def maml(torch: Any) -> Any:
    """A step of learning to learn sines: the gradient goes through a step of training."""
    weights = [torch.randn(1, 32), torch.zeros(32), torch.randn(32, 1) * 0.1, torch.zeros(1)]
    weights = [w.requires_grad_() for w in weights]
    x = torch.linspace(-3, 3, 20).unsqueeze(1)
    y = torch.sin(x)

    def loss_of(weights: Any) -> Any:
        a, b, c, d = weights
        return ((torch.relu(x @ a + b) @ c + d - y) ** 2).mean()

    grads = torch.autograd.grad(loss_of(weights), weights, create_graph=True)
    loss = loss_of([w - 0.01 * g for w, g in zip(weights, grads, strict=True)])
    loss.backward()
    return loss, weights[0].grad


def messages(torch: Any) -> Any:
    """A layer of messages along the edges of a graph."""
    nn, F = torch.nn, torch.nn.functional
    sources, targets = torch.randint(100, (500,)), torch.randint(100, (500,))
    x, labels = torch.randn(100, 16), torch.randint(4, (100,))
    model = nn.ModuleList([nn.Linear(16, 32), nn.Linear(32, 32), nn.Linear(32, 4)])
    h = F.relu(model[0](x))
    sent = model[1](h[sources])
    h = h + torch.zeros(100, 32).scatter_add(0, targets[:, None].expand(500, 32), sent)
    return adam_step(torch, model, F.cross_entropy(model[2](F.relu(h)), labels))


def policy(torch: Any) -> Any:
    """A step of PPO on actions that were drawn."""
    nn = torch.nn
    model = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
    x, advantage = torch.randn(128, 4), torch.randn(128)
    with torch.no_grad():
        before = torch.distributions.Categorical(logits=model(x))
        taken = before.sample()
        old = before.log_prob(taken)
    now = torch.distributions.Categorical(logits=model(x))
    ratio = (now.log_prob(taken) - old).exp()
    least = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    return adam_step(torch, model, -least.mean() - 0.01 * now.entropy().mean())


def words(torch: Any) -> Any:
    """word2vec with negative samples."""
    nn, F = torch.nn, torch.nn.functional
    model = nn.ModuleList([nn.Embedding(2000, 32), nn.Embedding(2000, 32)])
    inner, outer = torch.randint(2000, (64,)), torch.randint(2000, (64, 6))
    scores = (model[0](inner).unsqueeze(1) * model[1](outer)).sum(-1)
    loss = -F.logsigmoid(scores[:, 0]).mean() - F.logsigmoid(-scores[:, 1:]).mean()
    return adam_step(torch, model, loss)


def unet(torch: Any) -> Any:
    """A small U-Net that takes noise away."""
    nn = torch.nn

    def block(inner: int, outer: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(inner, outer, 3, padding=1), nn.GroupNorm(4, outer), nn.SiLU()
        )

    parts = nn.ModuleList([block(1, 16), block(16, 32), block(48, 16), nn.Conv2d(16, 1, 1)])
    clean, noise = torch.randn(4, 1, 32, 32), torch.randn(4, 1, 32, 32)
    level = torch.rand(4, 1, 1, 1)
    first = parts[0]((1 - level).sqrt() * clean + level.sqrt() * noise)
    second = parts[1](nn.functional.max_pool2d(first, 2))
    wide = nn.functional.interpolate(second, scale_factor=2, mode="nearest")
    found = parts[3](parts[2](torch.cat([first, wide], 1)))
    return adam_step(torch, parts, nn.functional.mse_loss(found, noise))


def mobile(torch: Any) -> Any:
    """An inverted bottleneck with squeeze and excitation."""
    nn = torch.nn
    wide = nn.Sequential(
        nn.Conv2d(16, 64, 1, bias=False), nn.BatchNorm2d(64), nn.Hardswish(),
        nn.Conv2d(64, 64, 3, padding=1, groups=64, bias=False), nn.BatchNorm2d(64), nn.Hardswish(),
    )  # fmt: skip
    squeeze = nn.Sequential(
        nn.AdaptiveAvgPool2d(1), nn.Conv2d(64, 16, 1), nn.ReLU(), nn.Conv2d(16, 64, 1), nn.Hardsigmoid()
    )  # fmt: skip
    narrow = nn.Sequential(nn.Conv2d(64, 16, 1, bias=False), nn.BatchNorm2d(16))
    model = nn.ModuleList([wide, squeeze, narrow])
    x = torch.randn(4, 16, 16, 16)
    h = wide(x)
    return adam_step(torch, model, (x + narrow(h * squeeze(h))).pow(2).mean())


def lstm(torch: Any) -> Any:
    """A recurrent layer that reads sequences."""
    nn = torch.nn
    model = nn.ModuleList([nn.LSTM(8, 32, batch_first=True), nn.Linear(32, 1)])
    out, _ = model[0](torch.randn(16, 20, 8))
    return adam_step(torch, model, nn.functional.mse_loss(model[1](out[:, -1]), torch.randn(16, 1)))


SCIENCE: dict[str, Callable[[Any], Any]] = {
    "bodies": bodies, "heat": heat, "k-means": k_means, "equation": equation, "logistic": logistic,
    "MAML": maml, "messages": messages, "PPO": policy, "word2vec": words, "U-Net": unet,
    "MobileNet": mobile, "LSTM": lstm,
}  # fmt: skip
