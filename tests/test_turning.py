"""Matrices that kernels turn: nothing is written beside them, nothing read behind the end of their memory."""

import ctypes
import subprocess
import sys
from pathlib import Path

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
import numpy as np
import adjit
from adjit import config
from end_of_memory import at_the_end

config.JIT, config.HOT, config.MIN_FUSED = "sync", 1, 1

for dtype in ("uint8", "float32", "float64"):
    for channels, area in {sizes}:
        first = (np.arange(2 * channels * area) % 50).astype(dtype).reshape(2, channels, area)
        last = np.ascontiguousarray(first.swapaxes(1, 2))
        arrays = [at_the_end(x) for x in (first, last)]
        a, b = map(adjit.from_numpy, arrays)
        assert [t.data_ptr() for t in (a, b)] == [x.ctypes.data for x in arrays]
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
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parent
    )
    assert (found.returncode, found.stdout.strip()) == (0, "read to the end"), found.stderr
