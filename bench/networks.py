"""The networks of applications.py, as they are written in PyTorch; `torch` is that or adjit."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np


def with_drawn_weights(torch: Any, network: Any) -> Any:
    """A network with weights that NumPy draws, the same in every library; those of norms stay as they are."""
    random = np.random.default_rng(0)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim > 1:
                scale = max(1, parameter[0].numel()) ** -0.5
                weights = scale * random.standard_normal(tuple(parameter.shape))
                parameter.copy_(torch.tensor(weights.astype(np.float32)))
    for layer in network.modules():
        is_norm = "Norm" in type(layer).__name__
        if (
            not is_norm
            and getattr(layer, "bias", None) is not None
            and not isinstance(layer.bias, bool)
        ):
            torch.nn.init.zeros_(layer.bias)
        for name, parameter in layer.named_parameters(recurse=False):
            if name.startswith("bias_"):
                torch.nn.init.zeros_(parameter)
    return network


def perceptron(torch: Any, widths: tuple[int, ...], activation: Any) -> Any:
    layers: list[Any] = []
    for inward, outward in pairwise(widths):
        layers += [torch.nn.Linear(inward, outward), activation()]
    return torch.nn.Sequential(*layers[:-1])


def gpt_block(torch: Any, x: np.ndarray, _: np.ndarray) -> Any:
    """Attention to what came before, and a perceptron, each behind a norm and beside a way around it."""
    width = x.shape[-1]
    heads = max(1, width // 64)

    class Block(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
            self.inward, self.outward = (
                torch.nn.Linear(width, 3 * width),
                torch.nn.Linear(width, width),
            )
            self.widen, self.narrow = (
                torch.nn.Linear(width, 4 * width),
                torch.nn.Linear(4 * width, width),
            )

        def forward(self, x: Any) -> Any:
            batch, length, _ = x.shape
            parts = self.inward(self.first(x)).split(width, 2)
            q, k, v = (
                part.view(batch, length, heads, width // heads).transpose(1, 2) for part in parts
            )
            seen = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.outward(seen.transpose(1, 2).reshape(batch, length, width))
            return x + self.narrow(torch.nn.functional.gelu(self.widen(self.second(x))))

    return Block()


def unet(torch: Any, x: np.ndarray, target: np.ndarray, width: int = 16) -> Any:
    """Three levels down and up again, with what was seen on the way down."""
    nn = torch.nn

    def twice(inward: int, outward: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(inward, outward, 3, padding=1, bias=False), nn.BatchNorm2d(outward), nn.ReLU(),
            nn.Conv2d(outward, outward, 3, padding=1, bias=False), nn.BatchNorm2d(outward), nn.ReLU(),
        )  # fmt: skip

    class UNet(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.ModuleList(
                [twice(x.shape[1], width), twice(width, 2 * width), twice(2 * width, 4 * width)]
            )
            self.grow = nn.ModuleList(
                [
                    nn.ConvTranspose2d(4 * width, 2 * width, 2, 2),
                    nn.ConvTranspose2d(2 * width, width, 2, 2),
                ]
            )
            self.up = nn.ModuleList([twice(4 * width, 2 * width), twice(2 * width, width)])
            self.last = nn.Conv2d(width, target.shape[1], 1)

        def forward(self, x: Any) -> Any:
            first = self.down[0](x)
            second = self.down[1](nn.functional.max_pool2d(first, 2))
            x = self.down[2](nn.functional.max_pool2d(second, 2))
            x = self.up[0](torch.cat([second, self.grow[0](x)], 1))
            return self.last(self.up[1](torch.cat([first, self.grow[1](x)], 1)))

    return UNet()


def inverted(torch: Any, channels: int, size: int, activation: Any, gate: Any) -> Any:
    """A block of MobileNetV3 and EfficientNet: wide, channel by channel, squeezed and excited, narrow again."""
    nn, wide = torch.nn, 4 * channels

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.widen, self.first = nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide)
            self.each = nn.Conv2d(wide, wide, size, padding=size // 2, groups=wide, bias=False)
            self.second = nn.BatchNorm2d(wide)
            self.squeeze, self.excite = nn.Conv2d(wide, channels, 1), nn.Conv2d(channels, wide, 1)
            self.narrow, self.third = (
                nn.Conv2d(wide, channels, 1, bias=False),
                nn.BatchNorm2d(channels),
            )
            self.activation, self.gate = activation(), gate()

        def forward(self, x: Any) -> Any:
            y = self.activation(self.first(self.widen(x)))
            y = self.activation(self.second(self.each(y)))
            pooled = nn.functional.adaptive_avg_pool2d(y, 1)
            y = y * self.gate(self.excite(nn.functional.relu(self.squeeze(pooled))))
            return x + self.third(self.narrow(y))

    return Block()


def mobile_net_block(torch: Any, x: np.ndarray, _: np.ndarray) -> Any:
    return inverted(torch, x.shape[1], 3, torch.nn.Hardswish, torch.nn.Hardsigmoid)


def efficient_net_block(torch: Any, x: np.ndarray, _: np.ndarray) -> Any:
    return inverted(torch, x.shape[1], 5, torch.nn.SiLU, torch.nn.Sigmoid)


def lstm(torch: Any, x: np.ndarray, _: np.ndarray) -> Any:
    return torch.nn.LSTM(x.shape[2], x.shape[2], batch_first=True)


def vae(torch: Any, x: np.ndarray, noise: np.ndarray, hidden: int = 400) -> Any:
    width, latent = x.shape[1], noise.shape[1]

    class Vae(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inward, self.both = (
                torch.nn.Linear(width, hidden),
                torch.nn.Linear(hidden, 2 * latent),
            )
            self.back, self.outward = (
                torch.nn.Linear(latent, hidden),
                torch.nn.Linear(hidden, width),
            )

        def forward(self, x: Any, noise: Any) -> Any:
            mean, log_variance = self.both(torch.relu(self.inward(x))).chunk(2, 1)
            drawn = mean + noise * torch.exp(0.5 * log_variance)
            return self.outward(torch.relu(self.back(drawn))), mean, log_variance

    return Vae()


def maker(torch: Any, latent: int, size: int, width: int = 32) -> Any:
    """Makes images of noise."""
    nn = torch.nn
    wide = width * size // 8
    layers = [
        nn.ConvTranspose2d(latent, wide, 4, 1, 0, bias=False),
        nn.BatchNorm2d(wide),
        nn.ReLU(True),
    ]
    while wide > width:
        layers += [nn.ConvTranspose2d(wide, wide // 2, 4, 2, 1, bias=False)]
        wide //= 2
        layers += [nn.BatchNorm2d(wide), nn.ReLU(True)]
    return nn.Sequential(*layers, nn.ConvTranspose2d(wide, 3, 4, 2, 1, bias=False), nn.Tanh())


def judge(torch: Any, size: int, width: int = 32) -> Any:
    """Tells made images from others."""
    nn = torch.nn
    layers = [nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, True)]
    while size > 8:
        layers += [nn.Conv2d(width, 2 * width, 4, 2, 1, bias=False)]
        width, size = 2 * width, size // 2
        layers += [nn.BatchNorm2d(width), nn.LeakyReLU(0.2, True)]
    return nn.Sequential(*layers, nn.Conv2d(width, 1, 4, 1, 0, bias=False))


def denoiser(torch: Any, x: np.ndarray, *_: np.ndarray, width: int = 32) -> Any:
    """Two residual blocks that know the time."""
    nn, channels = torch.nn, x.shape[1]

    class Denoiser(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inward = nn.Conv2d(channels, width, 3, padding=1)
            self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
            self.norms = nn.ModuleList([nn.GroupNorm(4, width) for _ in range(4)])
            self.convs = nn.ModuleList([nn.Conv2d(width, width, 3, padding=1) for _ in range(4)])
            self.outward = nn.Conv2d(width, channels, 3, padding=1)
            rates = torch.tensor(np.geomspace(1, 1e-4, width // 2).astype(np.float32))
            self.register_buffer("rates", rates)

        def forward(self, x: Any, times: Any) -> Any:
            angles = times[:, None] * self.rates[None, :]
            time = self.time(torch.cat([angles.sin(), angles.cos()], 1))[:, :, None, None]
            x = self.inward(x)
            for k in (0, 2):
                y = self.convs[k](nn.functional.silu(self.norms[k](x))) + time
                x = x + self.convs[k + 1](nn.functional.silu(self.norms[k + 1](y)))
            return self.outward(nn.functional.silu(x))

    return Denoiser()


def actor(torch: Any, seen: int, actions: int, width: int = 64) -> Any:
    """Says what to do, and what it is worth."""

    class Actor(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            tanh = torch.nn.Tanh
            self.policy = perceptron(torch, (seen, width, width, actions), tanh)
            self.value = perceptron(torch, (seen, width, width, 1), tanh)

        def forward(self, x: Any) -> Any:
            return self.policy(x), self.value(x)

    return Actor()


def recommender(torch: Any, users: int, things: int, width: int) -> Any:
    """Two tables and a perceptron on what they say."""

    class Recommender(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.users = torch.nn.Embedding(users, width)
            self.things = torch.nn.Embedding(things, width)
            self.liking = perceptron(torch, (2 * width, 64, 1), torch.nn.ReLU)

        def forward(self, who: Any, what: Any) -> Any:
            return self.liking(torch.cat([self.users(who), self.things(what)], 1))[:, 0]

    return Recommender()


def message_passing(torch: Any, width: int, hidden: int, classes: int) -> Any:
    """Two rounds of messages along edges, summed where they arrive."""

    class Passing(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.own = torch.nn.ModuleList(
                [torch.nn.Linear(width, hidden), torch.nn.Linear(hidden, classes)]
            )
            self.sent = torch.nn.ModuleList(
                [torch.nn.Linear(width, hidden), torch.nn.Linear(hidden, classes)]
            )

        def forward(self, x: Any, sources: Any, targets: Any) -> Any:
            for k, (own, sent) in enumerate(zip(self.own, self.sent, strict=True)):
                messages = sent(x)[sources]
                arrived = torch.zeros(x.shape[0], messages.shape[1])
                places = targets[:, None].expand(-1, messages.shape[1])
                x = own(x) + arrived.scatter_add(0, places, messages)
                x = torch.relu(x) if k == 0 else x
            return x

    return Passing()


def joiner(torch: Any, width: int) -> Any:
    """Makes one vector of two."""

    class Joiner(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.both = torch.nn.Linear(2 * width, width)

        def forward(self, left: Any, right: Any) -> Any:
            return torch.tanh(self.both(torch.cat([left, right])))

    return Joiner()
