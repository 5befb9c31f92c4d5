"""Processes that have different numbers of batches: `Join`, and what takes part in it."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Self

from ..absent import absent as _absent
from ..devices import device
from ..ops import creation
from .collectives import all_reduce
from .work import Work

__all__ = ["Join", "JoinHook", "Joinable"]

MANY = 1000  # batches that a process lacks: worth a warning


class JoinHook:
    """Says what a process that has no batches left does for the others. Both methods do nothing here.

    Example:
        >>> adjit.distributed.algorithms.JoinHook().main_hook()
    """

    def main_hook(self) -> None:
        """Take part in the collectives of one step of the others; called as long as one has batches left.

        Example:
            >>> adjit.distributed.algorithms.JoinHook().main_hook()
        """

    def post_hook(self, is_last_joiner: bool) -> None:
        """End; called once, when no process has batches left.

        Args:
            is_last_joiner: whether this process was one of the last to have some.

        Example:
            >>> adjit.distributed.algorithms.JoinHook().post_hook(True)
        """


class _Config(NamedTuple):
    """What something that takes part knows of the block that it is in."""

    enable: bool = False
    throw_on_early_termination: bool = False
    is_first_joinable: bool = False


class Joinable(ABC):
    """A class of what takes part in `Join`. It has `join_hook`, and properties `join_device` and
    `join_process_group`, and calls `Join.notify_join_context` before the collectives of a step.

    Example:
        >>> isinstance(nn.parallel.DistributedDataParallel, type(adjit.distributed.algorithms.Joinable))
        True
    """

    _join_config = _Config()

    @abstractmethod
    def __init__(self) -> None:
        super().__init__()
        self._join_config = _Config()

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Make what the process does once it has no batches left.

        Args:
            kwargs: what `Join` was given besides.

        Example:
            >>> adjit.distributed.algorithms.Joinable.join_hook.__isabstractmethod__
            True
        """

    @property
    @abstractmethod
    def join_device(self) -> device:
        """The device of the collectives of `Join`.

        Example:
            >>> adjit.distributed.algorithms.Joinable.join_device.__isabstractmethod__
            True
        """

    @property
    @abstractmethod
    def join_process_group(self) -> Any:
        """The processes that take part.

        Example:
            >>> adjit.distributed.algorithms.Joinable.join_process_group.__isabstractmethod__
            True
        """


class Join:
    """Let processes have different numbers of batches, in a `with` block around their loop.

    A process that leaves the loop stays in the block and takes part in the collectives of the others, by the
    hooks of the `joinables`, until all have left theirs.

    Args:
        joinables: what has collectives in each step, of one process group.
        enable: False for a block that does nothing.
        throw_on_early_termination: whether all processes raise an error as soon as one has no batch left.
        kwargs: for the hooks of all `joinables`.

    Raises:
        ValueError: if there is no joinable, or they are of several groups.
        RuntimeError: at the end of the block, or where a step begins, with `throw_on_early_termination`.

    Example:
        >>> import adjit.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> net = nn.parallel.DistributedDataParallel(nn.Linear(2, 1))
        >>> with dist.algorithms.Join([net]):
        ...     for batch in adjit.ones(3, 4, 2):
        ...         net(batch).mean().backward()
        >>> net.module.bias.grad
        tensor([3.])
        >>> dist.destroy_process_group()
    """

    def __init__(
        self, joinables: Sequence[Joinable], enable: bool = True,
        throw_on_early_termination: bool = False, **kwargs: Any,
    ) -> None:  # fmt: skip
        if not joinables:
            raise ValueError("The join context manager requires at least one joinable")
        self._joinables, self._enable = list(joinables), enable
        self._throws = throw_on_early_termination
        self._hooks = [one.join_hook(**kwargs) for one in joinables]
        first = joinables[0]
        self._group, self._device = first.join_process_group, first.join_device
        if any(one.join_process_group != self._group for one in joinables):
            raise ValueError("Using join context manager with multiple process groups")
        for k, one in enumerate(joinables):
            one._join_config = _Config(enable, throw_on_early_termination, k == 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        try:
            if self._enable and kind is None:
                self._wait_for_others()
        finally:
            for one in self._joinables:
                one._join_config = _Config()

    def _wait_for_others(self) -> None:
        shadowed = 0
        while self._active():
            if self._throws:
                all_reduce(creation.ones(1, device=self._device), group=self._group)
                raise RuntimeError(f"Rank {self._group.rank()} exhausted all inputs.")
            for hook in self._hooks:
                hook.main_hook()
            shadowed += 1
            if shadowed == MANY:
                warnings.warn(
                    f"Detected uneven input skew of greater than {MANY}. This means that rank "
                    f"{self._group.rank()} has at least {MANY} fewer inputs than other "
                    "currently-active ranks. This level of skew could lead to performance degradation "
                    "during training.",
                    stacklevel=3,
                )
        for hook in self._hooks:
            hook.post_hook(shadowed == 0)

    def _active(self) -> int:
        """How many processes begin another step."""
        count = creation.zeros(1, device=self._device)
        all_reduce(count, group=self._group)
        return int(count)

    @staticmethod
    def notify_join_context(joinable: Joinable) -> Work | None:
        """Tell the processes that have no batches left that this one begins another step.

        Args:
            joinable: who calls this, before any other collective of the step.

        Returns:
            The work of a sum over the processes, if `joinable` is the first of a `Join`; None otherwise.

        Raises:
            RuntimeError: with `throw_on_early_termination`, if a process has no batches left.

        Example:
            >>> import adjit.distributed as dist
            >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            >>> net = nn.parallel.DistributedDataParallel(nn.Linear(2, 1))
            >>> dist.algorithms.Join.notify_join_context(net)
            >>> dist.destroy_process_group()
        """
        told = announced(joinable)
        return None if told is None else told[0]


def announced(joinable: Joinable) -> tuple[Work, Any] | None:
    """What `Join.notify_join_context` gives, and the tensor in which the number of active processes will be."""
    config = joinable._join_config
    if not config.is_first_joinable or not config.enable:
        return None
    group, place = joinable.join_process_group, joinable.join_device
    active = creation.ones(1, device=place)
    work = all_reduce(active, group=group, async_op=True)
    assert work is not None
    if config.throw_on_early_termination:
        ended = creation.zeros(1, device=place)
        all_reduce(ended, group=group)
        if int(ended):
            raise RuntimeError(
                "Detected at least one rank that exhausted inputs. Throwing across all ranks."
            )
    return work, active


def __getattr__(name: str) -> NoReturn:
    raise _absent("distributed.algorithms", name)
