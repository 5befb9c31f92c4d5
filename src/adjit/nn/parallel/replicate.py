"""Copies of a module on several devices."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from ...tensor import Tensor
from ..module import Module


def replicate(network: Module, devices: Sequence[Any], detach: bool = False) -> list[Module]:
    """Give copies of a module on several devices, whose gradients flow back to it.

    Args:
        network: the module.
        devices: a device for each copy.
        detach: whether gradients do not flow back.

    Example:
        >>> net = nn.Linear(2, 1)
        >>> [twin] = nn.parallel.replicate(net, ["cpu"])
        >>> twin(adjit.ones(3, 2)).sum().backward()
        >>> net.bias.grad
        tensor([3.])
    """
    return [_copied(network, place, detach) for place in devices]


def _copied(module: Module, place: Any, detach: bool) -> Module:
    made = copy.copy(module)
    made.__dict__ = dict(module.__dict__)
    made._parameters = {}
    for name, p in module._parameters.items():
        copied = None if p is None else (p.detach() if detach else p).to(place)
        made.__dict__[name] = None if copied is None else copied.view_as(copied)
    made._buffers = {
        name: None if b is None else b.to(place) for name, b in module._buffers.items()
    }
    made._modules = {
        name: None if m is None else _copied(m, place, detach)
        for name, m in module._modules.items()
    }
    return made


def _broadcast_coalesced_reshape(
    tensors: Sequence[Tensor], devices: Sequence[Any], detach: bool = False
) -> list[list[Tensor]]:
    """The tensors on each device, as programs with a `replicate` of their own ask for them."""
    return [[(t.detach() if detach else t).to(place) for t in tensors] for place in devices]
