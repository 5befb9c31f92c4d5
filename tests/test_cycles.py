"""What the collector of cycles sees of graphs: little, and every cycle."""

import asyncio
import gc
import subprocess
import sys
import threading
import time
import weakref
from types import ModuleType

import pytest

import adjit as T
from adjit import storage
from adjit.graph import cycles, fastpath
from adjit.schedule import settle as scheduling
from adjit.schedule.jit import native

pytestmark = pytest.mark.skipif(not native.is_supported, reason="another interpreter")


hides = pytest.mark.skipif(
    not cycles.has_full_collections(), reason="the collector goes through old objects bit by bit"
)


@pytest.fixture(scope="module", autouse=True)
def machine_code():
    """All of it is there, whatever ran before."""
    for family in native.families:
        assert family.load(compiling=True)
    graph()  # Python records what was never seen before


@pytest.fixture(autouse=True)
def own_collections():
    """The collector works when a test asks for it, and has seen what came before."""
    scheduling.settle()
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def graph():
    x = T.ones(3, requires_grad=True)
    h = x * 2
    return x, h, h * h.exp()


# Each makes a cycle, and gives objects that only the collector can free.


def hook_of_a_tensor_before():
    _, h, y = graph()
    z = y.sum()
    h.register_hook(lambda g: z)
    return z, h


def remember(t):
    t.register_hook(lambda g: t)


def hook_of_the_tensor():
    _, h, y = graph()
    remember(h)
    return h, y


def hook_of_a_leaf():
    x, _, y = graph()
    x.register_hook(lambda g: y)
    return x, y


def hook_of_a_node():
    _, h, y = graph()
    h.grad_fn.register_prehook(lambda grads: y)
    return h, y


def hook_made_before_the_rest():
    x = T.ones(3, requires_grad=True)
    h, seen = x * 2, []
    h.register_hook(lambda g: seen[0])
    y = h.exp()
    seen.append((y * y).sum())
    return h, y, seen[0]


def attribute():
    _, h, y = graph()
    h.kept = y
    return h, y


def attribute_in_a_dict():
    _, h, y = graph()
    vars(h)["kept"] = y
    return h, y


def attribute_once_there_was_a_dict():
    _, h, y = graph()
    assert vars(h) == {}
    h.kept = y
    return h, y


def attribute_past_the_class():
    _, h, y = graph()
    object.__setattr__(h, "kept", y)
    return h, y


def attribute_of_what_is_saved():
    _, _, y = graph()
    y.kept = z = (y * y).sum()
    return y, z


def gradient_with_a_graph():
    x, _, y = graph()
    (y * y).sum().backward(create_graph=True)
    return x, x.grad


def view():
    _, _, y = graph()
    part = y[1:]
    y.kept = part * part
    return y, part


def parts():
    x = T.ones(4, requires_grad=True)
    h = x * 2
    first, second = h.chunk(2)
    h.grad_fn.metadata["sum"] = (first * second).sum()
    return h, first


CYCLES = [
    hook_of_a_tensor_before, hook_of_the_tensor, hook_of_a_leaf, hook_of_a_node,
    hook_made_before_the_rest, attribute, attribute_in_a_dict, attribute_once_there_was_a_dict,
    attribute_past_the_class, attribute_of_what_is_saved, gradient_with_a_graph, view, parts,
]  # fmt: skip
HOOKS = [hook_of_a_tensor_before, hook_of_the_tensor, hook_of_a_leaf, hook_of_a_node]


def made(cycle):
    return [weakref.ref(t) for t in cycle()]


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph")
@pytest.mark.parametrize("cycle", CYCLES)
def test_a_cycle_through_a_graph_is_collected(cycle):
    found = made(cycle)
    assert any(ref() is not None for ref in found)
    gc.collect()
    assert all(ref() is None for ref in found)


@pytest.mark.parametrize("cycle", HOOKS)
@pytest.mark.parametrize("generation", [0, 1])
def test_one_with_hooks_while_it_is_young(cycle, generation):
    """From the second one on: there are hooks now."""
    made(cycle)
    found = made(cycle)
    gc.collect(generation)
    assert all(ref() is None for ref in found)


def test_steps_with_hooks_do_not_pile_up():
    """What each of them leaves behind goes with the next small collections."""
    gc.enable()
    left = []
    for _ in range(2000):
        left += made(hook_of_a_tensor_before)
        left = [ref for ref in left if ref() is not None]
        assert len(left) < 500


@hides
def test_once_there_are_hooks_graphs_are_tracked_until_a_full_collection():
    def is_tracked():
        _, h, y = graph()
        parts = h, h._edge, y.grad_fn, y.grad_fn.edges, y.grad_fn.saved
        return {gc.is_tracked(o) for o in parts}

    assert is_tracked() == {False}
    made(hook_of_the_tensor)
    assert is_tracked() == {True}
    gc.collect(1)
    assert is_tracked() == {True}
    gc.collect()
    assert is_tracked() == {False}


def test_without_full_collections_graphs_stay_in_sight():
    """Python 3.14.0 to 3.14.4 make none by themselves, and say so by this threshold."""
    kept = gc.get_threshold()
    gc.set_threshold(*kept[:2], 0)
    try:
        for cycle in (attribute, view):
            gc.collect()
            found = made(cycle)
            gc.collect(1)
            assert all(ref() is None for ref in found)
    finally:
        gc.set_threshold(*kept)
        gc.collect()


@hides
def test_what_recording_makes_is_not_tracked():
    for _ in range(2):  # Python records what was never seen before
        _, h, y = graph()
        view = y[1:]
        z = (view * 2.5 + h[0]).relu()
    for t in (h, y, view, z):
        fn = t.grad_fn
        parts = t, t._storage, t._storage.value, t._edge, fn, fn.edges, fn.saved, fn.scalars
        assert [o for o in parts if gc.is_tracked(o)] == []
    assert not gc.is_tracked(view._view_of)
    value = y.detach()._storage.value
    y.tolist()
    assert not gc.is_tracked(value.address)


@hides
def test_the_collector_goes_through_little_of_a_long_graph():
    def build(steps):
        x = y = T.ones(3, requires_grad=True)
        for _ in range(steps):
            y = y * x + 0.5
        return y.sum()

    build(300).backward()
    before = len(gc.get_objects())
    loss = build(300)
    (g,) = T.autograd.grad(loss * loss, loss)
    assert g.item() > 0
    assert len(gc.get_objects()) - before < 300


@pytest.mark.parametrize("steps", [10, 60, 600])
def test_every_block_of_a_deep_graph_comes_back_once(steps):
    """The interpreter puts off finalizers in deep chains; a block that came back twice would be two."""
    x = y = T.ones(3, requires_grad=True)
    values = []
    for _ in range(steps):
        y = (y * x).exp().tanh()
        values.append(y.detach()._storage.value)
        y.tolist()
    del values, x, y
    for free in storage.free_small.values():
        assert len({int(block) for block in free}) == len(free)


@pytest.mark.parametrize("threshold", [1, 7, 700])
def test_collections_in_the_middle_change_nothing(threshold):
    """Recording, walking back and hooks, with a collection at nearly every allocation."""

    def run():
        x = T.arange(4.0).requires_grad_()
        seen, y = [], x
        for k in range(6):
            y = y * x + 1.5 - (y / 4).tanh()
            y.register_hook(lambda g, y=y: seen.append(y.grad_fn.name()) or g * 1.25)
            y = y.view(2, 2).flatten() if k % 2 else y
        y.sum().backward()
        return x.grad.tolist(), seen

    expected = run()
    kept = gc.get_threshold()
    gc.set_threshold(threshold, 2, 2)
    gc.enable()
    try:
        for _ in range(3):
            assert run() == expected
    finally:
        gc.disable()
        gc.set_threshold(*kept)


class Named(T.Tensor):
    """A tensor with attributes of its own."""


@pytest.mark.parametrize("cls", [T.nn.Parameter, Named])
def test_a_tensor_can_become_one_of_another_class_and_back(cls):
    """What objects of either keep attributes in is the same."""
    _, h, y = graph()
    h.__class__ = cls
    h.kept = y
    assert type(h) is cls
    h.__class__ = T.Tensor
    assert h.kept is y
    found = weakref.ref(h)
    del h, y
    gc.collect()
    assert found() is None


@hides
def test_without_the_search_cycles_would_stay(monkeypatch):
    """The tests above can fail."""
    monkeypatch.setattr(cycles, "track_behind", lambda graph, kinds: None)
    found = made(hook_of_a_tensor_before)
    gc.collect()
    assert found[0]() is not None
    monkeypatch.undo()
    gc.collect()
    assert found[0]() is None


def test_the_search_is_registered_once():
    fastpath.runtime()
    assert gc.callbacks.count(cycles.bring_back) == 1


def freed_after_an_import(between):
    """Whether a cycle from before the import is freed when somebody asks, in a new process."""
    program = f"""
import gc, weakref
class Cycle: pass
old = Cycle()
old.itself, seen = old, weakref.ref(old)
import adjit
assert gc.get_freeze_count() > 10_000
del old
{between}
gc.collect()
print(seen() is None)
"""
    found = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True
    )
    return found.stdout == "True\n"


def test_what_an_import_froze_is_seen_by_who_asks():
    assert freed_after_an_import("")


def test_what_the_program_froze_since_stays_frozen():
    assert not freed_after_an_import("gc.freeze()")


def test_collections_leave_tuples_alone_that_other_threads_fill():
    """Whoever holds an unfinished tuple makes `tuple(...)` fail, with a SystemError."""
    T.ones(1).exp_().item()
    assert cycles._tracking.is_loaded
    ballast, is_over = [[k] for k in range(100_000)], threading.Event()

    def collect():
        while not is_over.is_set():
            gc.collect()

    collecting = threading.Thread(target=collect)
    collecting.start()
    try:
        end = time.monotonic() + 2
        while time.monotonic() < end:
            assert len(tuple(k for k in range(50))) == 50
    finally:
        is_over.set()
        collecting.join()
    assert len(ballast) == 100_000


def test_modules_are_not_asked_what_they_refer_to():
    """One of Python's own gives away memory that it has freed: an iterator of asyncio waits in its list."""
    found = cycles.tracked()
    assert found
    assert not any(type(o) is ModuleType for o in found)
    del found
    loop = asyncio.new_event_loop()
    iter(asyncio.Future(loop=loop))
    loop.close()
    for _ in range(3):
        gc.collect()


@hides
def test_all_is_looked_at_rarely_but_whenever_somebody_asks(monkeypatch):
    looks = []
    monkeypatch.setattr(cycles, "_bring_back", lambda: looks.append(time.sleep(1e-4)))
    monkeypatch.setattr(cycles, "next_look", 0.0)
    gc.collect()
    gc.collect()
    assert len(looks) == 2
    monkeypatch.setattr(cycles, "next_look", float("inf"))
    gc.collect()
    assert len(looks) == 3
    monkeypatch.setattr(gc, "get_count", lambda: (701, 0, 11))  # as when it is made by itself
    monkeypatch.setattr(gc, "get_threshold", lambda: (700, 10, 10))
    monkeypatch.setattr(cycles, "next_look", float("inf"))
    gc.collect()
    assert len(looks) == 3
    monkeypatch.setattr(cycles, "next_look", 0.0)
    before = time.perf_counter()
    gc.collect()
    assert len(looks) == 4
    assert cycles.next_look > before + 50e-4
