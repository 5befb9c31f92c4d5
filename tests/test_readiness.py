"""A value counts as done when its bytes are there, and nobody else has the memory of steps yet to run."""

import ctypes
import threading

import pytest

import adjit as T
from adjit import storage
from adjit.schedule import dispatch, plan_cache
from adjit.schedule import settle as scheduling
from adjit.schedule.jit import native

pytestmark = pytest.mark.skipif(not native.is_supported, reason="another interpreter")


@pytest.fixture(scope="module", autouse=True)
def machine_code():
    """All of it is there, whatever ran before."""
    for family in native.families:
        assert family.load(compiling=True)


@pytest.fixture
def in_stream(monkeypatch):
    """What is put here is called once, when rows are written and the stream is about to run: while it does,
    other threads have the interpreter."""
    calls = []
    [t.tolist() for t in (T.tensor([1.0]) + 1, *two_of(T.tensor([0.5, 2.0])))]  # kernels are linked
    walk_type = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 4)
    walk = walk_type(dispatch.places[0])

    @walk_type
    def paused(*words):
        while calls:
            calls.pop()()
        return walk(*words)

    monkeypatch.setattr(plan_cache, "is_on", False)
    before = dispatch.places[0]
    dispatch.places[0] = ctypes.cast(paused, ctypes.c_void_p).value
    yield calls
    dispatch.places[0] = before
    assert not calls


def two_of(x):
    return x.sin(), (x.cos() * x).exp()


def test_memory_of_a_stream_is_nobody_elses_before_it_has_run(in_stream):
    expected = [t.tolist() for t in two_of(T.tensor([0.5, 2.0]))]
    made, held = [], [T.tensor([0.5, 2.0])]
    held += two_of(held[0])
    result = held.pop()

    def meddle():
        held.clear()  # as other threads let go what they hold
        made.extend(T.tensor([7.0, 8.0]) for _ in range(64))

    in_stream.append(meddle)
    assert result.tolist() == expected[1]
    assert [t.tolist() for t in made] == [[7.0, 8.0]] * 64


@pytest.mark.parametrize("has_code", [True, False])
def test_values_count_as_done_when_their_bytes_are_there(in_stream, has_code):
    value_of = scheduling.value_of if has_code else scheduling.value_of.__wrapped__
    y, z = two_of(T.tensor([0.5, 2.0]))
    cells, found = [y._storage, z._storage], []

    def look():
        address = value_of(cells[0]).address
        found.append((ctypes.c_float * 2).from_address(address)[:])

    reader = threading.Thread(target=look)

    def meddle():
        assert [cell.value.recipe is None for cell in cells] == [False] * 2
        reader.start()
        reader.join(0.1)
        found.append("waits" if not found else "does not wait")

    in_stream.append(meddle)
    scheduling.settle()
    reader.join()
    assert found == ["waits", y.tolist()]
    assert [cell.value.recipe is None for cell in cells] == [True] * 2


def test_who_reads_waits_for_the_thread_that_settles():
    y, found = T.arange(3.0) + 1, []
    reader = threading.Thread(target=lambda: found.append(y.tolist()))
    with scheduling.lock:
        reader.start()
        reader.join(0.1)
        assert not found
    reader.join()
    assert found == [[1, 2, 3]]


def test_what_runs_while_rows_are_written_does_not_count_on_them(monkeypatch):
    """A finalizer, or a handler of signals, that looks at values in the middle of settling."""
    monkeypatch.setattr(plan_cache, "is_on", False)
    x, found = T.ones(50_000), []  # whose memory Python hands out
    [(t * 2.0).tolist() for t in (x + 1, x)]
    recorded = []

    def meddling(size):
        if len(recorded) == 2:
            y = recorded.pop(0)
            for look in (lambda: y.tolist(), lambda: (y * 2.0).tolist()):
                try:
                    found.append(look())
                except RuntimeError as error:
                    found.append(str(error))
        elif recorded:
            recorded.append(None)
        return storage.allocate(size)

    context = dispatch.run_rows.context
    at = context.index(storage.allocate)
    monkeypatch.setattr(dispatch.run_rows, "context", (*context[:at], meddling, *context[at + 1 :]))
    y = x + 1
    z = y * 2.0
    recorded.append(y)
    assert z.tolist() == [4.0] * 50_000
    assert found == ["a recorded value could not be settled", "mul was to run before its inputs"]
    assert y.tolist() == [2.0] * 50_000
