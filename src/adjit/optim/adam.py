"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..atomic import calling, together
from ..ops import steps
from ..ops.creation import zeros_like
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
)


class Adam(PerParameterOptimizer):
    """Adam: steps scaled by running averages of the gradient and of its square.

    Kingma and Ba, *Adam: A Method for Stochastic Optimization*, arXiv:1412.6980; `amsgrad` is
    from Reddi, Kale and Kumar, *On the Convergence of Adam and Beyond*, ICLR 2018.

    Args:
        params: tensors, `(name, tensor)` pairs or parameter groups.
        lr: learning rate; as a 1-element tensor it is never read, so a captured step follows it.
        betas: how much of the averages of gradient and squared gradient is kept.
        eps: added to the denominator.
        weight_decay: factor of the L2 penalty.
        amsgrad: divide by the largest average of the squared gradient so far.
        maximize: climb instead.
        capturable: keep the step count in a tensor, so that a captured step counts on.
        decoupled_weight_decay: shrink the parameters instead of penalising them, as AdamW does.
        foreach, fused: accepted; every update is fused, with the same result.
        differentiable: must be False.

    Raises:
        ValueError: an option is out of its range.
        NotImplementedError: `differentiable=True`.

    Example:
        >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
        >>> optimizer = adjit.optim.Adam([w], lr=0.1)
        >>> w.square().sum().backward()
        >>> optimizer.step()
        >>> w
        tensor([0.9000, 1.9000], requires_grad=True)
    """

    followed = frozenset(
        {"lr", "betas", "eps", "weight_decay", "maximize", "decoupled_weight_decay"}
    )

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
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
        check_learning_rate(lr)
        check_not_negative(epsilon=eps, weight_decay=weight_decay)
        check_betas(betas)
        if not all(isinstance(beta, float) for beta in betas):
            raise ValueError("betas must be both floats")
        check_flags(foreach, fused, differentiable)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
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
        steps.prepare(steps.adam_step, self._params())

    def update(
        self, param: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        """Step along the mean gradient over the root of the mean square, both unbiased."""
        lr, (beta1, beta2) = as_scalar(group["lr"]), group["betas"]
        if not state:
            state.update(self._first(param, group))
        state["step"] += 1
        step = state["step"]

        if group["weight_decay"] != 0:
            if group["decoupled_weight_decay"]:
                param.mul_(1 - lr * group["weight_decay"])
            else:
                grad = grad.add(param, alpha=group["weight_decay"])

        mean, square = state["exp_avg"], state["exp_avg_sq"]
        mean.lerp_(grad, 1 - beta1)
        square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        if group["amsgrad"]:
            peak = state["max_exp_avg_sq"]
            square = peak.copy_(peak.maximum(square))
        scale = square.sqrt().div_((1 - beta2**step) ** 0.5).add_(group["eps"])
        descend_ratio(param, mean, scale, lr / (1 - beta1**step))

    def _first(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """The state of a parameter before its first step."""
        names = ["exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if group["amsgrad"] else [])]
        return {
            "step": self.first_step(param, group),
            **{name: zeros_like(param) for name in names},
        }

    def update_together(
        self, params: list[Tensor], grads: list[Any], states: list[Any], group: dict[str, Any],
        then: Sequence[Callable[[], object]],
    ) -> bool:  # fmt: skip
        amsgrad = bool(group["amsgrad"])
        if not all(states):
            for param, state in zip(params, states, strict=True):
                if not state:
                    state.update(self._first(param, group))
        counts: list[Any] = []  # those of this step, until it is recorded

        def undo() -> None:
            for state, count in zip(states, counts, strict=False):
                state["step"] = count - 1

        def save() -> Callable[[], object]:
            counts.clear()
            return undo

        def numbers() -> list[float]:
            lr, (beta1, beta2), decay = group["lr"], group["betas"], group["weight_decay"]
            counts[:] = [state["step"] + 1 for state in states]
            for state in states:
                state["step"] += 1
            rates = {step: -lr / (1 - beta1**step) for step in set(counts)}
            corrections = {step: (1 - beta2**step) ** 0.5 for step in rates}
            decoupled = group["decoupled_weight_decay"]
            return [
                *[rates[step] for step in counts],
                *[corrections[step] for step in counts],
                -1.0 if group["maximize"] else 1.0,
                0.0 if decoupled else decay,
                1 - lr * decay if decoupled else 1.0,
                1 - beta1,
                beta2,
                1 - beta2,
                group["eps"],
            ]

        names = ["exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if amsgrad else [])]
        moments = [state[name] for name in names for state in states]
        done = together(calling((counts.clear, *then))) if then else counts.clear
        try:
            steps.adam_step(params, moments, grads, numbers, amsgrad, done, save)
        except BaseException:
            undo()
            raise
        return True


class AdamW(Adam):
    """Adam with decoupled weight decay: the parameters shrink by `lr * weight_decay` a step.

    Loshchilov and Hutter, *Decoupled Weight Decay Regularization*, arXiv:1711.05101.

    Args:
        params: tensors, `(name, tensor)` pairs or parameter groups.
        lr: learning rate; as a 1-element tensor it is never read, so a captured step follows it.
        betas: how much of the averages of gradient and squared gradient is kept.
        eps: added to the denominator.
        weight_decay: how fast the parameters shrink.
        amsgrad: divide by the largest average of the squared gradient so far.
        maximize: climb instead.
        capturable: keep the step count in a tensor, so that a captured step counts on.
        foreach, fused: accepted; every update is fused, with the same result.
        differentiable: must be False.

    Raises:
        ValueError: an option is out of its range.
        NotImplementedError: `differentiable=True`.

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
        betas: tuple[float, float] = (0.9, 0.999),
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
