"""Datasets: where samples come from."""

from __future__ import annotations

import itertools
import math
import warnings
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from ...dtypes import int64
from ...ops.creation import tensor
from ...ops.random import randperm
from ...tensor import Tensor

T_co = TypeVar("T_co", covariant=True)


class Dataset(Generic[T_co]):
    """A map from indices to samples: a subclass defines `__getitem__` and `__len__`.

    With `__getitems__(indices)` it may fetch a whole batch at once.

    Example:
        >>> class Squares(adjit.utils.data.Dataset):
        ...     def __len__(self):
        ...         return 10
        ...     def __getitem__(self, index):
        ...         return index, index**2
        >>> Squares()[3]
        (3, 9)
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset[Any]) -> Dataset[Any]:
        return ConcatDataset([self, other])


class _DatasetKind:
    """Whether a dataset is asked for examples by number, or gives them one after the other."""

    Map, Iterable = 0, 1


class IterableDataset(Dataset[T_co], Iterable[T_co]):
    """A stream of samples: a subclass defines `__iter__`.

    With workers, every worker iterates it: use `get_worker_info` to give each its part.

    Example:
        >>> class Countdown(adjit.utils.data.IterableDataset):
        ...     def __iter__(self):
        ...         return iter(range(3, 0, -1))
        >>> list(Countdown())
        [3, 2, 1]
    """

    def __add__(self, other: Dataset[Any]) -> Dataset[Any]:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Tensors of one length, as a dataset of their rows.

    Args:
        tensors: of shapes `(N, ...)`.

    Raises:
        AssertionError: the lengths differ.

    Example:
        >>> adjit.utils.data.TensorDataset(adjit.eye(2), adjit.arange(2))[1]
        (tensor([0., 1.]), tensor(1))
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

    Example:
        >>> adjit.utils.data.StackDataset(image=["a", "b"], label=[3, 4])[1]
        {'image': 'b', 'label': 4}
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
            columns = [items_at(dataset, indices) for dataset in self.datasets.values()]
            return [
                dict(zip(self.datasets, row, strict=True)) for row in zip(*columns, strict=True)
            ]
        return list(zip(*(items_at(dataset, indices) for dataset in self.datasets), strict=True))

    def __len__(self) -> int:
        return self._length


def items_at(dataset: Any, indices: list[Any]) -> list[Any]:
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


def rows_at(dataset: Any, indices: list[Any]) -> list[Tensor] | None:
    """The samples at ``indices`` as `default_collate` puts them together, in one step for each tensor.

    None where they are no rows of plain tensors without gradients, or an index is to be refused.
    """
    while type(dataset) is Subset:
        indices, dataset = [dataset.indices[k] for k in indices], dataset.dataset
    is_plain = getattr(type(dataset), "__getitem__", None) is TensorDataset.__getitem__
    if not is_plain or hasattr(dataset, "__getitems__"):
        return None
    tensors = dataset.tensors
    if any(type(t) is not Tensor or t.requires_grad or not t.ndim for t in tensors):
        return None
    size = min(t.shape[0] for t in tensors)
    if not all(type(k) is int and 0 <= k < size for k in indices):
        return None
    places = tensor(indices, dtype=int64)
    return [t.index_select(0, places.to(t.device)) for t in tensors]


class ConcatDataset(Dataset[T_co]):
    """Datasets one after the other; also what `a + b` makes.

    Raises:
        AssertionError: no datasets, or an iterable one.

    Example:
        >>> len(adjit.utils.data.ConcatDataset([range(3), range(4)]))
        7
    """

    datasets: list[Any]
    cumulative_sizes: list[int]

    def __init__(self, datasets: Iterable[Any]) -> None:
        super().__init__()
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

    Example:
        >>> class Countdown(adjit.utils.data.IterableDataset):
        ...     def __iter__(self):
        ...         return iter(range(2, 0, -1))
        >>> list(adjit.utils.data.ChainDataset([Countdown(), Countdown()]))
        [2, 1, 2, 1]
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
        NotImplementedError: a subclass that redefines `__getitem__` alone.

    Example:
        >>> adjit.utils.data.Subset("abcdef", [2, 3, 5])[0]
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
        return items_at(self.dataset, [self.indices[i] for i in indices])

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

    Example:
        >>> train, test = adjit.utils.data.random_split(range(10), [0.8, 0.2])
        >>> len(train), len(test)
        (8, 2)
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
