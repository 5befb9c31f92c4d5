"""Timing of short pieces of code: PyTorch's `torch.utils.benchmark`.

What is recorded runs when somebody looks, so a `Timer` lets it run after each time that it runs the code, with
the result of the last line held: what is timed is the recording and the kernels.
"""

from __future__ import annotations

import ast
import dataclasses
import statistics
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..schedule.run_cpu import get_num_threads, set_num_threads
from ..schedule.settle import settle
from ..tables import aligned

__all__ = ["Compare", "Measurement", "Timer", "timer"]


def timer() -> float:
    """Run what is recorded, and tell the seconds of a clock.

    Example:
        >>> before = adjit.utils.benchmark.timer()
        >>> adjit.utils.benchmark.timer() >= before
        True
    """
    settle()
    return time.perf_counter()


def _unit(seconds: float) -> tuple[str, float]:
    for name, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return name, scale
    return "ns", 1e-9


@dataclasses.dataclass
class Measurement:
    """The times that a `Timer` has taken.

    Attributes:
        number_per_run: how often the code ran for each of them.
        raw_times: seconds of each of them.
        stmt, setup, label, sub_label, description, env, num_threads: of the timer.

    Example:
        >>> m = adjit.utils.benchmark.Measurement(10, [2.0, 4.0, 3.0], "f()")
        >>> m.median, m.mean, m.times
        (0.3, 0.3, [0.2, 0.4, 0.3])
    """

    number_per_run: int
    raw_times: list[float]
    stmt: str
    setup: str = "pass"
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def times(self) -> list[float]:
        """Seconds of one run of the code, for each time.

        Example:
            >>> adjit.utils.benchmark.Measurement(2, [1.0], "f()").times
            [0.5]
        """
        return [seconds / self.number_per_run for seconds in self.raw_times]

    @property
    def median(self) -> float:
        """The median of `times`.

        Example:
            >>> adjit.utils.benchmark.Measurement(1, [1.0, 3.0], "f()").median
            2.0
        """
        return statistics.median(self.times)

    @property
    def mean(self) -> float:
        """The mean of `times`.

        Example:
            >>> adjit.utils.benchmark.Measurement(1, [1.0, 3.0], "f()").mean
            2.0
        """
        return statistics.fmean(self.times)

    @property
    def iqr(self) -> float:
        """The distance between the quartiles of `times`.

        Example:
            >>> adjit.utils.benchmark.Measurement(1, [1.0, 2.0, 3.0], "f()").iqr
            1.0
        """
        low, high = self._quartiles()
        return high - low

    def _quartiles(self) -> tuple[float, float]:
        if len(self.times) < 2:
            return self.times[0], self.times[0]
        low, _, high = statistics.quantiles(self.times, n=4, method="inclusive")
        return low, high

    @property
    def title(self) -> str:
        """The label or the code, and the sub-label.

        Example:
            >>> adjit.utils.benchmark.Measurement(1, [1.0], "f()", label="f").title
            'f'
        """
        name = self.label or self.stmt.split("\n")[0]
        return f"{name}: {self.sub_label}" if self.sub_label else name

    @property
    def row_name(self) -> str:
        """The name of the row in a table of a `Compare`.

        Example:
            >>> adjit.utils.benchmark.Measurement(1, [1.0], "f()", label="f", sub_label="1").row_name
            '1'
        """
        return self.sub_label or "[Unnamed]" if self.label else self.stmt.split("\n")[0]

    def __repr__(self) -> str:
        unit, scale = _unit(self.median)
        count = len(self.raw_times)
        lines = [f"<adjit.utils.benchmark.Measurement object at {id(self):#x}>", self.title]
        if self.description:
            lines.append(self.description)
        if self.setup != "pass":
            lines.append(f"setup: {self.setup}")
        lines.append(f"  {'Median: ' if count > 1 else ''}{self.median / scale:.2f} {unit}")
        if count >= 4:
            low, high = self._quartiles()
            lines.append(
                f"  IQR:    {self.iqr / scale:.2f} {unit} ({low / scale:.2f} to {high / scale:.2f})"
            )
        plural = "s" if count > 1 else ""
        threads = f"{self.num_threads} thread{'s' if self.num_threads > 1 else ''}"
        runs = f"{self.number_per_run} runs {'per measurement' if count > 1 else ''}".rstrip()
        lines.append(f"  {count} measurement{plural}, {runs}, {threads}")
        return "\n".join(lines)


class Timer:
    """Time a piece of code, given as text.

    Args:
        stmt: the code; the value of its last line is held while what was recorded runs.
        setup: code that runs once before.
        global_setup: accepted; it is for C++ in PyTorch.
        timer: the clock.
        globals: the names that the code knows; `adjit` and `torch` stand for the library.
        label, sub_label, description, env: names for tables.
        num_threads: how many threads kernels may use.
        language: "python".

    Raises:
        ValueError: for another language.
        SyntaxError: if the code is none.

    Example:
        >>> t = adjit.utils.benchmark.Timer("x + x", globals={"x": adjit.ones(8)})
        >>> t.timeit(10).number_per_run
        10
    """

    def __init__(
        self, stmt: str = "pass", setup: str = "pass", global_setup: str = "",
        timer: Callable[[], float] = timer, globals: dict[str, Any] | None = None,
        label: str | None = None, sub_label: str | None = None, description: str | None = None,
        env: str | None = None, num_threads: int = 1, language: Any = "python",
    ) -> None:  # fmt: skip
        if str(language).lower() not in ("python", "py"):
            raise ValueError(f"Invalid language `{language}`: code is Python")
        self._timer = timer
        self._code = textwrap.dedent(stmt).strip() or "pass"
        self._setup = textwrap.dedent(setup).strip() or "pass"
        self._named = {
            "label": label,
            "sub_label": sub_label,
            "description": description,
            "env": env,
        }
        self._threads = num_threads
        names = dict(globals or {})
        for name in ("adjit", "torch"):
            names.setdefault(name, sys.modules["adjit"])
        exec(compile(_runner(self._code, self._setup), "<timed code>", "exec"), names)
        self._run: Callable[[int, Any, Any], float] = names["_run"]

    def _times(self, number: int) -> float:
        before = get_num_threads()
        set_num_threads(self._threads)
        try:
            return self._run(number, settle, self._timer)
        finally:
            set_num_threads(before)

    def _measurement(self, number: int, times: list[float]) -> Measurement:
        return Measurement(
            number, times, self._code, self._setup, num_threads=self._threads, **self._named
        )

    def timeit(self, number: int = 1_000_000) -> Measurement:
        """Run the code so often, after some runs that are not timed, and give the time of all.

        Example:
            >>> adjit.utils.benchmark.Timer("1 + 1").timeit(100).number_per_run
            100
        """
        self._times(max(number // 100, 2))
        return self._measurement(number, [self._times(number)])

    def repeat(self, repeat: int = 5, number: int = 1_000_000) -> list[float]:
        """Give the seconds of several series of so many runs.

        Example:
            >>> len(adjit.utils.benchmark.Timer("1 + 1").repeat(3, number=10))
            3
        """
        return [self._times(number) for _ in range(repeat)]

    def _number(self, seconds: float) -> int:
        """So many runs that the clock matters little, after which the code is warm."""
        number = 1
        while True:
            taken = self._times(number)
            if taken > seconds / 1000 and taken > 1e-4:
                return number
            number *= 10

    def blocked_autorange(
        self, callback: Callable[[int, float], Any] | None = None, min_run_time: float = 0.2
    ) -> Measurement:
        """Time blocks of runs until so many seconds have passed.

        Args:
            callback: called with the number of runs and the seconds of each block.
            min_run_time: the seconds.

        Example:
            >>> m = adjit.utils.benchmark.Timer("1 + 1").blocked_autorange(min_run_time=0.01)
            >>> sum(m.raw_times) >= 0.01
            True
        """
        return self._until(lambda times: sum(times) >= min_run_time, min_run_time, callback)

    def adaptive_autorange(
        self, threshold: float = 0.1, *, min_run_time: float = 0.01, max_run_time: float = 10.0,
        callback: Callable[[int, float], Any] | None = None,
    ) -> Measurement:  # fmt: skip
        """Time blocks of runs until the quartiles are close, or `max_run_time` seconds have passed.

        Args:
            threshold: how far the quartiles may be apart, as a part of the median.
            min_run_time: the seconds that pass at the least.

        Example:
            >>> m = adjit.utils.benchmark.Timer("1 + 1").adaptive_autorange(max_run_time=0.05)
            >>> len(m.times) > 2
            True
        """

        def is_enough(times: list[float]) -> bool:
            taken = sum(times)
            if taken < min_run_time or len(times) < 4:
                return False
            low, middle, high = statistics.quantiles(times, n=4, method="inclusive")
            return (high - low) / middle < threshold or taken >= max_run_time

        return self._until(is_enough, min_run_time, callback)

    def _until(
        self, is_enough: Callable[[list[float]], bool], seconds: float, callback: Any
    ) -> Measurement:
        number = self._number(seconds)
        times: list[float] = []
        while not times or not is_enough(times):
            times.append(self._times(number))
            if callback is not None:
                callback(number, times[-1])
        return self._measurement(number, times)


def _runner(code: str, setup: str) -> ast.Module:
    """The function that runs code a number of times, and gives the time that it takes."""
    tree = ast.parse(
        "def _run(_number, _settle, _timer):\n"
        "    _begin = _timer()\n"
        "    for _ in range(_number):\n"
        "        _settle()\n"
        "    return _timer() - _begin\n"
    )
    function: Any = tree.body[0]
    body: list[Any] = ast.parse(code).body
    if isinstance(body[-1], ast.Expr):
        body[-1] = ast.Assign([ast.Name("_held", ast.Store())], body[-1].value)
    function.body[1].body[:0] = body
    function.body[:0] = ast.parse(setup).body
    return ast.fix_missing_locations(tree)


class Compare:
    """Show measurements as a table: a row for each `sub_label`, a column for each `description`.

    Args:
        results: the measurements.

    Example:
        >>> named = {"label": "f", "sub_label": "1", "description": "new"}
        >>> m = adjit.utils.benchmark.Measurement(1, [0.001], "f()", **named)
        >>> print(adjit.utils.benchmark.Compare([m]))
        f: 1 thread, times in ms
            new
        -  ----
        1  1.00
        -  ----
    """

    def __init__(self, results: Iterable[Measurement]) -> None:
        self._results = list(results)

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """Add measurements.

        Example:
            >>> table = adjit.utils.benchmark.Compare([])
            >>> table.extend_results([adjit.utils.benchmark.Measurement(1, [1.0], "f()")])
        """
        self._results += results

    def trim_significant_figures(self) -> None:
        """Change nothing: three digits are shown.

        Example:
            >>> adjit.utils.benchmark.Compare([]).trim_significant_figures()
        """

    def colorize(self, rowwise: bool = False) -> None:
        """Change nothing: the table has no colours.

        Example:
            >>> adjit.utils.benchmark.Compare([]).colorize()
        """

    def print(self) -> None:
        """Print the tables, one for each label and number of threads.

        Example:
            >>> adjit.utils.benchmark.Compare([]).print()
            <BLANKLINE>
        """
        print(self)

    def __str__(self) -> str:
        groups: dict[tuple[str, int], list[Measurement]] = {}
        for found in self._results:
            name = found.label or found.stmt.split("\n")[0]
            groups.setdefault((name, found.num_threads), []).append(found)
        return "\n\n".join([_table(*key, group) for key, group in groups.items()])


def _table(title: str, threads: int, results: Sequence[Measurement]) -> str:
    columns = list(dict.fromkeys([found.description or "" for found in results]))
    cells: dict[str, dict[str, list[float]]] = {}
    for found in results:
        row = cells.setdefault(found.row_name, {})
        row.setdefault(found.description or "", []).extend(found.times)
    unit, scale = _unit(min(found.median for found in results))
    rows = [["", *columns]]
    for name, row in cells.items():
        shown = [f"{statistics.median(row[c]) / scale:.2f}" if c in row else "" for c in columns]
        rows.append([name, *shown])
    plural = "s" if threads > 1 else ""
    return f"{title}: {threads} thread{plural}, times in {unit}\n" + aligned(
        rows, range(1, len(columns) + 1)
    )
