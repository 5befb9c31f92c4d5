"""Lanes of vectors that are written in part: as many elements as asked for, and none beyond."""

import numba
import numpy as np
import pytest
from adjit.kernels.language.abi import at
from adjit.kernels.language.lanes import LANES, load, load_some, store_some


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "float32", "float64"])
def test_a_part_of_lanes_is_written_and_nothing_beyond(dtype):
    T = getattr(numba, dtype)

    @numba.njit
    def write(out, x, count):
        store_some(at(out, T), 3, load(at(x, T), 0), count)

    x = np.arange(1, LANES + 1).astype(dtype)
    for count in range(LANES + 1):
        out = np.zeros(LANES + 8, dtype)
        write(out.ctypes.data, x.ctypes.data, count)
        expected = np.zeros_like(out)
        expected[3 : 3 + count] = x[:count]
        np.testing.assert_array_equal(out, expected, err_msg=f"{count} lanes")


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "float32", "float64"])
def test_a_part_of_lanes_is_read_and_the_others_are_filled(dtype):
    T = getattr(numba, dtype)

    @numba.njit
    def read(out, x, count):
        store_some(at(out, T), 0, load_some(at(x, T), 2, count, T(7)), LANES)

    x = np.arange(1, LANES + 8).astype(dtype)
    for count in range(LANES + 1):
        out = np.zeros(LANES, dtype)
        read(out.ctypes.data, x.ctypes.data, count)
        expected = np.full_like(out, 7)
        expected[:count] = x[2 : 2 + count]
        np.testing.assert_array_equal(out, expected, err_msg=f"{count} lanes")
