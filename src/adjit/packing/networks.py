"""Training steps as people write them: what they need together, in their first steps and from the third on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

from ..nn import Module
from .elementwise import torch

nn: Any = torch.nn
F: Any = nn.functional
STEPS = 4  # the first of new graphs, then those of plans


def trained(model: Any, loss_of: Callable[[Any], Any], optimizer: Any = None) -> None:
    """A few steps of training."""
    optimizer = optimizer or torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        loss.item()
        del loss


def perceptron(activation: Any, *sizes: int) -> Any:
    """Linear layers with a function between them."""
    layers: list[Any] = []
    for inner, outer in pairwise(sizes):
        layers += [nn.Linear(inner, outer), activation()]
    return nn.Sequential(*layers[:-1])


def optimizers() -> None:
    """Each optimiser, on a small network that tells classes apart, with gradients that are clipped."""
    data, labels = torch.randn(64, 20), torch.randint(5, (64,))
    for make in (
        partial(torch.optim.SGD, lr=0.1), partial(torch.optim.SGD, lr=0.1, momentum=0.9),
        partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=1e-4), torch.optim.Adam, torch.optim.AdamW,
        torch.optim.RMSprop, torch.optim.Adagrad, torch.optim.Adadelta,
    ):  # fmt: skip
        model = perceptron(nn.ReLU, 20, 64, 5)

        def loss_of(model: Any) -> Any:
            return F.cross_entropy(model(data), labels)

        trained(model, loss_of, make(model.parameters()))
        loss_of(model).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        (model(data).argmax(1) == labels).float().mean().item()


def regressions() -> None:
    """Lines and curves: gradients by hand, by backward, and by an optimiser."""
    x = torch.linspace(-1, 1, 100).unsqueeze(1)
    y = torch.sin(3 * x) + 0.1 * torch.randn_like(x)
    for activation in (nn.Tanh, nn.ReLU, nn.GELU, nn.SiLU, nn.Sigmoid):
        trained(perceptron(activation, 1, 32, 32, 1), lambda model: F.mse_loss(model(x), y))
    w, b = torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    for _ in range(STEPS):
        loss = ((x * w + b - y) ** 2).mean()
        loss.backward()
        with torch.no_grad():
            w -= 0.1 * w.grad
            b -= 0.1 * b.grad
        w.grad = b.grad = None
        loss.item()


def physics() -> None:
    """Networks that are differentiated by their inputs, and motion by its energy."""
    model = perceptron(nn.Tanh, 1, 32, 32, 1)
    x = torch.linspace(0, 1, 100).reshape(-1, 1).requires_grad_()

    def residual(model: Any) -> Any:
        u = model(x)
        (du,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        (ddu,) = torch.autograd.grad(du, x, torch.ones_like(du), create_graph=True)
        return ((ddu + u) ** 2).mean() + (model(torch.zeros(1, 1)) - 1).pow(2).mean()

    trained(model, residual)
    for kind in (torch.float32, torch.float64):
        places = torch.randn(16, 3, dtype=kind).requires_grad_()
        for _ in range(STEPS):
            distances = (places[:, None] - places[None]).pow(2).sum(-1)
            energy = (1 / (distances + 0.1).sqrt()).sum()
            (force,) = torch.autograd.grad(energy, places)
            force.tolist()


class Autoencoder(Module):
    """A variational autoencoder."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.mean, self.logvar = nn.Linear(784, 64), nn.Linear(64, 8), nn.Linear(64, 8)
        self.outer, self.pixels = nn.Linear(8, 64), nn.Linear(64, 784)

    def forward(self, x: Any) -> Any:
        """The loss."""
        h = F.relu(self.inner(x))
        mean, logvar = self.mean(h), self.logvar(h)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * logvar)
        made = torch.sigmoid(self.pixels(F.relu(self.outer(z))))
        rest = -0.5 * torch.sum(1 + logvar - mean.pow(2) - logvar.exp())
        return F.binary_cross_entropy(made, x, reduction="sum") + rest


def autoencoder() -> None:
    """Its training."""
    x = torch.rand(32, 784)
    trained(Autoencoder(), lambda model: model(x))


def generator() -> None:
    """A generator of images and its critic."""
    make = nn.Sequential(
        nn.ConvTranspose2d(16, 32, 4, 1, 0, bias=False), nn.BatchNorm2d(32), nn.ReLU(True),
        nn.ConvTranspose2d(32, 3, 4, 2, 1, bias=False), nn.Tanh(),
    )  # fmt: skip
    judge = nn.Sequential(
        nn.Conv2d(3, 32, 4, 2, 1, bias=False),
        nn.LeakyReLU(0.2),
        nn.Conv2d(32, 1, 4, 1, 0),
        nn.Sigmoid(),
    )
    noise, real, ones = torch.randn(8, 16, 1, 1), torch.randn(8, 3, 8, 8), torch.ones(8)
    for model, score in (
        (judge, lambda _: F.binary_cross_entropy(judge(real).view(-1), ones)
            + F.binary_cross_entropy(judge(make(noise).detach()).view(-1), torch.zeros(8))),
        (make, lambda _: F.binary_cross_entropy(judge(make(noise)).view(-1), ones)),
    ):  # fmt: skip
        trained(model, score, torch.optim.Adam(model.parameters(), lr=2e-4, betas=(0.5, 0.999)))


def images() -> None:
    """Networks that tell images apart."""
    lenet = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Dropout(0.25),
        nn.Linear(120, 10), nn.LogSoftmax(1),
    )  # fmt: skip
    digits, labels = torch.randn(16, 1, 28, 28), torch.randint(10, (16,))
    trained(lenet, lambda model: F.nll_loss(model(digits), labels))
    pictures = torch.randn(4, 3, 64, 64)
    for count in (1, 4):
        resnet = torch.models.resnet18()
        optimizer = torch.optim.SGD(resnet.parameters(), lr=0.1, momentum=0.9)
        data, classes = pictures[:count].clone(), labels[:count].clone()

        def loss_of(model: Any, data: Any = data, classes: Any = classes) -> Any:
            return F.cross_entropy(model(data), classes)

        trained(resnet, loss_of, optimizer)
        with torch.no_grad():
            resnet.eval()(data).argmax(1).tolist()


class TextBlock(Module):
    """A layer of a transformer, whose attention is written out or a function."""

    def __init__(self, width: int, heads: int, is_written_out: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.heads, self.is_written_out = heads, is_written_out
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Any) -> Any:
        """The next layer's input."""
        b, t, c = x.size()
        q, k, v = (
            part.view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for part in self.attn(self.norm1(x)).split(c, dim=2)
        )
        if self.is_written_out:
            weights = (q @ k.transpose(-2, -1)) * (c // self.heads) ** -0.5
            weights = weights.masked_fill(torch.tril(torch.ones(t, t)) == 0, float("-inf"))
            y = self.dropout(F.softmax(weights, dim=-1)) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).contiguous().view(b, t, c))
        return x + self.mlp(self.norm2(x))


class LanguageModel(Module):
    """A language model."""

    def __init__(
        self, is_written_out: bool, words: int = 65, block: int = 32, width: int = 64
    ) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(words, width), nn.Embedding(block, width)
        self.blocks = nn.Sequential(*(TextBlock(width, 4, is_written_out) for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, text: Any) -> Any:
        """The loss of the next words."""
        x = self.token(text[:, :-1]) + self.place(torch.arange(text.size(1) - 1))
        logits = self.head(self.norm(self.blocks(x)))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), text[:, 1:].reshape(-1))


def texts() -> None:
    """Language models: transformers, of the library too, and recurrent ones."""
    text = torch.randint(65, (4, 33))
    for is_written_out in (True, False):
        model = LanguageModel(is_written_out)
        trained(model, lambda model: model(text), torch.optim.AdamW(model.parameters()))
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    x, y = torch.randn(4, 8, 32), torch.randn(4, 8, 32)
    trained(layer, lambda layer: F.mse_loss(layer(x), y))
    for kind in (nn.LSTM, nn.GRU):
        cells = kind(32, 64, batch_first=True)
        trained(cells, lambda cells: cells(x)[0].pow(2).mean())


def graphs() -> None:
    """Messages along edges, added where they arrive."""
    sources, targets = torch.randint(20, (60,)), torch.randint(20, (60,))
    x, labels = torch.randn(20, 16), torch.randint(4, (20,))

    def loss_of(model: Any) -> Any:
        h = model[0](x)
        h = torch.zeros(20, 32).index_add(0, targets, h[sources])
        h = F.relu(h) + torch.zeros_like(h).scatter_add(
            0, targets[:, None].expand(60, 32), h[sources]
        )
        return F.cross_entropy(model[1](h), labels)

    trained(nn.ModuleList([nn.Linear(16, 32), nn.Linear(32, 4)]), loss_of)


def tables() -> None:
    """Words by those beside them: a table so large that only the rows that were looked up are moved."""
    model, words = nn.Embedding(4096, 64), torch.randint(4096, (32, 6))

    def loss_of(model: Any) -> Any:
        rows = model(words)
        return F.softplus(-(rows[:, :1] * rows[:, 1:]).sum(-1)).mean()

    trained(model, loss_of, torch.optim.SGD(model.parameters(), lr=0.1))


def policies() -> None:
    """Actions that are drawn, and rewarded."""
    policy, x = perceptron(nn.Tanh, 4, 64, 2), torch.randn(32, 4)

    def loss_of(policy: Any) -> Any:
        chances = torch.distributions.Categorical(logits=policy(x))
        taken = chances.sample()
        return -(chances.log_prob(taken) * torch.randn(32)).mean() - 0.01 * chances.entropy().mean()

    trained(policy, loss_of)


PROGRAMS: list[Callable[[], None]] = [
    optimizers, regressions, physics, autoencoder, generator, images, texts, graphs, tables, policies,
]  # fmt: skip
