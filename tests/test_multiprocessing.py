"""Processes that share tensors."""

import re

import numpy as np
import pytest

import adjit
import adjit.multiprocessing as mp
from adjit import nn


def train(index, x, net, queue, have_all):
    """A step of Hogwild on shared parameters, and tensors sent back."""
    x[index] += index + 1
    optimizer = adjit.optim.SGD(net.parameters(), lr=0.1)
    net(adjit.ones(3, 2)).sum().backward()
    optimizer.step()
    values = adjit.arange(4).reshape(2, 2) + index
    queue.put((index, values.t(), [values, values[0]]))
    have_all.wait(60)  # a descriptor is fetched from the process that has it


@pytest.mark.parametrize("method", ["spawn", "fork"])
# JAX warns, if another test imported it.
@pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning")
def test_processes_share_memory(method):
    x, net = adjit.zeros(3).share_memory_(), nn.Linear(2, 1).share_memory()
    assert x.is_shared()
    before = net.bias.item()
    context = mp.get_context(method)
    queue, have_all = context.SimpleQueue(), context.Event()
    given = x, net, queue, have_all
    running = mp.start_processes(train, given, nprocs=2, join=False, start_method=method)
    found = sorted([queue.get(), queue.get()], key=lambda answer: answer[0])
    have_all.set()
    while not running.join():
        pass
    assert x.tolist() == [1, 2, 0]
    assert net.bias.item() < before - 0.29
    for index, turned, (values, first) in found:
        assert turned.tolist() == [[index, index + 2], [index + 1, index + 3]]
        values += 10
        assert first.tolist() == [index + 10, index + 11]  # they share memory here too


def fail(index, how):
    if index == 1:
        if how == "raise":
            raise ValueError("not today")
        import os

        os.kill(os.getpid(), 9) if how == "kill" else os._exit(5)


@pytest.mark.parametrize(
    ("how", "error", "text"),
    [
        ("raise", mp.ProcessRaisedException, "-- Process 1 terminated with the following error:\n"),
        ("kill", mp.ProcessExitedException, "process 1 terminated with signal SIGKILL"),
        ("exit", mp.ProcessExitedException, "process 1 terminated with exit code 5"),
    ],
)
def test_errors_of_processes_come_back(how, error, text):
    with pytest.raises(error, match=re.escape(text)) as caught:
        mp.spawn(fail, (how,), nprocs=2)
    assert caught.value.error_index == 1
    if how == "raise":
        assert "ValueError: not today" in str(caught.value)


def test_what_has_moved_to_shared_memory_is_as_before():
    x = adjit.arange(6.0).reshape(2, 3)
    row, total = x[1], x.sum()
    assert x.share_memory_() is x
    assert row.is_shared()
    x += 1
    assert (row.tolist(), total.item()) == ([4, 5, 6], 15)
    leaf = adjit.ones(2, requires_grad=True)
    leaf.share_memory_()
    (leaf * leaf).sum().backward()
    assert leaf.grad.tolist() == [2, 2]
    assert adjit.zeros(0).share_memory_().is_shared()
    array = np.zeros(2)
    moved = adjit.from_numpy(array).share_memory_()
    moved += 1
    assert (moved.tolist(), array.tolist()) == ([1, 1], [0, 0])  # as in PyTorch


def test_names_are_pythons_and_pytorchs():
    import multiprocessing

    assert set(multiprocessing.__all__) <= set(mp.__all__)
    assert mp.Process is multiprocessing.Process
    assert mp.get_sharing_strategy() in mp.get_all_sharing_strategies()
    with pytest.raises(AssertionError):
        mp.set_sharing_strategy("smoke signals")
    with pytest.warns(FutureWarning, match="only supports start_method=spawn"):
        mp.spawn(print, nprocs=0, start_method="fork")
