"""`adjit.futures` beside PyTorch's: values that another thread sets."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

import adjit

torch = pytest.importorskip("torch")


def told(library: Any) -> list[Any]:
    """Values, and the types and texts of errors, of futures in all states."""
    Future, found = library.futures.Future, []

    def tried(call: Any) -> None:
        try:
            found.append(call())
        except Exception as error:
            found.append((type(error), str(error).split("\n")[0]))

    future, failed = Future(), Future()
    seen: list[Any] = []
    future.add_done_callback(lambda done: seen.append(done.value()))
    later = future.then(lambda done: done.wait() + 1)
    tried(future.done)
    tried(lambda: future.set_result(1))
    tried(lambda: future.set_result(2))
    tried(lambda: later.wait() + future.then(lambda done: 10 * done.value()).value())
    tried(lambda: future.then(lambda done: 1 // 0).wait())
    tried(lambda: Future().set_exception(3))
    tried(lambda: failed.set_exception(ValueError("bad")))
    tried(failed.wait)
    tried(failed.value)
    tried(failed.done)
    tried(lambda: library.futures.collect_all([]).wait())
    tried(lambda: library.futures.wait_all([]))
    other = Future()
    both = library.futures.collect_all([other, future])
    tried(both.done)
    other.set_result(5)
    tried(lambda: [one.value() for one in both.wait()])
    tried(lambda: library.futures.wait_all([other, future]))
    return [*found, seen]


def test_futures_are_pytorchs():
    assert told(adjit) == told(torch)


def test_what_is_not_there_is_said():
    with pytest.raises(RuntimeError, match=r"not done; call wait\(\) first"):
        adjit.futures.Future().value()
    with pytest.raises(RuntimeError, match="device type at start of device string: nowhere"):
        adjit.futures.Future(devices=["nowhere"])


def test_what_is_done_stays_as_it_is():
    """PyTorch's raises too, but then has the error in the place of the value."""
    future = adjit.futures.Future()
    future.set_result(3)
    with pytest.raises(RuntimeError, match="can only be marked completed once"):
        future.set_exception(ValueError("late"))
    assert future.value() == 3


def test_an_error_of_one_is_raised_for_all():
    good, bad = adjit.futures.Future(), adjit.futures.Future()
    good.set_result(1)
    bad.set_exception(KeyError("lost"))
    with pytest.raises(KeyError, match="lost"):
        adjit.futures.wait_all([good, bad])
    assert adjit.futures.collect_all([good, bad]).wait() == [good, bad]


def test_the_error_of_a_callback_is_logged(caplog):
    future = adjit.futures.Future()
    future.add_done_callback(lambda done: 1 // 0)
    with caplog.at_level(logging.ERROR, "concurrent.futures"):
        future.set_result(1)
    assert "ZeroDivisionError" in caplog.text


def test_other_threads_are_waited_for():
    futures = [adjit.futures.Future() for _ in range(20)]
    whole = adjit.futures.collect_all(futures)
    threads = [
        threading.Thread(target=lambda k=k, future=future: future.set_result(adjit.ones(3) * k))
        for k, future in enumerate(futures)
    ]
    for thread in threads:
        thread.start()
    assert [one.value().sum().item() for one in whole.wait()] == [3.0 * k for k in range(20)]
    for thread in threads:
        thread.join()
