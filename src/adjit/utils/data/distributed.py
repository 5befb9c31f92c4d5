"""Each process's part of a dataset."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ...distributed.group import get_rank, get_world_size
from ...ops.random import randperm
from ...random import Generator
from .sampler import Sampler

__all__ = ["DistributedSampler"]


class DistributedSampler(Sampler[int]):
    """The indices of one process: every so manieth of the dataset's, shuffled by the epoch's number.

    All processes have equally many: some samples come twice, or with `drop_last` some not at all.

    Args:
        dataset: whose length is the same in all processes.
        num_replicas: how many processes there are; those of the default group if it is not given.
        rank: the number of this one, likewise.
        shuffle: whether the order changes with each epoch that `set_epoch` names.
        seed: of the order, the same in all processes.
        drop_last: whether to leave samples out, not to repeat some.

    Raises:
        ValueError: for a rank that is not there; without a group, if the numbers are not given.

    Example:
        >>> [list(adjit.utils.data.DistributedSampler(range(5), 2, k, shuffle=False)) for k in range(2)]
        [[0, 2, 4], [1, 3, 0]]
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        self.dataset = dataset
        self.num_replicas = get_world_size() if num_replicas is None else num_replicas
        self.rank = get_rank() if rank is None else rank
        if not 0 <= self.rank < self.num_replicas:
            raise ValueError(
                f"Invalid rank {self.rank}, rank should be in the interval [0, {self.num_replicas - 1}]"
            )
        self.shuffle, self.seed, self.drop_last = shuffle, seed, drop_last
        self.epoch = 0
        share = len(dataset) / self.num_replicas
        self.num_samples = math.floor(share) if drop_last else math.ceil(share)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        indices = list(range(len(self.dataset)))
        if self.shuffle:
            order = Generator()
            order.manual_seed(self.seed + self.epoch)
            indices = randperm(len(indices), generator=order).tolist()
        if indices:
            indices *= math.ceil(self.total_size / len(indices))
        return iter(indices[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Tell the number of the epoch, on which the order depends.

        Example:
            >>> sampler = adjit.utils.data.DistributedSampler(range(100), 2, 0)
            >>> first = list(sampler)
            >>> sampler.set_epoch(1)
            >>> list(sampler) == first
            False
        """
        self.epoch = epoch
