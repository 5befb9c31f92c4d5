"""Dot products along memory, by which convolutions and products make a few columns: where, and by what."""

from __future__ import annotations

import functools

from ..dtypes import dtype
from ..kernels.ops import dot_tile
from ..schedule.jit.cache import addresses
from ..schedule.jit.modules import emitted

# How many multiply-adds it takes to fold a sum, and how many percent more others have to take. 1024 rows of 64
# by 6 columns with AVX-512: 42 multiply-adds for 64, 20 us for 31.
FOLD, GAIN = 3, 15


def are_worth_it(columns: int, lanes: int, vectors: int, numbers: int, sums: int = 1) -> bool:
    """Whether dot products of so many vectors for each column take less than a multiply-add for each number, of
    vectors that hold all columns; so much for several sums."""
    if not 0 < columns <= lanes:
        return False
    return (100 + GAIN) * columns * (vectors + FOLD * sums) < 100 * numbers


def panel_of(columns: int) -> int:
    """Of how many columns dot products are made at a time."""
    return -(-columns // -(-columns // dot_tile.FEW_COLUMNS))


@functools.cache
def segment_dots(kind: dtype) -> int:
    """The address of the tile of a few columns."""
    return addresses(emitted("dots", dot_tile.emit, kind.name))[0]
