"""Nothing that a step makes stays: references, objects and memory are as many after many steps as before.

`ADJIT_COUNT_STEPS=10000` makes as many. Under a debug build of Python all references are counted, unless
NumPy is built for release: what that takes and gives is not counted then.
"""

import gc
import os
import sys

import numpy as np
import pytest
import steady

from adjit.schedule import plan_cache
from adjit.schedule import settle as scheduling
from adjit.schedule.jit import native

STEPS = int(os.environ.get("ADJIT_COUNT_STEPS", "300"))
WARM = 60  # steps, after which recipes, plans and compiled functions are there
SPARE = STEPS * 2 // 3  # what may come and go by chance: less than one for each step


@pytest.fixture(scope="module", autouse=True)
def machine_code():
    """All of it is there from the beginning."""
    for family in native.families:
        assert family.load(compiling=True)


def counts_all():
    """Whether this Python counts all references, those of NumPy too."""
    if not hasattr(sys, "gettotalrefcount"):
        return False
    before = sys.gettotalrefcount()
    for _ in range(STEPS):
        np.array([1, 2])
    return abs(sys.gettotalrefcount() - before) < SPARE


COUNTS_ALL = counts_all()


def counts():
    """How many there are of what must not grow."""
    scheduling.settle()
    gc.collect()
    x = steady.X
    watched = {
        "None": None, "()": (), "tensor": x, "cell": x._storage, "spec": x._spec, "class": type(x),
        "value": x._storage.value, "weight": steady.W, "rows": steady.ROWS,
        "class of nodes": type(x._storage.value),
    }  # fmt: skip
    found = {name: sys.getrefcount(value) for name, value in watched.items()}
    found |= {"tracked": len(gc.get_objects()), "blocks": sys.getallocatedblocks()}
    if COUNTS_ALL:
        found["references"] = sys.gettotalrefcount()
    return found


@pytest.mark.parametrize("name", steady.PROGRAMS)
@pytest.mark.timeout(1200)
def test_counts_are_flat(name):
    step = steady.PROGRAMS[name]
    for _ in range(WARM):
        step()
        plan_cache.wait()  # whoever compiles keeps objects
    found = [counts()]  # and the pools are full after the first steps that are counted
    for _ in range(2):
        for _ in range(STEPS):
            step()
        found.append(counts())
    _, before, after = found
    grown = {what: after[what] - before[what] for what in before}
    assert {what: n for what, n in grown.items() if n > SPARE} == {}
