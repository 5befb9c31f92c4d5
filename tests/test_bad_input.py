"""Bad input gets PyTorch's error where it has one, else a clear one; nothing crashes."""

import math

import numpy as np
import pytest

import adjit as T


def within_itself():
    rows = []
    rows.append(rows)
    return rows


BAD = {
    "ragged list": (lambda: T.tensor([[1, 2], [3]]), ValueError,
                    "expected sequence of length 2 at dim 1 (got 1)"),
    "a list in itself": (lambda: T.tensor(within_itself()), ValueError, "too many dimensions 'list'"),
    "number among rows": (lambda: T.tensor([[1, 2], 3]), TypeError, "dim 1"),
    "text": (lambda: T.tensor(["a"]), TypeError, "invalid data type 'str'"),
    "an object": (lambda: T.tensor(object()), RuntimeError, "Could not infer dtype of object"),
    "None": (lambda: T.tensor([None]), RuntimeError, "Could not infer dtype of NoneType"),
    "complex": (lambda: T.tensor(1j), NotImplementedError, "complex64 is not supported yet"),
    "half": (lambda: T.zeros(2, dtype=T.float16), NotImplementedError, "float16 is not supported"),
    "a dtype by text": (lambda: T.zeros(2, dtype="nonsense"), TypeError, "dtype must be"),
    "integer too large": (lambda: T.tensor([300], dtype=T.uint8), RuntimeError,
                          "value cannot be converted to type uint8 without overflow"),
    "infinity as integer": (lambda: T.ones(2, dtype=T.int64).fill_(math.inf), RuntimeError,
                            "value cannot be converted to type int64_t without overflow"),
    "nan as integer": (lambda: T.tensor(float("nan"), dtype=T.int64), RuntimeError,
                       "value cannot be converted to type int64 without overflow"),
    "negative stride": (lambda: T.from_numpy(np.arange(3.0)[::-1]), ValueError,
                        "At least one stride in the given numpy array is negative"),
    "other byte order": (lambda: T.from_numpy(np.arange(3.0).astype(">f8")), ValueError,
                         "byte order"),
    "array of objects": (lambda: T.from_numpy(np.array([object()])), TypeError,
                         "can't convert np.ndarray of type numpy.object_"),
    "no array": (lambda: T.from_numpy([1, 2]), TypeError, "expected np.ndarray (got list)"),
    "negative size": (lambda: T.zeros(2, -1), RuntimeError,
                      "Trying to create tensor with negative dimension -1"),
    "size that is no integer": (lambda: T.zeros(2.5), TypeError, "sizes as ints"),
    "absurd size": (lambda: T.zeros(1 << 40, 1 << 40), RuntimeError, "overflowed"),
    "unknown device": (lambda: T.zeros(2, device="abacus"), RuntimeError,
                       "Expected one of cpu"),
    "device without tensors": (lambda: T.zeros(2, device="meta"), NotImplementedError,
                               "device 'meta' is not supported: adjit has tensors on cpu and cuda"),
    "no GPU": (lambda: T.zeros(2).cuda(), RuntimeError, "not available"),
    "GPU tensor type": (lambda: T.cuda.FloatTensor(2, 3), RuntimeError, "not available"),
    "no such axis": (lambda: T.zeros(2, 3).sum(2), IndexError,
                     "Dimension out of range (expected to be in range of [-2, 1], but got 2)"),
    "axis twice": (lambda: T.zeros(2, 3).sum((0, 0)), RuntimeError,
                   "dim 0 appears multiple times in the list of dims"),
    "index out of range": (lambda: T.zeros(3)[3], IndexError,
                           "index 3 is out of bounds for dimension 0 with size 3"),
    "too many indices": (lambda: T.zeros(3)[0, 0], IndexError,
                         "too many indices for tensor of dimension 1"),
    "negative step": (lambda: T.zeros(3)[::-1], ValueError, "step must be greater than zero"),
    "index tensor out of range": (lambda: T.zeros(3)[T.tensor([7])].tolist(), IndexError,
                                  "index 7 is out of bounds for dimension 0 with size 3"),
    "shapes that do not fit": (lambda: T.zeros(2, 3) + T.zeros(4), RuntimeError,
                               "The size of tensor a (3) must match the size of tensor b (4) at "
                               "non-singleton dimension 1"),
    "view of another size": (lambda: T.zeros(6).view(4), RuntimeError,
                             "shape '[4]' is invalid for input of size 6"),
    "product of wrong sizes": (lambda: T.zeros(2, 3) @ T.zeros(2, 3), RuntimeError,
                               "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)"),
    "item of many": (lambda: T.zeros(2).item(), RuntimeError,
                     "a Tensor with 2 elements cannot be converted to Scalar"),
    "float of many": (lambda: float(T.zeros(2)), ValueError,
                      "only one element tensors can be converted to Python scalars"),
    "int of none": (lambda: int(T.zeros(0)), ValueError,
                    "only one element tensors can be converted to Python scalars"),
    "truth of many": (lambda: bool(T.zeros(2)), RuntimeError,
                      "Boolean value of Tensor with more than one value is ambiguous"),
    "length of a number": (lambda: len(T.tensor(1.0)), TypeError, "len() of a 0-d tensor"),
    "iterating a number": (lambda: iter(T.tensor(1.0)), TypeError,
                           "iteration over a 0-d tensor"),
    "adding text": (lambda: T.zeros(2) + "a", TypeError, "unsupported operand type(s) for +"),
    "no such name": (lambda: T.no_such_function, AttributeError, "no_such_function"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_a_clear_error(name):
    make, error, text = BAD[name]
    with pytest.raises(error) as caught:
        make()
    assert text in str(caught.value)
    assert (T.ones(2) + 1).tolist() == [2.0, 2.0]  # nothing is left behind


def test_more_memory_than_there_is():
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        T.empty(1 << 50)
    lazily = T.zeros(1 << 50)
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        lazily[0].item()
    assert T.ones(2).tolist() == [1.0, 1.0]


def test_tensors_without_elements():
    x = T.zeros(0, 3, requires_grad=True)
    y = (x * 2 + 1).exp()
    assert y.shape == (0, 3)
    assert y.sum().item() == 0.0
    y.sum().backward()
    assert x.grad.shape == (0, 3)
    assert T.cat([x, T.ones(2, 3)]).shape == (2, 3)
    assert x.detach().numpy().shape == (0, 3)
    assert x.tolist() == []


def test_tensors_without_axes():
    x = T.tensor(2.0, requires_grad=True)
    (x * x).backward()
    assert x.grad.item() == 4.0
    assert x.sum(0).item() == 2.0
    assert x.reshape(1, 1).shape == (1, 1)
    assert x[...].item() == 2.0
    assert x[None].shape == (1,)


def test_layouts_from_numpy():
    fortran = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    strided = np.arange(12.0).reshape(3, 4)[::2, 1::2]
    repeated = np.broadcast_to(np.arange(3.0), (2, 3)).copy()
    for array in (fortran, strided, repeated):
        t = T.from_numpy(array)
        np.testing.assert_array_equal((t * 2).numpy(), array * 2)
        np.testing.assert_array_equal(t.t().contiguous().numpy(), array.T)
        t.add_(1)
        np.testing.assert_array_equal(t.numpy(), array)


def test_axes_of_one_keep_the_strides_of_the_array():
    assert T.from_numpy(np.ones((1, 4))[:, :1]).stride() == (4, 1)


def test_numbers_beyond_float32_are_infinite():
    assert T.tensor([1e40, -1e40, 1.0]).tolist() == [math.inf, -math.inf, 1.0]


def test_a_read_only_array_is_copied_with_a_warning():
    array = np.arange(3.0)
    array.flags.writeable = False
    with pytest.warns(UserWarning, match="not writable"):
        t = T.from_numpy(array)
    t.add_(1)
    assert array.tolist() == [0.0, 1.0, 2.0]
