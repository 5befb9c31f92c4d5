"""A line on terminals while kernels are compiled, and nothing anywhere else."""

from __future__ import annotations

import io
import sys
import threading
from pathlib import Path

import pytest

from adjit import config
from adjit.schedule import plan_cache
from adjit.schedule.jit import cache, disk, progress


class Terminal(io.StringIO):
    """What a terminal is sent."""

    def isatty(self) -> bool:
        return True


class Clock:
    """The time, which passes when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "monotonic", clock)
    return clock


def shown(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO | None = None) -> io.StringIO:
    stream = Terminal() if stream is None else stream
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def compile_kernels(clock: Clock, counter: progress.Progress, count: int) -> None:
    for _ in range(count):
        with counter.compiling():
            clock.now += 0.6


def test_the_line_appears_after_a_second_and_is_wiped_out(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    terminal, counter = shown(monkeypatch), progress.Progress()
    compile_kernels(clock, counter, 2)
    assert terminal.getvalue() == ""
    compile_kernels(clock, counter, 2)
    third, fourth = (f"adjit: compiling kernels ({k} so far, first run only) ..." for k in (3, 4))
    blank = " " * len(third)
    assert terminal.getvalue() == f"\r{third}\r{blank}\r\r{fourth}\r{blank}\r"


def test_after_a_pause_it_counts_anew(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    terminal, counter = shown(monkeypatch), progress.Progress()
    compile_kernels(clock, counter, 2)
    clock.now += 60
    compile_kernels(clock, counter, 2)
    assert terminal.getvalue() == ""
    compile_kernels(clock, counter, 1)
    assert "(3 so far" in terminal.getvalue()


def test_the_line_goes_when_compiling_fails(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    terminal, counter = shown(monkeypatch), progress.Progress()
    compile_kernels(clock, counter, 2)
    with pytest.raises(KeyboardInterrupt), counter.compiling():
        raise KeyboardInterrupt
    assert terminal.getvalue().endswith(" \r")


def test_the_output_of_a_cell_shows_it(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    cell = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()
    shown(monkeypatch, cell)
    compile_kernels(clock, progress.Progress(), 3)
    assert "compiling kernels" in cell.getvalue()


def test_files_and_pipes_stay_clean(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    stream = shown(monkeypatch, io.StringIO())
    compile_kernels(clock, progress.Progress(), 3)
    assert stream.getvalue() == ""


def test_a_setting_turns_it_off(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    terminal = shown(monkeypatch)
    monkeypatch.setattr(config, "PROGRESS", "off")
    compile_kernels(clock, progress.Progress(), 3)
    assert terminal.getvalue() == ""


def test_nobody_waits_for_other_threads(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    terminal = shown(monkeypatch)
    thread = threading.Thread(target=compile_kernels, args=(clock, progress.Progress(), 3))
    thread.start()
    thread.join()
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("is_there", [False, True])
def test_without_a_stream_kernels_are_compiled_all_the_same(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, is_there: bool
) -> None:
    terminal = Terminal()
    terminal.close()
    monkeypatch.setattr(sys, "stderr", terminal if is_there else None)
    compile_kernels(clock, progress.Progress(), 3)


def test_what_helps_in_the_long_run_is_not_begun_while_the_program_compiles() -> None:
    done: list[str] = []
    is_done, is_quiet = threading.Event(), threading.Event()
    compiler = plan_cache._Compiler()
    with progress.progress.compiling():
        compiler.add_for_later(lambda: (done.append("later"), is_quiet.set()))
        compiler.add(lambda: (done.append("a plan"), is_done.set()))
        assert is_done.wait(60)
        assert not is_quiet.wait(2 * plan_cache.QUIET)
    assert is_quiet.wait(60)
    assert done == ["a plan", "later"]


def test_who_waits_for_everything_gets_what_helps_in_the_long_run_too() -> None:
    done: list[str] = []
    compiler = plan_cache._Compiler()
    with progress.progress.compiling():
        compiler.add_for_later(lambda: done.append("later"))
        compiler.wait()
        assert done == ["later"]


def test_a_program_that_ends_drops_what_helps_in_the_long_run() -> None:
    done: list[str] = []
    compiler = plan_cache._Compiler()
    with progress.progress.compiling():
        compiler.add_for_later(lambda: done.append("later"))
        compiler.close()
    assert not done


def test_a_terminal_that_goes_away_costs_the_line_only(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    terminal, counter = shown(monkeypatch), progress.Progress()
    compile_kernels(clock, counter, 2)
    with counter.compiling():
        terminal.close()


def test_a_kernel_of_the_cache_is_compiled_under_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(disk, "folder", lambda: tmp_path)
    monkeypatch.setattr(progress, "PATIENCE", -1.0)
    terminal = shown(monkeypatch)
    text = f"def nothing(args, start, stop):\n    '''In {tmp_path}.'''\n"
    assert cache.address_of("nothing", text, cache.SIGNATURE)
    assert "adjit: compiling kernels (" in terminal.getvalue()
    before = terminal.getvalue()
    assert cache.address_of("nothing", text, cache.SIGNATURE)  # and not when it is there
    assert terminal.getvalue() == before
