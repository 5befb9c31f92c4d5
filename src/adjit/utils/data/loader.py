"""The loader, which makes batches of a dataset."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic

from ... import driver
from .collate import default_collate, default_convert, pinned
from .dataset import IterableDataset, T_co, _DatasetKind
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler
from .workers import Batches, WorkerBatches


class _Endless(Sampler[None]):
    """The indices of a stream, which has none."""

    def __iter__(self) -> Iterator[None]:
        return itertools.repeat(None)


_FIXED = (
    "batch_size",
    "batch_sampler",
    "sampler",
    "drop_last",
    "dataset",
    "persistent_workers",
)


class DataLoader(Generic[T_co]):
    """Batches of a dataset, epoch after epoch.

    Workers are threads: they share the dataset and the process's memory, so nothing is pickled,
    and they help where samples wait for files or the network, or are made by code that releases
    the interpreter lock. Batches keep the order of the sampler. A dataset that draws random
    numbers in workers should do so from a generator seeded with `get_worker_info().seed`.

    Args:
        dataset: has `__getitem__` and `__len__`, or is an `IterableDataset`.
        batch_size: samples in a batch; None gives single samples.
        shuffle: a new random order in each epoch.
        sampler: the order of the indices, in place of `shuffle`.
        batch_sampler: the order of lists of indices, in place of `batch_size`, `shuffle`,
            `sampler` and `drop_last`.
        num_workers: threads that fetch samples; 0 fetches when a batch is asked for.
        collate_fn: makes a batch from a list of samples; `default_collate` if None, and
            `default_convert` for single samples.
        pin_memory: put batches into page-locked memory, from which a GPU copies while the program goes
            on (`non_blocking=True`). Without a GPU nothing is done.
        drop_last: leave out a last batch that is smaller.
        timeout: seconds to wait for a worker; 0 waits for ever.
        worker_init_fn: called in each worker with its number, before the first sample.
        multiprocessing_context: must be None.
        generator: of the random order and of the workers' seeds.
        prefetch_factor: batches that each worker is ahead; 2 if None.
        persistent_workers: accepted; threads are started anew in each epoch.
        pin_memory_device: accepted.
        in_order: False gives batches as they are done.

    Raises:
        ValueError: options that contradict each other or are out of range, `timeout` without
            workers included.
        RuntimeError: a worker took longer than `timeout`.

    Example:
        >>> data = adjit.utils.data.TensorDataset(adjit.arange(5), adjit.arange(5) * 10)
        >>> for inputs, targets in adjit.utils.data.DataLoader(data, batch_size=2):
        ...     print(inputs, targets)
        tensor([0, 1]) tensor([ 0, 10])
        tensor([2, 3]) tensor([20, 30])
        tensor([4]) tensor([40])
    """

    _initialized = False

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        if num_workers < 0:
            raise ValueError(
                "num_workers option should be non-negative; "
                "use num_workers=0 to disable multiprocessing."
            )
        if timeout < 0:
            raise ValueError("timeout option should be non-negative")
        if num_workers == 0:
            if prefetch_factor is not None:
                raise ValueError(
                    "prefetch_factor option could only be specified in multiprocessing."
                    "let num_workers > 0 to enable multiprocessing, "
                    "otherwise set prefetch_factor to None."
                )
            if persistent_workers:
                raise ValueError("persistent_workers option needs num_workers > 0")
            if timeout != 0:
                raise ValueError("timeout option needs num_workers > 0")
        elif prefetch_factor is None:
            prefetch_factor = 2
        elif prefetch_factor < 0:
            raise ValueError("prefetch_factor option should be non-negative")
        if multiprocessing_context is not None:
            raise ValueError(
                "multiprocessing_context must be None: the workers of this DataLoader are threads"
            )

        iterable = isinstance(dataset, IterableDataset)
        if iterable:
            for option, given in (
                ("shuffle", shuffle or None),
                ("sampler", sampler),
                ("batch_sampler", batch_sampler),
            ):
                if given is not None:
                    raise ValueError(
                        f"DataLoader with IterableDataset: expected unspecified {option} option, "
                        f"but got {option}={given}"
                    )
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "batch_sampler option is mutually exclusive with "
                    "batch_size, shuffle, sampler, and drop_last"
                )
            batch_size = None
        elif batch_size is None and drop_last:
            raise ValueError(
                "batch_size=None option disables auto-batching and is mutually exclusive "
                "with drop_last"
            )
        if sampler is None:
            if iterable:
                sampler = _Endless()
            elif shuffle:
                sampler = RandomSampler(dataset, generator=generator)
            else:
                sampler = SequentialSampler(dataset)
        if batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)

        self.dataset = dataset
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.num_workers = num_workers
        self.prefetch_factor = prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = None
        self.generator = generator
        self.persistent_workers = persistent_workers
        self.in_order = in_order
        self.collate_fn = collate_fn or (
            default_collate if self._auto_collation else default_convert
        )
        self._initialized = True

    def __setattr__(self, name: str, value: Any) -> None:
        if self._initialized and name in _FIXED:
            raise ValueError(
                f"{name} attribute should not be set after {type(self).__name__} is initialized"
            )
        super().__setattr__(name, value)

    @property
    def _dataset_kind(self) -> int:
        """What is asked of the dataset: one of `_DatasetKind`."""
        is_stream = isinstance(self.dataset, IterableDataset)
        return _DatasetKind.Iterable if is_stream else _DatasetKind.Map

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Iterable[Any]:
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def __iter__(self) -> Iterator[T_co]:
        batches: Iterator[Any] = WorkerBatches(self) if self.num_workers else Batches(self)
        if self.pin_memory and not driver.reason():
            batches = map(pinned, batches)
        if isinstance(self.dataset, IterableDataset) and hasattr(self, "_announced_length"):
            return _warning_beyond(batches, self)
        return batches

    def __len__(self) -> int:
        if not isinstance(self.dataset, IterableDataset):
            return len(self._index_sampler)  # type: ignore[arg-type]
        length = self._announced_length = len(self.dataset)  # type: ignore[arg-type]
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)


def _warning_beyond(batches: Iterator[Any], loader: DataLoader[Any]) -> Iterator[Any]:
    """`batches`, with a warning where there are more of them than the loader's length said."""
    announced = loader._announced_length
    for fetched, batch in enumerate(batches, 1):
        if fetched > announced:
            warnings.warn(
                f"Length of IterableDataset {loader.dataset} was reported to be {announced}"
                f"(when accessing len(dataloader)), but {fetched} samples have been fetched. ",
                stacklevel=2,
            )
        yield batch
