"""RAdam."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ops import steps
from ..ops.comparison import where
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
    descend,
    shrinking,
)


class RAdam(PerParameterOptimizer):
    """RAdam: Adam that divides by the mean square only once that is known well enough.

    Liu et al., *On the Variance of the Adaptive Learning Rate and Beyond*, arXiv:1908.03265.

    Args:
        params: tensors, `(name, tensor)` pairs or parameter groups.
        lr: learning rate; as a 1-element tensor it is never read, so a captured step follows it.
        betas: how much of the averages of gradient and squared gradient is kept.
        eps: added to the denominator.
        weight_decay: factor of the L2 penalty.
        decoupled_weight_decay: shrink the parameters instead of penalising them, as AdamW does.
        foreach: accepted; every update is fused, with the same result.
        maximize: climb instead.
        capturable: keep the step count in a tensor, so that a captured step counts on.
        differentiable: record the step, so that gradients flow through it: `param` must be no leaf then.

    Raises:
        ValueError: an option is out of its range.

    Example:
        >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
        >>> optimizer = adjit.optim.RAdam([w], lr=0.1)
        >>> w.square().sum().backward()
        >>> optimizer.step()
        >>> w
        tensor([0.8000, 1.6000], requires_grad=True)
    """

    _kernel = "radam_step"
    _followed = frozenset(
        {"lr", "betas", "eps", "weight_decay", "maximize", "decoupled_weight_decay"}
    )

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
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
        check_not_negative(weight_decay=weight_decay)
        check_flags(foreach, None, differentiable)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "maximize": maximize,
                "foreach": foreach,
                "capturable": capturable,
                "decoupled_weight_decay": decoupled_weight_decay,
                "differentiable": differentiable,
            },
        )
        steps.prepare(self._kernel, self._params_of_groups())

    def _update(
        self, param: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        """Step along the mean gradient, from the sixth step on over the root of the mean square."""
        lr, (beta1, beta2) = as_scalar(group["lr"]), group["betas"]
        if not state:
            state.update(self._first_state(param, group))
        correction, root, share = self._count(state, group)

        grad = decayed(param, grad, group)
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        mean.lerp_(grad, 1 - beta1)
        square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        direction = mean / correction
        if isinstance(share, Tensor) or share != 0:
            rectified = root / (square.sqrt() + group["eps"]) * share
            if isinstance(share, Tensor):
                rectified = where(share != 0, rectified, 1.0)
            direction = direction * rectified
        descend(param, direction, lr)

    def _moments(self, group: dict[str, Any]) -> list[str]:
        return ["exp_avg", "exp_avg_sq"]

    def _advance(
        self, group: dict[str, Any], step: Any, *others: Any
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        beta1, beta2 = group["betas"]
        kept = 1 - beta2**step
        longest = 2 / (1 - beta2) - 1  # of the average: how many gradients are in it
        length = longest - 2 * step * beta2**step / kept
        is_tensor = isinstance(length, Tensor)
        share: Any = 0.0
        if is_tensor or length > 5:
            share = (length - 4) * (length - 2) * longest
            share = (share / ((longest - 4) * (longest - 2) * length)) ** 0.5
        share = where(length > 5, share, 0.0) if is_tensor else share
        return (), (1 - beta1**step, kept**0.5, share)

    def _numbers_of_all(self, group: dict[str, Any]) -> Sequence[float]:
        beta1, beta2 = group["betas"]
        return shrinking(group), 1 - beta1, beta2, 1 - beta2, group["eps"], group["lr"]
