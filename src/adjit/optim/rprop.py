"""Rprop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ops import steps
from ..ops.comparison import where
from ..ops.creation import zeros_like
from ..tensor import Tensor
from .optimizer import (
    ParamsT,
    PerParameterOptimizer,
    as_scalar,
    check_flags,
    check_learning_rate,
    kept,
)


class Rprop(PerParameterOptimizer):
    """Resilient backpropagation: only the signs of gradients count, each element has its own step.

    Riedmiller and Braun, *A Direct Adaptive Method for Faster Backpropagation Learning: The RPROP
    Algorithm*, ICNN 1993. For gradients of all data, not of small batches.

    Args:
        params: tensors, `(name, tensor)` pairs or parameter groups.
        lr: the size of the first step; later ones follow from it.
        etas: what a step is multiplied by where the gradient's sign has changed, and where not.
        step_sizes: the smallest and the largest step.
        capturable: keep the step count in a tensor, so that a captured step counts on.
        foreach: accepted; every update is fused, with the same result.
        maximize: climb instead.
        differentiable: record the step, so that gradients flow through it: `param` must be no leaf then.

    Raises:
        ValueError: an option is out of its range.

    Example:
        >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
        >>> optimizer = adjit.optim.Rprop([w], lr=0.1)
        >>> w.square().sum().backward()
        >>> optimizer.step()
        >>> w
        tensor([0.9000, 1.9000], requires_grad=True)
    """

    _kernel = "rprop_step"
    _followed = frozenset({"etas", "step_sizes", "maximize"})

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_learning_rate(lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        check_flags(foreach, None, differentiable)
        super().__init__(
            params,
            {
                "lr": lr,
                "etas": etas,
                "step_sizes": step_sizes,
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
        """Step against the gradient's sign; where that has changed, wait."""
        (slower, faster), (least, most) = group["etas"], group["step_sizes"]
        if not state:
            state.update(self._first_state(param, group))
        self._count(state, group)

        same = grad * kept(state["prev"])  # above zero where the sign is the one of before
        factor = where(same < 0, slower, where(same == 0, 1.0, same.sign()))  # NaN stays
        factor = where(same > 0, faster, factor)
        state["step_size"].mul_(factor).clamp_(least, most)
        grad = where(same < 0, 0.0, grad)
        param.addcmul_(grad.sign(), kept(state["step_size"]), value=-1)
        state["prev"].copy_(grad)

    def _counts(self, group: dict[str, Any]) -> bool:
        return False

    def _first_state(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        sizes = zeros_like(param).add_(as_scalar(group["lr"]))
        return {**super()._first_state(param, group), "step_size": sizes}

    def _moments(self, group: dict[str, Any]) -> list[str]:
        return ["prev", "step_size"]

    def _numbers_of_all(self, group: dict[str, Any]) -> Sequence[float]:
        return *group["etas"], *group["step_sizes"]
