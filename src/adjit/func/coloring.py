"""Colours for the columns of sparse matrices: those of one colour are found in one pass.

Gebremedhin, Manne and Pothen, *What Color Is Your Jacobian?*, SIAM Review 47 (2005).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Colors: TypeAlias = npt.NDArray[np.int64]
Matrix: TypeAlias = Any  # of SciPy, in compressed rows


def color_columns(pattern: Matrix) -> Colors:
    """A colour for each column, so that no row has two columns of one colour (greedy distance-2 colouring).

    Columns go in their order, which is best for bands, and the fullest first: whichever takes fewer colours.
    """
    columns = pattern.tocsc()
    orders = np.arange(pattern.shape[1]), np.argsort(-np.diff(columns.indptr), kind="stable")
    return min((_greedy(pattern, columns, order) for order in orders), key=number_of)


def number_of(colors: Colors) -> int:
    """How many colours there are."""
    return int(colors.max(initial=-1)) + 1


def _greedy(rows: Matrix, columns: Matrix, order: Colors) -> Colors:
    """The least colour for each column in turn that none of its rows has yet.

    Colours of a row are the bits of a number, so that those of several rows are one `or`.
    """
    taken = [0] * rows.shape[0]
    colors = np.full(rows.shape[1], -1)
    starts, places = columns.indptr.tolist(), columns.indices.tolist()
    for column in order.tolist():
        mine = places[starts[column] : starts[column + 1]]
        forbidden = 0
        for row in mine:
            forbidden |= taken[row]
        bit = ~forbidden & (forbidden + 1)  # the lowest that is not set
        colors[column] = bit.bit_length() - 1
        for row in mine:
            taken[row] |= bit
    return colors


MOST_STEPS = (
    1 << 24
)  # of star colouring in Python, some seconds; beyond, columns of one colour share no row


def color_star(pattern: Matrix) -> Colors:
    """Colours of a symmetric pattern, so that each entry or its mirror is alone in its row among its colour.

    Neighbours differ, and every path of four has three colours at least (greedy star colouring).
    """
    size = pattern.shape[0]
    degrees = np.diff(pattern.indptr).astype(np.float64)
    by_columns = color_columns(pattern)
    if (degrees**2).sum() * degrees.mean() > MOST_STEPS:
        return by_columns
    starts, places = pattern.indptr.tolist(), pattern.indices.tolist()
    near = [[w for w in places[starts[v] : starts[v + 1]] if w != v] for v in range(size)]
    best = by_columns
    for order in (range(size), np.argsort(-degrees, kind="stable").tolist()):
        found = _star(near, order)
        if number_of(found) < number_of(best):
            best = found
    return best


def _star(near: list[list[int]], order: Any) -> Colors:
    colors = [-1] * len(near)
    for v in order:
        forbidden = 0
        for w in near[v]:
            color = colors[w]
            if color >= 0:
                forbidden |= 1 << color
            for x in near[w]:
                if x == v or colors[x] < 0:
                    continue
                if color < 0 or any(y != w and colors[y] == color for y in near[x]):
                    forbidden |= 1 << colors[x]
        colors[v] = (~forbidden & (forbidden + 1)).bit_length() - 1
    return np.array(colors, np.int64).reshape(len(near))
