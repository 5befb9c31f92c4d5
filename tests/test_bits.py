"""`view(dtype)`: bits as numbers of another dtype, beside NumPy's views of one memory and PyTorch."""

import gc

import numpy as np
import pytest
from library import seen

import adjit as T

KINDS = ["float32", "float64", "int8", "int16", "int32", "int64", "uint8"]


def shown(t):
    return t.detach().clone().numpy().tobytes()


class Memory:
    """Tensors that show one memory, and arrays that show another one with the same elements."""

    def __init__(self, rng, form):
        self.rng = rng
        whole = rng.integers(-99, 99, (4, 6, 8)).astype(rng.choice(KINDS))
        array = whole.copy()
        tensor = T.from_numpy(whole) if form == "shared" else T.tensor(whole)
        if form == "computed":
            tensor = tensor * 1
        self.kept = whole
        self.pairs = [(tensor, array)]

    def chosen(self):
        return self.pairs[self.rng.integers(len(self.pairs))]

    def see_as(self):
        """View something as another dtype, if NumPy can, else see the same refused."""
        t, a = self.chosen()
        kind = str(self.rng.choice(KINDS))
        if a.shape[-1] == 1:
            return  # NumPy does not care for the step of one element
        try:
            seen = a.view(kind)
        except ValueError:
            with pytest.raises(RuntimeError, match="different element sizes"):
                t.view(getattr(T, kind))
            return
        if (a.dtype.itemsize != seen.itemsize) and any(
            st % seen.itemsize for st in (a.ctypes.data - self.pairs[0][1].ctypes.data, *a.strides)
        ):
            return  # NumPy does not care for what is not aligned
        self.pairs.append((t.view(getattr(T, kind)), seen))

    def cut(self):
        t, a = self.chosen()
        axis, how = self.rng.integers(3), self.rng.integers(4)
        if how == 0 and a.shape[axis] > 2:
            key = (slice(None),) * axis + (slice(1, None, self.rng.integers(1, 3)),)
            self.pairs.append((t[key], a[key]))
        elif how == 1:
            self.pairs.append((t.transpose(0, axis), a.swapaxes(0, axis)))
        elif how == 2:
            self.pairs.append((t.narrow(axis, 0, 1), a[(slice(None),) * axis + (slice(0, 1),)]))

    def write(self):
        t, a = self.chosen()
        value = int(self.rng.integers(1, 90))
        how = self.rng.integers(4)
        if how == 0:
            t.fill_(value)
            a[...] = value
        elif how == 1:
            t[..., 0] = value
            a[..., 0] = value
        elif how == 2 and a.dtype.kind != "f":
            t.bitwise_xor_(value)
            a ^= a.dtype.type(value)
        else:
            t.copy_(t.flip(0).clone())
            a[...] = a[::-1].copy()

    def forget(self):
        if len(self.pairs) > 6:
            del self.pairs[self.rng.integers(len(self.pairs))]

    def compare(self):
        for t, a in self.pairs:
            assert tuple(t.shape) == a.shape
            assert str(t.dtype) == f"adjit.{a.dtype}"
            assert shown(t) == a.tobytes()
            strides = tuple(st // a.itemsize for st in a.strides)
            assert [st for st, n in zip(t.stride(), a.shape, strict=True) if n > 1] == [
                st for st, n in zip(strides, a.shape, strict=True) if n > 1
            ]


@pytest.mark.parametrize("form", ["computed", "given", "shared"])
@pytest.mark.parametrize("seed", range(20))
def test_views_and_writes_of_one_memory(seed, form):
    with np.errstate(all="ignore"):
        memory = Memory(np.random.default_rng(seed), form)
        steps = [
            memory.see_as,
            memory.see_as,
            memory.cut,
            memory.write,
            memory.write,
            memory.forget,
        ]
        for _ in range(30):
            steps[memory.rng.integers(len(steps))]()
            if memory.rng.random() < 0.3:
                memory.compare()
        memory.compare()


def test_only_those_who_are_there_hear_of_writes():
    x = T.arange(4.0)
    i = x.view(T.int32)
    del x
    gc.collect()
    assert i.add_(1).tolist() == (np.arange(4, dtype=np.float32).view(np.int32) + 1).tolist()
    x = i.view(T.float32)
    del i
    gc.collect()
    assert x.zero_().tolist() == [0] * 4
    assert not hasattr(x._storage, "links") or x._storage.links == []


def test_an_array_sees_what_is_written_through_another_dtype():
    x = T.arange(4.0)
    i = x.view(T.int32)
    array = i.numpy()
    assert not array.flags.writeable
    x.fill_(1)
    assert array.tolist() == [0x3F800000] * 4
    with pytest.raises(RuntimeError, match="others look at the memory of this tensor"):
        i.view(T.int64)


def test_it_is_captured():
    @T.compile(fullgraph=True)
    def doubled(x):
        return (x.view(T.int32) + (1 << 23)).view(T.float32)

    for k in range(4):
        x = T.rand(5) + k + 1
        assert doubled(x).tolist() == (x * 2).tolist()


def test_a_capture_writes_through_it():
    @T.compile
    def double(x):
        x.view(T.int32).add_(1 << 23)
        return x + 0

    for k in range(4):
        x = T.rand(5) + k + 1
        expected = (x * 2).tolist()
        assert double(x).tolist() == expected
        assert x.tolist() == expected


def test_what_is_kept_for_backward_is_not_written_unnoticed():
    x = T.ones(3, requires_grad=True)
    y = x * 2
    z = y * y
    y.view(T.int32).add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_it_has_no_history():
    x = T.ones(3, requires_grad=True)
    assert x.view(T.float32).data_ptr() == x.data_ptr()
    seen = (x * 2).view(T.int32)
    assert not seen.requires_grad
    assert (x * x.view(T.int32).float()).sum().grad_fn is not None
    with pytest.raises(RuntimeError, match="different element sizes"):
        x.view(T.float64)


def test_a_write_leaves_the_history_of_what_is_written():
    x = T.ones(3, requires_grad=True)
    y = x * 2
    bits = y.view(T.int32)
    y.mul_(3)
    assert bits.tolist() == [0x40C00000] * 3
    assert (bits.requires_grad, bits.grad_fn) == (False, None)
    bits.zero_()
    y.sum().backward()
    assert y.tolist() == [0, 0, 0]
    assert x.grad.tolist() == [6, 6, 6]


def test_bytes_that_are_seen_as_truth_values_count_as_one():
    seen = T.tensor([2, 1, 0], dtype=T.uint8).view(T.bool)
    assert (seen.sum().item(), (~seen).tolist()) == (2, [False, False, True])


@pytest.mark.parametrize("part", [(slice(0, 0),), (slice(None), slice(0, 0))])
def test_nothing_of_shared_memory_is_seen_as_nothing(part):
    x = seen(np.zeros((3, 4), np.float32))[part]
    assert x.view(T.int32).shape == x.shape
    assert x.view(T.float64).shape == (x.shape[0], x.shape[1] // 2)


def test_other_elements_of_what_is_seen_whole_can_be_reached():
    seen = T.arange(4.0).view(T.int64)
    assert seen.as_strided((2,), (0,), 1).tolist() == [seen[1].item()] * 2
    part = T.arange(6.0)[2:].view(T.int64)
    with pytest.raises(RuntimeError, match="as_strided"):
        part.as_strided((2,), (1,), 0)


# ----- beside PyTorch -----

CALLS = {
    "of a number": lambda L: L.tensor(1.0).view(L.float64),
    "odd size": lambda L: L.zeros(3).view(L.float64),
    "odd offset": lambda L: L.zeros(4)[1:3].view(L.float64),
    "turned": lambda L: L.zeros(4, 4).t().view(L.uint8),
    "turned to wider": lambda L: L.zeros(4, 4).t().view(L.float64),
    "odd stride": lambda L: L.zeros(3, 5)[:, :4].view(L.float64),
    "steps": lambda L: L.zeros(4)[::2].view(L.int16),
    "Python's float": lambda L: L.zeros(1).view(float),
    "bytes as bool": lambda L: L.tensor([2, 1, 0], dtype=L.uint8).view(L.bool),
    "bool as bytes": lambda L: L.tensor([True, False]).view(L.uint8),
    "turned, same size": lambda L: L.arange(6.0).view(2, 3).t().view(L.int32),
    "repeated": lambda L: L.ones(1, 3).expand(2, 3).view(L.int32),
    "nothing": lambda L: L.zeros(0, 4).view(L.float64),
    "by name": lambda L: L.zeros(2).view(dtype=L.int32),
    "every example": lambda L: L.func.vmap(lambda r: r.view(L.int16), in_dims=1)(L.ones(3, 2)),
    "no tangent": lambda L: L.func.jvp(
        lambda x: x * x.view(L.int32).float(), (L.ones(2),), (L.ones(2),)
    )[1],
    "convolved": lambda L: L.nn.functional.conv2d(
        L.arange(8.0).view(1, 2, 2, 2), L.ones(4, 2, 1, 1)
    ).view(L.float64),
    "a leaf is written": lambda L: write_a_leaf(L),
}


def write_a_leaf(library):
    x = library.ones(2, requires_grad=True)
    x.view(library.int32).zero_()
    return x.detach()


def outcome(call, library):
    try:
        result = call(library)
    except RuntimeError as error:
        return str(error)
    return str(result.dtype).split(".")[1], result.stride(), result.tolist()


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_it_is_as_in_pytorch(name):
    torch = pytest.importorskip("torch")
    assert outcome(CALLS[name], T) == outcome(CALLS[name], torch)


@pytest.mark.parametrize("form", ["a result", "on an array"])
def test_versions_are_shared(form):
    x = seen(np.zeros(3, np.float32)) if form == "on an array" else T.zeros(3)
    i = x.view(T.int32)
    i.add_(1)
    assert (x._version, i._version) == (1, 1)
    x.add_(1)
    assert (x._version, i._version) == (2, 2)


def test_the_same_dtype_has_no_history_either() -> None:
    """As of any other one; the memory is one."""
    for library in (T, pytest.importorskip("torch")):
        x = library.ones(3, requires_grad=True)
        for t in (x, x * 2):
            same = t.view(t.dtype)
            assert not same.requires_grad
            assert same.data_ptr() == t.data_ptr()
        plain = library.ones(3)
        plain.view(plain.dtype)[0] = 5
        assert plain.tolist() == [5, 1, 1]
