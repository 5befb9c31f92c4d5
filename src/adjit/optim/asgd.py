"""Averaged stochastic gradient descent."""

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
    rounded,
)


class ASGD(PerParameterOptimizer):
    """Gradient descent with a decaying rate, which keeps the average of what it passed.

    Polyak and Juditsky, *Acceleration of Stochastic Approximation by Averaging*, SIAM Journal on
    Control and Optimization 30, 1992. The average is `state[param]["ax"]`.

    Args:
        params: tensors, `(name, tensor)` pairs or parameter groups.
        lr: learning rate at the start; as a 1-element tensor it is never read.
        lambd: how fast the parameters shrink, and the rate decays.
        alpha: the power of the rate's decay.
        t0: the step at which averaging begins.
        weight_decay: factor of the L2 penalty.
        foreach: accepted; every update is fused, with the same result.
        maximize: climb instead.
        differentiable: record the step, so that gradients flow through it: `param` must be no leaf then.
        capturable: keep step count and rate in tensors, so that a captured step counts on.

    Raises:
        ValueError: an option is out of its range.

    Example:
        >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
        >>> optimizer = adjit.optim.ASGD([w], lr=0.1)
        >>> w.square().sum().backward()
        >>> optimizer.step()
        >>> w
        tensor([0.8000, 1.6000], requires_grad=True)
    """

    _numbers = ("step", "eta", "mu")

    _kernel = "asgd_step"
    _followed = frozenset({"lr", "lambd", "alpha", "t0", "weight_decay", "maximize"})

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_learning_rate(lr)
        check_not_negative(weight_decay=weight_decay)
        check_flags(foreach, None, differentiable)
        super().__init__(
            params,
            {
                "lr": lr,
                "lambd": lambd,
                "alpha": alpha,
                "t0": t0,
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
        """Shrink, step along the gradient, and average."""
        if not state:
            state.update(self._first_state(param, group))
        shrink, eta, mu = self._count(state, group)
        average = state["ax"]
        grad = penalised(grad, param, group)

        param.mul_(shrink)
        descend(param, grad, eta)
        if isinstance(mu, Tensor) or mu != 1:
            average.add_((param - average) * mu)
        else:
            average.copy_(param)

    def _first_state(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        eta = self._first_number(as_scalar(group["lr"]), param, group)
        return {**super()._first_state(param, group), "eta": eta}

    def _moments(self, group: dict[str, Any]) -> list[str]:
        return ["ax"]

    def _advance(
        self, group: dict[str, Any], step: Any, *others: Any
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        lr, lambd, (eta, mu) = as_scalar(group["lr"]), group["lambd"], others
        averaged = step - group["t0"]
        many = averaged.clamp(min=1) if isinstance(averaged, Tensor) else max(1, averaged)
        coming = rounded(lr / (1 + lambd * lr * step) ** group["alpha"]), rounded(1 / many)
        return coming, (1 - lambd * eta, eta, mu)
