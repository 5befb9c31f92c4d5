"""Calls with `out=`, compiled: what such a call makes without it is written into that tensor."""

from ..language.abi import helper, stack_words
from .cpython import (
    BOUND,
    NUMBER_OF_ARGUMENTS,
    drop,
    fill,
    get,
    item,
    length,
    list_item,
    new_result,
    new_tuple,
    own,
    put,
)
from .tensors import is_tensor

RUNTIME_ADOPTERS = RUNTIME_OUT = RUNTIME_TRUE = BOUND
TENSOR_NEEDS_GRAD = TENSOR_SPEC = BOUND


@helper
def new_into(runtime, function, arguments, count, names):
    """The tensor behind the last name, `out`, with what the function gives without it written into it; 0 on
    failure, or if this is not the usual case: a result without history and with the tensor's spec."""
    given = length(names)
    if item(names, given - 1) != item(runtime, RUNTIME_OUT):
        return 0
    positional = count & NUMBER_OF_ARGUMENTS
    t = get(arguments, 8 * (positional + given - 1))
    if not is_tensor(runtime, t) or get(t, TENSOR_NEEDS_GRAD) == item(runtime, RUNTIME_TRUE):
        return 0
    rest = new_tuple(given - 1) if given > 1 else 0
    if given > 1 and rest == 0:
        return 0
    for k in range(given - 1 if rest != 0 else 0):
        fill(rest, k, own(item(names, k)))
    made = new_result(function, arguments, positional, rest)
    drop(rest)
    out = 0
    if made != 0 and fits(runtime, made, t):
        words = stack_words(2)
        put(words, 0, t)
        put(words, 8, made)
        out = new_result(list_item(item(runtime, RUNTIME_ADOPTERS), 0), words, 2, 0)
    drop(made)
    return out


@helper
def fits(runtime, made, t):
    """Whether a result is a tensor like another one, without history."""
    if not is_tensor(runtime, made) or get(made, TENSOR_NEEDS_GRAD) == item(runtime, RUNTIME_TRUE):
        return False
    return get(made, TENSOR_SPEC) == get(t, TENSOR_SPEC)
