"""Dictionaries by objects themselves: entries go with their keys, and equal keys are told apart."""

import copy
import gc
import importlib

import numpy as np
import pytest
from library import T as library
from library import adjit_only

weak = importlib.import_module(f"{library.__name__}.utils.weak")


def test_keys_are_told_apart_by_what_they_are():
    x, y = library.ones(2), library.ones(2)
    found = weak.WeakTensorKeyDictionary({x: "x"})
    assert x in found
    assert y not in found
    assert 3 not in found
    found[y] = "y"
    found[x] = "z"
    assert [found[x], found[y], len(found)] == ["z", "y", 2]
    assert [key is other for key, other in zip(found, (x, y), strict=True)] == [True, True]
    assert list(found.values()) == ["z", "y"]
    assert found.get(library.ones(2)) is None
    assert found.setdefault(x, 1) == "z"
    assert found.pop(x) == "z"
    del found[y]
    assert not found
    with pytest.raises(KeyError):
        found[x]


def test_entries_go_with_their_keys():
    found = weak.WeakIdKeyDictionary()
    for k in range(5):
        found[library.ones(1)] = k
    assert len(found) == 0
    x, y = library.ones(2), library.ones(2)
    found.update({x: 1, y: 2})
    references = found.keyrefs()
    for key in found:  # one goes while others are looked at
        if key is y:
            break
        del x, key
        gc.collect()
    assert list(found.values()) == [2]
    assert [reference() is None for reference in references] == [True, False]


def test_what_is_copied_and_joined():
    x, y, values = library.ones(2), library.ones(2), np.zeros(2)
    found = weak.WeakIdKeyDictionary({x: values})
    assert found.copy()[x] is values
    assert copy.copy(found) == found
    deep = copy.deepcopy(found)
    assert deep[x] is not values
    joined = found | {y: 1}
    assert [joined[x] is values, joined[y]] == [True, 1]
    assert ({x: 3, y: 1} | found)[x] is values
    found |= {x: 4}
    assert found == weak.WeakIdKeyDictionary({x: 4})
    assert found != {y: 4}
    assert found != 3


def test_references_equal_those_to_the_same_object():
    x, y = library.ones(2), library.ones(2)
    first, second = weak.WeakIdRef(x), weak.WeakIdRef(x)
    assert first == second
    assert hash(first) == hash(second)
    assert (first == weak.WeakIdRef(y)) is False
    del x
    assert first() is None
    assert (first == second) is False
    assert {first: 1}[first] == 1


@adjit_only
def test_tensors_of_every_class_are_keys():
    parameter = library.nn.Parameter(library.ones(1))
    found = weak.WeakIdKeyDictionary({parameter: 1})
    assert found[parameter] == 1
    assert weak.WeakIdRef(parameter) != weak.WeakIdRef(library.ones(1))
    with pytest.raises(TypeError):
        found[1] = 2
