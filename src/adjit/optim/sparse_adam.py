"""SparseAdam."""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor
from .optimizer import ParamsT, PerParameterOptimizer, check_betas, check_learning_rate


class SparseAdam(PerParameterOptimizer):
    """Adam for sparse gradients, which moves only what a gradient names.

    adjit has no sparse gradients yet, and as PyTorch's this optimiser refuses dense ones: a step
    with any gradient is an error. Use `Adam`.

    Args:
        params: tensors, `(name, tensor)` pairs or parameter groups.
        lr: learning rate.
        betas: how much of the averages of gradient and squared gradient is kept.
        eps: added to the denominator.
        maximize: climb instead.

    Raises:
        ValueError: an option is out of its range.
        RuntimeError: at a step, since the gradient is dense.

    Example:
        >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
        >>> optimizer = adjit.optim.SparseAdam([w])
        >>> w.square().sum().backward()
        >>> optimizer.step()
        Traceback (most recent call last):
        ...
        RuntimeError: SparseAdam does not support dense gradients, please consider Adam instead
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        check_learning_rate(lr, may_be_zero=False)
        if not eps > 0.0:
            raise ValueError(f"Invalid epsilon value: {eps}")
        check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})

    def _update(
        self, param: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        """Refuse the gradient, which is dense."""
        raise RuntimeError(
            "SparseAdam does not support dense gradients, please consider Adam instead"
        )
