"""Samplers: in which order the samples of a dataset come."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

from ...dtypes import float64
from ...ops.creation import as_tensor
from ...ops.random import multinomial, randint, randperm
from ...random import Generator

T_co = TypeVar("T_co", covariant=True)


class Sampler(Generic[T_co]):
    """An order of indices, or of batches of them: a subclass defines `__iter__`.

    Example:
        >>> class Backwards(adjit.utils.data.Sampler):
        ...     def __init__(self, data):
        ...         self.data = data
        ...     def __iter__(self):
        ...         return iter(range(len(self.data) - 1, -1, -1))
        >>> list(Backwards("abc"))
        [2, 1, 0]
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError


class SequentialSampler(Sampler[int]):
    """0, 1, 2 and so on.

    Example:
        >>> list(adjit.utils.data.SequentialSampler("abc"))
        [0, 1, 2]
    """

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """A permutation, or with `replacement` independent draws.

    Args:
        data_source: whose indices.
        replacement: whether an index may come twice.
        num_samples: how many; the length of `data_source` if None. Without replacement more than
            that is permutation after permutation.
        generator: of the draws; None seeds a new one from the global one for each iteration.

    Raises:
        TypeError: `replacement` is no bool.
        ValueError: `num_samples` is no positive integer.

    Example:
        >>> sorted(adjit.utils.data.RandomSampler("abc"))
        [0, 1, 2]
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
        """The number of indices that one iteration gives; follows the data source if it was not given.

        Example:
            >>> adjit.utils.data.RandomSampler("abc").num_samples
            3
        """
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        n = len(self.data_source)
        generator = self.generator
        if generator is None:
            generator = Generator()
            generator.manual_seed(random_seed(None))
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

    Example:
        >>> sorted(adjit.utils.data.SubsetRandomSampler([4, 7, 9]))
        [4, 7, 9]
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
    """Indices drawn with probabilities proportional to `weights`.

    Args:
        weights: a sequence, or a tensor of one dimension; they need not add up to 1.
        num_samples: how many.
        replacement: whether an index may come twice.
        generator: of the draws.

    Raises:
        ValueError: `num_samples` is no positive integer, `replacement` no bool, `weights`
            not one-dimensional.

    Example:
        >>> list(adjit.utils.data.WeightedRandomSampler([0.0, 1.0, 0.0], 3))
        [1, 1, 1]
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
        yield from drawn.tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of `batch_size` indices of another sampler.

    Args:
        sampler: any iterable of indices.
        batch_size: how many in a list.
        drop_last: leave out a last list that is shorter.

    Raises:
        ValueError: `batch_size` is no positive integer, `drop_last` no bool.

    Example:
        >>> list(adjit.utils.data.BatchSampler(range(5), batch_size=2, drop_last=False))
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


def random_seed(generator: Any) -> int:
    return int(randint(2**62, (), generator=generator).item())
