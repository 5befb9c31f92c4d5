"""Adafactor."""

from __future__ import annotations

from typing import Any

from ..dtypes import finfo
from ..ops.creation import zeros_like
from ..ops.steps import number
from ..tensor import Tensor
from .optimizer import (
    ParamsT,
    PerParameterOptimizer,
    as_scalar,
    check_flags,
    check_learning_rate,
)


class Adafactor(PerParameterOptimizer):
    """Adafactor: the mean square of a gradient is kept as one column and one row of each matrix.

    Shazeer and Stern, *Adafactor: Adaptive Learning Rates with Sublinear Memory Cost*,
    arXiv:1804.04235. Parameters of more dimensions are stacks of matrices; those of fewer keep
    the whole mean square.

    Args:
        params: tensors, `(name, tensor)` pairs or parameter groups.
        lr: the largest step, relative to the size of a parameter; as a 1-element tensor it is
            never read.
        beta2_decay: the n-th gradient enters the averages with weight `n**beta2_decay`.
        eps: the least root of a mean square (None: the dtype's epsilon) and the least size that a
            parameter is taken for.
        d: updates whose root mean square is larger are scaled down to it.
        weight_decay: how fast the parameters shrink.
        foreach: accepted; every update is fused, with the same result.
        maximize: climb instead.

    Raises:
        ValueError: an option is out of its range.

    Example:
        >>> w = adjit.tensor([1.0, 2.0], requires_grad=True)
        >>> optimizer = adjit.optim.Adafactor([w], lr=0.1)
        >>> w.square().sum().backward()
        >>> optimizer.step()
        >>> w
        tensor([0.8419, 1.8419], requires_grad=True)
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        check_learning_rate(lr, "Learning rate should be >= 0 but is: ")
        if not beta2_decay <= 0.0:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        for i, least in enumerate(eps, 1):
            if least is not None and not least >= 0.0:
                raise ValueError(f"epsilon{i} should be >= 0 but is: {least}")
        if not d >= 1.0:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight_decay should be >= 0 but is: {weight_decay}")
        check_flags(foreach, None, False)
        super().__init__(
            params,
            {
                "lr": lr,
                "beta2_decay": beta2_decay,
                "eps": eps,
                "d": d,
                "weight_decay": weight_decay,
                "foreach": foreach,
                "maximize": maximize,
            },
        )

    def _update(
        self, param: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        """Step along the gradient over the estimated root of its mean square, bounded."""
        lr, (least_root, least_size) = as_scalar(group["lr"]), group["eps"]
        if least_root is None:
            least_root = finfo(param.dtype).eps
        if not state:
            state["step"] = self._first_step(param, group)
            if grad.ndim > 1:
                state["row_var"] = grad.new_zeros((*grad.shape[:-1], 1))
                state["col_var"] = grad.new_zeros((*grad.shape[:-2], 1, grad.shape[-1]))
            else:
                state["variance"] = zeros_like(grad)
        state["step"] += 1
        weight = number(lambda: state["step"] ** group["beta2_decay"], param)
        rate: Any
        if isinstance(lr, Tensor):
            rate = lr.clamp(max=number(lambda: 1 / state["step"] ** 0.5, lr))
        else:
            rate = number(lambda: min(group["lr"], 1 / state["step"] ** 0.5), param)
        rate = _root_mean_square(param).clamp(min=least_size) * rate
        if group["weight_decay"] != 0:
            param.mul_(1 - lr * group["weight_decay"])

        if grad.ndim > 1:
            rows, columns = state["row_var"], state["col_var"]
            rows.lerp_(grad.square().mean(-1, keepdim=True), weight)
            columns.lerp_(grad.square().mean(-2, keepdim=True), weight)
            mean_square = rows * columns / rows.mean(-2, keepdim=True).clamp(min=least_root)
        else:
            mean_square = state["variance"].lerp_(grad.square(), weight)
        update = mean_square.clamp(min=least_root * least_root).rsqrt() * grad
        excess = (_root_mean_square(update) / group["d"]).clamp(min=1.0)
        param.addcmul_(update, rate / excess, value=-1)

    def _counts(self, group: dict[str, Any]) -> bool:
        return False  # what it computes with them is followed


def _root_mean_square(x: Tensor) -> Tensor:
    """A 0-d tensor: the size of a typical element."""
    return x.norm() / x.numel() ** 0.5
