"""The guard of memory: it notices a byte too many."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import ctypes
import guarded_memory
import adjit

x = adjit.ones(35) * 2
address = x.data_ptr()
ctypes.c_uint8.from_address(address + {place}).value = 3
x.zero_()
del x
assert (adjit.ones(40, requires_grad=True).exp() * 2).sum().item() > 0
print(guarded_memory.broken)
"""


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(
    ("place", "found"),
    [
        (35 * 4 - 1, "[]"),
        (35 * 4, "[]"),
        (192, "a block of 192 bytes: 1 bytes beside it were written, the first 0 behind it"),
        (-1, "a block of 192 bytes: 1 bytes beside it were written, the first 1 before it"),
    ],
)
def test_a_byte_too_many_is_noticed(place: int, found: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(place=place)],
        cwd=Path(__file__).parent,
        env={**os.environ, "ADJIT_TEST_GUARD": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found in done.stdout
