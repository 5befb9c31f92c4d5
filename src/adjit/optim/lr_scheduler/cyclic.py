"""Schedules that go up and down between two learning rates, and the momentum the other way."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

from ..optimizer import Optimizer
from .base import LRScheduler, Rate, per_group, require_optimizer, set_option, state_of_callable


class _MomentumCycling(LRScheduler):
    """A schedule that also moves the momentum, or Adam's first beta, the other way."""

    cycle_momentum: bool
    use_beta1: bool

    def _init_momentum(
        self, base: Any, highest: Any, last_epoch: int
    ) -> tuple[list[float], list[float]]:
        """The lowest and the highest momentum of each group."""
        defaults = self.optimizer.defaults
        if "momentum" not in defaults and "betas" not in defaults:
            raise ValueError(
                "optimizer must support momentum or beta1 with `cycle_momentum` option enabled"
            )
        self.use_beta1 = "betas" in defaults
        lows = per_group("base_momentum", self.optimizer, base)
        highs = per_group("max_momentum", self.optimizer, highest)
        if last_epoch != -1:
            return lows, highs
        for group, low, high in zip(self.optimizer.param_groups, lows, highs, strict=True):
            self._set_momentum(group, high)
            group["max_momentum"] = high
            group["base_momentum"] = low
        return lows, highs

    def _set_momentum(self, group: dict[str, Any], momentum: float) -> None:
        if self.use_beta1:
            group["betas"] = (momentum, *group["betas"][1:])
        else:
            group["momentum"] = momentum


class CyclicLR(_MomentumCycling):
    """Up and down between two learning rates, with the momentum going the other way.

    Smith, *Cyclical Learning Rates for Training Neural Networks*, arXiv:1506.01186. Call `step`
    after every batch.

    Args:
        optimizer: whose learning rates are scheduled.
        base_lr: the lowest learning rate, or one for each group.
        max_lr: the highest, or one for each group.
        step_size_up: steps from the lowest to the highest.
        step_size_down: steps back; as many as up if None.
        mode: `"triangular"`; `"triangular2"`, which halves the height with each cycle; or
            `"exp_range"`, which multiplies it by `gamma` with each step.
        gamma: for `"exp_range"`.
        scale_fn: your own factor of the height, in place of `mode`.
        scale_mode: whether `scale_fn` is given the number of the `"cycle"` or of
            `"iterations"`.
        cycle_momentum: whether to move `momentum`, or the first of `betas`.
        base_momentum: the lowest momentum, or one for each group.
        max_momentum: the highest, or one for each group.
        last_epoch: the step to resume after; -1 starts anew.

    Raises:
        TypeError: `optimizer` is not an optimiser.
        ValueError: unknown mode, or an optimiser without momentum to cycle.

    Example:
        >>> optimizer = adjit.optim.SGD([adjit.zeros(1, requires_grad=True)], lr=1.0)
        >>> scheduler = adjit.optim.lr_scheduler.CyclicLR(optimizer, base_lr=0.1, max_lr=0.5, step_size_up=2)
        >>> for epoch in range(4):
        ...     optimizer.step()
        ...     scheduler.step()
        ...     print(round(scheduler.get_last_lr()[0], 4))
        0.3
        0.5
        0.3
        0.1
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
        require_optimizer(optimizer)
        self.optimizer = optimizer
        base_lrs = per_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for lr, group in zip(base_lrs, optimizer.param_groups, strict=True):
                set_option(group, "lr", lr)
        self.max_lrs = per_group("max_lr", optimizer, max_lr)
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
            self.base_momentums, self.max_momentums = self._init_momentum(
                base_momentum, max_momentum, last_epoch
            )
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x: float) -> float:
        """The factor of the height at cycle, or step, `x`.

        Example:
            >>> optimizer = adjit.optim.SGD([adjit.zeros(1, requires_grad=True)], lr=1.0)
            >>> scheduler = adjit.optim.lr_scheduler.CyclicLR(optimizer, base_lr=0.1, max_lr=0.5)
            >>> scheduler.scale_fn(1)
            1.0
        """
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular":
            return 1.0
        if self.mode == "triangular2":
            return float(1 / 2.0 ** (x - 1))
        return float(self.gamma**x)

    def get_lr(self) -> list[Rate]:
        """Compute the learning rates of this step; sets the momentum too.

        Example:
            >>> optimizer = adjit.optim.SGD([adjit.zeros(1, requires_grad=True)], lr=1.0)
            >>> scheduler = adjit.optim.lr_scheduler.CyclicLR(optimizer, base_lr=0.1, max_lr=0.5)
            >>> scheduler.get_lr()
            [0.1]
        """
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
        """Everything but the optimiser and `scale_fn`; of a callable object, its attributes.

        Example:
            >>> optimizer = adjit.optim.SGD([adjit.zeros(1, requires_grad=True)], lr=1.0)
            >>> scheduler = adjit.optim.lr_scheduler.CyclicLR(optimizer, base_lr=0.1, max_lr=0.5)
            >>> scheduler.state_dict()["total_size"]
            4000.0
        """
        state = super().state_dict()
        state["_scale_fn_custom"] = state_of_callable(self._scale_fn_custom)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned.

        Example:
            >>> optimizer = adjit.optim.SGD([adjit.zeros(1, requires_grad=True)], lr=1.0)
            >>> scheduler = adjit.optim.lr_scheduler.CyclicLR(optimizer, base_lr=0.1, max_lr=0.5)
            >>> scheduler.load_state_dict({**scheduler.state_dict(), "last_epoch": 5})
            >>> scheduler.last_epoch
            5
        """
        function = self._scale_fn_custom
        super().load_state_dict({**state_dict, "_scale_fn_custom": function})
        if function is not None and state_dict["_scale_fn_custom"] is not None:
            function.__dict__.update(state_dict["_scale_fn_custom"])


class OneCycleLR(_MomentumCycling):
    """One cycle: up to `max_lr`, then far down, with the momentum going the other way.

    Smith and Topin, *Super-Convergence*, arXiv:1708.07120. Call `step` after every batch.

    Args:
        optimizer: whose learning rates are scheduled.
        max_lr: the highest learning rate, or one for each group.
        total_steps: the steps of the cycle; or give `epochs` and `steps_per_epoch`.
        epochs: see `total_steps`.
        steps_per_epoch: see `total_steps`.
        pct_start: the part of the cycle that goes up.
        anneal_strategy: `"cos"` or `"linear"`.
        cycle_momentum: whether to move `momentum`, or the first of `betas`.
        base_momentum: the lowest momentum, or one for each group.
        max_momentum: the highest, or one for each group.
        div_factor: the cycle begins at `max_lr / div_factor`.
        final_div_factor: and ends at that over `final_div_factor`.
        three_phase: go down to the initial rate as fast as up, and only then to the lowest.
        last_epoch: the step to resume after; -1 starts anew.

    Raises:
        TypeError: `optimizer` is not an optimiser.
        ValueError: no number of steps, an option out of its range, an optimiser without momentum
            to cycle, or a step beyond the last.

    Example:
        >>> optimizer = adjit.optim.SGD([adjit.zeros(1, requires_grad=True)], lr=1.0)
        >>> scheduler = adjit.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.5, total_steps=5)
        >>> for epoch in range(4):
        ...     optimizer.step()
        ...     scheduler.step()
        ...     print(round(scheduler.get_last_lr()[0], 4))
        0.4752
        0.3056
        0.0941
        0.0
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
        require_optimizer(optimizer)
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
        highest = per_group("max_lr", optimizer, max_lr)
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
