"""Blocks of the pool in compiled code; the functions of `storage.py` take the cases that need more."""

from ..language.abi import helper, stack_words
from .cpython import LENGTH, length, list_item, new_result, put


@helper
def new_block(free, size, none, allocate):
    """A block of a size class: from `free`, the pool's list, where it is not None, or allocated."""
    if free != none and length(free) > 0:
        last = length(free) - 1
        block = list_item(free, last)
        put(free, LENGTH, last)  # its reference is ours now
        return block
    words = stack_words(1)
    put(words, 0, size)
    return new_result(allocate, words, 1, 0)
