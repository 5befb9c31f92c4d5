"""Connectionist temporal classification: all ways to spread labels over time, with blanks between them.

Labels of one sample become `2 * length + 1` states: a blank before, between and after them. A unit is one
sample. Sums of probabilities are kept as logarithms.
"""

import math

from ..language.abi import STATUS_VALUE, I, T, at, helper, kernel, words


@helper
def label_of(targets, first, state, blank):
    """What a state emits."""
    return targets[first + state // 2] if state % 2 else blank


@helper
def skips(targets, first, state, blank):
    """Whether the label of a state may follow the one before it without a blank."""
    return state % 2 == 1 and targets[first + state // 2] != targets[first + state // 2 - 1]


@helper
def log_sum(exp, log, a, b, c, T):
    """log(exp(a) + exp(b) + exp(c)); the functions are given, as `math` in a helper is the system's library."""
    top = max(a, b, c)
    if top == T(-math.inf):
        return top
    return top + log(exp(a - top) + exp(b - top) + exp(c - top))


@kernel
def ctc(args, start, stop):
    """Minus the log-probability of the labels, and that of each state at each time, what came before included.

    inputs: log-probabilities (times, batch, classes), targets (batch, width), lengths of input and
    target (batch, 2); outputs: losses (batch), states (batch, times, 2 * width + 1); words: times,
    batch, classes, width, blank
    """
    p = words(args)
    x, targets, lengths, losses, alpha = (
        at(p[0], T),
        at(p[1], I),
        at(p[2], I),
        at(p[3], T),
        at(p[4], T),
    )
    status, times, batch, classes, width, blank = at(p[5], I), p[6], p[7], p[8], p[9], p[10]
    never = T(-math.inf)
    states = 2 * width + 1
    for unit in range(start, stop):
        ends, length = lengths[2 * unit], lengths[2 * unit + 1]
        first, row = unit * width, unit * times * states
        for k in range(first, first + length):
            if targets[k] < 0 or targets[k] >= classes:
                status[1], status[0] = targets[k], STATUS_VALUE
                return
        if ends == 0:
            losses[unit] = T(0) if length == 0 else T(math.inf)
            continue
        used = 2 * length + 1
        for s in range(used):
            at_start = s == 0 or s == 1
            alpha[row + s] = (
                x[unit * classes + label_of(targets, first, s, blank)] if at_start else never
            )
        for t in range(1, ends):
            before, now, here = (
                row + (t - 1) * states,
                row + t * states,
                (t * batch + unit) * classes,
            )
            for s in range(used):
                one = alpha[before + s - 1] if s > 0 else never
                two = never
                if s > 1 and skips(targets, first, s, blank):
                    two = alpha[before + s - 2]
                together = log_sum(math.exp, math.log, alpha[before + s], one, two, T)
                alpha[now + s] = together + x[here + label_of(targets, first, s, blank)]
        last = row + (ends - 1) * states + used - 1
        other = alpha[last - 1] if length > 0 else never
        losses[unit] = -log_sum(math.exp, math.log, alpha[last], other, never, T)


@kernel
def ctc_backward(args, start, stop):
    """The gradient of the log-probabilities, as if they came from a softmax: what is expected of each class
    less its probability given the labels, times the gradient of the loss.

    inputs: log-probabilities, targets, lengths, states, losses, gradients of these; outputs: the gradient
    (times, batch, classes), a row of states for each sample; words: times, batch, classes, width,
    blank, whether an infinite loss has a gradient of zero
    """
    p = words(args)
    x, targets, lengths, alpha = at(p[0], T), at(p[1], I), at(p[2], I), at(p[3], T)
    losses, g, out, beta = at(p[4], T), at(p[5], T), at(p[6], T), at(p[7], T)
    times, batch, classes, width, blank, zero_infinity = p[8], p[9], p[10], p[11], p[12], p[13]
    never = T(-math.inf)
    states = 2 * width + 1
    for unit in range(start, stop):
        ends, length, loss = lengths[2 * unit], lengths[2 * unit + 1], losses[unit]
        first, row, mine = unit * width, unit * times * states, unit * states
        used = 2 * length + 1
        if zero_infinity and loss == T(math.inf):
            ends = 0
        for t in range(ends, times):
            here = (t * batch + unit) * classes
            for c in range(classes):
                out[here + c] = T(0)
        for t in range(ends - 1, -1, -1):
            here = (t * batch + unit) * classes
            for c in range(classes):
                out[here + c] = never
            for s in range(used):
                label = label_of(targets, first, s, blank)
                if t == ends - 1:
                    together = T(0) if s >= used - 2 else never
                else:
                    one = beta[mine + s + 1] if s + 1 < used else never
                    two = never
                    if s + 2 < used and skips(targets, first, s + 2, blank):
                        two = beta[mine + s + 2]
                    together = log_sum(math.exp, math.log, beta[mine + s], one, two, T)
                beta[mine + s] = together + x[here + label]
                both = alpha[row + t * states + s] + beta[mine + s]
                out[here + label] = log_sum(math.exp, math.log, out[here + label], both, never, T)
            for c in range(classes):
                expected = math.exp(x[here + c])
                given = math.exp(out[here + c] + loss - x[here + c])
                out[here + c] = (expected - given) * g[unit]
