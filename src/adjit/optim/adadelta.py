"""Adadelta."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ops import steps
from ..tensor import Tensor
from .optimizer import (
    ParamsT,
    PerParameterOptimizer,
    as_scalar,
    check_flags,
    check_learning_rate,
    check_not_negative,
    descend,
    penalised,
)


class Adadelta(PerParameterOptimizer):
    """Adadelta: steps as large as recent ones, over the root of the mean square of the gradient.

    Zeiler, *ADADELTA: An Adaptive Learning Rate Method*, arXiv:1212.5701.

    Args:
        params: tensors, `(name, tensor)` pairs or parameter groups.
        lr: what a step is multiplied by; as a 1-element tensor it is never read, so a captured
            step follows it.
        rho: how much of the averages of squared gradients and squared steps is kept.
        eps: added to both averages before their roots are taken.
        weight_decay: factor of the L2 penalty.
        foreach: accepted; every update is fused, with the same result.
        capturable: keep the step count in a tensor, so that a captured step counts on.
        maximize: climb instead.
        differentiable: record the step, so that gradients flow through it: `param` must be no leaf then.

    Raises:
        ValueError: an option is out of its range.

    Example:
        >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
        >>> optimizer = adjit.optim.Adadelta([w], lr=100.0)
        >>> w.square().sum().backward()
        >>> optimizer.step()
        >>> w
        tensor([0.6838, 1.6838], requires_grad=True)
    """

    _kernel = "adadelta_step"
    _followed = frozenset({"lr", "rho", "eps", "weight_decay", "maximize"})

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_learning_rate(lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        check_not_negative(epsilon=eps, weight_decay=weight_decay)
        check_flags(foreach, None, differentiable)
        super().__init__(
            params,
            {
                "lr": lr,
                "rho": rho,
                "eps": eps,
                "weight_decay": weight_decay,
                "maximize": maximize,
                "capturable": capturable,
                "foreach": foreach,
                "differentiable": differentiable,
            },
        )
        steps.prepare(self._kernel, self._params_of_groups())

    def _update(
        self, param: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        """Step along the gradient, times the root of the mean squared step over its own."""
        rho, eps = group["rho"], group["eps"]
        if not state:
            state.update(self._first_state(param, group))
        self._count(state, group)
        grad = penalised(grad, param, group)

        square, moved = state["square_avg"], state["acc_delta"]
        square.mul_(rho).addcmul_(grad, grad, value=1 - rho)
        delta = moved.add(eps).sqrt() / square.add(eps).sqrt() * grad
        moved.mul_(rho).addcmul_(delta, delta, value=1 - rho)
        descend(param, delta, as_scalar(group["lr"]))

    def _counts(self, group: dict[str, Any]) -> bool:
        return False

    def _moments(self, group: dict[str, Any]) -> list[str]:
        return ["square_avg", "acc_delta"]

    def _numbers_of_all(self, group: dict[str, Any]) -> Sequence[float]:
        return group["rho"], 1 - group["rho"], group["eps"], group["lr"]
