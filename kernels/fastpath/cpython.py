"""Python's objects in compiled code: references are int64 addresses, moved by CPython's C interface.

Functions here and in the modules that use them run with the interpreter's lock held, as any
function of an extension module does. A function named `new_...` or `own` gives a reference that
the caller has to pass on or to drop; `get` and `item` only look. `put` and `fill` take a reference
over, into a slot that is still empty. 0 stands for NULL: no object, or an exception that is set.

An object's header is its reference count and its class; tuples and lists have their length next.
Where the slots of a class lie is read from the class itself (`schedule/jit/native.py`).
"""

import sys
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.types import ExternalFunction
from numba.extending import intrinsic

from ..language.abi import helper

# Stands for a number that is known when a module is compiled: `NODE_INPUTS` for the place of a slot, a field
# or a parameter, `MAX_PENDING` for a number of the library. `native.register_layout` is told of all of them.
BOUND = 0

COUNT, CLASS, LENGTH = 0, 8, 16  # offsets
ITEMS = tuple.__basicsize__  # in a tuple; newer interpreters keep its hash before them
HASH, UNHASHED = 24, -1  # in a tuple that keeps its hash
ITEMS_OF_LIST = 24  # in a list: where they are
BOUNDS_OF_SLICE = 16  # its start; stop and step follow
CONTENTS = bytes.__basicsize__ - 1  # where the bytes of an object of bytes begin
COUNT_BITS = 0xFFFFFFFF  # newer interpreters keep flags above

# An int has what tells its sign and the number of its digits at LENGTH, then the digits, 30 bits in each 32.
# Up to Python 3.11 that is a number with the sign; later, the digits from the fourth bit on, and below, in
# two bits, 0 for positive, 1 for zero, 2 for negative numbers.
DIGITS, BITS_OF_DIGIT = int.__basicsize__, sys.int_info.bits_per_digit
HAS_TAGS = sys.version_info >= (3, 12)
BASIC_SIZE, FLAGS = 32, 168  # in a class: the bytes of an object, what the class can do
WEAK_REFERENCES = 208  # in a class: where its objects have the list of weak references to them
INT_SUBCLASS = 1 << 24

NUMBER_OF_ARGUMENTS = (1 << 63) - 1  # the top bit of the number says something else


C_INT = types.int32  # what lies above it in the register of a result means nothing


def _imported(name: str, arguments: int, result: Any = types.int64) -> Any:
    """A function of the interpreter; all its arguments are words."""
    return ExternalFunction(name, result(*[types.int64] * arguments))


_deallocate = _imported("_Py_Dealloc", 1, types.void)
delete = _imported("PyObject_GC_Del", 1, types.void)  # its memory alone
clear_weak_references = _imported("PyObject_ClearWeakRefs", 1, types.void)
_new_unfilled = _imported("_PyObject_GC_New", 1)  # of a class; the collector does not look into it
_new_of_length = _imported("PyType_GenericAlloc", 2)
new_tuple = _imported("PyTuple_New", 1)
new_dict = _imported("PyDict_New", 0)
new_list = _imported("PyList_New", 1)
new_bytes = _imported("PyBytes_FromStringAndSize", 2)
new_memory = _imported("PyMem_Malloc", 1)
free = _imported("PyMem_Free", 1, types.void)
new_word = _imported("PyLong_FromLongLong", 1)
new_unsigned = _imported("PyLong_FromUnsignedLongLong", 1)
_word_of_any = _imported("PyLong_AsLongLong", 1)
float_of = _imported("PyFloat_AsDouble", 1, types.float64)
find = _imported("PyDict_GetItemWithError", 2)
remember = _imported("PyDict_SetItem", 3, C_INT)
forget = _imported("PyDict_DelItem", 2, C_INT)
forget_all = _imported("PyDict_Clear", 1, types.void)
new_set = _imported("PySet_New", 1)  # of what an iterable gives, or 0
add = _imported("PySet_Add", 2, C_INT)
discard = _imported("PySet_Discard", 2, C_INT)
empty_set = _imported("PySet_Clear", 1, C_INT)
contains = _imported("PySet_Contains", 2, C_INT)
set_length = _imported("PySet_Size", 1)
append = _imported("PyList_Append", 2, C_INT)
new_part = _imported("PyList_GetSlice", 3)  # from, to
replace_items = _imported("PyList_SetSlice", 4, C_INT)  # from, to, by those of a list or 0
new_float = ExternalFunction("PyFloat_FromDouble", types.int64(types.float64))
is_set = _imported("PyObject_IsTrue", 1, C_INT)
set_attribute = _imported("PyObject_SetAttr", 3, C_INT)
new_attribute = _imported("PyObject_GetAttr", 2)
untrack = _imported("PyObject_GC_UnTrack", 1, types.void)  # the collector no longer looks into it
track = _imported("PyObject_GC_Track", 1, types.void)
new_weak_reference = _imported("PyWeakref_NewRef", 2)  # to an object, with 0
new_next = _imported("PyIter_Next", 1)
equal = _imported("PyObject_RichCompareBool", 3, C_INT)
new_result = _imported("PyObject_Vectorcall", 4)
new_result_of_nothing = _imported("PyObject_CallNoArgs", 1)
has_failed = _imported("PyErr_Occurred", 0)
check_signals = _imported("PyErr_CheckSignals", 0, C_INT)  # not 0 if what Ctrl-C does has raised
failed_with = _imported("PyErr_ExceptionMatches", 1, C_INT)  # an exception of a class
forget_error = _imported("PyErr_Clear", 0, types.void)
take_error = _imported(
    "PyErr_Fetch", 3, types.void
)  # its class, itself and its traceback: to three places
put_error_back = _imported("PyErr_Restore", 3, types.void)
this_frame = _imported("PyEval_GetFrame", 0)  # that of Python which runs; 0 if there is none
new_frame_behind = _imported("PyFrame_GetBack", 1)  # the one that called, or 0
new_code_of = _imported("PyFrame_GetCode", 1)
instruction_of = _imported("PyFrame_GetLasti", 1, C_INT)  # where a frame is in its code
release = _imported("PyEval_SaveThread", 0)  # the interpreter's lock; what takes it back
take_back = _imported("PyEval_RestoreThread", 1, types.void)
EQUAL = 2  # the comparison that `equal` asks for


@intrinsic
def get(typingctx: Any, address: Any, offset: Any) -> Any:
    """The word at an offset from an address."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place = builder.inttoptr(builder.add(*args), ir.IntType(64).as_pointer())
        return builder.load(place)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def put(typingctx: Any, address: Any, offset: Any, word: Any) -> Any:
    """Write a word at an offset from an address."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place = builder.inttoptr(builder.add(*args[:2]), ir.IntType(64).as_pointer())
        builder.store(args[2], place)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


def _counted(builder: Any, reference: Any, change: int) -> Any:
    """Change the count of an object; what it was. Later interpreters have objects that are never freed, told
    by the sign, whose count stays."""
    kind = ir.IntType(32 if HAS_TAGS else 64)
    place = builder.inttoptr(reference, kind.as_pointer())
    count = builder.load(place)
    changed = builder.add(count, kind(change))
    if HAS_TAGS:
        changed = builder.select(builder.icmp_signed("<", count, kind(0)), count, changed)
    builder.store(changed, place)
    return count


@intrinsic
def _add_one(typingctx: Any, reference: Any) -> Any:
    """One more reference to an object."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        _counted(builder, args[0], 1)
        return context.get_dummy_value()

    return types.void(types.int64), codegen


@helper
def own(reference: int) -> int:
    """One more reference to an object; 0 is let pass."""
    if reference != 0:
        _add_one(reference)
    return reference


@intrinsic
def _is_last(typingctx: Any, reference: Any) -> Any:
    """One reference less to an object: whether that was the last."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        count = _counted(builder, args[0], -1)
        return builder.icmp_signed("==", count, count.type(1))

    return types.boolean(types.int64), codegen


@helper
def drop(reference: int) -> None:
    """One reference less to an object; 0 is let pass."""
    if reference != 0 and _is_last(reference):
        _deallocate(reference)


@helper
def exchange(owner, slot, reference):
    """Put a reference, which is taken over, in the place of another one."""
    before = get(owner, slot)
    put(owner, slot, reference)
    drop(before)


@intrinsic
def _digit(typingctx: Any, address: Any, offset: Any) -> Any:
    """The 32 bits at an offset from an address."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place = builder.inttoptr(builder.add(*args), ir.IntType(32).as_pointer())
        return builder.zext(builder.load(place), ir.IntType(64))

    return types.int64(types.int64, types.int64), codegen


@helper
def word_of(number: int) -> int:
    """An int as a word; -1, and an exception is set, if it is too large or something else."""
    if get(class_of(number), FLAGS) & INT_SUBCLASS == 0:
        return _word_of_any(number)
    if HAS_TAGS:
        digits, sign = get(number, LENGTH) >> 3, 1 - (get(number, LENGTH) & 3)
    else:
        sign = 1 if get(number, LENGTH) > 0 else -1
        digits = get(number, LENGTH) * sign
    if digits > 2:
        return _word_of_any(number)
    word = _digit(number, DIGITS) if digits != 0 else 0
    if digits == 2:
        word += _digit(number, DIGITS + 4) << BITS_OF_DIGIT
    return sign * word


@helper
def new_object(kind: int) -> int:
    """An object of a class, its slots empty, that the collector does not look into; 0 on failure."""
    made = _new_unfilled(kind)
    if made != 0:
        for offset in range(LENGTH, get(kind, BASIC_SIZE), 8):
            put(made, offset, 0)
    return made


@helper
def class_of(reference: int) -> int:
    """The class of an object."""
    return get(reference, CLASS)


@helper
def length(collection: int) -> int:
    """The length of a tuple or a list."""
    return get(collection, LENGTH)


@helper
def item(sequence: int, k: int) -> int:
    """Item `k` of a tuple."""
    return get(sequence, ITEMS + 8 * k)


@helper
def list_item(sequence: int, k: int) -> int:
    """Item `k` of a list."""
    return get(get(sequence, ITEMS_OF_LIST), 8 * k)


@helper
def items(sequence: int) -> int:
    """Where the items of a tuple lie."""
    return sequence + ITEMS


@helper
def new_instance(kind: int, size: int) -> int:
    """A tuple of a class that comes from tuples, so long, its items empty; 0 on failure."""
    made = _new_of_length(kind, size)
    if made != 0 and ITEMS > HASH:
        put(made, HASH, UNHASHED)
    return made


@helper
def fill(sequence: int, k: int, reference: int) -> None:
    """Item `k` of a new tuple, which takes the reference over."""
    put(sequence, ITEMS + 8 * k, reference)


@helper
def put_list_item(sequence: int, k: int, reference: int) -> None:
    """Item `k` of a new list, which takes the reference over."""
    put(get(sequence, ITEMS_OF_LIST), 8 * k, reference)


@helper
def exchange_list_item(sequence: int, k: int, reference: int) -> None:
    """Put a reference, which is taken over, in the place of item `k` of a list."""
    before = list_item(sequence, k)
    put_list_item(sequence, k, reference)
    drop(before)


@helper
def drop_last_items(collection: int, first: int) -> None:
    """Take the items from one on off a list; it is without them before one of them is freed."""
    end = length(collection)
    put(collection, LENGTH, first)
    for k in range(first, end):
        drop(list_item(collection, k))


@helper
def trade_list_item(sequence: int, k: int, owner: int, slot: int) -> None:
    """Put item `k` of a list into a slot, and what was there into the list."""
    before = get(owner, slot)
    put(owner, slot, list_item(sequence, k))
    put_list_item(sequence, k, before)


@helper
def new_pair(first: int, second: int) -> int:
    """A tuple of two references, which it takes over; 0 if one of them is 0."""
    pair = new_tuple(2) if first != 0 and second != 0 else 0
    if pair == 0:
        drop(first)
        drop(second)
        return 0
    fill(pair, 0, first)
    fill(pair, 1, second)
    return pair


@helper
def new_single(only: int) -> int:
    """A tuple of one reference, which it takes over; 0 if that is 0."""
    single = new_tuple(1) if only != 0 else 0
    if single == 0:
        drop(only)
        return 0
    fill(single, 0, only)
    return single


@helper
def count_of(reference: int) -> int:
    """How many references there are to an object."""
    return get(reference, COUNT) & COUNT_BITS
