"""Connectionist temporal classification: all ways to spread labels over time, with blanks between them.

Labels of one sample become `2 * length + 1` states: a blank before, between and after them. A unit is one
sample. Sums of probabilities are kept as logarithms.

A row has the logarithms of all states at one time: the labels, then the blanks, each of which stands before
the label of its number. Both have room for whole vectors; what is behind the states is never reached, as
nothing is emitted there. Around them are numbers of no state, so that every state has neighbours.
"""

import math
from typing import Any

from numba.extending import intrinsic

from ..language.abi import STATUS_VALUE, I, T, at, helper, kernel, shifted, words
from ..language.intrinsics import Value, bits, fma, where
from ..language.lanes import stack
from ..math.vector import FORMATS, log_tail, split_normal
from .attention import weight

TOGETHER = 16  # labels, and as many blanks, that are computed at a time
ROWS = 1  # of a sample's states before those of each time: what skips cost


def width_of_row(width):
    """Numbers in a row of states of up to `width` labels."""
    return 2 * (width // TOGETHER + 1) * TOGETHER + 3


@helper
def first_blank(size):
    """Where the blanks begin in a row of so many numbers."""
    return (size + 1) // 2


def log_from_one(x, k):
    """log(x) for normal numbers from 1 up: two thirds of the instructions of `log`. NaN stays."""
    e, m = split_normal(bits(x), k)
    f = m - 1.0
    return where(x > 0.0, fma(e, k.LN2, f + log_tail(f, k)), x)


@intrinsic
def log_of_sum(typingctx: Any, x: Any) -> Any:
    """`log_from_one` of a float."""
    [k] = [k for k in FORMATS if k.DTYPE.__name__ == x.name]

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return log_from_one(Value(builder, args[0]), k).ir

    return x(x), codegen


@helper
def ordered(a, b):
    """The larger and the smaller, or NaN."""
    return (a, b) if a > b else (b, a)


@helper
def log_sum(a, b, T):
    """log(exp(a) + exp(b)). The larger of the exponentials is taken out, so that the others are at most 1."""
    top, low = ordered(a, b)
    total = top + log_of_sum(T(1) + weight(low - top))
    return top if low == T(-math.inf) else total


@helper
def log_sum_of_three(a, b, c, T):
    """log(exp(a) + exp(b) + exp(c))."""
    top, low = ordered(a, b)
    top, lower = ordered(top, c)
    total = top + log_of_sum(T(1) + (weight(low - top) + weight(lower - top)))
    return top if (low == T(-math.inf)) & (lower == T(-math.inf)) else total


@helper
def begin(x, blank, targets, length, back, states, size, T):
    """states = those at the first time, or at the last one, if `back` is 1 and not 0: a blank or a label."""
    for k in range(size):
        states[k] = T(-math.inf)
    states[first_blank(size) + back * length] = x[blank]
    if length > 0:
        label = back * (length - 1)
        states[1 + label] = x[targets[label]]


@helper
def penalties_of(targets, length, penalties, size, T):
    """What it costs to come to a label from the one before it, without the blank between them: 0, or all."""
    for k in range(size):
        penalties[k] = T(-math.inf)
    for k in range(1, length):
        if targets[k] != targets[k - 1]:
            penalties[1 + k] = T(0)


@helper
def emit(x, targets, length, emitted, size, T):
    """emitted = a row of the log-probabilities of the labels; there is none behind them."""
    for k in range(length):
        emitted[1 + k] = x[targets[k]]
    for k in range(length, first_blank(size) - 2):
        emitted[1 + k] = T(-math.inf)


@helper
def step(before, now, emitted, penalties, blank, back, size, T):
    """now = the states one time after those of `before`, or one time earlier, if `back` is 1 and not 0.

    `emitted` has the log-probabilities of the labels and may be `now`, `blank` is that of the blank.
    """
    blanks = first_blank(size)
    labels, others = stack(T, TOGETHER), stack(T, TOGETHER)
    for first in range(0, blanks - 2, TOGETHER):
        same, blank_near = shifted(before, 1 + first), shifted(before, blanks + first + back)
        near, across = shifted(before, first + 2 * back), shifted(before, first + back)
        costs, mine = shifted(penalties, 1 + first + back), shifted(emitted, 1 + first)
        same_blank = shifted(before, blanks + first)
        for k in range(TOGETHER):
            together = log_sum_of_three(same[k], blank_near[k], near[k] + costs[k], T)
            labels[k] = together + mine[k]
            others[k] = log_sum(same_blank[k], across[k], T) + blank
        for k in range(TOGETHER):
            now[1 + first + k] = labels[k]
        for k in range(TOGETHER):
            now[blanks + first + k] = others[k]
    now[0] = now[blanks - 1] = now[size - 1] = T(-math.inf)


@helper
def label_that_is_no_class(wanted, length, classes):
    """The place of the first one, `length` where there is none."""
    for k in range(length):
        if wanted[k] < 0 or wanted[k] >= classes:
            return k
    return length


@kernel
def ctc(args, start, stop):
    """Minus the log-probability of the labels, and that of each state at each time, what came before included.

    inputs: log-probabilities (times, batch, classes), targets (batch, width), lengths of input and
    target (batch, 2); outputs: losses (batch), states (batch, ROWS + times, size); words: times,
    batch, classes, width, blank, numbers in a row
    """
    p = words(args)
    x, targets, lengths = at(p[0], T), at(p[1], I), at(p[2], I)
    losses, states, status = at(p[3], T), at(p[4], T), at(p[5], I)
    times, batch, classes, width, blank, size = p[6], p[7], p[8], p[9], p[10], p[11]
    for unit in range(start, stop):
        ends, length = lengths[2 * unit], lengths[2 * unit + 1]
        wanted, rows = shifted(targets, unit * width), shifted(states, unit * (ROWS + times) * size)
        wrong = label_that_is_no_class(wanted, length, classes)
        if wrong < length:
            status[1], status[0] = wanted[wrong], STATUS_VALUE
            return
        penalties_of(wanted, length, rows, size, T)
        if ends == 0:
            losses[unit] = T(0) if length == 0 else T(math.inf)
            continue
        last = shifted(rows, ROWS * size)
        begin(shifted(x, unit * classes), blank, wanted, length, 0, last, size, T)
        for t in range(1, ends):
            now, here = shifted(last, size), shifted(x, (t * batch + unit) * classes)
            emit(here, wanted, length, now, size, T)
            step(last, now, now, rows, here[blank], 0, size, T)
            last = now
        losses[unit] = -log_sum(last[first_blank(size) + length], last[length], T)


@helper
def total(likely):
    """The sum of `TOGETHER` numbers, halves added to halves, which it writes over."""
    for k in range(8):
        likely[k] += likely[k + 8]
    for k in range(4):
        likely[k] += likely[k + 4]
    return (likely[0] + likely[2]) + (likely[1] + likely[3])


@helper
def add_chances(exp, before, now, emitted, blank, wanted, length, size, loss, found, T):
    """Add to found[class] what each label has of all paths; what the blanks have together.

    What is emitted, here `blank`, is in the states that come before and in those of `now`.
    """
    likely, of_blank, blanks = stack(T, TOGETHER), T(0), first_blank(size)
    for first in range(0, length + 1, TOGETHER):
        one, other = shifted(before, blanks + first), shifted(now, blanks + first)
        for k in range(TOGETHER):
            likely[k] = exp(one[k] + other[k] + (loss - blank))
        of_blank += total(likely)
    for first in range(0, length, TOGETHER):
        one, other, mine = (
            shifted(before, 1 + first), shifted(now, 1 + first), shifted(emitted, 1 + first)
        )  # fmt: skip
        for k in range(TOGETHER):
            likely[k] = exp(one[k] + other[k] + (loss - mine[k]))
        for k in range(min(TOGETHER, length - first)):
            found[wanted[first + k]] += likely[k]
    return of_blank


@kernel
def ctc_backward(args, start, stop):
    """The gradient of the log-probabilities, as if they came from a softmax: what is expected of each class
    less its probability given the labels, times the gradient of the loss.

    inputs: log-probabilities, targets, lengths, states, losses, gradients of these; outputs: the gradient
    (times, batch, classes), three rows for each sample; words: times, batch, classes, width, blank,
    numbers in a row, whether an infinite loss has a gradient of zero
    """
    p = words(args)
    x, targets, lengths, states = at(p[0], T), at(p[1], I), at(p[2], I), at(p[3], T)
    losses, g, out, scratch = at(p[4], T), at(p[5], T), at(p[6], T), at(p[7], T)
    times, batch, classes, width, blank, size, zero_infinity = (
        p[8], p[9], p[10], p[11], p[12], p[13], p[14]
    )  # fmt: skip
    for unit in range(start, stop):
        ends, length, loss = lengths[2 * unit], lengths[2 * unit + 1], losses[unit]
        wanted, rows = shifted(targets, unit * width), shifted(states, unit * (ROWS + times) * size)
        after, now = shifted(scratch, 3 * unit * size), shifted(scratch, (3 * unit + 1) * size)
        emitted = shifted(scratch, (3 * unit + 2) * size)
        if label_that_is_no_class(wanted, length, classes) < length:
            continue  # a GPU comes here whatever `ctc` has found
        if zero_infinity and loss == T(math.inf):
            ends = 0
        for t in range(ends, times):
            here = shifted(out, (t * batch + unit) * classes)
            for c in range(classes):
                here[c] = T(0)
        for t in range(ends - 1, -1, -1):
            given, before = (
                shifted(x, (t * batch + unit) * classes),
                shifted(rows, (ROWS + t) * size),
            )
            here = shifted(out, (t * batch + unit) * classes)
            emit(given, wanted, length, emitted, size, T)
            if t == ends - 1:
                begin(given, blank, wanted, length, 1, now, size, T)
            else:
                step(after, now, emitted, rows, given[blank], 1, size, T)
            for c in range(classes):
                here[c] = T(0)
            here[blank] += add_chances(
                math.exp, before, now, emitted, given[blank], wanted, length, size, loss, here, T
            )  # fmt: skip
            # PyTorch's gradient is NaN where a class or all of a target cannot be: there `none` is NaN, else 0.
            for c in range(classes):
                rest = loss - given[c]
                none = rest - rest
                here[c] = (math.exp(given[c]) - (here[c] + none)) * g[unit]
            after, now = now, after
