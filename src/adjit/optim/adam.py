"""Adam and AdamW."""

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
    kept,
    shrinking,
)


class Adam(PerParameterOptimizer):
    """Adam: steps scaled by running averages of the gradient and of its square.

    Kingma and Ba, *Adam: A Method for Stochastic Optimization*, arXiv:1412.6980; `amsgrad` is
    from Reddi, Kale and Kumar, *On the Convergence of Adam and Beyond*, ICLR 2018.

    Args:
        params: tensors, `(name, tensor)` pairs or parameter groups.
        lr: learning rate; as a 1-element tensor it is never read, so a captured step follows it.
        betas: how much of the averages of gradient and squared gradient is kept, numbers or 1-element tensors.
        eps: added to the denominator.
        weight_decay: factor of the L2 penalty.
        amsgrad: divide by the largest average of the squared gradient so far.
        maximize: climb instead.
        capturable: keep the step count in a tensor, so that a captured step counts on.
        decoupled_weight_decay: shrink the parameters instead of penalising them, as AdamW does.
        foreach, fused: accepted; every update is fused, with the same result.
        differentiable: record the step, so that gradients flow through it: `param` must be no leaf then.

    Raises:
        ValueError: an option is out of its range.

    Example:
        >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
        >>> optimizer = adjit.optim.Adam([w], lr=0.1)
        >>> w.square().sum().backward()
        >>> optimizer.step()
        >>> w
        tensor([0.9000, 1.9000], requires_grad=True)
    """

    _kernel = "adam_step"
    _followed = frozenset(
        {"lr", "betas", "eps", "weight_decay", "maximize", "decoupled_weight_decay"}
    )

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        for name, value in (("lr", lr), ("betas[0]", betas[0]), ("betas[1]", betas[1])):
            if isinstance(value, Tensor) and foreach and not capturable:
                raise ValueError(
                    f"{name} as a Tensor is not supported for capturable=False and foreach=True"
                )
        check_learning_rate(lr)
        check_not_negative(epsilon=eps, weight_decay=weight_decay)
        check_betas(betas)
        if not any(all(isinstance(beta, kind) for beta in betas) for kind in (float, Tensor)):
            raise ValueError("betas must be either both floats or both Tensors")
        check_flags(foreach, fused, differentiable)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": tuple(map(as_scalar, betas)),
                "eps": eps,
                "weight_decay": weight_decay,
                "amsgrad": amsgrad,
                "maximize": maximize,
                "foreach": foreach,
                "capturable": capturable,
                "differentiable": differentiable,
                "fused": fused,
                "decoupled_weight_decay": decoupled_weight_decay,
            },
        )
        steps.prepare(self._kernel, self._params_of_groups())

    def _update(
        self, param: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        """Step along the mean gradient over the root of the mean square, both unbiased."""
        beta1, beta2 = group["betas"]
        if not state:
            state.update(self._first_state(param, group))
        rate, correction = self._count(state, group)

        grad = decayed(param, grad, group)
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        mean.lerp_(grad, 1 - beta1)
        if isinstance(beta2, Tensor):
            square.lerp_(grad.square(), 1 - beta2)
        else:
            square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        if group["amsgrad"]:
            peak = state["max_exp_avg_sq"]
            square = peak.copy_(kept(peak).maximum(kept(square)))
        scale = square.sqrt() / correction + group["eps"]
        descend_ratio(param, mean, scale, rate)

    def _moments(self, group: dict[str, Any]) -> list[str]:
        return ["exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if group["amsgrad"] else [])]

    def _is_composed(self, group: dict[str, Any]) -> bool:
        return isinstance(group["betas"][0], Tensor) or super()._is_composed(group)

    def _advance(
        self, group: dict[str, Any], step: Any, *others: Any
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        beta1, beta2 = group["betas"]
        rate = as_scalar(group["lr"]) / (1 - beta1**step)
        return (), (rate, (1 - beta2**step) ** 0.5)

    def _numbers_of_all(self, group: dict[str, Any]) -> Sequence[float]:
        beta1, beta2 = group["betas"]
        return shrinking(group), 1 - beta1, beta2, 1 - beta2, group["eps"]

    def _choices(self, group: dict[str, Any]) -> Sequence[int]:
        return [int(bool(group["amsgrad"]))]


class AdamW(Adam):
    """Adam with decoupled weight decay: the parameters shrink by `lr * weight_decay` a step.

    Loshchilov and Hutter, *Decoupled Weight Decay Regularization*, arXiv:1711.05101.

    Args:
        params: tensors, `(name, tensor)` pairs or parameter groups.
        lr: learning rate; as a 1-element tensor it is never read, so a captured step follows it.
        betas: how much of the averages of gradient and squared gradient is kept, numbers or 1-element tensors.
        eps: added to the denominator.
        weight_decay: how fast the parameters shrink.
        amsgrad: divide by the largest average of the squared gradient so far.
        maximize: climb instead.
        capturable: keep the step count in a tensor, so that a captured step counts on.
        foreach, fused: accepted; every update is fused, with the same result.
        differentiable: record the step, so that gradients flow through it: `param` must be no leaf then.

    Raises:
        ValueError: an option is out of its range.

    Example:
        >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
        >>> optimizer = adjit.optim.AdamW([w], lr=0.1, weight_decay=0.05)
        >>> w.square().sum().backward()
        >>> optimizer.step()
        >>> w
        tensor([0.8950, 1.8900], requires_grad=True)
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:  # a checkpoint of Adam must not turn AdamW into Adam
            group["decoupled_weight_decay"] = True
