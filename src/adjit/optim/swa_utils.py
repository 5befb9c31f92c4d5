"""Averages of the weights that training passes: SWA and EMA."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from itertools import chain
from typing import Any, Literal, TypeAlias

from ..autograd.modes import no_grad
from ..dtypes import int64
from ..nn.module import Module
from ..nn.norm import _BatchNorm
from ..ops.creation import tensor
from ..tensor import Tensor
from .lr_scheduler.base import LRScheduler, Rate, document_common_args, per_group
from .optimizer import Optimizer

__all__ = [
    "SWALR", "AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn",
    "get_swa_multi_avg_fn", "update_bn",
]  # fmt: skip

Average: TypeAlias = Callable[[Tensor, Tensor, Any], Tensor]
MultiAverage: TypeAlias = Callable[[Sequence[Tensor], Sequence[Tensor], Any], None]


def _check_decay(decay: float) -> None:
    if decay < 0.0 or decay > 1.0:
        raise ValueError(
            f"Invalid decay value {decay} provided. Please provide a value in [0,1] range."
        )


def get_ema_multi_avg_fn(decay: float = 0.999) -> MultiAverage:
    """Make a function of `(averages, values, count)` that moves averages towards values, in place.

    Args:
        decay: how much of an average is kept, in [0, 1].

    Raises:
        ValueError: `decay` is not in [0, 1].

    Example:
        >>> move = adjit.optim.swa_utils.get_ema_multi_avg_fn(0.75)
        >>> averages = [adjit.tensor([0.0, 4.0])]
        >>> move(averages, [adjit.tensor([4.0, 4.0])], 1)
        >>> averages
        [tensor([1., 4.])]
    """
    _check_decay(decay)

    @no_grad()
    def ema_update(averages: Sequence[Tensor], values: Sequence[Tensor], count: Any) -> None:
        for average, value in zip(averages, values, strict=True):
            if average.is_floating_point():
                average.lerp_(value, 1 - decay)
            else:
                average.copy_(average * decay + value * (1 - decay))

    return ema_update


def get_swa_multi_avg_fn() -> MultiAverage:
    """Make a function of `(averages, values, count)` that takes one more value in, in place.

    Example:
        >>> take = adjit.optim.swa_utils.get_swa_multi_avg_fn()
        >>> averages = [adjit.tensor([0.0, 4.0])]
        >>> take(averages, [adjit.tensor([4.0, 4.0])], 3)
        >>> averages
        [tensor([1., 4.])]
    """

    @no_grad()
    def swa_update(averages: Sequence[Tensor], values: Sequence[Tensor], count: Any) -> None:
        for average, value in zip(averages, values, strict=True):
            average.copy_(average + (value - average) / (count + 1))

    return swa_update


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """Make a function of `(average, value, count)` that gives an average nearer to the value.

    Args:
        decay: how much of the average is kept, in [0, 1].

    Raises:
        ValueError: `decay` is not in [0, 1].

    Example:
        >>> average = adjit.optim.swa_utils.get_ema_avg_fn(0.75)
        >>> average(adjit.tensor([0.0, 4.0]), adjit.tensor([4.0, 4.0]), 1)
        tensor([1., 4.])
    """
    _check_decay(decay)

    @no_grad()
    def ema_update(average: Tensor, value: Tensor, count: Any) -> Tensor:
        return decay * average + (1 - decay) * value

    return ema_update


def get_swa_avg_fn() -> Average:
    """Make a function of `(average, value, count)` that gives the average with one more value.

    Example:
        >>> average = adjit.optim.swa_utils.get_swa_avg_fn()
        >>> average(adjit.tensor([0.0, 4.0]), adjit.tensor([4.0, 4.0]), 3)
        tensor([1., 4.])
    """

    @no_grad()
    def swa_update(average: Tensor, value: Tensor, count: Any) -> Tensor:
        return average + (value - average) / (count + 1)

    return swa_update


class AveragedModel(Module):
    """A copy of a model whose parameters are averages of those that the model had.

    Izmailov et al., *Averaging Weights Leads to Wider Optima and Better Generalization*,
    arXiv:1803.05407. Calling it calls the copy, `module`; `n_averaged` counts.

    Args:
        model: what is copied.
        device: where the copy lies; None is where the model does.
        avg_fn: a function of `(average, value, count)` that gives the new average; None is the mean
            of all.
        multi_avg_fn: a function of lists of averages and values, and the count, that changes the
            averages in place.
        use_buffers: average the buffers too; otherwise they are copied.

    Raises:
        AssertionError: both functions are given.

    Example:
        >>> model = nn.Linear(1, 1)
        >>> averaged = adjit.optim.swa_utils.AveragedModel(model)
        >>> for value in (1.0, 2.0, 6.0):
        ...     _ = nn.init.constant_(model.weight, value)
        ...     averaged.update_parameters(model)
        >>> averaged.module.weight.item()
        3.0
    """

    n_averaged: Tensor
    module: Module

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Average | None = None,
        multi_avg_fn: MultiAverage | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, dtype=int64, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the averaged copy."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Take the parameters that a model has now into the averages; the first ones are copied.

        Example:
            >>> model = nn.Linear(2, 1)
            >>> averaged = adjit.optim.swa_utils.AveragedModel(model)
            >>> averaged.update_parameters(model)
            >>> averaged.n_averaged.item()
            1
        """
        averages, values = ([t.detach() for t in self._averaged(m)] for m in (self.module, model))
        values = [v.to(a.device) for a, v in zip(averages, values, strict=True)]
        if self.n_averaged == 0:
            for average, value in zip(averages, values, strict=True):
                average.copy_(value)
        elif self.multi_avg_fn is not None:
            alike: defaultdict[Any, list[tuple[Tensor, Tensor]]] = defaultdict(list)
            for average, value in zip(averages, values, strict=True):
                alike[average.device, average.dtype].append((average, value))
            for (device, _), pairs in alike.items():
                parts = [list(part) for part in zip(*pairs, strict=True)]
                self.multi_avg_fn(parts[0], parts[1], self.n_averaged.to(device))
        else:
            new = get_swa_avg_fn() if self.avg_fn is None else self.avg_fn
            for average, value in zip(averages, values, strict=True):
                average.copy_(new(average, value, self.n_averaged.to(average.device)))
        if not self.use_buffers:
            for kept, buffer in zip(self.module.buffers(), model.buffers(), strict=True):
                kept.detach().copy_(buffer.detach().to(kept.device))
        self.n_averaged += 1

    def _averaged(self, model: Module) -> Iterable[Tensor]:
        """What of a model is averaged."""
        return chain(model.parameters(), model.buffers() if self.use_buffers else ())


@no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Find the statistics of a model's batch norms anew, by one pass over data.

    Args:
        loader: batches; of a list or tuple, the first element is what the model is called on.
        model: in training mode during the pass; as before afterwards.
        device: where batches are put before.

    Example:
        >>> model = nn.BatchNorm1d(1)
        >>> adjit.optim.swa_utils.update_bn([adjit.tensor([[1.0], [3.0]])], model)
        >>> model.running_mean
        tensor([2.])
    """
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    was_training = model.training
    model.train()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    for batch in loader:
        input = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(input if device is None else input.to(device))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.train(was_training)


@document_common_args
class SWALR(LRScheduler):
    """From where the learning rate is to a constant one, for averaging.

    Args:
        swa_lr: the rate at the end, or one for each group.
        anneal_epochs: epochs until then.
        anneal_strategy: `"cos"` or `"linear"`.

    Raises:
        ValueError: another strategy, or `anneal_epochs` is no whole number of at least zero.

    Example:
        >>> optimizer = adjit.optim.SGD([adjit.zeros(1, requires_grad=True)], lr=1.0)
        >>> scheduler = adjit.optim.swa_utils.SWALR(
        ...     optimizer, swa_lr=0.1, anneal_epochs=3, anneal_strategy="linear"
        ... )
        >>> for epoch in range(4):
        ...     optimizer.step()
        ...     scheduler.step()
        ...     print(round(scheduler.get_last_lr()[0], 4))
        0.7
        0.4
        0.1
        0.1
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | Sequence[float],
        anneal_epochs: int = 10,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        last_epoch: int = -1,
    ) -> None:
        rates = per_group("swa_lr", optimizer, swa_lr)
        for rate, group in zip(rates, optimizer.param_groups, strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ["cos", "linear"]:
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self._anneal_strategy = anneal_strategy
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _annealed(self, done: float) -> float:
        """Tell how far the rate is on its way, once a part of the epochs is over."""
        return (1 - math.cos(math.pi * done)) / 2 if self._anneal_strategy == "cos" else done

    def get_lr(self) -> list[Rate]:
        """Between what the rate was at the start and `swa_lr`."""
        self._warn_outside_step()
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = (
            self._annealed(max(0, min(1, n / max(1, self.anneal_epochs)))) for n in (step - 1, step)
        )
        rates = []
        for group in self.optimizer.param_groups:
            lr, final = group["lr"], group["swa_lr"]
            start = final if before == 1 else (lr - before * final) / (1 - before)
            rates.append(final * now + start * (1 - now))
        return rates
