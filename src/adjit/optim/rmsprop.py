"""RMSprop."""

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
    descend_ratio,
    kept,
    penalised,
)


class RMSprop(PerParameterOptimizer):
    """RMSprop: steps scaled by a running average of the squared gradient (Tieleman and Hinton, 2012).

    Hinton's lecture notes; the centred version is from Graves, *Generating Sequences With
    Recurrent Neural Networks*, arXiv:1308.0850. `eps` is added after the square root.

    Args:
        params: tensors, `(name, tensor)` pairs or parameter groups.
        lr: learning rate; as a 1-element tensor it is never read, so a captured step follows it.
        alpha: how much of the averages is kept.
        eps: added to the denominator.
        weight_decay: factor of the L2 penalty.
        momentum: how much of the velocity is kept.
        centered: divide by an estimate of the gradient's standard deviation instead.
        capturable: keep the step count in a tensor, so that a captured step counts on.
        maximize: climb instead.
        foreach: accepted; every update is fused, with the same result.
        differentiable: record the step, so that gradients flow through it: `param` must be no leaf then.

    Raises:
        ValueError: an option is out of its range.

    Example:
        >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
        >>> optimizer = adjit.optim.RMSprop([w], lr=0.05, momentum=0.9)
        >>> w.square().sum().backward()
        >>> optimizer.step()
        >>> w
        tensor([0.5000, 1.5000], requires_grad=True)
    """

    _kernel = "rmsprop_step"
    _followed = frozenset({"lr", "alpha", "eps", "weight_decay", "maximize"})

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_learning_rate(lr)
        check_not_negative(epsilon=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha)
        check_flags(foreach, None, differentiable)
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "alpha": alpha,
                "eps": eps,
                "centered": centered,
                "weight_decay": weight_decay,
                "capturable": capturable,
                "foreach": foreach,
                "maximize": maximize,
                "differentiable": differentiable,
            },
        )
        steps.prepare(self._kernel, self._params_of_groups())

    def _update(
        self, param: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        """Step along the gradient, or its velocity, over the root of the mean square."""
        lr, alpha, momentum = as_scalar(group["lr"]), group["alpha"], group["momentum"]
        if not state:
            state.update(self._first_state(param, group))
        self._count(state, group)

        grad = penalised(grad, param, group)

        square = state["square_avg"]
        square.mul_(alpha).addcmul_(grad, grad, value=1 - alpha)
        if group["centered"]:
            mean = state["grad_avg"]
            mean.lerp_(grad, 1 - alpha)
            square = square.addcmul(kept(mean), kept(mean), value=-1)
        scale = square.sqrt() + group["eps"]
        if momentum > 0:
            velocity = state["momentum_buffer"]
            velocity.mul_(momentum).addcdiv_(grad, scale)
            descend(param, velocity, lr)
        else:
            descend_ratio(param, grad, scale, lr)

    def _counts(self, group: dict[str, Any]) -> bool:
        return False

    def _moments(self, group: dict[str, Any]) -> list[str]:
        velocity, mean = self._choices(group)
        return ["square_avg", *["momentum_buffer"] * velocity, *["grad_avg"] * mean]

    def _numbers_of_all(self, group: dict[str, Any]) -> Sequence[float]:
        alpha = group["alpha"]
        return alpha, 1 - alpha, 1 - alpha, group["eps"], group["lr"], group["momentum"]

    def _choices(self, group: dict[str, Any]) -> Sequence[int]:
        return int(group["momentum"] > 0), int(bool(group["centered"]))
