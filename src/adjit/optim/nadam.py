"""NAdam."""

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
    decayed,
    descend_ratio,
    rounded,
    shrinking,
)


class NAdam(PerParameterOptimizer):
    """NAdam: Adam with Nesterov's momentum, which steps along the gradient that comes next.

    Dozat, *Incorporating Nesterov Momentum into Adam*, ICLR workshop 2016.

    Args:
        params: tensors, `(name, tensor)` pairs or parameter groups.
        lr: learning rate; as a 1-element tensor it is never read, so a captured step follows it.
        betas: how much of the averages of gradient and squared gradient is kept.
        eps: added to the denominator.
        weight_decay: factor of the L2 penalty.
        momentum_decay: how fast the momentum approaches `betas[0]`.
        decoupled_weight_decay: shrink the parameters instead of penalising them, as AdamW does.
        foreach: accepted; every update is fused, with the same result.
        maximize: climb instead.
        capturable: keep the step count in a tensor, so that a captured step counts on.
        differentiable: record the step, so that gradients flow through it: `param` must be no leaf then.

    Raises:
        ValueError: an option is out of its range.

    Example:
        >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
        >>> optimizer = adjit.optim.NAdam([w], lr=0.1)
        >>> w.square().sum().backward()
        >>> optimizer.step()
        >>> w
        tensor([0.8944, 1.8944], requires_grad=True)
    """

    _numbers = ("step", "mu_product")

    _kernel = "nadam_step"
    _followed = frozenset(
        {
            "lr",
            "betas",
            "eps",
            "weight_decay",
            "momentum_decay",
            "maximize",
            "decoupled_weight_decay",
        }
    )

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_learning_rate(lr)
        check_not_negative(epsilon=eps)
        check_betas(betas)
        check_not_negative(weight_decay=weight_decay, momentum_decay=momentum_decay)
        check_flags(foreach, None, differentiable)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "momentum_decay": momentum_decay,
                "decoupled_weight_decay": decoupled_weight_decay,
                "maximize": maximize,
                "foreach": foreach,
                "capturable": capturable,
                "differentiable": differentiable,
            },
        )
        steps.prepare(self._kernel, self._params_of_groups())

    def _update(
        self, param: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        """Step along the gradient and along its mean, weighted for this step and the next."""
        beta1, beta2 = group["betas"]
        if not state:
            state.update(self._first_state(param, group))
        rate, rate_of_mean, correction = self._count(state, group)

        grad = decayed(param, grad, group)
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        mean.lerp_(grad, 1 - beta1)
        square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        scale = (square / correction).sqrt() + group["eps"]
        descend_ratio(param, grad, scale, rate)
        descend_ratio(param, mean, scale, rate_of_mean)

    def _moments(self, group: dict[str, Any]) -> list[str]:
        return ["exp_avg", "exp_avg_sq"]

    def _advance(
        self, group: dict[str, Any], step: Any, *others: Any
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        lr, (beta1, beta2) = as_scalar(group["lr"]), group["betas"]
        momentum, coming = (
            beta1 * (1 - 0.5 * 0.96 ** (n * group["momentum_decay"])) for n in (step, step + 1)
        )
        product = rounded(others[0] * rounded(momentum))
        rates = lr * (1 - momentum) / (1 - product), lr * coming / (1 - product * coming)
        return [product], (*rates, 1 - beta2**step)

    def _numbers_of_all(self, group: dict[str, Any]) -> Sequence[float]:
        beta1, beta2 = group["betas"]
        return shrinking(group), 1 - beta1, beta2, 1 - beta2, group["eps"]
