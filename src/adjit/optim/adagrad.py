"""Adagrad."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ops import steps
from ..ops.creation import full_like
from ..tensor import Tensor
from .optimizer import (
    ParamsT,
    PerParameterOptimizer,
    as_scalar,
    check_flags,
    check_learning_rate,
    check_not_negative,
    descend_ratio,
    penalised,
)


class Adagrad(PerParameterOptimizer):
    """Adagrad: steps scaled by the sum of all squared gradients so far.

    Duchi, Hazan and Singer, *Adaptive Subgradient Methods for Online Learning and Stochastic
    Optimization*, JMLR 12, 2011.

    Args:
        params: tensors, `(name, tensor)` pairs or parameter groups.
        lr: learning rate; as a 1-element tensor it is never read, so a captured step follows it.
        lr_decay: the n-th step is divided by `1 + (n - 1) * lr_decay`.
        weight_decay: factor of the L2 penalty.
        initial_accumulator_value: where the sum of squares starts.
        eps: added to the denominator.
        maximize: climb instead.
        foreach, fused: accepted; every update is fused, with the same result.
        differentiable: record the step, so that gradients flow through it: `param` must be no leaf then.

    Raises:
        ValueError: an option is out of its range.

    Example:
        >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
        >>> optimizer = adjit.optim.Adagrad([w], lr=0.1)
        >>> w.square().sum().backward()
        >>> optimizer.step()
        >>> w
        tensor([0.9000, 1.9000], requires_grad=True)
    """

    _kernel = "adagrad_step"
    _followed = frozenset({"lr", "lr_decay", "eps", "weight_decay", "maximize"})

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_learning_rate(lr)
        check_not_negative(
            lr_decay=lr_decay,
            weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value,
            epsilon=eps,
        )
        check_flags(foreach, fused, differentiable)
        super().__init__(
            params,
            {
                "lr": lr,
                "lr_decay": lr_decay,
                "eps": eps,
                "weight_decay": weight_decay,
                "initial_accumulator_value": initial_accumulator_value,
                "foreach": foreach,
                "maximize": maximize,
                "differentiable": differentiable,
                "fused": fused,
            },
        )
        for group in self.param_groups:
            for param in group["params"]:
                self.state[param] = self._first_state(param, group)
        steps.prepare(self._kernel, self._params_of_groups())

    def _update(
        self, param: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        """Step along the gradient over the root of the sum of squares."""
        if not state:
            state.update(self._first_state(param, group))
        [lr] = self._count(state, group)
        grad = penalised(grad, param, group)
        state["sum"].addcmul_(grad, grad)
        descend_ratio(param, grad, state["sum"].sqrt() + group["eps"], lr)

    def _counts(self, group: dict[str, Any]) -> bool:
        return bool(group["lr_decay"] != 0)

    def _first_state(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        total = full_like(param, group["initial_accumulator_value"])
        return {"step": self._first_step(param, group), "sum": total}

    def _moments(self, group: dict[str, Any]) -> list[str]:
        return ["sum"]

    def _advance(
        self, group: dict[str, Any], step: Any, *others: Any
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        return (), [as_scalar(group["lr"]) / (1 + (step - 1) * group["lr_decay"])]

    def _numbers_of_all(self, group: dict[str, Any]) -> Sequence[float]:
        return [group["eps"]]
