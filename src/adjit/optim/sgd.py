"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from operator import setitem
from typing import Any

from ..atomic import calling, together
from ..graph.state import state as switches
from ..ops import steps
from ..ops.creation import empty_like
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


class SGD(PerParameterOptimizer):
    """Stochastic gradient descent, with momentum and weight decay as options (Sutskever et al., 2013).

    The velocity starts as the first gradient, which dampening does not touch, and is not scaled by
    `lr`, as in PyTorch.

    Of a table of 1 MiB or more of which few rows were looked up (`nn.Embedding`, `w[indices]`), plain steps
    move those rows, with the bits of moving all, and its gradient is computed when somebody reads it.

    Args:
        params: tensors, `(name, tensor)` pairs or parameter groups.
        lr: learning rate; as a 1-element tensor it is never read, so a captured step follows it.
        momentum: how much of the velocity is kept.
        dampening: how much of the gradient is kept out of the velocity.
        weight_decay: factor of the L2 penalty.
        nesterov: step along gradient plus velocity; needs momentum and no dampening.
        maximize: climb instead.
        foreach, fused: accepted; every update is fused, with the same result.
        differentiable: record the step, so that gradients flow through it: `param` must be no leaf then.

    Raises:
        ValueError: an option is out of its range.

    Example:
        >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
        >>> optimizer = adjit.optim.SGD([w], lr=0.1, momentum=0.9)
        >>> w.square().sum().backward()
        >>> optimizer.step()
        >>> w
        tensor([0.8000, 1.6000], requires_grad=True)
    """

    _followed = frozenset({"lr", "momentum", "dampening", "weight_decay", "maximize"})

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_learning_rate(lr)
        check_not_negative(momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        check_flags(foreach, fused, differentiable)
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "dampening": dampening,
                "weight_decay": weight_decay,
                "nesterov": nesterov,
                "maximize": maximize,
                "foreach": foreach,
                "differentiable": differentiable,
                "fused": fused,
            },
        )
        steps.prepare("momentum_step" if momentum else "sgd_step", self._params_of_groups())

    def _update(
        self, param: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        """`velocity = momentum * velocity + (1 - dampening) * grad`; step along it."""
        momentum = group["momentum"]
        grad = penalised(grad, param, group)
        if momentum != 0:
            velocity = state.get("momentum_buffer")
            if velocity is None:
                velocity = state["momentum_buffer"] = grad.detach().clone()
            else:
                velocity.mul_(momentum).add_(grad, alpha=1 - group["dampening"])
            grad = grad.add(velocity, alpha=momentum) if group["nesterov"] else velocity
        descend(param, grad, as_scalar(group["lr"]))

    def _update_together(
        self, params: list[Tensor], grads: list[Any], states: list[Any], group: dict[str, Any],
        then: Sequence[Callable[[], object]],
    ) -> bool:  # fmt: skip
        momentum = group["momentum"]

        def numbers() -> list[float]:
            return [-1.0 if group["maximize"] else 1.0, group["weight_decay"], -group["lr"]]

        if switches.session is not None:
            switches.session.depends_on(lambda: group["momentum"] == 0)
        if momentum == 0:
            steps.sgd_step(params, grads, numbers)
            return True
        firsts = [state.get("momentum_buffer") is None for state in states]
        velocities = [
            empty_like(param) if first else state["momentum_buffer"]
            for param, state, first in zip(params, states, firsts, strict=True)
        ]
        done = None
        if any(firsts) or then:
            kept = map(setitem, states, repeat("momentum_buffer"), velocities)
            done = together(kept, calling(then))

        def numbers_with_momentum() -> list[float]:
            return [*numbers(), group["momentum"], 1 - group["dampening"]]

        steps.momentum_step(
            params, velocities, grads, firsts, numbers_with_momentum, group["nesterov"], done
        )
        return True
