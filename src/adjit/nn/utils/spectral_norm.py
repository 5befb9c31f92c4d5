"""Spectral normalisation by a hook before the forward: the old way."""

from __future__ import annotations

from typing import Any, TypeVar

from ...autograd.modes import no_grad
from ...tensor import Tensor
from .. import functional as F
from ..conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from ..module import Module
from ..parameter import Parameter, is_lazy

_M = TypeVar("_M", bound=Module)


def as_matrix(weight: Tensor, dim: int) -> Tensor:
    """Turn a weight into a matrix with a row for each index of a dimension."""
    return weight.movedim(dim, 0).flatten(1)


def dim_of_outputs(module: Module) -> int:
    """Tell which dimension of a module's weight belongs to its outputs."""
    return int(isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)))


class SpectralNorm:
    """The hook that divides a weight by its largest singular value."""

    def __init__(
        self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but got "
                f"n_power_iterations={n_power_iterations}"
            )
        self.name, self.n_power_iterations, self.dim, self.eps = name, n_power_iterations, dim, eps

    def compute_weight(self, module: Module, do_power_iteration: bool) -> Tensor:
        """Compute the weight, and bring the singular vectors nearer if wanted."""
        weight, u, v = (getattr(module, self.name + end) for end in ("_orig", "_u", "_v"))
        matrix = as_matrix(weight, self.dim)
        if do_power_iteration:
            with no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(F.normalize(matrix.t().mv(u), dim=0, eps=self.eps))
                    u.copy_(F.normalize(matrix.mv(v), dim=0, eps=self.eps))
                u, v = (
                    u.clone(),
                    v.clone(),
                )  # a second forward may come before the backward of this one
        return weight / u.dot(matrix.mv(v))

    def remove(self, module: Module) -> None:
        """Make the weight a parameter again."""
        with no_grad():
            weight = self.compute_weight(module, do_power_iteration=False)
        for end in ("", "_u", "_v", "_orig"):
            delattr(module, self.name + end)
        module.register_parameter(self.name, Parameter(weight.detach()))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, do_power_iteration=module.training))


def spectral_norm(
    module: _M,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> _M:
    """Divide a parameter by its largest singular value, before each forward.

    Miyato et al., *Spectral Normalization for Generative Adversarial Networks*, arXiv:1802.05957.
    `nn.utils.parametrizations.spectral_norm` is the new way.

    Args:
        module: whose parameter (`weight`) becomes `weight_orig`, with buffers `weight_u` and `weight_v`.
        name: the parameter.
        n_power_iterations: of the power method, in each forward while training.
        eps: the least norm that vectors are divided by.
        dim: the dimension of the outputs; None is 0, or 1 for transposed convolutions.

    Returns:
        The module.

    Raises:
        RuntimeError: the parameter has spectral normalisation already.
        ValueError: no iterations, or the parameter is None or has no shape yet.

    Example:
        >>> layer = nn.utils.spectral_norm(nn.Linear(3, 2))
        >>> sorted(layer.state_dict())
        ['bias', 'weight_orig', 'weight_u', 'weight_v']
    """
    hooks = module._forward_pre_hooks.values()
    if any(isinstance(hook, SpectralNorm) and hook.name == name for hook in hooks):
        raise RuntimeError(f"Cannot register two spectral_norm hooks on the same parameter {name}")
    hook = SpectralNorm(
        name, n_power_iterations, dim_of_outputs(module) if dim is None else dim, eps
    )
    weight = module._parameters[name]
    if weight is None:
        raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
    if is_lazy(weight):
        raise ValueError(
            "The module passed to `SpectralNorm` can't have uninitialized parameters. Make sure to "
            "run the dummy forward before applying spectral normalization"
        )
    with no_grad():
        height, width = as_matrix(weight, hook.dim).shape
        u, v = (
            F.normalize(weight.new_empty(size).normal_(0, 1), dim=0, eps=eps)
            for size in (height, width)
        )
    delattr(module, name)
    module.register_parameter(name + "_orig", weight)
    setattr(module, name, weight.data)
    module.register_buffer(name + "_u", u)
    module.register_buffer(name + "_v", v)
    module.register_forward_pre_hook(hook)
    return module


def remove_spectral_norm(module: _M, name: str = "weight") -> _M:
    """Make a parameter with spectral normalisation an ordinary one again.

    Raises:
        ValueError: it has none.

    Example:
        >>> layer = nn.utils.spectral_norm(nn.Linear(3, 2))
        >>> sorted(nn.utils.remove_spectral_norm(layer).state_dict())
        ['bias', 'weight']
    """
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, SpectralNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"spectral_norm of '{name}' not found in {module}")
