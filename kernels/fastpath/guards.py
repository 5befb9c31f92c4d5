"""Guards of captured functions, compiled: whether words of memory are what they were."""

from .cpython import BOUND, CONTENTS, LENGTH, get, new_word

GUARDS_TABLE = BOUND
WORD_ADDRESS = WORD_FIELDS = WORD_MASK = WORD_WANTED = BOUND

SIZE = 8 * WORD_FIELDS  # of an entry


def first_changed(function, arguments, count, names):
    """The number of the first word that is not what it was, -1 if all are."""
    table = get(get(arguments, 0), GUARDS_TABLE)
    begin = table + CONTENTS
    end = begin + get(table, LENGTH)
    for entry in range(begin, end, SIZE):
        address, mask = get(entry, 8 * WORD_ADDRESS), get(entry, 8 * WORD_MASK)
        if get(address, 0) & mask != get(entry, 8 * WORD_WANTED):
            return new_word((entry - begin) // SIZE)
    return new_word(-1)
