"""Arrays behind which nothing may be read or written: who does ends the process."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np

PROT_NONE = 0
_kept: list[mmap.mmap] = []


def at_the_end(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy whose last element is the last one of a page, with a page behind it that is closed."""
    room = -(-values.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, room + mmap.PAGESIZE)
    _kept.append(memory)
    bytes_of = np.frombuffer(memory, np.uint8)
    end = ctypes.c_void_p(bytes_of.ctypes.data + room)
    assert ctypes.CDLL(None).mprotect(end, ctypes.c_size_t(mmap.PAGESIZE), PROT_NONE) == 0
    array = bytes_of[room - values.nbytes : room].view(values.dtype).reshape(values.shape)
    array[...] = values
    return array
