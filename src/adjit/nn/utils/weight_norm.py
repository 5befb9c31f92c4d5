"""Weight normalisation by a hook before the forward: the old way."""

from __future__ import annotations

import warnings
from typing import Any, TypeVar

from ...ops.powers import norm_except_dim, scaled_to
from ...tensor import Tensor
from ..module import Module
from ..parameter import Parameter, is_lazy

_M = TypeVar("_M", bound=Module)


class WeightNorm:
    """The hook that computes a weight from its norms and directions."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name = name
        self.dim = -1 if dim is None else dim

    def compute_weight(self, module: Module) -> Tensor:
        """Compute the weight."""
        return scaled_to(
            getattr(module, self.name + "_v"), getattr(module, self.name + "_g"), self.dim
        )

    def remove(self, module: Module) -> None:
        """Make the weight a parameter again."""
        weight = self.compute_weight(module)
        delattr(module, self.name)
        del module._parameters[self.name + "_g"], module._parameters[self.name + "_v"]
        setattr(module, self.name, Parameter(weight.data))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: _M, name: str = "weight", dim: int | None = 0) -> _M:
    """Replace a parameter by its norms (`weight_g`) and directions (`weight_v`); deprecated.

    Use `nn.utils.parametrizations.weight_norm`. Salimans and Kingma, *Weight Normalization*,
    arXiv:1602.07868.

    Args:
        module: whose parameter is replaced.
        name: the parameter.
        dim: the dimension that has a norm for each index; None is one norm for all.

    Returns:
        The module.

    Raises:
        RuntimeError: the parameter has weight normalisation already.
        ValueError: it has no shape yet.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(action="ignore"):
        ...     layer = nn.utils.weight_norm(nn.Linear(3, 2))
        >>> [name for name, _ in layer.named_parameters()]
        ['bias', 'weight_g', 'weight_v']
    """
    warnings.warn(
        "`torch.nn.utils.weight_norm` is deprecated in favor of "
        "`torch.nn.utils.parametrizations.weight_norm`.",
        FutureWarning,
        stacklevel=2,
    )
    if any(
        isinstance(h, WeightNorm) and h.name == name for h in module._forward_pre_hooks.values()
    ):
        raise RuntimeError(f"Cannot register two weight_norm hooks on the same parameter {name}")
    hook = WeightNorm(name, dim)
    weight = getattr(module, name)
    if is_lazy(weight):
        raise ValueError(
            "The module passed to `WeightNorm` can't have uninitialized parameters. Make sure to run "
            "the dummy forward before applying weight normalization"
        )
    del module._parameters[name]
    module.register_parameter(name + "_g", Parameter(norm_except_dim(weight, 2, hook.dim).data))
    module.register_parameter(name + "_v", Parameter(weight.data))
    setattr(module, name, hook.compute_weight(module))
    module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module: _M, name: str = "weight") -> _M:
    """Make a parameter with weight normalisation an ordinary one again.

    Raises:
        ValueError: it has none.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(action="ignore"):
        ...     layer = nn.utils.weight_norm(nn.Linear(3, 2))
        >>> nn.utils.remove_weight_norm(layer).weight.shape
        adjit.Size([2, 3])
    """
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, WeightNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"weight_norm of '{name}' not found in {module}")
