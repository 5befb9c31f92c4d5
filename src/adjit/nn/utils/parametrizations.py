"""Parametrisations of weights: by norms and directions, by the largest singular value."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

from ...absent import absent
from ...autograd.modes import no_grad
from ...ops.powers import norm_except_dim, scaled_to
from ...tensor import Tensor
from .. import functional as F
from ..module import Module
from .parametrize import register_parametrization
from .spectral_norm import as_matrix, dim_of_outputs

__all__ = ["spectral_norm", "weight_norm"]

_M = TypeVar("_M", bound=Module)


class _WeightNorm(Module):
    """Norms times directions."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return scaled_to(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module: _M, name: str = "weight", dim: int | None = 0) -> _M:
    """Compute a parameter from its norms and its directions, which are learned instead.

    Salimans and Kingma, *Weight Normalization*, arXiv:1602.07868. Checkpoints of the old
    `nn.utils.weight_norm` can be loaded.

    Args:
        module: whose parameter is parametrised: `parametrizations.weight.original0` are the norms,
            `original1` the directions.
        name: the parameter.
        dim: the dimension that has a norm for each index; None is one norm for all.

    Returns:
        The module.

    Example:
        >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
        >>> layer.parametrizations.weight.original0.shape
        adjit.Size([2, 1])
    """
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def take_old(owner: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
        old = [f"{prefix}{name}_{kind}" for kind in ("g", "v")]
        if all(key in state for key in old):
            for k, key in enumerate(old):
                state[f"{prefix}parametrizations.{name}.original{k}"] = state.pop(key)

    module.register_load_state_dict_pre_hook(take_old)
    return module


class _SpectralNorm(Module):
    """A weight over its largest singular value, which the power method follows."""

    def __init__(
        self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        super().__init__()
        ndim = weight.ndim
        if not -ndim <= dim < ndim:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [-{ndim}, {ndim - 1}] but got "
                f"{dim})"
            )
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but got "
                f"n_power_iterations={n_power_iterations}"
            )
        self.dim = dim % ndim
        self.eps = eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = as_matrix(weight, self.dim)
            for name, size in zip(("_u", "_v"), matrix.shape, strict=True):
                drawn = matrix.new_empty(size).normal_(0, 1)
                self.register_buffer(name, F.normalize(drawn, dim=0, eps=eps))
            self._iterate(matrix, 15)

    @no_grad()
    def _iterate(self, matrix: Tensor, times: int) -> None:
        for _ in range(times):
            self._u.copy_(F.normalize(matrix.mv(self._v), dim=0, eps=self.eps))
            self._v.copy_(F.normalize(matrix.t().mv(self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            self._iterate(matrix, self.n_power_iterations)
        # Copies: the next forward writes the vectors, perhaps before the backward of this one.
        return weight / self._u.clone().dot(matrix.mv(self._v.clone()))

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(
    module: _M,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> _M:
    """Divide a parameter by its largest singular value.

    Miyato et al., *Spectral Normalization for Generative Adversarial Networks*, arXiv:1802.05957.

    Args:
        module: whose parameter is parametrised.
        name: the parameter; a vector is divided by its norm.
        n_power_iterations: of the power method, each time that the parameter is read while training.
        eps: the least norm that vectors are divided by.
        dim: the dimension of the outputs; None is 0, or 1 for transposed convolutions.

    Returns:
        The module.

    Raises:
        ValueError: there is no such parameter, or no iterations.
        IndexError: `dim` is out of range.

    Example:
        >>> layer = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2))
        >>> for _ in range(20):
        ...     weight = layer.weight
        >>> (weight @ adjit.rand(3)).shape
        adjit.Size([2])
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    dim = dim_of_outputs(module) if dim is None else dim
    return register_parametrization(
        module, name, _SpectralNorm(weight, n_power_iterations, dim, eps)
    )


def __getattr__(name: str) -> NoReturn:
    """What PyTorch has and adjit has not."""
    raise absent("nn.utils.parametrizations", name)
