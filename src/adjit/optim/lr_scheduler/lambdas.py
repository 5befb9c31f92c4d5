"""Schedules made from a function of the epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..optimizer import Optimizer
from .base import LRScheduler, Rate, document_common_args, state_of_callable


class _LambdaScheduler(LRScheduler):
    """What the two schedules made from a function share."""

    lr_lambdas: list[Callable[[int], float]]

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        groups = len(optimizer.param_groups)
        if isinstance(lr_lambda, (list, tuple)):
            if len(lr_lambda) != groups:
                raise ValueError(f"Expected {groups} lr_lambdas, but got {len(lr_lambda)}")
            self.lr_lambdas = list(lr_lambda)
        else:
            self.lr_lambdas = [lr_lambda] * groups  # type: ignore[list-item]
        for function in self.lr_lambdas:
            if not callable(function):
                raise TypeError(
                    f"lr_lambda should be a function, but got {type(function).__name__}"
                )
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimiser and the functions; of callable objects, their attributes.

        Example:
            >>> optimizer = adjit.optim.SGD([adjit.zeros(1, requires_grad=True)], lr=1.0)
            >>> scheduler = adjit.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.95**epoch)
            >>> scheduler.state_dict()["last_epoch"]
            0
        """
        state = super().state_dict()
        state["lr_lambdas"] = [state_of_callable(function) for function in self.lr_lambdas]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned.

        Example:
            >>> optimizer = adjit.optim.SGD([adjit.zeros(1, requires_grad=True)], lr=1.0)
            >>> scheduler = adjit.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.95**epoch)
            >>> scheduler.load_state_dict({**scheduler.state_dict(), "last_epoch": 5})
            >>> scheduler.last_epoch
            5
        """
        functions = self.lr_lambdas
        super().load_state_dict({**state_dict, "lr_lambdas": functions})
        for function, state in zip(functions, state_dict["lr_lambdas"], strict=True):
            if state is not None:
                function.__dict__.update(state)


@document_common_args
class LambdaLR(_LambdaScheduler):
    """The initial learning rate times a function of the epoch.

    Args:
        lr_lambda: a function from the epoch to a factor, or one for each group.

    Raises:
        ValueError: there are not as many functions as groups.

    Example:
        >>> optimizer = adjit.optim.SGD([adjit.zeros(1, requires_grad=True)], lr=1.0)
        >>> scheduler = adjit.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.95**epoch)
        >>> for epoch in range(2):
        ...     optimizer.step()
        ...     scheduler.step()
        ...     print(round(scheduler.get_last_lr()[0], 4))
        0.95
        0.9025
    """

    def get_lr(self) -> list[Rate]:
        """`initial_lr * f(epoch)`."""
        self._warn_outside_step()
        return [
            base * function(self.last_epoch)
            for function, base in zip(self.lr_lambdas, self.base_lrs, strict=True)
        ]


@document_common_args
class MultiplicativeLR(_LambdaScheduler):
    """The present learning rate times a function of the epoch.

    Args:
        lr_lambda: a function from the epoch to a factor, or one for each group.

    Raises:
        ValueError: there are not as many functions as groups.
        TypeError: something that cannot be called.

    Example:
        >>> optimizer = adjit.optim.SGD([adjit.zeros(1, requires_grad=True)], lr=1.0)
        >>> scheduler = adjit.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda epoch: 0.95)
        >>> for epoch in range(2):
        ...     optimizer.step()
        ...     scheduler.step()
        ...     print(round(scheduler.get_last_lr()[0], 4))
        0.95
        0.9025
    """

    def get_lr(self) -> list[Rate]:
        """`lr * f(epoch)`."""
        self._warn_outside_step()
        if self._is_initial:
            return self._unchanged()
        return [
            group["lr"] * function(self.last_epoch)
            for function, group in zip(self.lr_lambdas, self.optimizer.param_groups, strict=True)
        ]
