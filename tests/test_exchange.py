"""Memory shared with other libraries: DLPack both ways, arrays on GPUs on a stub of the driver."""

import ctypes
import gc
import weakref

import numpy as np
import pytest
import stub_driver

import adjit as T
from adjit.ops import exchange
from adjit.ops.exchange import FORMS, READ_ONLY, _Array, _Device, _Dtype, _Managed, _Versioned

DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float32", "float64")
VALUES = np.array([[1, 0, 1], [0, 1, 1]])


@pytest.fixture
def stub():
    with stub_driver.installed() as found:
        yield found


def numpy_arrays(array):
    return array.copy()


def torch_tensors(array):
    return pytest.importorskip("torch").from_numpy(array.copy())


def jax_arrays(array):
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        return jax.numpy.array(array)


def taken_by_numpy(t):
    return np.from_dlpack(t)


def taken_by_torch(t):
    return pytest.importorskip("torch").from_dlpack(t).numpy()


def taken_by_jax(t):
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        return np.asarray(jax.numpy.from_dlpack(t))


MAKERS, TAKERS = (
    (numpy_arrays, torch_tensors, jax_arrays),
    (taken_by_numpy, taken_by_torch, taken_by_jax),
)


# ----- on the CPU, with the libraries themselves -----


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", MAKERS)
def test_taking(make, dtype):
    array = VALUES.astype(dtype)
    t = T.from_dlpack(make(array))
    assert t.dtype is getattr(T, dtype)
    np.testing.assert_array_equal(t.numpy(), array)
    assert T.from_dlpack(make(array[0, 0:1].reshape(()))).item() == array[0, 0]
    assert T.from_dlpack(make(array[:0])).shape == (0, 3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("take", TAKERS)
def test_giving(take, dtype):
    array = VALUES.astype(dtype)
    t = T.tensor(array)
    assert take(t).dtype == array.dtype
    np.testing.assert_array_equal(take(t), array)
    assert take(t[0, 0]).item() == array[0, 0]
    assert take(t[:0]).shape == (0, 3)


@pytest.mark.parametrize(("make", "take"), [*zip(MAKERS[:2], TAKERS[:2], strict=True)])
def test_memory_is_shared(make, take):
    t = T.arange(12).reshape(3, 4)
    recorded = t + 1
    theirs = take(t[1:, ::2].t())
    theirs[1, 0] = 50
    t[2, 0] = 60
    assert theirs.tolist() == [[4, 60], [50, 10]]
    assert t.tolist() == [[0, 1, 2, 3], [4, 5, 50, 7], [60, 9, 10, 11]]
    assert recorded[1].tolist() == [5, 6, 7, 8]  # what was recorded before saw the old values
    array = make(np.arange(12).reshape(3, 4))
    ours = T.from_dlpack(array[1:, ::2])
    ours.mul_(10)
    array[1, 0] = 7
    assert ours.tolist() == [[7, 60], [80, 100]]
    assert ours.stride() == (4, 2)
    assert T.from_dlpack(array, copy=True).zero_().sum().item() == 0
    assert array[2, 1] == 9


def test_read_only_memory_is_copied_by_the_first_write():
    array = np.arange(4.0)
    array.flags.writeable = False
    t = T.from_dlpack(array)
    view = t[1:]
    t.add_(1)
    view[0] = 9
    assert (t.tolist(), array.tolist()) == ([1, 9, 3, 4], [0, 1, 2, 3])
    other = T.from_dlpack(array).numpy()
    other[0] = 5
    assert array[0] == 0


@pytest.mark.parametrize("take", TAKERS)
def test_gradients_are_not_given(take):
    x = T.ones(2, requires_grad=True)
    with pytest.raises(BufferError, match="Can't export tensors that require gradient, use tensor"):
        take(x)
    assert take(x.detach()).tolist() == [1, 1]


def test_what_cannot_be_taken():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="expected an array with __dlpack__, got list"):
        T.from_dlpack([1])
    with pytest.raises(ValueError, match="tensors with negative strides are not supported"):
        T.from_dlpack(np.arange(4.0)[::-1])
    with pytest.raises(BufferError, match="Can't export tensors that require gradient"):
        T.from_dlpack(torch.ones(2, requires_grad=True))
    for name in ("float16", "bfloat16", "complex64", "uint16"):
        with pytest.raises(NotImplementedError, match=f"from_dlpack: {name} is not supported"):
            T.from_dlpack(torch.zeros(2).to(getattr(torch, name)))
    capsule = torch.ones(2).__dlpack__()
    assert T.from_dlpack(capsule).tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="capsules can be consumed only once"):
        T.from_dlpack(capsule)


def test_what_a_taker_may_ask_for():
    x = T.arange(3.0)
    assert x.__dlpack_device__() == (1, 0)
    assert "dltensor_versioned" in repr(x.__dlpack__(max_version=(1, 2))) or not exchange.KNOWS
    assert "versioned" not in repr(x.__dlpack__(max_version=(0, 8)))
    assert "versioned" not in repr(T.to_dlpack(x))
    copied = T.from_dlpack(x.__dlpack__(copy=True, dl_device=(1, 0)))
    copied[0] = 7
    assert x[0].item() == 0
    assert T.utils.dlpack.from_dlpack(T.utils.dlpack.to_dlpack(x)).data_ptr() == x.data_ptr()
    with pytest.raises(AssertionError, match="stream should be None on cpu"):
        x.__dlpack__(stream=1)
    with pytest.raises(TypeError, match="stream must be ``int`` or ``none``"):
        x.__dlpack__(stream="1")
    with pytest.raises(BufferError, match=r"from device \(1, 0\) to \(8, 0\)"):
        x.__dlpack__(dl_device=(8, 0))
    with pytest.raises(BufferError, match=r"from device \(1, 0\) to \(2, 0\) without a copy"):
        x.__dlpack__(dl_device=(2, 0), copy=False)


# ----- the protocol by hand -----


class Producer:
    """An array of another library: a capsule of some form, and how often its deleter was called."""

    def __init__(
        self, t, form=_Versioned, device=(1, 0), flags=0, code=2, bits=32, lanes=1, major=1
    ):
        self.ended, self.asked, self.device, self.form = 0, [], device, form
        self.shape = (ctypes.c_int64 * 2)(*t.shape)
        self.strides = (ctypes.c_int64 * 2)(*t.stride())
        pointer = ctypes.POINTER(ctypes.c_int64)
        self.deleter = exchange._DELETER(self.end)
        self.managed = form(
            array=_Array(
                t.data_ptr() - 8, _Device(*device), 2, _Dtype(code, bits, lanes),
                ctypes.cast(self.shape, pointer), ctypes.cast(self.strides, pointer), 8,
            ),
            deleter=ctypes.cast(self.deleter, ctypes.c_void_p),
        )  # fmt: skip
        if form is _Versioned:
            self.managed.major, self.managed.flags = major, flags

    def end(self, address):
        assert address == ctypes.addressof(self.managed)
        self.ended += 1

    def __dlpack__(self, **asked):
        self.asked.append(asked)
        if self.form is _Managed and "max_version" in asked:
            raise TypeError("unexpected keyword argument 'max_version'")
        return exchange._new_capsule(ctypes.addressof(self.managed), self.form.name, None)

    def __dlpack_device__(self):
        return self.device


@pytest.mark.parametrize("form", FORMS)
def test_the_memory_of_others_ends_once_and_with_its_last_reader(form):
    t = T.tensor([[1.0, 2.0], [3.0, 4.0]])
    producer = Producer(t.t(), form)
    taken = T.from_dlpack(producer)
    assert taken.tolist() == [[1, 3], [2, 4]]  # a beginning 8 bytes into the memory
    view, later = taken[1], taken + 1
    del taken
    gc.collect()
    assert producer.ended == 0
    assert (view.tolist(), later.tolist()) == ([2, 4], [[2, 4], [3, 5]])
    del view, later
    gc.collect()
    assert producer.ended == 1
    asked = [{"max_version": (1, 0)}, *([{}] if form is _Managed else [])]
    assert producer.asked == asked


def test_capsules_that_cannot_be_taken():
    t = T.ones(2, 2)
    for wrong, kind, text in (
        ({"device": (8, 0)}, NotImplementedError, "device type 8 is not supported"),
        ({"code": 10, "bits": 8}, NotImplementedError, "8 bits of dtype code 10 is not supported"),
        ({"lanes": 4}, NotImplementedError, "float32 in vectors of 4 is not supported"),
        ({"major": 2}, BufferError, r"a capsule of DLPack 2\.0"),
    ):
        producer = Producer(t, **wrong)
        with pytest.raises(kind, match=text):
            T.from_dlpack(producer)
        assert producer.ended == 0  # it is the capsule's to end
    producer = Producer(
        t, flags=READ_ONLY, device=(3, 0)
    )  # page-locked; it has what ends the memory
    read_only = T.from_dlpack(producer)
    read_only += 1
    assert (read_only.sum().item(), t.sum().item()) == (8, 4)


# ----- on a GPU -----


def opened(capsule, form):
    """What a capsule holds."""
    return form.from_address(exchange._pointer_of(capsule, form.name))


def test_dlpack_on_a_gpu(stub):
    x = T.arange(6, device="cuda:1").reshape(2, 3)
    assert x.__dlpack_device__() == (2, 1)
    y = T.from_dlpack(x)
    assert (y.device, y.dtype, y.tolist()) == (x.device, x.dtype, x.tolist())
    y[1] = 7
    assert x.tolist() == [[0, 1, 2], [7, 7, 7]]
    assert T.from_dlpack(x.t().__dlpack__()).stride() == (1, 3)
    copied = T.from_dlpack(x, copy=True)
    copied.zero_()
    assert x.sum().item() == 24
    kept = weakref.ref(x._storage)
    capsule = x.__dlpack__(stream=-1)
    del x
    gc.collect()
    assert y.sum().item() == 24  # the taker keeps the memory
    del capsule, y
    gc.collect()
    assert kept() is None
    assert not exchange._given


def test_what_a_capsule_of_a_gpu_says(stub):
    x = T.tensor([[True, False, True]], device="cuda:1").t()
    for form, version in (
        (_Managed, None),
        (_Managed, (0, 8)),
        (_Versioned, (1, 0)),
        (_Versioned, (2, 1)),
    ):
        capsule = x.__dlpack__(max_version=version)
        found = opened(capsule, form)
        array = found.array
        assert (array.device.kind, array.device.index, array.offset) == (2, 1, 0)
        assert (array.dtype.code, array.dtype.bits, array.dtype.lanes) == (6, 8, 1)
        assert (array.shape[:2], array.strides[:2]) == ([3, 1], [1, 3])
        assert array.data == x.data_ptr()
        if form is _Versioned:
            assert (found.major, found.minor, found.flags) == (1, 0, 0)
        assert T.from_dlpack(capsule).tolist() == [[True], [False], [True]]
    assert T.from_dlpack(T.tensor(3.0, device="cuda")).item() == 3
    assert T.from_dlpack(T.zeros(0, 3, device="cuda")).shape == (0, 3)
    gc.collect()
    assert not exchange._given


def test_devices_of_a_capsule(stub):
    x = T.arange(3.0, device="cuda")
    assert T.from_dlpack(x.__dlpack__(dl_device=(1, 0))).device.type == "cpu"
    assert T.from_dlpack(x.__dlpack__(dl_device=(2, 1))).get_device() == 1
    assert T.from_dlpack(x.cpu().__dlpack__(dl_device=(2, 1))).get_device() == 1
    assert T.from_dlpack(x, device="cpu").tolist() == [0, 1, 2]
    assert T.from_dlpack(np.ones(2), device="cuda:1").get_device() == 1
    with pytest.raises(
        ValueError, match="cannot move DLPack tensor from device cuda:0 to cuda:1 with"
    ):
        T.from_dlpack(x, device="cuda:1", copy=False)
    with pytest.raises(BufferError, match="without a copy"):
        x.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(RuntimeError, match="invalid device ordinal: device 'cuda:5' was asked for"):
        T.from_dlpack(Producer(T.ones(2, 2, device="cuda"), device=(2, 5)))
    managed = T.from_dlpack(Producer(T.ones(2, 2, device="cuda"), device=(13, 0)))
    assert managed.device == T.device("cuda:0")


def test_streams_of_a_capsule(stub):
    side = T.cuda.Stream()
    x = T.ones(4, device="cuda")
    T.cuda.synchronize()
    with T.cuda.stream(side):
        y = x + 1
        T.cuda.Event().record()
        capsule = y.__dlpack__(stream=1)  # the default stream waits for this one
    assert not side.query()
    T.cuda.default_stream().synchronize()
    assert side.query()
    assert T.from_dlpack(capsule).tolist() == [2] * 4
    producer = Producer(T.ones(2, 2, device="cuda"), device=(2, 0))
    T.from_dlpack(producer)
    with T.cuda.stream(side):
        T.from_dlpack(producer)
    assert [asked["stream"] for asked in producer.asked] == [1, side.cuda_stream]
    with pytest.raises(BufferError, match="per-thread default stream is not supported"):
        x.__dlpack__(stream=2)
    with pytest.raises(AssertionError, match="unsupported stream on CUDA: 0"):
        x.__dlpack__(stream=0)


class Array:
    """What another library's array on a GPU looks like."""

    def __init__(self, t, **told):
        self.kept, self.__cuda_array_interface__ = t, t.__cuda_array_interface__ | told


def test_arrays_of_other_libraries(stub):
    x = T.arange(6.0, device="cuda").reshape(2, 3)
    told = x.__cuda_array_interface__
    assert (told["shape"], told["typestr"], told["strides"]) == ((2, 3), "<f4", None)
    assert (told["stream"], told["version"], told["data"]) == (1, 3, (x.data_ptr(), False))
    assert x.t().__cuda_array_interface__["strides"] == (4, 12)
    assert T.zeros(0, device="cuda").__cuda_array_interface__["data"] == (0, False)
    assert T.zeros(2, device="cuda", dtype=T.bool).__cuda_array_interface__["typestr"] == "|b1"
    y = T.as_tensor(Array(x.t()), device="cuda")
    assert (y.shape, y.stride(), y.tolist()) == ((3, 2), (1, 3), x.t().tolist())
    y[0, 1] = 9.0
    assert x.tolist() == [[0, 1, 2], [9, 4, 5]]
    x.add_(1)
    assert y.tolist() == x.t().tolist()
    assert not hasattr(T.ones(2), "__cuda_array_interface__")
    with pytest.raises(RuntimeError, match="Can't export tensors that require gradient"):
        T.ones(2, device="cuda", requires_grad=True).__cuda_array_interface__  # noqa: B018


def test_older_and_other_arrays(stub):
    x = T.arange(6.0, device="cuda:1")
    told = x.__cuda_array_interface__
    del told["stream"], told["strides"]
    old = Array(x)
    old.__cuda_array_interface__ = told | {"version": 2}
    assert T.as_tensor(old).device == T.device("cuda:1")  # where its memory is
    assert T.as_tensor(Array(x, shape=(0,), data=(0, False))).shape == (0,)
    locked = T.as_tensor(Array(x, data=(x.data_ptr(), True)))
    locked += 1
    assert (locked.sum().item(), x.sum().item()) == (21, 15)
    for wrong, kind, text in (
        ({"mask": x}, NotImplementedError, "masked arrays are not supported"),
        ({"strides": (-4,)}, ValueError, r"strides \(-4,\) of 4 bytes an element"),
        ({"strides": (6,)}, ValueError, r"strides \(6,\) of 4 bytes an element"),
        ({"stream": 0}, ValueError, "stream 0 may be one of two"),
        ({"typestr": "<c8"}, NotImplementedError, "complex64 is not supported"),
        ({"data": (64, False)}, RuntimeError, "cuPointerGetAttribute"),
    ):
        with pytest.raises(kind, match=text):
            T.as_tensor(Array(x, **wrong))


def test_the_stream_of_an_array_is_waited_for(stub):
    side = T.cuda.Stream()
    x = T.ones(4, device="cuda")
    T.cuda.synchronize()
    with T.cuda.stream(side):
        y = x + 1
        array = Array(y)
    assert array.__cuda_array_interface__["stream"] == side.cuda_stream
    assert not side.query()
    z = T.as_tensor(array)
    assert side.query()
    assert z.tolist() == [2] * 4
