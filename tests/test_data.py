"""Datasets, samplers, collation and the loader: laws, and PyTorch's results and texts."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
import threading
from collections import Counter, OrderedDict, namedtuple
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from library import T, array, plain

DataLoader = T.utils.data.DataLoader
Point = namedtuple("Point", "x y")


class Squares(T.utils.data.Dataset):
    def __init__(self, length: int = 10) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return index**2


class Stream(T.utils.data.IterableDataset):
    """Counts up; each worker has its own share."""

    def __init__(self, length: int = 10) -> None:
        self.length = length

    def __iter__(self) -> Any:
        worker = T.utils.data.get_worker_info()
        begin, step = (worker.id, worker.num_workers) if worker else (0, 1)
        return iter(range(begin, self.length, step))


def lists(loader: Any) -> list[Any]:
    return [batch.tolist() for batch in loader]


def flat(loader: Any) -> list[int]:
    return list(itertools.chain.from_iterable(lists(loader)))


# ---------------------------------------------------------------- datasets


def test_tensor_dataset():
    x, y = T.arange(6.0).reshape(3, 2), T.arange(3)
    dataset = T.utils.data.TensorDataset(x, y)
    assert len(dataset) == 3
    row, label = dataset[1]
    assert row.tolist() == [2.0, 3.0]
    assert label.item() == 1


@given(st.lists(st.integers(0, 5), min_size=1, max_size=5))
def test_concat_is_concatenation(lengths):
    parts = [list(range(10 * i, 10 * i + n)) for i, n in enumerate(lengths)]
    dataset = T.utils.data.ConcatDataset(parts)
    expected = list(itertools.chain(*parts))
    n = len(expected)
    assert len(dataset) == n
    assert [dataset[i] for i in range(n)] == expected
    assert [dataset[i] for i in range(-n, 0)] == expected
    with pytest.raises(ValueError, match="absolute value of index should not exceed"):
        dataset[-n - 1]


def test_sum_of_datasets():
    assert [*map((Squares(2) + Squares(3)).__getitem__, range(5))] == [0, 1, 0, 1, 4]
    chain = Stream(2) + Stream(3)
    assert list(chain) == [0, 1, 0, 1, 2]
    with pytest.raises(AssertionError, match="ChainDataset only supports IterableDataset"):
        list(T.utils.data.ChainDataset([[1, 2]]))
    with pytest.raises(AssertionError, match="ConcatDataset does not support IterableDataset"):
        T.utils.data.ConcatDataset([Stream()])


def test_stack_dataset():
    by_name = T.utils.data.StackDataset(a=[1, 2, 3], b=Squares(3))
    assert by_name[2] == {"a": 3, "b": 4}
    assert by_name.__getitems__([0, 2]) == [{"a": 1, "b": 0}, {"a": 3, "b": 4}]
    by_position = T.utils.data.StackDataset([1, 2, 3], Squares(3))
    assert by_position[1] == (2, 1)
    assert by_position.__getitems__([0, 2]) == [(1, 0), (3, 4)]
    assert len(by_position) == 3


def test_subset():
    subset = T.utils.data.Subset(Squares(), [5, 3, 1])
    assert [subset[i] for i in range(len(subset))] == [25, 9, 1]
    assert subset.__getitems__([2, 0]) == [1, 25]
    rows = T.utils.data.Subset(T.arange(10), T.arange(5, 8).tolist())
    assert rows[[0, 2]].tolist() == [5, 7]

    class Half(T.utils.data.Subset):
        def __getitem__(self, index):
            return super().__getitem__(index) / 2

    with pytest.raises(NotImplementedError, match="overrides __getitem__ but not __getitems__"):
        Half(Squares(), [1])


@settings(deadline=None)
@given(
    # lengths that add up to 1 are fractions
    st.lists(st.integers(0, 6), min_size=1, max_size=4).filter(lambda n: sum(n) != 1),
    st.integers(0, 99),
)
def test_random_split_is_a_partition(lengths, seed):
    data = list(range(sum(lengths)))
    parts = T.utils.data.random_split(data, lengths, T.Generator().manual_seed(seed))
    again = T.utils.data.random_split(data, lengths, T.Generator().manual_seed(seed))
    assert [len(part) for part in parts] == lengths
    assert sorted(itertools.chain(*(part.indices for part in parts))) == data
    assert [part.indices for part in parts] == [part.indices for part in again]


def test_random_split_by_fractions():
    parts = T.utils.data.random_split(range(11), [0.5, 0.25, 0.25])
    assert [len(part) for part in parts] == [6, 3, 2]
    with pytest.warns(UserWarning, match="Length of split at index 1 is 0"):
        T.utils.data.random_split(range(1), [0.75, 0.25])


# ---------------------------------------------------------------- samplers


@settings(deadline=None)
@given(st.integers(1, 20), st.integers(1, 45))
def test_random_sampler_is_permutations(n, samples):
    drawn = list(T.utils.data.RandomSampler(range(n), num_samples=samples))
    assert len(drawn) == samples
    for begin in range(0, samples - n + 1, n):
        assert sorted(drawn[begin : begin + n]) == list(range(n))
    assert max(Counter(drawn[samples // n * n :]).values(), default=1) == 1


def test_random_sampler_with_replacement_and_generators():
    sampler = T.utils.data.RandomSampler(
        range(5), replacement=True, num_samples=2000, generator=T.Generator().manual_seed(0)
    )
    first, second = list(sampler), list(sampler)
    assert set(first) == set(range(5))
    assert first != second
    sampler.generator.manual_seed(0)
    assert list(sampler) == first


def test_global_seed_decides_the_order():
    sampler = T.utils.data.RandomSampler(range(50))
    T.manual_seed(3)
    first, second = list(sampler), list(sampler)
    T.manual_seed(3)
    assert [list(sampler), list(sampler)] == [first, second]
    assert first != second


def test_subset_random_sampler():
    sampler = T.utils.data.SubsetRandomSampler([3, 5, 8, 9])
    assert sorted(sampler) == [3, 5, 8, 9]
    assert len(sampler) == 4


def test_weighted_random_sampler():
    generator = T.Generator().manual_seed(0)
    counts = Counter(T.utils.data.WeightedRandomSampler([0.0, 1.0, 3.0], 4000, generator=generator))
    assert set(counts) == {1, 2}
    assert 2.5 < counts[2] / counts[1] < 3.6
    begun = [iter(T.utils.data.WeightedRandomSampler([1.0] * 50, 50)) for _ in range(2)]
    drawn = []
    for numbers in begun:  # which are drawn when the first is asked for
        T.manual_seed(0)
        drawn.append(list(numbers))
    assert drawn[0] == drawn[1]
    without = T.utils.data.WeightedRandomSampler([0.1, 1.0, 3.0], 3, replacement=False)
    assert sorted(without) == [0, 1, 2]
    assert len(without) == 3


@given(st.integers(0, 20), st.integers(1, 7), st.booleans())
def test_batch_sampler_cuts(n, size, drop_last):
    sampler = T.utils.data.BatchSampler(range(n), size, drop_last)
    batches = list(sampler)
    assert len(batches) == len(sampler)
    assert all(len(batch) == size for batch in batches[:-1])
    kept = n - n % size if drop_last else n
    assert list(itertools.chain(*batches)) == list(range(kept))


# ---------------------------------------------------------------- collation

BATCHES: dict[str, Callable[[Any], list[Any]]] = {
    "tensors": lambda lib: [lib.ones(2, 3), lib.zeros(2, 3)],
    "arrays": lambda lib: [np.arange(3), np.arange(3) + 1],
    "float arrays": lambda lib: [np.arange(3.0, dtype=np.float32)] * 2,
    "floats": lambda lib: [0.5, 1.5],
    "ints": lambda lib: [1, 2, 3],
    "bools": lambda lib: [True, False],
    "numpy numbers": lambda lib: [np.float32(1.5), np.float32(2.5)],
    "numpy float64": lambda lib: [np.float64(1.5), np.float64(2.5)],
    "numpy bools": lambda lib: [np.bool_(True), np.bool_(False)],
    "strings": lambda lib: ["a", "b"],
    "bytes": lambda lib: [b"a", b"b"],
    "tuples": lambda lib: [(1, "a", lib.zeros(2)), (2, "b", lib.ones(2))],
    "lists": lambda lib: [[1, 2.0], [3, 4.0]],
    "dicts": lambda lib: [{"x": 1, "y": [lib.ones(1)]}, {"x": 2, "y": [lib.zeros(1)]}],
    "ordered dicts": lambda lib: [OrderedDict(b=1, a=2), OrderedDict(b=3, a=4)],
    "read-only dicts": lambda lib: [MappingProxyType({"x": 1})] * 2,
    "named tuples": lambda lib: [Point(1, (2, 3.0)), Point(4, (5, 6.0))],
}
COLLATE_ERRORS: dict[str, Callable[[Any], list[Any]]] = {
    "objects": lambda lib: [object(), object()],
    "None": lambda lib: [None],
    "string arrays": lambda lib: [np.array(["a", "b"])],
    "object arrays": lambda lib: [np.array([None])],
    "unequal lists": lambda lib: [[1, 2], [3]],
    "unequal tensors": lambda lib: [lib.zeros(2), lib.zeros(3)],
}


def described(value: Any, lib: Any) -> Any:
    """A batch with its tensors as dtype and values, so that libraries can be compared."""
    if isinstance(value, lib.Tensor):
        return plain(value.dtype), value.tolist()
    if isinstance(value, (dict, MappingProxyType)):
        return type(value), [(key, described(entry, lib)) for key, entry in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value), [described(entry, lib) for entry in value]
    return value


@pytest.mark.parametrize("make", BATCHES.values(), ids=BATCHES.keys())
def test_collation_is_that_of_torch(make):
    torch = pytest.importorskip("torch")
    ours = described(T.utils.data.default_collate(make(T)), T)
    assert ours == described(torch.utils.data.default_collate(make(torch)), torch)


@pytest.mark.parametrize("make", BATCHES.values(), ids=BATCHES.keys())
def test_conversion_is_that_of_torch(make):
    torch = pytest.importorskip("torch")
    ours = described(T.utils.data.default_convert(make(T)), T)
    assert ours == described(torch.utils.data.default_convert(make(torch)), torch)


@pytest.mark.parametrize("make", COLLATE_ERRORS.values(), ids=COLLATE_ERRORS.keys())
def test_collation_errors_are_those_of_torch(make):
    torch = pytest.importorskip("torch")
    assert_same_error(torch, lambda lib: lib.utils.data.default_collate(make(lib)))


def assert_same_error(torch: Any, action: Callable[[Any], Any]) -> None:
    outcomes = []
    for lib in (T, torch):
        with pytest.raises(Exception) as caught:  # noqa: PT011
            action(lib)
        outcomes.append((caught.type, plain(caught.value)))
    assert outcomes[0] == outcomes[1]


def test_collated_containers_are_copies():
    sample = OrderedDict(x=1)
    batch = T.utils.data.default_collate([sample, sample])
    assert sample == {"x": 1}
    assert batch["x"].tolist() == [1, 1]


# ---------------------------------------------------------------- the loader

workers = pytest.mark.parametrize("num_workers", [0, 1, 3])


@workers
def test_batches_in_order(num_workers):
    loader = DataLoader(Squares(), batch_size=4, num_workers=num_workers)
    assert lists(loader) == [[0, 1, 4, 9], [16, 25, 36, 49], [64, 81]]
    assert len(loader) == 3
    assert flat(loader) == [i**2 for i in range(10)]
    dropped = DataLoader(Squares(), batch_size=4, drop_last=True, num_workers=num_workers)
    assert flat(dropped) == [i**2 for i in range(8)]
    assert len(dropped) == 2


@workers
def test_slow_samples_keep_their_place(num_workers):
    events = [threading.Event() for _ in range(6)]

    class Backwards(Squares):
        """Each sample waits for one that another worker makes later, where there are several."""

        def __getitem__(self, index):
            events[index].set()
            if num_workers == 3 and index % 3 == 0:
                assert events[index + 1].wait(10)
            return index

    loader = DataLoader(Backwards(6), batch_size=None, num_workers=num_workers)
    assert list(loader) == list(range(6))


@workers
def test_shuffle(num_workers):
    generator = T.Generator().manual_seed(1)
    loader = DataLoader(Squares(40), 7, shuffle=True, generator=generator, num_workers=num_workers)
    first, second = flat(loader), flat(loader)
    assert sorted(first) == sorted(second) == [i**2 for i in range(40)]
    assert len({tuple(first), tuple(second), tuple(sorted(first))}) == 3
    generator.manual_seed(1)
    assert flat(loader) == first


@workers
def test_samplers_and_collate_fn(num_workers):
    loader = DataLoader(Squares(), 2, sampler=[3, 1, 2], collate_fn=tuple, num_workers=num_workers)
    assert list(loader) == [(9, 1), (4,)]
    batched = DataLoader(Squares(), batch_sampler=[[1], [2, 3]], num_workers=num_workers)
    assert lists(batched) == [[1], [4, 9]]
    assert len(batched) == 2
    assert batched.batch_size is None


@workers
def test_tensors_come_in_pairs(num_workers):
    x, y = T.arange(12.0).reshape(6, 2), T.arange(6)
    loader = DataLoader(T.utils.data.TensorDataset(x, y), 4, num_workers=num_workers)
    (first, labels), (rest, _) = loader
    np.testing.assert_array_equal(array(first), array(x)[:4])
    np.testing.assert_array_equal(array(rest), array(x)[4:])
    assert labels.tolist() == [0, 1, 2, 3]


def test_rows_taken_at_once_are_those_put_together_one_by_one():
    data, x, y = T.utils.data, T.arange(54.0).reshape(9, 2, 3), T.arange(9)

    class Doubled(data.TensorDataset):
        def __getitem__(self, index):
            return tuple([t * 2 for t in super().__getitem__(index)])

    plain = data.TensorDataset(x, y)
    for dataset in (
        plain, data.Subset(plain, [8, 1, -1, 3, 3]), data.Subset(data.Subset(plain, range(5)), [4, 0, 2]),
        data.Subset(plain, np.arange(4)), Doubled(x, y), data.TensorDataset(x * 1.0, y > 3),
        data.TensorDataset(x.clone().requires_grad_(), y), data.TensorDataset(y),
    ):  # fmt: skip
        loader = DataLoader(dataset, 2)
        for k, found in enumerate(loader):
            chosen = range(2 * k, min(2 * k + 2, len(dataset)))
            wanted = data.default_collate([dataset[i] for i in chosen])
            assert type(found) is type(wanted) is list
            for a, b in zip(found, wanted, strict=True):
                assert (a.dtype, a.requires_grad) == (b.dtype, b.requires_grad)
                assert a.tolist() == b.tolist()
    for place in (9, -10):
        with pytest.raises(IndexError, match=f"index {place} is out of bounds for dimension 0"):
            list(DataLoader(plain, batch_sampler=[[0, place]]))


@pytest.mark.parametrize("batch_size", [1, 3, 10, 11])
@pytest.mark.parametrize("drop_last", [False, True])
@workers
def test_streams(batch_size, drop_last, num_workers):
    loader = DataLoader(Stream(10), batch_size, drop_last=drop_last, num_workers=num_workers)
    shares = [range(begin, 10, num_workers or 1) for begin in range(num_workers or 1)]
    expected = []
    for share in shares:
        cut = [list(share[i : i + batch_size]) for i in range(0, len(share), batch_size)]
        expected.append([c for c in cut if len(c) == batch_size or not drop_last])
    turns = itertools.chain.from_iterable(itertools.zip_longest(*expected))
    assert lists(loader) == [batch for batch in turns if batch is not None]


def test_stream_with_a_length():
    class Announced(Stream):
        def __len__(self):
            return 4

    loader = DataLoader(Announced(5))
    assert len(loader) == 4
    with pytest.warns(UserWarning, match=r"was reported to be 4\(when accessing len"):
        assert flat(loader) == [0, 1, 2, 3, 4]


def test_worker_info_and_init():
    seen: list[Any] = []
    names = set()

    class Curious(Squares):
        def __getitem__(self, index):
            info = T.utils.data.get_worker_info()
            names.add((info.id, info.num_workers, info.dataset is self))
            return info.seed - info.id

    loader = DataLoader(Curious(8), num_workers=2, worker_init_fn=seen.append)
    assert len(set(flat(loader))) == 1
    assert sorted(seen) == [0, 1]
    assert names == {(0, 2, True), (1, 2, True)}
    assert T.utils.data.get_worker_info() is None


def test_errors_in_workers_come_out():
    class Broken(Squares):
        def __getitem__(self, index):
            if index == 3:
                raise KeyError("no sample 3")
            return index

    loader = DataLoader(Broken(8), 2, num_workers=2)
    batches = iter(loader)
    assert next(batches).tolist() == [0, 1]
    with pytest.raises(KeyError, match="no sample 3"):
        next(batches)

    def refuse(worker):
        raise OSError("no files")

    with pytest.raises(OSError, match="no files"):
        list(DataLoader(Squares(), num_workers=1, worker_init_fn=refuse))


def test_timeout():
    release = threading.Event()

    class Stuck(Squares):
        def __getitem__(self, index):
            release.wait(10)
            return index

    batches = iter(DataLoader(Stuck(2), num_workers=1, timeout=0.05))
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0\.05 seconds"):
        next(batches)
    release.set()


def test_out_of_order():
    release = threading.Event()

    class FirstIsSlow(Squares):
        def __getitem__(self, index):
            if index == 0:
                assert release.wait(10)
            return index

    batches = iter(DataLoader(FirstIsSlow(4), num_workers=2, in_order=False))
    assert next(batches).item() == 1
    release.set()
    assert sorted(batch.item() for batch in batches) == [0, 2, 3]


@pytest.mark.parametrize("prefetch_factor", [0, 1, 4])
def test_workers_stay_a_few_batches_ahead(prefetch_factor):
    fetched = []

    class Counting(Squares):
        def __getitem__(self, index):
            fetched.append(index)
            return index

    loader = DataLoader(Counting(50), num_workers=2, prefetch_factor=prefetch_factor)
    batches = iter(loader)
    next(batches)
    next(batches)
    assert len(fetched) <= 2 + 2 * max(prefetch_factor, 1)
    assert [batch.item() for batch in batches] == list(range(2, 50))


def test_broken_off_iteration_lets_its_workers_go():
    others = set(threading.enumerate())  # tests before this one may have left some
    loader = DataLoader(Squares(100), num_workers=2)
    batches = iter(loader)
    next(batches)
    threads = [t for t in threading.enumerate() if t.name.startswith("DataLoader worker")]
    threads = [t for t in threads if t not in others]
    assert len(threads) == 2
    del batches
    gc.collect()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_two_iterations_at_once():
    loader = DataLoader(Squares(6), 2, num_workers=2)
    assert [(a.tolist(), b.tolist()) for a, b in zip(loader, loader, strict=True)] == [
        (batch, batch) for batch in ([0, 1], [4, 9], [16, 25])
    ]


def test_whole_batches_where_the_dataset_can():
    class Bulk(Squares):
        def __getitems__(self, indices):
            return [-index for index in indices]

    assert flat(DataLoader(Bulk(5), 2)) == [0, -1, -2, -3, -4]


LOADER_ERRORS: list[Callable[[Any], Any]] = [
    lambda d: d.DataLoader([1], num_workers=-1),
    lambda d: d.DataLoader([1], timeout=-1),
    lambda d: d.DataLoader([1], prefetch_factor=2),
    lambda d: d.DataLoader([1], num_workers=1, prefetch_factor=-1),
    lambda d: d.DataLoader([1], persistent_workers=True),
    lambda d: d.DataLoader([1], shuffle=True, sampler=[0]),
    lambda d: d.DataLoader([1], batch_sampler=[[0]], drop_last=True),
    lambda d: d.DataLoader([1], batch_size=None, drop_last=True),
    lambda d: d.DataLoader([1], batch_size=0),
    lambda d: d.DataLoader([1], batch_size=1.5),
    lambda d: d.DataLoader([], shuffle=True),
    lambda d: d.DataLoader(d.ChainDataset([]), shuffle=True),
    lambda d: d.DataLoader(d.ChainDataset([]), sampler=[0]),
    lambda d: d.DataLoader(d.ChainDataset([]), batch_sampler=[[0]]),
    lambda d: setattr(d.DataLoader([1]), "batch_size", 2),
    lambda d: d.RandomSampler([1], replacement=1),
    lambda d: d.RandomSampler([1], num_samples=0),
    lambda d: d.WeightedRandomSampler([1.0], 0),
    lambda d: d.WeightedRandomSampler([1.0], 1, replacement=1),
    lambda d: d.WeightedRandomSampler([[1.0]], 1),
    lambda d: d.BatchSampler([1], True, False),
    lambda d: d.BatchSampler([1], 1, 0),
    lambda d: d.random_split([1, 2, 3], [1, 1]),
    lambda d: d.random_split([1, 2], [1.5, -0.5]),
    lambda d: d.ConcatDataset([]),
    lambda d: d.StackDataset(),
    lambda d: d.StackDataset([1], [1, 2]),
    lambda d: d.StackDataset([1], a=[1]),
    lambda d: d.Dataset()[0],
]


@pytest.mark.parametrize("action", LOADER_ERRORS, ids=range(len(LOADER_ERRORS)))
def test_errors_are_those_of_torch(action):
    torch = pytest.importorskip("torch")
    assert_same_error(torch, lambda lib: action(lib.utils.data))


def test_tensors_of_different_lengths():
    with pytest.raises(AssertionError, match="Size mismatch between tensors"):
        T.utils.data.TensorDataset(T.zeros(2), T.zeros(3))


def test_options_that_need_processes_are_refused():
    with pytest.raises(ValueError, match="timeout option needs num_workers > 0"):
        DataLoader([1], timeout=1)
    with pytest.raises(ValueError, match="workers of this DataLoader are threads"):
        DataLoader([1], num_workers=1, multiprocessing_context="spawn")


def test_the_sampler_of_processes_is_found_without_an_import_of_its_module():
    code = "import adjit; print(adjit.utils.data.distributed.DistributedSampler.__name__)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "DistributedSampler\n"
