"""Adamax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ops import steps
from ..tensor import Tensor
from .optimizer import (
    ParamsT,
    PerParameterOptimizer,
    as_scalar,
    check_betas,
    check_flags,
    check_learning_rate,
    check_not_negative,
    descend_ratio,
    kept,
    penalised,
)


class Adamax(PerParameterOptimizer):
    """Adamax: Adam with the largest recent gradient in the place of the mean square.

    Kingma and Ba, *Adam: A Method for Stochastic Optimization*, arXiv:1412.6980, section 7.1.

    Args:
        params: tensors, `(name, tensor)` pairs or parameter groups.
        lr: learning rate; as a 1-element tensor it is never read, so a captured step follows it.
        betas: how much of the average of the gradient and of its largest size is kept.
        eps: added to the size of each gradient.
        weight_decay: factor of the L2 penalty.
        foreach: accepted; every update is fused, with the same result.
        maximize: climb instead.
        differentiable: record the step, so that gradients flow through it: `param` must be no leaf then.
        capturable: keep the step count in a tensor, so that a captured step counts on.

    Raises:
        ValueError: an option is out of its range.

    Example:
        >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
        >>> optimizer = adjit.optim.Adamax([w], lr=0.1)
        >>> w.square().sum().backward()
        >>> optimizer.step()
        >>> w
        tensor([0.9000, 1.9000], requires_grad=True)
    """

    _kernel = "adamax_step"
    _followed = frozenset({"lr", "betas", "eps", "weight_decay", "maximize"})

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_learning_rate(lr)
        check_not_negative(epsilon=eps)
        check_betas(betas)
        check_not_negative(weight_decay=weight_decay)
        check_flags(foreach, None, differentiable)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "foreach": foreach,
                "maximize": maximize,
                "differentiable": differentiable,
                "capturable": capturable,
            },
        )
        steps.prepare(self._kernel, self._params_of_groups())

    def _update(
        self, param: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        """Step along the mean gradient, without bias, over the largest recent one."""
        beta1, beta2 = group["betas"]
        if not state:
            state.update(self._first_state(param, group))
        [rate] = self._count(state, group)
        grad = penalised(grad, param, group)

        mean, largest = state["exp_avg"], state["exp_inf"]
        mean.lerp_(grad, 1 - beta1)
        largest.copy_((largest * beta2).maximum(grad.abs().add_(group["eps"])))
        descend_ratio(param, mean, kept(largest), rate)

    def _moments(self, group: dict[str, Any]) -> list[str]:
        return ["exp_avg", "exp_inf"]

    def _advance(
        self, group: dict[str, Any], step: Any, *others: Any
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        return (), [as_scalar(group["lr"]) / (1 - group["betas"][0] ** step)]

    def _numbers_of_all(self, group: dict[str, Any]) -> Sequence[float]:
        beta1, beta2 = group["betas"]
        return 1 - beta1, beta2, group["eps"]
