"""The batches of an epoch, made when they are asked for or by worker threads."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any

from .collate import default_collate
from .dataset import _DatasetKind, items_at, rows_at
from .sampler import random_seed


@dataclass(frozen=True)
class WorkerInfo:
    """What `get_worker_info` says about the worker it is called in."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_worker = threading.local()


def get_worker_info() -> WorkerInfo | None:
    """The worker this is called in, with `id`, `num_workers`, `seed` and `dataset`.

    None outside of workers. An iterable dataset uses it to give each worker its own part.

    Example:
        >>> class Shards(adjit.utils.data.IterableDataset):
        ...     def __iter__(self):
        ...         worker = adjit.utils.data.get_worker_info()
        ...         begin, step = (worker.id, worker.num_workers) if worker else (0, 1)
        ...         return iter(range(begin, 6, step))
        >>> list(Shards())
        [0, 1, 2, 3, 4, 5]
    """
    return getattr(_worker, "info", None)


class _Exhausted:
    """A worker's answer when its stream has ended."""


_EXHAUSTED = _Exhausted()
_Fetch = Callable[[Any], Any]
_Task = tuple["Future[Any]", Any]


def _fetcher(loader: Any) -> _Fetch:
    """The function from what the sampler gives to a batch; one for each stream."""
    dataset, collate, batched = loader.dataset, loader.collate_fn, loader._auto_collation
    if loader._dataset_kind == _DatasetKind.Map:
        if batched and collate is default_collate:
            return partial(_put_together, dataset)
        if batched:
            return lambda indices: collate(items_at(dataset, indices))
        return lambda index: collate(dataset[index])

    stream = iter(dataset)
    if not batched:
        return lambda _: collate(next(stream))

    def fetch(indices: list[Any]) -> Any:
        samples = list(itertools.islice(stream, len(indices)))
        if not samples or (loader.drop_last and len(samples) < len(indices)):
            raise StopIteration
        return collate(samples)

    return fetch


def _put_together(dataset: Any, indices: list[Any]) -> Any:
    rows = rows_at(dataset, indices)
    return default_collate(items_at(dataset, indices)) if rows is None else rows


def _work(loader: Any, info: WorkerInfo, tasks: SimpleQueue[_Task | None]) -> None:
    """A worker's life: set up, then answer tasks in order until there is a None."""
    _worker.info = info
    fetch: _Fetch | None = None
    while (task := tasks.get()) is not None:
        answer, indices = task
        if not answer.set_running_or_notify_cancel():
            continue
        try:
            if fetch is None:
                if loader.worker_init_fn is not None:
                    loader.worker_init_fn(info.id)
                fetch = _fetcher(loader)
            answer.set_result(fetch(indices))
        except StopIteration:
            answer.set_result(_EXHAUSTED)
        except BaseException as error:
            error.add_note(f"Caught in DataLoader worker thread {info.id}.")
            answer.set_exception(error)


def _dismiss(queues: list[SimpleQueue[_Task | None]], pending: deque[Future[Any]]) -> None:
    """Let the workers go, and drop what nobody waits for any more."""
    for answer in pending:
        answer.cancel()
    for queue in queues:
        queue.put(None)


# PyTorch's names for what loaders are given.
_collate_fn_t = Callable[[list[Any]], Any]
_worker_init_fn_t = Callable[[int], None]


class _BaseDataLoaderIter(Iterator[Any]):
    """What the iterators of loaders have in common, by the name that PyTorch has for it."""


class WorkerBatches(_BaseDataLoaderIter):
    """The batches of an epoch, made by worker threads that are kept a few batches ahead."""

    def __init__(self, loader: Any) -> None:
        workers = loader.num_workers
        seed = random_seed(loader.generator)
        self._indices = iter(loader._index_sampler)
        self._index_sampler = loader._index_sampler
        self._timeout = loader.timeout or None
        self._in_order = loader.in_order
        self._pending: deque[Future[Any]] = deque()
        self._queues: list[SimpleQueue[_Task | None]] = [SimpleQueue() for _ in range(workers)]
        self._turns = deque(range(workers))  # the workers that still have something to give
        self._worker_of: dict[Future[Any], int] = {}
        for i, queue in enumerate(self._queues):
            info = WorkerInfo(i, workers, seed + i, loader.dataset)
            name = f"DataLoader worker {i}"
            thread = threading.Thread(
                target=_work, args=(loader, info, queue), name=name, daemon=True
            )
            thread.start()
        # The threads must not hold this object, or an iteration broken off would never end.
        self._dismiss = weakref.finalize(self, _dismiss, self._queues, self._pending)
        for _ in range((loader.prefetch_factor or 0) * workers):
            self._assign()

    def _assign(self) -> None:
        """Give the next batch to the next worker."""
        if not self._turns:
            return
        indices = next(self._indices, _EXHAUSTED)
        if indices is _EXHAUSTED:
            return
        worker = self._turns[0]
        self._turns.rotate(-1)
        answer: Future[Any] = Future()
        self._worker_of[answer] = worker
        self._pending.append(answer)
        self._queues[worker].put((answer, indices))

    def _next_answer(self) -> Future[Any]:
        candidates = [self._pending[0]] if self._in_order else list(self._pending)
        done = wait(candidates, self._timeout, FIRST_COMPLETED).done
        if not done:
            raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")
        answer = next(answer for answer in candidates if answer in done)
        self._pending.remove(answer)
        return answer

    def __next__(self) -> Any:
        if not self._pending:
            self._assign()
        while self._pending:
            answer = self._next_answer()
            worker = self._worker_of.pop(answer)
            batch = answer.result()
            if batch is _EXHAUSTED:
                if worker in self._turns:
                    self._turns.remove(worker)
                self._assign()
                continue
            self._assign()
            return batch
        self._dismiss()
        raise StopIteration

    def __len__(self) -> int:
        return len(self._index_sampler)


class Batches(_BaseDataLoaderIter):
    """The batches of an epoch, made when they are asked for."""

    def __init__(self, loader: Any) -> None:
        self._indices = iter(loader._index_sampler)
        self._index_sampler = loader._index_sampler
        self._fetch = _fetcher(loader)

    def __next__(self) -> Any:
        return self._fetch(next(self._indices))

    def __len__(self) -> int:
        return len(self._index_sampler)


_SingleProcessDataLoaderIter = Batches  # PyTorch's name
