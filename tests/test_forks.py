"""A child of a process whose other threads schedule and compile goes on by itself."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

FORKS = """
import os, signal, sys, threading, time
import adjit
from adjit.schedule.jit import disk; from adjit.schedule import forks, plan_cache as hot

def in_a_child(work):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        work()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, work

def train():
    x = adjit.rand(3000, requires_grad=True)
    for _ in range(4):
        (x.sin() * x.cos()).sum().backward()
    assert x.grad.isfinite().all()

def hold(lock, is_held):
    with lock:
        is_held.set()
        time.sleep(0.2)

for lock in forks.LOCKS:
    is_held = threading.Event()
    holder = threading.Thread(target=hold, args=(lock, is_held))
    holder.start()
    is_held.wait()
    in_a_child(train)  # with an empty cache: the kernels of a child are gone with it
    disk.clear()
    holder.join()

has_begun, done = threading.Event(), []
def work(name):
    has_begun.set()
    time.sleep(0.2)
    done.append(name)

def see_to_the_rest():
    assert done == [], done
    hot.wait()
    assert done == ["first", "second"], done
    hot.compiler.add(lambda: work("third"))
    hot.wait()
    assert done == ["first", "second", "third"], done

for name in ("first", "second"):
    hot.compiler.add(lambda name=name: work(name))
has_begun.wait()
in_a_child(see_to_the_rest)
hot.wait()
assert done == ["first", "second"], done

train()  # kernels, and the interpreter's part, are being compiled now
for _ in range(3):
    in_a_child(train)
print("done")
"""


@pytest.mark.in_turn(2)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_can_compute_whatever_its_parent_was_doing(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS],
        env={**os.environ, "ADJIT_CACHE_DIR": str(tmp_path), "ADJIT_JIT": "background"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
