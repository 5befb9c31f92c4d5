"""Muon."""

from __future__ import annotations

import math
from typing import Any

from ..ops.creation import zeros_like
from ..tensor import Tensor
from .optimizer import ParamsT, PerParameterOptimizer, as_scalar, check_learning_rate, descend


class Muon(PerParameterOptimizer):
    """Muon: momentum whose matrices are made nearly orthogonal before each step.

    Jordan, *Muon: An optimizer for hidden layers in neural networks*, 2024, and Liu et al., *Muon
    is Scalable for LLM Training*, arXiv:2502.16982. For the matrices of hidden layers; use AdamW
    for the other parameters. The Newton-Schulz iteration runs in the dtype of the parameters,
    where PyTorch rounds to bfloat16: results differ from its by that rounding.

    Args:
        params: tensors, `(name, tensor)` pairs or parameter groups, all of two dimensions.
        lr: learning rate; as a 1-element tensor it is never read, so a captured step follows it.
        weight_decay: how fast the parameters shrink.
        momentum: how much of the velocity is kept.
        nesterov: step along the velocity that comes next.
        ns_coefficients: the polynomial of the iteration.
        eps: the least norm that a velocity is divided by.
        ns_steps: iterations; fewer than 100.
        adjust_lr_fn: how the rate follows the shape: `"original"` (the root of rows over columns
            where that is above one; also None) or `"match_rms_adamw"` (0.2 times the root of the
            larger size).

    Raises:
        ValueError: an option is out of its range, or a parameter is not two-dimensional.

    Example:
        >>> w = adjit.ones(2, 2, requires_grad=True)
        >>> optimizer = adjit.optim.Muon([w], lr=0.1, weight_decay=0.0)
        >>> (w * adjit.tensor([[1.0, 0.0], [0.0, 2.0]])).sum().backward()
        >>> optimizer.step()
        >>> w.shape
        adjit.Size([2, 2])
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        check_learning_rate(lr, "Learning rate should be >= 0 but is: ")
        for name, value in (("momentum", momentum), ("weight decay", weight_decay)):
            if not value >= 0.0:
                raise ValueError(f"{name} should be >= 0 but is: {value}")
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        super().__init__(
            params,
            {
                "lr": lr,
                "weight_decay": weight_decay,
                "momentum": momentum,
                "nesterov": nesterov,
                "ns_coefficients": ns_coefficients,
                "eps": eps,
                "ns_steps": ns_steps,
                "adjust_lr_fn": adjust_lr_fn,
            },
        )
        for param in self._params_of_groups():
            if param.ndim != 2:
                raise ValueError(
                    "Muon only supports 2D parameters whereas we found a parameter with size: "
                    f"{param.size()}"
                )

    def _update(
        self, param: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        """Shrink, and step along the nearly orthogonal velocity."""
        lr, momentum = as_scalar(group["lr"]), group["momentum"]
        if not state:
            state["momentum_buffer"] = zeros_like(grad)
        velocity = state["momentum_buffer"]
        velocity.lerp_(grad, 1 - momentum)
        direction = grad.lerp(velocity, momentum) if group["nesterov"] else velocity
        direction = _orthogonal(
            direction, group["ns_coefficients"], group["ns_steps"], group["eps"]
        )
        param.mul_(1 - lr * group["weight_decay"])
        descend(param, direction, lr * _adjustment(group["adjust_lr_fn"], *param.shape))

    def _counts(self, group: dict[str, Any]) -> bool:
        return False


def _orthogonal(
    matrix: Tensor, coefficients: tuple[float, float, float], iterations: int, eps: float
) -> Tensor:
    """The matrix with singular values near one, by Newton and Schulz's iteration of fifth order."""
    if iterations >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    if len(coefficients) != 3:
        raise ValueError("Coefficients must be a tuple of exactly 3 values")
    a, b, c = coefficients
    is_tall = matrix.size(0) > matrix.size(1)
    x = matrix.t() if is_tall else matrix
    x = x / x.norm().clamp(min=eps)
    for _ in range(iterations):
        gram = x @ x.t()
        # A Gram matrix is its own transpose: of a product with that, kernels compute half.
        x = x.addmm(b * gram + c * (gram @ gram.t()), x, beta=a)
    return x.t() if is_tall else x


def _adjustment(name: str | None, rows: int, columns: int) -> float:
    """What the rate of a matrix is multiplied by."""
    if name == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(max(1, rows / columns))
