"""What goes again when others come: `graph/ring.py`."""

from ..language.abi import helper
from .cpython import (
    BOUND,
    append,
    exchange,
    exchange_list_item,
    find,
    forget,
    get,
    has_failed,
    length,
    list_item,
    new_word,
    own,
    word_of,
)

RING_ITEMS = RING_MOST = RING_PLACE = BOUND


@helper
def new_oldest(ring, thing):
    """Have a ring take a thing; the oldest one if that goes, 0 if none does, or, and an exception is set, on
    failure."""
    items, place = get(ring, RING_ITEMS), word_of(get(ring, RING_PLACE))
    if length(items) < word_of(get(ring, RING_MOST)):
        append(items, thing)
        return 0
    following = new_word(place + 1 if place + 1 < length(items) else 0)
    if following == 0:
        return 0
    exchange(ring, RING_PLACE, following)
    oldest = own(list_item(items, place))
    exchange_list_item(items, place, own(thing))
    return oldest


@helper
def forget_known(entries, key):
    """Take an entry out of a dict, if it is there; whether that went well."""
    if find(entries, key) == 0:
        return has_failed() == 0
    return forget(entries, key) == 0
