"""Wrappers of modules whose forward is run again in backward: beside PyTorch's."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import adjit


def wrapped(library: Any, enter: Any) -> Any:
    """What a net gives whose parts are run again in backward, and its names."""
    path = f"{library.__name__}.distributed.algorithms._checkpoint.checkpoint_wrapper"
    of = importlib.import_module(path)
    nn = library.nn
    net = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, 2))
    with library.no_grad():
        for k, p in enumerate(net.parameters()):
            p.copy_(library.arange(float(p.numel())).reshape(p.shape).cos() / (k + 1))
    plain = {name: value.clone() for name, value in net.state_dict().items()}
    enter(of, net, nn)
    x = library.ones(2, 3, requires_grad=True)
    net(x).square().sum().backward()
    gradients = [p.grad.tolist() for p in net.parameters()] + [x.grad.tolist()]
    told = str(net.load_state_dict(plain)), sorted(net.state_dict()) == sorted(plain)
    return gradients, told, repr(net), [name for name, _ in net.named_modules()]


WRAPPERS = {
    "linear": lambda of, net, nn: of.apply_activation_checkpointing(
        net, check_fn=lambda m: isinstance(m, nn.Linear)
    ),
    "all": lambda of, net, nn: of.apply_activation_checkpointing(net),
    "reentrant": lambda of, net, nn: setattr(
        net, "1", of.checkpoint_wrapper(net[1], of.CheckpointImpl.REENTRANT)
    ),
    "offload": lambda of, net, nn: of.apply_activation_checkpointing(net, of.offload_wrapper),
    "by size": lambda of, net, nn: of.apply_activation_checkpointing(
        net,
        auto_wrap_policy=lambda module, recurse, nonwrapped_numel: recurse or nonwrapped_numel >= 16,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRAPPERS)
def test_wrappers_are_those_of_pytorch(name):
    torch = pytest.importorskip("torch")
    theirs, ours = (wrapped(library, WRAPPERS[name]) for library in (torch, adjit))
    for one, other in zip(ours[0], theirs[0], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    assert ours[1:] == theirs[1:]


def test_wrappers_show_what_they_wrap():
    from adjit.distributed.algorithms._checkpoint import checkpoint_wrapper as of

    class Scaled(adjit.nn.Module):
        factor = 3

        def forward(self, x, *, times):
            return x * times * self.factor

    x = adjit.ones(2, requires_grad=True)
    net = of.checkpoint_wrapper(Scaled(), of.CheckpointImpl.REENTRANT)
    net(x, times=adjit.tensor(2.0)).sum().backward()
    assert (net.factor, x.grad.tolist()) == (3, [6.0, 6.0])
    assert isinstance(of.checkpoint_wrapper(adjit.nn.Sequential(net))[0], of.CheckpointWrapper)
    with pytest.raises(ValueError, match="Expected 3 to be callable"):
        of.apply_activation_checkpointing(net, auto_wrap_policy=3)
    with pytest.raises(ValueError, match=r"Subclasses should implement forward\(\)"):
        of.ActivationWrapper(net)(x)
