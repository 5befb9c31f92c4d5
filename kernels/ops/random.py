"""Random numbers from a counter: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, SC 2011).

Word `w` of block `b` of a generator is a function of its seed and the number `b` alone, so a
launch that knows its first block can be run at any time, on any number of threads, or twice.
One block gives four words of 32 bits. A unit of work is a chunk of `CHUNK` blocks; within it the
first words of all blocks come first, then the second words, and so on, which keeps loads and
stores side by side in vector code.

The last words of a launch are the seed, as two halves, and the first block.

CPU side below; on a GPU a thread makes a block, whose words lie where the CPU puts them, and the
kernels at the end need no buffer.
"""

import math

import numpy as np

from ..language.abi import STATUS_VALUE, I, T, X, at, helper, kernel, scalar, shifted, words
from ..language.device import all_threads, first_unit, on_device
from ..language.lanes import stack

CHUNK = 64
WORDS, PAIRS = 4 * CHUNK, 2 * CHUNK  # elements of a chunk, at one word or at two words each

# Codes that kernels report.
BAD_WEIGHT, NO_WEIGHT, TOO_FEW, BAD_CHANCE = STATUS_VALUE, 16, 17, 18

U = np.uint64
HALF, FULL = U(32), U(0xFFFFFFFF)
FACTOR_0, FACTOR_1 = U(0xD2511F53), U(0xCD9E8D57)
WEYL_0, WEYL_1 = U(0x9E3779B9), U(0xBB67AE85)


@helper
def block(low_key, high_key, number):
    """The four words of a block, each in a uint64."""
    return block_of_turn(low_key, high_key, number, 0)


@helper
def block_of_turn(low_key, high_key, number, turn):
    """The four words of a block of which there is one for every turn: for what is drawn until it fits."""
    a, b, c, d = U(number) & FULL, U(number) >> HALF, U(turn), U(0)
    for _ in range(10):
        first, second = FACTOR_0 * a, FACTOR_1 * c
        a, b, c, d = (
            (second >> HALF) ^ b ^ low_key, second & FULL,
            (first >> HALF) ^ d ^ high_key, first & FULL,
        )  # fmt: skip
        low_key, high_key = (low_key + WEYL_0) & FULL, (high_key + WEYL_1) & FULL
    return a, b, c, d


@helper
def scaled(word, limit):
    """A number below `limit` from 64 random bits: the high half of the product."""
    a, b, c, d = word >> HALF, word & FULL, limit >> HALF, limit & FULL
    middle = a * d + (b * d >> HALF)
    return a * c + (middle >> HALF) + (((middle & FULL) + b * c) >> HALF)


@helper
def put(out, chunk, made, per_chunk, size):
    """Copy the part of a chunk that exists."""
    first = chunk * per_chunk
    for i in range(min(per_chunk, size - first)):
        out[first + i] = made[i]


# --------------------------------------------------------------------------- floats

BITS_24, BITS_53 = 1.0 / (1 << 24), 1.0 / (1 << 53)


@kernel
def uniform_single(args, start, stop):
    """out = low + (high - low) * u with u in [0, 1), 24 bits each."""
    p = words(args)
    out, size, low, width = at(p[0], T), p[1], scalar(p[2], T), scalar(p[3], T)
    low_key, high_key, first = U(p[4]), U(p[5]), p[6]
    made = stack(T, 256)
    for chunk in range(start, stop):
        for i in range(CHUNK):
            a, b, c, d = block(low_key, high_key, first + chunk * CHUNK + i)
            made[i] = T(I(a >> U(8))) * T(BITS_24) * width + low
            made[i + 64] = T(I(b >> U(8))) * T(BITS_24) * width + low
            made[i + 128] = T(I(c >> U(8))) * T(BITS_24) * width + low
            made[i + 192] = T(I(d >> U(8))) * T(BITS_24) * width + low
        put(out, chunk, made, WORDS, size)


@kernel
def uniform_double(args, start, stop):
    """out = low + (high - low) * u with u in [0, 1), 53 bits each."""
    p = words(args)
    out, size, low, width = at(p[0], T), p[1], scalar(p[2], T), scalar(p[3], T)
    low_key, high_key, first = U(p[4]), U(p[5]), p[6]
    made = stack(T, 128)
    for chunk in range(start, stop):
        for i in range(CHUNK):
            a, b, c, d = block(low_key, high_key, first + chunk * CHUNK + i)
            made[i] = T(I((a << HALF | b) >> U(11))) * T(BITS_53) * width + low
            made[i + 64] = T(I((c << HALF | d) >> U(11))) * T(BITS_53) * width + low
        put(out, chunk, made, PAIRS, size)


@kernel
def normal_single(args, start, stop):
    """out = mean + std * z by Box and Muller, 24 bits for radius and angle."""
    p = words(args)
    out, size, mean, std = at(p[0], T), p[1], scalar(p[2], T), scalar(p[3], T)
    low_key, high_key, first = U(p[4]), U(p[5]), p[6]
    made = stack(T, 256)
    for chunk in range(start, stop):
        for i in range(CHUNK):
            a, b, c, d = block(low_key, high_key, first + chunk * CHUNK + i)
            made[i] = T(I(a >> U(8)) + 1) * T(BITS_24)
            made[i + 64] = T(I(b >> U(8))) * T(BITS_24)
            made[i + 128] = T(I(c >> U(8)) + 1) * T(BITS_24)
            made[i + 192] = T(I(d >> U(8))) * T(BITS_24)
        for half in range(0, WORDS, PAIRS):
            for i in range(half, half + CHUNK):
                radius = math.sqrt(T(-2.0) * math.log(made[i])) * std
                angle = T(2.0 * math.pi) * made[i + 64]
                made[i] = radius * math.cos(angle) + mean
                made[i + 64] = radius * math.sin(angle) + mean
        put(out, chunk, made, WORDS, size)


@kernel
def normal_double(args, start, stop):
    """out = mean + std * z by Box and Muller, 53 bits for radius and angle."""
    p = words(args)
    out, size, mean, std = at(p[0], T), p[1], scalar(p[2], T), scalar(p[3], T)
    low_key, high_key, first = U(p[4]), U(p[5]), p[6]
    made = stack(T, 128)
    for chunk in range(start, stop):
        for i in range(CHUNK):
            a, b, c, d = block(low_key, high_key, first + chunk * CHUNK + i)
            made[i] = T(I((a << HALF | b) >> U(11)) + 1) * T(BITS_53)
            made[i + 64] = T(I((c << HALF | d) >> U(11))) * T(BITS_53)
        for i in range(CHUNK):
            radius = math.sqrt(T(-2.0) * math.log(made[i])) * std
            angle = T(2.0 * math.pi) * made[i + 64]
            made[i] = radius * math.cos(angle) + mean
            made[i + 64] = radius * math.sin(angle) + mean
        put(out, chunk, made, PAIRS, size)


@kernel
def beginning(args, start, stop):
    """out = where a draw begins, for kernels that are to draw the same again."""
    p = words(args)
    out = at(p[0], I)
    for k in range(3):
        out[k] = p[1 + k]


@kernel
def dropout(args, start, stop):
    """out = scale * x where the word of an element reaches the threshold, else 0."""
    p = words(args)
    x, begin, out, size = at(p[0], T), at(p[1], I), at(p[2], T), p[3]
    scale, threshold = scalar(p[4], T), U(p[5])
    low_key, high_key, number = U(begin[0]), U(begin[1]), begin[2]
    factors = stack(T, 256)
    for chunk in range(start, stop):
        for i in range(CHUNK):
            a, b, c, d = block(low_key, high_key, number + chunk * CHUNK + i)
            factors[i] = scale if a >= threshold else T(0)
            factors[i + 64] = scale if b >= threshold else T(0)
            factors[i + 128] = scale if c >= threshold else T(0)
            factors[i + 192] = scale if d >= threshold else T(0)
        first = chunk * WORDS
        for i in range(min(WORDS, size - first)):
            out[first + i] = x[first + i] * factors[i]


BITS_32 = 1.0 / (1 << 32)


@kernel
def trials(args, start, stop):
    """out = 1 with the probability that the input gives, else 0; compared in 32 bits."""
    p = words(args)
    chances, out, status, size = at(p[0], T), at(p[1], T), at(p[2], I), p[3]
    low_key, high_key, number = U(p[4]), U(p[5]), p[6]
    drawn = stack(X, 256)
    for chunk in range(start, stop):
        for i in range(CHUNK):
            a, b, c, d = block(low_key, high_key, number + chunk * CHUNK + i)
            drawn[i] = X(I(a)) * X(BITS_32)
            drawn[i + 64] = X(I(b)) * X(BITS_32)
            drawn[i + 128] = X(I(c)) * X(BITS_32)
            drawn[i + 192] = X(I(d)) * X(BITS_32)
        first = chunk * WORDS
        for i in range(min(WORDS, size - first)):
            chance = X(chances[first + i])
            if not (chance >= X(0) and chance <= X(1)):
                status[0] = BAD_CHANCE
                return
            out[first + i] = T(drawn[i] < chance)


# --------------------------------------------------------------------------- integers


@kernel
def integers(args, start, stop):
    """out = low + a number below `limit`, 64 bits each; a limit of 0 stands for 2**64."""
    p = words(args)
    out, size, low, limit = at(p[0], T), p[1], p[2], U(p[3])
    low_key, high_key, first = U(p[4]), U(p[5]), p[6]
    made = stack(T, 128)
    for chunk in range(start, stop):
        for i in range(CHUNK):
            a, b, c, d = block(low_key, high_key, first + chunk * CHUNK + i)
            one, other = a << HALF | b, c << HALF | d
            if limit != U(0):
                one, other = scaled(one, limit), scaled(other, limit)
            made[i] = T(low + I(one))
            made[i + 64] = T(low + I(other))
        put(out, chunk, made, PAIRS, size)


@kernel
def permutation(args, start, stop):
    """out = 0 ... size - 1 in random order (Fisher and Yates, inside out); one unit."""
    p = words(args)
    out, size = at(p[0], T), p[1]
    low_key, high_key, first = U(p[2]), U(p[3]), p[4]
    places = stack(I, 128)
    for done in range(0, size, PAIRS):
        for k in range(CHUNK):
            a, b, c, d = block(low_key, high_key, first + done // 2 + k)
            places[k] = I(scaled(a << HALF | b, U(done + k + 1)))
            places[k + 64] = I(scaled(c << HALF | d, U(done + k + 65)))
        for k in range(min(PAIRS, size - done)):
            out[done + k] = out[places[k]]
            out[places[k]] = T(done + k)


# --------------------------------------------------------------------------- categories


@kernel
def cumulate_weights(args, start, stop):
    """sums = the running sums of each row, whose weights are checked."""
    p = words(args)
    weights, sums, status = at(p[0], T), at(p[1], X), at(p[2], I)
    categories, positive_needed = p[3], p[4]
    for row in range(start, stop):
        total = X(0)
        positive = 0
        for i in range(row * categories, (row + 1) * categories):
            weight = X(weights[i])
            if not (weight >= X(0)) or weight == X(math.inf):
                status[0] = BAD_WEIGHT
                return
            positive += weight > X(0)
            total += weight
            sums[i] = total
        if not total > X(0):
            status[0] = NO_WEIGHT
            return
        if positive < positive_needed:
            status[0] = TOO_FEW
            return


@kernel
def choose_categories(args, start, stop):
    """out[row, k] = a category drawn with replacement; a unit is one draw."""
    p = words(args)
    sums, out = at(p[0], X), at(p[1], I)
    categories, draws = p[2], p[3]
    low_key, high_key, first = U(p[4]), U(p[5]), p[6]
    for draw in range(start, stop):
        row = shifted(sums, draw // draws * categories)
        a, b, _, _ = block(low_key, high_key, first + draw)
        total = row[categories - 1]
        reached = X(I((a << HALF | b) >> U(11))) * X(BITS_53) * total
        below, above = 0, categories - 1  # the first category whose sum exceeds `reached`
        while below < above:
            middle = (below + above) // 2
            if row[middle] > reached or row[middle] == total:
                above = middle
            else:
                below = middle + 1
        out[draw] = below


# --------------------------------------------------------------------------- CUDA

BLOCKS_AT_ONCE = 256 // CHUNK  # chunks, which are the units


@helper
def place_of(number, words_of_chunk):
    """Where the first element of a block lies; the next one lies `CHUNK` further on."""
    return number // CHUNK * words_of_chunk + number % CHUNK


@helper
def put_element(out, place, size, value):
    """Write an element, if there is one at that place."""
    if place < size:
        out[place] = value


@on_device(uniform_single, units=BLOCKS_AT_ONCE)
def uniform_single_by_threads(row, n):
    """`uniform_single`."""
    out, size, low, width = (
        at(row[0], T),
        row[1],
        scalar(row[2], T),
        scalar(row[3], T),
    )
    for number in range(first_unit(), n * CHUNK, all_threads()):
        a, b, c, d = block(U(row[4]), U(row[5]), row[6] + number)
        place = place_of(number, WORDS)
        put_element(out, place, size, T(I(a >> U(8))) * T(BITS_24) * width + low)
        put_element(out, place + CHUNK, size, T(I(b >> U(8))) * T(BITS_24) * width + low)
        put_element(out, place + 2 * CHUNK, size, T(I(c >> U(8))) * T(BITS_24) * width + low)
        put_element(out, place + 3 * CHUNK, size, T(I(d >> U(8))) * T(BITS_24) * width + low)


@on_device(uniform_double, units=BLOCKS_AT_ONCE)
def uniform_double_by_threads(row, n):
    """`uniform_double`."""
    out, size, low, width = (
        at(row[0], T),
        row[1],
        scalar(row[2], T),
        scalar(row[3], T),
    )
    for number in range(first_unit(), n * CHUNK, all_threads()):
        a, b, c, d = block(U(row[4]), U(row[5]), row[6] + number)
        place = place_of(number, PAIRS)
        first, second = I((a << HALF | b) >> U(11)), I((c << HALF | d) >> U(11))
        put_element(out, place, size, T(first) * T(BITS_53) * width + low)
        put_element(out, place + CHUNK, size, T(second) * T(BITS_53) * width + low)


@on_device(normal_single, units=BLOCKS_AT_ONCE)
def normal_single_by_threads(row, n):
    """`normal_single`."""
    out, size, mean, std = at(row[0], T), row[1], scalar(row[2], T), scalar(row[3], T)
    for number in range(first_unit(), n * CHUNK, all_threads()):
        a, b, c, d = block(U(row[4]), U(row[5]), row[6] + number)
        place = place_of(number, WORDS)
        radius = math.sqrt(T(-2.0) * math.log(T(I(a >> U(8)) + 1) * T(BITS_24))) * std
        angle = T(2.0 * math.pi) * (T(I(b >> U(8))) * T(BITS_24))
        put_element(out, place, size, radius * math.cos(angle) + mean)
        put_element(out, place + CHUNK, size, radius * math.sin(angle) + mean)
        radius = math.sqrt(T(-2.0) * math.log(T(I(c >> U(8)) + 1) * T(BITS_24))) * std
        angle = T(2.0 * math.pi) * (T(I(d >> U(8))) * T(BITS_24))
        put_element(out, place + 2 * CHUNK, size, radius * math.cos(angle) + mean)
        put_element(out, place + 3 * CHUNK, size, radius * math.sin(angle) + mean)


@on_device(normal_double, units=BLOCKS_AT_ONCE)
def normal_double_by_threads(row, n):
    """`normal_double`."""
    out, size, mean, std = at(row[0], T), row[1], scalar(row[2], T), scalar(row[3], T)
    for number in range(first_unit(), n * CHUNK, all_threads()):
        a, b, c, d = block(U(row[4]), U(row[5]), row[6] + number)
        place = place_of(number, PAIRS)
        first, second = I((a << HALF | b) >> U(11)), I((c << HALF | d) >> U(11))
        radius = math.sqrt(T(-2.0) * math.log(T(first + 1) * T(BITS_53))) * std
        angle = T(2.0 * math.pi) * (T(second) * T(BITS_53))
        put_element(out, place, size, radius * math.cos(angle) + mean)
        put_element(out, place + CHUNK, size, radius * math.sin(angle) + mean)


@helper
def keep_or_drop(x, out, place, size, factor):
    """Scale an element, if there is one at that place."""
    if place < size:
        out[place] = x[place] * factor


@on_device(dropout, units=BLOCKS_AT_ONCE)
def dropout_by_threads(row, n):
    """`dropout`."""
    x, begin, out, size = at(row[0], T), at(row[1], I), at(row[2], T), row[3]
    scale, threshold = scalar(row[4], T), U(row[5])
    low_key, high_key, first = U(begin[0]), U(begin[1]), begin[2]
    for number in range(first_unit(), n * CHUNK, all_threads()):
        a, b, c, d = block(low_key, high_key, first + number)
        place = place_of(number, WORDS)
        keep_or_drop(x, out, place, size, scale if a >= threshold else T(0))
        keep_or_drop(x, out, place + CHUNK, size, scale if b >= threshold else T(0))
        keep_or_drop(x, out, place + 2 * CHUNK, size, scale if c >= threshold else T(0))
        keep_or_drop(x, out, place + 3 * CHUNK, size, scale if d >= threshold else T(0))


@helper
def try_one(chances, out, status, place, size, drawn, T, X):
    """One trial, if there is one at that place."""
    if place < size:
        chance = X(chances[place])
        if not (chance >= X(0) and chance <= X(1)):
            status[0] = BAD_CHANCE
        out[place] = T(drawn < chance)


@on_device(trials, units=BLOCKS_AT_ONCE)
def trials_by_threads(row, n):
    """`trials`."""
    chances, out, status, size = at(row[0], T), at(row[1], T), at(row[2], I), row[3]
    for number in range(first_unit(), n * CHUNK, all_threads()):
        a, b, c, d = block(U(row[4]), U(row[5]), row[6] + number)
        place = place_of(number, WORDS)
        try_one(chances, out, status, place, size, X(I(a)) * X(BITS_32), T, X)
        try_one(chances, out, status, place + CHUNK, size, X(I(b)) * X(BITS_32), T, X)
        try_one(chances, out, status, place + 2 * CHUNK, size, X(I(c)) * X(BITS_32), T, X)
        try_one(chances, out, status, place + 3 * CHUNK, size, X(I(d)) * X(BITS_32), T, X)


@on_device(integers, units=BLOCKS_AT_ONCE)
def integers_by_threads(row, n):
    """`integers`."""
    out, size, low, limit = at(row[0], T), row[1], row[2], U(row[3])
    for number in range(first_unit(), n * CHUNK, all_threads()):
        a, b, c, d = block(U(row[4]), U(row[5]), row[6] + number)
        one, other = a << HALF | b, c << HALF | d
        if limit != U(0):
            one, other = scaled(one, limit), scaled(other, limit)
        place = place_of(number, PAIRS)
        put_element(out, place, size, T(low + I(one)))
        put_element(out, place + CHUNK, size, T(low + I(other)))


@on_device(permutation)
def permutation_by_a_thread(row, n):
    """`permutation`."""
    out, size = at(row[0], T), row[1]
    for _ in range(first_unit(), n, all_threads()):
        for i in range(size):
            number = i // PAIRS * CHUNK + i % CHUNK
            a, b, c, d = block(U(row[2]), U(row[3]), row[4] + number)
            drawn = a << HALF | b if i % PAIRS < CHUNK else c << HALF | d
            place = I(scaled(drawn, U(i + 1)))
            out[i] = out[place]
            out[place] = T(i)
