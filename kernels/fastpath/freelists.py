"""Objects that come and go with every operation, kept when they are freed, and used again.

The interpreter frees an object of a class like these, which it knows nothing of, slot by slot, and gives its
memory back, to take it again for the next one. Here a free object waits in the list of those of its size, its
slots empty but for the first, which links to the next; the table of these lists is known by its name.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..language.abi import helper
from .cpython import (
    BASIC_SIZE,
    CLASS,
    COUNT,
    FLAGS,
    LENGTH,
    WEAK_REFERENCES,
    clear_weak_references,
    delete,
    drop,
    get,
    new_object,
    own,
    put,
    track,
    untrack,
)  # fmt: skip

TABLE = "adjit_spare_objects"
LARGEST = 256  # bytes of an object with a list
WORDS = 4 * LARGEST // 8  # of the table: of each size the first and the number, twice
MOST = 1 << 12  # objects in a list

FIRST_SLOT = LENGTH
NEXT_TRACKED = -16  # from an object: not 0 if the collector tracks it
ALLOCATE, DEALLOCATE = 304, 48  # in a class: the functions in whose place these here are put
HAS_WEAK_REFERENCES_BEFORE, HAS_DICT_BEFORE = 1 << 3, 1 << 4  # among what a class can do


@intrinsic
def _table(typingctx: Any) -> Any:
    """The address of the table."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        table = builder.module.globals.get(TABLE)
        if table is None:
            table = ir.GlobalVariable(builder.module, ir.IntType(64), TABLE)
        return builder.ptrtoint(table, ir.IntType(64))

    return types.int64(), codegen


@helper
def _list_of(kind: int) -> int:
    """Where the table has the objects with the memory of this class; 0 if it has none."""
    size, flags = get(kind, BASIC_SIZE), get(kind, FLAGS)
    if size >= LARGEST or flags & HAS_DICT_BEFORE != 0:
        return 0
    return _table() + 2 * (size + LARGEST * int(flags & HAS_WEAK_REFERENCES_BEFORE != 0))


@helper
def new_recycled(kind: int) -> int:
    """An object of a class that `recycle` frees, as `new_object` makes it."""
    waiting = _list_of(kind)
    made = get(waiting, 0) if waiting != 0 else 0
    if made == 0:
        return new_object(kind)
    put(waiting, 0, get(made, FIRST_SLOT))
    put(waiting, 8, get(waiting, 8) - 1)
    put(made, FIRST_SLOT, 0)
    put(made, COUNT, 1)
    put(made, CLASS, own(kind))
    return made


def allocate(kind, _):
    """An object, when the interpreter makes one: the collector tracks it."""
    made = new_recycled(kind)
    if made != 0:
        track(made)
    return made


def recycle(dead):
    """Free an object: what a class does with one that nothing refers to any more.

    No recursion: a graph of these goes through tuples, of which the interpreter puts off the deep ones.
    """
    kind = get(dead, CLASS)
    if get(dead, NEXT_TRACKED) != 0:
        untrack(dead)
    references = get(kind, WEAK_REFERENCES)
    if references != 0 and get(dead, references) != 0:
        clear_weak_references(dead)
    for offset in range(FIRST_SLOT, get(kind, BASIC_SIZE), 8):
        part = get(dead, offset)
        if part != 0 and offset != references:
            put(dead, offset, 0)
            drop(part)
    waiting = _list_of(kind)
    if waiting != 0 and get(waiting, 8) < MOST:
        put(dead, FIRST_SLOT, get(waiting, 0))
        put(waiting, 0, dead)
        put(waiting, 8, get(waiting, 8) + 1)
    else:
        delete(dead)
    drop(kind)
