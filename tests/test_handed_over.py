"""Arrays that nobody else holds are a tensor's own once `from_numpy` has them; writes into others are seen."""

import functools
import gc
import operator
import sys
import weakref

import numpy as np
import pytest

import adjit as T
from adjit.ops import handed_over
from adjit.schedule import settle

CAN_TELL = sys.implementation.name == "cpython" and sys.version_info < (3, 14)
LASTING = np.arange(12.0)


class Holder:
    array = np.arange(12.0)


def is_seen(t):
    return bool(t._storage.shared)


def test_it_knows_on_which_interpreters_it_can_tell():
    assert bool(handed_over._OF_A_TEMPORARY) == CAN_TELL


HANDED_OVER = {
    "a new array": lambda: T.from_numpy(np.arange(12.0)),
    "chosen elements": lambda: T.from_numpy(LASTING[[0, 1, 5]]),
    "a sum": lambda: T.from_numpy(LASTING + 1),
    "another dtype": lambda: T.from_numpy(LASTING.astype(np.float32)),
    "a reshaped new one": lambda: T.from_numpy(np.arange(12.0).reshape(3, 4)),
    "a transposed new one": lambda: T.from_numpy(np.ones((3, 4)).T),
    "random numbers": lambda: T.from_numpy(np.random.default_rng(0).standard_normal((3, 2))),
    "of as_tensor": lambda: T.as_tensor(np.arange(12.0)),
    "an only item": lambda: T.from_numpy([np.ones(3)].pop()),
}


@pytest.mark.skipif(not CAN_TELL, reason="names are not counted here")
@pytest.mark.parametrize("make", HANDED_OVER.values(), ids=HANDED_OVER)
def test_an_array_without_a_name_is_the_tensors_own(make):
    settle.settle()
    for _ in range(100):  # also where the interpreter has specialised the call
        t = make()
        assert not is_seen(t)
    expected = t.tolist()
    doubled = t * 2
    assert settle.pending  # it waits, and may be in a plan
    t += 1  # which is not seen by what was recorded before
    assert (doubled / 2).tolist() == expected
    array = t.numpy()
    assert is_seen(t)
    array[...] = 7
    assert set(np.ravel(t.tolist())) == {7.0}
    del array
    gc.collect()
    assert not is_seen(t)


def named(make):
    """A tensor on an array that has a name here, and what else looks at its memory."""
    array = make()
    return T.from_numpy(array), array


def of_argument(array):
    return T.from_numpy(array)


def by_a_closure():
    array = np.arange(12.0)

    def make():
        return T.from_numpy(array)

    return make(), array


def by_a_generator():
    array = np.arange(12.0)
    return next(T.from_numpy(one) for one in iter([array])), array


def behind_a_weak_reference():
    made = []

    def keep(array):
        made.append(weakref.ref(array))
        return array

    t = T.from_numpy(keep(np.arange(12.0)))
    return t, made[0]()


def behind_a_view():
    array = np.arange(12.0)
    looks = array[2:]
    return T.from_numpy(array), looks


def behind_a_memoryview():
    made = []

    def keep(array):
        made.append(memoryview(array))
        return array

    t = T.from_numpy(keep(np.arange(12.0)))
    return t, np.asarray(made[0])


SEEN = {
    "a name": lambda: named(lambda: np.arange(12.0)),
    "a name of a reshaped one": lambda: named(lambda: np.arange(12.0).reshape(3, 4)),
    "a global": lambda: (T.from_numpy(LASTING), LASTING),
    "an attribute": lambda: (T.from_numpy(Holder.array), Holder.array),
    "an argument": lambda: (of_argument(LASTING), LASTING),
    "by its keyword": lambda: (T.from_numpy(ndarray=LASTING), LASTING),
    "unpacked": lambda: (T.from_numpy(*[LASTING]), LASTING),
    "what a function gives": lambda: (T.from_numpy((lambda: LASTING)()), LASTING),
    "a view": lambda: (T.from_numpy(LASTING[1:]), LASTING[1:]),
    "a view of a view": lambda: (T.from_numpy(LASTING[1:][1:]), LASTING[2:]),
    "an item": lambda: (T.from_numpy([LASTING][0]), LASTING),
    "mapped": lambda: (next(map(T.from_numpy, [LASTING])), LASTING),
    "by a partial": lambda: (functools.partial(T.from_numpy, LASTING)(), LASTING),
    "by an operator": lambda: (T.from_numpy(operator.itemgetter(0)([LASTING])), LASTING),
    "of as_tensor": lambda: (T.as_tensor(LASTING), LASTING),
    "of as_tensor, by its keyword": lambda: (T.as_tensor(data=LASTING), LASTING),
    "a closure": by_a_closure,
    "a generator": by_a_generator,
    "behind a weak reference": behind_a_weak_reference,
    "behind a view": behind_a_view,
    "behind a memoryview": behind_a_memoryview,
    "a buffer": lambda: (T.from_numpy(np.frombuffer(BUFFER)), np.frombuffer(BUFFER)),
}  # fmt: skip
BUFFER = bytearray(96)


@pytest.mark.parametrize("make", SEEN.values(), ids=SEEN)
def test_writes_into_an_array_that_somebody_holds_are_seen(make):
    for _ in range(100):
        t, array = make()
        assert is_seen(t)
    array[...] = 3.0
    before = (t * 1)[..., -1].sum()  # as it was then, though it is looked at later
    array[...] = 5.0
    rows = t.numel() // t.shape[-1]
    assert before.item() == 3.0 * rows
    assert t.flatten()[-1].item() == 5.0


def test_what_comes_back_as_another_name_is_still_one_memory():
    """The array of a tensor that was handed one is given to another tensor."""
    t = T.from_numpy(np.arange(6.0))
    other = T.from_numpy(t.numpy())
    assert is_seen(t)
    assert is_seen(other)
    other[0] = 9.0
    assert t[0].item() == 9.0
    t[1] = 8.0
    assert other[1].item() == 8.0


def test_gradients_through_batches_that_are_handed_over():
    w = T.ones(4, 1, dtype=T.float64, requires_grad=True)
    x, found = np.random.default_rng(0).standard_normal((30, 4)), []
    for k in range(6):
        rows = np.arange(k, k + 9)
        w.grad = None
        (T.from_numpy(x[rows]) @ w).sigmoid().sum().backward()
        found.append(w.grad.clone())
    for k, g in enumerate(found):
        z = x[k : k + 9]
        s = 1 / (1 + np.exp(-z @ np.ones((4, 1))))
        np.testing.assert_allclose(g.numpy(), z.T @ (s * (1 - s)), rtol=1e-12)
