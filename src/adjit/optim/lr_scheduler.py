"""Learning rate schedules.

The learning rates live in the optimiser's parameter groups. Most schedules are chainable: they
multiply what they find there, so that several may act on one optimiser and the user may interfere.
The others compute it from ``last_epoch`` alone.
"""

from __future__ import annotations

import math
import types
import warnings
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, SupportsFloat, TypeAlias

from ..tensor import Tensor
from .optimizer import Optimizer, as_scalar

Rate: TypeAlias = Any  # a float, or a 1-element tensor that is then filled in place

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]

_HOW_TO_ADJUST = "https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"


def _copied(value: Rate) -> Rate:
    return value.clone() if isinstance(value, Tensor) else value


def _of_groups(optimizer: Optimizer, key: str) -> list[Rate]:
    """The option ``key`` of every group, tensors copied."""
    return [_copied(group[key]) for group in optimizer.param_groups]


def _set(group: dict[str, Any], key: str, value: Rate) -> None:
    """Give an option a new value; a tensor is filled, so that whoever holds it sees the value."""
    if isinstance(group[key], Tensor):
        group[key].fill_(as_scalar(value))
    else:
        group[key] = value


def _per_group(name: str, optimizer: Optimizer, value: Any) -> list[Rate]:
    """``value`` for every group, from one value or from one for each."""
    groups = optimizer.param_groups
    if not isinstance(value, (list, tuple)):
        return [_copied(value) for _ in groups]
    if len(value) != len(groups):
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. "
            f"{name} has {len(value)} values, param_groups has {len(groups)}."
        )
    return [_copied(entry) for entry in value]


def _require_optimizer(optimizer: object) -> None:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


def _state_of_callable(function: Callable[..., Any] | None) -> dict[str, Any] | None:
    """What a checkpoint keeps of a callable: attributes of an object, nothing of a function."""
    if function is None or isinstance(function, types.FunctionType):
        return None
    return dict(function.__dict__)


class LRScheduler:
    """Base class of the schedules, and of your own.

    A subclass defines :meth:`get_lr`, from ``last_epoch``, ``base_lrs`` (the learning rates at the
    start) and ``optimizer.param_groups``.

    Args:
        optimizer: whose learning rates are scheduled.
        last_epoch: the epoch to resume after; -1 starts anew.

    Raises:
        TypeError: ``optimizer`` is not an optimiser.
        KeyError: resuming, and a group does not hold its ``initial_lr``.

    Example::

        >>> class Halving(adjit.optim.lr_scheduler.LRScheduler):
        ...     def get_lr(self):
        ...         return [lr * 0.5**self.last_epoch for lr in self.base_lrs]
        >>> scheduler = Halving(optimizer)
        >>> for epoch in range(10):
        ...     train()
        ...     scheduler.step()
    """

    optimizer: Optimizer
    base_lrs: list[Rate]
    last_epoch: int
    _last_lr: list[Rate]
    _step_count: int
    _get_lr_called_within_step: bool = False
    _is_initial: bool = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        _require_optimizer(optimizer)
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", _copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming "
                    "scheduler with last_epoch >= 0.\nThis typically happens when:\n"
                    "1. You're trying to resume training from a checkpoint but haven't properly "
                    "loaded the optimizer state\n2. You're using last_epoch >= 0 for a fresh "
                    "training run (not recommended)"
                )
        self.base_lrs = _of_groups(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        if optimizer._opt_called is None:
            optimizer._opt_called = False
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimiser, as a dict.

        Example::

            >>> saved = scheduler.state_dict()
        """
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what :meth:`state_dict` returned.

        Example::

            >>> scheduler.load_state_dict(saved)
        """
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[Rate]:
        """The learning rate that was last set, for each parameter group.

        Example::

            >>> scheduler.get_last_lr()
            [0.05]
        """
        return self._last_lr

    def get_lr(self) -> list[Rate]:
        """The learning rates of ``last_epoch``; called by :meth:`step` after it has moved on."""
        raise NotImplementedError

    @contextmanager
    def _within_step(self) -> Iterator[None]:
        self._get_lr_called_within_step = True
        try:
            yield
        finally:
            self._get_lr_called_within_step = False

    def _warn_outside_step(self) -> None:
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, "
                "please use `get_last_lr()`.",
                UserWarning,
                stacklevel=3,
            )

    def step(self, epoch: int | None = None) -> None:
        """Move on by an epoch, and set the learning rates.

        Args:
            epoch: deprecated; go to this epoch instead.

        Example::

            >>> optimizer.step()
            >>> scheduler.step()
        """
        if self._step_count == 1:
            self._warn_unless_optimizer_stepped()
        self._step_count += 1
        if epoch is not None:
            _warn_epoch()
        self._update_lr(epoch)

    def _warn_unless_optimizer_stepped(self) -> None:
        if not hasattr(self.optimizer.step, "_runs_hooks"):
            warnings.warn(
                "Seems like `optimizer.step()` has been overridden after learning rate scheduler "
                "initialization. Please, make sure to call `optimizer.step()` before "
                f"`lr_scheduler.step()`. See more details at {_HOW_TO_ADJUST}",
                UserWarning,
                stacklevel=3,
            )
        elif not self.optimizer._opt_called:
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. "
                "In PyTorch 1.1.0 and later, you should call them in the opposite order: "
                "`optimizer.step()` before `lr_scheduler.step()`.  Failure to do this will result "
                "in PyTorch skipping the first value of the learning rate schedule. "
                f"See more details at {_HOW_TO_ADJUST}",
                UserWarning,
                stacklevel=3,
            )

    def _update_lr(self, epoch: int | None = None) -> None:
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        closed_form = getattr(self, "_get_closed_form_lr", None)
        with self._within_step():
            rates = self.get_lr() if epoch is None or closed_form is None else closed_form()
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            _set(group, "lr", rate)
        self._last_lr = _of_groups(self.optimizer, "lr")

    def _unchanged(self) -> list[Rate]:
        return _of_groups(self.optimizer, "lr")

    def _scaled(self, factor: float) -> list[Rate]:
        """The present rates times ``factor``."""
        return [group["lr"] * factor for group in self.optimizer.param_groups]


_LRScheduler = LRScheduler  # the base class's name in old programs


def _warn_epoch() -> None:
    warnings.warn(
        "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where "
        "possible. Please use `scheduler.step()` to step the scheduler. During the deprecation, if "
        "epoch is different from None, the closed form is used instead of the new chainable form, "
        "where available. Please open an issue if you are unable to replicate your use case: "
        "https://github.com/pytorch/pytorch/issues/new/choose.",
        UserWarning,
        stacklevel=3,
    )


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

        Example::

            >>> saved = scheduler.state_dict()
        """
        state = super().state_dict()
        state["lr_lambdas"] = [_state_of_callable(function) for function in self.lr_lambdas]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what :meth:`state_dict` returned.

        Example::

            >>> scheduler.load_state_dict(saved)
        """
        functions = self.lr_lambdas
        super().load_state_dict({**state_dict, "lr_lambdas": functions})
        for function, state in zip(functions, state_dict["lr_lambdas"], strict=True):
            if state is not None:
                function.__dict__.update(state)


class LambdaLR(_LambdaScheduler):
    """The initial learning rate times a function of the epoch.

    Args:
        optimizer: whose learning rates are scheduled.
        lr_lambda: a function from the epoch to a factor, or one for each group.
        last_epoch: the epoch to resume after; -1 starts anew.

    Raises:
        ValueError: there are not as many functions as groups.

    Example::

        >>> scheduler = LambdaLR(optimizer, lambda epoch: 0.95**epoch)
        >>> for epoch in range(100):
        ...     train()
        ...     scheduler.step()
    """

    def get_lr(self) -> list[Rate]:
        """``initial_lr * f(epoch)``."""
        self._warn_outside_step()
        return [
            base * function(self.last_epoch)
            for function, base in zip(self.lr_lambdas, self.base_lrs, strict=True)
        ]


class MultiplicativeLR(_LambdaScheduler):
    """The present learning rate times a function of the epoch.

    Args:
        optimizer: whose learning rates are scheduled.
        lr_lambda: a function from the epoch to a factor, or one for each group.
        last_epoch: the epoch to resume after; -1 starts anew.

    Raises:
        ValueError: there are not as many functions as groups.
        TypeError: something that cannot be called.

    Example::

        >>> scheduler = MultiplicativeLR(optimizer, lambda epoch: 0.95)
        >>> for epoch in range(100):
        ...     train()
        ...     scheduler.step()
    """

    def get_lr(self) -> list[Rate]:
        """``lr * f(epoch)``."""
        self._warn_outside_step()
        if self._is_initial:
            return self._unchanged()
        return [
            group["lr"] * function(self.last_epoch)
            for function, group in zip(self.lr_lambdas, self.optimizer.param_groups, strict=True)
        ]


class StepLR(LRScheduler):
    """Times ``gamma`` every ``step_size`` epochs.

    Args:
        optimizer: whose learning rates are scheduled.
        step_size: epochs between two changes.
        gamma: the factor.
        last_epoch: the epoch to resume after; -1 starts anew.

    Example::

        >>> scheduler = StepLR(optimizer, step_size=30, gamma=0.1)
        >>> for epoch in range(100):
        ...     train()
        ...     scheduler.step()
    """

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Rate]:
        """``lr * gamma`` at the multiples of ``step_size``."""
        self._warn_outside_step()
        if self.last_epoch == 0 or self.last_epoch % self.step_size != 0:
            return self._unchanged()
        return self._scaled(self.gamma)

    def _get_closed_form_lr(self) -> list[Rate]:
        factor = self.gamma ** (self.last_epoch // self.step_size)
        return [base * factor for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """Times ``gamma`` at every milestone.

    Args:
        optimizer: whose learning rates are scheduled.
        milestones: the epochs; one named twice counts twice.
        gamma: the factor.
        last_epoch: the epoch to resume after; -1 starts anew.

    Example::

        >>> scheduler = MultiStepLR(optimizer, milestones=[30, 80], gamma=0.1)
        >>> for epoch in range(100):
        ...     train()
        ...     scheduler.step()
    """

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Iterable[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Rate]:
        """``lr * gamma`` at the milestones."""
        self._warn_outside_step()
        if self.last_epoch not in self.milestones:
            return self._unchanged()
        return self._scaled(self.gamma ** self.milestones[self.last_epoch])

    def _get_closed_form_lr(self) -> list[Rate]:
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [base * self.gamma**passed for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """Times ``factor`` for the first ``total_iters`` epochs.

    Args:
        optimizer: whose learning rates are scheduled.
        factor: between 0 and 1.
        total_iters: epochs until the learning rate is back at its own value.
        last_epoch: the epoch to resume after; -1 starts anew.

    Raises:
        ValueError: ``factor`` is out of its range.

    Example::

        >>> scheduler = ConstantLR(optimizer, factor=0.5, total_iters=4)
        >>> for epoch in range(100):
        ...     train()
        ...     scheduler.step()
    """

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1.0 / 3,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if factor > 1.0 or factor < 0:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Rate]:
        """``lr * factor`` at first, ``lr / factor`` at epoch ``total_iters``."""
        self._warn_outside_step()
        if self.last_epoch == 0:
            return self._scaled(self.factor)
        if self.last_epoch != self.total_iters:
            return self._unchanged()
        return self._scaled(1.0 / self.factor)

    def _get_closed_form_lr(self) -> list[Rate]:
        factor = 1 if self.last_epoch >= self.total_iters else self.factor
        return [base * factor for base in self.base_lrs]


class LinearLR(LRScheduler):
    """Times a factor that goes linearly from ``start_factor`` to ``end_factor``.

    Args:
        optimizer: whose learning rates are scheduled.
        start_factor: above 0, at most 1.
        end_factor: between 0 and 1.
        total_iters: epochs until ``end_factor`` is reached.
        last_epoch: the epoch to resume after; -1 starts anew.

    Raises:
        ValueError: a factor is out of its range.

    Example::

        >>> warmup = LinearLR(optimizer, start_factor=0.1, total_iters=10)
        >>> for epoch in range(100):
        ...     train()
        ...     warmup.step()
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if start_factor > 1.0 or start_factor <= 0:
            raise ValueError(
                "Starting multiplicative factor expected to be greater than 0 and less or equal "
                "to 1."
            )
        if end_factor > 1.0 or end_factor < 0:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Rate]:
        """``lr`` times the quotient of this epoch's factor and the last one's."""
        self._warn_outside_step()
        if self.last_epoch == 0:
            return self._scaled(self.start_factor)
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._unchanged()
        rise = self.end_factor - self.start_factor
        last_factor = self.total_iters * self.start_factor + (self.last_epoch - 1) * rise
        return self._scaled(1.0 + rise / last_factor)

    def _get_closed_form_lr(self) -> list[Rate]:
        rise = self.end_factor - self.start_factor
        done = min(self.total_iters, self.last_epoch)
        return [
            base * (self.start_factor + rise * done / self.total_iters) for base in self.base_lrs
        ]


class ExponentialLR(LRScheduler):
    """Times ``gamma`` every epoch.

    Args:
        optimizer: whose learning rates are scheduled.
        gamma: the factor.
        last_epoch: the epoch to resume after; -1 starts anew.

    Example::

        >>> scheduler = ExponentialLR(optimizer, gamma=0.95)
        >>> for epoch in range(100):
        ...     train()
        ...     scheduler.step()
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Rate]:
        """``lr * gamma``."""
        self._warn_outside_step()
        return self._unchanged() if self._is_initial else self._scaled(self.gamma)

    def _get_closed_form_lr(self) -> list[Rate]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """Down to zero over ``total_iters`` epochs, as a power of what is left of them.

    Args:
        optimizer: whose learning rates are scheduled.
        total_iters: epochs until zero.
        power: 1 is a straight line.
        last_epoch: the epoch to resume after; -1 starts anew.

    Example::

        >>> scheduler = PolynomialLR(optimizer, total_iters=100, power=2.0)
        >>> for epoch in range(100):
        ...     train()
        ...     scheduler.step()
    """

    def __init__(
        self,
        optimizer: Optimizer,
        total_iters: int = 5,
        power: float = 1.0,
        last_epoch: int = -1,
    ) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Rate]:
        """``lr`` times the quotient of what is left now and what was left, to the power."""
        self._warn_outside_step()
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._unchanged()
        left = 1.0 - self.last_epoch / self.total_iters
        left_before = 1.0 - (self.last_epoch - 1) / self.total_iters
        return self._scaled((left / left_before) ** self.power)

    def _get_closed_form_lr(self) -> list[Rate]:
        left = 1.0 - min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * left**self.power for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """Down to ``eta_min`` along half a cosine over ``T_max`` epochs, and up again.

    Loshchilov and Hutter, *SGDR*, arXiv:1608.03983, without the restarts.

    Args:
        optimizer: whose learning rates are scheduled.
        T_max: epochs of half a period.
        eta_min: the lowest learning rate.
        last_epoch: the epoch to resume after; -1 starts anew.

    Example::

        >>> scheduler = CosineAnnealingLR(optimizer, T_max=100)
        >>> for epoch in range(100):
        ...     train()
        ...     scheduler.step()
    """

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Rate]:
        """What is above ``eta_min``, times the quotient of this epoch's height and the last's."""
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


class CosineAnnealingWarmRestarts(LRScheduler):
    """Down to ``eta_min`` along half a cosine, again and again, each time ``T_mult`` times longer.

    Loshchilov and Hutter, *SGDR: Stochastic Gradient Descent with Warm Restarts*,
    arXiv:1608.03983.

    Args:
        optimizer: whose learning rates are scheduled.
        T_0: epochs until the first restart.
        T_mult: how much longer each run is than the one before.
        eta_min: the lowest learning rate.
        last_epoch: the epoch to resume after; -1 starts anew.

    Raises:
        ValueError: ``T_0`` or ``T_mult`` is no integer of at least 1.

    Example::

        >>> scheduler = CosineAnnealingWarmRestarts(optimizer, T_0=10, T_mult=2)
        >>> for epoch in range(70):
        ...     for i, batch in enumerate(batches):
        ...         train(batch)
        ...         scheduler.step(epoch + i / len(batches))
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
        """The cosine at ``T_cur`` of ``T_i``."""
        self._warn_outside_step()
        height = 1 + math.cos(math.pi * self.T_cur / self.T_i)
        return [self.eta_min + (base - self.eta_min) * height / 2 for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Move on by an epoch, or to ``epoch``, which may be a fraction.

        Raises:
            ValueError: ``epoch`` is negative.

        Example::

            >>> scheduler.step(epoch + i / len(batches))
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
                _set(group, "lr", rate)
        self._last_lr = _of_groups(self.optimizer, "lr")

    def _go_to(self, epoch: float) -> None:
        """Find the run that ``epoch`` lies in; the lengths of runs are a geometric series."""
        if epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            run = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            begin = self.T_0 * (self.T_mult**run - 1) / (self.T_mult - 1)
            self.T_cur = epoch - begin
            self.T_i = self.T_0 * self.T_mult**run


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

        Example::

            >>> saved = scheduler.state_dict()
        """
        state = super().state_dict()
        state["_schedulers"] = [scheduler.state_dict() for scheduler in self._schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what :meth:`state_dict` returned.

        Example::

            >>> scheduler.load_state_dict(saved)
        """
        schedulers = self._schedulers
        super().load_state_dict({**state_dict, "_schedulers": schedulers})
        for scheduler, state in zip(schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)


class SequentialLR(_ManySchedulers):
    """One schedule after the other.

    Args:
        optimizer: whose learning rates are scheduled.
        schedulers: at least one.
        milestones: the epochs at which the next schedule begins, one fewer than schedules.
        last_epoch: the epoch to resume after; -1 starts anew.

    Raises:
        ValueError: no schedules, schedules of different optimisers, the wrong number of
            milestones, a ``ReduceLROnPlateau``.

    Example::

        >>> warmup = LinearLR(optimizer, start_factor=0.1, total_iters=10)
        >>> decay = CosineAnnealingLR(optimizer, T_max=90)
        >>> scheduler = SequentialLR(optimizer, [warmup, decay], milestones=[10])
        >>> for epoch in range(100):
        ...     train()
        ...     scheduler.step()
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
            _set(group, "lr", group["initial_lr"])
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

        Example::

            >>> optimizer.step()
            >>> scheduler.step()
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
        ValueError: no schedules, schedules of different optimisers, a ``ReduceLROnPlateau``.

    Example::

        >>> warmup = ConstantLR(optimizer, factor=0.1, total_iters=10)
        >>> decay = ExponentialLR(optimizer, gamma=0.95)
        >>> scheduler = ChainedScheduler([warmup, decay])
        >>> for epoch in range(100):
        ...     train()
        ...     scheduler.step()
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
        self._last_lr = _of_groups(self.optimizer, "lr")

    def step(self) -> None:  # type: ignore[override]
        """Move all schedules on by an epoch.

        Example::

            >>> optimizer.step()
            >>> scheduler.step()
        """
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = _of_groups(self.optimizer, "lr")


class ReduceLROnPlateau(LRScheduler):
    """Times ``factor`` when a metric has not improved for more than ``patience`` epochs.

    Args:
        optimizer: whose learning rates are scheduled.
        mode: ``"min"`` or ``"max"``: which way is better.
        factor: below 1.
        patience: epochs without improvement that are let pass.
        threshold: how much counts as an improvement.
        threshold_mode: ``"rel"`` to the best value, or ``"abs"``.
        cooldown: epochs after a reduction in which nothing is counted.
        min_lr: the lowest learning rate, or one for each group.
        eps: a smaller change of the learning rate is not made.

    Raises:
        ValueError: ``factor`` is not below 1, an unknown mode, the wrong number of ``min_lr``.

    Example::

        >>> scheduler = ReduceLROnPlateau(optimizer, "min", patience=5)
        >>> for epoch in range(100):
        ...     train()
        ...     scheduler.step(validation_loss())
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
        _require_optimizer(optimizer)
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
        self._last_lr = _of_groups(optimizer, "lr")
        self._reset()

    @property
    def mode_worse(self) -> float:
        """The value that every other one improves on."""
        return math.inf if self.mode == "min" else -math.inf

    def _reset(self) -> None:
        """Forget the metrics so far."""
        self.best = self.mode_worse
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    def step(self, metrics: SupportsFloat, epoch: int | None = None) -> None:  # type: ignore[override]
        """Take note of a metric, and reduce the learning rates if it has not improved for long.

        Example::

            >>> scheduler.step(validation_loss)
        """
        current = float(metrics)
        if epoch is None:
            epoch = self.last_epoch + 1
        else:
            _warn_epoch()
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
            self._reduce_lr()
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = _of_groups(self.optimizer, "lr")

    def _reduce_lr(self) -> None:
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
                _set(group, "lr", reduced)

    @property
    def in_cooldown(self) -> bool:
        """Whether the last reduction is too recent to count bad epochs."""
        return self.cooldown_counter > 0

    def _is_better(self, value: float, best: float) -> bool:
        sign = -1 if self.mode == "min" else 1
        if self.threshold_mode == "rel":
            return sign * value > sign * (best * (1.0 + sign * self.threshold))
        return sign * value > sign * (best + sign * self.threshold)


class _MomentumCycling(LRScheduler):
    """A schedule that also moves the momentum, or Adam's first beta, the other way."""

    cycle_momentum: bool
    use_beta1: bool

    def _init_momentum(self, base: Any, highest: Any, last_epoch: int) -> None:
        defaults = self.optimizer.defaults
        if "momentum" not in defaults and "betas" not in defaults:
            raise ValueError(
                "optimizer must support momentum or beta1 with `cycle_momentum` option enabled"
            )
        self.use_beta1 = "betas" in defaults
        self.base_momentums = _per_group("base_momentum", self.optimizer, base)
        self.max_momentums = _per_group("max_momentum", self.optimizer, highest)
        if last_epoch != -1:
            return
        for group, low, high in zip(
            self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True
        ):
            self._set_momentum(group, high)
            group["max_momentum"] = high
            group["base_momentum"] = low

    def _set_momentum(self, group: dict[str, Any], momentum: float) -> None:
        if self.use_beta1:
            group["betas"] = (momentum, *group["betas"][1:])
        else:
            group["momentum"] = momentum


class CyclicLR(_MomentumCycling):
    """Up and down between two learning rates, with the momentum going the other way.

    Smith, *Cyclical Learning Rates for Training Neural Networks*, arXiv:1506.01186. Call ``step``
    after every batch.

    Args:
        optimizer: whose learning rates are scheduled.
        base_lr: the lowest learning rate, or one for each group.
        max_lr: the highest, or one for each group.
        step_size_up: steps from the lowest to the highest.
        step_size_down: steps back; as many as up if None.
        mode: ``"triangular"``; ``"triangular2"``, which halves the height with each cycle; or
            ``"exp_range"``, which multiplies it by ``gamma`` with each step.
        gamma: for ``"exp_range"``.
        scale_fn: your own factor of the height, in place of ``mode``.
        scale_mode: whether ``scale_fn`` is given the number of the ``"cycle"`` or of
            ``"iterations"``.
        cycle_momentum: whether to move ``momentum``, or the first of ``betas``.
        base_momentum: the lowest momentum, or one for each group.
        max_momentum: the highest, or one for each group.
        last_epoch: the step to resume after; -1 starts anew.

    Raises:
        TypeError: ``optimizer`` is not an optimiser.
        ValueError: unknown mode, or an optimiser without momentum to cycle.

    Example::

        >>> scheduler = CyclicLR(optimizer, base_lr=0.01, max_lr=0.1, step_size_up=500)
        >>> for batch in batches:
        ...     train(batch)
        ...     scheduler.step()
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: Literal["triangular", "triangular2", "exp_range"] = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: Literal["cycle", "iterations"] = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.8,
        max_momentum: float | list[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        _require_optimizer(optimizer)
        self.optimizer = optimizer
        base_lrs = _per_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for lr, group in zip(base_lrs, optimizer.param_groups, strict=True):
                _set(group, "lr", lr)
        self.max_lrs = _per_group("max_lr", optimizer, max_lr)
        down = float(step_size_up if step_size_down is None else step_size_down)
        self.total_size = float(step_size_up) + down
        self.step_ratio = float(step_size_up) / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode
        if scale_fn is None:
            self.scale_mode = "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._init_momentum(base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x: float) -> float:
        """The factor of the height at cycle, or step, ``x``."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular":
            return 1.0
        if self.mode == "triangular2":
            return float(1 / 2.0 ** (x - 1))
        return float(self.gamma**x)

    def get_lr(self) -> list[Rate]:
        """The learning rates of this step; sets the momentum too."""
        self._warn_outside_step()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for group, low, high in zip(
                self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True
            ):
                self._set_momentum(group, high - (high - low) * height * scale)
        return [
            low + (high - low) * height * scale
            for low, high in zip(self.base_lrs, self.max_lrs, strict=True)
        ]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimiser and ``scale_fn``; of a callable object, its attributes.

        Example::

            >>> saved = scheduler.state_dict()
        """
        state = super().state_dict()
        state["_scale_fn_custom"] = _state_of_callable(self._scale_fn_custom)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what :meth:`state_dict` returned.

        Example::

            >>> scheduler.load_state_dict(saved)
        """
        function = self._scale_fn_custom
        super().load_state_dict({**state_dict, "_scale_fn_custom": function})
        if function is not None and state_dict["_scale_fn_custom"] is not None:
            function.__dict__.update(state_dict["_scale_fn_custom"])


class OneCycleLR(_MomentumCycling):
    """One cycle: up to ``max_lr``, then far down, with the momentum going the other way.

    Smith and Topin, *Super-Convergence*, arXiv:1708.07120. Call ``step`` after every batch.

    Args:
        optimizer: whose learning rates are scheduled.
        max_lr: the highest learning rate, or one for each group.
        total_steps: the steps of the cycle; or give ``epochs`` and ``steps_per_epoch``.
        epochs: see ``total_steps``.
        steps_per_epoch: see ``total_steps``.
        pct_start: the part of the cycle that goes up.
        anneal_strategy: ``"cos"`` or ``"linear"``.
        cycle_momentum: whether to move ``momentum``, or the first of ``betas``.
        base_momentum: the lowest momentum, or one for each group.
        max_momentum: the highest, or one for each group.
        div_factor: the cycle begins at ``max_lr / div_factor``.
        final_div_factor: and ends at that over ``final_div_factor``.
        three_phase: go down to the initial rate as fast as up, and only then to the lowest.
        last_epoch: the step to resume after; -1 starts anew.

    Raises:
        TypeError: ``optimizer`` is not an optimiser.
        ValueError: no number of steps, an option out of its range, an optimiser without momentum
            to cycle, or a step beyond the last.

    Example::

        >>> scheduler = OneCycleLR(optimizer, max_lr=0.1, epochs=10, steps_per_epoch=len(batches))
        >>> for epoch in range(10):
        ...     for batch in batches:
        ...         train(batch)
        ...         scheduler.step()
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        _require_optimizer(optimizer)
        self.optimizer = optimizer
        self.total_steps = _total_steps(total_steps, epochs, steps_per_epoch)
        if pct_start < 0 or pct_start > 1 or not isinstance(pct_start, float):
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self._anneal_func_type = anneal_strategy
        self._schedule_phases = _phases(self.total_steps, pct_start, three_phase)
        highest = _per_group("max_lr", optimizer, max_lr)
        if last_epoch == -1:
            for lr, group in zip(highest, optimizer.param_groups, strict=True):
                group["initial_lr"] = lr / div_factor
                group["max_lr"] = lr
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._init_momentum(base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def _anneal(self, start: Rate, end: Rate, part: float) -> Rate:
        if self._anneal_func_type == "cos":
            return end + (start - end) / 2.0 * (math.cos(math.pi * part) + 1)
        return (end - start) * part + start

    def get_lr(self) -> list[Rate]:
        """The learning rates of this step; sets the momentum too."""
        self._warn_outside_step()
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(
                f"Tried to step {step} times. The specified number of total steps is "
                f"{self.total_steps}"
            )
        begin = 0.0
        for phase in self._schedule_phases[:-1]:
            if step <= phase["end_step"]:
                break
            begin = phase["end_step"]
        else:
            phase = self._schedule_phases[-1]
        part = (step - begin) / (phase["end_step"] - begin)
        groups = self.optimizer.param_groups
        if self.cycle_momentum:
            for group in groups:
                ends = group[phase["start_momentum"]], group[phase["end_momentum"]]
                self._set_momentum(group, self._anneal(*ends, part))
        return [
            self._anneal(group[phase["start_lr"]], group[phase["end_lr"]], part) for group in groups
        ]


def _total_steps(total: int | None, epochs: int | None, steps_per_epoch: int | None) -> int:
    """The length of one cycle, from either way to say it."""
    if total is not None:
        if total <= 0 or not isinstance(total, int):
            raise ValueError(f"Expected positive integer total_steps, but got {total}")
        return total
    if epochs is None or steps_per_epoch is None:
        raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
    if not isinstance(epochs, int) or epochs <= 0:
        raise ValueError(f"Expected positive integer epochs, but got {epochs}")
    if not isinstance(steps_per_epoch, int) or steps_per_epoch <= 0:
        raise ValueError(f"Expected positive integer steps_per_epoch, but got {steps_per_epoch}")
    return epochs * steps_per_epoch


def _phases(total_steps: int, pct_start: float, three_phase: bool) -> list[dict[str, Any]]:
    """Where each phase of one cycle ends, and between which options of the groups it moves."""

    def phase(end_step: float, lr: tuple[str, str], momentum: tuple[str, str]) -> dict[str, Any]:
        return {
            "end_step": end_step,
            "start_lr": lr[0],
            "end_lr": lr[1],
            "start_momentum": momentum[0],
            "end_momentum": momentum[1],
        }

    falling, rising = ("max_momentum", "base_momentum"), ("base_momentum", "max_momentum")
    up = phase(float(pct_start * total_steps) - 1, ("initial_lr", "max_lr"), falling)
    last = total_steps - 1
    if not three_phase:
        return [up, phase(last, ("max_lr", "min_lr"), rising)]
    return [
        up,
        phase(float(2 * pct_start * total_steps) - 2, ("max_lr", "initial_lr"), rising),
        phase(last, ("initial_lr", "min_lr"), ("max_momentum", "max_momentum")),
    ]
