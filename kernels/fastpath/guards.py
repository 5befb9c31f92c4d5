"""Guards of captured functions, compiled: whether words of memory are what they were."""

from .cpython import BOUND, CONTENTS, LENGTH, get, new_word

GUARDS_TABLE = BOUND
ADDRESS, MASK, WANTED, SIZE = 0, 8, 16, 24  # of an entry


def first_changed(function, arguments, count, names):
    """The number of the first word that is not what it was, -1 if all are."""
    table = get(get(arguments, 0), GUARDS_TABLE)
    begin = table + CONTENTS
    end = begin + get(table, LENGTH)
    for entry in range(begin, end, SIZE):
        if get(get(entry, ADDRESS), 0) & get(entry, MASK) != get(entry, WANTED):
            return new_word((entry - begin) // SIZE)
    return new_word(-1)
