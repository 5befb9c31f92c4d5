"""Datasets, samplers and the loader that makes batches of them."""

from __future__ import annotations

import copy
import itertools
import math
import threading
import warnings
import weakref
from bisect import bisect_right
from collections import deque
from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    MutableSequence,
    Sequence,
    Sized,
)
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import numpy as np

from .. import driver
from ..dtypes import float64
from ..ops.creation import as_tensor, tensor
from ..ops.joining import stack
from ..ops.random import multinomial, randint, randperm
from ..random import Generator
from ..tensor import Tensor

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "default_collate",
    "default_convert",
    "get_worker_info",
    "random_split",
]


# ---------------------------------------------------------------------------------------------
# Datasets


class Dataset(Generic[T_co]):
    """A map from indices to samples: a subclass defines ``__getitem__`` and ``__len__``.

    With ``__getitems__(indices)`` it may fetch a whole batch at once.

    Example::

        >>> class Squares(Dataset):
        ...     def __len__(self):
        ...         return 10
        ...
        ...     def __getitem__(self, index):
        ...         return index, index**2
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset[Any]) -> Dataset[Any]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co], Iterable[T_co]):
    """A stream of samples: a subclass defines ``__iter__``.

    With workers, every worker iterates it: use :func:`get_worker_info` to give each its part.

    Example::

        >>> class Countdown(IterableDataset):
        ...     def __iter__(self):
        ...         return iter(range(10, 0, -1))
    """

    def __add__(self, other: Dataset[Any]) -> Dataset[Any]:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Tensors of one length, as a dataset of their rows.

    Args:
        tensors: of shapes ``(N, ...)``.

    Raises:
        AssertionError: the lengths differ.

    Example::

        >>> x, y = TensorDataset(adjit.rand(100, 3), adjit.arange(100))[0]
    """

    tensors: tuple[Tensor, ...]

    def __init__(self, *tensors: Tensor) -> None:
        if any(tensor.size(0) != tensors[0].size(0) for tensor in tensors):
            raise AssertionError("Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].size(0))


class StackDataset(Dataset[Any]):
    """Datasets of one length, side by side: samples are tuples, or dicts if they are named.

    Raises:
        ValueError: no datasets, named and unnamed ones, or lengths that differ.

    Example::

        >>> StackDataset(image=images, label=labels)[0]["label"]
    """

    datasets: tuple[Any, ...] | dict[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise ValueError(
                "Supported either ``tuple``- (via ``args``) or``dict``- (via ``kwargs``) like "
                "input/output, but both types are given."
            )
        if not args and not kwargs:
            raise ValueError("At least one dataset should be passed")
        self.datasets = args or kwargs
        lengths = {len(dataset) for dataset in args or kwargs.values()}
        if len(lengths) != 1:
            raise ValueError("Size mismatch between datasets")
        self._length = lengths.pop()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        if isinstance(self.datasets, dict):
            columns = [_items(dataset, indices) for dataset in self.datasets.values()]
            return [
                dict(zip(self.datasets, row, strict=True)) for row in zip(*columns, strict=True)
            ]
        return list(zip(*(_items(dataset, indices) for dataset in self.datasets), strict=True))

    def __len__(self) -> int:
        return self._length


def _items(dataset: Any, indices: list[Any]) -> list[Any]:
    """The samples at ``indices``, at once where the dataset can."""
    fetch = getattr(dataset, "__getitems__", None)
    if not callable(fetch):
        return [dataset[index] for index in indices]
    items = fetch(indices)
    if len(items) != len(indices):
        raise ValueError(
            f"Nested dataset's output size mismatch. Expected {len(indices)}, got {len(items)}"
        )
    return list(items)


class ConcatDataset(Dataset[T_co]):
    """Datasets one after the other; also what ``a + b`` makes.

    Raises:
        AssertionError: no datasets, or an iterable one.

    Example::

        >>> len(ConcatDataset([range(3), range(4)]))
        7
    """

    datasets: list[Any]
    cumulative_sizes: list[int]

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = list(itertools.accumulate(map(len, self.datasets)))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> T_co:
        if index < 0:
            if -index > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            index += len(self)
        which = bisect_right(self.cumulative_sizes, index)
        before = self.cumulative_sizes[which - 1] if which else 0
        sample: T_co = self.datasets[which][index - before]
        return sample


class ChainDataset(IterableDataset[T_co]):
    """Iterable datasets one after the other.

    Raises:
        AssertionError: a dataset that is not iterable.

    Example::

        >>> list(ChainDataset([stream, other_stream]))
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = datasets

    def _checked(self) -> Iterator[Any]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise AssertionError("ChainDataset only supports IterableDataset")
            yield dataset

    def __iter__(self) -> Iterator[T_co]:
        for dataset in self._checked():
            yield from dataset

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self._checked())


class Subset(Dataset[T_co]):
    """Some samples of a dataset.

    Args:
        dataset: where they come from.
        indices: which.

    Raises:
        NotImplementedError: a subclass that redefines ``__getitem__`` alone.

    Example::

        >>> Subset("abcdef", [2, 3, 5])[0]
        'c'
    """

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices
        cls = type(self)
        if cls.__getitem__ is not Subset.__getitem__ and cls.__getitems__ is Subset.__getitems__:
            raise NotImplementedError(
                f"{cls.__name__} overrides __getitem__ but not __getitems__. When subclassing "
                "Subset and overriding __getitem__, you must also override __getitems__ to ensure "
                "DataLoader works correctly with your custom logic. A simple implementation:\n\n"
                "def __getitems__(self, indices):\n"
                "    return [self.__getitem__(idx) for idx in indices]"
            )

    def __getitem__(self, index: Any) -> T_co:
        chosen: Any
        chosen = (
            [self.indices[i] for i in index] if isinstance(index, list) else self.indices[index]
        )
        sample: T_co = self.dataset[chosen]
        return sample

    def __getitems__(self, indices: list[int]) -> list[T_co]:
        return _items(self.dataset, [self.indices[i] for i in indices])

    def __len__(self) -> int:
        return len(self.indices)


def random_split(
    dataset: Any, lengths: Sequence[int | float], generator: Any = None
) -> list[Subset[Any]]:
    """Cut a dataset at random into subsets that share no sample.

    Args:
        dataset: what to cut.
        lengths: of the subsets; or fractions that add up to 1, whose remainders are given out one
            by one.
        generator: of the permutation; the global one if None.

    Raises:
        ValueError: a fraction out of range, or lengths that do not add up to the dataset's.

    Example::

        >>> train, test = random_split(dataset, [0.8, 0.2], adjit.Generator().manual_seed(42))
    """
    total = len(dataset)
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        lengths = _lengths_of_fractions(lengths, total)
    if sum(lengths) != total:
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    order = randperm(total, generator=generator).tolist()
    ends = itertools.accumulate(lengths)
    return [
        Subset(dataset, order[int(end - length) : int(end)])
        for end, length in zip(ends, lengths, strict=True)
    ]


def _lengths_of_fractions(fractions: Sequence[float], total: int) -> list[int]:
    for i, fraction in enumerate(fractions):
        if not 0 <= fraction <= 1:
            raise ValueError(f"Fraction at index {i} is not between 0 and 1")
    lengths = [math.floor(total * fraction) for fraction in fractions]
    for i in range(total - sum(lengths)):
        lengths[i % len(lengths)] += 1
    for i, length in enumerate(lengths):
        if length == 0:
            warnings.warn(
                f"Length of split at index {i} is 0. This might result in an empty dataset.",
                stacklevel=3,
            )
    return lengths


# ---------------------------------------------------------------------------------------------
# Samplers


class Sampler(Generic[T_co]):
    """An order of indices, or of batches of them: a subclass defines ``__iter__``.

    Example::

        >>> class Backwards(Sampler):
        ...     def __init__(self, data):
        ...         self.data = data
        ...
        ...     def __iter__(self):
        ...         return iter(range(len(self.data) - 1, -1, -1))
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError


class SequentialSampler(Sampler[int]):
    """0, 1, 2 and so on.

    Example::

        >>> list(SequentialSampler("abc"))
        [0, 1, 2]
    """

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """A permutation, or with ``replacement`` independent draws.

    Args:
        data_source: whose indices.
        replacement: whether an index may come twice.
        num_samples: how many; the length of ``data_source`` if None. Without replacement more than
            that is permutation after permutation.
        generator: of the draws; None seeds a new one from the global one for each iteration.

    Raises:
        TypeError: ``replacement`` is no bool.
        ValueError: ``num_samples`` is no positive integer.

    Example::

        >>> sampler = RandomSampler(dataset, generator=adjit.Generator().manual_seed(0))
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Any = None,
    ) -> None:
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        if not isinstance(replacement, bool):
            raise TypeError(
                f"replacement should be a boolean value, but got replacement={replacement}"
            )
        _check_num_samples(self.num_samples)

    @property
    def num_samples(self) -> int:
        """How many indices one iteration gives; follows the data source if it was not given."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        n = len(self.data_source)
        generator = self.generator
        if generator is None:
            generator = Generator()
            generator.manual_seed(_random_seed(None))
        left = self.num_samples
        while left > 0:
            if self.replacement:
                drawn = randint(n, (min(left, 1024),), generator=generator)
            else:
                drawn = randperm(n, generator=generator)[:left]
            yield from drawn.tolist()
            left -= drawn.numel()

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices in random order.

    Example::

        >>> loader = DataLoader(dataset, sampler=SubsetRandomSampler(training_indices))
    """

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for i in randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Indices drawn with probabilities proportional to ``weights``.

    Args:
        weights: a sequence, or a tensor of one dimension; they need not add up to 1.
        num_samples: how many.
        replacement: whether an index may come twice.
        generator: of the draws.

    Raises:
        ValueError: ``num_samples`` is no positive integer, ``replacement`` no bool, ``weights``
            not one-dimensional.

    Example::

        >>> list(WeightedRandomSampler([0.1, 0.9, 0.4, 0.7], 5, replacement=True))
        [1, 1, 3, 1, 2]
    """

    def __init__(
        self,
        weights: Any,
        num_samples: int,
        replacement: bool = True,
        generator: Any = None,
    ) -> None:
        _check_num_samples(num_samples)
        if not isinstance(replacement, bool):
            raise ValueError(
                f"replacement should be a boolean value, but got replacement={replacement}"
            )
        self.weights = as_tensor(weights, dtype=float64)
        if self.weights.dim() != 1:
            raise ValueError(
                "weights should be a 1d sequence but given weights have shape "
                f"{tuple(self.weights.shape)}"
            )
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        drawn = multinomial(
            self.weights, self.num_samples, self.replacement, generator=self.generator
        )
        return iter(drawn.tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of ``batch_size`` indices of another sampler.

    Args:
        sampler: any iterable of indices.
        batch_size: how many in a list.
        drop_last: leave out a last list that is shorter.

    Raises:
        ValueError: ``batch_size`` is no positive integer, ``drop_last`` no bool.

    Example::

        >>> list(BatchSampler(range(5), batch_size=2, drop_last=False))
        [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[Any], batch_size: int, drop_last: bool) -> None:
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
            raise ValueError(
                f"batch_size should be a positive integer value, but got batch_size={batch_size}"
            )
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        length = len(self.sampler)  # type: ignore[arg-type]
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)


def _check_num_samples(num_samples: int) -> None:
    if not isinstance(num_samples, int) or isinstance(num_samples, bool) or num_samples <= 0:
        raise ValueError(
            f"num_samples should be a positive integer value, but got num_samples={num_samples}"
        )


def _random_seed(generator: Any) -> int:
    return int(randint(2**62, (), generator=generator).item())


# ---------------------------------------------------------------------------------------------
# From samples to batches


def _rebuild(template: Any, entries: dict[Any, Any] | list[Any]) -> Any:
    """``entries`` in a container of ``template``'s type; a plain one where that cannot be made."""
    try:
        if isinstance(template, (MutableMapping, MutableSequence)):
            clone = copy.copy(template)
            pairs = entries.items() if isinstance(entries, dict) else enumerate(entries)
            for key, entry in pairs:
                clone[key] = entry
            return clone
        return type(template)(entries)
    except TypeError:
        return entries


def _is_namedtuple(value: object) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


def default_convert(data: Any) -> Any:
    """Arrays and NumPy numbers as tensors, inside any nesting of mappings and sequences.

    What a loader without batches does to each sample. Strings and other objects stay.

    Example::

        >>> default_convert({"x": np.arange(2), "name": "a"})
        {'x': tensor([0, 1]), 'name': 'a'}
    """
    match data:
        case Tensor() | str() | bytes():
            return data
        case np.ndarray():
            return data if data.dtype.kind in "SUO" else as_tensor(data)
        case np.generic():
            return as_tensor(data)
        case Mapping():
            return _rebuild(data, {key: default_convert(entry) for key, entry in data.items()})
        case tuple() if _is_namedtuple(data):
            return type(data)(*map(default_convert, data))
        case tuple():
            return [default_convert(entry) for entry in data]
        case Sequence():
            return _rebuild(data, [default_convert(entry) for entry in data])
        case _:
            return data


def _pinned(data: Any) -> Any:
    """A batch in page-locked memory, inside any nesting; what has `pin_memory` of its own does it so."""
    match data:
        case str() | bytes():
            return data
        case Mapping():
            return _rebuild(data, {key: _pinned(entry) for key, entry in data.items()})
        case tuple() if _is_namedtuple(data):
            return type(data)(*map(_pinned, data))
        case tuple():
            return [_pinned(entry) for entry in data]
        case Sequence():
            return _rebuild(data, [_pinned(entry) for entry in data])
        case _:
            return data.pin_memory() if hasattr(data, "pin_memory") else data


def default_collate(batch: Sequence[Any]) -> Any:
    """One batch from a list of samples: what a loader does unless it is told otherwise.

    Tensors and arrays are stacked along a new first dimension; numbers become a tensor (float64
    or int64); strings a list; mappings, sequences and named tuples are gone through entry by
    entry. The first sample tells which.

    Raises:
        RuntimeError: sequences of different lengths, tensors of different shapes.
        TypeError: samples of any other type.

    Example::

        >>> default_collate([{"x": 1, "name": "a"}, {"x": 2, "name": "b"}])
        {'x': tensor([1, 2]), 'name': ['a', 'b']}
    """
    first = batch[0]
    match first:
        case Tensor():
            return stack(list(batch), 0)
        case np.ndarray():
            if first.dtype.kind in "SUO":
                raise _cannot_collate(first.dtype)
            return stack([as_tensor(array) for array in batch], 0)
        case str() | bytes():
            return batch
        case float() if not isinstance(first, np.generic):
            return tensor(batch, dtype=float64)
        case int():
            return tensor(batch)
        case np.bool_() | np.number():
            return as_tensor(np.asarray(batch))
        case Mapping():
            return _rebuild(
                first, {key: default_collate([sample[key] for sample in batch]) for key in first}
            )
        case tuple() if _is_namedtuple(first):
            return type(first)(*map(default_collate, zip(*batch, strict=True)))
        case Sequence():
            if any(len(sample) != len(first) for sample in batch):
                raise RuntimeError("each element in list of batch should be of equal size")
            columns = [default_collate(column) for column in zip(*batch, strict=True)]
            return columns if isinstance(first, tuple) else _rebuild(first, columns)
        case _:
            raise _cannot_collate(type(first))


def _cannot_collate(what: object) -> TypeError:
    return TypeError(
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
        f"found {what}"
    )


# ---------------------------------------------------------------------------------------------
# Workers


@dataclass(frozen=True)
class WorkerInfo:
    """What :func:`get_worker_info` says about the worker it is called in."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_worker = threading.local()


def get_worker_info() -> WorkerInfo | None:
    """The worker this is called in, with ``id``, ``num_workers``, ``seed`` and ``dataset``.

    None outside of workers. An iterable dataset uses it to give each worker its own part.

    Example::

        >>> class Lines(IterableDataset):
        ...     def __iter__(self):
        ...         worker = get_worker_info()
        ...         begin, step = (worker.id, worker.num_workers) if worker else (0, 1)
        ...         return itertools.islice(open("data.txt"), begin, None, step)
    """
    return getattr(_worker, "info", None)


class _Exhausted:
    """A worker's answer when its stream has ended."""


_EXHAUSTED = _Exhausted()

_Fetch = Callable[[Any], Any]
_Task = tuple["Future[Any]", Any]


def _fetcher(loader: DataLoader[Any]) -> _Fetch:
    """The function from what the sampler gives to a batch; one for each stream."""
    dataset, collate, batched = loader.dataset, loader.collate_fn, loader._auto_collation
    if not isinstance(dataset, IterableDataset):
        if batched:
            return lambda indices: collate(_items(dataset, indices))
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


def _work(loader: DataLoader[Any], info: WorkerInfo, tasks: SimpleQueue[_Task | None]) -> None:
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


class _WorkerBatches(Iterator[Any]):
    """The batches of an epoch, made by worker threads that are kept a few batches ahead."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        workers = loader.num_workers
        seed = _random_seed(loader.generator)
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
        return len(self._index_sampler)  # type: ignore[arg-type]


class _Batches(Iterator[Any]):
    """The batches of an epoch, made when they are asked for."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._indices = iter(loader._index_sampler)
        self._index_sampler = loader._index_sampler
        self._fetch = _fetcher(loader)

    def __next__(self) -> Any:
        return self._fetch(next(self._indices))

    def __len__(self) -> int:
        return len(self._index_sampler)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------
# The loader


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
    numbers in workers should do so from a generator seeded with ``get_worker_info().seed``.

    Args:
        dataset: has ``__getitem__`` and ``__len__``, or is an :class:`IterableDataset`.
        batch_size: samples in a batch; None gives single samples.
        shuffle: a new random order in each epoch.
        sampler: the order of the indices, in place of ``shuffle``.
        batch_sampler: the order of lists of indices, in place of ``batch_size``, ``shuffle``,
            ``sampler`` and ``drop_last``.
        num_workers: threads that fetch samples; 0 fetches when a batch is asked for.
        collate_fn: makes a batch from a list of samples; :func:`default_collate` if None, and
            :func:`default_convert` for single samples.
        pin_memory: put batches into page-locked memory, from which a GPU copies while the program goes
            on (``non_blocking=True``). Without a GPU nothing is done.
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
        ValueError: options that contradict each other or are out of range, ``timeout`` without
            workers included.
        RuntimeError: a worker took longer than ``timeout``.

    Example::

        >>> loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
        >>> for inputs, targets in loader:
        ...     train(inputs, targets)
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
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Iterable[Any]:
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def __iter__(self) -> Iterator[T_co]:
        batches: Iterator[Any] = _WorkerBatches(self) if self.num_workers else _Batches(self)
        if self.pin_memory and not driver.reason():
            batches = map(_pinned, batches)
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
    """``batches``, with a warning where there are more of them than the loader's length said."""
    announced = loader._announced_length
    for fetched, batch in enumerate(batches, 1):
        if fetched > announced:
            warnings.warn(
                f"Length of IterableDataset {loader.dataset} was reported to be {announced}"
                f"(when accessing len(dataloader)), but {fetched} samples have been fetched. ",
                stacklevel=2,
            )
        yield batch
