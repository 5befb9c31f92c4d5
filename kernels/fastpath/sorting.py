"""Sorting objects by a number of their own, in compiled code."""

from ..language.abi import helper
from .cpython import free, get, length, list_item, new_memory, put, put_list_item, word_of

KEY, OBJECT, PAIR = 0, 8, 16


@helper
def sort_by(collection, slot):
    """Sort a list of objects by the int that each has in a slot; whether there was memory for it.

    Neighbouring parts are merged, each time twice as long ones. Where they follow each other already, as most
    do that a walk has found, that is one comparison. The last come first, as a walk finds them.
    """
    count = length(collection)
    pairs = new_memory(PAIR * 2 * (count + 1))
    if pairs == 0:
        return False
    for k in range(count):
        found = list_item(collection, count - 1 - k)
        put(pairs, PAIR * k + KEY, word_of(get(found, slot)))
        put(pairs, PAIR * k + OBJECT, found)
    size = 1
    while size < count:
        for first in range(0, count - size, 2 * size):
            end = min(first + 2 * size, count)
            merge(pairs, PAIR * first, PAIR * (first + size), PAIR * end, pairs + PAIR * count)
        size *= 2
    for k in range(count):
        put_list_item(collection, k, get(pairs, PAIR * k + OBJECT))
    free(pairs)
    return True


@helper
def merge(pairs, first, middle, end, spare):
    """Merge two parts in order, whose bounds are bytes; `spare` has room for the first."""
    if get(pairs, middle - PAIR + KEY) <= get(pairs, middle + KEY):
        return
    left = middle - first
    for at in range(0, left, PAIR):
        move(pairs + first + at, spare + at)
    taken, right = 0, middle
    for at in range(first, end, PAIR):
        if taken == left:
            break  # the rest is in its place
        if right < end and get(pairs, right + KEY) < get(spare, taken + KEY):
            move(pairs + right, pairs + at)
            right += PAIR
        else:
            move(spare + taken, pairs + at)
            taken += PAIR


@helper
def move(source, target):
    """Copy a pair."""
    put(target, KEY, get(source, KEY))
    put(target, OBJECT, get(source, OBJECT))
