"""What all schedules share: the base class, and the options of parameter groups."""

from __future__ import annotations

import inspect
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

from ...tensor import Tensor
from ..optimizer import Optimizer, as_scalar

Rate: TypeAlias = Any  # a float, or a 1-element tensor that is then filled in place
_Schedule = TypeVar("_Schedule", bound="LRScheduler")

_FIRST_ARGS = "Args:\n    optimizer: whose learning rates are scheduled.\n"
_LAST_ARGS = "\n    last_epoch: the epoch to resume after; -1 starts anew."

_HOW_TO_ADJUST = "https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"


def _copied(value: Rate) -> Rate:
    return value.clone() if isinstance(value, Tensor) else value


def of_groups(optimizer: Optimizer, key: str) -> list[Rate]:
    """The option ``key`` of every group, tensors copied."""
    return [_copied(group[key]) for group in optimizer.param_groups]


def set_option(group: dict[str, Any], key: str, value: Rate) -> None:
    """Give an option a new value; a tensor is filled, so that whoever holds it sees the value."""
    if isinstance(group[key], Tensor):
        group[key].fill_(as_scalar(value))
    else:
        group[key] = value


def per_group(name: str, optimizer: Optimizer, value: Any) -> list[Rate]:
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


def require_optimizer(optimizer: object) -> None:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


class LRScheduler:
    """Base class of the schedules, and of your own.

    A subclass defines `get_lr`, from `last_epoch`, `base_lrs` (the learning rates at the
    start) and `optimizer.param_groups`.

    Args:
        optimizer: whose learning rates are scheduled.
        last_epoch: the epoch to resume after; -1 starts anew.

    Raises:
        TypeError: `optimizer` is not an optimiser.
        KeyError: resuming, and a group does not hold its `initial_lr`.

    Example:
        >>> class Halving(adjit.optim.lr_scheduler.LRScheduler):
        ...     def get_lr(self):
        ...         return [lr * 0.5**self.last_epoch for lr in self.base_lrs]
        >>> optimizer = adjit.optim.SGD([adjit.zeros(1, requires_grad=True)], lr=1.0)
        >>> scheduler = Halving(optimizer)
        >>> optimizer.step()
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.5]
    """

    optimizer: Optimizer
    base_lrs: list[Rate]
    last_epoch: int
    _last_lr: list[Rate]
    _step_count: int
    _get_lr_called_within_step: bool = False
    _is_initial: bool = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        require_optimizer(optimizer)
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
        self.base_lrs = of_groups(optimizer, "initial_lr")
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

        Example:
            >>> optimizer = adjit.optim.SGD([adjit.zeros(1, requires_grad=True)], lr=1.0)
            >>> scheduler = adjit.optim.lr_scheduler.StepLR(optimizer, step_size=1)
            >>> scheduler.state_dict()["last_epoch"]
            0
        """
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned.

        Example:
            >>> optimizer = adjit.optim.SGD([adjit.zeros(1, requires_grad=True)], lr=1.0)
            >>> scheduler = adjit.optim.lr_scheduler.StepLR(optimizer, step_size=1)
            >>> scheduler.load_state_dict({**scheduler.state_dict(), "last_epoch": 5})
            >>> scheduler.last_epoch
            5
        """
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[Rate]:
        """The learning rate that was last set, for each parameter group.

        Example:
            >>> optimizer = adjit.optim.SGD([adjit.zeros(1, requires_grad=True)], lr=1.0)
            >>> scheduler = adjit.optim.lr_scheduler.StepLR(optimizer, step_size=1)
            >>> scheduler.get_last_lr()
            [1.0]
        """
        return self._last_lr

    def get_lr(self) -> list[Rate]:
        """Compute the learning rates of `last_epoch`; called by `step` after it has moved on.

        Example:
            >>> class Halving(adjit.optim.lr_scheduler.LRScheduler):
            ...     def get_lr(self):
            ...         return [group["lr"] / 2 for group in self.optimizer.param_groups]
            >>> optimizer = adjit.optim.SGD([adjit.zeros(1, requires_grad=True)], lr=1.0)
            >>> Halving(optimizer).get_last_lr()
            [0.5]
        """
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

        Example:
            >>> optimizer = adjit.optim.SGD([adjit.zeros(1, requires_grad=True)], lr=1.0)
            >>> scheduler = adjit.optim.lr_scheduler.StepLR(optimizer, step_size=1)
            >>> optimizer.step()
            >>> scheduler.step()
            >>> scheduler.get_last_lr()
            [0.1]
        """
        if self._step_count == 1:
            self._warn_unless_optimizer_stepped()
        self._step_count += 1
        if epoch is not None:
            warn_epoch()
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
            set_option(group, "lr", rate)
        self._last_lr = of_groups(self.optimizer, "lr")

    def _unchanged(self) -> list[Rate]:
        return of_groups(self.optimizer, "lr")

    def _scaled(self, factor: float) -> list[Rate]:
        """The present rates times `factor`."""
        return [group["lr"] * factor for group in self.optimizer.param_groups]


def document_common_args(schedule: type[_Schedule]) -> type[_Schedule]:
    """Complete the ``Args`` of a schedule's docstring with those that nearly all have."""
    if schedule.__doc__ is not None:
        summary, rest = inspect.cleandoc(schedule.__doc__).split("Args:\n", 1)
        own, *sections = rest.split("\n\n", 1)
        schedule.__doc__ = "\n\n".join([f"{summary}{_FIRST_ARGS}{own}{_LAST_ARGS}", *sections])
    return schedule


def warn_epoch() -> None:
    warnings.warn(
        "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where "
        "possible. Please use `scheduler.step()` to step the scheduler. During the deprecation, if "
        "epoch is different from None, the closed form is used instead of the new chainable form, "
        "where available. Please open an issue if you are unable to replicate your use case: "
        "https://github.com/pytorch/pytorch/issues/new/choose.",
        UserWarning,
        stacklevel=3,
    )


def state_of_callable(function: Callable[..., Any] | None) -> dict[str, Any] | None:
    """What a checkpoint keeps of a callable: attributes of an object, nothing of a function."""
    if function is None or isinstance(function, types.FunctionType):
        return None
    return dict(function.__dict__)
