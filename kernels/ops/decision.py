"""Decisions of Python by the truth of a tensor, as steps of a plan."""

from ..language.abi import I, T, at, kernel, words

OTHERWISE = 1  # the status of a decision that another value would have made otherwise


@kernel
def hold_to(args, start, stop):
    """Fail unless an element is as true as it was; there is one unit.

    input: the element; words: 1 if it was not zero, else 0
    """
    p = words(args)
    if (at(p[0], T)[0] != T(0)) != (p[3] != 0):
        at(p[2], I)[0] = OTHERWISE
