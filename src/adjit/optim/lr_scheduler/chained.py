"""Schedules made of schedules."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from ..optimizer import Optimizer
from .base import LRScheduler, document_common_args, of_groups, set_option
from .plateau import ReduceLROnPlateau


class _ManySchedulers(LRScheduler):
    """What the schedules made of schedules share."""

    _schedulers: Sequence[LRScheduler]

    def _check(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None) -> Optimizer:
        """All are chainable and belong to one optimiser, which is returned."""
        name = type(self).__name__
        owner = optimizer or schedulers[0].optimizer
        for i, scheduler in enumerate(schedulers):
            if not hasattr(scheduler, "optimizer"):
                raise TypeError(f"{name} at index {i} should have `optimizer` as its attribute.")
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(
                    f"{name} does not support `ReduceLROnPlateau` scheduler as it requires "
                    "additional kwargs to be specified when calling `step`, but got one at index "
                    f"{i} in the given schedulers sequence."
                )
            if owner is not scheduler.optimizer:
                raise ValueError(
                    f"{name} expects all schedulers to belong to the same optimizer, but got "
                    f"scheduler {type(scheduler).__name__} at index {i} has "
                    f"{scheduler.optimizer}, which is different from {type(owner).__name__}."
                )
        return owner

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimiser, with the state of the schedules in it.

        Example:
            >>> optimizer = adjit.optim.SGD([adjit.zeros(1, requires_grad=True)], lr=1.0)
            >>> decays = [adjit.optim.lr_scheduler.ExponentialLR(optimizer, gamma) for gamma in (0.5, 0.1)]
            >>> scheduler = adjit.optim.lr_scheduler.ChainedScheduler(decays)
            >>> len(scheduler.state_dict()["_schedulers"])
            2
        """
        state = super().state_dict()
        state["_schedulers"] = [scheduler.state_dict() for scheduler in self._schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned.

        Example:
            >>> optimizer = adjit.optim.SGD([adjit.zeros(1, requires_grad=True)], lr=1.0)
            >>> decays = [adjit.optim.lr_scheduler.ExponentialLR(optimizer, gamma) for gamma in (0.5, 0.1)]
            >>> scheduler = adjit.optim.lr_scheduler.ChainedScheduler(decays)
            >>> scheduler.load_state_dict(scheduler.state_dict())
        """
        schedulers = self._schedulers
        super().load_state_dict({**state_dict, "_schedulers": schedulers})
        for scheduler, state in zip(schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)


@document_common_args
class SequentialLR(_ManySchedulers):
    """One schedule after the other.

    Args:
        schedulers: at least one.
        milestones: the epochs at which the next schedule begins, one fewer than schedules.

    Raises:
        ValueError: no schedules, schedules of different optimisers, the wrong number of
            milestones, a `ReduceLROnPlateau`.

    Example:
        >>> optimizer = adjit.optim.SGD([adjit.zeros(1, requires_grad=True)], lr=1.0)
        >>> warmup = adjit.optim.lr_scheduler.ConstantLR(optimizer, factor=0.1, total_iters=2)
        >>> decay = adjit.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
        >>> scheduler = adjit.optim.lr_scheduler.SequentialLR(optimizer, [warmup, decay], milestones=[2])
        >>> for epoch in range(4):
        ...     optimizer.step()
        ...     scheduler.step()
        ...     print(round(scheduler.get_last_lr()[0], 4))
        0.1
        1.0
        0.9
        0.81
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: list[LRScheduler],
        milestones: list[int],
        last_epoch: int = -1,
    ) -> None:
        name = type(self).__name__
        if len(schedulers) < 1:
            raise ValueError(f"{name} expects at least one scheduler, but got no scheduler.")
        self._check(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than "
                f"the number of milestone points, but got number of schedulers {len(schedulers)} "
                f"and the number of milestones to be equal to {len(milestones)}"
            )
        self._schedulers = schedulers
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        # Making the schedules has already set each one's first rate: only one may have it.
        for group in optimizer.param_groups:
            set_option(group, "lr", group["initial_lr"])
        self._undo_first_step(self)
        first = schedulers[bisect_right(milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def _undo_first_step(self, scheduler: LRScheduler) -> None:
        if isinstance(scheduler, _ManySchedulers):
            for inner in scheduler._schedulers:
                self._undo_first_step(inner)
        else:
            scheduler.last_epoch -= 1

    def step(self) -> None:  # type: ignore[override]
        """Move on by an epoch, with the schedule whose turn it is.

        Example:
            >>> optimizer = adjit.optim.SGD([adjit.zeros(1, requires_grad=True)], lr=1.0)
            >>> decays = [adjit.optim.lr_scheduler.ExponentialLR(optimizer, gamma) for gamma in (0.5, 0.1)]
            >>> scheduler = adjit.optim.lr_scheduler.SequentialLR(optimizer, decays, milestones=[1])
            >>> optimizer.step()
            >>> scheduler.step()
            >>> scheduler.get_last_lr()
            [1.0]
        """
        self.last_epoch += 1
        turn = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[turn]
        if turn > 0 and self._milestones[turn - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_ManySchedulers):
    """Several chainable schedules at once.

    Args:
        schedulers: at least one, of one optimiser.
        optimizer: theirs, if given.

    Raises:
        ValueError: no schedules, schedules of different optimisers, a `ReduceLROnPlateau`.

    Example:
        >>> optimizer = adjit.optim.SGD([adjit.zeros(1, requires_grad=True)], lr=1.0)
        >>> warmup = adjit.optim.lr_scheduler.ConstantLR(optimizer, factor=0.1, total_iters=2)
        >>> decay = adjit.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
        >>> scheduler = adjit.optim.lr_scheduler.ChainedScheduler([warmup, decay])
        >>> for epoch in range(3):
        ...     optimizer.step()
        ...     scheduler.step()
        ...     print(round(scheduler.get_last_lr()[0], 4))
        0.09
        0.81
        0.729
    """

    def __init__(
        self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None
    ) -> None:
        if len(schedulers) < 1:
            raise ValueError(
                f"{type(self).__name__} expects at least one scheduler to be chained, "
                "but got no scheduler."
            )
        self.optimizer = self._check(schedulers, optimizer)
        self._schedulers = schedulers
        self._last_lr = of_groups(self.optimizer, "lr")

    def step(self) -> None:  # type: ignore[override]
        """Move all schedules on by an epoch.

        Example:
            >>> optimizer = adjit.optim.SGD([adjit.zeros(1, requires_grad=True)], lr=1.0)
            >>> decays = [adjit.optim.lr_scheduler.ExponentialLR(optimizer, gamma) for gamma in (0.5, 0.1)]
            >>> scheduler = adjit.optim.lr_scheduler.ChainedScheduler(decays)
            >>> optimizer.step()
            >>> scheduler.step()
            >>> scheduler.get_last_lr()
            [0.05]
        """
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = of_groups(self.optimizer, "lr")
