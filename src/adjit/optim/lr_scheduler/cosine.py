"""Schedules that go down along half a cosine."""

from __future__ import annotations

import math

from ..optimizer import Optimizer
from .base import LRScheduler, Rate, document_common_args, of_groups, set_option


@document_common_args
class CosineAnnealingLR(LRScheduler):
    """Down to `eta_min` along half a cosine over `T_max` epochs, and up again.

    Loshchilov and Hutter, *SGDR*, arXiv:1608.03983, without the restarts.

    Args:
        T_max: epochs of half a period.
        eta_min: the lowest learning rate.

    Example:
        >>> optimizer = adjit.optim.SGD([adjit.zeros(1, requires_grad=True)], lr=1.0)
        >>> scheduler = adjit.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
        >>> for epoch in range(4):
        ...     optimizer.step()
        ...     scheduler.step()
        ...     print(round(scheduler.get_last_lr()[0], 4))
        0.8536
        0.5
        0.1464
        0.0
    """

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Rate]:
        """The height above `eta_min`, times the quotient of this epoch's height and the last's."""
        self._warn_outside_step()
        if self._is_initial:
            return self._unchanged()
        if self._step_count == 1 and self.last_epoch > 0:
            return self._get_closed_form_lr()
        groups = self.optimizer.param_groups
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            # The last height was zero, so the quotient is of no use: take this one's own.
            rise = 1 - math.cos(math.pi / self.T_max)
            return [
                group["lr"] + (base - self.eta_min) * rise / 2
                for base, group in zip(self.base_lrs, groups, strict=True)
            ]
        ratio = self._height(self.last_epoch) / self._height(self.last_epoch - 1)
        return [ratio * (group["lr"] - self.eta_min) + self.eta_min for group in groups]

    def _height(self, epoch: int) -> float:
        return 1 + math.cos(math.pi * epoch / self.T_max)

    def _get_closed_form_lr(self) -> list[Rate]:
        height = self._height(self.last_epoch)
        return [self.eta_min + (base - self.eta_min) * height / 2 for base in self.base_lrs]


@document_common_args
class CosineAnnealingWarmRestarts(LRScheduler):
    """Down to `eta_min` along half a cosine, again and again, each time `T_mult` times longer.

    Loshchilov and Hutter, *SGDR: Stochastic Gradient Descent with Warm Restarts*,
    arXiv:1608.03983.

    Args:
        T_0: epochs until the first restart.
        T_mult: how much longer each run is than the one before.
        eta_min: the lowest learning rate.

    Raises:
        ValueError: `T_0` or `T_mult` is no integer of at least 1.

    Example:
        >>> optimizer = adjit.optim.SGD([adjit.zeros(1, requires_grad=True)], lr=1.0)
        >>> scheduler = adjit.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2, T_mult=2)
        >>> for epoch in range(4):
        ...     optimizer.step()
        ...     scheduler.step()
        ...     print(round(scheduler.get_last_lr()[0], 4))
        0.5
        1.0
        0.8536
        0.5
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ValueError(
                f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}"
            )
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Rate]:
        """The cosine at `T_cur` of `T_i`."""
        self._warn_outside_step()
        height = 1 + math.cos(math.pi * self.T_cur / self.T_i)
        return [self.eta_min + (base - self.eta_min) * height / 2 for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Move on by an epoch, or to `epoch`, which may be a fraction.

        Raises:
            ValueError: `epoch` is negative.

        Example:
            >>> optimizer = adjit.optim.SGD([adjit.zeros(1, requires_grad=True)], lr=1.0)
            >>> scheduler = adjit.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2)
            >>> optimizer.step()
            >>> scheduler.step(0.5)  # in the middle of the first epoch
            >>> round(scheduler.get_last_lr()[0], 4)
            0.8536
        """
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        elif epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        else:
            self._go_to(epoch)
        self.last_epoch = math.floor(epoch)
        with self._within_step():
            for group, rate in zip(self.optimizer.param_groups, self.get_lr(), strict=True):
                set_option(group, "lr", rate)
        self._last_lr = of_groups(self.optimizer, "lr")

    def _go_to(self, epoch: float) -> None:
        """Find the run that `epoch` lies in; the lengths of runs are a geometric series."""
        if epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            run = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            begin = self.T_0 * (self.T_mult**run - 1) / (self.T_mult - 1)
            self.T_cur = epoch - begin
            self.T_i = self.T_0 * self.T_mult**run
