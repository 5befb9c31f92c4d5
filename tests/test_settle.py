"""Laziness never shows: whatever happens between recording and looking, answers are eager's."""

import ctypes
import gc
import math
import os
import subprocess
import sys
import threading
import traceback
import weakref

import numpy as np
import pytest

import adjit as T
from adjit import storage
from adjit.graph.elementwise import elementwise
from adjit.schedule import dispatch, plan_cache
from adjit.schedule import settle as scheduling
from adjit.schedule.codegen import loops


def pending():
    return len(scheduling.pending)


def test_nothing_runs_before_somebody_looks():
    scheduling.settle()
    x = T.tensor([1.0, 2.0])
    y = x * 2
    assert pending() == 1
    assert y.tolist() == [2.0, 4.0]
    assert pending() == 0


def test_values_that_nobody_can_see_are_never_computed():
    @elementwise(ref=None)
    def explodes(x):
        return math.no_such_function(x)

    y = explodes(T.ones(2))
    del y
    assert (T.ones(2) + 1).tolist() == [2.0, 2.0]


def test_recorded_values_do_not_see_later_writes():
    x = T.tensor([1.0, 2.0, 3.0])
    y = x * 10
    view = x[:2]
    z = view + 1
    x.zero_()
    view.add_(5)
    assert y.tolist() == [10.0, 20.0, 30.0]
    assert z.tolist() == [2.0, 3.0]
    assert x.tolist() == [5.0, 5.0, 0.0]


def test_recorded_values_do_not_see_writes_to_shared_arrays():
    a = np.array([1.0, 2.0], np.float32)
    x = T.from_numpy(a)
    y = x * 10
    a[:] = 7
    assert y.tolist() == [10.0, 20.0]
    assert (x * 1).tolist() == [7.0, 7.0]
    x.add_(1)
    assert a.tolist() == [8.0, 8.0]


def test_an_exported_array_follows_writes_and_outlives_the_tensor():
    x = T.arange(4.0)
    first = x.numpy()
    x[1:3] = -1.0
    x.mul_(2)
    assert first.tolist() == [0.0, -2.0, -2.0, 6.0]
    first[0] = 5
    assert x[0].item() == 5.0
    del x
    gc.collect()
    rest = [T.full((4,), 9.0) for _ in range(50)]
    assert sum(r.sum().item() for r in rest) == 50 * 36
    assert first.tolist() == [5.0, -2.0, -2.0, 6.0]


def test_exporting_one_of_two_that_share_a_value():
    x = T.ones(3, requires_grad=True)
    y = T.ones(3, requires_grad=True)
    (x + y).sum().backward()
    array = x.grad.numpy()
    array[:] = 7
    assert y.grad.tolist() == [1.0, 1.0, 1.0]


def test_another_thread_reads_what_is_being_exported(monkeypatch):
    x, read = T.tensor([1.0, 2.0]) * 2, []
    own = scheduling.own

    def interrupted(value, spec):
        read.append(x + 1)
        return own(value, spec)

    monkeypatch.setattr(scheduling, "own", interrupted)
    array = x.numpy()
    array[0] = 5
    assert read[0].tolist() == [3.0, 5.0]
    assert x.tolist() == [5.0, 4.0]


def test_a_value_that_nobody_else_reads_is_exported_without_a_copy():
    x = T.tensor([1.0, 2.0]) * 2
    address = x._storage.value.address if x.sum().item() else None
    assert x.numpy().ctypes.data == address


def test_a_long_chain_is_settled_on_the_way():
    total = T.zeros(())
    for _ in range(5000):
        total = total + 1.5
        assert pending() <= scheduling.MAX_PENDING
    assert total.item() == 7500.0


def test_an_error_in_a_node_is_raised_names_its_line_and_spoils_nothing_else():
    x = T.arange(3.0)
    bad = x[T.tensor([5])]
    after = bad + 1
    fine = x + 1
    with pytest.raises(
        IndexError, match="index 5 is out of bounds for dimension 0 with size 3"
    ) as caught:
        print(fine)
    assert any("test_settle.py" in note for note in caught.value.__notes__)
    assert fine.tolist() == [1.0, 2.0, 3.0]
    for spoiled in (bad, after):
        with pytest.raises(IndexError, match="index 5"):
            spoiled.tolist()
    assert (x * 2).tolist() == [0.0, 2.0, 4.0]


def test_a_kernel_that_cannot_be_made_is_raised_once_and_stays_with_its_node():
    @elementwise(ref=None)
    def impossible(x):
        return math.no_such_function(x)

    y = impossible(T.ones(2))
    with pytest.raises(Exception, match="no_such_function"):
        y.tolist()
    assert (T.ones(2) + 1).tolist() == [2.0, 2.0]
    with pytest.raises(Exception, match="no_such_function"):
        y.tolist()


def test_two_threads_settle_one_graph():
    for _ in range(20):
        x = T.arange(1000.0)
        for _ in range(20):
            x = x * 1.0 + 1.0
        found = [None] * 6

        def look(k, x=x, found=found):
            found[k] = float(x.numpy()[k])

        threads = [threading.Thread(target=look, args=(k,)) for k in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [20.0 + k for k in range(6)]


def test_threads_record_and_walk_at_once():
    shared = T.ones(8, requires_grad=True)
    errors = []

    def work(seed):
        try:
            for _ in range(30):
                x = T.full((8,), float(seed), requires_grad=True)
                (x * x * shared.detach()).sum().backward()
                assert x.grad.tolist() == [2.0 * seed] * 8
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_memory_is_reused_and_given_back():
    x = T.ones(1 << 20)
    x.sum().item()
    live = T.memory_stats()["live"]
    for _ in range(50):
        x = x * 1.0
        x.sum().item()
    assert T.memory_stats()["live"] <= live + (1 << 22)
    alive = weakref.ref(x)
    del x
    assert alive() is None
    assert T.memory_stats()["live"] < live


def test_a_graph_seen_once_holds_no_more_than_its_live_values():
    n = 1 << 18
    y = x = T.linspace(0, 1, n)
    scheduling.settle()
    gc.collect()
    storage.reset_peak_memory()
    before = T.memory_stats()["live"]
    for _ in range(20):
        y = y * 0.5 + x
    y[0].item()
    assert T.memory_stats()["peak"] - before <= 3 * 4 * n  # the result, its input, the one before


def test_memory_that_nobody_wants_any_more_goes_back_to_the_system():
    scheduling.settle()
    gc.collect()
    storage.empty_cache()
    large = [storage.allocate(1 << 22) for _ in range(8)]
    del large
    assert T.memory_stats()["kept"] >= 1 << 25
    for _ in range(200):  # a program that needs other sizes, one after the other
        for size in (1 << 20, 3 << 18, 1 << 19):
            storage.allocate(size)
    assert T.memory_stats()["kept"] == (1 << 20) + (3 << 18) + (1 << 19)


@pytest.mark.parametrize("start", [0, 5])
def test_memory_that_waiting_rows_read_stays(start, monkeypatch):
    def empty_cache():  # what is given back is no longer what it was
        for size, waiting in storage._large.items():
            for address, _ in waiting:
                ctypes.memset(address, 255, size)
        clear()

    clear = storage.empty_cache
    scheduling.settle()
    clear()
    monkeypatch.setattr(storage, "empty_cache", empty_cache)
    x = T.ones(1 << 20) * 1
    wholes = [x * float(k) for k in range(8)]  # of 4 MiB each
    parts = [whole[start : start + 5] * 1 for whole in wholes]
    del wholes
    others = [T.ones(1500 + 700 * k) * 1 for k in range(4)]  # in other sizes: the pool is too large
    assert [part.tolist() for part in parts] == [[float(k)] * 5 for k in range(8)]
    assert others[0].sum().item() == 1500


def test_memory_in_between_is_that_of_larger_plans():
    """Programs of several plans keep no memory for each of them."""
    scheduling.settle()
    with scheduling.lock:
        storage.empty_cache()
        large = storage.allocate(6 << 20)
        address = int(large)
        del large
        lent = storage.borrow(4 << 20)
        assert (lent, lent.size) == (address, 6 << 20)
        assert storage.borrow(4 << 20).size == 4 << 20  # nothing larger waits
        del lent
        storage.empty_cache()
        large = storage.allocate(6 << 20)
        address = int(large)
        del large
        assert storage.borrow(2 << 20).size == 2 << 20  # much larger ones are for others
        assert storage.allocate(6 << 20) == address


def test_big_writes_happen_in_their_own_bytes():
    x = T.ones(1 << 20)
    x.sum().item()
    gc.collect()  # what others have left
    before = T.memory_stats()["live"]
    address = scheduling.value_of(x._storage).address
    for _ in range(3):
        x.mul_(2.0)
        x.sum().item()
        assert scheduling.value_of(x._storage).address == address
    assert T.memory_stats()["live"] == before
    assert x[5].item() == 8.0


@pytest.mark.parametrize("size", [100, 1 << 10, 3 << 10, 1 << 14])
def test_free_blocks_go_back_to_the_system(size):
    """Small ones stay; what is given back is not handed out again."""
    with scheduling.lock:
        storage.empty_cache()
        before = len(storage._slabs), storage.memory_stats()["kept"]
        kept = [storage.allocate(storage.size_class(4 * size)) for _ in range(3)]
        numbers = {int(block) for block in kept}
        assert len(numbers) == 3
        del kept
        again = [storage.allocate(storage.size_class(4 * size)) for _ in range(3)]
        assert {int(block) for block in again} == numbers
        del again
        storage.empty_cache()
        if 4 * size > storage.SMALL:
            assert (len(storage._slabs), storage.memory_stats()["kept"]) == before
        fresh = [storage.allocate(storage.size_class(4 * size)) for _ in range(4)]
        assert len({int(block) for block in fresh}) == 4
    x = T.arange(float(size))
    assert (x + 1).sum().item() == size * (size + 1) / 2


PROGRAM = """
import adjit as T
x = T.linspace(-1, 1, 7, requires_grad=True)
y = (x.sin() * x.exp()).cumsum(0)
y[2:4] *= 2
y.sum().backward()
print(x.grad.tolist())
"""


def test_eager_mode_gives_the_same_bits():
    outputs = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True,
            env=os.environ | {"ADJIT_EAGER": eager},
        ).stdout
        for eager in ("0", "1")
    ]  # fmt: skip
    assert outputs[0] == outputs[1]
    assert outputs[0].startswith("[")


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_number_of_threads_changes_no_bit(threads):
    before = T.get_num_threads()
    T.manual_seed(0)
    x = T.randn(300_001)
    try:
        T.set_num_threads(1)
        expected = [(x.exp() * x).tolist(), x.sum().item(), x.softmax(0).sum().item()]
        T.set_num_threads(threads)
        assert [(x.exp() * x).tolist(), x.sum().item(), x.softmax(0).sum().item()] == expected
    finally:
        T.set_num_threads(before)


@pytest.mark.parametrize("extra", [0, 1, 255, 300])
def test_streamed_results_have_the_same_bits(extra):
    """Blocks that overlap, and parts that start within a line, beside results that are small."""
    n = loops.STREAM_BYTES // 4 + extra
    x, y = T.rand(n), T.rand(n)
    whole = x * y + 1.0
    pieces = T.cat([a * b + 1.0 for a, b in zip(x.split(100_000), y.split(100_000), strict=True)])
    assert "stream_block" in whole.kernels()
    assert "stream_block" not in (x[:100] * y[:100]).kernels()
    assert T.equal(whole, pieces)
    before = T.get_num_threads()
    T.set_num_threads(3)
    try:
        assert T.equal(x * y + 1.0, pieces)
        assert T.equal(x < y, ~(x >= y))
    finally:
        T.set_num_threads(before)


def test_functions_with_a_slow_road_share_a_kernel():
    """Each lane that asks for the slow road gets it, and no other."""

    @elementwise(name="several", ref=np.sin)
    def several(x):
        """Three functions that call for huge angles and quotients."""
        return math.sin(x) * math.cos(x) + math.fmod(x, 3)

    x = T.linspace(-20.0, 20.0, 1001)
    x[::7] = 3e30
    apart = x.sin() * x.cos() + T.fmod(x, 3.0)
    T.equal(apart, apart)  # run op by op
    assert T.equal(several(x), apart)
    np.testing.assert_allclose(x.sin().tolist(), np.sin(x.double().tolist()), atol=1e-7)


def test_the_source_of_what_is_recorded():
    x = T.ones(3)
    y = (x * 2 + 1).tanh()
    text = y.kernels()
    assert text.index("def mul") < text.index("def add") < text.index("def tanh")
    assert "for i in range(start, stop):" in text
    y.tolist()
    assert "nothing is left to run" in y.kernels()


def test_small_blocks_come_back_every_time():
    free = storage.free_small[64]
    block = storage.allocate(64)
    address = int(block)
    for _ in range(5):
        count = len(free)
        del block
        assert len(free) == count + 1
        block = free.pop()
        assert block == address


def test_small_ops_keep_memory_flat():
    x = T.ones(16, requires_grad=True)

    def step():
        (x * 2 + x.sin() * x).sum().backward()
        x.grad = None

    for _ in range(50):
        step()
    before = len(storage._slabs)
    for _ in range(1000):
        step()
    assert len(storage._slabs) <= before + 1


def test_who_reads_waits_for_the_thread_that_computes(monkeypatch):
    """Operations that run one by one have their memory before it has their values."""
    entered, may_go, found = threading.Event(), threading.Event(), []
    real = dispatch.run_cpu.run

    def slowly(*args, **options):
        entered.set()
        may_go.wait(20)
        return real(*args, **options)

    monkeypatch.setattr(plan_cache, "is_on", False)
    monkeypatch.setattr(dispatch, "run_rows", lambda *_: False)
    monkeypatch.setattr(dispatch.run_cpu, "run", slowly)
    x = T.ones(20_000) * 3
    computing = threading.Thread(target=scheduling.settle)
    computing.start()
    assert entered.wait(20)
    reading = threading.Thread(target=lambda: found.append(x[7].item()))
    reading.start()
    reading.join(0.2)
    assert not found
    may_go.set()
    reading.join()
    computing.join()
    assert found == [3.0]


# ----- errors that are kept -----


def failing(make, watched):
    """A result whose computation has raised twice, in functions with a tensor of their own."""

    def look(out):
        mine = T.ones(3) * 2
        watched.append(weakref.ref(mine))
        out.tolist()

    places = T.tensor([1, 7])
    for _ in range(3):  # what is compiled is captured with places that are there
        make(T.tensor([1, 2])).tolist()
    out = make(places)
    texts = []
    for _ in range(2):
        try:
            look(out)
        except IndexError as error:
            depth = len(traceback.extract_tb(error.__traceback__))
            texts.append((str(error), error.__notes__, depth))
    assert len(texts) == 2
    assert texts[0][:2] == texts[1][:2]
    assert texts[0][2] >= 2 <= texts[1][2] <= texts[0][2]  # not one on top of another
    return out


WEIGHT = T.ones(3, requires_grad=True)
FAILING = {
    "alone": lambda places: T.ones(3).index_select(0, places),
    "read by another": lambda places: T.ones(3).index_select(0, places) * 2 + 1,
    "compiled": T.compile(lambda places: WEIGHT.index_select(0, places) * 2),
}


@pytest.mark.parametrize("name", FAILING)
def test_a_failed_value_keeps_nothing_of_the_functions_that_looked_at_it(name):
    for _ in range(4):  # the last times by a plan
        watched = []
        out = failing(FAILING[name], watched)
        assert [reference() for reference in watched] == [None] * 2
        with pytest.raises(IndexError, match="out of range"):
            out.tolist()


class Particular(Exception):
    def __init__(self, number, *, why):
        super().__init__(f"{number} {why}")
        self.why = why


def test_an_error_is_kept_with_all_but_its_traceback():
    try:
        try:
            raise KeyError("below")
        except KeyError as cause:
            raise Particular(3, why="of this test") from cause
    except Particular as error:
        error.add_note("a note")
        kept = dispatch.unraised(error)
    kept.add_note("another")
    again = dispatch.unraised(kept)
    assert (type(again), str(again), again.why) == (Particular, "3 of this test", "of this test")
    assert again.__notes__ == ["a note", "another"]
    assert again.__traceback__ is again.__cause__.__traceback__ is None
    assert repr(again.__cause__) == "KeyError('below')"


HOLDING = """
import adjit as torch
x = torch.randn(1000, 1000, requires_grad=True)
net = torch.nn.Linear(1000, 1000)
step = torch.compile(lambda a: (net(a) * x).sum())
loss = step(x)
loss.backward()
shown, again = x.detach().numpy(), torch.from_dlpack(x.detach())
taken = torch.from_numpy(shown + 1)
optimizer = torch.optim.Adam(net.parameters())
optimizer.step()
batches = iter(torch.utils.data.DataLoader(torch.utils.data.TensorDataset(taken), 100))
waiting = next(batches)[0] * 2
handle = net.register_forward_hook(lambda *args: None)
"""


def test_a_program_ends_in_silence_with_all_that_its_names_hold():
    """The library's modules are cleared before them."""
    done = subprocess.run([sys.executable, "-c", HOLDING], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
