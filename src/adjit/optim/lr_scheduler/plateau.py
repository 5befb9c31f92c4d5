"""The schedule that follows a metric."""

from __future__ import annotations

import math
from typing import Literal, SupportsFloat

from ..optimizer import Optimizer
from .base import LRScheduler, of_groups, require_optimizer, set_option, warn_epoch


class ReduceLROnPlateau(LRScheduler):
    """Times `factor` when a metric has not improved for more than `patience` epochs.

    Args:
        optimizer: whose learning rates are scheduled.
        mode: `"min"` or `"max"`: which way is better.
        factor: below 1.
        patience: epochs without improvement that are let pass.
        threshold: how much counts as an improvement.
        threshold_mode: `"rel"` to the best value, or `"abs"`.
        cooldown: epochs after a reduction in which nothing is counted.
        min_lr: the lowest learning rate, or one for each group.
        eps: a smaller change of the learning rate is not made.

    Raises:
        ValueError: `factor` is not below 1, an unknown mode, the wrong number of `min_lr`.

    Example:
        >>> optimizer = adjit.optim.SGD([adjit.zeros(1, requires_grad=True)], lr=1.0)
        >>> scheduler = adjit.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "min", patience=1)
        >>> for loss in (1.0, 0.5, 0.6, 0.7, 0.8):
        ...     scheduler.step(loss)
        ...     print(scheduler.get_last_lr())
        [1.0]
        [1.0]
        [1.0]
        [0.1]
        [0.1]
    """

    best: float
    cooldown_counter: int
    num_bad_epochs: int

    def __init__(
        self,
        optimizer: Optimizer,
        mode: Literal["min", "max"] = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: Literal["rel", "abs"] = "rel",
        cooldown: int = 0,
        min_lr: list[float] | float = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        require_optimizer(optimizer)
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        groups = len(optimizer.param_groups)
        self.optimizer = optimizer
        self.default_min_lr: float | None
        if isinstance(min_lr, (list, tuple)):
            if len(min_lr) != groups:
                raise ValueError(f"expected {groups} min_lrs, got {len(min_lr)}")
            self.default_min_lr = None
            self.min_lrs = list(min_lr)
        else:
            self.default_min_lr = min_lr
            self.min_lrs = [min_lr] * groups
        self.mode = mode
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.cooldown = cooldown
        self.eps = eps
        self.last_epoch = 0
        self._last_lr = of_groups(optimizer, "lr")
        self._reset()

    @property
    def mode_worse(self) -> float:
        """The value that every other one improves on.

        Example:
            >>> optimizer = adjit.optim.SGD([adjit.zeros(1, requires_grad=True)], lr=1.0)
            >>> scheduler = adjit.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "min", patience=1)
            >>> scheduler.mode_worse
            inf
        """
        return math.inf if self.mode == "min" else -math.inf

    def _reset(self) -> None:
        """Forget the metrics so far."""
        self.best = self.mode_worse
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    def step(self, metrics: SupportsFloat, epoch: int | None = None) -> None:  # type: ignore[override]
        """Take note of a metric, and reduce the learning rates if it has not improved for long.

        Example:
            >>> optimizer = adjit.optim.SGD([adjit.zeros(1, requires_grad=True)], lr=1.0)
            >>> scheduler = adjit.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "min", patience=1)
            >>> scheduler.step(0.5)
            >>> scheduler.best, scheduler.get_last_lr()
            (0.5, [1.0])
        """
        current = float(metrics)
        if epoch is None:
            epoch = self.last_epoch + 1
        else:
            warn_epoch()
        self.last_epoch = epoch
        if self._is_better(current, self.best):
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr(epoch)
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = of_groups(self.optimizer, "lr")

    def _reduce_lr(self, epoch: int) -> None:
        """Called with the epoch, as subclasses that override it expect."""
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise RuntimeError(
                    f"The number of param groups in the `optimizer` ({len(groups)}) differs from "
                    f"when `ReduceLROnPlateau` was initialized ({len(self.min_lrs)}), usually due "
                    "to a new param group being added to the optimizer. Please modify the "
                    "`min_lrs` field to match the length of the `optimizer` param groups."
                )
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, lowest in zip(groups, self.min_lrs, strict=True):
            lr = float(group["lr"])
            reduced = max(lr * self.factor, lowest)
            if lr - reduced > self.eps:
                set_option(group, "lr", reduced)

    @property
    def in_cooldown(self) -> bool:
        """True if the last reduction is too recent to count bad epochs.

        Example:
            >>> optimizer = adjit.optim.SGD([adjit.zeros(1, requires_grad=True)], lr=1.0)
            >>> scheduler = adjit.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "min", patience=1)
            >>> scheduler.in_cooldown
            False
        """
        return self.cooldown_counter > 0

    def _is_better(self, value: float, best: float) -> bool:
        sign = -1 if self.mode == "min" else 1
        if self.threshold_mode == "rel":
            return sign * value > sign * (best * (1.0 + sign * self.threshold))
        return sign * value > sign * (best + sign * self.threshold)
