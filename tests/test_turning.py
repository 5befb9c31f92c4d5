"""Matrices that kernels turn: nothing is written beside them, nothing read behind the end of their memory."""

import ctypes
import subprocess
import sys

import numpy as np
import pytest
from adjit.kernels.language.turning import TILE
from adjit.kernels.ops import shape

import adjit
from adjit.schedule.jit import cache

SIZES = [1, TILE - 1, TILE, TILE + 1, 2 * TILE + 3]
BESIDE = TILE * max(SIZES)  # as much as a whole square could reach beyond a narrow one


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
def test_nothing_is_written_beside_a_turned_matrix(dtype):
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(
        cache.link(cache.instantiate(shape.turn, {"T": getattr(adjit, dtype)}))
    )
    for rows in SIZES:
        for columns in SIZES:
            count = rows * columns
            x = (np.arange(BESIDE + count + BESIDE) % 100).astype(dtype)
            out = np.full_like(x, 101)
            size = x.itemsize * BESIDE
            words = np.array(
                [x.ctypes.data + size, out.ctypes.data + size, rows, columns], np.int64
            )
            run(words.ctypes.data, 0, -(-columns // TILE))
            turned = x[BESIDE:][:count].reshape(rows, columns).T
            np.testing.assert_array_equal(out[BESIDE:][:count], turned.ravel())
            assert (out[:BESIDE] == 101).all()
            assert (out[BESIDE + count :] == 101).all()


# A process of its own, which a read behind the end would end.
AT_THE_END_OF_MEMORY = """
import ctypes, mmap
import numpy as np
import adjit
from adjit import config

config.JIT, config.HOT, config.MIN_FUSED = "sync", 1, 1
kept, PROT_NONE = [], 0

def at_the_end(values):
    "A tensor whose last element is the last one of a page, behind which nothing may be read."
    room = -(-values.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, room + mmap.PAGESIZE)
    kept.append(memory)
    bytes_of = np.frombuffer(memory, np.uint8)
    end = ctypes.c_void_p(bytes_of.ctypes.data + room)
    assert ctypes.CDLL(None).mprotect(end, ctypes.c_size_t(mmap.PAGESIZE), PROT_NONE) == 0
    array = bytes_of[room - values.nbytes : room].view(values.dtype).reshape(values.shape)
    array[...] = values
    tensor = adjit.from_numpy(array)
    assert tensor.data_ptr() == array.ctypes.data
    return tensor

for dtype in ("uint8", "float32", "float64"):
    for channels, area in {sizes}:
        first = (np.arange(2 * channels * area) % 50).astype(dtype).reshape(2, channels, area)
        last = np.ascontiguousarray(first.swapaxes(1, 2))
        a, b = at_the_end(first), at_the_end(last)
        np.testing.assert_array_equal((a + b.transpose(1, 2)).numpy(), 2 * first)
        np.testing.assert_array_equal((b + a.transpose(1, 2)).numpy(), 2 * last)
        np.testing.assert_array_equal(b.transpose(1, 2).contiguous().numpy(), first)
        a.add_(b.transpose(1, 2))
        np.testing.assert_array_equal(a.numpy(), 2 * first)
print("read to the end")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="pages are protected by mprotect")
def test_nothing_is_read_behind_the_end_of_turned_operands():
    sizes = [(TILE, TILE), (TILE + 1, 2 * TILE + 3), (3 * TILE - 1, TILE), (TILE, 129)]
    code = AT_THE_END_OF_MEMORY.replace("{sizes}", repr(sizes))
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (found.returncode, found.stdout.strip()) == (0, "read to the end"), found.stderr
