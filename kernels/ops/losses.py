"""Losses that look up a class or check a value."""

import math

from ..language.abi import STATUS_VALUE, I, T, at, kernel, shifted, words

# Classes lie along the middle of `samples x classes x places`; a unit is one (sample, place).


@kernel
def pick_class(args, start, stop):
    """out = -x at the target's class times its weight, and that weight; 0 where it is ignored.

    inputs: x, target, weight of each class; words: classes, places, ignored, whether weighted
    """
    p = words(args)
    x, target, weight, out, used = at(p[0], T), at(p[1], I), at(p[2], T), at(p[3], T), at(p[4], T)
    status, classes, places, ignored, weighted = at(p[5], I), p[6], p[7], p[8], p[9]
    for unit in range(start, stop):
        wanted = target[unit]
        if wanted == ignored:
            out[unit] = used[unit] = T(0)
        elif wanted < 0 or wanted >= classes:
            status[0], status[1] = STATUS_VALUE, wanted
            return
        else:
            factor = weight[wanted] if weighted else T(1)
            sample, place = unit // places, unit % places
            out[unit] = -x[(sample * classes + wanted) * places + place] * factor
            used[unit] = factor


@kernel
def put_class(args, start, stop):
    """out = -value at the target's class, 0 at the other classes.

    inputs: values, target; words: classes, places, ignored
    """
    p = words(args)
    value, target, out = at(p[0], T), at(p[1], I), at(p[2], T)
    classes, places, ignored = p[3], p[4], p[5]
    unit = start
    while unit < stop:  # all places of a sample together, of which a part has fewer at its ends
        sample, place = unit // places, unit % places
        count = min(places - place, stop - unit)
        image = shifted(out, sample * classes * places)
        runs, length = (1, classes * places) if count == places else (classes, count)
        for c in range(runs):
            line = shifted(image, c * places + place)
            for j in range(length):
                line[j] = T(0)
        for j in range(count):
            wanted = target[unit + j]
            # A GPU comes here whatever `pick_class` has found.
            if wanted != ignored and 0 <= wanted < classes:
                image[wanted * places + place + j] = -value[unit + j]
        unit += count


@kernel
def binary_cross_entropy(args, start, stop):
    """out = -(y log x + (1 - y) log(1 - x)), logarithms being at least -100; x and y within [0, 1]."""
    p = words(args)
    x, y, out, status = at(p[0], T), at(p[1], T), at(p[2], T), at(p[3], I)
    bad_input, bad_target = 0, 0
    for i in range(start, stop):
        bad_input += not ((x[i] >= T(0)) & (x[i] <= T(1)))
        bad_target += not ((y[i] >= T(0)) & (y[i] <= T(1)))
        low = max(math.log1p(-x[i]), T(-100))
        high = max(math.log(x[i]), T(-100))
        out[i] = (y[i] - T(1)) * low - y[i] * high
    if bad_input or bad_target:
        status[0], status[1] = STATUS_VALUE, bad_input
