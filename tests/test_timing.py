"""`adjit.utils.benchmark`: what a timer times, and how it is told."""

from __future__ import annotations

import statistics

import pytest

import adjit
from adjit.utils import benchmark

torch = pytest.importorskip("torch")
from torch.utils import benchmark as theirs  # noqa: E402


def test_what_is_timed_has_run():
    ran = []

    def clock():
        return len(ran)

    x = adjit.rand(300, 300)
    timed = benchmark.Timer("y = x @ x\ny + 1", globals={"x": x}, num_threads=2)
    before = adjit.get_num_threads()
    with adjit.profiler.profile() as prof:
        timed.timeit(5)
    assert adjit.get_num_threads() == before
    assert sum("product" in e.name for e in prof.events()) >= 5
    counted = benchmark.Timer("ran.append(1)", globals={"ran": ran}, timer=clock)
    assert counted.timeit(100).raw_times == [100]
    assert counted.timeit(100).times == [1.0]


def test_code_knows_the_library_and_its_setup():
    timed = benchmark.Timer("torch.ones(n)", setup="n = 3")
    assert timed.timeit(3).number_per_run == 3
    assert len(timed.repeat(2, 3)) == 2
    with pytest.raises(SyntaxError):
        benchmark.Timer("1 +")
    with pytest.raises(ValueError, match="Invalid language `cpp`"):
        benchmark.Timer("1", language="cpp")
    with pytest.raises(NameError):
        benchmark.Timer("nothing_of_that_name").timeit(1)


def test_statistics_are_those_of_pytorch():
    times = [0.01, 0.02, 0.05, 0.03, 0.011, 0.04]
    ours = benchmark.Measurement(10, times, "f()", label="f", sub_label="s", description="d")
    spec = theirs.utils.common.TaskSpec("f()", "pass", label="f", sub_label="s", description="d")
    other = theirs.Measurement(10, times, spec)
    for name in ("times", "median", "mean", "iqr"):
        assert getattr(ours, name) == pytest.approx(getattr(other, name))
    for name in ("title", "number_per_run", "num_threads", "raw_times"):
        assert getattr(ours, name) == getattr(other, name)
    shown = [
        line
        for line in repr(other).splitlines()[1:]
        if "WARNING" not in line and "suggests" not in line
    ]
    assert [line.strip() for line in repr(ours).splitlines()[1:]] == [
        line.strip() for line in shown
    ]


def test_blocks_until_enough_time_has_passed():
    seen = []
    found = benchmark.Timer("sum(range(100))").blocked_autorange(
        callback=lambda number, seconds: seen.append((number, seconds)), min_run_time=0.02
    )
    assert sum(found.raw_times) >= 0.02
    assert len(seen) == len(found.raw_times)
    adaptive = benchmark.Timer("sum(range(100))").adaptive_autorange(max_run_time=0.2)
    assert len(adaptive.times) >= 4
    assert 1e-7 < statistics.median(adaptive.times) < 1e-3


def test_a_table_compares(capsys):
    def measured(seconds, sub, description, threads=1):
        return benchmark.Measurement(
            1,
            [seconds],
            "f()",
            label="f",
            sub_label=sub,
            description=description,
            num_threads=threads,
        )

    table = benchmark.Compare([measured(1e-3, "small", "old"), measured(2e-3, "small", "new")])
    table.extend_results([measured(5e-3, "large", "new"), measured(1e-6, "small", "new", 4)])
    table.trim_significant_figures()
    table.colorize()
    table.print()
    assert capsys.readouterr().out == (
        "f: 1 thread, times in ms\n"
        "        old   new\n"
        "-----  ----  ----\n"
        "small  1.00  2.00\n"
        "large        5.00\n"
        "-----  ----  ----\n"
        "\n"
        "f: 4 threads, times in us\n"
        "        new\n"
        "-----  ----\n"
        "small  1.00\n"
        "-----  ----\n"
    )  # fmt: skip
