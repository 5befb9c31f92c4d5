"""Tiles of products on a GPU: what `matmul.py` and `conv.py` build theirs from.

A block of 256 threads makes `TILE` lines by `TILE` lines of a result, a thread `EACH` by `EACH`
elements of it in registers. Steps of the depth come through shared memory, `tile[k * (TILE + PAD) + line]`,
in two buffers: while one is multiplied, the elements of the next step are on their way in registers.
A thread brings `V` neighbours of each operand in a step, in one access of 16 bytes where they lie so;
it multiplies what it reads in accesses of 16 bytes, too.

    large     TILE 128, STEP 8, EACH 8, V 4     float32, where there are tiles for every multiprocessor
    small     TILE 64, STEP 16, EACH 4, V 4     float32
    double    TILE 64, STEP 8, EACH 4, V 2      float64

Tensor cores take tiles as large as `large`, rounded to TF32 or bfloat16 on the way into shared memory; a
warp makes 64 by 32 elements of one. Of bfloat16 two neighbours along the depth share a place, so a step is
twice as deep, and a thread brings V more neighbours. Their sums have an order of their own.

What is the same for a whole launch (`FACTS`) lies in shared memory and is read anew in every step: of a
loop with conditions that do not change, the compiler makes a copy for each of their combinations.

Sums go in the order of the CPU's: SUM_DEPTH fused multiply-adds in a row, which are then added to the
element. So their bits are the same.
"""

from ..language.abi import helper, quotient, remainder
from ..language.device import (
    bf16_pair,
    give_wide,
    multiply_bf16,
    multiply_tf32,
    take_wide,
    tf32,
    thread,
)

THREADS = 256
EXACT, TF32, BF16 = range(3)  # what is multiplied: float32, or what it is rounded to
SIDE = 16  # threads along a side of a tile
PAD = 8  # elements between the lines of a tile, against conflicts of banks
BAND = 8  # rows of tiles whose columns are walked together, so that both operands stay in cache


@helper
def threads_place():
    """This thread's row and column among the 16 by 16 of a tile; 4 by 8 of them are a warp."""
    t = thread()
    warp, lane = t // 32, t % 32
    return warp // 2 * 4 + lane // 8, warp % 2 * 8 + lane % 8


@helper
def place_of_tile(tile, wide, high):
    """The batch entry of a tile of `wide` by `high`, its row and its column among them."""
    entry, rest = quotient(tile, wide * high), remainder(tile, wide * high)
    first = quotient(rest, BAND * wide) * BAND
    rows, rest = min(BAND, high - first), remainder(rest, BAND * wide)
    return entry, first + remainder(rest, rows), quotient(rest, rows)


@helper
def brought(by_depth, TILE, STEP, V):
    """Line and depth of the first of the elements that this thread brings in a step.

    Neighbouring threads bring neighbouring elements, whichever axis these lie along.
    """
    t = thread()
    line, k = t % (TILE // V) * V, t // (TILE // V)
    if by_depth:
        line, k = t // (STEP // V), t % (STEP // V) * V
    return line, k


@helper
def fetch(staged, at, x, inner, room, narrow, V, T):
    """staged[at : at + V] = the first `room` of V elements of x, which lie `inner` apart, then 0."""
    room = min(room, V)
    if room >= V + narrow:
        take_wide(staged, at, x, 0, V)
    else:
        for e in range(V):
            staged[at + e] = x[e * inner] if e < room else T(0)


@helper
def rounded(staged, by_depth, kind, V):
    """What was fetched, as tensor cores read it: V places."""
    for e in range(V):
        if kind == TF32:
            staged[e] = tf32(staged[e])
        elif by_depth:
            staged[e] = bf16_pair(staged[2 * e], staged[2 * e + 1])
        else:
            staged[e] = bf16_pair(staged[e], staged[V + e])


@helper
def put_down(tile, first, staged, by_depth, TILE, STEP, V):
    """tile[first + k * (TILE + PAD) + i] = what `fetch` has brought."""
    if by_depth:
        i, k = brought(True, TILE, STEP, V)
        for e in range(V):
            tile[first + (k + e) * (TILE + PAD) + i] = staged[e]
    else:
        i, k = brought(False, TILE, STEP, V)
        give_wide(tile, first + k * (TILE + PAD) + i, staged, 0, V)


@helper
def multiply_step(sums, left, right, first, a, b, TILE, STEP, EACH, V, fma):
    """sums[i, j] += left[k, i] * right[k, j] for a step that lies from `first` on in both tiles.

    A thread's lines are EACH // V runs of V neighbours. `a` and `b` have room for its lines.
    """
    down, across = threads_place()
    for k in range(STEP):
        here = first + k * (TILE + PAD)
        for run in range(EACH // V):
            take_wide(a, run * V, left, here + (run * SIDE + down) * V, V)
            take_wide(b, run * V, right, here + (run * SIDE + across) * V, V)
        for i in range(EACH):
            for j in range(EACH):
                sums[i * EACH + j] = fma(a[i], b[j], sums[i * EACH + j])


@helper
def tensor_place():
    """The first row and the first column of a tile that this thread has sums of on tensor cores."""
    t = thread()
    warp, lane = t // 32, t % 32
    return warp % 2 * 64 + lane // 4, warp // 2 * 32 + lane % 4 * 2


@helper
def multiply_step_on_tensor_cores(sums, left, right, first, a, b, kind, TILE, STEP):
    """The same as `multiply_step` by a warp together: its 64 by 32 elements are 4 by 4 of 16 by 8.

    `a` has room for 16 numbers, `b` for 8.
    """
    row, column = tensor_place()
    t = thread()
    line, k, column = first + t % 4 * (TILE + PAD), TILE + PAD, column - t % 4 * 2 + t % 32 // 4
    for i in range(4):
        for e in range(4):
            a[4 * i + e] = left[line + e // 2 * 4 * k + row + 16 * i + e % 2 * 8]
    for j in range(4):
        for e in range(2):
            b[2 * j + e] = right[line + e * 4 * k + column + 8 * j]
    for i in range(4):
        for j in range(4):
            if kind == TF32:
                multiply_tf32(sums, 16 * i + 2 * j, 16 * i + 8 + 2 * j, a, 4 * i, b, 2 * j)
            else:
                multiply_bf16(sums, 16 * i + 2 * j, 16 * i + 8 + 2 * j, a, 4 * i, b, 2 * j)
